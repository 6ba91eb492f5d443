/* file.h - .pt2 files as Python objects: what archive.c, program.c, loaded.c and json.c share. */
#ifndef FE_FILE_H
#define FE_FILE_H

#include "module.h"
#include "program.h"

/* An open archive. Whoever uses it takes the lock: the archive is one thread's at a time, and reading it releases the GIL. */
typedef struct {
    PyObject_HEAD
    module_state *state;
    pt2_archive *archive;
    pt2_limits limits;
    Py_buffer bytes;       /* of an archive in memory, else obj NULL */
    PyObject *remote;      /* that fetches the bytes of an archive elsewhere (remote.c), else NULL */
    PyObject *faults;      /* list: warnings noted when it was opened */
    PyThreadState *reader; /* that holds the lock, else NULL */
    PyThread_type_lock lock;
} ArchiveObject;

/* A program read from an archive. Its graphs are Graph objects, which hold it for their nodes' meta. */
typedef struct {
    PyObject_HEAD
    ArchiveObject *archive;
    pt2_program *program;
    fe_exprs *exprs;
    PyObject *faults; /* list: what was noted when it was read */
    bool built;       /* its graphs were handed out */
} ProgramObject;

/* ---- archive.c ---- */

/* Wait for the lock. -1 with a RuntimeError: this thread has it, and reads what an object fetches by using the archive. */
int archive_lock(ArchiveObject *a) FE_MUST_CHECK;
void archive_unlock(ArchiveObject *a);
/* The faults of a report as a list of tuples (code, kind, is_error, entry, path, node, message). NULL with the exception
 * of what fetches the bytes, when there is one. */
PyObject *report_to_list(const pt2_report *r);
/* Raise what a report with an error stands for; returns NULL. */
PyObject *raise_report(const module_state *st, const pt2_report *r);

/* ---- remote.c ---- */

int is_remote(PyObject *source) FE_MUST_CHECK; /* Has it the methods of a RemoteFile? -1 with an exception */
/* Make an object the one that fetches the bytes of an archive, which *fetcher then gives, and how many they are. */
int remote_init(ArchiveObject *a, PyObject *remote, pt2_fetcher *fetcher, uint64_t *size) FE_MUST_CHECK;

/* ---- survey.c ---- */

/* A table of weights or constants: (list of tuples, name of the entry that holds them pickled, or None). */
PyObject *payloads_to_python(const pt2_payloads *payloads);

/* ---- json.c ---- */

PyObject *json_to_python(yyjson_val *v);

extern PyType_Spec archive_spec, program_spec, expr_spec;
extern PyMethodDef file_functions[], survey_functions[];

#endif
