/* expr_parse.c - grammars of the two texts of symbolic expressions; see expr.h.
 *
 *     srepr:  call = NAME "(" [argument {"," argument}] ")" | oo | -oo | int_oo | -int_oo | true | false
 *             Symbol('NAME', ASSUMPTION=True|False ...)  Integer(I)  Rational(I, I)  Float('F', precision=I)
 *     str:    what Python's operators mean: comparison, | & + - * / // % ** ~, brackets, calls, numbers, names
 *
 * Recursion is counted against the depth that the caller allows. Arguments wait on one stack, so that a call of many
 * costs no more than their number.
 */
#include "expr_impl.h"

#include <math.h>
#include <stdlib.h>

#define WORK_PER_BYTE 3 /* see fe_exprs_allow */
#define LEAST_WORK 20000
#define MAX_DIGITS 400 /* of a float's text; more is a mistake or an attack */

typedef struct {
    fe_exprs *pool;
    const char *text;
    size_t len, at;
    uint32_t depth; /* still allowed */
    const fe_allocator *allocator;
    fe_expr *stack;
    uint32_t count, capacity;
    fe_expr_error *err;
} parser;

/* ---- characters and words ---- */

static char look(const parser *p)
{
    return p->at < p->len ? p->text[p->at] : '\0';
}

static void skip_blanks(parser *p)
{
    while (look(p) == ' ')
        p->at++;
}

static bool accept(parser *p, const char *word)
{
    size_t len = strlen(word);

    skip_blanks(p);
    if (len > p->len - p->at || memcmp(p->text + p->at, word, len) != 0)
        return false;
    p->at += len;
    return true;
}

static fe_expr syntax(parser *p, const char *expected)
{
    return fe_expr_fail(p->err, FE_EXPR_SYNTAX, p->at, "expected %s", expected);
}

static bool expect(parser *p, const char *word)
{
    if (accept(p, word))
        return true;
    fe_expr_fail(p->err, FE_EXPR_SYNTAX, p->at, strcmp(word, "'") == 0 ? "expected a quote" : "expected '%s'", word);
    return false;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* An ASCII identifier; len 0: none stands here. */
static const char *word(parser *p, size_t *len)
{
    skip_blanks(p);
    const char *start = p->text + p->at;
    size_t begin = p->at;

    if (is_letter(look(p))) {
        while (is_letter(look(p)) || is_digit(look(p)))
            p->at++;
    }
    *len = p->at - begin;
    return start;
}

static bool is_word(const char *name, size_t len, const char *word_)
{
    return strlen(word_) == len && memcmp(name, word_, len) == 0;
}

/* A decimal integer, with a minus before it if `negative` allows one. */
static bool integer(parser *p, bool negative, int64_t *out)
{
    bool minus = negative && accept(p, "-");
    int64_t value = 0;

    skip_blanks(p);
    size_t start = p->at;
    *out = 0;
    for (; is_digit(look(p)); p->at++) {
        int digit = look(p) - '0';
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, minus ? -digit : digit, &value)) {
            fe_expr_fail(p->err, FE_EXPR_RANGE, start, "an integer beyond 64 bits");
            return false;
        }
    }
    *out = value;
    if (p->at > start && !(p->text[start] == '0' && p->at > start + 1))
        return true;
    p->at = start;
    syntax(p, "a decimal integer");
    return false;
}

static bool enter(parser *p)
{
    if (p->depth) {
        p->depth--;
        return true;
    }
    fe_expr_fail(p->err, FE_EXPR_DEPTH, p->at, "nested too deep");
    return false;
}

static void leave(parser *p)
{
    p->depth++;
}

static bool push(parser *p, fe_expr e)
{
    fe_error err;

    if (!e)
        return false;
    if (fe_grow(p->allocator, &p->stack, &p->capacity, (size_t)p->count + 1, sizeof *p->stack, &err) < 0) {
        fe_expr_fail(p->err, err.code == FE_NO_MEMORY ? FE_EXPR_NO_MEMORY : FE_EXPR_RANGE, p->at, "%.100s",
                     err.message);
        return false;
    }
    p->stack[p->count++] = e;
    return true;
}

/* An error of what was built stands where its text begins. */
static fe_expr placed(parser *p, fe_expr e, size_t at)
{
    if (!e)
        p->err->at = at;
    return e;
}

/* ---- srepr ---- */

static fe_expr srepr(parser *p);

/* 'NAME', ASSUMPTION=True, ...) */
static fe_expr srepr_symbol(parser *p)
{
    uint8_t assumptions[FE_EXPR_MAX_ASSUMPTIONS], count = 0, index;
    size_t len, key_len, start;

    if (!expect(p, "'"))
        return NULL;
    start = p->at;
    const char *name = word(p, &len);
    if (!len || p->text + start != name)
        return syntax(p, "an identifier");
    if (look(p) != '\'') /* at once: no blanks here */
        return syntax(p, "a closing quote");
    p->at++;
    while (accept(p, ",")) {
        const char *key = word(p, &key_len);
        if (!fe_expr_find_assumption(key, key_len, &index))
            return syntax(p, "a known assumption of a symbol");
        if (count == FE_EXPR_MAX_ASSUMPTIONS)
            return syntax(p, "fewer assumptions");
        for (unsigned i = 0; i < count; i++) {
            if (assumptions[i] / 2 == index)
                return syntax(p, "each assumption once");
        }
        if (!expect(p, "="))
            return NULL;
        bool yes = accept(p, "True");
        if (!yes && !accept(p, "False"))
            return syntax(p, "True or False");
        assumptions[count++] = (uint8_t)(2 * index + yes);
    }
    return expect(p, ")") ? fe_expr_symbol(p->pool, name, len, assumptions, count, p->err) : NULL;
}

static fe_expr srepr_rational(parser *p)
{
    int64_t top, bottom;

    if (!integer(p, true, &top) || !expect(p, ",") || !integer(p, false, &bottom) || !expect(p, ")"))
        return NULL;
    if (!bottom)
        return fe_expr_fail(p->err, FE_EXPR_DIVISION, p->at, "a ratio with the denominator 0");
    return fe_expr_ratio(p->pool, top, bottom, p->err);
}

/* [-] digits [. digits] [e [sign] digits], as a double. The text ends at `end`, which strtod must agree with. */
static bool real(parser *p, size_t end, double *out)
{
    char copy[MAX_DIGITS + 1], *rest;
    size_t at = p->at, digits = 0, len = end - p->at;

    if (len > MAX_DIGITS)
        goto bad;
    at += at < end && p->text[at] == '-';
    for (; at < end && is_digit(p->text[at]); at++)
        digits++;
    if (at < end && p->text[at] == '.') {
        for (at++; at < end && is_digit(p->text[at]); at++)
            digits++;
    }
    if (at < end && (p->text[at] == 'e' || p->text[at] == 'E')) {
        at++;
        at += at < end && (p->text[at] == '-' || p->text[at] == '+');
        if (at == end)
            goto bad;
        while (at < end && is_digit(p->text[at]))
            at++;
    }
    if (!digits || at != end)
        goto bad;
    memcpy(copy, p->text + p->at, len);
    copy[len] = '\0';
    *out = strtod(copy, &rest);
    if (*rest == '\0' && isfinite(*out))
        return true;
bad:
    syntax(p, "a finite number");
    return false;
}

static fe_expr srepr_float(parser *p)
{
    int64_t precision;
    double value;

    if (!expect(p, "'"))
        return NULL;
    const char *text = p->text + p->at, *quote = memchr(text, '\'', p->len - p->at);
    if (!quote)
        return syntax(p, "a closing quote");
    size_t len = (size_t)(quote - text);
    if (!real(p, p->at + len, &value))
        return NULL;
    p->at += len + 1;
    if (!expect(p, ",") || !expect(p, "precision") || !expect(p, "=") || !integer(p, false, &precision))
        return NULL;
    if (precision < 1 || precision > 1024)
        return syntax(p, "a precision from 1 to 1024");
    return expect(p, ")") ? fe_expr_real(p->pool, value, text, len, (unsigned)precision, p->err) : NULL;
}

static fe_expr srepr_args(parser *p, fe_expr_op op, size_t start)
{
    uint32_t base = p->count;

    if (!accept(p, ")")) {
        do {
            if (!push(p, srepr(p)))
                return NULL;
        } while (accept(p, ","));
        if (!expect(p, ")"))
            return NULL;
    }
    fe_expr e = fe_expr_call(p->pool, op, p->stack ? p->stack + base : NULL, p->count - base, p->err);
    p->count = base;
    return placed(p, e, start);
}

static fe_expr unknown_function(parser *p, const char *name, size_t len, size_t start)
{
    return fe_expr_fail(p->err, FE_EXPR_FUNCTION, start, "unknown function %.*s", (int)(len < 100 ? len : 100), name);
}

static fe_expr srepr_call(parser *p, const char *name, size_t len, size_t start)
{
    fe_expr_op op;
    int64_t value;

    if (is_word(name, len, "Symbol"))
        return srepr_symbol(p);
    if (is_word(name, len, "Integer"))
        return integer(p, true, &value) && expect(p, ")") ? fe_expr_integer(p->pool, value, p->err) : NULL;
    if (is_word(name, len, "Rational"))
        return srepr_rational(p);
    if (is_word(name, len, "Float"))
        return srepr_float(p);
    if (!fe_expr_find_function(name, len, &op))
        return unknown_function(p, name, len, start);
    return srepr_args(p, op, start);
}

static fe_expr constant(parser *p, const char *name, size_t len, bool minus)
{
    int64_t sign = minus ? -1 : 1;

    if (is_word(name, len, "oo"))
        return fe_expr_constant(p->pool, FE_EXPR_OO, sign, p->err);
    if (is_word(name, len, "int_oo"))
        return fe_expr_constant(p->pool, FE_EXPR_INT_OO, sign, p->err);
    if (!minus && (is_word(name, len, "true") || is_word(name, len, "True")))
        return fe_expr_constant(p->pool, FE_EXPR_BOOL, 1, p->err);
    if (!minus && (is_word(name, len, "false") || is_word(name, len, "False")))
        return fe_expr_constant(p->pool, FE_EXPR_BOOL, 0, p->err);
    p->err->fault = FE_EXPR_OK;
    return NULL;
}

static fe_expr srepr(parser *p)
{
    size_t len, start;
    fe_expr e;

    if (!enter(p))
        return NULL;
    bool minus = accept(p, "-");
    skip_blanks(p);
    start = p->at;
    const char *name = word(p, &len);
    if (!minus && len && accept(p, "(")) {
        e = srepr_call(p, name, len, start);
    } else {
        e = constant(p, name, len, minus);
        if (!e && p->err->fault == FE_EXPR_OK) {
            p->at = start;
            syntax(p, "a function and its arguments");
        }
    }
    leave(p);
    return e;
}

/* ---- str ---- */

static fe_expr comparison(parser *p);
static fe_expr unary(parser *p);

/* Name of a function in str, where it is another one than in srepr. */
static bool str_function(const char *name, size_t len, fe_expr_op *op)
{
    if (is_word(name, len, "Eq") || is_word(name, len, "Ne")) {
        *op = name[0] == 'E' ? FE_EXPR_EQ : FE_EXPR_NE;
        return true;
    }
    /* What str writes with operators is no call there. */
    return fe_expr_find_function(name, len, op) && *op != FE_EXPR_ADD && *op != FE_EXPR_MUL && *op != FE_EXPR_POW;
}

static fe_expr square_root(parser *p)
{
    fe_expr args[2] = {comparison(p), NULL};

    if (!args[0] || !expect(p, ")"))
        return NULL;
    args[1] = fe_expr_ratio(p->pool, 1, 2, p->err);
    return args[1] ? fe_expr_call(p->pool, FE_EXPR_POW, args, 2, p->err) : NULL;
}

static fe_expr str_call(parser *p, const char *name, size_t len, size_t start)
{
    uint32_t base = p->count;
    fe_expr_op op;

    if (is_word(name, len, "sqrt"))
        return placed(p, square_root(p), start);
    if (!str_function(name, len, &op))
        return unknown_function(p, name, len, start);
    do {
        if (!push(p, comparison(p)))
            return NULL;
    } while (accept(p, ","));
    if (!expect(p, ")"))
        return NULL;
    fe_expr e = fe_expr_call(p->pool, op, p->stack + base, p->count - base, p->err);
    p->count = base;
    return placed(p, e, start);
}

static fe_expr str_name(parser *p, const char *name, size_t len)
{
    fe_expr e = constant(p, name, len, false);

    if (e || p->err->fault != FE_EXPR_OK)
        return e;
    e = fe_expr_find_symbol(p->pool, name, len);
    return e ? e : fe_expr_symbol(p->pool, name, len, NULL, 0, p->err);
}

static fe_expr str_number(parser *p)
{
    size_t end = p->at;
    int64_t whole;
    double value;

    while (end < p->len && is_digit(p->text[end]))
        end++;
    if (end == p->len || (p->text[end] != '.' && p->text[end] != 'e'))
        return integer(p, false, &whole) ? fe_expr_integer(p->pool, whole, p->err) : NULL;
    while (end < p->len && (is_digit(p->text[end]) || p->text[end] == '.' || p->text[end] == 'e' ||
                            ((p->text[end] == '-' || p->text[end] == '+') && p->text[end - 1] == 'e')))
        end++;
    if (!real(p, end, &value))
        return NULL;
    p->at = end;
    return fe_expr_number_node(p->pool, (fe_number){.is_real = true, .real = value}, p->err);
}

static fe_expr atom(parser *p)
{
    size_t len, start;

    if (accept(p, "(")) {
        fe_expr e = comparison(p);
        return e && expect(p, ")") ? e : NULL;
    }
    skip_blanks(p);
    start = p->at;
    if (is_digit(look(p)))
        return str_number(p);
    const char *name = word(p, &len);
    if (!len)
        return syntax(p, "a number, a name or '('");
    return accept(p, "(") ? str_call(p, name, len, start) : str_name(p, name, len);
}

static fe_expr power(parser *p)
{
    fe_expr args[2] = {atom(p), NULL};
    size_t start = p->at;

    if (!args[0] || !accept(p, "**"))
        return args[0];
    args[1] = unary(p);
    if (!args[1])
        return NULL;
    fe_expr e = args[1]->op == FE_EXPR_INTEGER ? fe_expr_power(p->pool, args[0], args[1]->as.integer, p->err)
                                               : fe_expr_call(p->pool, FE_EXPR_POW, args, 2, p->err);
    return placed(p, e, start);
}

static fe_expr negated(parser *p, fe_expr e)
{
    fe_expr args[2] = {NULL, e};

    if (!e)
        return NULL;
    if (e->op == FE_EXPR_OO || e->op == FE_EXPR_INT_OO)
        return fe_expr_constant(p->pool, (fe_expr_op)e->op, -e->as.integer, p->err);
    args[0] = fe_expr_integer(p->pool, -1, p->err);
    return args[0] ? fe_expr_product(p->pool, args, 2, p->err) : NULL;
}

static fe_expr unary(parser *p)
{
    size_t start = p->at;
    fe_expr e;

    if (!enter(p))
        return NULL;
    if (accept(p, "-")) {
        e = negated(p, unary(p));
    } else if (accept(p, "~")) {
        e = unary(p);
        e = e ? placed(p, fe_expr_call(p->pool, FE_EXPR_NOT, &e, 1, p->err), start) : NULL;
    } else {
        e = power(p);
    }
    leave(p);
    return e;
}

/* Put what waits on the stack above base together, and leave it there alone. */
static bool fold(parser *p, uint32_t base, fe_expr (*build)(fe_exprs *, const fe_expr *, uint32_t, fe_expr_error *),
                 size_t start)
{
    if (p->count - base > 1) {
        fe_expr e = placed(p, build(p->pool, p->stack + base, p->count - base, p->err), start);
        if (!e)
            return false;
        p->stack[base] = e;
        p->count = base + 1;
    }
    return true;
}

static bool division(parser *p, uint32_t base, fe_expr_op op, size_t start)
{
    if (!fold(p, base, fe_expr_product, start) || !push(p, unary(p)))
        return false;
    fe_expr e = placed(p, fe_expr_call(p->pool, op, p->stack + base, 2, p->err), start);
    if (!e)
        return false;
    p->stack[base] = e;
    p->count = base + 1;
    return true;
}

static fe_expr inverse(parser *p, fe_expr e)
{
    return e ? fe_expr_power(p->pool, e, -1, p->err) : NULL;
}

static fe_expr product(parser *p)
{
    uint32_t base = p->count;
    size_t start = p->at;

    if (!push(p, unary(p)))
        return NULL;
    for (;;) {
        bool done = false, right;
        if (accept(p, "//"))
            right = division(p, base, FE_EXPR_FLOOR_DIV, start);
        else if (accept(p, "%"))
            right = division(p, base, FE_EXPR_MOD, start);
        else if (accept(p, "/"))
            right = push(p, inverse(p, unary(p)));
        else if (accept(p, "*"))
            right = push(p, unary(p));
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

static fe_expr sum(parser *p)
{
    uint32_t base = p->count;
    size_t start = p->at;

    if (!push(p, product(p)))
        return NULL;
    for (;;) {
        if (accept(p, "+")) {
            if (!push(p, product(p)))
                return NULL;
        } else if (accept(p, "-")) {
            if (!push(p, negated(p, product(p))))
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
static fe_expr joined(parser *p, const char *sign, fe_expr_op op, fe_expr (*operand)(parser *))
{
    uint32_t base = p->count;
    size_t start = p->at;
    fe_expr e;

    do {
        if (!push(p, operand(p)))
            return NULL;
    } while (accept(p, sign));
    e = p->stack[base];
    if (p->count - base > 1)
        e = placed(p, fe_expr_call(p->pool, op, p->stack + base, p->count - base, p->err), start);
    p->count = base;
    return e;
}

static fe_expr conjunction(parser *p)
{
    return joined(p, "&", FE_EXPR_AND, sum);
}

static fe_expr comparison(parser *p)
{
    static const struct {
        const char *sign;
        fe_expr_op op;
    } relations[] = {{">=", FE_EXPR_GE}, {"<=", FE_EXPR_LE}, {">", FE_EXPR_GT},
                     {"<", FE_EXPR_LT},  {"==", FE_EXPR_EQ}, {"!=", FE_EXPR_NE}};
    size_t start = p->at;
    fe_expr args[2];

    if (!enter(p))
        return NULL;
    fe_expr e = joined(p, "|", FE_EXPR_OR, conjunction);
    for (size_t i = 0; e && i < sizeof relations / sizeof *relations; i++) {
        if (!accept(p, relations[i].sign))
            continue;
        args[0] = e;
        args[1] = joined(p, "|", FE_EXPR_OR, conjunction);
        e = args[1] ? placed(p, fe_expr_call(p->pool, relations[i].op, args, 2, p->err), start) : NULL;
        break;
    }
    leave(p);
    return e;
}

/* ---- whole texts ---- */

static fe_expr parse(fe_exprs *pool, const char *text, size_t len, uint32_t depth, fe_expr (*rule)(parser *),
                     fe_expr_error *err)
{
    parser p = {.pool = pool,
                .text = text,
                .len = len,
                .depth = depth < FE_EXPR_MAX_DEPTH ? depth : FE_EXPR_MAX_DEPTH,
                .allocator = fe_exprs_allocator(pool),
                .err = err};

    *err = (fe_expr_error){.fault = FE_EXPR_OK};
    fe_exprs_allow(pool, WORK_PER_BYTE * (uint64_t)len + LEAST_WORK);
    fe_expr e = rule(&p);
    fe_exprs_allow(pool, UINT64_MAX);
    skip_blanks(&p);
    if (e && p.at < p.len)
        e = syntax(&p, "the end of the expression");
    fe_resize(p.allocator, p.stack, 0);
    return e;
}

fe_expr fe_expr_parse_srepr(fe_exprs *pool, const char *text, size_t len, uint32_t depth, fe_expr_error *err)
{
    return parse(pool, text, len, depth, srepr, err);
}

fe_expr fe_expr_parse_str(fe_exprs *pool, const char *text, size_t len, uint32_t depth, fe_expr_error *err)
{
    return parse(pool, text, len, depth, comparison, err);
}
