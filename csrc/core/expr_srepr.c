/* expr_srepr.c - reads symbolic expressions as sympy's srepr writes them; see expr.h.
 *
 *     call = NAME "(" [argument {"," argument}] ")" | oo | -oo | int_oo | -int_oo | true | false
 *            Symbol('NAME', ASSUMPTION=True|False ...)  Integer(I)  Rational(I, I)  Float('F', precision=I)
 */
#include "expr_read.h"

static fe_expr srepr(fe_reader *p);

/* 'NAME', ASSUMPTION=True, ...) */
static fe_expr srepr_symbol(fe_reader *p)
{
    uint8_t assumptions[FE_EXPR_MAX_ASSUMPTIONS], count = 0, index;
    size_t len, key_len, start;

    if (!fe_read_expect(p, "'"))
        return NULL;
    start = p->at;
    const char *name = fe_read_word(p, &len);
    if (!len || p->text + start != name)
        return fe_read_syntax(p, "an identifier");
    if (fe_read_look(p) != '\'') /* at once: no blanks here */
        return fe_read_syntax(p, "a closing quote");
    p->at++;
    while (fe_read_accept(p, ",")) {
        const char *key = fe_read_word(p, &key_len);
        if (!fe_expr_find_assumption(key, key_len, &index))
            return fe_read_syntax(p, "a known assumption of a symbol");
        if (count == FE_EXPR_MAX_ASSUMPTIONS)
            return fe_read_syntax(p, "fewer assumptions");
        for (unsigned i = 0; i < count; i++) {
            if (assumptions[i] / 2 == index)
                return fe_read_syntax(p, "each assumption once");
        }
        if (!fe_read_expect(p, "="))
            return NULL;
        bool yes = fe_read_accept(p, "True");
        if (!yes && !fe_read_accept(p, "False"))
            return fe_read_syntax(p, "True or False");
        assumptions[count++] = (uint8_t)(2 * index + yes);
    }
    return fe_read_expect(p, ")") ? fe_expr_symbol(p->pool, name, len, assumptions, count, p->err) : NULL;
}

static fe_expr srepr_rational(fe_reader *p)
{
    int64_t top, bottom;

    if (!fe_read_integer(p, true, &top) || !fe_read_expect(p, ",") || !fe_read_integer(p, false, &bottom) ||
        !fe_read_expect(p, ")"))
        return NULL;
    if (!bottom)
        return fe_expr_fail(p->err, FE_EXPR_DIVISION, p->at, "a ratio with the denominator 0");
    return fe_expr_ratio(p->pool, top, bottom, p->err);
}

static fe_expr srepr_float(fe_reader *p)
{
    int64_t precision;
    double value;

    if (!fe_read_expect(p, "'"))
        return NULL;
    const char *text = p->text + p->at, *quote = memchr(text, '\'', p->len - p->at);
    if (!quote)
        return fe_read_syntax(p, "a closing quote");
    size_t len = (size_t)(quote - text);
    if (!fe_read_real(p, p->at + len, &value))
        return NULL;
    p->at += len + 1;
    if (!fe_read_expect(p, ",") || !fe_read_expect(p, "precision") || !fe_read_expect(p, "=") ||
        !fe_read_integer(p, false, &precision))
        return NULL;
    if (precision < 1 || precision > 1024)
        return fe_read_syntax(p, "a precision from 1 to 1024");
    return fe_read_expect(p, ")") ? fe_expr_real(p->pool, value, text, len, (unsigned)precision, p->err) : NULL;
}

static fe_expr srepr_args(fe_reader *p, fe_expr_op op, size_t start)
{
    uint32_t base = p->count;

    if (!fe_read_accept(p, ")")) {
        do {
            if (!fe_read_push(p, srepr(p)))
                return NULL;
        } while (fe_read_accept(p, ","));
        if (!fe_read_expect(p, ")"))
            return NULL;
    }
    fe_expr e = fe_expr_call(p->pool, op, p->stack ? p->stack + base : NULL, p->count - base, p->err);
    p->count = base;
    return fe_read_placed(p, e, start);
}

static fe_expr srepr_call(fe_reader *p, const char *name, size_t len, size_t start)
{
    fe_expr_op op;
    int64_t value;

    if (fe_read_same(name, len, "Symbol"))
        return srepr_symbol(p);
    if (fe_read_same(name, len, "Integer"))
        return fe_read_integer(p, true, &value) && fe_read_expect(p, ")") ? fe_expr_integer(p->pool, value, p->err)
                                                                          : NULL;
    if (fe_read_same(name, len, "Rational"))
        return srepr_rational(p);
    if (fe_read_same(name, len, "Float"))
        return srepr_float(p);
    if (!fe_expr_find_function(name, len, &op))
        return fe_read_unknown(p, name, len, start);
    return srepr_args(p, op, start);
}

static fe_expr srepr(fe_reader *p)
{
    size_t len, start;
    fe_expr e;

    if (!fe_read_enter(p))
        return NULL;
    bool minus = fe_read_accept(p, "-");
    fe_read_skip_blanks(p);
    start = p->at;
    const char *name = fe_read_word(p, &len);
    if (!minus && len && fe_read_accept(p, "(")) {
        e = srepr_call(p, name, len, start);
    } else {
        e = fe_read_constant(p, name, len, minus);
        if (!e && p->err->fault == FE_EXPR_OK) {
            p->at = start;
            fe_read_syntax(p, "a function and its arguments");
        }
    }
    fe_read_leave(p);
    return e;
}

fe_expr fe_expr_parse_srepr(fe_exprs *pool, const char *text, size_t len, uint32_t depth, fe_expr_error *err)
{
    return fe_read_all(pool, text, len, depth, srepr, err);
}
