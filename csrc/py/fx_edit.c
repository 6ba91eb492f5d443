/* fx_edit.c - what the bulk edits of live torch.fx graphs share: slots, links, users. */
#include "fx_edit.h"

PyObject *fx_dict_slot(PyObject *node, Py_ssize_t offset, const char *what)
{
    PyObject *dict = fx_get(node, offset);

    if (dict && PyDict_Check(dict))
        return dict;
    PyErr_Format(PyExc_ValueError, "%s of a torch.fx.Node is no dict", what);
    return NULL;
}

void fx_discard(PyObject *dict, PyObject *node)
{
    if (PyDict_DelItem(dict, node) < 0)
        PyErr_Clear();
}

void fx_unlink(const fx_layout *l, PyObject *node)
{
    PyObject *prev = fx_get(node, l->prev), *next = fx_get(node, l->next);
    PyObject *old_next, *old_prev;

    if (prev == node && next == node)
        return;
    old_next = fx_get(prev, l->next);
    *fx_slot(prev, l->next) = Py_NewRef(next);
    old_prev = fx_get(next, l->prev);
    *fx_slot(next, l->prev) = Py_NewRef(prev);
    Py_XDECREF(old_next);
    Py_XDECREF(old_prev);
}

PyObject *fx_name_of(const fx_layout *l, PyObject *node)
{
    PyObject *name = fx_get(node, l->name);

    return name ? name : Py_None;
}

int fx_join_operands(const fx_layout *l, PyObject *user, PyObject *old, PyObject *new)
{
    PyObject *operand, *value, *users, *type, *error, *traceback;
    Py_ssize_t at = 0;

    while (PyDict_Next(new, &at, &operand, &value)) {
        int known = old ? PyDict_Contains(old, operand) : 0;
        if (known > 0)
            continue;
        if (known == 0 && (users = fx_dict_slot(operand, l->users, "users")) &&
            PyDict_SetItem(users, user, Py_None) == 0)
            continue;
        PyObject *failed = operand;
        PyErr_Fetch(&type, &error, &traceback);
        for (at = 0; PyDict_Next(new, &at, &operand, &value) && operand != failed;) {
            users = fx_get(operand, l->users);
            if (!(old && PyDict_Contains(old, operand)) && users && PyDict_Check(users))
                fx_discard(users, user);
        }
        PyErr_Restore(type, error, traceback);
        return -1;
    }
    return 0;
}
