/* fx_pool.c - memory for calls on live torch.fx graphs.
 *
 * Such a call needs a few megabytes for a moment. Got from the system anew each time, they cost a page fault for every
 * page, which is a third of the whole call. So large blocks are kept, up to a limit, until the module goes.
 */
#include "fx.h"

#define LARGE ((size_t)32 << 10)
#define KEPT_AT_MOST ((size_t)32 << 20)

typedef struct {
    size_t size; /* of what follows */
    uint64_t payload[];
} block;

static block *block_of(void *payload)
{
    return (block *)(void *)((char *)payload - offsetof(block, payload));
}

static void give(fx_pool *p, block *b)
{
    if (b->size < LARGE || p->count == FX_POOL_BLOCKS || b->size > KEPT_AT_MOST - p->bytes) {
        PyMem_RawFree(b);
        return;
    }
    p->bytes += b->size;
    p->blocks[p->count++] = b;
}

/* The smallest kept block that suffices without wasting most of it, else a new one. */
static block *take(fx_pool *p, size_t size)
{
    uint32_t best = FX_POOL_BLOCKS;
    block *b;

    for (uint32_t i = 0; size >= LARGE && i < p->count; i++) {
        size_t has = ((block *)p->blocks[i])->size;
        if (has >= size && has / 4 <= size && (best == FX_POOL_BLOCKS || has < ((block *)p->blocks[best])->size))
            best = i;
    }
    if (best < FX_POOL_BLOCKS) {
        b = p->blocks[best];
        p->blocks[best] = p->blocks[--p->count];
        p->bytes -= b->size;
        return b;
    }
    if (size > SIZE_MAX / 2 || !(b = PyMem_RawMalloc(sizeof *b + size)))
        return NULL;
    b->size = size;
    return b;
}

static void *resize(void *ctx, void *payload, size_t size)
{
    block *old = payload ? block_of(payload) : NULL, *b;

    if (!size) {
        if (old)
            give(ctx, old);
        return NULL;
    }
    if (old && old->size >= size)
        return payload;
    if (!(b = take(ctx, size)))
        return NULL;
    if (old) {
        memcpy(b->payload, payload, old->size);
        give(ctx, old);
    }
    return b->payload;
}

void fx_pool_init(fx_pool *p)
{
    *p = (fx_pool){.allocator = {resize, p}};
}

void fx_pool_clear(fx_pool *p)
{
    while (p->count)
        PyMem_RawFree(p->blocks[--p->count]);
    p->bytes = 0;
}
