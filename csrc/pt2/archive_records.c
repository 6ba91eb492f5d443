/* archive_records.c - holds central records against local headers, and the entries against each other. */
#include "archive_internal.h"

#include <stdlib.h>

#define MAX_VERSION 63     /* of the zip specification that we know, times ten */
#define MAX_INFLATION 1040 /* deflate reaches 1032:1 */
#define MAX_DESCRIPTOR 24  /* bytes */
#define FLAGS_COMPARED (ENCRYPTED | HAS_DESCRIPTOR | STRONGLY_ENCRYPTED | IS_UTF8 | MASKED)

/* ---- records ---- */

/* Where an entry is, while the archive is opened. */
typedef struct {
    uint64_t at, end; /* from its local header to the end of its descriptor */
    uint32_t index;
    uint32_t date; /* and time, as DOS counts */
    uint16_t flags;
    bool good; /* so far */
} place;

#define ID_ZIP64 1
#define ID_UNICODE_NAME 0x7075

/* The numbers that a zip64 field may hold for a record. */
typedef struct {
    uint64_t *size, *packed, *offset; /* offset: NULL in a local header */
} wide_numbers;

/* Take the numbers that did not fit from a zip64 field, in their fixed order; NULL: done, or what is wrong. */
static const char *widen(const unsigned char *data, size_t len, wide_numbers n)
{
    uint64_t *numbers[] = {n.size, n.packed, n.offset};

    for (size_t i = 0; i < 3; i++) {
        if (!numbers[i] || *numbers[i] != UINT32_MAX)
            continue;
        if (len < 8)
            return "the zip64 field is cut short";
        *numbers[i] = pt2_get64(data);
        data += 8;
        len -= 8;
    }
    return NULL;
}

/* Check the extra fields of a record and read its zip64 numbers; NULL: fine, or what is wrong. */
static const char *read_extra(const unsigned char *p, size_t len, const char *name, wide_numbers n, bool *has_zip64)
{
    bool is_wide = *n.size == UINT32_MAX || *n.packed == UINT32_MAX || (n.offset && *n.offset == UINT32_MAX);

    *has_zip64 = false;
    while (len >= 4) {
        size_t field = pt2_get16(p + 2);
        if (field > len - 4)
            return "an extra field runs past the others";
        if (pt2_get16(p) == ID_ZIP64) {
            const char *fault = *has_zip64 ? "two zip64 fields" : widen(p + 4, field, n);
            if (fault)
                return fault;
            *has_zip64 = true;
        }
        if (pt2_get16(p) == ID_UNICODE_NAME &&
            (field < 5 || field - 5 != strlen(name) || memcmp(p + 9, name, field - 5) != 0))
            return "an extra field gives another name";
        p += 4 + field;
        len -= 4 + field;
    }
    while (len > 0) /* some writers align with up to three zeros */
        if (p[--len])
            return "bytes after the extra fields";
    return is_wide && !*has_zip64 ? "the zip64 field is missing" : NULL;
}

/* Methods and flags that we cannot, or will not, read. */
static int check_method(pt2_opening *o, const pt2_entry *e, uint16_t flags)
{
    if (flags & (ENCRYPTED | STRONGLY_ENCRYPTED | MASKED))
        return pt2_fail(o->r, PT2_UNSUPPORTED, e->name, NULL, "the entry is encrypted");
    if (e->method != PT2_STORED && e->method != PT2_DEFLATED)
        return pt2_fail(o->r, PT2_UNSUPPORTED, e->name, NULL,
                        "compression method %u; only stored and deflated entries can be read", e->method);
    return 0;
}

static int check_sizes(pt2_opening *o, const pt2_entry *e)
{
    if (e->packed > o->directory_at)
        return pt2_fail(o->r, PT2_ZIP, e->name, NULL, "the entry says that it has %llu bytes, the file has %llu",
                        (unsigned long long)e->packed, (unsigned long long)o->archive->size);
    if (e->method == PT2_STORED && e->packed != e->size)
        return pt2_fail(o->r, PT2_ZIP, e->name, NULL, "stored, but %llu bytes are packed to %llu",
                        (unsigned long long)e->size, (unsigned long long)e->packed);
    if (e->method == PT2_DEFLATED && e->size / MAX_INFLATION > e->packed)
        return pt2_fail(o->r, PT2_ZIP, e->name, NULL, "%llu bytes cannot inflate to %llu",
                        (unsigned long long)e->packed, (unsigned long long)e->size);
    if (e->is_folder && e->size)
        return pt2_fail(o->r, PT2_ZIP, e->name, NULL, "a folder with %llu bytes", (unsigned long long)e->size);
    return 0;
}

/* Unix keeps the kind of file in the upper half of the attributes. */
static int check_kind(pt2_opening *o, const pt2_entry *e, uint32_t attributes)
{
    uint32_t kind = attributes >> 16 & 0170000;

    if (kind == 0 || kind == 0100000 || (kind == 0040000 && e->is_folder))
        return 0;
    return pt2_fail(o->r, PT2_UNSAFE_NAME, e->name, NULL,
                    kind == 0120000 ? "the entry is a symbolic link" : "the entry is not a plain file (mode %o)",
                    (unsigned)(attributes >> 16));
}

/* Read the central record of an entry. */
static int read_record(pt2_opening *o, const unsigned char *p, pt2_entry *e, place *where)
{
    uint64_t at = pt2_get32(p + 42);
    size_t name_len = pt2_get16(p + 28);
    bool has_zip64;

    e->method = pt2_get16(p + 10);
    e->crc = pt2_get32(p + 16);
    e->packed = pt2_get32(p + 20);
    e->size = pt2_get32(p + 24);
    if (pt2_get16(p + 6) > MAX_VERSION)
        pt2_warn(o->r, PT2_ZIP, e->name, NULL, "version needed %u is newer than the zip format known here",
                 pt2_get16(p + 6));
    const char *fault = read_extra(p + CENTRAL_LEN + name_len, pt2_get16(p + 30), e->full_name,
                                   (wide_numbers){&e->size, &e->packed, &at}, &has_zip64);
    if (fault)
        return pt2_fail(o->r, PT2_ZIP, e->name, NULL, "%s in the central directory", fault);
    if (check_method(o, e, pt2_get16(p + 8)) < 0 || check_sizes(o, e) < 0 || check_kind(o, e, pt2_get32(p + 38)) < 0)
        return -1;
    if (pt2_get16(p + 34))
        return pt2_fail(o->r, PT2_ZIP, e->name, NULL, "the entry is in another part of the archive");
    if (at > o->directory_at || o->directory_at - at < LOCAL_LEN + name_len)
        return pt2_fail(o->r, PT2_ZIP, e->name, NULL, "its local header would be at byte %llu, past the entries",
                        (unsigned long long)at);
    if (e->is_folder && strcmp(e->name, "models/") == 0)
        pt2_warn(o->r, PT2_LAYOUT, e->name, NULL, "an entry for the folder itself: torch takes it for a model");
    *where = (place){.at = at,
                     .index = (uint32_t)(e - o->archive->entries),
                     .date = pt2_get32(p + 12),
                     .flags = pt2_get16(p + 8),
                     .good = true};
    return 0;
}

/* ---- local headers ---- */

typedef struct {
    uint16_t flags, method;
    uint32_t date, crc;
    uint64_t packed, size;
    size_t name_len, extra_len;
} local_header;

static local_header parse_local(const unsigned char *p)
{
    return (local_header){.flags = pt2_get16(p + 6),
                          .method = pt2_get16(p + 8),
                          .date = pt2_get32(p + 10),
                          .crc = pt2_get32(p + 14),
                          .packed = pt2_get32(p + 18),
                          .size = pt2_get32(p + 22),
                          .name_len = pt2_get16(p + 26),
                          .extra_len = pt2_get16(p + 28)};
}

/* What a local header must have in common with its central record. */
static int compare_local(pt2_opening *o, const pt2_entry *e, const place *where, const local_header *l)
{
    bool later = where->flags & HAS_DESCRIPTOR; /* CRC and sizes may follow the data */

    if (l->method != e->method)
        return pt2_fail(o->r, PT2_ZIP, e->name, NULL,
                        "compression method %u in the central directory, %u in the local header", e->method, l->method);
    if ((l->flags ^ where->flags) & FLAGS_COMPARED)
        return pt2_fail(o->r, PT2_ZIP, e->name, NULL, "flags %04x in the central directory, %04x in the local header",
                        where->flags, l->flags);
    if (l->crc != e->crc && !(later && l->crc == 0))
        return pt2_fail(o->r, PT2_ZIP, e->name, NULL,
                        "the CRC is %08x in the central directory, %08x in the local header", e->crc, l->crc);
    if ((l->size != e->size && !(later && l->size == 0)) || (l->packed != e->packed && !(later && l->packed == 0)))
        return pt2_fail(o->r, PT2_ZIP, e->name, NULL, "%llu bytes in the central directory, %llu in the local header",
                        (unsigned long long)(l->size != e->size ? e->size : e->packed),
                        (unsigned long long)(l->size != e->size ? l->size : l->packed));
    if (l->date != where->date)
        pt2_warn(o->r, PT2_ZIP, e->name, NULL, "its date in the central directory is not that of the local header");
    return 0;
}

/* Does a descriptor with sizes of `width` bytes stand at p? */
static bool is_descriptor(const unsigned char *p, size_t width, const pt2_entry *e)
{
    uint64_t packed = width == 8 ? pt2_get64(p + 4) : pt2_get32(p + 4);
    uint64_t size = width == 8 ? pt2_get64(p + 12) : pt2_get32(p + 8);

    return pt2_get32(p) == e->crc && packed == e->packed && size == e->size;
}

/* The descriptor after the data: its signature is optional, its sizes have 8 bytes in zip64. */
static int check_descriptor(pt2_opening *o, const pt2_entry *e, bool has_zip64, place *where)
{
    uint64_t left = o->directory_at - where->end;
    size_t len = left < MAX_DESCRIPTOR ? (size_t)left : MAX_DESCRIPTOR;
    const unsigned char *p = pt2_peek(o, where->end, len, e->name);

    if (!p)
        return -1;
    for (size_t i = 0; i < 4; i++) {
        size_t width = (i & 1) == has_zip64 ? 4 : 8, sig = i < 2 ? 4 : 0;
        if (len < sig + 4 + 2 * width || (sig && pt2_get32(p) != DESCRIPTOR_SIG) || !is_descriptor(p + sig, width, e))
            continue;
        where->end += sig + 4 + 2 * width;
        return 0;
    }
    return pt2_fail(o->r, PT2_ZIP, e->name, NULL, "the data descriptor does not agree with the central directory");
}

/* The fault is the entry's, or that of the local name if no entry has it: then the central one is likely to be
 * damaged. */
static int name_differs(pt2_opening *o, const pt2_entry *e, const char *local, size_t len)
{
    size_t top = (size_t)(e->name - e->full_name);
    char below[512];

    if (len > top && len - top < sizeof below && !memchr(local, '\0', len) && memcmp(local, e->full_name, top) == 0 &&
        !pt2_names_find(&o->archive->names, local + top, len - top)) {
        memcpy(below, local + top, len - top);
        below[len - top] = '\0';
        return pt2_fail(o->r, PT2_ZIP, below, NULL, "the central directory gives another name, '%s'", e->full_name);
    }
    return pt2_fail(o->r, PT2_ZIP, e->name, NULL, "the local header gives another name, '%.*s'", (int)len, local);
}

static int check_local(pt2_opening *o, pt2_entry *e, place *where)
{
    size_t name_len = strlen(e->full_name);
    const unsigned char *p = pt2_peek(o, where->at, LOCAL_LEN, e->name);
    bool has_zip64;

    if (!p)
        return -1;
    if (pt2_get32(p) != LOCAL_SIG)
        return pt2_fail(o->r, PT2_ZIP, e->name, NULL, "there is no local header at byte %llu",
                        (unsigned long long)where->at);
    local_header l = parse_local(p);
    size_t len = LOCAL_LEN + l.name_len + l.extra_len;
    if (len > o->directory_at - where->at)
        return pt2_fail(o->r, PT2_ZIP, e->name, NULL, "the local header runs past the entries");
    if (!(p = pt2_peek(o, where->at, len, e->name)))
        return -1;
    if (l.name_len != name_len || memcmp(p + LOCAL_LEN, e->full_name, name_len) != 0)
        return name_differs(o, e, (const char *)p + LOCAL_LEN, l.name_len);
    const char *fault = read_extra(p + LOCAL_LEN + name_len, l.extra_len, e->full_name,
                                   (wide_numbers){&l.size, &l.packed, NULL}, &has_zip64);
    if (fault)
        return pt2_fail(o->r, PT2_ZIP, e->name, NULL, "%s in the local header", fault);
    if (compare_local(o, e, where, &l) < 0)
        return -1;
    e->offset = where->at + len;
    if (e->packed > o->directory_at - e->offset)
        return pt2_fail(o->r, PT2_ZIP, e->name, NULL, "the data runs past the entries");
    where->end = e->offset + e->packed;
    return where->flags & HAS_DESCRIPTOR ? check_descriptor(o, e, has_zip64, where) : 0;
}

/* ---- the whole ---- */

static int compare_places(const void *left, const void *right)
{
    const place *a = left, *b = right;

    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

/* Entries in the order of the file: none may reach into the next. */
static int check_layout(pt2_opening *o, const place *places)
{
    const pt2_archive *archive = o->archive;
    uint64_t end = 0;

    if (places[0].at != 0)
        return pt2_fail(o->r, PT2_ZIP, NULL, NULL, "%llu bytes stand before the first entry",
                        (unsigned long long)places[0].at);
    for (uint32_t i = 0; i < archive->count; i++) {
        const pt2_entry *e = &archive->entries[places[i].index];
        uint64_t next = i + 1 < archive->count ? places[i + 1].at : o->directory_at;
        end = places[i].end;
        if (end > next)
            return pt2_fail(o->r, PT2_ZIP, e->name, NULL, "the entry overlaps '%s'",
                            archive->entries[places[i + 1].index].name);
        if (end < next)
            pt2_warn(o->r, PT2_ZIP, e->name, NULL, "%llu bytes after the entry belong to none",
                     (unsigned long long)(next - end));
    }
    return 0;
}

/* Local headers, with the descriptors before them, are peeked at one by one; a source may get them all at once. */
static void expect_locals(const pt2_opening *o, const place *places)
{
    for (uint32_t i = 0; i < o->archive->count; i++)
        if (places[i].good)
            pt2_expect_peek(o, places[i].at, MAX_DESCRIPTOR);
}

static int check_records(pt2_opening *o, place *places)
{
    pt2_archive *archive = o->archive;
    const unsigned char *p = o->directory;
    uint32_t errors = o->r->errors;

    for (uint32_t i = 0; i < archive->count; i++, p += pt2_record_len(p)) {
        places[i] = (place){.index = i};
        (void)read_record(o, p, &archive->entries[i], &places[i]); /* the report knows */
    }
    qsort(places, archive->count, sizeof *places, compare_places);
    expect_locals(o, places);
    for (uint32_t i = 0; i < archive->count && !o->r->no_memory; i++)
        if (places[i].good)
            (void)check_local(o, &archive->entries[places[i].index], &places[i]);
    if (o->r->errors != errors || o->r->no_memory)
        return -1;
    return check_layout(o, places);
}

int pt2_open_entries(pt2_opening *o)
{
    size_t count = o->archive->count;
    place *places =
        count > SIZE_MAX / 2 / sizeof *places ? NULL : fe_resize(o->allocator, NULL, count * sizeof *places);
    int result = places ? check_records(o, places) : pt2_no_memory(o->r);

    fe_resize(o->allocator, places, 0);
    return result;
}
