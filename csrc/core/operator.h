/* operator.h - what is known of torch's operators without torch: their facts and schemas, from a generated table.
 *
 * A target is a text in a file: torch.ops.aten.add.Tensor, torch.ops.higher_order.cond, _operator.add, ... A text is
 * never resolved or run; it is looked at, and found in the table or not. The table is constant data: nothing is made
 * when the library is loaded, and all functions here are pure, quick and safe in any thread.
 */
#ifndef FE_OPERATOR_H
#define FE_OPERATOR_H

#include "base.h"

#define FE_OPERATOR_PREFIX "torch.ops."

/* What a target's text is, by its spelling. */
typedef enum {
    FE_SPELLING_BAD,          /* none of these: torch can't call it, or must not */
    FE_SPELLING_OPERATOR,     /* torch.ops.NAMESPACE.NAME.OVERLOAD, known or not; also without the overload */
    FE_SPELLING_HIGHER_ORDER, /* torch.ops.higher_order.NAME, known or not */
    FE_SPELLING_SYM,          /* of the closed list of functions on symbolic numbers: _operator.add, torch.sym_max */
    FE_SPELLING_FUNCTION,     /* of the closed list of plain functions, most of graphs before dispatch */
    FE_SPELLING_EXTENSION,    /* #NAMESPACE:NAME */
} fe_target_spelling;

/* One row of the table: an operator, a higher-order operator or a function of a closed list. */
typedef struct {
    uint32_t name, schema; /* offsets */
    uint16_t flags;        /* fe_target_flag */
    uint8_t name_len;
    uint8_t kind; /* fe_target_spelling */
} fe_operator;

/* X(id, letter in the table, text) */
#define FE_SCHEMA_TYPES(X)                \
    X(TENSOR, 'T', "Tensor")              \
    X(INT, 'i', "int")                    \
    X(SYM_INT, 'y', "SymInt")             \
    X(FLOAT, 'f', "float")                \
    X(BOOL, 'b', "bool")                  \
    X(SYM_BOOL, 'Y', "SymBool")           \
    X(SCALAR, 'S', "Scalar")              \
    X(SCALAR_TYPE, 'd', "ScalarType")     \
    X(LAYOUT, 'l', "Layout")              \
    X(DEVICE, 'D', "Device")              \
    X(MEMORY_FORMAT, 'M', "MemoryFormat") \
    X(GENERATOR, 'G', "Generator")        \
    X(STRING, 's', "str")                 \
    X(COMPLEX, 'c', "complex")            \
    X(CLASS, 'C', "ScriptObject")         \
    X(VARIABLE, 'V', "t")                 \
    X(NONE, 'N', "NoneType")              \
    X(OTHER, 'O', "Any")

typedef enum {
#define X(id, letter, text) FE_SCHEMA_##id,
    FE_SCHEMA_TYPES(X)
#undef X
        FE_SCHEMA_TYPE_COUNT
} fe_schema_base;

/* Tensor, Tensor?, Tensor[], Tensor?[], Tensor[]?, Tensor[][] ... */
typedef struct {
    uint8_t base;        /* fe_schema_base */
    uint8_t lists;       /* how many lists stand around it */
    bool optional_items; /* what the innermost list holds may be None */
    bool optional;       /* the whole may be None */
} fe_schema_type;

typedef struct {
    const char *name; /* name_len bytes, no NUL */
    size_t name_len;
    fe_schema_type type;
    bool has_default, keyword_only;
    bool written; /* the operator writes to it */
} fe_argument;

/* The row of "torch.ops.aten.add.Tensor", "aten.add.Tensor", "torch.ops.higher_order.cond" or "_operator.add"; NULL: not
 * in the table. */
const fe_operator *fe_operator_find(const char *text, size_t len);
uint32_t fe_operator_count(void);
const fe_operator *fe_operator_at(uint32_t index);   /* in the order of names; NULL: no more */
const char *fe_operator_torch(void);                 /* the version of torch that the table is of */
const char *fe_operator_name(const fe_operator *op); /* without "torch.ops."; ends with a NUL */

/* Schemas. Functions and higher-order operators have none, but for the names of a SYM function's parameters. */
bool fe_operator_has_schema(const fe_operator *op);
/* Arguments in turn: *at is NULL before the first, or the start of a schema in the table's form, which is then the one
 * that is read, of whatever operator. false: no more. Returns begin behind its ">". */
bool fe_operator_next_argument(const fe_operator *op, const char **at, fe_argument *out);
bool fe_operator_next_return(const fe_operator *op, const char **at, fe_schema_type *out);
uint32_t fe_operator_argument_count(const fe_operator *op);
uint32_t fe_operator_return_count(const fe_operator *op);
/* The argument of that name: its index, or -1. out may be NULL. */
int fe_operator_argument(const fe_operator *op, const char *name, size_t len, fe_argument *out);
/* Whether files that don't tell how an argument is given mean by position: no default and not keyword only. An unknown
 * argument is none. */
bool fe_operator_positional(const fe_operator *op, const char *name, size_t len);
bool fe_operator_returns_one_tensor(const fe_operator *op);
/* Writes to no argument by its schema, which is what torch's verifier asks. */
bool fe_operator_is_functional(const fe_operator *op);

static inline bool fe_schema_is(fe_schema_type t, fe_schema_base base, unsigned lists)
{
    return t.base == base && t.lists == lists;
}

/* "Tensor", "SymInt", ...; without lists and question marks. */
const char *fe_schema_base_text(fe_schema_type t);

/* How a target is spelled. Of a text that is in no list only the form of an operator or extension is accepted: ASCII
 * identifiers, none of the __magic__ kind. */
fe_target_spelling fe_target_classify(const char *text, size_t len);
/* fe_target_flag bits of a target that the table does not have: UNKNOWN, and MUTATES when its name ends in one "_". */
uint32_t fe_target_guess(const char *text, size_t len);
/* What names of nodes that call a target are made from, before snake case, as in torch.fx: "add.Tensor", "cond",
 * "_add_batch_dim". A part of text. */
const char *fe_operator_stem(const char *text, size_t len, size_t *out_len);

#endif
