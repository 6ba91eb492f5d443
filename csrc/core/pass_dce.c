/* pass_dce.c - dead-code elimination.
 *
 * One walk from the last node to the first: in a graph in order, a node's users have been looked at before it is. What
 * counts as an effect is the policy. The default keeps whatever might be one; torch.fx's keeps what its is_impure keeps.
 */
#include "pass.h"

static bool names_node(fe_value v)
{
    return v.kind == FE_NODE || (fe_kind_is_seq(v.kind) && fe_seq_node_count(v.as.seq) > 0);
}

/* A call with a node under the keyword "out" writes to it. */
bool fe_node_writes_out(const fe_graph *g, uint32_t id)
{
    const fe_seq *k = g->bare ? NULL : g->details[id].kwargs;

    if (g->nodes[id].flags & FE_NODE_OUT)
        return true;
    for (uint32_t i = 0; k && i + 1 < k->len; i += 2) {
        const fe_string *key = k->items[i].kind == FE_STR ? k->items[i].as.string : NULL;
        if (key && key->len == 3 && memcmp(key->data, "out", 3) == 0 && names_node(k->items[i + 1]))
            return true;
    }
    return false;
}

static fe_reason fx_effect(const fe_node *n, uint32_t flags, const fe_dce_options *o)
{
    if (flags & FE_TARGET_FX_IMPURE)
        return FE_REASON_EFFECT;
    if (o->keep_random && flags & FE_TARGET_FX_RANDOM)
        return FE_REASON_RANDOM;
    return n->flags & FE_NODE_FX_IMPURE ? FE_REASON_CALL : FE_REASON_UNUSED;
}

static fe_reason any_effect(const fe_graph *g, uint32_t id, uint32_t flags, const fe_dce_options *o)
{
    if (flags & FE_TARGET_MUTATES)
        return FE_REASON_MUTATES;
    if (flags & FE_TARGET_EFFECT)
        return FE_REASON_EFFECT;
    if (flags & FE_TARGET_NO_RESULT)
        return FE_REASON_NO_RESULT;
    if (flags & FE_TARGET_UNKNOWN)
        return FE_REASON_UNKNOWN;
    if (o->keep_random && (flags & FE_TARGET_RANDOM || g->nodes[id].flags & FE_NODE_RANDOM))
        return FE_REASON_RANDOM;
    if (g->nodes[id].flags & FE_NODE_IMPURE)
        return FE_REASON_CALL;
    return fe_node_writes_out(g, id) ? FE_REASON_OUT : FE_REASON_UNUSED;
}

fe_reason fe_node_effect(const fe_graph *g, uint32_t id, const fe_dce_options *o)
{
    const fe_node *n = &g->nodes[id];

    if (n->op == FE_OP_PLACEHOLDER)
        return FE_REASON_PLACEHOLDER;
    if (n->op == FE_OP_OUTPUT)
        return FE_REASON_OUTPUT;
    uint32_t flags = g->targets[n->target].flags;
    return o->fx_policy ? fx_effect(n, flags, o) : any_effect(g, id, flags, o);
}

/* The report gets room for every node first, so that nothing can fail once nodes begin to go. */
int fe_eliminate_dead_code(fe_graph *g, const fe_dce_options *o, fe_report *removed, fe_error *err)
{
    uint32_t before = removed->len;

    if (fe_grow(removed->allocator, &removed->items, &removed->capacity, (size_t)before + g->live,
                sizeof *removed->items, err) < 0)
        return -1;
    for (uint32_t id = g->nodes[FE_ROOT].prev, prev; id != FE_ROOT; id = prev) {
        prev = g->nodes[id].prev;
        if (g->nodes[id].user_count || fe_node_effect(g, id, o) != FE_REASON_UNUSED)
            continue;
        fe_node_erase(g, id);
        removed->items[removed->len++] = (fe_record){.node = id, .other = FE_NONE_ID, .code = FE_REASON_UNUSED};
    }
    return removed->len > before;
}

const char *fe_reason_text(fe_reason reason)
{
    static const char *const texts[] = {
#define X(id, text) text,
        FE_REASONS(X)
#undef X
    };

    return texts[reason];
}
