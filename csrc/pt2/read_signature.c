/* read_signature.c - what the inputs and outputs of a program stand for, and how it is called.
 *
 * Specifications stand in the order of the graph's inputs and outputs and name them again; torch refuses a program where
 * the two disagree. Their targets (weights, mutated inputs) are checked in verify.c.
 */
#include "read.h"

typedef struct {
    pt2_graph_reader *g;
    yyjson_val *module;
    const pt2_path *path; /* of module */
    bool counts_differ;   /* from the graph's; told once */
} signature_reader;

static int fail(signature_reader *s, const pt2_path *path, const char *message, yyjson_val *name)
{
    const char *text = name ? unsafe_yyjson_get_str(name) : NULL;

    return pt2_fail_node(s->g->reader->report, PT2_SIGNATURE, path, text, "%s%s%s%s", message, text ? " '" : "",
                         text ? text : "", text ? "'" : "");
}

static int core_failed(signature_reader *s, const fe_error *err)
{
    return pt2_read_core_failed(s->g->reader, s->path, err);
}

static int string_of(signature_reader *s, yyjson_val *v, fe_string **out)
{
    fe_error err;

    *out = NULL;
    if (!v)
        return 0;
    *out = fe_string_get(s->g->core, unsafe_yyjson_get_str(v), unsafe_yyjson_get_len(v), &err);
    return *out ? 0 : core_failed(s, &err);
}

/* ---- kinds ---- */

typedef struct {
    const char *tag;
    const char *target; /* field; NULL: none */
    uint8_t kind;
} spec_kind;

static const spec_kind input_kinds[] = {
    {"parameter", "parameter_name", FE_INPUT_PARAMETER},
    {"user_input", NULL, FE_INPUT_USER},
    {"buffer", "buffer_name", FE_INPUT_BUFFER},
    {"tensor_constant", "tensor_constant_name", FE_INPUT_CONSTANT_TENSOR},
    {"custom_obj", "custom_obj_name", FE_INPUT_CUSTOM_OBJ},
    {"token", NULL, FE_INPUT_TOKEN},
    {"constant_input", NULL, FE_INPUT_USER},
};

static const spec_kind output_kinds[] = {
    {"user_output", NULL, FE_OUTPUT_USER},
    {"loss_output", NULL, FE_OUTPUT_LOSS},
    {"buffer_mutation", "buffer_name", FE_OUTPUT_BUFFER_MUTATION},
    {"gradient_to_parameter", "parameter_name", FE_OUTPUT_GRADIENT_TO_PARAMETER},
    {"gradient_to_user_input", "user_input_name", FE_OUTPUT_GRADIENT_TO_USER_INPUT},
    {"user_input_mutation", "user_input_name", FE_OUTPUT_USER_INPUT_MUTATION},
    {"parameter_mutation", "parameter_name", FE_OUTPUT_PARAMETER_MUTATION},
    {"token", NULL, FE_OUTPUT_TOKEN},
};

static const spec_kind *kind_of(const char *tag, bool input)
{
    const spec_kind *kinds = input ? input_kinds : output_kinds;
    size_t count = input ? sizeof input_kinds / sizeof *kinds : sizeof output_kinds / sizeof *kinds;

    for (size_t i = 0; i < count; i++) {
        if (strcmp(kinds[i].tag, tag) == 0)
            return &kinds[i];
    }
    return &kinds[0]; /* not met: the schema knows no other tags */
}

/* The argument of a specification: a union where the user gives it, a plain name elsewhere. */
static yyjson_val *spec_name(const char *tag, yyjson_val *spec, yyjson_val **constant)
{
    bool is_union = strcmp(tag, "user_input") == 0 || strcmp(tag, "user_output") == 0;
    yyjson_val *arg = pt2_field(spec, "arg"), *name;
    pt2_value_kind kind;

    *constant = NULL;
    if (strcmp(tag, "constant_input") == 0) {
        *constant = pt2_field(spec, "value");
        return NULL;
    }
    if (!is_union)
        return pt2_field(arg, "name");
    name = pt2_read_name_of(arg, &kind);
    if (!name)
        *constant = arg;
    return name;
}

static bool same_name(yyjson_val *a, yyjson_val *b)
{
    return unsafe_yyjson_get_len(a) == unsafe_yyjson_get_len(b) &&
           memcmp(unsafe_yyjson_get_str(a), unsafe_yyjson_get_str(b), unsafe_yyjson_get_len(a)) == 0;
}

/* ---- specifications ---- */

static int read_spec(signature_reader *s, size_t i, yyjson_val *u, bool input, yyjson_val *argument,
                     const pt2_path *path)
{
    fe_signature *signature = s->g->core->signature;
    yyjson_val *spec, *constant, *wanted = NULL;
    const char *tag = pt2_tag(u, &spec);
    const spec_kind *kind = kind_of(tag, input);
    yyjson_val *name = spec_name(tag, spec, &constant), *persistent = pt2_field(spec, "persistent");
    pt2_value_kind ignored;
    fe_error err;
    fe_spec out = {.kind = kind->kind, .node = FE_NONE_ID, .origin = (uint32_t)i + 1};

    if (argument)
        wanted = pt2_read_name_of(argument, &ignored);
    if (argument && name && !wanted)
        fail(s, PT2_INDEX(input ? PT2_KEY(s->g->path, "inputs") : PT2_KEY(s->g->path, "outputs"), i),
             "the graph has a constant here, but the signature has", name);
    else if (argument && wanted && (!name || !same_name(name, wanted)))
        fail(s, path,
             name ? "the graph has another name at this place than" : "the graph has a name here, not a constant",
             name);
    out.persistent = persistent && yyjson_get_bool(persistent);
    if (name)
        out.node = input && argument && wanted ? (uint32_t)i + 1 : pt2_read_lookup(s->g, name);
    else if (constant && pt2_read_constant(s->g, constant, &out.value) < 0)
        return -1;
    if (!name && out.value.kind == FE_NULL)
        out.value.kind = FE_NONE;
    if (string_of(s, kind->target ? pt2_field(spec, kind->target) : NULL, &out.target) < 0 ||
        string_of(s, name ? NULL : pt2_field(spec, "name"), &out.name) < 0)
        return -1;
    if ((input ? fe_signature_add_input : fe_signature_add_output)(signature, out, &err) < 0)
        return core_failed(s, &err);
    return 0;
}

static int read_specs(signature_reader *s, yyjson_val *specs, yyjson_val *arguments, bool input, const pt2_path *path)
{
    size_t have = unsafe_yyjson_get_len(arguments), i, count;
    yyjson_val *v, *argument = unsafe_yyjson_get_first(arguments);

    s->counts_differ = s->counts_differ || unsafe_yyjson_get_len(specs) != have;
    if (unsafe_yyjson_get_len(specs) != have)
        pt2_fail(s->g->reader->report, PT2_SIGNATURE, NULL, path, "the signature has %zu %s, the graph %zu",
                 unsafe_yyjson_get_len(specs), input ? "inputs" : "outputs", have);
    yyjson_arr_foreach(specs, i, count, v)
    {
        if (read_spec(s, i, v, input, i < have ? argument : NULL, PT2_INDEX(path, i)) < 0)
            return -1;
        if (i < have)
            argument = unsafe_yyjson_get_next(argument);
    }
    return 0;
}

/* ---- the module call graph ---- */

/* Nodes are followed by the module call graph, whose entries name them. */
static int check_names(signature_reader *s, yyjson_val *arguments, const pt2_path *path)
{
    size_t i, count;
    yyjson_val *v;
    fe_error err;

    yyjson_arr_foreach(arguments, i, count, v)
    {
        pt2_value_kind kind = PT2_VALUE_NONE;
        yyjson_val *name = pt2_read_name_of(v, &kind);
        fe_string *known =
            name ? fe_string_find(&s->g->core->strings, unsafe_yyjson_get_str(name), unsafe_yyjson_get_len(name))
                 : NULL;
        uint32_t owner = known ? fe_name_owner(s->g->core, known) : FE_NONE_ID;
        if (name && kind != PT2_VALUE_CUSTOM && owner == FE_NONE_ID)
            fail(s, PT2_INDEX(path, i), "the graph has no node called", name);
        if (owner != FE_NONE_ID && fe_signature_add_called(s->g->core->signature, known, owner, &err) < 0)
            return core_failed(s, &err);
    }
    return 0;
}

#define ANY SIZE_MAX

/* A tree spec, whose leaves must be as many as there are values. */
static int check_spec(signature_reader *s, yyjson_val *spec, size_t values, bool inputs, const pt2_path *path)
{
    pt2_report *r = s->g->reader->report;
    pt2_treespec_facts facts;

    if (pt2_treespec_check(unsafe_yyjson_get_str(spec), unsafe_yyjson_get_len(spec),
                           pt2_field(s->module, "treespec_namedtuple_fields"), &facts, path, r) < 0)
        return r->no_memory ? -1 : 0;
    if (inputs && !facts.calls)
        pt2_fail(r, PT2_TREESPEC, NULL, path, "the name of a keyword argument can't stand between quotes in code");
    if (values != ANY && facts.leaves != values)
        pt2_fail(r, PT2_TREESPEC, NULL, path, "the tree has %llu leaves for %zu values",
                 (unsigned long long)facts.leaves, values);
    return 0;
}

static size_t count_user(const fe_spec *specs, uint32_t count, uint8_t kind, uint8_t other)
{
    size_t n = 0;

    for (uint32_t i = 0; i < count; i++)
        n += specs[i].kind == kind || specs[i].kind == other;
    return n;
}

/* torch writes the names of forward's parameters into a def line. */
static void check_parameters(signature_reader *s, yyjson_val *names, const pt2_path *path)
{
    size_t i, count;
    yyjson_val *v;

    yyjson_arr_foreach(names, i, count, v)
    {
        const char *fault = pt2_name_fault(unsafe_yyjson_get_str(v), unsafe_yyjson_get_len(v));
        if (fault)
            pt2_fail(s->g->reader->report, PT2_NAME, NULL, PT2_INDEX(path, i), "the parameter '%s' %s",
                     PT2_SHOWN_JSON(v), fault);
    }
}

static int check_call(signature_reader *s, yyjson_val *call, bool whole, const pt2_path *path)
{
    const fe_signature *signature = s->g->core->signature;
    yyjson_val *inputs = pt2_field(call, "inputs"), *outputs = pt2_field(call, "outputs");
    size_t in = unsafe_yyjson_get_len(inputs), out = unsafe_yyjson_get_len(outputs);

    if (check_names(s, inputs, PT2_KEY(path, "inputs")) < 0 || check_names(s, outputs, PT2_KEY(path, "outputs")) < 0)
        return -1;
    if (whole && s->counts_differ) {
        in = out = ANY;
    } else if (whole) { /* whose own lists of names are empty, as a rule */
        in = count_user(signature->inputs, signature->input_count, FE_INPUT_USER, FE_INPUT_USER);
        out = count_user(signature->outputs, signature->output_count, FE_OUTPUT_USER, FE_OUTPUT_LOSS);
    }
    check_parameters(s, pt2_field(call, "forward_arg_names"), PT2_KEY(path, "forward_arg_names"));
    if (check_spec(s, pt2_field(call, "in_spec"), in, true, PT2_KEY(path, "in_spec")) < 0)
        return -1;
    return check_spec(s, pt2_field(call, "out_spec"), out, false, PT2_KEY(path, "out_spec"));
}

static int check_calls(signature_reader *s, yyjson_val *calls)
{
    const pt2_path *path = PT2_KEY(s->path, "module_call_graph");
    size_t i, count;
    yyjson_val *v;

    if (!unsafe_yyjson_get_len(calls))
        fail(s, path, "the first entry, which tells how the program is called, is missing", NULL);
    yyjson_arr_foreach(calls, i, count, v)
    {
        const pt2_path *entry = PT2_INDEX(path, i);
        yyjson_val *fqn = pt2_field(v, "fqn"), *call = pt2_field(v, "signature");
        if (i == 0 && unsafe_yyjson_get_len(fqn))
            fail(s, PT2_KEY(entry, "fqn"), "the first entry is the program's own, its name must be empty, not", fqn);
        else if (i && pt2_path_fault(unsafe_yyjson_get_str(fqn), unsafe_yyjson_get_len(fqn)))
            pt2_warn(s->g->reader->report, PT2_SIGNATURE, NULL, PT2_KEY(entry, "fqn"), "odd name of a module: '%s'",
                     PT2_SHOWN_JSON(fqn));
        if (i == 0 && !call)
            fail(s, PT2_KEY(entry, "signature"), "the first entry must tell how the program is called", NULL);
        if (call && check_call(s, call, i == 0, PT2_KEY(entry, "signature")) < 0)
            return -1;
    }
    return 0;
}

static int check_metadata(signature_reader *s)
{
    pt2_report *r = s->g->reader->report;
    const pt2_path *path = PT2_KEY(s->path, "metadata");
    size_t i, count;
    yyjson_val *key, *v;

    pt2_each_member(pt2_field(s->module, "metadata"), i, count, key, v)
    {
        if (pt2_metadata_check(unsafe_yyjson_get_str(key), unsafe_yyjson_get_len(key), unsafe_yyjson_get_str(v),
                               unsafe_yyjson_get_len(v), PT2_KEY_OF(path, key), r) < 0 &&
            r->no_memory)
            return -1;
    }
    return 0;
}

int pt2_read_signature(pt2_graph_reader *g, yyjson_val *module, const pt2_path *path)
{
    signature_reader s = {.g = g, .module = module, .path = path};
    yyjson_val *json = pt2_field(module, "signature"), *fields = pt2_field(module, "treespec_namedtuple_fields");
    const pt2_path *inner = PT2_KEY(path, "signature");

    g->core->signature = fe_signature_new(g->core->allocator);
    if (!g->core->signature)
        return pt2_no_memory(g->reader->report);
    if (read_specs(&s, pt2_field(json, "input_specs"), pt2_field(g->json, "inputs"), true,
                   PT2_KEY(inner, "input_specs")) < 0 ||
        read_specs(&s, pt2_field(json, "output_specs"), pt2_field(g->json, "outputs"), false,
                   PT2_KEY(inner, "output_specs")) < 0)
        return -1;
    if (fields)
        pt2_namedtuple_fields_check(fields, PT2_KEY(path, "treespec_namedtuple_fields"), g->reader->report);
    if (check_calls(&s, pt2_field(module, "module_call_graph")) < 0)
        return -1;
    return check_metadata(&s);
}
