/* archive.c - opens the zip archive of a .pt2 file and reads its entries (see archive.h).
 *
 * Two readers look at every archive. Our own walks the end records, the central directory and each local header, since
 * readers of zip differ in which of these they believe, and since it can name the entry at fault. Then libzip opens the
 * same bytes and must see the same entries; it also inflates. The picture that has to hold, without a byte left over
 * before, and only with a warning between:
 *
 *     local header, name, extra, data [, descriptor]   ... one for each entry, none inside another
 *     central directory                                ... names all of them, agrees with each
 *     [zip64 end record, zip64 locator,] end record    ... the only one; its comment ends the file
 *
 * Invariant while opening: no number of the file is used before it was held against the size of the file, and nothing
 * is allocated that is not in proportion to it.
 */
#define _POSIX_C_SOURCE 200809L
#include "archive_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define PIECE ((size_t)1 << 17) /* of a stream */

int pt2_archive_fd(const pt2_archive *archive)
{
    return archive->fd;
}

const void *pt2_archive_bytes(const pt2_archive *archive)
{
    return archive->bytes;
}

const char *pt2_archive_root(const pt2_archive *archive)
{
    return archive->root;
}

const pt2_entry *pt2_archive_entries(const pt2_archive *archive, uint32_t *count)
{
    *count = archive->count;
    return archive->entries;
}

const pt2_entry *pt2_archive_find(const pt2_archive *archive, const char *name)
{
    return pt2_names_find(&archive->names, name, strlen(name));
}

/* ---- bytes of the file ---- */

/* The bytes where they are in memory already; NULL: they have to be read. */
static const unsigned char *in_memory(const pt2_archive *archive, uint64_t at, size_t len)
{
    if (archive->bytes)
        return archive->bytes + at;
    if (archive->directory && at >= archive->directory_at && at - archive->directory_at <= archive->directory_len &&
        len <= archive->directory_len - (at - archive->directory_at))
        return archive->directory + (at - archive->directory_at);
    return NULL;
}

/* Read up to len bytes at `at`, fewer only at the end of the file. -1: errno says why. */
static int64_t read_some(const pt2_archive *archive, uint64_t at, void *out, size_t len)
{
    const unsigned char *data;
    size_t done = 0;

    if (len == 0 || at >= archive->size)
        return 0;
    if (len > archive->size - at)
        len = (size_t)(archive->size - at);
    if ((data = in_memory(archive, at, len))) {
        memcpy(out, data, len);
        return (int64_t)len;
    }
    if (archive->fetcher.read) {
        errno = archive->fetcher.read(archive->fetcher.ctx, archive->base + at, out, len);
        return errno ? -1 : (int64_t)len;
    }
    while (done < len) {
        ssize_t n = pread(archive->fd, (char *)out + done, len - done, (off_t)(archive->base + at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (int64_t)done;
}

static int io_fail(int code, const char *entry, pt2_report *r)
{
    if (code > 0)
        return pt2_fail_io(r, code, entry, "the file cannot be read: %s", strerror(code));
    return pt2_fail_io(r, EIO, entry, "the file became shorter while it was read");
}

int pt2_read_all(const pt2_archive *archive, uint64_t at, void *out, size_t len, const char *entry, pt2_report *r)
{
    int64_t n = read_some(archive, at, out, len);

    return n < 0 || (uint64_t)n < len ? io_fail(n < 0 ? errno : -1, entry, r) : 0;
}

/* ---- libzip ---- */

static zip_int64_t seek_source(pt2_archive *archive, void *data, zip_uint64_t len)
{
    zip_int64_t at = zip_source_seek_compute_offset(archive->zip_at, archive->size, data, len, &archive->zip_error);

    if (at < 0)
        return -1;
    archive->zip_at = (uint64_t)at;
    return 0;
}

static zip_int64_t stat_source(const pt2_archive *archive, zip_stat_t *st)
{
    zip_stat_init(st);
    st->size = archive->size;
    st->valid = ZIP_STAT_SIZE;
    return sizeof *st;
}

static zip_int64_t read_source(pt2_archive *archive, void *data, zip_uint64_t len)
{
    uint64_t left = archive->zip_at < archive->size ? archive->size - archive->zip_at : 0;
    uint64_t wanted = len < left ? len : left;
    int64_t n = read_some(archive, archive->zip_at, data, (size_t)wanted);

    if (n < 0 || (uint64_t)n < wanted) {
        archive->io_error = n < 0 ? errno : -1;
        zip_error_set(&archive->zip_error, ZIP_ER_READ, n < 0 ? errno : EIO);
        return -1;
    }
    archive->zip_at += (uint64_t)n;
    return n;
}

/* The file as libzip sees it. */
static zip_int64_t archive_source(void *ctx, void *data, zip_uint64_t len, zip_source_cmd_t command)
{
    pt2_archive *archive = ctx;

    switch (command) {
    case ZIP_SOURCE_OPEN:
        archive->zip_at = 0;
        return 0;
    case ZIP_SOURCE_READ:
        return read_source(archive, data, len);
    case ZIP_SOURCE_SEEK:
        return seek_source(archive, data, len);
    case ZIP_SOURCE_TELL:
        return (zip_int64_t)archive->zip_at;
    case ZIP_SOURCE_STAT:
        return stat_source(archive, data);
    case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&archive->zip_error, data, len);
    case ZIP_SOURCE_CLOSE:
    case ZIP_SOURCE_FREE:
        return 0;
    case ZIP_SOURCE_SUPPORTS:
        return ZIP_SOURCE_SUPPORTS_SEEKABLE;
    default:
        zip_error_set(&archive->zip_error, ZIP_ER_OPNOTSUPP, 0);
        return -1;
    }
}

/* Turn an error of libzip into a fault. What it makes of a failed read or a lack of memory is not to be relied on; its
 * callers set errno to 0 before they call it. */
static int libzip_fail(pt2_archive *archive, const char *entry, zip_error_t *error, pt2_report *r)
{
    int io_error = archive->io_error;
    bool no_memory = errno == ENOMEM;

    archive->io_error = 0;
    if (io_error)
        return io_fail(io_error, entry, r);
    if (no_memory)
        return pt2_no_memory(r);
    switch (zip_error_code_zip(error)) {
    case ZIP_ER_MEMORY:
        return pt2_no_memory(r);
    case ZIP_ER_ZLIB:
        if (zip_error_code_system(error) == Z_MEM_ERROR)
            return pt2_no_memory(r);
        return pt2_fail(r, PT2_CRC, entry, NULL, "the deflated data is damaged: %s",
                        zError(zip_error_code_system(error)));
    case ZIP_ER_CRC:
        return pt2_fail(r, PT2_CRC, entry, NULL, "the data does not have the CRC of the archive");
    case ZIP_ER_COMPRESSED_DATA:
        return pt2_fail(r, PT2_CRC, entry, NULL, "the deflated data is damaged");
    default:
        break;
    }
    return pt2_fail(r, PT2_ZIP, entry, NULL, "%s (libzip)", zip_error_strerror(error));
}

/* Does libzip see the entries that we see? Its own check, ZIP_CHECKCONS, adds to ours only that dates must agree. */
static int compare_libzip(pt2_archive *archive, pt2_report *r)
{
    zip_stat_t st;

    if (zip_get_num_entries(archive->zip, 0) != (zip_int64_t)archive->count)
        return pt2_fail(r, PT2_ZIP, NULL, NULL, "libzip finds %lld entries, not %u",
                        (long long)zip_get_num_entries(archive->zip, 0), archive->count);
    for (uint32_t i = 0; i < archive->count; i++) {
        const pt2_entry *e = &archive->entries[i];
        if (zip_stat_index(archive->zip, i, ZIP_FL_ENC_RAW, &st) < 0)
            return libzip_fail(archive, e->name, zip_get_error(archive->zip), r);
        if (st.size != e->size || st.comp_size != e->packed || st.crc != e->crc || st.comp_method != e->method ||
            strcmp(st.name, e->full_name) != 0)
            return pt2_fail(r, PT2_ZIP, e->name, NULL, "libzip reads another entry here");
    }
    return 0;
}

static int open_libzip(pt2_archive *archive, pt2_report *r)
{
    zip_error_t error;
    zip_source_t *source;
    int result = 0;

    zip_error_init(&error);
    errno = 0;
    source = zip_source_function_create(archive_source, archive, &error);
    if (source)
        archive->zip = zip_open_from_source(source, ZIP_RDONLY, &error);
    if (!archive->zip) {
        result = libzip_fail(archive, NULL, &error, r);
        zip_source_free(source);
    }
    zip_error_fini(&error);
    return result < 0 ? -1 : compare_libzip(archive, r);
}

/* ---- opening and closing ---- */

void pt2_archive_close(pt2_archive *archive)
{
    if (!archive)
        return;
    fe_allocator a = archive->allocator;
    if (archive->zip)
        zip_discard(archive->zip);
    zip_error_fini(&archive->zip_error);
    pt2_names_clear(&archive->names, &a);
    fe_resize(&a, archive->texts, 0);
    fe_resize(&a, archive->entries, 0);
    if (archive->fd >= 0)
        close(archive->fd);
    fe_resize(&a, archive, 0);
}

static int open_archive(pt2_opening *o)
{
    pt2_archive *archive = o->archive;
    int result;

    if (pt2_open_directory(o) < 0 ||
        pt2_names_init(&archive->names, archive->entries, archive->count, o->allocator, o->r) < 0)
        return -1;
    if (pt2_open_entries(o) < 0)
        return -1;
    archive->directory = o->directory;
    archive->directory_at = o->directory_at;
    archive->directory_len = o->directory_len;
    result = open_libzip(archive, o->r);
    archive->directory = NULL;
    return result;
}

/* The archive that lies in `where`, which has one of fd, bytes and fetcher. */
static pt2_archive *archive_new(pt2_archive where, const fe_allocator *a, pt2_report *r)
{
    pt2_archive *archive = fe_resize(a, NULL, sizeof *archive);

    if (!archive) {
        pt2_no_memory(r);
        if (where.fd >= 0)
            close(where.fd);
        return NULL;
    }
    *archive = where;
    archive->allocator = *a;
    zip_error_init(&archive->zip_error);
    pt2_opening o = {.archive = archive, .r = r, .allocator = a};
    int result = open_archive(&o);
    fe_resize(a, o.window, 0);
    fe_resize(a, o.directory_block, 0);
    if (result == 0 && !r->no_memory)
        return archive;
    pt2_archive_close(archive);
    return NULL;
}

static const char *kind_of_file(mode_t mode)
{
    return S_ISDIR(mode) ? "a folder" : S_ISFIFO(mode) ? "a pipe" : S_ISSOCK(mode) ? "a socket" : "a device";
}

/* What open() or seeking says of what is no file. */
static int not_a_file(mode_t mode)
{
    return S_ISDIR(mode) ? EISDIR : S_ISFIFO(mode) || S_ISSOCK(mode) ? ESPIPE : EINVAL;
}

pt2_archive *pt2_archive_open_fd(int fd, const fe_allocator *a, pt2_report *r)
{
    struct stat st;

    if (fstat(fd, &st) < 0) {
        pt2_fail_io(r, errno, NULL, "the file cannot be opened: %s", strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        pt2_fail_io(r, not_a_file(st.st_mode), NULL, "this is %s, not a file", kind_of_file(st.st_mode));
    } else {
        return archive_new((pt2_archive){.fd = fd, .size = (uint64_t)st.st_size}, a, r);
    }
    if (fd >= 0)
        close(fd);
    return NULL;
}

pt2_archive *pt2_archive_open_bytes(const void *data, size_t len, const fe_allocator *a, pt2_report *r)
{
    return archive_new((pt2_archive){.fd = -1, .bytes = len ? data : "", .size = len}, a, r);
}

pt2_archive *pt2_archive_open_fetcher(const pt2_fetcher *fetcher, uint64_t size, const fe_allocator *a, pt2_report *r)
{
    return archive_new((pt2_archive){.fd = -1, .fetcher = *fetcher, .size = size}, a, r);
}

pt2_archive *pt2_archive_open_entry(const pt2_archive *outer, const pt2_entry *e, const fe_allocator *a, pt2_report *r)
{
    pt2_archive where = {.fd = -1, .fetcher = outer->fetcher, .base = outer->base + e->offset, .size = e->size};

    assert(e->method == PT2_STORED && e->size <= SIZE_MAX);
    if (outer->bytes)
        return pt2_archive_open_bytes(outer->bytes + e->offset, (size_t)e->size, a, r);
    if (!outer->fetcher.read && (where.fd = fcntl(outer->fd, F_DUPFD_CLOEXEC, 0)) < 0) {
        pt2_fail_io(r, errno, e->name, "the file cannot be opened: %s", strerror(errno));
        return NULL;
    }
    return archive_new(where, a, r);
}

/* ---- reading entries ---- */

int pt2_reader_open(pt2_reader *reader, pt2_archive *archive, const pt2_entry *e, pt2_report *r)
{
    *reader = (pt2_reader){.archive = archive, .entry = e};
    archive->io_error = 0;
    if (e->method == PT2_STORED)
        return 0;
    errno = 0;
    reader->inflating = zip_fopen_index(archive->zip, (zip_uint64_t)(e - archive->entries), 0);
    return reader->inflating ? 0 : libzip_fail(archive, e->name, zip_get_error(archive->zip), r);
}

void pt2_reader_close(pt2_reader *reader)
{
    if (reader->inflating)
        zip_fclose(reader->inflating);
    reader->inflating = NULL;
}

/* Bytes were given out: count them and add them to the CRC. */
static void count_bytes(pt2_reader *reader, const void *data, size_t len)
{
    reader->at += len;
    reader->crc = (uint32_t)crc32_z(reader->crc, data, len);
}

static int check_crc(const pt2_reader *reader, pt2_report *r)
{
    const pt2_entry *e = reader->entry;

    if (reader->crc == e->crc)
        return 0;
    return pt2_fail(r, PT2_CRC, e->name, NULL, "the data has CRC %08x, the archive says %08x", reader->crc, e->crc);
}

/* libzip's bytes. It is asked for more than the entry may have, so that no byte stays unseen. */
static int64_t inflate_some(pt2_reader *reader, void *out, size_t len, pt2_report *r)
{
    const pt2_entry *e = reader->entry;
    char more;

    errno = 0;
    zip_int64_t n = zip_fread(reader->inflating, len ? out : &more, len ? len : 1);
    int code = n < 0 ? zip_error_code_zip(zip_file_get_error(reader->inflating)) : 0;

    if ((n == 0 || code == ZIP_ER_CRC || code == ZIP_ER_EOF) && reader->at < e->size && !reader->archive->io_error)
        return pt2_fail(r, PT2_ZIP, e->name, NULL, "the data inflates to %llu bytes, not %llu",
                        (unsigned long long)reader->at, (unsigned long long)e->size);
    if (n < 0 || reader->archive->io_error)
        return libzip_fail(reader->archive, e->name, zip_file_get_error(reader->inflating), r);
    if ((uint64_t)n > e->size - reader->at)
        return pt2_fail(r, PT2_ZIP, e->name, NULL, "the data inflates to more than %llu bytes",
                        (unsigned long long)e->size);
    return n;
}

int64_t pt2_reader_read(pt2_reader *reader, void *out, size_t len, pt2_report *r)
{
    const pt2_entry *e = reader->entry;
    uint64_t left = e->size - reader->at;
    int64_t n = (int64_t)(len < left ? len : left);

    assert(len > 0);
    if (reader->inflating)
        n = inflate_some(reader, out, (size_t)n, r);
    else if (pt2_read_all(reader->archive, e->offset + reader->at, out, (size_t)n, e->name, r) < 0)
        return -1;
    if (n < 0 || (n == 0 && check_crc(reader, r) < 0))
        return -1;
    count_bytes(reader, out, (size_t)n);
    return n;
}

/* Stored bytes in memory need no copy. */
static int stream_bytes(pt2_reader *reader, pt2_sink sink, void *ctx, pt2_report *r)
{
    const pt2_entry *e = reader->entry;

    while (reader->at < e->size) {
        const unsigned char *data = reader->archive->bytes + e->offset + reader->at;
        uint64_t left = e->size - reader->at;
        size_t len = left < PIECE ? (size_t)left : PIECE;
        count_bytes(reader, data, len);
        if (sink && sink(ctx, data, len) < 0)
            return -1;
    }
    return check_crc(reader, r);
}

static int stream_pieces(pt2_reader *reader, pt2_sink sink, void *ctx, pt2_report *r)
{
    const fe_allocator *a = &reader->archive->allocator;
    size_t room = reader->entry->size < PIECE ? (size_t)reader->entry->size + 1 : PIECE;
    char *piece = fe_resize(a, NULL, room);
    int64_t n = piece ? 0 : pt2_no_memory(r);

    while (piece && (n = pt2_reader_read(reader, piece, room, r)) > 0) {
        if (sink && sink(ctx, piece, (size_t)n) < 0) {
            n = -1;
            break;
        }
    }
    fe_resize(a, piece, 0);
    return n < 0 ? -1 : 0;
}

int pt2_archive_stream(pt2_archive *archive, const pt2_entry *e, pt2_sink sink, void *ctx, pt2_report *r)
{
    pt2_reader reader;
    int result = pt2_reader_open(&reader, archive, e, r);

    if (result == 0)
        result = archive->bytes && !reader.inflating ? stream_bytes(&reader, sink, ctx, r)
                                                     : stream_pieces(&reader, sink, ctx, r);
    pt2_reader_close(&reader);
    return result;
}

int pt2_archive_check(pt2_archive *archive, const pt2_entry *e, pt2_report *r)
{
    return pt2_archive_stream(archive, e, NULL, NULL, r);
}

/* May an entry be read whole? ratio: the limit of it; 0: none. */
static int check_limits(const pt2_entry *e, uint64_t limit, uint64_t ratio, pt2_report *r)
{
    bool deflated = e->method == PT2_DEFLATED;

    if (deflated && r->limits->inflate_bytes && (!limit || limit > r->limits->inflate_bytes))
        limit = r->limits->inflate_bytes;
    if (limit && e->size > limit)
        return pt2_fail(r, PT2_LIMIT, e->name, NULL, "%llu bytes, more than the limit of %llu",
                        (unsigned long long)e->size, (unsigned long long)limit);
    if (deflated && ratio && e->size / ratio > e->packed)
        return pt2_fail(r, PT2_LIMIT, e->name, NULL, "%llu bytes inflate to %llu, more than the limit of 1 to %llu",
                        (unsigned long long)e->packed, (unsigned long long)e->size, (unsigned long long)ratio);
    return 0;
}

/* Is it read as the bytes of tensors, or a pickle with such? */
static bool holds_tensors(const pt2_entry *e)
{
    return strncmp(e->name, "data/", 5) == 0 || strncmp(e->name, "serialized_", 11) == 0;
}

int pt2_archive_check_limits(const pt2_entry *e, pt2_report *r)
{
    return check_limits(e, 0, holds_tensors(e) ? 0 : r->limits->inflate_ratio, r);
}

/* Read to the end into *data, which is grown on the way: a deflated entry may have fewer bytes than it says. */
static int read_whole(pt2_reader *reader, size_t padding, char **data, pt2_report *r)
{
    size_t size = (size_t)reader->entry->size, room = reader->inflating && size > PIECE ? PIECE : size + 1;
    int64_t n = 1;

    for (;;) {
        char *block = fe_resize(&reader->archive->allocator, *data, room > size ? room + padding : room);
        if (!block)
            return pt2_no_memory(r);
        fe_use_large_pages(block, room);
        *data = block;
        while (n > 0 && reader->at < room)
            n = pt2_reader_read(reader, block + reader->at, room - (size_t)reader->at, r);
        if (n == 0)
            memset(block + size, 0, padding);
        if (n <= 0)
            return (int)n;
        room = room > size / 2 ? size + 1 : room * 2;
    }
}

int pt2_archive_read(pt2_archive *archive, const pt2_entry *e, uint64_t limit, size_t padding, char **data, size_t *len,
                     pt2_report *r)
{
    pt2_reader reader;
    char *block = NULL;

    *data = NULL;
    *len = 0;
    if (check_limits(e, limit, r->limits->inflate_ratio, r) < 0)
        return -1;
    if (e->size > SIZE_MAX / 2 || padding > SIZE_MAX / 4)
        return pt2_no_memory(r);
    int result = pt2_reader_open(&reader, archive, e, r);
    if (result == 0)
        result = read_whole(&reader, padding, &block, r);
    pt2_reader_close(&reader);
    if (result < 0) {
        fe_resize(&archive->allocator, block, 0);
        return -1;
    }
    *data = block;
    *len = (size_t)e->size;
    return 0;
}

int pt2_archive_read_part(pt2_archive *archive, const pt2_entry *e, uint64_t at, void *out, size_t len, pt2_report *r)
{
    if (e->method != PT2_STORED)
        return pt2_fail(r, PT2_UNSUPPORTED, e->name, NULL, "parts of a deflated entry cannot be read");
    if (at > e->size || len > e->size - at)
        return pt2_fail(r, PT2_PAYLOAD, e->name, NULL, "bytes %llu to %llu are not in an entry of %llu bytes",
                        (unsigned long long)at, (unsigned long long)at + len, (unsigned long long)e->size);
    return pt2_read_all(archive, e->offset + at, out, len, e->name, r);
}
