/* value.c - trees of argument values.
 *
 * A tree has one owner: a node, or the caller while it builds one. So a tree may be changed in place, and freeing it
 * gives its blocks back to the arena and its references to objects back to the owner of the graph. Depth is bounded by
 * FE_MAX_DEPTH when a tree is built, which makes the recursion here safe.
 */
#include "ir.h"

static size_t seq_size(size_t len)
{
    return offsetof(fe_seq, items) + len * sizeof(fe_value);
}

fe_seq *fe_seq_new(fe_graph *g, size_t len, uint32_t type, fe_error *err)
{
    fe_seq *s;

    if (len >= UINT32_MAX) {
        fe_fail(err, FE_TOO_LARGE, 0, "a sequence of %zu arguments is longer than a graph can hold", len);
        return NULL;
    }
    s = fe_arena_take(&g->arena, seq_size(len));
    if (!s) {
        fe_no_memory(err);
        return NULL;
    }
    s->len = (uint32_t)len;
    s->type = type;
    if (type != FE_NONE_ID)
        fe_object_ref(g, type);
    for (size_t i = 0; i < len; i++)
        s->items[i] = (fe_value){.kind = FE_NULL};
    return s;
}

void fe_seq_free(fe_graph *g, fe_seq *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; i < s->len; i++)
        fe_value_free(g, s->items[i]);
    if (s->type != FE_NONE_ID)
        fe_object_unref(g, s->type);
    fe_arena_give(&g->arena, s, seq_size(s->len));
}

void fe_value_free(fe_graph *g, fe_value v)
{
    if (v.kind == FE_OBJECT)
        fe_object_unref(g, v.as.object);
    else if (v.kind == FE_COMPLEX)
        fe_arena_give(&g->arena, v.as.complex, 2 * sizeof(double));
    else if (fe_kind_is_seq(v.kind))
        fe_seq_free(g, v.as.seq);
}

int fe_value_complex(fe_graph *g, double real, double imag, fe_value *out, fe_error *err)
{
    double *parts = fe_arena_take(&g->arena, 2 * sizeof *parts);

    if (!parts)
        return fe_no_memory(err);
    parts[0] = real;
    parts[1] = imag;
    *out = (fe_value){.kind = FE_COMPLEX, .as.complex = parts};
    return 0;
}

int fe_value_copy(fe_graph *g, const fe_value_map *map, fe_value v, fe_value *out, fe_error *err)
{
    fe_seq *seq;

    switch ((fe_kind)v.kind) {
    case FE_STR:
        out->as.string = fe_string_get(g, v.as.string->data, v.as.string->len, err);
        if (!out->as.string)
            return -1;
        break;
    case FE_COMPLEX:
        return fe_value_complex(g, v.as.complex[0], v.as.complex[1], out, err);
    case FE_NODE:
        if (map->values)
            return fe_value_copy(g, &(fe_value_map){0}, map->values[v.as.node], out, err);
        out->as.node = map->nodes ? map->nodes[v.as.node] : v.as.node;
        break;
    case FE_OBJECT:
        out->as.object = map->objects ? map->objects[v.as.object] : v.as.object;
        fe_object_ref(g, out->as.object);
        break;
    case FE_TUPLE:
    case FE_LIST:
    case FE_DICT:
    case FE_SLICE:
        if (fe_seq_copy(g, map, v.as.seq, &seq, err) < 0)
            return -1;
        out->as.seq = seq;
        break;
    default:
        *out = v;
        return 0;
    }
    out->kind = v.kind;
    return 0;
}

int fe_seq_copy(fe_graph *g, const fe_value_map *map, const fe_seq *s, fe_seq **out, fe_error *err)
{
    fe_seq *copy;

    *out = NULL;
    if (!s)
        return 0;
    copy = fe_seq_new(g, s->len, s->type != FE_NONE_ID && map->objects ? map->objects[s->type] : s->type, err);
    if (!copy)
        return -1;
    for (uint32_t i = 0; i < s->len; i++) {
        if (fe_value_copy(g, map, s->items[i], &copy->items[i], err) < 0) {
            fe_seq_free(g, copy);
            return -1;
        }
    }
    *out = copy;
    return 0;
}

static bool seq_equal(const fe_seq *a, const fe_seq *b, const uint32_t *alias)
{
    if (a->len != b->len || a->type != b->type)
        return false;
    for (uint32_t i = 0; i < a->len; i++) {
        if (!fe_value_equal(a->items[i], b->items[i], alias))
            return false;
    }
    return true;
}

static uint32_t meant(uint32_t node, const uint32_t *alias)
{
    return alias ? alias[node] : node;
}

bool fe_value_equal(fe_value a, fe_value b, const uint32_t *alias)
{
    if (a.kind != b.kind)
        return false;
    switch ((fe_kind)a.kind) {
    case FE_NULL:
    case FE_NONE:
        return true;
    case FE_BOOL:
        return a.as.boolean == b.as.boolean;
    case FE_INT:
        return a.as.integer == b.as.integer;
    case FE_FLOAT:
        return memcmp(&a.as.real, &b.as.real, sizeof(double)) == 0;
    case FE_COMPLEX:
        return memcmp(a.as.complex, b.as.complex, 2 * sizeof(double)) == 0;
    case FE_STR:
        return a.as.string == b.as.string;
    case FE_NODE:
        return meant(a.as.node, alias) == meant(b.as.node, alias);
    case FE_OBJECT:
        return a.as.object == b.as.object;
    default:
        return seq_equal(a.as.seq, b.as.seq, alias);
    }
}

uint64_t fe_value_hash(fe_value v, const uint32_t *alias)
{
    uint64_t h = v.kind, word = 0;

    switch ((fe_kind)v.kind) {
    case FE_NULL:
    case FE_NONE:
        break;
    case FE_BOOL:
        word = v.as.boolean;
        break;
    case FE_INT:
        word = (uint64_t)v.as.integer;
        break;
    case FE_FLOAT:
        memcpy(&word, &v.as.real, sizeof word);
        break;
    case FE_COMPLEX:
        memcpy(&word, &v.as.complex[0], sizeof word);
        break;
    case FE_STR:
        word = v.as.string->hash;
        break;
    case FE_NODE:
        word = meant(v.as.node, alias);
        break;
    case FE_OBJECT:
        word = v.as.object;
        break;
    default:
        for (uint32_t i = 0; i < v.as.seq->len; i++)
            h = fe_mix(h ^ fe_value_hash(v.as.seq->items[i], alias));
        return h;
    }
    return fe_mix(h * UINT64_C(0x9e3779b97f4a7c15) ^ word);
}
