/* fx_record.c - what the code of a torch.fx graph depends on, written down so that the code can be made later.
 *
 * The record is a flat tuple of FX_ROW objects a node, from which nodes of no graph can be made, fit to generate code from. The objects in it never change: arguments are replaced as a whole,
 * names and targets are strings or functions. It is only made when code generation from it can't raise: whatever might,
 * or might come out another way later, makes fx_record return None, and torch generates the code at once.
 */
#include "fx.h"

#define MAX_NESTED 8 /* of arguments; code nested deeper than Python's parser can take is an error */
#define MAX_PARTS 32 /* of a path: each may become a nested call of getattr */

/* What a record has of each node. */

typedef struct {
    const module_state *st;
    fx_snapshot s;
    PyObject *kinds; /* tuple: classes of other constants whose text is fixed */
    int *least;      /* by call of a function: how many arguments it takes; negative: and the first is a node */
    PyObject *table; /* of find_nodes */
} recorder;

/* ---- text that is fit for code -------------------------------------------------------------------------------------- */

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(const char *s, size_t n)
{
    if (n == 0 || !is_letter(s[0]))
        return false;
    for (size_t i = 1; i < n; i++) {
        if (!is_letter(s[i]) && !is_digit(s[i]))
            return false;
    }
    return true;
}

static bool is_keyword(const char *s, size_t n)
{
    static const char *const words[] = {
        "False", "None",   "True", "and", "as",   "assert", "async",  "await",    "break",  "class", "continue", "def",
        "del",   "elif",   "else", "for", "from", "except", "global", "finally",  "import", "in",    "if",       "is",
        "or",    "lambda", "not",  "try", "pass", "raise",  "return", "nonlocal", "while",  "with",  "yield",
    };

    for (size_t i = 0; n <= 8 && i < sizeof words / sizeof *words; i++) {
        if (words[i][0] == s[0] && strlen(words[i]) == n && memcmp(words[i], s, n) == 0)
            return true;
    }
    return false;
}

/* A name that Python code can use as it is. */
static bool is_name(PyObject *o, bool may_be_keyword)
{
    size_t len;
    const char *s = fx_ascii(o, &len);

    return s && is_word(s, len) && (may_be_keyword || !is_keyword(s, len));
}

/* Part of a path that code reaches with getattr and a string. */
static bool is_quotable(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!is_letter(s[i]) && !is_digit(s[i]) && s[i] != '-')
            return false;
    }
    return n > 0;
}

static bool is_path(PyObject *o)
{
    size_t len, start = 0, parts = 0;
    const char *s = fx_ascii(o, &len);

    for (size_t i = 0; s && i <= len; i++) {
        if (i < len && s[i] != '.')
            continue;
        if (!is_quotable(s + start, i - start) || is_keyword(s + start, i - start) || ++parts > MAX_PARTS)
            return false;
        start = i + 1;
    }
    return s;
}

/* ---- arguments ---------------------------------------------------------------------------------------------------------- */

static bool is_constant(const recorder *r, PyObject *o)
{
    if (o == Py_None || o == Py_True || o == Py_False || o == Py_Ellipsis || PyFloat_CheckExact(o))
        return true;
    if (PyLong_CheckExact(o)) { /* very long ones can't be written */
        int overflow;
        PyLong_AsLongLongAndOverflow(o, &overflow);
        return !overflow;
    }
    if (PyUnicode_CheckExact(o)) /* a hash mark might pass for one of torch's marks between lines */
        return PyUnicode_FindChar(o, '#', 0, PyUnicode_GetLength(o), 1) == -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(r->kinds); i++) {
        if ((PyObject *)Py_TYPE(o) == PyTuple_GET_ITEM(r->kinds, i))
            return true;
    }
    return false;
}

static bool is_own_node(const recorder *r, const PyObject *o)
{
    return Py_TYPE(o) == r->st->fx.node_type && fx_snapshot_find(&r->s, o) != FE_NONE_ID;
}

static bool is_writable(const recorder *r, PyObject *o, int depth)
{
    PyObject *type = (PyObject *)Py_TYPE(o), *key, *value;
    Py_ssize_t at = 0;

    if (is_own_node(r, o))
        return true;
    if (depth == MAX_NESTED)
        return false;
    if (PyTuple_CheckExact(o) || PyList_CheckExact(o) || type == r->st->list_type) {
        for (Py_ssize_t i = 0; i < Py_SIZE(o); i++) {
            if (!is_writable(r, PySequence_Fast_GET_ITEM(o, i), depth + 1))
                return false;
        }
        return true;
    }
    if (PyDict_CheckExact(o) || type == r->st->dict_type) {
        while (PyDict_Next(o, &at, &key, &value)) {
            if (!PyUnicode_CheckExact(key) || !is_constant(r, key) || !is_writable(r, value, depth + 1))
                return false;
        }
        return true;
    }
    if (PySlice_Check(o)) {
        const PySliceObject *slice = (PySliceObject *)o;
        return is_writable(r, slice->start, depth + 1) && is_writable(r, slice->stop, depth + 1) &&
               is_writable(r, slice->step, depth + 1);
    }
    return is_constant(r, o);
}

static bool are_kwargs_writable(const recorder *r, PyObject *kwargs)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;

    while (PyDict_Next(kwargs, &at, &key, &value)) {
        if (!is_name(key, false) || !is_writable(r, value, 0))
            return false;
    }
    return true;
}

/* ---- nodes --------------------------------------------------------------------------------------------------------------- */

/* Whether meta says that the function of a node was wrapped while it was traced: 1, 0, or -1. */
static int is_wrapped(const recorder *r, PyObject *meta)
{
    PyObject *flag = PyDict_GetItemWithError(meta, r->st->str_is_wrapped);

    return flag ? PyObject_IsTrue(flag) : PyErr_Occurred() ? -1 : 0;
}

/* Whether the parts that depend on a node's opcode are fit: 1, 0, or -1. */
static int is_call_fit(const recorder *r, uint32_t index, PyObject *target, PyObject *args)
{
    Py_ssize_t count = PyTuple_GET_SIZE(args);
    bool first_is_node = count > 0 && is_own_node(r, PyTuple_GET_ITEM(args, 0));
    uint32_t call = r->s.call[index];

    switch (r->s.calls.items[call].code) {
    case FE_OP_PLACEHOLDER:
        return count == 0 && is_name(target, false);
    case FE_OP_GET_ATTR:
    case FE_OP_CALL_MODULE:
        return is_path(target);
    case FE_OP_CALL_METHOD:
        return first_is_node && is_path(target);
    case FE_OP_CALL_FUNCTION:
        if (count < abs(r->least[call]) || (r->least[call] < 0 && !first_is_node))
            return 0;
        int wrapped = is_wrapped(r, fx_get(r->s.nodes[index], r->st->fx.meta));
        return wrapped < 0 ? -1 : !wrapped;
    case FE_OP_OUTPUT:
        return count > 0;
    default:
        return 0;
    }
}

static int is_fit(const recorder *r, uint32_t index)
{
    const fx_layout *l = &r->st->fx;
    PyObject *node = r->s.nodes[index], *args = fx_get(node, l->args), *kwargs = fx_get(node, l->kwargs),
             *meta = fx_get(node, l->meta), *users = fx_get(node, l->users);

    if (Py_TYPE(node) != l->node_type || fx_get(node, l->graph) != r->s.graph ||
        !is_name(fx_get(node, l->name), true) || fx_get(node, l->type) != Py_None || !args ||
        !PyTuple_CheckExact(args) || !kwargs ||
        (!PyDict_CheckExact(kwargs) && (PyObject *)Py_TYPE(kwargs) != r->st->dict_type) || !users ||
        !PyDict_CheckExact(users) || !meta || !PyDict_CheckExact(meta) || !is_writable(r, args, 0) ||
        !are_kwargs_writable(r, kwargs))
        return 0;
    return is_call_fit(r, index, fx_get(node, l->target), args);
}

/* ---- find_nodes' table ----------------------------------------------------------------------------------------------------- */

static int list_again(PyObject *listed, PyObject *node)
{
    int there = PyDict_Contains(listed, node);

    return there <= 0 ? there : (PyDict_DelItem(listed, node) < 0 ? -1 : PyDict_SetItem(listed, node, Py_None));
}

/* Whether each dict lists its nodes in the graph's order. */
static bool is_in_order(const recorder *r, Py_ssize_t *at)
{
    for (uint32_t i = 0; i < r->s.count; i++) {
        uint32_t call = r->s.call[i];
        const fx_call *c = &r->s.calls.items[call];
        PyObject *key, *value;
        /* nodes that call no function are listed by opcode */
        Py_ssize_t *cursor = &at[c->code == FE_OP_CALL_FUNCTION ? FE_OP_COUNT + call : c->code];
        if (!PyDict_Next(c->listed, cursor, &key, &value) || key != r->s.nodes[i])
            return false;
    }
    return true;
}

/* torch's generation of code sets an attribute of each node and by that enters it anew in the table. */
static int order_table(recorder *r)
{
    fx_calls *calls = &r->s.calls;
    Py_ssize_t *at;
    bool in_order;

    for (uint32_t i = 0; i < calls->count; i++) {
        if (fx_call_find_listed(r->table, &calls->items[i], true) < 0)
            return -1;
    }
    if (!(at = PyMem_Calloc((size_t)FE_OP_COUNT + calls->count, sizeof *at))) {
        PyErr_NoMemory();
        return -1;
    }
    in_order = is_in_order(r, at);
    PyMem_Free(at);
    for (uint32_t i = 0; !in_order && i < r->s.count; i++) {
        if (list_again(calls->items[r->s.call[i]].listed, r->s.nodes[i]) < 0)
            return -1;
    }
    return 0;
}

/* ---- the record ---------------------------------------------------------------------------------------------------------------- */

/* How many arguments the functions take: 1, 0 when one is not known, or -1. */
static int ask_functions(recorder *r, PyObject *classify)
{
    const fx_calls *calls = &r->s.calls;

    if (!(r->least = PyMem_Calloc((size_t)calls->count + 1, sizeof *r->least))) {
        PyErr_NoMemory();
        return -1;
    }
    for (uint32_t i = 0; i < calls->count; i++) {
        if (calls->items[i].code != FE_OP_CALL_FUNCTION)
            continue;
        if (!calls->items[i].target)
            return 0;
        PyObject *answer = PyObject_CallOneArg(classify, calls->items[i].target);
        if (!answer || answer == Py_None) {
            Py_XDECREF(answer);
            return answer ? 0 : -1;
        }
        r->least[i] = (int)PyLong_AsLong(answer);
        Py_DECREF(answer);
        if (PyErr_Occurred())
            return -1;
    }
    return 1;
}

/* The targets of placeholders, which become the function's parameters. */
static PyObject *list_inputs(const recorder *r)
{
    PyObject *inputs = PyList_New(0);

    for (uint32_t i = 0; inputs && i < r->s.count; i++) {
        if (r->s.calls.items[r->s.call[i]].code == FE_OP_PLACEHOLDER &&
            PyList_Append(inputs, fx_get(r->s.nodes[i], r->st->fx.target)) < 0)
            Py_CLEAR(inputs);
    }
    return inputs;
}

static PyObject *make_record(const recorder *r)
{
    const fx_layout *l = &r->st->fx;
    PyObject *inputs = list_inputs(r), *record = inputs ? PyTuple_New((Py_ssize_t)r->s.count * FX_ROW) : NULL;

    for (uint32_t i = 0; record && i < r->s.count; i++) {
        PyObject *node = r->s.nodes[i];
        bool used = PyDict_GET_SIZE(fx_get(node, l->users)) > 0;
        PyObject *row[FX_ROW] = {node,
                                 fx_get(node, l->op),
                                 fx_get(node, l->target),
                                 fx_get(node, l->name),
                                 fx_get(node, l->args),
                                 fx_get(node, l->kwargs),
                                 used ? Py_True : Py_False};
        for (Py_ssize_t k = 0; k < FX_ROW; k++)
            PyTuple_SET_ITEM(record, (Py_ssize_t)i * FX_ROW + k, Py_NewRef(row[k]));
    }
    PyObject *pair = record ? PyTuple_Pack(2, record, inputs) : NULL;
    Py_XDECREF(record);
    Py_XDECREF(inputs);
    return pair;
}

/* 1 when code can be made from the graph later, 0, or -1. */
static int check(recorder *r, PyObject *classify)
{
    int fit = r->s.regular;

    fx_snapshot_hold(&r->s);
    if (fit && (fit = ask_functions(r, classify)) <= 0)
        return fit;
    bool has_lines = r->s.count == 0; /* torch writes "pass" then, but not below nothing but placeholders */
    for (uint32_t i = 0; fit > 0 && i < r->s.count; i++) {
        fit = is_fit(r, i);
        has_lines |= r->s.calls.items[r->s.call[i]].code != FE_OP_PLACEHOLDER;
    }
    return fit > 0 ? has_lines : fit;
}

static PyObject *record_graph(recorder *r, PyObject *classify)
{
    fx_tables tables = {0};
    PyObject *record = NULL;
    int fit = check(r, classify);

    if (fit == 0)
        Py_RETURN_NONE;
    if (fit < 0 || fx_tables_get(r->s.graph, &tables) < 0)
        return NULL;
    r->table = tables.table;
    if (order_table(r) == 0)
        record = make_record(r);
    fx_tables_clear(&tables);
    return record;
}

const char fx_record_doc[] =
    "fx_record(graph, classify, kinds, /)\n--\n\n"
    "What the code of a torch.fx graph is made from: a tuple with node, op, target, name, args, kwargs and whether it\n"
    "has users, of one node after the other; and a list of the targets of its placeholders. Each list of find_nodes\n"
    "is put in the graph's order, as generating code does. classify(function) tells how many arguments the code of a\n"
    "call needs, negative when the first must be a node too, or None; kinds are classes of constants. Returns None\n"
    "when code from the record might differ, or raise.";

PyObject *fx_record(PyObject *m, PyObject *const *args, Py_ssize_t nargs)
{
    module_state *st = state_of(m);
    recorder r = {.st = st};
    PyObject *record = NULL;

    if (fx_arguments("fx_record", nargs, 3) < 0)
        return NULL;
    if (!PyTuple_Check(args[2]))
        return PyErr_Format(PyExc_TypeError, "fx_record() takes a tuple of classes");
    r.kinds = args[2];
    if (fx_snapshot_take(&r.s, st, args[0]) == 0)
        record = record_graph(&r, args[1]);
    PyMem_Free(r.least);
    fx_snapshot_clear(&r.s);
    return record;
}

/* ---- nodes from a record ------------------------------------------------------------------------------------------ */

typedef struct {
    const fx_layout *l;
    PyObject *twins;                 /* dict: node of the record -> its twin */
    PyObject *inputs;                /* dict of the node that is being made: the twins its arguments name */
    PyObject *none, *used, *no_args; /* {}, {None: None}, () */
} reviver;

static PyObject *revive_value(const reviver *v, PyObject *o);

static int revive_items(const reviver *v, PyObject *from, PyObject *to)
{
    for (Py_ssize_t i = 0; i < Py_SIZE(from); i++) {
        PyObject *item = revive_value(v, PySequence_Fast_GET_ITEM(from, i));
        if (!item)
            return -1;
        if (PyTuple_CheckExact(to))
            PyTuple_SET_ITEM(to, i, item);
        else
            PyList_SET_ITEM(to, i, item);
    }
    return 0;
}

static PyObject *revive_dict(const reviver *v, PyObject *from)
{
    PyObject *to = PyDict_New(), *key, *value;
    Py_ssize_t at = 0;

    while (to && PyDict_Next(from, &at, &key, &value)) {
        PyObject *item = revive_value(v, value);
        if (!item || PyDict_SetItem(to, key, item) < 0)
            Py_CLEAR(to);
        Py_XDECREF(item);
    }
    return to;
}

static PyObject *revive_slice(const reviver *v, const PySliceObject *from)
{
    PyObject *start = revive_value(v, from->start), *stop = start ? revive_value(v, from->stop) : NULL,
             *step = stop ? revive_value(v, from->step) : NULL, *to = step ? PySlice_New(start, stop, step) : NULL;

    Py_XDECREF(start);
    Py_XDECREF(stop);
    Py_XDECREF(step);
    return to;
}

/* An argument with twins in the place of nodes. Records hold no other kinds, and none nested deeply. */
static PyObject *revive_value(const reviver *v, PyObject *o)
{
    if (Py_TYPE(o) == v->l->node_type) {
        PyObject *twin = PyDict_GetItemWithError(v->twins, o);
        if (!twin && !PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "an argument is a node that is not in the record");
        return twin && PyDict_SetItem(v->inputs, twin, Py_None) == 0 ? Py_NewRef(twin) : NULL;
    }
    if (PyTuple_CheckExact(o) || PyList_Check(o)) {
        PyObject *to = PyTuple_CheckExact(o) ? PyTuple_New(Py_SIZE(o)) : PyList_New(Py_SIZE(o));
        if (to && revive_items(v, o, to) < 0)
            Py_CLEAR(to);
        return to;
    }
    if (PyDict_Check(o))
        return revive_dict(v, o);
    return PySlice_Check(o) ? revive_slice(v, (PySliceObject *)o) : Py_NewRef(o);
}

static void put(PyObject *node, Py_ssize_t offset, PyObject *value)
{
    Py_XSETREF(*fx_slot(node, offset), Py_NewRef(value));
}

static PyObject *new_twin(const reviver *v, PyObject *const *row, PyObject *repr_fn)
{
    const fx_layout *l = v->l;
    PyObject *twin = l->node_type->tp_new(l->node_type, v->no_args, NULL);

    if (!twin)
        return NULL;
    put(twin, l->op, row[FX_ROW_OP]);
    put(twin, l->target, row[FX_ROW_TARGET]);
    put(twin, l->name, row[FX_ROW_NAME]);
    put(twin, l->type, Py_None);
    put(twin, l->users, row[FX_ROW_USED] == Py_True ? v->used : v->none);
    put(twin, l->meta, v->none);
    put(twin, l->repr_fn, repr_fn);
    return twin;
}

static int revive_arguments(reviver *v, PyObject *twin, PyObject *const *row)
{
    PyObject *inputs = v->inputs = PyDict_New(), *args = inputs ? revive_value(v, row[FX_ROW_ARGS]) : NULL,
             *kwargs = args ? revive_value(v, row[FX_ROW_KWARGS]) : NULL;

    if (kwargs) {
        put(twin, v->l->args, args);
        put(twin, v->l->kwargs, kwargs);
        put(twin, v->l->input_nodes, inputs);
    }
    Py_XDECREF(inputs);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    return kwargs ? 0 : -1;
}

static PyObject *revive(reviver *v, PyObject *record, PyObject *repr_fn)
{
    Py_ssize_t count = PyTuple_GET_SIZE(record) / FX_ROW;
    PyObject *const *rows = &PyTuple_GET_ITEM(record, 0);
    PyObject *nodes = PyList_New(count);

    if (!nodes)
        return NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *twin = new_twin(v, rows + i * FX_ROW, repr_fn);
        if (!twin || PyDict_SetItem(v->twins, rows[i * FX_ROW + FX_ROW_NODE], twin) < 0) {
            Py_XDECREF(twin);
            Py_DECREF(nodes);
            return NULL;
        }
        PyList_SET_ITEM(nodes, i, twin);
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (revive_arguments(v, PyList_GET_ITEM(nodes, i), rows + i * FX_ROW) < 0) {
            Py_DECREF(nodes);
            return NULL;
        }
    }
    return nodes;
}

const char fx_revive_doc[] =
    "fx_revive(record, repr_fn, /)\n--\n\n"
    "Nodes of no graph, with all of a record of fx_record that code is generated from; repr_fn(node) is their repr.";

PyObject *fx_revive(PyObject *m, PyObject *const *args, Py_ssize_t nargs)
{
    const module_state *st = state_of(m);
    PyObject *nodes = NULL;

    if (fx_arguments("fx_revive", nargs, 2) < 0)
        return NULL;
    if (!st->fx.node_type || !PyTuple_CheckExact(args[0]) || PyTuple_GET_SIZE(args[0]) % FX_ROW != 0)
        return PyErr_Format(PyExc_TypeError, "fx_revive() takes a record of fx_record");
    reviver v = {
        .l = &st->fx, .twins = PyDict_New(), .none = PyDict_New(), .used = PyDict_New(), .no_args = PyTuple_New(0)};
    if (v.twins && v.none && v.used && v.no_args && PyDict_SetItem(v.used, Py_None, Py_None) == 0)
        nodes = revive(&v, args[0], args[1]);
    Py_XDECREF(v.twins);
    Py_XDECREF(v.none);
    Py_XDECREF(v.used);
    Py_XDECREF(v.no_args);
    return nodes;
}
