/* fx_build.c - a live torch.fx graph from a Graph, in bulk.
 *
 * Nodes are made by torch's own tp_new, which also makes the sort key, and get their slots written; everything is put
 * together aside, and only when nothing can fail any more is it linked into the torch.fx graph, by torch's own _prepend,
 * which gives the sort keys. So a failure leaves that graph as empty as it was. The collector is off meanwhile: it would
 * go over the growing heap again and again and find nothing.
 */
#include "fx.h"
#include "operators.h"

typedef struct {
    module_state *st;
    GraphObject *g;
    PyObject *graph, *root; /* of torch.fx */
    PyObject **nodes;       /* strong, by id */
    PyObject **targets;     /* strong, by target */
    PyObject **listed;      /* strong, by target: its dict in the find_nodes table */
    PyObject **keys;        /* borrowed from the graph's list, by number */
    PyObject **converted;   /* strong, by object: what stands in arguments for one that torch has in another form */
    PyObject *convert;      /* Python: object -> that */
    uint32_t target_count, object_count; /* when it was begun: arguments that are being read for an edit may add more */
    bool with_meta;
    PyObject *none_args; /* () */
    PyObject *table, *used_names, *base_count, *objects;
} builder;

static const fe_node *record(const builder *b, uint32_t id)
{
    return &b->g->core->nodes[id];
}

static const fe_detail *detail(const builder *b, uint32_t id)
{
    return &b->g->core->details[id];
}

static void put(PyObject *node, Py_ssize_t offset, PyObject *value) /* steals value; the slot is empty */
{
    *fx_slot(node, offset) = value;
}

/* ---- arguments ----------------------------------------------------------------------------------------------------- */

static PyObject *value_of(builder *b, fe_value v);
static PyObject *node_of(builder *b, uint32_t id);

static PyObject *tuple_of(builder *b, const fe_seq *s)
{
    PyObject *t = PyTuple_New((Py_ssize_t)s->len);

    for (uint32_t i = 0; t && i < s->len; i++) {
        PyObject *item = value_of(b, s->items[i]);
        if (!item)
            Py_CLEAR(t);
        else
            PyTuple_SET_ITEM(t, i, item);
    }
    return t;
}

/* As torch.fx makes them: a class with fields takes the items one by one, any other takes an iterable. */
static PyObject *typed_tuple_of(builder *b, const fe_seq *s)
{
    PyObject *type = graph_object_at(b->g, s->type), *items = tuple_of(b, s), *fields = NULL, *result = NULL;

    if (items && lookup_attr(type, b->st->str_fields, &fields) >= 0)
        result = fields ? PyObject_Call(type, items, NULL) : PyObject_CallOneArg(type, items);
    Py_XDECREF(fields);
    Py_XDECREF(items);
    return result;
}

/* An empty instance of torch.fx's list or dict class; only list's and dict's own functions can fill it. */
static PyObject *new_container(builder *b, PyObject *type, PyTypeObject *base)
{
    return base->tp_new((PyTypeObject *)type, b->none_args, NULL);
}

static PyObject *list_of(builder *b, const fe_seq *s)
{
    PyObject *list = new_container(b, b->st->list_type, &PyList_Type);

    for (uint32_t i = 0; list && i < s->len; i++) {
        PyObject *item = value_of(b, s->items[i]);
        if (!item || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *dict_of(builder *b, const fe_seq *s)
{
    PyObject *dict = new_container(b, b->st->dict_type, &PyDict_Type);

    for (uint32_t i = 0; dict && i + 1 < s->len; i += 2) {
        PyObject *key = value_of(b, s->items[i]), *value = key ? value_of(b, s->items[i + 1]) : NULL;
        if (!value || PyDict_SetItem(dict, key, value) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(key);
        Py_XDECREF(value);
    }
    return dict;
}

static PyObject *slice_of(builder *b, const fe_seq *s)
{
    PyObject *parts = tuple_of(b, s), *slice = NULL;

    if (parts)
        slice = PySlice_New(PyTuple_GET_ITEM(parts, 0), PyTuple_GET_ITEM(parts, 1), PyTuple_GET_ITEM(parts, 2));
    Py_XDECREF(parts);
    return slice;
}

/* An object that is an argument; those that stand for something of torch become that, each once. */
static PyObject *object_of(builder *b, uint32_t index)
{
    PyObject *object = graph_object_at(b->g, index), *made;

    if (b->converted[index])
        return Py_NewRef(b->converted[index]);
    if (!PySequence_Contains(b->st->described_types, (PyObject *)Py_TYPE(object)))
        return Py_NewRef(object);
    if ((made = PyObject_CallOneArg(b->convert, object)))
        b->converted[index] = Py_NewRef(made);
    return made;
}

static PyObject *value_of(builder *b, fe_value v)
{
    switch ((fe_kind)v.kind) {
    case FE_OBJECT:
        return object_of(b, v.as.object);
    case FE_NODE:
        return Py_XNewRef(node_of(b, v.as.node));
    case FE_TUPLE:
        return v.as.seq->type == FE_NONE_ID ? tuple_of(b, v.as.seq) : typed_tuple_of(b, v.as.seq);
    case FE_LIST:
        return list_of(b, v.as.seq);
    case FE_DICT:
        return dict_of(b, v.as.seq);
    case FE_SLICE:
        return slice_of(b, v.as.seq);
    default:
        return value_to_python(b->g, v);
    }
}

/* ---- targets --------------------------------------------------------------------------------------------------------- */

/* Put the name of a node before the message of the ValueError that is raised. */
static void add_node_name(const char *name)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    PyErr_Format(PyExc_ValueError, "node '%s': %S", name, value ? value : Py_None);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
}

/* The target of a node, and the dict that find_nodes keeps its nodes in. */
static int make_target(builder *b, uint32_t id)
{
    const fe_node *n = record(b, id);
    PyObject *named = graph_target_object(b->g, n->target), *target = named ? operator_to_torch(named) : NULL, *key;

    if (named && !target && PyErr_ExceptionMatches(PyExc_ValueError))
        add_node_name(detail(b, id)->name->data);
    Py_XDECREF(named);
    if (!target)
        return -1;
    b->targets[n->target] = target;
    if (n->op == FE_OP_CALL_FUNCTION && PyUnicode_Check(target)) {
        PyErr_Format(PyExc_ValueError,
                     "node '%s' calls %R by its name only, as a program read without torch does; give the node a "
                     "callable as its target before the graph becomes a torch.fx graph",
                     detail(b, id)->name->data, target);
        return -1;
    }
    key = PyTuple_Pack(2, b->st->op_names[n->op], n->op == FE_OP_CALL_FUNCTION ? target : Py_None);
    if (!key)
        return -1;
    PyObject *listed = Py_XNewRef(PyDict_GetItemWithError(b->table, key));
    if (!listed && !PyErr_Occurred() && (listed = PyDict_New()) && PyDict_SetItem(b->table, key, listed) < 0)
        Py_CLEAR(listed);
    Py_DECREF(key);
    b->listed[n->target] = listed;
    return listed ? 0 : -1;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------------ */

static int fill_meta(builder *b, PyObject *dict, const fe_meta *m)
{
    for (uint32_t i = 0; m && i < m->len; i++) {
        if (PyDict_SetItem(dict, b->keys[m->entries[i].key], graph_object_at(b->g, m->entries[i].object)) < 0)
            return -1;
    }
    return 0;
}

static int enter_name(builder *b, PyObject *node, PyObject *name)
{
    return PySet_Add(b->used_names, name) < 0 || PyDict_SetItem(b->objects, node, name) < 0 ? -1 : 0;
}

/* A node without arguments yet: the operand that stands after its user must exist before it is filled. */
static PyObject *make_node(builder *b, uint32_t id)
{
    const fx_layout *l = &b->st->fx;
    const fe_node *n = record(b, id);
    const fe_detail *d = detail(b, id);
    PyObject *name = string_to_python(d->name), *inputs = PyDict_New(), *users = PyDict_New(), *meta = PyDict_New();
    PyObject *node = name && inputs && users && meta ? l->node_type->tp_new(l->node_type, b->none_args, NULL) : NULL;

    if (!node) {
        Py_XDECREF(name);
        Py_XDECREF(inputs);
        Py_XDECREF(users);
        Py_XDECREF(meta);
        return NULL;
    }
    b->nodes[id] = node;
    put(node, l->graph, Py_NewRef(b->graph));
    put(node, l->name, name);
    put(node, l->op, Py_NewRef(b->st->op_names[n->op]));
    put(node, l->target, Py_NewRef(b->targets[n->target]));
    put(node, l->type, Py_NewRef(d->type == FE_NONE_ID ? Py_None : graph_object_at(b->g, d->type)));
    put(node, l->input_nodes, inputs);
    put(node, l->users, users);
    put(node, l->meta, meta);
    put(node, l->repr_fn, Py_NewRef(Py_None));
    put(node, l->prev, Py_NewRef(node));
    put(node, l->next, Py_NewRef(node));
    return node;
}

static PyObject *node_of(builder *b, uint32_t id)
{
    if (b->nodes[id])
        return b->nodes[id];
    if (!b->listed[record(b, id)->target] && make_target(b, id) < 0)
        return NULL;
    return make_node(b, id);
}

static int fill_node(builder *b, uint32_t id)
{
    const fx_layout *l = &b->st->fx;
    PyObject *node = node_of(b, id), *args, *kwargs;
    fe_graph *c = b->g->core;

    if (!node)
        return -1;
    const fe_node *n = record(b, id);
    const fe_detail *d = detail(b, id);
    args = d->args ? tuple_of(b, d->args) : Py_NewRef(b->none_args);
    kwargs = args && d->kwargs ? dict_of(b, d->kwargs) : Py_XNewRef(b->st->empty_dict);
    put(node, l->args, args);
    put(node, l->kwargs, kwargs);
    if (!args || !kwargs)
        return -1;
    for (uint32_t e = n->edge; e < n->edge + n->edge_count; e++) {
        if (PyDict_SetItem(fx_get(node, l->input_nodes), b->nodes[c->edges[e].def], Py_None) < 0)
            return -1;
    }
    if ((b->with_meta && fill_meta(b, fx_get(node, l->meta), d->meta) < 0) ||
        enter_name(b, node, fx_get(node, l->name)) < 0)
        return -1;
    return PyDict_SetItem(b->listed[n->target], node, Py_None);
}

static int fill_users(builder *b, uint32_t id)
{
    PyObject *users = fx_get(b->nodes[id], b->st->fx.users);
    fe_graph *c = b->g->core;

    for (uint32_t e = c->details[id].first_user; e != FE_NONE_ID; e = c->edges[e].next) {
        if (PyDict_SetItem(users, b->nodes[c->edges[e].user], Py_None) < 0)
            return -1;
    }
    return 0;
}

static int make_nodes(builder *b)
{
    const fe_graph *c = b->g->core;
    uint32_t id;

    for (id = c->nodes[FE_ROOT].next; id != FE_ROOT; id = c->nodes[id].next) {
        if (fill_node(b, id) < 0)
            return -1;
    }
    for (id = c->nodes[FE_ROOT].next; id != FE_ROOT; id = c->nodes[id].next) {
        if (fill_users(b, id) < 0)
            return -1;
    }
    return 0;
}

/* Names that no node bears any more stay taken; bases keep their counters. */
static int fill_namespace(builder *b)
{
    const fe_graph *c = b->g->core;

    for (uint32_t i = 0; c->strings.slots && i <= c->strings.mask; i++) {
        const fe_string *s = c->strings.slots[i];
        if (!s || (!s->base && !(s->used && fe_name_owner(c, s) == FE_NONE_ID)))
            continue;
        PyObject *text = string_to_python(s), *count = NULL;
        int result = text ? 0 : -1;
        if (text && s->used)
            result = PySet_Add(b->used_names, text);
        if (result == 0 && s->base) {
            count = PyLong_FromLongLong(c->bases[s->base - 1]);
            result = count ? PyDict_SetItem(b->base_count, text, count) : -1;
        }
        Py_XDECREF(count);
        Py_XDECREF(text);
        if (result < 0)
            return -1;
    }
    return 0;
}

/* ---- the whole ----------------------------------------------------------------------------------------------------------- */

/* The names are made first; then only attributes that exist are assigned, and nodes linked, which can't fail. */
static int install(builder *b)
{
    static const char *const texts[] = {"table", "_used_names", "_base_count", "_obj_to_name", "_len"};
    PyObject *lookup = PyObject_GetAttrString(b->graph, "_find_nodes_lookup_table"), *names[5] = {NULL};
    PyObject *namespace = lookup ? PyObject_GetAttrString(b->graph, "_graph_namespace") : NULL;
    PyObject *length = PyLong_FromUnsignedLong(b->g->core->live);
    PyObject *owners[] = {lookup, namespace, namespace, namespace, b->graph};
    PyObject *values[] = {b->table, b->used_names, b->base_count, b->objects, length};
    int result = namespace && length ? 0 : -1;

    for (int i = 0; result == 0 && i < 5; i++)
        result = (names[i] = PyUnicode_InternFromString(texts[i])) ? 0 : -1;
    for (int i = 0; result == 0 && i < 5; i++)
        result = PyObject_SetAttr(owners[i], names[i], values[i]);
    for (uint32_t id = record(b, FE_ROOT)->next; result == 0 && id != FE_ROOT; id = record(b, id)->next) {
        PyObject *done = b->st->fx.prepend(b->root, b->nodes[id]);
        result = done ? 0 : -1;
        Py_XDECREF(done);
    }
    for (int i = 0; i < 5; i++)
        Py_XDECREF(names[i]);
    Py_XDECREF(length);
    Py_XDECREF(namespace);
    Py_XDECREF(lookup);
    return result;
}

/* A defaultdict like the one that torch.fx makes. */
static PyObject *new_table(void)
{
    PyObject *module = PyImport_ImportModule("collections"), *table = NULL;

    if (module)
        table = PyObject_CallMethod(module, "defaultdict", "O", (PyObject *)&PyDict_Type);
    Py_XDECREF(module);
    return table;
}

static int prepare(builder *b)
{
    const fe_graph *c = b->g->core;

    b->target_count = c->target_count;
    b->object_count = b->g->object_capacity;
    b->nodes = PyMem_RawCalloc(c->node_count, sizeof *b->nodes);
    b->targets = PyMem_RawCalloc(c->target_count + 1, sizeof *b->targets);
    b->listed = PyMem_RawCalloc(c->target_count + 1, sizeof *b->listed);
    b->keys = PyMem_RawCalloc((size_t)PyList_GET_SIZE(b->g->meta_keys) + 1, sizeof *b->keys);
    b->converted = PyMem_RawCalloc((size_t)b->object_count + 1, sizeof *b->converted);
    if (!b->nodes || !b->targets || !b->listed || !b->keys || !b->converted) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(b->g->meta_keys); i++)
        b->keys[i] = PyList_GET_ITEM(b->g->meta_keys, i);
    return (b->none_args = PyTuple_New(0)) && (b->table = new_table()) && (b->used_names = PySet_New(NULL)) &&
                   (b->base_count = PyDict_New()) && (b->objects = PyDict_New())
               ? 0
               : -1;
}

/* Let go of everything. Nodes of a build that failed refer to each other in circles: they are emptied first. */
static void finish(builder *b, bool failed)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    for (uint32_t id = 0; failed && b->nodes && id < b->g->core->node_count; id++) {
        if (b->nodes[id])
            Py_TYPE(b->nodes[id])->tp_clear(b->nodes[id]);
    }
    for (uint32_t id = 0; b->nodes && id < b->g->core->node_count; id++)
        Py_XDECREF(b->nodes[id]);
    for (uint32_t i = 0; b->targets && b->listed && i < b->target_count; i++) {
        Py_XDECREF(b->targets[i]);
        Py_XDECREF(b->listed[i]);
    }
    PyMem_RawFree(b->nodes);
    PyMem_RawFree(b->targets);
    PyMem_RawFree(b->listed);
    for (uint32_t i = 0; b->converted && i < b->object_count; i++)
        Py_XDECREF(b->converted[i]);
    PyMem_RawFree(b->keys);
    PyMem_RawFree(b->converted);
    Py_XDECREF(b->convert);
    Py_XDECREF(b->none_args);
    Py_XDECREF(b->table);
    Py_XDECREF(b->used_names);
    Py_XDECREF(b->base_count);
    Py_XDECREF(b->objects);
    PyErr_Restore(type, value, traceback);
}

static int check_empty(const builder *b)
{
    PyObject *len = PyObject_GetAttrString(b->graph, "_len");
    Py_ssize_t count = len ? PyLong_AsSsize_t(len) : -1;

    Py_XDECREF(len);
    if (count == -1 && PyErr_Occurred())
        return -1;
    if (count == 0 && fx_get(b->root, b->st->fx.next) == b->root && fx_get(b->root, b->st->fx.prev) == b->root)
        return 0;
    PyErr_SetString(PyExc_ValueError, "fx_build() fills a new, empty torch.fx.Graph");
    return -1;
}

static int build(builder *b)
{
    if (check_empty(b) < 0 || prepare(b) < 0 || make_nodes(b) < 0 || fill_namespace(b) < 0 || check_empty(b) < 0)
        return -1;
    return install(b);
}

/* What makes torch's objects of ours. */
static PyObject *usual_convert(void)
{
    PyObject *module = PyImport_ImportModule("fastexport._dtypes");
    PyObject *convert = module ? PyObject_GetAttrString(module, "to_torch") : NULL;

    Py_XDECREF(module);
    return convert;
}

const char fx_build_doc[] =
    "fx_build(graph, fx_graph, convert=None, with_meta=True, /)\n--\n\n"
    "Fill fx_graph, which must be a new and empty torch.fx.Graph, with the nodes of a "
    "fastexport Graph: the same order,\n"
    "names, arguments, types, meta, order of users, and names taken. convert(object) gives what "
    "stands in arguments for a DType\n"
    "and the like. Raises ValueError when a call_function node has a string as its target; "
    "fx_graph is empty then.";

PyObject *fx_build(PyObject *m, PyObject *const *args, Py_ssize_t nargs)
{
    module_state *st = state_of(m);
    builder b = {.st = st, .with_meta = true};

    if (nargs > 4 || fx_arguments("fx_build", nargs < 2 ? nargs : 2, 2) < 0)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "fx_build() takes at most 4 arguments");
    if (!PyObject_TypeCheck(args[0], st->graph_type))
        return PyErr_Format(PyExc_TypeError, "fx_build() takes a fastexport Graph, not a %.200s",
                            Py_TYPE(args[0])->tp_name);
    b.g = (GraphObject *)args[0];
    b.graph = args[1];
    if (nargs > 3) {
        int with_meta = PyObject_IsTrue(args[3]);
        if (with_meta < 0)
            return NULL;
        b.with_meta = with_meta;
    }
    if (graph_readable(b.g) < 0 || (b.with_meta && graph_load_all_meta(b.g) < 0) ||
        fx_check_graph(st, b.graph, &b.root) < 0)
        return NULL;
    graph_pin(b.g);
    int collecting = PyGC_Disable();
    b.convert = nargs > 2 && args[2] != Py_None ? Py_NewRef(args[2]) : usual_convert();
    int result = b.convert ? build(&b) : -1;
    finish(&b, result < 0);
    if (collecting)
        PyGC_Enable();
    graph_unpin(b.g);
    Py_DECREF(b.root);
    return result < 0 ? NULL : Py_NewRef(Py_None);
}
