/* expr_make.c - calls in the form that sympy and torch give them on construction; see fe_expr_make in expr.h.
 *
 * Sources: the __new__ and eval of the classes in torch/utils/_sympy/functions.py, and sympy 1.14.
 */
#include "expr_impl.h"

#include <math.h>

static bool is_constant(fe_expr e)
{
    return e->op == FE_EXPR_INTEGER || e->op == FE_EXPR_RATIONAL || e->op == FE_EXPR_FLOAT || e->op == FE_EXPR_BOOL;
}

static bool all_constant(const fe_expr *args, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!is_constant(args[i]))
            return false;
    }
    return true;
}

static fe_expr value_node(fe_exprs *pool, const fe_expr_value *v, fe_expr_error *err)
{
    switch (v->kind) {
    case FE_VALUE_BOOL:
        return fe_expr_constant(pool, FE_EXPR_BOOL, v->p, err);
    case FE_VALUE_INT:
        return fe_expr_integer(pool, v->p, err);
    case FE_VALUE_RATIO:
        return fe_expr_ratio(pool, v->p, v->q, err);
    default:
        if (isinf(v->real))
            return fe_expr_constant(pool, FE_EXPR_OO, v->real > 0 ? 1 : -1, err);
        return fe_expr_number_node(pool, (fe_number){.is_real = true, .real = v->real}, err);
    }
}

/* Sympy keeps roots of numbers that are not exact. */
static bool stays_a_root(const fe_expr *args, const fe_expr_value *v)
{
    return v->kind == FE_VALUE_REAL && args[0]->op != FE_EXPR_FLOAT && args[1]->op != FE_EXPR_FLOAT;
}

static fe_expr make_constant(fe_exprs *pool, fe_expr_op op, const fe_expr *args, uint32_t count, fe_expr_error *err)
{
    fe_expr_value v;
    /* checks the arguments as well */
    fe_expr raw = fe_expr_call(pool, op, args, count, err);

    if (!raw || fe_expr_eval(raw, NULL, NULL, &v, err) < 0)
        return NULL;
    return op == FE_EXPR_POW && stays_a_root(args, &v) ? raw : value_node(pool, &v, err);
}

static fe_expr make_power(fe_exprs *pool, fe_expr_op op, const fe_expr *args, fe_expr_error *err)
{
    if (args[1]->op == FE_EXPR_INTEGER)
        return fe_expr_power(pool, args[0], args[1]->as.integer, err);
    return fe_expr_call(pool, op, args, 2, err);
}

/* base * 2**shift and base // 2**shift, as torch writes shifts. */
static fe_expr make_shift(fe_exprs *pool, fe_expr_op op, const fe_expr *args, fe_expr_error *err)
{
    fe_expr pair[2] = {args[0], NULL}, power[2] = {fe_expr_integer(pool, 2, err), args[1]};

    /* for what it refuses */
    if (!power[0] || !fe_expr_call(pool, op, args, 2, err))
        return NULL;
    pair[1] = fe_expr_make(pool, FE_EXPR_POW_BY_NATURAL, power, 2, err);
    return pair[1] ? fe_expr_make(pool, op == FE_EXPR_LSHIFT ? FE_EXPR_MUL : FE_EXPR_FLOOR_DIV, pair, 2, err) : NULL;
}

/* floor and ceiling of an integer, and Abs of what is never negative, are that itself. */
static fe_expr make_rounded(fe_exprs *pool, fe_expr_op op, const fe_expr *args, fe_expr_error *err)
{
    if (op == FE_EXPR_ABS ? !(fe_expr_signs(args[0]) & FE_SIGN_MINUS) : fe_expr_is_integer(args[0]))
        return args[0];
    return fe_expr_call(pool, op, args, 1, err);
}

static fe_expr make_choice(fe_exprs *pool, const fe_expr *args, fe_expr_error *err)
{
    fe_expr raw = fe_expr_call(pool, FE_EXPR_WHERE, args, 3, err);

    return raw && args[0]->op == FE_EXPR_BOOL ? args[args[0]->as.integer ? 1 : 2] : raw;
}

/* Torch leaves a FloorDiv of what is no integer alone. */
static bool is_computed(fe_expr_op op, const fe_expr *args, uint32_t count)
{
    if (op == FE_EXPR_COND_PAIR || op == FE_EXPR_IDENTITY || !all_constant(args, count))
        return false;
    return (op != FE_EXPR_FLOOR_DIV && op != FE_EXPR_CLEAN_DIV) ||
           (args[0]->op == FE_EXPR_INTEGER && args[1]->op == FE_EXPR_INTEGER);
}

static bool spend(fe_exprs *pool, const fe_expr *args, uint32_t count, fe_expr_error *err)
{
    uint64_t work = 1;

    for (uint32_t i = 0; i < count; i++)
        work += args[i]->size;
    return fe_exprs_spend(pool, work, err);
}

fe_expr fe_expr_make(fe_exprs *pool, fe_expr_op op, const fe_expr *args, uint32_t count, fe_expr_error *err)
{
    const fe_expr_function *f = &fe_expr_functions[op];

    if (count < f->least || (f->most && count > f->most))
        return fe_expr_call(pool, op, args, count, err); /* which says so */
    if (!spend(pool, args, count, err))
        return NULL;
    for (uint32_t i = 0; op <= FE_EXPR_POW && i < count; i++) {
        if (fe_expr_kind_of(args[i]) != FE_EXPR_NUMBER)
            return fe_expr_call(pool, op, args, count, err);
    }
    if (op == FE_EXPR_ADD)
        return fe_expr_sum(pool, args, count, err);
    if (op == FE_EXPR_MUL)
        return fe_expr_product(pool, args, count, err);
    if (is_computed(op, args, count))
        return make_constant(pool, op, args, count, err);
    switch (op) {
    case FE_EXPR_POW:
    case FE_EXPR_POW_BY_NATURAL:
        return make_power(pool, op, args, err);
    case FE_EXPR_MAX:
    case FE_EXPR_MIN:
        return fe_expr_make_extreme(pool, op, args, count, err);
    case FE_EXPR_MOD:
    case FE_EXPR_PYTHON_MOD:
    case FE_EXPR_FLOOR_DIV:
    case FE_EXPR_CLEAN_DIV:
    case FE_EXPR_CEIL_DIV:
    case FE_EXPR_MODULAR_INDEXING:
        return fe_expr_make_division(pool, op, args, err);
    case FE_EXPR_LSHIFT:
    case FE_EXPR_RSHIFT:
        return make_shift(pool, op, args, err);
    case FE_EXPR_FLOOR:
    case FE_EXPR_CEILING:
    case FE_EXPR_ABS:
        return make_rounded(pool, op, args, err);
    case FE_EXPR_WHERE:
        return make_choice(pool, args, err);
    case FE_EXPR_PIECEWISE:
        return fe_expr_make_cases(pool, args, count, err);
    case FE_EXPR_GE:
    case FE_EXPR_LE:
    case FE_EXPR_GT:
    case FE_EXPR_LT:
    case FE_EXPR_EQ:
    case FE_EXPR_NE:
        return fe_expr_make_relation(pool, op, args, err);
    case FE_EXPR_AND:
    case FE_EXPR_OR:
        return fe_expr_make_joined(pool, op, args, count, err);
    case FE_EXPR_NOT:
        return fe_expr_make_not(pool, args[0], err);
    default:
        return fe_expr_call(pool, op, args, count, err);
    }
}
