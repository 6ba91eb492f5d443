/* read_range.c - range constraints, and which of them torch would list.
 *
 * torch knows a constraint by the text of its expression and lists those that it met as an expression, or a part of one,
 * while it parsed the sizes and strides of tensors and the values of numbers. So the texts of all those parts are looked
 * up among the keys; each distinct part once, and none that is much larger than the longest key.
 */
#include "read.h"

#define LONGEST_KEY 10000 /* bytes; putting a sum in sympy's order takes more than linear time */

typedef struct {
    pt2_program_reader *reader;
    pt2_texts keys;             /* owner: index into ranges */
    size_t longest;             /* key */
    const fe_expr_node **parts; /* a hash table of those looked up */
    uint32_t mask, count;
} seen_parts;

/* ---- a set of expressions ---- */

static uint32_t slot_of(const seen_parts *s, fe_expr e)
{
    uint32_t i = (uint32_t)fe_mix((uint64_t)(uintptr_t)e) & s->mask;

    while (s->parts[i] && s->parts[i] != e)
        i = (i + 1) & s->mask;
    return i;
}

static int grow_parts(seen_parts *s)
{
    const fe_allocator *a = s->reader->program->allocator;
    uint32_t size = s->parts ? s->mask + 1 : 0;
    const fe_expr_node **old = s->parts;

    if (size && s->count < size / 2)
        return 0;
    uint32_t want = size ? 2 * size : 64;
    const fe_expr_node **new = want ? fe_resize(a, NULL, want * sizeof *new) : NULL;
    if (!new)
        return pt2_no_memory(s->reader->report);
    memset(new, 0, want * sizeof *new);
    s->parts = new;
    s->mask = want - 1;
    for (uint32_t i = 0; i < size; i++) {
        if (old[i])
            s->parts[slot_of(s, old[i])] = old[i];
    }
    fe_resize(a, (void *)(uintptr_t)old, 0);
    return 0;
}

/* ---- parts ---- */

static int mark(seen_parts *s, fe_expr part)
{
    fe_buffer text;

    /* each node of a tree is at least half a character: -x is a product of two */
    if (part->size / 2 > s->longest + 4)
        return 0;
    fe_buffer_init(&text, s->reader->program->allocator);
    fe_expr_str(part, &text);
    if (text.failed) {
        fe_buffer_clear(&text);
        return pt2_no_memory(s->reader->report);
    }
    const fe_string *key = fe_string_find(&s->keys.strings.strings, text.data, text.len);
    if (key)
        s->reader->program->ranges[key->owner].seen = true;
    fe_buffer_clear(&text);
    return 0;
}

static int visit(void *ctx, fe_expr part)
{
    seen_parts *s = ctx;

    if (grow_parts(s) < 0)
        return -1;
    uint32_t slot = slot_of(s, part);
    if (s->parts[slot])
        return 0;
    s->parts[slot] = part;
    s->count++;
    return mark(s, part);
}

static int mark_seen(seen_parts *s)
{
    pt2_program_reader *r = s->reader;

    for (uint32_t i = 0; i < r->expr_count; i++) {
        if (r->exprs[i].seen && fe_expr_walk(r->exprs[i].expr, visit, s) != 0)
            return -1;
    }
    return 0;
}

/* ---- ranges ---- */

static int64_t bound(yyjson_val *range, const char *key, bool *has)
{
    yyjson_val *v = pt2_field(range, key);
    int64_t value = 0;

    *has = v && pt2_json_int(v, &value);
    return value;
}

static int read_range(pt2_program_reader *r, yyjson_val *key, yyjson_val *v, const pt2_path *path, pt2_range *out)
{
    const pt2_limits *limits = r->report->limits;
    size_t len = unsafe_yyjson_get_len(key);
    uint32_t depth = limits->expr_depth;
    fe_expr_error err;

    *out = (pt2_range){.key = unsafe_yyjson_get_str(key)};
    out->min = bound(v, "min_val", &out->has_min);
    out->max = bound(v, "max_val", &out->has_max);
    if (out->has_min && out->has_max && out->min > out->max)
        pt2_fail(r->report, PT2_VALUE, NULL, PT2_KEY_OF(path, key), "the range is empty: %lld is greater than %lld",
                 (long long)out->min, (long long)out->max);
    if (len > LONGEST_KEY || (limits->expr_bytes && len > limits->expr_bytes)) {
        pt2_fail(r->report, PT2_LIMIT, NULL, path, "a range of an expression of %zu bytes", len);
        return 0;
    }
    if (!depth || depth > FE_EXPR_MAX_DEPTH)
        depth = FE_EXPR_MAX_DEPTH;
    if (strlen(out->key) != len) {
        pt2_fail(r->report, PT2_EXPR, NULL, path, "the key '%s' goes on after a NUL", out->key);
        return 0;
    }
    out->expr = fe_expr_parse_str(r->program->exprs, out->key, len, depth, &err);
    if (out->expr)
        return 0;
    if (err.fault == FE_EXPR_NO_MEMORY)
        return pt2_no_memory(r->report);
    pt2_fail(r->report, err.fault == FE_EXPR_DEPTH ? PT2_EXPR_DEPTH : PT2_EXPR, NULL, path,
             "the key '%s' is no expression: %s", out->key, err.message);
    return 0;
}

static int read_all(seen_parts *s, yyjson_val *ranges, const pt2_path *path)
{
    pt2_program *p = s->reader->program;
    size_t i, count;
    yyjson_val *key, *v;

    pt2_each_member(ranges, i, count, key, v)
    {
        fe_string *known = pt2_read_text(s->reader, &s->keys, unsafe_yyjson_get_str(key), unsafe_yyjson_get_len(key));
        if (!known || read_range(s->reader, key, v, path, &p->ranges[i]) < 0)
            return -1;
        known->owner = (uint32_t)i;
        p->range_count = (uint32_t)i + 1;
        if (unsafe_yyjson_get_len(key) > s->longest)
            s->longest = unsafe_yyjson_get_len(key);
    }
    return mark_seen(s);
}

static void warn_unseen(pt2_program_reader *r, const pt2_path *path)
{
    for (uint32_t i = 0; i < r->program->range_count; i++) {
        const pt2_range *range = &r->program->ranges[i];
        if (!range->seen && range->expr && range->expr->op == FE_EXPR_SYMBOL)
            pt2_warn(r->report, PT2_VALUE, NULL,
                     &(pt2_path){.parent = path, .key = range->key, .key_len = strlen(range->key)}, PT2_UNSEEN_RANGE,
                     range->key);
    }
}

int pt2_read_ranges(pt2_program_reader *r, yyjson_val *ranges, const pt2_path *path)
{
    seen_parts s = {.reader = r};
    size_t count = ranges ? unsafe_yyjson_get_len(ranges) : 0;
    uint32_t capacity = 0;

    if (!count)
        return 0;
    if (pt2_read_grow(r, &r->program->ranges, &capacity, count, sizeof *r->program->ranges) < 0)
        return -1;
    int result = read_all(&s, ranges, path);
    if (s.keys.strings.arena.allocator)
        fe_reserved_clear(&s.keys.strings);
    fe_resize(r->program->allocator, (void *)(uintptr_t)s.parts, 0);
    if (result == 0)
        warn_unseen(r, path);
    return result;
}
