/* test_texts.c - names, tree specs, guards and metadata: what is known, what is odd, and what is refused. */
#include "texts.h"

#include "check.h"

static const pt2_path root_path = {0};

typedef struct {
    const char *text;
    int errors, warnings;
} row;

static void show(const char *text, const pt2_report *r)
{
    printf("%.300s: %u errors, %u warnings\n", text, r->errors, r->warnings);
    for (uint32_t i = 0; i < r->count; i++)
        printf("    %s: %s\n", pt2_kind_name(r->items[i].kind), r->items[i].message);
}

static void check_counts(const char *text, pt2_report *r, int result, int errors, int warnings)
{
    bool right = r->errors == (uint32_t)errors && r->warnings == (uint32_t)warnings && (result < 0) == (errors > 0);

    if (!right)
        show(text, r);
    CHECK(right);
    for (uint32_t i = 0; i < r->count; i++)
        CHECK_TEXT(r->items[i].path, "$");
    pt2_report_clear(r);
}

/* ---- names ---- */

static void test_names(void)
{
    static const struct {
        const char *name;
        bool identifier, path, node, subgraph;
    } rows[] = {
        {"x", true, true, true, true},
        {"arg0_1", true, true, true, true},
        {"\xd0\xba\xd0\xbb\xd1\x8e\xd1\x87", true, true, true, true},
        {"true_graph_0", true, true, true, true},
        {"", false, false, false, false},
        {"1x", false, true, false, false},
        {"0", false, true, false, false},
        {"x y", false, true, false, false},
        {"x\n", false, false, false, false},
        {"x=__import__('os').mkdir('RAN_CODE')", false, false, false, false},
        {"a\xc2\xa0"
         "b",
         false, true, false, false}, /* a blank that does not look so */
        {"a\xe2\x80\xae"
         "b",
         false, true, false, false},                 /* turns text round */
        {"a\xff", false, true, false, false},        /* no UTF-8 */
        {"\xed\xa0\x80", false, true, false, false}, /* a surrogate */
        {"\xef\xbc\x88", false, true, false, false}, /* a wide bracket */
        {"a.b", false, true, false, false},
        {"layers.0.fc", false, true, false, false},
        {"a..b", false, false, false, false},
        {".a", false, false, false, false},
        {"a.", false, false, false, false},
        {"a'); __import__('os')", false, false, false, false},
        {"self", true, true, false, false},
        {"class", true, true, false, false},
        {"None", true, true, false, false},
        {"forward", true, true, true, false},
        {"training", true, true, true, false},
        {"_parameters", true, true, true, false},
        {"__class__", true, true, true, false},
        {"__x", true, true, true, true},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *name = rows[i].name;
        size_t len = strlen(name);
        bool right = pt2_is_identifier(name, len) == rows[i].identifier && !pt2_path_fault(name, len) == rows[i].path &&
                     !pt2_name_fault(name, len) == rows[i].node &&
                     !pt2_subgraph_name_fault(name, len) == rows[i].subgraph;
        if (!right)
            printf("name '%s'\n", name);
        CHECK(right);
    }
    CHECK(!pt2_is_identifier("a\0b", 3));
    CHECK(!pt2_is_identifier("\xd0", 1)); /* the half of a character */
    CHECK(pt2_is_keyword("yield", 5) && !pt2_is_keyword("yields", 6) && !pt2_is_keyword("yiel", 4));
}

/* ---- tree specs ---- */

#define LEAF "{\"type\": null, \"context\": null, \"children_spec\": []}"
#define SPEC(type, context, children) \
    "[1, {\"type\": \"" type "\", \"context\": " context ", \"children_spec\": [" children "]}]"
#define DEFAULT(module, name, keys) \
    "{\"default_factory_module\": \"" module "\", \"default_factory_name\": \"" name "\", \"dict_context\": [" keys "]}"
#define ENUM(fqn, name) "\"[{\\\"__enum__\\\": true, \\\"fqn\\\": \\\"" fqn "\\\", \\\"name\\\": \\\"" name "\\\"}]\""

static void test_treespecs(void)
{
    static const struct {
        const char *text;
        int leaves, errors, warnings;
    } rows[] = {
        {"[1, " LEAF "]", 1, 0, 0},
        {SPEC("builtins.tuple", "\"null\"", LEAF ", " LEAF), 2, 0, 0},
        {SPEC("builtins.tuple", "\"null\"", ""), 0, 0, 0},
        {SPEC("builtins.list", "\"null\"", LEAF), 1, 0, 0},
        {SPEC("builtins.dict", "\"[]\"", ""), 0, 0, 0},
        {SPEC("builtins.dict", "\"[\\\"a\\\", 3]\"", LEAF ", " LEAF), 2, 0, 0},
        {SPEC("collections.OrderedDict", "\"[null]\"", LEAF), 1, 0, 0},
        {SPEC("collections.deque", "\"null\"", LEAF), 1, 0, 0},
        {SPEC("collections.deque", "\"3\"", LEAF), 1, 0, 0},
        {SPEC("collections.namedtuple", "\"my.NT\"", LEAF ", " LEAF), 2, 0, 0},
        {SPEC("collections.namedtuple", "\"other.NT\"", LEAF), 1, 0, 0},
        {SPEC("collections.defaultdict", DEFAULT("builtins", "list", "\"x\""), LEAF), 1, 0, 0},
        {SPEC("gen.f.<locals>.DC", "\"[[\\\"a\\\"], [\\\"b\\\"]]\"", LEAF), 1, 0, 0},
        {SPEC("gen.Other", "\"not JSON\"", LEAF), 1, 0, 0},
        {SPEC("gen.Other", "{\"any\": 1}", LEAF), 1, 0, 0},
        {SPEC("builtins.dict", ENUM("colours:Colour", "RED"), LEAF), 1, 0, 1},
        /* refused */
        {"", 0, 1, 0},
        {"zzz", 0, 1, 0},
        {"[1, " LEAF, 0, 1, 0},
        {LEAF, 0, 1, 0},
        {"[2, " LEAF "]", 0, 1, 0},
        {"[1.0, " LEAF "]", 0, 1, 0},
        {"[1, " LEAF ", 3]", 0, 1, 0},
        {"[1, 7]", 0, 1, 0},
        {"[1, {\"type\": null, \"context\": null}]", 0, 1, 0},
        {"[1, {\"type\": null, \"context\": null, \"children_spec\": [" LEAF "]}]", 0, 1, 0},
        {"[1, {\"type\": 3, \"context\": null, \"children_spec\": []}]", 0, 1, 0},
        {SPEC("builtins.tuple", "\"[1]\"", LEAF), 0, 1, 0},
        {SPEC("builtins.tuple", "null", LEAF), 0, 1, 0},
        {SPEC("builtins.tuple", ENUM("os:x", "y"), LEAF), 0, 1, 0},
        {SPEC("builtins.dict", "\"[\\\"a\\\", \\\"b\\\"]\"", LEAF), 0, 1, 0},
        {SPEC("builtins.dict", "\"[]\"", LEAF), 0, 1, 0},
        {SPEC("builtins.dict", "\"{}\"", ""), 0, 1, 0},
        {SPEC("builtins.dict", "\"zzz\"", ""), 0, 1, 0},
        {SPEC("builtins.dict", "[\"a\"]", LEAF), 0, 1, 0},
        {SPEC("builtins.dict", "\"[[1]]\"", LEAF), 0, 1, 0},
        {SPEC("builtins.dict", "\"[{\\\"a\\\": 1}]\"", LEAF), 0, 1, 0},
        {SPEC("builtins.dict", ENUM("os.system('x'):y", "z"), LEAF), 0, 1, 0},
        {SPEC("builtins.dict", ENUM("colours", "RED"), LEAF), 0, 1, 0},
        {SPEC("builtins.dict", ENUM("colours:Colour", "a b"), LEAF), 0, 1, 0},
        {SPEC("collections.deque", "\"0\"", LEAF), 0, 1, 0},
        {SPEC("collections.deque", "\"1.5\"", LEAF), 0, 1, 0},
        {SPEC("collections.namedtuple", "\"my.NT\"", LEAF), 0, 1, 0},
        {SPEC("collections.namedtuple", "\"a b\"", LEAF), 0, 1, 0},
        {SPEC("collections.namedtuple", "null", LEAF), 0, 1, 0},
        {SPEC("collections.defaultdict", DEFAULT("evil", "Factory", "\"x\""), LEAF), 0, 1, 0},
        {SPEC("collections.defaultdict", DEFAULT("builtins", "eval", "\"x\""), LEAF), 0, 1, 0},
        {SPEC("collections.defaultdict", DEFAULT("builtins", "list", ""), LEAF), 0, 1, 0},
        {SPEC("collections.defaultdict", "\"[]\"", ""), 0, 1, 0},
        {SPEC("gen.DC", "\"[[\\\"a\\\", \\\"c\\\"], [\\\"b\\\"]]\"", LEAF), 0, 1, 0},
        {SPEC("__import__('os')", "\"null\"", LEAF), 0, 1, 0},
        {SPEC("", "\"null\"", LEAF), 0, 1, 0},
    };
    static const char fields[] = "{\"my.NT\": {\"field_names\": [\"a\", \"b\"]}}";
    pt2_json json = {0};
    pt2_report r;

    pt2_report_init(&r, &fe_libc_allocator, NULL);
    DO(pt2_json_parse_copy(&json, fields, sizeof fields - 1, &fe_libc_allocator, NULL, &r));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pt2_treespec_facts facts;
        int result = pt2_treespec_check(rows[i].text, strlen(rows[i].text), yyjson_doc_get_root(json.doc), &facts,
                                        &root_path, &r);
        if (result == 0) {
            check_int(__FILE__, __LINE__, rows[i].text, (int64_t)facts.leaves, rows[i].leaves);
            CHECK_INT(facts.imports, rows[i].warnings);
        }
        for (uint32_t k = 0; k < r.count; k++)
            CHECK_INT(r.items[k].kind, PT2_TREESPEC);
        check_counts(rows[i].text, &r, result, rows[i].errors, rows[i].warnings);
    }
    pt2_json_clear(&json);
}

static void test_treespec_limits(void)
{
    enum { DEPTH = 2000 };
    static char text[100 * DEPTH];
    pt2_limits limits = pt2_default_limits;
    pt2_treespec_facts facts;
    pt2_report r;
    size_t len = 0;

    for (int i = 0; i < DEPTH; i++)
        len += (size_t)snprintf(text + len, sizeof text - len,
                                "%s{\"type\": \"builtins.tuple\", \"context\": \"null\", "
                                "\"children_spec\": [",
                                i ? "" : "[1, ");
    for (int i = 0; i < DEPTH; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "]}");
    len += (size_t)snprintf(text + len, sizeof text - len, "]");
    pt2_report_init(&r, &fe_libc_allocator, &limits);
    CHECK(pt2_treespec_check(text, len, NULL, &facts, &root_path, &r) < 0);
    CHECK_INT(r.items[0].kind, PT2_JSON_DEPTH);
    pt2_report_clear(&r);

    limits.expr_bytes = 40;
    CHECK(pt2_treespec_check("[1, " LEAF "]", sizeof LEAF + 4, NULL, &facts, &root_path, &r) < 0);
    CHECK_INT(r.items[0].kind, PT2_LIMIT);
    pt2_report_clear(&r);
}

static void test_named_tuples(void)
{
    static const row rows[] = {
        {"{\"my.NT\": {\"field_names\": [\"a\", \"b\"]}}", 0, 0},
        {"{\"f.<locals>.NT\": {\"field_names\": []}}", 0, 0},
        {"{\"builtins.tuple\": {\"field_names\": [\"a\"]}}", 0, 1},
        {"{\"evil.NT\": {\"field_names\": [\"a, b=__import__('os').mkdir('RAN_CODE')\", \"class\", \"c\"]}}", 0, 2},
        {"{\"a b\": {\"field_names\": [\"\"]}}", 0, 2},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pt2_json json = {0};
        pt2_report r;
        pt2_report_init(&r, &fe_libc_allocator, NULL);
        DO(pt2_json_parse_copy(&json, rows[i].text, strlen(rows[i].text), &fe_libc_allocator, NULL, &r));
        pt2_namedtuple_fields_check(yyjson_doc_get_root(json.doc), &root_path, &r);
        check_counts(rows[i].text, &r, 0, 0, rows[i].warnings);
        pt2_json_clear(&json);
    }
}

/* ---- guards ---- */

static void test_guards(void)
{
    static const struct {
        const char *text;
        bool known;
    } rows[] = {
        {"((-1) + L['x'].size()[0]) == L['y'].size()[0]", true},
        {"((4*L['y'].size()[0] + 4*L['x'].size()[0]) % (2*L['y'].size()[0] + 2*L['x'].size()[0])) == 0", true},
        {"L['x'].size()[2] != max(1, L['x'].size()[2] // 2)", true},
        {"4*L['n'] >= 2", true},
        {"L['args'][0]['k'].size()[1] < 10 and not L['d'].feature.stride()[0] > 1.5e-05 or True", true},
        {"L['x'].storage_offset() == 0", true},
        {"math.floor(L['n'] / 2) <= -math.inf", true},
        {"2 <= L['x'].size()[0] <= 9", true},
        {"", false},
        {"__import__('os').mkdir('RAN_CODE')", false},
        {"L['x'].size()[0] == __import__('os').mkdir('RAN_CODE')", false},
        {"L['x'].__class__", false},
        {"L['x'].tofile('a')", false},
        {"L['x'].size()[0].real()", false},
        {"L['x'].size(L['y'])", false},
        {"L['x'].size()[L['y']]", false},
        {"L['a' 'b']", false},
        {"L['a\\x27']", false},
        {"L['x", false},
        {"L", false},
        {"L[0]", false},
        {"M['x']", false},
        {"eval('1')", false},
        {"max", false},
        {"math.__loader__(1)", false},
        {"torch.load(1)", false},
        {"1 if True else 2", false},
        {"lambda: 1", false},
        {"[1]", false},
        {"(1", false},
        {"1)", false},
        {"1 +", false},
        {"1 2", false},
        {"0x10", false},
        {"1j", false},
        {"1; 2", false},
        {"1 == 1\n2", false},
        {"L['x'] := 3", false},
        {"max(1, *L['x'])", false},
        {"max(key=1)", false},
    };
    static char deep[3000];
    pt2_report r;

    pt2_report_init(&r, &fe_libc_allocator, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool known = pt2_guard_check(rows[i].text, strlen(rows[i].text), &root_path, &r);
        if (known != rows[i].known)
            printf("%s\n", rows[i].text);
        CHECK(known == rows[i].known);
        check_counts(rows[i].text, &r, 0, 0, !known);
    }
    memset(deep, '(', sizeof deep);
    CHECK(!pt2_guard_check(deep, sizeof deep, &root_path, &r));
    memset(deep, '-', sizeof deep);
    deep[sizeof deep - 1] = '1';
    CHECK(pt2_guard_check(deep, sizeof deep, &root_path, &r));
    pt2_report_clear(&r);
}

/* ---- metadata ---- */

static void check_metadata(const char *key, const char *text, int errors, int warnings)
{
    pt2_report r;

    pt2_report_init(&r, &fe_libc_allocator, NULL);
    int result = pt2_metadata_check(key, strlen(key), text, strlen(text), &root_path, &r);
    for (uint32_t i = 0; i < r.count; i++)
        CHECK_INT(r.items[i].kind, PT2_METADATA);
    check_counts(text, &r, result, errors, warnings);
}

static void test_metadata(void)
{
    static const char from_node[] =
        "[{\"name\": \"add\", \"target\": \"aten.add.Tensor\", \"graph_id\": 139817744340880, "
        "\"pass_name\": \"p\", \"action\": \"create\", \"from_node\": [{\"name\": \"x\"}]}]";

    check_metadata("nn_module_stack", "", 0, 0);
    check_metadata("nn_module_stack", "L__self__,,gen.f.<locals>.M;L__self__fc,fc,torch.nn.modules.linear.Linear", 0,
                   0);
    check_metadata("nn_module_stack", "k,p[(1,2),3],ty(a,b)", 0, 0);
    check_metadata("nn_module_stack", "k,p,torch.os.system", 0, 1);
    check_metadata("nn_module_stack", "a,b", 1, 0);
    check_metadata("nn_module_stack", "a,b,c,d", 1, 0);
    check_metadata("nn_module_stack", "a,b,c;", 1, 0);
    check_metadata("nn_module_stack", "a,b(,c", 1, 0);
    check_metadata("source_fn_stack", "add,_operator.add;sin,sin", 0, 0);
    check_metadata("source_fn_stack", "k,torch.os.system", 0, 1);
    check_metadata("source_fn_stack", "zzz", 1, 0);
    check_metadata("source_fn_stack", "a,b,c", 1, 0);
    check_metadata("source_fn_stack", "a,b;", 1, 0);
    check_metadata("torch_fn", "linear_1;builtin_function_or_method.linear", 0, 0);
    check_metadata("torch_fn", ";;;;", 0, 1);
    check_metadata("torch_fn", "a", 0, 1);
    check_metadata("custom", "{\"partition\": 1, \"w\": 0.5}", 0, 0);
    check_metadata("custom", "{zzz", 1, 0);
    check_metadata("from_node", from_node, 0, 0);
    check_metadata("from_node", "null", 0, 0);
    check_metadata("from_node", "[7]", 1, 0);
    check_metadata("from_node", "{}", 1, 0);
    check_metadata("from_node", "[{\"name\": 1}]", 1, 0);
    check_metadata("from_node", "[{\"from_node\": 1}]", 1, 0);
    check_metadata("stack_trace", "anything ; at , all", 0, 0);
    check_metadata("unknown", "zzz", 0, 0);
}

static void test_items(void)
{
    static const char text[] = "a;;bc;";
    pt2_items it = {.text = text, .end = text + sizeof text - 1};
    const char *item;
    size_t len;
    char got[20] = "";

    while (pt2_next_item(&it, ';', &item, &len)) {
        strncat(got, item, len);
        strcat(got, "|");
    }
    CHECK_TEXT(got, "a||bc||");
}

/* ---- memory ---- */

static void test_no_memory(void)
{
    static const char spec[] = SPEC("builtins.dict", "\"[\\\"a\\\", 3]\"", LEAF ", " LEAF);
    test_memory memory;

    for (size_t nth = 0, done = 0; !done; nth++) {
        pt2_treespec_facts facts;
        pt2_report r;
        memory_init(&memory);
        memory_fail(&memory, nth, false);
        pt2_report_init(&r, &memory.allocator, NULL);
        int a = pt2_treespec_check(spec, sizeof spec - 1, NULL, &facts, &root_path, &r);
        int b = pt2_treespec_check("zzz", 3, NULL, &facts, &root_path, &r);
        int c = pt2_metadata_check("custom", 6, "[1]", 3, &root_path, &r);
        int d = pt2_metadata_check("nn_module_stack", 15, "a", 1, &root_path, &r);
        bool e = pt2_guard_check("zzz", 3, &root_path, &r);
        CHECK(b < 0 && d < 0 && !e);
        /* no failure goes by unnoticed */
        CHECK(r.no_memory || (a == 0 && c == 0 && r.errors == 2 && r.warnings == 1));
        CHECK(a == 0 || r.no_memory);
        CHECK(c == 0 || r.no_memory);
        done = memory.calls <= nth;
        pt2_report_clear(&r);
        CHECK_INT(memory.blocks, 0);
    }
}

int main(void)
{
    RUN(test_names);
    RUN(test_treespecs);
    RUN(test_treespec_limits);
    RUN(test_named_tuples);
    RUN(test_guards);
    RUN(test_metadata);
    RUN(test_items);
    RUN(test_no_memory);
    return 0;
}
