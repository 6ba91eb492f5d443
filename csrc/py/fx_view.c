/* fx_view.c - what a pass needs to see of a live torch.fx graph, in the core's form.
 *
 * First everything is asked that may run Python code: facts about what nodes call, which torch's find_nodes table lists.
 * Then the graph is read in one walk from slots, in which no Python code can run, so that its nodes need not be held. Only
 * when the walk has met a call that the table did not list is that asked about, and the walk done again.
 */
#include "fx.h"

#define TRIES 3
#define LAG \
    8u /* how many nodes the reading stays behind the walk, while what they point to is fetched into the caches */

/* What the facts of a target tell that is not found out here. */
#define EFFECTS                                                                                          \
    (FE_TARGET_MUTATES | FE_TARGET_RANDOM | FE_TARGET_EFFECT | FE_TARGET_NO_RESULT | FE_TARGET_UNKNOWN | \
     FE_TARGET_FX_IMPURE | FE_TARGET_FX_RANDOM | FE_TARGET_PER_NODE)

typedef struct {
    fx_view *v;
    const fx_wants *wants;
    const fx_layout *l;
    fx_listings listings;
    fx_names names;   /* for lint */
    owning_walk look; /* in the owning module */
    bool full;        /* the core can't be bare after all */
    bool operands;    /* are read */
    bool out;         /* some node writes to its keyword "out" */
    fx_uses uses;
} reader;

static int no_memory(void)
{
    PyErr_NoMemory();
    return -1;
}

/* ---- asking ---------------------------------------------------------------------------------------------------------- */

static bool needs_facts(const fx_wants *wants, const fx_call *call)
{
    return wants->facts && call->target &&
           (call->code == FE_OP_CALL_FUNCTION || call->code == FE_OP_CALL_MODULE ||
            (call->code == FE_OP_CALL_METHOD && !wants->fx_policy));
}

/* Whether lint looks the target up in the owning module. */
static bool needs_look(const reader *r, const fx_call *call)
{
    return r->wants->lint && r->v->look && call->target && PyUnicode_Check(call->target) &&
           (call->code == FE_OP_GET_ATTR || call->code == FE_OP_CALL_MODULE);
}

/* Whether its listing is found by hashing the target. */
static bool needs_listing(const reader *r, const fx_call *call)
{
    return r->wants->lint && call->code == FE_OP_CALL_FUNCTION && call->target && !call->known;
}

/* What the owning module says of a path. */
static int look_up(owning_walk *look, fx_call *call)
{
    Py_ssize_t len;
    const char *path = PyUnicode_AsUTF8AndSize(call->target, &len);
    int flags = path ? owning_resolve(look, path, (size_t)len, call->code == FE_OP_CALL_MODULE) : -1;

    if (flags < 0)
        return -1;
    call->flags |= (uint32_t)flags;
    return 0;
}

static int ask_call(reader *r, PyObject *table, fx_call *call)
{
    const module_state *st = r->v->s.st;
    uint32_t flags;
    PyObject *const fact_args[] = {call->op, call->target, r->v->owner};

    if (needs_facts(r->wants, call)) {
        if (facts_ask(st->facts, fact_args, 3, &flags) < 0)
            return -1;
        call->flags = (call->flags | flags) & EFFECTS;
        if (call->code == FE_OP_CALL_FUNCTION && facts_add_registered(st, call->target, &call->flags) < 0)
            return -1;
    }
    if (needs_look(r, call) && look_up(&r->look, call) < 0)
        return -1;
    if (needs_listing(r, call) && fx_call_find_listed(table, call, false) < 0) {
        if (!PyErr_ExceptionMatches(PyExc_TypeError))
            return -1;
        PyErr_Clear(); /* unhashable, so listed nowhere */
        call->known = true;
    }
    return 0;
}

/* What is known of a call without asking. */
static void note_plain_facts(const reader *r, fx_call *call)
{
    bool callable = call->code == FE_OP_CALL_FUNCTION;

    if (callable && call->target == r->v->s.st->getitem)
        call->flags |= FE_TARGET_GETITEM;
    if (r->wants->lint && (r->v->look || !r->wants->fx_only) &&
        (!call->target || (callable ? !PyCallable_Check(call->target) : !PyUnicode_Check(call->target))))
        call->flags |= FE_TARGET_NOT_CALLABLE;
}

/* Ask about the calls that nothing is known of yet: 1 when Python code has run, 0, or -1. */
static int ask_calls(reader *r, PyObject *table)
{
    int asked = 0;

    for (uint32_t i = 0; i < r->v->s.calls.count; i++) {
        fx_call *call = &r->v->s.calls.items[i];
        if (call->asked)
            continue;
        call->asked = true;
        if (needs_facts(r->wants, call) || needs_look(r, call) || needs_listing(r, call)) {
            if (ask_call(r, table, call) < 0)
                return -1;
            asked = 1;
        }
        note_plain_facts(r, &r->v->s.calls.items[i]);
    }
    return asked;
}

/* ---- reading ------------------------------------------------------------------------------------------------------------------ */

static int read_calls(fx_view *v)
{
    for (uint32_t i = v->core->target_count; i < v->s.calls.count; i++) {
        uint32_t object, target;
        fe_error err;
        bool is_new;
        if (fe_object_new(v->core, &object, &err) < 0 ||
            fe_target_get(v->core, (fe_op)v->s.calls.items[i].code, object, NULL, &target, &is_new, &err) < 0)
            return fail_core(v->s.st, &err);
    }
    return 0;
}

/* Whether a call writes to a node under its keyword "out". An operator that does is known to write by its schema. */
static int writes_out(const fx_view *v, PyObject *node, PyObject *target)
{
    PyObject *kwargs, *key, *value;
    Py_ssize_t at = 0;

    if (target && ((PyObject *)Py_TYPE(target) == v->s.st->fx.overload_type || target == v->s.st->getitem))
        return 0;
    kwargs = fx_get(node, v->s.st->fx.kwargs);
    if (!kwargs || !PyDict_Check(kwargs))
        return 0;
    while (PyDict_Next(kwargs, &at, &key, &value)) {
        if (PyUnicode_Check(key) && PyUnicode_CompareWithASCIIString(key, "out") == 0)
            return fx_names_node(&v->s.st->fx, value);
    }
    return 0;
}

/* A node that is used but not in the list: it comes after all others, so that lint sees it undefined. */
static int add_stranger(fx_view *v, PyObject *node, uint32_t *out)
{
    const fx_layout *l = &v->s.st->fx;
    fe_error err;
    uint32_t id;

    if (!fx_is_node(l, node)) {
        PyErr_SetString(PyExc_ValueError, "_input_nodes of a torch.fx.Node holds something that is no torch.fx.Node");
        return -1;
    }
    if (fx_snapshot_add(&v->s, node, out) < 0)
        return -1;
    if (fe_node_new(v->core, FE_OP_UNKNOWN, 0, NULL, FE_NONE_ID, &id, &err) < 0)
        return fail_core(v->s.st, &err);
    v->core->nodes[id].pos = UINT64_MAX;
    if (fx_get(node, l->graph) != v->s.graph)
        v->core->nodes[id].flags = FE_NODE_FOREIGN;
    else if (fx_is_erased(l, node))
        v->core->nodes[id].flags = FE_NODE_ERASED;
    return 0;
}

#define FEW 32

/* Operands come before their users; one that does not is taken up when all nodes are known. */
static int read_operands(fx_view *v, uint32_t index, bool complete)
{
    PyObject *inputs = fx_get(v->s.nodes[index], v->s.st->fx.input_nodes), *node, *value;
    uint32_t few[FEW], *defs = few, count = 0, def;
    Py_ssize_t at = 0;
    int result = 0;
    fe_error err;

    if (!inputs || !PyDict_Check(inputs)) {
        PyErr_SetString(PyExc_ValueError, "_input_nodes of a torch.fx.Node is no dict");
        return -1;
    }
    if (PyDict_GET_SIZE(inputs) > FEW && !(defs = PyMem_RawMalloc((size_t)PyDict_GET_SIZE(inputs) * sizeof *defs)))
        return no_memory();
    while (result == 0 && PyDict_Next(inputs, &at, &node, &value)) {
        def = fx_snapshot_find(&v->s, node);
        if (!complete && (def == FE_NONE_ID || fx_view_id(def) >= v->core->node_count))
            result = 1; /* not met yet, or met by the walk, which is ahead, but not made */
        else if (def == FE_NONE_ID)
            result = add_stranger(v, node, &def);
        defs[count++] = fx_view_id(def);
    }
    if (result == 0 && (result = fe_node_set_operands(v->core, fx_view_id(index), defs, count, &err)) < 0)
        fail_core(v->s.st, &err);
    if (defs != few)
        PyMem_RawFree(defs);
    return result;
}

static int read_node(reader *r, uint32_t index)
{
    fx_view *v = r->v;
    PyObject *node = v->s.nodes[index], *users;
    uint32_t call = v->s.call[index], id;
    uint8_t flags = 0;
    fe_error err;

    if (r->wants->lint) {
        int listed = fx_is_plain(r->l, node) ? fx_listings_find(&r->listings, &v->s, index) : 1;
        if (listed < 0 || fx_names_enter(&r->names, index) < 0)
            return -1;
        flags |= listed ? 0 : FE_NODE_UNLISTED;
        flags |= fx_get(node, r->l->graph) == v->s.graph ? 0 : FE_NODE_FOREIGN;
    }
    int out = r->wants->facts && !r->wants->fx_policy ? writes_out(v, node, v->s.calls.items[call].target) : 0;
    if (out < 0)
        return -1;
    if (out) {
        if (!fe_string_get(v->core, "out", 3, &err)) /* by which passes see that there are such nodes */
            return fail_core(v->s.st, &err);
        flags |= FE_NODE_OUT;
        r->out = true;
    }
    if (fe_node_new(v->core, (fe_op)v->s.calls.items[call].code, call, NULL, FE_NONE_ID, &id, &err) < 0)
        return fail_core(v->s.st, &err);
    v->core->nodes[id].flags = flags;
    fe_node_place(v->core, id, (fe_point){FE_ROOT, false});
    if (r->wants->uses)
        return fx_uses_read(&r->uses, v, index);
    if (!r->operands)
        return 0;
    if (index >= v->user_capacity &&
        fe_grow(v->s.memory, &v->users, &v->user_capacity, (size_t)index + 1, sizeof *v->users, &err) < 0)
        return fail_core(v->s.st, &err);
    users = fx_get(node, r->l->users);
    v->users[index] = users && PyDict_Check(users) ? (uint32_t)PyDict_GET_SIZE(users) : UINT32_MAX;
    int result = read_operands(v, index, false);
    v->forward |= result == 1;
    return result < 0 ? -1 : 0;
}

/* A node has been reached: what it points to will be read LAG nodes later, and what that points to in between. */
static void fetch(const reader *r, uint32_t index)
{
    PyObject *node = r->v->s.nodes[index], *other = index < LAG / 2 ? NULL : r->v->s.nodes[index - LAG / 2];
    Py_ssize_t dicts = r->wants->uses ? r->l->users : r->l->input_nodes;

    if (r->wants->lint)
        __builtin_prefetch((char *)fx_get(node, r->l->name) + 24);
    if (!r->operands && !r->wants->uses)
        return;
    __builtin_prefetch((char *)fx_get(node, r->l->input_nodes) + 16);
    __builtin_prefetch((char *)fx_get(node, r->l->users) + 16);
    if (r->wants->uses) {
        __builtin_prefetch((char *)fx_get(node, r->l->args) + 16);
        __builtin_prefetch((char *)fx_get(node, r->l->kwargs) + 16);
    }
    PyObject *dict = other ? fx_get(other, dicts) : NULL;
    if (dict && PyDict_Check(dict)) {
        char *keys = (char *)((PyDictObject *)dict)->ma_keys;
        __builtin_prefetch(keys);
        __builtin_prefetch(keys + 64);
    }
}

static int walk(reader *r)
{
    fx_view *v = r->v;
    fx_walk w = {.s = &v->s};
    uint32_t read = 0;
    PyObject *node;

    while ((node = fx_walk_next(&w))) {
        v->plain &= fx_is_plain(r->l, node);
        if (fx_snapshot_push(&v->s, node) < 0 || (v->s.calls.count > v->core->target_count && read_calls(v) < 0))
            return -1;
        fetch(r, v->s.count - 1);
        if (v->s.count > LAG && read_node(r, read++) < 0)
            return -1;
    }
    if (w.failed)
        return -1;
    while (read < v->s.count) {
        if (read_node(r, read++) < 0)
            return -1;
    }
    v->s.total = v->s.count;
    return 0;
}

/* What could not be read in passing: operands that stand after their users. */
static int read_forward(fx_view *v)
{
    for (uint32_t i = 0; v->forward && i < v->s.count; i++) {
        PyObject *inputs = fx_get(v->s.nodes[i], v->s.st->fx.input_nodes);
        if (PyDict_GET_SIZE(inputs) != (Py_ssize_t)v->core->nodes[fx_view_id(i)].edge_count &&
            read_operands(v, i, true) < 0)
            return -1;
    }
    return 0;
}

/* Only a node that shares its name gets one: lint finds by it that it does. */
static int read_twins(const reader *r)
{
    fx_view *v = r->v;

    for (uint32_t k = 0; k < r->names.twin_count; k += 2) {
        uint32_t id = fx_view_id(r->names.twins[k]), first = fx_view_id(r->names.twins[k + 1]);
        fe_error err;
        fe_string *name = fe_string_get(v->core, (const char *)&first, sizeof first, &err);
        if (!name)
            return fail_core(v->s.st, &err);
        fe_node_set_name(v->core, first, name);
        fe_node_set_name(v->core, id, name);
    }
    return 0;
}

static bool wants_operands(const reader *r)
{
    const fx_calls *c = &r->v->s.calls;

    for (uint32_t i = 0; r->wants->operands_if_writes && i < c->count; i++) {
        if (r->out || c->items[i].flags & (FE_TARGET_MUTATES | FE_TARGET_UNKNOWN | FE_TARGET_PER_NODE))
            return true;
    }
    return r->wants->operands;
}

/* For as many nodes as the graph says it has. */
static int make_room(reader *r)
{
    fx_view *v = r->v;
    size_t room = (size_t)(v->s.length > 0 ? v->s.length : 0);
    fe_error err;

    if (fe_graph_reserve(v->core, room, &err) < 0 ||
        fe_grow(v->s.memory, &v->users, &v->user_capacity, room, sizeof *v->users, &err) < 0 ||
        (r->operands &&
         fe_grow(v->s.memory, &v->core->edges, &v->core->edge_capacity, 2 * room, sizeof(fe_edge), &err) < 0))
        return fail_core(v->s.st, &err);
    if (r->wants->uses && fx_uses_begin(&r->uses, v, room) < 0)
        return -1;
    return r->wants->lint ? fx_names_begin(&r->names, &v->s, room) : 0;
}

/* A graph of ours, whose core takes its memory from the pool. */
static int new_graph(fx_view *v, bool bare)
{
    fe_graph *core = fe_graph_new(v->s.memory, NULL);

    Py_XSETREF(v->g, core ? (GraphObject *)PyObject_CallNoArgs((PyObject *)v->s.st->graph_type) : NULL);
    if (!v->g) {
        fe_graph_free(core);
        return core ? -1 : no_memory();
    }
    fe_graph_free(v->g->core);
    v->core = v->g->core = core;
    core->bare = bare;
    return 0;
}

static int read_graph(reader *r)
{
    fx_view *v = r->v;

    if (new_graph(v, r->wants->bare && !r->full) < 0)
        return -1;
    v->plain = true;
    v->forward = v->suspect = false;
    r->operands = wants_operands(r);
    return fx_listings_open(&r->listings, &v->s) < 0 || fx_snapshot_restart(&v->s) < 0 || make_room(r) < 0 ||
                   read_calls(v) < 0 || walk(r) < 0 || read_forward(v) < 0
               ? -1
               : 0;
}

/* ---- what is left for Python code ------------------------------------------------------------------------------------------------ */

static int ask_call_facts(fx_view *v)
{
    for (uint32_t i = 0; i < v->s.count; i++) {
        uint8_t flags;
        if (!(v->s.calls.items[v->s.call[i]].flags & FE_TARGET_PER_NODE))
            continue;
        if (facts_of_call(v->s.st, v->s.nodes[i], &flags) < 0)
            return -1;
        v->core->nodes[fx_view_id(i)].flags |= flags;
    }
    return 0;
}

/* Nodes of a class with its own hash or equality. */
static int ask_listed(reader *r)
{
    for (uint32_t i = 0; i < r->v->s.count; i++) {
        if (fx_is_plain(r->l, r->v->s.nodes[i]))
            continue;
        int listed = fx_listings_find(&r->listings, &r->v->s, i);
        if (listed < 0)
            return -1;
        if (!listed)
            r->v->core->nodes[fx_view_id(i)].flags |= FE_NODE_UNLISTED;
    }
    return 0;
}

static int finish(reader *r)
{
    fx_view *v = r->v;
    bool per_node = false;

    for (uint32_t i = 0; i < v->s.calls.count; i++) {
        v->core->targets[i].flags = v->s.calls.items[i].flags;
        per_node |= v->s.calls.items[i].flags & FE_TARGET_PER_NODE;
    }
    if (r->names.odd || !v->plain || per_node)
        fx_snapshot_hold(&v->s);
    if (!v->plain && r->wants->lint && ask_listed(r) < 0)
        return -1;
    if (r->names.odd && fx_names_enter_odd(&r->names) < 0)
        return -1;
    if (per_node && r->wants->facts && ask_call_facts(v) < 0)
        return -1;
    return read_twins(r);
}

static int open_view(reader *r)
{
    fx_view *v = r->v;
    fx_tables tables = {0};
    int result = 1, asked;

    if (!(v->owner = PyObject_GetAttrString(v->s.graph, "owning_module")) ||
        (v->look = v->owner == Py_None ? 0 : PyObject_IsTrue(v->owner)) < 0)
        return -1;
    if (r->wants->facts && !v->s.st->effects && refresh_effects(v->s.st) < 0)
        return -1;
    if (fx_tables_get(v->s.graph, &tables) < 0)
        return -1;
    owning_walk_init(&r->look, v->s.st, v->owner);
    if (fx_listings_read(&r->listings, &v->s, tables.table, v->look > 0) < 0 || ask_calls(r, tables.table) < 0)
        result = -1;
    for (int i = 0; result == 1 && i < TRIES; i++) {
        if (read_graph(r) < 0 || (asked = ask_calls(r, tables.table)) < 0) {
            result = -1;
            break;
        }
        bool lacks_names = v->core->bare && (r->names.twin_count || r->names.odd);
        r->full |= lacks_names;
        result = asked || lacks_names || wants_operands(r) != r->operands;
    }
    if (result == 1)
        PyErr_SetString(PyExc_RuntimeError, "the torch.fx graph is changed by code that runs while it is read");
    fx_tables_clear(&tables);
    owning_walk_clear(&r->look);
    if (result == 0)
        result = finish(r);
    return result == 0 ? 0 : -1;
}

int fx_view_open(fx_view *v, module_state *st, PyObject *graph, const fx_wants *wants)
{
    reader r = {.v = v, .wants = wants, .l = &st->fx};

    *v = (fx_view){0};
    int result = fx_snapshot_begin(&v->s, st, graph);
    if (result == 0)
        result = open_view(&r);
    fx_uses_clear(&r.uses, &st->pool.allocator);
    fx_names_clear(&r.names, &st->pool.allocator);
    fx_listings_clear(&r.listings);
    return result;
}

void fx_view_clear(fx_view *v)
{
    fx_view old = *v;

    *v = (fx_view){0};
    if (!old.s.memory)
        return;
    fe_resize(old.s.memory, old.users, 0);
    fe_resize(old.s.memory, old.sums, 0);
    fx_snapshot_clear(&old.s);
    Py_XDECREF(old.owner);
    Py_XDECREF(old.g);
}

bool fx_view_is_settled(const fx_view *v)
{
    for (uint32_t i = 0; i < v->s.count; i++) {
        if (v->users[i] != v->core->nodes[fx_view_id(i)].user_count)
            return false;
    }
    return true;
}
