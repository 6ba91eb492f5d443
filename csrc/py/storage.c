/* storage.c - the bytes of one record: of an entry of an archive, brought in when they are first asked for, or of a buffer.
 *
 *     stored, in a file          mapped; pages come in as they are used
 *     stored, archive of bytes   where they are in those bytes
 *     deflated, not mapped, or   read into memory of our own
 *     of a file elsewhere
 *     any other file             mapped (Storage.map)
 *
 * Invariant: `data` is set, and the CRC of an entry was found right, before `state` becomes READY; after that neither
 * changes until the storage goes. Nobody should write: exports are read-only. But there are libraries that don't look, so
 * mappings are private and may be written: what they write stays in this process, in pages of its own.
 *
 * A part of an entry (Storage.part) is brought in without a look at the rest, and so without a check of the CRC. A part of
 * what was brought in already holds that (parent), and looks at the file as it does.
 *
 * A first touch takes the archive's lock without holding the GIL, so threads that touch at once wait for each other and
 * never for the interpreter. Failures are not remembered: the next touch tries again.
 *
 * The file may change under a mapping. That it reaches far enough is checked at each touch; one that is shortened while it
 * is read makes the reader of a lost page die (SIGBUS), and what is written into it shows through. Who shares files with
 * such writers opens them with map off. Saving replaces a file by renaming, which leaves mappings as they are.
 */
#include "file.h"
#include "tensor.h"

#include <errno.h>
#include <fcntl.h>
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
    PyObject *parent;      /* the Storage that it is a part of, which has no parent itself; NULL: there is none */
    uint64_t start;        /* of a part, in the entry */
    void *mapping, *memory;
    size_t mapped, size;
    int fd; /* of a mapping without a source */
    bool is_part;
    const char *data;
    PyObject *weakrefs;
    _Atomic int state;
} StorageObject;

/* Mapped bytes are used as numbers in place, so they have to be aligned for the largest; torch aligns to 64. */
#define ALIGNMENT 8
/* What is streamed stays in the cache. */
#define STREAMED ((size_t)1 << 17)
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

/* No memory is set aside for pages that somebody writes, which nobody should. */
static void *map_pages(int fd, size_t len, off_t at)
{
    return mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, at);
}

/* Map an entry: 1 when it is done, 0 when the system can't map this file, -1 on failure. The CRC is that of what is read:
 * a large mapping that is gone through fills the memory of the process, and it is not there to be cut short yet. */
static int map_entry(StorageObject *s, pt2_report *r)
{
    int fd = pt2_archive_fd(s->source.archive);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), skipped = offset_of(s) % page;

    if (check_extent(s, fd, r) < 0 || (!s->is_part && pt2_archive_check(s->source.archive, s->source.entry, r) < 0))
        return -1;
    /* both are within the file's size, so nothing overflows */
    size_t len = s->size + (size_t)skipped;
    void *mapping = map_pages(fd, len, (off_t)(offset_of(s) - skipped));
    if (mapping == MAP_FAILED)
        return 0;
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

static bool is_mappable(const StorageObject *s)
{
    return s->source.map && s->source.entry->method == PT2_STORED && offset_of(s) % ALIGNMENT == 0 &&
           pt2_archive_fd(s->source.archive) >= 0;
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
        if (!s->is_part && pt2_archive_check(s->source.archive, e, r) < 0)
            return -1;
        s->data = bytes + offset_of(s);
        return 0;
    }
    if (is_mappable(s)) {
        int done = map_entry(s, r);
        if (done)
            return done < 0 ? -1 : 0;
    }
    return read_entry(s, r);
}

/* ---- the first touch ---- */

static int first_touch(StorageObject *s)
{
    ArchiveObject *owner = (ArchiveObject *)s->source.owner;
    pt2_report report;
    int result = 0;

    if (archive_lock(owner) < 0)
        return -1;
    pt2_report_init(&report, &fe_libc_allocator, s->source.limits);
    if (atomic_load_explicit(&s->state, memory_order_acquire) != READY) {
        Py_BEGIN_ALLOW_THREADS
        result = bring(s, &report);
        if (result == 0)
            atomic_store_explicit(&s->state, READY, memory_order_release);
        Py_END_ALLOW_THREADS
    }
    archive_unlock(owner);
    if (result < 0)
        raise_report(PyType_GetModuleState(Py_TYPE(s)), &report);
    pt2_report_clear(&report);
    return result;
}

/* Reading a mapping beyond the end of its file ends the process: see at each touch whether the file is still as long. */
static int check_mapping(const StorageObject *s)
{
    bool of_entry = s->source.owner;
    uint64_t end = (of_entry ? offset_of(s) : 0) + s->size;
    struct stat st;

    if (fstat(of_entry ? pt2_archive_fd(s->source.archive) : s->fd, &st) == 0 && (uint64_t)st.st_size >= end)
        return 0;
    return raise_format_error(PyType_GetModuleState(Py_TYPE(s)), PT2_IO, of_entry ? s->source.entry->name : NULL,
                              "the file was cut short since it was opened; open it again, with mmap=False when that "
                              "can happen");
}

int storage_touch(PyObject *storage, const char **data)
{
    StorageObject *s = (StorageObject *)storage;

    if (atomic_load_explicit(&s->state, memory_order_acquire) != READY && first_touch(s) < 0)
        return -1;
    const StorageObject *whole = s->parent ? (StorageObject *)s->parent : s;
    if (whole->mapping && check_mapping(whole) < 0)
        return -1;
    *data = s->data;
    return 0;
}

/* ---- without bringing them in ---- */

/* Read a part in pieces; there is no CRC of it. */
static int stream_part(const StorageObject *s, pt2_sink sink, void *ctx, pt2_report *r)
{
    char *piece = PyMem_RawMalloc(STREAMED);
    int result = piece ? 0 : pt2_no_memory(r);

    for (size_t at = 0; result == 0 && at < s->size; at += STREAMED) {
        size_t len = s->size - at < STREAMED ? s->size - at : STREAMED;
        result = pt2_archive_read_part(s->source.archive, s->source.entry, s->start + at, piece, len, r);
        if (result == 0)
            result = sink(ctx, piece, len);
    }
    PyMem_RawFree(piece);
    return result;
}

int storage_stream(PyObject *storage, pt2_sink sink, void *ctx)
{
    StorageObject *s = (StorageObject *)storage;
    ArchiveObject *owner = (ArchiveObject *)s->source.owner;
    pt2_report report;
    int result;

    if (!owner || !is_mappable(s) || atomic_load_explicit(&s->state, memory_order_acquire) == READY)
        return 0;
    if (archive_lock(owner) < 0)
        return -1;
    pt2_report_init(&report, &fe_libc_allocator, s->source.limits);
    Py_BEGIN_ALLOW_THREADS
    result = s->is_part ? stream_part(s, sink, ctx, &report)
                        : pt2_archive_stream(s->source.archive, s->source.entry, sink, ctx, &report);
    Py_END_ALLOW_THREADS
    archive_unlock(owner);
    if (result < 0)
        raise_report(PyType_GetModuleState(Py_TYPE(s)), &report);
    pt2_report_clear(&report);
    return result < 0 ? -1 : 1;
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

    assert(source->owner && source->archive && source->entry);
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

/* Take hold of the bytes of a buffer: of another storage, by what that is a part of, so that no chains come about. */
static int hold(StorageObject *s, PyObject *buffer)
{
    if (!Py_IS_TYPE(buffer, Py_TYPE(s))) {
        if (PyObject_GetBuffer(buffer, &s->view, PyBUF_SIMPLE) < 0)
            return -1;
        s->data = s->view.buf;
        s->size = (size_t)s->view.len;
        return 0;
    }
    StorageObject *other = (StorageObject *)buffer;
    if (storage_touch(buffer, &s->data) < 0)
        return -1;
    s->size = other->size;
    s->parent = Py_NewRef(other->parent ? other->parent : buffer);
    return 0;
}

static PyObject *Storage_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"buffer", "offset", "length", NULL};
    PyObject *buffer, *length = Py_None;
    Py_ssize_t offset = 0, size;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|nO:Storage", names, &buffer, &offset, &length))
        return NULL;
    StorageObject *s = (StorageObject *)type->tp_alloc(type, 0);
    if (!s || hold(s, buffer) < 0)
        goto fail;
    Py_ssize_t whole = (Py_ssize_t)s->size;
    size = offset < 0 ? -1 : whole - offset;
    if (length != Py_None && (size = PyNumber_AsSsize_t(length, PyExc_OverflowError)) == -1 && PyErr_Occurred())
        goto fail;
    if (offset < 0 || size < 0 || offset > whole || size > whole - offset) {
        PyErr_Format(PyExc_ValueError, "bytes %zd to %zd + %R are not within the buffer's %zd", offset, offset, length,
                     whole);
        goto fail;
    }
    s->data += offset;
    s->size = (size_t)size;
    atomic_init(&s->state, READY);
    return (PyObject *)s;
fail:
    Py_XDECREF(s);
    return NULL;
}

/* There is no tp_clear: exported bytes must stay where they are. A cycle through an owner is broken there. A memoryview is
 * not told of, as in an Archive: CPython crashes when the buffer of one that the collector has cleared is let go of. */
static int Storage_traverse(PyObject *self, visitproc visit, void *arg)
{
    StorageObject *s = (StorageObject *)self;

    Py_VISIT(Py_TYPE(self));
    Py_VISIT(s->source.owner);
    if (s->view.obj && !PyMemoryView_Check(s->view.obj))
        Py_VISIT(s->view.obj);
    Py_VISIT(s->parent);
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
    if (s->mapping && !s->source.owner)
        close(s->fd);
    PyMem_RawFree(s->memory);
    PyBuffer_Release(&s->view);
    Py_XDECREF(s->parent);
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

/* Map a file, and keep a descriptor of its own. */
static int map_whole(StorageObject *s, int fd)
{
    struct stat status;

    if (fstat(fd, &status) < 0)
        return -1;
    s->data = "";
    if (status.st_size <= 0)
        return 0;
    if ((s->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0)
        return -1;
    void *mapping = map_pages(s->fd, (size_t)status.st_size, 0);
    if (mapping == MAP_FAILED) {
        int reason = errno;
        close(s->fd);
        errno = reason;
        return -1;
    }
    s->mapping = mapping;
    s->data = mapping;
    s->mapped = s->size = (size_t)status.st_size;
    return 0;
}

static PyObject *Storage_map(PyObject *type, PyObject *file)
{
    int fd = PyObject_AsFileDescriptor(file);
    StorageObject *s = fd < 0 ? NULL : (StorageObject *)((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, 0);

    if (!s)
        return NULL;
    if (map_whole(s, fd) < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        Py_DECREF(s);
        return NULL;
    }
    atomic_init(&s->state, READY);
    return (PyObject *)s;
}

/* The bytes of an entry that was mapped are compared with its CRC; all others nobody could write, or are not a file's. */
static PyObject *Storage_is_written(PyObject *self, PyObject *ignored)
{
    const StorageObject *s = (const StorageObject *)self;
    bool mapped = atomic_load_explicit(&s->state, memory_order_acquire) == READY && s->mapping;
    const char *data;
    uint32_t crc;

    (void)ignored;
    if (!mapped || s->is_part || !s->source.owner)
        Py_RETURN_FALSE;
    if (storage_touch(self, &data) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    crc = (uint32_t)crc32_z(0, (const unsigned char *)data, s->size);
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(crc != s->source.entry->crc);
}

PyDoc_STRVAR(map_doc, "map(file, /)\n--\n\n"
                      "The bytes of an open file, mapped. The file may be closed then; each touch sees whether it is\n"
                      "still as long.\n\n"
                      "Raises:\n    OSError: it can't be mapped.");
PyDoc_STRVAR(is_written_doc,
             "is_written($self, /)\n--\n\n"
             "Whether somebody wrote into the mapping of an entry, as libraries do that don't know of read-only\n"
             "memory. What was written is this process' alone; the file is as it was.");
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
    {"map", Storage_map, METH_O | METH_CLASS, map_doc},
    {"is_written", Storage_is_written, METH_NOARGS, is_written_doc},
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
