/* verify_signature.c - what a program's inputs and outputs stand for, against its graph. See verify.h.
 *
 * Rules of _verify_exported_program_signature in torch/_export/verifier.py (torch 2.13), and those that torch only
 * relies on. Targets are compared as texts, so that the cost does not grow with inputs times outputs.
 */
#include "verify.h"

#include "texts.h"

#include <stdarg.h>
#include <stdio.h>

/* Tags and keys in the document, by kind; the place of the kind in the order of inputs, or outputs. */
typedef struct {
    const char *tag, *key;
    const char *what;
    uint8_t place;
} spec_facts;

static const spec_facts inputs[] = {
    [FE_INPUT_USER] = {"user_input", NULL, "user input", 5},
    [FE_INPUT_PARAMETER] = {"parameter", "parameter_name", "parameter", 1},
    [FE_INPUT_BUFFER] = {"buffer", "buffer_name", "buffer", 2},
    [FE_INPUT_CONSTANT_TENSOR] = {"tensor_constant", "tensor_constant_name", "constant", 3},
    [FE_INPUT_CUSTOM_OBJ] = {"custom_obj", "custom_obj_name", "custom object", 4},
    [FE_INPUT_TOKEN] = {"token", NULL, "token", 0},
};

static const spec_facts outputs[] = {
    [FE_OUTPUT_USER] = {"user_output", NULL, "user output", 2},
    [FE_OUTPUT_LOSS] = {"loss_output", NULL, "loss", 2},
    [FE_OUTPUT_BUFFER_MUTATION] = {"buffer_mutation", "buffer_name", "buffer", 1},
    [FE_OUTPUT_GRADIENT_TO_PARAMETER] = {"gradient_to_parameter", "parameter_name", "parameter", 3},
    [FE_OUTPUT_GRADIENT_TO_USER_INPUT] = {"gradient_to_user_input", "user_input_name", "user input", 3},
    [FE_OUTPUT_USER_INPUT_MUTATION] = {"user_input_mutation", "user_input_name", "user input", 1},
    [FE_OUTPUT_PARAMETER_MUTATION] = {"parameter_mutation", "parameter_name", "parameter", 1},
    [FE_OUTPUT_TOKEN] = {"token", NULL, "token", 0},
};

#define INPUT_KINDS (sizeof inputs / sizeof *inputs)
#define OUTPUT_KINDS (sizeof outputs / sizeof *outputs)

typedef struct {
    pt2_verifier *v;
    const pt2_scope *scope;
    const fe_graph *core;
    const fe_signature *signature;
    fe_reserved parameters, buffers, users; /* what inputs stand for; owner: 0 */
} checker;

/* ---- places ---- */

static void add_part(pt2_spec_path *p, unsigned *count, const char *key, size_t index)
{
    p->parts[*count] = (pt2_path){.parent = *count ? &p->parts[*count - 1] : NULL, .index = index};
    if (key) {
        p->parts[*count].key = key;
        p->parts[*count].key_len = strlen(key);
    }
    p->path = &p->parts[(*count)++];
}

void pt2_verify_spec_path(pt2_spec_path *out, const fe_spec *spec, bool is_input, const char *tag, const char *key)
{
    unsigned count = 0;

    out->path = NULL;
    if (!spec->origin)
        return;
    add_part(out, &count, NULL, 0);
    add_part(out, &count, "graph_module", 0);
    add_part(out, &count, "signature", 0);
    add_part(out, &count, is_input ? "input_specs" : "output_specs", 0);
    add_part(out, &count, NULL, spec->origin - 1);
    if (tag)
        add_part(out, &count, tag, 0);
    if (tag && key)
        add_part(out, &count, key, 0);
}

static const char *name_of(const checker *c, uint32_t id)
{
    const fe_string *name = id < c->core->node_count ? c->core->details[id].name : NULL;

    return name ? name->data : NULL;
}

static void spec_fault(checker *c, pt2_severity severity, const fe_spec *spec, bool is_input, bool of_target,
                       const char *format, ...) FE_PRINTF(6, 7);

static void spec_fault(checker *c, pt2_severity severity, const fe_spec *spec, bool is_input, bool of_target,
                       const char *format, ...)
{
    const spec_facts *f = is_input ? &inputs[spec->kind] : &outputs[spec->kind];
    char message[1000];
    pt2_spec_path path;
    va_list args;

    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    pt2_verify_spec_path(&path, spec, is_input, of_target ? f->tag : NULL, f->key);
    pt2_verify_fault(c->v, PT2_SIGNATURE, severity, NULL, path.path, name_of(c, spec->node), "%s", message);
}

/* ---- inputs ---- */

static bool is_listed(const checker *c, uint32_t id, uint8_t op)
{
    return fe_node_is_listed(c->core, id) && c->core->nodes[id].op == op;
}

/* A constant input has no node in the signature; its placeholder is the one in its place. */
static bool is_constant(const fe_spec *spec)
{
    return spec->kind == FE_INPUT_USER && spec->node == FE_NONE_ID;
}

static void check_kind(checker *c, const fe_spec *spec)
{
    pt2_value_kind kind = pt2_verify_value_kind(c->scope, spec->node);
    bool object = spec->kind == FE_INPUT_CUSTOM_OBJ;

    if (spec->kind == FE_INPUT_USER || spec->kind == FE_INPUT_TOKEN || kind == PT2_VALUE_NONE)
        return;
    if (kind != (object ? PT2_VALUE_CUSTOM : PT2_VALUE_TENSOR))
        spec_fault(c, PT2_ERROR, spec, true, false, "the signature calls this a %s, so its value must be %s",
                   inputs[spec->kind].what, object ? "a custom object" : "a tensor");
}

/* Which names may stand for what: names of parameters and buffers become attributes of modules. */
static int check_target(checker *c, const fe_spec *spec)
{
    fe_reserved *table = spec->kind == FE_INPUT_PARAMETER ? &c->parameters
                         : spec->kind == FE_INPUT_BUFFER  ? &c->buffers
                                                          : NULL;

    if (!inputs[spec->kind].key)
        return 0;
    if (!spec->target) {
        spec_fault(c, PT2_ERROR, spec, true, true, "the signature does not name the %s that this input stands for",
                   inputs[spec->kind].what);
        return 0;
    }
    const char *fault = pt2_path_fault(spec->target->data, spec->target->len);
    if (fault)
        spec_fault(c, PT2_ERROR, spec, true, true, "the name '%.300s' %s; a name looks like layers.0.weight",
                   PT2_SHOWN(spec->target), fault);
    if (!table)
        return 0;
    fe_string *t = pt2_verify_intern(c->v, table, spec->target->data, spec->target->len);
    if (!t)
        return -1;
    if (t->owner != FE_NONE_ID && c->v->strict)
        spec_fault(c, PT2_ERROR, spec, true, true, "two inputs stand for '%.300s'; use one of them everywhere",
                   PT2_SHOWN(spec->target));
    t->owner = 0;
    return 0;
}

/* Against the placeholder in the same place; FE_NONE_ID: their numbers differ, so places tell nothing. */
static void check_place(checker *c, const fe_spec *spec, uint32_t placeholder)
{
    if (is_constant(spec)) {
        if (placeholder != FE_NONE_ID && pt2_verify_value_kind(c->scope, placeholder) != PT2_VALUE_NONE)
            spec_fault(c, PT2_ERROR, spec, true, false,
                       "the signature has a constant where the graph has the input '%.300s'", name_of(c, placeholder));
        return;
    }
    if (!is_listed(c, spec->node, FE_OP_PLACEHOLDER))
        spec_fault(c, PT2_ERROR, spec, true, false,
                   "the signature names an input that is gone; remove its spec, or put the placeholder back");
    else if (placeholder != FE_NONE_ID && spec->node != placeholder)
        spec_fault(c, PT2_ERROR, spec, true, false,
                   "the graph's input here is '%.300s'; give inputs and signature one order", name_of(c, placeholder));
    else
        check_kind(c, spec);
}

static int check_input(checker *c, const fe_spec *spec, uint32_t placeholder)
{
    check_place(c, spec, placeholder);
    if (spec->kind == FE_INPUT_USER && name_of(c, spec->node)) {
        fe_string *t = pt2_verify_intern(c->v, &c->users, name_of(c, spec->node), strlen(name_of(c, spec->node)));
        if (!t)
            return -1;
        t->owner = 0;
    }
    return check_target(c, spec);
}

static uint32_t next_placeholder(const fe_graph *g, uint32_t id)
{
    do
        id = g->nodes[id].next;
    while (id != FE_ROOT && g->nodes[id].op != FE_OP_PLACEHOLDER);
    return id;
}

static int check_inputs(checker *c)
{
    const fe_signature *s = c->signature;
    uint32_t count = 0, at = FE_ROOT;
    uint8_t place = 0;
    bool ordered = true;

    while ((at = next_placeholder(c->core, at)) != FE_ROOT)
        count++;
    if (count != s->input_count)
        pt2_verify_fault(
            c->v, PT2_SIGNATURE, PT2_ERROR, NULL, NULL, NULL,
            "the graph has %u inputs, but the signature describes %u; add inputs with add_input and remove them "
            "with remove_input, which keep the signature in step",
            count, s->input_count);
    for (uint32_t i = 0; i < s->input_count; i++) {
        const fe_spec *spec = &s->inputs[i];
        at = count == s->input_count ? next_placeholder(c->core, at) : FE_NONE_ID;
        if (spec->kind >= INPUT_KINDS)
            continue;
        if (check_input(c, spec, at) < 0)
            return -1;
        if (inputs[spec->kind].place < place && c->v->strict && ordered)
            spec_fault(
                c, PT2_WARNING, spec, true, false,
                "a %s comes after inputs that torch's exporter puts behind it: tokens, parameters, buffers, constants, "
                "objects, user inputs",
                inputs[spec->kind].what);
        ordered = ordered && inputs[spec->kind].place >= place;
        place = inputs[spec->kind].place;
    }
    return 0;
}

/* ---- outputs ---- */

/* What the output node returns, one by one. */
static const fe_value *results_of(const fe_graph *g, uint32_t *count)
{
    uint32_t id = g->nodes[FE_ROOT].prev;
    const fe_seq *args = id != FE_ROOT && g->nodes[id].op == FE_OP_OUTPUT ? g->details[id].args : NULL;

    *count = 0;
    if (!args || !args->len)
        return NULL;
    *count = 1;
    if (args->items[0].kind != FE_TUPLE && args->items[0].kind != FE_LIST)
        return args->items;
    *count = args->items[0].as.seq->len;
    return args->items[0].as.seq->items;
}

static void check_mutation(checker *c, const fe_spec *spec)
{
    const spec_facts *f = &outputs[spec->kind];
    const fe_reserved *table = strcmp(f->what, "buffer") == 0      ? &c->buffers
                               : strcmp(f->what, "parameter") == 0 ? &c->parameters
                                                                   : &c->users;

    if (!f->key)
        return;
    if (!spec->target)
        spec_fault(c, PT2_ERROR, spec, false, true, "the signature does not name the %s that this output is for",
                   f->what);
    else if (!fe_string_find(&table->strings, spec->target->data, spec->target->len)) {
        pt2_spec_path path;
        pt2_verify_spec_path(&path, spec, false, f->tag, f->key);
        pt2_verify_fault(
            c->v, PT2_SIGNATURE, PT2_ERROR, NULL, path.path, name_of(c, spec->node),
            "this output is for the %s '%.300s', but no input stands for one of that name; remove the output, or "
            "name another %s",
            f->what, PT2_SHOWN(spec->target), f->what);
    }
}

static void check_output(checker *c, const fe_spec *spec, fe_value result)
{
    bool constant = spec->node == FE_NONE_ID;

    if (!constant && !fe_node_is_listed(c->core, spec->node))
        spec_fault(c, PT2_ERROR, spec, false, false,
                   "the signature names an output that is gone; return something else in its place");
    else if (result.kind == FE_NODE && result.as.node != spec->node)
        spec_fault(c, PT2_ERROR, spec, false, false,
                   "the graph returns '%.300s' here, but the signature says something else; give both one order",
                   name_of(c, result.as.node));
    else if (result.kind != FE_NODE && !constant)
        spec_fault(c, PT2_ERROR, spec, false, false,
                   "the graph returns a constant here, but the signature says a node");
    if (spec->kind != FE_OUTPUT_USER && constant)
        spec_fault(c, PT2_ERROR, spec, false, false, "this output is for a %s and must be a node, not a constant",
                   outputs[spec->kind].what);
}

static void check_outputs(checker *c)
{
    const fe_signature *s = c->signature;
    uint32_t count, place = 0;
    const fe_value *results = results_of(c->core, &count);

    if (count != s->output_count)
        pt2_verify_fault(
            c->v, PT2_SIGNATURE, PT2_ERROR, NULL, NULL, "output",
            "the graph returns %u values, but the signature describes %u; change outputs with add_output and "
            "remove_output, which keep the signature in step",
            count, s->output_count);
    for (uint32_t i = 0; i < s->output_count; i++) {
        const fe_spec *spec = &s->outputs[i];
        if (spec->kind >= OUTPUT_KINDS)
            continue;
        if (count == s->output_count)
            check_output(c, spec, results[i]);
        check_mutation(c, spec);
        if (outputs[spec->kind].place < place)
            spec_fault(
                c, PT2_ERROR, spec, false, false,
                "this output (a %s) comes too late: first come tokens, then mutations, user outputs and gradients",
                outputs[spec->kind].what);
        place = outputs[spec->kind].place > place ? outputs[spec->kind].place : place;
    }
}

/* ---- tree specs ---- */

static uint32_t count_tags(yyjson_val *specs, const char *tag, const char *other)
{
    size_t i, count;
    yyjson_val *spec, *inner;
    uint32_t n = 0;

    yyjson_arr_foreach(specs, i, count, spec)
    {
        const char *t = pt2_verify_tag(spec, &inner);
        n += t && (strcmp(t, tag) == 0 || strcmp(t, other) == 0);
    }
    return n;
}

static uint32_t count_kind(const fe_spec *specs, uint32_t count, uint8_t kind, uint8_t other)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < count; i++)
        n += specs[i].kind == kind || specs[i].kind == other;
    return n;
}

/* The reader has found as many leaves as the document has values; edits may have changed the values. */
static void check_leaves(checker *c, const char *what, const char *key, uint32_t leaves, uint32_t values)
{
    pt2_path root = {.parent = NULL};
    const pt2_path *call = PT2_INDEX(PT2_KEY(PT2_KEY(&root, "graph_module"), "module_call_graph"), 0);

    if (leaves != values)
        pt2_verify_fault(c->v, PT2_TREESPEC, PT2_ERROR, NULL, PT2_KEY_TEXT(PT2_KEY(call, "signature"), key), NULL,
                         "the program has %u user %s, but its calling convention is for %u: it couldn't be called",
                         values, what, leaves);
}

/* The leaves of a tree spec that an edit has put in the place of the document's; -1 when it is none, which is reported. */
static int leaves_of(checker *c, const char *key, uint32_t *leaves)
{
    yyjson_val *signature = yyjson_obj_get(yyjson_arr_get_first(c->scope->graph->calls), "signature");
    yyjson_val *spec = yyjson_obj_get(signature, key);
    pt2_path root = {.parent = NULL};
    const pt2_path *path = PT2_KEY_TEXT(PT2_KEY(&root, "module_call_graph"), key);
    pt2_treespec_facts facts;

    if (pt2_treespec_check(yyjson_is_str(spec) ? yyjson_get_str(spec) : "", yyjson_get_len(spec), NULL, &facts, path,
                           c->v->report) < 0)
        return -1;
    *leaves = (uint32_t)facts.leaves;
    return 0;
}

static void check_trees(checker *c, yyjson_val *signature)
{
    const fe_signature *s = c->signature;
    uint32_t in = count_tags(yyjson_obj_get(signature, "input_specs"), "user_input", "constant_input");
    uint32_t out = count_tags(yyjson_obj_get(signature, "output_specs"), "user_output", "loss_output");

    if (c->scope->graph->calls && (leaves_of(c, "in_spec", &in) < 0 || leaves_of(c, "out_spec", &out) < 0))
        return;
    check_leaves(c, "inputs", "in_spec", in, count_kind(s->inputs, s->input_count, FE_INPUT_USER, FE_INPUT_USER));
    check_leaves(c, "outputs", "out_spec", out,
                 count_kind(s->outputs, s->output_count, FE_OUTPUT_USER, FE_OUTPUT_LOSS));
}

/* ---- */

int pt2_verify_signature(pt2_verifier *v, const pt2_scope *s)
{
    checker c = {.v = v, .scope = s, .core = s->core, .signature = s->core->signature};
    yyjson_val *root = v->program->json.doc ? yyjson_doc_get_root(v->program->json.doc) : NULL;
    yyjson_val *module = yyjson_obj_get(root, "graph_module");
    int result;

    if (!c.signature) {
        pt2_verify_fault(v, PT2_SIGNATURE, PT2_ERROR, NULL, NULL, NULL,
                         "the program's graph has no signature, which tells what its inputs and outputs stand for");
        return 0;
    }
    (void)fe_reserved_init(&c.parameters, v->allocator);
    (void)fe_reserved_init(&c.buffers, v->allocator);
    (void)fe_reserved_init(&c.users, v->allocator);
    result = check_inputs(&c);
    if (result == 0) {
        check_outputs(&c);
        if (module)
            check_trees(&c, yyjson_obj_get(module, "signature"));
        result = pt2_verify_module_calls(
            v, s, s->graph->calls ? s->graph->calls : yyjson_obj_get(module, "module_call_graph"));
    }
    fe_reserved_clear(&c.parameters);
    fe_reserved_clear(&c.buffers);
    fe_reserved_clear(&c.users);
    return result;
}
