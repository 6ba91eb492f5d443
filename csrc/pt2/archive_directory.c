/* archive_directory.c - finds the central directory of a zip archive and names its entries (see archive.c). */
#include "archive_internal.h"

#define WINDOW 1024 /* read at once while the headers are checked */
#define FLAT_PROGRAM "serialized_exported_program.json"
#define FLAT_FOLDER "extra_files/"

const unsigned char *pt2_peek(pt2_opening *o, uint64_t at, size_t len, const char *entry)
{
    const pt2_archive *archive = o->archive;
    size_t wanted = len < WINDOW ? WINDOW : len;

    assert(at <= archive->size && len <= archive->size - at);
    if (archive->bytes)
        return archive->bytes + at;
    if (at >= o->at && at - o->at <= o->len && len <= o->len - (at - o->at))
        return o->window + (at - o->at);
    if (wanted > archive->size - at)
        wanted = (size_t)(archive->size - at);
    if (wanted > o->capacity) {
        unsigned char *window = fe_resize(o->allocator, o->window, wanted);
        if (!window) {
            pt2_no_memory(o->r);
            return NULL;
        }
        o->window = window;
        o->capacity = wanted;
    }
    o->len = 0;
    if (pt2_read_all(archive, at, o->window, wanted, entry, o->r) < 0)
        return NULL;
    o->at = at;
    o->len = wanted;
    return o->window;
}

void pt2_expect_peek(const pt2_opening *o, uint64_t at, size_t before)
{
    const pt2_archive *archive = o->archive;
    uint64_t from = at < before ? 0 : at - before, left = archive->size - from;
    size_t len = WINDOW + before;

    if (archive->fetcher.read)
        archive->fetcher.expect(archive->fetcher.ctx, archive->base + from, left < len ? (size_t)left : len);
}

/* ---- end records ---- */

typedef struct {
    uint64_t at; /* where the records start: the end of the central directory */
    uint64_t disk, directory_disk, disk_count, count, directory_len, directory_at;
} end_record;

static int zip_fail(pt2_opening *o, const char *text)
{
    return pt2_fail(o->r, PT2_ZIP, NULL, NULL, "%s", text);
}

/* The end record must be the last thing that looks like one, and end the file: readers that search differently would
 * otherwise find different archives. Gives its place in the tail. */
static int find_end(pt2_opening *o, const unsigned char *tail, size_t len, size_t *place)
{
    size_t at = len - 3;

    do {
        if (at-- == 0)
            return zip_fail(o, "this is not a zip archive: it has no end record");
    } while (pt2_get32(tail + at) != END_SIG);
    if (len - at < END_LEN || pt2_get16(tail + at + 20) > len - at - END_LEN)
        return zip_fail(o, "the end record of the archive is cut short");
    if (pt2_get16(tail + at + 20) < len - at - END_LEN)
        return pt2_fail(o->r, PT2_ZIP, NULL, NULL, "%zu bytes follow the end record of the archive",
                        len - at - END_LEN - pt2_get16(tail + at + 20));
    *place = at;
    while (at-- > 0)
        if (pt2_get32(tail + at) == END_SIG && at + END_LEN + pt2_get16(tail + at + 20) == len)
            return zip_fail(o, "the archive has two end records");
    return 0;
}

/* A number that the plain record may leave to the zip64 record, but must not contradict. */
static bool agrees(uint64_t plain, uint64_t most, uint64_t wide)
{
    return plain == wide || plain == most;
}

static int read_end64(pt2_opening *o, uint64_t at, uint64_t locator_at, end_record *end)
{
    const unsigned char *p;

    if (locator_at < END64_LEN || at != locator_at - END64_LEN)
        return zip_fail(o, "the zip64 locator does not point to a zip64 end record directly before it");
    p = pt2_peek(o, at, END64_LEN, NULL);
    if (!p)
        return -1;
    if (pt2_get32(p) != END64_SIG || pt2_get64(p + 4) != END64_LEN - 12)
        return zip_fail(o, "the zip64 end record is damaged");
    end_record wide = {.at = at,
                       .disk = pt2_get32(p + 16),
                       .directory_disk = pt2_get32(p + 20),
                       .disk_count = pt2_get64(p + 24),
                       .count = pt2_get64(p + 32),
                       .directory_len = pt2_get64(p + 40),
                       .directory_at = pt2_get64(p + 48)};
    if (!agrees(end->disk, UINT16_MAX, wide.disk) || !agrees(end->directory_disk, UINT16_MAX, wide.directory_disk) ||
        !agrees(end->disk_count, UINT16_MAX, wide.disk_count) || !agrees(end->count, UINT16_MAX, wide.count) ||
        !agrees(end->directory_len, UINT32_MAX, wide.directory_len) ||
        !agrees(end->directory_at, UINT32_MAX, wide.directory_at))
        return zip_fail(o, "the zip64 end record and the end record do not agree");
    *end = wide;
    return 0;
}

static int read_end(pt2_opening *o, end_record *end)
{
    uint64_t size = o->archive->size;
    size_t len = END_LEN + UINT16_MAX + LOCATOR_LEN, at = 0;

    if (size < END_LEN)
        return pt2_fail(o->r, PT2_ZIP, NULL, NULL,
                        size ? "this is not a zip archive: it has only %u bytes" : "the file is empty", (unsigned)size);
    if (len > size)
        len = (size_t)size;
    const unsigned char *tail = pt2_peek(o, size - len, len, NULL);
    if (!tail || find_end(o, tail, len, &at) < 0)
        return -1;
    const unsigned char *p = tail + at;
    *end = (end_record){.at = size - len + at,
                        .disk = pt2_get16(p + 4),
                        .directory_disk = pt2_get16(p + 6),
                        .disk_count = pt2_get16(p + 8),
                        .count = pt2_get16(p + 10),
                        .directory_len = pt2_get32(p + 12),
                        .directory_at = pt2_get32(p + 16)};
    if (at < LOCATOR_LEN || pt2_get32(p - LOCATOR_LEN) != LOCATOR_SIG)
        return 0;
    p -= LOCATOR_LEN;
    if (pt2_get32(p + 4) != 0 || pt2_get32(p + 16) > 1)
        return zip_fail(o, "the archive is in several parts");
    return read_end64(o, pt2_get64(p + 8), end->at - LOCATOR_LEN, end);
}

/* Find the central directory and hold what the end record says of it against the file. */
static int find_directory(pt2_opening *o)
{
    uint64_t most = o->r->limits->entries;
    end_record end = {.at = 0};

    if (read_end(o, &end) < 0)
        return -1;
    if (end.disk || end.directory_disk || end.disk_count != end.count)
        return zip_fail(o, "the archive is in several parts");
    if (end.directory_at > end.at || end.directory_len != end.at - end.directory_at)
        return zip_fail(o, "the central directory is not where the end record says");
    if (end.count == 0)
        return pt2_fail(o->r, end.at ? PT2_ZIP : PT2_MISSING_ENTRY, "models/", NULL, "the archive has no entries");
    if (end.count > end.directory_len / CENTRAL_LEN)
        return pt2_fail(o->r, PT2_ZIP, NULL, NULL,
                        "the end record counts %llu entries, but the central directory has %llu bytes",
                        (unsigned long long)end.count, (unsigned long long)end.directory_len);
    if ((most && end.count > most) || end.count >= UINT32_MAX / 4)
        return pt2_fail(o->r, PT2_LIMIT, NULL, NULL, "the archive has %llu entries, more than the limit of %llu",
                        (unsigned long long)end.count, (unsigned long long)(most ? most : UINT32_MAX / 4));
    o->count = end.count;
    o->directory_at = end.directory_at;
    o->directory_len = end.directory_len;
    return 0;
}

static int read_directory(pt2_opening *o)
{
    const pt2_archive *archive = o->archive;

    if (archive->bytes) {
        o->directory = archive->bytes + o->directory_at;
        return 0;
    }
    if (o->directory_len > SIZE_MAX / 2 ||
        !(o->directory_block = fe_resize(o->allocator, NULL, (size_t)o->directory_len)))
        return pt2_no_memory(o->r);
    o->directory = o->directory_block;
    return pt2_read_all(archive, o->directory_at, o->directory_block, (size_t)o->directory_len, NULL, o->r);
}

/* ---- the central directory ---- */

size_t pt2_record_len(const unsigned char *p)
{
    return CENTRAL_LEN + (size_t)pt2_get16(p + 28) + pt2_get16(p + 30) + pt2_get16(p + 32);
}

/* Walk the directory once for its bounds; gives the bytes of all names. */
static int walk_directory(pt2_opening *o, size_t *names_len)
{
    const unsigned char *p = o->directory;
    size_t left = (size_t)o->directory_len;

    *names_len = 0;
    for (uint64_t i = 0; i < o->count; i++) {
        if (left < CENTRAL_LEN || pt2_get32(p) != CENTRAL_SIG)
            return pt2_fail(o->r, PT2_ZIP, NULL, NULL, "record %llu of %llu of the central directory is damaged",
                            (unsigned long long)i, (unsigned long long)o->count);
        if (pt2_record_len(p) > left)
            return pt2_fail(o->r, PT2_ZIP, NULL, NULL, "record %llu of the central directory runs past its end",
                            (unsigned long long)i);
        *names_len += pt2_get16(p + 28);
        left -= pt2_record_len(p);
        p += pt2_record_len(p);
    }
    if (left)
        return pt2_fail(o->r, PT2_ZIP, NULL, NULL, "%zu bytes follow the %llu records of the central directory", left,
                        (unsigned long long)o->count);
    return 0;
}

/* ---- names ---- */

/* Check one name. Everything after this may take it as a C string. */
static int check_name(pt2_opening *o, const pt2_entry *e, size_t len, uint16_t flags)
{
    const char *fault = pt2_entry_name_fault(e->full_name, len);

    if (fault)
        return pt2_fail(o->r, PT2_UNSAFE_NAME, e->name, NULL, "the name '%s' %s", e->full_name, fault);
    if (len > PT2_MAX_NAME)
        return pt2_fail(o->r, PT2_LIMIT, e->name, NULL, "a name of %zu bytes, more than %d", len, PT2_MAX_NAME);
    if (pt2_has_format_characters(e->full_name, len))
        pt2_warn(o->r, PT2_UNSAFE_NAME, e->name, NULL, "the name has format characters, which do not show");
    for (size_t i = 0; i < len && !(flags & IS_UTF8); i++) {
        if ((unsigned char)e->full_name[i] < 0x80)
            continue;
        pt2_warn(o->r, PT2_ZIP, e->name, NULL, "the name is not marked as UTF-8: other readers may show another");
        break;
    }
    return 0;
}

/* Give each entry its names. What stands before the first slash of the first name is taken for the root until all
 * names are known. */
static int read_names(pt2_opening *o, size_t names_len)
{
    pt2_archive *archive = o->archive;
    const unsigned char *p = o->directory, *slash;
    size_t top = 0;
    uint32_t errors = o->r->errors;
    char *text;

    if (names_len > SIZE_MAX / 2 - o->count || o->count > SIZE_MAX / 2 / sizeof *archive->entries)
        return pt2_no_memory(o->r);
    if ((slash = memchr(p + CENTRAL_LEN, '/', pt2_get16(p + 28))))
        top = (size_t)(slash - (p + CENTRAL_LEN)) + 1;
    archive->entries = fe_resize(o->allocator, NULL, (size_t)o->count * sizeof *archive->entries);
    archive->texts = fe_resize(o->allocator, NULL, names_len + (size_t)o->count + top + 1);
    if (!archive->entries || !archive->texts)
        return pt2_no_memory(o->r);
    text = archive->texts + top + 1;
    if (top)
        memcpy(archive->texts, p + CENTRAL_LEN, top - 1);
    archive->texts[top ? top - 1 : 0] = '\0';
    archive->root = archive->texts;
    for (uint64_t i = 0; i < o->count; i++, p += pt2_record_len(p)) {
        pt2_entry *e = &archive->entries[i];
        size_t len = pt2_get16(p + 28);
        memcpy(text, p + CENTRAL_LEN, len);
        text[len] = '\0';
        *e = (pt2_entry){.full_name = text, .name = text, .is_folder = len && text[len - 1] == '/'};
        if (top && len >= top && memcmp(text, archive->entries[0].full_name, top) == 0)
            e->name = text + top;
        text += len + 1;
        archive->count++;
        check_name(o, e, len, pt2_get16(p + 8));
    }
    return o->r->errors == errors && !o->r->no_memory ? 0 : -1;
}

/* ---- the top folder ---- */

static int check_flat(pt2_opening *o)
{
    pt2_archive *archive = o->archive;

    for (uint32_t i = 0; i < archive->count; i++) {
        pt2_entry *e = &archive->entries[i];
        e->name = e->full_name;
        if (strchr(e->name, '/') && strncmp(e->name, FLAT_FOLDER, strlen(FLAT_FOLDER)) != 0)
            return pt2_fail(o->r, PT2_LAYOUT, FLAT_PROGRAM, NULL,
                            "two layouts in one file: beside '" FLAT_PROGRAM "' stands '%s'", e->full_name);
    }
    archive->texts[0] = '\0'; /* no root */
    return 0;
}

/* All entries stand below one folder, or the archive is of the old layout that has none. */
static int check_root(pt2_opening *o)
{
    const pt2_archive *archive = o->archive;
    const pt2_entry *stray = NULL, *model = NULL;

    for (uint32_t i = 0; i < archive->count; i++) {
        const pt2_entry *e = &archive->entries[i];
        if (strcmp(e->full_name, FLAT_PROGRAM) == 0)
            return check_flat(o);
        if (!model && strncmp(e->full_name, "models/", 7) == 0)
            model = e;
        if (!stray && e->name == e->full_name)
            stray = e;
    }
    if (!stray)
        return 0;
    if (model)
        return pt2_fail(o->r, PT2_LAYOUT, model->full_name, NULL, "the archive has no top folder");
    return pt2_fail(o->r, PT2_LAYOUT, stray->full_name, NULL,
                    "the entry is not below the top folder of the first entry, '%s'", archive->entries[0].full_name);
}

/* ---- the whole ---- */

int pt2_open_directory(pt2_opening *o)
{
    size_t names_len;

    if (find_directory(o) < 0 || read_directory(o) < 0 || walk_directory(o, &names_len) < 0)
        return -1;
    return read_names(o, names_len) < 0 ? -1 : check_root(o);
}
