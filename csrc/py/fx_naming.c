/* fx_naming.c - names for new nodes of a live torch.fx graph: create_name of its _Namespace, in bulk. */
#include "fx_edit.h"

static PyObject *numbered(const char *base, size_t len, long long number)
{
    char digits[24], *at = digits + sizeof digits;

    for (unsigned long long rest = (unsigned long long)number;; rest /= 10) {
        *--at = (char)('0' + rest % 10);
        if (rest < 10)
            break;
    }
    *--at = '_';
    size_t tail = (size_t)(digits + sizeof digits - at);
    PyObject *text = PyUnicode_New((Py_ssize_t)(len + tail), 127);
    if (text) {
        memcpy(PyUnicode_DATA(text), base, len);
        memcpy((char *)PyUnicode_DATA(text) + len, at, tail);
    }
    return text;
}

/* Put the open counter back into the namespace. */
int fx_naming_close(fx_naming *g)
{
    PyObject *count = g->base ? PyLong_FromLongLong(g->count) : NULL;
    int result = 0;

    if (g->base)
        result = count ? PyDict_SetItem(g->tables.base_count, g->base, count) : -1;
    Py_XDECREF(count);
    if (result == 0)
        g->base = g->candidate = NULL;
    return result;
}

/* torch.fx's own rule, for counters beyond 64 bits. */
static int name_by_method(fx_naming *g, fx_name *n)
{
    if (fx_naming_close(g) < 0)
        return -1;
    n->name = PyObject_CallMethod(g->tables.namespace, "create_name", "OO", n->candidate, Py_None);
    return n->name ? 0 : -1;
}

/* Take base out of the namespace: 1, 0 when its counter is beyond 64 bits, or -1. */
static int open_counter(fx_naming *g, fx_name *n, PyObject *base)
{
    PyObject *count = PyDict_GetItemWithError(g->tables.base_count, base);
    int overflow = 0;

    g->count = 0;
    if (!count && PyErr_Occurred())
        return -1;
    if (count && !PyLong_CheckExact(count))
        return 0;
    if (count)
        g->count = PyLong_AsLongLongAndOverflow(count, &overflow);
    if (overflow || g->count < 0 || g->count == INT64_MAX)
        return 0;
    n->base = Py_NewRef(base);
    n->old_count = Py_XNewRef(count);
    g->base = base;
    g->candidate = n->candidate;
    return 1;
}

static int is_used(const fx_naming *g, PyObject *name)
{
    return name ? PySet_Contains(g->tables.used_names, name) : -1;
}

/* The first free name of the open base, counting on from number. */
static PyObject *next_free(fx_naming *g, long long number)
{
    const char *base = PyUnicode_DATA(g->base);
    size_t len = (size_t)PyUnicode_GET_LENGTH(g->base);
    PyObject *name = NULL;
    int used;

    do {
        number++;
        Py_XSETREF(name, numbered(base, len, number));
        used = is_used(g, name);
    } while (used == 1);
    if (used < 0)
        Py_CLEAR(name);
    g->count = number;
    return name;
}

/* _Namespace.create_name of torch.fx for a candidate that is split into name, base and number: 1, 0 when the rule has to be
 * Python's, or -1. */
static int find_name(fx_naming *g, fx_name *n, PyObject *name, PyObject *base, long long number)
{
    int used = is_used(g, name), opened = used < 0 || fx_naming_close(g) < 0 ? -1 : open_counter(g, n, base);

    Py_INCREF(name);
    if (opened > 0 && (number < 0 || used)) {
        PyObject *hidden = PyDict_GetItemWithError(g->st->fx.illegal_names, name);
        if (!hidden && PyErr_Occurred())
            opened = -1;
        else if (used || (hidden && hidden != Py_None))
            Py_SETREF(name, next_free(g, g->count));
    } else if (opened > 0) {
        g->count = number;
    }
    if (opened > 0 && name && PySet_Add(g->tables.used_names, name) == 0) {
        n->name = name;
        return 1;
    }
    Py_XDECREF(name);
    return opened == 0 ? 0 : -1;
}

/* A plain ASCII candidate, split in C. */
static int find_plain_name(fx_naming *g, fx_name *n)
{
    size_t len = (size_t)PyUnicode_GET_LENGTH(n->candidate);
    char small[256], *buffer = len + 2 > sizeof small ? PyMem_RawMalloc(len + 2) : small;
    PyObject *name, *base = NULL;
    int found = -1;

    if (!buffer) {
        PyErr_NoMemory();
        return -1;
    }
    fe_candidate c = fe_name_split(PyUnicode_DATA(n->candidate), len, buffer);
    name = PyUnicode_FromStringAndSize(c.name, (Py_ssize_t)c.name_len);
    if (name && (base = PyUnicode_FromStringAndSize(c.base, (Py_ssize_t)c.base_len)))
        found = c.number == INT64_MAX ? 0 : find_name(g, n, name, base, c.number);
    Py_XDECREF(base);
    Py_XDECREF(name);
    if (buffer != small)
        PyMem_RawFree(buffer);
    return found;
}

/* Any other, split by Python's rules. */
static int find_odd_name(fx_naming *g, fx_name *n)
{
    PyObject *parts = PyObject_CallOneArg(g->st->split_name, n->candidate), *name, *base;
    long long number;
    int found = -1;

    if (parts && PyArg_ParseTuple(parts, "ULU", &base, &number, &name))
        found = number == INT64_MAX || !PyUnicode_IS_ASCII(base) ? 0 : find_name(g, n, name, base, number);
    Py_XDECREF(parts);
    return found;
}

/* torch.fx takes a newline at the end into the name; ours are rid of it. */
static bool ends_in_newline(PyObject *candidate)
{
    Py_ssize_t len = PyUnicode_Check(candidate) ? PyUnicode_GET_LENGTH(candidate) : 0;

    return len && PyUnicode_READ_CHAR(candidate, len - 1) == '\n';
}

/* The same candidate again: its own name is taken, so counting goes on. */
static int name_again(fx_naming *g, fx_name *n)
{
    PyObject *name = next_free(g, g->count);

    if (!name || PySet_Add(g->tables.used_names, name) < 0) {
        Py_XDECREF(name);
        return -1;
    }
    n->name = name;
    return 0;
}

int fx_naming_give(fx_naming *g, fx_name *n)
{
    if (n->candidate == g->candidate && g->count < INT64_MAX - 1)
        return name_again(g, n);
    bool plain = PyUnicode_CheckExact(n->candidate) && PyUnicode_IS_ASCII(n->candidate);
    int found = ends_in_newline(n->candidate) ? 0 : plain ? find_plain_name(g, n) : find_odd_name(g, n);
    return found == 0 ? name_by_method(g, n) : found < 0 ? -1 : 0;
}

void fx_naming_undo(fx_naming *g, const fx_name *n)
{
    if (n->name)
        PySet_Discard(g->tables.used_names, n->name);
    if (n->old_count)
        PyDict_SetItem(g->tables.base_count, n->base, n->old_count); /* which is there, so this takes no memory */
    else if (n->base)
        fx_discard(g->tables.base_count, n->base);
    PyErr_Clear();
}

void fx_name_clear(fx_name *n)
{
    Py_CLEAR(n->candidate);
    Py_CLEAR(n->name);
    Py_CLEAR(n->base);
    Py_CLEAR(n->old_count);
}
