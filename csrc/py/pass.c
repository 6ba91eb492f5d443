/* pass.c - the core's passes as methods of Graph.
 *
 * Facts about targets are brought up to date first, which runs Python code; then the pass itself runs none. Dead-code
 * elimination runs without the GIL: the graph is marked busy, and whoever wants to use it meanwhile waits.
 */
#include "module.h"

const char eliminate_dead_code_doc[] =
    "_eliminate_dead_code($self, fx_policy, keep_random, explain)\n--\n\n"
    "Run dead-code elimination; the graph must be in order. Returns (ids of the removed nodes, in order of removal, "
    "as\n"
    "bytes for _names; dict from every node's name to the reason it was kept or removed, or None).";

const char eliminate_getitems_doc[] =
    "_eliminate_getitems($self, fx_policy, notes=None)\n--\n\n"
    "Run getitem elimination. Returns (ids of the removed nodes, ids of the nodes in their places), each as bytes for\n"
    "_names. notes, a function, is given the pairs (node that goes, node that stays), if there are any, before "
    "anything\n"
    "is changed; it returns a list of (node, what is to stand under 'from_node' in its meta).";

const char names_doc[] =
    "_names($self, ids, /)\n--\n\n"
    "The names of nodes whose ids a pass gave as bytes. Names are made when they are asked for, since most\n"
    "are never looked at.";

const char lint_doc[] =
    "_lint($self, all, fx_only)\n--\n\n"
    "Check the graph. Returns the faults as tuples (fault name, node name, operand name or None, message).";

static PyObject *name_of(const fe_graph *c, uint32_t id)
{
    if (id == FE_NONE_ID || !c->details[id].name)
        return Py_NewRef(Py_None);
    return string_to_python(c->details[id].name);
}

static int parse_flags(const char *function, int count, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                       int *out)
{
    if (kwnames || nargs != count) {
        PyErr_Format(PyExc_TypeError, "%s() takes exactly %d positional arguments", function, count);
        return -1;
    }
    for (int i = 0; i < count; i++) {
        if ((out[i] = PyObject_IsTrue(args[i])) < 0)
            return -1;
    }
    return 0;
}

PyObject *report_ids(const fe_report *r, bool others)
{
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(r->len * sizeof(uint32_t)));

    for (uint32_t i = 0; bytes && i < r->len; i++) {
        uint32_t id = others ? r->items[i].other : r->items[i].node;
        memcpy(PyBytes_AS_STRING(bytes) + i * sizeof id, &id, sizeof id);
    }
    return bytes;
}

PyObject *Graph_names(PyObject *self, PyObject *ids)
{
    GraphObject *g = (GraphObject *)self;

    if (graph_readable(g) < 0)
        return NULL;
    if (!PyBytes_Check(ids) || PyBytes_GET_SIZE(ids) % (Py_ssize_t)sizeof(uint32_t))
        return PyErr_Format(PyExc_TypeError, "_names() takes the bytes that a pass gave");
    Py_ssize_t count = PyBytes_GET_SIZE(ids) / (Py_ssize_t)sizeof(uint32_t);
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list && i < count; i++) {
        uint32_t id;
        memcpy(&id, PyBytes_AS_STRING(ids) + i * (Py_ssize_t)sizeof id, sizeof id);
        PyObject *name =
            id < g->core->node_count ? name_of(g->core, id) : PyErr_Format(PyExc_ValueError, "no node has id %u", id);
        if (!name)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, name);
    }
    return list;
}

/* ---- dead code ---- */

static PyObject *namer(void *ctx, uint32_t id)
{
    return name_of(ctx, id);
}

PyObject *Graph_eliminate_dead_code(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    GraphObject *g = (GraphObject *)self;
    PyObject *ids = NULL, *reasons = NULL, *result = NULL;
    fe_report removed;
    fe_error err;
    int flag[3], changed;

    if (parse_flags("_eliminate_dead_code", 3, args, nargs, kwnames, flag) < 0 || graph_editable(g) < 0 ||
        graph_refresh_facts(g) < 0 || graph_editable(g) < 0)
        return NULL;
    fe_dce_options options = {.fx_policy = flag[0], .keep_random = flag[1]};
    fe_report_init(&removed, g->core->allocator);
    g->busy = true;
    Py_BEGIN_ALLOW_THREADS
    changed = fe_eliminate_dead_code(g->core, &options, &removed, &err);
    Py_END_ALLOW_THREADS
    g->busy = false;
    graph_pin(g);
    if (changed < 0)
        raise_core(g->state, &err);
    else if ((ids = report_ids(&removed, false)) &&
             (reasons = flag[2] ? report_reasons(g->core, &options, &removed, namer, g->core) : Py_NewRef(Py_None)))
        result = PyTuple_Pack(2, ids, reasons);
    graph_unpin(g);
    Py_XDECREF(ids);
    Py_XDECREF(reasons);
    fe_report_clear(&removed);
    graph_sweep(g);
    return result;
}

/* ---- getitems ---- */

/* Facts about targets matter only where there is something to merge. */
static int any_repeated_getitem(GraphObject *g)
{
    fe_getitem_options options = {.ignore_writes = true};
    fe_report repeated;
    fe_error err;

    fe_report_init(&repeated, g->core->allocator);
    int found = fe_find_repeated_getitems(g->core, &options, &repeated, &err);
    if (found < 0)
        raise_core(g->state, &err);
    else
        found = repeated.len > 0;
    fe_report_clear(&repeated);
    return found;
}

/* The nodes of a report as pairs, with their meta loaded. */
static PyObject *node_pairs(GraphObject *g, const fe_report *r)
{
    PyObject *list = PyList_New(0);

    for (uint32_t i = 0; list && i < r->len; i++) {
        uint32_t old_id = r->items[i].node, new_id = r->items[i].other;
        bool is_known = graph_load_meta(g, old_id) == 0 && graph_load_meta(g, new_id) == 0;
        PyObject *old = is_known ? graph_node(g, old_id) : NULL, *new = old ? graph_node(g, new_id) : NULL;
        PyObject *pair = new ? PyTuple_Pack(2, old, new) : NULL;
        if (!pair || PyList_Append(list, pair) < 0)
            Py_CLEAR(list);
        Py_XDECREF(pair);
        Py_XDECREF(new);
        Py_XDECREF(old);
    }
    return list;
}

/* What a function wants noted of a merge: a list for meta_notes_open. */
static PyObject *ask_for_notes(GraphObject *g, PyObject *function, const fe_report *repeated)
{
    int collecting = PyGC_Disable(); /* nothing of what is made here is garbage */
    PyObject *pairs = node_pairs(g, repeated), *list;

    if (collecting)
        PyGC_Enable(); /* before the function runs, which may turn it off for good */
    list = pairs ? PyObject_CallOneArg(function, pairs) : NULL;
    Py_XDECREF(pairs);
    return list;
}

/* The function must leave the structure of the graph as it is. */
static int open_notes(GraphObject *g, PyObject *list, uint64_t version, meta_notes *notes)
{
    PyObject *key = list ? PyUnicode_InternFromString("from_node") : NULL;
    int result = key ? meta_notes_open(g, key, list, notes) : -1;

    Py_XDECREF(key);
    if (result == 0)
        result = graph_editable(g); /* a pass of another thread may have begun */
    if (result == 0 && g->core->version != version) {
        PyErr_SetString(g->state->error, "the graph was changed while a pass was looking at it");
        result = -1;
    }
    return result;
}

int graph_merge_found(GraphObject *g, PyObject *function, const fe_report *found)
{
    uint64_t version = g->core->version;
    meta_notes notes = {0};
    PyObject *list = NULL;
    fe_error err;
    int result = 0;

    if (function && found->len) {
        list = ask_for_notes(g, function, found);
        result = open_notes(g, list, version, &notes);
    }
    if (result == 0 && (result = fe_merge_getitems(g->core, found, 0, &err)) < 0)
        raise_core(g->state, &err);
    if (result == 0)
        meta_notes_write(g, &notes);
    meta_notes_close(g, &notes);
    Py_XDECREF(list);
    return result;
}

static int merge_getitems(GraphObject *g, const fe_getitem_options *options, PyObject *function, fe_report *removed)
{
    fe_error err;

    if (graph_editable(g) < 0)
        return -1;
    if (fe_find_repeated_getitems(g->core, options, removed, &err) < 0)
        return fail_core(g->state, &err);
    return graph_merge_found(g, function, removed);
}

PyObject *Graph_eliminate_getitems(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"fx_policy", "notes", NULL};
    static const parameters p = {"_eliminate_getitems", names, 1, 2};
    GraphObject *g = (GraphObject *)self;
    PyObject *v[2], *result = NULL;
    rendering *texts = NULL;
    fe_report removed;
    int fx_policy, any;

    if (parse_call(&p, args, nargs, kwnames, v) < 0 || (fx_policy = PyObject_IsTrue(v[0])) < 0 || graph_editable(g) < 0)
        return NULL;
    if (!fx_policy && (any = any_repeated_getitem(g)) <= 0)
        return any < 0 ? NULL : Py_BuildValue("yy", "", "");
    if (fx_policy ? !(texts = rendering_new(g, FE_TEXT_STR, true)) : graph_refresh_facts(g) < 0)
        return NULL;
    fe_getitem_options options = {.fx_policy = fx_policy, .renderer = texts ? rendering_of(texts) : NULL};
    fe_report_init(&removed, g->core->allocator);
    if (merge_getitems(g, &options, v[1] == Py_None ? NULL : v[1], &removed) == 0)
        result = Py_BuildValue("NN", report_ids(&removed, false), report_ids(&removed, true));
    rendering_free(texts);
    fe_report_clear(&removed);
    graph_sweep(g);
    return result;
}

/* ---- lint ---- */

static PyObject *fault_tuple(GraphObject *g, const fe_record *fault)
{
    const fe_node *n = &g->core->nodes[fault->node];
    PyObject *name = name_of(g->core, fault->node), *operand = name ? name_of(g->core, fault->other) : NULL,
             *target = operand ? graph_target_object(g, n->target) : NULL, *result = NULL;

    if (target) {
        const fault_parts parts = {name, operand, g->state->op_names[n->op], target};
        result = report_fault((fe_fault)fault->code, &parts);
    }
    Py_XDECREF(target);
    Py_XDECREF(operand);
    Py_XDECREF(name);
    return result;
}

static PyObject *fault_list(GraphObject *g, const fe_report *faults)
{
    PyObject *list = PyList_New(0);

    for (uint32_t i = 0; list && i < faults->len; i++) {
        PyObject *fault = fault_tuple(g, &faults->items[i]);
        if (!fault || PyList_Append(list, fault) < 0)
            Py_CLEAR(list);
        Py_XDECREF(fault);
    }
    return list;
}

/* What the owning module (NULL: there is none) says of one target; -1 with an exception. */
static int resolve_target(GraphObject *g, uint32_t index, owning_walk *w)
{
    fe_target t = g->core->targets[index];
    int flags = 0;

    if (w && t.count && t.object == FE_NONE_ID && (t.op == FE_OP_GET_ATTR || t.op == FE_OP_CALL_MODULE))
        flags = owning_resolve(w, t.text->data, t.text->len, t.op == FE_OP_CALL_MODULE);
    if (flags < 0)
        return -1;
    const uint32_t told = FE_TARGET_MISSING | FE_TARGET_NOT_MODULE;
    g->core->targets[index].flags = (t.flags & ~told) | (uint32_t)flags;
    return 0;
}

static int resolve_targets(GraphObject *g)
{
    owning_walk w;
    int result = 0;

    bool owned = g->owning_module != NULL;
    if (owned)
        owning_walk_init(&w, g->state, g->owning_module);
    graph_pin(g);
    for (uint32_t i = 0; result == 0 && i < g->core->target_count; i++)
        result = resolve_target(g, i, owned ? &w : NULL);
    graph_unpin(g);
    if (owned)
        owning_walk_clear(&w);
    return result;
}

PyObject *Graph_lint(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    GraphObject *g = (GraphObject *)self;
    PyObject *result = NULL;
    fe_report faults;
    fe_error err;
    int flag[2], status;

    if (parse_flags("_lint", 2, args, nargs, kwnames, flag) < 0 || graph_readable(g) < 0 || resolve_targets(g) < 0)
        return NULL;
    fe_lint_options options = {
        .all = flag[0], .fx_only = flag[1], .names = !flag[1], .targets = g->owning_module != NULL};
    if (graph_readable(g) < 0) /* code of the owning module ran */
        return NULL;
    fe_report_init(&faults, g->core->allocator);
    graph_pin(g);
    status = fe_lint(g->core, &options, &faults, &err);
    if (status < 0)
        raise_core(g->state, &err);
    else
        result = fault_list(g, &faults);
    graph_unpin(g);
    fe_report_clear(&faults);
    return result;
}
