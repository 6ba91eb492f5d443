/* statistics.h - numbers that describe the elements of a tensor: extremes, mean, spread, zeros, and what is not finite.
 *
 * Elements come in any order, in rows of equal strides. Sums are of doubles: of blocks, of which each has its own mean and
 * sum of squares about it, joined by the formula of Chan, Golub and LeVeque (1979), so that neither many elements nor a
 * mean far from zero cost digits. Types of one byte are counted by value instead, which is exact but for rounding.
 */
#ifndef FE_STATISTICS_H
#define FE_STATISTICS_H

#include "base.h"

typedef enum {
    FE_NUMBER_BOOL,
    FE_NUMBER_U8,
    FE_NUMBER_I8,
    FE_NUMBER_U16,
    FE_NUMBER_I16,
    FE_NUMBER_U32,
    FE_NUMBER_I32,
    FE_NUMBER_U64,
    FE_NUMBER_I64,
    FE_NUMBER_F16,
    FE_NUMBER_BF16,
    FE_NUMBER_F32,
    FE_NUMBER_F64,
    FE_NUMBER_F8_E4M3FN,
    FE_NUMBER_F8_E5M2,
    FE_NUMBER_F8_E4M3FNUZ,
    FE_NUMBER_F8_E5M2FNUZ,
    FE_NUMBER_F8_E8M0FNU,
    FE_NUMBER_C32, /* of complex numbers only zeros, nan and inf are counted */
    FE_NUMBER_C64,
    FE_NUMBER_C128,
    FE_NUMBER_COUNT
} fe_number;

#define FE_STATISTICS_BLOCK 1024

/* Extremes, mean and m2 are those of the finite elements; without any, the extremes mean nothing. */
typedef struct {
    fe_number number;
    uint64_t finite, zeros, nans, infs;
    double min, max, mean, m2; /* m2: the sum of squares about the mean */
    /* Of integers, exactly; of unsigned ones of 64 bits both are less by 2^63. */
    int64_t least, greatest;
    /* the rest is for adding */
    uint32_t len;
    double block[FE_STATISTICS_BLOCK];
    uint64_t counts[256]; /* of types of one byte */
} fe_statistics;

bool fe_number_is_integer(fe_number n); /* bool too */
bool fe_number_is_complex(fe_number n);

void fe_statistics_init(fe_statistics *s, fe_number n);
/* Add a row of elements, `stride` bytes from one to the next; little-endian, at any address. */
void fe_statistics_add(fe_statistics *s, const char *data, size_t count, ptrdiff_t stride);
void fe_statistics_finish(fe_statistics *s);

#endif
