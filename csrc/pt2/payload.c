/* payload.c - the tables of weights and constants: what a config says of each is held against the record that it names.
 *
 * All numbers come from the file. A view is right when sizes, strides and offset multiply and add without overflow, and
 * the last element they reach is inside the record. Sizes and strides are kept in elements, as the config has them.
 */
#include "open.h"

#include <stdio.h>

#define MAX_DIMS 64    /* torch has no more for most of its operators */
#define SHOWN_NAME 200 /* bytes of a record's name in messages */

/* What a record was first used for: 0, a dtype, or PICKLED. Two uses must agree. */
#define PICKLED 127

#define BOOL 12 /* ScalarType */

typedef struct {
    pt2_program *program;
    pt2_payloads *payloads;
    pt2_report *report;
    const pt2_entry *entries;
    uint8_t *uses; /* by entry */
    const char *folder;
    bool constants;
    uint64_t looked_at; /* bytes of records that were read */
    unsigned asked;     /* how often the graph was asked for a dtype */
    fe_buffer name;     /* of the record that is looked up */
} reader;

/* ---- names of records ---- */

/* Is the name below its folder, whoever makes a path of it? */
static bool is_safe(const char *name, size_t len)
{
    size_t start = 0;

    if (!len || (len >= 2 && name[1] == ':'))
        return false;
    for (size_t i = 0; i <= len; i++) {
        if (i < len && ((unsigned char)name[i] < 0x20 || name[i] == 0x7f || name[i] == '\\'))
            return false;
        if (i < len && name[i] != '/')
            continue;
        size_t part = i - start;
        if (!part || (part == 1 && name[start] == '.') || (part == 2 && name[start] == '.' && name[start + 1] == '.'))
            return false;
        start = i + 1;
    }
    return true;
}

static int unsafe_record(reader *d, const char *name, size_t len, const pt2_path *path)
{
    char shown[SHOWN_NAME + 8];
    size_t at = 0;

    for (size_t i = 0; i < len && at < SHOWN_NAME; i++) { /* a NUL would end the message */
        if (name[i])
            shown[at++] = name[i];
        else
            at += (size_t)snprintf(shown + at, sizeof shown - at, "\\x00");
    }
    shown[at] = '\0';
    return pt2_fail(d->report, PT2_UNSAFE_NAME, NULL, path, "'%s' is no safe name of a record", shown);
}

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool ends(const char *text, const char *with)
{
    size_t len = strlen(text), end = strlen(with);

    return len >= end && memcmp(text + len - end, with, end) == 0;
}

/* The entry of a record; NULL: noted why not. */
static const pt2_entry *find_record(reader *d, yyjson_val *path_name, const pt2_path *path)
{
    const char *name = unsafe_yyjson_get_str(path_name);
    size_t len = unsafe_yyjson_get_len(path_name);
    const pt2_entry *e;

    if (!is_safe(name, len)) {
        (void)unsafe_record(d, name, len, path);
        return NULL;
    }
    d->name.len = 0;
    fe_buffer_text(&d->name, d->folder);
    fe_buffer_add(&d->name, name, len + 1);
    if (d->name.failed) {
        (void)pt2_no_memory(d->report);
        return NULL;
    }
    e = pt2_archive_find(d->program->archive, d->name.data);
    if (!e || e->is_folder) {
        /* The config may be wrong, or the archive. */
        (void)pt2_fail(d->report, PT2_PAYLOAD, NULL, path, "there is no record '%s'", d->name.data);
        (void)pt2_fail(d->report, PT2_MISSING_ENTRY, d->name.data, NULL, "the record is missing that the config names");
        return NULL;
    }
    if (ends(name, "_config.json")) {
        (void)pt2_fail(d->report, PT2_PAYLOAD, NULL, path, "'%s' is a document, no record", name);
        return NULL;
    }
    return e;
}

/* Of a constant the name of the record tells what it is. -1: noted that it tells nothing. */
static int find_kind(reader *d, const char *record, bool is_pickled, const pt2_path *path)
{
    if (!d->constants || starts(record, "tensor_"))
        return is_pickled ? PT2_PAYLOAD_PICKLED : PT2_PAYLOAD_TENSOR;
    if (starts(record, "custom_obj_"))
        return PT2_PAYLOAD_CUSTOM;
    if (starts(record, "opaque_obj_"))
        return PT2_PAYLOAD_OPAQUE;
    return pt2_fail(d->report, PT2_PAYLOAD, NULL, path,
                    "the record of a constant is called tensor_N, custom_obj_N or opaque_obj_N, not '%s'", record);
}

/* ---- views ---- */

/* The int of a SymInt of a config, where expressions have no meaning. */
static int take_int(reader *d, yyjson_val *v, const pt2_path *path, int64_t *out)
{
    yyjson_val *value;
    const char *tag = pt2_tag(v, &value);

    if (strcmp(tag, "as_int") != 0)
        return pt2_fail(d->report, PT2_PAYLOAD, NULL, path, "a plain integer is expected, not %s", tag);
    if (!pt2_json_int(value, out))
        return pt2_fail(d->report, PT2_PAYLOAD, NULL, path, "a plain integer is expected");
    return 0;
}

static int take_ints(reader *d, yyjson_val *list, const pt2_path *path, uint32_t *count, const int64_t **out)
{
    size_t len = unsafe_yyjson_get_len(list);
    yyjson_val *item = unsafe_yyjson_get_first(list);
    pt2_path child = {.parent = path};
    int64_t *values;

    *count = 0;
    if (len > MAX_DIMS)
        return pt2_fail(d->report, PT2_PAYLOAD, NULL, path, "a tensor of %zu dimensions; %d are possible", len,
                        MAX_DIMS);
    values = fe_arena_take(&d->program->arena, (len ? len : 1) * sizeof *values);
    if (!values)
        return pt2_no_memory(d->report);
    for (; child.index < len; child.index++, item = unsafe_yyjson_get_next(item)) {
        if (take_int(d, item, &child, &values[child.index]) < 0)
            return -1;
        if (values[child.index] < 0)
            return pt2_fail(d->report, PT2_PAYLOAD, NULL, path, "%lld is negative", (long long)values[child.index]);
    }
    *count = (uint32_t)len;
    *out = values;
    return 0;
}

/* Does the view reach nothing? Its sizes must multiply without overflow, an empty dimension left out. */
static int check_sizes(reader *d, const pt2_payload *p, const pt2_path *path, bool *empty)
{
    int64_t count = 1, bytes;

    *empty = false;
    for (uint32_t i = 0; i < p->ndim; i++) {
        if (p->sizes[i] == 0)
            *empty = true;
        else if (__builtin_mul_overflow(count, p->sizes[i], &count))
            return pt2_fail(d->report, PT2_PAYLOAD, NULL, path, "the number of elements does not fit 64 bits");
    }
    if (__builtin_mul_overflow(count, (int64_t)pt2_dtype_size(p->dtype), &bytes))
        return pt2_fail(d->report, PT2_PAYLOAD, NULL, path, "the number of bytes does not fit 64 bits");
    return 0;
}

/* How many elements of the record the view needs, from its start. */
static int find_extent(reader *d, const pt2_payload *p, const pt2_path *path, int64_t *extent)
{
    int64_t last = p->offset, step, bytes;

    for (uint32_t i = 0; i < p->ndim; i++)
        if (__builtin_mul_overflow(p->sizes[i] - 1, p->strides[i], &step) || __builtin_add_overflow(last, step, &last))
            return pt2_fail(d->report, PT2_PAYLOAD, NULL, path, "the view reaches farther than 64 bits can tell");
    if (__builtin_add_overflow(last, 1, extent) ||
        __builtin_mul_overflow(*extent, (int64_t)pt2_dtype_size(p->dtype), &bytes))
        return pt2_fail(d->report, PT2_PAYLOAD, NULL, path, "the view reaches farther than 64 bits can tell");
    return 0;
}

/* Paths of the parts of a tensor_meta. */
typedef struct {
    pt2_path meta, dtype, sizes, strides, offset, layout;
} meta_paths;

#define PART(paths, key_) {.parent = &(paths)->meta, .key = "" key_, .key_len = sizeof(key_) - 1}

static void init_paths(meta_paths *m, const pt2_path *item)
{
    m->meta = (pt2_path){.parent = item, .key = "tensor_meta", .key_len = 11};
    m->dtype = (pt2_path)PART(m, "dtype");
    m->sizes = (pt2_path)PART(m, "sizes");
    m->strides = (pt2_path)PART(m, "strides");
    m->offset = (pt2_path)PART(m, "storage_offset");
    m->layout = (pt2_path)PART(m, "layout");
}

#define ASKED_MAX 16 /* each search goes through the whole signature */

/* The dtype that the graph has for a tensor, to tell what is wrong with one that does not fit; 0: not known. */
static int64_t find_graph_dtype(reader *d, const pt2_payload *p)
{
    static const char *const kinds[][2] = {
        {"parameter", "parameter_name"}, {"buffer", "buffer_name"}, {"tensor_constant", "tensor_constant_name"}};
    yyjson_val *module = yyjson_obj_get(yyjson_doc_get_root(d->program->json.doc), "graph_module"), *spec;
    yyjson_val *values = yyjson_obj_get(yyjson_obj_get(module, "graph"), "tensor_values");
    yyjson_val *specs = yyjson_obj_get(yyjson_obj_get(module, "signature"), "input_specs");
    size_t at, count;
    int64_t dtype = 0;

    if (d->asked++ >= ASKED_MAX)
        return 0;
    yyjson_arr_foreach(specs, at, count, spec)
    {
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
            yyjson_val *input = yyjson_obj_get(spec, kinds[i][0]), *name;
            if (!yyjson_equals_strn(yyjson_obj_get(input, kinds[i][1]), p->name, p->name_len))
                continue;
            name = yyjson_obj_get(yyjson_obj_get(input, "arg"), "name");
            name = yyjson_obj_getn(values, yyjson_get_str(name), yyjson_get_len(name));
            if (name)
                (void)pt2_json_int(yyjson_obj_get(name, "dtype"), &dtype);
            return dtype;
        }
    }
    return 0;
}

/* Any of three may be what is wrong: dtype, sizes, record. */
static int too_short(reader *d, const pt2_payload *p, const meta_paths *m, int64_t extent, unsigned size)
{
    int64_t dtype = find_graph_dtype(d, p);

    if (dtype && dtype != p->dtype)
        (void)pt2_fail(d->report, PT2_PAYLOAD, NULL, &m->dtype, "%s here, %s in the graph", pt2_dtype_name(p->dtype),
                       pt2_dtype_name(dtype));
    (void)pt2_fail(d->report, PT2_PAYLOAD, NULL, &m->sizes, "the view needs %lld elements, '%s' has %llu",
                   (long long)extent, p->entry->name, (unsigned long long)(p->entry->size / size));
    return pt2_fail(d->report, PT2_PAYLOAD, p->entry->name, NULL, "'%s' needs %llu bytes, the record has %llu", p->name,
                    (unsigned long long)extent * size, (unsigned long long)p->entry->size);
}

/* A tensor on the device meta has sizes and no data: its record is empty. */
static bool has_no_data(const pt2_payload *p)
{
    return p->entry->size == 0 && p->device && strcmp(p->device, "meta") == 0;
}

/* Hold the view against its record. */
static int check_view(reader *d, const pt2_payload *p, const meta_paths *m)
{
    unsigned size = pt2_dtype_size(p->dtype);
    uint64_t room = p->entry->size / size;
    int64_t extent = 0;
    bool empty;

    if (p->entry->size % size)
        return pt2_fail(d->report, PT2_PAYLOAD, p->entry->name, NULL,
                        "%llu bytes are no whole number of elements of %s ('%s', %u bytes each)",
                        (unsigned long long)p->entry->size, pt2_dtype_name(p->dtype), p->name, size);
    if (check_sizes(d, p, &m->sizes, &empty) < 0)
        return -1;
    if (empty)
        return 0;
    if (find_extent(d, p, &m->strides, &extent) < 0)
        return -1;
    if (has_no_data(p))
        return 0;
    if (room && (uint64_t)p->offset >= room)
        return pt2_fail(d->report, PT2_PAYLOAD, NULL, &m->offset,
                        "the offset %lld is past the end of '%s', of %llu elements", (long long)p->offset,
                        p->entry->name, (unsigned long long)room);
    return (uint64_t)extent > room ? too_short(d, p, m, extent, size) : 0;
}

/* ---- bool records ---- */

static int see_bools(void *ctx, const void *data, size_t len)
{
    const unsigned char *bytes = data;
    bool *bad = ctx;

    for (size_t i = 0; i < len; i++)
        *bad |= bytes[i] > 1;
    return 0;
}

/* May a record be read now? Together they are at most what the limits allow: others are left to whoever reads them. */
static bool may_look(reader *d, const pt2_entry *e)
{
    uint64_t limit = d->report->limits->checked_bytes;

    if (limit && (e->size > limit || d->looked_at > limit - e->size))
        return false;
    d->looked_at += e->size;
    return true;
}

/* Bytes of a bool are 0 or 1: any other makes two readers differ. */
static int check_bools(reader *d, const pt2_entry *e, const pt2_path *path)
{
    bool bad = false;

    if (!may_look(d, e))
        return 0;
    if (pt2_archive_stream(d->program->archive, e, see_bools, &bad, d->report) < 0)
        return -1;
    return bad ? pt2_fail(d->report, PT2_PAYLOAD, NULL, path, "a bool of the record '%s' is neither 0 nor 1", e->name)
               : 0;
}

/* ---- items ---- */

/* Text of a device: cpu, cuda:0. NULL: no memory. */
static const char *device_text(fe_arena *arena, yyjson_val *device)
{
    const char *type = unsafe_yyjson_get_str(yyjson_obj_get(device, "type"));
    yyjson_val *index = pt2_field(device, "index");
    const char *number = index ? unsafe_yyjson_get_raw(index) : "";
    size_t len = strlen(type) + strlen(number) + 2;
    char *text;

    if (!index)
        return type;
    text = fe_arena_take(arena, len);
    if (text)
        snprintf(text, len, "%s:%s", type, number);
    return text;
}

static int take_code(yyjson_val *object, const char *key, int32_t *out)
{
    int64_t code = 0;

    (void)pt2_json_int(yyjson_obj_get(object, key), &code); /* the schema check has seen it */
    *out = (int32_t)code;
    return 0;
}

static int read_view(reader *d, pt2_payload *p, yyjson_val *meta, const meta_paths *m)
{
    uint32_t rank;

    if (take_ints(d, yyjson_obj_get(meta, "sizes"), &m->sizes, &p->ndim, &p->sizes) < 0 ||
        take_ints(d, yyjson_obj_get(meta, "strides"), &m->strides, &rank, &p->strides) < 0)
        return -1;
    if (rank != p->ndim)
        return pt2_fail(d->report, PT2_PAYLOAD, NULL, &m->strides, "%u strides for %u sizes", rank, p->ndim);
    if (take_int(d, yyjson_obj_get(meta, "storage_offset"), &m->offset, &p->offset) < 0)
        return -1;
    if (p->offset < 0)
        return pt2_fail(d->report, PT2_PAYLOAD, NULL, &m->offset, "the offset %lld is negative", (long long)p->offset);
    return 0;
}

/* Look into the pickles that an item names, for warnings. */
static int scan_pickle(reader *d, const pt2_payload *p)
{
    char what[SHOWN_NAME];

    if (p->kind == PT2_PAYLOAD_CUSTOM)
        return 0;
    snprintf(what, sizeof what, "bytes of the pickled %s '%.100s'", d->constants ? "constant" : "weight", p->name);
    if (p->entry->method != PT2_STORED && !may_look(d, p->entry)) {
        pt2_pickle_unseen(p->entry->size, what, p->entry->name, d->report);
        return 0;
    }
    return pt2_pickle_scan_entry(d->program->archive, p->entry, p->kind == PT2_PAYLOAD_OPAQUE, what,
                                 d->program->allocator, d->report);
}

/* What is learnt of a record at its first use is the same for all that share it. */
static int first_use(reader *d, const pt2_payload *p, const pt2_path *path)
{
    if (p->kind != PT2_PAYLOAD_TENSOR)
        return scan_pickle(d, p);
    return p->dtype == BOOL ? check_bools(d, p->entry, path) : 0;
}

static int check_use(reader *d, const pt2_payload *p, const pt2_path *path)
{
    uint8_t *use = &d->uses[p->entry - d->entries], mine = p->kind == PT2_PAYLOAD_TENSOR ? (uint8_t)p->dtype : PICKLED;

    if (!*use) {
        *use = mine;
        return first_use(d, p, path);
    }
    if (*use == mine)
        return 0;
    if (*use == PICKLED || mine == PICKLED)
        return pt2_fail(d->report, PT2_PAYLOAD, NULL, path, "'%s' is a pickle for one and a tensor for another",
                        p->entry->name);
    return pt2_fail(d->report, PT2_PAYLOAD, NULL, path, "'%s' is %s here, %s for another", p->entry->name,
                    pt2_dtype_name(mine), pt2_dtype_name(*use));
}

static int read_meta(reader *d, pt2_payload *p, yyjson_val *meta, const meta_paths *m)
{
    take_code(meta, "dtype", &p->dtype);
    take_code(meta, "layout", &p->layout);
    p->requires_grad = yyjson_is_true(yyjson_obj_get(meta, "requires_grad"));
    p->device = device_text(&d->program->arena, yyjson_obj_get(meta, "device"));
    if (!p->device)
        return pt2_no_memory(d->report);
    if (p->kind != PT2_PAYLOAD_TENSOR)
        return 0; /* what a pickle holds, it says itself */
    if (strcmp(pt2_layout_name(p->layout), "strided") != 0)
        return pt2_fail(d->report, PT2_PAYLOAD, NULL, &m->layout, "a record of plain bytes is strided, not %s",
                        pt2_layout_name(p->layout));
    if (read_view(d, p, meta, m) < 0 || check_view(d, p, m) < 0)
        return -1;
    return check_use(d, p, &m->dtype);
}

static int read_item(reader *d, yyjson_val *key, const pt2_path *path)
{
    yyjson_val *json = key + 1, *record = yyjson_obj_get(json, "path_name"), *meta = pt2_field(json, "tensor_meta");
    bool is_pickled = yyjson_is_true(yyjson_obj_get(json, "use_pickle"));
    pt2_path record_path = {.parent = path, .key = "path_name", .key_len = 9};
    pt2_payload p = {.name = unsafe_yyjson_get_str(key), .name_len = unsafe_yyjson_get_len(key), .json = json};
    meta_paths m;
    int kind;

    init_paths(&m, path);
    p.entry = find_record(d, record, &record_path);
    if (!p.entry || (kind = find_kind(d, unsafe_yyjson_get_str(record), is_pickled, &record_path)) < 0)
        return -1;
    p.kind = (uint8_t)kind;
    p.is_param = yyjson_is_true(yyjson_obj_get(json, "is_param"));
    if (!meta && kind == PT2_PAYLOAD_TENSOR)
        return pt2_fail(d->report, PT2_PAYLOAD, NULL, &m.meta, "a tensor needs a tensor_meta");
    if (meta && read_meta(d, &p, meta, &m) < 0)
        return -1;
    if (kind != PT2_PAYLOAD_TENSOR && check_use(d, &p, &record_path) < 0)
        return -1;
    d->payloads->items[d->payloads->count++] = p;
    return 0;
}

/* Goes on after a fault: each item is told of. */
static int read_items(reader *d, yyjson_val *config)
{
    size_t count = unsafe_yyjson_get_len(config);
    yyjson_val *key = unsafe_yyjson_get_first(config);
    pt2_path root = {.parent = NULL}, map = {.parent = &root, .key = "config", .key_len = 6}, item = {.parent = &map};
    int result = 0;

    if (count > UINT32_MAX)
        return pt2_fail(d->report, PT2_LIMIT, NULL, &map, "too many items");
    d->payloads->items = fe_arena_take(&d->program->arena, (count ? count : 1) * sizeof *d->payloads->items);
    if (!d->payloads->items)
        return pt2_no_memory(d->report);
    for (size_t i = 0; i < count && !d->report->no_memory; i++, key = unsafe_yyjson_get_next(key + 1)) {
        item.key = unsafe_yyjson_get_str(key);
        item.key_len = unsafe_yyjson_get_len(key);
        if (read_item(d, key, &item) < 0)
            result = -1;
    }
    return result;
}

int pt2_payloads_read(pt2_program *p, pt2_payloads *payloads, pt2_report *r)
{
    reader d = {.program = p, .payloads = payloads, .report = r, .constants = payloads == &p->constants};
    const char *outer = r->entry;
    uint32_t count;
    int result;

    d.folder = d.constants ? "data/constants/" : "data/weights/";
    d.entries = pt2_archive_entries(p->archive, &count);
    d.uses = fe_resize(p->allocator, NULL, count); /* not 0: there is the config */
    if (!d.uses)
        return pt2_no_memory(r);
    memset(d.uses, 0, count);
    fe_buffer_init(&d.name, p->allocator);
    r->entry = payloads->entry->name;
    result = read_items(&d, yyjson_obj_get(yyjson_doc_get_root(payloads->config.doc), "config"));
    r->entry = outer;
    fe_buffer_clear(&d.name);
    fe_resize(p->allocator, d.uses, 0);
    return result;
}
