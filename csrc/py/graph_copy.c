/* graph_copy.c - methods of Graph that copy nodes and graphs, and compare graphs.
 *
 * Nodes may come from any graph, of fastexport or torch.fx: they are read through their attributes. A whole graph of our
 * own is copied by the core.
 */
#include "graph.h"

/* ---- copying nodes ---- */

/* What stands for a node of the source in the copy: told by a Python callable or a mapping. */
typedef struct {
    GraphObject *g;
    PyObject *transform, *mapping; /* one of them */
    PyObject *fx_node;             /* torch.fx.Node, or NULL while torch.fx is not loaded */
} transformer;

static int find_fx_node(transformer *t)
{
    PyObject *module = Py_XNewRef(PyDict_GetItemString(PyImport_GetModuleDict(), "torch.fx.node"));
    int result;

    t->fx_node = module ? PyObject_GetAttrString(module, "Node") : NULL;
    result = module && !t->fx_node ? -1 : 0;
    if (t->fx_node && !PyType_Check(t->fx_node))
        Py_CLEAR(t->fx_node);
    Py_XDECREF(module);
    return result;
}

static bool is_any_node(const transformer *t, PyObject *o)
{
    return Py_TYPE(o) == t->g->state->node_type || (t->fx_node && PyObject_TypeCheck(o, (PyTypeObject *)t->fx_node));
}

static int transform_node(void *ctx, PyObject *o, fe_value *out)
{
    transformer *t = ctx;
    PyObject *value;
    int result;

    if (!is_any_node(t, o))
        return 0;
    if (t->mapping && !(value = PyObject_GetItem(t->mapping, o)) && PyErr_ExceptionMatches(PyExc_KeyError))
        PyErr_Format(PyExc_KeyError, "node '%S' is used before it was copied; is the source graph in order?", o);
    else if (!t->mapping)
        value = PyObject_CallOneArg(t->transform, o);
    if (!value)
        return -1;
    result = value_from_python(t->g, value, out);
    Py_DECREF(value);
    return result < 0 ? -1 : 1;
}

/* Read an attribute of any kind of node, transform the nodes in it. */
static int transformed_attribute(transformer *t, PyObject *node, const char *attribute, fe_value *out)
{
    PyObject *value = PyObject_GetAttrString(node, attribute);
    int result = value ? value_from_python_with(t->g, value, transform_node, t, false, out) : -1;

    Py_XDECREF(value);
    return result;
}

/* The sequence of a value, NULL for an empty one as everywhere in arguments. */
static fe_seq *take_seq(fe_graph *c, fe_value v)
{
    if (v.as.seq->len)
        return v.as.seq;
    fe_value_free(c, v);
    return NULL;
}

static int transformed_arguments(transformer *t, PyObject *node, fe_node_parts *parts)
{
    fe_graph *c = t->g->core;
    fe_value args, kwargs;

    if (transformed_attribute(t, node, "args", &args) < 0)
        return -1;
    if (transformed_attribute(t, node, "kwargs", &kwargs) < 0) {
        fe_value_free(c, args);
        graph_sweep(t->g);
        return -1;
    }
    if ((args.kind == FE_TUPLE || args.kind == FE_LIST) && kwargs.kind == FE_DICT) {
        parts->args = take_seq(c, args);
        parts->kwargs = take_seq(c, kwargs);
        return 0;
    }
    PyErr_Format(PyExc_TypeError, "the args of node '%S' are no tuple, or its kwargs no dict", node);
    fe_value_free(c, args);
    fe_value_free(c, kwargs);
    graph_sweep(t->g);
    return -1;
}

/* The meta of any kind of node as a dict whose containers are copies, so that a copied node shares no state. */
static PyObject *independent_meta(PyObject *node, container_memo *memo)
{
    PyObject *meta = PyObject_GetAttrString(node, "meta"), *dict = NULL, *copy = NULL;

    if (meta && (dict = PyDict_New()) && PyDict_Update(dict, meta) == 0)
        copy = copy_containers(dict, memo);
    Py_XDECREF(meta);
    Py_XDECREF(dict);
    return copy;
}

typedef struct {
    PyObject *op, *target, *name, *type, *meta;
} node_attributes;

static void attributes_clear(node_attributes *a)
{
    Py_XDECREF(a->op);
    Py_XDECREF(a->target);
    Py_XDECREF(a->name);
    Py_XDECREF(a->type);
    Py_XDECREF(a->meta);
}

static int attributes_read(PyObject *node, container_memo *memo, node_attributes *a)
{
    *a = (node_attributes){0};
    if ((a->op = PyObject_GetAttrString(node, "op")) && (a->target = PyObject_GetAttrString(node, "target")) &&
        (a->name = PyObject_GetAttrString(node, "name")) && (a->type = PyObject_GetAttrString(node, "type")) &&
        (a->meta = independent_meta(node, memo)))
        return 0;
    attributes_clear(a);
    return -1;
}

static PyObject *copy_node(GraphObject *g, PyObject *node, transformer *t, container_memo *memo)
{
    node_attributes a;
    fe_node_parts parts;
    PyObject *copy = NULL;
    node_request r;
    uint32_t id;

    if (attributes_read(node, memo, &a) < 0)
        return NULL;
    r.target = a.target;
    r.name = none_as_null(a.name);
    r.type = none_as_null(a.type);
    if (op_from_python(g, a.op, &r.op) < 0 || check_target(r.op, r.target) < 0 || graph_editable(g) < 0 ||
        transformed_arguments(t, node, &parts) < 0)
        goto done;
    if (create_from_parts(g, &r, &parts, &id) < 0)
        goto done;
    if (!(copy = graph_node(g, id)) || meta_assign((NodeObject *)copy, a.meta) < 0) {
        Py_CLEAR(copy);
        take_back_node(g, id);
    }
done:
    attributes_clear(&a);
    return copy;
}

const char node_copy_doc[] =
    "node_copy($self, node, arg_transform=None)\n--\n\n"
    "Copy a node, of any graph of fastexport or torch.fx, to the insert point.\n\n"
    "arg_transform takes each node among its arguments and gives what stands for it here; without it they must\n"
    "be nodes of this graph. Containers in meta are copied, so that the copy shares no state with the source.";

PyObject *Graph_node_copy(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"node", "arg_transform", NULL};
    static const parameters p = {"node_copy", names, 1, 2};
    GraphObject *g = (GraphObject *)self;
    PyObject *v[2], *copy;
    container_memo memo = {0};

    if (parse_call(&p, args, nargs, kwnames, v) < 0)
        return NULL;
    transformer t = {.g = g, .transform = v[1] && v[1] != Py_None ? v[1] : g->state->identity};
    copy = find_fx_node(&t) < 0 ? NULL : copy_node(g, v[0], &t, &memo);
    Py_XDECREF(t.fx_node);
    container_memo_clear(&memo);
    return copy;
}

/* What the copied graph returned, in terms of this one. */
static PyObject *copied_output(GraphObject *g, PyObject *node, transformer *t)
{
    PyObject *args = PyObject_GetAttrString(node, "args"), *result = NULL, *first = NULL;
    fe_value v;

    if (args && (first = PySequence_GetItem(args, 0)) &&
        value_from_python_with(g, first, transform_node, t, false, &v) == 0) {
        graph_pin(g);
        result = value_to_python(g, v);
        graph_unpin(g);
        fe_value_free(g->core, v);
        graph_sweep(g);
    }
    Py_XDECREF(first);
    Py_XDECREF(args);
    return result;
}

/* 0: go on, 1: that was the output and *result is set, -1. */
static int copy_into(GraphObject *g, PyObject *node, PyObject *val_map, transformer *t, container_memo *memo,
                     PyObject *copied, PyObject **result)
{
    PyObject *op, *copy;
    int done = PySequence_Contains(val_map, node);

    if (done)
        return done < 0 ? -1 : 0;
    if (!(op = PyObject_GetAttrString(node, "op")))
        return -1;
    int is_output = PyObject_RichCompareBool(op, g->state->op_names[FE_OP_OUTPUT], Py_EQ);
    Py_DECREF(op);
    if (is_output < 0)
        return -1;
    if (is_output) {
        *result = copied_output(g, node, t);
        return *result ? 1 : -1;
    }
    if (!(copy = copy_node(g, node, t, memo)))
        return -1;
    if (PyList_Append(copied, node) < 0 || PyList_Append(copied, copy) < 0) {
        take_back_node(g, ((NodeObject *)copy)->id);
        Py_DECREF(copy);
        return -1;
    }
    int stored = PyObject_SetItem(val_map, node, copy);
    Py_DECREF(copy);
    return stored;
}

/* After a failure: what was copied goes again, from the last to the first, out of the mapping and the graph. */
static void take_back_copies(GraphObject *g, PyObject *copied, PyObject *val_map)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    for (Py_ssize_t i = PyList_GET_SIZE(copied) / 2; i-- > 0;) {
        if (PyObject_DelItem(val_map, PyList_GET_ITEM(copied, 2 * i)) < 0)
            PyErr_Clear(); /* the last one may not have got there */
        take_back_node(g, ((NodeObject *)PyList_GET_ITEM(copied, 2 * i + 1))->id);
    }
    PyErr_Restore(type, value, traceback);
}

const char graph_copy_doc[] =
    "graph_copy($self, g, val_map, return_output_node=False)\n--\n\n"
    "Copy the nodes of a graph of fastexport or torch.fx to the insert point.\n\n"
    "val_map maps its nodes to nodes here: nodes already in it are not copied, copied ones are added. Returns\n"
    "what stands for the value that g returns, or None when it has no output; with return_output_node, a tuple\n"
    "of that and g's output node.";

PyObject *Graph_graph_copy(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"g", "val_map", "return_output_node", NULL};
    static const parameters p = {"graph_copy", names, 2, 3};
    GraphObject *g = (GraphObject *)self;
    PyObject *v[3], *nodes = NULL, *iterator = NULL, *copied = NULL, *node, *result = NULL;
    container_memo memo = {0};
    int status = -1, with_node;

    if (parse_call(&p, args, nargs, kwnames, v) < 0 || (with_node = v[2] ? PyObject_IsTrue(v[2]) : 0) < 0)
        return NULL;
    transformer t = {.g = g, .mapping = v[1]};
    if (find_fx_node(&t) < 0 || !(nodes = PyObject_GetAttrString(v[0], "nodes")) ||
        !(iterator = PyObject_GetIter(nodes)) || !(copied = PyList_New(0)))
        goto done;
    status = 0;
    while (status == 0 && (node = PyIter_Next(iterator))) {
        status = copy_into(g, node, v[1], &t, &memo, copied, &result);
        if (status == 1 && with_node)
            Py_XSETREF(result, PyTuple_Pack(2, result, node));
        Py_DECREF(node);
    }
    if (PyErr_Occurred()) {
        status = -1;
        take_back_copies(g, copied, v[1]);
    }
done:
    Py_XDECREF(copied);
    Py_XDECREF(t.fx_node);
    container_memo_clear(&memo);
    Py_XDECREF(iterator);
    Py_XDECREF(nodes);
    return status < 0 ? NULL : status ? result : Py_NewRef(Py_None);
}

/* ---- comparing, copying ---- */

static PyObject *typed_items(PyObject *items)
{
    PyObject *list = PySequence_List(items);

    for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list); i++) {
        PyObject *key = graph_object_key(PyList_GET_ITEM(list, i));
        if (key)
            PyList_SetItem(list, i, key);
        else
            Py_CLEAR(list);
    }
    return list;
}

/* An exact set, frozenset or tuple as its type and what its items are known by. */
static PyObject *key_of_items(PyObject *object)
{
    PyObject *list, *items, *key;

    if (Py_EnterRecursiveCall(" in a comparison of graphs"))
        return NULL;
    list = typed_items(object);
    Py_LeaveRecursiveCall();
    items = !list ? NULL : PyTuple_CheckExact(object) ? PyList_AsTuple(list) : PyFrozenSet_New(list);
    key = items ? PyTuple_Pack(2, Py_TYPE(object), items) : NULL;
    Py_XDECREF(items);
    Py_XDECREF(list);
    return key;
}

PyObject *graph_object_key(PyObject *object)
{
    if (PyAnySet_CheckExact(object) || PyTuple_CheckExact(object))
        return key_of_items(object);
    if (!PyByteArray_CheckExact(object))
        return PyTuple_Pack(2, Py_TYPE(object), object);
    PyObject *bytes = PyBytes_FromObject(object), *key = bytes ? PyTuple_Pack(2, Py_TYPE(object), bytes) : NULL;
    Py_XDECREF(bytes);
    return key;
}

int graph_object_class(PyObject *object, PyObject *key, PyObject *classes, uint32_t *out)
{
    PyObject *number = key ? PyLong_FromSsize_t(PyDict_GET_SIZE(classes)) : NULL, *own = NULL;
    PyObject *found = number ? PyDict_SetDefault(classes, key, number) : NULL;

    bool is_view = PyMemoryView_Check(object); /* which raises a ValueError when it may be written to */
    if (!found && (number || !key) && PyErr_ExceptionMatches(is_view ? PyExc_ValueError : PyExc_TypeError)) {
        PyErr_Clear();
        if (!number)
            number = PyLong_FromSsize_t(PyDict_GET_SIZE(classes));
        own = number ? PyLong_FromVoidPtr(object) : NULL;
        found = own ? PyDict_SetDefault(classes, own, number) : NULL;
    }
    if (found)
        *out = (uint32_t)PyLong_AsUnsignedLong(found);
    Py_XDECREF(own);
    Py_XDECREF(number);
    return found ? 0 : -1;
}

static void mark_object(uint32_t object, bool *named)
{
    if (object != FE_NONE_ID)
        named[object] = true;
}

static void mark_seq(const fe_seq *s, bool *named)
{
    if (!s)
        return;
    mark_object(s->type, named);
    for (uint32_t i = 0; i < s->len; i++) {
        fe_value v = s->items[i];
        if (v.kind == FE_OBJECT)
            mark_object(v.as.object, named);
        else if (fe_kind_is_seq(v.kind))
            mark_seq(v.as.seq, named);
    }
}

void graph_mark_named(const GraphObject *g, bool *named)
{
    const fe_graph *c = g->core;

    for (uint32_t id = c->nodes[FE_ROOT].next; id != FE_ROOT; id = c->nodes[id].next) {
        mark_object(c->targets[c->nodes[id].target].object, named);
        mark_seq(c->details[id].args, named);
        mark_seq(c->details[id].kwargs, named);
    }
}

/* Number the classes of equal objects over both graphs. What only meta has is not asked: it may be unable to compare. */
static int number_classes(GraphObject *g, PyObject *classes, uint32_t *out, const bool *named, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!named[i])
            continue;
        PyObject *object = Py_NewRef(g->objects[i]), *key = graph_object_key(object);
        int result = graph_object_class(object, key, classes, &out[i]);
        Py_XDECREF(key);
        Py_DECREF(object);
        if (result < 0)
            return -1;
    }
    return 0;
}

static int graphs_equal(GraphObject *a, GraphObject *b)
{
    PyObject *classes = PyDict_New();
    uint32_t count_a = a->object_capacity, count_b = b->object_capacity; /* more may come while objects are compared */
    uint32_t *class_a = PyMem_RawCalloc((size_t)count_a + 1, sizeof(uint32_t));
    uint32_t *class_b = PyMem_RawCalloc((size_t)count_b + 1, sizeof(uint32_t));
    bool *named_a = PyMem_RawCalloc((size_t)count_a + 1, sizeof(bool));
    bool *named_b = PyMem_RawCalloc((size_t)count_b + 1, sizeof(bool));
    fe_error err;
    int equal = -1;

    graph_pin(a);
    graph_pin(b);
    if (!class_a || !class_b || !named_a || !named_b) {
        PyErr_NoMemory();
    } else if (classes) {
        graph_mark_named(a, named_a);
        graph_mark_named(b, named_b);
        if (number_classes(a, classes, class_a, named_a, count_a) == 0 &&
            number_classes(b, classes, class_b, named_b, count_b) == 0 &&
            (equal = fe_graph_equal(a->core, b->core, class_a, class_b, &err)) < 0)
            raise_core(a->state, &err);
    }
    graph_unpin(b);
    graph_unpin(a);
    PyMem_RawFree(named_a);
    PyMem_RawFree(named_b);
    PyMem_RawFree(class_a);
    PyMem_RawFree(class_b);
    Py_XDECREF(classes);
    return equal;
}

PyObject *Graph_richcompare(PyObject *self, PyObject *other, int op)
{
    GraphObject *a = (GraphObject *)self, *b = (GraphObject *)other;

    if ((op != Py_EQ && op != Py_NE) || !PyObject_TypeCheck(other, a->state->graph_type))
        Py_RETURN_NOTIMPLEMENTED;
    int equal = a == b;
    if (!equal) {
        if (graph_readable(a) < 0 || graph_readable(b) < 0)
            return NULL;
        if (a->core->live == b->core->live && (equal = graphs_equal(a, b)) < 0)
            return NULL;
    }
    return PyBool_FromLong(equal == (op == Py_EQ));
}

/* Equal graphs have equal hashes, and a graph keeps its hash when it is changed: so all have the same. */
Py_hash_t Graph_hash(PyObject *self)
{
    return (Py_hash_t)((uintptr_t)((GraphObject *)self)->state->graph_type >> 4);
}

/* The objects of g, interned in copy; with memo, containers in meta are copied. */
static uint32_t *map_objects(GraphObject *g, GraphObject *copy)
{
    uint32_t *map = PyMem_RawCalloc((size_t)g->object_capacity + 1, sizeof *map);

    if (!map) {
        PyErr_NoMemory();
        return NULL;
    }
    for (uint32_t i = 0; i < g->object_capacity; i++) {
        if (g->objects[i] && graph_object(copy, g->objects[i], &map[i]) < 0) {
            PyMem_RawFree(map);
            return NULL;
        }
    }
    return map;
}

static int copy_core(GraphObject *g, GraphObject *copy)
{
    uint32_t *objects = map_objects(g, copy);
    uint32_t *nodes = objects ? PyMem_RawMalloc(g->core->node_count * sizeof *nodes) : NULL;
    fe_error err;
    int result = -1;

    if (objects && !nodes)
        PyErr_NoMemory();
    else if (objects && (result = fe_graph_copy(copy->core, g->core, objects, nodes, &err)) < 0)
        raise_core(g->state, &err);
    if (result == 0 && g->loaded)
        result = loaded_copy(copy, g, nodes);
    PyMem_RawFree(nodes);
    PyMem_RawFree(objects);
    return result;
}

/* What a meta entry of a fresh copy holds, separated: moved says what has become of each object. */
static int separate_entry(GraphObject *copy, fe_meta_entry *entry, uint32_t *moved, container_memo *memo)
{
    PyObject *old = copy->objects[entry->object], *new;
    uint32_t was = entry->object, *now = &moved[was];

    if (*now == FE_NONE_ID) {
        if (!(new = copy_containers(old, memo)))
            return -1;
        int result = graph_object(copy, new, now);
        Py_DECREF(new);
        if (result < 0)
            return -1;
    }
    if (*now != was) {
        fe_object_ref(copy->core, *now);
        entry->object = *now;
        fe_object_unref(copy->core, was);
    }
    return 0;
}

/* Replace each container in the meta of a fresh copy by a copy of its own; a container shared by nodes stays shared. */
static int separate_meta(GraphObject *copy)
{
    uint32_t count = copy->object_capacity, *moved = PyMem_RawMalloc(((size_t)count + 1) * sizeof *moved);
    container_memo memo = {0};
    int result = moved ? 0 : -1;

    if (!moved)
        PyErr_NoMemory();
    else
        memset(moved, 0xff, count * sizeof *moved);
    for (uint32_t id = 1; result == 0 && id < copy->core->node_count; id++) {
        fe_meta *m = copy->core->details[id].meta;
        for (uint32_t i = 0; result == 0 && m && i < m->len; i++)
            result = separate_entry(copy, &m->entries[i], moved, &memo);
    }
    container_memo_clear(&memo);
    PyMem_RawFree(moved);
    return result;
}

const char copy_doc[] =
    "_copy($self, separate_meta, /)\n--\n\n"
    "A graph of the same class with the same nodes; with separate_meta, containers in meta are copied.";

/* A new, empty graph of g's class; the class may be a user's, whose code runs. */
static GraphObject *empty_graph(GraphObject *g)
{
    PyObject *o = PyObject_CallNoArgs((PyObject *)Py_TYPE(g));
    GraphObject *copy = (GraphObject *)o;

    if (!o)
        return NULL;
    if (!PyObject_TypeCheck(o, g->state->graph_type) || copy == g || copy->core->node_count != 1 ||
        copy->core->signature) {
        PyErr_Format(PyExc_TypeError, "%.200s() must give an empty graph to copy into", Py_TYPE(g)->tp_name);
        Py_CLEAR(o);
    }
    return (GraphObject *)o;
}

PyObject *Graph_copy(PyObject *self, PyObject *separate)
{
    GraphObject *g = (GraphObject *)self, *copy;
    int deep = PyObject_IsTrue(separate), result;

    if (deep < 0 || !(copy = empty_graph(g)))
        return NULL;
    if (graph_editable(copy) < 0 || graph_readable(g) < 0) { /* a pass of another thread may have begun on either */
        Py_DECREF(copy);
        return NULL;
    }
    graph_pin(g);
    graph_pin(copy);
    result = PyDict_Update(copy->meta_index, g->meta_index);
    if (result == 0)
        result = PyList_SetSlice(copy->meta_keys, 0, PyList_GET_SIZE(copy->meta_keys), g->meta_keys);
    if (result == 0)
        result = copy_core(g, copy);
    graph_unpin(g);
    if (result == 0 && deep) {
        int collecting = PyGC_Disable(); /* nothing of what is made here is garbage */
        result = separate_meta(copy);    /* a container of a user's class copies itself, in Python */
        if (collecting)
            PyGC_Enable();
    }
    graph_unpin(copy);
    if (result < 0) {
        Py_DECREF(copy);
        return NULL;
    }
    graph_sweep(copy);
    return (PyObject *)copy;
}
