/* layout_order.c - the second step of a layout: vertices get their order in each rank, with few crossings.
 *
 * Sweeps go down and up, and sort each rank by where the neighbours in the rank before stand; in small graphs neighbours
 * in a rank are exchanged while that helps. The best order that was seen is kept.
 */
#include "layout_internal.h"

#include <stdlib.h>

#define SMALL 600      /* vertices, up to which neighbours are exchanged; and four times as many segments */
#define MOST_SWEEPS 24 /* in small graphs */
#define WORK 2000000   /* vertices and segments times sweeps, in large ones */
#define MOST_ROUNDS 8  /* of exchanges after one sweep */
#define PATIENCE 4     /* sweeps without a better order */

/* ---- positions ---- */

static uint32_t other_end(const fe_layout_segment *s, bool above)
{
    return above ? s->upper : s->lower;
}

/* Where in its rank a segment ends: the place of the vertex, and within it that of the point. */
static double end_position(const fe_layout_work *w, const fe_layout_segment *s, bool above)
{
    uint32_t v = other_end(s, above);
    double x = above ? s->upper_x : s->lower_x, half = w->width[v] / 2;

    return w->place[v] + (half > 0 ? 0.45 * (x < -half ? -1 : x > half ? 1 : x / half) : 0);
}

typedef struct {
    double position;
    uint32_t item;
} placed;

static int compare_placed(const void *a, const void *b)
{
    const placed *x = a, *y = b;

    return x->position != y->position ? (x->position < y->position ? -1 : 1)
                                      : (x->item > y->item) - (x->item < y->item);
}

/* Sort items by position, those that are equal by number. Few items are the rule. */
static void sort_placed(placed *list, uint32_t count)
{
    if (count > 16) {
        qsort(list, count, sizeof *list, compare_placed);
        return;
    }
    for (uint32_t i = 1; i < count; i++) {
        placed p = list[i];
        uint32_t at = i;
        for (; at && compare_placed(&list[at - 1], &p) > 0; at--)
            list[at] = list[at - 1];
        list[at] = p;
    }
}

/* ---- crossings ---- */

typedef struct {
    fe_layout_work *w;
    placed *list, *spare; /* room for all segments, and for all vertices */
    uint32_t *best;       /* the row of the best order */
    uint64_t crossings;
} ordering;

/* Pairs that stand the wrong way round, by a merge sort of the positions. */
static uint64_t count_inversions(placed *list, placed *spare, uint32_t count)
{
    uint64_t found = 0;

    for (uint32_t width = 1; width < count; width *= 2) {
        for (uint32_t start = 0; start < count; start += 2 * width) {
            uint32_t middle = start + width < count ? start + width : count,
                     end = middle + width < count ? middle + width : count, a = start, b = middle, at = start;
            while (a < middle || b < end) {
                bool left = b == end || (a < middle && list[a].position <= list[b].position);
                if (!left)
                    found += middle - a;
                spare[at++] = left ? list[a++] : list[b++];
            }
        }
        memcpy(list, spare, count * sizeof *list);
    }
    return found;
}

static uint64_t crossings_below(const ordering *o, uint32_t rank)
{
    const fe_layout_work *w = o->w;
    uint32_t count = 0;

    for (uint32_t i = w->row_start[rank]; i < w->row_start[rank + 1]; i++) {
        uint32_t v = w->row[i], first = count;
        for (uint32_t j = w->down_start[v]; j < w->down_start[v + 1]; j++)
            o->list[count++] = (placed){end_position(w, &w->segments[w->down[j]], true), w->down[j]};
        sort_placed(o->list + first, count - first);
        /* Those that leave at one point do not cross, so they are sorted by where they end. */
        for (uint32_t a = first, b; a < count; a = b) {
            double at = o->list[a].position;
            for (b = a; b < count && o->list[b].position == at; b++)
                o->list[b].position = end_position(w, &w->segments[o->list[b].item], false);
            sort_placed(o->list + a, b - a);
        }
    }
    return count_inversions(o->list, o->spare, count);
}

static uint64_t all_crossings(const ordering *o)
{
    uint64_t sum = 0;

    for (uint32_t r = 0; r + 1 < o->w->rank_count; r++)
        sum += crossings_below(o, r);
    return sum;
}

/* ---- sweeps ---- */

static void set_row(fe_layout_work *w, uint32_t rank)
{
    for (uint32_t i = w->row_start[rank]; i < w->row_start[rank + 1]; i++)
        w->place[w->row[i]] = i - w->row_start[rank];
}

/* Sort a rank by the mean position of neighbours above, or below; who has none stays about where it is. */
static void sort_rank(const ordering *o, uint32_t rank, bool above)
{
    fe_layout_work *w = o->w;
    const uint32_t *list = above ? w->up : w->down, *start = above ? w->up_start : w->down_start;
    uint32_t first = w->row_start[rank], count = w->row_start[rank + 1] - first;
    uint32_t beside = above ? rank - 1 : rank + 1, others = w->row_start[beside + 1] - w->row_start[beside];

    for (uint32_t i = 0; i < count; i++) {
        uint32_t v = w->row[first + i], degree = start[v + 1] - start[v];
        double sum = degree ? 0 : (double)i * others / count;
        for (uint32_t j = start[v]; j < start[v + 1]; j++)
            sum += end_position(w, &w->segments[list[j]], above);
        o->spare[i] = (placed){degree ? sum / degree : sum, i};
        o->list[i].item = v;
    }
    sort_placed(o->spare, count);
    for (uint32_t i = 0; i < count; i++)
        w->row[first + i] = o->list[o->spare[i].item].item;
    set_row(w, rank);
}

/* Crossings between the segments of two neighbours in a rank when a stands before b, on one side of the rank. */
static uint32_t pair_crossings(const fe_layout_work *w, uint32_t a, uint32_t b, bool above)
{
    const uint32_t *list = above ? w->up : w->down, *start = above ? w->up_start : w->down_start;
    uint32_t found = 0;

    for (uint32_t i = start[a]; i < start[a + 1]; i++) {
        double at = end_position(w, &w->segments[list[i]], above);
        for (uint32_t j = start[b]; j < start[b + 1]; j++)
            found += end_position(w, &w->segments[list[j]], above) < at;
    }
    return found;
}

static bool exchange_round(fe_layout_work *w)
{
    bool changed = false;

    for (uint32_t r = 0; r < w->rank_count; r++) {
        for (uint32_t i = w->row_start[r]; i + 1 < w->row_start[r + 1]; i++) {
            uint32_t a = w->row[i], b = w->row[i + 1];
            uint32_t now = pair_crossings(w, a, b, true) + pair_crossings(w, a, b, false);
            if (!now || pair_crossings(w, b, a, true) + pair_crossings(w, b, a, false) >= now)
                continue;
            w->row[i] = b;
            w->row[i + 1] = a;
            w->place[a]++;
            w->place[b]--;
            changed = true;
        }
    }
    return changed;
}

static bool keep_if_better(ordering *o)
{
    uint64_t crossings = all_crossings(o);

    if (crossings >= o->crossings)
        return false;
    o->crossings = crossings;
    memcpy(o->best, o->w->row, o->w->count * sizeof *o->best);
    return true;
}

static uint32_t sweep_limit(const fe_layout_work *w)
{
    uint64_t size = (uint64_t)w->count + w->segment_count, limit = WORK / (size ? size : 1);

    return limit < 2 ? 2 : limit > MOST_SWEEPS ? MOST_SWEEPS : (uint32_t)limit;
}

static void improve(ordering *o)
{
    fe_layout_work *w = o->w;
    uint32_t idle = 0, limit = sweep_limit(w);
    bool small = w->count <= SMALL && w->segment_count <= 4 * SMALL;

    o->crossings = UINT64_MAX;
    keep_if_better(o);
    for (uint32_t i = 0; i < limit && idle < PATIENCE && o->crossings; i++) {
        for (uint32_t r = 1; r < w->rank_count; r++)
            sort_rank(o, i % 2 ? w->rank_count - 1 - r : r, i % 2 == 0);
        for (uint32_t round = 0; small && round < MOST_ROUNDS; round++) {
            if (!exchange_round(w))
                break;
        }
        idle = keep_if_better(o) ? 0 : idle + 1;
    }
    memcpy(w->row, o->best, w->count * sizeof *w->row);
    for (uint32_t r = 0; r < w->rank_count; r++)
        set_row(w, r);
}

/* ---- the first order ---- */

typedef struct {
    fe_layout_work *w;
    uint32_t *stack, *next; /* vertices on the way; by vertex the next segment to follow */
    uint32_t *end;          /* by rank: where the next vertex goes in row */
    bool *seen;
} first_walk;

/* Depth first from above, so that what hangs together starts side by side. */
static void order_from(const first_walk *k, uint32_t start)
{
    fe_layout_work *w = k->w;
    uint32_t depth = 0, fresh = start;

    for (;;) {
        if (fresh != FE_NONE_ID) {
            k->seen[fresh] = true;
            w->row[k->end[w->rank[fresh]]++] = fresh;
            k->stack[depth++] = fresh;
        }
        if (!depth)
            return;
        uint32_t v = k->stack[depth - 1];
        fresh = FE_NONE_ID;
        if (k->next[v] == w->down_start[v + 1])
            depth--;
        else {
            uint32_t lower = w->segments[w->down[k->next[v]++]].lower;
            fresh = k->seen[lower] ? FE_NONE_ID : lower;
        }
    }
}

static int order_first(fe_layout_work *w, fe_error *err)
{
    first_walk k = {.w = w};

    k.stack = fe_layout_take(w, w->count, sizeof *k.stack, err);
    k.next = fe_layout_take(w, w->count, sizeof *k.next, err);
    k.end = fe_layout_take(w, w->rank_count, sizeof *k.end, err);
    k.seen = fe_layout_take(w, w->count, sizeof *k.seen, err);
    if (!k.stack || !k.next || !k.end || !k.seen)
        return -1;
    memcpy(k.next, w->down_start, w->count * sizeof *k.next);
    memcpy(k.end, w->row_start, w->rank_count * sizeof *k.end);
    for (uint32_t v = 0; v < w->count; v++) {
        if (!k.seen[v] && w->up_start[v] == w->up_start[v + 1])
            order_from(&k, v);
    }
    for (uint32_t r = 0; r < w->rank_count; r++)
        set_row(w, r);
    return 0;
}

/* ---- all of it ---- */

static int list_rows(fe_layout_work *w, fe_error *err)
{
    w->row = fe_layout_take(w, w->count, sizeof *w->row, err);
    w->place = fe_layout_take(w, w->count, sizeof *w->place, err);
    w->row_start = fe_layout_take(w, (size_t)w->rank_count + 1, sizeof *w->row_start, err);
    if (!w->row || !w->place || !w->row_start)
        return -1;
    for (uint32_t v = 0; v < w->count; v++)
        w->row_start[w->rank[v] + 1]++;
    for (uint32_t r = 0; r < w->rank_count; r++)
        w->row_start[r + 1] += w->row_start[r];
    return 0;
}

/* Sort the segments of every vertex, to one side, by what is at their other ends. */
static void sort_segments(const ordering *o, bool above)
{
    const fe_layout_work *w = o->w;
    uint32_t *list = above ? w->up : w->down, *start = above ? w->up_start : w->down_start;

    for (uint32_t v = 0; v < w->count; v++) {
        uint32_t count = start[v + 1] - start[v];
        for (uint32_t i = 0; i < count; i++)
            o->list[i] = (placed){end_position(w, &w->segments[list[start[v] + i]], above), list[start[v] + i]};
        sort_placed(o->list, count);
        for (uint32_t i = 0; i < count; i++)
            list[start[v] + i] = o->list[i].item;
    }
}

int fe_layout_make_order(fe_layout_work *w, fe_error *err)
{
    uint32_t most = w->segment_count > w->count ? w->segment_count : w->count;
    ordering o = {.w = w};

    if (list_rows(w, err) < 0 || order_first(w, err) < 0)
        return -1;
    o.list = fe_layout_take(w, most, sizeof *o.list, err);
    o.spare = fe_layout_take(w, most, sizeof *o.spare, err);
    o.best = fe_layout_take(w, w->count, sizeof *o.best, err);
    if (!o.list || !o.spare || !o.best)
        return -1;
    improve(&o);
    sort_segments(&o, true);
    sort_segments(&o, false);
    return 0;
}
