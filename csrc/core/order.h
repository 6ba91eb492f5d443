/* order.h - what has to come before what: nodes put into order, and groups of nodes put into one place.
 *
 * Both are asked of a flow: vertices by number, and pairs (before, after). A graph's vertices are its nodes by their places
 * in the list; of a group of nodes that is to become one, all are the place of the last.
 */
#ifndef FE_ORDER_H
#define FE_ORDER_H

#include "pass.h"

/* ---- pass_sort.c ---- */

typedef struct {
    uint32_t before, after;
} fe_flow_pair;

typedef struct {
    const fe_allocator *allocator;
    uint32_t count; /* vertices */
    fe_flow_pair *pairs;
    uint32_t len, capacity;
} fe_flow;

typedef struct {
    bool breadth_first;  /* the order of torch.fx's legalize_graph; else each vertex as early as its number allows */
    const uint8_t *rank; /* by vertex, see fe_op_rank: a lower rank comes first; NULL: all are alike */
    const bool *urgent;  /* by vertex, when breadth first: these come before what waits already; NULL: none */
} fe_flow_order;

void fe_flow_init(fe_flow *f, const fe_allocator *a, uint32_t count);
void fe_flow_clear(fe_flow *f);
int fe_flow_add(fe_flow *f, uint32_t before, uint32_t after, fe_error *err) FE_MUST_CHECK;
/* The vertices in order, into out, which has room for all, and *circle = 0. Where some come before themselves there is no
 * order: then *circle tells how many vertices of out, in turn, form one circle. */
int fe_flow_sort(const fe_flow *f, const fe_flow_order *o, uint32_t *out, uint32_t *circle,
                 fe_error *err) FE_MUST_CHECK;

/* Ranks for sorting a graph: inputs first, the output last. */
#define FE_RANK_FIRST 0
#define FE_RANK_LAST 2
uint8_t fe_op_rank(fe_op op);
/* Whether every operand stands before its users and, with ranks, no node before one of a lower rank. */
bool fe_graph_is_sorted(const fe_graph *g, bool ranks);
/* What the order of a graph must be: operands before users, users in the order of torch.fx's lists. f is filled. */
int fe_graph_flow(const fe_graph *g, fe_flow *f, fe_error *err) FE_MUST_CHECK;
/* Put the nodes of a graph into an order of their places; returns whether that changed anything. */
int fe_graph_arrange(fe_graph *g, const uint32_t *order, fe_error *err) FE_MUST_CHECK;

/* ---- pass_outline.c ---- */

typedef struct {
    const uint32_t *group; /* by node: 0, or the number of its group */
    uint32_t count;        /* groups */
    bool effects;          /* writes and other effects keep their order */
} fe_groups;

/* What groups become when each of them is one call. */
typedef struct {
    const fe_allocator *allocator;
    fe_report members; /* node by node in order, `other` the number of the group */
    fe_report inputs;  /* nodes that a group uses, in order of first use */
    fe_report outputs; /* nodes of a group that others use, in order */
    uint32_t *order;   /* nodes: a group stands for its last member */
    uint32_t count;    /* of order */
    uint32_t circle;   /* not 0: that many nodes of order, in turn, need each other, and nothing else is told */
    bool moves;        /* the order is not that of the list */
} fe_group_plan;

void fe_group_plan_init(fe_group_plan *p, const fe_allocator *a);
void fe_group_plan_clear(fe_group_plan *p);
/* The members of a group, as the graph stands, need not follow each other. The graph itself must be in order; for effects
 * the facts about its targets must be known. */
int fe_plan_groups(const fe_graph *g, const fe_groups *groups, fe_group_plan *p, fe_error *err) FE_MUST_CHECK;

#endif
