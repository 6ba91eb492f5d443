/* match.c - finding a pattern, as a function of the module and the type Matches.
 *
 * The core compares numbers; here objects and targets of the two graphs are sorted into classes of equal ones. That calls the
 * __eq__ of user objects, while both graphs are pinned.
 */
#include "match.h"

/* ---- classes of equal objects ---- */

typedef struct {
    GraphObject *graph, *pattern;
    PyObject *same_target, *same_attribute;    /* Python: (of the pattern, of the graph) -> bool; or None */
    uint32_t *objects[2], *targets[2];         /* by object or target of the graph and the pattern: the class */
    uint8_t *in_arguments[2];                  /* by object */
    uint32_t object_count[2], target_count[2]; /* in these; more may come in, but no node can get them */
} classes;

static void classes_clear(classes *c)
{
    for (int i = 0; i < 2; i++) {
        PyMem_RawFree(c->objects[i]);
        PyMem_RawFree(c->targets[i]);
        PyMem_RawFree(c->in_arguments[i]);
    }
}

static int classes_reserve(classes *c)
{
    GraphObject *const graphs[] = {c->graph, c->pattern};

    for (int i = 0; i < 2; i++) {
        uint32_t objects = graphs[i]->object_capacity, targets = graphs[i]->core->target_count;
        c->object_count[i] = objects;
        c->target_count[i] = targets;
        c->objects[i] = PyMem_RawCalloc((size_t)objects + 1, sizeof(uint32_t));
        c->targets[i] = PyMem_RawCalloc((size_t)targets + 1, sizeof(uint32_t));
        c->in_arguments[i] = PyMem_RawCalloc((size_t)objects + 1, 1);
        if (!c->objects[i] || !c->targets[i] || !c->in_arguments[i]) {
            PyErr_NoMemory();
            return -1;
        }
        /* Each is a class of its own, until it is found to equal another; the pattern's numbers lie behind the graph's. */
        for (uint32_t k = 0; k < objects; k++)
            c->objects[i][k] = k + (i ? c->object_count[0] : 0);
        for (uint32_t k = 0; k < targets; k++)
            c->targets[i][k] = k + (i ? c->target_count[0] : 0);
    }
    return 0;
}

static bool mark_in(uint8_t *marks, const fe_seq *s)
{
    bool any = s && s->type != FE_NONE_ID;

    if (any)
        marks[s->type] = 1;
    for (uint32_t i = 0; s && i < s->len; i++) {
        if (s->items[i].kind == FE_OBJECT)
            any = (marks[s->items[i].as.object] = 1);
        else if (fe_kind_is_seq(s->items[i].kind))
            any |= mark_in(marks, s->items[i].as.seq);
    }
    return any;
}

bool match_mark_objects(uint8_t *marks, const fe_graph *g)
{
    bool any = false;

    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT; id = g->nodes[id].next) {
        any |= mark_in(marks, g->details[id].args);
        any |= mark_in(marks, g->details[id].kwargs);
    }
    return any;
}

/* Whether two objects are equal and of one type: 1, 0, or -1. */
static int objects_equal(PyObject *a, PyObject *b)
{
    if (a == b)
        return 1;
    if (Py_TYPE(a) != Py_TYPE(b) || Py_TYPE(a)->tp_richcompare == PyBaseObject_Type.tp_richcompare)
        return 0;
    Py_INCREF(a);
    Py_INCREF(b);
    PyObject *result = PyObject_RichCompare(a, b, Py_EQ);
    int equal = result ? PyObject_IsTrue(result) : -1;
    Py_XDECREF(result);
    Py_DECREF(b);
    Py_DECREF(a);
    return equal;
}

/* Give each object in arguments of one graph (0: the graph, 1: the pattern) that equals some object the class of that. */
static int join_equal(classes *c, int side, PyObject *object, uint32_t class)
{
    const GraphObject *g = side ? c->pattern : c->graph;

    for (uint32_t i = 0; i < c->object_count[side]; i++) {
        if (!c->in_arguments[side][i] || !g->objects[i])
            continue;
        int equal = objects_equal(object, g->objects[i]);
        if (equal < 0)
            return -1;
        if (equal)
            c->objects[side][i] = class;
    }
    return 0;
}

static int classify_objects(classes *c)
{
    const GraphObject *p = c->pattern;

    if (!match_mark_objects(c->in_arguments[1], p->core))
        return 0;
    match_mark_objects(c->in_arguments[0], c->graph->core);
    for (uint32_t i = 0; i < c->object_count[1]; i++) {
        if (!c->in_arguments[1][i] || !p->objects[i])
            continue;
        uint32_t class = c->objects[1][i];
        if (join_equal(c, 0, p->objects[i], class) < 0 || join_equal(c, 1, p->objects[i], class) < 0)
            return -1;
    }
    return 0;
}

static int ask(PyObject *function, PyObject *a, PyObject *b)
{
    PyObject *answer = a && b ? PyObject_CallFunctionObjArgs(function, a, b, NULL) : NULL;
    int result = answer ? PyObject_IsTrue(answer) : -1;

    Py_XDECREF(answer);
    return result;
}

static int targets_equal(classes *c, uint32_t of_pattern, uint32_t of_graph)
{
    const fe_target *s = &c->pattern->core->targets[of_pattern], *t = &c->graph->core->targets[of_graph];

    if (s->op != t->op)
        return 0;
    if (s->op == FE_OP_GET_ATTR && c->same_attribute != Py_None) {
        PyObject *a = graph_target_object(c->pattern, of_pattern),
                 *b = a ? graph_target_object(c->graph, of_graph) : NULL;
        int same = ask(c->same_attribute, a, b);
        Py_XDECREF(a);
        Py_XDECREF(b);
        return same;
    }
    if (s->object == FE_NONE_ID || t->object == FE_NONE_ID)
        return s->object == t->object && s->text->len == t->text->len &&
               memcmp(s->text->data, t->text->data, s->text->len) == 0;
    PyObject *a = graph_object_at(c->pattern, s->object), *b = graph_object_at(c->graph, t->object);
    if (a == b)
        return 1;
    if (Py_TYPE(a) == Py_TYPE(b) && Py_TYPE(a)->tp_richcompare == PyBaseObject_Type.tp_richcompare)
        return 0;
    return ask(c->same_target, a, b);
}

/* Targets that nothing calls any more don't count; targets of inputs and outputs are not looked at. */
static int classify_targets(classes *c)
{
    const fe_graph *p = c->pattern->core, *g = c->graph->core;

    for (uint32_t i = 0; i < c->target_count[1]; i++) {
        if (!p->targets[i].count || p->targets[i].op == FE_OP_PLACEHOLDER || p->targets[i].op == FE_OP_OUTPUT)
            continue;
        for (uint32_t k = 0; k < c->target_count[0]; k++) {
            int equal = g->targets[k].count ? targets_equal(c, i, k) : 0;
            if (equal < 0)
                return -1;
            if (equal && c->targets[0][k] < c->target_count[0])
                c->targets[0][k] = c->targets[1][i];
            else if (equal) /* it equals an earlier target of the pattern, so this one does too */
                c->targets[1][i] = c->targets[0][k];
        }
    }
    return 0;
}

/* ---- finding ---- */

/* Whether a node is one that tells parameters, as fe_parameter_flag says. */
static bool is_signature(const fe_graph *p, unsigned long id)
{
    if (id == FE_ROOT || id >= p->node_count)
        return false;
    const fe_seq *args = p->details[id].args, *kwargs = p->details[id].kwargs;
    if ((kwargs ? kwargs->len : 0) != 2 * (args ? args->len : 0))
        return false;
    for (uint32_t i = 1; kwargs && i < kwargs->len; i += 2) {
        if (kwargs->items[i].kind != FE_INT)
            return false;
    }
    return true;
}

/* The node that tells the parameters of each node of the pattern, from a list of places. */
static uint32_t *read_signatures(PyObject *list, uint32_t count, const fe_graph *p)
{
    uint32_t *out = PyMem_RawMalloc(((size_t)count + 1) * sizeof *out);

    if (!out)
        return (uint32_t *)PyErr_NoMemory();
    out[0] = FE_NONE_ID;
    for (uint32_t i = 1; i <= count; i++) {
        unsigned long place = PyLong_AsUnsignedLong(PyList_GET_ITEM(list, i - 1));
        if (place == (unsigned long)-1 && PyErr_Occurred()) {
            PyMem_RawFree(out);
            return NULL;
        }
        out[i] = is_signature(p, place) ? (uint32_t)place : FE_NONE_ID;
    }
    return out;
}

/* Keep what placeholders stand for, where that is no node: the graph may change before it is asked for. */
static int keep_literals(MatchesObject *m)
{
    m->literals = PyMem_RawCalloc((size_t)m->found.len + 1, sizeof *m->literals);
    if (!m->literals) {
        PyErr_NoMemory();
        return -1;
    }
    m->literal_count = m->found.len;
    for (uint32_t i = 0; i < m->found.len; i++) {
        const fe_binding *b = &m->found.bindings[i];
        if (b->value.kind != FE_NODE &&
            !(m->literals[i] = value_to_python(b->is_default ? m->pattern : m->graph, b->value)))
            return -1;
    }
    return 0;
}

static int find(MatchesObject *m, classes *c, PyObject *signatures, const fe_match_options *o)
{
    const fe_match_side side = {m->graph->core, c->objects[0], c->targets[0]};
    fe_pattern p = {{m->pattern->core, c->objects[1], c->targets[1]}, m->count, NULL};
    fe_error err;

    uint32_t *places = read_signatures(signatures, m->count, m->pattern->core);
    p.signature = places;
    int result = places ? fe_match(m->graph->core, &side, &p, o, &m->found, &err) : -1;
    PyMem_RawFree(places);
    PyObject *id = places && result < 0 && err.code == FE_BAD_VALUE ? PyLong_FromUnsignedLong(err.node) : NULL;
    if (id)
        PyErr_SetObject(PyExc_KeyError, id);
    else if (places && !PyErr_Occurred() && result < 0)
        raise_core(m->graph->state, &err);
    Py_XDECREF(id);
    return result < 0 ? -1 : keep_literals(m);
}

static int find_pinned(MatchesObject *m, PyObject *const *functions, PyObject *signatures, const fe_match_options *o)
{
    classes c = {.graph = m->graph, .pattern = m->pattern, .same_target = functions[0], .same_attribute = functions[1]};

    graph_pin(m->graph);
    graph_pin(m->pattern);
    int result = classes_reserve(&c);
    if (result == 0 && (result = classify_objects(&c)) == 0 && (result = classify_targets(&c)) == 0)
        result = find(m, &c, signatures, o);
    graph_unpin(m->pattern);
    graph_unpin(m->graph);
    classes_clear(&c);
    return result;
}

static MatchesObject *matches_new(GraphObject *graph, GraphObject *pattern, uint32_t count)
{
    MatchesObject *m = PyObject_GC_New(MatchesObject, graph->state->matches_type);

    if (!m)
        return NULL;
    m->graph = (GraphObject *)Py_NewRef(graph);
    m->pattern = (GraphObject *)Py_NewRef(pattern);
    m->count = count;
    m->literals = NULL;
    m->literal_count = 0;
    m->version = 0;
    fe_matches_init(&m->found, &fe_python_allocator);
    PyObject_GC_Track(m);
    return m;
}

const char find_matches_doc[] =
    "find_matches(graph, pattern, signatures, same_target, same_attribute, options, name, /)\n--\n\n"
    "Find a pattern in a graph.\n\n"
    "pattern is a graph of which nobody else knows and whose nodes never changed places. signatures has an entry for "
    "each\n"
    "node of the pattern: the place (from 1) of the node behind the pattern that tells its parameters, or 0. "
    "same_target\n"
    "tells whether two targets that are not identical are the same, same_attribute (or None) that for two paths of\n"
    "get_attr. options: the bits match_output, match_placeholder, ignore_literals, keep_overlapping, fx_policy. name: "
    "a\n"
    "str or None. Returns Matches; raises KeyError of a node's place in the pattern when torch.fx would of the node.";

PyObject *find_matches(PyObject *module, PyObject *args)
{
    module_state *st = state_of(module);
    PyObject *graph, *pattern, *signatures, *functions[2];
    unsigned int bits;
    const char *name;

    if (!PyArg_ParseTuple(args, "O!O!O!OOIz:find_matches", st->graph_type, &graph, st->graph_type, &pattern,
                          &PyList_Type, &signatures, &functions[0], &functions[1], &bits, &name) ||
        graph_readable((GraphObject *)graph) < 0 || graph_readable((GraphObject *)pattern) < 0)
        return NULL;
    const fe_graph *p = ((GraphObject *)pattern)->core;
    uint32_t count = (uint32_t)PyList_GET_SIZE(signatures);
    if (!count || PyList_GET_SIZE(signatures) >= p->node_count || p->node_count != p->live + 1 || graph == pattern)
        return PyErr_Format(PyExc_ValueError, "find_matches() takes a pattern with nodes, none of them erased");
    const fe_match_options options = {.match_output = bits & 1,
                                      .match_placeholder = bits & 2,
                                      .ignore_literals = bits & 4,
                                      .keep_overlapping = bits & 8,
                                      .fx_policy = bits & 16,
                                      .keep_cycles = (bits & 24) == 24,
                                      .name = name && *name ? name : NULL};
    MatchesObject *m = matches_new((GraphObject *)graph, (GraphObject *)pattern, count);
    if (!m)
        return NULL;
    m->fx_policy = options.fx_policy;
    fe_rewriter_init(&m->rewriter, m->graph->core, options.fx_policy);
    if (find_pinned(m, functions, signatures, &options) < 0)
        Py_CLEAR(m);
    return (PyObject *)m;
}

PyMethodDef match_functions[] = {
    {"find_matches", find_matches, METH_VARARGS, find_matches_doc},
    {NULL, NULL, 0, NULL},
};

/* ---- the type ---- */

static int Matches_traverse(PyObject *self, visitproc visit, void *arg)
{
    MatchesObject *m = (MatchesObject *)self;

    Py_VISIT(Py_TYPE(self));
    Py_VISIT(m->graph);
    Py_VISIT(m->pattern);
    for (uint32_t i = 0; i < m->literal_count; i++)
        Py_VISIT(m->literals[i]);
    return 0;
}

static int Matches_clear(PyObject *self)
{
    MatchesObject *m = (MatchesObject *)self;

    for (uint32_t i = 0; i < m->literal_count; i++)
        Py_CLEAR(m->literals[i]);
    return 0;
}

static void Matches_dealloc(PyObject *self)
{
    MatchesObject *m = (MatchesObject *)self;
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    Matches_clear(self);
    PyMem_RawFree(m->literals);
    fe_matches_clear(&m->found);
    fe_rewriter_clear(&m->rewriter);
    Py_DECREF(m->pattern);
    Py_DECREF(m->graph);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static Py_ssize_t Matches_length(PyObject *self)
{
    return ((MatchesObject *)self)->found.count;
}

static PyObject *node_or_other(MatchesObject *m, uint32_t id, PyObject *nodes)
{
    if (!nodes)
        return graph_node(m->graph, id);
    if (id == FE_ROOT || (Py_ssize_t)id > PyList_GET_SIZE(nodes))
        return PyErr_Format(PyExc_ValueError, "there is no node with the id %u in the list", id);
    return Py_NewRef(PyList_GET_ITEM(nodes, id - 1));
}

PyObject *match_bound(MatchesObject *m, uint32_t binding, PyObject *nodes)
{
    const fe_binding *b = &m->found.bindings[binding];

    if (m->literals[binding])
        return Py_NewRef(m->literals[binding]);
    bool is_input = m->pattern->core->nodes[b->pattern].op == FE_OP_PLACEHOLDER;
    return node_or_other(m, is_input ? fe_rewrite_current(&m->rewriter, b->value.as.node) : b->value.as.node, nodes);
}

static int parse_lists(PyObject *args, const char *format, MatchesObject *m, Py_ssize_t *index, PyObject **patterns,
                       PyObject **nodes)
{
    if (!PyArg_ParseTuple(args, format, index, &PyList_Type, patterns, nodes))
        return -1;
    if (*nodes == Py_None)
        *nodes = NULL;
    if (PyList_GET_SIZE(*patterns) != m->count || (*nodes && !PyList_Check(*nodes)) || *index < 0 ||
        *index >= m->found.count) {
        PyErr_SetString(PyExc_ValueError, "the index or the lists are not those of these matches");
        return -1;
    }
    return 0;
}

static const char matches_map_doc[] = "map($self, index, patterns, nodes=None, /)\n--\n\n"
                                      "One match as a dict from nodes of the pattern, which the list patterns has in "
                                      "order, to what they stand for; nodes,\n"
                                      "when given, has by id what takes the place of the graph's own nodes.";

static PyObject *Matches_map(PyObject *self, PyObject *args)
{
    MatchesObject *m = (MatchesObject *)self;
    PyObject *patterns, *nodes = NULL, *map;
    Py_ssize_t index;
    uint32_t len;

    if (parse_lists(args, "nO!|O:map", m, &index, &patterns, &nodes) < 0 || !(map = PyDict_New()))
        return NULL;
    const fe_binding *b = fe_matches_at(&m->found, (uint32_t)index, &len);
    uint32_t first = (uint32_t)(b - m->found.bindings);
    for (uint32_t i = first; map && i < first + len; i++) {
        PyObject *value = match_bound(m, i, nodes);
        if (!value || PyDict_SetItem(map, PyList_GET_ITEM(patterns, m->found.bindings[i].pattern - 1), value) < 0)
            Py_CLEAR(map);
        Py_XDECREF(value);
    }
    return map;
}

static PyObject *id_or_none(uint32_t id)
{
    return id == FE_NONE_ID ? Py_NewRef(Py_None) : PyLong_FromUnsignedLong(id);
}

static const char matches_best_doc[] = "best($self, /)\n--\n\n"
                                       "How far the best of the failed attempts came: (name of the reason, its text, "
                                       "id of the pattern's node, of the graph's,\n"
                                       "place of the operand, how many nodes were matched, list of pairs of ids that "
                                       "were matched); None where there is none.";

static PyObject *Matches_best(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    static const char *const names[] = {
#define X(id, text) #id,
        FE_MISMATCHES(X)
#undef X
    };
    const fe_matches *f = &((MatchesObject *)self)->found;
    PyObject *pairs = PyList_New(0);

    for (uint32_t i = 0; pairs && i < f->partial_len; i++) {
        const fe_binding *b = &f->partial[i];
        PyObject *pair = b->value.kind == FE_NODE ? Py_BuildValue("II", b->pattern, b->value.as.node) : NULL;
        if (b->value.kind == FE_NODE && (!pair || PyList_Append(pairs, pair) < 0))
            Py_CLEAR(pairs);
        Py_XDECREF(pair);
    }
    if (!pairs)
        return NULL;
    return Py_BuildValue("ssNNNIN", names[f->best.reason], fe_mismatch_text((fe_mismatch_reason)f->best.reason),
                         id_or_none(f->best.pattern), id_or_none(f->best.node), id_or_none(f->best.operand),
                         f->best.matched, pairs);
}

static const char matches_refused_doc[] =
    "refused($self, /)\n--\n\nHow many complete matches were given up, by the text of the reason.";

static PyObject *Matches_refused(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    const fe_matches *f = &((MatchesObject *)self)->found;
    PyObject *dict = PyDict_New();

    for (int i = 0; dict && i < FE_MISMATCH_COUNT; i++) {
        PyObject *count = f->refused[i] ? PyLong_FromUnsignedLong(f->refused[i]) : NULL;
        if (f->refused[i] && (!count || PyDict_SetItemString(dict, fe_mismatch_text((fe_mismatch_reason)i), count) < 0))
            Py_CLEAR(dict);
        Py_XDECREF(count);
    }
    return dict;
}

static const char matches_node_doc[] = "node($self, id, /)\n--\n\nThe node of the graph that has an id.";

static PyObject *Matches_node(PyObject *self, PyObject *o)
{
    MatchesObject *m = (MatchesObject *)self;
    unsigned long id = PyLong_AsUnsignedLong(o);

    if (PyErr_Occurred() || graph_readable(m->graph) < 0)
        return NULL;
    if (!id || id >= m->graph->core->node_count)
        return PyErr_Format(PyExc_ValueError, "no node has the id %lu", id);
    return graph_node(m->graph, (uint32_t)id);
}

static PyMethodDef matches_methods[] = {
    {"map", Matches_map, METH_VARARGS, matches_map_doc},
    {"node", Matches_node, METH_O, matches_node_doc},
    {"best", Matches_best, METH_NOARGS, matches_best_doc},
    {"refused", Matches_refused, METH_NOARGS, matches_refused_doc},
    {"rewrite", Matches_rewrite, METH_VARARGS, matches_rewrite_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(matches_doc, "The places where a pattern was found in a graph; made by find_matches().");

static PyType_Slot matches_slots[] = {
    {Py_tp_doc, (void *)matches_doc},
    {Py_tp_traverse, Matches_traverse},
    {Py_tp_clear, Matches_clear},
    {Py_tp_dealloc, Matches_dealloc},
    {Py_sq_length, Matches_length},
    {Py_tp_methods, matches_methods},
    {0, NULL},
};

PyType_Spec matches_spec = {
    .name = "fastexport._core.Matches",
    .basicsize = sizeof(MatchesObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = matches_slots,
};
