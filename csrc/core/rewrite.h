/* rewrite.h - putting a copy of one graph in the place of a match in another.
 *
 * Done in two steps, between which the owner may look at both the old nodes and the new ones: fe_rewrite_make puts the
 * copy in, fe_rewrite_finish takes the match out. Results of a match may be used before its last input is there; what
 * depends on them moves down then. Nothing moves across a node that may write, unless torch.fx's policy is asked for.
 */
#ifndef FE_REWRITE_H
#define FE_REWRITE_H

#include "match.h"

/* A graph to be copied into another, and what its objects, targets and names are there. */
typedef struct {
    const fe_graph *graph;
    const uint32_t *objects, *targets; /* by object and target of `graph` */
    const fe_candidate *names;         /* by node of `graph` */
} fe_replacement;

/* Why a match is left as it is. */
#define FE_REFUSALS(X)                                                                                      \
    X(NONE, "")                                                                                             \
    X(CYCLE, "an input of the match depends on a result of it, so that no place is left for a replacement") \
    X(WRITES, "a node that may write stands among the nodes of the match")

typedef enum {
#define X(id, text) FE_REFUSAL_##id,
    FE_REFUSALS(X)
#undef X
        FE_REFUSAL_COUNT
} fe_refusal;

typedef struct {
    fe_graph *g;
    const fe_replacement *r;
    bool fx_policy;
    uint32_t *instead; /* by node: what has taken its place, itself otherwise */
    uint32_t instead_count, instead_capacity;
    uint32_t *writers; /* nodes of g that may write, in order; good while writers_known */
    uint32_t writer_count, writer_capacity;
    bool writers_known;
    bool *trusted; /* by node: put in by us, for something that doesn't write */
    uint32_t trusted_capacity;
    fe_value *stands;               /* by node of the replacement: what stands for it */
    uint32_t *marks, mark_capacity; /* by node of g: stamp of the last search that met it */
    uint32_t stamp;
    uint32_t *moved, moved_count, moved_capacity; /* nodes that are to move behind the last input */
    uint32_t *made, made_count;                   /* the new nodes of the match at hand, in order */
    uint32_t stand_capacity, made_capacity;
    uint32_t *results, result_count, result_capacity; /* what takes the place of each result of the match */
    fe_error *err;
} fe_rewriter;

/* The match at hand. */
typedef struct {
    fe_value
        *inputs; /* for the placeholders of the replacement, in order; of g. Brought up to date by fe_rewrite_make */
    const uint32_t *returned, *matched; /* results; all its nodes but the inputs, users before operands */
    uint32_t input_count, returned_count, matched_count;
} fe_site;

void fe_rewriter_init(fe_rewriter *w, fe_graph *g, bool fx_policy);
/* From now on replace by r; err is where failures are told. */
int fe_rewriter_use(fe_rewriter *w, const fe_replacement *r, fe_error *err) FE_MUST_CHECK;
void fe_rewriter_clear(fe_rewriter *w);
/* Put the copy in. -1 with the graph as it was; else *refusal tells whether it was done. */
int fe_rewrite_make(fe_rewriter *w, const fe_site *s, fe_refusal *refusal) FE_MUST_CHECK;
/* Use the copy in the place of the match, and erase this. -1 with the graph as before; then, or instead, undo. */
int fe_rewrite_finish(fe_rewriter *w, const fe_site *s) FE_MUST_CHECK;
void fe_rewrite_undo(fe_rewriter *w); /* of fe_rewrite_make, but for nodes that have moved or found users */
uint32_t fe_rewrite_current(fe_rewriter *w,
                            uint32_t id); /* what has taken the place of a node; itself, if nothing has */
const char *fe_refusal_text(fe_refusal refusal);

#endif
