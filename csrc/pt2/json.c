/* json.c - parsing by yyjson, in place, and what yyjson lets pass; texts as Python's json writes them.
 *
 * yyjson neither limits the depth nor sees duplicate keys, so every parsed document is walked once (check_value). It
 * parses in place, which leaves nothing to find the path of a syntax error in: a second, slower reader (explain) finds
 * it in a fresh copy of the text, and only then.
 */
#define YYJSON_DISABLE_WRITER 1
#define YYJSON_DISABLE_UTILS 1
#include <yyjson.c>

#include "json.h"

#include <math.h>

static const yyjson_read_flag read_flags =
    YYJSON_READ_INSITU | YYJSON_READ_NUMBER_AS_RAW | YYJSON_READ_ALLOW_INF_AND_NAN;

/* yyjson's own readers of a value take no const. */
static inline uint8_t type_of(const yyjson_val *v)
{
    return (uint8_t)(v->tag & YYJSON_TYPE_MASK);
}

/* Bytes of a string or number, items of a container. */
static inline size_t length_of(const yyjson_val *v)
{
    return (size_t)(v->tag >> YYJSON_TAG_BIT);
}

static inline const char *text_of(const yyjson_val *v)
{
    return v->uni.str;
}

static uint32_t max_depth(const pt2_report *r)
{
    uint32_t limit = r->limits->json_depth;

    return limit && limit < PT2_JSON_MAX_DEPTH ? limit : PT2_JSON_MAX_DEPTH;
}

#define SHOWN_DEPTH 16 /* the path of something too deep is cut here: all of it tells nobody more */

static int too_deep(const pt2_path *path, uint32_t depth, pt2_report *r)
{
    uint32_t limit = max_depth(r);

    for (; depth > SHOWN_DEPTH && path->parent; depth--)
        path = path->parent;
    return pt2_fail(r, PT2_JSON_DEPTH, NULL, path, "JSON is nested deeper than %u levels (limit json_depth)", limit);
}

/* ---- the checks after parsing ---- */

/* What the walk over a document shares. */
typedef struct {
    const fe_allocator *allocator;
    pt2_report *report;
    uint64_t seed; /* of the hashes: no file can know which keys collide */
    uint32_t depth_limit;
} checker;

static bool same_key(const yyjson_val *a, const yyjson_val *b)
{
    size_t len = length_of(a);

    return len == length_of(b) && memcmp(text_of(a), text_of(b), len) == 0;
}

static uint64_t hash_key(const checker *c, const yyjson_val *key)
{
    const char *text = text_of(key);
    size_t len = length_of(key);
    uint64_t h = c->seed ^ len, word;

    for (; len >= 8; len -= 8, text += 8) {
        memcpy(&word, text, 8);
        h = fe_mix(h ^ word);
    }
    word = 0;
    memcpy(&word, text, len);
    return fe_mix(h ^ word);
}

#define FEW_KEYS 16

/* Does the same key stand before this one? */
static bool has_before(yyjson_val *object, const yyjson_val *key)
{
    for (yyjson_val *at = unsafe_yyjson_get_first(object); at != key; at = unsafe_yyjson_get_next(at + 1))
        if (same_key(at, key))
            return true;
    return false;
}

/* The second of two equal keys of a large object, or NULL. 0, or -1: no memory. */
static int find_duplicate(checker *c, yyjson_val *object, yyjson_val **found)
{
    size_t count = length_of(object), size = 2 * FEW_KEYS;
    yyjson_val **slots, *key = unsafe_yyjson_get_first(object);

    *found = NULL;
    while (size / 2 < count)
        size *= 2; /* the document has more bytes than this: no overflow */
    slots = fe_resize(c->allocator, NULL, size * sizeof *slots);
    if (!slots)
        return pt2_no_memory(c->report);
    memset(slots, 0, size * sizeof *slots);
    for (size_t i = 0; i < count && !*found; i++, key = unsafe_yyjson_get_next(key + 1)) {
        size_t at = (size_t)hash_key(c, key) & (size - 1);
        while (slots[at] && !same_key(slots[at], key))
            at = (at + 1) & (size - 1);
        if (slots[at])
            *found = key;
        slots[at] = key;
    }
    fe_resize(c->allocator, slots, 0);
    return 0;
}

static bool is_text(const yyjson_val *v, const char *text)
{
    size_t len = strlen(text);

    return length_of(v) == len && memcmp(text_of(v), text, len) == 0;
}

/* yyjson takes infinities and NaN in any case and with any sign; Python's json knows three spellings. A word has a
 * certain length, so most numbers need not be looked at. */
static bool is_python_number(const yyjson_val *v)
{
    const char *text = text_of(v);
    size_t len = length_of(v);

    if (len != 3 && len != 4 && len != 8 && len != 9) /* nan, inf, -nan, -inf, infinity, -infinity */
        return true;
    if (text[text[0] == '-'] >= '0' && text[text[0] == '-'] <= '9')
        return true;
    return is_text(v, "NaN") || is_text(v, "Infinity") || is_text(v, "-Infinity");
}

static int check_items(checker *c, yyjson_val *v, const pt2_path *path, uint32_t depth);

static inline int check_value(checker *c, yyjson_val *v, const pt2_path *path, uint32_t depth)
{
    uint8_t type = type_of(v);

    if (type == YYJSON_TYPE_RAW && !is_python_number(v))
        return pt2_fail(c->report, PT2_JSON_SYNTAX, NULL, path, "'%s' is no JSON number", text_of(v));
    if ((type != YYJSON_TYPE_ARR && type != YYJSON_TYPE_OBJ) || !length_of(v))
        return 0;
    if (depth >= c->depth_limit)
        return too_deep(path, depth + 1, c->report);
    return check_items(c, v, path, depth + 1);
}

static int duplicate_key(const checker *c, const yyjson_val *key, const pt2_path *object)
{
    pt2_path path = {.parent = object, .key = text_of(key), .key_len = length_of(key)};

    return pt2_fail(c->report, PT2_JSON_SYNTAX, NULL, &path, "duplicate key");
}

static int check_list(checker *c, yyjson_val *v, const pt2_path *path, uint32_t depth)
{
    size_t count = length_of(v);
    yyjson_val *at = unsafe_yyjson_get_first(v);
    pt2_path child = {.parent = path};

    for (; child.index < count; child.index++, at = unsafe_yyjson_get_next(at))
        if (check_value(c, at, &child, depth) < 0)
            return -1;
    return 0;
}

static int check_object(checker *c, yyjson_val *v, const pt2_path *path, uint32_t depth)
{
    size_t count = length_of(v);
    yyjson_val *key = unsafe_yyjson_get_first(v), *duplicate = NULL;
    pt2_path child = {.parent = path};
    bool small = count <= FEW_KEYS;
    uint64_t seen = 0, bit;

    if (!small && find_duplicate(c, v, &duplicate) < 0)
        return -1;
    if (duplicate)
        return duplicate_key(c, duplicate, path);
    for (size_t i = 0; i < count; i++, key = unsafe_yyjson_get_next(key + 1)) {
        if (small) { /* most keys differ in length, and then their texts need not be looked at */
            bit = UINT64_C(1) << (length_of(key) & 63);
            if ((seen & bit) && has_before(v, key))
                return duplicate_key(c, key, path);
            seen |= bit;
        }
        child.key = text_of(key);
        child.key_len = length_of(key);
        if (check_value(c, key + 1, &child, depth) < 0)
            return -1;
    }
    return 0;
}

static int check_items(checker *c, yyjson_val *v, const pt2_path *path, uint32_t depth)
{
    return type_of(v) == YYJSON_TYPE_OBJ ? check_object(c, v, path, depth) : check_list(c, v, path, depth);
}

/* ---- parsing ---- */

static void *alc_malloc(void *ctx, size_t size)
{
    void *block = fe_resize(ctx, NULL, size ? size : 1);

    fe_use_large_pages(block, size);
    return block;
}

static void *alc_realloc(void *ctx, void *block, size_t old_size, size_t size)
{
    (void)old_size;
    return fe_resize(ctx, block, size ? size : 1);
}

static void alc_free(void *ctx, void *block)
{
    if (block)
        fe_resize(ctx, block, 0);
}

/* yyjson guesses how many values a text holds, high; give back what it did not need. */
static void trim(pt2_json *j)
{
    size_t head = (size_t)((char *)j->doc->root - (char *)j->doc);
    yyjson_doc *doc = fe_resize(j->allocator, j->doc, head + j->doc->val_read * sizeof(yyjson_val));

    if (!doc)
        return;
    j->doc = doc;
    doc->root = (yyjson_val *)(void *)((char *)doc + head); /* values refer to each other by distances */
}

static int parse(pt2_json *j, char *text, size_t len, const fe_allocator *a, const pt2_path *prefix, pt2_report *r,
                 yyjson_read_err *err)
{
    pt2_path root = {.parent = NULL};
    yyjson_alc alc = {alc_malloc, alc_realloc, alc_free, (void *)(uintptr_t)a};

    *j = (pt2_json){.text = text, .allocator = a};
    j->doc = yyjson_read_opts(text, len, read_flags, &alc, err);
    if (!j->doc) {
        pt2_json_clear(j);
        return err->code == YYJSON_READ_ERROR_MEMORY_ALLOCATION ? pt2_no_memory(r) : 1;
    }
    trim(j);
    checker c = {.allocator = a,
                 .report = r,
                 .seed = fe_mix((uint64_t)(uintptr_t)j->doc ^ UINT64_C(0x9e3779b97f4a7c15)),
                 .depth_limit = max_depth(r)};
    if (check_value(&c, j->doc->root, prefix ? prefix : &root, 0) < 0) {
        pt2_json_clear(j);
        return -1;
    }
    return 0;
}

int pt2_json_parse_quietly(pt2_json *j, char *text, size_t len, const fe_allocator *a, const pt2_path *prefix,
                           pt2_report *r)
{
    yyjson_read_err err;

    return parse(j, text, len, a, prefix, r, &err);
}

int pt2_json_parse(pt2_json *j, char *text, size_t len, const fe_allocator *a, const pt2_path *prefix, pt2_report *r)
{
    pt2_path root = {.parent = NULL};
    yyjson_read_err err;
    int code = parse(j, text, len, a, prefix, r, &err);

    if (code <= 0)
        return code;
    return pt2_fail(r, PT2_JSON_SYNTAX, NULL, prefix ? prefix : &root, "not JSON: %s, at byte %zu", err.msg, err.pos);
}

int pt2_json_parse_copy(pt2_json *j, const char *text, size_t len, const fe_allocator *a, const pt2_path *prefix,
                        pt2_report *r)
{
    char *copy = len > SIZE_MAX - PT2_JSON_PADDING ? NULL : fe_resize(a, NULL, len + PT2_JSON_PADDING);

    *j = (pt2_json){.allocator = a};
    if (!copy)
        return pt2_no_memory(r);
    if (len)
        memcpy(copy, text, len);
    memset(copy + len, 0, PT2_JSON_PADDING);
    int code = pt2_json_parse_quietly(j, copy, len, a, prefix, r);
    return code > 0 ? pt2_json_explain(text, len, prefix, r) : code;
}

void pt2_json_clear(pt2_json *j)
{
    yyjson_doc_free(j->doc);
    if (j->text)
        fe_resize(j->allocator, j->text, 0);
    *j = (pt2_json){.allocator = j->allocator};
}

/* ---- where a syntax error is ---- */

typedef struct {
    const unsigned char *text;
    size_t len, at;
    pt2_report *report;
    uint32_t depth_limit;
    size_t bad_strings; /* noted */
} scanner;

static int syntax(const scanner *s, const pt2_path *path, const char *what)
{
    return pt2_fail(s->report, PT2_JSON_SYNTAX, NULL, path, "not JSON: %s, at byte %zu", what, s->at);
}

/* The byte that stands here, or -1 at the end. */
static int peek(const scanner *s)
{
    return s->at < s->len ? s->text[s->at] : -1;
}

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

static void skip_space(scanner *s)
{
    while (peek(s) == ' ' || peek(s) == '\t' || peek(s) == '\n' || peek(s) == '\r')
        s->at++;
}

/* Four hexadecimal digits, or -1. */
static int32_t scan_hex(scanner *s)
{
    int32_t code = 0;

    for (int i = 0; i < 4; i++, s->at++) {
        int c = peek(s);
        int digit = is_digit(c)            ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        code = code * 16 + digit;
    }
    return code;
}

/* Behind a backslash. NULL, or what is wrong. */
static const char *scan_escape(scanner *s)
{
    int c = peek(s);

    if (c < 0)
        return "a string has no end";
    if (c != 'u') {
        if (!strchr("\"\\/bfnrt", c) || !c)
            return "unknown escape in a string";
        s->at++;
        return NULL;
    }
    s->at++;
    int32_t code = scan_hex(s);
    if (code < 0)
        return "\\u needs four hexadecimal digits";
    if (code >= 0xdc00 && code < 0xe000)
        return "lone surrogate in a string";
    if (code < 0xd800 || code >= 0xe000)
        return NULL;
    if (peek(s) != '\\' || s->at + 1 >= s->len || s->text[s->at + 1] != 'u')
        return "lone surrogate in a string";
    s->at += 2;
    code = scan_hex(s);
    return code >= 0xdc00 && code < 0xe000 ? NULL : "lone surrogate in a string";
}

/* One character that is not ASCII. */
static bool scan_utf8(scanner *s)
{
    const unsigned char *t = s->text + s->at;
    size_t n = t[0] >= 0xf0 ? 4 : t[0] >= 0xe0 ? 3 : 2;
    uint32_t code = t[0] & (0xffu >> (n + 1));

    if (t[0] < 0xc2 || t[0] > 0xf4 || n > s->len - s->at)
        return false;
    for (size_t i = 1; i < n; i++) {
        if ((t[i] & 0xc0) != 0x80)
            return false;
        code = code << 6 | (t[i] & 0x3f);
    }
    if ((n == 3 && code < 0x800) || (n == 4 && (code < 0x10000 || code > 0x10ffff)) ||
        (code >= 0xd800 && code < 0xe000))
        return false;
    s->at += n;
    return true;
}

/* A character that may not stand in a string is noted, once for each string, and reading goes on: the string has an end
 * all the same. */
static int scan_string(scanner *s, const pt2_path *path)
{
    const char *wrong = NULL, *first = NULL;

    s->at++;
    for (;;) {
        int c = peek(s);
        if (c < 0)
            return syntax(s, path, "a string has no end");
        wrong = NULL;
        if (c < 0x20)
            wrong = "control character in a string";
        else if (c >= 0x80 && !scan_utf8(s))
            wrong = "a string is not UTF-8";
        if (wrong || c < 0x80)
            s->at++;
        if (c == '\\')
            wrong = scan_escape(s);
        if (wrong && !first) {
            first = wrong;
            s->bad_strings++;
            (void)syntax(s, path, wrong);
        }
        if (c == '"')
            return 0;
    }
}

/* Nothing but a delimiter may stand behind a number or a word. */
static int scan_word_end(const scanner *s, const pt2_path *path)
{
    int c = peek(s);

    if (c < 0 || strchr(" \t\n\r,]}", c))
        return c == 0 ? syntax(s, path, "NUL byte") : 0;
    return syntax(s, path, "unexpected character");
}

static bool scan_digits(scanner *s)
{
    size_t start = s->at;

    while (is_digit(peek(s)))
        s->at++;
    return s->at > start;
}

static int scan_number(scanner *s, const pt2_path *path)
{
    if (peek(s) == '-')
        s->at++;
    if (peek(s) == '0') {
        s->at++;
        if (is_digit(peek(s)))
            return syntax(s, path, "a number starts with 0");
    } else if (!scan_digits(s)) {
        return syntax(s, path, "a number has no digits");
    }
    if (peek(s) == '.') {
        s->at++;
        if (!scan_digits(s))
            return syntax(s, path, "no digit after a decimal point");
    }
    if (peek(s) == 'e' || peek(s) == 'E') {
        s->at++;
        if (peek(s) == '+' || peek(s) == '-')
            s->at++;
        if (!scan_digits(s))
            return syntax(s, path, "no digit in an exponent");
    }
    return scan_word_end(s, path);
}

static int scan_word(scanner *s, const pt2_path *path)
{
    static const char *const words[] = {"true", "false", "null", "NaN", "Infinity", "-Infinity"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t len = strlen(words[i]);
        if (len <= s->len - s->at && memcmp(s->text + s->at, words[i], len) == 0) {
            s->at += len;
            return scan_word_end(s, path);
        }
    }
    if (peek(s) == '-')
        return scan_number(s, path);
    return syntax(s, path, s->at < s->len ? "a value is expected" : "the text ends too early");
}

static int scan_value(scanner *s, const pt2_path *path, uint32_t depth);

static int scan_key(scanner *s, const pt2_path *object, pt2_path *child)
{
    skip_space(s);
    if (peek(s) != '"')
        return syntax(s, object, s->at < s->len ? "a key is expected" : "the text ends too early");
    child->key = (const char *)s->text + s->at + 1; /* as it is written: escapes and all */
    child->key_len = 0;
    if (scan_string(s, object) < 0)
        return -1;
    child->key_len = (size_t)((const char *)s->text + s->at - child->key) - 1;
    skip_space(s);
    if (peek(s) != ':')
        return syntax(s, child, "':' is expected");
    s->at++;
    return 0;
}

static int scan_container(scanner *s, const pt2_path *path, uint32_t depth)
{
    bool is_object = peek(s) == '{';
    char close = is_object ? '}' : ']';
    pt2_path child = {.parent = path};

    if (depth > s->depth_limit)
        return too_deep(path, depth, s->report);
    s->at++;
    skip_space(s);
    if (peek(s) == close) {
        s->at++;
        return 0;
    }
    for (;; child.index++) {
        if (is_object && scan_key(s, path, &child) < 0)
            return -1;
        if (scan_value(s, &child, depth) < 0)
            return -1;
        skip_space(s);
        if (peek(s) == close) {
            s->at++;
            return 0;
        }
        if (peek(s) != ',')
            return syntax(s, path, s->at < s->len ? "',' or a closing bracket is expected" : "the text ends too early");
        s->at++;
    }
}

static int scan_value(scanner *s, const pt2_path *path, uint32_t depth)
{
    skip_space(s);
    int c = peek(s);

    if (c == '{' || c == '[')
        return scan_container(s, path, depth + 1);
    if (c == '"')
        return scan_string(s, path);
    return is_digit(c) ? scan_number(s, path) : scan_word(s, path);
}

int pt2_json_explain(const char *text, size_t len, const pt2_path *prefix, pt2_report *r)
{
    pt2_path root = {.parent = NULL};
    const pt2_path *path = prefix ? prefix : &root;
    scanner s = {.text = (const unsigned char *)text, .len = len, .report = r, .depth_limit = max_depth(r)};

    if (!len)
        return syntax(&s, path, "the text is empty");
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        return syntax(&s, path, "byte order mark");
    if (scan_value(&s, path, 0) < 0)
        return -1;
    skip_space(&s);
    if (s.at < len)
        return syntax(&s, path, "text after the document");
    return s.bad_strings ? -1 : syntax(&s, path, "syntax error");
}

/* ---- numbers ---- */

bool pt2_json_is_number(const yyjson_val *v)
{
    return type_of(v) == YYJSON_TYPE_RAW;
}

bool pt2_json_is_integer(const yyjson_val *v)
{
    const char *text;
    size_t len;

    if (!pt2_json_is_number(v))
        return false;
    text = text_of(v);
    len = length_of(v);
    for (size_t i = text[0] == '-'; i < len; i++)
        if (text[i] < '0' || text[i] > '9')
            return false;
    return true;
}

bool pt2_json_int(const yyjson_val *v, int64_t *out)
{
    const char *text;
    size_t len, at;
    uint64_t value = 0;

    if (!pt2_json_is_number(v))
        return false;
    text = text_of(v);
    len = length_of(v);
    at = text[0] == '-';
    if (at == len || len - at > 19) /* no leading zeros in JSON */
        return false;
    for (size_t i = at; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    if (value > (uint64_t)INT64_MAX + at)
        return false;
    *out = at ? (int64_t)(0 - value) : (int64_t)value;
    return true;
}

bool pt2_json_real(const yyjson_val *v, double *out)
{
    yyjson_val number;

    if (!pt2_json_is_number(v) && type_of(v) != YYJSON_TYPE_STR)
        return false;
    if (is_text(v, "NaN"))
        *out = NAN;
    else if (is_text(v, "Infinity"))
        *out = INFINITY;
    else if (is_text(v, "-Infinity"))
        *out = -INFINITY;
    else if (!pt2_json_is_number(v) || !yyjson_read_number(text_of(v), &number, 0, NULL, NULL))
        return false;
    else
        *out = unsafe_yyjson_get_num(&number);
    return true;
}

/* ---- writing ---- */

static void add_unit(fe_buffer *out, uint32_t unit)
{
    static const char digits[] = "0123456789abcdef";
    char text[6] = {
        '\\', 'u', digits[unit >> 12 & 15], digits[unit >> 8 & 15], digits[unit >> 4 & 15], digits[unit & 15]};

    fe_buffer_add(out, text, sizeof text);
}

/* A character that is not ASCII, of valid UTF-8. Returns how many bytes it takes. */
static size_t add_character(fe_buffer *out, const unsigned char *t, size_t left)
{
    size_t n = t[0] >= 0xf0 ? 4 : t[0] >= 0xe0 ? 3 : 2;
    uint32_t code = t[0] & (0xffu >> (n + 1));

    if (t[0] < 0xc0 || n > left) { /* not UTF-8: no caller gives that, but nothing may read past the end */
        add_unit(out, 0xfffd);
        return 1;
    }
    for (size_t i = 1; i < n; i++)
        code = code << 6 | (t[i] & 0x3f);
    if (code < 0x10000) {
        add_unit(out, code);
    } else {
        add_unit(out, 0xd800 + ((code - 0x10000) >> 10 & 0x3ff));
        add_unit(out, 0xdc00 + (code & 0x3ff));
    }
    return n;
}

static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

#define EACH_BYTE(c) (UINT64_C(0x0101010101010101) * (c))

/* The high bit of each byte of x that is zero (and perhaps of some above one that is). */
static uint64_t zero_bytes(uint64_t x)
{
    return (x - EACH_BYTE(1)) & ~x & EACH_BYTE(0x80);
}

/* How many characters from the start are written as they are; eight at a time, as texts are most of a document. */
static size_t plain_length(const unsigned char *t, size_t len)
{
    size_t i = 0;
    uint64_t x;

    for (; len - i >= sizeof x; i += sizeof x) {
        memcpy(&x, t + i, sizeof x);
        uint64_t control = (x - EACH_BYTE(0x20)) & ~x;
        if (((x | control) & EACH_BYTE(0x80)) | zero_bytes(x ^ EACH_BYTE('"')) | zero_bytes(x ^ EACH_BYTE('\\')) |
            zero_bytes(x ^ EACH_BYTE(0x7f)))
            break;
    }
    while (i < len && is_plain(t[i]))
        i++;
    return i;
}

void pt2_json_quote(const char *text, size_t len, fe_buffer *out)
{
    const unsigned char *t = (const unsigned char *)text;
    size_t plain = 0;

    fe_buffer_char(out, '"');
    for (size_t i = 0;;) {
        i += plain_length(t + i, len - i);
        if (i == len)
            break;
        fe_buffer_add(out, text + plain, i - plain);
        const char *at = t[i] ? strchr("\"\"\\\\\bb\ff\nn\rr\tt", t[i]) : NULL; /* pairs: character, letter */
        if (at && t[i] < 0x80) {
            char pair[2] = {'\\', at[1]};
            fe_buffer_add(out, pair, 2);
            i++;
        } else if (t[i] < 0x80) {
            add_unit(out, t[i++]);
        } else {
            i += add_character(out, t + i, len - i);
        }
        plain = i;
    }
    fe_buffer_add(out, text + plain, len - plain);
    fe_buffer_char(out, '"');
}

static void write_container(yyjson_val *v, fe_buffer *out)
{
    bool is_object = type_of(v) == YYJSON_TYPE_OBJ;
    size_t count = length_of(v);
    yyjson_val *at = unsafe_yyjson_get_first(v);

    fe_buffer_char(out, is_object ? '{' : '[');
    for (size_t i = 0; i < count; i++, at = unsafe_yyjson_get_next(at)) {
        if (i)
            fe_buffer_add(out, ", ", 2);
        if (is_object) {
            pt2_json_quote(text_of(at), length_of(at), out);
            fe_buffer_add(out, ": ", 2);
            at++;
        }
        pt2_json_write(at, out);
    }
    fe_buffer_char(out, is_object ? '}' : ']');
}

void pt2_json_write(yyjson_val *v, fe_buffer *out)
{
    switch (type_of(v)) {
    case YYJSON_TYPE_ARR:
    case YYJSON_TYPE_OBJ:
        write_container(v, out); /* as deep as the document, which is limited */
        break;
    case YYJSON_TYPE_STR:
        pt2_json_quote(text_of(v), length_of(v), out);
        break;
    case YYJSON_TYPE_RAW:
        fe_buffer_add(out, text_of(v), length_of(v));
        break;
    case YYJSON_TYPE_BOOL:
        fe_buffer_text(out, unsafe_yyjson_get_bool(v) ? "true" : "false");
        break;
    default:
        fe_buffer_text(out, "null");
    }
}
