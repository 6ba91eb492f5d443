/* archive_names.c - safe names of entries, and the table that finds them. */
#include "archive_internal.h"

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* The UTF-8 character at s and its length; 0: there is none. */
static size_t decode_utf8(const char *s, size_t left, uint32_t *out)
{
    unsigned char first = (unsigned char)s[0];
    size_t n = first < 0x80 ? 1 : first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t c = n == 1 ? first : first & (0xffu >> (n + 1));

    if (n > left || (first >= 0x80 && first < 0xc2) || first > 0xf4)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if (((unsigned char)s[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | ((unsigned char)s[i] & 0x3f);
    }
    *out = c;
    return c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : n;
}

static const char *part_fault(const char *part, size_t len)
{
    if (len == 0)
        return "has an empty part";
    if (part[0] == '.' && (len == 1 || (len == 2 && part[1] == '.')))
        return len == 1 ? "has the part '.'" : "has the part '..'";
    if (len >= 2 && is_letter(part[0]) && part[1] == ':')
        return "has a drive letter";
    return NULL;
}

const char *pt2_entry_name_fault(const char *name, size_t len)
{
    const char *part = name, *end = name + len, *fault;
    uint32_t c;

    if (len == 0)
        return "is empty";
    if (name[0] == '/')
        return "is absolute";
    for (const char *at = name; at < end;) {
        size_t n = decode_utf8(at, (size_t)(end - at), &c);
        if (n == 0)
            return "is not UTF-8";
        if (c < 0x20 || (c >= 0x7f && c < 0xa0))
            return "has a control character";
        if (c == '\\')
            return "has a backslash";
        at += n;
        if (c != '/')
            continue;
        fault = part_fault(part, (size_t)(at - 1 - part));
        if (fault)
            return fault;
        part = at;
    }
    return part == end ? NULL : part_fault(part, (size_t)(end - part)); /* a folder's name ends in "/" */
}

bool pt2_has_format_characters(const char *name, size_t len)
{
    uint32_t c = 0;

    for (size_t i = 0, n; i < len; i += n) {
        n = decode_utf8(name + i, len - i, &c);
        if (c == 0xad || c == 0x61c || (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
            (c >= 0x2060 && c <= 0x206f) || c == 0xfeff)
            return true;
        if (n == 0)
            break;
    }
    return false;
}

/* ---- the table of names ---- */

/* More names than this on one hash were chosen to be there. */
#define MAX_PROBES 1000

static char fold(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

/* FNV-1a, one step; what a prefix hashes to is then known on the way. */
static uint64_t hash_step(uint64_t hash, char c)
{
    return (hash ^ (unsigned char)fold(c)) * UINT64_C(0x100000001b3);
}

#define HASH_START UINT64_C(0xcbf29ce484222325)

uint64_t pt2_name_hash(const char *name, size_t len)
{
    uint64_t hash = HASH_START;

    for (size_t i = 0; i < len; i++)
        hash = hash_step(hash, name[i]);
    return hash;
}

static bool same_folded(const char *stored, const char *name, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (fold(stored[i]) != fold(name[i])) /* also where the stored one ends */
            return false;
    return stored[len] == '\0';
}

/* The slot of a name in any case, or the free one where it would go; NULL: too many others are in its way. */
static uint32_t *find_slot(const pt2_names *names, uint64_t hash, const char *name, size_t len)
{
    uint32_t at = (uint32_t)fe_mix(hash) & names->mask;

    for (uint32_t probes = 0; probes < MAX_PROBES; probes++, at = (at + 1) & names->mask) {
        uint32_t *slot = &names->slots[at];
        if (*slot == 0 || same_folded(names->entries[*slot - 1].name, name, len))
            return slot;
    }
    return NULL;
}

static int add_name(pt2_names *names, uint32_t index, pt2_report *r)
{
    const char *name = names->entries[index].name;
    size_t len = strlen(name);
    uint32_t *slot = find_slot(names, pt2_name_hash(name, len), name, len);

    if (!slot)
        return pt2_fail(r, PT2_LIMIT, name, NULL, "too many names with one hash");
    if (*slot) {
        const char *other = names->entries[*slot - 1].name;
        return pt2_fail(r, PT2_DUPLICATE_ENTRY, name, NULL,
                        strcmp(other, name) == 0 ? "the name is there twice"
                                                 : "the name differs from '%s' in upper and lower case only",
                        other);
    }
    *slot = index + 1;
    return 0;
}

/* No part of the way to an entry may be a file. */
static int check_folders(const pt2_names *names, const pt2_entry *e, pt2_report *r)
{
    uint64_t hash = HASH_START;
    uint32_t *slot;

    for (const char *at = e->name; *at; at++) {
        if (*at == '/') {
            slot = find_slot(names, hash, e->name, (size_t)(at - e->name));
            if (slot && *slot && !names->entries[*slot - 1].is_folder)
                return pt2_fail(r, PT2_LAYOUT, names->entries[*slot - 1].name, NULL,
                                "the entry is a file and, by '%s', also a folder", e->name);
        }
        hash = hash_step(hash, *at);
    }
    return 0;
}

int pt2_names_init(pt2_names *names, const pt2_entry *entries, uint32_t count, const fe_allocator *a, pt2_report *r)
{
    uint32_t errors = r->errors;
    size_t slots = 16;

    while (slots < (size_t)count * 2)
        slots *= 2;
    *names = (pt2_names){.entries = entries, .mask = (uint32_t)(slots - 1)};
    names->slots = fe_resize(a, NULL, slots * sizeof *names->slots);
    if (!names->slots)
        return pt2_no_memory(r);
    memset(names->slots, 0, slots * sizeof *names->slots);
    for (uint32_t i = 0; i < count; i++)
        add_name(names, i, r);
    for (uint32_t i = 0; i < count; i++)
        check_folders(names, &entries[i], r);
    return r->errors == errors && !r->no_memory ? 0 : -1;
}

void pt2_names_clear(pt2_names *names, const fe_allocator *a)
{
    fe_resize(a, names->slots, 0);
    *names = (pt2_names){.slots = NULL};
}

const pt2_entry *pt2_names_find(const pt2_names *names, const char *name, size_t len)
{
    const uint32_t *slot = find_slot(names, pt2_name_hash(name, len), name, len);

    if (!slot || !*slot)
        return NULL;
    const pt2_entry *e = &names->entries[*slot - 1];
    return memcmp(e->name, name, len) == 0 ? e : NULL;
}
