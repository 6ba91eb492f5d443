/* match_search.c - all matches of a pattern: the candidates of its anchors, one combination after another.
 *
 * With several anchors torch.fx tries every candidate of one with every candidate of the next. Here, when a later anchor's
 * part of the pattern meets what the earlier ones have bound, its candidates are the nodes that lead there: the pattern's
 * way from the common node to the anchor, gone in the graph along users.
 */
#include <stdlib.h>

#include "match_internal.h"

typedef struct {
    uint32_t anchor;
    uint32_t *candidates, count, at; /* in the order of the graph */
    uint32_t *near, near_capacity;   /* room for those found along the way, when there is one */
    uint32_t *way, way_len;          /* nodes of the pattern, from one that is bound to the anchor; or none */
    uint32_t mark;                   /* bindings of the earlier anchors */
} level;

typedef struct {
    matcher m;
    level *levels;
    uint32_t level_count;
    uint32_t *part;   /* by node of the pattern: 1 + the first anchor it leads to; 0: none so far */
    uint32_t *parent; /* by node of the pattern: its user on the way to the anchor */
    uint32_t *line;   /* room for all nodes of the pattern */
} search;

void fe_matches_init(fe_matches *m, const fe_allocator *a)
{
    *m = (fe_matches){.allocator = a, .best = {.pattern = FE_NONE_ID, .node = FE_NONE_ID, .operand = FE_NONE_ID}};
}

void fe_matches_clear(fe_matches *m)
{
    fe_resize(m->allocator, m->bindings, 0);
    fe_resize(m->allocator, m->ends, 0);
    fe_resize(m->allocator, m->partial, 0);
    fe_matches_init(m, m->allocator);
}

const fe_binding *fe_matches_at(const fe_matches *m, uint32_t index, uint32_t *len)
{
    uint32_t start = index ? m->ends[index - 1] : 0;

    *len = m->ends[index] - start;
    return m->bindings + start;
}

const char *fe_mismatch_text(fe_mismatch_reason reason)
{
    static const char *const texts[] = {
#define X(id, text) text,
        FE_MISMATCHES(X)
#undef X
    };

    return texts[reason];
}

/* ---- memory ---- */

static void *zeroed(matcher *m, size_t count, size_t size)
{
    void *block = fe_resize(m->g->allocator, NULL, (count + 1) * size);

    if (block)
        memset(block, 0, (count + 1) * size);
    else
        fe_no_memory(m->err);
    return block;
}

static int reserve(search *s)
{
    matcher *m = &s->m;
    size_t nodes = m->g->node_count, pattern = (size_t)m->p->count + 1;

    return (m->bound = zeroed(m, pattern, sizeof *m->bound)) && (m->order = zeroed(m, pattern, sizeof *m->order)) &&
                   (m->returned = zeroed(m, pattern, sizeof *m->returned)) && (m->role = zeroed(m, nodes, 1)) &&
                   (m->consumed = zeroed(m, nodes, sizeof *m->consumed)) &&
                   (m->seen = zeroed(m, nodes, sizeof *m->seen)) && (m->queue = zeroed(m, nodes, sizeof *m->queue)) &&
                   (s->part = zeroed(m, pattern, sizeof *s->part)) &&
                   (s->parent = zeroed(m, pattern, sizeof *s->parent)) &&
                   (s->line = zeroed(m, pattern, sizeof *s->line)) &&
                   (s->levels = zeroed(m, pattern, sizeof *s->levels)) &&
                   fe_grow(m->out->allocator, &m->out->partial, &m->out->partial_capacity, pattern,
                           sizeof *m->out->partial, m->err) == 0
               ? 0
               : -1;
}

static void release(search *s)
{
    const fe_allocator *a = s->m.g->allocator;
    void *blocks[] = {s->m.bound, s->m.order, s->m.returned, s->m.role, s->m.consumed, s->m.seen,
                      s->m.queue, s->m.stack, s->part,       s->parent, s->line};

    for (uint32_t i = 0; i < s->level_count; i++) {
        fe_resize(a, s->levels[i].candidates, 0);
        fe_resize(a, s->levels[i].near, 0);
        fe_resize(a, s->levels[i].way, 0);
    }
    fe_resize(a, s->levels, 0);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        fe_resize(a, blocks[i], 0);
}

/* ---- anchors ---- */

static int add_level(search *s, uint32_t anchor)
{
    matcher *m = &s->m;
    const fe_graph *g = m->g;
    uint32_t capacity = 0;
    level *l = &s->levels[s->level_count++];

    l->anchor = anchor;
    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT; id = g->nodes[id].next) {
        if (!fe_match_calls_same(m, anchor, id, true))
            continue;
        if (fe_grow(g->allocator, &l->candidates, &capacity, (size_t)l->count + 1, sizeof *l->candidates, m->err) < 0)
            return -1;
        l->candidates[l->count++] = id;
    }
    return 0;
}

/* What the pattern returns, and its anchors: results that nothing but the output uses. -1, or whether they can all be found. */
static int add_anchors(search *s)
{
    matcher *m = &s->m;
    const fe_graph *p = m->p->side.graph;
    const fe_node *output = &p->nodes[m->p->count];
    bool found = true;

    for (uint32_t e = output->edge; e < output->edge + output->edge_count; e++)
        m->returned[p->edges[e].def] = true;
    if (m->o->match_output)
        return add_level(s, m->p->count) < 0 ? -1 : s->levels[0].count > 0;
    for (uint32_t e = output->edge; e < output->edge + output->edge_count; e++) {
        uint32_t def = p->edges[e].def;
        if (p->nodes[def].user_count != 1)
            continue;
        if (add_level(s, def) < 0)
            return -1;
        if (s->levels[s->level_count - 1].count)
            continue;
        found = false;
        if (m->o->fx_policy) { /* it is passed over */
            fe_resize(m->g->allocator, s->levels[--s->level_count].candidates, 0);
            s->levels[s->level_count] = (level){0};
        } else if (m->out->best.pattern == FE_NONE_ID) {
            m->out->best.pattern = def;
        }
    }
    return s->level_count && (found || m->o->fx_policy);
}

/* ---- the way to a later anchor ---- */

static int keep_way(search *s, level *l, uint32_t from)
{
    uint32_t len = 1;

    for (uint32_t id = from; id != l->anchor; id = s->parent[id])
        len++;
    if (!(l->way = zeroed(&s->m, len, sizeof *l->way)))
        return -1;
    l->way_len = len;
    for (uint32_t i = 0, id = from; i < len; i++, id = s->parent[id])
        l->way[i] = id;
    return 0;
}

/* Note which part of the pattern leads to an anchor, and where it meets that of earlier ones: at a node that computes, if any
 * does, for fewer nodes use that than use an input. */
static int find_way(search *s, uint32_t index)
{
    const fe_graph *p = s->m.p->side.graph;
    level *l = &s->levels[index];
    uint32_t head = 0, len = 0, meeting = FE_NONE_ID;

    s->part[l->anchor] = index + 1;
    s->line[len++] = l->anchor;
    while (head < len) {
        uint32_t user = s->line[head++];
        const fe_node *n = &p->nodes[user];
        for (uint32_t e = n->edge; e < n->edge + n->edge_count; e++) {
            uint32_t def = p->edges[e].def;
            if (s->part[def] == index + 1)
                continue;
            bool is_earlier = s->part[def] != 0;
            if (!is_earlier) {
                s->part[def] = index + 1;
                s->line[len++] = def;
            } else if (meeting == FE_NONE_ID ||
                       (p->nodes[meeting].op == FE_OP_PLACEHOLDER && p->nodes[def].op != FE_OP_PLACEHOLDER)) {
                meeting = def;
            } else {
                continue;
            }
            s->parent[def] = user;
        }
    }
    /* With literals ignored torch.fx lets one stand for a node: the way need not be there. */
    bool is_sure = !(s->m.o->fx_policy && s->m.o->ignore_literals);
    return meeting == FE_NONE_ID || !is_sure ? 0 : keep_way(s, l, meeting);
}

typedef struct {
    uint64_t pos;
    uint32_t id;
} placed;

static int by_position(const void *a, const void *b)
{
    uint64_t x = ((const placed *)a)->pos, y = ((const placed *)b)->pos;

    return (x > y) - (x < y);
}

static int sort_by_position(matcher *m, uint32_t *ids, uint32_t count)
{
    if (count < 2)
        return 0;
    placed *items = fe_resize(m->g->allocator, NULL, count * sizeof *items);
    if (!items)
        return fe_no_memory(m->err);
    for (uint32_t i = 0; i < count; i++)
        items[i] = (placed){m->g->nodes[ids[i]].pos, ids[i]};
    qsort(items, count, sizeof *items, by_position);
    for (uint32_t i = 0; i < count; i++)
        ids[i] = items[i].id;
    fe_resize(m->g->allocator, items, 0);
    return 0;
}

/* The users of nodes [first, *len) of the line that call what a node of the pattern calls, appended, each once. */
static int add_users(matcher *m, level *l, uint32_t first, uint32_t *len, uint32_t pattern)
{
    const fe_graph *g = m->g;
    uint32_t end = *len;

    m->stamp++;
    for (uint32_t i = first; i < end; i++) {
        for (uint32_t e = g->details[l->near[i]].first_user; e != FE_NONE_ID; e = g->edges[e].next) {
            uint32_t user = g->edges[e].user;
            if (m->seen[user] == m->stamp || !fe_match_calls_same(m, pattern, user, pattern == l->anchor))
                continue;
            m->seen[user] = m->stamp;
            if (fe_grow(g->allocator, &l->near, &l->near_capacity, (size_t)*len + 1, sizeof *l->near, m->err) < 0)
                return -1;
            l->near[(*len)++] = user;
        }
    }
    return 0;
}

/* Begin with a level: its candidates are those at the end of the way. */
static int open_level(search *s, uint32_t index, const uint32_t **candidates, uint32_t *count)
{
    matcher *m = &s->m;
    level *l = &s->levels[index];
    uint32_t first = 0, len = 1;

    l->at = 0;
    l->mark = m->bound_count;
    *candidates = l->candidates;
    *count = l->count;
    if (!l->way_len || m->bound[l->way[0]].value.kind != FE_NODE)
        return 0;
    if (fe_grow(m->g->allocator, &l->near, &l->near_capacity, 1, sizeof *l->near, m->err) < 0)
        return -1;
    l->near[0] = m->bound[l->way[0]].value.as.node;
    for (uint32_t i = 1; i < l->way_len; i++) {
        uint32_t end = len;
        if (add_users(m, l, first, &len, l->way[i]) < 0)
            return -1;
        first = end;
    }
    *candidates = l->near + first;
    *count = len - first;
    return sort_by_position(m, l->near + first, len - first);
}

/* ---- the search ---- */

static bool is_sorted(const fe_graph *g)
{
    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT; id = g->nodes[id].next) {
        const fe_node *n = &g->nodes[id];
        for (uint32_t e = n->edge; e < n->edge + n->edge_count; e++) {
            if (g->nodes[g->edges[e].def].pos >= n->pos)
                return false;
        }
    }
    return true;
}

typedef struct {
    const uint32_t *ids;
    uint32_t count;
} candidates;

/* Whether a level began with something bound that is in a match now. */
static bool is_spent(const search *s, uint32_t index)
{
    const matcher *m = &s->m;

    for (uint32_t i = 0; i < s->levels[index].mark; i++) {
        const fe_value *v = &m->bound[m->order[i]].value;
        if (v->kind == FE_NODE && m->role[v->as.node] == ROLE_COMPUTES && m->consumed[v->as.node])
            return true;
    }
    return false;
}

static int run(search *s, candidates *open)
{
    matcher *m = &s->m;
    uint32_t at = 0;

    if (open_level(s, 0, &open[0].ids, &open[0].count) < 0)
        return -1;
    for (;;) {
        level *l = &s->levels[at];
        fe_match_unbind(m, l->mark);
        if (l->at == open[at].count) {
            if (!at--)
                return 0;
            continue;
        }
        int found = fe_match_walk(m, l->anchor, open[at].ids[l->at++]);
        if (found < 0)
            return -1;
        if (!found)
            continue;
        if (at + 1 < s->level_count) {
            at++;
            if (open_level(s, at, &open[at].ids, &open[at].count) < 0)
                return -1;
        } else if (fe_match_accept(m) < 0) {
            return -1;
        } else {
            while (at && is_spent(s, at)) /* all that could follow would overlap */
                at--;
        }
    }
}

static int search_all(search *s)
{
    matcher *m = &s->m;
    candidates *open;
    int found = reserve(s) < 0 ? -1 : add_anchors(s), result;

    if (found <= 0)
        return found;
    for (uint32_t i = 0; i < s->level_count; i++) {
        if (find_way(s, i) < 0)
            return -1;
    }
    m->sorted = is_sorted(m->g);
    if (!(open = zeroed(m, s->level_count, sizeof *open)))
        return -1;
    result = run(s, open);
    fe_resize(m->g->allocator, open, 0);
    return result;
}

int fe_match(const fe_graph *g, const fe_match_side *graph, const fe_pattern *p, const fe_match_options *o,
             fe_matches *out, fe_error *err)
{
    search s = {.m = {.g = g, .graph = graph, .p = p, .o = o, .out = out, .err = err}};
    int result = search_all(&s);

    release(&s);
    return result;
}
