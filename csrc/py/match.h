/* match.h - the type Matches: what a search found, and the graph it holds of; shared by match.c and match_rewrite.c. */
#ifndef FE_PY_MATCH_H
#define FE_PY_MATCH_H

#include "module.h"
#include "rewrite.h"

typedef struct {
    PyObject_HEAD
    GraphObject *graph, *pattern; /* pattern: a copy nobody else has, whose ids are 1, 2, ... in order */
    uint32_t count;               /* of its nodes that are the pattern */
    fe_matches found;
    PyObject *
        *literals; /* strong, by binding: a value that is no node; NULL: it is one. As the graph may change meanwhile */
    uint32_t literal_count;
    fe_rewriter rewriter;
    uint64_t version; /* of the graph after the last call of rewrite() that ended well, or 0 */
    bool fx_policy;
} MatchesObject;

/* What a binding stands for: a node of ours (of an input: what has taken its place by now), or what `nodes` has in its place
 * (NULL: nothing other), or a literal. */
PyObject *match_bound(MatchesObject *m, uint32_t binding, PyObject *nodes);
/* Mark the objects that arguments name; whether there are any. */
bool match_mark_objects(uint8_t *marks, const fe_graph *g);
PyObject *Matches_rewrite(PyObject *self, PyObject *args);
extern const char matches_rewrite_doc[];

#endif
