/* pass_noop.c - calls that give one of their operands back.
 *
 * Two steps, with the owner between them. The first looks at arguments: adding a literal zero, dropout outside of training, a
 * list of one tensor. The owner then drops the pairs whose shapes and types don't agree. The second looks at memory: a call
 * that makes a copy may only go when nobody can tell the copy from the original, for neither is written to while both are in
 * use, and the copy is not returned where the caller has the original too: as an input, or as another result.
 */
#include "simplify.h"

/* ---- arguments ---- */

static fe_value argument(const fe_graph *g, uint32_t id, uint32_t position)
{
    const fe_seq *args = g->details[id].args;

    return args && position < args->len ? args->items[position] : (fe_value){.kind = FE_NULL};
}

/* By keyword; FE_NULL: not given so. */
static fe_value keyword(const fe_graph *g, uint32_t id, const char *name)
{
    const fe_seq *kwargs = g->details[id].kwargs;

    for (uint32_t i = 0; kwargs && i + 1 < kwargs->len; i += 2) {
        if (kwargs->items[i].kind == FE_STR && strcmp(kwargs->items[i].as.string->data, name) == 0)
            return kwargs->items[i + 1];
    }
    return (fe_value){.kind = FE_NULL};
}

static bool has_keywords(const fe_graph *g, uint32_t id)
{
    return g->details[id].kwargs && g->details[id].kwargs->len;
}

static bool is_number(fe_value v, int64_t wanted)
{
    return v.kind == FE_FLOAT ? v.as.real == (double)wanted : v.kind == FE_INT && v.as.integer == wanted;
}

static uint32_t node_in(fe_value v)
{
    return v.kind == FE_NODE ? v.as.node : FE_NONE_ID;
}

/* Of a call of two arguments, one of which is a number: the other one. */
static uint32_t other_operand(const fe_graph *g, uint32_t id, int64_t number, bool either_way)
{
    const fe_seq *args = g->details[id].args;
    fe_value alpha = keyword(g, id, "alpha");

    if (!args || args->len != 2 || (has_keywords(g, id) && (alpha.kind != FE_INT || g->details[id].kwargs->len != 2)))
        return FE_NONE_ID;
    if (alpha.kind != FE_NULL && number)
        return FE_NONE_ID;
    if (is_number(args->items[1], number))
        return node_in(args->items[0]);
    return either_way && alpha.kind == FE_NULL && is_number(args->items[0], number) ? node_in(args->items[1])
                                                                                    : FE_NONE_ID;
}

/* dropout(x, p, train): by position, or by the keywords of torch.nn.functional. */
static uint32_t dropped_operand(const fe_graph *g, uint32_t id)
{
    fe_value train = argument(g, id, 2);

    if (train.kind == FE_NULL)
        train = keyword(g, id, "training");
    if (train.kind == FE_NULL)
        train = keyword(g, id, "train");
    return train.kind == FE_BOOL && !train.as.boolean ? node_in(argument(g, id, 0)) : FE_NONE_ID;
}

static uint32_t only_operand(const fe_graph *g, uint32_t id)
{
    fe_value list = argument(g, id, 0);

    if (list.kind != FE_LIST && list.kind != FE_TUPLE)
        return FE_NONE_ID;
    return list.as.seq->len == 1 ? node_in(list.as.seq->items[0]) : FE_NONE_ID;
}

/* slice(x, dim, start, end, step): one that leaves out the first item, or the last, or every other, gives something else. */
static uint32_t sliced_operand(const fe_graph *g, uint32_t id)
{
    fe_value start = argument(g, id, 2), end = argument(g, id, 3), step = argument(g, id, 4);

    if ((start.kind == FE_INT && start.as.integer > 0) || (end.kind == FE_INT && end.as.integer < 0) ||
        (step.kind == FE_INT && step.as.integer != 1))
        return FE_NONE_ID;
    return node_in(argument(g, id, 0));
}

const fe_seq *fe_noop_sizes(const fe_graph *g, fe_record r)
{
    fe_value list = argument(g, r.node, 1);

    if (r.code != FE_NOOP_RESHAPE || (list.kind != FE_LIST && list.kind != FE_TUPLE))
        return NULL;
    for (uint32_t i = 0; i < list.as.seq->len; i++) {
        if (list.as.seq->items[i].kind != FE_INT)
            return NULL;
    }
    return list.as.seq;
}

static uint32_t converted_operand(const fe_graph *g, uint32_t id)
{
    fe_value pinned = keyword(g, id, "pin_memory");

    return pinned.kind == FE_BOOL && pinned.as.boolean ? FE_NONE_ID : node_in(argument(g, id, 0));
}

/* The operand that a call gives back if shapes and types agree, or FE_NONE_ID. */
static uint32_t same_operand(const fe_graph *g, uint32_t id, fe_noop kind)
{
    switch (kind) {
    case FE_NOOP_ALIAS:
    case FE_NOOP_VIEW:
    case FE_NOOP_RESHAPE:
    case FE_NOOP_CLONE:
        return node_in(argument(g, id, 0));
    case FE_NOOP_SLICE:
        return sliced_operand(g, id);
    case FE_NOOP_CONVERT:
        return converted_operand(g, id);
    case FE_NOOP_DROPOUT:
        return dropped_operand(g, id);
    case FE_NOOP_ADD:
        return other_operand(g, id, 0, true);
    case FE_NOOP_SUB:
        return other_operand(g, id, 0, false);
    case FE_NOOP_MUL:
        return other_operand(g, id, 1, true);
    case FE_NOOP_DIV:
    case FE_NOOP_POW:
        return other_operand(g, id, 1, false);
    case FE_NOOP_CAT:
        return only_operand(g, id);
    default:
        return FE_NONE_ID;
    }
}

static int visit_target(fe_graph *g, uint32_t target, fe_noop kind, fe_report *found, fe_error *err)
{
    for (uint32_t id = fe_target_nodes(g, target); id != FE_NONE_ID; id = g->details[id].target_next) {
        uint32_t operand = same_operand(g, id, kind);
        if (operand != FE_NONE_ID && fe_report_add(found, (uint8_t)kind, id, operand, err) < 0)
            return -1;
    }
    return 0;
}

int fe_find_noops(fe_graph *g, const uint8_t *kinds, fe_report *found, fe_error *err)
{
    uint32_t before = found->len;

    for (uint32_t i = 0; i < g->target_count; i++) {
        if (kinds[i] != FE_NOOP_NONE && g->targets[i].count && visit_target(g, i, (fe_noop)kinds[i], found, err) < 0) {
            found->len = before;
            return -1;
        }
    }
    return 0;
}

/* ---- memory ---- */

static bool makes_copy(fe_noop kind)
{
    return kind > FE_NOOP_DROPOUT || kind == FE_NOOP_CONVERT;
}

typedef struct {
    fe_memory memory;
    uint32_t *pair_of; /* by node: 1 + the index of its pair, 0: none; once it was passed: what stands for the node */
    fe_record *kept;
    uint8_t *returned; /* by node: fe_returned */
    uint8_t *results;  /* by region: whether something in it is returned */
} judging;

static void judging_close(judging *j)
{
    const fe_allocator *a = j->memory.g->allocator;

    fe_memory_close(&j->memory);
    fe_resize(a, j->pair_of, 0);
    fe_resize(a, j->kept, 0);
    fe_resize(a, j->returned, 0);
    fe_resize(a, j->results, 0);
}

static int judging_open(judging *j, const fe_graph *g, const uint32_t *facts, uint32_t pairs, fe_error *err)
{
    const fe_allocator *a = g->allocator;

    *j = (judging){0};
    if (fe_memory_open(&j->memory, g, facts, err) < 0)
        return -1;
    j->pair_of = fe_resize(a, NULL, g->node_count * sizeof *j->pair_of);
    j->kept = fe_resize(a, NULL, ((size_t)pairs + 1) * sizeof *j->kept);
    j->returned = fe_resize(a, NULL, g->node_count);
    j->results = fe_resize(a, NULL, g->node_count);
    if (!j->pair_of || !j->kept || !j->returned || !j->results) {
        judging_close(j);
        return fe_no_memory(err);
    }
    memset(j->pair_of, 0, g->node_count * sizeof *j->pair_of);
    return 0;
}

static void mark_returned(judging *j)
{
    const fe_graph *g = j->memory.g;

    fe_mark_returned(g, NULL, j->returned);
    memset(j->results, 0, g->node_count);
    for (uint32_t id = 0; id < g->node_count; id++) {
        if (j->returned[id])
            j->results[fe_memory_region(&j->memory, id)] = true;
    }
}

/* Whether the caller would get a copy and its original as one. */
static bool are_both_returned(const judging *j, uint32_t copy, uint32_t original)
{
    if (!j->results[copy])
        return false;
    return original == fe_memory_region(&j->memory, FE_ROOT) || (original != copy && j->results[original]);
}

static bool may_go(const judging *j, fe_record r)
{
    const fe_memory *m = &j->memory;
    uint32_t copy = fe_memory_region(m, r.node), original = fe_memory_region(m, r.other);
    uint64_t pos = m->g->nodes[r.node].pos;

    if (m->written[original] > pos || fe_stay_two(j->returned, r.node, r.other))
        return false;
    if (!makes_copy((fe_noop)r.code))
        return m->written[copy] <= pos;
    return !m->written[copy] && !are_both_returned(j, copy, original);
}

/* From here on one node stands for another, and their regions are one. */
static void replace(judging *j, uint32_t id, uint32_t by)
{
    const fe_memory *m = &j->memory;
    uint8_t is_result = j->results[fe_memory_region(m, id)] | j->results[fe_memory_region(m, by)];

    fe_memory_join(m, id, by);
    j->results[fe_memory_region(m, id)] = is_result;
    j->returned[by] |= j->returned[id];
    j->pair_of[id] = by;
}

/* In the order of the list, so that what becomes of an operand is known before its users are looked at. */
static void keep_safe(judging *j, fe_report *found)
{
    const fe_graph *g = j->memory.g;
    uint32_t count = 0;

    for (uint32_t i = 0; i < found->len; i++)
        j->pair_of[found->items[i].node] = i + 1;
    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT; id = g->nodes[id].next) {
        uint32_t at = j->pair_of[id];
        j->pair_of[id] = id; /* from here on: what stands for the node */
        if (!at)
            continue;
        fe_record r = found->items[at - 1];
        r.other = j->pair_of[r.other];
        if (!may_go(j, r))
            continue;
        replace(j, id, r.other);
        j->kept[count++] = r;
    }
    memcpy(found->items, j->kept, count * sizeof *j->kept);
    found->len = count;
}

int fe_keep_safe_noops(const fe_graph *g, const uint32_t *facts, fe_report *found, fe_error *err)
{
    judging j;

    if (judging_open(&j, g, facts, found->len, err) < 0)
        return -1;
    mark_returned(&j);
    keep_safe(&j, found);
    judging_close(&j);
    return 0;
}

const char *fe_noop_text(fe_noop kind)
{
    static const char *const texts[] = {
#define X(id, text) text,
        FE_NOOPS(X)
#undef X
    };

    return texts[kind];
}
