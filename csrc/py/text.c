/* text.c - the text of a graph: objects are rendered here, the rest is written by the core.
 *
 * Rendering calls str and repr of users' objects, so it is done before the core writes, once for each object and form
 * that the text needs. The graph is pinned all the while.
 */
#include "module.h"

struct rendering {
    GraphObject *g;
    fe_renderer renderer;
    fe_text *shown[FE_SHOW_COUNT];
    PyObject *kept; /* list of the strings that the texts point into */
};

static int keep_text(rendering *r, fe_show show, uint32_t object, PyObject *text)
{
    Py_ssize_t len;
    PyObject *bytes = NULL;
    const char *data = PyUnicode_AsUTF8AndSize(text, &len);

    if (!data && PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
        PyErr_Clear();
        bytes = PyUnicode_AsEncodedString(text, "utf-8", "surrogatepass");
        data = bytes ? PyBytes_AS_STRING(bytes) : NULL;
        len = bytes ? PyBytes_GET_SIZE(bytes) : 0;
    }
    int result = data ? PyList_Append(r->kept, bytes ? bytes : text) : -1;
    Py_XDECREF(bytes);
    if (result == 0)
        r->shown[show][object] = (fe_text){data, (size_t)len};
    return result;
}

/* str(o), unless the object brings a text of its own for arguments of nodes, as torch.fx lets it. */
static PyObject *argument_text(const module_state *st, PyObject *o)
{
    PyObject *function, *text;

    if (lookup_attr(o, st->str_custom_repr, &function) < 0)
        return NULL;
    if (!function)
        return PyObject_Str(o);
    text = PyObject_CallNoArgs(function);
    Py_DECREF(function);
    return text;
}

/* "Name\nfield\nfield\n" for a named tuple, "module.Name" for another tuple class with a repr of its own, else "". */
static PyObject *fields_text(const module_state *st, PyObject *type)
{
    PyObject *fields, *names = NULL, *text = NULL, *end = PyUnicode_FromString("\n");

    if (!end || lookup_attr(type, st->str_fields, &fields) < 0)
        goto done;
    if (((PyTypeObject *)type)->tp_repr == PyTuple_Type.tp_repr) {
        text = PyUnicode_FromString("");
        Py_XDECREF(fields);
        goto done;
    }
    if (!fields) {
        PyObject *module = PyObject_GetAttrString(type, "__module__"),
                 *name = PyObject_GetAttrString(type, "__qualname__");
        text = module && name ? PyUnicode_FromFormat("%S.%S", module, name) : NULL;
        Py_XDECREF(module);
        Py_XDECREF(name);
        goto done;
    }
    PyObject *name = PyObject_GetAttrString(type, "__name__");
    if (name && (names = PyUnicode_Join(end, fields)))
        text = PyUnicode_GET_LENGTH(names) ? PyUnicode_FromFormat("%S\n%U\n", name, names)
                                           : PyUnicode_FromFormat("%S\n", name);
    Py_XDECREF(name);
    Py_XDECREF(names);
    Py_DECREF(fields);
done:
    Py_XDECREF(end);
    return text;
}

static PyObject *render(const module_state *st, fe_show show, PyObject *o)
{
    switch (show) {
    case FE_SHOW_ARG:
        return argument_text(st, o);
    case FE_SHOW_STR:
        return PyObject_Str(o);
    case FE_SHOW_REPR:
        return PyObject_Repr(o);
    case FE_SHOW_TYPE:
        return PyObject_CallOneArg(st->type_repr, o);
    case FE_SHOW_CALLABLE:
        return PyObject_CallOneArg(st->pretty, o);
    default:
        return fields_text(st, o);
    }
}

/* Make a table longer, or anew when there is none; the new texts are empty. */
static int grow_table(rendering *r, fe_show show, uint32_t old, uint32_t count)
{
    fe_text *table = PyMem_RawRealloc(r->shown[show], count * sizeof *table);

    if (!table) {
        PyErr_NoMemory();
        return -1;
    }
    old = r->shown[show] ? old : 0;
    memset(table + old, 0, (count - old) * sizeof *table);
    r->shown[show] = table;
    r->renderer.shown[show] = table;
    return 0;
}

/* Make room for an object in the tables, which are all of one length. A line of a graph with many objects needs few:
 * it must not cost a table of all. */
static int make_room(rendering *r, fe_show show, uint32_t object)
{
    uint32_t old = r->renderer.count, count = old, all = r->g->core->object_count;

    if (object >= old) {
        count = object < all / 2 ? 2 * (object + 1) : all;
        for (int i = 0; i < FE_SHOW_COUNT; i++) {
            if (r->shown[i] && grow_table(r, (fe_show)i, old, count) < 0)
                return -1;
        }
        r->renderer.count = count;
    }
    return r->shown[show] ? 0 : grow_table(r, show, 0, count);
}

/* Render an object in a form, unless that is done already. */
static int need(rendering *r, fe_show show, uint32_t object)
{
    if (make_room(r, show, object) < 0)
        return -1;
    if (r->shown[show][object].data)
        return 0;
    PyObject *o = Py_NewRef(graph_object_at(r->g, object)), *text = render(r->g->state, show, o);
    int result = -1;
    if (text && !PyUnicode_Check(text))
        PyErr_Format(PyExc_TypeError, "the text of an argument of type %.200s is no str", Py_TYPE(o)->tp_name);
    else if (text)
        result = keep_text(r, show, object, text);
    Py_XDECREF(text);
    Py_DECREF(o);
    return result;
}

static int need_seq(rendering *r, const fe_seq *s, fe_text_form form);
static int need_dict(rendering *r, const fe_seq *s, fe_text_form form);

static int need_value(rendering *r, fe_value v, fe_text_form form)
{
    if (v.kind == FE_OBJECT)
        return need(r, fe_show_of(form), v.as.object);
    if (!fe_kind_is_seq(v.kind))
        return 0;
    if (form == FE_TEXT_STR || v.kind == FE_SLICE)
        form = FE_TEXT_REPR;
    return v.kind == FE_DICT ? need_dict(r, v.as.seq, form) : need_seq(r, v.as.seq, form);
}

static int need_seq(rendering *r, const fe_seq *s, fe_text_form form)
{
    if (s && s->type != FE_NONE_ID && form == FE_TEXT_REPR && need(r, FE_SHOW_FIELDS, s->type) < 0)
        return -1;
    for (uint32_t i = 0; s && i < s->len; i++) {
        if (need_value(r, s->items[i], form) < 0)
            return -1;
    }
    return 0;
}

/* A key of an argument is shown by its str. */
static int need_dict(rendering *r, const fe_seq *s, fe_text_form form)
{
    for (uint32_t i = 0; s && i + 1 < s->len; i += 2) {
        if (need_value(r, s->items[i], form == FE_TEXT_ARG ? FE_TEXT_STR : form) < 0 ||
            need_value(r, s->items[i + 1], form) < 0)
            return -1;
    }
    return 0;
}

/* What the line of a node needs (see fe_text_node). */
static int need_node(rendering *r, uint32_t id)
{
    const fe_node *n = &r->g->core->nodes[id];
    const fe_detail *d = &r->g->core->details[id];
    fe_text_form form = n->op == FE_OP_OUTPUT || n->op == FE_OP_PLACEHOLDER ? FE_TEXT_STR : FE_TEXT_ARG;

    if (d->type != FE_NONE_ID && need(r, FE_SHOW_TYPE, d->type) < 0)
        return -1;
    if (n->target != FE_NONE_ID && r->g->core->targets[n->target].object != FE_NONE_ID &&
        need(r, FE_SHOW_CALLABLE, r->g->core->targets[n->target].object) < 0)
        return -1;
    for (uint32_t i = 0; d->args && i < d->args->len; i++) {
        if (need_value(r, d->args->items[i], form) < 0)
            return -1;
    }
    return need_dict(r, d->kwargs, FE_TEXT_ARG);
}

void quote_string(void *ctx, const fe_string *s, fe_buffer *out)
{
    PyObject *str = string_to_python(s), *text = str ? PyObject_Repr(str) : NULL;
    Py_ssize_t len;
    const char *data = text ? PyUnicode_AsUTF8AndSize(text, &len) : NULL;

    (void)ctx;
    if (data)
        fe_buffer_add(out, data, (size_t)len);
    else
        out->failed = true;
    PyErr_Clear(); /* a failed buffer is out of memory, which is what happened */
    Py_XDECREF(text);
    Py_XDECREF(str);
}

static rendering *rendering_empty(GraphObject *g)
{
    rendering *r = PyMem_RawCalloc(1, sizeof *r);

    if (!r) {
        PyErr_NoMemory();
        return NULL;
    }
    if (!(r->kept = PyList_New(0))) { /* may let finalizers run, which change the graph */
        rendering_free(r);
        return NULL;
    }
    r->g = g;
    r->renderer = (fe_renderer){.quote = quote_string};
    return r;
}

static int need_values(rendering *r, const fe_seq *s, fe_text_form form)
{
    for (uint32_t i = 0; s && i < s->len; i++) {
        if (need_value(r, s->items[i], form) < 0)
            return -1;
    }
    return 0;
}

rendering *rendering_new(GraphObject *g, fe_text_form form, bool getitems_only)
{
    rendering *r = rendering_empty(g);

    graph_pin(g);
    for (uint32_t id = g->core->nodes[FE_ROOT].next; r && id != FE_ROOT; id = g->core->nodes[id].next) {
        const fe_target *target = &g->core->targets[g->core->nodes[id].target];
        const fe_detail *d = &g->core->details[id];
        if (getitems_only && !(target->flags & FE_TARGET_GETITEM))
            continue;
        if (need_values(r, d->args, form) < 0 || (!getitems_only && need_values(r, d->kwargs, form) < 0)) {
            rendering_free(r);
            r = NULL;
        }
    }
    graph_unpin(g);
    return r;
}

const fe_renderer *rendering_of(const rendering *r)
{
    return &r->renderer;
}

void rendering_free(rendering *r)
{
    if (!r)
        return;
    for (int i = 0; i < FE_SHOW_COUNT; i++)
        PyMem_RawFree(r->shown[i]);
    Py_XDECREF(r->kept);
    PyMem_RawFree(r);
}

static PyObject *decode(fe_buffer *text)
{
    PyObject *result =
        text->failed ? PyErr_NoMemory() : PyUnicode_DecodeUTF8(text->data, (Py_ssize_t)text->len, "surrogatepass");

    fe_buffer_clear(text);
    return result;
}

static int need_for(rendering *r, uint32_t id)
{
    const fe_graph *c = r->g->core;

    if (id != FE_ROOT)
        return need_node(r, id);
    for (id = c->nodes[FE_ROOT].next; id != FE_ROOT; id = c->nodes[id].next) {
        if (need_node(r, id) < 0)
            return -1;
    }
    return 0;
}

PyObject *text_of(GraphObject *g, uint32_t id)
{
    rendering *r = rendering_empty(g);
    PyObject *result = NULL;
    fe_buffer text;

    if (!r)
        return NULL;
    fe_node_forget(g->core, id);
    graph_pin(g);
    fe_buffer_init(&text, g->core->allocator);
    if (need_for(r, id) == 0) {
        if (id == FE_ROOT)
            fe_text_graph(g->core, &r->renderer, &text);
        else
            fe_text_node(g->core, &r->renderer, id, &text);
        result = decode(&text);
    }
    graph_unpin(g);
    rendering_free(r);
    graph_sweep(g);
    return result;
}
