/* test_text.c - numbers, strings, values and nodes as torch.fx prints them. tests/test_text.py compares with torch. */
#include "check.h"

#include <math.h>

static const char *double_text(double value)
{
    static char text[64];
    fe_buffer b;

    fe_buffer_init(&b, &fe_libc_allocator);
    fe_text_double(value, &b);
    CHECK(!b.failed && b.len < sizeof text);
    memcpy(text, b.data, b.len);
    text[b.len] = '\0';
    fe_buffer_clear(&b);
    return text;
}

static const char *value_text(const fe_graph *g, const fe_renderer *r, fe_value v, fe_text_form form)
{
    static char text[1024];
    fe_buffer b;

    fe_buffer_init(&b, &fe_libc_allocator);
    fe_text_value(g, r, v, form, &b);
    CHECK(!b.failed && b.len < sizeof text);
    if (b.len)
        memcpy(text, b.data, b.len);
    text[b.len] = '\0';
    fe_buffer_clear(&b);
    return text;
}

static void test_doubles(void)
{
    static const struct {
        double value;
        const char *text; /* Python's repr */
    } cases[] = {
        {0x0.0p+0, "0.0"},
        {-0x0.0p+0, "-0.0"},
        {0x1.0p+0, "1.0"},
        {-0x1.8p+0, "-1.5"},
        {0x1.999999999999ap-4, "0.1"},
        {0x1.9p+6, "100.0"},
        {0x1.c6bf52634p+49, "1000000000000000.0"},
        {0x1.1c37937e08p+53, "1e+16"},
        {0x1.b69b4ba630f35p+56, "1.2345678901234568e+17"},
        {0x1.0p+53, "9007199254740992.0"},
        {0x1.a36e2eb1c432dp-14, "0.0001"},
        {0x1.4f8b588e368f1p-17, "1e-05"},
        {0x1.f75104d551d69p-17, "1.5e-05"},
        {0x1.0f0cf064dd592p+73, "1e+22"},
        {0x1.52d02c7e14af6p+76, "1e+23"},
        {0x1.249ad2594c37dp+332, "1e+100"},
        {0x1.fffffffffffffp+1023, "1.7976931348623157e+308"},
        {0x1.0p-1022, "2.2250738585072014e-308"},
        {0x0.fffffffffffffp-1022, "2.225073858507201e-308"},
        {0x0.0000000000001p-1022, "5e-324"},
        {0x0.0000000000002p-1022, "1e-323"},
        {0x0.0000000000003p-1022, "1.5e-323"},
        {0x0.0000000000018p-1022, "1.2e-322"},
        {0x0.0000000002710p-1022, "4.9407e-320"},
        {0x0.05c0ab9347ed7p-1022, "5e-310"},
        {0x1.0p-1017, "7.120236347223045e-307"}, /* the nearest 16 digits read back as the double below */
        {0x1.0p-957, "8.209073602596753e-289"},
        {0x1.0p-549, "5.426657103235053e-166"},
        {0x1.0p-140, "7.174648137343064e-43"},
        {0x1.0p-44, "5.684341886080802e-14"},
        {0x1.0p+70, "1.1805916207174113e+21"},
        {0x1.921fb54442d11p+1, "3.14159265358979"},
        {0x1.3333333333334p-2, "0.30000000000000004"},
        {0x1.5555555555555p-1, "0.6666666666666666"},
        {0x1.edd2f1a9fbe77p+6, "123.456"},
        {INFINITY, "inf"},
        {-INFINITY, "-inf"},
        {(double)NAN, "nan"},
        {(double)-NAN, "nan"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_TEXT(double_text(cases[i].value), cases[i].text);
}

/* Split a text into its digits, without leading and trailing zeros; the value is 0.DIGITS * 10^*exponent. */
static size_t digits_of(const char *text, char digits[32], int *exponent)
{
    size_t n = 0;
    bool point = false;
    int shift = 0;

    *exponent = 0;
    for (; *text && *text != 'e'; text++) {
        if (*text == '.') {
            point = true;
        } else if (n || *text != '0') {
            digits[n++] = *text;
            shift += !point;
        } else {
            shift -= point;
        }
    }
    *exponent = shift + (*text ? atoi(text + 1) : 0);
    while (n && digits[n - 1] == '0')
        n--;
    digits[n] = '\0';
    return n;
}

/* Whether some decimal of n digits next to the value reads back as it. */
static bool fits_in(double value, const char *digits, size_t n, int exponent)
{
    char text[64];

    for (int up = 0; up < 2; up++) {
        int64_t leading = 0;
        for (size_t i = 0; i < n; i++)
            leading = leading * 10 + (digits[i] - '0');
        snprintf(text, sizeof text, "%" PRId64 "e%d", leading + up, exponent - (int)n);
        if (strtod(text, NULL) == value)
            return true;
    }
    return false;
}

static void check_shortest(double value)
{
    char text[64], digits[32];
    int exponent;

    strcpy(text, double_text(value));
    CHECK(strtod(text, NULL) == value);
    size_t n = digits_of(text, digits, &exponent);
    CHECK(n >= 1 && n <= 17);
    if (n > 1 && fits_in(value, digits, n - 1, exponent)) {
        printf("%a is '%s', though %zu digits would do\n", value, text, n - 1);
        CHECK(!"shortest");
    }
}

/* Every power of two, where the gaps between doubles change, and the doubles around it. */
static void test_powers_of_two(void)
{
    for (int k = -1074; k < 1024; k++) {
        double power = ldexp(1, k);
        check_shortest(power);
        check_shortest(nextafter(power, INFINITY));
        if (k > -1074)
            check_shortest(nextafter(power, 0));
        check_shortest(power * 1.25);
    }
}

static void test_doubles_at_random(void)
{
    uint64_t random = 88172645463325252u;

    for (int i = 0; i < 50000; i++) {
        double value;
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        uint64_t bits = i % 3 ? random : random & ((UINT64_C(1) << 52) - 1); /* subnormals too */
        memcpy(&value, &bits, sizeof value);
        if (isfinite(value) && value != 0)
            check_shortest(fabs(value));
    }
}

static void test_complex(void)
{
    static const struct {
        double real, imag;
        const char *text;
    } cases[] = {
        {0, 1, "1j"},
        {0, -1, "-1j"},
        {0, 0, "0j"},
        {0, -0.0, "-0j"},
        {-0.0, 0, "(-0+0j)"},
        {-0.0, -0.0, "(-0-0j)"},
        {1, 2, "(1+2j)"},
        {1.5, -2.25, "(1.5-2.25j)"},
        {1e16, 1e-5, "(1e+16+1e-05j)"},
        {0, (double)NAN, "nanj"},
        {1, (double)NAN, "(1+nanj)"},
        {1, (double)-NAN, "(1+nanj)"},
        {(double)NAN, -INFINITY, "(nan-infj)"},
        {0, INFINITY, "infj"},
    };
    fe_graph *g = graph_new();
    fe_value v;
    fe_error err;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        DO(fe_value_complex(g, cases[i].real, cases[i].imag, &v, &err));
        CHECK_TEXT(value_text(g, &plain_renderer, v, FE_TEXT_REPR), cases[i].text);
    }
    fe_graph_free(g);
}

static void test_strings(void)
{
    static const char *const cases[][2] = {
        {"", "''"},
        {"plain", "'plain'"},
        {"it's", "\"it's\""},
        {"say \"x\"", "'say \"x\"'"},
        {"it's \"x\"", "'it\\'s \"x\"'"},
        {"back\\slash", "'back\\\\slash'"},
        {"\n\t\r", "'\\n\\t\\r'"},
        {"\x01\x1f\x7f", "'\\x01\\x1f\\x7f'"},
        {"caf\xc3\xa9", "<caf\xc3\xa9>"}, /* not ASCII: the owner's business */
    };
    fe_graph *g = graph_new();

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fe_value v = value_str(g, cases[i][0]);
        CHECK_TEXT(value_text(g, &plain_renderer, v, FE_TEXT_REPR), cases[i][1]);
        CHECK_TEXT(value_text(g, &plain_renderer, v, FE_TEXT_STR), cases[i][0]);
        CHECK_TEXT(value_text(g, &plain_renderer, v, FE_TEXT_ARG), cases[i][0]);
    }
    fe_error err;
    fe_value nul = {.kind = FE_STR, .as.string = fe_string_get(g, "a\0b", 3, &err)};
    CHECK_TEXT(value_text(g, &plain_renderer, nul, FE_TEXT_REPR), "'a\\x00b'");
    fe_graph_free(g);
}

/* Inside a slice and in what a graph returns, Python's repr holds: names bare, strings quoted. */
static void test_containers(void)
{
    static const struct {
        const char *word, *arg, *str;
    } cases[] = {
        {"x", "%x", "x"},
        {"None", "None", "None"},
        {"-7", "-7", "-7"},
        {"'s'", "s", "s"},
        {"()", "()", "()"},
        {"(x)", "(%x,)", "(x,)"},
        {"(x,'s',1)", "(%x, s, 1)", "(x, 's', 1)"},
        {"[]", "[]", "[]"},
        {"['s']", "[s]", "['s']"},
        {"[x,x]", "[%x, %x]", "[x, x]"},
        {"None|x|'s'", "slice(None, x, 's')", "slice(None, x, 's')"},
    };
    fe_graph *g = graph_of("x");

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fe_value v = parse_word(g, cases[i].word, strlen(cases[i].word));
        CHECK_TEXT(value_text(g, &plain_renderer, v, FE_TEXT_ARG), cases[i].arg);
        CHECK_TEXT(value_text(g, &plain_renderer, v, FE_TEXT_STR), cases[i].str);
    }
    fe_seq *dict = seq_new(g, 4), *inner = seq_new(g, 2);
    inner->items[0] = value_int(1);
    inner->items[1] = (fe_value){.kind = FE_BOOL, .as.boolean = false};
    dict->items[0] = value_str(g, "k");
    dict->items[1] = value_node(node(g, "x"));
    dict->items[2] = value_int(2);
    dict->items[3] = value_seq(FE_DICT, inner);
    CHECK_TEXT(value_text(g, &plain_renderer, value_seq(FE_DICT, dict), FE_TEXT_ARG), "{k: %x, 2: {1: False}}");
    CHECK_TEXT(value_text(g, &plain_renderer, value_seq(FE_DICT, dict), FE_TEXT_STR), "{'k': x, 2: {1: False}}");
    CHECK_TEXT(value_text(g, &plain_renderer, value_seq(FE_DICT, seq_new(g, 0)), FE_TEXT_ARG), "{}");
    CHECK_TEXT(value_text(g, &plain_renderer, (fe_value){.kind = FE_NULL}, FE_TEXT_ARG), "None");
    fe_graph_free(g);
}

/* Objects, and tuples of a class, are shown as the owner has rendered them. */
static void test_objects(void)
{
    static const fe_text args_[] = {{"ARG", 3}}, strs[] = {{"STR", 3}}, reprs[] = {{"REPR", 4}}, types[] = {{"int", 3}};
    static const fe_text callables[] = {{"operator.add", 12}};
    fe_text fields[] = {{"Pair\nfirst\nsecond\n", 18}};
    fe_renderer r = {.shown = {args_, strs, reprs, types, callables, fields}, .count = 1, .quote = write_quoted};
    fe_graph *g = graph_of("x");
    uint32_t object, target;
    bool is_new;
    fe_error err;

    DO(fe_object_new(g, &object, &err));
    fe_value v = {.kind = FE_OBJECT, .as.object = object};
    fe_object_ref(g, object);
    CHECK_TEXT(value_text(g, &r, v, FE_TEXT_ARG), "ARG");
    CHECK_TEXT(value_text(g, &r, v, FE_TEXT_STR), "STR");
    CHECK_TEXT(value_text(g, &r, v, FE_TEXT_REPR), "REPR");
    CHECK_TEXT(value_text(g, &plain_renderer, v, FE_TEXT_STR), "<object>");
    v.as.object = 1; /* made since it was rendered */
    CHECK_TEXT(value_text(g, &r, v, FE_TEXT_STR), "<object>");

    fe_seq *pair = fe_seq_new(g, 2, object, &err);
    CHECK(pair);
    pair->items[0] = value_node(node(g, "x"));
    pair->items[1] = value_str(g, "s");
    CHECK_TEXT(value_text(g, &r, value_seq(FE_TUPLE, pair), FE_TEXT_ARG), "(%x, s)");
    CHECK_TEXT(value_text(g, &r, value_seq(FE_TUPLE, pair), FE_TEXT_STR), "Pair(first=x, second='s')");
    CHECK_TEXT(value_text(g, &plain_renderer, value_seq(FE_TUPLE, pair), FE_TEXT_STR), "<tuple>");
    fields[0] = (fe_text){"torch.Size", 10}; /* no fields */
    CHECK_TEXT(value_text(g, &r, value_seq(FE_TUPLE, pair), FE_TEXT_STR), "torch.Size([x, 's'])");
    fields[0] = (fe_text){"", 0}; /* no repr of its own */
    CHECK_TEXT(value_text(g, &r, value_seq(FE_TUPLE, pair), FE_TEXT_STR), "(x, 's')");
    fe_seq *none = fe_seq_new(g, 0, object, &err);
    CHECK(none);
    fields[0] = (fe_text){"Empty\n", 6};
    CHECK_TEXT(value_text(g, &r, value_seq(FE_TUPLE, none), FE_TEXT_STR), "Empty()");
    fields[0] = (fe_text){"Short\nfirst\n", 12}; /* fewer fields than items */
    CHECK_TEXT(value_text(g, &r, value_seq(FE_TUPLE, pair), FE_TEXT_STR), "Short(first=x, 's')");

    DO(fe_target_get(g, FE_OP_CALL_FUNCTION, object, NULL, &target, &is_new, &err));
    fe_seq *args = seq_new(g, 1);
    args->items[0] = value_seq(FE_TUPLE, pair);
    uint32_t id = make_node(g, FE_OP_CALL_FUNCTION, target, "add", args, NULL);
    fe_node_set_type(g, id, object);
    fe_buffer b;
    fe_buffer_init(&b, &fe_libc_allocator);
    fe_text_node(g, &r, id, &b);
    fe_buffer_char(&b, '\0');
    CHECK_TEXT(b.data, "%add : int [num_users=0] = call_function[target=operator.add](args = ((%x, s),), kwargs = {})");
    fe_buffer_clear(&b);
    fe_graph_free(g);
}

static void test_nodes(void)
{
    fe_graph *g = graph_of("x; y 3; w = @deep.weight; a = f x k:'s' j:[w]; m = #layer a a; return (m,None)");

    CHECK_GRAPH(g, "graph():\n"
                   "    %x : [num_users=1] = placeholder[target=x]\n"
                   "    %y : [num_users=0] = placeholder[target=y](default=3)\n"
                   "    %w : [num_users=1] = get_attr[target=deep.weight]\n"
                   "    %a : [num_users=1] = call_method[target=f](args = (%x,), kwargs = {k: s, j: [%w]})\n"
                   "    %m : [num_users=1] = call_module[target=layer](args = (%a, %a), kwargs = {})\n"
                   "    return (m, None)");
    fe_node_erase(g, node(g, "output"));
    build(g, "return 's'; return");
    fe_node_set_name(g, node(g, "a"), str(g, "caf\xc3\xa9"));
    CHECK_GRAPH(g,
                "graph():\n"
                "    %x : [num_users=1] = placeholder[target=x]\n"
                "    %y : [num_users=0] = placeholder[target=y](default=3)\n"
                "    %w : [num_users=1] = get_attr[target=deep.weight]\n"
                "    %caf\xc3\xa9 : [num_users=1] = call_method[target=f](args = (%x,), kwargs = {k: s, j: [%w]})\n"
                "    %m : [num_users=0] = call_module[target=layer](args = (%caf\xc3\xa9, %caf\xc3\xa9), kwargs = {})\n"
                "    return s\n"
                "    return ");
    fe_graph_free(g);
}

/* A node may be shown by the name of another. */
static void test_alias(void)
{
    fe_graph *g = graph_of("x; y");
    uint32_t alias[] = {0, 1, 1};
    fe_renderer r = plain_renderer;

    r.alias = alias;
    CHECK_TEXT(value_text(g, &r, parse_word(g, "[x,y]", 5), FE_TEXT_STR), "[x, x]");
    fe_graph_free(g);
}

static void test_no_memory(void)
{
    test_memory m;
    fe_buffer b;
    fe_graph *g = graph_of("x; y 3; a = f x k:'s'; b = f a; c = f b; d = f c; e = f d; return e");

    memory_init(&m);
    fe_buffer_init(&b, &m.allocator);
    memory_fail(&m, 0, true);
    fe_text_graph(g, &plain_renderer, &b);
    CHECK(b.failed);
    fe_buffer_clear(&b);
    memory_init(&m);
    memory_fail(&m, 1, false); /* a later part has room again, and must not be written */
    fe_text_graph(g, &plain_renderer, &b);
    CHECK(b.failed);
    CHECK(b.len <= 256 && strncmp(b.data, "graph():\n    %x : [num_users=1]", 31) == 0);
    fe_buffer_clear(&b);
    CHECK_INT(m.blocks, 0);
    fe_graph_free(g);
}

int main(void)
{
    RUN(test_doubles);
    RUN(test_powers_of_two);
    RUN(test_doubles_at_random);
    RUN(test_complex);
    RUN(test_strings);
    RUN(test_containers);
    RUN(test_objects);
    RUN(test_nodes);
    RUN(test_alias);
    RUN(test_no_memory);
    return 0;
}
