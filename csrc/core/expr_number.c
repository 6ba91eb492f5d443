/* expr_number.c - exact numbers of 64 bits, as they stand in symbolic expressions; see expr_impl.h. */
#include "expr_impl.h"

#include <math.h>

bool fe_expr_number(fe_expr e, fe_number *out)
{
    switch (e->op) {
    case FE_EXPR_INTEGER:
        *out = (fe_number){.p = e->as.integer, .q = 1};
        return true;
    case FE_EXPR_RATIONAL:
        *out = (fe_number){.p = e->as.ratio.p, .q = e->as.ratio.q};
        return true;
    case FE_EXPR_FLOAT:
        *out = (fe_number){.is_real = true, .real = e->as.real.value};
        return true;
    default:
        return false;
    }
}

double fe_number_real(fe_number n)
{
    return n.is_real ? n.real : n.q == 1 ? (double)n.p : (double)n.p / (double)n.q;
}

int fe_number_sign(fe_number n)
{
    return n.is_real ? (n.real > 0) - (n.real < 0) : (n.p > 0) - (n.p < 0);
}

static uint64_t magnitude(int64_t x)
{
    return x < 0 ? 0 - (uint64_t)x : (uint64_t)x;
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static bool signed_of(uint64_t value, bool negative, int64_t *out)
{
    if (value > (uint64_t)INT64_MAX + negative)
        return false;
    *out = negative ? (int64_t)(0 - value) : (int64_t)value;
    return true;
}

bool fe_number_ratio(int64_t p, int64_t q, fe_number *out)
{
    uint64_t top = magnitude(p), bottom = magnitude(q), d = common_divisor(top, bottom);

    *out = (fe_number){.q = 1};
    return signed_of(top / d, (p < 0) != (q < 0) && p, &out->p) && signed_of(bottom / d, false, &out->q);
}

bool fe_number_add(fe_number a, fe_number b, fe_number *out)
{
    int64_t x, y, bottom;

    if (a.is_real || b.is_real) {
        *out = (fe_number){.is_real = true, .real = fe_number_real(a) + fe_number_real(b)};
        return isfinite(out->real);
    }
    return !__builtin_mul_overflow(a.p, b.q, &x) && !__builtin_mul_overflow(b.p, a.q, &y) &&
           !__builtin_add_overflow(x, y, &x) && !__builtin_mul_overflow(a.q, b.q, &bottom) &&
           fe_number_ratio(x, bottom, out);
}

bool fe_number_mul(fe_number a, fe_number b, fe_number *out)
{
    fe_number x, y;
    int64_t top, bottom;

    if (a.is_real || b.is_real) {
        *out = (fe_number){.is_real = true, .real = fe_number_real(a) * fe_number_real(b)};
        return isfinite(out->real);
    }
    /* Shorten crosswise first, so that only what really is too large overflows. */
    return fe_number_ratio(a.p, b.q, &x) && fe_number_ratio(b.p, a.q, &y) && !__builtin_mul_overflow(x.p, y.p, &top) &&
           !__builtin_mul_overflow(x.q, y.q, &bottom) && fe_number_ratio(top, bottom, out);
}

bool fe_number_power(fe_number base, int64_t exponent, fe_number *out)
{
    fe_number result = {.p = 1, .q = 1};
    uint64_t rest = magnitude(exponent);

    if (base.is_real) {
        *out = (fe_number){.is_real = true, .real = pow(base.real, (double)exponent)};
        return isfinite(out->real);
    }
    if (exponent < 0 && (base.p == 0 || !fe_number_ratio(base.q, base.p, &base)))
        return false;
    if (base.q == 1 && (base.p == 0 || base.p == 1 || base.p == -1)) {
        *out = (fe_number){.p = rest == 0 ? 1 : base.p == -1 && rest % 2 == 0 ? 1 : base.p, .q = 1};
        return true;
    }
    for (; rest; rest--) { /* ends by overflow after 63 rounds at most */
        if (!fe_number_mul(result, base, &result))
            return false;
    }
    *out = result;
    return true;
}

uint32_t fe_expr_split_product(fe_expr product, fe_number *coefficient, const fe_expr **factors)
{
    fe_number n;
    uint32_t i = 0;

    *coefficient = (fe_number){.p = 1, .q = 1};
    /* Numbers come first; fe_expr_call made sure that their product fits. */
    while (i < product->count && fe_expr_number(product->order[i], &n) && fe_number_mul(*coefficient, n, coefficient))
        i++;
    *factors = product->order + i;
    return product->count - i;
}
