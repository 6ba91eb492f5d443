/* report.c - collects faults; see report.h. Texts live in one block for each fault. */
#include "report.h"

#include <stdarg.h>
#include <stdio.h>

const pt2_limits pt2_default_limits = {
    .entries = 1000000,
    .json_bytes = UINT64_C(4) << 30,
    .inflate_ratio = 1000,
    .inflate_bytes = UINT64_C(16) << 30,
    .json_depth = 512,
    .graph_depth = 64,
    .expr_depth = 200,
    .expr_bytes = 1 << 20,
    .checked_bytes = UINT64_C(64) << 20,
    .faults = 1000,
};

const char *pt2_kind_code(pt2_kind kind)
{
    static const char *const codes[] = {
#define X(id, code, name) code,
        PT2_KINDS(X)
#undef X
    };
    return codes[kind];
}

const char *pt2_kind_name(pt2_kind kind)
{
    static const char *const names[] = {
#define X(id, code, name) name,
        PT2_KINDS(X)
#undef X
    };
    return names[kind];
}

void pt2_report_init(pt2_report *r, const fe_allocator *a, const pt2_limits *limits)
{
    *r = (pt2_report){.allocator = a, .limits = limits ? limits : &pt2_default_limits};
}

void pt2_report_clear(pt2_report *r)
{
    for (uint32_t i = 0; i < r->count; i++)
        fe_resize(r->allocator, (void *)(uintptr_t)r->items[i].message, 0);
    fe_resize(r->allocator, r->items, 0);
    pt2_report_init(r, r->allocator, r->limits);
}

int pt2_no_memory(pt2_report *r)
{
    r->no_memory = true;
    return -1;
}

/* ---- texts ---- */

/* How many bytes a printable UTF-8 character takes here; 0 when what stands here is to be escaped. */
static size_t printable(const unsigned char *s, size_t left)
{
    uint32_t c;
    size_t n = s[0] < 0x80 ? 1 : s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : s[0] >= 0xc2 ? 2 : 0;

    if (!n || n > left || s[0] > 0xf4)
        return 0;
    if (n == 1)
        return s[0] >= 0x20 && s[0] != 0x7f;
    c = s[0] & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (s[i] & 0x3f);
    }
    if ((n == 3 && c < 0x800) || (n == 4 && c < 0x10000) || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return 0;
    /* C1 controls, and characters that turn text round or hide in it */
    bool hidden = c < 0xa0 || (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
                  (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || c == 0xad || c == 0x61c;
    return hidden ? 0 : n;
}

static void add_escaped(fe_buffer *out, const char *text, size_t len)
{
    char code[8];

    for (size_t i = 0; i < len;) {
        size_t n = printable((const unsigned char *)text + i, len - i);
        if (n) {
            fe_buffer_add(out, text + i, n);
            i += n;
            continue;
        }
        snprintf(code, sizeof code, "\\x%02x", (unsigned)(unsigned char)text[i++]);
        fe_buffer_text(out, code);
    }
}

const char *pt2_show(pt2_shown *out, const char *text, size_t len)
{
    static const char nul[] = "\\x00";
    size_t at = 0;

    for (size_t i = 0; i < len && at < sizeof out->text - sizeof nul; i++) {
        if (text[i]) {
            out->text[at++] = text[i];
        } else {
            memcpy(out->text + at, nul, sizeof nul - 1);
            at += sizeof nul - 1;
        }
    }
    out->text[at] = '\0';
    return out->text;
}

static bool is_plain_key(const char *key, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        char c = key[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (i && c >= '0' && c <= '9')))
            return false;
    }
    return len > 0;
}

#define SHOWN_KEY 100 /* bytes of a key; more is cut */

static void add_key(fe_buffer *out, const char *key, size_t len)
{
    if (is_plain_key(key, len) && len <= SHOWN_KEY) {
        fe_buffer_char(out, '.');
        fe_buffer_add(out, key, len);
        return;
    }
    fe_buffer_text(out, "['");
    for (size_t i = 0; i < len && i < SHOWN_KEY; i++) {
        if (key[i] == '\'' || key[i] == '\\')
            fe_buffer_char(out, '\\');
        fe_buffer_char(out, key[i]);
    }
    fe_buffer_text(out, len > SHOWN_KEY ? "...']" : "']");
}

void pt2_path_text(const pt2_path *path, fe_buffer *out)
{
    if (!path->parent) {
        fe_buffer_char(out, '$');
        return;
    }
    pt2_path_text(path->parent, out); /* as deep as the document, which is limited */
    if (path->key) {
        add_key(out, path->key, path->key_len);
        return;
    }
    fe_buffer_char(out, '[');
    fe_buffer_int(out, (int64_t)path->index);
    fe_buffer_char(out, ']');
}

/* ---- faults ---- */

#define MAX_MESSAGE 2000

/* Append a text with its NUL and give where it starts. */
static size_t add_text(fe_buffer *block, const char *text, size_t len)
{
    size_t at = block->len;

    add_escaped(block, text, len);
    fe_buffer_char(block, '\0');
    return at;
}

static void add_fault(pt2_report *r, pt2_fault fault, const pt2_path *path, const char *format, va_list args)
{
    char message[MAX_MESSAGE];
    fe_buffer block, path_text;
    fe_error err;

    if (fault.severity == PT2_ERROR)
        r->errors++;
    else
        r->warnings++;
    if (r->limits->faults && r->count >= r->limits->faults)
        return;
    int n = vsnprintf(message, sizeof message, format, args);
    size_t len = n < 0 ? 0 : (size_t)n < sizeof message ? (size_t)n : sizeof message - 1;

    fe_buffer_init(&block, r->allocator);
    fe_buffer_init(&path_text, r->allocator);
    if (path)
        pt2_path_text(path, &path_text);
    add_text(&block, message, len); /* first: the block is freed through it */
    size_t entry = fault.entry ? add_text(&block, fault.entry, strlen(fault.entry)) : 0;
    size_t node = fault.node ? add_text(&block, fault.node, strlen(fault.node)) : 0;
    size_t where = path ? add_text(&block, path_text.data ? path_text.data : "", path_text.len) : 0;
    bool failed = block.failed || path_text.failed;
    fe_buffer_clear(&path_text);
    if (failed || fe_grow(r->allocator, &r->items, &r->capacity, (size_t)r->count + 1, sizeof *r->items, &err) < 0) {
        fe_buffer_clear(&block);
        r->no_memory = true;
        return;
    }
    fault.message = block.data;
    fault.entry = fault.entry ? block.data + entry : NULL;
    fault.node = fault.node ? block.data + node : NULL;
    fault.path = path ? block.data + where : NULL;
    r->items[r->count++] = fault;
}

int pt2_fail(pt2_report *r, pt2_kind kind, const char *entry, const pt2_path *path, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    add_fault(r, (pt2_fault){.kind = kind, .severity = PT2_ERROR, .entry = entry ? entry : r->entry}, path, format,
              args);
    va_end(args);
    return -1;
}

int pt2_fail_io(pt2_report *r, int code, const char *entry, const char *format, ...)
{
    va_list args;

    if (!r->system_error)
        r->system_error = code;
    va_start(args, format);
    add_fault(r, (pt2_fault){.kind = PT2_IO, .severity = PT2_ERROR, .entry = entry ? entry : r->entry}, NULL, format,
              args);
    va_end(args);
    return -1;
}

int pt2_fail_node(pt2_report *r, pt2_kind kind, const pt2_path *path, const char *node, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    add_fault(r, (pt2_fault){.kind = kind, .severity = PT2_ERROR, .entry = r->entry, .node = node}, path, format, args);
    va_end(args);
    return -1;
}

void pt2_warn(pt2_report *r, pt2_kind kind, const char *entry, const pt2_path *path, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    add_fault(r, (pt2_fault){.kind = kind, .severity = PT2_WARNING, .entry = entry ? entry : r->entry}, path, format,
              args);
    va_end(args);
}

void pt2_warn_node(pt2_report *r, pt2_kind kind, const pt2_path *path, const char *node, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    add_fault(r, (pt2_fault){.kind = kind, .severity = PT2_WARNING, .entry = r->entry, .node = node}, path, format,
              args);
    va_end(args);
}
