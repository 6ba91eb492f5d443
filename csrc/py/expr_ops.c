/* expr_ops.c - expressions made of others: calls, simplified forms, symbols replaced; and their ranges. See expr.c.
 *
 * Each result has a pool of its own, which holds its parts and what was put together on the way; so however many are made
 * of each other, one that is dropped is gone.
 */
#include "expr_object.h"

#include <math.h>

/* The pool's expression of an Expr, int, float or bool. NULL: an exception is set. */
static fe_expr expr_of(fe_exprs *pool, PyTypeObject *type, PyObject *o)
{
    fe_expr_error err = {.fault = FE_EXPR_OK};
    fe_expr e = NULL;
    fe_expr_value v;
    char text[64];

    if (Py_TYPE(o) == type) {
        e = fe_expr_copy(pool, ((ExprObject *)o)->expr, &err);
        return e ? e : (expr_raise(&err), NULL);
    }
    if (expr_value_of(o, &v) < 0)
        return NULL;
    if (v.kind == FE_VALUE_INT) {
        e = fe_expr_integer(pool, v.p, &err);
    } else if (v.kind == FE_VALUE_REAL && isnan(v.real)) {
        PyErr_SetString(PyExc_ValueError, "an expression holds no NaN");
        return NULL;
    } else {
        const char *named = v.kind == FE_VALUE_BOOL ? (v.p ? "true" : "false") : v.real > 0 ? "oo" : "-oo";
        int len = v.kind == FE_VALUE_BOOL || isinf(v.real) ? snprintf(text, sizeof text, "%s", named) : 0;
        e = len ? fe_expr_parse_srepr(pool, text, (size_t)len, 2, &err) : fe_expr_float(pool, v.real, &err);
    }
    return e ? e : (expr_raise(&err), NULL);
}

static PyObject *result_of(PyTypeObject *type, expr_pool *pool, fe_expr e, const fe_expr_error *err)
{
    PyObject *result = e && !PyErr_Occurred() ? expr_new(type, pool, e) : expr_raise(err);

    expr_pool_release(pool);
    return result;
}

/* ---- calls ---- */

const char Expr_make_doc[] =
    "make($type, op, /, *args)\n--\n\n"
    "A call of a function, in the form that sympy and torch give it: constants computed, like terms put together,\n"
    "exact divisions carried out, comparisons decided where the assumptions of symbols do.\n\n"
    "Args:\n"
    "    op: the function, named as in files: 'Add', 'Mul', 'FloorDiv', 'Max', 'LessThan', ...\n"
    "    args: Expr, int, float or bool.\n\n"
    "Raises:\n"
    "    ValueError: no such function, or arguments that it can't have.\n"
    "    OverflowError: a constant does not fit in 64 bits, or the expression is too large.\n"
    "    ZeroDivisionError: a division by zero.\n\n"
    "Example:\n"
    "    >>> from fastexport._core import Expr\n"
    "    >>> s = Expr(\"Symbol('s0', positive=True, integer=True)\")\n"
    "    >>> Expr.make('Add', Expr.make('Mul', 2, s), s, 1)\n"
    "    3*s0 + 1\n"
    "    >>> Expr.make('FloorDiv', Expr.make('Mul', 6, s), 4), Expr.make('StrictGreaterThan', s, 0)\n"
    "    (((3*s0)//2), True)";

PyObject *Expr_make(PyObject *type, PyObject *args)
{
    Py_ssize_t count = PyTuple_GET_SIZE(args) - 1, len;
    fe_expr_error err = {.fault = FE_EXPR_OK};
    fe_expr_op op;
    fe_expr e = NULL;

    if (count < 0 || !PyUnicode_Check(PyTuple_GET_ITEM(args, 0))) {
        PyErr_SetString(PyExc_TypeError, "make() takes the name of a function, and its arguments");
        return NULL;
    }
    const char *name = PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(args, 0), &len);
    if (!name)
        return NULL;
    if (!fe_expr_find_function(name, (size_t)len, &op) || op == FE_EXPR_COND_PAIR)
        return PyErr_Format(PyExc_ValueError, "unknown function %.100s", name);
    expr_pool *pool = expr_pool_new();
    fe_expr *parts = pool ? PyMem_New(fe_expr, count ? (size_t)count : 1) : NULL;
    if (!parts) {
        if (pool)
            expr_pool_release(pool);
        return PyErr_NoMemory();
    }
    Py_ssize_t i = 0;
    while (i < count && (parts[i] = expr_of(pool->exprs, (PyTypeObject *)type, PyTuple_GET_ITEM(args, i + 1))))
        i++;
    if (i == count && count < UINT32_MAX)
        e = fe_expr_make(pool->exprs, op, parts, (uint32_t)count, &err);
    PyMem_Free(parts);
    return result_of((PyTypeObject *)type, pool, e, &err);
}

/* ---- simplify, subs ---- */

const char Expr_simplify_doc[] =
    "simplify($self, /)\n--\n\n"
    "The expression with each part made anew, in the form that sympy gives it: Add(Integer(1), Integer(2)) becomes "
    "3.\n\n"
    "Raises:\n"
    "    OverflowError, ZeroDivisionError: a constant part does not fit, or divides by zero.";

PyObject *Expr_simplify(PyObject *self, PyObject *unused)
{
    fe_expr_error err;
    expr_pool *pool = expr_pool_new();

    (void)unused;
    if (!pool)
        return NULL;
    return result_of(Py_TYPE(self), pool, fe_expr_simplify(pool->exprs, ((ExprObject *)self)->expr, &err), &err);
}

typedef struct {
    fe_exprs *pool;
    PyTypeObject *type;
} target;

static PyObject *convert_expr(void *ctx, PyObject *given)
{
    const target *t = ctx;
    fe_expr e = expr_of(t->pool, t->type, given);

    return e ? PyBytes_FromStringAndSize((const char *)&e, sizeof e) : NULL;
}

static fe_expr find_expr(void *named, fe_expr symbol)
{
    fe_expr e;

    return expr_find_named(named, symbol, &e, sizeof e) ? e : NULL;
}

const char Expr_subs_doc[] = "subs($self, values=None, /, **symbols)\n--\n\n"
                             "The expression with symbols replaced, all at once, and simplified.\n\n"
                             "Args:\n"
                             "    values: a mapping from the names of symbols to Expr, int, float or bool.\n"
                             "    symbols: the same as keywords; these go first.\n\n"
                             "Raises:\n"
                             "    OverflowError, ZeroDivisionError, ValueError: as make().\n\n"
                             "Example:\n"
                             "    >>> from fastexport._core import Expr\n"
                             "    >>> Expr('2*s0 + s1', 'str').subs(s0=3)\n"
                             "    s1 + 6";

PyObject *Expr_subs(PyObject *self, PyObject *args, PyObject *kwargs)
{
    fe_expr_error err = {.fault = FE_EXPR_OK};
    expr_pool *pool = expr_pool_new();

    if (!pool)
        return NULL;
    target t = {pool->exprs, Py_TYPE(self)};
    PyObject *named = expr_convert_named(args, kwargs, "|O:subs", convert_expr, &t);
    fe_expr e = NULL;
    if (named)
        e = fe_expr_substitute(pool->exprs, ((ExprObject *)self)->expr, find_expr, named, &err);
    Py_XDECREF(named);
    return result_of(Py_TYPE(self), pool, e, &err);
}

/* ---- bounds ---- */

/* An end of a range of integers: None and what 64 bits don't hold is no end. */
static int read_end(PyObject *o, bool *has, int64_t *out)
{
    int overflow = 0;

    *has = o != Py_None;
    *out = 0;
    if (!*has)
        return 0;
    PyObject *number = PyNumber_Index(o);
    long long value = number ? PyLong_AsLongLongAndOverflow(number, &overflow) : -1;
    Py_XDECREF(number);
    if (!number || (value == -1 && PyErr_Occurred()))
        return -1;
    *has = !overflow;
    *out = value;
    return overflow;
}

static int read_int_range(PyObject *lower, PyObject *upper, fe_expr_range *out)
{
    int below = read_end(lower, &out->has_lower, &out->lower), above = 0;

    if (!PyErr_Occurred())
        above = read_end(upper, &out->has_upper, &out->upper);
    if (PyErr_Occurred())
        return -1;
    if (below > 0) { /* above all that 64 bits hold */
        out->has_lower = true;
        out->lower = INT64_MAX;
    }
    if (above < 0) {
        out->has_upper = true;
        out->upper = INT64_MIN;
    }
    out->kind = PyBool_Check(lower) && PyBool_Check(upper) ? FE_VALUE_BOOL : FE_VALUE_INT;
    return 0;
}

static double real_end(PyObject *o, double otherwise)
{
    return o == Py_None ? otherwise : PyFloat_AsDouble(o);
}

static PyObject *convert_range(void *unused, PyObject *given)
{
    fe_expr_range r = {.kind = FE_VALUE_INT};

    (void)unused;
    if (!PyTuple_Check(given) || PyTuple_GET_SIZE(given) != 2)
        return PyErr_Format(PyExc_TypeError, "a range is a ValueRange, not %.100s", Py_TYPE(given)->tp_name);
    PyObject *lower = PyTuple_GET_ITEM(given, 0), *upper = PyTuple_GET_ITEM(given, 1);
    if (PyFloat_Check(lower) || PyFloat_Check(upper)) {
        r.kind = FE_VALUE_REAL;
        r.low = real_end(lower, -(double)INFINITY);
        r.high = PyErr_Occurred() ? 0 : real_end(upper, (double)INFINITY);
        if (PyErr_Occurred())
            return NULL;
        if (!(r.low <= r.high))
            return PyErr_Format(PyExc_ValueError, "the range of a symbol is empty");
    } else {
        if (read_int_range(lower, upper, &r) < 0)
            return NULL;
        if (r.has_lower && r.has_upper && r.lower > r.upper)
            return PyErr_Format(PyExc_ValueError, "the range of a symbol is empty");
    }
    return PyBytes_FromStringAndSize((const char *)&r, sizeof r);
}

static bool find_range(void *named, fe_expr symbol, fe_expr_range *out)
{
    return expr_find_named(named, symbol, out, sizeof *out);
}

static PyObject *range_object(const fe_expr_range *r)
{
    PyObject *module = PyImport_ImportModule("fastexport._ranges"), *result = NULL, *lower, *upper;
    PyObject *type = module ? PyObject_GetAttrString(module, "ValueRange") : NULL;

    Py_XDECREF(module);
    if (!type)
        return NULL;
    if (r->kind == FE_VALUE_REAL) {
        lower = PyFloat_FromDouble(r->low);
        upper = PyFloat_FromDouble(r->high);
    } else if (r->kind == FE_VALUE_BOOL) {
        lower = PyBool_FromLong(r->lower != 0);
        upper = PyBool_FromLong(r->upper != 0);
    } else {
        lower = r->has_lower ? PyLong_FromLongLong(r->lower) : Py_NewRef(Py_None);
        upper = r->has_upper ? PyLong_FromLongLong(r->upper) : Py_NewRef(Py_None);
    }
    if (lower && upper)
        result = PyObject_CallFunctionObjArgs(type, lower, upper, NULL);
    Py_DECREF(type);
    Py_XDECREF(lower);
    Py_XDECREF(upper);
    return result;
}

const char Expr_bounds_doc[] =
    "bounds($self, ranges=None, /, **symbols)\n--\n\n"
    "A ValueRange that holds each value that evaluate() can give for values within the ranges of the symbols.\n\n"
    "Each part is bounded for itself, so it may be wider than need be; simplify() first.\n\n"
    "Args:\n"
    "    ranges: a mapping from the names of symbols to ValueRange. A symbol without one may be whatever its\n"
    "        assumptions allow.\n"
    "    symbols: the same as keywords; these go first.\n\n"
    "Raises:\n"
    "    TypeError: a range is none.\n"
    "    ValueError: a range is empty.\n\n"
    "Example:\n"
    "    >>> from fastexport import Expr, ValueRange\n"
    "    >>> Expr('(s0//2) + 1', 'str').bounds({'s0': ValueRange(2, 9)})\n"
    "    VR[2, 5]";

PyObject *Expr_bounds(PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *named = expr_convert_named(args, kwargs, "|O:bounds", convert_range, NULL);
    fe_expr_range r;

    if (!named)
        return NULL;
    fe_expr_bounds(((ExprObject *)self)->expr, find_range, named, &r);
    Py_DECREF(named);
    return PyErr_Occurred() ? NULL : range_object(&r);
}
