/* fx_names.c - which nodes of a live torch.fx graph share a name. */
#include "fx.h"

static int note_twins(fx_names *t, uint32_t index, uint32_t first)
{
    fe_error err;

    if (fe_grow(t->s->memory, &t->twins, &t->twin_capacity, (size_t)t->twin_count + 2, sizeof *t->twins, &err) < 0)
        return fail_core(t->s->st, &err);
    t->twins[t->twin_count++] = index;
    t->twins[t->twin_count++] = first;
    return 0;
}

/* A hash table with room for some names; those there are entered. */
static int index_names(fx_names *t, size_t room)
{
    uint32_t *slots = fx_new_slots(t->s->memory, room, &t->mask);

    if (!slots)
        return -1;
    fe_resize(t->s->memory, t->slots, 0);
    t->slots = slots;
    for (uint32_t index = 0; index < t->count; index++) {
        uint32_t i = t->hashes[index] & t->mask;
        while (slots[i] != EMPTY_SLOT)
            i = (i + 1) & t->mask;
        slots[i] = index;
    }
    return 0;
}

int fx_names_begin(fx_names *t, const fx_snapshot *s, size_t room)
{
    fe_error err;

    t->s = s;
    t->count = t->twin_count = 0;
    t->odd = false;
    if (fe_grow(s->memory, &t->hashes, &t->hash_capacity, room, sizeof *t->hashes, &err) < 0)
        return fail_core(s->st, &err);
    return index_names(t, room + 1);
}

void fx_names_clear(fx_names *t, const fe_allocator *a)
{
    fe_resize(a, t->hashes, 0);
    fe_resize(a, t->slots, 0);
    fe_resize(a, t->twins, 0);
}

/* Of an exact string, which mostly has it already. */
static uint32_t name_hash(PyObject *name)
{
    Py_hash_t hash = ((PyASCIIObject *)name)->hash;

    return (uint32_t)(hash == -1 ? PyObject_Hash(name) : hash);
}

/* Enter the name of a node, or note the node that bears it already. Hashing and comparing exact strings runs no code. */
int fx_names_enter(fx_names *t, uint32_t index)
{
    PyObject *name = fx_get(t->s->nodes[index], t->s->st->fx.name);
    fe_error err;

    /* Once a name is odd all are entered again by fx_names_enter_odd; a node passed over here has no hash. */
    t->odd = t->odd || !name || !PyUnicode_CheckExact(name);
    if (t->odd)
        return 0;
    if (index >= t->hash_capacity &&
        fe_grow(t->s->memory, &t->hashes, &t->hash_capacity, (size_t)index + 1, sizeof *t->hashes, &err) < 0)
        return fail_core(t->s->st, &err);
    if (index > t->mask / 2 && index_names(t, 2 * (size_t)index) < 0)
        return -1;
    uint32_t hash = t->hashes[index] = name_hash(name), i = hash & t->mask;
    t->count = index + 1;
    for (; t->slots[i] != EMPTY_SLOT; i = (i + 1) & t->mask) {
        if (t->hashes[t->slots[i]] != hash)
            continue;
        PyObject *other = fx_get(t->s->nodes[t->slots[i]], t->s->st->fx.name);
        if (other == name || PyUnicode_Compare(other, name) == 0)
            return note_twins(t, index, t->slots[i]);
    }
    t->slots[i] = index;
    return 0;
}

/* The same by Python's own rules, for names that are no plain strings; nodes are held. */
int fx_names_enter_odd(fx_names *t)
{
    PyObject *known = PyDict_New();
    int result = known ? 0 : -1;

    t->twin_count = 0;
    for (uint32_t i = 0; result == 0 && i < t->s->count; i++) {
        PyObject *name = fx_get(t->s->nodes[i], t->s->st->fx.name), *index = PyLong_FromUnsignedLong(i), *first = NULL;
        name = Py_NewRef(name ? name : Py_None);
        if (index)
            first = PyDict_SetDefault(known, name, index);
        result = first ? 0 : -1;
        if (first && first != index)
            result = note_twins(t, i, (uint32_t)PyLong_AsUnsignedLong(first));
        Py_XDECREF(index);
        Py_DECREF(name);
    }
    Py_XDECREF(known);
    return result;
}
