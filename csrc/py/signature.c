/* signature.c - the signature of an exported program's graph, as the core keeps it, for Python. */
#include "graph.h"

static PyObject *constant(const fe_value *v)
{
    switch (v->kind) {
    case FE_BOOL:
        return PyBool_FromLong(v->as.boolean);
    case FE_INT:
        return PyLong_FromLongLong(v->as.integer);
    case FE_FLOAT:
        return PyFloat_FromDouble(v->as.real);
    case FE_STR:
        return string_to_python(v->as.string);
    default:
        Py_RETURN_NONE;
    }
}

static PyObject *optional_string(const fe_string *s)
{
    return s ? string_to_python(s) : Py_NewRef(Py_None);
}

/* (kind, name of its node or None, constant, name of a constant input or None, target or None, persistent, origin or -1) */
static PyObject *spec_to_tuple(const fe_graph *c, const fe_spec *s)
{
    PyObject *node = optional_string(s->node == FE_NONE_ID ? NULL : c->details[s->node].name);
    PyObject *value = constant(&s->value), *name = optional_string(s->name), *target = optional_string(s->target);

    if (node && value && name && target)
        return Py_BuildValue("(iNNNNOL)", (int)s->kind, node, value, name, target, s->persistent ? Py_True : Py_False,
                             (long long)s->origin - 1);
    Py_XDECREF(node);
    Py_XDECREF(value);
    Py_XDECREF(name);
    Py_XDECREF(target);
    return NULL;
}

static PyObject *specs_to_list(const fe_graph *c, const fe_spec *specs, uint32_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);

    for (uint32_t i = 0; list && i < count; i++) {
        PyObject *spec = spec_to_tuple(c, &specs[i]);
        if (!spec)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, spec);
    }
    return list;
}

const char signature_doc[] =
    "_signature($self, /)\n--\n\n"
    "What inputs and outputs stand for, as two lists of tuples (kind, node, value, name, target, persistent, origin);\n"
    "None when the graph is no exported program's.";

PyObject *Graph_signature(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    GraphObject *g = (GraphObject *)self;
    const fe_signature *s = g->core->signature;
    PyObject *inputs, *outputs;

    if (graph_readable(g) < 0)
        return NULL;
    if (!s)
        Py_RETURN_NONE;
    graph_pin(g);
    inputs = specs_to_list(g->core, s->inputs, s->input_count);
    outputs = inputs ? specs_to_list(g->core, s->outputs, s->output_count) : NULL;
    graph_unpin(g);
    if (outputs)
        return Py_BuildValue("(NN)", inputs, outputs);
    Py_XDECREF(inputs);
    return NULL;
}
