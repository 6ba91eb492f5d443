/* test_signature.c - what a signature follows beside its nodes: the calls of modules, constants, and many inputs that go. */
#include "check.h"

static void add_input(fe_graph *g, const char *name)
{
    fe_spec spec = {.kind = FE_INPUT_PARAMETER, .node = node(g, name), .origin = 1 + g->signature->input_count};
    fe_error err;

    DO(fe_signature_add_input(g->signature, spec, &err));
}

static void add_called(fe_graph *g, const char *name)
{
    fe_error err;

    DO(fe_signature_add_called(g->signature, str(g, name), node(g, name), &err));
}

static fe_graph *graph_with_signature(const char *lines)
{
    fe_graph *g = graph_of(lines);

    CHECK((g->signature = fe_signature_new(g->allocator)));
    return g;
}

/* "old>new", with "-" for a node that is gone. */
static const char *called_of(const fe_graph *g)
{
    static char text[TEXT_SIZE];
    const fe_signature *s = g->signature;
    char *end = text;

    *end = '\0';
    for (uint32_t i = 0; i < s->called_count; i++) {
        uint32_t id = s->called[i].node;
        bool is_gone = id == FE_NONE_ID || !fe_node_is_listed(g, id);
        end += snprintf(end, (size_t)(text + sizeof text - end), "%s%s>%s", i ? " " : "", s->called[i].name->data,
                        is_gone ? "-" : g->details[id].name->data);
    }
    return text;
}

static fe_graph *copy_of(const fe_graph *from)
{
    fe_graph *g = graph_new();
    uint32_t *map = malloc(from->node_count * sizeof *map);
    fe_error err;

    CHECK(map);
    DO(fe_graph_copy(g, from, NULL, map, &err));
    free(map);
    return g;
}

static void test_calls_follow(void)
{
    fe_graph *g = graph_with_signature("x; a = f x; b = f a; c = f a b; return (b,c)"), *h;
    fe_error err;

    add_called(g, "x");
    add_called(g, "a");
    add_called(g, "b");
    fe_node_set_name(g, node(g, "x"), str(g, "input"));
    CHECK_TEXT(called_of(g), "x>input a>a b>b");
    build(g, "n = g input");
    DO(fe_node_replace_operand(g, node(g, "b"), node(g, "a"), node(g, "n"), &err));
    CHECK_TEXT(called_of(g), "x>input a>a b>b"); /* c still uses a */
    DO(fe_node_replace_all_uses(g, node(g, "a"), node(g, "n"), &err));
    CHECK_TEXT(called_of(g), "x>input a>n b>b");
    fe_node_erase(g, node(g, "a"));
    fe_node_set_name(g, node(g, "n"), str(g, "again"));
    build(g, "m = g input");
    DO(fe_node_replace_all_uses(g, node(g, "again"), node(g, "m"), &err));
    CHECK_TEXT(called_of(g), "x>input a>m b>b");
    DO(fe_node_replace_all_uses(g, node(g, "b"), node(g, "m"), &err));
    DO(fe_node_replace_all_uses(g, node(g, "m"), node(g, "m"), &err));
    CHECK_TEXT(called_of(g), "x>input a>m b>m");
    h = copy_of(g);
    CHECK_TEXT(called_of(h), "x>input a>m b>m");
    fe_graph_free(g);
    fe_graph_free(h);
}

/* Many names, on many nodes that meet and part again: what the table says is what following each one by hand says. */
static void test_many_calls_follow(void)
{
    enum { NODES = 50, NAMES = 300 };
    fe_graph *g = graph_with_signature("x; return x");
    uint32_t ids[NODES], want[NAMES], seed = 1;
    fe_error err;
    char line[32];

    for (uint32_t i = 0; i < NODES; i++) {
        snprintf(line, sizeof line, "n%u = f x", i);
        build(g, line);
        snprintf(line, sizeof line, "n%u", i);
        ids[i] = node(g, line);
    }
    for (uint32_t i = 0; i < NAMES; i++) {
        want[i] = i % 7 == 6 ? FE_NONE_ID : ids[i * i % NODES];
        snprintf(line, sizeof line, "name%u", i);
        DO(fe_signature_add_called(g->signature, str(g, line), want[i], &err));
    }
    for (int step = 0; step < 2000; step++) {
        seed = seed * 1103515245u + 12345u;
        uint32_t old = ids[(seed >> 8) % NODES], new = ids[(seed >> 16) % NODES];
        fe_signature_replace_called(g->signature, old, new);
        for (uint32_t i = 0; i < NAMES; i++) {
            if (want[i] == old)
                want[i] = new;
            CHECK_INT(g->signature->called[i].node, want[i]);
        }
    }
    fe_graph_free(g);
}

static void test_calls_of_nodes_that_are_gone(void)
{
    fe_graph *g = graph_with_signature("x; a = f x; return x"), *h, *i;

    add_called(g, "a");
    add_called(g, "x");
    fe_node_erase(g, node(g, "a"));
    CHECK_TEXT(called_of(g), "a>- x>x");
    h = copy_of(g);
    i = copy_of(h);
    CHECK_TEXT(called_of(h), "a>- x>x");
    CHECK_TEXT(called_of(i), "a>- x>x");
    fe_graph_free(g);
    fe_graph_free(h);
    fe_graph_free(i);
}

static void test_outputs_that_change_lose_their_origin(void)
{
    fe_graph *g = graph_with_signature("x; a = f x; b = f x; return (a,b)");
    fe_error err;
    fe_spec *outputs;

    for (uint32_t i = 0; i < 2; i++) {
        fe_spec spec = {.kind = FE_OUTPUT_USER, .node = node(g, i ? "b" : "a"), .origin = i + 1};
        DO(fe_signature_add_output(g->signature, spec, &err));
    }
    outputs = g->signature->outputs;
    fe_signature_replace_output(g->signature, node(g, "a"), node(g, "a"));
    CHECK_INT(outputs[0].origin, 1);
    DO(fe_node_replace_all_uses(g, node(g, "a"), node(g, "x"), &err));
    CHECK_INT(outputs[0].origin, 0);
    CHECK_INT(outputs[0].node, node(g, "x"));
    CHECK_INT(outputs[1].origin, 2);
    fe_signature_set_outputs(g->signature, (fe_value[]){value_node(node(g, "x")), value_int(3)}, 2);
    CHECK_INT(outputs[1].origin, 0);
    CHECK_INT(outputs[1].node, FE_NONE_ID);
    CHECK_INT(outputs[1].value.as.integer, 3);
    fe_graph_free(g);
}

static void test_a_constant_has_its_name(void)
{
    fe_graph *g = graph_with_signature("x; flag; return x");
    fe_spec constant = {.kind = FE_INPUT_USER, .node = FE_NONE_ID, .name = str(g, "flag"), .value = value_int(1)};
    fe_error err;

    add_input(g, "x");
    DO(fe_signature_add_input(g->signature, constant, &err));
    fe_node_set_name(g, node(g, "flag"), str(g, "other"));
    fe_node_set_name(g, node(g, "x"), str(g, "flag"));
    CHECK_TEXT(g->signature->inputs[1].name->data, "other");
    fe_graph_free(g);
}

static void test_a_new_placeholder_is_no_constant(void)
{
    fe_graph *g = graph_with_signature("flag; x; return x");
    fe_spec constant = {.kind = FE_INPUT_USER, .node = FE_NONE_ID, .value = value_int(1)};
    fe_error err;

    DO(fe_signature_add_input(g->signature, constant, &err));
    add_input(g, "x");
    g->insert = (fe_point){node(g, "flag"), false};
    build(g, "new");
    CHECK(!g->signature->inputs[0].name); /* the constant has none, and takes none */
    fe_node_erase(g, node(g, "new"));
    CHECK_INT(g->signature->input_count, 2);
    fe_node_erase(g, node(g, "flag"));
    CHECK_INT(g->signature->input_count, 1);
    CHECK_INT(g->signature->inputs[0].node, node(g, "x"));
    fe_graph_free(g);
}

/* Whoever makes an output node may take it back: only then is it followed. */
static void test_a_new_output_is_followed_when_it_stays(void)
{
    fe_graph *g = graph_with_signature("x; a = f x");
    fe_spec spec = {.kind = FE_OUTPUT_USER, .node = node(g, "x"), .origin = 1};
    fe_error err;

    DO(fe_signature_add_output(g->signature, spec, &err));
    build(g, "return a");
    CHECK_INT(g->signature->outputs[0].node, node(g, "x"));
    fe_signature_follow(g, node(g, "a"));
    CHECK_INT(g->signature->outputs[0].node, node(g, "x"));
    fe_signature_follow(g, fe_node_prev(g, FE_ROOT));
    CHECK_INT(g->signature->outputs[0].node, node(g, "a"));
    CHECK_INT(g->signature->outputs[0].origin, 0);
    fe_graph_free(g);
}

static void test_many_inputs_go(void)
{
    fe_graph *g = graph_with_signature("p; q; c; r; x; a = f x; return a");
    fe_error err;

    add_input(g, "p");
    add_input(g, "q");
    DO(fe_signature_add_input(g->signature, (fe_spec){.node = FE_NONE_ID, .name = str(g, "c"), .origin = 3}, &err));
    add_input(g, "r");
    add_input(g, "x");
    fe_signature_erase_inputs(g, (const uint8_t[]){0, 0, 0, 0, 0});
    CHECK_INT(g->signature->input_count, 5);
    fe_signature_erase_inputs(g, (const uint8_t[]){1, 0, 1, 1, 0});
    CHECK_GRAPH(g, "graph():\n"
                   "    %q : [num_users=0] = placeholder[target=q]\n"
                   "    %x : [num_users=1] = placeholder[target=x]\n"
                   "    %a : [num_users=1] = call_method[target=f](args = (%x,), kwargs = {})\n"
                   "    return a");
    CHECK_INT(g->signature->input_count, 2);
    CHECK_INT(g->signature->inputs[0].node, node(g, "q"));
    CHECK_INT(g->signature->inputs[1].node, node(g, "x"));
    CHECK_INT(g->signature->inputs[1].origin, 5);
    CHECK_SOUND(g);
    fe_graph_free(g);
}

static void test_copies_without_memory(void)
{
    fe_graph *g = graph_with_signature("x; a = f x; return a");
    uint32_t map[16];
    size_t n = 0;
    int result = -1;

    add_input(g, "x");
    for (int i = 0; i < 20; i++)
        add_called(g, i % 2 ? "x" : "a");
    for (; result < 0; n++) {
        test_memory m;
        fe_error err = {0};
        memory_init(&m);
        fe_graph *h = fe_graph_new(&m.allocator, NULL);
        CHECK(h);
        memory_fail(&m, n, false);
        result = fe_graph_copy(h, g, NULL, map, &err);
        CHECK(result == 0 || err.code == FE_NO_MEMORY);
        if (result == 0)
            CHECK_INT(h->signature->called_count, 20);
        fe_graph_free(h);
        CHECK_INT(m.blocks, 0);
    }
    CHECK(n > 5);
    fe_graph_free(g);
}

int main(void)
{
    RUN(test_calls_follow);
    RUN(test_many_calls_follow);
    RUN(test_calls_of_nodes_that_are_gone);
    RUN(test_outputs_that_change_lose_their_origin);
    RUN(test_a_constant_has_its_name);
    RUN(test_a_new_placeholder_is_no_constant);
    RUN(test_a_new_output_is_followed_when_it_stays);
    RUN(test_many_inputs_go);
    RUN(test_copies_without_memory);
    return 0;
}
