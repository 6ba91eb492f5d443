/* test_read.c - programs become graphs: the samples' texts as torch prints them, hostile files' faults with their places,
 * small programs for each rule, and every allocation failing in turn. */
#define _DEFAULT_SOURCE
#include "files.h"
#include "program.h"

#include <dirent.h>

#define SAMPLES DATA "samples/"
#define HOSTILE DATA "hostile/"

/* ---- texts ---- */

static void put_object(const pt2_object *o, bool callable, fe_buffer *b)
{
    static const char higher[] = "torch.ops.higher_order.", ops[] = "torch.ops.", python[] = "_operator.";

    if (o->kind <= PT2_OBJECT_MEMORY_FORMAT)
        fe_buffer_text(b, "torch.");
    if (o->kind == PT2_OBJECT_DTYPE)
        fe_buffer_text(b, pt2_dtype_name(o->code));
    else if (o->kind == PT2_OBJECT_LAYOUT)
        fe_buffer_text(b, pt2_layout_name(o->code));
    else if (o->kind == PT2_OBJECT_MEMORY_FORMAT)
        fe_buffer_text(b, pt2_memory_format_name(o->code));
    else if (callable)
        fe_buffer_text(b, o->text + (strncmp(o->text, python, sizeof python - 1) == 0));
    else if (o->kind == PT2_OBJECT_TARGET && strncmp(o->text, higher, sizeof higher - 1) == 0)
        fe_buffer_text(b, o->text + sizeof higher - 1);
    else if (o->kind == PT2_OBJECT_TARGET && strncmp(o->text, ops, sizeof ops - 1) == 0)
        fe_buffer_text(b, o->text + sizeof ops - 1);
    else
        fe_buffer_text(b, o->text);
}

static char *ended(fe_buffer *b)
{
    fe_buffer_char(b, '\0');
    CHECK(!b->failed);
    return b->data;
}

/* str(graph); the caller frees it. */
static char *graph_text(const pt2_graph *g)
{
    uint32_t count = g->object_count;
    fe_text *shown[2] = {calloc(count + 1, sizeof(fe_text)), calloc(count + 1, sizeof(fe_text))};
    fe_renderer r = {.count = count, .quote = write_quoted};
    fe_buffer out;

    for (uint32_t i = 0; i < 2 * count; i++) {
        fe_buffer_init(&out, &fe_libc_allocator);
        put_object(&g->objects[i / 2], i % 2, &out);
        shown[i % 2][i / 2] = (fe_text){ended(&out), out.len - 1};
    }
    r.shown[FE_SHOW_ARG] = r.shown[FE_SHOW_STR] = r.shown[FE_SHOW_REPR] = shown[0];
    r.shown[FE_SHOW_CALLABLE] = shown[1];
    fe_buffer_init(&out, &fe_libc_allocator);
    fe_text_graph(g->core, &r, &out);
    for (uint32_t i = 0; i < 2 * count; i++)
        free((void *)(uintptr_t)shown[i % 2][i / 2].data);
    free(shown[0]);
    free(shown[1]);
    return ended(&out);
}

static void put_spec(const fe_graph *g, const fe_spec *s, const char *kind, fe_buffer *b)
{
    const fe_string *name = s->node != FE_NONE_ID ? g->details[s->node].name : s->name;

    if (name)
        fe_buffer_add(b, name->data, name->len);
    fe_buffer_text(b, ": ");
    fe_buffer_text(b, kind);
    if (s->target) {
        fe_buffer_text(b, " target='");
        fe_buffer_add(b, s->target->data, s->target->len);
        fe_buffer_char(b, '\'');
    }
}

static char *signature_text(const fe_graph *g)
{
    static const char *const inputs[] = {"USER_INPUT", "PARAMETER", "BUFFER", "CONSTANT_TENSOR", "CUSTOM_OBJ", "TOKEN"};
    static const char *const outputs[] = {"USER_OUTPUT",
                                          "LOSS_OUTPUT",
                                          "BUFFER_MUTATION",
                                          "GRADIENT_TO_PARAMETER",
                                          "GRADIENT_TO_USER_INPUT",
                                          "USER_INPUT_MUTATION",
                                          "PARAMETER_MUTATION",
                                          "TOKEN"};
    const fe_signature *s = g->signature;
    fe_buffer b;

    fe_buffer_init(&b, &fe_libc_allocator);
    fe_buffer_text(&b, "\n# inputs\n");
    for (uint32_t i = 0; i < s->input_count; i++) {
        fe_buffer_text(&b, i ? "\n" : "");
        put_spec(g, &s->inputs[i], inputs[s->inputs[i].kind], &b);
        if (s->inputs[i].kind == FE_INPUT_BUFFER)
            fe_buffer_text(&b, s->inputs[i].persistent ? " persistent=True" : " persistent=False");
        CHECK_INT(s->inputs[i].origin, i + 1);
    }
    fe_buffer_text(&b, "\n\n# outputs\n");
    for (uint32_t i = 0; i < s->output_count; i++) {
        fe_buffer_text(&b, i ? "\n" : "");
        put_spec(g, &s->outputs[i], outputs[s->outputs[i].kind], &b);
        CHECK_INT(s->outputs[i].origin, i + 1);
    }
    fe_buffer_char(&b, '\n');
    return ended(&b);
}

static char *ranges_text(const pt2_program *p)
{
    fe_buffer b;
    bool first = true;

    fe_buffer_init(&b, &fe_libc_allocator);
    fe_buffer_char(&b, '{');
    for (uint32_t i = 0; i < p->range_count; i++) {
        const pt2_range *r = &p->ranges[i];
        if (!r->seen)
            continue;
        fe_buffer_text(&b, first ? "" : ", ");
        fe_buffer_text(&b, r->key);
        fe_buffer_text(&b, ": VR[");
        r->has_min ? fe_buffer_int(&b, r->min) : fe_buffer_text(&b, "-int_oo");
        fe_buffer_text(&b, ", ");
        r->has_max ? fe_buffer_int(&b, r->max) : fe_buffer_text(&b, "int_oo");
        fe_buffer_char(&b, ']');
        first = false;
    }
    fe_buffer_char(&b, '}');
    return ended(&b);
}

static void check_same(const char *file, const char *what, char *got, const char *want)
{
    if (strcmp(got, want) != 0)
        printf("%s: %s\n", file, what);
    CHECK_TEXT(got, want);
    free(got);
}

/* ---- opened files ---- */

typedef struct {
    pt2_report report;
    fe_exprs *exprs;
    pt2_archive *archive;
    pt2_program *program;
    fe_reserved reserved;
    bool good;
} opened;

/* Of torch's names that mean something in code, those that the samples use. */
static const char *const reserved_names[] = {"abs",   "all",  "any",   "class",  "dict", "float", "for",    "from",
                                             "input", "int",  "len",   "list",   "max",  "min",   "nan",    "pow",
                                             "range", "self", "slice", "sorted", "sum",  "torch", "device", "lambda"};

static void init(opened *o, const fe_allocator *a)
{
    *o = (opened){.exprs = fe_exprs_new(&fe_libc_allocator)};
    pt2_report_init(&o->report, a, NULL);
    fe_reserved_init(&o->reserved, &fe_libc_allocator);
    for (size_t i = 0; i < sizeof reserved_names / sizeof *reserved_names; i++)
        DO(fe_reserved_add(&o->reserved, reserved_names[i], strlen(reserved_names[i])));
    CHECK(o->exprs);
}

static void close_opened(opened *o)
{
    pt2_program_free(o->program);
    if (o->archive)
        pt2_archive_close(o->archive);
    fe_exprs_free(o->exprs);
    fe_reserved_clear(&o->reserved);
    pt2_report_clear(&o->report);
}

/* What every program that was read has, faulty or not: cores in order, an origin for each node. */
static void check_origins(const pt2_graph *g)
{
    CHECK_INT(g->origin_count, g->core->node_count);
    CHECK_INT(g->object_count, g->core->object_count);
    for (uint32_t id = 1; id < g->origin_count; id++) {
        const pt2_origin *o = &g->origins[id];
        CHECK(o->source != PT2_FROM_NOTHING && o->name == g->core->details[id].name);
        CHECK(!o->value == (o->value_kind == PT2_VALUE_NONE));
    }
    for (uint32_t t = 0; t < g->core->target_count; t++) {
        if (g->core->targets[t].op == FE_OP_CALL_FUNCTION)
            CHECK(g->core->targets[t].flags & FE_TARGET_KNOWN && g->core->targets[t].text);
    }
    CHECK_SOUND(g->core);
    for (uint32_t i = 0; i < g->subgraph_count; i++) {
        CHECK(g->subgraphs[i]->parent == g && g->subgraphs[i]->name);
        check_origins(g->subgraphs[i]);
    }
}

static void read_unchecked(opened *o)
{
    uint32_t errors = o->report.errors;

    o->good = pt2_program_read(o->program, &o->reserved, &o->report) == 0;
    CHECK(o->good ? o->report.errors == errors : o->report.errors > errors || o->report.no_memory);
}

static void read_program(opened *o)
{
    read_unchecked(o);
    if (o->good)
        check_origins(o->program->root);
}

static void open_file(opened *o, const char *path)
{
    init(o, &fe_libc_allocator);
    o->archive = pt2_archive_open_fd(open(path, O_RDONLY), &fe_libc_allocator, &o->report);
    if (o->archive)
        o->program = pt2_program_open(o->archive, NULL, o->exprs, &fe_libc_allocator, &o->report);
    if (o->program)
        read_program(o);
}

/* ---- samples ---- */

static yyjson_doc *json_file(const char *path)
{
    bytes b = read_file(path);
    yyjson_doc *doc = yyjson_read(b.data, b.len, 0);

    CHECK(doc);
    free(b.data);
    return doc;
}

static void check_subgraphs(const char *file, const pt2_graph *g, const char *prefix, yyjson_val *want, size_t *count)
{
    char name[512];

    for (uint32_t i = 0; i < g->subgraph_count; i++) {
        snprintf(name, sizeof name, "%s%s", prefix, g->subgraphs[i]->name);
        const char *text = yyjson_get_str(yyjson_obj_get(want, name));
        CHECK(text);
        check_same(file, name, graph_text(g->subgraphs[i]), text);
        ++*count;
        strcat(name, ".");
        check_subgraphs(file, g->subgraphs[i], name, want, count);
    }
}

static void check_sample(const char *path)
{
    char json_path[512];
    size_t subgraphs = 0;
    opened o;

    snprintf(json_path, sizeof json_path, "%.*s.json", (int)(strlen(path) - 4), path);
    if (access(json_path, R_OK) != 0)
        return; /* torch does not load it */
    open_file(&o, path);
    if (!o.good)
        print_faults(&o.report);
    CHECK(o.good);
    yyjson_doc *doc = json_file(json_path);
    yyjson_val *want = yyjson_doc_get_root(doc), *inner = yyjson_obj_get(want, "subgraphs");
    const pt2_graph *root = o.program->root;
    check_same(path, "graph", graph_text(root), yyjson_get_str(yyjson_obj_get(want, "graph")));
    check_subgraphs(path, root, "", inner, &subgraphs);
    CHECK_INT(subgraphs, yyjson_obj_size(inner));
    check_same(path, "signature", signature_text(root->core), yyjson_get_str(yyjson_obj_get(want, "graph_signature")));
    check_same(path, "ranges", ranges_text(o.program), yyjson_get_str(yyjson_obj_get(want, "range_constraints")));
    yyjson_doc_free(doc);
    close_opened(&o);
}

/* Call for each .pt2 of a folder. */
static size_t each_file(const char *folder, void (*call)(const char *path))
{
    DIR *d = opendir(folder);
    struct dirent *e;
    char path[512];
    size_t count = 0;

    CHECK(d);
    while ((e = readdir(d))) {
        size_t len = strlen(e->d_name);
        if (len < 5 || strcmp(e->d_name + len - 4, ".pt2") != 0)
            continue;
        snprintf(path, sizeof path, "%s%s", folder, e->d_name);
        call(path);
        count++;
    }
    closedir(d);
    return count;
}

static void test_samples(void)
{
    CHECK(each_file(SAMPLES "current/", check_sample) > 20);
    CHECK(each_file(SAMPLES "middle_layout/", check_sample) > 0);
    CHECK(each_file(SAMPLES "old_layout/", check_sample) > 5);
}

/* ---- hostile files ---- */

static bool has_prefix(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Those that only the verifier can tell: they need the weights. */
static bool is_verifiers(const char *name)
{
    static const char *const names[] = {"G68", "G69", "G70", "G73"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (has_prefix(name, names[i]))
            return true;
    }
    return false;
}

static bool is_expected(const pt2_report *r, yyjson_val *want)
{
    const char *kind = yyjson_get_str(yyjson_obj_get(want, "kind")),
               *path = yyjson_get_str(yyjson_obj_get(want, "path"));
    yyjson_val *token;
    size_t i, count;

    for (uint32_t k = 0; k < r->count; k++) {
        const pt2_fault *f = &r->items[k];
        bool found = f->severity == PT2_ERROR && strcmp(pt2_kind_name(f->kind), kind) == 0 &&
                     (!path || (f->path && has_prefix(f->path, path)));
        yyjson_arr_foreach(yyjson_obj_get(want, "tok"), i, count, token) found =
            found && (strstr(f->message, yyjson_get_str(token)) || strstr(f->path, yyjson_get_str(token)));
        if (found)
            return true;
    }
    return false;
}

/* Whatever the outcome should be, there is one: expected.json says which. */
static void test_hostile(void)
{
    yyjson_doc *doc = json_file(HOSTILE "expected.json");
    yyjson_val *key, *want;
    size_t i, max, count = 0;
    char path[512];
    opened o;

    yyjson_obj_foreach(yyjson_doc_get_root(doc), i, max, key, want)
    {
        const char *name = yyjson_get_str(key), *outcome = yyjson_get_str(yyjson_obj_get(want, "outcome"));
        snprintf(path, sizeof path, HOSTILE "%s.pt2", name);
        if (name[0] != 'G' || access(path, R_OK) != 0 || is_verifiers(name))
            continue;
        open_file(&o, path);
        bool right = strcmp(outcome, "error") == 0
                         ? (o.good ? yyjson_get_bool(yyjson_obj_get(want, "also_ok")) : is_expected(&o.report, want))
                         : o.good || yyjson_get_bool(yyjson_obj_get(want, "also_error"));
        if (!right) {
            printf("%s\n", name);
            print_faults(&o.report);
        }
        CHECK(right);
        close_opened(&o);
        count++;
    }
    CHECK(count > 80);
    yyjson_doc_free(doc);
}

/* ---- small programs ---- */

typedef struct {
    const char *inputs;  /* names of tensors, separated by blanks; n=N: a constant of that name */
    const char *nodes;   /* JSON, with ' for " */
    const char *outputs; /* names of tensors */
    const char *tensors; /* names that have entries, beside inputs */
    const char *size;    /* of each tensor, which has one dimension; NULL: 2 */
    const char *numbers; /* sym_int_values; NULL: none */
    const char *ranges;  /* NULL: none */
} small_program;

#define META(size)                                                                           \
    "{'dtype':7,'sizes':[" size                                                              \
    "],'requires_grad':false,'device':{'type':'cpu','index':null},'strides':[{'as_int':1}]," \
    "'storage_offset':{'as_int':0},'layout':7}"

static void put_json(fe_buffer *b, const char *text)
{
    for (; *text; text++)
        fe_buffer_char(b, *text == '\'' ? '"' : *text);
}

/* For each word of a list, a JSON text with the word in the place of %. */
static size_t put_each(fe_buffer *b, const char *words, const char *form, const char *constant_form, size_t before)
{
    size_t count = before, len;

    for (const char *at = words; *at; at += len + (at[len] == ' ')) {
        len = strcspn(at, " ");
        const char *equals = memchr(at, '=', len);
        const char *f = equals ? constant_form : form;
        if (!f)
            continue;
        fe_buffer_text(b, count++ ? "," : "");
        for (; *f; f++) {
            if (*f == '%')
                fe_buffer_add(b, at, equals ? (size_t)(equals - at) : len);
            else if (*f == '#')
                fe_buffer_add(b, equals + 1, len - (size_t)(equals + 1 - at));
            else
                fe_buffer_char(b, *f == '\'' ? '"' : *f);
        }
    }
    return count;
}

static void put_treespec(fe_buffer *b, size_t leaves)
{
    put_json(b, "'[1, {\\'type\\': \\'builtins.tuple\\', \\'context\\': \\'null\\', \\'children_spec\\': [");
    for (size_t i = 0; i < leaves; i++)
        put_json(b, i ? ",{\\'type\\':null,\\'context\\':null,\\'children_spec\\':[]}"
                      : "{\\'type\\':null,\\'context\\':null,\\'children_spec\\':[]}");
    put_json(b, "]}]'");
}

static char *program_json(const small_program *s)
{
    char meta[512];
    fe_buffer b;

    snprintf(meta, sizeof meta, "'%%':" META("%s"), s->size ? s->size : "{'as_int':2}");
    fe_buffer_init(&b, &fe_libc_allocator);
    put_json(&b, "{'graph_module':{'graph':{'inputs':[");
    size_t inputs = put_each(&b, s->inputs, "{'as_tensor':{'name':'%'}}", "{'as_int':#}", 0);
    put_json(&b, "],'nodes':[");
    put_json(&b, s->nodes);
    put_json(&b, "],'outputs':[");
    size_t outputs = put_each(&b, s->outputs, "{'as_tensor':{'name':'%'}}", NULL, 0);
    put_json(&b, "],'tensor_values':{");
    size_t count = put_each(&b, s->inputs, meta, NULL, 0);
    put_each(&b, s->tensors, meta, NULL, count);
    put_json(&b, "},'sym_int_values':{");
    put_json(&b, s->numbers ? s->numbers : "");
    put_json(&b, "},'sym_bool_values':{}},'signature':{'input_specs':[");
    put_each(&b, s->inputs, "{'user_input':{'arg':{'as_tensor':{'name':'%'}}}}",
             "{'constant_input':{'name':'%','value':{'as_int':#}}}", 0);
    put_json(&b, "],'output_specs':[");
    put_each(&b, s->outputs, "{'user_output':{'arg':{'as_tensor':{'name':'%'}}}}", NULL, 0);
    put_json(&b, "]},'module_call_graph':[{'fqn':'','signature':{'inputs':[],'outputs':[],'in_spec':");
    put_treespec(&b, inputs);
    put_json(&b, ",'out_spec':");
    put_treespec(&b, outputs);
    put_json(&b, "}}]},'opset_version':{'aten':10},'schema_version':{'major':8,'minor':20},'range_constraints':{");
    put_json(&b, s->ranges ? s->ranges : "");
    put_json(&b, "}}");
    return ended(&b);
}

/* Read a document without an archive. */
static void open_small(opened *o, const small_program *s, const fe_allocator *a)
{
    const pt2_path root = {0};
    char *text = program_json(s);

    init(o, a);
    o->program = fe_resize(a, NULL, sizeof *o->program);
    CHECK(o->program);
    *o->program = (pt2_program){.allocator = a, .exprs = o->exprs};
    fe_arena_init(&o->program->arena, a);
    if (pt2_json_parse_copy(&o->program->json, text, strlen(text), a, NULL, &o->report) < 0 ||
        pt2_schema_check(yyjson_doc_get_root(o->program->json.doc), PT2_TYPE_EXPORTED_PROGRAM, &root, &o->report) < 0) {
        print_faults(&o->report);
        printf("%s\n", text);
        CHECK(false);
    }
    free(text);
}

static void check_small(const char *file, int line, const small_program *s, const char *want)
{
    opened o;

    open_small(&o, s, &fe_libc_allocator);
    read_program(&o);
    if (!o.good) {
        printf("%s:%d: faults\n", file, line);
        print_faults(&o.report);
        exit(1);
    }
    char *text = graph_text(o.program->root);
    check_text(file, line, "text", text, want);
    free(text);
    close_opened(&o);
}

#define PROGRAM(in, n, out, t) .inputs = (in), .nodes = (n), .outputs = (out), .tensors = (t)
#define CHECK_PROGRAM(want, in, n, out, t) \
    check_small(__FILE__, __LINE__, &(small_program){PROGRAM(in, n, out, t)}, want)

/* A node of one tensor argument. */
#define NODE(target, name, arg, outputs)                                               \
    "{'target':'" target "','inputs':[{'name':'self','arg':{'as_tensor':{'name':'" arg \
    "'}},'kind':1}],'outputs':[" outputs "],'metadata':{},'name':" name "}"
#define TENSOR(name) "{'as_tensor':{'name':'" name "'}}"
#define NAMED(name) "{'name':'" name "'}"

#define RELU "torch.ops.aten.relu.default"
#define SPLIT "torch.ops.aten.split.Tensor"

static void test_names(void)
{
    /* reserved names of inputs stay; what the table of names gave for them is gone all the same */
    CHECK_PROGRAM(
        "graph():\n"
        "    %input : [num_users=1] = placeholder[target=input]\n"
        "    %max : [num_users=0] = placeholder[target=max]\n"
        "    %input_1 : [num_users=1] = call_function[target=torch.ops.aten.relu.default](args = (%input,), "
        "kwargs = {})\n"
        "    %relu_default : [num_users=1] = call_function[target=torch.ops.aten.relu.default](args = "
        "(%input_1,), kwargs = {})\n"
        "    return (relu_default,)",
        "input max",
        NODE(RELU, "'input_1'", "input", TENSOR("input_1")) "," NODE(RELU, "null", "input_1", TENSOR("relu_default")),
        "relu_default", "input_1 relu_default");
    /* a constant keeps the name it was given; the specification keeps the one it has */
    CHECK_PROGRAM(
        "graph():\n"
        "    %x : [num_users=1] = placeholder[target=x]\n"
        "    %len_1 : [num_users=0] = placeholder[target=len]\n"
        "    %y : [num_users=1] = call_function[target=torch.ops.aten.relu.default](args = (%x,), kwargs = {})\n"
        "    return (y,)",
        "x len=3", NODE(RELU, "'y'", "x", TENSOR("y")), "y", "y");
}

static void test_results(void)
{
    /* several: a list inside gets a made name, None is called as_none */
    CHECK_PROGRAM(
        "graph():\n"
        "    %x : [num_users=1] = placeholder[target=x]\n"
        "    %s : [num_users=3] = call_function[target=torch.ops.aten.split.Tensor](args = (%x,), kwargs = {})\n"
        "    %a : [num_users=0] = call_function[target=operator.getitem](args = (%s, 0), kwargs = {})\n"
        "    %getitem : [num_users=2] = call_function[target=operator.getitem](args = (%s, 1), kwargs = {})\n"
        "    %b : [num_users=1] = call_function[target=operator.getitem](args = (%getitem, 0), kwargs = {})\n"
        "    %c : [num_users=0] = call_function[target=operator.getitem](args = (%getitem, 1), kwargs = {})\n"
        "    %as_none : [num_users=0] = call_function[target=operator.getitem](args = (%s, 2), kwargs = {})\n"
        "    return (b,)",
        "x", NODE(SPLIT, "'s'", "x", TENSOR("a") ",{'as_tensors':[" NAMED("b") "," NAMED("c") "]},{'as_none':true}"),
        "b", "a b c");
    /* one list, without a name of its own */
    CHECK_PROGRAM(
        "graph():\n"
        "    %x : [num_users=1] = placeholder[target=x]\n"
        "    %split_tensor : [num_users=2] = call_function[target=torch.ops.aten.split.Tensor](args = (%x,), "
        "kwargs = {})\n"
        "    %a : [num_users=1] = call_function[target=operator.getitem](args = (%split_tensor, 0), kwargs = {})\n"
        "    %b : [num_users=0] = call_function[target=operator.getitem](args = (%split_tensor, 1), kwargs = {})\n"
        "    return (a,)",
        "x", NODE(SPLIT, "null", "x", "{'as_tensors':[" NAMED("a") "," NAMED("b") "]}"), "a", "a b");
    /* None: named after the target; no result: named as it says */
    CHECK_PROGRAM(
        "graph():\n"
        "    %x : [num_users=2] = placeholder[target=x]\n"
        "    %relu_default_unused : [num_users=0] = call_function[target=torch.ops.aten.relu.default](args = "
        "(%x,), kwargs = {})\n"
        "    %n : [num_users=0] = call_function[target=torch.ops.aten.relu.default](args = (%x,), kwargs = {})\n"
        "    return ()",
        "x", NODE(RELU, "'z'", "x", "{'as_none':true}") "," NODE(RELU, "'n'", "x", ""), "", "");
    /* a higher-order operator that returns a tuple of one, and one that returns the tensor itself */
    CHECK_PROGRAM(
        "graph():\n"
        "    %x : [num_users=2] = placeholder[target=x]\n"
        "    %wrap : [num_users=1] = call_function[target=torch.ops.higher_order.wrap](args = (%x,), kwargs = {})\n"
        "    %a : [num_users=1] = call_function[target=operator.getitem](args = (%wrap, 0), kwargs = {})\n"
        "    %b : [num_users=0] = call_function[target=torch.ops.higher_order.wrap](args = (%x,), kwargs = {})\n"
        "    return (a,)",
        "x",
        NODE("torch.ops.higher_order.wrap", "null", "x",
             TENSOR(
                 "a")) ",{'is_hop_single_tensor_return':true,"
                       "'target':'torch.ops.higher_order.wrap','inputs':[{'name':'','arg':{'as_tensor':{'name':'x'}}}],"
                       "'outputs':[" TENSOR("b") "],'metadata':{}}",
        "a", "a b");
}

/* Every kind of argument. */
static void test_arguments(void)
{
#define ARGUMENT(name, value) "{'name':'" name "','arg':{" value "},'kind':1}"
    CHECK_PROGRAM(
        "graph():\n"
        "    %x : [num_users=1] = placeholder[target=x]\n"
        "    %y : [num_users=1] = call_function[target=torch.ops.aten.relu.default](args = (%x, [%x, %x], [%x, None], "
        "None, [[%x], []], 3, [1, 2], 0.5, [1.0, inf], text, [a, b], True, [False], torch.float32, "
        "torch.strided, torch.preserve_format, cuda:1, (1+2j), [(1, 2), (3,)], [[1.5]], {k: 1, m: [%x]}, "
        "aten.add.Tensor, 7, [1, 2], 2.5, %x), kwargs = {from_: 1})\n"
        "    return (y,)",
        "x",
        "{'target':'" RELU "','inputs':[" ARGUMENT("a", "'as_tensor':{'name':'x'}") "," ARGUMENT(
            "b",
            "'as_tensors':[{'name':'x'},{'name':"
            "'x'}]") "," ARGUMENT("c",
                                  "'as_"
                                  "optional"
                                  "_tensors"
                                  "':[{'as_"
                                  "tensor':"
                                  "{'name':"
                                  "'x'}},{'"
                                  "as_none'"
                                  ":true}]") "," ARGUMENT("d",
                                                          "'as_none':[]") "," ARGUMENT("e",
                                                                                       "'as_nested_tensors':[[{'name':'"
                                                                                       "x'}],[]]") "," ARGUMENT("f",
                                                                                                                "'as_"
                                                                                                                "int':"
                                                                                                                "3") "," ARGUMENT("g",
                                                                                                                                  "'as_ints':[1,2]") "," ARGUMENT("h",
                                                                                                                                                                  "'as_float':0.5") "," ARGUMENT("i",
                                                                                                                                                                                                 "'as_floats':[1,'Infinity']") "," ARGUMENT("j",
                                                                                                                                                                                                                                            "'as_string':'text'") "," ARGUMENT("k",
                                                                                                                                                                                                                                                                               "'as_strings':['a','b']") "," ARGUMENT("l",
                                                                                                                                                                                                                                                                                                                      "'as_bool':true") "," ARGUMENT("m", "'as_bools':[false]") "," ARGUMENT("n", "'as_scalar_type':7") "," ARGUMENT("o", "'as_layout':7") "," ARGUMENT("p", "'as_memory_format':4") "," ARGUMENT("q", "'as_device':{'type':'cuda','index':1}") "," ARGUMENT("r",
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                             "'as_complex':{'real':1,'imag':2}") "," ARGUMENT("s",
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                              "'as_int_lists':[[1,2],[3]]") "," ARGUMENT("t", "'as_float_lists':[[1.5]]") "," ARGUMENT("u", "'as_string_to_argument':{'k':{'as_int':1},'m':{'as_tensors':[{'name':'x'}]}}") "," ARGUMENT("v",
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                         "'as_operator':'torch.ops.aten.add.Tensor'") "," ARGUMENT("w",
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                   "'as_sym_int':{'as_int':7}") "," ARGUMENT("aa", "'as_sym_ints':[{'as_int':1},{'as_int':2}]") "," ARGUMENT("ab", "'as_sym_float':{'as_float':2.5}") "," ARGUMENT("ac", "'as_optional_tensor':{'as_tensor':{'name':'x'}}") ","
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                            "{'name':'from_','arg':{'as_int':1},'kind':2}],"
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                            "'outputs':[" TENSOR(
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                "y") "],'metadata':{},'name':'y'}",
        "y", "y");
#undef ARGUMENT
}

/* Files that don't tell how arguments are given: by the schema. */
static void test_old_arguments(void)
{
    CHECK_PROGRAM(
        "graph():\n"
        "    %x : [num_users=1] = placeholder[target=x]\n"
        "    %y : [num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = (%x, %x), kwargs = "
        "{alpha: 2})\n"
        "    %z : [num_users=1] = call_function[target=torch.ops.aten.uniform.default](args = (%y, 0.0), "
        "kwargs = {to: 2.0})\n"
        "    return (z,)",
        "x",
        "{'target':'torch.ops.aten.add.Tensor','inputs':[{'name':'self','arg':{'as_tensor':{'name':'x'}}},"
        "{'name':'other','arg':{'as_tensor':{'name':'x'}}},{'name':'alpha','arg':{'as_int':2}}],'outputs':[" TENSOR(
            "y") "],'metadata':{}},"
                 "{'target':'torch.ops.aten.uniform.default','inputs':[{'name':'self','arg':{'as_tensor':{'name':'y'}}}"
                 ","
                 "{'name':'from','arg':{'as_float':0}},{'name':'to','arg':{'as_float':2}}],'outputs':[" TENSOR(
                     "z") "],'metadata':{}}",
        "z", "y z");
}

/* ---- facts of a graph ---- */

static const fe_target *target(const pt2_graph *g, const char *text)
{
    for (uint32_t t = 0; t < g->core->target_count; t++) {
        const fe_target *target = &g->core->targets[t];
        if (target->object != FE_NONE_ID && strcmp(g->objects[target->object].text, text) == 0)
            return target;
    }
    CHECK(false);
    return NULL;
}

static void test_targets(void)
{
    small_program s = {"x",
                       NODE(SPLIT, "'s'", "x", "{'as_tensors':[" NAMED("a") "," NAMED("b") "]}") "," NODE(
                           "torch.ops.mine.put_.default", "'c'", "a",
                           TENSOR("c")) "," NODE("torch.ops.mine.getHalf.default", "'d'", "a", TENSOR("d")),
                       "c",
                       "a b c d",
                       NULL,
                       NULL,
                       NULL};
    opened o;

    open_small(&o, &s, &fe_libc_allocator);
    read_program(&o);
    CHECK(o.good);
    const pt2_graph *g = o.program->root;
    CHECK_TEXT(target(g, SPLIT)->text->data, "split.tensor");
    CHECK_INT(target(g, SPLIT)->flags & (FE_TARGET_UNKNOWN | FE_TARGET_MUTATES), 0);
    CHECK_TEXT(target(g, "_operator.getitem")->text->data, "getitem");
    CHECK_INT(target(g, "_operator.getitem")->flags, FE_TARGET_KNOWN | FE_TARGET_GETITEM);
    CHECK_INT(target(g, "torch.ops.mine.put_.default")->flags, FE_TARGET_KNOWN | FE_TARGET_UNKNOWN | FE_TARGET_MUTATES);
    CHECK_INT(target(g, "torch.ops.mine.getHalf.default")->flags, FE_TARGET_KNOWN | FE_TARGET_UNKNOWN);
    CHECK_TEXT(target(g, "torch.ops.mine.getHalf.default")->text->data, "get_half.default");
    CHECK_CLEAN(&o.report);

    /* where nodes come from */
    const pt2_origin *origin = &g->origins[node(g->core, "b")];
    CHECK(origin->source == PT2_FROM_RESULT && origin->index == 0 && origin->output == 1);
    CHECK(origin->value_kind == PT2_VALUE_TENSOR && origin->value);
    CHECK(!g->origins[node(g->core, "s")].value);
    origin = &g->origins[node(g->core, "d")];
    CHECK(origin->source == PT2_FROM_NODE && origin->index == 2);
    CHECK(g->origins[node(g->core, "x")].source == PT2_FROM_INPUT);
    CHECK(g->origins[node(g->core, "output")].source == PT2_FROM_OUTPUT);
    close_opened(&o);
}

/* ---- subgraphs ---- */

#define SUBGRAPH(name, target)                                                                                         \
    "{'as_graph':{'name':'" name "','graph':{'inputs':[" TENSOR("x") "],'outputs':[" TENSOR("r") "],'nodes':[" NODE(   \
        target, "'r'", "x",                                                                                            \
        TENSOR(                                                                                                        \
            "r")) "],'tensor_values':{'x':" META("{'as_int':2}") ",'r':" META("{'as_int':2}") "},'sym_int_values':{}," \
                                                                                              "'sym_bool_values':{},'" \
                                                                                              "is_single_tensor_"      \
                                                                                              "return':true}}}"

#define CALL(first, second)                                                                                           \
    "{'target':'torch.ops.higher_order.wrap','inputs':[{'name':'','arg':" first ",'kind':1},{'name':'','arg':" second \
    ",'kind':1}],'outputs':[" TENSOR("y") "],'metadata':{},'name':'w','is_hop_single_tensor_return':false}"

static void test_subgraphs(void)
{
    small_program s = {"x", CALL(SUBGRAPH("g", RELU), SUBGRAPH("g", RELU)), "y", "y", NULL, NULL, NULL};
    opened o;

    /* a graph used twice is one graph and two attributes */
    open_small(&o, &s, &fe_libc_allocator);
    read_program(&o);
    CHECK(o.good);
    const pt2_graph *root = o.program->root;
    check_same(
        "subgraphs", "root", graph_text(root),
        "graph():\n"
        "    %x : [num_users=0] = placeholder[target=x]\n"
        "    %g : [num_users=1] = get_attr[target=g]\n"
        "    %g_1 : [num_users=1] = get_attr[target=g]\n"
        "    %w : [num_users=1] = call_function[target=torch.ops.higher_order.wrap](args = (%g, %g_1), kwargs = {})\n"
        "    %y : [num_users=1] = call_function[target=operator.getitem](args = (%w, 0), kwargs = {})\n"
        "    return (y,)");
    CHECK_INT(root->subgraph_count, 1);
    check_same("subgraphs", "inner", graph_text(root->subgraphs[0]),
               "graph():\n"
               "    %x : [num_users=1] = placeholder[target=x]\n"
               "    %r : [num_users=1] = call_function[target=torch.ops.aten.relu.default](args = (%x,), kwargs = {})\n"
               "    return r");
    const pt2_origin *origin = &root->origins[node(root->core, "g_1")];
    CHECK(origin->source == PT2_FROM_GRAPH && origin->index == 0);
    CHECK_INT(origin->call, node(root->core, "w"));
    close_opened(&o);

    s.nodes = CALL(SUBGRAPH("g", RELU), SUBGRAPH("g", "torch.ops.aten.neg.default"));
    open_small(&o, &s, &fe_libc_allocator);
    read_program(&o);
    CHECK_ERROR(&o.report, PT2_GRAPH, NULL, "a second subgraph is called 'g'");
    CHECK_INT(o.report.errors, 1);
    close_opened(&o);
}

/* A graph in a graph in a graph. */
static void test_depth(void)
{
    pt2_limits limits = pt2_default_limits;
    fe_buffer nodes;
    opened o;

    fe_buffer_init(&nodes, &fe_libc_allocator);
    for (int i = 0; i < 5; i++)
        fe_buffer_text(&nodes, "{'target':'torch.ops.higher_order.wrap','inputs':[{'name':'','arg':{'as_graph':{'name':"
                               "'g','graph':{'inputs':[],'outputs':[],'nodes':[");
    for (int i = 0; i < 5; i++)
        fe_buffer_text(&nodes,
                       "],'tensor_values':{},'sym_int_values':{},'sym_bool_values':{}}}},'kind':1}],'outputs':[],"
                       "'metadata':{},'name':'w'}");
    small_program s = {"x", ended(&nodes), "x", "", NULL, NULL, NULL};
    for (limits.graph_depth = 3; limits.graph_depth < 7; limits.graph_depth++) {
        open_small(&o, &s, &fe_libc_allocator);
        o.report.limits = &limits;
        read_program(&o);
        CHECK(o.good == (limits.graph_depth >= 5));
        if (!o.good)
            CHECK_ERROR(&o.report, PT2_LIMIT, NULL, "graph_depth");
        close_opened(&o);
    }
    fe_buffer_clear(&nodes);
}

/* ---- faults of small programs ---- */

#define EXPR(text, hint) "{'as_expr':{'expr_str':'" text "','hint':" hint "}}"
#define S "Symbol(\\u0027s\\u0027, positive=True, integer=True)"

static void check_faulty(const char *file, int line, const small_program *s, pt2_kind kind, const char *path,
                         const char *message)
{
    opened o;
    bool found = false;

    open_small(&o, s, &fe_libc_allocator);
    read_program(&o);
    for (uint32_t i = 0; i < o.report.count && !found; i++) {
        const pt2_fault *f = &o.report.items[i];
        found = f->kind == kind && strcmp(f->path, path) == 0 && strstr(f->message, message);
    }
    if (!found) {
        printf("%s:%d: no %s @ %s: %s\n", file, line, pt2_kind_name(kind), path, message);
        for (uint32_t i = 0; i < o.report.count; i++)
            printf("%s\n", o.report.items[i].path);
        print_faults(&o.report);
        exit(1);
    }
    close_opened(&o);
}

#define CHECK_FAULTY(kind, path, message, ...) \
    check_faulty(__FILE__, __LINE__, &(small_program){__VA_ARGS__}, kind, path, message)
#define CHECK_GRAPH_FAULTY(kind, path, message, in, n, out, t) \
    CHECK_FAULTY(kind, GRAPH path, message, PROGRAM(in, n, out, t))
#define CHECK_SIZE_FAULTY(kind, path, message, text) \
    CHECK_FAULTY(kind, GRAPH "tensor_values.x.sizes[0]" path, message, PROGRAM("x", "", "x", ""), .size = (text))

#define GRAPH "$.graph_module.graph."
#define MANY(name) "{'name':'" name "','arg':{'as_int':1},'kind':1},"

static void test_faults(void)
{
    /* a repeated argument among many, which are looked up in a table */
    CHECK_GRAPH_FAULTY(PT2_GRAPH, "nodes[0].inputs[13].name", "'b' is given twice", "x",
                       "{'target':'" RELU "','inputs':[" MANY("a") MANY("b") MANY("c") MANY("d") MANY("e") MANY("f")
                           MANY("g") MANY("h") MANY("i") MANY("j") MANY("k") MANY("l")
                               MANY("m") "{'name':'b','arg':{'as_int':1},'kind':1}],'outputs':[" TENSOR(
                                   "y") "],'metadata':{},'name':'y'}",
                       "y", "y");
    /* a node that made a name without being defined by it */
    CHECK_GRAPH_FAULTY(PT2_GRAPH, "outputs[0]", "'n' is used here", "x", NODE(RELU, "'n'", "x", ""), "n", "");
    CHECK_GRAPH_FAULTY(PT2_GRAPH, "nodes[1].outputs[0]", "'n' is defined here for the second time", "x",
                       NODE(RELU, "'n'", "x", "") "," NODE(RELU, "'n'", "x", TENSOR("n")), "x", "n");
    CHECK_GRAPH_FAULTY(PT2_GRAPH, "tensor_values", "no entry for 'y'", "x", NODE(RELU, "'y'", "x", TENSOR("y")), "y",
                       "");
    CHECK_GRAPH_FAULTY(PT2_GRAPH, "tensor_values.z", "'z' has an entry here", "x", "", "x", "z");
    CHECK_GRAPH_FAULTY(PT2_NAME, "nodes[0].outputs[0].as_tensors[1]", "'a b'", "x",
                       NODE(SPLIT, "'s'", "x", "{'as_tensors':[{'name':'a'},{'name':'a b'}]}"), "a", "a");
    CHECK_GRAPH_FAULTY(PT2_NAME, "inputs[1]", "'1x'", "x 1x=4", "", "x", "");
    CHECK_GRAPH_FAULTY(PT2_GRAPH, "nodes[0].outputs[0]", "can't be a result", "x",
                       NODE(RELU, "'y'", "x", "{'as_int':1}"), "x", "");
    CHECK_GRAPH_FAULTY(PT2_TARGET, "nodes[0].inputs[0].arg.as_string_to_argument.k.as_operator", "os.system", "x",
                       "{'target':'" RELU "','inputs':[{'name':'a','arg':{'as_string_to_argument':{'k':{'as_operator':"
                       "'os.system'}}},'kind':1}],'outputs':[" TENSOR("y") "],'metadata':{},'name':'y'}",
                       "y", "y");
    /* values */
    CHECK_SIZE_FAULTY(PT2_VALUE, "", "a size is negative: -3", "{'as_int':-3}");
    CHECK_SIZE_FAULTY(PT2_VALUE, ".as_expr.expr_str", "can't be a size", EXPR("Integer(-3)", "null"));
    CHECK_SIZE_FAULTY(PT2_EXPR, ".as_expr.expr_str", "byte 4 of 'Add(Evil(", EXPR("Add(Evil(1), " S ")", "null"));
    CHECK_SIZE_FAULTY(PT2_EXPR, ".as_expr.expr_str", "can't be a size", EXPR("Equality(" S ", Integer(2))", "null"));
    CHECK_FAULTY(PT2_EXPR, GRAPH "sym_int_values.n.as_expr.expr_str", "not a truth value", PROGRAM("x", "", "x", ""),
                 .numbers = "'n':" EXPR("Equality(" S ", Integer(2))", "null"));
    /* ranges */
    CHECK_FAULTY(PT2_VALUE, "$.range_constraints.s", "empty: 2 is greater than 1", PROGRAM("x", "", "x", ""),
                 .ranges = "'s':{'min_val':2,'max_val':1}");
    CHECK_FAULTY(PT2_EXPR, "$.range_constraints", "is no expression", PROGRAM("x", "", "x", ""),
                 .ranges = "'eval(s)':{'min_val':2,'max_val':null}");
}

/* ---- ranges ---- */

static void check_ranges(const small_program *s, const char *want, uint32_t warnings)
{
    opened o;

    open_small(&o, s, &fe_libc_allocator);
    read_program(&o);
    if (!o.good)
        print_faults(&o.report);
    CHECK(o.good);
    check_same("ranges", s->ranges, ranges_text(o.program), want);
    CHECK_INT(o.report.warnings, warnings);
    close_opened(&o);
}

/* torch lists a range when its key is the text of a part of a size or number that it parses. */
static void test_ranges(void)
{
    static const char ranges[] = "'2*s + 1':{'min_val':3,'max_val':null},'s':{'min_val':null,'max_val':9},"
                                 "'s + 1':{'min_val':1,'max_val':2},'2*s':{'min_val':-1,'max_val':2}";
    small_program s = {"x", "", "x", "", NULL, NULL, ranges};

    check_ranges(&s, "{}", 1); /* one warning, for the symbol */
    s.size = EXPR("Add(Mul(Integer(2), " S "), Integer(1))", "{'as_int':5}");
    check_ranges(&s, "{2*s + 1: VR[3, int_oo], s: VR[-int_oo, 9], 2*s: VR[-1, 2]}", 0);
    /* an entry that nothing defines: not parsed when it is a tensor, parsed when it is a number */
    s = (small_program){"x=1", "", "", "y", EXPR(S, "null"), NULL, ranges};
    check_ranges(&s, "{}", 2);
    s = (small_program){"x=1", "", "", "", NULL, "'n':" EXPR("Add(" S ", Integer(1))", "null"), ranges};
    check_ranges(&s, "{s: VR[-int_oo, 9], s + 1: VR[1, 2]}", 1);
}

/* ---- memory ---- */

/* Each allocation of a reading fails in turn; nothing is left, and the report says why. Not every one is needed: a block that
 * can't shrink stays as it is. */
static void fail_each(const char *path, bool path_is_good)
{
    size_t needed = SIZE_MAX;
    bytes b = read_file(path);

    for (size_t n = 0; n < needed; n++) {
        test_memory memory;
        opened o;
        memory_init(&memory);
        init(&o, &memory.allocator);
        o.archive = pt2_archive_open_bytes(b.data, b.len, &memory.allocator, &o.report);
        fe_exprs_free(o.exprs);
        o.exprs = fe_exprs_new(&memory.allocator);
        CHECK(o.archive && o.exprs);
        o.program = pt2_program_open(o.archive, NULL, o.exprs, &memory.allocator, &o.report);
        CHECK(o.program);
        memory_fail(&memory, n, n % 2);
        read_unchecked(&o);
        CHECK(path_is_good ? o.report.no_memory == !o.good : !o.good);
        if (memory.calls <= n)
            needed = n;
        CHECK(needed == SIZE_MAX || o.good == path_is_good);
        memory_fail(&memory, SIZE_MAX, false);
        close_opened(&o);
        CHECK_INT(memory.blocks, 0);
    }
    CHECK(needed > 10);
    free(b.data);
}

static void test_no_memory(void)
{
    fail_each(SAMPLES "current/dynamic.pt2", true);
    fail_each(SAMPLES "current/cond_.pt2", true);
    fail_each(HOSTILE "G51_target_0.pt2", false);
}

/* A long program needs few allocations: what nodes are made of comes from arenas. */
static void test_long(void)
{
    enum { LENGTH = 20000 };
    test_memory memory;
    fe_buffer nodes, tensors;
    opened o;

    fe_buffer_init(&nodes, &fe_libc_allocator);
    fe_buffer_init(&tensors, &fe_libc_allocator);
    for (int i = 0; i < LENGTH; i++) {
        char text[512];
        snprintf(text, sizeof text, "%s" NODE(RELU, "'r_%d'", "r_%d", TENSOR("r_%d")), i ? "," : "", i, i + 1, i + 1);
        /* the order of the three numbers in NODE: argument, result, name */
        fe_buffer_text(&nodes, text);
        snprintf(text, sizeof text, "%sr_%d", i ? " " : "", i + 1);
        fe_buffer_text(&tensors, text);
    }
    memory_init(&memory);
    small_program s = {"r_0", ended(&nodes), "r_20000", ended(&tensors), NULL, NULL, NULL};
    open_small(&o, &s, &memory.allocator);
    size_t before = memory.calls;
    read_program(&o);
    CHECK(o.good);
    CHECK_INT(o.program->root->core->live, LENGTH + 2);
    CHECK(memory.calls - before < 500);
    close_opened(&o);
    CHECK_INT(memory.blocks, 0);
    fe_buffer_clear(&nodes);
    fe_buffer_clear(&tensors);
}

int main(void)
{
    RUN(test_samples);
    RUN(test_hostile);
    RUN(test_names);
    RUN(test_results);
    RUN(test_arguments);
    RUN(test_old_arguments);
    RUN(test_targets);
    RUN(test_subgraphs);
    RUN(test_depth);
    RUN(test_faults);
    RUN(test_ranges);
    RUN(test_no_memory);
    RUN(test_long);
    return 0;
}
