/* expr.c - the type Expr: a symbolic expression, as Python sees it.
 *
 * An Expr keeps the pool of its expression alive; parts of one expression share its pool, and no two texts share one, so
 * nothing grows behind the user's back. Expressions of different pools are equal when their srepr texts are. All is
 * immutable, so none of it needs a lock but for the pool's count of owners, which the GIL guards.
 */
#include "expr_object.h"

#define DEPTH 200 /* of nested calls in a text */

/* ---- life ---- */

void expr_pool_release(expr_pool *pool)
{
    if (--pool->owners)
        return;
    fe_exprs_free(pool->exprs);
    PyMem_Free(pool);
}

expr_pool *expr_pool_new(void)
{
    expr_pool *pool = PyMem_Malloc(sizeof *pool);

    if (pool) {
        *pool = (expr_pool){fe_exprs_new(&fe_python_allocator), 1};
        if (pool->exprs)
            return pool;
    }
    PyMem_Free(pool);
    PyErr_NoMemory();
    return NULL;
}

/* An Expr of an expression of the pool, which it becomes an owner of. */
PyObject *expr_new(PyTypeObject *type, expr_pool *pool, fe_expr e)
{
    ExprObject *self = PyObject_New(ExprObject, type);

    if (!self)
        return NULL;
    pool->owners++;
    self->pool = pool;
    self->expr = e;
    self->srepr = NULL;
    return (PyObject *)self;
}

static void Expr_dealloc(PyObject *o)
{
    ExprObject *self = (ExprObject *)o;
    PyTypeObject *type = Py_TYPE(o);

    Py_XDECREF(self->srepr);
    expr_pool_release(self->pool);
    type->tp_free(o);
    Py_DECREF(type);
}

/* ---- reading ---- */

static PyObject *raise_parse(const fe_expr_error *err, const char *text, Py_ssize_t len)
{
    Py_ssize_t at = err->at < (size_t)len ? (Py_ssize_t)err->at : len, shown = len - at < 40 ? len - at : 40;

    if (err->fault == FE_EXPR_NO_MEMORY)
        return PyErr_NoMemory();
    PyObject *rest = PyUnicode_DecodeUTF8(text + at, shown, "replace");
    if (rest)
        PyErr_Format(PyExc_ValueError, "not an expression: %s, at byte %zd, %R", err->message, at, rest);
    Py_XDECREF(rest);
    return NULL;
}

static PyObject *parse(PyTypeObject *type, PyObject *text, PyObject *form)
{
    bool srepr = !form || PyUnicode_Check(form) ? !form || PyUnicode_CompareWithASCIIString(form, "srepr") == 0 : false;
    fe_expr_error err;
    Py_ssize_t len;

    if (!PyUnicode_Check(text))
        return PyErr_Format(PyExc_TypeError, "an expression is read from a str, not from %.100s",
                            Py_TYPE(text)->tp_name);
    if (!srepr && !(PyUnicode_Check(form) && PyUnicode_CompareWithASCIIString(form, "str") == 0))
        return PyErr_Format(PyExc_ValueError, "form is 'srepr' or 'str', not %R", form);
    const char *data = PyUnicode_AsUTF8AndSize(text, &len);
    expr_pool *pool = data ? expr_pool_new() : NULL;
    if (!pool)
        return NULL;
    fe_expr e = srepr ? fe_expr_parse_srepr(pool->exprs, data, (size_t)len, DEPTH, &err)
                      : fe_expr_parse_str(pool->exprs, data, (size_t)len, DEPTH, &err);
    PyObject *result = e ? expr_new(type, pool, e) : raise_parse(&err, data, len);
    expr_pool_release(pool);
    return result;
}

static PyObject *Expr_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"text", "form", NULL};
    PyObject *text, *form = NULL;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:Expr", names, &text, &form))
        return NULL;
    return parse(type, text, form);
}

PyDoc_STRVAR(parse_doc, "parse($type, text, form='srepr')\n--\n\n"
                        "The expression of a text: the same as Expr(text, form).");

static PyObject *Expr_parse(PyObject *type, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"text", "form", NULL};
    static const parameters p = {"parse", names, 1, 2};
    PyObject *given[2];

    if (parse_call(&p, args, nargs, kwnames, given) < 0)
        return NULL;
    return parse((PyTypeObject *)type, given[0], given[1]);
}

/* ---- texts ---- */

static PyObject *text_by(void (*write)(fe_expr, fe_buffer *), fe_expr e)
{
    fe_buffer b;

    fe_buffer_init(&b, &fe_python_allocator);
    write(e, &b);
    PyObject *result = b.failed ? PyErr_NoMemory() : PyUnicode_DecodeUTF8(b.data, (Py_ssize_t)b.len, NULL);
    fe_buffer_clear(&b);
    return result;
}

static PyObject *srepr_of(ExprObject *self) /* borrowed */
{
    if (!self->srepr)
        self->srepr = text_by(fe_expr_srepr, self->expr);
    return self->srepr;
}

static PyObject *Expr_str(PyObject *self)
{
    return text_by(fe_expr_str, ((ExprObject *)self)->expr);
}

static PyObject *Expr_get_srepr(PyObject *self, void *unused)
{
    (void)unused;
    return Py_XNewRef(srepr_of((ExprObject *)self));
}

static Py_hash_t Expr_hash(PyObject *self)
{
    PyObject *text = srepr_of((ExprObject *)self);

    return text ? PyObject_Hash(text) : -1;
}

static PyObject *Expr_richcompare(PyObject *a, PyObject *b, int op)
{
    ExprObject *x = (ExprObject *)a, *y = (ExprObject *)b;

    if ((op != Py_EQ && op != Py_NE) || Py_TYPE(a) != Py_TYPE(b))
        Py_RETURN_NOTIMPLEMENTED;
    if (x->pool == y->pool)
        return PyBool_FromLong((x->expr == y->expr) == (op == Py_EQ));
    if (!srepr_of(x) || !srepr_of(y))
        return NULL;
    return PyObject_RichCompare(x->srepr, y->srepr, op);
}

static PyObject *Expr_reduce(PyObject *self, PyObject *unused)
{
    (void)unused;
    PyObject *text = srepr_of((ExprObject *)self);
    return text ? Py_BuildValue("O(O)", Py_TYPE(self), text) : NULL;
}

static PyObject *Expr_copy(PyObject *self, PyObject *unused)
{
    (void)unused;
    return Py_NewRef(self);
}

/* ---- parts ---- */

static PyObject *Expr_get_op(PyObject *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(fe_expr_op_name((fe_expr_op)((ExprObject *)self)->expr->op));
}

static PyObject *Expr_get_args(PyObject *o, void *unused)
{
    ExprObject *self = (ExprObject *)o;
    PyObject *tuple = PyTuple_New((Py_ssize_t)self->expr->count);

    (void)unused;
    for (uint32_t i = 0; tuple && i < self->expr->count; i++) {
        PyObject *part = expr_new(Py_TYPE(o), self->pool, self->expr->args[i]);
        if (part)
            PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, part);
        else
            Py_CLEAR(tuple);
    }
    return tuple;
}

/* Add a symbol's name to the keys of a dict, which keeps them in order and once. */
static int collect_symbol(void *names, fe_expr part)
{
    if (part->op != FE_EXPR_SYMBOL)
        return 0;
    PyObject *name = PyUnicode_FromStringAndSize(part->as.symbol.name, (Py_ssize_t)part->as.symbol.len);
    int result = name ? PyDict_SetItem(names, name, Py_None) : -1;
    Py_XDECREF(name);
    return result;
}

static PyObject *Expr_get_symbols(PyObject *self, void *unused)
{
    PyObject *names = PyDict_New(), *result = NULL;

    (void)unused;
    if (names && fe_expr_walk(((ExprObject *)self)->expr, collect_symbol, names) == 0)
        result = PySequence_Tuple(names);
    Py_XDECREF(names);
    return result;
}

static PyObject *Expr_get_name(PyObject *self, void *unused)
{
    fe_expr e = ((ExprObject *)self)->expr;

    (void)unused;
    if (e->op != FE_EXPR_SYMBOL)
        Py_RETURN_NONE;
    return PyUnicode_FromStringAndSize(e->as.symbol.name, (Py_ssize_t)e->as.symbol.len);
}

static PyObject *Expr_get_assumptions(PyObject *self, void *unused)
{
    fe_expr e = ((ExprObject *)self)->expr;
    PyObject *dict = PyDict_New();

    (void)unused;
    for (unsigned i = 0; dict && e->op == FE_EXPR_SYMBOL && i < e->as.symbol.count; i++) {
        unsigned a = e->as.symbol.assumptions[i];
        if (PyDict_SetItemString(dict, fe_expr_assumption(a / 2), a % 2 ? Py_True : Py_False) < 0)
            Py_CLEAR(dict);
    }
    return dict;
}

/* ---- values ---- */

static PyObject *value_object(const fe_expr_value *v)
{
    switch (v->kind) {
    case FE_VALUE_INT:
        return PyLong_FromLongLong(v->p);
    case FE_VALUE_BOOL:
        return PyBool_FromLong(v->p != 0);
    case FE_VALUE_RATIO:
        return PyFloat_FromDouble((double)v->p / (double)v->q);
    default:
        return PyFloat_FromDouble(v->real);
    }
}

int expr_value_of(PyObject *o, fe_expr_value *out)
{
    if (PyFloat_Check(o)) {
        *out = (fe_expr_value){.kind = FE_VALUE_REAL, .real = PyFloat_AS_DOUBLE(o)};
        return 0;
    }
    PyObject *number = PyNumber_Index(o);
    if (!number)
        return -1;
    long long p = PyLong_AsLongLong(number);
    Py_DECREF(number);
    *out = (fe_expr_value){.kind = PyBool_Check(o) ? FE_VALUE_BOOL : FE_VALUE_INT, .p = p, .q = 1};
    return p == -1 && PyErr_Occurred() ? -1 : 0;
}

PyObject *expr_convert_named(PyObject *args, PyObject *kwargs, const char *format, expr_converter convert, void *ctx)
{
    PyObject *given = NULL, *merged = PyDict_New(), *result = PyDict_New(), *items = NULL;
    bool done = false;

    if (!merged || !result || !PyArg_ParseTuple(args, format, &given))
        goto done;
    if (given && given != Py_None && !PyMapping_Check(given)) {
        PyErr_Format(PyExc_TypeError, "a mapping from the names of symbols is wanted, not %.100s",
                     Py_TYPE(given)->tp_name);
        goto done;
    }
    if ((given && given != Py_None && PyDict_Update(merged, given) < 0) ||
        (kwargs && PyDict_Update(merged, kwargs) < 0) || !(items = PyDict_Items(merged)))
        goto done;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items); i++) {
        PyObject *pair = PyList_GET_ITEM(items, i), *name = NULL, *bytes = NULL;
        if (!PyUnicode_Check(PyTuple_GET_ITEM(pair, 0))) {
            PyErr_SetString(PyExc_TypeError, "the names of symbols are strings");
            goto done;
        }
        /* Exactly a str, whose hash and equality are no user's. */
        name = PyUnicode_FromObject(PyTuple_GET_ITEM(pair, 0));
        bytes = name ? convert(ctx, PyTuple_GET_ITEM(pair, 1)) : NULL;
        int failed = !bytes || PyDict_SetItem(result, name, bytes) < 0;
        Py_XDECREF(name);
        Py_XDECREF(bytes);
        if (failed)
            goto done;
    }
    done = true;
done:
    Py_XDECREF(merged);
    Py_XDECREF(items);
    if (!done)
        Py_CLEAR(result);
    return result;
}

bool expr_find_named(PyObject *named, fe_expr symbol, void *out, size_t size)
{
    PyObject *name = PyUnicode_FromStringAndSize(symbol->as.symbol.name, (Py_ssize_t)symbol->as.symbol.len);
    PyObject *bytes = name ? PyDict_GetItemWithError(named, name) : NULL;

    if (bytes)
        memcpy(out, PyBytes_AS_STRING(bytes), size);
    Py_XDECREF(name);
    return bytes != NULL;
}

static PyObject *convert_value(void *unused, PyObject *given)
{
    fe_expr_value v;

    (void)unused;
    return expr_value_of(given, &v) < 0 ? NULL : PyBytes_FromStringAndSize((const char *)&v, sizeof v);
}

static bool lookup(void *values, fe_expr symbol, fe_expr_value *out)
{
    return expr_find_named(values, symbol, out, sizeof *out);
}

PyObject *expr_raise(const fe_expr_error *err)
{
    if (PyErr_Occurred())
        return NULL;
    if (err->fault == FE_EXPR_NO_MEMORY)
        return PyErr_NoMemory();
    PyErr_SetString(err->fault == FE_EXPR_RANGE      ? PyExc_OverflowError
                    : err->fault == FE_EXPR_DIVISION ? PyExc_ZeroDivisionError
                    : err->fault == FE_EXPR_UNKNOWN  ? PyExc_KeyError
                                                     : PyExc_ValueError,
                    err->message);
    return NULL;
}

PyDoc_STRVAR(evaluate_doc,
             "evaluate($self, values=None, /, **symbols)\n--\n\n"
             "The value of the expression for values of its symbols, as an int, float or bool.\n\n"
             "Integers are exact, to 64 bits; a ratio that is no integer comes out as a float.\n\n"
             "Args:\n"
             "    values: a mapping from the names of symbols to int, float or bool.\n"
             "    symbols: the same as keywords; these go first.\n\n"
             "Raises:\n"
             "    KeyError: a symbol has no value.\n"
             "    OverflowError: a result does not fit in 64 bits.\n"
             "    ZeroDivisionError: a division by zero.\n"
             "    ValueError: a result that is not a number, or a function used where it has no meaning.\n\n"
             "Example:\n"
             "    >>> from fastexport._core import Expr\n"
             "    >>> Expr('2*s0 + 2', 'str').evaluate(s0=5)\n"
             "    12");

static PyObject *Expr_evaluate(PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *values = expr_convert_named(args, kwargs, "|O:evaluate", convert_value, NULL), *result = NULL;
    fe_expr_value v;
    fe_expr_error err;

    if (!values)
        return NULL;
    if (fe_expr_eval(((ExprObject *)self)->expr, lookup, values, &v, &err) < 0)
        expr_raise(&err);
    else if (!PyErr_Occurred())
        result = value_object(&v);
    Py_DECREF(values);
    return result;
}

/* The value of a leaf; anything else has none. */
static PyObject *Expr_get_value(PyObject *self, void *unused)
{
    fe_expr e = ((ExprObject *)self)->expr;
    fe_expr_value v;
    fe_expr_error err;

    (void)unused;
    if (e->op == FE_EXPR_SYMBOL || e->op >= FE_EXPR_ADD)
        Py_RETURN_NONE;
    return fe_expr_eval(e, NULL, NULL, &v, &err) < 0 ? expr_raise(&err) : value_object(&v);
}

/* ---- the type ---- */

PyDoc_STRVAR(expr_doc,
             "Expr(text, form='srepr')\n--\n\n"
             "A symbolic expression: a size, number or condition that depends on symbols.\n\n"
             "The text is read by a grammar and never evaluated. str() gives the text that sympy would print.\n\n"
             "Args:\n"
             "    text: the expression.\n"
             "    form: 'srepr', as files have it, or 'str', as sympy prints it.\n\n"
             "Raises:\n"
             "    ValueError: the text is no expression, is nested too deep, or means nothing.\n\n"
             "Example:\n"
             "    >>> from fastexport._core import Expr\n"
             "    >>> e = Expr(\"Add(Symbol('s17', positive=True, integer=True), Integer(1))\")\n"
             "    >>> str(e), e.op, e.symbols, e.evaluate(s17=4)\n"
             "    ('s17 + 1', 'Add', ('s17',), 5)");

static PyMethodDef Expr_methods[] = {
    {"parse", (PyCFunction)(void (*)(void))Expr_parse, METH_FASTCALL | METH_KEYWORDS | METH_CLASS, parse_doc},
    {"evaluate", (PyCFunction)(void (*)(void))Expr_evaluate, METH_VARARGS | METH_KEYWORDS, evaluate_doc},
    {"make", Expr_make, METH_VARARGS | METH_CLASS, Expr_make_doc},
    {"simplify", Expr_simplify, METH_NOARGS, Expr_simplify_doc},
    {"subs", (PyCFunction)(void (*)(void))Expr_subs, METH_VARARGS | METH_KEYWORDS, Expr_subs_doc},
    {"bounds", (PyCFunction)(void (*)(void))Expr_bounds, METH_VARARGS | METH_KEYWORDS, Expr_bounds_doc},
    {"__reduce__", Expr_reduce, METH_NOARGS, NULL},
    {"__copy__", Expr_copy, METH_NOARGS, NULL},
    {"__deepcopy__", Expr_copy, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef Expr_getset[] = {
    {"srepr", Expr_get_srepr, NULL, "its text in the form of sympy's srepr", NULL},
    {"op", Expr_get_op, NULL, "its function, or what kind of leaf it is: 'Add', 'Symbol', 'Integer' ...", NULL},
    {"args", Expr_get_args, NULL, "the arguments of its function", NULL},
    {"symbols", Expr_get_symbols, NULL, "the names of its symbols, each once, in the order of the text", NULL},
    {"name", Expr_get_name, NULL, "the name of a symbol; None for anything else", NULL},
    {"assumptions", Expr_get_assumptions, NULL, "what is assumed of a symbol: {'positive': True, ...}", NULL},
    {"value", Expr_get_value, NULL, "the value of a number or truth value; None for anything else", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot expr_slots[] = {
    {Py_tp_doc, (void *)expr_doc},
    {Py_tp_new, Expr_new},
    {Py_tp_dealloc, Expr_dealloc},
    {Py_tp_str, Expr_str},
    {Py_tp_repr, Expr_str},
    {Py_tp_hash, Expr_hash},
    {Py_tp_richcompare, Expr_richcompare},
    {Py_tp_methods, Expr_methods},
    {Py_tp_getset, Expr_getset},
    {0, NULL},
};

PyType_Spec expr_spec = {
    .name = "fastexport._core.Expr",
    .basicsize = sizeof(ExprObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = expr_slots,
};
