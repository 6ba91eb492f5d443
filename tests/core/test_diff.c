/* test_diff.c - which node of one graph is which of another, and what differs. */
#include "diff.h"

#include "check.h"

static void text_plain(test_text *t, const char *text)
{
    text_add(t, text, strlen(text));
}

/* What differs: "+name" is in b only, "-name" in a only, "old>new:what" in both, with a letter for each change. */
static const char *text_of_pairs(const fe_graph *a, const fe_graph *b, const fe_diff_pair *pairs, uint32_t count)
{
    static test_text t;

    t = (test_text){.len = 0};
    for (uint32_t i = 0; i < count; i++) {
        const fe_diff_pair *p = &pairs[i];
        CHECK(p->a != FE_NONE_ID || p->b != FE_NONE_ID);
        if (p->a == FE_NONE_ID || p->b == FE_NONE_ID) {
            CHECK_INT(p->changes, 0);
            text_plain(&t, t.len ? " " : "");
            text_plain(&t, p->a == FE_NONE_ID ? "+" : "-");
            text_plain(&t, p->a == FE_NONE_ID ? b->details[p->b].name->data : a->details[p->a].name->data);
        } else if (p->changes) {
            text_name(&t, a, p->a);
            text_plain(&t, ">");
            text_plain(&t, b->details[p->b].name->data);
            text_plain(&t, ":");
            for (int bit = 0; bit < 7; bit++)
                text_add(&t, &"otakynm"[bit], (p->changes >> bit & 1) != 0);
        }
    }
    return t.data;
}

/* Every node is there once, those of b in order, then those of a in order. */
static void check_complete(const fe_graph *a, const fe_graph *b, const fe_diff_pair *pairs, uint32_t count)
{
    uint32_t i = 0, found = 0;

    for (uint32_t id = b->nodes[FE_ROOT].next; id != FE_ROOT; id = b->nodes[id].next)
        CHECK_INT(pairs[i++].b, id);
    for (uint32_t id = a->nodes[FE_ROOT].next; id != FE_ROOT; id = a->nodes[id].next) {
        uint32_t times = 0;
        for (uint32_t k = 0; k < count; k++)
            times += pairs[k].a == id;
        CHECK_INT(times, 1);
        if (i < count && pairs[i].a == id)
            i++;
        found++;
    }
    CHECK_INT(i, count);
    CHECK(found == a->live);
}

static const char *compare(const fe_graph *a, const fe_graph *b, const uint32_t *known)
{
    static fe_diff_pair pairs[512];
    fe_diff_side first = {a, NULL}, second = {b, NULL};
    fe_error err;
    uint32_t count = 0;

    CHECK(a->live + b->live <= 512);
    DO(fe_diff_graphs(&first, &second, known, pairs, &count, &err));
    check_complete(a, b, pairs, count);
    return text_of_pairs(a, b, pairs, count);
}

#define CHECK_DIFF(lines_a, lines_b, want)                             \
    do {                                                               \
        fe_graph *first_ = graph_of(lines_a), *b_ = graph_of(lines_b); \
        CHECK_TEXT(compare(first_, b_, NULL), want);                   \
        fe_graph_free(first_);                                         \
        fe_graph_free(b_);                                             \
    } while (0)

static void test_same(void)
{
    CHECK_DIFF("", "", "");
    CHECK_DIFF("x; a = f x; return a", "x; a = f x; return a", "");
    CHECK_DIFF("", "x; return x", "+x +output");
    CHECK_DIFF("x; return x", "", "-x -output");
}

static void test_each_kind_of_change(void)
{
    CHECK_DIFF("x; a = f x 1; return a", "x; a = f x 2; return a", "a>a:a");
    CHECK_DIFF("x; a = f x k:1; return a", "x; a = f x j:1; return a", "a>a:k");
    CHECK_DIFF("x; a = f x; return a", "x; a = g x; return a", "a>a:t");
    CHECK_DIFF("x; a = f x; return a", "x; b = f x; return b", "a>b:n");
    CHECK_DIFF("x; a = f x; return a", "x; b = g x; return b", "a>b:tn");
    CHECK_DIFF("x; a = f x; b = g x; return (a,b)", "x; b = g x; a = f x; return (a,b)", "b>b:m");
    CHECK_DIFF("x; return x", "y; return y", "x>y:tn");
    CHECK_DIFF("x; a = f x; return a", "x; a = #f x; return a", "+a output>output:a -a");
    CHECK_DIFF("w = @one; a = f w; return a", "w = @two; a = f w; return a", "w>w:t");
}

/* Kinds of values are apart, and so is the same value in another place. */
static void test_values(void)
{
    CHECK_DIFF("x; a = f x 1; return a", "x; a = f x True; return a", "a>a:a");
    CHECK_DIFF("x; a = f x (x,x); return a", "x; a = f x [x,x]; return a", "a>a:a");
    CHECK_DIFF("x; a = f x (x,1); return a", "x; a = f x (x,1,2); return a", "a>a:a");
    CHECK_DIFF("x; a = f x 0|1|2; return a", "x; a = f x 0|1|3; return a", "a>a:a");
    CHECK_DIFF("x; y; a = f x y; return a", "x; y; a = f y x; return a", "a>a:a");
    CHECK_DIFF("x; a = f x 'one'; return a", "x; a = f x 'two'; return a", "a>a:a");
    CHECK_DIFF("x; a = f x None; return a", "x; a = f x; return a", "a>a:a");
}

/* A node that is put in shifts the names of those after it. */
static void test_names_shift(void)
{
    CHECK_DIFF("x; f = f x; f_1 = f f; f_2 = f f_1; return f_2",
               "x; g = g x; f = f g; f_1 = f f; f_2 = f f_1; return f_2", "+g f>f:a");
    CHECK_DIFF("x; y; f = f x y; f_1 = f f y; f_2 = f f_1 y; return f_2",
               "x; y; f = f y y; f_1 = f x f; f_2 = f f_1 y; f_3 = f f_2 y; return f_3",
               "+f f>f_1:an f_1>f_2:n f_2>f_3:n");
    CHECK_DIFF("x; f = f x; f_1 = f x; return (f,f_1)", "x; f_7 = f x; f_8 = f x; return (f_7,f_8)",
               "f>f_7:n f_1>f_8:n");
}

static void test_among_equals_names_decide(void)
{
    CHECK_DIFF("x; a = f x; b = f x; c = f x; return (a,b,c)", "x; c = f x; a = f x; b = f x; return (a,b,c)", "c>c:m");
    CHECK_DIFF("x; a = f x; b = f x; c = f x; return c", "x; c = f x; return c", "-a -b");
}

/* Two changes with a stretch between them that neither the inputs nor the output lead to unchanged. */
static void test_between_changes(void)
{
    CHECK_DIFF("x; a = f x 1; b = g a; c = h b; d = f c 1; return d",
               "x; p = f x 2; q = g p; r = h q; s = f r 2; return s", "a>p:an b>q:n c>r:n d>s:an");
    CHECK_DIFF("x; a = f x; b = g a; return b", "x; y; a = f x; b = g a; z = h b y; return z", "+y +z output>output:a");
}

static void test_added_and_removed(void)
{
    CHECK_DIFF("x; a = f x; b = g a; return b", "x; b = g x; return b", "b>b:a -a");
    CHECK_DIFF("x; a = f x; dead = g a; return a", "x; a = f x; return a", "-dead");
    CHECK_DIFF("x; y; a = f x; return a", "x; a = f x; return a", "-y");
    CHECK_DIFF("x; a = f x; return (a,a)", "x; a = f x; b = g a; return (a,b)", "+b output>output:a");
}

static void test_known_pairs(void)
{
    fe_graph *a = graph_of("x; p = f x; q = g p; return q"), *b = graph_of("x; p = f x; q = g p; return q");
    uint32_t known[5] = {0, 1, 3, 2, FE_NONE_ID};

    CHECK_TEXT(compare(a, b, known), "q>p:tanm p>q:tan +output -output");
    fe_graph_free(a);
    fe_graph_free(b);
}

static void test_objects_by_class(void)
{
    fe_graph *a = graph_of("x; a = f x 1; return a"), *b = graph_of("x; a = f x 1; return a");
    fe_graph *graphs[] = {a, b};
    uint32_t zero[] = {4, 5}, one[] = {5, 4};
    fe_diff_pair pairs[8];
    fe_error err;
    uint32_t count;

    for (int i = 0; i < 2; i++) {
        uint32_t objects[2];
        DO(fe_object_new(graphs[i], &objects[0], &err));
        DO(fe_object_new(graphs[i], &objects[1], &err));
        fe_object_ref(graphs[i], objects[i]);
        fe_object_ref(graphs[i], objects[1 - i]);
        graphs[i]->details[node(graphs[i], "a")].args->items[1] =
            (fe_value){.kind = FE_OBJECT, .as.object = objects[i]};
        fe_node_set_type(graphs[i], node(graphs[i], "x"), objects[1 - i]);
    }
    fe_diff_side first = {a, zero}, second = {b, one}, other = {b, zero};
    DO(fe_diff_graphs(&first, &second, NULL, pairs, &count, &err));
    CHECK_TEXT(text_of_pairs(a, b, pairs, count), "");
    DO(fe_diff_graphs(&first, &other, NULL, pairs, &count, &err));
    CHECK_TEXT(text_of_pairs(a, b, pairs, count), "x>x:y a>a:a");
    fe_graph_free(a);
    fe_graph_free(b);
}

/* What stands under an erased node's name is another node. */
static void test_erased_nodes_are_nowhere(void)
{
    fe_graph *a = graph_of("x; dead = f x; a = f x; return a"), *b = graph_of("x; a = f x; dead = f x; return a");

    fe_node_erase(a, node(a, "dead"));
    CHECK_TEXT(compare(a, b, NULL), "+dead");
    CHECK_TEXT(compare(b, a, NULL), "-dead");
    fe_graph_free(a);
    fe_graph_free(b);
}

/* Time must not grow with the square of users, of operands or of equals: this would not end then. */
static void test_many(void)
{
    enum { COUNT = 30000 };
    fe_graph *graphs[2];
    fe_error err;

    for (int g = 0; g < 2; g++) {
        graphs[g] = graph_of("x");
        fe_seq *results = seq_new(graphs[g], COUNT);
        for (uint32_t i = 0; i < COUNT; i++) {
            fe_seq *args = seq_new(graphs[g], 2);
            args->items[0] = value_node(1);
            args->items[1] = value_int(g);
            uint32_t target = target_of(graphs[g], FE_OP_CALL_METHOD, "f");
            results->items[i] = value_node(make_node(graphs[g], FE_OP_CALL_METHOD, target, "f", args, NULL));
        }
        uint32_t target = target_of(graphs[g], FE_OP_CALL_METHOD, "cat");
        uint32_t cat = make_node(graphs[g], FE_OP_CALL_METHOD, target, g ? "cat" : "dog", results, NULL);
        fe_seq *args = seq_new(graphs[g], 1);
        args->items[0] = value_node(cat);
        make_node(graphs[g], FE_OP_OUTPUT, target_of(graphs[g], FE_OP_OUTPUT, "output"), "output", args, NULL);
    }
    fe_diff_side first = {graphs[0], NULL}, second = {graphs[1], NULL};
    fe_diff_pair *pairs = malloc(2 * (COUNT + 3) * sizeof *pairs);
    uint32_t count;
    CHECK(pairs);
    DO(fe_diff_graphs(&first, &second, NULL, pairs, &count, &err));
    CHECK_INT(count, COUNT + 3);
    for (uint32_t i = 0; i < count; i++)
        CHECK_INT(pairs[i].changes, i == 0 || i == count - 1 ? 0 : i == count - 2 ? FE_CHANGED_NAME : FE_CHANGED_ARGS);
    free(pairs);
    fe_graph_free(graphs[0]);
    fe_graph_free(graphs[1]);
}

static void test_no_memory(void)
{
    test_memory memory;
    fe_diff_pair pairs[8];
    fe_error err;
    uint32_t count;
    int result = -1;

    memory_init(&memory);
    fe_graph *a = fe_graph_new(&memory.allocator, NULL), *b = graph_of("x; a = g x; return a");
    CHECK(a);
    build(a, "x; a = f x; return a");
    fe_diff_side first = {a, NULL}, second = {b, NULL};
    for (size_t nth = 0; result < 0; nth++) {
        size_t blocks = memory.blocks;
        memory_fail(&memory, nth, false);
        result = fe_diff_graphs(&first, &second, NULL, pairs, &count, &err);
        CHECK_INT(memory.blocks, blocks);
        CHECK(result == 0 || err.code == FE_NO_MEMORY);
        CHECK(nth < 8);
    }
    CHECK_TEXT(text_of_pairs(a, b, pairs, count), "a>a:t");
    memory_fail(&memory, SIZE_MAX, false);
    CHECK_SOUND(a);
    fe_graph_free(a);
    fe_graph_free(b);
    CHECK_INT(memory.blocks, 0);
}

int main(void)
{
    RUN(test_same);
    RUN(test_each_kind_of_change);
    RUN(test_values);
    RUN(test_names_shift);
    RUN(test_among_equals_names_decide);
    RUN(test_between_changes);
    RUN(test_added_and_removed);
    RUN(test_known_pairs);
    RUN(test_objects_by_class);
    RUN(test_erased_nodes_are_nowhere);
    RUN(test_many);
    RUN(test_no_memory);
    return 0;
}
