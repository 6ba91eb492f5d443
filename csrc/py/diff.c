/* diff.c - the comparison of two graphs for Python.
 *
 * What makes two objects equal is asked of Python beforehand, once for each object that the nodes of a graph name; then
 * the core compares without running any.
 */
#include "diff.h"
#include "graph.h"
#include "loaded.h"

#define DIFF_META (1u << 7) /* a bit beside those of fe_change: the meta holds another object under one of the keys */

typedef struct {
    GraphObject *g;
    uint32_t count;      /* objects */
    uint32_t *classes;   /* by object; FE_NONE_ID while unknown or not needed */
    bool *needed;        /* by object */
    uint32_t *places;    /* by node, in the list */
    uint32_t *ids;       /* by place */
    uint32_t *meta_keys; /* numbers of the keys that are compared; NULL: all are */
    Py_ssize_t key_count;
    bool only_value; /* there is one key, "val": meta that waits in a file stays there */
} compared;

/* ---- which objects count ---- */

static void walk_nodes(const compared *c)
{
    const fe_graph *g = c->g->core;
    uint32_t place = 0;

    graph_mark_named(c->g, c->needed);
    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT; id = g->nodes[id].next) {
        c->ids[place] = id;
        c->places[id] = place++;
        if (g->details[id].type != FE_NONE_ID)
            c->needed[g->details[id].type] = true;
    }
}

/* ---- classes of equal objects ---- */

/* The number of an object's class: of what the key function makes of it. */
static int number_object(PyObject *object, PyObject *key_function, PyObject *classes, uint32_t *out)
{
    bool is_plain = PyAnySet_CheckExact(object) || PyByteArray_CheckExact(object);
    PyObject *key = is_plain ? graph_object_key(object) : PyObject_CallOneArg(key_function, object);
    int result = key || is_plain ? graph_object_class(object, key, classes, out) : -1;

    Py_XDECREF(key);
    return result;
}

static int number_objects(const compared *c, PyObject *key_function, PyObject *classes)
{
    for (uint32_t i = 0; i < c->count; i++) {
        if (!c->needed[i])
            continue;
        PyObject *object = Py_NewRef(graph_object_at(c->g, i));
        int result = number_object(object, key_function, classes, &c->classes[i]);
        Py_DECREF(object);
        if (result < 0)
            return -1;
    }
    return 0;
}

/* ---- meta ---- */

static PyObject *meta_value(const compared *c, uint32_t id, Py_ssize_t key)
{
    uint32_t object = fe_meta_get(c->g->core->details[id].meta, c->meta_keys[key]);

    return object == FE_NONE_ID ? NULL : graph_object_at(c->g, object);
}

/* Whether two nodes of one producer's kind have the same values for each result, and nothing else could tell them apart. */
static bool same_results(const loaded *a, uint32_t i, const loaded *b, uint32_t k)
{
    const pt2_origin *o = &a->from->origins[i], *p = &b->from->origins[k];

    if (!yyjson_equals(pt2_field(o->json, "outputs"), pt2_field(p->json, "outputs")))
        return false;
    for (;;) {
        bool more_a = ++i < a->from->origin_count && a->from->origins[i].source == PT2_FROM_RESULT &&
                      a->from->origins[i].json == o->json;
        bool more_b = ++k < b->from->origin_count && b->from->origins[k].source == PT2_FROM_RESULT &&
                      b->from->origins[k].json == p->json;
        if (more_a != more_b || !more_a)
            return more_a == more_b;
        if (!yyjson_equals(a->from->origins[i].value, b->from->origins[k].value) ||
            a->from->origins[i].value_kind != b->from->origins[k].value_kind)
            return false;
    }
}

static uint32_t id_in_file(const loaded *l, uint32_t id)
{
    return l->file_ids ? l->file_ids[id] : id;
}

/* Whether the files say the same of the values of two nodes, whose meta nobody has looked at yet. Then it need not be
 * decoded, which takes far longer than all the rest. */
static bool same_value_in_files(const compared *a, const compared *b, const fe_diff_pair *pair)
{
    const loaded *l = a->g->loaded, *m = b->g->loaded;

    if (!graph_is_untouched(a->g, pair->a) || !graph_is_untouched(b->g, pair->b))
        return false;
    const pt2_origin *o = &l->origins[pair->a], *p = &m->origins[pair->b];
    if (o->source != p->source || !o->value != !p->value)
        return false;
    if (o->value)
        return o->value_kind == p->value_kind && yyjson_equals(o->value, p->value);
    return o->source != PT2_FROM_NODE || same_results(l, id_in_file(l, pair->a), m, id_in_file(m, pair->b));
}

/* Keys have the same numbers in a graph and its copy, as far as both have them. */
static bool any_meta_differs(const compared *a, const compared *b, const fe_diff_pair *pair)
{
    const fe_meta *m = a->g->core->details[pair->a].meta, *n = b->g->core->details[pair->b].meta;
    uint32_t len = n ? n->len : 0;

    if ((m ? m->len : 0) != len)
        return true;
    for (uint32_t i = 0; i < len; i++) {
        fe_meta_entry entry = n->entries[i];
        uint32_t number = entry.key;
        if (number >= (uint32_t)PyList_GET_SIZE(a->g->meta_keys) ||
            PyList_GET_ITEM(a->g->meta_keys, number) != PyList_GET_ITEM(b->g->meta_keys, number))
            return true;
        uint32_t object = fe_meta_get(m, number);
        if (object == FE_NONE_ID || graph_object_at(a->g, object) != graph_object_at(b->g, entry.object))
            return true;
    }
    return false;
}

static bool meta_differs(const compared *a, const compared *b, const fe_diff_pair *pair)
{
    if (!a->meta_keys)
        return any_meta_differs(a, b, pair);
    if (a->only_value && (graph_is_untouched(a->g, pair->a) || graph_is_untouched(b->g, pair->b)))
        return !same_value_in_files(a, b, pair);
    for (Py_ssize_t i = 0; i < a->key_count; i++) {
        if (meta_value(a, pair->a, i) != meta_value(b, pair->b, i))
            return true;
    }
    return false;
}

/* ---- the call ---- */

static int compared_open(compared *c, GraphObject *g, PyObject *meta_keys)
{
    *c = (compared){.g = g};
    if (meta_keys != Py_None) {
        c->key_count = PyTuple_GET_SIZE(meta_keys);
        c->meta_keys = PyMem_New(uint32_t, (size_t)c->key_count + 1);
        if (!c->meta_keys) {
            PyErr_NoMemory();
            return -1;
        }
    }
    for (Py_ssize_t i = 0; i < c->key_count; i++) {
        if (graph_meta_key(g, PyTuple_GET_ITEM(meta_keys, i), false, &c->meta_keys[i]) < 0)
            return -1;
    }
    c->only_value = c->key_count == 1 && PyUnicode_Check(PyTuple_GET_ITEM(meta_keys, 0)) &&
                    PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(meta_keys, 0), "val") == 0;
    bool needs_all = !c->meta_keys || (c->key_count && !c->only_value);
    return needs_all && graph_load_all_meta(g) < 0 ? -1 : graph_readable(g);
}

/* The graph must be pinned. */
static int compared_walk(compared *c)
{
    c->count = c->g->core->object_count;
    c->classes = PyMem_New(uint32_t, c->count + 1);
    c->needed = PyMem_Calloc((size_t)c->count + 1, sizeof *c->needed);
    c->places = PyMem_New(uint32_t, c->g->core->node_count);
    c->ids = PyMem_New(uint32_t, c->g->core->live + 1);
    if (!c->classes || !c->needed || !c->places || !c->ids) {
        PyErr_NoMemory();
        return -1;
    }
    memset(c->classes, 0xff, (c->count + 1) * sizeof *c->classes);
    walk_nodes(c);
    return 0;
}

static void compared_close(compared *c)
{
    PyMem_Free(c->meta_keys);
    PyMem_Free(c->classes);
    PyMem_Free(c->needed);
    PyMem_Free(c->places);
    PyMem_Free(c->ids);
}

/* The pairs as triples of numbers: place in a, place in b (FE_NONE_ID: none), changes. */
static PyObject *triples(const compared *a, const compared *b, const fe_diff_pair *pairs, uint32_t count)
{
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * sizeof(fe_diff_pair)));

    for (uint32_t i = 0; bytes && i < count; i++) {
        fe_diff_pair p = pairs[i];
        if (p.a != FE_NONE_ID && p.b != FE_NONE_ID && meta_differs(a, b, &p))
            p.changes |= DIFF_META;
        p.a = p.a == FE_NONE_ID ? FE_NONE_ID : a->places[p.a];
        p.b = p.b == FE_NONE_ID ? FE_NONE_ID : b->places[p.b];
        memcpy(PyBytes_AS_STRING(bytes) + i * sizeof p, &p, sizeof p);
    }
    return bytes;
}

/* From places in a by place in b, as bytes, nodes of a by node of b; NULL with an exception. */
static uint32_t *known_pairs(const compared *a, const compared *b, PyObject *places)
{
    const fe_graph *from = a->g->core, *to = b->g->core;
    uint32_t *known = PyMem_New(uint32_t, to->node_count);
    bool *taken = PyMem_Calloc((size_t)from->live + 1, sizeof *taken);
    bool fits = PyBytes_GET_SIZE(places) == (Py_ssize_t)(to->live * sizeof(uint32_t));

    if (!known || !taken) {
        PyErr_NoMemory();
        fits = false;
    } else {
        for (uint32_t i = 0; fits && i < to->live; i++) {
            uint32_t place;
            memcpy(&place, PyBytes_AS_STRING(places) + i * sizeof place, sizeof place);
            fits = place == FE_NONE_ID || (place < from->live && !taken[place]);
            known[b->ids[i]] = fits && place != FE_NONE_ID ? a->ids[place] : FE_NONE_ID;
            if (fits && place != FE_NONE_ID)
                taken[place] = true;
        }
        if (!fits)
            PyErr_SetString(PyExc_ValueError, "diff_graphs() takes a place in a for each node of b, each but once");
    }
    PyMem_Free(taken);
    if (!fits) {
        PyMem_Free(known);
        return NULL;
    }
    return known;
}

static PyObject *compare(const compared *a, const compared *b, PyObject *places)
{
    const fe_diff_side side_a = {a->g->core, a->classes}, side_b = {b->g->core, b->classes};
    size_t room = (size_t)a->g->core->live + b->g->core->live;
    fe_diff_pair *pairs = PyMem_New(fe_diff_pair, room + 1);
    uint32_t *known = places != Py_None && pairs ? known_pairs(a, b, places) : NULL;
    PyObject *result = NULL;
    fe_error err;
    uint32_t count;

    if (!pairs)
        PyErr_NoMemory();
    else if (places != Py_None && !known)
        result = NULL; /* known_pairs has raised */
    else if (fe_diff_graphs(&side_a, &side_b, known, pairs, &count, &err) < 0)
        raise_core(a->g->state, &err);
    else
        result = triples(a, b, pairs, count);
    PyMem_Free(known);
    PyMem_Free(pairs);
    return result;
}

PyDoc_STRVAR(
    diff_graphs_doc,
    "diff_graphs(a, b, key, places, meta_keys, /)\n--\n\n"
    "Compare two graphs. Returns triples of 32-bit numbers: place of a node in a, its place in b, what differs\n"
    "(bits of op, target, args, kwargs, type, name, order, meta); 2**32 - 1 is no place. All nodes of b come first, "
    "in\n"
    "their order, then those that only a has. key makes of an object what its equals are known by. places, bytes,\n"
    "tells for each node of b its place in a; None: find out. Meta differs when it has another object under one of\n"
    "meta_keys, a tuple; None: under any key, where b is a copy of a or the other way round. With \"val\" alone, meta "
    "that\n"
    "is still in a file differs when that says something else.");

static PyObject *diff_graphs(PyObject *m, PyObject *args)
{
    PyTypeObject *type = state_of(m)->graph_type;
    PyObject *first, *second, *key, *places, *meta_keys, *classes, *result = NULL;
    compared a = {0}, b = {0};

    if (!PyArg_ParseTuple(args, "O!O!OOO:diff_graphs", type, &first, type, &second, &key, &places, &meta_keys))
        return NULL;
    if ((places != Py_None && !PyBytes_Check(places)) || (meta_keys != Py_None && !PyTuple_Check(meta_keys)))
        return PyErr_Format(PyExc_TypeError, "diff_graphs() takes bytes and a tuple, or None");
    if (!(classes = PyDict_New()))
        return NULL;
    GraphObject *g = (GraphObject *)first, *h = (GraphObject *)second;
    if (compared_open(&a, g, meta_keys) == 0 && compared_open(&b, h, meta_keys) == 0 && graph_readable(g) == 0) {
        graph_pin(g);
        graph_pin(h);
        if (compared_walk(&a) == 0 && compared_walk(&b) == 0 && number_objects(&a, key, classes) == 0 &&
            number_objects(&b, key, classes) == 0)
            result = compare(&a, &b, places);
        graph_unpin(h);
        graph_unpin(g);
    }
    compared_close(&a);
    compared_close(&b);
    Py_DECREF(classes);
    return result;
}

PyMethodDef diff_functions[] = {
    {"diff_graphs", diff_graphs, METH_VARARGS, diff_graphs_doc},
    {NULL, NULL, 0, NULL},
};
