/* fx_pass.c - the core's passes on live torch.fx graphs, in place.
 *
 * A view of the graph is read, the pass runs on the view in C, and its outcome is applied to torch's nodes by the bulk
 * edits of fx_edit.c. That takes a graph without surprises: one whose users and arguments agree, whose list reads the same
 * both ways, whose owning module has no hooks to call. For any other graph the functions here return None and have changed
 * nothing, and the caller goes node by node through torch's own methods.
 */
#include "fx.h"

static int parse_flags(PyObject *const *args, int count, int *out)
{
    for (int i = 0; i < count; i++) {
        if ((out[i] = PyObject_IsTrue(args[i])) < 0)
            return -1;
    }
    return 0;
}

/* The nodes of a report, each followed by that put in its place if there is one, held for as long as they are needed. */
typedef struct {
    PyObject **nodes; /* strong */
    uint32_t count;
} held_nodes;

static void held_clear(held_nodes *h)
{
    for (uint32_t i = 0; i < h->count; i++)
        Py_DECREF(h->nodes[i]);
    PyMem_RawFree(h->nodes);
    *h = (held_nodes){0};
}

static void hold(held_nodes *h, const fx_view *v, uint32_t id)
{
    if (id != FE_NONE_ID)
        h->nodes[h->count++] = Py_NewRef(v->s.nodes[id - 1]);
}

/* No Python code has run since the view was opened. */
static int held_take(held_nodes *h, const fx_view *v, const fe_report *r)
{
    h->nodes = PyMem_RawMalloc((2 * (size_t)r->len + 1) * sizeof *h->nodes);
    if (!h->nodes) {
        PyErr_NoMemory();
        return -1;
    }
    for (uint32_t i = 0; i < r->len; i++) {
        hold(h, v, r->items[i].node);
        hold(h, v, r->items[i].other);
    }
    return 0;
}

static PyObject *name_of(const module_state *st, PyObject *node)
{
    PyObject *name = fx_get(node, st->fx.name);

    return name ? name : Py_None;
}

/* ---- dead code ------------------------------------------------------------------------------------------------------- */

static PyObject *names_of(const module_state *st, const held_nodes *h)
{
    PyObject *list = PyList_New((Py_ssize_t)h->count);

    for (uint32_t i = 0; list && i < h->count; i++)
        PyList_SET_ITEM(list, i, Py_NewRef(name_of(st, h->nodes[i])));
    return list;
}

static PyObject *namer(void *ctx, uint32_t id)
{
    const fx_view *v = ctx;

    return Py_NewRef(name_of(v->s.st, v->s.nodes[id - 1]));
}

static PyObject *reasons_of(fx_view *v, const fe_dce_options *o, const fe_report *removed)
{
    fx_snapshot_hold(&v->s);
    return report_reasons(v->core, o, removed, namer, v);
}

/* What the pass found out, as it is returned; made before anything is applied, so that nothing can fail after. */
static PyObject *outcome(fx_view *v, const fe_dce_options *o, const fe_report *removed, bool explain, held_nodes *held)
{
    PyObject *names = NULL, *reasons = NULL, *result = NULL;

    if (held_take(held, v, removed) == 0 && (reasons = explain ? reasons_of(v, o, removed) : Py_NewRef(Py_None)) &&
        (names = names_of(v->s.st, held)))
        result = PyTuple_Pack(3, names, reasons, Py_None);
    Py_XDECREF(names);
    Py_XDECREF(reasons);
    return result;
}

static PyObject *first_fault(fx_view *v, const fe_report *faults)
{
    PyObject *fault = fx_fault(v, &faults->items[0]), *none = fault ? PyList_New(0) : NULL, *result = NULL;

    if (none)
        result = PyTuple_Pack(3, none, Py_None, fault);
    Py_XDECREF(none);
    Py_XDECREF(fault);
    return result;
}

/* torch.fx's purity check of such a node raises. */
static bool has_ownerless_module(const fx_view *v)
{
    for (uint32_t i = 0; v->owner == Py_None && i < v->s.calls.count; i++) {
        if (v->s.calls.items[i].nodes && v->s.calls.items[i].code == FE_OP_CALL_MODULE)
            return true;
    }
    return false;
}

static PyObject *eliminate(fx_view *v, const fe_dce_options *o, bool explain, bool hooks, fe_report *report)
{
    const fe_lint_options lint = {.fx_only = true, .targets = v->look};
    held_nodes held = {0};
    fe_error err;

    if (fe_lint(v->core, &lint, report, &err) < 0)
        return raise_core(v->s.st, &err);
    if (report->len)
        return first_fault(v, report);
    if (hooks || !v->plain || !v->s.regular || !fx_view_is_settled(v) || (o->fx_policy && has_ownerless_module(v)))
        return Py_NewRef(Py_None);
    if (fe_eliminate_dead_code(v->core, o, report, &err) < 0)
        return raise_core(v->s.st, &err);
    PyObject *result = outcome(v, o, report, explain, &held);
    if (result && held.count && fx_erase_nodes(v->s.st, v->s.graph, held.nodes, held.count) < 0)
        Py_CLEAR(result);
    held_clear(&held);
    return result;
}

const char fx_eliminate_dead_code_doc[] = "fx_eliminate_dead_code(fx_graph, fx_policy, keep_random, explain, /)\n--\n\n"
                                          "Lint a live torch.fx.Graph as torch.fx does, then run dead-code elimination "
                                          "in place. Returns a tuple (names of the\n"
                                          "removed nodes, dict from name to reason or None, the fault that lint found "
                                          "or None), or None when the graph can't be\n"
                                          "handled in bulk; with a fault, and with None, nothing was changed.";

PyObject *fx_eliminate_dead_code(PyObject *m, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *result = NULL;
    fe_report report;
    fx_view v;
    int flag[3], hooks;

    if (fx_arguments("fx_eliminate_dead_code", nargs, 4) < 0 || parse_flags(args + 1, 3, flag) < 0 ||
        (hooks = fx_has_hooks(args[0], "_erase_node_hooks")) < 0)
        return NULL;
    fe_dce_options options = {.fx_policy = flag[0], .keep_random = flag[1]};
    const fx_wants wants = {
        .lint = true, .fx_only = true, .facts = true, .fx_policy = flag[0], .operands = true, .bare = true};
    fe_report_init(&report, &fe_python_allocator);
    if (fx_view_open(&v, state_of(m), args[0], &wants) == 0)
        result = eliminate(&v, &options, flag[2], hooks, &report);
    fe_report_clear(&report);
    fx_view_clear(&v);
    return result;
}

/* ---- getitems ----------------------------------------------------------------------------------------------------------- */

static bool has_flag(const fx_view *v, uint32_t index, fe_target_flag flag)
{
    return v->s.calls.items[v->s.call[index]].flags & flag;
}

static int resolve(void *ctx, PyObject *o, fe_value *out)
{
    const fx_view *v = ctx;

    if (!fx_is_node(&v->s.st->fx, o))
        return 0;
    uint32_t index = fx_snapshot_find(&v->s, o);
    if (index == FE_NONE_ID) {
        PyErr_SetString(PyExc_ValueError,
                        "an index is a node that is not in the graph; fastexport.lint(graph) tells more");
        return -1;
    }
    *out = (fe_value){.kind = FE_NODE, .as.node = fx_view_id(index)};
    return 1;
}

/* The index of a getitem: 1, 0 when it can't be handled here, or -1. For torch.fx's policy its text is all that counts,
 * f"{index}"; that of a node in it would change with the graph. */
static int read_index(fx_view *v, PyObject *o, bool fx_policy, fe_value *out)
{
    if (!fx_policy || PyLong_CheckExact(o))
        return value_from_python_with(v->g, o, resolve, v, true, out) < 0 ? -1 : 1;
    int named = fx_names_node(&v->s.st->fx, o);
    if (named)
        return named < 0 ? -1 : 0;
    fx_snapshot_hold(&v->s); /* for the text is made by Python code */
    PyObject *text = PyObject_Format(o, NULL);
    int result = text ? value_from_python_with(v->g, text, resolve, v, true, out) : -1;
    Py_XDECREF(text);
    return result < 0 ? -1 : 1;
}

/* 1: the arguments of a getitem are read, 0: it is not of the form (node before it, index), or -1. */
static int read_getitem(fx_view *v, uint32_t index, bool fx_policy, fe_seq **out)
{
    PyObject *args = fx_get(v->s.nodes[index], v->s.st->fx.args),
             *kwargs = fx_get(v->s.nodes[index], v->s.st->fx.kwargs);
    fe_value value;
    fe_error err;

    if (!args || !PyTuple_Check(args) || PyTuple_GET_SIZE(args) != 2 || !kwargs || !PyDict_Check(kwargs) ||
        PyDict_GET_SIZE(kwargs))
        return 0;
    uint32_t source = fx_snapshot_find(&v->s, PyTuple_GET_ITEM(args, 0));
    if (source >= index)
        return 0;
    PyObject *o = Py_NewRef(PyTuple_GET_ITEM(args, 1));
    int result = read_index(v, o, fx_policy, &value);
    Py_DECREF(o);
    if (result < 1)
        return result;
    fe_seq *s = fe_seq_new(v->core, 2, FE_NONE_ID, &err);
    if (!s) {
        raise_core(v->s.st, &err);
        return -1;
    }
    s->items[0] = (fe_value){.kind = FE_NODE, .as.node = fx_view_id(source)};
    s->items[1] = value;
    *out = s;
    return 1;
}

/* The key of a getitem begins with the name of its source: 1, 0 when that is no plain string, or -1. */
static int name_source(fx_view *v, uint32_t id)
{
    PyObject *name = name_of(v->s.st, v->s.nodes[id - 1]);

    if (v->core->details[id].name)
        return 1;
    if (!PyUnicode_CheckExact(name))
        return 0;
    v->core->details[id].name = name_from_python(v->g, name, "name of a node");
    return v->core->details[id].name ? 1 : -1;
}

/* Give the view's getitems their arguments: 1, 0 when that can't be done in bulk, or -1. */
static int read_getitems(fx_view *v, bool fx_policy)
{
    for (uint32_t i = 0; i < v->s.count; i++) {
        fe_seq *args = NULL;
        if (!has_flag(v, i, FE_TARGET_GETITEM))
            continue;
        int result = read_getitem(v, i, fx_policy, &args);
        if (result < 0 || (!result && fx_policy))
            return result;
        v->core->details[fx_view_id(i)].args = args;
        if (fx_policy && (result = name_source(v, args->items[0].as.node)) < 1)
            return result;
    }
    return 1;
}

static PyObject *pair_list(const held_nodes *h)
{
    PyObject *list = PyList_New((Py_ssize_t)h->count / 2);

    for (uint32_t i = 0; list && i < h->count; i += 2) {
        PyObject *pair = PyTuple_Pack(2, h->nodes[i], h->nodes[i + 1]);
        if (!pair)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i / 2, pair);
    }
    return list;
}

static int apply_pairs(module_state *st, PyObject *graph, const held_nodes *h)
{
    uint32_t count = h->count / 2;
    PyObject **removed = PyMem_RawMalloc((count + 1) * sizeof *removed);
    int result = 0;

    if (!removed) {
        PyErr_NoMemory();
        return -1;
    }
    for (uint32_t i = 0; i < count; i++)
        removed[i] = h->nodes[2 * i];
    if (count)
        result = fx_replace_pairs(st, h->nodes, count) < 0 ? -1 : fx_erase_nodes(st, graph, removed, count);
    PyMem_RawFree(removed);
    return result;
}

static PyObject *eliminate_getitems(fx_view *v, bool fx_policy, bool apply, bool hooks, fe_report *repeated)
{
    const fe_renderer renderer = {0};
    const fe_getitem_options options = {.fx_policy = fx_policy, .renderer = &renderer};
    held_nodes held = {0};
    PyObject *pairs = NULL;
    fe_error err;

    if (apply && (hooks || !v->plain || !v->s.regular))
        return Py_NewRef(Py_None);
    int readable = read_getitems(v, fx_policy);
    if (readable < 1)
        return readable < 0 ? NULL : Py_NewRef(Py_None);
    if (fe_find_repeated_getitems(v->core, &options, repeated, &err) < 0)
        return raise_core(v->s.st, &err);
    if (held_take(&held, v, repeated) == 0)
        pairs = pair_list(&held);
    if (pairs && apply && apply_pairs(v->s.st, v->s.graph, &held) < 0)
        Py_CLEAR(pairs);
    held_clear(&held);
    return pairs;
}

static bool has_getitems(const fx_snapshot *s)
{
    for (uint32_t i = 0; i < s->calls.count; i++) {
        if (s->calls.items[i].nodes && s->calls.items[i].flags & FE_TARGET_GETITEM)
            return true;
    }
    return false;
}

/* Whether any getitem repeats another if nothing writes: only then do facts about targets matter. 1, 0 or -1. */
static int any_repeated(module_state *st, PyObject *graph)
{
    const fe_getitem_options options = {.ignore_writes = true};
    const fx_wants wants = {.facts = false};
    fe_report repeated;
    int result = -1;
    fe_error err;
    fx_view v;

    fe_report_init(&repeated, &fe_python_allocator);
    if (fx_view_open(&v, st, graph, &wants) == 0) {
        result = has_getitems(&v.s) ? read_getitems(&v, false) : 0;
        if (result > 0 && fe_find_repeated_getitems(v.core, &options, &repeated, &err) < 0) {
            raise_core(st, &err);
            result = -1;
        }
        if (result > 0)
            result = repeated.len > 0;
    }
    fe_report_clear(&repeated);
    fx_view_clear(&v);
    return result;
}

const char fx_eliminate_getitems_doc[] = "fx_eliminate_getitems(fx_graph, fx_policy, apply, /)\n--\n\n"
                                         "Find the getitem nodes of a live torch.fx.Graph that an earlier one can "
                                         "stand for; returns the pairs (removed node,\n"
                                         "kept node) in order. With apply, the uses are replaced and the nodes erased. "
                                         "Returns None, with nothing changed, when\n"
                                         "the graph can't be handled in bulk.";

PyObject *fx_eliminate_getitems(PyObject *m, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *result = NULL;
    fe_report repeated;
    fx_view v;
    int flag[2], replace_hooks, erase_hooks, any;

    if (fx_arguments("fx_eliminate_getitems", nargs, 3) < 0 || parse_flags(args + 1, 2, flag) < 0 ||
        (replace_hooks = fx_has_hooks(args[0], "_replace_hooks")) < 0 ||
        (erase_hooks = fx_has_hooks(args[0], "_erase_node_hooks")) < 0)
        return NULL;
    if (!flag[0] && (any = any_repeated(state_of(m), args[0])) <= 0)
        return any < 0 ? NULL : PyList_New(0);
    const fx_wants wants = {.facts = !flag[0], .operands_if_writes = !flag[0]};
    fe_report_init(&repeated, &fe_python_allocator);
    if (fx_view_open(&v, state_of(m), args[0], &wants) == 0)
        result = has_getitems(&v.s) ? eliminate_getitems(&v, flag[0], flag[1], replace_hooks || erase_hooks, &repeated)
                                    : PyList_New(0);
    fe_report_clear(&repeated);
    fx_view_clear(&v);
    return result;
}
