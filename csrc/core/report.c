/* report.c - a growing list of what a pass or lint found. */
#include "pass.h"

void fe_report_init(fe_report *r, const fe_allocator *a)
{
    *r = (fe_report){.allocator = a};
}

void fe_report_clear(fe_report *r)
{
    fe_resize(r->allocator, r->items, 0);
    fe_report_init(r, r->allocator);
}

int fe_report_add(fe_report *r, uint8_t code, uint32_t node, uint32_t other, fe_error *err)
{
    if (fe_grow(r->allocator, &r->items, &r->capacity, (size_t)r->len + 1, sizeof *r->items, err) < 0)
        return -1;
    r->items[r->len++] = (fe_record){.node = node, .other = other, .code = code};
    return 0;
}
