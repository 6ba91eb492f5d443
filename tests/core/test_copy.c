/* test_copy.c - copying whole graphs and comparing them. */
#include "check.h"

#define EVERYTHING \
    "x; y 3; w = @weight; a = f x (x,y) k:[y,'s']; b = g a w x; m = #layer b None 0|1|x; c = f x a; return (m,[c],b)"

/* A copy; node_map is given back when it is asked for. */
static fe_graph *copy_of(const fe_graph *from, const uint32_t *objects, uint32_t **node_map)
{
    fe_graph *g = graph_new();
    uint32_t *map = malloc(from->node_count * sizeof *map);
    fe_error err;

    CHECK(map);
    DO(fe_graph_copy(g, from, objects, map, &err));
    if (node_map)
        *node_map = map;
    else
        free(map);
    return g;
}

static int equal(const fe_graph *a, const fe_graph *b)
{
    fe_error err;

    return fe_graph_equal(a, b, NULL, NULL, &err);
}

static void test_same_text_and_users(void)
{
    fe_graph *g = graph_of(EVERYTHING), *h;
    uint32_t *map;
    char text[TEXT_SIZE];
    static const char *const names[] = {"x", "y", "w", "a", "b", "m", "c"};

    fe_edge_move_last(g, fe_edge_find(g, node(g, "x"), node(g, "a"))); /* users not in the order of the list */
    fe_edge_move_last(g, fe_edge_find(g, node(g, "a"), node(g, "b")));
    h = copy_of(g, NULL, &map);
    char *want = text_of(g);
    CHECK_GRAPH(h, want);
    free(want);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        strcpy(text, users(g, names[i]));
        CHECK_TEXT(users(h, names[i]), text);
        strcpy(text, operands(g, names[i]));
        CHECK_TEXT(operands(h, names[i]), text);
        CHECK_INT(map[node(g, names[i])], node(h, names[i]));
    }
    CHECK_INT(map[FE_ROOT], FE_ROOT);
    CHECK_SOUND(h);
    CHECK_INT(equal(g, h), 1);
    free(map);
    fe_graph_free(g); /* the copy stands alone */
    CHECK_SOUND(h);
    build(h, "d = f c");
    fe_graph_free(h);
}

/* Erased nodes stay behind, and so do the names they had; counters go on as in torch.fx's copies. */
static void test_erased_nodes_stay_behind(void)
{
    fe_graph *g = graph_of("x; a = f x; b = f x; c = f b"), *h;
    uint32_t *map;

    fe_node_erase(g, node(g, "a"));
    build(g, "a = f x; a = f x"); /* a_1, a_2 */
    fe_node_erase(g, node(g, "a_1"));
    CHECK_TEXT(order(g), "x b c a_2");
    h = copy_of(g, NULL, &map);
    CHECK_INT(h->node_count, 5);
    CHECK_INT(map[2], FE_NONE_ID);
    free(map);
    build(h, "a = f x; a = f x; b = f x");
    CHECK_TEXT(order(h), "x b c a_2 a a_3 b_1");
    CHECK_SOUND(h);
    fe_graph_free(g);
    fe_graph_free(h);
}

static void test_operand_after_its_user(void)
{
    fe_graph *g = graph_of("x; a = f x; b = g a");

    fe_node_place(g, node(g, "b"), (fe_point){node(g, "x"), false});
    fe_graph *h = copy_of(g, NULL, NULL);
    CHECK_TEXT(order(h), "b x a");
    CHECK_TEXT(operands(h, "b"), "a");
    CHECK_TEXT(faults_of(h, true, false), "UNDEFINED_OPERAND b a");
    CHECK_INT(equal(g, h), 1);
    fe_graph_free(g);
    fe_graph_free(h);
}

/* insert_arg leaves operands in another order than that of first use, which is the order they have in a copy. */
static void test_operands_out_of_order(void)
{
    fe_graph *g = graph_of("x; y; z; a = f x y; b = f x y z"), *h;
    fe_error err;

    DO(fe_node_insert_argument(g, node(g, "a"), 0, value_node(node(g, "y")), &err));
    DO(fe_node_insert_argument(g, node(g, "b"), 0, value_node(node(g, "z")), &err));
    CHECK_TEXT(operands(g, "a"), "x y*2");
    fe_edge_move_last(g, fe_edge_find(g, node(g, "y"), node(g, "a")));
    h = copy_of(g, NULL, NULL);
    CHECK_TEXT(operands(h, "a"), "y*2 x");
    CHECK_TEXT(operands(h, "b"), "z*2 x y");
    CHECK_TEXT(users(h, "x"), "a b");
    CHECK_TEXT(users(h, "y"), "b a");
    CHECK_TEXT(users(h, "z"), "b");
    CHECK_SOUND(h);
    fe_graph_free(g);
    fe_graph_free(h);
}

static void test_objects_meta_and_types(void)
{
    fe_graph *g = graph_of("x; a = f x"), *h = graph_new();
    uint32_t objects[3], map[4] = {0}, node_map[8];
    bool is_new;
    fe_error err;

    for (int i = 0; i < 3; i++)
        DO(fe_object_new(g, &objects[i], &err));
    for (int i = 0; i < 4; i++)
        DO(fe_object_new(h, &map[3 - i], &err));
    DO(fe_meta_set(g, node(g, "a"), 5, objects[0], &err));
    DO(fe_meta_set(g, node(g, "a"), 2, objects[1], &err));
    DO(fe_meta_set(g, node(g, "x"), 5, objects[0], &err));
    fe_meta_clear(g, node(g, "x"));
    fe_node_set_type(g, node(g, "a"), objects[2]);
    uint32_t target;
    DO(fe_target_get(g, FE_OP_CALL_FUNCTION, objects[2], NULL, &target, &is_new, &err));
    g->targets[target].text = str(g, "stem");
    g->targets[target].flags = FE_TARGET_KNOWN | FE_TARGET_MUTATES;
    make_node(g, FE_OP_CALL_FUNCTION, target, "call", NULL, NULL);

    DO(fe_graph_copy(h, g, map, node_map, &err));
    const fe_meta *m = h->details[node(h, "a")].meta;
    CHECK_INT(m->len, 2);
    CHECK(m->entries[0].key == 5 && m->entries[0].object == map[0]);
    CHECK(m->entries[1].key == 2 && m->entries[1].object == map[1]);
    CHECK(!h->details[node(h, "x")].meta);
    CHECK_INT(h->details[node(h, "a")].type, map[2]);
    const fe_target *t = &h->targets[h->nodes[node(h, "call")].target];
    CHECK_INT(t->object, map[2]);
    CHECK_INT(t->flags, FE_TARGET_KNOWN | FE_TARGET_MUTATES);
    CHECK(t->text == str(h, "stem"));
    CHECK_INT(h->object_refs[map[0]], 1);
    CHECK_INT(h->object_refs[map[2]], 2);
    fe_graph_free(g);
    fe_graph_free(h);
}

static void test_signature(void)
{
    fe_graph *g = graph_of("x; a = f x; b = f x; return b");
    fe_error err;

    fe_node_erase(g, node(g, "a"));
    CHECK((g->signature = fe_signature_new(g->allocator)));
    fe_spec parameter = {.kind = FE_INPUT_BUFFER, .persistent = true, .node = node(g, "x"), .target = str(g, "weight")};
    DO(fe_signature_add_input(g->signature, parameter, &err));
    DO(fe_signature_add_input(g->signature, (fe_spec){.kind = FE_INPUT_USER, .node = FE_NONE_ID}, &err));
    DO(fe_signature_add_output(g->signature, (fe_spec){.kind = FE_OUTPUT_LOSS, .node = node(g, "b")}, &err));
    fe_graph *h = copy_of(g, NULL, NULL);
    const fe_signature *s = h->signature;
    CHECK_INT(s->input_count, 2);
    CHECK(s->inputs[0].kind == FE_INPUT_BUFFER && s->inputs[0].persistent);
    CHECK_INT(s->inputs[0].node, node(h, "x"));
    CHECK(s->inputs[0].target == str(h, "weight"));
    CHECK_INT(s->inputs[1].node, FE_NONE_ID);
    CHECK_INT(s->output_count, 1);
    CHECK_INT(s->outputs[0].node, node(h, "b"));
    CHECK_INT(s->outputs[0].kind, FE_OUTPUT_LOSS);
    fe_graph_free(g);
    fe_graph_free(h);
}

static void test_empty(void)
{
    fe_graph *g = graph_new(), *h = copy_of(g, NULL, NULL);

    CHECK_INT(h->live, 0);
    CHECK_INT(equal(g, h), 1);
    CHECK_INT(equal(g, g), 1);
    build(h, "x");
    CHECK_INT(equal(g, h), 0);
    fe_graph_free(g);
    fe_graph_free(h);
}

/* Names don't count; ops, targets, arguments and order do. */
static void test_equal(void)
{
    static const struct {
        const char *a, *b;
        int equal;
    } cases[] = {
        {"x; a = f x 1; return a", "x; b = f x 1; return b", 1},
        {"x; a = f x 1", "x; a = f x 2", 0},
        {"x; a = f x 1", "x; a = g x 1", 0},
        {"x; a = f x 1", "x; a = #f x 1", 0},
        {"x; a = f x 1", "x; a = f 1 x", 0},
        {"x; a = f x", "x; a = f x None", 0},
        {"x; a = f x (1,2)", "x; a = f x [1,2]", 0},
        {"x; a = f x (1,2)", "x; a = f x (1,2,3)", 0},
        {"x; a = f x ()", "x; a = f x ()", 1},
        {"x; a = f x k:1", "x; a = f x k:1", 1},
        {"x; a = f x k:1", "x; a = f x j:1", 0},
        {"x; a = f x k:1", "x; a = f x", 0},
        {"x; a = f x '1'", "x; a = f x 1", 0},
        {"x; a = f x 's'", "x; a = f x 's'", 1},
        {"x; y; a = f x", "x; y; a = f y", 0},
        {"x; y; a = f x; b = f a", "x; y; a = f x; b = f x", 0},
        {"x; y", "y; x", 0}, /* the target of an input is its name */
        {"x; a = f x; b = g x", "x; b = g x; a = f x", 0},
        {"x; a = f x; b = f x; c = h a b", "x; a = f x; b = f x; c = h b a", 0},
        {"x", "x; y", 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fe_graph *a = graph_of(cases[i].a), *b = graph_of(cases[i].b);
        if (equal(a, b) != cases[i].equal)
            printf("'%s' and '%s'\n", cases[i].a, cases[i].b);
        CHECK_INT(equal(a, b), cases[i].equal);
        CHECK_INT(equal(b, a), cases[i].equal);
        fe_graph_free(a);
        fe_graph_free(b);
    }
}

/* Ids may differ: what counts is where a node stands. */
static void test_equal_after_edits(void)
{
    fe_graph *a = graph_of("x; gone = f x; b = f x; c = g b"), *b = graph_of("c = g; x; b = f x");
    fe_seq *args = seq_new(b, 1);
    fe_error err;

    fe_node_erase(a, node(a, "gone"));
    CHECK_INT(equal(a, b), 0);
    fe_node_place(b, node(b, "c"), (fe_point){FE_ROOT, false});
    args->items[0] = value_node(node(b, "b"));
    DO(fe_node_set_arguments(b, node(b, "c"), args, NULL, &err));
    CHECK_INT(equal(a, b), 1);
    fe_graph_free(a);
    fe_graph_free(b);
}

/* Objects are equal when their classes are. */
static void test_equal_objects(void)
{
    fe_graph *g[2];
    const uint32_t same[] = {4}, other[] = {5};
    bool is_new;
    fe_error err;

    for (int i = 0; i < 2; i++) {
        uint32_t object, target;
        g[i] = graph_of("x");
        DO(fe_object_new(g[i], &object, &err));
        DO(fe_target_get(g[i], FE_OP_CALL_FUNCTION, object, NULL, &target, &is_new, &err));
        fe_seq *args = seq_new(g[i], 2), *typed = fe_seq_new(g[i], 0, object, &err);
        CHECK(typed);
        args->items[0] = (fe_value){.kind = FE_OBJECT, .as.object = object};
        args->items[1] = value_seq(FE_TUPLE, typed);
        fe_object_ref(g[i], object);
        make_node(g[i], FE_OP_CALL_FUNCTION, target, "f", args, NULL);
    }
    CHECK_INT(fe_graph_equal(g[0], g[1], same, same, &err), 1);
    CHECK_INT(fe_graph_equal(g[0], g[1], same, other, &err), 0);
    g[1]->details[node(g[1], "f")].args->items[1].as.seq->type = FE_NONE_ID;
    g[1]->object_refs[0]--;
    CHECK_INT(fe_graph_equal(g[0], g[1], same, same, &err), 0);
    fe_graph_free(g[0]);
    fe_graph_free(g[1]);
}

int main(void)
{
    RUN(test_same_text_and_users);
    RUN(test_erased_nodes_stay_behind);
    RUN(test_operand_after_its_user);
    RUN(test_operands_out_of_order);
    RUN(test_objects_meta_and_types);
    RUN(test_signature);
    RUN(test_empty);
    RUN(test_equal);
    RUN(test_equal_after_edits);
    RUN(test_equal_objects);
    return 0;
}
