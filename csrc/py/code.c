/* code.c - the Python code of a graph: what only Python can write is asked for here, the rest is written by the core.
 *
 * Asking runs users' code, so it is done before the core writes, once for each object, target and type, with the graph
 * pinned. All that is handed to the core lives in one arena, and the strings in one list.
 */
#include "codegen.h"
#include "module.h"

typedef struct {
    GraphObject *g;
    PyObject *describer; /* borrowed */
    PyObject *kept;      /* list of the strings that texts point into */
    fe_arena arena;
    fe_renderer renderer;
    fe_code_options o;
    fe_code_text *values, *types, *classes;
    fe_code_target *targets;
    fe_value *output_values; /* owned when there are any of our own */
    uint32_t output_made;
    uint32_t needed; /* globals: 1 + the greatest that a text has */
} writing;

static void *take(writing *w, size_t count, size_t size)
{
    void *array = count < PTRDIFF_MAX / size ? fe_arena_take(&w->arena, count * size + 1) : NULL;

    if (array)
        memset(array, 0, count * size);
    else
        PyErr_NoMemory();
    return array;
}

/* A text that stays as long as the writing does. */
static int keep(writing *w, PyObject *str, fe_text *out)
{
    Py_ssize_t len;
    const char *data;

    if (!PyUnicode_Check(str)) {
        PyErr_Format(PyExc_TypeError, "a piece of code is of type %.200s, not str", Py_TYPE(str)->tp_name);
        return -1;
    }
    if (!(data = PyUnicode_AsUTF8AndSize(str, &len)) || PyList_Append(w->kept, str) < 0)
        return -1;
    *out = (fe_text){data, (size_t)len};
    return 0;
}

/* ---- what Python says of objects ---- */

static int read_piece(writing *w, PyObject *o, fe_code_piece *out)
{
    *out = (fe_code_piece){{"", 0}, FE_NONE_ID};
    if (!PyLong_Check(o))
        return keep(w, o, &out->text);
    unsigned long global = PyLong_AsUnsignedLong(o);
    if (PyErr_Occurred() || global >= FE_NONE_ID) {
        PyErr_SetString(PyExc_ValueError, "no such global");
        return -1;
    }
    out->global = (uint32_t)global;
    w->needed = out->global < w->needed ? w->needed : out->global + 1;
    return 0;
}

/* A str, or a tuple of strs and of ints that stand for globals. */
static int read_text(writing *w, PyObject *o, fe_code_text *out)
{
    bool many = PyTuple_Check(o);
    Py_ssize_t count = many ? PyTuple_GET_SIZE(o) : 1;
    fe_code_piece *pieces = take(w, (size_t)count, sizeof *pieces);

    for (Py_ssize_t i = 0; pieces && i < count; i++) {
        if (read_piece(w, many ? PyTuple_GET_ITEM(o, i) : o, &pieces[i]) < 0)
            return -1;
    }
    *out = (fe_code_text){pieces, (uint32_t)count};
    return pieces ? 0 : -1;
}

static int describe(writing *w, const char *method, uint32_t object, fe_code_text *out)
{
    if (out->pieces)
        return 0;
    PyObject *o = Py_NewRef(graph_object_at(w->g, object)), *text = PyObject_CallMethod(w->describer, method, "(O)", o);
    int result = text ? read_text(w, text, out) : -1;

    Py_XDECREF(text);
    Py_DECREF(o);
    return result;
}

/* (shape, pattern, name) */
static int describe_target(writing *w, uint32_t target)
{
    fe_code_target *t = &w->targets[target];

    if (t->name.pieces)
        return 0;
    PyObject *o = graph_target_object(w->g, target),
             *found = o ? PyObject_CallMethod(w->describer, "target", "(O)", o) : NULL;
    PyObject *pattern, *name;
    int shape, result = -1;
    if (found && !PyTuple_Check(found))
        PyErr_SetString(PyExc_TypeError, "the description of a target is no tuple");
    else if (found && PyArg_ParseTuple(found, "iOO", &shape, &pattern, &name) && keep(w, pattern, &t->pattern) == 0)
        result = read_text(w, name, &t->name);
    t->shape = result == 0 ? (fe_code_shape)shape : FE_CODE_CALL;
    Py_XDECREF(found);
    Py_XDECREF(o);
    return result;
}

static int need_seq(writing *w, const fe_seq *s);

static int need_value(writing *w, fe_value v)
{
    if (v.kind == FE_OBJECT)
        return describe(w, "value", v.as.object, &w->values[v.as.object]);
    return fe_kind_is_seq(v.kind) ? need_seq(w, v.as.seq) : 0;
}

static int need_seq(writing *w, const fe_seq *s)
{
    if (s && s->type != FE_NONE_ID && describe(w, "tuple_class", s->type, &w->classes[s->type]) < 0)
        return -1;
    for (uint32_t i = 0; s && i < s->len; i++) {
        if (need_value(w, s->items[i]) < 0)
            return -1;
    }
    return 0;
}

static int need_node(writing *w, uint32_t id)
{
    const fe_node *n = &w->g->core->nodes[id];
    const fe_detail *d = &w->g->core->details[id];

    if (d->type != FE_NONE_ID && describe(w, "annotation", d->type, &w->types[d->type]) < 0)
        return -1;
    if (n->op == FE_OP_CALL_FUNCTION && describe_target(w, n->target) < 0)
        return -1;
    return need_seq(w, d->args) < 0 ? -1 : need_seq(w, d->kwargs);
}

static int need_all(writing *w)
{
    const fe_graph *c = w->g->core;

    if (!(w->values = take(w, c->object_count, sizeof *w->values)) ||
        !(w->types = take(w, c->object_count, sizeof *w->types)) ||
        !(w->classes = take(w, c->object_count, sizeof *w->classes)) ||
        !(w->targets = take(w, c->target_count, sizeof *w->targets)))
        return -1;
    for (uint32_t id = c->nodes[FE_ROOT].next; id != FE_ROOT; id = c->nodes[id].next) {
        if (need_node(w, id) < 0)
            return -1;
    }
    for (uint32_t i = 0; i < w->output_made; i++) {
        if (need_value(w, w->output_values[i]) < 0)
            return -1;
    }
    w->o.values = w->values;
    w->o.types = w->types;
    w->o.classes = w->classes;
    w->o.object_count = c->object_count;
    w->o.targets = w->targets;
    w->o.target_count = c->target_count;
    return 0;
}

/* The globals that were named: pairs of the name they would like and whether it is reserved for them. */
static int read_globals(writing *w)
{
    PyObject *list = PyObject_GetAttrString(w->describer, "globals"), *hint;
    Py_ssize_t count = list && PyList_Check(list) ? PyList_GET_SIZE(list) : -1;
    fe_code_global *globals = count < 0 ? NULL : take(w, (size_t)count, sizeof *globals);
    int reserved, result = globals ? 0 : -1;

    if (list && count < 0)
        PyErr_SetString(PyExc_TypeError, "the globals of code are no list");
    if (result == 0 && count < (Py_ssize_t)w->needed) {
        PyErr_SetString(PyExc_ValueError, "a text has a global that is none");
        result = -1;
    }
    for (Py_ssize_t i = 0; result == 0 && i < count; i++) {
        PyObject *item = PyList_GET_ITEM(list, i);
        if (!PyTuple_Check(item) || !PyArg_ParseTuple(item, "Op", &hint, &reserved) ||
            keep(w, hint, &globals[i].hint) < 0)
            result = -1;
        else
            globals[i].reserved = reserved;
    }
    w->o.globals = globals;
    w->o.global_count = result == 0 ? (uint32_t)count : 0;
    Py_XDECREF(list);
    return result;
}

/* ---- options ---- */

/* A list or dict of the describer, of strs. */
static int read_names(writing *w, const char *attribute, const fe_text **out, uint32_t *count)
{
    PyObject *names = PyObject_GetAttrString(w->describer, attribute), *list = names ? PySequence_List(names) : NULL;
    fe_text *texts = list ? take(w, (size_t)PyList_GET_SIZE(list), sizeof *texts) : NULL;
    int result = texts ? 0 : -1;

    for (Py_ssize_t i = 0; result == 0 && i < PyList_GET_SIZE(list); i++)
        result = keep(w, PyList_GET_ITEM(list, i), &texts[i]);
    if (result == 0) {
        *out = texts;
        *count = (uint32_t)PyList_GET_SIZE(list);
    }
    Py_XDECREF(list);
    Py_XDECREF(names);
    return result;
}

/* A list of a str or None for each node, or None. */
static int read_notes(writing *w, PyObject *list, const fe_text **out)
{
    const fe_graph *c = w->g->core;
    Py_ssize_t at = 0;
    fe_text *notes;

    if (list == Py_None)
        return 0;
    if (!PyList_Check(list) || PyList_GET_SIZE(list) != (Py_ssize_t)c->live) {
        PyErr_SetString(PyExc_ValueError, "notes for code are a list of as many items as the graph has nodes");
        return -1;
    }
    if (!(notes = take(w, c->node_count, sizeof *notes)))
        return -1;
    for (uint32_t id = c->nodes[FE_ROOT].next; id != FE_ROOT; id = c->nodes[id].next, at++) {
        PyObject *item = PyList_GET_ITEM(list, at);
        if (item != Py_None && keep(w, item, &notes[id]) < 0)
            return -1;
    }
    *out = notes;
    return 0;
}

/* What stands around the values that are returned, a tuple of strs; and the values, or None for that which the graph returns. */
static int read_output(writing *w, PyObject *texts, PyObject *values)
{
    Py_ssize_t count = values == Py_None ? 1 : PyTuple_GET_SIZE(values);
    fe_text *kept = take(w, (size_t)count + 1, sizeof *kept);

    if (!kept || !(w->output_values = take(w, (size_t)count, sizeof *w->output_values)))
        return -1;
    if (PyTuple_GET_SIZE(texts) != count + 1) {
        PyErr_SetString(PyExc_ValueError, "around n values that are returned stand n + 1 texts");
        return -1;
    }
    for (Py_ssize_t i = 0; i <= count; i++) {
        if (keep(w, PyTuple_GET_ITEM(texts, i), &kept[i]) < 0)
            return -1;
    }
    for (Py_ssize_t i = 0; values != Py_None && i < count; i++) {
        if (value_from_python(w->g, PyTuple_GET_ITEM(values, i), &w->output_values[i]) < 0)
            return -1;
        w->output_made++;
    }
    w->o.output_texts = kept;
    w->o.output_values = values == Py_None ? NULL : w->output_values;
    w->o.output_count = (uint32_t)count;
    return 0;
}

static bool is_name(void *ctx, const char *text, size_t len)
{
    writing *w = ctx;
    PyObject *str = PyUnicode_DecodeUTF8(text, (Py_ssize_t)len, NULL),
             *found = str ? PyObject_CallMethod(w->describer, "is_name", "(O)", str) : NULL;
    bool result = found == Py_True;

    if (!found)
        PyErr_Clear(); /* it is looked up by getattr then, which any text can be */
    Py_XDECREF(found);
    Py_XDECREF(str);
    return result;
}

/* ---- results ---- */

static PyObject *slices(const fe_buffer *b, const uint32_t *ends, uint32_t count)
{
    PyObject *list = PyList_New(count);
    uint32_t start = 0;

    for (uint32_t i = 0; list && i < count; start = ends[i++]) {
        PyObject *text = PyUnicode_DecodeUTF8(b->data + start, (Py_ssize_t)(ends[i] - start), NULL);
        if (text)
            PyList_SET_ITEM(list, i, text);
        else
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *text_object(const fe_buffer *b)
{
    return PyUnicode_DecodeUTF8(b->len ? b->data : "", (Py_ssize_t)b->len, NULL);
}

/* List of (index, name) of the globals in the order in which they got their names. */
static PyObject *named_globals(const fe_source *s)
{
    PyObject *list = PyList_New(s->used_count);

    for (uint32_t i = 0; list && i < s->used_count; i++) {
        uint32_t global = s->used_globals[i];
        const fe_string *name = s->global_names[global];
        PyObject *pair = Py_BuildValue("(ks#)", (unsigned long)global, name->data, (Py_ssize_t)name->len);
        if (pair)
            PyList_SET_ITEM(list, i, pair);
        else
            Py_CLEAR(list);
    }
    return list;
}

/* List of (name, other name) of the globals that parameters hide. */
static PyObject *restored_globals(const fe_source *s)
{
    PyObject *list = PyList_New(s->restored_count);

    for (uint32_t i = 0; list && i < s->restored_count; i++) {
        const fe_string *name = s->restored[i].name, *other = s->restored[i].other;
        PyObject *pair =
            Py_BuildValue("(s#s#)", name->data, (Py_ssize_t)name->len, other->data, (Py_ssize_t)other->len);
        if (pair)
            PyList_SET_ITEM(list, i, pair);
        else
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *target_name(const fe_source *s, fe_code_text name, const fe_allocator *a)
{
    fe_buffer text;

    fe_buffer_init(&text, a);
    for (uint32_t i = 0; i < name.count; i++) {
        fe_buffer_add(&text, name.pieces[i].text.data, name.pieces[i].text.len);
        const fe_string *global = name.pieces[i].global == FE_NONE_ID ? NULL : s->global_names[name.pieces[i].global];
        if (global)
            fe_buffer_add(&text, global->data, global->len);
    }
    PyObject *result = text.failed ? PyErr_NoMemory() : text_object(&text);
    fe_buffer_clear(&text);
    return result;
}

/* Whether the meta of a node says that its function was wrapped. Runs Python code. */
static int is_wrapped(const writing *w, uint32_t id, uint32_t key)
{
    const fe_node *n = &w->g->core->nodes[id];
    uint32_t object = n->op == FE_OP_CALL_FUNCTION ? fe_meta_get(w->g->core->details[id].meta, key) : FE_NONE_ID;

    if (object == FE_NONE_ID)
        return 0;
    PyObject *value = Py_NewRef(graph_object_at(w->g, object));
    int result = PyObject_IsTrue(value);
    Py_DECREF(value);
    return result;
}

/* The names of the functions that tracing is to record as they are. */
static PyObject *wrapped_names(const writing *w, const fe_source *s)
{
    const fe_graph *c = w->g->core;
    uint32_t key;
    PyObject *list = PyList_New(0);
    int wrapped = list ? graph_meta_key(w->g, w->g->state->str_is_wrapped, false, &key) : -1;

    for (uint32_t id = c->nodes[FE_ROOT].next; wrapped >= 0 && key != FE_NONE_ID && id != FE_ROOT;
         id = c->nodes[id].next) {
        if ((wrapped = is_wrapped(w, id, key)) <= 0)
            continue;
        PyObject *name = target_name(s, w->targets[c->nodes[id].target].name, c->allocator);
        wrapped = name ? PyList_Append(list, name) : -1;
        Py_XDECREF(name);
    }
    if (wrapped < 0)
        Py_CLEAR(list);
    return list;
}

static PyObject *build(const writing *w, const fe_source *s)
{
    PyObject *names = slices(&s->parameters, s->ends, s->end_count),
             *body = w->o.chunks ? slices(&s->body, s->chunk_ends, s->chunk_count) : text_object(&s->body),
             *lines = PyBytes_FromStringAndSize((const char *)s->lines, (Py_ssize_t)(s->line_count * sizeof *s->lines)),
             *globals = named_globals(s), *wrapped = wrapped_names(w, s), *type = text_object(&s->result_type),
             *restored = restored_globals(s), *result = NULL;

    if (names && body && lines && globals && wrapped && type && restored)
        result = PyTuple_Pack(7, names, body, lines, globals, wrapped, type, restored);
    Py_XDECREF(names);
    Py_XDECREF(body);
    Py_XDECREF(lines);
    Py_XDECREF(globals);
    Py_XDECREF(wrapped);
    Py_XDECREF(type);
    Py_XDECREF(restored);
    return result;
}

/* ---- the method ---- */

enum { FLAG_CHUNKS = 1, FLAG_RECORD = 2, FLAG_AS_TORCH = 4, FLAG_PLAIN_HEAD = 8 };

static PyObject *write_code(writing *w)
{
    fe_error err;
    fe_source source;
    PyObject *result = NULL;

    if (need_all(w) < 0 || read_globals(w) < 0 || read_names(w, "extra", &w->o.given, &w->o.given_count) < 0 ||
        read_names(w, "outer", &w->o.outer, &w->o.outer_count) < 0)
        return NULL;
    if (fe_code_write(w->g->core, &w->o, &source, &err) < 0)
        raise_core(w->g->state, &err);
    else
        result = build(w, &source);
    fe_code_clear(&source);
    return result;
}

static int read_options(writing *w, PyObject *const *args)
{
    PyObject *colours = args[9];
    fe_text root, texts[3];
    long flags = PyLong_AsLong(args[8]);

    if (flags == -1 && PyErr_Occurred())
        return -1;
    if (!PyTuple_Check(args[2]) || (args[3] != Py_None && !PyTuple_Check(args[3])) || !PyTuple_Check(colours) ||
        PyTuple_GET_SIZE(colours) != 3) {
        PyErr_SetString(PyExc_TypeError, "_code() takes tuples of texts, of values, and of three colours");
        return -1;
    }
    if (keep(w, args[1], &root) < 0 || read_output(w, args[2], args[3]) < 0 ||
        read_notes(w, args[4], &w->o.annotations) < 0 || read_notes(w, args[5], &w->o.notes) < 0 ||
        read_notes(w, args[6], &w->o.meta) < 0 || read_notes(w, args[7], &w->o.comments) < 0)
        return -1;
    for (int i = 0; i < 3; i++) {
        if (keep(w, PyTuple_GET_ITEM(colours, i), &texts[i]) < 0)
            return -1;
    }
    w->o.root = root.data;
    w->o.colour = texts[0].data;
    w->o.dim = texts[1].data;
    w->o.reset = texts[2].data;
    w->o.chunks = flags & FLAG_CHUNKS;
    w->o.record_functions = flags & FLAG_RECORD;
    w->o.as_torch = flags & FLAG_AS_TORCH;
    w->o.plain_head = flags & FLAG_PLAIN_HEAD;
    return 0;
}

const char code_doc[] =
    "_code($self, describer, root, texts, values, annotations, notes, meta, comments, flags, colours, /)\n--\n\n"
    "The code of the graph: parameters, the body, by line the place of its node as 32-bit numbers, the globals as\n"
    "(index, name), the names of wrapped functions, the annotation of the result, and of globals that parameters hide\n"
    "their names and those that they have too. describer tells what objects are written as, which globals there are\n"
    "besides (extra), and the function's parameters where the graph's are taken out of them (outer); texts and values "
    "are what is returned; then lists of a str or None for each node, or None: the\n"
    "annotation, lines before it, lines of its meta, the comment behind a parameter. flags: 1 the body as a list of\n"
    "pieces without indentation, 2 record calls for the profiler, 4 torch's text, even where it means something else, "
    "8\n"
    "the function's parameters are the graph's. colours: of constants, of deletions, the end of both.";

PyObject *Graph_code(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    GraphObject *g = (GraphObject *)self;
    writing w = {.g = g};
    PyObject *result = NULL;

    if (nargs != 10)
        return PyErr_Format(PyExc_TypeError, "_code() takes exactly 10 arguments (%zd given)", nargs);
    if (graph_readable(g) < 0 || !(w.kept = PyList_New(0)))
        return NULL;
    w.describer = args[0];
    w.renderer.quote = quote_string;
    w.o.renderer = &w.renderer;
    w.o.is_name = is_name;
    w.o.ctx = &w;
    fe_arena_init(&w.arena, g->core->allocator);
    graph_pin(g);
    if (read_options(&w, args) == 0)
        result = write_code(&w);
    for (uint32_t i = 0; i < w.output_made; i++)
        fe_value_free(g->core, w.output_values[i]);
    graph_unpin(g);
    fe_arena_clear(&w.arena);
    Py_DECREF(w.kept);
    graph_sweep(g);
    return result;
}
