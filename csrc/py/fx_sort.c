/* fx_sort.c - the nodes of a live torch.fx graph put into order, in place.
 *
 * The order is worked out from what the slots of the nodes hold, without running Python code. From the first node that is
 * out of place on, each is then put at the end by torch's own _prepend, which keeps its sort keys; when memory runs out in
 * the middle the list is whole, but of a mixed order.
 */
#include "fx.h"
#include "order.h"

typedef struct {
    fx_snapshot s;
    fe_flow flow;
    fe_flow_order order;
    uint8_t *ranks;
    bool *urgent;
    uint32_t *out, circle;
    bool ranked, sorted; /* sorted: as far as it was read */
} sorting;

/* What a node must stand before: 1, 0 when its users are not what torch.fx keeps, or -1. */
static int read_users(sorting *x, uint32_t index)
{
    PyObject *users = fx_get(x->s.nodes[index], x->s.st->fx.users), *user, *value;
    Py_ssize_t at = 0;
    fe_error err;

    if (!users || !PyDict_Check(users))
        return 0;
    while (PyDict_Next(users, &at, &user, &value)) {
        uint32_t place = fx_snapshot_find(&x->s, user);
        if (place == FE_NONE_ID)
            return 0;
        x->sorted &= place > index;
        if (fe_flow_add(&x->flow, index, place, &err) < 0)
            return fail_core(x->s.st, &err);
    }
    return 1;
}

static bool is_urgent(const fx_call *call, PyObject *urgent)
{
    for (Py_ssize_t i = 0; call->code == FE_OP_CALL_FUNCTION && i < PyTuple_GET_SIZE(urgent); i++) {
        if (PyTuple_GET_ITEM(urgent, i) == call->target)
            return true;
    }
    return false;
}

static void look_at_nodes(sorting *x, PyObject *urgent)
{
    for (uint32_t i = 0; i < x->s.count; i++) {
        const fx_call *call = &x->s.calls.items[x->s.call[i]];
        x->urgent[i] = is_urgent(call, urgent);
        x->ranks[i] = fe_op_rank((fe_op)call->code);
        x->sorted &= !x->ranked || i == 0 || x->ranks[i - 1] <= x->ranks[i];
    }
    x->order.urgent = x->urgent;
    x->order.rank = x->ranked ? x->ranks : NULL;
}

/* 1: the graph is read, 0: it is none for bulk work, or -1. */
static int read_graph(sorting *x, module_state *st, PyObject *graph, PyObject *urgent)
{
    int result = 1;

    if (fx_snapshot_take(&x->s, st, graph) < 0)
        return -1;
    if (!x->s.regular)
        return 0;
    fe_flow_init(&x->flow, &fe_python_allocator, x->s.count);
    x->ranks = PyMem_RawMalloc((size_t)x->s.count + 1);
    x->urgent = PyMem_RawMalloc(((size_t)x->s.count + 1) * sizeof *x->urgent);
    x->out = PyMem_RawMalloc(((size_t)x->s.count + 1) * sizeof *x->out);
    if (!x->ranks || !x->urgent || !x->out) {
        PyErr_NoMemory();
        return -1;
    }
    look_at_nodes(x, urgent);
    for (uint32_t i = 0; result > 0 && i < x->s.count; i++)
        result = read_users(x, i);
    return result;
}

/* Nodes are held, as those that are unlinked on the way would be by the graph no more. */
static PyObject *apply(sorting *x)
{
    const fx_layout *l = &x->s.st->fx;
    uint32_t same = 0;

    while (same < x->s.count && x->out[same] == same)
        same++;
    fx_snapshot_hold(&x->s);
    for (uint32_t i = same; i < x->s.count; i++) {
        PyObject *done = l->prepend(x->s.root, x->s.nodes[x->out[i]]);
        if (!done)
            return NULL;
        Py_DECREF(done);
    }
    return PyBool_FromLong(same < x->s.count);
}

static PyObject *circle(sorting *x)
{
    fx_snapshot_hold(&x->s);
    PyObject *list = PyList_New(x->circle);
    for (uint32_t i = 0; list && i < x->circle; i++)
        PyList_SET_ITEM(list, i, Py_NewRef(x->s.nodes[x->out[i]]));
    return list;
}

static PyObject *sort(sorting *x, module_state *st, PyObject *graph, PyObject *urgent)
{
    int readable = read_graph(x, st, graph, urgent);
    fe_error err;

    if (readable < 1)
        return readable < 0 ? NULL : Py_NewRef(Py_None);
    if (x->sorted && !x->order.breadth_first)
        Py_RETURN_FALSE;
    if (fe_flow_sort(&x->flow, &x->order, x->out, &x->circle, &err) < 0)
        return raise_core(st, &err);
    return x->circle ? circle(x) : apply(x);
}

const char fx_sort_doc[] = "fx_sort(fx_graph, breadth_first, ranks, urgent, /)\n--\n\n"
                           "Put the nodes of a live torch.fx.Graph into order, in place; the arguments and the result "
                           "are those of sort_graph.\n"
                           "Returns None, with nothing changed, when the graph can't be handled in bulk.";

PyObject *fx_sort(PyObject *m, PyObject *args)
{
    PyObject *graph, *urgent, *result;
    sorting x = {.sorted = true};
    int breadth_first, ranks;

    if (!PyArg_ParseTuple(args, "OppO!:fx_sort", &graph, &breadth_first, &ranks, &PyTuple_Type, &urgent))
        return NULL;
    fe_flow_init(&x.flow, &fe_python_allocator, 0);
    x.order.breadth_first = breadth_first;
    x.ranked = ranks;
    result = sort(&x, state_of(m), graph, urgent);
    fe_flow_clear(&x.flow);
    PyMem_RawFree(x.ranks);
    PyMem_RawFree(x.urgent);
    PyMem_RawFree(x.out);
    fx_snapshot_clear(&x.s);
    return result;
}
