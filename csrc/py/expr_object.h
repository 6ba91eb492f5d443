/* expr_object.h - the type Expr, as its two files share it. */
#ifndef FE_PY_EXPR_OBJECT_H
#define FE_PY_EXPR_OBJECT_H

#include "module.h"

#include "expr.h"

typedef struct {
    fe_exprs *exprs;
    Py_ssize_t owners;
} expr_pool;

typedef struct {
    PyObject_HEAD
    expr_pool *pool;
    fe_expr expr;
    PyObject *srepr; /* made when it is first asked for; NULL until then */
} ExprObject;

/* ---- expr.c ---- */

expr_pool *expr_pool_new(void); /* with one owner */
void expr_pool_release(expr_pool *pool);
/* An Expr of an expression of the pool, which it becomes an owner of. */
PyObject *expr_new(PyTypeObject *type, expr_pool *pool, fe_expr e);
int expr_value_of(PyObject *o, fe_expr_value *out); /* of an int, float or bool */
PyObject *expr_raise(const fe_expr_error *err);     /* always NULL; keeps an exception that is set */

/* The arguments `(mapping=None, /, **symbols)` of a method as a dict from name to bytes, which convert makes of each value:
 * all before anything is computed, so that no Python code runs then. format: of PyArg_ParseTuple. */
typedef PyObject *(*expr_converter)(void *ctx, PyObject *given);
PyObject *expr_convert_named(PyObject *args, PyObject *kwargs, const char *format, expr_converter convert, void *ctx);
/* The bytes of a symbol's name into out; false: none, or an exception is set. */
bool expr_find_named(PyObject *named, fe_expr symbol, void *out, size_t size);

/* ---- expr_ops.c: methods ---- */

extern const char Expr_make_doc[], Expr_simplify_doc[], Expr_subs_doc[], Expr_bounds_doc[];
PyObject *Expr_make(PyObject *type, PyObject *args);
PyObject *Expr_simplify(PyObject *self, PyObject *unused);
PyObject *Expr_subs(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *Expr_bounds(PyObject *self, PyObject *args, PyObject *kwargs);

#endif
