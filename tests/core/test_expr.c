/* test_expr.c - symbolic expressions: texts read and written, what is refused, order, values, memory. */
#include "exprs.h"

#include <math.h>

/* ---- texts ---- */

static void test_texts(void)
{
    /* srepr, and the str that sympy 1.14 prints for it */
    static const char *const cases[][2] = {
        {S0, "s0"},
        {"Symbol('u0')", "u0"},
        {"Integer(-7)", "-7"},
        {"Integer(9223372036854775807)", "9223372036854775807"},
        {"Integer(-9223372036854775808)", "-9223372036854775808"},
        {"Add(" S0 ", Integer(1))", "s0 + 1"},
        {"Add(" S0 ", Integer(-1))", "s0 - 1"},
        {"Add(Integer(4), Mul(Integer(-1), Integer(3), " S0 "))", "4 - 3*s0"},
        {"Add(Mul(Integer(2), " S0 "), Integer(2))", "2*s0 + 2"},
        {"Add(Mul(Integer(-1), " S0 "), Mul(Integer(-1), " S1 "))", "-s0 - s1"},
        {"Mul(" S0 ", " S1 ")", "s0*s1"},
        {"Mul(Integer(-1), " S0 ", Add(" S0 ", " S1 "))", "-s0*(s0 + s1)"},
        {"Pow(" S0 ", Integer(2))", "s0**2"},
        {"Pow(" S0 ", Integer(-1))", "1/s0"},
        {"Pow(" S0 ", Rational(1, 2))", "sqrt(s0)"},
        {"Pow(" S0 ", Rational(-1, 2))", "1/sqrt(s0)"},
        {"Mul(Rational(1, 2), " S0 ")", "s0/2"},
        {"Mul(Rational(-3, 4), " S0 ", Pow(" S1 ", Integer(-2)))", "-3*s0/(4*s1**2)"},
        {"FloorDiv(" S0 ", Integer(2))", "(s0//2)"},
        {"Mul(Integer(2), FloorDiv(Add(" S0 ", " S1 "), Integer(2)))", "2*(((s0 + s1)//2))"},
        {"Add(" S0 ", Mul(Integer(-1), FloorDiv(" S1 ", Integer(2))))", "s0 - ((s1//2))"},
        {"Mod(" S0 ", Integer(2))", "Mod(s0, 2)"},
        {"Add(Mod(" S0 ", Integer(2)), Integer(1))", "(Mod(s0, 2)) + 1"},
        {"Max(Integer(1), " S0 ")", "Max(1, s0)"},
        {"IntTrueDiv(" S0 ", Integer(2))", "IntTrueDiv(s0, 2)"},
        {"Identity(Add(" S0 ", Integer(1)))", "(s0 + 1)"},
        {"GreaterThan(" S0 ", Integer(0))", "s0 >= 0"},
        {"Equality(" S0 ", " S1 ")", "Eq(s0, s1)"},
        {"And(StrictGreaterThan(" S0 ", Integer(1)), StrictLessThan(" S1 ", Integer(2)))", "(s0 > 1) & (s1 < 2)"},
        {"Or(Unequality(" S0 ", " S1 "), Not(Equality(" S0 ", Integer(2))))", "Ne(s0, s1) | ~(Eq(s0, 2))"},
        {"true", "True"},
        {"oo", "oo"},
        {"-int_oo", "-int_oo"},
        {"Float('2.5', precision=53)", "2.50000000000000"},
        {"Mul(Float('0.10000000000000001', precision=53), " S0 ")", "0.1*s0"},
        {"Float('1.0000000000000001e-30', precision=53)", "1.00000000000000e-30"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fe_exprs *pool = pool_new();
        fe_expr e = must_parse(pool, cases[i][0], true);
        CHECK_TEXT(written(fe_expr_srepr, e), cases[i][0]);
        CHECK(must_parse(pool, cases[i][0], true) == e);
        /* "Or(..., ~(Eq(..)))" is one that sympy itself would not leave so */
        if (!strchr(cases[i][1], '~'))
            CHECK_TEXT(written(fe_expr_str, e), cases[i][1]);
        fe_exprs_free(pool);
    }
}

static void test_str_form(void)
{
    /* a str, and the srepr that sympy has for it */
    static const char *const cases[][2] = {
        {"s0 + 1", "Add(" S0 ", Integer(1))"},
        {"1 + s0", "Add(" S0 ", Integer(1))"},
        {"2*(s0 + 1)", "Add(Mul(Integer(2), " S0 "), Integer(2))"},
        {"s1 + s0 + s0 - 2*s0 + 3", "Add(" S1 ", Integer(3))"},
        {"4 - 3*s0", "Add(Integer(4), Mul(Integer(-1), Integer(3), " S0 "))"},
        {"s1*s0*2", "Mul(Integer(2), " S0 ", " S1 ")"},
        {"s0*s0**2/s0", "Pow(" S0 ", Integer(2))"},
        {"-s0", "Mul(Integer(-1), " S0 ")"},
        {"s0 - s0", "Integer(0)"},
        {"(s0//2)", "FloorDiv(" S0 ", Integer(2))"},
        {"s0 % 2", "Mod(" S0 ", Integer(2))"},
        {"2**-1*s0", "Mul(Rational(1, 2), " S0 ")"},
        {"Max(1, s0)", "Max(Integer(1), " S0 ")"},
        {"s0 >= 2", "GreaterThan(" S0 ", Integer(2))"},
        {"(s0 > 1) & ~(s1 > 2)",
         "And(StrictGreaterThan(" S0 ", Integer(1)), Not(StrictGreaterThan(" S1 ", Integer(2))))"},
    };
    fe_exprs *pool = pool_new();

    must_parse(pool, "Add(" S0 ", " S1 ")", true); /* a str has no assumptions: the pool's symbols serve */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fe_expr e = must_parse(pool, cases[i][0], false);
        CHECK_TEXT(written(fe_expr_srepr, e), cases[i][1]);
        CHECK(must_parse(pool, cases[i][1], true) == e);
    }
    CHECK_TEXT(written(fe_expr_srepr, must_parse(pool, "u7", false)), "Symbol('u7')");
    fe_exprs_free(pool);
}

/* ---- what is refused ---- */

static void refuse(const char *text, bool srepr, uint32_t depth, fe_expr_fault fault, size_t at)
{
    fe_exprs *pool = pool_new();
    fe_expr_error err;
    fe_expr e = srepr ? fe_expr_parse_srepr(pool, text, strlen(text), depth, &err)
                      : fe_expr_parse_str(pool, text, strlen(text), depth, &err);

    if (e || err.fault != fault || err.at != at)
        printf("%s: fault %d at %zu: %s\n", text, e ? 0 : (int)err.fault, e ? 0 : err.at, e ? "" : err.message);
    CHECK(!e && err.fault == fault && err.at == at && err.message[0]);
    fe_exprs_free(pool);
}

static void test_refused(void)
{
    refuse("", true, 200, FE_EXPR_SYNTAX, 0);
    refuse("__import__('os').mkdir('RAN_CODE')", true, 200, FE_EXPR_FUNCTION, 0);
    refuse("Symbol(__import__('os'))", true, 200, FE_EXPR_SYNTAX, 7);
    refuse("Symbol('s 0')", true, 200, FE_EXPR_SYNTAX, 9);
    refuse("Symbol(' s0')", true, 200, FE_EXPR_SYNTAX, 11);
    refuse("Symbol('s0', evil=True)", true, 200, FE_EXPR_SYNTAX, 17);
    refuse("Symbol('s0', integer=1)", true, 200, FE_EXPR_SYNTAX, 21);
    refuse("Symbol('s0', integer=True, integer=True)", true, 200, FE_EXPR_SYNTAX, 34);
    refuse("Symbol.__subclasses__()", true, 200, FE_EXPR_SYNTAX, 0);
    refuse("Evil(" S0 ")", true, 200, FE_EXPR_FUNCTION, 0);
    refuse("Integer(1) + Integer(2)", true, 200, FE_EXPR_SYNTAX, 11);
    refuse("Integer(01)", true, 200, FE_EXPR_SYNTAX, 8);
    refuse("Integer(9223372036854775808)", true, 200, FE_EXPR_RANGE, 8);
    refuse("Integer(1.5)", true, 200, FE_EXPR_SYNTAX, 9);
    refuse("Rational(1, 0)", true, 200, FE_EXPR_DIVISION, 14);
    refuse("Float('nan', precision=53)", true, 200, FE_EXPR_SYNTAX, 7);
    refuse("Float('inf', precision=53)", true, 200, FE_EXPR_SYNTAX, 7);
    refuse("Float('1e999', precision=53)", true, 200, FE_EXPR_SYNTAX, 7);
    refuse("Float('1.5')", true, 200, FE_EXPR_SYNTAX, 11);
    refuse("nan", true, 200, FE_EXPR_SYNTAX, 0);
    refuse("zoo", true, 200, FE_EXPR_SYNTAX, 0);
    refuse("Mod(" S0 ", Integer(0))", true, 200, FE_EXPR_DIVISION, 0);
    refuse("Add(FloorDiv(" S0 ", Integer(0)), Integer(1))", true, 200, FE_EXPR_DIVISION, 4);
    refuse("LShift(Integer(1), Integer(1000000000))", true, 200, FE_EXPR_MEANING, 0);
    refuse("LShift(" S0 ", Integer(63))", true, 200, FE_EXPR_MEANING, 0);
    refuse("Pow(" S0 ", Integer(1000000000))", true, 200, FE_EXPR_MEANING, 0);
    refuse("Pow(Integer(10), Integer(60))", true, 200, FE_EXPR_RANGE, 0);
    refuse("Mul(Integer(4294967296), Integer(4294967296), " S0 ")", true, 200, FE_EXPR_RANGE, 0);
    refuse("Add()", true, 200, FE_EXPR_MEANING, 0);
    refuse("Mod(" S0 ")", true, 200, FE_EXPR_MEANING, 0);
    refuse("Add(StrictLessThan(" S0 ", Integer(1)), Integer(1))", true, 200, FE_EXPR_MEANING, 0);
    refuse("And(" S0 ", Integer(1))", true, 200, FE_EXPR_MEANING, 0);
    refuse("Add(" S0, true, 200, FE_EXPR_SYNTAX, 4 + sizeof S0 - 1);
    refuse("Add(Add(Add(Integer(1))))", true, 3, FE_EXPR_DEPTH, 12);
    refuse(")(", false, 200, FE_EXPR_SYNTAX, 0);
    refuse("__import__('os').mkdir('RAN_CODE')", false, 200, FE_EXPR_FUNCTION, 0);
    refuse("s0 +", false, 200, FE_EXPR_SYNTAX, 4);
    refuse("s0 s1", false, 200, FE_EXPR_SYNTAX, 3);
    refuse("s0//0", false, 200, FE_EXPR_DIVISION, 0);
    refuse("0**-1", false, 200, FE_EXPR_DIVISION, 1);
    refuse("9**99", false, 200, FE_EXPR_MEANING, 1);
    refuse("s0.real", false, 200, FE_EXPR_SYNTAX, 2);
    refuse("s0 < s1 < 3", false, 200, FE_EXPR_SYNTAX, 8);
    refuse("((((1))))", false, 6, FE_EXPR_DEPTH, 3);
}

/* Nesting is bounded by the limit, and no limit can be asked for that the stack would not hold. */
static void test_depth(void)
{
    enum { DEPTH = 100000 };
    static char text[5 * DEPTH + 1];
    fe_exprs *pool = pool_new();
    fe_expr_error err;

    for (int i = 0; i < DEPTH; i++)
        memcpy(text + 4 * i, "Abs(", 4);
    CHECK(!fe_expr_parse_srepr(pool, text, 4 * DEPTH, UINT32_MAX, &err) && err.fault == FE_EXPR_DEPTH);
    memset(text, '(', DEPTH);
    CHECK(!fe_expr_parse_str(pool, text, DEPTH, UINT32_MAX, &err) && err.fault == FE_EXPR_DEPTH);
    memset(text, '-', DEPTH);
    CHECK(!fe_expr_parse_str(pool, text, DEPTH, UINT32_MAX, &err) && err.fault == FE_EXPR_DEPTH);
    /* wide is not deep */
    for (int i = 0; i < DEPTH; i++)
        memcpy(text + 3 * i, "s0+", 3);
    fe_expr e = fe_expr_parse_str(pool, text, 3 * DEPTH - 1, 10, &err);
    CHECK(e);
    CHECK_TEXT(written(fe_expr_str, e), "100000*s0");
    fe_exprs_free(pool);
}

/* A short text that asks for much: each bracket multiplies all that stands inside. */
static void test_work(void)
{
    enum { LEVELS = 150, TERMS = 4000 };
    static char text[3 * LEVELS + 7 * TERMS];
    fe_exprs *pool = pool_new();
    fe_expr_error err;
    size_t len = 0;

    for (int i = 0; i < LEVELS; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "-(");
    for (int i = 0; i < TERMS; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "a%d+", i);
    text[len - 1] = ')';
    for (int i = 1; i < LEVELS; i++)
        text[len++] = ')';
    CHECK(!fe_expr_parse_str(pool, text, len, 1000, &err) && err.fault == FE_EXPR_RANGE);
    CHECK(fe_exprs_count(pool) < 4 * TERMS);
    must_parse(pool, "2*(s0 + 1)", false); /* the next text has its own allowance */
    fe_exprs_free(pool);
}

/* ---- facts ---- */

static int count_symbols(void *ctx, fe_expr part)
{
    *(int *)ctx += part->op == FE_EXPR_SYMBOL;
    return 0;
}

static void test_facts(void)
{
    fe_exprs *pool = pool_new();
    fe_expr e = must_parse(pool, "Add(Mul(Integer(2), " S0 "), " S1 ", FloorDiv(" S0 ", Integer(2)))", true);
    int symbols = 0;

    CHECK_INT(fe_expr_walk(e, count_symbols, &symbols), 0);
    CHECK_INT(symbols, 3);
    CHECK_INT(e->depth, 3);
    CHECK_INT(e->size, 8);
    CHECK_INT(fe_exprs_count(pool), 6);
    CHECK(fe_expr_find_symbol(pool, "s0", 2) == e->args[0]->args[1]);
    CHECK(!fe_expr_find_symbol(pool, "s", 1));
    CHECK(fe_expr_assumes(fe_expr_find_symbol(pool, "s0", 2), "positive"));
    CHECK(!fe_expr_assumes(fe_expr_find_symbol(pool, "s0", 2), "real"));
    CHECK(!fe_expr_size_fault(e));
    CHECK_TEXT(fe_expr_size_fault(must_parse(pool, "Integer(-5)", true)), "is negative");
    CHECK_TEXT(fe_expr_size_fault(must_parse(pool, "Float('1.5', precision=53)", true)), "is not an integer");
    CHECK_TEXT(fe_expr_size_fault(must_parse(pool, "int_oo", true)), "is infinite");
    CHECK_TEXT(fe_expr_size_fault(must_parse(pool, "StrictLessThan(" S0 ", Integer(1))", true)), "is a truth value");
    fe_exprs_free(pool);
}

/* ---- values ---- */

static bool two_sizes(void *ctx, fe_expr symbol, fe_expr_value *out)
{
    int64_t *sizes = ctx;

    if (strcmp(symbol->as.symbol.name, "s0") != 0 && strcmp(symbol->as.symbol.name, "s1") != 0)
        return false;
    *out = (fe_expr_value){.kind = FE_VALUE_INT, .p = sizes[symbol->as.symbol.name[1] - '0'], .q = 1};
    return true;
}

static void test_values(void)
{
    static const struct {
        const char *text;
        int64_t value;
    } cases[] = {
        {"s0 + 2*s1 - 1", 7 - 8 - 1},
        {"s0//2", 3},
        {"s1//3", -2},
        {"s1 % 3", 2},
        {"s0 % -3", -2},
        {"Max(1, s0, s1)", 7},
        {"Min(1, s0, s1)", -4},
        {"s0**3", 343},
        {"sqrt(s0 + 2)", 3},
        {"CeilDiv(s0, 2)", 4},
        {"ModularIndexing(s0, 2, 2)", 1},
        {"Where(s0 > s1, 10, 20)", 10},
        {"LShift(s0, 3)", 56},
        {"RShift(s1, 1)", -2},
        {"CeilToInt(IntTrueDiv(s0, 2))", 4},
        {"FloorToInt(IntTrueDiv(s0, 2))", 3},
        {"TruncToInt(IntTrueDiv(s1, 3))", -1},
        {"RoundToInt(2.5)", 2},
        {"Abs(s1)", 4},
        {"PowByNatural(2, s0)", 128},
        {"IsNonOverlappingAndDenseIndicator(2, 3, 3, 1)", 1},
        {"IsNonOverlappingAndDenseIndicator(2, 3, 1, 2)", 1},
        {"IsNonOverlappingAndDenseIndicator(2, 3, 4, 1)", 0},
        {"BitwiseFn_bitwise_and(s0, 5)", 5},
        {"Identity(s0)", 7},
        {"s0/2 + s0/2", 7},
        {"(s0 > 1) & (s1 > 1)", 0},
        {"(s0 > 1) | (s1 > 1)", 1},
        {"~(s0 > 1)", 0},
        {"s0 | s1", 1}, /* a truth value, though its operands are none */
        {"s1 & (s0 > 7)", 0},
        {"Eq(s0, 7.0)", 1},
        {"s0 < oo", 1},
    };
    int64_t sizes[2] = {7, -4};
    fe_exprs *pool = pool_new();
    fe_expr_error err;
    fe_expr_value v;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (fe_expr_eval(must_parse(pool, cases[i].text, false), two_sizes, sizes, &v, &err) < 0)
            check_failed(__FILE__, __LINE__, cases[i].text);
        CHECK(v.kind == FE_VALUE_INT || v.kind == FE_VALUE_BOOL);
        check_int(__FILE__, __LINE__, cases[i].text, v.p, cases[i].value);
    }
    DO(fe_expr_eval(must_parse(pool, "s0/2", false), two_sizes, sizes, &v, &err));
    CHECK(v.kind == FE_VALUE_RATIO && v.p == 7 && v.q == 2);
    DO(fe_expr_eval(must_parse(pool, "IntTrueDiv(s0, 2)", false), two_sizes, sizes, &v, &err));
    CHECK(v.kind == FE_VALUE_REAL && v.real == 3.5);
    fe_exprs_free(pool);
}

static void test_values_refused(void)
{
    static const struct {
        const char *text;
        fe_expr_fault fault;
    } cases[] = {
        {"s0*s0", FE_EXPR_RANGE},
        {"s0 + s0", FE_EXPR_RANGE},
        {"s0**64", FE_EXPR_RANGE},
        {"LShift(s0, 62)", FE_EXPR_RANGE},
        {"s0//s1", FE_EXPR_DIVISION},
        {"s0 % s1", FE_EXPR_DIVISION},
        {"IntTrueDiv(s0, s1)", FE_EXPR_DIVISION},
        {"1/s1", FE_EXPR_DIVISION},
        {"CeilToInt(oo)", FE_EXPR_RANGE},
        {"oo*s1", FE_EXPR_MEANING},
        {"s0 + nope", FE_EXPR_UNKNOWN},
        {"LShift(s1, s0 + 1 - s0 - 2)", FE_EXPR_MEANING},
    };
    int64_t sizes[2] = {INT64_MAX, 0};
    fe_exprs *pool = pool_new();
    fe_expr_error err;
    fe_expr_value v;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fe_expr e = fe_expr_parse_str(pool, cases[i].text, strlen(cases[i].text), 200, &err);
        if (e ? fe_expr_eval(e, two_sizes, sizes, &v, &err) == 0 : cases[i].fault != FE_EXPR_MEANING)
            check_failed(__FILE__, __LINE__, cases[i].text);
        check_int(__FILE__, __LINE__, cases[i].text, err.fault, cases[i].fault);
    }
    sizes[0] = INT64_MIN;
    sizes[1] = -1;
    CHECK(fe_expr_eval(must_parse(pool, "s0//s1", false), two_sizes, sizes, &v, &err) < 0);
    CHECK_INT(err.fault, FE_EXPR_RANGE);
    DO(fe_expr_eval(must_parse(pool, "s0 % s1", false), two_sizes, sizes, &v, &err));
    CHECK_INT(v.p, 0);
    fe_exprs_free(pool);
}

/* ---- memory ---- */

static void test_no_memory(void)
{
    static const char srepr[] =
        "Add(Mul(Integer(2), " S1 ", " S0 "), Max(" S0 ", Integer(1)), Float('2.5', precision=53))";
    static const char str[] = "3*(s1 + s0 + 2*s0**2 - a*b*c) // 2 + f0 % 7 - (s0*s1)**2/5";
    test_memory memory;
    size_t failures = 0;

    for (size_t nth = 0;; nth++) {
        fe_expr_error err = {.fault = FE_EXPR_OK};
        memory_init(&memory);
        memory_fail(&memory, nth, true);
        fe_exprs *pool = fe_exprs_new(&memory.allocator);
        fe_expr e = pool ? fe_expr_parse_srepr(pool, srepr, sizeof srepr - 1, 200, &err) : NULL;
        fe_expr f = e ? fe_expr_parse_str(pool, str, sizeof str - 1, 200, &err) : NULL;
        if (pool && !f) {
            CHECK_INT(err.fault, FE_EXPR_NO_MEMORY);
            memory_fail(&memory, SIZE_MAX, false);
            e = fe_expr_parse_srepr(pool, srepr, sizeof srepr - 1, 200, &err);
            CHECK(e); /* the pool is as good as before */
            CHECK_TEXT(written(fe_expr_srepr, e), srepr);
        }
        failures += !f;
        fe_exprs_free(pool);
        CHECK_INT(memory.blocks, 0);
        if (f)
            break;
    }
    CHECK(failures > 3);
}

/* Many different expressions: the table grows, and what was there is found again. */
static void test_many(void)
{
    fe_exprs *pool = pool_new();
    fe_expr_error err;

    for (int64_t round = 0; round < 2; round++) {
        for (int64_t i = 0; i < 5000; i++) {
            CHECK(fe_expr_integer(pool, i * i, &err));
            CHECK_INT(fe_exprs_count(pool), round ? 5000 : i + 1);
        }
    }
    fe_exprs_free(pool);
}

int main(void)
{
    RUN(test_texts);
    RUN(test_str_form);
    RUN(test_refused);
    RUN(test_depth);
    RUN(test_work);
    RUN(test_facts);
    RUN(test_values);
    RUN(test_values_refused);
    RUN(test_no_memory);
    RUN(test_many);
    return 0;
}
