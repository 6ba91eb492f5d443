/* tensor_data.c - the elements of a Tensor: brought in and found right, and gone through row by row. */
#include "tensor.h"

#include "statistics.h"

/* ---- bringing them in ---- */

/* The bits that any of these bytes has. */
static void see_bits(void *seen, const char *from, Py_ssize_t count, Py_ssize_t stride)
{
    unsigned char bits = 0;

    for (Py_ssize_t i = 0; i < count; i++)
        bits |= (unsigned char)from[i * stride];
    *(unsigned char *)seen |= bits;
}

/* A bool that is neither 0 nor 1 is undefined behaviour in whoever reads it. All bytes are looked at first, which is fast
 * whatever the strides; what lies between the elements may be anything. */
static int check_bools(TensorObject *t, const char *data)
{
    unsigned char seen = 0;

    Py_BEGIN_ALLOW_THREADS
    see_bits(&seen, data, t->extent, 1);
    Py_END_ALLOW_THREADS
    if (seen > 1) {
        seen = 0;
        if (tensor_each_row(t, data, false, see_bits, &seen) < 0)
            return -1;
    }
    if (seen > 1) {
        const storage_source *source = storage_source_of(t->storage);
        return raise_format_error(PyType_GetModuleState(Py_TYPE(t)), PT2_PAYLOAD, source ? source->entry->name : NULL,
                                  "a tensor of bools has bytes other than 0 and 1");
    }
    atomic_store_explicit(&t->checked, true, memory_order_relaxed);
    return 0;
}

int tensor_touch(TensorObject *t, const char **data)
{
    if (!t->storage)
        return refuse_buffer("the tensor has no data: it is on the device meta");
    if (storage_touch(t->storage, data) < 0)
        return -1;
    if (!t->numel)
        return 0;
    *data += t->storage_offset * t->element->itemsize;
    if (t->element->number == FE_NUMBER_BOOL && !atomic_load_explicit(&t->checked, memory_order_relaxed))
        return check_bools(t, *data);
    return 0;
}

/* ---- going through them ---- */

#define PATIENCE ((Py_ssize_t)1 << 24) /* elements between two looks at signals */

typedef struct {
    tensor_row visit;
    void *ctx;
    Py_ssize_t left;       /* elements until the next look */
    PyThreadState *thread; /* is without the GIL */
} walk;

static int see_to_signals(walk *w)
{
    int result;

    PyEval_RestoreThread(w->thread);
    result = PyErr_CheckSignals();
    w->thread = PyEval_SaveThread();
    w->left = PATIENCE;
    return result;
}

static int visit_row(walk *w, const char *from, Py_ssize_t count, Py_ssize_t stride)
{
    while (count > w->left) {
        w->visit(w->ctx, from, w->left, stride);
        from += w->left * stride;
        count -= w->left;
        if (see_to_signals(w) < 0)
            return -1;
    }
    w->visit(w->ctx, from, count, stride);
    w->left -= count;
    return 0;
}

static int visit_rows(walk *w, TensorObject *t, const char *from)
{
    const Py_ssize_t *shape = shape_of(t), *strides = byte_strides_of(t);
    Py_ssize_t at[TENSOR_MAX_DIMS] = {0};
    int last = t->ndim - 1;

    for (int d = last; d >= 0;) {
        if (visit_row(w, from, shape[last], strides[last]) < 0)
            return -1;
        for (d = last - 1; d >= 0; d--) { /* to the next row: count up, and back to 0 where a size is reached */
            if (++at[d] < shape[d]) {
                from += strides[d];
                break;
            }
            from -= shape[d] > 1 ? strides[d] * (shape[d] - 1) : 0;
            at[d] = 0;
        }
    }
    return 0;
}

int tensor_each_row(TensorObject *t, const char *from, bool ordered, tensor_row visit, void *ctx)
{
    walk w = {visit, ctx, PATIENCE, NULL};
    int result;

    if (!t->numel)
        return 0;
    w.thread = PyEval_SaveThread();
    if (t->c_contiguous || (t->f_contiguous && !ordered))
        result = visit_row(&w, from, t->numel, t->element->itemsize);
    else
        result = visit_rows(&w, t, from);
    PyEval_RestoreThread(w.thread);
    return result;
}

typedef struct {
    char *to;
    size_t itemsize;
} gathering;

static void gather_row(void *ctx, const char *from, Py_ssize_t count, Py_ssize_t stride)
{
    gathering *g = ctx;

    if (stride == (Py_ssize_t)g->itemsize) {
        memcpy(g->to, from, (size_t)count * g->itemsize);
    } else {
        for (Py_ssize_t i = 0; i < count; i++)
            memcpy(g->to + (size_t)i * g->itemsize, from + i * stride, g->itemsize);
    }
    g->to += (size_t)count * g->itemsize;
}

int tensor_gather(TensorObject *t, char *to)
{
    const char *data;

    if (tensor_touch(t, &data) < 0)
        return -1;
    return tensor_each_row(t, data, true, gather_row, &(gathering){to, t->element->itemsize});
}
