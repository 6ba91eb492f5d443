/* base.c - errors, the default allocator, growable arrays and byte buffers (see base.h). */
#include "base.h"

#include <locale.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

int fe_fail(fe_error *err, fe_code code, uint32_t node, const char *format, ...)
{
    va_list args;

    err->code = code;
    err->node = node;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    return -1;
}

int fe_no_memory(fe_error *err)
{
    return fe_fail(err, FE_NO_MEMORY, 0, "out of memory");
}

static void *libc_resize(void *ctx, void *block, size_t size)
{
    (void)ctx;
    if (size == 0) {
        free(block);
        return NULL;
    }
    return realloc(block, size);
}

const fe_allocator fe_libc_allocator = {libc_resize, NULL};

int fe_grow(const fe_allocator *a, void *items, uint32_t *capacity, size_t need, size_t size, fe_error *err)
{
    void *block;
    size_t room = *capacity;

    if (need <= room)
        return 0;
    /* The top id is kept for FE_NONE_ID. */
    if (need >= UINT32_MAX)
        return fe_fail(err, FE_TOO_LARGE, 0, "more than %u items of one kind in a graph", UINT32_MAX - 1);
    room = room < 8 ? 8 : room + room / 2;
    if (room < need)
        room = need;
    if (room >= UINT32_MAX)
        room = UINT32_MAX - 1;
    memcpy(&block, items, sizeof block);
    block = fe_resize(a, block, room * size);
    if (!block)
        return fe_no_memory(err);
    memcpy(items, &block, sizeof block);
    *capacity = (uint32_t)room;
    return 0;
}

void fe_buffer_init(fe_buffer *b, const fe_allocator *a)
{
    *b = (fe_buffer){.allocator = a};
}

void fe_buffer_clear(fe_buffer *b)
{
    fe_resize(b->allocator, b->data, 0);
    fe_buffer_init(b, b->allocator);
}

static bool buffer_room(fe_buffer *b, size_t more)
{
    size_t room = b->capacity ? b->capacity : 256;
    char *data;

    if (b->failed)
        return false;
    if (more <= b->capacity - b->len)
        return true;
    while (room - b->len < more)
        room *= 2;
    data = fe_resize(b->allocator, b->data, room);
    if (!data) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->capacity = room;
    return true;
}

void fe_buffer_add(fe_buffer *b, const char *data, size_t len)
{
    if (!len || !buffer_room(b, len))
        return;
    memcpy(b->data + b->len, data, len);
    b->len += len;
}

void fe_buffer_text(fe_buffer *b, const char *text)
{
    fe_buffer_add(b, text, strlen(text));
}

void fe_buffer_char(fe_buffer *b, char c)
{
    fe_buffer_add(b, &c, 1);
}

void fe_buffer_int(fe_buffer *b, int64_t value)
{
    char digits[24], *at = digits + sizeof digits;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;

    do {
        *--at = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest);
    if (value < 0)
        *--at = '-';
    fe_buffer_add(b, at, (size_t)(digits + sizeof digits - at));
}

/* ---- memory ---- */

#define LARGE_PAGE ((uintptr_t)2 << 20)
#define MOST_LARGE_PAGES 32 /* for more, the system may have to move memory about, which takes longer than it saves */

void fe_use_large_pages(void *block, size_t size)
{
    uintptr_t start = ((uintptr_t)block + LARGE_PAGE - 1) & ~(LARGE_PAGE - 1);
    uintptr_t end = ((uintptr_t)block + size) & ~(LARGE_PAGE - 1);

#ifdef MADV_HUGEPAGE
    if (block && size >= 2 * LARGE_PAGE && size <= MOST_LARGE_PAGES * LARGE_PAGE && end > start)
        madvise((void *)start, end - start, MADV_HUGEPAGE);
#else
    (void)start;
    (void)end;
#endif
}

/* ---- numbers ---- */

double fe_strtod(const char *text, char **end)
{
    static _Atomic(locale_t) plain; /* the locale C: made once, and kept */
    locale_t locale = atomic_load(&plain), none = (locale_t)0;

    if (!locale) {
        locale = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
        if (locale && !atomic_compare_exchange_strong(&plain, &none, locale)) {
            freelocale(locale);
            locale = none; /* another thread's, which was first */
        }
    }
    return locale ? strtod_l(text, end, locale) : strtod(text, end);
}
