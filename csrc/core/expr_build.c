/* expr_build.c - sums, products and integer powers in the form that sympy gives them when they are made.
 *
 * A sum is flat, has one number at most, and no two terms with the same factors; a product likewise no two factors with
 * the same base. Like parts are found by sorting, so a long text costs no more than that.
 */
#include "expr_impl.h"

typedef struct {
    fe_expr *items;
    uint32_t count, room;
    fe_number number; /* of the parts that are numbers */
} parts;

/* A constant does not fit; always NULL. */
static fe_expr out_of_range(fe_expr_error *err)
{
    return fe_expr_fail(err, FE_EXPR_RANGE, 0, "a constant does not fit in 64 bits");
}

static bool is_one(fe_number n)
{
    return !n.is_real && n.p == 1 && n.q == 1;
}

/* How many arguments a call has once nested calls of its own op are opened up. */
static uint64_t flat_count(fe_expr_op op, const fe_expr *args, uint32_t count)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < count; i++)
        n += args[i]->op == op ? flat_count(op, args[i]->args, args[i]->count) : 1;
    return n;
}

/* Collect what is no number in p->items, and numbers in p->number. */
static bool flatten(parts *p, fe_expr_op op, const fe_expr *args, uint32_t count)
{
    fe_number n;

    for (uint32_t i = 0; i < count; i++) {
        if (args[i]->op == op) {
            if (!flatten(p, op, args[i]->args, args[i]->count))
                return false;
        } else if (!fe_expr_number(args[i], &n)) {
            p->items[p->count++] = args[i];
        } else if (!(op == FE_EXPR_ADD ? fe_number_add(p->number, n, &p->number)
                                       : fe_number_mul(p->number, n, &p->number))) {
            return false;
        }
    }
    return true;
}

/* items has room for as many parts as there are, two numbers, and a spare for sorting behind these. */
static bool parts_init(parts *p, fe_exprs *pool, fe_expr_op op, const fe_expr *args, uint32_t count, fe_expr_error *err)
{
    uint64_t n = flat_count(op, args, count);

    *p = (parts){.number = {.p = op == FE_EXPR_MUL, .q = 1}};
    if (n > UINT32_MAX / 4)
        return fe_expr_fail(err, FE_EXPR_RANGE, 0, "too many terms");
    if (!fe_exprs_spend(pool, n, err))
        return false;
    p->room = 2 * ((uint32_t)n + 2);
    p->items = fe_exprs_take(pool, p->room, err);
    if (!p->items)
        return false;
    if (flatten(p, op, args, count))
        return true;
    fe_exprs_give(pool, p->items, p->room);
    out_of_range(err);
    return false;
}

static void sort(parts *p, fe_expr_op op)
{
    fe_expr_sort(op, p->items, p->items + p->room / 2, p->count);
}

/* ---- sums ---- */

fe_expr fe_expr_scaled(fe_exprs *pool, fe_number number, const fe_expr *factors, uint32_t count, fe_expr_error *err)
{
    fe_number minus = {.p = -1, .q = 1}, rest = number;
    fe_expr result = NULL;
    uint32_t n = 0;

    if (is_one(number) && count == 1)
        return factors[0];
    fe_expr *items = fe_exprs_take(pool, (size_t)count + 2, err);
    if (!items)
        return NULL;
    /* As sympy's srepr has it: -3*s0 is Mul(-1, 3, s0). */
    if (fe_number_sign(number) < 0 && (number.is_real || number.p != -1 || number.q != 1)) {
        if (!(items[n++] = fe_expr_integer(pool, -1, err)))
            goto done;
        if (!fe_number_mul(number, minus, &rest)) {
            out_of_range(err);
            goto done;
        }
    }
    if (!is_one(rest) && !(items[n++] = fe_expr_number_node(pool, rest, err)))
        goto done;
    memcpy(items + n, factors, count * sizeof *items);
    result = fe_expr_call(pool, FE_EXPR_MUL, items, n + count, err);
done:
    fe_exprs_give(pool, items, (size_t)count + 2);
    return result;
}

void fe_expr_split_term(const fe_expr *term, fe_number *number, const fe_expr **factors, uint32_t *count)
{
    *number = (fe_number){.p = 1, .q = 1};
    *factors = term;
    *count = 1;
    if ((*term)->op == FE_EXPR_MUL)
        *count = fe_expr_split_product(*term, number, factors);
}

static bool same_factors(fe_expr a, fe_expr b)
{
    fe_number number;
    const fe_expr *x, *y;
    uint32_t x_count, y_count;

    fe_expr_split_term(&a, &number, &x, &x_count);
    fe_expr_split_term(&b, &number, &y, &y_count);
    return x_count == y_count && memcmp(x, y, x_count * sizeof *x) == 0;
}

/* Put neighbours with the same factors together. */
static bool merge_terms(fe_exprs *pool, parts *p, fe_expr_error *err)
{
    uint32_t n = 0;

    for (uint32_t i = 0, next; i < p->count; i = next) {
        fe_number total = {.q = 1}, number;
        const fe_expr *factors;
        uint32_t count;
        for (next = i; next < p->count && same_factors(p->items[i], p->items[next]); next++) {
            fe_expr_split_term(&p->items[next], &number, &factors, &count);
            if (!fe_number_add(total, number, &total)) {
                out_of_range(err);
                return false;
            }
        }
        if (next == i + 1) {
            p->items[n++] = p->items[i];
            continue;
        }
        fe_expr first = p->items[i];
        fe_expr_split_term(&first, &number, &factors, &count);
        if (fe_number_sign(total) && !(p->items[n++] = fe_expr_scaled(pool, total, factors, count, err)))
            return false;
    }
    p->count = n;
    return true;
}

/* The parts and their number as one call of op. */
static fe_expr finish_sum(fe_exprs *pool, parts *p, fe_expr_error *err)
{
    if (fe_number_sign(p->number) || !p->count) {
        if (!(p->items[p->count] = fe_expr_number_node(pool, p->number, err)))
            return NULL;
        p->count++;
    }
    sort(p, FE_EXPR_ADD);
    return p->count == 1 ? p->items[0] : fe_expr_call(pool, FE_EXPR_ADD, p->items, p->count, err);
}

fe_expr fe_expr_sum(fe_exprs *pool, const fe_expr *args, uint32_t count, fe_expr_error *err)
{
    parts p;

    if (!parts_init(&p, pool, FE_EXPR_ADD, args, count, err))
        return NULL;
    sort(&p, FE_EXPR_ADD);
    fe_expr result = merge_terms(pool, &p, err) ? finish_sum(pool, &p, err) : NULL;
    fe_exprs_give(pool, p.items, p.room);
    return result;
}

/* ---- products ---- */

static fe_expr base_of(fe_expr factor, int64_t *exponent)
{
    *exponent = 1;
    if (factor->op != FE_EXPR_POW || factor->args[1]->op != FE_EXPR_INTEGER)
        return factor;
    *exponent = factor->args[1]->as.integer;
    return factor->args[0];
}

static fe_expr raw_power(fe_exprs *pool, fe_expr base, int64_t exponent, fe_expr_error *err)
{
    fe_expr args[2] = {base, NULL};

    if (exponent == 1)
        return base;
    args[1] = fe_expr_integer(pool, exponent, err);
    return args[1] ? fe_expr_call(pool, FE_EXPR_POW, args, 2, err) : NULL;
}

static bool merge_factors(fe_exprs *pool, parts *p, fe_expr_error *err)
{
    uint32_t n = 0;

    for (uint32_t i = 0, next; i < p->count; i = next) {
        int64_t total = 0, exponent;
        fe_expr base = base_of(p->items[i], &exponent);
        for (next = i; next < p->count && base_of(p->items[next], &exponent) == base; next++) {
            if (__builtin_add_overflow(total, exponent, &total)) {
                out_of_range(err);
                return false;
            }
        }
        if (total && !(p->items[n++] = raw_power(pool, base, total, err)))
            return false;
    }
    p->count = n;
    return true;
}

/* number * (a + b) is number*a + number*b. */
static fe_expr distribute(fe_exprs *pool, fe_number number, fe_expr sum, fe_expr_error *err)
{
    fe_expr *terms = fe_exprs_take(pool, sum->count, err), pair[2] = {fe_expr_number_node(pool, number, err), NULL};
    fe_expr result = NULL;
    uint32_t i = 0;

    for (; terms && pair[0] && i < sum->count; i++) {
        pair[1] = sum->args[i];
        if (!(terms[i] = fe_expr_product(pool, pair, 2, err)))
            break;
    }
    if (terms && pair[0] && i == sum->count)
        result = fe_expr_sum(pool, terms, sum->count, err);
    if (terms)
        fe_exprs_give(pool, terms, sum->count);
    return result;
}

static fe_expr finish_product(fe_exprs *pool, parts *p, fe_expr_error *err)
{
    if (!p->count || (!p->number.is_real && p->number.p == 0))
        return fe_expr_number_node(pool, p->number, err);
    if (p->count == 1 && p->items[0]->op == FE_EXPR_ADD && !is_one(p->number))
        return distribute(pool, p->number, p->items[0], err);
    sort(p, FE_EXPR_MUL);
    return fe_expr_scaled(pool, p->number, p->items, p->count, err);
}

fe_expr fe_expr_product(fe_exprs *pool, const fe_expr *args, uint32_t count, fe_expr_error *err)
{
    parts p;

    if (!parts_init(&p, pool, FE_EXPR_MUL, args, count, err))
        return NULL;
    sort(&p, FE_EXPR_MUL);
    fe_expr result = merge_factors(pool, &p, err) ? finish_product(pool, &p, err) : NULL;
    fe_exprs_give(pool, p.items, p.room);
    return result;
}

fe_expr fe_expr_power(fe_exprs *pool, fe_expr base, int64_t exponent, fe_expr_error *err)
{
    fe_number number;
    int64_t inner;

    if (exponent > FE_EXPR_MAX_EXPONENT || exponent < -FE_EXPR_MAX_EXPONENT)
        return fe_expr_fail(err, FE_EXPR_MEANING, 0, "the exponent %lld", (long long)exponent);
    if (exponent == 0)
        return fe_expr_integer(pool, 1, err);
    if (fe_expr_number(base, &number)) {
        if (!fe_number_sign(number) && exponent < 0)
            return fe_expr_fail(err, FE_EXPR_DIVISION, 0, "a division by zero");
        return fe_number_power(number, exponent, &number) ? fe_expr_number_node(pool, number, err) : out_of_range(err);
    }
    if (base->op == FE_EXPR_MUL && exponent != 1) {
        fe_expr *factors = fe_exprs_take(pool, base->count, err), result = NULL;
        uint32_t i = 0;
        for (; factors && i < base->count; i++) {
            if (!(factors[i] = fe_expr_power(pool, base->args[i], exponent, err)))
                break;
        }
        if (factors && i == base->count)
            result = fe_expr_product(pool, factors, base->count, err);
        if (factors)
            fe_exprs_give(pool, factors, base->count);
        return result;
    }
    base = base_of(base, &inner);
    if (__builtin_mul_overflow(inner, exponent, &exponent))
        return out_of_range(err);
    return raw_power(pool, base, exponent, err);
}
