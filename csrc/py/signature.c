/* signature.c - the signature of an exported program's graph, as the core keeps it, for Python, and from Python. */
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

/* ---- from Python ---- */

/* A str, or None for NULL. */
static int optional_text(GraphObject *g, PyObject *o, const char *what, fe_string **out)
{
    *out = NULL;
    if (o == Py_None)
        return 0;
    if (!PyUnicode_Check(o)) {
        PyErr_Format(PyExc_TypeError, "the %s of an input or output is a str or None, not %.200s", what,
                     Py_TYPE(o)->tp_name);
        return -1;
    }
    *out = name_from_python(g, o, what);
    return *out ? 0 : -1;
}

static int constant_from_python(GraphObject *g, PyObject *o, fe_value *out)
{
    *out = (fe_value){.kind = FE_NONE};
    if (o != Py_None && !PyBool_Check(o) && !PyLong_CheckExact(o) && !PyFloat_CheckExact(o) && !PyUnicode_CheckExact(o))
        return 0; /* torch has objects in the place of constants; they stay with their owner */
    if (value_from_python(g, o, out) < 0)
        return -1;
    if (out->kind != FE_NONE && out->kind != FE_BOOL && out->kind != FE_INT && out->kind != FE_FLOAT &&
        out->kind != FE_STR)
        *out = (fe_value){.kind = FE_NONE}; /* an int beyond 64 bits */
    return 0;
}

static int node_from_name(const GraphObject *g, const fe_string *name, uint32_t *out)
{
    *out = name ? fe_name_owner(g->core, name) : FE_NONE_ID;
    if (!name || *out != FE_NONE_ID)
        return 0;
    PyErr_Format(PyExc_ValueError, "the signature names '%s', which is no node of the graph", name->data);
    return -1;
}

/* A plain int within bounds. */
static int number_from_python(PyObject *o, long long least, long long most, const char *what, long long *out)
{
    int overflow = 0;

    *out = PyLong_CheckExact(o) ? PyLong_AsLongLongAndOverflow(o, &overflow) : 0;
    if (PyLong_CheckExact(o) && !overflow && *out >= least && *out <= most)
        return 0;
    PyErr_Format(PyLong_CheckExact(o) ? PyExc_ValueError : PyExc_TypeError, "there is no %s %R", what, o);
    return -1;
}

/* Only plain objects are taken, whose conversion runs no Python code: so no node goes while others are looked up. */
static int spec_from_tuple(GraphObject *g, PyObject *o, bool input, fe_spec *out)
{
    PyObject *kind, *node, *value, *name, *target, *persistent, *origin;
    long long number, place;
    fe_string *node_name;

    if (!PyTuple_Check(o)) {
        PyErr_SetString(PyExc_TypeError, "an input or output is given as a tuple");
        return -1;
    }
    if (!PyArg_ParseTuple(o, "OOOOOO!O;(kind, node, value, name, target, persistent, origin)", &kind, &node, &value,
                          &name, &target, &PyBool_Type, &persistent, &origin) ||
        number_from_python(kind, 0, input ? FE_INPUT_TOKEN : FE_OUTPUT_TOKEN, "kind", &number) < 0 ||
        number_from_python(origin, -1, UINT32_MAX - 1LL, "origin", &place) < 0)
        return -1;
    *out = (fe_spec){.kind = (uint8_t)number, .persistent = persistent == Py_True, .origin = (uint32_t)(place + 1)};
    if (optional_text(g, node, "node", &node_name) < 0 || optional_text(g, name, "name", &out->name) < 0 ||
        optional_text(g, target, "target", &out->target) < 0 || constant_from_python(g, value, &out->value) < 0)
        return -1;
    return node_from_name(g, node_name, &out->node);
}

static int add_specs(GraphObject *g, fe_signature *s, PyObject *list, bool input)
{
    fe_error err;

    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        fe_spec spec;
        if (spec_from_tuple(g, PyList_GET_ITEM(list, i), input, &spec) < 0)
            return -1;
        if ((input ? fe_signature_add_input : fe_signature_add_output)(s, spec, &err) < 0)
            return fail_core(g->state, &err);
    }
    return 0;
}

/* Of the names that modules are called with, those that nodes have: the others name no node, and the verifier tells. */
static int add_called(GraphObject *g, fe_signature *s, PyObject *names)
{
    fe_error err;

    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(names); i++) {
        fe_string *name;
        if (optional_text(g, PyList_GET_ITEM(names, i), "name", &name) < 0)
            return -1;
        uint32_t node = name ? fe_name_owner(g->core, name) : FE_NONE_ID;
        if (node != FE_NONE_ID && fe_signature_add_called(s, name, node, &err) < 0)
            return fail_core(g->state, &err);
    }
    return 0;
}

const char set_signature_doc[] =
    "_set_signature($self, inputs, outputs, called=..., /)\n--\n\n"
    "Let inputs and outputs stand for what two lists of tuples say, of the form that _signature() gives, and follow "
    "the\n"
    "nodes of the names in the list called; without it, those that are followed already. Nothing is changed when it\n"
    "raises: TypeError, or ValueError for an input or output that no node is.";

PyObject *Graph_set_signature(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    GraphObject *g = (GraphObject *)self;

    if (nargs < 2 || nargs > 3 || !PyList_Check(args[0]) || !PyList_Check(args[1]) ||
        (nargs == 3 && !PyList_Check(args[2]))) {
        PyErr_SetString(PyExc_TypeError, "_set_signature() takes two or three lists");
        return NULL;
    }
    if (graph_editable(g) < 0)
        return NULL;
    fe_signature *s = fe_signature_new(g->core->allocator);
    if (!s)
        return PyErr_NoMemory();
    if (add_specs(g, s, args[0], true) < 0 || add_specs(g, s, args[1], false) < 0 ||
        (nargs == 3 && add_called(g, s, args[2]) < 0)) {
        fe_signature_free(s);
        return NULL;
    }
    if (nargs == 2 && g->core->signature)
        fe_signature_take_called(s, g->core->signature);
    fe_signature_free(g->core->signature);
    g->core->signature = s;
    g->core->version++;
    Py_RETURN_NONE;
}

/* ---- what follows edits ---- */

static int add_name_now(const GraphObject *g, const fe_called *called, PyObject *names)
{
    bool is_gone = called->node == FE_NONE_ID || !fe_node_is_listed(g->core, called->node);
    PyObject *from = string_to_python(called->name);
    PyObject *now = is_gone ? Py_NewRef(Py_None) : string_to_python(g->core->details[called->node].name);
    int result = from && now ? PyDict_SetItem(names, from, now) : -1;

    Py_XDECREF(from);
    Py_XDECREF(now);
    return result;
}

const char called_doc[] = "_called($self, /)\n--\n\n"
                          "The nodes that the calling conventions of modules name: {name there: the name now of what "
                          "has taken its place, or\n"
                          "None when it is gone}.";

PyObject *Graph_called(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    GraphObject *g = (GraphObject *)self;
    PyObject *names = graph_readable(g) < 0 ? NULL : PyDict_New();
    int result = 0;

    if (!names)
        return NULL;
    graph_pin(g);
    const fe_signature *s = g->core->signature; /* not sooner: both calls above may let others change the graph */
    for (uint32_t i = 0; result == 0 && s && i < s->called_count; i++)
        result = add_name_now(g, &s->called[i], names);
    graph_unpin(g);
    if (result < 0)
        Py_CLEAR(names);
    return names;
}

/* See that there is one flag for each input, as the signature has them, and that those to go are not used. */
static int check_erasable(const GraphObject *g, const uint8_t *gone, size_t count)
{
    const fe_graph *c = g->core;
    const char *used = NULL;
    size_t i = 0;

    for (uint32_t id = c->nodes[FE_ROOT].next; id != FE_ROOT; id = c->nodes[id].next) {
        if (c->nodes[id].op != FE_OP_PLACEHOLDER)
            continue;
        if (i < count && gone[i] && c->nodes[id].user_count)
            used = c->details[id].name->data;
        i++;
    }
    if (i != count || !c->signature || c->signature->input_count != count)
        PyErr_Format(PyExc_ValueError, "the graph has %zu inputs, its signature %zu, but there are flags for %zu", i,
                     c->signature ? (size_t)c->signature->input_count : 0, count);
    else if (used)
        PyErr_Format(PyExc_RuntimeError, "the input '%s' is still used", used);
    else
        return 0;
    return -1;
}

const char erase_inputs_doc[] = "_erase_inputs($self, gone, /)\n--\n\n"
                                "Erase the inputs whose byte is not 0, with what they stand for; none may have users.\n"
                                "Raises ValueError unless there is a byte for each, and the signature fits the graph.";

PyObject *Graph_erase_inputs(PyObject *self, PyObject *gone)
{
    GraphObject *g = (GraphObject *)self;

    if (!PyBytes_Check(gone))
        return PyErr_Format(PyExc_TypeError, "_erase_inputs() takes bytes, not %.200s", Py_TYPE(gone)->tp_name);
    const uint8_t *flags = (const uint8_t *)PyBytes_AS_STRING(gone);
    if (graph_editable(g) < 0 || check_erasable(g, flags, (size_t)PyBytes_GET_SIZE(gone)) < 0)
        return NULL;
    fe_signature_erase_inputs(g->core, flags);
    graph_sweep(g);
    Py_RETURN_NONE;
}
