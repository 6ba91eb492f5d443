/* test_dialect.c - each rule of dialects and signatures is broken once, and the check must say which.
 *
 * Facts are written as letters. Of a node's target: A allowed, W writes, N returns nothing, R refused, M missing; of a
 * value: - none, + fine, x bad.
 */
#include "check.h"
#include "dialect.h"

#include <math.h>

#define FACTS 64

/* ---- nodes ---- */

typedef struct {
    uint8_t targets[FACTS], values[FACTS];
} node_facts;

static uint8_t target_facts(const char *letters)
{
    uint8_t facts = 0;

    for (; *letters; letters++)
        facts |= (uint8_t)(*letters == 'A'   ? FE_FACT_ALLOWED
                           : *letters == 'W' ? FE_FACT_WRITES
                           : *letters == 'N' ? FE_FACT_NO_RESULT
                           : *letters == 'R' ? FE_FACT_REFUSED
                                             : FE_FACT_MISSING);
    return facts;
}

/* All calls are allowed and all have values. */
static node_facts good_facts(const fe_graph *g)
{
    node_facts f;

    CHECK(g->target_count < FACTS && g->node_count < FACTS);
    memset(f.targets, FE_FACT_ALLOWED, sizeof f.targets);
    memset(f.values, FE_VALUE_FINE, sizeof f.values);
    return f;
}

static const char *dialect_faults(const fe_graph *g, const fe_dialect_facts *facts, bool all)
{
    static test_text t;
    fe_report faults;
    fe_error err;

    t = (test_text){.len = 0};
    fe_report_init(&faults, &fe_libc_allocator);
    DO(fe_check_dialect(g, facts, all, &faults, &err));
    for (uint32_t i = 0; i < faults.len; i++) {
        const char *code = fe_dialect_fault_name((fe_dialect_fault)faults.items[i].code);
        if (i)
            text_add(&t, "; ", 2);
        text_add(&t, code, strlen(code));
        text_name(&t, g, faults.items[i].node);
        if (faults.items[i].other != FE_NONE_ID)
            text_name(&t, g, faults.items[i].other);
    }
    fe_report_clear(&faults);
    return t.data;
}

/* check.h writes calls of methods: make them calls of functions. */
static fe_graph *program_of(const char *lines)
{
    fe_graph *g = graph_of(lines);

    for (uint32_t id = fe_node_next(g, FE_ROOT); id != FE_ROOT; id = fe_node_next(g, id)) {
        if (g->nodes[id].op == FE_OP_CALL_METHOD)
            fe_node_set_target(g, id, target_of(g, FE_OP_CALL_FUNCTION, g->targets[g->nodes[id].target].text->data));
    }
    return g;
}

#define CHAIN "x; w = @weight; a = f x; b = g a w; return (b)"

/* What comes of a program with other facts about one node. */
static void check_facts(const char *name, const char *target, char value, bool functional, const char *want)
{
    fe_graph *g = program_of(CHAIN);
    node_facts f = good_facts(g);
    uint32_t id = node(g, name);

    f.targets[g->nodes[id].target] = target_facts(target);
    f.values[id] = value == '-' ? FE_VALUE_NONE : value == '+' ? FE_VALUE_FINE : FE_VALUE_BAD;
    fe_dialect_facts facts = {f.targets, f.values, functional};
    CHECK_TEXT(dialect_faults(g, &facts, true), want);
    const char *first = dialect_faults(g, &facts, false);
    CHECK(strncmp(first, want, strlen(first)) == 0 && !strchr(first, ';') && !*first == !*want);
    facts.values = NULL;
    if (value != '+' && !strchr(want, ';'))
        CHECK_TEXT(dialect_faults(g, &facts, true), "");
    fe_graph_free(g);
}

static void test_facts(void)
{
    check_facts("a", "A", '+', true, "");
    check_facts("a", "AW", '+', false, "");
    check_facts("a", "AW", '+', true, "WRITES a");
    check_facts("a", "AR", '+', true, "REFUSED a");
    check_facts("a", "", '+', true, "NOT_ALLOWED a");
    check_facts("a", "W", '+', true, "NOT_ALLOWED a");
    check_facts("a", "A", '-', true, "NO_VALUE a");
    check_facts("a", "AN", '-', true, "");
    check_facts("a", "AN", 'x', true, "BAD_VALUE a");
    check_facts("a", "", 'x', true, "BAD_VALUE a; NOT_ALLOWED a");
    check_facts("x", "", '-', true, "NO_VALUE x");
    check_facts("x", "N", '-', true, "NO_VALUE x");
    check_facts("x", "", 'x', true, "BAD_VALUE x");
    check_facts("w", "A", '-', true, "");
    check_facts("w", "", '+', true, "BAD_ATTRIBUTE w");
    check_facts("w", "M", '+', true, "NO_ATTRIBUTE w");
    check_facts("output", "", 'x', true, "");
}

static void test_structure(void)
{
    fe_graph *g = program_of(CHAIN);
    node_facts f = good_facts(g);
    fe_dialect_facts facts = {f.targets, f.values, true};

    CHECK_TEXT(dialect_faults(g, &facts, true), "");
    build(g, "c = h x; return (c)");
    CHECK_TEXT(dialect_faults(g, &facts, true), "AFTER_OUTPUT c output; METHOD c");
    g->targets[g->nodes[node(g, "b")].target].flags |= FE_TARGET_NOT_CALLABLE;
    CHECK_TEXT(dialect_faults(g, &facts, false), "TARGET_TYPE b");
    fe_graph_free(g);
    g = graph_of("x; m = #layer x; return (m)");
    f = good_facts(g);
    CHECK_TEXT(dialect_faults(g, &facts, true), "METHOD m");
    fe_graph_free(g);
    g = graph_new();
    CHECK_TEXT(dialect_faults(g, &facts, true), "");
    fe_graph_free(g);
}

/* ---- signatures ---- */

/* One input or output: kind, the class of its argument with facts, node (NULL: the constant 7), target. */
typedef struct {
    uint8_t kind, facts;
    const char *node, *target;
    bool persistent;
} spec_row;

#define TENSOR FE_ARGUMENT_TENSOR
#define CONSTANT FE_ARGUMENT_CONSTANT
#define WEIGHT (FE_SPEC_IN_STATE | FE_SPEC_IS_PARAMETER)

static const spec_row good_inputs[] = {
    {FE_INPUT_PARAMETER, TENSOR | WEIGHT, "p", "fc.weight", false},
    {FE_INPUT_BUFFER, TENSOR | FE_SPEC_IN_STATE, "q", "seen", true},
    {FE_INPUT_CONSTANT_TENSOR, TENSOR | FE_SPEC_IN_CONSTANTS, "r", "offset", false},
    {FE_INPUT_CUSTOM_OBJ, FE_ARGUMENT_CUSTOM_OBJ | FE_SPEC_IN_CONSTANTS, "s", "object", false},
    {FE_INPUT_TOKEN, FE_ARGUMENT_TOKEN, "t", NULL, false},
    {FE_INPUT_USER, FE_ARGUMENT_SYM_INT, "u", NULL, false},
    {FE_INPUT_USER, CONSTANT, NULL, NULL, false},
};

static const spec_row good_outputs[] = {
    {FE_OUTPUT_TOKEN, FE_ARGUMENT_TOKEN, "a", NULL, false},
    {FE_OUTPUT_BUFFER_MUTATION, TENSOR, "b", "seen", false},
    {FE_OUTPUT_PARAMETER_MUTATION, TENSOR, "c", "fc.weight", false},
    {FE_OUTPUT_USER_INPUT_MUTATION, TENSOR, "d", "u", false},
    {FE_OUTPUT_USER, TENSOR, "e", NULL, false},
    {FE_OUTPUT_USER, CONSTANT, NULL, NULL, false},
    {FE_OUTPUT_LOSS, TENSOR, "a", NULL, false},
    {FE_OUTPUT_GRADIENT_TO_PARAMETER, TENSOR, "b", "fc.weight", false},
};

#define INPUTS (sizeof good_inputs / sizeof *good_inputs)
#define OUTPUTS (sizeof good_outputs / sizeof *good_outputs)
#define GOOD_OUTPUT "return (a,b,c,d,e,7,a,b)"
#define BODY "p; q; r; s; t; u; v; a = f p; b = f q; c = f r; d = f a; e = f b; "

typedef struct {
    spec_row inputs[INPUTS], outputs[OUTPUTS];
    size_t input_count, output_count;
    uint8_t input_facts[INPUTS], output_facts[OUTPUTS];
} program_rows;

static program_rows good_rows(void)
{
    program_rows rows = {.input_count = INPUTS, .output_count = OUTPUTS};

    memcpy(rows.inputs, good_inputs, sizeof good_inputs);
    memcpy(rows.outputs, good_outputs, sizeof good_outputs);
    return rows;
}

static fe_spec spec_of(fe_graph *g, const spec_row *row)
{
    return (fe_spec){.kind = row->kind,
                     .persistent = row->persistent,
                     .node = row->node ? node(g, row->node) : FE_NONE_ID,
                     .target = row->target ? str(g, row->target) : NULL,
                     .value = value_int(7)};
}

static void add_signature(fe_graph *g, program_rows *rows)
{
    fe_error err;

    CHECK((g->signature = fe_signature_new(g->allocator)));
    for (size_t i = 0; i < rows->input_count; i++) {
        rows->input_facts[i] = rows->inputs[i].facts;
        DO(fe_signature_add_input(g->signature, spec_of(g, &rows->inputs[i]), &err));
    }
    for (size_t i = 0; i < rows->output_count; i++) {
        rows->output_facts[i] = rows->outputs[i].facts;
        DO(fe_signature_add_output(g->signature, spec_of(g, &rows->outputs[i]), &err));
    }
}

static void add_number(test_text *t, uint32_t number)
{
    char text[16];

    text_add(t, text, (size_t)snprintf(text, sizeof text, number == FE_NONE_ID ? " -" : " %u", number));
}

static const char *signature_text(const fe_graph *g, const program_rows *rows, bool all)
{
    static test_text t;
    fe_signature_facts facts = {rows->input_facts, rows->output_facts};
    fe_report faults;
    fe_error err;

    t = (test_text){.len = 0};
    fe_report_init(&faults, &fe_libc_allocator);
    DO(fe_check_signature(g, &facts, all, &faults, &err));
    for (uint32_t i = 0; i < faults.len; i++) {
        const char *code = fe_signature_fault_name((fe_signature_fault)faults.items[i].code);
        if (i)
            text_add(&t, "; ", 2);
        text_add(&t, code, strlen(code));
        add_number(&t, faults.items[i].node);
        add_number(&t, faults.items[i].other);
    }
    fe_report_clear(&faults);
    return t.data;
}

static void check_rows(program_rows *rows, const char *output, const char *want)
{
    fe_graph *g = program_of(BODY);

    build(g, output);
    add_signature(g, rows);
    CHECK_TEXT(signature_text(g, rows, true), want);
    const char *first = signature_text(g, rows, false);
    CHECK(strncmp(first, want, strlen(first)) == 0 && !strchr(first, ';') && !*first == !*want);
    fe_graph_free(g);
}

/* What comes of a good program with one thing changed. */
#define CHANGED(change, want)                   \
    do {                                        \
        program_rows rows = good_rows();        \
        change;                                 \
        check_rows(&rows, GOOD_OUTPUT, (want)); \
    } while (0)

static void test_inputs(void)
{
    CHANGED((void)0, "");
    CHANGED(rows.input_count--, "INPUT_COUNT - -");
    CHANGED(rows.inputs[0].node = "q", "INPUT_NAME 0 -");
    CHANGED(rows.inputs[5].node = "v", "INPUT_NAME 5 -; MUTATION_TARGET 3 3");
    CHANGED(rows.inputs[3].node = "v", ""); /* names of objects and tokens are not looked at */
    CHANGED(rows.inputs[4].node = "v", "");
    CHANGED(rows.inputs[0].facts = FE_ARGUMENT_SYM_INT | WEIGHT, "INPUT_CLASS 0 -");
    CHANGED(rows.inputs[0].facts = CONSTANT | WEIGHT, "INPUT_CLASS 0 -");
    CHANGED(rows.inputs[1].facts = FE_ARGUMENT_TOKEN, "INPUT_CLASS 1 -");
    CHANGED(rows.inputs[2].facts = FE_ARGUMENT_CUSTOM_OBJ, "INPUT_CLASS 2 -");
    CHANGED(rows.inputs[3].facts = TENSOR, "INPUT_CLASS 3 -");
    CHANGED(rows.inputs[4].facts = TENSOR, "INPUT_CLASS 4 -");
    CHANGED(rows.inputs[0].target = NULL, "INPUT_TARGET 0 -; MUTATION_TARGET 2 2");
    CHANGED(rows.inputs[1].target = NULL, "INPUT_TARGET 1 -; MUTATION_TARGET 1 1");
    CHANGED(rows.inputs[2].target = NULL, "INPUT_TARGET 2 -");
    CHANGED(rows.inputs[3].target = NULL, "INPUT_TARGET 3 -");
    CHANGED(rows.inputs[0].facts = TENSOR, "PARAMETER_MISSING 0 -");
    CHANGED(rows.inputs[0].facts = TENSOR | FE_SPEC_IN_STATE, "PARAMETER_TYPE 0 -");
    CHANGED(rows.inputs[1].facts = TENSOR, "BUFFER_MISSING 1 -");
    CHANGED(rows.inputs[1].facts = TENSOR | FE_SPEC_IN_CONSTANTS, "");
    CHANGED(rows.inputs[1].facts |= FE_SPEC_NO_PERSISTENCE, "BUFFER_PERSISTENCE 1 -");
    CHANGED(rows.inputs[1].persistent = false, "BUFFER_IN_STATE 1 -");
    CHANGED(rows.inputs[5].facts = FE_ARGUMENT_TOKEN,
            "INPUT_CLASS 5 -"); /* as an input that is updated is looked for */
    CHANGED((rows.inputs[1].persistent = false, rows.inputs[1].facts = TENSOR), "");
    CHANGED(rows.inputs[2].facts = TENSOR, "CONSTANT_MISSING 2 -");
    CHANGED(rows.inputs[3].facts = FE_ARGUMENT_CUSTOM_OBJ, "CONSTANT_MISSING 3 -");
}

static void test_outputs(void)
{
    CHANGED(rows.output_count--, "OUTPUT_COUNT - -");
    CHANGED(rows.outputs[0].facts = TENSOR, "OUTPUT_CLASS 0 -");
    CHANGED(rows.outputs[4].facts = FE_ARGUMENT_TOKEN, "OUTPUT_CLASS 4 -");
    CHANGED(rows.outputs[1].target = "fc.weight", "MUTATION_TARGET 1 1");
    CHANGED(rows.outputs[2].target = "seen", "MUTATION_TARGET 2 2");
    CHANGED(rows.outputs[3].target = "seen", "MUTATION_TARGET 3 3");
    CHANGED(rows.outputs[1].node = "e", "MUTATION_RESULT - 1");
    CHANGED(rows.outputs[4].node = "d", "USER_OUTPUT 4 4");
    CHANGED(rows.outputs[6].node = "b", "USER_OUTPUT 6 6");
    CHANGED(rows.outputs[7].node = "e", ""); /* gradients are not compared */
    /* An update that has no target is none, so what follows stands one place further in front. */
    CHANGED(rows.outputs[3].target = NULL, "USER_OUTPUT 4 3; USER_OUTPUT 5 4; USER_OUTPUT 6 5");
    CHANGED(rows.outputs[5].facts = CONSTANT | FE_SPEC_OBJECT, "");
}

static void check_results(const char *output, const char *want)
{
    program_rows rows = good_rows();

    check_rows(&rows, output, want);
}

static void test_results(void)
{
    check_results("", "NO_OUTPUT - -");
    check_results("return", "OUTPUT_FORM - -");
    check_results("return a", "OUTPUT_FORM - -");
    check_results("return 1", "OUTPUT_FORM - -");
    check_results("return ()", "OUTPUT_COUNT - -");
    check_results("return [a,b,c,d,e,7,a,b]", "");
    check_results("return (a,b,c,d,e,8,a,b)", "USER_OUTPUT 5 5");
    check_results("return (a,b,c,d,e,True,a,b)", "USER_OUTPUT 5 5");
    check_results("return (a,b,c,d,e,None,a,b)", "USER_OUTPUT 5 5");
    check_results("return (a,b,c,d,e,'7',a,b)", "USER_OUTPUT 5 5");
    check_results("return (a,b,c,d,e,e,a,b)", "USER_OUTPUT 5 5");
    check_results("return (a,b,c,d,None,7,a,b)", "USER_OUTPUT 4 4");
    check_results("return (a,'b',c,d,'e',7,a,b)", ""); /* torch compares the texts of names */
    check_results("return (a,1,c,d,e,7,a,b)", "MUTATION_RESULT - 1");
    check_results("return (p,b,c,d,e,7,a,b)", ""); /* tokens are not compared */
}

/* The same constant as Python's == has it. */
static void check_constant(fe_value have, fe_value want, const char *fault)
{
    program_rows rows = good_rows();
    fe_graph *g = program_of(BODY);

    build(g, GOOD_OUTPUT);
    add_signature(g, &rows);
    uint32_t output = node(g, "output");
    g->details[output].args->items[0].as.seq->items[5] = have;
    g->signature->outputs[5].value = want;
    CHECK_TEXT(signature_text(g, &rows, true), fault);
    fe_graph_free(g);
}

static fe_value value_real(double real)
{
    return (fe_value){.kind = FE_FLOAT, .as.real = real};
}

static void test_constants(void)
{
    const fe_value none = {.kind = FE_NONE}, yes = {.kind = FE_BOOL, .as.boolean = true};
    const char *differs = "USER_OUTPUT 5 5";

    check_constant(none, none, "");
    check_constant(yes, value_int(1), "");
    check_constant(yes, value_real(1.0), "");
    check_constant(yes, value_int(2), differs);
    check_constant(value_real(2.5), value_real(2.5), "");
    check_constant(value_real(2.5), value_int(2), differs);
    check_constant(value_int(INT64_MIN), value_real(-0x1p63), "");
    check_constant(value_int(INT64_MAX), value_real(0x1p63), differs);
    check_constant(value_int((INT64_C(1) << 53) + 1), value_real(0x1p53), differs);
    check_constant(value_real(1e300), value_int(1), differs);
    check_constant(value_real((double)NAN), value_real((double)NAN), differs);
    check_constant(value_real((double)NAN), value_int(0), differs);
    check_constant(none, value_int(0), differs);
    check_constant((fe_value){.kind = FE_OBJECT, .as.object = 0}, none, "USER_CONSTANT 5 5");
}

/* A name that stands for two updates of one kind counts once; of two kinds twice. */
static void test_updates_of_one_name(void)
{
    program_rows rows = good_rows();

    rows.outputs[2] = rows.outputs[1];
    check_rows(&rows, "return (a,b,d,e,7,a,b,b)", "");
    rows = good_rows();
    rows.outputs[2].node = "b";
    check_rows(&rows, "return (a,b,b,d,e,7,a,b)", "");
}

/* A user's constant input is what torch names by its value. */
static void test_update_of_a_constant(void)
{
    program_rows rows = good_rows();
    fe_graph *g = program_of(BODY);

    build(g, GOOD_OUTPUT);
    rows.outputs[3].target = "text";
    add_signature(g, &rows);
    CHECK_TEXT(signature_text(g, &rows, true), "MUTATION_TARGET 3 3");
    g->signature->inputs[6].value = value_str(g, "text");
    CHECK_TEXT(signature_text(g, &rows, true), "");
    fe_graph_free(g);
}

/* ---- memory ---- */

static void test_no_memory(void)
{
    test_memory memory;
    fe_report faults;
    fe_error err;
    program_rows rows = good_rows();
    node_facts f;
    size_t nth = 0;
    int result = -1;

    memset(&f, 0, sizeof f);
    for (; result < 0; nth++) {
        memory_init(&memory);
        fe_graph *g = fe_graph_new(&memory.allocator, NULL);
        CHECK(g);
        build(g, BODY);
        rows.inputs[0].facts = 0;
        add_signature(g, &rows);
        fe_dialect_facts dialect = {f.targets, f.values, true};
        fe_signature_facts signature = {rows.input_facts, rows.output_facts};
        fe_report_init(&faults, &memory.allocator);
        memory_fail(&memory, nth, false);
        result = fe_check_dialect(g, &dialect, true, &faults, &err);
        if (result == 0)
            result = fe_check_signature(g, &signature, true, &faults, &err);
        CHECK(result == 0 || err.code == FE_NO_MEMORY);
        memory_fail(&memory, SIZE_MAX, false);
        fe_report_clear(&faults);
        fe_graph_free(g);
        CHECK_INT(memory.blocks, 0);
    }
    CHECK(nth > 3);
}

int main(void)
{
    RUN(test_facts);
    RUN(test_structure);
    RUN(test_inputs);
    RUN(test_outputs);
    RUN(test_results);
    RUN(test_constants);
    RUN(test_updates_of_one_name);
    RUN(test_update_of_a_constant);
    RUN(test_no_memory);
    return 0;
}
