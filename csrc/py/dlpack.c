/* dlpack.c - tensors for other libraries, by DLPack.
 *
 * From version 1 on DLPack can say that data are read-only, so they go out as they are; the export holds the tensor. To an
 * older consumer, and where the data are not aligned for their type, goes a copy, which the export owns.
 *
 * A capsule owns its export until a consumer renames it; then the consumer does, and frees it by the export's deleter.
 */
#include "tensor.h"

/* The structs of DLPack 1, as https://dmlc.github.io/dlpack/latest/c_api.html has them. */
typedef struct {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
    dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *);
} dl_managed;

typedef struct dl_versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct dl_versioned *);
    uint64_t flags;
    dl_tensor tensor;
} dl_versioned;

#define DL_CPU 1
#define DL_READ_ONLY 1u
#define DL_IS_COPIED 2u

static const char plain_name[] = "dltensor", versioned_name[] = "dltensor_versioned";

/* What is handed out; it belongs to the capsule, then to the consumer. */
typedef struct {
    dl_managed plain;
    dl_versioned versioned;
    PyObject *owner; /* of the data, or NULL */
    void *memory;    /* a copy of the data, or NULL */
    int64_t numbers[];
} dl_export;

/* The consumer may call this in any thread, without the GIL, and when Python is gone. */
static void export_free(dl_export *x)
{
    if (x->owner && Py_IsInitialized()) {
        PyGILState_STATE gil = PyGILState_Ensure();
        Py_DECREF(x->owner);
        PyGILState_Release(gil);
    }
    PyMem_RawFree(x->memory);
    PyMem_RawFree(x);
}

static void delete_plain(dl_managed *m)
{
    export_free(m->context);
}

static void delete_versioned(dl_versioned *m)
{
    export_free(m->context);
}

/* A consumer that takes the tensor renames the capsule; then it is no longer ours to delete. */
static void capsule_free(PyObject *capsule)
{
    PyObject *type, *value, *traceback;
    bool versioned = PyCapsule_IsValid(capsule, versioned_name);

    if (!versioned && !PyCapsule_IsValid(capsule, plain_name))
        return;
    PyErr_Fetch(&type, &value, &traceback);
    void *m = PyCapsule_GetPointer(capsule, versioned ? versioned_name : plain_name);
    export_free(versioned ? ((dl_versioned *)m)->context : ((dl_managed *)m)->context);
    PyErr_Restore(type, value, traceback);
}

static dl_export *export_new(TensorObject *t, bool copied)
{
    int ndim = t->ndim;
    size_t numbers = 2 * (size_t)ndim * sizeof(int64_t);
    dl_export *x = PyMem_RawCalloc(1, sizeof *x + numbers);

    if (!x) {
        PyErr_NoMemory();
        return NULL;
    }
    Py_ssize_t stride = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        x->numbers[i] = shape_of(t)[i];
        x->numbers[ndim + i] = copied ? stride : strides_of(t)[i];
        if (t->numel)
            stride *= shape_of(t)[i];
    }
    x->plain.tensor = (dl_tensor){
        .device_type = DL_CPU,
        .ndim = ndim,
        .code = t->element->dl_code,
        .bits = (uint8_t)(t->element->itemsize * 8),
        .lanes = 1,
        .shape = x->numbers,
        .strides = x->numbers + ndim,
    };
    return x;
}

/* Point an export to the tensor's own data, or to a copy. */
static int export_data(dl_export *x, TensorObject *t, bool copied)
{
    const char *data;

    if (!copied) {
        if (tensor_touch(t, &data) < 0)
            return -1;
        x->owner = Py_NewRef((PyObject *)t);
        x->plain.tensor.data = t->numel ? (void *)(uintptr_t)data : NULL;
        return 0;
    }
    if (!(x->memory = PyMem_RawMalloc(t->nbytes ? (size_t)t->nbytes : 1))) {
        PyErr_NoMemory();
        return -1;
    }
    x->plain.tensor.data = t->numel ? x->memory : NULL;
    return tensor_gather(t, x->memory);
}

static PyObject *export_capsule(dl_export *x, bool versioned)
{
    x->plain.context = x;
    x->plain.deleter = delete_plain;
    x->versioned = (dl_versioned){
        .major = 1,
        .minor = x->plain.tensor.code > DL_BOOL, /* floats of 8 bits came with 1.1 */
        .context = x,
        .deleter = delete_versioned,
        .flags = x->memory ? DL_IS_COPIED : DL_READ_ONLY,
        .tensor = x->plain.tensor,
    };
    return PyCapsule_New(versioned ? (void *)&x->versioned : (void *)&x->plain, versioned ? versioned_name : plain_name,
                         capsule_free);
}

/* The ints of a pair. */
static int read_pair(PyObject *o, const char *what, long out[2])
{
    if (!PyTuple_Check(o) || PyTuple_GET_SIZE(o) != 2) {
        PyErr_Format(PyExc_TypeError, "%s must be a tuple of two ints, or None", what);
        return -1;
    }
    for (int i = 0; i < 2; i++) {
        out[i] = PyLong_AsLong(PyTuple_GET_ITEM(o, i));
        if (out[i] == -1 && PyErr_Occurred())
            return -1;
    }
    return 0;
}

static int read_version(PyObject *max_version, bool *versioned)
{
    long pair[2] = {0, 0};

    if (max_version != Py_None && read_pair(max_version, "max_version", pair) < 0)
        return -1;
    *versioned = pair[0] >= 1;
    return 0;
}

static int check_device(PyObject *dl_device)
{
    long pair[2] = {DL_CPU, 0};

    if (dl_device != Py_None && read_pair(dl_device, "dl_device", pair) < 0)
        return -1;
    return pair[0] == DL_CPU && pair[1] == 0 ? 0 : refuse_buffer("a Tensor's data are in the memory of the CPU only");
}

/* Whether a copy goes out: asked for, or needed because the consumer could write, or the data are not aligned. */
static int decide_copy(TensorObject *t, PyObject *copy, bool versioned, bool *copied)
{
    const char *data;
    int asked = copy == Py_None ? 0 : PyObject_IsTrue(copy);

    if (asked < 0 || tensor_touch(t, &data) < 0)
        return -1;
    bool aligned = (uintptr_t)data % (t->element->itemsize > 8 ? 8u : t->element->itemsize) == 0;
    bool needed = !versioned || !aligned;
    if (needed && copy != Py_None && !asked)
        return refuse_buffer(
            versioned ? "the data are not aligned; only a copy can go out"
                      : "the data are read-only, which DLPack can say from version 1 on; give max_version=(1, 0)");
    *copied = asked || needed;
    return 0;
}

PyObject *Tensor_dlpack(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    TensorObject *t = (TensorObject *)self;
    PyObject *stream = Py_None, *max_version = Py_None, *dl_device = Py_None, *copy = Py_None, *capsule = NULL;
    bool versioned, copied;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O$OOO:__dlpack__", names, &stream, &max_version, &dl_device,
                                     &copy))
        return NULL;
    if (stream != Py_None) {
        refuse_buffer("memory of the CPU has no streams: stream must be None");
        return NULL;
    }
    if (read_version(max_version, &versioned) < 0 || check_device(dl_device) < 0 ||
        decide_copy(t, copy, versioned, &copied) < 0)
        return NULL;
    dl_export *x = export_new(t, copied);
    if (x && export_data(x, t, copied) == 0)
        capsule = export_capsule(x, versioned);
    if (x && !capsule)
        export_free(x);
    return capsule;
}

PyObject *Tensor_dlpack_device(PyObject *self, PyObject *ignored)
{
    (void)self;
    (void)ignored;
    return Py_BuildValue("(ii)", DL_CPU, 0);
}

const char dlpack_doc[] = PyDoc_STR(
    "__dlpack__($self, /, stream=None, *, max_version=None, dl_device=None, copy=None)\n--\n\n"
    "The data for another library, by DLPack; read-only and without a copy for max_version (1, 0) and later. An\n"
    "older consumer could not know that it must not write, so it gets a copy. torch knows, and does not look: what\n"
    "is written through it shows in this tensor and in what shares memory with it, and is saved with the program;\n"
    "the file stays as it is.\n\n"
    "Raises:\n    BufferError: copy=False where only a copy can go out, a device or a stream.\n\n"
    ">>> from fastexport._core import Storage, Tensor\n"
    ">>> from fastexport._dtypes import DType\n"
    ">>> t = Tensor(Storage(bytes(16)), DType('float32'), (2, 2))\n"
    ">>> import numpy\n>>> numpy.from_dlpack(t).shape\n(2, 2)");
const char dlpack_device_doc[] = PyDoc_STR("__dlpack_device__($self, /)\n--\n\nAlways (1, 0): the CPU.");
