/* meta.c - node.meta: a live mapping over the core's meta of a node that behaves like a dict.
 *
 * The core stores numbers: of a key (graph_meta_key) and of a value (graph_object). So a Meta has no state of its own,
 * all Metas of a node show the same entries, and values keep their identity. Keys that are equal are one key in the
 * whole graph: the object that was used first stands for all of them.
 *
 * Looking up a key may run its __hash__ and __eq__, which may do anything to the graph. So each function first turns
 * keys into numbers, then asks whether the graph may be read or changed, and from there on runs no Python code until it
 * holds its own references or, after a change, comes to graph_sweep.
 */
#include "module.h"

typedef struct {
    PyObject_HEAD
    NodeObject *node;
} MetaObject;

typedef struct {
    PyObject_HEAD
    NodeObject *node;   /* NULL: ended */
    uint32_t len, done; /* entries at the start, and how many of them were given */
    bool backwards;
    bool failed; /* the number of entries changed; every further step fails too */
} MetaIterObject;

/* ---- reading ---- */

static const fe_meta *entries_of(const NodeObject *n)
{
    return n->graph->core->details[n->id].meta;
}

static uint32_t count_of(const NodeObject *n)
{
    const fe_meta *m = entries_of(n);

    return m ? m->len : 0;
}

static PyObject *key_of(const GraphObject *g, fe_meta_entry entry)
{
    return PyList_GET_ITEM(g->meta_keys, entry.key);
}

/* The value under a key: 1 with a new reference, 0 when there is none, -1 with an exception. */
static int find(NodeObject *n, PyObject *key, PyObject **value)
{
    GraphObject *g = n->graph;
    uint32_t number;

    if (graph_meta_key(g, key, false, &number) < 0 || graph_readable(g) < 0)
        return -1;
    uint32_t object = fe_meta_get(entries_of(n), number);
    if (object == FE_NONE_ID)
        return 0;
    *value = Py_NewRef(graph_object_at(g, object));
    return 1;
}

PyObject *meta_to_dict(GraphObject *g, uint32_t id)
{
    PyObject *dict = PyDict_New();

    if (!dict || graph_readable(g) < 0) {
        Py_XDECREF(dict);
        return NULL;
    }
    graph_pin(g); /* storing a key in the dict may run its __hash__ */
    const fe_meta *m = g->core->details[id].meta;
    for (uint32_t i = 0; m && i < m->len; i++) {
        PyObject *value = graph_object_at(g, m->entries[i].object);
        if (PyDict_SetItem(dict, key_of(g, m->entries[i]), value) < 0) {
            Py_CLEAR(dict);
            break;
        }
    }
    graph_unpin(g);
    return dict;
}

static PyObject *copy_of(const MetaObject *self)
{
    return meta_to_dict(self->node->graph, self->node->id);
}

static PyObject *missing_key(PyObject *key)
{
    PyObject *error = PyObject_CallOneArg(PyExc_KeyError, key); /* a tuple must stay one argument */

    if (error)
        PyErr_SetObject(PyExc_KeyError, error);
    Py_XDECREF(error);
    return NULL;
}

/* Whether a value is of a type, or a list or tuple with an item that is. */
static bool holds(PyObject *value, PyObject *type)
{
    bool is_list = PyList_CheckExact(value);

    if (!is_list && !PyTuple_CheckExact(value))
        return (PyObject *)Py_TYPE(value) == type;
    for (Py_ssize_t i = 0; i < Py_SIZE(value); i++) {
        PyObject *item = is_list ? PyList_GET_ITEM(value, i) : PyTuple_GET_ITEM(value, i);
        if ((PyObject *)Py_TYPE(item) == type)
            return true;
    }
    return false;
}

static int append_node(GraphObject *g, uint32_t id, PyObject *list)
{
    PyObject *node = graph_node(g, id);
    int result = node ? PyList_Append(list, node) : -1;

    Py_XDECREF(node);
    return result;
}

const char nodes_holding_doc[] = "_nodes_holding($self, key, type, /)\n--\n\n"
                                 "The nodes whose meta has under a key an object of exactly that type, or a list or "
                                 "tuple with one in it.";

PyObject *Graph_nodes_holding(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    GraphObject *g = (GraphObject *)self;
    PyObject *list;
    uint32_t key;

    if (nargs != 2)
        return PyErr_Format(PyExc_TypeError, "_nodes_holding() takes a key and a type");
    if (graph_load_all_meta(g) < 0 || graph_meta_key(g, args[0], false, &key) < 0 || !(list = PyList_New(0)))
        return NULL;
    if (graph_readable(g) < 0) {
        Py_DECREF(list);
        return NULL;
    }
    graph_pin(g);
    for (uint32_t id = g->core->nodes[FE_ROOT].next; list && id != FE_ROOT; id = g->core->nodes[id].next) {
        uint32_t object = fe_meta_get(g->core->details[id].meta, key);
        if (object != FE_NONE_ID && holds(graph_object_at(g, object), args[1]) && append_node(g, id, list) < 0)
            Py_CLEAR(list);
    }
    graph_unpin(g);
    return list;
}

/* ---- changing one entry ---- */

static int store(NodeObject *n, PyObject *key, PyObject *value)
{
    GraphObject *g = n->graph;
    fe_error err;
    uint32_t number, object;

    if (graph_meta_key(g, key, true, &number) < 0 || graph_editable(g) < 0 || graph_object(g, value, &object) < 0)
        return -1;
    fe_object_ref(g->core, object); /* ours, so that the sweep takes the object back if this fails */
    int result = fe_meta_set(g->core, n->id, number, object, &err);
    if (result < 0)
        raise_core(g->state, &err);
    fe_object_unref(g->core, object);
    graph_sweep(g);
    return result;
}

/* Remove an entry: 1 with its value, 0 when there is none, -1 with an exception. */
static int take(NodeObject *n, PyObject *key, PyObject **value)
{
    GraphObject *g = n->graph;
    uint32_t number;

    if (graph_meta_key(g, key, false, &number) < 0 || graph_readable(g) < 0)
        return -1;
    uint32_t object = fe_meta_get(entries_of(n), number);
    if (object == FE_NONE_ID)
        return 0;
    if (graph_editable(g) < 0)
        return -1;
    *value = Py_NewRef(graph_object_at(g, object));
    fe_meta_delete(g->core, n->id, number);
    graph_sweep(g);
    return 1;
}

/* ---- changing many entries: all or none ---- */

/* The entries of a dict, by number; each holds a reference to its object. */
typedef struct {
    fe_meta_entry few[8], *items;
    uint32_t len;
} entry_list;

static bool is_meta(PyObject *o);

/* A new dict of what a mapping or an iterable of pairs holds. */
static PyObject *dict_of(PyObject *o)
{
    return is_meta(o) ? copy_of((MetaObject *)o) : PyObject_CallOneArg((PyObject *)&PyDict_Type, o);
}

static int number_keys(GraphObject *g, PyObject *dict, entry_list *list)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;

    for (uint32_t i = 0; i < list->len && PyDict_Next(dict, &at, &key, &value); i++) {
        if (graph_meta_key(g, key, true, &list->items[i].key) < 0)
            return -1;
    }
    return 0;
}

/* Give the values of a dict to the graph; len becomes the number of those it got. No Python code runs. */
static int number_values(GraphObject *g, PyObject *dict, entry_list *list)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    uint32_t count = 0;
    int result = 0;

    while (result == 0 && count < list->len && PyDict_Next(dict, &at, &key, &value)) {
        result = graph_object(g, value, &list->items[count].object);
        if (result == 0)
            fe_object_ref(g->core, list->items[count++].object);
    }
    list->len = count;
    return result;
}

/* After this call the list is to be closed, and until then no Python code may run. */
static int open_list(GraphObject *g, PyObject *dict, entry_list *list)
{
    uint32_t len = (uint32_t)PyDict_GET_SIZE(dict);

    list->len = 0;
    list->items = len <= Py_ARRAY_LENGTH(list->few) ? list->few : PyMem_New(fe_meta_entry, len);
    if (!list->items) {
        PyErr_NoMemory();
        return -1;
    }
    list->len = len;
    if (number_keys(g, dict, list) < 0 || graph_editable(g) < 0) {
        list->len = 0;
        return -1;
    }
    return number_values(g, dict, list);
}

/* Runs Python code when values were dropped. */
static void close_list(GraphObject *g, entry_list *list)
{
    for (uint32_t i = 0; i < list->len; i++)
        fe_object_unref(g->core, list->items[i].object);
    if (list->items != list->few)
        PyMem_Free(list->items);
    graph_sweep(g);
}

/* Set all entries of a list, for which the core has room. */
static void set_all(NodeObject *n, const entry_list *list)
{
    fe_error err;

    for (uint32_t i = 0; i < list->len; i++) {
        int result = fe_meta_set(n->graph->core, n->id, list->items[i].key, list->items[i].object, &err);
        assert(result == 0);
        (void)result;
    }
}

static int add_all(NodeObject *n, const entry_list *list)
{
    fe_error err;
    uint32_t len = count_of(n);

    for (uint32_t i = 0; i < list->len; i++)
        len += fe_meta_get(entries_of(n), list->items[i].key) == FE_NONE_ID;
    if (fe_meta_reserve(n->graph->core, n->id, len, &err) < 0) {
        raise_core(n->graph->state, &err);
        return -1;
    }
    set_all(n, list);
    return 0;
}

/* Build the new meta beside the old one, so that a failure leaves the old one in place. */
static int replace_all(NodeObject *n, const entry_list *list)
{
    fe_error err;
    fe_graph *core = n->graph->core;
    fe_meta **meta = &core->details[n->id].meta, *old = *meta;

    *meta = NULL;
    if (fe_meta_reserve(core, n->id, list->len, &err) < 0) {
        *meta = old;
        raise_core(n->graph->state, &err);
        return -1;
    }
    set_all(n, list);
    fe_meta *new = *meta;
    *meta = old;
    fe_meta_clear(core, n->id);
    *meta = new;
    return 0;
}

/* Add the entries of a dict that nobody else sees to the node's meta, or put them in its place. */
static int change_all(NodeObject *n, PyObject *dict, int (*change)(NodeObject *n, const entry_list *list))
{
    entry_list list;
    int result = open_list(n->graph, dict, &list);

    if (result == 0)
        result = change(n, &list);
    close_list(n->graph, &list);
    return result;
}

static int update_from(NodeObject *n, PyObject *o)
{
    PyObject *dict = dict_of(o);
    int result = dict ? change_all(n, dict, add_all) : -1;

    Py_XDECREF(dict);
    return result;
}

static int check_mapping(PyObject *o)
{
    PyObject *name = PyUnicode_InternFromString("keys"), *keys = NULL;
    int found = name ? lookup_attr(o, name, &keys) : -1;

    Py_XDECREF(name);
    Py_XDECREF(keys);
    if (found == 0)
        PyErr_Format(PyExc_TypeError, "node.meta must be a mapping, not %.200s", Py_TYPE(o)->tp_name);
    return found > 0 ? 0 : -1;
}

int meta_assign(NodeObject *n, PyObject *mapping)
{
    if (is_meta(mapping) && ((MetaObject *)mapping)->node == n)
        return 0; /* node.meta |= more ends here */
    if (check_mapping(mapping) < 0)
        return -1;
    PyObject *dict = dict_of(mapping);
    int result = dict ? change_all(n, dict, replace_all) : -1;
    Py_XDECREF(dict);
    if (result == 0)
        graph_skip_meta(n->graph, n->id);
    return result;
}

/* ---- values for many nodes ---- */

/* The node and the value of one item of a list of notes: borrowed; -1 with an exception. */
static int read_note(GraphObject *g, PyObject *item, uint32_t *id, PyObject **value)
{
    if (!PyTuple_CheckExact(item) || PyTuple_GET_SIZE(item) != 2 ||
        Py_TYPE(PyTuple_GET_ITEM(item, 0)) != g->state->node_type) {
        PyErr_SetString(PyExc_TypeError, "notes are a list of tuples (Node, value)");
        return -1;
    }
    const NodeObject *n = (NodeObject *)PyTuple_GET_ITEM(item, 0);
    if (n->graph != g || !fe_node_is_listed(g->core, n->id)) {
        PyErr_Format(PyExc_ValueError, "'%S' is not a node of this graph", n);
        return -1;
    }
    *id = n->id;
    *value = PyTuple_GET_ITEM(item, 1);
    return 0;
}

static int add_note(GraphObject *g, meta_notes *n, uint32_t id, PyObject *value)
{
    const fe_meta *m = g->core->details[id].meta;
    uint32_t object;
    fe_error err;

    if (graph_object(g, value, &object) < 0)
        return -1;
    fe_object_ref(g->core, object);
    n->items[n->len++] = (fe_meta_entry){.key = id, .object = object};
    return fe_meta_reserve(g->core, id, (m ? m->len : 0) + 1, &err) < 0 ? fail_core(g->state, &err) : 0;
}

int meta_notes_open(GraphObject *g, PyObject *key, PyObject *list, meta_notes *out)
{
    PyObject *value;
    uint32_t id;

    *out = (meta_notes){0};
    if (!PyList_CheckExact(list)) {
        PyErr_SetString(PyExc_TypeError, "notes are a list of tuples (Node, value)");
        return -1;
    }
    if (graph_meta_key(g, key, true, &out->key) < 0 || graph_editable(g) < 0)
        return -1;
    out->items = PyMem_New(fe_meta_entry, (size_t)PyList_GET_SIZE(list) + 1);
    if (!out->items) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        if (read_note(g, PyList_GET_ITEM(list, i), &id, &value) < 0 || add_note(g, out, id, value) < 0)
            return -1;
    }
    return 0;
}

void meta_notes_write(GraphObject *g, const meta_notes *n)
{
    fe_error err;

    for (uint32_t i = 0; i < n->len; i++) {
        int result = fe_meta_set(g->core, n->items[i].key, n->key, n->items[i].object, &err);
        assert(result == 0);
        (void)result;
    }
}

void meta_notes_close(GraphObject *g, meta_notes *n)
{
    for (uint32_t i = 0; i < n->len; i++)
        fe_object_unref(g->core, n->items[i].object);
    PyMem_Free(n->items);
    *n = (meta_notes){0};
    graph_sweep(g);
}

/* ---- the iterator ---- */

static PyObject *iterate(NodeObject *n, bool backwards)
{
    MetaIterObject *it = PyObject_GC_New(MetaIterObject, n->graph->state->meta_iter_type);

    if (!it)
        return NULL;
    it->node = (NodeObject *)Py_NewRef(n);
    it->done = it->len = 0;
    it->backwards = backwards;
    it->failed = false;
    PyObject_GC_Track(it);
    if (graph_readable(n->graph) < 0)
        Py_CLEAR(it);
    else
        it->len = count_of(n);
    return (PyObject *)it;
}

static PyObject *MetaIter_next(MetaIterObject *self)
{
    NodeObject *n = self->node;

    if (!n || graph_readable(n->graph) < 0)
        return NULL;
    if (self->failed || count_of(n) != self->len) {
        self->failed = true;
        PyErr_SetString(PyExc_RuntimeError,
                        "node.meta changed its size during iteration; iterate over list(node.meta) instead");
        return NULL;
    }
    if (self->done == self->len) {
        Py_CLEAR(self->node);
        return NULL;
    }
    uint32_t i = self->done++;
    return Py_NewRef(key_of(n->graph, entries_of(n)->entries[self->backwards ? self->len - 1 - i : i]));
}

static int MetaIter_traverse(MetaIterObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->node);
    return 0;
}

static void MetaIter_dealloc(MetaIterObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->node);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyType_Slot meta_iter_slots[] = {
    {Py_tp_dealloc, MetaIter_dealloc},
    {Py_tp_traverse, MetaIter_traverse},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, MetaIter_next},
    {0, NULL},
};

PyType_Spec meta_iter_spec = {
    .name = "fastexport._core.MetaIterator",
    .basicsize = sizeof(MetaIterObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = meta_iter_slots,
};

/* ---- the mapping ---- */

PyObject *meta_new(NodeObject *n)
{
    MetaObject *meta =
        graph_load_meta(n->graph, n->id) < 0 ? NULL : PyObject_GC_New(MetaObject, n->graph->state->meta_type);

    if (!meta)
        return NULL;
    meta->node = (NodeObject *)Py_NewRef(n);
    PyObject_GC_Track(meta);
    return (PyObject *)meta;
}

static Py_ssize_t Meta_len(MetaObject *self)
{
    return graph_readable(self->node->graph) < 0 ? -1 : (Py_ssize_t)count_of(self->node);
}

static int Meta_contains(MetaObject *self, PyObject *key)
{
    GraphObject *g = self->node->graph;
    uint32_t number;

    if (graph_meta_key(g, key, false, &number) < 0 || graph_readable(g) < 0)
        return -1;
    return fe_meta_get(entries_of(self->node), number) != FE_NONE_ID;
}

static PyObject *Meta_getitem(MetaObject *self, PyObject *key)
{
    PyObject *value = NULL;

    return find(self->node, key, &value) == 0 ? missing_key(key) : value;
}

static int Meta_setitem(MetaObject *self, PyObject *key, PyObject *value)
{
    PyObject *old = NULL;

    if (value)
        return store(self->node, key, value);
    int found = take(self->node, key, &old);
    if (found == 0)
        missing_key(key);
    Py_XDECREF(old);
    return found > 0 ? 0 : -1;
}

static PyObject *Meta_iter(MetaObject *self)
{
    return iterate(self->node, false);
}

static PyObject *Meta_repr(MetaObject *self)
{
    PyObject *text = NULL;
    int entered = Py_ReprEnter((PyObject *)self);

    if (entered)
        return entered > 0 ? PyUnicode_FromString("{...}") : NULL;
    PyObject *dict = copy_of(self);
    if (dict)
        text = PyObject_Repr(dict);
    Py_XDECREF(dict);
    Py_ReprLeave((PyObject *)self);
    return text;
}

/* When other is no dict but a mapping like this one, Python asks it in turn to compare itself with our dict. */
static PyObject *Meta_richcompare(MetaObject *self, PyObject *other, int op)
{
    if (op != Py_EQ && op != Py_NE)
        Py_RETURN_NOTIMPLEMENTED;
    PyObject *dict = copy_of(self);
    PyObject *result = dict ? PyObject_RichCompare(dict, other, op) : NULL;
    Py_XDECREF(dict);
    return result;
}

static PyObject *Meta_or(PyObject *left, PyObject *right)
{
    PyObject *dict = NULL, *more = NULL;

    if (!(is_meta(left) || PyDict_Check(left)) || !(is_meta(right) || PyDict_Check(right)))
        Py_RETURN_NOTIMPLEMENTED;
    dict = dict_of(left);
    more = dict ? dict_of(right) : NULL;
    if (!more || PyDict_Update(dict, more) < 0)
        Py_CLEAR(dict);
    Py_XDECREF(more);
    return dict;
}

static PyObject *Meta_inplace_or(MetaObject *self, PyObject *other)
{
    return update_from(self->node, other) < 0 ? NULL : Py_NewRef(self);
}

static int Meta_traverse(MetaObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->node);
    return 0;
}

static void Meta_dealloc(MetaObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    Py_DECREF(self->node);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* The type can't be subclassed, so its slots tell it, without the module state that `|` has no way to. */
static bool is_meta(PyObject *o)
{
    return Py_TYPE(o)->tp_dealloc == (destructor)Meta_dealloc;
}

/* ---- methods ---- */

static int check_count(const char *method, Py_ssize_t nargs)
{
    if (nargs == 1 || nargs == 2)
        return 0;
    PyErr_Format(PyExc_TypeError, "%s() takes 1 or 2 arguments, a key and a default (%zd given)", method, nargs);
    return -1;
}

static PyObject *Meta_get(MetaObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *value = NULL;

    if (check_count("get", nargs) < 0)
        return NULL;
    if (find(self->node, args[0], &value) == 0)
        value = Py_NewRef(nargs == 2 ? args[1] : Py_None);
    return value;
}

static PyObject *Meta_pop(MetaObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *value = NULL;

    if (check_count("pop", nargs) < 0)
        return NULL;
    if (take(self->node, args[0], &value) == 0)
        return nargs == 2 ? Py_NewRef(args[1]) : missing_key(args[0]);
    return value;
}

static PyObject *Meta_popitem(MetaObject *self, PyObject *Py_UNUSED(ignored))
{
    NodeObject *n = self->node;
    GraphObject *g = n->graph;
    PyObject *pair = PyTuple_New(2); /* first, for an allocation may run finalizers */

    if (!pair || graph_editable(g) < 0)
        goto fail;
    uint32_t count = count_of(n);
    if (!count) {
        PyErr_SetString(PyExc_KeyError, "popitem(): the meta is empty");
        goto fail;
    }
    fe_meta_entry last = entries_of(n)->entries[count - 1];
    PyTuple_SET_ITEM(pair, 0, Py_NewRef(key_of(g, last)));
    PyTuple_SET_ITEM(pair, 1, Py_NewRef(graph_object_at(g, last.object)));
    fe_meta_delete(g->core, n->id, last.key);
    graph_sweep(g);
    return pair;
fail:
    Py_XDECREF(pair);
    return NULL;
}

static PyObject *Meta_setdefault(MetaObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *value = NULL;

    if (check_count("setdefault", nargs) < 0 || find(self->node, args[0], &value) != 0)
        return value;
    value = nargs == 2 ? args[1] : Py_None;
    return store(self->node, args[0], value) < 0 ? NULL : Py_NewRef(value);
}

static PyObject *Meta_update(MetaObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    if (nargs > 1) {
        PyErr_Format(PyExc_TypeError, "update() takes at most 1 positional argument (%zd given)", nargs);
        return NULL;
    }
    PyObject *dict = nargs ? dict_of(args[0]) : PyDict_New();
    for (Py_ssize_t i = 0; dict && kwnames && i < PyTuple_GET_SIZE(kwnames); i++) {
        if (PyDict_SetItem(dict, PyTuple_GET_ITEM(kwnames, i), args[nargs + i]) < 0)
            Py_CLEAR(dict);
    }
    int result = dict ? change_all(self->node, dict, add_all) : -1;
    Py_XDECREF(dict);
    return result < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *Meta_clear(MetaObject *self, PyObject *Py_UNUSED(ignored))
{
    GraphObject *g = self->node->graph;

    if (graph_editable(g) < 0)
        return NULL;
    fe_meta_clear(g->core, self->node->id);
    graph_sweep(g);
    Py_RETURN_NONE;
}

static PyObject *Meta_copy(MetaObject *self, PyObject *Py_UNUSED(ignored))
{
    return copy_of(self);
}

static PyObject *view_of_copy(const MetaObject *self, const char *method)
{
    PyObject *dict = copy_of(self);
    PyObject *view = dict ? PyObject_CallMethod(dict, method, NULL) : NULL;

    Py_XDECREF(dict);
    return view;
}

static PyObject *Meta_keys(MetaObject *self, PyObject *Py_UNUSED(ignored))
{
    return view_of_copy(self, "keys");
}

static PyObject *Meta_values(MetaObject *self, PyObject *Py_UNUSED(ignored))
{
    return view_of_copy(self, "values");
}

static PyObject *Meta_items(MetaObject *self, PyObject *Py_UNUSED(ignored))
{
    return view_of_copy(self, "items");
}

static PyObject *Meta_reversed(MetaObject *self, PyObject *Py_UNUSED(ignored))
{
    return iterate(self->node, true);
}

/* A copy of any kind is a dict: an empty one that is filled with the items, so that a meta may hold itself. */
static PyObject *Meta_reduce(MetaObject *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *items = view_of_copy(self, "items");
    PyObject *iterator = items ? PyObject_GetIter(items) : NULL;

    Py_XDECREF(items);
    return iterator ? Py_BuildValue("O()OON", &PyDict_Type, Py_None, Py_None, iterator) : NULL;
}

PyDoc_STRVAR(meta_doc, "What users and passes attach to a node, as node.meta gives it: a live mapping that does\n"
                       "all that a dict does.\n"
                       "\n"
                       "Keys are any hashable objects, values any objects; values keep their identity, and keys\n"
                       "that are equal are one key in the whole graph. Assigning node.meta = mapping copies the\n"
                       "mapping's entries. What dict answers with a dict (copy, |, copy.copy, copy.deepcopy, a\n"
                       "pickle) is a dict here too; keys(), values() and items() show the entries of that moment.\n"
                       "The meta of an erased node stays usable.\n"
                       "\n"
                       "Iterating while the number of entries changes raises RuntimeError. Changing it while the\n"
                       "graph is being read (by a finalizer, say), or using it while a pass runs on the graph in\n"
                       "another thread, raises fastexport.FastExportError.\n"
                       "\n"
                       ">>> node.meta['val'] = example\n"
                       ">>> node.meta.get('val') is example\n"
                       "True\n"
                       ">>> 'stack_trace' in node.meta\n"
                       "False");

PyDoc_STRVAR(get_doc, "get($self, key, default=None, /)\n--\n\n"
                      "The value under the key, or the default when there is none.\n\n"
                      "TypeError: the key is not hashable.\n\n"
                      ">>> node.meta.get('stack_trace', '')\n''");
PyDoc_STRVAR(pop_doc, "pop(key[, default])\n\n"
                      "Remove the key and return its value; without the key, return the default.\n\n"
                      "KeyError: the key is not there and no default was given.\n\n"
                      ">>> node.meta.pop('val', None)");
PyDoc_STRVAR(popitem_doc, "popitem($self, /)\n--\n\n"
                          "Remove the newest entry and return it as a pair (key, value).\n\n"
                          "KeyError: the meta is empty.");
PyDoc_STRVAR(setdefault_doc, "setdefault($self, key, default=None, /)\n--\n\n"
                             "The value under the key, which becomes the default when there is none.\n\n"
                             ">>> node.meta.setdefault('notes', []).append('checked')");
PyDoc_STRVAR(update_doc, "update([other], **entries)\n\n"
                         "Set all entries of a mapping or an iterable of pairs, then those given by keyword. When\n"
                         "this raises, nothing has changed.\n\n"
                         ">>> new.meta.update(old.meta, quantized=True)");
PyDoc_STRVAR(clear_doc, "clear($self, /)\n--\n\nRemove all entries.");
PyDoc_STRVAR(copy_doc, "copy($self, /)\n--\n\nA dict of the entries at this moment; values are not copied.");
PyDoc_STRVAR(keys_doc, "keys($self, /)\n--\n\nThe keys at this moment, as a dict's keys.");
PyDoc_STRVAR(values_doc, "values($self, /)\n--\n\nThe values at this moment, as a dict's values.");
PyDoc_STRVAR(items_doc,
             "items($self, /)\n--\n\nPairs (key, value) of the entries at this moment, as a dict's items.\n\n"
             ">>> for key, value in node.meta.items():\n...     print(key, type(value))");
PyDoc_STRVAR(reversed_doc, "__reversed__($self, /)\n--\n\nIterate over the keys from the newest to the oldest.");
PyDoc_STRVAR(reduce_doc, "__reduce__($self, /)\n--\n\nCopies and pickles are dicts.");
PyDoc_STRVAR(class_getitem_doc, "For annotations such as Meta[str, object], as with dict.");

static PyMethodDef meta_methods[] = {
    {"get", (PyCFunction)(void (*)(void))Meta_get, METH_FASTCALL, get_doc},
    {"pop", (PyCFunction)(void (*)(void))Meta_pop, METH_FASTCALL, pop_doc},
    {"popitem", (PyCFunction)Meta_popitem, METH_NOARGS, popitem_doc},
    {"setdefault", (PyCFunction)(void (*)(void))Meta_setdefault, METH_FASTCALL, setdefault_doc},
    {"update", (PyCFunction)(void (*)(void))Meta_update, METH_FASTCALL | METH_KEYWORDS, update_doc},
    {"clear", (PyCFunction)Meta_clear, METH_NOARGS, clear_doc},
    {"copy", (PyCFunction)Meta_copy, METH_NOARGS, copy_doc},
    {"keys", (PyCFunction)Meta_keys, METH_NOARGS, keys_doc},
    {"values", (PyCFunction)Meta_values, METH_NOARGS, values_doc},
    {"items", (PyCFunction)Meta_items, METH_NOARGS, items_doc},
    {"__reversed__", (PyCFunction)Meta_reversed, METH_NOARGS, reversed_doc},
    {"_ipython_key_completions_", (PyCFunction)Meta_keys, METH_NOARGS,
     "_ipython_key_completions_($self, /)\n--\n\nThe keys, for the tab key after node.meta[."},
    {"__reduce__", (PyCFunction)Meta_reduce, METH_NOARGS, reduce_doc},
    {"__class_getitem__", (PyCFunction)Py_GenericAlias, METH_O | METH_CLASS, class_getitem_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot meta_slots[] = {
    {Py_tp_doc, (void *)meta_doc},
    {Py_tp_dealloc, Meta_dealloc},
    {Py_tp_traverse, Meta_traverse},
    {Py_tp_repr, Meta_repr},
    {Py_tp_richcompare, Meta_richcompare},
    {Py_tp_hash, PyObject_HashNotImplemented},
    {Py_tp_iter, Meta_iter},
    {Py_tp_methods, meta_methods},
    {Py_mp_length, Meta_len},
    {Py_mp_subscript, Meta_getitem},
    {Py_mp_ass_subscript, Meta_setitem},
    {Py_sq_contains, Meta_contains},
    {Py_nb_or, Meta_or},
    {Py_nb_inplace_or, Meta_inplace_or},
    {0, NULL},
};

PyType_Spec meta_spec = {
    .name = "fastexport._core.Meta",
    .basicsize = sizeof(MetaObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_MAPPING,
    .slots = meta_slots,
};
