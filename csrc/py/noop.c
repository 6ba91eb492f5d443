/* noop.c - calls that give an operand back, as a method of Graph.
 *
 * The core finds them by their arguments; whether shapes and types agree is told by meta. What sizes and strides tell at once is
 * seen here, the rest is Python's to judge.
 */
#include "judge.h"

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
    int result = verdicts ? judge_check(g, version) : -1;

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
        if (may < 0 || (g->core->version != version && judge_check(g, version) < 0))
            return -1;
        if (may)
            found->items[count++] = found->items[i];
    }
    found->len = count;
    return judge_check(g, version);
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

    if (judge_targets(g, judge, false, j) < 0 || graph_editable(g) < 0)
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
    if (graph_refresh_facts(g) < 0 || judge_check(g, version) < 0)
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
