/* judge.c - asking Python about the targets of a graph.
 *
 * The graph is pinned meanwhile, and its version is compared after, so that what was found is so when it is acted upon.
 */
#include "judge.h"

#define NOOP_SHIFT 32 /* of what a function answers: above the fe_memory_fact bits stands an fe_noop */

void judged_clear(judged *j)
{
    PyMem_Free(j->facts);
    PyMem_Free(j->noops);
}

static int judge_target(GraphObject *g, PyObject *function, bool attributes, uint32_t index, judged *out)
{
    uint8_t op = g->core->targets[index].op;
    bool is_call = op == FE_OP_CALL_FUNCTION || op == FE_OP_CALL_METHOD || op == FE_OP_CALL_MODULE;
    bool is_asked = g->core->targets[index].count && (is_call || (attributes && op == FE_OP_GET_ATTR));
    PyObject *object = is_asked ? graph_target_object(g, index) : NULL;

    if (!object)
        return PyErr_Occurred() ? -1 : 0;
    PyObject *args[] = {g->state->op_names[op], object}, *answer = PyObject_Vectorcall(function, args, 2, NULL);
    unsigned long long bits = answer ? PyLong_AsUnsignedLongLong(answer) : 0;
    Py_DECREF(object);
    Py_XDECREF(answer);
    if (PyErr_Occurred())
        return -1;
    out->facts[index] = (uint32_t)bits;
    out->noops[index] = (uint8_t)(bits >> NOOP_SHIFT) < FE_NOOP_COUNT ? (uint8_t)(bits >> NOOP_SHIFT) : FE_NOOP_NONE;
    return 0;
}

int judge_targets(GraphObject *g, PyObject *function, bool attributes, judged *out)
{
    uint32_t count = g->core->target_count;
    int result = 0;

    out->facts = PyMem_Calloc((size_t)count + 1, sizeof *out->facts);
    out->noops = PyMem_Calloc((size_t)count + 1, sizeof *out->noops);
    if (!out->facts || !out->noops) {
        PyErr_NoMemory();
        return -1;
    }
    graph_pin(g);
    for (uint32_t i = 0; result == 0 && i < count; i++)
        result = judge_target(g, function, attributes, i, out);
    graph_unpin(g);
    return result;
}

int judge_check(GraphObject *g, uint64_t version)
{
    if (graph_editable(g) < 0)
        return -1;
    if (g->core->version == version)
        return 0;
    PyErr_SetString(g->state->error, "the graph was changed while a pass was looking at it");
    return -1;
}
