/* test_uses.c - operands and users: multiplicity, torch.fx's order, replacing, inserting, blocks of every size. */
#include "check.h"

/* Make a's arguments anew: positional nodes and ints by words, as in a line. */
static void set_arguments(fe_graph *g, const char *name, const char *words)
{
    fe_seq *args = NULL;
    fe_error err;

    if (*words) {
        fe_value v = parse_word(g, words, strlen(words));
        CHECK(v.kind == FE_TUPLE);
        args = v.as.seq;
    }
    DO(fe_node_set_arguments(g, node(g, name), args, NULL, &err));
}

static void replace(fe_graph *g, const char *user, const char *old, const char *new)
{
    fe_error err;

    DO(fe_node_replace_operand(g, node(g, user), node(g, old), node(g, new), &err));
}

static void replace_all(fe_graph *g, const char *old, const char *new)
{
    fe_error err;

    DO(fe_node_replace_all_uses(g, node(g, old), node(g, new), &err));
}

static void insert(fe_graph *g, const char *name, uint32_t index, const char *word)
{
    fe_error err;

    DO(fe_node_insert_argument(g, node(g, name), index, parse_word(g, word, strlen(word)), &err));
}

static void test_counts_and_order(void)
{
    fe_graph *g = graph_of("x; y; a = f y x x; b = g [x,y] 3 k:(x,x) j:y; c = h 1 2");

    CHECK_TEXT(operands(g, "a"), "y x*2");
    CHECK_TEXT(operands(g, "b"), "x*3 y*2");
    CHECK_TEXT(operands(g, "c"), "");
    CHECK_TEXT(users(g, "x"), "a b");
    CHECK_TEXT(users(g, "y"), "a b");
    CHECK_SOUND(g);
    fe_graph_free(g);
}

/* A user with new arguments stands last among the users of each operand. */
static void test_new_arguments(void)
{
    fe_graph *g = graph_of("x; y; a = f x; b = f x; c = f x y");

    set_arguments(g, "a", "(y,x)");
    CHECK_TEXT(users(g, "x"), "b c a");
    CHECK_TEXT(users(g, "y"), "c a");
    CHECK_TEXT(operands(g, "a"), "y x");
    set_arguments(g, "c", "");
    CHECK_TEXT(users(g, "x"), "b a");
    CHECK_TEXT(users(g, "y"), "a");
    CHECK(!g->details[node(g, "c")].args);
    set_arguments(g, "a", "(1,2)");
    CHECK_TEXT(users(g, "x"), "b");
    CHECK_SOUND(g);
    fe_graph_free(g);
}

/* New keyword arguments beside the same positional ones. */
static void test_keep_one_half(void)
{
    fe_graph *g = graph_of("x; y; a = f x k:y; b = f x");
    uint32_t a = node(g, "a");
    fe_seq *kwargs = seq_new(g, 2);
    fe_error err;

    kwargs->items[0] = value_str(g, "k");
    kwargs->items[1] = value_node(node(g, "x"));
    fe_seq *args = g->details[a].args;
    DO(fe_node_set_arguments(g, a, args, kwargs, &err));
    CHECK(g->details[a].args == args);
    CHECK_TEXT(operands(g, "a"), "x*2");
    CHECK_TEXT(users(g, "x"), "b a");
    CHECK_TEXT(users(g, "y"), "");
    DO(fe_node_set_arguments(g, a, NULL, kwargs, &err));
    CHECK_TEXT(operands(g, "a"), "x");
    CHECK_SOUND(g);
    fe_graph_free(g);
}

static void test_erased_operands_are_refused(void)
{
    fe_graph *g = graph_of("x; y; a = f x");
    uint32_t y = node(g, "y");
    fe_seq *args = seq_new(g, 2);
    fe_error err;

    args->items[0] = value_node(node(g, "x"));
    args->items[1] = value_node(y);
    fe_node_erase(g, y);
    CHECK_INT(fe_node_set_arguments(g, node(g, "a"), args, NULL, &err), -1);
    CHECK_INT(err.code, FE_BAD_STATE);
    CHECK_INT(err.node, y);
    CHECK(strstr(err.message, "'y'"));
    CHECK_INT(fe_node_insert_argument(g, node(g, "a"), 0, value_seq(FE_TUPLE, args), &err), -1);
    CHECK_INT(err.code, FE_BAD_STATE);
    CHECK_TEXT(operands(g, "a"), "x");
    CHECK_SOUND(g);
    fe_seq_free(g, args); /* still the caller's */
    fe_graph_free(g);
}

static void test_insert_argument(void)
{
    fe_graph *g = graph_of("x; y; z; a = f x; b = f x y; c = f");

    insert(g, "a", 0, "y"); /* a new operand is the last one, wherever its argument goes */
    CHECK_TEXT(operands(g, "a"), "x y");
    CHECK_TEXT(users(g, "y"), "b a");
    insert(g, "a", 1, "(x,y,x)"); /* known operands keep their place among the users */
    CHECK_TEXT(operands(g, "a"), "x*3 y*2");
    CHECK_TEXT(users(g, "x"), "a b");
    insert(g, "a", 3, "7");
    insert(g, "c", 0, "[z,z]");
    CHECK_TEXT(operands(g, "c"), "z*2");
    CHECK_SOUND(g);
    CHECK_GRAPH(g, "graph():\n"
                   "    %x : [num_users=2] = placeholder[target=x]\n"
                   "    %y : [num_users=2] = placeholder[target=y]\n"
                   "    %z : [num_users=1] = placeholder[target=z]\n"
                   "    %a : [num_users=0] = call_method[target=f](args = (%y, (%x, %y, %x), %x, 7), kwargs = {})\n"
                   "    %b : [num_users=0] = call_method[target=f](args = (%x, %y), kwargs = {})\n"
                   "    %c : [num_users=0] = call_method[target=f](args = ([%z, %z],), kwargs = {})");
    fe_graph_free(g);
}

/* Arguments inserted one by one, through every size of block. */
static void test_insert_many(void)
{
    fe_graph *g = graph_new();
    uint32_t target = target_of(g, FE_OP_CALL_METHOD, "f");
    char name[32];
    fe_error err;

    build(g, "other = f; a = f other");
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof name, "x%d", i);
        uint32_t x = make_node(g, FE_OP_CALL_METHOD, target, name, NULL, NULL);
        DO(fe_node_insert_argument(g, node(g, "a"), (uint32_t)(i % 3 ? 0 : i), value_node(x), &err));
        DO(fe_node_insert_argument(g, node(g, "a"), 0, value_node(x), &err));
        CHECK_INT(g->nodes[node(g, "a")].edge_count, i + 2);
        CHECK_INT(g->edges[g->nodes[node(g, "a")].edge + (uint32_t)i + 1].count, 2);
    }
    fe_node_place(g, node(g, "a"), (fe_point){FE_ROOT, false});
    CHECK_SOUND(g);
    fe_graph_free(g);
}

/* torch.fx adds a changed user again in the order of its arguments, to the users of all of them. */
static void test_replace_operand(void)
{
    fe_graph *g = graph_of("x; y; z; a = f x y (x,2) k:x; b = f x y z");

    replace(g, "a", "x", "z");
    CHECK_TEXT(operands(g, "a"), "z*3 y");
    CHECK_TEXT(users(g, "x"), "b");
    CHECK_TEXT(users(g, "y"), "b a");
    CHECK_TEXT(users(g, "z"), "b a");
    replace(g, "b", "x", "y"); /* two operands become one */
    CHECK_TEXT(operands(g, "b"), "y*2 z");
    CHECK_TEXT(users(g, "x"), "");
    CHECK_TEXT(users(g, "z"), "a b");
    replace(g, "a", "x", "y"); /* not an operand: only the order of users changes, as in torch.fx */
    CHECK_TEXT(operands(g, "a"), "z*3 y");
    CHECK_TEXT(users(g, "z"), "b a");
    replace(g, "a", "z", "z");
    CHECK_TEXT(operands(g, "a"), "z*3 y");
    CHECK_SOUND(g);
    fe_graph_free(g);
}

static void test_replace_all_uses(void)
{
    fe_graph *g = graph_of("x; y; a = f x; b = f y x; c = f (x,y) x; d = f y; return [x,a]");

    replace_all(g, "x", "y");
    CHECK_TEXT(users(g, "x"), "");
    CHECK_TEXT(users(g, "y"), "d a b c output");
    CHECK_TEXT(operands(g, "b"), "y*2");
    CHECK_TEXT(operands(g, "c"), "y*3");
    CHECK_SOUND(g);
    replace_all(g, "x", "y"); /* no users: nothing to do */
    replace_all(g, "y", "y"); /* by itself: each user once, order as before */
    CHECK_TEXT(users(g, "y"), "d a b c output");
    CHECK_SOUND(g);
    replace_all(g, "y", "a"); /* a then uses itself; lint tells */
    CHECK_TEXT(users(g, "a"), "d a b c output");
    CHECK_TEXT(faults_of(g, true, false), "UNDEFINED_OPERAND a a");
    fe_graph_free(g);
}

/* By itself, after insert_arg has left operands in another order than the arguments have. */
static void test_replace_by_itself_with_operands_out_of_order(void)
{
    fe_graph *g = graph_of("x; y; a = f x y; b = f x; c = f x y");

    insert(g, "c", 0, "y");
    CHECK_TEXT(operands(g, "c"), "x y*2");
    replace_all(g, "x", "x");
    CHECK_TEXT(operands(g, "c"), "y*2 x");
    CHECK_TEXT(users(g, "x"), "a b c");
    CHECK_TEXT(users(g, "y"), "a c");
    CHECK_SOUND(g);
    fe_graph_free(g);
}

/* Blocks of edges of every size, taken and given back in all orders: operands stay right. */
static void test_operand_lists_of_every_size(void)
{
    enum { NODES = 300, USERS = 40 };
    fe_graph *g = graph_new();
    uint32_t target = target_of(g, FE_OP_CALL_METHOD, "f"), defs[NODES], users_[USERS], random = 1;
    char name[16];
    fe_error err;

    for (int i = 0; i < NODES; i++) {
        snprintf(name, sizeof name, "x%d", i);
        defs[i] = make_node(g, FE_OP_CALL_METHOD, target, name, NULL, NULL);
    }
    for (int i = 0; i < USERS; i++) {
        snprintf(name, sizeof name, "u%d", i);
        users_[i] = make_node(g, FE_OP_CALL_METHOD, target, name, NULL, NULL);
    }
    for (int step = 0; step < 2000; step++) {
        random = random * 1664525u + 1013904223u;
        uint32_t user = users_[(random >> 8) % USERS], len = (random >> 16) % NODES >> (random >> 28) % 9;
        uint32_t first = (random >> 4) % NODES;
        fe_seq *args = seq_new(g, len);
        for (uint32_t i = 0; i < len; i++)
            args->items[i] = value_node(defs[(first + i / 2 * 7) % NODES]);
        DO(fe_node_set_arguments(g, user, args, NULL, &err));
        CHECK_INT(g->nodes[user].edge_count, (len + 1) / 2);
        if (step % 7 == 0)
            DO(fe_node_replace_operand(g, user, defs[first], defs[(first + 1) % NODES], &err));
        if (step % 11 == 0)
            DO(fe_node_replace_all_uses(g, defs[first], defs[(first + 7) % NODES], &err));
        if (step % 50 == 0)
            CHECK_SOUND(g);
    }
    CHECK_SOUND(g);
    CHECK(g->edge_count < USERS * 2 * 512); /* given back blocks were used again */
    fe_graph_free(g);
}

/* What operands give back is used again, also the tails of blocks that shrink. */
static void test_edges_are_used_again(void)
{
    fe_graph *g = graph_of("x0; x1; x2; x3; x4; x5; x6; x7; x8; x9; a = f");
    static const char *const words[] = {"(x0,x1,x2)", "(x0,x1,x2,x3,x4,x5,x6,x7,x8,x9)", "(x0,x1)",
                                        "(x5,x6,x7,x8,x9,x0)"};

    for (int i = 0; i < 16000; i++) {
        set_arguments(g, "a", words[i % 4]);
        replace(g, "a", "x0", "x1");
        replace(g, "a", "x5", "x6");
        insert(g, "a", 0, "(x0,x5,x7)");
        replace(g, "a", "x7", "x0");
    }
    CHECK_SOUND(g);
    CHECK(g->edge_count < 200);
    fe_graph_free(g);
}

/* One node with a hundred thousand operands, each used twice; one operand with as many users. */
static void test_very_long_lists(void)
{
    const uint32_t many = 100000;
    fe_graph *g = graph_of("x");
    uint32_t target = target_of(g, FE_OP_CALL_METHOD, "f"), id;
    fe_seq *all = seq_new(g, (size_t)2 * many);
    fe_error err;

    for (uint32_t i = 0; i < many; i++) {
        DO(fe_node_new(g, FE_OP_CALL_METHOD, target, NULL, FE_NONE_ID, &id, &err));
        fe_seq *one = seq_new(g, 1);
        one->items[0] = value_node(node(g, "x"));
        DO(fe_node_set_arguments(g, id, one, NULL, &err));
        fe_node_place(g, id, (fe_point){FE_ROOT, false});
        all->items[i] = all->items[2 * many - 1 - i] = value_node(id);
    }
    CHECK_INT(g->nodes[node(g, "x")].user_count, many);
    id = make_node(g, FE_OP_CALL_METHOD, target, "all", all, NULL);
    CHECK_INT(g->nodes[id].edge_count, many);
    CHECK_INT(g->edges[g->nodes[id].edge + many - 1].count, 2);
    DO(fe_node_replace_operand(g, id, FE_ROOT + 2, node(g, "x"), &err));
    CHECK_INT(g->nodes[id].edge_count, many);
    DO(fe_node_set_arguments(g, id, NULL, NULL, &err));
    CHECK_INT(g->nodes[id].edge_count, 0);
    fe_graph_free(g);
}

/* Graphs read without arguments: operands are given as such. */
static void test_set_operands(void)
{
    fe_graph *g = graph_of("x; y; a = f x; b = f");
    uint32_t defs[] = {node(g, "y"), node(g, "x")};
    fe_error err;

    DO(fe_node_set_operands(g, node(g, "b"), defs, 2, &err));
    CHECK_TEXT(operands(g, "b"), "y x");
    CHECK_TEXT(users(g, "x"), "a b");
    CHECK_SOUND(g);
    DO(fe_node_set_operands(g, node(g, "b"), defs, 1, &err));
    CHECK_TEXT(users(g, "x"), "a");
    fe_node_drop_operands(g, node(g, "b"));
    CHECK_TEXT(users(g, "y"), "");
    CHECK_TEXT(operands(g, "b"), "");
    fe_graph_free(g);
}

static void test_order_of_users(void)
{
    fe_graph *g = graph_of("x; a = f x; b = f x; c = f x");
    uint32_t x = node(g, "x");

    fe_edge_move_last(g, fe_edge_find(g, x, node(g, "a")));
    CHECK_TEXT(users(g, "x"), "b c a");
    fe_edge_move_last(g, fe_edge_find(g, x, node(g, "a")));
    fe_edge_move_last(g, fe_edge_find(g, x, node(g, "c")));
    CHECK_TEXT(users(g, "x"), "b a c");
    CHECK_INT(fe_edge_find(g, node(g, "a"), x), FE_NONE_ID);
    CHECK_SOUND(g);
    fe_graph_free(g);
}

int main(void)
{
    RUN(test_counts_and_order);
    RUN(test_new_arguments);
    RUN(test_keep_one_half);
    RUN(test_erased_operands_are_refused);
    RUN(test_insert_argument);
    RUN(test_insert_many);
    RUN(test_replace_operand);
    RUN(test_replace_all_uses);
    RUN(test_replace_by_itself_with_operands_out_of_order);
    RUN(test_operand_lists_of_every_size);
    RUN(test_edges_are_used_again);
    RUN(test_very_long_lists);
    RUN(test_set_operands);
    RUN(test_order_of_users);
    return 0;
}
