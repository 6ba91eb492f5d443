/* fx_erase.c - erase nodes of a live torch.fx graph, all or none. */
#include "fx_edit.h"

typedef struct {
    PyObject *args,
        *kwargs; /* strong: with None for each node; after the edit, the old ones. NULL: rewritten in place */
    PyObject *seen_args, *seen_kwargs; /* what they were made from; compared only */
    bool skip;                         /* erased already */
} erasure;

typedef struct {
    fx_snapshot s; /* of the nodes to erase */
    erasure *items;
    bool prepared; /* copies of arguments are made, warnings given */
    bool again;    /* something is left to prepare */
} eraser;

static int warn_erased(PyObject *node)
{
    return PyErr_WarnFormat(PyExc_UserWarning, 1, "erase_node(%S) on an already erased node", node);
}

static int still_used(const fx_layout *l, PyObject *node)
{
    PyObject *users = fx_dict_slot(node, l->users, "users");

    if (users)
        PyErr_Format(PyExc_RuntimeError, "Tried to erase Node %S but it still had %zd users in the graph: %S!",
                     fx_name_of(l, node), PyDict_GET_SIZE(users), users);
    return -1;
}

/* What takes Python objects or code: a warning, or copies of arguments that others hold too. */
static int prepare_erasure(eraser *e, uint32_t i)
{
    const fx_layout *l = &e->s.st->fx;
    PyObject *node = e->s.nodes[i];
    fx_mapper m = {.st = e->s.st, .new = Py_None};
    erasure *item = &e->items[i];
    bool names = false;

    if (item->skip)
        return warn_erased(node);
    item->seen_args = fx_get(node, l->args);
    item->seen_kwargs = fx_get(node, l->kwargs);
    if (item->seen_args && item->seen_kwargs && fx_may_rewrite(e->s.st, item->seen_args, NULL, &names) &&
        fx_may_rewrite(e->s.st, item->seen_kwargs, NULL, &names))
        return 0;
    item->args = fx_map_slot(&m, node, l->args);
    item->kwargs = item->args ? fx_map_slot(&m, node, l->kwargs) : NULL;
    return item->kwargs ? 0 : -1;
}

/* Each user goes before its operand, and its going takes it out of the operand's users. */
static int check_users(eraser *e, uint32_t i)
{
    const fx_layout *l = &e->s.st->fx;
    PyObject *node = e->s.nodes[i], *users = fx_dict_slot(node, l->users, "users"), *user, *value;
    Py_ssize_t at = 0;

    if (!users)
        return -1;
    while (PyDict_Next(users, &at, &user, &value)) {
        uint32_t before = fx_snapshot_find(&e->s, user);
        PyObject *inputs = before < i ? fx_dict_slot(user, l->input_nodes, "_input_nodes") : NULL;
        if (PyErr_Occurred())
            return -1;
        if (!inputs || e->items[before].skip)
            return still_used(l, node);
        int named = PyDict_Contains(inputs, node);
        if (named < 1)
            return named < 0 ? -1 : still_used(l, node);
    }
    return 0;
}

static int check_place(eraser *e, uint32_t i)
{
    const fx_layout *l = &e->s.st->fx;
    PyObject *node = e->s.nodes[i], *prev = fx_get(node, l->prev), *next = fx_get(node, l->next);

    if (fx_get(node, l->graph) != e->s.graph) {
        PyErr_Format(PyExc_RuntimeError, "Attempting to remove %S from wrong graph!", node);
        return -1;
    }
    if (prev && fx_is_node(l, prev) && next && fx_is_node(l, next))
        return 0;
    PyErr_Format(PyExc_ValueError, "node '%S' is linked to something that is no torch.fx.Node", fx_name_of(l, node));
    return -1;
}

/* The nodes in arguments that are rewritten in place must be held by the operand list, which goes last. */
typedef struct {
    const fx_layout *l;
    PyObject *inputs;
} operand_list;

static int is_no_operand(void *ctx, PyObject *node)
{
    const operand_list *o = ctx;

    return !fx_is_plain(o->l, node) || PyDict_Contains(o->inputs, node) != 1;
}

/* 1 when arguments can be rewritten in place, or their copies are there, 0 when copies have to be made, or -1. */
static int check_arguments(eraser *e, uint32_t i)
{
    const fx_layout *l = &e->s.st->fx;
    PyObject *node = e->s.nodes[i], *args = fx_get(node, l->args), *kwargs = fx_get(node, l->kwargs);
    PyObject *inputs = fx_dict_slot(node, l->input_nodes, "_input_nodes");
    operand_list operands = {l, inputs};
    bool names = false;

    if (!inputs)
        return -1;
    if (!args || !kwargs) {
        PyErr_SetString(PyExc_ValueError, "a node has no arguments (torch.fx leaves it so when a constructor fails)");
        return -1;
    }
    if (e->items[i].args)
        return args == e->items[i].seen_args && kwargs == e->items[i].seen_kwargs;
    return fx_may_rewrite(e->s.st, args, NULL, &names) && fx_may_rewrite(e->s.st, kwargs, NULL, &names) &&
           (!names || !fx_each_node(l, args, is_no_operand, &operands));
}

static int check_erasure(eraser *e, uint32_t i)
{
    PyObject *node = e->s.nodes[i], *listed = e->s.calls.items[e->s.call[i]].listed;

    if (fx_is_erased(&e->s.st->fx, node) || fx_snapshot_find(&e->s, node) != i) {
        e->again |= !e->prepared;
        e->items[i].skip = true;
        return 0;
    }
    int ready = check_place(e, i) < 0 ? -1 : check_arguments(e, i);
    if (ready == 0 && !e->prepared) {
        e->again = true;
    } else if (ready < 1) {
        if (ready == 0)
            PyErr_SetString(PyExc_RuntimeError, "the torch.fx graph was changed by code that ran during the edit");
        return -1;
    }
    if (check_users(e, i) < 0)
        return -1;
    int found = listed ? PyDict_Contains(listed, node) : 0;
    if (found == 0)
        PyErr_SetObject(PyExc_KeyError, node); /* torch.fx's error for a node that find_nodes has lost */
    return found == 1 ? 0 : -1;
}

static int check_erasures(eraser *e)
{
    e->again = false;
    for (uint32_t i = 0; i < e->s.count; i++) {
        if (check_erasure(e, i) < 0)
            return -1;
    }
    return 0;
}

static void erase_one(eraser *e, uint32_t i)
{
    const fx_layout *l = &e->s.st->fx;
    PyObject *node = e->s.nodes[i], *inputs = fx_get(node, l->input_nodes), *operand, *value;
    Py_ssize_t at = 0;

    fx_discard(e->s.calls.items[e->s.call[i]].listed, node);
    fx_unlink(l, node);
    *((char *)node + l->erased) = 1;
    while (PyDict_Next(inputs, &at, &operand, &value)) {
        PyObject *users = fx_is_node(l, operand) ? fx_get(operand, l->users) : NULL;
        if (users && PyDict_Check(users))
            fx_discard(users, node);
    }
    if (!e->items[i].args) {
        fx_rewrite(e->s.st, fx_get(node, l->args), NULL, Py_None);
        return;
    }
    fx_swap(fx_slot(node, l->args), &e->items[i].args);
    fx_swap(fx_slot(node, l->kwargs), &e->items[i].kwargs);
}

/* No Python code runs between the last check and the end. */
static int erase_all(eraser *e)
{
    PyObject *length;
    Py_ssize_t count, gone = 0;
    int result;

    if (fx_get_length(e->s.st, e->s.graph, &count) < 0 || check_erasures(e) < 0)
        return -1;
    for (uint32_t i = 0; e->again && i < e->s.count; i++) {
        if (prepare_erasure(e, i) < 0)
            return -1;
    }
    e->prepared = true;
    for (uint32_t i = 0; i < e->s.count; i++)
        gone += !e->items[i].skip;
    if (!(length = PyLong_FromSsize_t(count - gone)))
        return -1;
    result = e->again ? check_erasures(e) : 0;
    for (uint32_t i = 0; result == 0 && i < e->s.count; i++) {
        if (!e->items[i].skip)
            erase_one(e, i);
    }
    if (result == 0)
        result = fx_set_length(e->s.st, e->s.graph, length);
    Py_DECREF(length);
    return result;
}

/* Clear the operand lists and release the old arguments, which may run Python code. */
static void eraser_clear(eraser *e, bool erased)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    for (uint32_t i = 0; e->items && i < e->s.count; i++) {
        PyObject *inputs = fx_get(e->s.nodes[i], e->s.st->fx.input_nodes);
        if (erased && !e->items[i].skip && inputs && PyDict_Check(inputs))
            PyDict_Clear(inputs);
        Py_XDECREF(e->items[i].args);
        Py_XDECREF(e->items[i].kwargs);
    }
    PyMem_RawFree(e->items);
    fx_snapshot_clear(&e->s);
    PyErr_Restore(type, value, traceback);
}

/* torch's own method, for each node. */
static int erase_by_method(PyObject *graph, PyObject *const *nodes, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        PyObject *done = PyObject_CallMethod(graph, "erase_node", "O", nodes[i]);
        if (!done)
            return -1;
        Py_DECREF(done);
    }
    return 0;
}

static int find_listings(eraser *e)
{
    fx_tables tables;
    int result = fx_tables_get(e->s.graph, &tables);

    for (uint32_t i = 0; result == 0 && i < e->s.calls.count; i++)
        result = fx_call_find_listed(tables.table, &e->s.calls.items[i], false);
    fx_tables_clear(&tables);
    return result;
}

int fx_erase_nodes(module_state *st, PyObject *graph, PyObject *const *nodes, uint32_t count)
{
    eraser e = {0};
    bool plain = true;
    int result = fx_snapshot_of(&e.s, st, graph, nodes, (Py_ssize_t)count);

    for (uint32_t i = 0; result == 0 && i < count; i++)
        plain &= fx_is_plain(&st->fx, nodes[i]);
    if (result == 0 && !plain) {
        result = erase_by_method(graph, e.s.nodes, count);
        eraser_clear(&e, false);
        return result;
    }
    if (result == 0 && !(e.items = PyMem_RawCalloc((size_t)count + 1, sizeof *e.items))) {
        PyErr_NoMemory();
        result = -1;
    }
    if (result == 0 && (result = find_listings(&e)) == 0)
        result = erase_all(&e);
    eraser_clear(&e, result == 0);
    return result;
}

const char fx_erase_doc[] =
    "fx_erase(fx_graph, nodes, /)\n--\n\n"
    "Erase nodes of a live torch.fx.Graph in the order given, with the result of erase_node for each. A user must "
    "come\n"
    "before its operand. Everything is checked before the first node goes; with hooks, erase_node is called for each.";

PyObject *fx_erase(PyObject *m, PyObject *const *args, Py_ssize_t nargs)
{
    module_state *st = state_of(m);
    PyObject *nodes; /* a list of our own, which nobody else can change */
    int hooks, result;

    if (fx_arguments("fx_erase", nargs, 2) < 0 || (hooks = fx_has_hooks(args[0], "_erase_node_hooks")) < 0 ||
        !(nodes = PySequence_List(args[1])))
        return NULL;
    PyObject **items = PySequence_Fast_ITEMS(nodes);
    uint32_t count = (uint32_t)PyList_GET_SIZE(nodes);
    result = hooks ? erase_by_method(args[0], items, count) : fx_erase_nodes(st, args[0], items, count);
    Py_DECREF(nodes);
    return result < 0 ? NULL : Py_NewRef(Py_None);
}
