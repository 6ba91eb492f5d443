/* Statistics: every type, rows of any stride, blocks that are full and that are not, what is not finite. */
#include "check.h"
#include "statistics.h"

#include <math.h>

static fe_statistics s;

static void describe(fe_number n, const void *data, size_t count, ptrdiff_t stride)
{
    fe_statistics_init(&s, n);
    fe_statistics_add(&s, data, count, stride);
    fe_statistics_finish(&s);
}

static bool close_to(double a, double b)
{
    return fabs(a - b) <= 1e-12 * (fabs(a) + fabs(b));
}

static void test_floats(void)
{
    float values[] = {1, -2, 0, 4, -0.0f};

    describe(FE_NUMBER_F32, values, 5, sizeof(float));
    CHECK(s.finite == 5 && s.zeros == 2 && s.nans == 0 && s.infs == 0);
    CHECK(s.min == -2 && s.max == 4 && close_to(s.mean, 0.6) && close_to(s.m2, 19.2));
}

static void test_what_is_not_finite(void)
{
    double values[] = {NAN, INFINITY, 3, -INFINITY, NAN, 5};

    describe(FE_NUMBER_F64, values, 6, sizeof(double));
    CHECK(s.finite == 2 && s.nans == 2 && s.infs == 2);
    CHECK(s.min == 3 && s.max == 5 && s.mean == 4 && s.m2 == 2);
    describe(FE_NUMBER_F64, values, 2, sizeof(double));
    CHECK(s.finite == 0 && s.nans == 1 && s.infs == 1 && s.mean == 0 && s.m2 == 0);
}

static void test_small_floats(void)
{
    static const uint16_t half[] = {0x3c00, 0xc000, 0x0001, 0x8000, 0x7c00, 0x7e00, 0x7bff};
    static const uint16_t bfloat[] = {0x3f80, 0xc000, 0x7f80, 0x7fc0};

    describe(FE_NUMBER_F16, half, 7, 2); /* 1, -2, the least subnormal, -0, inf, nan, the greatest */
    CHECK(s.finite == 5 && s.zeros == 1 && s.infs == 1 && s.nans == 1 && s.min == -2 && s.max == 65504);
    describe(FE_NUMBER_F16, half + 2, 1, 2);
    CHECK(s.min == 0x1p-24 && s.max == 0x1p-24);
    describe(FE_NUMBER_BF16, bfloat, 4, 2);
    CHECK(s.finite == 2 && s.infs == 1 && s.nans == 1 && s.min == -2 && s.max == 1);
}

static void test_floats_of_8_bits(void)
{
    static const struct {
        fe_number number;
        unsigned nans, infs;
        double max;
    } wants[] = {{FE_NUMBER_F8_E4M3FN, 2, 0, 448},
                 {FE_NUMBER_F8_E5M2, 6, 2, 57344},
                 {FE_NUMBER_F8_E4M3FNUZ, 1, 0, 240},
                 {FE_NUMBER_F8_E5M2FNUZ, 1, 0, 57344},
                 {FE_NUMBER_F8_E8M0FNU, 1, 0, 0x1p127}};
    unsigned char all[256];

    for (unsigned i = 0; i < 256; i++)
        all[i] = (unsigned char)i;
    for (size_t i = 0; i < sizeof wants / sizeof *wants; i++) {
        describe(wants[i].number, all, 256, 1);
        CHECK_INT(s.nans, wants[i].nans);
        CHECK_INT(s.infs, wants[i].infs);
        CHECK_INT(s.finite + s.nans + s.infs, 256);
        CHECK(s.max == wants[i].max);
    }
}

static void test_integers(void)
{
    static const int64_t wide[] = {INT64_MIN, INT64_MAX, 0};
    static const uint64_t large[] = {0, UINT64_MAX};
    static const int16_t small[] = {-3, 3, 3};
    static const signed char bytes[] = {-128, 127, 0};

    describe(FE_NUMBER_I64, wide, 3, 8);
    CHECK(s.least == INT64_MIN && s.greatest == INT64_MAX && s.zeros == 1);
    describe(FE_NUMBER_U64, large, 2, 8);
    CHECK(s.least == INT64_MIN && s.greatest == INT64_MAX); /* less by 2^63 */
    describe(FE_NUMBER_I16, small, 3, 2);
    CHECK(s.least == -3 && s.greatest == 3 && s.mean == 1 && s.m2 == 24);
    describe(FE_NUMBER_I8, bytes, 3, 1);
    CHECK(s.least == -128 && s.greatest == 127 && s.zeros == 1);
    describe(FE_NUMBER_BOOL, "\1\0\1\1", 4, 1);
    CHECK(s.least == 0 && s.greatest == 1 && s.mean == 0.75);
    describe(FE_NUMBER_U8, "", 0, 1);
    CHECK(s.finite == 0 && s.mean == 0);
}

static void test_unsigned_integers(void)
{
    static const uint16_t small[] = {UINT16_MAX, 0, 2};
    static const uint32_t large[] = {UINT32_MAX, 0, 2, 0};

    describe(FE_NUMBER_U16, small, 3, 2);
    CHECK(s.least == 0 && s.greatest == UINT16_MAX && s.zeros == 1 && close_to(s.mean, 65537 / 3.0));
    describe(FE_NUMBER_U32, large, 4, 4);
    CHECK(s.least == 0 && s.greatest == UINT32_MAX && s.zeros == 2 && s.max == UINT32_MAX);
}

static void test_complex_numbers(void)
{
    static const double wide[] = {0, 0, 1, NAN, INFINITY, 2, INFINITY, NAN, 3, 4};
    static const float single[] = {0, -0.0f, 1, NAN, INFINITY, 2, INFINITY, NAN, 0, 4};
    static const uint16_t half[] = {0, 0x8000, 0x3c00, 0x7e00, 0x7c00, 0x4000, 0xfc00, 0x7c01, 0x0001, 0};
    static const struct {
        fe_number number;
        const void *data;
        ptrdiff_t size;
    } all[] = {{FE_NUMBER_C128, wide, 16}, {FE_NUMBER_C64, single, 8}, {FE_NUMBER_C32, half, 4}};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        describe(all[i].number, all[i].data, 5, all[i].size);
        CHECK(s.finite == 2 && s.zeros == 1 && s.nans == 2 && s.infs == 1);
    }
}

static void test_strides(void)
{
    double values[] = {1, 2, 3, 4, 5, 6};
    char unaligned[1 + sizeof values];

    describe(FE_NUMBER_F64, values, 3, 16);
    CHECK(s.min == 1 && s.max == 5 && s.mean == 3);
    describe(FE_NUMBER_F64, values + 1, 4, 0);
    CHECK(s.min == 2 && s.max == 2 && s.m2 == 0 && s.finite == 4);
    describe(FE_NUMBER_F64, values + 5, 6, -8);
    CHECK(s.min == 1 && s.max == 6 && s.mean == 3.5);
    memcpy(unaligned + 1, values, sizeof values);
    describe(FE_NUMBER_F64, unaligned + 1, 6, 8);
    CHECK(s.mean == 3.5);
}

static void test_blocks(void)
{
    for (size_t count = FE_STATISTICS_BLOCK - 1; count <= 3 * FE_STATISTICS_BLOCK + 1; count += FE_STATISTICS_BLOCK) {
        fe_statistics_init(&s, FE_NUMBER_I32);
        for (size_t i = 0; i < count; i++) { /* in rows of one */
            int32_t value = (int32_t)i;
            fe_statistics_add(&s, (char *)&value, 1, 4);
        }
        fe_statistics_finish(&s);
        double n = (double)count;
        CHECK(s.finite == count && s.greatest == (int64_t)count - 1 && s.zeros == 1);
        CHECK(close_to(s.mean, (n - 1) / 2) && close_to(s.m2, n * (n * n - 1) / 12));
    }
}

static void test_facts(void)
{
    for (unsigned n = 0; n < FE_NUMBER_COUNT; n++) {
        CHECK(fe_number_is_integer((fe_number)n) == (n < FE_NUMBER_F16));
        CHECK(fe_number_is_complex((fe_number)n) == (n >= FE_NUMBER_C32));
    }
}

int main(void)
{
    RUN(test_floats);
    RUN(test_what_is_not_finite);
    RUN(test_small_floats);
    RUN(test_floats_of_8_bits);
    RUN(test_integers);
    RUN(test_unsigned_integers);
    RUN(test_complex_numbers);
    RUN(test_strides);
    RUN(test_blocks);
    RUN(test_facts);
    return 0;
}
