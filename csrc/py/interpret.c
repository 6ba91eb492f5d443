/* interpret.c - what running a graph node by node asks of C: values put in the places of nodes, and last uses. */
#include "module.h"

/* ---- values for nodes ---- */

typedef struct {
    const module_state *st;
    PyObject *values;  /* mapping: Node -> value */
    PyObject *missing; /* called for a Node that has none; its result is taken */
} substitution;

static PyObject *substitute(const substitution *s, PyObject *o);

static PyObject *value_of(const substitution *s, PyObject *node)
{
    PyObject *value;

    if (PyDict_CheckExact(s->values)) {
        value = Py_XNewRef(PyDict_GetItemWithError(s->values, node));
    } else {
        value = PyObject_GetItem(s->values, node);
        if (!value && PyErr_ExceptionMatches(PyExc_KeyError))
            PyErr_Clear();
    }
    return value || PyErr_Occurred() ? value : PyObject_CallOneArg(s->missing, node);
}

/* The items of a tuple or list with values in the places of nodes. */
static PyObject *substitute_items(const substitution *s, PyObject *o)
{
    PyObject *items = PySequence_Tuple(o), *result = items ? PyTuple_New(PyTuple_GET_SIZE(items)) : NULL;

    for (Py_ssize_t i = 0; result && i < PyTuple_GET_SIZE(items); i++) {
        PyObject *item = substitute(s, PyTuple_GET_ITEM(items, i));
        if (item)
            PyTuple_SET_ITEM(result, i, item);
        else
            Py_CLEAR(result);
    }
    Py_XDECREF(items);
    return result;
}

/* A class with named fields takes them one by one, another tuple becomes a plain one: torch.fx's rules. */
static PyObject *substitute_tuple(const substitution *s, PyObject *o)
{
    PyObject *items = substitute_items(s, o), *fields = NULL, *result = NULL;

    if (PyTuple_CheckExact(o) || !items)
        return items;
    if (lookup_attr(o, s->st->str_fields, &fields) >= 0)
        result = fields ? PyObject_Call((PyObject *)Py_TYPE(o), items, NULL) : Py_NewRef(items);
    Py_XDECREF(fields);
    Py_DECREF(items);
    return result;
}

static PyObject *substitute_list(const substitution *s, PyObject *o)
{
    PyObject *items = substitute_items(s, o), *result = items ? PyObject_CallOneArg(s->st->list_type, items) : NULL;

    Py_XDECREF(items);
    return result;
}

static PyObject *substitute_dict(const substitution *s, PyObject *o)
{
    PyObject *items = PyDict_Items(o), *filled = items ? PyDict_New() : NULL, *result = NULL;

    for (Py_ssize_t i = 0; filled && i < PyList_GET_SIZE(items); i++) {
        PyObject *pair = PyList_GET_ITEM(items, i), *value = substitute(s, PyTuple_GET_ITEM(pair, 1));
        if (!value || PyDict_SetItem(filled, PyTuple_GET_ITEM(pair, 0), value) < 0)
            Py_CLEAR(filled);
        Py_XDECREF(value);
    }
    if (filled)
        result = PyObject_CallOneArg(s->st->dict_type, filled);
    Py_XDECREF(filled);
    Py_XDECREF(items);
    return result;
}

static PyObject *substitute_slice(const substitution *s, PyObject *o)
{
    const PySliceObject *slice = (PySliceObject *)o;
    PyObject *start = substitute(s, slice->start), *stop = start ? substitute(s, slice->stop) : NULL;
    PyObject *step = stop ? substitute(s, slice->step) : NULL, *result = step ? PySlice_New(start, stop, step) : NULL;

    Py_XDECREF(start);
    Py_XDECREF(stop);
    Py_XDECREF(step);
    return result;
}

static PyObject *substitute_container(const substitution *s, PyObject *o)
{
    if (PyTuple_Check(o))
        return substitute_tuple(s, o);
    if (PyList_Check(o))
        return substitute_list(s, o);
    return PyDict_Check(o) ? substitute_dict(s, o) : substitute_slice(s, o);
}

static PyObject *substitute(const substitution *s, PyObject *o)
{
    PyObject *result;

    if (Py_TYPE(o) == s->st->node_type)
        return value_of(s, o);
    if (!PyTuple_Check(o) && !PyList_Check(o) && !PyDict_Check(o) && !PySlice_Check(o))
        return Py_NewRef(o);
    if (Py_EnterRecursiveCall(" while putting values in the places of nodes"))
        return NULL;
    result = substitute_container(s, o);
    Py_LeaveRecursiveCall();
    return result;
}

PyDoc_STRVAR(map_nodes_doc,
             "map_nodes(arguments, values, missing, /)\n--\n\n"
             "Arguments with a mapping's value in the place of each Node; for a Node it lacks, missing(node).");

static PyObject *map_nodes(PyObject *m, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 3)
        return PyErr_Format(PyExc_TypeError, "map_nodes() takes arguments, values and a function for missing ones");
    substitution s = {.st = state_of(m), .values = args[1], .missing = args[2]};
    return substitute(&s, args[0]);
}

/* ---- last uses ---- */

static int append_to(PyObject *uses, PyObject *user, PyObject *node)
{
    PyObject *list = Py_XNewRef(PyDict_GetItemWithError(uses, user));

    if (!list && !PyErr_Occurred() && (list = PyList_New(0)) && PyDict_SetItem(uses, user, list) < 0)
        Py_CLEAR(list);
    int result = list ? PyList_Append(list, node) : -1;
    Py_XDECREF(list);
    return result;
}

/* Note the operands of a node that nothing behind it uses. */
static int note_last_uses(GraphObject *g, uint32_t id, uint8_t *used, PyObject *uses)
{
    PyObject *user = g->core->nodes[id].edge_count ? graph_node(g, id) : NULL;
    int result = g->core->nodes[id].edge_count && !user ? -1 : 0;

    for (uint32_t i = 0; result == 0 && i < g->core->nodes[id].edge_count; i++) {
        uint32_t def = g->core->edges[g->core->nodes[id].edge + i].def;
        if (used[def])
            continue;
        used[def] = 1;
        PyObject *node = graph_node(g, def);
        result = node ? append_to(uses, user, node) : -1;
        Py_XDECREF(node);
    }
    Py_XDECREF(user);
    return result;
}

PyDoc_STRVAR(last_uses_doc, "last_uses(graph, /)\n--\n\n"
                            "A dict from each Node to the list of those of its operands that no later one uses.");

static PyObject *last_uses(PyObject *m, PyObject *o)
{
    GraphObject *g = (GraphObject *)o;
    PyObject *uses;

    if (!PyObject_TypeCheck(o, state_of(m)->graph_type))
        return PyErr_Format(PyExc_TypeError, "last_uses() takes a Graph of fastexport, not %R", Py_TYPE(o));
    if (graph_readable(g) < 0 || !(uses = PyDict_New()))
        return NULL;
    uint8_t *used = PyMem_Calloc(g->core->node_count, 1);
    if (!used) {
        Py_DECREF(uses);
        return PyErr_NoMemory();
    }
    graph_pin(g);
    for (uint32_t id = g->core->nodes[FE_ROOT].prev; uses && id != FE_ROOT; id = g->core->nodes[id].prev) {
        if (note_last_uses(g, id, used, uses) < 0)
            Py_CLEAR(uses);
    }
    graph_unpin(g);
    PyMem_Free(used);
    return uses;
}

PyMethodDef interpret_functions[] = {
    {"map_nodes", (PyCFunction)(void (*)(void))map_nodes, METH_FASTCALL, map_nodes_doc},
    {"last_uses", last_uses, METH_O, last_uses_doc},
    {NULL, NULL, 0, NULL},
};
