/* fx_lint.c - lint of a live torch.fx graph.
 *
 * The core's lint checks what a view shows: order, ownership, names, targets. What only a live graph can get wrong is
 * checked here: the users of a node are a dict of its own, and so is its list of operands, and either can disagree with
 * the arguments.
 */
#include "fx.h"

typedef struct {
    fx_view view;
    fe_report faults;
    bool all;
    fe_error err;
    uint32_t index; /* of the node whose arguments are looked at */
    int depth;
} linter;

static bool enough(const linter *t)
{
    return !t->all && t->faults.len;
}

/* def's users and user's arguments disagree. */
static int stale(linter *t, uint32_t def, uint32_t user)
{
    if (enough(t))
        return 0;
    if (fe_report_add(&t->faults, FE_FAULT_STALE_USERS, fx_view_id(def), fx_view_id(user), &t->err) == 0)
        return 0;
    raise_core(t->view.s.st, &t->err);
    return -1;
}

/* The index of a node; one that is met only here is added. */
static int index_of(linter *t, PyObject *node, uint32_t *out)
{
    *out = fx_snapshot_find(&t->view.s, node);
    return *out == FE_NONE_ID ? fx_snapshot_add(&t->view.s, node, out) : 0;
}

/* ---- users against operands --------------------------------------------------------------------------------------------- */

/* In most graphs users stand in the order of the list: then both sides are walked together. */
static bool same_users(const linter *t, uint32_t def, PyObject *users)
{
    const fe_graph *c = t->view.core;
    uint32_t e = c->details[fx_view_id(def)].first_user;
    PyObject *user, *value;
    Py_ssize_t at = 0;

    if (PyDict_GET_SIZE(users) != (Py_ssize_t)c->nodes[fx_view_id(def)].user_count)
        return false;
    while (e != FE_NONE_ID && PyDict_Next(users, &at, &user, &value) && t->view.s.nodes[c->edges[e].user - 1] == user)
        e = c->edges[e].next;
    return e == FE_NONE_ID;
}

static int check_users(linter *t, uint32_t def)
{
    const fe_graph *c = t->view.core;
    PyObject *users = fx_get(t->view.s.nodes[def], t->view.s.st->fx.users), *user, *value;
    Py_ssize_t at = 0;
    uint32_t index;

    if (!users || !PyDict_Check(users))
        return stale(t, def, def);
    if (same_users(t, def, users))
        return 0;
    while (PyDict_Next(users, &at, &user, &value)) {
        if (!fx_is_node(&t->view.s.st->fx, user))
            return stale(t, def, def);
        if (index_of(t, user, &index) < 0)
            return -1;
        bool listed = fx_view_id(index) < c->node_count;
        if ((!listed || fe_edge_find(c, fx_view_id(def), fx_view_id(index)) == FE_NONE_ID) && stale(t, def, index) < 0)
            return -1;
    }
    for (uint32_t e = c->details[fx_view_id(def)].first_user; e != FE_NONE_ID; e = c->edges[e].next) {
        index = c->edges[e].user - 1;
        int found = PyDict_Contains(users, t->view.s.nodes[index]);
        if (found < 0 || (!found && stale(t, def, index) < 0))
            return -1;
    }
    return 0;
}

/* ---- operands against arguments -------------------------------------------------------------------------------------------- */

/* Counts are zero before arguments are walked, and tell afterwards which operands they name. */
static int note_operand(linter *t, PyObject *node)
{
    fe_graph *c = t->view.core;
    const fe_node *user = &c->nodes[fx_view_id(t->index)];
    uint32_t def;

    for (uint32_t e = user->edge; e < user->edge + user->edge_count; e++) {
        if (t->view.s.nodes[c->edges[e].def - 1] == node) {
            c->edges[e].count++;
            return 0;
        }
    }
    return index_of(t, node, &def) < 0 ? -1 : stale(t, def, t->index);
}

static int note_operands(linter *t, PyObject *o);

static int note_items(linter *t, PyObject *o)
{
    for (Py_ssize_t i = 0; i < Py_SIZE(o); i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(o, i);
        if (item && note_operands(t, item) < 0)
            return -1;
    }
    return 0;
}

static int note_values(linter *t, PyObject *o)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;

    while (PyDict_Next(o, &at, &key, &value)) {
        if (note_operands(t, value) < 0)
            return -1;
    }
    return 0;
}

static int note_operands(linter *t, PyObject *o)
{
    const PySliceObject *slice = (PySliceObject *)o;
    unsigned long flags = Py_TYPE(o)->tp_flags;
    int result = 0;

    if (flags & (Py_TPFLAGS_LONG_SUBCLASS | Py_TPFLAGS_UNICODE_SUBCLASS))
        return 0;
    if (Py_TYPE(o) == t->view.s.st->fx.node_type)
        return note_operand(t, o);
    if (t->depth >= FE_MAX_DEPTH) {
        PyErr_Format(PyExc_RecursionError, "arguments are nested more than %d deep", FE_MAX_DEPTH);
        return -1;
    }
    t->depth++;
    if (PyTuple_Check(o) || PyList_Check(o))
        result = note_items(t, o);
    else if (PyDict_Check(o))
        result = note_values(t, o);
    else if (PySlice_Check(o))
        result = note_operands(t, slice->start) < 0 || note_operands(t, slice->stop) < 0
                     ? -1
                     : note_operands(t, slice->step);
    else if (fx_is_node(&t->view.s.st->fx, o))
        result = note_operand(t, o);
    t->depth--;
    return result;
}

static int check_arguments(linter *t, uint32_t index)
{
    const fx_layout *l = &t->view.s.st->fx;
    PyObject *args = fx_get(t->view.s.nodes[index], l->args), *kwargs = fx_get(t->view.s.nodes[index], l->kwargs);
    fe_edge *edges = t->view.core->edges;
    const fe_node *n = &t->view.core->nodes[fx_view_id(index)];

    if (!args || !kwargs)
        return stale(t, index, index);
    t->index = index;
    for (uint32_t e = n->edge; e < n->edge + n->edge_count; e++)
        edges[e].count = 0;
    if (note_operands(t, args) < 0 || note_operands(t, kwargs) < 0)
        return -1;
    for (uint32_t e = n->edge; e < n->edge + n->edge_count; e++) {
        if (!edges[e].count && stale(t, edges[e].def - 1, index) < 0)
            return -1;
    }
    return 0;
}

static int check_uses(linter *t)
{
    for (uint32_t i = 0; i < t->view.s.count && !enough(t); i++) {
        if (check_users(t, i) < 0 || check_arguments(t, i) < 0)
            return -1;
    }
    return 0;
}

/* ---- the whole --------------------------------------------------------------------------------------------------------------- */

static PyObject *fault_list(linter *t)
{
    PyObject *list = PyList_New(0);

    for (uint32_t i = 0; list && i < t->faults.len; i++) {
        PyObject *fault = fx_view_fault(&t->view, &t->faults.items[i]);
        if (!fault || PyList_Append(list, fault) < 0)
            Py_CLEAR(list);
        Py_XDECREF(fault);
    }
    return list;
}

const char fx_lint_doc[] = "fx_lint(fx_graph, all, fx_only, /)\n--\n\n"
                           "Check a live torch.fx.Graph. Returns the faults, at most one unless all, as tuples (fault "
                           "name, node name, operand\n"
                           "name or None, message). With fx_only, the checks are those of torch.fx's lint.";

PyObject *fx_lint(PyObject *m, PyObject *const *args, Py_ssize_t nargs)
{
    linter t = {0};
    PyObject *result = NULL;
    int all, fx_only;

    if (fx_arguments("fx_lint", nargs, 3) < 0 || (all = PyObject_IsTrue(args[1])) < 0 ||
        (fx_only = PyObject_IsTrue(args[2])) < 0)
        return NULL;
    const fx_wants wants = {.lint = true, .fx_only = fx_only, .operands = true};
    fe_lint_options options = {.all = all, .fx_only = fx_only};
    t.all = all;
    fe_report_init(&t.faults, &fe_python_allocator);
    if (fx_view_open(&t.view, state_of(m), args[0], &wants) < 0)
        goto done;
    options.targets = t.view.look;
    if (fe_lint(t.view.core, &options, &t.faults, &t.err) < 0) {
        raise_core(t.view.s.st, &t.err);
        goto done;
    }
    if (fx_only || enough(&t) || check_uses(&t) == 0)
        result = fault_list(&t);
done:
    fe_report_clear(&t.faults);
    fx_view_clear(&t.view);
    return result;
}
