/* survey.c - what is asked of many files: every fault of one, its table of weights, and how many nodes of each kind it has.
 *
 * Faults and weights need no Program: they are read from an open Archive, without the GIL, and only the answer is made of
 * Python objects. Nodes are counted without making an object of each. So many files are gone through by as many threads as
 * there are processors.
 */
#include "file.h"

/* ---- checking ---- */

PyDoc_STRVAR(check_archive_doc,
             "check_archive(archive, model, strict, contents, /)\n--\n\n"
             "Every fault of one model of an archive, or of all (model None), as a list of tuples; with\n"
             "contents each entry is read to its end.");

static PyObject *check_archive(PyObject *m, PyObject *args)
{
    module_state *st = state_of(m);
    const char *model;
    PyObject *archive, *faults;
    int strict, contents, result;
    pt2_report r;

    if (!PyArg_ParseTuple(args, "O!zpp:check_archive", st->archive_type, &archive, &model, &strict, &contents))
        return NULL;
    ArchiveObject *a = (ArchiveObject *)archive;
    if (archive_lock(a) < 0)
        return NULL;
    pt2_report_init(&r, &fe_python_allocator, &a->limits);
    Py_BEGIN_ALLOW_THREADS
    result = pt2_check(a->archive, model, strict ? PT2_STRICT : PT2_LENIENT, contents, &st->reserved,
                       &fe_python_allocator, &r);
    Py_END_ALLOW_THREADS
    archive_unlock(a);
    (void)result; /* what it means is in the report */
    faults = report_to_list(&r);
    pt2_report_clear(&r);
    return faults;
}

/* ---- weights ---- */

static PyObject *int64_tuple(const int64_t *items, uint32_t count)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)count);

    for (uint32_t i = 0; tuple && i < count; i++) {
        PyObject *item = PyLong_FromLongLong(items[i]);
        if (!item)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, item);
    }
    return tuple;
}

static PyObject *payload_to_tuple(const pt2_payload *p)
{
    PyObject *name = PyUnicode_DecodeUTF8(p->name, (Py_ssize_t)p->name_len, NULL);
    PyObject *sizes = int64_tuple(p->sizes, p->sizes ? p->ndim : 0);
    PyObject *strides = int64_tuple(p->strides, p->strides ? p->ndim : 0);

    if (!name || !sizes || !strides) {
        Py_XDECREF(name);
        Py_XDECREF(sizes);
        Py_XDECREF(strides);
        return NULL;
    }
    return Py_BuildValue("(NiOOsiiNNLz)", name, (int)p->kind, p->is_param ? Py_True : Py_False,
                         p->requires_grad ? Py_True : Py_False, p->entry->name, (int)p->dtype, (int)p->layout, sizes,
                         strides, (long long)p->offset, p->device);
}

PyObject *payloads_to_python(const pt2_payloads *payloads)
{
    PyObject *list = PyList_New((Py_ssize_t)payloads->count);

    for (uint32_t i = 0; list && i < payloads->count; i++) {
        PyObject *item = payload_to_tuple(&payloads->items[i]);
        if (!item)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, item);
    }
    return list ? Py_BuildValue("(Nz)", list, payloads->pickle ? payloads->pickle->name : NULL) : NULL;
}

PyDoc_STRVAR(
    read_payloads_doc,
    "read_payloads(archive, model, /)\n--\n\n"
    "The name of a model of an archive (None: of the only one, or \"model\"), and its weights and constants as\n"
    "Program.payloads gives them; the program itself is not read. Raises FormatError.");

static PyObject *read_payloads(PyObject *m, PyObject *args)
{
    module_state *st = state_of(m);
    const char *model;
    PyObject *archive, *result = NULL;
    pt2_program *p;
    pt2_report r;

    if (!PyArg_ParseTuple(args, "O!z:read_payloads", st->archive_type, &archive, &model))
        return NULL;
    ArchiveObject *a = (ArchiveObject *)archive;
    if (archive_lock(a) < 0)
        return NULL;
    pt2_report_init(&r, &fe_python_allocator, &a->limits);
    Py_BEGIN_ALLOW_THREADS
    p = pt2_program_open_payloads(a->archive, model, &fe_python_allocator, &r);
    Py_END_ALLOW_THREADS
    archive_unlock(a);
    bool failed = !p || PyErr_Occurred(); /* what fetches a remote file may have raised where a fault is no error */
    PyObject *weights = failed ? raise_report(st, &r) : payloads_to_python(&p->weights);
    PyObject *constants = weights ? payloads_to_python(&p->constants) : NULL;
    if (constants)
        result = Py_BuildValue("sOO", p->model, weights, constants);
    Py_XDECREF(weights);
    Py_XDECREF(constants);
    pt2_program_free(p);
    pt2_report_clear(&r);
    return result;
}

/* ---- nodes ---- */

typedef struct {
    uint32_t ops[FE_OP_COUNT], op_order[FE_OP_COUNT], op_count; /* in the order in which each was met first */
    uint32_t *calls, *call_order, call_count;                   /* by target */
} node_counts;

static void count_nodes_of(const fe_graph *c, node_counts *n)
{
    for (uint32_t id = c->nodes[FE_ROOT].next; id != FE_ROOT; id = c->nodes[id].next) {
        uint32_t op = c->nodes[id].op, target = c->nodes[id].target;
        if (!n->ops[op]++)
            n->op_order[n->op_count++] = op;
        if (op == FE_OP_CALL_FUNCTION && !n->calls[target]++)
            n->call_order[n->call_count++] = target;
    }
}

static PyObject *op_counts(const module_state *st, const node_counts *n)
{
    PyObject *list = PyList_New((Py_ssize_t)n->op_count);

    for (uint32_t i = 0; list && i < n->op_count; i++) {
        uint32_t op = n->op_order[i];
        PyObject *item = Py_BuildValue("(Ok)", st->op_names[op], (unsigned long)n->ops[op]);
        if (!item)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, item);
    }
    return list;
}

static PyObject *call_counts(GraphObject *g, const node_counts *n)
{
    PyObject *list = PyList_New((Py_ssize_t)n->call_count);

    for (uint32_t i = 0; list && i < n->call_count; i++) {
        PyObject *target = graph_target_object(g, n->call_order[i]);
        PyObject *item = target ? Py_BuildValue("(Nk)", target, (unsigned long)n->calls[n->call_order[i]]) : NULL;
        if (!item)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, item);
    }
    return list;
}

PyDoc_STRVAR(count_nodes_doc,
             "count_nodes(graph, /)\n--\n\n"
             "How many nodes of a graph have each opcode, and how many calls of functions each target: two lists of\n"
             "pairs with the count, in the order in which they come first. Subgraphs are not looked into.");

static PyObject *count_nodes(PyObject *m, PyObject *o)
{
    GraphObject *g = (GraphObject *)o;
    module_state *st = state_of(m);
    node_counts n = {.op_count = 0};
    PyObject *ops, *calls, *result = NULL;

    if (!PyObject_TypeCheck(o, st->graph_type))
        return PyErr_Format(PyExc_TypeError, "count_nodes() takes a Graph of fastexport, not %R", Py_TYPE(o));
    if (graph_readable(g) < 0)
        return NULL;
    n.calls = PyMem_RawCalloc(g->core->target_count + (size_t)1, sizeof *n.calls);
    n.call_order = PyMem_RawCalloc(g->core->target_count + (size_t)1, sizeof *n.call_order);
    if (!n.calls || !n.call_order) {
        PyErr_NoMemory();
    } else {
        graph_pin(g);
        count_nodes_of(g->core, &n);
        ops = op_counts(st, &n);
        calls = ops ? call_counts(g, &n) : NULL;
        graph_unpin(g);
        if (calls)
            result = Py_BuildValue("(OO)", ops, calls);
        Py_XDECREF(ops);
        Py_XDECREF(calls);
    }
    PyMem_RawFree(n.calls);
    PyMem_RawFree(n.call_order);
    return result;
}

PyMethodDef survey_functions[] = {
    {"check_archive", check_archive, METH_VARARGS, check_archive_doc},
    {"read_payloads", read_payloads, METH_VARARGS, read_payloads_doc},
    {"count_nodes", count_nodes, METH_O, count_nodes_doc},
    {NULL, NULL, 0, NULL},
};
