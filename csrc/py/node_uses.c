/* node_uses.c - one Node takes the place of another: among the arguments of one node, or of all that use it.
 *
 * Whoever watches the graph, and the meta that is handed over, may run code of users; memory for the change is there
 * before.
 */
#include "node.h"

/* ---- meta for a node that takes another's place ---- */

static int can_take_meta(PyObject *replace_with)
{
    const fe_meta *m;

    if (graph_load_meta(node_of(replace_with)->graph, node_of(replace_with)->id) < 0)
        return -1;
    m = node_detail(replace_with)->meta;
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

    return fe_node_reserve_replacement(node_of(self)->graph->core, node_of(self)->id, &err) < 0 ? node_raise(self, &err)
                                                                                                : 0;
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

const char replace_input_with_doc[] =
    "replace_input_with($self, old_input, new_input, *, propagate_meta=False)\n--\n\n"
    "Put new_input in the place of old_input in all arguments of this node. propagate_meta is as for\n"
    "replace_all_uses_with.";

PyObject *Node_replace_input_with(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"old_input", "new_input", "propagate_meta", NULL};
    static const parameters p = {"replace_input_with", names, 2, 2};
    meta_propagation how;
    uint32_t old, new;
    PyObject *v[3];
    fe_error err;

    if (parse_call(&p, args, nargs, kwnames, v) < 0 || propagation_from_python(v[2], &how) < 0 ||
        node_editable(self) < 0 || node_sibling(self, v[0], "old_input", &old) < 0 ||
        node_sibling(self, v[1], "new_input", &new) < 0)
        return NULL;
    if (fe_edge_find(node_of(self)->graph->core, old, node_of(self)->id) != FE_NONE_ID &&
        (prepare_replacement(v[0], v[1], how, v[2], true) < 0 || node_editable(self) < 0 ||
         node_sibling(self, v[0], "old_input", &old) < 0 || node_sibling(self, v[1], "new_input", &new) < 0))
        return NULL;
    if (fe_node_replace_operand(node_of(self)->graph->core, node_of(self)->id, old, new, &err) < 0) {
        node_raise(self, &err);
        return NULL;
    }
    Py_RETURN_NONE;
}

/* The users of a node at this moment, as a list of Nodes. */
static PyObject *list_users(PyObject *self)
{
    GraphObject *g = node_of(self)->graph;

    graph_pin(g); /* making the list may run a finalizer */
    PyObject *list = PyList_New((Py_ssize_t)node_record(self)->user_count);
    uint32_t e = node_detail(self)->first_user;
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

const char order_users_doc[] = "_order_users($self, users, /)\n--\n\n"
                               "Put the users into the order of the list, which must hold each of them once.";

PyObject *Node_order_users(PyObject *self, PyObject *users)
{
    fe_graph *c = node_of(self)->graph->core;

    if (node_editable(self) < 0)
        return NULL;
    if (!PyList_Check(users) || PyList_GET_SIZE(users) != (Py_ssize_t)node_record(self)->user_count)
        return PyErr_Format(PyExc_ValueError, "node '%S' has %u users; give each once", self,
                            node_record(self)->user_count);
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
            return node_raise(self, &err);
    }
    return 0;
}

const char replace_all_uses_with_doc[] =
    "replace_all_uses_with($self, replace_with, delete_user_cb=None, *, propagate_meta=False)\n--\n\n"
    "Put replace_with in the place of this node in the arguments of all its users.\n\n"
    "delete_user_cb, called with each user, tells which to change. propagate_meta tells what replace_with takes over\n"
    "of this node's meta: 'missing' the entries that it lacks, but for those about the value (val, tensor_meta,\n"
    "unbacked_bindings; see fastexport.VALUE_META); 'all' every entry, over its own, which is for a node of the same\n"
    "value; 'none' or False nothing; True, as in torch.fx, every entry, and it must have none of its own (else\n"
    "ValueError). Returns the list of changed users.";

PyObject *Node_replace_all_uses_with(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"replace_with", "delete_user_cb", "propagate_meta", NULL};
    static const parameters p = {"replace_all_uses_with", names, 1, 2};
    PyObject *v[3], *users;
    meta_propagation how;
    uint32_t new;
    int result = -1;

    if (parse_call(&p, args, nargs, kwnames, v) < 0 || propagation_from_python(v[2], &how) < 0 ||
        node_editable(self) < 0 || node_sibling(self, v[0], "replace_with", &new) < 0 ||
        (how == PROPAGATE_TO_EMPTY && can_take_meta(v[0]) < 0))
        return NULL;
    users = v[1] && v[1] != Py_None ? choose_users(self, v[1]) : list_users(self);
    if (users && node_editable(self) == 0 && node_sibling(self, v[0], "replace_with", &new) == 0 &&
        prepare_replacement(self, v[0], how, v[2], PyList_GET_SIZE(users) > 0) == 0 && node_editable(self) == 0 &&
        node_sibling(self, v[0], "replace_with", &new) == 0)
        result = replace_chosen(self, users, new);
    if (result < 0)
        Py_CLEAR(users);
    return users;
}
