/* test_verify.c - the verifier on samples as they are, on hostile files, and on programs that edits have broken. */
#include "check.h"
#include "operator.h"
#include "program.h"

#include <dirent.h>
#include <fcntl.h>

#define SAMPLES "tests/data/pt2/samples/"
#define HOSTILE "tests/data/pt2/hostile/"

/* ---- programs ---- */

#define SPARE 16 /* nodes and objects that a test may add */

typedef struct {
    const fe_allocator *allocator;
    pt2_archive *archive;
    fe_exprs *exprs;
    pt2_program *program;
    pt2_graph *root;
    fe_graph *g;
    pt2_object *objects;
    pt2_node_text *texts;
    pt2_report report; /* of the last verification */
    bool read;         /* opened and read without a fault */
} world;

static void open_file(world *w, const char *path, const fe_allocator *a)
{
    pt2_report r;
    int fd = open(path, O_RDONLY);

    CHECK(fd >= 0);
    *w = (world){.allocator = a};
    pt2_report_init(&r, a, NULL);
    pt2_report_init(&w->report, a, NULL);
    w->exprs = fe_exprs_new(a);
    w->archive = pt2_archive_open_fd(fd, a, &r);
    w->program = w->archive ? pt2_program_open(w->archive, NULL, w->exprs, a, &r) : NULL;
    w->read = w->program && pt2_program_read(w->program, NULL, &r) == 0 && !r.errors;
    pt2_report_clear(&r);
    if (!w->read)
        return;
    w->root = w->program->root;
    w->g = w->root->core;
}

/* Objects and texts as the owner of a graph gives them after edits. */
static void make_editable(world *w)
{
    uint32_t count = w->g->node_count + SPARE;

    w->objects = calloc(w->root->object_count + SPARE, sizeof *w->objects);
    w->texts = calloc(count, sizeof *w->texts);
    CHECK(w->objects && w->texts);
    memcpy(w->objects, w->root->objects, w->root->object_count * sizeof *w->objects);
    w->root->objects = w->objects;
    w->root->texts = w->texts;
    w->root->text_count = count;
}

static world open_sample(const char *name)
{
    char path[200];
    world w;

    snprintf(path, sizeof path, SAMPLES "current/%s.pt2", name);
    open_file(&w, path, &fe_libc_allocator);
    CHECK(w.read);
    make_editable(&w);
    return w;
}

static void close_world(world *w)
{
    pt2_report_clear(&w->report);
    pt2_program_free(w->program);
    fe_exprs_free(w->exprs);
    if (w->archive)
        pt2_archive_close(w->archive);
    free(w->objects);
    free(w->texts);
}

/* ---- what was found ---- */

static int verify(world *w, pt2_level level)
{
    pt2_report_clear(&w->report);
    return pt2_program_verify(w->program, w->root, level, &w->report);
}

static const pt2_fault *find(const world *w, pt2_kind kind, pt2_severity severity, const char *text)
{
    for (uint32_t i = 0; i < w->report.count; i++) {
        const pt2_fault *f = &w->report.items[i];
        if (f->kind == kind && f->severity == severity && strstr(f->message, text))
            return f;
    }
    return NULL;
}

static void show(const world *w)
{
    for (uint32_t i = 0; i < w->report.count; i++) {
        const pt2_fault *f = &w->report.items[i];
        printf("  %s %s [%s] %s {%s} %s\n", f->severity == PT2_ERROR ? "error" : "warning", pt2_kind_name(f->kind),
               f->entry ? f->entry : "", f->path ? f->path : "", f->node ? f->node : "", f->message);
    }
}

/* One error and no other, with this text, at this node and path (NULL: none). */
static void check_error(int line, world *w, pt2_kind kind, const char *node, const char *path, const char *text)
{
    int result = verify(w, PT2_LENIENT);
    const pt2_fault *f = find(w, kind, PT2_ERROR, text);

    if (result < 0 && f && w->report.errors == 1 && !strcmp(f->node ? f->node : "", node ? node : "") &&
        !strcmp(f->path ? f->path : "", path ? path : ""))
        return;
    printf("line %d: wanted error %s %s {%s} %s; found:\n", line, pt2_kind_name(kind), path ? path : "",
           node ? node : "", text);
    show(w);
    exit(1);
}

#define CHECK_ERROR(w, kind, node, path, text) check_error(__LINE__, w, kind, node, path, text)

static void check_warning(int line, world *w, pt2_level level, pt2_kind kind, const char *text)
{
    int result = verify(w, level);

    if (result == 0 && find(w, kind, PT2_WARNING, text))
        return;
    printf("line %d: wanted warning %s: %s; found:\n", line, pt2_kind_name(kind), text);
    show(w);
    exit(1);
}

#define CHECK_WARNING(w, level, kind, text) check_warning(__LINE__, w, level, kind, text)

static void check_clean(int line, world *w, pt2_level level)
{
    int result = verify(w, level);

    if (result == 0 && !w->report.count)
        return;
    printf("line %d: nothing should be found, but:\n", line);
    show(w);
    exit(1);
}

#define CHECK_CLEAN(w, level) check_clean(__LINE__, w, level)

/* ---- edits ---- */

#define TENSOR(sizes, strides)                                      \
    "{\"as_tensor\": {\"dtype\": 7, \"sizes\": [" sizes             \
    "], \"requires_grad\": false, \"device\": {\"type\": \"cpu\", " \
    "\"index\": null}, \"strides\": [" strides "], \"storage_offset\": {\"as_int\": 0}, \"layout\": 7}}"
#define SMALL TENSOR("{\"as_int\": 2}", "{\"as_int\": 1}")
#define SIZED(expr) TENSOR("{\"as_expr\": {\"expr_str\": \"" expr "\", \"hint\": null}}", "{\"as_int\": 1}")
#define U9 "Symbol('u9', integer=True)"

static void give(world *w, uint32_t id, const char *value)
{
    CHECK(id < w->root->text_count);
    w->texts[id] = (pt2_node_text){.value = value, .metadata = "{}", .given = true};
}

static uint32_t add_object(world *w, uint8_t kind, const char *text)
{
    fe_error err;
    uint32_t object;

    DO(fe_object_new(w->g, &object, &err));
    CHECK(object <= w->root->object_count + SPARE - 1);
    w->objects[object] = (pt2_object){.kind = kind, .text = text};
    w->root->object_count = object + 1 > w->root->object_count ? object + 1 : w->root->object_count;
    return object;
}

static uint32_t call_target(world *w, const char *text)
{
    uint32_t object = add_object(w, PT2_OBJECT_TARGET, text), target;
    fe_error err;
    bool is_new;

    DO(fe_target_get(w->g, FE_OP_CALL_FUNCTION, object, str(w->g, "stem"), &target, &is_new, &err));
    return target;
}

/* A new node in front of the output; args as in check.h, such as "x 1 k:2". */
static uint32_t call(world *w, const char *target, const char *name, const char *args, const char *value)
{
    const char *words[16];
    size_t sizes[16];
    uint32_t count = split_line(args, strlen(args), words, sizes, 16), plain = 0, a = 0, k = 0;

    for (uint32_t i = 0; i < count; i++)
        plain += !memchr(words[i], ':', sizes[i]);
    fe_seq *positional = seq_new(w->g, plain), *named = seq_new(w->g, (size_t)2 * (count - plain));
    for (uint32_t i = 0; i < count; i++) {
        const char *colon = memchr(words[i], ':', sizes[i]);
        size_t key = colon ? (size_t)(colon - words[i]) + 1 : 0;
        fe_value value_of_word = parse_word(w->g, words[i] + key, sizes[i] - key);
        if (colon) {
            char text[64] = {0};
            memcpy(text, words[i], key - 1);
            named->items[k++] = value_str(w->g, text);
            named->items[k++] = value_of_word;
        } else {
            positional->items[a++] = value_of_word;
        }
    }
    w->g->insert = (fe_point){node(w->g, "output"), false};
    uint32_t id = make_node(w->g, FE_OP_CALL_FUNCTION, call_target(w, target), name, positional, named);
    give(w, id, value);
    return id;
}

static void set_args(world *w, const char *name, const char *args)
{
    const char *words[16];
    size_t sizes[16];
    uint32_t count = split_line(args, strlen(args), words, sizes, 16);
    fe_seq *s = seq_new(w->g, count);
    fe_error err;

    for (uint32_t i = 0; i < count; i++)
        s->items[i] = parse_word(w->g, words[i], sizes[i]);
    DO(fe_node_set_arguments(w->g, node(w->g, name), s, NULL, &err));
}

static void rename_node(world *w, const char *name, const char *new)
{
    fe_node_set_name(w->g, node(w->g, name), str(w->g, new));
}

/* ---- files as they are ---- */

static uint32_t verify_folder(const char *folder)
{
    char path[400];
    DIR *d = opendir(folder);
    struct dirent *e;
    uint32_t count = 0;

    CHECK(d);
    while ((e = readdir(d))) {
        world w;
        size_t len = strlen(e->d_name);
        if (len < 4 || strcmp(e->d_name + len - 4, ".pt2") != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        open_file(&w, path, &fe_libc_allocator);
        if (!w.read)
            printf("%s was not read\n", path);
        CHECK(w.read);
        for (int level = PT2_LENIENT; level <= PT2_STRICT; level++) {
            int result = verify(&w, (pt2_level)level);
            for (uint32_t i = 0; i < w.report.count; i++) { /* what is the samples' own is known nowhere else */
                const pt2_fault *f = &w.report.items[i];
                if (!(f->kind == PT2_UNKNOWN_OPERATOR && strstr(f->message, "fxsample")) &&
                    !(f->kind == PT2_UNKNOWN_CLASS && strstr(f->message, "gen_samples")))
                    result = -1;
            }
            if (result < 0) {
                printf("%s:\n", path);
                show(&w);
                exit(1);
            }
        }
        close_world(&w);
        count++;
    }
    closedir(d);
    return count;
}

static void test_samples(void)
{
    CHECK(verify_folder(SAMPLES "current") >= 30);
    CHECK(verify_folder(SAMPLES "middle_layout") >= 2);
    CHECK(verify_folder(SAMPLES "old_layout") >= 8);
}

static void test_hostile_files(void)
{
    static const struct {
        const char *file, *entry, *path, *text;
        uint8_t kind, severity;
    } files[] = {
        {"E32_is_param_false", "data/weights/model_weights_config.json", "$.config['fc.bias'].is_param", "parameter",
         PT2_SIGNATURE, PT2_ERROR},
        {"E61_shape_other", "data/weights/model_weights_config.json", "$.config['fc.weight'].tensor_meta.sizes", "2x6",
         PT2_PAYLOAD, PT2_ERROR},
        {"E60_device_cuda", "data/weights/model_weights_config.json", "$.config['fc.weight'].tensor_meta.device",
         "device differs from the graph's", PT2_PAYLOAD, PT2_WARNING},
        {"G68_param_code", "models/model.json", "$.graph_module.signature.input_specs[0].parameter.parameter_name",
         "has a quote", PT2_SIGNATURE, PT2_ERROR},
        {"G69_buffer_mut", "models/model.json", "$.graph_module.signature.output_specs[0].buffer_mutation.buffer_name",
         "'nope'", PT2_SIGNATURE, PT2_ERROR},
        {"G70_user_mut", "models/model.json",
         "$.graph_module.signature.output_specs[0].user_input_mutation.user_input_name", "'nope'", PT2_SIGNATURE,
         PT2_ERROR},
        {"G73_nonpersistent", "models/model.json", "$.graph_module.signature.input_specs[0].buffer", "'count'",
         PT2_SIGNATURE, PT2_ERROR},
        {"G81_verifier", "models/model.json", "$.verifiers[0]", "'NOSUCH'", PT2_UNSUPPORTED, PT2_WARNING},
        {"G92_range_unknown", "models/model.json", "$.range_constraints.s999", "no size, stride or number depends on",
         PT2_VALUE, PT2_WARNING},
        {"G51_target_11", "models/model.json", "$.graph_module.graph.nodes[1].target", "unknown operator",
         PT2_UNKNOWN_OPERATOR, PT2_WARNING},
        {"G34_pos_after_kw", "models/model.json", "$.graph_module.graph.nodes[0].inputs[0]", "no argument named 'zz'",
         PT2_ARGUMENT, PT2_WARNING},
    };

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[200];
        world w;
        snprintf(path, sizeof path, HOSTILE "%s.pt2", files[i].file);
        open_file(&w, path, &fe_libc_allocator);
        if (!w.read)
            printf("%s was not read\n", path);
        CHECK(w.read);
        int result = verify(&w, PT2_LENIENT);
        const pt2_fault *f = find(&w, (pt2_kind)files[i].kind, (pt2_severity)files[i].severity, files[i].text);
        if (!f || (result < 0) != (files[i].severity == PT2_ERROR)) {
            printf("%s: %s not found\n", path, files[i].text);
            show(&w);
        }
        CHECK(f && (result < 0) == (files[i].severity == PT2_ERROR));
        CHECK_TEXT(f->entry, files[i].entry);
        CHECK_TEXT(f->path, files[i].path);
        close_world(&w);
    }
}

/* ---- structure ---- */

static void test_order_of_nodes(void)
{
    world w = open_sample("linear");

    fe_node_place(w.g, node(w.g, "relu"), (fe_point){node(w.g, "linear"), false});
    CHECK_ERROR(&w, PT2_GRAPH, "relu", "$.graph_module.graph.nodes[1]", "before it is defined");
    fe_node_place(w.g, node(w.g, "relu"), (fe_point){node(w.g, "linear"), true});
    CHECK_CLEAN(&w, PT2_STRICT);
    w.g->insert = (fe_point){node(w.g, "relu"), true};
    make_node(w.g, FE_OP_CALL_METHOD, target_of(w.g, FE_OP_CALL_METHOD, "neg"), "neg", NULL, NULL);
    CHECK_ERROR(&w, PT2_GRAPH, "neg", NULL, "calls a method");
    close_world(&w);
}

static void test_late_placeholder(void)
{
    world w = open_sample("linear");
    fe_error err;

    w.g->insert = (fe_point){node(w.g, "relu"), true};
    uint32_t id = make_node(w.g, FE_OP_PLACEHOLDER, target_of(w.g, FE_OP_PLACEHOLDER, "late"), "late", NULL, NULL);
    DO(fe_signature_add_input(w.g->signature, (fe_spec){.node = id}, &err));
    give(&w, id, SMALL);
    verify(&w, PT2_LENIENT);
    CHECK(find(&w, PT2_GRAPH, PT2_ERROR, "'late' stands behind other nodes"));
    CHECK(find(&w, PT2_TREESPEC, PT2_ERROR, "2 user inputs"));
    CHECK_INT(w.report.errors, 2);
    close_world(&w);
}

static void test_no_output(void)
{
    world w = open_sample("linear");

    fe_node_erase(w.g, node(w.g, "output"));
    verify(&w, PT2_LENIENT);
    CHECK(find(&w, PT2_GRAPH, PT2_ERROR, "has no output"));
    CHECK(find(&w, PT2_SIGNATURE, PT2_ERROR, "returns 0 values, but the signature describes 1"));
    close_world(&w);
}

static void test_names(void)
{
    world w = open_sample("linear");

    rename_node(&w, "relu", "class");
    CHECK_ERROR(&w, PT2_NAME, "class", "$.graph_module.graph.nodes[1]", "can't be the name");
    rename_node(&w, "class", "a b");
    CHECK_ERROR(&w, PT2_NAME, "a b", "$.graph_module.graph.nodes[1]", "can't be the name");
    rename_node(&w, "a b", "fine");
    CHECK_CLEAN(&w, PT2_STRICT);
    close_world(&w);
}

static void test_subgraphs(void)
{
    world w = open_sample("cond_");
    pt2_graph **inner = w.root->subgraphs;
    const char *name = inner[1]->name;

    CHECK_INT(w.root->subgraph_count, 2);
    w.root->subgraph_count = 1;
    CHECK_ERROR(&w, PT2_GRAPH, "false_graph_0", "$.graph_module.graph.nodes[0]", "is no subgraph");
    w.root->subgraph_count = 2;
    inner[1]->name = "true_graph_0";
    verify(&w, PT2_LENIENT);
    CHECK(find(&w, PT2_GRAPH, PT2_ERROR, "two subgraphs are named 'true_graph_0'"));
    inner[1]->name = "__class__";
    verify(&w, PT2_LENIENT);
    CHECK(find(&w, PT2_NAME, PT2_ERROR, "can't be the name of a subgraph"));
    inner[1]->name = name;
    CHECK_CLEAN(&w, PT2_STRICT);
    /* A fault inside one has the path from the outermost document. */
    fe_node_set_name(inner[0]->core, inner[0]->core->nodes[FE_ROOT].next, str(inner[0]->core, "if"));
    CHECK_ERROR(&w, PT2_NAME, "if", "$.graph_module.graph.nodes[0].inputs[1].arg.as_graph.graph.inputs[0]",
                "name of a node");
    close_world(&w);
}

static void test_operands_of_subgraphs(void)
{
    world w = open_sample("cond_");

    set_args(&w, "cond", "p true_graph_0 false_graph_0 [x,p_fc_bias]");
    verify(&w, PT2_LENIENT);
    CHECK(find(&w, PT2_GRAPH, PT2_ERROR, "calls the subgraph 'true_graph_0' with 2 operands, but that has 3 inputs"));
    CHECK(find(&w, PT2_GRAPH, PT2_ERROR, "calls the subgraph 'false_graph_0' with 2 operands"));
    CHECK_INT(w.report.errors, 2);
    close_world(&w);

    w = open_sample("invoke_subgraph_");
    for (uint32_t id = w.g->nodes[FE_ROOT].next; id != FE_ROOT; id = w.g->nodes[id].next) {
        fe_seq *args = w.g->details[id].args;
        if (args && args->len > 2 && w.g->nodes[id].op == FE_OP_CALL_FUNCTION) {
            CHECK_CLEAN(&w, PT2_STRICT);
            args->len--;
            verify(&w, PT2_LENIENT);
            CHECK(find(&w, PT2_GRAPH, PT2_ERROR, "calls the subgraph"));
            args->len++;
            break;
        }
    }
    close_world(&w);
}

/* A call with one operand fewer than its subgraph has inputs. */
static void check_operands(const char *sample, const char *name, uint32_t list)
{
    world w = open_sample(sample);
    uint32_t id = node(w.g, name);
    fe_seq *args = w.g->details[id].args, *operands = args->items[list].as.seq;

    CHECK_CLEAN(&w, PT2_STRICT);
    CHECK(operands->len);
    operands->len--;
    CHECK(verify(&w, PT2_LENIENT) < 0);
    CHECK(find(&w, PT2_GRAPH, PT2_ERROR, "calls the subgraph"));
    operands->len++;
    fe_value list_was = args->items[list];
    args->items[list] = (fe_value){.kind = FE_NONE}; /* what is no list is not counted */
    (void)verify(&w, PT2_LENIENT);
    CHECK(!find(&w, PT2_GRAPH, PT2_ERROR, "calls the subgraph"));
    args->items[list] = list_was;
    close_world(&w);
}

static void test_operands_of_loops(void)
{
    check_operands("while_loop_", "while_loop", 2);
    check_operands("map_", "map_impl", 1);
    check_operands("map_", "map_impl", 2);
}

static void test_unused_subgraph(void)
{
    world w = open_sample("cond_");

    set_args(&w, "cond", "p true_graph_0 true_graph_0 [x,p_fc_bias,p_fc_weight]");
    fe_node_erase(w.g, node(w.g, "false_graph_0"));
    CHECK_WARNING(&w, PT2_LENIENT, PT2_GRAPH, "'false_graph_0' is used by no node");
    close_world(&w);
}

/* ---- calls ---- */

static void test_targets(void)
{
    world w = open_sample("linear");

    uint32_t id = call(&w, "os.system", "bad", "x", SMALL);
    CHECK_ERROR(&w, PT2_TARGET, "bad", NULL, "'os.system' is no operator");
    fe_node_set_target(w.g, id, call_target(&w, "torch.ops.mine.nosuch.default"));
    CHECK_WARNING(&w, PT2_LENIENT, PT2_UNKNOWN_OPERATOR, "unknown operator 'torch.ops.mine.nosuch.default'");
    fe_node_set_target(w.g, id, call_target(&w, "torch.ops.aten.relu.default"));
    CHECK_CLEAN(&w, PT2_STRICT);
    w.objects[w.g->targets[w.g->nodes[id].target].object].kind = PT2_OBJECT_NONE;
    CHECK_ERROR(&w, PT2_TARGET, "bad", NULL, "something that no file can name");
    close_world(&w);
}

static void test_classes(void)
{
    world own = open_sample("dataclass_io"), tuples = open_sample("nested_inputs"), known = open_sample("kwargs_");

    CHECK_WARNING(&own, PT2_LENIENT, PT2_UNKNOWN_CLASS, "the class 'gen_samples.DC' is none that torch registers");
    CHECK(own.report.count == 1); /* though it is there twice: in arguments and results */
    CHECK_WARNING(&tuples, PT2_LENIENT, PT2_UNKNOWN_CLASS, "gen_samples.NT");
    CHECK_CLEAN(&known, PT2_STRICT);
    close_world(&own);
    close_world(&tuples);
    close_world(&known);
}

static void test_mutation(void)
{
    world training = open_sample("linear"), aten = open_sample("buffer_mutation");

    call(&training, "torch.ops.aten.relu_.default", "relu_1", "x", SMALL);
    CHECK_CLEAN(&training, PT2_STRICT);
    uint32_t id = call(&aten, "torch.ops.aten.relu_.default", "relu_1", "x", SMALL);
    CHECK_ERROR(&aten, PT2_MUTATION, "relu_1", NULL, "writes to its arguments");
    fe_node_set_target(aten.g, id, call_target(&aten, "torch.ops.mine.put_.default"));
    CHECK_ERROR(&aten, PT2_MUTATION, "relu_1", NULL, "torch.ops.mine.put_.default writes");
    fe_node_set_target(aten.g, id, call_target(&aten, "torch.ops.mine.put.default"));
    CHECK_WARNING(&aten, PT2_STRICT, PT2_UNKNOWN_OPERATOR, "mine.put.default");
    close_world(&training);
    close_world(&aten);
}

static void test_arguments(void)
{
    static const struct {
        const char *target, *args, *text; /* text NULL: right */
    } calls[] = {
        {"torch.ops.aten.add.Tensor", "x x", NULL},
        {"torch.ops.aten.add.Tensor", "x x alpha:2", NULL},
        {"torch.ops.aten.add.Tensor", "x 2", NULL}, /* a number as a tensor: torch's exporter writes it so */
        {"torch.ops.aten.add.Tensor", "self:x other:x", NULL},
        {"torch.ops.aten.add.Tensor", "x x 2", "takes 2 arguments by position, but gets 3"},
        {"torch.ops.aten.add.Tensor", "x x beta:2", "has no argument named 'beta'"},
        {"torch.ops.aten.add.Tensor", "x", "the argument 'other' of torch.ops.aten.add.Tensor is missing"},
        {"torch.ops.aten.add.Tensor", "x x self:x", "'self' is given twice"},
        {"torch.ops.aten.add.Tensor", "x 'y'", "'other' takes Tensor, but gets a string"},
        {"torch.ops.aten.add.Tensor", "x None", "'other' takes Tensor, but gets None"},
        {"torch.ops.aten.add.Tensor", "x [x,x]", "'other' takes Tensor, but gets a list"},
        {"torch.ops.aten.reshape.default", "x [2,3]", NULL},
        {"torch.ops.aten.reshape.default", "x (2,x)", NULL}, /* a symbolic int is a node, too */
        {"torch.ops.aten.reshape.default", "x ['a']", "'shape' takes SymInt[], but gets a list with something else"},
        {"torch.ops.aten.cat.default", "[x,x]", NULL},
        {"torch.ops.aten.cat.default", "[x,None]", "'tensors' takes Tensor[]"},
        {"torch.ops.aten.index.Tensor", "x [None,x]", NULL},
        {"torch.ops.aten.clamp.default", "x None 3", NULL},
        {"torch.ops.aten.clone.default", "x memory_format:'no'", "'memory_format' takes MemoryFormat?"},
        {"torch.ops.aten.slice.Tensor", "x 0 0|1|2", "a .pt2 file has no word for an argument of class"},
        {"_operator.add", "x x x", "takes 2 arguments by position, but gets 3"},
        {"torch.sym_not", "x", NULL},
    };

    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        world w = open_sample("linear");
        call(&w, calls[i].target, "new", calls[i].args, SMALL);
        verify(&w, PT2_LENIENT);
        bool right = calls[i].text ? find(&w, PT2_ARGUMENT, PT2_ERROR, calls[i].text) != NULL : w.report.count == 0;
        if (!right) {
            printf("%s(%s):\n", calls[i].target, calls[i].args);
            show(&w);
        }
        CHECK(right);
        close_world(&w);
    }
}

static void test_arguments_of_the_document(void)
{
    world w = open_sample("linear");

    set_args(&w, "linear", "x 'no' p_fc_bias");
    CHECK_ERROR(&w, PT2_ARGUMENT, "linear", "$.graph_module.graph.nodes[0].inputs[1]", "'weight' takes Tensor");
    close_world(&w);
}

static void test_objects_as_arguments(void)
{
    world w = open_sample("linear");
    fe_error err;
    uint32_t id = call(&w, "torch.ops.aten.to.dtype", "new", "x", SMALL),
             object = add_object(&w, PT2_OBJECT_DTYPE, NULL);
    fe_seq *args = seq_new(w.g, 2);

    args->items[0] = value_node(node(w.g, "x"));
    args->items[1] = (fe_value){.kind = FE_OBJECT, .as.object = object};
    fe_object_ref(w.g, object);
    DO(fe_node_set_arguments(w.g, id, args, NULL, &err));
    CHECK_CLEAN(&w, PT2_STRICT);
    w.objects[object] = (pt2_object){.kind = PT2_OBJECT_DEVICE, .text = "cpu"};
    CHECK_ERROR(&w, PT2_ARGUMENT, "new", NULL, "'dtype' takes ScalarType, but gets a device");
    w.objects[object] = (pt2_object){.kind = PT2_OBJECT_NONE};
    CHECK_ERROR(&w, PT2_ARGUMENT, "new", NULL, "a .pt2 file has no word for an argument of class");
    fe_node_set_target(w.g, id, call_target(&w, "torch.ops.higher_order.with_effects"));
    w.objects[object] = (pt2_object){.kind = PT2_OBJECT_TARGET, .text = "os.system"};
    CHECK_ERROR(&w, PT2_TARGET, "new", NULL, "'os.system' is given as an operator");
    w.objects[object].text = "torch.ops.mine.op.default";
    CHECK_WARNING(&w, PT2_LENIENT, PT2_UNKNOWN_OPERATOR, "as an argument");
    close_world(&w);
}

static void test_results(void)
{
    world w = open_sample("multi_out");

    call(&w, "_operator.getitem", "more", "chunk 1", NULL);
    CHECK_WARNING(&w, PT2_LENIENT, PT2_GRAPH, "the same result as another getitem");
    set_args(&w, "more", "chunk 2");
    CHECK_ERROR(&w, PT2_GRAPH, "more", NULL, "takes result 2 of 'chunk', which has only 2");
    set_args(&w, "more", "topk -1");
    CHECK_ERROR(&w, PT2_GRAPH, "more", NULL, "by the index -1");
    set_args(&w, "more", "getitem 0");
    CHECK_ERROR(&w, PT2_GRAPH, "more", NULL, "which has only one");
    set_args(&w, "more", "chunk 0 0");
    CHECK_ERROR(&w, PT2_ARGUMENT, "more", NULL, "a node and an index");
    set_args(&w, "more", "chunk 'a'");
    CHECK_ERROR(&w, PT2_ARGUMENT, "more", NULL, "an int as its index");
    fe_node_erase(w.g, node(w.g, "more"));
    CHECK_CLEAN(&w, PT2_STRICT);
    close_world(&w);
}

/* Of a program that is in no file yet, arguments are checked, and values and results are not. */
static void test_new_program(void)
{
    world w = open_sample("multi_out");

    call(&w, "_operator.getitem", "more", "chunk 2", NULL);
    CHECK_ERROR(&w, PT2_GRAPH, "more", NULL, "which has only 2");
    CHECK_CLEAN(&w, PT2_NEW);
    call(&w, "torch.ops.aten.relu.default", "odd", "more", "{\"as_what\": 1}");
    CHECK_CLEAN(&w, PT2_NEW);
    set_args(&w, "more", "chunk 0 0");
    CHECK(verify(&w, PT2_NEW) < 0);
    CHECK(find(&w, PT2_ARGUMENT, PT2_ERROR, "a node and an index"));
    close_world(&w);
}

static void test_given_results(void)
{
    world w = open_sample("linear");

    call(&w, "torch.ops.aten.chunk.default", "parts", "x 2", "{\"as_list\": [" SMALL ", " SMALL "]}");
    call(&w, "_operator.getitem", "part", "parts 1", SMALL);
    CHECK_CLEAN(&w, PT2_STRICT);
    set_args(&w, "part", "parts 2");
    CHECK_ERROR(&w, PT2_GRAPH, "part", NULL, "which has only 2");
    set_args(&w, "part", "parts 0");
    give(&w, node(w.g, "parts"), "{\"as_list\": [" SMALL ", {\"as_what\": 1}]}");
    CHECK_ERROR(&w, PT2_VALUE, "parts", NULL, "no TensorMeta or symbolic number");
    close_world(&w);
}

static void test_user_of_nothing(void)
{
    world w = open_sample("linear");

    call(&w, "torch.ops.aten._assert_scalar.default", "assert", "1 'm'", NULL);
    rename_node(&w, "assert", "checked");
    CHECK_CLEAN(&w, PT2_STRICT);
    call(&w, "torch.ops.aten.relu.default", "user", "checked", SMALL);
    CHECK_ERROR(&w, PT2_GRAPH, "checked", NULL, "returns nothing");
    close_world(&w);
}

/* ---- values ---- */

static void test_values(void)
{
    static const struct {
        const char *value, *text; /* text NULL: right */
        uint8_t kind;
    } values[] = {
        {SMALL, NULL, 0},
        {TENSOR("", ""), NULL, 0},
        {TENSOR("{\"as_int\": 0}, {\"as_int\": 4611686018427387904}, {\"as_int\": 4611686018427387904}",
                "{\"as_int\": 1}, {\"as_int\": 1}, {\"as_int\": 1}"),
         NULL, 0},
        {"{\"as_sym_int\": {\"as_int\": 4}}", NULL, 0},
        {NULL, "nothing tells what 'new' returns", PT2_VALUE},
        {"{\"as_none\": true}", "nothing tells what 'new' returns", PT2_VALUE},
        {"{\"as_what\": 1}", "is no TensorMeta", PT2_VALUE},
        {"{\"as_tensor\": 3}", "is no TensorMeta", PT2_VALUE},
        {"[1]", "is no TensorMeta", PT2_VALUE},
        {TENSOR("{\"as_int\": -1}", "{\"as_int\": 1}"), "size can't be negative", PT2_VALUE},
        {TENSOR("{\"as_int\": 2}", "{\"as_int\": -1}"), "stride can't be negative", PT2_VALUE},
        {TENSOR("{\"as_int\": 2}", ""), "as many strides", PT2_VALUE},
        {TENSOR("{\"as_int\": 2.5}", "{\"as_int\": 1}"), "neither an int nor an expression", PT2_VALUE},
        {TENSOR("{\"as_int\": 4294967296}, {\"as_int\": 4294967296}", "{\"as_int\": 0}, {\"as_int\": 0}"),
         "more elements", PT2_VALUE},
        {TENSOR("{\"as_int\": 8}", "{\"as_int\": 4611686018427387904}"), "beyond what 64 bits", PT2_VALUE},
        {SIZED("os.system(1)"), "is no expression", PT2_EXPR},
        {TENSOR("{\"as_expr\": 3}", "{\"as_int\": 1}"), "is no expression", PT2_EXPR},
        {SIZED("Add(" U9 ", Integer(1))"), "nothing before gives the symbol u9 a value", PT2_UNBOUND_SYMBOL},
        {SIZED(U9), NULL, 0},
        {SIZED("Mul(Integer(2), " U9 ")"), NULL, 0},
        {"{\"as_sym_bool\": {\"as_expr\": {\"expr_str\": \"Equality(" U9 ", Integer(1))\", \"hint\": null}}}", NULL, 0},
        {"{\"as_sym_int\": {\"as_expr\": {\"expr_str\": \"" U9 "\", \"hint\": null}}}", NULL, 0},
        {"{\"as_sym_int\": {\"as_expr\": {\"expr_str\": \"Add(" U9 ", Integer(1))\", \"hint\": null}}}", "symbol u9",
         PT2_UNBOUND_SYMBOL},
    };

    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        world w = open_sample("linear");
        if (values[i].value && strstr(values[i].value, "as_sym"))
            call(&w, "torch.ops.aten.sym_size.int", "new", "x 0", values[i].value);
        else
            call(&w, "torch.ops.aten.relu.default", "new", "x", values[i].value);
        verify(&w, PT2_LENIENT);
        bool right = values[i].text ? find(&w, (pt2_kind)values[i].kind, PT2_ERROR, values[i].text) != NULL
                                    : w.report.count == 0;
        if (!right) {
            printf("%s:\n", values[i].value ? values[i].value : "no value");
            show(&w);
        }
        CHECK(right);
        close_world(&w);
    }
}

static void test_values_of_another_kind(void)
{
    static const char *const values[] = {"{\"as_sym_int\": {\"as_int\": 4}}", "{\"as_list\": [" SMALL ", " SMALL "]}",
                                         "{\"as_list\": [" SMALL "]}"};

    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        world w = open_sample("linear");
        call(&w, "torch.ops.aten.relu.default", "new", "x", values[i]);
        CHECK_ERROR(&w, PT2_VALUE, "new", NULL, "no tensor, which 'torch.ops.aten.relu.default' returns");
        close_world(&w);
    }
}

static void test_symbols_in_order(void)
{
    world w = open_sample("linear");
    uint32_t first = call(&w, "torch.ops.aten.relu.default", "first", "x", SIZED("Add(" U9 ", Integer(1))"));
    uint32_t second = call(&w, "torch.ops.aten.relu.default", "second", "x", SIZED(U9));

    CHECK_ERROR(&w, PT2_UNBOUND_SYMBOL, "first", NULL, "u9");
    fe_node_place(w.g, second, (fe_point){first, false});
    CHECK_CLEAN(&w, PT2_STRICT);
    close_world(&w);

    /* A value of the document has its place there. */
    w = open_sample("sym_bool");
    set_args(&w, "ge_2", "5 0");
    set_args(&w, "le", "5 3");
    set_args(&w, "lt_1", "5 4");
    set_args(&w, "select", "x 0 0");
    CHECK_CLEAN(&w, PT2_STRICT);
    fe_node_erase(w.g, node(w.g, "item"));
    CHECK_ERROR(&w, PT2_UNBOUND_SYMBOL, "ge_2", "$.graph_module.graph.sym_bool_values.ge_2", "the symbol u0");
    close_world(&w);
}

/* A symbol of the outer graph is known inside, one of a subgraph not outside and not in the next one. */
static void test_symbols_of_subgraphs(void)
{
    world w = open_sample("cond_");
    pt2_node_text inner[2][64] = {{{.value = NULL}}};
    uint32_t ids[2];

    for (uint32_t i = 0; i < 2; i++) {
        pt2_graph *g = w.root->subgraphs[i];
        CHECK(g->core->node_count <= 64);
        g->texts = inner[i];
        g->text_count = g->core->node_count;
        ids[i] = g->core->nodes[g->core->nodes[FE_ROOT].prev].prev;
        CHECK_INT(g->core->nodes[ids[i]].op, FE_OP_CALL_FUNCTION);
    }
    inner[0][ids[0]] = (pt2_node_text){.value = SIZED("Add(" U9 ", Integer(1))"), .metadata = "{}", .given = true};
    verify(&w, PT2_LENIENT);
    CHECK(find(&w, PT2_UNBOUND_SYMBOL, PT2_ERROR, "u9"));
    uint32_t outer = call(&w, "torch.ops.aten.relu.default", "outer", "x", SIZED(U9));
    CHECK_CLEAN(&w, PT2_STRICT);
    give(&w, outer, SMALL);
    inner[0][ids[0]].value = SIZED(U9);
    CHECK_CLEAN(&w, PT2_STRICT);
    inner[1][ids[1]] = (pt2_node_text){.value = SIZED("Add(" U9 ", Integer(1))"), .metadata = "{}", .given = true};
    verify(&w, PT2_LENIENT);
    CHECK_INT(w.report.errors, 1);
    CHECK(find(&w, PT2_UNBOUND_SYMBOL, PT2_ERROR, "u9"));
    close_world(&w);
}

static void test_backed_symbols_and_hints(void)
{
    world w = open_sample("dynamic");

    call(&w, "torch.ops.aten.relu.default", "new", "x",
         SIZED("Add(Symbol('s5', positive=True, integer=True), Integer(1))"));
    CHECK_CLEAN(&w, PT2_LENIENT);
    CHECK_WARNING(&w, PT2_STRICT, PT2_UNBOUND_SYMBOL, "s5");
    give(
        &w, node(w.g, "new"),
        TENSOR(
            "{\"as_expr\": {\"expr_str\": \"Symbol('s77', positive=True, integer=True)\", \"hint\": {\"as_int\": 65}}}",
            "{\"as_int\": 1}"));
    CHECK_WARNING(&w, PT2_STRICT, PT2_VALUE, "65 of s77 is outside its range");
    close_world(&w);
}

static void test_ranges(void)
{
    world w = open_sample("dynamic");

    CHECK(w.program->range_count == 2 && w.program->ranges[0].has_max);
    w.program->ranges[0].min = w.program->ranges[0].max + 1;
    CHECK_ERROR(&w, PT2_VALUE, NULL, "$.range_constraints.s77", "is empty");
    close_world(&w);
}

static void test_removed_values(void)
{
    static const struct {
        const char *sample, *node;
    } nodes[] = {
        {"linear", "relu"}, {"linear", "x"},   {"multi_out", "topk"}, {"multi_out", "getitem"},
        {"scalars", "n"},   {"cond_", "cond"}, {"dynamic", "add_1"},
    };

    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        world w = open_sample(nodes[i].sample);
        uint32_t id = node(w.g, nodes[i].node);
        give(&w, id, NULL);
        w.texts[id].removed = true;
        verify(&w, PT2_LENIENT);
        const pt2_fault *f = find(&w, PT2_VALUE, PT2_ERROR, "has no meta['val']");
        CHECK(f && strcmp(f->node, nodes[i].node) == 0);
        close_world(&w);
    }
}

/* ---- the signature ---- */

static void test_missing_parts(void)
{
    world w = open_sample("linear");
    fe_signature *signature = w.g->signature;

    w.g->signature = NULL;
    CHECK_ERROR(&w, PT2_SIGNATURE, NULL, NULL, "has no signature");
    w.g->signature = signature;
    w.root->origins[node(w.g, "x")] = (pt2_origin){.source = PT2_FROM_NOTHING};
    CHECK_ERROR(&w, PT2_VALUE, "x", NULL, "nothing tells what the input 'x' is");
    close_world(&w);
}

static void test_inputs(void)
{
    world w = open_sample("linear");
    fe_error err;

    fe_node_place(w.g, node(w.g, "x"), (fe_point){node(w.g, "p_fc_weight"), false});
    verify(&w, PT2_LENIENT);
    CHECK(find(&w, PT2_SIGNATURE, PT2_ERROR, "the graph's input here is 'x'"));
    CHECK_INT(w.report.errors, 3);
    fe_node_place(w.g, node(w.g, "x"), (fe_point){node(w.g, "p_fc_bias"), true});
    CHECK_CLEAN(&w, PT2_STRICT);

    /* Removed with its spec: nothing is wrong, but the weight is stored for nothing. */
    fe_spec bias = w.g->signature->inputs[1];
    set_args(&w, "linear", "x p_fc_weight");
    fe_node_erase(w.g, bias.node);
    CHECK_CLEAN(&w, PT2_LENIENT);
    CHECK_WARNING(&w, PT2_STRICT, PT2_PAYLOAD, "no input stands for this");
    CHECK_TEXT(w.report.items[0].path, "$.config['fc.bias']");
    DO(fe_signature_add_input(w.g->signature, bias, &err));
    verify(&w, PT2_LENIENT);
    CHECK(find(&w, PT2_SIGNATURE, PT2_ERROR, "the graph has 2 inputs, but the signature describes 3"));
    CHECK(find(&w, PT2_SIGNATURE, PT2_ERROR, "names an input that is gone"));
    close_world(&w);
}

static void test_targets_of_inputs(void)
{
    world w = open_sample("linear");
    fe_spec *spec = &w.g->signature->inputs[0];

    spec->target = str(w.g, "fc.nope");
    CHECK_ERROR(&w, PT2_SIGNATURE, "p_fc_weight", "$.graph_module.signature.input_specs[0].parameter.parameter_name",
                "'fc.nope' is not among the weights");
    spec->target = str(w.g, "fc.bias");
    verify(&w, PT2_STRICT);
    CHECK(find(&w, PT2_SIGNATURE, PT2_ERROR, "two inputs stand for 'fc.bias'"));
    CHECK(find(&w, PT2_PAYLOAD, PT2_ERROR, "the sizes are 3, but the graph's input 'p_fc_weight' is made for 3x4"));
    spec->target = str(w.g, "layer-1.weight");
    verify(&w, PT2_STRICT);
    CHECK(!find(&w, PT2_SIGNATURE, PT2_WARNING, "layer-1.weight"));
    spec->target = str(w.g, "fc..weight");
    verify(&w, PT2_LENIENT);
    CHECK(find(&w, PT2_SIGNATURE, PT2_ERROR, "has an empty part"));
    spec->target = NULL;
    CHECK_ERROR(&w, PT2_SIGNATURE, "p_fc_weight", "$.graph_module.signature.input_specs[0].parameter.parameter_name",
                "does not name the parameter");
    spec->kind = FE_INPUT_CONSTANT_TENSOR;
    spec->target = str(w.g, "fc.weight");
    CHECK_ERROR(&w, PT2_SIGNATURE, "p_fc_weight",
                "$.graph_module.signature.input_specs[0].tensor_constant.tensor_constant_name",
                "not among the constants");
    spec->kind = FE_INPUT_CUSTOM_OBJ;
    verify(&w, PT2_LENIENT);
    CHECK(find(&w, PT2_SIGNATURE, PT2_ERROR, "its value must be a custom object"));
    spec->kind = FE_INPUT_BUFFER;
    spec->persistent = true;
    CHECK_CLEAN(&w, PT2_LENIENT); /* torch takes a parameter for a buffer */
    CHECK_WARNING(&w, PT2_STRICT, PT2_SIGNATURE, "comes after inputs");
    close_world(&w);
}

static void test_outputs(void)
{
    world w = open_sample("linear");
    fe_signature *s = w.g->signature;

    set_args(&w, "output", "(linear)");
    CHECK_CLEAN(&w, PT2_STRICT);
    set_args(&w, "output", "(linear,relu)");
    CHECK_ERROR(&w, PT2_SIGNATURE, "output", NULL, "the graph returns 2 values, but the signature describes 1");
    set_args(&w, "output", "(relu)");
    s->outputs[0].node = node(w.g, "linear");
    CHECK_ERROR(&w, PT2_SIGNATURE, "linear", NULL, "the graph returns 'relu' here"); /* edited: no document has it */
    set_args(&w, "output", "(7)");
    CHECK_CLEAN(&w, PT2_LENIENT);
    s->outputs[0].node = node(w.g, "relu");
    CHECK_ERROR(&w, PT2_SIGNATURE, "relu", NULL, "returns a constant here");
    close_world(&w);
}

static void test_mutation_targets(void)
{
    world w = open_sample("user_input_mutation");

    rename_node(&w, "y", "z"); /* what updates it goes along */
    CHECK_CLEAN(&w, PT2_LENIENT);
    fe_error err;
    for (uint32_t i = 0; i < w.g->signature->output_count; i++) {
        fe_spec *spec = &w.g->signature->outputs[i];
        if (spec->kind == FE_OUTPUT_USER_INPUT_MUTATION)
            spec->target = fe_string_get(w.g, "nobody", 6, &err);
    }
    verify(&w, PT2_LENIENT);
    CHECK(find(&w, PT2_SIGNATURE, PT2_ERROR, "for the user input 'nobody', but no input stands for one of that name"));
    close_world(&w);

    w = open_sample("buffer_mutation");
    fe_spec first = w.g->signature->outputs[0];
    CHECK_INT(first.kind, FE_OUTPUT_BUFFER_MUTATION);
    w.g->signature->outputs[0] = w.g->signature->outputs[1];
    w.g->signature->outputs[1] = first;
    set_args(&w, "output", "(add_2,add)");
    CHECK_ERROR(&w, PT2_SIGNATURE, "add", "$.graph_module.signature.output_specs[0]", "comes too late");
    close_world(&w);
}

static void test_module_calls(void)
{
    world w = open_sample("module_signature");

    rename_node(&w, "mul", "other");
    CHECK_CLEAN(&w, PT2_STRICT); /* the writer renames it there too */
    set_args(&w, "add_1", "relu relu");
    fe_node_erase(w.g, node(w.g, "other"));
    CHECK_ERROR(&w, PT2_SIGNATURE, NULL, "$.graph_module.module_call_graph[1].signature.outputs[1]",
                "the module call graph names 'mul'");
    close_world(&w);
}

static void test_payloads(void)
{
    world w = open_sample("linear");
    uint32_t id = node(w.g, "p_fc_bias");

    give(&w, id, TENSOR("{\"as_int\": 4}", "{\"as_int\": 1}"));
    verify(&w, PT2_LENIENT);
    const pt2_fault *f =
        find(&w, PT2_PAYLOAD, PT2_ERROR, "the sizes are 3, but the graph's input 'p_fc_bias' is made for 4");
    CHECK(f);
    CHECK_TEXT(f->path, "$.config['fc.bias'].tensor_meta.sizes");
    CHECK_INT(w.report.errors, 1);
    give(&w, id, "{\"as_tensor\": {\"dtype\": 8, \"sizes\": [{\"as_int\": 3}], \"strides\": [{\"as_int\": 1}]}}");
    verify(&w, PT2_LENIENT);
    CHECK((f = find(&w, PT2_PAYLOAD, PT2_ERROR, "the dtype is float32, but the graph's input 'p_fc_bias' is float64")));
    CHECK_TEXT(f->path, "$.config['fc.bias'].tensor_meta.dtype");
    give(&w, id, SIZED(U9)); /* symbolic sizes fit any */
    CHECK_CLEAN(&w, PT2_LENIENT);
    CHECK_WARNING(&w, PT2_STRICT, PT2_PAYLOAD, "requires_grad differs");
    close_world(&w);
}

/* ---- memory ---- */

static void fail_each(const char *name, pt2_level level, bool fail_on)
{
    char path[200];
    test_memory memory;
    world w;
    uint32_t count;
    size_t n;

    memory_init(&memory);
    snprintf(path, sizeof path, SAMPLES "current/%s.pt2", name);
    open_file(&w, path, &memory.allocator);
    CHECK(w.read);
    (void)verify(&w, level);
    count = w.report.count;
    CHECK(!w.report.no_memory);
    for (n = 0;; n++) {
        pt2_report_clear(&w.report);
        size_t blocks = memory.blocks;
        memory_fail(&memory, n, fail_on);
        int result = verify(&w, level);
        memory_fail(&memory, SIZE_MAX, false);
        bool failed = w.report.no_memory;
        CHECK((result < 0) == (failed || w.report.errors));
        CHECK(failed || w.report.count == count);
        pt2_report_clear(&w.report);
        CHECK_INT(memory.blocks, blocks);
        if (!failed)
            break;
    }
    CHECK(n > 6);
    memory_fail(&memory, SIZE_MAX, false);
    close_world(&w);
    CHECK_INT(memory.blocks, 0);
}

static void test_no_memory(void)
{
    static const char *const names[] = {
        "linear", "cond_", "dynamic", "multi_out", "auto_functionalized", "module_signature", "nested_inputs"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        fail_each(names[i], PT2_STRICT, false);
        fail_each(names[i], PT2_LENIENT, true);
    }
}

int main(void)
{
    RUN(test_samples);
    RUN(test_hostile_files);
    RUN(test_order_of_nodes);
    RUN(test_late_placeholder);
    RUN(test_no_output);
    RUN(test_names);
    RUN(test_subgraphs);
    RUN(test_operands_of_subgraphs);
    RUN(test_operands_of_loops);
    RUN(test_unused_subgraph);
    RUN(test_targets);
    RUN(test_classes);
    RUN(test_mutation);
    RUN(test_arguments);
    RUN(test_arguments_of_the_document);
    RUN(test_objects_as_arguments);
    RUN(test_results);
    RUN(test_given_results);
    RUN(test_new_program);
    RUN(test_user_of_nothing);
    RUN(test_values);
    RUN(test_values_of_another_kind);
    RUN(test_symbols_in_order);
    RUN(test_symbols_of_subgraphs);
    RUN(test_backed_symbols_and_hints);
    RUN(test_ranges);
    RUN(test_removed_values);
    RUN(test_missing_parts);
    RUN(test_inputs);
    RUN(test_targets_of_inputs);
    RUN(test_outputs);
    RUN(test_mutation_targets);
    RUN(test_module_calls);
    RUN(test_payloads);
    RUN(test_no_memory);
    return 0;
}
