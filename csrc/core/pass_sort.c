/* pass_sort.c - nodes put into order, so that every operand stands before its users.
 *
 * Kahn's algorithm: what waits for nothing more is ready; of what is ready, the one with the lowest rank and then the
 * lowest number comes next (a heap), so that a graph in order stays as it is. The breadth-first order is that of torch.fx's
 * legalize_graph: a queue, where what is urgent goes to the front; ranks are seen to at the end, and move only what waits
 * for nothing or what nothing waits for.
 */
#include "order.h"

/* ---- flows ---- */

void fe_flow_init(fe_flow *f, const fe_allocator *a, uint32_t count)
{
    *f = (fe_flow){.allocator = a, .count = count};
}

void fe_flow_clear(fe_flow *f)
{
    fe_resize(f->allocator, f->pairs, 0);
    fe_flow_init(f, f->allocator, 0);
}

int fe_flow_add(fe_flow *f, uint32_t before, uint32_t after, fe_error *err)
{
    assert(before < f->count && after < f->count);
    if (f->len == f->capacity &&
        fe_grow(f->allocator, &f->pairs, &f->capacity, (size_t)f->len + 1, sizeof *f->pairs, err) < 0)
        return -1;
    f->pairs[f->len++] = (fe_flow_pair){before, after};
    return 0;
}

/* The state of one sort. */
typedef struct {
    const fe_flow *f;
    const fe_flow_order *o;
    uint32_t *first;  /* by vertex, and one more: its part of `after` */
    uint32_t *after;  /* in the order in which pairs were added */
    uint32_t *waits;  /* by vertex: for how many pairs */
    uint64_t *ready;  /* a heap of rank and number, or the vertices of a queue in a ring */
    uint32_t from;    /* of the queue */
    uint32_t waiting; /* entries of ready */
} sorter;

static void sorter_clear(sorter *s)
{
    fe_resize(s->f->allocator, s->first, 0);
    fe_resize(s->f->allocator, s->after, 0);
    fe_resize(s->f->allocator, s->waits, 0);
    fe_resize(s->f->allocator, s->ready, 0);
}

static int sorter_init(sorter *s, const fe_flow *f, const fe_flow_order *o, fe_error *err)
{
    const fe_allocator *a = f->allocator;
    size_t n = f->count;

    *s = (sorter){.f = f, .o = o};
    s->first = fe_resize(a, NULL, (n + 2) * sizeof *s->first);
    s->waits = fe_resize(a, NULL, (n + 1) * sizeof *s->waits);
    s->ready = fe_resize(a, NULL, (n + 1) * sizeof *s->ready);
    s->after = fe_resize(a, NULL, ((size_t)f->len + 1) * sizeof *s->after);
    if (s->first && s->waits && s->ready && s->after)
        return 0;
    sorter_clear(s);
    return fe_no_memory(err);
}

/* The pairs by their first vertex: counted, summed up, filled in. */
static void index_pairs(sorter *s)
{
    const fe_flow *f = s->f;

    memset(s->first, 0, ((size_t)f->count + 2) * sizeof *s->first);
    memset(s->waits, 0, ((size_t)f->count + 1) * sizeof *s->waits);
    for (uint32_t i = 0; i < f->len; i++) {
        s->first[f->pairs[i].before + 2]++;
        s->waits[f->pairs[i].after]++;
    }
    for (uint32_t v = 2; v <= f->count; v++)
        s->first[v] += s->first[v - 1];
    for (uint32_t i = 0; i < f->len; i++)
        s->after[s->first[f->pairs[i].before + 1]++] = f->pairs[i].after;
}

static uint8_t rank_of(const sorter *s, uint32_t vertex)
{
    return s->o->rank ? s->o->rank[vertex] : 0;
}

static void heap_push(sorter *s, uint64_t key)
{
    uint64_t *h = s->ready;
    uint32_t at = s->waiting++;

    for (; at && h[(at - 1) / 2] > key; at = (at - 1) / 2)
        h[at] = h[(at - 1) / 2];
    h[at] = key;
}

static uint64_t heap_pop(sorter *s)
{
    uint64_t *h = s->ready, top = h[0], key = h[--s->waiting];
    uint32_t at = 0, child;

    for (; (child = 2 * at + 1) < s->waiting; at = child) {
        child += child + 1 < s->waiting && h[child + 1] < h[child];
        if (h[child] >= key)
            break;
        h[at] = h[child];
    }
    h[at] = key;
    return top;
}

static void ring_push(sorter *s, uint32_t vertex, bool front)
{
    uint32_t size = s->f->count + 1;

    if (front)
        s->ready[s->from = (s->from ? s->from : size) - 1] = vertex;
    else
        s->ready[(uint32_t)(((uint64_t)s->from + s->waiting) % size)] = vertex;
    s->waiting++;
}

static uint32_t ring_pop(sorter *s)
{
    uint32_t vertex = (uint32_t)s->ready[s->from];

    s->from = (s->from + 1) % (s->f->count + 1);
    s->waiting--;
    return vertex;
}

static void push(sorter *s, uint32_t vertex, bool at_start)
{
    if (s->o->breadth_first)
        ring_push(s, vertex, !at_start && s->o->urgent && s->o->urgent[vertex]);
    else
        heap_push(s, (uint64_t)rank_of(s, vertex) << 32 | vertex);
}

static uint32_t pop(sorter *s)
{
    return s->o->breadth_first ? ring_pop(s) : (uint32_t)heap_pop(s);
}

static uint32_t sort(sorter *s, uint32_t *out)
{
    uint32_t done = 0;

    for (uint32_t v = 0; v < s->f->count; v++) {
        if (!s->waits[v])
            push(s, v, true);
    }
    while (s->waiting) {
        uint32_t v = pop(s);
        out[done++] = v;
        for (uint32_t i = s->first[v]; i < s->first[v + 1]; i++) {
            if (--s->waits[s->after[i]] == 0)
                push(s, s->after[i], false);
        }
    }
    return done;
}

/* The front: what is of the lowest rank and waits for nothing. The back: what is of the highest and nothing waits for. */
static int side_of(const sorter *s, const bool *needs, uint32_t vertex)
{
    uint8_t rank = rank_of(s, vertex);

    if (rank == FE_RANK_FIRST && !needs[vertex])
        return 0;
    return rank == FE_RANK_LAST && s->first[vertex] == s->first[vertex + 1] ? 2 : 1;
}

/* Nothing is ready or waits any more, so that both arrays are free. */
static void take_sides(sorter *s, uint32_t *out)
{
    bool *needs = (bool *)s->ready;
    uint32_t *moved = s->waits, count = 0;

    memset(needs, 0, s->f->count);
    for (uint32_t i = 0; i < s->f->len; i++)
        needs[s->f->pairs[i].after] = true;
    for (int side = 0; side < 3; side++) {
        for (uint32_t i = 0; i < s->f->count; i++) {
            if (side_of(s, needs, out[i]) == side)
                moved[count++] = out[i];
        }
    }
    memcpy(out, moved, (size_t)count * sizeof *out);
}

/* What still waits does so for another that waits: going from each to such a one must come round. Links and marks take the
 * room of arrays that are no longer needed. */
static uint32_t find_circle(sorter *s, uint32_t *out)
{
    uint32_t *needs = s->first, v = FE_NONE_ID, len = 0;

    for (uint32_t i = 0; i < s->f->len; i++) {
        fe_flow_pair p = s->f->pairs[i];
        if (s->waits[p.before] && s->waits[p.after])
            needs[v = p.after] = p.before;
    }
    memset(s->ready, 0, ((size_t)s->f->count + 1) * sizeof *s->ready);
    for (; !s->ready[v]; v = needs[v])
        s->ready[v] = 1;
    for (; s->ready[v] == 1; v = needs[v]) {
        s->ready[v] = 2;
        out[len++] = v;
    }
    for (uint32_t i = 0; i < len / 2; i++) { /* from what is needed to what needs it */
        uint32_t other = out[len - 1 - i];
        out[len - 1 - i] = out[i];
        out[i] = other;
    }
    return len;
}

int fe_flow_sort(const fe_flow *f, const fe_flow_order *o, uint32_t *out, uint32_t *circle, fe_error *err)
{
    sorter s;

    if (sorter_init(&s, f, o, err) < 0)
        return -1;
    index_pairs(&s);
    *circle = sort(&s, out) < f->count ? find_circle(&s, out) : 0;
    if (!*circle && o->breadth_first && o->rank)
        take_sides(&s, out);
    sorter_clear(&s);
    return 0;
}

/* ---- graphs ---- */

uint8_t fe_op_rank(fe_op op)
{
    return op == FE_OP_PLACEHOLDER ? FE_RANK_FIRST : op == FE_OP_OUTPUT ? FE_RANK_LAST : FE_RANK_FIRST + 1;
}

bool fe_graph_is_sorted(const fe_graph *g, bool ranks)
{
    uint8_t rank = 0;

    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT; id = g->nodes[id].next) {
        const fe_node *n = &g->nodes[id];
        if (ranks && fe_op_rank((fe_op)n->op) < rank)
            return false;
        rank = fe_op_rank((fe_op)n->op);
        for (uint32_t e = n->edge; e < n->edge + n->edge_count; e++) {
            if (g->nodes[g->edges[e].def].pos >= n->pos)
                return false;
        }
    }
    return true;
}

/* The places of nodes in the list, by id; the caller frees it. */
static uint32_t *places_of(const fe_graph *g, fe_error *err)
{
    uint32_t *places = fe_resize(g->allocator, NULL, (size_t)g->node_count * sizeof *places), place = 0;

    if (!places)
        fe_no_memory(err);
    for (uint32_t id = g->nodes[FE_ROOT].next; places && id != FE_ROOT; id = g->nodes[id].next)
        places[id] = place++;
    return places;
}

int fe_graph_flow(const fe_graph *g, fe_flow *f, fe_error *err)
{
    uint32_t *places = places_of(g, err);
    int result = places ? 0 : -1;

    for (uint32_t id = g->nodes[FE_ROOT].next; result == 0 && id != FE_ROOT; id = g->nodes[id].next) {
        for (uint32_t e = g->details[id].first_user; result == 0 && e != FE_NONE_ID; e = g->edges[e].next)
            result = fe_flow_add(f, places[id], places[g->edges[e].user], err);
    }
    fe_resize(g->allocator, places, 0);
    return result;
}

int fe_graph_arrange(fe_graph *g, const uint32_t *order, fe_error *err)
{
    uint32_t *ids = fe_resize(g->allocator, NULL, ((size_t)g->live + 1) * sizeof *ids), count = 0, same = 0;

    if (!ids)
        return fe_no_memory(err);
    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT; id = g->nodes[id].next)
        ids[count++] = id;
    while (same < count && order[same] == same)
        same++;
    for (uint32_t i = same; i < count; i++)
        fe_node_place(g, ids[order[i]], (fe_point){.anchor = FE_ROOT});
    fe_resize(g->allocator, ids, 0);
    return same < count;
}
