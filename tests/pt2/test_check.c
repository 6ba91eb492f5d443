/* pt2_check and pt2_program_open_payloads: against opening, reading and verifying step by step, and without memory. */
#include "files.h"
#include "program.h"

#include <dirent.h>

#define SAMPLES DATA "samples/"
#define HOSTILE DATA "hostile/"

static const char *const folders[] = {SAMPLES "current", SAMPLES "middle_layout", SAMPLES "old_layout", DATA "hostile"};

typedef void (*visitor)(pt2_archive *archive, const char *path);

static size_t each_file(const char *folder, visitor visit)
{
    DIR *dir = opendir(folder);
    char path[600];
    size_t count = 0;
    pt2_report r;

    CHECK(dir);
    for (struct dirent *d; (d = readdir(dir));) {
        if (!strstr(d->d_name, ".pt2"))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, d->d_name);
        bytes b = read_file(path);
        pt2_report_init(&r, &fe_libc_allocator, NULL);
        pt2_archive *archive = pt2_archive_open_bytes(b.data, b.len, &fe_libc_allocator, &r);
        if (archive) {
            visit(archive, path);
            count++;
        }
        pt2_archive_close(archive);
        pt2_report_clear(&r);
        free(b.data);
    }
    closedir(dir);
    return count;
}

/* ---- checking ---- */

static void check_by_steps(pt2_archive *archive, pt2_report *r)
{
    fe_exprs *exprs = fe_exprs_new(&fe_libc_allocator);
    pt2_program *p = pt2_program_open(archive, NULL, exprs, &fe_libc_allocator, r);
    int result = 0;

    if (p && pt2_program_read(p, NULL, r) == 0 && !r->errors)
        result = pt2_program_verify(p, p->root, PT2_LENIENT, r);
    if (p)
        result = pt2_program_check_payloads(p, 0, r);
    (void)result;
    pt2_program_free(p);
    fe_exprs_free(exprs);
}

static void same_faults(pt2_archive *archive, const char *path)
{
    pt2_report got, want;

    pt2_report_init(&got, &fe_libc_allocator, NULL);
    pt2_report_init(&want, &fe_libc_allocator, NULL);
    check_by_steps(archive, &want);
    int result = pt2_check(archive, NULL, PT2_LENIENT, true, NULL, &fe_libc_allocator, &got);
    if (got.count != want.count)
        printf("%s\n", path);
    CHECK_INT(result, want.errors ? -1 : 0);
    CHECK_INT(got.count, want.count);
    for (uint32_t i = 0; i < got.count && i < want.count; i++) {
        CHECK_INT(got.items[i].kind, want.items[i].kind);
        CHECK_TEXT(got.items[i].message, want.items[i].message);
    }
    pt2_report_clear(&got);
    pt2_report_clear(&want);
}

static void test_as_step_by_step(void)
{
    size_t count = 0;

    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        count += each_file(folders[i], same_faults);
    CHECK(count > 200);
}

static void test_named_models(void)
{
    bytes b = read_file(SAMPLES "current/linear.pt2");
    pt2_report r;

    pt2_report_init(&r, &fe_libc_allocator, NULL);
    pt2_archive *archive = pt2_archive_open_bytes(b.data, b.len, &fe_libc_allocator, &r);
    DO(pt2_check(archive, "model", PT2_STRICT, true, NULL, &fe_libc_allocator, &r));
    CHECK_CLEAN(&r);
    CHECK_INT(pt2_check(archive, "other", PT2_LENIENT, false, NULL, &fe_libc_allocator, &r), -1);
    CHECK_ERROR(&r, PT2_MISSING_ENTRY, "models/other.json", "has no model 'other'");
    pt2_archive_close(archive);
    pt2_report_clear(&r);
    free(b.data);
}

/* ---- weights only ---- */

static void same_payloads(pt2_archive *archive, const char *path)
{
    fe_exprs *exprs = fe_exprs_new(&fe_libc_allocator);
    pt2_report r;

    (void)path;
    pt2_report_init(&r, &fe_libc_allocator, NULL);
    pt2_program *want = pt2_program_open(archive, NULL, exprs, &fe_libc_allocator, &r);
    pt2_program *got = pt2_program_open_payloads(archive, NULL, &fe_libc_allocator, &r);
    CHECK(!want || got); /* it asks for less */
    if (want) {
        CHECK_TEXT(got->model, want->model);
        CHECK_INT(got->layout, want->layout);
        CHECK_INT(got->weights.count, want->weights.count);
        CHECK_INT(got->constants.count, want->constants.count);
        CHECK(got->weights.pickle == want->weights.pickle && got->constants.pickle == want->constants.pickle);
        for (uint32_t i = 0; i < want->weights.count; i++) {
            CHECK_TEXT(got->weights.items[i].name, want->weights.items[i].name);
            CHECK(got->weights.items[i].entry == want->weights.items[i].entry);
        }
        CHECK(!got->json.doc && !got->root);
    }
    pt2_program_free(got);
    pt2_program_free(want);
    fe_exprs_free(exprs);
    pt2_report_clear(&r);
}

static void test_weights_only(void)
{
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        CHECK(each_file(folders[i], same_payloads) > 0);
}

/* ---- memory ---- */

static void test_no_memory(void)
{
    static const char *const paths[] = {SAMPLES "current/linear.pt2", SAMPLES "old_layout/cond___full.pt2",
                                        HOSTILE "E29_other_dtype.pt2"};
    pt2_report r;
    test_memory m;

    for (size_t i = 0; i < 2 * sizeof paths / sizeof *paths; i++) {
        bytes b = read_file(paths[i / 2]);
        int result = 0;
        bool failed = true;
        for (size_t n = 0; failed; n++) {
            memory_init(&m);
            pt2_report_init(&r, &m.allocator, NULL);
            pt2_archive *archive = pt2_archive_open_bytes(b.data, b.len, &m.allocator, &r);
            CHECK(archive);
            memory_fail(&m, n, true);
            if (i % 2) {
                pt2_program *p = pt2_program_open_payloads(archive, NULL, &m.allocator, &r);
                result = p ? 0 : -1;
                pt2_program_free(p);
            } else {
                result = pt2_check(archive, NULL, PT2_LENIENT, true, NULL, &m.allocator, &r);
            }
            failed = m.calls > n;
            CHECK(result == 0 || r.no_memory || r.errors);
            pt2_archive_close(archive);
            pt2_report_clear(&r);
            CHECK_INT(m.blocks, 0);
            CHECK(n < 20000);
        }
        free(b.data);
    }
}

int main(void)
{
    RUN(test_as_step_by_step);
    RUN(test_named_models);
    RUN(test_weights_only);
    RUN(test_no_memory);
    return 0;
}
