/* test_passes.c - dead-code and getitem elimination: what each flag and policy keeps, merges and removes. */
#include "check.h"

static void flag_target(fe_graph *g, const char *name, uint32_t flags)
{
    g->targets[g->nodes[node(g, name)].target].flags |= flags;
}

/* ---- dead code ---- */

/* Run it; the removed nodes in order of removal. */
static const char *eliminate(fe_graph *g, bool fx_policy, bool keep_random)
{
    static test_text t;
    fe_dce_options o = {.fx_policy = fx_policy, .keep_random = keep_random};
    fe_report removed;
    fe_error err;

    t = (test_text){.len = 0};
    fe_report_init(&removed, &fe_libc_allocator);
    int changed = fe_eliminate_dead_code(g, &o, &removed, &err);
    CHECK_INT(changed, removed.len > 0);
    for (uint32_t i = 0; i < removed.len; i++) {
        CHECK_INT(removed.items[i].code, FE_REASON_UNUSED);
        text_name(&t, g, removed.items[i].node);
    }
    fe_report_clear(&removed);
    CHECK_SOUND(g);
    return t.data;
}

static void test_chains_go_from_their_end(void)
{
    fe_graph *g = graph_of("x; y; a = f x; b = f a; c = f b a; w = @weight; d = f w; keep = f x; return keep");

    CHECK_TEXT(eliminate(g, false, true), "d w c b a");
    CHECK_TEXT(order(g), "x y keep output");
    CHECK_TEXT(users(g, "x"), "keep");
    CHECK_TEXT(eliminate(g, false, true), "");
    fe_graph_free(g);
}

static void test_nothing_to_do(void)
{
    fe_graph *g = graph_new();

    CHECK_TEXT(eliminate(g, false, true), "");
    build(g, "x; a = f x; return a");
    CHECK_TEXT(eliminate(g, true, false), "");
    CHECK_TEXT(order(g), "x a output");
    fe_graph_free(g);
}

/* Each flag alone: the reason under the safe policy with and without random ones, and under torch.fx's. */
static void test_reasons_by_target(void)
{
    static const struct {
        uint32_t flags;
        fe_reason safe, no_random, fx, fx_no_random;
    } cases[] = {
        {0, FE_REASON_UNUSED, FE_REASON_UNUSED, FE_REASON_UNUSED, FE_REASON_UNUSED},
        {FE_TARGET_KNOWN | FE_TARGET_GETITEM, FE_REASON_UNUSED, FE_REASON_UNUSED, FE_REASON_UNUSED, FE_REASON_UNUSED},
        {FE_TARGET_MUTATES, FE_REASON_MUTATES, FE_REASON_MUTATES, FE_REASON_UNUSED, FE_REASON_UNUSED},
        {FE_TARGET_EFFECT, FE_REASON_EFFECT, FE_REASON_EFFECT, FE_REASON_UNUSED, FE_REASON_UNUSED},
        {FE_TARGET_NO_RESULT, FE_REASON_NO_RESULT, FE_REASON_NO_RESULT, FE_REASON_UNUSED, FE_REASON_UNUSED},
        {FE_TARGET_UNKNOWN, FE_REASON_UNKNOWN, FE_REASON_UNKNOWN, FE_REASON_UNUSED, FE_REASON_UNUSED},
        {FE_TARGET_RANDOM, FE_REASON_RANDOM, FE_REASON_UNUSED, FE_REASON_UNUSED, FE_REASON_UNUSED},
        {FE_TARGET_FX_IMPURE, FE_REASON_UNUSED, FE_REASON_UNUSED, FE_REASON_EFFECT, FE_REASON_EFFECT},
        {FE_TARGET_FX_RANDOM, FE_REASON_UNUSED, FE_REASON_UNUSED, FE_REASON_RANDOM, FE_REASON_UNUSED},
        {FE_TARGET_RANDOM | FE_TARGET_MUTATES, FE_REASON_MUTATES, FE_REASON_MUTATES, FE_REASON_UNUSED,
         FE_REASON_UNUSED},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int mode = 0; mode < 4; mode++) {
            fe_dce_options o = {.fx_policy = mode & 2, .keep_random = !(mode & 1)};
            fe_reason want = mode == 0   ? cases[i].safe
                             : mode == 1 ? cases[i].no_random
                             : mode == 2 ? cases[i].fx
                                         : cases[i].fx_no_random;
            fe_graph *g = graph_of("x; a = f x; return x");
            flag_target(g, "a", cases[i].flags);
            CHECK_INT(fe_node_effect(g, node(g, "a"), &o), want);
            CHECK_TEXT(eliminate(g, o.fx_policy, o.keep_random), want == FE_REASON_UNUSED ? "a" : "");
            fe_graph_free(g);
        }
    }
}

static void test_reasons_by_call(void)
{
    fe_dce_options safe = {.keep_random = true}, fx = {.fx_policy = true, .keep_random = true};
    fe_graph *g = graph_of("x; a = f x; b = f x; c = f x out:x; d = f x out:1; e = f x out:(x,1); h = f x oui:x; "
                           "i = f x outs:x; j = f x");

    g->nodes[node(g, "a")].flags |= FE_NODE_IMPURE;
    g->nodes[node(g, "b")].flags |= FE_NODE_FX_IMPURE;
    g->nodes[node(g, "j")].flags |= FE_NODE_OUT;
    CHECK_INT(fe_node_effect(g, node(g, "x"), &safe), FE_REASON_PLACEHOLDER);
    CHECK_INT(fe_node_effect(g, node(g, "a"), &safe), FE_REASON_CALL);
    CHECK_INT(fe_node_effect(g, node(g, "b"), &safe), FE_REASON_UNUSED);
    CHECK_INT(fe_node_effect(g, node(g, "c"), &safe), FE_REASON_OUT);
    CHECK_INT(fe_node_effect(g, node(g, "d"), &safe), FE_REASON_UNUSED); /* no node under out= */
    CHECK_INT(fe_node_effect(g, node(g, "e"), &safe), FE_REASON_OUT);
    CHECK_INT(fe_node_effect(g, node(g, "h"), &safe), FE_REASON_UNUSED);
    CHECK_INT(fe_node_effect(g, node(g, "i"), &safe), FE_REASON_UNUSED);
    CHECK_INT(fe_node_effect(g, node(g, "j"), &safe), FE_REASON_OUT);
    CHECK_INT(fe_node_effect(g, node(g, "a"), &fx), FE_REASON_UNUSED);
    CHECK_INT(fe_node_effect(g, node(g, "b"), &fx), FE_REASON_CALL);
    CHECK_INT(fe_node_effect(g, node(g, "c"), &fx), FE_REASON_UNUSED);
    build(g, "return x");
    CHECK_INT(fe_node_effect(g, node(g, "output"), &safe), FE_REASON_OUTPUT);
    CHECK_INT(fe_node_effect(g, node(g, "x"), &fx), FE_REASON_PLACEHOLDER);
    CHECK_INT(fe_node_effect(g, node(g, "output"), &fx), FE_REASON_OUTPUT);
    CHECK_TEXT(eliminate(g, false, true), "i h d b");
    CHECK_TEXT(order(g), "x a c e j output");
    CHECK_TEXT(eliminate(g, true, true), "j e c a");
    fe_graph_free(g);
}

/* An effect keeps what it works on. */
static void test_an_effect_keeps_its_operands(void)
{
    fe_graph *g = graph_of("x; a = f x; b = write a; c = f b; return x");

    flag_target(g, "b", FE_TARGET_MUTATES);
    CHECK_TEXT(eliminate(g, false, true), "c");
    CHECK_TEXT(order(g), "x a b output");
    fe_graph_free(g);
}

static void test_reports_are_added_to(void)
{
    fe_graph *g = graph_of("x; a = f x; return x");
    fe_report r;
    fe_error err;

    fe_report_init(&r, &fe_libc_allocator);
    DO(fe_report_add(&r, 7, 8, 9, &err));
    CHECK_INT(fe_eliminate_dead_code(g, &(fe_dce_options){0}, &r, &err), 1);
    CHECK_INT(r.len, 2);
    CHECK_INT(r.items[0].code, 7);
    CHECK_INT(fe_eliminate_dead_code(g, &(fe_dce_options){0}, &r, &err), 0);
    CHECK_INT(r.len, 2);
    fe_report_clear(&r);
    fe_graph_free(g);
}

static void test_deep_chain(void)
{
    fe_graph *g = graph_of("x");
    uint32_t target = target_of(g, FE_OP_CALL_METHOD, "f"), id, last = node(g, "x");
    fe_report r;
    fe_error err;

    for (int i = 0; i < 100000; i++) {
        fe_seq *args = seq_new(g, 1);
        args->items[0] = value_node(last);
        DO(fe_node_new(g, FE_OP_CALL_METHOD, target, NULL, FE_NONE_ID, &id, &err));
        DO(fe_node_set_arguments(g, id, args, NULL, &err));
        fe_node_place(g, id, (fe_point){FE_ROOT, false});
        last = id;
    }
    fe_report_init(&r, &fe_libc_allocator);
    CHECK_INT(fe_eliminate_dead_code(g, &(fe_dce_options){0}, &r, &err), 1);
    CHECK_INT(r.len, 100000);
    CHECK_INT(g->live, 1);
    fe_report_clear(&r);
    fe_graph_free(g);
}

/* ---- getitems ---- */

/* Make a node an operator.getitem, whatever it was built as. */
static void make_getitem(fe_graph *g, const char *name)
{
    uint32_t target = target_of(g, FE_OP_CALL_FUNCTION, "getitem");

    g->targets[target].flags |= FE_TARGET_GETITEM | FE_TARGET_KNOWN;
    fe_node_set_target(g, node(g, name), target);
}

/* A graph in which the method "get" stands for getitem and "write" writes. */
static fe_graph *reading(const char *lines)
{
    fe_graph *g = graph_of(lines);

    for (uint32_t id = fe_node_next(g, FE_ROOT); id != FE_ROOT; id = fe_node_next(g, id)) {
        if (strcmp(g->targets[g->nodes[id].target].text->data, "get") == 0)
            make_getitem(g, g->details[id].name->data);
        else if (strcmp(g->targets[g->nodes[id].target].text->data, "write") == 0)
            g->targets[g->nodes[id].target].flags |= FE_TARGET_MUTATES;
    }
    return g;
}

/* Run it on a fresh graph; "removed>kept" for each, and nothing else may have changed. */
static const char *merge(const char *lines, bool fx_policy)
{
    static test_text t;
    fe_getitem_options o = {.fx_policy = fx_policy, .renderer = &plain_renderer};
    fe_graph *g = reading(lines);
    fe_report found, removed;
    fe_error err;
    uint32_t live = g->live;

    t = (test_text){.len = 0};
    fe_report_init(&found, &fe_libc_allocator);
    fe_report_init(&removed, &fe_libc_allocator);
    DO(fe_find_repeated_getitems(g, &o, &found, &err));
    CHECK_INT(g->live, live);
    int changed = fe_eliminate_getitems(g, &o, &removed, &err);
    CHECK_INT(changed, removed.len > 0);
    CHECK_INT(found.len, removed.len);
    CHECK_INT(g->live, live - removed.len);
    for (uint32_t i = 0; i < removed.len; i++) {
        const fe_record *r = &removed.items[i];
        CHECK(r->node == found.items[i].node && r->other == found.items[i].other);
        CHECK(g->nodes[r->node].flags & FE_NODE_ERASED);
        CHECK(fe_node_is_listed(g, r->other));
        text_name(&t, g, r->node);
        text_add(&t, ">", 1);
        text_add(&t, g->details[r->other].name->data, g->details[r->other].name->len);
    }
    CHECK_SOUND(g);
    CHECK_INT(fe_eliminate_getitems(g, &o, &removed, &err), 0); /* once is enough */
    fe_report_clear(&found);
    fe_report_clear(&removed);
    fe_graph_free(g);
    return t.data;
}

static void check_merge(int line, const char *lines, const char *safe, const char *fx)
{
    char got[TEXT_SIZE];

    strcpy(got, merge(lines, false));
    if (strcmp(got, safe) != 0)
        printf("line %d, safe policy\n", line);
    CHECK_TEXT(got, safe);
    strcpy(got, merge(lines, true));
    if (strcmp(got, fx) != 0)
        printf("line %d, torch's policy\n", line);
    CHECK_TEXT(got, fx);
}

#define MERGE(lines, safe, fx) check_merge(__LINE__, lines, safe, fx)

static void test_the_first_serves_for_all(void)
{
    MERGE("s; a = get s 0; b = get s 1; c = get s 0; d = get s 1; e = get s 0; return (a,b,c,d,e)", "c>a d>b e>a",
          "c>a d>b e>a");
    MERGE("s; t; a = get s 0; b = get t 0; return (a,b)", "", "");
    MERGE("s; return s", "", "");
}

static void test_keys_by_type_and_value(void)
{
    MERGE("s; a = get s 0; b = get s '0'; return (a,b)", "", "b>a");
    MERGE("s; a = get s None; b = get s 'None'; return (a,b)", "", "b>a");
    MERGE("s; a = get s (0,1); b = get s [0,1]; c = get s (0,1); return (a,b,c)", "c>a", "c>a");
    MERGE("s; a = get s 0|1|None; b = get s 0|1|None; c = get s 0|2|None; return (a,b,c)", "b>a", "b>a");
    MERGE("s; i; j; a = get s i; b = get s i; c = get s j; return (a,b,c)", "b>a", "b>a");
    MERGE("s; a = get s 'k'; b = get s 'k'; return (a,b)", "b>a", "b>a");
}

/* What a removed getitem was the source or the index of counts as its replacement. */
static void test_merged_sources(void)
{
    MERGE("s; a = get s 0; b = get s 0; c = get a 1; d = get b 1; return (c,d)", "b>a d>c", "b>a d>c");
    MERGE("s; a = get s 0; b = get s 0; c = get s a; d = get s b; return (c,d)", "b>a d>c", "b>a d>c");
    MERGE("s; a = get s 0; b = get s 0; c = get s [a,1]; d = get s [b,1]; return (c,d)", "b>a d>c", "b>a d>c");
}

/* torch's key of a getitem is "source.index", so a node with such a name would be taken for one; ours goes by node. */
static void test_chained_text_keys(void)
{
    MERGE("s; a = get s 0; b = get a 0; c = get s 0; d = get c 0; e = get d 0; return (b,e)", "c>a d>b", "c>a d>b");
}

static void test_writes(void)
{
    MERGE("s; v; a = get s 0; w = write s 0 v; b = get s 0; return (a,b)", "", "b>a");
    MERGE("s; v; a = get s 0; b = get s 0; w = write s 0 v; c = get s 0; d = get s 0; return (a,b,c,d)", "b>a d>c",
          "b>a c>a d>a");
    MERGE("s; v; w = write s 0 v; a = get s 0; b = get s 0; return (a,b)", "b>a", "b>a");
    MERGE("s; v; a = get s 0; w = f s out:v; b = get s 0; return (a,b)", "", "b>a");
    MERGE("s; v; a = get s 0; w = f s out:1; b = get s 0; return (a,b)", "b>a", "b>a");
}

/* An index that may copy is merged only where no write comes after: of two copies only one would be written to. */
static void test_indexes_that_copy(void)
{
    MERGE("s; a = get s [0]; b = get s [0]; return (a,b)", "b>a", "b>a");
    MERGE("s; v; a = get s [0]; b = get s [0]; w = write v; return (a,b)", "", "b>a");
    MERGE("s; v; a = get s 0; b = get s 0; w = write v; return (a,b)", "b>a", "b>a");
    MERGE("s; v; a = get s (0,1|2|None,None); b = get s (0,1|2|None,None); w = write v; return (a,b)", "b>a", "b>a");
    MERGE("s; v; a = get s (0,v); b = get s (0,v); w = write v; return (a,b)", "", "b>a");
    MERGE("s; v; a = get s True; b = get s True; w = write v; return (a,b)", "", "b>a");
    MERGE("s; a = get s True; b = get s True; c = get s 1; return (a,b,c)", "b>a", "b>a");
    MERGE("s; v; w = write v; a = get s [0]; b = get s [0]; return (a,b)", "b>a", "b>a");
    /* Written to themselves: kept apart, whatever the index. */
    MERGE("s; a = get s 0; b = get s 0; w = write a; return (a,b)", "", "b>a");
    MERGE("s; a = get s 0; b = get s 0; w = write b; return (a,b)", "", "b>a");
}

static void test_other_calls_that_write(void)
{
    static const uint32_t target_flags[] = {FE_TARGET_MUTATES, FE_TARGET_UNKNOWN};
    fe_getitem_options o = {.fx_policy = false};
    fe_report removed;
    fe_error err;

    fe_report_init(&removed, &fe_libc_allocator);
    for (int i = 0; i < 4; i++) {
        fe_graph *g = reading("s; a = get s 0; w = f s; b = get s 0; return (a,b)");
        if (i < 2)
            flag_target(g, "w", target_flags[i]);
        else
            flag_target(g, "w", FE_TARGET_PER_NODE);
        if (i >= 2)
            g->nodes[node(g, "w")].flags |= i == 2 ? FE_NODE_IMPURE : FE_NODE_OUT;
        CHECK_INT(fe_eliminate_getitems(g, &o, &removed, &err), 0);
        CHECK_TEXT(order(g), "s a w b output");
        fe_graph_free(g);
    }
    /* A call that only has some other effect does not write; nor does a target that no node has. */
    fe_graph *g = reading("s; a = get s 0; w = f s; b = get s 0; v = write s; return (a,b)");
    flag_target(g, "w", FE_TARGET_EFFECT | FE_TARGET_RANDOM);
    fe_node_erase(g, node(g, "v"));
    CHECK_INT(fe_eliminate_getitems(g, &o, &removed, &err), 1);
    CHECK_TEXT(order(g), "s a w output");
    fe_graph_free(g);
    fe_report_clear(&removed);
}

/* A call that writes to its out= in a graph that was read without keyword arguments; that the string is known tells
 * passes that there are such calls. */
static void test_out_known_by_flag_alone(void)
{
    fe_getitem_options o = {.fx_policy = false};
    fe_graph *g = reading("s; a = get s 0; w = f s; b = get s 0; return (a,b)");
    fe_report removed;
    fe_error err;

    g->nodes[node(g, "w")].flags |= FE_NODE_OUT;
    str(g, "out");
    fe_report_init(&removed, &fe_libc_allocator);
    CHECK_INT(fe_eliminate_getitems(g, &o, &removed, &err), 0);
    fe_report_clear(&removed);
    fe_graph_free(g);
}

/* Calls of getitem that are no plain source and index stay. */
static void test_odd_getitems_stay(void)
{
    MERGE("s; a = get s; b = get s; return (a,b)", "", "");
    MERGE("s; a = get s 0 1; b = get s 0 1; return (a,b)", "", "");
    MERGE("s; a = get s k:0; b = get s k:0; return (a,b)", "", "");
    MERGE("s; a = get 1 0; b = get 1 0; return (a,b)", "", "");
    MERGE("s; a = get s 0 k:1; b = get s 0 k:1; return (a,b)", "", "");
    fe_graph *g = graph_of("s; a = get s 0; b = get s 0; return (a,b)"); /* methods that only have the name */
    fe_report removed;
    fe_error err;
    fe_report_init(&removed, &fe_libc_allocator);
    CHECK_INT(fe_eliminate_getitems(g, &(fe_getitem_options){0}, &removed, &err), 0);
    fe_graph_free(g);
}

/* The users of what is removed follow in order, and so does the signature. */
static void test_users_and_signature_follow(void)
{
    fe_graph *g = reading("s; a = get s 0; b = get s 0; c = f b; d = f a; e = f b a; return (b,a)");
    fe_report removed;
    fe_error err;

    CHECK((g->signature = fe_signature_new(g->allocator)));
    DO(fe_signature_add_output(g->signature, (fe_spec){.kind = FE_OUTPUT_USER, .node = node(g, "b")}, &err));
    DO(fe_signature_add_output(g->signature, (fe_spec){.kind = FE_OUTPUT_USER, .node = node(g, "a")}, &err));
    fe_report_init(&removed, &fe_libc_allocator);
    CHECK_INT(fe_eliminate_getitems(g, &(fe_getitem_options){0}, &removed, &err), 1);
    CHECK_TEXT(users(g, "a"), "d c e output");
    CHECK_TEXT(operands(g, "e"), "a*2");
    CHECK_INT(g->signature->outputs[0].node, node(g, "a"));
    CHECK_INT(g->signature->outputs[1].node, node(g, "a"));
    fe_report_clear(&removed);
    fe_graph_free(g);
}

/* Thousands of keys, each three times. */
static void test_many_getitems(void)
{
    fe_graph *g = graph_of("s");
    uint32_t target = target_of(g, FE_OP_CALL_FUNCTION, "getitem");
    fe_report removed;
    fe_error err;

    g->targets[target].flags |= FE_TARGET_GETITEM;
    for (int i = 0; i < 9000; i++) {
        fe_seq *args = seq_new(g, 2);
        args->items[0] = value_node(node(g, "s"));
        args->items[1] = value_int(i % 3000);
        make_node(g, FE_OP_CALL_FUNCTION, target, "getitem", args, NULL);
    }
    fe_report_init(&removed, &fe_libc_allocator);
    CHECK_INT(fe_eliminate_getitems(g, &(fe_getitem_options){0}, &removed, &err), 1);
    CHECK_INT(removed.len, 6000);
    CHECK_INT(g->live, 3001);
    CHECK_INT(g->targets[target].count, 3000);
    CHECK_SOUND(g);
    fe_report_clear(&removed);
    fe_graph_free(g);
}

static void test_texts(void)
{
    for (int i = 0; i < FE_REASON_COUNT; i++) {
        const char *text = fe_reason_text((fe_reason)i);
        CHECK(strncmp(text, i == FE_REASON_UNUSED ? "removed: " : "kept: ", 6) == 0);
    }
}

int main(void)
{
    RUN(test_chains_go_from_their_end);
    RUN(test_nothing_to_do);
    RUN(test_reasons_by_target);
    RUN(test_reasons_by_call);
    RUN(test_an_effect_keeps_its_operands);
    RUN(test_reports_are_added_to);
    RUN(test_deep_chain);
    RUN(test_the_first_serves_for_all);
    RUN(test_keys_by_type_and_value);
    RUN(test_merged_sources);
    RUN(test_chained_text_keys);
    RUN(test_writes);
    RUN(test_indexes_that_copy);
    RUN(test_other_calls_that_write);
    RUN(test_out_known_by_flag_alone);
    RUN(test_odd_getitems_stay);
    RUN(test_users_and_signature_follow);
    RUN(test_many_getitems);
    RUN(test_texts);
    return 0;
}
