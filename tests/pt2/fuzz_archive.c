/* fuzz_archive.c - libFuzzer target: bytes are opened as an archive, and every entry of it is read in every way.
 *
 * clang -fsanitize=fuzzer,address,undefined; seeds are the samples and the hostile files. Beyond what the sanitizers see,
 * it checks what an open archive promises.
 */
#include "archive.h"

#include <stdio.h>
#include <stdlib.h>

#define MOST (UINT64_C(1) << 22) /* bytes of an entry that is read whole */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(condition) ((condition) ? (void)0 : must_failed(#condition, __LINE__))

static void must_failed(const char *what, int line)
{
    fprintf(stderr, "line %d: %s\n", line, what);
    abort();
}

static int count_sink(void *ctx, const void *data, size_t len)
{
    uint64_t *count = ctx;

    (void)data;
    *count += len;
    return 0;
}

static void read_entry(pt2_archive *archive, const pt2_entry *e, size_t size, pt2_report *r)
{
    uint64_t count = 0;
    char *whole, first;
    size_t len;

    MUST(e->offset <= size && e->packed <= size - e->offset);
    MUST(!pt2_entry_name_fault(e->full_name, strlen(e->full_name)));
    MUST(pt2_archive_find(archive, e->name) == e);
    int streamed = pt2_archive_stream(archive, e, count_sink, &count, r);
    MUST(count <= e->size && (streamed < 0 || count == e->size));
    if (pt2_archive_read(archive, e, MOST, 1, &whole, &len, r) == 0) {
        MUST(streamed == 0 && len == e->size && whole[len] == '\0');
        fe_resize(&fe_libc_allocator, whole, 0);
    }
    if (e->size && e->method == PT2_STORED)
        MUST(pt2_archive_read_part(archive, e, e->size - 1, &first, 1, r) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pt2_limits limits = pt2_default_limits;
    pt2_report r;
    uint32_t count;

    limits.faults = 8;
    limits.entries = 5000;
    pt2_report_init(&r, &fe_libc_allocator, &limits);
    pt2_archive *archive = pt2_archive_open_bytes(data, size, &fe_libc_allocator, &r);
    MUST((archive != NULL) == (r.errors == 0 && !r.no_memory));
    if (archive) {
        const pt2_entry *entries = pt2_archive_entries(archive, &count);
        for (uint32_t i = 0; i < count; i++)
            read_entry(archive, &entries[i], size, &r);
    }
    pt2_archive_close(archive);
    pt2_report_clear(&r);
    return 0;
}
