/* simplify.h - the passes that find what need not be computed: twice, at each run, or at all.
 *
 * Each only finds; the owner, who knows values and meta, has the last word, and then fe_merge_getitems of pass.h puts the kept
 * node of each pair in the place of the other.
 */
#ifndef FE_SIMPLIFY_H
#define FE_SIMPLIFY_H

#include "memory.h"
#include "pass.h"

/* ---- pass_cse.c: common subexpressions ---- */

/* What is said of a call that an earlier one equals (%O) or that is not looked at. */
#define FE_CSE_REASONS(X)                                                               \
    X(EQUAL, "removed: the same as '%O'")                                               \
    X(READ_AFTER_WRITE, "kept: like '%O', but what it reads may be written in between") \
    X(WRITTEN_LATER, "kept: like '%O', but what one of them gives may be written to")   \
    X(RETURNED, "kept: like '%O', but results of a subgraph must not share memory")     \
    X(UPDATE, "kept: like '%O', but one is what a buffer or an input becomes, and both are returned")

typedef enum {
#define X(id, text) FE_CSE_##id,
    FE_CSE_REASONS(X)
#undef X
        FE_CSE_REASON_COUNT
} fe_cse_reason;

typedef struct {
    const uint32_t *facts;   /* by target: fe_memory_fact; NULL with ignore_effects */
    const uint32_t *objects; /* by object: the class of its equals; NULL: each equals itself only */
    const uint8_t *apart;    /* by node: not to be merged; NULL: all may */
    bool is_inner;           /* others run the graph: no result that it returns may be in the memory of another */
    bool fx_policy;          /* as torch.fx's CSEPass: numbers equal by value, effects and writes don't count */
    bool all;                /* report equal calls that stay, too */
    bool ignore_effects;     /* as if nothing had any: is there anything to look at, before facts are known? */
} fe_cse_options;

/* Report each call that an earlier one can take the place of, with that one, FE_CSE_EQUAL. */
int fe_find_common_subexpressions(fe_graph *g, const fe_cse_options *o, fe_report *found, fe_error *err) FE_MUST_CHECK;
const char *fe_cse_reason_text(fe_cse_reason reason);

/* ---- pass_fold.c: constants ---- */

typedef enum {
    FE_FOLD_KNOWN = 1 << 0,    /* its value is there: an attribute, or an input that stands for one */
    FE_FOLD_COMPUTE = 1 << 1,  /* it can be computed from such values alone */
    FE_FOLD_KEEP = 1 << 2,     /* and something that can't be computed needs it */
    FE_FOLD_RETURNED = 1 << 3, /* what is returned may share memory with it */
} fe_fold;

/* Fill `nodes`, by id, of which the caller has marked those that are FE_FOLD_KNOWN. Marks are taken off whatever is written to, if
 * anything is computed from others.
 * A call that names no value is computed only for the sake of others. */
int fe_find_constants(fe_graph *g, const uint32_t *facts, uint8_t *nodes, fe_error *err) FE_MUST_CHECK;

/* ---- pass_noop.c: calls that give their operand back ---- */

/* What a target does when its arguments are right. */
#define FE_NOOPS(X)                                                    \
    X(NONE, "")                                                        \
    X(ALIAS, "it gives its operand as it is")                          \
    X(VIEW, "its operand has this shape already")                      \
    X(RESHAPE, "its operand has this shape already")                   \
    X(SLICE, "its operand has this shape already")                     \
    X(CONVERT, "its operand is of this type, on this device, already") \
    X(DROPOUT, "dropout does nothing outside of training")             \
    X(ADD, "adding zero changes nothing")                              \
    X(SUB, "subtracting zero changes nothing")                         \
    X(MUL, "multiplying by one changes nothing")                       \
    X(DIV, "dividing by one changes nothing")                          \
    X(POW, "the first power is the number itself")                     \
    X(CAT, "there is only one tensor to concatenate")                  \
    X(CLONE, "a copy that nobody writes to is as good as its original")

typedef enum {
#define X(id, text) FE_NOOP_##id,
    FE_NOOPS(X)
#undef X
        FE_NOOP_COUNT
} fe_noop;

/* Report calls that by their arguments give an operand back, with that and the fe_noop. kinds tells the fe_noop of each target.
 * Whether shapes and types agree is the owner's to see. */
int fe_find_noops(fe_graph *g, const uint8_t *kinds, fe_report *found, fe_error *err) FE_MUST_CHECK;
/* Of such pairs keep, in the order of the list, those where it does not matter that two nodes become one. No-ops in a row all
 * name the operand of the first. */
int fe_keep_safe_noops(const fe_graph *g, const uint32_t *facts, fe_report *found, fe_error *err) FE_MUST_CHECK;
/* Of a call that names the sizes of its result, FE_NOOP_RESHAPE, by numbers alone: these, else NULL. -1: as is needed. */
const fe_seq *fe_noop_sizes(const fe_graph *g, fe_record r);
const char *fe_noop_text(fe_noop kind);

#endif
