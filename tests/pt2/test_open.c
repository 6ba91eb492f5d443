/* test_open.c - opening programs: layouts, markers, models, payload tables, and every hostile file of this layer.
 *
 * What only the graph can tell (a weight's shape against its value) is checked where programs are verified, not here.
 */
#include "files.h"

#include "../../csrc/pt2/open.h"

#include <dirent.h>

#define HOSTILE DATA "hostile/"
#define SAMPLES DATA "samples/"

/* ---- helpers ---- */

typedef struct {
    pt2_report report;
    pt2_archive *archive;
    pt2_program *program;
} opened;

static opened open_bytes(bytes b, const char *model, const fe_allocator *a)
{
    opened o = {.archive = NULL};

    pt2_report_init(&o.report, a, NULL);
    o.archive = pt2_archive_open_bytes(b.data, b.len, a, &o.report);
    if (o.archive)
        o.program = pt2_program_open(o.archive, model, NULL, a, &o.report);
    if (o.program && pt2_program_check_payloads(o.program, 1 << 26, &o.report) < 0) {
        pt2_program_free(o.program);
        o.program = NULL;
    }
    CHECK_INT(o.program == NULL, o.report.errors || o.report.no_memory);
    return o;
}

static void clear(opened *o)
{
    pt2_program_free(o->program);
    pt2_archive_close(o->archive);
    pt2_report_clear(&o->report);
}

static opened open_file(const char *path, bytes *b)
{
    *b = read_file(path);
    return open_bytes(*b, NULL, &fe_libc_allocator);
}

/* ---- samples ---- */

static void check_same_json(pt2_archive *archive, const pt2_entry *e, const pt2_json *j, pt2_report *r)
{
    char *text;
    size_t len;
    fe_buffer b;

    fe_buffer_init(&b, &fe_libc_allocator);
    DO(pt2_archive_read(archive, e, 0, 0, &text, &len, r));
    pt2_json_write(yyjson_doc_get_root(j->doc), &b);
    CHECK(b.len == len && memcmp(b.data, text, len) == 0);
    fe_buffer_clear(&b);
    free(text);
}

static size_t check_samples(const char *folder, pt2_layout layout)
{
    DIR *dir = opendir(folder);
    char path[600];
    size_t count = 0;

    CHECK(dir);
    for (struct dirent *d; (d = readdir(dir));) {
        size_t len = strlen(d->d_name);
        if (len < 4 || strcmp(d->d_name + len - 4, ".pt2") != 0)
            continue;
        bytes b;
        snprintf(path, sizeof path, "%s/%s", folder, d->d_name);
        opened o = open_file(path, &b);
        if (!o.program)
            print_faults(&o.report);
        CHECK(o.program);
        CHECK_INT(o.program->layout, layout);
        for (uint32_t i = 0; i < o.report.count; i++) /* user classes in sample inputs */
            CHECK_INT(o.report.items[i].kind, PT2_PICKLE);
        check_same_json(o.archive, o.program->model_entry, &o.program->json, &o.report);
        if (o.program->weights.entry)
            check_same_json(o.archive, o.program->weights.entry, &o.program->weights.config, &o.report);
        clear(&o);
        free(b.data);
        count++;
    }
    closedir(dir);
    return count;
}

static void test_samples(void)
{
    CHECK(check_samples(SAMPLES "current", PT2_LAYOUT_A) > 10);
    CHECK(check_samples(SAMPLES "middle_layout", PT2_LAYOUT_B) > 0);
    CHECK(check_samples(SAMPLES "old_layout", PT2_LAYOUT_C) > 5);
}

static void test_payload_table(void)
{
    bytes b;
    opened o = open_file(SAMPLES "current/linear.pt2", &b);
    const pt2_payload *w;

    CHECK(o.program);
    CHECK_TEXT(o.program->model, "model");
    CHECK_INT(o.program->weights.count, 2);
    CHECK_INT(o.program->constants.count, 0);
    CHECK(!o.program->weights.pickle && o.program->sample_inputs);
    w = &o.program->weights.items[0];
    CHECK_TEXT(w->name, "fc.weight");
    CHECK_TEXT(w->entry->name, "data/weights/weight_0");
    CHECK_TEXT(w->device, "cpu");
    CHECK_TEXT(pt2_dtype_name(w->dtype), "float32");
    CHECK(w->kind == PT2_PAYLOAD_TENSOR && w->is_param && w->requires_grad);
    CHECK(w->ndim == 2 && w->sizes[0] == 3 && w->sizes[1] == 4 && w->strides[0] == 4 && w->strides[1] == 1);
    CHECK_INT(w->offset, 0);
    clear(&o);
    free(b.data);
}

/* ---- hostile files ---- */

/* Right by themselves: their graph says otherwise. */
static bool needs_graph(const char *name)
{
    return strncmp(name, "E32_", 4) == 0 || strncmp(name, "E60_", 4) == 0 || strncmp(name, "E61_", 4) == 0;
}

static const char *text_of_field(yyjson_val *v, const char *key)
{
    return yyjson_get_str(yyjson_obj_get(v, key));
}

static bool has_expected(const pt2_report *r, yyjson_val *want)
{
    const char *kind = text_of_field(want, "kind"), *entry = text_of_field(want, "entry"),
               *path = text_of_field(want, "path");

    for (uint32_t i = 0; i < r->count; i++) {
        const pt2_fault *f = &r->items[i];
        if (f->severity == PT2_ERROR && strcmp(pt2_kind_name(f->kind), kind) == 0 &&
            (!entry || (f->entry && strcmp(f->entry, entry) == 0)) && (!path || (f->path && strstr(f->path, path))))
            return true;
    }
    return false;
}

static bool has_warning(const pt2_report *r, const char *text)
{
    for (uint32_t i = 0; i < r->count; i++)
        if (r->items[i].severity == PT2_WARNING && strstr(r->items[i].message, text))
            return true;
    return false;
}

static void check_hostile(const char *name, yyjson_val *want)
{
    const char *outcome = text_of_field(want, "outcome"), *warn = text_of_field(want, "warn");
    char path[600];
    bytes b;
    bool right;

    snprintf(path, sizeof path, HOSTILE "%s.pt2", name);
    opened o = open_file(path, &b);
    if (strcmp(outcome, "error") == 0)
        right = has_expected(&o.report, want) || (yyjson_obj_get(want, "also_ok") && o.program);
    else
        right = o.program && (!warn || has_warning(&o.report, warn));
    if (!right) {
        printf("%s: not as expected\n", name);
        print_faults(&o.report);
    }
    CHECK(right);
    clear(&o);
    free(b.data);
}

static void test_hostile(void)
{
    bytes b = read_file(HOSTILE "expected.json");
    pt2_json j;
    pt2_report r;
    size_t at, count, checked = 0;
    yyjson_val *key, *want;

    pt2_report_init(&r, &fe_libc_allocator, NULL);
    DO(pt2_json_parse_copy(&j, b.data, b.len, &fe_libc_allocator, NULL, &r));
    yyjson_obj_foreach(yyjson_doc_get_root(j.doc), at, count, key, want)
    {
        const char *group = text_of_field(want, "group");
        if (!strchr("EJTM", group[0]) || needs_graph(yyjson_get_str(key)))
            continue;
        check_hostile(yyjson_get_str(key), want);
        checked++;
    }
    CHECK(checked > 200);
    pt2_json_clear(&j);
    free(b.data);
}

/* A changed byte of any entry is an error: its CRC is checked, when nothing else finds it. */
static void test_flips(void)
{
    bytes b = read_file(SAMPLES "current/linear.pt2");
    pt2_report r;
    uint32_t count;

    pt2_report_init(&r, &fe_libc_allocator, NULL);
    pt2_archive *archive = pt2_archive_open_bytes(b.data, b.len, &fe_libc_allocator, &r);
    CHECK(archive);
    const pt2_entry *entries = pt2_archive_entries(archive, &count);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t step = 1 + entries[i].size / 50;
        for (uint64_t at = 0; at < entries[i].size; at += step) {
            b.data[entries[i].offset + at] ^= 1;
            opened o = open_bytes(b, NULL, &fe_libc_allocator);
            CHECK(!o.program && o.report.errors);
            clear(&o);
            b.data[entries[i].offset + at] ^= 1;
        }
    }
    pt2_archive_close(archive);
    free(b.data);
}

/* Weights are read all or not at all: 48 and 12 bytes here. A budget of 0 is none. */
static void test_budget(void)
{
    bytes b = read_file(SAMPLES "current/linear.pt2");
    pt2_report r;

    pt2_report_init(&r, &fe_libc_allocator, NULL);
    pt2_archive *archive = pt2_archive_open_bytes(b.data, b.len, &fe_libc_allocator, &r);
    CHECK(archive);
    b.data[pt2_archive_find(archive, "data/weights/weight_0")->offset] ^= 1; /* 48 bytes */
    pt2_program *p = pt2_program_open(archive, NULL, NULL, &fe_libc_allocator, &r);
    CHECK(p);
    DO(pt2_program_check_payloads(p, 59, &r));
    CHECK_CLEAN(&r);
    CHECK(pt2_program_check_payloads(p, 1 << 20, &r) < 0);
    CHECK_ERROR(&r, PT2_CRC, "data/weights/weight_0", NULL);
    CHECK(pt2_program_check_payloads(p, 0, &r) < 0);
    CHECK_INT(r.errors, 2);
    pt2_program_free(p);
    pt2_archive_close(archive);
    pt2_report_clear(&r);
    free(b.data);
}

/* ---- models ---- */

static int list_model(void *ctx, const char *name, size_t len)
{
    fe_buffer *b = ctx;

    fe_buffer_add(b, name, len);
    fe_buffer_char(b, ' ');
    return 0;
}

static int stop_at_once(void *ctx, const char *name, size_t len)
{
    (void)ctx;
    (void)name;
    return (int)len;
}

/* The entries of a model with nothing in it, made from a sample's document. */
static void add_model(hand_zip *z, const char *name, const char *json)
{
    static char names[8][4][64];
    static size_t next;
    char(*n)[64] = names[next++ % 8];

    snprintf(n[0], 64, "R/models/%s.json", name);
    snprintf(n[1], 64, "R/data/weights/%s_weights_config.json", name);
    snprintf(n[2], 64, "R/data/constants/%s_constants_config.json", name);
    snprintf(n[3], 64, "R/data/sample_inputs/%s.pt", name);
    hand_add(z, (hand_entry){.name = n[0], .content = json});
    hand_add(z, (hand_entry){.name = n[1], .content = "{\"config\": {}}"});
    hand_add(z, (hand_entry){.name = n[2], .content = "{\"config\": {}}"});
    hand_add(z, (hand_entry){.name = n[3]});
}

static hand_zip marked(void)
{
    hand_zip z = hand_new();

    hand_add(&z, (hand_entry){.name = "R/archive_format", .content = "pt2"});
    hand_add(&z, (hand_entry){.name = "R/archive_version", .content = "0"});
    hand_add(&z, (hand_entry){.name = "R/version", .content = "6"});
    return z;
}

#define EMPTY_PROGRAM                                                                                                \
    "{\"graph_module\": {\"graph\": {\"inputs\": [], \"outputs\": [], \"nodes\": [], \"tensor_values\": {}, "        \
    "\"sym_int_values\": {}, \"sym_bool_values\": {}}, \"signature\": {\"input_specs\": [], \"output_specs\": []}, " \
    "\"module_call_graph\": []}, \"opset_version\": {}, \"range_constraints\": {}, "                                 \
    "\"schema_version\": {\"major\": 8, \"minor\": 20}}"

static void test_models(void)
{
    hand_zip z = marked();
    add_model(&z, "first", EMPTY_PROGRAM);
    add_model(&z, "sub/second", EMPTY_PROGRAM);
    bytes b = hand_end(&z, "", 0);
    fe_buffer names;

    opened o = open_bytes(b, "sub/second", &fe_libc_allocator);
    CHECK_CLEAN(&o.report);
    CHECK_TEXT(o.program->model, "sub/second");
    CHECK_TEXT(o.program->model_entry->name, "models/sub/second.json");
    fe_buffer_init(&names, &fe_libc_allocator);
    CHECK_INT(pt2_each_model(o.archive, list_model, &names), 0);
    fe_buffer_char(&names, '\0');
    CHECK_TEXT(names.data, "first sub/second ");
    CHECK_INT(pt2_each_model(o.archive, stop_at_once, NULL), 5);
    fe_buffer_clear(&names);
    clear(&o);

    o = open_bytes(b, NULL, &fe_libc_allocator); /* which one? */
    CHECK_ERROR(&o.report, PT2_MISSING_ENTRY, "models/model.json", "2 models");
    clear(&o);
    o = open_bytes(b, "third", &fe_libc_allocator);
    CHECK_ERROR(&o.report, PT2_MISSING_ENTRY, "models/third.json", NULL);
    clear(&o);
    free(b.data);

    z = marked();
    add_model(&z, "only", EMPTY_PROGRAM);
    b = hand_end(&z, "", 0);
    o = open_bytes(b, NULL, &fe_libc_allocator);
    CHECK_CLEAN(&o.report);
    CHECK_TEXT(o.program->model, "only");
    clear(&o);
    free(b.data);
}

/* All that is wrong is told at once. */
static void test_all_faults(void)
{
    hand_zip z = hand_new();
    hand_add(&z, (hand_entry){.name = "R/archive_format", .content = "zip"});
    hand_add(&z, (hand_entry){.name = "R/byteorder", .content = "big"});
    hand_add(&z, (hand_entry){.name = "R/models/model.json", .content = "{\"graph_module\": 03}"});
    hand_add(&z, (hand_entry){.name = "R/models/readme", .content = ""});
    hand_add(&z, (hand_entry){.name = "R/extra/bin", .content = "\xc3"});
    hand_add(&z, (hand_entry){.name = "R/what", .content = ""});
    hand_add(&z, (hand_entry){.name = "R/data/weights/model_weights_config.json", .content = "{}"});
    bytes b = hand_end(&z, "", 0);
    opened o = open_bytes(b, NULL, &fe_libc_allocator);

    CHECK_ERROR(&o.report, PT2_VERSION, "archive_format", "'pt2' is expected, not 'zip'");
    CHECK_ERROR(&o.report, PT2_MISSING_ENTRY, "archive_version", NULL);
    CHECK_ERROR(&o.report, PT2_MISSING_ENTRY, ".data/version", NULL);
    CHECK_ERROR(&o.report, PT2_UNSUPPORTED, "byteorder", NULL);
    CHECK_ERROR(&o.report, PT2_LAYOUT, "models/readme", NULL);
    CHECK_ERROR(&o.report, PT2_JSON_SYNTAX, "models/model.json", "starts with 0");
    CHECK_ERROR(&o.report, PT2_JSON_MISSING, "data/weights/model_weights_config.json", "config");
    CHECK_ERROR(&o.report, PT2_MISSING_ENTRY, "data/constants/model_constants_config.json", NULL);
    CHECK_ERROR(&o.report, PT2_MISSING_ENTRY, "data/sample_inputs/model.pt", NULL);
    CHECK_WARNING(&o.report, PT2_UNKNOWN_ENTRY, "extra/bin", "not UTF-8");
    CHECK_WARNING(&o.report, PT2_UNKNOWN_ENTRY, "what", "unknown entry");
    clear(&o);
    free(b.data);
}

/* ---- payload configs by hand ---- */

#define ITEM(name, record, pickled, meta)                                                         \
    "\"" name "\": {\"path_name\": \"" record "\", \"is_param\": false, \"use_pickle\": " pickled \
    ", \"tensor_meta\": " meta "}"
#define META(dtype, sizes, strides, offset)                                                                      \
    "{\"dtype\": " dtype ", \"sizes\": [" sizes "], \"requires_grad\": false, \"device\": {\"type\": \"cuda\", " \
    "\"index\": 1}, \"strides\": [" strides "], \"storage_offset\": {\"as_int\": " offset "}, \"layout\": 7}"
#define I(n) "{\"as_int\": " n "}"

/* A program whose weights or constants have this config; two records of 8 bytes. */
static opened open_config(const char *weights, const char *constants, bytes *b)
{
    hand_zip z = marked();

    hand_add(&z, (hand_entry){.name = "R/models/model.json", .content = EMPTY_PROGRAM});
    hand_add(&z, (hand_entry){.name = "R/data/weights/model_weights_config.json", .content = weights});
    hand_add(&z, (hand_entry){.name = "R/data/constants/model_constants_config.json", .content = constants});
    hand_add(&z, (hand_entry){.name = "R/data/sample_inputs/model.pt"});
    hand_add(&z, (hand_entry){.name = "R/data/weights/weight_0", .content = "12345678"});
    hand_add(&z, (hand_entry){.name = "R/data/weights/my/w.bin", .content = "12345678"});
    hand_add(&z, (hand_entry){.name = "R/data/weights/empty", .content = ""});
    hand_add(&z, (hand_entry){.name = "R/data/weights/bools", .content = "\1\1\1"});
    hand_add(&z, (hand_entry){.name = "R/data/constants/tensor_0", .content = "12345678"});
    hand_add(&z, (hand_entry){.name = "R/data/constants/custom_obj_0", .content = "PK"});
    hand_add(&z, (hand_entry){.name = "R/data/constants/opaque_obj_0", .content = "cposix\nsystem\n."});
    *b = hand_end(&z, "", 0);
    return open_bytes(*b, NULL, &fe_libc_allocator);
}

static void test_good_configs(void)
{
    bytes b;
    opened o = open_config(
        "{\"config\": {" ITEM("a", "weight_0", "false", META("7", I("2"), I("1"), "0")) ", " ITEM(
            "b", "weight_0", "false",
            META("7", "", "",
                 "1")) ", " ITEM("c", "my/w.bin", "false",
                                 META("1", I("2") ", " I("4"), I("1") ", " I("2"),
                                      "0")) ", " ITEM("d", "empty", "false",
                                                      META("7", I("0"), I("1"),
                                                           "0")) ", " ITEM("e", "bools", "false",
                                                                           META("12", I("3"), I("1"),
                                                                                "0")) ", " ITEM("f", "my/w.bin",
                                                                                                "false",
                                                                                                META("1",
                                                                                                     I("1000") ", " I(
                                                                                                         "1000"),
                                                                                                     I("0") ", " I("0"),
                                                                                                     "7")) "}}",
        "{\"config\": {" ITEM("t", "tensor_0", "false", META("7", I("2"), I("1"), "0")) ", " ITEM(
            "c", "custom_obj_0", "true", "null") ", " ITEM("o", "opaque_obj_0", "true", "null") "}}",
        &b);
    const pt2_payloads *w = &o.program->weights, *c = &o.program->constants;

    if (!o.program)
        print_faults(&o.report);
    CHECK(o.program);
    CHECK_INT(w->count, 6);
    CHECK_TEXT(w->items[0].device, "cuda:1");
    CHECK(w->items[1].ndim == 0 && w->items[1].offset == 1 && w->items[0].entry == w->items[1].entry);
    CHECK_TEXT(w->items[2].entry->name, "data/weights/my/w.bin");
    CHECK_INT(c->count, 3);
    CHECK_INT(c->items[0].kind, PT2_PAYLOAD_TENSOR);
    CHECK_INT(c->items[1].kind, PT2_PAYLOAD_CUSTOM);
    CHECK_INT(c->items[2].kind, PT2_PAYLOAD_OPAQUE);
    CHECK_INT(o.report.count, 1);
    CHECK_WARNING(&o.report, PT2_PICKLE, "data/constants/opaque_obj_0",
                  "pickled constant 'o': the pickle calls posix.system");
    clear(&o);
    free(b.data);
}

static void check_config(const char *config, bool constants, pt2_kind kind, const char *path)
{
    bytes b;
    opened o = open_config(constants ? "{\"config\": {}}" : config, constants ? config : "{\"config\": {}}", &b);
    bool found = false;

    for (uint32_t i = 0; i < o.report.count; i++)
        found |= o.report.items[i].kind == kind && o.report.items[i].path && strcmp(o.report.items[i].path, path) == 0;
    if (!found) {
        printf("%s: no %s at %s\n", config, pt2_kind_name(kind), path);
        print_faults(&o.report);
    }
    CHECK(found && !o.program);
    clear(&o);
    free(b.data);
}

#define BAD_VIEW(dtype, sizes, strides, offset, at)                                                                \
    check_config("{\"config\": {" ITEM("w", "weight_0", "false", META(dtype, sizes, strides, offset)) "}}", false, \
                 PT2_PAYLOAD, "$.config.w.tensor_meta." at)
#define BIG "9223372036854775807"

#define ON(device, record, sizes, strides)                                                              \
    "{\"config\": {\"w\": {\"path_name\": \"" record "\", \"is_param\": false, \"use_pickle\": false, " \
    "\"tensor_meta\": {\"dtype\": 7, \"sizes\": [" sizes "], \"requires_grad\": false, "                \
    "\"device\": {\"type\": \"" device "\", \"index\": null}, \"strides\": [" strides "], "             \
    "\"storage_offset\": {\"as_int\": 3}, \"layout\": 7}}}}"

/* Weights on the device meta have sizes and no data; others, and records that have some, are held against them. */
static void test_meta_device(void)
{
    bytes b;
    opened o = open_config(ON("meta", "empty", I("5"), I("2")), "{\"config\": {}}", &b);

    if (!o.program)
        print_faults(&o.report);
    CHECK(o.program && o.program->weights.count == 1);
    CHECK_TEXT(o.program->weights.items[0].device, "meta");
    CHECK_INT(o.program->weights.items[0].entry->size, 0);
    clear(&o);
    free(b.data);
    check_config(ON("cpu", "empty", I("5"), I("2")), false, PT2_PAYLOAD, "$.config.w.tensor_meta.sizes");
    check_config(ON("meta", "weight_0", I("5"), I("2")), false, PT2_PAYLOAD, "$.config.w.tensor_meta.storage_offset");
    check_config(ON("meta", "empty", I(BIG), I("2")), false, PT2_PAYLOAD, "$.config.w.tensor_meta.sizes");
}

static void test_bad_configs(void)
{
    BAD_VIEW("7", I("3"), I("1"), "0", "sizes");
    BAD_VIEW("7", I("2"), I("2"), "0", "sizes");
    BAD_VIEW("7", I("2"), I("1"), "1", "sizes");
    BAD_VIEW("7", I("1"), I("1"), "2", "storage_offset");
    BAD_VIEW("7", I("1"), I("1"), "-1", "storage_offset");
    BAD_VIEW("7", I("1"), I("1"), BIG, "strides");
    BAD_VIEW("7", I("-1"), I("1"), "0", "sizes");
    BAD_VIEW("7", I("2"), I("-1"), "0", "strides");
    BAD_VIEW("7", I("2"), "", "0", "strides");
    BAD_VIEW("7", I(BIG), I("0"), "0", "sizes");
    BAD_VIEW("7", I("4294967296") ", " I("4294967296"), I("0") ", " I("0"), "0", "sizes");
    BAD_VIEW("7", I("3"), I(BIG), "0", "strides");
    BAD_VIEW("7", I("0") ", " I(BIG) ", " I("2"), I("1") ", " I("1") ", " I("1"), "0", "sizes");
    BAD_VIEW("7", "{\"as_expr\": {\"expr_str\": \"s\"}}", I("1"), "0", "sizes[0]");
    check_config("{\"config\": {" ITEM("w", "weight_0", "false", "null") "}}", false, PT2_PAYLOAD,
                 "$.config.w.tensor_meta");
    check_config("{\"config\": {" ITEM("w", "weight_1", "false", "null") "}}", false, PT2_PAYLOAD,
                 "$.config.w.path_name");
    check_config("{\"config\": {" ITEM("w", "my", "false", "null") "}}", false, PT2_PAYLOAD, "$.config.w.path_name");
    check_config("{\"config\": {" ITEM("w", "my//w.bin", "false", "null") "}}", false, PT2_UNSAFE_NAME,
                 "$.config.w.path_name");
    check_config("{\"config\": {" ITEM("w", "weight_0/", "false", "null") "}}", false, PT2_UNSAFE_NAME,
                 "$.config.w.path_name");
    check_config("{\"config\": {" ITEM("w", "weight_0", "true", "null") ", " ITEM("v", "weight_0", "false",
                                                                                  META("7", I("1"), I("1"), "0")) "}}",
                 false, PT2_PAYLOAD, "$.config.v.tensor_meta.dtype");
    check_config("{\"config\": {" ITEM("w", "bools", "false", META("12", I("1"), I("1"), "0")) ", " ITEM(
                     "v", "bools", "false", META("1", I("1"), I("1"), "0")) "}}",
                 false, PT2_PAYLOAD, "$.config.v.tensor_meta.dtype");
    check_config("{\"config\": {" ITEM("c", "weight_0", "false", "null") "}}", true, PT2_PAYLOAD,
                 "$.config.c.path_name");
}

/* ---- pickles ---- */

static const char *scanned(const char *data, size_t len)
{
    static char text[2000];
    pt2_report r;
    size_t at = 0;
    hand_zip z = hand_new();

    hand_add(&z, (hand_entry){.name = "R/entry", .content = data, .content_len = len});
    bytes b = hand_end(&z, "", 0);
    pt2_report_init(&r, &fe_libc_allocator, NULL);
    pt2_archive *archive = pt2_archive_open_bytes(b.data, b.len, &fe_libc_allocator, &r);
    CHECK(archive);
    DO(pt2_pickle_scan_entry(archive, pt2_archive_find(archive, "entry"), true, "it", &fe_libc_allocator, &r));
    text[0] = '\0';
    for (uint32_t i = 0; i < r.count; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", i ? "; " : "", r.items[i].message);
    pt2_report_clear(&r);
    pt2_archive_close(archive);
    free(b.data);
    return text;
}

#define CHECK_SCAN(data, want) CHECK_TEXT(scanned(data, sizeof(data) - 1), want)

static void test_pickle_scan(void)
{
    static const char *const cut = "\x80\x04\x95\x10\0\0\0\0\0\0\0\x8c\x02os\x94\x8c\x05mkdir\x94\x93\x94.";

    CHECK_SCAN("", "");
    CHECK_SCAN("\x80\x02"
               "cos\nmkdir\nq\0X\1\0\0\0Rq\1\x85q\2Rq\3.",
               "it: the pickle calls os.mkdir");
    CHECK_SCAN("\x80\x02"
               "ccollections\nOrderedDict\n)R.",
               "");
    CHECK_SCAN("\x80\x02"
               "ctorch._utils\n_rebuild_tensor_v2\nctorch\nFloatStorage\n.",
               "");
    CHECK_SCAN("(ios\nsystem\n.", "it: the pickle calls os.system");
    CHECK_SCAN("\x80\x04\x95\x10\0\0\0\0\0\0\0\x8c\x02os\x94\x8c\x05mkdir\x94\x93\x94.",
               "it: the pickle calls os.mkdir");
    CHECK_SCAN("\x80\x02\x82\x01.", "it: the pickle calls copyreg.extension");
    CHECK_SCAN(
        "cb\nb\ncb\nb\ncb\nb\ncb\nb\ncb\nb\ncb\nb\n.",
        "it: the pickle calls b.b; it: the pickle calls b.b; it: the pickle calls b.b; it: the pickle calls b.b");
    CHECK_SCAN("\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
               "cos\nx\n",
               "it: this is no whole pickle"); /* a length past the end */
    CHECK_SCAN("cos", "it: this is no whole pickle");
    CHECK_SCAN("\x80\x04\x8c\x02os\x8c\x05mkdirNNN\x93.", "it: the pickle calls something whose name it computes");
    for (size_t len = 0; len < 27; len++) /* never past the end */
        (void)scanned(cut, len);
    for (int op = 0; op < 256; op++) {
        char one = (char)op;
        (void)scanned(&one, 1);
    }
}

/* ---- memory ---- */

static void test_no_memory(void)
{
    static const char *const paths[] = {SAMPLES "current/linear.pt2", SAMPLES "old_layout/cond___full.pt2",
                                        HOSTILE "E20_layoutB_code.pt2", HOSTILE "J12_leading_zero.pt2",
                                        HOSTILE "E29_other_dtype.pt2"};
    test_memory m;

    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        bytes b = read_file(paths[i]);
        bool failed = true;
        for (size_t n = 0; failed; n++) {
            memory_init(&m);
            memory_fail(&m, n, true);
            opened o = open_bytes(b, NULL, &m.allocator);
            failed = m.calls > n;
            CHECK(!failed || o.report.no_memory || o.program); /* without the memory to give some back it goes on */
            clear(&o);
            CHECK_INT(m.blocks, 0);
            CHECK(n < 2000);
        }
        free(b.data);
    }
}

/* ---- paths ---- */

static int keep_path(void *ctx, const pt2_path *path)
{
    fe_buffer *b = ctx;

    b->len = 0;
    pt2_path_text(path, b);
    fe_buffer_char(b, '\0');
    return 7;
}

static void test_paths(void)
{
    pt2_origin origins[] = {
        {.source = PT2_FROM_NOTHING},           {.source = PT2_FROM_INPUT, .index = 2},
        {.source = PT2_FROM_NODE, .index = 3},  {.source = PT2_FROM_RESULT, .index = 3, .output = 1},
        {.source = PT2_FROM_GRAPH, .index = 4}, {.source = PT2_FROM_OUTPUT}};
    pt2_graph root = {.origins = origins, .origin_count = 6},
              sub = {.parent = &root, .parent_node = 4, .parent_input = 1, .origins = origins, .origin_count = 6},
              inner = {.parent = &sub, .parent_node = 0, .parent_input = 2};
    static const char *const wants[] = {"",          ".inputs[2]", ".nodes[3]", ".nodes[3].outputs[1]",
                                        ".nodes[4]", ".outputs",   ""};
    fe_buffer b;
    char want[200];

    fe_buffer_init(&b, &fe_libc_allocator);
    for (uint32_t id = 0; id < 7; id++) {
        CHECK_INT(pt2_node_path(&root, id, keep_path, &b), 7);
        snprintf(want, sizeof want, "$.graph_module.graph%s", wants[id]);
        CHECK_TEXT(b.data, want);
    }
    CHECK_INT(pt2_node_path(&sub, 1, keep_path, &b), 7);
    CHECK_TEXT(b.data, "$.graph_module.graph.nodes[4].inputs[1].arg.as_graph.graph.inputs[2]");
    CHECK_INT(pt2_graph_path(&inner, keep_path, &b), 7);
    CHECK_TEXT(b.data,
               "$.graph_module.graph.nodes[4].inputs[1].arg.as_graph.graph.nodes[0].inputs[2].arg.as_graph.graph");
    fe_buffer_clear(&b);
}

int main(void)
{
    RUN(test_samples);
    RUN(test_payload_table);
    RUN(test_hostile);
    RUN(test_flips);
    RUN(test_budget);
    RUN(test_models);
    RUN(test_all_faults);
    RUN(test_good_configs);
    RUN(test_meta_device);
    RUN(test_bad_configs);
    RUN(test_pickle_scan);
    RUN(test_no_memory);
    RUN(test_paths);
    return 0;
}
