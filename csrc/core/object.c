/* object.c - reference counts of what the core does not understand.
 *
 * The owner keeps the things themselves. The core only counts; when a count falls to zero the index waits in a list
 * until the owner takes it, because releasing a thing may run the owner's code, and no core function may do that.
 * Room in that list is made when an object is made, so that dropping a reference can't fail.
 */
#include "ir.h"

#define QUEUED (UINT32_C(1) << 31) /* in the list of the dead already */

static int grow_lists(fe_graph *g, uint32_t capacity, fe_error *err)
{
    uint32_t *dead = fe_resize(g->allocator, g->dead_objects, (size_t)capacity * sizeof *dead);

    if (!dead)
        return fe_no_memory(err);
    g->dead_objects = dead;
    uint32_t *spare = fe_resize(g->allocator, g->spare_objects, (size_t)capacity * sizeof *spare);
    if (!spare)
        return fe_no_memory(err);
    g->spare_objects = spare;
    return 0;
}

int fe_object_new(fe_graph *g, uint32_t *out, fe_error *err)
{
    uint32_t capacity = g->object_capacity;

    if (g->spare_count) {
        *out = g->spare_objects[--g->spare_count];
        return 0;
    }
    if (g->object_count == g->object_capacity) {
        uint32_t want = capacity < 8 ? 8 : capacity + capacity / 2;
        if (grow_lists(g, want, err) < 0 ||
            fe_grow(g->allocator, &g->object_refs, &capacity, want, sizeof *g->object_refs, err) < 0)
            return -1;
        g->object_capacity = want;
    }
    *out = g->object_count++;
    g->object_refs[*out] = 0;
    return 0;
}

void fe_object_ref(fe_graph *g, uint32_t object)
{
    g->object_refs[object]++;
}

void fe_object_unref(fe_graph *g, uint32_t object)
{
    assert((g->object_refs[object] & ~QUEUED) > 0);
    if (--g->object_refs[object] == 0) {
        g->object_refs[object] = QUEUED;
        g->dead_objects[g->dead_count++] = object;
    }
}

bool fe_object_take_dead(fe_graph *g, uint32_t *out)
{
    while (g->dead_count) {
        uint32_t object = g->dead_objects[--g->dead_count];
        g->object_refs[object] &= ~QUEUED;
        if (g->object_refs[object] == 0) { /* not in use again since */
            g->spare_objects[g->spare_count++] = object;
            *out = object;
            return true;
        }
    }
    return false;
}
