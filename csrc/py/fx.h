/* fx.h - raw access to live torch.fx graphs, shared by the fx_*.c files.
 *
 * torch.fx keeps the fields of a node in C slots; fx_layout.c finds their offsets. Reading a slot runs no Python code and
 * is what makes these files fast. The rules that make it safe:
 *   - a slot may be NULL or hold anything, for a user can delete it or assign to it: look before use;
 *   - a borrowed object is good until Python code can run: at a call, at the release of an object, at the allocation of an
 *     object that the collector tracks, at a comparison of dict keys that are not of an exact type we know;
 *   - what has to last longer is kept in a snapshot, which holds references.
 */
#ifndef FE_FX_H
#define FE_FX_H

#include "module.h"
#include "pass.h"

/* ---- slots ------------------------------------------------------------------------------------------------------ */

static inline PyObject **fx_slot(PyObject *node, Py_ssize_t offset)
{
    return (PyObject **)(void *)((char *)node + offset);
}

static inline PyObject *fx_get(PyObject *node, Py_ssize_t offset)
{
    return *fx_slot(node, offset);
}

static inline bool fx_is_erased(const fx_layout *l, PyObject *node)
{
    return *((char *)node + l->erased);
}

static inline bool fx_is_node(const fx_layout *l, PyObject *o)
{
    return Py_TYPE(o) == l->node_type || PyType_IsSubtype(Py_TYPE(o), l->node_type);
}

/* Whether a node is hashed and compared by identity, so that dicts and sets can hold it without running Python code. */
static inline bool fx_is_plain(const fx_layout *l, PyObject *node)
{
    return Py_TYPE(node) == l->node_type ||
           (Py_TYPE(node)->tp_hash == l->node_type->tp_hash &&
            Py_TYPE(node)->tp_richcompare == l->node_type->tp_richcompare && fx_is_node(l, node));
}

/* ---- fx_layout.c: the shape of torch.fx's objects ------------------------------------------------------------------- */

/* 0 when the layout is known and graph is a torch.fx graph with a root node (new reference in *root), else -1. */
int fx_check_graph(const module_state *st, PyObject *graph, PyObject **root);
fe_op fx_op(const module_state *st, PyObject *op); /* FE_OP_UNKNOWN: none that a node in a graph may have */
/* A list of hooks of the graph's owning module: 1 when there are any, 0, or -1. */
int fx_has_hooks(PyObject *graph, const char *name);
/* A graph's _len. Setting it to an int that is there already can't fail. */
int fx_get_length(const module_state *st, PyObject *graph, Py_ssize_t *out);
int fx_set_length(const module_state *st, PyObject *graph, PyObject *length);
/* The parts of a graph that bulk edits write to; new references. */
typedef struct {
    PyObject *table;                             /* find_nodes: (op, target or None) -> dict of nodes */
    PyObject *used_names, *base_count, *objects; /* a namespace: set, name -> count, node -> name */
    PyObject *namespace;
} fx_tables;
int fx_tables_get(PyObject *graph, fx_tables *t); /* -1 with an exception when they are not what torch.fx makes */
void fx_tables_clear(fx_tables *t);

/* ---- fx_args.c: argument trees ------------------------------------------------------------------------------------------ */

/* What is no node for sure; what a node may be in, besides slices. */
#define FX_NO_NODE (Py_TPFLAGS_LONG_SUBCLASS | Py_TPFLAGS_UNICODE_SUBCLASS)
#define FX_CONTAINER (Py_TPFLAGS_TUPLE_SUBCLASS | Py_TPFLAGS_LIST_SUBCLASS | Py_TPFLAGS_DICT_SUBCLASS)

typedef int fx_visit(void *ctx, PyObject *node);

/* Visit the nodes in a tree in order, as often as it names them, until a visit returns other than 0; the result of the last
 * visit, or -1 with RecursionError when the tree is too deep. */
int fx_each_node(const fx_layout *l, PyObject *o, fx_visit *visit, void *ctx);
int fx_names_node(const fx_layout *l, PyObject *o); /* 1 when a tree names any node, 0, or -1 with RecursionError */

/* ---- fx_snapshot.c: the nodes of a graph at one moment ---------------------------------------------------------------- */

/* What some nodes call: an opcode and a target, told apart by identity. */
typedef struct {
    PyObject *op, *target; /* strong */
    PyObject *listed; /* strong: the dict of find_nodes' table that holds its nodes; NULL: not looked up, or none */
    uint32_t nodes;   /* in the snapshot */
    uint32_t flags;   /* fe_target_flag */
    uint8_t code;     /* fe_op */
    bool known;       /* listed is looked up */
    bool asked;       /* flags are set */
} fx_call;

typedef struct {
    fx_call *items;
    uint32_t count, capacity;
    uint32_t *slots, mask;
} fx_calls;

/* The call of a node's slots, made when new; runs no Python code. -1 with an exception when memory runs out. */
int fx_calls_get(const module_state *st, fx_calls *c, PyObject *op, PyObject *target, uint32_t *out);
/* Find the dict of find_nodes' table where nodes of a call are listed; with make, add a missing one. Runs Python code. */
int fx_call_find_listed(PyObject *table, fx_call *call, bool make);
void fx_calls_clear(const module_state *st, fx_calls *c);

typedef struct {
    module_state *st;
    const fe_allocator *memory;
    PyObject *graph, *root; /* strong */
    PyObject **nodes;       /* in order; then others that were added */
    uint32_t count, total, capacity;
    uint32_t *call, call_capacity; /* by node, an index into calls */
    fx_calls calls;
    uint32_t *slots, mask; /* hash table of the nodes' indexes by address */
    size_t links;          /* of the list, those of erased nodes too */
    Py_ssize_t length;     /* _len */
    bool held;             /* nodes are strong references; else they are good until Python code can run */
    bool regular;          /* the list reads the same both ways, without erased nodes, and _len is right */
} fx_snapshot;

/* Take a snapshot; its nodes are not held yet. Runs no Python code between the first node and the last. Clear a snapshot
 * also after a failure. */
int fx_snapshot_take(fx_snapshot *s, module_state *st, PyObject *graph);
/* A snapshot of given objects instead of a list, in their order, held; each must be a torch.fx.Node. */
int fx_snapshot_of(fx_snapshot *s, module_state *st, PyObject *graph, PyObject *const *nodes, Py_ssize_t count);
/* For one who walks along the list himself: an empty snapshot, to which he adds nodes that are not held. */
int fx_snapshot_begin(fx_snapshot *s, module_state *st, PyObject *graph);
int fx_snapshot_restart(fx_snapshot *s); /* empty it, but keep the calls */
int fx_snapshot_push(fx_snapshot *s, PyObject *node);
void fx_snapshot_hold(fx_snapshot *s);                              /* make the nodes strong references */
int fx_snapshot_add(fx_snapshot *s, PyObject *node, uint32_t *out); /* a node that is not in the list */
void fx_snapshot_clear(fx_snapshot *s);                             /* may run Python code */

/* A walk along a graph's list of nodes, as torch's own iterator goes: erased ones are passed over. */
typedef struct {
    fx_snapshot *s;
    PyObject *before, *turtle;
    size_t jump;
    bool failed;
} fx_walk;

PyObject *fx_walk_next(fx_walk *w); /* borrowed; NULL at the end, or with an exception and failed set */

/* A hash table of indexes with room for some, all EMPTY_SLOT; NULL with an exception. */
uint32_t *fx_new_slots(const fe_allocator *a, size_t room, uint32_t *mask);

static inline uint32_t fx_hash(const void *p)
{
    return (uint32_t)(((uint64_t)(uintptr_t)p * UINT64_C(0x9e3779b97f4a7c15)) >> 32);
}

/* The index of a node, or FE_NONE_ID. */
static inline uint32_t fx_snapshot_find(const fx_snapshot *s, const PyObject *node)
{
    for (uint32_t i = fx_hash(node) & s->mask;; i = (i + 1) & s->mask) {
        uint32_t at = s->slots[i];
        if (at == EMPTY_SLOT || s->nodes[at] == node)
            return at;
    }
}

/* ---- fx_names.c: nodes that share a name --------------------------------------------------------------------------------- */

typedef struct {
    const fx_snapshot *s;
    uint32_t *hashes, hash_capacity;            /* of names, by node */
    uint32_t *slots, mask, count;               /* hash table of the nodes by name */
    uint32_t *twins, twin_count, twin_capacity; /* pairs: a node, and an earlier one with its name */
    bool odd;                                   /* some names are no exact strings, and left out */
} fx_names;

int fx_names_begin(fx_names *t, const fx_snapshot *s, size_t room);
int fx_names_enter(fx_names *t, uint32_t index); /* the nodes in order; runs no Python code */
int fx_names_enter_odd(fx_names *t);             /* begin again, by Python's own rules; nodes must be held */
void fx_names_clear(fx_names *t, const fe_allocator *a);

/* ---- fx_listings.c: torch's find_nodes table, read along with the list ------------------------------------------------------ */

/* A dict of nodes in the table. */
typedef struct {
    PyObject *dict; /* strong */
    Py_ssize_t at;
    PyObject *next; /* borrowed: the first node not met yet */
} fx_listing;

typedef struct {
    PyObject *by_op[FE_OP_COUNT]; /* strong: where nodes that call no function are listed */
    fx_listing *items;            /* by call when that is a function, else by opcode, behind those */
    uint32_t count;               /* of calls */
} fx_listings;

/* Enter into the calls of a snapshot what the table lists: functions, methods and modules, and attributes when wanted. */
int fx_listings_read(fx_listings *t, fx_snapshot *s, PyObject *table, bool attributes);
int fx_listings_open(fx_listings *t, const fx_snapshot *s); /* before a walk */
/* Whether the table lists a node; it is mostly the next one. Runs no Python code for a plain node. */
int fx_listings_find(fx_listings *t, const fx_snapshot *s, uint32_t index);
void fx_listings_clear(fx_listings *t);

/* ---- fx_view.c: what a pass needs to see of a live graph, in the core's form ------------------------------------------- */

typedef struct {
    bool lint;      /* names, the find_nodes table, targets */
    bool fx_only;   /* targets only as torch.fx's lint looks at them: when there is an owning module */
    bool facts;     /* about targets, and calls where they depend on arguments */
    bool fx_policy; /* only the facts that torch.fx's policy looks at */
    bool operands;
    bool operands_if_writes; /* operands when some node may write */
    bool uses;               /* operands from arguments, and whether users and arguments agree */
    bool bare;               /* a bare core will do (see fe_graph) */
} fx_wants;

/* Node i of the snapshot has the id i + 1 in the core, also those that are not in the list but used by one that is; call
 * i is target i. Nodes are not held. */
typedef struct {
    fx_snapshot s;
    PyObject *owner;                /* strong: the owning module, or None */
    GraphObject *g;                 /* strong: a graph of ours that holds what is read */
    fe_graph *core;                 /* of g */
    uint32_t *users, user_capacity; /* by node: how many users it says it has */
    uint64_t *sums;                 /* by node, for uses: over its users, less over what names it */
    uint32_t sum_capacity;
    int look;     /* there is an owning module to look targets up in */
    bool plain;   /* all nodes are */
    bool forward; /* some operand stands after its user */
    bool suspect; /* for uses: something is wrong with users, arguments or operand lists */
} fx_view;

/* ---- fx_uses.c: operands from arguments, and whether users agree with them ---- */

typedef struct {
    uint32_t *defs, count, capacity; /* operands of the node being read: ids */
    uint32_t *seen, seen_capacity;   /* by node: 1 + the index of the last node that was found to name it */
    int depth;
} fx_uses;

int fx_uses_begin(fx_uses *u, fx_view *v, size_t room);
/* Read the operands of the newest node of the view's core, and sum up uses. */
int fx_uses_read(fx_uses *u, fx_view *v, uint32_t index);
void fx_uses_clear(fx_uses *u, const fe_allocator *a);

static inline uint32_t fx_view_id(uint32_t index)
{
    return index + 1;
}

/* 0, or -1 with an exception; clear the view in both cases. */
int fx_view_open(fx_view *v, module_state *st, PyObject *graph, const fx_wants *wants);
void fx_view_clear(fx_view *v);
/* Whether every node has as many users as the arguments of the nodes tell. */
bool fx_view_is_settled(const fx_view *v);
/* For uses: whether users and arguments agree everywhere. */
bool fx_view_is_even(const fx_view *v);

/* ---- fx_lint.c ------------------------------------------------------------------------------------------------------------ */

/* A fault as (fault name, node name, operand name or None, message). */
PyObject *fx_fault(fx_view *v, const fe_record *fault);

/* ---- fx_erase.c, fx_replace.c ----------------------------------------------------------------------------------------------- */

/* Erase nodes in the order given; no hooks are called. All or nothing. */
int fx_erase_nodes(module_state *st, PyObject *graph, PyObject *const *nodes, uint32_t count);
/* For pairs of nodes old, new, one after the other: put new in the place of old in all users; no hooks are called. */
int fx_replace_pairs(module_state *st, PyObject *const *pairs, uint32_t count);

/* ---- fx_record.c, fx_code.c: what code is generated from --------------------------------------------------------------------- */

/* What a record has of each node. */
typedef enum {
    FX_ROW_NODE,
    FX_ROW_OP,
    FX_ROW_TARGET,
    FX_ROW_NAME,
    FX_ROW_ARGS,
    FX_ROW_KWARGS,
    FX_ROW_USED,
    FX_ROW,
} fx_row;

/* The bytes of an exact ASCII string, or NULL; o may be NULL. */
static inline const char *fx_ascii(PyObject *o, size_t *len)
{
    if (!o || !PyUnicode_CheckExact(o) || !PyUnicode_IS_COMPACT_ASCII(o))
        return NULL;
    *len = (size_t)PyUnicode_GET_LENGTH(o);
    return (const char *)PyUnicode_1BYTE_DATA(o);
}

/* Whether some bytes are a Python identifier of ASCII letters, which a keyword is too. */
static inline bool fx_is_word(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool letter = (s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') || s[i] == '_';
        if (!letter && (i == 0 || s[i] < '0' || s[i] > '9'))
            return false;
    }
    return n > 0;
}

/* ---- functions of the module ------------------------------------------------------------------------------------------------ */

PyObject *fx_configure(PyObject *m, PyObject *const *args, Py_ssize_t nargs);
PyObject *fx_read(PyObject *m, PyObject *const *args, Py_ssize_t nargs);
PyObject *fx_build(PyObject *m, PyObject *const *args, Py_ssize_t nargs);
PyObject *fx_copy(PyObject *m, PyObject *const *args, Py_ssize_t nargs);
PyObject *fx_erase(PyObject *m, PyObject *const *args, Py_ssize_t nargs);
PyObject *fx_replace_all_uses(PyObject *m, PyObject *const *args, Py_ssize_t nargs);
PyObject *fx_insert(PyObject *m, PyObject *const *args, Py_ssize_t nargs);
PyObject *fx_lint(PyObject *m, PyObject *const *args, Py_ssize_t nargs);
PyObject *fx_eliminate_dead_code(PyObject *m, PyObject *const *args, Py_ssize_t nargs);
PyObject *fx_eliminate_getitems(PyObject *m, PyObject *const *args, Py_ssize_t nargs);
PyObject *fx_record(PyObject *m, PyObject *const *args, Py_ssize_t nargs);
PyObject *fx_revive(PyObject *m, PyObject *const *args, Py_ssize_t nargs);
PyObject *fx_revive_graph(PyObject *m, PyObject *const *args, Py_ssize_t nargs);
PyObject *fx_is_sorted(PyObject *m, PyObject *const *args, Py_ssize_t nargs);
extern const char fx_configure_doc[], fx_read_doc[], fx_build_doc[], fx_copy_doc[], fx_erase_doc[],
    fx_replace_all_uses_doc[], fx_insert_doc[], fx_lint_doc[], fx_eliminate_dead_code_doc[],
    fx_eliminate_getitems_doc[], fx_record_doc[], fx_revive_doc[], fx_revive_graph_doc[], fx_is_sorted_doc[];

/* A fast function's arguments: their number checked. */
static inline int fx_arguments(const char *function, Py_ssize_t nargs, Py_ssize_t want)
{
    if (nargs == want)
        return 0;
    PyErr_Format(PyExc_TypeError, "%s() takes exactly %zd arguments (%zd given)", function, want, nargs);
    return -1;
}

#endif
