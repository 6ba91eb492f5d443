/* fx_copy.c - the nodes of one live torch.fx graph copied into another, as torch.fx's graph_copy does it, in bulk.
 *
 * First all new nodes are made aside, with their arguments and meta; then they are named, and entered into the graph one
 * by one. A graph that torch's own loop has to deal with - a node that is used before it is copied, an argument that
 * create_node would warn of, a container that is none of torch.fx's - is found out in the first part, when nothing has
 * been changed. In both parts a hash or a comparison may run Python code and change the graphs: what is read is held, and
 * places are looked at again. The collector is off meanwhile: it would go over the growing heap again and again and find
 * nothing.
 */
#include "fx_edit.h"

/* A new node, and what has been done for it, so that it can be undone. */
typedef struct {
    PyObject *node;   /* strong; NULL: there is no copy, for the map has one already */
    PyObject *inputs; /* strong: its dict of operands */
    fx_name name;
    bool named, joined, known, linked, listed, mapped;
} copied;

typedef struct {
    module_state *st;
    PyObject *graph, *anchor, *map, *branching; /* borrowed: the arguments */
    PyObject *none_args;
    fx_snapshot s; /* of the source */
    fx_naming naming;
    copied *items; /* by node of the source */
    uint32_t count;
    PyObject *result; /* strong: a tuple with room for the output node, where torch.fx ends */
} copier;

/* What a step comes to. */
enum { DONE = 0, FAILED = -1, UNFIT = 1 };

/* ---- arguments ----------------------------------------------------------------------------------------------------- */

/* The arguments of one node on the way to its copy. */
typedef struct {
    copier *c;
    PyObject *inputs; /* a dict: the nodes in the order in which they are named */
    bool warns;       /* create_node would look for raw symbols */
    int depth;
    int result;
} mapper;

static PyObject *give_up(mapper *m, int result)
{
    m->result = result;
    return NULL;
}

static PyObject *map(mapper *m, PyObject *o);

/* The copy of a node: borrowed. */
static PyObject *copy_of(mapper *m, PyObject *node)
{
    copier *c = m->c;
    uint32_t index = fx_snapshot_find(&c->s, node);
    PyObject *found;

    if (index != FE_NONE_ID && index < c->count && c->items[index].node)
        return c->items[index].node;
    if (!fx_is_plain(&c->st->fx, node))
        return give_up(m, UNFIT);
    found = PyDict_GetItemWithError(c->map, node);
    if (found && fx_is_plain(&c->st->fx, found) && fx_get(found, c->st->fx.users) &&
        PyDict_CheckExact(fx_get(found, c->st->fx.users)))
        return found;
    return give_up(m, PyErr_Occurred() ? FAILED : UNFIT);
}

/* Whether a leaf is one for pytree too, and no raw symbol, so that create_node would have nothing to say. */
static int is_plain_leaf(const mapper *m, PyObject *o)
{
    PyTypeObject *type = Py_TYPE(o);
    PyObject *symbols = m->c->st->fx.symbols;

    if (!m->warns || PyFloat_CheckExact(o))
        return 1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(symbols); i++) {
        if (PyType_IsSubtype(type, (PyTypeObject *)PyTuple_GET_ITEM(symbols, i)))
            return 0;
    }
    int branches = PyDict_Contains(m->c->branching, (PyObject *)type);
    return branches < 0 ? -1 : !branches;
}

static PyObject *map_leaf(mapper *m, PyObject *o)
{
    if (fx_is_node(&m->c->st->fx, o)) {
        PyObject *node = copy_of(m, o);
        if (node && PyDict_SetItem(m->inputs, node, Py_None) < 0)
            return give_up(m, FAILED);
        return Py_XNewRef(node);
    }
    int plain = is_plain_leaf(m, o);
    return plain > 0 ? Py_NewRef(o) : give_up(m, plain < 0 ? FAILED : UNFIT);
}

static PyObject *map_tuple(mapper *m, PyObject *o)
{
    Py_ssize_t size = PyTuple_GET_SIZE(o);
    PyObject *t = PyTuple_New(size);

    if (!t)
        return give_up(m, FAILED);
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *item = map(m, PyTuple_GET_ITEM(o, i));
        if (!item) {
            Py_DECREF(t);
            return NULL;
        }
        PyTuple_SET_ITEM(t, i, item);
    }
    return t;
}

/* An empty instance of torch.fx's list or dict class; only list's and dict's own functions can fill it. */
static PyObject *new_container(mapper *m, PyObject *type, PyTypeObject *base)
{
    PyObject *o = base->tp_new((PyTypeObject *)type, m->c->none_args, NULL);

    return o ? o : give_up(m, FAILED);
}

static PyObject *map_list(mapper *m, PyObject *o)
{
    PyObject *list = new_container(m, m->c->st->list_type, &PyList_Type);

    for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(o); i++) {
        PyObject *held = Py_XNewRef(PyList_GET_ITEM(o, i)), *item = map(m, held);
        if (item && PyList_Append(list, item) < 0) {
            m->result = FAILED;
            Py_CLEAR(list);
        }
        if (!item)
            Py_CLEAR(list);
        Py_XDECREF(item);
        Py_XDECREF(held);
    }
    return list;
}

static PyObject *map_dict(mapper *m, PyObject *o)
{
    PyObject *dict, *key, *value;
    Py_ssize_t at = 0;

    if (!PyDict_GET_SIZE(o))
        return Py_NewRef(m->c->st->empty_dict);
    dict = new_container(m, m->c->st->dict_type, &PyDict_Type);
    while (dict && PyDict_Next(o, &at, &key, &value)) {
        if (!PyUnicode_CheckExact(key)) { /* whose hash or comparison could do anything */
            Py_DECREF(dict);
            return give_up(m, UNFIT);
        }
        Py_INCREF(key);
        Py_INCREF(value);
        PyObject *item = map(m, value);
        if (item && PyDict_SetItem(dict, key, item) < 0) {
            m->result = FAILED;
            Py_CLEAR(dict);
        }
        if (!item)
            Py_CLEAR(dict);
        Py_XDECREF(item);
        Py_DECREF(value);
        Py_DECREF(key);
    }
    return dict;
}

static PyObject *map_slice(mapper *m, PyObject *o)
{
    const PySliceObject *s = (PySliceObject *)o;
    PyObject *start = map(m, s->start), *stop = start ? map(m, s->stop) : NULL, *step = stop ? map(m, s->step) : NULL;
    PyObject *slice = step ? PySlice_New(start, stop, step) : NULL;

    if (step && !slice)
        give_up(m, FAILED);
    Py_XDECREF(start);
    Py_XDECREF(stop);
    Py_XDECREF(step);
    return slice;
}

/* A new reference; NULL with m->result set. Containers are always made anew, as torch.fx does. */
static PyObject *map(mapper *m, PyObject *o)
{
    PyObject *result;

    if (!o)
        return give_up(m, UNFIT);
    if (Py_TYPE(o)->tp_flags & FX_NO_NODE || o == Py_None)
        return Py_NewRef(o);
    if (!(Py_TYPE(o)->tp_flags & FX_CONTAINER) && !PySlice_Check(o))
        return map_leaf(m, o);
    if (m->depth == FE_MAX_DEPTH)
        return give_up(m, UNFIT);
    m->depth++;
    result = PyTuple_CheckExact(o)                           ? map_tuple(m, o)
             : (PyObject *)Py_TYPE(o) == m->c->st->list_type ? map_list(m, o)
             : (PyObject *)Py_TYPE(o) == m->c->st->dict_type ? map_dict(m, o)
             : PySlice_Check(o)                              ? map_slice(m, o)
                                                             : give_up(m, UNFIT);
    m->depth--;
    return result;
}

/* ---- nodes made aside ----------------------------------------------------------------------------------------------- */

static bool is_fit(const copier *c, PyObject *node, const fx_call *call)
{
    const fx_layout *l = &c->st->fx;
    PyObject *args = fx_get(node, l->args), *kwargs = fx_get(node, l->kwargs), *name = fx_get(node, l->name),
             *meta = fx_get(node, l->meta);

    return call->code != FE_OP_UNKNOWN && call->target && fx_get(node, l->type) && name && PyUnicode_CheckExact(name) &&
           args && PyTuple_CheckExact(args) && kwargs && (PyObject *)Py_TYPE(kwargs) == c->st->dict_type && meta &&
           PyDict_CheckExact(meta) &&
           (call->code == FE_OP_CALL_FUNCTION ? PyCallable_Check(call->target) : PyUnicode_Check(call->target));
}

/* What a copy takes over from a node: strong, for Python code may run while its arguments are mapped. */
typedef struct {
    PyObject *type, *args, *kwargs, *meta;
} parts;

static void parts_clear(parts *p)
{
    Py_XDECREF(p->type);
    Py_XDECREF(p->args);
    Py_XDECREF(p->kwargs);
    Py_XDECREF(p->meta);
}

/* A node without a name, in no list yet, and no user of anything. */
static PyObject *new_node(copier *c, const fx_call *call, const parts *p, PyObject *inputs)
{
    const fx_layout *l = &c->st->fx;
    PyObject *users = PyDict_New(), *made = users ? l->node_type->tp_new(l->node_type, c->none_args, NULL) : NULL;

    if (!made) {
        Py_XDECREF(users);
        return NULL;
    }
    PyObject *const values[] = {made,   made,    c->graph,  call->op, call->target, p->type,
                                inputs, p->args, p->kwargs, users,    Py_None,      p->meta};
    const Py_ssize_t offsets[] = {l->prev,        l->next, l->graph,  l->op,    l->target,  l->type,
                                  l->input_nodes, l->args, l->kwargs, l->users, l->repr_fn, l->meta};
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++)
        *fx_slot(made, offsets[i]) = Py_NewRef(values[i]);
    Py_DECREF(users);
    return made;
}

static int make_node(copier *c, uint32_t index)
{
    const fx_layout *l = &c->st->fx;
    PyObject *node = c->s.nodes[index];
    const fx_call *call = &c->s.calls.items[c->s.call[index]];

    if (!is_fit(c, node, call))
        return UNFIT;
    parts from = {.type = Py_NewRef(fx_get(node, l->type)),
                  .args = Py_NewRef(fx_get(node, l->args)),
                  .kwargs = Py_NewRef(fx_get(node, l->kwargs)),
                  .meta = Py_NewRef(fx_get(node, l->meta))},
          to = {.type = Py_NewRef(from.type), .meta = PyDict_Copy(from.meta)};
    mapper m = {.c = c, .inputs = to.meta ? PyDict_New() : NULL, .result = FAILED};
    m.warns = call->code == FE_OP_CALL_FUNCTION || call->code == FE_OP_CALL_METHOD || call->code == FE_OP_CALL_MODULE;
    if (m.inputs && (to.args = map(&m, from.args)) && (to.kwargs = map(&m, from.kwargs))) {
        c->items[index].node = new_node(c, call, &to, m.inputs);
        c->items[index].inputs = Py_NewRef(m.inputs);
        m.result = c->items[index].node ? DONE : FAILED;
    }
    parts_clear(&from);
    parts_clear(&to);
    Py_XDECREF(m.inputs);
    return m.result;
}

static int make_nodes(copier *c)
{
    const fx_layout *l = &c->st->fx;

    for (uint32_t i = 0; i < c->s.count; i++) {
        PyObject *node = c->s.nodes[i];
        if (!fx_is_plain(l, node))
            return UNFIT;
        int known = PyDict_GET_SIZE(c->map) ? PyDict_Contains(c->map, node) : 0;
        if (known < 0)
            return FAILED;
        if (!known && c->s.calls.items[c->s.call[i]].code == FE_OP_OUTPUT) {
            PyTuple_SET_ITEM(c->result, 0, Py_NewRef(node));
            return DONE;
        }
        c->count = i + 1;
        int made = known ? DONE : make_node(c, i);
        if (made != DONE)
            return made;
    }
    PyTuple_SET_ITEM(c->result, 0, Py_NewRef(Py_None));
    return DONE;
}

/* ---- places in the graph ----------------------------------------------------------------------------------------------- */

/* Whether nodes can be put before the anchor. */
static bool is_anchor(const copier *c)
{
    const fx_layout *l = &c->st->fx;
    PyObject *prev;

    return fx_is_plain(l, c->anchor) && fx_get(c->anchor, l->graph) == c->graph && !fx_is_erased(l, c->anchor) &&
           (prev = fx_get(c->anchor, l->prev)) && fx_is_node(l, prev) && fx_get(prev, l->next) == c->anchor;
}

static bool is_linked(const fx_layout *l, PyObject *node)
{
    PyObject *prev = fx_get(node, l->prev), *next = fx_get(node, l->next);

    return prev && next && fx_is_node(l, prev) && fx_is_node(l, next);
}

static int was_changed(void)
{
    PyErr_SetString(PyExc_RuntimeError, "the torch.fx graph was changed by code that ran during the edit");
    return FAILED;
}

/* ---- nodes entered ---------------------------------------------------------------------------------------------------- */

static int enter(copier *c, uint32_t index)
{
    const fx_layout *l = &c->st->fx;
    copied *i = &c->items[index];
    fx_call *call = &c->s.calls.items[c->s.call[index]];
    PyObject *candidate = fx_get(c->s.nodes[index], l->name);

    if (!candidate)
        return was_changed();
    i->name.candidate = Py_NewRef(candidate);
    i->named = fx_naming_give(&c->naming, &i->name) == 0;
    if (!i->named)
        return FAILED;
    *fx_slot(i->node, l->name) = Py_NewRef(i->name.name);
    i->joined = fx_join_operands(l, i->node, NULL, i->inputs) == 0;
    i->known = i->joined && PyDict_SetItem(c->naming.tables.objects, i->node, i->name.name) == 0;
    if (!i->known)
        return FAILED;
    if (!is_anchor(c))
        return was_changed();
    PyObject *done = l->prepend(c->anchor, i->node);
    if (!done)
        return FAILED;
    Py_DECREF(done);
    i->linked = true;
    i->listed = fx_call_find_listed(c->naming.tables.table, call, true) == 0 &&
                PyDict_SetItem(call->listed, i->node, Py_None) == 0;
    i->mapped = i->listed && PyDict_SetItem(c->map, c->s.nodes[index], i->node) == 0;
    return i->mapped ? DONE : FAILED;
}

/* Take back what enter did, as far as it came. */
static void undo(copier *c, uint32_t index)
{
    const fx_layout *l = &c->st->fx;
    copied *i = &c->items[index];
    PyObject *operand, *value, *users;
    Py_ssize_t at = 0;

    if (!i->node)
        return;
    if (i->mapped)
        fx_discard(c->map, c->s.nodes[index]);
    if (i->listed)
        fx_discard(c->s.calls.items[c->s.call[index]].listed, i->node);
    if (i->linked && is_linked(l, i->node))
        fx_unlink(l, i->node);
    if (i->known)
        fx_discard(c->naming.tables.objects, i->node);
    while (i->joined && PyDict_Next(i->inputs, &at, &operand, &value)) {
        if ((users = fx_get(operand, l->users)) && PyDict_Check(users))
            fx_discard(users, i->node);
    }
    fx_naming_undo(&c->naming, &i->name);
    PyErr_Clear();
}

static int enter_all(copier *c)
{
    PyObject *type, *value, *traceback, *length = NULL;
    Py_ssize_t old, added = 0;
    uint32_t k = 0;
    int result = fx_get_length(c->st, c->graph, &old);

    for (uint32_t i = 0; i < c->count; i++)
        added += c->items[i].node != NULL;
    if (result == 0 && !(length = PyLong_FromSsize_t(old + added)))
        result = FAILED;
    for (; result == 0 && k < c->count; k++)
        result = c->items[k].node ? enter(c, k) : DONE;
    if (result == 0)
        result = fx_naming_close(&c->naming);
    if (result == 0)
        result = fx_set_length(c->st, c->graph, length);
    Py_XDECREF(length);
    if (result == 0)
        return DONE;
    PyErr_Fetch(&type, &value, &traceback);
    while (k > 0)
        undo(c, --k);
    PyErr_Restore(type, value, traceback);
    return FAILED;
}

/* ---- the whole ---------------------------------------------------------------------------------------------------------- */

static int copy(copier *c, PyObject *source)
{
    PyObject *root = NULL;
    int result = fx_check_graph(c->st, c->graph, &root);

    Py_XDECREF(root);
    if (result < 0 || fx_tables_get(c->graph, &c->naming.tables) < 0 || !(c->none_args = PyTuple_New(0)) ||
        !(c->result = PyTuple_New(1)) || fx_snapshot_take(&c->s, c->st, source) < 0)
        return FAILED;
    fx_snapshot_hold(&c->s);
    if (!c->s.regular || !is_anchor(c))
        return UNFIT;
    if (!(c->items = PyMem_RawCalloc((size_t)c->s.count + 1, sizeof *c->items))) {
        PyErr_NoMemory();
        return FAILED;
    }
    result = make_nodes(c);
    return result == DONE ? enter_all(c) : result;
}

/* Let go of everything. Nodes that came to nothing refer to themselves: they are emptied first. */
static void finish(copier *c, bool failed)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    for (uint32_t i = 0; failed && i < c->count; i++) {
        if (c->items[i].node)
            Py_TYPE(c->items[i].node)->tp_clear(c->items[i].node);
    }
    for (uint32_t i = 0; i < c->count; i++) {
        Py_XDECREF(c->items[i].node);
        Py_XDECREF(c->items[i].inputs);
        fx_name_clear(&c->items[i].name);
    }
    PyMem_RawFree(c->items);
    fx_snapshot_clear(&c->s);
    fx_tables_clear(&c->naming.tables);
    Py_XDECREF(c->none_args);
    Py_XDECREF(c->result);
    PyErr_Restore(type, value, traceback);
}

const char fx_copy_doc[] =
    "fx_copy(fx_graph, anchor, source, map, branching, /)\n--\n\n"
    "Copy the nodes of the live torch.fx.Graph source before its output into fx_graph, before the node anchor, as\n"
    "torch.fx's graph_copy does; map goes from nodes of source to those of fx_graph, and is added to. branching is a "
    "dict\n"
    "whose keys are the types that are no leaves for pytree. Returns a tuple of one item, the output node of source "
    "or\n"
    "None; or None, with nothing changed, when the graph can't be copied in bulk. No hooks are called.";

PyObject *fx_copy(PyObject *m, PyObject *const *args, Py_ssize_t nargs)
{
    copier c = {.st = state_of(m)};
    PyObject *result = NULL;

    if (fx_arguments("fx_copy", nargs, 5) < 0)
        return NULL;
    if (!PyDict_CheckExact(args[3]) || !PyDict_Check(args[4]))
        return PyErr_Format(PyExc_TypeError, "fx_copy() takes dicts as map and branching");
    c.graph = args[0];
    c.anchor = args[1];
    c.map = args[3];
    c.branching = args[4];
    c.naming.st = c.st;
    int collecting = PyGC_Disable();
    int done = copy(&c, args[2]);
    if (done == DONE)
        result = Py_NewRef(c.result);
    else if (done == UNFIT)
        result = Py_NewRef(Py_None);
    finish(&c, done != DONE);
    if (collecting)
        PyGC_Enable();
    return result;
}
