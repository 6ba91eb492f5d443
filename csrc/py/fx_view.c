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

/* A dict of nodes in find_nodes' table, read along with the list. */
typedef struct {
    PyObject *dict; /* strong */
    Py_ssize_t at;
    PyObject *next; /* borrowed: the first node not met yet */
} listing;

typedef struct {
    fx_view *v;
    const fx_wants *wants;
    const fx_layout *l;
    listing *listings; /* by call when that is a function, else by opcode, behind those */
    uint32_t listing_count;
    PyObject *op_listed[FE_OP_COUNT];       /* strong */
    owning_walk look;                       /* in the owning module */
    bool operands;                          /* are read */
    bool out;                               /* some node writes to its keyword "out" */
    bool odd_names;                         /* some are no exact strings */
    uint32_t *hashes, hash_capacity;        /* of names, by node */
    uint32_t *names, name_mask, name_count; /* hash table of the names' nodes */
} reader;

static int core_error(const fx_view *v, const fe_error *err)
{
    raise_core(v->s.st, err);
    return -1;
}

static int no_memory(void)
{
    PyErr_NoMemory();
    return -1;
}

/* ---- asking ---------------------------------------------------------------------------------------------------------- */

static int ask(PyObject *function, PyObject *const *args, size_t count, uint32_t *out)
{
    PyObject *answer = PyObject_Vectorcall(function, args, count, NULL);

    if (!answer)
        return -1;
    *out |= (uint32_t)PyLong_AsUnsignedLongMask(answer);
    Py_DECREF(answer);
    return PyErr_Occurred() ? -1 : 0;
}

/* A function that torch.fx was told to keep. */
static int ask_registered(const fx_view *v, fx_call *call)
{
    if (!v->s.st->effects)
        return 0;
    int found = PySet_Contains(v->s.st->effects, call->target);
    if (found < 0 && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear(); /* unhashable, so not in a set */
        found = 0;
    }
    if (found > 0)
        call->flags |= FE_TARGET_FX_IMPURE | FE_TARGET_EFFECT;
    return found < 0 ? -1 : 0;
}

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
    PyObject *const fact_args[] = {call->op, call->target, r->v->owner};

    if (needs_facts(r->wants, call)) {
        if (ask(st->facts, fact_args, 3, &call->flags) < 0)
            return -1;
        call->flags &= EFFECTS;
        if (call->code == FE_OP_CALL_FUNCTION && ask_registered(r->v, call) < 0)
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

/* ---- torch's find_nodes table ----------------------------------------------------------------------------------------- */

/* The calls of the nodes in a dict of the table. */
static int list_calls(reader *r, PyObject *listed)
{
    PyObject *node, *value;
    Py_ssize_t at = 0;
    uint32_t call;

    while (PyDict_Next(listed, &at, &node, &value)) {
        if (fx_is_node(r->l, node) &&
            fx_calls_get(r->v->s.st, &r->v->s.calls, fx_get(node, r->l->op), fx_get(node, r->l->target), &call) < 0)
            return -1;
    }
    return 0;
}

/* Enter what the table lists, so that it can be asked about before the walk. */
static int read_table(reader *r, PyObject *table)
{
    PyObject *key, *listed;
    Py_ssize_t at = 0;
    uint32_t index;

    while (PyDict_Next(table, &at, &key, &listed)) {
        if (!PyTuple_Check(key) || PyTuple_GET_SIZE(key) != 2 || !PyDict_Check(listed) || !PyDict_GET_SIZE(listed))
            continue;
        PyObject *op = PyTuple_GET_ITEM(key, 0), *target = PyTuple_GET_ITEM(key, 1);
        fe_op code = fx_op(r->v->s.st, op);
        if (code == FE_OP_CALL_FUNCTION) {
            if (fx_calls_get(r->v->s.st, &r->v->s.calls, op, target, &index) < 0)
                return -1;
            r->v->s.calls.items[index].listed = Py_NewRef(listed);
            r->v->s.calls.items[index].known = true;
            continue;
        }
        Py_XSETREF(r->op_listed[code], Py_NewRef(listed));
        bool counts = code == FE_OP_CALL_MODULE || code == FE_OP_CALL_METHOD || (code == FE_OP_GET_ATTR && r->v->look);
        if (counts && list_calls(r, listed) < 0)
            return -1;
    }
    return 0;
}

static void next_listed(listing *t)
{
    PyObject *value;

    if (!PyDict_Next(t->dict, &t->at, &t->next, &value))
        t->next = NULL;
}

static int open_listings(reader *r)
{
    r->listing_count = r->v->s.calls.count;
    r->listings = PyMem_RawCalloc((size_t)r->listing_count + FE_OP_COUNT, sizeof *r->listings);
    if (!r->listings)
        return no_memory();
    for (uint32_t i = 0; i < r->listing_count + FE_OP_COUNT; i++) {
        PyObject *dict = i < r->listing_count ? r->v->s.calls.items[i].listed : r->op_listed[i - r->listing_count];
        r->listings[i].dict = Py_XNewRef(dict);
        if (dict)
            next_listed(&r->listings[i]);
    }
    return 0;
}

static void close_listings(reader *r)
{
    for (uint32_t i = 0; r->listings && i < r->listing_count + FE_OP_COUNT; i++)
        Py_XDECREF(r->listings[i].dict);
    PyMem_RawFree(r->listings);
    r->listings = NULL;
}

/* Whether the table lists a node; it is mostly the next one. */
static int is_listed(reader *r, PyObject *node, uint32_t call)
{
    uint32_t code = r->v->s.calls.items[call].code;
    listing *t = &r->listings[code == FE_OP_CALL_FUNCTION ? call : r->listing_count + (code < FE_OP_COUNT ? code : 0)];

    if (code >= FE_OP_COUNT || (code == FE_OP_CALL_FUNCTION && call >= r->listing_count) || !t->dict)
        return 0;
    if (t->next == node) {
        next_listed(t);
        return 1;
    }
    return PyDict_Contains(t->dict, node);
}

/* ---- names ---------------------------------------------------------------------------------------------------------------- */

static int note_twins(fx_view *v, uint32_t index, uint32_t first)
{
    fe_error err;

    if (fe_grow(v->s.memory, &v->twins, &v->twin_capacity, (size_t)v->twin_count + 2, sizeof *v->twins, &err) < 0)
        return core_error(v, &err);
    v->twins[v->twin_count++] = index;
    v->twins[v->twin_count++] = first;
    return 0;
}

/* A hash table with room for some names; those there are entered. */
static int index_names(reader *r, size_t room)
{
    uint32_t *names = fx_new_slots(r->v->s.memory, room, &r->name_mask);

    if (!names)
        return -1;
    fe_resize(r->v->s.memory, r->names, 0);
    r->names = names;
    for (uint32_t index = 0; index < r->name_count; index++) {
        uint32_t i = r->hashes[index] & r->name_mask;
        while (names[i] != EMPTY_SLOT)
            i = (i + 1) & r->name_mask;
        names[i] = index;
    }
    return 0;
}

/* Of an exact string, which mostly has it already. */
static uint32_t name_hash(PyObject *name)
{
    Py_hash_t hash = ((PyASCIIObject *)name)->hash;

    return (uint32_t)(hash == -1 ? PyObject_Hash(name) : hash);
}

/* Enter the name of a node, or note the node that bears it already. Hashing and comparing exact strings runs no code. */
static int enter_name(reader *r, uint32_t index)
{
    PyObject *name = fx_get(r->v->s.nodes[index], r->l->name);
    fe_error err;

    if (!name || !PyUnicode_CheckExact(name)) {
        r->odd_names = true;
        return 0;
    }
    if (index >= r->hash_capacity &&
        fe_grow(r->v->s.memory, &r->hashes, &r->hash_capacity, (size_t)index + 1, sizeof *r->hashes, &err) < 0)
        return core_error(r->v, &err);
    if (index > r->name_mask / 2 && index_names(r, 2 * (size_t)index) < 0)
        return -1;
    uint32_t hash = r->hashes[index] = name_hash(name), i = hash & r->name_mask;
    r->name_count = index + 1;
    for (; r->names[i] != EMPTY_SLOT; i = (i + 1) & r->name_mask) {
        if (r->hashes[r->names[i]] != hash)
            continue;
        PyObject *other = fx_get(r->v->s.nodes[r->names[i]], r->l->name);
        if (other == name || PyUnicode_Compare(other, name) == 0)
            return note_twins(r->v, index, r->names[i]);
    }
    r->names[i] = index;
    return 0;
}

/* The same by Python's own rules, for names that are no plain strings; nodes are held. */
static int enter_odd_names(fx_view *v)
{
    PyObject *known = PyDict_New();
    int result = known ? 0 : -1;

    v->twin_count = 0;
    for (uint32_t i = 0; result == 0 && i < v->s.count; i++) {
        PyObject *name = fx_get(v->s.nodes[i], v->s.st->fx.name), *index = PyLong_FromUnsignedLong(i), *first = NULL;
        name = Py_NewRef(name ? name : Py_None);
        if (index)
            first = PyDict_SetDefault(known, name, index);
        result = first ? 0 : -1;
        if (first && first != index)
            result = note_twins(v, i, (uint32_t)PyLong_AsUnsignedLong(first));
        Py_XDECREF(index);
        Py_DECREF(name);
    }
    Py_XDECREF(known);
    return result;
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
            return core_error(v, &err);
    }
    return 0;
}

bool fx_names_node(const fx_layout *l, PyObject *o)
{
    const PySliceObject *slice = (PySliceObject *)o;
    PyObject *key, *value;
    Py_ssize_t at = 0;

    if (!o)
        return false;
    if (PyTuple_Check(o) || PyList_Check(o)) {
        for (Py_ssize_t i = 0; i < Py_SIZE(o); i++) {
            if (fx_names_node(l, PySequence_Fast_GET_ITEM(o, i)))
                return true;
        }
    } else if (PyDict_Check(o)) {
        while (PyDict_Next(o, &at, &key, &value)) {
            if (fx_names_node(l, value))
                return true;
        }
    } else if (PySlice_Check(o)) {
        return fx_names_node(l, slice->start) || fx_names_node(l, slice->stop) || fx_names_node(l, slice->step);
    }
    return fx_is_node(l, o);
}

/* Whether a call writes to a node under its keyword "out". An operator that does is known to write by its schema. */
static bool writes_out(const fx_view *v, PyObject *node, PyObject *target)
{
    PyObject *kwargs, *key, *value;
    Py_ssize_t at = 0;

    if (target && ((PyObject *)Py_TYPE(target) == v->s.st->fx.overload_type || target == v->s.st->getitem))
        return false;
    kwargs = fx_get(node, v->s.st->fx.kwargs);
    if (!kwargs || !PyDict_Check(kwargs))
        return false;
    while (PyDict_Next(kwargs, &at, &key, &value)) {
        if (PyUnicode_Check(key) && PyUnicode_CompareWithASCIIString(key, "out") == 0)
            return fx_names_node(&v->s.st->fx, value);
    }
    return false;
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
        return core_error(v, &err);
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
        core_error(v, &err);
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
        int listed = fx_is_plain(r->l, node) ? is_listed(r, node, call) : 1;
        if (listed < 0 || enter_name(r, index) < 0)
            return -1;
        flags |= listed ? 0 : FE_NODE_UNLISTED;
        flags |= fx_get(node, r->l->graph) == v->s.graph ? 0 : FE_NODE_FOREIGN;
    }
    if (r->wants->facts && !r->wants->fx_policy && writes_out(v, node, v->s.calls.items[call].target)) {
        if (!fe_string_get(v->core, "out", 3, &err)) /* by which passes see that there are such nodes */
            return core_error(v, &err);
        flags |= FE_NODE_OUT;
        r->out = true;
    }
    if (fe_node_new(v->core, (fe_op)v->s.calls.items[call].code, call, NULL, FE_NONE_ID, &id, &err) < 0)
        return core_error(v, &err);
    v->core->nodes[id].flags = flags;
    fe_node_place(v->core, id, (fe_point){FE_ROOT, false});
    if (!r->operands)
        return 0;
    if (index >= v->user_capacity &&
        fe_grow(v->s.memory, &v->users, &v->user_capacity, (size_t)index + 1, sizeof *v->users, &err) < 0)
        return core_error(v, &err);
    users = fx_get(node, r->l->users);
    v->users[index] = users && PyDict_Check(users) ? (uint32_t)PyDict_GET_SIZE(users) : UINT32_MAX;
    int result = read_operands(v, index, false);
    v->forward |= result == 1;
    return result < 0 ? -1 : 0;
}

/* A node has been reached: what it points to will be read LAG nodes later, and what that points to in between. */
static void fetch(const reader *r, uint32_t index)
{
    PyObject *node = r->v->s.nodes[index], *inputs;

    if (r->wants->lint)
        __builtin_prefetch((char *)fx_get(node, r->l->name) + 24);
    if (!r->operands)
        return;
    __builtin_prefetch((char *)fx_get(node, r->l->input_nodes) + 16);
    __builtin_prefetch((char *)fx_get(node, r->l->users) + 16);
    if (index < LAG / 2)
        return;
    inputs = fx_get(r->v->s.nodes[index - LAG / 2], r->l->input_nodes);
    if (inputs && PyDict_Check(inputs)) {
        char *keys = (char *)((PyDictObject *)inputs)->ma_keys;
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
static int read_twins(fx_view *v)
{
    for (uint32_t k = 0; k < v->twin_count; k += 2) {
        uint32_t id = fx_view_id(v->twins[k]), first = fx_view_id(v->twins[k + 1]);
        fe_error err;
        fe_string *name = fe_string_get(v->core, (const char *)&first, sizeof first, &err);
        if (!name)
            return core_error(v, &err);
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
         fe_grow(v->s.memory, &v->core->edges, &v->core->edge_capacity, 2 * room, sizeof(fe_edge), &err) < 0) ||
        (r->wants->lint && fe_grow(v->s.memory, &r->hashes, &r->hash_capacity, room, sizeof *r->hashes, &err) < 0))
        return core_error(v, &err);
    return r->wants->lint ? index_names(r, room + 1) : 0;
}

/* A graph of ours, whose core takes its memory from the pool. */
static int new_graph(fx_view *v)
{
    fe_graph *core = fe_graph_new(v->s.memory, NULL);

    Py_XSETREF(v->g, core ? (GraphObject *)PyObject_CallNoArgs((PyObject *)v->s.st->graph_type) : NULL);
    if (!v->g) {
        fe_graph_free(core);
        return core ? -1 : no_memory();
    }
    fe_graph_free(v->g->core);
    v->core = v->g->core = core;
    return 0;
}

static int read_graph(reader *r)
{
    fx_view *v = r->v;

    if (new_graph(v) < 0)
        return -1;
    v->twin_count = 0;
    v->plain = true;
    v->forward = false;
    r->odd_names = false;
    r->name_count = 0;
    r->operands = wants_operands(r);
    close_listings(r);
    return open_listings(r) < 0 || fx_snapshot_restart(&v->s) < 0 || make_room(r) < 0 || read_calls(v) < 0 ||
                   walk(r) < 0 || read_forward(v) < 0
               ? -1
               : 0;
}

/* ---- what is left for Python code ------------------------------------------------------------------------------------------------ */

static int ask_call_facts(fx_view *v)
{
    for (uint32_t i = 0; i < v->s.count; i++) {
        uint32_t flags = 0;
        if (!(v->s.calls.items[v->s.call[i]].flags & FE_TARGET_PER_NODE))
            continue;
        if (ask(v->s.st->call_facts, &v->s.nodes[i], 1, &flags) < 0)
            return -1;
        v->core->nodes[fx_view_id(i)].flags |= (uint8_t)(flags & (FE_NODE_IMPURE | FE_NODE_FX_IMPURE | FE_NODE_RANDOM));
    }
    return 0;
}

/* Nodes of a class with its own hash or equality. */
static int ask_listed(reader *r)
{
    for (uint32_t i = 0; i < r->v->s.count; i++) {
        if (fx_is_plain(r->l, r->v->s.nodes[i]))
            continue;
        int listed = is_listed(r, r->v->s.nodes[i], r->v->s.call[i]);
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
    if (r->odd_names || !v->plain || per_node)
        fx_snapshot_hold(&v->s);
    if (!v->plain && r->wants->lint && ask_listed(r) < 0)
        return -1;
    if (r->odd_names && enter_odd_names(v) < 0)
        return -1;
    if (per_node && r->wants->facts && ask_call_facts(v) < 0)
        return -1;
    return read_twins(v);
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
    if (read_table(r, tables.table) < 0 || ask_calls(r, tables.table) < 0)
        result = -1;
    for (int i = 0; result == 1 && i < TRIES; i++) {
        if (read_graph(r) < 0 || (asked = ask_calls(r, tables.table)) < 0)
            result = -1;
        else
            result = asked || wants_operands(r) != r->operands;
    }
    if (result == 1)
        PyErr_SetString(PyExc_RuntimeError, "the torch.fx graph is changed by code that runs while it is read");
    fx_tables_clear(&tables);
    owning_walk_clear(&r->look);
    if (result == 0)
        result = finish(r);
    close_listings(r);
    return result == 0 ? 0 : -1;
}

int fx_view_open(fx_view *v, module_state *st, PyObject *graph, const fx_wants *wants)
{
    reader r = {.v = v, .wants = wants, .l = &st->fx};

    *v = (fx_view){0};
    int result = fx_snapshot_begin(&v->s, st, graph);
    if (result == 0)
        result = open_view(&r);
    fe_resize(&st->pool.allocator, r.hashes, 0);
    fe_resize(&st->pool.allocator, r.names, 0);
    for (int i = 0; i < FE_OP_COUNT; i++)
        Py_XDECREF(r.op_listed[i]);
    return result;
}

void fx_view_clear(fx_view *v)
{
    fx_view old = *v;

    *v = (fx_view){0};
    if (!old.s.memory)
        return;
    fe_resize(old.s.memory, old.users, 0);
    fe_resize(old.s.memory, old.twins, 0);
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

/* ---- faults ---------------------------------------------------------------------------------------------------------------- */

/* The name of a node as text, in whatever state it is. */
static PyObject *name_text(const fx_view *v, uint32_t id)
{
    PyObject *name = fx_get(v->s.nodes[id - 1], v->s.st->fx.name);

    return PyObject_Str(name ? name : Py_None);
}

static void add_text(fe_buffer *out, PyObject *o)
{
    PyObject *text = PyObject_Str(o),
             *bytes = text ? PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace") : NULL;

    if (bytes)
        fe_buffer_add(out, PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes));
    else
        fe_buffer_char(out, '?');
    PyErr_Clear(); /* something that has no text must not hide the fault */
    Py_XDECREF(bytes);
    Py_XDECREF(text);
}

static PyObject *fault_text(const fx_view *v, const fe_record *fault, PyObject *name, PyObject *operand)
{
    bool listed = fault->node <= v->s.count;
    const fx_call *call = listed ? &v->s.calls.items[v->s.call[fault->node - 1]] : NULL;
    PyObject *result, *target = call && call->target ? call->target : Py_None,
                      *op = call && call->op ? call->op : Py_None;
    fe_buffer text;

    fe_buffer_init(&text, &fe_python_allocator);
    for (const char *at = fe_fault_text((fe_fault)fault->code); *at; at++) {
        if (*at != '%') {
            fe_buffer_char(&text, *at);
            continue;
        }
        at++;
        add_text(&text, *at == 'N' ? name : *at == 'O' ? operand : *at == 'P' ? op : target);
    }
    result = text.failed ? PyErr_NoMemory() : PyUnicode_DecodeUTF8(text.data, (Py_ssize_t)text.len, "replace");
    fe_buffer_clear(&text);
    return result;
}

PyObject *fx_view_fault(fx_view *v, const fe_record *fault)
{
    fx_snapshot_hold(&v->s);
    PyObject *name = name_text(v, fault->node), *message = NULL, *result = NULL;
    PyObject *operand = fault->other == FE_NONE_ID ? Py_NewRef(Py_None) : name_text(v, fault->other);

    if (name && operand && (message = fault_text(v, fault, name, operand)))
        result = Py_BuildValue("sOOO", fe_fault_name((fe_fault)fault->code), name, operand, message);
    Py_XDECREF(name);
    Py_XDECREF(operand);
    Py_XDECREF(message);
    return result;
}
