/* proxy_record.c - the type Recorder: nodes made straight from what is done to proxies.
 *
 * A Recorder is the C base of fastexport's tracers. It does what torch.fx's TracerBase.create_proxy does, in C, as long as
 * no method that create_proxy goes through is overridden and no option asks for more; else that method is called. Which
 * of the two holds is found out anew after each attribute that is set.
 *
 * Arguments are converted by the rules of create_arg: numbers, strings and containers here, a proxy to its node, and
 * anything else by the tracer's create_arg, which may run any code, so the core is not touched before all are converted.
 */
#include "proxy.h"

/* ---- arguments ---- */

typedef struct {
    module_state *st;
    GraphObject *g;
    PyObject *tracer; /* NULL: create_arg has been asked already */
} lowering;

static int take_node(const lowering *l, PyObject *node, fe_value *out)
{
    uint32_t id;

    if (graph_own_node(l->g, node, "argument", &id) < 0)
        return -1;
    if (id == FE_ROOT) {
        PyErr_Format(PyExc_ValueError, "argument '%S' is the root of the graph, which has no value", node);
        return -1;
    }
    *out = (fe_value){.kind = FE_NODE, .as.node = id};
    return 1;
}

/* Whether the keys of a dict are strings, which need no look. */
static bool has_plain_keys(PyObject *dict)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;

    while (PyDict_Next(dict, &at, &key, &value)) {
        if (!PyUnicode_CheckExact(key))
            return false;
    }
    return true;
}

/* Whether value.c deals with an object as create_arg would: 1, 0, or -1 with an exception. */
static int is_plain(const module_state *st, PyObject *o)
{
    PyTypeObject *type = Py_TYPE(o);

    if (o == Py_None || o == Py_Ellipsis || type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type ||
        type == &PyUnicode_Type || type == &PyTuple_Type || type == &PyList_Type || type == &PySlice_Type ||
        type == &PyComplex_Type || (PyObject *)type == st->list_type)
        return 1;
    if (type == &PyDict_Type || (PyObject *)type == st->dict_type)
        return has_plain_keys(o);
    return PySet_Contains(st->plain_types, (PyObject *)type);
}

static int lower(void *ctx, PyObject *o, fe_value *out);

/* What create_arg gives is taken as it is, with its nodes. */
static int ask_tracer(const lowering *l, PyObject *o, fe_value *out)
{
    PyObject *lowered = PyObject_CallMethodOneArg(l->tracer, l->st->str_create_arg, o);
    lowering as_it_is = {.st = l->st, .g = l->g};
    int result = lowered ? value_from_python_with(l->g, lowered, lower, &as_it_is, false, out) : -1;

    Py_XDECREF(lowered);
    return result < 0 ? -1 : 1;
}

static bool is_foreign(const lowering *l, PyObject *node)
{
    return Py_TYPE(node) == l->st->node_type && ((NodeObject *)node)->graph != l->g;
}

/* The tracer tells best what is wrong with a proxy of another graph. */
static int take_proxy(const lowering *l, PyObject *proxy, fe_value *out)
{
    PyObject *node = proxy_node(l->st, proxy);
    int result = !node ? -1 : l->tracer && is_foreign(l, node) ? ask_tracer(l, proxy, out) : take_node(l, node, out);

    Py_XDECREF(node);
    return result;
}

/* A node_resolver. */
static int lower(void *ctx, PyObject *o, fe_value *out)
{
    const lowering *l = ctx;

    if (Py_TYPE(o) == l->st->node_type && !l->tracer)
        return take_node(l, o, out);
    if (is_proxy(l->st, o))
        return take_proxy(l, o, out);
    int plain = l->tracer ? is_plain(l->st, o) : 1;
    return plain < 0 ? -1 : plain ? 0 : ask_tracer(l, o, out);
}

static fe_seq *new_seq(const lowering *l, size_t len)
{
    fe_error err;
    fe_seq *s = fe_seq_new(l->g->core, len, FE_NONE_ID, &err);

    if (!s)
        raise_core(l->st, &err);
    return s;
}

static int lower_args(lowering *l, const operation *o, fe_seq **out)
{
    *out = NULL;
    if (!o->nargs)
        return 0;
    fe_seq *s = new_seq(l, (size_t)o->nargs);
    for (Py_ssize_t i = 0; s && i < o->nargs; i++) {
        if (value_from_python_with(l->g, o->args[i], lower, l, false, &s->items[i]) < 0) {
            fe_seq_free(l->g->core, s);
            s = NULL;
        }
    }
    *out = s;
    return s ? 0 : -1;
}

static int lower_kwargs(lowering *l, PyObject *kwargs, fe_seq **out)
{
    fe_value dict;

    *out = NULL;
    if (!kwargs || !PyDict_GET_SIZE(kwargs))
        return 0;
    if (value_from_python_with(l->g, kwargs, lower, l, false, &dict) < 0)
        return -1;
    *out = dict.as.seq; /* for the keys are strings */
    return 0;
}

/* ---- what a new node is given ---- */

/* The pair (path, class) of the module that is being run. */
static PyObject *scope_pair(const module_state *st, RecorderObject *r)
{
    PyObject *scope = Py_NewRef(r->scope), *path = PyObject_GetAttr(scope, st->str_module_path);
    PyObject *type = path ? PyObject_GetAttr(scope, st->str_module_type) : NULL, *pair = NULL;

    if (type && r->last_scope && PyTuple_GET_ITEM(r->last_scope, 0) == path &&
        PyTuple_GET_ITEM(r->last_scope, 1) == type)
        pair = Py_NewRef(r->last_scope);
    else if (type && (pair = PyTuple_Pack(2, path, type)))
        Py_XSETREF(r->last_scope, Py_NewRef(pair));
    Py_DECREF(scope);
    Py_XDECREF(path);
    Py_XDECREF(type);
    return pair;
}

static int note_scope(const module_state *st, RecorderObject *r, GraphObject *g, uint32_t id)
{
    if (!r->scope || !r->scopes || !PyDict_Check(r->scopes))
        return 0;
    PyObject *scopes = Py_NewRef(r->scopes), *pair = scope_pair(st, r);
    PyObject *name = pair ? string_to_python(g->core->details[id].name) : NULL;
    int result = name ? PyDict_SetItem(scopes, name, pair) : -1;

    Py_XDECREF(name);
    Py_XDECREF(pair);
    Py_DECREF(scopes);
    return result;
}

/* Each node has a copy of the stack of modules, as it is, to change as it likes. */
static int note_modules(const module_state *st, RecorderObject *r, PyObject *node)
{
    if (!r->module_stack || !PyDict_Check(r->module_stack) || !PyDict_GET_SIZE(r->module_stack))
        return 0;
    PyObject *stack = Py_NewRef(r->module_stack), *copy = PyObject_CallMethodNoArgs(stack, st->str_copy);
    PyObject *meta = copy ? meta_new((NodeObject *)node) : NULL;
    int result = meta ? PyObject_SetItem(meta, st->str_nn_module_stack, copy) : -1;

    Py_DECREF(stack);
    Py_XDECREF(copy);
    Py_XDECREF(meta);
    return result;
}

/* ---- recording ---- */

static int make_node(lowering *l, const operation *o, uint32_t *out)
{
    node_request request = {.op = o->op, .target = o->target, .name = o->own_name ? NULL : o->name, .type = o->type};
    fe_node_parts parts = {.args = NULL};

    if (graph_editable(l->g) < 0 || check_target(o->op, o->target) < 0 || lower_args(l, o, &parts.args) < 0)
        return -1;
    if (lower_kwargs(l, o->kwargs, &parts.kwargs) < 0) {
        fe_seq_free(l->g->core, parts.args);
        graph_sweep(l->g);
        return -1;
    }
    return create_from_parts(l->g, &request, &parts, out);
}

static PyObject *record(module_state *st, RecorderObject *r, const operation *o)
{
    GraphObject *g = (GraphObject *)Py_NewRef(r->graph);
    lowering l = {.st = st, .g = g, .tracer = (PyObject *)r};
    PyObject *node = NULL, *proxy = NULL;
    uint32_t id;

    if (make_node(&l, o, &id) == 0) {
        node = graph_node(g, id);
        if (node && note_modules(st, r, node) == 0)
            proxy = proxy_new(st, (PyObject *)r, node);
        if (proxy && note_scope(st, r, g, id) < 0)
            Py_CLEAR(proxy);
        if (!proxy)
            take_back_node(g, id);
    }
    Py_XDECREF(node);
    Py_DECREF(g);
    return proxy;
}

/* ---- by create_proxy ---- */

static PyObject *record_by_method(const module_state *st, PyObject *tracer, const operation *o)
{
    PyObject *args = PyTuple_New(o->nargs), *kwargs = o->kwargs ? PyDict_Copy(o->kwargs) : PyDict_New();
    PyObject *method = PyObject_GetAttr(tracer, st->str_create_proxy), *call = NULL, *names = NULL, *result = NULL;

    for (Py_ssize_t i = 0; args && i < o->nargs; i++)
        PyTuple_SET_ITEM(args, i, Py_NewRef(o->args[i]));
    if (args && kwargs && method)
        call = PyTuple_Pack(4, st->op_names[o->op], o->target, args, kwargs);
    if (call && o->name)
        names = Py_BuildValue("{s:O}", "name", o->name);
    if (call && (names || !o->name))
        result = PyObject_Call(method, call, names);
    Py_XDECREF(names);
    Py_XDECREF(call);
    Py_XDECREF(method);
    Py_XDECREF(kwargs);
    Py_XDECREF(args);
    return result;
}

/* 1 when a tracer records by itself just now, 0 when not, -1 with an exception. */
static int records_directly(const module_state *st, PyObject *tracer)
{
    if (!st->proxy_class || !PyObject_TypeCheck(tracer, st->recorder_type))
        return 0;
    RecorderObject *r = (RecorderObject *)tracer;
    if (r->mode == RECORDS_UNKNOWN) {
        PyObject *answer = PyObject_CallMethodNoArgs(tracer, st->str_records_directly);
        int yes = answer ? PyObject_IsTrue(answer) : -1;
        Py_XDECREF(answer);
        if (yes < 0)
            return -1;
        r->mode = yes ? RECORDS_DIRECTLY : RECORDS_NOT;
    }
    if (r->mode == RECORDS_NOT)
        return 0;
    PyObject *preserved = PyObject_CallNoArgs(st->meta_preserved);
    int yes = preserved ? PyObject_IsTrue(preserved) : -1;
    Py_XDECREF(preserved);
    if (yes)
        return yes < 0 ? -1 : 0;
    /* Last, for the calls above may have changed it. */
    return r->graph && PyObject_TypeCheck(r->graph, st->graph_type);
}

PyObject *proxy_record(module_state *st, PyObject *tracer, const operation *o)
{
    PyObject *kept = Py_NewRef(tracer); /* code that runs may take it from its proxy */
    int direct = records_directly(st, kept);
    PyObject *result = NULL;

    if (direct > 0)
        result = record(st, (RecorderObject *)kept, o);
    else if (direct == 0)
        result = record_by_method(st, kept, o);
    Py_DECREF(kept);
    return result;
}

/* ---- the type Recorder ---- */

static int Recorder_traverse(PyObject *self, visitproc visit, void *arg)
{
    RecorderObject *r = (RecorderObject *)self;

    Py_VISIT(Py_TYPE(self));
    Py_VISIT(r->graph);
    Py_VISIT(r->scope);
    Py_VISIT(r->module_stack);
    Py_VISIT(r->scopes);
    Py_VISIT(r->last_scope);
    Py_VISIT(r->functions);
    return 0;
}

static int Recorder_clear(PyObject *self)
{
    RecorderObject *r = (RecorderObject *)self;

    Py_CLEAR(r->graph);
    Py_CLEAR(r->scope);
    Py_CLEAR(r->module_stack);
    Py_CLEAR(r->scopes);
    Py_CLEAR(r->last_scope);
    Py_CLEAR(r->functions);
    return 0;
}

static void Recorder_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    Recorder_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static int Recorder_setattro(PyObject *self, PyObject *name, PyObject *value)
{
    ((RecorderObject *)self)->mode = RECORDS_UNKNOWN;
    return PyObject_GenericSetAttr(self, name, value);
}

PyDoc_STRVAR(record_doc,
             "_record($self, kind, target, args, kwargs, name, type_expr, /)\n--\n\n"
             "Make a node of lowered arguments, and its Proxy; None when that takes an overridden method, or one of\n"
             "the options that create_node looks at.");

static PyObject *Recorder_record(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *module = PyType_GetModuleByDef(Py_TYPE(self), &fe_module_def), *result;
    operation o = {.op = FE_OP_UNKNOWN};

    if (!module)
        return NULL;
    module_state *st = state_of(module);
    RecorderObject *r = (RecorderObject *)self;
    int direct = nargs == 6 ? records_directly(st, self) : 0;
    if (direct <= 0 || !PyTuple_CheckExact(args[2]) || !PyDict_CheckExact(args[3]) || !has_plain_keys(args[3]))
        return direct < 0 ? NULL : Py_NewRef(Py_None);
    if (op_from_python((GraphObject *)r->graph, args[0], &o.op) < 0)
        return NULL;
    o.target = args[1];
    o.args = ((PyTupleObject *)args[2])->ob_item;
    o.nargs = PyTuple_GET_SIZE(args[2]);
    o.kwargs = args[3];
    o.name = none_as_null(args[4]);
    o.type = none_as_null(args[5]);
    Py_INCREF(self);
    result = record(st, r, &o);
    Py_DECREF(self);
    return result;
}

static PyMethodDef recorder_methods[] = {
    {"_record", (PyCFunction)(void (*)(void))Recorder_record, METH_FASTCALL, record_doc},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef recorder_members[] = {
    {"graph", T_OBJECT_EX, offsetof(RecorderObject, graph), 0, "The graph that nodes are recorded in."},
    {"scope", T_OBJECT_EX, offsetof(RecorderObject, scope), 0, "The path and class of the module that is being run."},
    {"module_stack", T_OBJECT_EX, offsetof(RecorderObject, module_stack), 0,
     "The modules that are being run, outermost first: path -> (path, class)."},
    {"node_name_to_scope", T_OBJECT_EX, offsetof(RecorderObject, scopes), 0,
     "Name of a node -> (path, class) of the module it was made in."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot recorder_slots[] = {
    {Py_tp_doc, "The C part of tracers."}, {Py_tp_traverse, Recorder_traverse},
    {Py_tp_clear, Recorder_clear},         {Py_tp_dealloc, Recorder_dealloc},
    {Py_tp_setattro, Recorder_setattro},   {Py_tp_methods, recorder_methods},
    {Py_tp_members, recorder_members},     {0, NULL},
};

PyType_Spec recorder_spec = {
    .name = "fastexport._core.Recorder",
    .basicsize = sizeof(RecorderObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = recorder_slots,
};
