/* test_archive.c - archives are read as they are, or refused: samples, hostile files, every prefix, every flipped byte,
 * and every allocation and every read failing in turn. */
#define _DEFAULT_SOURCE
#include "files.h"
#include "archive_internal.h"

#include <dirent.h>

/* ---- reading all of an archive ---- */

typedef struct {
    pt2_report report;
    pt2_archive *archive;
} opened;

static opened open_bytes(bytes b, const fe_allocator *a)
{
    opened o;

    pt2_report_init(&o.report, a, NULL);
    o.archive = pt2_archive_open_bytes(b.data, b.len, a, &o.report);
    CHECK(o.archive ? o.report.errors == 0 : o.report.errors > 0 || o.report.no_memory);
    return o;
}

static opened open_path(const char *path, const fe_allocator *a)
{
    opened o;

    pt2_report_init(&o.report, a, NULL);
    o.archive = pt2_archive_open_fd(open(path, O_RDONLY), a, &o.report);
    CHECK(o.archive ? o.report.errors == 0 : o.report.errors > 0 || o.report.no_memory);
    return o;
}

static void close_opened(opened *o)
{
    pt2_archive_close(o->archive);
    pt2_report_clear(&o->report);
}

/* Check every entry; false: one is bad, and the report says so. */
static bool check_all(opened *o)
{
    uint32_t count;
    const pt2_entry *entries = pt2_archive_entries(o->archive, &count);
    bool good = true;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t errors = o->report.errors;
        bool ok = pt2_archive_check(o->archive, &entries[i], &o->report) == 0;
        CHECK(ok ? o->report.errors == errors : o->report.errors > errors || o->report.no_memory);
        good &= ok;
    }
    return good;
}

typedef struct {
    const char *data;
    size_t len, at;
} comparison;

static int compare_sink(void *ctx, const void *data, size_t len)
{
    comparison *c = ctx;

    CHECK(len <= c->len - c->at && memcmp(c->data + c->at, data, len) == 0);
    c->at += len;
    return 0;
}

/* All ways to read an entry give the same. */
static void check_reading(opened *o, const pt2_entry *e)
{
    comparison c = {NULL, 0, 0};
    char *data, part[64];
    size_t len;

    DO(pt2_archive_read(o->archive, e, 0, 5, &data, &len, &o->report));
    CHECK_INT(len, e->size);
    CHECK(memcmp(data + len, "\0\0\0\0\0", 5) == 0);
    c.data = data;
    c.len = len;
    DO(pt2_archive_stream(o->archive, e, compare_sink, &c, &o->report));
    CHECK_INT(c.at, len);
    if (e->method == PT2_STORED && len) {
        size_t at = len / 2, n = len - at < sizeof part ? len - at : sizeof part;
        DO(pt2_archive_read_part(o->archive, e, at, part, n, &o->report));
        CHECK(memcmp(part, data + at, n) == 0);
    }
    CHECK(pt2_archive_find(o->archive, e->name) == e);
    free(data);
}

/* ---- samples ---- */

static size_t samples; /* how many there were */

static void check_sample(const char *path, bool is_flat)
{
    bytes b = read_file(path);
    opened both[] = {open_path(path, &fe_libc_allocator), open_bytes(b, &fe_libc_allocator)};

    for (size_t i = 0; i < 2; i++) {
        opened *o = &both[i];
        uint32_t count;
        CHECK_CLEAN(&o->report);
        const pt2_entry *entries = pt2_archive_entries(o->archive, &count);
        CHECK(count > 3);
        for (uint32_t k = 0; k < count; k++)
            check_reading(o, &entries[k]);
        CHECK(check_all(o));
        CHECK_CLEAN(&o->report);
        CHECK_INT(*pt2_archive_root(o->archive) == '\0', is_flat);
        CHECK(pt2_archive_find(o->archive, is_flat ? "serialized_exported_program.json" : "archive_format"));
        CHECK(!pt2_archive_find(o->archive, "models/model.jso") && !pt2_archive_find(o->archive, ""));
        CHECK(!pt2_archive_find(o->archive, "MODELS/MODEL.JSON"));
        CHECK((pt2_archive_fd(o->archive) >= 0) == (i == 0) && (pt2_archive_bytes(o->archive) != NULL) == (i == 1));
        close_opened(o);
    }
    free(b.data);
    samples++;
}

static void for_each_sample(const char *folder, bool is_flat)
{
    char path[512];
    struct dirent *file;
    DIR *dir = opendir(folder);

    CHECK(dir);
    while ((file = readdir(dir))) {
        size_t len = strlen(file->d_name);
        if (len < 5 || strcmp(file->d_name + len - 4, ".pt2") != 0)
            continue;
        snprintf(path, sizeof path, "%s%s", folder, file->d_name);
        check_sample(path, is_flat);
    }
    closedir(dir);
}

static void test_samples(void)
{
    for_each_sample(DATA "samples/current/", false);
    for_each_sample(DATA "samples/middle_layout/", false);
    for_each_sample(DATA "samples/negative/", false);
    for_each_sample(DATA "samples/old_layout/", true);
    CHECK(samples > 50);
}

/* ---- hostile files ---- */

enum { OK = -1 };

/* As expected.json has it, for what is the container's: a file must give this fault, or none. */
static const struct {
    const char *file;
    int severity; /* OK: none */
    pt2_kind kind;
    const char *entry; /* how it starts; NULL: any */
} hostile[] = {
    {"Z02_one_byte", PT2_ERROR, PT2_ZIP, NULL},
    {"Z04_empty_zip", PT2_ERROR, PT2_MISSING_ENTRY, "models/"},
    {"Z05_cut_local_header", PT2_ERROR, PT2_ZIP, NULL},
    {"Z08_cut_at_cd", PT2_ERROR, PT2_ZIP, NULL},
    {"Z12_cut_last_byte", PT2_ERROR, PT2_ZIP, NULL},
    {"Z13_head_cut", PT2_ERROR, PT2_ZIP, NULL},
    {"Z16_cd_sig", PT2_ERROR, PT2_ZIP, NULL},
    {"Z18_cd_method", PT2_ERROR, PT2_ZIP, "models/model.json"},
    {"Z19_cd_name", PT2_ERROR, PT2_ZIP, "data/weights/model_weights_config.json"},
    {"Z20_cd_offset", PT2_ERROR, PT2_ZIP, "models/model.json"},
    {"Z21_local_sig", PT2_ERROR, PT2_ZIP, "models/model.json"},
    {"Z23_weight_bit", PT2_ERROR, PT2_CRC, "data/weights/weight_0"},
    {"Z24_json_digit", PT2_ERROR, PT2_CRC, "models/model.json"},
    {"Z25_json_brace", PT2_ERROR, PT2_CRC, "models/model.json"},
    {"Z26_descriptor_crc", PT2_ERROR, PT2_ZIP, "models/model.json"},
    {"Z28_date", PT2_WARNING, PT2_ZIP, NULL},
    {"Z29_count_more", PT2_ERROR, PT2_ZIP, NULL},
    {"Z30_count_less", PT2_ERROR, PT2_ZIP, NULL},
    {"Z35_zip64_locator", PT2_ERROR, PT2_ZIP, NULL},
    {"Z36_zip64_count", PT2_ERROR, PT2_ZIP, NULL},
    {"Z39_zip64_huge", PT2_ERROR, PT2_ZIP, "data/weights/weight_0"},
    {"Z40_zip64_short", PT2_ERROR, PT2_ZIP, "data/weights/weight_0"},
    {"Z41_size_4g", PT2_ERROR, PT2_ZIP, "data/weights/weight_0"},
    {"Z42_sizes_differ", PT2_ERROR, PT2_ZIP, "data/weights/weight_0"},
    {"Z43_local_central_size", PT2_ERROR, PT2_ZIP, "data/weights/weight_0"},
    {"Z44_local_central_crc", PT2_ERROR, PT2_ZIP, "data/weights/weight_0"},
    {"Z45_local_central_method", PT2_ERROR, PT2_ZIP, "data/weights/weight_0"},
    {"Z46_name_swap", PT2_ERROR, PT2_ZIP, "extra/hidden"},
    {"Z47_same_local", PT2_ERROR, PT2_ZIP, "data/weights/weight_1"},
    {"Z48_overlap", PT2_ERROR, PT2_ZIP, "data/weights/weight_0"},
    {"Z49_dup_same", PT2_ERROR, PT2_DUPLICATE_ENTRY, "models/model.json"},
    {"Z51_dup_weight", PT2_ERROR, PT2_DUPLICATE_ENTRY, "data/weights/weight_0"},
    {"Z52_case_clash", PT2_ERROR, PT2_DUPLICATE_ENTRY, "data/weights/weight_0"},
    {"Z53_case_only", OK, PT2_ZIP, NULL},
    {"Z55_dotdot", PT2_ERROR, PT2_UNSAFE_NAME, "extra/../../../hostile"},
    {"Z56_backslash", PT2_ERROR, PT2_UNSAFE_NAME, "linear\\"},
    {"Z57_backslash_extra", PT2_ERROR, PT2_UNSAFE_NAME, "extra\\..\\..\\hostile"},
    {"Z60_bad_utf8_flag", PT2_ERROR, PT2_UNSAFE_NAME, "extra/"},
    {"Z62_empty_name", PT2_ERROR, PT2_UNSAFE_NAME, NULL},
    {"Z64_ansi", PT2_ERROR, PT2_UNSAFE_NAME, "extra/a"},
    {"Z65_rtl", PT2_WARNING, PT2_UNSAFE_NAME, NULL},
    {"Z66_nfc_nfd", OK, PT2_ZIP, NULL},
    {"Z67_dir_models", PT2_WARNING, PT2_LAYOUT, "models/"},
    {"Z68_file_and_dir", PT2_ERROR, PT2_LAYOUT, "data/weights"},
    {"Z69_symlink", PT2_ERROR, PT2_UNSAFE_NAME, "data/weights/weight_0"},
    {"Z70_bomb_extra", OK, PT2_ZIP, NULL},
    {"Z71_bomb_json", OK, PT2_ZIP, NULL},
    {"Z72_bomb_lie", PT2_ERROR, PT2_ZIP, "data/weights/weight_0"},
    {"Z74_encrypted", PT2_ERROR, PT2_UNSUPPORTED, "models/model.json"},
    {"Z77_aes", PT2_ERROR, PT2_UNSUPPORTED, "models/model.json"},
    {"Z79_lzma", PT2_ERROR, PT2_UNSUPPORTED, "models/model.json"},
    {"Z80_zstd", PT2_ERROR, PT2_UNSUPPORTED, "models/model.json"},
    {"Z81_method_65535", PT2_ERROR, PT2_UNSUPPORTED, "models/model.json"},
    {"Z82_deflate_bad", PT2_ERROR, PT2_CRC, "models/model.json"},
    {"Z83_deflate_short", PT2_ERROR, PT2_ZIP, "models/model.json"},
    {"Z84_many", OK, PT2_ZIP, NULL},
    {"Z86_two_archives", PT2_ERROR, PT2_ZIP, NULL},
    {"Z87_leading_junk", PT2_ERROR, PT2_ZIP, NULL},
    {"Z91_no_root", PT2_ERROR, PT2_LAYOUT, "models/model.json"},
    {"Z92_nested_pt2", OK, PT2_ZIP, NULL},
    {"Z93_local_extra_long", PT2_ERROR, PT2_ZIP, "byteorder"},
    {"Z94_central_extra_long", PT2_ERROR, PT2_ZIP, NULL},
    {"Z95_offset_past_end", PT2_ERROR, PT2_ZIP, "models/model.json"},
    {"Z97_version_needed", PT2_WARNING, PT2_ZIP, NULL},
    {"Z98_gap", PT2_WARNING, PT2_ZIP, NULL},
    {"Z99_all_deflate", OK, PT2_ZIP, NULL},
    {"E25_A_and_C", PT2_ERROR, PT2_LAYOUT, "serialized_exported_program.json"},
    {"E28_dotdot_present", PT2_ERROR, PT2_UNSAFE_NAME, "data/weights/../x"},
};

static void check_hostile(size_t index, opened *o)
{
    bool found = hostile[index].severity == OK ? o->report.count == 0 && !o->report.no_memory : false;

    for (uint32_t i = 0; i < o->report.count; i++) {
        const pt2_fault *f = &o->report.items[i];
        const char *entry = hostile[index].entry;
        found |= (int)f->severity == hostile[index].severity && f->kind == hostile[index].kind &&
                 (!entry || (f->entry && strncmp(f->entry, entry, strlen(entry)) == 0));
    }
    if (found && (hostile[index].severity == PT2_ERROR) == (o->report.errors > 0))
        return;
    printf("%s:\n", hostile[index].file);
    print_faults(&o->report);
    CHECK(found);
}

static void test_hostile(void)
{
    char path[256];

    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        snprintf(path, sizeof path, DATA "hostile/%s.pt2", hostile[i].file);
        bytes b = read_file(path);
        opened both[] = {open_path(path, &fe_libc_allocator), open_bytes(b, &fe_libc_allocator)};
        for (size_t k = 0; k < 2; k++) {
            if (both[k].archive)
                check_all(&both[k]);
            check_hostile(i, &both[k]);
            close_opened(&both[k]);
        }
        free(b.data);
    }
}

/* ---- damage ---- */

static void test_prefixes(void)
{
    bytes whole = read_file(DATA "samples/current/linear.pt2");

    for (size_t len = 0; len < whole.len; len++) {
        bytes b = bytes_of(whole.data, len);
        opened o = open_bytes(b, &fe_libc_allocator);
        CHECK(!o.archive);
        CHECK_ERROR(&o.report, PT2_ZIP, NULL, NULL);
        close_opened(&o);
        free(b.data);
    }
    free(whole.data);
}

/* Which bytes are data, so that no change of them may pass. */
static char *data_map(bytes b)
{
    opened o = open_bytes(b, &fe_libc_allocator);
    uint32_t count;
    const pt2_entry *entries = pt2_archive_entries(o.archive, &count);
    char *map = calloc(b.len, 1);

    CHECK(map);
    for (uint32_t i = 0; i < count; i++)
        memset(map + entries[i].offset, 1, (size_t)entries[i].packed);
    close_opened(&o);
    return map;
}

static void flip_all(const char *path, unsigned char mask)
{
    bytes b = read_file(path);
    char *is_data = data_map(b);

    for (size_t i = 0; i < b.len; i++) {
        b.data[i] = (char)(b.data[i] ^ mask);
        opened o = open_bytes(b, &fe_libc_allocator);
        bool good = o.archive && check_all(&o);
        if (is_data[i] && (good || !o.archive))
            printf("byte %zu of %s\n", i, path);
        CHECK(!is_data[i] || (o.archive && !good));
        close_opened(&o);
        b.data[i] = (char)(b.data[i] ^ mask);
    }
    free(is_data);
    free(b.data);
}

static void test_flips(void)
{
    flip_all(DATA "samples/current/linear.pt2", 0xff);
    flip_all(DATA "samples/current/linear.pt2", 0x01);
}

/* ---- failures of the machine ---- */

/* Open, check and read; 0, or -1 when something failed, which the report must say. */
static int use_archive(opened *o)
{
    uint32_t count;
    char *data;
    size_t len;
    int result;

    if (!o->archive)
        return -1;
    const pt2_entry *entries = pt2_archive_entries(o->archive, &count);
    result = check_all(o) ? 0 : -1;
    for (uint32_t i = 0; i < count; i++) {
        if (pt2_archive_read(o->archive, &entries[i], 0, 1, &data, &len, &o->report) < 0) {
            CHECK(!data && (o->report.errors || o->report.no_memory));
            result = -1;
            continue;
        }
        CHECK_INT(len, entries[i].size);
        fe_resize(o->report.allocator, data, 0);
    }
    return result;
}

static void fail_allocations(const char *path, bool as_bytes, bool fail_on)
{
    bytes b = read_file(path);

    for (size_t nth = 0;; nth++) {
        test_memory m;
        memory_init(&m);
        memory_fail(&m, nth, fail_on);
        opened o = as_bytes ? open_bytes(b, &m.allocator) : open_path(path, &m.allocator);
        int result = use_archive(&o);
        bool failed = m.calls > nth;
        CHECK(failed ? o.report.no_memory : result == 0 && o.report.count == 0);
        close_opened(&o);
        CHECK_INT(m.blocks, 0);
        if (!failed)
            break;
    }
    free(b.data);
}

static void test_no_memory(void)
{
    for (int i = 0; i < 4; i++) {
        fail_allocations(DATA "samples/current/linear.pt2", i & 1, i & 2);
        fail_allocations(DATA "hostile/Z99_all_deflate.pt2", i & 1, i & 2);
    }
}

static void fail_reads(const char *path, int error)
{
    for (size_t nth = 0;; nth++) {
        io_fail(nth, error);
        opened o = open_path(path, &fe_libc_allocator);
        int result = use_archive(&o);
        bool failed = io_calls > nth;
        io_fail(SIZE_MAX, 0);
        CHECK(failed || result == 0);
        if (failed && error == EINTR) /* tried again */
            CHECK(result == 0 && o.report.count == 0);
        else if (failed)
            CHECK(result < 0 && o.report.errors);
        if (failed && error == EIO)
            CHECK_ERROR(&o.report, PT2_IO, NULL, "Input/output error");
        close_opened(&o);
        if (!failed)
            break;
    }
}

static void test_failing_reads(void)
{
    static const int errors[] = {EIO, EINTR, 0};

    for (size_t i = 0; i < 3; i++) {
        fail_reads(DATA "samples/current/linear.pt2", errors[i]);
        fail_reads(DATA "hostile/Z99_all_deflate.pt2", errors[i]);
    }
}

static void check_no_file(int fd, const char *text)
{
    pt2_report r;

    pt2_report_init(&r, &fe_libc_allocator, NULL);
    CHECK(!pt2_archive_open_fd(fd, &fe_libc_allocator, &r));
    CHECK_ERROR(&r, PT2_IO, NULL, text);
    CHECK(fd < 0 || fcntl(fd, F_GETFD) < 0); /* closed */
    pt2_report_clear(&r);
}

static void test_no_files(void)
{
    char path[512];
    int ends[2];
    const char *folder = new_folder();

    snprintf(path, sizeof path, "%s/file", folder);
    CHECK(pipe(ends) == 0);
    check_no_file(ends[0], "this is a pipe");
    close(ends[1]);
    check_no_file(open("tests", O_RDONLY), "this is a folder");
    check_no_file(open("/dev/null", O_RDONLY), "this is a device");
    check_no_file(-1, "cannot be opened");
    write_file(path, DATA DATA DATA, 3 * strlen(DATA));
    check_no_file(open(path, O_WRONLY), "cannot be read: Bad file descriptor");
    write_file(path, "", 0);
    opened o = open_path(path, &fe_libc_allocator);
    CHECK_ERROR(&o.report, PT2_ZIP, NULL, "the file is empty");
    close_opened(&o);
    CHECK(unlink(path) == 0 && rmdir(folder) == 0);
}

/* The file is cut while it is open. */
static void test_cut_while_open(void)
{
    char path[512];
    const char *folder = new_folder();
    bytes b = read_file(DATA "samples/current/linear.pt2");

    snprintf(path, sizeof path, "%s/file", folder);
    write_file(path, b.data, b.len);
    opened o = open_path(path, &fe_libc_allocator);
    CHECK(o.archive && truncate(path, 100) == 0);
    CHECK(!check_all(&o));
    CHECK_ERROR(&o.report, PT2_IO, "models/model.json", "became shorter");
    close_opened(&o);
    CHECK(unlink(path) == 0 && rmdir(folder) == 0);
    free(b.data);
}

/* ---- limits ---- */

static void test_limits(void)
{
    pt2_limits limits = pt2_default_limits;
    pt2_report r;
    char *data;
    size_t len;
    char small[4];

    limits.entries = 11;
    pt2_report_init(&r, &fe_libc_allocator, &limits);
    CHECK(!pt2_archive_open_fd(open(DATA "samples/current/linear.pt2", O_RDONLY), &fe_libc_allocator, &r));
    CHECK_ERROR(&r, PT2_LIMIT, NULL, "12 entries, more than the limit of 11");
    pt2_report_clear(&r);

    limits = pt2_default_limits;
    pt2_report_init(&r, &fe_libc_allocator, &limits);
    pt2_archive *archive =
        pt2_archive_open_fd(open(DATA "hostile/Z71_bomb_json.pt2", O_RDONLY), &fe_libc_allocator, &r);
    const pt2_entry *e = pt2_archive_find(archive, "models/model.json");
    CHECK(pt2_archive_read(archive, e, 1 << 20, 0, &data, &len, &r) < 0);
    CHECK_ERROR(&r, PT2_LIMIT, "models/model.json", "more than the limit of 1048576");
    pt2_report_clear(&r);
    limits.inflate_bytes = 1 << 21;
    CHECK(pt2_archive_read(archive, e, 0, 0, &data, &len, &r) < 0);
    CHECK_ERROR(&r, PT2_LIMIT, "models/model.json", "more than the limit of 2097152");
    pt2_report_clear(&r);
    limits.inflate_bytes = 0;
    limits.inflate_ratio = 900;
    CHECK(pt2_archive_read(archive, e, 0, 0, &data, &len, &r) < 0);
    CHECK_ERROR(&r, PT2_LIMIT, "models/model.json", "more than the limit of 1 to 900");
    pt2_report_clear(&r);
    DO(pt2_archive_check(archive, e, &r)); /* in constant memory: no limit */
    limits.inflate_ratio = 0;
    DO(pt2_archive_read(archive, e, 0, 0, &data, &len, &r));
    CHECK_INT(len, e->size);
    free(data);
    CHECK(pt2_archive_read_part(archive, e, 0, small, 4, &r) < 0);
    CHECK_ERROR(&r, PT2_UNSUPPORTED, "models/model.json", "deflated");
    e = pt2_archive_find(archive, "archive_format");
    CHECK(pt2_archive_read_part(archive, e, 1, small, 3, &r) < 0);
    CHECK_ERROR(&r, PT2_PAYLOAD, "archive_format", "bytes 1 to 4");
    CHECK(pt2_archive_read_part(archive, e, UINT64_MAX, small, 1, &r) < 0);
    pt2_archive_close(archive);
    pt2_report_clear(&r);
}

static int refuse(void *ctx, const void *data, size_t len)
{
    (void)data;
    (void)len;
    return pt2_fail(ctx, PT2_IO, "here", NULL, "no more");
}

static void test_sink_fails(void)
{
    for (int i = 0; i < 2; i++) {
        bytes b = read_file(DATA "samples/current/linear.pt2");
        opened o =
            i ? open_bytes(b, &fe_libc_allocator) : open_path(DATA "hostile/Z99_all_deflate.pt2", &fe_libc_allocator);
        const pt2_entry *e = pt2_archive_find(o.archive, "models/model.json");
        CHECK(pt2_archive_stream(o.archive, e, refuse, &o.report, &o.report) < 0);
        CHECK_INT(o.report.errors, 1);
        close_opened(&o);
        free(b.data);
    }
}

/* ---- names ---- */

static void test_names(void)
{
    static const struct {
        const char *name;
        size_t len;
        const char *fault; /* part of it; NULL: safe */
    } names[] = {
        {"a", 1, NULL},
        {"a/b.c/d e", 9, NULL},
        {"a/", 2, NULL},
        {".data/x", 7, NULL},
        {"...", 3, NULL},
        {"a..b", 4, NULL},
        {"\xc3\xa9/\xe2\x82\xac\xf0\x9f\x98\x80", 10, NULL},
        {"fc:weight", 9, NULL},
        {"", 0, "empty"},
        {"/a", 2, "absolute"},
        {"/", 1, "absolute"},
        {"a//b", 4, "empty part"},
        {"a//", 3, "empty part"},
        {"..", 2, "'..'"},
        {"../a", 4, "'..'"},
        {"a/..", 4, "'..'"},
        {"a/../b", 6, "'..'"},
        {"a/../", 5, "'..'"},
        {"./a", 3, "'.'"},
        {"a/.", 3, "'.'"},
        {"a\\b", 3, "backslash"},
        {"C:", 2, "drive"},
        {"c:/a", 4, "drive"},
        {"a/c:b", 5, "drive"},
        {"a\nb", 3, "control"},
        {"a\x1b[1m", 5, "control"},
        {"a\0b", 3, "control"},
        {"a\x7f", 2, "control"},
        {"\xc2\x85", 2, "control"},
        {"a\xff", 2, "not UTF-8"},
        {"\xc0\xaf", 2, "not UTF-8"},
        {"\xe0\x80\xaf", 3, "not UTF-8"},
        {"\xed\xa0\x80", 3, "not UTF-8"},
        {"\xf4\x90\x80\x80", 4, "not UTF-8"},
        {"a\xe2\x82", 3, "not UTF-8"},
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        bytes b = bytes_of(names[i].name, names[i].len);
        const char *fault = pt2_entry_name_fault(b.data, b.len);
        if (names[i].fault ? !fault || !strstr(fault, names[i].fault) : fault != NULL)
            printf("%s: %s\n", names[i].name, fault ? fault : "safe");
        CHECK(names[i].fault ? fault && strstr(fault, names[i].fault) : !fault);
        free(b.data);
    }
}

/* ---- archives made by hand ---- */

/* An archive with a good entry and another one. */
static opened open_hand(hand_entry e)
{
    static bytes b; /* what the last one was made of */
    hand_zip z = hand_new();

    free(b.data);
    hand_add(&z, (hand_entry){.name = "r/models/model.json", .content = "{}"});
    hand_add(&z, e);
    b = hand_end(&z, NULL, 0);
    return open_bytes(b, &fe_libc_allocator);
}

static void check_hand(hand_entry e, pt2_kind kind, const char *entry, const char *text)
{
    opened o = open_hand(e);

    CHECK(!o.archive);
    CHECK_ERROR(&o.report, kind, entry, text);
    close_opened(&o);
}

static void test_hand_names(void)
{
    static char long_name[5000] = "r/";

    memset(long_name + 2, 'x', sizeof long_name - 3);
    opened o = open_hand((hand_entry){.name = "r/b", .content = "text", .flags = 0x800});
    CHECK_CLEAN(&o.report);
    CHECK(check_all(&o));
    CHECK_TEXT(pt2_archive_root(o.archive), "r");
    close_opened(&o);
    check_hand((hand_entry){.name = "", .no_name = true}, PT2_UNSAFE_NAME, "", "is empty");
    check_hand((hand_entry){.name = "/etc/x"}, PT2_UNSAFE_NAME, "/etc/x", "absolute");
    check_hand((hand_entry){.name = "r/../x"}, PT2_UNSAFE_NAME, "../x", "'..'");
    check_hand((hand_entry){.name = "r/a\0b", .name_len = 5}, PT2_UNSAFE_NAME, "a", "control");
    check_hand((hand_entry){.name = "r/C:/x"}, PT2_UNSAFE_NAME, "C:/x", "drive");
    check_hand((hand_entry){.name = "r/\xff"}, PT2_UNSAFE_NAME, "\\xff", "UTF-8");
    check_hand((hand_entry){.name = long_name}, PT2_LIMIT, NULL, "4999 bytes");
    check_hand((hand_entry){.name = "r/MODELS/model.json"}, PT2_DUPLICATE_ENTRY, "MODELS/model.json",
               "upper and lower");
    check_hand((hand_entry){.name = "r/models/model.json"}, PT2_DUPLICATE_ENTRY, "models/model.json", "twice");
    check_hand((hand_entry){.name = "r/Models"}, PT2_LAYOUT, "Models", "also a folder");
    check_hand((hand_entry){.name = "r/models/model.json/x"}, PT2_LAYOUT, "models/model.json", "also a folder");
    check_hand((hand_entry){.name = "q/x"}, PT2_LAYOUT, "q/x", "top folder");
    check_hand((hand_entry){.name = "rx"}, PT2_LAYOUT, "rx", "top folder");
    check_hand((hand_entry){.name = "serialized_exported_program.json"}, PT2_LAYOUT, "serialized_exported_program.json",
               "two layouts");
    o = open_hand((hand_entry){.name = "r/\xc3\xa9"});
    CHECK_WARNING(&o.report, PT2_ZIP, "\xc3\xa9", "not marked");
    CHECK_INT(o.report.count, 1);
    close_opened(&o);
    o = open_hand((hand_entry){.name = "r/a\xe2\x80\xae", .flags = 0x800});
    CHECK_WARNING(&o.report, PT2_UNSAFE_NAME, "a\\xe2\\x80\\xae", "format characters");
    close_opened(&o);
    o = open_hand((hand_entry){.name = "r/"}); /* the root itself */
    CHECK_CLEAN(&o.report);
    CHECK(pt2_archive_find(o.archive, "")->is_folder);
    close_opened(&o);
}

#define EXTRA(text) .central_extra = text, .central_extra_len = sizeof text - 1
#define LOCAL(text) .local_extra = text, .local_extra_len = sizeof text - 1

static void test_hand_records(void)
{
    opened o;

    check_hand((hand_entry){.name = "r/b", .method = 12}, PT2_UNSUPPORTED, "b", "method 12");
    check_hand((hand_entry){.name = "r/b", .flags = 1}, PT2_UNSUPPORTED, "b", "encrypted");
    check_hand((hand_entry){.name = "r/b", .flags = 0x40}, PT2_UNSUPPORTED, "b", "encrypted");
    check_hand((hand_entry){.name = "r/b", .attributes = 0xa1ff0000}, PT2_UNSAFE_NAME, "b", "symbolic link");
    check_hand((hand_entry){.name = "r/b", .attributes = 0x11ff0000}, PT2_UNSAFE_NAME, "b", "not a plain file");
    check_hand((hand_entry){.name = "r/b", .attributes = 0x41ff0000}, PT2_UNSAFE_NAME, "b", "not a plain file");
    check_hand((hand_entry){.name = "r/b/", .content = "x"}, PT2_ZIP, "b/", "a folder with 1 bytes");
    check_hand((hand_entry){.name = "r/b", EXTRA("\1\0\x9\0x")}, PT2_ZIP, "b", "runs past the others");
    check_hand((hand_entry){.name = "r/b", EXTRA("ab")}, PT2_ZIP, "b", "bytes after the extra fields");
    check_hand((hand_entry){.name = "r/b", LOCAL("ab")}, PT2_ZIP, "b", "bytes after the extra fields in the local");
    check_hand((hand_entry){.name = "r/b", EXTRA("\1\0\0\0\1\0\0\0")}, PT2_ZIP, "b", "two zip64");
    check_hand((hand_entry){.name = "r/b", EXTRA("\x75\x70\x6\0\1....c")}, PT2_ZIP, "b", "another name");
    check_hand((hand_entry){.name = "r/b", LOCAL("\x75\x70\x8\0\1....r/c")}, PT2_ZIP, "b", "another name");
    check_hand((hand_entry){.name = "r/b", .content = "x", .flags = 8}, PT2_ZIP, "b", "descriptor");
    o = open_hand((hand_entry){.name = "r/b", EXTRA("\0\0"), LOCAL("XY\1\0z\0\0\0"), .attributes = 0x81ff0000});
    CHECK_CLEAN(&o.report);
    close_opened(&o);
    o = open_hand((hand_entry){.name = "r/b/", .attributes = 0x41ff0010});
    CHECK_CLEAN(&o.report);
    close_opened(&o);
    o = open_hand((hand_entry){.name = "r/b", .needed = 64});
    CHECK_WARNING(&o.report, PT2_ZIP, "b", "version needed 64");
    close_opened(&o);
    o = open_hand((hand_entry){.name = "r/b", .gap = 7});
    CHECK_WARNING(&o.report, PT2_ZIP, "models/model.json", "7 bytes");
    close_opened(&o);
}

/* One byte more or less before, between and behind. */
static void test_hand_ends(void)
{
    static const struct {
        const char *comment;
        size_t len;
        const char *text; /* of the fault; NULL: fine */
    } comments[] = {
        {"a comment", 9, NULL},
        {"PK\5\6", 4, "cut short"},
        {"aPK\5\6aaaaaaaaaaaaaaaaaa", 23, "1 bytes follow"},
        {"PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22, "two end records"},
    };

    for (size_t i = 0; i < sizeof comments / sizeof *comments; i++) {
        static char text[64];
        hand_zip z = hand_new();
        hand_add(&z, (hand_entry){.name = "r/a", .content = "a"});
        memcpy(text, comments[i].comment, comments[i].len);
        if (i == 2)
            text[comments[i].len - 2] = text[comments[i].len - 1] = 0; /* its own comment: none */
        bytes b = hand_end(&z, text, comments[i].len);
        opened o = open_bytes(b, &fe_libc_allocator);
        if (comments[i].text) {
            CHECK(!o.archive && o.report.errors);
            if (i != 2)
                CHECK_ERROR(&o.report, PT2_ZIP, NULL, comments[i].text);
        } else {
            CHECK_CLEAN(&o.report);
        }
        close_opened(&o);
        free(b.data);
    }
    hand_zip z = hand_new();
    hand_add(&z, (hand_entry){.name = "r/a", .content = "a", .gap = 3});
    bytes b = hand_end(&z, NULL, 0);
    opened o = open_bytes(b, &fe_libc_allocator);
    CHECK_ERROR(&o.report, PT2_ZIP, NULL, "3 bytes stand before the first entry");
    close_opened(&o);
    free(b.data);
    z = hand_new();
    hand_add(&z, (hand_entry){.name = "r/a", .content = "a"});
    b = hand_end(&z, "", 0);
    bytes more = bytes_of(b.data, b.len);
    more.data = realloc(more.data, b.len + 1);
    CHECK(more.data);
    more.data[more.len++] = 'x';
    o = open_bytes(more, &fe_libc_allocator);
    CHECK_ERROR(&o.report, PT2_ZIP, NULL, "1 bytes follow the end record");
    close_opened(&o);
    free(more.data);
    free(b.data);
    z = hand_new();
    b = hand_end(&z, NULL, 0);
    o = open_bytes(b, &fe_libc_allocator);
    CHECK_ERROR(&o.report, PT2_MISSING_ENTRY, "models/", "no entries");
    close_opened(&o);
    free(b.data);
}

/* An archive whose second entry lies in the data of the first. */
static void test_overlap(void)
{
    hand_entry inner = {.name = "r/inner", .content = "inside"};
    hand_zip z = hand_new();
    fe_buffer local;
    char outer[256];

    /* What is in the way is made of bytes that a C string may hold, but for the numbers of the inner header. */
    fe_buffer_init(&local, &fe_libc_allocator);
    put_record(&local, &inner, true, 0);
    fe_buffer_text(&local, inner.content);
    memset(outer, 'o', sizeof outer);
    outer[100 + local.len] = '\0';
    hand_add(&z, (hand_entry){.name = "r/outer", .content = outer});
    put_record(&z.directory, &inner, false, 40);
    z.count++;
    memcpy(z.out.data + 40, local.data, local.len);
    bytes b = hand_end(&z, NULL, 0);
    opened o = open_bytes(b, &fe_libc_allocator);
    CHECK(!o.archive);
    CHECK_ERROR(&o.report, PT2_ZIP, "outer", "overlaps 'inner'");
    close_opened(&o);
    fe_buffer_clear(&local);
    free(b.data);
}

/* A deflated entry that cannot have the size it says; an archive in parts. */
static void test_impossible(void)
{
    hand_zip z = hand_new();

    hand_add(&z, (hand_entry){.name = "r/a", .content = "0123456789", .method = 8});
    memcpy(z.out.data + 22, "\xff\xff\0", 4);
    memcpy(z.directory.data + 24, "\xff\xff\0", 4);
    bytes b = hand_end(&z, NULL, 0);
    opened o = open_bytes(b, &fe_libc_allocator);
    CHECK_ERROR(&o.report, PT2_ZIP, "a", "10 bytes cannot inflate to 65535");
    close_opened(&o);
    free(b.data);
    z = hand_new();
    hand_add(&z, (hand_entry){.name = "r/a"});
    b = hand_end(&z, NULL, 0);
    for (size_t at = 4; at < 10; at += 2) { /* this disk, disk of the directory, entries on this disk */
        b.data[b.len - 22 + at] ^= 2;
        o = open_bytes(b, &fe_libc_allocator);
        CHECK_ERROR(&o.report, PT2_ZIP, NULL, "several parts");
        close_opened(&o);
        b.data[b.len - 22 + at] ^= 2;
    }
    free(b.data);
}

/* Names chosen so that they all want one place of the table: refused, not searched for ever. */
static void test_chosen_names(void)
{
    enum { COUNT = 1100, SLOTS = 4096 };
    static char texts[COUNT][16];
    static pt2_entry entries[COUNT];
    pt2_names names;
    pt2_report r;

    for (unsigned n = 0, i = 0; n < COUNT; i++) {
        int len = snprintf(texts[n], sizeof texts[n], "%u", i);
        if ((fe_mix(pt2_name_hash(texts[n], (size_t)len)) & (SLOTS - 1)) == 7)
            entries[n] = (pt2_entry){.full_name = texts[n], .name = texts[n]}, n++;
    }
    pt2_report_init(&r, &fe_libc_allocator, NULL);
    CHECK(pt2_names_init(&names, entries, COUNT, &fe_libc_allocator, &r) < 0);
    CHECK_INT(names.mask, SLOTS - 1);
    CHECK_ERROR(&r, PT2_LIMIT, NULL, "too many names with one hash");
    pt2_names_clear(&names, &fe_libc_allocator);
    pt2_report_clear(&r);
}

/* Many entries, and names that share all but their end: opening stays linear, finding constant. */
static void test_many(void)
{
    char name[64];
    hand_zip z = hand_new();

    for (int i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, "r/data/weights/weight_%d", i);
        hand_add(&z, (hand_entry){.name = name});
    }
    bytes b = hand_end(&z, NULL, 0);
    opened o = open_bytes(b, &fe_libc_allocator);
    CHECK_CLEAN(&o.report);
    for (int i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, "data/weights/weight_%d", i);
        CHECK(strcmp(pt2_archive_find(o.archive, name)->name, name) == 0);
    }
    CHECK(!pt2_archive_find(o.archive, "data/weights/weight_20000"));
    close_opened(&o);
    free(b.data);
}

int main(void)
{
    RUN(test_samples);
    RUN(test_hostile);
    RUN(test_names);
    RUN(test_hand_names);
    RUN(test_hand_records);
    RUN(test_hand_ends);
    RUN(test_overlap);
    RUN(test_impossible);
    RUN(test_chosen_names);
    RUN(test_many);
    RUN(test_limits);
    RUN(test_sink_fails);
    RUN(test_no_files);
    RUN(test_cut_while_open);
    RUN(test_no_memory);
    RUN(test_failing_reads);
    RUN(test_prefixes);
    RUN(test_flips);
    return 0;
}
