/* statistics.c - see statistics.h. */
#include "statistics.h"

#include <math.h>

/* ---- numbers ---- */

typedef struct {
    uint8_t size;
    bool is_integer, is_complex;
    /* Of floats of 8 bits: bits of exponent and mantissa, the bias, and what stands in the place of IEEE's specials. */
    uint8_t exponent, mantissa, bias;
    enum { IEEE, FINITE, UNSIGNED_ZERO } specials;
} number_facts;

static const number_facts facts[FE_NUMBER_COUNT] = {
    [FE_NUMBER_BOOL] = {.size = 1, .is_integer = true},
    [FE_NUMBER_U8] = {.size = 1, .is_integer = true},
    [FE_NUMBER_I8] = {.size = 1, .is_integer = true},
    [FE_NUMBER_U16] = {.size = 2, .is_integer = true},
    [FE_NUMBER_I16] = {.size = 2, .is_integer = true},
    [FE_NUMBER_U32] = {.size = 4, .is_integer = true},
    [FE_NUMBER_I32] = {.size = 4, .is_integer = true},
    [FE_NUMBER_U64] = {.size = 8, .is_integer = true},
    [FE_NUMBER_I64] = {.size = 8, .is_integer = true},
    [FE_NUMBER_F16] = {.size = 2},
    [FE_NUMBER_BF16] = {.size = 2},
    [FE_NUMBER_F32] = {.size = 4},
    [FE_NUMBER_F64] = {.size = 8},
    [FE_NUMBER_F8_E4M3FN] = {.size = 1, .exponent = 4, .mantissa = 3, .bias = 7, .specials = FINITE},
    [FE_NUMBER_F8_E5M2] = {.size = 1, .exponent = 5, .mantissa = 2, .bias = 15, .specials = IEEE},
    [FE_NUMBER_F8_E4M3FNUZ] = {.size = 1, .exponent = 4, .mantissa = 3, .bias = 8, .specials = UNSIGNED_ZERO},
    [FE_NUMBER_F8_E5M2FNUZ] = {.size = 1, .exponent = 5, .mantissa = 2, .bias = 16, .specials = UNSIGNED_ZERO},
    [FE_NUMBER_F8_E8M0FNU] = {.size = 1},
    [FE_NUMBER_C32] = {.size = 4, .is_complex = true},
    [FE_NUMBER_C64] = {.size = 8, .is_complex = true},
    [FE_NUMBER_C128] = {.size = 16, .is_complex = true},
};

bool fe_number_is_integer(fe_number n)
{
    return facts[n].is_integer;
}

bool fe_number_is_complex(fe_number n)
{
    return facts[n].is_complex;
}

/* The value of a float of 8 bits. */
static double float8(fe_number n, unsigned byte)
{
    const number_facts *f = &facts[n];
    unsigned exponent = byte >> f->mantissa & ((1u << f->exponent) - 1), mantissa = byte & ((1u << f->mantissa) - 1);
    unsigned top = (1u << f->exponent) - 1;
    double sign = byte & 0x80 ? -1 : 1;

    if (n == FE_NUMBER_F8_E8M0FNU) /* an exponent and nothing else */
        return byte == 0xff ? (double)NAN : ldexp(1, (int)byte - 127);
    if (f->specials == UNSIGNED_ZERO && byte == 0x80)
        return (double)NAN;
    if (f->specials == FINITE && exponent == top && mantissa == (1u << f->mantissa) - 1)
        return (double)NAN;
    if (f->specials == IEEE && exponent == top)
        return mantissa ? (double)NAN : sign * (double)INFINITY;
    if (!exponent)
        return sign * ldexp(mantissa, 1 - f->bias - f->mantissa);
    return sign * ldexp(mantissa + (1u << f->mantissa), (int)exponent - f->bias - f->mantissa);
}

static double byte_value(fe_number n, unsigned byte)
{
    if (n == FE_NUMBER_I8)
        return byte < 128 ? (double)byte : (double)byte - 256;
    return n == FE_NUMBER_U8 || n == FE_NUMBER_BOOL ? (double)byte : float8(n, byte);
}

static float float_of_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static double half(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ff;

    if (exponent == 31)
        return (double)float_of_bits(sign | 0x7f800000u | mantissa << 13);
    if (exponent == 0)
        return (sign ? -1.0 : 1.0) * (double)mantissa * 0x1p-24;
    return (double)float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

/* ---- adding ---- */

void fe_statistics_init(fe_statistics *s, fe_number n)
{
    *s = (fe_statistics){.number = n, .least = INT64_MAX, .greatest = INT64_MIN};
    s->min = (double)INFINITY;
    s->max = -(double)INFINITY;
}

/* Join `count` finite values of a mean and an m2 to those there are. */
static void join(fe_statistics *s, uint64_t count, double mean, double m2)
{
    double before = (double)s->finite, more = (double)count, all = before + more, delta = mean - s->mean;

    if (!count)
        return;
    s->mean += delta * (more / all);
    s->m2 += m2 + delta * delta * (before * (more / all));
    s->finite += count;
}

static void flush(fe_statistics *s)
{
    const double *x = s->block;
    double sum[4] = {0}, squares[4] = {0};
    uint32_t len = s->len, whole = len & ~3u;
    double min = s->min, max = s->max;
    uint64_t zeros = 0;

    for (uint32_t i = 0; i < len; i++) {
        zeros += x[i] == 0;
        min = x[i] < min ? x[i] : min;
        max = x[i] > max ? x[i] : max;
    }
    for (uint32_t i = 0; i < whole; i++)
        sum[i & 3] += x[i];
    for (uint32_t i = whole; i < len; i++)
        sum[0] += x[i];
    double mean = len ? ((sum[0] + sum[1]) + (sum[2] + sum[3])) / len : 0;
    for (uint32_t i = 0; i < len; i++) {
        double d = x[i] - mean;
        squares[i & 3] += d * d;
    }
    s->zeros += zeros;
    s->min = min;
    s->max = max;
    join(s, len, mean, (squares[0] + squares[1]) + (squares[2] + squares[3]));
    s->len = 0;
}

static inline void push(fe_statistics *s, double value)
{
    s->block[s->len] = value;
    if (++s->len == FE_STATISTICS_BLOCK)
        flush(s);
}

static inline void push_float(fe_statistics *s, double value)
{
    if (isfinite(value))
        push(s, value);
    else if (isnan(value))
        s->nans++;
    else
        s->infs++;
}

static inline void push_integer(fe_statistics *s, int64_t ordered, double value)
{
    if (ordered < s->least)
        s->least = ordered;
    if (ordered > s->greatest)
        s->greatest = ordered;
    push(s, value);
}

static inline void push_complex(fe_statistics *s, double real, double imaginary)
{
    if (isnan(real) || isnan(imaginary))
        s->nans++;
    else if (isinf(real) || isinf(imaginary))
        s->infs++;
    else
        s->finite++;
    s->zeros += real == 0 && imaginary == 0;
}

/* A loop for each type, so that none is looked up for an element. */
#define EACH(type, use)                                     \
    for (size_t i = 0; i < count; i++) {                    \
        type v;                                             \
        memcpy(&v, data + (ptrdiff_t)i * stride, sizeof v); \
        use;                                                \
    }                                                       \
    return

void fe_statistics_add(fe_statistics *s, const char *data, size_t count, ptrdiff_t stride)
{
    if (facts[s->number].size == 1) {
        for (size_t i = 0; i < count; i++)
            s->counts[(unsigned char)data[(ptrdiff_t)i * stride]]++;
        return;
    }
    switch (s->number) {
    case FE_NUMBER_U16:
        EACH(uint16_t, push_integer(s, v, v));
    case FE_NUMBER_I16:
        EACH(int16_t, push_integer(s, v, v));
    case FE_NUMBER_U32:
        EACH(uint32_t, push_integer(s, v, v));
    case FE_NUMBER_I32:
        EACH(int32_t, push_integer(s, v, v));
    case FE_NUMBER_U64:
        EACH(uint64_t, push_integer(s, (int64_t)(v ^ (uint64_t)1 << 63), (double)v));
    case FE_NUMBER_I64:
        EACH(int64_t, push_integer(s, v, (double)v));
    case FE_NUMBER_F16:
        EACH(uint16_t, push_float(s, half(v)));
    case FE_NUMBER_BF16:
        EACH(uint16_t, push_float(s, (double)float_of_bits((uint32_t)v << 16)));
    case FE_NUMBER_F32:
        EACH(float, push_float(s, (double)v));
    case FE_NUMBER_F64:
        EACH(double, push_float(s, v));
    case FE_NUMBER_C32:
        EACH(struct { uint16_t part[2]; }, push_complex(s, half(v.part[0]), half(v.part[1])));
    case FE_NUMBER_C64:
        EACH(struct { float part[2]; }, push_complex(s, (double)v.part[0], (double)v.part[1]));
    case FE_NUMBER_C128:
        EACH(struct { double part[2]; }, push_complex(s, v.part[0], v.part[1]));
    default:
        assert(!"a type of one byte");
    }
}

/* What is counted by value becomes sums. */
static void finish_bytes(fe_statistics *s)
{
    double values[256], sum = 0, m2 = 0;
    uint64_t finite = 0;

    for (unsigned b = 0; b < 256; b++) {
        values[b] = byte_value(s->number, b);
        if (!s->counts[b])
            continue;
        if (!isfinite(values[b])) {
            *(isnan(values[b]) ? &s->nans : &s->infs) += s->counts[b];
            continue;
        }
        finite += s->counts[b];
        sum += (double)s->counts[b] * values[b];
        s->zeros += values[b] == 0 ? s->counts[b] : 0;
        s->min = values[b] < s->min ? values[b] : s->min;
        s->max = values[b] > s->max ? values[b] : s->max;
    }
    double mean = finite ? sum / (double)finite : 0;
    for (unsigned b = 0; b < 256; b++)
        m2 += s->counts[b] && isfinite(values[b]) ? (double)s->counts[b] * (values[b] - mean) * (values[b] - mean) : 0;
    join(s, finite, mean, m2);
    if (facts[s->number].is_integer && finite) {
        s->least = (int64_t)s->min;
        s->greatest = (int64_t)s->max;
    }
}

void fe_statistics_finish(fe_statistics *s)
{
    if (facts[s->number].size == 1)
        finish_bytes(s);
    else
        flush(s);
}
