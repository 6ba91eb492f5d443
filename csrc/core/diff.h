/* diff.h - which node of one graph has become which node of another, and what differs between the two. */
#ifndef FE_DIFF_H
#define FE_DIFF_H

#include "ir.h"

typedef enum {
    FE_CHANGED_OP = 1 << 0,
    FE_CHANGED_TARGET = 1 << 1,
    FE_CHANGED_ARGS = 1 << 2, /* operands count by what they have become, so a renamed or replaced one is no change */
    FE_CHANGED_KWARGS = 1 << 3,
    FE_CHANGED_TYPE = 1 << 4,
    FE_CHANGED_NAME = 1 << 5,
    FE_CHANGED_ORDER = 1 << 6, /* of the nodes that are in both, the fewest whose move gives the other order */
} fe_change;

/* One graph of a comparison. Objects are equal, within a graph and across, when their classes are. */
typedef struct {
    const fe_graph *graph;
    const uint32_t *classes; /* by object; may be NULL in a graph without objects */
} fe_diff_side;

/* A node of a and what it is in b; FE_NONE_ID: it is in one of them only. */
typedef struct {
    uint32_t a, b;
    uint32_t changes; /* of fe_change */
} fe_diff_pair;

/* Compare the listed nodes of two graphs that have names and arguments. In pairs, with room for a->live + b->live, all
 * nodes of b come in their order, then those that only a has, in theirs; *count tells how many. known tells for each node
 * of b, by id, which node of a it is, each at most once, or FE_NONE_ID; NULL: that is to be found out. Time is near linear
 * in the size of the graphs. -1 only when memory runs out. */
int fe_diff_graphs(const fe_diff_side *a, const fe_diff_side *b, const uint32_t *known, fe_diff_pair *pairs,
                   uint32_t *count, fe_error *err) FE_MUST_CHECK;

#endif
