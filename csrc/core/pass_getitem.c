/* pass_getitem.c - getitem elimination: one getitem for each (source, index), the first.
 *
 * Two reads of the same place give the same value only while nobody writes. By default the table of known getitems
 * starts anew after every node that may write, and an index that may copy (anything but integers, strings, slices and
 * None) is merged only where no write follows: of two copies only one would be written to.
 * torch.export's pass compares the printed index and takes no notice of writes; fx_policy does the same.
 */
#include "pass.h"

typedef struct {
    uint32_t node, epoch;
    uint64_t hash;
} known;

typedef struct {
    fe_graph *g;
    const fe_getitem_options *options;
    known *slots;
    uint32_t mask, count, epoch;
    bool writes;         /* some node may write */
    uint64_t last_write; /* position of the last such node */
    uint32_t *alias;     /* by node: the getitem found to take its place, else itself; NULL: none found yet */
    fe_string **keys;    /* fx_policy: by node, the text that stands for a getitem; NULL: its name */
    fe_error *err;
} finder;

/* Whether any node may write, told without looking at them: by the targets in use, and by whether a string "out" is
 * known to the graph at all. */
static bool any_may_write(const fe_graph *g)
{
    for (uint32_t i = 0; i < g->target_count; i++) {
        const uint32_t writing = FE_TARGET_MUTATES | FE_TARGET_UNKNOWN | FE_TARGET_PER_NODE;
        if (g->targets[i].count && g->targets[i].flags & writing)
            return true;
    }
    return fe_string_find(&g->strings, "out", 3) != NULL;
}

static bool may_write(const fe_graph *g, uint32_t id)
{
    const fe_node *n = &g->nodes[id];

    if (n->op == FE_OP_PLACEHOLDER || n->op == FE_OP_OUTPUT || n->op == FE_OP_GET_ATTR)
        return false;
    if (g->targets[n->target].flags & (FE_TARGET_MUTATES | FE_TARGET_UNKNOWN))
        return true;
    return n->flags & (FE_NODE_OUT | FE_NODE_IMPURE) || fe_node_writes_out(g, id);
}

static bool is_getitem(const fe_graph *g, uint32_t id)
{
    const fe_node *n = &g->nodes[id];
    const fe_detail *d = &g->details[id];

    return n->op == FE_OP_CALL_FUNCTION && g->targets[n->target].flags & FE_TARGET_GETITEM &&
           !(d->kwargs && d->kwargs->len) && d->args && d->args->len == 2 && d->args->items[0].kind == FE_NODE;
}

/* Whether indexing with v gives the object itself, or a view of it, whatever the source is. */
static bool is_basic_index(fe_value v)
{
    switch ((fe_kind)v.kind) {
    case FE_NONE:
    case FE_INT:
    case FE_STR:
        return true;
    case FE_TUPLE:
    case FE_SLICE:
        for (uint32_t i = 0; i < v.as.seq->len; i++) {
            if (!is_basic_index(v.as.seq->items[i]))
                return false;
        }
        return true;
    default:
        return false;
    }
}

static bool has_writing_user(const fe_graph *g, uint32_t id)
{
    for (uint32_t e = g->details[id].first_user; e != FE_NONE_ID; e = g->edges[e].next) {
        if (may_write(g, g->edges[e].user))
            return true;
    }
    return false;
}

static bool may_merge(const finder *f, uint32_t first, uint32_t again)
{
    if (!f->writes || f->last_write < f->g->nodes[first].pos)
        return true;
    return is_basic_index(f->g->details[again].args->items[1]) && !has_writing_user(f->g, first) &&
           !has_writing_user(f->g, again);
}

static uint32_t meant(const finder *f, uint32_t id)
{
    return f->alias ? f->alias[id] : id;
}

/* Note that a getitem is to be replaced: what is indexed by or through it counts as its replacement from now on. */
static int add_alias(finder *f, uint32_t id, uint32_t kept)
{
    if (!f->alias) {
        f->alias = fe_resize(f->g->allocator, NULL, f->g->node_count * sizeof *f->alias);
        if (!f->alias)
            return fe_no_memory(f->err);
        for (uint32_t i = 0; i < f->g->node_count; i++)
            f->alias[i] = i;
    }
    f->alias[id] = kept;
    return 0;
}

static fe_string *key_of(const finder *f, uint32_t id)
{
    return f->keys[id] ? f->keys[id] : f->g->details[id].name;
}

/* fx_policy: the text torch.export makes of a getitem, "source.index". */
static int make_text_key(finder *f, uint32_t id)
{
    fe_graph *g = f->g;
    const fe_seq *args = g->details[id].args;
    const fe_string *source = key_of(f, meant(f, args->items[0].as.node));
    fe_renderer renderer = *f->options->renderer;
    fe_buffer text;

    fe_buffer_init(&text, g->allocator);
    fe_buffer_add(&text, source->data, source->len);
    fe_buffer_char(&text, '.');
    renderer.alias = f->alias;
    fe_text_value(g, &renderer, args->items[1], FE_TEXT_STR, &text);
    fe_string *key = text.failed ? NULL : fe_string_get(g, text.data, text.len, f->err);
    if (text.failed)
        fe_no_memory(f->err);
    fe_buffer_clear(&text);
    f->keys[id] = key;
    return key ? 0 : -1;
}

static uint64_t key_hash(const finder *f, uint32_t id)
{
    const fe_seq *args = f->g->details[id].args;

    if (f->options->fx_policy)
        return fe_mix((uint64_t)(uintptr_t)f->keys[id]);
    return fe_mix(fe_value_hash(args->items[1], f->alias) + meant(f, args->items[0].as.node));
}

static bool same_key(const finder *f, uint32_t a, uint32_t b)
{
    const fe_seq *x = f->g->details[a].args, *y = f->g->details[b].args;

    if (f->options->fx_policy)
        return f->keys[a] == f->keys[b];
    return meant(f, x->items[0].as.node) == meant(f, y->items[0].as.node) &&
           fe_value_equal(x->items[1], y->items[1], f->alias);
}

/* The slot of the getitem with the key of id, or the free one to put id into. Slots of past epochs count as free. */
static known *find(const finder *f, uint32_t id, uint64_t hash)
{
    for (uint64_t i = hash & f->mask;; i = (i + 1) & f->mask) {
        known *k = &f->slots[i];
        if (k->epoch != f->epoch || (k->hash == hash && same_key(f, k->node, id)))
            return k;
    }
}

/* Look at one getitem: report it when an earlier one serves, else remember it. */
static int visit(finder *f, uint32_t id, fe_report *repeated)
{
    if (f->options->fx_policy && make_text_key(f, id) < 0)
        return -1;
    uint64_t hash = key_hash(f, id);
    known *k = find(f, id, hash);
    if (k->epoch != f->epoch || !may_merge(f, k->node, id)) {
        *k = (known){.node = id, .epoch = f->epoch, .hash = hash};
        return 0;
    }
    if (add_alias(f, id, k->node) < 0)
        return -1;
    return fe_report_add(repeated, FE_REASON_UNUSED, id, k->node, f->err);
}

static uint32_t count_getitems(const fe_graph *g)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < g->target_count; i++)
        count += g->targets[i].flags & FE_TARGET_GETITEM ? g->targets[i].count : 0;
    return count;
}

static void find_last_write(finder *f)
{
    uint32_t id = f->g->nodes[FE_ROOT].prev;

    while (id != FE_ROOT && !may_write(f->g, id))
        id = f->g->nodes[id].prev;
    f->writes = id != FE_ROOT;
    f->last_write = f->g->nodes[id].pos;
}

/* Size the tables for all getitems of the graph and find the last write. */
static int prepare(finder *f)
{
    fe_graph *g = f->g;
    uint32_t getitems = count_getitems(g), size = 16;

    if (!f->options->fx_policy && !f->options->ignore_writes && any_may_write(g))
        find_last_write(f);
    while (size < 2 * getitems)
        size *= 2;
    f->slots = fe_resize(g->allocator, NULL, size * sizeof *f->slots);
    if (!f->slots)
        return fe_no_memory(f->err);
    memset(f->slots, 0, size * sizeof *f->slots);
    f->mask = size - 1;
    f->epoch = 1;
    if (f->options->fx_policy) {
        f->keys = fe_resize(g->allocator, NULL, g->node_count * sizeof(fe_string *));
        if (!f->keys)
            return fe_no_memory(f->err);
        memset(f->keys, 0, g->node_count * sizeof(fe_string *));
    }
    return 0;
}

static int walk(finder *f, fe_report *repeated)
{
    fe_graph *g = f->g;

    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT; id = g->nodes[id].next) {
        if (is_getitem(g, id)) {
            if (visit(f, id, repeated) < 0)
                return -1;
        } else if (f->writes && may_write(g, id)) {
            f->epoch++;
        }
    }
    return 0;
}

int fe_find_repeated_getitems(fe_graph *g, const fe_getitem_options *o, fe_report *repeated, fe_error *err)
{
    finder f = {.g = g, .options = o, .err = err};
    int result = prepare(&f);

    if (result == 0)
        result = walk(&f, repeated);
    fe_resize(g->allocator, f.slots, 0);
    fe_resize(g->allocator, f.keys, 0);
    fe_resize(g->allocator, f.alias, 0);
    return result;
}

int fe_merge_getitems(fe_graph *g, const fe_report *repeated, uint32_t first, fe_error *err)
{
    for (uint32_t i = first; i < repeated->len; i++) {
        if (fe_node_reserve_replacement(g, repeated->items[i].node, err) < 0)
            return -1;
    }
    for (uint32_t i = first; i < repeated->len; i++) {
        fe_record r = repeated->items[i];
        if (fe_node_replace_all_uses(g, r.node, r.other, err) < 0)
            assert(!"the memory was reserved");
        fe_node_erase(g, r.node);
    }
    return 0;
}

int fe_eliminate_getitems(fe_graph *g, const fe_getitem_options *o, fe_report *removed, fe_error *err)
{
    uint32_t before = removed->len;

    if (fe_find_repeated_getitems(g, o, removed, err) < 0 || fe_merge_getitems(g, removed, before, err) < 0) {
        removed->len = before;
        return -1;
    }
    return removed->len > before;
}
