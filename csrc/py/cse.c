/* cse.c - common subexpressions, as a method of Graph.
 *
 * What only Python knows is asked for first: facts about targets, and which objects are equal.
 */
#include "judge.h"

/* ---- equal objects ---- */

typedef struct {
    GraphObject *g;
    PyObject *types;   /* tuple: what is hashed and compared by value, without surprises */
    PyObject *numbers; /* dict: object -> class */
    uint32_t *classes; /* by object */
} classifier;

static bool is_plain(const classifier *c, const PyObject *object)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(c->types); i++) {
        if ((PyObject *)Py_TYPE(object) == PyTuple_GET_ITEM(c->types, i))
            return true;
    }
    return false;
}

/* Equal objects have the number of the first of them. */
static int classify(const classifier *c, uint32_t index)
{
    PyObject *object = graph_object_at(c->g, index);

    if (!is_plain(c, object))
        return 0;
    PyObject *number = PyLong_FromUnsignedLong(index);
    PyObject *found = number ? PyDict_SetDefault(c->numbers, object, number) : NULL;
    if (found)
        c->classes[index] = (uint32_t)PyLong_AsUnsignedLong(found);
    Py_XDECREF(number);
    return found ? 0 : -1;
}

static int classify_value(const classifier *c, fe_value v)
{
    if (v.kind == FE_OBJECT)
        return classify(c, v.as.object);
    for (uint32_t i = 0; fe_kind_is_seq(v.kind) && i < v.as.seq->len; i++) {
        if (classify_value(c, v.as.seq->items[i]) < 0)
            return -1;
    }
    return 0;
}

static int classify_seq(const classifier *c, const fe_seq *s)
{
    for (uint32_t i = 0; s && i < s->len; i++) {
        if (classify_value(c, s->items[i]) < 0)
            return -1;
    }
    return 0;
}

/* The classes of all objects in arguments: memory for the caller to free, or NULL with an exception. */
static uint32_t *classify_objects(GraphObject *g, PyObject *types)
{
    const fe_graph *core = g->core;
    classifier c = {.g = g, .types = types, .numbers = PyDict_New()};
    int result = c.numbers ? 0 : -1;

    c.classes = PyMem_New(uint32_t, (size_t)core->object_count + 1);
    if (!c.classes) {
        PyErr_NoMemory();
        result = -1;
    }
    for (uint32_t i = 0; result == 0 && i < core->object_count; i++)
        c.classes[i] = i;
    graph_pin(g);
    for (uint32_t id = core->nodes[FE_ROOT].next; result == 0 && id != FE_ROOT; id = core->nodes[id].next) {
        if ((result = classify_seq(&c, core->details[id].args)) == 0)
            result = classify_seq(&c, core->details[id].kwargs);
    }
    graph_unpin(g);
    Py_XDECREF(c.numbers);
    if (result == 0)
        return c.classes;
    PyMem_Free(c.classes);
    return NULL;
}

/* ---- common subexpressions ---- */

typedef struct {
    GraphObject *g;
    fe_cse_options o;
    judged judged;
    uint32_t *classes;
    uint8_t *apart;
    fe_report found;
} cse;

static int find(cse *c)
{
    fe_error err;

    c->found.len = 0;
    return fe_find_common_subexpressions(c->g->core, &c->o, &c->found, &err) < 0 ? fail_core(c->g->state, &err) : 0;
}

/* Nodes that bring new symbols into the graph are each their own, however equal: 1 when there are any among what was found. */
static int mark_binding_nodes(cse *c, uint32_t key)
{
    int marked = 0;

    for (uint32_t i = 0; i < c->found.len; i++) {
        uint32_t id = c->found.items[i].node;
        if (graph_load_meta(c->g, id) < 0)
            return -1;
        if (fe_meta_get(c->g->core->details[id].meta, key) != FE_NONE_ID) {
            c->apart[id] = 1;
            marked = 1;
        }
    }
    return marked;
}

static int find_unbound(cse *c)
{
    uint64_t version = c->g->core->version;
    PyObject *name = PyUnicode_InternFromString("unbacked_bindings");
    uint32_t key;
    int again = name ? graph_meta_key(c->g, name, true, &key) : -1;

    Py_XDECREF(name);
    c->o.apart = c->apart = again < 0 ? NULL : PyMem_Calloc(c->g->core->node_count, 1);
    if (again == 0 && !c->apart) {
        PyErr_NoMemory();
        again = -1;
    }
    if (again == 0)
        again = find(c);
    while (again == 0 && (again = mark_binding_nodes(c, key)) == 1)
        again = judge_check(c->g, version) < 0 ? -1 : find(c);
    return again < 0 ? -1 : judge_check(c->g, version);
}

/* A list of (name, name of the one before, what is said of it). */
static PyObject *cse_reasons(const cse *c)
{
    const fe_graph *core = c->g->core;
    PyObject *list = PyList_New(0);

    for (uint32_t i = 0; list && i < c->found.len; i++) {
        fe_record r = c->found.items[i];
        PyObject *row =
            Py_BuildValue("NNs", string_to_python(core->details[r.node].name),
                          string_to_python(core->details[r.other].name), fe_cse_reason_text((fe_cse_reason)r.code));
        if (!row || PyList_Append(list, row) < 0)
            Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

static void keep_code(fe_report *r, uint8_t code)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < r->len; i++) {
        if (r->items[i].code == code)
            r->items[count++] = r->items[i];
    }
    r->len = count;
}

static PyObject *merge(cse *c, PyObject *notes)
{
    PyObject *reasons = c->o.all ? cse_reasons(c) : Py_NewRef(Py_None), *result = NULL;

    keep_code(&c->found, FE_CSE_EQUAL);
    if (reasons && graph_merge_found(c->g, notes == Py_None ? NULL : notes, &c->found) == 0)
        result = Py_BuildValue("NNO", report_ids(&c->found, false), report_ids(&c->found, true), reasons);
    Py_XDECREF(reasons);
    return result;
}

/* Facts, which take time, matter only where there are equal calls: 1, 0 when there are none, or -1. */
static int prepare(cse *c, PyObject *judge, PyObject *types, bool fx_policy)
{
    c->o = (fe_cse_options){.fx_policy = fx_policy, .ignore_effects = true};
    if (!(c->classes = classify_objects(c->g, types)) || graph_editable(c->g) < 0)
        return -1;
    c->o.objects = c->classes;
    if (find(c) < 0)
        return -1;
    if (!c->found.len)
        return 0;
    uint64_t version = c->g->core->version;
    if ((!fx_policy && graph_refresh_facts(c->g) < 0) || judge_targets(c->g, judge, true, &c->judged) < 0)
        return -1;
    c->o.facts = c->judged.facts;
    c->o.ignore_effects = false;
    return judge_check(c->g, version) < 0 ? -1 : 1;
}

const char eliminate_common_subexpressions_doc[] =
    "_eliminate_common_subexpressions($self, judge, types, fx_policy, is_inner, explain, notes, /)\n--\n\n"
    "Let the first of equal calls stand for all. judge tells the memory facts of (op, target); objects of types, a "
    "tuple, are\n"
    "equal as they compare. Returns (ids of the removed nodes, ids of those in their places, list of (name, earlier "
    "name, text)\n"
    "or None). is_inner: the graph is one that others run. notes is as for _eliminate_getitems.";

PyObject *Graph_eliminate_common_subexpressions(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    cse c = {.g = (GraphObject *)self};
    PyObject *result = NULL;
    int fx_policy, is_inner, explain;

    if (nargs != 6 || !PyTuple_Check(args[1]))
        return PyErr_Format(PyExc_TypeError, "_eliminate_common_subexpressions() takes exactly 6 arguments");
    if ((fx_policy = PyObject_IsTrue(args[2])) < 0 || (is_inner = PyObject_IsTrue(args[3])) < 0 ||
        (explain = PyObject_IsTrue(args[4])) < 0 || graph_editable(c.g) < 0)
        return NULL;
    fe_report_init(&c.found, &fe_python_allocator);
    int any = prepare(&c, args[0], args[1], fx_policy);
    c.o.all = explain;
    c.o.is_inner = is_inner;
    if (any == 0)
        result = Py_BuildValue("yyN", "", "", explain ? PyList_New(0) : Py_NewRef(Py_None));
    else if (any > 0 && (fx_policy ? find(&c) : find_unbound(&c)) == 0)
        result = merge(&c, args[5]);
    judged_clear(&c.judged);
    PyMem_Free(c.classes);
    PyMem_Free(c.apart);
    fe_report_clear(&c.found);
    graph_sweep(c.g);
    return result;
}
