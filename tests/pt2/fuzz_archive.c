/* fuzz_archive.c - libFuzzer target: bytes are opened as an archive, and every entry of it is read in every way.
 *
 * clang -fsanitize=fuzzer,address,undefined; seeds are the samples and the hostile files. Beyond what the sanitizers
 * see, it checks what an open archive promises, and that a file fares as its bytes do. Half of the mutations change a
 * field of a record, since those of single bytes seldom keep an archive whole.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memfd_create */
#endif
#include "archive.h"
#include "must.h"

#include <sys/mman.h>
#include <unistd.h>

#define MOST (UINT64_C(1) << 22) /* bytes of an entry that is read whole */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

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

static void read_all(pt2_archive *archive, size_t size, pt2_report *r)
{
    uint32_t count;
    const pt2_entry *entries = pt2_archive_entries(archive, &count);

    for (uint32_t i = 0; i < count; i++)
        read_entry(archive, &entries[i], size, r);
}

static int new_file(const uint8_t *data, size_t size)
{
    int fd = memfd_create("archive", 0);

    MUST(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pt2_limits limits = pt2_default_limits;
    pt2_report reports[2];

    limits.faults = 8;
    limits.entries = 5000;
    for (int i = 0; i < 2; i++) {
        pt2_report *r = &reports[i];
        pt2_report_init(r, &fe_libc_allocator, &limits);
        pt2_archive *archive = i ? pt2_archive_open_fd(new_file(data, size), &fe_libc_allocator, r)
                                 : pt2_archive_open_bytes(data, size, &fe_libc_allocator, r);
        MUST((archive != NULL) == (r->errors == 0 && !r->no_memory));
        if (archive)
            read_all(archive, size, r);
        pt2_archive_close(archive);
    }
    MUST(reports[0].errors == reports[1].errors && reports[0].warnings == reports[1].warnings);
    pt2_report_clear(&reports[0]);
    pt2_report_clear(&reports[1]);
    return 0;
}

/* ---- mutations ---- */

/* Numbers of records: where they are in a central record, and in a local header (0: not there). */
static const struct {
    uint8_t central, local, width;
} fields[] = {{4, 0, 2},   {6, 4, 2},   {8, 6, 2},   {10, 8, 2}, {12, 10, 4}, {16, 14, 4}, {20, 18, 4},
              {24, 22, 4}, {28, 26, 2}, {30, 28, 2}, {32, 0, 2}, {34, 0, 2},  {38, 0, 4},  {42, 0, 4}};

static size_t find_record(const uint8_t *data, size_t size, const char *signature, size_t len, unsigned random)
{
    size_t start = size ? random % size : 0;

    for (size_t i = 0; i + len <= size; i++) {
        size_t at = (start + i) % (size - len + 1);
        if (memcmp(data + at, signature, 4) == 0)
            return at;
    }
    return SIZE_MAX;
}

static void put_field(uint8_t *at, size_t width, uint64_t value)
{
    for (size_t i = 0; i < width; i++)
        at[i] = (uint8_t)(value >> 8 * i);
}

static uint64_t some_number(const uint8_t *old, size_t width, size_t size, unsigned random)
{
    uint64_t value = 0;

    for (size_t i = width; i-- > 0;)
        value = value << 8 | old[i];
    switch (random % 8) {
    case 0:
        return 0;
    case 1:
        return UINT32_MAX;
    case 2:
        return size - random / 8 % 64;
    case 3:
        return value ^ 1u << random / 8 % 32;
    case 4:
        return random;
    default:
        return value + random / 8 % 129 - 64;
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    unsigned random = (unsigned)fe_mix(seed);
    size_t at = find_record(data, size, "PK\1\2", 46, random >> 4), end = find_record(data, size, "PK\5\6", 22, 0);
    uint64_t number;

    if (random & 1 || at == SIZE_MAX)
        return LLVMFuzzerMutate(data, size, most);
    if ((random & 14) == 0 && end != SIZE_MAX) { /* the end record: numbers from byte 4 on */
        size_t place = end + 4 + 2 * (random >> 8 & 7);
        put_field(data + place, 2, some_number(data + place, 2, size, random >> 12));
        return size;
    }
    size_t which = (random >> 8) % (sizeof fields / sizeof *fields), width = fields[which].width;
    number = some_number(data + at + fields[which].central, width, size, random >> 16);
    put_field(data + at + fields[which].central, width, number);
    size_t local = (size_t)data[at + 42] | (size_t)data[at + 43] << 8 | (size_t)data[at + 44] << 16;
    if (random & 2 && fields[which].local && local + 30 <= size)
        put_field(data + local + fields[which].local, width, number);
    return size;
}
