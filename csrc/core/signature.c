/* signature.c - what the inputs and outputs of an exported program stand for, kept in step with edits of its graph. */
#include "ir.h"

fe_signature *fe_signature_new(const fe_allocator *a)
{
    fe_signature *s = fe_resize(a, NULL, sizeof *s);

    if (s)
        *s = (fe_signature){.allocator = a};
    return s;
}

void fe_signature_free(fe_signature *s)
{
    if (!s)
        return;
    fe_resize(s->allocator, s->inputs, 0);
    fe_resize(s->allocator, s->outputs, 0);
    fe_resize(s->allocator, s->called, 0);
    fe_resize(s->allocator, s->called_slots, 0);
    fe_resize(s->allocator, s, 0);
}

int fe_signature_add_input(fe_signature *s, fe_spec spec, fe_error *err)
{
    if (fe_grow(s->allocator, &s->inputs, &s->input_capacity, (size_t)s->input_count + 1, sizeof spec, err) < 0)
        return -1;
    s->inputs[s->input_count++] = spec;
    return 0;
}

int fe_signature_add_output(fe_signature *s, fe_spec spec, fe_error *err)
{
    if (fe_grow(s->allocator, &s->outputs, &s->output_capacity, (size_t)s->output_count + 1, sizeof spec, err) < 0)
        return -1;
    s->outputs[s->output_count++] = spec;
    return 0;
}

/* ---- called ---- */

#define EMPTY FE_NONE_ID

static uint32_t home_of(const fe_signature *s, uint32_t node)
{
    return (uint32_t)fe_mix(node) & s->called_mask;
}

/* The slot of a node, or the free one where it belongs. A table has twice the slots that can be taken. */
static uint32_t find_called(const fe_signature *s, uint32_t node)
{
    uint32_t i = home_of(s, node);

    while (s->called_slots[i] != EMPTY && s->called[s->called_slots[i]].node != node)
        i = (i + 1) & s->called_mask;
    return i;
}

/* Empty a slot and move up what had to step over it. */
static void empty_slot(fe_signature *s, uint32_t hole)
{
    for (uint32_t i = (hole + 1) & s->called_mask; s->called_slots[i] != EMPTY; i = (i + 1) & s->called_mask) {
        uint32_t home = home_of(s, s->called[s->called_slots[i]].node);
        if (((i - home) & s->called_mask) >= ((i - hole) & s->called_mask)) {
            s->called_slots[hole] = s->called_slots[i];
            hole = i;
        }
    }
    s->called_slots[hole] = EMPTY;
}

/* Put one of called before those of its node. */
static void link_called(fe_signature *s, uint32_t index)
{
    uint32_t *slot = &s->called_slots[find_called(s, s->called[index].node)];

    s->called[index].next = *slot;
    *slot = index;
}

/* A table for all there is room for in called. */
static int grow_slots(fe_signature *s, fe_error *err)
{
    size_t size = 16;

    while (size < 2 * (size_t)s->called_capacity)
        size *= 2;
    if (s->called_slots && size <= (size_t)s->called_mask + 1)
        return 0;
    if (size > (size_t)1 << 31)
        return fe_fail(err, FE_TOO_LARGE, 0, "the calls of modules name more nodes than a graph can hold");
    uint32_t *slots = fe_resize(s->allocator, NULL, size * sizeof *slots);
    if (!slots)
        return fe_no_memory(err);
    memset(slots, 0xff, size * sizeof *slots);
    fe_resize(s->allocator, s->called_slots, 0);
    s->called_slots = slots;
    s->called_mask = (uint32_t)(size - 1);
    for (uint32_t i = 0; i < s->called_count; i++) {
        if (s->called[i].node != FE_NONE_ID)
            link_called(s, i);
    }
    return 0;
}

int fe_signature_add_called(fe_signature *s, fe_string *name, uint32_t node, fe_error *err)
{
    fe_called called = {name, node, FE_NONE_ID};

    if (fe_grow(s->allocator, &s->called, &s->called_capacity, (size_t)s->called_count + 1, sizeof called, err) < 0 ||
        grow_slots(s, err) < 0)
        return -1;
    s->called[s->called_count] = called;
    if (node != FE_NONE_ID)
        link_called(s, s->called_count);
    s->called_count++;
    return 0;
}

void fe_signature_take_called(fe_signature *s, fe_signature *from)
{
    s->called = from->called;
    s->called_slots = from->called_slots;
    s->called_count = from->called_count;
    s->called_capacity = from->called_capacity;
    s->called_mask = from->called_mask;
    from->called = NULL;
    from->called_slots = NULL;
    from->called_count = from->called_capacity = from->called_mask = 0;
}

void fe_signature_replace_called(fe_signature *s, uint32_t old, uint32_t new)
{
    if (!s->called_count)
        return;
    uint32_t slot = find_called(s, old), i = s->called_slots[slot];
    if (i != EMPTY)
        empty_slot(s, slot);
    while (i != EMPTY) {
        uint32_t next = s->called[i].next;
        s->called[i].node = new;
        link_called(s, i);
        i = next;
    }
}

/* ---- following edits ---- */

static void set_node(fe_spec *s, uint32_t node)
{
    if (s->node != node)
        s->origin = 0;
    s->node = node;
}

void fe_signature_replace_output(fe_signature *s, uint32_t old, uint32_t new)
{
    for (uint32_t i = 0; i < s->output_count; i++) {
        if (s->outputs[i].node == old)
            set_node(&s->outputs[i], new);
    }
}

static fe_value without_tree(fe_value v)
{
    return v.kind <= FE_FLOAT || v.kind == FE_STR ? v : (fe_value){.kind = FE_NONE};
}

void fe_signature_set_outputs(fe_signature *s, const fe_value *results, uint32_t count)
{
    if (count != s->output_count)
        return;
    for (uint32_t i = 0; i < s->output_count; i++) {
        fe_value v = results[i];
        set_node(&s->outputs[i], v.kind == FE_NODE ? v.as.node : FE_NONE_ID);
        s->outputs[i].value = without_tree(v);
    }
}

void fe_signature_rename_input(fe_signature *s, const fe_string *old, fe_string *new)
{
    for (uint32_t i = 0; i < s->output_count; i++) {
        fe_spec *spec = &s->outputs[i];
        if (spec->target == old &&
            (spec->kind == FE_OUTPUT_USER_INPUT_MUTATION || spec->kind == FE_OUTPUT_GRADIENT_TO_USER_INPUT))
            spec->target = new;
    }
    for (uint32_t i = 0; i < s->input_count; i++) {
        if (s->inputs[i].node == FE_NONE_ID && s->inputs[i].name == old)
            s->inputs[i].name = new;
    }
}

static void remove_input(fe_signature *s, uint32_t i)
{
    memmove(&s->inputs[i], &s->inputs[i + 1], (s->input_count - i - 1) * sizeof *s->inputs);
    s->input_count--;
}

bool fe_signature_forget_input(fe_signature *s, uint32_t node)
{
    for (uint32_t i = 0; i < s->input_count; i++) {
        if (s->inputs[i].node == node) {
            remove_input(s, i);
            return true;
        }
    }
    return false;
}

bool fe_signature_is_constant(const fe_signature *s, uint32_t position)
{
    return position < s->input_count && s->inputs[position].node == FE_NONE_ID;
}

void fe_signature_forget_constant(fe_signature *s, uint32_t position)
{
    if (fe_signature_is_constant(s, position))
        remove_input(s, position);
}

void fe_signature_erase_inputs(fe_graph *g, const uint8_t *gone)
{
    fe_signature *s = g->signature;
    uint32_t id = g->nodes[FE_ROOT].next, kept = 0;

    g->signature = NULL; /* so that erasing a node does not look for it there */
    for (uint32_t i = 0; i < s->input_count; i++) {
        while (id != FE_ROOT && g->nodes[id].op != FE_OP_PLACEHOLDER)
            id = g->nodes[id].next;
        assert(id != FE_ROOT);
        uint32_t next = g->nodes[id].next;
        if (gone[i])
            fe_node_erase(g, id);
        else
            s->inputs[kept++] = s->inputs[i];
        id = next;
    }
    s->input_count = kept;
    g->signature = s;
}
