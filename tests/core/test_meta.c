/* test_meta.c - meta of nodes, references to objects, and the signature of an exported program. */
#include "check.h"

static uint32_t object_new(fe_graph *g)
{
    uint32_t object;
    fe_error err;

    DO(fe_object_new(g, &object, &err));
    return object;
}

static void set(fe_graph *g, uint32_t id, uint32_t key, uint32_t object)
{
    fe_error err;

    DO(fe_meta_set(g, id, key, object, &err));
}

/* The next dead object, or FE_NONE_ID. */
static uint32_t dead(fe_graph *g)
{
    uint32_t object;

    return fe_object_take_dead(g, &object) ? object : FE_NONE_ID;
}

static void test_meta(void)
{
    fe_graph *g = graph_of("x; y");
    uint32_t x = node(g, "x"), a = object_new(g), b = object_new(g);

    CHECK_INT(fe_meta_get(g->details[x].meta, 1), FE_NONE_ID);
    CHECK_INT(fe_meta_get(NULL, FE_NONE_ID), FE_NONE_ID);
    CHECK(!fe_meta_delete(g, x, 1));
    fe_meta_clear(g, x);
    set(g, x, 1, a);
    set(g, x, 7, a);
    set(g, node(g, "y"), 1, a); /* one object for many nodes */
    CHECK_INT(g->object_refs[a], 3);
    set(g, x, 1, a); /* by itself */
    CHECK_INT(g->object_refs[a], 3);
    set(g, x, 1, b); /* keeps its place */
    CHECK_INT(g->object_refs[a], 2);
    CHECK_INT(g->details[x].meta->entries[0].key, 1);
    CHECK_INT(fe_meta_get(g->details[x].meta, 1), b);
    CHECK_INT(fe_meta_get(g->details[x].meta, 7), a);
    CHECK(fe_meta_delete(g, x, 1));
    CHECK(!fe_meta_delete(g, x, 1));
    CHECK_INT(g->details[x].meta->len, 1);
    CHECK_INT(g->details[x].meta->entries[0].key, 7);
    CHECK_INT(dead(g), b);
    fe_meta_clear(g, x);
    CHECK(!g->details[x].meta);
    CHECK_INT(g->object_refs[a], 1);
    CHECK_INT(dead(g), FE_NONE_ID);
    fe_graph_free(g);
}

static void test_meta_grows(void)
{
    fe_graph *g = graph_of("x");
    uint32_t x = node(g, "x"), a = object_new(g);
    fe_error err;

    for (uint32_t key = 0; key < 100; key++)
        set(g, x, key, a);
    for (uint32_t key = 0; key < 100; key++)
        CHECK_INT(fe_meta_get(g->details[x].meta, key), a);
    for (uint32_t key = 0; key < 100; key += 2)
        CHECK(fe_meta_delete(g, x, key));
    for (uint32_t i = 0; i < 50; i++)
        CHECK_INT(g->details[x].meta->entries[i].key, 2 * i + 1);
    CHECK_INT(g->object_refs[a], 50);
    DO(fe_meta_reserve(g, x, 200, &err));
    fe_meta *m = g->details[x].meta;
    for (uint32_t key = 100; key < 250; key++)
        set(g, x, key, a);
    CHECK(g->details[x].meta == m); /* room was there */
    DO(fe_meta_reserve(g, x, 0, &err));
    DO(fe_meta_reserve(g, x, 10, &err));
    CHECK(g->details[x].meta == m);
    fe_meta_clear(g, x);
    CHECK_INT(dead(g), a);
    fe_graph_free(g);
}

/* Who loses its last reference waits for the owner; its index comes back once the owner has taken it. */
static void test_objects(void)
{
    fe_graph *g = graph_new();
    uint32_t a = object_new(g), b = object_new(g), c = object_new(g);

    CHECK(a != b && b != c && a != c);
    fe_object_ref(g, a);
    fe_object_ref(g, a);
    fe_object_ref(g, b);
    fe_object_unref(g, a);
    CHECK_INT(dead(g), FE_NONE_ID);
    fe_object_unref(g, a);
    fe_object_unref(g, b);
    CHECK_INT(g->dead_count, 2);
    CHECK_INT(object_new(g), 3); /* no index is free before it is taken */
    CHECK_INT(dead(g), b);
    CHECK_INT(dead(g), a);
    CHECK_INT(dead(g), FE_NONE_ID);
    CHECK_INT(object_new(g), a);
    CHECK_INT(object_new(g), b);
    CHECK_INT(object_new(g), 4);
    CHECK_INT(g->object_refs[a], 0);
    fe_graph_free(g);
}

/* In use again while it waits: then it isn't dead; and it waits but once. */
static void test_objects_that_come_back(void)
{
    fe_graph *g = graph_new();
    uint32_t a = object_new(g);

    for (int i = 0; i < 100; i++) { /* as often as there is room in the list */
        fe_object_ref(g, a);
        fe_object_unref(g, a);
    }
    CHECK_INT(g->dead_count, 1);
    fe_object_ref(g, a);
    fe_object_ref(g, a);
    CHECK_INT(dead(g), FE_NONE_ID);
    CHECK_INT(g->object_refs[a], 2);
    fe_object_unref(g, a);
    fe_object_unref(g, a);
    CHECK_INT(dead(g), a);
    fe_graph_free(g);
}

static void test_many_objects(void)
{
    fe_graph *g = graph_new();

    for (uint32_t i = 0; i < 1000; i++) {
        CHECK_INT(object_new(g), i);
        fe_object_ref(g, i);
    }
    for (uint32_t i = 0; i < 1000; i++)
        fe_object_unref(g, i);
    for (uint32_t i = 0; i < 1000; i++)
        CHECK(dead(g) < 1000);
    CHECK_INT(dead(g), FE_NONE_ID);
    for (uint32_t i = 0; i < 1000; i++)
        CHECK(object_new(g) < 1000);
    CHECK_INT(object_new(g), 1000);
    fe_graph_free(g);
}

static void add_input(fe_graph *g, const char *name, fe_input_kind kind)
{
    fe_error err;

    DO(fe_signature_add_input(g->signature, (fe_spec){.kind = kind, .node = node(g, name)}, &err));
}

static void add_output(fe_graph *g, const char *name, fe_output_kind kind)
{
    fe_error err;

    DO(fe_signature_add_output(g->signature, (fe_spec){.kind = kind, .node = node(g, name)}, &err));
}

/* The nodes of the signature by name: "x y -> a b". */
static const char *signature_of(const fe_graph *g)
{
    static test_text t;
    const fe_signature *s = g->signature;

    t = (test_text){.len = 0};
    for (uint32_t i = 0; i < s->input_count; i++)
        text_name(&t, g, s->inputs[i].node);
    text_add(&t, " ->", 3);
    for (uint32_t i = 0; i < s->output_count; i++)
        text_name(&t, g, s->outputs[i].node);
    return t.data;
}

/* The signature follows what is done to the graph. */
static void test_signature(void)
{
    fe_graph *g = graph_of("p; x; y; a = f x; b = g a; return (b,a,b)");
    fe_error err;

    CHECK((g->signature = fe_signature_new(g->allocator)));
    add_input(g, "p", FE_INPUT_PARAMETER);
    add_input(g, "x", FE_INPUT_USER);
    add_input(g, "y", FE_INPUT_USER);
    add_output(g, "b", FE_OUTPUT_BUFFER_MUTATION);
    add_output(g, "a", FE_OUTPUT_USER);
    add_output(g, "b", FE_OUTPUT_USER);
    CHECK_TEXT(signature_of(g), "p x y -> b a b");

    DO(fe_node_replace_all_uses(g, node(g, "b"), node(g, "a"), &err));
    CHECK_TEXT(signature_of(g), "p x y -> a a a");
    build(g, "c = f a");
    fe_node_place(g, node(g, "c"), (fe_point){node(g, "output"), false});
    DO(fe_node_replace_operand(g, node(g, "output"), node(g, "a"), node(g, "c"), &err));
    CHECK_TEXT(signature_of(g), "p x y -> c c c");
    DO(fe_node_replace_operand(g, node(g, "c"), node(g, "a"), node(g, "x"), &err)); /* not the output's business */
    CHECK_TEXT(signature_of(g), "p x y -> c c c");
    fe_node_set_name(g, node(g, "c"), str(g, "result"));
    fe_node_set_name(g, node(g, "x"), str(g, "renamed"));
    fe_node_erase(g, node(g, "p"));
    CHECK_TEXT(signature_of(g), "renamed y -> result result result");
    fe_node_erase(g, node(g, "b")); /* no input */
    fe_node_erase(g, node(g, "y"));
    CHECK_TEXT(signature_of(g), "renamed -> result result result");
    CHECK_INT(g->signature->outputs[0].kind, FE_OUTPUT_BUFFER_MUTATION);
    fe_graph_free(g);
    fe_signature_free(NULL);
}

static void test_signature_grows(void)
{
    test_memory m;
    fe_error err;

    memory_init(&m);
    fe_signature *s = fe_signature_new(&m.allocator);
    CHECK(s);
    for (uint32_t i = 0; i < 100; i++) {
        DO(fe_signature_add_input(s, (fe_spec){.node = i}, &err));
        DO(fe_signature_add_output(s, (fe_spec){.node = i % 2}, &err));
    }
    fe_signature_forget_input(s, 0);
    fe_signature_forget_input(s, 99);
    fe_signature_forget_input(s, 50);
    fe_signature_forget_input(s, 1000);
    CHECK_INT(s->input_count, 97);
    CHECK_INT(s->inputs[0].node, 1);
    CHECK_INT(s->inputs[48].node, 49);
    CHECK_INT(s->inputs[49].node, 51);
    CHECK_INT(s->inputs[96].node, 98);
    fe_signature_replace_output(s, 1, 7);
    for (uint32_t i = 0; i < 100; i++)
        CHECK_INT(s->outputs[i].node, i % 2 ? 7 : 0);
    fe_signature_free(s);
    CHECK_INT(m.blocks, 0);
}

static void test_report(void)
{
    fe_report r;
    fe_error err;

    fe_report_init(&r, &fe_libc_allocator);
    for (uint32_t i = 0; i < 100; i++)
        DO(fe_report_add(&r, (uint8_t)i, i, i + 1, &err));
    CHECK_INT(r.len, 100);
    for (uint32_t i = 0; i < 100; i++)
        CHECK(r.items[i].code == i && r.items[i].node == i && r.items[i].other == i + 1);
    fe_report_clear(&r);
    CHECK_INT(r.len, 0);
    fe_report_clear(&r);
}

int main(void)
{
    RUN(test_meta);
    RUN(test_meta_grows);
    RUN(test_objects);
    RUN(test_objects_that_come_back);
    RUN(test_many_objects);
    RUN(test_signature);
    RUN(test_signature_grows);
    RUN(test_report);
    return 0;
}
