/* meta_column.c - what the nodes of a graph have in their meta under one key, all at once. */
#include "module.h"

const char meta_column_doc[] =
    "_meta_column($self, keys, default, /)\n--\n\n"
    "For each node, in order, what its meta has under the first of some keys that is there, or the default; as a list.";

/* The numbers of keys, and room for them: for the caller to free; NULL with an exception. An unknown key has FE_NONE_ID. */
static uint32_t *key_numbers(GraphObject *g, PyObject *keys)
{
    Py_ssize_t count = PyTuple_GET_SIZE(keys);
    uint32_t *numbers = PyMem_New(uint32_t, (size_t)count + 1);

    if (!numbers)
        return (uint32_t *)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) {
        if (graph_meta_key(g, PyTuple_GET_ITEM(keys, i), false, &numbers[i]) < 0) {
            PyMem_Free(numbers);
            return NULL;
        }
    }
    return numbers;
}

static PyObject *first_of(GraphObject *g, uint32_t id, const uint32_t *numbers, Py_ssize_t count)
{
    const fe_meta *m = g->core->details[id].meta;

    for (Py_ssize_t i = 0; m && i < count; i++) {
        uint32_t object = numbers[i] == FE_NONE_ID ? FE_NONE_ID : fe_meta_get(m, numbers[i]);
        if (object != FE_NONE_ID)
            return graph_object_at(g, object);
    }
    return NULL;
}

PyObject *Graph_meta_column(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    GraphObject *g = (GraphObject *)self;
    PyObject *list = NULL;
    Py_ssize_t at = 0;

    if (nargs != 2 || !PyTuple_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "_meta_column() takes a tuple of keys and a default");
    uint32_t *numbers = graph_load_all_meta(g) < 0 ? NULL : key_numbers(g, args[0]);
    if (numbers && graph_readable(g) == 0) {
        graph_pin(g); /* making the list may start a collection */
        if ((list = PyList_New((Py_ssize_t)g->core->live))) {
            for (uint32_t id = g->core->nodes[FE_ROOT].next; id != FE_ROOT; id = g->core->nodes[id].next) {
                PyObject *value = first_of(g, id, numbers, PyTuple_GET_SIZE(args[0]));
                PyList_SET_ITEM(list, at++, Py_NewRef(value ? value : args[1]));
            }
        }
        graph_unpin(g);
    }
    PyMem_Free(numbers);
    return list;
}
