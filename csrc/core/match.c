/* match.c - the search for a pattern: candidates for the anchors, a walk backwards from each, and what a match must be.
 *
 * The walk is a stack of pairs (value of the pattern, value of the graph) that have to agree; it visits operands in order,
 * so that bindings come in torch.fx's order. It has no choices: a failure is a failure of the candidate. Choices are only
 * among candidates of several anchors, and those of a later anchor are looked for among the users of what the earlier ones
 * have bound, so that the search stays linear wherever the pattern hangs together.
 */
#include "match_internal.h"

static void note_mismatch(matcher *m, fe_mismatch_reason reason, uint32_t pattern, uint32_t node, uint32_t operand)
{
    fe_matches *out = m->out;

    if (out->best.reason != FE_MISMATCH_NONE && out->best.matched >= m->computing)
        return;
    out->best = (fe_mismatch){(uint8_t)reason, m->computing, pattern, node, operand};
    out->partial_len = m->bound_count; /* there is room for a pattern's worth */
    for (uint32_t i = 0; i < m->bound_count; i++)
        out->partial[i] = m->bound[m->order[i]];
}

static bool fail(matcher *m, fe_mismatch_reason reason, const match_pair *at)
{
    uint32_t node = at->value.kind == FE_NODE && !at->is_default ? at->value.as.node : at->user_node;

    note_mismatch(m, reason, at->pattern.kind == FE_NODE ? at->pattern.as.node : at->user, node, at->operand);
    return false;
}

/* ---- bindings ---- */

static void bind(matcher *m, uint32_t pattern, const match_pair *at)
{
    fe_value value = at->value;
    bool computes = m->p->side.graph->nodes[pattern].op != FE_OP_PLACEHOLDER;

    m->bound[pattern] = (fe_binding){pattern, at->is_default, value};
    m->order[m->bound_count++] = pattern;
    m->computing += computes;
    if (value.kind == FE_NODE)
        m->role[value.as.node] = computes ? ROLE_COMPUTES : ROLE_INPUT;
}

void fe_match_unbind(matcher *m, uint32_t count)
{
    while (m->bound_count > count) {
        uint32_t pattern = m->order[--m->bound_count];
        m->computing -= m->p->side.graph->nodes[pattern].op != FE_OP_PLACEHOLDER;
        fe_value *value = &m->bound[pattern].value;
        if (value->kind == FE_NODE)
            m->role[value->as.node] = ROLE_NONE;
        value->kind = FE_NULL;
    }
}

/* ---- pairs ---- */

static int push(matcher *m, match_pair pair)
{
    if (fe_grow(m->g->allocator, &m->stack, &m->stack_capacity, (size_t)m->stack_len + 1, sizeof *m->stack, m->err) < 0)
        return -1;
    m->stack[m->stack_len++] = pair;
    return 0;
}

/* Push pairs of items so that they come off in order. */
static int push_items(matcher *m, const match_pair *of, const fe_seq *pattern, const fe_seq *value)
{
    for (uint32_t i = pattern->len; i-- > 0;) {
        match_pair pair = *of;
        pair.pattern = pattern->items[i];
        pair.value = value->items[i];
        if (push(m, pair) < 0)
            return -1;
    }
    return 1;
}

static uint32_t seq_len(const fe_seq *s)
{
    return s ? s->len : 0;
}

static bool strings_equal(const fe_string *a, const fe_string *b)
{
    return a->hash == b->hash && a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

/* The value under a key that is a string; NULL: not there. */
static const fe_value *keyword(const fe_seq *kwargs, const fe_string *key)
{
    for (uint32_t i = 0; i < seq_len(kwargs); i += 2) {
        if (kwargs->items[i].kind == FE_STR && strings_equal(kwargs->items[i].as.string, key))
            return &kwargs->items[i + 1];
    }
    return NULL;
}

static bool same_keys_in_order(const fe_seq *a, const fe_seq *b)
{
    if (seq_len(a) != seq_len(b))
        return false;
    for (uint32_t i = 0; i < seq_len(a); i += 2) {
        if (!strings_equal(a->items[i].as.string, b->items[i].as.string))
            return false;
    }
    return true;
}

/* Keyword arguments are the same in any order; 1, 0 when a key is missing, -1. */
static int push_keywords(matcher *m, match_pair pair, uint32_t first, const fe_seq *a, const fe_seq *b)
{
    for (uint32_t i = seq_len(a); i > 0; i -= 2) {
        const fe_value *value = keyword(b, a->items[i - 2].as.string);
        if (!value)
            return 0;
        pair.pattern = a->items[i - 1];
        pair.value = *value;
        pair.operand = first + i / 2 - 1;
        if (push(m, pair) < 0)
            return -1;
    }
    return 1;
}

static int push_arguments(matcher *m, match_pair pair, const fe_seq *a, const fe_seq *b)
{
    for (uint32_t i = seq_len(a); i > 0; i--) {
        pair.pattern = a->items[i - 1];
        pair.value = b->items[i - 1];
        pair.operand = i - 1;
        if (push(m, pair) < 0)
            return -1;
    }
    return 1;
}

/* What a call gives for a parameter; *is_default when it leaves it out. */
static fe_value argument(const fe_detail *call, const fe_detail *signature, uint32_t i, bool *is_default)
{
    int64_t flags = signature->kwargs->items[2 * i + 1].as.integer;
    const fe_value *given = keyword(call->kwargs, signature->kwargs->items[2 * i].as.string);

    *is_default = false;
    if (given)
        return *given;
    if (!(flags & FE_PARAMETER_KEYWORD_ONLY) && i < seq_len(call->args))
        return call->args->items[i];
    *is_default = true;
    return flags & FE_PARAMETER_NO_DEFAULT ? (fe_value){.kind = FE_NULL} : signature->args->items[i];
}

/* All parameters in order, those left out by their defaults; more positional arguments than there are parameters, as torch.fx
 * does, are not looked at. */
static int push_filled(matcher *m, match_pair pair, uint32_t signature, uint32_t pattern, uint32_t node)
{
    const fe_detail *s = &m->p->side.graph->details[signature];
    bool left_out;

    for (uint32_t i = seq_len(s->kwargs) / 2; i-- > 0;) {
        pair.pattern = argument(&m->p->side.graph->details[pattern], s, i, &left_out);
        pair.value = argument(&m->g->details[node], s, i, &pair.is_default);
        pair.operand = i;
        if (left_out && pair.is_default)
            continue;
        if (push(m, pair) < 0)
            return -1;
    }
    return 1;
}

static int push_operands(matcher *m, const match_pair *at, uint32_t pattern, uint32_t node)
{
    const fe_detail *a = &m->p->side.graph->details[pattern], *b = &m->g->details[node];
    match_pair pair = {.user = pattern, .user_node = node};
    bool same_count = seq_len(a->args) == seq_len(b->args);
    int pushed = 0;

    if (same_count && same_keys_in_order(a->kwargs, b->kwargs)) {
        pushed = push_keywords(m, pair, seq_len(a->args), a->kwargs, b->kwargs);
        return pushed <= 0 ? pushed : push_arguments(m, pair, a->args, b->args);
    }
    if (m->p->signature[pattern] != FE_NONE_ID)
        return push_filled(m, pair, m->p->signature[pattern], pattern, node);
    if (!m->o->fx_policy && same_count && seq_len(a->kwargs) == seq_len(b->kwargs))
        pushed = push_keywords(m, pair, seq_len(a->args), a->kwargs, b->kwargs);
    if (pushed > 0)
        return push_arguments(m, pair, a->args, b->args);
    return pushed < 0 ? -1 : fail(m, FE_MISMATCH_ARGUMENTS, at);
}

/* ---- one pair: 1 when it agrees as far as can be told now, 0, or -1 ---- */

bool fe_match_calls_same(const matcher *m, uint32_t pattern, uint32_t node, bool is_anchor)
{
    const fe_graph *p = m->p->side.graph;
    uint8_t op = p->nodes[pattern].op;

    if (op == FE_OP_PLACEHOLDER && !m->o->match_placeholder)
        return true;
    if (is_anchor && m->o->name && strstr(m->g->details[node].name->data, m->o->name))
        return true;
    if (op != m->g->nodes[node].op)
        return false;
    return op == FE_OP_PLACEHOLDER || op == FE_OP_OUTPUT ||
           m->p->side.targets[p->nodes[pattern].target] == m->graph->targets[m->g->nodes[node].target];
}

static int match_nodes(matcher *m, const match_pair *at, bool is_anchor)
{
    uint32_t pattern = at->pattern.as.node, node = at->value.as.node;
    const fe_value *bound = &m->bound[pattern].value;
    uint8_t op = m->p->side.graph->nodes[pattern].op;

    if (bound->kind != FE_NULL)
        return (bound->kind == FE_NODE && bound->as.node == node) || fail(m, FE_MISMATCH_OTHER, at);
    if (m->role[node] != ROLE_NONE)
        return fail(m, FE_MISMATCH_TAKEN, at);
    if (!fe_match_calls_same(m, pattern, node, is_anchor))
        return fail(m, FE_MISMATCH_CALL, at);
    if (m->consumed[node] && op != FE_OP_PLACEHOLDER && op != FE_OP_OUTPUT)
        return fail(m, FE_MISMATCH_OVERLAP, at);
    bind(m, pattern, at);
    return op == FE_OP_PLACEHOLDER ? 1 : push_operands(m, at, pattern, node);
}

static bool literals_equal(const matcher *m, const match_pair *at)
{
    bool loose = m->o->fx_policy;

    return at->pattern.kind == at->value.kind &&
           fe_literal_equal(&m->p->side, at->pattern, at->is_default ? &m->p->side : m->graph, at->value, loose);
}

/* The pattern has a placeholder, and the graph no node. */
static int match_value(matcher *m, const match_pair *at)
{
    uint32_t pattern = at->pattern.as.node;
    const fe_binding *bound = &m->bound[pattern];
    const fe_match_side *side = at->is_default ? &m->p->side : m->graph;
    bool loose = m->o->fx_policy;

    if (at->value.kind == FE_NULL) /* nothing is there that it could stand for */
        return fail(m, FE_MISMATCH_ARGUMENTS, at);
    if (bound->value.kind == FE_NULL) {
        bind(m, pattern, at);
        return 1;
    }
    return fe_literal_equal(bound->is_default ? &m->p->side : m->graph, bound->value, side, at->value, loose) ||
           (loose && m->o->ignore_literals) || fail(m, FE_MISMATCH_OTHER, at);
}

static bool is_list(fe_value v)
{
    return v.kind == FE_TUPLE || v.kind == FE_LIST;
}

/* Containers that torch.fx compares as a whole are looked into: 1 when their parts are on the stack, 0, or -1. */
static int push_parts(matcher *m, const match_pair *at)
{
    const fe_seq *a = at->pattern.as.seq, *b = at->value.as.seq;

    if (a->len != b->len)
        return 0;
    if (at->pattern.kind == FE_SLICE)
        return push_items(m, at, a, b);
    for (uint32_t i = 0; i < a->len; i += 2) {
        match_pair pair = *at;
        uint32_t k = 0;
        while (k < b->len && !fe_literal_equal(&m->p->side, a->items[i], m->graph, b->items[k], false))
            k += 2;
        if (k == b->len)
            return 0;
        pair.pattern = a->items[i + 1];
        pair.value = b->items[k + 1];
        if (push(m, pair) < 0)
            return -1;
    }
    return 1;
}

static int match_pairs(matcher *m, const match_pair *at)
{
    fe_value a = at->pattern, b = at->value;
    bool b_is_node = b.kind == FE_NODE && !at->is_default;
    int parts = 0;

    if (a.kind == FE_NODE && b_is_node)
        return match_nodes(m, at, false);
    if (is_list(a) && is_list(b))
        return a.as.seq->len != b.as.seq->len ? fail(m, FE_MISMATCH_LITERAL, at)
                                              : push_items(m, at, a.as.seq, b.as.seq);
    if (a.kind == FE_NODE && m->p->side.graph->nodes[a.as.node].op == FE_OP_PLACEHOLDER && !m->o->match_placeholder)
        return match_value(m, at);
    if (m->o->fx_policy) {
        if (a.kind == FE_NODE && m->p->side.graph->nodes[a.as.node].op == FE_OP_PLACEHOLDER)
            return match_value(m, at);
        if (m->o->ignore_literals || (a.kind != FE_NODE && !b_is_node && literals_equal(m, at)))
            return 1;
        return fail(m, a.kind == FE_NODE || b_is_node ? FE_MISMATCH_KIND : FE_MISMATCH_LITERAL, at);
    }
    if (a.kind == FE_NODE || b_is_node)
        return fail(m, FE_MISMATCH_KIND, at);
    if (a.kind == b.kind && (a.kind == FE_DICT || a.kind == FE_SLICE) && !at->is_default &&
        (parts = push_parts(m, at)) != 0)
        return parts;
    if (literals_equal(m, at))
        return 1;
    if (m->o->ignore_literals && !fe_value_node_count(a) && (at->is_default || !fe_value_node_count(b)))
        return 1;
    return fail(m, FE_MISMATCH_LITERAL, at);
}

/* Match an anchor, and what leads to it, with a node; on failure the bindings are to be taken back. */
int fe_match_walk(matcher *m, uint32_t anchor, uint32_t node)
{
    match_pair first = {.pattern = {.kind = FE_NODE, .as.node = anchor},
                        .value = {.kind = FE_NODE, .as.node = node},
                        .user = anchor,
                        .user_node = node,
                        .operand = FE_NONE_ID};

    m->stack_len = 0;
    int result = match_nodes(m, &first, true);
    while (result > 0 && m->stack_len) {
        match_pair at = m->stack[--m->stack_len];
        result = match_pairs(m, &at);
    }
    return result;
}

/* ---- complete matches ---- */

static int refuse(matcher *m, fe_mismatch_reason reason, uint32_t pattern, uint32_t node)
{
    m->out->refused[reason]++;
    note_mismatch(m, reason, pattern, node, FE_NONE_ID);
    return 0;
}

/* torch.fx looks up what placeholders and then results stand for. */
static int check_fx_reached(matcher *m)
{
    const fe_graph *p = m->p->side.graph;
    const fe_node *output = &p->nodes[m->p->count];
    uint32_t missing = FE_ROOT;

    for (uint32_t id = 1; id <= m->p->count && missing == FE_ROOT; id++) {
        if (p->nodes[id].op == FE_OP_PLACEHOLDER && m->bound[id].value.kind == FE_NULL)
            missing = id;
    }
    for (uint32_t e = output->edge; e < output->edge + output->edge_count && missing == FE_ROOT; e++) {
        if (m->bound[p->edges[e].def].value.kind == FE_NULL)
            missing = p->edges[e].def;
    }
    if (missing == FE_ROOT)
        return 1;
    return fe_fail(m->err, FE_BAD_VALUE, missing, "no anchor of the pattern leads to its node '%s'",
                   p->details[missing].name->data);
}

/* Each node of the pattern must stand for something; but for a placeholder that nothing uses. */
static int check_reached(matcher *m)
{
    const fe_graph *p = m->p->side.graph;

    if (m->o->fx_policy)
        return check_fx_reached(m);
    for (uint32_t id = 1; id <= m->p->count; id++) {
        uint8_t op = p->nodes[id].op;
        if (op != FE_OP_PLACEHOLDER && op != FE_OP_OUTPUT && m->bound[id].value.kind == FE_NULL)
            return refuse(m, FE_MISMATCH_UNREACHED, id, FE_NONE_ID);
    }
    return 1;
}

/* What is inside of a match may be used inside only. */
static int check_contained(matcher *m)
{
    const fe_graph *g = m->g;

    for (uint32_t i = 0; i < m->bound_count; i++) {
        uint32_t pattern = m->order[i];
        if (m->returned[pattern] || m->p->side.graph->nodes[pattern].op == FE_OP_PLACEHOLDER)
            continue;
        uint32_t node = m->bound[pattern].value.as.node;
        for (uint32_t e = g->details[node].first_user; e != FE_NONE_ID; e = g->edges[e].next) {
            if (m->role[g->edges[e].user] != ROLE_COMPUTES)
                return refuse(m, FE_MISMATCH_USED, pattern, node);
        }
    }
    return 1;
}

static bool is_inside(const matcher *m, uint32_t node)
{
    return m->role[node] == ROLE_COMPUTES && m->g->nodes[node].op != FE_OP_OUTPUT;
}

/* Whether one of a node's users outside leads back into the match; only what stands before `last` can. */
static bool leads_back(matcher *m, uint32_t from, uint64_t last)
{
    const fe_graph *g = m->g;
    uint32_t waiting = 0;

    m->queue[waiting++] = from;
    while (waiting) {
        uint32_t at = m->queue[--waiting];
        if (g->nodes[at].pos >= last)
            continue; /* all its users stand behind it */
        for (uint32_t e = g->details[at].first_user; e != FE_NONE_ID; e = g->edges[e].next) {
            uint32_t user = g->edges[e].user;
            if (is_inside(m, user) && at != from)
                return true;
            if (!is_inside(m, user) && m->seen[user] != m->stamp && g->nodes[user].pos < last) {
                m->seen[user] = m->stamp;
                m->queue[waiting++] = user;
            }
        }
    }
    return false;
}

static uint64_t last_position(const matcher *m)
{
    uint64_t last = 0;

    if (!m->sorted)
        return UINT64_MAX;
    for (uint32_t i = 0; i < m->bound_count; i++) {
        fe_value v = m->bound[m->order[i]].value;
        if (v.kind == FE_NODE && is_inside(m, v.as.node) && m->g->nodes[v.as.node].pos > last)
            last = m->g->nodes[v.as.node].pos;
    }
    return last;
}

static int check_acyclic(matcher *m)
{
    uint64_t last = last_position(m);

    m->stamp++;
    for (uint32_t i = 0; !m->o->keep_cycles && i < m->bound_count; i++) {
        fe_value v = m->bound[m->order[i]].value;
        if (v.kind == FE_NODE && is_inside(m, v.as.node) && leads_back(m, v.as.node, last))
            return refuse(m, FE_MISMATCH_CYCLE, m->order[i], v.as.node);
    }
    return 1;
}

/* With bindings complete: keep the match if it is one. 0, or -1. */
int fe_match_accept(matcher *m)
{
    fe_matches *out = m->out;
    const fe_allocator *a = out->allocator;
    int status;

    if ((status = check_reached(m)) <= 0 || (status = check_contained(m)) <= 0 || (status = check_acyclic(m)) <= 0)
        return status;
    if (fe_grow(a, &out->bindings, &out->capacity, (size_t)out->len + m->bound_count, sizeof *out->bindings, m->err) <
            0 ||
        fe_grow(a, &out->ends, &out->end_capacity, (size_t)out->count + 1, sizeof *out->ends, m->err) < 0)
        return -1;
    for (uint32_t i = 0; i < m->bound_count; i++) {
        fe_value v = m->bound[m->order[i]].value;
        out->bindings[out->len++] = m->bound[m->order[i]];
        if (!m->o->keep_overlapping && v.kind == FE_NODE && is_inside(m, v.as.node))
            m->consumed[v.as.node] = true;
    }
    out->ends[out->count++] = out->len;
    return 0;
}
