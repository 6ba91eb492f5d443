/* view.c - Graph objects put together as the pt2_graphs of csrc/pt2, with a text for each node that no document speaks for.
 *
 * A view borrows the cores of the graphs and holds the graphs. Making one runs Python code (metadata is encoded, objects
 * are described), which may do anything to the graphs; so whoever makes a view asks view_is_current before it is used.
 */
#include "view.h"

/* What is never allowed, whatever the limits say: nesting, and graphs in all, as one Graph may be a subgraph of many. */
#define VIEW_MAX_DEPTH 1000
#define VIEW_MAX_GRAPHS 100000

void view_free(view *v)
{
    if (!v)
        return;
    for (uint32_t i = 0; v->inner && i < v->graph.subgraph_count; i++)
        view_free(v->inner[i]);
    PyMem_RawFree(v->inner);
    PyMem_RawFree(v->graph.subgraphs);
    PyMem_RawFree(v->graph.objects);
    PyMem_RawFree((void *)(uintptr_t)v->graph.texts);
    pt2_json_clear(&v->calls);
    Py_XDECREF(v->held);
    Py_XDECREF(v->owner);
    PyMem_RawFree(v);
}

/* Keep a str alive and give its UTF-8. */
static const char *hold_text(view *v, PyObject *text)
{
    Py_ssize_t len;

    if (!PyUnicode_Check(text)) {
        PyErr_Format(PyExc_TypeError, "a text was expected, not %.200s", Py_TYPE(text)->tp_name);
        return NULL;
    }
    const char *utf8 = PyList_Append(v->held, text) < 0 ? NULL : PyUnicode_AsUTF8AndSize(text, &len);
    if (!utf8)
        raise_lone_surrogate("text", text);
    if (utf8 && strlen(utf8) != (size_t)len) {
        PyErr_Format(PyExc_ValueError, "a text with a null character can't be written: %R", text);
        return NULL;
    }
    return utf8;
}

static bool is_described(const module_state *st, const PyObject *o)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(st->described_types); i++) {
        if ((PyObject *)Py_TYPE(o) == PyTuple_GET_ITEM(st->described_types, i))
            return true;
    }
    return false;
}

/* What is written by its text, not by its code. */
static bool needs_text(int kind)
{
    return kind == PT2_OBJECT_DEVICE || kind == PT2_OBJECT_TARGET || kind == PT2_OBJECT_CUSTOM;
}

/* What the words of `parts`, (kind, code, text[, schema]), say of an object. */
static int take_description(view *v, PyObject *parts, pt2_object *out)
{
    PyObject *text, *schema = Py_None;
    int kind, code;

    if (parts == Py_None)
        return 0;
    if (!PyTuple_Check(parts)) {
        PyErr_SetString(PyExc_TypeError, "an object is described by a tuple, or None");
        return -1;
    }
    if (!PyArg_ParseTuple(parts, "iiO|O;an object is described by (kind, code, text)", &kind, &code, &text, &schema))
        return -1;
    if (kind < 0 || kind >= PT2_OBJECT_KIND_COUNT) {
        PyErr_Format(PyExc_ValueError, "%d is no kind of objects", kind);
        return -1;
    }
    if ((schema != Py_None && !(out->schema = hold_text(v, schema))) ||
        (text != Py_None && !(out->text = hold_text(v, text))))
        return -1;
    if (text == Py_None)
        out->text = NULL;
    if (!out->text && needs_text(kind)) {
        PyErr_Format(PyExc_TypeError, "an object of the kind %d is described with a text", kind);
        return -1;
    }
    out->kind = (uint8_t)kind;
    out->code = code;
    return 0;
}

/* The name of an object's class, for messages; a copy, as Python code may rename the class. */
static const char *class_name(view *v, const PyObject *o)
{
    PyObject *name = PyUnicode_FromString(Py_TYPE(o)->tp_name);
    const char *text = name ? hold_text(v, name) : NULL;

    Py_XDECREF(name);
    return text;
}

/* with_torch: torch is loaded, so that anything may be a dtype or operator of its. */
static int describe(const view_maker *m, view *v, PyObject *o, bool with_torch, pt2_object *out)
{
    module_state *st = v->owner->state;

    if (!(out->text = class_name(v, o)))
        return -1;
    if (!m->describe && !with_torch && !is_described(st, o))
        return 0;
    Py_INCREF(o); /* what runs now may take it out of the graph */
    PyObject *parts = PyObject_CallOneArg(m->describe ? m->describe : st->describe_object, o);
    int result = parts ? take_description(v, parts, out) : -1;
    Py_XDECREF(parts);
    Py_DECREF(o);
    return result;
}

static void mark_objects(bool *marks, uint32_t count, const fe_seq *s)
{
    for (uint32_t i = 0; s && i < s->len; i++) {
        if (fe_kind_is_seq(s->items[i].kind))
            mark_objects(marks, count, s->items[i].as.seq); /* no deeper than FE_MAX_DEPTH */
        else if (s->items[i].kind == FE_OBJECT && s->items[i].as.object < count)
            marks[s->items[i].as.object] = true;
    }
}

/* Which objects stand in arguments or are called; most others are values of meta. */
static void mark_used(bool *marks, uint32_t count, const fe_graph *core)
{
    for (uint32_t id = 1; id < core->node_count; id++) {
        if (!fe_node_is_listed(core, id))
            continue;
        mark_objects(marks, count, core->details[id].args);
        mark_objects(marks, count, core->details[id].kwargs);
        if (core->nodes[id].target < core->target_count && core->targets[core->nodes[id].target].object < count)
            marks[core->targets[core->nodes[id].target].object] = true;
    }
}

static int view_objects(const view_maker *m, view *v)
{
    bool with_torch = PyDict_GetItemString(PyImport_GetModuleDict(), "torch") != NULL;

    if (graph_readable(v->owner) < 0)
        return -1;
    uint32_t count = v->owner->object_capacity;
    bool *marks = PyMem_RawCalloc((size_t)count + 1, sizeof *marks);
    int result = 0;

    v->graph.objects = PyMem_RawCalloc((size_t)count + 1, sizeof *v->graph.objects);
    v->graph.object_count = count;
    if (!v->graph.objects || !marks) {
        PyMem_RawFree(marks);
        PyErr_NoMemory();
        return -1;
    }
    mark_used(marks, count, v->owner->core);
    for (uint32_t i = 0; result == 0 && i < count && i < v->owner->object_capacity; i++) {
        if (marks[i] && v->owner->objects[i])
            result = describe(m, v, v->owner->objects[i], with_torch, &v->graph.objects[i]);
    }
    PyMem_RawFree(marks);
    return result;
}

/* The texts of a node's meta in our own words. */
static PyObject *encode_own(const view *v, uint32_t id, PyObject *meta)
{
    PyObject *name = string_to_python(v->owner->core->details[id].name);
    PyObject *texts = name ? PyObject_CallFunctionObjArgs(v->owner->state->encode_meta, meta, name, NULL) : NULL;

    Py_XDECREF(name);
    return texts;
}

static bool have_value(PyObject *texts)
{
    return PyTuple_CheckExact(texts) && PyTuple_GET_SIZE(texts) == 2 && PyTuple_GET_ITEM(texts, 0) != Py_None;
}

/* Whether texts are those of the meta that the file has: then its document says it better, with fields unknown to us.
 * *removed: whether the file has a value where they have none. */
static int are_of_file(view *v, uint32_t id, PyObject *texts, bool *removed)
{
    PyObject *meta = graph_meta_in_file(v->owner, id), *before;

    if (!meta)
        return PyErr_Occurred() ? -1 : 0;
    before = encode_own(v, id, meta);
    Py_DECREF(meta);
    int result = before ? PyObject_RichCompareBool(before, texts, Py_EQ) : -1;
    *removed = before && have_value(before) && !have_value(texts);
    Py_XDECREF(before);
    return result;
}

/* The texts of a node as the maker's function gives them. */
static PyObject *encode(const view_maker *m, const view *v, uint32_t id)
{
    if (graph_load_meta(v->owner, id) < 0)
        return NULL;
    bool is_input = v->owner->core->nodes[id].op == FE_OP_PLACEHOLDER;
    PyObject *name = string_to_python(v->owner->core->details[id].name);
    PyObject *meta = name ? meta_to_dict(v->owner, id) : NULL, *texts = NULL;

    if (meta)
        texts = PyObject_CallFunctionObjArgs(m->encode, name, meta, is_input ? Py_True : Py_False, NULL);
    Py_XDECREF(name);
    Py_XDECREF(meta);
    return texts;
}

/* The same of one of our own graphs. */
static PyObject *encode_known(const view *v, uint32_t id)
{
    PyObject *node = graph_node(v->owner, id);
    PyObject *meta = node ? meta_new((NodeObject *)node) : NULL;
    PyObject *texts = meta ? encode_own(v, id, meta) : NULL;

    Py_XDECREF(node);
    Py_XDECREF(meta);
    return texts;
}

static int take_texts(view *v, PyObject *texts, pt2_node_text *out)
{
    PyObject *value, *metadata;

    if (!PyTuple_Check(texts)) {
        PyErr_SetString(PyExc_TypeError, "the texts of a node are a tuple (value, metadata)");
        return -1;
    }
    if (!PyArg_ParseTuple(texts, "OO;the texts of a node are (value, metadata)", &value, &metadata))
        return -1;
    out->given = true;
    out->value = value == Py_None ? NULL : hold_text(v, value);
    out->metadata = hold_text(v, metadata);
    return (value == Py_None || out->value) && out->metadata ? 0 : -1;
}

static int view_text(const view_maker *m, view *v, uint32_t id, bool is_ours, pt2_node_text *out)
{
    PyObject *texts = m->encode ? encode(m, v, id) : encode_known(v, id);
    int same = !texts ? -1 : is_ours ? are_of_file(v, id, texts, &out->removed) : 0;
    int result = same < 0 ? -1 : same ? 0 : take_texts(v, texts, out);

    Py_XDECREF(texts);
    return result;
}

/* Whether a node has texts of its own. Without a document, a getitem's are those of what it takes. */
static bool has_texts(const view_maker *m, const GraphObject *g, uint32_t id)
{
    const fe_graph *core = g->core;
    fe_op op = (fe_op)core->nodes[id].op;

    if (!fe_node_is_listed(core, id) || op == FE_OP_OUTPUT)
        return false;
    if (!m->encode)
        return true;
    uint32_t object = core->targets[core->nodes[id].target].object;
    return op == FE_OP_PLACEHOLDER ||
           (op == FE_OP_CALL_FUNCTION && (object >= g->object_capacity || g->objects[object] != g->state->getitem));
}

/* Texts of all nodes that the document does not speak for: those that were touched, and all of a graph from elsewhere. */
static int view_texts(const view_maker *m, view *v, bool is_ours)
{
    uint32_t count = v->owner->core->node_count;
    pt2_node_text *texts = PyMem_RawCalloc(count, sizeof *texts);

    if (!texts) {
        PyErr_NoMemory();
        return -1;
    }
    v->graph.texts = texts;
    v->graph.text_count = count;
    for (uint32_t id = 1; id < count && id < v->owner->core->node_count; id++) {
        if (graph_readable(v->owner) < 0) /* the last text may have let a pass in another thread begin */
            return -1;
        if (has_texts(m, v->owner, id) && !(is_ours && graph_is_untouched(v->owner, id)) &&
            view_text(m, v, id, is_ours, &texts[id]) < 0)
            return -1;
    }
    return 0;
}

static int view_subgraphs(view_maker *m, view *v)
{
    PyObject *subgraphs = Py_XNewRef(v->owner->subgraphs); /* listing them may run a finalizer that sets another dict */
    PyObject *items = subgraphs ? PyDict_Items(subgraphs) : PyList_New(0);
    Py_ssize_t count = items ? PyList_GET_SIZE(items) : 0;
    int result = items ? 0 : -1;

    v->inner = PyMem_RawCalloc((size_t)count + 1, sizeof *v->inner);
    v->graph.subgraphs = PyMem_RawCalloc((size_t)count + 1, sizeof *v->graph.subgraphs);
    if (result == 0 && (!v->inner || !v->graph.subgraphs)) {
        PyErr_NoMemory();
        result = -1;
    }
    v->graph.subgraph_count = 0;
    for (Py_ssize_t i = 0; result == 0 && i < count; i++) {
        PyObject *name = PyTuple_GET_ITEM(PyList_GET_ITEM(items, i), 0);
        PyObject *graph = PyTuple_GET_ITEM(PyList_GET_ITEM(items, i), 1);
        view *inner = NULL;
        if (!PyObject_TypeCheck(graph, v->owner->state->graph_type))
            PyErr_Format(PyExc_TypeError, "the subgraph %R is a %.200s, not a Graph", name, Py_TYPE(graph)->tp_name);
        else
            inner = view_new(m, (GraphObject *)graph, v);
        if (inner) {
            v->inner[i] = inner;
            v->graph.subgraphs[i] = &inner->graph;
            v->graph.subgraph_count++;
            inner->graph.parent = &v->graph;
            inner->graph.name = hold_text(v, name);
        }
        result = inner && inner->graph.name ? 0 : -1;
    }
    Py_XDECREF(items);
    Py_XDECREF(subgraphs);
    return result;
}

view *view_new(view_maker *m, GraphObject *g, const view *outer)
{
    uint32_t limit = m->program ? m->program->archive->limits.graph_depth : 0, depth = outer ? outer->depth + 1 : 0;
    view *v;

    for (const view *o = outer; o; o = o->outer) {
        if (o->owner == g) {
            PyErr_SetString(PyExc_ValueError, "a graph is a subgraph of itself");
            return NULL;
        }
    }
    if (depth > (limit && limit < VIEW_MAX_DEPTH ? limit : VIEW_MAX_DEPTH) || m->made++ == VIEW_MAX_GRAPHS) {
        PyErr_SetString(PyExc_RecursionError, "subgraphs are nested too deep, or too many");
        return NULL;
    }
    v = PyMem_RawCalloc(1, sizeof *v);
    if (!v) {
        PyErr_NoMemory();
        return NULL;
    }
    v->owner = (GraphObject *)Py_NewRef(g);
    v->outer = outer;
    v->depth = depth;
    bool is_ours = m->program && g->loaded && g->loaded->program == m->program;
    if (is_ours) {
        v->graph = *g->loaded->from;
        v->graph.origins = g->loaded->origins;
        v->graph.origin_count = g->loaded->count;
    }
    v->graph.core = g->core;
    v->graph.subgraphs = NULL;
    v->graph.objects = NULL;
    v->graph.parent = NULL;
    v->held = PyList_New(0);
    if (!v->held || graph_readable(g) < 0)
        goto failed;
    v->version = g->core->version; /* before any code runs that may change it */
    if (view_texts(m, v, is_ours) == 0 && view_objects(m, v) == 0 && view_subgraphs(m, v) == 0)
        return v;
failed:
    view_free(v);
    return NULL;
}

static bool is_busy(const view *v)
{
    bool busy = v->owner->busy;

    for (uint32_t i = 0; i < v->graph.subgraph_count; i++)
        busy |= is_busy(v->inner[i]);
    return busy;
}

static int wait_for(const view *v)
{
    if (graph_readable(v->owner) < 0)
        return -1;
    for (uint32_t i = 0; i < v->graph.subgraph_count; i++) {
        if (wait_for(v->inner[i]) < 0)
            return -1;
    }
    return 0;
}

static bool is_as_viewed(const view *v)
{
    const fe_graph *c = v->owner->core;

    if (c->version != v->version || c->node_count > v->graph.text_count || c != v->graph.core ||
        v->owner->object_capacity > v->graph.object_count)
        return false;
    for (uint32_t i = 0; i < v->graph.subgraph_count; i++) {
        if (!is_as_viewed(v->inner[i]))
            return false;
    }
    return true;
}

/* Waiting for one graph lets other threads change any: the look at them comes when none is waited for. */
int view_is_current(const view *v)
{
    while (is_busy(v)) {
        if (wait_for(v) < 0)
            return -1;
    }
    if (is_as_viewed(v))
        return 0;
    PyErr_SetString(v->owner->state->error, "the graph was changed while it was being written or verified");
    return -1;
}

void view_set_busy(view *v, bool busy)
{
    v->owner->busy = busy;
    for (uint32_t i = 0; i < v->graph.subgraph_count; i++)
        view_set_busy(v->inner[i], busy);
}
