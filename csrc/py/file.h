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
    Py_buffer bytes;  /* of an archive in memory; obj NULL: it is a file */
    PyObject *faults; /* list: warnings noted when it was opened */
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

/* Wait for a lock. Whoever holds it may be waiting for the GIL, so the GIL is released meanwhile. */
void take_lock(PyThread_type_lock lock);
void archive_lock(ArchiveObject *a);
void archive_unlock(ArchiveObject *a);
/* The faults of a report as a list of tuples (code, kind, is_error, entry, path, node, message). */
PyObject *report_to_list(const pt2_report *r);
/* Raise what a report with an error stands for; returns NULL. */
PyObject *raise_report(const module_state *st, const pt2_report *r);

/* ---- survey.c ---- */

/* A table of weights or constants: (list of tuples, name of the entry that holds them pickled, or None). */
PyObject *payloads_to_python(const pt2_payloads *payloads);

/* ---- json.c ---- */

PyObject *json_to_python(yyjson_val *v);

extern PyType_Spec archive_spec, program_spec, expr_spec;
extern PyMethodDef file_functions[], survey_functions[];

#endif
