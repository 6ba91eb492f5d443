/* args.c - sorting the arguments of a fast call, with the messages Python itself would give; handing on a call. */
#include "module.h"

static int parameter_index(const parameters *p, PyObject *keyword)
{
    for (int i = 0; p->names[i]; i++) {
        if (PyUnicode_CompareWithASCIIString(keyword, p->names[i]) == 0)
            return i;
    }
    return -1;
}

int parse_call(const parameters *p, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, PyObject **out)
{
    Py_ssize_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    int count = 0;

    while (p->names[count])
        out[count++] = NULL;
    if (nargs > p->positional) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most %d positional argument%s (%zd given)", p->function,
                     p->positional, p->positional == 1 ? "" : "s", nargs);
        return -1;
    }
    for (Py_ssize_t i = 0; i < nargs; i++)
        out[i] = args[i];
    for (Py_ssize_t i = 0; i < keywords; i++) {
        PyObject *keyword = PyTuple_GET_ITEM(kwnames, i);
        int at = parameter_index(p, keyword);
        if (at < 0 || out[at]) {
            PyErr_Format(PyExc_TypeError,
                         at < 0 ? "%s() got an unexpected keyword argument '%U'"
                                : "%s() got multiple values for argument '%U'",
                         p->function, keyword);
            return -1;
        }
        out[at] = args[nargs + i];
    }
    for (int i = 0; i < p->required; i++) {
        if (!out[i]) {
            PyErr_Format(PyExc_TypeError, "%s() missing required argument '%s'", p->function, p->names[i]);
            return -1;
        }
    }
    return 0;
}

PyObject *call_python_in(const char *where, PyObject *self, const char *name, PyObject *args, PyObject *kwargs)
{
    PyObject *module = PyImport_ImportModule(where);
    PyObject *function = module ? PyObject_GetAttrString(module, name) : NULL;
    PyObject *head = function ? PyTuple_Pack(1, self) : NULL;
    PyObject *all = head ? PySequence_Concat(head, args) : NULL;
    PyObject *result = all ? PyObject_Call(function, all, kwargs) : NULL;

    Py_XDECREF(module);
    Py_XDECREF(function);
    Py_XDECREF(head);
    Py_XDECREF(all);
    return result;
}
