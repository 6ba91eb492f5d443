/* ir.h - the whole IR: types, invariants, and every function of the core, grouped by the file it lives in.
 *
 * A graph is an ordered list of nodes. A node applies an operation (op, target) to arguments; an argument is a tree of
 * values whose leaves are constants or other nodes. What the core need not understand (a dtype, a user's object) is an
 * `object`: an index into a table that the graph's owner keeps.
 *
 *        nodes[0] root <-> placeholder <-> call_function <-> ... <-> output <-> root      (prev / next, pos grows)
 *                                 |  ^                ^
 *                      args tree  |  |  edges: one for each distinct operand of a node, in order of first use
 *                                 v  |
 *                           fe_seq of fe_value          an edge is also a link of its operand's list of users
 *
 * Invariants, each checked by fe_lint (lint.c):
 *   - at most one output, last; every operand stands before its user, in the same graph;
 *   - an edge (operand, user, count) exists exactly when the user's args and kwargs name the operand count times;
 *     users are in the order in which torch.fx would have them;
 *   - names are unique; pos grows along the list; an erased node is in no list.
 *
 * Ids are indexes into `nodes`, never reused; 0 is the root, a sentinel that closes the list. Pointers into the arrays
 * of a graph are good until the next call that can create something. Everything a graph refers to lives in its arena
 * and goes with it. A graph is not locked: its owner lets one thread in at a time.
 */
#ifndef FE_IR_H
#define FE_IR_H

#include "base.h"

#define FE_ROOT 0u
#define FE_NONE_ID UINT32_MAX /* no node, no object, no target, no edge */
#define FE_MAX_DEPTH 4000     /* of nested arguments: recursion over values stays within a small stack */

/* ---- types ---- */

#define FE_OPS(X)                     \
    X(PLACEHOLDER, "placeholder")     \
    X(GET_ATTR, "get_attr")           \
    X(CALL_FUNCTION, "call_function") \
    X(CALL_METHOD, "call_method")     \
    X(CALL_MODULE, "call_module")     \
    X(OUTPUT, "output")               \
    X(ROOT, "root")

typedef enum {
#define X(id, text) FE_OP_##id,
    FE_OPS(X)
#undef X
        FE_OP_COUNT,
    FE_OP_UNKNOWN = FE_OP_COUNT /* a live graph may hold anything; lint reports it */
} fe_op;

/* As torch.fx names it; of an op below FE_OP_COUNT. */
const char *fe_op_name(fe_op op);

/* An interned string; two strings of one graph are equal exactly when their addresses are. */
typedef struct fe_string {
    uint32_t len, hash;
    uint32_t owner; /* the node that bears this name, unless it is erased; FE_NONE_ID: none. See fe_name_owner */
    uint32_t base;  /* 1 + index of its counter when it is the base of generated names, 0: none */
    bool used;      /* taken as a name, now or by a node since erased (torch.fx frees no name) */
    char data[];    /* UTF-8, and a NUL that len does not count */
} fe_string;

typedef enum {
    FE_NULL, /* no value; never stored */
    FE_NONE,
    FE_BOOL,
    FE_INT,
    FE_FLOAT,
    FE_COMPLEX,
    FE_STR,
    FE_NODE,
    FE_OBJECT,
    FE_TUPLE, /* a named tuple or torch.Size when its seq has a type */
    FE_LIST,
    FE_DICT, /* keys and values in turn; a key holds no node */
    FE_SLICE /* start, stop, step */
} fe_kind;

typedef struct fe_seq fe_seq;

/* A value owns what it points to: a tree has one owner, so edits may work in place. */
typedef struct {
    uint8_t kind; /* fe_kind */
    union {
        bool boolean;
        int64_t integer;
        double real;
        double *complex; /* two */
        fe_string *string;
        uint32_t node;
        uint32_t object;
        fe_seq *seq;
    } as;
} fe_value;

struct fe_seq {
    uint32_t len;
    uint32_t type; /* object: the tuple class to build again, or FE_NONE_ID */
    fe_value items[];
};

/* Facts about a target that passes need, given by the owner when the target enters. */
typedef enum {
    FE_TARGET_MUTATES = 1 << 0,      /* writes to an operand */
    FE_TARGET_RANDOM = 1 << 1,       /* draws from a random state */
    FE_TARGET_EFFECT = 1 << 2,       /* any other effect: assert, print, registered by the user */
    FE_TARGET_NO_RESULT = 1 << 3,    /* returns nothing, so it can only be there for an effect */
    FE_TARGET_UNKNOWN = 1 << 4,      /* nobody vouches for it */
    FE_TARGET_GETITEM = 1 << 5,      /* operator.getitem */
    FE_TARGET_FX_IMPURE = 1 << 6,    /* what torch.fx itself keeps, whatever the random policy */
    FE_TARGET_FX_RANDOM = 1 << 7,    /* what torch.fx keeps while random operators are kept */
    FE_TARGET_NOT_CALLABLE = 1 << 8, /* of a type that its op does not allow */
    FE_TARGET_MISSING = 1 << 9,      /* get_attr, call_module: not found in the owning module */
    FE_TARGET_NOT_MODULE = 1 << 10,  /* call_module: found, but no module */
    FE_TARGET_PER_NODE = 1 << 11,    /* the facts depend on arguments: see fe_node.flags */
    FE_TARGET_KNOWN = 1 << 12,       /* the flags are set */
} fe_target_flag;

/* What nodes of one op call: a string, or an object. Interned by op and identity, so passes compare indexes. */
typedef struct {
    uint8_t op;
    uint32_t flags;
    uint32_t object;      /* the callable, or FE_NONE_ID when the target is a string */
    uint32_t count;       /* its nodes in the list */
    uint32_t first, last; /* its nodes in order of arrival, brought up to date by fe_target_nodes */
    fe_string *text;      /* the string; for an object the stem that names of its nodes are made from */
} fe_target;

typedef struct {
    uint32_t def, user;  /* operand and the node that uses it */
    uint32_t count;      /* how often the user's arguments name it */
    uint32_t prev, next; /* neighbours in def's list of users */
} fe_edge;

typedef struct {
    uint32_t key;    /* of fe_graph.meta_keys, by the owner's numbering */
    uint32_t object; /* the value */
} fe_meta_entry;

typedef struct {
    uint32_t len, capacity;
    fe_meta_entry entries[];
} fe_meta;

typedef enum {
    FE_NODE_ERASED = 1 << 0,
    FE_NODE_IMPURE = 1 << 1,    /* this call has an effect that its target alone does not tell */
    FE_NODE_FX_IMPURE = 1 << 2, /* likewise, for torch.fx's policy */
    FE_NODE_OUT = 1 << 3,       /* writes to a node under "out" (in graphs read without arguments) */
    /* Only in graphs read from live torch.fx ones, which can be in such a state: */
    FE_NODE_FOREIGN = 1 << 4,  /* stands for a node of another graph */
    FE_NODE_UNLISTED = 1 << 5, /* not in torch's find_nodes table */
    FE_NODE_STALE = 1 << 6,    /* its users and their arguments disagree */

    FE_NODE_RANDOM = 1 << 7, /* like FE_NODE_IMPURE: this call draws from a random state */
} fe_node_flag;

/* What passes look at in every node; kept small, because walking a large graph is bound by memory. */
typedef struct {
    uint8_t op, flags;
    uint32_t target;
    uint32_t prev, next;
    uint32_t edge, edge_count; /* its operands: edges[edge .. edge + edge_count) */
    uint32_t user_count;       /* distinct users */
    uint64_t pos;              /* in the order of the list; 0: never listed */
} fe_node;

/* The rest of a node, under the same id. */
typedef struct {
    fe_string *name;                /* NULL only for the root and in graphs read without names */
    fe_seq *args;                   /* NULL: () */
    fe_seq *kwargs;                 /* NULL: {}; otherwise string keys and values in turn */
    fe_meta *meta;                  /* NULL: {} */
    uint32_t type;                  /* object, or FE_NONE_ID */
    uint32_t first_user, last_user; /* edges */
    uint32_t target_next;           /* the next node of the same target */
} fe_detail;

/* Memory that lives as long as a graph: blocks by size class, freed ones are used again. */
typedef struct fe_chunk fe_chunk;
#define FE_ARENA_CLASSES 64

typedef struct {
    const fe_allocator *allocator;
    fe_chunk *chunks; /* of many blocks */
    fe_chunk *large;  /* of one block each */
    char *at, *end;
    void *free[FE_ARENA_CLASSES];
    size_t bytes; /* got from the allocator */
} fe_arena;

typedef struct {
    fe_string **slots;
    uint32_t mask, count;
} fe_strings;

/* Strings that no node may take as its name; made once, shared by graphs. */
typedef struct {
    fe_arena arena;
    fe_strings strings;
} fe_reserved;

/* Where new nodes go: just before or just after the anchor. In front of the root is the end of the list. */
typedef struct {
    uint32_t anchor;
    bool after;
} fe_point;

typedef struct fe_signature fe_signature;

#define FE_EDGE_CLASSES 48

typedef struct fe_graph {
    const fe_allocator *allocator;
    fe_arena arena;

    fe_node *nodes;
    fe_detail *details;
    uint32_t node_count, node_capacity, detail_capacity; /* records: the root and erased nodes too */
    uint32_t live;                                       /* nodes in the list, the root not counted */

    fe_edge *edges;
    uint32_t edge_count, edge_capacity;
    uint32_t edge_free[FE_EDGE_CLASSES]; /* free blocks by size class, linked through `next` */

    fe_target *targets;
    uint32_t target_count, target_capacity;
    uint32_t *target_slots, target_mask; /* hash table of indexes into targets */
    bool targets_moved; /* nodes have changed their targets, and the lists of nodes don't show it yet */

    uint32_t *object_refs; /* how many places of the graph name each object */
    uint32_t object_count, object_capacity;
    uint32_t *dead_objects; /* objects whose last reference went, for the owner to take back */
    uint32_t dead_count;
    uint32_t *spare_objects; /* indexes the owner has taken back */
    uint32_t spare_count;

    fe_strings strings;
    uint32_t shared_names;       /* nodes whose name belongs to another node */
    const fe_reserved *reserved; /* borrowed; may be NULL */
    int64_t *bases;              /* counters of generated names */
    uint32_t base_count, base_capacity;

    uint32_t *scratch; /* for a function that needs an array of ids for a moment */
    uint32_t scratch_capacity;

    /* Nodes have no details and operands no lists of users, only their number: enough for lint and dead-code elimination in
     * a graph that is read for these alone, without names and arguments. */
    bool bare;

    fe_point insert;
    fe_signature *signature; /* of an exported program, or NULL */
    uint64_t version;        /* grows with every change of structure */
} fe_graph;

/* ---- arena.c ---- */

void fe_arena_init(fe_arena *a, const fe_allocator *allocator);
void fe_arena_clear(fe_arena *a);
void *fe_arena_take(fe_arena *a, size_t size); /* 8-byte aligned; NULL: no memory */
void fe_arena_give(fe_arena *a, void *block, size_t size);

/* ---- intern.c: strings and targets ---- */

fe_string *fe_string_get(fe_graph *g, const char *data, size_t len, fe_error *err); /* NULL: failed */
fe_string *fe_string_find(const fe_strings *s, const char *data, size_t len);       /* NULL: not there */
bool fe_string_is_in(const fe_strings *s, const fe_string *t);                      /* an equal string is */
int fe_reserved_init(fe_reserved *r, const fe_allocator *a);
int fe_reserved_add(fe_reserved *r, const char *data, size_t len) FE_MUST_CHECK;
void fe_reserved_clear(fe_reserved *r);

/* The target of op with this object (or, when object is FE_NONE_ID, this text), made when it is new: *is_new tells, so
 * that the owner can set its flags. A new target takes a reference to the object. */
int fe_target_get(fe_graph *g, fe_op op, uint32_t object, fe_string *text, uint32_t *out, bool *is_new,
                  fe_error *err) FE_MUST_CHECK;

/* The first node of a target, or FE_NONE_ID; go on with details[id].target_next. */
uint32_t fe_target_nodes(fe_graph *g, uint32_t target);

/* ---- object.c: references to what the owner keeps ---- */

int fe_object_new(fe_graph *g, uint32_t *out, fe_error *err) FE_MUST_CHECK; /* with no reference yet */
void fe_object_ref(fe_graph *g, uint32_t object);
void fe_object_unref(fe_graph *g, uint32_t object);
/* The next object without references, to be released by the owner; false when there is none. Its index is free then. */
bool fe_object_take_dead(fe_graph *g, uint32_t *out);

/* ---- value.c ---- */

fe_seq *fe_seq_new(fe_graph *g, size_t len, uint32_t type,
                   fe_error *err);        /* items FE_NULL; takes a reference to type */
void fe_seq_free(fe_graph *g, fe_seq *s); /* NULL is allowed */
void fe_value_free(fe_graph *g, fe_value v);
int fe_value_complex(fe_graph *g, double real, double imag, fe_value *out, fe_error *err) FE_MUST_CHECK;
/* What the ids of a tree become when it is copied into another graph; NULL: they stay. With `values`, a value of the graph that is
 * copied into takes the place of each node. */
typedef struct {
    const uint32_t *nodes, *objects;
    const fe_value *values;
} fe_value_map;

/* A copy in g of a value or tree that may belong to another graph; NULL gives NULL. */
int fe_value_copy(fe_graph *g, const fe_value_map *map, fe_value v, fe_value *out, fe_error *err) FE_MUST_CHECK;
int fe_seq_copy(fe_graph *g, const fe_value_map *map, const fe_seq *s, fe_seq **out, fe_error *err) FE_MUST_CHECK;
/* Within one graph: the same kinds, types and values in the same order; floats by their bits, so nan equals nan. Nodes
 * count as what alias, by id, says they stand for (NULL: themselves). */
bool fe_value_equal(fe_value a, fe_value b, const uint32_t *alias);
uint64_t fe_value_hash(fe_value v, const uint32_t *alias);

static inline bool fe_kind_is_seq(unsigned kind)
{
    return kind >= FE_TUPLE;
}

/* ---- name.c: torch.fx's rules for unique names ---- */

typedef struct {
    const char *base; /* of a name like base_12 */
    size_t base_len;
    const char *name; /* the candidate once illegal characters are gone */
    size_t name_len;
    int64_t number;   /* 12, or -1 */
    fe_string *known; /* the name's interned string when the caller has it, else NULL */
} fe_candidate;

/* Split an ASCII candidate as torch.fx does; buffer takes len + 2 bytes, for a candidate that has to change. */
fe_candidate fe_name_split(const char *text, size_t len, char *buffer);
/* A unique name from a split candidate, and its base's counter; fe_name_take makes them taken for good. */
typedef struct {
    fe_string *name, *base;
    int64_t count;
} fe_new_name;

int fe_name_create(fe_graph *g, fe_candidate c, fe_new_name *out, fe_error *err) FE_MUST_CHECK;
void fe_name_take(fe_graph *g, fe_new_name n);
/* What torch.fx calls snake case: a lower case letter before an upper case one gets "_" between, then all is lower. */
size_t fe_name_snake(const char *text, size_t len, char *buffer); /* buffer takes 2 * len bytes */
int fe_name_set_counter(fe_graph *g, fe_string *base, int64_t count, fe_error *err) FE_MUST_CHECK;
bool fe_name_is_keyword(const char *text, size_t len); /* a word that Python can't assign to; len > 0 */
/* Whether a name can't stand in code for sure. Characters that are not ASCII count as letters. */
bool fe_name_is_odd(const fe_string *s);

/* ---- graph.c: the list of nodes ---- */

fe_graph *fe_graph_new(const fe_allocator *a, const fe_reserved *reserved); /* NULL: no memory */
void fe_graph_free(fe_graph *g);
int fe_graph_reserve(fe_graph *g, size_t nodes, fe_error *err) FE_MUST_CHECK;

/* A node without arguments that is in no list yet. The name becomes its own unless another node bears it. */
int fe_node_new(fe_graph *g, fe_op op, uint32_t target, fe_string *name, uint32_t type, uint32_t *out,
                fe_error *err) FE_MUST_CHECK;
/* What a new node is made of. The arguments become the node's, unless making it fails. */
typedef struct {
    fe_op op;
    uint32_t target, type;
    fe_candidate name;
    fe_seq *args, *kwargs;
} fe_node_parts;

/* Make a node with a new unique name and put it at the insert point; all or nothing. */
int fe_node_create(fe_graph *g, const fe_node_parts *parts, uint32_t *out, fe_error *err) FE_MUST_CHECK;
/* Put a node into the list, or move it. The anchor must be listed; a node put at itself stays where it is. */
void fe_node_place(fe_graph *g, uint32_t id, fe_point at);
/* Take a node that has no users out of the graph. Its links, name, target and meta stay readable, and so do its
 * arguments after fe_node_forget, which puts None in the place of each node (apart, for most erased nodes are never
 * looked at again). */
void fe_node_erase(fe_graph *g, uint32_t id);
/* Give back all that an erased node refers to, once nobody can ask for it any more; its name and links stay. */
void fe_node_strip(fe_graph *g, uint32_t id);
void fe_node_forget(fe_graph *g, uint32_t id); /* of a node that is not erased: does nothing */
/* Forget the newest node, which was never listed: the way back from a build that failed. */
void fe_node_discard(fe_graph *g, uint32_t id);
void fe_node_set_name(fe_graph *g, uint32_t id, fe_string *name);
void fe_node_set_type(fe_graph *g, uint32_t id, uint32_t type);
void fe_node_set_target(fe_graph *g, uint32_t id, uint32_t target); /* and op, which the target implies */
/* The next node that is not erased, FE_ROOT at the end. From an erased node the walk goes on from where that node last
 * stood; a node put in meanwhile between it and the next one is not visited, as in torch.fx. */
uint32_t fe_node_next(const fe_graph *g, uint32_t id);
uint32_t fe_node_prev(const fe_graph *g, uint32_t id);

/* The node that bears a name, or FE_NONE_ID. */
static inline uint32_t fe_name_owner(const fe_graph *g, const fe_string *name)
{
    uint32_t owner = name->owner;

    return owner == FE_NONE_ID || g->nodes[owner].flags & FE_NODE_ERASED ? FE_NONE_ID : owner;
}

static inline bool fe_node_is_listed(const fe_graph *g, uint32_t id)
{
    return id < g->node_count && g->nodes[id].pos && !(g->nodes[id].flags & FE_NODE_ERASED);
}

/* ---- use.c: operands and users ---- */

/* Give a node new arguments and take ownership of them; NULL is empty. The node moves to the end of its operands' lists
 * of users, as in torch.fx. On failure nothing changed and the arguments are still the caller's. */
int fe_node_set_arguments(fe_graph *g, uint32_t id, fe_seq *args, fe_seq *kwargs, fe_error *err) FE_MUST_CHECK;
/* torch.fx's insert_arg: new operands go to the end of the operand list, known ones keep their places. The value
 * becomes the node's, unless this fails. */
int fe_node_insert_argument(fe_graph *g, uint32_t id, uint32_t index, fe_value value, fe_error *err) FE_MUST_CHECK;
/* In one node, or in all users of old, put new in the place of old; all or nothing. */
int fe_node_replace_operand(fe_graph *g, uint32_t id, uint32_t old, uint32_t new, fe_error *err) FE_MUST_CHECK;
int fe_node_replace_all_uses(fe_graph *g, uint32_t old, uint32_t new, fe_error *err) FE_MUST_CHECK;
/* Get the memory that replacing all uses of a node takes. After that it can't fail, however many nodes that was done for
 * and as long as arguments grow no longer. */
int fe_node_reserve_replacement(fe_graph *g, uint32_t old, fe_error *err) FE_MUST_CHECK;
/* The operands of a node in a graph read without arguments; defs are distinct. */
int fe_node_set_operands(fe_graph *g, uint32_t id, const uint32_t *defs, uint32_t count, fe_error *err) FE_MUST_CHECK;
void fe_node_drop_operands(fe_graph *g, uint32_t id);
uint32_t fe_edge_find(const fe_graph *g, uint32_t def, uint32_t user); /* or FE_NONE_ID */
void fe_edge_move_last(fe_graph *g, uint32_t edge);                    /* in its operand's list of users */
uint32_t fe_seq_node_count(const fe_seq *s);                           /* each time a tree names a node; NULL: 0 */

/* ---- meta.c ---- */

uint32_t fe_meta_get(const fe_meta *m, uint32_t key); /* object, or FE_NONE_ID */
int fe_meta_set(fe_graph *g, uint32_t id, uint32_t key, uint32_t object, fe_error *err) FE_MUST_CHECK;
bool fe_meta_delete(fe_graph *g, uint32_t id, uint32_t key); /* false: was not there */
int fe_meta_reserve(fe_graph *g, uint32_t id, uint32_t len, fe_error *err) FE_MUST_CHECK;
void fe_meta_clear(fe_graph *g, uint32_t id);

/* ---- signature.c ---- */

/* What an exported program's inputs and outputs stand for. The numbers are those of torch.export's schema. */
typedef enum {
    FE_INPUT_USER,
    FE_INPUT_PARAMETER,
    FE_INPUT_BUFFER,
    FE_INPUT_CONSTANT_TENSOR,
    FE_INPUT_CUSTOM_OBJ,
    FE_INPUT_TOKEN,
} fe_input_kind;

typedef enum {
    FE_OUTPUT_USER,
    FE_OUTPUT_LOSS,
    FE_OUTPUT_BUFFER_MUTATION,
    FE_OUTPUT_GRADIENT_TO_PARAMETER,
    FE_OUTPUT_GRADIENT_TO_USER_INPUT,
    FE_OUTPUT_USER_INPUT_MUTATION,
    FE_OUTPUT_PARAMETER_MUTATION,
    FE_OUTPUT_TOKEN,
} fe_output_kind;

/* One input or output. It names its node by id, so that renaming the node renames it here too. */
typedef struct {
    uint8_t kind;
    bool persistent;   /* of a buffer */
    uint32_t node;     /* FE_NONE_ID: a constant */
    fe_string *target; /* the parameter, buffer, constant or mutated input; NULL: none */
    fe_value value;    /* of a constant: none, a bool, int, float or string */
    fe_string *name;   /* of a constant input */
    uint32_t origin;   /* 1 + its place in the list of the file it was read from, 0: none */
} fe_spec;

/* A node that the calling convention of a preserved module names, and the name it has there. */
typedef struct {
    fe_string *name;
    uint32_t node; /* FE_NONE_ID: it was erased, and the graph has been copied since */
    uint32_t next; /* the next of the same node, or FE_NONE_ID; fe_signature_add_called sets it */
} fe_called;

struct fe_signature {
    const fe_allocator *allocator;
    fe_spec *inputs, *outputs;
    fe_called *called;
    uint32_t *called_slots; /* a hash table from nodes to their first in called, as most nodes are in none */
    uint32_t input_count, input_capacity, output_count, output_capacity, called_count, called_capacity, called_mask;
};

fe_signature *fe_signature_new(const fe_allocator *a); /* NULL: no memory */
void fe_signature_free(fe_signature *s);
int fe_signature_add_input(fe_signature *s, fe_spec spec, fe_error *err) FE_MUST_CHECK;
int fe_signature_add_output(fe_signature *s, fe_spec spec, fe_error *err) FE_MUST_CHECK;
int fe_signature_add_called(fe_signature *s, fe_string *name, uint32_t node, fe_error *err) FE_MUST_CHECK;
/* Take what another signature has in called, which has none then. */
void fe_signature_take_called(fe_signature *s, fe_signature *from);
/* An output that becomes another node has no origin any more: it may be of another kind of value. */
void fe_signature_replace_output(fe_signature *s, uint32_t old, uint32_t new);
/* Nobody uses old any more, since new has taken its place: modules are now called with new, or give it. Takes time by the
 * number of names that old has in called. */
void fe_signature_replace_called(fe_signature *s, uint32_t old, uint32_t new);
/* The output node returns something else. When the number of results stays, each output stands for the result in its place;
 * otherwise the signature stays as it is, and the verifier tells. */
void fe_signature_set_outputs(fe_signature *s, const fe_value *results, uint32_t count);
/* The same for what a node, if it is an output node, returns: a tuple or list of results, or one. A node that is listed is
 * followed by itself; whoever makes an output node says when it is there to stay. */
void fe_signature_follow(fe_graph *g, uint32_t id);
/* A user input has another name: what updates it, or is its gradient, says so by name; so does one that is a constant. */
void fe_signature_rename_input(fe_signature *s, const fe_string *old, fe_string *new);
bool fe_signature_forget_input(fe_signature *s, uint32_t node); /* its placeholder is erased; false: no input is it */
/* The same for an input that is a constant and names no node: it is known by its position among the placeholders. */
bool fe_signature_is_constant(const fe_signature *s, uint32_t position);
void fe_signature_forget_constant(fe_signature *s, uint32_t position);
/* Erase inputs, which nothing may use: gone tells by position. The signature must have an input for each placeholder.
 * Takes time by their number, where erasing one by one takes its square. */
void fe_signature_erase_inputs(fe_graph *g, const uint8_t *gone);

/* ---- copy.c: whole graphs ---- */

/* Fill the empty graph g with the nodes of `from`: same order, names, users order and signature; erased nodes
 * stay behind and their names are free again. Objects go through the map; node_map, with room for
 * from->node_count, gets the new ids (FE_NONE_ID for erased nodes). On failure g is to be freed. */
int fe_graph_copy(fe_graph *g, const fe_graph *from, const uint32_t *objects, uint32_t *node_map,
                  fe_error *err) FE_MUST_CHECK;
/* Whether two graphs do the same: ops, targets and arguments agree node by node. Names, types and meta don't count.
 * Objects are equal when their classes are. Returns 0, 1, or -1 when memory runs out. */
int fe_graph_equal(const fe_graph *a, const fe_graph *b, const uint32_t *class_a, const uint32_t *class_b,
                   fe_error *err) FE_MUST_CHECK;

#endif
