/* test_package.c - what is written reads back the same, and whatever fails leaves the target as it was. */
#define _DEFAULT_SOURCE
#include "files.h"
#include "archive_internal.h"

#include <dirent.h>
#include <time.h>

/* ---- a folder to write in ---- */

static char folder[256], target[300];

static void open_folder(void)
{
    snprintf(folder, sizeof folder, "%s", new_folder());
    snprintf(target, sizeof target, "%s/new.pt2", folder);
}

static size_t count_files(void)
{
    DIR *dir = opendir(folder);
    size_t count = 0;

    CHECK(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count - 2;
}

static void close_folder(void)
{
    struct dirent *file;
    char path[600];
    DIR *dir = opendir(folder);

    CHECK(dir);
    while ((file = readdir(dir))) {
        snprintf(path, sizeof path, "%s/%s", folder, file->d_name);
        if (file->d_name[0] != '.' || file->d_name[1] == 'p')
            remove(path);
    }
    closedir(dir);
    CHECK(rmdir(folder) == 0);
}

static bool is_in_file(const char *path, const void *data, size_t len)
{
    bytes b = read_file(path);
    bool same = b.len == len && memcmp(b.data, data, len) == 0;

    free(b.data);
    return same;
}

/* ---- parts ---- */

/* A reader of `len` bytes: 0, 1, 2 ... modulo 251, in pieces of up to `piece`. */
typedef struct {
    uint64_t len, at;
    size_t piece;
    int rewinds, ends; /* ends: bytes after which it fails; -1: never */
} counter;

static int64_t counter_read(void *ctx, void *out, size_t len)
{
    counter *c = ctx;
    uint64_t left = c->len - c->at;
    size_t n = len < left ? len : (size_t)left;

    if (c->ends >= 0 && c->at >= (uint64_t)c->ends)
        return -1;
    n = n < c->piece ? n : c->piece;
    for (size_t i = 0; i < n; i++)
        ((unsigned char *)out)[i] = (unsigned char)((c->at + i) % 251);
    c->at += n;
    return (int64_t)n;
}

static void counter_rewind(void *ctx)
{
    counter *c = ctx;

    c->at = 0;
    c->rewinds++;
}

static pt2_archive *open_archive(const char *path, pt2_report *r)
{
    pt2_archive *archive = pt2_archive_open_fd(open(path, O_RDONLY), &fe_libc_allocator, r);

    if (!archive)
        print_faults(r);
    CHECK(archive);
    return archive;
}

static void check_content(pt2_archive *archive, const char *name, const void *data, size_t len, pt2_report *r)
{
    const pt2_entry *e = pt2_archive_find(archive, name);
    char *got;
    size_t got_len;

    CHECK(e && e->method == PT2_STORED && e->offset % 64 == 0);
    DO(pt2_archive_read(archive, e, 0, 0, &got, &got_len, r));
    CHECK(got_len == len && memcmp(got, data, len) == 0);
    free(got);
}

#define BIG ((size_t)3 << 20) /* more than the buffer */

static char big[BIG];

/* Parts of every kind. */
static size_t make_parts(pt2_part *parts, counter *c, pt2_archive *from, pt2_archive *deflated)
{
    size_t n = 0;

    *c = (counter){.len = 100000, .piece = 777, .ends = -1};
    for (size_t i = 0; i < BIG; i++)
        big[i] = (char)(unsigned char)(i * i >> 7);
    parts[n++] = (pt2_part){.name = "data/weights/weight_0", .data = big, .len = BIG};
    parts[n++] = (pt2_part){.name = "empty"};
    parts[n++] = (pt2_part){.name = "data/weights/weight_1", .data = big, .len = 1};
    parts[n++] = (pt2_part){.name = "read", .read = counter_read, .rewind = counter_rewind, .ctx = c, .len = c->len};
    parts[n++] = (pt2_part){
        .name = "extra/\xc3\xa9t\xc3\xa9", .from = from, .entry = pt2_archive_find(from, "models/model.json")};
    parts[n++] = (pt2_part){
        .name = "models/model.json", .from = deflated, .entry = pt2_archive_find(deflated, "models/model.json")};
    parts[n++] = (pt2_part){.name = "models/big", .data = big, .len = BIG};
    return n;
}

#define LINEAR DATA "samples/current/linear.pt2"
#define DEFLATED DATA "hostile/Z99_all_deflate.pt2"

static void test_round_trip(void)
{
    pt2_report r;
    pt2_part parts[8];
    counter c, d = {.len = 100000, .piece = 100000, .ends = -1};
    static char counted[100000];
    uint32_t count;
    char *json;
    size_t len;

    open_folder();
    pt2_report_init(&r, &fe_libc_allocator, NULL);
    pt2_archive *from = open_archive(LINEAR, &r), *deflated = open_archive(DEFLATED, &r);
    size_t n = make_parts(parts, &c, from, deflated);
    DO(pt2_package_write(target, "a root", parts, n, &fe_libc_allocator, &r));
    CHECK_CLEAN(&r);
    CHECK_INT(count_files(), 1);
    pt2_archive *archive = open_archive(target, &r);
    CHECK_CLEAN(&r);
    CHECK_TEXT(pt2_archive_root(archive), "a root");
    const pt2_entry *entries = pt2_archive_entries(archive, &count);
    CHECK_INT(count, n);
    for (uint32_t i = 0; i < count; i++)
        CHECK_TEXT(entries[i].name, parts[i].name);
    check_content(archive, "data/weights/weight_0", big, BIG, &r);
    check_content(archive, "models/big", big, BIG, &r);
    check_content(archive, "data/weights/weight_1", big, 1, &r);
    check_content(archive, "empty", "", 0, &r);
    CHECK(counter_read(&d, counted, sizeof counted) == sizeof counted);
    check_content(archive, "read", counted, sizeof counted, &r);
    DO(pt2_archive_read(from, parts[4].entry, 0, 0, &json, &len, &r));
    check_content(archive, parts[4].name, json, len, &r);
    check_content(archive, "models/model.json", json, len, &r);
    free(json);
    pt2_archive_close(archive);
    CHECK_CLEAN(&r);

    /* The same again gives the same bytes, wherever and whenever. */
    bytes first = read_file(target);
    setenv("TZ", "Asia/Kathmandu", 1);
    tzset();
    c.at = 0;
    DO(pt2_package_write(target, "a root", parts, n, &fe_libc_allocator, &r));
    CHECK(is_in_file(target, first.data, first.len));
    unsetenv("TZ");
    free(first.data);
    pt2_archive_close(from);
    pt2_archive_close(deflated);
    CHECK_INT(count_files(), 1);
    close_folder();
}

/* Headers at every place round the end of the buffer (1 MiB), which libzip writes twice. */
static void test_buffer_ends(void)
{
    pt2_report r;
    pt2_part parts[] = {{.name = "a", .data = big},
                        {.name = "models/model.json", .data = big, .len = 5000},
                        {.name = "b", .data = big, .len = 700}};

    open_folder();
    pt2_report_init(&r, &fe_libc_allocator, NULL);
    for (size_t less = 0; less < 140; less += 3) {
        parts[0].len = ((size_t)1 << 20) - 64 - less;
        DO(pt2_package_write(target, "r", parts, 3, &fe_libc_allocator, &r));
        pt2_archive *archive = open_archive(target, &r);
        for (size_t i = 0; i < 3; i++)
            check_content(archive, parts[i].name, parts[i].data, (size_t)parts[i].len, &r);
        pt2_archive_close(archive);
    }
    CHECK_CLEAN(&r);
    close_folder();
}

/* Every entry copied, and then written onto itself while it is open. */
static void test_copy_onto_itself(void)
{
    pt2_report r;
    uint32_t count;
    pt2_part parts[64];

    open_folder();
    pt2_report_init(&r, &fe_libc_allocator, NULL);
    bytes b = read_file(LINEAR);
    write_file(target, b.data, b.len);
    pt2_archive *archive = open_archive(target, &r);
    const pt2_entry *entries = pt2_archive_entries(archive, &count);
    CHECK(count < 64);
    for (uint32_t i = 0; i < count; i++)
        parts[i] = (pt2_part){.name = entries[i].name, .from = archive, .entry = &entries[i]};
    for (int round = 0; round < 2; round++) {
        DO(pt2_package_write(target, pt2_archive_root(archive), parts, count, &fe_libc_allocator, &r));
        pt2_archive *copy = open_archive(target, &r);
        for (uint32_t i = 0; i < count; i++) {
            const pt2_entry *e = pt2_archive_find(copy, entries[i].name);
            CHECK(e && e->size == entries[i].size && e->crc == entries[i].crc);
            DO(pt2_archive_check(copy, e, &r));
            DO(pt2_archive_check(archive, &entries[i], &r)); /* the old file is still there */
        }
        pt2_archive_close(copy);
    }
    CHECK_CLEAN(&r);
    pt2_archive_close(archive);
    free(b.data);
    close_folder();
}

/* ---- what is refused ---- */

static void check_refused(const char *path, const char *root, pt2_part part, pt2_kind kind, const char *text)
{
    pt2_part parts[] = {{.name = "models/model.json", .data = "{}", .len = 2}, part};
    pt2_report r;
    size_t files = count_files();

    pt2_report_init(&r, &fe_libc_allocator, NULL);
    CHECK(pt2_package_write(path, root, parts, 2, &fe_libc_allocator, &r) < 0);
    CHECK_ERROR(&r, kind, NULL, text);
    CHECK_INT(count_files(), files);
    pt2_report_clear(&r);
}

static void test_refused_parts(void)
{
    pt2_limits limits = pt2_default_limits;
    pt2_report r;
    counter c = {.len = 10, .piece = 3, .ends = -1};
    static char long_name[5000];
    pt2_part good = {.name = "b"}, read = {.name = "b", .read = counter_read, .ctx = &c, .len = 11};

    open_folder();
    memset(long_name, 'x', sizeof long_name - 1);
    write_file(target, "old", 3);
    check_refused(target, "r", (pt2_part){.name = ""}, PT2_UNSAFE_NAME, "is empty");
    check_refused(target, "r", (pt2_part){.name = "../x"}, PT2_UNSAFE_NAME, "'..'");
    check_refused(target, "r", (pt2_part){.name = "/x"}, PT2_UNSAFE_NAME, "absolute");
    check_refused(target, "r", (pt2_part){.name = "a/"}, PT2_UNSAFE_NAME, "folder");
    check_refused(target, "r", (pt2_part){.name = "a\nb"}, PT2_UNSAFE_NAME, "control");
    check_refused(target, "r", (pt2_part){.name = "models/model.json"}, PT2_DUPLICATE_ENTRY, "twice");
    check_refused(target, "r", (pt2_part){.name = "models/Model.json"}, PT2_DUPLICATE_ENTRY, "upper and lower");
    check_refused(target, "r", (pt2_part){.name = "models"}, PT2_LAYOUT, "also a folder");
    check_refused(target, "r", (pt2_part){.name = long_name}, PT2_LIMIT, "5001 bytes");
    check_refused(target, "r", (pt2_part){.name = "b", .data = "x", .len = UINT32_MAX}, PT2_LIMIT, "4294967295");
    check_refused(target, "r", (pt2_part){.name = "b", .data = "x", .len = UINT64_MAX}, PT2_LIMIT, "cannot be written");
    check_refused(target, "r/s", good, PT2_UNSAFE_NAME, "more than one folder");
    check_refused(target, "..", good, PT2_UNSAFE_NAME, "'..'");
    check_refused(target, "", good, PT2_LAYOUT, "cannot be read back"); /* flat, without the program of layout C */
    check_refused(target, "r", read, PT2_IO, "other than the 11 bytes");
    c = (counter){.len = 10, .piece = 3, .ends = 6};
    read.len = 10;
    check_refused(target, "r", read, PT2_IO, "cannot be read");
    CHECK(is_in_file(target, "old", 3));

    limits.entries = 1;
    pt2_report_init(&r, &fe_libc_allocator, &limits);
    pt2_part two[] = {{.name = "a"}, {.name = "b"}};
    CHECK(pt2_package_write(target, "r", two, 2, &fe_libc_allocator, &r) < 0);
    CHECK_ERROR(&r, PT2_LIMIT, NULL, "2 entries");
    CHECK(pt2_package_write(target, "r", two, 0, &fe_libc_allocator, &r) < 0);
    CHECK_ERROR(&r, PT2_LAYOUT, NULL, "needs entries");
    pt2_report_clear(&r);
    pt2_report_init(&r, &fe_libc_allocator, NULL);
    pt2_part flat[] = {{.name = "serialized_exported_program.json", .data = "{}", .len = 2}, {.name = "version"}};
    DO(pt2_package_write(target, "", flat, 2, &fe_libc_allocator, &r));
    CHECK_CLEAN(&r);
    close_folder();
}

/* A copy of a damaged entry is not made. */
static void test_damaged_source(void)
{
    static const char *const files[] = {DATA "hostile/Z24_json_digit.pt2", DATA "hostile/Z82_deflate_bad.pt2"};
    pt2_report r;

    open_folder();
    write_file(target, "old", 3);
    for (size_t i = 0; i < 2; i++) {
        pt2_report_init(&r, &fe_libc_allocator, NULL);
        pt2_archive *from = open_archive(files[i], &r);
        pt2_part part = {
            .name = "models/model.json", .from = from, .entry = pt2_archive_find(from, "models/model.json")};
        CHECK(pt2_package_write(target, "r", &part, 1, &fe_libc_allocator, &r) < 0);
        CHECK_ERROR(&r, PT2_CRC, "models/model.json", NULL);
        CHECK_INT(r.errors, 1);
        CHECK(is_in_file(target, "old", 3));
        CHECK_INT(count_files(), 1);
        pt2_archive_close(from);
        pt2_report_clear(&r);
    }
    close_folder();
}

/* ---- paths and modes ---- */

static mode_t mode_of(const char *path)
{
    struct stat st;

    CHECK(stat(path, &st) == 0);
    return st.st_mode & 07777;
}

static void test_modes(void)
{
    pt2_part part = {.name = "models/model.json", .data = "{}", .len = 2};
    mode_t old = umask(027);
    pt2_report r;

    open_folder();
    pt2_report_init(&r, &fe_libc_allocator, NULL);
    DO(pt2_package_write(target, "r", &part, 1, &fe_libc_allocator, &r));
    CHECK_INT(mode_of(target), 0640);
    CHECK(chmod(target, 0604) == 0);
    DO(pt2_package_write(target, "r", &part, 1, &fe_libc_allocator, &r));
    CHECK_INT(mode_of(target), 0604);
    umask(old);
    close_folder();
}

static void test_links(void)
{
    pt2_part part = {.name = "models/model.json", .data = "{}", .len = 2};
    char link[320], inner[320], to[320];
    struct stat st;
    pt2_report r;

    open_folder();
    pt2_report_init(&r, &fe_libc_allocator, NULL);
    snprintf(link, sizeof link, "%s/link.pt2", folder);
    snprintf(inner, sizeof inner, "%s/sub", folder);
    snprintf(to, sizeof to, "%s/sub/link2", folder);
    CHECK(mkdir(inner, 0777) == 0 && symlink("sub/link2", link) == 0 && symlink("../new.pt2", to) == 0);
    for (int i = 0; i < 2; i++) { /* first it leads nowhere yet */
        DO(pt2_package_write(link, "r", &part, 1, &fe_libc_allocator, &r));
        CHECK(lstat(link, &st) == 0 && S_ISLNK(st.st_mode) && lstat(to, &st) == 0 && S_ISLNK(st.st_mode));
        CHECK(lstat(target, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 100);
    }
    CHECK_INT(count_files(), 3);
    unlink(to);
    CHECK(symlink("../link.pt2", to) == 0);
    CHECK(pt2_package_write(link, "r", &part, 1, &fe_libc_allocator, &r) < 0);
    CHECK_ERROR(&r, PT2_IO, NULL, "Too many levels");
    unlink(to);
    pt2_report_clear(&r);
    rmdir(inner);
    close_folder();
}

static void test_paths(void)
{
    pt2_part good = {.name = "b"};
    static char long_path[6000];
    char path[400];

    open_folder();
    memset(long_path, 'x', sizeof long_path - 1);
    check_refused("", "r", good, PT2_IO, "does not name a file");
    check_refused(folder, "r", good, PT2_IO, "is not a file");
    check_refused(long_path, "r", good, PT2_IO, "too long");
    snprintf(path, sizeof path, "%s/none/x.pt2", folder);
    check_refused(path, "r", good, PT2_IO, "No such file");
    snprintf(path, sizeof path, "%s/x.pt2/", folder);
    check_refused(path, "r", good, PT2_IO, "does not name a file");
    snprintf(path, sizeof path, "%s/pipe", folder);
    CHECK(mkfifo(path, 0666) == 0);
    check_refused(path, "r", good, PT2_IO, "is not a file");
    close_folder();
}

/* ---- failures of the machine ---- */

static size_t make_small_parts(pt2_part *parts, counter *c, pt2_archive *from, pt2_archive *deflated)
{
    size_t n = make_parts(parts, c, from, deflated);

    parts[6].len = 1000;
    return n;
}

static void test_no_memory(void)
{
    pt2_report r, sources;
    pt2_part parts[8];
    counter c;

    open_folder();
    write_file(target, "old", 3);
    pt2_report_init(&sources, &fe_libc_allocator, NULL);
    pt2_archive *from = open_archive(LINEAR, &sources), *deflated = open_archive(DEFLATED, &sources);
    for (int fail_on = 0; fail_on < 2; fail_on++) {
        for (size_t nth = 0;; nth++) {
            test_memory m;
            size_t n = make_small_parts(parts, &c, from, deflated);
            memory_init(&m);
            memory_fail(&m, nth, fail_on);
            pt2_report_init(&r, &m.allocator, NULL);
            int result = pt2_package_write(target, "r", parts, n, &m.allocator, &r);
            bool failed = m.calls > nth;
            CHECK(failed ? result < 0 && r.no_memory : result == 0);
            pt2_report_clear(&r);
            CHECK_INT(m.blocks, 0);
            CHECK_INT(count_files(), 1);
            if (!failed)
                break;
            CHECK(is_in_file(target, "old", 3));
        }
        write_file(target, "old", 3);
    }
    pt2_archive_close(from);
    pt2_archive_close(deflated);
    close_folder();
}

/* Reads, writes, flushes and the renaming, each failing in turn; only the flush of the folder comes after the file is
 * in place, and is a warning. */
static void test_failing_files(void)
{
    static const int errors[] = {ENOSPC, 0, EINTR};
    pt2_report r, sources;
    pt2_part parts[8];
    counter c;

    open_folder();
    pt2_report_init(&sources, &fe_libc_allocator, NULL);
    pt2_archive *from = open_archive(LINEAR, &sources), *deflated = open_archive(DEFLATED, &sources);
    for (size_t i = 0; i < 3; i++) {
        size_t warned = 0;
        for (size_t nth = 0;; nth++) {
            size_t n = make_small_parts(parts, &c, from, deflated);
            write_file(target, "old", 3);
            pt2_report_init(&r, &fe_libc_allocator, NULL);
            io_fail(nth, errors[i]);
            int result = pt2_package_write(target, "r", parts, n, &fe_libc_allocator, &r);
            bool failed = io_calls > nth;
            io_fail(SIZE_MAX, 0);
            if (result < 0) {
                CHECK(failed && r.errors);
                CHECK_ERROR(&r, PT2_IO, NULL, NULL);
                CHECK(is_in_file(target, "old", 3));
            } else if (failed && errors[i] != EINTR) {
                CHECK_WARNING(&r, PT2_IO, NULL, "its folder is not flushed");
                warned++;
            }
            CHECK_INT(count_files(), 1);
            pt2_report_clear(&r);
            if (!failed)
                break;
        }
        CHECK(errors[i] == EINTR || warned == 1);
    }
    pt2_archive_close(from);
    pt2_archive_close(deflated);
    close_folder();
}

/* ---- alignment ---- */

static void test_padding(void)
{
    static const uint64_t places[] = {0, 1, 63, 64, 4095, UINT32_MAX, (UINT64_C(1) << 40) + 17};
    static const uint64_t sizes[] = {0, 1, UINT32_MAX, UINT64_C(1) << 32, UINT64_C(1) << 45};

    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            for (size_t name_len = 1; name_len < 130; name_len++) {
                uint16_t n = pt2_package_padding(places[i], name_len, sizes[k]);
                uint64_t zip64 = sizes[k] > UINT32_MAX ? 20 : 0;
                CHECK(n < 64 && (places[i] + 30 + name_len + zip64 + 4 + n) % 64 == 0);
            }
        }
    }
}

/* The filler is the one of torch, and the central directory has none. */
static void test_filler(void)
{
    pt2_part part = {.name = "models/model.json", .data = "{}", .len = 2};
    pt2_report r;

    open_folder();
    pt2_report_init(&r, &fe_libc_allocator, NULL);
    DO(pt2_package_write(target, "r", &part, 1, &fe_libc_allocator, &r));
    bytes b = read_file(target);
    const unsigned char *p = (const unsigned char *)b.data;
    size_t name_len = strlen("r/models/model.json"), padding = 64 - (30 + name_len + 4);
    CHECK_INT(pt2_get16(p + 28), 4 + padding);
    CHECK(memcmp(p + 30 + name_len, "FB", 2) == 0);
    CHECK_INT(pt2_get16(p + 30 + name_len + 2), padding);
    for (size_t i = 0; i < padding; i++)
        CHECK_INT(p[30 + name_len + 4 + i], 'Z');
    CHECK(memcmp(p + 64, "{}PK\1\2", 6) == 0);
    CHECK_INT(pt2_get16(p + 66 + 30), 0);
    free(b.data);
    close_folder();
}

int main(void)
{
    RUN(test_padding);
    RUN(test_filler);
    RUN(test_round_trip);
    RUN(test_buffer_ends);
    RUN(test_copy_onto_itself);
    RUN(test_refused_parts);
    RUN(test_damaged_source);
    RUN(test_modes);
    RUN(test_links);
    RUN(test_paths);
    RUN(test_no_memory);
    RUN(test_failing_files);
    return 0;
}
