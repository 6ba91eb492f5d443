/* test_layout.c - layouts of boxes and edges: what holds for every picture, by small examples and random graphs. */
#include "layout.h"

#include "check.h"

#include <math.h>

#define MOST 400
#define SOME_GAPS {12, 6, 20}

typedef struct {
    fe_layout_box boxes[MOST];
    fe_layout_edge edges[4 * MOST];
    fe_layout_input in;
} picture;

static uint64_t next_random(uint64_t *state)
{
    return *state = fe_mix(*state + UINT64_C(0x9e3779b97f4a7c15));
}

static void start(picture *p, uint32_t boxes)
{
    p->in = (fe_layout_input){p->boxes, p->edges, boxes, 0, SOME_GAPS};
    for (uint32_t b = 0; b < boxes; b++)
        p->boxes[b] = (fe_layout_box){40, 20, FE_LAYOUT_ANY};
}

static void edge(picture *p, uint32_t from, uint32_t to)
{
    p->edges[p->in.edge_count++] = (fe_layout_edge){from, to, 0, 0};
}

/* ---- what holds ---- */

static uint32_t first_point(const fe_layout *l, uint32_t e)
{
    return e ? l->ends[e - 1] : 0;
}

static double middle_x(const fe_layout_input *in, const fe_layout *l, uint32_t box)
{
    return l->corners[box].x + in->boxes[box].width / 2;
}

static void check_boxes(const picture *p, const fe_layout *l)
{
    for (uint32_t a = 0; a < p->in.box_count; a++) {
        const fe_layout_point *c = &l->corners[a];
        CHECK(c->x >= -1e-6 && c->y >= -1e-6 && c->x + p->boxes[a].width <= l->width + 1e-6);
        CHECK(c->y + p->boxes[a].height <= l->height + 1e-6 && l->ranks[a] < l->rank_count);
        CHECK(p->boxes[a].rank != FE_LAYOUT_FIRST || l->ranks[a] == 0);
        CHECK(p->boxes[a].rank != FE_LAYOUT_LAST || l->ranks[a] == l->rank_count - 1);
        for (uint32_t b = 0; b < a; b++) {
            const fe_layout_point *d = &l->corners[b];
            bool beside = c->x >= d->x + p->boxes[b].width + p->in.gaps.box_gap - 1e-6 ||
                          d->x >= c->x + p->boxes[a].width + p->in.gaps.box_gap - 1e-6;
            bool above = c->y >= d->y + p->boxes[b].height + p->in.gaps.rank_gap - 1e-6 ||
                         d->y >= c->y + p->boxes[a].height + p->in.gaps.rank_gap - 1e-6;
            CHECK(beside || above);
        }
    }
}

/* Each edge starts and ends at its boxes, goes down (or up, when it was turned) and, when it is routed,
 * cuts through no box. */
static void check_edge(const fe_layout_input *in, const fe_layout *l, uint32_t e, bool routed)
{
    const fe_layout_edge *edge = &in->edges[e];
    uint32_t start = first_point(l, e), end = l->ends[e];
    uint32_t upper = l->turned[e] ? edge->to : edge->from, lower = l->turned[e] ? edge->from : edge->to;

    if (edge->from == edge->to) {
        CHECK_INT(start, end);
        return;
    }
    CHECK(end - start >= 2 && l->ranks[upper] < l->ranks[lower]);
    const fe_layout_point *top = &l->points[l->turned[e] ? end - 1 : start],
                          *bottom = &l->points[l->turned[e] ? start : end - 1];
    CHECK(fabs(top->y - l->corners[upper].y - in->boxes[upper].height) < 1e-6);
    CHECK(fabs(top->x - middle_x(in, l, upper) - (l->turned[e] ? edge->to_x : edge->from_x)) < 1e-6);
    CHECK(fabs(bottom->y - l->corners[lower].y) < 1e-6);
    CHECK(fabs(bottom->x - middle_x(in, l, lower) - (l->turned[e] ? edge->from_x : edge->to_x)) < 1e-6);
    for (uint32_t i = start; i + 1 < end; i++) {
        const fe_layout_point *a = &l->points[i], *b = a + 1;
        CHECK(l->turned[e] ? b->y <= a->y + 1e-6 : b->y >= a->y - 1e-6);
        for (uint32_t v = 0; routed && a->x == b->x && v < in->box_count; v++) {
            double low = fmin(a->y, b->y), high = fmax(a->y, b->y), box = l->corners[v].y;
            bool apart = a->x <= l->corners[v].x || a->x >= l->corners[v].x + in->boxes[v].width;
            CHECK(v == edge->from || v == edge->to || apart || high <= box + 1e-6 ||
                  low >= box + in->boxes[v].height - 1e-6);
        }
    }
}

static void check_layout(const picture *p)
{
    fe_layout l, again;
    fe_error err;

    DO(fe_layout_make(&p->in, &fe_libc_allocator, &l, &err));
    check_boxes(p, &l);
    for (uint32_t e = 0; e < p->in.edge_count; e++)
        check_edge(&p->in, &l, e, true);
    DO(fe_layout_make(&p->in, &fe_libc_allocator, &again, &err));
    CHECK(!l.corners || memcmp(l.corners, again.corners, p->in.box_count * sizeof *l.corners) == 0);
    CHECK_INT(l.point_count, again.point_count);
    CHECK(!l.point_count || memcmp(l.points, again.points, l.point_count * sizeof *l.points) == 0);
    fe_layout_clear(&again);
    fe_layout_clear(&l);
}

/* ---- examples ---- */

static void test_nothing(void)
{
    picture p;
    fe_layout l;
    fe_error err;

    start(&p, 0);
    DO(fe_layout_make(&p.in, &fe_libc_allocator, &l, &err));
    CHECK(l.width == 0 && l.height == 0 && l.point_count == 0);
    fe_layout_clear(&l);
}

static void test_chain_is_straight(void)
{
    picture p;
    fe_layout l;
    fe_error err;

    start(&p, 6);
    p.boxes[3].width = 90;
    for (uint32_t b = 0; b < 5; b++)
        edge(&p, b, b + 1);
    DO(fe_layout_make(&p.in, &fe_libc_allocator, &l, &err));
    for (uint32_t b = 0; b < 6; b++) {
        CHECK_INT(l.ranks[b], b);
        CHECK(middle_x(&p.in, &l, b) == 45);
    }
    CHECK_INT(l.point_count, 10);
    CHECK(l.width == 90 && l.height == 6 * 20 + 5 * 20);
    fe_layout_clear(&l);
}

/* A long edge beside a chain is straight where it passes, and so is the chain. */
static void test_skip(void)
{
    picture p;
    fe_layout l;
    fe_error err;

    start(&p, 6);
    for (uint32_t b = 0; b < 5; b++)
        edge(&p, b, b + 1);
    edge(&p, 0, 5);
    DO(fe_layout_make(&p.in, &fe_libc_allocator, &l, &err));
    CHECK(middle_x(&p.in, &l, 1) == middle_x(&p.in, &l, 4));
    CHECK_INT(l.ends[5] - l.ends[4], 4); /* down to the side, straight, and back */
    fe_layout_clear(&l);
    check_layout(&p);
}

static void test_circle(void)
{
    picture p;
    fe_layout l;
    fe_error err;

    start(&p, 3);
    edge(&p, 0, 1);
    edge(&p, 1, 2);
    edge(&p, 2, 0);
    edge(&p, 1, 1);
    DO(fe_layout_make(&p.in, &fe_libc_allocator, &l, &err));
    CHECK(!l.turned[0] && !l.turned[1] && l.turned[2] && !l.turned[3]);
    fe_layout_clear(&l);
    check_layout(&p);
}

static void test_source_comes_down(void)
{
    picture p;
    fe_layout l;
    fe_error err;

    start(&p, 5);
    edge(&p, 0, 1);
    edge(&p, 1, 2);
    edge(&p, 2, 3);
    edge(&p, 4, 3); /* of a weight, say */
    DO(fe_layout_make(&p.in, &fe_libc_allocator, &l, &err));
    CHECK_INT(l.ranks[4], 2);
    fe_layout_clear(&l);
}

/* Weights that are unpacked beside a chain leave it straight, as near to it as they can stand. */
static void test_sources_stand_aside(void)
{
    picture p;
    fe_layout l;
    fe_error err;

    start(&p, 10);
    for (uint32_t b = 0; b < 6; b++)
        edge(&p, b, b + 1);
    for (uint32_t b = 0; b < 3; b++)
        edge(&p, 7 + b, 2 * b + 2);
    DO(fe_layout_make(&p.in, &fe_libc_allocator, &l, &err));
    for (uint32_t b = 1; b < 7; b++)
        CHECK(middle_x(&p.in, &l, b) == middle_x(&p.in, &l, 0));
    for (uint32_t b = 7; b < 10; b++) {
        CHECK_INT(l.ranks[b], 2 * (b - 7) + 1);
        CHECK(fabs(middle_x(&p.in, &l, b) - middle_x(&p.in, &l, 0)) == 40 + p.in.gaps.box_gap);
    }
    fe_layout_clear(&l);
    check_layout(&p);
}

static void test_edges_of_one_point_share_their_way(void)
{
    picture p;
    fe_layout l;
    fe_error err;

    start(&p, 8);
    for (uint32_t b = 0; b < 7; b++)
        edge(&p, b, b + 1);
    for (uint32_t b = 3; b < 8; b++)
        edge(&p, 0, b);
    DO(fe_layout_make(&p.in, &fe_libc_allocator, &l, &err));
    double x = l.points[l.ends[7]].x;
    for (uint32_t e = 7; e < 12; e++)
        CHECK(l.points[l.ends[e - 1] + 1].x == l.points[l.ends[6] + 1].x);
    CHECK(x == middle_x(&p.in, &l, 0));
    fe_layout_clear(&l);
    check_layout(&p);
}

static void test_ports(void)
{
    picture p;
    fe_layout l;
    fe_error err;

    start(&p, 4);
    p.boxes[1].width = 200;
    p.boxes[1].height = 90;
    p.edges[0] = (fe_layout_edge){0, 1, 0, -60};
    p.edges[1] = (fe_layout_edge){2, 1, 0, 60};
    p.edges[2] = (fe_layout_edge){1, 3, 60, 0};
    p.in.edge_count = 3;
    DO(fe_layout_make(&p.in, &fe_libc_allocator, &l, &err));
    CHECK(middle_x(&p.in, &l, 0) == middle_x(&p.in, &l, 1) - 60 &&
          middle_x(&p.in, &l, 2) == middle_x(&p.in, &l, 1) + 60);
    CHECK(middle_x(&p.in, &l, 3) == middle_x(&p.in, &l, 2));
    fe_layout_clear(&l);
    check_layout(&p);
}

/* Two layers that cross in the order of their numbers, and need not. */
static void test_no_needless_crossing(void)
{
    picture p;
    fe_layout l;
    fe_error err;

    start(&p, 6);
    edge(&p, 0, 5);
    edge(&p, 1, 4);
    edge(&p, 2, 3);
    DO(fe_layout_make(&p.in, &fe_libc_allocator, &l, &err));
    for (uint32_t e = 0; e < 3; e++)
        CHECK(l.points[first_point(&l, e)].x == l.points[l.ends[e] - 1].x);
    fe_layout_clear(&l);
}

/* ---- random graphs ---- */

static void check_random(uint64_t *state, uint32_t boxes, uint32_t edges, bool forward)
{
    static picture p;

    start(&p, boxes);
    for (uint32_t b = 0; b < boxes; b++) {
        p.boxes[b].width = (double)(next_random(state) % 200);
        p.boxes[b].height = (double)(next_random(state) % 100);
    }
    for (uint32_t i = 0; boxes && i < edges; i++) {
        uint32_t a = (uint32_t)(next_random(state) % boxes), b = (uint32_t)(next_random(state) % boxes);
        if (forward && a > b) {
            uint32_t c = a;
            a = b;
            b = c;
        }
        edge(&p, a, b);
        p.edges[i].from_x = (double)(next_random(state) % 3) * p.boxes[a].width / 4 - p.boxes[a].width / 4;
    }
    check_layout(&p);
    for (uint32_t b = 0; b < boxes; b++) {
        bool in = false, out = false;
        for (uint32_t i = 0; i < p.in.edge_count; i++) {
            in |= p.edges[i].to == b;
            out |= p.edges[i].from == b;
        }
        p.boxes[b].rank = (uint8_t)(out && !in ? FE_LAYOUT_FIRST : in && !out ? FE_LAYOUT_LAST : FE_LAYOUT_ANY);
    }
    check_layout(&p);
}

static void test_random(void)
{
    uint64_t state = 7;

    for (uint32_t i = 0; i < 400; i++)
        check_random(&state, i % 23, i % 41, i % 3 != 0);
    for (uint32_t i = 0; i < 6; i++)
        check_random(&state, 120, 60 * (i + 1), i % 2);
}

/* ---- large graphs ---- */

#define LARGE 10000u

static void check_large(uint32_t (*from)(uint32_t), uint32_t (*to)(uint32_t), uint32_t count)
{
    fe_layout_box *boxes = calloc(LARGE, sizeof *boxes);
    fe_layout_edge *edges = calloc(count, sizeof *edges);
    fe_layout l;
    fe_error err;

    CHECK(boxes && edges);
    for (uint32_t b = 0; b < LARGE; b++)
        boxes[b] = (fe_layout_box){40, 20, FE_LAYOUT_ANY};
    for (uint32_t e = 0; e < count; e++)
        edges[e] = (fe_layout_edge){from(e), to(e), 0, 0};
    const fe_layout_input in = {boxes, edges, LARGE, count, SOME_GAPS};
    DO(fe_layout_make(&in, &fe_libc_allocator, &l, &err));
    for (uint32_t e = 0; e < count; e++)
        check_edge(&in, &l, e, false); /* some are too long to be routed */
    CHECK_INT(l.ends[count - 1], l.point_count);
    fe_layout_clear(&l);
    free(boxes);
    free(edges);
}

static uint32_t zero(uint32_t e)
{
    (void)e;
    return 0;
}

static uint32_t successor(uint32_t e)
{
    return (e + 1) % LARGE;
}

static uint32_t chain_and_end_from(uint32_t e)
{
    return e < LARGE - 1 ? e : e - (LARGE - 1);
}

static uint32_t chain_and_end_to(uint32_t e)
{
    return e < LARGE - 1 ? e + 1 : LARGE - 1;
}

static uint32_t any(uint32_t e)
{
    return (uint32_t)(fe_mix(e) % LARGE);
}

static uint32_t any_other(uint32_t e)
{
    return (uint32_t)(fe_mix(e + 77777) % LARGE);
}

/* Stars, circles, long edges without end and graphs without any order, of ten thousand boxes: none hangs. */
static void test_large(void)
{
    check_large(zero, successor, LARGE - 1);
    check_large(successor, any, 5000);
    check_large(chain_and_end_from, chain_and_end_to, 2 * LARGE - 4);
    check_large(any, any_other, LARGE);
    check_large(zero, zero, 1);
}

/* ---- bad input, and no memory ---- */

static void check_refused(const picture *p, const char *message)
{
    fe_layout l;
    fe_error err;

    CHECK_INT(fe_layout_make(&p->in, &fe_libc_allocator, &l, &err), -1);
    CHECK_INT(err.code, FE_BAD_VALUE);
    CHECK_TEXT(err.message, message);
    CHECK(!l.corners && !l.points && !l.ends);
}

static void test_bad_input(void)
{
    picture p;

    start(&p, 2);
    edge(&p, 0, 2);
    check_refused(&p, "edge 0 is between boxes that are not there");
    p.edges[0].to = 1;
    p.edges[0].to_x = NAN;
    check_refused(&p, "edge 0 meets its boxes at no number");
    p.edges[0].to_x = 0;
    p.boxes[1].rank = FE_LAYOUT_FIRST;
    check_refused(&p, "edge 0 goes into the first rank or out of the last");
    p.boxes[1].rank = 3;
    check_refused(&p, "the rank of box 1 is 0, 1 or 2");
    p.boxes[1] = (fe_layout_box){-1, 0, FE_LAYOUT_ANY};
    check_refused(&p, "the width and height of box 1 are numbers from 0 to 1e9");
    p.boxes[1] = (fe_layout_box){1, INFINITY, FE_LAYOUT_ANY};
    check_refused(&p, "the width and height of box 1 are numbers from 0 to 1e9");
    p.in.gaps.edge_gap = NAN;
    check_refused(&p, "a gap is a number from 0 to 1e9");
}

static void test_too_many(void)
{
    const fe_layout_input boxes = {NULL, NULL, UINT32_MAX / 16 + 1, 0, SOME_GAPS},
                          edges = {NULL, NULL, 1, UINT32_MAX / 16 + 1, SOME_GAPS};
    fe_layout l;
    fe_error err;

    CHECK_INT(fe_layout_make(&boxes, &fe_libc_allocator, &l, &err), -1);
    CHECK_INT(err.code, FE_TOO_LARGE);
    CHECK_INT(fe_layout_make(&edges, &fe_libc_allocator, &l, &err), -1);
    CHECK_INT(err.code, FE_TOO_LARGE);
}

/* How many allocations a layout makes; it can do without none of them. */
static size_t check_no_memory(const fe_layout_input *in)
{
    fe_layout l;
    fe_error err;
    int result = -1;

    for (size_t nth = 0;; nth++) {
        test_memory memory;
        memory_init(&memory);
        memory_fail(&memory, nth, false);
        result = fe_layout_make(in, &memory.allocator, &l, &err);
        if (result == 0) {
            fe_layout_clear(&l);
            CHECK_INT(memory.blocks, 0);
            return nth;
        }
        CHECK_INT(err.code, FE_NO_MEMORY);
        CHECK(!l.corners && !l.points);
        CHECK_INT(memory.blocks, 0);
    }
}

static void test_no_memory(void)
{
    static picture p;
    uint64_t state = 3;

    start(&p, 60);
    for (uint32_t i = 0; i < 150; i++)
        edge(&p, (uint32_t)(next_random(&state) % 60), (uint32_t)(next_random(&state) % 60));
    CHECK(check_no_memory(&p.in) > 10);
}

#define MANY 66000u /* more bytes than the arena shares out of its chunks: each array is an allocation of its own */

static void test_no_memory_for_any_array(void)
{
    fe_layout_box *boxes = calloc(MANY, sizeof *boxes);
    fe_layout_edge *edges = calloc(MANY, sizeof *edges);
    const fe_layout_input in = {boxes, edges, MANY, MANY, SOME_GAPS};

    CHECK(boxes && edges);
    for (uint32_t e = 0; e < MANY; e++) /* a chain, for which there are also as many ranks */
        edges[e] = (fe_layout_edge){e, e + 1 < MANY ? e + 1 : e, 0, 0};
    CHECK(check_no_memory(&in) > 60);
    free(boxes);
    free(edges);
}

int main(void)
{
    RUN(test_nothing);
    RUN(test_chain_is_straight);
    RUN(test_skip);
    RUN(test_circle);
    RUN(test_source_comes_down);
    RUN(test_sources_stand_aside);
    RUN(test_edges_of_one_point_share_their_way);
    RUN(test_ports);
    RUN(test_no_needless_crossing);
    RUN(test_random);
    RUN(test_large);
    RUN(test_bad_input);
    RUN(test_too_many);
    RUN(test_no_memory);
    RUN(test_no_memory_for_any_array);
    return 0;
}
