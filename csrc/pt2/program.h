/* program.h - an exported program as it stands in a file, and the graphs that are made of it.
 *
 *     archive --open.c--> documents, payloads --read.c--> graphs, signature, ranges
 *                                                 |            |
 *                                             verify.c      write.c --> model.json
 *
 * The documents stay in memory: metadata is decoded only when somebody asks for it, and what nobody changed is written
 * again as it was. Graphs are built into the core; from then on their owner may edit them, and the core is the truth
 * about structure, names and signature, while `origins` tell which part of the document a node came from.
 */
#ifndef PT2_PROGRAM_H
#define PT2_PROGRAM_H

#include "archive.h"
#include "expr.h"
#include "ir.h"
#include "schema.h"

/* What a core object stands for. Their owner makes its own of them, one for each object index of a graph. */
typedef enum {
    PT2_OBJECT_NONE,          /* something the schema has no word for: it can't be written. text: its class, or NULL */
    PT2_OBJECT_DTYPE,         /* code: ScalarType */
    PT2_OBJECT_LAYOUT,        /* code: Layout */
    PT2_OBJECT_MEMORY_FORMAT, /* code: MemoryFormat */
    PT2_OBJECT_DEVICE,        /* text: cpu, cuda:0 */
    PT2_OBJECT_TARGET, /* text: torch.ops.aten.add.Tensor, _operator.getitem: what a node calls, or an operator as
                                 an argument */
    PT2_OBJECT_CUSTOM, /* text: name of a custom object that is no input; code: unused */
    PT2_OBJECT_KIND_COUNT
} pt2_object_kind;

typedef struct {
    uint8_t kind;
    int32_t code;
    const char *text; /* NUL at the end */
    /* Of a target, in the form of core/operator.h's table; NULL: that table says it, if anything does. */
    const char *schema;
} pt2_object;

/* Which part of the document a node was made from. */
typedef enum {
    PT2_FROM_NOTHING, /* made by an edit */
    PT2_FROM_INPUT,   /* inputs[index] */
    PT2_FROM_NODE,    /* nodes[index] */
    PT2_FROM_RESULT,  /* a getitem, folded into outputs[output] of nodes[index] (or into an inner list there) */
    PT2_FROM_GRAPH,   /* the get_attr of an as_graph argument of nodes[index] */
    PT2_FROM_OUTPUT,  /* the output node */
} pt2_source;

typedef enum {
    PT2_VALUE_NONE,
    PT2_VALUE_TENSOR,
    PT2_VALUE_SYM_INT,
    PT2_VALUE_SYM_FLOAT,
    PT2_VALUE_SYM_BOOL,
    PT2_VALUE_CUSTOM
} pt2_value_kind;

typedef struct {
    uint8_t source; /* pt2_source */
    uint8_t value_kind;
    uint32_t index;    /* in inputs or nodes */
    uint32_t output;   /* PT2_FROM_RESULT: which result of the producer, or element of the list */
    uint32_t call;     /* PT2_FROM_GRAPH: id of the call of a higher-order operator whose argument it is; 0: of none */
    fe_string *name;   /* that the node was given by the reader */
    yyjson_val *json;  /* the input, or the Node */
    yyjson_val *value; /* its entry in the value tables: a TensorMeta, SymInt ...; NULL: none */
} pt2_origin;

/* JSON texts that the owner gives for a node whose meta was looked at or set: NULL where there is none. */
typedef struct {
    /* {"as_tensor": TENSOR_META}, {"as_sym_int": SYM_INT} ..., {"as_list": [...]} for several results; NULL: it has none */
    const char *value;
    const char *metadata; /* an object of strings */
    bool given;           /* use these two in the place of the document's */
    bool removed;         /* value is NULL, though the document has one: it was taken out of meta */
} pt2_node_text;

typedef struct pt2_graph pt2_graph;

struct pt2_graph {
    fe_graph *core;
    const char *name; /* of a subgraph; NULL: the program's own */
    pt2_graph *parent;
    uint32_t parent_node, parent_input; /* where its parent's document has it: nodes[..].inputs[..].arg.as_graph */
    pt2_graph **subgraphs;              /* in the order of the document; each name once */
    uint32_t subgraph_count;
    yyjson_val *json;    /* its Graph, NULL: made by an edit */
    pt2_origin *origins; /* by node id, for the nodes that the reader made */
    uint32_t origin_count;
    pt2_object *objects; /* by object index */
    uint32_t object_count;
    yyjson_val *calls; /* of the program's own graph: in the place of the document's module_call_graph, in whose names
                                   it is; NULL: that one */
    const pt2_node_text *texts; /* by node id, or NULL; for verify.c and write.c */
    uint32_t text_count;
};

typedef enum {
    PT2_PAYLOAD_TENSOR,
    PT2_PAYLOAD_PICKLED, /* a tensor subclass: a torch.save blob */
    PT2_PAYLOAD_CUSTOM,  /* custom_obj_N: a TorchBind object */
    PT2_PAYLOAD_OPAQUE,  /* opaque_obj_N: a pickle */
} pt2_payload_kind;

/* A weight or constant of layout A. */
typedef struct {
    const char *name;
    size_t name_len;
    uint8_t kind;
    bool is_param, requires_grad;
    const pt2_entry *entry;
    int32_t dtype, layout; /* ScalarType, Layout */
    uint32_t ndim;
    const int64_t *sizes, *strides; /* in elements */
    int64_t offset;
    const char *device; /* cpu, cuda:0 */
    yyjson_val *json;   /* its PayloadMeta */
} pt2_payload;

typedef struct {
    const pt2_entry *entry; /* the config document; NULL: none (layouts B and C) */
    pt2_json config;
    pt2_payload *items;
    uint32_t count;
    const pt2_entry *pickle; /* layouts B, C: a torch.save of all of them; NULL: none */
} pt2_payloads;

typedef struct {
    const char *key; /* as written: s17, s17 + 1 */
    fe_expr expr;    /* see expr.h */
    bool seen;       /* it is met in the expressions of the program: torch lists only such */
    bool has_min, has_max;
    int64_t min, max;
} pt2_range;

/* What is said of one that is a symbol alone and not seen: by reading and verifying alike, so that it counts once. */
#define PT2_UNSEEN_RANGE "there is a range for %.200s, which no size, stride or number depends on; torch drops it"

typedef enum { PT2_LAYOUT_A, PT2_LAYOUT_B, PT2_LAYOUT_C } pt2_layout;

typedef struct {
    const fe_allocator *allocator;
    fe_arena arena;       /* of everything small below */
    pt2_archive *archive; /* borrowed */
    pt2_layout layout;
    const char *model;              /* name of the model: models/MODEL.json */
    const pt2_entry *model_entry;   /* the document's */
    const pt2_entry *sample_inputs; /* NULL: none */
    pt2_json json;                  /* the ExportedProgram */
    pt2_payloads weights, constants;
    fe_exprs *exprs; /* borrowed: the pool of the expressions */
    pt2_graph *root;
    pt2_range *ranges;
    uint32_t range_count;
} pt2_program;

/* ---- open.c ---- */

/* The models of an archive, by name, in order; a layout C archive has one, "model". Names point into the entries. */
typedef int (*pt2_model_visitor)(void *ctx, const char *name, size_t len);
int pt2_each_model(const pt2_archive *archive, pt2_model_visitor visit, void *ctx);

/* Find the layout, check the marker entries, parse and check the documents of one model and its payload tables. On failure there
 * is no program. NULL model: "model", or the only one. */
pt2_program *pt2_program_open(pt2_archive *archive, const char *model, fe_exprs *exprs, const fe_allocator *a,
                              pt2_report *r);
void pt2_program_free(pt2_program *p); /* not the cores that the owner has taken (core = NULL); NULL is allowed */
/* Weights and constants only, without a look at the program: the model's name, the payload tables, and the marker entries
 * that tell how they are to be read. What it gives has no graph and no document. NULL: failed. */
pt2_program *pt2_program_open_payloads(pt2_archive *archive, const char *model, const fe_allocator *a, pt2_report *r);

/* ---- read.c ---- */

/* Build the graphs, the signature and the ranges of an opened program. */
int pt2_program_read(pt2_program *p, const fe_reserved *reserved, pt2_report *r) FE_MUST_CHECK;

/* Whether a NamedArgument of a node with this target is read into args, not kwargs: its kind is not all that counts. */
bool pt2_is_positional(const char *target, size_t target_len, yyjson_val *json);

/* ---- verify.c ---- */

typedef enum {
    PT2_LENIENT, /* what would keep torch from loading the program, or make it wrong */
    PT2_STRICT,  /* and all that torch's exporter would not have written */
    PT2_NEW, /* as PT2_LENIENT, of a program that is in no file yet: the values are what its owner has just looked up */
} pt2_level;

/* Check a program whose graphs are `root` (p->root, or the owner's view of them after edits). Adds every fault. */
int pt2_program_verify(const pt2_program *p, const pt2_graph *root, pt2_level level, pt2_report *r) FE_MUST_CHECK;

/* ---- check.c ---- */

/* Read the entries that opening has not read whole (weights, constants, sample inputs, extra files, other models) once
 * each to their ends and check their CRCs, in the order of the archive, in constant memory. bytes: how many in all, 0: no
 * limit; an entry larger than what is left is passed over. When weights and constants together are more, none of them is
 * read: each is then checked by whoever touches it. */
int pt2_program_check_payloads(pt2_program *p, uint64_t bytes, pt2_report *r) FE_MUST_CHECK;
/* Open, read and verify one model of an archive, or (model NULL) all of them, and with `contents` read every entry to its
 * end. Adds every fault; -1 when there is an error, or no memory. */
int pt2_check(pt2_archive *archive, const char *model, pt2_level level, bool contents, const fe_reserved *reserved,
              const fe_allocator *a, pt2_report *r) FE_MUST_CHECK;

/* ---- write.c ---- */

/* The model.json of a program with these graphs. What did not change is written as it was. */
int pt2_program_write(const pt2_program *p, const pt2_graph *root, fe_buffer *out, pt2_report *r) FE_MUST_CHECK;

/* ---- paths ---- */

/* Call with the path of a graph's document, or of a node's: $.graph_module.graph.nodes[3]. Chains live on the stack of the caller. */
typedef int (*pt2_with_path)(void *ctx, const pt2_path *path);
int pt2_graph_path(const pt2_graph *g, pt2_with_path call, void *ctx);
int pt2_node_path(const pt2_graph *g, uint32_t id, pt2_with_path call, void *ctx);

#endif
