/* expr_read.h - what the two grammars of symbolic expressions (expr_srepr.c, expr_infix.c) share.
 *
 * Recursion is counted against the depth that the caller allows. Arguments wait on one stack, so that a call of many
 * costs no more than their number.
 */
#ifndef FE_EXPR_READ_H
#define FE_EXPR_READ_H

#include "expr_impl.h"

typedef struct {
    fe_exprs *pool;
    const char *text;
    size_t len, at;
    uint32_t depth; /* still allowed */
    const fe_allocator *allocator;
    fe_expr *stack;
    uint32_t count, capacity;
    fe_expr_error *err;
} fe_reader;

/* The character that stands here; NUL: the end. */
char fe_read_look(const fe_reader *p);
void fe_read_skip_blanks(fe_reader *p);
/* Skip blanks, and the word if it stands here. */
bool fe_read_accept(fe_reader *p, const char *word);
/* Note what was expected here; always NULL. */
fe_expr fe_read_syntax(fe_reader *p, const char *expected);
/* The same as fe_read_accept, but it must be there. */
bool fe_read_expect(fe_reader *p, const char *word);
bool fe_read_is_digit(char c);
/* An ASCII identifier; *len 0: none stands here. */
const char *fe_read_word(fe_reader *p, size_t *len);
bool fe_read_same(const char *name, size_t len, const char *wanted);
/* A decimal integer, with a minus before it if `negative` allows one. */
bool fe_read_integer(fe_reader *p, bool negative, int64_t *out);
/* One level deeper; false: too deep. */
bool fe_read_enter(fe_reader *p);
void fe_read_leave(fe_reader *p);
/* Put an argument on the stack; false: e is NULL, or there is no room. */
bool fe_read_push(fe_reader *p, fe_expr e);
/* An error of what was built stands where its text begins. */
fe_expr fe_read_placed(fe_reader *p, fe_expr e, size_t at);
/* [-] digits [. digits] [e [sign] digits], from here to `end`. */
bool fe_read_real(fe_reader *p, size_t end, double *out);
/* Note a name that is no function; always NULL. */
fe_expr fe_read_unknown(fe_reader *p, const char *name, size_t len, size_t start);
/* oo, int_oo, true, false; NULL without a fault: none of them. */
fe_expr fe_read_constant(fe_reader *p, const char *name, size_t len, bool minus);
/* Read a whole text by a rule. */
fe_expr fe_read_all(fe_exprs *pool, const char *text, size_t len, uint32_t depth, fe_expr (*rule)(fe_reader *),
                    fe_expr_error *err);

#endif
