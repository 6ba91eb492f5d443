/* simplify.c - the passes of simplify.h as methods of Graph.
 *
 * What only Python knows is asked for first: facts about targets, which objects are equal, what meta says of two nodes. The graph
 * is pinned meanwhile, or its version is compared after, so that what was found is so when it is acted upon.
 */
#include "module.h"
#include "simplify.h"

#define NOOP_SHIFT 32 /* of what a judge answers: above the fe_memory_fact bits stands an fe_noop */

/* ---- what Python knows ---- */

typedef struct {
    uint32_t *facts; /* by target */
    uint8_t *noops;  /* by target: fe_noop */
} judged;

static void judged_clear(judged *j)
{
    PyMem_Free(j->facts);
    PyMem_Free(j->noops);
}

static int judge_target(GraphObject *g, PyObject *function, uint32_t index, judged *out)
{
    uint8_t op = g->core->targets[index].op;
    PyObject *object = op < FE_OP_ROOT && g->core->targets[index].count ? graph_target_object(g, index) : NULL;

    if (!object)
        return PyErr_Occurred() ? -1 : 0;
    PyObject *args[] = {g->state->op_names[op], object}, *answer = PyObject_Vectorcall(function, args, 2, NULL);
    unsigned long long bits = answer ? PyLong_AsUnsignedLongLong(answer) : 0;
    Py_DECREF(object);
    Py_XDECREF(answer);
    if (PyErr_Occurred())
        return -1;
    out->facts[index] = (uint32_t)bits;
    out->noops[index] = (uint8_t)(bits >> NOOP_SHIFT) < FE_NOOP_COUNT ? (uint8_t)(bits >> NOOP_SHIFT) : FE_NOOP_NONE;
    return 0;
}

/* Ask a function, (op, target) -> bits, about every target. */
static int judge_targets(GraphObject *g, PyObject *function, judged *out)
{
    uint32_t count = g->core->target_count;
    int result = 0;

    out->facts = PyMem_Calloc((size_t)count + 1, sizeof *out->facts);
    out->noops = PyMem_Calloc((size_t)count + 1, sizeof *out->noops);
    if (!out->facts || !out->noops) {
        PyErr_NoMemory();
        return -1;
    }
    graph_pin(g);
    for (uint32_t i = 0; result == 0 && i < count; i++)
        result = judge_target(g, function, i, out);
    graph_unpin(g);
    return result;
}

/* The function must have left the structure of the graph as it was. */
static int check_version(GraphObject *g, uint64_t version)
{
    if (graph_editable(g) < 0)
        return -1;
    if (g->core->version == version)
        return 0;
    PyErr_SetString(g->state->error, "the graph was changed while a pass was looking at it");
    return -1;
}

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
        again = check_version(c->g, version) < 0 ? -1 : find(c);
    return again < 0 ? -1 : check_version(c->g, version);
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
    if ((!fx_policy && graph_refresh_facts(c->g) < 0) || judge_targets(c->g, judge, &c->judged) < 0)
        return -1;
    c->o.facts = c->judged.facts;
    c->o.ignore_effects = false;
    return check_version(c->g, version) < 0 ? -1 : 1;
}

const char eliminate_common_subexpressions_doc[] =
    "_eliminate_common_subexpressions($self, judge, types, fx_policy, explain, notes, /)\n--\n\n"
    "Let the first of equal calls stand for all. judge tells the memory facts of (op, target); objects of types, a "
    "tuple, are\n"
    "equal as they compare. Returns (ids of the removed nodes, ids of those in their places, list of (name, earlier "
    "name, text)\n"
    "or None). notes is as for _eliminate_getitems.";

PyObject *Graph_eliminate_common_subexpressions(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    cse c = {.g = (GraphObject *)self};
    PyObject *result = NULL;
    int fx_policy, explain;

    if (nargs != 5 || !PyTuple_Check(args[1]))
        return PyErr_Format(PyExc_TypeError, "_eliminate_common_subexpressions() takes exactly 5 arguments");
    if ((fx_policy = PyObject_IsTrue(args[2])) < 0 || (explain = PyObject_IsTrue(args[3])) < 0 ||
        graph_editable(c.g) < 0)
        return NULL;
    fe_report_init(&c.found, &fe_python_allocator);
    int any = prepare(&c, args[0], args[1], fx_policy);
    c.o.all = explain;
    if (any == 0)
        result = Py_BuildValue("yyN", "", "", explain ? PyList_New(0) : Py_NewRef(Py_None));
    else if (any > 0 && (fx_policy ? find(&c) : find_unbound(&c)) == 0)
        result = merge(&c, args[4]);
    judged_clear(&c.judged);
    PyMem_Free(c.classes);
    PyMem_Free(c.apart);
    fe_report_clear(&c.found);
    graph_sweep(c.g);
    return result;
}

/* ---- constants ---- */

const char find_constants_doc[] =
    "_find_constants($self, judge, known, /)\n--\n\n"
    "Which nodes have the same value at each run, when those that known, bytes of ids, names do; None: all attributes, "
    "and all\n"
    "inputs that no caller gives. Returns the ids of what can be computed, in order, of those of them that something "
    "else needs,\n"
    "and of the known nodes that they are computed from, as bytes.";

static bool is_held(const fe_spec *spec)
{
    return spec->kind == FE_INPUT_PARAMETER || spec->kind == FE_INPUT_BUFFER || spec->kind == FE_INPUT_CONSTANT_TENSOR;
}

/* Mark all nodes whose values may be there without a run. */
static void mark_leaves(const fe_graph *core, uint8_t *nodes)
{
    const fe_signature *s = core->signature;

    for (uint32_t i = 0; s && i < s->input_count; i++) {
        if (is_held(&s->inputs[i]) && s->inputs[i].node != FE_NONE_ID)
            nodes[s->inputs[i].node] = FE_FOLD_KNOWN;
    }
    for (uint32_t id = core->nodes[FE_ROOT].next; id != FE_ROOT; id = core->nodes[id].next) {
        if (core->nodes[id].op == FE_OP_GET_ATTR)
            nodes[id] = FE_FOLD_KNOWN;
    }
}

static int mark_known(const GraphObject *g, PyObject *known, uint8_t *nodes)
{
    Py_ssize_t count = PyBytes_GET_SIZE(known) / (Py_ssize_t)sizeof(uint32_t);

    for (Py_ssize_t i = 0; i < count; i++) {
        uint32_t id;
        memcpy(&id, PyBytes_AS_STRING(known) + i * (Py_ssize_t)sizeof id, sizeof id);
        if (!fe_node_is_listed(g->core, id)) {
            PyErr_Format(PyExc_ValueError, "no node has id %u", id);
            return -1;
        }
        nodes[id] = FE_FOLD_KNOWN;
    }
    return 0;
}

/* Keep the marks of known nodes that something is computed from. */
static void unmark_idle(const fe_graph *core, uint8_t *nodes)
{
    for (uint32_t id = core->nodes[FE_ROOT].next; id != FE_ROOT; id = core->nodes[id].next) {
        bool is_used = false;
        if (!(nodes[id] & FE_FOLD_KNOWN))
            continue;
        for (uint32_t e = core->details[id].first_user; !is_used && e != FE_NONE_ID; e = core->edges[e].next)
            is_used = nodes[core->edges[e].user] & FE_FOLD_COMPUTE;
        nodes[id] = is_used ? FE_FOLD_KNOWN : 0;
    }
}

static PyObject *ids_marked(const fe_graph *core, const uint8_t *nodes, uint8_t mark)
{
    Py_ssize_t count = 0;

    for (uint32_t id = core->nodes[FE_ROOT].next; id != FE_ROOT; id = core->nodes[id].next)
        count += (nodes[id] & mark) != 0;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(uint32_t));
    char *at = bytes ? PyBytes_AS_STRING(bytes) : NULL;
    for (uint32_t id = core->nodes[FE_ROOT].next; at && id != FE_ROOT; id = core->nodes[id].next) {
        if (nodes[id] & mark) {
            memcpy(at, &id, sizeof id);
            at += sizeof id;
        }
    }
    return bytes;
}

static PyObject *constants_found(const fe_graph *core, uint8_t *nodes)
{
    unmark_idle(core, nodes);
    return Py_BuildValue("NNN", ids_marked(core, nodes, FE_FOLD_COMPUTE), ids_marked(core, nodes, FE_FOLD_KEEP),
                         ids_marked(core, nodes, FE_FOLD_KNOWN));
}

PyObject *Graph_find_constants(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    GraphObject *g = (GraphObject *)self;
    PyObject *result = NULL;
    judged j = {0};
    fe_error err;

    if (nargs != 2 || (args[1] != Py_None && !PyBytes_Check(args[1])))
        return PyErr_Format(PyExc_TypeError, "_find_constants() takes a function and bytes or None");
    if (graph_readable(g) < 0 || graph_refresh_facts(g) < 0)
        return NULL;
    uint64_t version = g->core->version;
    uint8_t *nodes = NULL;
    bool is_marked = true;
    if (judge_targets(g, args[0], &j) == 0 && check_version(g, version) == 0) {
        nodes = PyMem_Calloc(g->core->node_count, 1);
        if (!nodes)
            PyErr_NoMemory();
        else if (args[1] == Py_None)
            mark_leaves(g->core, nodes);
        else
            is_marked = mark_known(g, args[1], nodes) == 0;
    }
    if (nodes && is_marked && fe_find_constants(g->core, j.facts, nodes, &err) < 0)
        raise_core(g->state, &err);
    else if (nodes && is_marked)
        result = constants_found(g->core, nodes);
    PyMem_Free(nodes);
    judged_clear(&j);
    return result;
}

/* ---- no-ops ---- */

/* The pairs that were found as a list of (Node, operand, what the call is said to do), with their meta loaded. */
static PyObject *noop_rows(GraphObject *g, const fe_report *r)
{
    PyObject *list = PyList_New(0);

    for (uint32_t i = 0; list && i < r->len; i++) {
        bool is_known = graph_load_meta(g, r->items[i].node) == 0 && graph_load_meta(g, r->items[i].other) == 0;
        PyObject *node = is_known ? graph_node(g, r->items[i].node) : NULL;
        PyObject *operand = node ? graph_node(g, r->items[i].other) : NULL;
        PyObject *row = operand ? Py_BuildValue("OOs", node, operand, fe_noop_text((fe_noop)r->items[i].code)) : NULL;
        if (!row || PyList_Append(list, row) < 0)
            Py_CLEAR(list);
        Py_XDECREF(row);
        Py_XDECREF(operand);
        Py_XDECREF(node);
    }
    return list;
}

/* Keep the pairs that a function finds to agree: it is given the rows and gives as many bytes. */
static int keep_agreeing(GraphObject *g, PyObject *function, fe_report *found)
{
    uint64_t version = g->core->version;
    PyObject *rows = noop_rows(g, found), *verdicts = rows ? PyObject_CallOneArg(function, rows) : NULL;
    uint32_t count = 0;
    int result = verdicts ? check_version(g, version) : -1;

    if (result == 0 && (!PyBytes_Check(verdicts) || PyBytes_GET_SIZE(verdicts) != (Py_ssize_t)found->len)) {
        PyErr_SetString(PyExc_TypeError, "a byte is wanted for each no-op");
        result = -1;
    }
    for (uint32_t i = 0; result == 0 && i < found->len; i++) {
        if (PyBytes_AS_STRING(verdicts)[i])
            found->items[count++] = found->items[i];
    }
    if (result == 0)
        found->len = count;
    Py_XDECREF(verdicts);
    Py_XDECREF(rows);
    return result;
}

/* The sizes or strides that a value of meta tells, as an attribute or by a method: a tuple, None when it tells none, NULL with an
 * exception. */
static PyObject *numbers_told(PyObject *value, PyObject *name)
{
    PyObject *told = PyObject_GetAttr(value, name);

    if (told && !PyTuple_Check(told) && PyCallable_Check(told))
        Py_SETREF(told, PyObject_CallNoArgs(told));
    if (told ? PyTuple_Check(told)
             : !PyErr_ExceptionMatches(PyExc_AttributeError) && !PyErr_ExceptionMatches(PyExc_TypeError))
        return told;
    PyErr_Clear();
    Py_XDECREF(told);
    return Py_NewRef(Py_None);
}

static bool numbers_differ(PyObject *a, PyObject *b)
{
    return PyLong_CheckExact(a) && PyLong_CheckExact(b) && PyObject_RichCompareBool(a, b, Py_NE) == 1;
}

/* Whether two tuples are certainly different: of symbols nothing is said. */
static bool tuples_differ(PyObject *a, PyObject *b)
{
    if (a == Py_None || b == Py_None)
        return false;
    if (PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b))
        return true;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a); i++) {
        if (numbers_differ(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i)))
            return true;
    }
    return false;
}

/* The same of the sizes that a call asks for; wanted NULL: it does not say. */
static bool differs_from(PyObject *tuple, const fe_seq *wanted)
{
    if (!wanted || tuple == Py_None)
        return false;
    if (PyTuple_GET_SIZE(tuple) != (Py_ssize_t)wanted->len)
        return true;
    for (uint32_t i = 0; i < wanted->len; i++) {
        PyObject *item = PyTuple_GET_ITEM(tuple, i);
        int overflow = 0;
        int64_t size = PyLong_CheckExact(item) ? PyLong_AsLongLongAndOverflow(item, &overflow) : -1;
        if (size >= 0 && wanted->items[i].as.integer != -1 && wanted->items[i].as.integer != size)
            return true;
    }
    return false;
}

/* A new reference to the value that meta tells of a node; NULL: none, or an exception. */
static PyObject *value_told(GraphObject *g, uint32_t id, uint32_t key)
{
    uint32_t object = graph_load_meta(g, id) < 0 ? FE_NONE_ID : fe_meta_get(g->core->details[id].meta, key);

    return object == FE_NONE_ID ? NULL : Py_NewRef(graph_object_at(g, object));
}

/* What is looked up in all pairs. */
typedef struct {
    uint32_t key; /* "val" */
    PyObject *val, *shape, *stride;
} told_names;

/* Whether the numbers of two values, that of a call and that of its operand, agree as far as can be seen; or -1. The sizes that the
 * call asks for tell most at once. */
static int numbers_agree(PyObject *value, PyObject *source, PyObject *name, const fe_seq *wanted)
{
    PyObject *b = numbers_told(source, name), *a = NULL;
    bool differs = b && differs_from(b, wanted);
    int result = b ? !differs : -1;

    if (b && !differs) {
        a = numbers_told(value, name);
        result = a ? !tuples_differ(a, b) : -1;
    }
    Py_XDECREF(a);
    Py_XDECREF(b);
    return result;
}

/* Whether a node and its operand may give the same: 1, 0, or -1. Runs Python code; the graph is pinned. */
static int may_agree(GraphObject *g, fe_record r, const told_names *names)
{
    PyObject *value = value_told(g, r.node, names->key), *source = value ? value_told(g, r.other, names->key) : NULL;
    int result = source != NULL;

    if (source && source != value) {
        graph_pin(g);
        result = numbers_agree(value, source, names->shape, fe_noop_sizes(g->core, r));
        if (result > 0)
            result = numbers_agree(value, source, names->stride, NULL);
        graph_unpin(g);
    }
    Py_XDECREF(value);
    Py_XDECREF(source);
    return PyErr_Occurred() ? -1 : result;
}

static int drop_unequal_by(GraphObject *g, fe_report *found, const told_names *names)
{
    uint64_t version = g->core->version;
    uint32_t count = 0;

    for (uint32_t i = 0; i < found->len; i++) {
        int may = may_agree(g, found->items[i], names);
        if (may < 0 || (g->core->version != version && check_version(g, version) < 0))
            return -1;
        if (may)
            found->items[count++] = found->items[i];
    }
    found->len = count;
    return check_version(g, version);
}

/* Drop the pairs of different sizes or strides, which are most, before a function is asked about the others. */
static int drop_unequal(GraphObject *g, fe_report *found)
{
    told_names names = {.val = PyUnicode_InternFromString("val"),
                        .shape = PyUnicode_InternFromString("shape"),
                        .stride = PyUnicode_InternFromString("stride")};
    int result = -1;

    if (names.val && names.shape && names.stride && graph_meta_key(g, names.val, true, &names.key) == 0)
        result = drop_unequal_by(g, found, &names);
    Py_XDECREF(names.val);
    Py_XDECREF(names.shape);
    Py_XDECREF(names.stride);
    return result;
}

static int find_noops(GraphObject *g, PyObject *judge, PyObject *agree, bool explain, judged *j, fe_report *found)
{
    fe_error err;

    if (judge_targets(g, judge, j) < 0 || graph_editable(g) < 0)
        return -1;
    if (fe_find_noops(g->core, j->noops, found, &err) < 0)
        return fail_core(g->state, &err);
    if (!found->len)
        return 0;
    if ((!explain && drop_unequal(g, found) < 0) || (found->len && keep_agreeing(g, agree, found) < 0))
        return -1;
    uint64_t version = g->core->version;
    if (!found->len)
        return 0;
    if (graph_refresh_facts(g) < 0 || check_version(g, version) < 0)
        return -1;
    return fe_keep_safe_noops(g->core, j->facts, found, &err) < 0 ? fail_core(g->state, &err) : 0;
}

const char remove_noops_doc[] =
    "_remove_noops($self, judge, agree, explain, notes, /)\n--\n\n"
    "Let operands take the place of calls that give them back. judge tells the memory facts of (op, target) and, above "
    "them, the\n"
    "kind of no-op that it may be; agree is given a list of (Node, operand, text) and gives bytes, one each: whether "
    "shapes and\n"
    "types agree. With explain it is asked about all, else not about those that are plainly of other sizes. Returns "
    "(ids of the\n"
    "removed nodes, ids of those in their places). notes is as for _eliminate_getitems.";

PyObject *Graph_remove_noops(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    GraphObject *g = (GraphObject *)self;
    PyObject *result = NULL;
    fe_report found;
    judged j = {0};

    int explain;

    if (nargs != 4)
        return PyErr_Format(PyExc_TypeError, "_remove_noops() takes exactly 4 arguments");
    if ((explain = PyObject_IsTrue(args[2])) < 0 || graph_editable(g) < 0)
        return NULL;
    fe_report_init(&found, &fe_python_allocator);
    if (find_noops(g, args[0], args[1], explain, &j, &found) == 0 &&
        graph_merge_found(g, args[3] == Py_None ? NULL : args[3], &found) == 0)
        result = Py_BuildValue("NN", report_ids(&found, false), report_ids(&found, true));
    judged_clear(&j);
    fe_report_clear(&found);
    graph_sweep(g);
    return result;
}
