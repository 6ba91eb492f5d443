/* fx_edit.h - what the bulk edits of live torch.fx graphs share.
 *
 * Each edit comes in two parts. The first makes all new objects and checks everything; Python code may run in it. The
 * second looks again, with slot reads only, whether what was checked still holds, then writes slots and dicts. Objects
 * that go are released at the very end. When the owning module has hooks, torch's own methods are called one by one
 * instead, because a hook sees, and may change, the graph between two steps.
 */
#ifndef FE_FX_EDIT_H
#define FE_FX_EDIT_H

#include "fx.h"

/* ---- fx_edit.c ---------------------------------------------------------------------------------------------------------- */

/* The dict in a slot: borrowed, or NULL with an exception. */
PyObject *fx_dict_slot(PyObject *node, Py_ssize_t offset, const char *what);
PyObject *fx_name_of(const fx_layout *l, PyObject *node); /* borrowed; None when there is none */
/* Delete a plain node that may be missing, which is the only way this can fail. */
void fx_discard(PyObject *dict, PyObject *node);
/* Take a node out of the list; it keeps its own links, as in torch.fx. Its neighbours are alive and hold it no more. */
void fx_unlink(const fx_layout *l, PyObject *node);
/* Make user a user of the operands that are new to it (old NULL: of all); on failure of none. */
int fx_join_operands(const fx_layout *l, PyObject *user, PyObject *old, PyObject *new);

static inline void fx_swap(PyObject **a, PyObject **b)
{
    PyObject *t = *a;

    *a = *b;
    *b = t;
}

/* ---- fx_args.c: arguments mapped and rewritten ------------------------------------------------------------------------------ */

/* What torch.fx's map_aggregate does: containers become its immutable kinds, a tuple with fields keeps its class. */
typedef struct {
    const module_state *st;
    PyObject *old, *new; /* borrowed: new stands for old; old NULL: for any node, when new is not NULL */
    PyObject **nodes;    /* borrowed from the result: the nodes in it, each time it names one */
    uint32_t count, capacity;
    PyObject *symbol; /* borrowed from the source: the first raw symbol in it */
    int depth;
} fx_mapper;

PyObject *fx_map(fx_mapper *m, PyObject *o);
PyObject *fx_map_slot(fx_mapper *m, PyObject *node, Py_ssize_t offset); /* the args or kwargs of a node */
PyObject *fx_mapped_operands(const fx_mapper *m);                       /* the nodes as a dict, as _input_nodes is */
void fx_mapper_clear(fx_mapper *m);

/* Whether a tree can be rewritten in place where it names old (NULL: any node): only tuples and torch.fx's lists on the
 * way, and nobody else holds one of them. *names tells whether it names it at all. */
bool fx_may_rewrite(const module_state *st, PyObject *o, PyObject *old, bool *names);
/* As far as fx_may_rewrite has allowed it; somebody else holds what goes. */
void fx_rewrite(const module_state *st, PyObject *o, PyObject *old, PyObject *new);

/* ---- fx_naming.c ------------------------------------------------------------------------------------------------------------- */

/* Gives names by create_name's rule of torch.fx's _Namespace. While one candidate is named again and again the counter of
 * its base is kept here; fx_naming_close puts it back. */
typedef struct {
    const module_state *st;
    fx_tables tables;           /* of the graph */
    PyObject *candidate, *base; /* borrowed from a fx_name; NULL: no counter is open */
    long long count;
} fx_naming;

/* A name that was given, and what has to be put back when it is given up. */
typedef struct {
    PyObject *candidate;        /* strong: set before */
    PyObject *name;             /* strong */
    PyObject *base, *old_count; /* strong: the base whose counter was opened for it, and the counter before; or NULL */
} fx_name;

int fx_naming_give(fx_naming *g, fx_name *n);
int fx_naming_close(fx_naming *g);
void fx_naming_undo(fx_naming *g, const fx_name *n); /* the last name given and not undone */
void fx_name_clear(fx_name *n);

#endif
