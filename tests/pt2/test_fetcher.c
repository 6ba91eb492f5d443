/* test_fetcher.c - archives whose bytes somebody fetches: read as those in memory are, with every fetch failing in turn. */
#include "files.h"

typedef struct {
    bytes file;
    size_t calls, fail_at;
    size_t expected; /* ranges */
    /* by byte of the file */
    bool covered[1 << 18], fetched[1 << 18]; /* was it expected; was it fetched after that */
} store;

static int fetch(void *ctx, uint64_t at, void *out, size_t len)
{
    store *s = ctx;

    CHECK(len > 0 && at <= s->file.len && len <= s->file.len - at);
    if (s->calls++ == s->fail_at)
        return ETIMEDOUT;
    memcpy(out, s->file.data + at, len);
    if (s->expected)
        memset(s->fetched + at, true, len);
    return 0;
}

static void expect(void *ctx, uint64_t at, size_t len)
{
    store *s = ctx;

    CHECK(len > 0 && at <= s->file.len && len <= s->file.len - at);
    memset(s->covered + at, true, len);
    s->expected++;
}

static pt2_archive *open_store(store *s, const char *path, size_t fail_at, const fe_allocator *a, pt2_report *r)
{
    *s = (store){.file = read_file(path), .fail_at = fail_at};
    CHECK(s->file.len <= sizeof s->covered);
    pt2_report_init(r, a, NULL);
    return pt2_archive_open_fetcher(&(pt2_fetcher){fetch, expect, s}, s->file.len, a, r);
}

/* Read every entry; the same as from memory. -1: one failed, and the report says so. */
static int read_all(pt2_archive *archive, const bytes *file, pt2_report *r)
{
    pt2_report other;
    uint32_t count;
    const pt2_entry *entries = pt2_archive_entries(archive, &count);
    pt2_archive *same;
    int result = 0;

    pt2_report_init(&other, &fe_libc_allocator, NULL);
    same = pt2_archive_open_bytes(file->data, file->len, &fe_libc_allocator, &other);
    CHECK(same);
    for (uint32_t i = 0; result == 0 && i < count; i++) {
        char *data, *wanted;
        size_t len, wanted_len;
        DO(pt2_archive_read(same, pt2_archive_find(same, entries[i].name), 0, 0, &wanted, &wanted_len, &other));
        result = pt2_archive_read(archive, &entries[i], 0, 0, &data, &len, r);
        if (result == 0) {
            CHECK(len == wanted_len && memcmp(data, wanted, len) == 0);
            fe_resize(r->allocator, data, 0);
        }
        fe_resize(&fe_libc_allocator, wanted, 0);
    }
    pt2_archive_close(same);
    pt2_report_clear(&other);
    return result;
}

static const char *const paths[] = {DATA "samples/current/linear.pt2", DATA "hostile/Z99_all_deflate.pt2"};

static void check_reading(const char *path)
{
    static store s;
    pt2_report r;
    pt2_archive *archive = open_store(&s, path, SIZE_MAX, &fe_libc_allocator, &r);

    CHECK_CLEAN(&r);
    CHECK(archive && pt2_archive_fd(archive) < 0 && !pt2_archive_bytes(archive));
    CHECK(read_all(archive, &s.file, &r) == 0);
    CHECK_CLEAN(&r);
    pt2_archive_close(archive);
    pt2_report_clear(&r);
    free(s.file.data);
}

static void test_reading(void)
{
    check_reading(paths[0]);
    check_reading(paths[1]);
}

/* Opening a large archive fetches its end, and the headers of entries, all of which were expected. */
static void test_opening(void)
{
    static store s;
    static char data[70000];
    const pt2_part parts[] = {{.name = "a", .data = data, .len = sizeof data},
                              {.name = "folder/b", .data = data, .len = sizeof data - 1},
                              {.name = "c", .data = data, .len = 1},
                              {.name = "d", .data = data, .len = sizeof data}};
    char path[512];
    const char *folder = new_folder();
    pt2_report r;
    size_t fetched = 0;

    pt2_report_init(&r, &fe_libc_allocator, NULL);
    snprintf(path, sizeof path, "%s/file", folder);
    DO(pt2_package_write(path, "root", parts, 4, &fe_libc_allocator, &r));
    pt2_archive *archive = open_store(&s, path, SIZE_MAX, &fe_libc_allocator, &r);
    CHECK(archive);
    CHECK_INT(s.expected, 4);
    for (size_t at = 0; at < s.file.len - sizeof data; at++) {
        CHECK(s.covered[at] || !s.fetched[at]);
        fetched += s.fetched[at];
    }
    CHECK(fetched > 0 && fetched < 8192);
    pt2_archive_close(archive);
    pt2_report_clear(&r);
    free(s.file.data);
    CHECK(unlink(path) == 0 && rmdir(folder) == 0);
}

/* Every fetch fails in turn: that is what the report says, and nothing is left behind. */
static void test_failing_fetches(void)
{
    static store s;
    test_memory m;
    pt2_report r;

    for (size_t i = 0, nth = 0; i < 2; nth++) {
        memory_init(&m);
        pt2_archive *archive = open_store(&s, paths[i], nth, &m.allocator, &r);
        int result = archive ? read_all(archive, &s.file, &r) : -1;
        bool failed = s.calls > nth;
        CHECK_INT(result, failed ? -1 : 0);
        if (failed)
            CHECK_ERROR(&r, PT2_IO, NULL, "the file cannot be read: Connection timed out");
        pt2_archive_close(archive);
        pt2_report_clear(&r);
        CHECK_INT(m.blocks, 0);
        free(s.file.data);
        if (!failed) {
            CHECK(nth > 10);
            nth = SIZE_MAX; /* from 0 again, with the next */
            i++;
        }
    }
}

/* An archive in an archive is fetched from the same store. */
static void test_archives_inside(void)
{
    static store s;
    pt2_report r;
    pt2_archive *inner,
        *outer = open_store(&s, DATA "samples/middle_layout/shared_weights.pt2", SIZE_MAX, &fe_libc_allocator, &r);
    const pt2_entry *e = outer ? pt2_archive_find(outer, "data/weights/model.pt") : NULL;

    CHECK(e && e->method == PT2_STORED);
    inner = pt2_archive_open_entry(outer, e, &fe_libc_allocator, &r);
    CHECK(inner);
    bytes part = bytes_of(s.file.data + e->offset, (size_t)e->size);
    CHECK(read_all(inner, &part, &r) == 0);
    pt2_archive_close(inner);
    pt2_archive_close(outer);
    pt2_report_clear(&r);
    free(part.data);
    free(s.file.data);
}

int main(void)
{
    RUN(test_reading);
    RUN(test_opening);
    RUN(test_failing_fetches);
    RUN(test_archives_inside);
    return 0;
}
