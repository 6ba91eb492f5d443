/* layout_rank.c - the first step of a layout: edges that close circles are turned round, and boxes get their ranks. */
#include "layout_internal.h"

/* Edges by the box they come from: list[start[b] .. start[b + 1]). */
typedef struct {
    uint32_t *list, *start;
} edges_of;

static int list_edges(fe_layout_work *w, edges_of *out, fe_error *err)
{
    const fe_layout_input *in = w->in;

    out->start = fe_layout_take(w, (size_t)in->box_count + 2, sizeof *out->start, err);
    out->list = fe_layout_take(w, (size_t)in->edge_count + 1, sizeof *out->list, err);
    if (!out->start || !out->list)
        return -1;
    for (uint32_t e = 0; e < in->edge_count; e++)
        out->start[in->edges[e].from + 2]++;
    for (uint32_t b = 0; b < in->box_count; b++)
        out->start[b + 2] += out->start[b + 1];
    for (uint32_t e = 0; e < in->edge_count; e++)
        out->list[out->start[in->edges[e].from + 1]++] = e;
    return 0;
}

/* ---- circles ---- */

typedef enum { UNSEEN, ON_PATH, DONE } walk_state;

typedef struct {
    const fe_layout_input *in;
    edges_of edges;
    uint8_t *state;        /* by box: walk_state */
    uint32_t *next, *path; /* by box: the next edge to follow; the boxes on the way */
    bool *turned;
} circle_walk;

/* Depth first: an edge to a box that is on the way here closes a circle. */
static void walk_from(circle_walk *k, uint32_t start)
{
    uint32_t depth = 0;

    k->path[depth++] = start;
    k->state[start] = ON_PATH;
    while (depth) {
        uint32_t box = k->path[depth - 1];
        if (k->next[box] == k->edges.start[box + 1]) {
            k->state[box] = DONE;
            depth--;
            continue;
        }
        uint32_t edge = k->edges.list[k->next[box]++], to = k->in->edges[edge].to;
        if (k->state[to] == ON_PATH)
            k->turned[edge] = true;
        else if (k->state[to] == UNSEEN) {
            k->state[to] = ON_PATH;
            k->path[depth++] = to;
        }
    }
}

static void add_arc(fe_layout_work *w, uint32_t edge, bool turned)
{
    const fe_layout_edge *e = &w->in->edges[edge];
    fe_layout_arc arc = {e->from, e->to, edge, e->from_x, e->to_x, FE_NONE_ID, false};

    if (turned)
        arc = (fe_layout_arc){e->to, e->from, edge, e->to_x, e->from_x, FE_NONE_ID, false};
    w->arcs[w->arc_count++] = arc;
}

int fe_layout_make_arcs(fe_layout_work *w, fe_error *err)
{
    const fe_layout_input *in = w->in;
    circle_walk k = {.in = in};

    if (list_edges(w, &k.edges, err) < 0)
        return -1;
    k.state = fe_layout_take(w, in->box_count, sizeof *k.state, err);
    k.next = fe_layout_take(w, in->box_count, sizeof *k.next, err);
    k.path = fe_layout_take(w, in->box_count, sizeof *k.path, err);
    k.turned = fe_layout_take(w, in->edge_count, sizeof *k.turned, err);
    w->arcs = fe_layout_take(w, in->edge_count, sizeof *w->arcs, err);
    if (!k.state || !k.next || !k.path || !k.turned || !w->arcs)
        return -1;
    for (uint32_t b = 0; b < in->box_count; b++)
        k.next[b] = k.edges.start[b];
    for (uint32_t b = 0; b < in->box_count; b++) {
        if (k.state[b] == UNSEEN)
            walk_from(&k, b);
    }
    for (uint32_t e = 0; e < in->edge_count; e++) {
        if (in->edges[e].from != in->edges[e].to)
            add_arc(w, e, k.turned[e]);
    }
    return 0;
}

/* ---- ranks ---- */

typedef struct {
    uint32_t *order;        /* boxes, each before what its arcs lead to */
    uint32_t *start, *list; /* arcs by tail */
    uint32_t *ins;          /* by box: how many arcs end at it */
} rank_order;

static int sort_boxes(fe_layout_work *w, rank_order *o, fe_error *err)
{
    uint32_t count = w->box_count, first = 0, last = 0;

    o->order = fe_layout_take(w, count, sizeof *o->order, err);
    o->ins = fe_layout_take(w, count, sizeof *o->ins, err);
    o->start = fe_layout_take(w, (size_t)count + 2, sizeof *o->start, err);
    o->list = fe_layout_take(w, w->arc_count, sizeof *o->list, err);
    uint32_t *waits = fe_layout_take(w, count, sizeof *waits, err);
    if (!o->order || !o->ins || !o->start || !o->list || !waits)
        return -1;
    for (uint32_t i = 0; i < w->arc_count; i++) {
        o->start[w->arcs[i].tail + 2]++;
        o->ins[w->arcs[i].head]++;
    }
    for (uint32_t b = 0; b < count; b++)
        o->start[b + 2] += o->start[b + 1];
    for (uint32_t i = 0; i < w->arc_count; i++)
        o->list[o->start[w->arcs[i].tail + 1]++] = i;
    for (uint32_t b = 0; b < count; b++) {
        waits[b] = o->ins[b];
        if (!waits[b])
            o->order[last++] = b;
    }
    for (; first < last; first++) {
        for (uint32_t i = o->start[o->order[first]]; i < o->start[o->order[first] + 1]; i++) {
            uint32_t head = w->arcs[o->list[i]].head;
            if (--waits[head] == 0)
                o->order[last++] = head;
        }
    }
    assert(last == count);
    return 0;
}

/* As high as what leads to it allows. */
static void rank_by_longest_path(fe_layout_work *w, const rank_order *o)
{
    bool has_first = false;

    for (uint32_t b = 0; b < w->box_count; b++)
        has_first |= w->in->boxes[b].rank == FE_LAYOUT_FIRST;
    for (uint32_t b = 0; b < w->box_count; b++)
        w->rank[b] = has_first && w->in->boxes[b].rank != FE_LAYOUT_FIRST;
    for (uint32_t at = 0; at < w->box_count; at++) {
        uint32_t box = o->order[at];
        for (uint32_t i = o->start[box]; i < o->start[box + 1]; i++) {
            uint32_t head = w->arcs[o->list[i]].head;
            if (w->rank[head] <= w->rank[box])
                w->rank[head] = w->rank[box] + 1;
        }
    }
}

static uint32_t lowest_allowed(const fe_layout_work *w, const rank_order *o, uint32_t box)
{
    uint32_t lowest = UINT32_MAX;

    for (uint32_t i = o->start[box]; i < o->start[box + 1]; i++) {
        uint32_t above = w->rank[w->arcs[o->list[i]].head] - 1;
        lowest = above < lowest ? above : lowest;
    }
    return lowest;
}

/* A box with more arcs out than in comes down to what it leads to: that makes more arcs shorter than longer. */
static void pull_down(fe_layout_work *w, const rank_order *o)
{
    for (uint32_t at = w->box_count; at-- > 0;) {
        uint32_t box = o->order[at], outs = o->start[box + 1] - o->start[box];
        if (outs > o->ins[box] && w->in->boxes[box].rank == FE_LAYOUT_ANY)
            w->rank[box] = lowest_allowed(w, o, box);
    }
}

static void send_last(fe_layout_work *w)
{
    uint32_t most = 0;
    bool has_last = false, shares = false;

    for (uint32_t b = 0; b < w->box_count; b++) {
        most = w->rank[b] > most ? w->rank[b] : most;
        has_last |= w->in->boxes[b].rank == FE_LAYOUT_LAST;
    }
    for (uint32_t b = 0; b < w->box_count; b++)
        shares |= w->rank[b] == most && w->in->boxes[b].rank != FE_LAYOUT_LAST;
    most += has_last && shares;
    for (uint32_t b = 0; b < w->box_count; b++) {
        if (w->in->boxes[b].rank == FE_LAYOUT_LAST)
            w->rank[b] = most;
    }
}

/* Leave out ranks that hold no box. */
static int close_ranks(fe_layout_work *w, fe_error *err)
{
    uint32_t most = 0, used = 0;

    for (uint32_t b = 0; b < w->box_count; b++)
        most = w->rank[b] > most ? w->rank[b] : most;
    uint32_t *names = fe_layout_take(w, (size_t)most + 1, sizeof *names, err);
    if (!names)
        return -1;
    for (uint32_t b = 0; b < w->box_count; b++)
        names[w->rank[b]] = 1;
    for (uint32_t r = 0; r <= most; r++) {
        if (names[r])
            names[r] = used++;
    }
    for (uint32_t b = 0; b < w->box_count; b++)
        w->rank[b] = names[w->rank[b]];
    w->rank_count = used;
    return 0;
}

int fe_layout_make_ranks(fe_layout_work *w, fe_error *err)
{
    rank_order o;

    w->rank = fe_layout_take(w, w->box_count, sizeof *w->rank, err);
    if (!w->rank || sort_boxes(w, &o, err) < 0)
        return -1;
    rank_by_longest_path(w, &o);
    pull_down(w, &o);
    send_last(w);
    return close_ranks(w, err);
}
