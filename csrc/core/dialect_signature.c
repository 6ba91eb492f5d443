/* dialect_signature.c - the signature of an exported program against its graph and weights. See dialect.h.
 *
 * As torch.export has it, results are read in three parts: tokens, updates of inputs, what the caller gets. How long the
 * first two are the signature tells; a name that it gives two updates of one kind counts once.
 */
#include "dialect.h"

/* Names by what they stand for. Inputs are there under their kinds, updates under UPDATE plus theirs. */
#define UPDATE 64u

typedef struct {
    const fe_string *name; /* NULL: free */
    uint32_t kind, spec;
} table_slot;

typedef struct {
    table_slot *slots;
    uint32_t mask;
} name_table;

typedef struct {
    const fe_graph *g;
    const fe_signature *s;
    const fe_signature_facts *facts;
    fe_report *faults;
    fe_error *err;
    name_table names;
    const fe_value *results;
    uint32_t result_count, stride; /* stride: 2 when the results are the keys of a dict */
    uint32_t users_token;          /* an input that is the user's and a token, or FE_NONE_ID */
    bool all, full, failed;
} checker;

static void fault(checker *c, fe_signature_fault code, uint32_t spec, uint32_t result)
{
    if (c->full)
        return;
    c->failed = fe_report_add(c->faults, (uint8_t)code, spec, result, c->err) < 0;
    c->full = c->failed || !c->all;
}

/* ---- names ---- */

static int init_table(checker *c)
{
    size_t need = ((size_t)c->s->input_count + c->s->output_count) * 2 + 1, size = 16;

    while (size < need)
        size *= 2;
    if (size > UINT32_MAX / sizeof *c->names.slots)
        return fe_no_memory(c->err);
    c->names.slots = fe_resize(c->g->allocator, NULL, size * sizeof *c->names.slots);
    if (!c->names.slots)
        return fe_no_memory(c->err);
    memset(c->names.slots, 0, size * sizeof *c->names.slots);
    c->names.mask = (uint32_t)size - 1;
    return 0;
}

/* The slot of a name, or the free one where it belongs. */
static table_slot *slot_of(const name_table *t, const fe_string *name, uint32_t kind)
{
    uint32_t i = (uint32_t)fe_mix((uint64_t)(uintptr_t)name + kind) & t->mask;

    while (t->slots[i].name && (t->slots[i].name != name || t->slots[i].kind != kind))
        i = (i + 1) & t->mask;
    return &t->slots[i];
}

/* Whether the name is new. The last to come stays. */
static bool put(name_table *t, const fe_string *name, uint32_t kind, uint32_t spec)
{
    table_slot *slot = slot_of(t, name, kind);
    bool is_new = !slot->name;

    *slot = (table_slot){.name = name, .kind = kind, .spec = spec};
    return is_new;
}

static const fe_string *name_of(const fe_graph *g, uint32_t node)
{
    return node == FE_NONE_ID ? NULL : g->details[node].name;
}

/* What torch compares: the name of a node; a constant that is a string does as well. */
static const fe_string *text_of(const fe_graph *g, fe_value v)
{
    return v.kind == FE_NODE ? name_of(g, v.as.node) : v.kind == FE_STR ? v.as.string : NULL;
}

static uint32_t class_of(uint8_t facts)
{
    return facts & FE_ARGUMENT_CLASS;
}

/* ---- inputs ---- */

static bool class_fits(uint8_t kind, uint8_t facts)
{
    switch (kind) {
    case FE_INPUT_USER:
        return true;
    case FE_INPUT_CUSTOM_OBJ:
        return class_of(facts) == FE_ARGUMENT_CUSTOM_OBJ;
    case FE_INPUT_TOKEN:
        return class_of(facts) == FE_ARGUMENT_TOKEN;
    default:
        return class_of(facts) == FE_ARGUMENT_TENSOR;
    }
}

static void check_buffer(checker *c, uint32_t i, const fe_spec *spec, uint8_t facts)
{
    if (facts & FE_SPEC_NO_PERSISTENCE)
        fault(c, FE_SIGNATURE_BUFFER_PERSISTENCE, i, FE_NONE_ID);
    else if (spec->persistent && !(facts & (FE_SPEC_IN_STATE | FE_SPEC_IN_CONSTANTS)))
        fault(c, FE_SIGNATURE_BUFFER_MISSING, i, FE_NONE_ID);
    else if (!spec->persistent && facts & FE_SPEC_IN_STATE)
        fault(c, FE_SIGNATURE_BUFFER_IN_STATE, i, FE_NONE_ID);
}

static void check_weight(checker *c, uint32_t i, const fe_spec *spec, uint8_t facts)
{
    if (spec->kind == FE_INPUT_BUFFER)
        check_buffer(c, i, spec, facts);
    else if (spec->kind != FE_INPUT_PARAMETER && !(facts & FE_SPEC_IN_CONSTANTS))
        fault(c, FE_SIGNATURE_CONSTANT_MISSING, i, FE_NONE_ID);
    else if (spec->kind == FE_INPUT_PARAMETER && !(facts & FE_SPEC_IN_STATE))
        fault(c, FE_SIGNATURE_PARAMETER_MISSING, i, FE_NONE_ID);
    else if (spec->kind == FE_INPUT_PARAMETER && !(facts & FE_SPEC_IS_PARAMETER))
        fault(c, FE_SIGNATURE_PARAMETER_TYPE, i, FE_NONE_ID);
}

static void check_input(checker *c, uint32_t i)
{
    const fe_spec *spec = &c->s->inputs[i];
    uint8_t facts = c->facts->inputs[i];

    if (!class_fits(spec->kind, facts))
        fault(c, FE_SIGNATURE_INPUT_CLASS, i, FE_NONE_ID);
    else if (spec->kind == FE_INPUT_USER || spec->kind == FE_INPUT_TOKEN)
        return;
    else if (!spec->target)
        fault(c, FE_SIGNATURE_INPUT_TARGET, i, FE_NONE_ID);
    else
        check_weight(c, i, spec, facts);
}

static uint32_t next_placeholder(const fe_graph *g, uint32_t id)
{
    for (id = g->nodes[id].next; id != FE_ROOT && g->nodes[id].op != FE_OP_PLACEHOLDER;)
        id = g->nodes[id].next;
    return id;
}

static uint32_t count_placeholders(const fe_graph *g)
{
    uint32_t count = 0;

    for (uint32_t id = next_placeholder(g, FE_ROOT); id != FE_ROOT; id = next_placeholder(g, id))
        count++;
    return count;
}

static void check_inputs(checker *c)
{
    bool placed = count_placeholders(c->g) == c->s->input_count;
    uint32_t id = FE_ROOT;

    if (!placed)
        fault(c, FE_SIGNATURE_INPUT_COUNT, FE_NONE_ID, FE_NONE_ID);
    for (uint32_t i = 0; i < c->s->input_count && !c->full; i++) {
        id = placed ? next_placeholder(c->g, id) : FE_ROOT;
        if (placed && class_of(c->facts->inputs[i]) < FE_ARGUMENT_CONSTANT && c->s->inputs[i].node != id)
            fault(c, FE_SIGNATURE_INPUT_NAME, i, FE_NONE_ID);
        check_input(c, i);
    }
}

/* ---- outputs ---- */

/* What the output returns; false: no sequence. */
static bool find_results(checker *c, uint32_t output)
{
    const fe_seq *args = c->g->details[output].args;
    fe_value v = args && args->len ? args->items[0] : (fe_value){.kind = FE_NULL};

    if (v.kind != FE_TUPLE && v.kind != FE_LIST && v.kind != FE_DICT)
        return false;
    c->results = v.as.seq->items;
    c->stride = v.kind == FE_DICT ? 2 : 1;
    c->result_count = v.as.seq->len / c->stride;
    return true;
}

static fe_value result_at(const checker *c, uint32_t i)
{
    return c->results[(size_t)i * c->stride];
}

static bool is_update(const fe_spec *spec)
{
    return spec->kind == FE_OUTPUT_BUFFER_MUTATION || spec->kind == FE_OUTPUT_PARAMETER_MUTATION ||
           spec->kind == FE_OUTPUT_USER_INPUT_MUTATION;
}

static bool is_users(const fe_spec *spec)
{
    return spec->kind == FE_OUTPUT_USER || spec->kind == FE_OUTPUT_LOSS;
}

/* Note the updates, and see how many results are tokens and how many updates. */
static void read_outputs(checker *c, uint32_t *tokens, uint32_t *updates)
{
    *tokens = *updates = 0;
    for (uint32_t i = 0; i < c->s->output_count; i++) {
        const fe_spec *spec = &c->s->outputs[i];
        uint32_t class = class_of(c->facts->outputs[i]);
        const fe_string *name = name_of(c->g, spec->node);
        if ((spec->kind == FE_OUTPUT_TOKEN) != (class == FE_ARGUMENT_TOKEN) &&
            (spec->kind == FE_OUTPUT_TOKEN || is_users(spec)))
            fault(c, FE_SIGNATURE_OUTPUT_CLASS, i, FE_NONE_ID);
        *tokens += spec->kind == FE_OUTPUT_TOKEN;
        if (is_update(spec) && class == FE_ARGUMENT_TENSOR && spec->target && name)
            *updates += put(&c->names, name, UPDATE + spec->kind, i);
    }
}

/* Note what updates can be of. */
static void read_inputs(checker *c)
{
    for (uint32_t i = 0; i < c->s->input_count; i++) {
        const fe_spec *spec = &c->s->inputs[i];
        const fe_string *name = spec->target;
        if (spec->kind == FE_INPUT_USER && class_of(c->facts->inputs[i]) == FE_ARGUMENT_TOKEN)
            c->users_token = i;
        if (spec->kind == FE_INPUT_USER)
            name = class_of(c->facts->inputs[i]) != FE_ARGUMENT_CONSTANT ? name_of(c->g, spec->node)
                                                                         : text_of(c->g, spec->value);
        if (name)
            (void)put(&c->names, name, spec->kind, i);
    }
}

/* torch looks for buffers first, then parameters, then the user's inputs; of those it makes a list, and no token may be in
 * that. */
static void check_update(checker *c, uint32_t result)
{
    static const struct {
        uint8_t update, input;
    } kinds[] = {{FE_OUTPUT_BUFFER_MUTATION, FE_INPUT_BUFFER},
                 {FE_OUTPUT_PARAMETER_MUTATION, FE_INPUT_PARAMETER},
                 {FE_OUTPUT_USER_INPUT_MUTATION, FE_INPUT_USER}};
    const fe_string *name = text_of(c->g, result_at(c, result));

    for (size_t k = 0; name && k < sizeof kinds / sizeof *kinds; k++) {
        const table_slot *slot = slot_of(&c->names, name, UPDATE + kinds[k].update);
        if (!slot->name)
            continue;
        if (kinds[k].input == FE_INPUT_USER && c->users_token != FE_NONE_ID)
            fault(c, FE_SIGNATURE_INPUT_CLASS, c->users_token, FE_NONE_ID);
        else if (!slot_of(&c->names, c->s->outputs[slot->spec].target, kinds[k].input)->name)
            fault(c, FE_SIGNATURE_MUTATION_TARGET, slot->spec, result);
        return;
    }
    fault(c, FE_SIGNATURE_MUTATION_RESULT, FE_NONE_ID, result);
}

static bool is_whole(fe_value v)
{
    return v.kind == FE_BOOL || v.kind == FE_INT;
}

static int64_t whole_of(fe_value v)
{
    return v.kind == FE_BOOL ? v.as.boolean : v.as.integer;
}

/* Python's ==, without rounding. */
static bool equals_real(fe_value whole, double real)
{
    return real >= -0x1p63 && real < 0x1p63 && (int64_t)real == whole_of(whole) && (double)(int64_t)real == real;
}

static bool numbers_equal(fe_value a, fe_value b)
{
    if (is_whole(a) && is_whole(b))
        return whole_of(a) == whole_of(b);
    if (a.kind == FE_FLOAT && b.kind == FE_FLOAT)
        return a.as.real == b.as.real;
    return is_whole(a) ? equals_real(a, b.as.real) : equals_real(b, a.as.real);
}

static bool is_plain(fe_value v)
{
    return v.kind == FE_NONE || v.kind == FE_STR || v.kind == FE_FLOAT || is_whole(v);
}

static bool constants_equal(fe_value a, fe_value b)
{
    if (a.kind == FE_STR || b.kind == FE_STR)
        return a.kind == b.kind && a.as.string == b.as.string;
    if (a.kind == FE_NONE || b.kind == FE_NONE)
        return a.kind == b.kind;
    return numbers_equal(a, b);
}

static void check_user_output(checker *c, uint32_t i, uint32_t result)
{
    const fe_spec *spec = &c->s->outputs[i];
    fe_value got = result_at(c, result);
    const fe_string *name = text_of(c->g, got);

    if (class_of(c->facts->outputs[i]) == FE_ARGUMENT_CONSTANT) {
        fe_value found = name ? (fe_value){.kind = FE_STR, .as.string = (fe_string *)(uintptr_t)name} : got;
        if (!is_plain(found) || (spec->value.kind == FE_NONE && c->facts->outputs[i] & FE_SPEC_OBJECT))
            fault(c, FE_SIGNATURE_USER_CONSTANT, i, result);
        else if (!constants_equal(found, spec->value))
            fault(c, FE_SIGNATURE_USER_OUTPUT, i, result);
    } else if (!name || name != name_of(c->g, spec->node)) {
        fault(c, FE_SIGNATURE_USER_OUTPUT, i, result);
    }
}

static void check_outputs(checker *c)
{
    uint32_t output = c->g->nodes[FE_ROOT].prev, tokens, updates, result;

    if (output == FE_ROOT || c->g->nodes[output].op != FE_OP_OUTPUT) {
        fault(c, FE_SIGNATURE_NO_OUTPUT, FE_NONE_ID, FE_NONE_ID);
        return;
    }
    if (!find_results(c, output)) {
        fault(c, FE_SIGNATURE_OUTPUT_FORM, FE_NONE_ID, FE_NONE_ID);
        return;
    }
    if (c->result_count != c->s->output_count) {
        fault(c, FE_SIGNATURE_OUTPUT_COUNT, FE_NONE_ID, FE_NONE_ID);
        return;
    }
    read_outputs(c, &tokens, &updates);
    if (updates)
        read_inputs(c);
    for (result = tokens; result < tokens + updates && !c->full; result++)
        check_update(c, result);
    for (uint32_t i = 0; i < c->s->output_count && result < c->result_count && !c->full; i++) {
        if (is_users(&c->s->outputs[i]))
            check_user_output(c, i, result++);
    }
}

/* ---- */

int fe_check_signature(const fe_graph *g, const fe_signature_facts *facts, bool all, fe_report *faults, fe_error *err)
{
    checker c = {
        .g = g, .s = g->signature, .facts = facts, .faults = faults, .err = err, .users_token = FE_NONE_ID, .all = all};

    if (init_table(&c) < 0)
        return -1;
    check_inputs(&c);
    if (!c.full)
        check_outputs(&c);
    fe_resize(g->allocator, c.names.slots, 0);
    return c.failed ? -1 : 0;
}

const char *fe_signature_fault_name(fe_signature_fault fault)
{
    static const char *const names[] = {
#define X(id) #id,
        FE_SIGNATURE_FAULTS(X)
#undef X
    };

    return names[fault];
}
