/* test_lint.c - each invariant of ir.h is broken once, by hand, and lint must say which. */
#include "check.h"

static void poke(fe_graph *g, const char *name, fe_value value)
{
    g->details[node(g, name)].args->items[0] = value;
}

static fe_edge *edge_of(fe_graph *g, const char *def, const char *user)
{
    uint32_t e = fe_edge_find(g, node(g, def), node(g, user));

    CHECK(e != FE_NONE_ID);
    return &g->edges[e];
}

/* A fault, in a fresh graph: alone it is found, and with every check on it is found as the only one. */
#define BREAK(lines, poking, fx, all)                                                        \
    do {                                                                                     \
        fe_graph *g = graph_of(lines);                                                       \
        poking;                                                                              \
        CHECK_TEXT(faults_of(g, true, true), fx);                                            \
        CHECK_TEXT(faults_of(g, true, false), all);                                          \
        const char *first_ = faults_of(g, false, false);                                     \
        CHECK(*first_ && !strchr(first_, ';') && strncmp(first_, all, strlen(first_)) == 0); \
        fe_graph_free(g);                                                                    \
    } while (0)

/* A fault in the books about uses, which is looked for only when all faults are asked for. */
#define BREAK_USES(lines, poking, want)              \
    do {                                             \
        fe_graph *g = graph_of(lines);               \
        poking;                                      \
        CHECK_TEXT(faults_of(g, true, false), want); \
        CHECK_TEXT(faults_of(g, true, true), want);  \
        fe_graph_free(g);                            \
    } while (0)

#define CHAIN "x; y; a = f x; b = g a (x,x); return b"

static void test_sound(void)
{
    fe_graph *g = graph_of(CHAIN);

    CHECK_TEXT(faults_of(g, true, false), "");
    CHECK_TEXT(faults_of(g, false, false), "");
    build(g, "");
    fe_graph_free(g);
    g = graph_of("x; w = @weight; y; a = f x w y"); /* attributes may stand among the inputs; no output yet */
    CHECK_TEXT(faults_of(g, true, false), "");
    fe_graph_free(g);
}

static void test_order_of_operands(void)
{
    BREAK(CHAIN, fe_node_place(g, node(g, "b"), (fe_point){node(g, "a"), false}), "UNDEFINED_OPERAND b a",
          "UNDEFINED_OPERAND b a");
    fe_error err;
    BREAK(CHAIN, DO(fe_node_replace_operand(g, node(g, "a"), node(g, "x"), node(g, "a"), &err)),
          "UNDEFINED_OPERAND a a", "UNDEFINED_OPERAND a a");
    /* A cycle by edits. */
    BREAK(CHAIN, DO(fe_node_replace_operand(g, node(g, "a"), node(g, "x"), node(g, "b"), &err)),
          "UNDEFINED_OPERAND a b", "UNDEFINED_OPERAND a b");
}

static void test_erased_operand(void)
{
    BREAK(CHAIN, g->nodes[node(g, "a")].flags |= FE_NODE_ERASED; g->nodes[node(g, "x")].next = node(g, "y");
          g->nodes[node(g, "y")].next = FE_ROOT + 4;
          g->nodes[FE_ROOT + 4].prev = node(g, "y"), "ERASED_OPERAND b a", "ERASED_OPERAND b a");
}

static void test_flags_of_live_graphs(void)
{
    BREAK(CHAIN, g->nodes[node(g, "x")].flags |= FE_NODE_FOREIGN,
          "FOREIGN_NODE x; FOREIGN_OPERAND a x; FOREIGN_OPERAND b x",
          "FOREIGN_NODE x; FOREIGN_OPERAND a x; FOREIGN_OPERAND b x");
    BREAK(CHAIN, g->nodes[node(g, "a")].flags |= FE_NODE_UNLISTED, "UNLISTED a", "UNLISTED a");
    BREAK(CHAIN, g->nodes[node(g, "a")].flags |= FE_NODE_STALE, "STALE_USERS a a", "STALE_USERS a a");
    BREAK(CHAIN, g->nodes[node(g, "a")].op = FE_OP_UNKNOWN, "UNKNOWN_OP a", "UNKNOWN_OP a");
    BREAK(CHAIN, g->nodes[node(g, "a")].op = FE_OP_ROOT, "UNKNOWN_OP a", "UNKNOWN_OP a");
}

static void test_names(void)
{
    BREAK(CHAIN, fe_node_set_name(g, node(g, "b"), str(g, "a")), "DUPLICATE_NAME a a", "DUPLICATE_NAME a a");
    BREAK(CHAIN, fe_node_set_name(g, node(g, "a"), str(g, "b")), "DUPLICATE_NAME b b", "DUPLICATE_NAME b b");
}

/* The arguments name something else than the edges say, in kind, in node or in number. */
static void test_edges_against_arguments(void)
{
    BREAK_USES(CHAIN, poke(g, "a", value_int(1)), "STALE_USERS x a");
    BREAK_USES(CHAIN, poke(g, "b", value_node(node(g, "x"))), "STALE_USERS a b; STALE_USERS x b");
    BREAK_USES(CHAIN, poke(g, "b", value_node(node(g, "y"))), "STALE_USERS a b; STALE_USERS y b");
    BREAK_USES(CHAIN, poke(g, "a", value_node(node(g, "y"))), "STALE_USERS x a; STALE_USERS y a");
    BREAK_USES(CHAIN, edge_of(g, "x", "b")->count = 1, "STALE_USERS x b");
    BREAK_USES(CHAIN, (edge_of(g, "x", "b")->count = 1, edge_of(g, "a", "b")->count = 2),
               "STALE_USERS a b; STALE_USERS x b");
    BREAK_USES("x; a = f 1 k:x", g->details[node(g, "a")].kwargs->items[1] = value_int(1), "STALE_USERS x a");
    BREAK_USES("x; y; a = f y k:1", g->details[node(g, "a")].kwargs->items[1] = value_node(node(g, "x")),
               "STALE_USERS x a");
    /* Arguments gone, edges left. */
    BREAK_USES("x; a = f x",
               (fe_seq_free(g, g->details[node(g, "a")].args), g->details[node(g, "a")].args = NULL,
                g->details[node(g, "a")].kwargs = seq_new(g, 0)),
               "STALE_USERS x a");
    /* The same node again, without an edge for it; and in a nested place. */
    BREAK_USES("x; y; a = f 1 [y,2]", poke(g, "a", value_node(node(g, "x"))), "STALE_USERS x a");
    BREAK_USES("x; y; a = f 1 [y,2]", poke(g, "a", value_node(node(g, "y"))), "STALE_USERS y a");
    BREAK_USES("x; y; a = f y [1,2]",
               g->details[node(g, "a")].args->items[1].as.seq->items[0] = value_node(node(g, "x")), "STALE_USERS x a");
}

static void test_users_against_edges(void)
{
    BREAK_USES("x; a = f x; b = f x", edge_of(g, "x", "a")->user = node(g, "b"), "STALE_USERS x a");
    BREAK_USES("x; a = f x; b = f x", g->details[node(g, "x")].first_user = FE_NONE_ID,
               "STALE_USERS x x; STALE_USERS x a");
    BREAK_USES("x; a = f x; b = f x", g->details[node(g, "x")].last_user = FE_NONE_ID, "STALE_USERS x b");
    BREAK_USES("x; a = f x; b = f x", edge_of(g, "x", "a")->next = FE_NONE_ID,
               "STALE_USERS x x; STALE_USERS x a; STALE_USERS x b");
    BREAK_USES("x; a = f x; b = f x", edge_of(g, "x", "b")->prev = FE_NONE_ID, "STALE_USERS x a; STALE_USERS x b");
}

/* More, or fewer, in the list of users than the count says. */
static void test_count_of_users(void)
{
    BREAK_USES("x; a = f x; b = f x", g->nodes[node(g, "x")].user_count = 3, "STALE_USERS x x");
    BREAK_USES("x; a = f x; b = f x", g->nodes[node(g, "x")].user_count = 0, "STALE_USERS x x");
    BREAK_USES("x; y; a = f x; b = f y",
               g->edges[g->details[node(g, "x")].first_user].next = g->details[node(g, "y")].first_user,
               "STALE_USERS x x; STALE_USERS x a");
    /* A list without end. */
    BREAK_USES("x; a = f x; b = f x", edge_of(g, "x", "b")->next = g->details[node(g, "x")].first_user,
               "STALE_USERS x x; STALE_USERS x b");
}

static void test_positions(void)
{
    BREAK("x; y; z", g->nodes[node(g, "y")].pos = g->nodes[node(g, "x")].pos, "", "WRONG_ORDER y x");
    BREAK("x; y; z", g->nodes[node(g, "y")].pos = g->nodes[node(g, "z")].pos, "", "WRONG_ORDER z y");
    BREAK("x; y; z", g->nodes[node(g, "x")].pos = 0, "", "WRONG_ORDER x");
}

static void test_places(void)
{
    BREAK("x; return x; return x", (void)0, "", "OUTPUT_NOT_LAST output output_1; SECOND_OUTPUT output_1 output");
    BREAK("x; return x; a = f x", (void)0, "", "OUTPUT_NOT_LAST output a");
}

static void test_targets(void)
{
    BREAK(CHAIN, g->targets[g->nodes[node(g, "a")].target].flags |= FE_TARGET_NOT_CALLABLE, "TARGET_TYPE a",
          "TARGET_TYPE a");
    BREAK("x; w = @weight; v = @weight", g->targets[g->nodes[node(g, "w")].target].flags |= FE_TARGET_MISSING,
          "TARGET_MISSING w; TARGET_MISSING v", "TARGET_MISSING w; TARGET_MISSING v");
    BREAK("x; m = #layer x", g->targets[g->nodes[node(g, "m")].target].flags |= FE_TARGET_NOT_MODULE,
          "TARGET_NOT_MODULE m", "TARGET_NOT_MODULE m");
    /* A bad target that no node has any more harms nobody. */
    fe_graph *g = graph_of("x; w = @weight");
    g->targets[g->nodes[node(g, "w")].target].flags |= FE_TARGET_MISSING;
    fe_node_erase(g, node(g, "w"));
    CHECK_SOUND(g);
    fe_graph_free(g);
}

/* torch.fx's own checks come first, and targets after the rest, as there. */
static void test_all_at_once(void)
{
    fe_graph *g = graph_of("x; a = f x; b = g a; return b; return a");

    g->targets[g->nodes[node(g, "a")].target].flags |= FE_TARGET_NOT_CALLABLE;
    fe_node_place(g, node(g, "b"), (fe_point){node(g, "a"), false});
    fe_node_set_name(g, node(g, "a"), str(g, "x"));
    CHECK_TEXT(faults_of(g, true, true), "UNDEFINED_OPERAND b x; DUPLICATE_NAME x x; TARGET_TYPE x");
    CHECK_TEXT(faults_of(g, true, false), "UNDEFINED_OPERAND b x; DUPLICATE_NAME x x; OUTPUT_NOT_LAST output output_1; "
                                          "SECOND_OUTPUT output_1 output; TARGET_TYPE x");
    CHECK_TEXT(faults_of(g, false, false), "UNDEFINED_OPERAND b x");
    fe_graph_free(g);
}

/* They break nothing, so they are told only to who asks for all, and not as torch.fx would. */
static void test_odd_names(void)
{
    static const char *const odd[] = {"a\n", "a b", "", "1a", "class", "None", "__debug__", "a-b"};
    static const char *const plain[] = {"_", "a1", "Class", "print", "\xc3\xa4"};

    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        fe_graph *g = graph_of("x; a = f x; return a");
        char want[64];
        fe_node_set_name(g, node(g, "a"), str(g, odd[i]));
        snprintf(want, sizeof want, "ODD_NAME %s", odd[i]);
        CHECK_TEXT(faults_of(g, true, false), want);
        CHECK_TEXT(faults_of(g, true, true), "");
        CHECK_TEXT(faults_of(g, false, false), "");
        fe_graph_free(g);
    }
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        fe_graph *g = graph_of("x; a = f x; return a");
        fe_node_set_name(g, node(g, "a"), str(g, plain[i]));
        CHECK_TEXT(faults_of(g, true, false), "");
        fe_graph_free(g);
    }
}

/* Graphs read without arguments or names have only edges to look at. */
static void test_graph_without_arguments(void)
{
    fe_graph *g = graph_new();
    uint32_t target = target_of(g, FE_OP_CALL_METHOD, "f"), a, b;
    fe_error err;

    DO(fe_node_new(g, FE_OP_CALL_METHOD, target, NULL, FE_NONE_ID, &a, &err));
    DO(fe_node_new(g, FE_OP_CALL_METHOD, target, NULL, FE_NONE_ID, &b, &err));
    fe_node_place(g, a, (fe_point){FE_ROOT, false});
    fe_node_place(g, b, (fe_point){FE_ROOT, false});
    DO(fe_node_set_operands(g, b, &a, 1, &err));
    CHECK_SOUND(g);
    g->edges[g->nodes[b].edge].user = a;
    fe_report faults;
    fe_report_init(&faults, g->allocator);
    DO(fe_lint(g, &(fe_lint_options){.all = true}, &faults, &err));
    CHECK_INT(faults.len, 1);
    CHECK_INT(faults.items[0].code, FE_FAULT_STALE_USERS);
    fe_report_clear(&faults);
    fe_graph_free(g);
}

static void test_texts(void)
{
    for (int i = 0; i < FE_FAULT_COUNT; i++) {
        CHECK(strstr(fe_fault_text((fe_fault)i), "%N"));
        CHECK(strlen(fe_fault_name((fe_fault)i)) > 3);
    }
    CHECK_TEXT(fe_fault_name(FE_FAULT_OUTPUT_NOT_LAST), "OUTPUT_NOT_LAST");
}

int main(void)
{
    RUN(test_sound);
    RUN(test_order_of_operands);
    RUN(test_erased_operand);
    RUN(test_flags_of_live_graphs);
    RUN(test_names);
    RUN(test_edges_against_arguments);
    RUN(test_users_against_edges);
    RUN(test_count_of_users);
    RUN(test_positions);
    RUN(test_places);
    RUN(test_targets);
    RUN(test_all_at_once);
    RUN(test_odd_names);
    RUN(test_graph_without_arguments);
    RUN(test_texts);
    return 0;
}
