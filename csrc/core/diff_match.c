/* diff_match.c - which node of one graph has become which node of another.
 *
 * Nodes are paired by what they do before what they are called, for a node that is put in shifts the names of all that
 * come after. From the surest evidence to the weakest:
 *
 *     inputs and the output                  by name, the rest of the inputs by place
 *     all that leads to a node is the same   a hash from the inputs down: finds all above the changes
 *     all that a node leads to is the same   a hash from the output up: finds all below them
 *     it stands next to a pair               the same operand place of a pair, or the same use of one
 *     it has the same arguments              and another target: a node put in the place of another
 *     it has the same name                   and the same op and target
 *
 * and once more from the neighbours on, with less asked of them.
 *
 * Hashes only propose pairs; what differs between the two of a pair is found by comparing them. So two hashes that are
 * equal by chance make a diff longer, never wrong.
 *
 * Invariant: match[] of the two sides are inverse to each other, and two nodes of a pair are both listed.
 */
#include "diff_match.h"

/* A pair with more free users than this, or users with many more operands, is not followed, so that time stays linear. */
#define MANY_USERS 16
#define MANY 64

static uint64_t join(uint64_t h, uint64_t word)
{
    return fe_mix(h * UINT64_C(0x9e3779b97f4a7c15) ^ word);
}

static uint64_t string_hash(const fe_string *s)
{
    return (uint64_t)s->len << 32 | s->hash;
}

/* How a node in an argument counts: as what it has become, by a hash of it, or not at all. */
typedef uint64_t (*node_view)(const fe_diff_graph *s, uint32_t node);

static uint64_t value_hash(const fe_diff_graph *s, fe_value v, node_view view);

static uint64_t seq_hash(const fe_diff_graph *s, const fe_seq *seq, node_view view)
{
    uint64_t h = seq ? seq->len : 0;

    if (seq && seq->type != FE_NONE_ID)
        h = join(h, class_of(s, seq->type));
    for (uint32_t i = 0; seq && i < seq->len; i++)
        h = join(h, value_hash(s, seq->items[i], view));
    return h;
}

static uint64_t value_hash(const fe_diff_graph *s, fe_value v, node_view view)
{
    switch ((fe_kind)v.kind) {
    case FE_STR:
        return join(v.kind, string_hash(v.as.string));
    case FE_NODE:
        return join(v.kind, view(s, v.as.node));
    case FE_OBJECT:
        return join(v.kind, class_of(s, v.as.object));
    case FE_TUPLE:
    case FE_LIST:
    case FE_DICT:
    case FE_SLICE:
        return join(v.kind, seq_hash(s, v.as.seq, view));
    default:
        return fe_value_hash(v, NULL);
    }
}

bool fe_diff_targets_equal(const fe_diff_matcher *m, uint32_t a, uint32_t b)
{
    const fe_target *s = &m->a.g->targets[m->a.g->nodes[a].target], *t = &m->b.g->targets[m->b.g->nodes[b].target];

    if (s->object != FE_NONE_ID || t->object != FE_NONE_ID)
        return class_of(&m->a, s->object) == class_of(&m->b, t->object);
    return strings_equal(s->text, t->text);
}

/* ---- labels and views ---- */

static uint64_t no_view(const fe_diff_graph *s, uint32_t node)
{
    (void)s;
    (void)node;
    return 0;
}

static uint64_t down_view(const fe_diff_graph *s, uint32_t node)
{
    return s->down[node];
}

/* A name for the pair of a node that is the same on both sides, and for one without a pair something of its own. */
static uint64_t pair_number(const fe_diff_graph *s, uint32_t node, bool is_b)
{
    uint32_t other = s->match[node];

    if (other == FE_NONE_ID)
        return (uint64_t)(is_b ? 3 : 2) << 32 | node;
    return (uint64_t)1 << 32 | (is_b ? other : node);
}

static uint64_t pair_view_a(const fe_diff_graph *s, uint32_t node)
{
    return pair_number(s, node, false);
}

static uint64_t pair_view_b(const fe_diff_graph *s, uint32_t node)
{
    return pair_number(s, node, true);
}

uint64_t fe_diff_label(const fe_diff_graph *s, uint32_t id)
{
    const fe_node *n = &s->g->nodes[id];
    const fe_target *t = &s->g->targets[n->target];
    const fe_detail *d = &s->g->details[id];
    uint64_t h = t->object == FE_NONE_ID ? string_hash(t->text) : class_of(s, t->object);

    h = join(join(n->op, h), seq_hash(s, d->args, no_view));
    return join(h, seq_hash(s, d->kwargs, no_view));
}

static bool is_input(const fe_diff_graph *s, uint32_t id)
{
    return s->g->nodes[id].op == FE_OP_PLACEHOLDER;
}

/* A node that takes nothing: what it is, only its name and its users tell. */
static bool is_source(const fe_diff_graph *s, uint32_t id)
{
    return is_input(s, id) || s->g->nodes[id].op == FE_OP_GET_ATTR;
}

/* ---- pairs ---- */

static void pair(fe_diff_matcher *m, uint32_t a, uint32_t b)
{
    assert(m->a.match[a] == FE_NONE_ID && m->b.match[b] == FE_NONE_ID);
    m->a.match[a] = b;
    m->b.match[b] = a;
    m->queue[m->queued++] = a;
}

static bool are_free(const fe_diff_matcher *m, uint32_t a, uint32_t b)
{
    return m->a.match[a] == FE_NONE_ID && m->b.match[b] == FE_NONE_ID;
}

/* The listed node of a that bears a name of b's, or FE_NONE_ID. */
static uint32_t namesake(const fe_diff_matcher *m, uint32_t b)
{
    const fe_string *name = m->b.g->details[b].name;
    const fe_string *known = fe_string_find(&m->a.g->strings, name->data, name->len);
    uint32_t a = known ? fe_name_owner(m->a.g, known) : FE_NONE_ID;

    return a != FE_NONE_ID && fe_node_is_listed(m->a.g, a) ? a : FE_NONE_ID;
}

static fe_diff_bucket *bucket_of(const fe_diff_matcher *m, uint64_t hash)
{
    return &m->buckets[fe_mix(hash) & m->mask];
}

/* Put the free nodes of a into buckets by hash, the first node first. */
static void fill_buckets(fe_diff_matcher *m)
{
    for (uint32_t i = 0; i <= m->mask; i++)
        m->buckets[i] = (fe_diff_bucket){.first = FE_NONE_ID};
    for (uint32_t a = m->a.g->nodes[FE_ROOT].prev; a != FE_ROOT; a = m->a.g->nodes[a].prev) {
        if (m->a.match[a] != FE_NONE_ID)
            continue;
        fe_diff_bucket *k = bucket_of(m, m->a.hash[a]);
        m->a.chain[a] = k->first;
        k->first = a;
        k->surplus++;
    }
}

/* The node of a that has the name and the hash of a free one of b, or FE_NONE_ID. */
static uint32_t same_in_all(const fe_diff_matcher *m, uint32_t b)
{
    uint32_t a = namesake(m, b);

    return a != FE_NONE_ID && are_free(m, a, b) && m->a.hash[a] == m->b.hash[b] && ops_equal(m, a, b) ? a : FE_NONE_ID;
}

static void look_at_names(fe_diff_matcher *m)
{
    for (uint32_t b = first_of(&m->b); b != FE_ROOT; b = next_of(&m->b, b)) {
        if (m->b.match[b] != FE_NONE_ID)
            continue;
        fe_diff_bucket *k = bucket_of(m, m->b.hash[b]);
        k->surplus--;
        k->is_shuffled |= same_in_all(m, b) == FE_NONE_ID;
    }
}

/* The first free node of a with a hash. Whatever has been paired meanwhile leaves its bucket on the way. */
static uint32_t take_first(fe_diff_matcher *m, uint64_t hash)
{
    uint32_t *at = &bucket_of(m, hash)->first;

    while (*at != FE_NONE_ID) {
        uint32_t a = *at;
        if (m->a.match[a] != FE_NONE_ID) {
            *at = m->a.chain[a];
        } else if (m->a.hash[a] == hash) {
            return a;
        } else {
            at = &m->a.chain[a];
        }
    }
    return FE_NONE_ID;
}

/* Pair free nodes whose hashes are equal. Among several, those of one name are a pair, unless there are as many on both
 * sides and their names have shifted: then they are taken in order, as all that is left is. */
static void pair_by_hash(fe_diff_matcher *m)
{
    fill_buckets(m);
    look_at_names(m);
    for (uint32_t b = first_of(&m->b); b != FE_ROOT; b = next_of(&m->b, b)) {
        uint32_t a = m->b.match[b] == FE_NONE_ID ? same_in_all(m, b) : FE_NONE_ID;
        const fe_diff_bucket *k = bucket_of(m, m->b.hash[b]);
        if (a != FE_NONE_ID && (k->surplus != 0 || !k->is_shuffled))
            pair(m, a, b);
    }
    for (uint32_t b = first_of(&m->b); b != FE_ROOT; b = next_of(&m->b, b)) {
        uint32_t a = m->b.match[b] == FE_NONE_ID ? take_first(m, m->b.hash[b]) : FE_NONE_ID;
        if (a != FE_NONE_ID && ops_equal(m, a, b))
            pair(m, a, b);
    }
}

/* ---- inputs and the output ---- */

static uint32_t next_free_input(const fe_diff_graph *s, uint32_t id)
{
    while (id != FE_ROOT && !(is_input(s, id) && s->match[id] == FE_NONE_ID))
        id = next_of(s, id);
    return id;
}

static uint32_t free_inputs(const fe_diff_graph *s)
{
    uint32_t count = 0;

    for (uint32_t id = next_free_input(s, first_of(s)); id != FE_ROOT; id = next_free_input(s, next_of(s, id)))
        count++;
    return count;
}

static void pair_inputs(fe_diff_matcher *m)
{
    for (uint32_t b = first_of(&m->b); b != FE_ROOT; b = next_of(&m->b, b)) {
        uint32_t a = is_input(&m->b, b) ? namesake(m, b) : FE_NONE_ID;
        if (a != FE_NONE_ID && are_free(m, a, b) && is_input(&m->a, a))
            pair(m, a, b);
    }
    if (free_inputs(&m->a) != free_inputs(&m->b))
        return; /* which is which is for their users to tell */
    uint32_t a = next_free_input(&m->a, first_of(&m->a)), b = next_free_input(&m->b, first_of(&m->b));
    while (a != FE_ROOT && b != FE_ROOT) {
        pair(m, a, b);
        a = next_free_input(&m->a, a);
        b = next_free_input(&m->b, b);
    }
}

static void pair_outputs(fe_diff_matcher *m)
{
    uint32_t a = m->a.g->nodes[FE_ROOT].prev, b = m->b.g->nodes[FE_ROOT].prev;

    if (a != FE_ROOT && b != FE_ROOT && m->a.g->nodes[a].op == FE_OP_OUTPUT && m->b.g->nodes[b].op == FE_OP_OUTPUT)
        pair(m, a, b);
}

/* ---- hashes along the flow of values ---- */

/* From the inputs down. An operand that comes later counts as nothing. */
static void hash_down(fe_diff_graph *s, bool is_b)
{
    memset(s->down, 0, s->g->node_count * sizeof *s->down);
    for (uint32_t id = first_of(s); id != FE_ROOT; id = next_of(s, id)) {
        const fe_detail *d = &s->g->details[id];
        uint64_t h = join(s->label[id], seq_hash(s, d->args, down_view));
        s->down[id] = is_input(s, id) ? pair_number(s, id, is_b) : join(h, seq_hash(s, d->kwargs, down_view));
    }
}

static void tell_operands(fe_diff_graph *s, const fe_seq *seq, uint64_t at)
{
    for (uint32_t i = 0; seq && i < seq->len; i++) {
        fe_value v = seq->items[i];
        if (v.kind == FE_NODE)
            s->up[v.as.node] += join(at, i);
        else if (fe_kind_is_seq(v.kind))
            tell_operands(s, v.as.seq, join(at, i));
    }
}

/* What inputs a node takes, and where: it tells layers that are alike apart. */
static uint64_t input_view(const fe_diff_graph *s, uint32_t node)
{
    return is_input(s, node) ? s->down[node] : 0;
}

/* From the output up, after hash_down; up[] adds up what a node's users tell until it is the node's turn. */
static void hash_up(fe_diff_graph *s)
{
    memset(s->up, 0, s->g->node_count * sizeof *s->up);
    for (uint32_t id = s->g->nodes[FE_ROOT].prev; id != FE_ROOT; id = s->g->nodes[id].prev) {
        const fe_detail *d = &s->g->details[id];
        s->up[id] = join(join(s->label[id], seq_hash(s, d->args, input_view)), s->up[id]);
        tell_operands(s, d->args, s->up[id]);
        tell_operands(s, d->kwargs, join(s->up[id], 1));
    }
}

static void hash_flow(fe_diff_graph *s, bool is_b)
{
    hash_down(s, is_b);
    hash_up(s);
    for (uint32_t id = first_of(s); id != FE_ROOT; id = next_of(s, id))
        s->hash[id] = join(s->down[id], s->up[id]);
}

/* Inputs are pairs already, or are for their users to tell. */
static void use_hash(fe_diff_graph *s, const uint64_t *hash)
{
    for (uint32_t id = first_of(s); id != FE_ROOT; id = next_of(s, id))
        s->hash[id] = is_input(s, id) ? s->down[id] : hash[id];
}

static void pair_by_flow(fe_diff_matcher *m)
{
    hash_flow(&m->a, false);
    hash_flow(&m->b, true);
    pair_by_hash(m);
    use_hash(&m->a, m->a.down);
    use_hash(&m->b, m->b.down);
    pair_by_hash(m);
    use_hash(&m->a, m->a.up);
    use_hash(&m->b, m->b.up);
    pair_by_hash(m);
}

/* ---- neighbours ---- */

/* How much alike two nodes must be. */
typedef enum { SAME_LABEL, SAME_TARGET } likeness;

static bool are_alike(const fe_diff_matcher *m, uint32_t a, uint32_t b, likeness how)
{
    if (!are_free(m, a, b) || !ops_equal(m, a, b))
        return false;
    if (how == SAME_LABEL)
        return m->a.label[a] == m->b.label[b];
    return is_source(&m->a, a) || fe_diff_targets_equal(m, a, b);
}

static void pair_operands(fe_diff_matcher *m, const fe_seq *a, const fe_seq *b, likeness how);

/* Pair what stands at one place of two sequences; whether it may be the same thing there. */
static bool pair_items(fe_diff_matcher *m, fe_value v, fe_value w, likeness how)
{
    if (v.kind != w.kind)
        return false;
    if (v.kind == FE_NODE) {
        if (are_alike(m, v.as.node, w.as.node, how))
            pair(m, v.as.node, w.as.node);
        return m->a.match[v.as.node] == w.as.node;
    }
    if (fe_kind_is_seq(v.kind))
        pair_operands(m, v.as.seq, w.as.seq, how);
    return true;
}

/* Where something was put in or taken out, the places before it agree when counted from the front, those after it when
 * counted from the back. */
static void pair_operands(fe_diff_matcher *m, const fe_seq *a, const fe_seq *b, likeness how)
{
    uint32_t len_a = a ? a->len : 0, len_b = b ? b->len : 0, len = len_a < len_b ? len_a : len_b, done = 0;

    if (len_a == len_b) {
        for (uint32_t i = 0; i < len; i++)
            pair_items(m, a->items[i], b->items[i], how);
        return;
    }
    while (done < len && pair_items(m, a->items[done], b->items[done], how))
        done++;
    for (uint32_t i = 1; i <= len - done && pair_items(m, a->items[len_a - i], b->items[len_b - i], how); i++)
        ;
}

/* The free users of a node, in order; at most MANY_USERS, else none. */
static uint32_t free_users(const fe_diff_graph *s, uint32_t id, uint32_t out[MANY_USERS])
{
    uint32_t count = 0;

    if (s->g->nodes[id].user_count > MANY)
        return 0;
    for (uint32_t e = s->g->details[id].first_user; e != FE_NONE_ID; e = s->g->edges[e].next) {
        uint32_t user = s->g->edges[e].user;
        if (s->match[user] != FE_NONE_ID || s->g->nodes[user].edge_count > MANY)
            continue;
        if (count == MANY_USERS)
            return 0;
        out[count++] = user;
    }
    return count;
}

/* Where a node stands in another's arguments: a hash of all the places. */
static uint64_t places_in(const fe_seq *seq, uint32_t node, uint64_t at)
{
    uint64_t found = 0;

    for (uint32_t i = 0; seq && i < seq->len; i++) {
        fe_value v = seq->items[i];
        if (v.kind == FE_NODE && v.as.node == node)
            found += join(at, i);
        else if (fe_kind_is_seq(v.kind))
            found += places_in(v.as.seq, node, join(at, i));
    }
    return found;
}

static uint64_t use_of(const fe_diff_graph *s, uint32_t user, uint32_t node)
{
    const fe_detail *d = &s->g->details[user];

    return places_in(d->args, node, 1) + places_in(d->kwargs, node, 2);
}

static void pair_users(fe_diff_matcher *m, uint32_t a, uint32_t b, likeness how)
{
    uint32_t users_a[MANY_USERS], users_b[MANY_USERS];
    uint32_t count_a = free_users(&m->a, a, users_a), count_b = count_a ? free_users(&m->b, b, users_b) : 0;

    for (uint32_t i = 0; i < count_b; i++) {
        uint64_t use = use_of(&m->b, users_b[i], b);
        uint32_t found = FE_NONE_ID, same_name = namesake(m, users_b[i]);
        for (uint32_t k = 0; k < count_a; k++) {
            if (!are_alike(m, users_a[k], users_b[i], how) || use_of(&m->a, users_a[k], a) != use)
                continue;
            if (found == FE_NONE_ID || users_a[k] == same_name)
                found = users_a[k];
        }
        if (found != FE_NONE_ID)
            pair(m, found, users_b[i]);
    }
}

/* Go through all pairs, those found on the way included. */
static void pair_neighbours(fe_diff_matcher *m, likeness how)
{
    for (m->done = 0; m->done < m->queued; m->done++) {
        uint32_t a = m->queue[m->done], b = m->a.match[a];
        const fe_detail *d = &m->a.g->details[a], *e = &m->b.g->details[b];
        pair_operands(m, d->args, e->args, how);
        pair_operands(m, d->kwargs, e->kwargs, how);
        pair_users(m, a, b, how);
    }
}

/* ---- the last resorts ---- */

static void pair_by_name(fe_diff_matcher *m, bool same_target)
{
    for (uint32_t b = first_of(&m->b); b != FE_ROOT; b = next_of(&m->b, b)) {
        uint32_t a = m->b.match[b] == FE_NONE_ID ? namesake(m, b) : FE_NONE_ID;
        if (a != FE_NONE_ID && are_free(m, a, b) && ops_equal(m, a, b) &&
            (!same_target || fe_diff_targets_equal(m, a, b)))
            pair(m, a, b);
    }
}

/* A free node that has no operands gets a hash of its own: arguments without a node say too little. */
static void hash_arguments(fe_diff_graph *s, node_view view)
{
    for (uint32_t id = first_of(s); id != FE_ROOT; id = next_of(s, id)) {
        const fe_detail *d = &s->g->details[id];
        if (s->match[id] != FE_NONE_ID)
            continue;
        s->hash[id] = s->g->nodes[id].edge_count == 0
                          ? view(s, id)
                          : join(join(s->g->nodes[id].op, seq_hash(s, d->args, view)), seq_hash(s, d->kwargs, view));
    }
}

static void pair_by_arguments(fe_diff_matcher *m)
{
    hash_arguments(&m->a, pair_view_a);
    hash_arguments(&m->b, pair_view_b);
    pair_by_hash(m);
}

void fe_diff_pair_all(fe_diff_matcher *m)
{
    pair_inputs(m);
    pair_outputs(m);
    pair_by_flow(m);
    pair_neighbours(m, SAME_LABEL);
    pair_by_arguments(m);
    pair_neighbours(m, SAME_LABEL);
    pair_by_name(m, true);
    pair_neighbours(m, SAME_TARGET);
    pair_by_arguments(m);
    pair_by_name(m, false);
}

void fe_diff_pair_known(fe_diff_matcher *m, const uint32_t *known)
{
    for (uint32_t b = first_of(&m->b); b != FE_ROOT; b = next_of(&m->b, b)) {
        if (known[b] != FE_NONE_ID)
            pair(m, known[b], b);
    }
}
