/* arena.c - memory that lives as long as its graph.
 *
 * Small blocks are cut from chunks and kept in free lists by size class once given back: steps of 8 bytes up to 256,
 * then four classes for each doubling up to 64 KiB. A larger block has a chunk of its own, freed when it is given back.
 */
#include "ir.h"

#define STEP 8u
#define STEPPED_MAX 256u
#define CLASSED_MAX 65536u
#define CHUNK_MIN 4096u
#define CHUNK_MAX (1u << 20)

struct fe_chunk {
    fe_chunk *next, *prev;
    size_t size;
    uint64_t payload[]; /* aligned for any type the core stores */
};

void fe_arena_init(fe_arena *a, const fe_allocator *allocator)
{
    *a = (fe_arena){.allocator = allocator};
}

static void free_chunks(fe_arena *a, fe_chunk *c)
{
    while (c) {
        fe_chunk *next = c->next;
        fe_resize(a->allocator, c, 0);
        c = next;
    }
}

void fe_arena_clear(fe_arena *a)
{
    free_chunks(a, a->chunks);
    free_chunks(a, a->large);
    fe_arena_init(a, a->allocator);
}

/* The class of a size, and in *rounded the size that all blocks of the class have. */
static unsigned size_class(size_t size, size_t *rounded)
{
    size_t step = STEPPED_MAX / 4, top = STEPPED_MAX;
    unsigned class = STEPPED_MAX / STEP;

    if (size <= STEPPED_MAX) {
        size_t steps = size ? (size + STEP - 1) / STEP : 1;
        *rounded = steps * STEP;
        return (unsigned)steps - 1;
    }
    while (size > 2 * top) {
        top *= 2;
        step *= 2;
        class += 4;
    }
    size_t steps = (size - top + step - 1) / step;
    *rounded = top + steps * step;
    return class + (unsigned)steps - 1;
}

static fe_chunk *new_chunk(fe_arena *a, size_t payload, fe_chunk **list)
{
    fe_chunk *c = fe_resize(a->allocator, NULL, sizeof *c + payload);

    if (!c)
        return NULL;
    c->size = payload;
    c->prev = NULL;
    c->next = *list;
    if (*list)
        (*list)->prev = c;
    *list = c;
    a->bytes += payload;
    return c;
}

static void *take_large(fe_arena *a, size_t size)
{
    fe_chunk *c = size > SIZE_MAX / 2 ? NULL : new_chunk(a, size, &a->large);

    return c ? c->payload : NULL;
}

void *fe_arena_take(fe_arena *a, size_t size)
{
    size_t rounded;

    if (size > CLASSED_MAX)
        return take_large(a, size);
    unsigned class = size_class(size, &rounded);
    void *block = a->free[class];
    if (block) {
        memcpy(&a->free[class], block, sizeof(void *));
        return block;
    }
    if ((size_t)(a->end - a->at) < rounded) {
        /* What is left of the old chunk is given up: at most one block's worth in a growing series of chunks. */
        size_t want = a->bytes < CHUNK_MIN ? CHUNK_MIN : a->bytes > CHUNK_MAX ? CHUNK_MAX : a->bytes;
        fe_chunk *c = new_chunk(a, want < rounded ? rounded : want, &a->chunks);
        if (!c)
            return NULL;
        a->at = (char *)c->payload;
        a->end = a->at + c->size;
    }
    block = a->at;
    a->at += rounded;
    return block;
}

static void give_large(fe_arena *a, void *block)
{
    fe_chunk *c = (fe_chunk *)(void *)((char *)block - offsetof(fe_chunk, payload));

    if (c->prev)
        c->prev->next = c->next;
    else
        a->large = c->next;
    if (c->next)
        c->next->prev = c->prev;
    a->bytes -= c->size;
    fe_resize(a->allocator, c, 0);
}

void fe_arena_give(fe_arena *a, void *block, size_t size)
{
    size_t rounded;

    if (size > CLASSED_MAX) {
        give_large(a, block);
        return;
    }
    unsigned class = size_class(size, &rounded);
    memcpy(block, &a->free[class], sizeof(void *));
    a->free[class] = block;
}
