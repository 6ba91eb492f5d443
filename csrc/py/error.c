/* error.c - the one place where core errors become Python exceptions. */
#include "module.h"

PyObject *raise_core(const module_state *st, const fe_error *err)
{
    switch (err->code) {
    case FE_NO_MEMORY:
        return PyErr_NoMemory();
    case FE_TOO_LARGE:
        PyErr_SetString(PyExc_OverflowError, err->message);
        return NULL;
    case FE_BAD_VALUE:
        PyErr_SetString(PyExc_ValueError, err->message);
        return NULL;
    default:
        PyErr_SetString(st->error, err->message);
        return NULL;
    }
}
