/* statistics.c - the statistics of a Tensor's elements. */
#include "statistics.h"

#include "tensor.h"

#include <math.h>

static void add_row(void *ctx, const char *from, Py_ssize_t count, Py_ssize_t stride)
{
    fe_statistics_add(ctx, from, (size_t)count, stride);
}

/* Elements that come in pieces of any length. */
typedef struct {
    fe_statistics *statistics;
    size_t itemsize, held; /* held: bytes of an element whose rest is in the next piece */
    char element[16];      /* the largest has so many */
} element_stream;

static int add_piece(void *ctx, const void *data, size_t len)
{
    element_stream *s = ctx;
    const char *from = data;

    while (s->held && len) {
        s->element[s->held++] = *from++;
        len--;
        if (s->held == s->itemsize) {
            fe_statistics_add(s->statistics, s->element, 1, (ptrdiff_t)s->itemsize);
            s->held = 0;
        }
    }
    size_t whole = len / s->itemsize, rest = len % s->itemsize;
    fe_statistics_add(s->statistics, from, whole, (ptrdiff_t)s->itemsize);
    if (rest) {
        memcpy(s->element, from + whole * s->itemsize, rest);
        s->held = rest;
    }
    return 0;
}

/* All elements of a tensor that is a whole record which nobody has used yet, in the order of memory, are read once, with no
 * mapping; others are gone through where they are. Bools have to be checked first. */
static int add_elements(TensorObject *t, fe_statistics *s)
{
    element_stream stream = {.statistics = s, .itemsize = t->element->itemsize};
    bool is_whole = t->storage && (t->c_contiguous || t->f_contiguous) && t->numel &&
                    (size_t)t->nbytes == storage_size(t->storage) && t->element->number != FE_NUMBER_BOOL;
    int done = is_whole ? storage_stream(t->storage, add_piece, &stream) : 0;
    const char *data;

    if (done)
        return done < 0 ? -1 : 0;
    return tensor_touch(t, &data) < 0 ? -1 : tensor_each_row(t, data, false, add_row, s);
}

/* An integer as fe_statistics has it. */
static PyObject *exact(const fe_statistics *s, int64_t ordered)
{
    if (s->number == FE_NUMBER_U64)
        return PyLong_FromUnsignedLongLong((uint64_t)ordered ^ (uint64_t)1 << 63);
    return PyLong_FromLongLong(ordered);
}

/* min or max: None where there is none. */
static PyObject *extreme(const fe_statistics *s, double value, int64_t ordered)
{
    if (!s->finite || fe_number_is_complex(s->number))
        Py_RETURN_NONE;
    return fe_number_is_integer(s->number) ? exact(s, ordered) : PyFloat_FromDouble(value);
}

static PyObject *number_or_none(bool given, double value)
{
    if (!given || !isfinite(value)) /* sums of the greatest doubles overflow */
        Py_RETURN_NONE;
    return PyFloat_FromDouble(value);
}

static PyObject *to_tuple(const fe_statistics *s)
{
    bool has_mean = s->finite && !fe_number_is_complex(s->number);
    PyObject *min = extreme(s, s->min, s->least), *max = extreme(s, s->max, s->greatest);
    PyObject *mean = number_or_none(has_mean, s->mean), *result = NULL;
    PyObject *std =
        number_or_none(has_mean && s->finite > 1, s->finite > 1 ? sqrt(s->m2 / (double)(s->finite - 1)) : 0);

    if (min && max && mean && std)
        result = Py_BuildValue("OOOOKKK", min, max, mean, std, (unsigned long long)s->zeros,
                               (unsigned long long)s->nans, (unsigned long long)s->infs);
    Py_XDECREF(min);
    Py_XDECREF(max);
    Py_XDECREF(mean);
    Py_XDECREF(std);
    return result;
}

PyDoc_STRVAR(tensor_statistics_doc,
             "tensor_statistics(tensor, /)\n--\n\n"
             "(min, max, mean, std, zeros, nans, infs) of a Tensor's elements; the first four of the\n"
             "finite ones, None where there are too few, or they are complex.");

static PyObject *tensor_statistics(PyObject *m, PyObject *o)
{
    TensorObject *t = (TensorObject *)o;
    PyObject *result = NULL;

    if (!Py_IS_TYPE(o, state_of(m)->tensor_type))
        return PyErr_Format(PyExc_TypeError, "a Tensor is needed, not %.200s", Py_TYPE(o)->tp_name);
    fe_statistics *s = PyMem_RawMalloc(sizeof *s); /* too large for the stacks of some threads */
    if (!s)
        return PyErr_NoMemory();
    fe_statistics_init(s, (fe_number)t->element->number);
    if (add_elements(t, s) == 0) {
        fe_statistics_finish(s);
        result = to_tuple(s);
    }
    PyMem_RawFree(s);
    return result;
}

PyMethodDef statistics_functions[] = {
    {"tensor_statistics", tensor_statistics, METH_O, tensor_statistics_doc},
    {NULL, NULL, 0, NULL},
};
