/* expr_infix.c - reads symbolic expressions as sympy's str writes them; see expr.h.
 *
 * Operators bind as in Python: comparison, | & + - * / // % unary - ~ and **; beside these brackets, calls, numbers, names.
 */
#include "expr_read.h"

static fe_expr comparison(fe_reader *p);
static fe_expr unary(fe_reader *p);

/* Name of a function in str, where it is another one than in srepr. */
static bool str_function(const char *name, size_t len, fe_expr_op *op)
{
    if (fe_read_same(name, len, "Eq") || fe_read_same(name, len, "Ne")) {
        *op = name[0] == 'E' ? FE_EXPR_EQ : FE_EXPR_NE;
        return true;
    }
    /* What str writes with operators is no call there. */
    return fe_expr_find_function(name, len, op) && *op != FE_EXPR_ADD && *op != FE_EXPR_MUL && *op != FE_EXPR_POW &&
           *op != FE_EXPR_COND_PAIR;
}

static fe_expr square_root(fe_reader *p)
{
    fe_expr args[2] = {comparison(p), NULL};

    if (!args[0] || !fe_read_expect(p, ")"))
        return NULL;
    args[1] = fe_expr_ratio(p->pool, 1, 2, p->err);
    return args[1] ? fe_expr_call(p->pool, FE_EXPR_POW, args, 2, p->err) : NULL;
}

/* One case of a Piecewise: (value, condition). */
static fe_expr one_case(fe_reader *p)
{
    fe_expr args[2];
    size_t start = p->at;

    if (!fe_read_expect(p, "(") || !(args[0] = comparison(p)) || !fe_read_expect(p, ",") ||
        !(args[1] = comparison(p)) || !fe_read_expect(p, ")"))
        return NULL;
    return fe_read_placed(p, fe_expr_call(p->pool, FE_EXPR_COND_PAIR, args, 2, p->err), start);
}

static fe_expr str_call(fe_reader *p, const char *name, size_t len, size_t start)
{
    uint32_t base = p->count;
    fe_expr_op op;

    if (fe_read_same(name, len, "sqrt"))
        return fe_read_placed(p, square_root(p), start);
    if (!str_function(name, len, &op))
        return fe_read_unknown(p, name, len, start);
    do {
        if (!fe_read_push(p, op == FE_EXPR_PIECEWISE ? one_case(p) : comparison(p)))
            return NULL;
    } while (fe_read_accept(p, ","));
    if (!fe_read_expect(p, ")"))
        return NULL;
    fe_expr e = fe_expr_call(p->pool, op, p->stack + base, p->count - base, p->err);
    p->count = base;
    return fe_read_placed(p, e, start);
}

static fe_expr str_name(fe_reader *p, const char *name, size_t len)
{
    fe_expr e = fe_read_constant(p, name, len, false);

    if (e || p->err->fault != FE_EXPR_OK)
        return e;
    e = fe_expr_find_symbol(p->pool, name, len);
    return e ? e : fe_expr_symbol(p->pool, name, len, NULL, 0, p->err);
}

static fe_expr str_number(fe_reader *p)
{
    size_t end = p->at;
    int64_t whole;
    double value;

    while (end < p->len && fe_read_is_digit(p->text[end]))
        end++;
    if (end == p->len || (p->text[end] != '.' && p->text[end] != 'e'))
        return fe_read_integer(p, false, &whole) ? fe_expr_integer(p->pool, whole, p->err) : NULL;
    while (end < p->len && (fe_read_is_digit(p->text[end]) || p->text[end] == '.' || p->text[end] == 'e' ||
                            ((p->text[end] == '-' || p->text[end] == '+') && p->text[end - 1] == 'e')))
        end++;
    if (!fe_read_real(p, end, &value))
        return NULL;
    p->at = end;
    return fe_expr_number_node(p->pool, (fe_number){.is_real = true, .real = value}, p->err);
}

static fe_expr atom(fe_reader *p)
{
    size_t len, start;

    if (fe_read_accept(p, "(")) {
        fe_expr e = comparison(p);
        return e && fe_read_expect(p, ")") ? e : NULL;
    }
    fe_read_skip_blanks(p);
    start = p->at;
    if (fe_read_is_digit(fe_read_look(p)))
        return str_number(p);
    const char *name = fe_read_word(p, &len);
    if (!len)
        return fe_read_syntax(p, "a number, a name or '('");
    return fe_read_accept(p, "(") ? str_call(p, name, len, start) : str_name(p, name, len);
}

static fe_expr power(fe_reader *p)
{
    fe_expr args[2] = {atom(p), NULL};
    size_t start = p->at;

    if (!args[0] || !fe_read_accept(p, "**"))
        return args[0];
    args[1] = unary(p);
    if (!args[1])
        return NULL;
    fe_expr e = args[1]->op == FE_EXPR_INTEGER ? fe_expr_power(p->pool, args[0], args[1]->as.integer, p->err)
                                               : fe_expr_call(p->pool, FE_EXPR_POW, args, 2, p->err);
    return fe_read_placed(p, e, start);
}

static fe_expr negated(fe_reader *p, fe_expr e)
{
    fe_expr args[2] = {NULL, e};

    if (!e)
        return NULL;
    if (e->op == FE_EXPR_OO || e->op == FE_EXPR_INT_OO)
        return fe_expr_constant(p->pool, (fe_expr_op)e->op, -e->as.integer, p->err);
    args[0] = fe_expr_integer(p->pool, -1, p->err);
    return args[0] ? fe_expr_product(p->pool, args, 2, p->err) : NULL;
}

static fe_expr unary(fe_reader *p)
{
    size_t start = p->at;
    fe_expr e;

    if (!fe_read_enter(p))
        return NULL;
    if (fe_read_accept(p, "-")) {
        e = negated(p, unary(p));
    } else if (fe_read_accept(p, "~")) {
        e = unary(p);
        e = e ? fe_read_placed(p, fe_expr_call(p->pool, FE_EXPR_NOT, &e, 1, p->err), start) : NULL;
    } else {
        e = power(p);
    }
    fe_read_leave(p);
    return e;
}

/* Put what waits on the stack above base together, and leave it there alone. */
static bool fold(fe_reader *p, uint32_t base, fe_expr (*build)(fe_exprs *, const fe_expr *, uint32_t, fe_expr_error *),
                 size_t start)
{
    if (p->count - base > 1) {
        fe_expr e = fe_read_placed(p, build(p->pool, p->stack + base, p->count - base, p->err), start);
        if (!e)
            return false;
        p->stack[base] = e;
        p->count = base + 1;
    }
    return true;
}

static bool division(fe_reader *p, uint32_t base, fe_expr_op op, size_t start)
{
    if (!fold(p, base, fe_expr_product, start) || !fe_read_push(p, unary(p)))
        return false;
    fe_expr e = fe_read_placed(p, fe_expr_call(p->pool, op, p->stack + base, 2, p->err), start);
    if (!e)
        return false;
    p->stack[base] = e;
    p->count = base + 1;
    return true;
}

static fe_expr inverse(fe_reader *p, fe_expr e)
{
    return e ? fe_expr_power(p->pool, e, -1, p->err) : NULL;
}

static fe_expr product(fe_reader *p)
{
    uint32_t base = p->count;
    size_t start = p->at;

    if (!fe_read_push(p, unary(p)))
        return NULL;
    for (;;) {
        bool done = false, right;
        if (fe_read_accept(p, "//"))
            right = division(p, base, FE_EXPR_FLOOR_DIV, start);
        else if (fe_read_accept(p, "%"))
            right = division(p, base, FE_EXPR_MOD, start);
        else if (fe_read_accept(p, "/"))
            right = fe_read_push(p, inverse(p, unary(p)));
        else if (fe_read_accept(p, "*"))
            right = fe_read_push(p, unary(p));
        else
            right = done = true;
        if (!right || (done && !fold(p, base, fe_expr_product, start)))
            return NULL;
        if (done)
            break;
    }
    p->count = base;
    return p->stack[base];
}

static fe_expr sum(fe_reader *p)
{
    uint32_t base = p->count;
    size_t start = p->at;

    if (!fe_read_push(p, product(p)))
        return NULL;
    for (;;) {
        if (fe_read_accept(p, "+")) {
            if (!fe_read_push(p, product(p)))
                return NULL;
        } else if (fe_read_accept(p, "-")) {
            if (!fe_read_push(p, negated(p, product(p))))
                return NULL;
        } else {
            break;
        }
    }
    if (!fold(p, base, fe_expr_sum, start))
        return NULL;
    p->count = base;
    return p->stack[base];
}

/* Operands joined by & or |. */
static fe_expr joined(fe_reader *p, const char *sign, fe_expr_op op, fe_expr (*operand)(fe_reader *))
{
    uint32_t base = p->count;
    size_t start = p->at;
    fe_expr e;

    do {
        if (!fe_read_push(p, operand(p)))
            return NULL;
    } while (fe_read_accept(p, sign));
    e = p->stack[base];
    if (p->count - base > 1)
        e = fe_read_placed(p, fe_expr_call(p->pool, op, p->stack + base, p->count - base, p->err), start);
    p->count = base;
    return e;
}

static fe_expr conjunction(fe_reader *p)
{
    return joined(p, "&", FE_EXPR_AND, sum);
}

static fe_expr comparison(fe_reader *p)
{
    static const struct {
        const char *sign;
        fe_expr_op op;
    } relations[] = {{">=", FE_EXPR_GE}, {"<=", FE_EXPR_LE}, {">", FE_EXPR_GT},
                     {"<", FE_EXPR_LT},  {"==", FE_EXPR_EQ}, {"!=", FE_EXPR_NE}};
    size_t start = p->at;
    fe_expr args[2];

    if (!fe_read_enter(p))
        return NULL;
    fe_expr e = joined(p, "|", FE_EXPR_OR, conjunction);
    for (size_t i = 0; e && i < sizeof relations / sizeof *relations; i++) {
        if (!fe_read_accept(p, relations[i].sign))
            continue;
        args[0] = e;
        args[1] = joined(p, "|", FE_EXPR_OR, conjunction);
        e = args[1] ? fe_read_placed(p, fe_expr_call(p->pool, relations[i].op, args, 2, p->err), start) : NULL;
        break;
    }
    fe_read_leave(p);
    return e;
}

fe_expr fe_expr_parse_str(fe_exprs *pool, const char *text, size_t len, uint32_t depth, fe_expr_error *err)
{
    return fe_read_all(pool, text, len, depth, comparison, err);
}
