/* diff.c - what differs between two graphs, once it is known which node is which: see diff_match.c. */
#include "diff_match.h"

/* ---- values ---- */

static bool values_equal(const fe_diff_matcher *m, fe_value a, fe_value b);

static bool seqs_equal(const fe_diff_matcher *m, const fe_seq *a, const fe_seq *b)
{
    if (!a || !b)
        return (a ? a->len : 0) == (b ? b->len : 0);
    if (a->len != b->len || class_of(&m->a, a->type) != class_of(&m->b, b->type))
        return false;
    for (uint32_t i = 0; i < a->len; i++) {
        if (!values_equal(m, a->items[i], b->items[i]))
            return false;
    }
    return true;
}

static bool values_equal(const fe_diff_matcher *m, fe_value a, fe_value b)
{
    if (a.kind != b.kind)
        return false;
    if (a.kind == FE_NODE)
        return m->a.match[a.as.node] == b.as.node;
    if (a.kind == FE_OBJECT)
        return class_of(&m->a, a.as.object) == class_of(&m->b, b.as.object);
    if (a.kind == FE_STR)
        return strings_equal(a.as.string, b.as.string);
    return fe_kind_is_seq(a.kind) ? seqs_equal(m, a.as.seq, b.as.seq) : fe_value_equal(a, b, NULL);
}

/* ---- what differs ---- */

static uint32_t changes_of(const fe_diff_matcher *m, uint32_t a, uint32_t b)
{
    const fe_detail *d = &m->a.g->details[a], *e = &m->b.g->details[b];
    uint32_t changes = 0;

    if (!ops_equal(m, a, b))
        changes |= FE_CHANGED_OP;
    if (!fe_diff_targets_equal(m, a, b))
        changes |= FE_CHANGED_TARGET;
    if (!seqs_equal(m, d->args, e->args))
        changes |= FE_CHANGED_ARGS;
    if (!seqs_equal(m, d->kwargs, e->kwargs))
        changes |= FE_CHANGED_KWARGS;
    if (class_of(&m->a, d->type) != class_of(&m->b, e->type))
        changes |= FE_CHANGED_TYPE;
    if (!strings_equal(d->name, e->name))
        changes |= FE_CHANGED_NAME;
    return changes;
}

/* Mark what has moved: all pairs but those of a longest run whose places rise in both graphs. tails[k] is the pair that ends
 * the run of k + 1 pairs whose end stands first in a; before[] leads from each pair to the one before it in its run. */
static void find_moves(const fe_diff_matcher *m, fe_diff_pair *pairs, uint32_t count, uint32_t *tails, uint32_t *before)
{
    uint32_t length = 0;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t low = 0, high = length;
        if (pairs[i].a == FE_NONE_ID)
            continue;
        while (low < high) {
            uint32_t middle = low + (high - low) / 2;
            if (m->a.place[pairs[tails[middle]].a] < m->a.place[pairs[i].a])
                low = middle + 1;
            else
                high = middle;
        }
        before[i] = low ? tails[low - 1] : FE_NONE_ID;
        tails[low] = i;
        if (low == length)
            length++;
        pairs[i].changes |= FE_CHANGED_ORDER;
    }
    for (uint32_t i = length ? tails[length - 1] : FE_NONE_ID; i != FE_NONE_ID; i = before[i])
        pairs[i].changes &= ~(uint32_t)FE_CHANGED_ORDER;
}

static uint32_t list_pairs(const fe_diff_matcher *m, fe_diff_pair *pairs)
{
    uint32_t count = 0;

    for (uint32_t b = first_of(&m->b); b != FE_ROOT; b = next_of(&m->b, b)) {
        uint32_t a = m->b.match[b];
        pairs[count++] = (fe_diff_pair){a, b, a == FE_NONE_ID ? 0 : changes_of(m, a, b)};
    }
    /* Matching is over: its arrays serve for this, which needs one place for each node of b. */
    find_moves(m, pairs, count, m->b.chain, m->b.place);
    for (uint32_t a = first_of(&m->a); a != FE_ROOT; a = next_of(&m->a, a)) {
        if (m->a.match[a] == FE_NONE_ID)
            pairs[count++] = (fe_diff_pair){a, FE_NONE_ID, 0};
    }
    return count;
}

/* ---- set-up ---- */

static int side_open(fe_diff_graph *s, const fe_diff_side *from, fe_error *err)
{
    const fe_graph *g = from->graph;
    size_t n = g->node_count;

    assert(!g->bare);
    s->g = g;
    s->classes = from->classes;
    const size_t size = 4 * sizeof(uint64_t) + 3 * sizeof(uint32_t);
    s->block = n > SIZE_MAX / size ? NULL : fe_resize(g->allocator, NULL, n * size);
    if (!s->block)
        return fe_no_memory(err);
    s->label = s->block;
    s->down = s->label + n;
    s->up = s->down + n;
    s->hash = s->up + n;
    s->match = (uint32_t *)(void *)(s->hash + n);
    s->chain = s->match + n;
    s->place = s->chain + n;
    memset(s->match, 0xff, n * sizeof *s->match);
    uint32_t place = 0;
    for (uint32_t id = first_of(s); id != FE_ROOT; id = next_of(s, id)) {
        s->label[id] = fe_diff_label(s, id);
        s->place[id] = place++;
    }
    return 0;
}

/* Buckets for the nodes of a, at least as many as there are nodes, and the queue. */
static int matcher_open(fe_diff_matcher *m, fe_error *err)
{
    size_t buckets = 16, live = m->a.g->live;

    while (buckets < live)
        buckets *= 2;
    m->block = fe_resize(m->a.g->allocator, NULL, buckets * sizeof(fe_diff_bucket) + live * sizeof *m->queue);
    if (!m->block)
        return fe_no_memory(err);
    m->buckets = m->block;
    m->mask = (uint32_t)(buckets - 1);
    m->queue = (uint32_t *)(void *)(m->buckets + buckets);
    return 0;
}

int fe_diff_graphs(const fe_diff_side *a, const fe_diff_side *b, const uint32_t *known, fe_diff_pair *pairs,
                   uint32_t *count, fe_error *err)
{
    fe_diff_matcher m = {.queued = 0};
    int result = 0;

    if (side_open(&m.a, a, err) < 0 || side_open(&m.b, b, err) < 0 || matcher_open(&m, err) < 0) {
        result = -1;
    } else {
        if (known)
            fe_diff_pair_known(&m, known);
        else
            fe_diff_pair_all(&m);
        *count = list_pairs(&m, pairs);
    }
    fe_resize(a->graph->allocator, m.block, 0);
    fe_resize(b->graph->allocator, m.b.block, 0);
    fe_resize(a->graph->allocator, m.a.block, 0);
    return result;
}
