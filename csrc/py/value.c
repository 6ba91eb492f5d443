/* value.c - arguments: Python objects to core values and back.
 *
 * The rules are torch.fx's: list kinds and dict kinds come back as immutable containers, a tuple with named fields
 * keeps its class, other tuple classes become tuples, slices are looked into, all else is kept by identity. Numbers and
 * strings are taken over by value only when their type is exact; an int beyond 64 bits, or a string that UTF-8 can't
 * hold, is kept as an object.
 */
#include "module.h"

typedef struct {
    GraphObject *g;
    node_resolver nodes;
    void *ctx;
    int depth;
    bool exact_tuples; /* keep the class of any tuple */
} converter;

static int convert(converter *c, PyObject *o, fe_value *out);
static int resolve_node(void *ctx, PyObject *o, fe_value *out);

static fe_seq *new_seq(GraphObject *g, Py_ssize_t len, uint32_t type)
{
    fe_error err;
    fe_seq *s = fe_seq_new(g->core, (size_t)len, type, &err);

    if (!s)
        raise_core(g->state, &err);
    return s;
}

fe_string *string_from_python(GraphObject *g, PyObject *str)
{
    fe_error err;
    Py_ssize_t len;
    const char *data = PyUnicode_AsUTF8AndSize(str, &len);
    fe_string *s = data ? fe_string_get(g->core, data, (size_t)len, &err) : NULL;

    if (data && !s)
        raise_core(g->state, &err);
    return s;
}

void raise_lone_surrogate(const char *what, PyObject *text)
{
    if (PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
        PyErr_Format(PyExc_ValueError, "the %s %R holds a lone surrogate, which no text in UTF-8 can", what, text);
}

fe_string *name_from_python(GraphObject *g, PyObject *str, const char *what)
{
    fe_string *s = string_from_python(g, str);

    if (!s)
        raise_lone_surrogate(what, str);
    return s;
}

PyObject *string_to_python(const fe_string *s)
{
    return PyUnicode_FromStringAndSize(s->data, (Py_ssize_t)s->len);
}

static int convert_object(converter *c, PyObject *o, fe_value *out)
{
    uint32_t object;

    if (graph_object(c->g, o, &object) < 0)
        return -1;
    fe_object_ref(c->g->core, object);
    *out = (fe_value){.kind = FE_OBJECT, .as.object = object};
    return 0;
}

static int convert_str(converter *c, PyObject *o, fe_value *out)
{
    fe_string *s = string_from_python(c->g, o);

    if (s) {
        *out = (fe_value){.kind = FE_STR, .as.string = s};
        return 0;
    }
    if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
        return -1;
    PyErr_Clear();
    return convert_object(c, o, out);
}

static int convert_int(converter *c, PyObject *o, fe_value *out)
{
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(o, &overflow);

    if (overflow)
        return convert_object(c, o, out);
    *out = (fe_value){.kind = FE_INT, .as.integer = value};
    return 0;
}

static int convert_complex(converter *c, PyObject *o, fe_value *out)
{
    fe_error err;

    if (fe_value_complex(c->g->core, PyComplex_RealAsDouble(o), PyComplex_ImagAsDouble(o), out, &err) < 0)
        return fail_core(c->g->state, &err);
    return 0;
}

static int changed_while_read(PyObject *container)
{
    PyErr_Format(PyExc_RuntimeError, "a %s argument changed its size while it was read", Py_TYPE(container)->tp_name);
    return -1;
}

/* Convert the items of a tuple or list into a sequence; on failure the sequence is freed. */
static int fill_items(converter *c, PyObject *o, fe_seq *s)
{
    for (uint32_t i = 0; i < s->len; i++) {
        if (PySequence_Fast_GET_SIZE(o) != (Py_ssize_t)s->len) {
            changed_while_read(o);
            goto fail;
        }
        PyObject *item = Py_XNewRef(PySequence_Fast_GET_ITEM(o, i));
        if (!item) {
            PyErr_SetString(PyExc_ValueError, "an argument holds an empty (NULL) item, left by a failed constructor");
            goto fail;
        }
        int result = convert(c, item, &s->items[i]);
        Py_DECREF(item);
        if (result < 0)
            goto fail;
    }
    return 0;
fail:
    fe_seq_free(c->g->core, s);
    return -1;
}

/* A tuple keeps its class when it has named fields (as in torch.fx), or always (when an fx graph is read exactly). */
static int tuple_type(converter *c, PyObject *o, uint32_t *type)
{
    PyObject *fields;

    *type = FE_NONE_ID;
    if (PyTuple_CheckExact(o))
        return 0;
    if (!c->exact_tuples) {
        if (lookup_attr(o, c->g->state->str_fields, &fields) < 0)
            return -1;
        if (!fields)
            return 0;
        Py_DECREF(fields);
    }
    return graph_object(c->g, (PyObject *)Py_TYPE(o), type);
}

static int convert_sequence(converter *c, PyObject *o, fe_kind kind, fe_value *out)
{
    uint32_t type = FE_NONE_ID;

    if (kind == FE_TUPLE && tuple_type(c, o, &type) < 0)
        return -1;
    fe_seq *s = new_seq(c->g, PySequence_Fast_GET_SIZE(o), type);
    if (!s || fill_items(c, o, s) < 0)
        return -1;
    *out = (fe_value){.kind = (uint8_t)kind, .as.seq = s};
    return 0;
}

/* A dict key: a constant or an object. As in torch.fx, nobody looks into it, and a node there is no operand. */
static int convert_key(converter *c, PyObject *o, fe_value *out)
{
    PyTypeObject *type = Py_TYPE(o);
    bool constant = o == Py_None || type == &PyBool_Type || type == &PyLong_Type || type == &PyFloat_Type ||
                    type == &PyComplex_Type || type == &PyUnicode_Type;

    return constant ? convert(c, o, out) : convert_object(c, o, out);
}

static int fill_pairs(converter *c, PyObject *o, fe_seq *s)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    uint32_t i = 0;

    while (PyDict_Next(o, &at, &key, &value)) {
        if (i + 2 > s->len)
            break;
        Py_INCREF(key);
        Py_INCREF(value);
        int result = convert_key(c, key, &s->items[i]);
        if (result == 0)
            result = convert(c, value, &s->items[i + 1]);
        Py_DECREF(key);
        Py_DECREF(value);
        if (result < 0)
            goto fail;
        i += 2;
    }
    if (i == s->len && 2 * PyDict_GET_SIZE(o) == (Py_ssize_t)s->len)
        return 0;
    changed_while_read(o);
fail:
    fe_seq_free(c->g->core, s);
    return -1;
}

static int convert_dict(converter *c, PyObject *o, fe_value *out)
{
    fe_seq *s = new_seq(c->g, 2 * PyDict_GET_SIZE(o), FE_NONE_ID);

    if (!s || fill_pairs(c, o, s) < 0)
        return -1;
    *out = (fe_value){.kind = FE_DICT, .as.seq = s};
    return 0;
}

static int convert_slice(converter *c, PyObject *o, fe_value *out)
{
    PySliceObject *slice = (PySliceObject *)o; /* slices can't change */
    PyObject *parts[] = {slice->start, slice->stop, slice->step};
    fe_seq *s = new_seq(c->g, 3, FE_NONE_ID);

    if (!s)
        return -1;
    for (int i = 0; i < 3; i++) {
        if (convert(c, parts[i], &s->items[i]) < 0) {
            fe_seq_free(c->g->core, s);
            return -1;
        }
    }
    *out = (fe_value){.kind = FE_SLICE, .as.seq = s};
    return 0;
}

static int convert_container(converter *c, PyObject *o, fe_value *out)
{
    int result;

    if (c->depth >= FE_MAX_DEPTH) {
        PyErr_Format(PyExc_RecursionError, "arguments are nested more than %d deep", FE_MAX_DEPTH);
        return -1;
    }
    c->depth++;
    if (PyTuple_Check(o))
        result = convert_sequence(c, o, FE_TUPLE, out);
    else if (PyList_Check(o))
        result = convert_sequence(c, o, FE_LIST, out);
    else if (PyDict_Check(o))
        result = convert_dict(c, o, out);
    else
        result = convert_slice(c, o, out);
    c->depth--;
    return result;
}

static bool is_torch_node(const module_state *st, PyObject *o)
{
    PyTypeObject *type = Py_TYPE(o);

    if (st->fx.node_type)
        return type == st->fx.node_type || PyType_IsSubtype(type, st->fx.node_type);
    if (strcmp(type->tp_name, "Node") != 0)
        return false;
    PyObject *module = PyObject_GetAttrString((PyObject *)type, "__module__");
    bool found = module && PyUnicode_Check(module) && PyUnicode_CompareWithASCIIString(module, "torch.fx.node") == 0;
    PyErr_Clear();
    Py_XDECREF(module);
    return found;
}

/* Any other object. A node of torch.fx among the arguments of a native graph would be kept like one, in silence. */
static int convert_other(converter *c, PyObject *o, fe_value *out)
{
    if (c->nodes != resolve_node || !is_torch_node(c->g->state, o))
        return convert_object(c, o, out);
    PyErr_Format(PyExc_ValueError,
                 "argument '%S' is a node of a torch.fx graph; map nodes when you copy (node_copy's arg_transform), or "
                 "read the whole graph with from_fx",
                 o);
    return -1;
}

static int convert(converter *c, PyObject *o, fe_value *out)
{
    PyTypeObject *type = Py_TYPE(o);
    int is_node = c->nodes(c->ctx, o, out);

    if (is_node)
        return is_node < 0 ? -1 : 0;
    if (o == Py_None)
        *out = (fe_value){.kind = FE_NONE};
    else if (type == &PyBool_Type)
        *out = (fe_value){.kind = FE_BOOL, .as.boolean = o == Py_True};
    else if (type == &PyLong_Type)
        return convert_int(c, o, out);
    else if (type == &PyFloat_Type)
        *out = (fe_value){.kind = FE_FLOAT, .as.real = PyFloat_AS_DOUBLE(o)};
    else if (type == &PyUnicode_Type)
        return convert_str(c, o, out);
    else if (PyTuple_Check(o) || PyList_Check(o) || PyDict_Check(o) || PySlice_Check(o))
        return convert_container(c, o, out);
    else if (type == &PyComplex_Type)
        return convert_complex(c, o, out);
    else
        return convert_other(c, o, out);
    return 0;
}

/* Nodes as arguments of a native graph: its own, and still there. */
static int resolve_node(void *ctx, PyObject *o, fe_value *out)
{
    GraphObject *g = ctx;

    if (Py_TYPE(o) != g->state->node_type)
        return 0;
    NodeObject *n = (NodeObject *)o;
    if (n->graph != g) {
        PyErr_Format(PyExc_ValueError,
                     "argument '%S' is a node of another graph; map nodes when you copy (node_copy's "
                     "arg_transform)",
                     o);
        return -1;
    }
    if (!fe_node_is_listed(g->core, n->id)) {
        PyErr_Format(PyExc_ValueError, "argument '%S' is %s", o,
                     n->id == FE_ROOT ? "the root of the graph, which has no value" : "an erased node");
        return -1;
    }
    *out = (fe_value){.kind = FE_NODE, .as.node = n->id};
    return 1;
}

/* What a failed conversion took is given back at once. */
static int finish(GraphObject *g, int result)
{
    if (result < 0)
        graph_sweep(g);
    return result;
}

int value_from_python(GraphObject *g, PyObject *o, fe_value *out)
{
    converter c = {.g = g, .nodes = resolve_node, .ctx = g};

    return finish(g, convert(&c, o, out));
}

int value_from_python_with(GraphObject *g, PyObject *o, node_resolver nodes, void *ctx, bool exact_tuples,
                           fe_value *out)
{
    converter c = {.g = g, .nodes = nodes, .ctx = ctx, .exact_tuples = exact_tuples};

    return finish(g, convert(&c, o, out));
}

int seq_from_args(GraphObject *g, PyObject *args, fe_seq **out)
{
    converter c = {.g = g, .nodes = resolve_node, .ctx = g};

    *out = NULL;
    if (!PyTuple_GET_SIZE(args))
        return 0;
    fe_seq *s = new_seq(g, PyTuple_GET_SIZE(args), FE_NONE_ID);
    if (!s || fill_items(&c, args, s) < 0)
        return finish(g, -1);
    *out = s;
    return 0;
}

int seq_from_kwargs(GraphObject *g, PyObject *kwargs, fe_seq **out)
{
    converter c = {.g = g, .nodes = resolve_node, .ctx = g};

    *out = NULL;
    if (!PyDict_GET_SIZE(kwargs))
        return 0;
    fe_seq *s = new_seq(g, 2 * PyDict_GET_SIZE(kwargs), FE_NONE_ID);
    if (!s || fill_pairs(&c, kwargs, s) < 0)
        return finish(g, -1);
    *out = s;
    return 0;
}

/* ---- and back ---- */

static PyObject *tuple_of(GraphObject *g, const fe_seq *s)
{
    PyObject *t = PyTuple_New((Py_ssize_t)s->len);

    for (uint32_t i = 0; t && i < s->len; i++) {
        PyObject *item = value_to_python(g, s->items[i]);
        if (!item)
            Py_CLEAR(t);
        else
            PyTuple_SET_ITEM(t, i, item);
    }
    return t;
}

/* As torch.fx makes them: a class with fields takes the items one by one, any other takes an iterable. */
static PyObject *typed_tuple(GraphObject *g, const fe_seq *s)
{
    PyObject *type = Py_NewRef(graph_object_at(g, s->type)), *items = tuple_of(g, s), *result = NULL, *fields = NULL;

    if (items && lookup_attr(type, g->state->str_fields, &fields) >= 0)
        result = fields ? PyObject_Call(type, items, NULL) : PyObject_CallOneArg(type, items);
    Py_XDECREF(fields);
    Py_XDECREF(items);
    Py_DECREF(type);
    return result;
}

/* An empty instance of a container class of ours or torch.fx's, to be filled through list's and dict's own functions,
 * which its refusal to be changed does not bind. */
static PyObject *new_instance(PyObject *type, PyTypeObject *base)
{
    PyObject *none = PyTuple_New(0);
    PyObject *o = none ? base->tp_new((PyTypeObject *)type, none, NULL) : NULL;

    Py_XDECREF(none);
    return o;
}

static PyObject *list_of(GraphObject *g, const fe_seq *s)
{
    PyObject *items = tuple_of(g, s);
    PyObject *list = items ? new_instance(g->state->list_type, &PyList_Type) : NULL;

    if (list && PyList_SetSlice(list, 0, 0, items) < 0)
        Py_CLEAR(list);
    Py_XDECREF(items);
    return list;
}

static PyObject *dict_of(GraphObject *g, const fe_seq *s)
{
    PyObject *dict = new_instance(g->state->dict_type, &PyDict_Type);

    for (uint32_t i = 0; dict && i + 1 < s->len; i += 2) {
        PyObject *key = value_to_python(g, s->items[i]);
        PyObject *value = key ? value_to_python(g, s->items[i + 1]) : NULL;
        if (!value || PyDict_SetItem(dict, key, value) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(key);
        Py_XDECREF(value);
    }
    return dict;
}

static PyObject *slice_of(GraphObject *g, const fe_seq *s)
{
    PyObject *parts = tuple_of(g, s);
    PyObject *slice =
        parts ? PySlice_New(PyTuple_GET_ITEM(parts, 0), PyTuple_GET_ITEM(parts, 1), PyTuple_GET_ITEM(parts, 2)) : NULL;

    Py_XDECREF(parts);
    return slice;
}

PyObject *value_to_python(GraphObject *g, fe_value v)
{
    switch ((fe_kind)v.kind) {
    case FE_BOOL:
        return PyBool_FromLong(v.as.boolean);
    case FE_INT:
        return PyLong_FromLongLong(v.as.integer);
    case FE_FLOAT:
        return PyFloat_FromDouble(v.as.real);
    case FE_COMPLEX:
        return PyComplex_FromDoubles(v.as.complex[0], v.as.complex[1]);
    case FE_STR:
        return string_to_python(v.as.string);
    case FE_NODE:
        return graph_node(g, v.as.node);
    case FE_OBJECT:
        return Py_NewRef(graph_object_at(g, v.as.object));
    case FE_TUPLE:
        return v.as.seq->type == FE_NONE_ID ? tuple_of(g, v.as.seq) : typed_tuple(g, v.as.seq);
    case FE_LIST:
        return list_of(g, v.as.seq);
    case FE_DICT:
        return dict_of(g, v.as.seq);
    case FE_SLICE:
        return slice_of(g, v.as.seq);
    default:
        return Py_NewRef(Py_None);
    }
}

PyObject *args_to_python(GraphObject *g, const fe_seq *args)
{
    return args ? tuple_of(g, args) : PyTuple_New(0);
}

PyObject *kwargs_to_python(GraphObject *g, const fe_seq *kwargs)
{
    return kwargs ? dict_of(g, kwargs) : Py_NewRef(g->state->empty_dict);
}
