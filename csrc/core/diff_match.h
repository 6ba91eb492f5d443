/* diff_match.h - what diff.c and diff_match.c share: two graphs while their nodes are paired. */
#ifndef FE_DIFF_MATCH_H
#define FE_DIFF_MATCH_H

#include "diff.h"

/* What is known of one graph; all by node id. */
typedef struct {
    const fe_graph *g;
    const uint32_t *classes;
    uint64_t *label; /* of op, target and the arguments that are no nodes */
    uint64_t *down;  /* a hash of all that leads to the node */
    uint64_t *up;    /* a hash of all that the node leads to */
    uint64_t *hash;  /* what is being matched by just now: the same on both sides for nodes that may be a pair */
    uint32_t *match; /* in the other graph, or FE_NONE_ID */
    uint32_t *chain; /* the next node of a bucket */
    uint32_t *place; /* in the list */
    void *block;     /* all of them */
} fe_diff_graph;

/* The free nodes that have one hash. Two hashes may share this: then a guess is made worse. */
typedef struct {
    uint32_t first;   /* of the nodes of a in this bucket */
    int32_t surplus;  /* how many more a has than b */
    bool is_shuffled; /* a name of theirs has gone to a node of another hash */
} fe_diff_bucket;

typedef struct {
    fe_diff_graph a, b;
    uint32_t *queue; /* pairs whose neighbours are to be looked at, as nodes of a; each is there but once */
    uint32_t queued, done;
    fe_diff_bucket *buckets;
    uint32_t mask;
    void *block;
} fe_diff_matcher;

static inline uint32_t class_of(const fe_diff_graph *s, uint32_t object)
{
    return object == FE_NONE_ID ? FE_NONE_ID : s->classes[object];
}

static inline uint32_t next_of(const fe_diff_graph *s, uint32_t id)
{
    return s->g->nodes[id].next;
}

static inline uint32_t first_of(const fe_diff_graph *s)
{
    return s->g->nodes[FE_ROOT].next;
}

static inline bool strings_equal(const fe_string *a, const fe_string *b)
{
    return a->hash == b->hash && a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

static inline bool ops_equal(const fe_diff_matcher *m, uint32_t a, uint32_t b)
{
    return m->a.g->nodes[a].op == m->b.g->nodes[b].op;
}

/* ---- diff_match.c ---- */

/* A hash of op, target and the arguments that are no nodes. */
uint64_t fe_diff_label(const fe_diff_graph *s, uint32_t id);
bool fe_diff_targets_equal(const fe_diff_matcher *m, uint32_t a, uint32_t b);
void fe_diff_pair_all(fe_diff_matcher *m);
/* By node of b, the node of a or FE_NONE_ID. */
void fe_diff_pair_known(fe_diff_matcher *m, const uint32_t *known);

#endif
