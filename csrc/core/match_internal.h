/* match_internal.h - a search at work; shared by match.c (one candidate) and match_search.c (all of them). */
#ifndef FE_MATCH_INTERNAL_H
#define FE_MATCH_INTERNAL_H

#include "match.h"

typedef enum { ROLE_NONE, ROLE_INPUT, ROLE_COMPUTES } match_role;

/* Two values that have to agree, and the nodes whose arguments they are. */
typedef struct {
    fe_value pattern, value;
    uint32_t user, user_node, operand;
    bool is_default; /* value is the default of a parameter, and belongs to the pattern's side */
} match_pair;

typedef struct {
    const fe_graph *g;
    const fe_match_side *graph;
    const fe_pattern *p;
    const fe_match_options *o;
    fe_matches *out;
    fe_error *err;

    fe_binding *bound; /* by node of the pattern; its value FE_NULL: not bound */
    uint32_t *order;   /* the bound ones, in order */
    bool *returned;    /* by node of the pattern */
    uint32_t bound_count, computing;

    uint8_t *role;   /* by node of the graph: match_role */
    bool *consumed;  /* by node of the graph: part of a match that was kept */
    uint32_t *seen;  /* by node of the graph: stamp of the last search that came along */
    uint32_t *queue; /* room for all nodes of the graph */
    uint32_t stamp;
    bool sorted; /* every operand stands before its user */

    match_pair *stack;
    uint32_t stack_len, stack_capacity;
} matcher;

int fe_match_walk(matcher *m, uint32_t anchor, uint32_t node) FE_MUST_CHECK;
void fe_match_unbind(matcher *m, uint32_t count);
bool fe_match_calls_same(const matcher *m, uint32_t pattern, uint32_t node, bool is_anchor);
int fe_match_accept(matcher *m) FE_MUST_CHECK;

#endif
