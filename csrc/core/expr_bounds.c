/* expr_bounds.c - the range of an expression, from those of its symbols; see fe_expr_bounds in expr.h. */
#include "expr_range.h"

#include <math.h>

typedef struct {
    fe_expr_range_lookup lookup;
    void *ctx;
} bounding;

static fe_range bounds(const bounding *b, fe_expr e);

/* ---- leaves ---- */

static fe_range of_given(const fe_expr_range *r)
{
    if (r->kind == FE_VALUE_BOOL)
        return fe_range_bool(r->lower != 0, r->upper != 0);
    if (r->kind == FE_VALUE_INT)
        return fe_range_int(r->has_lower ? r->lower : -FE_WIDE_INF, r->has_upper ? r->upper : FE_WIDE_INF);
    return fe_range_real(r->low, r->high);
}

/* What the assumptions of a symbol say, as torch takes a symbol without a range. */
static fe_range of_assumptions(fe_expr symbol)
{
    unsigned signs = fe_expr_signs(symbol);
    const double inf = (double)INFINITY;

    if (!fe_expr_is_integer(symbol))
        return fe_range_real(signs & FE_SIGN_MINUS ? -inf : 0, signs & FE_SIGN_PLUS ? inf : 0);
    fe_wide lo = signs & FE_SIGN_MINUS ? -FE_WIDE_INF : signs & FE_SIGN_ZERO ? 0 : 1;
    fe_wide hi = signs & FE_SIGN_PLUS ? FE_WIDE_INF : signs & FE_SIGN_ZERO ? 0 : -1;
    return fe_range_int(lo, hi);
}

static fe_range of_leaf(const bounding *b, fe_expr e)
{
    fe_expr_range given = {.kind = FE_VALUE_INT};

    switch (e->op) {
    case FE_EXPR_SYMBOL:
        return b->lookup && b->lookup(b->ctx, e, &given) ? of_given(&given) : of_assumptions(e);
    case FE_EXPR_INTEGER:
        return fe_range_int(e->as.integer, e->as.integer);
    case FE_EXPR_RATIONAL:
        return fe_range_ratio(e->as.ratio.p, e->as.ratio.q);
    case FE_EXPR_FLOAT:
        return fe_range_real(e->as.real.value, e->as.real.value);
    case FE_EXPR_BOOL:
        return fe_range_bool(e->as.integer, e->as.integer);
    default: {
        double x = e->as.integer > 0 ? (double)INFINITY : -(double)INFINITY;
        return fe_range_real(x, x);
    }
    }
}

/* ---- calls ---- */

static fe_range of_choice(const bounding *b, fe_expr e)
{
    fe_range condition = fe_range_truth(bounds(b, e->args[0]));

    if (condition.lo == condition.hi)
        return bounds(b, e->args[condition.lo ? 1 : 2]);
    return fe_range_union(bounds(b, e->args[1]), bounds(b, e->args[2]));
}

/* All cases whose condition can hold, up to one that always does. */
static fe_range of_cases(const bounding *b, fe_expr e)
{
    fe_range result = fe_range_any_real(), condition;
    bool any = false;

    for (uint32_t i = 0; i < e->count; i++) {
        condition = fe_range_truth(bounds(b, e->args[i]->args[1]));
        if (!condition.hi)
            continue;
        fe_range value = bounds(b, e->args[i]->args[0]);
        result = any ? fe_range_union(result, value) : value;
        any = true;
        if (condition.lo)
            break;
    }
    return result;
}

static fe_range bounds(const bounding *b, fe_expr e)
{
    fe_expr_op op = (fe_expr_op)e->op;
    fe_range result;

    if (op < FE_EXPR_ADD)
        return of_leaf(b, e);
    if (op == FE_EXPR_NON_OVERLAPPING)
        return fe_range_int(0, 1);
    if (op == FE_EXPR_WHERE)
        return of_choice(b, e);
    if (op == FE_EXPR_PIECEWISE)
        return of_cases(b, e);
    result = bounds(b, e->args[0]);
    if (e->count == 1)
        return fe_range_unary(op, result);
    if (op == FE_EXPR_MODULAR_INDEXING) {
        result = fe_range_binary(FE_EXPR_FLOOR_DIV, result, bounds(b, e->args[1]));
        return fe_range_binary(FE_EXPR_MOD, result, bounds(b, e->args[2]));
    }
    for (uint32_t i = 1; i < e->count; i++)
        result = fe_range_binary(op, result, bounds(b, e->args[i]));
    return result;
}

void fe_expr_bounds(fe_expr e, fe_expr_range_lookup lookup, void *ctx, fe_expr_range *out)
{
    fe_range r = bounds(&(bounding){lookup, ctx}, e);

    *out = (fe_expr_range){.kind = r.kind};
    if (r.kind == FE_VALUE_REAL) {
        out->low = r.low;
        out->high = r.high;
        return;
    }
    out->has_lower = r.lo != -FE_WIDE_INF;
    out->has_upper = r.hi != FE_WIDE_INF;
    out->lower = out->has_lower ? (int64_t)r.lo : 0;
    out->upper = out->has_upper ? (int64_t)r.hi : 0;
}
