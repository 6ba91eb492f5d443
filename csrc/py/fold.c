/* fold.c - which nodes are constant, as a method of Graph. The values are Python's affair. */
#include "judge.h"

const char find_constants_doc[] =
    "_find_constants($self, judge, known, /)\n--\n\n"
    "Which nodes have the same value at each run, when those that known, bytes of ids, names do; None: all attributes, "
    "and all\n"
    "inputs that no caller gives. Returns the ids of what can be computed, in order, of those of them that something "
    "else needs,\n"
    "and of the known nodes that they are computed from, as bytes.";

static bool is_held(const fe_spec *spec)
{
    return spec->kind == FE_INPUT_PARAMETER || spec->kind == FE_INPUT_BUFFER || spec->kind == FE_INPUT_CONSTANT_TENSOR;
}

/* Mark all nodes whose values may be there without a run. */
static void mark_leaves(const fe_graph *core, uint8_t *nodes)
{
    const fe_signature *s = core->signature;

    for (uint32_t i = 0; s && i < s->input_count; i++) {
        if (is_held(&s->inputs[i]) && s->inputs[i].node != FE_NONE_ID)
            nodes[s->inputs[i].node] = FE_FOLD_KNOWN;
    }
    for (uint32_t id = core->nodes[FE_ROOT].next; id != FE_ROOT; id = core->nodes[id].next) {
        if (core->nodes[id].op == FE_OP_GET_ATTR)
            nodes[id] = FE_FOLD_KNOWN;
    }
}

static int mark_known(const GraphObject *g, PyObject *known, uint8_t *nodes)
{
    Py_ssize_t count = PyBytes_GET_SIZE(known) / (Py_ssize_t)sizeof(uint32_t);

    for (Py_ssize_t i = 0; i < count; i++) {
        uint32_t id;
        memcpy(&id, PyBytes_AS_STRING(known) + i * (Py_ssize_t)sizeof id, sizeof id);
        if (!fe_node_is_listed(g->core, id)) {
            PyErr_Format(PyExc_ValueError, "no node has id %u", id);
            return -1;
        }
        nodes[id] = FE_FOLD_KNOWN;
    }
    return 0;
}

/* Keep the marks of known nodes that something is computed from. Returns all marks there are then. */
static uint8_t unmark_idle(const fe_graph *core, uint8_t *nodes)
{
    uint8_t all = 0;

    for (uint32_t id = 0; id < core->node_count; id++) {
        bool is_used = false;
        all |= nodes[id] & (FE_FOLD_COMPUTE | FE_FOLD_KEEP);
        if (!(nodes[id] & FE_FOLD_KNOWN))
            continue;
        for (uint32_t e = core->details[id].first_user; !is_used && e != FE_NONE_ID; e = core->edges[e].next)
            is_used = nodes[core->edges[e].user] & FE_FOLD_COMPUTE;
        nodes[id] = is_used ? FE_FOLD_KNOWN : 0;
        all |= nodes[id];
    }
    return all;
}

static PyObject *ids_marked(const fe_graph *core, const uint8_t *nodes, uint8_t mark, uint8_t all)
{
    Py_ssize_t count = 0;

    if (!(mark & all))
        return PyBytes_FromStringAndSize(NULL, 0);
    for (uint32_t id = core->nodes[FE_ROOT].next; id != FE_ROOT; id = core->nodes[id].next)
        count += (nodes[id] & mark) != 0;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(uint32_t));
    char *at = bytes ? PyBytes_AS_STRING(bytes) : NULL;
    for (uint32_t id = core->nodes[FE_ROOT].next; at && id != FE_ROOT; id = core->nodes[id].next) {
        if (nodes[id] & mark) {
            memcpy(at, &id, sizeof id);
            at += sizeof id;
        }
    }
    return bytes;
}

static PyObject *constants_found(const fe_graph *core, uint8_t *nodes)
{
    uint8_t all = unmark_idle(core, nodes);

    return Py_BuildValue("NNN", ids_marked(core, nodes, FE_FOLD_COMPUTE, all),
                         ids_marked(core, nodes, FE_FOLD_KEEP, all), ids_marked(core, nodes, FE_FOLD_KNOWN, all));
}

PyObject *Graph_find_constants(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    GraphObject *g = (GraphObject *)self;
    PyObject *result = NULL;
    judged j = {0};
    fe_error err;

    if (nargs != 2 || (args[1] != Py_None && !PyBytes_Check(args[1])))
        return PyErr_Format(PyExc_TypeError, "_find_constants() takes a function and bytes or None");
    if (graph_readable(g) < 0 || graph_refresh_facts(g) < 0)
        return NULL;
    uint64_t version = g->core->version;
    uint8_t *nodes = NULL;
    bool is_marked = true;
    if (judge_targets(g, args[0], false, &j) == 0 && judge_check(g, version) == 0) {
        nodes = PyMem_Calloc(g->core->node_count, 1);
        if (!nodes)
            PyErr_NoMemory();
        else if (args[1] == Py_None)
            mark_leaves(g->core, nodes);
        else
            is_marked = mark_known(g, args[1], nodes) == 0;
    }
    if (nodes && is_marked && fe_find_constants(g->core, j.facts, nodes, &err) < 0)
        raise_core(g->state, &err);
    else if (nodes && is_marked)
        result = constants_found(g->core, nodes);
    PyMem_Free(nodes);
    judged_clear(&j);
    return result;
}
