/* pass_cse.c - common subexpressions: of equal calls, the first one serves for all.
 *
 * One walk along the list with a hash table of the calls so far. Calls are equal when they have the same target and the same
 * arguments, kind by kind and bit by bit, where a call that was found to repeat another counts as that one; so a whole tree
 * is found in one walk.
 *
 * What is equal as text is equal as a value only while nobody writes. Two calls are merged when (1) nothing that either reads
 * is written from the first to the second, (2) their results are never written to, or are the same memory anyway, or are made
 * of memory that nobody writes after the first, and (3) they are not what a buffer becomes and what else is returned. Memory
 * is told apart by regions (memory.c).
 */
#include "simplify.h"

typedef struct {
    uint32_t node; /* FE_NONE_ID: free */
    uint32_t hash;
} known;

typedef struct {
    fe_graph *g;
    const fe_cse_options *o;
    known *slots;
    uint32_t mask;
    uint32_t *alias; /* by node: the one that takes its place, else itself */
    bool writes;
    fe_memory memory;  /* if there are writes */
    uint64_t *written; /* up to where the walk is, as memory.written */
    uint8_t *returned; /* by node: fe_returned; NULL: it does not matter */
    fe_error *err;
} finder;

/* ---- equal arguments ---- */

static uint32_t class_of(const finder *f, uint32_t object)
{
    return f->o->objects && object != FE_NONE_ID ? f->o->objects[object] : object;
}

static bool is_number(fe_value v)
{
    return v.kind == FE_BOOL || v.kind == FE_INT || v.kind == FE_FLOAT;
}

static int64_t whole(fe_value v)
{
    return v.kind == FE_BOOL ? v.as.boolean : v.as.integer;
}

static bool whole_equals_real(int64_t i, double d)
{
    return d >= -0x1p63 && d < 0x1p63 && (int64_t)d == i && (double)(int64_t)d == d;
}

/* As Python compares them; a nan equals none. */
static bool numbers_equal(fe_value a, fe_value b)
{
    if (a.kind == FE_FLOAT && b.kind == FE_FLOAT)
        return a.as.real == b.as.real;
    if (a.kind == FE_FLOAT)
        return whole_equals_real(whole(b), a.as.real);
    return b.kind == FE_FLOAT ? whole_equals_real(whole(a), b.as.real) : whole(a) == whole(b);
}

static bool values_equal(const finder *f, fe_value a, fe_value b);

static bool seqs_equal(const finder *f, const fe_seq *a, const fe_seq *b)
{
    uint32_t len = a ? a->len : 0;

    if (len != (b ? b->len : 0) || (len && class_of(f, a->type) != class_of(f, b->type)))
        return false;
    for (uint32_t i = 0; i < len; i++) {
        if (!values_equal(f, a->items[i], b->items[i]))
            return false;
    }
    return true;
}

static bool values_equal(const finder *f, fe_value a, fe_value b)
{
    if (f->o->fx_policy && is_number(a) && is_number(b))
        return numbers_equal(a, b);
    if (a.kind != b.kind)
        return false;
    if (fe_kind_is_seq(a.kind))
        return seqs_equal(f, a.as.seq, b.as.seq);
    if (a.kind == FE_OBJECT)
        return class_of(f, a.as.object) == class_of(f, b.as.object);
    return fe_value_equal(a, b, f->alias);
}

static uint64_t hash_number(fe_value v)
{
    double d = v.kind == FE_FLOAT ? v.as.real + 0.0 : (double)whole(v); /* -0.0 + 0.0 is 0.0 */
    uint64_t bits;

    memcpy(&bits, &d, sizeof bits);
    return fe_mix(bits);
}

static uint64_t hash_seq(const finder *f, const fe_seq *s, uint64_t h);

static uint64_t hash_value(const finder *f, fe_value v)
{
    if (f->o->fx_policy && is_number(v))
        return hash_number(v);
    if (fe_kind_is_seq(v.kind))
        return hash_seq(f, v.as.seq, v.kind);
    if (v.kind == FE_OBJECT)
        return fe_mix(class_of(f, v.as.object));
    return fe_value_hash(v, f->alias);
}

static uint64_t hash_seq(const finder *f, const fe_seq *s, uint64_t h)
{
    for (uint32_t i = 0; s && i < s->len; i++)
        h = fe_mix(h ^ hash_value(f, s->items[i])) + 1;
    return h;
}

static uint32_t hash_node(const finder *f, uint32_t id)
{
    const fe_detail *d = &f->g->details[id];

    return (uint32_t)fe_mix(hash_seq(f, d->kwargs, hash_seq(f, d->args, f->g->nodes[id].target)));
}

static bool nodes_equal(const finder *f, uint32_t a, uint32_t b)
{
    const fe_detail *x = &f->g->details[a], *y = &f->g->details[b];

    return f->g->nodes[a].target == f->g->nodes[b].target && seqs_equal(f, x->args, y->args) &&
           seqs_equal(f, x->kwargs, y->kwargs);
}

/* ---- what may be merged ---- */

/* Whether a node is looked at: it has no effect of its own. */
static bool is_candidate(const finder *f, uint32_t id)
{
    const fe_dce_options keep_all = {.keep_random = true};
    const fe_node *n = &f->g->nodes[id];

    if (n->op == FE_OP_PLACEHOLDER || n->op == FE_OP_OUTPUT || (f->o->apart && f->o->apart[id]))
        return false;
    if (f->o->ignore_effects)
        return true;
    if (f->o->facts[n->target] & FE_MEMORY_SINGLE)
        return false;
    if (f->o->fx_policy)
        return n->op != FE_OP_GET_ATTR;
    return fe_node_effect(f->g, id, &keep_all) == FE_REASON_UNUSED;
}

static bool is_written_since(const finder *f, uint32_t id, uint64_t since)
{
    return f->written[fe_memory_region(&f->memory, id)] > since;
}

/* The walk is at `again`: whether what either call reads was written since the first. */
static bool is_read_after_write(const finder *f, uint32_t first, uint32_t again)
{
    const uint32_t pair[] = {first, again};
    uint64_t since = f->g->nodes[first].pos;

    if (f->written[f->memory.room - 1] > since)
        return true;
    for (int i = 0; i < 2; i++) {
        const fe_node *n = &f->g->nodes[pair[i]];
        for (uint32_t e = 0; e < n->edge_count; e++) {
            if (is_written_since(f, f->g->edges[n->edge + e].def, since))
                return true;
        }
    }
    return f->g->nodes[first].op == FE_OP_GET_ATTR && is_written_since(f, first, since);
}

/* Whether it would be seen that there is one result and not two. */
static bool is_written_later(const finder *f, uint32_t first, uint32_t again)
{
    uint32_t fact = f->o->facts[f->g->nodes[first].target];
    uint64_t of_first = f->memory.written[fe_memory_region(&f->memory, first)],
             of_again = f->memory.written[fe_memory_region(&f->memory, again)];

    if (fact & FE_MEMORY_VIEW || f->g->nodes[first].op == FE_OP_GET_ATTR)
        return false;
    if (fact & FE_MEMORY_FRESH)
        return of_first || of_again;
    return of_first > f->g->nodes[first].pos || of_again > f->g->nodes[first].pos;
}

/* Whether two results that are apart would come to be in the same memory. */
static bool are_results(const finder *f, uint32_t first, uint32_t again)
{
    bool is_view = f->g->nodes[first].op == FE_OP_GET_ATTR || f->o->facts[f->g->nodes[first].target] & FE_MEMORY_VIEW;

    return f->returned[first] & f->returned[again] & FE_RESULT && !is_view;
}

static fe_cse_reason judge(const finder *f, uint32_t first, uint32_t again)
{
    if (f->returned && fe_stay_two(f->returned, first, again))
        return FE_CSE_UPDATE;
    if (f->o->is_inner && f->returned && are_results(f, first, again))
        return FE_CSE_RETURNED;
    if (!f->writes)
        return FE_CSE_EQUAL;
    if (is_read_after_write(f, first, again))
        return FE_CSE_READ_AFTER_WRITE;
    return is_written_later(f, first, again) ? FE_CSE_WRITTEN_LATER : FE_CSE_EQUAL;
}

/* ---- the walk ---- */

static known *find(const finder *f, uint32_t id, uint32_t hash)
{
    for (uint32_t i = hash & f->mask;; i = (i + 1) & f->mask) {
        known *k = &f->slots[i];
        if (k->node == FE_NONE_ID || (k->hash == hash && nodes_equal(f, k->node, id)))
            return k;
    }
}

static void merge(finder *f, uint32_t first, uint32_t again)
{
    f->alias[again] = first;
    if (f->returned)
        f->returned[first] |= f->returned[again];
}

/* A call that is not merged, since something is written, stands for its equals from here on: what keeps it apart lies behind
 * it for them. One that is kept for what is returned leaves the first in its place. */
static int visit(finder *f, uint32_t id, fe_report *found)
{
    uint32_t hash = hash_node(f, id);
    known *k = find(f, id, hash);
    fe_cse_reason reason = k->node == FE_NONE_ID ? FE_CSE_REASON_COUNT : judge(f, k->node, id);
    uint32_t first = k->node;

    if (reason == FE_CSE_EQUAL)
        merge(f, first, id);
    else if (reason != FE_CSE_UPDATE && reason != FE_CSE_RETURNED)
        *k = (known){.node = id, .hash = hash};
    if (reason == FE_CSE_EQUAL || (f->o->all && reason != FE_CSE_REASON_COUNT))
        return fe_report_add(found, (uint8_t)reason, id, first, f->err);
    return 0;
}

static int walk(finder *f, fe_report *found)
{
    const fe_graph *g = f->g;

    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT; id = g->nodes[id].next) {
        if (is_candidate(f, id)) {
            if (visit(f, id, found) < 0)
                return -1;
        } else if (f->writes) {
            fe_memory_note_writes(&f->memory, id, f->written);
        }
    }
    return 0;
}

static int prepare_memory(finder *f)
{
    if (fe_memory_open(&f->memory, f->g, f->o->facts, f->err) < 0)
        return -1;
    f->writes = true;
    f->written = fe_resize(f->g->allocator, NULL, f->memory.room * sizeof *f->written);
    if (!f->written)
        return fe_no_memory(f->err);
    memset(f->written, 0, f->memory.room * sizeof *f->written);
    return 0;
}

static int prepare_returned(finder *f)
{
    f->returned = fe_resize(f->g->allocator, NULL, f->g->node_count);
    if (!f->returned)
        return fe_no_memory(f->err);
    fe_mark_returned(f->g, f->o->is_inner ? f->o->facts : NULL, f->returned);
    return 0;
}

static int prepare(finder *f)
{
    fe_graph *g = f->g;
    size_t size = 16;

    while (size < 2 * (size_t)g->live)
        size *= 2;
    f->slots = fe_resize(g->allocator, NULL, size * sizeof *f->slots);
    f->alias = fe_resize(g->allocator, NULL, g->node_count * sizeof *f->alias);
    if (!f->slots || !f->alias)
        return fe_no_memory(f->err);
    memset(f->slots, 0xff, size * sizeof *f->slots); /* node: FE_NONE_ID */
    f->mask = (uint32_t)(size - 1);
    for (uint32_t i = 0; i < g->node_count; i++)
        f->alias[i] = i;
    if (f->o->fx_policy || f->o->ignore_effects)
        return 0;
    if ((f->o->is_inner || fe_has_updates(g)) && prepare_returned(f) < 0)
        return -1;
    return fe_memory_is_written(g) ? prepare_memory(f) : 0;
}

int fe_find_common_subexpressions(fe_graph *g, const fe_cse_options *o, fe_report *found, fe_error *err)
{
    finder f = {.g = g, .o = o, .err = err};
    uint32_t before = found->len;
    int result = prepare(&f);

    if (result == 0)
        result = walk(&f, found);
    fe_resize(g->allocator, f.slots, 0);
    fe_resize(g->allocator, f.alias, 0);
    fe_resize(g->allocator, f.written, 0);
    fe_resize(g->allocator, f.returned, 0);
    if (f.writes)
        fe_memory_close(&f.memory);
    if (result < 0)
        found->len = before;
    return result;
}

const char *fe_cse_reason_text(fe_cse_reason reason)
{
    static const char *const texts[] = {
#define X(id, text) text,
        FE_CSE_REASONS(X)
#undef X
    };

    return texts[reason];
}
