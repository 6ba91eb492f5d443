/* fx_edit.c - bulk edits of live torch.fx graphs, with torch's own results.
 *
 * Each edit comes in two parts. The first makes all new objects and checks everything; Python code may run in it. The
 * second looks again, with slot reads only, whether what was checked still holds, then writes slots and dicts. Objects
 * that go are released at the very end. When the owning module has hooks, torch's own methods are called one by one
 * instead, because a hook sees, and may change, the graph between two steps.
 *
 * Arguments are immutable; but a tuple or list that nobody but its node holds is rewritten in place, which nobody can
 * tell from a new one.
 */
#include "fx.h"

/* ---- arguments with nodes mapped ------------------------------------------------------------------------------------ */

/* What torch.fx's map_aggregate does: containers become its immutable kinds, a tuple with fields keeps its class. */
typedef struct {
    const module_state *st;
    PyObject *old, *new; /* borrowed: new stands for old; old NULL: for any node, when new is not NULL */
    PyObject **nodes;    /* borrowed from the result: the nodes in it, each time it names one */
    uint32_t count, capacity;
    PyObject *symbol; /* borrowed from the source: the first raw symbol in it */
    int depth;
} mapper;

static PyObject *map(mapper *m, PyObject *o);

static void mapper_clear(mapper *m)
{
    PyMem_RawFree(m->nodes);
    m->nodes = NULL;
    m->count = m->capacity = 0;
}

static int note_node(mapper *m, PyObject *node)
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
static PyObject *map_item(mapper *m, PyObject *o, Py_ssize_t i, bool *changed)
{
    PyObject *item = i < Py_SIZE(o) ? Py_XNewRef(PySequence_Fast_GET_ITEM(o, i)) : NULL;

    if (!item) {
        PyErr_SetString(PyExc_ValueError, "an argument holds an empty (NULL) item");
        return NULL;
    }
    PyObject *result = map(m, item);
    *changed |= result != item;
    Py_DECREF(item);
    return result;
}

static PyObject *map_tuple(mapper *m, PyObject *o)
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

static PyObject *map_list(mapper *m, PyObject *o)
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

static PyObject *map_dict(mapper *m, PyObject *o)
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
        PyObject *mapped = map(m, value);
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

static PyObject *map_slice(mapper *m, PyObject *o)
{
    PySliceObject *s = (PySliceObject *)o;
    PyObject *start = map(m, s->start), *stop = start ? map(m, s->stop) : NULL, *step = stop ? map(m, s->step) : NULL;
    PyObject *slice = step ? PySlice_New(start, stop, step) : NULL;

    if (slice && start == s->start && stop == s->stop && step == s->step)
        Py_SETREF(slice, Py_NewRef(o));
    Py_XDECREF(start);
    Py_XDECREF(stop);
    Py_XDECREF(step);
    return slice;
}

static PyObject *map_leaf(mapper *m, PyObject *o)
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

static PyObject *map(mapper *m, PyObject *o)
{
    unsigned long flags = Py_TYPE(o)->tp_flags;
    PyObject *result;

    if (flags & (Py_TPFLAGS_LONG_SUBCLASS | Py_TPFLAGS_UNICODE_SUBCLASS) || o == Py_None)
        return Py_NewRef(o);
    if (!(flags & (Py_TPFLAGS_TUPLE_SUBCLASS | Py_TPFLAGS_LIST_SUBCLASS | Py_TPFLAGS_DICT_SUBCLASS)) &&
        !PySlice_Check(o))
        return map_leaf(m, o);
    if (m->depth == FE_MAX_DEPTH) {
        PyErr_Format(PyExc_RecursionError, "arguments are nested more than %d deep", FE_MAX_DEPTH);
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

/* The args or kwargs slot of a node, mapped. */
static PyObject *map_slot(mapper *m, PyObject *node, Py_ssize_t offset)
{
    PyObject *o = Py_XNewRef(fx_get(node, offset)), *result;

    if (!o) {
        PyErr_SetString(PyExc_ValueError, "a node has no arguments (torch.fx leaves it so when a constructor fails)");
        return NULL;
    }
    result = map(m, o);
    Py_DECREF(o);
    return result;
}

/* ---- slots and lists ------------------------------------------------------------------------------------------------- */

/* The dict in a slot: borrowed, or NULL with an exception. */
static PyObject *dict_slot(PyObject *node, Py_ssize_t offset, const char *what)
{
    PyObject *dict = fx_get(node, offset);

    if (dict && PyDict_Check(dict))
        return dict;
    PyErr_Format(PyExc_ValueError, "%s of a torch.fx.Node is no dict", what);
    return NULL;
}

/* Delete a plain node that may be missing, which is the only way this can fail. */
static void discard(PyObject *dict, PyObject *node)
{
    if (PyDict_DelItem(dict, node) < 0)
        PyErr_Clear();
}

/* Take a node out of the list; it keeps its own links, as in torch.fx. Its neighbours are alive and hold it no more. */
static void unlink_node(const fx_layout *l, PyObject *node)
{
    PyObject *prev = fx_get(node, l->prev), *next = fx_get(node, l->next);
    PyObject *old_next, *old_prev;

    if (prev == node && next == node)
        return;
    old_next = fx_get(prev, l->next);
    *fx_slot(prev, l->next) = Py_NewRef(next);
    old_prev = fx_get(next, l->prev);
    *fx_slot(next, l->prev) = Py_NewRef(prev);
    Py_XDECREF(old_next);
    Py_XDECREF(old_prev);
}

static PyObject *name_of(const fx_layout *l, PyObject *node)
{
    PyObject *name = fx_get(node, l->name);

    return name ? name : Py_None;
}

/* ---- arguments rewritten in place ---- */

static bool is_match(const fx_layout *l, PyObject *o, PyObject *old)
{
    return old ? o == old : fx_is_node(l, o);
}

#define NO_NODE (Py_TPFLAGS_LONG_SUBCLASS | Py_TPFLAGS_UNICODE_SUBCLASS)
#define CONTAINER (Py_TPFLAGS_TUPLE_SUBCLASS | Py_TPFLAGS_LIST_SUBCLASS | Py_TPFLAGS_DICT_SUBCLASS)

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

/* Whether a tree can be rewritten in place where it names old (NULL: any node): only tuples and torch.fx's lists on the
 * way, and nobody else holds one of them. *names tells whether it names it at all. */
static bool may_rewrite(const module_state *st, PyObject *o, PyObject *old, bool *names)
{
    unsigned long flags = Py_TYPE(o)->tp_flags;
    bool inside = false;

    if (flags & NO_NODE || o == Py_None)
        return true;
    if (!(flags & CONTAINER) && !PySlice_Check(o)) {
        *names |= is_match(&st->fx, o, old);
        return true;
    }
    if (PyDict_Check(o) || PySlice_Check(o))
        return PyDict_Check(o) && !PyDict_GET_SIZE(o);
    for (Py_ssize_t i = 0; i < Py_SIZE(o); i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(o, i);
        if (!item || !may_rewrite(st, item, old, &inside))
            return false;
    }
    *names |= inside;
    return !inside || (is_unshared(o) && (PyTuple_CheckExact(o) || (PyObject *)Py_TYPE(o) == st->list_type));
}

/* As far as may_rewrite has allowed it; somebody else holds what goes. */
static void rewrite(const module_state *st, PyObject *o, PyObject *old, PyObject *new)
{
    PyObject **items = PySequence_Fast_ITEMS(o);

    for (Py_ssize_t i = 0; i < Py_SIZE(o); i++) {
        PyObject *item = items[i];
        if (PyTuple_Check(item) || PyList_Check(item)) {
            rewrite(st, item, old, new);
        } else if (is_match(&st->fx, item, old)) {
            items[i] = Py_NewRef(new);
            Py_DECREF(item);
        }
    }
}

/* ---- erasing ---- */

typedef struct {
    PyObject *args,
        *kwargs; /* strong: with None for each node; after the edit, the old ones. NULL: rewritten in place */
    PyObject *seen_args, *seen_kwargs; /* what they were made from; compared only */
    bool skip;                         /* erased already */
} erasure;

typedef struct {
    fx_snapshot s; /* of the nodes to erase */
    erasure *items;
    bool prepared; /* copies of arguments are made, warnings given */
    bool again;    /* something is left to prepare */
} eraser;

static int warn_erased(PyObject *node)
{
    return PyErr_WarnFormat(PyExc_UserWarning, 1, "erase_node(%S) on an already erased node", node);
}

static int still_used(const fx_layout *l, PyObject *node)
{
    PyObject *users = dict_slot(node, l->users, "users");

    if (users)
        PyErr_Format(PyExc_RuntimeError, "Tried to erase Node %S but it still had %zd users in the graph: %S!",
                     name_of(l, node), PyDict_GET_SIZE(users), users);
    return -1;
}

/* What takes Python objects or code: a warning, or copies of arguments that others hold too. */
static int prepare_erasure(eraser *e, uint32_t i)
{
    const fx_layout *l = &e->s.st->fx;
    PyObject *node = e->s.nodes[i];
    mapper m = {.st = e->s.st, .new = Py_None};
    erasure *item = &e->items[i];
    bool names = false;

    if (item->skip)
        return warn_erased(node);
    item->seen_args = fx_get(node, l->args);
    item->seen_kwargs = fx_get(node, l->kwargs);
    if (item->seen_args && item->seen_kwargs && may_rewrite(e->s.st, item->seen_args, NULL, &names) &&
        may_rewrite(e->s.st, item->seen_kwargs, NULL, &names))
        return 0;
    item->args = map_slot(&m, node, l->args);
    item->kwargs = item->args ? map_slot(&m, node, l->kwargs) : NULL;
    return item->kwargs ? 0 : -1;
}

/* Each user goes before its operand, and its going takes it out of the operand's users. */
static int check_users(eraser *e, uint32_t i)
{
    const fx_layout *l = &e->s.st->fx;
    PyObject *node = e->s.nodes[i], *users = dict_slot(node, l->users, "users"), *user, *value;
    Py_ssize_t at = 0;

    if (!users)
        return -1;
    while (PyDict_Next(users, &at, &user, &value)) {
        uint32_t before = fx_snapshot_find(&e->s, user);
        PyObject *inputs = before < i ? dict_slot(user, l->input_nodes, "_input_nodes") : NULL;
        if (PyErr_Occurred())
            return -1;
        if (!inputs || e->items[before].skip)
            return still_used(l, node);
        int named = PyDict_Contains(inputs, node);
        if (named < 1)
            return named < 0 ? -1 : still_used(l, node);
    }
    return 0;
}

static int check_place(eraser *e, uint32_t i)
{
    const fx_layout *l = &e->s.st->fx;
    PyObject *node = e->s.nodes[i], *prev = fx_get(node, l->prev), *next = fx_get(node, l->next);

    if (fx_get(node, l->graph) != e->s.graph) {
        PyErr_Format(PyExc_RuntimeError, "Attempting to remove %S from wrong graph!", node);
        return -1;
    }
    if (prev && fx_is_node(l, prev) && next && fx_is_node(l, next))
        return 0;
    PyErr_Format(PyExc_ValueError, "node '%S' is linked to something that is no torch.fx.Node", name_of(l, node));
    return -1;
}

/* The nodes in arguments that are rewritten in place must be held by the operand list, which goes last. */
static bool are_operands(const fx_layout *l, PyObject *inputs, PyObject *o)
{
    if (PyTuple_Check(o) || PyList_Check(o)) {
        for (Py_ssize_t i = 0; i < Py_SIZE(o); i++) {
            if (!are_operands(l, inputs, PySequence_Fast_GET_ITEM(o, i)))
                return false;
        }
        return true;
    }
    if (Py_TYPE(o)->tp_flags & NO_NODE || o == Py_None || !fx_is_node(l, o))
        return true;
    return fx_is_plain(l, o) && PyDict_Contains(inputs, o) == 1;
}

/* 1 when arguments can be rewritten in place, or their copies are there, 0 when copies have to be made, or -1. */
static int check_arguments(eraser *e, uint32_t i)
{
    const fx_layout *l = &e->s.st->fx;
    PyObject *node = e->s.nodes[i], *args = fx_get(node, l->args), *kwargs = fx_get(node, l->kwargs);
    PyObject *inputs = dict_slot(node, l->input_nodes, "_input_nodes");
    bool names = false;

    if (!inputs)
        return -1;
    if (!args || !kwargs) {
        PyErr_SetString(PyExc_ValueError, "a node has no arguments (torch.fx leaves it so when a constructor fails)");
        return -1;
    }
    if (e->items[i].args)
        return args == e->items[i].seen_args && kwargs == e->items[i].seen_kwargs;
    return may_rewrite(e->s.st, args, NULL, &names) && may_rewrite(e->s.st, kwargs, NULL, &names) &&
           (!names || are_operands(l, inputs, args));
}

static int check_erasure(eraser *e, uint32_t i)
{
    PyObject *node = e->s.nodes[i], *listed = e->s.calls.items[e->s.call[i]].listed;

    if (fx_is_erased(&e->s.st->fx, node) || fx_snapshot_find(&e->s, node) != i) {
        e->again |= !e->prepared;
        e->items[i].skip = true;
        return 0;
    }
    int ready = check_place(e, i) < 0 ? -1 : check_arguments(e, i);
    if (ready == 0 && !e->prepared) {
        e->again = true;
    } else if (ready < 1) {
        if (ready == 0)
            PyErr_SetString(PyExc_RuntimeError, "the torch.fx graph was changed by code that ran during the edit");
        return -1;
    }
    if (check_users(e, i) < 0)
        return -1;
    int found = listed ? PyDict_Contains(listed, node) : 0;
    if (found == 0)
        PyErr_SetObject(PyExc_KeyError, node); /* torch.fx's error for a node that find_nodes has lost */
    return found == 1 ? 0 : -1;
}

static int check_erasures(eraser *e)
{
    e->again = false;
    for (uint32_t i = 0; i < e->s.count; i++) {
        if (check_erasure(e, i) < 0)
            return -1;
    }
    return 0;
}

static void swap(PyObject **a, PyObject **b)
{
    PyObject *t = *a;

    *a = *b;
    *b = t;
}

static void erase_one(eraser *e, uint32_t i)
{
    const fx_layout *l = &e->s.st->fx;
    PyObject *node = e->s.nodes[i], *inputs = fx_get(node, l->input_nodes), *operand, *value;
    Py_ssize_t at = 0;

    discard(e->s.calls.items[e->s.call[i]].listed, node);
    unlink_node(l, node);
    *((char *)node + l->erased) = 1;
    while (PyDict_Next(inputs, &at, &operand, &value)) {
        PyObject *users = fx_is_node(l, operand) ? fx_get(operand, l->users) : NULL;
        if (users && PyDict_Check(users))
            discard(users, node);
    }
    if (!e->items[i].args) {
        rewrite(e->s.st, fx_get(node, l->args), NULL, Py_None);
        return;
    }
    swap(fx_slot(node, l->args), &e->items[i].args);
    swap(fx_slot(node, l->kwargs), &e->items[i].kwargs);
}

/* No Python code runs between the last check and the end. */
static int erase_all(eraser *e)
{
    PyObject *length;
    Py_ssize_t count, gone = 0;
    int result;

    if (fx_get_length(e->s.st, e->s.graph, &count) < 0 || check_erasures(e) < 0)
        return -1;
    for (uint32_t i = 0; e->again && i < e->s.count; i++) {
        if (prepare_erasure(e, i) < 0)
            return -1;
    }
    e->prepared = true;
    for (uint32_t i = 0; i < e->s.count; i++)
        gone += !e->items[i].skip;
    if (!(length = PyLong_FromSsize_t(count - gone)))
        return -1;
    result = e->again ? check_erasures(e) : 0;
    for (uint32_t i = 0; result == 0 && i < e->s.count; i++) {
        if (!e->items[i].skip)
            erase_one(e, i);
    }
    if (result == 0)
        result = fx_set_length(e->s.st, e->s.graph, length);
    Py_DECREF(length);
    return result;
}

/* Clear the operand lists and release the old arguments, which may run Python code. */
static void eraser_clear(eraser *e, bool erased)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    for (uint32_t i = 0; e->items && i < e->s.count; i++) {
        PyObject *inputs = fx_get(e->s.nodes[i], e->s.st->fx.input_nodes);
        if (erased && !e->items[i].skip && inputs && PyDict_Check(inputs))
            PyDict_Clear(inputs);
        Py_XDECREF(e->items[i].args);
        Py_XDECREF(e->items[i].kwargs);
    }
    PyMem_RawFree(e->items);
    fx_snapshot_clear(&e->s);
    PyErr_Restore(type, value, traceback);
}

/* torch's own method, for each node. */
static int erase_by_method(PyObject *graph, PyObject *const *nodes, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        PyObject *done = PyObject_CallMethod(graph, "erase_node", "O", nodes[i]);
        if (!done)
            return -1;
        Py_DECREF(done);
    }
    return 0;
}

static int find_listings(eraser *e)
{
    fx_tables tables;
    int result = fx_tables_get(e->s.graph, &tables);

    for (uint32_t i = 0; result == 0 && i < e->s.calls.count; i++)
        result = fx_call_find_listed(tables.table, &e->s.calls.items[i], false);
    fx_tables_clear(&tables);
    return result;
}

int fx_erase_nodes(module_state *st, PyObject *graph, PyObject *const *nodes, uint32_t count)
{
    eraser e = {0};
    bool plain = true;
    int result = fx_snapshot_of(&e.s, st, graph, nodes, (Py_ssize_t)count);

    for (uint32_t i = 0; result == 0 && i < count; i++)
        plain &= fx_is_plain(&st->fx, nodes[i]);
    if (result == 0 && !plain) {
        result = erase_by_method(graph, e.s.nodes, count);
        eraser_clear(&e, false);
        return result;
    }
    if (result == 0 && !(e.items = PyMem_RawCalloc((size_t)count + 1, sizeof *e.items))) {
        PyErr_NoMemory();
        result = -1;
    }
    if (result == 0 && (result = find_listings(&e)) == 0)
        result = erase_all(&e);
    eraser_clear(&e, result == 0);
    return result;
}

const char fx_erase_doc[] =
    "fx_erase(fx_graph, nodes, /)\n--\n\n"
    "Erase nodes of a live torch.fx.Graph in the order given, with the result of erase_node for each. A user must "
    "come\n"
    "before its operand. Everything is checked before the first node goes; with hooks, erase_node is called for each.";

PyObject *fx_erase(PyObject *m, PyObject *const *args, Py_ssize_t nargs)
{
    module_state *st = state_of(m);
    PyObject *nodes; /* a list of our own, which nobody else can change */
    int hooks, result;

    if (fx_arguments("fx_erase", nargs, 2) < 0 || (hooks = fx_has_hooks(args[0], "_erase_node_hooks")) < 0 ||
        !(nodes = PySequence_List(args[1])))
        return NULL;
    PyObject **items = PySequence_Fast_ITEMS(nodes);
    uint32_t count = (uint32_t)PyList_GET_SIZE(nodes);
    result = hooks ? erase_by_method(args[0], items, count) : fx_erase_nodes(st, args[0], items, count);
    Py_DECREF(nodes);
    return result < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- replacing ------------------------------------------------------------------------------------------------------------ */

/* Put a user at the end of its operand's users, where it mostly is already. Where memory runs out between the two steps it
 * is put back by a second try; nothing better can be done. */
static int move_last(PyObject *users, PyObject *user)
{
    PyObject *last = NULL, *value;
    Py_ssize_t at = 0;

    if (PyDict_GET_SIZE(users) <= 4) {
        while (PyDict_Next(users, &at, &last, &value))
            ;
        if (last == user)
            return 0;
    }
    discard(users, user);
    if (PyDict_SetItem(users, user, Py_None) == 0)
        return 0;
    PyErr_Clear();
    PyDict_SetItem(users, user, Py_None);
    if (!PyErr_Occurred())
        PyErr_NoMemory();
    return -1;
}

static PyObject *dict_of_nodes(const mapper *m)
{
    PyObject *dict = PyDict_New();

    for (uint32_t i = 0; dict && i < m->count; i++) {
        if (PyDict_SetItem(dict, m->nodes[i], Py_None) < 0)
            Py_CLEAR(dict);
    }
    return dict;
}

/* Make user a user of the operands that are new to it (old NULL: of all); on failure of none. */
static int join_operands(const fx_layout *l, PyObject *user, PyObject *old, PyObject *new)
{
    PyObject *operand, *value, *users, *type, *error, *traceback;
    Py_ssize_t at = 0;

    while (PyDict_Next(new, &at, &operand, &value)) {
        int known = old ? PyDict_Contains(old, operand) : 0;
        if (known > 0)
            continue;
        if (known == 0 && (users = dict_slot(operand, l->users, "users")) && PyDict_SetItem(users, user, Py_None) == 0)
            continue;
        PyObject *failed = operand;
        PyErr_Fetch(&type, &error, &traceback);
        for (at = 0; PyDict_Next(new, &at, &operand, &value) && operand != failed;) {
            users = fx_get(operand, l->users);
            if (!(old && PyDict_Contains(old, operand)) && users && PyDict_Check(users))
                discard(users, user);
        }
        PyErr_Restore(type, error, traceback);
        return -1;
    }
    return 0;
}

/* As torch.fx: user leaves the users of all its old operands and comes last in those of all the new ones. */
static int leave_operands(const fx_layout *l, PyObject *user, PyObject *old, PyObject *new)
{
    PyObject *operand, *value;
    Py_ssize_t at = 0;
    int result = 0;

    while (PyDict_Next(old, &at, &operand, &value)) {
        PyObject *users = fx_is_node(l, operand) ? fx_get(operand, l->users) : NULL;
        if (!users || !PyDict_Check(users))
            continue;
        Py_INCREF(users);
        int kept = PyDict_Contains(new, operand);
        if (kept < 0 || (kept && move_last(users, user) < 0))
            result = -1;
        else if (!kept)
            discard(users, user);
        Py_DECREF(users);
    }
    return result;
}

/* Give a node new arguments and operands; the references become the node's, the old ones come back in their place. */
static int update(const fx_layout *l, PyObject *user, PyObject **args, PyObject **kwargs, PyObject **inputs)
{
    PyObject *old = dict_slot(user, l->input_nodes, "_input_nodes");

    if (!old || join_operands(l, user, old, *inputs) < 0)
        return -1;
    swap(fx_slot(user, l->args), args);
    swap(fx_slot(user, l->kwargs), kwargs);
    swap(fx_slot(user, l->input_nodes), inputs);
    return leave_operands(l, user, old, fx_get(user, l->input_nodes));
}

/* ---- replacing in place: the usual case ---- */

#define FEW 16u

typedef struct {
    PyObject *nodes[FEW]; /* borrowed, distinct, in order */
    uint32_t count;
    bool full; /* there were more */
} few_nodes;

static bool few_has(const few_nodes *f, PyObject *node)
{
    for (uint32_t i = 0; i < f->count; i++) {
        if (f->nodes[i] == node)
            return true;
    }
    return false;
}

static void few_add(few_nodes *f, PyObject *node)
{
    if (few_has(f, node))
        return;
    if (f->count == FEW)
        f->full = true;
    else
        f->nodes[f->count++] = node;
}

/* The nodes that a tree will name once new stands for old. */
static void few_from_tree(few_nodes *f, const module_state *st, PyObject *o, PyObject *old, PyObject *new)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;

    if (PyTuple_Check(o) || PyList_Check(o)) {
        for (Py_ssize_t i = 0; i < Py_SIZE(o); i++)
            few_from_tree(f, st, PySequence_Fast_GET_ITEM(o, i), old, new);
    } else if (PyDict_Check(o)) {
        while (PyDict_Next(o, &at, &key, &value))
            few_from_tree(f, st, value, old, new);
    } else if (!(Py_TYPE(o)->tp_flags & NO_NODE) && o != Py_None && fx_is_node(&st->fx, o)) {
        few_add(f, o == old ? new : o);
    }
}

static void few_from_dict(few_nodes *f, PyObject *dict)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;

    while (PyDict_Next(dict, &at, &key, &value))
        few_add(f, key);
}

/* Whether taking old out of the operands and putting new behind them gives the order of the arguments. */
static bool is_appended(const few_nodes *before, const few_nodes *after, PyObject *old, PyObject *new)
{
    uint32_t k = 0;

    if (few_has(before, new) || !few_has(before, old))
        return false;
    for (uint32_t i = 0; i < before->count; i++) {
        if (before->nodes[i] != old && (k == after->count || after->nodes[k++] != before->nodes[i]))
            return false;
    }
    return k + 1 == after->count && after->nodes[k] == new;
}

static int all_are_plain(const fx_layout *l, const few_nodes *f)
{
    for (uint32_t i = 0; i < f->count; i++) {
        PyObject *users = fx_is_plain(l, f->nodes[i]) ? fx_get(f->nodes[i], l->users) : NULL;
        if (!users || !PyDict_CheckExact(users))
            return false;
    }
    return true;
}

/* The operand list of a user after the change: changed in place, or a new one in *made. */
static int change_operands(PyObject *inputs, const few_nodes *before, const few_nodes *after, PyObject *old,
                           PyObject *new, PyObject **made)
{
    *made = NULL;
    if (is_appended(before, after, old, new)) {
        if (PyDict_SetItem(inputs, new, Py_None) < 0)
            return -1;
        discard(inputs, old);
        return 0;
    }
    if (!(*made = PyDict_New()))
        return -1;
    for (uint32_t i = 0; i < after->count; i++) {
        if (PyDict_SetItem(*made, after->nodes[i], Py_None) < 0) {
            Py_CLEAR(*made);
            return -1;
        }
    }
    return 0;
}

/* Replace in arguments that can be rewritten in place, among few operands: 1 done, 0 not such a case, or -1. */
static int replace_in_place(module_state *st, PyObject *user, PyObject *old, PyObject *new)
{
    const fx_layout *l = &st->fx;
    PyObject *args = fx_get(user, l->args), *kwargs = fx_get(user, l->kwargs), *inputs = fx_get(user, l->input_nodes);
    few_nodes before = {0}, after = {0};
    bool names = false, named = false;
    PyObject *made;

    if (!args || !PyTuple_CheckExact(args) || !kwargs || (PyObject *)Py_TYPE(kwargs) != st->dict_type || !inputs ||
        !PyDict_CheckExact(inputs) || !may_rewrite(st, args, old, &names) || !may_rewrite(st, kwargs, old, &named))
        return 0;
    few_from_dict(&before, inputs);
    few_from_tree(&after, st, args, old, new);
    if (before.full || after.full || !all_are_plain(l, &before) || !all_are_plain(l, &after) || !few_has(&before, old))
        return 0;
    if (!few_has(&before, new) && PyDict_SetItem(fx_get(new, l->users), user, Py_None) < 0)
        return -1;
    if (change_operands(inputs, &before, &after, old, new, &made) < 0) {
        if (!few_has(&before, new))
            discard(fx_get(new, l->users), user);
        return -1;
    }
    if (made)
        *fx_slot(user, l->input_nodes) = made;
    rewrite(st, args, old, new);
    int result = 1;
    for (uint32_t i = 0; i < before.count; i++) {
        PyObject *users = fx_get(before.nodes[i], l->users);
        if (!few_has(&after, before.nodes[i]))
            discard(users, user);
        else if (move_last(users, user) < 0)
            result = -1;
    }
    if (made)
        Py_DECREF(inputs);
    return result;
}

static int replace_in_user(module_state *st, PyObject *user, PyObject *old, PyObject *new)
{
    mapper m = {.st = st, .old = old, .new = new};
    PyObject *args, *kwargs = NULL, *inputs = NULL;
    int result = -1;

    if (!fx_is_plain(&st->fx, user)) {
        PyObject *done = PyObject_CallMethod(user, "_replace_input_with", "OO", old, new);
        Py_XDECREF(done);
        return done ? 0 : -1;
    }
    int done = replace_in_place(st, user, old, new);
    if (done)
        return done < 0 ? -1 : 0;
    if ((args = map_slot(&m, user, st->fx.args)) && (kwargs = map_slot(&m, user, st->fx.kwargs)) &&
        (inputs = dict_of_nodes(&m)))
        result = update(&st->fx, user, &args, &kwargs, &inputs);
    mapper_clear(&m);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    Py_XDECREF(inputs);
    return result;
}

static int replace_uses(module_state *st, PyObject *old, PyObject *new)
{
    PyObject *users = dict_slot(old, st->fx.users, "users"), *only = NULL, *value;
    Py_ssize_t at = 0;
    int result;

    if (!users)
        return -1;
    if (PyDict_GET_SIZE(users) == 1 && PyDict_Next(users, &at, &only, &value) && fx_is_node(&st->fx, only)) {
        Py_INCREF(only);
        result = replace_in_user(st, only, old, new);
        Py_DECREF(only);
        return result;
    }
    PyObject *list = PyDict_Keys(users);
    result = list ? 0 : -1;
    for (Py_ssize_t i = 0; result == 0 && i < PyList_GET_SIZE(list); i++) {
        PyObject *user = PyList_GET_ITEM(list, i); /* the list is ours */
        if (fx_is_node(&st->fx, user)) {
            result = replace_in_user(st, user, old, new);
        } else {
            PyErr_SetString(PyExc_TypeError, "users of a torch.fx.Node holds something that is no torch.fx.Node");
            result = -1;
        }
    }
    Py_XDECREF(list);
    return result;
}

int fx_replace_pairs(module_state *st, PyObject *const *pairs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (replace_uses(st, pairs[2 * i], pairs[2 * i + 1]) < 0)
            return -1;
    }
    return 0;
}

/* The nodes of a list of pairs, held, one after the other; NULL with an exception. */
static PyObject **nodes_of_pairs(const module_state *st, PyObject *pairs)
{
    Py_ssize_t count = PyList_GET_SIZE(pairs);
    PyObject **nodes = PyMem_RawMalloc((2 * (size_t)count + 1) * sizeof *nodes);

    if (!nodes)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; nodes && i < count; i++) {
        PyObject *pair = PyList_GET_ITEM(pairs, i);
        if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2 || !fx_is_node(&st->fx, PyTuple_GET_ITEM(pair, 0)) ||
            !fx_is_node(&st->fx, PyTuple_GET_ITEM(pair, 1))) {
            PyErr_SetString(PyExc_TypeError, "fx_replace_all_uses() takes pairs (old, new) of torch.fx.Node");
            PyMem_RawFree(nodes);
            return NULL;
        }
        nodes[2 * i] = PyTuple_GET_ITEM(pair, 0);
        nodes[2 * i + 1] = PyTuple_GET_ITEM(pair, 1);
    }
    for (Py_ssize_t i = 0; nodes && i < 2 * count; i++)
        Py_INCREF(nodes[i]);
    return nodes;
}

static int replace_by_method(PyObject *const *pairs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        PyObject *done = PyObject_CallMethod(pairs[2 * i], "replace_all_uses_with", "O", pairs[2 * i + 1]);
        if (!done)
            return -1;
        Py_DECREF(done);
    }
    return 0;
}

const char fx_replace_all_uses_doc[] = "fx_replace_all_uses(fx_graph, pairs, /)\n--\n\n"
                                       "For each pair (old, new) of nodes put new in the place of old in all its "
                                       "users, one pair after the other, with the\n"
                                       "result of old.replace_all_uses_with(new); with hooks, that method is called.";

PyObject *fx_replace_all_uses(PyObject *m, PyObject *const *args, Py_ssize_t nargs)
{
    module_state *st = state_of(m);
    PyObject *list, *root, **pairs;
    int hooks, result;

    if (fx_arguments("fx_replace_all_uses", nargs, 2) < 0 || fx_check_graph(st, args[0], &root) < 0)
        return NULL;
    Py_DECREF(root);
    if ((hooks = fx_has_hooks(args[0], "_replace_hooks")) < 0 || !(list = PySequence_List(args[1])))
        return NULL;
    uint32_t count = (uint32_t)PyList_GET_SIZE(list);
    pairs = nodes_of_pairs(st, list);
    Py_DECREF(list);
    if (!pairs)
        return NULL;
    result = hooks ? replace_by_method(pairs, count) : fx_replace_pairs(st, pairs, count);
    for (uint32_t i = 0; i < 2 * count; i++)
        Py_DECREF(pairs[i]);
    PyMem_RawFree(pairs);
    return result < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- inserting --------------------------------------------------------------------------------------------------------------- */

/* One node to make, and what has been done for it, so that it can be undone. */
typedef struct {
    PyObject *anchor, *target, *meta;             /* borrowed from the caller's item; meta may be NULL */
    PyObject *args, *kwargs, *inputs, *candidate; /* strong */
    PyObject *node, *name;                        /* strong, once made */
    PyObject *base, *old_count; /* strong: the base whose counter was opened for it, and the counter before; or NULL */
    uint32_t call;
    bool before, joined, linked, listed;
} insertion;

typedef struct {
    module_state *st;
    PyObject *graph, *root;
    fx_tables tables;
    fx_calls calls;
    PyObject **stems; /* strong, by call: the candidate name of nodes without one */
    uint32_t stem_capacity;
    struct {
        PyObject *candidate, *base; /* borrowed from an insertion; NULL: none open */
        long long count;
    } counter; /* the namespace's counter of a base, taken out of it while one candidate is named again and again */
    PyObject *none_args;
    insertion *items;
    Py_ssize_t count;
} inserter;

static int check_anchor(inserter *e, PyObject *anchor)
{
    const fx_layout *l = &e->st->fx;

    if (!fx_is_node(l, anchor)) {
        PyErr_Format(PyExc_TypeError, "the anchor must be a torch.fx.Node, not %.200s", Py_TYPE(anchor)->tp_name);
        return -1;
    }
    if (fx_get(anchor, l->graph) == e->graph && !fx_is_erased(l, anchor) && fx_get(anchor, l->next) &&
        fx_is_node(l, fx_get(anchor, l->next)) && fx_get(anchor, l->prev) && fx_is_node(l, fx_get(anchor, l->prev)))
        return 0;
    PyErr_Format(PyExc_ValueError, "the anchor '%S' is not a node of this graph", name_of(l, anchor));
    return -1;
}

static int check_operation(inserter *e, insertion *i, PyObject *op)
{
    fe_op code = fx_op(e->st, op);

    if (code == FE_OP_UNKNOWN) {
        PyErr_Format(PyExc_ValueError, "unknown opcode %R", op);
        return -1;
    }
    if (code == FE_OP_CALL_FUNCTION ? !PyCallable_Check(i->target) : !PyUnicode_Check(i->target)) {
        PyErr_Format(PyExc_ValueError, "the target of a %S node must be a %s, not %.200s", op,
                     code == FE_OP_CALL_FUNCTION ? "callable" : "str", Py_TYPE(i->target)->tp_name);
        return -1;
    }
    return fx_calls_get(e->st, &e->calls, e->st->op_names[code], i->target, &i->call);
}

static int warn_of_symbol(inserter *e, const insertion *i, PyObject *symbol)
{
    const fx_call *call = &e->calls.items[i->call];

    if (call->code != FE_OP_CALL_FUNCTION && call->code != FE_OP_CALL_METHOD && call->code != FE_OP_CALL_MODULE)
        return 0;
    return PyErr_WarnFormat(PyExc_UserWarning, 1,
                            "Raw %s value (%S) passed as argument to Graph.create_node(op='%S', target=%S). Use "
                            "create_*_node() helpers for tensor metadata queries or materialize_symints() for general "
                            "symbolic expressions.",
                            Py_TYPE(symbol)->tp_name, symbol, call->op, i->target);
}

static int prepare_arguments(inserter *e, insertion *i, PyObject *args, PyObject *kwargs)
{
    mapper m = {.st = e->st};

    if (args != Py_None && !PyTuple_Check(args)) {
        PyErr_Format(PyExc_TypeError, "args must be a tuple, not %.200s", Py_TYPE(args)->tp_name);
        return -1;
    }
    if (kwargs != Py_None && !PyDict_Check(kwargs)) {
        PyErr_Format(PyExc_TypeError, "kwargs must be a dict, not %.200s", Py_TYPE(kwargs)->tp_name);
        return -1;
    }
    i->args = args == Py_None ? Py_NewRef(e->none_args) : map(&m, args);
    if (i->args)
        i->kwargs = kwargs == Py_None || !PyDict_GET_SIZE(kwargs) ? Py_NewRef(e->st->empty_dict) : map(&m, kwargs);
    if (i->kwargs)
        i->inputs = dict_of_nodes(&m);
    int result = i->inputs ? 0 : -1;
    if (result == 0 && m.symbol) {
        PyObject *symbol = Py_NewRef(m.symbol);
        result = warn_of_symbol(e, i, symbol);
        Py_DECREF(symbol);
    }
    mapper_clear(&m);
    return result;
}

/* The candidate: the name asked for, else what the graph makes of the target, once for each call. */
static int prepare_candidate(inserter *e, insertion *i, PyObject *name)
{
    fe_error err;
    uint32_t old = e->stem_capacity;

    if (name != Py_None) {
        if (!PyUnicode_Check(name)) {
            PyErr_Format(PyExc_TypeError, "name must be a str or None, not %.200s", Py_TYPE(name)->tp_name);
            return -1;
        }
        i->candidate = Py_NewRef(name);
        return 0;
    }
    if (fe_grow(&fe_python_allocator, &e->stems, &e->stem_capacity, e->calls.count, sizeof *e->stems, &err) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    if (e->stem_capacity > old)
        memset(e->stems + old, 0, (e->stem_capacity - old) * sizeof *e->stems);
    if (!e->stems[i->call]) {
        PyObject *stem = PyObject_CallMethod(e->graph, "_target_to_str", "O", i->target);
        if (stem && !PyUnicode_Check(stem)) {
            PyErr_Format(PyExc_TypeError, "the name of target %R is no string", i->target);
            Py_CLEAR(stem);
        }
        if (!stem)
            return -1;
        e->stems[i->call] = stem;
    }
    i->candidate = Py_NewRef(e->stems[i->call]);
    return 0;
}

/* The parts of an insertion as the caller gives it. */
enum { ANCHOR, BEFORE, OP, TARGET, ARGS, KWARGS, NAME, META, PARTS };

static int check_item(PyObject *item)
{
    if (PyTuple_Check(item) && PyTuple_GET_SIZE(item) == PARTS)
        return 0;
    PyErr_SetString(PyExc_TypeError, "fx_insert() takes tuples (anchor, before, op, target, args, kwargs, name, meta)");
    return -1;
}

static int prepare_insertion(inserter *e, insertion *i, PyObject *item)
{
    if (check_item(item) < 0)
        return -1;
    PyObject *meta = PyTuple_GET_ITEM(item, META);
    int before = PyObject_IsTrue(PyTuple_GET_ITEM(item, BEFORE));
    if (meta != Py_None && !PyDict_Check(meta)) {
        PyErr_Format(PyExc_TypeError, "meta must be a dict or None, not %.200s", Py_TYPE(meta)->tp_name);
        return -1;
    }
    i->anchor = PyTuple_GET_ITEM(item, ANCHOR);
    i->target = PyTuple_GET_ITEM(item, TARGET);
    i->meta = meta == Py_None ? NULL : meta;
    i->before = before > 0;
    if (before < 0 || check_anchor(e, i->anchor) < 0 || check_operation(e, i, PyTuple_GET_ITEM(item, OP)) < 0 ||
        fx_call_find_listed(e->tables.table, &e->calls.items[i->call], true) < 0 ||
        prepare_arguments(e, i, PyTuple_GET_ITEM(item, ARGS), PyTuple_GET_ITEM(item, KWARGS)) < 0)
        return -1;
    return prepare_candidate(e, i, PyTuple_GET_ITEM(item, NAME));
}

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
static int close_counter(inserter *e)
{
    PyObject *count = e->counter.base ? PyLong_FromLongLong(e->counter.count) : NULL;
    int result = 0;

    if (e->counter.base)
        result = count ? PyDict_SetItem(e->tables.base_count, e->counter.base, count) : -1;
    Py_XDECREF(count);
    if (result == 0)
        e->counter.base = e->counter.candidate = NULL;
    return result;
}

/* torch.fx's rule for names that are not plain ASCII, or whose counters are beyond 64 bits. */
static int name_by_method(inserter *e, insertion *i)
{
    if (close_counter(e) < 0)
        return -1;
    i->name = PyObject_CallMethod(e->tables.namespace, "create_name", "OO", i->candidate, Py_None);
    return i->name ? 0 : -1;
}

/* Take base out of the namespace: 1, 0 when its counter is beyond 64 bits, or -1. */
static int open_counter(inserter *e, insertion *i, PyObject *base)
{
    PyObject *count = PyDict_GetItemWithError(e->tables.base_count, base);
    int overflow = 0;

    e->counter.count = 0;
    if (!count && PyErr_Occurred())
        return -1;
    if (count && !PyLong_CheckExact(count))
        return 0;
    if (count)
        e->counter.count = PyLong_AsLongLongAndOverflow(count, &overflow);
    if (overflow || e->counter.count < 0 || e->counter.count == INT64_MAX)
        return 0;
    i->base = Py_NewRef(base);
    i->old_count = Py_XNewRef(count);
    e->counter.base = base;
    e->counter.candidate = i->candidate;
    return 1;
}

static int is_used(const inserter *e, PyObject *name)
{
    return name ? PySet_Contains(e->tables.used_names, name) : -1;
}

/* The first free name of the open base, counting on from number. */
static PyObject *next_free(inserter *e, long long number)
{
    const char *base = PyUnicode_DATA(e->counter.base);
    size_t len = (size_t)PyUnicode_GET_LENGTH(e->counter.base);
    PyObject *name = NULL;
    int used;

    do {
        number++;
        Py_XSETREF(name, numbered(base, len, number));
        used = is_used(e, name);
    } while (used == 1);
    if (used < 0)
        Py_CLEAR(name);
    e->counter.count = number;
    return name;
}

/* _Namespace.create_name of torch.fx for a candidate that fe_name_split has split: 1, 0 when the rule has to be Python's,
 * or -1. */
static int find_name(inserter *e, insertion *i, const fe_candidate *c)
{
    PyObject *name = PyUnicode_FromStringAndSize(c->name, (Py_ssize_t)c->name_len), *hidden = NULL;
    PyObject *base = name ? PyUnicode_FromStringAndSize(c->base, (Py_ssize_t)c->base_len) : NULL;
    int used = is_used(e, name), opened = base && used >= 0 && close_counter(e) == 0 ? open_counter(e, i, base) : -1;

    if (opened > 0 && (c->number < 0 || used)) {
        hidden = PyDict_GetItemWithError(e->st->fx.illegal_names, name);
        if (!hidden && PyErr_Occurred())
            opened = -1;
        else if (used || (hidden && hidden != Py_None))
            Py_SETREF(name, next_free(e, e->counter.count));
    } else if (opened > 0) {
        e->counter.count = c->number;
    }
    Py_XDECREF(base);
    if (opened > 0 && name && PySet_Add(e->tables.used_names, name) == 0) {
        i->name = name;
        return 1;
    }
    Py_XDECREF(name);
    return opened == 0 ? 0 : -1;
}

/* The same candidate again: its own name is taken, so counting goes on. */
static int name_again(inserter *e, insertion *i)
{
    PyObject *name = next_free(e, e->counter.count);

    if (!name || PySet_Add(e->tables.used_names, name) < 0) {
        Py_XDECREF(name);
        return -1;
    }
    i->name = name;
    return 0;
}

static int make_name(inserter *e, insertion *i)
{
    char small[256], *buffer = small;
    int found = 0;

    if (i->candidate == e->counter.candidate && e->counter.count < INT64_MAX - 1)
        return name_again(e, i);
    if (PyUnicode_CheckExact(i->candidate) && PyUnicode_IS_ASCII(i->candidate)) {
        size_t len = (size_t)PyUnicode_GET_LENGTH(i->candidate);
        if (len + 2 > sizeof small && !(buffer = PyMem_RawMalloc(len + 2))) {
            PyErr_NoMemory();
            return -1;
        }
        fe_candidate c = fe_name_split(PyUnicode_DATA(i->candidate), len, buffer);
        if (c.number < INT64_MAX)
            found = find_name(e, i, &c);
        if (buffer != small)
            PyMem_RawFree(buffer);
    }
    return found == 0 ? name_by_method(e, i) : found < 0 ? -1 : 0;
}

/* A node with its slots set, in no list yet. */
static int make_node(inserter *e, insertion *i)
{
    const fx_layout *l = &e->st->fx;
    PyObject *users = PyDict_New(), *meta = i->meta ? PyDict_Copy(i->meta) : PyDict_New();
    PyObject *node = users && meta ? l->node_type->tp_new(l->node_type, e->none_args, NULL) : NULL;

    if (!node) {
        Py_XDECREF(users);
        Py_XDECREF(meta);
        return -1;
    }
    PyObject *const values[] = {Py_NewRef(node),
                                Py_NewRef(node),
                                Py_NewRef(e->graph),
                                Py_NewRef(i->name),
                                Py_NewRef(e->calls.items[i->call].op),
                                Py_NewRef(i->target),
                                Py_NewRef(Py_None),
                                Py_NewRef(i->inputs),
                                Py_NewRef(i->args),
                                Py_NewRef(i->kwargs),
                                users,
                                Py_NewRef(Py_None),
                                meta};
    const Py_ssize_t offsets[] = {l->prev,        l->next, l->graph,  l->name,  l->op,      l->target, l->type,
                                  l->input_nodes, l->args, l->kwargs, l->users, l->repr_fn, l->meta};
    for (size_t k = 0; k < sizeof offsets / sizeof *offsets; k++)
        *fx_slot(node, offsets[k]) = values[k];
    i->node = node;
    return 0;
}

static int insert_one(inserter *e, insertion *i)
{
    const fx_layout *l = &e->st->fx;

    if (check_anchor(e, i->anchor) < 0 || make_name(e, i) < 0 || make_node(e, i) < 0)
        return -1;
    i->joined = join_operands(l, i->node, NULL, i->inputs) == 0;
    if (!i->joined || PyDict_SetItem(e->tables.objects, i->node, i->name) < 0)
        return -1;
    PyObject *at = i->before ? i->anchor : fx_get(i->anchor, l->next), *done = l->prepend(at, i->node);
    if (!done)
        return -1;
    Py_DECREF(done);
    i->linked = true;
    i->listed = PyDict_SetItem(e->calls.items[i->call].listed, i->node, Py_None) == 0;
    return i->listed ? 0 : -1;
}

/* Take back what insert_one did, as far as it came. */
static void undo(inserter *e, insertion *i)
{
    const fx_layout *l = &e->st->fx;
    PyObject *operand, *value;
    Py_ssize_t at = 0;

    if (i->listed)
        discard(e->calls.items[i->call].listed, i->node);
    if (i->linked)
        unlink_node(l, i->node);
    if (i->node)
        discard(e->tables.objects, i->node);
    while (i->joined && PyDict_Next(i->inputs, &at, &operand, &value))
        discard(fx_get(operand, l->users), i->node);
    if (i->name)
        PySet_Discard(e->tables.used_names, i->name);
    if (i->old_count)
        PyDict_SetItem(e->tables.base_count, i->base, i->old_count); /* which is there, so this takes no memory */
    else if (i->base)
        discard(e->tables.base_count, i->base);
    PyErr_Clear();
    if (i->node)
        Py_TYPE(i->node)->tp_clear(i->node);
}

static int insert_all(inserter *e)
{
    PyObject *type, *value, *traceback, *length = NULL;
    Py_ssize_t k = 0, count;
    int result = fx_get_length(e->st, e->graph, &count);

    if (result == 0 && !(length = PyLong_FromSsize_t(count + e->count)))
        result = -1;

    while (result == 0 && k < e->count)
        result = insert_one(e, &e->items[k++]);
    if (result == 0)
        result = close_counter(e);
    if (result == 0)
        result = fx_set_length(e->st, e->graph, length);
    Py_XDECREF(length);
    if (result == 0)
        return 0;
    PyErr_Fetch(&type, &value, &traceback);
    while (k > 0)
        undo(e, &e->items[--k]);
    PyErr_Restore(type, value, traceback);
    return -1;
}

static void inserter_clear(inserter *e)
{
    for (Py_ssize_t k = 0; e->items && k < e->count; k++) {
        insertion *i = &e->items[k];
        Py_XDECREF(i->args);
        Py_XDECREF(i->kwargs);
        Py_XDECREF(i->inputs);
        Py_XDECREF(i->candidate);
        Py_XDECREF(i->node);
        Py_XDECREF(i->name);
        Py_XDECREF(i->base);
        Py_XDECREF(i->old_count);
    }
    PyMem_RawFree(e->items);
    for (uint32_t k = 0; k < e->stem_capacity; k++)
        Py_XDECREF(e->stems[k]);
    PyMem_RawFree(e->stems);
    fx_calls_clear(e->st, &e->calls);
    fx_tables_clear(&e->tables);
    Py_XDECREF(e->none_args);
    Py_XDECREF(e->root);
}

static PyObject *inserted(const inserter *e)
{
    PyObject *list = PyList_New(e->count);

    for (Py_ssize_t k = 0; list && k < e->count; k++)
        PyList_SET_ITEM(list, k, Py_NewRef(e->items[k].node));
    return list;
}

static PyObject *insert(inserter *e, PyObject *list)
{
    e->count = PyList_GET_SIZE(list);
    if (fx_check_graph(e->st, e->graph, &e->root) < 0 || fx_tables_get(e->graph, &e->tables) < 0 ||
        !(e->none_args = PyTuple_New(0)))
        return NULL;
    if (!(e->items = PyMem_RawCalloc((size_t)e->count + 1, sizeof *e->items)))
        return PyErr_NoMemory();
    for (Py_ssize_t k = 0; k < e->count; k++) {
        if (prepare_insertion(e, &e->items[k], PyList_GET_ITEM(list, k)) < 0)
            return NULL;
    }
    return insert_all(e) < 0 ? NULL : inserted(e);
}

/* One insertion through torch's own methods. */
static PyObject *insert_by_method(PyObject *graph, PyObject *item)
{
    PyObject *point, *node, *copy, *type, *value, *traceback;

    if (check_item(item) < 0)
        return NULL;
    PyObject *const *part = PySequence_Fast_ITEMS(item);
    int before = PyObject_IsTrue(part[BEFORE]);
    if (before < 0 ||
        !(point = PyObject_CallMethod(graph, before ? "inserting_before" : "inserting_after", "O", part[ANCHOR])))
        return NULL;
    node = PyObject_CallMethod(graph, "create_node", "OOOOO", part[OP], part[TARGET], part[ARGS], part[KWARGS],
                               part[NAME]);
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *done = PyObject_CallMethod(point, "__exit__", "OOO", Py_None, Py_None, Py_None);
    Py_DECREF(point);
    if (type)
        PyErr_Restore(type, value, traceback);
    else if (!done)
        Py_CLEAR(node);
    Py_XDECREF(done);
    if (node && part[META] != Py_None) {
        if (!(copy = PyDict_Copy(part[META])) || PyObject_SetAttrString(node, "meta", copy) < 0)
            Py_CLEAR(node);
        Py_XDECREF(copy);
    }
    return node;
}

static PyObject *insert_by_methods(PyObject *graph, PyObject *list)
{
    PyObject *nodes = PyList_New(0);

    for (Py_ssize_t k = 0; nodes && k < PyList_GET_SIZE(list); k++) {
        PyObject *node = insert_by_method(graph, PyList_GET_ITEM(list, k));
        if (!node || PyList_Append(nodes, node) < 0)
            Py_CLEAR(nodes);
        Py_XDECREF(node);
    }
    return nodes;
}

const char fx_insert_doc[] =
    "fx_insert(fx_graph, insertions, /)\n--\n\n"
    "Create nodes at positions in a live torch.fx.Graph; returns them as a list. Each insertion is a tuple (anchor,\n"
    "before, op, target, args, kwargs, name, meta): where, and what create_node takes; args, kwargs, name and meta may "
    "be\n"
    "None. meta is copied. Everything is checked before the first node is made; on failure the graph is as it was. "
    "With\n"
    "hooks, create_node is called for each.";

PyObject *fx_insert(PyObject *m, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *list, *result;
    int hooks;

    if (fx_arguments("fx_insert", nargs, 2) < 0)
        return NULL;
    inserter e = {.st = state_of(m), .graph = args[0]};
    if ((hooks = fx_has_hooks(args[0], "_create_node_hooks")) < 0 || !(list = PySequence_List(args[1])))
        return NULL;
    if (hooks) {
        result = insert_by_methods(args[0], list);
    } else {
        result = insert(&e, list);
        inserter_clear(&e);
    }
    Py_DECREF(list);
    return result;
}
