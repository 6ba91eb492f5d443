/* test_write.c - writing programs: unchanged ones byte for byte, the writer's own form against torch's, and edits.
 *
 * argv[1] is the folder of samples, tests/data/pt2/samples when it is left out. Every .pt2 in its folders "current",
 * "old_layout" and "middle_layout" is read and written.
 */
#define _POSIX_C_SOURCE 200809L /* open, O_CLOEXEC, opendir */

#include "../core/check.h"

#include "write.h"

#include <dirent.h>
#include <fcntl.h>

static const char *samples = "tests/data/pt2/samples";

/* ---- programs ---- */

typedef struct {
    test_memory *memory; /* NULL: libc's */
    pt2_report report;
    pt2_archive *archive;
    fe_exprs *exprs;
    pt2_program *program;
    fe_buffer out;
} opened;

static const fe_allocator *allocator_of(const opened *o)
{
    return o->memory ? &o->memory->allocator : &fe_libc_allocator;
}

static void print_faults(const pt2_report *r)
{
    for (uint32_t i = 0; i < r->count; i++)
        printf("%s %s: %s\n", pt2_kind_code(r->items[i].kind), r->items[i].node ? r->items[i].node : "-",
               r->items[i].message);
}

/* -1 when memory ran out. */
static int try_open(opened *o, const char *path, test_memory *memory)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    memset(o, 0, sizeof *o);
    o->memory = memory;
    CHECK(fd >= 0);
    pt2_report_init(&o->report, allocator_of(o), NULL);
    fe_buffer_init(&o->out, allocator_of(o));
    o->archive = pt2_archive_open_fd(fd, allocator_of(o), &o->report);
    o->exprs = o->archive ? fe_exprs_new(allocator_of(o)) : NULL;
    o->program = o->exprs ? pt2_program_open(o->archive, NULL, o->exprs, allocator_of(o), &o->report) : NULL;
    return o->program ? pt2_program_read(o->program, NULL, &o->report) : -1;
}

static void close_program(opened *o)
{
    fe_buffer_clear(&o->out);
    pt2_program_free(o->program);
    fe_exprs_free(o->exprs);
    if (o->archive)
        pt2_archive_close(o->archive);
    pt2_report_clear(&o->report);
}

static void open_sample(opened *o, const char *name)
{
    char path[512];

    CHECK((size_t)snprintf(path, sizeof path, "%s/%s.pt2", samples, name) < sizeof path);
    if (try_open(o, path, NULL) < 0) {
        printf("%s\n", path);
        print_faults(&o->report);
        CHECK(false);
    }
}

static void check_written(const char *name, const char *got, size_t got_len, const char *want, size_t want_len)
{
    size_t i = 0;

    while (i < got_len && i < want_len && got[i] == want[i])
        i++;
    if (i == got_len && i == want_len)
        return;
    size_t from = i > 120 ? i - 120 : 0;
    printf("%s differs at byte %zu:\n got %.*s\nwant %.*s\n", name, i,
           (int)(got_len - from < 300 ? got_len - from : 300), got + from,
           (int)(want_len - from < 300 ? want_len - from : 300), want + from);
    exit(1);
}

/* ---- all samples ---- */

typedef void (*with_sample)(opened *o, const char *name);

static uint32_t each_in(const char *folder, with_sample call)
{
    char path[512], name[256];
    uint32_t count = 0;
    struct dirent *entry;

    CHECK((size_t)snprintf(path, sizeof path, "%s/%s", samples, folder) < sizeof path);
    DIR *dir = opendir(path);
    CHECK(dir);
    while ((entry = readdir(dir))) {
        size_t len = strlen(entry->d_name);
        if (len < 5 || strcmp(entry->d_name + len - 4, ".pt2") != 0)
            continue;
        CHECK((size_t)snprintf(name, sizeof name, "%s/%.*s", folder, (int)len - 4, entry->d_name) < sizeof name);
        opened o;
        open_sample(&o, name);
        call(&o, name);
        close_program(&o);
        count++;
    }
    closedir(dir);
    return count;
}

static void check_as(opened *o, const char *name, unsigned flags, const fe_buffer *want)
{
    fe_buffer_clear(&o->out);
    fe_buffer_init(&o->out, &fe_libc_allocator);
    if (pt2_program_write_as(o->program, o->program->root, flags, &o->out, &o->report) < 0) {
        printf("%s\n", name);
        print_faults(&o->report);
        CHECK(false);
    }
    check_written(name, o->out.data, o->out.len, want->data, want->len);
}

static void check_unchanged(opened *o, const char *name)
{
    fe_buffer document;
    char *text;
    size_t len;

    fe_buffer_init(&document, &fe_libc_allocator);
    pt2_json_write(yyjson_doc_get_root(o->program->json.doc), &document);
    DO(pt2_archive_read(o->archive, o->program->model_entry, 0, 0, &text, &len, &o->report));
    check_as(o, name, 0, &document);
    check_as(o, name, 0, &(fe_buffer){.data = text, .len = len});
    free(text);
    check_as(o, name, PT2_WRITE_AGAIN, &document);
    fe_buffer_clear(&document);
}

static void check_anew(opened *o, const char *name)
{
    fe_buffer document;

    fe_buffer_init(&document, &fe_libc_allocator);
    pt2_json_write(yyjson_doc_get_root(o->program->json.doc), &document);
    check_as(o, name, PT2_WRITE_ANEW, &document);
    fe_buffer_clear(&document);
}

/* Without edits the text is the file's; and what the writer makes itself is what torch made. */
static void test_unchanged(void)
{
    CHECK(each_in("current", check_unchanged) >= 30);
    CHECK(each_in("old_layout", check_unchanged) >= 1);
    CHECK(each_in("middle_layout", check_unchanged) >= 1);
}

/* Names, order, tags and kinds of arguments come from the table of operators alone. */
static void test_anew(void)
{
    CHECK(each_in("current", check_anew) >= 30);
}

/* Damaged programs that can be read at all are written as they were, or refused. */
static void test_hostile(void)
{
    char folder[512], path[1024];
    uint32_t written = 0;
    struct dirent *entry;

    CHECK((size_t)snprintf(folder, sizeof folder, "%s/../hostile", samples) < sizeof folder);
    DIR *dir = opendir(folder);
    CHECK(dir);
    while ((entry = readdir(dir))) {
        size_t len = strlen(entry->d_name);
        if (len < 5 || strcmp(entry->d_name + len - 4, ".pt2") != 0)
            continue;
        CHECK((size_t)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) < sizeof path);
        opened o;
        fe_buffer document;
        fe_buffer_init(&document, &fe_libc_allocator);
        if (try_open(&o, path, NULL) == 0) {
            pt2_json_write(yyjson_doc_get_root(o.program->json.doc), &document);
            if (pt2_program_write(o.program, o.program->root, &o.out, &o.report) == 0) {
                check_written(entry->d_name, o.out.data, o.out.len, document.data, document.len);
                written++;
            } else {
                CHECK(o.report.errors);
            }
        }
        fe_buffer_clear(&document);
        close_program(&o);
    }
    closedir(dir);
    CHECK(written >= 50);
}

/* ---- edits ---- */

static fe_graph *core_of(const opened *o)
{
    return o->program->root->core;
}

/* The program as it is now; good until the next call for this program. */
static const char *written(opened *o)
{
    fe_buffer_clear(&o->out);
    fe_buffer_init(&o->out, allocator_of(o));
    if (pt2_program_write(o->program, o->program->root, &o->out, &o->report) < 0) {
        print_faults(&o->report);
        CHECK(false);
    }
    fe_buffer_char(&o->out, '\0');
    CHECK(!o->out.failed);
    return o->out.data;
}

/* The faults of writing, as "CODE node: message; ..."; good until the next call. */
static const char *refused(opened *o)
{
    static test_text t;
    fe_buffer out;

    t = (test_text){.len = 0};
    fe_buffer_init(&out, &fe_libc_allocator);
    uint32_t before = o->report.count;
    CHECK_INT(pt2_program_write(o->program, o->program->root, &out, &o->report), -1);
    fe_buffer_clear(&out);
    for (uint32_t i = before; i < o->report.count; i++) {
        const pt2_fault *f = &o->report.items[i];
        const char *parts[] = {
            i > before ? "; " : "", pt2_kind_code(f->kind), " ", f->node ? f->node : "-", ": ", f->message};
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
            text_add(&t, parts[k], strlen(parts[k]));
    }
    return t.data;
}

static void check_has(const char *text, const char *part, bool has)
{
    if ((strstr(text, part) != NULL) == has)
        return;
    printf("the text %s\n  %s\n%s\n", has ? "lacks" : "has", part, text);
    exit(1);
}

/* text with "old" as "new" wherever it is a whole string; the caller frees it. */
static char *with_name(const char *text, const char *old, const char *new)
{
    char quoted[64];
    fe_buffer b;

    fe_buffer_init(&b, &fe_libc_allocator);
    CHECK((size_t)snprintf(quoted, sizeof quoted, "\"%s\"", old) < sizeof quoted);
    for (const char *at; (at = strstr(text, quoted)); text = at + strlen(quoted)) {
        fe_buffer_add(&b, text, (size_t)(at - text));
        fe_buffer_char(&b, '"');
        fe_buffer_text(&b, at[-1] == '\\' ? old : new);
        fe_buffer_char(&b, '"');
    }
    fe_buffer_text(&b, text);
    fe_buffer_char(&b, '\0');
    CHECK(!b.failed);
    return b.data;
}

static void check_rename(const char *sample, const char *old)
{
    opened o;

    open_sample(&o, sample);
    char *want = with_name(written(&o), old, "renamed");
    fe_node_set_name(core_of(&o), node(core_of(&o), old), str(core_of(&o), "renamed"));
    const char *got = written(&o);
    check_written(sample, got, strlen(got), want, strlen(want));
    CHECK(strstr(got, "\"renamed\": {") != NULL); /* in a table too */
    free(want);
    close_program(&o);
}

/* A new name shows in all places: outputs, operands, tables, signature, module calls; and nowhere else. */
static void test_rename(void)
{
    check_rename("current/linear", "linear");
    check_rename("current/linear", "relu");        /* the result of the program */
    check_rename("current/linear", "p_fc_weight"); /* a parameter */
    check_rename("current/multi_out", "getitem_5");
    check_rename("current/native_layer_norm_unused", "getitem_1");
    check_rename("current/module_signature", "add"); /* in a module's signature */
    check_rename("current/cond_", "getitem");        /* the result of a tuple with one item */
    check_rename("current/sym_int_input", "mul");
    check_rename("current/sym_float_output", "truediv");
    check_rename("old_layout/dynamic__full", "add_1");
}

/* A node of several results has its name once, in its Node. */
static void test_rename_producer(void)
{
    opened o;

    open_sample(&o, "current/multi_out");
    char *want = with_name(written(&o), "topk", "renamed");
    fe_node_set_name(core_of(&o), node(core_of(&o), "topk"), str(core_of(&o), "renamed"));
    const char *got = written(&o);
    check_written("multi_out", got, strlen(got), want, strlen(want));
    free(want);
    close_program(&o);
}

static uint32_t call(opened *o, const char *target, const char *name, fe_seq *args, fe_seq *kwargs, const char *before)
{
    fe_graph *g = core_of(o);

    g->insert = (fe_point){.anchor = node(g, before)};
    uint32_t id = make_node(g, FE_OP_CALL_FUNCTION, target_of(g, FE_OP_CALL_FUNCTION, target), name, args, kwargs);
    g->insert = (fe_point){.anchor = FE_ROOT};
    return id;
}

static fe_seq *one(fe_graph *g, fe_value v)
{
    fe_seq *s = seq_new(g, 1);

    s->items[0] = v;
    return s;
}

static fe_seq *two(fe_graph *g, fe_value a, fe_value b)
{
    fe_seq *s = seq_new(g, 2);

    s->items[0] = a;
    s->items[1] = b;
    return s;
}

static fe_seq *named(fe_graph *g, const char *name, fe_value v)
{
    return two(g, value_str(g, name), v);
}

#define META                                                                                                  \
    "{\"dtype\": 7, \"sizes\": [{\"as_int\": 2}], \"requires_grad\": false, \"device\": {\"type\": \"cpu\", " \
    "\"index\": "                                                                                             \
    "null}, \"strides\": [{\"as_int\": 1}], \"storage_offset\": {\"as_int\": 0}, \"layout\": 7}"
#define TENSOR "{\"as_tensor\": " META "}"

static pt2_node_text texts[256];

/* Give a node its value and metadata. */
static void give(opened *o, uint32_t id, const char *value, const char *metadata)
{
    pt2_graph *root = o->program->root;

    if (!root->texts)
        memset(texts, 0, sizeof texts);
    CHECK(id < sizeof texts / sizeof *texts);
    texts[id] = (pt2_node_text){.value = value, .metadata = metadata, .given = true};
    root->texts = texts;
    root->text_count = sizeof texts / sizeof *texts;
}

static void test_new_node(void)
{
    opened o;

    open_sample(&o, "current/linear");
    fe_graph *g = core_of(&o);
    uint32_t add = call(&o, "torch.ops.aten.add.Tensor", "more", two(g, value_node(node(g, "linear")), value_int(3)),
                        named(g, "alpha", value_int(2)), "relu");
    give(&o, add, TENSOR, "{\"stack_trace\": \"here\"}");
    fe_error err;
    DO(fe_node_replace_operand(g, node(g, "relu"), node(g, "linear"), add, &err));
    const char *text = written(&o);
    check_has(
        text,
        "\"name\": \"linear\"}, {\"target\": \"torch.ops.aten.add.Tensor\", \"inputs\": [{\"name\": \"self\", "
        "\"arg\": {\"as_tensor\": {\"name\": \"linear\"}}, \"kind\": 1}, {\"name\": \"other\", \"arg\": {\"as_int\": "
        "3}, \"kind\": 1}, {\"name\": \"alpha\", \"arg\": {\"as_int\": 2}, \"kind\": 2}], \"outputs\": "
        "[{\"as_tensor\": {\"name\": \"more\"}}], \"metadata\": {\"stack_trace\": \"here\"}, "
        "\"is_hop_single_tensor_return\": null, \"name\": \"more\"}, {\"target\": \"torch.ops.aten.relu.default\", "
        "\"inputs\": [{\"name\": \"self\", \"arg\": {\"as_tensor\": {\"name\": \"more\"}}, \"kind\": 1}]",
        true);
    check_has(text, ", \"more\": " META "}, \"sym_int_values\"", true); /* after the document's own */
    close_program(&o);
}

/* Arguments are written in the order of the schema, whatever the order in which keywords were given. */
static void test_keywords_in_order(void)
{
    opened o;

    open_sample(&o, "current/linear");
    fe_graph *g = core_of(&o);
    fe_seq *kwargs = seq_new(g, 4), *args = one(g, value_node(node(g, "linear")));
    kwargs->items[0] = value_str(g, "keepdim");
    kwargs->items[1] = (fe_value){.kind = FE_BOOL, .as.boolean = true};
    kwargs->items[2] = value_str(g, "dim");
    kwargs->items[3] = value_seq(FE_LIST, seq_new(g, 0));
    give(&o, call(&o, "torch.ops.aten.sum.dim_IntList", "total", args, kwargs, "relu"), TENSOR, NULL);
    check_has(
        written(&o),
        "{\"name\": \"dim\", \"arg\": {\"as_ints\": []}, \"kind\": 2}, {\"name\": \"keepdim\", \"arg\": {\"as_bool\": "
        "true}, \"kind\": 2}], \"outputs\": [{\"as_tensor\": {\"name\": \"total\"}}], \"metadata\": {}",
        true);
    close_program(&o);
}

/* Several results: names of getitems, and made-up ones for results that nobody takes. */
static void test_new_results(void)
{
    opened o;

    open_sample(&o, "current/linear");
    fe_graph *g = core_of(&o);
    uint32_t split = call(&o, "torch.ops.aten.split.Tensor", "parts",
                          two(g, value_node(node(g, "linear")), value_int(1)), NULL, "relu");
    give(&o, split, "{\"as_list\": [" TENSOR ", " TENSOR "]}", NULL);
    call(&o, "_operator.getitem", "second", two(g, value_node(split), value_int(1)), NULL, "relu");
    uint32_t topk = call(&o, "torch.ops.aten.topk.default", "best", two(g, value_node(node(g, "linear")), value_int(1)),
                         NULL, "relu");
    give(&o, topk, "{\"as_list\": [" TENSOR ", " TENSOR "]}", NULL);
    const char *text = written(&o);
    check_has(text, "\"outputs\": [{\"as_tensors\": [{\"name\": \"parts_unused_0\"}, {\"name\": \"second\"}]}]", true);
    check_has(
        text,
        "\"outputs\": [{\"as_tensor\": {\"name\": \"best_unused_0\"}}, {\"as_tensor\": {\"name\": \"best_unused_1\"}}]",
        true);
    check_has(text,
              "\"parts_unused_0\": " META ", \"second\": " META ", \"best_unused_0\": " META
              ", \"best_unused_1\": " META "}",
              true);
    check_has(text, "getitem", false);
    close_program(&o);
}

static void erase(opened *o, const char *name)
{
    fe_node_erase(core_of(o), node(core_of(o), name));
}

/* A removed node's value goes with it; a removed getitem leaves its name, which the file must have. */
static void test_removed(void)
{
    opened o;
    fe_error err;

    open_sample(&o, "current/native_layer_norm_unused");
    const char *before = written(&o);
    size_t len = strlen(before);
    erase(&o, "getitem_1");
    CHECK_INT(strlen(written(&o)), len);
    check_has(written(&o), "\"getitem_1\": {", true);
    close_program(&o);

    open_sample(&o, "current/linear");
    fe_graph *g = core_of(&o);
    DO(fe_node_replace_all_uses(g, node(g, "relu"), node(g, "linear"), &err));
    fe_signature_replace_output(g->signature, node(g, "relu"), node(g, "linear"));
    erase(&o, "relu");
    const char *text = written(&o);
    check_has(text, "\"relu\"", false);
    check_has(text, "\"user_output\": {\"arg\": {\"as_tensor\": {\"name\": \"linear\"}}}", true);
    check_has(text, "\"outputs\": [{\"as_tensor\": {\"name\": \"linear\"}}], \"nodes\"", true);
    close_program(&o);
}

static void set_argument(opened *o, const char *name, uint32_t index, fe_value v)
{
    fe_graph *g = core_of(o);
    fe_error err;
    fe_seq *args, *kwargs;
    uint32_t id = node(g, name);

    DO(fe_seq_copy(g, &(fe_value_map){.nodes = NULL}, g->details[id].args, &args, &err));
    DO(fe_seq_copy(g, &(fe_value_map){.nodes = NULL}, g->details[id].kwargs, &kwargs, &err));
    fe_value_free(g, args->items[index]);
    args->items[index] = v;
    DO(fe_node_set_arguments(g, id, args, kwargs, &err));
}

/* The document's tag stays where it fits the new value; else the schema's or the value's own. */
static void test_changed_argument(void)
{
    opened o;

    open_sample(&o, "current/native_layer_norm_unused");
    fe_graph *g = core_of(&o);
    set_argument(&o, "native_layer_norm", 4, value_int(1));
    set_argument(&o, "native_layer_norm", 3, value_node(node(g, "w")));
    const char *text = written(&o);
    check_has(text, "{\"name\": \"eps\", \"arg\": {\"as_float\": 1.0}, \"kind\": 1}", true);
    check_has(text, "{\"name\": \"bias\", \"arg\": {\"as_tensor\": {\"name\": \"w\"}}, \"kind\": 1}", true);
    check_has(text, "{\"name\": \"normalized_shape\", \"arg\": {\"as_ints\": [4]}, \"kind\": 1}", true);
    close_program(&o);

    open_sample(&o, "current/sym_int_input");
    g = core_of(&o);
    set_argument(&o, "repeat", 1, value_seq(FE_LIST, two(g, value_int(5), value_node(node(g, "n")))));
    check_has(written(&o), "{\"as_sym_ints\": [{\"as_int\": 5}, {\"as_name\": \"n\"}]}", true);
    close_program(&o);
}

static void test_changed_target(void)
{
    opened o;

    open_sample(&o, "current/linear");
    fe_graph *g = core_of(&o);
    fe_node_set_target(g, node(g, "relu"), target_of(g, FE_OP_CALL_FUNCTION, "torch.ops.aten.gelu.default"));
    char *want = with_name(written(&o), "torch.ops.aten.gelu.default", "torch.ops.aten.relu.default");
    opened unchanged;
    open_sample(&unchanged, "current/linear");
    CHECK_TEXT(want, written(&unchanged)); /* both have one argument, "self" */
    free(want);
    close_program(&unchanged);
    close_program(&o);
}

/* What changes in a subgraph shows inside the argument that holds it. */
static void test_subgraph(void)
{
    opened o;

    open_sample(&o, "current/cond_");
    CHECK_INT(o.program->root->subgraph_count, 2);
    fe_graph *g = o.program->root->subgraphs[0]->core;
    char *want = with_name(written(&o), "sin", "renamed");
    fe_node_set_name(g, node(g, "sin"), str(g, "renamed"));
    CHECK_TEXT(written(&o), want);
    check_has(want, "\"renamed\": {", true);
    free(want);
    close_program(&o);
}

/* A graph without a document, in an argument of a new node, is written in torch's order of keys. */
static void test_new_subgraph(void)
{
    opened o;
    fe_error err;
    pt2_graph inner = {.name = "body", .core = graph_of("a; return a")};
    pt2_graph *subgraphs[] = {&inner};
    pt2_node_text values[] = {{.value = NULL}, {.value = TENSOR, .given = true}};

    inner.texts = values;
    inner.text_count = 2;
    open_sample(&o, "current/linear");
    fe_graph *g = core_of(&o);
    pt2_graph *root = o.program->root;
    g->insert = (fe_point){.anchor = node(g, "relu")};
    uint32_t body = make_node(g, FE_OP_GET_ATTR, target_of(g, FE_OP_GET_ATTR, "body"), "body", NULL, NULL);
    uint32_t wrap = call(&o, "torch.ops.higher_order.wrap", "wrapped",
                         two(g, value_node(body), value_node(node(g, "linear"))), NULL, "relu");
    give(&o, wrap, TENSOR, NULL);
    CHECK_TEXT(refused(&o),
               "FX310 wrapped: its argument 0 is an attribute that is no subgraph; take tensors in as inputs "
               "of the graph");
    root->subgraphs = subgraphs;
    root->subgraph_count = 1;
    check_has(written(&o),
              "{\"target\": \"torch.ops.higher_order.wrap\", \"inputs\": [{\"name\": \"\", \"arg\": {\"as_graph\": "
              "{\"name\": \"body\", \"graph\": {\"inputs\": [{\"as_tensor\": {\"name\": \"a\"}}], \"outputs\": "
              "[{\"as_tensor\": {\"name\": \"a\"}}], \"nodes\": [], \"tensor_values\": {\"a\": " META "}, "
              "\"sym_int_values\": {}, \"sym_bool_values\": {}, \"is_single_tensor_return\": true, "
              "\"custom_obj_values\": {}, \"sym_float_values\": {}}}}, \"kind\": 1}, {\"name\": \"\", \"arg\": "
              "{\"as_tensor\": {\"name\": \"linear\"}}, \"kind\": 1}], \"outputs\": [{\"as_tensor\": {\"name\": "
              "\"wrapped\"}}], \"metadata\": {}, \"is_hop_single_tensor_return\": true, \"name\": \"wrapped\"}",
              true);
    DO(fe_node_set_arguments(g, wrap, one(g, value_node(node(g, "linear"))), NULL, &err));
    give(&o, wrap, "{\"as_list\": [" TENSOR "]}", NULL); /* a tuple with one item */
    call(&o, "_operator.getitem", "only", two(g, value_node(wrap), value_int(0)), NULL, "relu");
    check_has(written(&o),
              "\"outputs\": [{\"as_tensor\": {\"name\": \"only\"}}], \"metadata\": {}, "
              "\"is_hop_single_tensor_return\": false, \"name\": \"wrapped\"}",
              true);
    root->subgraphs = NULL;
    root->subgraph_count = 0;
    fe_graph_free(inner.core);
    close_program(&o);
}

/* What the document says of a value that was taken out of meta is not written. */
static void test_removed_values(void)
{
    static const struct {
        const char *sample, *node, *text;
    } nodes[] = {
        {"current/linear", "relu", "FX305 relu: nothing tells what it returns"},
        {"current/linear", "x", "FX305 x: nothing tells what this input is"},
        {"current/multi_out", "topk", "FX305 topk: nothing tells what it returns"},
        {"current/cond_", "cond", "FX305 cond: nothing tells what it returns"},
        {"current/dynamic", "add_1", "FX305 add_1: nothing tells what it returns"},
    };

    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        opened o;
        open_sample(&o, nodes[i].sample);
        uint32_t id = node(core_of(&o), nodes[i].node);
        give(&o, id, NULL, "{}");
        texts[id].removed = true;
        const char *said = refused(&o);
        if (!strstr(said, nodes[i].text))
            printf("%s: %s\n", nodes[i].node, said);
        CHECK(strstr(said, nodes[i].text));
        close_program(&o);
    }
}

static void test_refused(void)
{
    opened o;
    fe_error err;

    open_sample(&o, "current/linear");
    fe_graph *g = core_of(&o);
    fe_value linear = value_node(node(g, "linear"));
    uint32_t id = call(&o, "torch.ops.aten.relu.default", "bare", one(g, linear), NULL, "relu");
    CHECK_TEXT(refused(&o),
               "FX305 bare: nothing tells what it returns; set its meta['val'] to a TensorMeta, or to a tuple "
               "of them");
    give(&o, id, "{\"as_dtype\": 1}", NULL);
    CHECK_TEXT(refused(&o),
               "FX305 bare: its meta['val'] is no TensorMeta, symbolic number or tuple of them; FX305 bare: "
               "nothing tells what it returns; set its meta['val'] to a TensorMeta, or to a tuple of them");
    give(&o, id, TENSOR, NULL);
    DO(fe_node_set_arguments(g, id, two(g, linear, value_int(1)), NULL, &err));
    CHECK_TEXT(refused(&o),
               "FX310 bare: 'torch.ops.aten.relu.default' takes at most 1 arguments by position; it is given 2");
    DO(fe_node_set_arguments(g, id, one(g, linear), named(g, "speed", value_int(1)), &err));
    CHECK_TEXT(refused(&o), "FX310 bare: 'torch.ops.aten.relu.default' has no argument 'speed'; see its schema");
    fe_seq *slice = seq_new(g, 3);
    for (uint32_t i = 0; i < 3; i++)
        slice->items[i] = value_int(i);
    DO(fe_node_set_arguments(g, id, one(g, value_seq(FE_SLICE, slice)), NULL, &err));
    CHECK_TEXT(refused(&o),
               "FX310 bare: its argument 'self' is a slice, which a .pt2 file has no word for; call an operator "
               "such as aten.slice.Tensor");
    DO(fe_node_set_arguments(g, id, one(g, value_seq(FE_LIST, two(g, value_int(1), value_str(g, "a")))), NULL, &err));
    CHECK_TEXT(refused(&o),
               "FX310 bare: its argument 'self' is a list that mixes kinds of values, or of a kind that a .pt2 "
               "file has no lists of; give each kind its own argument");
    fe_node_set_target(g, id, target_of(g, FE_OP_CALL_FUNCTION, "torch.ops.mine.op.default"));
    DO(fe_node_set_arguments(g, id, one(g, linear), NULL, &err));
    CHECK_TEXT(refused(&o),
               "FX303 bare: the names of the arguments of 'torch.ops.mine.op.default' are not known; give its "
               "arguments by keyword");
    DO(fe_node_set_arguments(g, id, NULL, named(g, "x", linear), &err));
    check_has(written(&o),
              "\"inputs\": [{\"name\": \"x\", \"arg\": {\"as_tensor\": {\"name\": \"linear\"}}, \"kind\": 2}]", true);
    close_program(&o);
}

static void test_refused_outputs(void)
{
    static const char fault[] = "its argument 0 can't be an output; give a tensor, a number with a name, a number, a "
                                "bool or None";
    opened o;
    fe_error err;

    open_sample(&o, "current/linear");
    fe_graph *g = core_of(&o);
    uint32_t output = node(g, "output");
    DO(fe_node_set_arguments(g, output, one(g, value_seq(FE_TUPLE, one(g, value_str(g, "a")))), NULL, &err));
    check_has(refused(&o), fault, true);
    DO(fe_node_set_arguments(g, output, one(g, value_seq(FE_TUPLE, one(g, value_seq(FE_LIST, seq_new(g, 0))))), NULL,
                             &err));
    check_has(refused(&o), fault, true);
    DO(fe_node_set_arguments(g, output, one(g, value_int(3)), NULL, &err));
    check_has(refused(&o), "a graph returns one bare tensor, or a tuple; put this into a tuple", true);
    close_program(&o);
}

static void test_refused_getitems(void)
{
    opened o;

    open_sample(&o, "current/multi_out");
    fe_graph *g = core_of(&o);
    call(&o, "_operator.getitem", "again", two(g, value_node(node(g, "topk")), value_int(1)), NULL, "add");
    CHECK_TEXT(refused(&o), "FX301 again: it takes the same result of 'topk' as 'getitem_1' does; run the pass "
                            "eliminate_getitems first");
    erase(&o, "again");
    call(&o, "_operator.getitem", "beyond", two(g, value_node(node(g, "topk")), value_int(2)), NULL, "add");
    check_has(refused(&o), "FX301 beyond: a .pt2 file can only say a getitem of a call with several results", true);
    erase(&o, "beyond");
    call(&o, "_operator.getitem", "row", two(g, value_node(node(g, "x")), value_int(0)), NULL, "add");
    check_has(refused(&o), "FX301 row: a .pt2 file can only say a getitem of a call with several results", true);
    erase(&o, "row");
    set_argument(&o, "add", 0, value_node(node(g, "topk"))); /* the tuple itself */
    CHECK_TEXT(refused(&o),
               "FX310 add: its argument 'self' is a node that has no value of its own; take one of its results "
               "by getitem, or leave it out");
    close_program(&o);
}

/* Specs that changed or are new are written in torch's form. */
static void test_signature(void)
{
    opened o;
    fe_error err;

    open_sample(&o, "current/linear");
    fe_graph *g = core_of(&o);
    fe_spec *inputs = g->signature->inputs;
    inputs[0].kind = FE_INPUT_BUFFER;
    inputs[0].persistent = true;
    inputs[1].target = str(g, "fc.offset");
    inputs[2] = (fe_spec){.kind = FE_INPUT_USER, .node = FE_NONE_ID, .name = str(g, "x"), .value = value_int(4)};
    fe_spec new = {.kind = FE_OUTPUT_BUFFER_MUTATION, .node = node(g, "linear"), .target = inputs[0].target};
    DO(fe_signature_add_output(g->signature, new, &err));
    new = (fe_spec){.kind = FE_OUTPUT_USER, .node = FE_NONE_ID, .value = {.kind = FE_FLOAT, .as.real = 0.5}};
    DO(fe_signature_add_output(g->signature, new, &err));
    check_has(
        written(&o),
        "\"signature\": {\"input_specs\": [{\"buffer\": {\"arg\": {\"name\": \"p_fc_weight\"}, \"buffer_name\": "
        "\"fc.weight\", \"persistent\": true}}, {\"parameter\": {\"arg\": {\"name\": \"p_fc_bias\"}, "
        "\"parameter_name\": \"fc.offset\"}}, {\"constant_input\": {\"name\": \"x\", \"value\": {\"as_int\": 4}}}], "
        "\"output_specs\": [{\"user_output\": {\"arg\": {\"as_tensor\": {\"name\": \"relu\"}}}}, "
        "{\"buffer_mutation\": {\"arg\": {\"name\": \"linear\"}, \"buffer_name\": \"fc.weight\"}}, "
        "{\"user_output\": {\"arg\": {\"as_float\": 0.5}}}]}",
        true);
    g->signature->outputs[1].target = NULL;
    CHECK_TEXT(refused(&o), "FX401 linear: output 1 of the signature ('buffer_mutation') needs a target");
    g->signature->outputs[1].target = inputs[0].target;
    g->signature->outputs[1].node = FE_NONE_ID;
    CHECK_TEXT(refused(&o), "FX401 -: output 1 of the signature ('buffer_mutation') must be a node with a value");
    close_program(&o);

    open_sample(&o, "current/linear");
    g = core_of(&o);
    uint32_t id = node(g, "relu");
    DO(fe_node_replace_all_uses(g, id, node(g, "linear"), &err));
    erase(&o, "relu");
    g->signature->outputs[0].node = id;
    CHECK_TEXT(refused(&o),
               "FX401 -: output 0 of the signature ('user_output') is a node that was removed; remove or change "
               "its spec too");
    close_program(&o);
}

static void test_refused_signature(void)
{
    opened o;
    fe_error err;

    open_sample(&o, "current/module_signature");
    fe_graph *g = core_of(&o);
    DO(fe_node_replace_all_uses(g, node(g, "mul"), node(g, "add"), &err));
    erase(&o, "mul");
    CHECK_TEXT(refused(&o),
               "FX401 -: the signature of the call of module 'sub' names 'mul', which was removed from the "
               "graph; keep that node, or export without preserving this module's signature");
    close_program(&o);
}

/* ---- memory ---- */

/* Whatever request fails: writing fails, says so and leaks nothing; or that request was for less memory, and the text is
 * whole. */
static void write_with_failures(const char *path, const char *want)
{
    size_t refusals = 0, nth = 0;
    bool reached = true;

    for (; reached; nth++) {
        test_memory memory;
        opened o;
        memory_init(&memory);
        DO(try_open(&o, path, &memory));
        fe_graph *g = core_of(&o);
        uint32_t input = fe_node_next(g, FE_ROOT), user = g->edges[g->details[input].first_user].user;
        give(&o, user, NULL, "{}");
        give(&o, input, TENSOR, "{}");
        size_t blocks = memory.blocks;
        memory_fail(&memory, nth, nth % 2);
        int status = pt2_program_write(o.program, o.program->root, &o.out, &o.report);
        reached = memory.calls > nth;
        CHECK_INT(o.report.no_memory, status < 0);
        refusals += status < 0;
        if (status == 0)
            CHECK(o.out.len == strlen(want) && memcmp(o.out.data, want, o.out.len) == 0);
        fe_buffer_clear(&o.out);
        CHECK_INT(memory.blocks, blocks);
        memory_fail(&memory, SIZE_MAX, false);
        close_program(&o);
        CHECK_INT(memory.blocks, 0);
    }
    CHECK(refusals + 3 > nth);
}

static void test_no_memory(void)
{
    static const char *const names[] = {"current/multi_out", "current/cond_", "current/module_signature"};
    char path[512];

    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        opened o;
        open_sample(&o, names[k]);
        fe_graph *g = core_of(&o);
        uint32_t input = fe_node_next(g, FE_ROOT), user = g->edges[g->details[input].first_user].user;
        give(&o, user, NULL, "{}");
        give(&o, input, TENSOR, "{}");
        const char *want = written(&o);
        CHECK((size_t)snprintf(path, sizeof path, "%s/%s.pt2", samples, names[k]) < sizeof path);
        write_with_failures(path, want);
        close_program(&o);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        samples = argv[1];
    RUN(test_unchanged);
    RUN(test_anew);
    RUN(test_hostile);
    RUN(test_rename);
    RUN(test_rename_producer);
    RUN(test_new_node);
    RUN(test_keywords_in_order);
    RUN(test_new_results);
    RUN(test_removed);
    RUN(test_changed_argument);
    RUN(test_changed_target);
    RUN(test_subgraph);
    RUN(test_new_subgraph);
    RUN(test_removed_values);
    RUN(test_refused);
    RUN(test_refused_outputs);
    RUN(test_refused_getitems);
    RUN(test_signature);
    RUN(test_refused_signature);
    RUN(test_no_memory);
    return 0;
}
