/* pass_getitem.c - getitem elimination: one getitem for each (source, index), the first.
 *
 * Two reads of the same place give the same value only while nobody writes. By default the table of known getitems
 * starts anew after every node that may write, and an index that may copy (anything but integers, strings, slices and
 * None) is merged only where no write follows: of two copies only one would be written to.
 * torch.export's pass compares the printed index and takes no notice of writes; fx_policy does the same.
 */
#include "ir.h"

typedef struct {
    uint32_t node, epoch;
    uint64_t hash;
} known;

typedef struct {
    fe_graph *g;
    const fe_getitem_options *options;
    known *slots;
    uint32_t mask, count, epoch;
    uint64_t last_write; /* position of the last node that may write, 0: none */
    fe_string **keys;    /* fx_policy: by node, the text that stands for a getitem; NULL: its name */
    fe_error *err;
} finder;

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

    return n->op == FE_OP_CALL_FUNCTION && g->targets[n->target].flags & FE_TARGET_GETITEM && !d->kwargs && d->args &&
           d->args->len == 2 && d->args->items[0].kind == FE_NODE;
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
    if (f->options->fx_policy || f->last_write < f->g->nodes[first].pos)
        return true;
    return is_basic_index(f->g->details[again].args->items[1]) && !has_writing_user(f->g, first) && !has_writing_user(f->g, again);
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
    const fe_string *source = key_of(f, args->items[0].as.node);
    fe_buffer text;

    fe_buffer_init(&text, g->allocator);
    fe_buffer_add(&text, source->data, source->len);
    fe_buffer_char(&text, '.');
    fe_text_value(g, f->options->renderer, args->items[1], FE_TEXT_STR, &text);
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
    return fe_mix(fe_value_hash(args->items[1]) + args->items[0].as.node);
}

static bool same_key(const finder *f, uint32_t a, uint32_t b)
{
    const fe_seq *x = f->g->details[a].args, *y = f->g->details[b].args;

    if (f->options->fx_policy)
        return f->keys[a] == f->keys[b];
    return x->items[0].as.node == y->items[0].as.node && fe_value_equal(x->items[1], y->items[1]);
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
static int visit(finder *f, uint32_t id, bool apply, fe_report *removed)
{
    fe_graph *g = f->g;

    if (f->options->fx_policy && make_text_key(f, id) < 0)
        return -1;
    uint64_t hash = key_hash(f, id);
    known *k = find(f, id, hash);
    if (k->epoch != f->epoch || !may_merge(f, k->node, id)) {
        *k = (known){.node = id, .epoch = f->epoch, .hash = hash};
        return 0;
    }
    if (fe_report_add(removed, FE_REASON_UNUSED, id, k->node, f->err) < 0)
        return -1;
    if (!apply)
        return 0;
    if (fe_node_replace_all_uses(g, id, k->node, f->err) < 0) {
        removed->len--;
        return -1;
    }
    fe_node_erase(g, id);
    return 0;
}

/* Size the tables for all getitems of the graph and find the last write. */
static int prepare(finder *f)
{
    fe_graph *g = f->g;
    uint32_t getitems = 0, size = 16;

    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT; id = g->nodes[id].next) {
        getitems += is_getitem(g, id);
        if (may_write(g, id))
            f->last_write = g->nodes[id].pos;
    }
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

static int walk(finder *f, bool apply, fe_report *removed)
{
    fe_graph *g = f->g;

    for (uint32_t id = g->nodes[FE_ROOT].next, next; id != FE_ROOT; id = next) {
        next = g->nodes[id].next;
        if (is_getitem(g, id)) {
            if (visit(f, id, apply, removed) < 0)
                return -1;
        } else if (!f->options->fx_policy && f->last_write && may_write(g, id)) {
            f->epoch++;
        }
    }
    return 0;
}

int fe_eliminate_getitems(fe_graph *g, const fe_getitem_options *o, bool apply, fe_report *removed, fe_error *err)
{
    finder f = {.g = g, .options = o, .err = err};
    uint32_t before = removed->len;
    int result = prepare(&f);

    if (result == 0)
        result = walk(&f, apply, removed);
    fe_resize(g->allocator, f.slots, 0);
    fe_resize(g->allocator, f.keys, 0);
    return result < 0 ? -1 : removed->len > before;
}
