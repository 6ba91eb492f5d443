/* expr_text.c - symbolic expressions as text: sympy's srepr, and sympy's str.
 *
 * Sources: sympy 1.14, printing/str.py, printing/repr.py, printing/precedence.py; torch/utils/_sympy/functions.py for the
 * functions of torch, of which FloorDiv and Identity print themselves.
 */
#include "expr_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- srepr ---- */

static void add_ratio(fe_buffer *out, const char *before, int64_t p, const char *between, int64_t q, const char *after)
{
    fe_buffer_text(out, before);
    fe_buffer_int(out, p);
    fe_buffer_text(out, between);
    fe_buffer_int(out, q);
    fe_buffer_text(out, after);
}

static void srepr_symbol(fe_expr e, fe_buffer *out)
{
    fe_buffer_text(out, "Symbol('");
    fe_buffer_add(out, e->as.symbol.name, e->as.symbol.len);
    fe_buffer_char(out, '\'');
    for (unsigned i = 0; i < e->as.symbol.count; i++) {
        fe_buffer_text(out, ", ");
        fe_buffer_text(out, fe_expr_assumption(e->as.symbol.assumptions[i] / 2));
        fe_buffer_text(out, e->as.symbol.assumptions[i] % 2 ? "=True" : "=False");
    }
    fe_buffer_char(out, ')');
}

static void add_constant(fe_expr e, fe_buffer *out)
{
    if (e->op == FE_EXPR_BOOL) {
        fe_buffer_text(out, e->as.integer ? "true" : "false");
        return;
    }
    if (e->as.integer < 0)
        fe_buffer_char(out, '-');
    fe_buffer_text(out, e->op == FE_EXPR_OO ? "oo" : "int_oo");
}

void fe_expr_srepr(fe_expr e, fe_buffer *out)
{
    switch (e->op) {
    case FE_EXPR_SYMBOL:
        srepr_symbol(e, out);
        return;
    case FE_EXPR_INTEGER:
        fe_buffer_text(out, "Integer(");
        fe_buffer_int(out, e->as.integer);
        break;
    case FE_EXPR_RATIONAL:
        add_ratio(out, "Rational(", e->as.ratio.p, ", ", e->as.ratio.q, "");
        break;
    case FE_EXPR_FLOAT:
        fe_buffer_text(out, "Float('");
        fe_buffer_add(out, e->as.real.text, e->as.real.len);
        fe_buffer_text(out, "', precision=");
        fe_buffer_int(out, e->as.real.precision);
        break;
    case FE_EXPR_OO:
    case FE_EXPR_INT_OO:
    case FE_EXPR_BOOL:
        add_constant(e, out);
        return;
    default:
        fe_buffer_text(out, fe_expr_functions[e->op].name);
        fe_buffer_char(out, '(');
        for (uint32_t i = 0; i < e->count; i++) {
            if (i)
                fe_buffer_text(out, ", ");
            fe_expr_srepr(e->args[i], out);
        }
        break;
    }
    fe_buffer_char(out, ')');
}

/* ---- str: numbers ---- */

typedef struct {
    char *text;
    size_t len;
} real_writer;

static void put(real_writer *w, char c)
{
    w->text[w->len++] = c;
}

/* mpmath's to_str: fixed point where the exponent is small, else with an exponent. nested: trailing zeros go. digits: 1 to
 * 17; the text has room for 64. Returns the length. */
static size_t write_real(double value, int digits, bool nested, char *out)
{
    real_writer w = {.text = out};
    char text[64], mantissa[32] = ""; /* filled: the analyzer can't see that len digits are */
    int len = 0;

    if (value == 0) {
        memcpy(out, "0.0", 3);
        return 3;
    }
    snprintf(text, sizeof text, "%.*e", digits - 1, value);
    const char *at = text + (value < 0), *e = strchr(text, 'e');
    int exponent = atoi(e + 1), low = -(digits / 3) < -5 ? -(digits / 3) : -5;
    for (; at < e; at++) {
        if (*at >= '0' && *at <= '9')
            mantissa[len++] = *at;
    }
    while (len > 1 && mantissa[len - 1] == '0' && nested)
        len--;
    if (value < 0)
        put(&w, '-');
    bool fixed = exponent > low && exponent < digits;
    int point = fixed ? exponent + 1 : 1; /* digits before the point */
    if (point <= 0) {
        put(&w, '0');
        put(&w, '.');
    }
    for (int i = point; i < 0; i++)
        put(&w, '0');
    for (int i = 0; i < len || i < point; i++) {
        if (i && i == point)
            put(&w, '.');
        put(&w, i < len ? mantissa[i] : '0');
    }
    if (point >= len) {
        put(&w, '.');
        if (nested)
            put(&w, '0');
    }
    if (!fixed)
        w.len +=
            (size_t)sprintf(w.text + w.len, "e%c%d", exponent < 0 ? '-' : '+', exponent < 0 ? -exponent : exponent);
    return w.len;
}

size_t fe_expr_real_text(double value, char *text)
{
    return write_real(value, 17, true, text);
}

static void str_real(double value, unsigned precision, bool nested, fe_buffer *out)
{
    long dps = lrint(precision / 3.3219280948873626) - 1;
    char text[64];

    fe_buffer_add(out, text, write_real(value, dps < 1 ? 1 : dps > 17 ? 17 : (int)dps, nested, text));
}

static void str_number(fe_number n, unsigned precision, bool nested, fe_buffer *out)
{
    if (n.is_real)
        str_real(n.real, precision, nested, out);
    else if (n.q == 1)
        fe_buffer_int(out, n.p);
    else
        add_ratio(out, "", n.p, "/", n.q, "");
}

/* ---- str: precedence ---- */

enum { ADD = 40, MUL = 50, POW = 60, NOT = 100, ATOM = 1000, AND_OPERAND = 38, OR_OPERAND = 36, RELATION = 35 };

static int product_precedence(fe_expr e)
{
    const fe_expr *factors;
    fe_number number;

    for (uint32_t i = 0; i < e->count; i++) {
        const fe_expr_function *f = &fe_expr_functions[e->args[i]->op];
        if (e->args[i]->op >= FE_EXPR_ADD && f->order == 4 && f->precedence < MUL)
            return MUL;
    }
    (void)fe_expr_split_product(e, &number, &factors);
    return fe_number_sign(number) < 0 ? ADD : MUL;
}

static int precedence(fe_expr e)
{
    switch (e->op) {
    case FE_EXPR_INTEGER:
        return e->as.integer < 0 ? ADD : ATOM;
    case FE_EXPR_RATIONAL:
        return e->as.ratio.p < 0 ? ADD : MUL;
    case FE_EXPR_FLOAT:
        return e->as.real.value < 0 ? ADD : ATOM;
    case FE_EXPR_OO:
        return e->as.integer < 0 ? ADD : ATOM;
    case FE_EXPR_SYMBOL:
    case FE_EXPR_INT_OO:
    case FE_EXPR_BOOL:
        return ATOM;
    case FE_EXPR_MUL:
        return product_precedence(e);
    default:
        return fe_expr_functions[e->op].precedence;
    }
}

/* ---- str ---- */

static void str(fe_expr e, bool nested, fe_buffer *out);

static void str_within(fe_expr e, int level, fe_buffer *out)
{
    bool wrap = precedence(e) <= level;

    if (wrap)
        fe_buffer_char(out, '(');
    str(e, true, out);
    if (wrap)
        fe_buffer_char(out, ')');
}

static void str_list(const fe_expr *items, uint32_t count, const char *between, int level, fe_buffer *out)
{
    for (uint32_t i = 0; i < count; i++) {
        if (i)
            fe_buffer_text(out, between);
        str_within(items[i], level, out);
    }
}

/* A term whose text begins with a minus has it taken off, to stand as " - " in the sum. */
static void str_sum(fe_expr e, fe_buffer *out)
{
    fe_buffer term;

    fe_buffer_init(&term, out->allocator);
    for (uint32_t i = 0; i < e->count; i++) {
        fe_expr t = e->order[i];
        term.len = 0;
        str(t, true, &term);
        bool minus = term.len && term.data[0] == '-' && t->op != FE_EXPR_ADD;
        bool wrap = precedence(t) < ADD || t->op == FE_EXPR_ADD;
        fe_buffer_text(out, i ? minus ? " - " : " + " : minus ? "-" : "");
        if (wrap)
            fe_buffer_char(out, '(');
        fe_buffer_add(out, term.data + minus, term.len - minus);
        if (wrap)
            fe_buffer_char(out, ')');
    }
    out->failed |= term.failed;
    fe_buffer_clear(&term);
}

/* The exponent of a power that goes below the line: a negative number. */
static bool goes_below(fe_expr factor, fe_number *exponent)
{
    return factor->op == FE_EXPR_POW && fe_expr_number(factor->args[1], exponent) && fe_number_sign(*exponent) < 0;
}

/* base ** exponent, where the exponent may be another than the node's. */
static void str_power(fe_expr base, fe_expr exponent, fe_number number, bool is_number, fe_buffer *out)
{
    if (is_number && !number.is_real && number.q == 2 && (number.p == 1 || number.p == -1)) {
        fe_buffer_text(out, number.p == 1 ? "sqrt(" : "1/sqrt(");
        str(base, true, out);
        fe_buffer_char(out, ')');
        return;
    }
    if (is_number && !number.is_real && number.q == 1 && number.p == -1) {
        fe_buffer_text(out, "1/");
        str_within(base, POW, out);
        return;
    }
    str_within(base, POW, out);
    fe_buffer_text(out, "**");
    if (!is_number) {
        str_within(exponent, POW, out);
        return;
    }
    bool wrap = fe_number_sign(number) < 0 || (!number.is_real && number.q != 1);
    if (wrap)
        fe_buffer_char(out, '(');
    str_number(number, 53, true, out);
    if (wrap)
        fe_buffer_char(out, ')');
}

/* What stands below the line for a power with a negative exponent. */
static void str_below(fe_expr factor, fe_number exponent, int level, fe_buffer *out)
{
    fe_number minus = {.p = -1, .q = 1}, positive;

    if (!exponent.is_real && exponent.p == -1 && exponent.q == 1) {
        fe_expr base = factor->args[0];
        bool wrap = precedence(base) <= level || base->op == FE_EXPR_POW || base->op == FE_EXPR_MUL;
        str_within(base, wrap ? ATOM : level, out);
        return;
    }
    if (fe_number_mul(exponent, minus, &positive))
        str_power(factor->args[0], NULL, positive, true, out);
}

static void str_product(fe_expr e, fe_buffer *out)
{
    const fe_expr *factors;
    fe_number number, exponent;
    uint32_t count = fe_expr_split_product(e, &number, &factors), above = 0, below = 0;
    int level = precedence(e);
    unsigned bits = e->order[0]->op == FE_EXPR_FLOAT ? e->order[0]->as.real.precision : 53;

    if (fe_number_sign(number) < 0) {
        fe_buffer_char(out, '-');
        if (number.is_real)
            number.real = -number.real;
        else
            number.p = number.p == INT64_MIN ? INT64_MAX : -number.p; /* fe_expr_call kept INT64_MIN out */
    }
    if (number.is_real || number.p != 1) {
        str_number((fe_number){number.is_real, number.p, 1, number.real}, bits, true, out);
        above++;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (goes_below(factors[i], &exponent)) {
            below++;
            continue;
        }
        if (above++)
            fe_buffer_char(out, '*');
        str_within(factors[i], level, out);
    }
    if (!above)
        fe_buffer_char(out, '1');
    bool ratio = !number.is_real && number.q != 1;
    below += ratio;
    if (!below)
        return;
    fe_buffer_text(out, below > 1 ? "/(" : "/");
    if (ratio)
        fe_buffer_int(out, number.q);
    bool first = !ratio;
    for (uint32_t i = 0; i < count; i++) {
        if (!goes_below(factors[i], &exponent))
            continue;
        if (!first)
            fe_buffer_char(out, '*');
        first = false;
        str_below(factors[i], exponent, level, out);
    }
    if (below > 1)
        fe_buffer_char(out, ')');
}

static void str_call(fe_expr e, const char *name, fe_buffer *out)
{
    fe_buffer_text(out, name);
    fe_buffer_char(out, '(');
    str_list(e->order, e->count, ", ", 0, out);
    fe_buffer_char(out, ')');
}

static void str_operator(fe_expr e, const char *text, int level, fe_buffer *out)
{
    str_list(e->args, e->count, text, level, out);
}

static void str(fe_expr e, bool nested, fe_buffer *out)
{
    fe_number number = {.q = 1};

    switch (e->op) {
    case FE_EXPR_SYMBOL:
        fe_buffer_add(out, e->as.symbol.name, e->as.symbol.len);
        return;
    case FE_EXPR_INTEGER:
    case FE_EXPR_RATIONAL:
        (void)fe_expr_number(e, &number);
        str_number(number, 53, nested, out);
        return;
    case FE_EXPR_FLOAT:
        str_real(e->as.real.value, e->as.real.precision, nested, out);
        return;
    case FE_EXPR_BOOL:
        fe_buffer_text(out, e->as.integer ? "True" : "False");
        return;
    case FE_EXPR_OO:
    case FE_EXPR_INT_OO:
        add_constant(e, out);
        return;
    case FE_EXPR_ADD:
        str_sum(e, out);
        return;
    case FE_EXPR_MUL:
        str_product(e, out);
        return;
    case FE_EXPR_POW: {
        bool is_number = fe_expr_number(e->args[1], &number);
        str_power(e->args[0], e->args[1], number, is_number, out);
        return;
    }
    case FE_EXPR_FLOOR_DIV:
    case FE_EXPR_CLEAN_DIV:
        fe_buffer_char(out, '(');
        str_operator(e, "//", ATOM - 1, out);
        fe_buffer_char(out, ')');
        return;
    case FE_EXPR_IDENTITY:
        fe_buffer_char(out, '(');
        str(e->args[0], true, out);
        fe_buffer_char(out, ')');
        return;
    case FE_EXPR_COND_PAIR:
        fe_buffer_char(out, '(');
        str_list(e->args, e->count, ", ", 0, out);
        fe_buffer_char(out, ')');
        return;
    case FE_EXPR_GE:
        str_operator(e, " >= ", RELATION, out);
        return;
    case FE_EXPR_LE:
        str_operator(e, " <= ", RELATION, out);
        return;
    case FE_EXPR_GT:
        str_operator(e, " > ", RELATION, out);
        return;
    case FE_EXPR_LT:
        str_operator(e, " < ", RELATION, out);
        return;
    case FE_EXPR_EQ:
        str_call(e, "Eq", out);
        return;
    case FE_EXPR_NE:
        str_call(e, "Ne", out);
        return;
    case FE_EXPR_AND:
        str_operator(e, " & ", AND_OPERAND, out);
        return;
    case FE_EXPR_OR:
        str_operator(e, " | ", OR_OPERAND, out);
        return;
    case FE_EXPR_NOT:
        fe_buffer_char(out, '~');
        str_within(e->args[0], NOT, out);
        return;
    default:
        str_call(e, fe_expr_functions[e->op].name, out);
        return;
    }
}

void fe_expr_str(fe_expr e, fe_buffer *out)
{
    str(e, false, out);
}
