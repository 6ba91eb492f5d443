/* memory.c - regions of memory, by union and find.
 *
 * A node joins the region of every operand it may share memory with. That is decided once for the whole graph, not at each
 * point of it, so a region is as large as it ever gets: a view that is made after a write counts as if it had been there.
 * Nothing is known of a call but what its facts tell; without them it may give any operand or something from outside back.
 */
#include "memory.h"
#include "pass.h"

#define EVERYTHING(m) ((m)->room - 1)

static const fe_dce_options effects = {.keep_random = false};

static bool is_call(const fe_node *n)
{
    return n->op == FE_OP_CALL_FUNCTION || n->op == FE_OP_CALL_METHOD || n->op == FE_OP_CALL_MODULE;
}

static uint32_t fact_of(const fe_memory *m, uint32_t id)
{
    return m->facts[m->g->nodes[id].target];
}

/* Whether a node may do something to memory. Drawing random numbers is nothing of the kind, but may come with it. */
static bool touches_memory(const fe_graph *g, uint32_t id)
{
    fe_reason reason = is_call(&g->nodes[id]) ? fe_node_effect(g, id, &effects) : FE_REASON_UNUSED;

    return reason != FE_REASON_UNUSED;
}

static bool target_touches_memory(fe_graph *g, uint32_t target)
{
    const uint32_t effect = FE_TARGET_MUTATES | FE_TARGET_EFFECT | FE_TARGET_NO_RESULT | FE_TARGET_UNKNOWN;

    if (!g->targets[target].count)
        return false;
    if (!(g->targets[target].flags & FE_TARGET_PER_NODE))
        return g->targets[target].flags & effect;
    for (uint32_t id = fe_target_nodes(g, target); id != FE_NONE_ID; id = g->details[id].target_next) {
        if (touches_memory(g, id))
            return true;
    }
    return false;
}

bool fe_memory_is_written(fe_graph *g)
{
    for (uint32_t i = 0; i < g->target_count; i++) {
        if (target_touches_memory(g, i))
            return true;
    }
    return fe_string_find(&g->strings, "out", 3) != NULL;
}

uint32_t fe_memory_region(const fe_memory *m, uint32_t id)
{
    while (m->regions[id] != id)
        id = m->regions[id] = m->regions[m->regions[id]];
    return id;
}

/* The smaller id is the region's, so that the root's region is that of the root. */
void fe_memory_join(const fe_memory *m, uint32_t a, uint32_t b)
{
    a = fe_memory_region(m, a);
    b = fe_memory_region(m, b);
    uint32_t first = a < b ? a : b, second = a < b ? b : a;
    m->regions[second] = first;
    if (m->written[first] < m->written[second])
        m->written[first] = m->written[second];
}

static void join_operands(const fe_memory *m, uint32_t id)
{
    const fe_node *n = &m->g->nodes[id];

    for (uint32_t i = 0; i < n->edge_count; i++)
        fe_memory_join(m, id, m->g->edges[n->edge + i].def);
}

static void join_call(const fe_memory *m, uint32_t id)
{
    const fe_node *n = &m->g->nodes[id];
    uint32_t fact = fact_of(m, id);

    if (touches_memory(m->g, id)) {
        if (fact & FE_MEMORY_CALM)
            return;
        join_operands(m, id); /* what is written to is often what is returned */
        if (!(fact & FE_MEMORY_COPIES))
            fe_memory_join(m, id, FE_ROOT);
    } else if (!(fact & FE_MEMORY_FRESH)) {
        join_operands(m, id);
        if (n->op == FE_OP_CALL_MODULE)
            fe_memory_join(m, id, FE_ROOT); /* a module may give a parameter */
    }
}

/* A call that copies from one operand to another does not make them share memory: only what is written joins. */
static void join_copy(const fe_memory *m, uint32_t id)
{
    const fe_seq *args = m->g->details[id].args;
    uint32_t positions = fact_of(m, id) >> FE_MEMORY_SHIFT;

    for (uint32_t i = 0; args && i < args->len && i < FE_MEMORY_POSITIONS; i++) {
        if (positions >> i & 1 && args->items[i].kind == FE_NODE)
            fe_memory_join(m, id, args->items[i].as.node);
    }
}

/* Whether all that a call writes to are nodes that stand among its arguments by position. */
static bool writes_by_position(const fe_memory *m, uint32_t id)
{
    const fe_detail *d = &m->g->details[id];
    uint32_t positions = fact_of(m, id) >> FE_MEMORY_SHIFT;

    if (!(fact_of(m, id) & FE_MEMORY_COPIES) || fe_seq_node_count(d->kwargs))
        return false;
    for (uint32_t i = 0; d->args && i < d->args->len && i < FE_MEMORY_POSITIONS; i++) {
        if (positions >> i & 1 && fe_kind_is_seq(d->args->items[i].kind))
            return false;
    }
    return true;
}

void fe_memory_note_writes(const fe_memory *m, uint32_t id, uint64_t *written)
{
    const fe_node *n = &m->g->nodes[id];

    if (!touches_memory(m->g, id) || fact_of(m, id) & FE_MEMORY_CALM)
        return;
    written[fe_memory_region(m, id)] = n->pos; /* joined with all it writes to */
    if (!n->edge_count)
        written[EVERYTHING(m)] = n->pos;
}

static void read_node(fe_memory *m, uint32_t id)
{
    const fe_node *n = &m->g->nodes[id];

    if (n->op == FE_OP_PLACEHOLDER || n->op == FE_OP_GET_ATTR)
        fe_memory_join(m, id, FE_ROOT);
    else if (is_call(n) && touches_memory(m->g, id) && writes_by_position(m, id))
        join_copy(m, id);
    else if (is_call(n))
        join_call(m, id);
}

int fe_memory_open(fe_memory *m, const fe_graph *g, const uint32_t *facts, fe_error *err)
{
    *m = (fe_memory){.g = g, .facts = facts, .room = g->node_count + 1};
    m->regions = fe_resize(g->allocator, NULL, m->room * sizeof *m->regions);
    m->written = fe_resize(g->allocator, NULL, m->room * sizeof *m->written);
    if (!m->regions || !m->written) {
        fe_memory_close(m);
        return fe_no_memory(err);
    }
    memset(m->written, 0, m->room * sizeof *m->written);
    for (uint32_t i = 0; i < m->room; i++)
        m->regions[i] = i;
    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT; id = g->nodes[id].next)
        read_node(m, id);
    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT; id = g->nodes[id].next)
        fe_memory_note_writes(m, id, m->written);
    return 0;
}

void fe_memory_close(fe_memory *m)
{
    fe_resize(m->g->allocator, m->regions, 0);
    fe_resize(m->g->allocator, m->written, 0);
    m->regions = NULL;
    m->written = NULL;
}

/* ---- what a graph returns ---- */

static bool is_update(uint8_t kind)
{
    return kind == FE_OUTPUT_BUFFER_MUTATION || kind == FE_OUTPUT_PARAMETER_MUTATION ||
           kind == FE_OUTPUT_USER_INPUT_MUTATION;
}

bool fe_has_updates(const fe_graph *g)
{
    for (uint32_t i = 0; g->signature && i < g->signature->output_count; i++) {
        if (is_update(g->signature->outputs[i].kind))
            return true;
    }
    return false;
}

static void mark_operands(const fe_graph *g, uint32_t id, uint8_t *marks, uint8_t mark)
{
    const fe_node *n = &g->nodes[id];

    for (uint32_t i = 0; i < n->edge_count; i++)
        marks[g->edges[n->edge + i].def] |= mark;
}

/* From users to operands, which stand before them. */
static void spread_results(const fe_graph *g, const uint32_t *facts, uint8_t *marks)
{
    for (uint32_t id = g->nodes[FE_ROOT].prev; id != FE_ROOT; id = g->nodes[id].prev) {
        bool is_new = facts[g->nodes[id].target] & (FE_MEMORY_FRESH | FE_MEMORY_ARITHMETIC);
        if (marks[id] & FE_RESULT && !is_new)
            mark_operands(g, id, marks, FE_RESULT);
    }
}

void fe_mark_returned(const fe_graph *g, const uint32_t *facts, uint8_t *marks)
{
    uint32_t last = g->nodes[FE_ROOT].prev;

    memset(marks, 0, g->node_count);
    if (g->nodes[last].op != FE_OP_OUTPUT)
        return;
    mark_operands(g, last, marks, FE_RETURNED | FE_RESULT);
    for (uint32_t i = 0; g->signature && i < g->signature->output_count; i++) {
        const fe_spec *spec = &g->signature->outputs[i];
        if (is_update(spec->kind) && spec->node != FE_NONE_ID)
            marks[spec->node] |= FE_UPDATING;
    }
    if (facts)
        spread_results(g, facts, marks);
}
