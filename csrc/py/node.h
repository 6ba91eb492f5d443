/* node.h - what the files of the type Node share; its parts stand in node.c, node_arguments.c and node_uses.c. */
#ifndef FE_NODE_H
#define FE_NODE_H

#include "module.h"

static inline NodeObject *node_of(PyObject *self)
{
    return (NodeObject *)self;
}

/* The record of a node; good until the next call that can create something. */
static inline const fe_node *node_record(PyObject *self)
{
    return &node_of(self)->graph->core->nodes[node_of(self)->id];
}

static inline const fe_detail *node_detail(PyObject *self)
{
    return &node_of(self)->graph->core->details[node_of(self)->id];
}

static inline int node_readable(PyObject *self)
{
    return graph_readable(node_of(self)->graph);
}

/* ---- node.c ---- */

int node_editable(PyObject *self);
/* Another node of the same graph that an edit takes; -1 with an exception. */
int node_sibling(PyObject *self, PyObject *o, const char *what, uint32_t *out);
int node_raise(PyObject *self, const fe_error *err); /* -1 */

/* ---- node_arguments.c ---- */

PyObject *Node_get_args(PyObject *self, void *closure);
int Node_set_args(PyObject *self, PyObject *value, void *closure);
PyObject *Node_get_kwargs(PyObject *self, void *closure);
int Node_set_kwargs(PyObject *self, PyObject *value, void *closure);
PyObject *Node_update_arg(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *Node_insert_arg(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *Node_update_kwarg(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
extern const char update_arg_doc[], insert_arg_doc[], update_kwarg_doc[];

/* ---- node_uses.c ---- */

PyObject *Node_replace_input_with(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *Node_replace_all_uses_with(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *Node_order_users(PyObject *self, PyObject *users);
extern const char replace_input_with_doc[], replace_all_uses_with_doc[], order_users_doc[];

#endif
