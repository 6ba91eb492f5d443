/* fx_code.c - the lines that torch.fx generates for the nodes of a record of fx_record, in C.
 *
 * Names come in the order in which torch asks for them, for each may be the reason that a later one is numbered. They are
 * taken in the set and the dict of torch's own namespace, as the names of globals are by the function that tells what a
 * call is written as. Python code runs in such calls and in a repr; it may change a list or dict in the record, so what is
 * written is held, and sizes are read anew. What a record can't hold, or what this file doesn't know how to write, makes it
 * give up: a function returns -1 without an exception, and torch generates the code.
 */
#include "fx.h"

#define MAX_NAME 250 /* bytes of a name that is split on the stack */

typedef struct {
    const module_state *st;
    PyObject *const *rows;
    uint32_t count;
    PyObject *kinds;                    /* tuple: classes of constants that are written as their repr */
    PyObject *used_names, *base_count;  /* of the namespace */
    PyObject *describe, *output;        /* functions: see fx_code_doc */
    const char *root;                   /* what modules and attributes are looked up in */
    uint32_t *slots, mask;              /* hash table of the nodes' indexes by address */
    PyObject **names;                   /* strong, by node; NULL: it has none yet */
    uint32_t *last_use;                 /* by node: the index of the last node that names it */
    uint32_t *inputs, input_capacity;   /* the nodes that each node names, one after the other */
    uint32_t *ends, input_count;        /* by node: where its inputs end */
    uint32_t *seen, at;                 /* by node: 1 + the last node that was found to name it; the node being read */
    fx_calls calls;                     /* of functions */
    PyObject **texts;                   /* strong, by call: what describe said */
    uint32_t text_count, text_capacity; /* of texts */
    PyObject *free_vars, *lines;        /* lists: targets of placeholders; by line, the index of its node */
    fe_buffer code;
} writer;

static int write_value(writer *w, PyObject *o, int depth);

static PyObject *field(const writer *w, uint32_t index, fx_row which)
{
    return w->rows[(size_t)index * FX_ROW + which];
}

static int write_text(writer *w, PyObject *text)
{
    Py_ssize_t len;
    const char *bytes = PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, &len) : NULL;

    if (!bytes)
        return -1;
    fe_buffer_add(&w->code, bytes, (size_t)len);
    return 0;
}

/* ---- names --------------------------------------------------------------------------------------------------------------- */

/* What create_name of torch's namespace counts on from, for a name that is taken or has no number of its own. */
static int first_count(const writer *w, PyObject *base, long long *out)
{
    PyObject *count = PyDict_GetItemWithError(w->base_count, base);
    int overflow = 0;

    *out = 0;
    if (count && PyLong_CheckExact(count))
        *out = PyLong_AsLongLongAndOverflow(count, &overflow);
    return (count && !PyLong_CheckExact(count)) || overflow || PyErr_Occurred() ? -1 : 0;
}

/* The name for a candidate that may be hidden or taken; *number becomes its base's counter. */
static PyObject *free_name(const writer *w, PyObject *candidate, PyObject *base, bool may_be_hidden, long long *number)
{
    PyObject *name = Py_NewRef(candidate),
             *hidden = may_be_hidden ? PyDict_GetItemWithError(w->st->fx.illegal_names, name) : NULL;
    int used = !hidden && PyErr_Occurred() ? -1 : hidden ? 1 : PySet_Contains(w->used_names, name);

    while (used > 0 && *number < INT64_MAX) {
        ++*number;
        Py_SETREF(name, PyUnicode_FromFormat("%U_%lld", base, *number));
        used = name ? PySet_Contains(w->used_names, name) : -1;
    }
    if (used != 0)
        Py_CLEAR(name);
    return name;
}

/* Split the name of a node into base and number; false when it is none that create_name can keep as it is. */
static bool split_name(PyObject *name, char *buffer, fe_candidate *out)
{
    size_t len;
    const char *text = fx_ascii(name, &len);

    if (!text || len == 0 || len > MAX_NAME)
        return false;
    *out = fe_name_split(text, len, buffer);
    return out->name_len == len && memcmp(out->name, text, len) == 0 && out->number < INT64_MAX;
}

/* _Namespace.create_name of torch.fx for the name of a node. */
static PyObject *create_name(const writer *w, PyObject *candidate)
{
    char buffer[MAX_NAME + 2];
    fe_candidate c;
    PyObject *base = NULL, *name = NULL, *count;

    if (!split_name(candidate, buffer, &c))
        return NULL;
    int used = PySet_Contains(w->used_names, candidate);
    long long number = c.number;
    bool counts = used || number < 0;
    if (used >= 0)
        base = c.base_len == c.name_len ? Py_NewRef(candidate)
                                        : PyUnicode_FromStringAndSize(c.base, (Py_ssize_t)c.base_len);
    if (base && (!counts || first_count(w, base, &number) == 0))
        name = free_name(w, candidate, base, counts, &number);
    count = name ? PyLong_FromLongLong(number) : NULL;
    if (!count || PySet_Add(w->used_names, name) < 0 || PyDict_SetItem(w->base_count, base, count) < 0)
        Py_CLEAR(name);
    Py_XDECREF(count);
    Py_XDECREF(base);
    return name;
}

static int write_name(writer *w, uint32_t index)
{
    if (!w->names[index] && !(w->names[index] = create_name(w, field(w, index, FX_ROW_NAME))))
        return -1;
    return write_text(w, w->names[index]);
}

/* ---- arguments ------------------------------------------------------------------------------------------------------------ */

static uint32_t find_node(const writer *w, const PyObject *node)
{
    for (uint32_t i = fx_hash(node) & w->mask;; i = (i + 1) & w->mask) {
        uint32_t at = w->slots[i];
        if (at == EMPTY_SLOT || field(w, at, FX_ROW_NODE) == node)
            return at;
    }
}

static int write_repr(writer *w, PyObject *o)
{
    PyObject *text = PyObject_Repr(o);
    int result = text ? write_text(w, text) : -1;

    Py_XDECREF(text);
    return result;
}

static int write_string(writer *w, PyObject *o)
{
    size_t len;
    const char *text = fx_ascii(o, &len);

    for (size_t i = 0; text && i < len; i++) {
        if (text[i] < ' ' || text[i] > '~' || text[i] == '\'' || text[i] == '\\')
            text = NULL;
    }
    if (!text)
        return write_repr(w, o);
    fe_buffer_char(&w->code, '\'');
    fe_buffer_add(&w->code, text, len);
    fe_buffer_char(&w->code, '\'');
    return 0;
}

static int write_number(writer *w, PyObject *o)
{
    int overflow = 0;

    if (PyLong_CheckExact(o)) {
        long long value = PyLong_AsLongLongAndOverflow(o, &overflow);
        fe_buffer_int(&w->code, value);
        return overflow ? -1 : 0;
    }
    char *text = PyOS_double_to_string(PyFloat_AS_DOUBLE(o), 'r', 0, Py_DTSF_ADD_DOT_0, NULL);
    if (!text)
        return -1;
    fe_buffer_text(&w->code, text);
    PyMem_Free(text);
    return 0;
}

static int write_constant(writer *w, PyObject *o)
{
    if (o == Py_None || o == Py_True || o == Py_False) {
        fe_buffer_text(&w->code, o == Py_None ? "None" : o == Py_True ? "True" : "False");
        return 0;
    }
    if (PyLong_CheckExact(o) || PyFloat_CheckExact(o))
        return write_number(w, o);
    if (PyUnicode_CheckExact(o))
        return write_string(w, o);
    bool known = o == Py_Ellipsis;
    for (Py_ssize_t i = 0; !known && i < PyTuple_GET_SIZE(w->kinds); i++)
        known = (PyObject *)Py_TYPE(o) == PyTuple_GET_ITEM(w->kinds, i);
    return known ? write_repr(w, o) : -1;
}

static int write_sequence(writer *w, PyObject *o, int depth)
{
    bool is_tuple = PyTuple_CheckExact(o);

    fe_buffer_char(&w->code, is_tuple ? '(' : '[');
    for (Py_ssize_t i = 0; i < Py_SIZE(o); i++) {
        fe_buffer_text(&w->code, i > 0 ? ", " : "");
        if (write_value(w, PySequence_Fast_GET_ITEM(o, i), depth) < 0)
            return -1;
    }
    fe_buffer_text(&w->code, !is_tuple ? "]" : Py_SIZE(o) == 1 ? ",)" : ")");
    return 0;
}

static int write_dict(writer *w, PyObject *o, int depth)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    const char *between = "{";

    if (PyDict_GET_SIZE(o) == 0)
        fe_buffer_char(&w->code, '{');
    for (; PyDict_Next(o, &at, &key, &value); between = ", ") {
        fe_buffer_text(&w->code, between);
        if (!PyUnicode_CheckExact(key) || write_string(w, key) < 0)
            return -1;
        fe_buffer_text(&w->code, ": ");
        if (write_value(w, value, depth) < 0)
            return -1;
    }
    fe_buffer_char(&w->code, '}');
    return 0;
}

static int write_slice(writer *w, const PySliceObject *o, int depth)
{
    PyObject *const parts[] = {o->start, o->stop, o->step};

    for (int i = 0; i < 3; i++) {
        fe_buffer_text(&w->code, i == 0 ? "slice(" : ", ");
        if (write_value(w, parts[i], depth) < 0)
            return -1;
    }
    fe_buffer_char(&w->code, ')');
    return 0;
}

static int write_held_value(writer *w, PyObject *o, int depth)
{
    PyObject *type = (PyObject *)Py_TYPE(o);

    if (Py_TYPE(o) == w->st->fx.node_type) {
        uint32_t index = find_node(w, o);
        return index == EMPTY_SLOT ? -1 : write_name(w, index);
    }
    if (depth == FE_MAX_DEPTH)
        return -1;
    if (PyTuple_CheckExact(o) || PyList_CheckExact(o) || type == w->st->list_type)
        return write_sequence(w, o, depth + 1);
    if (PyDict_CheckExact(o) || type == w->st->dict_type)
        return write_dict(w, o, depth + 1);
    return PySlice_Check(o) ? write_slice(w, (PySliceObject *)o, depth + 1) : write_constant(w, o);
}

/* An argument as torch writes it. In dicts it leaves that to Python, which writes all that a record holds the same way. */
static int write_value(writer *w, PyObject *o, int depth)
{
    Py_INCREF(o);
    int result = write_held_value(w, o, depth);
    Py_DECREF(o);
    return result;
}

/* A call's parentheses, and in them its arguments from some position on. */
static int write_arguments(writer *w, PyObject *args, PyObject *kwargs, Py_ssize_t first)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    const char *between = "(";

    for (Py_ssize_t i = first; i < PyTuple_GET_SIZE(args); i++, between = ", ") {
        fe_buffer_text(&w->code, between);
        if (write_value(w, PyTuple_GET_ITEM(args, i), 0) < 0)
            return -1;
    }
    for (; PyDict_Next(kwargs, &at, &key, &value); between = ", ") {
        fe_buffer_text(&w->code, between);
        if (write_text(w, key) < 0)
            return -1;
        fe_buffer_text(&w->code, " = ");
        if (write_value(w, value, 0) < 0)
            return -1;
    }
    fe_buffer_text(&w->code, *between == '(' ? "()" : ")");
    return 0;
}

/* ---- calls ------------------------------------------------------------------------------------------------------------------ */

static size_t part_length(const char *path, const char *end)
{
    const char *dot = memchr(path, '.', (size_t)(end - path));

    return (size_t)((dot ? dot : end) - path);
}

/* A path below a value: the value itself is what `base` writes, or the root. */
static int write_path(writer *w, PyObject *base, PyObject *target)
{
    size_t len, n;
    const char *path = fx_ascii(target, &len), *end = path ? path + len : NULL;

    if (!path)
        return -1;
    for (const char *at = path; at <= end; at += n + 1) {
        n = part_length(at, end);
        fe_buffer_text(&w->code, fx_is_word(at, n) ? "" : "getattr(");
    }
    if (!base)
        fe_buffer_text(&w->code, w->root);
    else if (write_value(w, base, 0) < 0)
        return -1;
    for (const char *at = path; at <= end; at += n + 1) {
        n = part_length(at, end);
        bool word = fx_is_word(at, n);
        fe_buffer_text(&w->code, word ? "." : ", \"");
        fe_buffer_add(&w->code, at, n);
        fe_buffer_text(&w->code, word ? "" : "\")");
    }
    return 0;
}

/* What a node's function is written as, asked once: a name, or a tuple of whether the operator works in place and the text
 * around its operands. Borrowed. */
static PyObject *function_text(writer *w, uint32_t index)
{
    PyObject *target = field(w, index, FX_ROW_TARGET);
    uint32_t call;
    fe_error err;

    if (fx_calls_get(w->st, &w->calls, field(w, index, FX_ROW_OP), target, &call) < 0)
        return NULL;
    if (call < w->text_count)
        return w->texts[call];
    if (fe_grow(&w->st->pool.allocator, &w->texts, &w->text_capacity, (size_t)call + 1, sizeof *w->texts, &err) < 0)
        return PyErr_NoMemory();
    PyObject *text = PyObject_CallOneArg(w->describe, target);
    if (text)
        w->texts[w->text_count++] = text;
    return text;
}

/* The operands and the text around them; what else there is takes names all the same. */
static int write_operands(writer *w, PyObject *args, PyObject *pieces)
{
    Py_ssize_t count = PyTuple_GET_SIZE(args), last = PyTuple_GET_SIZE(pieces) - 1;
    size_t end = 0;

    if (last < 1 || last - 1 > count)
        return -1;
    for (Py_ssize_t i = 0; i < count || i < last; i++) {
        if (i < last && write_text(w, PyTuple_GET_ITEM(pieces, i + 1)) < 0)
            return -1;
        if (i == last - 1)
            end = w->code.len;
        if (i < count && write_value(w, PyTuple_GET_ITEM(args, i), 0) < 0)
            return -1;
    }
    w->code.len = w->code.failed ? w->code.len : end;
    return 0;
}

static int write_operator(writer *w, uint32_t index, PyObject *args, PyObject *pieces)
{
    bool in_place = PyTuple_GET_SIZE(pieces) > 0 && PyTuple_GET_ITEM(pieces, 0) == Py_True;

    if (in_place) {
        if (write_operands(w, args, pieces) < 0)
            return -1;
        fe_buffer_text(&w->code, ";  ");
    }
    if (write_name(w, index) < 0)
        return -1;
    fe_buffer_text(&w->code, " = ");
    if (in_place)
        return PyTuple_GET_SIZE(args) > 0 ? write_value(w, PyTuple_GET_ITEM(args, 0), 0) : -1;
    return write_operands(w, args, pieces);
}

static int write_function(writer *w, uint32_t index, PyObject *args, PyObject *kwargs)
{
    PyObject *text = function_text(w, index);

    if (!text)
        return -1;
    if (PyTuple_CheckExact(text))
        return write_operator(w, index, args, text);
    if (write_name(w, index) < 0)
        return -1;
    fe_buffer_text(&w->code, " = ");
    return write_text(w, text) < 0 ? -1 : write_arguments(w, args, kwargs, 0);
}

static int write_output(writer *w, PyObject *args)
{
    size_t start = w->code.len;

    if (PyTuple_GET_SIZE(args) == 0 || write_value(w, PyTuple_GET_ITEM(args, 0), 0) < 0 || w->code.failed)
        return -1;
    PyObject *value = PyUnicode_DecodeUTF8(w->code.data + start, (Py_ssize_t)(w->code.len - start), NULL),
             *line = value ? PyObject_CallOneArg(w->output, value) : NULL;
    w->code.len = start;
    int result = line ? write_text(w, line) : -1;
    Py_XDECREF(value);
    Py_XDECREF(line);
    return result < 0 || memchr(w->code.data + start, '\n', w->code.len - start) ? -1 : 0;
}

/* ---- lines ------------------------------------------------------------------------------------------------------------------ */

static int note_line(writer *w, uint32_t index)
{
    PyObject *number = PyLong_FromUnsignedLong(index);
    int result = number ? PyList_Append(w->lines, number) : -1;

    Py_XDECREF(number);
    return result;
}

/* The names that are of no use behind a node, set to None. */
static int write_deletions(writer *w, uint32_t index)
{
    const char *between = ";  ";

    for (uint32_t i = index ? w->ends[index - 1] : 0; i < w->ends[index]; i++) {
        if (w->last_use[w->inputs[i]] != index)
            continue;
        fe_buffer_text(&w->code, between);
        if (write_name(w, w->inputs[i]) < 0)
            return -1;
        between = " = ";
    }
    if (field(w, index, FX_ROW_USED) != Py_True) {
        fe_buffer_text(&w->code, between);
        if (write_name(w, index) < 0)
            return -1;
        between = " = ";
    }
    fe_buffer_text(&w->code, *between == ' ' ? " = None" : "");
    return 0;
}

static int write_placeholder(writer *w, uint32_t index)
{
    PyObject *target = field(w, index, FX_ROW_TARGET);
    size_t start = w->code.len;

    if (!PyUnicode_CheckExact(target) || PyList_Append(w->free_vars, target) < 0)
        return -1;
    fe_buffer_text(&w->code, "    ");
    if (write_name(w, index) < 0)
        return -1;
    int differs = PyUnicode_Compare(target, w->names[index]);
    if (differs == 0) {
        w->code.len = start;
        return 0;
    }
    fe_buffer_text(&w->code, " = ");
    if (write_text(w, target) < 0)
        return -1;
    fe_buffer_char(&w->code, '\n');
    return note_line(w, index);
}

static int write_statement(writer *w, uint32_t index, fe_op op)
{
    PyObject *target = field(w, index, FX_ROW_TARGET), *args = field(w, index, FX_ROW_ARGS),
             *kwargs = field(w, index, FX_ROW_KWARGS), *base = NULL;

    if (op == FE_OP_OUTPUT)
        return write_output(w, args);
    if (op == FE_OP_CALL_FUNCTION)
        return write_function(w, index, args, kwargs);
    if (op == FE_OP_CALL_METHOD && !(base = PyTuple_GET_SIZE(args) > 0 ? PyTuple_GET_ITEM(args, 0) : NULL))
        return -1;
    if (write_name(w, index) < 0)
        return -1;
    fe_buffer_text(&w->code, " = ");
    if (write_path(w, base, target) < 0)
        return -1;
    return op == FE_OP_GET_ATTR ? 0 : write_arguments(w, args, kwargs, op == FE_OP_CALL_METHOD);
}

static int write_node(writer *w, uint32_t index)
{
    fe_op op = fx_op(w->st, field(w, index, FX_ROW_OP));

    if (op == FE_OP_PLACEHOLDER)
        return write_placeholder(w, index);
    if (op != FE_OP_GET_ATTR && op != FE_OP_CALL_FUNCTION && op != FE_OP_CALL_METHOD && op != FE_OP_CALL_MODULE &&
        op != FE_OP_OUTPUT)
        return -1;
    fe_buffer_text(&w->code, "    ");
    if (write_statement(w, index, op) < 0 || (op != FE_OP_OUTPUT && write_deletions(w, index) < 0))
        return -1;
    fe_buffer_char(&w->code, '\n');
    return note_line(w, index);
}

/* ---- uses ------------------------------------------------------------------------------------------------------------------- */

static int note_use(void *ctx, PyObject *node)
{
    writer *w = ctx;
    uint32_t index = find_node(w, node);
    fe_error err;

    if (index == EMPTY_SLOT)
        return -1;
    if (w->seen[index] == w->at + 1)
        return 0;
    w->seen[index] = w->at + 1;
    w->last_use[index] = w->at;
    if (fe_grow(&w->st->pool.allocator, &w->inputs, &w->input_capacity, (size_t)w->input_count + 1, sizeof *w->inputs,
                &err) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    w->inputs[w->input_count++] = index;
    return 0;
}

/* Find the last use of each node. */
static int read_uses(writer *w)
{
    const fx_layout *l = &w->st->fx;

    for (w->at = 0; w->at < w->count; w->at++) {
        PyObject *args = field(w, w->at, FX_ROW_ARGS), *kwargs = field(w, w->at, FX_ROW_KWARGS);
        if (!PyTuple_CheckExact(args) || !PyDict_Check(kwargs) || fx_each_node(l, args, note_use, w) != 0 ||
            fx_each_node(l, kwargs, note_use, w) != 0)
            return -1;
        w->ends[w->at] = w->input_count;
    }
    return 0;
}

/* ---- the body --------------------------------------------------------------------------------------------------------------- */

static void *new_array(const writer *w, size_t size)
{
    size_t bytes = (w->count + (size_t)1) * size;
    void *array = fe_resize(&w->st->pool.allocator, NULL, bytes);

    if (array)
        memset(array, 0, bytes);
    else
        PyErr_NoMemory();
    return array;
}

static int open_writer(writer *w)
{
    if (!(w->slots = fx_new_slots(&w->st->pool.allocator, w->count, &w->mask)) ||
        !(w->names = new_array(w, sizeof *w->names)) || !(w->last_use = new_array(w, sizeof *w->last_use)) ||
        !(w->ends = new_array(w, sizeof *w->ends)) || !(w->seen = new_array(w, sizeof *w->seen)) ||
        !(w->free_vars = PyList_New(0)) || !(w->lines = PyList_New(0)))
        return -1;
    for (uint32_t i = 0; i < w->count; i++) {
        uint32_t slot = fx_hash(field(w, i, FX_ROW_NODE)) & w->mask;
        while (w->slots[slot] != EMPTY_SLOT)
            slot = (slot + 1) & w->mask;
        w->slots[slot] = i;
    }
    return 0;
}

static void close_writer(writer *w)
{
    const fe_allocator *a = &w->st->pool.allocator;

    for (uint32_t i = 0; w->names && i < w->count; i++)
        Py_XDECREF(w->names[i]);
    for (uint32_t i = 0; i < w->text_count; i++)
        Py_DECREF(w->texts[i]);
    fe_resize(a, w->names, 0);
    fe_resize(a, w->texts, 0);
    fe_resize(a, w->slots, 0);
    fe_resize(a, w->last_use, 0);
    fe_resize(a, w->inputs, 0);
    fe_resize(a, w->ends, 0);
    fe_resize(a, w->seen, 0);
    fx_calls_clear(w->st, &w->calls);
    fe_buffer_clear(&w->code);
    Py_XDECREF(w->free_vars);
    Py_XDECREF(w->lines);
}

static PyObject *write_body(writer *w)
{
    int result = open_writer(w) < 0 ? -1 : read_uses(w);

    for (uint32_t i = 0; result == 0 && i < w->count; i++)
        result = write_node(w, i);
    fe_buffer_text(&w->code, "    ");
    if (result < 0 || note_line(w, w->count - 1) < 0)
        return PyErr_Occurred() || !w->code.failed ? NULL : PyErr_NoMemory();
    if (w->code.failed)
        return PyErr_NoMemory();
    PyObject *text = PyUnicode_DecodeUTF8(w->code.data, (Py_ssize_t)w->code.len, NULL),
             *body = text ? PyTuple_Pack(3, w->free_vars, text, w->lines) : NULL;
    Py_XDECREF(text);
    return body;
}

const char fx_code_doc[] =
    "fx_code(record, kinds, used_names, base_count, root, describe, output, /)\n--\n\n"
    "The lines of code for the nodes of a record of fx_record, as torch.fx writes them: the parameters, the indented\n"
    "lines as one text, and by line the index of its node. kinds are those of fx_record; used_names and base_count "
    "are\n"
    "the namespace's, and change. root is what paths are looked up in. describe(function) tells what a call is "
    "written\n"
    "as: the name of a global, or a tuple of whether the operator works in place, and the pieces of text around its\n"
    "operands. output(text) is the line that returns a value. Returns None when torch itself has to do it.";

PyObject *fx_code(PyObject *m, PyObject *const *args, Py_ssize_t nargs)
{
    const module_state *st = state_of(m);
    size_t len;

    if (fx_arguments("fx_code", nargs, 7) < 0)
        return NULL;
    if (!st->fx.node_type || !PyTuple_CheckExact(args[0]) || PyTuple_GET_SIZE(args[0]) % FX_ROW != 0 ||
        !PyTuple_Check(args[1]) || !PySet_CheckExact(args[2]) || !PyDict_CheckExact(args[3]) ||
        !fx_ascii(args[4], &len) || PyTuple_GET_SIZE(args[0]) / FX_ROW >= (Py_ssize_t)UINT32_MAX)
        return PyErr_Format(PyExc_TypeError, "fx_code() takes a record of fx_record, a tuple, a set, a dict, and text");
    writer w = {.st = st,
                .rows = &PyTuple_GET_ITEM(args[0], 0),
                .count = (uint32_t)(PyTuple_GET_SIZE(args[0]) / FX_ROW),
                .kinds = args[1],
                .used_names = args[2],
                .base_count = args[3],
                .root = (const char *)PyUnicode_1BYTE_DATA(args[4]),
                .describe = args[5],
                .output = args[6]};
    fe_buffer_init(&w.code, &st->pool.allocator);
    PyObject *body = w.count ? write_body(&w) : NULL;
    close_writer(&w);
    return body || PyErr_Occurred() ? body : Py_NewRef(Py_None);
}
