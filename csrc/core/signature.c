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

int fe_signature_add_called(fe_signature *s, fe_called called, fe_error *err)
{
    if (fe_grow(s->allocator, &s->called, &s->called_capacity, (size_t)s->called_count + 1, sizeof called, err) < 0)
        return -1;
    s->called[s->called_count++] = called;
    return 0;
}

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

void fe_signature_replace_called(fe_signature *s, uint32_t old, uint32_t new)
{
    for (uint32_t i = 0; i < s->called_count; i++) {
        if (s->called[i].node == old)
            s->called[i].node = new;
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

void fe_signature_forget_constant(fe_signature *s, uint32_t position)
{
    if (position < s->input_count && s->inputs[position].node == FE_NONE_ID)
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
