/* fuzz_write.c - libFuzzer target: the first bytes are edits, the rest is a model.json; the edited program is written.
 *
 * Beyond what the sanitizers see: what is written can be read again, when the verifier had nothing against it.
 */
#include "document.h"
#include "mutate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);

#define EDITS 8
#define EDIT_BYTES (EDITS * 3)

/* The node of a number, among those in the list. */
static uint32_t some_node(const fe_graph *g, unsigned number)
{
    uint32_t id = g->nodes[FE_ROOT].next;

    for (unsigned i = 0; g->live && i < number % g->live; i++)
        id = g->nodes[id].next;
    return id;
}

static void rename_node(fe_graph *g, uint32_t id, unsigned number)
{
    char text[32];
    fe_error err;
    int len = snprintf(text, sizeof text, "renamed_%u", number);
    fe_string *name = fe_string_get(g, text, (size_t)len, &err);

    MUST(name);
    if (fe_name_owner(g, name) == FE_NONE_ID)
        fe_node_set_name(g, id, name);
}

static void edit(pt2_graph *graph, const uint8_t *how)
{
    fe_graph *g = graph->core;
    fe_error err;
    uint32_t id = some_node(g, how[1]), other = some_node(g, how[2]);

    if (!g->live)
        return;
    switch (how[0] % 5) {
    case 0:
        rename_node(g, id, how[2]);
        return;
    case 1:
        if (g->nodes[id].op != FE_OP_OUTPUT && !g->nodes[id].user_count)
            fe_node_erase(g, id);
        return;
    case 2:
        if (g->nodes[other].op != FE_OP_OUTPUT && g->nodes[id].op != FE_OP_OUTPUT &&
            g->nodes[other].pos < g->nodes[id].pos)
            MUST(fe_node_replace_all_uses(g, id, other, &err) == 0);
        return;
    case 3:
        if (g->nodes[id].op == FE_OP_CALL_FUNCTION)
            MUST(fe_node_set_arguments(g, id, NULL, NULL, &err) == 0);
        return;
    default:
        if (graph->subgraph_count)
            edit(graph->subgraphs[how[1] % graph->subgraph_count], (const uint8_t[]){how[2], how[0], how[1]});
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    document d, again;
    fe_buffer written;

    if (size < EDIT_BYTES)
        return 0;
    document_open(&d, data + EDIT_BYTES, size - EDIT_BYTES, NULL);
    for (int i = 0; d.program && i < EDITS; i++)
        edit(d.program->root, data + i * 3);
    fe_buffer_init(&written, &fe_libc_allocator);
    if (d.program && pt2_program_verify(d.program, d.program->root, PT2_LENIENT, &d.report) == 0 && !d.report.errors &&
        pt2_program_write(d.program, d.program->root, &written, &d.report) == 0) {
        document_open(&again, written.data, written.len, NULL);
        if (!again.program)
            document_print_faults(&again);
        MUST(again.program);
        document_write_again(&again);
        document_close(&again);
    }
    fe_buffer_clear(&written);
    document_close(&d);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    if (size <= EDIT_BYTES || most <= EDIT_BYTES)
        return LLVMFuzzerMutate(data, size, most);
    if (fe_mix(seed) % 3 == 0) {
        LLVMFuzzerMutate(data, EDIT_BYTES, EDIT_BYTES);
        return size;
    }
    return EDIT_BYTES + mutate_json(data + EDIT_BYTES, size - EDIT_BYTES, most - EDIT_BYTES, seed);
}
