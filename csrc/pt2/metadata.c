/* metadata.c - the texts of a node's metadata, as torch takes them apart (deserialize_metadata in
 * torch/_export/serde/serialize.py); see texts.h.
 */
#include "texts.h"

#define FAULT(path, r, ...) pt2_fail(r, PT2_METADATA, NULL, path, __VA_ARGS__)

static int shown(size_t len)
{
    return len < 200 ? (int)len : 200;
}

bool pt2_next_item(pt2_items *it, char separator, const char **item, size_t *len)
{
    if (it->done)
        return false;
    const char *end = it->end > it->text ? memchr(it->text, separator, (size_t)(it->end - it->text)) : NULL;

    *item = it->text;
    *len = (size_t)((end ? end : it->end) - it->text);
    it->done = !end;
    it->text = end ? end + 1 : it->end;
    return true;
}

/* Cut KEY,PATH,TYPE at its commas outside () and []; false: not three parts. */
static bool module_stack_parts(const char *item, size_t len, const char *parts[3], size_t lens[3])
{
    size_t start = 0, count = 0;
    int64_t open = 0;

    for (size_t i = 0; i <= len; i++) {
        char c = i < len ? item[i] : ',';
        open += (c == '(' || c == '[') - (c == ')' || c == ']');
        if (i < len && (c != ',' || open != 0))
            continue;
        if (count == 3)
            return false;
        parts[count] = item + start;
        lens[count++] = i - start;
        start = i + 1;
    }
    return count == 3;
}

/* Modules below torch that only hold what Python brings along: nothing that a node was made from. */
static bool is_odd_target(const char *text, size_t len)
{
    static const char *const odd[] = {
        "torch.os.",  "torch.sys.", "torch.builtins.",      "torch.importlib.", "torch.ctypes.", "torch.subprocess.",
        "torch.hub.", "torch.load", "torch.serialization.", "torch.inspect.",   "torch.pickle.", "torch.threading."};

    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        if (len >= strlen(odd[i]) && memcmp(text, odd[i], strlen(odd[i])) == 0)
            return true;
    }
    return false;
}

static void warn_odd_target(const char *text, size_t len, const pt2_path *path, pt2_report *r)
{
    if (is_odd_target(text, len))
        pt2_warn(r, PT2_METADATA, NULL, path, "odd metadata: %.*s", shown(len), text);
}

/* Text "a;b;c": walk its items. Nothing is there for torch in an empty text. */
static pt2_items items_of(const char *text, size_t len)
{
    return (pt2_items){.text = text, .end = text + len, .done = !len};
}

static int check_module_stack(const char *text, size_t len, const pt2_path *path, pt2_report *r)
{
    pt2_items it = items_of(text, len);
    const char *item, *parts[3];
    size_t size, lens[3];

    while (pt2_next_item(&it, ';', &item, &size)) {
        if (!module_stack_parts(item, size, parts, lens))
            return FAULT(path, r, "an item of nn_module_stack is not KEY,PATH,TYPE: %.*s", shown(size), item);
        warn_odd_target(parts[2], lens[2], path, r);
    }
    return 0;
}

static int check_source_stack(const char *text, size_t len, const pt2_path *path, pt2_report *r)
{
    pt2_items it = items_of(text, len);
    const char *item;
    size_t size;

    while (pt2_next_item(&it, ';', &item, &size)) {
        const char *comma = size ? memchr(item, ',', size) : NULL;
        size_t rest = comma ? (size_t)(item + size - comma) - 1 : 0;
        if (!comma || (rest && memchr(comma + 1, ',', rest)))
            return FAULT(path, r, "an item of source_fn_stack is not NAME,TARGET: %.*s", shown(size), item);
        warn_odd_target(comma + 1, rest, path, r);
    }
    return 0;
}

static void check_torch_fn(const char *text, size_t len, const pt2_path *path, pt2_report *r)
{
    pt2_items it = items_of(text, len);
    const char *item;
    size_t size, count = 0;
    bool empty = false;

    while (pt2_next_item(&it, ';', &item, &size)) {
        empty |= !size;
        count++;
    }
    if (len && (count != 2 || empty))
        pt2_warn(r, PT2_METADATA, NULL, path, "torch_fn is not NAME;FUNCTION: %.*s", shown(len), text);
}

/* Parse JSON text; what is wrong with it is told under our kind, but for its depth. */
static int parse(const char *key, const char *text, size_t len, pt2_json *json, const pt2_path *path, pt2_report *r)
{
    pt2_report own;

    pt2_report_init(&own, r->allocator, r->limits);
    own.entry = r->entry;
    int result = pt2_json_parse_copy(json, text, len, r->allocator, path, &own);
    if (result < 0) {
        r->no_memory |= own.no_memory;
        if (own.count && own.items[0].kind == PT2_JSON_DEPTH)
            pt2_fail(r, PT2_JSON_DEPTH, NULL, path, "%s: %s", key, own.items[0].message);
        else if (!own.no_memory)
            FAULT(path, r, "%s is no JSON: %.*s", key, shown(len), text);
    }
    pt2_report_clear(&own);
    return result;
}

static bool is_text_or_missing(yyjson_val *object, const char *key)
{
    yyjson_val *v = yyjson_obj_get(object, key);

    return !v || yyjson_is_str(v) || yyjson_is_null(v);
}

/* A list of {name, target, graph_id, pass_name, action, from_node}, or null. As deep as the document, which is limited. */
static int check_sources(yyjson_val *list, const pt2_path *path, pt2_report *r)
{
    size_t i, max;
    yyjson_val *source;

    if (!list || yyjson_is_null(list))
        return 0;
    if (!yyjson_is_arr(list))
        return FAULT(path, r, "from_node is not a list");
    yyjson_arr_foreach(list, i, max, source)
    {
        if (yyjson_is_null(source))
            continue;
        if (!yyjson_is_obj(source))
            return FAULT(path, r, "an item of from_node is not an object");
        if (!is_text_or_missing(source, "name") || !is_text_or_missing(source, "target") ||
            !is_text_or_missing(source, "pass_name") || !is_text_or_missing(source, "action"))
            return FAULT(path, r, "an item of from_node holds something else than texts");
        if (check_sources(yyjson_obj_get(source, "from_node"), path, r) < 0)
            return -1;
    }
    return 0;
}

static int check_json(const char *key, const char *text, size_t len, bool sources, const pt2_path *path, pt2_report *r)
{
    pt2_json json = {0};

    if (!len)
        return 0;
    if (parse(key, text, len, &json, path, r) < 0)
        return -1;
    int result = sources ? check_sources(yyjson_doc_get_root(json.doc), path, r) : 0;
    pt2_json_clear(&json);
    return result;
}

int pt2_metadata_check(const char *key, size_t key_len, const char *text, size_t len, const pt2_path *path,
                       pt2_report *r)
{
    static const char *const keys[] = {"nn_module_stack", "source_fn_stack", "torch_fn", "custom", "from_node"};
    size_t i = 0;

    while (i < sizeof keys / sizeof *keys && (strlen(keys[i]) != key_len || memcmp(keys[i], key, key_len) != 0))
        i++;
    switch (i) {
    case 0:
        return check_module_stack(text, len, path, r);
    case 1:
        return check_source_stack(text, len, path, r);
    case 2:
        check_torch_fn(text, len, path, r);
        return 0;
    case 3:
    case 4:
        return check_json(keys[i], text, len, i == 4, path, r);
    default:
        return 0;
    }
}
