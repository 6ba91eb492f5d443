/* treespec.c - tree specs: how the inputs or outputs of a program nest; see texts.h.
 *
 *     [1, SPEC]    SPEC = {"type": NAME or null, "context": CONTEXT, "children_spec": [SPEC, ...]}
 *
 * What a context is depends on the type (torch/utils/_pytree.py). Most contexts are JSON text inside a string. A leaf has
 * neither type nor context nor children. When torch reads a spec it imports modules that the text names (the factory of a
 * defaultdict, the classes of enum keys), so these are looked at with care.
 */
#include "texts.h"

typedef struct {
    yyjson_val *fields; /* of the named tuples, or NULL */
    pt2_treespec_facts facts;
    const pt2_path *path;
    pt2_report *report;
} checker;

#define MAX_NAMED_TUPLES 10000 /* classes of a program: each lookup goes through them in turn */
#define FAULT(c, ...) pt2_fail((c)->report, PT2_TREESPEC, NULL, (c)->path, __VA_ARGS__)

static bool is_text(yyjson_val *v, const char *text)
{
    return yyjson_is_str(v) && yyjson_get_len(v) == strlen(text) && memcmp(yyjson_get_str(v), text, strlen(text)) == 0;
}

static int shown(size_t len)
{
    return len < 100 ? (int)len : 100;
}

/* Parse JSON text that stands in a string. What is wrong with it is told under our kind, but for its depth. */
static int parse_text(checker *c, const char *text, size_t len, const char *what, pt2_json *out)
{
    pt2_report own;

    pt2_report_init(&own, c->report->allocator, c->report->limits);
    own.entry = c->report->entry;
    int result = pt2_json_parse_copy(out, text, len, c->report->allocator, c->path, &own);
    if (result < 0) {
        c->report->no_memory |= own.no_memory;
        if (own.count && own.items[0].kind == PT2_JSON_DEPTH)
            pt2_fail(c->report, PT2_JSON_DEPTH, NULL, c->path, "%s: %s", what, own.items[0].message);
        else if (!own.no_memory)
            FAULT(c, "%s is no JSON: %.*s", what, shown(len), text);
    }
    pt2_report_clear(&own);
    return result;
}

/* ---- names ---- */

/* A qualified name as registered with torch's pytree: identifiers and <locals> joined by dots. */
static bool is_type_name(const char *name, size_t len)
{
    for (size_t i = 0; name && i <= len;) {
        const char *dot = memchr(name + i, '.', len - i);
        size_t part = dot ? (size_t)(dot - name) - i : len - i;
        if (!pt2_is_identifier(name + i, part) && !(part == 8 && memcmp(name + i, "<locals>", 8) == 0))
            return false;
        i += part + 1;
    }
    return name != NULL;
}

static const char *const known_types[] = {
    "builtins.tuple",          "builtins.list",           "builtins.dict",    "collections.namedtuple",
    "collections.OrderedDict", "collections.defaultdict", "collections.deque"};

enum { TUPLE, LIST, DICT, NAMED_TUPLE, ORDERED_DICT, DEFAULT_DICT, DEQUE, OTHER };

static int type_of(yyjson_val *type)
{
    int i = 0;

    while (i < OTHER && !is_text(type, known_types[i]))
        i++;
    return i;
}

/* ---- keys ---- */

static bool has_enum(yyjson_val *v)
{
    size_t i, max;
    yyjson_val *key, *item;

    if (yyjson_is_arr(v)) {
        yyjson_arr_foreach(v, i, max, item)
        {
            if (has_enum(item))
                return true;
        }
    }
    if (yyjson_is_obj(v)) {
        if (yyjson_obj_get(v, "__enum__"))
            return true;
        pt2_each_member(v, i, max, key, item)
        {
            if (has_enum(item))
                return true;
        }
    }
    return false;
}

/* {"__enum__": true, "fqn": "module:Class", "name": "RED"} */
static int check_enum(checker *c, yyjson_val *v)
{
    yyjson_val *fqn = yyjson_obj_get(v, "fqn"), *name = yyjson_obj_get(v, "name");
    const char *text = yyjson_get_str(fqn), *colon = text ? memchr(text, ':', yyjson_get_len(fqn)) : NULL;

    if (!yyjson_obj_get(v, "__enum__") || !colon || !yyjson_is_str(name))
        return FAULT(c, "a key that is an object, but no enum member");
    size_t len = yyjson_get_len(fqn), module = (size_t)(colon - text);
    if (!is_type_name(text, module) || !is_type_name(colon + 1, len - module - 1) ||
        !pt2_is_identifier(yyjson_get_str(name), yyjson_get_len(name)))
        return FAULT(c, "an enum key names no class: %.*s", shown(len), text);
    c->facts.imports = true;
    pt2_warn(c->report, PT2_TREESPEC, NULL, c->path, "an enum key makes torch import the module of %.*s", shown(len),
             text);
    return 0;
}

static int check_keys(checker *c, yyjson_val *keys, size_t children)
{
    size_t i, max;
    yyjson_val *key;

    if (!yyjson_is_arr(keys))
        return FAULT(c, "the context of a dict is not a list of keys");
    if (yyjson_arr_size(keys) != children)
        return FAULT(c, "a dict with %zu keys and %zu children", yyjson_arr_size(keys), children);
    yyjson_arr_foreach(keys, i, max, key)
    {
        if (yyjson_is_arr(key))
            return FAULT(c, "a key that is a list");
        if (yyjson_is_obj(key) && check_enum(c, key) < 0)
            return -1;
    }
    return 0;
}

/* ---- contexts ---- */

static int check_dict(checker *c, yyjson_val *context, size_t children)
{
    pt2_json json = {0};

    if (!yyjson_is_str(context))
        return FAULT(c, "the context of a dict is no text");
    if (is_text(context, "[]"))
        return children ? FAULT(c, "a dict with 0 keys and %zu children", children) : 0;
    if (parse_text(c, yyjson_get_str(context), yyjson_get_len(context), "the context of a dict", &json) < 0)
        return -1;
    int result = check_keys(c, yyjson_doc_get_root(json.doc), children);
    pt2_json_clear(&json);
    return result;
}

static bool is_plain_factory(yyjson_val *module, yyjson_val *name)
{
    static const char *const builtins[] = {"list", "dict",  "set",  "int",       "float",
                                           "str",  "tuple", "bool", "frozenset", "complex"};
    static const char *const collections[] = {"OrderedDict", "deque", "Counter"};
    bool found = false;

    for (size_t i = 0; is_text(module, "builtins") && i < sizeof builtins / sizeof *builtins; i++)
        found |= is_text(name, builtins[i]);
    for (size_t i = 0; is_text(module, "collections") && i < sizeof collections / sizeof *collections; i++)
        found |= is_text(name, collections[i]);
    return found;
}

static int check_default_dict(checker *c, yyjson_val *context, size_t children)
{
    yyjson_val *module = yyjson_obj_get(context, "default_factory_module");
    yyjson_val *name = yyjson_obj_get(context, "default_factory_name"), *keys = yyjson_obj_get(context, "dict_context");

    if (!yyjson_is_str(module) || !yyjson_is_str(name) || !keys || yyjson_obj_size(context) != 3)
        return FAULT(c, "the context of a defaultdict is not a factory and keys");
    if (!is_plain_factory(module, name))
        return FAULT(c, "the factory of a defaultdict, %.*s.%.*s, is not a plain type", shown(yyjson_get_len(module)),
                     yyjson_get_str(module), shown(yyjson_get_len(name)), yyjson_get_str(name));
    return check_keys(c, keys, children);
}

static int check_deque(checker *c, yyjson_val *context, size_t children)
{
    pt2_json json = {0};
    int64_t most;

    if (!yyjson_is_str(context))
        return FAULT(c, "the context of a deque is no text");
    if (is_text(context, "null"))
        return 0;
    if (parse_text(c, yyjson_get_str(context), yyjson_get_len(context), "the context of a deque", &json) < 0)
        return -1;
    bool right = pt2_json_int(yyjson_doc_get_root(json.doc), &most) && most >= 0 && (uint64_t)most >= children;
    pt2_json_clear(&json);
    return right ? 0 : FAULT(c, "the context of a deque is not a length that holds its children");
}

static int check_named_tuple(checker *c, yyjson_val *context, size_t children)
{
    const char *name = yyjson_get_str(context);
    size_t len = yyjson_get_len(context);

    if (!name || !is_type_name(name, len))
        return FAULT(c, "a named tuple of no known class");
    if (yyjson_obj_size(c->fields) > MAX_NAMED_TUPLES)
        return FAULT(c, "a program with more than %d named tuple classes", MAX_NAMED_TUPLES);
    yyjson_val *def = c->fields ? yyjson_obj_getn(c->fields, name, len) : NULL;
    yyjson_val *fields = yyjson_obj_get(def, "field_names"); /* of NULL: NULL */
    if (fields && yyjson_arr_size(fields) != children)
        return FAULT(c, "a named tuple %.*s with %zu fields and %zu children", shown(len), name,
                     yyjson_arr_size(fields), children);
    return 0;
}

/* [[names of fields], [names of fields that are None]], as torch writes for dataclasses. */
static bool is_dataclass_context(yyjson_val *v)
{
    size_t i, k, max, count;
    yyjson_val *list, *name;

    if (yyjson_arr_size(v) != 2)
        return false;
    yyjson_arr_foreach(v, i, max, list)
    {
        if (!yyjson_is_arr(list))
            return false;
        yyjson_arr_foreach(list, k, count, name)
        {
            if (!yyjson_is_str(name))
                return false;
        }
    }
    return true;
}

static int check_registered_context(checker *c, yyjson_val *v, size_t children)
{
    if (has_enum(v)) {
        c->facts.imports = true;
        pt2_warn(c->report, PT2_TREESPEC, NULL, c->path, "a context with an enum makes torch import a module");
    }
    if (is_dataclass_context(v) && yyjson_arr_size(yyjson_arr_get_first(v)) != children)
        return FAULT(c, "a dataclass with %zu fields and %zu children", yyjson_arr_size(yyjson_arr_get_first(v)),
                     children);
    return 0;
}

/* A type that somebody registered: a dataclass, or anything with a context of its own kind. */
static int check_registered(checker *c, yyjson_val *type, yyjson_val *context, size_t children)
{
    pt2_json json = {0};
    pt2_report unused;

    if (!is_type_name(yyjson_get_str(type), yyjson_get_len(type)))
        return FAULT(c, "%.*s is no name of a type", shown(yyjson_get_len(type)), yyjson_get_str(type));
    if (!yyjson_is_str(context))
        return check_registered_context(c, context, children);
    /* Its text need not be JSON: a class may read it as it likes. */
    pt2_report_init(&unused, c->report->allocator, c->report->limits);
    int result = pt2_json_parse_copy(&json, yyjson_get_str(context), yyjson_get_len(context), c->report->allocator,
                                     NULL, &unused);
    bool no_memory = unused.no_memory;
    pt2_report_clear(&unused);
    if (result == 0) {
        result = check_registered_context(c, yyjson_doc_get_root(json.doc), children);
        pt2_json_clear(&json);
        return result;
    }
    return no_memory ? pt2_no_memory(c->report) : 0;
}

/* ---- specs ---- */

static int check_context(checker *c, yyjson_val *type, yyjson_val *context, size_t children)
{
    int known = type_of(type);

    switch (known) {
    case TUPLE:
    case LIST:
        return is_text(context, "null") ? 0 : FAULT(c, "a %s with a context", known_types[known]);
    case DICT:
    case ORDERED_DICT:
        return check_dict(c, context, children);
    case DEFAULT_DICT:
        return check_default_dict(c, context, children);
    case NAMED_TUPLE:
        return check_named_tuple(c, context, children);
    case DEQUE:
        return check_deque(c, context, children);
    default:
        return check_registered(c, type, context, children);
    }
}

/* As deep as the document, which is limited. */
static int check_spec(checker *c, yyjson_val *spec)
{
    yyjson_val *type = yyjson_obj_get(spec, "type"), *context = yyjson_obj_get(spec, "context"), *child;
    yyjson_val *children = yyjson_obj_get(spec, "children_spec");
    size_t i, max;

    if (!type || !context || !yyjson_is_arr(children))
        return FAULT(c, "a part that is not {type, context, children_spec}");
    if (yyjson_is_null(type)) {
        if (!yyjson_is_null(context) || yyjson_arr_size(children))
            return FAULT(c, "a leaf with a context or children");
        c->facts.leaves++;
        return 0;
    }
    if (!yyjson_is_str(type))
        return FAULT(c, "a type that is no text");
    if (check_context(c, type, context, yyjson_arr_size(children)) < 0)
        return -1;
    yyjson_arr_foreach(children, i, max, child)
    {
        if (check_spec(c, child) < 0)
            return -1;
    }
    return 0;
}

static int check_document(checker *c, yyjson_val *root)
{
    int64_t protocol;

    if (yyjson_arr_size(root) != 2)
        return FAULT(c, "a tree spec is not [1, SPEC]");
    if (!pt2_json_int(yyjson_arr_get_first(root), &protocol) || protocol != 1)
        return FAULT(c, "a tree spec of another protocol than 1");
    return check_spec(c, yyjson_arr_get_last(root));
}

static bool can_be_quoted(yyjson_val *key)
{
    const char *text = yyjson_get_str(key);
    size_t len = yyjson_get_len(key);

    for (size_t i = 0; text && i < len; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == '\'' || text[i] == '"' || text[i] == '\\')
            return false;
    }
    return text != NULL;
}

/* Whether the names of keyword arguments, the keys of the dict in (args, kwargs), are safe between quotes. */
static int check_keywords(checker *c, yyjson_val *root)
{
    yyjson_val *children = yyjson_obj_get(yyjson_arr_get_last(root), "children_spec");
    yyjson_val *kwargs = yyjson_arr_size(children) == 2 ? yyjson_arr_get_last(children) : NULL, *key;
    yyjson_val *context = yyjson_obj_get(kwargs, "context");
    pt2_json json = {0};
    size_t i, count;

    c->facts.calls = true;
    if (type_of(yyjson_obj_get(kwargs, "type")) != DICT || !yyjson_is_str(context))
        return 0;
    if (parse_text(c, yyjson_get_str(context), yyjson_get_len(context), "the context", &json) < 0)
        return -1;
    yyjson_arr_foreach(yyjson_doc_get_root(json.doc), i, count, key)
    {
        if (!can_be_quoted(key))
            c->facts.calls = false;
    }
    pt2_json_clear(&json);
    return 0;
}

int pt2_treespec_check(const char *text, size_t len, yyjson_val *namedtuple_fields, pt2_treespec_facts *facts,
                       const pt2_path *path, pt2_report *r)
{
    checker c = {.fields = namedtuple_fields, .path = path, .report = r};
    pt2_json json = {0};

    *facts = c.facts;
    if (r->limits->expr_bytes && len > r->limits->expr_bytes)
        return pt2_fail(r, PT2_LIMIT, NULL, path, "a tree spec of %zu bytes; the limit is %u", len,
                        r->limits->expr_bytes);
    if (parse_text(&c, text, len, "the tree spec", &json) < 0)
        return -1;
    int result = check_document(&c, yyjson_doc_get_root(json.doc));
    if (result == 0)
        result = check_keywords(&c, yyjson_doc_get_root(json.doc));
    pt2_json_clear(&json);
    *facts = c.facts;
    return result;
}

/* ---- classes ---- */

/* Registered by torch itself when it is imported, besides known_types. */
static bool is_of_torch(yyjson_val *type)
{
    return is_text(type, "torch.Size") || is_text(type, "torch.fx.immutable_collections.immutable_list") ||
           is_text(type, "torch.fx.immutable_collections.immutable_dict");
}

static int visit_classes(yyjson_val *spec, pt2_class_visitor visit, void *ctx)
{
    yyjson_val *type = yyjson_obj_get(spec, "type"), *child;
    int known = type_of(type);
    yyjson_val *name = known == NAMED_TUPLE ? yyjson_obj_get(spec, "context") : known == OTHER ? type : NULL;
    size_t i, max;

    if (yyjson_is_str(name) && !is_of_torch(name) && visit(ctx, yyjson_get_str(name), yyjson_get_len(name)) < 0)
        return -1;
    yyjson_arr_foreach(yyjson_obj_get(spec, "children_spec"), i, max, child)
    {
        if (visit_classes(child, visit, ctx) < 0)
            return -1;
    }
    return 0;
}

int pt2_treespec_classes(const char *text, size_t len, pt2_class_visitor visit, void *ctx, pt2_report *r)
{
    checker c = {.report = r};
    pt2_json json = {0};

    if (parse_text(&c, text, len, "the tree spec", &json) < 0)
        return r->no_memory ? -1 : 0;
    int result = visit_classes(yyjson_arr_get_last(yyjson_doc_get_root(json.doc)), visit, ctx);
    pt2_json_clear(&json);
    return result;
}

void pt2_namedtuple_fields_check(yyjson_val *fields, const pt2_path *path, pt2_report *r)
{
    size_t i, k, max, count;
    yyjson_val *key, *def, *field;

    pt2_each_member(fields, i, max, key, def)
    {
        const char *name = yyjson_get_str(key);
        int len = shown(yyjson_get_len(key));
        yyjson_val *names = yyjson_obj_get(def, "field_names");
        if (type_of(key) != OTHER)
            pt2_warn(r, PT2_TREESPEC, NULL, path, "the named tuple %.*s has the name of a known type", len, name);
        else if (!is_type_name(name, yyjson_get_len(key)))
            pt2_warn(r, PT2_TREESPEC, NULL, path, "the named tuple %.*s is not an identifier", len, name);
        yyjson_arr_foreach(names, k, count, field)
        {
            const char *text = yyjson_get_str(field);
            size_t size = yyjson_get_len(field);
            if (!text || !pt2_is_identifier(text, size) || pt2_is_keyword(text, size))
                pt2_warn(r, PT2_TREESPEC, NULL, path, "the field %.*s of the named tuple %.*s is not an identifier",
                         shown(size), text ? text : "", len, name);
        }
    }
}
