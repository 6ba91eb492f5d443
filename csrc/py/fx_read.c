/* fx_read.c - a live torch.fx graph, read into an empty Graph, exactly.
 *
 * Four walks over a snapshot: the nodes themselves, so that arguments can name any of them; arguments, type and meta;
 * the order of users; the namespace. A graph that a native one can't stand for (foreign or erased operands, users that
 * disagree with arguments) is refused by an error that names node and fault; the target is empty again then.
 *
 * The collector is off meanwhile, so that Python code can run only where it is looked out for: for meta keys that are no
 * plain strings, and in messages. Before it does the nodes are held.
 */
#include "fx.h"

#define KEY_CACHE 64 /* meta keys seen last, by address */

typedef struct {
    fx_snapshot s;
    GraphObject *g;
    PyObject *node;    /* the one being read, for messages */
    uint32_t *targets; /* by call */
    struct {
        PyObject *key; /* held by the graph's list of keys */
        uint32_t number;
    } keys[KEY_CACHE];
} reader;

/* Node i of the snapshot has this id. */
static inline uint32_t id_of(uint32_t index)
{
    return index + 1;
}

#define SEE_LINT "; fastexport.lint(graph, all=True) lists what is wrong with the graph"

static PyObject *name_of(reader *r, PyObject *node)
{
    fx_snapshot_hold(&r->s); /* what shows the name may run Python code */

    PyObject *name = fx_get(node, r->s.st->fx.name);

    return name ? name : Py_None;
}

static int missing(reader *r, const char *what)
{
    PyErr_Format(PyExc_ValueError, "node '%S' has no %s (torch.fx leaves it so when a constructor fails)" SEE_LINT,
                 name_of(r, r->node), what);
    return -1;
}

static int wrong_type(reader *r, const char *what, PyObject *value)
{
    PyErr_Format(PyExc_ValueError, "node '%S' has %.200s as its %s" SEE_LINT, name_of(r, r->node),
                 Py_TYPE(value)->tp_name, what);
    return -1;
}

static int bad_operand(reader *r, PyObject *operand)
{
    const fx_layout *l = &r->s.st->fx;
    const char *fault = fx_get(operand, l->graph) != r->s.graph ? "belongs to another graph"
                        : fx_is_erased(l, operand)              ? "is erased"
                                                                : "is not in the graph's list of nodes";

    PyErr_Format(PyExc_ValueError, "node '%S' uses '%S', which %s" SEE_LINT, name_of(r, r->node), name_of(r, operand),
                 fault);
    return -1;
}

static int bad_users(reader *r, PyObject *def)
{
    PyErr_Format(PyExc_ValueError, "the users of node '%S' and the arguments of the nodes disagree" SEE_LINT,
                 name_of(r, def));
    return -1;
}

/* A slot of the node being read: borrowed, or NULL with an exception. */
static PyObject *required(reader *r, Py_ssize_t offset, const char *what)
{
    PyObject *value = fx_get(r->node, offset);

    if (!value)
        missing(r, what);
    return value;
}

/* ---- nodes --------------------------------------------------------------------------------------------------------- */

static int read_targets(reader *r)
{
    r->targets = PyMem_RawMalloc((r->s.calls.count + 1) * sizeof *r->targets);
    if (!r->targets) {
        PyErr_NoMemory();
        return -1;
    }
    for (uint32_t i = 0; i < r->s.calls.count; i++) {
        const fx_call *call = &r->s.calls.items[i];
        if (call->code >= FE_OP_ROOT || !call->target) {
            for (uint32_t k = 0; !r->node; k++)
                r->node = r->s.call[k] == i ? r->s.nodes[k] : NULL;
            if (!call->target)
                return missing(r, "target");
            PyErr_Format(PyExc_ValueError, "node '%S' has unknown opcode %R" SEE_LINT, name_of(r, r->node),
                         call->op ? call->op : Py_None);
            return -1;
        }
        if (graph_target(r->g, (fe_op)call->code, call->target, &r->targets[i]) < 0)
            return -1;
    }
    return 0;
}

static int read_node(reader *r, uint32_t index)
{
    const fx_layout *l = &r->s.st->fx;
    const fx_call *call = &r->s.calls.items[r->s.call[index]];
    PyObject *name = required(r, l->name, "name");
    fe_error err;
    uint32_t id;

    if (!name)
        return -1;
    if (!PyUnicode_Check(name))
        return wrong_type(r, "name", name);
    if (fx_get(r->node, l->graph) != r->s.graph) {
        PyErr_Format(PyExc_ValueError, "node '%S' is in the graph's list but belongs to another graph" SEE_LINT, name);
        return -1;
    }
    fe_string *text = name_from_python(r->g, name, "name of a node");
    if (!text)
        return -1;
    if (fe_node_new(r->g->core, (fe_op)call->code, r->targets[r->s.call[index]], text, FE_NONE_ID, &id, &err) < 0)
        return fail_core(r->g->state, &err);
    fe_node_place(r->g->core, id, (fe_point){FE_ROOT, false});
    return 0;
}

/* ---- reading ahead --------------------------------------------------------------------------------------------------
 *
 * torch's nodes lie scattered, and most of the time would go by waiting for memory: for a node's dicts, for what is in
 * them, and for the reference counts of the values. So these are asked for some nodes before their turn, each step by the
 * time the one before it has arrived. Nothing is written, and what is not of the expected type is passed over.
 */

enum { FAR = 12, NEAR = 8, NEXT = 4 }; /* nodes ahead */

#define LINE 64 /* bytes that come from memory at once */

static PyObject *slot_ahead(const reader *r, uint32_t index, Py_ssize_t offset)
{
    return index < r->s.count ? fx_get(r->s.nodes[index], offset) : NULL;
}

static void fetch_object(const PyObject *o)
{
    if (o) {
        __builtin_prefetch(o);
        __builtin_prefetch((const char *)o + sizeof(PyDictObject) - 1);
    }
}

static void fetch_table(const PyObject *dict)
{
    if (dict && PyDict_Check(dict)) {
        const char *table = (const char *)((const PyDictObject *)dict)->ma_keys;
        for (size_t i = 0; i < 4; i++) /* as much as a dict of eight entries has */
            __builtin_prefetch(table + i * LINE);
    }
}

static void fetch_items(PyObject *args)
{
    for (Py_ssize_t i = 0; args && PyTuple_Check(args) && i < PyTuple_GET_SIZE(args) && i < 8; i++)
        __builtin_prefetch(PyTuple_GET_ITEM(args, i));
}

static void fetch_values(PyObject *meta)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;

    while (meta && PyDict_Check(meta) && PyDict_Next(meta, &at, &key, &value))
        __builtin_prefetch(value, 1); /* to be written: the reference count */
}

static void read_ahead(const reader *r, uint32_t index)
{
    const fx_layout *l = &r->s.st->fx;

    fetch_object(slot_ahead(r, index + FAR, l->args));
    fetch_object(slot_ahead(r, index + FAR, l->kwargs));
    fetch_object(slot_ahead(r, index + FAR, l->input_nodes));
    fetch_object(slot_ahead(r, index + FAR, l->meta));
    fetch_items(slot_ahead(r, index + NEAR, l->args));
    fetch_table(slot_ahead(r, index + NEAR, l->input_nodes));
    fetch_table(slot_ahead(r, index + NEAR, l->meta));
    fetch_values(slot_ahead(r, index + NEXT, l->meta));
}

static int read_nodes(reader *r)
{
    fe_error err;

    if (fe_graph_reserve(r->g->core, r->s.count, &err) < 0)
        return fail_core(r->g->state, &err);
    for (uint32_t i = 0; i < r->s.count; i++) {
        r->node = r->s.nodes[i];
        fetch_object(slot_ahead(r, i + NEAR, r->s.st->fx.name));
        if (read_node(r, i) < 0)
            return -1;
    }
    return 0;
}

/* ---- arguments ------------------------------------------------------------------------------------------------------- */

#define NO_NODE                                                                                                      \
    (Py_TPFLAGS_LONG_SUBCLASS | Py_TPFLAGS_LIST_SUBCLASS | Py_TPFLAGS_TUPLE_SUBCLASS | Py_TPFLAGS_UNICODE_SUBCLASS | \
     Py_TPFLAGS_DICT_SUBCLASS)

static int resolve(void *ctx, PyObject *o, fe_value *out)
{
    reader *r = ctx;

    if (Py_TYPE(o)->tp_flags & NO_NODE || !fx_is_node(&r->s.st->fx, o))
        return 0;
    uint32_t index = fx_snapshot_find(&r->s, o);
    if (index == FE_NONE_ID)
        return bad_operand(r, o);
    *out = (fe_value){.kind = FE_NODE, .as.node = id_of(index)};
    return 1;
}

/* The sequence of args or kwargs, NULL when empty. */
static int read_tree(reader *r, PyObject *container, fe_seq **out)
{
    fe_value value;

    *out = NULL;
    if (!(PyDict_Check(container) ? PyDict_GET_SIZE(container) : Py_SIZE(container)))
        return 0;
    Py_INCREF(container);
    int result = value_from_python_with(r->g, container, resolve, r, true, &value);
    Py_DECREF(container);
    if (result == 0)
        *out = value.as.seq;
    return result;
}

/* insert_arg puts new operands last, so their order can differ from that in the arguments. */
static int reorder_operands(reader *r, uint32_t id, const uint32_t *wanted)
{
    fe_graph *c = r->g->core;
    uint32_t count = c->nodes[id].edge_count;
    uint32_t *counts = PyMem_RawMalloc((count + 1) * sizeof *counts);
    fe_error err;

    if (!counts) {
        PyErr_NoMemory();
        return -1;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t e = fe_edge_find(c, wanted[i], id);
        counts[i] = e == FE_NONE_ID ? 0 : c->edges[e].count;
    }
    int result = fe_node_set_operands(c, id, wanted, count, &err);
    if (result < 0)
        fail_core(r->g->state, &err);
    for (uint32_t i = 0; result == 0 && i < count; i++)
        c->edges[c->nodes[id].edge + i].count = counts[i];
    PyMem_RawFree(counts);
    return result;
}

/* torch.fx's own list of the node's operands must hold the nodes that its arguments name. */
static int check_operands(reader *r, uint32_t id)
{
    const fe_node *n = &r->g->core->nodes[id];
    PyObject *inputs = required(r, r->s.st->fx.input_nodes, "operand list"), *key, *value;
    Py_ssize_t at = 0;
    uint32_t i = 0;

    if (!inputs)
        return -1;
    if (!PyDict_Check(inputs))
        return wrong_type(r, "operand list", inputs);
    if (PyDict_GET_SIZE(inputs) != (Py_ssize_t)n->edge_count)
        return bad_users(r, r->node);
    while (PyDict_Next(inputs, &at, &key, &value) && r->s.nodes[r->g->core->edges[n->edge + i].def - 1] == key)
        i++;
    if (i == n->edge_count)
        return 0;

    uint32_t *wanted = PyMem_RawMalloc(n->edge_count * sizeof *wanted);
    int result = wanted ? 0 : -1;
    if (!wanted)
        PyErr_NoMemory();
    for (at = 0, i = 0; result == 0 && i < n->edge_count && PyDict_Next(inputs, &at, &key, &value); i++) {
        uint32_t index = fx_snapshot_find(&r->s, key);
        wanted[i] = index == FE_NONE_ID ? FE_NONE_ID : id_of(index);
        if (index == FE_NONE_ID || fe_edge_find(r->g->core, wanted[i], id) == FE_NONE_ID)
            result = bad_users(r, r->node);
    }
    if (result == 0)
        result = reorder_operands(r, id, wanted);
    PyMem_RawFree(wanted);
    return result;
}

static int read_arguments(reader *r, uint32_t id)
{
    const fx_layout *l = &r->s.st->fx;
    PyObject *args = required(r, l->args, "args"), *kwargs = args ? required(r, l->kwargs, "kwargs") : NULL;
    fe_seq *positional, *named;
    fe_error err;

    if (!kwargs)
        return -1;
    if (!PyTuple_Check(args) && !PyList_Check(args)) /* a list that was assigned to args becomes a tuple */
        return wrong_type(r, "args", args);
    if (!PyDict_Check(kwargs))
        return wrong_type(r, "kwargs", kwargs);
    if (read_tree(r, args, &positional) < 0)
        return -1;
    if (!(kwargs = required(r, l->kwargs, "kwargs")) || read_tree(r, kwargs, &named) < 0) {
        fe_seq_free(r->g->core, positional);
        return -1;
    }
    if (fe_node_set_arguments(r->g->core, id, positional, named, &err) < 0) {
        fe_seq_free(r->g->core, positional);
        fe_seq_free(r->g->core, named);
        return fail_core(r->g->state, &err);
    }
    return check_operands(r, id);
}

/* ---- type and meta ------------------------------------------------------------------------------------------------------ */

static int read_type(reader *r, uint32_t id)
{
    PyObject *type = required(r, r->s.st->fx.type, "type");
    uint32_t object;

    if (!type)
        return -1;
    if (type == Py_None)
        return 0;
    if (graph_object(r->g, type, &object) < 0)
        return -1;
    fe_node_set_type(r->g->core, id, object);
    return 0;
}

/* The number of a meta key. Nearly always the key is an object met before. */
static int key_number(reader *r, PyObject *key, uint32_t *out)
{
    uint32_t slot = fx_hash(key) % KEY_CACHE;

    if (r->keys[slot].key == key) {
        *out = r->keys[slot].number;
        return 0;
    }
    if (!PyUnicode_CheckExact(key))
        fx_snapshot_hold(&r->s);
    if (graph_meta_key(r->g, key, true, out) < 0)
        return -1;
    if (PyList_GET_ITEM(r->g->meta_keys, *out) == key) {
        r->keys[slot].key = key;
        r->keys[slot].number = *out;
    }
    return 0;
}

static int read_entry(reader *r, uint32_t id, PyObject *key, PyObject *value)
{
    uint32_t number, object;
    fe_error err;

    if (key_number(r, key, &number) < 0 || graph_object(r->g, value, &object) < 0)
        return -1;
    return fe_meta_set(r->g->core, id, number, object, &err) < 0 ? fail_core(r->g->state, &err) : 0;
}

static int read_meta(reader *r, uint32_t id)
{
    PyObject *meta = required(r, r->s.st->fx.meta, "meta"), *key, *value;
    Py_ssize_t at = 0, size;
    fe_error err;
    int result = 0;

    if (!meta)
        return -1;
    if (!PyDict_Check(meta))
        return wrong_type(r, "meta", meta);
    if (!(size = PyDict_GET_SIZE(meta)))
        return 0;
    if (fe_meta_reserve(r->g->core, id, (uint32_t)size, &err) < 0)
        return fail_core(r->g->state, &err);
    Py_INCREF(meta);
    while (result == 0 && PyDict_Next(meta, &at, &key, &value)) {
        Py_INCREF(key);
        Py_INCREF(value);
        result = read_entry(r, id, key, value);
        Py_DECREF(key);
        Py_DECREF(value);
        if (result == 0 && PyDict_GET_SIZE(meta) != size) {
            PyErr_Format(PyExc_RuntimeError, "meta of node '%S' changed its size while it was read",
                         name_of(r, r->node));
            result = -1;
        }
    }
    Py_DECREF(meta);
    return result;
}

static int read_contents(reader *r)
{
    for (uint32_t i = 0; i < r->s.count; i++) {
        r->node = r->s.nodes[i];
        read_ahead(r, i);
        if (read_arguments(r, id_of(i)) < 0 || read_type(r, id_of(i)) < 0 || read_meta(r, id_of(i)) < 0)
            return -1;
    }
    return 0;
}

/* ---- users --------------------------------------------------------------------------------------------------------------- */

/* Reading has put users in the order of the list; where torch.fx has another order, move them. */
static int read_users(reader *r, uint32_t id)
{
    fe_graph *c = r->g->core;
    PyObject *users = required(r, r->s.st->fx.users, "users"), *key, *value;
    uint32_t e = c->details[id].first_user;
    Py_ssize_t at = 0;

    if (!users)
        return -1;
    if (!PyDict_Check(users))
        return wrong_type(r, "users", users);
    if (PyDict_GET_SIZE(users) != (Py_ssize_t)c->nodes[id].user_count)
        return bad_users(r, r->node);
    while (e != FE_NONE_ID && PyDict_Next(users, &at, &key, &value) && r->s.nodes[c->edges[e].user - 1] == key)
        e = c->edges[e].next;
    if (e == FE_NONE_ID)
        return 0;
    for (at = 0; PyDict_Next(users, &at, &key, &value);) {
        uint32_t index = fx_snapshot_find(&r->s, key);
        if (index == FE_NONE_ID || (e = fe_edge_find(c, id, id_of(index))) == FE_NONE_ID)
            return bad_users(r, r->node);
        fe_edge_move_last(c, e);
    }
    return 0;
}

static int read_all_users(reader *r)
{
    for (uint32_t i = 0; i < r->s.count; i++) {
        r->node = r->s.nodes[i];
        fetch_object(slot_ahead(r, i + FAR, r->s.st->fx.users));
        fetch_table(slot_ahead(r, i + NEAR, r->s.st->fx.users));
        if (read_users(r, id_of(i)) < 0)
            return -1;
    }
    return 0;
}

/* ---- namespace ------------------------------------------------------------------------------------------------------------ */

/* Whether the names taken are those of the nodes and no others, as they are unless nodes were erased or renamed. */
static int has_only_names(reader *r, PyObject *used)
{
    int found = PySet_CheckExact(used) && PySet_GET_SIZE(used) == (Py_ssize_t)(r->s.count - r->g->core->shared_names);

    for (uint32_t i = 0; found == 1 && i < r->s.count; i++) {
        PyObject *name = fx_get(r->s.nodes[i], r->s.st->fx.name);
        found = name && PyUnicode_CheckExact(name) ? PySet_Contains(used, name) : 0;
    }
    return found;
}

static int read_used_names(reader *r, PyObject *used)
{
    PyObject *iterator, *name;
    int only = has_only_names(r, used);

    if (only)
        return only < 0 ? -1 : 0;
    if (!(iterator = PyObject_GetIter(used)))
        return -1;
    while ((name = PyIter_Next(iterator))) {
        fe_string *text = PyUnicode_Check(name) ? name_from_python(r->g, name, "name") : NULL;
        if (text)
            text->used = true;
        Py_DECREF(name);
        if (PyErr_Occurred())
            break;
    }
    Py_DECREF(iterator);
    return PyErr_Occurred() ? -1 : 0;
}

static int read_counters(reader *r, PyObject *counts)
{
    PyObject *base, *count;
    Py_ssize_t at = 0;
    fe_error err;
    int overflow;

    while (PyDict_Next(counts, &at, &base, &count)) {
        if (!PyUnicode_Check(base) || !PyLong_Check(count))
            continue;
        long long number = PyLong_AsLongLongAndOverflow(count, &overflow);
        fe_string *text = name_from_python(r->g, base, "name");
        if (!text)
            return -1;
        if (fe_name_set_counter(r->g->core, text, overflow ? INT64_MAX : number, &err) < 0)
            return fail_core(r->g->state, &err);
    }
    return 0;
}

static int read_namespace(reader *r)
{
    fx_tables tables;

    if (fx_tables_get(r->s.graph, &tables) < 0)
        return -1;
    int result = read_used_names(r, tables.used_names);
    if (result == 0)
        result = read_counters(r, tables.base_count);
    fx_tables_clear(&tables);
    return result;
}

/* ---- the whole -------------------------------------------------------------------------------------------------------------- */

static int read_graph(reader *r)
{
    return read_targets(r) < 0 || read_nodes(r) < 0 || read_contents(r) < 0 || read_all_users(r) < 0 ||
                   read_namespace(r) < 0
               ? -1
               : 0;
}

/* Put a fresh core in the place of a half-filled one, and let go of the objects that belonged to that. */
static void make_empty(GraphObject *g, fe_graph *fresh)
{
    PyObject *type, *value, *traceback, **objects = g->objects;
    uint32_t count = g->object_capacity;

    fe_graph_free(g->core);
    g->core = fresh;
    g->objects = NULL;
    g->object_capacity = g->object_used = 0;
    if (g->object_slots)
        memset(g->object_slots, 0xff, (g->object_mask + 1) * sizeof *g->object_slots);
    PyErr_Fetch(&type, &value, &traceback);
    for (uint32_t i = 0; i < count; i++)
        Py_XDECREF(objects[i]);
    PyErr_Restore(type, value, traceback);
    PyMem_RawFree(objects);
}

/* The targets of get_attr and call_module nodes, each once at least. */
static PyObject *attribute_targets(const reader *r)
{
    PyObject *list = PyList_New(0);

    for (uint32_t i = 0; list && i < r->s.calls.count; i++) {
        const fx_call *call = &r->s.calls.items[i];
        if ((call->code == FE_OP_GET_ATTR || call->code == FE_OP_CALL_MODULE) && PyUnicode_Check(call->target) &&
            PyList_Append(list, call->target) < 0)
            Py_CLEAR(list);
    }
    return list;
}

const char fx_read_doc[] =
    "fx_read(fx_graph, graph, /)\n--\n\n"
    "Fill graph, which must be new and empty, with the nodes of a torch.fx.Graph: the same order, names, arguments "
    "with\n"
    "their containers, types, meta, order of users, and names taken. Returns the targets of its get_attr and "
    "call_module\n"
    "nodes. Raises ValueError for a graph that is malformed in a way that a Graph can't hold; graph is empty then.";

PyObject *fx_read(PyObject *m, PyObject *const *args, Py_ssize_t nargs)
{
    module_state *st = state_of(m);
    reader r = {0};

    if (fx_arguments("fx_read", nargs, 2) < 0)
        return NULL;
    if (!PyObject_TypeCheck(args[1], st->graph_type))
        return PyErr_Format(PyExc_TypeError, "fx_read() fills a fastexport Graph, not a %.200s",
                            Py_TYPE(args[1])->tp_name);
    r.g = (GraphObject *)args[1];
    if (graph_editable(r.g) < 0)
        return NULL;
    if (r.g->core->node_count != 1 || r.g->object_used || r.g->core->signature)
        return PyErr_Format(PyExc_ValueError, "fx_read() fills a new, empty graph");
    fe_graph *fresh = fe_graph_new(&fe_python_allocator, &st->reserved);
    if (!fresh)
        return PyErr_NoMemory();
    graph_pin(r.g);
    PyObject *targets = NULL;
    int collecting = PyGC_Disable();
    if (fx_snapshot_take(&r.s, st, args[0]) == 0 && read_graph(&r) == 0)
        targets = attribute_targets(&r);
    if (collecting)
        PyGC_Enable();
    if (targets)
        fe_graph_free(fresh);
    else
        make_empty(r.g, fresh);
    graph_unpin(r.g);
    PyMem_RawFree(r.targets);
    fx_snapshot_clear(&r.s);
    return targets;
}
