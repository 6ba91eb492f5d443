/* test_codegen.c - the lines of code, their nodes, names and globals; memory that runs out. tests/test_codegen.py compares
 * with torch. */
#include "check.h"
#include "codegen.h"

static const fe_text AROUND[] = {{"return ", 7}, {"", 0}};
static const fe_code_piece F[] = {{{"", 0}, 0}}, G[] = {{{"torch.g", 7}, FE_NONE_ID}};
static const fe_code_global GLOBALS[] = {{{"f", 1}, false}};

typedef struct {
    fe_code_options o;
    fe_code_target targets[32];
    fe_renderer renderer;
} options;

static bool no_name(void *ctx, const char *text, size_t len)
{
    (void)ctx;
    (void)text;
    (void)len;
    return false;
}

static void set_options(options *s, const fe_graph *g)
{
    *s = (options){.o = {.globals = GLOBALS,
                         .global_count = 1,
                         .is_name = no_name,
                         .root = "self",
                         .output_texts = AROUND,
                         .output_count = 1,
                         .colour = "",
                         .dim = "",
                         .reset = ""}};
    CHECK(g->target_count <= 32);
    for (uint32_t i = 0; i < g->target_count; i++) {
        const char *text = g->targets[i].text ? g->targets[i].text->data : "";
        fe_code_target *t = &s->targets[i];
        t->name = strcmp(text, "f") == 0 ? (fe_code_text){F, 1} : (fe_code_text){G, 1};
        if (strcmp(text, "add") == 0)
            *t = (fe_code_target){FE_CODE_OPERATOR, {"{} + {}", 7}, {F, 1}};
        if (strcmp(text, "pow") == 0)
            *t = (fe_code_target){FE_CODE_OPERATOR, {"{} ** {}", 8}, {F, 1}};
        if (strcmp(text, "iadd") == 0)
            *t = (fe_code_target){FE_CODE_INPLACE, {"{} += {}", 8}, {F, 1}};
        if (strcmp(text, "getattr") == 0)
            *t = (fe_code_target){FE_CODE_GETATTR, {"", 0}, {G, 1}};
    }
    s->o.targets = s->targets;
    s->o.target_count = g->target_count;
    s->o.renderer = &s->renderer;
}

static const char *as_text(const fe_buffer *b)
{
    static char text[4096];

    CHECK(b->len < sizeof text);
    if (b->len)
        memcpy(text, b->data, b->len);
    text[b->len] = '\0';
    return text;
}

/* Let the nodes that call methods call functions of that name. */
static void make_functions(fe_graph *g)
{
    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT; id = g->nodes[id].next) {
        if (g->nodes[id].op == FE_OP_CALL_METHOD)
            fe_node_set_target(g, id, target_of(g, FE_OP_CALL_FUNCTION, g->targets[g->nodes[id].target].text->data));
    }
}

static fe_graph *functions_of(const char *lines)
{
    fe_graph *g = graph_of(lines);

    make_functions(g);
    return g;
}

static void check_code(const char *lines, bool as_torch, const char *parameters, const char *want)
{
    fe_graph *g = functions_of(lines);
    fe_source code;
    fe_error err;
    options s;

    set_options(&s, g);
    s.o.as_torch = as_torch;
    DO(fe_code_write(g, &s.o, &code, &err));
    CHECK_TEXT(as_text(&code.body), want);
    CHECK_TEXT(as_text(&code.parameters), parameters);
    fe_code_clear(&code);
    fe_graph_free(g);
}

static void test_lines(void)
{
    check_code("x; y; a = f x (x,2) k:[y,'s']; b = g a; return 1|None|2", false, "xy",
               "    a = f(x, (x, 2), k = [y, 's']);  x = y = None\n"
               "    b = torch.g(a);  a = b = None\n"
               "    return slice(1, None, 2)\n"
               "    ");
    check_code("x; dead = f x; return None", false, "x",
               "    dead = f(x);  x = dead = None\n"
               "    return None\n"
               "    ");
    check_code("x", false, "x", "    pass\n    ");
    check_code("x", true, "x", "    ");
}

static void test_operators(void)
{
    check_code("x; a = add x -1; b = pow -2 a; c = iadd b 1; d = iadd 5 c; e = add d; return e", false, "x",
               "    a = x + -1;  x = None\n"
               "    b = (-2) ** a;  a = None\n"
               "    b += 1;  c = b;  b = None\n"
               "    d = f(5, c);  c = None\n"
               "    e = f(d);  d = None\n"
               "    return e\n"
               "    ");
    check_code("x; a = pow -2 x; return a", true, "x", "    a = -2 ** x;  x = None\n    return a\n    ");
    check_code("x; a = getattr x 'real'; b = getattr a 'a.b'; return b", false, "x",
               "    a = x.real;  x = None\n    b = torch.g(a, 'a.b');  a = None\n    return b\n    ");
}

static void test_keywords(void)
{
    check_code("x; a = f from:x to:1; return a", false, "x",
               "    a = f(**{'from': x}, to = 1);  x = None\n    return a\n    ");
    check_code("x; a = f __debug__:x; return a", false, "x",
               "    a = f(**{'__debug__': x});  x = None\n    return a\n    ");
    check_code("x; a = f from:x; return a", true, "x", "    a = f(from = x);  x = None\n    return a\n    ");
}

/* Of the nodes x and y, which read these targets. */
static void check_parameters(const char *x, const char *y, bool as_torch, const char *parameters, const char *body)
{
    fe_graph *g = graph_of("x; y; return x");
    fe_source code;
    fe_error err;
    options s;

    fe_node_set_target(g, node(g, "x"), target_of(g, FE_OP_PLACEHOLDER, x));
    fe_node_set_target(g, node(g, "y"), target_of(g, FE_OP_PLACEHOLDER, y));
    set_options(&s, g);
    s.o.as_torch = as_torch;
    DO(fe_code_write(g, &s.o, &code, &err));
    CHECK_TEXT(as_text(&code.parameters), parameters);
    CHECK_TEXT(as_text(&code.body), body);
    fe_code_clear(&code);
    fe_graph_free(g);
}

static void test_parameters(void)
{
    check_parameters("x", "x", false, "xy", "    return x\n    ");
    check_parameters("self", "a", false, "xa", "    y = a\n    return x\n    ");
    check_parameters("y", "x", false, "yy_1", "    x = y\n    return x\n    ");
    check_parameters("__debug__", "**a", false, "x**a", "    y = a\n    return x\n    ");
    check_parameters("self", "self", true, "selfself", "    x = self\n    y = self\n    return x\n    ");
}

/* In graphs that know these names to be of globals. */
static const char *const RESERVED[] = {"slice", "getattr", "torch", "input"};
static const fe_text GIVEN[] = {{"given", 5}}, OUTER[] = {{"torch", 5}, {"f", 1}};

/* The text of the body of a function, with the targets of its first parameter; NULL: it is refused. */
static const char *body_of(const fe_allocator *a, const fe_reserved *reserved, const char *target, const char *lines,
                           bool outer, fe_error *err)
{
    static char text[4096];
    fe_graph *g = fe_graph_new(a, reserved);
    fe_source code;
    options s;
    int status = -1;

    CHECK(g);
    build(g, lines);
    make_functions(g);
    fe_node_set_target(g, node(g, "x"), target_of(g, FE_OP_PLACEHOLDER, target));
    set_options(&s, g);
    s.o.given = GIVEN;
    s.o.given_count = 1;
    s.o.outer = OUTER;
    s.o.outer_count = outer ? 2 : 0;
    s.o.plain_head = !outer;
    status = fe_code_write(g, &s.o, &code, err);
    if (status == 0)
        snprintf(text, sizeof text, "%s", as_text(&code.body));
    fe_code_clear(&code);
    fe_graph_free(g);
    return status == 0 ? text : NULL;
}

static void test_hidden_globals(void)
{
    test_memory memory;
    fe_reserved reserved;
    fe_error err;

    memory_init(&memory);
    const fe_allocator *a = &memory.allocator;
    DO(fe_reserved_init(&reserved, a));
    for (size_t i = 0; i < sizeof RESERVED / sizeof *RESERVED; i++)
        DO(fe_reserved_add(&reserved, RESERVED[i], strlen(RESERVED[i])));
    CHECK_TEXT(body_of(a, &reserved, "slice", "x; return 1|x|2", false, &err),
               "    x = slice;  slice = slice_1\n    return slice(1, x, 2)\n    ");
    CHECK_TEXT(body_of(a, &reserved, "*torch", "x; b = g x; return b", false, &err),
               "    x = torch;  torch = torch_1\n    b = torch.g(x);  x = None\n    return b\n    ");
    /* What is the name of an argument or an attribute, or in a string, is no global. */
    CHECK_TEXT(body_of(a, &reserved, "input", "x; b = f 'input' input:x; return b", false, &err),
               "    x = input\n    b = f('input', input = x);  x = None\n    return b\n    ");
    CHECK_TEXT(body_of(a, &reserved, "given", "x; given = f x; return given", false, &err),
               "    x = given\n    given_1 = f(x);  x = None\n    return given_1\n    ");
    CHECK_TEXT(body_of(a, &reserved, "x", "x; b = g x; c = f b; return c", true, &err),
               "    torch = torch_1\n    b = torch.g(x);  x = None\n    c = f_1(b);  b = None\n    return c\n    ");
    CHECK(!body_of(a, &reserved, "**x", "x; y; return y", false, &err));
    CHECK_INT(err.code, FE_BAD_VALUE);
    for (size_t nth = 0, done = 0; !done; nth++) {
        fe_graph *g = fe_graph_new(a, &reserved);
        fe_source code;
        options s;
        build(g, "x; return 1|x|2");
        fe_node_set_target(g, node(g, "x"), target_of(g, FE_OP_PLACEHOLDER, "slice"));
        set_options(&s, g);
        memory_fail(&memory, nth, nth % 2);
        done = fe_code_write(g, &s.o, &code, &err) == 0;
        if (!done)
            CHECK_INT(err.code, FE_NO_MEMORY);
        memory_fail(&memory, SIZE_MAX, false);
        fe_code_clear(&code);
        fe_graph_free(g);
        CHECK(done || nth < 200);
    }
    fe_reserved_clear(&reserved);
    CHECK_INT(memory.blocks, 0);
}

static void test_names_and_lines(void)
{
    fe_graph *g = functions_of("f; x; a = f f x; return a");
    fe_source code;
    fe_error err;
    options s;

    set_options(&s, g);
    DO(fe_code_write(g, &s.o, &code, &err));
    CHECK_TEXT(as_text(&code.body),
               "    a = f_1(f, x);  f = x = None\n    return a\n    "); /* the parameter was first */
    CHECK_INT(code.used_count, 1);
    CHECK_TEXT(code.global_names[0]->data, "f_1");
    CHECK_INT(code.line_count, 3);
    CHECK_INT(code.lines[0], 2);
    CHECK_INT(code.lines[1], 3);
    CHECK_INT(code.lines[2], 3);
    CHECK_INT(code.end_count, 2);
    fe_code_clear(&code);
    s.o.chunks = true;
    DO(fe_code_write(g, &s.o, &code, &err));
    CHECK_TEXT(as_text(&code.body),
               "# COUNTER: 0\n# COUNTER: 1\n# COUNTER: 2\na = f_1(f, x);  f = x = None\n# COUNTER: 3\n"
               "return a\n");
    CHECK_INT(code.chunk_count, 8);
    fe_code_clear(&code);
    fe_graph_free(g);
}

static void test_no_memory(void)
{
    fe_error err = {0};
    fe_source code;
    options s;

    for (size_t nth = 0, done = 0; !done; nth++) {
        test_memory memory;
        memory_init(&memory);
        fe_graph *g = fe_graph_new(&memory.allocator, NULL);
        CHECK(g);
        build(g, "x; a_very_long_name_for_a_node = f x k:[x,'s']; b = add x 1; return (b,x)");
        make_functions(g);
        set_options(&s, g);
        s.o.record_functions = true;
        memory_fail(&memory, nth, nth % 2);
        done = fe_code_write(g, &s.o, &code, &err) == 0;
        if (!done)
            CHECK_INT(err.code, FE_NO_MEMORY);
        memory_fail(&memory, SIZE_MAX, false);
        fe_code_clear(&code);
        fe_graph_free(g);
        CHECK_INT(memory.blocks, 0);
        CHECK(done || nth < 200);
    }
}

int main(void)
{
    RUN(test_lines);
    RUN(test_operators);
    RUN(test_keywords);
    RUN(test_parameters);
    RUN(test_hidden_globals);
    RUN(test_names_and_lines);
    RUN(test_no_memory);
    return 0;
}
