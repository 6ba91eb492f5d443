/* test_arena.c - blocks of all sizes: aligned, apart from each other, used again, given back. */
#include "check.h"

static uint32_t random_state = 1;

static uint32_t random_below(uint32_t limit)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % limit;
}

static const size_t sizes[] = {0,   1,    15,   16,   17,   500,   511,   512,   513,    640,    641,
                               896, 1000, 1024, 1025, 4096, 65535, 65536, 65537, 100000, 1000000};

static void test_blocks_of_every_size(void)
{
    fe_arena a;
    char *blocks[sizeof sizes / sizeof *sizes];
    const size_t count = sizeof sizes / sizeof *sizes;

    fe_arena_init(&a, &fe_libc_allocator);
    for (size_t i = 0; i < count; i++) {
        blocks[i] = fe_arena_take(&a, sizes[i]);
        CHECK(blocks[i]);
        CHECK_INT((uintptr_t)blocks[i] % 8, 0);
        memset(blocks[i], (int)i, sizes[i]);
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < sizes[i]; k++)
            CHECK_INT((unsigned char)blocks[i][k], i);
        fe_arena_give(&a, blocks[i], sizes[i]);
    }
    fe_arena_clear(&a);
}

static void test_a_block_given_back_is_used_again(void)
{
    fe_arena a;

    fe_arena_init(&a, &fe_libc_allocator);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i] > 65536)
            continue;
        void *first = fe_arena_take(&a, sizes[i]), *second = fe_arena_take(&a, sizes[i]);
        fe_arena_give(&a, first, sizes[i]);
        fe_arena_give(&a, second, sizes[i]);
        CHECK(fe_arena_take(&a, sizes[i]) == second);
        CHECK(fe_arena_take(&a, sizes[i]) == first);
    }
    size_t bytes = a.bytes;
    for (int i = 0; i < 10000; i++)
        fe_arena_give(&a, fe_arena_take(&a, 100), 100);
    CHECK_INT(a.bytes, bytes);
    fe_arena_clear(&a);
}

/* A block too large for the classes goes back to the allocator, from any place in their list. */
static void test_large_blocks_go_back(void)
{
    test_memory m;
    fe_arena a;
    void *large[3];

    memory_init(&m);
    for (int first = 0; first < 3; first++) {
        fe_arena_init(&a, &m.allocator);
        for (int i = 0; i < 3; i++)
            large[i] = fe_arena_take(&a, 70000);
        CHECK_INT(m.blocks, 3);
        fe_arena_give(&a, large[first], 70000);
        CHECK_INT(m.blocks, 2);
        CHECK_INT(a.bytes, 2 * 70000);
        fe_arena_give(&a, large[(first + 1) % 3], 70000);
        fe_arena_give(&a, large[(first + 2) % 3], 70000);
        CHECK_INT(m.blocks, 0);
        CHECK_INT(a.bytes, 0);
        fe_arena_clear(&a);
    }
}

static void test_chunks_grow_with_the_arena(void)
{
    test_memory m;
    fe_arena a;

    memory_init(&m);
    fe_arena_init(&a, &m.allocator);
    for (int i = 0; i < 100000; i++)
        CHECK(fe_arena_take(&a, 64));
    CHECK(a.bytes >= 100000 * 64);
    CHECK(m.calls < 40); /* 6.4 MB in chunks that double up to 1 MiB */
    fe_arena_clear(&a);
    CHECK_INT(m.blocks, 0);
}

static void test_no_memory(void)
{
    test_memory m;
    fe_arena a;

    memory_init(&m);
    fe_arena_init(&a, &m.allocator);
    memory_fail(&m, 0, true);
    CHECK(!fe_arena_take(&a, 16));
    CHECK(!fe_arena_take(&a, 70000));
    CHECK(!fe_arena_take(&a, SIZE_MAX));
    CHECK(!fe_arena_take(&a, SIZE_MAX / 2 + 1));
    memory_init(&m);
    CHECK(fe_arena_take(&a, 16));
    fe_arena_clear(&a);
    CHECK_INT(m.blocks, 0);
}

#define LIVE 300

/* Random takes and gives; each block keeps its own pattern for as long as it lives. */
static void test_random_life(void)
{
    struct {
        unsigned char *data;
        size_t size;
        unsigned char mark;
    } blocks[LIVE] = {{NULL, 0, 0}};
    fe_arena a;

    fe_arena_init(&a, &fe_libc_allocator);
    for (uint32_t step = 0; step < 50000; step++) {
        uint32_t i = random_below(LIVE);
        if (blocks[i].data) {
            for (size_t k = 0; k < blocks[i].size; k++)
                CHECK_INT(blocks[i].data[k], blocks[i].mark);
            fe_arena_give(&a, blocks[i].data, blocks[i].size);
            blocks[i].data = NULL;
            continue;
        }
        blocks[i].size = random_below(1u << random_below(12));
        blocks[i].mark = (unsigned char)step;
        blocks[i].data = fe_arena_take(&a, blocks[i].size);
        CHECK(blocks[i].data);
        memset(blocks[i].data, blocks[i].mark, blocks[i].size);
    }
    fe_arena_clear(&a);
}

int main(void)
{
    RUN(test_blocks_of_every_size);
    RUN(test_a_block_given_back_is_used_again);
    RUN(test_large_blocks_go_back);
    RUN(test_chunks_grow_with_the_arena);
    RUN(test_no_memory);
    RUN(test_random_life);
    return 0;
}
