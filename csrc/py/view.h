/* view.h - Graph objects as the pt2_graphs that verify.c and write.c work on: see view.c. */
#ifndef FE_VIEW_H
#define FE_VIEW_H

#include "loaded.h"

typedef struct view view;

struct view {
    pt2_graph graph;
    GraphObject *owner; /* strong */
    view **inner;       /* as many as graph.subgraphs */
    PyObject *held;     /* list: what keeps texts alive */
    pt2_json calls;     /* what graph.calls is of */
    uint64_t version;   /* of the core, before the view was made */
    const view *outer;
    uint32_t depth;
};

/* Who says what is in a graph, beside the core. */
typedef struct {
    const ProgramObject *program; /* whose document knows nodes that were not touched; NULL: no document does */
    /* Without a document, functions of Python: */
    PyObject *encode;   /* (name, meta, whether it is an input) -> (value or None, metadata) as JSON texts, of a node */
    PyObject *describe; /* object -> (kind, code, text, schema) of a pt2_object, or None */
    uint32_t made;      /* views so far; 0 at first */
} view_maker;

/* The view of a graph and its subgraphs. Runs Python code, which may change them: view_is_current tells at the end. NULL with an
 * exception. */
view *view_new(view_maker *m, GraphObject *g, const view *outer);
void view_free(view *v); /* NULL is allowed */
/* 0 when no graph has changed since its view was begun, else -1 with an exception. Waits for passes in other threads. */
int view_is_current(const view *v);
/* While busy, the graphs are not to be changed by another thread: C runs on the view without the GIL. */
void view_set_busy(view *v, bool busy);

#endif
