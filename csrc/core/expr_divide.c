/* expr_divide.c - FloorDiv, Mod and their kin in the form that torch gives them; see fe_expr_make in expr.h.
 *
 * Source: torch/utils/_sympy/functions.py. What it asks sympy's polynomials for (common divisors of sums) is followed for
 * numbers and for factors that all terms share.
 */
#include "expr_impl.h"

typedef struct {
    fe_exprs *pool;
    fe_expr_error *err;
} maker;

static const fe_expr *terms_of(const fe_expr *e, uint32_t *count)
{
    if ((*e)->op != FE_EXPR_ADD) {
        *count = 1;
        return e;
    }
    *count = (*e)->count;
    return (*e)->args;
}

static bool is_integer(fe_expr e, int64_t value)
{
    return e->op == FE_EXPR_INTEGER && e->as.integer == value;
}

/* A term as number * factors, a number having no factors. */
static void split(const fe_expr *term, fe_number *number, const fe_expr **factors, uint32_t *count)
{
    if (fe_expr_number(*term, number))
        *count = 0;
    else
        fe_expr_split_term(term, number, factors, count);
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

/* The greatest integer that divides the integers before all terms; 1 where one has none. */
static uint64_t content_of(fe_expr e)
{
    uint32_t count, n;
    const fe_expr *terms = terms_of(&e, &count), *factors;
    uint64_t result = 0;
    fe_number number;

    for (uint32_t i = 0; i < count; i++) {
        split(&terms[i], &number, &factors, &n);
        result = common_divisor(result, number.is_real || number.q != 1 ? 1 : magnitude(number.p));
    }
    return result ? result : 1;
}

static uint32_t find_factor(const fe_expr *factors, uint32_t count, fe_expr factor)
{
    uint32_t i = 0;

    while (i < count && factors[i] != factor)
        i++;
    return i;
}

static bool in_all_terms(fe_expr e, fe_expr factor)
{
    uint32_t count, n;
    const fe_expr *terms = terms_of(&e, &count), *factors;
    fe_number number;

    for (uint32_t i = 0; i < count; i++) {
        split(&terms[i], &number, &factors, &n);
        if (find_factor(factors, n, factor) == n)
            return false;
    }
    return true;
}

/* number * factors, without the one at `without` (count: with all). */
static fe_expr put_together(maker *m, fe_number number, const fe_expr *factors, uint32_t count, uint32_t without)
{
    uint32_t n = count - (without < count);

    if (!n)
        return fe_expr_number_node(m->pool, number, m->err);
    if (without >= count)
        return fe_expr_scaled(m->pool, number, factors, count, m->err);
    fe_expr *rest = fe_exprs_take(m->pool, n, m->err);
    if (!rest)
        return NULL;
    memcpy(rest, factors, without * sizeof *rest);
    memcpy(rest + without, factors + without + 1, (count - without - 1) * sizeof *rest);
    fe_expr result = fe_expr_scaled(m->pool, number, rest, n, m->err);
    fe_exprs_give(m->pool, rest, n);
    return result;
}

/* e / (divisor * factor), which goes without a rest; factor NULL: 1. */
static fe_expr divide_exactly(maker *m, fe_expr e, uint64_t divisor, fe_expr factor)
{
    uint32_t count, n, i = 0;
    const fe_expr *terms = terms_of(&e, &count), *factors = NULL;
    fe_expr *result = fe_exprs_take(m->pool, count, m->err), sum = NULL;
    fe_number number;

    for (; result && i < count; i++) {
        split(&terms[i], &number, &factors, &n);
        if (!number.is_real && divisor > 1)
            number.p = number.p < 0 ? -(int64_t)(magnitude(number.p) / divisor) : number.p / (int64_t)divisor;
        if (!(result[i] = put_together(m, number, factors, n, factor ? find_factor(factors, n, factor) : n)))
            break;
    }
    if (result && i == count)
        sum = count == 1 ? result[0] : fe_expr_sum(m->pool, result, count, m->err);
    if (result)
        fe_exprs_give(m->pool, result, count);
    return sum;
}

/* Is number * factors a multiple of the divisor, whatever the factors are? */
static bool is_multiple(fe_number number, const fe_expr *factors, uint32_t count, int64_t divisor)
{
    if (number.is_real || number.q != 1 || (divisor != -1 && number.p % divisor) ||
        (divisor == -1 && number.p == INT64_MIN))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        if (!fe_expr_is_integer(factors[i]))
            return false;
    }
    return true;
}

static bool is_multiple_of(const fe_expr *term, int64_t divisor)
{
    const fe_expr *factors = NULL;
    fe_number number;
    uint32_t n;

    split(term, &number, &factors, &n);
    return is_multiple(number, factors, n, divisor);
}

static bool is_natural(fe_expr e)
{
    return fe_expr_is_integer(e) && !(fe_expr_signs(e) & FE_SIGN_MINUS);
}

/* ---- FloorDiv ---- */

static fe_expr floor_divide(maker *m, fe_expr_op op, fe_expr base, fe_expr divisor);

/* (a*d + b) // d is a + b // d. *done: there was such a term. */
static fe_expr split_off(maker *m, fe_expr base, fe_expr divisor, bool *done)
{
    uint32_t count, n, out = 0, rest = 0;
    const fe_expr *terms = terms_of(&base, &count), *factors = NULL;
    int64_t d = divisor->as.integer;
    fe_expr *items = fe_exprs_take(m->pool, 2 * (size_t)count + 1, m->err), *others, result = NULL;
    fe_number number;

    *done = false;
    if (!items)
        return NULL;
    others = items + count + 1;
    for (uint32_t i = 0; i < count; i++) {
        split(&terms[i], &number, &factors, &n);
        if (!is_multiple(number, factors, n, d)) {
            others[rest++] = terms[i];
            continue;
        }
        *done = true;
        number.p /= d;
        if (!(items[out++] = put_together(m, number, factors, n, n)))
            goto done;
    }
    if (!*done)
        goto done;
    if (rest) {
        fe_expr left = rest == 1 ? others[0] : fe_expr_sum(m->pool, others, rest, m->err);
        if (!left || !(items[out++] = floor_divide(m, FE_EXPR_FLOOR_DIV, left, divisor)))
            goto done;
    }
    result = fe_expr_sum(m->pool, items, out, m->err);
done:
    fe_exprs_give(m->pool, items, 2 * (size_t)count + 1);
    return result;
}

/* A factor of the divisor that stands in all terms of the base, or NULL. */
static fe_expr shared_factor(fe_expr base, const fe_expr *divisor)
{
    const fe_expr *factors = NULL;
    fe_number number;
    uint32_t n;

    split(divisor, &number, &factors, &n);
    for (uint32_t i = 0; i < n; i++) {
        if (in_all_terms(base, factors[i]))
            return factors[i];
    }
    return NULL;
}

static fe_expr floor_divide(maker *m, fe_expr_op op, fe_expr base, fe_expr divisor)
{
    fe_expr pair[2] = {base, divisor};

    if (base->op == FE_EXPR_INTEGER && divisor->op == FE_EXPR_INTEGER)
        return fe_expr_make(m->pool, FE_EXPR_FLOOR_DIV, pair, 2, m->err);
    if (is_integer(divisor, 0) || (base->op == FE_EXPR_FLOAT || divisor->op == FE_EXPR_FLOAT) ||
        base->op == FE_EXPR_OO || base->op == FE_EXPR_INT_OO || divisor->op == FE_EXPR_OO ||
        divisor->op == FE_EXPR_INT_OO)
        return fe_expr_call(m->pool, op, pair, 2, m->err);
    if (is_integer(base, 0))
        return base;
    if (base == divisor)
        return fe_expr_integer(m->pool, 1, m->err);
    if (is_integer(divisor, 1) && fe_expr_is_integer(base))
        return base;
    if (is_integer(divisor, -1) && fe_expr_is_integer(base))
        return fe_expr_product(m->pool, pair, 2, m->err);
    /* Torch does so for any divisor; for one below 0 it would not be right. */
    if ((base->op == FE_EXPR_FLOOR_DIV || base->op == FE_EXPR_CLEAN_DIV) && is_natural(divisor)) {
        pair[0] = base->args[1];
        fe_expr product = fe_expr_product(m->pool, pair, 2, m->err);
        return product ? floor_divide(m, FE_EXPR_FLOOR_DIV, base->args[0], product) : NULL;
    }
    if (divisor->op == FE_EXPR_INTEGER) {
        bool done;
        fe_expr result = split_off(m, base, divisor, &done);
        if (result || done)
            return result;
        if (m->err->fault == FE_EXPR_NO_MEMORY)
            return NULL;
    }
    uint64_t number = common_divisor(content_of(base), content_of(divisor));
    fe_expr factor = shared_factor(base, &divisor);
    if (number == 1 && !factor)
        return fe_expr_call(m->pool, op, pair, 2, m->err);
    pair[0] = divide_exactly(m, base, number, factor);
    pair[1] = pair[0] ? divide_exactly(m, divisor, number, factor) : NULL;
    return pair[1] ? floor_divide(m, FE_EXPR_FLOOR_DIV, pair[0], pair[1]) : NULL;
}

static bool divides(fe_expr base, fe_expr divisor)
{
    if (divisor->op == FE_EXPR_INTEGER)
        return divisor->as.integer > 0 && content_of(base) % magnitude(divisor->as.integer) == 0;
    return divisor->op != FE_EXPR_ADD && divisor->op != FE_EXPR_MUL && in_all_terms(base, divisor);
}

static fe_expr ceiling_divide(maker *m, fe_expr base, fe_expr divisor)
{
    fe_expr sum[3] = {base, divisor, NULL};

    if (is_integer(base, 0) || (fe_expr_is_integer(base) && divides(base, divisor)))
        return floor_divide(m, FE_EXPR_CLEAN_DIV, base, divisor);
    /* Torch writes any other so, which is not right for divisors below 0, nor for what is no integer. */
    if (!is_natural(divisor) || !fe_expr_is_integer(base))
        return fe_expr_call(m->pool, FE_EXPR_CEIL_DIV, sum, 2, m->err);
    if (!(sum[2] = fe_expr_integer(m->pool, -1, m->err)) || !(sum[0] = fe_expr_sum(m->pool, sum, 3, m->err)))
        return NULL;
    return floor_divide(m, FE_EXPR_FLOOR_DIV, sum[0], divisor);
}

/* ---- Mod ---- */

static fe_expr difference(maker *m, fe_expr a, fe_expr b)
{
    fe_expr pair[2] = {fe_expr_integer(m->pool, -1, m->err), b};

    if (!pair[0] || !(pair[1] = fe_expr_product(m->pool, pair, 2, m->err)))
        return NULL;
    pair[0] = a;
    return fe_expr_sum(m->pool, pair, 2, m->err);
}

static bool all_multiples(fe_expr e, fe_expr divisor)
{
    uint32_t count, n;
    const fe_expr *terms = terms_of(&e, &count), *factors = NULL;
    fe_number number;

    if (divisor->op == FE_EXPR_INTEGER) {
        for (uint32_t i = 0; i < count; i++) {
            if (!is_multiple_of(&terms[i], divisor->as.integer))
                return false;
        }
        return true;
    }
    if (count > 1)
        return false;
    split(terms, &number, &factors, &n);
    return find_factor(factors, n, divisor) < n && is_multiple(number, factors, n, 1);
}

static fe_expr modulo(maker *m, fe_expr_op op, fe_expr p, fe_expr q)
{
    fe_expr pair[2] = {p, q}, less, opposite;
    int parity;

    if (is_integer(q, 0) || p->op == FE_EXPR_OO || p->op == FE_EXPR_INT_OO || q->op == FE_EXPR_OO ||
        q->op == FE_EXPR_INT_OO)
        return fe_expr_call(m->pool, op, pair, 2, m->err);
    pair[0] = fe_expr_integer(m->pool, -1, m->err);
    if (!pair[0] || !(opposite = fe_expr_product(m->pool, pair, 2, m->err)))
        return NULL;
    pair[0] = p;
    if (is_integer(p, 0) || p == q || p == opposite || (is_integer(q, 1) && fe_expr_is_integer(p)) ||
        all_multiples(p, q))
        return fe_expr_integer(m->pool, 0, m->err);
    if (is_integer(q, 2) && (parity = fe_expr_parity(p)) >= 0)
        return fe_expr_integer(m->pool, parity, m->err);
    if (fe_expr_signs(p) == FE_SIGN_PLUS && fe_expr_signs(q) == FE_SIGN_PLUS) {
        if (!(less = difference(m, q, p)))
            return NULL;
        if (fe_expr_signs(less) == FE_SIGN_PLUS)
            return p;
    }
    return fe_expr_call(m->pool, op, pair, 2, m->err);
}

/* ---- ModularIndexing ---- */

/* Terms that are multiples of divisor * modulus say nothing, as long as no other is negative. Returns base if there is
 * nothing to leave out. */
static fe_expr without_multiples(maker *m, fe_expr base, fe_expr divisor, fe_expr modulus)
{
    fe_expr *kept, result = base;
    const fe_expr *factors = NULL;
    fe_number number;
    uint32_t n, count = 0;
    int64_t step;

    if (base->op != FE_EXPR_ADD || divisor->op != FE_EXPR_INTEGER || modulus->op != FE_EXPR_INTEGER ||
        __builtin_mul_overflow(divisor->as.integer, modulus->as.integer, &step) || step <= 0)
        return base;
    kept = fe_exprs_take(m->pool, base->count, m->err);
    if (!kept)
        return NULL;
    for (uint32_t i = 0; i < base->count; i++) {
        split(&base->args[i], &number, &factors, &n);
        if (is_multiple(number, factors, n, step))
            continue;
        if (fe_number_sign(number) < 0)
            goto done;
        kept[count++] = base->args[i];
    }
    if (count < base->count)
        result = fe_expr_sum(m->pool, kept, count, m->err);
done:
    fe_exprs_give(m->pool, kept, base->count);
    return result;
}

static fe_expr index_modulo(maker *m, fe_expr base, fe_expr divisor, fe_expr modulus)
{
    fe_expr args[3] = {base, divisor, modulus};

    if (is_integer(divisor, 0) || is_integer(modulus, 0))
        return fe_expr_call(m->pool, FE_EXPR_MODULAR_INDEXING, args, 3, m->err);
    if (is_integer(base, 0) || is_integer(modulus, 1))
        return fe_expr_integer(m->pool, 0, m->err);
    if (divisor->op == FE_EXPR_FLOAT || base->op == FE_EXPR_FLOAT)
        return fe_expr_call(m->pool, FE_EXPR_MODULAR_INDEXING, args, 3, m->err);
    uint64_t number = common_divisor(content_of(base), content_of(divisor));
    fe_expr factor = shared_factor(base, &divisor);
    if (number > 1 || factor) {
        args[0] = divide_exactly(m, base, number, factor);
        args[1] = args[0] ? divide_exactly(m, divisor, number, factor) : NULL;
        return args[1] ? fe_expr_make(m->pool, FE_EXPR_MODULAR_INDEXING, args, 3, m->err) : NULL;
    }
    fe_expr less = without_multiples(m, base, divisor, modulus);
    if (!less)
        return NULL;
    if (less != base) {
        args[0] = less;
        return fe_expr_make(m->pool, FE_EXPR_MODULAR_INDEXING, args, 3, m->err);
    }
    if ((base->op == FE_EXPR_FLOOR_DIV || base->op == FE_EXPR_CLEAN_DIV) && is_natural(divisor)) {
        args[0] = base->args[1];
        if (!(args[1] = fe_expr_product(m->pool, args, 2, m->err)))
            return NULL;
        args[0] = base->args[0];
        return fe_expr_make(m->pool, FE_EXPR_MODULAR_INDEXING, args, 3, m->err);
    }
    return fe_expr_call(m->pool, FE_EXPR_MODULAR_INDEXING, args, 3, m->err);
}

fe_expr fe_expr_make_division(fe_exprs *pool, fe_expr_op op, const fe_expr *args, fe_expr_error *err)
{
    maker m = {pool, err};

    /* for what it refuses */
    if (!fe_expr_call(pool, op, args, fe_expr_functions[op].least, err))
        return NULL;
    err->fault = FE_EXPR_OK;
    switch (op) {
    case FE_EXPR_FLOOR_DIV:
    case FE_EXPR_CLEAN_DIV:
        return floor_divide(&m, op, args[0], args[1]);
    case FE_EXPR_CEIL_DIV:
        return ceiling_divide(&m, args[0], args[1]);
    case FE_EXPR_MODULAR_INDEXING:
        return index_modulo(&m, args[0], args[1], args[2]);
    default:
        return modulo(&m, op, args[0], args[1]);
    }
}
