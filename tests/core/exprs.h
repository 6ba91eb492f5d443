/* exprs.h - what the tests of expressions share: symbols, a pool, texts read and written. */
#ifndef EXPRS_H
#define EXPRS_H

#include "check.h"
#include "expr.h"

#define S0 "Symbol('s0', positive=True, integer=True)"
#define S1 "Symbol('s1', positive=True, integer=True)"

static inline fe_exprs *pool_new(void)
{
    fe_exprs *pool = fe_exprs_new(&fe_libc_allocator);

    CHECK(pool);
    return pool;
}

static inline fe_expr must_parse(fe_exprs *pool, const char *text, bool srepr)
{
    fe_expr_error err;
    fe_expr e = srepr ? fe_expr_parse_srepr(pool, text, strlen(text), 200, &err)
                      : fe_expr_parse_str(pool, text, strlen(text), 200, &err);

    if (!e)
        printf("%s: at %zu: %s\n", text, err.at, err.message);
    CHECK(e);
    return e;
}

static inline const char *written(void (*write)(fe_expr, fe_buffer *), fe_expr e)
{
    static char text[4000];
    fe_buffer b;

    fe_buffer_init(&b, &fe_libc_allocator);
    write(e, &b);
    CHECK(!b.failed && b.len < sizeof text);
    memcpy(text, b.data, b.len);
    text[b.len] = '\0';
    fe_buffer_clear(&b);
    return text;
}

#endif
