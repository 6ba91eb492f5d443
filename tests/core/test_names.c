/* test_names.c - unique names by torch.fx's rules. What torch gives for the same calls is in tests/test_names.py. */
#include "check.h"

/* A name made from a candidate and taken; good until the graph goes. */
static const char *name_for(fe_graph *g, const char *candidate)
{
    char buffer[128];
    fe_new_name n;
    fe_error err;

    DO(fe_name_create(g, fe_name_split(candidate, strlen(candidate), buffer), &n, &err));
    fe_name_take(g, n);
    return n.name->data;
}

static void test_split(void)
{
    static const struct {
        const char *candidate, *base, *name;
        int64_t number;
    } cases[] = {
        {"x", "x", "x", -1},
        {"x_1", "x", "x_1", 1},
        {"x_007", "x", "x_007", 7},
        {"x_1_2", "x_1", "x_1_2", 2},
        {"x1", "x1", "x1", -1},
        {"x_", "x_", "x_", -1},
        {"x__1", "x_", "x__1", 1},
        {"_", "_", "_", -1},
        {"_1", "_1", "_1", -1}, /* a base is never empty */
        {"__1", "_", "__1", 1},
        {"", "_unnamed", "_unnamed", -1},
        {"1x", "_1x", "_1x", -1},
        {"1", "_1", "_1", -1},
        {"a b", "a_b", "a_b", -1},
        {"a -+b", "a_b", "a_b", -1},
        {"a.1", "a", "a_1", 1},
        {"-", "_", "_", -1},
        {"x\n", "x_", "x_", -1}, /* which torch.fx takes as it is */
        {"x_3\n", "x_3_", "x_3_", -1},
        {"x\n\n", "x_", "x_", -1},
        {"x_999999999999999999", "x", "x_999999999999999999", 999999999999999999},
        {"x_99999999999999999999", "x", "x_99999999999999999999", INT64_MAX},
    };
    char buffer[64], base[64], name[64];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fe_candidate c = fe_name_split(cases[i].candidate, strlen(cases[i].candidate), buffer);
        memcpy(base, c.base, c.base_len);
        base[c.base_len] = '\0';
        memcpy(name, c.name, c.name_len);
        name[c.name_len] = '\0';
        CHECK_TEXT(base, cases[i].base);
        CHECK_TEXT(name, cases[i].name);
        CHECK_INT(c.number, cases[i].number);
        CHECK(c.known == NULL);
    }
}

static void test_numbers_count_on(void)
{
    fe_graph *g = graph_new();

    CHECK_TEXT(name_for(g, "x"), "x");
    CHECK_TEXT(name_for(g, "x"), "x_1");
    CHECK_TEXT(name_for(g, "x"), "x_2");
    CHECK_TEXT(name_for(g, "x_1"), "x_3");
    CHECK_TEXT(name_for(g, "x_10"), "x_10");
    CHECK_TEXT(name_for(g, "x"), "x_11");
    CHECK_TEXT(name_for(g, "x_5"), "x_5"); /* the count goes back to 5 */
    CHECK_TEXT(name_for(g, "x"), "x_6");
    CHECK_TEXT(name_for(g, "x_007"), "x_007");
    CHECK_TEXT(name_for(g, "x_007"), "x_8");
    CHECK_TEXT(name_for(g, "x_1_1"), "x_1_1");
    CHECK_TEXT(name_for(g, "x_1"), "x_9");
    CHECK_TEXT(name_for(g, "y_0"), "y_0");
    CHECK_TEXT(name_for(g, "y"), "y");
    CHECK_TEXT(name_for(g, "y"), "y_1");
    fe_graph_free(g);
}

static void test_numbers_without_end(void)
{
    fe_graph *g = graph_new();

    CHECK_TEXT(name_for(g, "x_9223372036854775806"), "x_9223372036854775806");
    CHECK_TEXT(name_for(g, "x_9223372036854775806"), "x_1"); /* names stay unique beyond 64 bits */
    CHECK_TEXT(name_for(g, "x_99999999999999999999"), "x_99999999999999999999");
    CHECK_TEXT(name_for(g, "x_99999999999999999999"), "x_2");
    fe_graph_free(g);
}

static void test_reserved_names(void)
{
    fe_reserved r;
    fe_graph *g;

    DO(fe_reserved_init(&r, &fe_libc_allocator));
    DO(fe_reserved_add(&r, "class", 5));
    DO(fe_reserved_add(&r, "odd_1", 5));
    CHECK((g = fe_graph_new(&fe_libc_allocator, &r)));
    CHECK_TEXT(name_for(g, "class"), "class_1");
    CHECK_TEXT(name_for(g, "class"), "class_2");
    CHECK_TEXT(name_for(g, "class_1"), "class_3");
    CHECK_TEXT(name_for(g, "odd_1"), "odd_1"); /* torch.fx assumes no reserved name ends so */
    CHECK_TEXT(name_for(g, "klass"), "klass");
    fe_graph_free(g);
    fe_reserved_clear(&r);
}

/* Making a name takes nothing yet. */
static void test_not_taken_until_said(void)
{
    fe_graph *g = graph_new();
    char buffer[8];
    fe_new_name n;
    fe_error err;

    for (int i = 0; i < 3; i++) {
        DO(fe_name_create(g, fe_name_split("x", 1, buffer), &n, &err));
        CHECK_TEXT(n.name->data, "x");
    }
    fe_name_take(g, n);
    CHECK_TEXT(name_for(g, "x"), "x_1");
    DO(fe_name_set_counter(g, str(g, "x"), 40, &err));
    CHECK_TEXT(name_for(g, "x"), "x_41");
    DO(fe_name_set_counter(g, str(g, "new"), 6, &err));
    CHECK_TEXT(name_for(g, "new"), "new");
    DO(fe_name_set_counter(g, str(g, "new"), 6, &err));
    CHECK_TEXT(name_for(g, "new"), "new_7");
    fe_graph_free(g);
}

static void test_long_names(void)
{
    fe_graph *g = graph_new();
    char candidate[5000], buffer[5002];
    fe_error err;
    fe_new_name n;

    memset(candidate, 'n', sizeof candidate);
    for (int i = 0; i < 3; i++) {
        DO(fe_name_create(g, fe_name_split(candidate, sizeof candidate, buffer), &n, &err));
        fe_name_take(g, n);
        CHECK_INT(n.name->len, sizeof candidate + (i ? 2 : 0));
    }
    memset(candidate, '.', sizeof candidate);
    fe_candidate c = fe_name_split(candidate, sizeof candidate, buffer);
    CHECK_INT(c.name_len, 1);
    memset(candidate, '7', sizeof candidate); /* the longest a name can grow: "_" before digits */
    c = fe_name_split(candidate, sizeof candidate, buffer);
    CHECK_INT(c.name_len, sizeof candidate + 1);
    fe_graph_free(g);
}

/* The hundred-thousandth name costs what the first does: no search from 1. */
static void test_many_of_one_base(void)
{
    fe_graph *g = graph_new();
    char want[32];

    CHECK_TEXT(name_for(g, "sin"), "sin");
    for (int i = 1; i < 100000; i++)
        name_for(g, "sin_1");
    snprintf(want, sizeof want, "sin_%d", 100000);
    CHECK_TEXT(name_for(g, "sin"), want);
    fe_graph_free(g);
}

static void test_snake_case(void)
{
    static const char *const cases[][2] = {{"relu", "relu"},
                                           {"layerNorm", "layer_norm"},
                                           {"ReLU", "re_lu"},
                                           {"HTTPServer", "httpserver"},
                                           {"aB_cD", "a_b_c_d"},
                                           {"x1Y", "x1y"},
                                           {"", ""},
                                           {"A", "a"}};
    char buffer[64];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t len = fe_name_snake(cases[i][0], strlen(cases[i][0]), buffer);
        buffer[len] = '\0';
        CHECK_TEXT(buffer, cases[i][1]);
    }
}

int main(void)
{
    RUN(test_split);
    RUN(test_numbers_count_on);
    RUN(test_numbers_without_end);
    RUN(test_reserved_names);
    RUN(test_not_taken_until_said);
    RUN(test_long_names);
    RUN(test_many_of_one_base);
    RUN(test_snake_case);
    return 0;
}
