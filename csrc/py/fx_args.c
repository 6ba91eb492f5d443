/* fx_args.c - the argument trees of live torch.fx nodes: looked through, mapped, rewritten in place.
 *
 * Arguments are immutable; but a tuple or list that nobody but its node holds may be rewritten in place, which nobody can
 * tell from a new one.
 */
#include "fx_edit.h"

/* ---- looked through --------------------------------------------------------------------------------------------------- */

static int too_deep(void)
{
    PyErr_Format(PyExc_RecursionError, "arguments are nested more than %d deep", FE_MAX_DEPTH);
    return -1;
}

static int each_node(const fx_layout *l, PyObject *o, int depth, fx_visit *visit, void *ctx)
{
    const PySliceObject *slice = (PySliceObject *)o;
    PyObject *key, *value;
    Py_ssize_t at = 0;
    int result = 0;

    if (!o || Py_TYPE(o)->tp_flags & FX_NO_NODE || o == Py_None)
        return 0;
    if (!(Py_TYPE(o)->tp_flags & FX_CONTAINER) && !PySlice_Check(o))
        return fx_is_node(l, o) ? visit(ctx, o) : 0;
    if (depth == FE_MAX_DEPTH)
        return too_deep();
    if (PyTuple_Check(o) || PyList_Check(o)) {
        for (Py_ssize_t i = 0; result == 0 && i < Py_SIZE(o); i++)
            result = each_node(l, PySequence_Fast_GET_ITEM(o, i), depth + 1, visit, ctx);
    } else if (PyDict_Check(o)) {
        while (result == 0 && PyDict_Next(o, &at, &key, &value))
            result = each_node(l, value, depth + 1, visit, ctx);
    } else if ((result = each_node(l, slice->start, depth + 1, visit, ctx)) == 0 &&
               (result = each_node(l, slice->stop, depth + 1, visit, ctx)) == 0) {
        result = each_node(l, slice->step, depth + 1, visit, ctx);
    }
    return result;
}

int fx_each_node(const fx_layout *l, PyObject *o, fx_visit *visit, void *ctx)
{
    return each_node(l, o, 0, visit, ctx);
}

static int met(void *ctx, PyObject *node)
{
    (void)ctx;
    (void)node;
    return 1;
}

int fx_names_node(const fx_layout *l, PyObject *o)
{
    return fx_each_node(l, o, met, NULL);
}

/* ---- mapped ------------------------------------------------------------------------------------------------------------ */

void fx_mapper_clear(fx_mapper *m)
{
    PyMem_RawFree(m->nodes);
    m->nodes = NULL;
    m->count = m->capacity = 0;
}

static int note_node(fx_mapper *m, PyObject *node)
{
    fe_error err;

    if (fe_grow(&fe_python_allocator, &m->nodes, &m->capacity, (size_t)m->count + 1, sizeof *m->nodes, &err) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    m->nodes[m->count++] = node;
    return 0;
}

/* Item i of a tuple or list, mapped: a new reference; *changed tells whether it is another object. */
static PyObject *map_item(fx_mapper *m, PyObject *o, Py_ssize_t i, bool *changed)
{
    PyObject *item = i < Py_SIZE(o) ? Py_XNewRef(PySequence_Fast_GET_ITEM(o, i)) : NULL;

    if (!item) {
        PyErr_SetString(PyExc_ValueError, "an argument holds an empty (NULL) item");
        return NULL;
    }
    PyObject *result = fx_map(m, item);
    *changed |= result != item;
    Py_DECREF(item);
    return result;
}

static PyObject *map_tuple(fx_mapper *m, PyObject *o)
{
    bool changed = !PyTuple_CheckExact(o);
    PyObject *t = PyTuple_New(PyTuple_GET_SIZE(o)), *fields = NULL;

    for (Py_ssize_t i = 0; t && i < PyTuple_GET_SIZE(o); i++) {
        PyObject *item = map_item(m, o, i, &changed);
        if (!item)
            Py_CLEAR(t);
        else
            PyTuple_SET_ITEM(t, i, item);
    }
    if (!t)
        return NULL;
    if (!changed) {
        Py_DECREF(t);
        return Py_NewRef(o);
    }
    if (PyTuple_CheckExact(o))
        return t;
    if (lookup_attr(o, m->st->str_fields, &fields) < 0)
        Py_CLEAR(t);
    if (fields)
        Py_SETREF(t, PyObject_CallObject((PyObject *)Py_TYPE(o), t));
    Py_XDECREF(fields);
    return t;
}

static PyObject *new_container(PyObject *type, PyTypeObject *base)
{
    PyObject *none = PyTuple_New(0), *o = none ? base->tp_new((PyTypeObject *)type, none, NULL) : NULL;

    Py_XDECREF(none);
    return o;
}

static PyObject *map_list(fx_mapper *m, PyObject *o)
{
    bool changed = (PyObject *)Py_TYPE(o) != m->st->list_type;
    PyObject *list = new_container(m->st->list_type, &PyList_Type);

    for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(o); i++) {
        PyObject *item = map_item(m, o, i, &changed);
        if (!item || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    if (list && !changed)
        Py_SETREF(list, Py_NewRef(o));
    return list;
}

static PyObject *map_dict(fx_mapper *m, PyObject *o)
{
    bool changed = (PyObject *)Py_TYPE(o) != m->st->dict_type;
    PyObject *dict, *key, *value;
    Py_ssize_t at = 0;

    if (!changed && !PyDict_GET_SIZE(o))
        return Py_NewRef(o);
    dict = new_container(m->st->dict_type, &PyDict_Type);
    while (dict && PyDict_Next(o, &at, &key, &value)) {
        Py_INCREF(key);
        Py_INCREF(value);
        PyObject *mapped = fx_map(m, value);
        changed |= mapped != value;
        if (!mapped || PyDict_SetItem(dict, key, mapped) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(mapped);
        Py_DECREF(value);
        Py_DECREF(key);
    }
    if (dict && !changed)
        Py_SETREF(dict, Py_NewRef(o));
    return dict;
}

static PyObject *map_slice(fx_mapper *m, PyObject *o)
{
    PySliceObject *s = (PySliceObject *)o;
    PyObject *start = fx_map(m, s->start), *stop = start ? fx_map(m, s->stop) : NULL,
             *step = stop ? fx_map(m, s->step) : NULL;
    PyObject *slice = step ? PySlice_New(start, stop, step) : NULL;

    if (slice && start == s->start && stop == s->stop && step == s->step)
        Py_SETREF(slice, Py_NewRef(o));
    Py_XDECREF(start);
    Py_XDECREF(stop);
    Py_XDECREF(step);
    return slice;
}

static PyObject *map_leaf(fx_mapper *m, PyObject *o)
{
    if (fx_is_node(&m->st->fx, o)) {
        PyObject *node = m->new && (!m->old || o == m->old) ? m->new : o;
        return node != Py_None && note_node(m, node) < 0 ? NULL : Py_NewRef(node);
    }
    for (Py_ssize_t i = 0; !m->symbol && i < PyTuple_GET_SIZE(m->st->fx.symbols); i++) {
        if ((PyObject *)Py_TYPE(o) == PyTuple_GET_ITEM(m->st->fx.symbols, i))
            m->symbol = o;
    }
    return Py_NewRef(o);
}

PyObject *fx_map(fx_mapper *m, PyObject *o)
{
    unsigned long flags = Py_TYPE(o)->tp_flags;
    PyObject *result;

    if (flags & FX_NO_NODE || o == Py_None)
        return Py_NewRef(o);
    if (!(flags & FX_CONTAINER) && !PySlice_Check(o))
        return map_leaf(m, o);
    if (m->depth == FE_MAX_DEPTH) {
        too_deep();
        return NULL;
    }
    m->depth++;
    result = PyTuple_Check(o)  ? map_tuple(m, o)
             : PyList_Check(o) ? map_list(m, o)
             : PyDict_Check(o) ? map_dict(m, o)
                               : map_slice(m, o);
    m->depth--;
    return result;
}

PyObject *fx_map_slot(fx_mapper *m, PyObject *node, Py_ssize_t offset)
{
    PyObject *o = Py_XNewRef(fx_get(node, offset)), *result;

    if (!o) {
        PyErr_SetString(PyExc_ValueError, "a node has no arguments (torch.fx leaves it so when a constructor fails)");
        return NULL;
    }
    result = fx_map(m, o);
    Py_DECREF(o);
    return result;
}

PyObject *fx_mapped_operands(const fx_mapper *m)
{
    PyObject *dict = PyDict_New();

    for (uint32_t i = 0; dict && i < m->count; i++) {
        if (PyDict_SetItem(dict, m->nodes[i], Py_None) < 0)
            Py_CLEAR(dict);
    }
    return dict;
}

/* ---- rewritten in place -------------------------------------------------------------------------------------------------- */

static bool is_match(const fx_layout *l, PyObject *o, PyObject *old)
{
    return old ? o == old : fx_is_node(l, o);
}

/* Whether only its node holds a container. From 3.14 on a count of one no longer says so, and tuples keep their hash. */
static bool is_unshared(PyObject *o)
{
#if PY_VERSION_HEX >= 0x030E0000
    (void)o;
    return false;
#else
    return Py_REFCNT(o) == 1;
#endif
}

static bool may_rewrite(const module_state *st, PyObject *o, PyObject *old, bool *names, int depth)
{
    unsigned long flags = Py_TYPE(o)->tp_flags;
    bool inside = false;

    if (flags & FX_NO_NODE || o == Py_None)
        return true;
    if (!(flags & FX_CONTAINER) && !PySlice_Check(o)) {
        *names |= is_match(&st->fx, o, old);
        return true;
    }
    if (PyDict_Check(o) || PySlice_Check(o))
        return PyDict_Check(o) && !PyDict_GET_SIZE(o);
    if (depth == FE_MAX_DEPTH)
        return false;
    for (Py_ssize_t i = 0; i < Py_SIZE(o); i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(o, i);
        if (!item || !may_rewrite(st, item, old, &inside, depth + 1))
            return false;
    }
    *names |= inside;
    return !inside || (is_unshared(o) && (PyTuple_CheckExact(o) || (PyObject *)Py_TYPE(o) == st->list_type));
}

bool fx_may_rewrite(const module_state *st, PyObject *o, PyObject *old, bool *names)
{
    return may_rewrite(st, o, old, names, 0);
}

void fx_rewrite(const module_state *st, PyObject *o, PyObject *old, PyObject *new)
{
    PyObject **items = PySequence_Fast_ITEMS(o);

    for (Py_ssize_t i = 0; i < Py_SIZE(o); i++) {
        PyObject *item = items[i];
        if (PyTuple_Check(item) || PyList_Check(item)) {
            fx_rewrite(st, item, old, new);
        } else if (is_match(&st->fx, item, old)) {
            items[i] = Py_NewRef(new);
            Py_DECREF(item);
        }
    }
}
