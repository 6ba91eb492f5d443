/* explorer.c - writes nodes for Model Explorer: see explorer.h.
 *
 *     {"id": NAME, "label": .., "namespace": .., "subgraphIds": [..], "attrs": [{"key": .., "value": ..}, ..],
 *      "incomingEdges": [{"sourceNodeId": NAME, "sourceNodeOutputId": "0", "targetNodeInputId": "0"}, ..],
 *      "outputsMetadata": [{"id": "0", "attrs": [{"key": "tensor_shape", "value": ..}]}]}
 *
 * A getitem's edge leaves by the result that it takes, and the call that gives several results tells what its getitems
 * know of them.
 */
#include "explorer.h"

#define MOST_TEXT 300 /* bytes of an argument that are shown */

/* ---- JSON strings ---- */

static const char hex[] = "0123456789abcdef";

static void add_unit(uint32_t unit, fe_buffer *out)
{
    const char text[] = {'\\', 'u', hex[unit >> 12 & 15], hex[unit >> 8 & 15], hex[unit >> 4 & 15], hex[unit & 15]};

    fe_buffer_add(out, text, sizeof text);
}

/* One character of well-formed UTF-8, or of a lone surrogate in the same form: its length. */
static size_t read_char(const char *text, size_t len, uint32_t *out)
{
    unsigned char first = (unsigned char)*text;
    size_t size = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    uint32_t c = size == 1 ? first : first & (0xffu >> (size + 1));

    if (size > len)
        size = len; /* no text of ours ends so */
    for (size_t i = 1; i < size; i++)
        c = c << 6 | ((unsigned char)text[i] & 0x3f);
    *out = c;
    return size;
}

static void add_escaped(const char *text, size_t len, fe_buffer *out)
{
    size_t done = 0, i = 0;

    while (i < len) {
        unsigned char byte = (unsigned char)text[i];
        if (byte >= 0x20 && byte < 0x7f && byte != '"' && byte != '\\') {
            i++;
            continue;
        }
        fe_buffer_add(out, text + done, i - done);
        uint32_t c;
        i += read_char(text + i, len - i, &c);
        done = i;
        if (c >= 0x10000) {
            add_unit(0xd800 + ((c - 0x10000) >> 10), out);
            add_unit(0xdc00 + ((c - 0x10000) & 0x3ff), out);
        } else {
            add_unit(c, out);
        }
    }
    fe_buffer_add(out, text + done, len - done);
}

static void add_text(fe_text t, fe_buffer *out)
{
    fe_buffer_add(out, t.data, t.len);
}

static void add_string(const fe_string *s, fe_buffer *out)
{
    fe_buffer_char(out, '"');
    if (s)
        add_escaped(s->data, s->len, out);
    fe_buffer_char(out, '"');
}

static void add_number(uint64_t number, fe_buffer *out)
{
    fe_buffer_char(out, '"');
    fe_buffer_int(out, (int64_t)number);
    fe_buffer_char(out, '"');
}

/* A control character of ASCII. */
static void quote_control(unsigned char c, fe_buffer *out)
{
    fe_buffer_char(out, '\\');
    if (c == '\t' || c == '\n' || c == '\r') {
        fe_buffer_char(out, c == '\t' ? 't' : c == '\n' ? 'n' : 'r');
        return;
    }
    fe_buffer_char(out, 'x');
    fe_buffer_char(out, hex[c >> 4]);
    fe_buffer_char(out, hex[c & 15]);
}

void fe_explorer_quote(void *ctx, const fe_string *s, fe_buffer *out)
{
    char quote = memchr(s->data, '\'', s->len) && !memchr(s->data, '"', s->len) ? '"' : '\'';

    (void)ctx;
    fe_buffer_char(out, quote);
    for (uint32_t i = 0; i < s->len; i++) {
        unsigned char c = (unsigned char)s->data[i];
        if (c < 0x20 || c == 0x7f) {
            quote_control(c, out);
            continue;
        }
        if (s->data[i] == quote || c == '\\')
            fe_buffer_char(out, '\\');
        fe_buffer_char(out, s->data[i]);
    }
    fe_buffer_char(out, quote);
}

/* ---- namespaces ---- */

static bool same_text(fe_text a, fe_text b)
{
    return a.len == b.len && (a.data == b.data || memcmp(a.data, b.data, a.len) == 0);
}

/* The innermost namespace that holds both. */
static fe_text common_space(fe_text a, fe_text b)
{
    size_t least = a.len < b.len ? a.len : b.len, end = 0, i = 0;

    if (same_text(a, b))
        return a;
    for (; i < least && a.data[i] == b.data[i]; i++) {
        if (a.data[i] == '/')
            end = i;
    }
    if (i == least && (a.len > least ? a.data[i] == '/' : b.len > least && b.data[i] == '/'))
        end = least;
    return (fe_text){a.data, end};
}

static fe_text space_of(const fe_graph *g, const fe_explorer *e, uint32_t id)
{
    uint32_t edge = g->details[id].first_user;

    if (!e->nodes[id].follows || edge == FE_NONE_ID)
        return e->nodes[id].space;
    fe_text space = e->nodes[g->edges[edge].user].space;
    while ((edge = g->edges[edge].next) != FE_NONE_ID && space.len)
        space = common_space(space, e->nodes[g->edges[edge].user].space);
    return space;
}

/* ---- the parts of a node ---- */

/* Which result of its operand a node takes, or -1. */
static int64_t result_taken(const fe_graph *g, const fe_explorer *e, uint32_t id)
{
    const fe_seq *args = g->details[id].args;

    if (g->nodes[id].target != e->getitem || !args || args->len != 2 || args->items[0].kind != FE_NODE ||
        args->items[1].kind != FE_INT || args->items[1].as.integer < 0)
        return -1;
    return args->items[1].as.integer;
}

static void add_attribute(const fe_graph *g, const fe_explorer *e, fe_value v, fe_buffer *out)
{
    fe_buffer text;

    fe_buffer_text(out, ",\"value\":\"");
    if (v.kind == FE_NODE) {
        const fe_string *name = g->details[v.as.node].name;
        if (name)
            add_escaped(name->data, name->len, out);
    } else {
        fe_buffer_init(&text, g->allocator);
        fe_text_value(g, e->renderer, v, FE_TEXT_REPR, &text);
        out->failed |= text.failed;
        size_t shown = text.len > MOST_TEXT ? MOST_TEXT : text.len;
        while (shown < text.len && ((unsigned char)text.data[shown] & 0xc0) == 0x80)
            shown--; /* not in the middle of a character */
        add_escaped(text.data, shown, out);
        if (shown < text.len)
            fe_buffer_text(out, "...");
        fe_buffer_clear(&text);
    }
    fe_buffer_text(out, "\"}");
}

static void add_arguments(const fe_graph *g, const fe_explorer *e, uint32_t id, fe_buffer *out)
{
    const fe_explorer_target *t = &e->targets[g->nodes[id].target];
    const fe_seq *args = g->details[id].args, *kwargs = g->details[id].kwargs;

    for (uint32_t i = 0; args && i < args->len; i++) {
        fe_buffer_text(out, ",{\"key\":");
        if (i < t->name_count)
            add_text(t->names[i], out);
        else
            add_number(i, out);
        add_attribute(g, e, args->items[i], out);
    }
    for (uint32_t i = 0; kwargs && i + 1 < kwargs->len; i += 2) {
        fe_buffer_text(out, ",{\"key\":");
        add_string(kwargs->items[i].as.string, out);
        add_attribute(g, e, kwargs->items[i + 1], out);
    }
}

static void add_label(const fe_graph *g, const fe_explorer *e, uint32_t id, fe_buffer *out)
{
    if (e->nodes[id].leaf.data) {
        add_text(e->nodes[id].leaf, out);
        return;
    }
    fe_buffer_text(out, "\"label\":");
    add_text(e->targets[g->nodes[id].target].label, out);
    fe_buffer_text(out, ",\"attrs\":[{\"key\":\"op\",\"value\":\"");
    fe_buffer_text(out, fe_op_name((fe_op)g->nodes[id].op));
    fe_buffer_text(out, "\"}");
    add_arguments(g, e, id, out);
    add_text(e->nodes[id].source, out);
    fe_buffer_char(out, ']');
}

/* The graphs that a node runs, or that a get_attr gets. */
static void add_graphs(const fe_graph *g, const fe_explorer *e, uint32_t id, fe_buffer *out)
{
    const fe_node *n = &g->nodes[id];
    bool more = e->nodes[id].graph.data;

    fe_buffer_text(out, ",\"subgraphIds\":[");
    if (more)
        add_text(e->nodes[id].graph, out);
    for (uint32_t i = n->edge; i < n->edge + n->edge_count; i++) {
        fe_text graph = e->nodes[g->edges[i].def].graph;
        if (!graph.data)
            continue;
        if (more)
            fe_buffer_char(out, ',');
        add_text(graph, out);
        more = true;
    }
    fe_buffer_char(out, ']');
}

static void add_edges(const fe_graph *g, const fe_explorer *e, uint32_t id, fe_buffer *out)
{
    const fe_node *n = &g->nodes[id];
    int64_t taken = result_taken(g, e, id);

    fe_buffer_text(out, ",\"incomingEdges\":[");
    for (uint32_t i = 0; i < n->edge_count; i++) {
        fe_buffer_text(out, i ? ",{\"sourceNodeId\":" : "{\"sourceNodeId\":");
        add_string(g->details[g->edges[n->edge + i].def].name, out);
        fe_buffer_text(out, ",\"sourceNodeOutputId\":");
        add_number(taken < 0 ? 0 : (uint64_t)taken, out);
        fe_buffer_text(out, ",\"targetNodeInputId\":");
        add_number(i, out);
        fe_buffer_char(out, '}');
    }
    fe_buffer_char(out, ']');
}

static void add_output(uint64_t number, fe_text value, bool first, fe_buffer *out)
{
    fe_buffer_text(out, first ? "{\"id\":" : ",{\"id\":");
    add_number(number, out);
    fe_buffer_text(out, ",\"attrs\":[{\"key\":\"tensor_shape\",\"value\":");
    add_text(value, out);
    fe_buffer_text(out, "}]}");
}

static void add_outputs(const fe_graph *g, const fe_explorer *e, uint32_t id, fe_buffer *out)
{
    int64_t last = -1;
    bool first = true;

    fe_buffer_text(out, ",\"outputsMetadata\":[");
    if (e->nodes[id].value.len) {
        add_output(0, e->nodes[id].value, true, out);
    } else {
        /* Getitems come in order, unless an edit has moved them: each result is told at most once. */
        for (uint32_t i = g->details[id].first_user; i != FE_NONE_ID; i = g->edges[i].next) {
            uint32_t user = g->edges[i].user;
            int64_t taken = result_taken(g, e, user);
            if (taken <= last || !e->nodes[user].value.len)
                continue;
            add_output((uint64_t)taken, e->nodes[user].value, first, out);
            first = false;
            last = taken;
        }
    }
    fe_buffer_char(out, ']');
}

void fe_explorer_write(const fe_graph *g, const fe_explorer *e, fe_buffer *out)
{
    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT; id = g->nodes[id].next) {
        fe_buffer_text(out, id == g->nodes[FE_ROOT].next ? "{\"id\":" : ",{\"id\":");
        add_string(g->details[id].name, out);
        fe_buffer_char(out, ',');
        add_label(g, e, id, out);
        fe_buffer_text(out, ",\"namespace\":\"");
        add_text(space_of(g, e, id), out);
        fe_buffer_char(out, '"');
        add_graphs(g, e, id, out);
        add_edges(g, e, id, out);
        add_outputs(g, e, id, out);
        fe_buffer_char(out, '}');
    }
}
