/* match.h - the type Matches: what a search found, and the graph it holds of; shared by match*.c. */
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

/* ---- match_rewrite.c ---- */

PyObject *Matches_rewrite(PyObject *self, PyObject *args);
extern const char matches_rewrite_doc[];

/* ---- match_notes.c ---- */

/* How new nodes are told what they stand for. */
typedef struct {
    GraphObject *g;
    bool wanted;
    PyObject *kinds, *text_of, *pass_name, *rest; /* borrowed from the tuple that asks for notes */
    PyObject *key_object, *graph_id, *action, *created;
    PyObject *target, *text; /* the last one, or NULL */
    uint32_t key;
} match_notes;

/* asked: None or (classes of sources, that of new ones first; function from a target to its text; name of the pass; list that gets
 * (old, new, whether it was made) where it is left to the caller). Close it also after a failure. Run Python code. */
int match_notes_open(match_notes *n, GraphObject *g, PyObject *asked);
void match_notes_close(match_notes *n);
int match_note_created(match_notes *n, uint32_t id);
int match_note_replaced(match_notes *n, uint32_t old, uint32_t new, bool is_made);

#endif
