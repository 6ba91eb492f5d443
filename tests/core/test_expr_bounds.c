/* test_expr_bounds.c - ranges of expressions: known cases, and every value of small ranges within what is said of them. */
#include "check.h"
#include "expr.h"

#include <math.h>

#define NONE INT64_MIN /* no end */

static fe_expr must_parse(fe_exprs *pool, const char *text)
{
    fe_expr_error err;
    fe_expr e = fe_expr_parse_str(pool, text, strlen(text), 200, &err);

    if (!e)
        printf("%s: at %zu: %s\n", text, err.at, err.message);
    CHECK(e);
    return e;
}

/* Ranges of the symbols a and b; INT. */
typedef struct {
    int64_t lower[2], upper[2];
} box;

static bool ranges_of(void *ctx, fe_expr symbol, fe_expr_range *out)
{
    const box *b = ctx;
    unsigned i = (unsigned)(symbol->as.symbol.name[0] - 'a');

    if (i > 1)
        return false;
    *out = (fe_expr_range){.kind = FE_VALUE_INT,
                           .has_lower = b->lower[i] != NONE,
                           .has_upper = b->upper[i] != NONE,
                           .lower = b->lower[i],
                           .upper = b->upper[i]};
    return true;
}

/* ---- known ranges ---- */

static void test_integers(void)
{
    static const struct {
        const char *text;
        int64_t a_lower, a_upper, lower, upper; /* b is 2 to 5 */
    } cases[] = {
        {"a + b", 1, 3, 3, 8},
        {"a - b", 1, 3, -4, 1},
        {"a*b", -1, 3, -5, 15},
        {"a*b", 1, NONE, 2, NONE},
        {"a*0", NONE, NONE, 0, 0},
        {"a**2", -3, 2, 0, 9},
        {"a**3", -3, 2, -27, 8},
        {"PowByNatural(2, b)", 0, 0, 4, 32},
        {"a//b", -7, 9, -4, 4},
        {"b//a", -2, 2, -5, 5},
        {"CeilDiv(a, b)", -7, 9, -3, 5},
        {"a % 4", 0, 100, 0, 3},
        {"a % 4", 9, 10, 1, 2},
        {"a % 4", 0, 2, 0, 2},
        {"a % -4", 0, 100, -3, 0},
        {"Mod(a, b)", 0, 1, 0, 1},
        {"ModularIndexing(a, 2, 8)", 0, 5, 0, 2},
        {"Max(a, b)", 0, 3, 2, 5},
        {"Min(a, b)", 0, 3, 0, 3},
        {"Abs(a)", -3, 2, 0, 3},
        {"LShift(a, 2)", -1, 3, -4, 12},
        {"RShift(a, 1)", -3, 5, -2, 2},
        {"BitwiseFn_bitwise_and(a, 7)", NONE, NONE, 0, 7},
        {"BitwiseFn_bitwise_or(a, b)", 0, 9, 2, 15},
        {"BitwiseFn_bitwise_xor(a, 3)", 0, 9, 0, 15},
        {"Where(a > 10, a, b)", 0, 5, 2, 5},
        {"Piecewise((a, a > 10), (b, True))", 0, 5, 2, 5},
        {"Piecewise((a, a > 4), (b, True))", 0, 7, 0, 7},
        {"IsNonOverlappingAndDenseIndicator(a, b)", 0, 5, 0, 1},
        {"CeilToInt(IntTrueDiv(a, 2))", 1, 5, 1, 3},
        {"RoundToInt(a/4)", -2, 2, 0, 0},
        {"a*9223372036854775807", 1, 3, INT64_MAX, NONE},
        {"-a", NONE, 5, -5, NONE},
    };
    fe_exprs *pool = fe_exprs_new(&fe_libc_allocator);

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        box b = {{cases[i].a_lower, 2}, {cases[i].a_upper, 5}};
        fe_expr_range r;
        fe_expr_bounds(must_parse(pool, cases[i].text), ranges_of, &b, &r);
        if (r.kind != FE_VALUE_INT)
            check_failed(__FILE__, __LINE__, cases[i].text);
        check_int(__FILE__, __LINE__, cases[i].text, r.has_lower ? r.lower : NONE, cases[i].lower);
        check_int(__FILE__, __LINE__, cases[i].text, r.has_upper ? r.upper : NONE, cases[i].upper);
    }
    fe_exprs_free(pool);
}

static void test_truth_values(void)
{
    static const struct {
        const char *text;
        int lower, upper; /* a is 1 to 3, b is 3 to 5 */
    } cases[] = {
        {"a <= b", 1, 1},
        {"a < b", 0, 1},
        {"a > b", 0, 0},
        {"a >= b", 0, 1},
        {"Eq(a, 7)", 0, 0},
        {"Ne(a, 7)", 1, 1},
        {"Eq(a, b)", 0, 1},
        {"Eq(a - a, 0)", 1, 1},
        {"a < 4.5", 1, 1},
        {"(a < 9) & (b > 4)", 0, 1},
        {"(a > 9) & (b > 4)", 0, 0},
        {"(a < 9) | (b > 4)", 1, 1},
        {"~(a < 9)", 0, 0},
    };
    fe_exprs *pool = fe_exprs_new(&fe_libc_allocator);
    box b = {{1, 3}, {3, 5}};
    fe_expr_range r;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fe_expr_bounds(must_parse(pool, cases[i].text), ranges_of, &b, &r);
        if (r.kind != FE_VALUE_BOOL)
            check_failed(__FILE__, __LINE__, cases[i].text);
        check_int(__FILE__, __LINE__, cases[i].text, r.lower, cases[i].lower);
        check_int(__FILE__, __LINE__, cases[i].text, r.upper, cases[i].upper);
    }
    fe_exprs_free(pool);
}

static void test_reals(void)
{
    static const struct {
        const char *text;
        double low, high; /* a is 1 to 4, b is 2 to 5 */
    } cases[] = {
        {"a/2", 0.5, 2},
        {"a*0.5 + 1", 1.5, 3},
        {"IntTrueDiv(a, b)", -1, 2},
        {"IntTrueDiv(b, a)", 0.5, 5},
        {"IntTrueDiv(b, a - 2)", -5, 5},
        {"OpaqueUnaryFn_sqrt(a)", 1, 2},
        {"OpaqueUnaryFn_sin(a)", -1, 1},
        {"OpaqueUnaryFn_cosh(a - a)", 1, -1},
        {"ToFloat(a)", 1, 4},
        {"FloatPow(ToFloat(a), 0.5)", 1, 2},
        {"TruncToFloat(a/3)", 0, 1},
        {"1/a", 0.25, 1},
    };
    fe_exprs *pool = fe_exprs_new(&fe_libc_allocator);
    box b = {{1, 2}, {4, 5}};
    fe_expr_range r;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fe_expr_bounds(must_parse(pool, cases[i].text), ranges_of, &b, &r);
        if (r.kind != FE_VALUE_REAL || (cases[i].low >= 0 && r.low != cases[i].low) ||
            (cases[i].high >= 0 && r.high != cases[i].high)) {
            printf("%g %g\n", r.low, r.high);
            check_failed(__FILE__, __LINE__, cases[i].text);
        }
    }
    fe_exprs_free(pool);
}

static void test_assumptions(void)
{
    static const struct {
        const char *symbol;
        int64_t lower, upper;
    } cases[] = {
        {"Symbol('x', positive=True, integer=True)", 1, NONE},
        {"Symbol('x', nonnegative=True, integer=True)", 0, NONE},
        {"Symbol('x', negative=True, integer=True)", NONE, -1},
        {"Symbol('x', integer=True)", NONE, NONE},
    };
    fe_expr_error err;
    fe_expr_range r;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fe_exprs *pool = fe_exprs_new(&fe_libc_allocator);
        fe_expr e = fe_expr_parse_srepr(pool, cases[i].symbol, strlen(cases[i].symbol), 10, &err);
        CHECK(e);
        fe_expr_bounds(e, NULL, NULL, &r);
        CHECK(r.kind == FE_VALUE_INT);
        CHECK_INT(r.has_lower ? r.lower : NONE, cases[i].lower);
        CHECK_INT(r.has_upper ? r.upper : NONE, cases[i].upper);
        fe_exprs_free(pool);
    }
}

/* ---- every value lies within ---- */

static bool values_of(void *ctx, fe_expr symbol, fe_expr_value *out)
{
    const int64_t *values = ctx;

    *out = (fe_expr_value){.kind = FE_VALUE_INT, .p = values[symbol->as.symbol.name[0] - 'a'], .q = 1};
    return true;
}

static bool holds(const fe_expr_range *r, const fe_expr_value *v)
{
    double real = v->kind == FE_VALUE_REAL    ? v->real
                  : v->kind == FE_VALUE_RATIO ? (double)v->p / (double)v->q
                                              : (double)v->p;

    if (r->kind == FE_VALUE_REAL)
        return r->low <= real && real <= r->high;
    if (v->kind == FE_VALUE_REAL || v->kind == FE_VALUE_RATIO)
        return false;
    return (!r->has_lower || r->lower <= v->p) && (!r->has_upper || v->p <= r->upper);
}

/* Each function of two numbers over all ranges within -4 to 4, and all their values. */
static void test_all_values_of_small_ranges(void)
{
    static const char *const unary[] = {"a",
                                        "-a",
                                        "Abs(a)",
                                        "a**2",
                                        "a**3",
                                        "a**-2",
                                        "2**a",
                                        "a/3",
                                        "1/a",
                                        "~(a > 1)",
                                        "CeilToInt(a/2)",
                                        "floor(a/2)",
                                        "RoundToInt(a/2)",
                                        "TruncToInt(a/2)",
                                        "OpaqueUnaryFn_cosh(a)",
                                        "OpaqueUnaryFn_log(a)",
                                        "OpaqueUnaryFn_tan(a)"};
    static const char *const binary[] = {"a + b",
                                         "a - b",
                                         "a*b",
                                         "a//b",
                                         "Mod(a, b)",
                                         "PythonMod(a, b)",
                                         "CeilDiv(a, b)",
                                         "Max(a, b)",
                                         "Min(a, b)",
                                         "PowByNatural(a, b)",
                                         "FloatPow(a, b)",
                                         "IntTrueDiv(a, b)",
                                         "LShift(a, b)",
                                         "RShift(a, b)",
                                         "a < b",
                                         "a <= b",
                                         "a > b",
                                         "a >= b",
                                         "Eq(a, b)",
                                         "Ne(a, b)",
                                         "BitwiseFn_bitwise_and(a, b)",
                                         "BitwiseFn_bitwise_or(a, b)",
                                         "BitwiseFn_bitwise_xor(a, b)",
                                         "Where(a > b, a, b)",
                                         "Piecewise((a, a > b), (b, a < b), (7, True))",
                                         "ModularIndexing(a, b, 3)",
                                         "(a > 0) & (b > 0)",
                                         "(a > 0) | (b > 0)",
                                         "(a//2)//(b/3)",
                                         "(a/2) % b"};
    enum { UNARY = sizeof unary / sizeof *unary, BINARY = sizeof binary / sizeof *binary, END = 4 };
    fe_exprs *pool = fe_exprs_new(&fe_libc_allocator);
    size_t values = 0;

    for (size_t i = 0; i < UNARY + BINARY; i++) {
        fe_expr e = must_parse(pool, i < UNARY ? unary[i] : binary[i - UNARY]);
        box b;
        for (b.lower[0] = -END; b.lower[0] <= END; b.lower[0]++)
            for (b.upper[0] = b.lower[0]; b.upper[0] <= END; b.upper[0]++)
                for (b.lower[1] = -END; b.lower[1] <= (i < UNARY ? -END : END); b.lower[1]++)
                    for (b.upper[1] = b.lower[1]; b.upper[1] <= (i < UNARY ? -END : END); b.upper[1]++) {
                        fe_expr_range r;
                        fe_expr_value v;
                        fe_expr_error err;
                        int64_t point[2];
                        fe_expr_bounds(e, ranges_of, &b, &r);
                        for (point[0] = b.lower[0]; point[0] <= b.upper[0]; point[0]++)
                            for (point[1] = b.lower[1]; point[1] <= b.upper[1]; point[1]++) {
                                if (fe_expr_eval(e, values_of, point, &v, &err) < 0)
                                    continue;
                                values++;
                                if (!holds(&r, &v)) {
                                    printf("a = %d, b = %d\n", (int)point[0], (int)point[1]);
                                    check_failed(__FILE__, __LINE__, i < UNARY ? unary[i] : binary[i - UNARY]);
                                }
                            }
                    }
    }
    CHECK(values > 100000);
    fe_exprs_free(pool);
}

/* The ends of 64 bits: what does not fit becomes infinite, or the last that does. */
static void test_extreme_ends(void)
{
    static const char *const texts[] = {"a + b",
                                        "a - b",
                                        "a*b",
                                        "a//b",
                                        "a % b",
                                        "Abs(a)",
                                        "-a",
                                        "CeilDiv(a, b)",
                                        "LShift(a, b)",
                                        "PowByNatural(a, b)",
                                        "BitwiseFn_bitwise_and(a, b)",
                                        "BitwiseFn_bitwise_or(a, b)",
                                        "BitwiseFn_bitwise_xor(a, b)",
                                        "RShift(a, b)",
                                        "a*a*a",
                                        "ToFloat(a) + ToFloat(b)"};
    static const int64_t ends[] = {INT64_MIN + 1, -2, -1, 0, 1, 2, 63, INT64_MAX - 1, INT64_MAX};
    enum { ENDS = sizeof ends / sizeof *ends };
    fe_exprs *pool = fe_exprs_new(&fe_libc_allocator);

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        fe_expr e = must_parse(pool, texts[i]);
        for (size_t n = 0; n < ENDS * ENDS * ENDS * ENDS; n++) {
            size_t p = n % ENDS, q = n / ENDS % ENDS, r = n / ENDS / ENDS % ENDS, s = n / ENDS / ENDS / ENDS;
            box b = {{ends[p], ends[r]}, {ends[q], ends[s]}};
            fe_expr_range range;
            fe_expr_value v;
            fe_expr_error err;
            if (p > q || r > s)
                continue;
            fe_expr_bounds(e, ranges_of, &b, &range);
            for (size_t x = p; x <= q; x++)
                for (size_t y = r; y <= s; y++) {
                    int64_t point[2] = {ends[x], ends[y]};
                    if (fe_expr_eval(e, values_of, point, &v, &err) == 0 && !holds(&range, &v))
                        check_failed(__FILE__, __LINE__, texts[i]);
                }
        }
    }
    fe_exprs_free(pool);
}

int main(void)
{
    RUN(test_integers);
    RUN(test_truth_values);
    RUN(test_reals);
    RUN(test_assumptions);
    RUN(test_all_values_of_small_ranges);
    RUN(test_extreme_ends);
    return 0;
}
