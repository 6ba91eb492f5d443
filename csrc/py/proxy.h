/* proxy.h - the types that record a program while it runs: Proxy, Attribute and Recorder.
 *
 * A Proxy stands for the value of a node. What is done to it becomes a node of the same graph, and the result is a Proxy
 * of that. Which graph, and how, is its tracer's business: a Recorder (the C part of fastexport's tracers) whose methods
 * nobody overrides records without running Python code; any other is asked through create_proxy, as torch.fx does.
 *
 *      x + 1, x[0], -x ...      proxy.c    ---+
 *      torch.relu(x)            proxy.c    ---+--> proxy_record (proxy_record.c) --> a node, and its Proxy
 *      x.relu()                 proxy.c    ---+                    \-> tracer.create_proxy
 */
#ifndef FE_PROXY_H
#define FE_PROXY_H

#include "graph.h"

typedef struct {
    PyObject_HEAD
    PyObject *tracer, *node;
} ProxyObject;

/* An attribute of a proxy's value; its node is made when it is first asked for, since most are called as methods. */
typedef struct {
    ProxyObject proxy;
    PyObject *root, *attr;
} AttributeObject;

/* Whether a Recorder may record by itself. */
typedef enum { RECORDS_UNKNOWN, RECORDS_NOT, RECORDS_DIRECTLY } recorder_mode;

typedef struct {
    PyObject_HEAD
    PyObject *graph, *scope, *module_stack, *scopes; /* attributes of the tracer; NULL while it has none */
    PyObject *last_scope;                            /* the last value put into scopes: most nodes share it */
    PyObject *functions; /* dict: function that torch handed over -> what classify says of it; or NULL */
    recorder_mode mode;
} RecorderObject;

/* What is done to a proxy. */
typedef struct {
    fe_op op;
    PyObject *target, *name; /* name: NULL for the one the target gives by itself */
    bool own_name;           /* it is that one, too */
    PyObject *const *args;
    Py_ssize_t nargs;
    PyObject *kwargs; /* dict, or NULL */
    PyObject *type;   /* annotation, or NULL */
} operation;

static inline bool is_proxy(const module_state *st, PyObject *o)
{
    return PyObject_TypeCheck(o, st->proxy_type);
}

/* ---- proxy.c ---- */

/* A new Proxy of a node; with the class that use_proxies named. */
PyObject *proxy_new(const module_state *st, PyObject *tracer, PyObject *node);
/* The node of a proxy: a new reference. Runs Python code when a subclass has a say in it. */
PyObject *proxy_node(const module_state *st, PyObject *proxy);
/* A proxy among arguments, looked for in tuples, lists, dicts and slices; NULL without an exception: there is none. */
PyObject *find_proxy(const module_state *st, PyObject *o);

/* ---- proxy_record.c ---- */

/* Do an operation by a tracer: a new Proxy, or what create_proxy of the tracer gives. */
PyObject *proxy_record(module_state *st, PyObject *tracer, const operation *o);

#endif
