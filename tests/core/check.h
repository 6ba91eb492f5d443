/* check.h - what the tests of the core share: checks, an allocator that counts and fails, graphs written as text.
 *
 * A test is a function without arguments; main runs them with RUN. The first failed check ends the program.
 */
#ifndef FE_CHECK_H
#define FE_CHECK_H

#include "pass.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define RUN(test) (test(), (void)printf("ok %s\n", #test))

/* ---- checks ------------------------------------------------------------------------------------------------------- */

#define CHECK(condition) ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, #condition))
#define CHECK_INT(got, want) check_int(__FILE__, __LINE__, #got, (int64_t)(got), (int64_t)(want))
#define CHECK_TEXT(got, want) check_text(__FILE__, __LINE__, #got, (got), (want))
/* A call that must succeed. */
#define DO(call) ((call) == 0 ? (void)0 : check_failed(__FILE__, __LINE__, #call))

static inline void check_failed(const char *file, int line, const char *what)
{
    printf("%s:%d: failed: %s\n", file, line, what);
    exit(1);
}

static inline void check_int(const char *file, int line, const char *what, int64_t got, int64_t want)
{
    if (got == want)
        return;
    printf("%s:%d: %s is %" PRId64 ", not %" PRId64 "\n", file, line, what, got, want);
    exit(1);
}

static inline void check_text(const char *file, int line, const char *what, const char *got, const char *want)
{
    if (strcmp(got, want) == 0)
        return;
    printf("%s:%d: %s is\n---\n%s\n---\nnot\n---\n%s\n---\n", file, line, what, got, want);
    exit(1);
}

/* ---- memory ------------------------------------------------------------------------------------------------------- */

/* Counts what is allocated and fails when told to. A block that grows always moves, so that the sanitizer sees any use
 * of the old one. */
typedef struct {
    fe_allocator allocator;
    size_t blocks, calls; /* living blocks; requests so far */
    size_t fail_at;       /* the request that fails */
    bool fail_on;         /* and all after it */
} test_memory;

typedef struct {
    size_t size;
    uint64_t payload[];
} test_block;

static inline void *test_resize(void *ctx, void *block, size_t size)
{
    test_memory *m = ctx;
    test_block *old = block ? (test_block *)(void *)((char *)block - offsetof(test_block, payload)) : NULL;
    test_block *new = NULL;

    if (size) {
        size_t call = m->calls++;
        if (call == m->fail_at || (m->fail_on && call > m->fail_at))
            return NULL;
        new = malloc(sizeof *new + size);
        if (!new)
            exit(2);
        new->size = size;
        memset(new->payload, 0xa5, size);
        m->blocks++;
    }
    if (old) {
        if (new)
            memcpy(new->payload, old->payload, old->size < size ? old->size : size);
        free(old);
        m->blocks--;
    }
    return new ? new->payload : NULL;
}

static inline void memory_init(test_memory *m)
{
    *m = (test_memory){.allocator = {test_resize, m}, .fail_at = SIZE_MAX};
}

static inline void memory_fail(test_memory *m, size_t nth, bool fail_on)
{
    m->calls = 0;
    m->fail_at = nth;
    m->fail_on = fail_on;
}

/* ---- graphs as text ------------------------------------------------------------------------------------------------ */

static inline fe_graph *graph_new(void)
{
    fe_graph *g = fe_graph_new(&fe_libc_allocator, NULL);

    CHECK(g);
    return g;
}

static inline fe_string *str(fe_graph *g, const char *text)
{
    fe_error err;
    fe_string *s = fe_string_get(g, text, strlen(text), &err);

    CHECK(s);
    return s;
}

static inline uint32_t target_of(fe_graph *g, fe_op op, const char *text)
{
    fe_error err;
    uint32_t target;
    bool is_new;

    DO(fe_target_get(g, op, FE_NONE_ID, str(g, text), &target, &is_new, &err));
    return target;
}

/* The node of that name; it must be there. */
static inline uint32_t node(const fe_graph *g, const char *name)
{
    const fe_string *s = fe_string_find(&g->strings, name, strlen(name));
    uint32_t id = s ? fe_name_owner(g, s) : FE_NONE_ID;

    if (id == FE_NONE_ID)
        printf("no node is named '%s'\n", name);
    CHECK(id != FE_NONE_ID);
    return id;
}

static inline fe_value value_node(uint32_t id)
{
    return (fe_value){.kind = FE_NODE, .as.node = id};
}

static inline fe_value value_int(int64_t value)
{
    return (fe_value){.kind = FE_INT, .as.integer = value};
}

static inline fe_value value_str(fe_graph *g, const char *text)
{
    return (fe_value){.kind = FE_STR, .as.string = str(g, text)};
}

static inline fe_value value_seq(fe_kind kind, fe_seq *s)
{
    return (fe_value){.kind = (uint8_t)kind, .as.seq = s};
}

static inline fe_seq *seq_new(fe_graph *g, size_t len)
{
    fe_error err;
    fe_seq *s = fe_seq_new(g, len, FE_NONE_ID, &err);

    CHECK(s);
    return s;
}

/* A number, None, True, 'text', (a,b), [a,b], a|b|c for a slice, or the name of a node. Parts of containers are plain words. */
static inline fe_value parse_word(fe_graph *g, const char *word, size_t len)
{
    char text[64];
    fe_kind kind = word[0] == '(' ? FE_TUPLE : word[0] == '[' ? FE_LIST : memchr(word, '|', len) ? FE_SLICE : FE_NULL;
    const char *at = kind == FE_SLICE ? word : word + 1, *end = kind == FE_SLICE ? word + len : word + len - 1;
    fe_seq *items;
    uint32_t count = 0;

    CHECK(len && len < sizeof text);
    memcpy(text, word, len);
    text[len] = '\0';
    if (kind == FE_NULL) {
        if ((text[0] >= '0' && text[0] <= '9') || text[0] == '-')
            return value_int(strtoll(text, NULL, 10));
        if (strcmp(text, "None") == 0)
            return (fe_value){.kind = FE_NONE};
        if (strcmp(text, "True") == 0)
            return (fe_value){.kind = FE_BOOL, .as.boolean = true};
        if (text[0] == '\'') {
            text[len - 1] = '\0';
            return value_str(g, text + 1);
        }
        return value_node(node(g, text));
    }
    for (const char *c = at; c <= end; c++)
        count += c == end || *c == ',' || *c == '|';
    items = seq_new(g, at == end ? 0 : count);
    for (uint32_t i = 0; i < items->len; i++) {
        size_t part = 0;
        while (at + part < end && at[part] != ',' && at[part] != '|')
            part++;
        items->items[i] = parse_word(g, at, part);
        at += part + 1;
    }
    return value_seq(kind, items);
}

static inline uint32_t make_node(fe_graph *g, fe_op op, uint32_t target, const char *name, fe_seq *args, fe_seq *kwargs)
{
    char buffer[128];
    fe_error err;
    uint32_t id;

    CHECK(strlen(name) + 2 <= sizeof buffer);
    fe_node_parts parts = {.op = op,
                           .target = target,
                           .type = FE_NONE_ID,
                           .name = fe_name_split(name, strlen(name), buffer),
                           .args = args,
                           .kwargs = kwargs};
    DO(fe_node_create(g, &parts, &id, &err));
    return id;
}

/* Split a line into words; they stay in the line. */
static inline uint32_t split_line(const char *line, size_t len, const char **words, size_t *sizes, uint32_t max)
{
    uint32_t count = 0;

    for (size_t i = 0; i < len;) {
        size_t start = i;
        while (i < len && line[i] != ' ')
            i++;
        if (i > start) {
            CHECK(count < max);
            words[count] = line + start;
            sizes[count++] = i - start;
        }
        i++;
    }
    return count;
}

static inline void build_line(fe_graph *g, const char *line, size_t len)
{
    const char *words[64];
    size_t sizes[64];
    char name[64], target[64];
    uint32_t count = split_line(line, len, words, sizes, 64), first = 1, kwargs_count = 0;
    fe_op op = FE_OP_PLACEHOLDER;

    if (!count)
        return;
    CHECK(sizes[0] < sizeof name);
    memcpy(name, words[0], sizes[0]);
    name[sizes[0]] = '\0';
    strcpy(target, name);
    if (strcmp(name, "return") == 0) {
        op = FE_OP_OUTPUT;
        strcpy(name, "output");
        strcpy(target, "output");
    } else if (count > 2) {
        size_t skip = words[2][0] == '@' || words[2][0] == '#';
        op = words[2][0] == '@' ? FE_OP_GET_ATTR : words[2][0] == '#' ? FE_OP_CALL_MODULE : FE_OP_CALL_METHOD;
        CHECK(words[1][0] == '=' && sizes[2] < sizeof target);
        memcpy(target, words[2] + skip, sizes[2] - skip);
        target[sizes[2] - skip] = '\0';
        first = 3;
    }
    for (uint32_t i = first; i < count; i++)
        kwargs_count += memchr(words[i], ':', sizes[i]) != NULL;
    fe_seq *args = count - first > kwargs_count ? seq_new(g, count - first - kwargs_count) : NULL;
    fe_seq *kwargs = kwargs_count ? seq_new(g, (size_t)2 * kwargs_count) : NULL;
    uint32_t a = 0, k = 0;
    for (uint32_t i = first; i < count; i++) {
        const char *colon = memchr(words[i], ':', sizes[i]);
        if (!colon) {
            args->items[a++] = parse_word(g, words[i], sizes[i]);
            continue;
        }
        fe_error err;
        size_t key = (size_t)(colon - words[i]);
        fe_string *s = fe_string_get(g, words[i], key, &err);
        CHECK(s);
        kwargs->items[k++] = (fe_value){.kind = FE_STR, .as.string = s};
        kwargs->items[k++] = parse_word(g, colon + 1, sizes[i] - key - 1);
    }
    make_node(g, op, target_of(g, op, target), name, args, kwargs);
}

/* Build nodes, one a line (or up to a ';'): "x" is an input, "a = neg x 1 out:x" calls the method neg, "w = @weight" and
 * "m = #layer x" are an attribute and a module, "return (a,x)" is the output. */
static inline void build(fe_graph *g, const char *lines)
{
    while (*lines) {
        size_t len = strcspn(lines, ";\n");
        build_line(g, lines, len);
        lines += len + (lines[len] != '\0');
    }
}

static inline fe_graph *graph_of(const char *lines)
{
    fe_graph *g = graph_new();

    build(g, lines);
    return g;
}

/* ---- what a graph looks like --------------------------------------------------------------------------------------- */

#define TEXT_SIZE 4096

typedef struct {
    char data[TEXT_SIZE];
    size_t len;
} test_text;

static inline void text_add(test_text *t, const char *text, size_t len)
{
    CHECK(t->len + len + 1 < TEXT_SIZE);
    memcpy(t->data + t->len, text, len);
    t->data[t->len += len] = '\0';
}

static inline void text_name(test_text *t, const fe_graph *g, uint32_t id)
{
    if (t->len)
        text_add(t, " ", 1);
    text_add(t, g->details[id].name->data, g->details[id].name->len);
}

/* The names in order, "a b c"; good until the next call. */
static inline const char *order(const fe_graph *g)
{
    static test_text t;
    uint32_t count = 0;

    t = (test_text){.len = 0};
    for (uint32_t id = fe_node_next(g, FE_ROOT); id != FE_ROOT; id = fe_node_next(g, id), count++)
        text_name(&t, g, id);
    CHECK_INT(count, g->live);
    return t.data;
}

static inline const char *users(const fe_graph *g, const char *name)
{
    static test_text t;
    uint32_t def = node(g, name), count = 0;

    t = (test_text){.len = 0};
    for (uint32_t e = g->details[def].first_user; e != FE_NONE_ID; e = g->edges[e].next, count++)
        text_name(&t, g, g->edges[e].user);
    CHECK_INT(count, g->nodes[def].user_count);
    return t.data;
}

/* Operands in order of first use, "a*2 b" when a is named twice. */
static inline const char *operands(const fe_graph *g, const char *name)
{
    static test_text t;
    const fe_node *n = &g->nodes[node(g, name)];
    char times[16];

    t = (test_text){.len = 0};
    for (uint32_t e = n->edge; e < n->edge + n->edge_count; e++) {
        text_name(&t, g, g->edges[e].def);
        if (g->edges[e].count > 1)
            text_add(&t, times, (size_t)snprintf(times, sizeof times, "*%u", g->edges[e].count));
    }
    return t.data;
}

static inline void write_quoted(void *ctx, const fe_string *s, fe_buffer *out)
{
    (void)ctx;
    fe_buffer_char(out, '<');
    fe_buffer_add(out, s->data, s->len);
    fe_buffer_char(out, '>');
}

/* Shows no objects; strings that are not ASCII in angle brackets. */
static const fe_renderer plain_renderer = {.quote = write_quoted};

/* The text of a graph; the caller frees it. */
static inline char *text_of(const fe_graph *g)
{
    fe_buffer b;

    fe_buffer_init(&b, &fe_libc_allocator);
    fe_text_graph(g, &plain_renderer, &b);
    fe_buffer_char(&b, '\0');
    CHECK(!b.failed);
    return b.data;
}

#define CHECK_GRAPH(g, want)      \
    do {                          \
        char *text_ = text_of(g); \
        CHECK_TEXT(text_, want);  \
        free(text_);              \
    } while (0)

/* All faults, as "CODE node operand; CODE node"; good until the next call. */
static inline const char *faults_of(const fe_graph *g, bool all, bool fx_only)
{
    static test_text t;
    fe_lint_options options = {.all = all, .fx_only = fx_only, .names = !fx_only, .targets = true};
    fe_report faults;
    fe_error err;

    t = (test_text){.len = 0};
    fe_report_init(&faults, &fe_libc_allocator);
    DO(fe_lint(g, &options, &faults, &err));
    for (uint32_t i = 0; i < faults.len; i++) {
        const char *code = fe_fault_name((fe_fault)faults.items[i].code);
        uint32_t other = faults.items[i].other;
        if (i)
            text_add(&t, "; ", 2);
        text_add(&t, code, strlen(code));
        text_name(&t, g, faults.items[i].node);
        if (other != FE_NONE_ID && other != FE_ROOT)
            text_name(&t, g, other);
    }
    fe_report_clear(&faults);
    return t.data;
}

#define CHECK_SOUND(g) CHECK_TEXT(faults_of(g, true, false), "")

#endif
