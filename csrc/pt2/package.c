/* package.c - writes the zip archive of a .pt2 file through libzip (see archive.h).
 *
 * libzip writes to a new file beside the target, through a buffer of ours. The file is flushed to the disk, read
 * back by our own reader (so that we never put in place what we would refuse to open), and only then renamed. Nothing
 * in the archive depends on time, place or user: the same parts give the same bytes.
 *
 * Data starts at multiples of 64, so that it can be mapped: a local extra field fills the space before it, as torch
 * does. Its length is known beforehand, because all sizes are.
 */
#define _POSIX_C_SOURCE 200809L
#include "archive_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ROOM ((size_t)1 << 20) /* of the buffer */
#define ALIGNMENT 64
#define PADDING_ID 0x4246 /* torch's, "FB" */
#define DOS_DATE 0x21     /* 1 January 1980, the first that zip knows */
#define MAX_LINKS 40
#define MAX_TRIES 100

typedef struct writing writing;

/* A part as libzip reads it. */
typedef struct {
    writing *w;
    const pt2_part *part;
    const char *name;
    uint64_t len, at;
    pt2_reader reader;
    bool was_open;
    zip_error_t error;
} part_source;

struct writing {
    const fe_allocator *allocator;
    pt2_report *r;
    size_t count;
    part_source *sources;
    pt2_entry *entries; /* only their names, sizes and places */
    pt2_names names;
    char *texts;
    /* the file */
    char target[PATH_MAX], folder[PATH_MAX], temporary[PATH_MAX];
    bool exists;
    mode_t mode; /* of the file that is replaced */
    int fd, folder_fd;
    /* buffer [base, base + len) of what libzip wrote; at: where it writes next */
    unsigned char *buffer;
    size_t len;
    uint64_t base, at;
    zip_error_t error;
};

/* ---- parts ---- */

uint16_t pt2_package_padding(uint64_t at, size_t name_len, uint64_t size)
{
    /* header, name, id and length of the padding itself; the sizes of a large entry stand in a zip64 field */
    uint64_t data = at + LOCAL_LEN + name_len + 4 + (size > UINT32_MAX ? 4 + 16 : 0);

    return (uint16_t)((ALIGNMENT - data % ALIGNMENT) % ALIGNMENT);
}

static uint64_t part_len(const pt2_part *part)
{
    return part->from ? part->entry->size : part->len;
}

static int check_part(writing *w, const pt2_part *part, size_t root_len)
{
    size_t len = strlen(part->name);
    const char *fault = pt2_entry_name_fault(part->name, len);

    assert(part->from || part->data || part->read || !part->len);
    if (!fault && part->name[len - 1] == '/')
        fault = "is that of a folder";
    if (fault)
        return pt2_fail(w->r, PT2_UNSAFE_NAME, part->name, NULL, "the name '%s' %s", part->name, fault);
    if (root_len + 1 + len > PT2_MAX_NAME)
        return pt2_fail(w->r, PT2_LIMIT, part->name, NULL, "a name of %zu bytes, more than %d", root_len + 1 + len,
                        PT2_MAX_NAME);
    /* Of exactly this size libzip makes a record that other readers take for the sign of a zip64 field. */
    if (part_len(part) == UINT32_MAX || part_len(part) > INT64_MAX / 2)
        return pt2_fail(w->r, PT2_LIMIT, part->name, NULL, "an entry of %llu bytes cannot be written",
                        (unsigned long long)part_len(part));
    return 0;
}

static int check_root_name(writing *w, const char *root)
{
    const char *fault = pt2_entry_name_fault(root, strlen(root));

    if (!*root || (!fault && !strchr(root, '/')))
        return 0;
    return pt2_fail(w->r, PT2_UNSAFE_NAME, NULL, NULL, "the top folder '%s' %s", root,
                    fault ? fault : "is more than one folder");
}

/* Check all parts and give them their full names. */
static int prepare(writing *w, const char *root, const pt2_part *parts)
{
    size_t root_len = strlen(root), total = 0;
    uint64_t most = w->r->limits->entries;
    uint32_t errors = w->r->errors;
    char *text;

    if (w->count == 0)
        return pt2_fail(w->r, PT2_LAYOUT, NULL, NULL, "an archive needs entries");
    if ((most && w->count > most) || w->count >= UINT32_MAX / 4 || w->count > SIZE_MAX / 2 / sizeof *w->sources)
        return pt2_fail(w->r, PT2_LIMIT, NULL, NULL, "%zu entries, more than the limit", w->count);
    check_root_name(w, root);
    for (size_t i = 0; i < w->count; i++) {
        check_part(w, &parts[i], root_len);
        total += root_len + 1 + strlen(parts[i].name) + 1;
    }
    if (w->r->errors != errors || w->r->no_memory)
        return -1;
    w->sources = fe_resize(w->allocator, NULL, w->count * sizeof *w->sources);
    if (w->sources)
        memset(w->sources, 0, w->count * sizeof *w->sources);
    w->entries = fe_resize(w->allocator, NULL, w->count * sizeof *w->entries);
    w->texts = text = fe_resize(w->allocator, NULL, total);
    w->buffer = fe_resize(w->allocator, NULL, ROOM);
    if (!w->sources || !w->entries || !text || !w->buffer)
        return pt2_no_memory(w->r);
    for (size_t i = 0; i < w->count; i++) {
        const pt2_part *part = &parts[i];
        w->entries[i] = (pt2_entry){.full_name = text, .name = part->name, .size = part_len(part)};
        w->sources[i] = (part_source){.w = w, .part = part, .name = part->name, .len = part_len(part)};
        text += sprintf(text, *root ? "%s/%s" : "%s%s", root, part->name) + 1;
    }
    return pt2_names_init(&w->names, w->entries, (uint32_t)w->count, w->allocator, w->r);
}

/* ---- parts as libzip reads them ---- */

static zip_int64_t source_failed(part_source *s)
{
    zip_error_set(&s->error, ZIP_ER_READ, EIO);
    return -1;
}

static zip_int64_t open_part(part_source *s)
{
    const pt2_part *part = s->part;

    s->at = 0;
    if (part->from) {
        if (pt2_archive_check_limits(part->entry, s->w->r) < 0 ||
            pt2_reader_open(&s->reader, part->from, part->entry, s->w->r) < 0)
            return source_failed(s);
    } else if (part->read && s->was_open) {
        if (!part->rewind) {
            pt2_fail_io(s->w->r, EIO, s->name, "the content cannot be read again");
            return source_failed(s);
        }
        part->rewind(part->ctx);
    }
    s->was_open = true;
    return 0;
}

static int64_t read_callback(part_source *s, void *data, size_t len)
{
    int64_t n = len ? s->part->read(s->part->ctx, data, len) : 0;

    if (n < 0)
        return pt2_fail_io(s->w->r, EIO, s->name, "the content cannot be read");
    if ((uint64_t)n > len || (n == 0 && len))
        return pt2_fail_io(s->w->r, EIO, s->name, "the content has other than the %llu bytes announced",
                           (unsigned long long)s->len);
    return n;
}

static zip_int64_t read_part(part_source *s, void *data, zip_uint64_t len)
{
    const pt2_part *part = s->part;
    int64_t n = (int64_t)(len < s->len - s->at ? len : s->len - s->at);

    if (part->from)
        n = pt2_reader_read(&s->reader, data, (size_t)len, s->w->r);
    else if (part->data)
        memcpy(data, (const char *)part->data + s->at, (size_t)n);
    else if (part->read)
        n = read_callback(s, data, (size_t)n);
    if (n < 0)
        return source_failed(s);
    s->at += (uint64_t)n;
    return n;
}

static zip_int64_t stat_part(const part_source *s, zip_stat_t *st)
{
    zip_stat_init(st);
    st->size = s->len;
    st->comp_size = s->len;
    st->comp_method = ZIP_CM_STORE;
    st->valid = ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD;
    return sizeof *st;
}

static zip_int64_t part_callback(void *ctx, void *data, zip_uint64_t len, zip_source_cmd_t command)
{
    part_source *s = ctx;

    switch (command) {
    case ZIP_SOURCE_OPEN:
        return open_part(s);
    case ZIP_SOURCE_READ:
        return read_part(s, data, len);
    case ZIP_SOURCE_CLOSE:
        pt2_reader_close(&s->reader);
        return 0;
    case ZIP_SOURCE_STAT:
        return stat_part(s, data);
    case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&s->error, data, len);
    case ZIP_SOURCE_FREE:
        return 0;
    case ZIP_SOURCE_SUPPORTS:
        return ZIP_SOURCE_SUPPORTS_READABLE;
    default:
        zip_error_set(&s->error, ZIP_ER_OPNOTSUPP, 0);
        return -1;
    }
}

/* ---- the file as libzip writes it ---- */

static int write_all(writing *w, const unsigned char *data, size_t len, uint64_t at)
{
    while (len) {
        ssize_t n = pwrite(w->fd, data, len, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            int code = n < 0 ? errno : EIO;
            pt2_fail_io(w->r, code, NULL, "'%.500s' cannot be written: %s", w->target, strerror(code));
            zip_error_set(&w->error, ZIP_ER_WRITE, code);
            return -1;
        }
        data += n;
        at += (uint64_t)n;
        len -= (size_t)n;
    }
    return 0;
}

static int flush(writing *w)
{
    if (write_all(w, w->buffer, w->len, w->base) < 0)
        return -1;
    w->base += w->len;
    w->len = 0;
    return 0;
}

/* libzip goes back to each local header once the CRC is known. The header of a small entry is still in the buffer; that
 * of a large one is on the disk, or partly. */
static zip_int64_t write_some(writing *w, const unsigned char *data, size_t len)
{
    size_t left = len, n;

    while (left) {
        uint64_t before = w->at < w->base ? w->base - w->at : 0;
        size_t place = before ? 0 : (size_t)(w->at - w->base);
        if (before) {
            n = before < left ? (size_t)before : left;
            if (write_all(w, data, n, w->at) < 0)
                return -1;
        } else if (place == ROOM) {
            if (flush(w) < 0)
                return -1;
            continue;
        } else {
            n = ROOM - place < left ? ROOM - place : left;
            memcpy(w->buffer + place, data, n);
            if (place + n > w->len)
                w->len = place + n;
        }
        w->at += n;
        data += n;
        left -= n;
    }
    return (zip_int64_t)len;
}

static zip_int64_t seek_output(writing *w, void *data, zip_uint64_t len)
{
    zip_int64_t at = zip_source_seek_compute_offset(w->at, w->base + w->len, data, len, &w->error);

    if (at < 0)
        return -1;
    w->at = (uint64_t)at; /* never past the end: libzip checks it against the length given */
    return 0;
}

static zip_int64_t stat_output(const writing *w, zip_stat_t *st)
{
    zip_stat_init(st);
    st->size = w->base + w->len;
    st->valid = ZIP_STAT_SIZE;
    return sizeof *st;
}

static zip_int64_t output_callback(void *ctx, void *data, zip_uint64_t len, zip_source_cmd_t command)
{
    writing *w = ctx;

    switch (command) {
    case ZIP_SOURCE_OPEN:
    case ZIP_SOURCE_CLOSE:
    case ZIP_SOURCE_FREE:
    case ZIP_SOURCE_BEGIN_WRITE:
    case ZIP_SOURCE_ROLLBACK_WRITE:
        return 0;
    case ZIP_SOURCE_COMMIT_WRITE:
        return flush(w);
    case ZIP_SOURCE_WRITE:
        return write_some(w, data, (size_t)len);
    case ZIP_SOURCE_SEEK_WRITE:
        return seek_output(w, data, len);
    case ZIP_SOURCE_TELL_WRITE:
        return (zip_int64_t)w->at;
    case ZIP_SOURCE_STAT:
        return stat_output(w, data);
    case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&w->error, data, len);
    case ZIP_SOURCE_SUPPORTS:
        return ZIP_SOURCE_SUPPORTS_WRITABLE;
    default:
        zip_error_set(&w->error, ZIP_ER_OPNOTSUPP, 0);
        return -1;
    }
}

/* ---- the archive ---- */

/* A failure of libzip; its cause may be one of ours, which is noted already. It does not always say that memory ran
 * out, but errno, which was 0, does. */
static int libzip_failed(writing *w, const char *entry, zip_error_t *error, uint32_t errors)
{
    if (w->r->errors != errors || w->r->no_memory)
        return -1;
    if (zip_error_code_zip(error) == ZIP_ER_MEMORY || errno == ENOMEM)
        return pt2_no_memory(w->r);
    return pt2_fail_io(w->r, EIO, entry, "'%.500s' cannot be written: %s (libzip)", w->target,
                       zip_error_strerror(error));
}

static int add_part(writing *w, zip_t *zip, size_t index, uint64_t *at)
{
    static const char filler[ALIGNMENT + 1] = "ZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZ";
    const pt2_entry *e = &w->entries[index];
    size_t name_len = strlen(e->full_name);
    uint16_t padding = pt2_package_padding(*at, name_len, e->size);
    zip_source_t *source = zip_source_function(zip, part_callback, &w->sources[index]);
    zip_int64_t id = source ? zip_file_add(zip, e->full_name, source, ZIP_FL_ENC_UTF_8) : -1;
    uint32_t errors = w->r->errors;

    if (id < 0) {
        zip_source_free(source);
        return libzip_failed(w, e->name, zip_get_error(zip), errors);
    }
    if (zip_set_file_compression(zip, (zip_uint64_t)id, ZIP_CM_STORE, 0) < 0 ||
        zip_file_set_dostime(zip, (zip_uint64_t)id, 0, DOS_DATE, 0) < 0 ||
        zip_file_set_external_attributes(zip, (zip_uint64_t)id, 0, ZIP_OPSYS_DOS, 0) < 0 ||
        zip_file_extra_field_set(zip, (zip_uint64_t)id, PADDING_ID, ZIP_EXTRA_FIELD_NEW, (const zip_uint8_t *)filler,
                                 padding, ZIP_FL_LOCAL) < 0)
        return libzip_failed(w, e->name, zip_get_error(zip), errors);
    *at += LOCAL_LEN + name_len + 4 + padding + (e->size > UINT32_MAX ? 4 + 16 : 0) + e->size;
    if (*at > INT64_MAX / 2)
        return pt2_fail(w->r, PT2_LIMIT, e->name, NULL, "the archive would be too large");
    return 0;
}

static zip_t *open_output(writing *w)
{
    zip_error_t error;
    zip_t *zip = NULL;

    zip_error_init(&error);
    zip_source_t *source = zip_source_function_create(output_callback, w, &error);
    if (source)
        zip = zip_open_from_source(source, ZIP_CREATE | ZIP_TRUNCATE, &error);
    if (!zip) {
        libzip_failed(w, NULL, &error, w->r->errors);
        zip_source_free(source);
    }
    zip_error_fini(&error);
    return zip;
}

static int write_archive(writing *w)
{
    uint64_t at = 0;
    uint32_t errors = w->r->errors;

    errno = 0;
    zip_t *zip = open_output(w);
    if (!zip)
        return -1;
    for (size_t i = 0; i < w->count; i++) {
        if (add_part(w, zip, i, &at) < 0) {
            zip_discard(zip);
            return -1;
        }
    }
    if (zip_close(zip) == 0)
        return 0;
    libzip_failed(w, NULL, zip_get_error(zip), errors);
    zip_discard(zip);
    return -1;
}

/* ---- the file ---- */

static int file_failed(writing *w, const char *path, int code)
{
    return pt2_fail_io(w->r, code, NULL, "'%.500s' cannot be written: %s", path, strerror(code));
}

/* Put the way to `name`, as seen from the folder of w->target, into w->target. */
static int follow(writing *w, const char *name)
{
    const char *slash = strrchr(w->target, '/');
    size_t len = name[0] == '/' || !slash ? 0 : (size_t)(slash - w->target) + 1;

    if (len + strlen(name) >= sizeof w->target)
        return file_failed(w, name, ENAMETOOLONG);
    memcpy(w->target + len, name, strlen(name) + 1);
    return 0;
}

/* Find the file that is to be replaced: symbolic links stay, what they lead to changes. */
static int resolve(writing *w, const char *path)
{
    char link[PATH_MAX];
    struct stat st;
    int links = 0;

    if (follow(w, path) < 0)
        return -1;
    while (lstat(w->target, &st) == 0 && S_ISLNK(st.st_mode)) {
        ssize_t n = readlink(w->target, link, sizeof link - 1);
        if (n < 0 || ++links > MAX_LINKS)
            return file_failed(w, path, n < 0 ? errno : ELOOP);
        link[n] = '\0';
        if (follow(w, link) < 0)
            return -1;
    }
    w->exists = lstat(w->target, &st) == 0;
    if (!w->exists && errno != ENOENT)
        return file_failed(w, path, errno);
    if (w->exists && !S_ISREG(st.st_mode))
        return pt2_fail_io(w->r, S_ISDIR(st.st_mode) ? EISDIR : EINVAL, NULL, "'%.500s' is not a file", path);
    if (w->exists && faccessat(AT_FDCWD, w->target, W_OK, AT_EACCESS) < 0)
        return file_failed(w, path, errno);
    w->mode = w->exists ? st.st_mode & 0777 : 0;
    const char *slash = strrchr(w->target, '/');
    if (!*w->target || (slash && !slash[1]))
        return pt2_fail_io(w->r, *w->target ? EISDIR : ENOENT, NULL, "'%.500s' does not name a file", path);
    snprintf(w->folder, sizeof w->folder, "%.*s", slash ? (int)(slash - w->target) + 1 : 2, slash ? w->target : "./");
    return 0;
}

/* Create the new file under a name that nobody has. Where one is replaced, nobody else may read it until it has that
 * one's mode; else the umask decides. */
static int create(writing *w)
{
    struct timespec now = {0, 0};

    w->folder_fd = open(w->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (w->folder_fd < 0)
        return file_failed(w, w->target, errno);
    for (int i = 0; i < MAX_TRIES; i++) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        uint64_t id =
            fe_mix((uint64_t)now.tv_nsec ^ (uint64_t)getpid() << 32 ^ (uint64_t)(uintptr_t)w ^ (uint64_t)i << 20);
        int n = snprintf(w->temporary, sizeof w->temporary, "%s.pt2-%016llx", w->folder, (unsigned long long)id);
        if (n < 0 || (size_t)n >= sizeof w->temporary) {
            w->temporary[0] = '\0';
            return file_failed(w, w->target, ENAMETOOLONG);
        }
        w->fd = open(w->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, w->exists ? 0600 : 0666);
        if (w->fd >= 0)
            return w->exists && fchmod(w->fd, w->mode) < 0 ? file_failed(w, w->target, errno) : 0;
        if (errno != EEXIST)
            break;
    }
    w->temporary[0] = '\0';
    return file_failed(w, w->target, errno);
}

/* Does the new archive, as our reader sees it, hold the parts? The content had its CRCs checked where it came from. */
static int compare(const pt2_archive *archive, const writing *w)
{
    uint32_t count;
    const pt2_entry *entries = pt2_archive_entries(archive, &count);

    if (count != w->count)
        return -1;
    for (uint32_t i = 0; i < count; i++) {
        const pt2_part *part = w->sources[i].part;
        if (strcmp(entries[i].full_name, w->entries[i].full_name) != 0 || entries[i].size != w->entries[i].size ||
            entries[i].offset % ALIGNMENT || (part->from && part->entry->crc != entries[i].crc))
            return -1;
    }
    return 0;
}

static int read_back(writing *w)
{
    pt2_report check;
    int fd = fcntl(w->fd, F_DUPFD_CLOEXEC, 0), result = 0;

    if (fd < 0)
        return file_failed(w, w->target, errno);
    pt2_report_init(&check, w->allocator, w->r->limits);
    pt2_archive *archive = pt2_archive_open_fd(fd, w->allocator, &check);
    if (check.no_memory)
        result = pt2_no_memory(w->r);
    else if (!archive)
        result = pt2_fail(w->r, check.count ? check.items[check.count - 1].kind : PT2_ZIP, NULL, NULL,
                          "what was written cannot be read back: %s",
                          check.count ? check.items[check.count - 1].message : "unknown fault");
    else if (compare(archive, w) < 0)
        result = pt2_fail(w->r, PT2_ZIP, NULL, NULL, "what was written does not read back the same");
    pt2_archive_close(archive);
    pt2_report_clear(&check);
    return result;
}

/* From here on the disk has the whole file, under its own name. */
static int put_in_place(writing *w)
{
    if (fsync(w->fd) < 0)
        return file_failed(w, w->target, errno);
    if (read_back(w) < 0)
        return -1;
    if (rename(w->temporary, w->target) < 0)
        return file_failed(w, w->target, errno);
    w->temporary[0] = '\0';
    if (fsync(w->folder_fd) < 0 && errno != EINVAL)
        pt2_warn(w->r, PT2_IO, NULL, NULL, "'%.500s' is written, but its folder is not flushed: %s", w->target,
                 strerror(errno));
    return 0;
}

static void writing_clear(writing *w)
{
    if (w->fd >= 0)
        close(w->fd);
    if (w->folder_fd >= 0)
        close(w->folder_fd);
    if (w->temporary[0])
        unlink(w->temporary);
    zip_error_fini(&w->error);
    for (size_t i = 0; w->sources && i < w->count; i++)
        zip_error_fini(&w->sources[i].error);
    pt2_names_clear(&w->names, w->allocator);
    fe_resize(w->allocator, w->sources, 0);
    fe_resize(w->allocator, w->entries, 0);
    fe_resize(w->allocator, w->texts, 0);
    fe_resize(w->allocator, w->buffer, 0);
    fe_resize(w->allocator, w, 0);
}

int pt2_package_write(const char *path, const char *root, const pt2_part *parts, size_t count, const fe_allocator *a,
                      pt2_report *r)
{
    writing *w = fe_resize(a, NULL, sizeof *w);
    int result = -1;

    if (!w)
        return pt2_no_memory(r);
    memset(w, 0, sizeof *w);
    w->allocator = a;
    w->r = r;
    w->count = count;
    w->fd = w->folder_fd = -1;
    zip_error_init(&w->error);
    if (prepare(w, root, parts) == 0 && resolve(w, path) == 0 && create(w) == 0 && write_archive(w) == 0)
        result = put_in_place(w);
    writing_clear(w);
    return result;
}
