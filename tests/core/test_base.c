/* test_base.c - growable arrays, byte buffers, errors. */
#include "check.h"

static void test_grow(void)
{
    test_memory m;
    fe_error err = {0};
    uint32_t *items = NULL, capacity = 0;

    memory_init(&m);
    for (uint32_t i = 0; i < 1000; i++) {
        DO(fe_grow(&m.allocator, &items, &capacity, i + 1, sizeof *items, &err));
        CHECK(capacity > i);
        items[i] = i;
    }
    for (uint32_t i = 0; i < 1000; i++)
        CHECK_INT(items[i], i);
    CHECK(m.calls < 20);
    size_t calls = m.calls;
    DO(fe_grow(&m.allocator, &items, &capacity, 5, sizeof *items, &err));
    CHECK_INT(m.calls, calls);

    uint32_t *before = items, room = capacity;
    memory_fail(&m, 0, true);
    CHECK_INT(fe_grow(&m.allocator, &items, &capacity, 5000, sizeof *items, &err), -1);
    CHECK_INT(err.code, FE_NO_MEMORY);
    CHECK(items == before && capacity == room);
    memory_init(&m);
    m.blocks = 1;
    CHECK_INT(fe_grow(&m.allocator, &items, &capacity, UINT32_MAX, sizeof *items, &err), -1);
    CHECK_INT(err.code, FE_TOO_LARGE);
    CHECK_INT(m.calls, 0);
    test_resize(&m, items, 0);
    CHECK_INT(m.blocks, 0);
}

static void test_buffer(void)
{
    test_memory m;
    fe_buffer b;

    memory_init(&m);
    fe_buffer_init(&b, &m.allocator);
    fe_buffer_add(&b, NULL, 0);
    CHECK_INT(m.calls, 0);
    fe_buffer_text(&b, "x = ");
    fe_buffer_int(&b, 0);
    fe_buffer_char(&b, ' ');
    fe_buffer_int(&b, -7);
    fe_buffer_char(&b, ' ');
    fe_buffer_int(&b, INT64_MAX);
    fe_buffer_char(&b, ' ');
    fe_buffer_int(&b, INT64_MIN);
    fe_buffer_char(&b, '\0');
    CHECK(!b.failed);
    CHECK_TEXT(b.data, "x = 0 -7 9223372036854775807 -9223372036854775808");
    for (int i = 0; i < 10000; i++)
        fe_buffer_text(&b, "0123456789");
    CHECK(!b.failed);
    CHECK_INT(b.len, 50 + 100000);
    CHECK(memcmp(b.data + b.len - 10, "0123456789", 10) == 0);
    fe_buffer_clear(&b);
    CHECK_INT(m.blocks, 0);
    CHECK_INT(b.len, 0);
}

/* A failed append is remembered, and what was written before stays. */
static void test_buffer_without_memory(void)
{
    test_memory m;
    fe_buffer b;
    char large[1000] = {0};

    memory_init(&m);
    fe_buffer_init(&b, &m.allocator);
    fe_buffer_text(&b, "kept");
    memory_fail(&m, 0, false);
    fe_buffer_add(&b, large, sizeof large);
    CHECK(b.failed);
    fe_buffer_text(&b, "not"); /* there is room, but a hole before it */
    CHECK_INT(b.len, 4);
    CHECK(memcmp(b.data, "kept", 4) == 0);
    fe_buffer_clear(&b);
    CHECK(!b.failed);
    CHECK_INT(m.blocks, 0);
}

static void test_errors(void)
{
    fe_error err = {0};
    char name[1000];

    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    CHECK_INT(fe_fail(&err, FE_BAD_VALUE, 7, "node '%s'", "a"), -1);
    CHECK_INT(err.code, FE_BAD_VALUE);
    CHECK_INT(err.node, 7);
    CHECK_TEXT(err.message, "node 'a'");
    CHECK_INT(fe_fail(&err, FE_BAD_STATE, 0, "node '%s'", name), -1); /* cut, not overrun */
    CHECK_INT(strlen(err.message), sizeof err.message - 1);
    CHECK_INT(fe_no_memory(&err), -1);
    CHECK_INT(err.code, FE_NO_MEMORY);
}

int main(void)
{
    RUN(test_grow);
    RUN(test_buffer);
    RUN(test_buffer_without_memory);
    RUN(test_errors);
    return 0;
}
