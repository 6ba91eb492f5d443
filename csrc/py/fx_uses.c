/* fx_uses.c - whether users and arguments of a live torch.fx graph agree, told in one walk.
 *
 * Users are a dict of the used node, arguments a tree of the using one. They agree when, for each node, a sum over its users
 * equals the same sum over the nodes whose arguments name it. Sums of well mixed 64-bit numbers are equal by chance only once
 * in a universe. Which node is at fault they don't tell: for that, fx_lint.c goes the long way.
 */
#include "fx.h"

static uint64_t weight(const PyObject *node)
{
    return fe_mix((uint64_t)(uintptr_t)node);
}

/* Room in the tables by node; new places are zero. */
static int grow(fx_uses *u, fx_view *v, size_t room)
{
    uint32_t sums = v->sum_capacity, seen = u->seen_capacity;
    fe_error err;

    if (fe_grow(v->s.memory, &v->sums, &v->sum_capacity, room, sizeof *v->sums, &err) < 0 ||
        fe_grow(v->s.memory, &u->seen, &u->seen_capacity, room, sizeof *u->seen, &err) < 0)
        return fail_core(v->s.st, &err);
    memset(v->sums + sums, 0, (v->sum_capacity - sums) * sizeof *v->sums);
    memset(u->seen + seen, 0, (u->seen_capacity - seen) * sizeof *u->seen);
    return 0;
}

int fx_uses_begin(fx_uses *u, fx_view *v, size_t room)
{
    if (v->sums)
        memset(v->sums, 0, v->sum_capacity * sizeof *v->sums);
    if (u->seen)
        memset(u->seen, 0, u->seen_capacity * sizeof *u->seen);
    return grow(u, v, room);
}

void fx_uses_clear(fx_uses *u, const fe_allocator *a)
{
    fe_resize(a, u->defs, 0);
    fe_resize(a, u->seen, 0);
}

static int gather(fx_uses *u, fx_view *v, uint32_t index, PyObject *o);

static int gather_items(fx_uses *u, fx_view *v, uint32_t index, PyObject *o)
{
    const PySliceObject *slice = (PySliceObject *)o;
    PyObject *key, *value;
    Py_ssize_t at = 0;

    if (PyTuple_Check(o) || PyList_Check(o)) {
        for (Py_ssize_t i = 0; i < Py_SIZE(o); i++) {
            PyObject *item = PySequence_Fast_GET_ITEM(o, i);
            if (item && gather(u, v, index, item) < 0)
                return -1;
        }
        return 0;
    }
    if (PyDict_Check(o)) {
        while (PyDict_Next(o, &at, &key, &value)) {
            if (gather(u, v, index, value) < 0)
                return -1;
        }
        return 0;
    }
    return gather(u, v, index, slice->start) < 0 || gather(u, v, index, slice->stop) < 0
               ? -1
               : gather(u, v, index, slice->step);
}

static int add_operand(fx_uses *u, fx_view *v, uint32_t index, PyObject *node)
{
    uint32_t def = fx_snapshot_find(&v->s, node);
    fe_error err;

    if (def == FE_NONE_ID || fx_view_id(def) >= v->core->node_count) { /* a node not met so far, or no node */
        v->suspect |= def != FE_NONE_ID || fx_is_node(&v->s.st->fx, node);
        return 0;
    }
    if (u->seen[def] == index + 1)
        return 0;
    u->seen[def] = index + 1;
    if (u->count == u->capacity &&
        fe_grow(v->s.memory, &u->defs, &u->capacity, (size_t)u->count + 1, sizeof *u->defs, &err) < 0)
        return fail_core(v->s.st, &err);
    u->defs[u->count++] = fx_view_id(def);
    return 0;
}

/* Add the nodes of an argument tree to the operands, each once. */
static int gather(fx_uses *u, fx_view *v, uint32_t index, PyObject *o)
{
    unsigned long flags = Py_TYPE(o)->tp_flags;
    int result;

    if (flags & FX_NO_NODE || o == Py_None)
        return 0;
    if (!(flags & FX_CONTAINER) && !PySlice_Check(o))
        return add_operand(u, v, index, o);
    if (u->depth == FE_MAX_DEPTH) {
        v->suspect = true;
        return 0;
    }
    u->depth++;
    result = gather_items(u, v, index, o);
    u->depth--;
    return result;
}

int fx_uses_read(fx_uses *u, fx_view *v, uint32_t index)
{
    const fx_layout *l = &v->s.st->fx;
    PyObject *node = v->s.nodes[index], *user, *value;
    PyObject *args = fx_get(node, l->args), *kwargs = fx_get(node, l->kwargs);
    PyObject *users = fx_get(node, l->users), *inputs = fx_get(node, l->input_nodes);
    Py_ssize_t at = 0;
    fe_error err;

    if ((index >= v->sum_capacity || index >= u->seen_capacity) && grow(u, v, (size_t)index + 1) < 0)
        return -1;
    if (!args || !kwargs || !users || !PyDict_Check(users) || !inputs || !PyDict_Check(inputs)) {
        v->suspect = true;
        return 0;
    }
    while (PyDict_Next(users, &at, &user, &value))
        v->sums[index] += weight(user);
    u->count = 0;
    if (gather(u, v, index, args) < 0 || gather(u, v, index, kwargs) < 0)
        return -1;
    v->suspect |= PyDict_GET_SIZE(inputs) != (Py_ssize_t)u->count; /* torch.fx's own list of operands */
    for (uint32_t i = 0; i < u->count; i++)
        v->sums[u->defs[i] - 1] -= weight(node);
    if (fe_node_set_operands(v->core, fx_view_id(index), u->defs, u->count, &err) < 0)
        return fail_core(v->s.st, &err);
    return 0;
}

bool fx_view_is_even(const fx_view *v)
{
    if (v->suspect)
        return false;
    for (uint32_t i = 0; i < v->s.count; i++) {
        if (v->sums[i])
            return false;
    }
    return true;
}
