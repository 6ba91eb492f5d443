/* layout_place.c - the third step of a layout: vertices get their places from left to right.
 *
 * After Brandes and Koepf ("Fast and simple horizontal coordinate assignment", 2001): every vertex is aligned with the
 * middle one of its neighbours in the next rank, where alignments don't cross, and what is aligned moves as one block. That
 * is done four times, to each side from above and from below; a vertex gets the mean of the two middle results. Here the
 * points at which edges meet boxes are what is aligned, and blocks are packed by longest paths.
 */
#include "layout_internal.h"

#include <float.h>

/* One of the four results. In one that packs to the right everything is mirrored, and mirrored back at the end. */
typedef struct {
    fe_layout_work *w;
    bool from_below, to_right;
    uint32_t *root; /* by vertex: the first of its block */
    double *shift;  /* by vertex: from the place of its block */
    double *x;      /* by vertex; by root until all blocks have theirs */
} alignment;

/* Constraints between blocks: right stands at least `distance` after left. */
typedef struct {
    uint32_t left, right;
    double distance;
} constraint;

typedef struct {
    constraint *list;
    uint32_t *by_left, *start; /* indexes into list: by_left[start[b] .. start[b + 1]) */
    uint32_t *waits, *order;   /* by block: constraints to its left; blocks from left to right */
    uint32_t count;
} packing;

double fe_layout_distance(const fe_layout_work *w, uint32_t left, uint32_t right)
{
    const fe_layout_gaps *gaps = &w->in->gaps;
    bool beside_dummy = fe_layout_is_dummy(w, left) || fe_layout_is_dummy(w, right);

    return (w->width[left] + w->width[right]) / 2 + (beside_dummy ? gaps->edge_gap : gaps->box_gap);
}

/* ---- segments that lie inside of long edges ---- */

static bool is_inner(const fe_layout_work *w, const fe_layout_segment *s)
{
    return fe_layout_is_dummy(w, s->upper) && fe_layout_is_dummy(w, s->lower);
}

/* The place in the rank above of the dummy that a dummy goes on from; FE_NONE_ID: it is no such dummy. */
static uint32_t inner_place(const fe_layout_work *w, uint32_t v)
{
    if (!fe_layout_is_dummy(w, v) || w->up_start[v] == w->up_start[v + 1])
        return FE_NONE_ID;
    const fe_layout_segment *s = &w->segments[w->up[w->up_start[v]]];
    return is_inner(w, s) ? w->place[s->upper] : FE_NONE_ID;
}

static void mark_crossed_between(fe_layout_work *w, uint32_t rank)
{
    uint32_t first = w->row_start[rank + 1], end = w->row_start[rank + 2], done = first;
    uint32_t low = 0, above = w->row_start[rank + 1] - w->row_start[rank];

    for (uint32_t i = first; i < end; i++) {
        uint32_t high = inner_place(w, w->row[i]);
        if (high == FE_NONE_ID && i + 1 < end)
            continue;
        high = high == FE_NONE_ID ? above - 1 : high;
        for (; done <= i; done++) {
            uint32_t v = w->row[done];
            for (uint32_t j = w->up_start[v]; j < w->up_start[v + 1]; j++) {
                fe_layout_segment *s = &w->segments[w->up[j]];
                s->yields = !is_inner(w, s) && (w->place[s->upper] < low || w->place[s->upper] > high);
            }
        }
        low = high;
    }
}

/* A dummy with a dummy below it is aligned with that, and not with a box at the end of a branch. */
static void mark_branches(fe_layout_work *w)
{
    for (uint32_t v = w->box_count; v < w->count; v++) {
        bool goes_on = false;
        for (uint32_t j = w->down_start[v]; j < w->down_start[v + 1]; j++)
            goes_on |= is_inner(w, &w->segments[w->down[j]]);
        for (uint32_t j = w->down_start[v]; goes_on && j < w->down_start[v + 1]; j++) {
            fe_layout_segment *s = &w->segments[w->down[j]];
            s->yields |= !is_inner(w, s);
        }
    }
}

/* Whether nothing leads to a vertex below the first rank, and it leads to one other only: as a weight that is unpacked for
 * the one that uses it. */
static bool is_aside(const fe_layout_work *w, uint32_t v)
{
    return w->rank[v] && w->up_start[v] == w->up_start[v + 1] && w->down_start[v] + 1 == w->down_start[v + 1];
}

/* Whether a segment ends where one does that comes from further above. */
static bool joins_line(const fe_layout_work *w, const fe_layout_segment *s)
{
    for (uint32_t j = w->up_start[s->lower]; j < w->up_start[s->lower + 1]; j++) {
        const fe_layout_segment *other = &w->segments[w->up[j]];
        if (other->lower_x == s->lower_x && !is_aside(w, other->upper))
            return true;
    }
    return false;
}

/* What only stands aside does not bend the line that it comes to. */
static void mark_asides(fe_layout_work *w)
{
    for (uint32_t v = 0; v < w->count; v++) {
        if (is_aside(w, v)) {
            fe_layout_segment *s = &w->segments[w->down[w->down_start[v]]];
            s->yields |= joins_line(w, s);
        }
    }
}

/* ---- alignment ---- */

static uint32_t mirrored(const alignment *a, uint32_t v)
{
    const fe_layout_work *w = a->w;
    uint32_t r = w->rank[v];

    return a->to_right ? w->row_start[r + 1] - w->row_start[r] - 1 - w->place[v] : w->place[v];
}

/* Align v with what a segment leads to, if that stands behind all that were aligned before. */
static bool align(const alignment *a, uint32_t v, const fe_layout_segment *s, int64_t *last)
{
    uint32_t other = a->from_below ? s->lower : s->upper;
    double shift = a->from_below ? s->lower_x - s->upper_x : s->upper_x - s->lower_x;

    if (s->yields || *last >= (int64_t)mirrored(a, other))
        return false;
    a->root[v] = a->root[other];
    a->shift[v] = a->shift[other] + (a->to_right ? -shift : shift);
    *last = (int64_t)mirrored(a, other);
    return true;
}

static void align_vertex(const alignment *a, uint32_t v, int64_t *last)
{
    const fe_layout_work *w = a->w;
    const uint32_t *list = a->from_below ? w->down : w->up, *start = a->from_below ? w->down_start : w->up_start;
    uint32_t count = start[v + 1] - start[v];

    if (a->from_below && fe_layout_is_dummy(w, v)) {
        for (uint32_t j = start[v]; j < start[v + 1]; j++) {
            if (is_inner(w, &w->segments[list[j]])) {
                align(a, v, &w->segments[list[j]], last);
                return;
            }
        }
    }
    if (!count)
        return;
    uint32_t low = start[v] + (count - 1) / 2, high = start[v] + count / 2;
    if (!align(a, v, &w->segments[list[a->to_right ? high : low]], last) && low != high)
        align(a, v, &w->segments[list[a->to_right ? low : high]], last);
}

static void align_all(const alignment *a)
{
    const fe_layout_work *w = a->w;

    for (uint32_t v = 0; v < w->count; v++) {
        a->root[v] = v;
        a->shift[v] = 0;
    }
    for (uint32_t i = 1; i < w->rank_count; i++) {
        uint32_t r = a->from_below ? w->rank_count - 1 - i : i;
        int64_t last = -1;
        for (uint32_t k = w->row_start[r]; k < w->row_start[r + 1]; k++)
            align_vertex(a, w->row[a->to_right ? w->row_start[r] + w->row_start[r + 1] - 1 - k : k], &last);
    }
}

/* ---- packing ---- */

static void list_constraints(const alignment *a, packing *p)
{
    const fe_layout_work *w = a->w;

    p->count = 0;
    memset(p->start, 0, ((size_t)w->count + 2) * sizeof *p->start);
    memset(p->waits, 0, w->count * sizeof *p->waits);
    for (uint32_t r = 0; r < w->rank_count; r++) {
        for (uint32_t k = w->row_start[r]; k + 1 < w->row_start[r + 1]; k++) {
            uint32_t left = w->row[a->to_right ? k + 1 : k], right = w->row[a->to_right ? k : k + 1];
            double distance = fe_layout_distance(w, left, right) + a->shift[left] - a->shift[right];
            p->list[p->count++] = (constraint){a->root[left], a->root[right], distance};
        }
    }
    for (uint32_t i = 0; i < p->count; i++) {
        p->start[p->list[i].left + 2]++;
        p->waits[p->list[i].right]++;
    }
    for (uint32_t v = 0; v < w->count; v++)
        p->start[v + 2] += p->start[v + 1];
    for (uint32_t i = 0; i < p->count; i++)
        p->by_left[p->start[p->list[i].left + 1]++] = i;
}

#ifndef NDEBUG
static uint32_t count_blocks(const alignment *a)
{
    uint32_t count = 0;

    for (uint32_t v = 0; v < a->w->count; v++)
        count += a->root[v] == v;
    return count;
}
#endif

/* Each block as far to the left as it can stand, and then as far back to the right as those beside it leave room: so a block
 * stands by its neighbours on both sides. */
static void pack(const alignment *a, packing *p)
{
    const fe_layout_work *w = a->w;
    uint32_t first = 0, last = 0;

    list_constraints(a, p);
    for (uint32_t v = 0; v < w->count; v++) {
        a->x[v] = 0;
        if (a->root[v] == v && !p->waits[v])
            p->order[last++] = v;
    }
    for (; first < last; first++) {
        uint32_t block = p->order[first];
        for (uint32_t i = p->start[block]; i < p->start[block + 1]; i++) {
            const constraint *c = &p->list[p->by_left[i]];
            if (a->x[c->right] < a->x[block] + c->distance)
                a->x[c->right] = a->x[block] + c->distance;
            if (--p->waits[c->right] == 0)
                p->order[last++] = c->right;
        }
    }
    assert(last == count_blocks(a));
    while (first-- > 0) {
        uint32_t block = p->order[first];
        double most = DBL_MAX;
        for (uint32_t i = p->start[block]; i < p->start[block + 1]; i++) {
            const constraint *c = &p->list[p->by_left[i]];
            most = a->x[c->right] - c->distance < most ? a->x[c->right] - c->distance : most;
        }
        if (most < DBL_MAX && most > a->x[block])
            a->x[block] = most;
    }
    for (uint32_t v = 0; v < w->count; v++) {
        if (a->root[v] != v)
            a->x[v] = a->x[a->root[v]] + a->shift[v];
    }
    for (uint32_t v = 0; a->to_right && v < w->count; v++)
        a->x[v] = -a->x[v];
}

/* ---- the mean of four ---- */

static void span_of(const fe_layout_work *w, const double *x, double *left, double *right)
{
    *left = DBL_MAX;
    *right = -DBL_MAX;
    for (uint32_t v = 0; v < w->count; v++) {
        *left = x[v] - w->width[v] / 2 < *left ? x[v] - w->width[v] / 2 : *left;
        *right = x[v] + w->width[v] / 2 > *right ? x[v] + w->width[v] / 2 : *right;
    }
}

/* Put the four side by side: those packed to the left by their left ends, the others by their right ones, as the narrowest. */
static void bring_together(const fe_layout_work *w, alignment *four)
{
    double left[4], right[4];
    uint32_t best = 0;

    for (uint32_t i = 0; i < 4; i++) {
        span_of(w, four[i].x, &left[i], &right[i]);
        best = right[i] - left[i] < right[best] - left[best] ? i : best;
    }
    for (uint32_t i = 0; i < 4; i++) {
        double by = four[i].to_right ? right[best] - right[i] : left[best] - left[i];
        for (uint32_t v = 0; v < w->count; v++)
            four[i].x[v] += by;
    }
}

static double middle_of_four(const alignment *four, uint32_t v)
{
    double low = four[0].x[v], high = low, sum = 0;

    for (uint32_t i = 0; i < 4; i++) {
        double x = four[i].x[v];
        low = x < low ? x : low;
        high = x > high ? x : high;
        sum += x;
    }
    return (sum - low - high) / 2;
}

/* The rounding of sums must not let boxes overlap. */
static void keep_apart(fe_layout_work *w)
{
    for (uint32_t r = 0; r < w->rank_count; r++) {
        for (uint32_t k = w->row_start[r] + 1; k < w->row_start[r + 1]; k++) {
            double least = w->x[w->row[k - 1]] + fe_layout_distance(w, w->row[k - 1], w->row[k]);
            if (w->x[w->row[k]] < least)
                w->x[w->row[k]] = least;
        }
    }
}

/* Bring a vertex to the only one it is connected to, as far as those beside it leave room. */
static void settle_leaf(fe_layout_work *w, uint32_t k, uint32_t first, uint32_t end)
{
    uint32_t v = w->row[k], ups = w->up_start[v + 1] - w->up_start[v];
    const fe_layout_segment *s = &w->segments[ups ? w->up[w->up_start[v]] : w->down[w->down_start[v]]];
    double x = ups ? w->x[s->upper] + s->upper_x - s->lower_x : w->x[s->lower] + s->lower_x - s->upper_x;

    if (k > first) {
        double least = w->x[w->row[k - 1]] + fe_layout_distance(w, w->row[k - 1], v);
        x = x < least ? least : x;
    }
    if (k + 1 < end) {
        double most = w->x[w->row[k + 1]] - fe_layout_distance(w, v, w->row[k + 1]);
        x = x > most ? most : x;
    }
    w->x[v] = x;
}

/* Several edges that meet one box side by side can't be in its block all; but what has no other edge may follow them. */
static void settle_leaves(fe_layout_work *w)
{
    for (uint32_t r = 0; r < w->rank_count; r++) {
        uint32_t first = w->row_start[r], end = w->row_start[r + 1];
        for (uint32_t i = 0; i < 2 * (end - first); i++) {
            uint32_t k = i < end - first ? first + i : end - 1 - (i - (end - first)), v = w->row[k];
            if (w->up_start[v + 1] - w->up_start[v] + w->down_start[v + 1] - w->down_start[v] == 1)
                settle_leaf(w, k, first, end);
        }
    }
}

static int make_room(fe_layout_work *w, alignment *four, packing *p, fe_error *err)
{
    alignment *a = &four[0];

    a->root = fe_layout_take(w, w->count, sizeof *a->root, err);
    a->shift = fe_layout_take(w, w->count, sizeof *a->shift, err);
    p->list = fe_layout_take(w, w->count, sizeof *p->list, err);
    p->by_left = fe_layout_take(w, w->count, sizeof *p->by_left, err);
    p->start = fe_layout_take(w, (size_t)w->count + 2, sizeof *p->start, err);
    p->waits = fe_layout_take(w, w->count, sizeof *p->waits, err);
    p->order = fe_layout_take(w, w->count, sizeof *p->order, err);
    if (!a->root || !a->shift || !p->list || !p->by_left || !p->start || !p->waits || !p->order)
        return -1;
    for (uint32_t i = 0; i < 4; i++) {
        four[i] = (alignment){w, i & 1, i & 2, a->root, a->shift, NULL};
        if (!(four[i].x = fe_layout_take(w, w->count, sizeof *four[i].x, err)))
            return -1;
    }
    return 0;
}

int fe_layout_make_places(fe_layout_work *w, fe_error *err)
{
    alignment four[4];
    packing p;

    if (make_room(w, four, &p, err) < 0)
        return -1;
    for (uint32_t r = 0; r + 1 < w->rank_count; r++)
        mark_crossed_between(w, r);
    mark_branches(w);
    mark_asides(w);
    for (uint32_t i = 0; i < 4; i++) {
        align_all(&four[i]);
        pack(&four[i], &p);
    }
    bring_together(w, four);
    for (uint32_t v = 0; v < w->count; v++)
        w->x[v] = middle_of_four(four, v);
    keep_apart(w);
    settle_leaves(w);
    return 0;
}
