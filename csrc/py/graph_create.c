/* graph_create.c - methods of Graph that make and erase nodes and set the insert point.
 *
 * Every method that changes the graph first converts what it was given, which may run Python code; then it looks again
 * whether the graph may be changed; then it changes the core in one step.
 */
#include "graph.h"
#include "operators.h"

/* ---- arguments of methods ---- */

int graph_own_node(GraphObject *g, PyObject *o, const char *what, uint32_t *out)
{
    if (Py_TYPE(o) != g->state->node_type) {
        PyErr_Format(PyExc_TypeError, "%s must be a Node of fastexport, not %R", what, Py_TYPE(o));
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

int op_from_python(GraphObject *g, PyObject *name, fe_op *out)
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

int check_target(fe_op op, PyObject *target)
{
    bool callable = op == FE_OP_CALL_FUNCTION;

    if (callable ? PyCallable_Check(target) : PyUnicode_Check(target))
        return 0;
    if (PyUnicode_Check(target)) {
        PyErr_Format(PyExc_ValueError,
                     "the target of call_function must be a callable, not %R of type str; an operator of torch may be "
                     "given by its whole name, such as 'torch.ops.aten.relu.default'",
                     target);
        return -1;
    }
    PyErr_Format(PyExc_ValueError, "the target of %s must be a %s, not %R of type %.200s",
                 callable ? "call_function" : "this opcode", callable ? "callable" : "str", target,
                 Py_TYPE(target)->tp_name);
    return -1;
}

/* ---- creating nodes ---- */

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

static bool is_ascii(const fe_string *s)
{
    unsigned char all = 0;

    for (uint32_t i = 0; i < s->len; i++)
        all |= (unsigned char)s->data[i];
    return all < 0x80;
}

static int add_node(GraphObject *g, fe_node_parts *parts, PyObject *candidate, fe_string *stem, uint32_t *out)
{
    PyObject *holder = NULL, *text = NULL;
    char *block = NULL, small[256];
    fe_error err;
    int result = -1;

    if (!candidate && !is_ascii(stem) && !(candidate = text = string_to_python(stem)))
        return -1;
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
        raise_core(g->state, &err);
done:
    PyMem_RawFree(block);
    Py_XDECREF(holder);
    Py_XDECREF(text);
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
        graph_sweep(g);
        return -1;
    }
    return 0;
}

static int make_node(GraphObject *g, const node_request *r, fe_node_parts *parts, uint32_t *out)
{
    fe_string *stem = NULL;
    int result = -1;

    parts->op = r->op;
    parts->type = FE_NONE_ID;
    if (graph_editable(g) < 0 || graph_target(g, r->op, r->target, &parts->target) < 0 ||
        (!r->name && graph_target_stem(g, parts->target, r->target, &stem) < 0) ||
        (r->type && graph_object(g, r->type, &parts->type) < 0))
        goto done;
    if (parts->type != FE_NONE_ID)
        fe_object_ref(g->core, parts->type); /* ours, for Python code may run before the node has one */
    result = add_node(g, parts, r->name, stem, out);
    if (parts->type != FE_NONE_ID)
        fe_object_unref(g->core, parts->type);
done:
    if (result < 0) {
        fe_seq_free(g->core, parts->args);
        fe_seq_free(g->core, parts->kwargs);
        graph_sweep(g);
    }
    return result;
}

int create_from_parts(GraphObject *g, const node_request *r, fe_node_parts *parts, uint32_t *out)
{
    if (make_node(g, r, parts, out) < 0)
        return -1;
    if (g->observer && (graph_tell_created(g, *out) < 0 || graph_editable(g) < 0)) {
        take_back_node(g, *out);
        return -1;
    }
    if (fe_node_is_listed(g->core, *out)) /* the observer may have erased it */
        fe_signature_follow(g->core, *out);
    return 0;
}

/* The signature is as it was: erasing a placeholder would take it for the constant whose place it has. */
void take_back_node(GraphObject *g, uint32_t id)
{
    fe_graph *c = g->core;
    fe_signature *s = c->signature;

    if (!g->pins && !g->busy && fe_node_is_listed(c, id) && !c->nodes[id].user_count) {
        c->signature = NULL;
        fe_node_erase(c, id);
        c->signature = s;
        if (s)
            fe_signature_forget_input(s, id); /* Python code may have named it meanwhile */
    }
    graph_sweep(g);
}

static int create(GraphObject *g, const node_request *request, uint32_t *out)
{
    node_request r = *request;
    fe_node_parts parts;
    int result = -1;

    if (graph_editable(g) < 0)
        return -1;
    r.target = r.op == FE_OP_CALL_FUNCTION ? operator_or_same(r.target) : Py_NewRef(r.target);
    if (r.target && check_target(r.op, r.target) == 0 &&
        convert_arguments(g, r.args, r.kwargs, &parts.args, &parts.kwargs) == 0)
        result = create_from_parts(g, &r, &parts, out);
    Py_XDECREF(r.target);
    return result;
}

static PyObject *created(GraphObject *g, const node_request *r)
{
    uint32_t id;

    if (create(g, r, &id) < 0)
        return NULL;
    PyObject *node = graph_node(g, id);
    if (!node)
        take_back_node(g, id);
    return node;
}

const char create_node_doc[] =
    "create_node($self, op, target, args=None, kwargs=None, name=None, type_expr=None)\n--\n\n"
    "Make a node and put it at the insert point.\n\n"
    "op is an opcode; target a callable for call_function, else a str; args a tuple and kwargs a dict of\n"
    "arguments, which may hold nodes of this graph in any nesting of tuples, lists, dicts and slices. An operator\n"
    "may also be given by its whole name, 'torch.ops.aten.relu.default', which needs no torch: the target is an\n"
    "Operator then. name is made unique by torch.fx's rules. Raises ValueError for an unknown opcode, a target of\n"
    "the wrong kind, or a node that is foreign or erased; TypeError for args or kwargs of the wrong type. Then the\n"
    "graph is as it was.\n\n"
    ">>> g.create_node('call_function', operator.add, (x, 1), name='sum')  # doctest: +SKIP\nsum";

PyObject *Graph_create_node(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
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

const char call_function_doc[] =
    "call_function($self, the_function, args=None, kwargs=None, type_expr=None, name=None)\n--\n\n"
    "Make a call_function node: the_function applied to args and kwargs. See create_node.";

PyObject *Graph_call_function(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"the_function", "args", "kwargs", "type_expr", "name", NULL};
    static const parameters p = {"call_function", names, 1, 5};

    return create_call(self, &p, FE_OP_CALL_FUNCTION, args, nargs, kwnames);
}

const char call_method_doc[] =
    "call_method($self, method_name, args=None, kwargs=None, type_expr=None)\n--\n\n"
    "Make a call_method node: the method of args[0] applied to the other args. See create_node.";

PyObject *Graph_call_method(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"method_name", "args", "kwargs", "type_expr", NULL};
    static const parameters p = {"call_method", names, 1, 4};

    return create_call(self, &p, FE_OP_CALL_METHOD, args, nargs, kwnames);
}

const char call_module_doc[] =
    "call_module($self, module_name, args=None, kwargs=None, type_expr=None)\n--\n\n"
    "Make a call_module node: the submodule of that name in the owning module applied to args. See create_node.";

PyObject *Graph_call_module(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"module_name", "args", "kwargs", "type_expr", NULL};
    static const parameters p = {"call_module", names, 1, 4};

    return create_call(self, &p, FE_OP_CALL_MODULE, args, nargs, kwnames);
}

const char get_attr_doc[] = "get_attr($self, qualified_name, type_expr=None)\n--\n\n"
                            "Make a get_attr node: the attribute of that dotted name in the owning module.";

PyObject *Graph_get_attr(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
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

const char placeholder_doc[] =
    "placeholder($self, name, type_expr=None, default_value=inspect.Signature.empty)\n--\n\n"
    "Make a placeholder node: an input of the graph. default_value, when given (None counts), is the value of\n"
    "the input when a caller leaves it out.";

/* Whether an object is inspect.Signature.empty, which stands for no default in torch.fx: 1, 0, or -1 with an exception. While
 * inspect is not loaded nobody can have it. */
static int is_no_default(PyObject *o)
{
    PyObject *inspect = Py_XNewRef(PyDict_GetItemString(PyImport_GetModuleDict(), "inspect"));
    PyObject *signature = inspect ? PyObject_GetAttrString(inspect, "Signature") : NULL;
    PyObject *empty = signature ? PyObject_GetAttrString(signature, "empty") : NULL;
    int result = !inspect ? 0 : empty ? o == empty : -1;

    Py_XDECREF(empty);
    Py_XDECREF(signature);
    Py_XDECREF(inspect);
    return result;
}

PyObject *Graph_placeholder(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"name", "type_expr", "default_value", NULL};
    static const parameters p = {"placeholder", names, 1, 3};
    GraphObject *g = (GraphObject *)self;
    PyObject *v[3];

    if (parse_call(&p, args, nargs, kwnames, v) < 0)
        return NULL;
    node_request r = {.op = FE_OP_PLACEHOLDER, .target = v[0], .type = none_as_null(v[1])};
    int no_default = v[2] ? is_no_default(v[2]) : 1;
    return no_default < 0 ? NULL : create_with_one(g, &r, no_default ? NULL : v[2]);
}

const char output_doc[] = "output($self, result, type_expr=None)\n--\n\n"
                          "Make the output node: result is what the graph returns, a node or any nesting of nodes.";

PyObject *Graph_output(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"result", "type_expr", NULL};
    static const parameters p = {"output", names, 1, 2};
    GraphObject *g = (GraphObject *)self;
    PyObject *v[2];

    if (parse_call(&p, args, nargs, kwnames, v) < 0)
        return NULL;
    node_request r = {.op = FE_OP_OUTPUT, .target = g->state->op_names[FE_OP_OUTPUT], .type = none_as_null(v[1])};
    return create_with_one(g, &r, v[0]);
}

/* ---- erasing, inserting ---- */

const char erase_node_doc[] =
    "erase_node($self, to_erase)\n--\n\n"
    "Take a node out of the graph.\n\n"
    "The Node stays readable; in its args and kwargs None stands for each node. Raises RuntimeError when it still\n"
    "has users or belongs to another graph; erasing it again only warns.";

PyObject *Graph_erase_node(PyObject *self, PyObject *node)
{
    GraphObject *g = (GraphObject *)self;
    NodeObject *n = (NodeObject *)node;

    if (Py_TYPE(node) != g->state->node_type)
        return PyErr_Format(PyExc_TypeError, "erase_node() takes a Node of fastexport, not %R", Py_TYPE(node));
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

    if (graph_readable(p->graph) < 0)
        return NULL;
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
static PyObject *set_insert_point(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                                  bool after)
{
    static const char *const names[] = {"n", NULL};
    const parameters p = {after ? "inserting_after" : "inserting_before", names, 0, 1};
    GraphObject *g = (GraphObject *)self;
    fe_point at = {FE_ROOT, !after};
    PyObject *n;

    if (parse_call(&p, args, nargs, kwnames, &n) < 0 || graph_editable(g) < 0)
        return NULL;
    if (n && n != Py_None) {
        if (graph_own_node(g, n, "the node to insert at", &at.anchor) < 0)
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

const char inserting_before_doc[] =
    "inserting_before($self, n=None)\n--\n\n"
    "Let new nodes go in just before n (None: before all), for good or for the length of a `with` block.\n\n"
    ">>> with g.inserting_before(n):  # doctest: +SKIP\n...     g.call_function(torch.relu, (x,))";

PyObject *Graph_inserting_before(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return set_insert_point(self, args, nargs, kwnames, false);
}

const char inserting_after_doc[] =
    "inserting_after($self, n=None)\n--\n\n"
    "Let new nodes go in just after n (None: after all), for good or for the length of a `with` block.\n\n"
    "As in torch.fx the point does not move: of two nodes made in one block the second comes first.";

PyObject *Graph_inserting_after(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return set_insert_point(self, args, nargs, kwnames, true);
}
