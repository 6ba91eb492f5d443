/* open.c - from an archive to the documents of one model: finds the layout, checks the marker entries, parses and
 * checks the documents, makes the payload tables.
 *
 * Entries by layout, below the top folder of the archive, which layout C does not have:
 *
 *  A models/M.json, data/weights/M_weights_config.json, data/constants/M_constants_config.json, data/sample_inputs/M.pt
 *  B models/M.json, data/weights/M.pt, data/constants/M.pt, data/sample_inputs/M.pt
 *  C serialized_exported_program.json, serialized_{state_dict,constants,example_inputs}.pt, version
 *
 * Checking goes on after a fault where the next check does not need what is wrong, so that a report tells all.
 */
#include "open.h"

#include <stdio.h>

#define FLAT_PROGRAM "serialized_exported_program.json"
#define MODELS "models/"
#define EXTRA "extra/"
#define NEWEST_MINOR 20                 /* of the schema versions 8.N that are known here */
#define MARKER_BYTES 64                 /* a marker entry is a few bytes; more are not looked at */
#define EXTRA_BYTES ((uint64_t)1 << 20) /* of an extra file whose text is looked at */
#define SHOWN_ENTRIES 16                /* unknown entries that are named */

typedef struct {
    pt2_program *program;
    pt2_archive *archive;
    pt2_report *report;
    fe_buffer name;     /* of an entry that is looked up */
    uint64_t looked_at; /* bytes of extra files that were read */
} opening;

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* ---- models ---- */

/* The name in models/NAME.json. NULL: the entry is no model. */
static const char *model_name(const pt2_entry *e, size_t *len)
{
    size_t head = strlen(MODELS), all = strlen(e->name), tail = strlen(".json");

    if (!starts(e->name, MODELS) || all <= head + tail || strcmp(e->name + all - tail, ".json") != 0)
        return NULL;
    *len = all - head - tail;
    return e->name + head;
}

int pt2_each_model(const pt2_archive *archive, pt2_model_visitor visit, void *ctx)
{
    uint32_t count;
    const pt2_entry *entries = pt2_archive_entries(archive, &count);

    if (pt2_archive_find(archive, FLAT_PROGRAM))
        return visit(ctx, "model", strlen("model"));
    for (uint32_t i = 0; i < count; i++) {
        size_t len;
        const char *name = model_name(&entries[i], &len);
        int result = name ? visit(ctx, name, len) : 0;
        if (result)
            return result;
    }
    return 0;
}

typedef struct {
    const char *first;
    size_t first_len, count;
    bool has_model; /* one called "model" */
    const char *wanted;
    bool has_wanted;
    fe_buffer *names; /* of all, to be shown */
} model_list;

static int see_model(void *ctx, const char *name, size_t len)
{
    model_list *list = ctx;

    if (!list->count++) {
        list->first = name;
        list->first_len = len;
    }
    list->has_model |= len == 5 && memcmp(name, "model", 5) == 0;
    list->has_wanted |= list->wanted && len == strlen(list->wanted) && memcmp(name, list->wanted, len) == 0;
    fe_buffer_text(list->names, list->count > 1 ? ", '" : "'");
    fe_buffer_add(list->names, name, len);
    fe_buffer_char(list->names, '\'');
    return 0;
}

/* ---- entries ---- */

/* Join three texts to the name of an entry. NULL: no memory, noted. Good until the next call. */
static const char *join(opening *o, const char *head, const char *middle, const char *tail)
{
    o->name.len = 0;
    fe_buffer_text(&o->name, head);
    fe_buffer_text(&o->name, middle);
    fe_buffer_text(&o->name, tail);
    fe_buffer_char(&o->name, '\0');
    if (!o->name.failed)
        return o->name.data;
    (void)pt2_no_memory(o->report);
    return NULL;
}

static const pt2_entry *find(opening *o, const char *head, const char *middle, const char *tail)
{
    const char *name = join(o, head, middle, tail);
    const pt2_entry *e = name ? pt2_archive_find(o->archive, name) : NULL;

    return e && !e->is_folder ? e : NULL;
}

/* As find; a missing entry is an error. */
static const pt2_entry *need(opening *o, const char *head, const char *middle, const char *tail)
{
    const pt2_entry *e = find(o, head, middle, tail);

    if (!e && !o->report->no_memory)
        (void)pt2_fail(o->report, PT2_MISSING_ENTRY, o->name.data, NULL, "the entry is missing");
    return e;
}

/* Read a marker entry: text gets its first bytes and a NUL. false: noted that it can't be read. */
static bool read_marker(opening *o, const pt2_entry *e, char text[MARKER_BYTES + 1], size_t *len)
{
    char *data;

    if (e->size > MARKER_BYTES) {
        (void)pt2_fail(o->report, PT2_VERSION, e->name, NULL, "%llu bytes are too many for a marker",
                       (unsigned long long)e->size);
        return false;
    }
    if (pt2_archive_read(o->archive, e, MARKER_BYTES, 0, &data, len, o->report) < 0)
        return false;
    if (*len)
        memcpy(text, data, *len);
    text[*len] = '\0';
    fe_resize(o->program->allocator, data, 0);
    return true;
}

/* ---- marker entries ---- */

static void check_marker(opening *o, const char *name, const char *expected)
{
    const pt2_entry *e = need(o, name, "", "");
    char text[MARKER_BYTES + 1];
    size_t len;

    if (!e || !read_marker(o, e, text, &len))
        return;
    if (len != strlen(expected) || memcmp(text, expected, len) != 0)
        (void)pt2_fail(o->report, PT2_VERSION, e->name, NULL, "'%s' is expected, not '%s'", expected, text);
}

/* A whole text of digits, perhaps with a newline, as a small number; -1: it is none. */
static int small_number(const char *text, size_t len)
{
    int value = 0;

    if (len && text[len - 1] == '\n')
        len--;
    if (!len || len > 6)
        return -1;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        value = value * 10 + (text[i] - '0');
    }
    return value;
}

/* Version of the zip container, caffe2/serialize/versions.h: torch reads 1 to 10. */
static void check_container_version(opening *o)
{
    const pt2_entry *e = find(o, ".data/version", "", "");
    char text[MARKER_BYTES + 1];
    size_t len;
    int version;

    if (!e)
        e = find(o, "version", "", "");
    if (!e) {
        (void)need(o, ".data/version", "", "");
        return;
    }
    if (!read_marker(o, e, text, &len))
        return;
    version = small_number(text, len);
    if (version < 1 || version > 10)
        (void)pt2_fail(o->report, PT2_VERSION, e->name, NULL, "a version from 1 to 10 is expected, not '%s'", text);
}

static void check_byteorder(opening *o)
{
    const pt2_entry *e = find(o, "byteorder", "", "");
    char text[MARKER_BYTES + 1];
    size_t len;

    if (!e || !read_marker(o, e, text, &len) || strcmp(text, "little") == 0)
        return;
    if (strcmp(text, "big") == 0)
        (void)pt2_fail(o->report, PT2_UNSUPPORTED, e->name, NULL, "weights of big-endian machines can't be read");
    else
        (void)pt2_fail(o->report, PT2_VERSION, e->name, NULL, "'little' is expected, not '%s'", text);
}

/* Layout C: the schema version as text, 8.20. */
static void check_flat_version(opening *o)
{
    const pt2_entry *e = need(o, "version", "", "");
    char text[MARKER_BYTES + 1];
    const char *dot;
    size_t len;

    if (!e || !read_marker(o, e, text, &len))
        return;
    dot = strchr(text, '.');
    if (!dot || small_number(text, (size_t)(dot - text)) != 8 || small_number(dot + 1, strlen(dot + 1)) < 0)
        (void)pt2_fail(o->report, PT2_VERSION, e->name, NULL, "schema version 8.N is expected, not '%s'", text);
}

/* ---- entries that nobody asks for ---- */

static bool is_known(const pt2_entry *e)
{
    static const char *const folders[] = {"data/weights/",
                                          "data/constants/",
                                          "data/sample_inputs/",
                                          "data/aotinductor/",
                                          "data/executorch/",
                                          "data/mtia",
                                          "xl_model_weights/",
                                          MODELS,
                                          EXTRA,
                                          ".data/"};
    static const char *const names[] = {"archive_format", "archive_version", "byteorder",
                                        "version",        ".format_version", ".storage_alignment"};

    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        if (starts(e->name, folders[i]))
            return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(e->name, names[i]) == 0)
            return true;
    return e->is_folder;
}

static bool is_known_flat(const pt2_entry *e)
{
    static const char *const names[] = {FLAT_PROGRAM,
                                        "serialized_state_dict.pt",
                                        "serialized_constants.pt",
                                        "serialized_state_dict.json",
                                        "serialized_constants.json",
                                        "serialized_example_inputs.pt",
                                        "version"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(e->name, names[i]) == 0)
            return true;
    return starts(e->name, "extra_files/");
}

/* A reader of UTF-8 in pieces. */
typedef struct {
    uint32_t code;
    unsigned more, len; /* bytes to come of this character; all its bytes */
    bool bad;
} utf8_state;

static void utf8_byte(utf8_state *u, unsigned char c)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};

    if (!u->more) {
        if (c < 0x80)
            return;
        u->len = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
        u->bad |= c < 0xc2 || c > 0xf4;
        u->more = u->len - 1;
        u->code = c & (0xffu >> (u->len + 1));
        return;
    }
    u->bad |= (c & 0xc0) != 0x80;
    u->code = u->code << 6 | (c & 0x3f);
    if (--u->more == 0)
        u->bad |= u->code < least[u->len] || u->code > 0x10ffff || (u->code >= 0xd800 && u->code < 0xe000);
}

static int see_utf8(void *ctx, const void *data, size_t len)
{
    const unsigned char *bytes = data;

    for (size_t i = 0; i < len; i++)
        utf8_byte(ctx, bytes[i]);
    return 0;
}

/* torch decodes all extra files, and fails for one that is no text. */
static void check_extra(opening *o, const pt2_entry *e)
{
    uint64_t limit = o->report->limits->checked_bytes;
    utf8_state u = {.bad = false};

    if (e->is_folder || e->size > EXTRA_BYTES || (limit && o->looked_at > limit))
        return;
    o->looked_at += e->size;
    if (pt2_archive_stream(o->archive, e, see_utf8, &u, o->report) < 0)
        return;
    if (u.bad || u.more)
        pt2_warn(o->report, PT2_UNKNOWN_ENTRY, e->name, NULL, "%s is not UTF-8: torch can't load it", e->name);
}

static void check_entries(opening *o, bool flat)
{
    uint32_t count, unknown = 0;
    const pt2_entry *entries = pt2_archive_entries(o->archive, &count);
    size_t len;

    for (uint32_t i = 0; i < count; i++) {
        const pt2_entry *e = &entries[i];
        if (!flat && starts(e->name, MODELS) && !model_name(e, &len))
            (void)pt2_fail(o->report, PT2_LAYOUT, e->name, NULL,
                           "what is below models/ is taken for a model, but this is no NAME.json");
        if (starts(e->name, flat ? "extra_files/" : EXTRA))
            check_extra(o, e);
        if ((flat ? is_known_flat(e) : is_known(e)) || ++unknown > SHOWN_ENTRIES)
            continue;
        pt2_warn(o->report, PT2_UNKNOWN_ENTRY, e->name, NULL, "unknown entry");
    }
    if (unknown > SHOWN_ENTRIES)
        pt2_warn(o->report, PT2_UNKNOWN_ENTRY, "", NULL, "unknown entry: %u more", unknown - SHOWN_ENTRIES);
}

/* ---- documents ---- */

static int read_text(pt2_archive *archive, const pt2_entry *e, char **text, size_t *len, pt2_report *r)
{
    return pt2_archive_read(archive, e, r->limits->json_bytes, PT2_JSON_PADDING, text, len, r);
}

/* Parsing changed the text, so it is read again to tell where it is wrong. */
static int explain(pt2_archive *archive, const pt2_entry *e, const fe_allocator *a, pt2_report *r)
{
    char *text;
    size_t len;

    if (read_text(archive, e, &text, &len, r) < 0)
        return -1;
    (void)pt2_json_explain(text, len, NULL, r);
    fe_resize(a, text, 0);
    return -1;
}

/* Read an entry, parse it and check it against the schema. */
static int open_document(pt2_json *j, pt2_archive *archive, const pt2_entry *e, pt2_root_type type,
                         const fe_allocator *a, pt2_report *r)
{
    const char *outer = r->entry;
    char *text;
    size_t len;
    int result;

    *j = (pt2_json){.allocator = a};
    r->entry = e->name;
    result = read_text(archive, e, &text, &len, r);
    if (result == 0)
        result = pt2_json_parse_quietly(j, text, len, a, NULL, r);
    if (result > 0)
        result = explain(archive, e, a, r);
    if (result == 0)
        result = pt2_schema_check(yyjson_doc_get_root(j->doc), type, NULL, r);
    if (result < 0)
        pt2_json_clear(j); /* there is a document only when it can be relied on */
    r->entry = outer;
    return result;
}

/* Major version 8; 0.0 is what torch takes for "not told". */
static void check_schema_version(opening *o)
{
    yyjson_val *version = yyjson_obj_get(yyjson_doc_get_root(o->program->json.doc), "schema_version");
    pt2_path root = {.parent = NULL}, outer = {.parent = &root, .key = "schema_version", .key_len = 14};
    pt2_path path = {.parent = &outer, .key = "major", .key_len = 5};
    int64_t major = 0, minor = 0;

    (void)pt2_json_int(yyjson_obj_get(version, "major"), &major);
    (void)pt2_json_int(yyjson_obj_get(version, "minor"), &minor);
    if (major == 8 && minor >= 0 && minor <= NEWEST_MINOR)
        return;
    if (major == 8 || (!major && !minor))
        pt2_warn(o->report, PT2_VERSION, o->program->model_entry->name, &path,
                 "schema version %lld.%lld is read as 8.%d", (long long)major, (long long)minor, NEWEST_MINOR);
    else
        (void)pt2_fail(o->report, PT2_VERSION, o->program->model_entry->name, &path,
                       "schema version %lld.%lld is not supported, only 8.N", (long long)major, (long long)minor);
}

static void open_model(opening *o)
{
    pt2_program *p = o->program;

    if (open_document(&p->json, o->archive, p->model_entry, PT2_TYPE_EXPORTED_PROGRAM, p->allocator, o->report) == 0)
        check_schema_version(o);
}

/* ---- layouts A and B ---- */

/* An archive that has models, but none of the name that was asked for, or several and no name was given. */
static int no_such_model(opening *o, const model_list *list)
{
    const char *entry = join(o, MODELS, list->wanted ? list->wanted : "model", ".json");

    fe_buffer_char(list->names, '\0');
    if (!entry || list->names->failed)
        return pt2_no_memory(o->report);
    if (!list->wanted)
        return pt2_fail(o->report, PT2_MISSING_ENTRY, entry, NULL,
                        "the archive has %zu models, none called 'model': name one of %s by model= or --model",
                        list->count, list->names->data);
    return pt2_fail(o->report, PT2_MISSING_ENTRY, entry, NULL, "the archive has no model '%s'; it has %s", list->wanted,
                    list->names->data);
}

/* Which of the archive's models it is. */
static int choose_model(opening *o, const model_list *list, const char **name, size_t *len)
{
    uint32_t count;

    (void)pt2_archive_entries(o->archive, &count);
    if (!list->count && !count)
        return pt2_fail(o->report, PT2_MISSING_ENTRY, MODELS, NULL, "the archive is empty");
    if (list->wanted && list->count && !list->has_wanted)
        return no_such_model(o, list);
    *name = list->wanted ? list->wanted : "model";
    *len = strlen(*name);
    if (list->wanted || list->has_model || !list->count)
        return 0;
    if (list->count > 1)
        return no_such_model(o, list);
    *name = list->first;
    *len = list->first_len;
    return 0;
}

static int set_model(opening *o, const char *name, size_t len)
{
    char *copy = fe_arena_take(&o->program->arena, len + 1);

    if (!copy)
        return pt2_no_memory(o->report);
    memcpy(copy, name, len);
    copy[len] = '\0';
    o->program->model = copy;
    return 0;
}

/* Choose the model and set its name. model NULL: the one called "model", or the only one. */
static int find_model(opening *o, const char *model)
{
    fe_buffer names;
    model_list list = {.wanted = model, .names = &names};
    const char *name;
    size_t len;

    fe_buffer_init(&names, o->program->allocator);
    (void)pt2_each_model(o->archive, see_model, &list);
    int result = choose_model(o, &list, &name, &len) < 0 ? -1 : set_model(o, name, len);
    fe_buffer_clear(&names);
    return result;
}

static int scan_pickle(opening *o, const pt2_entry *e, const char *what)
{
    return pt2_pickle_scan_entry(o->archive, e, false, what, o->program->allocator, o->report);
}

/* Weights or constants: their config, or the pickle of layout B. */
static void open_payloads(opening *o, pt2_payloads *payloads, const char *folder, const char *config, const char *what)
{
    pt2_program *p = o->program;
    const pt2_entry *pickle = find(o, folder, p->model, ".pt");

    payloads->entry = find(o, folder, p->model, config);
    if (payloads->entry && pickle)
        pt2_warn(o->report, PT2_LAYOUT, pickle->name, NULL,
                 "both layouts present: '%s' is read here, torch would unpickle this entry", payloads->entry->name);
    if (pickle && scan_pickle(o, pickle, what) < 0)
        return;
    if (payloads->entry) {
        if (open_document(&payloads->config, o->archive, payloads->entry, PT2_TYPE_PAYLOAD_CONFIG, p->allocator,
                          o->report) < 0 ||
            pt2_payloads_read(p, payloads, o->report) < 0)
            payloads->count = 0; /* the report says why */
        return;
    }
    payloads->pickle = pickle;
    if (pickle)
        p->layout = PT2_LAYOUT_B;
    else
        (void)need(o, folder, p->model, config);
}

static void open_markers(opening *o)
{
    check_marker(o, "archive_format", "pt2");
    check_marker(o, "archive_version", "0");
    check_container_version(o);
    check_byteorder(o);
}

static void open_both_payloads(opening *o)
{
    open_payloads(o, &o->program->weights, "data/weights/", "_weights_config.json", "pickled weights");
    open_payloads(o, &o->program->constants, "data/constants/", "_constants_config.json", "pickled constants");
}

/* An archive of something else, of which the other entries need not be missed one by one. */
static bool is_foreign(opening *o)
{
    if (find(o, "archive_format", "", "") || find(o, MODELS, o->program->model, ".json"))
        return false;
    const char *whose = find(o, "data.pkl", "", "") ? "; torch.save or torch.jit.save has written it" : "";
    const char *entry = join(o, MODELS, o->program->model, ".json");
    if (entry)
        (void)pt2_fail(o->report, PT2_MISSING_ENTRY, entry, NULL,
                       "the entry is missing, and so is archive_format: this is a zip archive, but no .pt2 file%s",
                       whose);
    return true;
}

static void open_foldered(opening *o, const char *model)
{
    pt2_program *p = o->program;

    if (find_model(o, model) < 0 || is_foreign(o))
        return;
    open_markers(o);
    check_entries(o, false);
    p->model_entry = need(o, MODELS, p->model, ".json");
    if (p->model_entry)
        open_model(o);
    open_both_payloads(o);
    p->sample_inputs = need(o, "data/sample_inputs/", p->model, ".pt");
    if (p->sample_inputs)
        (void)scan_pickle(o, p->sample_inputs, "sample inputs");
}

/* ---- layout C ---- */

/* A pickle of layout C, under its name or the older one that ends in .json. */
static const pt2_entry *flat_pickle(opening *o, const char *stem, const char *what)
{
    const pt2_entry *e = find(o, stem, ".pt", "");

    if (!e && (e = find(o, stem, ".json", "")))
        pt2_warn(o->report, PT2_LAYOUT, e->name, NULL, "an old name of '%s.pt'", stem);
    if (!e)
        e = need(o, stem, ".pt", "");
    if (e)
        (void)scan_pickle(o, e, what);
    return e;
}

static void open_flat_payloads(opening *o)
{
    o->program->weights.pickle = flat_pickle(o, "serialized_state_dict", "pickled weights");
    o->program->constants.pickle = flat_pickle(o, "serialized_constants", "pickled constants");
}

/* The one model that layout C has. */
static int find_flat_model(opening *o, const char *model)
{
    o->program->layout = PT2_LAYOUT_C;
    o->program->model = "model";
    if (!model || strcmp(model, "model") == 0)
        return 0;
    return pt2_fail(o->report, PT2_MISSING_ENTRY, join(o, MODELS, model, ".json"), NULL,
                    "an archive of the old layout has one model, called 'model'");
}

static void open_flat(opening *o, const char *model)
{
    pt2_program *p = o->program;

    if (find_flat_model(o, model) < 0)
        return;
    check_flat_version(o);
    check_entries(o, true);
    p->model_entry = need(o, FLAT_PROGRAM, "", "");
    if (p->model_entry)
        open_model(o);
    open_flat_payloads(o);
    p->sample_inputs = flat_pickle(o, "serialized_example_inputs", "sample inputs");
}

/* ---- the whole ---- */

static void open_payloads_only(opening *o, const char *model)
{
    if (pt2_archive_find(o->archive, FLAT_PROGRAM)) {
        if (find_flat_model(o, model) == 0)
            open_flat_payloads(o);
    } else if (find_model(o, model) == 0) {
        open_markers(o);
        open_both_payloads(o);
    }
}

static void open_all(opening *o, const char *model)
{
    if (pt2_archive_find(o->archive, FLAT_PROGRAM))
        open_flat(o, model);
    else
        open_foldered(o, model);
}

static pt2_program *open_with(void (*open)(opening *o, const char *model), pt2_archive *archive, const char *model,
                              fe_exprs *exprs, const fe_allocator *a, pt2_report *r)
{
    pt2_program *p = fe_resize(a, NULL, sizeof *p);
    opening o = {.program = p, .archive = archive, .report = r};
    uint32_t errors = r->errors;

    if (!p) {
        (void)pt2_no_memory(r);
        return NULL;
    }
    *p = (pt2_program){.allocator = a, .archive = archive, .exprs = exprs};
    fe_arena_init(&p->arena, a);
    fe_buffer_init(&o.name, a);
    open(&o, model);
    fe_buffer_clear(&o.name);
    if (r->errors == errors && !r->no_memory)
        return p;
    pt2_program_free(p);
    return NULL;
}

pt2_program *pt2_program_open(pt2_archive *archive, const char *model, fe_exprs *exprs, const fe_allocator *a,
                              pt2_report *r)
{
    return open_with(open_all, archive, model, exprs, a, r);
}

pt2_program *pt2_program_open_payloads(pt2_archive *archive, const char *model, const fe_allocator *a, pt2_report *r)
{
    return open_with(open_payloads_only, archive, model, NULL, a, r);
}

static void free_cores(pt2_graph *g)
{
    if (!g)
        return;
    for (uint32_t i = 0; i < g->subgraph_count; i++)
        free_cores(g->subgraphs[i]); /* as deep as graphs are nested */
    if (g->core)
        fe_graph_free(g->core);
    g->core = NULL;
}

void pt2_program_free(pt2_program *p)
{
    const fe_allocator *a;

    if (!p)
        return;
    a = p->allocator;
    free_cores(p->root);
    pt2_json_clear(&p->json);
    pt2_json_clear(&p->weights.config);
    pt2_json_clear(&p->constants.config);
    fe_arena_clear(&p->arena);
    fe_resize(a, p, 0);
}

/* ---- paths ---- */

/* A call that waits for the outer part of its path. */
typedef struct {
    const pt2_graph *graph;
    pt2_with_path call;
    void *ctx;
} subgraph_call;

typedef struct {
    const char *key;
    uint32_t index;
    bool is_index;
} step;

/* Lengthen a path by steps and call with it. */
static int call_below(const pt2_path *path, const step *steps, size_t count, pt2_with_path call, void *ctx)
{
    pt2_path links[8];

    for (size_t i = 0; i < count; i++) {
        links[i] = (pt2_path){.parent = path, .index = steps[i].index};
        if (!steps[i].is_index) {
            links[i].key = steps[i].key;
            links[i].key_len = strlen(steps[i].key);
        }
        path = &links[i];
    }
    return call(ctx, path);
}

static int with_parent_path(void *ctx, const pt2_path *path)
{
    const subgraph_call *c = ctx;
    const step steps[] = {{.key = "nodes"},  {.index = c->graph->parent_node, .is_index = true},
                          {.key = "inputs"}, {.index = c->graph->parent_input, .is_index = true},
                          {.key = "arg"},    {.key = "as_graph"},
                          {.key = "graph"}};

    return call_below(path, steps, sizeof steps / sizeof *steps, c->call, c->ctx);
}

int pt2_graph_path(const pt2_graph *g, pt2_with_path call, void *ctx)
{
    static const step steps[] = {{.key = "graph_module"}, {.key = "graph"}};
    pt2_path root = {.parent = NULL};
    subgraph_call outer = {g, call, ctx};

    if (g->parent)
        return pt2_graph_path(g->parent, with_parent_path, &outer); /* as deep as graphs are nested */
    return call_below(&root, steps, 2, call, ctx);
}

typedef struct {
    const pt2_origin *origin;
    pt2_with_path call;
    void *ctx;
} node_call;

static int with_graph_path(void *ctx, const pt2_path *path)
{
    const node_call *c = ctx;
    step steps[4] = {{.key = "nodes"}, {.index = c->origin->index, .is_index = true}};
    size_t count = 2;

    switch ((pt2_source)c->origin->source) {
    case PT2_FROM_INPUT:
        steps[0].key = "inputs";
        break;
    case PT2_FROM_OUTPUT:
        steps[0].key = "outputs";
        count = 1;
        break;
    case PT2_FROM_RESULT:
        steps[2].key = "outputs";
        steps[3] = (step){.index = c->origin->output, .is_index = true};
        count = 4;
        break;
    case PT2_FROM_NODE:
    case PT2_FROM_GRAPH:
        break;
    case PT2_FROM_NOTHING:
        count = 0;
    }
    return call_below(path, steps, count, c->call, c->ctx);
}

int pt2_node_path(const pt2_graph *g, uint32_t id, pt2_with_path call, void *ctx)
{
    static const pt2_origin nothing = {.source = PT2_FROM_NOTHING};
    node_call c = {id < g->origin_count ? &g->origins[id] : &nothing, call, ctx};

    return pt2_graph_path(g, with_graph_path, &c);
}
