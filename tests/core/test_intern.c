/* test_intern.c - strings, targets and reserved names: equal ones are the same one. */
#include "check.h"

static void test_strings(void)
{
    fe_graph *g = graph_new();
    fe_string *all[5000];
    char text[32];
    fe_error err;

    CHECK(!fe_string_find(&g->strings, "a", 1));
    CHECK_INT(str(g, "")->len, 0);
    CHECK(str(g, "") == str(g, ""));
    CHECK(str(g, "a") != str(g, "b"));
    for (int i = 0; i < 5000; i++) {
        snprintf(text, sizeof text, "name_%d", i);
        all[i] = str(g, text);
        CHECK_INT(all[i]->owner, FE_NONE_ID);
        CHECK(!all[i]->used);
    }
    for (int i = 0; i < 5000; i++) {
        snprintf(text, sizeof text, "name_%d", i);
        CHECK(str(g, text) == all[i]);
        CHECK(fe_string_find(&g->strings, text, strlen(text)) == all[i]);
        CHECK(fe_string_is_in(&g->strings, all[i]));
        CHECK_TEXT(all[i]->data, text);
    }
    CHECK(!fe_string_find(&g->strings, "name_5000", 9));

    /* A NUL is a character like any other. */
    fe_string *a = fe_string_get(g, "a\0b", 3, &err), *b = fe_string_get(g, "a\0c", 3, &err);
    CHECK(a && b && a != b && a != str(g, "a"));
    CHECK(fe_string_get(g, "a\0b", 3, &err) == a);
    CHECK(!fe_string_get(g, "", UINT32_MAX, &err));
    CHECK_INT(err.code, FE_TOO_LARGE);
    fe_graph_free(g);
}

/* Strings that differ only in one place, at every place and length around a machine word. */
static void test_strings_that_differ_little(void)
{
    fe_graph *g = graph_new();
    char text[40];
    fe_error err;

    for (size_t len = 1; len < sizeof text; len++) {
        memset(text, 'x', sizeof text);
        fe_string *plain = fe_string_get(g, text, len, &err);
        for (size_t at = 0; at < len; at++) {
            text[at] = 'y';
            fe_string *other = fe_string_get(g, text, len, &err);
            CHECK(other != plain);
            CHECK(fe_string_get(g, text, len, &err) == other);
            text[at] = 'x';
        }
        CHECK(fe_string_get(g, text, len, &err) == plain);
    }
    fe_graph_free(g);
}

static void test_targets(void)
{
    fe_graph *g = graph_new();
    uint32_t first, again, object, other, targets[500];
    char text[32];
    bool is_new;
    fe_error err;

    DO(fe_target_get(g, FE_OP_CALL_METHOD, FE_NONE_ID, str(g, "relu"), &first, &is_new, &err));
    CHECK(is_new);
    DO(fe_target_get(g, FE_OP_CALL_METHOD, FE_NONE_ID, str(g, "relu"), &again, &is_new, &err));
    CHECK(!is_new && again == first);
    DO(fe_target_get(g, FE_OP_CALL_MODULE, FE_NONE_ID, str(g, "relu"), &again, &is_new, &err));
    CHECK(is_new && again != first);
    CHECK_INT(g->targets[again].op, FE_OP_CALL_MODULE);

    DO(fe_object_new(g, &object, &err));
    DO(fe_target_get(g, FE_OP_CALL_FUNCTION, object, NULL, &other, &is_new, &err));
    CHECK(is_new);
    CHECK_INT(g->object_refs[object], 1);
    g->targets[other].text = str(g, "add"); /* the stem: no part of the identity */
    DO(fe_target_get(g, FE_OP_CALL_FUNCTION, object, NULL, &again, &is_new, &err));
    CHECK(!is_new && again == other);
    CHECK_INT(g->object_refs[object], 1);
    DO(fe_target_get(g, FE_OP_CALL_FUNCTION, FE_NONE_ID, str(g, "add"), &again, &is_new, &err));
    CHECK(is_new);
    for (int i = 0; i < 500; i++) {
        snprintf(text, sizeof text, "method_%d", i);
        targets[i] = target_of(g, FE_OP_CALL_METHOD, text);
    }
    for (int i = 0; i < 500; i++) {
        snprintf(text, sizeof text, "method_%d", i);
        CHECK_INT(target_of(g, FE_OP_CALL_METHOD, text), targets[i]);
        CHECK_TEXT(g->targets[targets[i]].text->data, text);
    }
    fe_graph_free(g);
}

static void test_reserved(void)
{
    test_memory m;
    fe_reserved r;
    fe_graph *g = graph_new();

    memory_init(&m);
    DO(fe_reserved_init(&r, &m.allocator));
    CHECK(!fe_string_find(&r.strings, "class", 5));
    DO(fe_reserved_add(&r, "class", 5));
    DO(fe_reserved_add(&r, "class", 5));
    CHECK_INT(r.strings.count, 1);
    CHECK(fe_string_is_in(&r.strings, str(g, "class"))); /* of another table */
    CHECK(!fe_string_is_in(&r.strings, str(g, "klass")));
    fe_reserved_clear(&r);
    CHECK_INT(m.blocks, 0);
    fe_reserved_clear(&r); /* twice is allowed */
    fe_graph_free(g);
}

int main(void)
{
    RUN(test_strings);
    RUN(test_strings_that_differ_little);
    RUN(test_targets);
    RUN(test_reserved);
    return 0;
}
