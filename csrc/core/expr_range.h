/* expr_range.h - arithmetic of ranges: what expr_range.c gives expr_bounds.c.
 *
 * Each function gives a range that holds the result for all operands within their ranges. Integers are wide while they are
 * computed; an end that 64 bits don't hold becomes infinite, or the last that they hold. Ends of reals are rounded outwards
 * unless they are exact.
 */
#ifndef FE_EXPR_RANGE_H
#define FE_EXPR_RANGE_H

#include "expr_impl.h"

__extension__ typedef __int128 fe_wide;

#define FE_WIDE_INF ((fe_wide)1 << 126) /* an end that is not there */

typedef struct {
    fe_expr_value_kind kind; /* INT, REAL, BOOL */
    fe_wide lo, hi;          /* INT, BOOL */
    double low, high;        /* REAL */
} fe_range;

fe_range fe_range_int(fe_wide lo, fe_wide hi); /* ends beyond 64 bits are put right */
fe_range fe_range_bool(bool lo, bool hi);
fe_range fe_range_real(double low, double high);
fe_range fe_range_any_real(void);
fe_range fe_range_ratio(int64_t p, int64_t q); /* q > 0 */
fe_range fe_range_truth(fe_range a);           /* BOOL: is it not zero? */
fe_range fe_range_union(fe_range a, fe_range b);

/* A call of op, which has one argument; of two. */
fe_range fe_range_unary(fe_expr_op op, fe_range a);
fe_range fe_range_binary(fe_expr_op op, fe_range a, fe_range b);

#endif
