/* test_explorer.c - nodes as JSON for Model Explorer. tests/test_model_explorer.py parses it, of real programs. */
#include "explorer.h"

#include "check.h"

#define TEXT(t) {t, sizeof(t) - 1}
#define MOST 16

static fe_explorer_node nodes[MOST];
static fe_explorer_target targets[MOST];

/* Everything is told of every node; leaves are known by their op. */
static fe_explorer told(const fe_graph *g, const fe_renderer *r)
{
    static const fe_text names[] = {TEXT("\"first\"")};

    CHECK(g->node_count <= MOST && g->target_count <= MOST);
    memset(nodes, 0, sizeof nodes);
    for (uint32_t t = 0; t < g->target_count; t++)
        targets[t] = (fe_explorer_target){TEXT("\"call\""), names, 1};
    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT; id = g->nodes[id].next) {
        if (g->nodes[id].op != FE_OP_CALL_METHOD)
            nodes[id].leaf = (fe_text)TEXT("\"label\":\"leaf\",\"attrs\":[]");
    }
    return (fe_explorer){targets, nodes, FE_NONE_ID, r};
}

static const char *written(const fe_graph *g, const fe_explorer *e)
{
    static char text[4096];
    fe_buffer b;

    fe_buffer_init(&b, &fe_libc_allocator);
    fe_explorer_write(g, e, &b);
    CHECK(!b.failed && b.len < sizeof text);
    memcpy(text, b.data, b.len);
    text[b.len] = '\0';
    fe_buffer_clear(&b);
    return text;
}

static bool says(const char *text, const char *part)
{
    if (!strstr(text, part))
        printf("%s\nis not in\n%s\n", part, text);
    return strstr(text, part);
}

static void test_a_graph(void)
{
    fe_graph *g = graph_of("x; y = neg x 1 out:x; return y");
    fe_renderer r = {.quote = fe_explorer_quote};
    fe_explorer e = told(g, &r);

    nodes[node(g, "y")].space = (fe_text)TEXT("a/b");
    nodes[node(g, "y")].value = (fe_text)TEXT("\"f32[2]\"");
    nodes[node(g, "y")].source = (fe_text)TEXT(",{\"key\":\"source\",\"value\":\"m.py:3\"}");
    CHECK_TEXT(written(g, &e),
               "{\"id\":\"x\",\"label\":\"leaf\",\"attrs\":[],\"namespace\":\"\",\"subgraphIds\":[],"
               "\"incomingEdges\":[],\"outputsMetadata\":[]},"
               "{\"id\":\"y\",\"label\":\"call\",\"attrs\":[{\"key\":\"op\",\"value\":\"call_method\"},"
               "{\"key\":\"first\",\"value\":\"x\"},{\"key\":\"1\",\"value\":\"1\"},{\"key\":\"out\",\"value\":\"x\"},"
               "{\"key\":\"source\",\"value\":\"m.py:3\"}],\"namespace\":\"a/b\",\"subgraphIds\":[],"
               "\"incomingEdges\":[{\"sourceNodeId\":\"x\",\"sourceNodeOutputId\":\"0\",\"targetNodeInputId\":\"0\"}],"
               "\"outputsMetadata\":[{\"id\":\"0\",\"attrs\":[{\"key\":\"tensor_shape\",\"value\":\"f32[2]\"}]}]},"
               "{\"id\":\"output\",\"label\":\"leaf\",\"attrs\":[],\"namespace\":\"\",\"subgraphIds\":[],"
               "\"incomingEdges\":[{\"sourceNodeId\":\"y\",\"sourceNodeOutputId\":\"0\",\"targetNodeInputId\":\"0\"}],"
               "\"outputsMetadata\":[]}");
    fe_graph_free(g);
}

static void test_results_taken(void)
{
    fe_graph *g = graph_of("x; s = split x; a = getitem s 0; c = getitem s 2; d = getitem s 2; return (a,c,d)");
    fe_renderer r = {.quote = fe_explorer_quote};
    fe_explorer e = told(g, &r);

    e.getitem = g->nodes[node(g, "a")].target;
    nodes[node(g, "a")].value = (fe_text)TEXT("\"A\"");
    nodes[node(g, "c")].value = (fe_text)TEXT("\"C\"");
    nodes[node(g, "d")].value = (fe_text)TEXT("\"C\"");
    const char *text = written(g, &e);
    CHECK(says(text, "\"outputsMetadata\":[{\"id\":\"0\",\"attrs\":[{\"key\":\"tensor_shape\",\"value\":\"A\"}]},"
                     "{\"id\":\"2\",\"attrs\":[{\"key\":\"tensor_shape\",\"value\":\"C\"}]}]}"));
    CHECK(says(text, "\"sourceNodeId\":\"s\",\"sourceNodeOutputId\":\"2\""));
    fe_graph_free(g);
}

static const char *space_with(const char *a, const char *b)
{
    static char text[64];
    fe_graph *g = graph_of("w; y = neg w; z = neg w; return (y,z)");
    fe_renderer r = {.quote = fe_explorer_quote};
    fe_explorer e = told(g, &r);

    nodes[node(g, "w")].follows = true;
    nodes[node(g, "w")].space = (fe_text)TEXT("its own");
    nodes[node(g, "y")].space = (fe_text){a, strlen(a)};
    nodes[node(g, "z")].space = (fe_text){b, strlen(b)};
    const char *from = strstr(written(g, &e), "\"namespace\":\"");
    CHECK(from);
    from += strlen("\"namespace\":\"");
    snprintf(text, sizeof text, "%.*s", (int)(strchr(from, '"') - from), from);
    fe_graph_free(g);
    return text;
}

static void test_weights_follow_their_users(void)
{
    CHECK_TEXT(space_with("a/b", "a/b"), "a/b");
    CHECK_TEXT(space_with("a/b/c", "a/b/d"), "a/b");
    CHECK_TEXT(space_with("a/b", "a/bc"), "a");
    CHECK_TEXT(space_with("a/bc", "a/b"), "a");
    CHECK_TEXT(space_with("a/b", "a/b/c"), "a/b");
    CHECK_TEXT(space_with("a/b/c", "a/b"), "a/b");
    CHECK_TEXT(space_with("a", "b"), "");
    CHECK_TEXT(space_with("", "a"), "");
}

static void test_graphs_that_are_run(void)
{
    fe_graph *g = graph_of("a = @one; b = @two; y = cond a b; return y");
    fe_renderer r = {.quote = fe_explorer_quote};
    fe_explorer e = told(g, &r);

    nodes[node(g, "a")].graph = (fe_text)TEXT("\"m/one\"");
    nodes[node(g, "b")].graph = (fe_text)TEXT("\"m/two\"");
    CHECK(says(written(g, &e), "\"subgraphIds\":[\"m/one\",\"m/two\"]"));
    fe_graph_free(g);
}

static const char *argument(const char *value)
{
    static char text[2048];
    fe_graph *g = graph_of("x; y = neg x; return y");
    fe_renderer r = {.quote = fe_explorer_quote};

    fe_seq *args = seq_new(g, 1);
    args->items[0] = value_str(g, value);
    (void)make_node(g, FE_OP_CALL_METHOD, target_of(g, FE_OP_CALL_METHOD, "call"), "z", args, NULL);
    fe_explorer e = told(g, &r);
    const char *from = strstr(written(g, &e), "\"id\":\"z\"");
    CHECK(from);
    from = strstr(from, "\"first\",\"value\":\"") + strlen("\"first\",\"value\":\"");
    snprintf(text, sizeof text, "%.*s", (int)(strstr(from, "\"}") - from), from);
    fe_graph_free(g);
    return text;
}

static void test_strings(void)
{
    char many[400];

    CHECK_TEXT(argument("plain"), "'plain'");
    CHECK_TEXT(argument("it's"), "\\u0022it's\\u0022");
    CHECK_TEXT(argument("\xc3\xa4"), "'\\u00e4'");
    CHECK_TEXT(argument("\xe2\x98\x83'\""), "'\\u2603\\u005c'\\u0022'");
    CHECK_TEXT(argument("\xf0\x9f\x98\x80"), "'\\ud83d\\ude00'");
    CHECK_TEXT(argument("\xed\xa0\x80"), "'\\ud800'"); /* a lone surrogate */
    CHECK_TEXT(argument("\t\n\r\x01\x7f"), "'\\u005ct\\u005cn\\u005cr\\u005cx01\\u005cx7f'");
    CHECK_TEXT(argument("\xc3\xa4\t\n\r\x01\x7f"), "'\\u00e4\\u005ct\\u005cn\\u005cr\\u005cx01\\u005cx7f'");
    memset(many, 'a', sizeof many);
    many[298] = '\xc3', many[299] = '\xa4'; /* the cut falls between them */
    many[399] = '\0';
    const char *text = argument(many);
    CHECK_INT(strlen(text), 1 + 298 + 3);
    CHECK(strcmp(text + 296, "aaa...") == 0);
}

static void test_no_memory(void)
{
    test_memory m;
    fe_graph *g = graph_of("x; y = neg x (1,2) out:'text'; return y");
    fe_renderer r = {.quote = fe_explorer_quote};
    fe_explorer e = told(g, &r);
    const fe_allocator *own = g->allocator;
    bool failed = true;

    for (size_t nth = 0; failed; nth++) {
        fe_buffer b;
        memory_init(&m);
        memory_fail(&m, nth, true);
        fe_buffer_init(&b, &m.allocator);
        g->allocator = &m.allocator;
        fe_explorer_write(g, &e, &b);
        g->allocator = own;
        failed = b.failed;
        fe_buffer_clear(&b);
        CHECK_INT(m.blocks, 0);
    }
    fe_graph_free(g);
}

int main(void)
{
    RUN(test_a_graph);
    RUN(test_results_taken);
    RUN(test_weights_follow_their_users);
    RUN(test_graphs_that_are_run);
    RUN(test_strings);
    RUN(test_no_memory);
    return 0;
}
