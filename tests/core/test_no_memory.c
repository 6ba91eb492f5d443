/* test_no_memory.c - every function that can allocate, with each allocation failing in turn.
 *
 * A failed call says so, leaves the graph as it was and sound, leaks nothing, and works when it is called again.
 */
#include "check.h"

typedef struct {
    test_memory memory; /* of g and of all that a call makes */
    fe_graph *g;
    fe_graph *source; /* from libc, to copy from */
    fe_seq *args, *kwargs;
    fe_value value;
    uint32_t object;
    fe_report report;
    fe_signature *signature;
    fe_reserved reserved;
} world;

#define LINES                                                                                                        \
    "x; y; z; w = @weight; a = f x (x,y) k:[y,'s']; b = f a x; c = get b 0; d = get b 0; e = get d 1; h = get c 1; " \
    "dead = f a; deader = f dead; return (e,h,[d])"

static char big[6000]; /* a name for which the arena needs a chunk of its own */

static void make_getitems(fe_graph *g)
{
    static const char *const names[] = {"c", "d", "e", "h"};
    uint32_t target = target_of(g, FE_OP_CALL_FUNCTION, "getitem");

    g->targets[target].flags |= FE_TARGET_GETITEM | FE_TARGET_KNOWN;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        fe_node_set_target(g, node(g, names[i]), target);
}

static void open_world(world *w)
{
    fe_error err;

    *w = (world){.g = NULL};
    memory_init(&w->memory);
    w->g = fe_graph_new(&w->memory.allocator, NULL);
    CHECK(w->g);
    build(w->g, LINES);
    make_getitems(w->g);
    DO(fe_object_new(w->g, &w->object, &err));
    fe_object_ref(w->g, w->object);
    DO(fe_meta_set(w->g, node(w->g, "a"), 1, w->object, &err));
    DO(fe_meta_set(w->g, node(w->g, "a"), 2, w->object, &err));
    CHECK((w->g->signature = fe_signature_new(w->g->allocator)));
    DO(fe_signature_add_input(w->g->signature, (fe_spec){.node = node(w->g, "x")}, &err));
    DO(fe_signature_add_output(w->g->signature, (fe_spec){.node = node(w->g, "d")}, &err));
    w->g->insert = (fe_point){node(w->g, "dead"), false};
    w->source = graph_of("x; y");
    fe_report_init(&w->report, &w->memory.allocator);
    DO(fe_reserved_init(&w->reserved, &w->memory.allocator));
}

static void close_world(world *w)
{
    fe_graph_free(w->g);
    fe_graph_free(w->source);
    fe_report_clear(&w->report);
    fe_signature_free(w->signature);
    fe_reserved_clear(&w->reserved);
    CHECK_INT(w->memory.blocks, 0);
}

/* Leave no room anywhere, so that whatever a call needs has to be allocated. What the arena forgets here it still owns. */
static void tighten(fe_graph *g)
{
    char text[32];

    for (int i = 0; g->target_count < (g->target_mask + 1) / 2; i++) {
        snprintf(text, sizeof text, "target %d", i);
        target_of(g, FE_OP_CALL_METHOD, text);
    }
    for (int i = 0; g->strings.count < g->strings.mask + 1 - (g->strings.mask + 1) / 3; i++) {
        snprintf(text, sizeof text, "filler %d", i);
        str(g, text);
    }
    memset(g->arena.free, 0, sizeof g->arena.free);
    memset(g->edge_free, 0xff, sizeof g->edge_free);
    g->arena.at = g->arena.end;
    g->arena.bytes = 0;
    g->node_capacity = g->detail_capacity = g->node_count;
    g->edge_capacity = g->edge_count;
    g->target_capacity = g->target_count;
    g->object_capacity = g->object_count;
    g->base_capacity = g->base_count;
    g->scratch_capacity = 0;
}

/* All that a failed call must leave alone, as text; the caller frees it. */
static char *snapshot(const world *w)
{
    const fe_graph *g = w->g;
    fe_buffer b;

    fe_buffer_init(&b, &fe_libc_allocator);
    fe_text_graph(g, &plain_renderer, &b);
    for (uint32_t id = 0; id < g->node_count; id++) {
        const fe_detail *d = &g->details[id];
        fe_buffer_text(&b, "\nid ");
        fe_buffer_int(&b, id);
        fe_buffer_text(&b, d->name ? d->name->data : "");
        fe_buffer_text(&b, g->nodes[id].flags & FE_NODE_ERASED ? " erased" : "");
        fe_buffer_text(&b, " type ");
        fe_buffer_int(&b, d->type);
        for (uint32_t e = g->nodes[id].edge; e < g->nodes[id].edge + g->nodes[id].edge_count; e++) {
            fe_buffer_text(&b, " uses ");
            fe_buffer_int(&b, g->edges[e].def);
            fe_buffer_text(&b, " x ");
            fe_buffer_int(&b, g->edges[e].count);
        }
        for (uint32_t e = d->first_user; e != FE_NONE_ID; e = g->edges[e].next) {
            fe_buffer_text(&b, " user ");
            fe_buffer_int(&b, g->edges[e].user);
        }
        for (uint32_t i = 0; d->meta && i < d->meta->len; i++) {
            fe_buffer_text(&b, " meta ");
            fe_buffer_int(&b, d->meta->entries[i].key);
            fe_buffer_text(&b, "=");
            fe_buffer_int(&b, d->meta->entries[i].object);
        }
    }
    for (uint32_t i = 0; i < g->object_count; i++) {
        fe_buffer_text(&b, "\nrefs ");
        fe_buffer_int(&b, g->object_refs[i]);
    }
    for (uint32_t i = 0; i < g->signature->input_count; i++)
        fe_buffer_int(&b, g->signature->inputs[i].node);
    for (uint32_t i = 0; i < g->signature->output_count; i++)
        fe_buffer_int(&b, g->signature->outputs[i].node);
    fe_buffer_text(&b, "\nfaults ");
    fe_buffer_text(&b, faults_of(g, true, false));
    fe_buffer_text(&b, "\nreport ");
    fe_buffer_int(&b, w->report.len);
    fe_buffer_text(&b, " live ");
    fe_buffer_int(&b, g->live);
    fe_buffer_char(&b, '\0');
    CHECK(!b.failed);
    return b.data;
}

typedef struct {
    const char *name;
    void (*prepare)(world *w); /* or NULL */
    int (*run)(world *w, fe_error *err);
    size_t allocations; /* it makes at least so many */
} operation;

static void check_operation(const operation *o, bool fail_on)
{
    for (size_t n = 0;; n++) {
        world w;
        fe_error err = {0};
        open_world(&w);
        if (o->prepare)
            o->prepare(&w);
        tighten(w.g);
        char *before = snapshot(&w);
        memory_fail(&w.memory, n, fail_on);
        int result = o->run(&w, &err);
        size_t calls = w.memory.calls;
        w.memory.fail_at = SIZE_MAX;
        if (result >= 0) {
            CHECK_SOUND(w.g);
            if (n < o->allocations)
                printf("%s allocates only %zu times\n", o->name, n);
            CHECK(n >= o->allocations);
            CHECK_INT(calls, n); /* no failure was passed over */
            free(before);
            close_world(&w);
            return;
        }
        char *after = snapshot(&w);
        if (err.code != FE_NO_MEMORY || strcmp(before, after) != 0)
            printf("%s, allocation %zu: '%s'\n", o->name, n, err.message);
        CHECK_INT(err.code, FE_NO_MEMORY);
        CHECK_TEXT(after, before);
        CHECK(o->run(&w, &err) >= 0);
        CHECK_SOUND(w.g);
        free(before);
        free(after);
        close_world(&w);
    }
}

/* ---- the operations ---- */

static int get_string(world *w, fe_error *err)
{
    return fe_string_get(w->g, "new string", 10, err) ? 0 : -1;
}

static int reserve_name(world *w, fe_error *err)
{
    return fe_reserved_add(&w->reserved, "class", 5) < 0 ? fe_no_memory(err) : 0;
}

static int get_target(world *w, fe_error *err)
{
    uint32_t target;
    bool is_new;

    return fe_target_get(w->g, FE_OP_CALL_FUNCTION, w->object, NULL, &target, &is_new, err);
}

static int new_object(world *w, fe_error *err)
{
    uint32_t object;

    return fe_object_new(w->g, &object, err);
}

static int new_seq(world *w, fe_error *err)
{
    fe_seq *s = fe_seq_new(w->g, 3, w->object, err);

    fe_seq_free(w->g, s);
    return s ? 0 : -1;
}

static int new_complex(world *w, fe_error *err)
{
    fe_value v;

    if (fe_value_complex(w->g, 1, 2, &v, err) < 0)
        return -1;
    fe_value_free(w->g, v);
    return 0;
}

/* Long parts, so that each needs memory of its own. */
static fe_seq *long_seq(fe_graph *g, uint32_t len)
{
    fe_seq *s = seq_new(g, len);

    for (uint32_t i = 0; i < len; i++)
        s->items[i] = value_int(i);
    return s;
}

static void prepare_tree(world *w)
{
    fe_graph *s = w->source;
    uint32_t object;
    fe_error err;

    DO(fe_object_new(s, &object, &err));
    fe_seq *tree = long_seq(s, 300), *typed = fe_seq_new(s, 300, object, &err), *list = long_seq(s, 300);
    CHECK(typed);
    for (uint32_t i = 0; i < 300; i++)
        typed->items[i] = (fe_value){.kind = FE_OBJECT, .as.object = object};
    for (uint32_t i = 0; i < 300; i++)
        fe_object_ref(s, object);
    DO(fe_value_complex(s, 1, 2, &list->items[7], &err));
    list->items[8] = (fe_value){.kind = FE_STR, .as.string = fe_string_get(s, big, sizeof big, &err)};
    tree->items[0] = value_seq(FE_TUPLE, typed);
    tree->items[299] = value_seq(FE_LIST, list);
    w->args = tree;
}

static int copy_tree(world *w, fe_error *err)
{
    fe_seq *copy;
    const uint32_t objects[] = {w->object};

    if (fe_seq_copy(w->g, &(fe_value_map){.objects = objects}, w->args, &copy, err) < 0) {
        CHECK(!copy);
        return -1;
    }
    fe_seq_free(w->g, copy);
    return 0;
}

static int create_name(world *w, fe_error *err)
{
    char buffer[sizeof big + 2];
    fe_new_name n;

    for (int i = 0; i < 2; i++) {
        if (fe_name_create(w->g, fe_name_split(big, sizeof big, buffer), &n, err) < 0)
            return -1;
        fe_name_take(w->g, n);
    }
    return 0;
}

static int set_counter(world *w, fe_error *err)
{
    fe_string *base = fe_string_get(w->g, "new base", 8, err);

    return base ? fe_name_set_counter(w->g, base, 7, err) : -1;
}

static int reserve_nodes(world *w, fe_error *err)
{
    return fe_graph_reserve(w->g, 100, err);
}

static int new_node(world *w, fe_error *err)
{
    uint32_t id;

    if (fe_node_new(w->g, FE_OP_CALL_METHOD, 0, NULL, w->object, &id, err) < 0)
        return -1;
    fe_node_discard(w->g, id);
    return 0;
}

/* Twenty operands: enough to need a table to tell them apart. */
static void prepare_arguments(world *w)
{
    fe_graph *g = w->g;
    uint32_t target = target_of(g, FE_OP_CALL_METHOD, "many");
    char name[16];

    w->args = seq_new(g, 20);
    w->kwargs = seq_new(g, 2);
    g->insert = (fe_point){node(g, "a"), false};
    for (uint32_t i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "n%u", i);
        w->args->items[i] = value_node(make_node(g, FE_OP_CALL_METHOD, target, name, NULL, NULL));
    }
    w->kwargs->items[0] = value_str(g, "k");
    w->kwargs->items[1] = (fe_value){.kind = FE_OBJECT, .as.object = w->object};
    fe_object_ref(g, w->object);
    w->value = value_seq(FE_TUPLE, w->args);
}

static int create(world *w, const char *name, size_t len, fe_error *err)
{
    static char buffer[sizeof big + 2];
    uint32_t id;
    fe_node_parts parts = {.op = FE_OP_CALL_METHOD,
                           .target = target_of(w->source, FE_OP_CALL_METHOD, "f"), /* the first of either graph */
                           .type = w->object,
                           .name = fe_name_split(name, len, buffer),
                           .args = w->args,
                           .kwargs = w->kwargs};

    parts.target = w->g->nodes[node(w->g, "a")].target;
    return fe_node_create(w->g, &parts, &id, err);
}

static int create_node(world *w, fe_error *err)
{
    return create(w, "fresh", 5, err);
}

static int create_node_with_taken_name(world *w, fe_error *err)
{
    return create(w, "a", 1, err);
}

static int create_node_with_long_name(world *w, fe_error *err)
{
    return create(w, big, sizeof big, err);
}

static int set_arguments(world *w, fe_error *err)
{
    return fe_node_set_arguments(w->g, node(w->g, "b"), w->args, w->kwargs, err);
}

static int insert_argument(world *w, fe_error *err)
{
    return fe_node_insert_argument(w->g, node(w->g, "b"), 1, w->value, err);
}

static void prepare_insert(world *w)
{
    prepare_arguments(w);
    fe_seq_free(w->g, w->kwargs);
}

static int replace_operand(world *w, fe_error *err)
{
    return fe_node_replace_operand(w->g, node(w->g, "a"), node(w->g, "x"), node(w->g, "z"), err);
}

/* The second user needs more room than the first. */
static void prepare_replace_all(world *w)
{
    fe_error err;
    fe_graph *g = w->g;

    prepare_arguments(w);
    w->args->items[5] = value_node(node(g, "x"));
    DO(fe_node_set_arguments(g, node(g, "dead"), w->args, w->kwargs, &err));
}

static int replace_all_uses(world *w, fe_error *err)
{
    return fe_node_replace_all_uses(w->g, node(w->g, "x"), node(w->g, "y"), err);
}

static void prepare_operands(world *w)
{
    uint32_t id = make_node(w->g, FE_OP_CALL_METHOD, 0, "bare", NULL, NULL);

    fe_node_place(w->g, id, (fe_point){node(w->g, "a"), true});
}

static int set_operands(world *w, fe_error *err)
{
    const uint32_t defs[] = {node(w->g, "x"), node(w->g, "a")};

    return fe_node_set_operands(w->g, node(w->g, "bare"), defs, 2, err);
}

static int set_first_meta(world *w, fe_error *err)
{
    return fe_meta_set(w->g, node(w->g, "x"), 3, w->object, err);
}

static int set_more_meta(world *w, fe_error *err)
{
    for (uint32_t key = 3; key < 6; key++) {
        if (w->g->details[node(w->g, "a")].meta->len == key)
            continue; /* set before the failure */
        if (fe_meta_set(w->g, node(w->g, "a"), key, w->object, err) < 0) {
            while (key-- > 3)
                fe_meta_delete(w->g, node(w->g, "a"), key);
            return -1;
        }
    }
    return 0;
}

static int reserve_meta(world *w, fe_error *err)
{
    return fe_meta_reserve(w->g, node(w->g, "a"), 50, err);
}

static int add_specs(world *w, fe_error *err)
{
    if (!w->signature && !(w->signature = fe_signature_new(&w->memory.allocator)))
        return fe_no_memory(err);
    if (fe_signature_add_input(w->signature, (fe_spec){.node = 1}, err) < 0)
        return -1;
    return fe_signature_add_output(w->signature, (fe_spec){.node = 1}, err);
}

static int add_report(world *w, fe_error *err)
{
    return fe_report_add(&w->report, 1, 2, 3, err);
}

static int new_graph(world *w, fe_error *err)
{
    fe_graph *g = fe_graph_new(&w->memory.allocator, NULL);

    fe_graph_free(g);
    return g ? 0 : fe_no_memory(err);
}

static int copy_graph(world *w, fe_error *err)
{
    uint32_t map[64], objects[] = {0};
    fe_graph *g = fe_graph_new(&w->memory.allocator, NULL);
    int result = g ? 0 : fe_no_memory(err);

    CHECK(w->g->node_count < 64 && w->g->object_count == 1);
    if (g)
        result = fe_object_new(g, objects, err);
    if (result == 0)
        result = fe_graph_copy(g, w->g, objects, map, err);
    fe_graph_free(g);
    return result;
}

static int compare_graph(world *w, fe_error *err)
{
    const uint32_t classes[] = {0};
    int result = fe_graph_equal(w->g, w->g, classes, classes, err);

    CHECK(result != 0);
    return result;
}

/* A report keeps what it held before. */
static void prepare_report(world *w)
{
    fe_error err;

    for (int i = 0; i < 8; i++)
        DO(fe_report_add(&w->report, 0, 0, 0, &err));
    w->report.capacity = w->report.len;
}

static int lint(world *w, fe_error *err)
{
    fe_report faults;

    fe_report_init(&faults, &w->memory.allocator);
    int result = fe_lint(w->g, &(fe_lint_options){.all = true}, &faults, err);
    CHECK_INT(faults.len, 0);
    fe_report_clear(&faults);
    return result;
}

static void prepare_faults(world *w)
{
    w->g->targets[w->g->nodes[node(w->g, "a")].target].flags |= FE_TARGET_NOT_CALLABLE;
}

/* A fault found, and no room to note it. */
static int lint_with_faults(world *w, fe_error *err)
{
    fe_report faults;

    fe_report_init(&faults, &w->memory.allocator);
    int result = fe_lint(w->g, &(fe_lint_options){.all = false}, &faults, err);
    CHECK_INT(faults.len, result == 0);
    fe_report_clear(&faults);
    if (result == 0)
        w->g->targets[w->g->nodes[node(w->g, "a")].target].flags &= ~(uint32_t)FE_TARGET_NOT_CALLABLE;
    return result;
}

static int eliminate_dead_code(world *w, fe_error *err)
{
    int result = fe_eliminate_dead_code(w->g, &(fe_dce_options){0}, &w->report, err);

    CHECK(result != 0);
    return result;
}

static int eliminate_getitems(world *w, fe_error *err)
{
    int result = fe_eliminate_getitems(w->g, &(fe_getitem_options){.fx_policy = false}, &w->report, err);

    CHECK(result != 0);
    return result;
}

static int eliminate_getitems_by_text(world *w, fe_error *err)
{
    fe_getitem_options o = {.fx_policy = true, .renderer = &plain_renderer};
    int result = fe_eliminate_getitems(w->g, &o, &w->report, err);

    CHECK(result != 0);
    return result;
}

/* An index so long that its text, and the string made of it, need memory of their own. */
static void prepare_long_index(world *w)
{
    static const char *const names[] = {"c", "d"};
    fe_error err;

    for (int i = 0; i < 2; i++) {
        fe_seq *args = seq_new(w->g, 2);
        args->items[0] = value_node(node(w->g, "b"));
        args->items[1] = value_seq(FE_TUPLE, long_seq(w->g, 2000));
        DO(fe_node_set_arguments(w->g, node(w->g, names[i]), args, NULL, &err));
    }
}

static int find_getitems(world *w, fe_error *err)
{
    fe_report found;

    fe_report_init(&found, &w->memory.allocator);
    int result = fe_find_repeated_getitems(w->g, &(fe_getitem_options){0}, &found, err);
    CHECK_INT(result == 0 ? found.len : 2, 2);
    fe_report_clear(&found);
    return result;
}

static int write_text(world *w, fe_error *err)
{
    fe_buffer b;

    fe_buffer_init(&b, &w->memory.allocator);
    fe_text_graph(w->g, &plain_renderer, &b);
    int result = b.failed ? fe_no_memory(err) : 0;
    fe_buffer_clear(&b);
    return result;
}

static const operation operations[] = {
    {"fe_string_get", NULL, get_string, 2},
    {"fe_reserved_add", NULL, reserve_name, 2},
    {"fe_target_get", NULL, get_target, 2},
    {"fe_object_new", NULL, new_object, 3},
    {"fe_seq_new", NULL, new_seq, 1},
    {"fe_value_complex", NULL, new_complex, 1},
    {"fe_seq_copy", prepare_tree, copy_tree, 5},
    {"fe_name_create", NULL, create_name, 5},
    {"fe_name_set_counter", NULL, set_counter, 3},
    {"fe_graph_reserve", NULL, reserve_nodes, 2},
    {"fe_node_new", NULL, new_node, 2},
    {"fe_node_create", prepare_arguments, create_node, 6},
    {"fe_node_create, name taken", prepare_arguments, create_node_with_taken_name, 5},
    {"fe_node_create, long name", prepare_arguments, create_node_with_long_name, 6},
    {"fe_node_create, no arguments", NULL, create_node, 6},
    {"fe_node_set_arguments", prepare_arguments, set_arguments, 2},
    {"fe_node_insert_argument", prepare_insert, insert_argument, 3},
    {"fe_node_replace_operand", NULL, replace_operand, 1},
    {"fe_node_replace_all_uses", prepare_replace_all, replace_all_uses, 2},
    {"fe_node_set_operands", prepare_operands, set_operands, 1},
    {"fe_meta_set, first", NULL, set_first_meta, 1},
    {"fe_meta_set, more", NULL, set_more_meta, 1},
    {"fe_meta_reserve", NULL, reserve_meta, 1},
    {"fe_signature_add_input and _output", NULL, add_specs, 3},
    {"fe_report_add", NULL, add_report, 1},
    {"fe_graph_new", NULL, new_graph, 3},
    {"fe_graph_copy", NULL, copy_graph, 10},
    {"fe_graph_equal", NULL, compare_graph, 2},
    {"fe_lint", NULL, lint, 1},
    {"fe_lint, faults", prepare_faults, lint_with_faults, 1},
    {"fe_eliminate_dead_code", prepare_report, eliminate_dead_code, 1},
    {"fe_eliminate_getitems", prepare_report, eliminate_getitems, 4},
    {"fe_eliminate_getitems, by text", prepare_report, eliminate_getitems_by_text, 6},
    {"fe_eliminate_getitems, long index", prepare_long_index, eliminate_getitems_by_text, 6},
    {"fe_find_repeated_getitems", NULL, find_getitems, 2},
    {"fe_text_graph", NULL, write_text, 2},
};

int main(void)
{
    memset(big, 'n', sizeof big);
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        check_operation(&operations[i], false);
        check_operation(&operations[i], true);
        printf("ok %s\n", operations[i].name);
    }
    return 0;
}
