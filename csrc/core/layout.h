/* layout.h - where the boxes and edges of a small graph are drawn: layer by layer, from top to bottom.
 *
 *      rank 0      [ a ]            boxes of one rank stand side by side; every edge goes to a greater rank, one that
 *                   |   \           would close a circle is turned round for that. An edge passes a rank that it does
 *      rank 1     [ b ]  |          not end at through a dummy, which has its place in the row as boxes have. Edges from
 *                    \  /|          one place of one box share their dummies, as a stem does its branches.
 *      rank 2       [ c ] [ d ]
 *
 * The steps are Sugiyama's: ranks, by longest paths that are shortened again; orders, by barycentres and exchanges of
 * neighbours; coordinates as of Brandes and Koepf, with the places at which edges meet boxes in mind. Each takes time by
 * the size of the graph, or its logarithm times that: rounds, dummies and points are limited, and an edge that comes too late
 * for a dummy is drawn straight. The same input always gives the same picture.
 */
#ifndef FE_LAYOUT_H
#define FE_LAYOUT_H

#include "base.h"

typedef enum {
    FE_LAYOUT_ANY,
    FE_LAYOUT_FIRST, /* in the first rank: no edge may lead to it */
    FE_LAYOUT_LAST,  /* in the last rank: no edge may come from it */
} fe_layout_rank;

typedef struct {
    double width, height;
    uint8_t rank; /* fe_layout_rank */
} fe_layout_box;

typedef struct {
    uint32_t from, to;
    double from_x, to_x; /* where it leaves the lower and meets the upper side, from the middle of the box */
} fe_layout_edge;

typedef struct {
    double x, y;
} fe_layout_point;

typedef struct {
    double box_gap, edge_gap, rank_gap; /* between neighbours in a rank, beside dummies, and between ranks */
} fe_layout_gaps;

typedef struct {
    const fe_layout_box *boxes;
    const fe_layout_edge *edges;
    uint32_t box_count, edge_count;
    fe_layout_gaps gaps;
} fe_layout_input;

typedef struct {
    const fe_allocator *allocator;
    fe_layout_point *corners; /* by box: its left upper one */
    uint32_t *ranks;          /* by box */
    /* The points of the edges, one edge after the other, from where it leaves to where it ends: between two points of the
     * same x it goes straight, otherwise from rank to rank. An edge from a box to itself has none. */
    fe_layout_point *points;
    uint32_t *ends; /* by edge: where its points end */
    bool *turned;   /* by edge: it goes upwards */
    uint32_t point_count, point_capacity, rank_count;
    double width, height;
} fe_layout;

/* Boxes are at least 0 wide and high, and all numbers finite and below 1e9. out needs no init; on failure it is empty. */
int fe_layout_make(const fe_layout_input *in, const fe_allocator *a, fe_layout *out, fe_error *err) FE_MUST_CHECK;
void fe_layout_clear(fe_layout *l);

#endif
