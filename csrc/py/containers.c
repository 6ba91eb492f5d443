/* containers.c - copies of plain containers, for meta that must not be shared between a node and its copy.
 *
 * Dicts, lists, sets and tuples are copied all the way down; what they hold otherwise (tensors, modules, strings) stays
 * the same object. One memo serves a whole graph, so what nodes share in the source they share in the copy.
 */
#include "module.h"

/* An empty container of the same class, which may be a subclass with settings of its own (defaultdict). */
static PyObject *emptied_copy(PyObject *o)
{
    PyObject *copy = PyObject_CallMethod(o, "copy", NULL), *result;

    if (!copy)
        return NULL;
    if (Py_TYPE(copy) != Py_TYPE(o) || !(result = PyObject_CallMethod(copy, "clear", NULL))) {
        Py_DECREF(copy);
        return PyErr_Occurred() ? NULL : Py_NewRef(o);
    }
    Py_DECREF(result);
    return copy;
}

static int remember(PyObject *memo, PyObject *o, PyObject *copy)
{
    PyObject *key = PyLong_FromVoidPtr(o), *pair = key ? PyTuple_Pack(2, o, copy) : NULL;
    int result = pair ? PyDict_SetItem(memo, key, pair) : -1;

    Py_XDECREF(pair);
    Py_XDECREF(key);
    return result;
}

/* The copy made before (new reference), or NULL; an exception tells failure. */
static PyObject *recall(PyObject *memo, PyObject *o)
{
    PyObject *key = PyLong_FromVoidPtr(o), *pair = key ? PyDict_GetItemWithError(memo, key) : NULL;

    Py_XDECREF(key);
    return pair ? Py_NewRef(PyTuple_GET_ITEM(pair, 1)) : NULL;
}

static int fill_dict(PyObject *o, PyObject *copy, PyObject *memo)
{
    PyObject *items = PyMapping_Items(o);
    int result = items ? 0 : -1;

    for (Py_ssize_t i = 0; result == 0 && i < PyList_GET_SIZE(items); i++) {
        PyObject *pair = PyList_GET_ITEM(items, i), *value;
        if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) {
            PyErr_SetString(PyExc_TypeError, "items() of a mapping in meta gives something else than pairs");
            result = -1;
        } else if (!(value = copy_containers(PyTuple_GET_ITEM(pair, 1), memo))) {
            result = -1;
        } else {
            result = PyObject_SetItem(copy, PyTuple_GET_ITEM(pair, 0), value);
            Py_DECREF(value);
        }
    }
    Py_XDECREF(items);
    return result;
}

static PyObject *copy_dict(PyObject *o, PyObject *memo)
{
    PyObject *copy = PyDict_CheckExact(o) ? PyDict_New() : emptied_copy(o);

    if (!copy || copy == o) /* a class that can't be copied is kept */
        return copy;
    if (remember(memo, o, copy) < 0 || fill_dict(o, copy, memo) < 0)
        Py_CLEAR(copy);
    return copy;
}

static PyObject *copy_list(PyObject *o, PyObject *memo)
{
    PyObject *copy = PyList_New(0), *value;
    int result = copy ? remember(memo, o, copy) : -1;

    for (Py_ssize_t i = 0; result == 0 && i < PyList_GET_SIZE(o); i++) {
        PyObject *item = Py_NewRef(PyList_GET_ITEM(o, i));
        value = copy_containers(item, memo);
        Py_DECREF(item);
        result = value ? PyList_Append(copy, value) : -1;
        Py_XDECREF(value);
    }
    if (result < 0)
        Py_CLEAR(copy);
    return copy;
}

/* A tuple is copied only when something in it is. */
static PyObject *copy_tuple(PyObject *o, PyObject *memo)
{
    PyObject *copy = PyTuple_New(PyTuple_GET_SIZE(o));
    bool same = true;

    for (Py_ssize_t i = 0; copy && i < PyTuple_GET_SIZE(o); i++) {
        PyObject *value = copy_containers(PyTuple_GET_ITEM(o, i), memo);
        if (!value) {
            Py_CLEAR(copy);
            break;
        }
        same = same && value == PyTuple_GET_ITEM(o, i);
        PyTuple_SET_ITEM(copy, i, value);
    }
    if (copy && same)
        Py_SETREF(copy, Py_NewRef(o));
    return copy;
}

PyObject *copy_containers(PyObject *o, PyObject *memo)
{
    PyObject *copy = NULL;

    if (!PyDict_Check(o) && !PyList_CheckExact(o) && !PySet_Check(o) && !PyTuple_CheckExact(o))
        return Py_NewRef(o);
    if ((copy = recall(memo, o)) || PyErr_Occurred())
        return copy;
    if (Py_EnterRecursiveCall(" while copying meta"))
        return NULL;
    if (PyDict_Check(o))
        copy = copy_dict(o, memo);
    else if (PyList_CheckExact(o))
        copy = copy_list(o, memo);
    else if (PySet_CheckExact(o))
        copy = PySet_New(o);
    else
        copy = PyTuple_CheckExact(o) ? copy_tuple(o, memo) : Py_NewRef(o);
    Py_LeaveRecursiveCall();
    if (copy && copy != o && remember(memo, o, copy) < 0)
        Py_CLEAR(copy);
    return copy;
}
