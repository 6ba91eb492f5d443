/* graph.c - the list of nodes: making, placing, moving, erasing and walking.
 *
 * The list is doubly linked and closed by the root. Each listed node has a position that grows along the list, so that
 * "is a before b" is one comparison. Positions have gaps; when an insertion finds none, the smallest surrounding range
 * of labels that is sparse enough is spread out evenly (Bender et al., Two Simplified Algorithms for Maintaining Order
 * in a List, 2002): O(log n) amortised, wherever nodes go in.
 */
#include "ir.h"

#define GAP (UINT64_C(1) << 32)       /* between nodes appended one after another */
#define POS_LIMIT (UINT64_C(1) << 63) /* all positions lie below; GAP * the most nodes there can be */

static int reserve(fe_graph *g, size_t records, fe_error *err)
{
    if (fe_grow(g->allocator, &g->nodes, &g->node_capacity, records, sizeof *g->nodes, err) < 0)
        return -1;
    return g->bare ? 0 : fe_grow(g->allocator, &g->details, &g->detail_capacity, records, sizeof *g->details, err);
}

static int add_record(fe_graph *g, fe_op op, uint32_t target, uint32_t *out, fe_error *err)
{
    uint32_t id = g->node_count;

    if (reserve(g, (size_t)id + 1, err) < 0)
        return -1;
    g->nodes[id] = (fe_node){.op = (uint8_t)op, .target = target, .prev = id, .next = id};
    g->node_count++;
    *out = id;
    if (g->bare)
        return 0;
    g->details[id] =
        (fe_detail){.type = FE_NONE_ID, .first_user = FE_NONE_ID, .last_user = FE_NONE_ID, .target_next = FE_NONE_ID};
    return 0;
}

fe_graph *fe_graph_new(const fe_allocator *a, const fe_reserved *reserved)
{
    fe_error err;
    uint32_t root;
    fe_graph *g = fe_resize(a, NULL, sizeof *g);

    if (!g)
        return NULL;
    *g = (fe_graph){.allocator = a, .reserved = reserved};
    fe_arena_init(&g->arena, a);
    memset(g->edge_free, 0xff, sizeof g->edge_free);
    if (add_record(g, FE_OP_ROOT, FE_NONE_ID, &root, &err) < 0) {
        fe_graph_free(g);
        return NULL;
    }
    return g;
}

void fe_graph_free(fe_graph *g)
{
    if (!g)
        return;
    fe_resize(g->allocator, g->nodes, 0);
    fe_resize(g->allocator, g->details, 0);
    fe_resize(g->allocator, g->edges, 0);
    fe_resize(g->allocator, g->targets, 0);
    fe_resize(g->allocator, g->target_slots, 0);
    fe_resize(g->allocator, g->object_refs, 0);
    fe_resize(g->allocator, g->dead_objects, 0);
    fe_resize(g->allocator, g->spare_objects, 0);
    fe_resize(g->allocator, g->strings.slots, 0);
    fe_resize(g->allocator, g->bases, 0);
    fe_resize(g->allocator, g->scratch, 0);
    fe_signature_free(g->signature);
    fe_arena_clear(&g->arena);
    fe_resize(g->allocator, g, 0);
}

int fe_graph_reserve(fe_graph *g, size_t nodes, fe_error *err)
{
    return reserve(g, g->node_count + nodes, err);
}

static void link_to_target(fe_graph *g, uint32_t id)
{
    fe_target *t = &g->targets[g->nodes[id].target];

    g->details[id].target_next = FE_NONE_ID;
    if (t->first == FE_NONE_ID)
        t->first = id;
    else
        g->details[t->last].target_next = id;
    t->last = id;
}

/* Take all erased nodes out of a target's list. */
static void prune_target(fe_graph *g, uint32_t target)
{
    fe_target *t = &g->targets[target];
    uint32_t id = t->first, next;

    t->first = t->last = FE_NONE_ID;
    for (; id != FE_NONE_ID; id = next) {
        next = g->details[id].target_next;
        if (!(g->nodes[id].flags & FE_NODE_ERASED))
            link_to_target(g, id);
    }
}

/* Make the lists of all targets anew: cheaper than to look for each node that leaves one. */
static void relink_targets(fe_graph *g)
{
    for (uint32_t t = 0; t < g->target_count; t++)
        g->targets[t].first = g->targets[t].last = FE_NONE_ID;
    for (uint32_t id = 1; id < g->node_count; id++) {
        if (fe_node_is_listed(g, id))
            link_to_target(g, id);
    }
    g->targets_moved = false;
}

uint32_t fe_target_nodes(fe_graph *g, uint32_t target)
{
    if (g->targets_moved)
        relink_targets(g);
    else
        prune_target(g, target);
    return g->targets[target].first;
}

/* A node takes a name: as the owner, unless another node has it (then lint will tell). */
static void take_name(fe_graph *g, uint32_t id, fe_string *name)
{
    g->details[id].name = name;
    name->used = true;
    if (fe_name_owner(g, name) == FE_NONE_ID)
        name->owner = id;
    else
        g->shared_names++;
}

/* A node gives its name up; another node that bears it too becomes the owner. */
static void leave_name(fe_graph *g, uint32_t id)
{
    fe_string *name = g->details[id].name;

    if (!name)
        return;
    if (name->owner != id) {
        g->shared_names--;
        return;
    }
    name->owner = FE_NONE_ID;
    for (uint32_t i = g->nodes[FE_ROOT].next; g->shared_names && i != FE_ROOT; i = g->nodes[i].next) {
        if (i != id && g->details[i].name == name) {
            name->owner = i;
            g->shared_names--;
            return;
        }
    }
}

int fe_node_new(fe_graph *g, fe_op op, uint32_t target, fe_string *name, uint32_t type, uint32_t *out, fe_error *err)
{
    if (add_record(g, op, target, out, err) < 0)
        return -1;
    if (g->bare)
        return 0;
    g->details[*out].type = type;
    if (type != FE_NONE_ID)
        fe_object_ref(g, type);
    if (name)
        take_name(g, *out, name);
    return 0;
}

void fe_node_discard(fe_graph *g, uint32_t id)
{
    assert(id + 1 == g->node_count && g->nodes[id].pos == 0 && g->nodes[id].edge_count == 0);
    if (g->details[id].type != FE_NONE_ID)
        fe_object_unref(g, g->details[id].type);
    leave_name(g, id);
    g->node_count--;
}

/* The count nodes around pivot whose positions start with the same bits, for the smallest range of labels that they
 * fill sparsely enough; spread them over that range. Density may be at most (2/3)^bits, so the gaps grow with it. */
static void spread(fe_graph *g, uint32_t pivot)
{
    fe_node *n = g->nodes;
    uint32_t first = pivot, last = pivot;
    uint64_t count = 1, low = 0, step = 0;
    double allowed = 1;

    for (unsigned bits = 1; bits < 64; bits++) {
        uint64_t range = UINT64_C(1) << bits;
        allowed *= 4.0 / 3;
        low = n[pivot].pos & ~(range - 1);
        for (; n[first].prev != FE_ROOT && n[n[first].prev].pos >= low; count++)
            first = n[first].prev;
        for (; n[last].next != FE_ROOT && n[n[last].next].pos - low < range; count++)
            last = n[last].next;
        step = range / count;
        if ((double)count <= allowed && step >= 4)
            break;
    }
    for (uint64_t k = 0, id = first; k < count; k++, id = n[id].next)
        n[id].pos = low + step * k + step / 2;
}

/* A position between two neighbours, one of which may be the root. */
static uint64_t position_between(fe_graph *g, uint32_t prev, uint32_t next)
{
    fe_node *n = g->nodes;

    if (next == FE_ROOT && n[prev].pos < POS_LIMIT - GAP)
        return n[prev].pos + GAP;
    uint64_t high = next == FE_ROOT ? POS_LIMIT : n[next].pos;
    if (high - n[prev].pos < 2) {
        spread(g, prev == FE_ROOT ? next : prev);
        high = next == FE_ROOT ? POS_LIMIT : n[next].pos;
    }
    return n[prev].pos + (high - n[prev].pos) / 2;
}

void fe_node_place(fe_graph *g, uint32_t id, fe_point at)
{
    fe_node *n = g->nodes;
    bool listed = fe_node_is_listed(g, id);

    if (at.anchor == id)
        return;
    if (listed) {
        n[n[id].prev].next = n[id].next;
        n[n[id].next].prev = n[id].prev;
    } else {
        g->live++;
        g->targets[n[id].target].count++;
        if (!g->bare)
            link_to_target(g, id);
    }
    uint32_t prev = at.after ? at.anchor : n[at.anchor].prev;
    uint32_t next = at.after ? n[at.anchor].next : at.anchor;
    n[id].pos = position_between(g, prev, next);
    n[id].prev = prev;
    n[id].next = next;
    n[prev].next = id;
    n[next].prev = id;
    g->version++;
}

int fe_node_create(fe_graph *g, const fe_node_parts *parts, uint32_t *out, fe_error *err)
{
    fe_new_name name;
    uint32_t id;

    if (!fe_node_is_listed(g, g->insert.anchor) && g->insert.anchor != FE_ROOT)
        return fe_fail(err, FE_BAD_STATE, g->insert.anchor, "the insert point is at '%s', which is erased",
                       g->details[g->insert.anchor].name->data);
    if (fe_name_create(g, parts->name, &name, err) < 0)
        return -1;
    if (fe_node_new(g, parts->op, parts->target, NULL, parts->type, &id, err) < 0)
        return -1;
    if (fe_node_set_arguments(g, id, parts->args, parts->kwargs, err) < 0) {
        fe_node_discard(g, id);
        return -1;
    }
    fe_name_take(g, name);
    fe_node_set_name(g, id, name.name);
    fe_node_place(g, id, g->insert);
    *out = id;
    return 0;
}

/* Walk a tree; the nodes in it become None. */
static void forget_nodes(fe_seq *s)
{
    for (uint32_t i = 0; s && i < s->len; i++) {
        if (s->items[i].kind == FE_NODE)
            s->items[i].kind = FE_NONE;
        else if (fe_kind_is_seq(s->items[i].kind))
            forget_nodes(s->items[i].as.seq);
    }
}

/* How many placeholders stand before a node. */
static uint32_t placeholders_before(const fe_graph *g, uint32_t id)
{
    uint32_t count = 0;

    for (uint32_t at = g->nodes[id].prev; at != FE_ROOT; at = g->nodes[at].prev)
        count += g->nodes[at].op == FE_OP_PLACEHOLDER;
    return count;
}

/* An input that no spec names is a constant's, found by its place; where there is not one spec for each placeholder, places
 * tell nothing, as of a placeholder that was just made. */
static void forget_constant(fe_graph *g, uint32_t id)
{
    uint32_t position = placeholders_before(g, id);

    if (fe_signature_is_constant(g->signature, position) &&
        placeholders_before(g, FE_ROOT) + 1 == g->signature->input_count)
        fe_signature_forget_constant(g->signature, position);
}

void fe_node_erase(fe_graph *g, uint32_t id)
{
    fe_node *n = &g->nodes[id];

    assert(n->user_count == 0 && fe_node_is_listed(g, id));
    g->nodes[n->prev].next = n->next;
    g->nodes[n->next].prev = n->prev;
    fe_node_drop_operands(g, id);
    if (g->shared_names)
        leave_name(g, id);
    if (g->signature && g->signature->input_count && n->op == FE_OP_PLACEHOLDER &&
        !fe_signature_forget_input(g->signature, id))
        forget_constant(g, id);
    g->targets[n->target].count--;
    n->flags |= FE_NODE_ERASED;
    g->live--;
    g->version++;
}

void fe_node_strip(fe_graph *g, uint32_t id)
{
    fe_detail *d = &g->details[id];

    assert(g->nodes[id].flags & FE_NODE_ERASED);
    fe_seq_free(g, d->args);
    fe_seq_free(g, d->kwargs);
    d->args = d->kwargs = NULL;
    fe_meta_clear(g, id);
    fe_node_set_type(g, id, FE_NONE_ID);
}

void fe_node_forget(fe_graph *g, uint32_t id)
{
    if (!(g->nodes[id].flags & FE_NODE_ERASED))
        return;
    forget_nodes(g->details[id].args);
    forget_nodes(g->details[id].kwargs);
}

void fe_node_set_name(fe_graph *g, uint32_t id, fe_string *name)
{
    assert(!(g->nodes[id].flags & FE_NODE_ERASED));
    if (g->signature && g->nodes[id].op == FE_OP_PLACEHOLDER && g->details[id].name)
        fe_signature_rename_input(g->signature, g->details[id].name, name);
    leave_name(g, id);
    take_name(g, id, name);
    g->version++;
}

void fe_node_set_type(fe_graph *g, uint32_t id, uint32_t type)
{
    uint32_t old = g->details[id].type;

    if (type != FE_NONE_ID)
        fe_object_ref(g, type);
    if (old != FE_NONE_ID)
        fe_object_unref(g, old);
    g->details[id].type = type;
}

void fe_node_set_target(fe_graph *g, uint32_t id, uint32_t target)
{
    if (fe_node_is_listed(g, id)) {
        g->targets[g->nodes[id].target].count--;
        g->targets[target].count++;
        g->targets_moved = true;
    }
    g->nodes[id].target = target;
    g->nodes[id].op = g->targets[target].op;
    g->version++;
}

uint32_t fe_node_next(const fe_graph *g, uint32_t id)
{
    do
        id = g->nodes[id].next;
    while (g->nodes[id].flags & FE_NODE_ERASED);
    return id;
}

uint32_t fe_node_prev(const fe_graph *g, uint32_t id)
{
    do
        id = g->nodes[id].prev;
    while (g->nodes[id].flags & FE_NODE_ERASED);
    return id;
}
