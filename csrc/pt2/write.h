/* write.h - what the files of the writer share.
 *
 *     write.c            the walk over the document: program, graphs, value tables
 *     write_results.c    before a graph is written: which results its nodes have, under which names and with which values
 *     write_node.c       nodes: arguments by the operator's schema, outputs
 *     write_argument.c   one argument
 *     write_signature.c  input and output specs, signatures of module calls
 *
 * The writer walks the document it came from, key by key, and writes each part as it was when the core still says the
 * same, so that fields it doesn't know are kept and nothing changes without need. A fault is reported and the walk goes
 * on, to find them all; what is in the buffer then is of no use.
 */
#ifndef PT2_WRITE_H
#define PT2_WRITE_H

#include "operator.h"
#include "pass.h"
#include "program.h"

typedef enum {
    /* For tests: write what did not change as if it had, to compare the writer's own form with torch's. */
    PT2_WRITE_AGAIN = 1 << 0, /* arguments, inputs and outputs, with the tags that the document has */
    PT2_WRITE_ANEW = 1 << 1,  /* as of nodes that the document does not know; implies the first */
    /* A program of torch's own, of which no document knows a node: exactly what torch's serializer makes of it. Tags go by
     * the values alone, schemas come with the targets, and of repeated getitems the first stands for all. */
    PT2_WRITE_AS_TORCH = 1 << 2,
} pt2_write_flag;

int pt2_program_write_as(const pt2_program *p, const pt2_graph *root, unsigned flags, fe_buffer *out,
                         pt2_report *r) FE_MUST_CHECK;

typedef struct {
    const char *data; /* NULL: none */
    size_t len;
} pt2_name;

typedef struct {
    const pt2_program *program;
    const fe_allocator *allocator;
    fe_buffer *out;
    pt2_report *report;
    unsigned flags; /* pt2_write_flag */
    bool failed;
} pt2_writer;

/* What is known of what a node calls. */
typedef struct {
    pt2_name target;        /* data NULL: something that no file can name */
    const char *schema;     /* the owner's, in the form of the table of operators; NULL: none was given */
    const fe_operator *row; /* of that table, where no schema was given; NULL: none */
    bool higher_order;
} pt2_callee;

pt2_callee pt2_callee_of(const pt2_writer *w, const pt2_graph *graph, uint32_t id);
/* Arguments and returns in turn, as fe_operator_next_argument; none where nothing is known. */
bool pt2_callee_next_argument(const pt2_callee *c, const char **at, fe_argument *out);
bool pt2_callee_next_return(const pt2_callee *c, const char **at, fe_schema_type *out);
/* The argument of that name: its index, or -1. out may be NULL. */
int pt2_callee_argument(const pt2_callee *c, pt2_name name, fe_argument *out);
uint32_t pt2_callee_return_count(const pt2_callee *c);
/* Whether it is an operator whose arguments and returns are known. */
bool pt2_callee_has_schema(const pt2_callee *c);
/* The same, or a function whose arguments have known names. */
bool pt2_callee_has_names(const pt2_callee *c);

/* ---- results ---- */

/* A result of a node or an input of a graph; what the document calls a value. */
typedef enum {
    PT2_SLOT_NONE = PT2_VALUE_NONE,       /* nothing: no name and no value */
    PT2_SLOT_LIST = PT2_VALUE_CUSTOM + 1, /* a list among several results */
} pt2_slot_kind;

typedef struct {
    uint8_t kind;          /* pt2_value_kind, or PT2_SLOT_LIST */
    bool done;             /* its value is written */
    uint32_t node;         /* the node whose name it bears; FE_NONE_ID: nobody takes this result */
    uint32_t first, count; /* of a list: the slots of its items */
    pt2_name key;          /* its name in the document */
    pt2_name name;         /* its name now */
    yyjson_val *json;      /* its Argument in the document (its TensorArgument in as_tensors); NULL: none */
    yyjson_val *value; /* a value that was given: TensorMeta, SymInt ...; NULL: what the document has under its key */
} pt2_slot;

typedef enum {
    PT2_SHAPE_NONE,  /* no results, or no node that is written */
    PT2_SHAPE_SELF,  /* one, the node itself */
    PT2_SHAPE_LIST,  /* one list of tensors, whose items have names */
    PT2_SHAPE_MANY,  /* several, or one in a tuple */
    PT2_SHAPE_TAKEN, /* a getitem that gives one of its producer's results a name */
} pt2_shape;

typedef struct {
    uint8_t shape;
    bool of_document;      /* the outputs of the document have this shape */
    uint32_t first, count; /* slots */
} pt2_plan;

typedef struct {
    pt2_name key;
    uint32_t slot; /* FE_NONE_ID: the document defines it, the graph does not any more */
} pt2_known;

/* A graph that is being written. */
typedef struct {
    pt2_writer *w;
    const pt2_graph *graph;
    const fe_graph *core;
    pt2_plan *plans; /* by node id */
    pt2_slot *slots;
    uint32_t slot_count, slot_capacity;
    pt2_known *known; /* hash table by key; NULL until it is needed */
    uint32_t known_count, known_mask;
    pt2_json *texts; /* the values that were given, parsed */
    uint32_t text_count, text_capacity;
    fe_arena arena;           /* of new names */
    uint32_t subgraph_cursor; /* where the last one was found */
    struct pt2_item *items;   /* arguments of the node that is being written */
    uint32_t item_count, item_capacity;
} pt2_graph_writer;

/* Find the results of all nodes. -1: no memory; faults are reported and don't fail this. */
int pt2_writer_plan(pt2_graph_writer *g) FE_MUST_CHECK;
void pt2_writer_clear(pt2_graph_writer *g);
/* What became of a name of the document: its slot; or NULL, and *removed tells whether the document defines it. The first
 * call makes the table of names. */
const pt2_slot *pt2_writer_find(pt2_graph_writer *g, pt2_name key, bool *removed);

/* ---- write.c ---- */

void pt2_write_graph(pt2_writer *w, const pt2_graph *graph);
/* The root's writer, with which names of signatures are found. */
void pt2_write_signature(pt2_graph_writer *g, yyjson_val *json);
void pt2_write_calls(pt2_graph_writer *g, yyjson_val *json);

/* ---- write_node.c, write_argument.c ---- */

void pt2_write_node(pt2_graph_writer *g, uint32_t id);
/* {"as_tensor": {"name": NAME}} and such, of a slot that is no list. */
void pt2_write_slot(pt2_graph_writer *g, const pt2_slot *s);

/* Where an argument stands, for faults. */
typedef struct {
    uint32_t node;
    pt2_name name;
    uint32_t index;
} pt2_place;

/* Whether an Argument of the document says this; never, when it is to be written again. Graphs and dicts are not compared. */
bool pt2_is_same_argument(const pt2_graph_writer *g, yyjson_val *json, fe_value v);
/* An Argument. json: what the document has in its place, or NULL. type: by the operator's schema, or NULL. */
void pt2_write_argument(pt2_graph_writer *g, const pt2_place *at, yyjson_val *json, const fe_schema_type *type,
                        fe_value v);
/* The Argument of what a graph returns: of few kinds. */
void pt2_write_output(pt2_graph_writer *g, const pt2_place *at, yyjson_val *json, fe_value v);

/* ---- helpers ---- */

/* The key of an object's i-th member, with what stands before and after it. */
void pt2_write_member(fe_buffer *out, size_t i, yyjson_val *key);
void pt2_write_fault(pt2_graph_writer *g, pt2_kind kind, uint32_t node, const char *format, ...) FE_PRINTF(4, 5);
void pt2_write_no_memory(pt2_writer *w);
void pt2_write_name(pt2_writer *w, pt2_name name); /* quoted */
/* {"KEY": for a first key, else , "KEY": */
void pt2_write_key(pt2_writer *w, bool *first, const char *key);
/* NAME in {"as_tensor": {"name": NAME}}, {"as_sym_int": {"as_name": NAME}} and a TensorArgument. */
pt2_name pt2_argument_name(yyjson_val *json);
const char *pt2_value_tag(unsigned kind); /* as_tensor, as_sym_int, ... */
int pt2_value_kind_of(const char *tag);   /* pt2_value_kind, or -1: no value */
/* What a node calls; data NULL: something that no file can name. */
pt2_name pt2_target_text(const pt2_graph *graph, uint32_t id);
const pt2_origin *pt2_origin_of(const pt2_graph *graph, uint32_t id, pt2_source source); /* or NULL */
const pt2_node_text *pt2_text_of(const pt2_graph *graph, uint32_t id);                   /* or NULL: none given */

static inline pt2_name pt2_name_of(const char *text)
{
    return (pt2_name){text, strlen(text)};
}

static inline pt2_name pt2_name_of_string(const fe_string *s)
{
    return (pt2_name){s->data, s->len};
}

static inline pt2_name pt2_name_of_json(yyjson_val *v)
{
    return (pt2_name){yyjson_get_str(v), yyjson_get_len(v)};
}

static inline bool pt2_name_equal(pt2_name a, pt2_name b)
{
    return a.data && b.data && a.len == b.len && memcmp(a.data, b.data, a.len) == 0;
}

static inline bool pt2_name_is(pt2_name a, const char *text)
{
    return pt2_name_equal(a, pt2_name_of(text));
}

static inline pt2_name pt2_node_name(const fe_graph *core, uint32_t id)
{
    return pt2_name_of_string(core->details[id].name);
}

#endif
