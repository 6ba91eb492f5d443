/* intern.c - strings and targets, stored once a graph, so that they compare by address or index. */
#include "ir.h"

#define EMPTY UINT32_MAX

static uint32_t hash_bytes(const char *data, size_t len)
{
    uint64_t h = len * UINT64_C(0x9e3779b97f4a7c15), word;

    for (; len >= sizeof word; data += sizeof word, len -= sizeof word) {
        memcpy(&word, data, sizeof word);
        h = fe_mix(h ^ word);
    }
    word = 0;
    memcpy(&word, data, len);
    return (uint32_t)fe_mix(h ^ word);
}

static fe_string **string_slot(const fe_strings *s, const char *data, size_t len, uint32_t hash)
{
    for (uint32_t i = hash & s->mask;; i = (i + 1) & s->mask) {
        fe_string *t = s->slots[i];
        if (!t || (t->hash == hash && t->len == len && memcmp(t->data, data, len) == 0))
            return &s->slots[i];
    }
}

fe_string *fe_string_find(const fe_strings *s, const char *data, size_t len)
{
    return s->slots ? *string_slot(s, data, len, hash_bytes(data, len)) : NULL;
}

bool fe_string_is_in(const fe_strings *s, const fe_string *t)
{
    return s->slots && *string_slot(s, t->data, t->len, t->hash) != NULL;
}

/* Keep at least a third of the slots free. */
static int strings_make_room(fe_strings *s, const fe_allocator *a)
{
    uint32_t size = s->slots ? s->mask + 1 : 0;

    if (size && s->count < size - size / 3)
        return 0;
    size = size ? size * 2 : 64;
    if (!size)
        return -1;
    fe_string **slots = fe_resize(a, NULL, size * sizeof *slots);
    if (!slots)
        return -1;
    memset(slots, 0, size * sizeof *slots);
    for (uint32_t i = 0; s->slots && i <= s->mask; i++) {
        fe_string *t = s->slots[i];
        if (!t)
            continue;
        uint32_t at = t->hash & (size - 1);
        while (slots[at])
            at = (at + 1) & (size - 1);
        slots[at] = t;
    }
    fe_resize(a, s->slots, 0);
    s->slots = slots;
    s->mask = size - 1;
    return 0;
}

static fe_string *intern(fe_strings *s, fe_arena *arena, const char *data, size_t len)
{
    uint32_t hash = hash_bytes(data, len);

    if (strings_make_room(s, arena->allocator) < 0)
        return NULL;
    fe_string **slot = string_slot(s, data, len, hash);
    if (*slot)
        return *slot;
    fe_string *t = fe_arena_take(arena, offsetof(fe_string, data) + len + 1);
    if (!t)
        return NULL;
    *t = (fe_string){.len = (uint32_t)len, .hash = hash, .owner = FE_NONE_ID};
    if (len)
        memcpy(t->data, data, len);
    t->data[len] = '\0';
    *slot = t;
    s->count++;
    return t;
}

fe_string *fe_string_get(fe_graph *g, const char *data, size_t len, fe_error *err)
{
    if (len >= UINT32_MAX) {
        fe_fail(err, FE_TOO_LARGE, 0, "a string of %zu bytes is longer than a graph can hold", len);
        return NULL;
    }
    fe_string *t = intern(&g->strings, &g->arena, data, len);
    if (!t)
        fe_no_memory(err);
    return t;
}

int fe_reserved_init(fe_reserved *r, const fe_allocator *a)
{
    fe_arena_init(&r->arena, a);
    r->strings = (fe_strings){0};
    return 0;
}

int fe_reserved_add(fe_reserved *r, const char *data, size_t len)
{
    return len < UINT32_MAX && intern(&r->strings, &r->arena, data, len) ? 0 : -1;
}

void fe_reserved_clear(fe_reserved *r)
{
    fe_resize(r->arena.allocator, r->strings.slots, 0);
    r->strings = (fe_strings){0};
    fe_arena_clear(&r->arena);
}

static uint32_t target_hash(fe_op op, uint32_t object, const fe_string *text)
{
    uint64_t key = object != FE_NONE_ID ? object : (uint64_t)(uintptr_t)text;

    return (uint32_t)fe_mix(key * FE_OP_COUNT + (uint64_t)op);
}

static uint32_t *target_slot(const fe_graph *g, fe_op op, uint32_t object, const fe_string *text)
{
    for (uint32_t i = target_hash(op, object, text) & g->target_mask;; i = (i + 1) & g->target_mask) {
        uint32_t *slot = &g->target_slots[i];
        if (*slot == EMPTY)
            return slot;
        const fe_target *t = &g->targets[*slot];
        if (t->op == op && t->object == object && (object != FE_NONE_ID || t->text == text))
            return slot;
    }
}

static int targets_make_room(fe_graph *g, fe_error *err)
{
    uint32_t size = g->target_slots ? g->target_mask + 1 : 0;

    if (fe_grow(g->allocator, &g->targets, &g->target_capacity, (size_t)g->target_count + 1, sizeof *g->targets, err) <
        0)
        return -1;
    if (size && g->target_count < size / 2)
        return 0;
    size = size ? size * 2 : 32;
    uint32_t *slots = size ? fe_resize(g->allocator, NULL, size * sizeof *slots) : NULL;
    if (!slots)
        return fe_no_memory(err);
    memset(slots, 0xff, size * sizeof *slots);
    fe_resize(g->allocator, g->target_slots, 0);
    g->target_slots = slots;
    g->target_mask = size - 1;
    for (uint32_t i = 0; i < g->target_count; i++) {
        const fe_target *t = &g->targets[i];
        *target_slot(g, t->op, t->object, t->text) = i;
    }
    return 0;
}

int fe_target_get(fe_graph *g, fe_op op, uint32_t object, fe_string *text, uint32_t *out, bool *is_new, fe_error *err)
{
    if (targets_make_room(g, err) < 0)
        return -1;
    uint32_t *slot = target_slot(g, op, object, text);
    *is_new = *slot == EMPTY;
    if (*is_new) {
        *slot = g->target_count++;
        g->targets[*slot] =
            (fe_target){.op = (uint8_t)op, .object = object, .text = text, .first = FE_NONE_ID, .last = FE_NONE_ID};
        if (object != FE_NONE_ID)
            fe_object_ref(g, object);
    }
    *out = *slot;
    return 0;
}
