/* fx_insert.c - create nodes at positions in a live torch.fx graph, all or none. */
#include "fx_edit.h"

/* One node to make, and what has been done for it, so that it can be undone. */
typedef struct {
    PyObject *anchor, *target, *meta; /* borrowed from the caller's item; meta may be NULL */
    PyObject *args, *kwargs, *inputs; /* strong */
    PyObject *node;                   /* strong, once made */
    fx_name name;
    uint32_t call;
    bool before, joined, linked, listed;
} insertion;

typedef struct {
    module_state *st;
    PyObject *graph, *root;
    fx_naming naming;
    fx_calls calls;
    PyObject **stems; /* strong, by call: the candidate name of nodes without one */
    uint32_t stem_capacity;
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
    PyErr_Format(PyExc_ValueError, "the anchor '%S' is not a node of this graph", fx_name_of(l, anchor));
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
    fx_mapper m = {.st = e->st};

    if (args != Py_None && !PyTuple_Check(args)) {
        PyErr_Format(PyExc_TypeError, "args must be a tuple, not %.200s", Py_TYPE(args)->tp_name);
        return -1;
    }
    if (kwargs != Py_None && !PyDict_Check(kwargs)) {
        PyErr_Format(PyExc_TypeError, "kwargs must be a dict, not %.200s", Py_TYPE(kwargs)->tp_name);
        return -1;
    }
    i->args = args == Py_None ? Py_NewRef(e->none_args) : fx_map(&m, args);
    if (i->args)
        i->kwargs = kwargs == Py_None || !PyDict_GET_SIZE(kwargs) ? Py_NewRef(e->st->empty_dict) : fx_map(&m, kwargs);
    if (i->kwargs)
        i->inputs = fx_mapped_operands(&m);
    int result = i->inputs ? 0 : -1;
    if (result == 0 && m.symbol) {
        PyObject *symbol = Py_NewRef(m.symbol);
        result = warn_of_symbol(e, i, symbol);
        Py_DECREF(symbol);
    }
    fx_mapper_clear(&m);
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
        i->name.candidate = Py_NewRef(name);
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
    i->name.candidate = Py_NewRef(e->stems[i->call]);
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
        fx_call_find_listed(e->naming.tables.table, &e->calls.items[i->call], true) < 0 ||
        prepare_arguments(e, i, PyTuple_GET_ITEM(item, ARGS), PyTuple_GET_ITEM(item, KWARGS)) < 0)
        return -1;
    return prepare_candidate(e, i, PyTuple_GET_ITEM(item, NAME));
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
                                Py_NewRef(i->name.name),
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

    if (check_anchor(e, i->anchor) < 0 || fx_naming_give(&e->naming, &i->name) < 0 || make_node(e, i) < 0)
        return -1;
    i->joined = fx_join_operands(l, i->node, NULL, i->inputs) == 0;
    if (!i->joined || PyDict_SetItem(e->naming.tables.objects, i->node, i->name.name) < 0)
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
        fx_discard(e->calls.items[i->call].listed, i->node);
    if (i->linked)
        fx_unlink(l, i->node);
    if (i->node)
        fx_discard(e->naming.tables.objects, i->node);
    while (i->joined && PyDict_Next(i->inputs, &at, &operand, &value))
        fx_discard(fx_get(operand, l->users), i->node);
    fx_naming_undo(&e->naming, &i->name);
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
        result = fx_naming_close(&e->naming);
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
        Py_XDECREF(i->node);
        fx_name_clear(&i->name);
    }
    PyMem_RawFree(e->items);
    for (uint32_t k = 0; k < e->stem_capacity; k++)
        Py_XDECREF(e->stems[k]);
    PyMem_RawFree(e->stems);
    fx_calls_clear(e->st, &e->calls);
    fx_tables_clear(&e->naming.tables);
    Py_XDECREF(e->none_args);
    Py_XDECREF(e->root);
}

static PyObject *insert(inserter *e, PyObject *list)
{
    PyObject *nodes;

    e->count = PyList_GET_SIZE(list);
    if (fx_check_graph(e->st, e->graph, &e->root) < 0 || fx_tables_get(e->graph, &e->naming.tables) < 0 ||
        !(e->none_args = PyTuple_New(0)))
        return NULL;
    if (!(e->items = PyMem_RawCalloc((size_t)e->count + 1, sizeof *e->items)))
        return PyErr_NoMemory();
    for (Py_ssize_t k = 0; k < e->count; k++) {
        if (prepare_insertion(e, &e->items[k], PyList_GET_ITEM(list, k)) < 0)
            return NULL;
    }
    if (!(nodes = PyList_New(e->count)))
        return NULL;
    if (insert_all(e) < 0) {
        Py_DECREF(nodes);
        return NULL;
    }
    for (Py_ssize_t k = 0; k < e->count; k++)
        PyList_SET_ITEM(nodes, k, Py_NewRef(e->items[k].node));
    return nodes;
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
    inserter e = {.st = state_of(m), .graph = args[0], .naming = {.st = state_of(m)}};
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
