/* fx_match.c - what the search for a pattern asks about a live torch.fx graph. It runs no Python code. */
#include "fx.h"

/* Whether all nodes in a dict of users stand behind a node, or all in one of operands before it. */
static bool all_beside(const fx_snapshot *s, PyObject *nodes, uint32_t index, bool behind)
{
    PyObject *other, *value;
    Py_ssize_t at = 0;

    if (!nodes || !PyDict_Check(nodes))
        return false;
    while (PyDict_Next(nodes, &at, &other, &value)) {
        uint32_t place = fx_snapshot_find(s, other);
        if (place == FE_NONE_ID || (behind ? place <= index : place >= index))
            return false;
    }
    return true;
}

const char fx_is_sorted_doc[] =
    "fx_is_sorted(fx_graph, /)\n--\n\n"
    "Whether all users of each node of a live torch.fx.Graph are in the graph and stand behind it, and its operands\n"
    "before it. Raises ValueError when the list of nodes is damaged.";

PyObject *fx_is_sorted(PyObject *m, PyObject *const *args, Py_ssize_t nargs)
{
    module_state *st = state_of(m);
    fx_snapshot s;
    int taken;
    bool sorted = true;

    if (fx_arguments("fx_is_sorted", nargs, 1) < 0)
        return NULL;
    taken = fx_snapshot_take(&s, st, args[0]);
    for (uint32_t i = 0; taken == 0 && sorted && i < s.count; i++)
        sorted = all_beside(&s, fx_get(s.nodes[i], st->fx.users), i, true) &&
                 all_beside(&s, fx_get(s.nodes[i], st->fx.input_nodes), i, false);
    fx_snapshot_clear(&s);
    return taken < 0 ? NULL : PyBool_FromLong(sorted);
}
