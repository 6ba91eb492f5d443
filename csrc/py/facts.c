/* facts.c - asking fastexport._facts what targets and calls do, for graphs of our own and for live ones.
 *
 * All of it runs Python code. Facts are flags on the core's targets and nodes; passes read them there.
 */
#include "module.h"

#define FACTS_OF_CALL (FE_NODE_IMPURE | FE_NODE_FX_IMPURE | FE_NODE_RANDOM)
#define LASTING (FE_TARGET_NOT_CALLABLE | FE_TARGET_GETITEM) /* told by the target alone, when it enters */

int facts_ask(PyObject *function, PyObject *const *args, size_t count, uint32_t *out)
{
    PyObject *answer = PyObject_Vectorcall(function, args, count, NULL);

    if (!answer)
        return -1;
    *out = (uint32_t)PyLong_AsUnsignedLongMask(answer);
    Py_DECREF(answer);
    return PyErr_Occurred() ? -1 : 0;
}

int facts_add_registered(const module_state *st, PyObject *target, uint32_t *flags)
{
    if (!st->effects)
        return 0;
    int found = PySet_Contains(st->effects, target);
    if (found < 0 && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear(); /* unhashable, so not in a set */
        found = 0;
    }
    if (found > 0)
        *flags |= FE_TARGET_FX_IMPURE | FE_TARGET_EFFECT;
    return found < 0 ? -1 : 0;
}

int facts_of_call(const module_state *st, PyObject *node, uint8_t *node_flags)
{
    uint32_t flags;

    if (facts_ask(st->call_facts, &node, 1, &flags) < 0)
        return -1;
    *node_flags = (uint8_t)(flags & FACTS_OF_CALL);
    return 0;
}

/* One target's facts. Those of a module depend on the owning module and may change at any time, so they are asked for
 * at each pass; a function's are asked for once, but functions registered as effectful since then count. */
static int refresh_target(GraphObject *g, uint32_t index)
{
    fe_target t = g->core->targets[index];
    uint32_t flags = t.flags;

    if (!t.count || t.op == FE_OP_PLACEHOLDER || t.op == FE_OP_OUTPUT || t.op == FE_OP_GET_ATTR || t.op >= FE_OP_COUNT)
        return 0;
    PyObject *object = graph_target_object(g, index);
    if (!object)
        return -1;
    int result = 0;
    if (t.op == FE_OP_CALL_MODULE || !(flags & FE_TARGET_KNOWN)) {
        PyObject *args[] = {g->state->op_names[t.op], object, Py_XNewRef(g->owning_module), Py_XNewRef(g->subgraphs)};
        args[2] = args[2] ? args[2] : Py_NewRef(Py_None);
        args[3] = args[3] ? args[3] : Py_NewRef(Py_None);
        result = facts_ask(g->state->facts, args, 4, &flags);
        Py_DECREF(args[2]);
        Py_DECREF(args[3]);
        flags = (flags & ~(uint32_t)LASTING) | (t.flags & LASTING) | FE_TARGET_KNOWN;
    }
    if (result == 0 && t.object != FE_NONE_ID && !(flags & FE_TARGET_FX_IMPURE))
        result = facts_add_registered(g->state, object, &flags);
    Py_DECREF(object);
    if (result == 0)
        g->core->targets[index].flags = flags;
    return result;
}

static int refresh_call(GraphObject *g, uint32_t id)
{
    PyObject *node = graph_node(g, id);
    uint8_t flags = 0;
    int result = node ? facts_of_call(g->state, node, &flags) : -1;

    Py_XDECREF(node);
    if (result == 0) {
        uint8_t *at = &g->core->nodes[id].flags;
        *at = (uint8_t)((*at & ~(uint32_t)FACTS_OF_CALL) | flags);
    }
    return result;
}

static int refresh_all(GraphObject *g)
{
    for (uint32_t i = 0; i < g->core->target_count; i++) {
        if (refresh_target(g, i) < 0)
            return -1;
        if (!(g->core->targets[i].flags & FE_TARGET_PER_NODE))
            continue;
        for (uint32_t id = fe_target_nodes(g->core, i); id != FE_NONE_ID; id = g->core->details[id].target_next) {
            if (refresh_call(g, id) < 0)
                return -1;
        }
    }
    return 0;
}

int graph_refresh_facts(GraphObject *g)
{
    if (!g->state->effects && refresh_effects(g->state) < 0)
        return -1;
    graph_pin(g);
    int result = refresh_all(g);
    graph_unpin(g);
    return result;
}

int graph_refresh_node(GraphObject *g, uint32_t id)
{
    uint32_t target = g->core->nodes[id].target;

    if (!g->state->effects && refresh_effects(g->state) < 0)
        return -1;
    graph_pin(g);
    int result = refresh_target(g, target);
    if (result == 0 && g->core->targets[target].flags & FE_TARGET_PER_NODE)
        result = refresh_call(g, id);
    graph_unpin(g);
    return result;
}

int refresh_effects(module_state *st)
{
    PyObject *effects = PyObject_CallNoArgs(st->registered_effects);

    if (!effects)
        return -1;
    if (PyAnySet_Check(effects))
        Py_XSETREF(st->effects, effects);
    else
        Py_DECREF(effects);
    return 0;
}
