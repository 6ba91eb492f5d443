/* graph_object.c - what a Graph keeps beside its core: the Python objects it names, and the one Node object of an id.
 *
 * Invariants: objects[i] is a strong reference while the core counts references to i or i was made and not yet swept;
 * the hash table finds each of them by identity; handles[id] is the living Node object of id or NULL (borrowed: the
 * Node clears its entry when it dies).
 */
#include "module.h"

#include <time.h>

/* ---- access ---- */

#define PATIENCE 50000 /* ns between two looks at a busy graph */

/* Waits while another thread is in C with it: that runs no Python code, so it ends. */
int graph_readable(GraphObject *g)
{
    while (g->busy) {
        Py_BEGIN_ALLOW_THREADS
        nanosleep(&(struct timespec){.tv_nsec = PATIENCE}, NULL);
        Py_END_ALLOW_THREADS
        if (PyErr_CheckSignals() < 0)
            return -1;
    }
    return 0;
}

int graph_editable(GraphObject *g)
{
    if (graph_readable(g) < 0)
        return -1;
    if (!g->pins)
        return 0;
    PyErr_SetString(g->state->error, "the graph can't be changed by code that runs while the graph is being read (a "
                                     "finalizer, __repr__ or the like)");
    return -1;
}

/* ---- objects by identity ---- */

static uint32_t slot_of(const GraphObject *g, const PyObject *object)
{
    return (uint32_t)fe_mix((uint64_t)(uintptr_t)object) & g->object_mask;
}

/* The slot that holds an object, or the free one where it belongs. */
static uint32_t *find_slot(const GraphObject *g, const PyObject *object)
{
    uint32_t i = slot_of(g, object);

    while (g->object_slots[i] != EMPTY_SLOT && g->objects[g->object_slots[i]] != object)
        i = (i + 1) & g->object_mask;
    return &g->object_slots[i];
}

/* Twice the room in the hash table; the objects keep their indexes. */
static int grow_slots(GraphObject *g)
{
    uint32_t size = g->object_slots ? (g->object_mask + 1) * 2 : 16;
    uint32_t *slots = size ? PyMem_RawMalloc(size * sizeof *slots) : NULL;

    if (!slots) {
        PyErr_NoMemory();
        return -1;
    }
    memset(slots, 0xff, size * sizeof *slots);
    PyMem_RawFree(g->object_slots);
    g->object_slots = slots;
    g->object_mask = size - 1;
    for (uint32_t i = 0; i < g->object_capacity; i++) {
        if (g->objects[i])
            *find_slot(g, g->objects[i]) = i;
    }
    return 0;
}

static int grow_objects(GraphObject *g, uint32_t need)
{
    fe_error err;
    uint32_t old = g->object_capacity;

    if (fe_grow(&fe_python_allocator, &g->objects, &g->object_capacity, need, sizeof *g->objects, &err) < 0) {
        raise_core(g->state, &err);
        return -1;
    }
    memset(g->objects + old, 0, (g->object_capacity - old) * sizeof *g->objects);
    return 0;
}

int graph_object(GraphObject *g, PyObject *object, uint32_t *out)
{
    fe_error err;

    if (!g->object_slots || g->object_used >= g->object_mask - g->object_mask / 3) {
        if (grow_slots(g) < 0)
            return -1;
    }
    uint32_t *slot = find_slot(g, object);
    if (*slot != EMPTY_SLOT) {
        *out = *slot;
        return 0;
    }
    /* Room first: an index the core has handed out must not be lost. */
    if (g->core->object_count >= g->object_capacity && grow_objects(g, g->core->object_count + 1) < 0)
        return -1;
    if (fe_object_new(g->core, out, &err) < 0) {
        raise_core(g->state, &err);
        return -1;
    }
    g->objects[*out] = Py_NewRef(object);
    *slot = *out;
    g->object_used++;
    return 0;
}

int graph_set_objects(GraphObject *g, PyObject *objects)
{
    Py_ssize_t count = PyTuple_GET_SIZE(objects);

    if (g->object_used || (count > g->object_capacity && grow_objects(g, (uint32_t)count) < 0))
        return -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        if ((!g->object_slots || g->object_used >= g->object_mask - g->object_mask / 3) && grow_slots(g) < 0)
            return -1;
        PyObject *object = PyTuple_GET_ITEM(objects, i);
        uint32_t *slot = find_slot(g, object);
        g->objects[i] = Py_NewRef(object);
        if (*slot == EMPTY_SLOT) {
            *slot = (uint32_t)i;
            g->object_used++;
        }
    }
    return 0;
}

PyObject *graph_object_at(GraphObject *g, uint32_t index)
{
    PyObject *object = index < g->object_capacity ? g->objects[index] : NULL;

    return object ? object : Py_None; /* the collector has cleared this graph */
}

/* Empty a slot and move up what had to step over it. */
static void remove_slot(GraphObject *g, const PyObject *object)
{
    uint32_t hole = (uint32_t)(find_slot(g, object) - g->object_slots);

    if (g->object_slots[hole] == EMPTY_SLOT)
        return;
    for (uint32_t i = (hole + 1) & g->object_mask; g->object_slots[i] != EMPTY_SLOT; i = (i + 1) & g->object_mask) {
        uint32_t home = slot_of(g, g->objects[g->object_slots[i]]);
        if (((i - home) & g->object_mask) >= ((i - hole) & g->object_mask)) {
            g->object_slots[hole] = g->object_slots[i];
            hole = i;
        }
    }
    g->object_slots[hole] = EMPTY_SLOT;
    g->object_used--;
}

void graph_sweep(GraphObject *g)
{
    PyObject *type, *value, *traceback;
    uint32_t index;

    if (!g->core->dead_count)
        return;
    PyErr_Fetch(&type, &value, &traceback);
    while (!g->pins && fe_object_take_dead(g->core, &index)) {
        PyObject *object = index < g->object_capacity ? g->objects[index] : NULL;
        if (!object)
            continue; /* the collector has cleared this graph */
        remove_slot(g, object);
        g->objects[index] = NULL;
        Py_DECREF(object);
    }
    PyErr_Restore(type, value, traceback);
}

/* ---- meta keys and targets ---- */

int graph_meta_key(GraphObject *g, PyObject *key, bool make, uint32_t *out)
{
    PyObject *number = PyDict_GetItemWithError(g->meta_index, key);

    *out = FE_NONE_ID;
    if (number) {
        *out = (uint32_t)PyLong_AsUnsignedLong(number);
        return 0;
    }
    if (PyErr_Occurred() || !make)
        return PyErr_Occurred() ? -1 : 0;
    Py_ssize_t count = PyList_GET_SIZE(g->meta_keys);
    if (PyList_Append(g->meta_keys, key) < 0)
        return -1;
    PyObject *new = PyLong_FromSsize_t(count);
    number = new ? PyDict_SetDefault(g->meta_index, key, new) : NULL; /* one that came in meanwhile wins */
    Py_XDECREF(new);
    if (!number)
        return -1; /* the key stays in the list, unused: its hash may have added keys behind it */
    *out = (uint32_t)PyLong_AsUnsignedLong(number);
    return 0;
}

static bool is_callable_op(fe_op op)
{
    return op == FE_OP_CALL_FUNCTION;
}

/* The stem that names of calls of this target come from; NULL with an exception. */
static fe_string *stem_of(GraphObject *g, PyObject *target)
{
    PyObject *text = PyObject_CallOneArg(g->state->stem, target);
    fe_string *s = NULL;

    if (text && !PyUnicode_Check(text))
        PyErr_Format(PyExc_TypeError, "the name of target %R is %R, not a string", target, text);
    else if (text && !(s = string_from_python(g, text)) && PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
        PyErr_Clear();
        PyObject *bytes = PyUnicode_AsEncodedString(text, "utf-8", "replace"); /* a name has "_" there in any case */
        fe_error err;
        if (bytes && !(s = fe_string_get(g->core, PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes), &err)))
            raise_core(g->state, &err);
        Py_XDECREF(bytes);
    }
    Py_XDECREF(text);
    return s;
}

int graph_target(GraphObject *g, fe_op op, PyObject *target, uint32_t *out)
{
    fe_string *text = NULL;
    uint32_t object = FE_NONE_ID;
    fe_error err;
    bool is_new;

    if (PyUnicode_CheckExact(target))
        text = string_from_python(g, target);
    if (!text) {
        if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
            return -1;
        PyErr_Clear(); /* a string that UTF-8 can't hold is an object */
        if (graph_object(g, target, &object) < 0)
            return -1;
    }
    if (fe_target_get(g->core, op, object, text, out, &is_new, &err) < 0) {
        raise_core(g->state, &err);
        return -1;
    }
    if (is_new && (text ? is_callable_op(op) : !(is_callable_op(op) && PyCallable_Check(target))))
        g->core->targets[*out].flags |= FE_TARGET_NOT_CALLABLE;
    if (is_new && target == g->state->getitem)
        g->core->targets[*out].flags |= FE_TARGET_GETITEM;
    return 0;
}

int graph_target_stem(GraphObject *g, uint32_t target, PyObject *object, fe_string **out)
{
    fe_target *t = &g->core->targets[target];

    if (t->object != FE_NONE_ID && t->text) {
        *out = t->text;
        return 0;
    }
    *out = stem_of(g, object);
    t = &g->core->targets[target]; /* the call above may have added targets */
    if (*out && t->object != FE_NONE_ID)
        t->text = *out;
    return *out ? 0 : -1;
}

PyObject *graph_target_object(GraphObject *g, uint32_t target)
{
    if (target == FE_NONE_ID)
        return PyUnicode_FromString("root");
    const fe_target *t = &g->core->targets[target];
    return t->object != FE_NONE_ID ? Py_NewRef(graph_object_at(g, t->object)) : string_to_python(t->text);
}

/* ---- handles ---- */

PyObject *graph_node(GraphObject *g, uint32_t id)
{
    fe_error err;

    if (id < g->handle_capacity && g->handles[id])
        return Py_NewRef(g->handles[id]);
    if (id >= g->handle_capacity) {
        uint32_t old = g->handle_capacity;
        if (fe_grow(&fe_python_allocator, &g->handles, &g->handle_capacity, g->core->node_count, sizeof *g->handles,
                    &err) < 0)
            return raise_core(g->state, &err);
        memset(g->handles + old, 0, (g->handle_capacity - old) * sizeof(NodeObject *));
    }
    NodeObject *n = PyObject_GC_New(NodeObject, g->state->node_type);
    if (!n)
        return NULL;
    n->graph = (GraphObject *)Py_NewRef(g);
    n->id = id;
    n->weakrefs = NULL;
    /* The collector may just have run code that made the same Node. */
    if (g->handles[id]) {
        n->id = FE_NONE_ID;
        PyObject_GC_Track(n);
        Py_DECREF(n);
        return Py_NewRef(g->handles[id]);
    }
    g->handles[id] = n;
    PyObject_GC_Track(n);
    return (PyObject *)n;
}

PyObject *graph_node_list(GraphObject *g, const uint32_t *ids, uint32_t count)
{
    PyObject *list = PyList_New(count);

    for (uint32_t i = 0; list && i < count; i++) {
        PyObject *node = graph_node(g, ids[i]);
        if (!node)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, node);
    }
    return list;
}
