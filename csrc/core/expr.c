/* expr.c - the pool of symbolic expressions: making nodes, each distinct one once, and facts about them; see expr.h.
 *
 * Nodes are found again by a hash over their op, value and the addresses of their arguments. A node is complete before it
 * is entered, so a failure in between leaves nothing but unused memory of the arena.
 */
#include "expr_impl.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

const fe_expr_function fe_expr_functions[FE_EXPR_OP_COUNT] = {
#define X(id, name, least, most, precedence, order, kind) \
    [FE_EXPR_##id] = {name, least, most, order, FE_EXPR_##kind, precedence},
    FE_EXPR_FUNCTIONS(X)
#undef X
};

/* Sympy's assumptions (core/assumptions.py). */
static const char *const assumption_names[] = {
    "integer",
    "positive",
    "nonnegative",
    "real",
    "nonzero",
    "negative",
    "nonpositive",
    "zero",
    "even",
    "odd",
    "finite",
    "infinite",
    "rational",
    "irrational",
    "noninteger",
    "complex",
    "commutative",
    "hermitian",
    "prime",
    "composite",
    "algebraic",
    "transcendental",
    "imaginary",
    "antihermitian",
    "polar",
    "extended_real",
    "extended_positive",
    "extended_negative",
    "extended_nonnegative",
    "extended_nonpositive",
    "extended_nonzero",
};

#define ASSUMPTION_COUNT (sizeof assumption_names / sizeof *assumption_names)

struct fe_exprs {
    fe_arena arena;
    fe_expr_node **slots;
    uint32_t mask, count; /* mask: without meaning while slots is NULL */
    uint64_t work;        /* see fe_exprs_allow */
};

/* ---- the pool ---- */

fe_exprs *fe_exprs_new(const fe_allocator *a)
{
    fe_exprs *pool = fe_resize(a, NULL, sizeof *pool);

    if (!pool)
        return NULL;
    *pool = (fe_exprs){.work = UINT64_MAX};
    fe_arena_init(&pool->arena, a);
    return pool;
}

void fe_exprs_free(fe_exprs *pool)
{
    if (!pool)
        return;
    const fe_allocator *a = pool->arena.allocator;
    fe_resize(a, pool->slots, 0);
    fe_arena_clear(&pool->arena);
    fe_resize(a, pool, 0);
}

uint32_t fe_exprs_count(const fe_exprs *pool)
{
    return pool->count;
}

const fe_allocator *fe_exprs_allocator(const fe_exprs *pool)
{
    return pool->arena.allocator;
}

fe_expr fe_expr_fail(fe_expr_error *err, fe_expr_fault fault, size_t at, const char *format, ...)
{
    va_list args;

    err->fault = fault;
    err->at = at;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    return NULL;
}

static fe_expr no_memory(fe_expr_error *err)
{
    return fe_expr_fail(err, FE_EXPR_NO_MEMORY, 0, "out of memory");
}

static fe_expr too_large(fe_expr_error *err, const char *what)
{
    return fe_expr_fail(err, FE_EXPR_RANGE, 0, "%s does not fit in 64 bits", what);
}

fe_expr *fe_exprs_take(fe_exprs *pool, size_t count, fe_expr_error *err)
{
    fe_expr *items = count < SIZE_MAX / sizeof *items ? fe_arena_take(&pool->arena, count * sizeof *items) : NULL;

    if (!items)
        no_memory(err);
    return items;
}

void fe_exprs_give(fe_exprs *pool, fe_expr *items, size_t count)
{
    fe_arena_give(&pool->arena, items, count * sizeof *items);
}

void fe_exprs_allow(fe_exprs *pool, uint64_t work)
{
    pool->work = work;
}

bool fe_exprs_spend(fe_exprs *pool, uint64_t work, fe_expr_error *err)
{
    if (pool->work == UINT64_MAX)
        return true;
    if (work >= pool->work) {
        fe_expr_fail(err, FE_EXPR_RANGE, 0, "too much work for so short a text");
        return false;
    }
    pool->work -= work;
    return true;
}

static uint64_t mix_bytes(uint64_t h, const void *data, size_t len)
{
    const unsigned char *bytes = data;

    for (size_t i = 0; i < len; i++)
        h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
    return fe_mix(h ^ len);
}

static uint32_t hash_of(const fe_expr_node *n)
{
    uint64_t h = fe_mix(UINT64_C(0x9e3779b97f4a7c15) + n->op);

    switch (n->op) {
    case FE_EXPR_SYMBOL:
        h = mix_bytes(h, n->as.symbol.name, n->as.symbol.len);
        break;
    case FE_EXPR_FLOAT:
        h = mix_bytes(h + n->as.real.precision, n->as.real.text, n->as.real.len);
        break;
    case FE_EXPR_RATIONAL:
        h = fe_mix(fe_mix(h ^ (uint64_t)n->as.ratio.p) ^ (uint64_t)n->as.ratio.q);
        break;
    case FE_EXPR_INTEGER:
    case FE_EXPR_OO:
    case FE_EXPR_INT_OO:
    case FE_EXPR_BOOL:
        h = fe_mix(h ^ (uint64_t)n->as.integer);
        break;
    default:
        for (uint32_t i = 0; i < n->count; i++)
            h = fe_mix(h ^ (uint64_t)(uintptr_t)n->args[i]);
        break;
    }
    return (uint32_t)h;
}

static bool same_text(const char *a, size_t a_len, const char *b, size_t b_len)
{
    return a_len == b_len && memcmp(a, b, a_len) == 0;
}

static bool same_node(const fe_expr_node *a, const fe_expr_node *b)
{
    if (a->hash != b->hash || a->op != b->op || a->count != b->count)
        return false;
    switch (a->op) {
    case FE_EXPR_SYMBOL:
        return same_text(a->as.symbol.name, a->as.symbol.len, b->as.symbol.name, b->as.symbol.len) &&
               a->as.symbol.count == b->as.symbol.count &&
               memcmp(a->as.symbol.assumptions, b->as.symbol.assumptions, a->as.symbol.count) == 0;
    case FE_EXPR_FLOAT:
        return a->as.real.precision == b->as.real.precision &&
               same_text(a->as.real.text, a->as.real.len, b->as.real.text, b->as.real.len);
    case FE_EXPR_RATIONAL:
        return a->as.ratio.p == b->as.ratio.p && a->as.ratio.q == b->as.ratio.q;
    case FE_EXPR_INTEGER:
    case FE_EXPR_OO:
    case FE_EXPR_INT_OO:
    case FE_EXPR_BOOL:
        return a->as.integer == b->as.integer;
    default:
        for (uint32_t i = 0; i < a->count; i++) {
            if (a->args[i] != b->args[i])
                return false;
        }
        return true;
    }
}

static fe_expr_node **slot_of(const fe_exprs *pool, const fe_expr_node *n)
{
    for (uint32_t i = n->hash & pool->mask;; i = (i + 1) & pool->mask) {
        if (!pool->slots[i] || same_node(pool->slots[i], n))
            return &pool->slots[i];
    }
}

static bool make_room(fe_exprs *pool)
{
    uint32_t size = pool->slots ? pool->mask + 1 : 0;

    if (size && pool->count < size - size / 3)
        return true;
    if (size > UINT32_MAX / 2)
        return false;
    size = size ? size * 2 : 64;
    fe_expr_node **slots = fe_resize(pool->arena.allocator, NULL, size * sizeof *slots);
    if (!slots)
        return false;
    memset(slots, 0, size * sizeof *slots);
    for (uint32_t i = 0; pool->slots && i <= pool->mask; i++) {
        if (!pool->slots[i])
            continue;
        uint32_t at = pool->slots[i]->hash & (size - 1);
        while (slots[at])
            at = (at + 1) & (size - 1);
        slots[at] = pool->slots[i];
    }
    fe_resize(pool->arena.allocator, pool->slots, 0);
    pool->slots = slots;
    pool->mask = size - 1;
    return true;
}

static const char *keep_text(fe_exprs *pool, const char *text, size_t len)
{
    char *copy = fe_arena_take(&pool->arena, len + 1);

    if (copy) {
        memcpy(copy, text, len);
        copy[len] = '\0';
    }
    return copy;
}

/* Copies of a node's arguments, as given and in sympy's order (often the same). */
static bool keep_args(fe_exprs *pool, fe_expr_node *n)
{
    size_t size = n->count * sizeof(fe_expr);
    fe_expr *args = fe_arena_take(&pool->arena, size);
    fe_expr *sorted = fe_arena_take(&pool->arena, size), *spare = fe_arena_take(&pool->arena, size);

    if (args)
        memcpy(args, n->args, size);
    if (args && sorted && spare) {
        memcpy(sorted, n->args, size);
        fe_expr_sort((fe_expr_op)n->op, sorted, spare, n->count);
        n->args = n->order = args;
        if (memcmp(sorted, args, size) != 0) {
            n->order = sorted;
            sorted = NULL;
        }
    }
    if (spare)
        fe_arena_give(&pool->arena, spare, size);
    if (sorted)
        fe_arena_give(&pool->arena, sorted, size);
    return args && n->order;
}

/* The pool's node that is like this one, made now if there is none. What it points to is copied then. */
static fe_expr intern(fe_exprs *pool, fe_expr_node *like, fe_expr_error *err)
{
    like->hash = hash_of(like);
    if (!make_room(pool))
        return no_memory(err);
    fe_expr_node **slot = slot_of(pool, like);
    if (*slot)
        return *slot;
    fe_expr_node *n = fe_arena_take(&pool->arena, sizeof *n);
    if (!n)
        return no_memory(err);
    *n = *like;
    bool kept = true;
    if (n->op == FE_EXPR_SYMBOL)
        kept = (n->as.symbol.name = keep_text(pool, n->as.symbol.name, n->as.symbol.len));
    else if (n->op == FE_EXPR_FLOAT)
        kept = (n->as.real.text = keep_text(pool, n->as.real.text, n->as.real.len));
    else if (n->count)
        kept = keep_args(pool, n);
    if (!kept) {
        fe_arena_give(&pool->arena, n, sizeof *n);
        return no_memory(err);
    }
    *slot = n;
    pool->count++;
    return n;
}

/* ---- leaves ---- */

fe_expr fe_expr_integer(fe_exprs *pool, int64_t value, fe_expr_error *err)
{
    return intern(pool, &(fe_expr_node){.op = FE_EXPR_INTEGER, .depth = 1, .size = 1, .as.integer = value}, err);
}

fe_expr fe_expr_constant(fe_exprs *pool, fe_expr_op op, int64_t value, fe_expr_error *err)
{
    return intern(pool, &(fe_expr_node){.op = (uint8_t)op, .depth = 1, .size = 1, .as.integer = value}, err);
}

fe_expr fe_expr_ratio(fe_exprs *pool, int64_t p, int64_t q, fe_expr_error *err)
{
    fe_number n;

    if (!fe_number_ratio(p, q, &n))
        return too_large(err, "a ratio");
    if (n.q == 1)
        return fe_expr_integer(pool, n.p, err);
    return intern(pool,
                  &(fe_expr_node){.op = FE_EXPR_RATIONAL, .depth = 1, .size = 1, .as.ratio.p = n.p, .as.ratio.q = n.q},
                  err);
}

fe_expr fe_expr_real(fe_exprs *pool, double value, const char *text, size_t len, unsigned precision, fe_expr_error *err)
{
    fe_expr_node n = {.op = FE_EXPR_FLOAT, .depth = 1, .size = 1};

    n.as.real.value = value;
    n.as.real.text = text;
    n.as.real.len = (uint16_t)len;
    n.as.real.precision = (uint16_t)precision;
    return intern(pool, &n, err);
}

fe_expr fe_expr_number_node(fe_exprs *pool, fe_number n, fe_expr_error *err)
{
    char text[64];

    if (!n.is_real)
        return fe_expr_ratio(pool, n.p, n.q, err);
    size_t len = fe_expr_real_text(n.real, text);
    return fe_expr_real(pool, n.real, text, len, 53, err);
}

fe_expr fe_expr_float(fe_exprs *pool, double value, fe_expr_error *err)
{
    return fe_expr_number_node(pool, (fe_number){.is_real = true, .real = value}, err);
}

fe_expr fe_expr_symbol(fe_exprs *pool, const char *name, size_t len, const uint8_t *assumptions, size_t count,
                       fe_expr_error *err)
{
    fe_expr_node n = {.op = FE_EXPR_SYMBOL, .depth = 1, .size = 1};

    if (len >= UINT32_MAX || count > FE_EXPR_MAX_ASSUMPTIONS)
        return fe_expr_fail(err, FE_EXPR_RANGE, 0, "a symbol with too long a name or too many assumptions");
    n.as.symbol.name = name;
    n.as.symbol.len = (uint32_t)len;
    n.as.symbol.count = (uint8_t)count;
    if (count)
        memcpy(n.as.symbol.assumptions, assumptions, count);
    return intern(pool, &n, err);
}

/* Symbols are hashed by name alone, so all of one name stand behind each other. */
fe_expr fe_expr_find_symbol(const fe_exprs *pool, const char *name, size_t len)
{
    fe_expr_node like = {.op = FE_EXPR_SYMBOL};

    if (!pool->slots || len >= UINT32_MAX)
        return NULL;
    like.as.symbol.name = name;
    like.as.symbol.len = (uint32_t)len;
    like.hash = hash_of(&like);
    for (uint32_t i = like.hash & pool->mask; pool->slots[i]; i = (i + 1) & pool->mask) {
        const fe_expr_node *n = pool->slots[i];
        if (n->hash == like.hash && n->op == FE_EXPR_SYMBOL &&
            same_text(n->as.symbol.name, n->as.symbol.len, name, len))
            return n;
    }
    return NULL;
}

/* ---- calls ---- */

static bool is_integer(fe_expr e, int64_t value)
{
    return e->op == FE_EXPR_INTEGER && e->as.integer == value;
}

static bool is_zero(fe_expr e)
{
    return is_integer(e, 0) || (e->op == FE_EXPR_FLOAT && e->as.real.value == 0);
}

static fe_expr divides_by_zero(fe_expr_op op, fe_expr_error *err)
{
    return fe_expr_fail(err, FE_EXPR_DIVISION, 0, "%s divides by zero", fe_expr_functions[op].name);
}

/* What no value of the symbols makes right. Returns NULL, or any argument. */
static fe_expr check_literals(fe_expr_op op, const fe_expr *args, uint32_t count, fe_expr_error *err)
{
    const char *name = fe_expr_functions[op].name;

    switch (op) {
    case FE_EXPR_MOD:
    case FE_EXPR_PYTHON_MOD:
    case FE_EXPR_FLOOR_DIV:
    case FE_EXPR_CLEAN_DIV:
    case FE_EXPR_CEIL_DIV:
    case FE_EXPR_FLOAT_TRUE_DIV:
    case FE_EXPR_INT_TRUE_DIV:
        return is_zero(args[1]) ? divides_by_zero(op, err) : args[0];
    case FE_EXPR_MODULAR_INDEXING:
        return is_zero(args[1]) || is_zero(args[2]) ? divides_by_zero(op, err) : args[0];
    case FE_EXPR_LSHIFT:
    case FE_EXPR_RSHIFT:
        if (args[1]->op == FE_EXPR_INTEGER && (args[1]->as.integer < 0 || args[1]->as.integer > FE_EXPR_MAX_SHIFT))
            return fe_expr_fail(err, FE_EXPR_MEANING, 0, "%s by %lld bits", name, (long long)args[1]->as.integer);
        return args[0];
    case FE_EXPR_POW:
    case FE_EXPR_POW_BY_NATURAL:
        if (args[1]->op == FE_EXPR_INTEGER && (args[1]->as.integer < (op == FE_EXPR_POW ? -FE_EXPR_MAX_EXPONENT : 0) ||
                                               args[1]->as.integer > FE_EXPR_MAX_EXPONENT))
            return fe_expr_fail(err, FE_EXPR_MEANING, 0, "%s with the exponent %lld", name,
                                (long long)args[1]->as.integer);
        return args[0];
    case FE_EXPR_NON_OVERLAPPING:
        if (count % 2)
            return fe_expr_fail(err, FE_EXPR_MEANING, 0, "%s with an odd number of arguments", name);
        return args[0];
    default:
        return args[0];
    }
}

/* A call of constants only is computed once, to know that it can be; a product's numbers are, too, as all who look at a
 * product take them together. */
static fe_expr check_constants(fe_expr_op op, const fe_expr *args, uint32_t count, fe_expr_error *err)
{
    fe_expr_node n = {.op = (uint8_t)op, .count = count, .args = args, .order = args};
    fe_number product = {.p = 1, .q = 1}, factor;
    fe_expr_value value;
    bool constant = op != FE_EXPR_COND_PAIR;

    for (uint32_t i = 0; i < count; i++) {
        constant &= args[i]->op == FE_EXPR_INTEGER || args[i]->op == FE_EXPR_RATIONAL || args[i]->op == FE_EXPR_FLOAT ||
                    args[i]->op == FE_EXPR_BOOL;
        if (op == FE_EXPR_MUL && fe_expr_number(args[i], &factor) && !fe_number_mul(product, factor, &product))
            return too_large(err, "the number before a product");
    }
    if (!product.is_real && product.p == INT64_MIN) /* it is printed without its sign */
        return too_large(err, "the number before a product");
    return constant && fe_expr_eval(&n, NULL, NULL, &value, err) < 0 ? NULL : args[0];
}

static fe_expr_kind kind_needed(fe_expr_op op, uint32_t place)
{
    if (op == FE_EXPR_PIECEWISE)
        return FE_EXPR_CASE;
    if (op == FE_EXPR_AND || op == FE_EXPR_OR || op == FE_EXPR_NOT)
        return FE_EXPR_TRUTH;
    return (op == FE_EXPR_WHERE && place == 0) || (op == FE_EXPR_COND_PAIR && place == 1) ? FE_EXPR_TRUTH
                                                                                          : FE_EXPR_NUMBER;
}

static fe_expr check_kinds(fe_expr_op op, const fe_expr *args, uint32_t count, fe_expr_error *err)
{
    static const char *const names[] = {"number", "truth value", "case"};
    const fe_expr_function *f = &fe_expr_functions[op];
    bool either = op == FE_EXPR_EQ || op == FE_EXPR_NE || (op >= FE_EXPR_BITWISE_AND && op <= FE_EXPR_BITWISE_XOR);

    if (count < f->least || (f->most && count > f->most))
        return fe_expr_fail(err, FE_EXPR_MEANING, 0, "%s with %u arguments", f->name, count);
    for (uint32_t i = 0; i < count; i++) {
        fe_expr_kind kind = fe_expr_kind_of(args[i]), needed = kind_needed(op, i);
        /* Symbols may stand for truth values where these are asked for. */
        bool fits = kind == needed || (needed == FE_EXPR_TRUTH && args[i]->op == FE_EXPR_SYMBOL);
        if (either)
            fits = kind != FE_EXPR_CASE && kind == fe_expr_kind_of(args[0]);
        if (!fits)
            return fe_expr_fail(err, FE_EXPR_MEANING, 0, "%s of a %s", f->name, names[kind]);
    }
    return args[0];
}

fe_expr fe_expr_call(fe_exprs *pool, fe_expr_op op, const fe_expr *args, uint32_t count, fe_expr_error *err)
{
    fe_expr_node n = {.op = (uint8_t)op, .count = count, .args = args};
    uint64_t size = 1;
    uint16_t depth = 0;

    if (!count)
        return fe_expr_fail(err, FE_EXPR_MEANING, 0, "%s without arguments", fe_expr_functions[op].name);
    for (uint32_t i = 0; i < count; i++) {
        depth = args[i]->depth > depth ? args[i]->depth : depth;
        size += args[i]->size;
    }
    if (size > FE_EXPR_MAX_SIZE)
        return fe_expr_fail(err, FE_EXPR_RANGE, 0, "an expression of more than %u parts", FE_EXPR_MAX_SIZE);
    if (depth >= FE_EXPR_MAX_DEPTH)
        return fe_expr_fail(err, FE_EXPR_DEPTH, 0, "nested more than %d deep", FE_EXPR_MAX_DEPTH);
    if (!check_kinds(op, args, count, err) || !check_literals(op, args, count, err) ||
        !check_constants(op, args, count, err))
        return NULL;
    n.depth = (uint16_t)(depth + 1);
    n.size = (uint32_t)size;
    return intern(pool, &n, err);
}

fe_expr fe_expr_keep(fe_exprs *pool, fe_expr like, const fe_expr *args, fe_expr_error *err)
{
    fe_expr_node n = *like;

    n.args = args;
    n.order = NULL;
    return intern(pool, &n, err);
}

/* ---- facts ---- */

const char *fe_expr_op_name(fe_expr_op op)
{
    static const char *const leaves[] = {"Symbol",   "Integer",     "Rational", "Float",
                                         "Infinity", "IntInfinity", "Boolean"};

    return op < FE_EXPR_ADD ? leaves[op] : fe_expr_functions[op].name;
}

bool fe_expr_find_function(const char *name, size_t len, fe_expr_op *op)
{
    for (unsigned i = FE_EXPR_ADD; i < FE_EXPR_OP_COUNT; i++) {
        if (same_text(fe_expr_functions[i].name, strlen(fe_expr_functions[i].name), name, len)) {
            *op = (fe_expr_op)i;
            return true;
        }
    }
    return false;
}

const char *fe_expr_assumption(unsigned index)
{
    return index < ASSUMPTION_COUNT ? assumption_names[index] : NULL;
}

bool fe_expr_find_assumption(const char *name, size_t len, uint8_t *index)
{
    for (unsigned i = 0; i < ASSUMPTION_COUNT; i++) {
        if (same_text(assumption_names[i], strlen(assumption_names[i]), name, len)) {
            *index = (uint8_t)i;
            return true;
        }
    }
    return false;
}

fe_expr_kind fe_expr_kind_of(fe_expr e)
{
    if (e->op < FE_EXPR_ADD)
        return e->op == FE_EXPR_BOOL ? FE_EXPR_TRUTH : FE_EXPR_NUMBER;
    return (fe_expr_kind)fe_expr_functions[e->op].kind;
}

bool fe_expr_assumes(fe_expr symbol, const char *assumption)
{
    for (unsigned i = 0; symbol->op == FE_EXPR_SYMBOL && i < symbol->as.symbol.count; i++) {
        unsigned a = symbol->as.symbol.assumptions[i];
        if (a % 2 && strcmp(assumption_names[a / 2], assumption) == 0)
            return true;
    }
    return false;
}

const char *fe_expr_size_fault(fe_expr e)
{
    switch (e->op) {
    case FE_EXPR_INTEGER:
        return e->as.integer < 0 ? "is negative" : NULL;
    case FE_EXPR_RATIONAL:
    case FE_EXPR_FLOAT:
        return "is not an integer";
    case FE_EXPR_OO:
    case FE_EXPR_INT_OO:
        return "is infinite";
    default:
        return fe_expr_kind_of(e) == FE_EXPR_TRUTH ? "is a truth value" : NULL;
    }
}

int fe_expr_walk(fe_expr e, fe_expr_visitor visit, void *ctx)
{
    for (uint32_t i = 0; i < e->count; i++) {
        int stop = fe_expr_walk(e->args[i], visit, ctx);
        if (stop)
            return stop;
    }
    return visit(ctx, e);
}
