/* explorer.c - the nodes of a graph as JSON for Model Explorer.
 *
 * What Python tells of targets, modules, source lines and values is asked first, once for each text; then the core writes,
 * without the GIL. Asking runs Python code, which may edit the graph: that ends it.
 */
#include "explorer.h"

#include "loaded.h"

/* What of a node is told by a text of the file. */
typedef enum { SPACE, SOURCE, VALUE, KINDS } kind;

static const char *const methods[KINDS] = {"space", "source", "value"};
static const char *const keys[KINDS] = {"nn_module_stack", "stack_trace", NULL};

typedef struct {
    GraphObject *g;
    PyObject *told;         /* is asked; see the docstring */
    PyObject *kept;         /* list: what the texts below point into */
    PyObject *texts[KINDS]; /* dicts: text of the file -> itself */
    PyObject *known[KINDS]; /* dicts: text of the file -> what was told */
    uint64_t version;       /* of the core */
    fe_explorer_target *targets;
    fe_explorer_node *nodes;
    uint32_t target_count, node_count;
} asking;

static void asking_clear(asking *a)
{
    for (uint32_t i = 0; a->targets && i < a->target_count; i++)
        PyMem_RawFree((void *)a->targets[i].names);
    PyMem_RawFree(a->targets);
    PyMem_RawFree(a->nodes);
    for (int i = 0; i < KINDS; i++) {
        Py_XDECREF(a->texts[i]);
        Py_XDECREF(a->known[i]);
    }
    Py_XDECREF(a->kept);
}

static int asking_init(asking *a, GraphObject *g, PyObject *told)
{
    *a = (asking){.g = g, .told = told, .version = g->core->version};
    a->node_count = g->core->node_count;
    a->target_count = g->core->target_count;
    if (!(a->kept = PyList_New(0)))
        return -1;
    for (int i = 0; i < KINDS; i++) {
        if (!(a->texts[i] = PyDict_New()) || !(a->known[i] = PyDict_New()))
            return -1;
    }
    a->nodes = PyMem_RawCalloc((size_t)a->node_count + 1, sizeof *a->nodes);
    a->targets = PyMem_RawCalloc((size_t)a->target_count + 1, sizeof *a->targets);
    if (!a->nodes || !a->targets) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

/* The text of a str, which somebody has to keep. */
static int read_text(PyObject *o, fe_text *out)
{
    Py_ssize_t len;
    const char *data;

    if (!o || !PyUnicode_Check(o)) {
        if (o)
            PyErr_Format(PyExc_TypeError, "JSON is told as str, not %R", Py_TYPE(o));
        return -1;
    }
    if (!(data = PyUnicode_AsUTF8AndSize(o, &len)))
        return -1;
    *out = (fe_text){data, (size_t)len};
    return 0;
}

/* 0 when the graph is what it was before Python code ran, in this thread or another. */
static int unchanged(const asking *a)
{
    if (graph_readable(a->g) < 0)
        return -1;
    if (a->g->core->version == a->version)
        return 0;
    PyErr_SetString(a->g->state->error, "the graph was changed while it was written as JSON");
    return -1;
}

/* Ask for something of a node; the answer is a new reference. */
static PyObject *ask_of(asking *a, const char *method, PyObject *text, uint32_t id)
{
    PyObject *node = graph_node(a->g, id), *answer = NULL;

    if (node)
        answer = text ? PyObject_CallMethod(a->told, method, "OO", text, node)
                      : PyObject_CallMethod(a->told, method, "O", node);
    Py_XDECREF(node);
    if (answer && unchanged(a) < 0)
        Py_CLEAR(answer);
    return answer;
}

/* ---- what is shared by nodes ---- */

/* What is told of a text of the file, which is asked once; text False: of this node alone. */
static int tell(asking *a, kind k, PyObject *text, uint32_t id, fe_text *out)
{
    PyObject *answer;
    int result = -1;

    if (!text || text == Py_None)
        return text ? 0 : -1;
    answer = text == Py_False ? NULL : PyDict_GetItemWithError(a->known[k], text);
    if (answer)
        return read_text(answer, out);
    if (PyErr_Occurred())
        return -1;
    answer = ask_of(a, methods[k], text == Py_False ? Py_None : text, id);
    if (answer && (text == Py_False ? PyList_Append(a->kept, answer) : PyDict_SetItem(a->known[k], text, answer)) == 0)
        result = read_text(answer, out);
    Py_XDECREF(answer);
    return result;
}

static int tell_all(asking *a, uint32_t id, bool is_call)
{
    fe_explorer_node *n = &a->nodes[id];
    fe_text *const out[KINDS] = {&n->space, &n->source, &n->value};

    for (kind k = is_call ? SPACE : VALUE; k < KINDS; k++) {
        PyObject *text =
            k == VALUE ? value_in_file(a->g, id, a->texts[k]) : metadata_in_file(a->g, id, keys[k], a->texts[k]);
        int result = tell(a, k, text, id, out[k]);
        Py_XDECREF(text);
        if (result < 0)
            return -1;
    }
    return 0;
}

/* ---- nodes and targets ---- */

static int ask_leaf(asking *a, uint32_t id)
{
    fe_explorer_node *n = &a->nodes[id];
    PyObject *answer = ask_of(a, "leaf", NULL, id), *graph;
    int result = -1;

    if (answer && PyList_Append(a->kept, answer) == 0) {
        if (!PyTuple_Check(answer) || PyTuple_GET_SIZE(answer) != 3 || !PyBool_Check(PyTuple_GET_ITEM(answer, 2)))
            PyErr_SetString(PyExc_TypeError, "leaf() gives a tuple of three, the last of which is a bool");
        else if ((graph = PyTuple_GET_ITEM(answer, 1)) && read_text(PyTuple_GET_ITEM(answer, 0), &n->leaf) == 0 &&
                 (graph == Py_None || read_text(graph, &n->graph) == 0)) {
            n->follows = PyTuple_GET_ITEM(answer, 2) == Py_True;
            result = 0;
        }
    }
    Py_XDECREF(answer);
    return result;
}

static int read_names(PyObject *names, fe_explorer_target *t)
{
    if (!PyTuple_Check(names)) {
        PyErr_SetString(PyExc_TypeError, "target() gives a tuple of names");
        return -1;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(names);
    fe_text *texts = PyMem_RawCalloc((size_t)count + 1, sizeof *texts);
    if (!texts) {
        PyErr_NoMemory();
        return -1;
    }
    t->names = texts;
    t->name_count = (uint32_t)count;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (read_text(PyTuple_GET_ITEM(names, i), &texts[i]) < 0)
            return -1;
    }
    return 0;
}

static int ask_target(asking *a, uint32_t target)
{
    fe_explorer_target *t = &a->targets[target];
    PyObject *object, *answer;
    int result = -1;

    if (t->label.data)
        return 0;
    object = graph_target_object(a->g, target);
    answer = object ? PyObject_CallMethod(a->told, "target", "(O)", object) : NULL;
    Py_XDECREF(object);
    if (answer && unchanged(a) == 0 && PyList_Append(a->kept, answer) == 0) {
        if (!PyTuple_Check(answer) || PyTuple_GET_SIZE(answer) != 2)
            PyErr_SetString(PyExc_TypeError, "target() gives a tuple of two");
        else if (read_names(PyTuple_GET_ITEM(answer, 1), t) == 0)
            result = read_text(PyTuple_GET_ITEM(answer, 0), &t->label);
    }
    Py_XDECREF(answer);
    return result;
}

static int ask_all(asking *a)
{
    for (uint32_t id = a->g->core->nodes[FE_ROOT].next; id != FE_ROOT; id = a->g->core->nodes[id].next) {
        const fe_node *n = &a->g->core->nodes[id];
        bool is_call = n->op == FE_OP_CALL_FUNCTION || n->op == FE_OP_CALL_METHOD || n->op == FE_OP_CALL_MODULE;
        if ((is_call ? ask_target(a, n->target) : ask_leaf(a, id)) < 0 || tell_all(a, id, is_call) < 0)
            return -1;
    }
    return 0;
}

static uint32_t getitem_target(const GraphObject *g)
{
    const fe_graph *c = g->core;

    for (uint32_t i = 0; i < c->target_count; i++) {
        uint32_t object = c->targets[i].object;
        if (c->targets[i].op == FE_OP_CALL_FUNCTION && object != FE_NONE_ID && object < g->object_capacity &&
            g->objects[object] == g->state->getitem)
            return i;
    }
    return FE_NONE_ID;
}

/* The graph is pinned, and as it was when it was asked about. */
static PyObject *write_nodes(asking *a)
{
    GraphObject *g = a->g;
    rendering *r = rendering_new(g, FE_TEXT_REPR, false);
    PyObject *text = NULL;
    fe_buffer out;

    if (!r)
        return NULL;
    fe_renderer renderer = *rendering_of(r);
    renderer.quote = fe_explorer_quote; /* needs no Python */
    fe_explorer e = {a->targets, a->nodes, getitem_target(g), &renderer};
    fe_buffer_init(&out, &fe_python_allocator);
    g->busy = true;
    Py_BEGIN_ALLOW_THREADS
    fe_explorer_write(g->core, &e, &out);
    Py_END_ALLOW_THREADS
    g->busy = false;
    text = out.failed ? PyErr_NoMemory() : PyUnicode_DecodeASCII(out.data ? out.data : "", (Py_ssize_t)out.len, NULL);
    fe_buffer_clear(&out);
    rendering_free(r);
    return text;
}

PyDoc_STRVAR(
    explorer_nodes_doc,
    "explorer_nodes(graph, told, /)\n--\n\n"
    "The nodes of a graph as the JSON objects that Model Explorer reads, with commas between.\n"
    "\n"
    "told is asked, with texts as files have them or None where the meta of the node tells, and answers in "
    "ASCII:\n"
    "  leaf(node) -> ('\"label\":..,\"attrs\":[..]', id of the graph that it gets or None, whether it is shown with\n"
    "      its users), of what is no call\n"
    "  target(target) -> (label, names of arguments), JSON strings\n"
    "  space(nn_module_stack, node) -> the namespace, without quotes\n"
    "  source(stack_trace, node) -> JSON objects of attributes, each after a comma\n"
    "  value(\"CODE[SIZES]\", node) -> a JSON string, or \"\"");

static PyObject *explorer_nodes(PyObject *m, PyObject *args)
{
    PyObject *o, *told, *text = NULL;
    asking a;

    if (!PyArg_ParseTuple(args, "O!O:explorer_nodes", state_of(m)->graph_type, &o, &told) ||
        graph_readable((GraphObject *)o) < 0)
        return NULL;
    if (asking_init(&a, (GraphObject *)o, told) == 0 && ask_all(&a) == 0 && unchanged(&a) == 0) {
        graph_pin(a.g);
        text = write_nodes(&a);
        graph_unpin(a.g);
        graph_sweep(a.g);
    }
    asking_clear(&a);
    return text;
}

PyMethodDef explorer_functions[] = {
    {"explorer_nodes", explorer_nodes, METH_VARARGS, explorer_nodes_doc},
    {NULL, NULL, 0, NULL},
};
