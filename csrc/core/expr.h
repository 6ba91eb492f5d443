/* expr.h - symbolic expressions: the sizes and strides of exported programs, and conditions over them.
 *
 * An expression is an immutable tree of a pool, which stores each distinct tree once: two expressions of one pool are the
 * same exactly when their addresses are, and shared parts are shared in memory. They live as long as the pool. A pool is
 * not locked: its owner lets one thread in at a time; expressions that exist may be read by any number of threads.
 *
 * Three texts are known:
 *     srepr   Add(Symbol('s17', positive=True, integer=True), Integer(1))     what files hold (sympy's srepr)
 *     str     s17 + 1                                                         keys of range constraints (sympy's str)
 * A tree read from srepr keeps the order of arguments that the text has, and is written as it was, byte for byte. A tree
 * read from str is in the form that sympy gives it on construction, as far as sums, products and integer powers go; one
 * that fe_expr_make or fe_expr_simplify makes, as far as all functions go. Texts are read by grammars; nothing is ever evaluated by a language.
 */
#ifndef FE_EXPR_H
#define FE_EXPR_H

#include "ir.h"

/* What a function gives: a number, a truth value, or one case of a Piecewise, which stands nowhere else. */
typedef enum { FE_EXPR_NUMBER, FE_EXPR_TRUTH, FE_EXPR_CASE } fe_expr_kind;

/* id, name, fewest and most arguments (0: any number), precedence in str (sympy/printing/precedence.py and the
 * `precedence` of torch.utils._sympy.functions), place in sympy's order of classes (class_key: 3 sums and the like, 4
 * functions, 5 anything else), kind.
 * Names are those of sympy 1.14 and torch 2.13. */
#define FE_EXPR_FUNCTIONS(X)                                                     \
    X(ADD, "Add", 1, 0, 40, 3, NUMBER)                                           \
    X(MUL, "Mul", 1, 0, 50, 3, NUMBER)                                           \
    X(POW, "Pow", 2, 2, 60, 3, NUMBER)                                           \
    X(MAX, "Max", 1, 0, 1000, 5, NUMBER)                                         \
    X(MIN, "Min", 1, 0, 1000, 5, NUMBER)                                         \
    X(MOD, "Mod", 2, 2, 35, 4, NUMBER)                                           \
    X(FLOOR_DIV, "FloorDiv", 2, 2, 35, 4, NUMBER)                                \
    X(MODULAR_INDEXING, "ModularIndexing", 3, 3, 35, 4, NUMBER)                  \
    X(WHERE, "Where", 3, 3, 35, 4, NUMBER)                                       \
    X(PYTHON_MOD, "PythonMod", 2, 2, 35, 4, NUMBER)                              \
    X(CLEAN_DIV, "CleanDiv", 2, 2, 35, 4, NUMBER)                                \
    X(CEIL_TO_INT, "CeilToInt", 1, 1, 70, 4, NUMBER)                             \
    X(FLOOR_TO_INT, "FloorToInt", 1, 1, 70, 4, NUMBER)                           \
    X(CEIL_DIV, "CeilDiv", 2, 2, 70, 4, NUMBER)                                  \
    X(LSHIFT, "LShift", 2, 2, 70, 4, NUMBER)                                     \
    X(RSHIFT, "RShift", 2, 2, 70, 4, NUMBER)                                     \
    X(POW_BY_NATURAL, "PowByNatural", 2, 2, 50, 4, NUMBER)                       \
    X(FLOAT_POW, "FloatPow", 2, 2, 60, 4, NUMBER)                                \
    X(FLOAT_TRUE_DIV, "FloatTrueDiv", 2, 2, 35, 4, NUMBER)                       \
    X(INT_TRUE_DIV, "IntTrueDiv", 2, 2, 35, 4, NUMBER)                           \
    X(NON_OVERLAPPING, "IsNonOverlappingAndDenseIndicator", 2, 0, 70, 4, NUMBER) \
    X(TRUNC_TO_FLOAT, "TruncToFloat", 1, 1, 70, 4, NUMBER)                       \
    X(TRUNC_TO_INT, "TruncToInt", 1, 1, 70, 4, NUMBER)                           \
    X(ROUND_TO_INT, "RoundToInt", 1, 1, 70, 4, NUMBER)                           \
    X(ROUND_DECIMAL, "RoundDecimal", 2, 2, 70, 4, NUMBER)                        \
    X(TO_FLOAT, "ToFloat", 1, 1, 70, 4, NUMBER)                                  \
    X(IDENTITY, "Identity", 1, 1, 10, 4, NUMBER)                                 \
    X(FLOOR, "floor", 1, 1, 70, 4, NUMBER)                                       \
    X(CEILING, "ceiling", 1, 1, 70, 4, NUMBER)                                   \
    X(ABS, "Abs", 1, 1, 70, 4, NUMBER)                                           \
    X(PIECEWISE, "Piecewise", 1, 0, 70, 4, NUMBER)                               \
    X(COND_PAIR, "ExprCondPair", 2, 2, 1000, 5, CASE)                            \
    X(SQRT, "OpaqueUnaryFn_sqrt", 1, 1, 70, 4, NUMBER)                           \
    X(COS, "OpaqueUnaryFn_cos", 1, 1, 70, 4, NUMBER)                             \
    X(COSH, "OpaqueUnaryFn_cosh", 1, 1, 70, 4, NUMBER)                           \
    X(SIN, "OpaqueUnaryFn_sin", 1, 1, 70, 4, NUMBER)                             \
    X(SINH, "OpaqueUnaryFn_sinh", 1, 1, 70, 4, NUMBER)                           \
    X(TAN, "OpaqueUnaryFn_tan", 1, 1, 70, 4, NUMBER)                             \
    X(TANH, "OpaqueUnaryFn_tanh", 1, 1, 70, 4, NUMBER)                           \
    X(ASIN, "OpaqueUnaryFn_asin", 1, 1, 70, 4, NUMBER)                           \
    X(ACOS, "OpaqueUnaryFn_acos", 1, 1, 70, 4, NUMBER)                           \
    X(ATAN, "OpaqueUnaryFn_atan", 1, 1, 70, 4, NUMBER)                           \
    X(EXP, "OpaqueUnaryFn_exp", 1, 1, 70, 4, NUMBER)                             \
    X(LOG, "OpaqueUnaryFn_log", 1, 1, 70, 4, NUMBER)                             \
    X(ASINH, "OpaqueUnaryFn_asinh", 1, 1, 70, 4, NUMBER)                         \
    X(LOG2, "OpaqueUnaryFn_log2", 1, 1, 70, 4, NUMBER)                           \
    X(BITWISE_AND, "BitwiseFn_bitwise_and", 2, 2, 38, 4, NUMBER)                 \
    X(BITWISE_OR, "BitwiseFn_bitwise_or", 2, 2, 36, 4, NUMBER)                   \
    X(BITWISE_XOR, "BitwiseFn_bitwise_xor", 2, 2, 37, 4, NUMBER)                 \
    X(GE, "GreaterThan", 2, 2, 35, 5, TRUTH)                                     \
    X(LE, "LessThan", 2, 2, 35, 5, TRUTH)                                        \
    X(GT, "StrictGreaterThan", 2, 2, 35, 5, TRUTH)                               \
    X(LT, "StrictLessThan", 2, 2, 35, 5, TRUTH)                                  \
    X(EQ, "Equality", 2, 2, 50, 5, TRUTH)                                        \
    X(NE, "Unequality", 2, 2, 50, 5, TRUTH)                                      \
    X(AND, "And", 1, 0, 30, 5, TRUTH)                                            \
    X(OR, "Or", 1, 0, 20, 5, TRUTH)                                              \
    X(NOT, "Not", 1, 1, 100, 5, TRUTH)

typedef enum {
    FE_EXPR_SYMBOL,
    FE_EXPR_INTEGER,
    FE_EXPR_RATIONAL, /* as.ratio; in lowest terms, not an integer */
    FE_EXPR_FLOAT,
    FE_EXPR_OO,     /* as.integer is 1 or -1: oo, -oo */
    FE_EXPR_INT_OO, /* likewise int_oo, torch's infinite integer */
    FE_EXPR_BOOL,   /* as.integer is 1 or 0: true, false */
#define X(id, name, least, most, precedence, order, kind) FE_EXPR_##id,
    FE_EXPR_FUNCTIONS(X)
#undef X
        FE_EXPR_OP_COUNT
} fe_expr_op;

#define FE_EXPR_MAX_ASSUMPTIONS 8
#define FE_EXPR_MAX_SIZE \
    (1u << 24)                 /* nodes of a tree, shared parts counted as often as they occur: all work is bounded */
#define FE_EXPR_MAX_DEPTH 1000 /* of any tree of a pool, so that recursion over trees stays within a small stack */

typedef struct fe_expr_node fe_expr_node;
typedef const fe_expr_node *fe_expr;

struct fe_expr_node {
    uint8_t op;
    uint16_t depth; /* 1: no arguments */
    uint32_t hash;
    uint32_t count;       /* arguments */
    uint32_t size;        /* nodes of the tree, a shared part counted as often as it occurs */
    const fe_expr *args;  /* in the order of the text */
    const fe_expr *order; /* the same in the order in which sympy prints them */
    union {
        int64_t integer;
        struct {
            int64_t p, q; /* q > 1 */
        } ratio;
        struct {
            double value;            /* finite */
            const char *text;        /* as written, NUL at the end */
            uint16_t len, precision; /* in bits */
        } real;
        struct {
            const char *name; /* an identifier, NUL at the end */
            uint32_t len;
            uint8_t count;                                /* assumptions, in the order of the text: */
            uint8_t assumptions[FE_EXPR_MAX_ASSUMPTIONS]; /* 2 * index of fe_expr_assumption() + (1: True) */
        } symbol;
    } as;
};

typedef struct fe_exprs fe_exprs;

fe_exprs *fe_exprs_new(const fe_allocator *a); /* NULL: out of memory */
void fe_exprs_free(fe_exprs *pool);            /* and all its expressions; NULL is allowed */
uint32_t fe_exprs_count(const fe_exprs *pool); /* of distinct trees */

/* ---- errors ---- */

typedef enum {
    FE_EXPR_OK,
    FE_EXPR_NO_MEMORY,
    FE_EXPR_SYNTAX,   /* not of the grammar */
    FE_EXPR_FUNCTION, /* a name that is no known function */
    FE_EXPR_DEPTH,    /* nested deeper than the limit */
    FE_EXPR_RANGE,    /* a number, or a result, that 64 bits don't hold */
    FE_EXPR_MEANING,  /* of the grammar, but never right, such as a sum of truth values */
    FE_EXPR_DIVISION, /* a division by zero */
    FE_EXPR_UNKNOWN,  /* evaluation: a symbol without a value */
} fe_expr_fault;

typedef struct {
    fe_expr_fault fault;
    size_t at; /* byte of the text; evaluation: 0 */
    char message[200];
} fe_expr_error;

/* ---- expr_srepr.c, expr_infix.c: reading ---- */

/* Read an expression. depth: of nested calls and brackets, at most FE_EXPR_MAX_DEPTH. NULL: failed. */
fe_expr fe_expr_parse_srepr(fe_exprs *pool, const char *text, size_t len, uint32_t depth, fe_expr_error *err);
/* Symbols of a str text are the pool's symbols of these names, with their assumptions; new ones have none. */
fe_expr fe_expr_parse_str(fe_exprs *pool, const char *text, size_t len, uint32_t depth, fe_expr_error *err);

/* ---- expr.c: building ---- */

fe_expr fe_expr_integer(fe_exprs *pool, int64_t value, fe_expr_error *err);
fe_expr fe_expr_float(fe_exprs *pool, double value,
                      fe_expr_error *err); /* finite; as sympy writes a Float of 53 bits */
fe_expr fe_expr_symbol(fe_exprs *pool, const char *name, size_t len, const uint8_t *assumptions, size_t count,
                       fe_expr_error *err);
fe_expr fe_expr_find_symbol(const fe_exprs *pool, const char *name, size_t len); /* one of that name, or NULL */
/* A call, its arguments as they are given. Checks number and kind of arguments, and what is plainly wrong: a literal
 * divisor 0, a constant part whose value does not fit 64 bits, a literal shift or exponent over 62 or 64. */
fe_expr fe_expr_call(fe_exprs *pool, fe_expr_op op, const fe_expr *args, uint32_t count, fe_expr_error *err);

/* ---- expr_build.c ---- */

/* A sum, a product and an integer power in sympy's form: flat, constants and like terms put together, in sympy's order. */
fe_expr fe_expr_sum(fe_exprs *pool, const fe_expr *args, uint32_t count, fe_expr_error *err);
fe_expr fe_expr_product(fe_exprs *pool, const fe_expr *args, uint32_t count, fe_expr_error *err);

fe_expr fe_expr_power(fe_exprs *pool, fe_expr base, int64_t exponent, fe_expr_error *err);

/* ---- expr_make.c ---- */

/* A call in the form that sympy and torch give it on construction ("automatic evaluation"): constants computed, like
 * terms put together, Max, Min, And and Or flat and in order, exact divisions carried out, comparisons decided where the
 * assumptions of symbols do. What they would do beyond that (polynomial division, common factors of nested Max and Min)
 * is left as a call, and so is what torch makes that is not right for all values (CeilDiv by what may be negative). The
 * result has the values of the call as it is given, wherever that has one and symbols are as assumed; up to the rounding
 * of floats. */
fe_expr fe_expr_make(fe_exprs *pool, fe_expr_op op, const fe_expr *args, uint32_t count, fe_expr_error *err);

/* ---- expr_substitute.c ---- */

/* What stands for a symbol, an expression of the pool that the result is made in; NULL: the symbol stays. */
typedef fe_expr (*fe_expr_replace)(void *ctx, fe_expr symbol);
/* The expression with its symbols replaced, every part made anew by fe_expr_make. e may be of another pool. */
fe_expr fe_expr_substitute(fe_exprs *pool, fe_expr e, fe_expr_replace replace, void *ctx, fe_expr_error *err);
fe_expr fe_expr_simplify(fe_exprs *pool, fe_expr e, fe_expr_error *err); /* the same without replacing */
fe_expr fe_expr_copy(fe_exprs *pool, fe_expr e, fe_expr_error *err);     /* as it is, from another pool */

/* ---- expr.c: facts ---- */

const char *fe_expr_op_name(fe_expr_op op);
bool fe_expr_find_function(const char *name, size_t len, fe_expr_op *op);
const char *fe_expr_assumption(unsigned index); /* positive, integer ...; NULL: beyond the last */
fe_expr_kind fe_expr_kind_of(fe_expr e);
bool fe_expr_assumes(fe_expr symbol, const char *assumption); /* it is assumed True */
/* Why this can't be a size or stride: a constant below zero or not an integer, infinite, a truth value. NULL: it can. */
const char *fe_expr_size_fault(fe_expr e);
/* Call for every part of the tree, parts first, the tree itself last; a part that occurs twice is met twice. visit
 * returns 0 to go on; anything else ends the walk and is returned. */
typedef int (*fe_expr_visitor)(void *ctx, fe_expr part);
int fe_expr_walk(fe_expr e, fe_expr_visitor visit, void *ctx);
/* Sympy's order (default_sort_key) of two expressions: < 0, 0, > 0. */
int fe_expr_compare(fe_expr a, fe_expr b);

/* ---- expr_eval.c: values ---- */

typedef enum { FE_VALUE_INT, FE_VALUE_RATIO, FE_VALUE_REAL, FE_VALUE_BOOL } fe_expr_value_kind;

typedef struct {
    fe_expr_value_kind kind;
    int64_t p, q; /* INT, BOOL: p; RATIO: p / q in lowest terms, q > 1 */
    double real;
} fe_expr_value;

/* The value of a symbol into *out (of any kind); returns false when it has none. */
typedef bool (*fe_expr_lookup)(void *ctx, fe_expr symbol, fe_expr_value *out);
/* Compute with exact 64-bit integers and ratios as far as the functions are exact, with doubles elsewhere, as Python and
 * torch do. What does not fit is an error, never wrapped. */
int fe_expr_eval(fe_expr e, fe_expr_lookup lookup, void *ctx, fe_expr_value *out, fe_expr_error *err) FE_MUST_CHECK;

/* ---- expr_bounds.c: ranges ---- */

/* All values from lower to upper, both included. INT: null ends are infinite; BOOL: lower and upper are 0 or 1; REAL: low
 * and high count, and may be infinite. RATIO is no kind of a range. */
typedef struct {
    fe_expr_value_kind kind;
    bool has_lower, has_upper; /* INT */
    int64_t lower, upper;      /* INT, BOOL */
    double low, high;          /* REAL */
} fe_expr_range;

/* The range of a symbol into *out; false: it is what its assumptions say. */
typedef bool (*fe_expr_range_lookup)(void *ctx, fe_expr symbol, fe_expr_range *out);
/* A range that holds whatever fe_expr_eval gives for values within the ranges of the symbols. It may be wider than need
 * be: each part is bounded for itself, so s0 - s0 is not known to be 0 (fe_expr_simplify first). Points at which
 * fe_expr_eval fails don't count. */
void fe_expr_bounds(fe_expr e, fe_expr_range_lookup lookup, void *ctx, fe_expr_range *out);

/* ---- expr_text.c: writing ---- */

void fe_expr_srepr(fe_expr e, fe_buffer *out);
void fe_expr_str(fe_expr e, fe_buffer *out);

#endif
