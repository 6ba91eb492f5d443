/* rewrite.c - where a replacement goes, its copy, and the end of what it replaces.
 *
 * It goes where torch.fx puts it, before the first use of a result, if all its inputs are there by then and nothing in
 * between may write. Else it goes right behind the last node of the match, or behind the last input; then users of
 * results that stand before that, and all that depends on them, move behind it.
 */
#include "rewrite.h"

void fe_rewriter_init(fe_rewriter *w, fe_graph *g, bool fx_policy)
{
    *w = (fe_rewriter){.g = g, .fx_policy = fx_policy};
}

int fe_rewriter_use(fe_rewriter *w, const fe_replacement *r, fe_error *err)
{
    const fe_allocator *a = w->g->allocator;
    size_t nodes = r->graph->node_count;

    w->r = r;
    w->err = err;
    return fe_grow(a, &w->stands, &w->stand_capacity, nodes, sizeof *w->stands, err) < 0 ||
                   fe_grow(a, &w->made, &w->made_capacity, nodes, sizeof *w->made, err) < 0
               ? -1
               : 0;
}

void fe_rewriter_clear(fe_rewriter *w)
{
    const fe_allocator *a = w->g->allocator;

    fe_resize(a, w->instead, 0);
    fe_resize(a, w->writers, 0);
    fe_resize(a, w->stands, 0);
    fe_resize(a, w->marks, 0);
    fe_resize(a, w->trusted, 0);
    fe_resize(a, w->moved, 0);
    fe_resize(a, w->made, 0);
    fe_resize(a, w->results, 0);
    fe_rewriter_init(w, w->g, w->fx_policy);
}

const char *fe_refusal_text(fe_refusal refusal)
{
    static const char *const texts[] = {
#define X(id, text) text,
        FE_REFUSALS(X)
#undef X
    };

    return texts[refusal];
}

/* ---- what has taken a node's place ---- */

/* Room for what is known of each node there is now. */
static int reserve_nodes(fe_rewriter *w)
{
    fe_graph *g = w->g;
    uint32_t old = w->mark_capacity, known = w->trusted_capacity;

    if (fe_grow(g->allocator, &w->instead, &w->instead_capacity, g->node_count, sizeof *w->instead, w->err) < 0 ||
        fe_grow(g->allocator, &w->trusted, &w->trusted_capacity, g->node_count, sizeof *w->trusted, w->err) < 0)
        return -1;
    memset(w->trusted + known, 0, (w->trusted_capacity - known) * sizeof *w->trusted);
    if (fe_grow(g->allocator, &w->marks, &w->mark_capacity, g->node_count, sizeof *w->marks, w->err) < 0)
        return -1;
    memset(w->marks + old, 0, (w->mark_capacity - old) * sizeof *w->marks);
    for (; w->instead_count < g->node_count; w->instead_count++)
        w->instead[w->instead_count] = w->instead_count;
    return 0;
}

uint32_t fe_rewrite_current(fe_rewriter *w, uint32_t id)
{
    while (id < w->instead_count && w->instead[id] != id) {
        w->instead[id] = w->instead[w->instead[id]];
        id = w->instead[id];
    }
    return id;
}

/* ---- writes ---- */

/* What nobody knows in a replacement of something that doesn't write doesn't, either. */
static bool may_write(const fe_rewriter *w, uint32_t id)
{
    static const fe_dce_options options = {.keep_random = false};

    switch (fe_node_effect(w->g, id, &options)) {
    case FE_REASON_MUTATES:
    case FE_REASON_OUT:
    case FE_REASON_CALL:
        return true;
    case FE_REASON_UNKNOWN:
        return id >= w->trusted_capacity || !w->trusted[id];
    default:
        return false;
    }
}

static int find_writers(fe_rewriter *w)
{
    fe_graph *g = w->g;

    if (w->writers_known)
        return 0;
    w->writer_count = 0;
    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT; id = g->nodes[id].next) {
        if (!may_write(w, id))
            continue;
        if (fe_grow(g->allocator, &w->writers, &w->writer_capacity, (size_t)w->writer_count + 1, sizeof *w->writers,
                    w->err) < 0)
            return -1;
        w->writers[w->writer_count++] = id;
    }
    w->writers_known = true;
    return 0;
}

/* Whether a node that may write stands between two nodes. */
static bool writes_between(const fe_rewriter *w, uint64_t first, uint64_t last)
{
    uint32_t low = 0, high = w->writer_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (w->g->nodes[w->writers[middle]].pos <= first)
            low = middle + 1;
        else
            high = middle;
    }
    return low < w->writer_count && w->g->nodes[w->writers[low]].pos < last;
}

/* ---- the place ---- */

typedef struct {
    uint32_t first, last;        /* of the match */
    uint32_t use, outside_use;   /* the first user of a result, and the first that is not in the match; or FE_ROOT */
    uint32_t last_result, input; /* the last of the results, and of the inputs (FE_ROOT: no input is a node) */
    bool writes;                 /* the match may write */
} outline;

static uint64_t position(const fe_graph *g, uint32_t id)
{
    return g->nodes[id].pos;
}

static void take_first(const fe_graph *g, uint32_t *first, uint32_t id)
{
    if (*first == FE_ROOT || position(g, id) < position(g, *first))
        *first = id;
}

static void take_last(const fe_graph *g, uint32_t *last, uint32_t id)
{
    if (*last == FE_ROOT || position(g, id) > position(g, *last))
        *last = id;
}

/* The last node that a value names. */
static void take_last_in(const fe_graph *g, uint32_t *last, fe_value v)
{
    if (v.kind == FE_NODE)
        take_last(g, last, v.as.node);
    for (uint32_t i = 0; fe_kind_is_seq(v.kind) && i < v.as.seq->len; i++)
        take_last_in(g, last, v.as.seq->items[i]);
}

static outline outline_of(fe_rewriter *w, const fe_site *s)
{
    const fe_graph *g = w->g;
    outline o = {0};

    w->stamp++;
    for (uint32_t i = 0; i < s->matched_count; i++) {
        w->marks[s->matched[i]] = w->stamp;
        take_first(g, &o.first, s->matched[i]);
        take_last(g, &o.last, s->matched[i]);
        o.writes |= !w->fx_policy && may_write(w, s->matched[i]);
    }
    for (uint32_t i = 0; i < s->returned_count; i++) {
        take_last(g, &o.last_result, s->returned[i]);
        for (uint32_t e = g->details[s->returned[i]].first_user; e != FE_NONE_ID; e = g->edges[e].next) {
            take_first(g, &o.use, g->edges[e].user);
            if (w->marks[g->edges[e].user] != w->stamp)
                take_first(g, &o.outside_use, g->edges[e].user);
        }
    }
    for (uint32_t i = 0; i < s->input_count; i++)
        take_last_in(g, &o.input, s->inputs[i]);
    return o;
}

/* Whether anything but inputs and the match itself stands among the nodes of the match. */
static bool is_interrupted(const fe_rewriter *w, const outline *o)
{
    const fe_node *nodes = w->g->nodes;

    for (uint32_t id = o->first; id != o->last; id = nodes[id].next) {
        if (w->marks[id] != w->stamp && nodes[id].op != FE_OP_PLACEHOLDER && nodes[id].op != FE_OP_GET_ATTR)
            return true;
    }
    return false;
}

static bool depends_on_marked(const fe_rewriter *w, uint32_t id, uint32_t stamp)
{
    const fe_node *n = &w->g->nodes[id];

    for (uint32_t e = n->edge; e < n->edge + n->edge_count; e++) {
        if (w->marks[w->g->edges[e].def] == stamp)
            return true;
    }
    return false;
}

static bool names_marked(const fe_rewriter *w, fe_value v, uint32_t stamp)
{
    if (v.kind == FE_NODE)
        return w->marks[v.as.node] == stamp;
    for (uint32_t i = 0; fe_kind_is_seq(v.kind) && i < v.as.seq->len; i++) {
        if (names_marked(w, v.as.seq->items[i], stamp))
            return true;
    }
    return false;
}

/* What depends on results and stands from their first use to `end`, of what is outside of the match, is to move. */
static int find_moved(fe_rewriter *w, const fe_site *s, const outline *o, uint32_t end, fe_refusal *refusal)
{
    const fe_graph *g = w->g;
    uint32_t inside = w->stamp, stamp = ++w->stamp;

    for (uint32_t i = 0; i < s->returned_count; i++)
        w->marks[s->returned[i]] = stamp;
    for (uint32_t id = o->outside_use; id != g->nodes[end].next; id = g->nodes[id].next) {
        if (w->marks[id] == inside || w->marks[id] == stamp || !depends_on_marked(w, id, stamp))
            continue;
        w->marks[id] = stamp;
        if (fe_grow(g->allocator, &w->moved, &w->moved_capacity, (size_t)w->moved_count + 1, sizeof *w->moved, w->err) <
            0)
            return -1;
        w->moved[w->moved_count++] = id;
    }
    for (uint32_t i = 0; i < s->input_count; i++) {
        if (names_marked(w, s->inputs[i], stamp))
            *refusal = FE_REFUSAL_CYCLE;
    }
    return 0;
}

/* The default policy's place. */
static int find_safe_place(fe_rewriter *w, const fe_site *s, const outline *o, fe_point *at, fe_refusal *refusal)
{
    const fe_graph *g = w->g;
    uint64_t first = position(g, o->first), last = position(g, o->last);
    uint64_t use = position(g, o->use), outside = position(g, o->outside_use), input = position(g, o->input);
    bool used_early = o->outside_use != FE_ROOT && outside < last;

    if (find_writers(w) < 0)
        return -1;
    if (o->use != FE_ROOT && input < use && !o->writes && !writes_between(w, first, use > last ? use : last)) {
        *at = (fe_point){.anchor = o->use};
        return 0;
    }
    if (o->writes ? used_early || is_interrupted(w, o) : writes_between(w, first, last)) {
        *refusal = FE_REFUSAL_WRITES;
        return 0;
    }
    *at = (fe_point){.anchor = o->last, .after = true};
    if (!used_early)
        return 0;
    *at = (fe_point){.anchor = o->outside_use};
    if (input < outside)
        return 0;
    *at = (fe_point){.anchor = o->input, .after = true};
    return find_moved(w, s, o, o->input, refusal);
}

static int find_place(fe_rewriter *w, const fe_site *s, fe_point *at, fe_refusal *refusal)
{
    outline o = outline_of(w, s);

    w->moved_count = 0;
    *refusal = FE_REFUSAL_NONE;
    if (!w->fx_policy)
        return find_safe_place(w, s, &o, at, refusal);
    *at = o.use != FE_ROOT ? (fe_point){.anchor = o.use} : (fe_point){.anchor = o.last_result, .after = true};
    return 0;
}

/* ---- the copy ---- */

static void update_inputs(fe_rewriter *w, const fe_site *s)
{
    for (uint32_t i = 0; i < s->input_count; i++) {
        if (s->inputs[i].kind == FE_NODE) /* in lists, replacing has put the new nodes in place */
            s->inputs[i].as.node = fe_rewrite_current(w, s->inputs[i].as.node);
    }
}

static int copy_node(fe_rewriter *w, uint32_t id)
{
    const fe_graph *from = w->r->graph;
    const fe_detail *d = &from->details[id];
    const fe_value_map map = {.objects = w->r->objects, .values = w->stands};
    uint32_t type = d->type == FE_NONE_ID ? FE_NONE_ID : w->r->objects[d->type], made;
    fe_node_parts parts = {
        (fe_op)from->nodes[id].op, w->r->targets[from->nodes[id].target], type, w->r->names[id], NULL, NULL};

    if (fe_seq_copy(w->g, &map, d->args, &parts.args, w->err) < 0)
        return -1;
    if (fe_seq_copy(w->g, &map, d->kwargs, &parts.kwargs, w->err) < 0 ||
        fe_node_create(w->g, &parts, &made, w->err) < 0) {
        fe_seq_free(w->g, parts.args);
        fe_seq_free(w->g, parts.kwargs);
        return -1;
    }
    w->stands[id] = (fe_value){.kind = FE_NODE, .as.node = made};
    w->made[w->made_count++] = made;
    return 0;
}

void fe_rewrite_undo(fe_rewriter *w)
{
    while (w->made_count) {
        uint32_t id = w->made[--w->made_count];
        if (fe_node_is_listed(w->g, id) && !w->g->nodes[id].user_count)
            fe_node_erase(w->g, id);
    }
}

/* The nodes that stand for what the replacement returns; another value can't be used in the place of a node. */
static int add_results(fe_rewriter *w, fe_value v)
{
    if (v.kind == FE_TUPLE || v.kind == FE_LIST) {
        for (uint32_t i = 0; i < v.as.seq->len; i++) {
            if (add_results(w, v.as.seq->items[i]) < 0)
                return -1;
        }
        return 0;
    }
    if (v.kind != FE_NODE || w->stands[v.as.node].kind != FE_NODE)
        return fe_fail(w->err, FE_BAD_VALUE, 0, "the replacement returns something that is no node");
    if (fe_grow(w->g->allocator, &w->results, &w->result_capacity, (size_t)w->result_count + 1, sizeof *w->results,
                w->err) < 0)
        return -1;
    w->results[w->result_count++] = w->stands[v.as.node].as.node;
    return 0;
}

static int copy_nodes(fe_rewriter *w, const fe_site *s)
{
    const fe_graph *from = w->r->graph;
    uint32_t input = 0;

    w->result_count = 0;
    for (uint32_t id = from->nodes[FE_ROOT].next; id != FE_ROOT; id = from->nodes[id].next) {
        const fe_seq *args = from->details[id].args;
        if (from->nodes[id].op == FE_OP_PLACEHOLDER)
            w->stands[id] = s->inputs[input++];
        else if (from->nodes[id].op != FE_OP_OUTPUT ? copy_node(w, id) < 0 : args && add_results(w, args->items[0]) < 0)
            return -1;
    }
    if (w->result_count != s->returned_count)
        return fe_fail(w->err, FE_BAD_VALUE, 0, "the replacement returns %u results, and the pattern %u",
                       w->result_count, s->returned_count);
    return 0;
}

static int check_inputs(const fe_rewriter *w, const fe_site *s)
{
    const fe_graph *from = w->r->graph;
    uint32_t count = 0;

    for (uint32_t id = from->nodes[FE_ROOT].next; id != FE_ROOT; id = from->nodes[id].next) {
        if (from->nodes[id].op != FE_OP_PLACEHOLDER)
            continue;
        if (count < s->input_count && s->inputs[count].kind == FE_NULL && from->nodes[id].user_count)
            return fe_fail(w->err, FE_BAD_VALUE, 0, "the replacement uses its input '%s', which the pattern doesn't",
                           from->details[id].name->data);
        count++;
    }
    if (count != s->input_count)
        return fe_fail(w->err, FE_BAD_VALUE, 0, "the replacement has %u inputs, and the pattern %u", count,
                       s->input_count);
    return 0;
}

int fe_rewrite_make(fe_rewriter *w, const fe_site *s, fe_refusal *refusal)
{
    fe_graph *g = w->g;
    fe_point before = g->insert, at;

    w->made_count = 0;
    if (check_inputs(w, s) < 0 || reserve_nodes(w) < 0)
        return -1;
    update_inputs(w, s);
    if (find_place(w, s, &at, refusal) < 0)
        return -1;
    if (*refusal != FE_REFUSAL_NONE)
        return 0;
    /* Nodes that go in behind a node, one after the other, would be the wrong way round. */
    g->insert = at.after ? (fe_point){.anchor = g->nodes[at.anchor].next} : at;
    int result = copy_nodes(w, s);
    fe_point behind = g->insert;
    g->insert = before;
    if (result < 0) {
        fe_rewrite_undo(w);
        return -1;
    }
    for (uint32_t i = 0; i < w->moved_count; i++)
        fe_node_place(g, w->moved[i], behind);
    return 0;
}

/* ---- the end of the match ---- */

/* Whether each node of the match can be erased: all that uses it, after what is used instead of results, goes too. */
static int check_users(fe_rewriter *w, const fe_site *s)
{
    const fe_graph *g = w->g;
    uint32_t stamp = ++w->stamp;

    for (uint32_t i = 0; i < s->matched_count; i++)
        w->marks[s->matched[i]] = stamp;
    for (uint32_t i = 0; i < s->returned_count; i++)
        w->marks[s->returned[i]] = stamp + 1;
    w->stamp++;
    for (uint32_t i = 0; i < s->matched_count; i++) {
        uint32_t id = s->matched[i];
        if (w->marks[id] == stamp + 1)
            continue;
        for (uint32_t e = g->details[id].first_user; e != FE_NONE_ID; e = g->edges[e].next) {
            if (w->marks[g->edges[e].user] < stamp)
                return fe_fail(w->err, FE_BAD_STATE, id, "'%s' is inside of a match and used outside of it",
                               g->details[id].name->data);
        }
    }
    return 0;
}

/* Users go before their operands; a pattern in order tells them so, and any other takes several rounds. */
static void erase_matched(fe_rewriter *w, const fe_site *s)
{
    fe_graph *g = w->g;

    for (bool any = true; any;) {
        any = false;
        for (uint32_t i = 0; i < s->matched_count; i++) {
            if (g->nodes[s->matched[i]].user_count || !fe_node_is_listed(g, s->matched[i]))
                continue;
            fe_node_erase(g, s->matched[i]);
            any = true;
        }
    }
}

int fe_rewrite_finish(fe_rewriter *w, const fe_site *s)
{
    fe_graph *g = w->g;

    if (reserve_nodes(w) < 0 || check_users(w, s) < 0)
        return -1;
    for (uint32_t i = 0; i < s->returned_count; i++) {
        if (fe_node_reserve_replacement(g, s->returned[i], w->err) < 0)
            return -1;
    }
    for (uint32_t i = 0; i < s->returned_count; i++) {
        if (fe_node_replace_all_uses(g, s->returned[i], w->results[i], w->err) < 0)
            assert(!"the memory was reserved");
        w->instead[s->returned[i]] = w->results[i];
    }
    bool writes = false;
    for (uint32_t i = 0; i < s->matched_count; i++)
        writes |= may_write(w, s->matched[i]);
    for (uint32_t i = 0; i < w->made_count; i++)
        w->trusted[w->made[i]] = !writes;
    w->writers_known &= !writes;
    for (uint32_t i = 0; w->writers_known && i < w->made_count; i++)
        w->writers_known = !may_write(w, w->made[i]);
    erase_matched(w, s);
    return 0;
}
