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
static int note_operand(void *ctx, PyObject *node)
{
    linter *t = ctx;
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
    if (fx_each_node(l, args, note_operand, t) < 0 || fx_each_node(l, kwargs, note_operand, t) < 0)
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

/* ---- faults as Python objects ---------------------------------------------------------------------------------------------------------------- */

/* The name of a node as text, in whatever state it is. */
static PyObject *name_text(const fx_view *v, uint32_t id)
{
    PyObject *name = fx_get(v->s.nodes[id - 1], v->s.st->fx.name);

    return PyObject_Str(name ? name : Py_None);
}

PyObject *fx_fault(fx_view *v, const fe_record *fault)
{
    fx_snapshot_hold(&v->s);
    bool listed = fault->node <= v->s.count;
    const fx_call *call = listed ? &v->s.calls.items[v->s.call[fault->node - 1]] : NULL;
    PyObject *name = name_text(v, fault->node), *result = NULL;
    PyObject *operand = fault->other == FE_NONE_ID ? Py_NewRef(Py_None) : name_text(v, fault->other);

    if (name && operand) {
        const fault_parts parts = {name, operand, call && call->op ? call->op : Py_None,
                                   call && call->target ? call->target : Py_None};
        result = report_fault((fe_fault)fault->code, &parts);
    }
    Py_XDECREF(name);
    Py_XDECREF(operand);
    return result;
}

/* ---- the whole --------------------------------------------------------------------------------------------------------------- */

static PyObject *fault_list(linter *t)
{
    PyObject *list = PyList_New(0);

    for (uint32_t i = 0; list && i < t->faults.len; i++) {
        PyObject *fault = fx_fault(&t->view, &t->faults.items[i]);
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

/* Whether a graph has no fault at all, which takes one walk to tell: 1, 0 when it has to be looked at closely, or -1. */
static int is_sound(linter *t, module_state *st, PyObject *graph, bool fx_only)
{
    const fx_wants wants = {.lint = true, .fx_only = fx_only, .operands = fx_only, .uses = !fx_only, .bare = true};
    int result = fx_view_open(&t->view, st, graph, &wants);
    const fe_lint_options options = {.fx_only = fx_only, .targets = t->view.look};

    if (result == 0 && !fx_only && !fx_view_is_even(&t->view))
        return 0;
    if (result == 0 && (result = fe_lint(t->view.core, &options, &t->faults, &t->err)) < 0)
        raise_core(st, &t->err);
    return result < 0 ? -1 : t->faults.len == 0;
}

static PyObject *lint(linter *t, module_state *st, PyObject *graph, bool fx_only)
{
    const fx_wants wants = {.lint = true, .fx_only = fx_only, .operands = true};

    if (fx_view_open(&t->view, st, graph, &wants) < 0)
        return NULL;
    const fe_lint_options options = {.all = t->all, .fx_only = fx_only, .targets = t->view.look};
    if (fe_lint(t->view.core, &options, &t->faults, &t->err) < 0)
        return raise_core(st, &t->err);
    return fx_only || enough(t) || check_uses(t) == 0 ? fault_list(t) : NULL;
}

PyObject *fx_lint(PyObject *m, PyObject *const *args, Py_ssize_t nargs)
{
    linter t = {0};
    PyObject *result = NULL;
    int all, fx_only, sound = 0;

    if (fx_arguments("fx_lint", nargs, 3) < 0 || (all = PyObject_IsTrue(args[1])) < 0 ||
        (fx_only = PyObject_IsTrue(args[2])) < 0)
        return NULL;
    t.all = all;
    fe_report_init(&t.faults, &fe_python_allocator);
    if (!all) {
        sound = is_sound(&t, state_of(m), args[0], fx_only);
        t.faults.len = 0;
        fx_view_clear(&t.view);
    }
    if (sound > 0)
        result = PyList_New(0);
    else if (sound == 0)
        result = lint(&t, state_of(m), args[0], fx_only);
    fe_report_clear(&t.faults);
    fx_view_clear(&t.view);
    return result;
}
