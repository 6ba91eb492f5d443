/* base.h - what every file of the core stands on: errors, allocation, growable arrays, byte buffers.
 *
 * Two kinds of failure exist. A user's mistake or a lack of memory is an fe_error: the function returns -1 (or NULL),
 * fills the error and leaves its inputs as they were. A programmer's mistake is an assert.
 */
#ifndef FE_BASE_H
#define FE_BASE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FE_MUST_CHECK __attribute__((warn_unused_result))
#define FE_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))

typedef enum {
    FE_OK = 0,
    FE_NO_MEMORY,
    FE_BAD_VALUE, /* an argument that can never be right */
    FE_BAD_STATE, /* right in itself, but not for this graph as it is now */
    FE_TOO_LARGE, /* a limit of the representation: ids, lengths, depth */
} fe_code;

typedef struct {
    fe_code code;
    uint32_t node; /* the node at fault, or 0 */
    char message[320];
} fe_error;

/* Fill err and return -1, so that a failing function can end with `return fe_fail(...)`. */
int fe_fail(fe_error *err, fe_code code, uint32_t node, const char *format, ...) FE_PRINTF(4, 5);
int fe_no_memory(fe_error *err);

/* The owner of a graph says where its memory comes from. size 0 frees and returns NULL. */
typedef struct {
    void *(*resize)(void *ctx, void *block, size_t size);
    void *ctx;
} fe_allocator;

extern const fe_allocator fe_libc_allocator;

/* Make room for `need` items of `size` bytes in *items; capacity doubles. 0, or -1 with everything as it was. */
int fe_grow(const fe_allocator *a, void *items, uint32_t *capacity, size_t need, size_t size,
            fe_error *err) FE_MUST_CHECK;

static inline void *fe_resize(const fe_allocator *a, void *block, size_t size)
{
    return a->resize(a->ctx, block, size);
}

/* Ask for large pages for a fresh block that will be filled from end to end: they cost less to come by. Only a wish, and only
 * for large blocks. */
void fe_use_large_pages(void *block, size_t size);

/* strtod with a point for the point, whatever the locale. */
double fe_strtod(const char *text, char **end);

/* A byte buffer that remembers a failed append, so that writers need only one check at the end. */
typedef struct {
    const fe_allocator *allocator;
    char *data;
    size_t len, capacity;
    bool failed;
} fe_buffer;

void fe_buffer_init(fe_buffer *b, const fe_allocator *a);
void fe_buffer_clear(fe_buffer *b);
void fe_buffer_add(fe_buffer *b, const char *data, size_t len);
void fe_buffer_text(fe_buffer *b, const char *text);
void fe_buffer_char(fe_buffer *b, char c);
void fe_buffer_int(fe_buffer *b, int64_t value);

/* A strong 64 -> 64 bit mix (the finaliser of MurmurHash3); all hash tables of the project start from it. */
static inline uint64_t fe_mix(uint64_t x)
{
    x ^= x >> 33;
    x *= UINT64_C(0xff51afd7ed558ccd);
    x ^= x >> 33;
    x *= UINT64_C(0xc4ceb9fe1a85ec53);
    return x ^ (x >> 33);
}

#endif
