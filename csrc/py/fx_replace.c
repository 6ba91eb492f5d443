/* fx_replace.c - put nodes in the place of others in all their users. */
#include "fx_edit.h"

/* Put a user at the end of its operand's users, where it mostly is already. Where memory runs out between the two steps it
 * is put back by a second try; nothing better can be done. */
static int move_last(PyObject *users, PyObject *user)
{
    PyObject *last = NULL, *value;
    Py_ssize_t at = 0;

    if (PyDict_GET_SIZE(users) <= 4) {
        while (PyDict_Next(users, &at, &last, &value))
            ;
        if (last == user)
            return 0;
    }
    fx_discard(users, user);
    if (PyDict_SetItem(users, user, Py_None) == 0)
        return 0;
    PyErr_Clear();
    PyDict_SetItem(users, user, Py_None);
    if (!PyErr_Occurred())
        PyErr_NoMemory();
    return -1;
}

/* As torch.fx: user leaves the users of all its old operands and comes last in those of all the new ones. */
static int leave_operands(const fx_layout *l, PyObject *user, PyObject *old, PyObject *new)
{
    PyObject *operand, *value;
    Py_ssize_t at = 0;
    int result = 0;

    while (PyDict_Next(old, &at, &operand, &value)) {
        PyObject *users = fx_is_node(l, operand) ? fx_get(operand, l->users) : NULL;
        if (!users || !PyDict_Check(users))
            continue;
        Py_INCREF(users);
        int kept = PyDict_Contains(new, operand);
        if (kept < 0 || (kept && move_last(users, user) < 0))
            result = -1;
        else if (!kept)
            fx_discard(users, user);
        Py_DECREF(users);
    }
    return result;
}

/* Give a node new arguments and operands; the references become the node's, the old ones come back in their place. */
static int update(const fx_layout *l, PyObject *user, PyObject **args, PyObject **kwargs, PyObject **inputs)
{
    PyObject *old = fx_dict_slot(user, l->input_nodes, "_input_nodes");

    if (!old || fx_join_operands(l, user, old, *inputs) < 0)
        return -1;
    fx_swap(fx_slot(user, l->args), args);
    fx_swap(fx_slot(user, l->kwargs), kwargs);
    fx_swap(fx_slot(user, l->input_nodes), inputs);
    return leave_operands(l, user, old, fx_get(user, l->input_nodes));
}

/* ---- replacing in place: the usual case ---- */

#define FEW 16u

typedef struct {
    PyObject *nodes[FEW]; /* borrowed, distinct, in order */
    uint32_t count;
    bool full; /* there were more */
} few_nodes;

static bool few_has(const few_nodes *f, PyObject *node)
{
    for (uint32_t i = 0; i < f->count; i++) {
        if (f->nodes[i] == node)
            return true;
    }
    return false;
}

static void few_add(few_nodes *f, PyObject *node)
{
    if (few_has(f, node))
        return;
    if (f->count == FEW)
        f->full = true;
    else
        f->nodes[f->count++] = node;
}

/* The nodes that a tree will name once new stands for old. */
typedef struct {
    few_nodes *few;
    PyObject *old, *new;
} renaming;

static int few_add_renamed(void *ctx, PyObject *node)
{
    const renaming *r = ctx;

    few_add(r->few, node == r->old ? r->new : node);
    return 0;
}

static void few_from_dict(few_nodes *f, PyObject *dict)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;

    while (PyDict_Next(dict, &at, &key, &value))
        few_add(f, key);
}

/* Whether taking old out of the operands and putting new behind them gives the order of the arguments. */
static bool is_appended(const few_nodes *before, const few_nodes *after, PyObject *old, PyObject *new)
{
    uint32_t k = 0;

    if (few_has(before, new) || !few_has(before, old))
        return false;
    for (uint32_t i = 0; i < before->count; i++) {
        if (before->nodes[i] != old && (k == after->count || after->nodes[k++] != before->nodes[i]))
            return false;
    }
    return k + 1 == after->count && after->nodes[k] == new;
}

static int all_are_plain(const fx_layout *l, const few_nodes *f)
{
    for (uint32_t i = 0; i < f->count; i++) {
        PyObject *users = fx_is_plain(l, f->nodes[i]) ? fx_get(f->nodes[i], l->users) : NULL;
        if (!users || !PyDict_CheckExact(users))
            return false;
    }
    return true;
}

/* The operand list of a user after the change: changed in place, or a new one in *made. */
static int change_operands(PyObject *inputs, const few_nodes *before, const few_nodes *after, PyObject *old,
                           PyObject *new, PyObject **made)
{
    *made = NULL;
    if (is_appended(before, after, old, new)) {
        if (PyDict_SetItem(inputs, new, Py_None) < 0)
            return -1;
        fx_discard(inputs, old);
        return 0;
    }
    if (!(*made = PyDict_New()))
        return -1;
    for (uint32_t i = 0; i < after->count; i++) {
        if (PyDict_SetItem(*made, after->nodes[i], Py_None) < 0) {
            Py_CLEAR(*made);
            return -1;
        }
    }
    return 0;
}

/* Replace in arguments that can be rewritten in place, among few operands: 1 done, 0 not such a case, or -1. */
static int replace_in_place(module_state *st, PyObject *user, PyObject *old, PyObject *new)
{
    const fx_layout *l = &st->fx;
    PyObject *args = fx_get(user, l->args), *kwargs = fx_get(user, l->kwargs), *inputs = fx_get(user, l->input_nodes);
    few_nodes before = {0}, after = {0};
    renaming renamed = {&after, old, new};
    bool names = false, named = false;
    PyObject *made;

    if (!args || !PyTuple_CheckExact(args) || !kwargs || (PyObject *)Py_TYPE(kwargs) != st->dict_type || !inputs ||
        !PyDict_CheckExact(inputs) || !fx_may_rewrite(st, args, old, &names) ||
        !fx_may_rewrite(st, kwargs, old, &named))
        return 0;
    few_from_dict(&before, inputs);
    if (fx_each_node(l, args, few_add_renamed, &renamed) < 0)
        return -1;
    if (before.full || after.full || !all_are_plain(l, &before) || !all_are_plain(l, &after) || !few_has(&before, old))
        return 0;
    if (!few_has(&before, new) && PyDict_SetItem(fx_get(new, l->users), user, Py_None) < 0)
        return -1;
    if (change_operands(inputs, &before, &after, old, new, &made) < 0) {
        if (!few_has(&before, new))
            fx_discard(fx_get(new, l->users), user);
        return -1;
    }
    if (made)
        *fx_slot(user, l->input_nodes) = made;
    fx_rewrite(st, args, old, new);
    int result = 1;
    for (uint32_t i = 0; i < before.count; i++) {
        PyObject *users = fx_get(before.nodes[i], l->users);
        if (!few_has(&after, before.nodes[i]))
            fx_discard(users, user);
        else if (move_last(users, user) < 0)
            result = -1;
    }
    if (made)
        Py_DECREF(inputs);
    return result;
}

static int replace_in_user(module_state *st, PyObject *user, PyObject *old, PyObject *new)
{
    fx_mapper m = {.st = st, .old = old, .new = new};
    PyObject *args, *kwargs = NULL, *inputs = NULL;
    int result = -1;

    if (!fx_is_plain(&st->fx, user)) {
        PyObject *done = PyObject_CallMethod(user, "_replace_input_with", "OO", old, new);
        Py_XDECREF(done);
        return done ? 0 : -1;
    }
    int done = replace_in_place(st, user, old, new);
    if (done)
        return done < 0 ? -1 : 0;
    if ((args = fx_map_slot(&m, user, st->fx.args)) && (kwargs = fx_map_slot(&m, user, st->fx.kwargs)) &&
        (inputs = fx_mapped_operands(&m)))
        result = update(&st->fx, user, &args, &kwargs, &inputs);
    fx_mapper_clear(&m);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    Py_XDECREF(inputs);
    return result;
}

static int replace_uses(module_state *st, PyObject *old, PyObject *new)
{
    PyObject *users = fx_dict_slot(old, st->fx.users, "users"), *only = NULL, *value;
    Py_ssize_t at = 0;
    int result;

    if (!users)
        return -1;
    if (PyDict_GET_SIZE(users) == 1 && PyDict_Next(users, &at, &only, &value) && fx_is_node(&st->fx, only)) {
        Py_INCREF(only);
        result = replace_in_user(st, only, old, new);
        Py_DECREF(only);
        return result;
    }
    PyObject *list = PyDict_Keys(users);
    result = list ? 0 : -1;
    for (Py_ssize_t i = 0; result == 0 && i < PyList_GET_SIZE(list); i++) {
        PyObject *user = PyList_GET_ITEM(list, i); /* the list is ours */
        if (fx_is_node(&st->fx, user)) {
            result = replace_in_user(st, user, old, new);
        } else {
            PyErr_SetString(PyExc_TypeError, "users of a torch.fx.Node holds something that is no torch.fx.Node");
            result = -1;
        }
    }
    Py_XDECREF(list);
    return result;
}

int fx_replace_pairs(module_state *st, PyObject *const *pairs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (replace_uses(st, pairs[2 * i], pairs[2 * i + 1]) < 0)
            return -1;
    }
    return 0;
}

/* The nodes of a list of pairs, held, one after the other; NULL with an exception. */
static PyObject **nodes_of_pairs(const module_state *st, PyObject *pairs)
{
    Py_ssize_t count = PyList_GET_SIZE(pairs);
    PyObject **nodes = PyMem_RawMalloc((2 * (size_t)count + 1) * sizeof *nodes);

    if (!nodes)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; nodes && i < count; i++) {
        PyObject *pair = PyList_GET_ITEM(pairs, i);
        if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2 || !fx_is_node(&st->fx, PyTuple_GET_ITEM(pair, 0)) ||
            !fx_is_node(&st->fx, PyTuple_GET_ITEM(pair, 1))) {
            PyErr_SetString(PyExc_TypeError, "fx_replace_all_uses() takes pairs (old, new) of torch.fx.Node");
            PyMem_RawFree(nodes);
            return NULL;
        }
        nodes[2 * i] = PyTuple_GET_ITEM(pair, 0);
        nodes[2 * i + 1] = PyTuple_GET_ITEM(pair, 1);
    }
    for (Py_ssize_t i = 0; nodes && i < 2 * count; i++)
        Py_INCREF(nodes[i]);
    return nodes;
}

static int replace_by_method(PyObject *const *pairs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        PyObject *done = PyObject_CallMethod(pairs[2 * i], "replace_all_uses_with", "O", pairs[2 * i + 1]);
        if (!done)
            return -1;
        Py_DECREF(done);
    }
    return 0;
}

const char fx_replace_all_uses_doc[] = "fx_replace_all_uses(fx_graph, pairs, /)\n--\n\n"
                                       "For each pair (old, new) of nodes put new in the place of old in all its "
                                       "users, one pair after the other, with the\n"
                                       "result of old.replace_all_uses_with(new); with hooks, that method is called.";

PyObject *fx_replace_all_uses(PyObject *m, PyObject *const *args, Py_ssize_t nargs)
{
    module_state *st = state_of(m);
    PyObject *list, *root, **pairs;
    int hooks, result;

    if (fx_arguments("fx_replace_all_uses", nargs, 2) < 0 || fx_check_graph(st, args[0], &root) < 0)
        return NULL;
    Py_DECREF(root);
    if ((hooks = fx_has_hooks(args[0], "_replace_hooks")) < 0 || !(list = PySequence_List(args[1])))
        return NULL;
    uint32_t count = (uint32_t)PyList_GET_SIZE(list);
    pairs = nodes_of_pairs(st, list);
    Py_DECREF(list);
    if (!pairs)
        return NULL;
    result = hooks ? replace_by_method(pairs, count) : fx_replace_pairs(st, pairs, count);
    for (uint32_t i = 0; i < 2 * count; i++)
        Py_DECREF(pairs[i]);
    PyMem_RawFree(pairs);
    return result < 0 ? NULL : Py_NewRef(Py_None);
}
