/* read.h - what the files of the reader share; private to them.
 *
 * A reader goes on after a fault, so that a report tells all that is wrong: a node whose argument is unknown gets None in
 * its place, and so on. Functions here return -1 only when it makes no sense to go on: memory ran out, or a limit of the
 * core was met. Whether a program was read without a fault is told by the report's count of errors.
 *
 * All that is made lives in the program's arena, except the cores, which hang on their pt2_graph from the moment they
 * exist: so pt2_program_free frees all that a failed reading leaves.
 */
#ifndef PT2_READ_H
#define PT2_READ_H

#include "operator.h"
#include "program.h"
#include "texts.h"

#define PT2_CODES 64 /* all numbers of the enums that become objects are smaller */

/* Paths are chains on the stack: a pointer to a new innermost part, good until the end of the block. */
#define PT2_KEY(outer, text) (&(pt2_path){.parent = (outer), .key = "" text, .key_len = sizeof(text) - 1})
#define PT2_KEY_OF(outer, v) \
    (&(pt2_path){.parent = (outer), .key = unsafe_yyjson_get_str(v), .key_len = unsafe_yyjson_get_len(v)})
#define PT2_INDEX(outer, i) (&(pt2_path){.parent = (outer), .index = (i)})

/* A text that was met before: `owner` and `base` of its string are free for whoever keeps the table. */
typedef struct {
    fe_reserved strings;
} pt2_texts;

typedef struct {
    fe_expr expr;
    bool seen; /* torch has parsed it, see read_range.c */
} pt2_known_expr;

typedef struct {
    pt2_program *program;
    pt2_report *report;
    const fe_reserved *reserved;
    yyjson_val *input_specs; /* of the program's signature: subgraphs ask it for names, too */
    pt2_texts expr_texts;    /* owner: index into exprs */
    pt2_known_expr *exprs;
    uint32_t expr_count, expr_capacity;
    char *buffer; /* for names that have to change */
    uint32_t buffer_capacity;
} pt2_program_reader;

/* What is known of a target that nodes call. */
typedef struct {
    const fe_operator *op; /* NULL: not in the table */
    uint8_t spelling;      /* fe_target_spelling */
    bool symbolic;         /* arguments by position and one result: a function on numbers, or aten.item */
    bool higher_order;     /* for the reading of results */
} pt2_callee;

/* One graph that is being read. */
typedef struct {
    pt2_program_reader *reader;
    pt2_graph *graph;
    fe_graph *core;
    yyjson_val *json;
    const pt2_path *path; /* of json */
    uint32_t depth;       /* 0: the program's own */
    pt2_texts texts;      /* of objects; owner: the object, base: 1 + the target that it is */
    pt2_texts names;      /* of subgraphs; owner: index into graph->subgraphs */
    uint32_t dtypes[PT2_CODES], layouts[PT2_CODES], memory_formats[PT2_CODES]; /* objects by code, or FE_NONE_ID */
    uint32_t getitem;                                                          /* the target, or FE_NONE_ID */
    pt2_callee *callees;                                                       /* by target */
    yyjson_val *last_stack; /* nn_module_stack that was checked last, or NULL */
    bool *defined;          /* by node id: its name stands for it in arguments */
    uint32_t callee_capacity, defined_capacity, origin_capacity, object_capacity, subgraph_capacity;
} pt2_graph_reader;

/* Where an argument stands: faults about what it names tell the place, others the argument or a part of it. */
typedef struct {
    const pt2_path *place; /* nodes[0].inputs[1] */
    const pt2_path *value; /* nodes[0].inputs[1].arg, or the same */
    const char *node;      /* name of the node, or NULL */
    uint32_t index, input; /* of the node and of the argument, for subgraphs */
} pt2_argument_place;

typedef enum {
    PT2_AS_NONE,
    PT2_AS_TENSOR,
    PT2_AS_TENSORS,
    PT2_AS_INT,
    PT2_AS_INTS,
    PT2_AS_FLOAT,
    PT2_AS_FLOATS,
    PT2_AS_STRING,
    PT2_AS_STRINGS,
    PT2_AS_SYM_INT,
    PT2_AS_SYM_INTS,
    PT2_AS_SCALAR_TYPE,
    PT2_AS_MEMORY_FORMAT,
    PT2_AS_LAYOUT,
    PT2_AS_DEVICE,
    PT2_AS_BOOL,
    PT2_AS_BOOLS,
    PT2_AS_SYM_BOOL,
    PT2_AS_SYM_BOOLS,
    PT2_AS_GRAPH,
    PT2_AS_OPTIONAL_TENSORS,
    PT2_AS_CUSTOM_OBJ,
    PT2_AS_OPERATOR,
    PT2_AS_SYM_FLOAT,
    PT2_AS_SYM_FLOATS,
    PT2_AS_OPTIONAL_TENSOR,
    PT2_AS_COMPLEX,
    PT2_AS_NESTED_TENSORS,
    PT2_AS_INT_LISTS,
    PT2_AS_STRING_TO_ARGUMENT,
    PT2_AS_FLOAT_LISTS,
    PT2_AS_NAME,
    PT2_AS_EXPR,
    PT2_AS_UNKNOWN
} pt2_as;

/* ---- read.c: graphs ---- */

int pt2_read_core_failed(pt2_program_reader *r, const pt2_path *path, const fe_error *err); /* report; -1 */
/* Make room in an array of the program's arena. */
int pt2_read_grow(pt2_program_reader *r, void *items, uint32_t *capacity, size_t need, size_t size) FE_MUST_CHECK;
/* A copy in the program's arena, with a NUL; NULL: no memory. */
char *pt2_read_copy(pt2_program_reader *r, const char *text, size_t len);
/* The string of a text, made with owner FE_NONE_ID when it is new. NULL: no memory. */
fe_string *pt2_read_text(pt2_program_reader *r, pt2_texts *texts, const char *text, size_t len);
/* Read the subgraph of an as_graph argument; a name met before must come with the same graph again. */
int pt2_read_subgraph(pt2_graph_reader *g, yyjson_val *argument, const pt2_argument_place *at) FE_MUST_CHECK;

/* ---- read_node.c: nodes ---- */

typedef struct {
    fe_op op;
    uint32_t target;
    const char *name; /* what torch would ask its table of names for */
    size_t name_len;
    fe_seq *args, *kwargs; /* the node's, also on failure */
    pt2_origin origin;
} pt2_node_plan;

/* Report a name that torch must not write into code. */
void pt2_read_check_name(pt2_graph_reader *g, const char *text, size_t len, const pt2_path *path);
/* Append a node with a new name. defines: it bears exactly this name, and arguments may name it; or NULL. A name that is taken
 * is a fault at `path`. */
int pt2_read_append(pt2_graph_reader *g, const pt2_node_plan *plan, yyjson_val *defines, const pt2_path *path,
                    uint32_t *id) FE_MUST_CHECK;
int pt2_read_nodes(pt2_graph_reader *g, yyjson_val *nodes) FE_MUST_CHECK;

/* ---- read_value.c: arguments, objects and targets ---- */

pt2_as pt2_read_as(const char *tag, size_t len);
/* The tag and the value of a union. */
static inline pt2_as pt2_read_union(yyjson_val *u, yyjson_val **value)
{
    yyjson_val *key = unsafe_yyjson_get_first(u);

    *value = key + 1;
    return pt2_read_as(unsafe_yyjson_get_str(key), unsafe_yyjson_get_len(key));
}

/* The name in an argument that stands for a node: as_tensor, as_sym_int: as_name ...; NULL: it has none. */
yyjson_val *pt2_read_name_of(yyjson_val *argument, pt2_value_kind *kind);
uint32_t pt2_read_lookup(const pt2_graph_reader *g, yyjson_val *name); /* the node, or FE_NONE_ID */
int pt2_read_argument(pt2_graph_reader *g, yyjson_val *argument, const pt2_argument_place *at,
                      fe_value *out) FE_MUST_CHECK;
/* A constant: none, a bool, number or string; anything else gives None. */
int pt2_read_constant(pt2_graph_reader *g, yyjson_val *argument, fe_value *out) FE_MUST_CHECK;
/* The target of calls of a text, with its facts. */
int pt2_read_target(pt2_graph_reader *g, const char *text, size_t len, const pt2_path *path, const char *node,
                    uint32_t *out) FE_MUST_CHECK;
int pt2_read_getitem(pt2_graph_reader *g, uint32_t *out) FE_MUST_CHECK; /* the target */
pt2_callee pt2_read_callee(const char *text, size_t len);

/* ---- read_table.c: what tensors and numbers are ---- */

/* Give each node its entry in the value tables, and check all entries. */
int pt2_read_tables(pt2_graph_reader *g) FE_MUST_CHECK;

/* ---- read_signature.c ---- */

/* The signature of the root graph, and what else names its nodes or tells its calling convention. */
int pt2_read_signature(pt2_graph_reader *g, yyjson_val *module, const pt2_path *path) FE_MUST_CHECK;

/* ---- read_range.c ---- */

int pt2_read_ranges(pt2_program_reader *r, yyjson_val *ranges, const pt2_path *path) FE_MUST_CHECK;

#endif
