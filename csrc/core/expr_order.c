/* expr_order.c - sympy's order of expressions (default_sort_key), and of the terms of a sum and the factors of a product.
 *
 * Sources: sympy 1.14, core/expr.py (sort_key, as_terms, as_ordered_terms), core/mul.py (as_ordered_factors),
 * core/sorting.py. A key there is a tuple (class, arguments, exponent, coefficient); here two keys are compared without
 * being made. Arguments of sums and products were put in order when the node was made, so a comparison looks at each pair
 * of parts once, and parts that are the same tree are equal at once. Two rarities are not followed: sympy takes Where for a
 * factor that does not commute, and Identity of a number for a number.
 */
#include "expr_impl.h"

#include <math.h>

/* What a key is made of: coefficient * base ** exponent. */
typedef struct {
    fe_expr base;
    const fe_expr *factors; /* base NULL: a product of these */
    uint32_t count;
    fe_expr exponent; /* NULL: 1 */
    fe_number coefficient;
} key;

static key key_of(fe_expr e)
{
    key k = {.base = e, .coefficient = {.p = 1, .q = 1}};

    if (e->op == FE_EXPR_MUL) {
        k.count = fe_expr_split_product(e, &k.coefficient, &k.factors);
        k.base = k.count == 1 ? k.factors[0] : NULL;
        if (!k.count) {
            k.base = e;
            k.coefficient = (fe_number){.p = 1, .q = 1};
        }
    }
    if (k.base && k.base->op == FE_EXPR_POW) {
        k.exponent = k.base->args[1];
        k.base = k.base->args[0];
    }
    if (k.base && k.base->op == FE_EXPR_MUL) {
        k.factors = k.base->order;
        k.count = k.base->count;
        k.base = NULL;
    }
    return k;
}

__extension__ typedef __int128 wide;

static int compare_ints(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

int fe_number_compare(fe_number a, fe_number b)
{
    if (a.is_real || b.is_real) {
        double x = fe_number_real(a), y = fe_number_real(b);
        return (x > y) - (x < y);
    }
    wide x = (wide)a.p * b.q, y = (wide)b.p * a.q; /* both q > 0 */
    return (x > y) - (x < y);
}

/* Sympy's class_key: numbers, symbols, sums, functions, the rest; within these by a number, and by name. */
static int class_of(fe_expr e)
{
    if (!e)
        return 3;
    switch (e->op) {
    case FE_EXPR_INTEGER:
    case FE_EXPR_RATIONAL:
    case FE_EXPR_FLOAT:
    case FE_EXPR_OO:
    case FE_EXPR_INT_OO:
        return 1;
    case FE_EXPR_SYMBOL:
        return 2;
    case FE_EXPR_BOOL:
        return 5;
    default:
        return fe_expr_functions[e->op].order;
    }
}

static int rank_in_class(fe_expr e)
{
    if (!e)
        return 0;
    switch (e->op) {
    case FE_EXPR_ADD:
        return 1;
    case FE_EXPR_POW:
        return 2;
    /* Functions that sympy takes to have any number of arguments. */
    case FE_EXPR_CEIL_DIV:
    case FE_EXPR_IDENTITY:
    case FE_EXPR_NON_OVERLAPPING:
    case FE_EXPR_PIECEWISE:
        return 0;
    default:
        return fe_expr_functions[e->op].order == 4 ? 10000 : 0;
    }
}

static const char *class_name(fe_expr e)
{
    if (!e)
        return "Mul";
    if (e->op == FE_EXPR_BOOL)
        return e->as.integer ? "BooleanTrue" : "BooleanFalse";
    return e->op < FE_EXPR_ADD ? "" : fe_expr_functions[e->op].name;
}

static fe_number number_of(fe_expr e)
{
    fe_number n = {.p = 1, .q = 1};

    if (e && !fe_expr_number(e, &n))
        n = (fe_number){.is_real = true, .real = e->as.integer > 0 ? (double)INFINITY : -(double)INFINITY};
    return n;
}

static int compare_exponents(fe_expr a, fe_expr b)
{
    if (a == b)
        return 0;
    if ((!a || class_of(a) == 1) && (!b || class_of(b) == 1))
        return fe_number_compare(number_of(a), number_of(b));
    if (!a)
        return -1;
    return b ? fe_expr_compare(a, b) : 1;
}

static int compare_lists(const fe_expr *a, uint32_t a_count, const fe_expr *b, uint32_t b_count)
{
    if (a_count != b_count)
        return compare_ints(a_count, b_count);
    for (uint32_t i = 0; i < a_count; i++) {
        int c = fe_expr_compare(a[i], b[i]);
        if (c)
            return c;
    }
    return 0;
}

/* Plain numbers go by value, before powers of numbers, which sympy compares as texts; these are rare enough to go by value
 * as well. */
static int compare_numbers(const key *a, const key *b)
{
    int c = (a->exponent != NULL) - (b->exponent != NULL);

    return c ? c : fe_number_compare(number_of(a->base), number_of(b->base));
}

static int compare_bases(const key *a, const key *b)
{
    int c = compare_ints(class_of(a->base), class_of(b->base));

    if (!c)
        c = compare_ints(rank_in_class(a->base), rank_in_class(b->base));
    if (!c)
        c = strcmp(class_name(a->base), class_name(b->base));
    if (c)
        return c;
    if (class_of(a->base) == 1)
        return compare_numbers(a, b);
    if (a->base && a->base == b->base)
        return 0;
    if (a->base && a->base->op == FE_EXPR_SYMBOL)
        return strcmp(a->base->as.symbol.name, b->base->as.symbol.name);
    return compare_lists(a->base ? a->base->order : a->factors, a->base ? a->base->count : a->count,
                         b->base ? b->base->order : b->factors, b->base ? b->base->count : b->count);
}

int fe_expr_compare(fe_expr a, fe_expr b)
{
    if (a == b)
        return 0;
    key x = key_of(a), y = key_of(b);
    int c = compare_bases(&x, &y);
    if (!c)
        c = compare_exponents(x.exponent, y.exponent);
    return c ? c : fe_number_compare(x.coefficient, y.coefficient);
}

/* A factor as base and integer exponent (decompose_power): s0**2 is (s0, 2); what has another exponent is its own base. */
static fe_expr power_of(fe_expr factor, int64_t *exponent)
{
    *exponent = 1;
    if (factor->op != FE_EXPR_POW || factor->args[1]->op != FE_EXPR_INTEGER)
        return factor;
    *exponent = factor->args[1]->as.integer;
    return factor->args[0];
}

static uint32_t split_term(fe_expr term, fe_number *coefficient, const fe_expr **factors, fe_expr *self)
{
    *coefficient = (fe_number){.p = 1, .q = 1};
    if (term->op == FE_EXPR_MUL)
        return fe_expr_split_product(term, coefficient, factors);
    if (fe_expr_number(term, coefficient))
        return 0;
    *self = term;
    *factors = self;
    return 1;
}

/* Terms of one sum go by their powers of the generators, in the generators' order, higher powers first. Only generators
 * of one of the two matter, so two sorted lists of factors are merged. */
static int compare_terms(fe_expr a, fe_expr b)
{
    const fe_expr *x = NULL, *y = NULL;
    fe_number x_number, y_number;
    fe_expr x_self, y_self;
    uint32_t x_count = split_term(a, &x_number, &x, &x_self), y_count = split_term(b, &y_number, &y, &y_self);

    for (uint32_t i = 0, j = 0; i < x_count || j < y_count;) {
        int64_t x_power = 0, y_power = 0;
        fe_expr x_base = i < x_count ? power_of(x[i], &x_power) : NULL;
        fe_expr y_base = j < y_count ? power_of(y[j], &y_power) : NULL;
        int c = !x_base ? 1 : !y_base ? -1 : fe_expr_compare(x_base, y_base);
        if (c < 0)
            y_power = 0;
        if (c > 0)
            x_power = 0;
        if (x_power != y_power)
            return x_power > y_power ? -1 : 1;
        i += c <= 0;
        j += c >= 0;
    }
    return fe_number_compare(x_number, y_number);
}

/* ---- sorting ---- */

/* A stable merge sort: equal keys keep the order of the text, as in Python. */
static void merge_sort(fe_expr *items, fe_expr *spare, uint32_t count, int (*compare)(fe_expr, fe_expr))
{
    if (count < 2)
        return;
    uint32_t half = count / 2, i = 0, j = half, n = 0;
    merge_sort(items, spare, half, compare);
    merge_sort(items + half, spare, count - half, compare);
    memcpy(spare, items, count * sizeof *items);
    while (i < half && j < count)
        items[n++] = compare(spare[j], spare[i]) < 0 ? spare[j++] : spare[i++];
    while (i < half)
        items[n++] = spare[i++];
    while (j < count)
        items[n++] = spare[j++];
}

/* Sympy prints 4 - 3*s0 in this order: a positive number, then a negative number times one thing. */
static bool is_number_less_term(fe_expr number, fe_expr term)
{
    const fe_expr *factors;
    fe_number first, coefficient;

    return fe_expr_number(number, &first) && fe_number_sign(first) > 0 && term->op == FE_EXPR_MUL &&
           fe_expr_split_product(term, &coefficient, &factors) == 1 && fe_number_sign(coefficient) < 0;
}

void fe_expr_sort(fe_expr_op op, fe_expr *items, fe_expr *spare, uint32_t count)
{
    if (op == FE_EXPR_ADD) {
        merge_sort(items, spare, count, compare_terms);
        if (count == 2 && is_number_less_term(items[1], items[0])) {
            fe_expr number = items[1];
            items[1] = items[0];
            items[0] = number;
        }
    } else if (op == FE_EXPR_MUL || op == FE_EXPR_MAX || op == FE_EXPR_MIN) {
        merge_sort(items, spare, count, fe_expr_compare);
    }
}

/* Sympy's _node_count, doubled: a call counts 2, a leaf 1. A product's numbers are one leaf there. */
static uint64_t node_count(fe_expr e)
{
    const fe_expr *parts = e->args;
    uint32_t count = e->count;
    uint64_t n = count ? 2 : 1;

    if (e->op == FE_EXPR_MUL) {
        fe_number number;
        count = fe_expr_split_product(e, &number, &parts);
        n += number.is_real || number.p != 1 || number.q != 1;
    }
    for (uint32_t i = 0; i < count; i++)
        n += node_count(parts[i]);
    return n;
}

static int compare_by_size(fe_expr a, fe_expr b)
{
    uint64_t x = node_count(a), y = node_count(b);

    return x != y ? (x > y) - (x < y) : fe_expr_compare(a, b);
}

void fe_expr_sort_by_size(fe_expr *items, fe_expr *spare, uint32_t count)
{
    merge_sort(items, spare, count, compare_by_size);
}
