/* nodes.c - graph.nodes: a live view of the list of nodes, and its iterators.
 *
 * What an iterator guarantees, in either direction and whatever happens to the graph meanwhile (as in torch.fx):
 *   - the step to the next node is made when that node is asked for, from the node given last, along the links that
 *     node has by then. So a node put in ahead is given, one erased ahead is not, and when the node given last has
 *     moved, the walk goes on from its new place;
 *   - the node given last may be erased, and any neighbours with it: the walk goes on along the links the node had
 *     when it was erased, past all erased nodes. A node put in at the gap only after that is not given;
 *   - the walk ends where it meets the end of the list, and an iterator that has ended stays ended.
 *
 * An iterator remembers the id of a node and no address; ids are never reused, so no edit can invalidate it.
 */
#include "graph.h"

typedef struct {
    PyObject_HEAD
    GraphObject *graph;
} NodesObject;

typedef struct {
    PyObject_HEAD
    GraphObject *graph; /* NULL: ended */
    uint32_t last;      /* the node given last; the root before the first */
    bool backwards;
} NodesIterObject;

/* ---- the iterator ---- */

static PyObject *iterate(GraphObject *g, bool backwards)
{
    NodesIterObject *it = PyObject_GC_New(NodesIterObject, g->state->nodes_iter_type);

    if (!it)
        return NULL;
    it->graph = (GraphObject *)Py_NewRef(g);
    it->last = FE_ROOT;
    it->backwards = backwards;
    PyObject_GC_Track(it);
    return (PyObject *)it;
}

static PyObject *NodesIter_next(NodesIterObject *self)
{
    GraphObject *g = self->graph;

    if (!g || graph_readable(g) < 0)
        return NULL;
    uint32_t id = self->backwards ? fe_node_prev(g->core, self->last) : fe_node_next(g->core, self->last);
    if (id == FE_ROOT) {
        Py_CLEAR(self->graph);
        return NULL;
    }
    PyObject *node = graph_node(g, id);
    if (node)
        self->last = id;
    return node;
}

static int NodesIter_traverse(NodesIterObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->graph);
    return 0;
}

static void NodesIter_dealloc(NodesIterObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->graph);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyType_Slot nodes_iter_slots[] = {
    {Py_tp_dealloc, NodesIter_dealloc},
    {Py_tp_traverse, NodesIter_traverse},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, NodesIter_next},
    {0, NULL},
};

PyType_Spec nodes_iter_spec = {
    .name = "fastexport._core.NodeIterator",
    .basicsize = sizeof(NodesIterObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = nodes_iter_slots,
};

/* ---- the view ---- */

PyObject *nodes_new(GraphObject *g)
{
    NodesObject *view = PyObject_GC_New(NodesObject, g->state->nodes_type);

    if (!view)
        return NULL;
    view->graph = (GraphObject *)Py_NewRef(g);
    PyObject_GC_Track(view);
    return (PyObject *)view;
}

static PyObject *Nodes_iter(NodesObject *self)
{
    return iterate(self->graph, false);
}

static PyObject *Nodes_reversed(NodesObject *self, PyObject *Py_UNUSED(ignored))
{
    return iterate(self->graph, true);
}

static Py_ssize_t Nodes_len(NodesObject *self)
{
    return graph_readable(self->graph) < 0 ? -1 : (Py_ssize_t)self->graph->core->live;
}

static int Nodes_contains(NodesObject *self, PyObject *o)
{
    GraphObject *g = self->graph;

    if (!PyObject_TypeCheck(o, g->state->node_type) || ((NodeObject *)o)->graph != g)
        return 0;
    return graph_readable(g) < 0 ? -1 : fe_node_is_listed(g->core, ((NodeObject *)o)->id);
}

static PyObject *Nodes_getitem(NodesObject *self, PyObject *name)
{
    if (!PyUnicode_Check(name))
        return PyErr_Format(
            PyExc_TypeError,
            "graph.nodes[...] takes the name of a node, not %.200s; list(graph.nodes) has them by number",
            Py_TYPE(name)->tp_name);
    return Graph_node((PyObject *)self->graph, name);
}

/* The names of the first nodes, and "..." when there are more. The graph is pinned. */
static PyObject *first_names(const fe_graph *core, uint32_t most)
{
    PyObject *names = PyList_New(0);
    uint32_t id = fe_node_next(core, FE_ROOT);

    for (uint32_t i = 0; names && id != FE_ROOT && i <= most; i++, id = fe_node_next(core, id)) {
        PyObject *name = i < most ? string_to_python(core->details[id].name) : PyUnicode_FromString("...");
        if (!name || PyList_Append(names, name) < 0)
            Py_CLEAR(names);
        Py_XDECREF(name);
    }
    return names;
}

static PyObject *Nodes_names(NodesObject *self, PyObject *Py_UNUSED(ignored))
{
    GraphObject *g = self->graph;

    if (graph_readable(g) < 0)
        return NULL;
    graph_pin(g);
    PyObject *names = first_names(g->core, UINT32_MAX);
    graph_unpin(g);
    return names;
}

#define SHOWN 5 /* names in a repr */

static PyObject *Nodes_repr(NodesObject *self)
{
    GraphObject *g = self->graph;
    PyObject *names = NULL, *comma = NULL, *list = NULL, *text = NULL;

    if (graph_readable(g) < 0)
        return NULL;
    graph_pin(g);
    uint32_t count = g->core->live;
    names = first_names(g->core, SHOWN);
    graph_unpin(g);
    comma = names ? PyUnicode_FromString(", ") : NULL;
    list = comma ? PyUnicode_Join(comma, names) : NULL;
    if (list)
        text = PyUnicode_FromFormat("<%u node%s%s%U>", count, count == 1 ? "" : "s", count ? ": " : "", list);
    Py_XDECREF(names);
    Py_XDECREF(comma);
    Py_XDECREF(list);
    return text;
}

static PyObject *Nodes_mimebundle(PyObject *self, PyObject *args, PyObject *kwargs)
{
    return call_python_in("fastexport._notebook", self, "mimebundle", args, kwargs);
}

static int Nodes_traverse(NodesObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->graph);
    return 0;
}

static void Nodes_dealloc(NodesObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    Py_DECREF(self->graph);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

PyDoc_STRVAR(nodes_doc, "The nodes of a graph in order, as graph.nodes gives them: a live view.\n"
                        "\n"
                        "It has a length, iterates in both directions and knows what is `in` it: the nodes that\n"
                        "stand in the graph now, by identity. graph.nodes[\"add\"] is the node of that name.\n"
                        "\n"
                        "The graph may be changed in any way while one iterates, as in torch.fx. The step to the\n"
                        "next node is made when that node is asked for, from the node given last, along the links\n"
                        "that node has by then: what was inserted ahead is visited, what was erased ahead is not,\n"
                        "and after the node given last was moved, iteration goes on from its new place. The node\n"
                        "given last may be erased, its neighbours too: iteration goes on from where it stood, past\n"
                        "erased nodes; what is inserted there later is not visited. An iterator that has ended stays\n"
                        "ended.\n"
                        "\n"
                        "Asking while a pass runs on the graph in another thread raises fastexport.FastExportError.\n"
                        "\n"
                        ">>> for node in reversed(graph.nodes):\n"
                        "...     if not node.users and node.op == 'call_function':\n"
                        "...         graph.erase_node(node)");

PyDoc_STRVAR(reversed_doc, "__reversed__($self, /)\n--\n\nIterate from the last node to the first.");

static PyMethodDef nodes_methods[] = {
    {"__reversed__", (PyCFunction)Nodes_reversed, METH_NOARGS, reversed_doc},
    {"_ipython_key_completions_", (PyCFunction)Nodes_names, METH_NOARGS,
     "_ipython_key_completions_($self, /)\n--\n\nThe names of all nodes, for the tab key after graph.nodes[."},
    {"_repr_mimebundle_", (PyCFunction)(void (*)(void))Nodes_mimebundle, METH_VARARGS | METH_KEYWORDS,
     "_repr_mimebundle_($self, include=None, exclude=None)\n--\n\nWhat a notebook shows: the text, and HTML."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot nodes_slots[] = {
    {Py_tp_doc, (void *)nodes_doc},   {Py_tp_dealloc, Nodes_dealloc},
    {Py_tp_traverse, Nodes_traverse}, {Py_tp_repr, Nodes_repr},
    {Py_tp_iter, Nodes_iter},         {Py_tp_methods, nodes_methods},
    {Py_sq_length, Nodes_len},        {Py_sq_contains, Nodes_contains},
    {Py_mp_subscript, Nodes_getitem}, {0, NULL},
};

PyType_Spec nodes_spec = {
    .name = "fastexport._core.NodeList",
    .basicsize = sizeof(NodesObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = nodes_slots,
};
