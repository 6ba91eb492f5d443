/* users.c - node.users: a live, read-only mapping from each user of a node to None, as torch.fx's dict of users.
 *
 * The mapping has no state of its own: it reads the list of users that the core keeps in step with arguments. An
 * iterator takes down the ids of the users when it is made, for edges move when the graph is edited and ids don't. Each
 * step compares the number of users with the number at the start (as dict does) and, once the graph has changed, leaves
 * out who is no longer a user.
 */
#include "module.h"

typedef struct {
    PyObject_HEAD
    NodeObject *node;
} UsersObject;

typedef struct {
    PyVarObject head; /* its size is the number of users at the start */
    NodeObject *node; /* NULL: ended */
    uint64_t version; /* of the graph when ids were taken down */
    Py_ssize_t at;
    bool failed; /* the number of users changed; every further step fails too */
    uint32_t ids[];
} UsersIterObject;

static bool has_user(const fe_graph *g, uint32_t def, uint32_t user)
{
    return fe_edge_find(g, def, user) != FE_NONE_ID;
}

/* ---- the iterator ---- */

static void take_down(const fe_graph *g, uint32_t def, bool backwards, uint32_t *ids)
{
    const fe_detail *n = &g->details[def];

    for (uint32_t e = backwards ? n->last_user : n->first_user; e != FE_NONE_ID;
         e = backwards ? g->edges[e].prev : g->edges[e].next)
        *ids++ = g->edges[e].user;
}

static PyObject *iterate(NodeObject *n, bool backwards)
{
    GraphObject *g = n->graph;

    if (graph_readable(g) < 0)
        return NULL;
    graph_pin(g); /* the allocation may run finalizers, and users must stay as many as they are */
    UsersIterObject *it =
        PyObject_GC_NewVar(UsersIterObject, g->state->users_iter_type, (Py_ssize_t)g->core->nodes[n->id].user_count);
    graph_unpin(g);
    if (!it)
        return NULL;
    it->node = (NodeObject *)Py_NewRef(n);
    it->version = g->core->version;
    it->at = 0;
    it->failed = false;
    take_down(g->core, n->id, backwards, it->ids);
    PyObject_GC_Track(it);
    return (PyObject *)it;
}

static PyObject *UsersIter_next(UsersIterObject *self)
{
    NodeObject *n = self->node;

    if (!n || graph_readable(n->graph) < 0)
        return NULL;
    const fe_graph *core = n->graph->core;
    if (self->failed || core->nodes[n->id].user_count != (size_t)Py_SIZE(self)) {
        self->failed = true;
        PyErr_SetString(PyExc_RuntimeError,
                        "the number of users changed during iteration; iterate over list(node.users) instead");
        return NULL;
    }
    while (self->at < Py_SIZE(self)) {
        uint32_t id = self->ids[self->at++];
        if (core->version == self->version || has_user(core, n->id, id))
            return graph_node(n->graph, id);
    }
    Py_CLEAR(self->node);
    return NULL;
}

static int UsersIter_traverse(UsersIterObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->node);
    return 0;
}

static void UsersIter_dealloc(UsersIterObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->node);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyType_Slot users_iter_slots[] = {
    {Py_tp_dealloc, UsersIter_dealloc},
    {Py_tp_traverse, UsersIter_traverse},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, UsersIter_next},
    {0, NULL},
};

PyType_Spec users_iter_spec = {
    .name = "fastexport._core.UsersIterator",
    .basicsize = sizeof(UsersIterObject),
    .itemsize = sizeof(uint32_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = users_iter_slots,
};

/* ---- the mapping ---- */

PyObject *users_new(NodeObject *n)
{
    UsersObject *users = PyObject_GC_New(UsersObject, n->graph->state->users_type);

    if (!users)
        return NULL;
    users->node = (NodeObject *)Py_NewRef(n);
    PyObject_GC_Track(users);
    return (PyObject *)users;
}

static PyObject *users_to_dict(NodeObject *n)
{
    GraphObject *g = n->graph;
    PyObject *dict = PyDict_New();

    if (!dict || graph_readable(g) < 0) {
        Py_XDECREF(dict);
        return NULL;
    }
    graph_pin(g);
    for (uint32_t e = g->core->details[n->id].first_user; dict && e != FE_NONE_ID; e = g->core->edges[e].next) {
        PyObject *user = graph_node(g, g->core->edges[e].user);
        if (!user || PyDict_SetItem(dict, user, Py_None) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(user);
    }
    graph_unpin(g);
    return dict;
}

/* Whether the key is a user: 1, 0, or -1 with an exception, which a key without a hash raises as in a dict. */
static int has_key(NodeObject *n, PyObject *key)
{
    GraphObject *g = n->graph;
    const NodeObject *user = (NodeObject *)key;

    if (!PyObject_TypeCheck(key, g->state->node_type))
        return PyObject_Hash(key) == -1 ? -1 : 0;
    if (graph_readable(g) < 0)
        return -1;
    return user->graph == g && has_user(g->core, n->id, user->id);
}

static Py_ssize_t Users_len(UsersObject *self)
{
    GraphObject *g = self->node->graph;

    return graph_readable(g) < 0 ? -1 : (Py_ssize_t)g->core->nodes[self->node->id].user_count;
}

static int Users_contains(UsersObject *self, PyObject *key)
{
    return has_key(self->node, key);
}

static PyObject *Users_getitem(UsersObject *self, PyObject *key)
{
    int found = has_key(self->node, key);

    if (found > 0)
        Py_RETURN_NONE;
    if (found == 0) {
        PyObject *error = PyObject_CallOneArg(PyExc_KeyError, key); /* a tuple must stay one argument */
        if (error)
            PyErr_SetObject(PyExc_KeyError, error);
        Py_XDECREF(error);
    }
    return NULL;
}

static int Users_setitem(UsersObject *Py_UNUSED(self), PyObject *Py_UNUSED(key), PyObject *Py_UNUSED(value))
{
    PyErr_SetString(PyExc_TypeError, "node.users follows from arguments and can't be changed by itself; change the "
                                     "users' arguments instead (user.args, user.replace_input_with)");
    return -1;
}

static PyObject *Users_iter(UsersObject *self)
{
    return iterate(self->node, false);
}

static PyObject *Users_repr(UsersObject *self)
{
    PyObject *dict = users_to_dict(self->node);
    PyObject *text = dict ? PyObject_Repr(dict) : NULL;

    Py_XDECREF(dict);
    return text;
}

/* When other is no dict but a mapping like this one, Python asks it in turn to compare itself with our dict. */
static PyObject *Users_richcompare(UsersObject *self, PyObject *other, int op)
{
    if (op != Py_EQ && op != Py_NE)
        Py_RETURN_NOTIMPLEMENTED;
    PyObject *dict = users_to_dict(self->node);
    PyObject *result = dict ? PyObject_RichCompare(dict, other, op) : NULL;
    Py_XDECREF(dict);
    return result;
}

static int Users_traverse(UsersObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->node);
    return 0;
}

static void Users_dealloc(UsersObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    Py_DECREF(self->node);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* ---- methods ---- */

static PyObject *Users_get(UsersObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs < 1 || nargs > 2) {
        PyErr_Format(PyExc_TypeError, "get() takes 1 or 2 arguments, a node and a default (%zd given)", nargs);
        return NULL;
    }
    int found = has_key(self->node, args[0]);
    if (found < 0)
        return NULL;
    return Py_NewRef(found || nargs == 1 ? Py_None : args[1]);
}

static PyObject *view_of_copy(NodeObject *n, const char *method)
{
    PyObject *dict = users_to_dict(n);
    PyObject *view = dict ? PyObject_CallMethod(dict, method, NULL) : NULL;

    Py_XDECREF(dict);
    return view;
}

static PyObject *Users_keys(UsersObject *self, PyObject *Py_UNUSED(ignored))
{
    return view_of_copy(self->node, "keys");
}

static PyObject *Users_values(UsersObject *self, PyObject *Py_UNUSED(ignored))
{
    return view_of_copy(self->node, "values");
}

static PyObject *Users_items(UsersObject *self, PyObject *Py_UNUSED(ignored))
{
    return view_of_copy(self->node, "items");
}

static PyObject *Users_copy(UsersObject *self, PyObject *Py_UNUSED(ignored))
{
    return users_to_dict(self->node);
}

static PyObject *Users_reversed(UsersObject *self, PyObject *Py_UNUSED(ignored))
{
    return iterate(self->node, true);
}

/* A copy of any kind is a dict. */
static PyObject *Users_reduce(UsersObject *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *dict = users_to_dict(self->node);

    return dict ? Py_BuildValue("O(N)", &PyDict_Type, dict) : NULL;
}

PyDoc_STRVAR(users_doc, "The nodes that use a node, as node.users gives them: a live, read-only mapping from\n"
                        "each user to None, in the order in which they became users.\n"
                        "\n"
                        "It reads like the dict that torch.fx keeps. A user is there once, however often its\n"
                        "arguments name the node. Users follow from arguments: assigning or deleting here\n"
                        "raises TypeError; change the users' arguments instead.\n"
                        "\n"
                        "Iterating while the number of users changes raises RuntimeError; iterate over\n"
                        "list(node.users) to change users on the way.\n"
                        "\n"
                        ">>> x.users\n"
                        "{relu: None, add: None}\n"
                        ">>> for user in list(x.users):\n"
                        "...     user.replace_input_with(x, y)\n"
                        ">>> len(x.users)\n"
                        "0");

PyDoc_STRVAR(get_doc, "get($self, node, default=None, /)\n--\n\n"
                      "None when the node is a user, else the default, as torch.fx's dict of users gives.\n"
                      "Use `node in users` to tell whether it is one.");
PyDoc_STRVAR(keys_doc, "keys($self, /)\n--\n\nThe users at this moment, as a dict's keys.\n\n"
                       ">>> x.users.keys() & {relu, mul}\n{relu}");
PyDoc_STRVAR(values_doc, "values($self, /)\n--\n\nA None for each user, as a dict's values.");
PyDoc_STRVAR(items_doc, "items($self, /)\n--\n\nPairs (user, None) of the users at this moment, as a dict's items.");
PyDoc_STRVAR(copy_doc, "copy($self, /)\n--\n\nA dict of the users at this moment.");
PyDoc_STRVAR(reversed_doc, "__reversed__($self, /)\n--\n\nIterate from the newest user to the oldest.");
PyDoc_STRVAR(reduce_doc, "__reduce__($self, /)\n--\n\nCopies and pickles are dicts.");

static PyMethodDef users_methods[] = {
    {"get", (PyCFunction)(void (*)(void))Users_get, METH_FASTCALL, get_doc},
    {"keys", (PyCFunction)Users_keys, METH_NOARGS, keys_doc},
    {"values", (PyCFunction)Users_values, METH_NOARGS, values_doc},
    {"items", (PyCFunction)Users_items, METH_NOARGS, items_doc},
    {"copy", (PyCFunction)Users_copy, METH_NOARGS, copy_doc},
    {"__reversed__", (PyCFunction)Users_reversed, METH_NOARGS, reversed_doc},
    {"__reduce__", (PyCFunction)Users_reduce, METH_NOARGS, reduce_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot users_slots[] = {
    {Py_tp_doc, (void *)users_doc},
    {Py_tp_dealloc, Users_dealloc},
    {Py_tp_traverse, Users_traverse},
    {Py_tp_repr, Users_repr},
    {Py_tp_richcompare, Users_richcompare},
    {Py_tp_hash, PyObject_HashNotImplemented},
    {Py_tp_iter, Users_iter},
    {Py_tp_methods, users_methods},
    {Py_mp_length, Users_len},
    {Py_mp_subscript, Users_getitem},
    {Py_mp_ass_subscript, Users_setitem},
    {Py_sq_contains, Users_contains},
    {0, NULL},
};

PyType_Spec users_spec = {
    .name = "fastexport._core.Users",
    .basicsize = sizeof(UsersObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_MAPPING,
    .slots = users_slots,
};
