/* lint.c - the invariants of ir.h, checked in one walk along the list.
 *
 * A node's operands stand before it exactly when their positions are lower, so no set of seen nodes is needed. Names are
 * unique exactly when each node is the owner of its name. What no edit can break, only a fault of the core (edges against
 * argument trees, links, name owners), is recounted when every fault is asked for.
 */
#include "pass.h"

typedef struct {
    const fe_graph *g;
    const fe_lint_options *options;
    fe_report *faults;
    fe_error *err;
    uint32_t output;   /* the first one met, or FE_NONE_ID */
    uint32_t *named;   /* by node, for check_uses: 0 between calls; NULL: uses are not checked */
    bool shared_names; /* some node bears a name that is another's */
    bool full;         /* enough found */
    bool failed;
} linter;

static void fault(linter *l, fe_fault code, uint32_t node, uint32_t other)
{
    if (l->full)
        return;
    if (fe_report_add(l->faults, (uint8_t)code, node, other, l->err) < 0)
        l->failed = l->full = true;
    else if (!l->options->all)
        l->full = true;
}

/* Add to named[node] each time the tree names it. */
static void count_names(linter *l, const fe_seq *s)
{
    for (uint32_t i = 0; s && i < s->len; i++) {
        if (s->items[i].kind == FE_NODE)
            l->named[s->items[i].as.node]++;
        else if (fe_kind_is_seq(s->items[i].kind))
            count_names(l, s->items[i].as.seq);
    }
}

/* What is still counted has no edge. */
static void find_names_left(linter *l, uint32_t id, const fe_seq *s)
{
    for (uint32_t i = 0; s && i < s->len; i++) {
        fe_value v = s->items[i];
        if (v.kind == FE_NODE && l->named[v.as.node]) {
            l->named[v.as.node] = 0;
            fault(l, FE_FAULT_STALE_USERS, v.as.node, id);
        } else if (fe_kind_is_seq(v.kind)) {
            find_names_left(l, id, v.as.seq);
        }
    }
}

static bool edge_is_linked(const fe_graph *g, uint32_t e)
{
    const fe_edge *edge = &g->edges[e];
    const fe_detail *def = &g->details[edge->def];

    return (edge->prev == FE_NONE_ID ? def->first_user : g->edges[edge->prev].next) == e &&
           (edge->next == FE_NONE_ID ? def->last_user : g->edges[edge->next].prev) == e;
}

static void check_operand(linter *l, uint32_t id, const fe_node *n, uint32_t e)
{
    const fe_node *def = &l->g->nodes[l->g->edges[e].def];

    if (def->pos < n->pos && !(def->flags & (FE_NODE_FOREIGN | FE_NODE_ERASED)))
        return;
    fe_fault code = def->flags & FE_NODE_FOREIGN  ? FE_FAULT_FOREIGN_OPERAND
                    : def->flags & FE_NODE_ERASED ? FE_FAULT_ERASED_OPERAND
                                                  : FE_FAULT_UNDEFINED_OPERAND;
    fault(l, code, id, l->g->edges[e].def);
}

/* Edges against arguments, both ways and with multiplicity. A graph read without arguments has only the edges. */
static void check_uses(linter *l, uint32_t id, const fe_node *n)
{
    const fe_detail *d = &l->g->details[id];

    count_names(l, d->args);
    count_names(l, d->kwargs);
    for (uint32_t e = n->edge; e < n->edge + n->edge_count; e++) {
        const fe_edge *edge = &l->g->edges[e];
        bool counted = (!d->args && !d->kwargs) || l->named[edge->def] == edge->count;
        if (!counted || edge->user != id || !edge_is_linked(l->g, e))
            fault(l, FE_FAULT_STALE_USERS, edge->def, id);
        l->named[edge->def] = 0;
    }
    find_names_left(l, id, d->args);
    find_names_left(l, id, d->kwargs);
}

/* The list of users against their number and their edges. */
static void check_users(linter *l, uint32_t id, const fe_node *n)
{
    uint32_t count = 0, e = l->g->details[id].first_user;

    for (; e != FE_NONE_ID && count <= n->user_count && l->g->edges[e].def == id; e = l->g->edges[e].next)
        count++;
    if (e != FE_NONE_ID || count != n->user_count)
        fault(l, FE_FAULT_STALE_USERS, id, id);
}

static void check_place(linter *l, uint32_t id, const fe_node *n)
{
    if (n->pos <= l->g->nodes[n->prev].pos) /* the root's is 0 */
        fault(l, FE_FAULT_WRONG_ORDER, id, n->prev);
    if (n->op != FE_OP_OUTPUT)
        return;
    if (l->output != FE_NONE_ID)
        fault(l, FE_FAULT_SECOND_OUTPUT, id, l->output);
    else if (n->next != FE_ROOT)
        fault(l, FE_FAULT_OUTPUT_NOT_LAST, id, n->next);
    l->output = id;
}

static void check_node(linter *l, uint32_t id)
{
    const fe_node *n = &l->g->nodes[id];

    if (n->op >= FE_OP_ROOT)
        fault(l, FE_FAULT_UNKNOWN_OP, id, FE_NONE_ID);
    if (n->flags & FE_NODE_FOREIGN)
        fault(l, FE_FAULT_FOREIGN_NODE, id, FE_NONE_ID);
    if (n->flags & FE_NODE_UNLISTED)
        fault(l, FE_FAULT_UNLISTED, id, FE_NONE_ID);
    for (uint32_t e = n->edge; e < n->edge + n->edge_count; e++)
        check_operand(l, id, n, e);
    const fe_string *name = l->shared_names ? l->g->details[id].name : NULL;
    if (name && name->owner != id)
        fault(l, FE_FAULT_DUPLICATE_NAME, id, name->owner);
    if (n->flags & FE_NODE_STALE)
        fault(l, FE_FAULT_STALE_USERS, id, id);
    if (!l->options->fx_only)
        check_place(l, id, n);
    const fe_string *own = l->options->all && l->options->names ? l->g->details[id].name : NULL;
    if (own && fe_name_is_odd(own))
        fault(l, FE_FAULT_ODD_NAME, id, FE_NONE_ID);
    if (l->named) {
        check_uses(l, id, n);
        check_users(l, id, n);
    }
}

static void check_target(linter *l, uint32_t id)
{
    uint32_t flags = l->g->targets[l->g->nodes[id].target].flags;

    if (flags & FE_TARGET_NOT_CALLABLE)
        fault(l, FE_FAULT_TARGET_TYPE, id, FE_NONE_ID);
    if (flags & FE_TARGET_MISSING)
        fault(l, FE_FAULT_TARGET_MISSING, id, FE_NONE_ID);
    if (flags & FE_TARGET_NOT_MODULE)
        fault(l, FE_FAULT_TARGET_NOT_MODULE, id, FE_NONE_ID);
}

static bool any_bad_target(const fe_graph *g)
{
    uint32_t flags = 0;

    for (uint32_t i = 0; i < g->target_count; i++)
        flags |= g->targets[i].flags;
    return flags & (FE_TARGET_NOT_CALLABLE | FE_TARGET_MISSING | FE_TARGET_NOT_MODULE);
}

int fe_lint(const fe_graph *g, const fe_lint_options *o, fe_report *faults, fe_error *err)
{
    linter l = {.g = g,
                .options = o,
                .faults = faults,
                .err = err,
                .output = FE_NONE_ID,
                .shared_names = o->all || g->shared_names};

    if (o->all) {
        l.named = fe_resize(g->allocator, NULL, g->node_count * sizeof *l.named);
        if (!l.named)
            return fe_no_memory(err);
        memset(l.named, 0, g->node_count * sizeof *l.named);
    }
    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT && !l.full; id = g->nodes[id].next)
        check_node(&l, id);
    if ((o->targets || !o->fx_only) && any_bad_target(g)) {
        for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT && !l.full; id = g->nodes[id].next)
            check_target(&l, id);
    }
    fe_resize(g->allocator, l.named, 0);
    return l.failed ? -1 : 0;
}

const char *fe_fault_text(fe_fault fault)
{
    static const char *const texts[] = {
#define X(id, text) text,
        FE_FAULTS(X)
#undef X
    };

    return texts[fault];
}

const char *fe_fault_name(fe_fault fault)
{
    static const char *const names[] = {
#define X(id, text) #id,
        FE_FAULTS(X)
#undef X
    };

    return names[fault];
}
