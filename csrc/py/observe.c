/* observe.c - what a graph's observer is told, and meta handed over from one node to another.
 *
 * While a graph has an observer (a Python object, see fastexport._provenance) it is told of each node that was made and of
 * each that is about to take another's place. It writes notes into meta; whoever tells it looks again afterwards whether the
 * graph is as it was, since Python code ran. A graph without one pays a look at a pointer.
 */
#include "module.h"

int graph_tell_created(GraphObject *g, uint32_t id)
{
    PyObject *observer = Py_XNewRef(g->observer), *node = observer ? graph_node(g, id) : NULL, *done = NULL;

    if (node)
        done = PyObject_CallMethod(observer, "created", "O", node);
    int result = !observer || done ? 0 : -1;
    Py_XDECREF(done);
    Py_XDECREF(node);
    Py_XDECREF(observer);
    return result;
}

int graph_tell_replaced(GraphObject *g, PyObject *old, PyObject *new)
{
    PyObject *observer = Py_XNewRef(g->observer), *done;

    if (!observer)
        return 0;
    done = PyObject_CallMethod(observer, "replaced", "OO", old, new);
    Py_DECREF(observer);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

int propagation_from_python(PyObject *o, meta_propagation *out)
{
    *out = PROPAGATE_NONE;
    if (!o)
        return 0;
    if (!PyUnicode_Check(o)) {
        int strict = PyObject_IsTrue(o);
        *out = strict > 0 ? PROPAGATE_TO_EMPTY : PROPAGATE_NONE;
        return strict < 0 ? -1 : 0;
    }
    if (PyUnicode_CompareWithASCIIString(o, "missing") == 0 || PyUnicode_CompareWithASCIIString(o, "all") == 0)
        *out = PROPAGATE_BY_POLICY;
    else if (PyUnicode_CompareWithASCIIString(o, "none") != 0) {
        PyErr_Format(PyExc_ValueError, "propagate_meta must be a bool, 'none', 'missing' or 'all', not %R", o);
        return -1;
    }
    return 0;
}

int propagate_meta(PyObject *old, PyObject *new, PyObject *policy)
{
    PyObject *module = PyImport_ImportModule("fastexport._provenance"), *done = NULL;

    if (module)
        done = PyObject_CallMethod(module, "propagate_meta", "OOO", old, new, policy);
    Py_XDECREF(module);
    Py_XDECREF(done);
    return done ? 0 : -1;
}
