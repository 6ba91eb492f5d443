/* fx_record.c - what the code of a torch.fx graph depends on, written down so that the code can be made later.
 *
 * The record is a flat tuple of FX_ROW objects a node, from which nodes of no graph can be made, fit to generate code from.
 * The objects in it never change: arguments are replaced as a whole, names and targets are strings or functions. It is only
 * made when code generation from it can't raise: whatever might, or might come out another way later, makes fx_record
 * return None, and torch generates the code at once.
 *
 * First comes all that may run Python code, which may change the graph; then the graph is checked and written down with
 * slot reads only; then the table of find_nodes, of which the record has nothing, is put in order.
 */
#include "fx.h"

#define MAX_NESTED 8 /* of arguments; code nested deeper than Python's parser can take is an error */
#define MAX_PARTS 32 /* of a path: each may become a nested call of getattr */

typedef struct {
    const module_state *st;
    fx_snapshot s;
    PyObject *kinds; /* tuple: classes of other constants whose text is fixed */
    long *least;     /* by call of a function: how many arguments it takes; negative: and the first is a node */
    PyObject *table; /* of find_nodes */
} recorder;

/* ---- text that is fit for code -------------------------------------------------------------------------------------- */

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

    return s && fx_is_word(s, len) && (may_be_keyword || !is_keyword(s, len));
}

/* Part of a path that code reaches with getattr and a string. */
static bool is_quotable(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (s[i] != '-' && !(s[i] >= '0' && s[i] <= '9') && !fx_is_word(s + i, 1))
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

/* Plain lists and dicts, which insert_arg leaves in arguments, may be changed before the code is made: they are not fit. */
static bool is_writable(const recorder *r, PyObject *o, int depth)
{
    PyObject *type, *key, *value;
    Py_ssize_t at = 0;

    if (!o)
        return false;
    if (is_own_node(r, o))
        return true;
    type = (PyObject *)Py_TYPE(o);
    if (depth == MAX_NESTED)
        return false;
    if (PyTuple_CheckExact(o) || type == r->st->list_type) {
        for (Py_ssize_t i = 0; i < Py_SIZE(o); i++) {
            if (!is_writable(r, PySequence_Fast_GET_ITEM(o, i), depth + 1))
                return false;
        }
        return true;
    }
    if (type == r->st->dict_type) {
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

/* Whether the parts that depend on a node's opcode are fit. */
static bool is_call_fit(const recorder *r, uint32_t index, PyObject *target, PyObject *args)
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
        return count >= labs(r->least[call]) && (r->least[call] >= 0 || first_is_node);
    case FE_OP_OUTPUT:
        return count > 0;
    default:
        return false;
    }
}

/* Runs no Python code. A node that calls something else than it did at first was changed meanwhile. */
static bool is_fit(const recorder *r, uint32_t index)
{
    const fx_layout *l = &r->st->fx;
    const fx_call *call = &r->s.calls.items[r->s.call[index]];
    PyObject *node = r->s.nodes[index], *target = fx_get(node, l->target), *args = fx_get(node, l->args),
             *kwargs = fx_get(node, l->kwargs), *users = fx_get(node, l->users);

    return Py_TYPE(node) == l->node_type && fx_get(node, l->graph) == r->s.graph && target && target == call->target &&
           fx_get(node, l->op) == call->op && is_name(fx_get(node, l->name), true) &&
           fx_get(node, l->type) == Py_None && args && PyTuple_CheckExact(args) && kwargs &&
           (PyObject *)Py_TYPE(kwargs) == r->st->dict_type && users && PyDict_CheckExact(users) &&
           is_writable(r, args, 0) && are_kwargs_writable(r, kwargs) && is_call_fit(r, index, target, args);
}

/* ---- find_nodes' table ----------------------------------------------------------------------------------------------------- */

static int list_again(PyObject *listed, PyObject *node)
{
    int there = PyDict_Contains(listed, node);

    return there <= 0 ? there : (PyDict_DelItem(listed, node) < 0 ? -1 : PyDict_SetItem(listed, node, Py_None));
}

/* How far the listing of a call was read; nodes that call no function are listed by opcode. */
static Py_ssize_t *cursor_of(const recorder *r, Py_ssize_t *at, uint32_t call)
{
    uint8_t code = r->s.calls.items[call].code;

    return &at[code == FE_OP_CALL_FUNCTION ? FE_OP_COUNT + call : code];
}

/* Whether each dict lists its nodes in the graph's order, and nothing else. */
static bool is_in_order(const recorder *r, Py_ssize_t *at)
{
    PyObject *key, *value;

    for (uint32_t i = 0; i < r->s.count; i++) {
        uint32_t call = r->s.call[i];
        if (!PyDict_Next(r->s.calls.items[call].listed, cursor_of(r, at, call), &key, &value) || key != r->s.nodes[i])
            return false;
    }
    for (uint32_t call = 0; call < r->s.calls.count; call++) {
        if (PyDict_Next(r->s.calls.items[call].listed, cursor_of(r, at, call), &key, &value))
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

/* ---- questions, which may run Python code -------------------------------------------------------------------------- */

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
        r->least[i] = PyLong_AsLong(answer);
        Py_DECREF(answer);
        if (r->least[i] == -1 && PyErr_Occurred())
            return -1;
        if (r->least[i] == LONG_MIN) /* which labs can't take */
            return 0;
    }
    return 1;
}

/* Whether meta says of no function that it was wrapped while it was traced: 1, 0, or -1. */
static int ask_meta(const recorder *r)
{
    for (uint32_t i = 0; i < r->s.count; i++) {
        PyObject *meta = fx_get(r->s.nodes[i], r->st->fx.meta);
        if (!meta || !PyDict_CheckExact(meta))
            return 0;
        if (r->s.calls.items[r->s.call[i]].code != FE_OP_CALL_FUNCTION)
            continue;
        Py_INCREF(meta);
        PyObject *flag = Py_XNewRef(PyDict_GetItemWithError(meta, r->st->str_is_wrapped));
        int wrapped = flag ? PyObject_IsTrue(flag) : PyErr_Occurred() ? -1 : 0;
        Py_XDECREF(flag);
        Py_DECREF(meta);
        if (wrapped)
            return wrapped < 0 ? -1 : 0;
    }
    return 1;
}

/* ---- the record ------------------------------------------------------------------------------------------------------- */

static bool are_all_fit(const recorder *r)
{
    bool has_lines = r->s.count == 0; /* torch writes "pass" then, but not below nothing but placeholders */

    for (uint32_t i = 0; i < r->s.count; i++) {
        if (!is_fit(r, i))
            return false;
        has_lines |= r->s.calls.items[r->s.call[i]].code != FE_OP_PLACEHOLDER;
    }
    return has_lines;
}

/* The targets of placeholders become the function's parameters. */
static int write_down(const recorder *r, PyObject *record, PyObject *inputs)
{
    const fx_layout *l = &r->st->fx;

    for (uint32_t i = 0; i < r->s.count; i++) {
        PyObject *node = r->s.nodes[i];
        const fx_call *call = &r->s.calls.items[r->s.call[i]];
        PyObject *row[FX_ROW] = {node,
                                 call->op,
                                 call->target,
                                 fx_get(node, l->name),
                                 fx_get(node, l->args),
                                 fx_get(node, l->kwargs),
                                 PyDict_GET_SIZE(fx_get(node, l->users)) > 0 ? Py_True : Py_False};
        for (Py_ssize_t k = 0; k < FX_ROW; k++)
            PyTuple_SET_ITEM(record, (Py_ssize_t)i * FX_ROW + k, Py_NewRef(row[k]));
        if (call->code == FE_OP_PLACEHOLDER && PyList_Append(inputs, call->target) < 0)
            return -1;
    }
    return 0;
}

/* A pair of the record and the inputs, None when the graph is not fit, or NULL. Allocations come first, for with one the
 * collector may run Python code. */
static PyObject *make_record(const recorder *r)
{
    PyObject *record = PyTuple_New((Py_ssize_t)r->s.count * FX_ROW), *inputs = record ? PyList_New(0) : NULL,
             *pair = inputs ? PyTuple_New(2) : NULL;
    bool fit = pair && are_all_fit(r);

    if (fit && write_down(r, record, inputs) == 0) {
        PyTuple_SET_ITEM(pair, 0, record);
        PyTuple_SET_ITEM(pair, 1, inputs);
        return pair;
    }
    Py_XDECREF(record);
    Py_XDECREF(inputs);
    Py_XDECREF(pair);
    return pair && !fit ? Py_NewRef(Py_None) : NULL;
}

static PyObject *record_graph(recorder *r, PyObject *classify)
{
    fx_tables tables = {0};
    PyObject *record;
    int fit = r->s.regular;

    fx_snapshot_hold(&r->s);
    if (fit && (fit = ask_functions(r, classify)) > 0)
        fit = ask_meta(r);
    if (fit <= 0)
        return fit < 0 ? NULL : Py_NewRef(Py_None);
    if (!(record = make_record(r)) || record == Py_None)
        return record;
    if (fx_tables_get(r->s.graph, &tables) < 0) {
        Py_DECREF(record);
        return NULL;
    }
    r->table = tables.table;
    if (order_table(r) < 0)
        Py_CLEAR(record);
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
    int depth;                       /* of the argument that is being made */
} reviver;

static PyObject *revive_value(reviver *v, PyObject *o);

static PyObject *revive_tuple(reviver *v, PyObject *from)
{
    PyObject *to = PyTuple_New(PyTuple_GET_SIZE(from));

    for (Py_ssize_t i = 0; to && i < PyTuple_GET_SIZE(from); i++) {
        PyObject *item = revive_value(v, PyTuple_GET_ITEM(from, i));
        if (item)
            PyTuple_SET_ITEM(to, i, item);
        else
            Py_CLEAR(to);
    }
    return to;
}

static PyObject *revive_list(reviver *v, PyObject *from)
{
    PyObject *to = PyList_New(0);

    for (Py_ssize_t i = 0; to && i < PyList_GET_SIZE(from); i++) {
        PyObject *held = Py_NewRef(PyList_GET_ITEM(from, i)), *item = revive_value(v, held);
        if (!item || PyList_Append(to, item) < 0)
            Py_CLEAR(to);
        Py_XDECREF(item);
        Py_DECREF(held);
    }
    return to;
}

static PyObject *revive_dict(reviver *v, PyObject *from)
{
    PyObject *to = PyDict_New(), *key, *value;
    Py_ssize_t at = 0;

    while (to && PyDict_Next(from, &at, &key, &value)) {
        Py_INCREF(key);
        Py_INCREF(value);
        PyObject *item = revive_value(v, value);
        if (!item || PyDict_SetItem(to, key, item) < 0)
            Py_CLEAR(to);
        Py_XDECREF(item);
        Py_DECREF(value);
        Py_DECREF(key);
    }
    return to;
}

static PyObject *revive_slice(reviver *v, const PySliceObject *from)
{
    PyObject *start = revive_value(v, from->start), *stop = start ? revive_value(v, from->stop) : NULL,
             *step = stop ? revive_value(v, from->step) : NULL, *to = step ? PySlice_New(start, stop, step) : NULL;

    Py_XDECREF(start);
    Py_XDECREF(stop);
    Py_XDECREF(step);
    return to;
}

static PyObject *revive_node(reviver *v, PyObject *node)
{
    PyObject *twin = Py_XNewRef(PyDict_GetItemWithError(v->twins, node));

    if (!twin && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "an argument is a node that is not in the record");
    if (twin && PyDict_SetItem(v->inputs, twin, Py_None) < 0)
        Py_CLEAR(twin);
    return twin;
}

/* An argument with twins in the place of nodes. Records hold no other kinds, and none nested deeply. */
static PyObject *revive_value(reviver *v, PyObject *o)
{
    PyObject *result;

    if (Py_TYPE(o) == v->l->node_type)
        return revive_node(v, o);
    if (!(Py_TYPE(o)->tp_flags & FX_CONTAINER) && !PySlice_Check(o))
        return Py_NewRef(o);
    if (v->depth == FE_MAX_DEPTH) {
        PyErr_SetString(PyExc_RecursionError, "arguments in the record are nested too deep");
        return NULL;
    }
    v->depth++;
    result = PyTuple_CheckExact(o) ? revive_tuple(v, o)
             : PyList_Check(o)     ? revive_list(v, o)
             : PyDict_Check(o)     ? revive_dict(v, o)
             : PySlice_Check(o)    ? revive_slice(v, (PySliceObject *)o)
                                   : Py_NewRef(o);
    v->depth--;
    return result;
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
    if (!PyTuple_CheckExact(row[FX_ROW_ARGS]) || !PyDict_Check(row[FX_ROW_KWARGS])) {
        PyErr_SetString(PyExc_TypeError, "arguments in the record are no tuple and dict");
        return -1;
    }
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
    PyObject *nodes = PyList_New(0);

    for (Py_ssize_t i = 0; nodes && i < count; i++) {
        PyObject *twin = new_twin(v, rows + i * FX_ROW, repr_fn);
        if (!twin || PyDict_SetItem(v->twins, rows[i * FX_ROW + FX_ROW_NODE], twin) < 0 ||
            PyList_Append(nodes, twin) < 0)
            Py_CLEAR(nodes);
        Py_XDECREF(twin);
    }
    for (Py_ssize_t i = 0; nodes && i < count; i++) {
        if (revive_arguments(v, PyList_GET_ITEM(nodes, i), rows + i * FX_ROW) < 0)
            Py_CLEAR(nodes);
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
