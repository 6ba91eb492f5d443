/* meta.c - what users and passes attach to a node: a small ordered map from key to object.
 *
 * Nodes have few keys (under a dozen), so a map is an array searched from the front. Keys are numbered by the owner;
 * a value is an object, and a value that many nodes share is one object.
 */
#include "ir.h"

static size_t meta_size(uint32_t capacity)
{
    return offsetof(fe_meta, entries) + (size_t)capacity * sizeof(fe_meta_entry);
}

uint32_t fe_meta_get(const fe_meta *m, uint32_t key)
{
    for (uint32_t i = 0; m && i < m->len; i++) {
        if (m->entries[i].key == key)
            return m->entries[i].object;
    }
    return FE_NONE_ID;
}

int fe_meta_reserve(fe_graph *g, uint32_t id, uint32_t len, fe_error *err)
{
    fe_meta *old = g->details[id].meta;

    if (!len || (old && old->capacity >= len))
        return 0;
    fe_meta *m = fe_arena_take(&g->arena, meta_size(len));
    if (!m)
        return fe_no_memory(err);
    m->len = 0;
    m->capacity = len;
    if (old) {
        m->len = old->len;
        memcpy(m->entries, old->entries, old->len * sizeof *m->entries);
        fe_arena_give(&g->arena, old, meta_size(old->capacity));
    }
    g->details[id].meta = m;
    return 0;
}

int fe_meta_set(fe_graph *g, uint32_t id, uint32_t key, uint32_t object, fe_error *err)
{
    fe_meta *m = g->details[id].meta;
    uint32_t len = m ? m->len : 0;

    for (uint32_t i = 0; i < len; i++) {
        if (m->entries[i].key == key) {
            fe_object_ref(g, object);
            fe_object_unref(g, m->entries[i].object);
            m->entries[i].object = object;
            return 0;
        }
    }
    if (!m || len == m->capacity) {
        if (fe_meta_reserve(g, id, len + len / 2 + 1, err) < 0)
            return -1;
        m = g->details[id].meta;
    }
    fe_object_ref(g, object);
    m->entries[m->len++] = (fe_meta_entry){key, object};
    return 0;
}

bool fe_meta_delete(fe_graph *g, uint32_t id, uint32_t key)
{
    fe_meta *m = g->details[id].meta;

    for (uint32_t i = 0; m && i < m->len; i++) {
        if (m->entries[i].key == key) {
            fe_object_unref(g, m->entries[i].object);
            memmove(&m->entries[i], &m->entries[i + 1], (m->len - i - 1) * sizeof *m->entries);
            m->len--;
            return true;
        }
    }
    return false;
}

void fe_meta_clear(fe_graph *g, uint32_t id)
{
    fe_meta *m = g->details[id].meta;

    if (!m)
        return;
    for (uint32_t i = 0; i < m->len; i++)
        fe_object_unref(g, m->entries[i].object);
    fe_arena_give(&g->arena, m, meta_size(m->capacity));
    g->details[id].meta = NULL;
}
