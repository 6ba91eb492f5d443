/* fx_view.c - what a pass needs to see of a live torch.fx graph, in the core's form.
 *
 * First everything is asked that may run Python code: facts about targets, names, torch's find_nodes table. Then the
 * structure is read in one go from slots. When the list of nodes is no longer what it was when the asking began, all of
 * it is done again, a few times at most.
 */
#include "fx.h"

#define TRIES 3

/* What the facts of a target tell that is not found out here. */
#define EFFECTS                                                                                                        \
    (FE_TARGET_MUTATES | FE_TARGET_RANDOM | FE_TARGET_EFFECT | FE_TARGET_NO_RESULT | FE_TARGET_UNKNOWN |               \
     FE_TARGET_FX_IMPURE | FE_TARGET_FX_RANDOM | FE_TARGET_PER_NODE)

static int core_error(const fx_view *v, const fe_error *err)
{
    raise_core(v->s.st, err);
    return -1;
}

/* ---- asking: targets ------------------------------------------------------------------------------------------------- */

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

static int ask_facts(const fx_view *v, fx_call *call, bool fx_policy)
{
    PyObject *const args[] = {call->op, call->target, v->owner};

    if (call->code != FE_OP_CALL_FUNCTION && call->code != FE_OP_CALL_MODULE &&
        (call->code != FE_OP_CALL_METHOD || fx_policy))
        return 0;
    if (ask(v->s.st->facts, args, 3, &call->flags) < 0)
        return -1;
    call->flags &= EFFECTS;
    return call->code == FE_OP_CALL_FUNCTION ? ask_registered(v, call) : 0;
}

/* What torch.fx's lint wants of a target: of the right type, and there in the owning module. */
static int ask_target(const fx_view *v, fx_call *call, bool look)
{
    PyObject *const args[] = {v->owner, call->target, call->code == FE_OP_CALL_MODULE ? Py_True : Py_False};
    bool callable = call->code == FE_OP_CALL_FUNCTION;

    if (!call->target || (callable ? !PyCallable_Check(call->target) : !PyUnicode_Check(call->target))) {
        call->flags |= FE_TARGET_NOT_CALLABLE;
        return 0;
    }
    if (!look || (call->code != FE_OP_GET_ATTR && call->code != FE_OP_CALL_MODULE))
        return 0;
    return ask(v->s.st->resolve, args, 3, &call->flags);
}

static int ask_calls(fx_view *v, PyObject *table, const fx_wants *wants)
{
    int look = v->owner == Py_None ? 0 : PyObject_IsTrue(v->owner);

    if (look < 0 || (wants->facts && !v->s.st->effects && refresh_effects(v->s.st) < 0))
        return -1;
    for (uint32_t i = 0; i < v->s.calls.count; i++) {
        fx_call *call = &v->s.calls.items[i];
        if (wants->facts && ask_facts(v, call, wants->fx_policy) < 0)
            return -1;
        if (call->target == v->s.st->getitem && call->code == FE_OP_CALL_FUNCTION)
            call->flags |= FE_TARGET_GETITEM;
        if (!wants->lint)
            continue;
        if ((look || !wants->fx_only) && ask_target(v, call, look) < 0)
            return -1;
        if (call->op && call->target && fx_call_find_listed(table, call, false) < 0) {
            if (!PyErr_ExceptionMatches(PyExc_TypeError))
                return -1;
            PyErr_Clear(); /* unhashable, so listed nowhere */
        }
    }
    return 0;
}

/* ---- asking: nodes ----------------------------------------------------------------------------------------------------- */

static int ask_call_facts(fx_view *v)
{
    for (uint32_t i = 0; i < v->s.count; i++) {
        uint32_t flags = 0;
        if (!(v->s.calls.items[v->s.call[i]].flags & FE_TARGET_PER_NODE))
            continue;
        if (ask(v->s.st->call_facts, &v->s.nodes[i], 1, &flags) < 0)
            return -1;
        v->flags[i] |= (uint8_t)(flags & (FE_NODE_IMPURE | FE_NODE_FX_IMPURE));
    }
    return 0;
}

static int ask_listed(fx_view *v)
{
    for (uint32_t i = 0; i < v->s.count; i++) {
        PyObject *listed = v->s.calls.items[v->s.call[i]].listed;
        int found = listed ? PyDict_Contains(listed, v->s.nodes[i]) : 0;
        if (found < 0)
            return -1;
        if (!found)
            v->flags[i] |= FE_NODE_UNLISTED;
    }
    return 0;
}

typedef struct {
    uint32_t hash, index; /* index EMPTY_SLOT: free */
} name_slot;

static int same_name(PyObject *a, PyObject *b)
{
    if (a == b)
        return 1;
    if (a && b && PyUnicode_CheckExact(a) && PyUnicode_CheckExact(b))
        return PyUnicode_Compare(a, b) == 0;
    return b ? PyObject_RichCompareBool(a, b, Py_EQ) : 0;
}

static int note_twins(fx_view *v, uint32_t index, uint32_t first)
{
    fe_error err;

    if (fe_grow(&fe_python_allocator, &v->twins, &v->twin_capacity, (size_t)v->twin_count + 2, sizeof *v->twins, &err) < 0)
        return core_error(v, &err);
    v->twins[v->twin_count++] = index;
    v->twins[v->twin_count++] = first;
    return 0;
}

/* Enter the name of a node, or note the node that bears it already. */
static int enter_name(fx_view *v, name_slot *slots, uint32_t mask, uint32_t index)
{
    const fx_layout *l = &v->s.st->fx;
    PyObject *name = Py_NewRef(fx_get(v->s.nodes[index], l->name));
    Py_hash_t hash = PyObject_Hash(name);
    int same = hash == -1 ? -1 : 0;

    for (uint32_t i = (uint32_t)hash & mask; same == 0; i = (i + 1) & mask) {
        if (slots[i].index == EMPTY_SLOT) {
            slots[i] = (name_slot){(uint32_t)hash, index};
            break;
        }
        if (slots[i].hash != (uint32_t)hash)
            continue;
        PyObject *other = Py_XNewRef(fx_get(v->s.nodes[slots[i].index], l->name));
        same = same_name(name, other);
        Py_XDECREF(other);
        if (same > 0 && note_twins(v, index, slots[i].index) < 0)
            same = -1;
    }
    Py_DECREF(name);
    return same < 0 ? -1 : 0;
}

static int ask_names(fx_view *v)
{
    const fx_layout *l = &v->s.st->fx;
    size_t size = 64;

    while (size < 2 * (size_t)v->s.count)
        size *= 2;
    name_slot *slots = size <= UINT32_MAX ? PyMem_RawMalloc(size * sizeof *slots) : NULL;
    int result = 0;

    if (!slots) {
        PyErr_NoMemory();
        return -1;
    }
    memset(slots, 0xff, size * sizeof *slots);
    for (uint32_t i = 0; result == 0 && i < v->s.count; i++) {
        if (i + 4 < v->s.count)
            __builtin_prefetch((char *)fx_get(v->s.nodes[i + 4], l->name) + 16);
        if (fx_get(v->s.nodes[i], l->name)) {
            result = enter_name(v, slots, (uint32_t)size - 1, i);
        } else {
            PyErr_SetString(PyExc_ValueError, "a node of the torch.fx graph has no name");
            result = -1;
        }
    }
    PyMem_RawFree(slots);
    return result;
}

static int ask_all(fx_view *v, const fx_wants *wants)
{
    fx_tables tables = {0};
    int result = 0;

    if (!(v->flags = PyMem_RawCalloc((size_t)v->s.count + 1, sizeof *v->flags))) {
        PyErr_NoMemory();
        return -1;
    }
    if (!(v->owner = PyObject_GetAttrString(v->s.graph, "owning_module")) ||
        (wants->lint && fx_tables_get(v->s.graph, &tables) < 0))
        return -1;
    result = ask_calls(v, tables.table, wants);
    fx_tables_clear(&tables);
    if (result == 0 && wants->facts)
        result = ask_call_facts(v);
    if (result == 0 && wants->lint)
        result = ask_listed(v) < 0 || ask_names(v) < 0 ? -1 : 0;
    return result;
}

/* ---- reading ------------------------------------------------------------------------------------------------------------- */

static int read_calls(fx_view *v)
{
    for (uint32_t i = 0; i < v->s.calls.count; i++) {
        const fx_call *call = &v->s.calls.items[i];
        uint32_t object, target;
        fe_error err;
        bool is_new;
        if (fe_object_new(v->core, &object, &err) < 0 ||
            fe_target_get(v->core, (fe_op)call->code, object, NULL, &target, &is_new, &err) < 0)
            return core_error(v, &err);
        v->core->targets[target].flags = call->flags;
    }
    return 0;
}

/* Whether a call has a node under its keyword "out". */
static bool writes_out(const fx_view *v, PyObject *node)
{
    PyObject *kwargs = fx_get(node, v->s.st->fx.kwargs), *key, *value;
    Py_ssize_t at = 0;

    if (!kwargs || !PyDict_Check(kwargs) || !PyDict_GET_SIZE(kwargs))
        return false;
    while (PyDict_Next(kwargs, &at, &key, &value)) {
        if (PyUnicode_Check(key) && PyUnicode_CompareWithASCIIString(key, "out") == 0)
            return fx_is_node(&v->s.st->fx, value) || PyTuple_Check(value) || PyList_Check(value);
    }
    return false;
}

static int read_nodes(fx_view *v, const fx_wants *wants)
{
    const fx_layout *l = &v->s.st->fx;
    fe_error err;

    if (fe_graph_reserve(v->core, v->s.count, &err) < 0)
        return core_error(v, &err);
    for (uint32_t i = 0; i < v->s.count; i++) {
        uint32_t call = v->s.call[i], id;
        uint8_t flags = v->flags[i];
        PyObject *node = v->s.nodes[i];
        if (wants->lint && fx_get(node, l->graph) != v->s.graph)
            flags |= FE_NODE_FOREIGN;
        if (wants->facts && !wants->fx_policy && writes_out(v, node)) {
            if (!fe_string_get(v->core, "out", 3, &err)) /* by which passes see that there are such nodes */
                return core_error(v, &err);
            flags |= FE_NODE_OUT;
        }
        if (fe_node_new(v->core, (fe_op)v->s.calls.items[call].code, call, NULL, FE_NONE_ID, &id, &err) < 0)
            return core_error(v, &err);
        v->core->nodes[id].flags = flags;
        fe_node_place(v->core, id, (fe_point){FE_ROOT, false});
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
        return core_error(v, &err);
    v->core->nodes[id].pos = UINT64_MAX;
    if (fx_get(node, l->graph) != v->s.graph)
        v->core->nodes[id].flags = FE_NODE_FOREIGN;
    else if (fx_is_erased(l, node))
        v->core->nodes[id].flags = FE_NODE_ERASED;
    return 0;
}

static void look_ahead(const fx_view *v, uint32_t i)
{
    const fx_layout *l = &v->s.st->fx;

    if (i + 8 < v->s.count)
        fx_prefetch_slots(v->s.nodes[i + 8]);
    if (i + 4 < v->s.count)
        __builtin_prefetch((char *)fx_get(v->s.nodes[i + 4], l->input_nodes) + 16);
    if (i + 2 < v->s.count)
        fx_prefetch_dict(fx_get(v->s.nodes[i + 2], l->input_nodes));
}

#define FEW 32

static int read_operands(fx_view *v, uint32_t index)
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
    if (PyDict_GET_SIZE(inputs) > FEW && !(defs = PyMem_RawMalloc((size_t)PyDict_GET_SIZE(inputs) * sizeof *defs))) {
        PyErr_NoMemory();
        return -1;
    }
    while (result == 0 && PyDict_Next(inputs, &at, &node, &value)) {
        if ((def = fx_snapshot_find(&v->s, node)) == FE_NONE_ID)
            result = add_stranger(v, node, &def);
        defs[count++] = fx_view_id(def);
    }
    if (result == 0 && (result = fe_node_set_operands(v->core, fx_view_id(index), defs, count, &err)) < 0)
        core_error(v, &err);
    if (defs != few)
        PyMem_RawFree(defs);
    return result;
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

static bool any_may_write(const fx_view *v)
{
    for (uint32_t i = 0; i < v->s.calls.count; i++) {
        if (v->s.calls.items[i].flags & (FE_TARGET_MUTATES | FE_TARGET_UNKNOWN | FE_TARGET_PER_NODE))
            return true;
    }
    return fe_string_find(&v->core->strings, "out", 3) != NULL;
}

static int read_all(fx_view *v, const fx_wants *wants)
{
    v->g = (GraphObject *)PyObject_CallNoArgs((PyObject *)v->s.st->graph_type);
    if (!v->g)
        return -1;
    v->core = v->g->core;
    if (read_calls(v) < 0)
        return -1;
    if (!fx_snapshot_is_current(&v->s))
        return 1;
    if (read_nodes(v, wants) < 0)
        return -1;
    bool operands = wants->operands || (wants->operands_if_writes && any_may_write(v));
    for (uint32_t i = 0; operands && i < v->s.count; i++) {
        look_ahead(v, i);
        if (read_operands(v, i) < 0)
            return -1;
    }
    return read_twins(v);
}

int fx_view_open(fx_view *v, module_state *st, PyObject *graph, const fx_wants *wants)
{
    int result = 1;

    *v = (fx_view){0};
    for (int i = 0; result == 1 && i < TRIES; i++) {
        fx_view_clear(v);
        if (fx_snapshot_take(&v->s, st, graph) < 0 || ask_all(v, wants) < 0)
            return -1;
        result = read_all(v, wants);
    }
    if (result == 1)
        PyErr_SetString(PyExc_RuntimeError, "the torch.fx graph is changed by code that runs while it is read");
    return result == 0 ? 0 : -1;
}

void fx_view_clear(fx_view *v)
{
    fx_view old = *v;

    *v = (fx_view){0};
    PyMem_RawFree(old.flags);
    PyMem_RawFree(old.twins);
    fx_snapshot_clear(&old.s);
    Py_XDECREF(old.owner);
    Py_XDECREF(old.g);
}

bool fx_view_is_settled(const fx_view *v)
{
    const fx_layout *l = &v->s.st->fx;

    for (uint32_t i = 0; i < v->s.count; i++) {
        if (i + 8 < v->s.count)
            __builtin_prefetch((char *)v->s.nodes[i + 8] + l->users);
        if (i + 4 < v->s.count)
            __builtin_prefetch((char *)fx_get(v->s.nodes[i + 4], l->users) + 16);
        PyObject *users = fx_get(v->s.nodes[i], l->users);
        if (!users || !PyDict_Check(users) ||
            PyDict_GET_SIZE(users) != (Py_ssize_t)v->core->nodes[fx_view_id(i)].user_count)
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
    PyObject *text = PyObject_Str(o), *bytes = text ? PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace") : NULL;

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
    PyObject *result, *target = call && call->target ? call->target : Py_None, *op = call && call->op ? call->op : Py_None;
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

PyObject *fx_view_fault(const fx_view *v, const fe_record *fault)
{
    PyObject *name = name_text(v, fault->node), *message = NULL, *result = NULL;
    PyObject *operand = fault->other == FE_NONE_ID ? Py_NewRef(Py_None) : name_text(v, fault->other);

    if (name && operand && (message = fault_text(v, fault, name, operand)))
        result = Py_BuildValue("sOOO", fe_fault_name((fe_fault)fault->code), name, operand, message);
    Py_XDECREF(name);
    Py_XDECREF(operand);
    Py_XDECREF(message);
    return result;
}
