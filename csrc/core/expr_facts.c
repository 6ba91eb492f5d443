/* expr_facts.c - what the assumptions of symbols tell of an expression: its signs, whether it is an integer, its parity.
 *
 * As far as sympy's own inference goes (the _eval_is_* of its classes, and those of torch/utils/_sympy/functions.py), and no
 * further: fe_expr_make decides by these facts, and is to decide what sympy decides.
 */
#include "expr_impl.h"

static unsigned signs_of_symbol(fe_expr e)
{
    static const struct {
        const char *name;
        unsigned signs;
    } known[] = {
        {"positive", FE_SIGN_PLUS},  {"nonnegative", FE_SIGN_ZERO | FE_SIGN_PLUS},
        {"negative", FE_SIGN_MINUS}, {"nonpositive", FE_SIGN_MINUS | FE_SIGN_ZERO},
        {"zero", FE_SIGN_ZERO},      {"nonzero", FE_SIGN_MINUS | FE_SIGN_PLUS},
    };
    unsigned signs = FE_SIGN_ANY;

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (fe_expr_assumes(e, known[i].name))
            signs &= known[i].signs;
    }
    return signs ? signs : FE_SIGN_ANY;
}

static unsigned signs_of_number(fe_expr e)
{
    fe_number n;
    int sign = fe_expr_number(e, &n) ? fe_number_sign(n) : e->as.integer < 0 ? -1 : 1;

    return sign < 0 ? FE_SIGN_MINUS : sign ? FE_SIGN_PLUS : FE_SIGN_ZERO;
}

static unsigned add_signs(unsigned a, unsigned b)
{
    unsigned both = a | b;

    if (both == FE_SIGN_ANY || both == (FE_SIGN_MINUS | FE_SIGN_PLUS))
        return FE_SIGN_ANY;
    /* One that is never zero decides. */
    return (a & FE_SIGN_ZERO) && (b & FE_SIGN_ZERO) ? both : both & ~(unsigned)FE_SIGN_ZERO;
}

static unsigned negate_signs(unsigned a)
{
    return (a & FE_SIGN_ZERO) | (a & FE_SIGN_MINUS ? FE_SIGN_PLUS : 0) | (a & FE_SIGN_PLUS ? FE_SIGN_MINUS : 0);
}

static unsigned multiply_signs(unsigned a, unsigned b)
{
    unsigned result = (a | b) & FE_SIGN_ZERO;

    if (b & FE_SIGN_PLUS)
        result |= a & ~(unsigned)FE_SIGN_ZERO;
    if (b & FE_SIGN_MINUS)
        result |= negate_signs(a) & ~(unsigned)FE_SIGN_ZERO;
    return result;
}

static unsigned signs_of_power(fe_expr e)
{
    unsigned base = fe_expr_signs(e->args[0]);
    fe_number n;

    if (base == FE_SIGN_PLUS)
        return FE_SIGN_PLUS;
    if (!fe_expr_number(e->args[1], &n) || n.is_real || n.q != 1)
        return FE_SIGN_ANY;
    return n.p % 2 ? base : multiply_signs(base, base) & (FE_SIGN_ZERO | FE_SIGN_PLUS);
}

/* ---- sums ---- */

/* What is known of the terms of a sum beside its numbers: the value closest to 0 that they can have, all of one sign. */
typedef struct {
    fe_expr symbol; /* the first that was met */
    bool several;   /* symbols */
    fe_number total;
} closest;

/* One term whose factors are integer symbols that are never negative, or powers of them. */
static bool add_term(closest *c, const fe_expr *term)
{
    const fe_expr *factors;
    fe_number n;
    uint32_t count;
    bool zero = false;

    fe_expr_split_term(term, &n, &factors, &count);
    for (uint32_t i = 0; i < count; i++) {
        fe_expr base = factors[i];
        if (base->op == FE_EXPR_POW && base->args[1]->op == FE_EXPR_INTEGER && base->args[1]->as.integer > 0)
            base = base->args[0];
        if (base->op != FE_EXPR_SYMBOL || !fe_expr_is_integer(base) || (fe_expr_signs(base) & FE_SIGN_MINUS))
            return false;
        zero |= fe_expr_signs(base) != FE_SIGN_PLUS;
        c->several |= c->symbol && c->symbol != base;
        c->symbol = base;
    }
    return zero || fe_number_add(c->total, n, &c->total);
}

/* Sympy's _monotonic_sign, for what is not negative, or not positive; *out has the sign of the terms. */
static bool closest_to_zero(fe_expr sum, unsigned signs, fe_number *out)
{
    closest c = {.total = {.q = 1}};
    fe_expr only = NULL;
    uint32_t terms = 0;
    bool known = true;
    fe_number n;

    for (uint32_t i = 0; i < sum->count; i++) {
        if (fe_expr_number(sum->args[i], &n))
            continue;
        terms++;
        only = sum->args[i];
        known = known && add_term(&c, &sum->args[i]);
    }
    *out = c.total;
    if (known && !c.several)
        return true;
    if (terms != 1)
        return false;
    bool strict = !(signs & FE_SIGN_ZERO) && fe_expr_is_integer(only);
    int64_t least = !strict ? 0 : fe_expr_parity(only) == 0 ? 2 : 1;
    *out = (fe_number){.p = signs & FE_SIGN_MINUS ? -least : least, .q = 1};
    return true;
}

/* A number and terms of one sign: s0 - 1 is not negative if s0 is a positive integer. */
static unsigned signs_of_sum(fe_expr e)
{
    unsigned signs = FE_SIGN_ZERO, rest = FE_SIGN_ZERO;
    fe_number number = {.q = 1}, n, least;

    for (uint32_t i = 0; i < e->count; i++) {
        unsigned next = fe_expr_signs(e->args[i]);
        signs = add_signs(signs, next);
        if (!fe_expr_number(e->args[i], &n))
            rest = add_signs(rest, next);
        else if (!fe_number_add(number, n, &number))
            return FE_SIGN_ANY;
    }
    if (signs != FE_SIGN_ANY || !fe_number_sign(number) || rest == FE_SIGN_ANY || rest == FE_SIGN_ZERO)
        return signs;
    if (!closest_to_zero(e, rest, &least) || !fe_number_add(number, least, &n))
        return signs;
    int sign = fe_number_sign(n);
    if (!(rest & FE_SIGN_MINUS))
        return sign < 0 ? signs : sign ? FE_SIGN_PLUS : FE_SIGN_ZERO | FE_SIGN_PLUS;
    return sign > 0 ? signs : sign ? FE_SIGN_MINUS : FE_SIGN_ZERO | FE_SIGN_MINUS;
}

static bool never_negative(fe_expr e)
{
    return !(fe_expr_signs(e) & FE_SIGN_MINUS);
}

/* Min is Max turned round. */
static unsigned signs_of_extreme(fe_expr e)
{
    bool min = e->op == FE_EXPR_MIN;
    unsigned any = 0, all = FE_SIGN_ANY, below = FE_SIGN_MINUS | FE_SIGN_ZERO;
    bool all_below = true; /* each can be zero or less */

    for (uint32_t i = 0; i < e->count; i++) {
        unsigned s = fe_expr_signs(e->args[i]);
        s = min ? negate_signs(s) : s;
        any |= s;
        all &= s;
        all_below &= (s & below) != 0;
    }
    unsigned result = (any & FE_SIGN_PLUS) | (all & FE_SIGN_MINUS) | (all_below ? any & FE_SIGN_ZERO : 0);
    return min ? negate_signs(result) : result;
}

unsigned fe_expr_signs(fe_expr e)
{
    unsigned signs;

    switch (e->op) {
    case FE_EXPR_SYMBOL:
        return signs_of_symbol(e);
    case FE_EXPR_INTEGER:
    case FE_EXPR_RATIONAL:
    case FE_EXPR_FLOAT:
    case FE_EXPR_OO:
    case FE_EXPR_INT_OO:
        return signs_of_number(e);
    case FE_EXPR_ADD:
        return signs_of_sum(e);
    case FE_EXPR_MUL:
        signs = fe_expr_signs(e->args[0]);
        for (uint32_t i = 1; i < e->count && signs != FE_SIGN_ANY; i++)
            signs = multiply_signs(signs, fe_expr_signs(e->args[i]));
        return signs;
    case FE_EXPR_POW:
        return signs_of_power(e);
    case FE_EXPR_FLOOR_DIV:
    case FE_EXPR_CLEAN_DIV:
        return never_negative(e->args[0]) && never_negative(e->args[1]) ? FE_SIGN_ZERO | FE_SIGN_PLUS : FE_SIGN_ANY;
    case FE_EXPR_MODULAR_INDEXING:
        return never_negative(e->args[2]) ? FE_SIGN_ZERO | FE_SIGN_PLUS : FE_SIGN_ANY;
    case FE_EXPR_MOD:
    case FE_EXPR_PYTHON_MOD:
        signs = fe_expr_signs(e->args[1]);
        if (signs & FE_SIGN_MINUS)
            return signs & FE_SIGN_PLUS ? FE_SIGN_ANY : FE_SIGN_MINUS | FE_SIGN_ZERO;
        return FE_SIGN_ZERO | FE_SIGN_PLUS;
    case FE_EXPR_MAX:
    case FE_EXPR_MIN:
        return signs_of_extreme(e);
    case FE_EXPR_WHERE:
        return fe_expr_signs(e->args[1]) | fe_expr_signs(e->args[2]);
    case FE_EXPR_PIECEWISE:
        signs = 0;
        for (uint32_t i = 0; i < e->count; i++)
            signs |= fe_expr_signs(e->args[i]->args[0]);
        return signs;
    case FE_EXPR_ABS:
        signs = fe_expr_signs(e->args[0]);
        return (signs & FE_SIGN_ZERO) | (signs == FE_SIGN_ZERO ? 0 : FE_SIGN_PLUS);
    case FE_EXPR_IDENTITY:
        return fe_expr_signs(e->args[0]);
    default:
        return FE_SIGN_ANY;
    }
}

bool fe_expr_is_integer(fe_expr e)
{
    switch (e->op) {
    case FE_EXPR_INTEGER:
        return true;
    case FE_EXPR_SYMBOL:
        return fe_expr_assumes(e, "integer") || fe_expr_assumes(e, "even") || fe_expr_assumes(e, "odd");
    case FE_EXPR_FLOOR_DIV:
    case FE_EXPR_CLEAN_DIV:
    case FE_EXPR_CEIL_TO_INT:
    case FE_EXPR_FLOOR_TO_INT:
    case FE_EXPR_CEIL_DIV:
    case FE_EXPR_LSHIFT:
    case FE_EXPR_RSHIFT:
    case FE_EXPR_NON_OVERLAPPING:
    case FE_EXPR_TRUNC_TO_INT:
    case FE_EXPR_ROUND_TO_INT:
    case FE_EXPR_FLOOR:
    case FE_EXPR_CEILING:
        return true;
    case FE_EXPR_POW:
        return fe_expr_is_integer(e->args[0]) && e->args[1]->op == FE_EXPR_INTEGER && e->args[1]->as.integer >= 0;
    case FE_EXPR_MODULAR_INDEXING:
        return fe_expr_is_integer(e->args[2]);
    case FE_EXPR_POW_BY_NATURAL:
        return fe_expr_is_integer(e->args[0]) && fe_expr_is_integer(e->args[1]) && never_negative(e->args[1]);
    case FE_EXPR_WHERE:
        return fe_expr_is_integer(e->args[1]) && fe_expr_is_integer(e->args[2]);
    case FE_EXPR_COND_PAIR:
        return fe_expr_is_integer(e->args[0]);
    case FE_EXPR_ADD:
    case FE_EXPR_MUL:
    case FE_EXPR_MAX:
    case FE_EXPR_MIN:
    case FE_EXPR_MOD:
    case FE_EXPR_PYTHON_MOD:
    case FE_EXPR_ABS:
    case FE_EXPR_IDENTITY:
    case FE_EXPR_PIECEWISE:
        for (uint32_t i = 0; i < e->count; i++) {
            if (!fe_expr_is_integer(e->args[i]))
                return false;
        }
        return true;
    default:
        return false;
    }
}

static int parity_of_product(fe_expr e)
{
    int result = 1;

    for (uint32_t i = 0; i < e->count; i++) {
        if (!fe_expr_is_integer(e->args[i]))
            return -1;
        int p = fe_expr_parity(e->args[i]);
        if (p == 0 || result == 0)
            result = 0;
        else if (p < 0)
            result = -1;
    }
    return result;
}

int fe_expr_parity(fe_expr e)
{
    int result = 0;

    switch (e->op) {
    case FE_EXPR_INTEGER:
        return (int)(e->as.integer & 1);
    case FE_EXPR_SYMBOL:
        return fe_expr_assumes(e, "even") ? 0 : fe_expr_assumes(e, "odd") ? 1 : -1;
    case FE_EXPR_MUL:
        return parity_of_product(e);
    case FE_EXPR_ADD:
        for (uint32_t i = 0; i < e->count; i++) {
            int p = fe_expr_parity(e->args[i]);
            if (p < 0)
                return -1;
            result ^= p;
        }
        return result;
    default:
        return -1;
    }
}
