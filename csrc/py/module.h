/* module.h - what the files of the binding share: module state, the object layouts, and the functions between files.
 *
 * Two rules keep Python code, which may run at any call or allocation, from pulling the core away under our feet:
 *   - whoever walks core memory while Python objects are made pins the graph (graph_pin); edits of a pinned graph raise;
 *   - an edit first converts all its Python arguments, then changes the core without calling Python, then releases what
 *     the graph no longer refers to (graph_sweep).
 */
#ifndef FE_MODULE_H
#define FE_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include "pass.h"

/* Where torch.fx keeps what in its nodes; found and checked by fx_configure (fx_layout.c). */
typedef struct {
    PyTypeObject *node_type; /* torch.fx.Node; NULL: the layout is unknown, only the public API may be used */
    Py_ssize_t erased, prev, next, graph, name, op, target, type, input_nodes, args, kwargs, users, repr_fn, meta;
    PyCFunction prepend;     /* _NodeBase._prepend */
    PyObject *illegal_names; /* of torch.fx.graph: name -> what it would hide; borrowed from held */
    PyObject *symbols;       /* tuple: classes of raw symbols, which create_node warns of; borrowed from held */
    PyObject *overload_type; /* torch.ops' OpOverload; borrowed from held */
    PyObject *str_len;       /* "_len"; borrowed from held */
    PyObject *held;          /* tuple: keeps alive what this struct borrows */
} fx_layout;

/* Large blocks that calls on live torch.fx graphs have used, kept for the next (fx_pool.c). */
#define FX_POOL_BLOCKS 16

typedef struct {
    fe_allocator allocator;
    void *blocks[FX_POOL_BLOCKS];
    uint32_t count;
    size_t bytes;
} fx_pool;

typedef struct {
    PyTypeObject *graph_type, *node_type, *nodes_type, *nodes_iter_type, *users_type, *users_iter_type, *meta_type,
        *meta_iter_type, *insert_point_type;
    PyObject *error;                 /* fastexport.FastExportError */
    PyObject *list_type, *dict_type; /* of containers in arguments; never to be changed in place */
    PyObject *empty_dict;            /* an instance of dict_type, shared by all nodes without kwargs */
    PyObject *op_names[FE_OP_COUNT];
    PyObject *getitem;            /* operator.getitem */
    PyObject *facts;              /* Python: (op, target, owning module) -> fe_target_flag bits */
    PyObject *call_facts;         /* Python: (node) -> fe_node_flag bits, for FE_TARGET_PER_NODE targets */
    PyObject *pretty;             /* Python: target -> text, as torch.fx's Node._pretty_print_target */
    PyObject *type_repr;          /* Python: annotation -> text */
    PyObject *split_name;         /* Python: candidate that is not ASCII -> (base, number or -1, name) */
    PyObject *stem;               /* Python: callable or string -> candidate name, as torch.fx's Graph._target_to_str */
    PyObject *registered_effects; /* Python: () -> that set, or None */
    PyObject *effects;   /* the set of functions torch.fx was told to keep, or NULL while torch is not loaded */
    PyObject *nn_module; /* torch.nn.Module, once it is loaded */
    PyObject *holder;    /* Holder of _graph_module.py, once that is loaded: the base of modules of ours */
    PyObject *str_nn_module, *str_holder, *str_getattr, *str_getattribute, *str_parameters, *str_buffers, *str_modules,
        *str_is_wrapped;
    PyTypeObject *archive_type, *program_type, *storage_type, *tensor_type, *expr_type, *matches_type;
    PyObject *format_error;    /* Python: list of faults -> the exception to raise */
    PyObject *make_object;     /* Python: (kind, code, text) of a pt2_object -> the object that stands for it */
    PyObject *describe_object; /* Python: object -> (kind, code, text), or None */
    PyObject *described_types; /* tuple: the classes of objects that make_object gives */
    PyObject *decode_meta;     /* Python: (metadata, value) of a file -> dict: the meta of a node */
    PyObject *encode_meta;     /* Python: the meta of a node -> (value or None, metadata) as JSON texts */
    PyObject *identity;        /* Python: x -> x */
    PyObject *str_fields, *str_custom_repr, *str_stack_trace; /* interned attribute names */
    PyTypeObject *proxy_type, *attribute_type, *recorder_type;
    /* Told by use_proxies (proxy.c); NULL before. */
    PyObject *proxy_class, *attribute_class; /* of proxies that are made */
    PyObject *appending_tracer;              /* Python: Graph -> the tracer of a Proxy that was made without one */
    PyObject *plain_types;                   /* frozenset: types of arguments that are kept as they are */
    PyObject *meta_preserved;                /* Python: () -> whether torch.fx wants new nodes to take over meta */
    PyObject *classify;                      /* Python: function of torch -> what it is recorded as, or None */
    PyObject *torch_function;                /* Python: what __torch_function__ does where C can't */
    PyObject *proxy_operators;               /* tuple: functions of the module operator */
    PyObject *builtin_getattr;
    PyObject *str_create_proxy, *str_create_arg, *str_records_directly, *str_module_path, *str_module_type,
        *str_nn_module_stack, *str_node, *str_copy, *str_call;
    fe_reserved reserved;
    fx_layout fx;
    fx_pool pool;
} module_state;

typedef struct NodeObject NodeObject;
typedef struct loaded loaded; /* what ties a graph to the file it was read from: see loaded.c */

typedef struct {
    PyObject_HEAD
    fe_graph *core;
    module_state *state; /* lives as long as the type of this object */

    PyObject **objects; /* strong, by the core's object index; NULL where the index is free */
    uint32_t object_capacity;
    uint32_t *object_slots; /* hash table from identity to index, EMPTY_SLOT where free */
    uint32_t object_mask, object_used;

    PyObject *meta_index; /* dict: meta key -> number */
    PyObject *meta_keys;  /* list: the keys by number */

    NodeObject **handles; /* borrowed: the one Node object of an id, or NULL */
    uint32_t handle_capacity;

    PyObject *owning_module; /* or NULL */
    PyObject *subgraphs;     /* dict: path of a GraphModule in the owning module -> Graph; or NULL */
    PyObject *extras;        /* dict: what else a torch.fx graph carries (codegen, tracer ...); or NULL */
    PyObject *observer;      /* is told of new nodes and of replacements; or NULL: see observe.c */
    loaded *loaded;          /* NULL: not read from a file */
    PyObject *weakrefs;
    uint32_t pins;
    bool busy; /* a pass runs on it without the GIL */
} GraphObject;

struct NodeObject {
    PyObject_HEAD
    GraphObject *graph;
    uint32_t id;
    PyObject *weakrefs;
};

#define EMPTY_SLOT UINT32_MAX

extern struct PyModuleDef fe_module_def;

static inline module_state *state_of(PyObject *module)
{
    return (module_state *)PyModule_GetState(module);
}

/* Attribute of an object, or NULL without an exception when it has none: 1, 0, or -1. */
static inline int lookup_attr(PyObject *o, PyObject *name, PyObject **out)
{
#if PY_VERSION_HEX >= 0x030D0000
    return PyObject_GetOptionalAttr(o, name, out);
#else
    return _PyObject_LookupAttr(o, name, out);
#endif
}

/* ---- args.c ---- */

/* The parameters of a FASTCALL | KEYWORDS function. */
typedef struct {
    const char *function;
    const char *const *names; /* NULL at the end */
    int required, positional; /* how many must be given; how many may be given without a keyword */
} parameters;

/* Sort a call's arguments into out, by parameter, borrowed; one not given is NULL. */
int parse_call(const parameters *p, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, PyObject **out);
/* Call a function of a Python module of ours with self before the other arguments. */
PyObject *call_python_in(const char *where, PyObject *self, const char *name, PyObject *args, PyObject *kwargs);

/* ---- error.c ---- */

/* Raise what a core error stands for; returns NULL, so that a caller can return it. */
PyObject *raise_core(const module_state *st, const fe_error *err);

/* The same for functions that return -1. */
static inline int fail_core(const module_state *st, const fe_error *err)
{
    raise_core(st, err);
    return -1;
}

/* ---- graph_object.c: life, objects and handles of a graph ---- */

/* 0 when the graph may be read: waits for a pass in another thread to end. -1 with an exception: a signal came. */
int graph_readable(GraphObject *g);
/* 0 when the graph may be changed, else -1 with an exception. */
int graph_editable(GraphObject *g);

static inline void graph_pin(GraphObject *g)
{
    g->pins++;
}

static inline void graph_unpin(GraphObject *g)
{
    g->pins--;
}

/* The index of an object, made when it is new to the graph; its core reference is the caller's to add. */
int graph_object(GraphObject *g, PyObject *object, uint32_t *out);
PyObject *graph_object_at(GraphObject *g, uint32_t index); /* borrowed */
/* Fill an empty table: the objects of a core that was built elsewhere, by their index there. */
int graph_set_objects(GraphObject *g, PyObject *objects);
/* Release what lost its last core reference. May run Python code: call it last. Keeps a raised exception. */
void graph_sweep(GraphObject *g);
/* The number of a meta key; -1 with an exception on failure. With make false, an unknown key gives FE_NONE_ID. */
int graph_meta_key(GraphObject *g, PyObject *key, bool make, uint32_t *out);
PyObject *graph_node(GraphObject *g, uint32_t id); /* new reference to the one Node object of an id; the root too */
PyObject *graph_node_list(GraphObject *g, const uint32_t *ids, uint32_t count); /* a new list of these */
/* The interned target of a Python object for an op; its facts are not yet known. */
int graph_target(GraphObject *g, fe_op op, PyObject *target, uint32_t *out);
PyObject *graph_target_object(GraphObject *g, uint32_t target); /* new reference */
/* The stem that names of a target's nodes are made from. */
int graph_target_stem(GraphObject *g, uint32_t target, PyObject *object, fe_string **out);

/* ---- loaded.c: graphs read from files ---- */

/* A node of a file gets its meta when it is first asked for; these fill it in. They may run Python code, and fail when the graph
 * can't be changed just now. */
int graph_load_meta_of(GraphObject *g, uint32_t id);
int graph_load_all_meta(GraphObject *g);

static inline int graph_load_meta(GraphObject *g, uint32_t id)
{
    return g->loaded ? graph_load_meta_of(g, id) : 0;
}

void graph_skip_meta(GraphObject *g, uint32_t id); /* it is about to be replaced as a whole */
int loaded_traverse(const loaded *l, visitproc visit, void *arg);
void loaded_free(loaded *l);
/* Tie a copy to the file its source came from; node_map gives the ids in the copy. */
int loaded_copy(GraphObject *copy, const GraphObject *from, const uint32_t *node_map);

/* ---- observe.c: a graph's observer, and meta handed over ---- */

/* Tell the observer, if there is one. Runs Python code. */
int graph_tell_created(GraphObject *g, uint32_t id);
int graph_tell_replaced(GraphObject *g, PyObject *old, PyObject *new); /* before it is done; both are Nodes of g */

/* What a propagate_meta argument asks for. */
typedef enum {
    PROPAGATE_NONE,
    PROPAGATE_TO_EMPTY, /* True: all of it, to a node without meta, as torch.fx */
    PROPAGATE_BY_POLICY
} meta_propagation;

int propagation_from_python(PyObject *o, meta_propagation *out);    /* o NULL: not given */
int propagate_meta(PyObject *old, PyObject *new, PyObject *policy); /* by a policy; runs Python code */

/* ---- value.c ---- */

/* Convert a Python argument. Nodes must be listed nodes of g. On failure nothing is left behind. May run Python code. */
int value_from_python(GraphObject *g, PyObject *o, fe_value *out);
/* A tuple of arguments, or a dict of keyword arguments; an empty one gives NULL. */
int seq_from_args(GraphObject *g, PyObject *args, fe_seq **out);
int seq_from_kwargs(GraphObject *g, PyObject *kwargs, fe_seq **out);
PyObject *value_to_python(GraphObject *g, fe_value v); /* the graph must be pinned */
PyObject *args_to_python(GraphObject *g, const fe_seq *args);
PyObject *kwargs_to_python(GraphObject *g, const fe_seq *kwargs);
/* As value_from_python, but the caller tells what is a node, and whether any tuple keeps its class: the resolver returns 1 and
 * sets *out for a node, 0 for anything else, -1 with an exception. */
typedef int (*node_resolver)(void *ctx, PyObject *o, fe_value *out);
int value_from_python_with(GraphObject *g, PyObject *o, node_resolver nodes, void *ctx, bool exact_tuples,
                           fe_value *out);
fe_string *string_from_python(GraphObject *g, PyObject *str); /* NULL with an exception */
/* The same of a name; one with a lone surrogate is a ValueError that tells it. what: such as "name of a node". */
fe_string *name_from_python(GraphObject *g, PyObject *str, const char *what);
void raise_lone_surrogate(const char *what, PyObject *text); /* in the place of a UnicodeEncodeError, if it is one */
PyObject *string_to_python(const fe_string *s);

/* ---- facts.c ---- */

/* Bring the facts of all targets, and of the calls that need it, up to date; runs Python code. */
int graph_refresh_facts(GraphObject *g);
int graph_refresh_node(GraphObject *g, uint32_t id); /* the same for what one node's effect depends on */
int refresh_effects(module_state *st);               /* st->effects, once torch is loaded */
/* Call a function of fastexport._facts, which answers with flags. */
int facts_ask(PyObject *function, PyObject *const *args, size_t count, uint32_t *out);
/* Add what holds of a function that torch.fx was told to keep. */
int facts_add_registered(const module_state *st, PyObject *target, uint32_t *flags);
/* The fe_node_flag bits of one call of an FE_TARGET_PER_NODE target. */
int facts_of_call(const module_state *st, PyObject *node, uint8_t *node_flags);

/* ---- owning.c ---- */

#define OWNING_PARTS 16
#define OWNING_NAMES 64

typedef struct {
    PyObject *object; /* strong */
    size_t end;       /* of its part of the path */
} owning_part;

/* Looks up paths in one module, in a row. A path has to stay in memory until the next one, or the end. */
typedef struct {
    module_state *st;
    PyObject *owner;
    const char *path;                /* the last one */
    owning_part parts[OWNING_PARTS]; /* what led to it */
    int depth;
    PyObject *names[OWNING_NAMES]; /* parts of paths, by a hash of their text; or NULL */
    PyTypeObject *type;            /* of the last module, at this version; or NULL */
    unsigned int type_version;
    bool is_plain; /* attributes of the type's instances are found as nn.Module finds them */
} owning_walk;

void owning_walk_init(owning_walk *w, module_state *st, PyObject *owner);
void owning_walk_clear(owning_walk *w);
/* What is wrong with a path: FE_TARGET_MISSING, FE_TARGET_NOT_MODULE (with modules_only, when a part is no module) or 0;
 * -1 with an exception. Runs Python code. */
int owning_resolve(owning_walk *w, const char *path, size_t len, bool modules_only);
PyObject *find_modules(PyObject *m, PyObject *args);
PyObject *resolves(PyObject *m, PyObject *args);
extern const char find_modules_doc[], resolves_doc[];

/* ---- report.c ---- */

typedef PyObject *(*node_namer)(void *ctx, uint32_t id); /* the name of a node: a new reference, or NULL */
/* Dict from the name of each node, kept or removed, to the reason. */
PyObject *report_reasons(const fe_graph *c, const fe_dce_options *o, const fe_report *removed, node_namer namer,
                         void *ctx);

/* What the text of a fault speaks of; all borrowed, operand may be None. */
typedef struct {
    PyObject *name, *operand, *op, *target;
} fault_parts;

/* The tuple (fault name, node name, operand name or None, message). */
PyObject *report_fault(fe_fault code, const fault_parts *parts);

/* ---- containers.c ---- */

typedef struct {
    PyObject *original, *copy;
} container_copy;

/* What was copied, by address: all zero at first. One serves all calls whose copies are to share. */
typedef struct {
    container_copy *slots;
    size_t capacity, count;
} container_memo;

void container_memo_clear(container_memo *memo);
/* A copy of the dicts, lists, sets and tuples in o: a new reference. */
PyObject *copy_containers(PyObject *o, container_memo *memo);
PyObject *containers_copied(PyObject *m, PyObject *o); /* the same as a function of the module */
extern const char copy_containers_doc[];

/* ---- node.c, nodes.c, users.c, meta.c, text.c, pass.c, fx_*.c -------------------------------------------------------- */

extern PyType_Spec graph_spec, node_spec, nodes_spec, nodes_iter_spec, users_spec, users_iter_spec, meta_spec,
    meta_iter_spec, insert_point_spec;

PyObject *nodes_new(GraphObject *g);
PyObject *users_new(NodeObject *n);
PyObject *meta_new(NodeObject *n);
int meta_assign(NodeObject *n, PyObject *mapping);
PyObject *meta_to_dict(GraphObject *g, uint32_t id);
/* Values for one key of the meta of nodes. All that can fail is done when they are opened, from a list of (Node, value); no
 * Python code may run from then until they are written. */
typedef struct {
    fe_meta_entry *items; /* node and value */
    uint32_t len, key;
} meta_notes;

int meta_notes_open(GraphObject *g, PyObject *key, PyObject *list, meta_notes *out);
void meta_notes_write(GraphObject *g, const meta_notes *n);
void meta_notes_close(GraphObject *g, meta_notes *n); /* runs Python code where values were dropped */
PyObject *Graph_nodes_holding(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
extern const char nodes_holding_doc[];
PyObject *Graph_meta_column(PyObject *self, PyObject *const *args, Py_ssize_t nargs); /* meta_column.c */
extern const char meta_column_doc[];
/* Text of the graph, or of one node when id is not FE_ROOT. */
PyObject *text_of(GraphObject *g, uint32_t id);

/* Methods of Graph, in pass.c. */
PyObject *Graph_eliminate_dead_code(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *Graph_eliminate_getitems(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *Graph_lint(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *Graph_names(PyObject *self, PyObject *ids);
extern const char eliminate_dead_code_doc[], eliminate_getitems_doc[], lint_doc[], names_doc[];
PyObject *report_ids(const fe_report *r, bool others); /* one column of a report as bytes */
/* Put the kept node of each pair of a report in the place of the other, which goes. function, or NULL, is given the pairs of
 * Nodes before that and tells what is to stand under "from_node"; it runs Python code, but nothing has been changed if it fails. */
int graph_merge_found(GraphObject *g, PyObject *function, const fe_report *found);

/* Methods of Graph, in cse.c, fold.c and noop.c. */
PyObject *Graph_eliminate_common_subexpressions(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *Graph_find_constants(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *Graph_remove_noops(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
extern const char eliminate_common_subexpressions_doc[], find_constants_doc[], remove_noops_doc[];

/* The arguments of all nodes, or of getitems, rendered for text.c of the core; NULL with an exception. Runs Python code. */
typedef struct rendering rendering;
rendering *rendering_new(GraphObject *g, fe_text_form form, bool getitems_only);
const fe_renderer *rendering_of(const rendering *r);
void rendering_free(rendering *r);
/* The core writes plain ASCII strings itself; all others are quoted by Python's rules about what can be printed. */
void quote_string(void *ctx, const fe_string *s, fe_buffer *out);

/* code.c */
PyObject *Graph_code(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
extern const char code_doc[];

void fx_pool_init(fx_pool *p);
void fx_pool_clear(fx_pool *p);

extern PyType_Spec proxy_spec, attribute_spec, recorder_spec; /* proxy.c, proxy_record.c */

extern const fe_allocator fe_python_allocator;
extern PyMethodDef fx_functions[];
extern PyMethodDef dialect_functions[]; /* dialect.c */
extern PyMethodDef match_functions[];   /* match.c */
extern PyType_Spec matches_spec;
extern PyMethodDef proxy_functions[];           /* proxy.c */
extern PyMethodDef interpret_functions[];       /* interpret.c */
extern PyMethodDef diff_functions[];            /* diff.c */
extern PyMethodDef order_functions[];           /* order.c */
extern PyMethodDef level_functions[];           /* levels.c */
extern PyMethodDef layout_functions[];          /* layout.c */
extern PyMethodDef explorer_functions[];        /* explorer.c */
PyObject *fx_sort(PyObject *m, PyObject *args); /* fx_sort.c */
extern const char fx_sort_doc[];

#endif
