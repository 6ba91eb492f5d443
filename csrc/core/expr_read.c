/* expr_read.c - what the two grammars of symbolic expressions share: words, numbers, limits; see expr_read.h. */
#include "expr_read.h"

#include <math.h>
#include <stdlib.h>

#define WORK_PER_BYTE 3 /* see fe_exprs_allow */
#define LEAST_WORK 20000
#define MAX_DIGITS 400 /* of a float's text; more is a mistake or an attack */

char fe_read_look(const fe_reader *p)
{
    return p->at < p->len ? p->text[p->at] : '\0';
}

void fe_read_skip_blanks(fe_reader *p)
{
    while (fe_read_look(p) == ' ')
        p->at++;
}

bool fe_read_accept(fe_reader *p, const char *word)
{
    size_t len = strlen(word);

    fe_read_skip_blanks(p);
    if (len > p->len - p->at || memcmp(p->text + p->at, word, len) != 0)
        return false;
    p->at += len;
    return true;
}

fe_expr fe_read_syntax(fe_reader *p, const char *expected)
{
    return fe_expr_fail(p->err, FE_EXPR_SYNTAX, p->at, "expected %s", expected);
}

bool fe_read_expect(fe_reader *p, const char *word)
{
    if (fe_read_accept(p, word))
        return true;
    fe_expr_fail(p->err, FE_EXPR_SYNTAX, p->at, strcmp(word, "'") == 0 ? "expected a quote" : "expected '%s'", word);
    return false;
}

bool fe_read_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* An ASCII identifier; len 0: none stands here. */
const char *fe_read_word(fe_reader *p, size_t *len)
{
    fe_read_skip_blanks(p);
    const char *start = p->text + p->at;
    size_t begin = p->at;

    if (is_letter(fe_read_look(p))) {
        while (is_letter(fe_read_look(p)) || fe_read_is_digit(fe_read_look(p)))
            p->at++;
    }
    *len = p->at - begin;
    return start;
}

bool fe_read_same(const char *name, size_t len, const char *wanted)
{
    return strlen(wanted) == len && memcmp(name, wanted, len) == 0;
}

/* A decimal integer, with a minus before it if `negative` allows one. */
bool fe_read_integer(fe_reader *p, bool negative, int64_t *out)
{
    bool minus = negative && fe_read_accept(p, "-");
    int64_t value = 0;

    fe_read_skip_blanks(p);
    size_t start = p->at;
    *out = 0;
    for (; fe_read_is_digit(fe_read_look(p)); p->at++) {
        int digit = fe_read_look(p) - '0';
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
    fe_read_syntax(p, "a decimal integer");
    return false;
}

bool fe_read_enter(fe_reader *p)
{
    if (p->depth) {
        p->depth--;
        return true;
    }
    fe_expr_fail(p->err, FE_EXPR_DEPTH, p->at, "nested too deep");
    return false;
}

void fe_read_leave(fe_reader *p)
{
    p->depth++;
}

bool fe_read_push(fe_reader *p, fe_expr e)
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
fe_expr fe_read_placed(fe_reader *p, fe_expr e, size_t at)
{
    if (!e)
        p->err->at = at;
    return e;
}

/* [-] digits [. digits] [e [sign] digits], as a double. The text ends at `end`, which fe_strtod must agree with. */
bool fe_read_real(fe_reader *p, size_t end, double *out)
{
    char copy[MAX_DIGITS + 1], *rest;
    size_t at = p->at, digits = 0, len = end - p->at;

    if (len > MAX_DIGITS)
        goto bad;
    at += at < end && p->text[at] == '-';
    for (; at < end && fe_read_is_digit(p->text[at]); at++)
        digits++;
    if (at < end && p->text[at] == '.') {
        for (at++; at < end && fe_read_is_digit(p->text[at]); at++)
            digits++;
    }
    if (at < end && (p->text[at] == 'e' || p->text[at] == 'E')) {
        at++;
        at += at < end && (p->text[at] == '-' || p->text[at] == '+');
        if (at == end)
            goto bad;
        while (at < end && fe_read_is_digit(p->text[at]))
            at++;
    }
    if (!digits || at != end)
        goto bad;
    memcpy(copy, p->text + p->at, len);
    copy[len] = '\0';
    *out = fe_strtod(copy, &rest);
    if (*rest == '\0' && isfinite(*out))
        return true;
bad:
    fe_read_syntax(p, "a finite number");
    return false;
}

fe_expr fe_read_unknown(fe_reader *p, const char *name, size_t len, size_t start)
{
    return fe_expr_fail(p->err, FE_EXPR_FUNCTION, start, "unknown function %.*s", (int)(len < 100 ? len : 100), name);
}

fe_expr fe_read_constant(fe_reader *p, const char *name, size_t len, bool minus)
{
    int64_t sign = minus ? -1 : 1;

    if (fe_read_same(name, len, "oo"))
        return fe_expr_constant(p->pool, FE_EXPR_OO, sign, p->err);
    if (fe_read_same(name, len, "int_oo"))
        return fe_expr_constant(p->pool, FE_EXPR_INT_OO, sign, p->err);
    if (!minus && (fe_read_same(name, len, "true") || fe_read_same(name, len, "True")))
        return fe_expr_constant(p->pool, FE_EXPR_BOOL, 1, p->err);
    if (!minus && (fe_read_same(name, len, "false") || fe_read_same(name, len, "False")))
        return fe_expr_constant(p->pool, FE_EXPR_BOOL, 0, p->err);
    p->err->fault = FE_EXPR_OK;
    return NULL;
}

fe_expr fe_read_all(fe_exprs *pool, const char *text, size_t len, uint32_t depth, fe_expr (*rule)(fe_reader *),
                    fe_expr_error *err)
{
    fe_reader p = {.pool = pool,
                   .text = text,
                   .len = len,
                   .depth = depth < FE_EXPR_MAX_DEPTH ? depth : FE_EXPR_MAX_DEPTH,
                   .allocator = fe_exprs_allocator(pool),
                   .err = err};

    *err = (fe_expr_error){.fault = FE_EXPR_OK};
    fe_exprs_allow(pool, WORK_PER_BYTE * (uint64_t)len + LEAST_WORK);
    fe_expr e = rule(&p);
    fe_exprs_allow(pool, UINT64_MAX);
    fe_read_skip_blanks(&p);
    if (e && p.at < p.len)
        e = fe_read_syntax(&p, "the end of the expression");
    if (e && fe_expr_kind_of(e) == FE_EXPR_CASE)
        e = fe_expr_fail(err, FE_EXPR_MEANING, 0, "a case of a Piecewise by itself");
    fe_resize(p.allocator, p.stack, 0);
    return e;
}
