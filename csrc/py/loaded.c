/* loaded.c - what ties a Graph to the file it was read from: the origins of its nodes, and meta that waits there.
 *
 * Most nodes of a program are never asked for their meta, and decoding it costs more than all the rest. So a node read
 * from a file starts with a bit in `waiting`; the first look at its meta decodes that part of the document, in Python, and
 * clears the bit. Whoever reads fe_detail.meta goes through graph_load_meta first. A node whose bit is cleared may have
 * been changed: when the program is written its meta is encoded again.
 */
#include "loaded.h"

static bool is_waiting(const loaded *l, uint32_t id)
{
    return id < l->count && l->waiting[id / 8] >> (id % 8) & 1;
}

static void set_waiting(loaded *l, uint32_t id, bool on)
{
    uint8_t bit = (uint8_t)(1u << (id % 8));

    l->waiting[id / 8] = (uint8_t)(on ? l->waiting[id / 8] | bit : l->waiting[id / 8] & ~bit);
}

/* ---- life ---- */

static loaded *loaded_new(ProgramObject *program, const pt2_graph *from, uint32_t count)
{
    loaded *l = PyMem_RawCalloc(1, sizeof *l);

    if (l) {
        l->origins = PyMem_RawCalloc((size_t)count + 1, sizeof *l->origins);
        l->waiting = PyMem_RawCalloc((size_t)count / 8 + 1, 1);
    }
    if (!l || !l->origins || !l->waiting) {
        if (l) {
            PyMem_RawFree(l->origins);
            PyMem_RawFree(l->waiting);
        }
        PyMem_RawFree(l);
        PyErr_NoMemory();
        return NULL;
    }
    l->program = (ProgramObject *)Py_NewRef(program);
    l->from = from;
    l->count = count;
    return l;
}

void loaded_free(loaded *l)
{
    if (!l)
        return;
    PyMem_RawFree(l->origins);
    PyMem_RawFree(l->file_ids);
    PyMem_RawFree(l->waiting);
    Py_DECREF(l->program);
    PyMem_RawFree(l);
}

/* The id that the reader gave a node. */
static uint32_t file_id(const loaded *l, uint32_t id)
{
    return l->file_ids ? l->file_ids[id] : id;
}

int loaded_traverse(const loaded *l, visitproc visit, void *arg)
{
    if (l)
        Py_VISIT(l->program);
    return 0;
}

int loaded_copy(GraphObject *copy, const GraphObject *from, const uint32_t *node_map)
{
    const loaded *old = from->loaded;
    loaded *l = loaded_new(old->program, old->from, copy->core->node_count);
    fe_error err;

    if (!l)
        return -1;
    l->file_ids = PyMem_RawCalloc((size_t)l->count + 1, sizeof *l->file_ids);
    if (!l->file_ids) {
        loaded_free(l);
        PyErr_NoMemory();
        return -1;
    }
    for (uint32_t id = 1; id < old->count; id++) {
        if (node_map[id] == FE_NONE_ID)
            continue;
        pt2_origin *o = &l->origins[node_map[id]];
        *o = old->origins[id];
        if (o->name && !(o->name = fe_string_get(copy->core, o->name->data, o->name->len, &err))) {
            loaded_free(l);
            return fail_core(from->state, &err);
        }
        l->file_ids[node_map[id]] = file_id(old, id);
        set_waiting(l, node_map[id], is_waiting(old, id));
    }
    if (old->version == from->core->version)
        l->version = copy->core->version; /* neither was changed since it was read */
    copy->loaded = l;
    return 0;
}

/* ---- from the reader's graph to a Graph ---- */

static PyObject *object_of(module_state *st, PyObject *cache, const pt2_object *o)
{
    PyObject *key = Py_BuildValue("(iiz)", (int)o->kind, (int)o->code, o->text), *object = NULL;

    if (key && (object = PyDict_GetItemWithError(cache, key)))
        Py_INCREF(object);
    else if (key && !PyErr_Occurred()) {
        object = PyObject_CallObject(st->make_object, key);
        if (object && PyDict_SetItem(cache, key, object) < 0)
            Py_CLEAR(object);
    }
    Py_XDECREF(key);
    return object;
}

/* The objects of a graph by index, new references, in a tuple. */
static PyObject *objects_of(module_state *st, PyObject *cache, const pt2_graph *from)
{
    PyObject *objects = PyTuple_New((Py_ssize_t)from->object_count);

    for (uint32_t i = 0; objects && i < from->object_count; i++) {
        PyObject *object = object_of(st, cache, &from->objects[i]);
        if (!object)
            Py_CLEAR(objects);
        else
            PyTuple_SET_ITEM(objects, (Py_ssize_t)i, object);
    }
    return objects;
}

/* Whether it is an input that stands for a number, a string or None. */
static bool is_constant(const pt2_origin *o)
{
    static const char *const tags[] = {"as_int", "as_float", "as_bool", "as_string", "as_none"};
    yyjson_val *value;
    const char *tag = o->source == PT2_FROM_INPUT && !o->value ? pt2_tag(o->json, &value) : NULL;

    for (size_t i = 0; tag && i < sizeof tags / sizeof *tags; i++) {
        if (strcmp(tags[i], tag) == 0)
            return true;
    }
    return false;
}

static bool has_meta(const pt2_origin *o)
{
    return o->source == PT2_FROM_NODE || o->source == PT2_FROM_RESULT || o->source == PT2_FROM_GRAPH || o->value ||
           is_constant(o);
}

int graph_adopt(GraphObject *g, ProgramObject *program, pt2_graph *from, PyObject *cache)
{
    PyObject *objects = objects_of(g->state, cache, from);
    loaded *l = objects ? loaded_new(program, from, from->origin_count) : NULL;

    if (!l || g->loaded || g->core->node_count != 1 || graph_editable(g) < 0 || graph_set_objects(g, objects) < 0) {
        Py_XDECREF(objects);
        loaded_free(l);
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "a program is read into a new, empty Graph");
        return -1;
    }
    Py_DECREF(objects);
    memcpy(l->origins, from->origins, from->origin_count * sizeof *l->origins);
    for (uint32_t id = 1; id < l->count; id++)
        set_waiting(l, id, has_meta(&l->origins[id]));
    fe_graph_free(g->core);
    g->core = from->core;
    from->core = NULL;
    g->loaded = l;
    l->version = g->core->version;
    return 0;
}

/* ---- meta ---- */

PyObject *origin_value(const pt2_origin *o)
{
    PyObject *value = o->value ? json_to_python(o->value) : NULL;

    if (!o->value)
        Py_RETURN_NONE;
    return value ? Py_BuildValue("(iN)", (int)o->value_kind, value) : NULL;
}

/* As torch.export.load has it, the value of a constant is what it stands for. */
static PyObject *constant_value(const pt2_origin *o)
{
    yyjson_val *value;
    const char *tag = pt2_tag(o->json, &value);
    PyObject *json = json_to_python(value);

    return json ? Py_BuildValue("(sN)", tag, json) : NULL;
}

/* A subgraph has no metadata in a file. As in torch its get_attr has that of the call that takes it as an argument. */
yyjson_val *origin_metadata(const pt2_graph *from, uint32_t id)
{
    const pt2_origin *o = &from->origins[id];

    if (o->source == PT2_FROM_GRAPH)
        return o->call ? pt2_field(from->origins[o->call].json, "metadata") : NULL;
    return o->source == PT2_FROM_INPUT ? NULL : pt2_field(o->json, "metadata");
}

/* The values of a producer's results, nested as they are. *next: the first of its results that is not used up, by the ids that
 * the reader gave, as edits and copies let results go and put other nodes between them. */
static PyObject *values_of(const pt2_graph *from, uint32_t *next, yyjson_val *outputs)
{
    PyObject *list = PyList_New(0);
    yyjson_val *item, *value = NULL;
    size_t i, count;

    yyjson_arr_foreach(outputs, i, count, item)
    {
        PyObject *o = NULL;
        const char *tag = pt2_field(item, "name") ? "as_tensor" : pt2_tag(item, &value);
        const pt2_origin *result = *next < from->origin_count ? &from->origins[*next] : NULL;
        if (strcmp(tag, "as_none") == 0 || !result || result->source != PT2_FROM_RESULT) {
            o = Py_NewRef(Py_None);
            ++*next;
        } else if (yyjson_is_arr(value) && strcmp(tag, "as_tensor") != 0) {
            ++*next; /* the getitem that gives the list */
            o = values_of(from, next, value);
        } else {
            o = origin_value(result);
            ++*next;
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

static PyObject *value_at(const loaded *l, uint32_t id)
{
    const pt2_origin *o = &l->origins[id];
    const pt2_graph *from = l->from;
    yyjson_val *outputs, *inner;
    uint32_t next = file_id(l, id) + 1;

    if (o->value)
        return origin_value(o);
    if (is_constant(o))
        return constant_value(o);
    if (o->source != PT2_FROM_NODE || next >= from->origin_count || from->origins[next].source != PT2_FROM_RESULT ||
        from->origins[next].json != o->json)
        Py_RETURN_NONE;
    outputs = pt2_field(o->json, "outputs");
    if (yyjson_arr_size(outputs) == 1 && !strcmp(pt2_tag(yyjson_arr_get_first(outputs), &inner), "as_tensors"))
        outputs = inner;
    return values_of(from, &next, outputs);
}

static PyObject *decode(GraphObject *g, uint32_t id)
{
    const loaded *l = g->loaded;
    yyjson_val *metadata = origin_metadata(l->from, file_id(l, id));
    PyObject *strings = metadata ? json_to_python(metadata) : PyDict_New();
    PyObject *value = strings ? value_at(l, id) : NULL, *meta = NULL;

    if (value)
        meta = PyObject_CallFunctionObjArgs(g->state->decode_meta, strings, value, NULL);
    Py_XDECREF(strings);
    Py_XDECREF(value);
    return meta;
}

PyObject *graph_meta_in_file(GraphObject *g, uint32_t id)
{
    const loaded *l = g->loaded;

    return l && id < l->count && l->origins[id].source != PT2_FROM_NOTHING ? decode(g, id) : NULL;
}

static int add_renamed(GraphObject *g, uint32_t id, PyObject *names)
{
    const fe_string *old = g->loaded->origins[id].name, *now = g->core->details[id].name;
    bool is_gone = !fe_node_is_listed(g->core, id);

    if (!old || (old == now && !is_gone))
        return 0;
    PyObject *from = string_to_python(old), *to = is_gone ? Py_NewRef(Py_None) : string_to_python(now);
    int result = from && to ? PyDict_SetItem(names, from, to) : -1;
    Py_XDECREF(from);
    Py_XDECREF(to);
    return result;
}

PyObject *graph_renamed(GraphObject *g)
{
    PyObject *names = PyDict_New();
    int result = names ? 0 : -1;

    graph_pin(g);
    for (uint32_t id = 1; result == 0 && g->loaded && id < g->loaded->count; id++)
        result = add_renamed(g, id, names);
    graph_unpin(g);
    if (result < 0)
        Py_CLEAR(names);
    return names;
}

int graph_load_meta_of(GraphObject *g, uint32_t id)
{
    loaded *l = g->loaded;
    PyObject *meta, *node;

    if (!is_waiting(l, id))
        return 0;
    if (graph_editable(g) < 0 || !(meta = decode(g, id)))
        return -1;
    int result = 0;
    if (is_waiting(l, id)) { /* decoding ran Python code, which may have asked too */
        set_waiting(l, id, false);
        node = graph_node(g, id);
        result = node ? meta_assign((NodeObject *)node, meta) : -1;
        Py_XDECREF(node);
        if (result < 0)
            set_waiting(l, id, true);
    }
    Py_DECREF(meta);
    return result;
}

int graph_load_all_meta(GraphObject *g)
{
    for (uint32_t id = 1; g->loaded && id < g->loaded->count; id++) {
        if (graph_load_meta_of(g, id) < 0)
            return -1;
    }
    return 0;
}

void graph_skip_meta(GraphObject *g, uint32_t id)
{
    if (g->loaded && is_waiting(g->loaded, id))
        set_waiting(g->loaded, id, false);
}

bool graph_is_untouched(const GraphObject *g, uint32_t id)
{
    const loaded *l = g->loaded;

    if (!l || id >= l->count || l->origins[id].source == PT2_FROM_NOTHING)
        return false;
    const fe_meta *m = g->core->details[id].meta;
    return is_waiting(l, id) || (!has_meta(&l->origins[id]) && (!m || !m->len));
}
