/* test_graph.c - the list of nodes: placing, moving, erasing, walking, renaming; positions that always grow. */
#include "check.h"

static const fe_point at_end = {FE_ROOT, false}, at_start = {FE_ROOT, true};

static fe_point before(uint32_t id)
{
    return (fe_point){id, false};
}

static fe_point after(uint32_t id)
{
    return (fe_point){id, true};
}

/* A node that no one knows by name: quick to make in large numbers. */
static uint32_t unnamed(fe_graph *g, uint32_t target)
{
    uint32_t id;
    fe_error err;

    DO(fe_node_new(g, FE_OP_CALL_METHOD, target, NULL, FE_NONE_ID, &id, &err));
    return id;
}

/* Positions grow along the list, links agree in both directions, the count is right. */
static void check_list(const fe_graph *g)
{
    uint32_t count = 0, id = FE_ROOT;

    do {
        uint32_t next = g->nodes[id].next;
        CHECK_INT(g->nodes[next].prev, id);
        CHECK(next == FE_ROOT || g->nodes[next].pos > g->nodes[id].pos);
        CHECK(!(g->nodes[id].flags & FE_NODE_ERASED));
        count += next != FE_ROOT;
        id = next;
    } while (id != FE_ROOT);
    CHECK_INT(count, g->live);
}

static void test_empty(void)
{
    fe_graph *g = graph_new();

    CHECK_INT(g->live, 0);
    CHECK_INT(g->node_count, 1);
    CHECK_INT(fe_node_next(g, FE_ROOT), FE_ROOT);
    CHECK_INT(fe_node_prev(g, FE_ROOT), FE_ROOT);
    CHECK(!fe_node_is_listed(g, FE_ROOT));
    CHECK(!fe_node_is_listed(g, 1));
    CHECK(!fe_node_is_listed(g, FE_NONE_ID));
    CHECK_SOUND(g);
    CHECK_GRAPH(g, "graph():");
    fe_graph_free(g);
    fe_graph_free(NULL);
}

static void test_insert_points(void)
{
    fe_graph *g = graph_of("a; b");

    g->insert = before(node(g, "b"));
    build(g, "c; d");
    CHECK_TEXT(order(g), "a c d b");
    g->insert = after(node(g, "a"));
    build(g, "e; f"); /* the point stays, so the second stands first */
    CHECK_TEXT(order(g), "a f e c d b");
    g->insert = at_start;
    build(g, "h");
    g->insert = at_end;
    build(g, "i");
    CHECK_TEXT(order(g), "h a f e c d b i");
    check_list(g);
    CHECK_SOUND(g);
    fe_graph_free(g);
}

static void test_moves(void)
{
    fe_graph *g = graph_of("a; b; c; d");
    uint32_t a = node(g, "a"), b = node(g, "b"), c = node(g, "c"), d = node(g, "d");

    fe_node_place(g, a, before(c));
    CHECK_TEXT(order(g), "b a c d");
    fe_node_place(g, d, before(b));
    CHECK_TEXT(order(g), "d b a c");
    fe_node_place(g, d, at_end);
    CHECK_TEXT(order(g), "b a c d");
    fe_node_place(g, d, at_start);
    CHECK_TEXT(order(g), "d b a c");
    fe_node_place(g, b, after(b)); /* at itself: stays */
    fe_node_place(g, b, before(b));
    CHECK_TEXT(order(g), "d b a c");
    fe_node_place(g, b, after(d)); /* where it is: stays */
    fe_node_place(g, b, before(a));
    CHECK_TEXT(order(g), "d b a c");
    CHECK_INT(g->live, 4);
    check_list(g);
    fe_graph_free(g);
}

/* A hundred thousand insertions at one place, each between the two before it. */
static void test_bisecting_inserts(void)
{
    for (int side = 0; side < 4; side++) {
        fe_graph *g = graph_of("a; b");
        uint32_t target = target_of(g, FE_OP_CALL_METHOD, "f"), low = node(g, "a"), high = node(g, "b");
        for (uint32_t i = 0; i < 100000; i++) {
            uint32_t id = unnamed(g, target);
            fe_point at = side == 0 ? before(high) : side == 1 ? after(low) : side == 2 ? at_start : before(high);
            fe_node_place(g, id, at);
            if (side == 3 && i % 2)
                low = id;
            else if (side == 3)
                high = id;
            CHECK(g->nodes[g->nodes[id].prev].pos < g->nodes[id].pos || g->nodes[id].prev == FE_ROOT);
            CHECK(g->nodes[id].pos < g->nodes[g->nodes[id].next].pos || g->nodes[id].next == FE_ROOT);
        }
        check_list(g);
        CHECK_INT(g->live, 100002);
        fe_graph_free(g);
    }
}

/* Moves to random places, and to the ends of the range of positions. */
static void test_random_moves(void)
{
    fe_graph *g = graph_new();
    uint32_t target = target_of(g, FE_OP_CALL_METHOD, "f"), random = 1;

    for (uint32_t i = 0; i < 1000; i++)
        fe_node_place(g, unnamed(g, target), at_end);
    for (uint32_t i = 0; i < 200000; i++) {
        random = random * 1664525u + 1013904223u;
        uint32_t id = 1 + (random >> 8) % 1000, anchor = (random >> 20) % 8 ? (random >> 16) % 1001 : i % 3 * 500;
        fe_node_place(g, id, (fe_point){anchor, random >> 31});
        if (i % 1000 == 0)
            check_list(g);
    }
    check_list(g);
    CHECK_INT(g->live, 1000);
    fe_graph_free(g);
}

/* Appending where positions near their limit. */
static void test_end_of_positions(void)
{
    fe_graph *g = graph_of("a; b; c");
    uint32_t target = target_of(g, FE_OP_CALL_METHOD, "f");

    g->nodes[node(g, "c")].pos = (UINT64_C(1) << 63) - 2;
    for (uint32_t i = 0; i < 10000; i++)
        fe_node_place(g, unnamed(g, target), at_end);
    check_list(g);
    g->nodes[node(g, "a")].pos = 1;
    for (uint32_t i = 0; i < 10000; i++)
        fe_node_place(g, unnamed(g, target), at_start);
    check_list(g);
    fe_graph_free(g);
}

static void test_erase(void)
{
    fe_graph *g = graph_of("x; a = neg x; b = abs a (x,x) out:a; c = sin x");
    uint32_t b = node(g, "b"), a = node(g, "a");

    fe_node_erase(g, b);
    CHECK_TEXT(order(g), "x a c");
    CHECK_TEXT(users(g, "x"), "a c");
    CHECK_TEXT(users(g, "a"), "");
    CHECK(!fe_node_is_listed(g, b));
    CHECK(g->nodes[b].flags & FE_NODE_ERASED);
    CHECK_INT(g->nodes[b].edge_count, 0);
    CHECK_TEXT(g->details[b].name->data, "b");
    fe_node_forget(g, b);
    CHECK_INT(g->details[b].args->items[0].kind, FE_NONE);
    CHECK_INT(g->details[b].args->items[1].as.seq->items[1].kind, FE_NONE);
    CHECK_INT(g->details[b].kwargs->items[1].kind, FE_NONE);
    fe_node_forget(g, a); /* not erased: stays */
    CHECK_INT(g->details[a].args->items[0].kind, FE_NODE);
    CHECK(fe_name_owner(g, str(g, "b")) == FE_NONE_ID);
    build(g, "b = relu a"); /* the name stays taken, the id is new */
    CHECK_TEXT(order(g), "x a c b_1");
    CHECK_INT(node(g, "b_1"), g->node_count - 1);
    CHECK_SOUND(g);
    fe_graph_free(g);
}

/* The insert point at an erased node is an error that says so. */
static void test_insert_at_erased(void)
{
    fe_graph *g = graph_of("x; a = neg x");
    uint32_t target = target_of(g, FE_OP_CALL_METHOD, "f"), id;
    char buffer[8];
    fe_error err;

    g->insert = before(node(g, "a"));
    fe_node_erase(g, node(g, "a"));
    fe_node_parts parts = {
        .op = FE_OP_CALL_METHOD, .target = target, .type = FE_NONE_ID, .name = fe_name_split("f", 1, buffer)};
    CHECK_INT(fe_node_create(g, &parts, &id, &err), -1);
    CHECK_INT(err.code, FE_BAD_STATE);
    CHECK(strstr(err.message, "'a'"));
    CHECK_TEXT(order(g), "x");
    fe_graph_free(g);
}

/* The guarantees of a walk: go on from an erased node as from where it last stood. */
static void test_walks_past_erased_nodes(void)
{
    fe_graph *g = graph_of("a; b; c; d; e");
    uint32_t a = node(g, "a"), b = node(g, "b"), c = node(g, "c"), d = node(g, "d"), e = node(g, "e");

    fe_node_erase(g, c);
    CHECK_INT(fe_node_next(g, c), d);
    CHECK_INT(fe_node_prev(g, c), b);
    CHECK_INT(fe_node_next(g, b), d);
    fe_node_erase(g, d); /* its neighbours too, one after another */
    fe_node_erase(g, b);
    CHECK_INT(fe_node_next(g, c), e);
    CHECK_INT(fe_node_prev(g, c), a);
    CHECK_INT(fe_node_next(g, b), e); /* b went after d and saw e */
    CHECK_INT(fe_node_prev(g, d), a);
    g->insert = after(a);
    build(g, "f"); /* put in at the gap: not met from c, met from a */
    CHECK_INT(fe_node_next(g, c), e);
    CHECK_INT(fe_node_next(g, a), node(g, "f"));
    fe_node_place(g, e, before(a)); /* a walk from c goes on where e now is */
    CHECK_INT(fe_node_next(g, c), e);
    CHECK_INT(fe_node_next(g, e), a);
    fe_node_erase(g, e);
    fe_node_erase(g, a);
    fe_node_erase(g, node(g, "f"));
    for (uint32_t id = 1; id < g->node_count; id++) {
        uint32_t steps = 0;
        for (uint32_t at = id; at != FE_ROOT; at = fe_node_next(g, at))
            CHECK(steps++ < g->node_count);
        for (uint32_t at = id; at != FE_ROOT; at = fe_node_prev(g, at))
            CHECK(steps++ < 2 * g->node_count);
    }
    CHECK_TEXT(order(g), "");
    fe_graph_free(g);
}

/* Erase everything while walking, in both directions. */
static void test_erase_while_walking(void)
{
    fe_graph *g = graph_of("a; b; c; d; e; f");
    uint32_t count = 0;

    for (uint32_t id = fe_node_next(g, FE_ROOT); id != FE_ROOT; id = fe_node_next(g, id)) {
        if (count++ % 2)
            fe_node_erase(g, id);
    }
    CHECK_INT(count, 6);
    CHECK_TEXT(order(g), "a c e");
    count = 0;
    for (uint32_t id = fe_node_prev(g, FE_ROOT); id != FE_ROOT; id = fe_node_prev(g, id), count++)
        fe_node_erase(g, id);
    CHECK_INT(count, 3);
    CHECK_INT(g->live, 0);
    check_list(g);
    build(g, "g");
    CHECK_TEXT(order(g), "g");
    fe_graph_free(g);
}

/* What a failed build leaves behind: nothing. */
static void test_discard(void)
{
    fe_graph *g = graph_of("x");
    uint32_t object, id, count = g->node_count;
    fe_error err;

    DO(fe_object_new(g, &object, &err));
    fe_object_ref(g, object);
    DO(fe_node_new(g, FE_OP_CALL_METHOD, target_of(g, FE_OP_CALL_METHOD, "f"), str(g, "f"), object, &id, &err));
    CHECK_INT(g->object_refs[object], 2);
    CHECK_INT(fe_name_owner(g, str(g, "f")), id);
    fe_node_discard(g, id);
    CHECK_INT(g->node_count, count);
    CHECK_INT(g->object_refs[object], 1);
    CHECK_INT(fe_name_owner(g, str(g, "f")), FE_NONE_ID);
    CHECK_SOUND(g);
    fe_graph_free(g);
}

static void test_names_change_hands(void)
{
    fe_graph *g = graph_of("a; b; c");
    uint32_t a = node(g, "a"), b = node(g, "b"), c = node(g, "c");

    fe_node_set_name(g, a, str(g, "fresh"));
    CHECK_INT(fe_name_owner(g, str(g, "a")), FE_NONE_ID);
    CHECK_INT(node(g, "fresh"), a);
    fe_node_set_name(g, b, str(g, "a"));
    CHECK_INT(node(g, "a"), b);
    fe_node_set_name(g, b, str(g, "a"));
    CHECK_INT(node(g, "a"), b);
    CHECK_SOUND(g);

    /* Two bear one name: lint tells; when one goes, the other is its owner. */
    fe_node_set_name(g, c, str(g, "a"));
    CHECK_TEXT(faults_of(g, true, false), "DUPLICATE_NAME a a");
    fe_node_erase(g, b);
    CHECK_INT(node(g, "a"), c);
    CHECK_SOUND(g);
    build(g, "b = f; a = f");
    CHECK_TEXT(order(g), "fresh a b_1 a_1");
    fe_node_set_name(g, node(g, "b_1"), str(g, "a"));
    fe_node_set_name(g, c, str(g, "c"));
    CHECK_SOUND(g);
    fe_node_set_name(g, node(g, "a_1"), str(g, "c"));
    fe_node_set_name(g, node(g, "a"), str(g, "c"));
    CHECK_TEXT(faults_of(g, true, false), "DUPLICATE_NAME c c; DUPLICATE_NAME c c");
    fe_node_set_name(g, c, str(g, "d"));
    CHECK_TEXT(faults_of(g, true, false), "DUPLICATE_NAME c c");
    CHECK_INT(g->shared_names, 1);
    fe_graph_free(g);
}

/* The nodes of a target, as find_nodes takes them. */
static const char *nodes_of(fe_graph *g, uint32_t target)
{
    static test_text t;
    uint32_t count = 0;

    t = (test_text){.len = 0};
    for (uint32_t id = fe_target_nodes(g, target); id != FE_NONE_ID; id = g->details[id].target_next, count++)
        text_name(&t, g, id);
    CHECK_INT(count, g->targets[target].count);
    return t.data;
}

static void test_nodes_of_a_target(void)
{
    fe_graph *g = graph_of("x; a = neg x; b = neg x; c = abs x; d = neg x; e = neg x");
    uint32_t neg = target_of(g, FE_OP_CALL_METHOD, "neg"), abs = target_of(g, FE_OP_CALL_METHOD, "abs");
    uint32_t module = target_of(g, FE_OP_CALL_MODULE, "neg");

    CHECK_TEXT(nodes_of(g, neg), "a b d e");
    CHECK_TEXT(nodes_of(g, module), "");
    fe_node_erase(g, node(g, "b"));
    fe_node_place(g, node(g, "e"), before(node(g, "x"))); /* moves don't count */
    CHECK_TEXT(nodes_of(g, neg), "a d e");
    fe_node_erase(g, node(g, "a")); /* the first and the last */
    fe_node_erase(g, node(g, "e"));
    CHECK_TEXT(nodes_of(g, neg), "d");
    build(g, "f = neg x");
    fe_node_set_target(g, node(g, "d"), abs);
    CHECK_TEXT(nodes_of(g, neg), "f");
    CHECK_TEXT(nodes_of(g, abs), "c d");
    fe_node_set_target(g, node(g, "f"), module); /* takes the op with it */
    CHECK_INT(g->nodes[node(g, "f")].op, FE_OP_CALL_MODULE);
    CHECK_TEXT(nodes_of(g, neg), "");
    CHECK_TEXT(nodes_of(g, module), "f");
    fe_node_set_target(g, node(g, "f"), neg);
    fe_node_set_target(g, node(g, "f"), neg);
    CHECK_TEXT(nodes_of(g, neg), "f");
    CHECK_TEXT(nodes_of(g, module), "");
    CHECK_SOUND(g);
    fe_graph_free(g);
}

static void test_types(void)
{
    fe_graph *g = graph_of("x");
    uint32_t a, b;
    fe_error err;

    DO(fe_object_new(g, &a, &err));
    DO(fe_object_new(g, &b, &err));
    fe_object_ref(g, a);
    fe_object_ref(g, b);
    fe_node_set_type(g, node(g, "x"), a);
    CHECK_INT(g->object_refs[a], 2);
    fe_node_set_type(g, node(g, "x"), a);
    CHECK_INT(g->object_refs[a], 2);
    fe_node_set_type(g, node(g, "x"), b);
    CHECK_INT(g->object_refs[a], 1);
    CHECK_INT(g->object_refs[b], 2);
    fe_node_set_type(g, node(g, "x"), FE_NONE_ID);
    CHECK_INT(g->object_refs[b], 1);
    fe_graph_free(g);
}

/* The version tells that something changed. */
static void test_version(void)
{
    fe_graph *g = graph_of("x; a = neg x; b = abs x");
    uint64_t version = g->version;
    fe_error err;

    fe_node_place(g, node(g, "b"), before(node(g, "a")));
    CHECK(g->version > version);
    version = g->version;
    DO(fe_node_replace_operand(g, node(g, "b"), node(g, "x"), node(g, "a"), &err));
    CHECK(g->version > version);
    version = g->version;
    fe_node_erase(g, node(g, "b"));
    CHECK(g->version > version);
    version = g->version;
    fe_node_set_name(g, node(g, "a"), str(g, "z"));
    CHECK(g->version > version);
    fe_graph_free(g);
}

static void test_reserve(void)
{
    test_memory m;
    fe_error err;

    memory_init(&m);
    fe_graph *g = fe_graph_new(&m.allocator, NULL);
    CHECK(g);
    uint32_t target = target_of(g, FE_OP_CALL_METHOD, "f");
    DO(fe_graph_reserve(g, 1000, &err));
    size_t calls = m.calls;
    for (int i = 0; i < 1000; i++)
        unnamed(g, target);
    CHECK_INT(m.calls, calls);
    CHECK_INT(fe_graph_reserve(g, UINT32_MAX, &err), -1);
    CHECK_INT(err.code, FE_TOO_LARGE);
    fe_graph_free(g);
    CHECK_INT(m.blocks, 0);
}

int main(void)
{
    RUN(test_empty);
    RUN(test_insert_points);
    RUN(test_moves);
    RUN(test_bisecting_inserts);
    RUN(test_random_moves);
    RUN(test_end_of_positions);
    RUN(test_erase);
    RUN(test_insert_at_erased);
    RUN(test_walks_past_erased_nodes);
    RUN(test_erase_while_walking);
    RUN(test_discard);
    RUN(test_names_change_hands);
    RUN(test_nodes_of_a_target);
    RUN(test_types);
    RUN(test_version);
    RUN(test_reserve);
    return 0;
}
