/* node_arguments.c - the arguments of a Node: read, assigned, and changed one by one.
 *
 * They are converted before anything is changed, since that may run code of users; uses follow in the core.
 */
#include "node.h"

PyObject *Node_get_args(PyObject *self, void *Py_UNUSED(closure))
{
    GraphObject *g = node_of(self)->graph;
    PyObject *args;

    if (node_readable(self) < 0)
        return NULL;
    fe_node_forget(g->core, node_of(self)->id);
    graph_pin(g);
    args = args_to_python(g, node_detail(self)->args);
    graph_unpin(g);
    return args;
}

PyObject *Node_get_kwargs(PyObject *self, void *Py_UNUSED(closure))
{
    GraphObject *g = node_of(self)->graph;
    PyObject *kwargs;

    if (node_readable(self) < 0)
        return NULL;
    fe_node_forget(g->core, node_of(self)->id);
    graph_pin(g);
    kwargs = kwargs_to_python(g, node_detail(self)->kwargs);
    graph_unpin(g);
    return kwargs;
}

/* Put converted arguments into the core; `args` or `kwargs` not given stay as they are. Uses up what it is given. */
static int put_arguments(PyObject *self, fe_seq *args, bool has_args, fe_seq *kwargs, bool has_kwargs)
{
    GraphObject *g = node_of(self)->graph;
    fe_error err;
    int result = node_editable(self);

    if (result == 0) {
        result = fe_node_set_arguments(g->core, node_of(self)->id, has_args ? args : node_detail(self)->args,
                                       has_kwargs ? kwargs : node_detail(self)->kwargs, &err);
        if (result < 0)
            node_raise(self, &err);
    }
    if (result < 0) {
        fe_seq_free(g->core, args);
        fe_seq_free(g->core, kwargs);
    }
    graph_sweep(g);
    return result;
}

static int assign_args(PyObject *self, PyObject *tuple)
{
    fe_seq *args;

    if (seq_from_args(node_of(self)->graph, tuple, &args) < 0)
        return -1;
    return put_arguments(self, args, true, NULL, false);
}

int Node_set_args(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    if (node_editable(self) < 0)
        return -1;
    if (!value || !(PyTuple_Check(value) || PyList_Check(value))) {
        PyErr_Format(PyExc_TypeError, "the args of node '%S' must be a tuple, not %.200s", self,
                     value ? Py_TYPE(value)->tp_name : "nothing");
        return -1;
    }
    PyObject *tuple = PySequence_Tuple(value);
    int result = tuple ? assign_args(self, tuple) : -1;
    Py_XDECREF(tuple);
    return result;
}

int Node_set_kwargs(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    fe_seq *kwargs;

    if (node_editable(self) < 0)
        return -1;
    if (!value || !PyDict_Check(value)) {
        PyErr_Format(PyExc_TypeError, "the kwargs of node '%S' must be a dict, not %.200s", self,
                     value ? Py_TYPE(value)->tp_name : "nothing");
        return -1;
    }
    if (seq_from_kwargs(node_of(self)->graph, value, &kwargs) < 0)
        return -1;
    return put_arguments(self, NULL, false, kwargs, true);
}

const char update_arg_doc[] = "update_arg($self, idx, arg)\n--\n\n"
                              "Replace args[idx]. Raises IndexError when there is no such argument.";

/* A copy of the node's arguments with one of them put in place; on failure the value is still the caller's. */
static fe_seq *with_argument(PyObject *self, Py_ssize_t index, fe_value value)
{
    fe_graph *c = node_of(self)->graph->core;
    Py_ssize_t len = node_detail(self)->args ? (Py_ssize_t)node_detail(self)->args->len : 0;
    fe_seq *args;
    fe_error err;

    if (index < -len || index >= len) {
        PyErr_Format(PyExc_IndexError, "update_arg() index %zd is out of range: node '%S' has %zd arguments", index,
                     self, len);
        return NULL;
    }
    if (fe_seq_copy(c, &(fe_value_map){0}, node_detail(self)->args, &args, &err) < 0) {
        node_raise(self, &err);
        return NULL;
    }
    fe_value *at = &args->items[index < 0 ? index + len : index];
    fe_value_free(c, *at);
    *at = value;
    return args;
}

PyObject *Node_update_arg(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"idx", "arg", NULL};
    static const parameters p = {"update_arg", names, 2, 2};
    GraphObject *g = node_of(self)->graph;
    PyObject *v[2];
    fe_value value;

    if (parse_call(&p, args, nargs, kwnames, v) < 0 || node_editable(self) < 0)
        return NULL;
    Py_ssize_t index = PyNumber_AsSsize_t(v[0], PyExc_IndexError);
    if ((index == -1 && PyErr_Occurred()) || value_from_python(g, v[1], &value) < 0)
        return NULL;
    fe_seq *changed = node_editable(self) < 0 ? NULL : with_argument(self, index, value);
    if (!changed) {
        fe_value_free(g->core, value);
        graph_sweep(g);
        return NULL;
    }
    return put_arguments(self, changed, true, NULL, false) < 0 ? NULL : Py_NewRef(Py_None);
}

const char insert_arg_doc[] = "insert_arg($self, idx, arg)\n--\n\n"
                              "Put arg before args[idx]. Raises IndexError when idx is not in 0 ... len(args).";

PyObject *Node_insert_arg(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"idx", "arg", NULL};
    static const parameters p = {"insert_arg", names, 2, 2};
    GraphObject *g = node_of(self)->graph;
    PyObject *v[2];
    fe_value value;
    fe_error err;

    if (parse_call(&p, args, nargs, kwnames, v) < 0 || node_editable(self) < 0)
        return NULL;
    Py_ssize_t index = PyNumber_AsSsize_t(v[0], PyExc_IndexError);
    if ((index == -1 && PyErr_Occurred()) || value_from_python(g, v[1], &value) < 0)
        return NULL;
    Py_ssize_t len = node_detail(self)->args ? (Py_ssize_t)node_detail(self)->args->len : 0;
    int result = node_editable(self);
    if (result == 0 && (index < 0 || index > len)) {
        PyErr_Format(PyExc_IndexError, "insert_arg() index must be between 0 and %zd for node '%S', not %zd", len, self,
                     index);
        result = -1;
    }
    if (result == 0 && (result = fe_node_insert_argument(g->core, node_of(self)->id, (uint32_t)index, value, &err)) < 0)
        node_raise(self, &err);
    if (result < 0)
        fe_value_free(g->core, value);
    graph_sweep(g);
    return result < 0 ? NULL : Py_NewRef(Py_None);
}

const char update_kwarg_doc[] = "update_kwarg($self, key, arg)\n--\n\n"
                                "Set kwargs[key].";

PyObject *Node_update_kwarg(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"key", "arg", NULL};
    static const parameters p = {"update_kwarg", names, 2, 2};
    PyObject *v[2], *dict;
    int result = -1;

    if (parse_call(&p, args, nargs, kwnames, v) < 0 || node_editable(self) < 0 || !(dict = PyDict_New()))
        return NULL;
    PyObject *old = Node_get_kwargs(self, NULL);
    if (old && PyDict_Update(dict, old) == 0 && PyDict_SetItem(dict, v[0], v[1]) == 0)
        result = Node_set_kwargs(self, dict, NULL);
    Py_XDECREF(old);
    Py_DECREF(dict);
    return result < 0 ? NULL : Py_NewRef(Py_None);
}
