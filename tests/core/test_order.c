/* test_order.c - nodes put into order, and groups of nodes that become one. */
#include "order.h"

#include "check.h"

static uint64_t next_random(uint64_t *state)
{
    return *state = fe_mix(*state + UINT64_C(0x9e3779b97f4a7c15));
}

/* The order of a few vertices, by the plainest way there is: always the first of those that wait for nothing. */
static uint32_t sort_slowly(const fe_flow *f, const uint8_t *rank, uint32_t *out)
{
    bool done[64] = {false};

    for (uint32_t n = 0; n < f->count; n++) {
        uint32_t best = FE_NONE_ID;
        for (uint32_t v = 0; v < f->count; v++) {
            bool waits = done[v];
            for (uint32_t i = 0; i < f->len; i++)
                waits |= f->pairs[i].after == v && !done[f->pairs[i].before];
            if (!waits && (best == FE_NONE_ID || rank[v] < rank[best]))
                best = v;
        }
        if (best == FE_NONE_ID)
            return n;
        done[best] = true;
        out[n] = best;
    }
    return f->count;
}

static bool has_pair(const fe_flow *f, uint32_t before, uint32_t after)
{
    for (uint32_t i = 0; i < f->len; i++) {
        if (f->pairs[i].before == before && f->pairs[i].after == after)
            return true;
    }
    return false;
}

static void check_random_flow(uint64_t *state, uint32_t count, uint32_t pairs, bool forward)
{
    uint32_t want[64], got[64], circle;
    uint8_t rank[64];
    fe_flow f;
    fe_error err;

    fe_flow_init(&f, &fe_libc_allocator, count);
    for (uint32_t i = 0; i < count; i++)
        rank[i] = next_random(state) % 8 ? 1 : (uint8_t)(next_random(state) % 3);
    for (uint32_t i = 0; i < pairs; i++) {
        uint32_t a = (uint32_t)(next_random(state) % count), b = (uint32_t)(next_random(state) % count);
        if (forward && a == b)
            continue;
        if (forward && a > b) {
            uint32_t c = a;
            a = b;
            b = c;
        }
        DO(fe_flow_add(&f, a, b, &err));
    }
    const fe_flow_order o = {.rank = rank};
    DO(fe_flow_sort(&f, &o, got, &circle, &err));
    if (sort_slowly(&f, rank, want) == count) {
        CHECK_INT(circle, 0);
        CHECK(memcmp(want, got, count * sizeof *got) == 0);
    } else {
        CHECK(circle > 0 && !forward);
        for (uint32_t i = 0; i < circle; i++)
            CHECK(has_pair(&f, got[i], got[(i + 1) % circle]));
    }
    fe_flow_clear(&f);
}

static void test_random_flows(void)
{
    uint64_t state = 1;

    for (uint32_t i = 0; i < 400; i++)
        check_random_flow(&state, 1 + i % 40, i % 97, i % 3 != 0);
}

static void test_nothing(void)
{
    uint32_t out[1], circle;
    fe_flow f;
    fe_error err;

    fe_flow_init(&f, &fe_libc_allocator, 0);
    DO(fe_flow_sort(&f, &(fe_flow_order){.breadth_first = true}, out, &circle, &err));
    CHECK_INT(circle, 0);
    fe_flow_clear(&f);
}

/* Sort a graph with ranks; its order, or its circle after "!". */
static const char *sorted(fe_graph *g, bool breadth_first)
{
    static test_text t;
    uint32_t out[64], ids[64], circle, count = 0;
    uint8_t rank[64];
    fe_flow f;
    fe_error err;

    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT; id = g->nodes[id].next) {
        ids[count] = id;
        rank[count++] = fe_op_rank((fe_op)g->nodes[id].op);
    }
    fe_flow_init(&f, g->allocator, g->live);
    DO(fe_graph_flow(g, &f, &err));
    DO(fe_flow_sort(&f, &(fe_flow_order){.breadth_first = breadth_first, .rank = rank}, out, &circle, &err));
    fe_flow_clear(&f);
    t = (test_text){.len = 0};
    if (circle) {
        text_add(&t, "!", 1);
        for (uint32_t i = 0; i < circle; i++)
            text_name(&t, g, ids[out[i]]);
        return t.data;
    }
    CHECK(fe_graph_arrange(g, out, &err) >= 0);
    return order(g);
}

static void move(fe_graph *g, const char *name, const char *before)
{
    fe_node_place(g, node(g, name), (fe_point){.anchor = node(g, before)});
}

static void test_graphs(void)
{
    fe_graph *g = graph_of("x; y; a = f x; b = f y; c = f a b; return c");
    fe_error err;

    CHECK(fe_graph_is_sorted(g, true));
    move(g, "c", "a");
    move(g, "y", "b");
    CHECK(!fe_graph_is_sorted(g, false));
    CHECK_TEXT(order(g), "x c a y b output");
    CHECK_TEXT(sorted(g, false), "x y a b c output");
    CHECK(fe_graph_is_sorted(g, true));
    CHECK_SOUND(g);
    move(g, "output", "a");
    DO(fe_node_replace_operand(g, node(g, "a"), node(g, "x"), node(g, "c"), &err));
    CHECK_TEXT(sorted(g, true), "! c a");
    fe_graph_free(g);
}

/* ---- groups ---- */

static uint32_t groups_of(const fe_graph *g, const char *names, uint32_t *group)
{
    uint32_t number = 1;
    char name[16];
    size_t len = 0;

    for (const char *p = names;; p++) {
        if (*p && *p != ' ' && *p != '|') {
            name[len++] = *p;
            continue;
        }
        name[len] = 0;
        if (len)
            group[node(g, name)] = number;
        len = 0;
        number += *p == '|';
        if (!*p)
            return number;
    }
}

static void text_report(test_text *t, const fe_graph *g, const fe_report *r, uint32_t group)
{
    for (uint32_t i = 0; i < r->len; i++) {
        if (r->items[i].other == group)
            text_name(t, g, r->items[i].node);
    }
}

/* "inputs > outputs" of each group, then the order if it changes, or the circle. */
static const char *planned(const fe_graph *g, const char *names, bool effects)
{
    static test_text t;
    uint32_t group[64] = {0};
    const fe_groups groups = {.group = group, .count = groups_of(g, names, group), .effects = effects};
    fe_group_plan p;
    fe_error err;

    t = (test_text){.len = 0};
    fe_group_plan_init(&p, g->allocator);
    DO(fe_plan_groups(g, &groups, &p, &err));
    for (uint32_t i = 1; !p.circle && i <= groups.count; i++) {
        text_add(&t, "(", 1);
        text_report(&t, g, &p.inputs, i);
        text_add(&t, " >", 2);
        text_report(&t, g, &p.outputs, i);
        text_add(&t, ")", 1);
    }
    if (p.circle)
        text_add(&t, "!", 1);
    for (uint32_t i = 0; (p.circle || p.moves) && i < p.count; i++)
        text_name(&t, g, p.order[i]);
    fe_group_plan_clear(&p);
    return t.data;
}

static void test_groups(void)
{
    fe_graph *g = graph_of("x; y; a = f x; b = f a y; c = f b a; d = f a; return c d");

    CHECK_TEXT(planned(g, "a b", false), "( x y > a b)");
    CHECK_TEXT(planned(g, "a|b c", false), "( x > a)( a y > c)");
    CHECK_TEXT(planned(g, "a c", false), "! b c");
    CHECK_TEXT(planned(g, "a d", false), "( x > a d) x y d b c output");
    CHECK_TEXT(planned(g, "a c|b d", false), "! c d");
    fe_graph_free(g);
}

static void test_effects(void)
{
    fe_graph *g = graph_of("x; a = f x; w = g x; b = f x; return a b");

    g->targets[g->nodes[node(g, "w")].target].flags |= FE_TARGET_MUTATES;
    CHECK_TEXT(planned(g, "a b", false), "( x > a b)");
    CHECK_TEXT(planned(g, "a b", true), "! b w");
    CHECK_TEXT(planned(g, "a w", true), "( x > a)");
    g->targets[g->nodes[node(g, "w")].target].flags = FE_TARGET_RANDOM;
    CHECK_TEXT(planned(g, "a b", true), "( x > a b)");
    g->targets[g->nodes[node(g, "a")].target].flags |= FE_TARGET_RANDOM;
    CHECK_TEXT(planned(g, "a b", true), "! w b");
    fe_graph_free(g);
}

/* Every allocation fails once; the graph stays as it is. */
static void test_no_memory(void)
{
    uint32_t group[64] = {0}, out[64], circle;
    test_memory memory;
    fe_error err;

    memory_init(&memory);
    fe_graph *g = fe_graph_new(&memory.allocator, NULL);
    build(g, "x; y; a = f x; b = f a y; c = f b a; d = f a; return c d");
    const fe_groups groups = {.group = group, .count = groups_of(g, "a d|b", group), .effects = true};
    int result = -1;
    for (size_t n = 0; result < 0; n++) {
        fe_group_plan p;
        fe_group_plan_init(&p, &memory.allocator);
        memory_fail(&memory, n, false);
        result = fe_plan_groups(g, &groups, &p, &err);
        memory_fail(&memory, SIZE_MAX, false);
        CHECK(result == 0 || err.code == FE_NO_MEMORY);
        fe_group_plan_clear(&p);
    }
    result = -1;
    for (size_t n = 0; result < 0; n++) {
        fe_flow f;
        fe_flow_init(&f, &memory.allocator, g->live);
        memory_fail(&memory, n, false);
        if ((result = fe_graph_flow(g, &f, &err)) == 0 &&
            (result = fe_flow_sort(&f, &(fe_flow_order){.breadth_first = true}, out, &circle, &err)) == 0)
            result = fe_graph_arrange(g, out, &err);
        memory_fail(&memory, SIZE_MAX, false);
        CHECK(result >= 0 || err.code == FE_NO_MEMORY);
        fe_flow_clear(&f);
    }
    CHECK_SOUND(g);
    fe_graph_free(g);
    CHECK_INT(memory.blocks, 0);
}

int main(void)
{
    RUN(test_random_flows);
    RUN(test_nothing);
    RUN(test_graphs);
    RUN(test_groups);
    RUN(test_effects);
    RUN(test_no_memory);
    return 0;
}
