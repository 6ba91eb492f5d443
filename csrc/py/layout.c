/* layout.c - where boxes and edges are drawn, for Python. */
#include "layout.h"
#include "module.h"

typedef struct {
    fe_layout_box *boxes;
    fe_layout_edge *edges;
    fe_layout_input in;
} drawing;

/* The numbers are checked by the core. */
static int read_boxes(PyObject *list, drawing *d)
{
    Py_ssize_t count = PyList_GET_SIZE(list);

    if (!(d->boxes = PyMem_RawCalloc((size_t)count + 1, sizeof *d->boxes))) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        fe_layout_box *box = &d->boxes[i];
        PyObject *item = i < PyList_GET_SIZE(list) ? PyList_GET_ITEM(list, i) : Py_None;
        int result = -1;
        Py_INCREF(item);
        if (PyTuple_Check(item))
            result = PyArg_ParseTuple(item, "ddb:box", &box->width, &box->height, &box->rank) ? 0 : -1;
        else
            PyErr_SetString(PyExc_TypeError, "a box is a tuple (width, height, rank)");
        Py_DECREF(item);
        if (result < 0)
            return -1;
    }
    d->in.boxes = d->boxes;
    d->in.box_count = (uint32_t)count;
    return 0;
}

static int read_edges(PyObject *list, drawing *d)
{
    Py_ssize_t count = PyList_GET_SIZE(list);

    if (!(d->edges = PyMem_RawCalloc((size_t)count + 1, sizeof *d->edges))) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        fe_layout_edge *e = &d->edges[i];
        PyObject *item = i < PyList_GET_SIZE(list) ? PyList_GET_ITEM(list, i) : Py_None;
        int result = -1;
        Py_INCREF(item);
        if (PyTuple_Check(item))
            result = PyArg_ParseTuple(item, "IIdd:edge", &e->from, &e->to, &e->from_x, &e->to_x) ? 0 : -1;
        else
            PyErr_SetString(PyExc_TypeError, "an edge is a tuple (source, target, source_x, target_x)");
        Py_DECREF(item);
        if (result < 0)
            return -1;
    }
    d->in.edges = d->edges;
    d->in.edge_count = (uint32_t)count;
    return 0;
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
    PyObject *boxes = boxes_to_list(l, in->box_count), *edges = boxes ? edges_to_list(l, in->edge_count) : NULL;

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
    PyObject *boxes, *edges, *result = NULL;
    drawing d = {NULL, NULL, {NULL, NULL, 0, 0, {0, 0, 0}}};
    fe_layout l;
    fe_error err;
    int made;

    if (!PyArg_ParseTuple(args, "O!O!(ddd):lay_out", &PyList_Type, &boxes, &PyList_Type, &edges, &d.in.gaps.box_gap,
                          &d.in.gaps.edge_gap, &d.in.gaps.rank_gap))
        return NULL;
    if (PyList_GET_SIZE(boxes) > INT32_MAX || PyList_GET_SIZE(edges) > INT32_MAX)
        return PyErr_Format(PyExc_ValueError, "lay_out() takes fewer boxes and edges");
    if (read_boxes(boxes, &d) == 0 && read_edges(edges, &d) == 0) {
        Py_BEGIN_ALLOW_THREADS
        made = fe_layout_make(&d.in, &fe_python_allocator, &l, &err);
        Py_END_ALLOW_THREADS
        if (made < 0)
            raise_core(state_of(m), &err);
        else {
            result = layout_to_python(&l, &d.in);
            fe_layout_clear(&l);
        }
    }
    PyMem_RawFree(d.boxes);
    PyMem_RawFree(d.edges);
    return result;
}

PyMethodDef layout_functions[] = {
    {"lay_out", lay_out, METH_VARARGS, lay_out_doc},
    {NULL, NULL, 0, NULL},
};
