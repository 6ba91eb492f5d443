/* write.c - the document of a program with its graphs as they are now.
 *
 * The walk goes over the document in its own order of keys; a graph that has no document is written in torch's order.
 */
#include "write.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- helpers ---- */

void pt2_write_no_memory(pt2_writer *w)
{
    w->failed = true;
    (void)pt2_no_memory(w->report);
}

void pt2_write_member(fe_buffer *out, size_t i, yyjson_val *key)
{
    fe_buffer_text(out, i ? ", " : "");
    pt2_json_write(key, out);
    fe_buffer_text(out, ": ");
}

void pt2_write_fault(pt2_graph_writer *g, pt2_kind kind, uint32_t node, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    g->w->failed = true;
    if (node == FE_NONE_ID)
        (void)pt2_fail(g->w->report, kind, NULL, NULL, "%s", text);
    else
        (void)pt2_fail_node(g->w->report, kind, NULL, g->core->details[node].name->data, "%s", text);
}

void pt2_write_name(pt2_writer *w, pt2_name name)
{
    pt2_json_quote(name.data, name.len, w->out);
}

void pt2_write_key(pt2_writer *w, bool *first, const char *key)
{
    fe_buffer_text(w->out, *first ? "" : ", ");
    *first = false;
    pt2_json_quote(key, strlen(key), w->out);
    fe_buffer_text(w->out, ": ");
}

static const char *const value_tags[] = {"as_none",      "as_tensor",   "as_sym_int",
                                         "as_sym_float", "as_sym_bool", "as_custom_obj"};

const char *pt2_value_tag(unsigned kind)
{
    return value_tags[kind];
}

int pt2_value_kind_of(const char *tag)
{
    for (int i = 0; i < (int)(sizeof value_tags / sizeof *value_tags); i++)
        if (strcmp(tag, value_tags[i]) == 0)
            return i;
    return -1;
}

pt2_name pt2_argument_name(yyjson_val *json)
{
    yyjson_val *inner, *name = yyjson_obj_get(json, "name");

    if (!json || yyjson_is_str(name))
        return pt2_name_of_json(name);
    if (pt2_value_kind_of(pt2_tag(json, &inner)) <= 0)
        return (pt2_name){NULL, 0};
    name = yyjson_obj_get(inner, "name");
    return pt2_name_of_json(name ? name : yyjson_obj_get(inner, "as_name"));
}

/* What a node calls, as an object of the graph; NULL: its target is a text, or an object without a word in files. */
static const pt2_object *target_object(const pt2_graph *graph, const fe_target *t)
{
    if (t->object >= graph->object_count || graph->objects[t->object].kind != PT2_OBJECT_TARGET)
        return NULL;
    return &graph->objects[t->object];
}

pt2_name pt2_target_text(const pt2_graph *graph, uint32_t id)
{
    const fe_target *t = &graph->core->targets[graph->core->nodes[id].target];
    const pt2_object *object = target_object(graph, t);

    if (t->object == FE_NONE_ID)
        return pt2_name_of_string(t->text);
    return object ? pt2_name_of(object->text) : (pt2_name){NULL, 0};
}

static bool is_higher_order(pt2_name target)
{
    static const char prefix[] = "torch.ops.higher_order.";

    return target.len >= sizeof prefix && memcmp(target.data, prefix, sizeof prefix - 1) == 0;
}

/* ---- what nodes call ---- */

pt2_callee pt2_callee_of(const pt2_writer *w, const pt2_graph *graph, uint32_t id)
{
    const pt2_object *object = target_object(graph, &graph->core->targets[graph->core->nodes[id].target]);
    pt2_callee c = {.target = pt2_target_text(graph, id), .schema = object ? object->schema : NULL};

    if (!c.target.data)
        return c;
    c.higher_order = is_higher_order(c.target);
    if (!c.schema && !(w->flags & PT2_WRITE_AS_TORCH))
        c.row = fe_operator_find(c.target.data, c.target.len);
    return c;
}

bool pt2_callee_next_argument(const pt2_callee *c, const char **at, fe_argument *out)
{
    if (!*at)
        *at = c->schema;
    return (c->schema || c->row) && fe_operator_next_argument(c->row, at, out);
}

bool pt2_callee_next_return(const pt2_callee *c, const char **at, fe_schema_type *out)
{
    if (!*at && c->schema)
        *at = strchr(c->schema, '>') ? strchr(c->schema, '>') + 1 : "";
    return (c->schema || c->row) && fe_operator_next_return(c->row, at, out);
}

int pt2_callee_argument(const pt2_callee *c, pt2_name name, fe_argument *out)
{
    const char *at = NULL;
    fe_argument a;

    for (int i = 0; pt2_callee_next_argument(c, &at, &a); i++) {
        if (!pt2_name_equal((pt2_name){a.name, a.name_len}, name))
            continue;
        if (out)
            *out = a;
        return i;
    }
    return -1;
}

uint32_t pt2_callee_return_count(const pt2_callee *c)
{
    const char *at = NULL;
    fe_schema_type type;
    uint32_t count = 0;

    while (pt2_callee_next_return(c, &at, &type))
        count++;
    return count;
}

bool pt2_callee_has_schema(const pt2_callee *c)
{
    if (c->schema)
        return strchr(c->schema, '>');
    return c->row && c->row->kind != FE_SPELLING_SYM && fe_operator_has_schema(c->row);
}

bool pt2_callee_has_names(const pt2_callee *c)
{
    return c->schema || (c->row && (c->row->kind == FE_SPELLING_SYM || fe_operator_has_schema(c->row)));
}

const pt2_origin *pt2_origin_of(const pt2_graph *graph, uint32_t id, pt2_source source)
{
    return id < graph->origin_count && graph->origins[id].source == source ? &graph->origins[id] : NULL;
}

const pt2_node_text *pt2_text_of(const pt2_graph *graph, uint32_t id)
{
    return graph->texts && id < graph->text_count && graph->texts[id].given ? &graph->texts[id] : NULL;
}

/* ---- the tables of values ---- */

static const char *const tables[] = {
    NULL, "tensor_values", "sym_int_values", "sym_float_values", "sym_bool_values", "custom_obj_values"};
#define TABLES (sizeof tables / sizeof *tables)

static void write_entry(pt2_graph_writer *g, bool *first, pt2_name name, yyjson_val *value)
{
    fe_buffer_text(g->w->out, *first ? "" : ", ");
    *first = false;
    pt2_write_name(g->w, name);
    fe_buffer_text(g->w->out, ": ");
    pt2_json_write(value, g->w->out);
}

static bool is_name_of_slot(const pt2_graph_writer *g, pt2_name name)
{
    const fe_string *s = fe_string_find(&g->core->strings, name.data, name.len);
    uint32_t owner = s ? fe_name_owner(g->core, s) : FE_NONE_ID;

    return owner != FE_NONE_ID && fe_node_is_listed(g->core, owner) && g->plans[owner].shape != PT2_SHAPE_NONE;
}

/* Most documents have values in the order of definitions: *next is where the entry's slot is looked for first. */
static pt2_slot *slot_of_key(pt2_graph_writer *g, unsigned kind, pt2_name key, uint32_t *next, bool *removed)
{
    while (*next < g->slot_count && (g->slots[*next].kind != kind || !g->slots[*next].key.data))
        ++*next;
    *removed = false;
    if (*next < g->slot_count && pt2_name_equal(g->slots[*next].key, key))
        return &g->slots[(*next)++];
    return (pt2_slot *)pt2_writer_find(g, key, removed);
}

/* Values that the document does not have, in the order of results; those of lists stand in the list's place. */
static void write_new_entries(pt2_graph_writer *g, unsigned kind, bool *first, uint32_t slot, uint32_t count)
{
    for (uint32_t end = slot + count; slot < end; slot++) {
        pt2_slot *s = &g->slots[slot];
        if (s->kind == PT2_SLOT_LIST)
            write_new_entries(g, kind, first, s->first, s->count); /* lists hold no lists */
        if (s->kind != kind || s->done || !s->value)
            continue;
        s->done = true;
        write_entry(g, first, s->name, s->value);
    }
}

/* The document's entries in their order, under the names of today, then what is new. */
static void write_table(pt2_graph_writer *g, unsigned kind, yyjson_val *json)
{
    bool first = true, removed;
    size_t i, count;
    yyjson_val *key, *value;
    uint32_t next = 0;

    fe_buffer_char(g->w->out, '{');
    pt2_each_member(json, i, count, key, value)
    {
        pt2_name name = pt2_name_of_json(key);
        pt2_slot *s = slot_of_key(g, kind, name, &next, &removed);
        if (!s && (removed || is_name_of_slot(g, name)))
            continue;
        if (!s) { /* of no node: kept as it was */
            write_entry(g, &first, name, value);
            continue;
        }
        if (s->kind != kind || s->done)
            continue;
        s->done = true;
        write_entry(g, &first, s->name, s->value ? s->value : value);
    }
    for (uint32_t id = fe_node_next(g->core, FE_ROOT); id != FE_ROOT; id = fe_node_next(g->core, id)) {
        if (g->plans[id].shape != PT2_SHAPE_TAKEN)
            write_new_entries(g, kind, &first, g->plans[id].first, g->plans[id].count);
    }
    fe_buffer_char(g->w->out, '}');
}

static bool needs_table(const pt2_graph_writer *g, unsigned kind)
{
    for (uint32_t slot = 0; slot < g->slot_count; slot++)
        if (g->slots[slot].kind == kind && g->slots[slot].value)
            return true;
    return false;
}

/* A new name must have a value, or torch refuses the file. */
static void check_values(pt2_graph_writer *g)
{
    for (uint32_t slot = 0; slot < g->slot_count; slot++) {
        const pt2_slot *s = &g->slots[slot];
        if (s->kind == PT2_SLOT_NONE || s->kind == PT2_SLOT_LIST || s->value || s->key.data)
            continue;
        pt2_write_fault(g, PT2_VALUE, s->node, "nothing tells the shape and dtype of '%.*s'; set meta['val']",
                        (int)s->name.len, s->name.data);
    }
}

/* ---- graphs ---- */

static void write_inputs(pt2_graph_writer *g)
{
    const fe_graph *core = g->core;
    bool first = true;

    fe_buffer_char(g->w->out, '[');
    for (uint32_t id = fe_node_next(core, FE_ROOT); id != FE_ROOT; id = fe_node_next(core, id)) {
        if (core->nodes[id].op != FE_OP_PLACEHOLDER)
            continue;
        fe_buffer_text(g->w->out, first ? "" : ", ");
        first = false;
        pt2_write_slot(g, &g->slots[g->plans[id].first]);
    }
    fe_buffer_char(g->w->out, ']');
}

/* torch writes no getitems: they take results of nodes, or nobody may use them. */
static bool is_left_out(const pt2_graph_writer *g, uint32_t id)
{
    return g->plans[id].shape == PT2_SHAPE_TAKEN ||
           (g->w->flags & PT2_WRITE_AS_TORCH && !g->core->nodes[id].user_count &&
            pt2_name_is(pt2_target_text(g->graph, id), "_operator.getitem"));
}

static void write_nodes(pt2_graph_writer *g)
{
    const fe_graph *core = g->core;
    bool first = true;

    fe_buffer_char(g->w->out, '[');
    for (uint32_t id = fe_node_next(core, FE_ROOT); id != FE_ROOT; id = fe_node_next(core, id)) {
        fe_op op = (fe_op)core->nodes[id].op;
        if (op == FE_OP_PLACEHOLDER || op == FE_OP_OUTPUT || op == FE_OP_GET_ATTR || is_left_out(g, id))
            continue;
        fe_buffer_text(g->w->out, first ? "" : ", ");
        first = false;
        pt2_write_node(g, id);
    }
    fe_buffer_char(g->w->out, ']');
}

static uint32_t output_of(const fe_graph *core)
{
    uint32_t id = fe_node_prev(core, FE_ROOT);

    return id != FE_ROOT && core->nodes[id].op == FE_OP_OUTPUT ? id : FE_NONE_ID;
}

static bool returns_one(const fe_graph *core, fe_value *out)
{
    uint32_t id = output_of(core);
    const fe_seq *args = id == FE_NONE_ID ? NULL : core->details[id].args;

    *out = args && args->len ? args->items[0] : (fe_value){.kind = FE_NULL};
    return args && args->len && out->kind != FE_TUPLE && out->kind != FE_LIST;
}

static void write_outputs(pt2_graph_writer *g, yyjson_val *json)
{
    fe_value value;
    bool one = returns_one(g->core, &value);
    const fe_seq *items = value.kind == FE_TUPLE || value.kind == FE_LIST ? value.as.seq : NULL;
    pt2_place at = {.node = output_of(g->core)};
    yyjson_arr_iter it = yyjson_arr_iter_with(json);

    if (one && value.kind != FE_NODE)
        pt2_write_fault(g, PT2_GRAPH, at.node, "a graph returns one bare tensor, or a tuple; put this into a tuple");
    fe_buffer_char(g->w->out, '[');
    if (one)
        pt2_write_output(g, &at, yyjson_arr_iter_next(&it), value);
    for (uint32_t i = 0; items && i < items->len; i++) {
        at.index = i;
        fe_buffer_text(g->w->out, i ? ", " : "");
        pt2_write_output(g, &at, yyjson_arr_iter_next(&it), items->items[i]);
    }
    fe_buffer_char(g->w->out, ']');
}

static const char *const graph_keys[] = {"inputs",
                                         "outputs",
                                         "nodes",
                                         "tensor_values",
                                         "sym_int_values",
                                         "sym_bool_values",
                                         "is_single_tensor_return",
                                         "custom_obj_values",
                                         "sym_float_values"};
#define GRAPH_KEYS (sizeof graph_keys / sizeof *graph_keys)

static unsigned table_of(const char *key)
{
    for (unsigned kind = 1; kind < TABLES; kind++)
        if (strcmp(key, tables[kind]) == 0)
            return kind;
    return 0;
}

static void write_graph_field(pt2_graph_writer *g, const char *key, yyjson_val *json)
{
    fe_value value;
    bool one;

    if (table_of(key)) {
        write_table(g, table_of(key), json);
    } else if (strcmp(key, "inputs") == 0) {
        write_inputs(g);
    } else if (strcmp(key, "outputs") == 0) {
        write_outputs(g, json);
    } else if (strcmp(key, "nodes") == 0) {
        write_nodes(g);
    } else if (strcmp(key, "is_single_tensor_return") == 0) {
        one = returns_one(g->core, &value);
        if (json && yyjson_is_true(json) == one)
            pt2_json_write(json, g->w->out);
        else
            fe_buffer_text(g->w->out, one ? "true" : "false");
    } else {
        pt2_json_write(json, g->w->out);
    }
}

/* Whether a field that the document left out is needed now. */
static bool is_needed(const pt2_graph_writer *g, const char *key)
{
    fe_value value;

    if (!g->graph->json)
        return true;
    if (yyjson_obj_get(g->graph->json, key))
        return false;
    return table_of(key) ? needs_table(g, table_of(key))
                         : strcmp(key, "is_single_tensor_return") == 0 && returns_one(g->core, &value);
}

static void write_graph_fields(pt2_graph_writer *g)
{
    size_t i, count;
    yyjson_val *key, *value;
    bool first = true;

    fe_buffer_char(g->w->out, '{');
    pt2_each_member(g->graph->json, i, count, key, value)
    {
        fe_buffer_text(g->w->out, first ? "" : ", ");
        first = false;
        pt2_json_write(key, g->w->out);
        fe_buffer_text(g->w->out, ": ");
        write_graph_field(g, unsafe_yyjson_get_str(key), value);
    }
    for (i = 0; i < GRAPH_KEYS; i++) {
        if (!is_needed(g, graph_keys[i]))
            continue;
        pt2_write_key(g->w, &first, graph_keys[i]);
        write_graph_field(g, graph_keys[i], NULL);
    }
    fe_buffer_char(g->w->out, '}');
}

static void init_graph(pt2_graph_writer *g, pt2_writer *w, const pt2_graph *graph)
{
    memset(g, 0, sizeof *g);
    g->w = w;
    g->graph = graph;
    g->core = graph->core;
    fe_arena_init(&g->arena, w->allocator);
}

void pt2_write_graph(pt2_writer *w, const pt2_graph *graph)
{
    pt2_graph_writer g;

    init_graph(&g, w, graph);
    if (pt2_writer_plan(&g) == 0) {
        check_values(&g);
        write_graph_fields(&g);
    }
    pt2_writer_clear(&g);
}

/* ---- the program ---- */

static void write_module(pt2_graph_writer *g, yyjson_val *json)
{
    size_t i, count;
    yyjson_val *key, *value;

    fe_buffer_char(g->w->out, '{');
    pt2_each_member(json, i, count, key, value)
    {
        pt2_write_member(g->w->out, i, key);
        if (yyjson_equals_str(key, "graph"))
            write_graph_fields(g);
        else if (yyjson_equals_str(key, "signature") && g->core->signature)
            pt2_write_signature(g, value);
        else if (yyjson_equals_str(key, "module_call_graph"))
            pt2_write_calls(g, g->graph->calls ? g->graph->calls : value);
        else
            pt2_json_write(value, g->w->out);
    }
    fe_buffer_char(g->w->out, '}');
}

static void write_program(pt2_graph_writer *g, yyjson_val *json)
{
    size_t i, count;
    yyjson_val *key, *value;

    fe_buffer_char(g->w->out, '{');
    pt2_each_member(json, i, count, key, value)
    {
        pt2_write_member(g->w->out, i, key);
        if (yyjson_equals_str(key, "graph_module"))
            write_module(g, value);
        else
            pt2_json_write(value, g->w->out);
    }
    fe_buffer_char(g->w->out, '}');
}

int pt2_program_write_as(const pt2_program *p, const pt2_graph *root, unsigned flags, fe_buffer *out, pt2_report *r)
{
    pt2_writer w = {
        .program = p, .allocator = p->allocator, .out = out, .report = r, .flags = flags & PT2_WRITE_ANEW ? 3u : flags};
    pt2_graph_writer g;

    init_graph(&g, &w, root);
    if (pt2_writer_plan(&g) == 0) {
        check_values(&g);
        write_program(&g, yyjson_doc_get_root(p->json.doc));
    }
    pt2_writer_clear(&g);
    if (out->failed)
        return pt2_no_memory(r);
    return w.failed ? -1 : 0;
}

int pt2_program_write(const pt2_program *p, const pt2_graph *root, fe_buffer *out, pt2_report *r)
{
    return pt2_program_write_as(p, root, 0, out, r);
}
