/* expr_logic.c - Max, Min, comparisons, And, Or, Not and Piecewise in the form that sympy and torch give them; see
 * fe_expr_make in expr.h.
 *
 * Sources: torch/utils/_sympy/functions.py (MinMaxBase); sympy 1.14, core/relational.py, logic/boolalg.py,
 * functions/elementary/piecewise.py.
 */
#include "expr_impl.h"

static bool is_infinite(fe_expr e)
{
    return e->op == FE_EXPR_OO || e->op == FE_EXPR_INT_OO;
}

static bool is_truth(fe_expr e, bool value)
{
    return e->op == FE_EXPR_BOOL && (e->as.integer != 0) == value;
}

/* Arguments of a call that is flat and has each only once, in sympy's order. */
typedef struct {
    fe_expr *items; /* with a spare for sorting behind them */
    uint32_t count, room;
} arguments;

static uint64_t flat_count(fe_expr_op op, const fe_expr *args, uint32_t count)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < count; i++)
        n += args[i]->op == op ? flat_count(op, args[i]->args, args[i]->count) : 1;
    return n;
}

static void flatten(arguments *a, fe_expr_op op, const fe_expr *args, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (args[i]->op == op)
            flatten(a, op, args[i]->args, args[i]->count);
        else
            a->items[a->count++] = args[i];
    }
}

static bool arguments_init(arguments *a, fe_exprs *pool, fe_expr_op op, const fe_expr *args, uint32_t count,
                           fe_expr_error *err)
{
    uint64_t n = flat_count(op, args, count);

    *a = (arguments){.items = NULL};
    if (n > UINT32_MAX / 4) {
        fe_expr_fail(err, FE_EXPR_RANGE, 0, "too many arguments");
        return false;
    }
    if (!fe_exprs_spend(pool, n, err))
        return false;
    a->room = 2 * (uint32_t)n;
    a->items = fe_exprs_take(pool, a->room, err);
    if (!a->items)
        return false;
    flatten(a, op, args, count);
    return true;
}

static void sort_once(arguments *a)
{
    uint32_t n = 0;

    fe_expr_sort_by_size(a->items, a->items + a->room / 2, a->count);
    for (uint32_t i = 0; i < a->count; i++) {
        if (!n || a->items[n - 1] != a->items[i])
            a->items[n++] = a->items[i];
    }
    a->count = n;
}

/* ---- Max and Min ---- */

/* Of all numbers the one that counts, in front; *infinite: it decides alone. */
static void collapse_numbers(arguments *a, bool max, bool *infinite)
{
    fe_expr best = NULL;
    fe_number x, y = {.q = 1};
    uint32_t n = 0;

    *infinite = false;
    for (uint32_t i = 0; i < a->count; i++) {
        fe_expr e = a->items[i];
        if (is_infinite(e)) {
            if ((e->as.integer > 0) == max) {
                *infinite = true;
                a->items[0] = e;
                return;
            }
        } else if (!fe_expr_number(e, &x)) {
            a->items[n++] = e;
        } else if (!best || (max ? fe_number_compare(x, y) > 0 : fe_number_compare(x, y) < 0)) {
            best = e;
            y = x;
        }
    }
    if (best)
        a->items[n++] = best;
    a->count = n;
}

/* Two that are decided: a number 0 or 1 beside what is never below it, or a term twice with different numbers. NULL: not. */
static fe_expr decide_two(const arguments *a, bool max)
{
    const fe_expr *x, *y;
    fe_number first, second;
    uint32_t x_count, y_count;
    fe_expr number = a->items[0], other = a->items[1];

    if (number->op == FE_EXPR_INTEGER || number->op == FE_EXPR_FLOAT) {
        (void)fe_expr_number(number, &first);
        double value = fe_number_real(first);
        unsigned signs = fe_expr_signs(other);
        if ((value == 0 && !(signs & FE_SIGN_MINUS)) || (value == 1 && signs == FE_SIGN_PLUS))
            return max ? other : number;
        return NULL;
    }
    fe_expr_split_term(&a->items[0], &first, &x, &x_count);
    fe_expr_split_term(&a->items[1], &second, &y, &y_count);
    if (x_count != y_count || memcmp(x, y, x_count * sizeof *x) != 0)
        return NULL;
    for (uint32_t i = 0; i < x_count; i++) {
        if (fe_expr_signs(x[i]) & FE_SIGN_MINUS)
            return NULL;
    }
    return (fe_number_compare(first, second) > 0) == max ? a->items[0] : a->items[1];
}

/* Does Max(..., Min(a, b), ...) hold an a, or a number above one of Min's? Then the Min never counts. */
static bool never_counts(const arguments *a, uint32_t at, bool max)
{
    fe_expr inner = a->items[at];
    fe_number own, number;

    if (inner->op != (max ? FE_EXPR_MIN : FE_EXPR_MAX))
        return false;
    for (uint32_t i = 0; i < inner->count; i++) {
        for (uint32_t j = 0; j < a->count; j++) {
            if (a->items[j] == inner->args[i])
                return true;
        }
    }
    if (!fe_expr_number(a->items[0], &number))
        return false;
    if (fe_expr_number(inner->args[0], &own)) {
        int c = fe_number_compare(own, number);
        return max ? c < 0 : c > 0;
    }
    /* Its first argument may be known to be beyond the number by its sign. */
    int sign = max ? -fe_number_sign(number) : fe_number_sign(number);
    unsigned against = max ? FE_SIGN_PLUS : FE_SIGN_MINUS, signs = fe_expr_signs(inner->args[0]);
    return sign < 0 ? !(signs & against) : sign == 0 && !(signs & (against | FE_SIGN_ZERO));
}

#define COMPARED 64 /* arguments at most, each with each */

static void absorb(arguments *a, bool max)
{
    for (uint32_t i = 0; i < a->count && a->count <= COMPARED;) {
        if (never_counts(a, i, max)) {
            memmove(a->items + i, a->items + i + 1, (a->count - i - 1) * sizeof *a->items);
            a->count--;
        } else {
            i++;
        }
    }
}

fe_expr fe_expr_make_extreme(fe_exprs *pool, fe_expr_op op, const fe_expr *args, uint32_t count, fe_expr_error *err)
{
    bool max = op == FE_EXPR_MAX, infinite;
    fe_expr result = NULL;
    arguments a;

    /* for what it refuses */
    if (!fe_expr_call(pool, op, args, count, err) || !arguments_init(&a, pool, op, args, count, err))
        return NULL;
    fe_expr first = a.items[0]; /* stays if all are the identity of the operation */
    collapse_numbers(&a, max, &infinite);
    if (infinite) {
        result = a.items[0];
    } else if (!a.count) {
        result = first;
    } else {
        sort_once(&a);
        absorb(&a, max);
        result = a.count == 1 ? a.items[0] : a.count == 2 ? decide_two(&a, max) : NULL;
        if (!result)
            result = fe_expr_call(pool, op, a.items, a.count, err);
    }
    fe_exprs_give(pool, a.items, a.room);
    return result;
}

/* ---- comparisons ---- */

/* Whether the relation holds for a difference of these signs: 1, 0, -1: not known. */
static int holds(fe_expr_op op, unsigned signs)
{
    unsigned yes = op == FE_EXPR_GT   ? FE_SIGN_PLUS
                   : op == FE_EXPR_GE ? FE_SIGN_PLUS | FE_SIGN_ZERO
                   : op == FE_EXPR_LT ? FE_SIGN_MINUS
                   : op == FE_EXPR_LE ? FE_SIGN_MINUS | FE_SIGN_ZERO
                   : op == FE_EXPR_EQ ? FE_SIGN_ZERO
                                      : FE_SIGN_MINUS | FE_SIGN_PLUS;

    return !(signs & ~yes) ? 1 : !(signs & yes) ? 0 : -1;
}

fe_expr fe_expr_make_relation(fe_exprs *pool, fe_expr_op op, const fe_expr *args, fe_expr_error *err)
{
    fe_expr raw = fe_expr_call(pool, op, args, 2, err), pair[2] = {NULL, args[1]};
    int answer = -1;

    if (!raw)
        return NULL;
    if (args[0] == args[1]) {
        answer = holds(op, FE_SIGN_ZERO);
    } else if (fe_expr_kind_of(args[0]) == FE_EXPR_NUMBER && !is_infinite(args[0]) && !is_infinite(args[1])) {
        fe_expr_error ignored; /* a difference that does not fit decides nothing */
        pair[0] = fe_expr_integer(pool, -1, err);
        if (!pair[0])
            return NULL;
        fe_expr d = fe_expr_product(pool, pair, 2, &ignored);
        if (d) {
            pair[0] = args[0];
            pair[1] = d;
            d = fe_expr_sum(pool, pair, 2, &ignored);
        }
        if (!d && ignored.fault == FE_EXPR_NO_MEMORY) {
            *err = ignored;
            return NULL;
        }
        answer = d ? holds(op, fe_expr_signs(d)) : -1;
        if (answer < 0 && d && (op == FE_EXPR_EQ || op == FE_EXPR_NE) && fe_expr_parity(d) == 1)
            answer = op == FE_EXPR_NE;
    }
    return answer < 0 ? raw : fe_expr_constant(pool, FE_EXPR_BOOL, answer, err);
}

/* ---- And, Or, Not ---- */

static fe_expr_op opposite(unsigned op)
{
    switch (op) {
    case FE_EXPR_GE:
        return FE_EXPR_LT;
    case FE_EXPR_LT:
        return FE_EXPR_GE;
    case FE_EXPR_GT:
        return FE_EXPR_LE;
    case FE_EXPR_LE:
        return FE_EXPR_GT;
    case FE_EXPR_EQ:
        return FE_EXPR_NE;
    default:
        return FE_EXPR_EQ;
    }
}

static bool is_relation(fe_expr e)
{
    return e->op >= FE_EXPR_GE && e->op <= FE_EXPR_NE;
}

fe_expr fe_expr_make_not(fe_exprs *pool, fe_expr arg, fe_expr_error *err)
{
    fe_expr raw = fe_expr_call(pool, FE_EXPR_NOT, &arg, 1, err);

    if (!raw)
        return NULL;
    if (arg->op == FE_EXPR_BOOL)
        return fe_expr_constant(pool, FE_EXPR_BOOL, !arg->as.integer, err);
    if (arg->op == FE_EXPR_NOT)
        return arg->args[0];
    return is_relation(arg) ? fe_expr_call(pool, opposite(arg->op), arg->args, 2, err) : raw;
}

/* Does one say the opposite of another? Turned round, too: a < b and b <= a. */
static bool contradict(fe_expr a, fe_expr b)
{
    if ((a->op == FE_EXPR_NOT && a->args[0] == b) || (b->op == FE_EXPR_NOT && b->args[0] == a))
        return true;
    if (!is_relation(a) || !is_relation(b))
        return false;
    if (b->op == opposite(a->op))
        return (a->args[0] == b->args[0] && a->args[1] == b->args[1]) ||
               ((a->op == FE_EXPR_EQ || a->op == FE_EXPR_NE) && a->args[0] == b->args[1] && a->args[1] == b->args[0]);
    bool turned = (a->op == FE_EXPR_GE && b->op == FE_EXPR_GT) || (a->op == FE_EXPR_GT && b->op == FE_EXPR_GE) ||
                  (a->op == FE_EXPR_LE && b->op == FE_EXPR_LT) || (a->op == FE_EXPR_LT && b->op == FE_EXPR_LE);
    return turned && a->args[0] == b->args[1] && a->args[1] == b->args[0];
}

static bool any_contradict(const arguments *a)
{
    for (uint32_t i = 0; i < a->count && a->count <= COMPARED; i++) {
        for (uint32_t j = i + 1; j < a->count; j++) {
            if (contradict(a->items[i], a->items[j]))
                return true;
        }
    }
    return false;
}

fe_expr fe_expr_make_joined(fe_exprs *pool, fe_expr_op op, const fe_expr *args, uint32_t count, fe_expr_error *err)
{
    bool decides = op == FE_EXPR_OR, decided = false; /* this truth value alone decides */
    fe_expr result = NULL;
    arguments a;
    uint32_t n = 0;

    if (!fe_expr_call(pool, op, args, count, err) || !arguments_init(&a, pool, op, args, count, err))
        return NULL;
    for (uint32_t i = 0; i < a.count; i++) {
        decided |= is_truth(a.items[i], decides);
        if (a.items[i]->op != FE_EXPR_BOOL)
            a.items[n++] = a.items[i];
    }
    a.count = n;
    sort_once(&a);
    if (decided || any_contradict(&a))
        result = fe_expr_constant(pool, FE_EXPR_BOOL, decides, err);
    else if (!a.count)
        result = fe_expr_constant(pool, FE_EXPR_BOOL, !decides, err);
    else
        result = a.count == 1 ? a.items[0] : fe_expr_call(pool, op, a.items, a.count, err);
    fe_exprs_give(pool, a.items, a.room);
    return result;
}

/* ---- Piecewise ---- */

/* Cases that never hold go, those behind one that always holds as well, and neighbours of one value become one. */
fe_expr fe_expr_make_cases(fe_exprs *pool, const fe_expr *args, uint32_t count, fe_expr_error *err)
{
    fe_expr *cases, pair[2], result = NULL;
    uint32_t n = 0;

    if (!fe_expr_call(pool, FE_EXPR_PIECEWISE, args, count, err) || !(cases = fe_exprs_take(pool, count, err)))
        return NULL;
    for (uint32_t i = 0; i < count; i++) {
        fe_expr condition = args[i]->args[1];
        if (is_truth(condition, false))
            continue;
        if (n && cases[n - 1]->args[0] == args[i]->args[0]) {
            pair[0] = cases[n - 1]->args[1];
            pair[1] = condition;
            if (!(pair[1] = fe_expr_make(pool, FE_EXPR_OR, pair, 2, err)))
                goto done;
            pair[0] = args[i]->args[0];
            condition = pair[1];
            if (!(cases[n - 1] = fe_expr_call(pool, FE_EXPR_COND_PAIR, pair, 2, err)))
                goto done;
        } else {
            cases[n++] = args[i];
        }
        if (is_truth(condition, true))
            break;
    }
    if (!n) /* none can hold: sympy's Undefined, which is no number */
        result = fe_expr_call(pool, FE_EXPR_PIECEWISE, args, count, err);
    else
        result = is_truth(cases[0]->args[1], true) ? cases[0]->args[0]
                                                   : fe_expr_call(pool, FE_EXPR_PIECEWISE, cases, n, err);
done:
    fe_exprs_give(pool, cases, count);
    return result;
}
