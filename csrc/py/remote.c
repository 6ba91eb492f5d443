/* remote.c - archives whose bytes a Python object fetches by ranges: fastexport._remote.RemoteFile.
 *
 * The reader in C runs without the GIL. Whenever it needs bytes it goes back, on the thread state that holds the archive's
 * lock, asks the object and copies what that gives.
 *
 * An exception of the object stays set. What reads the archive then fails, no byte is asked for after it, and
 * report_to_list, through which every answer goes, gives way to it.
 */
#include "file.h"

#include <errno.h>

static int copy_range(PyObject *remote, uint64_t at, void *out, size_t len)
{
    PyObject *data = PyObject_CallMethod(remote, "read_range", "Kn", (unsigned long long)at, (Py_ssize_t)len);
    Py_buffer view;
    int result = -1;

    if (data && PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) == 0) {
        if ((size_t)view.len == len) {
            memcpy(out, view.buf, len);
            result = 0;
        } else {
            PyErr_Format(PyExc_OSError, "%zd bytes came where %zu were asked for", view.len, len);
        }
        PyBuffer_Release(&view);
    }
    Py_XDECREF(data);
    return result;
}

static int read_remote(void *ctx, uint64_t at, void *out, size_t len)
{
    ArchiveObject *a = ctx;

    assert(a->reader);
    PyEval_RestoreThread(a->reader);
    int result = PyErr_Occurred() ? -1 : copy_range(a->remote, at, out, len);
    PyEval_SaveThread();
    return result < 0 ? EIO : 0;
}

static void expect_remote(void *ctx, uint64_t at, size_t len)
{
    ArchiveObject *a = ctx;

    PyEval_RestoreThread(a->reader);
    if (!PyErr_Occurred())
        Py_XDECREF(PyObject_CallMethod(a->remote, "expect", "Kn", (unsigned long long)at, (Py_ssize_t)len));
    PyEval_SaveThread();
}

int is_remote(PyObject *source)
{
    if (PyObject_CheckBuffer(source))
        return 0;
    PyObject *method = PyObject_GetAttrString(source, "read_range");
    if (!method && !PyErr_ExceptionMatches(PyExc_AttributeError))
        return -1;
    PyErr_Clear();
    Py_XDECREF(method);
    return method != NULL;
}

int remote_init(ArchiveObject *a, PyObject *remote, pt2_fetcher *fetcher, uint64_t *size)
{
    PyObject *number = PyObject_GetAttrString(remote, "size");

    *size = number ? PyLong_AsUnsignedLongLong(number) : 0;
    Py_XDECREF(number);
    if (PyErr_Occurred())
        return -1;
    a->remote = Py_NewRef(remote);
    *fetcher = (pt2_fetcher){.read = read_remote, .expect = expect_remote, .ctx = a};
    return 0;
}
