/* storage.c - the bytes of one record: of an entry of an archive, brought in when they are first asked for, or of a buffer.
 *
 *     stored, in a file          mapped, read-only; pages come in as they are used
 *     stored, archive of bytes   where they are in those bytes
 *     deflated, or not mapped    read into memory of our own
 *
 * Invariant: `data` is set, and the CRC of an entry was found right, before `state` becomes READY; after that neither
 * changes until the storage goes. Nobody writes: exports are read-only, and mappings are made so.
 *
 * A part of an entry (Storage.part) is brought in without a look at the rest, and so without a check of the CRC.
 *
 * A first touch takes the archive's lock without holding the GIL, so threads that touch at once wait for each other and
 * never for the interpreter. Failures are not remembered: the next touch tries again.
 *
 * The file may change under a mapping. That it reaches far enough is checked before it is mapped; one that is shortened
 * later makes the reader of a lost page die (SIGBUS), and what is written into it shows through. Who shares files with
 * such writers opens them with map off. Saving replaces a file by renaming, which leaves mappings as they are.
 */
#include "file.h"
#include "tensor.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { UNTOUCHED, READY };

typedef struct {
    PyObject_HEAD
    storage_source source; /* owner NULL: there is none */
    Py_buffer view;        /* obj NULL: there is none */
    uint64_t start;        /* of a part, in the entry */
    void *mapping, *memory;
    size_t mapped, size;
    bool is_part;
    const char *data;
    PyObject *weakrefs;
    _Atomic int state;
} StorageObject;

/* Mapped bytes are used as numbers in place, so they have to be aligned for the largest; torch aligns to 64. */
#define ALIGNMENT 8
/* A mapping is checked in pieces of so many bytes. */
#define PIECE ((size_t)4 << 20)
/* The most that one byte of deflate can stand for (zlib, technical details), so a larger size is a lie. */
#define DEFLATE_RATIO 1032

/* ---- errors ---- */

int raise_format_error(module_state *st, pt2_kind kind, const char *entry, const char *message)
{
    pt2_report r;

    pt2_report_init(&r, &fe_libc_allocator, NULL);
    pt2_fail(&r, kind, entry, NULL, "%s", message);
    raise_report(st, &r);
    pt2_report_clear(&r);
    return -1;
}

/* ---- bringing the bytes in; all without the GIL, under the archive's lock ---- */

static int compare_crc(const StorageObject *s, uint32_t crc, pt2_report *r)
{
    const pt2_entry *e = s->source.entry;

    if (crc == e->crc)
        return 0;
    return pt2_fail(r, PT2_CRC, e->name, NULL,
                    "the content has CRC %08x, but the archive says %08x: the file is damaged", crc, e->crc);
}

static int check_bytes(const StorageObject *s, const char *data, pt2_report *r)
{
    return s->is_part ? 0 : compare_crc(s, (uint32_t)crc32_z(0, (const unsigned char *)data, s->size), r);
}

/* As check_bytes, of a mapping whose first `skipped` bytes are not the entry's. Pages that were checked are let go: one
 * large weight after the other would fill the memory of the process, and who uses one gets its pages from the cache. */
static int check_mapped(const StorageObject *s, char *mapping, size_t skipped, pt2_report *r)
{
    size_t len = skipped + s->size;
    uint32_t crc = 0;

    if (s->is_part || len <= PIECE)
        return check_bytes(s, mapping + skipped, r);
    for (size_t at = 0; at < len; at += PIECE) { /* PIECE is a multiple of every page size */
        size_t from = at ? at : skipped, end = len - at < PIECE ? len : at + PIECE;
        crc = (uint32_t)crc32_z(crc, (const unsigned char *)mapping + from, end - from);
        (void)madvise(mapping + at, end - at, MADV_DONTNEED);
    }
    return compare_crc(s, crc, r);
}

/* Where the bytes start in the file. */
static uint64_t offset_of(const StorageObject *s)
{
    return s->source.entry->offset + s->start;
}

/* Whether a file reaches as far as an entry; when it was opened it did. */
static int check_extent(const StorageObject *s, int fd, pt2_report *r)
{
    const pt2_entry *e = s->source.entry;
    struct stat status;

    if (fstat(fd, &status) < 0)
        return pt2_fail_io(r, errno, e->name, "the file cannot be read: %s", strerror(errno));
    if (status.st_size < 0 || offset_of(s) > (uint64_t)status.st_size ||
        s->size > (uint64_t)status.st_size - offset_of(s))
        return pt2_fail(r, PT2_IO, e->name, NULL, "the file has become too short since it was opened");
    return 0;
}

/* Map an entry: 1 when it is done, 0 when the system can't map this file, -1 on failure. */
static int map_entry(StorageObject *s, pt2_report *r)
{
    int fd = pt2_archive_fd(s->source.archive);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), skipped = offset_of(s) % page;

    if (check_extent(s, fd, r) < 0)
        return -1;
    /* both are within the file's size, so nothing overflows */
    size_t len = s->size + (size_t)skipped;
    void *mapping = mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, (off_t)(offset_of(s) - skipped));
    if (mapping == MAP_FAILED)
        return 0;
    if (check_mapped(s, mapping, (size_t)skipped, r) < 0) {
        munmap(mapping, len);
        return -1;
    }
    s->mapping = mapping;
    s->mapped = len;
    s->data = (char *)mapping + skipped;
    return 1;
}

typedef struct {
    char *to;
    size_t left;
} memory_sink;

static int take_piece(void *ctx, const void *data, size_t len)
{
    memory_sink *sink = ctx;

    if (len > sink->left)
        return -1;
    memcpy(sink->to, data, len);
    sink->to += len;
    sink->left -= len;
    return 0;
}

static int check_limits(const StorageObject *s, pt2_report *r)
{
    const pt2_entry *e = s->source.entry;
    const pt2_limits *limits = s->source.limits ? s->source.limits : &pt2_default_limits;

    if (e->method == PT2_STORED)
        return 0;
    if (limits->inflate_bytes && e->size > limits->inflate_bytes)
        return pt2_fail(r, PT2_LIMIT, e->name, NULL, "inflated it has %llu bytes; the limit is %llu",
                        (unsigned long long)e->size, (unsigned long long)limits->inflate_bytes);
    if (e->size / DEFLATE_RATIO > e->packed)
        return pt2_fail(r, PT2_ZIP, e->name, NULL, "%llu bytes cannot come from %llu deflated ones",
                        (unsigned long long)e->size, (unsigned long long)e->packed);
    return 0;
}

static int fill_memory(StorageObject *s, char *memory, pt2_report *r)
{
    memory_sink sink = {.to = memory, .left = s->size};

    if (s->is_part)
        return pt2_archive_read_part(s->source.archive, s->source.entry, s->start, memory, s->size, r);
    int result = pt2_archive_stream(s->source.archive, s->source.entry, take_piece, &sink, r);
    if (result == 0 && sink.left)
        result = pt2_fail(r, PT2_ZIP, s->source.entry->name, NULL, "the entry ends too early");
    return result;
}

static int read_entry(StorageObject *s, pt2_report *r)
{
    if (check_limits(s, r) < 0)
        return -1;
    char *memory = PyMem_RawMalloc(s->size);
    if (!memory)
        return pt2_no_memory(r);
    if (fill_memory(s, memory, r) < 0) {
        PyMem_RawFree(memory);
        return -1;
    }
    s->memory = memory;
    s->data = memory;
    return 0;
}

static int bring(StorageObject *s, pt2_report *r)
{
    const pt2_entry *e = s->source.entry;
    const char *bytes = pt2_archive_bytes(s->source.archive);

    if (s->size == 0) {
        s->data = "";
        return s->is_part ? 0 : pt2_archive_check(s->source.archive, e, r);
    }
    if (e->method != PT2_STORED)
        return read_entry(s, r);
    if (bytes && ((uintptr_t)bytes + offset_of(s)) % ALIGNMENT == 0) {
        if (check_bytes(s, bytes + offset_of(s), r) < 0)
            return -1;
        s->data = bytes + offset_of(s);
        return 0;
    }
    if (!bytes && s->source.map && offset_of(s) % ALIGNMENT == 0) {
        int done = map_entry(s, r);
        if (done)
            return done < 0 ? -1 : 0;
    }
    return read_entry(s, r);
}

/* ---- the first touch ---- */

static int first_touch(StorageObject *s)
{
    pt2_report report;
    int result = 0;

    pt2_report_init(&report, &fe_libc_allocator, s->source.limits);
    take_lock(s->source.lock);
    if (atomic_load_explicit(&s->state, memory_order_acquire) != READY) {
        Py_BEGIN_ALLOW_THREADS
        result = bring(s, &report);
        if (result == 0)
            atomic_store_explicit(&s->state, READY, memory_order_release);
        Py_END_ALLOW_THREADS
    }
    PyThread_release_lock(s->source.lock);
    if (result < 0)
        raise_report(PyType_GetModuleState(Py_TYPE(s)), &report);
    pt2_report_clear(&report);
    return result;
}

/* Reading a mapping beyond the end of its file ends the process: see at each touch whether the file is still as long. */
static int check_mapping(const StorageObject *s)
{
    const pt2_entry *e = s->source.entry;
    struct stat st;

    if (fstat(pt2_archive_fd(s->source.archive), &st) == 0 && (uint64_t)st.st_size >= offset_of(s) + s->size)
        return 0;
    return raise_format_error(PyType_GetModuleState(Py_TYPE(s)), PT2_IO, e->name,
                              "the file was cut short since it was opened; open it again, with mmap=False when that "
                              "can happen");
}

int storage_touch(PyObject *storage, const char **data)
{
    StorageObject *s = (StorageObject *)storage;

    if (atomic_load_explicit(&s->state, memory_order_acquire) != READY && first_touch(s) < 0)
        return -1;
    if (s->mapping && check_mapping(s) < 0)
        return -1;
    *data = s->data;
    return 0;
}

/* ---- life ---- */

bool storage_check(const module_state *st, PyObject *o)
{
    return Py_IS_TYPE(o, st->storage_type);
}

size_t storage_size(PyObject *storage)
{
    return ((StorageObject *)storage)->size;
}

const storage_source *storage_source_of(PyObject *storage)
{
    const StorageObject *s = (const StorageObject *)storage;

    return s->source.owner ? &s->source : NULL;
}

PyObject *storage_from_source(module_state *st, const storage_source *source)
{
    PyTypeObject *type = st->storage_type;

    assert(source->owner && source->archive && source->entry && source->lock);
    if (source->entry->is_folder || source->entry->size > PY_SSIZE_T_MAX) {
        raise_format_error(st, PT2_PAYLOAD, source->entry->name,
                           source->entry->is_folder ? "a folder has no bytes" : "it is larger than the address space");
        return NULL;
    }
    StorageObject *s = (StorageObject *)type->tp_alloc(type, 0);
    if (!s)
        return NULL;
    s->source = *source;
    Py_INCREF(s->source.owner);
    s->size = (size_t)source->entry->size;
    return (PyObject *)s;
}

PyDoc_STRVAR(
    storage_doc,
    "Storage(buffer, offset=0, length=None)\n--\n\n"
    "The bytes of one record, read-only: of an entry of a file, read when they are first asked for, or of any\n"
    "contiguous buffer. Tensors that share memory have one Storage.\n\n"
    "Args:\n"
    "    buffer: bytes, a bytearray, a memoryview, an array; it is kept, not copied.\n"
    "    offset, length: the part of it, in bytes; length None goes to the end.\n\n"
    "Raises:\n"
    "    ValueError: the part lies outside the buffer.\n"
    "    BufferError: the buffer is not contiguous.\n\n"
    ">>> from fastexport._core import Storage\n"
    ">>> bytes(Storage(b'abcd', 1, 2))\n"
    "b'bc'");

static PyObject *Storage_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"buffer", "offset", "length", NULL};
    PyObject *buffer, *length = Py_None;
    Py_ssize_t offset = 0, size;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|nO:Storage", names, &buffer, &offset, &length))
        return NULL;
    StorageObject *s = (StorageObject *)type->tp_alloc(type, 0);
    if (!s || PyObject_GetBuffer(buffer, &s->view, PyBUF_SIMPLE) < 0)
        goto fail;
    size = offset < 0 ? -1 : s->view.len - offset;
    if (length != Py_None && (size = PyNumber_AsSsize_t(length, PyExc_OverflowError)) == -1 && PyErr_Occurred())
        goto fail;
    if (offset < 0 || size < 0 || offset > s->view.len || size > s->view.len - offset) {
        PyErr_Format(PyExc_ValueError, "bytes %zd to %zd + %R are not within the buffer's %zd", offset, offset, length,
                     s->view.len);
        goto fail;
    }
    s->data = (const char *)s->view.buf + offset;
    s->size = (size_t)size;
    atomic_init(&s->state, READY);
    return (PyObject *)s;
fail:
    Py_XDECREF(s);
    return NULL;
}

/* There is no tp_clear: exported bytes must stay where they are. A cycle through an owner is broken there. */
static int Storage_traverse(PyObject *self, visitproc visit, void *arg)
{
    StorageObject *s = (StorageObject *)self;

    Py_VISIT(Py_TYPE(self));
    Py_VISIT(s->source.owner);
    Py_VISIT(s->view.obj);
    return 0;
}

static void Storage_dealloc(PyObject *self)
{
    StorageObject *s = (StorageObject *)self;
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    if (s->weakrefs)
        PyObject_ClearWeakRefs(self);
    if (s->mapping)
        munmap(s->mapping, s->mapped);
    PyMem_RawFree(s->memory);
    PyBuffer_Release(&s->view);
    Py_XDECREF(s->source.owner);
    type->tp_free(self);
    Py_DECREF(type);
}

/* ---- what Python sees ---- */

static int Storage_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    const char *data;

    view->obj = NULL;
    if (flags & PyBUF_WRITABLE) {
        PyErr_SetString(PyExc_BufferError, "a Storage is read-only");
        return -1;
    }
    if (storage_touch(self, &data) < 0)
        return -1;
    return PyBuffer_FillInfo(view, self, (void *)(uintptr_t)data, (Py_ssize_t)storage_size(self), 1, flags);
}

static Py_ssize_t Storage_len(PyObject *self)
{
    return (Py_ssize_t)storage_size(self);
}

static PyObject *Storage_nbytes(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromSize_t(storage_size(self));
}

static PyObject *Storage_entry(PyObject *self, void *closure)
{
    const StorageObject *s = (const StorageObject *)self;

    (void)closure;
    if (!s->source.owner)
        Py_RETURN_NONE;
    return PyUnicode_DecodeUTF8(s->source.entry->name, (Py_ssize_t)strlen(s->source.entry->name), "surrogateescape");
}

static PyObject *Storage_is_loaded(PyObject *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(atomic_load_explicit(&((StorageObject *)self)->state, memory_order_acquire) == READY);
}

static PyObject *Storage_is_mapped(PyObject *self, void *closure)
{
    StorageObject *s = (StorageObject *)self;

    (void)closure;
    return PyBool_FromLong(atomic_load_explicit(&s->state, memory_order_acquire) == READY && s->mapping);
}

static PyObject *Storage_repr(PyObject *self)
{
    const StorageObject *s = (const StorageObject *)self;

    if (!s->source.owner)
        return PyUnicode_FromFormat("Storage(%zu bytes)", s->size);
    return PyUnicode_FromFormat("Storage(%zu bytes of %s)", s->size, s->source.entry->name);
}

static PyObject *Storage_reduce(PyObject *self, PyObject *ignored)
{
    const char *data;

    (void)ignored;
    if (storage_touch(self, &data) < 0)
        return NULL;
    return Py_BuildValue("O(y#)", Py_TYPE(self), data, (Py_ssize_t)storage_size(self));
}

/* A part of a storage that can be had without the rest: of a stored entry that nobody has touched yet. */
static PyObject *entry_part(StorageObject *s, Py_ssize_t offset, Py_ssize_t length)
{
    PyTypeObject *type = Py_TYPE(s);
    StorageObject *part = (StorageObject *)type->tp_alloc(type, 0);

    if (!part)
        return NULL;
    part->source = s->source;
    Py_INCREF(part->source.owner);
    part->start = s->start + (uint64_t)offset;
    part->size = (size_t)length;
    part->is_part = true;
    return (PyObject *)part;
}

static PyObject *Storage_part(PyObject *self, PyObject *args)
{
    StorageObject *s = (StorageObject *)self;
    Py_ssize_t offset, length;

    if (!PyArg_ParseTuple(args, "nn:part", &offset, &length))
        return NULL;
    if (offset < 0 || length < 0 || (size_t)offset > s->size || (size_t)length > s->size - (size_t)offset)
        return PyErr_Format(PyExc_ValueError, "bytes %zd to %zd + %zd are not within the storage's %zu", offset, offset,
                            length, s->size);
    bool can_skip = s->source.owner && s->source.entry->method == PT2_STORED &&
                    atomic_load_explicit(&s->state, memory_order_acquire) != READY;
    if (can_skip)
        return entry_part(s, offset, length);
    return PyObject_CallFunction((PyObject *)Py_TYPE(self), "Onn", self, offset, length);
}

static PyObject *Storage_copy(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    return Py_NewRef(self);
}

PyDoc_STRVAR(reduce_doc, "__reduce__($self, /)\n--\n\nA pickle, and a deep copy, holds the bytes.");
PyDoc_STRVAR(part_doc,
             "part($self, offset, length, /)\n--\n\n"
             "Some of the bytes, as another Storage. When they are touched nothing else is read, so of an entry\n"
             "the CRC is then not checked; of a deflated one, all is read and checked.\n\n"
             "Raises:\n    ValueError: they lie outside the storage.\n\n"
             ">>> from fastexport._core import Storage\n>>> bytes(Storage(b'abcd').part(1, 2))\nb'bc'");
PyDoc_STRVAR(copy_doc, "__copy__($self, /)\n--\n\nThe storage itself: it never changes.");

static PyMethodDef storage_methods[] = {
    {"__reduce__", Storage_reduce, METH_NOARGS, reduce_doc},
    {"__copy__", Storage_copy, METH_NOARGS, copy_doc},
    {"part", Storage_part, METH_VARARGS, part_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef storage_getset[] = {
    {"nbytes", Storage_nbytes, NULL, "The number of bytes; reads none.", NULL},
    {"entry", Storage_entry, NULL, "The name of the archive's entry below its top folder; None for a buffer.", NULL},
    {"is_loaded", Storage_is_loaded, NULL, "Whether the bytes were asked for already, and their CRC found right.",
     NULL},
    {"is_mapped", Storage_is_mapped, NULL, "Whether the bytes are a mapping of the file.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef storage_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(StorageObject, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot storage_slots[] = {
    {Py_tp_doc, (void *)storage_doc},
    {Py_tp_new, Storage_new},
    {Py_tp_dealloc, Storage_dealloc},
    {Py_tp_traverse, Storage_traverse},
    {Py_tp_repr, Storage_repr},
    {Py_tp_methods, storage_methods},
    {Py_tp_getset, storage_getset},
    {Py_tp_members, storage_members},
    {Py_sq_length, Storage_len},
    {Py_bf_getbuffer, Storage_getbuffer},
    {0, NULL},
};

PyType_Spec storage_spec = {
    .name = "fastexport._core.Storage",
    .basicsize = sizeof(StorageObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = storage_slots,
};
