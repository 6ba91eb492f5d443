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

/* The torch node of an id. */
static PyObject *node_at(const fx_view *v, uint32_t id)
{
    return v->s.nodes[id - 1];
}

static PyObject *name_at(const fx_view *v, uint32_t id)
{
    PyObject *name = fx_get(node_at(v, id), v->s.st->fx.name);

    return name ? name : Py_None;
}

/* Whether the pass may do without torch's methods. */
static int is_simple(const fx_view *v, const char *hooks)
{
    int any = fx_has_hooks(v->s.graph, hooks);

    if (any)
        return any < 0 ? -1 : 0;
    for (uint32_t i = 0; i < v->s.count; i++) {
        if (!fx_is_plain(&v->s.st->fx, v->s.nodes[i]))
            return 0;
    }
    return v->s.regular;
}

/* ---- dead code ------------------------------------------------------------------------------------------------------- */

static PyObject *names_of(const fx_view *v, const fe_report *r)
{
    PyObject *list = PyList_New((Py_ssize_t)r->len);

    for (uint32_t i = 0; list && i < r->len; i++)
        PyList_SET_ITEM(list, i, Py_NewRef(name_at(v, r->items[i].node)));
    return list;
}

static int add_reason(const fx_view *v, PyObject *dict, uint32_t id, fe_reason reason)
{
    PyObject *text = PyUnicode_FromString(fe_reason_text(reason));
    int result = text ? PyDict_SetItem(dict, name_at(v, id), text) : -1;

    Py_XDECREF(text);
    return result;
}

/* What is left was kept for its effect or its users, what is in the report was removed. */
static PyObject *reasons_of(const fx_view *v, const fe_dce_options *o, const fe_report *removed)
{
    const fe_graph *c = v->core;
    PyObject *dict = PyDict_New();
    int result = dict ? 0 : -1;

    for (uint32_t id = c->nodes[FE_ROOT].next; result == 0 && id != FE_ROOT; id = c->nodes[id].next) {
        fe_reason effect = fe_node_effect(c, id, o);
        result = add_reason(v, dict, id, effect == FE_REASON_UNUSED ? FE_REASON_USED : effect);
    }
    for (uint32_t i = 0; result == 0 && i < removed->len; i++)
        result = add_reason(v, dict, removed->items[i].node, FE_REASON_UNUSED);
    if (result < 0)
        Py_CLEAR(dict);
    return dict;
}

/* Erase the reported nodes from the torch graph. */
static int apply_removal(const fx_view *v, const fe_report *removed)
{
    PyObject **nodes = PyMem_RawMalloc((removed->len + 1) * sizeof *nodes);

    if (!nodes) {
        PyErr_NoMemory();
        return -1;
    }
    for (uint32_t i = 0; i < removed->len; i++)
        nodes[i] = node_at(v, removed->items[i].node);
    int result = removed->len ? fx_erase_nodes(v->s.st, v->s.graph, nodes, removed->len) : 0;
    PyMem_RawFree(nodes);
    return result;
}

/* What the pass found out, as it is returned; made before anything is applied, so that nothing can fail after. */
static PyObject *outcome(const fx_view *v, const fe_dce_options *o, const fe_report *removed, bool explain)
{
    PyObject *names = names_of(v, removed), *reasons = NULL, *result = NULL;

    if (names && (reasons = explain ? reasons_of(v, o, removed) : Py_NewRef(Py_None)))
        result = PyTuple_Pack(3, names, reasons, Py_None);
    Py_XDECREF(names);
    Py_XDECREF(reasons);
    return result;
}

static PyObject *first_fault(const fx_view *v, const fe_report *faults)
{
    PyObject *fault = fx_view_fault(v, &faults->items[0]), *none = fault ? PyList_New(0) : NULL, *result = NULL;

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
        if (v->s.calls.items[i].code == FE_OP_CALL_MODULE)
            return true;
    }
    return false;
}

static PyObject *eliminate(const fx_view *v, const fe_dce_options *o, bool explain, fe_report *report)
{
    const fe_lint_options lint = {.fx_only = true};
    int simple = is_simple(v, "_erase_node_hooks");
    fe_error err;

    if (simple < 0)
        return NULL;
    if (fe_lint(v->core, &lint, report, &err) < 0)
        return raise_core(v->s.st, &err);
    if (report->len)
        return first_fault(v, report);
    if (!simple || !fx_view_is_settled(v) || (o->fx_policy && has_ownerless_module(v)))
        return Py_NewRef(Py_None);
    if (fe_eliminate_dead_code(v->core, o, report, &err) < 0)
        return raise_core(v->s.st, &err);
    PyObject *result = outcome(v, o, report, explain);
    if (result && apply_removal(v, report) < 0)
        Py_CLEAR(result);
    return result;
}

const char fx_eliminate_dead_code_doc[] =
    "fx_eliminate_dead_code(fx_graph, fx_policy, keep_random, explain, /)\n--\n\n"
    "Lint a live torch.fx.Graph as torch.fx does, then run dead-code elimination in place. Returns a tuple (names of the\n"
    "removed nodes, dict from name to reason or None, the fault that lint found or None), or None when the graph can't be\n"
    "handled in bulk; with a fault, and with None, nothing was changed.";

PyObject *fx_eliminate_dead_code(PyObject *m, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *result = NULL;
    fe_report report;
    fx_view v;
    int flag[3];

    if (fx_arguments("fx_eliminate_dead_code", nargs, 4) < 0 || parse_flags(args + 1, 3, flag) < 0)
        return NULL;
    fe_dce_options options = {.fx_policy = flag[0], .keep_random = flag[1]};
    const fx_wants wants = {.lint = true, .fx_only = true, .facts = true, .fx_policy = flag[0], .operands = true};
    fe_report_init(&report, &fe_python_allocator);
    if (fx_view_open(&v, state_of(m), args[0], &wants) == 0)
        result = eliminate(&v, &options, flag[2], &report);
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
        PyErr_SetString(PyExc_ValueError, "an index is a node that is not in the graph; fastexport.lint(graph) tells more");
        return -1;
    }
    *out = (fe_value){.kind = FE_NODE, .as.node = fx_view_id(index)};
    return 1;
}

static bool has_node(const fx_layout *l, PyObject *o)
{
    const PySliceObject *slice = (PySliceObject *)o;
    PyObject *key, *value;
    Py_ssize_t at = 0;

    if (PyTuple_Check(o) || PyList_Check(o)) {
        for (Py_ssize_t i = 0; i < Py_SIZE(o); i++) {
            if (has_node(l, PySequence_Fast_GET_ITEM(o, i)))
                return true;
        }
    } else if (PyDict_Check(o)) {
        while (PyDict_Next(o, &at, &key, &value)) {
            if (has_node(l, value))
                return true;
        }
    } else if (PySlice_Check(o)) {
        return has_node(l, slice->start) || has_node(l, slice->stop) || has_node(l, slice->step);
    }
    return fx_is_node(l, o);
}

/* The index of a getitem: 1, 0 when it can't be handled here, or -1. For torch.fx's policy its text is all that counts,
 * f"{index}"; that of a node in it would change with the graph. */
static int read_index(fx_view *v, PyObject *o, bool fx_policy, fe_value *out)
{
    if (!fx_policy || PyLong_CheckExact(o))
        return value_from_python_with(v->g, o, resolve, v, true, out) < 0 ? -1 : 1;
    if (has_node(&v->s.st->fx, o))
        return 0;
    PyObject *text = PyObject_Format(o, NULL);
    int result = text ? value_from_python_with(v->g, text, resolve, v, true, out) : -1;
    Py_XDECREF(text);
    return result < 0 ? -1 : 1;
}

/* 1: the arguments of a getitem are read, 0: it is not of the form (node before it, index), or -1. */
static int read_getitem(fx_view *v, uint32_t index, bool fx_policy, fe_seq **out)
{
    PyObject *args = fx_get(v->s.nodes[index], v->s.st->fx.args), *kwargs = fx_get(v->s.nodes[index], v->s.st->fx.kwargs);
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

/* The key of a getitem begins with the name of its source. */
static int name_source(fx_view *v, uint32_t id)
{
    PyObject *name = name_at(v, id);
    fe_string *text = v->core->details[id].name;

    if (text)
        return 1;
    if (!PyUnicode_CheckExact(name))
        return 0;
    if (!(text = string_from_python(v->g, name)))
        return -1;
    v->core->details[id].name = text;
    return 1;
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

static PyObject *pair_list(const fx_view *v, const fe_report *r)
{
    PyObject *list = PyList_New((Py_ssize_t)r->len);

    for (uint32_t i = 0; list && i < r->len; i++) {
        PyObject *pair = PyTuple_Pack(2, node_at(v, r->items[i].node), node_at(v, r->items[i].other));
        if (!pair)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, pair);
    }
    return list;
}

static int apply_pairs(const fx_view *v, const fe_report *r)
{
    for (uint32_t i = 0; i < r->len; i++) {
        if (fx_replace_uses(v->s.st, node_at(v, r->items[i].node), node_at(v, r->items[i].other)) < 0)
            return -1;
    }
    return apply_removal(v, r);
}

static PyObject *eliminate_getitems(fx_view *v, bool fx_policy, bool apply, fe_report *repeated)
{
    const fe_renderer renderer = {0};
    const fe_getitem_options options = {.fx_policy = fx_policy, .renderer = &renderer};
    int simple = apply ? is_simple(v, "_replace_hooks") : 1, erases = apply && simple > 0 ? is_simple(v, "_erase_node_hooks") : 1;
    fe_error err;

    if (simple > 0 && erases > 0)
        simple = read_getitems(v, fx_policy);
    if (simple < 0 || erases < 0)
        return NULL;
    if (!simple || !erases)
        return Py_NewRef(Py_None);
    if (fe_find_repeated_getitems(v->core, &options, repeated, &err) < 0)
        return raise_core(v->s.st, &err);
    PyObject *pairs = pair_list(v, repeated);
    if (pairs && apply && apply_pairs(v, repeated) < 0)
        Py_CLEAR(pairs);
    return pairs;
}

static bool has_getitems(const fx_snapshot *s)
{
    for (uint32_t i = 0; i < s->calls.count; i++) {
        if (s->calls.items[i].code == FE_OP_CALL_FUNCTION && s->calls.items[i].target == s->st->getitem)
            return true;
    }
    return false;
}

const char fx_eliminate_getitems_doc[] =
    "fx_eliminate_getitems(fx_graph, fx_policy, apply, /)\n--\n\n"
    "Find the getitem nodes of a live torch.fx.Graph that an earlier one can stand for; returns the pairs (removed node,\n"
    "kept node) in order. With apply, the uses are replaced and the nodes erased. Returns None, with nothing changed, when\n"
    "the graph can't be handled in bulk.";

PyObject *fx_eliminate_getitems(PyObject *m, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *result = NULL;
    fe_report repeated;
    fx_view v;
    int flag[2];

    if (fx_arguments("fx_eliminate_getitems", nargs, 3) < 0 || parse_flags(args + 1, 2, flag) < 0)
        return NULL;
    const fx_wants wants = {.facts = !flag[0], .operands_if_writes = !flag[0]};
    fe_report_init(&repeated, &fe_python_allocator);
    if (fx_view_open(&v, state_of(m), args[0], &wants) == 0)
        result = has_getitems(&v.s) ? eliminate_getitems(&v, flag[0], flag[1], &repeated) : PyList_New(0);
    fe_report_clear(&repeated);
    fx_view_clear(&v);
    return result;
}
