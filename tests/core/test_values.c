/* test_values.c - trees of argument values: making, freeing, copying, comparing, hashing. */
#include "check.h"

#include <math.h>

static uint32_t object_new(fe_graph *g)
{
    uint32_t object;
    fe_error err;

    DO(fe_object_new(g, &object, &err));
    fe_object_ref(g, object); /* ours */
    return object;
}

static fe_value complex_value(fe_graph *g, double real, double imag)
{
    fe_value v;
    fe_error err;

    DO(fe_value_complex(g, real, imag, &v, &err));
    return v;
}

static fe_value real_value(double x)
{
    return (fe_value){.kind = FE_FLOAT, .as.real = x};
}

/* A tree with every kind of value in it. */
static fe_seq *every_kind(fe_graph *g, uint32_t object, uint32_t type)
{
    fe_error err;
    fe_seq *s = seq_new(g, 11), *tuple = fe_seq_new(g, 2, type, &err), *list = seq_new(g, 1), *dict = seq_new(g, 2);
    fe_seq *slice = seq_new(g, 3);

    CHECK(tuple);
    tuple->items[0] = value_node(node(g, "x"));
    tuple->items[1] = (fe_value){.kind = FE_OBJECT, .as.object = object};
    list->items[0] = value_int(-1);
    dict->items[0] = value_str(g, "key");
    dict->items[1] = value_node(node(g, "x"));
    slice->items[0] = slice->items[2] = (fe_value){.kind = FE_NONE};
    slice->items[1] = value_node(node(g, "y"));
    s->items[0] = (fe_value){.kind = FE_NONE};
    s->items[1] = (fe_value){.kind = FE_BOOL, .as.boolean = true};
    s->items[2] = value_int(INT64_MIN);
    s->items[3] = real_value(1.5);
    s->items[4] = complex_value(g, 1, -0.0);
    s->items[5] = value_str(g, "text");
    s->items[6] = (fe_value){.kind = FE_OBJECT, .as.object = object};
    s->items[7] = value_seq(FE_TUPLE, tuple);
    s->items[8] = value_seq(FE_LIST, list);
    s->items[9] = value_seq(FE_DICT, dict);
    s->items[10] = value_seq(FE_SLICE, slice);
    fe_object_ref(g, object);
    fe_object_ref(g, object);
    return s;
}

static void test_a_tree_gives_back_what_it_took(void)
{
    fe_graph *g = graph_of("x; y");
    uint32_t object = object_new(g), type = object_new(g);
    fe_seq *s = every_kind(g, object, type);

    CHECK_INT(g->object_refs[object], 3);
    CHECK_INT(g->object_refs[type], 2);
    CHECK_INT(fe_seq_node_count(s), 3);
    size_t bytes = g->arena.bytes;
    fe_seq_free(g, s);
    CHECK_INT(g->object_refs[object], 1);
    CHECK_INT(g->object_refs[type], 1);
    for (int i = 0; i < 100; i++)
        fe_seq_free(g, every_kind(g, object, type));
    CHECK_INT(g->arena.bytes, bytes); /* blocks went back to the arena */
    CHECK_INT(g->dead_count, 0);
    fe_object_unref(g, object);
    CHECK_INT(g->dead_count, 1);
    fe_graph_free(g);
}

static void test_empty_and_too_long(void)
{
    fe_graph *g = graph_new();
    fe_error err;
    fe_seq *copy = (fe_seq *)g;

    fe_seq_free(g, NULL);
    CHECK_INT(fe_seq_node_count(NULL), 0);
    DO(fe_seq_copy(g, &(fe_value_map){.nodes = NULL}, NULL, &copy, &err));
    CHECK(!copy);
    fe_seq *s = seq_new(g, 0);
    CHECK_INT(s->len, 0);
    fe_seq_free(g, s);
    CHECK(!fe_seq_new(g, UINT32_MAX, FE_NONE_ID, &err));
    CHECK_INT(err.code, FE_TOO_LARGE);
    fe_graph_free(g);
}

/* Into another graph: strings are interned there, ids go through the maps. */
static void test_copy(void)
{
    fe_graph *g = graph_of("x; y"), *h = graph_of("p; q; x; y");
    uint32_t object = object_new(g), type = object_new(g), map[8] = {0}, nodes[8] = {0};
    fe_error err;
    fe_seq *s = every_kind(g, object, type), *copy;

    object_new(h);
    map[object] = object_new(h);
    map[type] = object_new(h);
    nodes[node(g, "x")] = node(h, "x");
    nodes[node(g, "y")] = node(h, "y");
    DO(fe_seq_copy(h, &(fe_value_map){.nodes = nodes, .objects = map}, s, &copy, &err));
    CHECK(copy->items[5].as.string == str(h, "text"));
    CHECK_INT(copy->items[6].as.object, map[object]);
    CHECK_INT(copy->items[7].as.seq->type, map[type]);
    CHECK_INT(copy->items[7].as.seq->items[0].as.node, node(h, "x"));
    CHECK_INT(copy->items[10].as.seq->items[1].as.node, node(h, "y"));
    CHECK(copy->items[4].as.complex != s->items[4].as.complex);
    CHECK(copy->items[4].as.complex[0] == 1 && signbit(copy->items[4].as.complex[1]));
    CHECK_INT(h->object_refs[map[object]], 3);
    CHECK_INT(h->object_refs[map[type]], 2);
    fe_seq_free(h, copy);
    CHECK_INT(h->object_refs[map[object]], 1);

    /* Within one graph, without maps. */
    DO(fe_seq_copy(g, &(fe_value_map){.nodes = NULL}, s, &copy, &err));
    CHECK(fe_value_equal(value_seq(FE_TUPLE, s), value_seq(FE_TUPLE, copy), NULL));
    CHECK(fe_value_hash(value_seq(FE_TUPLE, s), NULL) == fe_value_hash(value_seq(FE_TUPLE, copy), NULL));
    fe_graph_free(g);
    fe_graph_free(h);
}

/* Values that differ in one thing only: no two are equal, and each equals itself. */
static void test_equality(void)
{
    fe_graph *g = graph_of("x; y");
    uint32_t type = object_new(g), object = object_new(g);
    fe_error err;
    fe_seq *typed = fe_seq_new(g, 0, type, &err), *other_type = fe_seq_new(g, 0, object, &err);
    fe_seq *one = seq_new(g, 1), *two = seq_new(g, 2), *nested = seq_new(g, 1);

    one->items[0] = value_int(1);
    two->items[0] = value_int(1);
    two->items[1] = value_int(1);
    nested->items[0] = value_seq(FE_TUPLE, seq_new(g, 0));
    fe_value values[] = {
        {.kind = FE_NONE},
        {.kind = FE_BOOL, .as.boolean = false},
        {.kind = FE_BOOL, .as.boolean = true},
        value_int(0),
        value_int(1),
        value_int(-1),
        value_int(INT64_MIN),
        real_value(0.0),
        real_value(-0.0),
        real_value(1.0),
        real_value((double)NAN),
        complex_value(g, 0, 0),
        complex_value(g, 0, -0.0),
        complex_value(g, -0.0, 0),
        complex_value(g, 1, 0),
        complex_value(g, 0, 1),
        value_str(g, ""),
        value_str(g, "0"),
        value_str(g, "None"),
        value_node(node(g, "x")),
        value_node(node(g, "y")),
        {.kind = FE_OBJECT, .as.object = type},
        {.kind = FE_OBJECT, .as.object = object},
        value_seq(FE_TUPLE, seq_new(g, 0)),
        value_seq(FE_LIST, seq_new(g, 0)),
        value_seq(FE_DICT, seq_new(g, 0)),
        value_seq(FE_TUPLE, typed),
        value_seq(FE_TUPLE, other_type),
        value_seq(FE_TUPLE, one),
        value_seq(FE_LIST, one),
        value_seq(FE_TUPLE, two),
        value_seq(FE_TUPLE, nested),
    };
    const size_t count = sizeof values / sizeof *values;

    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < count; k++)
            CHECK_INT(fe_value_equal(values[i], values[k], NULL), i == k);
    }
    /* Not promised, but what the hash is for: among so few there should be no collision. */
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < i; k++) {
            bool halves = values[i].kind == FE_COMPLEX && values[k].kind == FE_COMPLEX;
            bool types = fe_kind_is_seq(values[i].kind) && fe_kind_is_seq(values[k].kind);
            CHECK(halves || types || fe_value_hash(values[i], NULL) != fe_value_hash(values[k], NULL));
        }
    }
    fe_graph_free(g);
}

/* An alias makes nodes stand for others. */
static void test_equality_by_alias(void)
{
    fe_graph *g = graph_of("x; y; z");
    uint32_t alias[4] = {0, 1, 1, 3};
    fe_seq *a = seq_new(g, 1), *b = seq_new(g, 1);

    a->items[0] = value_node(node(g, "x"));
    b->items[0] = value_node(node(g, "y"));
    CHECK(!fe_value_equal(value_seq(FE_TUPLE, a), value_seq(FE_TUPLE, b), NULL));
    CHECK(fe_value_equal(value_seq(FE_TUPLE, a), value_seq(FE_TUPLE, b), alias));
    CHECK(fe_value_hash(value_seq(FE_TUPLE, a), alias) == fe_value_hash(value_seq(FE_TUPLE, b), alias));
    b->items[0] = value_node(node(g, "z"));
    CHECK(!fe_value_equal(value_seq(FE_TUPLE, a), value_seq(FE_TUPLE, b), alias));
    fe_graph_free(g);
}

/* As deep as trees may be. */
static void test_depth(void)
{
    fe_graph *g = graph_of("x");
    fe_seq *top = seq_new(g, 1), *s = top, *copy;
    fe_error err;

    for (int depth = 1; depth < FE_MAX_DEPTH; depth++) {
        fe_seq *inner = seq_new(g, 1);
        s->items[0] = value_seq(depth % 2 ? FE_LIST : FE_TUPLE, inner);
        s = inner;
    }
    s->items[0] = value_node(node(g, "x"));
    CHECK_INT(fe_seq_node_count(top), 1);
    DO(fe_seq_copy(g, &(fe_value_map){.nodes = NULL}, top, &copy, &err));
    CHECK(fe_value_equal(value_seq(FE_TUPLE, top), value_seq(FE_TUPLE, copy), NULL));
    CHECK(fe_value_hash(value_seq(FE_TUPLE, top), NULL) == fe_value_hash(value_seq(FE_TUPLE, copy), NULL));
    fe_seq_free(g, copy);
    make_node(g, FE_OP_CALL_METHOD, target_of(g, FE_OP_CALL_METHOD, "deep"), "deep", top, NULL);
    CHECK_TEXT(operands(g, "deep"), "x");
    CHECK_SOUND(g);
    char *text = text_of(g);
    CHECK(strlen(text) > 2 * FE_MAX_DEPTH);
    free(text);
    fe_graph_free(g);
}

int main(void)
{
    RUN(test_a_tree_gives_back_what_it_took);
    RUN(test_empty_and_too_long);
    RUN(test_copy);
    RUN(test_equality);
    RUN(test_equality_by_alias);
    RUN(test_depth);
    return 0;
}
