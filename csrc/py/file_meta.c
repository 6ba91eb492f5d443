/* file_meta.c - the meta of a read graph as the file has it, in one go, for who makes something else of it than a Graph does.
 *
 * Nothing is decoded, and no node's meta is loaded: what waits in the document goes on waiting.
 */
#include "graph.h"

#include "loaded.h"

/* Strings of the metadata, or of an input without a value the input, made once for a producer and the getitems of its results, which stand together. */
typedef struct {
    yyjson_val *of;
    PyObject *strings;
} last_strings;

static PyObject *strings_of(last_strings *last, const pt2_graph *from, uint32_t id)
{
    const pt2_origin *o = &from->origins[id];
    yyjson_val *metadata = o->source == PT2_FROM_INPUT && !o->value ? o->json : origin_metadata(from, id);

    if (!metadata)
        return Py_NewRef(Py_None);
    if (last->of != metadata) {
        PyObject *strings = json_to_python(metadata);
        if (!strings)
            return NULL;
        Py_XSETREF(last->strings, strings);
        last->of = metadata;
    }
    return Py_NewRef(last->strings);
}

/* The ids of a producer's results, nested as they are; an inner list is (id of its getitem, [ids]). *next: the first of its
 * results that is not used up. */
static PyObject *results_of(const pt2_graph *from, uint32_t *next, yyjson_val *outputs)
{
    PyObject *list = PyList_New(0);
    yyjson_val *item, *value = NULL;
    size_t i, count;

    yyjson_arr_foreach(outputs, i, count, item)
    {
        PyObject *o = NULL;
        const char *tag = pt2_field(item, "name") ? "as_tensor" : pt2_tag(item, &value);
        uint32_t id = (*next)++;
        bool is_result = id < from->origin_count && from->origins[id].source == PT2_FROM_RESULT;
        if (!is_result || strcmp(tag, "as_none") == 0 || strcmp(tag, "as_tensor") == 0 || !yyjson_is_arr(value)) {
            o = is_result ? PyLong_FromUnsignedLong(id) : Py_NewRef(Py_None);
        } else {
            PyObject *inner = results_of(from, next, value);
            o = inner ? Py_BuildValue("(kN)", (unsigned long)id, inner) : NULL;
        }
        int appended = list && o ? PyList_Append(list, o) : -1;
        Py_XDECREF(o);
        if (appended < 0) {
            Py_XDECREF(list);
            return NULL;
        }
    }
    return list;
}

static PyObject *results_at(const pt2_graph *from, uint32_t id)
{
    const pt2_origin *o = &from->origins[id];
    yyjson_val *outputs, *inner;
    uint32_t next = id + 1;

    if (o->source == PT2_FROM_NODE && !yyjson_arr_size(pt2_field(o->json, "outputs")))
        return Py_NewRef(Py_False);
    if (o->source != PT2_FROM_NODE || o->value || next >= from->origin_count ||
        from->origins[next].source != PT2_FROM_RESULT || from->origins[next].json != o->json)
        return Py_NewRef(Py_None);
    outputs = pt2_field(o->json, "outputs");
    if (yyjson_arr_size(outputs) == 1 && !strcmp(pt2_tag(yyjson_arr_get_first(outputs), &inner), "as_tensors"))
        outputs = inner;
    return results_of(from, &next, outputs);
}

static PyObject *entry_at(const pt2_graph *from, last_strings *last, uint32_t id)
{
    const pt2_origin *o = &from->origins[id];
    PyObject *strings = strings_of(last, from, id), *value = strings ? origin_value(o) : NULL;
    PyObject *results = value ? results_at(from, id) : NULL;

    if (results)
        return Py_BuildValue("(iNNN)", (int)o->source, strings, value, results);
    Py_XDECREF(strings);
    Py_XDECREF(value);
    return NULL;
}

static PyObject *entries_of(const pt2_graph *from)
{
    PyObject *list = PyList_New((Py_ssize_t)from->origin_count);
    last_strings last = {NULL, NULL};

    for (uint32_t id = 0; list && id < from->origin_count; id++) {
        PyObject *entry = id ? entry_at(from, &last, id) : Py_NewRef(Py_None);
        if (!entry)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)id, entry);
    }
    Py_XDECREF(last.strings);
    return list;
}

/* Whether the document has a name for each node; for one without torch makes up another first, which stays taken. */
static bool all_named(const pt2_graph *from)
{
    for (uint32_t id = 1; id < from->origin_count; id++) {
        const pt2_origin *o = &from->origins[id];
        if (o->source == PT2_FROM_NODE && !yyjson_get_len(pt2_field(o->json, "name")))
            return false;
    }
    return true;
}

/* For each node in order its place in the entries, negative when its own meta counts, 0 when it is not of the file. */
static PyObject *places_of(const GraphObject *g)
{
    const loaded *l = g->loaded;
    PyObject *list = PyList_New(0);

    for (uint32_t id = g->core->nodes[FE_ROOT].next; list && id != FE_ROOT; id = g->core->nodes[id].next) {
        bool known = id < l->count && l->origins[id].source != PT2_FROM_NOTHING;
        long place = !known ? 0 : l->file_ids ? (long)l->file_ids[id] : (long)id;
        PyObject *number = PyLong_FromLong(graph_is_untouched(g, id) ? place : -place);
        if (!number || PyList_Append(list, number) < 0)
            Py_CLEAR(list);
        Py_XDECREF(number);
    }
    return list;
}

const char file_meta_doc[] =
    "_file_meta($self, /)\n--\n\n"
    "What the file that the graph was read from has as the meta of its nodes: (places, entries, named). Of each node "
    "in\n"
    "order its place in the entries, negative when its meta was looked at or set since, 0 when it is not of the file;\n"
    "the entries are tuples (source, strings, value, results); and whether the file has a name for each node.\n"
    "None when the graph was read from no file.";

PyObject *Graph_file_meta(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    GraphObject *g = (GraphObject *)self;
    PyObject *places, *entries;
    bool named;

    if (graph_readable(g) < 0)
        return NULL;
    if (!g->loaded)
        Py_RETURN_NONE;
    graph_pin(g);
    places = places_of(g);
    entries = places ? entries_of(g->loaded->from) : NULL;
    named = all_named(g->loaded->from);
    graph_unpin(g);
    if (entries)
        return Py_BuildValue("(NNN)", places, entries, PyBool_FromLong(named));
    Py_XDECREF(places);
    return NULL;
}
