/* test_expr_make.c - expressions in sympy's form: made, simplified, symbols replaced, copied; Piecewise; memory. */
#include "exprs.h"

#define U0 "Symbol('u0', integer=True)"
#define U1 "Symbol('u1', integer=True)"
#define PIECES "Piecewise(ExprCondPair(Integer(1), Equality(" U0 ", Integer(1))), ExprCondPair(Integer(0), true))"

/* ---- simplified ---- */

/* An srepr as nobody evaluated it, and the str of what sympy and torch make of it. */
static const char *const simplified[][2] = {
    {"Add(Integer(1), Integer(2))", "3"},
    {"Add(" S0 ", " S0 ", Integer(-1))", "2*s0 - 1"},
    {"Mul(Integer(2), Add(" S0 ", Integer(1)))", "2*s0 + 2"},
    {"Mul(Integer(-1), Mul(Integer(-1), " U0 "))", "u0"},
    {"Add(Rational(1, 2), Rational(1, 2))", "1"},
    {"Pow(Pow(" S0 ", Integer(2)), Integer(3))", "s0**6"},
    {"PowByNatural(" S0 ", Integer(2))", "s0**2"},
    {"Pow(Integer(2), Rational(1, 2))", "sqrt(2)"},
    {"Pow(Integer(9), Rational(1, 2))", "3"},
    {"FloorDiv(Mul(Integer(6), " S0 "), Integer(4))", "((3*s0)//2)"},
    {"FloorDiv(Add(Mul(Integer(4), " S0 "), " S1 "), Integer(4))", "s0 + ((s1//4))"},
    {"FloorDiv(Mul(" S0 ", " S1 "), " S0 ")", "s1"},
    {"FloorDiv(FloorDiv(" U0 ", Integer(2)), Integer(3))", "(u0//6)"},
    {"FloorDiv(FloorDiv(" U0 ", Integer(2)), Integer(-3))", "(((u0//2))//(-3))"},
    {"FloorDiv(" U0 ", Integer(-1))", "-u0"},
    {"FloorDiv(Integer(0), " U0 ")", "0"},
    {"FloorDiv(" U0 ", " U0 ")", "1"},
    {"CeilDiv(" S0 ", Integer(2))", "((s0 + 1)//2)"},
    {"CeilDiv(Mul(Integer(4), " S0 "), Integer(2))", "2*s0"},
    {"Mod(Mul(Integer(4), " S0 "), Integer(2))", "0"},
    {"Mod(Add(Mul(Integer(2), " S0 "), Integer(1)), Integer(2))", "1"},
    {"Mod(Integer(1), Add(" S0 ", Integer(1)))", "1"},
    {"PythonMod(" U0 ", Integer(3))", "PythonMod(u0, 3)"},
    {"PythonMod(Integer(-7), Integer(4))", "1"},
    {"ModularIndexing(FloorDiv(" S0 ", Integer(2)), Integer(3), Integer(4))", "ModularIndexing(s0, 6, 4)"},
    {"ModularIndexing(Add(" S0 ", Mul(Integer(8), " S1 ")), Integer(2), Integer(4))", "ModularIndexing(s0, 2, 4)"},
    {"Max(Integer(3), Integer(7), Integer(5))", "7"},
    {"Max(Integer(1), " S0 ")", "s0"},
    {"Max(Integer(0), " U0 ")", "Max(0, u0)"},
    {"Max(" U0 ", Max(" U1 ", " U0 "))", "Max(u0, u1)"},
    {"Max(" U0 ", Min(" U0 ", " U1 "))", "u0"},
    {"Min(Integer(-1), Max(" S0 ", " U0 "))", "-1"},
    {"Max(" S0 ", Mul(Integer(2), " S0 "))", "2*s0"},
    {"Min(Integer(4), oo)", "4"},
    {"Max(Integer(4), oo)", "oo"},
    {"StrictGreaterThan(" S0 ", Integer(0))", "True"},
    {"GreaterThan(" S0 ", Integer(1))", "True"},
    {"StrictGreaterThan(" S0 ", Integer(1))", "s0 > 1"},
    {"LessThan(" U0 ", " U0 ")", "True"},
    {"Equality(Mul(Integer(2), " U0 "), Integer(3))", "False"},
    {"Unequality(" S0 ", Integer(0))", "True"},
    {"And(true, StrictGreaterThan(" U0 ", Integer(1)))", "u0 > 1"},
    {"Or(StrictGreaterThan(" U0 ", Integer(1)), LessThan(" U0 ", Integer(1)))", "True"},
    {"And(StrictGreaterThan(" U0 ", " U1 "), GreaterThan(" U1 ", " U0 "))", "False"},
    {"Not(StrictGreaterThan(" U0 ", Integer(1)))", "u0 <= 1"},
    {"Not(Not(And(StrictGreaterThan(" U0 ", Integer(1)), Equality(" U1 ", Integer(2)))))", "Eq(u1, 2) & (u0 > 1)"},
    {"Where(StrictGreaterThan(" S0 ", Integer(0)), " U0 ", " U1 ")", "u0"},
    {"IntTrueDiv(Integer(7), Integer(2))", "3.50000000000000"},
    {"ToFloat(Integer(2))", "2.00000000000000"},
    {"CeilToInt(Float('2.5', precision=53))", "3"},
    {"LShift(" U0 ", Integer(3))", "8*u0"},
    {"RShift(" U0 ", Integer(3))", "(u0//8)"},
    {"Abs(" S0 ")", "s0"},
    {"floor(" U0 ")", "u0"},
    {"Piecewise(ExprCondPair(" U0 ", StrictGreaterThan(" S0 ", Integer(0))), ExprCondPair(Integer(0), true))", "u0"},
    {"Piecewise(ExprCondPair(" U0 ", StrictLessThan(" S0 ", Integer(0))), ExprCondPair(Integer(5), true))", "5"},
    {PIECES, "Piecewise((1, Eq(u0, 1)), (0, True))"},
};

#define SIMPLIFIED (sizeof simplified / sizeof *simplified)

static void test_simplify(void)
{
    fe_exprs *pool = pool_new(), *other = pool_new();
    fe_expr_error err;

    for (size_t i = 0; i < SIMPLIFIED; i++) {
        fe_expr e = fe_expr_simplify(pool, must_parse(other, simplified[i][0], true), &err);
        CHECK(e);
        CHECK_TEXT(written(fe_expr_str, e), simplified[i][1]);
        CHECK(fe_expr_simplify(pool, e, &err) == e); /* it stays so */
    }
    fe_exprs_free(other);
    fe_exprs_free(pool);
}

/* Floats that are computed are written as sympy writes them. */
static void test_float_texts(void)
{
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {2, "Float('2.0', precision=53)"},
        {0, "Float('0.0', precision=53)"},
        {0.1, "Float('0.10000000000000001', precision=53)"},
        {-1.5, "Float('-1.5', precision=53)"},
        {1e300, "Float('1.0000000000000001e+300', precision=53)"},
        {1e-7, "Float('9.9999999999999995e-8', precision=53)"},
        {1234567, "Float('1234567.0', precision=53)"},
    };
    fe_exprs *pool = pool_new();
    fe_expr_error err;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fe_expr e = fe_expr_float(pool, cases[i].value, &err);
        CHECK(e);
        CHECK_TEXT(written(fe_expr_srepr, e), cases[i].text);
        CHECK(must_parse(pool, cases[i].text, true) == e);
    }
    fe_exprs_free(pool);
}

static void test_simplify_refused(void)
{
    static const struct {
        const char *text;
        fe_expr_fault fault;
    } cases[] = {
        {"FloorDiv(" U0 ", Add(Integer(1), Integer(-1)))", FE_EXPR_DIVISION},
        {"Mod(" U0 ", Mul(Integer(0), " U1 "))", FE_EXPR_DIVISION},
        {"Add(Integer(9223372036854775807), " U0 ", Integer(1))", FE_EXPR_RANGE},
        {"Pow(Add(Integer(1), Integer(-1)), Integer(-1))", FE_EXPR_DIVISION},
        {"PowByNatural(Integer(2), Add(Integer(60), Integer(4)))", FE_EXPR_RANGE},
    };
    fe_exprs *pool = pool_new();
    fe_expr_error err;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK(!fe_expr_simplify(pool, must_parse(pool, cases[i].text, true), &err));
        check_int(__FILE__, __LINE__, cases[i].text, err.fault, cases[i].fault);
    }
    fe_expr none = must_parse(pool, U0, true), wrong = must_parse(pool, "Equality(" U0 ", Integer(1))", true);
    CHECK(!fe_expr_make(pool, FE_EXPR_ADD, &wrong, 1, &err) && err.fault == FE_EXPR_MEANING);
    CHECK(!fe_expr_make(pool, FE_EXPR_MOD, &none, 1, &err) && err.fault == FE_EXPR_MEANING);
    CHECK(!fe_expr_make(pool, FE_EXPR_AND, &wrong, 0, &err) && err.fault == FE_EXPR_MEANING);
    CHECK(!fe_expr_make(pool, FE_EXPR_NOT, (fe_expr[]){must_parse(pool, "u9 + 1", false)}, 1, &err));
    fe_exprs_free(pool);
}

/* A tree that shares its parts is as large as it looks when it is written out, and has a limit. */
static void test_size_is_bounded(void)
{
    fe_exprs *pool = pool_new();
    fe_expr_error err = {.fault = FE_EXPR_OK};
    fe_expr pair[2] = {must_parse(pool, U0, true), must_parse(pool, U1, true)};
    int rounds = 0;

    for (; rounds < 100; rounds++) {
        fe_expr e = fe_expr_make(pool, FE_EXPR_PYTHON_MOD, pair, 2, &err);
        if (!e)
            break;
        pair[0] = pair[1];
        pair[1] = e;
    }
    CHECK(rounds > 10 && rounds < 60);
    CHECK_INT(err.fault, FE_EXPR_RANGE);
    fe_exprs_free(pool);
}

/* ---- symbols replaced ---- */

typedef struct {
    fe_expr s0, u0;
} given;

static fe_expr replace(void *ctx, fe_expr symbol)
{
    const given *g = ctx;

    return strcmp(symbol->as.symbol.name, "s0") == 0 ? g->s0 : strcmp(symbol->as.symbol.name, "u0") == 0 ? g->u0 : NULL;
}

static void test_substitute(void)
{
    static const struct {
        const char *text, *s0, *u0, *result;
    } cases[] = {
        {"s0 + u0 + s1", "3", "4", "s1 + 7"},
        {"s0 + u0", "u0", "s0", "s0 + u0"}, /* at once, not one after another */
        {"(s0//2)*s1", "2*s1", "1", "s1**2"},
        {"Max(s0, u0)", "1", "2", "2"},
        {"s0 > u0", "4", "4", "False"},
        {"(s0 > 1) & (u0 > 1)", "2", "u0", "u0 > 1"},
        {"Piecewise((1, Eq(u0, 1)), (0, True))", "1", "1", "1"},
        {"Piecewise((s0, Eq(u0, 1)), (7, True))", "1", "2", "7"},
        {"5", "1", "2", "5"},
        {"s1", "1", "2", "s1"},
    };
    fe_exprs *pool = pool_new(), *other = pool_new();
    fe_expr_error err;

    must_parse(other, "Add(" S0 ", " S1 ", " U0 ")", true);
    must_parse(pool, "Add(" S0 ", " S1 ", " U0 ")", true);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        given g = {must_parse(pool, cases[i].s0, false), must_parse(pool, cases[i].u0, false)};
        fe_expr e = fe_expr_substitute(pool, must_parse(other, cases[i].text, false), replace, &g, &err);
        CHECK(e);
        CHECK_TEXT(written(fe_expr_str, e), cases[i].result);
    }
    given zero = {must_parse(pool, "0", false), must_parse(pool, "1", false)};
    CHECK(!fe_expr_substitute(pool, must_parse(other, "u0//s0", false), replace, &zero, &err));
    CHECK_INT(err.fault, FE_EXPR_DIVISION);
    fe_exprs_free(other);
    fe_exprs_free(pool);
}

static void test_copy(void)
{
    fe_exprs *pool = pool_new(), *other = pool_new();
    fe_expr_error err;

    for (size_t i = 0; i < SIMPLIFIED; i++) {
        fe_expr e = fe_expr_copy(pool, must_parse(other, simplified[i][0], true), &err);
        CHECK(e);
        CHECK_TEXT(written(fe_expr_srepr, e), simplified[i][0]); /* as it was */
        CHECK(must_parse(pool, simplified[i][0], true) == e);
    }
    fe_exprs_free(other);
    fe_exprs_free(pool);
}

/* ---- Piecewise ---- */

static bool one_value(void *ctx, fe_expr symbol, fe_expr_value *out)
{
    (void)symbol;
    *out = (fe_expr_value){.kind = FE_VALUE_INT, .p = *(int64_t *)ctx, .q = 1};
    return true;
}

static void test_piecewise(void)
{
    static const char three[] = "Piecewise(ExprCondPair(" S0 ", StrictGreaterThan(" S0 ", Integer(2))), "
                                "ExprCondPair(Integer(-1), StrictLessThan(" S0 ", Integer(1))))";
    fe_exprs *pool = pool_new();
    fe_expr_error err;
    fe_expr_value v;
    fe_expr e = must_parse(pool, PIECES, true);

    CHECK_TEXT(written(fe_expr_srepr, e), PIECES);
    CHECK(must_parse(pool, "Piecewise((1, Eq(u0, 1)), (0, True))", false) == e);
    CHECK(!fe_expr_size_fault(e));
    for (int64_t x = 0; x < 3; x++) {
        DO(fe_expr_eval(e, one_value, &x, &v, &err));
        CHECK(v.kind == FE_VALUE_INT && v.p == (x == 1));
    }
    e = must_parse(pool, three, true);
    CHECK_TEXT(written(fe_expr_str, e), "Piecewise((s0, s0 > 2), (-1, s0 < 1))");
    CHECK(must_parse(pool, written(fe_expr_str, e), false) == e);
    int64_t x = 2;
    CHECK(fe_expr_eval(e, one_value, &x, &v, &err) < 0 && err.fault == FE_EXPR_MEANING);
    fe_exprs_free(pool);
}

static void refuse(const char *text, bool srepr, fe_expr_fault fault)
{
    fe_exprs *pool = pool_new();
    fe_expr_error err;
    fe_expr e = srepr ? fe_expr_parse_srepr(pool, text, strlen(text), 200, &err)
                      : fe_expr_parse_str(pool, text, strlen(text), 200, &err);

    if (e || err.fault != fault)
        check_failed(__FILE__, __LINE__, text);
    fe_exprs_free(pool);
}

static void test_piecewise_refused(void)
{
    refuse("Piecewise()", true, FE_EXPR_MEANING);
    refuse("Piecewise(Integer(1))", true, FE_EXPR_MEANING);
    refuse("ExprCondPair(Integer(1), true)", true, FE_EXPR_MEANING);
    refuse("ExprCondPair(true, true)", true, FE_EXPR_MEANING);
    refuse("Piecewise(ExprCondPair(Integer(1), Integer(1)))", true, FE_EXPR_MEANING);
    refuse("Add(ExprCondPair(Integer(1), true), Integer(1))", true, FE_EXPR_MEANING);
    refuse("Equality(ExprCondPair(Integer(1), true), ExprCondPair(Integer(2), true))", true, FE_EXPR_MEANING);
    refuse("And(ExprCondPair(Integer(1), true))", true, FE_EXPR_MEANING);
    refuse("Piecewise(1, 2)", false, FE_EXPR_SYNTAX);
    refuse("Piecewise((1, u0, 3))", false, FE_EXPR_SYNTAX);
    refuse("Piecewise((1, 2))", false, FE_EXPR_MEANING);
    refuse("ExprCondPair(1, True)", false, FE_EXPR_FUNCTION);
}

/* ---- memory ---- */

static void test_no_memory(void)
{
    fe_exprs *other = pool_new();
    fe_expr parsed[SIMPLIFIED];
    test_memory memory;
    size_t failures = 0;

    for (size_t i = 0; i < SIMPLIFIED; i++)
        parsed[i] = must_parse(other, simplified[i][0], true);
    for (size_t nth = 0;; nth++) {
        fe_expr_error err = {.fault = FE_EXPR_OK};
        size_t done = 0;
        memory_init(&memory);
        memory_fail(&memory, nth, true);
        fe_exprs *pool = fe_exprs_new(&memory.allocator);
        while (pool && done < SIMPLIFIED && fe_expr_simplify(pool, parsed[done], &err) &&
               fe_expr_copy(pool, parsed[done], &err))
            done++;
        if (pool && done < SIMPLIFIED) {
            CHECK_INT(err.fault, FE_EXPR_NO_MEMORY);
            memory_fail(&memory, SIZE_MAX, false);
            for (size_t i = 0; i < SIMPLIFIED; i++) { /* the pool is as good as before */
                fe_expr e = fe_expr_simplify(pool, parsed[i], &err);
                CHECK(e);
                CHECK_TEXT(written(fe_expr_str, e), simplified[i][1]);
            }
        }
        failures += done < SIMPLIFIED;
        fe_exprs_free(pool);
        CHECK_INT(memory.blocks, 0);
        if (done == SIMPLIFIED)
            break;
    }
    CHECK(failures > 3);
    fe_exprs_free(other);
}

int main(void)
{
    RUN(test_simplify);
    RUN(test_float_texts);
    RUN(test_simplify_refused);
    RUN(test_size_is_bounded);
    RUN(test_substitute);
    RUN(test_copy);
    RUN(test_piecewise);
    RUN(test_piecewise_refused);
    RUN(test_no_memory);
    return 0;
}
