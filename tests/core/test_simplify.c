/* test_simplify.c - common subexpressions, constants and no-ops in the core: what is found, and running out of memory. */
#include "check.h"
#include "simplify.h"

/* The report as "node>other" pairs. */
static const char *pairs(const fe_graph *g, const fe_report *r)
{
    static test_text t;

    t = (test_text){.len = 0};
    for (uint32_t i = 0; i < r->len; i++) {
        text_name(&t, g, r->items[i].node);
        text_name(&t, g, r->items[i].other);
    }
    return t.data;
}

static void flag_target(fe_graph *g, const char *name, uint32_t flags)
{
    g->targets[g->nodes[node(g, name)].target].flags |= flags;
}

static const char *equal_calls(fe_graph *g, const uint32_t *facts, bool fx_policy)
{
    const fe_cse_options o = {.facts = facts, .fx_policy = fx_policy};
    static fe_report found;
    fe_error err;

    fe_report_init(&found, &fe_libc_allocator);
    DO(fe_find_common_subexpressions(g, &o, &found, &err));
    const char *text = pairs(g, &found);
    DO(fe_merge_getitems(g, &found, 0, &err));
    CHECK_SOUND(g);
    fe_report_clear(&found);
    return text;
}

static void test_trees_are_found_in_one_walk(void)
{
    fe_graph *g = graph_of("x; a = f x; b = f x; c = h a x; d = h b x; e = h x b; return c d e");
    uint32_t facts[16] = {0};

    CHECK_TEXT(equal_calls(g, facts, false), "b a d c");
    CHECK_TEXT(order(g), "x a c e output");
    CHECK_TEXT(equal_calls(g, facts, false), "");
    fe_graph_free(g);
}

static void test_writes_keep_apart(void)
{
    fe_graph *g = graph_of("x; a = f x; w = write x; b = f x; return a b");
    uint32_t facts[16] = {0};

    flag_target(g, "w", FE_TARGET_MUTATES);
    CHECK_TEXT(equal_calls(g, facts, false), "");
    CHECK_TEXT(equal_calls(g, facts, true), "b a");
    fe_graph_free(g);
}

static void test_only_what_is_written_counts(void)
{
    fe_graph *g = graph_of("x; y = f x; a = h x; w = write y; b = h x; return a b");
    uint32_t facts[16] = {0};

    facts[g->nodes[node(g, "y")].target] = FE_MEMORY_FRESH;
    facts[g->nodes[node(g, "w")].target] = FE_MEMORY_COPIES | 1u << FE_MEMORY_SHIFT;
    facts[g->nodes[node(g, "a")].target] = FE_MEMORY_FRESH;
    flag_target(g, "w", FE_TARGET_MUTATES);
    CHECK_TEXT(equal_calls(g, facts, false), "b a");
    fe_graph_free(g);
}

static void test_constants(void)
{
    fe_graph *g = graph_of("x; w = @weight; a = f w; b = f a; c = h b x; return c");
    uint32_t facts[16] = {0};
    uint8_t nodes[16] = {0};
    fe_error err;

    facts[g->nodes[node(g, "c")].target] = FE_MEMORY_FRESH;
    nodes[node(g, "w")] = FE_FOLD_KNOWN;
    DO(fe_find_constants(g, facts, nodes, &err));
    CHECK_INT(nodes[node(g, "a")], FE_FOLD_COMPUTE);
    CHECK_INT(nodes[node(g, "b")], FE_FOLD_COMPUTE | FE_FOLD_KEEP);
    CHECK_INT(nodes[node(g, "c")], FE_FOLD_RETURNED);
    fe_graph_free(g);
}

static void test_constants_that_are_written_to(void)
{
    fe_graph *g = graph_of("x; w = @weight; v = @value; a = f w; b = f a; s = write w; c = f v; d = h b x c; return d");
    uint32_t facts[16] = {0};
    uint8_t nodes[16] = {0};
    fe_error err;

    facts[g->nodes[node(g, "a")].target] = FE_MEMORY_FRESH;
    facts[g->nodes[node(g, "s")].target] = FE_MEMORY_COPIES | 1u << FE_MEMORY_SHIFT;
    facts[g->nodes[node(g, "d")].target] = FE_MEMORY_FRESH;
    flag_target(g, "s", FE_TARGET_MUTATES);
    nodes[node(g, "w")] = FE_FOLD_KNOWN;
    DO(fe_find_constants(g, facts, nodes, &err));
    CHECK_INT(nodes[node(g, "w")], 0);
    CHECK_INT(nodes[node(g, "a")] | nodes[node(g, "b")] | nodes[node(g, "s")], 0);
    CHECK_INT(nodes[node(g, "c")], 0);
    fe_graph_free(g);
}

static void test_noops_in_a_row(void)
{
    fe_graph *g = graph_of("x; a = f x; b = f a; c = h b; return c");
    uint8_t kinds[16] = {0};
    uint32_t facts[16] = {0};
    fe_report found;
    fe_error err;

    kinds[g->nodes[node(g, "a")].target] = FE_NOOP_ALIAS;
    fe_report_init(&found, &fe_libc_allocator);
    DO(fe_find_noops(g, kinds, &found, &err));
    CHECK_TEXT(pairs(g, &found), "a x b a");
    DO(fe_keep_safe_noops(g, facts, &found, &err));
    CHECK_TEXT(pairs(g, &found), "a x b x");
    DO(fe_merge_getitems(g, &found, 0, &err));
    CHECK_SOUND(g);
    CHECK_TEXT(order(g), "x c output");
    fe_report_clear(&found);
    fe_graph_free(g);
}

static void test_constants_that_are_returned(void)
{
    fe_graph *g = graph_of("x; w = @weight; a = f w; b = view a; c = f w; d = h c x; return b d");
    uint32_t facts[16] = {0};
    uint8_t nodes[16] = {0};
    fe_error err;

    facts[g->nodes[node(g, "a")].target] = FE_MEMORY_FRESH;
    facts[g->nodes[node(g, "d")].target] = FE_MEMORY_ARITHMETIC;
    nodes[node(g, "w")] = FE_FOLD_KNOWN;
    DO(fe_find_constants(g, facts, nodes, &err));
    CHECK_INT(nodes[node(g, "a")], FE_FOLD_RETURNED);
    CHECK_INT(nodes[node(g, "b")], FE_FOLD_RETURNED);
    CHECK_INT(nodes[node(g, "c")], FE_FOLD_COMPUTE | FE_FOLD_KEEP);
    fe_graph_free(g);
}

/* Let a buffer become a node that is returned. */
static void update_by(fe_graph *g, const char *name)
{
    fe_error err;

    g->signature = fe_signature_new(g->allocator);
    CHECK(g->signature);
    DO(fe_signature_add_output(g->signature, (fe_spec){.kind = FE_OUTPUT_BUFFER_MUTATION, .node = node(g, name)},
                               &err));
}

static void test_what_a_buffer_becomes_is_not_returned_too(void)
{
    fe_graph *g = graph_of("x; a = f x; b = f x; c = f x; d = h c; return b a d");
    uint32_t facts[16] = {0};

    update_by(g, "a");
    CHECK_TEXT(equal_calls(g, facts, false), "c a");
    CHECK_TEXT(equal_calls(g, facts, true), "b a");
    fe_graph_free(g);
}

static void test_results_of_a_subgraph_stay_apart(void)
{
    fe_graph *g = graph_of("x; a = f x; b = f x; c = h x; d = h x; v = view c; w = view d; e = f x; return a v w b");
    uint32_t facts[16] = {0};
    const fe_cse_options o = {.facts = facts, .is_inner = true};
    fe_report found;
    fe_error err;

    facts[g->nodes[node(g, "a")].target] = FE_MEMORY_FRESH;
    facts[g->nodes[node(g, "c")].target] = FE_MEMORY_FRESH;
    facts[g->nodes[node(g, "v")].target] = FE_MEMORY_VIEW;
    fe_report_init(&found, &fe_libc_allocator);
    DO(fe_find_common_subexpressions(g, &o, &found, &err));
    CHECK_TEXT(pairs(g, &found), "e a");
    fe_report_clear(&found);
    CHECK_TEXT(equal_calls(g, facts, false), "b a d c w v e a");
    fe_graph_free(g);
}

/* The pairs of no-ops that may go: f gives its operand back, copy makes a copy. */
static const char *noops(fe_graph *g)
{
    static fe_report found;
    uint8_t kinds[16] = {0};
    uint32_t facts[16] = {0};
    fe_error err;

    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT; id = g->nodes[id].next) {
        uint32_t target = g->nodes[id].target;
        const char *name = g->details[id].name->data;
        kinds[target] = *name == 'c' ? FE_NOOP_CLONE : *name == 'a' ? FE_NOOP_ALIAS : FE_NOOP_NONE;
        facts[target] = *name == 'c' || *name == 'n' ? FE_MEMORY_FRESH : 0;
    }
    fe_report_init(&found, &fe_libc_allocator);
    DO(fe_find_noops(g, kinds, &found, &err));
    DO(fe_keep_safe_noops(g, facts, &found, &err));
    const char *text = pairs(g, &found);
    fe_report_clear(&found);
    return text;
}

static void test_copies_that_are_returned(void)
{
    static const struct {
        const char *graph, *update, *gone;
    } cases[] = {
        {"x; n = f x; c = copy n; return c", NULL, "c n"},
        {"x; n = f x; c = copy n; return n c", NULL, ""},
        {"x; n = f x; a = view n; c = copy a; return n c", NULL, "a n"},
        {"x; n = f x; c1 = copy n; c2 = copy n; return c1 c2", NULL, "c1 n"},
        {"x; c = copy x; return c", NULL, ""},
        {"x; n = f x; a = view n; return n a", NULL, "a n"},
        {"x; n = f x; a = view n; return n a", "n", ""},
        {"x; n = f x; a = view n; return a", "n", "a n"},
        {"x; n = f x; a1 = view n; a2 = view a1; return a2 a1", "a2", "a1 n"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fe_graph *g = graph_of(cases[i].graph);
        if (cases[i].update)
            update_by(g, cases[i].update);
        CHECK_TEXT(noops(g), cases[i].gone);
        fe_graph_free(g);
    }
}

/* Every request fails once: nothing leaks, and the graph is as it was. */
static void test_no_memory(void)
{
    for (size_t n = 0;; n++) {
        test_memory m;
        fe_report found;
        fe_error err;
        uint32_t facts[16] = {0};
        uint8_t kinds[16] = {0};
        int failed = 0;

        memory_init(&m);
        fe_graph *g = fe_graph_new(&m.allocator, NULL);
        CHECK(g);
        build(g, "x; a = f x; b = f a; w = write x; c = f x; return b c");
        flag_target(g, "w", FE_TARGET_MUTATES);
        update_by(g, "b");
        kinds[g->nodes[node(g, "a")].target] = FE_NOOP_ALIAS;
        const fe_cse_options o = {.facts = facts, .all = true};
        fe_report_init(&found, &m.allocator);
        memory_fail(&m, n, false);
        failed |= fe_find_common_subexpressions(g, &o, &found, &err) < 0;
        found.len = 0;
        failed |= fe_find_noops(g, kinds, &found, &err) < 0;
        failed |= fe_keep_safe_noops(g, facts, &found, &err) < 0;
        failed |= fe_find_constants(g, facts, kinds, &err) < 0;
        memory_fail(&m, SIZE_MAX, false);
        CHECK_TEXT(order(g), "x a b w c output");
        fe_report_clear(&found);
        fe_graph_free(g);
        CHECK_INT(m.blocks, 0);
        if (!failed)
            return;
    }
}

int main(void)
{
    RUN(test_trees_are_found_in_one_walk);
    RUN(test_writes_keep_apart);
    RUN(test_only_what_is_written_counts);
    RUN(test_constants);
    RUN(test_constants_that_are_written_to);
    RUN(test_constants_that_are_returned);
    RUN(test_what_a_buffer_becomes_is_not_returned_too);
    RUN(test_results_of_a_subgraph_stay_apart);
    RUN(test_noops_in_a_row);
    RUN(test_copies_that_are_returned);
    RUN(test_no_memory);
    return 0;
}
