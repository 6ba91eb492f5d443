/* layout_internal.h - what the files of the layout share: boxes and dummies in rows, and segments between rows. */
#ifndef FE_LAYOUT_INTERNAL_H
#define FE_LAYOUT_INTERNAL_H

#include "ir.h"
#include "layout.h"

/* A piece of an edge between two neighbouring ranks; edges that share a dummy share the pieces before it. */
typedef struct {
    uint32_t upper, lower; /* vertices */
    double upper_x, lower_x;
    bool yields; /* it bends where that lets another be straight */
} fe_layout_segment;

/* An edge that goes down: from `tail` through dummies first .. first + (rank of head - rank of tail - 1) to `head`. */
typedef struct {
    uint32_t tail, head, edge;
    double tail_x, head_x;
    uint32_t dummy; /* its first, FE_NONE_ID: it has none */
    bool straight;  /* too long for dummies */
} fe_layout_arc;

typedef struct {
    const fe_layout_input *in;
    fe_arena arena;            /* of everything here */
    uint32_t box_count, count; /* vertices: boxes, then dummies */
    fe_layout_arc *arcs;
    uint32_t arc_count;
    uint32_t *rank; /* by vertex */
    uint32_t rank_count;
    double *width; /* by vertex; 0 for a dummy */
    double *x;     /* by vertex: its middle */

    fe_layout_segment *segments;
    uint32_t segment_count;
    /* Segments by vertex: those to the rank above and below it, up[up_start[v] .. up_start[v + 1]), in the order of what is at
     * their other ends. */
    uint32_t *up, *up_start, *down, *down_start;

    uint32_t *row, *row_start; /* vertices rank by rank, in order: row[row_start[r] .. row_start[r + 1]) */
    uint32_t *place;           /* by vertex: in its row */
} fe_layout_work;

static inline bool fe_layout_is_dummy(const fe_layout_work *w, uint32_t v)
{
    return v >= w->box_count;
}

void *fe_layout_take(fe_layout_work *w, size_t count, size_t size, fe_error *err); /* zeroed; NULL: no memory */

/* ---- layout_rank.c ---- */

int fe_layout_make_arcs(fe_layout_work *w, fe_error *err) FE_MUST_CHECK; /* turns edges round until no circle is left */
int fe_layout_make_ranks(fe_layout_work *w, fe_error *err) FE_MUST_CHECK;

/* ---- layout_order.c ---- */

int fe_layout_make_order(fe_layout_work *w, fe_error *err) FE_MUST_CHECK;

/* ---- layout_place.c ---- */

int fe_layout_make_places(fe_layout_work *w, fe_error *err) FE_MUST_CHECK;         /* fills x */
double fe_layout_distance(const fe_layout_work *w, uint32_t left, uint32_t right); /* between middles, at least */

#endif
