/* use.c - operands and users, kept in step with arguments.
 *
 * The edges of one user lie side by side in `edges`, in order of first use; each is also a link of its operand's list
 * of users. Blocks of edges come in size classes: exact up to 16, powers of two above. A block can always give up its
 * tail as a smaller block, so taking operands away needs no memory.
 *
 * Every function here first gets all the memory it may need, then changes the graph.
 */
#include "ir.h"

#define EXACT 16u

/* ---- blocks of edges ---- */

static unsigned block_class(uint32_t count, uint32_t *room)
{
    unsigned class = EXACT;

    if (count <= EXACT) {
        *room = count;
        return count - 1;
    }
    for (*room = 2 * EXACT; *room < count; *room *= 2)
        class ++;
    return class;
}

static void give_block(fe_graph *g, uint32_t first, uint32_t room)
{
    uint32_t same;
    unsigned class = block_class(room, &same);

    assert(same == room);
    g->edges[first].next = g->edge_free[class];
    g->edge_free[class] = first;
}

static int take_block(fe_graph *g, uint32_t count, uint32_t *first, fe_error *err)
{
    uint32_t room;

    if (!count) {
        *first = 0;
        return 0;
    }
    if (count > UINT32_C(1) << 30)
        return fe_fail(err, FE_TOO_LARGE, 0, "a node with %u operands is more than a graph can hold", count);
    unsigned class = block_class(count, &room);
    if (g->edge_free[class] != FE_NONE_ID) {
        *first = g->edge_free[class];
        g->edge_free[class] = g->edges[*first].next;
        return 0;
    }
    if (fe_grow(g->allocator, &g->edges, &g->edge_capacity, (size_t)g->edge_count + room, sizeof *g->edges, err) < 0)
        return -1;
    *first = g->edge_count;
    g->edge_count += room;
    return 0;
}

static void drop_block(fe_graph *g, uint32_t first, uint32_t count)
{
    uint32_t room;

    if (count) {
        block_class(count, &room);
        give_block(g, first, room);
    }
}

/* A block of `to` edges in the place of one of `from`, more than that; what the edges hold is lost. A free one of the right size is
 * taken before the old one is cut, for what is cut is never joined again. */
static uint32_t shrink_block(fe_graph *g, uint32_t first, uint32_t from, uint32_t to)
{
    uint32_t room, left;

    if (!to) {
        drop_block(g, first, from);
        return 0;
    }
    unsigned class = block_class(to, &left);
    block_class(from, &room);
    if (room == left)
        return first;
    if (g->edge_free[class] != FE_NONE_ID) {
        uint32_t other = g->edge_free[class];
        g->edge_free[class] = g->edges[other].next;
        give_block(g, first, room);
        return other;
    }
    while (room > left) { /* halving a power of two, or in one step below */
        uint32_t keep = room > EXACT && room / 2 >= left ? room / 2 : left;
        give_block(g, first + keep, room - keep);
        room = keep;
    }
    return first;
}

/* ---- links in lists of users ---- */

static void link_edge(fe_graph *g, uint32_t e)
{
    uint32_t id = g->edges[e].def;

    g->nodes[id].user_count++;
    if (g->bare)
        return;
    fe_detail *def = &g->details[id];
    g->edges[e].next = FE_NONE_ID;
    g->edges[e].prev = def->last_user;
    if (def->last_user == FE_NONE_ID)
        def->first_user = e;
    else
        g->edges[def->last_user].next = e;
    def->last_user = e;
}

static void unlink_edge(fe_graph *g, uint32_t e)
{
    fe_edge *edge = &g->edges[e];

    g->nodes[edge->def].user_count--;
    if (g->bare)
        return;
    fe_detail *def = &g->details[edge->def];
    if (edge->prev == FE_NONE_ID)
        def->first_user = edge->next;
    else
        g->edges[edge->prev].next = edge->next;
    if (edge->next == FE_NONE_ID)
        def->last_user = edge->prev;
    else
        g->edges[edge->next].prev = edge->prev;
}

void fe_edge_move_last(fe_graph *g, uint32_t edge)
{
    unlink_edge(g, edge);
    link_edge(g, edge);
}

/* One of the two lists that would tell can be long: an output has many operands, a shared weight many users. */
uint32_t fe_edge_find(const fe_graph *g, uint32_t def, uint32_t user)
{
    const fe_node *n = &g->nodes[user];

    if (n->edge_count > g->nodes[def].user_count) {
        uint32_t e = g->details[def].first_user;
        while (e != FE_NONE_ID && g->edges[e].user != user)
            e = g->edges[e].next;
        return e;
    }
    for (uint32_t e = n->edge; e < n->edge + n->edge_count; e++) {
        if (g->edges[e].def == def)
            return e;
    }
    return FE_NONE_ID;
}

static void unlink_operands(fe_graph *g, uint32_t id)
{
    for (uint32_t i = 0; i < g->nodes[id].edge_count; i++)
        unlink_edge(g, g->nodes[id].edge + i);
}

void fe_node_drop_operands(fe_graph *g, uint32_t id)
{
    unlink_operands(g, id);
    drop_block(g, g->nodes[id].edge, g->nodes[id].edge_count);
    g->nodes[id].edge_count = 0;
}

/* ---- the distinct nodes of an argument tree ---- */

static uint32_t node_count(fe_value v)
{
    return v.kind == FE_NODE ? 1 : fe_kind_is_seq(v.kind) ? fe_seq_node_count(v.as.seq) : 0;
}

uint32_t fe_seq_node_count(const fe_seq *s)
{
    uint32_t count = 0;

    for (uint32_t i = 0; s && i < s->len; i++)
        count += node_count(s->items[i]);
    return count;
}

/* Lies in the graph's scratch memory: defs, their counts, and, for more than a few, a hash table of indexes. */
typedef struct {
    uint32_t *defs, *counts, *slots;
    uint32_t len, mask;
} operand_set;

#define SMALL_SET 8u

static uint32_t set_slots(uint32_t nodes)
{
    uint32_t size = 4 * SMALL_SET;

    if (nodes <= SMALL_SET)
        return 0;
    while (size < 2 * nodes)
        size *= 2;
    return size;
}

static int reserve_set(fe_graph *g, uint32_t nodes, fe_error *err)
{
    if (nodes > UINT32_C(1) << 29)
        return fe_fail(err, FE_TOO_LARGE, 0, "arguments that name %u nodes are more than a graph can hold", nodes);
    return fe_grow(g->allocator, &g->scratch, &g->scratch_capacity, 2 * (size_t)nodes + set_slots(nodes) + 1,
                   sizeof *g->scratch, err);
}

static operand_set empty_set(fe_graph *g, uint32_t nodes)
{
    operand_set s = {.defs = g->scratch, .counts = g->scratch + nodes, .slots = g->scratch + 2 * (size_t)nodes};
    uint32_t slots = set_slots(nodes);

    if (slots) {
        memset(s.slots, 0xff, slots * sizeof *s.slots);
        s.mask = slots - 1;
    }
    return s;
}

static void set_add(operand_set *s, uint32_t def)
{
    uint32_t i = 0;

    if (!s->mask) {
        while (i < s->len && s->defs[i] != def)
            i++;
    } else {
        uint32_t at = (uint32_t)fe_mix(def) & s->mask;
        while (s->slots[at] != FE_NONE_ID && s->defs[s->slots[at]] != def)
            at = (at + 1) & s->mask;
        if (s->slots[at] == FE_NONE_ID)
            s->slots[at] = s->len;
        i = s->slots[at];
    }
    if (i == s->len) {
        s->defs[s->len] = def;
        s->counts[s->len++] = 0;
    }
    s->counts[i]++;
}

static void collect(operand_set *s, const fe_seq *tree);

static void collect_value(operand_set *s, fe_value v)
{
    if (v.kind == FE_NODE)
        set_add(s, v.as.node);
    else if (fe_kind_is_seq(v.kind))
        collect(s, v.as.seq);
}

static void collect(operand_set *s, const fe_seq *tree)
{
    for (uint32_t i = 0; tree && i < tree->len; i++)
        collect_value(s, tree->items[i]);
}

/* ---- giving a node operands ---- */

static void link_operands(fe_graph *g, uint32_t id, uint32_t block, const operand_set *s)
{
    g->nodes[id].edge = block;
    g->nodes[id].edge_count = s->len;
    for (uint32_t i = 0; i < s->len; i++) {
        g->edges[block + i] = (fe_edge){.def = s->defs[i], .user = id, .count = s->counts[i]};
        link_edge(g, block + i);
    }
}

static int refuse_erased(const fe_graph *g, const operand_set *s, fe_error *err)
{
    for (uint32_t i = 0; i < s->len; i++) {
        uint32_t def = s->defs[i];
        if (g->nodes[def].flags & FE_NODE_ERASED)
            return fe_fail(err, FE_BAD_STATE, def, "argument '%s' is an erased node", g->details[def].name->data);
    }
    return 0;
}

static int collect_operands(fe_graph *g, const fe_seq *args, const fe_seq *kwargs, operand_set *out, fe_error *err)
{
    uint32_t nodes = fe_seq_node_count(args) + fe_seq_node_count(kwargs);

    if (reserve_set(g, nodes, err) < 0)
        return -1;
    *out = empty_set(g, nodes);
    collect(out, args);
    collect(out, kwargs);
    return refuse_erased(g, out, err);
}

void fe_signature_follow(fe_graph *g, uint32_t id)
{
    const fe_seq *args = g->details[id].args;
    const fe_value *returned = args && args->len ? &args->items[0] : NULL;

    if (!g->signature || g->nodes[id].op != FE_OP_OUTPUT || !returned)
        return;
    if (returned->kind == FE_TUPLE || returned->kind == FE_LIST)
        fe_signature_set_outputs(g->signature, returned->as.seq->items, returned->as.seq->len);
    else
        fe_signature_set_outputs(g->signature, returned, 1);
}

int fe_node_set_arguments(fe_graph *g, uint32_t id, fe_seq *args, fe_seq *kwargs, fe_error *err)
{
    operand_set operands;
    uint32_t block;

    if (collect_operands(g, args, kwargs, &operands, err) < 0 || take_block(g, operands.len, &block, err) < 0)
        return -1;
    fe_node_drop_operands(g, id);
    link_operands(g, id, block, &operands);
    fe_detail *d = &g->details[id];
    if (d->args != args)
        fe_seq_free(g, d->args);
    if (d->kwargs != kwargs)
        fe_seq_free(g, d->kwargs);
    d->args = args;
    d->kwargs = kwargs;
    if (fe_node_is_listed(g, id))
        fe_signature_follow(g, id);
    g->version++;
    return 0;
}

int fe_node_set_operands(fe_graph *g, uint32_t id, const uint32_t *defs, uint32_t count, fe_error *err)
{
    uint32_t block;

    if (take_block(g, count, &block, err) < 0)
        return -1;
    fe_node_drop_operands(g, id);
    g->nodes[id].edge = block;
    g->nodes[id].edge_count = count;
    for (uint32_t i = 0; i < count; i++) {
        g->edges[block + i] = (fe_edge){.def = defs[i], .user = id, .count = 1};
        link_edge(g, block + i);
    }
    return 0;
}

/* Move a node's edges to a larger block; its operands' lists keep their order. */
static void move_edges(fe_graph *g, uint32_t id, uint32_t block)
{
    fe_node *n = &g->nodes[id];

    for (uint32_t i = 0; i < n->edge_count; i++) {
        fe_edge *e = &g->edges[block + i];
        *e = g->edges[n->edge + i];
        fe_detail *def = &g->details[e->def];
        if (e->prev == FE_NONE_ID)
            def->first_user = block + i;
        else
            g->edges[e->prev].next = block + i;
        if (e->next == FE_NONE_ID)
            def->last_user = block + i;
        else
            g->edges[e->next].prev = block + i;
    }
    drop_block(g, n->edge, n->edge_count);
    n->edge = block;
}

static fe_seq *with_item(fe_graph *g, const fe_seq *old, uint32_t index, fe_value value, fe_error *err)
{
    uint32_t len = old ? old->len : 0;
    fe_seq *s = fe_seq_new(g, (size_t)len + 1, FE_NONE_ID, err);

    if (!s)
        return NULL;
    for (uint32_t i = 0; i < len; i++)
        s->items[i < index ? i : i + 1] = old->items[i];
    s->items[index] = value;
    return s;
}

/* Free a sequence whose items have gone to another one. */
static void free_shell(fe_graph *g, fe_seq *s)
{
    for (uint32_t i = 0; s && i < s->len; i++)
        s->items[i].kind = FE_NULL;
    fe_seq_free(g, s);
}

int fe_node_insert_argument(fe_graph *g, uint32_t id, uint32_t index, fe_value value, fe_error *err)
{
    uint32_t block, old_count = g->nodes[id].edge_count, first = g->nodes[id].edge;

    /* The operands it has, each counted once, then those that come. */
    if (reserve_set(g, old_count + node_count(value), err) < 0)
        return -1;
    operand_set operands = empty_set(g, old_count + node_count(value));
    for (uint32_t i = 0; i < old_count; i++)
        set_add(&operands, g->edges[first + i].def);
    collect_value(&operands, value);
    if (refuse_erased(g, &operands, err) < 0)
        return -1;
    fe_seq *args = with_item(g, g->details[id].args, index, value, err);
    if (!args)
        return -1;
    if (operands.len > old_count) {
        if (take_block(g, operands.len, &block, err) < 0) {
            free_shell(g, args);
            return -1;
        }
        move_edges(g, id, block);
    }
    for (uint32_t i = 0; i < operands.len; i++) {
        uint32_t e = g->nodes[id].edge + i;
        if (i < old_count) {
            g->edges[e].count += operands.counts[i] - 1;
            continue;
        }
        g->edges[e] = (fe_edge){.def = operands.defs[i], .user = id, .count = operands.counts[i]};
        link_edge(g, e);
    }
    g->nodes[id].edge_count = operands.len;
    free_shell(g, g->details[id].args);
    g->details[id].args = args;
    g->version++;
    return 0;
}

/* ---- replacing ---- */

static void replace_in_tree(fe_seq *s, uint32_t old, uint32_t new)
{
    for (uint32_t i = 0; s && i < s->len; i++) {
        if (s->items[i].kind == FE_NODE && s->items[i].as.node == old)
            s->items[i].as.node = new;
        else if (fe_kind_is_seq(s->items[i].kind))
            replace_in_tree(s->items[i].as.seq, old, new);
    }
}

static uint32_t argument_nodes(const fe_graph *g, uint32_t id)
{
    return fe_seq_node_count(g->details[id].args) + fe_seq_node_count(g->details[id].kwargs);
}

static int reserve_replacement(fe_graph *g, uint32_t id, fe_error *err)
{
    return reserve_set(g, argument_nodes(g, id), err);
}

/* Memory is reserved. torch.fx takes the user out of the lists of all its operands and adds it again in the order of
 * its arguments; so do we, and users come out in the same order. */
static void replace_operand(fe_graph *g, uint32_t id, uint32_t old, uint32_t new)
{
    fe_node *n = &g->nodes[id];
    fe_detail *d = &g->details[id];
    operand_set operands = empty_set(g, argument_nodes(g, id));

    unlink_operands(g, id);
    replace_in_tree(d->args, old, new);
    replace_in_tree(d->kwargs, old, new);
    collect(&operands, d->args);
    collect(&operands, d->kwargs);
    assert(operands.len <= n->edge_count);
    if (operands.len < n->edge_count)
        n->edge = shrink_block(g, n->edge, n->edge_count, operands.len);
    link_operands(g, id, n->edge, &operands);
    if (g->signature && n->op == FE_OP_OUTPUT)
        fe_signature_replace_output(g->signature, old, new);
    if (g->signature && !g->nodes[old].user_count)
        fe_signature_replace_called(g->signature, old, new);
    g->version++;
}

int fe_node_replace_operand(fe_graph *g, uint32_t id, uint32_t old, uint32_t new, fe_error *err)
{
    if (reserve_replacement(g, id, err) < 0)
        return -1;
    replace_operand(g, id, old, new);
    return 0;
}

int fe_node_reserve_replacement(fe_graph *g, uint32_t old, fe_error *err)
{
    for (uint32_t e = g->details[old].first_user; e != FE_NONE_ID; e = g->edges[e].next) {
        if (reserve_replacement(g, g->edges[e].user, err) < 0)
            return -1;
    }
    return 0;
}

int fe_node_replace_all_uses(fe_graph *g, uint32_t old, uint32_t new, fe_error *err)
{
    uint32_t e, last = g->details[old].last_user;

    if (fe_node_reserve_replacement(g, old, err) < 0)
        return -1;
    /* When new is old each user goes to the end of the list again: stop at the one that was the last. */
    for (e = g->details[old].first_user; e != FE_NONE_ID;) {
        uint32_t next = g->edges[e].next;
        replace_operand(g, g->edges[e].user, old, new);
        if (e == last)
            break;
        e = next;
    }
    return 0;
}
