/* files.h - what the tests of archives share: files of tests/data/pt2, faults of a report, archives made by hand. */
#ifndef PT2_FILES_H
#define PT2_FILES_H

#include "../core/check.h"
#include "archive.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <zlib.h>

#define DATA "tests/data/pt2/"

/* ---- files ---- */

typedef struct {
    char *data; /* a block of its very length, so that the sanitizer sees what reads past it */
    size_t len;
} bytes;

static inline bytes bytes_of(const void *data, size_t len)
{
    bytes b = {malloc(len ? len : 1), len};

    CHECK(b.data);
    if (len)
        memcpy(b.data, data, len);
    return b;
}

static inline bytes read_file(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY);

    if (fd < 0)
        printf("no file %s\n", path);
    CHECK(fd >= 0 && fstat(fd, &st) == 0);
    bytes b = {malloc((size_t)st.st_size + 1), (size_t)st.st_size};
    CHECK(b.data && read(fd, b.data, b.len) == (ssize_t)b.len);
    close(fd);
    return b;
}

/* A new folder of our own; remove it with rmdir. */
static inline const char *new_folder(void)
{
    static char path[256];
    const char *parent = getenv("TMPDIR");

    snprintf(path, sizeof path, "%s/test_pt2-XXXXXX", parent ? parent : P_tmpdir);
    CHECK(mkdtemp(path));
    return path;
}

static inline void write_file(const char *path, const void *data, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);

    CHECK(fd >= 0 && write(fd, data, len) == (ssize_t)len);
    close(fd);
}

/* ---- faults ---- */

static inline void print_faults(const pt2_report *r)
{
    for (uint32_t i = 0; i < r->count; i++)
        printf("  %s %s @ %s: %s\n", r->items[i].severity == PT2_ERROR ? "error" : "warning",
               pt2_kind_name(r->items[i].kind), r->items[i].entry ? r->items[i].entry : "-", r->items[i].message);
}

/* Is there a fault of that severity, kind and place whose message has that text? */
static inline bool has_fault(const pt2_report *r, pt2_severity severity, pt2_kind kind, const char *entry,
                             const char *text)
{
    for (uint32_t i = 0; i < r->count; i++) {
        const pt2_fault *f = &r->items[i];
        if (f->severity == severity && f->kind == kind && (!entry || (f->entry && strcmp(f->entry, entry) == 0)) &&
            (!text || strstr(f->message, text)))
            return true;
    }
    return false;
}

static inline void check_fault(const char *file, int line, const pt2_report *r, pt2_severity severity, pt2_kind kind,
                               const char *entry, const char *text)
{
    if (has_fault(r, severity, kind, entry, text))
        return;
    printf("%s:%d: no %s %s @ %s: %s; there are\n", file, line, severity == PT2_ERROR ? "error" : "warning",
           pt2_kind_name(kind), entry ? entry : "-", text ? text : "-");
    print_faults(r);
    exit(1);
}

#define CHECK_ERROR(r, kind, entry, text) check_fault(__FILE__, __LINE__, r, PT2_ERROR, kind, entry, text)
#define CHECK_WARNING(r, kind, entry, text) check_fault(__FILE__, __LINE__, r, PT2_WARNING, kind, entry, text)

static inline void check_clean(const char *file, int line, const pt2_report *r)
{
    if (!r->count && !r->no_memory)
        return;
    printf("%s:%d: faults\n", file, line);
    print_faults(r);
    exit(1);
}

#define CHECK_CLEAN(r) check_clean(__FILE__, __LINE__, r)

/* ---- input and output that fails ---- */

/* These stand before libc's for all code of the program; libzip reads and writes through it. */
static size_t io_calls, io_fail_at = SIZE_MAX; /* calls so far; the call that fails */
static int io_error = EIO;                     /* 0: an early end */

static inline bool io_fails(void)
{
    return io_calls++ == io_fail_at;
}

static inline void io_fail(size_t nth, int error)
{
    io_calls = 0;
    io_fail_at = nth;
    io_error = error;
}

ssize_t pread(int fd, void *data, size_t len, off_t at);
ssize_t pread(int fd, void *data, size_t len, off_t at)
{
    if (!io_fails())
        return (ssize_t)syscall(SYS_pread64, fd, data, len, at);
    errno = io_error;
    return io_error ? -1 : 0;
}

ssize_t pwrite(int fd, const void *data, size_t len, off_t at);
ssize_t pwrite(int fd, const void *data, size_t len, off_t at)
{
    if (!io_fails())
        return (ssize_t)syscall(SYS_pwrite64, fd, data, len, at);
    errno = io_error;
    return io_error ? -1 : 0;
}

int fsync(int fd)
{
    if (!io_fails())
        return (int)syscall(SYS_fsync, fd);
    errno = io_error ? io_error : EIO;
    return -1;
}

int rename(const char *from, const char *to)
{
    if (!io_fails())
        return (int)syscall(SYS_rename, from, to);
    errno = io_error ? io_error : EIO;
    return -1;
}

int fchmod(int fd, mode_t mode)
{
    if (!io_fails())
        return (int)syscall(SYS_fchmod, fd, mode);
    errno = io_error ? io_error : EIO;
    return -1;
}

/* ---- archives made by hand ---- */

/* An entry and how it differs from a plain one. */
typedef struct {
    const char *name;
    size_t name_len; /* 0: of the string */
    const char *content;
    size_t content_len; /* 0: of the string */
    uint16_t method, flags, needed;
    uint32_t attributes;
    const char *local_extra, *central_extra;
    size_t local_extra_len, central_extra_len;
    size_t gap; /* bytes before it */
    bool no_name;
} hand_entry;

typedef struct {
    fe_buffer out, directory;
    uint16_t count;
} hand_zip;

static inline void put(fe_buffer *b, uint64_t value, size_t len)
{
    for (size_t i = 0; i < len; i++)
        fe_buffer_char(b, (char)(unsigned char)(value >> 8 * i));
}

static inline void put_record(fe_buffer *b, const hand_entry *e, bool is_local, uint64_t at)
{
    size_t name_len = e->no_name ? 0 : e->name_len ? e->name_len : strlen(e->name);
    const char *content = e->content ? e->content : "";
    size_t len = e->content_len ? e->content_len : strlen(content);

    put(b, is_local ? 0x04034b50 : 0x02014b50, 4);
    put(b, 20, is_local ? 0 : 2);
    put(b, e->needed, 2);
    put(b, e->flags, 2);
    put(b, e->method, 2);
    put(b, 0x210000, 4);
    put(b, crc32(0, (const unsigned char *)content, (uInt)len), 4);
    put(b, len, 4);
    put(b, len, 4);
    put(b, name_len, 2);
    put(b, is_local ? e->local_extra_len : e->central_extra_len, 2);
    if (!is_local) {
        put(b, 0, 6);
        put(b, e->attributes, 4);
        put(b, at, 4);
    }
    fe_buffer_add(b, e->name, name_len);
    if (is_local)
        fe_buffer_add(b, e->local_extra, e->local_extra_len);
    else
        fe_buffer_add(b, e->central_extra, e->central_extra_len);
}

static inline void hand_add(hand_zip *z, hand_entry e)
{
    const char *content = e.content ? e.content : "";

    for (size_t i = 0; i < e.gap; i++)
        fe_buffer_char(&z->out, 'g');
    put_record(&z->directory, &e, false, z->out.len);
    put_record(&z->out, &e, true, 0);
    fe_buffer_add(&z->out, content, e.content_len ? e.content_len : strlen(content));
    z->count++;
}

static inline hand_zip hand_new(void)
{
    hand_zip z = {.count = 0};

    fe_buffer_init(&z.out, &fe_libc_allocator);
    fe_buffer_init(&z.directory, &fe_libc_allocator);
    return z;
}

/* The bytes of the archive, with a comment; the builder is empty then. */
static inline bytes hand_end(hand_zip *z, const char *comment, size_t comment_len)
{
    size_t at = z->out.len;

    fe_buffer_add(&z->out, z->directory.data, z->directory.len);
    put(&z->out, 0x06054b50, 4);
    put(&z->out, 0, 4);
    put(&z->out, z->count, 2);
    put(&z->out, z->count, 2);
    put(&z->out, z->directory.len, 4);
    put(&z->out, at, 4);
    put(&z->out, comment_len, 2);
    fe_buffer_add(&z->out, comment, comment_len);
    CHECK(!z->out.failed && !z->directory.failed);
    bytes b = bytes_of(z->out.data, z->out.len);
    fe_buffer_clear(&z->out);
    fe_buffer_clear(&z->directory);
    return b;
}

#endif
