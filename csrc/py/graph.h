/* graph.h - what the files that make up the type Graph share. */
#ifndef FE_GRAPH_H
#define FE_GRAPH_H

#include "module.h"

/* A node to be made, as Python objects; all borrowed, NULL where not given. */
typedef struct {
    fe_op op;
    PyObject *target, *args, *kwargs, *name, *type;
} node_request;

static inline PyObject *none_as_null(PyObject *o)
{
    return o == Py_None ? NULL : o;
}

/* ---- graph_create.c ---- */

/* A Node that is this graph's and not erased (the root counts); -1 with an exception otherwise. */
int graph_own_node(GraphObject *g, PyObject *o, const char *what, uint32_t *out);
int op_from_python(GraphObject *g, PyObject *name, fe_op *out);
int check_target(fe_op op, PyObject *target);
/* Make a node from parts whose arguments are converted already; they are used up, also on failure. */
int create_from_parts(GraphObject *g, const node_request *r, fe_node_parts *parts, uint32_t *out);
/* Erase a node that was just made, because what was to follow has failed; unless it is in use by now. Keeps the exception. */
void take_back_node(GraphObject *g, uint32_t id);

/* ---- methods ---- */

PyObject *Graph_node(PyObject *self, PyObject *name);
PyObject *Graph_create_node(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *Graph_call_function(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *Graph_call_method(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *Graph_call_module(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *Graph_get_attr(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *Graph_placeholder(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *Graph_output(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *Graph_erase_node(PyObject *self, PyObject *node);
PyObject *Graph_inserting_before(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *Graph_inserting_after(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *Graph_node_copy(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *Graph_graph_copy(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *Graph_richcompare(PyObject *self, PyObject *other, int op);

/* Mark the objects that targets and arguments of the nodes name; `named` has a place for each object of the graph. */
void graph_mark_named(const GraphObject *g, bool *named);
/* What an object is known by among its equals: its type, and itself or, of a set, tuple or bytearray, the items. */
PyObject *graph_object_key(PyObject *object);

/* The number of an object's class in a dict, under a key for its equals. What can't be hashed equals itself alone, as
 * does what a key could not be made of: then key is NULL, and a TypeError is taken. */
int graph_object_class(PyObject *object, PyObject *key, PyObject *classes, uint32_t *out);
PyObject *Graph_copy(PyObject *self, PyObject *separate);
PyObject *Graph_signature(PyObject *self, PyObject *ignored);
PyObject *Graph_set_signature(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *Graph_called(PyObject *self, PyObject *ignored);
PyObject *Graph_erase_inputs(PyObject *self, PyObject *gone);
PyObject *Graph_file_meta(PyObject *self, PyObject *ignored);
Py_hash_t Graph_hash(PyObject *self);

extern const char create_node_doc[], call_function_doc[], call_method_doc[], call_module_doc[], get_attr_doc[],
    placeholder_doc[], output_doc[], erase_node_doc[], inserting_before_doc[], inserting_after_doc[], node_copy_doc[],
    graph_copy_doc[], copy_doc[], signature_doc[], set_signature_doc[], called_doc[], erase_inputs_doc[],
    file_meta_doc[];

#endif
