/* verify.h - what the files of the verifier share; private to them.
 *
 * The verifier looks at the graphs as they are now: freshly read, or after edits. The reader has refused what makes no
 * graph at all, so most faults here are of edits, and of files whose parts don't fit together. Each check and its place:
 *
 *     verify.c            GRAPH  lint; placeholders first; one output; calls of functions only; subgraphs by name
 *                         NAME   names of nodes and subgraphs
 *                         UNSUPPORTED  a dialect that is not known (warning)
 *     verify_call.c       TARGET  what a node calls; UNKNOWN_OPERATOR (warning)
 *                         MUTATION  an operator that writes to its arguments, outside the dialect TRAINING
 *                         GRAPH  a getitem beyond its producer's results, the same one twice (warning); a user of
 *                         nothing; operands of higher-order operators against the inputs of their subgraphs
 *     verify_argument.c   ARGUMENT  arguments against the operator's schema; what no file can hold
 *                         TARGET, UNKNOWN_OPERATOR  operators as arguments
 *     verify_value.c      VALUE  a node without a value; sizes, strides, offsets that can't be; hints out of range
 *                         (strict warning)
 *                         EXPR   an expression that is none
 *                         UNBOUND_SYMBOL  a symbol that nothing gives a value (backed ones: a strict warning)
 *     verify_symbol.c     VALUE  empty ranges, and those of symbols that don't occur (warning)
 *     verify_signature.c  SIGNATURE  inputs and outputs, their number, order and kinds; targets of mutations; names of
 *                         parameters; TREESPEC: leaves
 *     verify_module.c     SIGNATURE  names in the module call graph; UNKNOWN_CLASS (warning)
 *     verify_payload.c    SIGNATURE, PAYLOAD  weights and constants: there, of the right kind, as the graph says
 *
 * Functions return -1 only when memory runs out; faults are in the report. Each check takes time in proportion to what
 * it looks at, whatever a file says.
 */
#ifndef PT2_VERIFY_H
#define PT2_VERIFY_H

#include "operator.h"
#include "pass.h"
#include "program.h"
#include "texts.h"

/* Paths are chains on the stack: a pointer to a new innermost part, good until the end of the block. */
#define PT2_KEY(outer, text) (&(pt2_path){.parent = (outer), .key = "" text, .key_len = sizeof(text) - 1})
#define PT2_KEY_TEXT(outer, text) (&(pt2_path){.parent = (outer), .key = (text), .key_len = strlen(text)})
#define PT2_INDEX(outer, i) (&(pt2_path){.parent = (outer), .index = (i)})

/* What is known of a target that nodes call; found out once for each. */
typedef struct {
    const char *text; /* NULL: something that no file can name */
    size_t len;
    const fe_operator *op; /* NULL: not in the table */
    uint32_t first, count; /* its schema's arguments, in pt2_verifier.arguments */
    uint32_t positional;   /* how many of them may be given by position */
    uint8_t spelling;      /* fe_target_spelling */
    bool looked_up;
    bool getitem, writes, has_schema, returns_nothing;
} pt2_callee_facts;

typedef struct {
    const char *name; /* NUL at the end */
    uint32_t scope;   /* the graph in which it has a value, 0: none yet */
    uint32_t seen;    /* 1 + the expression that listed it last */
    uint32_t range;   /* 1 + its range constraint */
    bool unbacked;    /* u0, zuf0: known only when the program runs */
    bool bare;        /* it occurs without assumptions */
    bool assumed;     /* it occurs with assumptions, such as positive=True */
    bool reported;
} pt2_symbol;

/* A distinct text of an expression. */
typedef struct {
    uint32_t first, count; /* its symbols, in pt2_verifier.lists */
    uint32_t binds;        /* 1 + the symbol that a size of this form gives a value, 0: none */
    uint32_t alone;        /* 1 + the symbol that it is */
} pt2_expr_facts;

/* One graph. The chain of scopes leads from an inner graph to the program's own. */
typedef struct pt2_scope {
    const struct pt2_scope *outer;
    uint32_t number; /* 1: the program's own */
    const pt2_graph *graph;
    const fe_graph *core;
    pt2_callee_facts *callees; /* by target */
    fe_reserved subgraphs;     /* their names; owner: index, base: 1 when a node takes it */
    bool *objects_seen;        /* by object: an operator that was looked at as an argument */
    bool has_path;             /* the whole chain of graphs stands in the document */
} pt2_scope;

typedef struct {
    const pt2_program *program;
    pt2_report *report;
    const fe_allocator *allocator;
    bool strict;
    bool is_new;     /* values are not looked at: see PT2_NEW */
    bool functional; /* no operator may write to its arguments */
    uint32_t scope_count;
    fe_argument *arguments;
    uint32_t argument_count, argument_capacity;
    fe_exprs *exprs;   /* our own pool: the program's may be in use */
    fe_reserved texts; /* of expressions; owner: index into facts */
    fe_reserved names; /* of symbols; owner: index into symbols */
    pt2_expr_facts *facts;
    pt2_symbol *symbols;
    uint32_t *lists;
    uint32_t fact_count, fact_capacity, symbol_count, symbol_capacity, list_count, list_capacity;
} pt2_verifier;

/* ---- verify.c ---- */

/* Add a fault of a node. key: of the node's document, such as "target", or NULL. */
void pt2_verify_node(pt2_verifier *v, const pt2_scope *s, pt2_kind kind, pt2_severity severity, uint32_t id,
                     const char *key, const char *format, ...) FE_PRINTF(7, 8);
/* Add a fault of something else; path NULL: it has none. */
void pt2_verify_fault(pt2_verifier *v, pt2_kind kind, pt2_severity severity, const char *entry, const pt2_path *path,
                      const char *node, const char *format, ...) FE_PRINTF(7, 8);
/* The string of a text in a table; owner is FE_NONE_ID when it is new. NULL: no memory. */
fe_string *pt2_verify_intern(pt2_verifier *v, fe_reserved *table, const char *text, size_t len);
int pt2_verify_grow(pt2_verifier *v, void *items, uint32_t *capacity, size_t need, size_t size) FE_MUST_CHECK;

static inline const pt2_object *pt2_verify_object(const pt2_scope *s, uint32_t object)
{
    return object < s->graph->object_count ? &s->graph->objects[object] : NULL;
}

/* ---- verify_call.c ---- */

int pt2_verify_calls(pt2_verifier *v, pt2_scope *s) FE_MUST_CHECK;

/* ---- verify_argument.c ---- */

void pt2_verify_arguments(pt2_verifier *v, const pt2_scope *s, uint32_t id, const pt2_callee_facts *f);

/* ---- verify_value.c ---- */

/* A node's value: its JSON and kind, from the document or from a text that its owner gave. */
typedef struct {
    yyjson_val *json;  /* TensorMeta, SymInt ...; NULL: none */
    yyjson_val *list;  /* of a node that has several: {"as_tensor": ...} each; NULL: none */
    uint8_t kind;      /* pt2_value_kind */
    bool given;        /* by its owner */
    bool of_document;  /* the document has the node's results, one or several, which its owner has not removed */
    pt2_json document; /* of a given text; to be cleared */
} pt2_node_value;

typedef struct {
    yyjson_val *dtype, *sizes, *strides, *offset, *requires_grad, *device; /* NULL: not there */
} pt2_tensor_fields;

int pt2_verify_read_value(pt2_verifier *v, const pt2_scope *s, uint32_t id, pt2_node_value *out) FE_MUST_CHECK;
void pt2_verify_clear_value(pt2_node_value *value);
/* What kind of value a node has, as far as that is known without parsing: pt2_value_kind. */
pt2_value_kind pt2_verify_value_kind(const pt2_scope *s, uint32_t id);
/* The one key and value of a union; NULL: it is none. */
const char *pt2_verify_tag(yyjson_val *u, yyjson_val **inner);
void pt2_verify_fields(yyjson_val *tensor, pt2_tensor_fields *out);
int pt2_verify_values(pt2_verifier *v, const pt2_scope *s) FE_MUST_CHECK;

/* ---- verify_symbol.c ---- */

#define PT2_NO_EXPR UINT32_MAX

/* The facts of an expression's text, as an index; PT2_NO_EXPR: it is none, and *why tells. */
int pt2_verify_expr(pt2_verifier *v, const char *text, size_t len, uint32_t *out, fe_expr_error *why) FE_MUST_CHECK;
bool pt2_verify_in_scope(const pt2_scope *s, const pt2_symbol *symbol); /* it has a value here */
int pt2_verify_symbols(pt2_verifier *v) FE_MUST_CHECK; /* once, before the first graph: symbols that have ranges */
void pt2_verify_ranges(pt2_verifier *v);

/* ---- verify_signature.c, verify_module.c, verify_payload.c ---- */

int pt2_verify_signature(pt2_verifier *v, const pt2_scope *s) FE_MUST_CHECK;
int pt2_verify_module_calls(pt2_verifier *v, const pt2_scope *s, yyjson_val *calls) FE_MUST_CHECK;
int pt2_verify_payloads(pt2_verifier *v, const pt2_scope *s) FE_MUST_CHECK;
/* $.graph_module.signature.input_specs[0].parameter.parameter_name; key NULL: ends before it, tag NULL: likewise. */
typedef struct {
    pt2_path parts[7];
    const pt2_path *path; /* NULL: the spec is not in the document */
} pt2_spec_path;
void pt2_verify_spec_path(pt2_spec_path *out, const fe_spec *spec, bool is_input, const char *tag, const char *key);

#endif
