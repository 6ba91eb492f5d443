/* read.c - an opened program becomes graphs of the core: its root, its subgraphs, and what stands beside them.
 *
 * The document has been checked against the schema, so fields are there and of their types. All else is checked here and
 * in read_*.c while it is read: names, definitions, targets, values, expressions, texts. Whether the graph agrees with
 * weights and operators is verify.c's business.
 */
#include "read.h"

/* ---- memory ---- */

int pt2_read_core_failed(pt2_program_reader *r, const pt2_path *path, const fe_error *err)
{
    if (err->code == FE_NO_MEMORY)
        return pt2_no_memory(r->report);
    return pt2_fail(r->report, PT2_LIMIT, NULL, path, "%s", err->message);
}

int pt2_read_grow(pt2_program_reader *r, void *items, uint32_t *capacity, size_t need, size_t size)
{
    fe_arena *arena = &r->program->arena;
    size_t want = *capacity ? *capacity : 16;
    void *old;

    if (need <= *capacity)
        return 0;
    while (want < need)
        want *= 2;
    if (want > UINT32_MAX / 2)
        return pt2_fail(r->report, PT2_LIMIT, NULL, NULL, "the program has more parts than can be numbered");
    void *new = fe_arena_take(arena, want * size);
    if (!new)
        return pt2_no_memory(r->report);
    memset(new, 0, want * size);
    memcpy(&old, items, sizeof old);
    if (old) {
        memcpy(new, old, *capacity * size);
        fe_arena_give(arena, old, *capacity * size);
    }
    memcpy(items, &new, sizeof new);
    *capacity = (uint32_t)want;
    return 0;
}

char *pt2_read_copy(pt2_program_reader *r, const char *text, size_t len)
{
    char *copy = fe_arena_take(&r->program->arena, len + 1);

    if (!copy) {
        pt2_no_memory(r->report);
        return NULL;
    }
    if (len)
        memcpy(copy, text, len);
    copy[len] = '\0';
    return copy;
}

fe_string *pt2_read_text(pt2_program_reader *r, pt2_texts *texts, const char *text, size_t len)
{
    fe_string *s = fe_string_find(&texts->strings.strings, text, len);

    if (s)
        return s;
    if (!texts->strings.arena.allocator)
        fe_reserved_init(&texts->strings, r->program->allocator);
    if (fe_reserved_add(&texts->strings, text, len) < 0) {
        pt2_no_memory(r->report);
        return NULL;
    }
    return fe_string_find(&texts->strings.strings, text, len);
}

static void clear_texts(pt2_texts *texts)
{
    if (texts->strings.arena.allocator)
        fe_reserved_clear(&texts->strings);
}

/* ---- inputs ---- */

/* The name of a constant input: that of the specification at the same place of the program's own signature, in
 * subgraphs, too, as torch has it. */
static void constant_name(pt2_graph_reader *g, size_t i, const char **name, size_t *len, char made[24])
{
    yyjson_val *specs = g->reader->input_specs, *spec, *arg, *value = NULL;
    pt2_value_kind kind;

    if (i < yyjson_arr_size(specs)) {
        pt2_tag(yyjson_arr_get(specs, i), &spec);
        arg = pt2_field(spec, "arg");
        value = pt2_field(spec, "name"); /* of a constant input */
        if (!value && arg)
            value = pt2_field(arg, "name");
        if (!value && arg && unsafe_yyjson_get_len(arg) == 1)
            value = pt2_read_name_of(arg, &kind);
    }
    if (value && yyjson_is_str(value) && unsafe_yyjson_get_len(value)) {
        *name = unsafe_yyjson_get_str(value);
        *len = unsafe_yyjson_get_len(value);
        return;
    }
    char *at = made + 24;
    for (size_t rest = i; rest || at == made + 24; rest /= 10)
        *--at = (char)('0' + rest % 10);
    at -= 3;
    memcpy(at, "arg", 3);
    *name = at;
    *len = (size_t)(made + 24 - at);
}

static bool is_constant(yyjson_val *argument)
{
    yyjson_val *value;

    switch (pt2_read_union(argument, &value)) {
    case PT2_AS_INT:
    case PT2_AS_FLOAT:
    case PT2_AS_BOOL:
    case PT2_AS_STRING:
    case PT2_AS_NONE:
        return true;
    default:
        return false;
    }
}

/* Every input makes a node, also a faulty one: the placeholder of inputs[i] is node i + 1. */
static int read_input(pt2_graph_reader *g, size_t i, yyjson_val *input, const pt2_path *path)
{
    pt2_value_kind kind = PT2_VALUE_NONE;
    yyjson_val *name = pt2_read_name_of(input, &kind);
    char made[24];
    bool is_new;
    uint32_t id;
    fe_error err;
    pt2_node_plan plan = {.op = FE_OP_PLACEHOLDER,
                          .origin = {.source = PT2_FROM_INPUT, .index = (uint32_t)i, .json = input}};

    if (kind == PT2_VALUE_SYM_FLOAT || kind == PT2_VALUE_SYM_BOOL || (!name && !is_constant(input)))
        pt2_fail(g->reader->report, PT2_GRAPH, NULL, path,
                 "an input is a tensor, an integer with a name, a custom object or a constant");
    if (name) {
        plan.name = unsafe_yyjson_get_str(name);
        plan.name_len = unsafe_yyjson_get_len(name);
    } else {
        kind = PT2_VALUE_NONE;
        constant_name(g, i, &plan.name, &plan.name_len, made);
    }
    pt2_read_check_name(g, plan.name, plan.name_len, path);
    plan.origin.value_kind = (uint8_t)kind;
    fe_string *text = fe_string_get(g->core, plan.name, plan.name_len, &err);
    if (!text || fe_target_get(g->core, FE_OP_PLACEHOLDER, FE_NONE_ID, text, &plan.target, &is_new, &err) < 0)
        return pt2_read_core_failed(g->reader, path, &err);
    return pt2_read_append(g, &plan, name, path, &id);
}

static int read_inputs(pt2_graph_reader *g, yyjson_val *inputs)
{
    const pt2_path *path = PT2_KEY(g->path, "inputs");
    size_t i, count;
    yyjson_val *v;

    yyjson_arr_foreach(inputs, i, count, v)
    {
        if (read_input(g, i, v, PT2_INDEX(path, i)) < 0)
            return -1;
    }
    return 0;
}

/* ---- outputs ---- */

static int read_output(pt2_graph_reader *g, yyjson_val *output, const pt2_path *path, fe_value *out)
{
    pt2_argument_place at = {path, path, NULL, 0, 0};
    pt2_value_kind kind;
    yyjson_val *value;

    *out = (fe_value){.kind = FE_NONE};
    pt2_as as = pt2_read_union(output, &value);
    if (as == PT2_AS_STRING)
        pt2_fail(g->reader->report, PT2_GRAPH, NULL, path,
                 "a string can't be an output: torch does not load such a program");
    else if (as == PT2_AS_CUSTOM_OBJ || (!is_constant(output) && !pt2_read_name_of(output, &kind)))
        pt2_fail(g->reader->report, PT2_GRAPH, NULL, path,
                 "an output is a tensor, a number with a name, a number, a bool or None");
    else
        return pt2_read_argument(g, output, &at, out);
    return 0;
}

static int append_output(pt2_graph_reader *g, fe_seq *args)
{
    static const char text[] = "output";
    bool is_new;
    uint32_t id;
    fe_error err;
    pt2_node_plan plan = {.op = FE_OP_OUTPUT,
                          .name = text,
                          .name_len = sizeof text - 1,
                          .args = args,
                          .origin = {.source = PT2_FROM_OUTPUT}};

    fe_string *s = fe_string_get(g->core, text, sizeof text - 1, &err);
    if (!s || fe_target_get(g->core, FE_OP_OUTPUT, FE_NONE_ID, s, &plan.target, &is_new, &err) < 0)
        return pt2_read_core_failed(g->reader, g->path, &err);
    return pt2_read_append(g, &plan, NULL, PT2_KEY(g->path, "outputs"), &id);
}

static int read_outputs(pt2_graph_reader *g, yyjson_val *outputs)
{
    const pt2_path *path = PT2_KEY(g->path, "outputs");
    yyjson_val *flag = pt2_field(g->json, "is_single_tensor_return"), *v;
    bool single = flag && yyjson_get_bool(flag);
    size_t i, count = unsafe_yyjson_get_len(outputs);
    fe_error err;

    if (single && count != 1) {
        pt2_fail(g->reader->report, PT2_GRAPH, NULL, PT2_KEY(g->path, "is_single_tensor_return"),
                 "a graph that returns one bare tensor must have one output, not %zu", count);
        single = false;
    }
    fe_seq *args = fe_seq_new(g->core, 1, FE_NONE_ID, &err);
    fe_seq *tuple = single || !args ? args : fe_seq_new(g->core, count, FE_NONE_ID, &err);
    if (!tuple)
        return pt2_read_core_failed(g->reader, path, &err);
    args->items[0] = single ? (fe_value){.kind = FE_NONE} : (fe_value){.kind = FE_TUPLE, .as.seq = tuple};
    yyjson_arr_foreach(outputs, i, count, v)
    {
        if (read_output(g, v, PT2_INDEX(path, i), &tuple->items[i]) < 0)
            return -1;
    }
    if (single && tuple->items[0].kind != FE_NODE)
        pt2_fail(g->reader->report, PT2_GRAPH, NULL, PT2_INDEX(path, 0),
                 "a graph that returns one bare tensor must name a node");
    return append_output(g, args);
}

/* ---- graphs ---- */

static pt2_graph *new_graph(pt2_program_reader *r, yyjson_val *json)
{
    pt2_graph *graph = fe_arena_take(&r->program->arena, sizeof *graph);

    if (!graph) {
        pt2_no_memory(r->report);
        return NULL;
    }
    *graph = (pt2_graph){.json = json};
    return graph;
}

static int read_parts(pt2_graph_reader *g, yyjson_val *module, const pt2_path *module_path)
{
    yyjson_val *inputs = pt2_field(g->json, "inputs"), *nodes = pt2_field(g->json, "nodes");
    size_t count = unsafe_yyjson_get_len(inputs) + unsafe_yyjson_get_len(nodes);
    fe_error err;

    if (count > UINT32_MAX / 4)
        return pt2_fail(g->reader->report, PT2_LIMIT, NULL, g->path, "a graph of %zu nodes is too large", count);
    if (fe_graph_reserve(g->core, count + 2, &err) < 0)
        return pt2_read_core_failed(g->reader, g->path, &err);
    if (pt2_read_grow(g->reader, &g->graph->origins, &g->origin_capacity, count + 2, sizeof *g->graph->origins) < 0 ||
        pt2_read_grow(g->reader, &g->defined, &g->defined_capacity, count + 2, sizeof *g->defined) < 0)
        return -1;
    g->graph->origin_count = 1;
    if (read_inputs(g, inputs) < 0 || pt2_read_nodes(g, nodes) < 0 ||
        read_outputs(g, pt2_field(g->json, "outputs")) < 0 || pt2_read_tables(g) < 0)
        return -1;
    return module ? pt2_read_signature(g, module, module_path) : 0;
}

static void give(pt2_graph_reader *g, void *items, uint32_t capacity, size_t size)
{
    if (items)
        fe_arena_give(&g->reader->program->arena, items, capacity * size);
}

/* module: of the program's own graph, whose signature is read with it; or NULL. */
static int read_graph(pt2_program_reader *r, pt2_graph *graph, const pt2_path *path, uint32_t depth, yyjson_val *module,
                      const pt2_path *module_path)
{
    pt2_graph_reader g = {
        .reader = r, .graph = graph, .json = graph->json, .path = path, .depth = depth, .getitem = FE_NONE_ID};

    for (size_t i = 0; i < PT2_CODES; i++)
        g.dtypes[i] = g.layouts[i] = g.memory_formats[i] = FE_NONE_ID;
    graph->core = g.core = fe_graph_new(r->program->allocator, r->reserved);
    if (!g.core)
        return pt2_no_memory(r->report);
    int result = read_parts(&g, module, module_path);
    clear_texts(&g.texts);
    clear_texts(&g.names);
    give(&g, g.defined, g.defined_capacity, sizeof *g.defined);
    give(&g, g.callees, g.callee_capacity, sizeof *g.callees);
    return result;
}

/* Whether two values are the same text but for blanks. A value and all below it lie one after another in memory. */
static bool same_json(const yyjson_val *a, const yyjson_val *b)
{
    const yyjson_val *end = unsafe_yyjson_get_next((yyjson_val *)(uintptr_t)a);

    for (; a < end; a++, b++) {
        if (a->tag != b->tag) /* type and length */
            return false;
        switch (unsafe_yyjson_get_type((void *)(uintptr_t)a)) {
        case YYJSON_TYPE_STR:
        case YYJSON_TYPE_RAW:
            if (memcmp(a->uni.str, b->uni.str, unsafe_yyjson_get_len((void *)(uintptr_t)a)) != 0)
                return false;
            break;
        case YYJSON_TYPE_ARR:
        case YYJSON_TYPE_OBJ:
        case YYJSON_TYPE_NUM:
            if (a->uni.u64 != b->uni.u64)
                return false;
            break;
        default:
            break;
        }
    }
    return true;
}

static int add_subgraph(pt2_graph_reader *g, fe_string *known, yyjson_val *json, const pt2_argument_place *at,
                        const char *name)
{
    pt2_graph *graph = g->graph;
    const pt2_path *path = PT2_KEY(PT2_KEY(at->value, "as_graph"), "graph");
    uint32_t limit = g->reader->report->limits->graph_depth;

    if (limit && g->depth >= limit) {
        pt2_fail(g->reader->report, PT2_LIMIT, NULL, path, "subgraphs are nested more than %u deep (limit graph_depth)",
                 limit);
        return 0;
    }
    if (pt2_read_grow(g->reader, &graph->subgraphs, &g->subgraph_capacity, (size_t)graph->subgraph_count + 1,
                      sizeof(pt2_graph *)) < 0)
        return -1;
    pt2_graph *sub = new_graph(g->reader, json);
    if (!sub)
        return -1;
    sub->name = name;
    sub->parent = graph;
    sub->parent_node = at->index;
    sub->parent_input = at->input;
    known->owner = graph->subgraph_count;
    graph->subgraphs[graph->subgraph_count++] = sub;
    return read_graph(g->reader, sub, path, g->depth + 1, NULL, NULL);
}

int pt2_read_subgraph(pt2_graph_reader *g, yyjson_val *argument, const pt2_argument_place *at)
{
    yyjson_val *name = pt2_field(argument, "name"), *json = pt2_field(argument, "graph");
    const char *text = unsafe_yyjson_get_str(name);
    const pt2_path *path = PT2_KEY(PT2_KEY(at->value, "as_graph"), "name");
    const char *fault = pt2_subgraph_name_fault(text, unsafe_yyjson_get_len(name));

    if (fault)
        pt2_fail_node(g->reader->report, PT2_NAME, path, at->node, "a subgraph can't be called '%s': %s",
                      PT2_SHOWN_JSON(name), fault);
    fe_string *known = pt2_read_text(g->reader, &g->names, text, unsafe_yyjson_get_len(name));
    if (!known)
        return -1;
    if (known->owner == FE_NONE_ID)
        return add_subgraph(g, known, json, at, text);
    if (!same_json(g->graph->subgraphs[known->owner]->json, json))
        pt2_fail_node(g->reader->report, PT2_GRAPH, path, at->node,
                      "a second subgraph is called '%s', and it is another graph; give it a name of its own",
                      PT2_SHOWN_JSON(name));
    return 0;
}

/* ---- the program ---- */

#define SCHEMA_MAJOR 8
#define SCHEMA_MINOR 20 /* of torch 2.13 */

static void check_version(pt2_program_reader *r, yyjson_val *version, const pt2_path *path)
{
    int64_t major = 0, minor = 0;

    if (!pt2_json_int(pt2_field(version, "major"), &major) || !pt2_json_int(pt2_field(version, "minor"), &minor))
        return;
    if (major != SCHEMA_MAJOR && (major != 0 || minor != 0))
        pt2_fail(r->report, PT2_VERSION, NULL, PT2_KEY(path, "major"),
                 "schema version %lld.%lld is not known; this is a reader for version %d", (long long)major,
                 (long long)minor, SCHEMA_MAJOR);
    else if (major == 0 || minor < 0 || minor > SCHEMA_MINOR)
        pt2_warn(r->report, PT2_VERSION, NULL, path,
                 "odd schema version %lld.%lld: known is %d.%d; what is new in it is kept but not understood",
                 (long long)major, (long long)minor, SCHEMA_MAJOR, SCHEMA_MINOR);
}

static void check_guards(pt2_program_reader *r, yyjson_val *guards, const pt2_path *path)
{
    size_t i, count;
    yyjson_val *v;

    yyjson_arr_foreach(guards, i, count, v)
    {
        if (!pt2_guard_check(unsafe_yyjson_get_str(v), unsafe_yyjson_get_len(v), PT2_INDEX(path, i), r->report) &&
            r->report->no_memory)
            return;
    }
}

static int read_program(pt2_program_reader *r)
{
    yyjson_val *json = yyjson_doc_get_root(r->program->json.doc);
    yyjson_val *module = pt2_field(json, "graph_module");
    const pt2_path root = {0}, *module_path = PT2_KEY(&root, "graph_module");

    r->input_specs = pt2_field(pt2_field(module, "signature"), "input_specs");
    check_version(r, pt2_field(json, "schema_version"), PT2_KEY(&root, "schema_version"));
    check_guards(r, pt2_field(json, "guards_code"), PT2_KEY(&root, "guards_code"));
    r->program->root = new_graph(r, pt2_field(module, "graph"));
    if (!r->program->root || read_graph(r, r->program->root, PT2_KEY(module_path, "graph"), 0, module, module_path) < 0)
        return -1;
    return pt2_read_ranges(r, pt2_field(json, "range_constraints"), PT2_KEY(&root, "range_constraints"));
}

int pt2_program_read(pt2_program *p, const fe_reserved *reserved, pt2_report *r)
{
    pt2_program_reader reader = {.program = p, .report = r, .reserved = reserved};
    const char *entry = r->entry;
    uint32_t errors = r->errors;

    if (p->model_entry)
        r->entry = p->model_entry->name;
    int result = read_program(&reader);
    clear_texts(&reader.expr_texts);
    r->entry = entry;
    return result < 0 || r->no_memory || r->errors > errors ? -1 : 0;
}
