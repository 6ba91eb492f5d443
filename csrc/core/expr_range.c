/* expr_range.c - arithmetic of ranges; see expr_range.h.
 *
 * What a range must hold is what expr_eval.c computes. Monotone functions are computed at the ends; products and the like
 * at the four corners. Source of the rules, where they are as tight: torch/utils/_sympy/value_ranges.py.
 */
#include "expr_range.h"

#include <math.h>
#include <stdio.h>

#define INF FE_WIDE_INF

typedef fe_range range;
typedef fe_wide wide;

/* ---- making ranges ---- */

range fe_range_int(wide lo, wide hi)
{
    range r = {.kind = FE_VALUE_INT, .lo = lo, .hi = hi};

    if (lo < INT64_MIN)
        r.lo = -INF;
    else if (lo > INT64_MAX)
        r.lo = INT64_MAX;
    if (hi > INT64_MAX)
        r.hi = INF;
    else if (hi < INT64_MIN)
        r.hi = INT64_MIN;
    return r;
}

range fe_range_bool(bool lo, bool hi)
{
    return (range){.kind = FE_VALUE_BOOL, .lo = lo, .hi = hi};
}

range fe_range_real(double low, double high)
{
    return (range){.kind = FE_VALUE_REAL,
                   .low = isnan(low) ? -(double)INFINITY : low,
                   .high = isnan(high) ? (double)INFINITY : high};
}

static range any_int(void)
{
    return fe_range_int(-INF, INF);
}

range fe_range_any_real(void)
{
    return fe_range_real(-(double)INFINITY, (double)INFINITY);
}

static double below(double x)
{
    return nextafter(x, -(double)INFINITY);
}

static double above(double x)
{
    return nextafter(x, (double)INFINITY);
}

static double real_down(wide x)
{
    double d = (double)x;

    if (x <= -INF || x >= INF)
        return x < 0 ? -(double)INFINITY : (double)INFINITY;
    return (wide)d > x ? below(d) : d;
}

static double real_up(wide x)
{
    double d = (double)x;

    if (x <= -INF || x >= INF)
        return x < 0 ? -(double)INFINITY : (double)INFINITY;
    return (wide)d < x ? above(d) : d;
}

static wide wide_of(double x)
{
    return x >= 0x1p64 ? INF : x <= -0x1p64 ? -INF : (wide)x;
}

/* An INT or BOOL as reals. It holds the nearest doubles as well as the integers themselves. */
static range to_real(range a)
{
    if (a.kind == FE_VALUE_REAL)
        return a;
    return fe_range_real(real_down(a.lo), real_up(a.hi));
}

static range to_int(range a)
{
    if (a.kind == FE_VALUE_REAL)
        return fe_range_int(wide_of(floor(a.low)), wide_of(ceil(a.high)));
    a.kind = FE_VALUE_INT;
    return a;
}

static bool is_whole(range a)
{
    return a.kind != FE_VALUE_REAL;
}

range fe_range_truth(range a)
{
    range r = to_real(a);

    if (a.kind == FE_VALUE_BOOL)
        return a;
    return fe_range_bool(r.low > 0 || r.high < 0, r.low != 0 || r.high != 0);
}

range fe_range_union(range a, range b)
{
    if (!is_whole(a) || !is_whole(b)) {
        a = to_real(a);
        b = to_real(b);
        return fe_range_real(fmin(a.low, b.low), fmax(a.high, b.high));
    }
    if (a.kind != b.kind)
        a.kind = FE_VALUE_INT;
    a.lo = a.lo < b.lo ? a.lo : b.lo;
    a.hi = a.hi > b.hi ? a.hi : b.hi;
    return a;
}

static range negate(range a)
{
    return is_whole(a) ? fe_range_int(-a.hi, -a.lo) : fe_range_real(-a.high, -a.low);
}

/* The range of four corners, which one function computes; reals are rounded by it, outwards for up. */
static range int_corners(wide (*f)(wide, wide), range a, range b)
{
    wide lo = INF, hi = -INF;

    for (int i = 0; i < 4; i++) {
        wide x = f(i & 1 ? a.hi : a.lo, i & 2 ? b.hi : b.lo);
        lo = x < lo ? x : lo;
        hi = x > hi ? x : hi;
    }
    return fe_range_int(lo, hi);
}

static range real_corners(double (*f)(double, double, bool up), range a, range b)
{
    double low = (double)INFINITY, high = -(double)INFINITY;

    for (int i = 0; i < 4; i++) {
        double x = i & 1 ? a.high : a.low, y = i & 2 ? b.high : b.low;
        low = fmin(low, f(x, y, false));
        high = fmax(high, f(x, y, true));
    }
    return fe_range_real(low, high);
}

/* ---- rounding of reals ---- */

static double outwards(double x, bool exact, bool up)
{
    return exact ? x : up ? above(x) : below(x);
}

static double add_real(double a, double b, bool up)
{
    double sum = a + b, part = sum - a;

    if (isinf(a) || isinf(b))
        return isnan(sum) ? (up ? (double)INFINITY : -(double)INFINITY) : sum;
    return outwards(sum, (a - (sum - part)) + (b - part) == 0, up);
}

#define SMALL 1e-280 /* below this a rest may vanish */

static double multiply_real(double a, double b, bool up)
{
    double x = a * b;

    if (a == 0 || b == 0)
        return 0;
    if (isinf(a) || isinf(b))
        return x;
    return outwards(x, fabs(x) > SMALL && isfinite(x) && fma(a, b, -x) == 0, up);
}

static double divide_real(double a, double b, bool up)
{
    double x = a / b;

    if (a == 0 || isinf(b))
        return 0;
    if (isinf(a))
        return x;
    return outwards(x, fabs(x) > SMALL && fabs(a) > SMALL && isfinite(x) && fma(x, b, -a) == 0, up);
}

range fe_range_ratio(int64_t p, int64_t q)
{
    range a = to_real(fe_range_int(p, p)), b = to_real(fe_range_int(q, q));

    return real_corners(divide_real, a, b);
}

/* ---- sums and products ---- */

static range add(range a, range b)
{
    if (is_whole(a) && is_whole(b))
        return fe_range_int(a.lo == -INF || b.lo == -INF ? -INF : a.lo + b.lo,
                            a.hi == INF || b.hi == INF ? INF : a.hi + b.hi);
    a = to_real(a);
    b = to_real(b);
    return fe_range_real(add_real(a.low, b.low, false), add_real(a.high, b.high, true));
}

static bool is_infinite(wide x)
{
    return x == INF || x == -INF;
}

static wide multiply_wide(wide a, wide b)
{
    if (a == 0 || b == 0)
        return 0;
    if (is_infinite(a) || is_infinite(b))
        return (a < 0) == (b < 0) ? INF : -INF;
    return a * b;
}

static range multiply(range a, range b)
{
    if (is_whole(a) && is_whole(b))
        return int_corners(multiply_wide, a, b);
    return real_corners(multiply_real, to_real(a), to_real(b));
}

/* ---- divisions ---- */

/* Without 0, a divisor is below it or above it, and there the quotient is monotone. */
static range by_parts(range (*f)(range, range), range a, range b, range otherwise)
{
    range minus = b, plus = b;

    if (is_whole(b)) {
        minus.hi = b.hi < -1 ? b.hi : -1;
        plus.lo = b.lo > 1 ? b.lo : 1;
        if (b.lo < 0 && b.hi > 0)
            return fe_range_union(f(a, minus), f(a, plus));
        return b.lo < 0 ? f(a, minus) : b.hi > 0 ? f(a, plus) : otherwise;
    }
    return b.low > 0 || b.high < 0 ? f(a, b) : otherwise;
}

static wide floor_divide_wide(wide a, wide b)
{
    bool opposite = (a < 0) != (b < 0);

    if (is_infinite(b))
        return is_infinite(a) || a == 0 || !opposite ? 0 : -1;
    if (is_infinite(a))
        return opposite ? -INF : INF;
    return a / b - (a % b && opposite);
}

static range real_quotient(range a, range b)
{
    return real_corners(divide_real, to_real(a), to_real(b));
}

/* The quotient that fe_expr_eval computes, which is a double and grows where the exact one does. */
static double divide_nearest(double a, double b, bool up)
{
    (void)up;
    return a == 0 || isinf(b) ? 0 : a / b;
}

static range double_quotient(range a, range b)
{
    return real_corners(divide_nearest, to_real(a), to_real(b));
}

static range floor_quotient(range a, range b)
{
    if (is_whole(a) && is_whole(b))
        return int_corners(floor_divide_wide, a, b);
    range q = real_quotient(a, b);
    return fe_range_int(wide_of(floor(q.low)), wide_of(floor(q.high)));
}

static range floor_divide(range a, range b)
{
    return by_parts(floor_quotient, a, b, any_int());
}

static range true_divide(range a, range b)
{
    return by_parts(double_quotient, a, b, fe_range_any_real());
}

/* b is above 0. */
static range remainder_above(range a, range b)
{
    bool one = b.lo == b.hi && !is_infinite(a.lo) && !is_infinite(a.hi);
    wide hi = b.hi == INF ? INF : b.hi - 1;

    if (one && floor_divide_wide(a.lo, b.lo) == floor_divide_wide(a.hi, b.lo)) {
        wide start = floor_divide_wide(a.lo, b.lo) * b.lo;
        return fe_range_int(a.lo - start, a.hi - start);
    }
    if (a.lo >= 0 && a.hi < b.lo)
        return a;
    return fe_range_int(0, a.lo >= 0 && a.hi < hi ? a.hi : hi);
}

static range int_remainder(range a, range b)
{
    if (b.lo > 0)
        return remainder_above(a, b);
    range minus = {.kind = FE_VALUE_INT, .lo = -b.hi, .hi = -b.lo},
          n = {.kind = FE_VALUE_INT, .lo = -a.hi, .hi = -a.lo};
    return negate(remainder_above(n, minus));
}

static range modulo(range a, range b)
{
    if (is_whole(a) && is_whole(b))
        return by_parts(int_remainder, to_int(a), to_int(b), any_int());
    b = to_real(b);
    return fe_range_real(fmin(b.low, 0), fmax(b.high, 0));
}

/* ---- powers and shifts ---- */

static wide power_wide(wide x, wide n)
{
    wide result = 1;

    if (n == 0 || x == 1)
        return 1;
    if (x == 0)
        return 0;
    if (x == -1 && n < INF)
        return n % 2 ? -1 : 1;
    if (n >= INF)
        return INF;
    for (; n > 0; n--) {
        result = multiply_wide(result, x);
        if (result > INT64_MAX || result < INT64_MIN)
            return x > 0 || n % 2 == 1 ? (result > 0 ? INF : -INF) : (result > 0 ? -INF : INF);
    }
    return result;
}

static wide magnitude(range a)
{
    wide x = a.lo < 0 ? -a.lo : a.lo, y = a.hi < 0 ? -a.hi : a.hi;

    return x > y ? x : y;
}

/* With exponents below 0, each result lies between 0 and 1 on either side. */
static range power_below(range a, range b)
{
    wide m = b.hi > 0 ? power_wide(magnitude(a), b.hi) : 1;
    double most = fmax(1, real_up(m));

    return fe_range_real(a.lo >= 0 ? 0 : -most, most);
}

static range power_int(range a, range b)
{
    wide most = power_wide(magnitude(a), b.hi);

    if (b.lo < 0 && b.lo == b.hi && (a.lo > 0 || a.hi < 0))
        return real_quotient(fe_range_int(1, 1), power_int(a, fe_range_int(-b.lo, -b.lo)));
    if (b.lo < 0)
        return power_below(a, b);
    if (b.lo == b.hi) {
        wide x = power_wide(a.lo, b.lo), y = power_wide(a.hi, b.lo);
        if (b.lo % 2 || b.lo == 0 || a.lo >= 0)
            return fe_range_int(x, y);
        return a.hi <= 0 ? fe_range_int(y, x) : fe_range_int(0, x > y ? x : y);
    }
    if (a.lo >= 1)
        return fe_range_int(power_wide(a.lo, b.lo), power_wide(a.hi, b.hi));
    most = most < 1 ? 1 : most;
    return fe_range_int(a.lo >= 0 ? 0 : -most, most);
}

#define WIDENED 4 /* what the C library's functions may be wrong by, in units of the last place, and more */

static double widen(double x, bool up)
{
    for (int i = 0; i < WIDENED; i++)
        x = up ? above(x) : below(x);
    return x;
}

static double power_corner(double x, double y, bool up)
{
    double p = pow(x, y);

    if (y == 0 || x == 1 || (x == 0 && y > 0) || isinf(p) || (p == 0 && !up) || y == 1)
        return p;
    if (y == 0.5) {
        p = sqrt(x);
        return outwards(p, fma(p, p, -x) == 0, up);
    }
    if (y == floor(y) && fabs(p) < 0x1p53 && x == floor(x) && y > 0)
        return p; /* exact */
    p = widen(p, up);
    return x >= 0 && p < 0 ? 0 : p;
}

static range power_real(range a, range b)
{
    bool one = b.low == b.high, whole = one && isfinite(b.low) && b.low == floor(b.low);

    if (one && !whole && a.low < 0 && a.high >= 0 && !isinf(a.low)) /* C's pow has a root of -oo */
        a.low = 0;                                                  /* roots of what is below 0 are no numbers */
    if (a.low > 0 || (a.low == 0 && b.low > 0))
        return real_corners(power_corner, a, b);
    if (!whole || (b.low < 0 && a.low <= 0 && a.high >= 0))
        return fe_range_any_real();
    if (fmod(b.low, 2) == 0 && a.low < 0 && a.high > 0) {
        double high = fmax(power_corner(a.low, b.low, true), power_corner(a.high, b.low, true));
        return fe_range_real(b.low == 0 ? 1 : 0, high);
    }
    return real_corners(power_corner, a, b);
}

static range power(range a, range b)
{
    if (is_whole(a) && b.kind == FE_VALUE_INT)
        return power_int(to_int(a), b);
    return power_real(to_real(a), to_real(b));
}

static wide shift_left(wide a, wide n)
{
    return n > 62 ? (a > 0 ? INF : a < 0 ? -INF : 0) : multiply_wide(a, (wide)1 << (int)n);
}

static wide shift_right(wide a, wide n)
{
    if (n >= INF)
        return a < 0 ? -1 : 0;
    if (is_infinite(a))
        return a;
    return floor_divide_wide(a, (wide)1 << (int)(n > 63 ? 63 : n));
}

static range shift(fe_expr_op op, range a, range b)
{
    a = to_int(a);
    b = to_int(b);
    if (b.hi < 0)
        return any_int();
    b.lo = b.lo < 0 ? 0 : b.lo;
    return int_corners(op == FE_EXPR_LSHIFT ? shift_left : shift_right, a, b);
}

/* ---- bits ---- */

/* 2**k - 1 for the least k that holds a number of no sign. */
static wide all_bits(wide x)
{
    wide bits = 0;

    if (x >= INF)
        return INF;
    while (bits < x)
        bits = 2 * bits + 1;
    return bits;
}

static range bits_and(range a, range b)
{
    wide lo = a.lo < b.lo ? a.lo : b.lo, hi = a.hi > b.hi ? a.hi : b.hi;

    if (a.lo >= 0 || b.lo >= 0) {
        hi = a.lo < 0 ? b.hi : b.lo < 0 ? a.hi : a.hi < b.hi ? a.hi : b.hi;
        return fe_range_int(0, hi);
    }
    lo = lo == -INF ? -INF : -all_bits(-lo - 1) - 1;
    if (a.hi < 0 && b.hi < 0)
        hi = a.hi < b.hi ? a.hi : b.hi;
    return fe_range_int(lo, hi);
}

static range complement(range a)
{
    return fe_range_int(a.hi == INF ? -INF : -1 - a.hi, a.lo == -INF ? INF : -1 - a.lo);
}

static range bits_or(range a, range b)
{
    return complement(bits_and(complement(a), complement(b)));
}

static range bits_xor(range a, range b)
{
    wide x = a.lo < 0 ? (a.lo == -INF ? INF : -1 - a.lo) : 0, y = b.lo < 0 ? (b.lo == -INF ? INF : -1 - b.lo) : 0;
    wide most = x > y ? x : y;

    if (a.lo == a.hi && b.lo == b.hi && !is_infinite(a.lo) && !is_infinite(b.lo)) {
        wide one = (int64_t)a.lo ^ (int64_t)b.lo;
        return fe_range_int(one, one);
    }
    most = a.hi > most ? a.hi : most;
    most = b.hi > most ? b.hi : most;
    most = all_bits(most);
    if ((a.lo >= 0 && b.lo >= 0) || (a.hi < 0 && b.hi < 0))
        return fe_range_int(0, most);
    bool opposite = (a.lo >= 0 && b.hi < 0) || (a.hi < 0 && b.lo >= 0);
    return fe_range_int(most == INF ? -INF : -most - 1, opposite ? -1 : most);
}

static range bitwise(fe_expr_op op, range a, range b)
{
    if (a.kind == FE_VALUE_BOOL && b.kind == FE_VALUE_BOOL) {
        if (op == FE_EXPR_BITWISE_AND)
            return fe_range_bool(a.lo && b.lo, a.hi && b.hi);
        if (op == FE_EXPR_BITWISE_OR)
            return fe_range_bool(a.lo || b.lo, a.hi || b.hi);
        bool known = a.lo == a.hi && b.lo == b.hi;
        return known ? fe_range_bool(a.lo != b.lo, a.lo != b.lo) : fe_range_bool(false, true);
    }
    a = to_int(a);
    b = to_int(b);
    return op == FE_EXPR_BITWISE_AND ? bits_and(a, b) : op == FE_EXPR_BITWISE_OR ? bits_or(a, b) : bits_xor(a, b);
}

/* ---- comparisons ---- */

static range not_(range a)
{
    a = fe_range_truth(a);
    return fe_range_bool(!a.hi, !a.lo);
}

static range less(range a, range b)
{
    if (is_whole(a) && is_whole(b))
        return fe_range_bool(a.hi < b.lo, !(a.lo >= b.hi));
    a = to_real(a);
    b = to_real(b);
    return fe_range_bool(a.high < b.low, !(a.low >= b.high));
}

static range equal(range a, range b)
{
    if (is_whole(a) && is_whole(b))
        return fe_range_bool(a.lo == a.hi && b.lo == b.hi && a.lo == b.lo, a.lo <= b.hi && b.lo <= a.hi);
    a = to_real(a);
    b = to_real(b);
    return fe_range_bool(a.low == a.high && b.low == b.high && a.low == b.low, a.low <= b.high && b.low <= a.high);
}

/* ---- functions of one argument ---- */

static range rounded(range a, double (*f)(double))
{
    if (is_whole(a))
        return to_int(a);
    return fe_range_int(wide_of(f(a.low)), wide_of(f(a.high)));
}

/* A function of the C library that grows. */
static range growing(range a, double (*f)(double))
{
    double low = f(a.low), high = f(a.high);

    if (a.low == a.high)
        return fe_range_real(low, high);
    /* 0 and 1 are the values that these functions hit exactly */
    return fe_range_real(low == 0 || low == 1 ? low : widen(low, false),
                         high == 0 || high == 1 ? high : widen(high, true));
}

static range within(range a, double low, double high)
{
    return fe_range_real(fmin(fmax(a.low, low), high), fmax(fmin(a.high, high), low));
}

static range cosh_of(range a)
{
    double most = fmax(fabs(a.low), fabs(a.high)),
           least = a.low <= 0 && a.high >= 0 ? 0 : fmin(fabs(a.low), fabs(a.high));

    return within(growing(fe_range_real(least, most), cosh), 1, (double)INFINITY);
}

static range square_root(range a)
{
    a = within(a, 0, (double)INFINITY);
    return fe_range_real(isinf(a.low) ? a.low : power_corner(a.low, 0.5, false),
                         isinf(a.high) ? a.high : power_corner(a.high, 0.5, true));
}

static range transcendental(fe_expr_op op, range a)
{
    const double inf = (double)INFINITY;

    switch (op) {
    case FE_EXPR_SQRT:
        return square_root(a);
    case FE_EXPR_COS:
    case FE_EXPR_SIN:
        if (a.low == a.high && isfinite(a.low))
            return growing(a, op == FE_EXPR_COS ? cos : sin);
        return fe_range_real(-1, 1);
    case FE_EXPR_TAN:
        return a.low == a.high && isfinite(a.low) ? growing(a, tan) : fe_range_any_real();
    case FE_EXPR_COSH:
        return cosh_of(a);
    case FE_EXPR_SINH:
        return growing(a, sinh);
    case FE_EXPR_TANH:
        return within(growing(a, tanh), -1, 1);
    case FE_EXPR_ASIN:
        return growing(within(a, -1, 1), asin);
    case FE_EXPR_ACOS:
        a = within(a, -1, 1);
        return within(fe_range_real(widen(acos(a.high), false), widen(acos(a.low), true)), 0, 4);
    case FE_EXPR_ATAN:
        return growing(a, atan);
    case FE_EXPR_ASINH:
        return growing(a, asinh);
    case FE_EXPR_EXP:
        return within(growing(a, exp), 0, inf);
    case FE_EXPR_LOG:
        return growing(within(a, 0, inf), log);
    default:
        return growing(within(a, 0, inf), log2);
    }
}

static range absolute(range a)
{
    if (is_whole(a)) {
        if (a.lo >= 0)
            return to_int(a);
        return a.hi <= 0 ? fe_range_int(-a.hi, -a.lo) : fe_range_int(0, magnitude(a));
    }
    if (a.low >= 0)
        return a;
    return a.high <= 0 ? fe_range_real(-a.high, -a.low) : fe_range_real(0, fmax(-a.low, a.high));
}

range fe_range_unary(fe_expr_op op, range a)
{
    switch (op) {
    case FE_EXPR_IDENTITY:
        return a;
    case FE_EXPR_CEIL_TO_INT:
    case FE_EXPR_CEILING:
        return rounded(a, ceil);
    case FE_EXPR_FLOOR_TO_INT:
    case FE_EXPR_FLOOR:
        return rounded(a, floor);
    case FE_EXPR_TRUNC_TO_INT:
        return rounded(a, trunc);
    case FE_EXPR_ROUND_TO_INT:
        return rounded(a, nearbyint);
    case FE_EXPR_TRUNC_TO_FLOAT:
        a = to_real(a);
        return fe_range_real(trunc(a.low), trunc(a.high));
    case FE_EXPR_TO_FLOAT:
        return to_real(a);
    case FE_EXPR_ABS:
        return absolute(a);
    case FE_EXPR_NOT:
        return not_(a);
    case FE_EXPR_ADD:
    case FE_EXPR_MUL:
    case FE_EXPR_MAX:
    case FE_EXPR_MIN:
        return a;
    case FE_EXPR_AND:
    case FE_EXPR_OR:
        return fe_range_truth(a);
    default:
        return transcendental(op, to_real(a));
    }
}

/* ---- functions of two arguments ---- */

static range extreme(range a, range b, bool max)
{
    if (is_whole(a) && is_whole(b)) {
        a = to_int(a);
        b = to_int(b);
        return max ? fe_range_int(a.lo > b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi)
                   : fe_range_int(a.lo < b.lo ? a.lo : b.lo, a.hi < b.hi ? a.hi : b.hi);
    }
    a = to_real(a);
    b = to_real(b);
    return max ? fe_range_real(fmax(a.low, b.low), fmax(a.high, b.high))
               : fe_range_real(fmin(a.low, b.low), fmin(a.high, b.high));
}

/* Rounding to digits behind the point stays between the integers around; to one more digit or fewer is not told apart. */
static range round_decimal(range a)
{
    a = to_real(a);
    return fe_range_real(floor(a.low), ceil(a.high));
}

range fe_range_binary(fe_expr_op op, range a, range b)
{
    switch (op) {
    case FE_EXPR_ADD:
        return add(a, b);
    case FE_EXPR_MUL:
        return multiply(a, b);
    case FE_EXPR_MAX:
    case FE_EXPR_MIN:
        return extreme(a, b, op == FE_EXPR_MAX);
    case FE_EXPR_POW:
    case FE_EXPR_POW_BY_NATURAL:
        return power(a, b);
    case FE_EXPR_FLOAT_POW:
        return power_real(to_real(a), to_real(b));
    case FE_EXPR_MOD:
    case FE_EXPR_PYTHON_MOD:
        return modulo(a, b);
    case FE_EXPR_FLOOR_DIV:
    case FE_EXPR_CLEAN_DIV:
        return floor_divide(a, b);
    case FE_EXPR_CEIL_DIV:
        return negate(floor_divide(negate(a), b));
    case FE_EXPR_INT_TRUE_DIV:
    case FE_EXPR_FLOAT_TRUE_DIV:
        return true_divide(a, b);
    case FE_EXPR_LSHIFT:
    case FE_EXPR_RSHIFT:
        return shift(op, a, b);
    case FE_EXPR_ROUND_DECIMAL:
        return round_decimal(a);
    case FE_EXPR_GE:
        return not_(less(a, b));
    case FE_EXPR_LE:
        return not_(less(b, a));
    case FE_EXPR_GT:
        return less(b, a);
    case FE_EXPR_LT:
        return less(a, b);
    case FE_EXPR_EQ:
        return equal(a, b);
    case FE_EXPR_NE:
        return not_(equal(a, b));
    case FE_EXPR_AND:
    case FE_EXPR_OR:
        a = fe_range_truth(a);
        b = fe_range_truth(b);
        return op == FE_EXPR_AND ? fe_range_bool(a.lo && b.lo, a.hi && b.hi)
                                 : fe_range_bool(a.lo || b.lo, a.hi || b.hi);
    default:
        return bitwise(op, a, b);
    }
}
