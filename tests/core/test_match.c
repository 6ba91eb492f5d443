/* test_match.c - finding patterns and rewriting them: what matches, in which order, where replacements go. */
#include "check.h"
#include "rewrite.h"

/* ---- two graphs whose strings are targets, and which have no objects ---- */

typedef struct {
    fe_graph *graph, *pattern;
    uint32_t *classes[2]; /* by target of the graph and the pattern */
    uint32_t *signatures;
    fe_match_side side;
    fe_pattern compiled;
    fe_match_options options;
    fe_matches found;
} pair;

static void classify(pair *p)
{
    const fe_graph *g = p->graph, *q = p->pattern;

    p->classes[0] = malloc((g->target_count + 1) * sizeof(uint32_t));
    p->classes[1] = malloc((q->target_count + 1) * sizeof(uint32_t));
    CHECK(p->classes[0] && p->classes[1]);
    for (uint32_t i = 0; i < g->target_count; i++)
        p->classes[0][i] = i;
    for (uint32_t k = 0; k < q->target_count; k++) {
        p->classes[1][k] = g->target_count + k;
        for (uint32_t i = 0; i < g->target_count; i++) {
            if (g->targets[i].op == q->targets[k].op && strcmp(g->targets[i].text->data, q->targets[k].text->data) == 0)
                p->classes[1][k] = i;
        }
    }
}

/* In the text of the pattern, nodes behind the output tell the parameters of those that call the same. */
static void find_signatures(pair *p)
{
    const fe_graph *q = p->pattern;
    uint32_t count = q->node_count - 1;

    p->signatures = malloc(q->node_count * sizeof *p->signatures);
    CHECK(p->signatures);
    for (uint32_t id = 1; id < q->node_count; id++) {
        if (q->nodes[id].op == FE_OP_OUTPUT)
            count = id;
    }
    for (uint32_t id = 0; id < q->node_count; id++) {
        p->signatures[id] = FE_NONE_ID;
        for (uint32_t s = count + 1; s < q->node_count; s++) {
            if (q->nodes[s].target == q->nodes[id].target)
                p->signatures[id] = s;
        }
    }
    p->compiled = (fe_pattern){{q, NULL, p->classes[1]}, count, p->signatures};
}

static pair pair_with(fe_graph *graph, const char *pattern)
{
    pair p = {.graph = graph, .pattern = graph_of(pattern)};

    classify(&p);
    find_signatures(&p);
    p.side = (fe_match_side){p.graph, NULL, p.classes[0]};
    fe_matches_init(&p.found, &fe_libc_allocator);
    return p;
}

static pair pair_of(const char *graph, const char *pattern)
{
    return pair_with(graph_of(graph), pattern);
}

static void pair_free(pair *p)
{
    fe_matches_clear(&p->found);
    fe_graph_free(p->graph);
    fe_graph_free(p->pattern);
    free(p->classes[0]);
    free(p->classes[1]);
    free(p->signatures);
}

/* The matches, as "p=g p=g; p=g"; a literal is "*". Good until the next call. */
static const char *matches_of(pair *p)
{
    static test_text t;
    fe_error err;

    fe_matches_clear(&p->found);
    DO(fe_match(p->graph, &p->side, &p->compiled, &p->options, &p->found, &err));
    t = (test_text){.len = 0};
    for (uint32_t i = 0; i < p->found.count; i++) {
        uint32_t len;
        const fe_binding *b = fe_matches_at(&p->found, i, &len);
        if (i)
            text_add(&t, ";", 1);
        for (uint32_t k = 0; k < len; k++) {
            text_name(&t, p->pattern, b[k].pattern);
            text_add(&t, "=", 1);
            if (b[k].value.kind == FE_NODE) {
                const fe_string *name = p->graph->details[b[k].value.as.node].name;
                text_add(&t, name->data, name->len);
            } else {
                text_add(&t, "*", 1);
            }
        }
    }
    return t.data;
}

static void check_match(const char *graph, const char *pattern, const char *want)
{
    pair p = pair_of(graph, pattern);

    CHECK_TEXT(matches_of(&p), want);
    pair_free(&p);
}

/* ---- finding ---- */

static void test_walks_go_in_the_order_of_arguments(void)
{
    check_match("a; b; c = f a b; d = g c 1; return d", "x; y; p = f x y; q = g p 1; return q", "q=d p=c x=a y=b");
    check_match("a; b; c = f a b; d = f b a; return (c,d)", "x; y; p = f x y; return p", "p=c x=a y=b; p=d x=b y=a");
    check_match("a; c = f a k:1 j:2; return c", "x; p = f x j:2 k:1; return p", "p=c x=a");
    check_match("a; c = f a k:1; return c", "x; p = f x j:1; return p", "");
}

static void test_literals(void)
{
    check_match("a; c = f a 1; return c", "x; p = f x True; return p", "");
    check_match("a; c = f a 1|2|None; return c", "x; p = f x 1|2|None; return p", "p=c x=a");
    check_match("a; b; c = f a 1|b|None; return c", "x; y; p = f x 1|y|None; return p", "p=c x=a y=b");
    check_match("a; c = f a [1,2]; return c", "x; y; p = f x y; return p", "p=c x=a y=*");
    check_match("a; c = f a [1,2]; return c", "x; p = f x (1,2); return p", "p=c x=a");
    check_match("a; c = f a 'u'; return c", "x; p = f x 'v'; return p", "");
    pair p = pair_of("a; c = f a 'u'; d = f a a; return (c,d)", "x; p = f x 1; return p");
    p.options.ignore_literals = true;
    CHECK_TEXT(matches_of(&p), "p=c x=a");
    p.options.fx_policy = true;
    CHECK_TEXT(matches_of(&p), "p=c x=a; p=d x=a");
    pair_free(&p);
}

static void test_inner_nodes_stay_inside(void)
{
    const char *two = "x; p = f x; q = g p; return q";

    check_match("a; b = f a; c = g b; return c", two, "q=c p=b x=a");
    check_match("a; b = f a; c = g b; d = h b; return (c,d)", two, "");
    check_match("a; b = f a; c = g b; return (b,c)", "x; p = f x; q = g p; return (p,q)", "q=c p=b x=a");
}

static void test_cycles(void)
{
    const char *two = "x; y; p = f x; q = g x y; return (p,q)";
    pair p = pair_of("a; b = f a; c = h b; d = g a c; return (b,d)", two);

    CHECK_TEXT(matches_of(&p), "");
    CHECK_INT(p.found.refused[FE_MISMATCH_CYCLE], 1);
    CHECK_INT(p.found.best.reason, FE_MISMATCH_CYCLE);
    fe_node_place(p.graph, node(p.graph, "c"), (fe_point){.anchor = node(p.graph, "d"), .after = true});
    CHECK_TEXT(matches_of(&p), ""); /* nor in a graph that is out of order */
    pair_free(&p);
    check_match("a; b = f a; c = h a; d = g a c; return (b,d)", two, "p=b x=a q=d y=c");
}

static void test_overlaps(void)
{
    pair p = pair_of("a; b = f a; c = f b; d = f c; return d", "x; p = f x; q = f p; return q");

    CHECK_TEXT(matches_of(&p), "q=c p=b x=a");
    p.options.keep_overlapping = true;
    CHECK_TEXT(matches_of(&p), "q=c p=b x=a; q=d p=c x=b");
    pair_free(&p);
}

static void test_left_out_arguments(void)
{
    /* f has a, b = 2 and, by keyword only, c with a default nobody knows. */
    const char *parameters = "; s = f None 2 None a:0 b:0 c:3";
    const char *calls =
        "a; u = f a; v = f a 2; w = f a b:2; y = f b:2 a:a; z = f a c:1; t = f a 3; return (u,v,w,y,z,t)";
    char pattern[128];

    snprintf(pattern, sizeof pattern, "x; p = f x; return p%s", parameters);
    check_match(calls, pattern, "p=u x=a; p=v x=a; p=w x=a; p=y x=a");
    snprintf(pattern, sizeof pattern, "x; k; p = f x k; return p%s", parameters);
    check_match(calls, pattern, "p=u x=a k=*; p=v x=a k=*; p=w x=a k=*; p=y x=a k=*; p=t x=a k=*");
    snprintf(pattern, sizeof pattern, "x; p = f x c:1; return p%s", parameters);
    check_match(calls, pattern, "p=z x=a");
}

static void test_what_no_anchor_leads_to(void)
{
    fe_error err;
    pair p = pair_of("a; b = f a; return b", "x; p = f x; q = g x; return p");

    CHECK_TEXT(matches_of(&p), "");
    CHECK_INT(p.found.refused[FE_MISMATCH_UNREACHED], 1);
    pair_free(&p);
    p = pair_of("a; b = f a; return b", "x; y; p = f x; return p");
    CHECK_TEXT(matches_of(&p), "p=b x=a");
    p.options.fx_policy = true;
    CHECK_INT(fe_match(p.graph, &p.side, &p.compiled, &p.options, &p.found, &err), -1);
    CHECK_INT(err.code, FE_BAD_VALUE);
    CHECK_INT(err.node, node(p.pattern, "y"));
    pair_free(&p);
}

static void test_names_of_anchors(void)
{
    pair p = pair_of("a; b = f a; mine = g b; return mine", "x; p = f x; return p");

    p.options.name = "min";
    CHECK_TEXT(matches_of(&p), "p=b x=a; p=mine x=b");
    pair_free(&p);
}

/* ---- rewriting ---- */

typedef struct {
    pair p;
    fe_graph *by;
    fe_replacement replacement;
    uint32_t *targets;
    fe_candidate *names;
    char (*texts)[64];
    fe_rewriter rewriter;
    fe_value inputs[8];
    uint32_t returned[8], matched[8];
    fe_site site;
} job;

static job job_with(fe_graph *graph, const char *pattern, const char *by)
{
    job j = {.p = pair_with(graph, pattern), .by = graph_of(by)};
    uint32_t count = j.by->node_count;

    j.targets = malloc((j.by->target_count + 1) * sizeof *j.targets);
    j.names = calloc(count, sizeof *j.names);
    j.texts = calloc(count, sizeof *j.texts);
    CHECK(j.targets && j.names && j.texts);
    for (uint32_t i = 0; i < j.by->target_count; i++)
        j.targets[i] = target_of(j.p.graph, (fe_op)j.by->targets[i].op, j.by->targets[i].text->data);
    for (uint32_t id = 1; id < count; id++) {
        const fe_string *name = j.by->details[id].name;
        j.names[id] = fe_name_split(name->data, name->len, j.texts[id]);
    }
    j.replacement = (fe_replacement){j.by, NULL, j.targets, j.names};
    fe_rewriter_init(&j.rewriter, j.p.graph, false);
    return j;
}

static job job_of(const char *graph, const char *pattern, const char *by)
{
    return job_with(graph_of(graph), pattern, by);
}

static void job_free(job *j)
{
    fe_rewriter_clear(&j->rewriter);
    fe_graph_free(j->by);
    free(j->targets);
    free(j->names);
    free(j->texts);
    pair_free(&j->p);
}

static uint32_t add_input(job *j, uint32_t pattern, const fe_binding *b, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++) {
        if (b[i].pattern == pattern)
            j->inputs[j->site.input_count++] = b[i].value;
    }
    return j->site.input_count;
}

static uint32_t bound_to(uint32_t pattern, const fe_binding *b, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++) {
        if (b[i].pattern == pattern)
            return b[i].value.as.node;
    }
    return FE_NONE_ID;
}

static void fill_site(job *j, uint32_t match)
{
    const fe_graph *q = j->p.pattern;
    uint32_t len, count = j->p.compiled.count;
    const fe_binding *b = fe_matches_at(&j->p.found, match, &len);

    j->site = (fe_site){j->inputs, j->returned, j->matched, 0, 0, 0};
    for (uint32_t id = 1; id <= count; id++) {
        if (q->nodes[id].op == FE_OP_PLACEHOLDER)
            add_input(j, id, b, len);
    }
    for (uint32_t id = count; id > 0; id--) {
        if (q->nodes[id].op != FE_OP_PLACEHOLDER && q->nodes[id].op != FE_OP_OUTPUT)
            j->matched[j->site.matched_count++] = bound_to(id, b, len);
    }
    for (uint32_t i = 0; i < q->nodes[count].edge_count; i++)
        j->returned[j->site.returned_count++] = bound_to(q->edges[q->nodes[count].edge + i].def, b, len);
}

/* Replace all; the refusal of the last one. */
static fe_refusal rewrite_all(job *j, fe_error *err)
{
    fe_refusal refusal = FE_REFUSAL_NONE;

    matches_of(&j->p);
    DO(fe_rewriter_use(&j->rewriter, &j->replacement, err));
    for (uint32_t i = 0; i < j->p.found.count; i++) {
        fill_site(j, i);
        DO(fe_rewrite_make(&j->rewriter, &j->site, &refusal));
        if (refusal == FE_REFUSAL_NONE)
            DO(fe_rewrite_finish(&j->rewriter, &j->site));
        CHECK_SOUND(j->p.graph);
    }
    return refusal;
}

static void check_rewrite(const char *graph, const char *pattern, const char *by, fe_refusal refusal, const char *want)
{
    fe_error err;
    job j = job_of(graph, pattern, by);

    CHECK_INT(rewrite_all(&j, &err), refusal);
    CHECK_TEXT(order(j.p.graph), want);
    job_free(&j);
}

static void test_replacements_stand_before_the_first_use(void)
{
    check_rewrite("a; b = f a; c = h a; d = k b; return (c,d)", "x; p = f x; return p", "x; new = g x; return new", 0,
                  "a c new d output");
    check_rewrite("a; b = f a; c = f b; return c", "x; p = f x; return p", "x; return x", 0, "a output");
    check_rewrite("a; b = f a; c = f b; return c", "x; p = f x; return p", "x; u = g x; v = g u; return v", 0,
                  "a u v u_1 v_1 output");
    check_rewrite("a; b = f a; c = h a; return c", "x; p = f x; return p", "x; new = g x; return new", 0,
                  "a new c output"); /* b has no users */
}

static void test_users_move_behind_the_last_input(void)
{
    const char *pattern = "x; y; p = f x; q = g y; return (p,q)",
               *by = "x; y; u = h x y; v = h u; w = h u; return (v,w)";

    check_rewrite("a; b; p = f a; user = k p; late = k b; q = g late; return (user,q)", pattern, by, 0,
                  "a b late u v w user output");
    check_rewrite("a; b; p = f a; q = g b; u1 = f b; u2 = g p; return (q,u1,u2)", pattern, by, 0,
                  "a b u v w u_1 v_1 w_1 output");
    /* The second one has become cyclic: see q1 = g of the first p. */
    check_rewrite("a; b; p0 = f a; p1 = f b; q0 = g p1; q1 = g p0; return (q0,q1)", pattern, by, FE_REFUSAL_CYCLE,
                  "a b p1 u v w q1 output");
}

static void test_writes_are_not_passed(void)
{
    fe_error err;
    job j = job_of("a; b = f a; c = set a; d = k b; return (c,d)", "x; p = f x; return p", "x; new = g x; return new");

    j.p.graph->targets[j.p.graph->nodes[node(j.p.graph, "c")].target].flags |= FE_TARGET_MUTATES;
    CHECK_INT(rewrite_all(&j, &err), FE_REFUSAL_NONE);
    CHECK_TEXT(order(j.p.graph), "a new c d output");
    job_free(&j);
    j = job_of("a; b = f a; c = set a; d = k b; return (c,d)", "x; p = f x; q = k p; return q", "x; n = g x; return n");
    j.p.graph->targets[j.p.graph->nodes[node(j.p.graph, "c")].target].flags |= FE_TARGET_MUTATES;
    CHECK_INT(rewrite_all(&j, &err), FE_REFUSAL_WRITES);
    CHECK_TEXT(order(j.p.graph), "a b c d output");
    job_free(&j);
}

static void test_what_does_not_fit(void)
{
    static const char *const bad[] = {"x; y; n = g x; return n", "x; n = g x; return (n,x)", "x; n = g x; return 1"};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fe_error err;
        fe_refusal refusal;
        job j = job_of("a; b = f a; return b", "x; p = f x; return p", bad[i]);
        matches_of(&j.p);
        DO(fe_rewriter_use(&j.rewriter, &j.replacement, &err));
        fill_site(&j, 0);
        CHECK_INT(fe_rewrite_make(&j.rewriter, &j.site, &refusal), -1);
        CHECK_INT(err.code, FE_BAD_VALUE);
        CHECK_TEXT(order(j.p.graph), "a b output");
        CHECK_SOUND(j.p.graph);
        job_free(&j);
    }
}

/* ---- without memory ---- */

static void test_search_without_memory(void)
{
    pair p = pair_of("a; b = f a; c = g b 1; d = h b; e = f a; i = g e 1; j = h e; return (c,d,i,j)",
                     "x; y; p = f x; q = g p y; r = h p; return (q,r)");

    for (size_t n = 0;; n++) {
        fe_error err = {0};
        test_memory memory;
        fe_matches found;
        memory_init(&memory);
        p.graph->allocator = &memory.allocator;
        fe_matches_init(&found, &memory.allocator);
        memory_fail(&memory, n, false);
        int result = fe_match(p.graph, &p.side, &p.compiled, &p.options, &found, &err);
        memory.fail_at = SIZE_MAX;
        fe_matches_clear(&found);
        p.graph->allocator = &fe_libc_allocator;
        CHECK_INT(memory.blocks, 0);
        if (result == 0) {
            CHECK(n > 10);
            break;
        }
        CHECK_INT(err.code, FE_NO_MEMORY);
    }
    CHECK_TEXT(matches_of(&p), "q=c p=b x=a y=* r=d; q=i p=e x=a y=* r=j");
    pair_free(&p);
}

/* In a graph whose own memory fails: what was there stays, and it works when it is tried again. */
static bool rewrite_without_memory(size_t n, bool fail_on)
{
    fe_error err = {0};
    fe_refusal refusal = FE_REFUSAL_NONE;
    test_memory memory;

    memory_init(&memory);
    fe_graph *g = fe_graph_new(&memory.allocator, NULL);
    CHECK(g);
    build(g, "a; b; p = f a [b,1]; user = k p; late = k b; q = g late; return (user,q)");
    job j = job_with(g, "x; z; y; p = f x z; q = g y; return (p,q)",
                     "x; z; y; u = h x y z; v = h u z; w = h u; return (v,w)");
    matches_of(&j.p);
    fill_site(&j, 0);
    char *before = text_of(g);
    memory_fail(&memory, n, fail_on);
    bool made =
        fe_rewriter_use(&j.rewriter, &j.replacement, &err) == 0 && fe_rewrite_make(&j.rewriter, &j.site, &refusal) == 0;
    bool done = made && fe_rewrite_finish(&j.rewriter, &j.site) == 0;
    memory.fail_at = SIZE_MAX;
    CHECK_INT(refusal, FE_REFUSAL_NONE);
    CHECK_SOUND(g);
    if (!done) {
        CHECK_INT(err.code, FE_NO_MEMORY);
        fe_rewrite_undo(&j.rewriter);
        CHECK_SOUND(g);
        if (!made) {
            char *after = text_of(g);
            CHECK_TEXT(after, before);
            free(after);
        }
        DO(fe_rewriter_use(&j.rewriter, &j.replacement, &err));
        DO(fe_rewrite_make(&j.rewriter, &j.site, &refusal));
        DO(fe_rewrite_finish(&j.rewriter, &j.site));
        CHECK_SOUND(g);
    }
    free(before);
    job_free(&j);
    CHECK_INT(memory.blocks, 0);
    return done;
}

static void test_rewriting_without_memory(void)
{
    for (int fail_on = 0; fail_on < 2; fail_on++) {
        size_t n = 0;
        while (!rewrite_without_memory(n, fail_on))
            n++;
        CHECK(n > 8);
    }
}

int main(void)
{
    RUN(test_walks_go_in_the_order_of_arguments);
    RUN(test_literals);
    RUN(test_inner_nodes_stay_inside);
    RUN(test_cycles);
    RUN(test_overlaps);
    RUN(test_left_out_arguments);
    RUN(test_what_no_anchor_leads_to);
    RUN(test_names_of_anchors);
    RUN(test_replacements_stand_before_the_first_use);
    RUN(test_users_move_behind_the_last_input);
    RUN(test_writes_are_not_passed);
    RUN(test_what_does_not_fit);
    RUN(test_search_without_memory);
    RUN(test_rewriting_without_memory);
    return 0;
}
