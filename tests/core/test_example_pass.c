/* test_example_pass.c - the pass that docs/guides/write_a_pass_in_c.md tells of, and its tests. */
#include "check.h"

/* [pass: begin] */
/* Of two calls of one idempotent target, the second on the result of the first, the second goes: relu(relu(x)) is relu(x).
 * The report holds each call that went and the one it was made on. Returns whether the graph changed, or -1 with the graph
 * unchanged. */
static int merge_repeated_calls(fe_graph *g, uint32_t target, fe_report *merged, fe_error *err)
{
    uint32_t before = merged->len;

    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT; id = g->nodes[id].next) {
        const fe_seq *args = g->details[id].args;
        if (g->nodes[id].target != target || !args || args->len != 1 || args->items[0].kind != FE_NODE)
            continue;
        uint32_t first = args->items[0].as.node;
        if (g->nodes[first].target != target || g->details[id].kwargs)
            continue;
        if (fe_report_add(merged, 0, id, first, err) < 0 || fe_node_reserve_replacement(g, id, err) < 0) {
            merged->len = before;
            return -1;
        }
    }
    for (uint32_t i = merged->len; i > before; i--) { /* from the last, so that what takes a place is still there */
        fe_record r = merged->items[i - 1];
        if (fe_node_replace_all_uses(g, r.node, r.other, err) < 0)
            assert(!"the memory was reserved");
        fe_node_erase(g, r.node);
    }
    return merged->len > before;
}
/* [pass: end] */

static uint32_t method(fe_graph *g, const char *name) /* the calls in graphs that are written as text */
{
    return target_of(g, FE_OP_CALL_METHOD, name);
}

/* [test: begin] */
static void test_a_chain_becomes_one_call(void)
{
    fe_graph *g = graph_of("x; a = relu x; b = relu a; c = relu b; d = neg c; return d b");
    fe_report merged;
    fe_error err;

    fe_report_init(&merged, &fe_libc_allocator);
    CHECK_INT(merge_repeated_calls(g, method(g, "relu"), &merged, &err), 1);
    CHECK_TEXT(order(g), "x a d output");
    CHECK_SOUND(g);
    CHECK_INT(merge_repeated_calls(g, method(g, "relu"), &merged, &err), 0);
    fe_report_clear(&merged);
    fe_graph_free(g);
}
/* [test: end] */

static void test_other_calls_stay(void)
{
    fe_graph *g = graph_of("x; a = relu x; b = neg a; c = relu b; d = relu c 1; e = relu [a]; return d e");
    fe_report merged;
    fe_error err;

    fe_report_init(&merged, &fe_libc_allocator);
    CHECK_INT(merge_repeated_calls(g, method(g, "relu"), &merged, &err), 0);
    CHECK_TEXT(order(g), "x a b c d e output");
    fe_report_clear(&merged);
    fe_graph_free(g);
}

/* [memory: begin] */
/* Every allocation fails in turn: the pass says so and leaves the graph as it was. */
static void test_without_memory(void)
{
    bool done = false;

    for (size_t nth = 0; !done; nth++) {
        test_memory memory;
        fe_report merged;
        fe_error err;
        memory_init(&memory);
        fe_graph *g = fe_graph_new(&memory.allocator, NULL);
        CHECK(g);
        build(g, "x; a = relu x; b = relu a; c = neg b; d = f b c; return b c d");
        uint32_t target = method(g, "relu");
        fe_report_init(&merged, &memory.allocator);
        memory_fail(&memory, nth, false);
        done = merge_repeated_calls(g, target, &merged, &err) >= 0;
        memory_fail(&memory, SIZE_MAX, false);
        CHECK_TEXT(order(g), done ? "x a c d output" : "x a b c d output");
        CHECK_SOUND(g);
        fe_report_clear(&merged);
        fe_graph_free(g);
        CHECK_INT(memory.blocks, 0);
        CHECK(!done || nth); /* it did fail once */
    }
}
/* [memory: end] */

int main(void)
{
    RUN(test_a_chain_becomes_one_call);
    RUN(test_other_calls_stay);
    RUN(test_without_memory);
    return 0;
}
