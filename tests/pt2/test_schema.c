/* test_schema.c - the check of JSON against the schema: what is missing, wrong, unknown, too deep, and where. */
#include "files.h"

#include "schema.h"

/* ---- helpers ---- */

static void check_against(const char *text, pt2_root_type type, const pt2_limits *limits, pt2_report *r)
{
    pt2_json j;
    pt2_report parsing;

    pt2_report_init(&parsing, &fe_libc_allocator, NULL);
    pt2_report_init(r, &fe_libc_allocator, limits);
    if (pt2_json_parse_copy(&j, text, strlen(text), &fe_libc_allocator, NULL, &parsing) < 0)
        printf("%s\n", text);
    CHECK_CLEAN(&parsing);
    int result = pt2_schema_check(yyjson_doc_get_root(j.doc), type, NULL, r);
    CHECK_INT(result, r->errors ? -1 : 0);
    pt2_json_clear(&j);
}

/* All faults as "kind path; kind path"; good until the next call. */
static const char *faults(const char *text, pt2_root_type type)
{
    static char all[4000];
    pt2_report r;
    size_t at = 0;

    check_against(text, type, NULL, &r);
    all[0] = '\0';
    for (uint32_t i = 0; i < r.count; i++) {
        at += (size_t)snprintf(all + at, sizeof all - at, "%s%s %s", i ? "; " : "", pt2_kind_name(r.items[i].kind),
                               r.items[i].path);
        CHECK(at < sizeof all);
    }
    pt2_report_clear(&r);
    return all;
}

#define CHECK_ARGUMENT(text, want) CHECK_TEXT(faults(text, PT2_TYPE_ARGUMENT), want)

/* ---- every kind of argument ---- */

static void test_arguments(void)
{
    static const char *const good[] = {
        "{\"as_none\": true}",
        "{\"as_none\": []}",
        "{\"as_tensor\": {\"name\": \"x\"}}",
        "{\"as_tensors\": [{\"name\": \"x\"}]}",
        "{\"as_int\": -3}",
        "{\"as_ints\": []}",
        "{\"as_float\": 1.5}",
        "{\"as_float\": 3}",
        "{\"as_float\": \"NaN\"}",
        "{\"as_float\": \"-Infinity\"}",
        "{\"as_floats\": [1.0, 2]}",
        "{\"as_string\": \"\"}",
        "{\"as_strings\": [\"a\"]}",
        "{\"as_sym_int\": {\"as_name\": \"s\"}}",
        "{\"as_sym_ints\": [{\"as_int\": 1}, {\"as_name\": \"s\"}]}",
        "{\"as_scalar_type\": 7}",
        "{\"as_memory_format\": 4}",
        "{\"as_layout\": 7}",
        "{\"as_device\": {\"type\": \"cuda\", \"index\": 1}}",
        "{\"as_bool\": false}",
        "{\"as_bools\": [true]}",
        "{\"as_sym_bool\": {\"as_bool\": true}}",
        "{\"as_sym_bools\": [{\"as_name\": \"b\"}]}",
        "{\"as_graph\": {\"name\": \"g\", \"graph\": {\"inputs\": [], \"outputs\": [], \"nodes\": [], "
        "\"tensor_values\": {}, \"sym_int_values\": {}, \"sym_bool_values\": {}}}}",
        "{\"as_optional_tensors\": [{\"as_none\": true}, {\"as_tensor\": {\"name\": \"x\"}}]}",
        "{\"as_custom_obj\": {\"name\": \"o\", \"class_fqn\": \"C\"}}",
        "{\"as_operator\": \"torch.ops.a.b.c\"}",
        "{\"as_sym_float\": {\"as_float\": 1.0}}",
        "{\"as_sym_floats\": []}",
        "{\"as_optional_tensor\": {\"as_none\": true}}",
        "{\"as_complex\": {\"real\": 1.0, \"imag\": \"Infinity\"}}",
        "{\"as_nested_tensors\": [[], [{\"name\": \"x\"}]]}",
        "{\"as_int_lists\": [[1], []]}",
        "{\"as_string_to_argument\": {\"k\": {\"as_string_to_argument\": {\"k\": {\"as_int\": 1}}}}}",
        "{\"as_float_lists\": [[1.0]]}"};

    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        CHECK_ARGUMENT(good[i], "");
}

static void test_wrong_arguments(void)
{
    CHECK_ARGUMENT("{}", "json_union $");
    CHECK_ARGUMENT("null", "json_type $");
    CHECK_ARGUMENT("[]", "json_type $");
    CHECK_ARGUMENT("{\"as_int\": 1, \"as_bool\": true}", "json_union $");
    CHECK_ARGUMENT("{\"as_zzz\": 1}", "json_union $");
    CHECK_ARGUMENT("{\"__class__\": 1}", "json_union $");
    CHECK_ARGUMENT("{\"as_int\": true}", "json_type $.as_int");
    CHECK_ARGUMENT("{\"as_int\": 1.0}", "json_type $.as_int");
    CHECK_ARGUMENT("{\"as_int\": NaN}", "json_type $.as_int");
    CHECK_ARGUMENT("{\"as_int\": 9223372036854775808}", "json_range $.as_int");
    CHECK_ARGUMENT("{\"as_int\": null}", "json_type $.as_int");
    CHECK_ARGUMENT("{\"as_ints\": [1, \"2\", 3, null]}", "json_type $.as_ints[1]; json_type $.as_ints[3]");
    CHECK_ARGUMENT("{\"as_ints\": {}}", "json_type $.as_ints");
    CHECK_ARGUMENT("{\"as_float\": \"inf\"}", "json_type $.as_float");
    CHECK_ARGUMENT("{\"as_float\": 1e400}", "json_range $.as_float");
    CHECK_ARGUMENT("{\"as_bool\": 1}", "json_type $.as_bool");
    CHECK_ARGUMENT("{\"as_scalar_type\": 0}", "json_enum $.as_scalar_type");
    CHECK_ARGUMENT("{\"as_scalar_type\": 14}", "json_enum $.as_scalar_type");
    CHECK_ARGUMENT("{\"as_scalar_type\": 36}", "json_enum $.as_scalar_type");
    CHECK_ARGUMENT("{\"as_scalar_type\": \"FLOAT\"}", "json_type $.as_scalar_type");
    CHECK_ARGUMENT("{\"as_layout\": 8}", "json_enum $.as_layout");
    CHECK_ARGUMENT("{\"as_memory_format\": -1}", "json_enum $.as_memory_format");
    CHECK_ARGUMENT("{\"as_device\": {\"type\": \"nosuch\"}}", "json_enum $.as_device.type");
    CHECK_ARGUMENT("{\"as_device\": {\"type\": \"cpu\", \"index\": \"0\"}}", "json_type $.as_device.index");
    CHECK_ARGUMENT("{\"as_int_lists\": [[1], 2, [\"3\"]]}",
                   "json_type $.as_int_lists[1]; json_type $.as_int_lists[2][0]");
    CHECK_ARGUMENT("{\"as_string_to_argument\": {\"odd key\": {}}}", "json_union $.as_string_to_argument['odd key']");
    CHECK_ARGUMENT("{\"as_complex\": {\"imag\": true}}", "json_type $.as_complex.imag; json_missing $.as_complex.real");
}

/* ---- structs ---- */

#define META_HEAD "{\"dtype\": 7, \"sizes\": ["
#define META_TAIL                                                                                      \
    "], \"requires_grad\": false, \"device\": {\"type\": \"cpu\", \"index\": null}, \"strides\": [], " \
    "\"storage_offset\": {\"as_int\": 0}, \"layout\": 7}"
#define CHECK_META(size, want) CHECK_TEXT(faults(META_HEAD size META_TAIL, PT2_TYPE_TENSOR_META), want)

static void test_structs(void)
{
    const char *node = "{\"name\": null, \"outputs\": [], \"metadata\": {\"a\": \"b\"}, \"inputs\": [{\"kind\": null, "
                       "\"arg\": {\"as_int\": 1}, \"name\": \"n\"}], \"target\": \"t\"}";

    CHECK_TEXT(faults(node, PT2_TYPE_NODE), ""); /* fields in any order */
    CHECK_TEXT(faults("{}", PT2_TYPE_NODE),
               "json_missing $.target; json_missing $.inputs; json_missing $.outputs; json_missing $.metadata");
    CHECK_TEXT(faults("{\"target\": null, \"inputs\": [{\"name\": 1}], \"outputs\": {}, \"metadata\": {\"k\": 1}}",
                      PT2_TYPE_NODE),
               "json_type $.target; json_type $.inputs[0].name; json_missing $.inputs[0].arg; json_type $.outputs; "
               "json_type $.metadata.k");
    CHECK_META("", "");
    CHECK_META("{\"as_int\": 3}", "");
    CHECK_META("3", "json_type $.sizes[0]");
    CHECK_TEXT(faults("{\"config\": {\"w\": {\"path_name\": \"p\", \"is_param\": true, \"use_pickle\": true, "
                      "\"tensor_meta\": null}}}",
                      PT2_TYPE_PAYLOAD_CONFIG),
               "");
    CHECK_TEXT(faults("{\"config\": {\"a.b\": {\"path_name\": \"p\", \"is_param\": true, \"use_pickle\": true}}}",
                      PT2_TYPE_PAYLOAD_CONFIG),
               "json_missing $.config['a.b'].tensor_meta");
}

/* A hint is of its expression's type. */
static void test_hints(void)
{
    CHECK_META("{\"as_expr\": {\"expr_str\": \"s\"}}", "");
    CHECK_META("{\"as_expr\": {\"expr_str\": \"s\", \"hint\": null}}", "");
    CHECK_META("{\"as_expr\": {\"expr_str\": \"s\", \"hint\": {\"as_int\": 3}}}", "");
    CHECK_META("{\"as_expr\": {\"expr_str\": \"s\", \"hint\": {\"as_float\": 3.0}}}",
               "json_union $.sizes[0].as_expr.hint");
    CHECK_META("{\"as_expr\": {\"expr_str\": \"s\", \"hint\": {}}}", "json_union $.sizes[0].as_expr.hint");
    CHECK_META("{\"as_expr\": {\"hint\": 3}}",
               "json_type $.sizes[0].as_expr.hint; json_missing $.sizes[0].as_expr.expr_str");
}

static void test_unknown_keys(void)
{
    pt2_report r;
    char text[20000];
    size_t at;

    /* one warning for each key of a type */
    check_against("{\"as_tensors\": [{\"name\": \"x\", \"zzz\": 1}, {\"name\": \"y\", \"zzz\": [{}]}, {\"yyy\": 1, "
                  "\"name\": \"z\"}]}",
                  PT2_TYPE_ARGUMENT, NULL, &r);
    CHECK_INT(r.warnings, 2);
    CHECK_INT(r.errors, 0);
    CHECK_TEXT(r.items[0].path, "$.as_tensors[0].zzz");
    CHECK_TEXT(r.items[0].message, "unknown key zzz of TensorArgument");
    pt2_report_clear(&r);

    /* and not a million of them */
    at = (size_t)snprintf(text, sizeof text, "{\"as_tensor\": {\"name\": \"x\"");
    for (int i = 0; i < 1000; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, ", \"k%d\": 1", i);
    snprintf(text + at, sizeof text - at, "}}");
    check_against(text, PT2_TYPE_ARGUMENT, NULL, &r);
    CHECK_INT(r.warnings, 64);
    pt2_report_clear(&r);
}

/* ---- subgraphs ---- */

static char *nested_graphs(unsigned depth)
{
    static const char head
        [] = "{\"as_graph\": {\"name\": \"g\", \"graph\": {\"inputs\": [",
    tail[] =
        "], \"outputs\": [], \"nodes\": [], \"tensor_values\": {}, \"sym_int_values\": {}, \"sym_bool_values\": {}}}}";
    fe_buffer b;

    fe_buffer_init(&b, &fe_libc_allocator);
    for (unsigned i = 0; i < depth; i++)
        fe_buffer_text(&b, head);
    fe_buffer_text(&b, "{\"as_int\": 1}");
    for (unsigned i = 0; i < depth; i++)
        fe_buffer_text(&b, tail);
    fe_buffer_char(&b, '\0');
    CHECK(!b.failed);
    return b.data;
}

static void test_graph_depth(void)
{
    pt2_limits limits = pt2_default_limits;
    pt2_report r;
    char *text = nested_graphs(4);

    limits.graph_depth = 4;
    check_against(text, PT2_TYPE_ARGUMENT, &limits, &r);
    CHECK_CLEAN(&r);
    limits.graph_depth = 3;
    check_against(text, PT2_TYPE_ARGUMENT, &limits, &r);
    CHECK_INT(r.count, 1);
    CHECK_INT(r.items[0].kind, PT2_JSON_DEPTH);
    CHECK_TEXT(r.items[0].path,
               "$.as_graph.graph.inputs[0].as_graph.graph.inputs[0].as_graph.graph.inputs[0].as_graph");
    pt2_report_clear(&r);
    free(text);
}

/* ---- names ---- */

static void test_names(void)
{
    CHECK_TEXT(pt2_dtype_name(7), "float32");
    CHECK_TEXT(pt2_dtype_name(13), "bfloat16");
    CHECK_TEXT(pt2_dtype_name(35), "uint64");
    CHECK(!pt2_dtype_name(0) && !pt2_dtype_name(14) && !pt2_dtype_name(36) && !pt2_dtype_name(-1) &&
          !pt2_dtype_name(INT64_MAX));
    CHECK_INT(pt2_dtype_size(11), 16);
    CHECK_INT(pt2_dtype_size(33), 1);
    CHECK_INT(pt2_dtype_size(20), 0);
    CHECK_INT(pt2_dtype_size(INT64_MIN), 0);
    CHECK_TEXT(pt2_layout_name(7), "strided");
    CHECK(!pt2_layout_name(0) && !pt2_layout_name(8));
    CHECK_TEXT(pt2_memory_format_name(1), "contiguous_format");
    CHECK(!pt2_memory_format_name(0) && !pt2_memory_format_name(5));
    CHECK(pt2_is_device_type("cpu", 3) && pt2_is_device_type("privateuseone", 13));
    CHECK(!pt2_is_device_type("cpu", 2) && !pt2_is_device_type("cpu:0", 5) && !pt2_is_device_type("", 0));
}

/* Faults whose texts find no memory are still counted. */
static void test_no_memory(void)
{
    pt2_json j;
    pt2_report r;
    test_memory m;
    const char *text = "{\"as_ints\": [true, true, true]}";
    bool failed = true;

    pt2_report_init(&r, &fe_libc_allocator, NULL);
    DO(pt2_json_parse_copy(&j, text, strlen(text), &fe_libc_allocator, NULL, &r));
    for (size_t n = 0; failed; n++) {
        memory_init(&m);
        memory_fail(&m, n, true);
        pt2_report_init(&r, &m.allocator, NULL);
        CHECK(pt2_schema_check(yyjson_doc_get_root(j.doc), PT2_TYPE_ARGUMENT, NULL, &r) < 0);
        failed = r.no_memory;
        CHECK_INT(r.errors, 3);
        CHECK(failed || r.count == 3);
        pt2_report_clear(&r);
        CHECK_INT(m.blocks, 0);
        CHECK(n < 100);
    }
    pt2_json_clear(&j);
}

int main(void)
{
    RUN(test_arguments);
    RUN(test_wrong_arguments);
    RUN(test_structs);
    RUN(test_hints);
    RUN(test_unknown_keys);
    RUN(test_graph_depth);
    RUN(test_names);
    RUN(test_no_memory);
    return 0;
}
