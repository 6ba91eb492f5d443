/* pass.h - what is done with a graph as a whole: its text, lint and the passes, grouped by the file they live in.
 *
 * A pass is a loop over the arrays of a graph: it calls no one, so it can't be interrupted, and what it did is a report.
 */
#ifndef FE_PASS_H
#define FE_PASS_H

#include "ir.h"

/* ---- report.c: what a pass or lint found, in order ---- */

typedef struct {
    uint32_t node, other; /* other: the operand at fault, the node put in its place, or FE_NONE_ID */
    uint8_t code;
} fe_record;

typedef struct {
    const fe_allocator *allocator;
    fe_record *items;
    uint32_t len, capacity;
} fe_report;

void fe_report_init(fe_report *r, const fe_allocator *a);
void fe_report_clear(fe_report *r);
int fe_report_add(fe_report *r, uint8_t code, uint32_t node, uint32_t other, fe_error *err) FE_MUST_CHECK;

/* ---- lint.c ---- */

/* Code, and the text of the fault: %N is the node, %O the operand, %T the node's target. The first group is torch.fx's
 * own lint, in its order. */
#define FE_FAULTS(X)                                                                                              \
    X(UNKNOWN_OP, "node '%N' has unknown opcode '%P'; use one of placeholder, get_attr, call_function, "          \
                  "call_method, call_module, output")                                                             \
    X(FOREIGN_NODE, "node '%N' stands in this graph's list but belongs to another graph; copy it with node_copy") \
    X(UNLISTED, "node '%N' is missing from the graph's find_nodes table; create nodes through the graph")         \
    X(FOREIGN_OPERAND, "node '%N' uses '%O', which belongs to another graph; map operands when copying nodes "    \
                       "(node_copy's arg_transform)")                                                             \
    X(ERASED_OPERAND, "node '%N' uses '%O', which is erased; replace its uses before erasing a node")             \
    X(UNDEFINED_OPERAND, "node '%N' uses '%O' before it is defined; move '%O' above '%N' or sort the graph")      \
    X(DUPLICATE_NAME, "the name '%N' is borne by two nodes; rename one of them")                                  \
    X(TARGET_TYPE, "node '%N' has a target of the wrong type: %T; call_function takes a callable, every other "   \
                   "opcode a string")                                                                             \
    X(TARGET_MISSING, "node '%N' refers to '%T', which the owning module does not have; add it to the module or " \
                      "correct the target")                                                                       \
    X(TARGET_NOT_MODULE, "node '%N' calls '%T' of the owning module, which is not an nn.Module")                  \
    X(STALE_USERS, "the users of '%N' and the arguments of '%O' disagree; change arguments by assignment only, "  \
                   "never through users")                                                                         \
    X(WRONG_ORDER, "node '%N' is out of order with the node before it")                                           \
    X(SECOND_OUTPUT, "the graph has a second output, '%N'; keep one, at the end")                                 \
    X(OUTPUT_NOT_LAST, "the output '%N' is followed by '%O'; it must be the last node")                           \
    X(ODD_NAME, "the name '%N' is no identifier, so code has another in its place; rename the node")

typedef enum {
#define X(id, text) FE_FAULT_##id,
    FE_FAULTS(X)
#undef X
        FE_FAULT_COUNT
} fe_fault;

typedef struct {
    bool all;     /* every fault, not just the first */
    bool fx_only; /* torch.fx's own checks */
    bool names;   /* with all: also names that code can't have, which do no harm */
    bool targets; /* what torch.fx checks of targets when the graph has an owning module; set unless fx_only */
} fe_lint_options;

/* Report the faults of a graph, at most one unless `all`. -1 only when memory runs out. */
int fe_lint(const fe_graph *g, const fe_lint_options *o, fe_report *faults, fe_error *err) FE_MUST_CHECK;
const char *fe_fault_text(fe_fault fault);
const char *fe_fault_name(fe_fault fault);

/* ---- pass_dce.c ---- */

/* Why dead-code elimination keeps or removes a node. */
#define FE_REASONS(X)                                                               \
    X(UNUSED, "removed: no users and no effect")                                    \
    X(USED, "kept: it has users")                                                   \
    X(PLACEHOLDER, "kept: an input of the graph")                                   \
    X(OUTPUT, "kept: the output of the graph")                                      \
    X(MUTATES, "kept: it writes to an operand")                                     \
    X(OUT, "kept: it writes to its out= argument")                                  \
    X(RANDOM, "kept: it draws random numbers (keep_random)")                        \
    X(EFFECT, "kept: it has an effect")                                             \
    X(NO_RESULT, "kept: it returns nothing, so it is there for an effect")          \
    X(UNKNOWN, "kept: nothing is known about its target, so it may have an effect") \
    X(CALL, "kept: this call has an effect")

typedef enum {
#define X(id, text) FE_REASON_##id,
    FE_REASONS(X)
#undef X
        FE_REASON_COUNT
} fe_reason;

typedef struct {
    bool fx_policy;   /* remove exactly what torch.fx removes */
    bool keep_random; /* random operators count as an effect */
} fe_dce_options;

bool fe_node_writes_out(const fe_graph *g, uint32_t id); /* a node stands under its keyword "out" */
/* Why a node would be kept if it had no users; FE_REASON_UNUSED when nothing keeps it. */
fe_reason fe_node_effect(const fe_graph *g, uint32_t id, const fe_dce_options *o);
/* Erase, from the last node to the first, what has neither users nor an effect; the graph must be in order. The report
 * holds the removed nodes in the order of removal. Returns whether the graph changed, or -1 with the graph unchanged. */
int fe_eliminate_dead_code(fe_graph *g, const fe_dce_options *o, fe_report *removed, fe_error *err) FE_MUST_CHECK;
const char *fe_reason_text(fe_reason reason);

/* ---- text.c: torch.fx's text of a graph ---- */

/* How a value is written: as an argument in a node's line (%name), or as Python's str or repr would. */
typedef enum { FE_TEXT_ARG, FE_TEXT_STR, FE_TEXT_REPR } fe_text_form;

/* What the owner shows for an object: ARG, STR and REPR for the forms above, TYPE as an annotation, CALLABLE as a target,
 * FIELDS for a tuple class in repr: its name and field names, each ended by a newline; the name alone, without one, when
 * the class has no fields; nothing when its repr is that of tuple. */
typedef enum {
    FE_SHOW_ARG,
    FE_SHOW_STR,
    FE_SHOW_REPR,
    FE_SHOW_TYPE,
    FE_SHOW_CALLABLE,
    FE_SHOW_FIELDS,
    FE_SHOW_COUNT
} fe_show;

static inline fe_show fe_show_of(fe_text_form form)
{
    return form == FE_TEXT_ARG ? FE_SHOW_ARG : form == FE_TEXT_STR ? FE_SHOW_STR : FE_SHOW_REPR;
}

typedef struct {
    const char *data; /* NULL: not rendered */
    size_t len;
} fe_text;

/* Objects are rendered beforehand, because that runs the owner's code. */
typedef struct {
    const fe_text *shown[FE_SHOW_COUNT]; /* by object; NULL: nothing was rendered so */
    uint32_t count;                      /* objects in each */
    const uint32_t *alias;               /* by node, whose name to write for it; NULL: its own */
    void (*quote)(void *ctx, const fe_string *s, fe_buffer *out); /* the repr of a string that is not plain ASCII */
    void *ctx;
} fe_renderer;

void fe_text_double(double value, fe_buffer *out); /* as Python's repr */
void fe_text_value(const fe_graph *g, const fe_renderer *r, fe_value v, fe_text_form form, fe_buffer *out);
void fe_text_node(const fe_graph *g, const fe_renderer *r, uint32_t id, fe_buffer *out); /* Node.format_node() */
void fe_text_graph(const fe_graph *g, const fe_renderer *r, fe_buffer *out);             /* str(graph) */

/* ---- pass_getitem.c ---- */

typedef struct {
    bool fx_policy;              /* keys compared by their text and across writes, as torch.export does */
    bool ignore_writes;          /* as if nothing wrote: is there anything to look at, before facts are known? */
    const fe_renderer *renderer; /* for fx_policy */
} fe_getitem_options;

/* Report each getitem that repeats an earlier one, and the one that can take its place. */
int fe_find_repeated_getitems(fe_graph *g, const fe_getitem_options *o, fe_report *repeated,
                              fe_error *err) FE_MUST_CHECK;
/* Put what the items of such a report from `first` on name in the place of the repeated ones, and erase these. The graph must be
 * as it was found. -1 with the graph unchanged. */
int fe_merge_getitems(fe_graph *g, const fe_report *repeated, uint32_t first, fe_error *err) FE_MUST_CHECK;
/* Put the first getitem for each (source, index) in the place of all later ones, and report them. Returns whether the
 * graph changed, or -1 with the graph unchanged. */
int fe_eliminate_getitems(fe_graph *g, const fe_getitem_options *o, fe_report *removed, fe_error *err) FE_MUST_CHECK;

#endif
