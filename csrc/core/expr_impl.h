/* expr_impl.h - what the files of symbolic expressions share with each other, and with nobody else. */
#ifndef FE_EXPR_IMPL_H
#define FE_EXPR_IMPL_H

#include "expr.h"

/* A finite number: p / q in lowest terms with q > 0, or a double. */
typedef struct {
    bool is_real;
    int64_t p, q;
    double real;
} fe_number;

typedef struct {
    const char *name;
    uint8_t least, most; /* arguments; most 0: any number */
    uint8_t order;       /* of sympy's classes */
    uint8_t kind;        /* fe_expr_kind */
    uint16_t precedence;
} fe_expr_function;

extern const fe_expr_function fe_expr_functions[FE_EXPR_OP_COUNT]; /* names are NULL below FE_EXPR_ADD */

#define FE_EXPR_MAX_EXPONENT 64 /* of a literal exponent: 2**64 is too large already */
#define FE_EXPR_MAX_SHIFT 62    /* of a literal shift */

/* ---- expr.c ---- */

/* Fill err and return NULL. */
fe_expr fe_expr_fail(fe_expr_error *err, fe_expr_fault fault, size_t at, const char *format, ...) FE_PRINTF(4, 5);
bool fe_expr_find_assumption(const char *name, size_t len, uint8_t *index);
fe_expr fe_expr_number_node(fe_exprs *pool, fe_number n, fe_expr_error *err);
fe_expr fe_expr_ratio(fe_exprs *pool, int64_t p, int64_t q, fe_expr_error *err); /* q != 0 */
/* text: as the file writes the number; value must be what it means, and finite. */
fe_expr fe_expr_real(fe_exprs *pool, double value, const char *text, size_t len, unsigned precision,
                     fe_expr_error *err);
fe_expr fe_expr_constant(fe_exprs *pool, fe_expr_op op, int64_t value, fe_expr_error *err); /* OO, INT_OO, BOOL */
/* Putting sums and products together may cost this much more, in parts looked at; UINT64_MAX: no limit. A short text can
 * ask for much: 2*(2*(2*(a + b + ...))). */
void fe_exprs_allow(fe_exprs *pool, uint64_t work);
bool fe_exprs_spend(fe_exprs *pool, uint64_t work, fe_expr_error *err); /* false: it is used up, noted in err */
const fe_allocator *fe_exprs_allocator(const fe_exprs *pool);
/* Room for so many expressions, to be given back; NULL: none left, noted in err. */
fe_expr *fe_exprs_take(fe_exprs *pool, size_t count, fe_expr_error *err);
void fe_exprs_give(fe_exprs *pool, fe_expr *items, size_t count);

/* The pool's own copy of a leaf of any pool; a call likewise, its arguments being of this pool. Nothing is checked. */
fe_expr fe_expr_keep(fe_exprs *pool, fe_expr like, const fe_expr *args, fe_expr_error *err);

/* ---- expr_build.c ---- */

/* A term of a sum as number * factors; *factors may be `term` itself. */
void fe_expr_split_term(const fe_expr *term, fe_number *number, const fe_expr **factors, uint32_t *count);
/* number * factors, factors being those of a product in sympy's form. */
fe_expr fe_expr_scaled(fe_exprs *pool, fe_number number, const fe_expr *factors, uint32_t count, fe_expr_error *err);

/* ---- expr_facts.c ---- */

/* Which signs a value can have, as far as the assumptions of symbols tell: a set of these. */
enum { FE_SIGN_MINUS = 1, FE_SIGN_ZERO = 2, FE_SIGN_PLUS = 4, FE_SIGN_ANY = 7 };
unsigned fe_expr_signs(fe_expr e);
bool fe_expr_is_integer(fe_expr e); /* it is known to be one */
/* 0: even, 1: odd, -1: not known. */
int fe_expr_parity(fe_expr e);

/* ---- expr_divide.c: FloorDiv and the like, see fe_expr_make ---- */

fe_expr fe_expr_make_division(fe_exprs *pool, fe_expr_op op, const fe_expr *args, fe_expr_error *err);

/* ---- expr_logic.c: Max, Min, comparisons, And, Or, Not, Piecewise, see fe_expr_make ---- */

fe_expr fe_expr_make_extreme(fe_exprs *pool, fe_expr_op op, const fe_expr *args, uint32_t count, fe_expr_error *err);
fe_expr fe_expr_make_relation(fe_exprs *pool, fe_expr_op op, const fe_expr *args, fe_expr_error *err);
fe_expr fe_expr_make_joined(fe_exprs *pool, fe_expr_op op, const fe_expr *args, uint32_t count, fe_expr_error *err);
fe_expr fe_expr_make_not(fe_exprs *pool, fe_expr arg, fe_expr_error *err);
fe_expr fe_expr_make_cases(fe_exprs *pool, const fe_expr *args, uint32_t count, fe_expr_error *err);

/* ---- expr_text.c ---- */

/* A double as sympy's srepr writes a Float of 53 bits, without NUL; text has room for 64. Returns the length. */
size_t fe_expr_real_text(double value, char *text);

/* ---- expr_number.c ---- */

bool fe_expr_number(fe_expr e, fe_number *out); /* e is a finite number */
double fe_number_real(fe_number n);
int fe_number_sign(fe_number n);
int fe_number_compare(fe_number a, fe_number b);
/* p / q in lowest terms, q != 0. These three return false when the result does not fit. */
bool fe_number_ratio(int64_t p, int64_t q, fe_number *out);
bool fe_number_add(fe_number a, fe_number b, fe_number *out);
bool fe_number_mul(fe_number a, fe_number b, fe_number *out);
bool fe_number_power(fe_number base, int64_t exponent, fe_number *out); /* base 0 with exponent < 0: false */
/* The number before a product, and the factors behind it; returns how many. */
uint32_t fe_expr_split_product(fe_expr product, fe_number *coefficient, const fe_expr **factors);

/* ---- expr_order.c ---- */

/* Put arguments into the order in which sympy prints them; spare has room for count. */
void fe_expr_sort(fe_expr_op op, fe_expr *items, fe_expr *spare, uint32_t count);
/* Into that of sympy's ordered(): the smaller tree first, then by fe_expr_compare. */
void fe_expr_sort_by_size(fe_expr *items, fe_expr *spare, uint32_t count);

#endif
