/* layout.c - a layout from its steps: ranks, dummies, orders, places; and then the points of the edges. */
#include "layout.h"

#include "layout_internal.h"

#include <stdlib.h>

#define MOST_DUMMIES 400000u /* an edge that comes later is drawn straight */
#define MOST_POINTS 4000000u
#define LARGEST 1e9

void *fe_layout_take(fe_layout_work *w, size_t count, size_t size, fe_error *err)
{
    void *block = count > SIZE_MAX / 2 / size ? NULL : fe_arena_take(&w->arena, count * size);

    if (!block) {
        fe_no_memory(err);
        return NULL;
    }
    return memset(block, 0, count * size);
}

/* ---- what goes in ---- */

static bool is_number(double x, double least)
{
    return x >= least && x < LARGEST; /* false of a NaN */
}

static int check_input(const fe_layout_input *in, fe_error *err)
{
    const fe_layout_gaps *gaps = &in->gaps;

    if (in->box_count > UINT32_MAX / 16 || in->edge_count > UINT32_MAX / 16)
        return fe_fail(err, FE_TOO_LARGE, 0, "a layout is of at most %u boxes and edges", UINT32_MAX / 16);
    if (!is_number(gaps->box_gap, 0) || !is_number(gaps->edge_gap, 0) || !is_number(gaps->rank_gap, 0))
        return fe_fail(err, FE_BAD_VALUE, 0, "a gap is a number from 0 to 1e9");
    for (uint32_t b = 0; b < in->box_count; b++) {
        if (!is_number(in->boxes[b].width, 0) || !is_number(in->boxes[b].height, 0))
            return fe_fail(err, FE_BAD_VALUE, 0, "the width and height of box %u are numbers from 0 to 1e9", b);
        if (in->boxes[b].rank > FE_LAYOUT_LAST)
            return fe_fail(err, FE_BAD_VALUE, 0, "the rank of box %u is 0, 1 or 2", b);
    }
    for (uint32_t e = 0; e < in->edge_count; e++) {
        const fe_layout_edge *edge = &in->edges[e];
        if (edge->from >= in->box_count || edge->to >= in->box_count)
            return fe_fail(err, FE_BAD_VALUE, 0, "edge %u is between boxes that are not there", e);
        if (!is_number(edge->from_x, -LARGEST) || !is_number(edge->to_x, -LARGEST))
            return fe_fail(err, FE_BAD_VALUE, 0, "edge %u meets its boxes at no number", e);
        if (in->boxes[edge->to].rank == FE_LAYOUT_FIRST || in->boxes[edge->from].rank == FE_LAYOUT_LAST)
            return fe_fail(err, FE_BAD_VALUE, 0, "edge %u goes into the first rank or out of the last", e);
    }
    return 0;
}

/* ---- dummies and segments ---- */

static int compare_doubles(double a, double b)
{
    return (a > b) - (a < b);
}

typedef struct {
    const fe_layout_arc *arc;
    uint32_t rank; /* of its head */
    uint32_t index;
} arc_order;

/* Arcs that leave at one point stand together, those that end higher first. */
static int compare_arcs(const void *a, const void *b)
{
    const arc_order *x = a, *y = b;
    int by_point = compare_doubles(x->arc->tail_x, y->arc->tail_x);

    if (x->arc->tail != y->arc->tail)
        return x->arc->tail < y->arc->tail ? -1 : 1;
    if (by_point)
        return by_point;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static bool leave_together(const fe_layout_arc *a, const fe_layout_arc *b)
{
    return a->tail == b->tail && compare_doubles(a->tail_x, b->tail_x) == 0;
}

/* How many dummies each arc of a group needs that ends so far down; sorted arcs need ever more. */
static uint32_t dummies_of(const fe_layout_work *w, const fe_layout_arc *arc)
{
    return w->rank[arc->head] - w->rank[arc->tail] - 1;
}

/* Give arcs their dummies, and count dummies and segments. */
static void give_dummies(fe_layout_work *w, const arc_order *sorted)
{
    uint32_t given = 0;
    uint64_t passed = 0;

    for (uint32_t start = 0, end; start < w->arc_count; start = end) {
        uint32_t longest = 0;
        for (end = start; end < w->arc_count && leave_together(sorted[start].arc, sorted[end].arc); end++) {
            fe_layout_arc *arc = &w->arcs[sorted[end].index];
            uint32_t need = dummies_of(w, arc);
            arc->straight = need && (given + (uint64_t)need > MOST_DUMMIES || passed + need > MOST_POINTS);
            if (arc->straight)
                continue;
            passed += need;
            arc->dummy = w->box_count + given;
            longest = need > longest ? need : longest;
            w->segment_count++; /* its own last one */
        }
        given += longest;
        w->segment_count += longest;
    }
    w->count = w->box_count + given;
}

static void add_segment(fe_layout_work *w, uint32_t upper, uint32_t lower, double upper_x, double lower_x)
{
    w->segments[w->segment_count++] = (fe_layout_segment){upper, lower, upper_x, lower_x, false};
}

/* The segments of arcs that leave together: one down each dummy, and from the last it passes each arc's own. */
static void add_segments(fe_layout_work *w, const arc_order *sorted, uint32_t start, uint32_t end)
{
    uint32_t made = 0;

    for (uint32_t i = start; i < end; i++) {
        const fe_layout_arc *arc = sorted[i].arc;
        uint32_t need = dummies_of(w, arc);
        if (arc->straight)
            continue;
        for (; made < need; made++) {
            uint32_t dummy = arc->dummy + made;
            w->rank[dummy] = w->rank[arc->tail] + 1 + made;
            add_segment(w, made ? dummy - 1 : arc->tail, dummy, made ? 0 : arc->tail_x, 0);
        }
        add_segment(w, need ? arc->dummy + need - 1 : arc->tail, arc->head, need ? 0 : arc->tail_x, arc->head_x);
    }
}

static int list_segments(fe_layout_work *w, fe_error *err)
{
    w->up = fe_layout_take(w, w->segment_count, sizeof *w->up, err);
    w->down = fe_layout_take(w, w->segment_count, sizeof *w->down, err);
    w->up_start = fe_layout_take(w, (size_t)w->count + 2, sizeof *w->up_start, err);
    w->down_start = fe_layout_take(w, (size_t)w->count + 2, sizeof *w->down_start, err);
    if (!w->up || !w->down || !w->up_start || !w->down_start)
        return -1;
    for (uint32_t i = 0; i < w->segment_count; i++) {
        w->down_start[w->segments[i].upper + 2]++;
        w->up_start[w->segments[i].lower + 2]++;
    }
    for (uint32_t v = 0; v < w->count; v++) {
        w->down_start[v + 2] += w->down_start[v + 1];
        w->up_start[v + 2] += w->up_start[v + 1];
    }
    for (uint32_t i = 0; i < w->segment_count; i++) {
        w->down[w->down_start[w->segments[i].upper + 1]++] = i;
        w->up[w->up_start[w->segments[i].lower + 1]++] = i;
    }
    return 0;
}

static int make_segments(fe_layout_work *w, fe_error *err)
{
    arc_order *sorted = fe_layout_take(w, w->arc_count, sizeof *sorted, err);
    uint32_t *rank, *box_rank = w->rank;

    if (!sorted)
        return -1;
    for (uint32_t i = 0; i < w->arc_count; i++)
        sorted[i] = (arc_order){&w->arcs[i], w->rank[w->arcs[i].head], i};
    if (w->arc_count)
        qsort(sorted, w->arc_count, sizeof *sorted, compare_arcs);
    give_dummies(w, sorted);
    rank = fe_layout_take(w, w->count, sizeof *rank, err);
    w->segments = fe_layout_take(w, w->segment_count, sizeof *w->segments, err);
    w->width = fe_layout_take(w, w->count, sizeof *w->width, err);
    w->x = fe_layout_take(w, w->count, sizeof *w->x, err);
    if (!rank || !w->segments || !w->width || !w->x)
        return -1;
    memcpy(rank, box_rank, w->box_count * sizeof *rank);
    w->rank = rank;
    for (uint32_t b = 0; b < w->box_count; b++)
        w->width[b] = w->in->boxes[b].width;
    w->segment_count = 0;
    for (uint32_t start = 0, end; start < w->arc_count; start = end) {
        for (end = start; end < w->arc_count && leave_together(sorted[start].arc, sorted[end].arc);)
            end++;
        add_segments(w, sorted, start, end);
    }
    return list_segments(w, err);
}

/* ---- what comes out ---- */

typedef struct {
    double *top, *bottom; /* by rank */
} rank_bands;

/* Ranks are further apart where edges go far to the side. */
static double gap_below(const fe_layout_work *w, uint32_t rank)
{
    double farthest = 0, gap = w->in->gaps.rank_gap, more;

    for (uint32_t i = w->row_start[rank]; i < w->row_start[rank + 1]; i++) {
        for (uint32_t j = w->down_start[w->row[i]]; j < w->down_start[w->row[i] + 1]; j++) {
            const fe_layout_segment *s = &w->segments[w->down[j]];
            double by = w->x[s->upper] + s->upper_x - w->x[s->lower] - s->lower_x;
            by = by < 0 ? -by : by;
            farthest = by > farthest ? by : farthest;
        }
    }
    more = farthest / 16;
    return gap + (more > 2 * gap ? 2 * gap : more);
}

static int make_bands(fe_layout_work *w, rank_bands *bands, fe_error *err)
{
    double y = 0;

    bands->top = fe_layout_take(w, w->rank_count, sizeof *bands->top, err);
    bands->bottom = fe_layout_take(w, w->rank_count, sizeof *bands->bottom, err);
    if (!bands->top || !bands->bottom)
        return -1;
    for (uint32_t r = 0; r < w->rank_count; r++) {
        double height = 0;
        for (uint32_t i = w->row_start[r]; i < w->row_start[r + 1]; i++) {
            uint32_t v = w->row[i];
            if (!fe_layout_is_dummy(w, v) && w->in->boxes[v].height > height)
                height = w->in->boxes[v].height;
        }
        bands->top[r] = y;
        bands->bottom[r] = y + height;
        y += height + gap_below(w, r);
    }
    return 0;
}

/* How far down in its rank a box stands: by what it is connected to, and in the middle when that is above and below. */
static double part_above(const fe_layout_work *w, uint32_t box)
{
    bool up = w->up_start[box] != w->up_start[box + 1], down = w->down_start[box] != w->down_start[box + 1];

    return up == down ? 0.5 : up ? 0 : 1;
}

static void place_boxes(const fe_layout_work *w, const rank_bands *bands, fe_layout *out)
{
    double left = 0;

    for (uint32_t v = 0; v < w->count; v++) {
        double at = w->x[v] - w->width[v] / 2;
        left = v == 0 || at < left ? at : left;
    }
    for (uint32_t v = 0; v < w->count; v++) {
        w->x[v] -= left;
        double right = w->x[v] + w->width[v] / 2;
        out->width = right > out->width ? right : out->width;
    }
    for (uint32_t b = 0; b < w->box_count; b++) {
        const fe_layout_box *box = &w->in->boxes[b];
        double top = bands->top[w->rank[b]], slack = bands->bottom[w->rank[b]] - top - box->height;
        double part = box->rank == FE_LAYOUT_FIRST ? 0 : box->rank == FE_LAYOUT_LAST ? 1 : part_above(w, b);
        out->corners[b] = (fe_layout_point){w->x[b] - box->width / 2, top + part * slack};
        out->ranks[b] = w->rank[b];
    }
    out->height = w->rank_count ? bands->bottom[w->rank_count - 1] : 0;
}

/* Add a point to the edge that began at `start`; the middle one of three above each other is left out. */
static int add_point(fe_layout *out, uint32_t start, double x, double y, fe_error *err)
{
    uint32_t count = out->point_count;
    const fe_layout_point *p = out->points + count;

    if (count > start && p[-1].x == x && p[-1].y == y)
        return 0;
    if (count > start + 1 && p[-1].x == x && p[-2].x == x)
        out->point_count = --count;
    if (fe_grow(out->allocator, &out->points, &out->point_capacity, (size_t)count + 1, sizeof *out->points, err) < 0)
        return -1;
    out->points[count] = (fe_layout_point){x, y};
    out->point_count++;
    return 0;
}

static int add_points(const fe_layout_work *w, const rank_bands *bands, const fe_layout_arc *arc, fe_layout *out,
                      fe_error *err)
{
    uint32_t start = out->point_count, rank = w->rank[arc->tail], need = arc->straight ? 0 : dummies_of(w, arc);
    double x = w->x[arc->tail] + arc->tail_x;

    if (add_point(out, start, x, out->corners[arc->tail].y + w->in->boxes[arc->tail].height, err) < 0 ||
        add_point(out, start, x, bands->bottom[rank], err) < 0)
        return -1;
    for (uint32_t i = 0; i < need; i++) {
        x = w->x[arc->dummy + i];
        if (add_point(out, start, x, bands->top[rank + 1 + i], err) < 0 ||
            add_point(out, start, x, bands->bottom[rank + 1 + i], err) < 0)
            return -1;
    }
    x = w->x[arc->head] + arc->head_x;
    if (add_point(out, start, x, bands->top[w->rank[arc->head]], err) < 0)
        return -1;
    return add_point(out, start, x, out->corners[arc->head].y, err);
}

static void turn_points(fe_layout_point *first, fe_layout_point *last)
{
    while (first < last) {
        fe_layout_point p = *first;
        *first++ = *last;
        *last-- = p;
    }
}

static int route_edges(const fe_layout_work *w, const rank_bands *bands, fe_layout *out, fe_error *err)
{
    uint32_t next = 0;

    for (uint32_t e = 0; e < w->in->edge_count; e++) {
        uint32_t start = out->point_count;
        if (next < w->arc_count && w->arcs[next].edge == e) {
            const fe_layout_arc *arc = &w->arcs[next++];
            if (add_points(w, bands, arc, out, err) < 0)
                return -1;
            out->turned[e] = arc->tail != w->in->edges[e].from;
            if (out->turned[e])
                turn_points(out->points + start, out->points + out->point_count - 1);
        }
        out->ends[e] = out->point_count;
    }
    return 0;
}

static int make_output(fe_layout *out, const fe_layout_input *in, fe_error *err)
{
    const fe_allocator *a = out->allocator;

    out->corners = fe_resize(a, NULL, ((size_t)in->box_count + 1) * sizeof *out->corners);
    out->ranks = fe_resize(a, NULL, ((size_t)in->box_count + 1) * sizeof *out->ranks);
    out->ends = fe_resize(a, NULL, ((size_t)in->edge_count + 1) * sizeof *out->ends);
    out->turned = fe_resize(a, NULL, ((size_t)in->edge_count + 1) * sizeof *out->turned);
    if (!out->corners || !out->ranks || !out->ends || !out->turned)
        return fe_no_memory(err);
    memset(out->turned, 0, ((size_t)in->edge_count + 1) * sizeof *out->turned);
    return 0;
}

static int run_steps(fe_layout_work *w, fe_layout *out, fe_error *err)
{
    rank_bands bands;

    if (make_output(out, w->in, err) < 0 || fe_layout_make_arcs(w, err) < 0 || fe_layout_make_ranks(w, err) < 0 ||
        make_segments(w, err) < 0 || fe_layout_make_order(w, err) < 0 || fe_layout_make_places(w, err) < 0 ||
        make_bands(w, &bands, err) < 0)
        return -1;
    place_boxes(w, &bands, out);
    out->rank_count = w->rank_count;
    return route_edges(w, &bands, out, err);
}

int fe_layout_make(const fe_layout_input *in, const fe_allocator *a, fe_layout *out, fe_error *err)
{
    fe_layout_work w = {.in = in, .box_count = in->box_count, .count = in->box_count};
    int result;

    *out = (fe_layout){.allocator = a};
    if (check_input(in, err) < 0)
        return -1;
    if (!in->box_count)
        return 0;
    fe_arena_init(&w.arena, a);
    result = run_steps(&w, out, err);
    fe_arena_clear(&w.arena);
    if (result < 0)
        fe_layout_clear(out);
    return result;
}

void fe_layout_clear(fe_layout *l)
{
    const fe_allocator *a = l->allocator;

    fe_resize(a, l->corners, 0);
    fe_resize(a, l->ranks, 0);
    fe_resize(a, l->points, 0);
    fe_resize(a, l->ends, 0);
    fe_resize(a, l->turned, 0);
    *l = (fe_layout){.allocator = a};
}
