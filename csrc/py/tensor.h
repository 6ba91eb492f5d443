/* tensor.h - weights and constants: bytes that may still lie in a file (Storage), and typed views of them (Tensor).
 *
 *     Tensor, Tensor ...  ->  Storage  ->  owner (an open archive, or an object with a buffer)
 *
 * Tied weights and views are tensors of one Storage, as in torch. Nothing is read until somebody asks for bytes.
 */
#ifndef FE_TENSOR_H
#define FE_TENSOR_H

#include "module.h"

#include "archive.h"

#include <stdatomic.h>

/* Where the bytes of a storage are in an archive. */
typedef struct {
    PyObject *owner;      /* the Archive: keeps archive and entry in place */
    pt2_archive *archive; /* used under its lock, without the GIL */
    const pt2_entry *entry;
    const pt2_limits *limits; /* as long as the owner; NULL: the default ones */
    bool map;                 /* whether stored entries of files are mapped; else all are read into memory */
} storage_source;

/* ---- storage.c ---- */

extern PyType_Spec storage_spec;

/* A Storage of an entry, with a reference to the owner; reads nothing. FormatError for a folder. */
PyObject *storage_from_source(module_state *st, const storage_source *source);

bool storage_check(const module_state *st, PyObject *o);
size_t storage_size(PyObject *storage); /* bytes; reads nothing */
/* Where a storage's bytes are in an archive, even after they were read; NULL: they came from a buffer. */
const storage_source *storage_source_of(PyObject *storage);
/* Make the bytes available: checks the CRC at the first call. They stay in place as long as the storage. May release the
 * GIL. -1 with an exception: FormatError, MemoryError or OSError. */
int storage_touch(PyObject *storage, const char **data);

/* Give all bytes to a sink, without the GIL and without bringing them in: 1. A file that is cut short meanwhile is an error
 * then, while it ends the process of whoever reads a mapping. The CRC is checked. 0: the bytes are not such as would be
 * mapped, or are already. -1 with an exception. */
int storage_stream(PyObject *storage, pt2_sink sink, void *ctx);

/* Raise fastexport.FormatError; entry may be NULL. Returns -1. */
int raise_format_error(module_state *st, pt2_kind kind, const char *entry, const char *message);

/* ---- tensor.c ---- */

extern PyType_Spec tensor_spec;

#define TENSOR_MAX_DIMS 64 /* as torch, numpy and the buffer protocol */

/* The rest is for the files that make up the type. */

typedef struct {
    int code; /* ScalarType of the file format */
    uint8_t itemsize, dl_code;
    const char *format;  /* of the buffer protocol */
    const char *typestr; /* of __array_interface__; NULL: numpy has no such type */
    int number;          /* fe_number */
} element_type;

typedef struct {
    PyVarObject ob_base;
    PyObject *storage; /* NULL: a tensor without data, on the device meta */
    PyObject *dtype, *device, *layout, *weakrefs;
    const element_type *element;
    int64_t storage_offset; /* in elements */
    Py_ssize_t numel, nbytes;
    Py_ssize_t extent; /* bytes from the first element to the end of the last */
    int ndim;
    bool requires_grad, is_param, c_contiguous, f_contiguous;
    _Atomic bool checked; /* the elements are such as their type allows */
    Py_ssize_t numbers[];
} TensorObject;

static inline Py_ssize_t *shape_of(TensorObject *t)
{
    return t->numbers;
}

static inline Py_ssize_t *strides_of(TensorObject *t)
{
    return t->numbers + t->ndim;
}

static inline Py_ssize_t *byte_strides_of(TensorObject *t)
{
    return t->numbers + 2 * t->ndim;
}

static inline int refuse_buffer(const char *why)
{
    PyErr_SetString(PyExc_BufferError, why);
    return -1;
}

/* ---- tensor_data.c ---- */

/* The first element, in place; brings the storage in where that was not done yet. -1 with an exception. */
int tensor_touch(TensorObject *t, const char **data);
/* Copy the elements in C order. -1 with an exception. */
int tensor_gather(TensorObject *t, char *to);
/* Call, without the GIL, with each row of elements from the first on, `stride` bytes from one to the next; in C order, or
 * (not ordered) any. Strides of 0 make any number of elements of few bytes, so signals are seen to now and then: -1 when the
 * handler of one raised. */
typedef void (*tensor_row)(void *ctx, const char *from, Py_ssize_t count, Py_ssize_t stride);
int tensor_each_row(TensorObject *t, const char *from, bool ordered, tensor_row visit, void *ctx);

/* ---- statistics.c ---- */

extern PyMethodDef statistics_functions[];

/* ---- dlpack.c ---- */

enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_COMPLEX = 5, DL_BOOL = 6 };
enum { DL_FLOAT8_E4M3FN = 10, DL_FLOAT8_E4M3FNUZ, DL_FLOAT8_E5M2, DL_FLOAT8_E5M2FNUZ, DL_FLOAT8_E8M0FNU };

PyObject *Tensor_dlpack(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *Tensor_dlpack_device(PyObject *self, PyObject *ignored);
extern const char dlpack_doc[], dlpack_device_doc[];

#endif
