/* fx_listings.c - torch's find_nodes table, read along with a graph's list of nodes. */
#include "fx.h"

/* The calls of the nodes in a dict of the table. */
static int list_calls(fx_snapshot *s, PyObject *listed)
{
    const fx_layout *l = &s->st->fx;
    PyObject *node, *value;
    Py_ssize_t at = 0;
    uint32_t call;

    while (PyDict_Next(listed, &at, &node, &value)) {
        if (fx_is_node(l, node) &&
            fx_calls_get(s->st, &s->calls, fx_get(node, l->op), fx_get(node, l->target), &call) < 0)
            return -1;
    }
    return 0;
}

int fx_listings_read(fx_listings *t, fx_snapshot *s, PyObject *table, bool attributes)
{
    PyObject *key, *listed;
    Py_ssize_t at = 0;
    uint32_t index;

    while (PyDict_Next(table, &at, &key, &listed)) {
        if (!PyTuple_Check(key) || PyTuple_GET_SIZE(key) != 2 || !PyDict_Check(listed) || !PyDict_GET_SIZE(listed))
            continue;
        PyObject *op = PyTuple_GET_ITEM(key, 0), *target = PyTuple_GET_ITEM(key, 1);
        fe_op code = fx_op(s->st, op);
        if (code == FE_OP_CALL_FUNCTION) {
            if (fx_calls_get(s->st, &s->calls, op, target, &index) < 0)
                return -1;
            Py_XSETREF(s->calls.items[index].listed, Py_NewRef(listed)); /* two keys may be the same call */
            s->calls.items[index].known = true;
            continue;
        }
        if (code >= FE_OP_COUNT)
            continue; /* nodes of an unknown opcode, which lint reports */
        Py_XSETREF(t->by_op[code], Py_NewRef(listed));
        bool counts = code == FE_OP_CALL_MODULE || code == FE_OP_CALL_METHOD || (code == FE_OP_GET_ATTR && attributes);
        if (counts && list_calls(s, listed) < 0)
            return -1;
    }
    return 0;
}

static void next_listed(fx_listing *t)
{
    PyObject *value;

    if (!PyDict_Next(t->dict, &t->at, &t->next, &value))
        t->next = NULL;
}

static void close_items(fx_listings *t)
{
    for (uint32_t i = 0; t->items && i < t->count + FE_OP_COUNT; i++)
        Py_XDECREF(t->items[i].dict);
    PyMem_RawFree(t->items);
    t->items = NULL;
}

int fx_listings_open(fx_listings *t, const fx_snapshot *s)
{
    close_items(t);
    t->count = s->calls.count;
    t->items = PyMem_RawCalloc((size_t)t->count + FE_OP_COUNT, sizeof *t->items);
    if (!t->items) {
        PyErr_NoMemory();
        return -1;
    }
    for (uint32_t i = 0; i < t->count + FE_OP_COUNT; i++) {
        PyObject *dict = i < t->count ? s->calls.items[i].listed : t->by_op[i - t->count];
        t->items[i].dict = Py_XNewRef(dict);
        if (dict)
            next_listed(&t->items[i]);
    }
    return 0;
}

int fx_listings_find(fx_listings *t, const fx_snapshot *s, uint32_t index)
{
    PyObject *node = s->nodes[index];
    uint32_t call = s->call[index], code = s->calls.items[call].code;
    fx_listing *at = &t->items[code == FE_OP_CALL_FUNCTION ? call : t->count + (code < FE_OP_COUNT ? code : 0)];

    if (code >= FE_OP_COUNT || (code == FE_OP_CALL_FUNCTION && call >= t->count) || !at->dict)
        return 0;
    if (at->next == node) {
        next_listed(at);
        return 1;
    }
    return PyDict_Contains(at->dict, node);
}

void fx_listings_clear(fx_listings *t)
{
    close_items(t);
    for (int i = 0; i < FE_OP_COUNT; i++)
        Py_CLEAR(t->by_op[i]);
}
