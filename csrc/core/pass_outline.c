/* pass_outline.c - what becomes of a graph when groups of its nodes are each put into one place.
 *
 * A group can become one call when the graph that is left has an order: no way may lead out of a group and back into it. So
 * the members of a group share one vertex of a flow, that of the last of them, and the flow is sorted. What a group takes
 * and gives is read off the uses that cross its border.
 *
 * Effects bring pairs of their own: what writes stays behind all that was before it and before all that was behind it, for
 * any of these may look at the same memory; other effects (random numbers, assertions) stay in turn.
 */
#include "order.h"

void fe_group_plan_init(fe_group_plan *p, const fe_allocator *a)
{
    *p = (fe_group_plan){.allocator = a};
    fe_report_init(&p->members, a);
    fe_report_init(&p->inputs, a);
    fe_report_init(&p->outputs, a);
}

void fe_group_plan_clear(fe_group_plan *p)
{
    fe_report_clear(&p->members);
    fe_report_clear(&p->inputs);
    fe_report_clear(&p->outputs);
    fe_resize(p->allocator, p->order, 0);
    fe_group_plan_init(p, p->allocator);
}

/* What is looked up while a plan is made. */
typedef struct {
    const fe_graph *g;
    const fe_groups *groups;
    fe_flow flow;
    uint32_t *nodes;  /* by place */
    uint32_t *vertex; /* by node: the place that stands for it */
    uint32_t *next;   /* by node: the next member of its group, or FE_NONE_ID */
    uint32_t *first;  /* by group, and one more: its first member */
    uint32_t *last;   /* by group, and one more: its last member */
    uint32_t *seen;   /* by node: the last group that was found to use it */
} planner;

static void planner_clear(planner *p)
{
    uint32_t *arrays[] = {p->nodes, p->vertex, p->next, p->first, p->last, p->seen};

    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        fe_resize(p->g->allocator, arrays[i], 0);
    fe_flow_clear(&p->flow);
}

static int planner_init(planner *p, const fe_graph *g, const fe_groups *groups, fe_error *err)
{
    const size_t by_node = (size_t)g->node_count, by_group = (size_t)groups->count + 1;
    const struct {
        uint32_t **at;
        size_t len;
    } arrays[] = {{&p->nodes, (size_t)g->live + 1},
                  {&p->vertex, by_node},
                  {&p->next, by_node},
                  {&p->first, by_group},
                  {&p->last, by_group},
                  {&p->seen, by_node}};

    *p = (planner){.g = g, .groups = groups};
    fe_flow_init(&p->flow, g->allocator, g->live);
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        if (!(*arrays[i].at = fe_resize(g->allocator, NULL, arrays[i].len * sizeof(uint32_t)))) {
            planner_clear(p);
            return fe_no_memory(err);
        }
    }
    memset(p->first, 0xff, by_group * sizeof *p->first);
    memset(p->seen, 0, by_node * sizeof *p->seen);
    return 0;
}

static void find_members(planner *p)
{
    const fe_node *n = p->g->nodes;
    uint32_t place = 0;

    for (uint32_t id = n[FE_ROOT].next; id != FE_ROOT; id = n[id].next) {
        uint32_t group = p->groups->group[id];
        p->nodes[place] = id;
        p->vertex[id] = place++;
        p->next[id] = FE_NONE_ID;
        if (!group)
            continue;
        if (p->first[group] == FE_NONE_ID)
            p->first[group] = id;
        else
            p->next[p->last[group]] = id;
        p->last[group] = id;
    }
    for (uint32_t id = n[FE_ROOT].next; id != FE_ROOT; id = n[id].next) {
        if (p->groups->group[id])
            p->vertex[id] = p->vertex[p->last[p->groups->group[id]]];
    }
}

/* ---- what comes before what ---- */

static int add_pair(planner *p, uint32_t before, uint32_t after, fe_error *err)
{
    uint32_t a = p->vertex[before], b = p->vertex[after];

    return a == b ? 0 : fe_flow_add(&p->flow, a, b, err);
}

static int add_uses(planner *p, fe_error *err)
{
    const fe_graph *g = p->g;
    int result = 0;

    for (uint32_t i = 0; result == 0 && i < g->live; i++) {
        const fe_node *n = &g->nodes[p->nodes[i]];
        for (uint32_t e = n->edge; result == 0 && e < n->edge + n->edge_count; e++)
            result = add_pair(p, g->edges[e].def, p->nodes[i], err);
    }
    return result;
}

typedef enum { FREE, IN_TURN, WRITES } effect;

static effect effect_of(const fe_graph *g, uint32_t id)
{
    static const fe_dce_options options = {.keep_random = true};

    if (fe_node_writes_out(g, id))
        return WRITES;
    switch (fe_node_effect(g, id, &options)) {
    case FE_REASON_MUTATES:
    case FE_REASON_OUT:
        return WRITES;
    case FE_REASON_RANDOM:
    case FE_REASON_EFFECT:
    case FE_REASON_NO_RESULT:
    case FE_REASON_CALL:
        return IN_TURN;
    default:
        return FREE;
    }
}

/* Whether a node does anything when it is run: inputs and attributes are only names of values. */
static bool does_something(const fe_graph *g, uint32_t id)
{
    return g->nodes[id].op != FE_OP_PLACEHOLDER && g->nodes[id].op != FE_OP_GET_ATTR;
}

static int add_effects(planner *p, fe_error *err)
{
    uint32_t writer = FE_NONE_ID, in_turn = FE_NONE_ID, start = 0;
    int result = 0;

    for (uint32_t i = 0; result == 0 && i < p->g->live; i++) {
        uint32_t id = p->nodes[i];
        effect e = effect_of(p->g, id);
        if (!does_something(p->g, id))
            continue;
        if (writer != FE_NONE_ID)
            result = add_pair(p, writer, id, err);
        if (result == 0 && e == IN_TURN && in_turn != FE_NONE_ID)
            result = add_pair(p, in_turn, id, err);
        if (e == IN_TURN)
            in_turn = id;
        if (e != WRITES)
            continue;
        for (; result == 0 && start < i; start++) {
            if (does_something(p->g, p->nodes[start]))
                result = add_pair(p, p->nodes[start], id, err);
        }
        writer = id;
    }
    return result;
}

/* ---- what groups take and give ---- */

static int find_inputs(planner *p, uint32_t group, uint32_t member, fe_report *inputs, fe_error *err)
{
    const fe_node *n = &p->g->nodes[member];

    for (uint32_t e = n->edge; e < n->edge + n->edge_count; e++) {
        uint32_t def = p->g->edges[e].def;
        if (p->groups->group[def] == group || p->seen[def] == group)
            continue;
        p->seen[def] = group;
        if (fe_report_add(inputs, 0, def, group, err) < 0)
            return -1;
    }
    return 0;
}

static bool is_used_outside(const planner *p, uint32_t group, uint32_t member)
{
    for (uint32_t e = p->g->details[member].first_user; e != FE_NONE_ID; e = p->g->edges[e].next) {
        if (p->groups->group[p->g->edges[e].user] != group)
            return true;
    }
    return false;
}

static int describe_group(planner *p, uint32_t group, fe_group_plan *plan, fe_error *err)
{
    for (uint32_t id = p->first[group]; id != FE_NONE_ID; id = p->next[id]) {
        if (fe_report_add(&plan->members, 0, id, group, err) < 0 || find_inputs(p, group, id, &plan->inputs, err) < 0 ||
            (is_used_outside(p, group, id) && fe_report_add(&plan->outputs, 0, id, group, err) < 0))
            return -1;
    }
    return 0;
}

static int describe_groups(planner *p, fe_group_plan *plan, fe_error *err)
{
    for (uint32_t group = 1; group <= p->groups->count; group++) {
        if (describe_group(p, group, plan, err) < 0)
            return -1;
    }
    return 0;
}

/* From places to nodes; members that another stands for are left out. */
static void finish_order(const planner *p, fe_group_plan *plan)
{
    uint32_t count = plan->circle ? plan->circle : p->g->live, before = 0;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t place = plan->order[i], id = p->nodes[place];
        if (p->vertex[id] != place)
            continue;
        plan->moves |= place < before;
        before = place;
        plan->order[plan->count++] = id;
    }
}

static int make_plan(planner *p, fe_group_plan *plan, fe_error *err)
{
    const fe_flow_order order = {.breadth_first = false};

    find_members(p);
    if (add_uses(p, err) < 0 || (p->groups->effects && add_effects(p, err) < 0))
        return -1;
    if (!(plan->order = fe_resize(plan->allocator, NULL, ((size_t)p->g->live + 1) * sizeof *plan->order)))
        return fe_no_memory(err);
    if (fe_flow_sort(&p->flow, &order, plan->order, &plan->circle, err) < 0)
        return -1;
    finish_order(p, plan);
    return plan->circle ? 0 : describe_groups(p, plan, err);
}

int fe_plan_groups(const fe_graph *g, const fe_groups *groups, fe_group_plan *plan, fe_error *err)
{
    planner p;

    if (planner_init(&p, g, groups, err) < 0)
        return -1;
    int result = make_plan(&p, plan, err);
    planner_clear(&p);
    return result;
}
