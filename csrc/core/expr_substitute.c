/* expr_substitute.c - expressions made anew: copied to another pool, simplified, symbols replaced; see expr.h.
 *
 * Recursion follows the tree, whose depth is bounded; arguments wait in memory of the pool, given back at once.
 */
#include "expr_impl.h"

#define WORK_PER_PART 64 /* see fe_exprs_allow */
#define LEAST_WORK 2000000

typedef struct {
    fe_exprs *pool;
    fe_expr_replace replace;
    void *ctx;
    bool plain; /* calls are kept as they are */
    fe_expr_error *err;
} rebuild;

static fe_expr build(rebuild *r, fe_expr e)
{
    fe_expr *args, result = NULL;
    uint32_t i = 0;

    if (!e->count) {
        if (e->op == FE_EXPR_SYMBOL && r->replace && (result = r->replace(r->ctx, e)))
            return result;
        return fe_expr_keep(r->pool, e, NULL, r->err);
    }
    args = fe_exprs_take(r->pool, e->count, r->err);
    if (!args)
        return NULL;
    while (i < e->count && (args[i] = build(r, e->args[i])))
        i++;
    if (i == e->count)
        result = r->plain ? fe_expr_keep(r->pool, e, args, r->err)
                          : fe_expr_make(r->pool, (fe_expr_op)e->op, args, e->count, r->err);
    fe_exprs_give(r->pool, args, e->count);
    return result;
}

fe_expr fe_expr_substitute(fe_exprs *pool, fe_expr e, fe_expr_replace replace, void *ctx, fe_expr_error *err)
{
    *err = (fe_expr_error){.fault = FE_EXPR_OK};
    fe_exprs_allow(pool, WORK_PER_PART * (uint64_t)e->size + LEAST_WORK);
    fe_expr result = build(&(rebuild){.pool = pool, .replace = replace, .ctx = ctx, .err = err}, e);
    fe_exprs_allow(pool, UINT64_MAX);
    return result;
}

fe_expr fe_expr_simplify(fe_exprs *pool, fe_expr e, fe_expr_error *err)
{
    return fe_expr_substitute(pool, e, NULL, NULL, err);
}

fe_expr fe_expr_copy(fe_exprs *pool, fe_expr e, fe_expr_error *err)
{
    *err = (fe_expr_error){.fault = FE_EXPR_OK};
    return build(&(rebuild){.pool = pool, .plain = true, .err = err}, e);
}
