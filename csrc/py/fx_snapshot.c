/* fx_snapshot.c - the nodes of a live torch.fx graph at one moment, and what they call.
 *
 * A walk along the list reads slots only, so nothing can change it while it goes on. The nodes need not be held until
 * Python code may run; from then on it may change the graph, but not make the snapshot's pointers dangle.
 */
#include "fx.h"

static int grow(const fe_allocator *a, void *items, uint32_t *capacity, size_t need, size_t size)
{
    fe_error err;

    if (fe_grow(a, items, capacity, need, size, &err) == 0)
        return 0;
    PyErr_NoMemory();
    return -1;
}

uint32_t *fx_new_slots(const fe_allocator *a, size_t room, uint32_t *mask)
{
    size_t size = 64;

    while (size < 2 * room)
        size *= 2;
    uint32_t *slots = size <= UINT32_MAX / 2 ? fe_resize(a, NULL, size * sizeof *slots) : NULL;
    if (!slots) {
        PyErr_NoMemory();
        return NULL;
    }
    memset(slots, 0xff, size * sizeof *slots);
    *mask = (uint32_t)size - 1;
    return slots;
}

/* ---- calls -------------------------------------------------------------------------------------------------------- */

static uint32_t call_slot(const fx_calls *c, const PyObject *op, const PyObject *target)
{
    uint32_t i = (fx_hash(target) + fx_hash(op)) & c->mask;

    while (c->slots[i] != EMPTY_SLOT && (c->items[c->slots[i]].target != target || c->items[c->slots[i]].op != op))
        i = (i + 1) & c->mask;
    return i;
}

static int grow_call_slots(const fe_allocator *a, fx_calls *c)
{
    uint32_t *slots = fx_new_slots(a, 2 * (size_t)c->count, &c->mask);

    if (!slots)
        return -1;
    fe_resize(a, c->slots, 0);
    c->slots = slots;
    for (uint32_t i = 0; i < c->count; i++)
        slots[call_slot(c, c->items[i].op, c->items[i].target)] = i;
    return 0;
}

int fx_calls_get(const module_state *st, fx_calls *c, PyObject *op, PyObject *target, uint32_t *out)
{
    const fe_allocator *a = &st->pool.allocator;

    if ((!c->slots || c->count > c->mask / 2) && grow_call_slots(a, c) < 0)
        return -1;
    uint32_t *slot = &c->slots[call_slot(c, op, target)];
    if (*slot == EMPTY_SLOT) {
        if (grow(a, &c->items, &c->capacity, (size_t)c->count + 1, sizeof *c->items) < 0)
            return -1;
        c->items[c->count] =
            (fx_call){.op = Py_XNewRef(op), .target = Py_XNewRef(target), .code = (uint8_t)fx_op(st, op)};
        *slot = c->count++;
    }
    *out = *slot;
    return 0;
}

int fx_call_find_listed(PyObject *table, fx_call *call, bool make)
{
    PyObject *target = call->code == FE_OP_CALL_FUNCTION ? call->target : Py_None, *key, *listed;

    if (call->listed || (call->known && !make))
        return 0;
    if (!call->op || !target || !(key = PyTuple_Pack(2, call->op, target))) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "a node has no opcode or no target");
        return -1;
    }
    listed = Py_XNewRef(PyDict_GetItemWithError(table, key));
    if (!listed && make && !PyErr_Occurred() && (listed = PyDict_New()) && PyDict_SetItem(table, key, listed) < 0)
        Py_CLEAR(listed);
    Py_DECREF(key);
    if (PyErr_Occurred())
        return -1;
    call->known = true;
    if (listed && !PyDict_Check(listed)) {
        Py_DECREF(listed);
        PyErr_Format(PyExc_TypeError, "the find_nodes table holds a %.200s for opcode %S, not a dict",
                     Py_TYPE(listed)->tp_name, call->op);
        return -1;
    }
    call->listed = listed;
    return 0;
}

void fx_calls_clear(const module_state *st, fx_calls *c)
{
    fx_calls old = *c;

    *c = (fx_calls){0};
    for (uint32_t i = 0; i < old.count; i++) {
        Py_XDECREF(old.items[i].op);
        Py_XDECREF(old.items[i].target);
        Py_XDECREF(old.items[i].listed);
    }
    fe_resize(&st->pool.allocator, old.items, 0);
    fe_resize(&st->pool.allocator, old.slots, 0);
}

/* ---- nodes ---------------------------------------------------------------------------------------------------------- */

static void enter(fx_snapshot *s, uint32_t index)
{
    uint32_t i = fx_hash(s->nodes[index]) & s->mask;

    while (s->slots[i] != EMPTY_SLOT)
        i = (i + 1) & s->mask;
    s->slots[i] = index;
}

/* A hash table with room for some nodes, and those there are entered. */
static int index_nodes(fx_snapshot *s, size_t room)
{
    uint32_t *slots = fx_new_slots(s->memory, room, &s->mask);

    if (!slots)
        return -1;
    fe_resize(s->memory, s->slots, 0);
    s->slots = slots;
    for (uint32_t i = 0; i < (s->total ? s->total : s->count); i++)
        enter(s, i);
    return 0;
}

int fx_snapshot_push(fx_snapshot *s, PyObject *node)
{
    const fx_layout *l = &s->st->fx;
    uint32_t index = s->count;

    if ((index >= s->capacity && grow(s->memory, &s->nodes, &s->capacity, (size_t)index + 1, sizeof *s->nodes) < 0) ||
        (index >= s->call_capacity &&
         grow(s->memory, &s->call, &s->call_capacity, (size_t)index + 1, sizeof *s->call) < 0) ||
        (index > s->mask / 2 && index_nodes(s, 2 * (size_t)index) < 0) ||
        fx_calls_get(s->st, &s->calls, fx_get(node, l->op), fx_get(node, l->target), &s->call[index]) < 0)
        return -1;
    s->calls.items[s->call[index]].nodes++;
    s->nodes[s->count++] = node;
    enter(s, index);
    return 0;
}

static PyObject *damaged(fx_walk *w, const char *how)
{
    PyErr_Format(PyExc_ValueError, "the list of nodes of the torch.fx graph is damaged: %s", how);
    w->failed = true;
    return NULL;
}

/* A turtle that jumps to the walker after 1, 2, 4, 8 ... steps is met again when the list runs in a circle that misses the
 * root (Brent). */
PyObject *fx_walk_next(fx_walk *w)
{
    const fx_layout *l = &w->s->st->fx;
    PyObject *root = w->s->root, *node;

    if (!w->before) {
        w->before = w->turtle = root;
        w->jump = 1;
    }
    for (;;) {
        node = fx_get(w->before, l->next);
        if (!node || !fx_is_node(l, node))
            return damaged(w, "a link leads to something that is no torch.fx.Node");
        w->s->regular &= fx_get(node, l->prev) == w->before;
        if (node == root) {
            w->s->regular &= w->s->length == (Py_ssize_t)w->s->count;
            return NULL;
        }
        if (node == w->turtle)
            return damaged(w, "it runs in a circle");
        if (++w->s->links == w->jump) {
            w->turtle = node;
            w->jump *= 2;
        }
        w->before = node;
        if (!fx_is_erased(l, node))
            return node;
        w->s->regular = false;
    }
}

/* As _len tells; the walk will show whether it is right. */
static int make_room(fx_snapshot *s)
{
    if (fx_get_length(s->st, s->graph, &s->length) < 0)
        return -1;
    size_t room = s->length > 0 && s->length < (1 << 28) ? (size_t)s->length : 0;
    if (grow(s->memory, &s->nodes, &s->capacity, room, sizeof *s->nodes) < 0 ||
        grow(s->memory, &s->call, &s->call_capacity, room, sizeof *s->call) < 0)
        return -1;
    return index_nodes(s, room + 1);
}

int fx_snapshot_restart(fx_snapshot *s)
{
    for (uint32_t i = 0; i < s->calls.count; i++)
        s->calls.items[i].nodes = 0;
    s->count = s->total = 0;
    s->links = 0;
    s->regular = true;
    return make_room(s);
}

int fx_snapshot_begin(fx_snapshot *s, module_state *st, PyObject *graph)
{
    *s = (fx_snapshot){.st = st, .memory = &st->pool.allocator, .regular = true};
    if (fx_check_graph(st, graph, &s->root) < 0)
        return -1;
    s->graph = Py_NewRef(graph);
    return 0;
}

void fx_snapshot_hold(fx_snapshot *s)
{
    uint32_t count = s->total ? s->total : s->count;

    for (uint32_t i = 0; !s->held && i < count; i++)
        Py_INCREF(s->nodes[i]);
    s->held = true;
}

int fx_snapshot_take(fx_snapshot *s, module_state *st, PyObject *graph)
{
    fx_walk w = {.s = s};
    PyObject *node;

    if (fx_snapshot_begin(s, st, graph) < 0 || make_room(s) < 0)
        return -1;
    while ((node = fx_walk_next(&w))) {
        if (fx_snapshot_push(s, node) < 0)
            return -1;
    }
    s->total = s->count;
    return w.failed ? -1 : 0;
}

int fx_snapshot_of(fx_snapshot *s, module_state *st, PyObject *graph, PyObject *const *nodes, Py_ssize_t count)
{
    if (fx_snapshot_begin(s, st, graph) < 0 || index_nodes(s, (size_t)count) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!fx_is_node(&st->fx, nodes[i])) {
            PyErr_Format(PyExc_TypeError, "a torch.fx.Node was expected, not %.200s", Py_TYPE(nodes[i])->tp_name);
            return -1;
        }
        if (fx_snapshot_push(s, nodes[i]) < 0)
            return -1;
    }
    s->total = s->count;
    fx_snapshot_hold(s);
    return 0;
}

int fx_snapshot_add(fx_snapshot *s, PyObject *node, uint32_t *out)
{
    if (grow(s->memory, &s->nodes, &s->capacity, (size_t)s->total + 1, sizeof *s->nodes) < 0)
        return -1;
    *out = s->total;
    s->nodes[s->total++] = s->held ? Py_NewRef(node) : node;
    if (s->total > s->mask / 2 + 1)
        return index_nodes(s, s->total);
    enter(s, *out);
    return 0;
}

void fx_snapshot_clear(fx_snapshot *s)
{
    fx_snapshot old = *s;
    uint32_t count = old.total ? old.total : old.count;

    *s = (fx_snapshot){0};
    if (!old.memory)
        return;
    for (uint32_t i = 0; old.held && i < count; i++)
        Py_DECREF(old.nodes[i]);
    fe_resize(old.memory, old.nodes, 0);
    fe_resize(old.memory, old.call, 0);
    fe_resize(old.memory, old.slots, 0);
    fx_calls_clear(old.st, &old.calls);
    Py_XDECREF(old.root);
    Py_XDECREF(old.graph);
}
