/* expr_eval.c - values of symbolic expressions; see expr.h.
 *
 * The meaning of each function is the one torch gives it: torch/utils/_sympy/functions.py and reference.py. Integers and
 * ratios are exact, with a check of every overflow; a real operand makes the result a double.
 */
#include "expr_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
    fe_expr_lookup lookup;
    void *ctx;
    fe_expr_error *err;
} evaluation;

typedef fe_expr_value value;

static int fail(evaluation *ev, fe_expr e, fe_expr_fault fault, const char *what)
{
    fe_expr_fail(ev->err, fault, 0, "%s: %s", fe_expr_op_name((fe_expr_op)e->op), what);
    return -1;
}

static int overflows(evaluation *ev, fe_expr e)
{
    return fail(ev, e, FE_EXPR_RANGE, "the result does not fit in 64 bits");
}

static value of_int(int64_t p)
{
    return (value){.kind = FE_VALUE_INT, .p = p, .q = 1};
}

static value of_bool(bool b)
{
    return (value){.kind = FE_VALUE_BOOL, .p = b, .q = 1};
}

static value of_real(double real)
{
    return (value){.kind = FE_VALUE_REAL, .real = real};
}

static value of_number(fe_number n)
{
    if (n.is_real)
        return of_real(n.real);
    return (value){.kind = n.q == 1 ? FE_VALUE_INT : FE_VALUE_RATIO, .p = n.p, .q = n.q};
}

static fe_number number_of(value v)
{
    return (fe_number){.is_real = v.kind == FE_VALUE_REAL, .p = v.p, .q = v.q, .real = v.real};
}

static double real_of(value v)
{
    return fe_number_real(number_of(v));
}

static bool is_exact(value v)
{
    return v.kind != FE_VALUE_REAL;
}

static bool is_whole(value v)
{
    return v.kind == FE_VALUE_INT || v.kind == FE_VALUE_BOOL;
}

static bool truth_of(value v)
{
    return v.kind == FE_VALUE_REAL ? v.real != 0 : v.p != 0;
}

static int compare(value a, value b)
{
    return fe_number_compare(number_of(a), number_of(b));
}

/* A double as an integer; it must be one and fit. */
static int whole(evaluation *ev, fe_expr e, double real, value *out)
{
    if (!(real >= -0x1p63 && real < 0x1p63))
        return overflows(ev, e);
    *out = of_int((int64_t)real);
    return 0;
}

static int add(evaluation *ev, fe_expr e, value a, value b, value *out)
{
    fe_number n;

    if (!is_exact(a) || !is_exact(b)) {
        *out = of_real(real_of(a) + real_of(b));
        return 0;
    }
    if (!fe_number_add(number_of(a), number_of(b), &n))
        return overflows(ev, e);
    *out = of_number(n);
    return 0;
}

static int multiply(evaluation *ev, fe_expr e, value a, value b, value *out)
{
    fe_number n;

    if (!is_exact(a) || !is_exact(b)) {
        *out = of_real(real_of(a) * real_of(b));
        return 0;
    }
    if (!fe_number_mul(number_of(a), number_of(b), &n))
        return overflows(ev, e);
    *out = of_number(n);
    return 0;
}

/* ---- division, towards minus infinity as in Python ---- */

static int floor_of(evaluation *ev, fe_expr e, value v, value *out)
{
    if (v.kind == FE_VALUE_REAL)
        return whole(ev, e, floor(v.real), out);
    *out = of_int(v.p / v.q - (v.p % v.q < 0));
    return 0;
}

static int ceiling_of(evaluation *ev, fe_expr e, value v, value *out)
{
    if (v.kind == FE_VALUE_REAL)
        return whole(ev, e, ceil(v.real), out);
    *out = of_int(v.p / v.q + (v.p % v.q > 0));
    return 0;
}

static int floor_divide(evaluation *ev, fe_expr e, value a, value b, value *out)
{
    fe_number n;

    if (!truth_of(b))
        return fail(ev, e, FE_EXPR_DIVISION, "division by zero");
    if (is_whole(a) && is_whole(b)) {
        if (a.p == INT64_MIN && b.p == -1)
            return overflows(ev, e);
        *out = of_int(a.p / b.p - (a.p % b.p && (a.p % b.p < 0) != (b.p < 0)));
        return 0;
    }
    if (!is_exact(a) || !is_exact(b))
        return floor_of(ev, e, of_real(real_of(a) / real_of(b)), out);
    if (!fe_number_ratio(b.q, b.p, &n) || !fe_number_mul(number_of(a), n, &n))
        return overflows(ev, e);
    return floor_of(ev, e, of_number(n), out);
}

static int modulo(evaluation *ev, fe_expr e, value a, value b, value *out)
{
    value quotient, part;

    if (!truth_of(b))
        return fail(ev, e, FE_EXPR_DIVISION, "division by zero");
    if (is_whole(a) && is_whole(b)) {
        int64_t rest = b.p == -1 ? 0 : a.p % b.p;
        *out = of_int(rest && (rest < 0) != (b.p < 0) ? rest + b.p : rest);
        return 0;
    }
    if (!is_exact(a) || !is_exact(b)) {
        double y = real_of(b), rest = fmod(real_of(a), y);
        *out = of_real(rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest);
        return 0;
    }
    if (floor_divide(ev, e, a, b, &quotient) < 0 || multiply(ev, e, quotient, b, &part) < 0 ||
        multiply(ev, e, part, of_int(-1), &part) < 0)
        return -1;
    return add(ev, e, a, part, out);
}

static int ceiling_divide(evaluation *ev, fe_expr e, value a, value b, value *out)
{
    value minus = of_int(-1), x;

    if (multiply(ev, e, a, minus, &x) < 0 || floor_divide(ev, e, x, b, &x) < 0)
        return -1;
    return multiply(ev, e, x, minus, out);
}

static int true_divide(evaluation *ev, fe_expr e, value a, value b, value *out)
{
    if (!truth_of(b))
        return fail(ev, e, FE_EXPR_DIVISION, "division by zero");
    *out = of_real(real_of(a) / real_of(b));
    return 0;
}

/* ---- powers and shifts ---- */

/* The exact root of a square, as sympy has it; -1: none. */
static int64_t exact_root(int64_t square)
{
    int64_t root = (int64_t)sqrt((double)square);

    for (int64_t r = root > 0 ? root - 1 : 0; r <= root + 1 && r <= 3037000499; r++) {
        if (r * r == square)
            return r;
    }
    return -1;
}

static int power(evaluation *ev, fe_expr e, value a, value b, value *out)
{
    fe_number n;

    if (b.kind == FE_VALUE_INT && is_exact(a)) {
        if (b.p < 0 && a.p == 0)
            return fail(ev, e, FE_EXPR_DIVISION, "division by zero");
        if (!fe_number_power(number_of(a), b.p, &n))
            return overflows(ev, e);
        *out = of_number(n);
        return 0;
    }
    if (b.kind == FE_VALUE_RATIO && b.p == 1 && b.q == 2 && is_whole(a) && a.p >= 0 && exact_root(a.p) >= 0) {
        *out = of_int(exact_root(a.p));
        return 0;
    }
    *out = of_real(pow(real_of(a), real_of(b)));
    return 0;
}

static int shift(evaluation *ev, fe_expr e, value a, value b, value *out)
{
    if (!is_whole(a) || !is_whole(b))
        return fail(ev, e, FE_EXPR_MEANING, "a shift of what is not an integer");
    if (b.p < 0)
        return fail(ev, e, FE_EXPR_MEANING, "a negative shift");
    if (e->op == FE_EXPR_RSHIFT) {
        int64_t by = b.p > 63 ? 63 : b.p;
        *out = of_int(a.p < 0 ? ~(~a.p >> by) : a.p >> by);
        return 0;
    }
    if (a.p && b.p > FE_EXPR_MAX_SHIFT)
        return overflows(ev, e);
    return multiply(ev, e, a, of_int(a.p ? INT64_C(1) << b.p : 0), out);
}

/* ---- rounding ---- */

static int round_decimal(evaluation *ev, fe_expr e, value a, value digits, value *out)
{
    char text[400];

    if (!is_whole(digits) || digits.p < 0 || digits.p > 60)
        return fail(ev, e, FE_EXPR_MEANING, "digits outside 0 to 60");
    snprintf(text, sizeof text, "%.*f", (int)digits.p, real_of(a));
    *out = of_real(strtod(text, NULL));
    return 0;
}

static int round_to_int(evaluation *ev, fe_expr e, value a, value *out)
{
    if (is_whole(a)) {
        *out = of_int(a.p);
        return 0;
    }
    return whole(ev, e, nearbyint(real_of(a)), out); /* ties to even, as Python's round */
}

/* ---- functions of one argument ---- */

static int unary(evaluation *ev, fe_expr e, value a, value *out)
{
    double x = real_of(a);

    switch (e->op) {
    case FE_EXPR_IDENTITY:
        *out = a;
        return 0;
    case FE_EXPR_CEIL_TO_INT:
    case FE_EXPR_CEILING:
        return ceiling_of(ev, e, a, out);
    case FE_EXPR_FLOOR_TO_INT:
    case FE_EXPR_FLOOR:
        return floor_of(ev, e, a, out);
    case FE_EXPR_TRUNC_TO_INT:
        return a.kind != FE_VALUE_REAL ? (*out = of_int(a.p / a.q), 0) : whole(ev, e, trunc(x), out);
    case FE_EXPR_ROUND_TO_INT:
        return round_to_int(ev, e, a, out);
    case FE_EXPR_ABS:
        if (is_exact(a))
            return a.p < 0 ? multiply(ev, e, a, of_int(-1), out) : (*out = a, 0);
        *out = of_real(fabs(x));
        return 0;
    case FE_EXPR_NOT:
        *out = of_bool(!truth_of(a));
        return 0;
    case FE_EXPR_TRUNC_TO_FLOAT:
        x = trunc(x);
        break;
    case FE_EXPR_SQRT:
        x = sqrt(x);
        break;
    case FE_EXPR_COS:
        x = cos(x);
        break;
    case FE_EXPR_COSH:
        x = cosh(x);
        break;
    case FE_EXPR_SIN:
        x = sin(x);
        break;
    case FE_EXPR_SINH:
        x = sinh(x);
        break;
    case FE_EXPR_TAN:
        x = tan(x);
        break;
    case FE_EXPR_TANH:
        x = tanh(x);
        break;
    case FE_EXPR_ASIN:
        x = asin(x);
        break;
    case FE_EXPR_ACOS:
        x = acos(x);
        break;
    case FE_EXPR_ATAN:
        x = atan(x);
        break;
    case FE_EXPR_EXP:
        x = exp(x);
        break;
    case FE_EXPR_LOG:
        x = log(x);
        break;
    case FE_EXPR_ASINH:
        x = asinh(x);
        break;
    case FE_EXPR_LOG2:
        x = log2(x);
        break;
    default: /* ToFloat */
        break;
    }
    *out = of_real(x);
    return 0;
}

/* ---- functions of two arguments ---- */

static int bitwise(evaluation *ev, fe_expr e, value a, value b, value *out)
{
    if (!is_whole(a) || !is_whole(b))
        return fail(ev, e, FE_EXPR_MEANING, "bits of what is not an integer");
    *out = e->op == FE_EXPR_BITWISE_AND  ? of_int(a.p & b.p)
           : e->op == FE_EXPR_BITWISE_OR ? of_int(a.p | b.p)
                                         : of_int(a.p ^ b.p);
    if (a.kind == FE_VALUE_BOOL && b.kind == FE_VALUE_BOOL)
        out->kind = FE_VALUE_BOOL;
    return 0;
}

static int binary(evaluation *ev, fe_expr e, value a, value b, value *out)
{
    switch (e->op) {
    case FE_EXPR_ADD:
        return add(ev, e, a, b, out);
    case FE_EXPR_MUL:
        return multiply(ev, e, a, b, out);
    case FE_EXPR_MAX:
        *out = compare(b, a) > 0 ? b : a;
        return 0;
    case FE_EXPR_MIN:
        *out = compare(b, a) < 0 ? b : a;
        return 0;
    case FE_EXPR_POW:
    case FE_EXPR_POW_BY_NATURAL:
        return power(ev, e, a, b, out);
    case FE_EXPR_FLOAT_POW:
        *out = of_real(pow(real_of(a), real_of(b)));
        return 0;
    case FE_EXPR_MOD:
    case FE_EXPR_PYTHON_MOD:
        return modulo(ev, e, a, b, out);
    case FE_EXPR_FLOOR_DIV:
    case FE_EXPR_CLEAN_DIV:
        return floor_divide(ev, e, a, b, out);
    case FE_EXPR_CEIL_DIV:
        return ceiling_divide(ev, e, a, b, out);
    case FE_EXPR_INT_TRUE_DIV:
    case FE_EXPR_FLOAT_TRUE_DIV:
        return true_divide(ev, e, a, b, out);
    case FE_EXPR_LSHIFT:
    case FE_EXPR_RSHIFT:
        return shift(ev, e, a, b, out);
    case FE_EXPR_ROUND_DECIMAL:
        return round_decimal(ev, e, a, b, out);
    case FE_EXPR_GE:
        *out = of_bool(compare(a, b) >= 0);
        return 0;
    case FE_EXPR_LE:
        *out = of_bool(compare(a, b) <= 0);
        return 0;
    case FE_EXPR_GT:
        *out = of_bool(compare(a, b) > 0);
        return 0;
    case FE_EXPR_LT:
        *out = of_bool(compare(a, b) < 0);
        return 0;
    case FE_EXPR_EQ:
        *out = of_bool(compare(a, b) == 0);
        return 0;
    case FE_EXPR_NE:
        *out = of_bool(compare(a, b) != 0);
        return 0;
    case FE_EXPR_AND:
        *out = of_bool(truth_of(a) && truth_of(b));
        return 0;
    case FE_EXPR_OR:
        *out = of_bool(truth_of(a) || truth_of(b));
        return 0;
    default:
        return bitwise(ev, e, a, b, out);
    }
}

/* ---- trees ---- */

static int eval(evaluation *ev, fe_expr e, value *out);

#define MAX_RANK 64 /* of a tensor */

static int eval_whole(evaluation *ev, fe_expr e, fe_expr part, int64_t *out)
{
    value v;

    if (eval(ev, part, &v) < 0)
        return -1;
    *out = v.p;
    return is_whole(v) ? 0 : fail(ev, e, FE_EXPR_MEANING, "a size or stride that is not an integer");
}

/* Sizes and strides describe a tensor that has no gaps and no overlap, in whatever order of dimensions: the strides, from
 * small to large, are the products of the sizes before. Sizes of 1 don't count. */
static int non_overlapping(evaluation *ev, fe_expr e, value *out)
{
    int64_t sizes[MAX_RANK], strides[MAX_RANK], expected = 1;
    uint32_t rank = e->count / 2;

    if (rank > MAX_RANK)
        return fail(ev, e, FE_EXPR_MEANING, "more than 64 dimensions");
    for (uint32_t i = 0; i < rank; i++) {
        int64_t size, stride;
        uint32_t at = i;
        if (eval_whole(ev, e, e->args[i], &size) < 0 || eval_whole(ev, e, e->args[rank + i], &stride) < 0)
            return -1;
        for (; at && strides[at - 1] > stride; at--) {
            strides[at] = strides[at - 1];
            sizes[at] = sizes[at - 1];
        }
        strides[at] = stride;
        sizes[at] = size;
    }
    *out = of_int(rank == 1 && sizes[0] < 2);
    for (uint32_t i = 0; i < rank; i++) {
        if (sizes[i] == 1)
            continue;
        if (strides[i] != expected)
            return 0;
        if (__builtin_mul_overflow(expected, sizes[i], &expected))
            return overflows(ev, e);
    }
    *out = of_int(1);
    return 0;
}

static int eval_symbol(evaluation *ev, fe_expr e, value *out)
{
    if (ev->lookup && ev->lookup(ev->ctx, e, out))
        return 0;
    fe_expr_fail(ev->err, FE_EXPR_UNKNOWN, 0, "the symbol %.100s has no value", e->as.symbol.name);
    return -1;
}

static int eval_leaf(evaluation *ev, fe_expr e, value *out)
{
    fe_number n = {.q = 1};

    switch (e->op) {
    case FE_EXPR_SYMBOL:
        return eval_symbol(ev, e, out);
    case FE_EXPR_OO:
    case FE_EXPR_INT_OO:
        *out = of_real(e->as.integer > 0 ? (double)INFINITY : -(double)INFINITY);
        return 0;
    case FE_EXPR_BOOL:
        *out = of_bool(e->as.integer);
        return 0;
    default:
        (void)fe_expr_number(e, &n);
        *out = of_number(n);
        return 0;
    }
}

/* The value of the first case whose condition holds. */
static int eval_cases(evaluation *ev, fe_expr e, value *out)
{
    for (uint32_t i = 0; i < e->count; i++) {
        if (eval(ev, e->args[i]->args[1], out) < 0)
            return -1;
        if (truth_of(*out))
            return eval(ev, e->args[i]->args[0], out);
    }
    return fail(ev, e, FE_EXPR_MEANING, "none of its conditions holds");
}

static int eval_call(evaluation *ev, fe_expr e, value *out)
{
    value next;

    if (eval(ev, e->args[0], out) < 0)
        return -1;
    if (e->op == FE_EXPR_WHERE)
        return eval(ev, e->args[truth_of(*out) ? 1 : 2], out);
    if (fe_expr_functions[e->op].most == 1)
        return unary(ev, e, *out, out);
    if (e->op == FE_EXPR_MODULAR_INDEXING) {
        if (eval(ev, e->args[1], &next) < 0 || floor_divide(ev, e, *out, next, out) < 0 ||
            eval(ev, e->args[2], &next) < 0)
            return -1;
        return modulo(ev, e, *out, next, out);
    }
    if (e->op == FE_EXPR_AND || e->op == FE_EXPR_OR)
        *out = of_bool(truth_of(*out));
    for (uint32_t i = 1; i < e->count; i++) {
        if (e->op == FE_EXPR_AND && !truth_of(*out))
            break;
        if (e->op == FE_EXPR_OR && truth_of(*out))
            break;
        if (eval(ev, e->args[i], &next) < 0 || binary(ev, e, *out, next, out) < 0)
            return -1;
    }
    return 0;
}

static int eval(evaluation *ev, fe_expr e, value *out)
{
    int result = e->op < FE_EXPR_ADD                ? eval_leaf(ev, e, out)
                 : e->op == FE_EXPR_NON_OVERLAPPING ? non_overlapping(ev, e, out)
                 : e->op == FE_EXPR_PIECEWISE       ? eval_cases(ev, e, out)
                                                    : eval_call(ev, e, out);

    if (result == 0 && out->kind == FE_VALUE_REAL && isnan(out->real))
        return fail(ev, e, FE_EXPR_MEANING, "the result is not a number");
    return result;
}

int fe_expr_eval(fe_expr e, fe_expr_lookup lookup, void *ctx, fe_expr_value *out, fe_expr_error *err)
{
    return eval(&(evaluation){lookup, ctx, err}, e, out);
}
