/* match.h - finding the places where a pattern, itself a graph, occurs in a graph, and rewriting them.
 *
 * A pattern is matched backwards from its anchors, the results that nothing else in it uses: a node has any number of
 * users but each of its operands is one value, so there is only one way to go. The two graphs are told of each other
 * by numbers: objects and targets that are the same have the same class.
 *
 *      pattern:  x -> relu -> add (anchor) -> output        x, y: placeholders, which stand for any value
 *                        y ---^
 */
#ifndef FE_MATCH_H
#define FE_MATCH_H

#include "pass.h"

/* ---- match.c ---- */

typedef struct {
    const fe_graph *graph;
    const uint32_t *objects; /* by object: its class */
    const uint32_t *targets; /* by target: its class */
} fe_match_side;

/* What a call of some target may leave out or spell otherwise: told by a node whose args are the defaults of all parameters in
 * order, and whose kwargs give each parameter's name and an int of these. */
typedef enum {
    FE_PARAMETER_KEYWORD_ONLY = 1 << 0,
    FE_PARAMETER_NO_DEFAULT = 1 << 1, /* or none that is known: left out, it equals only itself left out */
} fe_parameter_flag;

typedef struct {
    fe_match_side side;
    uint32_t count;            /* nodes 1 .. count are the pattern, in order, the last one its output */
    const uint32_t *signature; /* by node of the pattern: the node that tells its parameters, or FE_NONE_ID */
} fe_pattern;

typedef struct {
    bool match_output;      /* the output is part of the pattern */
    bool match_placeholder; /* a placeholder stands for placeholders only */
    bool ignore_literals;   /* any literal will do in the place of one */
    bool keep_overlapping;  /* else a node is in the first match only */
    bool keep_cycles;       /* as torch.fx does when it keeps overlapping ones */
    bool fx_policy;         /* what torch.fx finds, as far as that can be told from the right thing */
    const char *name;       /* an anchor also stands for a node with this in its name; NULL: it doesn't */
} fe_match_options;

/* Why a pattern doesn't match: %P is the node of the pattern, %N that of the graph. */
#define FE_MISMATCHES(X)                                                                       \
    X(NONE, "nothing in the graph is what '%P' calls")                                         \
    X(CALL, "'%N' does not call what '%P' calls")                                              \
    X(ARGUMENTS, "'%N' has other arguments than '%P': more, fewer, or under other names")      \
    X(LITERAL, "'%N' has another literal than '%P' has")                                       \
    X(KIND, "'%N' has a node where '%P' has a literal, or the reverse")                        \
    X(OTHER, "'%P' stands for another value already than the one found here")                  \
    X(TAKEN, "'%N' would have to stand for '%P' and for another node of the pattern too")      \
    X(UNREACHED, "no result of the pattern leads to '%P', so it can't be found")               \
    X(USED, "'%N', in the place of '%P', is used outside of the match and is no result of it") \
    X(CYCLE, "what uses '%N' leads back into the match, so that it can't be one step")         \
    X(OVERLAP, "'%N' is part of an earlier match")

typedef enum {
#define X(id, text) FE_MISMATCH_##id,
    FE_MISMATCHES(X)
#undef X
        FE_MISMATCH_COUNT
} fe_mismatch_reason;

typedef struct {
    uint8_t reason;
    uint32_t matched;       /* nodes of the pattern that had been matched, placeholders not counted */
    uint32_t pattern, node; /* where it ended; node may be FE_NONE_ID */
    uint32_t operand;       /* of the pattern's node: its place among args and then kwargs, or FE_NONE_ID */
} fe_mismatch;

typedef struct {
    uint32_t pattern; /* node of the pattern */
    bool is_default;  /* the value is the default of a parameter that was left out, and belongs to the pattern */
    fe_value value;   /* what it stands for: a node, or for a placeholder any value, which the graph owns */
} fe_binding;

typedef struct {
    const fe_allocator *allocator;
    fe_binding *bindings; /* of one match after the other, each in the order in which they were found */
    uint32_t *ends;       /* by match: where its bindings end */
    uint32_t len, capacity, count, end_capacity;
    uint32_t refused[FE_MISMATCH_COUNT]; /* how many complete matches were given up, by reason */
    fe_mismatch best;                    /* the failure that came furthest; reason NONE: there were no candidates */
    fe_binding *partial;                 /* what had been bound then */
    uint32_t partial_len, partial_capacity;
} fe_matches;

void fe_matches_init(fe_matches *m, const fe_allocator *a);
void fe_matches_clear(fe_matches *m);
const fe_binding *fe_matches_at(const fe_matches *m, uint32_t index, uint32_t *len);

/* Find all matches, in torch.fx's order. -1 when memory runs out or, with fx_policy, when the pattern has a node that no anchor
 * leads to (FE_BAD_VALUE). Takes time by the size of the graph, for a pattern that hangs together. */
int fe_match(const fe_graph *g, const fe_match_side *graph, const fe_pattern *p, const fe_match_options *o,
             fe_matches *out, fe_error *err) FE_MUST_CHECK;
const char *fe_mismatch_text(fe_mismatch_reason reason);

/* ---- match_value.c: literals ---- */

/* Whether two values of either side are the same literal: of the same types, at any depth, floats by their bits. With `loose`, as
 * Python's == finds below the top: numbers by their value, whatever their type. */
bool fe_literal_equal(const fe_match_side *a, fe_value x, const fe_match_side *b, fe_value y, bool loose);
uint32_t fe_value_node_count(fe_value v);

#endif
