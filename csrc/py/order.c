/* order.c - the order of a graph's nodes for Python: sorting, arranging, and what groups of nodes become.
 *
 * Nothing here calls Python between the first look at the core and the last change to it; Node objects of what was found
 * are made from ids that the core has no more part in.
 */
#include "order.h"
#include "graph.h"

static GraphObject *graph_of(PyObject *m, PyObject *o, const char *function)
{
    if (PyObject_TypeCheck(o, state_of(m)->graph_type))
        return (GraphObject *)o;
    PyErr_Format(PyExc_TypeError, "%s() takes a Graph of fastexport, not %R", function, Py_TYPE(o));
    return NULL;
}

/* ---- sorting ---- */

static bool holds(PyObject *tuple, const PyObject *o)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        if (PyTuple_GET_ITEM(tuple, i) == o)
            return true;
    }
    return false;
}

/* By place, the rank of each node and whether it is an urgent call. */
static void look_at_nodes(const GraphObject *g, PyObject *urgent, uint8_t *ranks, bool *is_urgent)
{
    const fe_graph *c = g->core;
    uint32_t place = 0;

    for (uint32_t id = c->nodes[FE_ROOT].next; id != FE_ROOT; id = c->nodes[id].next, place++) {
        const fe_target *t = &c->targets[c->nodes[id].target];
        ranks[place] = fe_op_rank((fe_op)t->op);
        is_urgent[place] =
            t->op == FE_OP_CALL_FUNCTION && t->object != FE_NONE_ID && holds(urgent, g->objects[t->object]);
    }
}

/* From places in the list to ids. */
static void places_to_ids(const fe_graph *c, uint32_t *places, uint32_t count, uint32_t *ids)
{
    uint32_t place = 0;

    for (uint32_t id = c->nodes[FE_ROOT].next; id != FE_ROOT; id = c->nodes[id].next)
        ids[place++] = id;
    for (uint32_t i = 0; i < count; i++)
        places[i] = ids[places[i]];
}

typedef struct {
    fe_flow flow;
    uint8_t *ranks;
    bool *urgent;
    uint32_t *order, *ids;
    uint32_t circle;
} sorting;

static int sorting_run(sorting *s, GraphObject *g, bool breadth_first, bool ranks, PyObject *urgent)
{
    size_t room = (size_t)g->core->live + 1;
    fe_error err;

    s->ranks = PyMem_RawMalloc(room);
    s->urgent = PyMem_RawMalloc(room * sizeof *s->urgent);
    s->order = PyMem_RawMalloc(room * sizeof *s->order);
    s->ids = PyMem_RawMalloc(room * sizeof *s->ids);
    if (!s->ranks || !s->urgent || !s->order || !s->ids) {
        PyErr_NoMemory();
        return -1;
    }
    look_at_nodes(g, urgent, s->ranks, s->urgent);
    const fe_flow_order o = {breadth_first, ranks ? s->ranks : NULL, s->urgent};
    if (fe_graph_flow(g->core, &s->flow, &err) < 0 || fe_flow_sort(&s->flow, &o, s->order, &s->circle, &err) < 0)
        return fail_core(g->state, &err);
    return 0;
}

static PyObject *sort(GraphObject *g, bool breadth_first, bool ranks, PyObject *urgent)
{
    sorting s = {.circle = 0};
    PyObject *result = NULL;
    fe_error err;
    int moved;

    if (!breadth_first && fe_graph_is_sorted(g->core, ranks))
        Py_RETURN_FALSE;
    fe_flow_init(&s.flow, g->core->allocator, g->core->live);
    if (sorting_run(&s, g, breadth_first, ranks, urgent) == 0) {
        if (s.circle) {
            places_to_ids(g->core, s.order, s.circle, s.ids);
            result = graph_node_list(g, s.order, s.circle);
        } else if ((moved = fe_graph_arrange(g->core, s.order, &err)) < 0)
            raise_core(g->state, &err);
        else
            result = PyBool_FromLong(moved);
    }
    fe_flow_clear(&s.flow);
    PyMem_RawFree(s.ranks);
    PyMem_RawFree(s.urgent);
    PyMem_RawFree(s.order);
    PyMem_RawFree(s.ids);
    return result;
}

PyDoc_STRVAR(
    sort_graph_doc,
    "sort_graph(graph, breadth_first, ranks, urgent, /)\n--\n\n"
    "Put the nodes of a graph into order. With ranks, inputs come first and the output last. Breadth first, calls\n"
    "of the functions in the tuple urgent come before what waits. Returns whether any node moved; or, with\n"
    "nothing changed, a list of nodes that need each other in turn.");

static PyObject *sort_graph(PyObject *m, PyObject *args)
{
    PyObject *graph, *urgent;
    int breadth_first, ranks;

    if (!PyArg_ParseTuple(args, "OppO!:sort_graph", &graph, &breadth_first, &ranks, &PyTuple_Type, &urgent))
        return NULL;
    GraphObject *g = graph_of(m, graph, "sort_graph");
    return g && graph_editable(g) == 0 ? sort(g, breadth_first, ranks, urgent) : NULL;
}

/* ---- arranging ---- */

/* By place in the new order, the place that the node has now; -1 unless the list names each node once. */
static int read_order(GraphObject *g, PyObject *list, uint32_t *places, uint32_t *order)
{
    uint32_t place = 0;

    for (uint32_t id = g->core->nodes[FE_ROOT].next; id != FE_ROOT; id = g->core->nodes[id].next)
        places[id] = place++;
    if (PyList_GET_SIZE(list) != (Py_ssize_t)place) {
        PyErr_SetString(PyExc_ValueError, "the list must hold each node of the graph once");
        return -1;
    }
    for (uint32_t i = 0, id; i < place; i++) {
        if (graph_own_node(g, PyList_GET_ITEM(list, i), "an item of the list", &id) < 0)
            return -1;
        if (id == FE_ROOT || places[id] == FE_NONE_ID) {
            PyErr_SetString(PyExc_ValueError, "the list must hold each node of the graph once");
            return -1;
        }
        order[i] = places[id];
        places[id] = FE_NONE_ID;
    }
    return 0;
}

PyDoc_STRVAR(arrange_graph_doc, "arrange_graph(graph, nodes, /)\n--\n\n"
                                "Put the nodes of a graph into the order of a list that holds each of them once. "
                                "Returns whether any moved.");

static PyObject *arrange_graph(PyObject *m, PyObject *args)
{
    PyObject *graph, *list, *result = NULL;
    GraphObject *g;
    fe_error err;
    int moved;

    if (!PyArg_ParseTuple(args, "OO!:arrange_graph", &graph, &PyList_Type, &list) ||
        !(g = graph_of(m, graph, "arrange_graph")) || graph_editable(g) < 0)
        return NULL;
    uint32_t *places = PyMem_RawMalloc(g->core->node_count * sizeof *places);
    uint32_t *order = PyMem_RawMalloc(((size_t)g->core->live + 1) * sizeof *order);
    if (!places || !order)
        PyErr_NoMemory();
    else if (read_order(g, list, places, order) == 0) {
        if ((moved = fe_graph_arrange(g->core, order, &err)) < 0)
            raise_core(g->state, &err);
        else
            result = PyBool_FromLong(moved);
    }
    PyMem_RawFree(places);
    PyMem_RawFree(order);
    return result;
}

/* ---- groups ---- */

static int read_group(GraphObject *g, PyObject *nodes, uint32_t number, uint32_t *group)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(nodes); i++) {
        uint32_t id;
        if (graph_own_node(g, PyList_GET_ITEM(nodes, i), "an item of a group", &id) < 0)
            return -1;
        if (id == FE_ROOT || group[id]) {
            PyErr_Format(PyExc_ValueError, "'%S' is in two groups", PyList_GET_ITEM(nodes, i));
            return -1;
        }
        group[id] = number;
    }
    return 0;
}

/* By node the number of its group, from a list of lists; NULL with an exception. */
static uint32_t *read_groups(GraphObject *g, PyObject *list)
{
    uint32_t *group = PyMem_RawCalloc(g->core->node_count, sizeof *group);
    int result = group ? 0 : -1;

    if (!group)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; result == 0 && i < PyList_GET_SIZE(list); i++) {
        PyObject *nodes = PyList_GET_ITEM(list, i);
        if (PyList_Check(nodes))
            result = read_group(g, nodes, (uint32_t)i + 1, group);
        else {
            PyErr_SetString(PyExc_TypeError, "plan_groups() takes a list of lists of nodes");
            result = -1;
        }
    }
    if (result == 0)
        return group;
    PyMem_RawFree(group);
    return NULL;
}

/* The nodes of a report that belong to a group, from *at on. */
static PyObject *part_of(GraphObject *g, const fe_report *r, uint32_t group, uint32_t *at)
{
    PyObject *list = PyList_New(0);

    for (; list && *at < r->len && r->items[*at].other == group; ++*at) {
        PyObject *node = graph_node(g, r->items[*at].node);
        if (!node || PyList_Append(list, node) < 0)
            Py_CLEAR(list);
        Py_XDECREF(node);
    }
    return list;
}

static PyObject *described_groups(GraphObject *g, const fe_group_plan *p, uint32_t count)
{
    uint32_t member = 0, input = 0, output = 0;
    PyObject *list = PyList_New(count);

    for (uint32_t i = 0; list && i < count; i++) {
        PyObject *members = part_of(g, &p->members, i + 1, &member),
                 *inputs = members ? part_of(g, &p->inputs, i + 1, &input) : NULL,
                 *outputs = inputs ? part_of(g, &p->outputs, i + 1, &output) : NULL,
                 *triple = outputs ? PyTuple_Pack(3, members, inputs, outputs) : NULL;
        Py_XDECREF(members);
        Py_XDECREF(inputs);
        Py_XDECREF(outputs);
        if (!triple)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, triple);
    }
    return list;
}

static PyObject *described_plan(GraphObject *g, const fe_group_plan *p, uint32_t count)
{
    if (p->circle)
        return Py_BuildValue("ON", Py_None, graph_node_list(g, p->order, p->count));
    PyObject *groups = described_groups(g, p, count), *order = NULL, *result = NULL;
    if (groups && (order = p->moves ? graph_node_list(g, p->order, p->count) : Py_NewRef(Py_None)))
        result = PyTuple_Pack(2, groups, order);
    Py_XDECREF(groups);
    Py_XDECREF(order);
    return result;
}

static PyObject *plan(GraphObject *g, PyObject *list, bool effects)
{
    uint32_t *group = read_groups(g, list);
    const fe_groups groups = {.group = group, .count = (uint32_t)PyList_GET_SIZE(list), .effects = effects};
    PyObject *result = NULL;
    fe_group_plan p;
    fe_error err;

    if (!group)
        return NULL;
    fe_group_plan_init(&p, g->core->allocator);
    graph_pin(g);
    if (fe_plan_groups(g->core, &groups, &p, &err) < 0)
        raise_core(g->state, &err);
    else
        result = described_plan(g, &p, groups.count);
    graph_unpin(g);
    fe_group_plan_clear(&p);
    PyMem_RawFree(group);
    return result;
}

PyDoc_STRVAR(
    plan_groups_doc,
    "plan_groups(graph, groups, effects, /)\n--\n\n"
    "What becomes of a graph when each of some groups of its nodes, a list of lists, becomes one call. Returns\n"
    "([(members, inputs, outputs), ...], order): order is None when it is that of the graph, else a list in "
    "which\n"
    "a group stands where its last member is. Returns (None, nodes) when nodes need each other in turn, groups "
    "again\n"
    "by their last members. With effects, writes and other effects keep their order.");

static PyObject *plan_groups(PyObject *m, PyObject *args)
{
    PyObject *graph, *list;
    int effects;

    if (!PyArg_ParseTuple(args, "OO!p:plan_groups", &graph, &PyList_Type, &list, &effects))
        return NULL;
    GraphObject *g = graph_of(m, graph, "plan_groups");
    if (!g || (effects && (graph_editable(g) < 0 || graph_refresh_facts(g) < 0)) || graph_readable(g) < 0)
        return NULL;
    return plan(g, list, effects);
}

PyMethodDef order_functions[] = {
    {"sort_graph", sort_graph, METH_VARARGS, sort_graph_doc},
    {"arrange_graph", arrange_graph, METH_VARARGS, arrange_graph_doc},
    {"plan_groups", plan_groups, METH_VARARGS, plan_groups_doc},
    {"fx_sort", fx_sort, METH_VARARGS, fx_sort_doc},
    {NULL, NULL, 0, NULL},
};
