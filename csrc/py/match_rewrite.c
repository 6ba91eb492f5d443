/* match_rewrite.c - putting replacements in the place of matches, as a method of Matches.
 *
 * For each match the core puts the copy in; then, while old and new nodes are both there, meta is handed over and the
 * graph's observer told, which runs Python code; then the core takes the match out. Literals were kept as Python objects
 * when they were found, and are converted again: the graph may have changed since.
 */
#include "graph.h"
#include "match.h"

/* ---- what a replacement is in terms of the graph ---- */

typedef struct {
    GraphObject *g, *from;
    fe_replacement core;
    uint32_t *objects, *targets;
    uint8_t *marks; /* objects of `from` that are used */
    fe_candidate *names;
    char *text;     /* what names are split in */
    PyObject *held; /* list: what names that are not ASCII point into */
} plan;

static void plan_clear(plan *p)
{
    for (uint32_t i = 0; p->objects && p->marks && i < p->from->object_capacity; i++) {
        if (p->marks[i] && p->objects[i] != FE_NONE_ID)
            fe_object_unref(p->g->core, p->objects[i]);
    }
    PyMem_RawFree(p->objects);
    PyMem_RawFree(p->targets);
    PyMem_RawFree(p->marks);
    PyMem_RawFree(p->names);
    PyMem_RawFree(p->text);
    Py_XDECREF(p->held);
    graph_unpin(p->from);
}

static int plan_reserve(plan *p)
{
    const fe_graph *from = p->from->core;
    size_t objects = (size_t)p->from->object_capacity + 1, text = 0;

    for (uint32_t id = from->nodes[FE_ROOT].next; id != FE_ROOT; id = from->nodes[id].next)
        text += from->details[id].name->len + 2;
    p->objects = PyMem_RawMalloc(objects * sizeof *p->objects);
    p->targets = PyMem_RawCalloc((size_t)from->target_count + 1, sizeof *p->targets);
    p->marks = PyMem_RawCalloc(objects, 1);
    p->names = PyMem_RawCalloc(from->node_count, sizeof *p->names);
    p->text = PyMem_RawMalloc(text + 1);
    if (!p->objects || !p->targets || !p->marks || !p->names || !p->text) {
        PyErr_NoMemory();
        return -1;
    }
    memset(p->objects, 0xff, objects * sizeof *p->objects);
    p->held = PyList_New(0);
    return p->held ? 0 : -1;
}

static int plan_objects(plan *p)
{
    const fe_graph *from = p->from->core;
    uint32_t count = p->from->object_capacity;

    match_mark_objects(p->marks, from);
    for (uint32_t id = from->nodes[FE_ROOT].next; id != FE_ROOT; id = from->nodes[id].next) {
        if (from->details[id].type != FE_NONE_ID)
            p->marks[from->details[id].type] = 1;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t index;
        if (!p->marks[i])
            continue;
        if (graph_object(p->g, graph_object_at(p->from, i), &index) < 0)
            return -1;
        fe_object_ref(p->g->core, index);
        p->objects[i] = index;
    }
    return 0;
}

static int plan_target(plan *p, uint32_t index)
{
    const fe_target *t = &p->from->core->targets[index];
    PyObject *target = graph_target_object(p->from, index);
    int result = target ? graph_target(p->g, (fe_op)t->op, target, &p->targets[index]) : -1;

    Py_XDECREF(target);
    return result;
}

/* Names are made by the rules from the names of the replacement's nodes, as torch.fx's node_copy does. */
static int plan_name(plan *p, uint32_t id, char *at)
{
    const fe_string *name = p->from->core->details[id].name;
    fe_candidate *c = &p->names[id];
    bool is_ascii = true;

    for (uint32_t i = 0; i < name->len; i++)
        is_ascii &= (unsigned char)name->data[i] < 0x80;
    if (is_ascii) {
        *c = fe_name_split(name->data, name->len, at);
        return 0;
    }
    PyObject *text = string_to_python(name), *parts = text ? PyObject_CallOneArg(p->g->state->split_name, text) : NULL;
    Py_ssize_t base_len, len;
    long long number;
    int result = -1;
    if (parts && PyArg_ParseTuple(parts, "s#Ls#", &c->base, &base_len, &number, &c->name, &len) &&
        PyList_Append(p->held, parts) == 0) {
        c->base_len = (size_t)base_len;
        c->name_len = (size_t)len;
        c->number = number;
        result = 0;
    }
    Py_XDECREF(parts);
    Py_XDECREF(text);
    return result;
}

/* Clear the plan also after a failure. */
static int plan_make(plan *p, GraphObject *g, GraphObject *from)
{
    char *at;

    *p = (plan){.g = g, .from = from};
    graph_pin(from);
    if (plan_reserve(p) < 0 || plan_objects(p) < 0)
        return -1;
    at = p->text;
    for (uint32_t id = from->core->nodes[FE_ROOT].next; id != FE_ROOT; id = from->core->nodes[id].next) {
        uint8_t op = from->core->nodes[id].op;
        if (op == FE_OP_PLACEHOLDER || op == FE_OP_OUTPUT)
            continue;
        if (plan_target(p, from->core->nodes[id].target) < 0 || plan_name(p, id, at) < 0)
            return -1;
        at += from->core->details[id].name->len + 2;
    }
    p->core = (fe_replacement){from->core, p->objects, p->targets, p->names};
    return 0;
}

/* Whether facts about what the replacement calls, or about these calls, are still to be found out. */
static bool plan_needs_facts(const plan *p)
{
    const fe_graph *from = p->from->core;

    for (uint32_t id = from->nodes[FE_ROOT].next; id != FE_ROOT; id = from->nodes[id].next) {
        uint8_t op = from->nodes[id].op;
        if (op == FE_OP_PLACEHOLDER || op == FE_OP_OUTPUT)
            continue;
        uint32_t flags = p->g->core->targets[p->targets[from->nodes[id].target]].flags;
        if (!(flags & FE_TARGET_KNOWN) || flags & FE_TARGET_PER_NODE)
            return true;
    }
    return false;
}

/* ---- one match ---- */

typedef struct {
    MatchesObject *m;
    GraphObject *g;
    fe_site core;
    fe_value *inputs;
    uint32_t *returned, *matched;
    uint32_t *place; /* by node of the pattern: its binding, or FE_NONE_ID */
    uint64_t version;
} site;

static void site_clear(site *s)
{
    for (uint32_t i = 0; s->inputs && i < s->core.input_count; i++)
        fe_value_free(s->g->core, s->inputs[i]);
    PyMem_RawFree(s->inputs);
    PyMem_RawFree(s->returned);
    PyMem_RawFree(s->matched);
    PyMem_RawFree(s->place);
}

/* A node in a literal: what has taken its place meanwhile. */
static int resolve(void *ctx, PyObject *o, fe_value *out)
{
    site *s = ctx;

    if (Py_TYPE(o) != s->g->state->node_type || ((NodeObject *)o)->graph != s->g)
        return 0;
    uint32_t id = fe_rewrite_current(&s->m->rewriter, ((NodeObject *)o)->id);
    if (!fe_node_is_listed(s->g->core, id)) {
        PyErr_Format(s->g->state->error, "'%S', which a match has for an input, is erased", o);
        return -1;
    }
    *out = (fe_value){.kind = FE_NODE, .as.node = id};
    return 1;
}

static int add_input(site *s, uint32_t pattern)
{
    uint32_t binding = s->place[pattern];
    fe_value *out = &s->inputs[s->core.input_count];

    *out = (fe_value){.kind = FE_NULL};
    if (binding != FE_NONE_ID && s->m->literals[binding]) {
        if (value_from_python_with(s->g, s->m->literals[binding], resolve, s, true, out) < 0)
            return -1;
    } else if (binding != FE_NONE_ID) {
        *out = s->m->found.bindings[binding].value;
    }
    s->core.input_count++;
    return 0;
}

static int add_matched(site *s, uint32_t pattern)
{
    uint32_t binding = s->place[pattern], id;

    if (binding == FE_NONE_ID)
        return 0;
    id = s->m->found.bindings[binding].value.as.node;
    if (!fe_node_is_listed(s->g->core, id)) {
        PyErr_SetString(s->g->state->error, "a node of a match was erased before the match was replaced");
        return -1;
    }
    s->matched[s->core.matched_count++] = id;
    return 0;
}

static int site_fill(site *s, uint32_t index)
{
    const fe_graph *p = s->m->pattern->core;
    uint32_t count = s->m->count, len;
    const fe_binding *b = fe_matches_at(&s->m->found, index, &len);

    memset(s->place, 0xff, ((size_t)count + 1) * sizeof *s->place);
    for (uint32_t i = 0; i < len; i++)
        s->place[b[i].pattern] = (uint32_t)(b - s->m->found.bindings) + i;
    for (uint32_t id = 1; id <= count; id++) {
        if (p->nodes[id].op == FE_OP_PLACEHOLDER && add_input(s, id) < 0)
            return -1;
    }
    for (uint32_t id = count; id > 0; id--) {
        if (p->nodes[id].op != FE_OP_PLACEHOLDER && p->nodes[id].op != FE_OP_OUTPUT && add_matched(s, id) < 0)
            return -1;
    }
    const fe_node *output = &p->nodes[count];
    for (uint32_t e = output->edge; e < output->edge + output->edge_count; e++) {
        uint32_t binding = s->place[p->edges[e].def];
        if (binding == FE_NONE_ID || s->m->found.bindings[binding].value.kind != FE_NODE) {
            PyErr_SetString(PyExc_ValueError, "a result of the pattern stands for no node");
            return -1;
        }
        s->returned[s->core.returned_count++] = s->m->found.bindings[binding].value.as.node;
    }
    s->core.inputs = s->inputs;
    s->core.returned = s->returned;
    s->core.matched = s->matched;
    return 0;
}

/* Clear the site also after a failure. */
static int site_make(site *s, MatchesObject *m, uint32_t index)
{
    size_t room = (size_t)m->count + 1;

    *s = (site){.m = m, .g = m->graph};
    s->inputs = PyMem_RawMalloc(room * sizeof *s->inputs);
    s->returned = PyMem_RawMalloc(room * sizeof *s->returned);
    s->matched = PyMem_RawMalloc(room * sizeof *s->matched);
    s->place = PyMem_RawMalloc(room * sizeof *s->place);
    if (!s->inputs || !s->returned || !s->matched || !s->place) {
        PyErr_NoMemory();
        return -1;
    }
    return site_fill(s, index);
}

/* ---- meta ---- */

/* The meta of the replacement's own node. */
static int give_own_meta(GraphObject *g, GraphObject *from, uint32_t source, uint32_t id, container_memo *memo)
{
    PyObject *dict = NULL, *copy = NULL, *node = NULL;
    int result = -1;

    if (graph_load_meta(from, source) < 0)
        return -1;
    if (!from->core->details[source].meta)
        return 0;
    if ((dict = meta_to_dict(from, source)) && (copy = copy_containers(dict, memo)) && (node = graph_node(g, id)))
        result = meta_assign((NodeObject *)node, copy);
    Py_XDECREF(node);
    Py_XDECREF(copy);
    Py_XDECREF(dict);
    return result;
}

/* Keys of meta: what is under `value` tells of the value of a node, what is under `never` stays behind. */
typedef struct {
    PyObject *value, *never; /* borrowed: anything with `in`; NULL: nothing is inherited */
} meta_keys;

/* What a new node lacks of an old one's meta. */
static int inherit(GraphObject *g, PyObject *meta, uint32_t id, bool same_value, const meta_keys *keys,
                   container_memo *memo)
{
    PyObject *node = graph_node(g, id), *own = node ? PyObject_GetAttrString(node, "meta") : NULL, *key, *value;
    int result = own ? 0 : -1;
    Py_ssize_t at = 0;

    while (result == 0 && PyDict_Next(meta, &at, &key, &value)) {
        int skip = PySequence_Contains(own, key);
        if (skip == 0 && !same_value)
            skip = PySequence_Contains(keys->value, key);
        if (skip == 0)
            skip = PySequence_Contains(keys->never, key);
        if (skip != 0) {
            result = skip < 0 ? -1 : 0;
            continue;
        }
        PyObject *copy = copy_containers(value, memo);
        result = copy ? PyObject_SetItem(own, key, copy) : -1;
        Py_XDECREF(copy);
    }
    Py_XDECREF(own);
    Py_XDECREF(node);
    return result;
}

static uint32_t result_of(const site *s, uint32_t made)
{
    const fe_rewriter *w = &s->m->rewriter;

    for (uint32_t i = 0; i < w->result_count; i++) {
        if (w->results[i] == made)
            return i;
    }
    return FE_NONE_ID;
}

static int inherit_all(site *s, const meta_keys *keys, container_memo *memo)
{
    const fe_rewriter *w = &s->m->rewriter;
    int result = 0;

    for (uint32_t i = 0; result == 0 && i < w->made_count; i++) {
        uint32_t place = result_of(s, w->made[i]), old = s->returned[place == FE_NONE_ID ? 0 : place];
        if ((result = graph_load_meta(s->g, old)) < 0 || !s->g->core->details[old].meta)
            continue;
        PyObject *meta = meta_to_dict(s->g, old);
        result = meta ? inherit(s->g, meta, w->made[i], place != FE_NONE_ID, keys, memo) : -1;
        Py_XDECREF(meta);
    }
    return result;
}

/* Sources of new nodes; while the graph is recorded the observer notes them. */
static int note_sources(site *s, match_notes *notes)
{
    const fe_rewriter *w = &s->m->rewriter;
    int result = 0;

    for (uint32_t i = 0; result == 0 && i < w->made_count; i++) {
        if (result_of(s, w->made[i]) == FE_NONE_ID)
            result = match_note_created(notes, w->made[i]);
    }
    for (uint32_t i = 0; result == 0 && i < w->result_count; i++) {
        bool is_made = false;
        for (uint32_t k = 0; k < w->made_count; k++)
            is_made |= w->made[k] == w->results[i];
        result = match_note_replaced(notes, s->returned[i], w->results[i], is_made);
    }
    return result;
}

static int tell_observer(site *s)
{
    const fe_rewriter *w = &s->m->rewriter;
    int result = 0;

    for (uint32_t i = 0; s->g->observer && result == 0 && i < w->made_count; i++)
        result = graph_tell_created(s->g, w->made[i]);
    for (uint32_t i = 0; s->g->observer && result == 0 && i < w->result_count; i++) {
        PyObject *old = graph_node(s->g, s->returned[i]), *new = old ? graph_node(s->g, w->results[i]) : NULL;
        result = new ? graph_tell_replaced(s->g, old, new) : -1;
        Py_XDECREF(new);
        Py_XDECREF(old);
    }
    return result;
}

/* What the caller of rewrite() asks for. */
typedef struct {
    meta_keys keys;
    match_notes notes;
    int brief;
} wishes;

static int hand_over(site *s, const plan *p, wishes *asked)
{
    const fe_rewriter *w = &s->m->rewriter;
    const fe_graph *from = p->from->core;
    container_memo memo = {0};
    uint32_t made = 0;
    int result = 0;

    for (uint32_t id = from->nodes[FE_ROOT].next; result == 0 && id != FE_ROOT; id = from->nodes[id].next) {
        if (from->nodes[id].op != FE_OP_PLACEHOLDER && from->nodes[id].op != FE_OP_OUTPUT)
            result = give_own_meta(s->g, p->from, id, w->made[made++], &memo);
    }
    if (result == 0 && asked->keys.value)
        result = inherit_all(s, &asked->keys, &memo);
    container_memo_clear(&memo);
    if (result < 0)
        return -1;
    return s->g->observer ? tell_observer(s) : note_sources(s, &asked->notes);
}

/* ---- results ---- */

static PyObject *outcome(site *s, fe_refusal refusal, bool brief)
{
    const fe_rewriter *w = &s->m->rewriter;

    if (refusal != FE_REFUSAL_NONE)
        return PyUnicode_FromString(fe_refusal_text(refusal));
    PyObject *made = graph_node_list(s->g, w->made, w->made_count);
    if (brief)
        return made;
    PyObject *old = made ? graph_node_list(s->g, s->returned, s->core.returned_count) : NULL;
    PyObject *results = old ? graph_node_list(s->g, w->results, w->result_count) : NULL;
    PyObject *moved = results ? graph_node_list(s->g, w->moved, w->moved_count) : NULL;
    PyObject *tuple = moved ? PyTuple_Pack(4, made, old, results, moved) : NULL;
    Py_XDECREF(moved);
    Py_XDECREF(results);
    Py_XDECREF(old);
    Py_XDECREF(made);
    return tuple;
}

static PyObject *finish(site *s, const plan *p, wishes *asked)
{
    fe_rewriter *w = &s->m->rewriter;
    uint64_t version = s->g->core->version;
    PyObject *result = NULL;

    if (hand_over(s, p, asked) == 0 && graph_editable(s->g) == 0 &&
        (result = outcome(s, FE_REFUSAL_NONE, asked->brief)) && s->g->core->version != version) {
        PyErr_SetString(s->g->state->error, "the graph was changed while a match was being replaced");
        Py_CLEAR(result);
    }
    if (result && fe_rewrite_finish(w, &s->core) < 0) {
        raise_core(s->g->state, w->err);
        Py_CLEAR(result);
    }
    if (!result && !s->g->pins && !s->g->busy)
        fe_rewrite_undo(w);
    return result;
}

static PyObject *rewrite_one(MatchesObject *m, uint32_t index, const plan *p, wishes *asked, fe_error *err)
{
    fe_refusal refusal;
    site s;
    PyObject *result = NULL;

    if (site_make(&s, m, index) < 0 || graph_editable(m->graph) < 0)
        goto done;
    if (fe_rewriter_use(&m->rewriter, &p->core, err) < 0 || fe_rewrite_make(&m->rewriter, &s.core, &refusal) < 0) {
        if (err->code == FE_BAD_VALUE)
            PyErr_SetString(PyExc_ValueError, err->message);
        else
            raise_core(m->graph->state, err);
        goto done;
    }
    result = refusal == FE_REFUSAL_NONE ? finish(&s, p, asked) : outcome(&s, refusal, asked->brief);
done:
    site_clear(&s);
    return result;
}

/* Bring up to date what is known of writes in the graph. */
static int refresh_writes(MatchesObject *m)
{
    if (m->fx_policy)
        return 0;
    m->rewriter.writers_known = false;
    return graph_refresh_facts(m->graph);
}

const char matches_rewrite_doc[] =
    "rewrite($self, replacement, indices, value_keys, never, notes=None, brief=False, /)\n--\n\n"
    "Put copies of a graph in the place of some of the matches, in turn. For each the "
    "result is a tuple of lists (new nodes,\n"
    "results of the match, what takes the place of each, nodes that moved), or a str: "
    "why the match is left as it is. With\n"
    "brief, it is the first of these lists or that str. With value_keys, new nodes "
    "inherit meta: what is under these keys only\n"
    "those that take the place of a result, and what is under the keys in never none. "
    "notes, a tuple (classes of sources,\n"
    "function from a target to its text, name of a pass, list), asks for from_node of "
    "new nodes while the graph has no\n"
    "observer; the list gets triples (result of a match, what takes its place, whether "
    "that is new) of what is left to the caller.";

PyObject *Matches_rewrite(PyObject *self, PyObject *args)
{
    MatchesObject *m = (MatchesObject *)self;
    GraphObject *g = m->graph;
    PyObject *from, *indices, *list;
    wishes asked = {{NULL, NULL}, {0}, 0};
    PyObject *notes = Py_None;
    fe_error err;
    plan p;

    if (!PyArg_ParseTuple(args, "O!O!OO|Op:rewrite", g->state->graph_type, &from, &PyList_Type, &indices,
                          &asked.keys.value, &asked.keys.never, &notes, &asked.brief) ||
        graph_readable((GraphObject *)from) < 0 || graph_editable(g) < 0)
        return NULL;
    if (from == (PyObject *)g)
        return PyErr_Format(PyExc_ValueError, "a graph can't be replaced by itself");
    if (asked.keys.value == Py_None)
        asked.keys.value = NULL;
    if (match_notes_open(&asked.notes, g, notes) < 0) {
        match_notes_close(&asked.notes);
        return NULL;
    }
    bool is_known = m->version == g->core->version; /* since the last call nobody changed the graph */
    list = plan_make(&p, g, (GraphObject *)from) < 0 || (!is_known && refresh_writes(m) < 0) ? NULL : PyList_New(0);
    bool is_new = list && plan_needs_facts(&p);
    for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(indices); i++) {
        size_t index = PyLong_AsSize_t(PyList_GET_ITEM(indices, i));
        PyObject *one = NULL;
        if (index < m->found.count)
            one = rewrite_one(m, (uint32_t)index, &p, &asked, &err);
        else if (!PyErr_Occurred())
            PyErr_Format(PyExc_IndexError, "there is no match %zu", index);
        if (one && is_new && refresh_writes(m) < 0)
            Py_CLEAR(one);
        is_new = is_new && one && plan_needs_facts(&p);
        if (!one || PyList_Append(list, one) < 0)
            Py_CLEAR(list);
        Py_XDECREF(one);
    }
    m->version = list ? g->core->version : 0;
    plan_clear(&p);
    match_notes_close(&asked.notes);
    graph_sweep(g);
    return list;
}
