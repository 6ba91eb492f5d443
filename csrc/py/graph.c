/* graph.c - the type fastexport._core.Graph: making, copying, finding and erasing nodes.
 *
 * Every method that changes the graph first converts what it was given, which may run Python code; then it looks again
 * whether the graph may be changed; then it changes the core in one step.
 */
#include "module.h"

static PyObject *raise(GraphObject *g, const fe_error *err)
{
    return raise_core(g->state, err);
}

/* ---- life ---------------------------------------------------------------------------------------------------------- */

static void *raw_resize(void *ctx, void *block, size_t size)
{
    (void)ctx;
    if (size == 0) {
        PyMem_RawFree(block);
        return NULL;
    }
    return PyMem_RawRealloc(block, size);
}

const fe_allocator fe_python_allocator = {raw_resize, NULL};

static PyObject *Graph_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *module = PyType_GetModuleByDef(type, &fe_module_def);
    GraphObject *g;

    (void)args;
    (void)kwargs;
    if (!module || !(g = (GraphObject *)type->tp_alloc(type, 0)))
        return NULL;
    g->state = state_of(module);
    g->meta_index = PyDict_New();
    g->meta_keys = PyList_New(0);
    g->core = fe_graph_new(&fe_python_allocator, &g->state->reserved);
    if (!g->core)
        PyErr_NoMemory();
    if (!g->meta_index || !g->meta_keys || !g->core)
        Py_CLEAR(g);
    return (PyObject *)g;
}

static int Graph_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"owning_module", "tracer_cls", "tracer_extras", NULL};
    PyObject *module = Py_None, *tracer = Py_None, *extras = Py_None;
    GraphObject *g = (GraphObject *)self;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OOO:Graph", names, &module, &tracer, &extras))
        return -1;
    Py_XSETREF(g->owning_module, module == Py_None ? NULL : Py_NewRef(module));
    if (tracer == Py_None && extras == Py_None)
        return 0;
    PyObject *dict = Py_BuildValue("{s:O,s:O}", "_tracer_cls", tracer, "_tracer_extras", extras);
    if (!dict)
        return -1;
    Py_XSETREF(g->extras, dict);
    return 0;
}

static int Graph_traverse(PyObject *self, visitproc visit, void *arg)
{
    GraphObject *g = (GraphObject *)self;

    Py_VISIT(Py_TYPE(self));
    for (uint32_t i = 0; i < g->object_capacity; i++)
        Py_VISIT(g->objects[i]);
    Py_VISIT(g->meta_index);
    Py_VISIT(g->meta_keys);
    Py_VISIT(g->owning_module);
    Py_VISIT(g->subgraphs);
    Py_VISIT(g->extras);
    return 0;
}

/* The core stays: Nodes that outlive this call may still look at it. Where they find no object they show None. */
static int Graph_clear(PyObject *self)
{
    GraphObject *g = (GraphObject *)self;
    PyObject **objects = g->objects;
    uint32_t count = g->object_capacity;

    g->objects = NULL;
    g->object_capacity = 0;
    PyMem_RawFree(g->object_slots);
    g->object_slots = NULL;
    g->object_mask = g->object_used = 0;
    for (uint32_t i = 0; i < count; i++)
        Py_XDECREF(objects[i]);
    PyMem_RawFree(objects);
    Py_CLEAR(g->owning_module);
    Py_CLEAR(g->subgraphs);
    Py_CLEAR(g->extras);
    return 0;
}

static void Graph_dealloc(PyObject *self)
{
    GraphObject *g = (GraphObject *)self;
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    if (g->weakrefs)
        PyObject_ClearWeakRefs(self);
    Graph_clear(self);
    Py_CLEAR(g->meta_index);
    Py_CLEAR(g->meta_keys);
    fe_graph_free(g->core);
    PyMem_RawFree(g->handles);
    type->tp_free(self);
    Py_DECREF(type);
}

/* ---- arguments of methods -------------------------------------------------------------------------------------------- */

/* A Node that is this graph's and not erased; -1 with an exception otherwise. */
static int own_node(GraphObject *g, PyObject *o, const char *what, uint32_t *out)
{
    if (Py_TYPE(o) != g->state->node_type) {
        PyErr_Format(PyExc_TypeError, "%s must be a fastexport Node, not %.200s", what, Py_TYPE(o)->tp_name);
        return -1;
    }
    NodeObject *n = (NodeObject *)o;
    if (n->graph != g) {
        PyErr_Format(PyExc_ValueError, "%s '%S' is a node of another graph", what, o);
        return -1;
    }
    if (n->id != FE_ROOT && !fe_node_is_listed(g->core, n->id)) {
        PyErr_Format(PyExc_ValueError, "%s '%S' is erased", what, o);
        return -1;
    }
    *out = n->id;
    return 0;
}

static int op_from_python(GraphObject *g, PyObject *name, fe_op *out)
{
    for (int op = 0; op < FE_OP_ROOT; op++) {
        if (name == g->state->op_names[op]) {
            *out = (fe_op)op;
            return 0;
        }
    }
    for (int op = 0; PyUnicode_Check(name) && op < FE_OP_ROOT; op++) {
        if (PyUnicode_Compare(name, g->state->op_names[op]) == 0) {
            *out = (fe_op)op;
            return 0;
        }
    }
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_ValueError,
                     "unknown opcode %R; use one of placeholder, get_attr, call_function, call_method, call_module, "
                     "output",
                     name);
    return -1;
}

static int check_target(fe_op op, PyObject *target)
{
    bool callable = op == FE_OP_CALL_FUNCTION;

    if (callable ? PyCallable_Check(target) : PyUnicode_Check(target))
        return 0;
    PyErr_Format(PyExc_ValueError, "the target of %s must be a %s, not %R of type %.200s",
                 callable ? "call_function" : "this opcode", callable ? "callable" : "str", target,
                 Py_TYPE(target)->tp_name);
    return -1;
}

static PyObject *none_as_null(PyObject *o)
{
    return o == Py_None ? NULL : o;
}

/* ---- creating nodes ---------------------------------------------------------------------------------------------------- */

/* A node to be made, as Python objects; all borrowed, NULL where not given. */
typedef struct {
    fe_op op;
    PyObject *target, *args, *kwargs, *name, *type;
} node_request;

/* The candidate of a name, split. What it points to lives in the graph's strings, in *holder, or in *block. */
static int split_candidate(GraphObject *g, PyObject *name, fe_candidate *out, PyObject **holder, char **block)
{
    Py_ssize_t len, base_len;
    const char *text;
    long long number;

    if (!PyUnicode_Check(name)) {
        PyErr_Format(PyExc_TypeError, "name must be a str, not %.200s", Py_TYPE(name)->tp_name);
        return -1;
    }
    if (PyUnicode_IS_ASCII(name)) {
        text = PyUnicode_AsUTF8AndSize(name, &len);
        if (!text || !(*block = PyMem_RawMalloc((size_t)len + 2))) {
            PyErr_NoMemory();
            return -1;
        }
        *out = fe_name_split(text, (size_t)len, *block);
        return 0;
    }
    *out = (fe_candidate){0};
    *holder = PyObject_CallOneArg(g->state->split_name, name);
    if (!*holder || !PyArg_ParseTuple(*holder, "s#Ls#", &out->base, &base_len, &number, &out->name, &len))
        return -1;
    out->base_len = (size_t)base_len;
    out->name_len = (size_t)len;
    out->number = number;
    return 0;
}

static int add_node(GraphObject *g, fe_node_parts *parts, PyObject *candidate, fe_string *stem, uint32_t *out)
{
    PyObject *holder = NULL;
    char *block = NULL, small[256];
    fe_error err;
    int result = -1;

    if (candidate) {
        if (split_candidate(g, candidate, &parts->name, &holder, &block) < 0)
            goto done;
    } else {
        if (stem->len + 2 > sizeof small && !(block = PyMem_RawMalloc(stem->len + 2))) {
            PyErr_NoMemory();
            goto done;
        }
        parts->name = fe_name_split(stem->data, stem->len, block ? block : small);
        if (parts->name.name == stem->data)
            parts->name.known = stem;
    }
    if (graph_editable(g) < 0)
        goto done;
    result = fe_node_create(g->core, parts, out, &err);
    if (result < 0)
        raise(g, &err);
done:
    PyMem_RawFree(block);
    Py_XDECREF(holder);
    return result;
}

static int convert_arguments(GraphObject *g, PyObject *args, PyObject *kwargs, fe_seq **out_args, fe_seq **out_kwargs)
{
    *out_args = *out_kwargs = NULL;
    if (args && !PyTuple_Check(args)) {
        PyErr_Format(PyExc_TypeError, "args must be a tuple, not %.200s", Py_TYPE(args)->tp_name);
        return -1;
    }
    if (kwargs && !PyDict_Check(kwargs)) {
        PyErr_Format(PyExc_TypeError, "kwargs must be a dict, not %.200s", Py_TYPE(kwargs)->tp_name);
        return -1;
    }
    if (args && seq_from_args(g, args, out_args) < 0)
        return -1;
    if (kwargs && seq_from_kwargs(g, kwargs, out_kwargs) < 0) {
        fe_seq_free(g->core, *out_args);
        return -1;
    }
    return 0;
}

/* Make a node from parts whose arguments are converted already; they are used up, also on failure. */
static int create_from_parts(GraphObject *g, const node_request *r, fe_node_parts *parts, uint32_t *out)
{
    fe_string *stem = NULL;
    int result = -1;

    parts->op = r->op;
    parts->type = FE_NONE_ID;
    if (graph_target(g, r->op, r->target, &parts->target) < 0 ||
        (!r->name && graph_target_stem(g, parts->target, r->target, &stem) < 0) ||
        (r->type && graph_object(g, r->type, &parts->type) < 0))
        goto done;
    result = add_node(g, parts, r->name, stem, out);
done:
    if (result < 0) {
        fe_seq_free(g->core, parts->args);
        fe_seq_free(g->core, parts->kwargs);
        graph_sweep(g);
    }
    return result;
}

static int create(GraphObject *g, const node_request *r, uint32_t *out)
{
    fe_node_parts parts;

    if (graph_editable(g) < 0 || check_target(r->op, r->target) < 0)
        return -1;
    if (convert_arguments(g, r->args, r->kwargs, &parts.args, &parts.kwargs) < 0)
        return -1;
    return create_from_parts(g, r, &parts, out);
}

static PyObject *created(GraphObject *g, const node_request *r)
{
    uint32_t id;

    return create(g, r, &id) < 0 ? NULL : graph_node(g, id);
}

PyDoc_STRVAR(create_node_doc,
             "create_node($self, op, target, args=None, kwargs=None, name=None, type_expr=None)\n--\n\n"
             "Make a node and put it at the insert point.\n\n"
             "op is an opcode; target a callable for call_function, else a str; args a tuple and kwargs a dict of\n"
             "arguments, which may hold nodes of this graph in any nesting of tuples, lists, dicts and slices. name is\n"
             "made unique by torch.fx's rules. Raises ValueError for an unknown opcode, a target of the wrong kind, or a\n"
             "node that is foreign or erased; TypeError for args or kwargs of the wrong type. Then the graph is as it\n"
             "was.\n\n"
             ">>> g.create_node('call_function', operator.add, (x, 1), name='sum')  # doctest: +SKIP\nsum");

static PyObject *Graph_create_node(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"op", "target", "args", "kwargs", "name", "type_expr", NULL};
    static const parameters p = {"create_node", names, 2, 6};
    GraphObject *g = (GraphObject *)self;
    PyObject *v[6];
    node_request r;

    if (parse_call(&p, args, nargs, kwnames, v) < 0 || op_from_python(g, v[0], &r.op) < 0)
        return NULL;
    r.target = v[1];
    r.args = none_as_null(v[2]);
    r.kwargs = none_as_null(v[3]);
    r.name = none_as_null(v[4]);
    r.type = none_as_null(v[5]);
    return created(g, &r);
}

/* call_function, call_method and call_module differ in the name of their first parameter. */
static PyObject *create_call(PyObject *self, const parameters *p, fe_op op, PyObject *const *args, Py_ssize_t nargs,
                             PyObject *kwnames)
{
    PyObject *v[5];

    v[4] = NULL;
    if (parse_call(p, args, nargs, kwnames, v) < 0)
        return NULL;
    node_request r = {.op = op,
                      .target = v[0],
                      .args = none_as_null(v[1]),
                      .kwargs = none_as_null(v[2]),
                      .type = none_as_null(v[3]),
                      .name = none_as_null(v[4])};
    return created((GraphObject *)self, &r);
}

PyDoc_STRVAR(call_function_doc,
             "call_function($self, the_function, args=None, kwargs=None, type_expr=None, name=None)\n--\n\n"
             "Make a call_function node: the_function applied to args and kwargs. See create_node.");

static PyObject *Graph_call_function(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"the_function", "args", "kwargs", "type_expr", "name", NULL};
    static const parameters p = {"call_function", names, 1, 5};

    return create_call(self, &p, FE_OP_CALL_FUNCTION, args, nargs, kwnames);
}

PyDoc_STRVAR(call_method_doc,
             "call_method($self, method_name, args=None, kwargs=None, type_expr=None)\n--\n\n"
             "Make a call_method node: the method of args[0] applied to the other args. See create_node.");

static PyObject *Graph_call_method(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"method_name", "args", "kwargs", "type_expr", NULL};
    static const parameters p = {"call_method", names, 1, 4};

    return create_call(self, &p, FE_OP_CALL_METHOD, args, nargs, kwnames);
}

PyDoc_STRVAR(call_module_doc,
             "call_module($self, module_name, args=None, kwargs=None, type_expr=None)\n--\n\n"
             "Make a call_module node: the submodule of that name in the owning module applied to args. See create_node.");

static PyObject *Graph_call_module(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"module_name", "args", "kwargs", "type_expr", NULL};
    static const parameters p = {"call_module", names, 1, 4};

    return create_call(self, &p, FE_OP_CALL_MODULE, args, nargs, kwnames);
}

PyDoc_STRVAR(get_attr_doc, "get_attr($self, qualified_name, type_expr=None)\n--\n\n"
                           "Make a get_attr node: the attribute of that dotted name in the owning module.");

static PyObject *Graph_get_attr(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"qualified_name", "type_expr", NULL};
    static const parameters p = {"get_attr", names, 1, 2};
    PyObject *v[2];

    if (parse_call(&p, args, nargs, kwnames, v) < 0)
        return NULL;
    node_request r = {.op = FE_OP_GET_ATTR, .target = v[0], .type = none_as_null(v[1])};
    return created((GraphObject *)self, &r);
}

/* A node whose one argument is given as such. */
static PyObject *create_with_one(GraphObject *g, node_request *r, PyObject *argument)
{
    PyObject *args = argument ? PyTuple_Pack(1, argument) : NULL, *node;

    if (argument && !args)
        return NULL;
    r->args = args;
    node = created(g, r);
    Py_XDECREF(args);
    return node;
}

PyDoc_STRVAR(placeholder_doc,
             "placeholder($self, name, type_expr=None, default_value=inspect.Signature.empty)\n--\n\n"
             "Make a placeholder node: an input of the graph. default_value, when given (None counts), is the value of\n"
             "the input when a caller leaves it out.");

static PyObject *Graph_placeholder(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"name", "type_expr", "default_value", NULL};
    static const parameters p = {"placeholder", names, 1, 3};
    GraphObject *g = (GraphObject *)self;
    PyObject *v[3];

    if (parse_call(&p, args, nargs, kwnames, v) < 0)
        return NULL;
    node_request r = {.op = FE_OP_PLACEHOLDER, .target = v[0], .type = none_as_null(v[1])};
    return create_with_one(g, &r, v[2] == g->state->no_default ? NULL : v[2]);
}

PyDoc_STRVAR(output_doc, "output($self, result, type_expr=None)\n--\n\n"
                         "Make the output node: result is what the graph returns, a node or any nesting of nodes.");

static PyObject *Graph_output(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"result", "type_expr", NULL};
    static const parameters p = {"output", names, 1, 2};
    GraphObject *g = (GraphObject *)self;
    PyObject *v[2];

    if (parse_call(&p, args, nargs, kwnames, v) < 0)
        return NULL;
    node_request r = {
        .op = FE_OP_OUTPUT, .target = g->state->op_names[FE_OP_OUTPUT], .type = none_as_null(v[1])};
    return create_with_one(g, &r, v[0]);
}

/* ---- copying nodes ------------------------------------------------------------------------------------------------------- */

/* What stands for a node of the source in the copy: told by a Python callable or a mapping. */
typedef struct {
    GraphObject *g;
    PyObject *transform, *mapping; /* one of them */
} transformer;

static bool is_any_node(const module_state *st, PyObject *o)
{
    return Py_TYPE(o) == st->node_type || (st->fx.node_type && PyObject_TypeCheck(o, st->fx.node_type));
}

static int transform_node(void *ctx, PyObject *o, fe_value *out)
{
    transformer *t = ctx;
    PyObject *value;
    int result;

    if (!is_any_node(t->g->state, o))
        return 0;
    if (t->mapping && !(value = PyObject_GetItem(t->mapping, o)) && PyErr_ExceptionMatches(PyExc_KeyError))
        PyErr_Format(PyExc_KeyError, "node '%S' is used before it was copied; is the source graph in order?", o);
    else if (!t->mapping)
        value = PyObject_CallOneArg(t->transform, o);
    if (!value)
        return -1;
    result = value_from_python(t->g, value, out);
    Py_DECREF(value);
    return result < 0 ? -1 : 1;
}

/* Read an attribute of any kind of node, transform the nodes in it. */
static int transformed_attribute(transformer *t, PyObject *node, const char *attribute, fe_value *out)
{
    PyObject *value = PyObject_GetAttrString(node, attribute);
    int result = value ? value_from_python_with(t->g, value, transform_node, t, false, out) : -1;

    Py_XDECREF(value);
    return result;
}

static int transformed_arguments(transformer *t, PyObject *node, fe_node_parts *parts)
{
    fe_value args, kwargs;

    parts->args = parts->kwargs = NULL;
    if (transformed_attribute(t, node, "args", &args) < 0)
        return -1;
    if (args.kind != FE_TUPLE && args.kind != FE_LIST) {
        fe_value_free(t->g->core, args);
        PyErr_Format(PyExc_TypeError, "the args of node '%S' are no tuple", node);
        return -1;
    }
    if (transformed_attribute(t, node, "kwargs", &kwargs) < 0) {
        fe_value_free(t->g->core, args);
        return -1;
    }
    parts->args = args.as.seq;
    if (kwargs.kind != FE_DICT) {
        fe_value_free(t->g->core, args);
        fe_value_free(t->g->core, kwargs);
        parts->args = NULL;
        PyErr_Format(PyExc_TypeError, "the kwargs of node '%S' are no dict", node);
        return -1;
    }
    parts->kwargs = kwargs.as.seq;
    return 0;
}

/* The meta of any kind of node as a dict whose containers are copies, so that a copied node shares no state. */
static PyObject *independent_meta(PyObject *node, PyObject *memo)
{
    PyObject *meta = PyObject_GetAttrString(node, "meta"), *dict = NULL, *copy = NULL;

    if (meta && (dict = PyDict_New()) && PyDict_Update(dict, meta) == 0)
        copy = copy_containers(dict, memo);
    Py_XDECREF(meta);
    Py_XDECREF(dict);
    return copy;
}

typedef struct {
    PyObject *op, *target, *name, *type, *meta;
} node_attributes;

static void attributes_clear(node_attributes *a)
{
    Py_XDECREF(a->op);
    Py_XDECREF(a->target);
    Py_XDECREF(a->name);
    Py_XDECREF(a->type);
    Py_XDECREF(a->meta);
}

static int attributes_read(PyObject *node, PyObject *memo, node_attributes *a)
{
    *a = (node_attributes){0};
    if ((a->op = PyObject_GetAttrString(node, "op")) && (a->target = PyObject_GetAttrString(node, "target")) &&
        (a->name = PyObject_GetAttrString(node, "name")) && (a->type = PyObject_GetAttrString(node, "type")) &&
        (a->meta = independent_meta(node, memo)))
        return 0;
    attributes_clear(a);
    return -1;
}

static PyObject *copy_node(GraphObject *g, PyObject *node, transformer *t, PyObject *memo)
{
    node_attributes a;
    fe_node_parts parts;
    PyObject *copy = NULL;
    node_request r;
    uint32_t id;

    if (attributes_read(node, memo, &a) < 0)
        return NULL;
    r.target = a.target;
    r.name = none_as_null(a.name);
    r.type = none_as_null(a.type);
    if (op_from_python(g, a.op, &r.op) < 0 || check_target(r.op, r.target) < 0 || graph_editable(g) < 0 ||
        transformed_arguments(t, node, &parts) < 0)
        goto done;
    if (create_from_parts(g, &r, &parts, &id) < 0 || !(copy = graph_node(g, id)))
        goto done;
    if (meta_assign((NodeObject *)copy, a.meta) < 0)
        Py_CLEAR(copy);
done:
    attributes_clear(&a);
    return copy;
}

PyDoc_STRVAR(node_copy_doc,
             "node_copy($self, node, arg_transform=None)\n--\n\n"
             "Copy a node, of any graph of fastexport or torch.fx, to the insert point.\n\n"
             "arg_transform takes each node among its arguments and gives what stands for it here; without it they must\n"
             "be nodes of this graph. Containers in meta are copied, so that the copy shares no state with the source.");

static PyObject *Graph_node_copy(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"node", "arg_transform", NULL};
    static const parameters p = {"node_copy", names, 1, 2};
    GraphObject *g = (GraphObject *)self;
    PyObject *v[2], *memo, *copy;

    if (parse_call(&p, args, nargs, kwnames, v) < 0 || !(memo = PyDict_New()))
        return NULL;
    transformer t = {.g = g, .transform = v[1] ? v[1] : g->state->identity};
    copy = copy_node(g, v[0], &t, memo);
    Py_DECREF(memo);
    return copy;
}

/* What the copied graph returned, in terms of this one. */
static PyObject *copied_output(GraphObject *g, PyObject *node, transformer *t)
{
    PyObject *args = PyObject_GetAttrString(node, "args"), *result = NULL, *first = NULL;
    fe_value v;

    if (args && (first = PySequence_GetItem(args, 0)) &&
        value_from_python_with(g, first, transform_node, t, false, &v) == 0) {
        graph_pin(g);
        result = value_to_python(g, v);
        graph_unpin(g);
        fe_value_free(g->core, v);
        graph_sweep(g);
    }
    Py_XDECREF(first);
    Py_XDECREF(args);
    return result;
}

/* 0: go on, 1: that was the output and *result is set, -1. */
static int copy_into(GraphObject *g, PyObject *node, PyObject *val_map, transformer *t, PyObject *memo,
                     PyObject **result)
{
    PyObject *op, *copy;
    int done = PySequence_Contains(val_map, node);

    if (done)
        return done < 0 ? -1 : 0;
    if (!(op = PyObject_GetAttrString(node, "op")))
        return -1;
    int is_output = PyObject_RichCompareBool(op, g->state->op_names[FE_OP_OUTPUT], Py_EQ);
    Py_DECREF(op);
    if (is_output < 0)
        return -1;
    if (is_output) {
        *result = copied_output(g, node, t);
        return *result ? 1 : -1;
    }
    copy = copy_node(g, node, t, memo);
    int stored = copy ? PyObject_SetItem(val_map, node, copy) : -1;
    Py_XDECREF(copy);
    return stored;
}

PyDoc_STRVAR(graph_copy_doc,
             "graph_copy($self, g, val_map, return_output_node=False)\n--\n\n"
             "Copy the nodes of a graph of fastexport or torch.fx to the insert point.\n\n"
             "val_map maps its nodes to nodes here: nodes already in it are not copied, copied ones are added. Returns\n"
             "what stands for the value that g returns, or None when it has no output; with return_output_node, a tuple\n"
             "of that and g's output node.");

static PyObject *Graph_graph_copy(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"g", "val_map", "return_output_node", NULL};
    static const parameters p = {"graph_copy", names, 2, 3};
    GraphObject *g = (GraphObject *)self;
    PyObject *v[3], *nodes = NULL, *iterator = NULL, *memo = NULL, *node, *result = NULL;
    int status = -1, with_node;

    if (parse_call(&p, args, nargs, kwnames, v) < 0 || (with_node = v[2] ? PyObject_IsTrue(v[2]) : 0) < 0)
        return NULL;
    transformer t = {.g = g, .mapping = v[1]};
    if (!(nodes = PyObject_GetAttrString(v[0], "nodes")) || !(iterator = PyObject_GetIter(nodes)) ||
        !(memo = PyDict_New()))
        goto done;
    status = 0;
    while (status == 0 && (node = PyIter_Next(iterator))) {
        status = copy_into(g, node, v[1], &t, memo, &result);
        if (status == 1 && with_node)
            Py_XSETREF(result, PyTuple_Pack(2, result, node));
        Py_DECREF(node);
    }
    if (status == 0 && PyErr_Occurred())
        status = -1;
done:
    Py_XDECREF(memo);
    Py_XDECREF(iterator);
    Py_XDECREF(nodes);
    return status < 0 ? NULL : status ? result : Py_NewRef(Py_None);
}

/* ---- erasing, inserting -------------------------------------------------------------------------------------------------- */

PyDoc_STRVAR(erase_node_doc,
             "erase_node($self, to_erase)\n--\n\n"
             "Take a node out of the graph.\n\n"
             "The Node stays readable; in its args and kwargs None stands for each node. Raises RuntimeError when it still\n"
             "has users or belongs to another graph; erasing it again only warns.");

static PyObject *Graph_erase_node(PyObject *self, PyObject *node)
{
    GraphObject *g = (GraphObject *)self;
    NodeObject *n = (NodeObject *)node;

    if (Py_TYPE(node) != g->state->node_type)
        return PyErr_Format(PyExc_TypeError, "erase_node() takes a fastexport Node, not %.200s", Py_TYPE(node)->tp_name);
    if (graph_editable(g) < 0)
        return NULL;
    if (n->graph != g || n->id == FE_ROOT)
        return PyErr_Format(PyExc_RuntimeError, "can't erase node '%S': it is not a node of this graph", node);
    const fe_node *c = &g->core->nodes[n->id];
    if (c->flags & FE_NODE_ERASED) {
        if (PyErr_WarnFormat(PyExc_UserWarning, 1, "erase_node(%S) on an already erased node", node) < 0)
            return NULL;
        Py_RETURN_NONE;
    }
    if (c->user_count) {
        PyObject *users = PyObject_GetAttrString(node, "users");
        if (users)
            PyErr_Format(PyExc_RuntimeError,
                         "can't erase node '%S': it still has %u users in the graph, %R; replace its uses first", node,
                         c->user_count, users);
        Py_XDECREF(users);
        return NULL;
    }
    fe_node_erase(g->core, n->id);
    graph_sweep(g);
    Py_RETURN_NONE;
}

/* An insert point remembers the one before it, which `with` restores. */
typedef struct {
    PyObject_HEAD
    GraphObject *graph;
    fe_point before;
} InsertPointObject;

static int InsertPoint_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((InsertPointObject *)self)->graph);
    return 0;
}

static void InsertPoint_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    Py_XDECREF(((InsertPointObject *)self)->graph);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyObject *InsertPoint_enter(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return Py_NewRef(self);
}

static PyObject *InsertPoint_exit(PyObject *self, PyObject *Py_UNUSED(args))
{
    InsertPointObject *p = (InsertPointObject *)self;

    p->graph->core->insert = p->before;
    Py_RETURN_NONE;
}

static PyMethodDef insert_point_methods[] = {
    {"__enter__", InsertPoint_enter, METH_NOARGS, NULL},
    {"__exit__", InsertPoint_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot insert_point_slots[] = {
    {Py_tp_doc, "An insert point that is in force; `with` restores the one before it."},
    {Py_tp_traverse, InsertPoint_traverse},
    {Py_tp_dealloc, InsertPoint_dealloc},
    {Py_tp_methods, insert_point_methods},
    {0, NULL},
};

PyType_Spec insert_point_spec = {
    .name = "fastexport._core.InsertPoint",
    .basicsize = sizeof(InsertPointObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = insert_point_slots,
};

/* None is an end of the graph: before all nodes for "before", after them for "after". */
static PyObject *set_insert_point(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, bool after)
{
    static const char *const names[] = {"n", NULL};
    const parameters p = {after ? "inserting_after" : "inserting_before", names, 0, 1};
    GraphObject *g = (GraphObject *)self;
    fe_point at = {FE_ROOT, !after};
    PyObject *n;

    if (parse_call(&p, args, nargs, kwnames, &n) < 0 || graph_editable(g) < 0)
        return NULL;
    if (n && n != Py_None) {
        if (own_node(g, n, "the node to insert at", &at.anchor) < 0)
            return NULL;
        at.after = after;
    }
    InsertPointObject *point = PyObject_GC_New(InsertPointObject, g->state->insert_point_type);
    if (!point)
        return NULL;
    point->graph = (GraphObject *)Py_NewRef(g);
    point->before = g->core->insert;
    PyObject_GC_Track(point);
    g->core->insert = at;
    return (PyObject *)point;
}

PyDoc_STRVAR(inserting_before_doc,
             "inserting_before($self, n=None)\n--\n\n"
             "Let new nodes go in just before n (None: before all), for good or for the length of a `with` block.\n\n"
             ">>> with g.inserting_before(n):  # doctest: +SKIP\n...     g.call_function(torch.relu, (x,))");

static PyObject *Graph_inserting_before(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return set_insert_point(self, args, nargs, kwnames, false);
}

PyDoc_STRVAR(inserting_after_doc,
             "inserting_after($self, n=None)\n--\n\n"
             "Let new nodes go in just after n (None: after all), for good or for the length of a `with` block.\n\n"
             "As in torch.fx the point does not move: of two nodes made in one block the second comes first.");

static PyObject *Graph_inserting_after(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return set_insert_point(self, args, nargs, kwnames, true);
}

/* ---- finding --------------------------------------------------------------------------------------------------------------- */

/* Whether nodes of target t are looked for: by op, and by equality of targets as in torch.fx (identity is quick). */
static int target_matches(GraphObject *g, uint32_t t, fe_op op, PyObject *target)
{
    if (g->core->targets[t].op != op || !g->core->targets[t].count)
        return 0;
    if (!target)
        return 1;
    PyObject *object = graph_target_object(g, t);
    int equal = object ? PyObject_RichCompareBool(object, target, Py_EQ) : -1;
    Py_XDECREF(object);
    return equal;
}

static int append_target_nodes(GraphObject *g, uint32_t t, PyObject *list)
{
    for (uint32_t id = fe_target_nodes(g->core, t); id != FE_NONE_ID; id = g->core->details[id].target_next) {
        PyObject *node = graph_node(g, id);
        int result = node ? PyList_Append(list, node) : -1;
        Py_XDECREF(node);
        if (result < 0)
            return -1;
    }
    return 0;
}

PyDoc_STRVAR(find_nodes_doc,
             "find_nodes($self, *, op, target=None, sort=True)\n--\n\n"
             "The nodes of an opcode, with that target when one is given, as a list in graph order.\n\n"
             "Takes time by the number of different targets and of nodes found, not by the size of the graph. With\n"
             "sort=False the order is that of arrival, target by target. Raises ValueError for an unknown opcode, and for\n"
             "call_function without a target.");

static PyObject *Graph_find_nodes(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"op", "target", "sort", NULL};
    static const parameters p = {"find_nodes", names, 1, 0};
    GraphObject *g = (GraphObject *)self;
    PyObject *v[3], *list;
    int sort, result = 0;
    fe_op op;

    if (graph_readable(g) < 0 || parse_call(&p, args, nargs, kwnames, v) < 0 || op_from_python(g, v[0], &op) < 0 ||
        (sort = v[2] ? PyObject_IsTrue(v[2]) : 1) < 0)
        return NULL;
    PyObject *target = none_as_null(v[1]);
    if (op == FE_OP_CALL_FUNCTION && !target)
        return PyErr_Format(PyExc_ValueError, "find_nodes(op='call_function') needs a target");
    if (!(list = PyList_New(0)))
        return NULL;
    graph_pin(g);
    for (uint32_t t = 0; result >= 0 && t < g->core->target_count; t++) {
        result = target_matches(g, t, op, target);
        if (result > 0)
            result = append_target_nodes(g, t, list);
    }
    graph_unpin(g);
    if (result >= 0 && sort)
        result = PyList_Sort(list);
    if (result < 0)
        Py_CLEAR(list);
    return list;
}

PyDoc_STRVAR(node_doc, "node($self, name)\n--\n\n"
                       "The node of that name. Raises KeyError when there is none.");

static PyObject *Graph_node(PyObject *self, PyObject *name)
{
    GraphObject *g = (GraphObject *)self;
    const fe_string *s = NULL;
    Py_ssize_t len;

    if (graph_readable(g) < 0)
        return NULL;
    if (!PyUnicode_Check(name))
        return PyErr_Format(PyExc_TypeError, "name must be a str, not %.200s", Py_TYPE(name)->tp_name);
    const char *data = PyUnicode_AsUTF8AndSize(name, &len);
    if (data)
        s = fe_string_find(&g->core->strings, data, (size_t)len);
    else
        PyErr_Clear(); /* no name holds a lone surrogate */
    uint32_t owner = s ? fe_name_owner(g->core, s) : FE_NONE_ID;
    if (owner != FE_NONE_ID)
        return graph_node(g, owner);
    return PyErr_Format(PyExc_KeyError, "no node is named %R", name);
}

PyDoc_STRVAR(output_node_doc, "output_node($self)\n--\n\n"
                              "The output node. Raises LookupError when the last node is none.");

static PyObject *Graph_output_node(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    GraphObject *g = (GraphObject *)self;

    if (graph_readable(g) < 0)
        return NULL;
    uint32_t last = g->core->nodes[FE_ROOT].prev;
    if (g->core->nodes[last].op != FE_OP_OUTPUT)
        return PyErr_Format(PyExc_LookupError, "the graph has no output: its last node is %s",
                            last == FE_ROOT ? "missing" : g->core->details[last].name->data);
    return graph_node(g, last);
}

/* ---- comparing, copying ------------------------------------------------------------------------------------------------------ */

/* Number the classes of equal objects over both graphs: equal and of one type; what can't be hashed equals itself. */
static int number_classes(GraphObject *g, PyObject *classes, uint32_t *out)
{
    for (uint32_t i = 0; i < g->object_capacity; i++) {
        if (!g->objects[i])
            continue;
        PyObject *object = Py_NewRef(g->objects[i]), *key = PyTuple_Pack(2, Py_TYPE(object), object);
        PyObject *number = key ? PyLong_FromSsize_t(PyDict_GET_SIZE(classes)) : NULL;
        PyObject *found = number ? PyDict_SetDefault(classes, key, number) : NULL;
        if (!found && number && PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear();
            Py_SETREF(key, PyLong_FromVoidPtr(object));
            found = key ? PyDict_SetDefault(classes, key, number) : NULL;
        }
        if (found)
            out[i] = (uint32_t)PyLong_AsUnsignedLong(found);
        Py_XDECREF(number);
        Py_XDECREF(key);
        Py_DECREF(object);
        if (!found)
            return -1;
    }
    return 0;
}

static int graphs_equal(GraphObject *a, GraphObject *b)
{
    PyObject *classes = PyDict_New();
    uint32_t *class_a = PyMem_RawCalloc(a->object_capacity + 1, sizeof(uint32_t));
    uint32_t *class_b = PyMem_RawCalloc(b->object_capacity + 1, sizeof(uint32_t));
    fe_error err;
    int equal = -1;

    graph_pin(a);
    graph_pin(b);
    if (!class_a || !class_b)
        PyErr_NoMemory();
    else if (classes && number_classes(a, classes, class_a) == 0 && number_classes(b, classes, class_b) == 0 &&
             (equal = fe_graph_equal(a->core, b->core, class_a, class_b, &err)) < 0)
        raise(a, &err);
    graph_unpin(b);
    graph_unpin(a);
    PyMem_RawFree(class_a);
    PyMem_RawFree(class_b);
    Py_XDECREF(classes);
    return equal;
}

static PyObject *Graph_richcompare(PyObject *self, PyObject *other, int op)
{
    GraphObject *a = (GraphObject *)self, *b = (GraphObject *)other;

    if ((op != Py_EQ && op != Py_NE) || !PyObject_TypeCheck(other, a->state->graph_type))
        Py_RETURN_NOTIMPLEMENTED;
    int equal = a == b;
    if (!equal) {
        if (graph_readable(a) < 0 || graph_readable(b) < 0)
            return NULL;
        if (a->core->live == b->core->live && (equal = graphs_equal(a, b)) < 0)
            return NULL;
    }
    return PyBool_FromLong(equal == (op == Py_EQ));
}

/* Equal graphs have equal hashes, and a graph keeps its hash when it is changed: so all have the same. */
static Py_hash_t Graph_hash(PyObject *self)
{
    return (Py_hash_t)((uintptr_t)((GraphObject *)self)->state->graph_type >> 4);
}

/* The objects of g, interned in copy; with memo, containers in meta are copied. */
static uint32_t *map_objects(GraphObject *g, GraphObject *copy)
{
    uint32_t *map = PyMem_RawCalloc(g->object_capacity + 1, sizeof *map);

    if (!map) {
        PyErr_NoMemory();
        return NULL;
    }
    for (uint32_t i = 0; i < g->object_capacity; i++) {
        if (g->objects[i] && graph_object(copy, g->objects[i], &map[i]) < 0) {
            PyMem_RawFree(map);
            return NULL;
        }
    }
    return map;
}

static int copy_core(GraphObject *g, GraphObject *copy)
{
    uint32_t *objects = map_objects(g, copy);
    uint32_t *nodes = objects ? PyMem_RawMalloc(g->core->node_count * sizeof *nodes) : NULL;
    fe_error err;
    int result = -1;

    if (objects && !nodes)
        PyErr_NoMemory();
    else if (objects && (result = fe_graph_copy(copy->core, g->core, objects, nodes, &err)) < 0)
        raise(g, &err);
    PyMem_RawFree(nodes);
    PyMem_RawFree(objects);
    return result;
}

/* Replace each container in the meta of a fresh copy by a copy of its own; a container shared by nodes stays shared. */
static int separate_meta(GraphObject *copy)
{
    PyObject *memo = PyDict_New();
    int result = memo ? 0 : -1;
    fe_error err;

    for (uint32_t id = 1; result == 0 && id < copy->core->node_count; id++) {
        for (uint32_t i = 0; result == 0 && copy->core->details[id].meta && i < copy->core->details[id].meta->len; i++) {
            fe_meta_entry entry = copy->core->details[id].meta->entries[i];
            PyObject *old = copy->objects[entry.object], *new = copy_containers(old, memo);
            uint32_t object;
            result = new ? 0 : -1;
            if (new && new != old && (result = graph_object(copy, new, &object)) == 0 &&
                (result = fe_meta_set(copy->core, id, entry.key, object, &err)) < 0)
                raise(copy, &err);
            Py_XDECREF(new);
        }
    }
    Py_XDECREF(memo);
    return result;
}

PyDoc_STRVAR(copy_doc, "_copy($self, separate_meta, /)\n--\n\n"
                       "A graph of the same class with the same nodes; with separate_meta, containers in meta are copied.");

static PyObject *Graph_copy(PyObject *self, PyObject *separate)
{
    GraphObject *g = (GraphObject *)self, *copy;
    int deep = PyObject_IsTrue(separate), result;

    if (deep < 0 || graph_readable(g) < 0 || !(copy = (GraphObject *)PyObject_CallNoArgs((PyObject *)Py_TYPE(self))))
        return NULL;
    if (!PyObject_TypeCheck(copy, g->state->graph_type) || copy->core->node_count != 1) {
        Py_DECREF(copy);
        return PyErr_Format(PyExc_TypeError, "%.200s() must give an empty graph to copy into", Py_TYPE(self)->tp_name);
    }
    graph_pin(g);
    result = PyDict_Update(copy->meta_index, g->meta_index);
    if (result == 0)
        result = PyList_SetSlice(copy->meta_keys, 0, PyList_GET_SIZE(copy->meta_keys), g->meta_keys);
    if (result == 0)
        result = copy_core(g, copy);
    graph_unpin(g);
    if (result == 0 && deep)
        result = separate_meta(copy);
    if (result < 0) {
        Py_DECREF(copy);
        return NULL;
    }
    graph_sweep(copy);
    return (PyObject *)copy;
}

/* ---- the type ------------------------------------------------------------------------------------------------------------------ */

static PyObject *Graph_str(PyObject *self)
{
    return graph_readable((GraphObject *)self) < 0 ? NULL : text_of((GraphObject *)self, FE_ROOT);
}

static PyObject *Graph_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<fastexport.Graph with %u nodes at %p>", ((GraphObject *)self)->core->live, self);
}

static PyObject *get_nodes(PyObject *self, void *Py_UNUSED(closure))
{
    return nodes_new((GraphObject *)self);
}

static PyObject *get_bytes(PyObject *self, void *Py_UNUSED(closure))
{
    GraphObject *g = (GraphObject *)self;
    const fe_graph *c = g->core;
    size_t bytes = c->arena.bytes + c->node_capacity * sizeof(fe_node) + c->detail_capacity * sizeof(fe_detail) + c->edge_capacity * sizeof(fe_edge) +
                   c->target_capacity * sizeof(fe_target) + (c->target_mask + 1) * sizeof(uint32_t) +
                   c->object_capacity * 3 * sizeof(uint32_t) + (c->strings.mask + 1) * sizeof(void *) +
                   c->base_capacity * sizeof(int64_t) + c->scratch_capacity * sizeof(uint32_t) +
                   g->object_capacity * sizeof(void *) + (g->object_mask + 1) * sizeof(uint32_t) +
                   g->handle_capacity * sizeof(void *);

    return PyLong_FromSize_t(bytes);
}

/* An optional object of the graph, by the offset of its member. */
static PyObject *get_optional(PyObject *self, void *offset)
{
    PyObject *o = *(PyObject **)(void *)((char *)self + (size_t)offset);

    return Py_NewRef(o ? o : Py_None);
}

static int set_optional(PyObject *self, PyObject *value, void *offset)
{
    PyObject **at = (PyObject **)(void *)((char *)self + (size_t)offset);

    Py_XSETREF(*at, !value || value == Py_None ? NULL : Py_NewRef(value));
    return 0;
}

static PyGetSetDef graph_getset[] = {
    {"nodes", get_nodes, NULL, "The nodes in order: a live view that may be changed while it is walked.", NULL},
    {"owning_module", get_optional, set_optional, "The module that get_attr and call_module refer to, or None.",
     (void *)offsetof(GraphObject, owning_module)},
    {"subgraphs", get_optional, set_optional, "dict: path in the owning module -> Graph of the GraphModule there; or None.",
     (void *)offsetof(GraphObject, subgraphs)},
    {"extras", get_optional, set_optional, "dict: what else a torch.fx graph carries (codegen, tracer), or None.",
     (void *)offsetof(GraphObject, extras)},
    {"nbytes", get_bytes, NULL, "Memory the graph holds for its structure, in bytes; objects it refers to don't count.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

#define FAST(function) (PyCFunction)(void (*)(void))function, METH_FASTCALL | METH_KEYWORDS

static PyMethodDef graph_methods[] = {
    {"create_node", FAST(Graph_create_node), create_node_doc},
    {"placeholder", FAST(Graph_placeholder), placeholder_doc},
    {"get_attr", FAST(Graph_get_attr), get_attr_doc},
    {"call_function", FAST(Graph_call_function), call_function_doc},
    {"call_method", FAST(Graph_call_method), call_method_doc},
    {"call_module", FAST(Graph_call_module), call_module_doc},
    {"output", FAST(Graph_output), output_doc},
    {"node_copy", FAST(Graph_node_copy), node_copy_doc},
    {"graph_copy", FAST(Graph_graph_copy), graph_copy_doc},
    {"erase_node", Graph_erase_node, METH_O, erase_node_doc},
    {"inserting_before", FAST(Graph_inserting_before), inserting_before_doc},
    {"inserting_after", FAST(Graph_inserting_after), inserting_after_doc},
    {"find_nodes", FAST(Graph_find_nodes), find_nodes_doc},
    {"node", Graph_node, METH_O, node_doc},
    {"output_node", Graph_output_node, METH_NOARGS, output_node_doc},
    {"_copy", Graph_copy, METH_O, copy_doc},
    {"_eliminate_dead_code", FAST(Graph_eliminate_dead_code), eliminate_dead_code_doc},
    {"_eliminate_getitems", FAST(Graph_eliminate_getitems), eliminate_getitems_doc},
    {"_lint", FAST(Graph_lint), lint_doc},
    {"_names", Graph_names, METH_O, names_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(graph_doc,
             "Graph(owning_module=None, tracer_cls=None, tracer_extras=None)\n--\n\n"
             "An ordered list of nodes, held in C; the API is torch.fx.Graph's.");

static PyMemberDef graph_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(GraphObject, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot graph_slots[] = {
    {Py_tp_doc, (void *)graph_doc},
    {Py_tp_new, Graph_new},
    {Py_tp_init, Graph_init},
    {Py_tp_traverse, Graph_traverse},
    {Py_tp_clear, Graph_clear},
    {Py_tp_dealloc, Graph_dealloc},
    {Py_tp_str, Graph_str},
    {Py_tp_repr, Graph_repr},
    {Py_tp_richcompare, Graph_richcompare},
    {Py_tp_hash, Graph_hash},
    {Py_tp_getset, graph_getset},
    {Py_tp_methods, graph_methods},
    {Py_tp_members, graph_members},
    {0, NULL},
};

PyType_Spec graph_spec = {
    .name = "fastexport._core.Graph",
    .basicsize = sizeof(GraphObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = graph_slots,
};
