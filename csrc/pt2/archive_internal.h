/* archive_internal.h - what the files of the archive reader share (archive*.c); nobody else includes it. */
#ifndef PT2_ARCHIVE_INTERNAL_H
#define PT2_ARCHIVE_INTERNAL_H

#include "archive.h"

#include <zip.h>

/* Signatures, lengths and flags of the zip specification (APPNOTE.TXT 6.3, chapter 4). */
enum { CENTRAL_SIG = 0x02014b50, LOCAL_SIG = 0x04034b50, DESCRIPTOR_SIG = 0x08074b50, END_SIG = 0x06054b50 };
enum { END64_SIG = 0x06064b50, LOCATOR_SIG = 0x07064b50 };
enum { CENTRAL_LEN = 46, LOCAL_LEN = 30, END_LEN = 22, END64_LEN = 56, LOCATOR_LEN = 20 };
enum { ENCRYPTED = 1, HAS_DESCRIPTOR = 8, STRONGLY_ENCRYPTED = 0x40, IS_UTF8 = 0x800, MASKED = 0x2000 };

struct pt2_archive {
    fe_allocator allocator;
    int fd;                     /* of a file, else -1 */
    const unsigned char *bytes; /* in memory, else NULL */
    pt2_fetcher fetcher;        /* read NULL: there is none */
    uint64_t base, size;        /* of the archive in the file */
    pt2_entry *entries;
    uint32_t count;
    char *texts; /* all full names, and the root */
    const char *root;
    pt2_names names;
    zip_t *zip;
    const unsigned char
        *directory; /* the central directory, while the archive is opened; libzip reads it in small bits */
    uint64_t directory_at, directory_len;
    uint64_t zip_at; /* where libzip reads next */
    zip_error_t zip_error;
    int io_error; /* of libzip's last read that failed: errno, or -1 when the file had fewer bytes; 0: none failed */
};

static inline uint16_t pt2_get16(const unsigned char *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t pt2_get32(const unsigned char *p)
{
    return pt2_get16(p) | (uint32_t)pt2_get16(p + 2) << 16;
}

static inline uint64_t pt2_get64(const unsigned char *p)
{
    return pt2_get32(p) | (uint64_t)pt2_get32(p + 4) << 32;
}

/* ---- archive.c ---- */

/* Read exactly len bytes, which the size of the file says are there. */
int pt2_read_all(const pt2_archive *archive, uint64_t at, void *out, size_t len, const char *entry,
                 pt2_report *r) FE_MUST_CHECK;

/* ---- archive_names.c ---- */

/* Does a safe name hold characters that do not show, or turn text round? */
bool pt2_has_format_characters(const char *name, size_t len);
uint64_t pt2_name_hash(const char *name, size_t len); /* the same for names that differ in ASCII case only */

#define PT2_MAX_NAME 4096 /* bytes of an entry's full name, as PATH_MAX */

/* ---- archive_directory.c ---- */

/* What opening needs besides the archive: a window on the file, and the central directory. */
typedef struct {
    pt2_archive *archive;
    pt2_report *r;
    const fe_allocator *allocator;
    unsigned char *window;
    size_t capacity, len; /* of the window */
    uint64_t at;          /* of the window in the file */
    uint64_t directory_at, directory_len;
    const unsigned char *directory;
    unsigned char *directory_block; /* NULL: directory points into the bytes */
    uint64_t count;
} pt2_opening;

/* len bytes at `at`, which are in the file; good until the next peek. NULL: failed. */
const unsigned char *pt2_peek(pt2_opening *o, uint64_t at, size_t len, const char *entry);
/* Peeks at `at`, or up to so many bytes before, will follow. */
void pt2_expect_peek(const pt2_opening *o, uint64_t at, size_t before);
/* Bytes of a central record, with its name, extra fields and comment. */
size_t pt2_record_len(const unsigned char *record);
/* Read the end records and the central directory: gives the archive its root and its entries, with names only. */
int pt2_open_directory(pt2_opening *o) FE_MUST_CHECK;

/* ---- archive_records.c ---- */

/* Read the central record and the local header of each entry, and check that the entries share no byte. */
int pt2_open_entries(pt2_opening *o) FE_MUST_CHECK;

/* ---- package.c ---- */

/* Bytes of filler in the extra field of an entry whose local header is at `at`, so that its data is aligned. */
uint16_t pt2_package_padding(uint64_t at, size_t name_len, uint64_t size);

#endif
