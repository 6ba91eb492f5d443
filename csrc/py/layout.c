/* layout.c - where boxes and edges are drawn, for Python. */
#include "layout.h"
#include "module.h"

/* ---- what goes in: its numbers are checked by the core ---- */

static int read_box(PyObject *tuple, void *out)
{
    fe_layout_box *b = out;

    return PyArg_ParseTuple(tuple, "ddb:box", &b->width, &b->height, &b->rank) ? 0 : -1;
}

static int read_edge(PyObject *tuple, void *out)
{
    fe_layout_edge *e = out;
    Py_ssize_t from, to;

    if (!PyArg_ParseTuple(tuple, "nndd:edge", &from, &to, &e->from_x, &e->to_x))
        return -1;
    e->from = from < 0 || from > UINT32_MAX ? UINT32_MAX : (uint32_t)from; /* there are never so many boxes */
    e->to = to < 0 || to > UINT32_MAX ? UINT32_MAX : (uint32_t)to;
    return 0;
}

typedef struct {
    size_t size;
    int (*read)(PyObject *tuple, void *out); /* may run Python code, which may change the list */
    const char *shape;                       /* of a tuple */
} item_kind;

static const item_kind box_kind = {sizeof(fe_layout_box), read_box, "a box is a tuple (width, height, rank)"};
static const item_kind edge_kind = {sizeof(fe_layout_edge), read_edge,
                                    "an edge is a tuple (source, target, source_x, target_x)"};

/* The items of a list, for PyMem_RawFree; NULL with an exception. */
static void *read_list(PyObject *list, const item_kind *kind, uint32_t *count)
{
    Py_ssize_t len = PyList_GET_SIZE(list);
    int result = 0;

    if (len > INT32_MAX)
        return PyErr_Format(PyExc_ValueError, "lay_out() takes fewer boxes and edges");
    char *items = PyMem_RawCalloc((size_t)len + 1, kind->size);
    if (!items)
        return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < len && result == 0; i++) {
        PyObject *item = Py_NewRef(i < PyList_GET_SIZE(list) ? PyList_GET_ITEM(list, i) : Py_None);
        if (PyTuple_Check(item))
            result = kind->read(item, items + (size_t)i * kind->size);
        else {
            PyErr_SetString(PyExc_TypeError, kind->shape);
            result = -1;
        }
        Py_DECREF(item);
    }
    if (result < 0) {
        PyMem_RawFree(items);
        return NULL;
    }
    *count = (uint32_t)len;
    return items;
}

/* ---- what comes out ---- */

static PyObject *boxes_to_list(const fe_layout *l, uint32_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);

    for (uint32_t i = 0; list && i < count; i++) {
        PyObject *o = Py_BuildValue("(ddI)", l->corners[i].x, l->corners[i].y, (unsigned)l->ranks[i]);
        if (!o)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, o);
    }
    return list;
}

static PyObject *points_of(const fe_layout *l, uint32_t start, uint32_t end)
{
    PyObject *points = PyTuple_New((Py_ssize_t)(end - start));

    for (uint32_t i = start; points && i < end; i++) {
        PyObject *o = Py_BuildValue("(dd)", l->points[i].x, l->points[i].y);
        if (!o)
            Py_CLEAR(points);
        else
            PyTuple_SET_ITEM(points, (Py_ssize_t)(i - start), o);
    }
    return points;
}

static PyObject *edges_to_list(const fe_layout *l, uint32_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);

    for (uint32_t i = 0; list && i < count; i++) {
        PyObject *points = points_of(l, i ? l->ends[i - 1] : 0, l->ends[i]);
        PyObject *o = points ? Py_BuildValue("(NO)", points, l->turned[i] ? Py_True : Py_False) : NULL;
        if (!o)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, o);
    }
    return list;
}

static PyObject *layout_to_python(const fe_layout *l, const fe_layout_input *in)
{
    int collecting = PyGC_Disable(); /* nothing of what is made here is garbage */
    PyObject *boxes = boxes_to_list(l, in->box_count), *edges = boxes ? edges_to_list(l, in->edge_count) : NULL;

    if (collecting)
        PyGC_Enable();
    if (edges)
        return Py_BuildValue("(ddNN)", l->width, l->height, boxes, edges);
    Py_XDECREF(boxes);
    return NULL;
}

PyDoc_STRVAR(
    lay_out_doc,
    "lay_out(boxes, edges, gaps, /)\n--\n\n"
    "Where boxes and edges of a layered picture are drawn: (width, height, [(x, y, rank), ...],\n"
    "[(points, turned), ...]). boxes is a list of (width, height, rank), rank 1 for the first, 2 for the last and 0\n"
    "for any; edges a list of (source, target, source_x, target_x), the latter from the middle of the boxes; gaps\n"
    "(between boxes, beside passing edges, between ranks). x and y are of the left upper corners; between two points\n"
    "of the same x an edge goes straight, and one that is turned goes upwards.");

static PyObject *lay_out(PyObject *m, PyObject *args)
{
    PyObject *box_list, *edge_list, *result = NULL;
    fe_layout_input in = {NULL, NULL, 0, 0, {0, 0, 0}};
    fe_layout_box *boxes = NULL;
    fe_layout_edge *edges = NULL;
    fe_layout l;
    fe_error err;
    int made;

    if (!PyArg_ParseTuple(args, "O!O!(ddd):lay_out", &PyList_Type, &box_list, &PyList_Type, &edge_list,
                          &in.gaps.box_gap, &in.gaps.edge_gap, &in.gaps.rank_gap))
        return NULL;
    in.boxes = boxes = read_list(box_list, &box_kind, &in.box_count);
    in.edges = edges = boxes ? read_list(edge_list, &edge_kind, &in.edge_count) : NULL;
    if (edges) {
        Py_BEGIN_ALLOW_THREADS
        made = fe_layout_make(&in, &fe_python_allocator, &l, &err);
        Py_END_ALLOW_THREADS
        if (made < 0)
            raise_core(state_of(m), &err);
        else {
            result = layout_to_python(&l, &in);
            fe_layout_clear(&l);
        }
    }
    PyMem_RawFree(boxes);
    PyMem_RawFree(edges);
    return result;
}

PyMethodDef layout_functions[] = {
    {"lay_out", lay_out, METH_VARARGS, lay_out_doc},
    {NULL, NULL, 0, NULL},
};
