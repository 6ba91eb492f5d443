/* levels.c - what a picture asks of each node of a graph, in one go: a digest of its call, its operands, its module and
 * its value.
 *
 * Meta that still waits in the document stays there: its texts are read as they stand, which costs a tenth of decoding
 * it.
 */
#include "loaded.h"

/* A text as str; one that comes again node after node, as modules of nodes do, is made once: dict text -> the same. */
static PyObject *pooled(PyObject *texts, const char *data, size_t len)
{
    PyObject *text = PyUnicode_DecodeUTF8(data, (Py_ssize_t)len, NULL), *known;

    if (!text || !texts)
        return text;
    known = PyDict_SetDefault(texts, text, text);
    Py_XINCREF(known);
    Py_DECREF(text);
    return known;
}

/* The same call has the same digest: target, literals and the shape of the arguments; which nodes they name does not
 * count, nor does the path of a module. */
static uint64_t digest_of(const fe_graph *c, uint32_t id, const uint32_t *alias)
{
    const fe_detail *d = &c->details[id];
    fe_value args = {.kind = FE_TUPLE, .as.seq = d->args}, kwargs = {.kind = FE_DICT, .as.seq = d->kwargs};
    uint64_t digest = c->nodes[id].op == FE_OP_CALL_MODULE ? 0 : fe_mix(c->nodes[id].target + UINT64_C(1));

    digest = fe_mix(digest ^ (d->args ? fe_value_hash(args, alias) : 1));
    return fe_mix(digest + (d->kwargs ? fe_value_hash(kwargs, alias) : 2));
}

static PyObject *operands_of(const fe_graph *c, uint32_t id, const uint32_t *places)
{
    const fe_node *n = &c->nodes[id];
    PyObject *operands = PyTuple_New((Py_ssize_t)n->edge_count);

    for (uint32_t i = 0; operands && i < n->edge_count; i++) {
        PyObject *place = PyLong_FromUnsignedLong(places[c->edges[n->edge + i].def]);
        if (!place)
            Py_CLEAR(operands);
        else
            PyTuple_SET_ITEM(operands, (Py_ssize_t)i, place);
    }
    return operands;
}

PyObject *metadata_in_file(const GraphObject *g, uint32_t id, const char *key, PyObject *texts)
{
    const loaded *l = g->loaded;

    if (!graph_is_untouched(g, id))
        Py_RETURN_FALSE;
    yyjson_val *strings = origin_metadata(l->from, l->file_ids ? l->file_ids[id] : id);
    yyjson_val *text = strings ? pt2_field(strings, key) : NULL;
    return yyjson_is_str(text) ? pooled(texts, yyjson_get_str(text), yyjson_get_len(text)) : Py_NewRef(Py_None);
}

/* Numbers as they stand, expressions too; what else a size may be is left to who decodes the meta. */
static bool write_sizes(yyjson_val *sizes, fe_buffer *b)
{
    yyjson_val *size;
    size_t i, count;

    yyjson_arr_foreach(sizes, i, count, size)
    {
        yyjson_val *number = pt2_field(size, "as_int");
        yyjson_val *expr = number ? NULL : pt2_field(pt2_field(size, "as_expr"), "expr_str");
        fe_buffer_text(b, i ? ", " : "");
        if (yyjson_is_raw(number))
            fe_buffer_add(b, yyjson_get_raw(number), yyjson_get_len(number));
        else if (yyjson_is_str(expr))
            fe_buffer_add(b, yyjson_get_str(expr), yyjson_get_len(expr));
        else
            return false;
    }
    return true;
}

PyObject *value_in_file(const GraphObject *g, uint32_t id, PyObject *texts)
{
    if (!graph_is_untouched(g, id))
        Py_RETURN_FALSE;
    const pt2_origin *o = &g->loaded->origins[id];
    yyjson_val *dtype = o->value ? pt2_field(o->value, "dtype") : NULL;
    yyjson_val *sizes = dtype ? pt2_field(o->value, "sizes") : NULL;
    PyObject *text = NULL;
    fe_buffer b;

    if (!o->value)
        return Py_NewRef(Py_None);
    if (!yyjson_is_raw(dtype) || !yyjson_is_arr(sizes))
        Py_RETURN_FALSE;
    fe_buffer_init(&b, g->core->allocator);
    fe_buffer_add(&b, yyjson_get_raw(dtype), yyjson_get_len(dtype));
    fe_buffer_char(&b, '[');
    bool known = write_sizes(sizes, &b);
    fe_buffer_char(&b, ']');
    if (b.failed)
        PyErr_NoMemory();
    else
        text = known ? pooled(texts, b.data, b.len) : Py_NewRef(Py_False);
    fe_buffer_clear(&b);
    return text;
}

static PyObject *facts_at(GraphObject *g, uint32_t id, const uint32_t *places, const uint32_t *alias, PyObject *texts)
{
    PyObject *operands = operands_of(g->core, id, places);
    PyObject *stack = operands ? metadata_in_file(g, id, "nn_module_stack", texts) : NULL;
    PyObject *value = stack ? value_in_file(g, id, texts) : NULL;

    if (value)
        return Py_BuildValue("(KNNN)", (unsigned long long)digest_of(g->core, id, alias), operands, stack, value);
    Py_XDECREF(operands);
    Py_XDECREF(stack);
    return NULL;
}

/* The graph is pinned. */
static PyObject *all_facts(GraphObject *g, uint32_t *places, const uint32_t *alias, PyObject *texts)
{
    const fe_graph *c = g->core;
    PyObject *list = PyList_New((Py_ssize_t)c->live);
    uint32_t place = 0;

    for (uint32_t id = c->nodes[FE_ROOT].next; list && id != FE_ROOT; id = c->nodes[id].next)
        places[id] = place++;
    place = 0;
    for (uint32_t id = c->nodes[FE_ROOT].next; list && id != FE_ROOT; id = c->nodes[id].next) {
        PyObject *facts = facts_at(g, id, places, alias, texts);
        if (!facts)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)place++, facts);
    }
    return list;
}

PyDoc_STRVAR(level_facts_doc,
             "level_facts(graph, /)\n--\n\n"
             "For each node of a graph in order a tuple (digest, operands, stack, value). Calls that differ in\n"
             "nothing but the nodes they name have equal digests; operands are places in the list. stack is\n"
             "nn_module_stack as a file has it, value a tensor as CODE[SIZES]; None: there is none, False: look at\n"
             "the node's meta.");

static PyObject *level_facts(PyObject *m, PyObject *o)
{
    GraphObject *g = (GraphObject *)o;
    PyObject *list = NULL;

    if (!PyObject_TypeCheck(o, state_of(m)->graph_type))
        return PyErr_Format(PyExc_TypeError, "level_facts() takes a Graph of fastexport, not %R", Py_TYPE(o));
    if (graph_readable(g) < 0)
        return NULL;
    uint32_t *places = PyMem_RawCalloc(g->core->node_count, sizeof *places),
             *alias = PyMem_RawCalloc(g->core->node_count, sizeof *alias);
    PyObject *texts = PyDict_New();
    graph_pin(g);
    if (!places || !alias)
        PyErr_NoMemory();
    else if (texts)
        list = all_facts(g, places, alias, texts);
    graph_unpin(g);
    PyMem_RawFree(places);
    PyMem_RawFree(alias);
    Py_XDECREF(texts);
    return list;
}

PyMethodDef level_functions[] = {
    {"level_facts", level_facts, METH_O, level_facts_doc},
    {NULL, NULL, 0, NULL},
};
