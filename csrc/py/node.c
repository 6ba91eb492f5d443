/* node.c - the type fastexport._core.Node: a handle to one node of a Graph.
 *
 * A Node is its graph and an id; all else is read from the core when asked for. While one exists it is the only one for
 * its id, so `is` tells whether two are the same node. It stays readable after the node is erased; edits then raise.
 */
#include "module.h"
#include "operators.h"

static NodeObject *node_of(PyObject *self)
{
    return (NodeObject *)self;
}

/* The record of a node; good until the next call that can create something. */
static const fe_node *record(PyObject *self)
{
    return &node_of(self)->graph->core->nodes[node_of(self)->id];
}

static const fe_detail *detail(PyObject *self)
{
    return &node_of(self)->graph->core->details[node_of(self)->id];
}

static int readable(PyObject *self)
{
    return graph_readable(node_of(self)->graph);
}

static int editable(PyObject *self)
{
    if (graph_editable(node_of(self)->graph) < 0)
        return -1;
    if (node_of(self)->id != FE_ROOT && !(record(self)->flags & FE_NODE_ERASED))
        return 0;
    PyErr_Format(PyExc_ValueError, "node '%S' is %s", self,
                 node_of(self)->id == FE_ROOT ? "the root of its graph and can't be changed" : "erased");
    return -1;
}

/* Another node of the same graph that an edit takes; -1 with an exception. */
static int sibling(PyObject *self, PyObject *o, const char *what, uint32_t *out)
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

static int raise(PyObject *self, const fe_error *err)
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
    if (readable(self) < 0)
        return NULL;
    return detail(self)->name ? string_to_python(detail(self)->name) : PyUnicode_FromString("");
}

/* In an exported program an input's target is its name, and files have no other: it follows. */
static int rename_argument(PyObject *self, fe_string *name)
{
    fe_graph *c = node_of(self)->graph->core;
    uint32_t index;
    bool is_new;
    fe_error err;

    if (!c->signature || record(self)->op != FE_OP_PLACEHOLDER ||
        c->targets[record(self)->target].object != FE_NONE_ID ||
        c->targets[record(self)->target].text != detail(self)->name)
        return 0;
    if (fe_target_get(c, FE_OP_PLACEHOLDER, FE_NONE_ID, name, &index, &is_new, &err) < 0)
        return raise(self, &err);
    fe_node_set_target(c, node_of(self)->id, index);
    return 0;
}

static int set_name(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    if (editable(self) < 0)
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
    return readable(self) < 0 ? NULL : Py_NewRef(node_of(self)->graph->state->op_names[record(self)->op]);
}

static PyObject *get_target(PyObject *self, void *Py_UNUSED(closure))
{
    return readable(self) < 0 ? NULL : graph_target_object(node_of(self)->graph, record(self)->target);
}

/* torch.fx lets op and target be set one by one, in any order; lint tells when they don't go together. */
static int change_target(PyObject *self, fe_op op, PyObject *target)
{
    GraphObject *g = node_of(self)->graph;
    uint32_t index;

    if (graph_target(g, op, target, &index) < 0 || editable(self) < 0)
        return -1;
    fe_node_set_target(g->core, node_of(self)->id, index);
    return 0;
}

static int set_target(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    if (editable(self) < 0)
        return -1;
    if (!value || !(PyUnicode_Check(value) || PyCallable_Check(value))) {
        PyErr_Format(PyExc_TypeError, "the target of node '%S' must be a callable or a str", self);
        return -1;
    }
    fe_op op = (fe_op)record(self)->op;
    value = op == FE_OP_CALL_FUNCTION ? operator_or_same(value) : Py_NewRef(value);
    int result = value ? change_target(self, op, value) : -1;
    Py_XDECREF(value);
    return result;
}

static int set_op(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    module_state *st = node_of(self)->graph->state;
    int op = 0;

    if (editable(self) < 0)
        return -1;
    while (value && PyUnicode_Check(value) && op < FE_OP_ROOT && PyUnicode_Compare(value, st->op_names[op]) != 0)
        op++;
    if (!value || !PyUnicode_Check(value) || op == FE_OP_ROOT) {
        PyErr_Format(PyExc_ValueError, "unknown opcode %R for node '%S'", value ? value : Py_None, self);
        return -1;
    }
    PyObject *target = graph_target_object(node_of(self)->graph, record(self)->target);
    int result = target ? change_target(self, (fe_op)op, target) : -1;
    Py_XDECREF(target);
    return result;
}

static PyObject *get_type(PyObject *self, void *Py_UNUSED(closure))
{
    if (readable(self) < 0)
        return NULL;
    uint32_t type = detail(self)->type;
    return Py_NewRef(type == FE_NONE_ID ? Py_None : graph_object_at(node_of(self)->graph, type));
}

static int set_type(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    GraphObject *g = node_of(self)->graph;
    uint32_t type = FE_NONE_ID;

    if (editable(self) < 0 || (value && value != Py_None && graph_object(g, value, &type) < 0))
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
    return readable(self) < 0 ? NULL : PyBool_FromLong(record(self)->flags & FE_NODE_ERASED);
}

static PyObject *get_id(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBytes_FromStringAndSize((const char *)&node_of(self)->id, sizeof(uint32_t));
}

static PyObject *get_next(PyObject *self, void *Py_UNUSED(closure))
{
    return readable(self) < 0 ? NULL : graph_node(node_of(self)->graph, record(self)->next);
}

static PyObject *get_prev(PyObject *self, void *Py_UNUSED(closure))
{
    return readable(self) < 0 ? NULL : graph_node(node_of(self)->graph, record(self)->prev);
}

static PyObject *get_users(PyObject *self, void *Py_UNUSED(closure))
{
    return users_new(node_of(self));
}

static PyObject *get_all_input_nodes(PyObject *self, void *Py_UNUSED(closure))
{
    GraphObject *g = node_of(self)->graph;

    if (readable(self) < 0)
        return NULL;
    graph_pin(g); /* making the list may run a finalizer */
    PyObject *list = PyList_New((Py_ssize_t)record(self)->edge_count);
    for (uint32_t i = 0; list && i < (uint32_t)PyList_GET_SIZE(list); i++) {
        PyObject *node = graph_node(g, g->core->edges[record(self)->edge + i].def);
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

    if (readable(self) < 0 || graph_load_meta(g, node_of(self)->id) < 0 ||
        graph_meta_key(g, g->state->str_stack_trace, false, &key) < 0)
        return NULL;
    uint32_t object = key == FE_NONE_ID ? FE_NONE_ID : fe_meta_get(detail(self)->meta, key);
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

/* ---- arguments ---- */

static PyObject *get_args(PyObject *self, void *Py_UNUSED(closure))
{
    GraphObject *g = node_of(self)->graph;
    PyObject *args;

    if (readable(self) < 0)
        return NULL;
    fe_node_forget(g->core, node_of(self)->id);
    graph_pin(g);
    args = args_to_python(g, detail(self)->args);
    graph_unpin(g);
    return args;
}

static PyObject *get_kwargs(PyObject *self, void *Py_UNUSED(closure))
{
    GraphObject *g = node_of(self)->graph;
    PyObject *kwargs;

    if (readable(self) < 0)
        return NULL;
    fe_node_forget(g->core, node_of(self)->id);
    graph_pin(g);
    kwargs = kwargs_to_python(g, detail(self)->kwargs);
    graph_unpin(g);
    return kwargs;
}

/* Put converted arguments into the core; `args` or `kwargs` not given stay as they are. Uses up what it is given. */
static int put_arguments(PyObject *self, fe_seq *args, bool has_args, fe_seq *kwargs, bool has_kwargs)
{
    GraphObject *g = node_of(self)->graph;
    fe_error err;
    int result = editable(self);

    if (result == 0) {
        result = fe_node_set_arguments(g->core, node_of(self)->id, has_args ? args : detail(self)->args,
                                       has_kwargs ? kwargs : detail(self)->kwargs, &err);
        if (result < 0)
            raise(self, &err);
    }
    if (result < 0) {
        fe_seq_free(g->core, args);
        fe_seq_free(g->core, kwargs);
    }
    graph_sweep(g);
    return result;
}

static int assign_args(PyObject *self, PyObject *tuple)
{
    fe_seq *args;

    if (seq_from_args(node_of(self)->graph, tuple, &args) < 0)
        return -1;
    return put_arguments(self, args, true, NULL, false);
}

static int set_args(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    if (editable(self) < 0)
        return -1;
    if (!value || !(PyTuple_Check(value) || PyList_Check(value))) {
        PyErr_Format(PyExc_TypeError, "the args of node '%S' must be a tuple, not %.200s", self,
                     value ? Py_TYPE(value)->tp_name : "nothing");
        return -1;
    }
    PyObject *tuple = PySequence_Tuple(value);
    int result = tuple ? assign_args(self, tuple) : -1;
    Py_XDECREF(tuple);
    return result;
}

static int set_kwargs(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    fe_seq *kwargs;

    if (editable(self) < 0)
        return -1;
    if (!value || !PyDict_Check(value)) {
        PyErr_Format(PyExc_TypeError, "the kwargs of node '%S' must be a dict, not %.200s", self,
                     value ? Py_TYPE(value)->tp_name : "nothing");
        return -1;
    }
    if (seq_from_kwargs(node_of(self)->graph, value, &kwargs) < 0)
        return -1;
    return put_arguments(self, NULL, false, kwargs, true);
}

PyDoc_STRVAR(update_arg_doc, "update_arg($self, idx, arg)\n--\n\n"
                             "Replace args[idx]. Raises IndexError when there is no such argument.");

/* A copy of the node's arguments with one of them put in place; on failure the value is still the caller's. */
static fe_seq *with_argument(PyObject *self, Py_ssize_t index, fe_value value)
{
    fe_graph *c = node_of(self)->graph->core;
    Py_ssize_t len = detail(self)->args ? (Py_ssize_t)detail(self)->args->len : 0;
    fe_seq *args;
    fe_error err;

    if (index < -len || index >= len) {
        PyErr_Format(PyExc_IndexError, "update_arg() index %zd is out of range: node '%S' has %zd arguments", index,
                     self, len);
        return NULL;
    }
    if (fe_seq_copy(c, &(fe_value_map){0}, detail(self)->args, &args, &err) < 0) {
        raise(self, &err);
        return NULL;
    }
    fe_value *at = &args->items[index < 0 ? index + len : index];
    fe_value_free(c, *at);
    *at = value;
    return args;
}

static PyObject *Node_update_arg(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"idx", "arg", NULL};
    static const parameters p = {"update_arg", names, 2, 2};
    GraphObject *g = node_of(self)->graph;
    PyObject *v[2];
    fe_value value;

    if (parse_call(&p, args, nargs, kwnames, v) < 0 || editable(self) < 0)
        return NULL;
    Py_ssize_t index = PyNumber_AsSsize_t(v[0], PyExc_IndexError);
    if ((index == -1 && PyErr_Occurred()) || value_from_python(g, v[1], &value) < 0)
        return NULL;
    fe_seq *changed = editable(self) < 0 ? NULL : with_argument(self, index, value);
    if (!changed) {
        fe_value_free(g->core, value);
        graph_sweep(g);
        return NULL;
    }
    return put_arguments(self, changed, true, NULL, false) < 0 ? NULL : Py_NewRef(Py_None);
}

PyDoc_STRVAR(insert_arg_doc, "insert_arg($self, idx, arg)\n--\n\n"
                             "Put arg before args[idx]. Raises IndexError when idx is not in 0 ... len(args).");

static PyObject *Node_insert_arg(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"idx", "arg", NULL};
    static const parameters p = {"insert_arg", names, 2, 2};
    GraphObject *g = node_of(self)->graph;
    PyObject *v[2];
    fe_value value;
    fe_error err;

    if (parse_call(&p, args, nargs, kwnames, v) < 0 || editable(self) < 0)
        return NULL;
    Py_ssize_t index = PyNumber_AsSsize_t(v[0], PyExc_IndexError);
    if ((index == -1 && PyErr_Occurred()) || value_from_python(g, v[1], &value) < 0)
        return NULL;
    Py_ssize_t len = detail(self)->args ? (Py_ssize_t)detail(self)->args->len : 0;
    int result = editable(self);
    if (result == 0 && (index < 0 || index > len)) {
        PyErr_Format(PyExc_IndexError, "insert_arg() index must be between 0 and %zd for node '%S', not %zd", len, self,
                     index);
        result = -1;
    }
    if (result == 0 && (result = fe_node_insert_argument(g->core, node_of(self)->id, (uint32_t)index, value, &err)) < 0)
        raise(self, &err);
    if (result < 0)
        fe_value_free(g->core, value);
    graph_sweep(g);
    return result < 0 ? NULL : Py_NewRef(Py_None);
}

PyDoc_STRVAR(update_kwarg_doc, "update_kwarg($self, key, arg)\n--\n\n"
                               "Set kwargs[key].");

static PyObject *Node_update_kwarg(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"key", "arg", NULL};
    static const parameters p = {"update_kwarg", names, 2, 2};
    PyObject *v[2], *dict;
    int result = -1;

    if (parse_call(&p, args, nargs, kwnames, v) < 0 || editable(self) < 0 || !(dict = PyDict_New()))
        return NULL;
    PyObject *old = get_kwargs(self, NULL);
    if (old && PyDict_Update(dict, old) == 0 && PyDict_SetItem(dict, v[0], v[1]) == 0)
        result = set_kwargs(self, dict, NULL);
    Py_XDECREF(old);
    Py_DECREF(dict);
    return result < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- meta for a node that takes another's place ---- */

static int can_take_meta(PyObject *replace_with)
{
    const fe_meta *m;

    if (graph_load_meta(node_of(replace_with)->graph, node_of(replace_with)->id) < 0)
        return -1;
    m = detail(replace_with)->meta;
    if (!m || !m->len)
        return 0;
    PyErr_Format(PyExc_ValueError,
                 "propagate_meta=True, but the replacement '%S' has meta of its own; 'missing' and 'all' allow that",
                 replace_with);
    return -1;
}

static int copy_meta(PyObject *self, PyObject *replace_with)
{
    PyObject *dict = NULL;

    if (can_take_meta(replace_with) == 0 && graph_load_meta(node_of(self)->graph, node_of(self)->id) == 0)
        dict = meta_to_dict(node_of(self)->graph, node_of(self)->id);
    int result = dict ? meta_assign(node_of(replace_with), dict) : -1;

    Py_XDECREF(dict);
    return result;
}

static int hand_over_meta(PyObject *self, PyObject *replace_with, meta_propagation how, PyObject *policy)
{
    if (how == PROPAGATE_NONE)
        return 0;
    return how == PROPAGATE_TO_EMPTY ? copy_meta(self, replace_with) : propagate_meta(self, replace_with, policy);
}

static int reserve_replacement(PyObject *self)
{
    fe_error err;

    return fe_node_reserve_replacement(node_of(self)->graph->core, node_of(self)->id, &err) < 0 ? raise(self, &err) : 0;
}

/* Before new takes the place of old: first the memory for it, so that what is done to meta then is not in vain. */
static int prepare_replacement(PyObject *old, PyObject *new, meta_propagation how, PyObject *policy, bool used)
{
    GraphObject *g = node_of(old)->graph;

    if (how == PROPAGATE_NONE && !(used && g->observer))
        return 0;
    if (reserve_replacement(old) < 0 || hand_over_meta(old, new, how, policy) < 0)
        return -1;
    return used ? graph_tell_replaced(g, old, new) : 0;
}

/* ---- operands and users ---- */

PyDoc_STRVAR(replace_input_with_doc,
             "replace_input_with($self, old_input, new_input, *, propagate_meta=False)\n--\n\n"
             "Put new_input in the place of old_input in all arguments of this node. propagate_meta is as for\n"
             "replace_all_uses_with.");

static PyObject *Node_replace_input_with(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"old_input", "new_input", "propagate_meta", NULL};
    static const parameters p = {"replace_input_with", names, 2, 2};
    meta_propagation how;
    uint32_t old, new;
    PyObject *v[3];
    fe_error err;

    if (parse_call(&p, args, nargs, kwnames, v) < 0 || propagation_from_python(v[2], &how) < 0 || editable(self) < 0 ||
        sibling(self, v[0], "old_input", &old) < 0 || sibling(self, v[1], "new_input", &new) < 0)
        return NULL;
    if (fe_edge_find(node_of(self)->graph->core, old, node_of(self)->id) != FE_NONE_ID &&
        (prepare_replacement(v[0], v[1], how, v[2], true) < 0 || editable(self) < 0 ||
         sibling(self, v[0], "old_input", &old) < 0 || sibling(self, v[1], "new_input", &new) < 0))
        return NULL;
    if (fe_node_replace_operand(node_of(self)->graph->core, node_of(self)->id, old, new, &err) < 0) {
        raise(self, &err);
        return NULL;
    }
    Py_RETURN_NONE;
}

/* The users of a node at this moment, as a list of Nodes. */
static PyObject *list_users(PyObject *self)
{
    GraphObject *g = node_of(self)->graph;

    graph_pin(g); /* making the list may run a finalizer */
    PyObject *list = PyList_New((Py_ssize_t)record(self)->user_count);
    uint32_t e = detail(self)->first_user;
    for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list); i++, e = g->core->edges[e].next) {
        PyObject *user = graph_node(g, g->core->edges[e].user);
        if (!user)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, user);
    }
    graph_unpin(g);
    return list;
}

PyDoc_STRVAR(order_users_doc, "_order_users($self, users, /)\n--\n\n"
                              "Put the users into the order of the list, which must hold each of them once.");

static PyObject *Node_order_users(PyObject *self, PyObject *users)
{
    fe_graph *c = node_of(self)->graph->core;

    if (editable(self) < 0)
        return NULL;
    if (!PyList_Check(users) || PyList_GET_SIZE(users) != (Py_ssize_t)record(self)->user_count)
        return PyErr_Format(PyExc_ValueError, "node '%S' has %u users; give each once", self, record(self)->user_count);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(users); i++) {
        PyObject *user = PyList_GET_ITEM(users, i);
        bool own = Py_TYPE(user) == Py_TYPE(self) && node_of(user)->graph == node_of(self)->graph;
        uint32_t e = own ? fe_edge_find(c, node_of(self)->id, node_of(user)->id) : FE_NONE_ID;
        if (e == FE_NONE_ID)
            return PyErr_Format(PyExc_ValueError, "%R is no user of node '%S'", user, self);
        fe_edge_move_last(c, e);
    }
    Py_RETURN_NONE;
}

/* The users that the callback chooses: all are asked before any is changed. */
static PyObject *choose_users(PyObject *self, PyObject *callback)
{
    PyObject *users = list_users(self), *chosen = users ? PyList_New(0) : NULL;

    for (Py_ssize_t i = 0; chosen && i < PyList_GET_SIZE(users); i++) {
        PyObject *user = PyList_GET_ITEM(users, i), *answer = PyObject_CallOneArg(callback, user);
        int wanted = answer ? PyObject_IsTrue(answer) : -1;
        Py_XDECREF(answer);
        if (wanted < 0 || (wanted && PyList_Append(chosen, user) < 0))
            Py_CLEAR(chosen);
    }
    Py_XDECREF(users);
    return chosen;
}

/* Those of the list that still are users; the memory is reserved first, so all are changed or none. */
static int replace_chosen(PyObject *self, PyObject *users, uint32_t new)
{
    fe_graph *c = node_of(self)->graph->core;
    uint32_t old = node_of(self)->id;
    fe_error err;

    if (reserve_replacement(self) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(users); i++) {
        uint32_t user = node_of(PyList_GET_ITEM(users, i))->id;
        if (fe_edge_find(c, old, user) != FE_NONE_ID && fe_node_replace_operand(c, user, old, new, &err) < 0)
            return raise(self, &err);
    }
    return 0;
}

PyDoc_STRVAR(
    replace_all_uses_with_doc,
    "replace_all_uses_with($self, replace_with, delete_user_cb=None, *, propagate_meta=False)\n--\n\n"
    "Put replace_with in the place of this node in the arguments of all its users.\n\n"
    "delete_user_cb, called with each user, tells which to change. propagate_meta tells what replace_with takes over\n"
    "of this node's meta: 'missing' the entries that it lacks, but for those about the value (val, tensor_meta,\n"
    "unbacked_bindings; see fastexport.VALUE_META); 'all' every entry, over its own, which is for a node of the same\n"
    "value; 'none' or False nothing; True, as in torch.fx, every entry, and it must have none of its own (else\n"
    "ValueError). Returns the list of changed users.");

static PyObject *Node_replace_all_uses_with(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"replace_with", "delete_user_cb", "propagate_meta", NULL};
    static const parameters p = {"replace_all_uses_with", names, 1, 2};
    PyObject *v[3], *users;
    meta_propagation how;
    uint32_t new;
    int result = -1;

    if (parse_call(&p, args, nargs, kwnames, v) < 0 || propagation_from_python(v[2], &how) < 0 || editable(self) < 0 ||
        sibling(self, v[0], "replace_with", &new) < 0 || (how == PROPAGATE_TO_EMPTY && can_take_meta(v[0]) < 0))
        return NULL;
    users = v[1] && v[1] != Py_None ? choose_users(self, v[1]) : list_users(self);
    if (users && editable(self) == 0 && sibling(self, v[0], "replace_with", &new) == 0 &&
        prepare_replacement(self, v[0], how, v[2], PyList_GET_SIZE(users) > 0) == 0 && editable(self) == 0 &&
        sibling(self, v[0], "replace_with", &new) == 0)
        result = replace_chosen(self, users, new);
    if (result < 0)
        Py_CLEAR(users);
    return users;
}

/* ---- order ---- */

/* Move x to just before or after this node. */
static PyObject *place(PyObject *self, PyObject *x, bool after)
{
    uint32_t id;

    if (graph_editable(node_of(self)->graph) < 0 || sibling(self, x, "the node to move", &id) < 0)
        return NULL;
    if (record(self)->flags & FE_NODE_ERASED)
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
    if (readable(self) < 0)
        return NULL;
    if (node_of(self)->graph != node_of(other)->graph)
        return PyErr_Format(PyExc_TypeError, "nodes '%S' and '%S' are of different graphs and have no order", self,
                            other);
    uint64_t a = record(self)->pos, b = record(other)->pos;
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
        readable(self) < 0)
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
    const fe_string *name = detail(self)->name;

    return name ? string_to_python(name) : PyUnicode_FromString("");
}

PyDoc_STRVAR(line_doc, "_line($self)\n--\n\n"
                       "The node's line in the text of its graph.");

static PyObject *Node_line(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return readable(self) < 0 ? NULL : text_of(node_of(self)->graph, node_of(self)->id);
}

/* Methods whose work is done by Python code get it from there: fastexport._node. */
static PyObject *call_helper(PyObject *self, const char *name, PyObject *args, PyObject *kwargs)
{
    PyObject *module = PyImport_ImportModule("fastexport._node"), *function = NULL, *all = NULL, *result = NULL;
    PyObject *first = PyTuple_Pack(1, self);

    if (module && first && (function = PyObject_GetAttrString(module, name)) && (all = PySequence_Concat(first, args)))
        result = PyObject_Call(function, all, kwargs);
    Py_XDECREF(all);
    Py_XDECREF(first);
    Py_XDECREF(function);
    Py_XDECREF(module);
    return result;
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
    return call_helper(self, "format_node", args, kwargs);
}

PyDoc_STRVAR(
    normalized_arguments_doc,
    "normalized_arguments($self, root, arg_types=None, kwarg_types=None, normalize_to_only_use_kwargs=False)\n"
    "--\n\n"
    "The arguments matched to the parameters of the target, with defaults, by torch.fx's rules: an ArgsKwargsPair,\n"
    "or None when that is not possible. Needs torch.");

static PyObject *Node_normalized_arguments(PyObject *self, PyObject *args, PyObject *kwargs)
{
    return call_helper(self, "normalized_arguments", args, kwargs);
}

static PyObject *Node_reduce(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *module = PyImport_ImportModule("fastexport._node"), *function = NULL, *result = NULL;

    if (record(self)->flags & FE_NODE_ERASED)
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
    {"args", get_args, set_args, "The tuple of arguments. Assign to change it; uses follow.", NULL},
    {"kwargs", get_kwargs, set_kwargs, "The dict of keyword arguments. Assign to change it; uses follow.", NULL},
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
