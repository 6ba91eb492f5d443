/* archive.h - the container of a .pt2 file: a zip archive, read and written.
 *
 * Our own reader checks the container and libzip, which also inflates, has to see the same entries (archive.c). When
 * an archive is open, its whole structure has been checked: one end record, every local header agrees with its central
 * one, no two entries share bytes, names are safe, unique and below one top folder. What is not checked yet is the
 * content of entries: reading one to its end checks its CRC.
 *
 * One thread at a time may use an archive.
 */
#ifndef PT2_ARCHIVE_H
#define PT2_ARCHIVE_H

#include "report.h"

#define PT2_STORED 0
#define PT2_DEFLATED 8

typedef struct {
    const char *full_name; /* as in the archive, NUL at the end */
    const char *name; /* below the top folder: data/weights/weight_0; a folder's ends in "/", the top folder's is "" */
    uint64_t size, packed; /* bytes, as they are and as they are stored */
    uint64_t offset;       /* of the stored bytes in the file */
    uint32_t crc;
    uint16_t method; /* PT2_STORED or PT2_DEFLATED */
    bool is_folder;
} pt2_entry;

typedef struct pt2_archive pt2_archive;

/* What gives the bytes of an archive that are neither in a file here nor in memory, but in an object store. */
typedef struct {
    /* Fill out with the len bytes at `at`, which the size says are there. 0, or an errno. */
    int (*read)(void *ctx, uint64_t at, void *out, size_t len);
    /* The len bytes at `at` will be read: told of several ranges before the first of them is. */
    void (*expect)(void *ctx, uint64_t at, size_t len);
    void *ctx;
} pt2_fetcher;

/* Open the file of a descriptor, which becomes the archive's (closed with it, and when opening fails); bytes; or what
 * a fetcher gives. Bytes and fetchers must outlive the archive. An archive that holds
 * serialized_exported_program.json without a top folder is flat: its entries have no root. NULL: failed. */
pt2_archive *pt2_archive_open_fd(int fd, const fe_allocator *a, pt2_report *r);
pt2_archive *pt2_archive_open_bytes(const void *data, size_t len, const fe_allocator *a, pt2_report *r);
pt2_archive *pt2_archive_open_fetcher(const pt2_fetcher *fetcher, uint64_t size, const fe_allocator *a, pt2_report *r);
/* Open the archive that a stored entry of an open archive is; bytes and fetcher of the outer one must outlive it too. */
pt2_archive *pt2_archive_open_entry(const pt2_archive *outer, const pt2_entry *e, const fe_allocator *a, pt2_report *r);
void pt2_archive_close(pt2_archive *archive);

int pt2_archive_fd(const pt2_archive *archive);            /* -1: it is no file here */
const void *pt2_archive_bytes(const pt2_archive *archive); /* NULL: it is not in memory */
const char *pt2_archive_root(const pt2_archive *archive);  /* the top folder, without "/"; "": flat (layout C) */
/* The entries in the order of the central directory. */
const pt2_entry *pt2_archive_entries(const pt2_archive *archive, uint32_t *count);
const pt2_entry *pt2_archive_find(const pt2_archive *archive, const char *name); /* below the root; NULL: none */

/* Give an entry's bytes to the sink in pieces, in constant memory; checks size and CRC at the end. sink returns 0, or
 * -1 having noted why. */
typedef int (*pt2_sink)(void *ctx, const void *data, size_t len);
int pt2_archive_stream(pt2_archive *archive, const pt2_entry *e, pt2_sink sink, void *ctx, pt2_report *r) FE_MUST_CHECK;
/* Do the limits of inflating allow to read an entry, whole or in pieces? Weights, which may all be zeros, and the like have
 * no limit of the ratio. */
int pt2_archive_check_limits(const pt2_entry *e, pt2_report *r) FE_MUST_CHECK;
/* Read an entry whole into memory of the archive's allocator, with `padding` zero bytes after it. */
int pt2_archive_read(pt2_archive *archive, const pt2_entry *e, uint64_t limit, size_t padding, char **data, size_t *len,
                     pt2_report *r) FE_MUST_CHECK;
/* Read bytes [at, at + len) of a stored entry, without a check of the CRC. */
int pt2_archive_read_part(pt2_archive *archive, const pt2_entry *e, uint64_t at, void *out, size_t len,
                          pt2_report *r) FE_MUST_CHECK;
int pt2_archive_check(pt2_archive *archive, const pt2_entry *e, pt2_report *r) FE_MUST_CHECK; /* size and CRC */

/* An entry read piece by piece, as the functions above do it. Move no reader: libzip may point into it. */
typedef struct {
    pt2_archive *archive;
    const pt2_entry *entry;
    struct zip_file *inflating; /* NULL: it is stored */
    uint64_t at;                /* bytes given so far */
    uint32_t crc;               /* of them */
} pt2_reader;

int pt2_reader_open(pt2_reader *reader, pt2_archive *archive, const pt2_entry *e, pt2_report *r) FE_MUST_CHECK;
/* Fill out with up to len bytes, at least one. How many; 0: at the end, size and CRC are right; -1: failed. */
int64_t pt2_reader_read(pt2_reader *reader, void *out, size_t len, pt2_report *r) FE_MUST_CHECK;
void pt2_reader_close(pt2_reader *reader); /* also fine after a failed open */

/* Why a name must not be used, below the root or with it; NULL: it is safe. */
const char *pt2_entry_name_fault(const char *name, size_t len);

/* A hash table of names that takes no two which differ in ASCII case only. */
typedef struct {
    const pt2_entry *entries;
    uint32_t *slots; /* index + 1 of an entry; 0: free */
    uint32_t mask;
} pt2_names;

/* Enter the names of all entries; notes every name that is there twice, and every file that is also a folder. */
int pt2_names_init(pt2_names *names, const pt2_entry *entries, uint32_t count, const fe_allocator *a,
                   pt2_report *r) FE_MUST_CHECK;
void pt2_names_clear(pt2_names *names, const fe_allocator *a);
const pt2_entry *pt2_names_find(const pt2_names *names, const char *name, size_t len);

/* ---- package.c: writing ---- */

/* What a new archive holds under a name: bytes, an entry of an open archive, or what a reader gives. */
typedef struct {
    const char *name;  /* below the root */
    const void *data;  /* bytes; NULL: see next */
    uint64_t len;      /* of data, or of what read gives; an entry of an archive knows its own */
    pt2_archive *from; /* copy this entry, inflating it where it is deflated */
    const pt2_entry *entry;
    /* Fill out with up to len bytes; returns how many, 0 at the end, -1 on failure. Called in order, and again from the
     * start only after rewind (which may be NULL: the package is then written in one go, or not at all). */
    int64_t (*read)(void *ctx, void *out, size_t len);
    void (*rewind)(void *ctx);
    void *ctx;
} pt2_part;

/* Write an archive as torch does (entries stored, data at multiples of 64, zip64 where needed) to a new file beside
 * `path`, flush it to the disk, and rename it to `path`: whatever fails before leaves path as it was, and nothing
 * behind. */
int pt2_package_write(const char *path, const char *root, const pt2_part *parts, size_t count, const fe_allocator *a,
                      pt2_report *r) FE_MUST_CHECK;

#endif
