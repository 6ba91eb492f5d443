/* pass_fold.c - which nodes have a value that is the same at each run.
 *
 * A walk from the first node to the last: a call without an effect whose operands are all constant is constant. What a constant
 * may share memory with must never be written to, nor be returned, as the caller may do so. The values themselves are the
 * owner's affair.
 */
#include "simplify.h"

static bool has_constant_operands(const fe_graph *g, uint32_t id, const uint8_t *nodes)
{
    const fe_node *n = &g->nodes[id];

    for (uint32_t i = 0; i < n->edge_count; i++) {
        if (!(nodes[g->edges[n->edge + i].def] & (FE_FOLD_KNOWN | FE_FOLD_COMPUTE)))
            return false;
    }
    return true;
}

static bool is_computable(const fe_graph *g, uint32_t id, const uint32_t *facts, const uint8_t *nodes)
{
    const fe_dce_options keep_all = {.keep_random = true};
    const fe_node *n = &g->nodes[id];

    return (n->op == FE_OP_CALL_FUNCTION || n->op == FE_OP_CALL_METHOD) && has_constant_operands(g, id, nodes) &&
           !(facts[n->target] & FE_MEMORY_SINGLE) && fe_node_effect(g, id, &keep_all) == FE_REASON_UNUSED;
}

static bool is_needed(const fe_graph *g, uint32_t id, const uint8_t *nodes)
{
    for (uint32_t e = g->details[id].first_user; e != FE_NONE_ID; e = g->edges[e].next) {
        if (!(nodes[g->edges[e].user] & FE_FOLD_COMPUTE))
            return true;
    }
    return false;
}

static int mark_returned(const fe_graph *g, const uint32_t *facts, uint8_t *nodes, fe_error *err)
{
    uint8_t *marks = fe_resize(g->allocator, NULL, g->node_count);

    if (!marks)
        return fe_no_memory(err);
    fe_mark_returned(g, facts, marks);
    for (uint32_t id = 0; id < g->node_count; id++)
        nodes[id] |= marks[id] & FE_RESULT ? FE_FOLD_RETURNED : 0;
    fe_resize(g->allocator, marks, 0);
    return 0;
}

/* Returns whether anything can be computed from other values. */
static bool mark(fe_graph *g, const uint32_t *facts, const fe_memory *memory, uint8_t *nodes)
{
    bool any = false;

    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT; id = g->nodes[id].next) {
        if (memory && memory->written[fe_memory_region(memory, id)])
            nodes[id] = 0;
        else if (!(nodes[id] & (FE_FOLD_KNOWN | FE_FOLD_RETURNED)) && is_computable(g, id, facts, nodes)) {
            nodes[id] = FE_FOLD_COMPUTE;
            any |= g->nodes[id].edge_count > 0;
        }
    }
    for (uint32_t id = g->nodes[FE_ROOT].next; any && id != FE_ROOT; id = g->nodes[id].next) {
        if (nodes[id] & FE_FOLD_COMPUTE && g->nodes[id].edge_count && is_needed(g, id, nodes))
            nodes[id] |= FE_FOLD_KEEP;
    }
    return any;
}

static void unmark_computed(const fe_graph *g, uint8_t *nodes)
{
    for (uint32_t id = 0; id < g->node_count; id++)
        nodes[id] &= FE_FOLD_KNOWN | FE_FOLD_RETURNED;
}

int fe_find_constants(fe_graph *g, const uint32_t *facts, uint8_t *nodes, fe_error *err)
{
    fe_memory memory;

    if (mark_returned(g, facts, nodes, err) < 0)
        return -1;
    /* What is written to only takes from what can be computed. */
    if (!mark(g, facts, NULL, nodes) || !fe_memory_is_written(g))
        return 0;
    unmark_computed(g, nodes);
    if (fe_memory_open(&memory, g, facts, err) < 0)
        return -1;
    mark(g, facts, &memory, nodes);
    fe_memory_close(&memory);
    return 0;
}
