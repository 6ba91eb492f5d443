/* fx_layout.c - where torch.fx keeps what, found once and checked.
 *
 * Offsets come from the member descriptors of torch's own node type, never from a copy of its struct. The layout is taken
 * as known only when every slot is there, all lie where a slot can lie, and what is left of the object is the sort key,
 * which torch's own functions make and change. Else node_type stays NULL and callers use the public API.
 */
#include "fx.h"

#define BASE_SIZE 176    /* of _NodeBase where this layout was studied */
#define SORT_KEY_SIZE 48 /* what lies behind the slots there */

/* The offset of a member of a type: 1, 0 when there is no such member of that kind, or -1. */
static int member_offset(PyTypeObject *type, const char *name, bool flag, Py_ssize_t *out)
{
    PyObject *descr = PyObject_GetAttrString((PyObject *)type, name);
    int found = 0;

    if (!descr) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError))
            return -1;
        PyErr_Clear();
        return 0;
    }
    if (Py_IS_TYPE(descr, &PyMemberDescr_Type)) {
        const PyMemberDef *member = ((PyMemberDescrObject *)descr)->d_member;
        *out = member->offset;
        found = (flag ? member->type == T_BOOL : member->type == T_OBJECT_EX || member->type == T_OBJECT) &&
                member->offset >= (Py_ssize_t)sizeof(PyObject) && member->offset < BASE_SIZE - SORT_KEY_SIZE &&
                (flag || member->offset % (Py_ssize_t)sizeof(PyObject *) == 0);
    }
    Py_DECREF(descr);
    return found;
}

static int find_members(PyTypeObject *base, fx_layout *l)
{
    struct {
        const char *name;
        Py_ssize_t *offset;
    } slots[] = {{"_prev", &l->prev}, {"_next", &l->next},     {"graph", &l->graph}, {"name", &l->name},
                 {"op", &l->op},      {"target", &l->target},  {"type", &l->type},   {"_input_nodes", &l->input_nodes},
                 {"_args", &l->args}, {"_kwargs", &l->kwargs}, {"users", &l->users}, {"_repr_fn", &l->repr_fn},
                 {"meta", &l->meta}};
    int found = member_offset(base, "_erased", true, &l->erased);

    for (size_t i = 0; found > 0 && i < sizeof slots / sizeof *slots; i++)
        found = member_offset(base, slots[i].name, false, slots[i].offset);
    return found;
}

static int find_prepend(PyTypeObject *base, fx_layout *l)
{
    PyObject *method = PyObject_GetAttrString((PyObject *)base, "_prepend");
    int found = 0;

    if (!method) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError))
            return -1;
        PyErr_Clear();
        return 0;
    }
    if (Py_IS_TYPE(method, &PyMethodDescr_Type)) {
        const PyMethodDef *def = ((PyMethodDescrObject *)method)->d_method;
        found = def->ml_flags == METH_O;
        l->prepend = def->ml_meth;
    }
    Py_DECREF(method);
    return found;
}

static int find_layout(PyTypeObject *type, fx_layout *l)
{
    PyTypeObject *base = type->tp_base;

    if (!base || base->tp_base != &PyBaseObject_Type || base->tp_basicsize != BASE_SIZE || base->tp_itemsize ||
        type->tp_itemsize || !base->tp_new || !type->tp_new || type->tp_new != base->tp_new || !PyType_IS_GC(type))
        return 0;
    int found = find_members(base, l);
    return found > 0 ? find_prepend(base, l) : found;
}

const char fx_configure_doc[] =
    "fx_configure(node_type, illegal_names, symbols, overload_type, /)\n--\n\n"
    "Find out where torch.fx.Node keeps its fields. illegal_names is the dict of that name of torch.fx.graph, symbols "
    "the\n"
    "tuple of torch's SymInt, SymFloat and SymBool, overload_type the class of operators with a schema. Returns "
    "whether the layout is one that the functions fx_* can work on;\n"
    "with node_type None, or when it is not, they raise from then on.";

PyObject *fx_configure(PyObject *m, PyObject *const *args, Py_ssize_t nargs)
{
    module_state *st = state_of(m);
    fx_layout found = {0};
    int known;

    if (fx_arguments("fx_configure", nargs, 4) < 0)
        return NULL;
    known = args[0] != Py_None;
    if (known && (!PyType_Check(args[0]) || !PyDict_Check(args[1]) || !PyTuple_Check(args[2])))
        return PyErr_Format(PyExc_TypeError, "fx_configure() takes a type, a dict and a tuple");
    if (known && (known = find_layout((PyTypeObject *)args[0], &found)) < 0)
        return NULL;
    if (known) {
        found.node_type = (PyTypeObject *)Py_NewRef(args[0]);
        found.illegal_names = args[1];
        found.symbols = args[2];
        found.overload_type = args[3];
        PyObject *str_len = PyUnicode_InternFromString("_len");
        found.held = str_len ? PyTuple_Pack(4, args[1], args[2], args[3], str_len) : NULL;
        Py_XDECREF(str_len);
        found.str_len = str_len;
        if (!found.held) {
            Py_DECREF(found.node_type);
            return NULL;
        }
    }
    fx_layout old = st->fx;
    st->fx = known ? found : (fx_layout){0};
    Py_XDECREF(old.node_type);
    Py_XDECREF(old.held);
    return PyBool_FromLong(known);
}

/* ---- graphs -------------------------------------------------------------------------------------------------------- */

int fx_check_graph(const module_state *st, PyObject *graph, PyObject **root)
{
    if (!st->fx.node_type) {
        PyErr_SetString(PyExc_RuntimeError, "the layout of this torch's torch.fx.Node is not known to fastexport");
        return -1;
    }
    *root = PyObject_GetAttrString(graph, "_root");
    if (!*root)
        return -1;
    if (fx_is_node(&st->fx, *root))
        return 0;
    Py_CLEAR(*root);
    PyErr_SetString(PyExc_ValueError, "the graph's root is no torch.fx.Node");
    return -1;
}

fe_op fx_op(const module_state *st, PyObject *op)
{
    for (int i = 0; i < FE_OP_ROOT; i++) {
        if (op == st->op_names[i])
            return (fe_op)i;
    }
    for (int i = 0; op && PyUnicode_Check(op) && i < FE_OP_ROOT; i++) {
        if (PyUnicode_Compare(op, st->op_names[i]) == 0)
            return (fe_op)i;
    }
    return FE_OP_UNKNOWN;
}

/* As getattr(o, name, None): a new reference, or NULL with an exception. */
static PyObject *attribute_or_none(PyObject *o, const char *name)
{
    PyObject *key = PyUnicode_FromString(name), *value = NULL;

    if (key && lookup_attr(o, key, &value) == 0)
        value = Py_NewRef(Py_None);
    Py_XDECREF(key);
    return value;
}

int fx_has_hooks(PyObject *graph, const char *name)
{
    PyObject *module = PyObject_GetAttrString(graph, "owning_module"), *hooks = NULL;
    int any = -1;

    if (module && module == Py_None)
        any = 0;
    else if (module && (hooks = attribute_or_none(module, name)))
        any = hooks == Py_None ? 0 : PyObject_IsTrue(hooks);
    Py_XDECREF(hooks);
    Py_XDECREF(module);
    return any;
}

int fx_get_length(const module_state *st, PyObject *graph, Py_ssize_t *out)
{
    PyObject *len = PyObject_GetAttr(graph, st->fx.str_len);

    *out = len ? PyLong_AsSsize_t(len) : -1;
    Py_XDECREF(len);
    return *out == -1 && PyErr_Occurred() ? -1 : 0;
}

int fx_set_length(const module_state *st, PyObject *graph, PyObject *length)
{
    return PyObject_SetAttr(graph, st->fx.str_len, length);
}

static PyObject *typed_attribute(PyObject *o, const char *name, PyTypeObject *type)
{
    PyObject *value = PyObject_GetAttrString(o, name);

    if (value && !PyObject_TypeCheck(value, type)) {
        PyErr_Format(PyExc_TypeError, "%s of the torch.fx graph is a %.200s, not a %s", name, Py_TYPE(value)->tp_name,
                     type->tp_name);
        Py_CLEAR(value);
    }
    return value;
}

int fx_tables_get(PyObject *graph, fx_tables *t)
{
    PyObject *lookup = PyObject_GetAttrString(graph, "_find_nodes_lookup_table");

    *t = (fx_tables){0};
    if (lookup && (t->table = typed_attribute(lookup, "table", &PyDict_Type)) &&
        (t->namespace = PyObject_GetAttrString(graph, "_graph_namespace")) &&
        (t->used_names = typed_attribute(t->namespace, "_used_names", &PySet_Type)) &&
        (t->base_count = typed_attribute(t->namespace, "_base_count", &PyDict_Type)))
        t->objects = typed_attribute(t->namespace, "_obj_to_name", &PyDict_Type);
    Py_XDECREF(lookup);
    if (t->objects)
        return 0;
    fx_tables_clear(t);
    return -1;
}

void fx_tables_clear(fx_tables *t)
{
    Py_CLEAR(t->table);
    Py_CLEAR(t->used_names);
    Py_CLEAR(t->base_count);
    Py_CLEAR(t->objects);
    Py_CLEAR(t->namespace);
}

/* ---- functions of the module ------------------------------------------------------------------------------------------ */

#define FUNCTION(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, name##_doc}

PyMethodDef fx_functions[] = {
    FUNCTION(fx_configure),
    FUNCTION(fx_read),
    FUNCTION(fx_build),
    FUNCTION(fx_erase),
    FUNCTION(fx_copy),
    FUNCTION(fx_replace_all_uses),
    FUNCTION(fx_insert),
    FUNCTION(fx_lint),
    FUNCTION(fx_eliminate_dead_code),
    FUNCTION(fx_eliminate_getitems),
    FUNCTION(fx_record),
    FUNCTION(fx_revive),
    FUNCTION(fx_revive_graph),
    FUNCTION(fx_is_sorted),
    {NULL, NULL, 0, NULL},
};
