/* tensor.c - a typed view of a Storage: shape, strides, and the doors through which others see it.
 *
 * Invariant: every element lies within the storage; that was checked when the tensor was made, with sums that can't wrap,
 * since all the numbers may come from a hostile file. After that nothing of a tensor changes. The shape, the strides in
 * elements and the strides in bytes stand in the object itself, one after the other, so exports can point to them.
 *
 * All doors are read-only: the buffer protocol, __array_interface__ and DLPack (dlpack.c). Types that the buffer protocol
 * has no letter for (bfloat16, float8, complex32) go through it by their names, which stops whoever would compute with
 * what he doesn't know: numpy raises. Files are little-endian, and so is every machine that torch runs on.
 */
#include "tensor.h"

#include "statistics.h"

_Static_assert(sizeof(Py_ssize_t) == sizeof(int64_t), "shapes of files have 64 bits");

/* ---- types of elements ---- */

static const element_type elements[] = {
    {1, 1, DL_UINT, "B", "|u1", FE_NUMBER_U8},
    {2, 1, DL_INT, "b", "|i1", FE_NUMBER_I8},
    {3, 2, DL_INT, "h", "<i2", FE_NUMBER_I16},
    {4, 4, DL_INT, "i", "<i4", FE_NUMBER_I32},
    {5, 8, DL_INT, "q", "<i8", FE_NUMBER_I64},
    {6, 2, DL_FLOAT, "e", "<f2", FE_NUMBER_F16},
    {7, 4, DL_FLOAT, "f", "<f4", FE_NUMBER_F32},
    {8, 8, DL_FLOAT, "d", "<f8", FE_NUMBER_F64},
    {9, 4, DL_COMPLEX, "complex32", NULL, FE_NUMBER_C32},
    {10, 8, DL_COMPLEX, "Zf", "<c8", FE_NUMBER_C64},
    {11, 16, DL_COMPLEX, "Zd", "<c16", FE_NUMBER_C128},
    {12, 1, DL_BOOL, "?", "|b1", FE_NUMBER_BOOL},
    {13, 2, DL_BFLOAT, "bfloat16", NULL, FE_NUMBER_BF16},
    {28, 2, DL_UINT, "H", "<u2", FE_NUMBER_U16},
    {29, 1, DL_FLOAT8_E4M3FN, "float8_e4m3fn", NULL, FE_NUMBER_F8_E4M3FN},
    {30, 1, DL_FLOAT8_E5M2, "float8_e5m2", NULL, FE_NUMBER_F8_E5M2},
    {31, 1, DL_FLOAT8_E4M3FNUZ, "float8_e4m3fnuz", NULL, FE_NUMBER_F8_E4M3FNUZ},
    {32, 1, DL_FLOAT8_E5M2FNUZ, "float8_e5m2fnuz", NULL, FE_NUMBER_F8_E5M2FNUZ},
    {33, 1, DL_FLOAT8_E8M0FNU, "float8_e8m0fnu", NULL, FE_NUMBER_F8_E8M0FNU},
    {34, 4, DL_UINT, "I", "<u4", FE_NUMBER_U32},
    {35, 8, DL_UINT, "Q", "<u8", FE_NUMBER_U64},
};

static const element_type *find_element(long code)
{
    for (size_t i = 0; i < Py_ARRAY_LENGTH(elements); i++) {
        if (elements[i].code == code)
            return &elements[i];
    }
    return NULL;
}

/* ---- making one ---- */

static int bad_view(const char *what)
{
    PyErr_Format(PyExc_ValueError, "not a tensor: %s", what);
    return -1;
}

/* The number of elements; 0 where a size is 0, whatever the others are. */
static int count_elements(TensorObject *t)
{
    const Py_ssize_t *shape = shape_of(t);
    bool empty = false, wraps = false;

    t->numel = 1;
    for (int i = 0; i < t->ndim; i++) {
        if (shape[i] < 0)
            return bad_view("a size is negative");
        empty = empty || shape[i] == 0;
        wraps = __builtin_mul_overflow(t->numel, shape[i], &t->numel) || wraps;
    }
    if (empty)
        t->numel = 0;
    if ((wraps && !empty) || __builtin_mul_overflow(t->numel, (Py_ssize_t)t->element->itemsize, &t->nbytes))
        return bad_view("it has more elements than memory can hold");
    return 0;
}

static int fill_strides(TensorObject *t)
{
    Py_ssize_t stride = 1;

    for (int i = t->ndim - 1; i >= 0; i--) {
        strides_of(t)[i] = stride;
        if (i && shape_of(t)[i] > 1 && __builtin_mul_overflow(stride, shape_of(t)[i], &stride))
            return bad_view("its sizes are too large");
    }
    return 0;
}

/* Strides that no element is reached by may be anything; in bytes they become small. */
static int convert_strides(TensorObject *t)
{
    Py_ssize_t itemsize = t->element->itemsize;

    for (int i = 0; i < t->ndim; i++) {
        if (strides_of(t)[i] < 0)
            return bad_view("a stride is negative");
        bool used = t->numel && shape_of(t)[i] > 1;
        if (__builtin_mul_overflow(strides_of(t)[i], itemsize, &byte_strides_of(t)[i])) {
            if (used)
                return bad_view("a stride is too large");
            byte_strides_of(t)[i] = itemsize;
        }
    }
    return 0;
}

static int check_extent(TensorObject *t)
{
    Py_ssize_t itemsize = t->element->itemsize, last = 0, start;

    if (t->storage_offset < 0)
        return bad_view("the storage offset is negative");
    if (!t->numel || !t->storage)
        return 0;
    for (int i = 0; i < t->ndim; i++) {
        Py_ssize_t reach;
        if (__builtin_mul_overflow(shape_of(t)[i] - 1, byte_strides_of(t)[i], &reach) ||
            __builtin_add_overflow(last, reach, &last))
            return bad_view("sizes and strides reach too far");
    }
    if (__builtin_add_overflow(last, itemsize, &t->extent) ||
        __builtin_mul_overflow((Py_ssize_t)t->storage_offset, itemsize, &start) ||
        __builtin_add_overflow(start, t->extent, &last))
        return bad_view("sizes, strides and storage offset reach too far");
    if ((size_t)last > storage_size(t->storage)) {
        PyErr_Format(PyExc_ValueError, "not a tensor: it needs %zd bytes of its storage, which has %zu", last,
                     storage_size(t->storage));
        return -1;
    }
    return 0;
}

/* Whether the elements lie one behind the other, the last (C) or the first (Fortran) index running fastest. */
static bool is_dense(TensorObject *t, bool fortran)
{
    Py_ssize_t expected = t->element->itemsize;

    for (int i = 0; i < t->ndim && t->numel; i++) {
        int at = fortran ? i : t->ndim - 1 - i;
        if (shape_of(t)[at] > 1 && byte_strides_of(t)[at] != expected)
            return false;
        expected *= shape_of(t)[at];
    }
    return true;
}

static const element_type *element_of(PyObject *dtype)
{
    PyObject *code = PyObject_GetAttrString(dtype, "code");
    long number = code && PyLong_Check(code) ? PyLong_AsLong(code) : -1;

    if ((!code && PyErr_ExceptionMatches(PyExc_AttributeError)) || (code && !PyLong_Check(code)))
        PyErr_Format(PyExc_TypeError, "dtype must be a DType, not %.200s", Py_TYPE(dtype)->tp_name);
    Py_XDECREF(code);
    if (number == -1 && PyErr_Occurred())
        return NULL;
    const element_type *found = find_element(number);
    if (!found)
        PyErr_Format(PyExc_ValueError, "no tensor has elements of type %S (code %ld)", dtype, number);
    return found;
}

typedef struct {
    PyObject *storage, *dtype; /* dtype: a DType, whose code is that of the file format's ScalarType */
    int ndim;
    const int64_t *shape, *strides; /* strides NULL: contiguous */
    int64_t storage_offset;         /* strides and offset count elements */
    bool requires_grad, is_param;
    PyObject *device, *layout; /* NULL: "cpu", "torch.strided" */
} tensor_facts;

static int settle(TensorObject *t, const tensor_facts *f)
{
    for (int i = 0; i < f->ndim; i++) {
        shape_of(t)[i] = (Py_ssize_t)f->shape[i];
        strides_of(t)[i] = f->strides ? (Py_ssize_t)f->strides[i] : 0;
    }
    if (count_elements(t) < 0 || (!f->strides && fill_strides(t) < 0) || convert_strides(t) < 0 || check_extent(t) < 0)
        return -1;
    t->c_contiguous = is_dense(t, false);
    t->f_contiguous = is_dense(t, true);
    return 0;
}

/* A Tensor; takes references. ValueError when the view does not lie within the storage. */
static PyObject *new_tensor(module_state *st, const tensor_facts *f)
{
    PyTypeObject *type = st->tensor_type;
    const element_type *element = element_of(f->dtype);

    if (!element)
        return NULL;
    if (f->ndim > TENSOR_MAX_DIMS)
        return PyErr_Format(PyExc_ValueError, "a tensor has at most %d dimensions, not %d", TENSOR_MAX_DIMS, f->ndim);
    TensorObject *t = (TensorObject *)type->tp_alloc(type, 3 * f->ndim);
    if (!t)
        return NULL;
    t->element = element;
    t->ndim = f->ndim;
    t->storage = Py_XNewRef(f->storage);
    t->dtype = Py_NewRef(f->dtype);
    t->storage_offset = f->storage_offset;
    t->requires_grad = f->requires_grad;
    t->is_param = f->is_param;
    t->device = f->device ? Py_NewRef(f->device) : PyUnicode_InternFromString("cpu");
    t->layout = f->layout ? Py_NewRef(f->layout) : PyUnicode_InternFromString("torch.strided");
    if (!t->device || !t->layout || settle(t, f) < 0)
        Py_CLEAR(t);
    return (PyObject *)t;
}

/* Read a sequence of ints; its length, or -1. */
static int read_numbers(PyObject *o, const char *what, int64_t *out)
{
    PyObject *items = PySequence_Tuple(o); /* a tuple of our own: reading its items may run Python code */

    if (!items)
        return -1;
    Py_ssize_t len = PyTuple_GET_SIZE(items);
    if (len > TENSOR_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "%s: at most %d dimensions, not %zd", what, TENSOR_MAX_DIMS, len);
        len = -1;
    }
    for (Py_ssize_t i = 0; i < len; i++) {
        PyObject *item = PyNumber_Index(PyTuple_GET_ITEM(items, i));
        out[i] = item ? PyLong_AsLongLong(item) : -1;
        Py_XDECREF(item);
        if (out[i] == -1 && PyErr_Occurred())
            len = -1;
    }
    Py_DECREF(items);
    return (int)len;
}

static PyObject *Tensor_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"storage",       "dtype",  "shape",  "strides",  "storage_offset",
                            "requires_grad", "device", "layout", "is_param", NULL};
    module_state *st = PyType_GetModuleState(type);
    int64_t shape[TENSOR_MAX_DIMS], strides[TENSOR_MAX_DIMS];
    PyObject *shape_arg, *strides_arg = Py_None;
    tensor_facts f = {.storage = NULL};
    long long offset = 0;
    int requires_grad = 0, is_param = 0;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO|OLpOOp:Tensor", names, &f.storage, &f.dtype, &shape_arg,
                                     &strides_arg, &offset, &requires_grad, &f.device, &f.layout, &is_param))
        return NULL;
    if (f.storage == Py_None)
        f.storage = NULL;
    if (f.storage && !storage_check(st, f.storage))
        return PyErr_Format(PyExc_TypeError, "storage must be a Storage or None, not %.200s",
                            Py_TYPE(f.storage)->tp_name);
    if ((f.ndim = read_numbers(shape_arg, "shape", shape)) < 0)
        return NULL;
    if (strides_arg != Py_None) {
        int count = read_numbers(strides_arg, "strides", strides);
        if (count < 0)
            return NULL;
        if (count != f.ndim)
            return PyErr_Format(PyExc_ValueError, "not a tensor: %d sizes, but %d strides", f.ndim, count);
        f.strides = strides;
    }
    f.shape = shape;
    f.storage_offset = offset;
    f.requires_grad = requires_grad;
    f.is_param = is_param;
    f.device = f.device == Py_None ? NULL : f.device;
    f.layout = f.layout == Py_None ? NULL : f.layout;
    return new_tensor(st, &f);
}

/* There is no tp_clear, as with tuples: a tensor refers only to what was there before it. */
static int Tensor_traverse(PyObject *self, visitproc visit, void *arg)
{
    TensorObject *t = (TensorObject *)self;

    Py_VISIT(Py_TYPE(self));
    Py_VISIT(t->storage);
    Py_VISIT(t->dtype);
    Py_VISIT(t->device);
    Py_VISIT(t->layout);
    return 0;
}

static void Tensor_dealloc(PyObject *self)
{
    TensorObject *t = (TensorObject *)self;
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    if (t->weakrefs)
        PyObject_ClearWeakRefs(self);
    Py_XDECREF(t->storage);
    Py_XDECREF(t->dtype);
    Py_XDECREF(t->device);
    Py_XDECREF(t->layout);
    type->tp_free(self);
    Py_DECREF(type);
}

/* ---- the buffer protocol ---- */

static int Tensor_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    TensorObject *t = (TensorObject *)self;
    bool c_only = (flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS || (flags & PyBUF_STRIDES) != PyBUF_STRIDES;
    bool fortran_only = (flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS;
    bool any = (flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS;
    const char *data;

    view->obj = NULL;
    if (flags & PyBUF_WRITABLE)
        return refuse_buffer("a Tensor is read-only");
    if ((c_only && !t->c_contiguous) || (fortran_only && !t->f_contiguous) ||
        (any && !t->c_contiguous && !t->f_contiguous))
        return refuse_buffer("the Tensor is not contiguous; tobytes() makes a contiguous copy");
    if (tensor_touch(t, &data) < 0)
        return -1;
    bool plain = (flags & PyBUF_ND) != PyBUF_ND; /* bytes, one after the other */
    bool strided = (flags & PyBUF_STRIDES) == PyBUF_STRIDES;
    *view = (Py_buffer){
        .buf = (void *)(uintptr_t)data,
        .obj = Py_NewRef(self),
        .len = t->nbytes,
        .itemsize = t->element->itemsize,
        .readonly = 1,
        .ndim = plain ? 1 : t->ndim,
        .format = flags & PyBUF_FORMAT ? (char *)(uintptr_t)t->element->format : NULL,
        .shape = plain || !t->ndim ? NULL : shape_of(t), /* of no dimensions there must be none */
        .strides = strided && t->ndim ? byte_strides_of(t) : NULL,
    };
    return 0;
}

/* ---- what Python sees ---- */

static PyObject *tuple_of(const Py_ssize_t *numbers, int count)
{
    PyObject *tuple = PyTuple_New(count);

    for (int i = 0; tuple && i < count; i++) {
        PyObject *item = PyLong_FromSsize_t(numbers[i]);
        if (!item)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, item);
    }
    return tuple;
}

static PyObject *Tensor_shape(PyObject *self, void *closure)
{
    TensorObject *t = (TensorObject *)self;

    (void)closure;
    return tuple_of(shape_of(t), t->ndim);
}

static PyObject *Tensor_strides(PyObject *self, void *closure)
{
    TensorObject *t = (TensorObject *)self;

    (void)closure;
    return tuple_of(strides_of(t), t->ndim);
}

static PyObject *Tensor_itemsize(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromLong(((TensorObject *)self)->element->itemsize);
}

static PyObject *Tensor_array_interface(PyObject *self, void *closure)
{
    TensorObject *t = (TensorObject *)self;
    const char *data;

    (void)closure;
    if (!t->element->typestr)
        return PyErr_Format(PyExc_AttributeError, "numpy itself has no type for %S; numpy() uses that of ml_dtypes",
                            t->dtype);
    if (!t->storage) /* hasattr() has to answer no */
        return PyErr_Format(PyExc_AttributeError, "the tensor has no data: it is on the device meta");
    if (tensor_touch(t, &data) < 0)
        return NULL;
    PyObject *shape = tuple_of(shape_of(t), t->ndim);
    PyObject *strides = t->c_contiguous ? Py_NewRef(Py_None) : tuple_of(byte_strides_of(t), t->ndim);
    PyObject *address = PyLong_FromVoidPtr((void *)(uintptr_t)data), *interface = NULL;
    if (shape && strides && address)
        interface = Py_BuildValue("{s:O,s:s,s:O,s:(OO),s:i}", "shape", shape, "typestr", t->element->typestr, "strides",
                                  strides, "data", address, Py_True, "version", 3);
    Py_XDECREF(shape);
    Py_XDECREF(strides);
    Py_XDECREF(address);
    return interface;
}

static PyObject *Tensor_tobytes(PyObject *self, PyObject *ignored)
{
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, ((TensorObject *)self)->nbytes);

    (void)ignored;
    if (bytes && tensor_gather((TensorObject *)self, PyBytes_AS_STRING(bytes)) < 0)
        Py_CLEAR(bytes);
    return bytes;
}

static Py_ssize_t Tensor_len(PyObject *self)
{
    TensorObject *t = (TensorObject *)self;

    if (t->ndim)
        return shape_of(t)[0];
    PyErr_SetString(PyExc_TypeError, "len() of a tensor without dimensions");
    return -1;
}

static PyObject *Tensor_repr(PyObject *self)
{
    TensorObject *t = (TensorObject *)self;
    PyObject *shape = Tensor_shape(self, NULL), *text = NULL;

    if (shape && !t->storage)
        text = PyUnicode_FromFormat("Tensor(shape=%R, dtype=%S, no data, on the device meta)", shape, t->dtype);
    else if (shape)
        text = PyUnicode_FromFormat("Tensor(shape=%R, dtype=%S, %zd bytes)", shape, t->dtype, t->nbytes);
    Py_XDECREF(shape);
    return text;
}

/* The positional arguments that make an equal tensor; of the same Storage, so copies of ties are ties. */
static PyObject *Tensor_reduce(PyObject *self, PyObject *ignored)
{
    TensorObject *t = (TensorObject *)self;
    PyObject *shape = Tensor_shape(self, NULL), *strides = Tensor_strides(self, NULL), *result = NULL;

    (void)ignored;
    if (shape && strides)
        result = Py_BuildValue("O(OOOOLOOOO)", Py_TYPE(self), t->storage ? t->storage : Py_None, t->dtype, shape,
                               strides, (long long)t->storage_offset, t->requires_grad ? Py_True : Py_False, t->device,
                               t->layout, t->is_param ? Py_True : Py_False);
    Py_XDECREF(shape);
    Py_XDECREF(strides);
    return result;
}

static PyObject *Tensor_copy(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    return Py_NewRef(self);
}

static PyObject *call_python(PyObject *self, const char *name, PyObject *args, PyObject *kwargs)
{
    return call_python_in("fastexport._tensors", self, name, args, kwargs);
}

static PyObject *Tensor_numpy(PyObject *self, PyObject *args, PyObject *kwargs)
{
    return call_python(self, "to_numpy", args, kwargs);
}

static PyObject *Tensor_torch(PyObject *self, PyObject *args, PyObject *kwargs)
{
    return call_python(self, "to_torch", args, kwargs);
}

static PyObject *Tensor_statistics(PyObject *self, PyObject *args, PyObject *kwargs)
{
    return call_python_in("fastexport._statistics", self, "statistics", args, kwargs);
}

static PyObject *Tensor_mimebundle(PyObject *self, PyObject *args, PyObject *kwargs)
{
    return call_python_in("fastexport._notebook", self, "mimebundle", args, kwargs);
}

static PyObject *Tensor_tolist(PyObject *self, PyObject *args)
{
    return call_python(self, "to_list", args, NULL);
}

/* ---- as a number: without these, int() and float() would read the memory as text, through the buffer protocol ---- */

static PyObject *Tensor_item(PyObject *self, PyObject *ignored)
{
    PyObject *none = PyTuple_New(0), *item = none ? call_python(self, "to_item", none, NULL) : NULL;

    (void)ignored;
    Py_XDECREF(none);
    return item;
}

/* What a function of the number protocol makes of the one element. */
static PyObject *convert(PyObject *self, PyObject *(*function)(PyObject *))
{
    PyObject *item = Tensor_item(self, NULL), *result = item ? function(item) : NULL;

    Py_XDECREF(item);
    return result;
}

static PyObject *Tensor_int(PyObject *self)
{
    return convert(self, PyNumber_Long);
}

static PyObject *Tensor_float(PyObject *self)
{
    return convert(self, PyNumber_Float);
}

static PyObject *complex_of(PyObject *number)
{
    return PyObject_CallOneArg((PyObject *)&PyComplex_Type, number);
}

static PyObject *Tensor_complex(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    return convert(self, complex_of);
}

static int Tensor_bool(PyObject *self)
{
    PyObject *item;

    if (((TensorObject *)self)->numel != 1) {
        PyErr_SetString(PyExc_TypeError, "a Tensor of several elements, or of none, is neither true nor false; look at "
                                         "tolist(), or compare with None");
        return -1;
    }
    if (!(item = Tensor_item(self, NULL)))
        return -1;
    int result = PyObject_IsTrue(item);
    Py_DECREF(item);
    return result;
}

#define EXAMPLE_TENSOR                                   \
    ">>> from fastexport._core import Storage, Tensor\n" \
    ">>> from fastexport._dtypes import DType\n"         \
    ">>> t = Tensor(Storage(bytes(16)), DType('float32'), (2, 2))\n"

PyDoc_STRVAR(
    tensor_doc,
    "Tensor(storage, dtype, shape, strides=None, storage_offset=0, requires_grad=False, device='cpu',\n"
    "       layout='torch.strided', is_param=False)\n--\n\n"
    "A tensor whose data are read, or mapped, when they are first asked for; never written.\n\n"
    "memoryview(t), numpy.asarray(t) and torch.from_dlpack(t) see the data without a copy. Of types that buffers\n"
    "have no letter for (bfloat16, float8, complex32) a memoryview holds the bits, and numpy.asarray raises\n"
    "ValueError; numpy() is the way.\n"
    "Tensors that share memory, such as tied weights, have the same ``storage``. Equality is identity.\n\n"
    "Args:\n"
    "    storage: a Storage; None for a tensor without data.\n"
    "    dtype: the DType of the elements.\n"
    "    shape, strides, storage_offset: the view; in elements. strides None is contiguous.\n"
    "    requires_grad, device, layout, is_param: what the file says of the tensor in torch.\n\n"
    "Raises:\n"
    "    TypeError: dtype is no DType.\n"
    "    ValueError: the view does not lie within the storage, or is no tensor at all.\n\n" EXAMPLE_TENSOR
    ">>> t\nTensor(shape=(2, 2), dtype=torch.float32, 16 bytes)\n"
    ">>> t.strides, memoryview(t).readonly\n((2, 1), True)");
PyDoc_STRVAR(tobytes_doc, "tobytes($self, /)\n--\n\nA copy of the elements in C order.\n\n" EXAMPLE_TENSOR
                          ">>> len(t.tobytes()) == t.nbytes\nTrue");
PyDoc_STRVAR(numpy_doc,
             "numpy($self, /, *, raw=False)\n--\n\n"
             "A read-only numpy array of the data, without a copy; of a type of ml_dtypes for bfloat16 and float8.\n\n"
             "Args:\n    raw: give types that numpy itself does not have as unsigned ints of their size instead.\n\n"
             "Raises:\n    ImportError: numpy, or ml_dtypes where it is needed, is not installed.\n"
             "    TypeError: neither has the type.\n\n" EXAMPLE_TENSOR ">>> t.numpy().shape\n(2, 2)");
PyDoc_STRVAR(torch_doc,
             "torch($self, /, copy=True)\n--\n\n"
             "A torch.Tensor of the data; a torch.nn.Parameter when is_param is set.\n\n"
             "Args:\n    copy: False shares the memory: what is written there shows in this tensor, see __dlpack__.\n\n"
             "Raises:\n    ImportError: torch is not installed.\n\n" EXAMPLE_TENSOR ">>> t.torch().sum()\ntensor(0.)");
PyDoc_STRVAR(tolist_doc,
             "tolist($self, /)\n--\n\nThe elements as nested lists of Python numbers; of a tensor without dimensions, "
             "the number.\n\n" EXAMPLE_TENSOR ">>> t.tolist()\n[[0.0, 0.0], [0.0, 0.0]]");
PyDoc_STRVAR(
    item_doc,
    "item($self, /)\n--\n\nThe only element as a number of Python, whatever the type; int(), float(), complex() "
    "and bool() go by it.\n\n"
    "Raises:\n    ValueError: there are several elements, or none.\n\n"
    ">>> from fastexport._core import Storage, Tensor\n"
    ">>> from fastexport._dtypes import DType\n"
    ">>> t = Tensor(Storage(bytes([0x80, 0x3f])), DType('bfloat16'), (1,))\n"
    ">>> t.item(), int(t)\n(1.0, 1)");
PyDoc_STRVAR(complex_doc, "__complex__($self, /)\n--\n\nThe only element; see item().");
PyDoc_STRVAR(statistics_doc,
             "statistics($self, /, *, sha256=False)\n--\n\n"
             "Numbers that describe the elements, as fastexport.WeightStatistics: extremes, mean, deviation, zeros.\n\n"
             "Args:\n    sha256: also the SHA-256 of the elements in C order.\n\n" EXAMPLE_TENSOR
             ">>> t.statistics().zeros\n4");
PyDoc_STRVAR(reduce_doc, "__reduce__($self, /)\n--\n\nA pickle, and a deep copy, holds the whole storage once.");
PyDoc_STRVAR(copy_doc, "__copy__($self, /)\n--\n\nThe tensor itself: it never changes.");

static PyMethodDef tensor_methods[] = {
    {"tobytes", Tensor_tobytes, METH_NOARGS, tobytes_doc},
    {"numpy", (PyCFunction)(void (*)(void))Tensor_numpy, METH_VARARGS | METH_KEYWORDS, numpy_doc},
    {"torch", (PyCFunction)(void (*)(void))Tensor_torch, METH_VARARGS | METH_KEYWORDS, torch_doc},
    {"tolist", Tensor_tolist, METH_VARARGS, tolist_doc},
    {"item", Tensor_item, METH_NOARGS, item_doc},
    {"__complex__", Tensor_complex, METH_NOARGS, complex_doc},
    {"_repr_mimebundle_", (PyCFunction)(void (*)(void))Tensor_mimebundle, METH_VARARGS | METH_KEYWORDS,
     "_repr_mimebundle_($self, include=None, exclude=None)\n--\n\nWhat a notebook shows: the text, and HTML."},
    {"statistics", (PyCFunction)(void (*)(void))Tensor_statistics, METH_VARARGS | METH_KEYWORDS, statistics_doc},
    {"__dlpack__", (PyCFunction)(void (*)(void))Tensor_dlpack, METH_VARARGS | METH_KEYWORDS, dlpack_doc},
    {"__dlpack_device__", Tensor_dlpack_device, METH_NOARGS, dlpack_device_doc},
    {"__reduce__", Tensor_reduce, METH_NOARGS, reduce_doc},
    {"__copy__", Tensor_copy, METH_NOARGS, copy_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef tensor_getset[] = {
    {"shape", Tensor_shape, NULL, "The sizes: a tuple of ints.", NULL},
    {"strides", Tensor_strides, NULL, "The strides in elements, as torch counts them: a tuple of ints.", NULL},
    {"itemsize", Tensor_itemsize, NULL, "The bytes of one element.", NULL},
    {"__array_interface__", Tensor_array_interface, NULL, "numpy's array interface, version 3.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

#define MEMBER(name, type, doc) {#name, type, offsetof(TensorObject, name), READONLY, doc}

static PyMemberDef tensor_members[] = {
    MEMBER(storage, T_OBJECT, "The Storage, which tied tensors share; None on the device meta."),
    MEMBER(dtype, T_OBJECT, "The DType of the elements."),
    MEMBER(device, T_OBJECT, "The device that the file names; the data are always in the memory of the CPU."),
    MEMBER(layout, T_OBJECT, "The layout that the file names."),
    MEMBER(storage_offset, T_LONGLONG, "The first element's index in the storage."),
    MEMBER(numel, T_PYSSIZET, "The number of elements."),
    MEMBER(nbytes, T_PYSSIZET, "The bytes of all elements, each counted once; the storage may have more."),
    MEMBER(ndim, T_INT, "The number of dimensions."),
    MEMBER(requires_grad, T_BOOL, "Whether torch is to compute a gradient for it."),
    MEMBER(is_param, T_BOOL, "Whether it is a torch.nn.Parameter."),
    {"is_contiguous", T_BOOL, offsetof(TensorObject, c_contiguous), READONLY, "Whether the elements lie in C order."},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(TensorObject, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot tensor_slots[] = {
    {Py_tp_doc, (void *)tensor_doc},
    {Py_tp_new, Tensor_new},
    {Py_tp_dealloc, Tensor_dealloc},
    {Py_tp_traverse, Tensor_traverse},
    {Py_tp_repr, Tensor_repr},
    {Py_tp_methods, tensor_methods},
    {Py_tp_getset, tensor_getset},
    {Py_tp_members, tensor_members},
    {Py_sq_length, Tensor_len},
    {Py_nb_bool, Tensor_bool},
    {Py_nb_int, Tensor_int},
    {Py_nb_float, Tensor_float},
    {Py_bf_getbuffer, Tensor_getbuffer},
    {0, NULL},
};

PyType_Spec tensor_spec = {
    .name = "fastexport._core.Tensor",
    .basicsize = offsetof(TensorObject, numbers),
    .itemsize = sizeof(Py_ssize_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = tensor_slots,
};
