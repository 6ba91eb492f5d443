/* test_write_torch.c - writing what comes from no file, by torch's rules: the graph is made here, in the core. */
#include "../core/check.h"

#include "write.h"

#define TENSOR "{\"dtype\": 7, \"sizes\": []}" /* the writer does not look into it */
#define ONE "{\"as_tensor\": " TENSOR "}"

/* ---- programs ---- */

typedef struct {
    fe_graph *core;
    pt2_object objects[16];
    pt2_node_text texts[32];
    pt2_graph graph;
} made;

static void make(made *m)
{
    memset(m, 0, sizeof *m);
    m->core = graph_new();
    m->core->signature = fe_signature_new(&fe_libc_allocator);
    CHECK(m->core->signature);
    m->graph =
        (pt2_graph){.core = m->core, .objects = m->objects, .object_count = 16, .texts = m->texts, .text_count = 32};
}

static void clear(made *m)
{
    fe_graph_free(m->core);
}

static void give(made *m, uint32_t id, const char *value)
{
    CHECK(id < 32);
    m->texts[id] = (pt2_node_text){.value = value, .metadata = "{\"torch_fn\": \"f\"}", .given = true};
}

static uint32_t input(made *m, const char *name, const char *value)
{
    fe_error err;
    uint32_t id = make_node(m->core, FE_OP_PLACEHOLDER, target_of(m->core, FE_OP_PLACEHOLDER, name), name, NULL, NULL);
    fe_spec spec = {.kind = FE_INPUT_USER, .node = id, .value = {.kind = FE_NULL}};

    give(m, id, value);
    if (strstr(value, "as_int\": 5")) { /* a constant names no node */
        spec.node = FE_NONE_ID;
        spec.value = value_int(5);
        spec.name = str(m->core, name);
    }
    DO(fe_signature_add_input(m->core->signature, spec, &err));
    return id;
}

static uint32_t object(made *m, pt2_object of)
{
    fe_error err;
    uint32_t index;

    DO(fe_object_new(m->core, &index, &err));
    CHECK(index < 16);
    m->objects[index] = of;
    fe_object_ref(m->core, index);
    return index;
}

/* A call of what has this name and schema. */
static uint32_t call(made *m, const char *name, const char *target, const char *schema, const char *value, fe_seq *args,
                     fe_seq *kwargs)
{
    fe_error err;
    uint32_t index = object(m, (pt2_object){.kind = PT2_OBJECT_TARGET, .text = target, .schema = schema}), made_target;
    bool is_new;

    DO(fe_target_get(m->core, FE_OP_CALL_FUNCTION, index, str(m->core, name), &made_target, &is_new, &err));
    uint32_t id = make_node(m->core, FE_OP_CALL_FUNCTION, made_target, name, args, kwargs);
    if (value)
        give(m, id, value);
    return id;
}

static fe_seq *seq(made *m, size_t count, const fe_value *items)
{
    fe_seq *s = seq_new(m->core, count);

    for (size_t i = 0; i < count; i++)
        s->items[i] = items[i];
    return s;
}

#define SEQ(m, ...) seq(m, sizeof((fe_value[]){__VA_ARGS__}) / sizeof(fe_value), (fe_value[]){__VA_ARGS__})

static uint32_t item_of(made *m, const char *name, uint32_t source, int64_t index)
{
    return call(m, name, "_operator.getitem", NULL, NULL, SEQ(m, value_node(source), value_int(index)), NULL);
}

static void output(made *m, size_t count, const fe_value *results)
{
    fe_error err;
    fe_seq *args = SEQ(m, value_seq(FE_TUPLE, seq(m, count, results)));

    make_node(m->core, FE_OP_OUTPUT, target_of(m->core, FE_OP_OUTPUT, "output"), "output", args, NULL);
    for (size_t i = 0; i < count; i++) {
        bool is_node = results[i].kind == FE_NODE;
        fe_spec spec = {.kind = FE_OUTPUT_USER,
                        .node = is_node ? results[i].as.node : FE_NONE_ID,
                        .value = is_node ? (fe_value){.kind = FE_NULL} : results[i]};
        DO(fe_signature_add_output(m->core->signature, spec, &err));
    }
}

/* ---- writing ---- */

static const char document[] =
    "{\"graph_module\": {\"graph\": {}, \"signature\": {\"input_specs\": [], \"output_specs\": []}, "
    "\"module_call_graph\": []}, \"torch_version\": \"x\"}";

static int write_made(made *m, const fe_allocator *a, fe_buffer *out, pt2_report *r)
{
    pt2_program program = {.allocator = a};
    int status = pt2_json_parse_copy(&program.json, document, sizeof document - 1, a, NULL, r);

    if (status == 0)
        status = pt2_program_write_as(&program, &m->graph, PT2_WRITE_AS_TORCH, out, r);
    pt2_json_clear(&program.json);
    return status;
}

/* The text, or the faults as "CODE node: message; ..."; the caller frees it. */
static char *written(made *m)
{
    pt2_report r;
    fe_buffer out;

    pt2_report_init(&r, &fe_libc_allocator, NULL);
    fe_buffer_init(&out, &fe_libc_allocator);
    if (write_made(m, &fe_libc_allocator, &out, &r) < 0) {
        fe_buffer_clear(&out);
        fe_buffer_init(&out, &fe_libc_allocator);
        for (uint32_t i = 0; i < r.count; i++) {
            const char *parts[] = {i ? "; " : "", r.items[i].node ? r.items[i].node : "-", ": ", r.items[i].message};
            for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
                fe_buffer_text(&out, parts[k]);
        }
    }
    fe_buffer_char(&out, '\0');
    CHECK(!out.failed);
    pt2_report_clear(&r);
    return out.data;
}

static void check_has(made *m, const char *part)
{
    char *text = written(m);

    if (!strstr(text, part)) {
        printf("the text lacks\n  %s\n%s\n", part, text);
        exit(1);
    }
    free(text);
}

/* ---- tests ---- */

/* A call with results of every form, and what takes them. */
static void make_mixed(made *m)
{
    make(m);
    uint32_t x = input(m, "x", ONE);
    input(m, "n", "{\"as_int\": 5}");
    fe_seq *kwargs = SEQ(m, value_str(m->core, "k"), (fe_value){.kind = FE_BOOL, .as.boolean = true});
    uint32_t mix =
        call(m, "mix", "torch.ops.mine.mix.default", "Tx i[sizes fscale b*k>T T[ T",
             "{\"as_list\": [" ONE ", {\"as_list\": [" ONE ", {\"as_none\": true}, " ONE "]}, {\"as_none\": true}]}",
             SEQ(m, value_node(x), value_seq(FE_LIST, seq_new(m->core, 0)), value_int(2)), kwargs);
    uint32_t first = item_of(m, "first", mix, 0), again = item_of(m, "again", mix, 0),
             parts = item_of(m, "parts", mix, 1);
    uint32_t second = item_of(m, "second", parts, 2);
    uint32_t hop = call(m, "hop", "torch.ops.higher_order.hop", NULL, ONE,
                        SEQ(m, value_seq(FE_LIST, SEQ(m, value_node(first), value_node(again)))), NULL);
    call(m, "check", "torch.ops.mine.check.default", "Tx>", "{\"as_none\": true}", SEQ(m, value_node(hop)), NULL);
    output(m, 3, (fe_value[]){value_node(hop), value_node(second), value_int(3)});
}

static const char mixed[] =
    "{\"graph_module\": {\"graph\": {\"inputs\": [{\"as_tensor\": {\"name\": \"x\"}}, {\"as_int\": 5}], "
    "\"outputs\": [{\"as_tensor\": {\"name\": \"hop\"}}, {\"as_tensor\": {\"name\": \"second\"}}, {\"as_int\": 3}], "
    "\"nodes\": [{\"target\": \"torch.ops.mine.mix.default\", \"inputs\": ["
    "{\"name\": \"x\", \"arg\": {\"as_tensor\": {\"name\": \"x\"}}, \"kind\": 1}, "
    "{\"name\": \"sizes\", \"arg\": {\"as_ints\": []}, \"kind\": 1}, "
    "{\"name\": \"scale\", \"arg\": {\"as_int\": 2}, \"kind\": 1}, "
    "{\"name\": \"k\", \"arg\": {\"as_bool\": true}, \"kind\": 2}], "
    "\"outputs\": [{\"as_tensor\": {\"name\": \"first\"}}, "
    "{\"as_tensors\": [{\"name\": \"parts_unused_0\"}, {\"name\": \"second\"}]}, {\"as_none\": true}], "
    "\"metadata\": {\"torch_fn\": \"f\"}, \"is_hop_single_tensor_return\": null, \"name\": \"mix\"}, "
    "{\"target\": \"torch.ops.higher_order.hop\", \"inputs\": ["
    "{\"name\": \"\", \"arg\": {\"as_tensors\": [{\"name\": \"first\"}, {\"name\": \"first\"}]}, \"kind\": 1}], "
    "\"outputs\": [{\"as_tensor\": {\"name\": \"hop\"}}], \"metadata\": {\"torch_fn\": \"f\"}, "
    "\"is_hop_single_tensor_return\": true, \"name\": \"hop\"}, "
    "{\"target\": \"torch.ops.mine.check.default\", \"inputs\": ["
    "{\"name\": \"x\", \"arg\": {\"as_tensor\": {\"name\": \"hop\"}}, \"kind\": 1}], \"outputs\": [], "
    "\"metadata\": {\"torch_fn\": \"f\"}, \"is_hop_single_tensor_return\": null, \"name\": \"check\"}], "
    "\"tensor_values\": {\"x\": " TENSOR ", \"first\": " TENSOR ", \"parts_unused_0\": " TENSOR ", \"second\": " TENSOR
    ", \"hop\": " TENSOR "}, \"sym_int_values\": {}, \"sym_bool_values\": {}, \"is_single_tensor_return\": false, "
    "\"custom_obj_values\": {}, \"sym_float_values\": {}}, "
    "\"signature\": {\"input_specs\": [{\"user_input\": {\"arg\": {\"as_tensor\": {\"name\": \"x\"}}}}, "
    "{\"constant_input\": {\"name\": \"n\", \"value\": {\"as_int\": 5}}}], "
    "\"output_specs\": [{\"user_output\": {\"arg\": {\"as_tensor\": {\"name\": \"hop\"}}}}, "
    "{\"user_output\": {\"arg\": {\"as_tensor\": {\"name\": \"second\"}}}}, {\"user_output\": {\"arg\": {\"as_int\": "
    "3}}}]}, "
    "\"module_call_graph\": []}, \"torch_version\": \"x\"}";

static void test_mixed(void)
{
    made m;

    make_mixed(&m);
    char *text = written(&m);
    CHECK_TEXT(text, mixed);
    free(text);
    clear(&m);
}

/* Whatever request fails: writing fails and leaks nothing, or the text is whole. */
static void test_no_memory(void)
{
    bool reached = true;
    size_t refusals = 0, nth = 0;
    made m;

    make_mixed(&m);
    for (; reached; nth++) {
        test_memory memory;
        pt2_report r;
        fe_buffer out;
        memory_init(&memory);
        memory_fail(&memory, nth, nth % 2);
        pt2_report_init(&r, &memory.allocator, NULL);
        fe_buffer_init(&out, &memory.allocator);
        int status = write_made(&m, &memory.allocator, &out, &r);
        reached = memory.calls > nth;
        CHECK_INT(r.no_memory, status < 0);
        refusals += status < 0;
        if (status == 0)
            CHECK(out.len == strlen(mixed) && memcmp(out.data, mixed, out.len) == 0);
        fe_buffer_clear(&out);
        pt2_report_clear(&r);
        CHECK_INT(memory.blocks, 0);
    }
    CHECK(refusals >= 10);
    clear(&m);
}

/* One call with one argument; what that argument becomes. */
static void check_argument(made *m, const char *schema, fe_value v, const char *want)
{
    uint32_t id = call(m, "f", "torch.ops.mine.f.default", schema, ONE, SEQ(m, v), NULL);

    output(m, 1, (fe_value[]){value_node(id)});
    check_has(m, want);
    clear(m);
}

/* Tags go by the value; a schema tells only what an empty list is of. */
static void test_arguments(void)
{
    made m;
    uint32_t x;

#define ARGUMENT(schema, value, want)            \
    do {                                         \
        make(&m);                                \
        x = input(&m, "x", ONE);                 \
        check_argument(&m, schema, value, want); \
    } while (0)
    ARGUMENT("fa>T", value_int(2), "{\"name\": \"a\", \"arg\": {\"as_int\": 2}");
    ARGUMENT("f[a>T", value_seq(FE_LIST, SEQ(&m, value_int(2))), "{\"as_ints\": [2]}");
    ARGUMENT("T?[a>T", value_seq(FE_LIST, SEQ(&m, value_node(x), (fe_value){.kind = FE_NONE})),
             "{\"as_optional_tensors\": [{\"as_tensor\": {\"name\": \"x\"}}, {\"as_none\": true}]}");
    ARGUMENT("T?[a>T", value_seq(FE_LIST, SEQ(&m, value_node(x))), "{\"as_tensors\": [{\"name\": \"x\"}]}");
    ARGUMENT("b[?a>T", value_seq(FE_LIST, seq_new(m.core, 0)), "{\"as_bools\": []}");
    ARGUMENT("s[a>T", value_seq(FE_TUPLE, seq_new(m.core, 0)), "{\"as_strings\": []}");
    ARGUMENT(NULL, value_seq(FE_LIST, seq_new(m.core, 0)), "{\"name\": \"\", \"arg\": {\"as_tensors\": []}");
    ARGUMENT("Oa Ob", value_int(1), "{\"name\": \"a\", \"arg\": {\"as_int\": 1}");
    ARGUMENT("f[a>T", value_seq(FE_LIST, SEQ(&m, value_int(2), (fe_value){.kind = FE_FLOAT, .as.real = 0.5})),
             "f: its argument 'a' is a list that mixes kinds of values");
    ARGUMENT("Ta>T", ((fe_value){.kind = FE_OBJECT, .as.object = object(&m, (pt2_object){.kind = PT2_OBJECT_NONE})}),
             "f: its argument 'a' is an object that a .pt2 file has no word for");
#undef ARGUMENT
}

static void test_refused(void)
{
    made m;

    make(&m);
    uint32_t x = input(&m, "x", ONE);
    uint32_t gt = call(&m, "gt", "_operator.gt", "Oa Ob", "{\"as_sym_bool\": {\"as_bool\": true}}",
                       SEQ(&m, value_int(1), value_int(2)), NULL);
    output(&m, 2, (fe_value[]){value_node(x), value_node(gt)});
    check_has(&m, "gt: output 1 is a symbolic bool, which torch.export.load can't read as an output");
    clear(&m);

    make(&m);
    x = input(&m, "x", ONE);
    uint32_t more =
        call(&m, "more", "torch.ops.mine.f.default", "Ta>T", ONE, SEQ(&m, value_node(x), value_node(x)), NULL);
    uint32_t none = call(&m, "none", "torch.ops.mine.g.default", "Ta>T", NULL, SEQ(&m, value_node(more)), NULL);
    output(&m, 1, (fe_value[]){value_node(none)});
    check_has(&m, "more: 'torch.ops.mine.f.default' takes at most 1 arguments by position; it is given 2");
    check_has(&m, "none: nothing tells what it returns");
    clear(&m);

    make(&m);
    x = input(&m, "x", "5");
    output(&m, 1, (fe_value[]){value_node(x)});
    check_has(&m, "x: its meta['val'] is no TensorMeta, symbolic number or tuple of them");
    clear(&m);
}

int main(void)
{
    RUN(test_mixed);
    RUN(test_no_memory);
    RUN(test_arguments);
    RUN(test_refused);
    return 0;
}
