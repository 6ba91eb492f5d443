/* containers.c - copies of plain containers, for meta that must not be shared between a node and its copy.
 *
 * Dicts, lists, sets and tuples are copied all the way down; what they hold otherwise (tensors, modules, strings) stays
 * the same object. One memo serves a whole graph, so what nodes share in the source they share in the copy.
 */
#include "module.h"

static bool is_container(PyObject *o)
{
    return PyTuple_CheckExact(o) || PyDict_Check(o) || PyList_CheckExact(o) || PySet_Check(o);
}

/* An empty container of the same class, which may be a subclass with settings of its own (defaultdict). */
static PyObject *emptied_copy(PyObject *o)
{
    PyObject *copy = PyObject_CallMethod(o, "copy", NULL), *result;

    if (!copy)
        return NULL;
    if (copy == o || Py_TYPE(copy) != Py_TYPE(o) || !(result = PyObject_CallMethod(copy, "clear", NULL))) {
        Py_DECREF(copy);
        return PyErr_Occurred() ? NULL : Py_NewRef(o);
    }
    Py_DECREF(result);
    return copy;
}

/* ---- what was copied before ------------------------------------------------------------------------------------------- */

static size_t slot_of(const container_memo *memo, const PyObject *o)
{
    size_t mask = memo->capacity - 1, at = (size_t)fe_mix((uint64_t)(uintptr_t)o) & mask;

    while (memo->slots[at].original && memo->slots[at].original != o)
        at = (at + 1) & mask;
    return at;
}

static int memo_grow(container_memo *memo)
{
    container_memo larger = {.capacity = memo->capacity ? memo->capacity * 2 : 64, .count = memo->count};

    if (!(larger.slots = PyMem_RawCalloc(larger.capacity, sizeof *larger.slots))) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < memo->capacity; i++) {
        if (memo->slots[i].original)
            larger.slots[slot_of(&larger, memo->slots[i].original)] = memo->slots[i];
    }
    PyMem_RawFree(memo->slots);
    *memo = larger;
    return 0;
}

/* Originals are held too, or another object could come to stand at the address of one. The first copy stays. */
static int remember(container_memo *memo, PyObject *o, PyObject *copy)
{
    if (memo->count * 2 >= memo->capacity && memo_grow(memo) < 0)
        return -1;
    container_copy *slot = &memo->slots[slot_of(memo, o)];
    if (slot->original)
        return 0;
    *slot = (container_copy){.original = Py_NewRef(o), .copy = Py_NewRef(copy)};
    memo->count++;
    return 0;
}

/* The copy made before (new reference), or NULL. */
static PyObject *recall(const container_memo *memo, PyObject *o)
{
    return memo->capacity ? Py_XNewRef(memo->slots[slot_of(memo, o)].copy) : NULL;
}

void container_memo_clear(container_memo *memo)
{
    for (size_t i = 0; i < memo->capacity; i++) {
        Py_XDECREF(memo->slots[i].original);
        Py_XDECREF(memo->slots[i].copy);
    }
    PyMem_RawFree(memo->slots);
    *memo = (container_memo){0};
}

/* ---- the kinds of containers ------------------------------------------------------------------------------------------- */

static int fill_dict(PyObject *o, PyObject *copy, container_memo *memo)
{
    PyObject *items = PyMapping_Items(o);
    int result = items ? 0 : -1;

    for (Py_ssize_t i = 0; result == 0 && i < PyList_GET_SIZE(items); i++) {
        PyObject *pair = PyList_GET_ITEM(items, i), *value;
        if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) {
            PyErr_SetString(PyExc_TypeError, "items() of a mapping in meta gives something else than pairs");
            result = -1;
        } else if (!(value = copy_containers(PyTuple_GET_ITEM(pair, 1), memo))) {
            result = -1;
        } else {
            result = PyObject_SetItem(copy, PyTuple_GET_ITEM(pair, 0), value);
            Py_DECREF(value);
        }
    }
    Py_XDECREF(items);
    return result;
}

/* A dict's table is copied whole; then the values that need it are replaced. */
static PyObject *copy_plain_dict(PyObject *o, container_memo *memo)
{
    PyObject *copy = PyDict_Copy(o), *key, *value;
    Py_ssize_t at = 0;
    int result = copy ? remember(memo, o, copy) : -1;

    while (result == 0 && PyDict_Next(copy, &at, &key, &value)) {
        if (!is_container(value))
            continue;
        Py_INCREF(key);
        Py_INCREF(value);
        PyObject *copied = copy_containers(value, memo);
        result = copied ? 0 : -1;
        if (copied && copied != value)
            result = PyDict_SetItem(copy, key, copied);
        Py_XDECREF(copied);
        Py_DECREF(value);
        Py_DECREF(key);
    }
    if (result < 0)
        Py_CLEAR(copy);
    return copy;
}

static PyObject *copy_dict(PyObject *o, container_memo *memo)
{
    if (PyDict_CheckExact(o))
        return copy_plain_dict(o, memo);
    PyObject *copy = emptied_copy(o);
    if (!copy || copy == o) /* a class that can't be copied is kept */
        return copy;
    if (remember(memo, o, copy) < 0 || fill_dict(o, copy, memo) < 0)
        Py_CLEAR(copy);
    return copy;
}

static PyObject *copy_list(PyObject *o, container_memo *memo)
{
    PyObject *copy = PyList_New(0), *value;
    int result = copy ? remember(memo, o, copy) : -1;

    for (Py_ssize_t i = 0; result == 0 && i < PyList_GET_SIZE(o); i++) {
        PyObject *item = Py_NewRef(PyList_GET_ITEM(o, i));
        value = copy_containers(item, memo);
        Py_DECREF(item);
        result = value ? PyList_Append(copy, value) : -1;
        Py_XDECREF(value);
    }
    if (result < 0)
        Py_CLEAR(copy);
    return copy;
}

/* A tuple is copied only when something in it is; when it is in itself, only once. */
static PyObject *copy_tuple(PyObject *o, container_memo *memo)
{
    Py_ssize_t len = PyTuple_GET_SIZE(o);
    PyObject *copy = NULL;

    for (Py_ssize_t i = 0; i < len; i++) {
        PyObject *item = PyTuple_GET_ITEM(o, i), *value = copy_containers(item, memo);
        if (value && value != item && !copy && (copy = PyTuple_New(len))) {
            for (Py_ssize_t k = 0; k < i; k++)
                PyTuple_SET_ITEM(copy, k, Py_NewRef(PyTuple_GET_ITEM(o, k)));
        }
        if (!value || (value != item && !copy)) {
            Py_XDECREF(value);
            Py_XDECREF(copy);
            return NULL;
        }
        if (copy)
            PyTuple_SET_ITEM(copy, i, value);
        else
            Py_DECREF(value);
    }
    PyObject *earlier = copy ? recall(memo, o) : Py_NewRef(o);
    if (!earlier)
        return copy;
    Py_XDECREF(copy);
    return earlier;
}

PyObject *copy_containers(PyObject *o, container_memo *memo)
{
    PyObject *copy;

    if (!is_container(o))
        return Py_NewRef(o);
    if ((copy = recall(memo, o)))
        return copy;
    if (Py_EnterRecursiveCall(" while copying meta"))
        return NULL;
    if (PyTuple_CheckExact(o))
        copy = copy_tuple(o, memo);
    else if (PyDict_Check(o))
        copy = copy_dict(o, memo);
    else if (PyList_CheckExact(o))
        copy = copy_list(o, memo);
    else
        copy = PySet_CheckExact(o) ? PySet_New(o) : Py_NewRef(o);
    Py_LeaveRecursiveCall();
    if (copy && copy != o && remember(memo, o, copy) < 0)
        Py_CLEAR(copy);
    return copy;
}

const char copy_containers_doc[] = "copy_containers(value, /)\n--\n\n"
                                   "A value with the dicts, lists, sets and tuples in it copied, all the way down.";

PyObject *containers_copied(PyObject *Py_UNUSED(m), PyObject *o)
{
    container_memo memo = {0};
    PyObject *copy = copy_containers(o, &memo);

    container_memo_clear(&memo);
    return copy;
}
