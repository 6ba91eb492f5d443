/* archive.c - the type Archive: a zip archive, open for reading, and the function that writes one. */
#include "file.h"

#include "tensor.h"

#include <unistd.h>

/* ---- reports ---- */

static PyObject *fault_to_tuple(const pt2_fault *f)
{
    return Py_BuildValue("(ssOzzzs)", pt2_kind_code(f->kind), pt2_kind_name(f->kind),
                         f->severity == PT2_ERROR ? Py_True : Py_False, f->entry, f->path, f->node, f->message);
}

PyObject *report_to_list(const pt2_report *r)
{
    PyObject *list;

    if (PyErr_Occurred())
        return NULL;
    if (r->no_memory)
        return PyErr_NoMemory();
    list = PyList_New((Py_ssize_t)r->count);
    for (uint32_t i = 0; list && i < r->count; i++) {
        PyObject *fault = fault_to_tuple(&r->items[i]);
        if (!fault) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, (Py_ssize_t)i, fault);
    }
    return list;
}

PyObject *raise_report(const module_state *st, const pt2_report *r)
{
    PyObject *faults = report_to_list(r);
    PyObject *error = faults ? PyObject_CallFunction(st->format_error, "Oi", faults, r->system_error) : NULL;

    if (error && PyExceptionInstance_Check(error))
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    else if (error)
        PyErr_SetString(st->error, "the file is damaged");
    Py_XDECREF(error);
    Py_XDECREF(faults);
    return NULL;
}

/* ---- life ---- */

/* Whoever holds the lock may be waiting for the GIL, so the GIL is released meanwhile. */
int archive_lock(ArchiveObject *a)
{
    if (a->reader == PyThreadState_Get()) {
        PyErr_SetString(PyExc_RuntimeError, "the archive is in use by the read that this call is part of");
        return -1;
    }
    if (!PyThread_acquire_lock(a->lock, NOWAIT_LOCK)) {
        Py_BEGIN_ALLOW_THREADS
        PyThread_acquire_lock(a->lock, WAIT_LOCK);
        Py_END_ALLOW_THREADS
    }
    a->reader = PyThreadState_Get();
    return 0;
}

void archive_unlock(ArchiveObject *a)
{
    a->reader = NULL;
    PyThread_release_lock(a->lock);
}

typedef struct {
    const char *name;
    size_t offset, size;
} limit_field;

#define LIMIT(name) {#name, offsetof(pt2_limits, name), sizeof(((pt2_limits *)0)->name)}

static const limit_field limit_fields[] = {
    LIMIT(entries),     LIMIT(json_bytes), LIMIT(inflate_ratio), LIMIT(inflate_bytes), LIMIT(json_depth),
    LIMIT(graph_depth), LIMIT(expr_depth), LIMIT(expr_bytes),    LIMIT(checked_bytes), LIMIT(faults),
};

/* Set the limits that a dict names. */
static int set_limit(pt2_limits *limits, PyObject *key, PyObject *value)
{
    for (size_t i = 0; i < sizeof limit_fields / sizeof *limit_fields; i++) {
        const limit_field *f = &limit_fields[i];
        if (!PyUnicode_Check(key) || PyUnicode_CompareWithASCIIString(key, f->name) != 0)
            continue;
        unsigned long long number = PyLong_AsUnsignedLongLong(value);
        if (number == (unsigned long long)-1 && PyErr_Occurred()) {
            PyErr_Format(PyExc_ValueError, "the limit %R must be a number from 0, which is no limit, to 2^64 - 1", key);
            return -1;
        }
        if (f->size == sizeof(uint32_t)) {
            uint32_t small = number > UINT32_MAX ? UINT32_MAX : (uint32_t)number;
            memcpy((char *)limits + f->offset, &small, sizeof small);
        } else {
            uint64_t large = number;
            memcpy((char *)limits + f->offset, &large, sizeof large);
        }
        return 0;
    }
    PyErr_Format(PyExc_ValueError, "there is no limit %R", key);
    return -1;
}

static int set_limits(pt2_limits *limits, PyObject *given)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;

    *limits = pt2_default_limits;
    if (!given || given == Py_None)
        return 0;
    if (!PyDict_Check(given)) {
        PyErr_Format(PyExc_TypeError, "limits must be a dict, not %.200s", Py_TYPE(given)->tp_name);
        return -1;
    }
    while (PyDict_Next(given, &at, &key, &value)) {
        if (set_limit(limits, key, value) < 0)
            return -1;
    }
    return 0;
}

PyDoc_STRVAR(default_limits_doc, "default_limits()\n--\n\nThe limits that a file must keep, by name.");

static PyObject *default_limits(PyObject *m, PyObject *Py_UNUSED(ignored))
{
    PyObject *dict = PyDict_New();

    (void)m;
    for (size_t i = 0; dict && i < sizeof limit_fields / sizeof *limit_fields; i++) {
        const char *at = (const char *)&pt2_default_limits + limit_fields[i].offset;
        uint64_t large = 0;
        uint32_t small;
        if (limit_fields[i].size == sizeof small) {
            memcpy(&small, at, sizeof small);
            large = small;
        } else {
            memcpy(&large, at, sizeof large);
        }
        PyObject *value = PyLong_FromUnsignedLongLong(large);
        int result = value ? PyDict_SetItemString(dict, limit_fields[i].name, value) : -1;
        Py_XDECREF(value);
        if (result < 0)
            Py_CLEAR(dict);
    }
    return dict;
}

PyDoc_STRVAR(fault_kinds_doc, "fault_kinds()\n--\n\nEvery kind of fault: its code and name.");

static PyObject *fault_kinds(PyObject *m, PyObject *Py_UNUSED(ignored))
{
    PyObject *dict = PyDict_New();

    (void)m;
    for (int kind = 0; dict && kind < PT2_KIND_COUNT; kind++) {
        PyObject *name = PyUnicode_FromString(pt2_kind_name((pt2_kind)kind));
        int result = name ? PyDict_SetItemString(dict, pt2_kind_code((pt2_kind)kind), name) : -1;
        Py_XDECREF(name);
        if (result < 0)
            Py_CLEAR(dict);
    }
    return dict;
}

/* The descriptor that a source is, else -1. */
static int descriptor_of(PyObject *source, int *fd)
{
    *fd = -1;
    if (!PyLong_Check(source) || PyBool_Check(source))
        return 0;
    long number = PyLong_AsLong(source);
    if (number == -1 && PyErr_Occurred())
        return -1;
    if (number < 0 || number > INT_MAX) {
        PyErr_Format(PyExc_ValueError, "%ld is no file descriptor", number);
        return -1;
    }
    *fd = (int)number;
    return 0;
}

/* Open a descriptor, which is used up, or where it is -1 a buffer, or a remote file. */
static int open_source(ArchiveObject *a, PyObject *source, int fd)
{
    int is_far = fd < 0 ? is_remote(source) : 0;
    pt2_fetcher remote;
    uint64_t size;
    pt2_report r;

    if (is_far < 0 || (is_far && remote_init(a, source, &remote, &size) < 0))
        return -1;
    if (fd < 0 && !is_far && PyObject_GetBuffer(source, &a->bytes, PyBUF_SIMPLE) < 0)
        return -1;
    if (archive_lock(a) < 0)
        return -1;
    pt2_report_init(&r, &fe_python_allocator, &a->limits);
    Py_BEGIN_ALLOW_THREADS
    if (fd >= 0)
        a->archive = pt2_archive_open_fd(fd, &fe_python_allocator, &r);
    else if (is_far)
        a->archive = pt2_archive_open_fetcher(&remote, size, &fe_python_allocator, &r);
    else
        a->archive = pt2_archive_open_bytes(a->bytes.buf, (size_t)a->bytes.len, &fe_python_allocator, &r);
    Py_END_ALLOW_THREADS
    archive_unlock(a);
    if (!a->archive)
        raise_report(a->state, &r);
    else
        a->faults = report_to_list(&r);
    pt2_report_clear(&r);
    return a->archive && a->faults ? 0 : -1;
}

static PyObject *Archive_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"source", "limits", NULL};
    PyObject *module = PyType_GetModuleByDef(type, &fe_module_def), *source, *limits = NULL;
    int fd;

    if (!module || !PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:Archive", names, &source, &limits) ||
        descriptor_of(source, &fd) < 0)
        return NULL;
    ArchiveObject *a = (ArchiveObject *)type->tp_alloc(type, 0);
    if (!a)
        goto fail;
    a->state = state_of(module);
    a->lock = PyThread_allocate_lock();
    if (!a->lock)
        PyErr_NoMemory();
    if (!a->lock || set_limits(&a->limits, limits) < 0)
        goto fail;
    if (open_source(a, source, fd) < 0)
        Py_CLEAR(a);
    return (PyObject *)a;
fail: /* the descriptor is ours by now */
    if (fd >= 0)
        close(fd);
    Py_XDECREF(a);
    return NULL;
}

/* There is no tp_clear, as with tuples: an archive refers only to what was there before it. A memoryview is not told of:
 * the collector would clear it, and CPython crashes when the bytes of one that was cleared are let go of. */
static int Archive_traverse(PyObject *self, visitproc visit, void *arg)
{
    ArchiveObject *a = (ArchiveObject *)self;

    Py_VISIT(Py_TYPE(self));
    if (a->bytes.obj && !PyMemoryView_Check(a->bytes.obj))
        Py_VISIT(a->bytes.obj);
    Py_VISIT(a->remote);
    Py_VISIT(a->faults);
    return 0;
}

static void Archive_dealloc(PyObject *self)
{
    ArchiveObject *a = (ArchiveObject *)self;
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    if (a->archive)
        pt2_archive_close(a->archive);
    if (a->bytes.obj)
        PyBuffer_Release(&a->bytes);
    if (a->lock)
        PyThread_free_lock(a->lock);
    Py_XDECREF(a->remote);
    Py_XDECREF(a->faults);
    type->tp_free(self);
    Py_DECREF(type);
}

/* ---- entries ---- */

static PyObject *Archive_entries(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    uint32_t count;
    const pt2_entry *entries = pt2_archive_entries(((ArchiveObject *)self)->archive, &count);
    PyObject *list = PyList_New(0);

    for (uint32_t i = 0; list && i < count; i++) {
        if (entries[i].is_folder)
            continue;
        PyObject *item =
            Py_BuildValue("(sKKO)", entries[i].name, (unsigned long long)entries[i].size,
                          (unsigned long long)entries[i].packed, entries[i].method == PT2_STORED ? Py_True : Py_False);
        int result = item ? PyList_Append(list, item) : -1;
        Py_XDECREF(item);
        if (result < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* The entry of a Python name; NULL with an exception, a KeyError when there is none. */
static const pt2_entry *find_entry(ArchiveObject *a, PyObject *name)
{
    const pt2_entry *e = NULL;
    Py_ssize_t len = 0;

    if (PyUnicode_Check(name)) {
        const char *text = PyUnicode_AsUTF8AndSize(name, &len);
        if (text && strlen(text) == (size_t)len)
            e = pt2_archive_find(a->archive, text);
        else if (!text && !PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
            return NULL;
        PyErr_Clear(); /* no entry's name holds a lone surrogate */
    }
    if (!e)
        PyErr_SetObject(PyExc_KeyError, name);
    return e;
}

PyDoc_STRVAR(archive_read_doc, "read($self, name, /)\n--\n\n"
                               "The bytes of an entry; its CRC is checked. KeyError: there is none.");

static PyObject *Archive_read(PyObject *self, PyObject *name)
{
    ArchiveObject *a = (ArchiveObject *)self;
    const pt2_entry *e = find_entry(a, name);
    PyObject *bytes = NULL;
    pt2_report r;
    char *data;
    size_t len;
    int result;

    if (!e || archive_lock(a) < 0)
        return NULL;
    pt2_report_init(&r, &fe_python_allocator, &a->limits);
    Py_BEGIN_ALLOW_THREADS
    result = pt2_archive_read(a->archive, e, a->limits.inflate_bytes, 0, &data, &len, &r);
    Py_END_ALLOW_THREADS
    archive_unlock(a);
    if (result < 0)
        raise_report(a->state, &r);
    else {
        bytes = PyBytes_FromStringAndSize(data, (Py_ssize_t)len);
        PyMem_RawFree(data);
    }
    pt2_report_clear(&r);
    return bytes;
}

PyDoc_STRVAR(archive_check_doc, "check($self, name, /)\n--\n\n"
                                "Read an entry to its end. FormatError: its size or CRC is wrong.");

static PyObject *Archive_check(PyObject *self, PyObject *name)
{
    ArchiveObject *a = (ArchiveObject *)self;
    const pt2_entry *e = find_entry(a, name);
    pt2_report r;
    int result;

    if (!e || archive_lock(a) < 0)
        return NULL;
    pt2_report_init(&r, &fe_python_allocator, &a->limits);
    Py_BEGIN_ALLOW_THREADS
    result = pt2_archive_check(a->archive, e, &r);
    Py_END_ALLOW_THREADS
    archive_unlock(a);
    if (result < 0)
        raise_report(a->state, &r);
    pt2_report_clear(&r);
    return result < 0 ? NULL : Py_NewRef(Py_None);
}

PyDoc_STRVAR(archive_storage_doc, "storage($self, name, /, map=True)\n--\n\n"
                                  "A Storage over an entry, read when it is first touched. KeyError: there is none.");

static PyObject *Archive_storage(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"", "map", NULL};
    ArchiveObject *a = (ArchiveObject *)self;
    const pt2_entry *e;
    PyObject *name;
    int map = 1;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|p:storage", names, &name, &map) || !(e = find_entry(a, name)))
        return NULL;
    storage_source source = {.owner = self, .archive = a->archive, .entry = e, .limits = &a->limits, .map = map != 0};
    return storage_from_source(a->state, &source);
}

/* ---- writing ---- */

typedef struct {
    const module_state *state;
    pt2_part *parts;
    Py_buffer *buffers; /* of the parts that are bytes */
    Py_ssize_t count;
    ArchiveObject *from; /* the one archive that entries are copied from; borrowed, or NULL */
} package;

static void package_clear(package *p)
{
    for (Py_ssize_t i = 0; p->buffers && i < p->count; i++) {
        if (p->buffers[i].obj)
            PyBuffer_Release(&p->buffers[i]);
    }
    PyMem_RawFree(p->parts);
    PyMem_RawFree(p->buffers);
}

static int set_source(package *p, Py_ssize_t i, PyObject *source)
{
    pt2_part *part = &p->parts[i];
    PyObject *name;
    ArchiveObject *from;

    if (!PyTuple_Check(source)) {
        if (PyObject_GetBuffer(source, &p->buffers[i], PyBUF_SIMPLE) < 0)
            return -1;
        part->data = p->buffers[i].len ? p->buffers[i].buf : "";
        part->len = (uint64_t)p->buffers[i].len;
        return 0;
    }
    if (!PyArg_ParseTuple(source, "O!O;a part is bytes or (Archive, name)", p->state->archive_type, &from, &name))
        return -1;
    if (p->from && p->from != from) {
        PyErr_SetString(PyExc_TypeError, "entries are copied from one Archive");
        return -1;
    }
    p->from = from;
    part->from = from->archive;
    part->entry = find_entry(from, name);
    return part->entry ? 0 : -1;
}

/* Parts from a tuple of (name, source), which keeps the names alive. */
static int package_fill(package *p, PyObject *parts)
{
    p->count = PyTuple_GET_SIZE(parts);
    p->parts = PyMem_RawCalloc((size_t)p->count + 1, sizeof *p->parts);
    p->buffers = PyMem_RawCalloc((size_t)p->count + 1, sizeof *p->buffers);
    if (!p->parts || !p->buffers) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < p->count; i++) {
        PyObject *part = PyTuple_GET_ITEM(parts, i), *source;
        if (!PyTuple_Check(part)) {
            PyErr_SetString(PyExc_TypeError, "a part is a tuple (name, source)");
            return -1;
        }
        if (!PyArg_ParseTuple(part, "sO;a part is (name, source)", &p->parts[i].name, &source) ||
            set_source(p, i, source) < 0)
            return -1;
    }
    return 0;
}

static int package_write(package *p, const char *path, const char *root)
{
    pt2_report r;
    int result;

    if (p->from && archive_lock(p->from) < 0)
        return -1;
    pt2_report_init(&r, &fe_python_allocator, p->from ? &p->from->limits : NULL);
    Py_BEGIN_ALLOW_THREADS
    result = pt2_package_write(path, root, p->parts, (size_t)p->count, &fe_python_allocator, &r);
    Py_END_ALLOW_THREADS
    if (p->from)
        archive_unlock(p->from);
    if (result < 0)
        raise_report(p->state, &r);
    pt2_report_clear(&r);
    return result;
}

PyDoc_STRVAR(
    write_archive_doc,
    "write_archive(path, root, parts, /)\n--\n\n"
    "Write a zip archive as torch does: stored, aligned, to a new file that takes the name when it is whole.\n\n"
    "parts: (name, bytes-like) or (name, (Archive, name there)) for each entry, names below the folder root.");

static PyObject *write_archive(PyObject *m, PyObject *args)
{
    PyObject *path, *parts, *items;
    const char *root;
    package p = {.state = state_of(m)};
    int result;

    if (!PyArg_ParseTuple(args, "O&sO:write_archive", PyUnicode_FSConverter, &path, &root, &parts))
        return NULL;
    items = PySequence_Tuple(parts);
    result = items ? package_fill(&p, items) : -1;
    if (result == 0)
        result = package_write(&p, PyBytes_AS_STRING(path), root);
    package_clear(&p);
    Py_XDECREF(items);
    Py_DECREF(path);
    return result < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- the type ---- */

static PyObject *Archive_root(PyObject *self, void *Py_UNUSED(closure))
{
    return PyUnicode_FromString(pt2_archive_root(((ArchiveObject *)self)->archive));
}

static int add_model(void *list, const char *name, size_t len)
{
    PyObject *text = PyUnicode_DecodeUTF8(name, (Py_ssize_t)len, NULL);
    int result = text ? PyList_Append(list, text) : -1;

    Py_XDECREF(text);
    return result;
}

static PyObject *Archive_models(PyObject *self, void *Py_UNUSED(closure))
{
    PyObject *list = PyList_New(0);

    if (list && pt2_each_model(((ArchiveObject *)self)->archive, add_model, list) < 0)
        Py_CLEAR(list);
    return list;
}

static PyGetSetDef archive_getset[] = {
    {"models", Archive_models, NULL, "The names of the models that are in it.", NULL},
    {"root", Archive_root, NULL, "The folder that all entries are in; empty when there is none.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef archive_members[] = {
    {"faults", T_OBJECT_EX, offsetof(ArchiveObject, faults), READONLY, "What was noted when it was opened."},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef archive_methods[] = {
    {"entries", Archive_entries, METH_NOARGS,
     "entries($self, /)\n--\n\nA list of (name, size, packed size, whether it is stored)."},
    {"read", Archive_read, METH_O, archive_read_doc},
    {"check", Archive_check, METH_O, archive_check_doc},
    {"storage", (PyCFunction)(void (*)(void))Archive_storage, METH_VARARGS | METH_KEYWORDS, archive_storage_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(archive_doc,
             "Archive(source, limits=None)\n--\n\n"
             "A zip archive, open for reading: a file descriptor, which becomes the archive's, bytes, or a\n"
             "RemoteFile, which fetches them.");

static PyType_Slot archive_slots[] = {
    {Py_tp_doc, (void *)archive_doc}, {Py_tp_new, Archive_new},
    {Py_tp_dealloc, Archive_dealloc}, {Py_tp_traverse, Archive_traverse},
    {Py_tp_getset, archive_getset},   {Py_tp_members, archive_members},
    {Py_tp_methods, archive_methods}, {0, NULL},
};

PyType_Spec archive_spec = {
    .name = "fastexport._core.Archive",
    .basicsize = sizeof(ArchiveObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = archive_slots,
};

PyMethodDef file_functions[] = {
    {"fault_kinds", fault_kinds, METH_NOARGS, fault_kinds_doc},
    {"default_limits", default_limits, METH_NOARGS, default_limits_doc},
    {"write_archive", write_archive, METH_VARARGS, write_archive_doc},
    {NULL, NULL, 0, NULL},
};
