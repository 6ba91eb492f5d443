/* proxy.c - the types Proxy and Attribute: what is done to one is handed to its tracer. See proxy.h. */
#include "proxy.h"

/* Functions of the module operator, by what they stand for. */
#define OPERATORS(X)        \
    X(ADD, "add")           \
    X(SUB, "sub")           \
    X(MUL, "mul")           \
    X(MATMUL, "matmul")     \
    X(TRUEDIV, "truediv")   \
    X(FLOORDIV, "floordiv") \
    X(MOD, "mod")           \
    X(POW, "pow")           \
    X(LSHIFT, "lshift")     \
    X(RSHIFT, "rshift")     \
    X(AND, "and_")          \
    X(OR, "or_")            \
    X(XOR, "xor")           \
    X(GETITEM, "getitem")   \
    X(POS, "pos")           \
    X(NEG, "neg")           \
    X(INVERT, "invert")     \
    X(ABS, "abs")           \
    X(LT, "lt")             \
    X(LE, "le")             \
    X(EQ, "eq")             \
    X(NE, "ne")             \
    X(GT, "gt")             \
    X(GE, "ge")

enum {
#define X(id, text) OPERATOR_##id,
    OPERATORS(X)
#undef X
        OPERATOR_COUNT
};

static module_state *proxy_state(PyObject *proxy)
{
    PyObject *module = PyType_GetModuleByDef(Py_TYPE(proxy), &fe_module_def);

    return module ? state_of(module) : NULL;
}

static ProxyObject *proxy_at(PyObject *self)
{
    return (ProxyObject *)self;
}

/* ---- making and reading ---- */

PyObject *proxy_new(const module_state *st, PyObject *tracer, PyObject *node)
{
    PyTypeObject *type = (PyTypeObject *)st->proxy_class;
    PyObject *self = type->tp_alloc(type, 0);

    if (self) {
        proxy_at(self)->tracer = Py_NewRef(tracer);
        proxy_at(self)->node = Py_NewRef(node);
    }
    return self;
}

PyObject *proxy_node(const module_state *st, PyObject *proxy)
{
    if ((PyObject *)Py_TYPE(proxy) == st->proxy_class && proxy_at(proxy)->node)
        return Py_NewRef(proxy_at(proxy)->node);
    return PyObject_GetAttr(proxy, st->str_node);
}

static PyObject *find_in_items(const module_state *st, PyObject *o)
{
    PyObject *found = NULL;

    for (Py_ssize_t i = 0; !found && !PyErr_Occurred() && i < PySequence_Fast_GET_SIZE(o); i++)
        found = find_proxy(st, PySequence_Fast_GET_ITEM(o, i));
    return found;
}

static PyObject *find_in_dict(const module_state *st, PyObject *o)
{
    PyObject *key, *value, *found = NULL;
    Py_ssize_t at = 0;

    while (!found && !PyErr_Occurred() && PyDict_Next(o, &at, &key, &value))
        found = find_proxy(st, value);
    return found;
}

/* Runs no Python code, so nothing can change on the way. */
PyObject *find_proxy(const module_state *st, PyObject *o)
{
    PyObject *found = NULL;

    if (is_proxy(st, o))
        return o;
    if (!PyTuple_Check(o) && !PyList_Check(o) && !PyDict_Check(o) && !PySlice_Check(o))
        return NULL;
    if (Py_EnterRecursiveCall(" while looking for a Proxy among arguments"))
        return NULL;
    if (PyDict_Check(o))
        found = find_in_dict(st, o);
    else if (PySlice_Check(o)) {
        const PySliceObject *slice = (PySliceObject *)o;
        PyObject *parts[] = {slice->start, slice->stop, slice->step};
        for (int i = 0; !found && !PyErr_Occurred() && i < 3; i++)
            found = find_proxy(st, parts[i]);
    } else
        found = find_in_items(st, o);
    Py_LeaveRecursiveCall();
    return found;
}

/* ---- operators ---- */

static PyObject *apply(PyObject *proxy, int which, PyObject *const *args, Py_ssize_t nargs)
{
    module_state *st = proxy_state(proxy);

    if (!st)
        return NULL;
    if (!st->proxy_class || !proxy_at(proxy)->tracer)
        return PyErr_Format(PyExc_AttributeError, "the Proxy has no tracer: its __init__ was not called");
    operation o = {.op = FE_OP_CALL_FUNCTION,
                   .target = PyTuple_GET_ITEM(st->proxy_operators, which),
                   .args = args,
                   .nargs = nargs};
    return proxy_record(st, proxy_at(proxy)->tracer, &o);
}

/* Whether an operand of an operator is a proxy; the other one may be of any type. */
static bool is_any_proxy(PyObject *o)
{
    PyTypeObject *type = Py_TYPE(o);

    if (!PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE))
        return false;
    PyObject *module = PyType_GetModuleByDef(type, &fe_module_def);
    if (!module)
        PyErr_Clear(); /* a class that has nothing to do with this module */
    return module && is_proxy(state_of(module), o);
}

static PyObject *binary(PyObject *a, PyObject *b, int which)
{
    PyObject *const args[] = {a, b};

    return apply(is_any_proxy(a) ? a : b, which, args, 2);
}

#define BINARY(name, which)                                 \
    static PyObject *Proxy_##name(PyObject *a, PyObject *b) \
    {                                                       \
        return binary(a, b, OPERATOR_##which);              \
    }
BINARY(add, ADD)
BINARY(subtract, SUB)
BINARY(multiply, MUL)
BINARY(matrix_multiply, MATMUL)
BINARY(true_divide, TRUEDIV)
BINARY(floor_divide, FLOORDIV)
BINARY(remainder, MOD)
BINARY(lshift, LSHIFT)
BINARY(rshift, RSHIFT)
BINARY(and, AND)
BINARY(or, OR)
BINARY(xor, XOR)
BINARY(subscript, GETITEM)
#undef BINARY

static PyObject *Proxy_power(PyObject *a, PyObject *b, PyObject *modulus)
{
    PyObject *const args[] = {a, b, modulus};

    return apply(is_any_proxy(a) ? a : is_any_proxy(b) ? b : modulus, OPERATOR_POW, args, modulus == Py_None ? 2 : 3);
}

#define UNARY(name, which)                              \
    static PyObject *Proxy_##name(PyObject *self)       \
    {                                                   \
        return apply(self, OPERATOR_##which, &self, 1); \
    }
UNARY(positive, POS)
UNARY(negative, NEG)
UNARY(invert, INVERT)
UNARY(absolute, ABS)
#undef UNARY

static PyObject *Proxy_richcompare(PyObject *self, PyObject *other, int op)
{
    static const int functions[] = {[Py_LT] = OPERATOR_LT, [Py_LE] = OPERATOR_LE, [Py_EQ] = OPERATOR_EQ,
                                    [Py_NE] = OPERATOR_NE, [Py_GT] = OPERATOR_GT, [Py_GE] = OPERATOR_GE};
    PyObject *const args[] = {self, other};

    return apply(self, functions[op], args, 2);
}

/* As torch.fx's: comparing records a node, but a proxy is found in a dict by being the same one. */
static Py_hash_t Proxy_hash(PyObject *self)
{
    return (Py_hash_t)(fe_mix((uint64_t)(uintptr_t)self) >> 1);
}

/* ---- calls ---- */

/* Record a call_method of a method of self; args and kwargs are those of the call. */
static PyObject *call_method(module_state *st, PyObject *tracer, PyObject *method, PyObject *self, PyObject *args,
                             PyObject *kwargs)
{
    Py_ssize_t count = PyTuple_GET_SIZE(args);
    PyObject *few[8], **all = count < 8 ? few : PyMem_New(PyObject *, (size_t)count + 1), *result;

    if (!all)
        return PyErr_NoMemory();
    all[0] = self;
    for (Py_ssize_t i = 0; i < count; i++)
        all[i + 1] = PyTuple_GET_ITEM(args, i);
    operation o = {.op = FE_OP_CALL_METHOD, .target = method, .args = all, .nargs = count + 1, .kwargs = kwargs};
    result = proxy_record(st, tracer, &o);
    if (all != few)
        PyMem_Free(all);
    return result;
}

static PyObject *Proxy_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    module_state *st = proxy_state(self);

    if (!st)
        return NULL;
    if (!proxy_at(self)->tracer)
        return PyErr_Format(PyExc_AttributeError, "the Proxy has no tracer: its __init__ was not called");
    return call_method(st, proxy_at(self)->tracer, st->str_call, self, args, kwargs);
}

static PyObject *Proxy_getattr(PyObject *self, PyObject *name)
{
    module_state *st = proxy_state(self);

    if (!st)
        return NULL;
    /* What __init__ sets is missing: an Attribute would ask for it again, and so on. */
    if (!st->attribute_class || !proxy_at(self)->tracer)
        return PyErr_Format(PyExc_AttributeError, "the Proxy has no %R: its __init__ was not called", name);
    PyTypeObject *type = (PyTypeObject *)st->attribute_class;
    AttributeObject *a = (AttributeObject *)type->tp_alloc(type, 0);
    if (a) {
        a->proxy.tracer = Py_NewRef(proxy_at(self)->tracer);
        a->root = Py_NewRef(self);
        a->attr = Py_NewRef(name);
    }
    return (PyObject *)a;
}

/* ---- functions of torch ---- */

/* What becomes of a function: (is a method, target, name or None, whether the name is the target's own), found out once
 * for a tracer; None: to be handled by torch_function. A borrowed reference, or NULL with an exception. */
static PyObject *classified(module_state *st, RecorderObject *r, PyObject *function)
{
    if (!r->functions && !(r->functions = PyDict_New()))
        return NULL;
    PyObject *functions = r->functions, *plan = PyDict_GetItemWithError(functions, function);
    if (plan || PyErr_Occurred())
        return plan;
    plan = PyObject_CallOneArg(st->classify, function);
    int result = plan ? PyDict_SetItem(functions, function, plan) : -1;
    Py_XDECREF(plan); /* the dict keeps it; nothing is ever taken out */
    return result < 0 ? NULL : plan;
}

static bool is_plan(PyObject *plan)
{
    return PyTuple_Check(plan) && PyTuple_GET_SIZE(plan) == 4;
}

/* 1 with a result, 0 when torch_function has to do it, -1 with an exception. */
static int record_function(module_state *st, PyObject *function, PyObject *args, PyObject *kwargs, PyObject **out)
{
    PyObject *proxy = find_proxy(st, args), *tracer, *plan;

    if (!proxy && kwargs && !PyErr_Occurred())
        proxy = find_proxy(st, kwargs);
    if (!proxy || !(tracer = proxy_at(proxy)->tracer) || !PyObject_TypeCheck(tracer, st->recorder_type))
        return PyErr_Occurred() ? -1 : 0;
    Py_INCREF(tracer);
    plan = Py_XNewRef(classified(st, (RecorderObject *)tracer, function));
    int result = plan ? is_plan(plan) : -1;
    if (result > 0) {
        PyObject *name = PyTuple_GET_ITEM(plan, 2);
        operation o = {.op = PyTuple_GET_ITEM(plan, 0) == Py_True ? FE_OP_CALL_METHOD : FE_OP_CALL_FUNCTION,
                       .target = PyTuple_GET_ITEM(plan, 1),
                       .name = none_as_null(name),
                       .own_name = PyTuple_GET_ITEM(plan, 3) == Py_True,
                       .args = ((PyTupleObject *)args)->ob_item,
                       .nargs = PyTuple_GET_SIZE(args),
                       .kwargs = kwargs};
        *out = proxy_record(st, tracer, &o);
        result = *out ? 1 : -1;
    }
    Py_XDECREF(plan);
    Py_DECREF(tracer);
    return result;
}

PyDoc_STRVAR(torch_function_doc, "__torch_function__($type, orig_method, types, args=None, kwargs=None)\n--\n\n"
                                 "Record a call of a function of torch, or of a method of Tensor.");

static PyObject *Proxy_torch_function(PyObject *cls, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"orig_method", "types", "args", "kwargs", NULL};
    static const parameters p = {"__torch_function__", names, 2, 4};
    PyObject *v[4], *module = PyType_GetModuleByDef((PyTypeObject *)cls, &fe_module_def), *result = NULL;

    if (!module || parse_call(&p, args, nargs, kwnames, v) < 0)
        return NULL;
    module_state *st = state_of(module);
    if (!st->proxy_class)
        return PyErr_Format(PyExc_TypeError, "proxies are to be made through fastexport.Proxy");
    PyObject *kwargs = v[3] ? none_as_null(v[3]) : NULL;
    int done = v[2] && PyTuple_CheckExact(v[2]) && (!kwargs || PyDict_CheckExact(kwargs))
                   ? record_function(st, v[0], v[2], kwargs, &result)
                   : 0;
    if (done)
        return result;
    return PyObject_CallFunctionObjArgs(st->torch_function, cls, v[0], v[1], v[2] ? v[2] : Py_None,
                                        kwargs ? kwargs : Py_None, NULL);
}

/* ---- the type Proxy ---- */

static int Proxy_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"node", "tracer", NULL};
    PyObject *node, *tracer = Py_None, *made = NULL;
    module_state *st = proxy_state(self);

    if (!st || !PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:Proxy", names, &node, &tracer))
        return -1;
    if (Py_TYPE(node) != st->node_type) {
        PyErr_Format(PyExc_TypeError, "a Proxy is made of a Node of fastexport, not %R", Py_TYPE(node));
        return -1;
    }
    if (!st->proxy_class) {
        PyErr_SetString(PyExc_TypeError, "proxies are to be made through fastexport.Proxy");
        return -1;
    }
    if (tracer == Py_None) {
        PyObject *graph = (PyObject *)((NodeObject *)node)->graph;
        if (!(tracer = made = PyObject_CallOneArg(st->appending_tracer, graph)))
            return -1;
    }
    Py_XSETREF(proxy_at(self)->tracer, Py_NewRef(tracer));
    Py_XSETREF(proxy_at(self)->node, Py_NewRef(node));
    Py_XDECREF(made);
    return 0;
}

static int Proxy_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(proxy_at(self)->tracer);
    Py_VISIT(proxy_at(self)->node);
    return 0;
}

static int Proxy_clear(PyObject *self)
{
    Py_CLEAR(proxy_at(self)->tracer);
    Py_CLEAR(proxy_at(self)->node);
    return 0;
}

static void Proxy_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    Proxy_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef proxy_methods[] = {
    {"__getattr__", Proxy_getattr, METH_O, "An attribute of the value, to be recorded when it is used."},
    {"__torch_function__", (PyCFunction)(void (*)(void))Proxy_torch_function,
     METH_CLASS | METH_FASTCALL | METH_KEYWORDS, torch_function_doc},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef proxy_members[] = {
    {"tracer", T_OBJECT_EX, offsetof(ProxyObject, tracer), 0, "Records what is done to the proxy."},
    {"node", T_OBJECT_EX, offsetof(ProxyObject, node), 0, "The node whose value the proxy stands for."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot proxy_slots[] = {
    {Py_tp_doc, "The C part of proxies."},
    {Py_tp_init, Proxy_init},
    {Py_tp_traverse, Proxy_traverse},
    {Py_tp_clear, Proxy_clear},
    {Py_tp_dealloc, Proxy_dealloc},
    {Py_tp_richcompare, Proxy_richcompare},
    {Py_tp_hash, Proxy_hash},
    {Py_tp_call, Proxy_call},
    {Py_tp_methods, proxy_methods},
    {Py_tp_members, proxy_members},
    {Py_mp_subscript, Proxy_subscript},
    {Py_nb_add, Proxy_add},
    {Py_nb_subtract, Proxy_subtract},
    {Py_nb_multiply, Proxy_multiply},
    {Py_nb_matrix_multiply, Proxy_matrix_multiply},
    {Py_nb_true_divide, Proxy_true_divide},
    {Py_nb_floor_divide, Proxy_floor_divide},
    {Py_nb_remainder, Proxy_remainder},
    {Py_nb_power, Proxy_power},
    {Py_nb_lshift, Proxy_lshift},
    {Py_nb_rshift, Proxy_rshift},
    {Py_nb_and, Proxy_and},
    {Py_nb_or, Proxy_or},
    {Py_nb_xor, Proxy_xor},
    {Py_nb_positive, Proxy_positive},
    {Py_nb_negative, Proxy_negative},
    {Py_nb_invert, Proxy_invert},
    {Py_nb_absolute, Proxy_absolute},
    {0, NULL},
};

PyType_Spec proxy_spec = {
    .name = "fastexport._core.Proxy",
    .basicsize = sizeof(ProxyObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = proxy_slots,
};

/* ---- the type Attribute ---- */

static AttributeObject *attribute_at(PyObject *self)
{
    return (AttributeObject *)self;
}

static int Attribute_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"root", "attr", NULL};
    PyObject *root, *attr;
    module_state *st = proxy_state(self);

    if (!st || !PyArg_ParseTupleAndKeywords(args, kwargs, "OO:Attribute", names, &root, &attr))
        return -1;
    if (!is_proxy(st, root) || !proxy_at(root)->tracer) {
        PyErr_Format(PyExc_TypeError, "an Attribute is made of a Proxy, not %R", Py_TYPE(root));
        return -1;
    }
    Py_XSETREF(proxy_at(self)->tracer, Py_NewRef(proxy_at(root)->tracer));
    Py_XSETREF(attribute_at(self)->root, Py_NewRef(root));
    Py_XSETREF(attribute_at(self)->attr, Py_NewRef(attr));
    return 0;
}

/* Whether an Attribute is complete; -1 with an exception otherwise. */
static int check_attribute(const module_state *st, PyObject *self)
{
    if (st && st->proxy_class && attribute_at(self)->root && proxy_at(self)->tracer)
        return 0;
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_AttributeError, "the Attribute has no root: its __init__ was not called");
    return -1;
}

/* What is called may change the Attribute, by a second __init__: so its parts are held. */
static PyObject *Attribute_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    module_state *st = proxy_state(self);

    if (check_attribute(st, self) < 0)
        return NULL;
    PyObject *root = Py_NewRef(attribute_at(self)->root), *attr = Py_NewRef(attribute_at(self)->attr);
    PyObject *result = call_method(st, proxy_at(self)->tracer, attr, root, args, kwargs);
    Py_DECREF(root);
    Py_DECREF(attr);
    return result;
}

static PyObject *get_attribute_node(PyObject *self, void *Py_UNUSED(closure))
{
    module_state *st = proxy_state(self);

    if (proxy_at(self)->node)
        return Py_NewRef(proxy_at(self)->node);
    if (check_attribute(st, self) < 0)
        return NULL;
    PyObject *root = Py_NewRef(attribute_at(self)->root), *attr = Py_NewRef(attribute_at(self)->attr);
    PyObject *const args[] = {root, attr};
    operation o = {.op = FE_OP_CALL_FUNCTION, .target = st->builtin_getattr, .args = args, .nargs = 2};
    PyObject *made = proxy_record(st, proxy_at(self)->tracer, &o);
    PyObject *node = made ? PyObject_GetAttr(made, st->str_node) : NULL;
    Py_XDECREF(made);
    Py_DECREF(root);
    Py_DECREF(attr);
    if (node)
        Py_XSETREF(proxy_at(self)->node, Py_NewRef(node));
    return node;
}

static int Attribute_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(attribute_at(self)->root);
    Py_VISIT(attribute_at(self)->attr);
    return Proxy_traverse(self, visit, arg);
}

static int Attribute_clear(PyObject *self)
{
    Py_CLEAR(attribute_at(self)->root);
    Py_CLEAR(attribute_at(self)->attr);
    return Proxy_clear(self);
}

static void Attribute_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    Attribute_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyGetSetDef attribute_getset[] = {
    {"node", get_attribute_node, NULL, "The node of the attribute's value, made when it is first asked for.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef attribute_members[] = {
    {"root", T_OBJECT_EX, offsetof(AttributeObject, root), READONLY, "The proxy that it is an attribute of."},
    {"attr", T_OBJECT_EX, offsetof(AttributeObject, attr), READONLY, "Its name."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot attribute_slots[] = {
    {Py_tp_doc, "The C part of attributes of proxies."},
    {Py_tp_init, Attribute_init},
    {Py_tp_traverse, Attribute_traverse},
    {Py_tp_clear, Attribute_clear},
    {Py_tp_dealloc, Attribute_dealloc},
    {Py_tp_call, Attribute_call},
    {Py_tp_getset, attribute_getset},
    {Py_tp_members, attribute_members},
    {0, NULL},
};

PyType_Spec attribute_spec = {
    .name = "fastexport._core.Attribute",
    .basicsize = sizeof(AttributeObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = attribute_slots,
};

/* ---- functions ---- */

PyDoc_STRVAR(use_proxies_doc,
             "use_proxies(proxy, attribute, tracer, plain_types, meta_preserved, classify, torch_function, /)\n--\n\n"
             "From now on proxies are made: the classes of proxies, of their attributes, and of the tracer of a Proxy\n"
             "made without one; the types of constants; torch.fx's function that tells whether new nodes take over\n"
             "meta; and what is done with a function of torch, and with a call that C leaves alone.");

static PyObject *operator_functions_tuple(void)
{
    static const char *const names[] = {
#define X(id, text) text,
        OPERATORS(X)
#undef X
    };
    PyObject *module = PyImport_ImportModule("operator"), *tuple = module ? PyTuple_New(OPERATOR_COUNT) : NULL;

    for (int i = 0; tuple && i < OPERATOR_COUNT; i++) {
        PyObject *function = PyObject_GetAttrString(module, names[i]);
        if (function)
            PyTuple_SET_ITEM(tuple, i, function);
        else
            Py_CLEAR(tuple);
    }
    Py_XDECREF(module);
    return tuple;
}

static PyObject *use_proxies(PyObject *m, PyObject *args)
{
    module_state *st = state_of(m);
    PyObject *proxy, *attribute, *tracer, *plain, *preserved, *classify, *torch_function;

    if (!PyArg_ParseTuple(args, "O!O!OO!OOO:use_proxies", &PyType_Type, &proxy, &PyType_Type, &attribute, &tracer,
                          &PyFrozenSet_Type, &plain, &preserved, &classify, &torch_function))
        return NULL;
    if (!PyType_IsSubtype((PyTypeObject *)proxy, st->proxy_type) ||
        !PyType_IsSubtype((PyTypeObject *)attribute, st->attribute_type))
        return PyErr_Format(PyExc_TypeError, "use_proxies() takes a subclass of Proxy and one of Attribute");
    PyObject *operators = operator_functions_tuple();
    PyObject *builtins = operators ? PyEval_GetBuiltins() : NULL;
    PyObject *getattr = builtins ? PyMapping_GetItemString(builtins, "getattr") : NULL;
    if (!getattr) {
        Py_XDECREF(operators);
        return NULL;
    }
    Py_XSETREF(st->proxy_operators, operators);
    Py_XSETREF(st->builtin_getattr, getattr);
    Py_XSETREF(st->attribute_class, Py_NewRef(attribute));
    Py_XSETREF(st->appending_tracer, Py_NewRef(tracer));
    Py_XSETREF(st->plain_types, Py_NewRef(plain));
    Py_XSETREF(st->meta_preserved, Py_NewRef(preserved));
    Py_XSETREF(st->classify, Py_NewRef(classify));
    Py_XSETREF(st->torch_function, Py_NewRef(torch_function));
    Py_XSETREF(st->proxy_class, Py_NewRef(proxy)); /* last: it tells that the others are there */
    Py_RETURN_NONE;
}

PyDoc_STRVAR(proxy_among_doc, "proxy_among(arguments, /)\n--\n\n"
                              "A Proxy in tuples, lists, dicts and slices, the first; or None.");

static PyObject *proxy_among(PyObject *m, PyObject *o)
{
    PyObject *found = find_proxy(state_of(m), o);

    return found || PyErr_Occurred() ? Py_XNewRef(found) : Py_NewRef(Py_None);
}

PyMethodDef proxy_functions[] = {
    {"use_proxies", use_proxies, METH_VARARGS, use_proxies_doc},
    {"proxy_among", proxy_among, METH_O, proxy_among_doc},
    {NULL, NULL, 0, NULL},
};
