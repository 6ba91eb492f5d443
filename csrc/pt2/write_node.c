/* write_node.c - a Node of the document.
 *
 * Arguments stand in a file in the order of the operator's schema, with the schema's names. Those of a node that the
 * document knows keep its order and names; arguments that an edit put in get their names from the schema, or, of an
 * operator that no schema is known of, from another node of the document with the same target.
 */
#include "write.h"

#define POSITIONAL 1
#define KEYWORD 2
#define MAX_SORTED 256 /* no operator has so many arguments; a file may */

typedef struct pt2_item {
    pt2_name name;
    uint8_t kind;     /* ArgumentKind */
    yyjson_val *json; /* its NamedArgument in the document, or NULL */
    fe_value value;
    int order; /* in the schema, -1: not there */
} item;

typedef struct {
    pt2_graph_writer *g;
    uint32_t id;
    pt2_callee callee;
    yyjson_val *json; /* the document's Node, or NULL */
    bool same_target; /* as the document's */
    const fe_seq *args, *kwargs;
} node;

static bool has_names(const node *n)
{
    return pt2_callee_has_names(&n->callee);
}

static uint32_t length(const fe_seq *s)
{
    return s ? s->len : 0;
}

/* ---- arguments: which, in which order, under which names ---- */

static int add_item(const node *n, item new)
{
    pt2_graph_writer *g = n->g;
    fe_error err;

    if (fe_grow(g->w->allocator, &g->items, &g->item_capacity, (size_t)g->item_count + 1, sizeof *g->items, &err) < 0) {
        pt2_write_no_memory(g->w);
        return -1;
    }
    g->items[g->item_count++] = new;
    return 0;
}

/* The value under a keyword; *cursor is where the next one is expected. */
static const fe_value *keyword_value(const fe_seq *kwargs, pt2_name name, uint32_t *cursor)
{
    uint32_t len = length(kwargs);

    for (uint32_t i = 0; name.len && i < len; i += 2) {
        uint32_t at = *cursor + i < len ? *cursor + i : *cursor + i - len;
        if (kwargs->items[at].kind != FE_STR || !pt2_name_equal(pt2_name_of_string(kwargs->items[at].as.string), name))
            continue;
        *cursor = at + 2 < len ? at + 2 : 0;
        return &kwargs->items[at + 1];
    }
    return NULL;
}

/* The arguments that the document has, with the values of today. */
static int add_known(const node *n, uint32_t *positional, uint32_t *keywords)
{
    size_t i, count;
    yyjson_val *json;
    uint32_t cursor = 0;

    yyjson_arr_foreach(pt2_field(n->json, "inputs"), i, count, json)
    {
        item new = {.name = pt2_name_of_json(pt2_field(json, "name")), .json = json, .kind = KEYWORD};
        const fe_value *value = keyword_value(n->kwargs, new.name, &cursor);
        if (value) {
            new.value = *value;
            ++*keywords;
        } else if (*positional < length(n->args)) {
            new.kind = POSITIONAL;
            new.value = n->args->items[(*positional)++];
        } else {
            continue;
        }
        if (add_item(n, new) < 0)
            return -1;
    }
    return 0;
}

/* A node of the document with this target, for the names of its arguments. */
static yyjson_val *example_of(const node *n)
{
    size_t i, count;
    yyjson_val *json;

    yyjson_arr_foreach(pt2_field(n->g->graph->json, "nodes"), i, count, json)
    {
        if (pt2_name_equal(pt2_name_of_json(pt2_field(json, "target")), n->callee.target))
            return pt2_field(json, "inputs");
    }
    return NULL;
}

/* The name of a positional argument that the document does not have. */
static int positional_name(const node *n, uint32_t index, pt2_name *out)
{
    const char *at = NULL;
    fe_argument argument;
    uint32_t i = 0;
    fe_target_spelling spelling = fe_target_classify(n->callee.target.data, n->callee.target.len);

    if (!has_names(n)) {
        if (n->g->w->flags & PT2_WRITE_AS_TORCH || spelling == FE_SPELLING_HIGHER_ORDER ||
            spelling == FE_SPELLING_FUNCTION) {
            *out = (pt2_name){"", 0};
            return 0;
        }
        yyjson_val *named = yyjson_arr_get(example_of(n), index);
        *out = pt2_name_of_json(named ? pt2_field(named, "name") : NULL);
        if (out->data)
            return 0;
        pt2_write_fault(n->g, PT2_TARGET, n->id,
                        "the names of the arguments of '%.*s' are not known; give its arguments by keyword",
                        (int)n->callee.target.len, n->callee.target.data);
        return -1;
    }
    while (pt2_callee_next_argument(&n->callee, &at, &argument)) {
        if (argument.keyword_only)
            break;
        if (i++ == index) {
            *out = (pt2_name){argument.name, argument.name_len};
            return 0;
        }
    }
    pt2_write_fault(n->g, PT2_ARGUMENT, n->id, "'%.*s' takes at most %u arguments by position; it is given %u",
                    (int)n->callee.target.len, n->callee.target.data, i, length(n->args));
    return -1;
}

static bool has_keyword(const pt2_graph_writer *g, pt2_name name)
{
    for (uint32_t i = 0; i < g->item_count; i++)
        if (g->items[i].kind == KEYWORD && pt2_name_equal(g->items[i].name, name))
            return true;
    return false;
}

static int add_new(const node *n, uint32_t positional, bool keywords)
{
    pt2_graph_writer *g = n->g;

    for (uint32_t i = positional; i < length(n->args); i++) {
        item new = {.kind = POSITIONAL, .value = n->args->items[i]};
        if (positional_name(n, i, &new.name) < 0 || add_item(n, new) < 0)
            return -1;
    }
    for (uint32_t i = 0; keywords && i < length(n->kwargs); i += 2) {
        item new = {.kind = KEYWORD, .value = n->kwargs->items[i + 1]};
        if (n->kwargs->items[i].kind != FE_STR) {
            pt2_write_fault(g, PT2_ARGUMENT, n->id, "a key of its kwargs is no string");
            return -1;
        }
        new.name = pt2_name_of_string(n->kwargs->items[i].as.string);
        if (has_keyword(g, new.name))
            continue;
        if (add_item(n, new) < 0)
            return -1;
        if (has_names(n) && pt2_callee_argument(&n->callee, new.name, NULL) < 0) {
            pt2_write_fault(g, PT2_ARGUMENT, n->id, "'%.*s' has no argument '%.*s'; see its schema",
                            (int)n->callee.target.len, n->callee.target.data, (int)new.name.len, new.name.data);
            return -1;
        }
    }
    return 0;
}

/* Into the order of the schema; few items, nearly in order. */
static void sort_items(const node *n)
{
    pt2_graph_writer *g = n->g;

    for (uint32_t i = 0; i < g->item_count; i++)
        g->items[i].order = pt2_callee_argument(&n->callee, g->items[i].name, NULL);
    for (uint32_t i = 1; i < g->item_count && g->item_count <= MAX_SORTED; i++) {
        item moved = g->items[i];
        uint32_t at = i;
        for (; at && g->items[at - 1].order > moved.order; at--)
            g->items[at] = g->items[at - 1];
        g->items[at] = moved;
    }
}

static int find_items(const node *n)
{
    uint32_t positional = 0, keywords = 0;
    bool anew = n->g->w->flags & PT2_WRITE_ANEW && has_names(n);

    n->g->item_count = 0;
    if (n->json && n->same_target && !anew && add_known(n, &positional, &keywords) < 0)
        return -1;
    if (positional == length(n->args) && keywords == length(n->kwargs) / 2)
        return 0;
    if (add_new(n, positional, keywords < length(n->kwargs) / 2) < 0)
        return -1;
    if (has_names(n))
        sort_items(n);
    return 0;
}

/* ---- arguments: their texts ---- */

/* Whether the document's argument is given as it is now; its kind may say otherwise, or nothing. */
static bool is_given_so(const node *n, const item *i, yyjson_val *kind)
{
    int64_t code;

    if (pt2_json_int(kind, &code) && code == i->kind)
        return true;
    return pt2_is_positional(n->callee.target.data, n->callee.target.len, i->json) == (i->kind == POSITIONAL);
}

static void write_item_value(const node *n, uint32_t index)
{
    pt2_graph_writer *g = n->g;
    const item *i = &g->items[index];
    yyjson_val *json = i->json ? pt2_field(i->json, "arg") : NULL;
    pt2_place at = {.node = n->id, .name = i->name, .index = index};
    fe_argument argument;

    if (json && pt2_is_same_argument(g, json, i->value)) {
        pt2_json_write(json, g->w->out);
        return;
    }
    bool typed = pt2_callee_has_schema(&n->callee) && pt2_callee_argument(&n->callee, i->name, &argument) >= 0;
    pt2_write_argument(g, &at, json, typed ? &argument.type : NULL, i->value);
}

static void write_known_item(const node *n, uint32_t index)
{
    pt2_writer *w = n->g->w;
    const item *known = &n->g->items[index];
    size_t i, count;
    yyjson_val *key, *value;

    fe_buffer_char(w->out, '{');
    pt2_each_member(known->json, i, count, key, value)
    {
        pt2_write_member(w->out, i, key);
        if (yyjson_equals_str(key, "arg"))
            write_item_value(n, index);
        else if (yyjson_equals_str(key, "kind") && !is_given_so(n, known, value))
            fe_buffer_int(w->out, known->kind);
        else
            pt2_json_write(value, w->out);
    }
    fe_buffer_char(w->out, '}');
}

static void write_inputs(const node *n)
{
    pt2_writer *w = n->g->w;
    uint32_t count = find_items(n) < 0 ? 0 : n->g->item_count;

    fe_buffer_char(w->out, '[');
    for (uint32_t i = 0; i < count; i++) {
        fe_buffer_text(w->out, i ? ", " : "");
        if (n->g->items[i].json) {
            write_known_item(n, i);
            continue;
        }
        fe_buffer_text(w->out, "{\"name\": ");
        pt2_write_name(w, n->g->items[i].name);
        fe_buffer_text(w->out, ", \"arg\": ");
        write_item_value(n, i);
        fe_buffer_text(w->out, ", \"kind\": ");
        fe_buffer_int(w->out, n->g->items[i].kind);
        fe_buffer_char(w->out, '}');
    }
    fe_buffer_char(w->out, ']');
}

/* ---- outputs ---- */

static void write_names(pt2_graph_writer *g, uint32_t first, uint32_t count)
{
    bool any = false;

    fe_buffer_text(g->w->out, "{\"as_tensors\": [");
    for (uint32_t i = 0; i < count; i++) {
        const pt2_slot *s = &g->slots[first + i];
        if (s->kind == PT2_SLOT_NONE)
            continue;
        fe_buffer_text(g->w->out, any ? ", " : "");
        any = true;
        if (s->json && pt2_name_equal(s->key, s->name) && !(g->w->flags & PT2_WRITE_AGAIN)) {
            pt2_json_write(s->json, g->w->out);
            continue;
        }
        fe_buffer_text(g->w->out, "{\"name\": ");
        pt2_write_name(g->w, s->name);
        fe_buffer_char(g->w->out, '}');
    }
    fe_buffer_text(g->w->out, "]}");
}

static void write_class(pt2_graph_writer *g, const pt2_slot *s)
{
    yyjson_val *inner = s->value, *class;

    if (!inner && s->json)
        (void)pt2_tag(s->json, &inner);
    class = pt2_field(inner, "class_fqn");
    fe_buffer_text(g->w->out, ", \"class_fqn\": ");
    if (class)
        pt2_json_write(class, g->w->out);
    else
        fe_buffer_text(g->w->out, "\"\"");
}

void pt2_write_slot(pt2_graph_writer *g, const pt2_slot *s)
{
    fe_buffer *out = g->w->out;
    yyjson_val *inner;
    bool same = s->json && (!s->key.data || pt2_name_equal(s->key, s->name)) &&
                (s->kind == PT2_SLOT_NONE || pt2_value_kind_of(pt2_tag(s->json, &inner)) == s->kind);

    if (same && (s->kind == PT2_SLOT_NONE || !(g->w->flags & PT2_WRITE_AGAIN))) {
        pt2_json_write(s->json, out);
        return;
    }
    fe_buffer_text(out, "{\"");
    fe_buffer_text(out, pt2_value_tag(s->kind));
    if (s->kind == PT2_SLOT_NONE) {
        fe_buffer_text(out, "\": true}");
        return;
    }
    fe_buffer_text(out, s->kind == PT2_VALUE_TENSOR || s->kind == PT2_VALUE_CUSTOM ? "\": {\"name\": "
                                                                                   : "\": {\"as_name\": ");
    pt2_write_name(g->w, s->name);
    if (s->kind == PT2_VALUE_CUSTOM)
        write_class(g, s);
    fe_buffer_text(out, "}}");
}

static void write_outputs(const node *n)
{
    pt2_graph_writer *g = n->g;
    const pt2_plan *plan = &g->plans[n->id];

    fe_buffer_char(g->w->out, '[');
    if (plan->shape == PT2_SHAPE_LIST)
        write_names(g, plan->first, plan->count);
    for (uint32_t i = 0; plan->shape != PT2_SHAPE_LIST && i < plan->count; i++) {
        const pt2_slot *s = &g->slots[plan->first + i];
        fe_buffer_text(g->w->out, i ? ", " : "");
        if (s->kind == PT2_SLOT_LIST)
            write_names(g, s->first, s->count);
        else
            pt2_write_slot(g, s);
    }
    fe_buffer_char(g->w->out, ']');
}

/* ---- nodes ---- */

static void write_single_return(const node *n)
{
    const pt2_plan *plan = &n->g->plans[n->id];
    bool one = plan->shape == PT2_SHAPE_SELF && n->g->slots[plan->first].kind == PT2_VALUE_TENSOR;

    fe_buffer_text(n->g->w->out, !n->callee.higher_order ? "null" : one ? "true" : "false");
}

static void write_metadata(const node *n, yyjson_val *json)
{
    const pt2_node_text *text = pt2_text_of(n->g->graph, n->id);

    if (text)
        fe_buffer_text(n->g->w->out, text->metadata ? text->metadata : "{}");
    else if (json)
        pt2_json_write(json, n->g->w->out);
    else
        fe_buffer_text(n->g->w->out, "{}");
}

static bool has_own_name(const node *n)
{
    const pt2_origin *origin = pt2_origin_of(n->g->graph, n->id, PT2_FROM_NODE);

    return origin && origin->name == n->g->core->details[n->id].name;
}

static const char *const node_keys[] = {"target", "inputs", "outputs", "metadata", "is_hop_single_tensor_return",
                                        "name"};
#define NODE_KEYS (sizeof node_keys / sizeof *node_keys)

static void write_field(const node *n, const char *key, yyjson_val *json)
{
    pt2_writer *w = n->g->w;

    if (strcmp(key, "target") == 0)
        pt2_write_name(w, n->callee.target);
    else if (strcmp(key, "inputs") == 0)
        write_inputs(n);
    else if (strcmp(key, "outputs") == 0)
        write_outputs(n);
    else if (strcmp(key, "metadata") == 0)
        write_metadata(n, json);
    else if (strcmp(key, "is_hop_single_tensor_return") == 0 &&
             !(json && n->same_target && n->g->plans[n->id].of_document))
        write_single_return(n);
    else if (strcmp(key, "name") == 0 && !(json && has_own_name(n)))
        pt2_write_name(w, pt2_node_name(n->g->core, n->id));
    else
        pt2_json_write(json, w->out);
}

/* Whether a field that the document left out is needed now. */
static bool is_needed(const node *n, const char *key)
{
    if (!n->json)
        return true;
    if (yyjson_obj_get(n->json, key))
        return false;
    if (strcmp(key, "name") == 0)
        return !has_own_name(n);
    return strcmp(key, "is_hop_single_tensor_return") == 0 && n->callee.higher_order &&
           !(n->same_target && n->g->plans[n->id].of_document);
}

static void check_node(const node *n)
{
    pt2_graph_writer *g = n->g;
    const fe_graph *core = g->core;

    if (!pt2_name_is(n->callee.target, "_operator.getitem"))
        return;
    const fe_value *source = length(n->args) ? &n->args->items[0] : NULL;
    if (source && source->kind == FE_NODE)
        pt2_write_fault(g, PT2_GRAPH, n->id,
                        "a .pt2 file can only say a getitem of a call with several results, by an index from 0 that it "
                        "has; '%s' is no such call, or has no such result",
                        core->details[source->as.node].name->data);
    else
        pt2_write_fault(g, PT2_GRAPH, n->id, "a .pt2 file can only say a getitem of a node with several results");
}

void pt2_write_node(pt2_graph_writer *g, uint32_t id)
{
    const fe_graph *core = g->core;
    const pt2_origin *origin = pt2_origin_of(g->graph, id, PT2_FROM_NODE);
    node n = {.g = g,
              .id = id,
              .callee = pt2_callee_of(g->w, g->graph, id),
              .json = origin ? origin->json : NULL,
              .args = core->details[id].args,
              .kwargs = core->details[id].kwargs};
    size_t i, count;
    yyjson_val *key, *value;
    bool first = true;

    if (core->nodes[id].op != FE_OP_CALL_FUNCTION) {
        pt2_write_fault(g, PT2_GRAPH, id, "a .pt2 file has call_function nodes only; rewrite this one as such");
        return;
    }
    if (!n.callee.target.data) {
        pt2_write_fault(g, PT2_TARGET, id,
                        "its target has no name in a .pt2 file; give an operator's, such as "
                        "'torch.ops.aten.relu.default'");
        return;
    }
    check_node(&n);
    n.same_target = n.json && pt2_name_equal(n.callee.target, pt2_name_of_json(pt2_field(n.json, "target")));
    fe_buffer_char(g->w->out, '{');
    pt2_each_member(n.json, i, count, key, value)
    {
        fe_buffer_text(g->w->out, first ? "" : ", ");
        first = false;
        pt2_json_write(key, g->w->out);
        fe_buffer_text(g->w->out, ": ");
        write_field(&n, unsafe_yyjson_get_str(key), value);
    }
    for (i = 0; i < NODE_KEYS; i++) {
        if (!is_needed(&n, node_keys[i]))
            continue;
        pt2_write_key(g->w, &first, node_keys[i]);
        write_field(&n, node_keys[i], NULL);
    }
    fe_buffer_char(g->w->out, '}');
}
