/* node.c - the type fastexport._core.Node: a handle to one node of a Graph.
 *
 * A Node is its graph and an id; all else is read from the core when asked for. While one exists it is the only one for
 * its id, so `is` tells whether two are the same node. It stays readable after the node is erased; edits then raise.
 */
#include "loaded.h"
#include "node.h"
#include "operators.h"

int node_editable(PyObject *self)
{
    if (graph_editable(node_of(self)->graph) < 0)
        return -1;
    if (node_of(self)->id != FE_ROOT && !(node_record(self)->flags & FE_NODE_ERASED))
        return 0;
    PyErr_Format(PyExc_ValueError, "node '%S' is %s", self,
                 node_of(self)->id == FE_ROOT ? "the root of its graph and can't be changed" : "erased");
    return -1;
}

int node_sibling(PyObject *self, PyObject *o, const char *what, uint32_t *out)
{
    NodeObject *n = node_of(o);

    if (Py_TYPE(o) != Py_TYPE(self)) {
        PyErr_Format(PyExc_TypeError, "%s must be a Node of fastexport, not %R", what, Py_TYPE(o));
        return -1;
    }
    if (n->graph != node_of(self)->graph) {
        PyErr_Format(PyExc_ValueError, "%s '%S' is a node of another graph", what, o);
        return -1;
    }
    if (!fe_node_is_listed(n->graph->core, n->id)) {
        PyErr_Format(PyExc_ValueError, "%s '%S' is %s", what, o,
                     n->id == FE_ROOT ? "the root of the graph" : "an erased node");
        return -1;
    }
    *out = n->id;
    return 0;
}

int node_raise(PyObject *self, const fe_error *err)
{
    raise_core(node_of(self)->graph->state, err);
    return -1;
}

/* ---- life ---- */

static int Node_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(node_of(self)->graph);
    return 0;
}

/* With its last Node goes what an erased node refers to, unless somebody reads the core just now. */
static void release_erased(const NodeObject *n)
{
    GraphObject *g = n->graph;

    if (n->id == FE_NONE_ID || g->busy || g->pins || g->handles[n->id] ||
        !(g->core->nodes[n->id].flags & FE_NODE_ERASED))
        return;
    fe_node_strip(g->core, n->id);
    graph_sweep(g);
}

static void Node_dealloc(PyObject *self)
{
    NodeObject *n = node_of(self);
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    /* First of all, since a callback of a weak reference may ask the graph for this node. */
    if (n->id != FE_NONE_ID)
        n->graph->handles[n->id] = NULL;
    if (n->weakrefs)
        PyObject_ClearWeakRefs(self);
    release_erased(n);
    Py_DECREF(n->graph);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* ---- plain attributes ---- */

static PyObject *get_name(PyObject *self, void *Py_UNUSED(closure))
{
    if (node_readable(self) < 0)
        return NULL;
    return node_detail(self)->name ? string_to_python(node_detail(self)->name) : PyUnicode_FromString("");
}

/* In an exported program an input's target is its name, and files have no other: it follows. */
static int rename_argument(PyObject *self, fe_string *name)
{
    fe_graph *c = node_of(self)->graph->core;
    uint32_t index;
    bool is_new;
    fe_error err;

    if (!c->signature || node_record(self)->op != FE_OP_PLACEHOLDER ||
        c->targets[node_record(self)->target].object != FE_NONE_ID ||
        c->targets[node_record(self)->target].text != node_detail(self)->name)
        return 0;
    if (fe_target_get(c, FE_OP_PLACEHOLDER, FE_NONE_ID, name, &index, &is_new, &err) < 0)
        return node_raise(self, &err);
    fe_node_set_target(c, node_of(self)->id, index);
    return 0;
}

static int set_name(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    if (node_editable(self) < 0)
        return -1;
    if (!value || !PyUnicode_Check(value)) {
        PyErr_Format(PyExc_TypeError, "the name of node '%S' must be a str", self);
        return -1;
    }
    fe_string *name = name_from_python(node_of(self)->graph, value, "name of a node");
    if (!name)
        return -1;
    uint32_t owner = fe_name_owner(node_of(self)->graph->core, name);
    if (owner != FE_NONE_ID && owner != node_of(self)->id) {
        PyErr_Format(PyExc_ValueError, "the name %R is taken by another node of the graph", value);
        return -1;
    }
    if (rename_argument(self, name) < 0)
        return -1;
    fe_node_set_name(node_of(self)->graph->core, node_of(self)->id, name);
    return 0;
}

static PyObject *get_op(PyObject *self, void *Py_UNUSED(closure))
{
    return node_readable(self) < 0 ? NULL : Py_NewRef(node_of(self)->graph->state->op_names[node_record(self)->op]);
}

static PyObject *get_target(PyObject *self, void *Py_UNUSED(closure))
{
    return node_readable(self) < 0 ? NULL : graph_target_object(node_of(self)->graph, node_record(self)->target);
}

/* torch.fx lets op and target be set one by one, in any order; lint tells when they don't go together. */
static int change_target(PyObject *self, fe_op op, PyObject *target)
{
    GraphObject *g = node_of(self)->graph;
    uint32_t index;

    if (graph_target(g, op, target, &index) < 0 || node_editable(self) < 0)
        return -1;
    fe_node_set_target(g->core, node_of(self)->id, index);
    return 0;
}

static int set_target(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    if (node_editable(self) < 0)
        return -1;
    if (!value || !(PyUnicode_Check(value) || PyCallable_Check(value))) {
        PyErr_Format(PyExc_TypeError, "the target of node '%S' must be a callable or a str", self);
        return -1;
    }
    fe_op op = (fe_op)node_record(self)->op;
    value = op == FE_OP_CALL_FUNCTION ? operator_or_same(value) : Py_NewRef(value);
    int result = value ? change_target(self, op, value) : -1;
    Py_XDECREF(value);
    return result;
}

static int set_op(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    module_state *st = node_of(self)->graph->state;
    int op = 0;

    if (node_editable(self) < 0)
        return -1;
    while (value && PyUnicode_Check(value) && op < FE_OP_ROOT && PyUnicode_Compare(value, st->op_names[op]) != 0)
        op++;
    if (!value || !PyUnicode_Check(value) || op == FE_OP_ROOT) {
        PyErr_Format(PyExc_ValueError, "unknown opcode %R for node '%S'", value ? value : Py_None, self);
        return -1;
    }
    PyObject *target = graph_target_object(node_of(self)->graph, node_record(self)->target);
    int result = target ? change_target(self, (fe_op)op, target) : -1;
    Py_XDECREF(target);
    return result;
}

static PyObject *get_type(PyObject *self, void *Py_UNUSED(closure))
{
    if (node_readable(self) < 0)
        return NULL;
    uint32_t type = node_detail(self)->type;
    return Py_NewRef(type == FE_NONE_ID ? Py_None : graph_object_at(node_of(self)->graph, type));
}

static int set_type(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    GraphObject *g = node_of(self)->graph;
    uint32_t type = FE_NONE_ID;

    if (node_editable(self) < 0 || (value && value != Py_None && graph_object(g, value, &type) < 0))
        return -1;
    fe_node_set_type(g->core, node_of(self)->id, type);
    graph_sweep(g);
    return 0;
}

static PyObject *get_graph(PyObject *self, void *Py_UNUSED(closure))
{
    return Py_NewRef(node_of(self)->graph);
}

static PyObject *get_erased(PyObject *self, void *Py_UNUSED(closure))
{
    return node_readable(self) < 0 ? NULL : PyBool_FromLong(node_record(self)->flags & FE_NODE_ERASED);
}

static PyObject *get_id(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBytes_FromStringAndSize((const char *)&node_of(self)->id, sizeof(uint32_t));
}

static PyObject *get_next(PyObject *self, void *Py_UNUSED(closure))
{
    return node_readable(self) < 0 ? NULL : graph_node(node_of(self)->graph, node_record(self)->next);
}

static PyObject *get_prev(PyObject *self, void *Py_UNUSED(closure))
{
    return node_readable(self) < 0 ? NULL : graph_node(node_of(self)->graph, node_record(self)->prev);
}

static PyObject *get_users(PyObject *self, void *Py_UNUSED(closure))
{
    return users_new(node_of(self));
}

static PyObject *get_all_input_nodes(PyObject *self, void *Py_UNUSED(closure))
{
    GraphObject *g = node_of(self)->graph;

    if (node_readable(self) < 0)
        return NULL;
    graph_pin(g); /* making the list may run a finalizer */
    PyObject *list = PyList_New((Py_ssize_t)node_record(self)->edge_count);
    for (uint32_t i = 0; list && i < (uint32_t)PyList_GET_SIZE(list); i++) {
        PyObject *node = graph_node(g, g->core->edges[node_record(self)->edge + i].def);
        if (!node)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, node);
    }
    graph_unpin(g);
    return list;
}

/* ---- meta ---- */

static PyObject *get_meta(PyObject *self, void *Py_UNUSED(closure))
{
    return meta_new(node_of(self));
}

static int set_meta(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    if (!value) {
        PyErr_Format(PyExc_TypeError, "the meta of node '%S' can't be deleted; assign {}", self);
        return -1;
    }
    return meta_assign(node_of(self), value);
}

static PyObject *get_stack_trace(PyObject *self, void *Py_UNUSED(closure))
{
    GraphObject *g = node_of(self)->graph;
    uint32_t key;

    if (node_readable(self) < 0)
        return NULL;
    PyObject *text = metadata_in_file(g, node_of(self)->id, "stack_trace", NULL); /* the rest may stay there */
    if (text != Py_False)
        return text;
    Py_DECREF(text);
    if (graph_load_meta(g, node_of(self)->id) < 0 || graph_meta_key(g, g->state->str_stack_trace, false, &key) < 0)
        return NULL;
    uint32_t object = key == FE_NONE_ID ? FE_NONE_ID : fe_meta_get(node_detail(self)->meta, key);
    return Py_NewRef(object == FE_NONE_ID ? Py_None : graph_object_at(g, object));
}

static int set_stack_trace(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    PyObject *meta = meta_new(node_of(self));
    int result =
        meta ? PyObject_SetItem(meta, node_of(self)->graph->state->str_stack_trace, value ? value : Py_None) : -1;

    Py_XDECREF(meta);
    return result;
}

/* ---- order ---- */

/* Move x to just before or after this node. */
static PyObject *place(PyObject *self, PyObject *x, bool after)
{
    uint32_t id;

    if (graph_editable(node_of(self)->graph) < 0 || node_sibling(self, x, "the node to move", &id) < 0)
        return NULL;
    if (node_record(self)->flags & FE_NODE_ERASED)
        return PyErr_Format(PyExc_ValueError, "can't move '%S' next to '%S', which is erased", x, self);
    fe_node_place(node_of(self)->graph->core, id, (fe_point){node_of(self)->id, after});
    Py_RETURN_NONE;
}

PyDoc_STRVAR(prepend_doc, "prepend($self, x, /)\n--\n\nMove node x of this graph to just before this node.");

static PyObject *Node_prepend(PyObject *self, PyObject *x)
{
    return place(self, x, false);
}

PyDoc_STRVAR(append_doc, "append($self, x, /)\n--\n\nMove node x of this graph to just after this node.");

static PyObject *Node_append(PyObject *self, PyObject *x)
{
    return place(self, x, true);
}

static PyObject *Node_richcompare(PyObject *self, PyObject *other, int op)
{
    if (op == Py_EQ || op == Py_NE || Py_TYPE(other) != Py_TYPE(self))
        Py_RETURN_NOTIMPLEMENTED;
    if (node_readable(self) < 0)
        return NULL;
    if (node_of(self)->graph != node_of(other)->graph)
        return PyErr_Format(PyExc_TypeError, "nodes '%S' and '%S' are of different graphs and have no order", self,
                            other);
    uint64_t a = node_record(self)->pos, b = node_record(other)->pos;
    Py_RETURN_RICHCOMPARE(a, b, op);
}

/* Nodes compare by identity; a type that orders its objects has to say so. */
static Py_hash_t Node_hash(PyObject *self)
{
    return (Py_hash_t)(fe_mix((uint64_t)(uintptr_t)self) >> 1);
}

/* ---- the rest ---- */

PyDoc_STRVAR(
    is_impure_doc,
    "is_impure($self, impure_random=True)\n--\n\n"
    "Whether the node may have an effect beyond its value: then dead-code elimination keeps it.\n\n"
    "Inputs and outputs count. impure_random tells whether drawing random numbers does. This is fastexport's own,\n"
    "safe judgement; torch.fx's takes fewer nodes for impure.");

static PyObject *Node_is_impure(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"impure_random", NULL};
    static const parameters p = {"is_impure", names, 0, 1};
    GraphObject *g = node_of(self)->graph;
    PyObject *v[1];
    int random;

    if (parse_call(&p, args, nargs, kwnames, v) < 0 || (random = v[0] ? PyObject_IsTrue(v[0]) : 1) < 0 ||
        node_readable(self) < 0)
        return NULL;
    if (node_of(self)->id == FE_ROOT)
        Py_RETURN_FALSE;
    if (graph_refresh_node(g, node_of(self)->id) < 0)
        return NULL;
    fe_dce_options options = {.keep_random = random};
    return PyBool_FromLong(fe_node_effect(g->core, node_of(self)->id, &options) != FE_REASON_UNUSED);
}

static PyObject *Node_repr(PyObject *self)
{
    const fe_string *name = node_detail(self)->name;

    return name ? string_to_python(name) : PyUnicode_FromString("");
}

PyDoc_STRVAR(line_doc, "_line($self)\n--\n\n"
                       "The node's line in the text of its graph.");

static PyObject *Node_line(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return node_readable(self) < 0 ? NULL : text_of(node_of(self)->graph, node_of(self)->id);
}

PyDoc_STRVAR(
    format_node_doc,
    "format_node($self, placeholder_names=None, maybe_return_typename=None, *, include_tensor_metadata=False)\n"
    "--\n\n"
    "The node's line in the text of its graph, as torch.fx writes it.");

static PyObject *Node_format_node(PyObject *self, PyObject *args, PyObject *kwargs)
{
    if (!PyTuple_GET_SIZE(args) && !(kwargs && PyDict_GET_SIZE(kwargs)))
        return Node_line(self, NULL);
    return call_python_in("fastexport._node", self, "format_node", args, kwargs);
}

PyDoc_STRVAR(
    normalized_arguments_doc,
    "normalized_arguments($self, root, arg_types=None, kwarg_types=None, normalize_to_only_use_kwargs=False)\n"
    "--\n\n"
    "The arguments matched to the parameters of the target, with defaults, by torch.fx's rules: an ArgsKwargsPair,\n"
    "or None when that is not possible. Needs torch.");

static PyObject *Node_normalized_arguments(PyObject *self, PyObject *args, PyObject *kwargs)
{
    return call_python_in("fastexport._node", self, "normalized_arguments", args, kwargs);
}

static PyObject *Node_mimebundle(PyObject *self, PyObject *args, PyObject *kwargs)
{
    return call_python_in("fastexport._notebook", self, "mimebundle", args, kwargs);
}

static PyObject *Node_reduce(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *module = PyImport_ImportModule("fastexport._node"), *function = NULL, *result = NULL;

    if (node_record(self)->flags & FE_NODE_ERASED)
        PyErr_Format(PyExc_ValueError, "node '%S' is erased, and can't be copied or pickled", self);
    else if (module && (function = PyObject_GetAttrString(module, "node_of_graph")))
        result = Py_BuildValue("O(ON)", function, node_of(self)->graph, get_name(self, NULL));
    Py_XDECREF(function);
    Py_XDECREF(module);
    return result;
}

static PyGetSetDef node_getset[] = {
    {"name", get_name, set_name, "The unique name of the node's value. Setting one that is taken raises ValueError.",
     NULL},
    {"op", get_op, set_op, "placeholder, get_attr, call_function, call_method, call_module, output, or root.", NULL},
    {"target", get_target, set_target, "What the node calls or refers to: a callable, or a str.", NULL},
    {"args", Node_get_args, Node_set_args, "The tuple of arguments. Assign to change it; uses follow.", NULL},
    {"kwargs", Node_get_kwargs, Node_set_kwargs, "The dict of keyword arguments. Assign to change it; uses follow.",
     NULL},
    {"type", get_type, set_type, "The type annotation of the value, or None.", NULL},
    {"meta", get_meta, set_meta, "A live mapping of what passes and users note about the node.", NULL},
    {"users", get_users, NULL, "The nodes that use this one: a live mapping from Node to None, in order of use.", NULL},
    {"all_input_nodes", get_all_input_nodes, NULL, "The nodes among the arguments, each once, in order of first use.",
     NULL},
    {"next", get_next, NULL, "The next node; after the last one, the root.", NULL},
    {"prev", get_prev, NULL, "The node before; before the first one, the root.", NULL},
    {"graph", get_graph, NULL, "The graph of this node.", NULL},
    {"stack_trace", get_stack_trace, set_stack_trace, "meta['stack_trace'], or None.", NULL},
    {"_id", get_id, NULL, "The node's id as bytes, for Graph._names.", NULL},
    {"_erased", get_erased, NULL, "Whether the node was erased from its graph.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

#define FAST(function) (PyCFunction)(void (*)(void)) function, METH_FASTCALL | METH_KEYWORDS
#define SLOW(function) (PyCFunction)(void (*)(void)) function, METH_VARARGS | METH_KEYWORDS

static PyMethodDef node_methods[] = {
    {"update_arg", FAST(Node_update_arg), update_arg_doc},
    {"insert_arg", FAST(Node_insert_arg), insert_arg_doc},
    {"update_kwarg", FAST(Node_update_kwarg), update_kwarg_doc},
    {"replace_input_with", FAST(Node_replace_input_with), replace_input_with_doc},
    {"replace_all_uses_with", FAST(Node_replace_all_uses_with), replace_all_uses_with_doc},
    {"prepend", Node_prepend, METH_O, prepend_doc},
    {"append", Node_append, METH_O, append_doc},
    {"is_impure", FAST(Node_is_impure), is_impure_doc},
    {"format_node", SLOW(Node_format_node), format_node_doc},
    {"normalized_arguments", SLOW(Node_normalized_arguments), normalized_arguments_doc},
    {"_order_users", Node_order_users, METH_O, order_users_doc},
    {"_line", Node_line, METH_NOARGS, line_doc},
    {"_repr_mimebundle_", SLOW(Node_mimebundle),
     "_repr_mimebundle_($self, include=None, exclude=None)\n--\n\nWhat a notebook shows: the text, and HTML."},
    {"__reduce__", Node_reduce, METH_NOARGS, "A node is pickled with its graph."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef node_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(NodeObject, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot node_slots[] = {
    {Py_tp_doc, "One operation of a Graph; made by the graph's methods. The API is torch.fx.Node's."},
    {Py_tp_traverse, Node_traverse},
    {Py_tp_dealloc, Node_dealloc},
    {Py_tp_repr, Node_repr},
    {Py_tp_richcompare, Node_richcompare},
    {Py_tp_hash, Node_hash},
    {Py_tp_getset, node_getset},
    {Py_tp_methods, node_methods},
    {Py_tp_members, node_members},
    {0, NULL},
};

PyType_Spec node_spec = {
    .name = "fastexport._core.Node",
    .basicsize = sizeof(NodeObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = node_slots,
};
