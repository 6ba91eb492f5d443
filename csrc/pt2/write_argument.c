/* write_argument.c - an Argument of the document.
 *
 * One that says the same as the document's is written as it was. Otherwise a tag is chosen: the document's when the value
 * fits it, else the one of the schema's type, else the first that fits in the order in which torch tries them.
 */
#include "write.h"

#include <math.h>
#include <stdlib.h>

/* X(id, tag, kind of item, depth of lists) in the order in which torch tries them for a list. */
#define TAGS(X)                                             \
    X(NONE, "as_none", IS_NONE, 0)                          \
    X(BOOL, "as_bool", IS_BOOL, 0)                          \
    X(INT, "as_int", IS_INT, 0)                             \
    X(FLOAT, "as_float", IS_FLOAT, 0)                       \
    X(STRING, "as_string", IS_STRING, 0)                    \
    X(COMPLEX, "as_complex", IS_COMPLEX, 0)                 \
    X(SCALAR_TYPE, "as_scalar_type", IS_DTYPE, 0)           \
    X(LAYOUT, "as_layout", IS_LAYOUT, 0)                    \
    X(MEMORY_FORMAT, "as_memory_format", IS_FORMAT, 0)      \
    X(DEVICE, "as_device", IS_DEVICE, 0)                    \
    X(OPERATOR, "as_operator", IS_OPERATOR, 0)              \
    X(GRAPH, "as_graph", IS_GRAPH, 0)                       \
    X(TENSOR, "as_tensor", IS_TENSOR, 0)                    \
    X(SYM_INT, "as_sym_int", IS_SYM_INT, 0)                 \
    X(SYM_FLOAT, "as_sym_float", IS_SYM_FLOAT, 0)           \
    X(SYM_BOOL, "as_sym_bool", IS_SYM_BOOL, 0)              \
    X(CUSTOM_OBJ, "as_custom_obj", IS_CUSTOM, 0)            \
    X(OPTIONAL_TENSOR, "as_optional_tensor", IS_MAYBE, 0)   \
    X(BOOLS, "as_bools", IS_BOOL, 1)                        \
    X(INTS, "as_ints", IS_INT, 1)                           \
    X(FLOATS, "as_floats", IS_FLOAT, 1)                     \
    X(STRINGS, "as_strings", IS_STRING, 1)                  \
    X(SYM_INTS, "as_sym_ints", IS_SYM_INT, 1)               \
    X(SYM_FLOATS, "as_sym_floats", IS_SYM_FLOAT, 1)         \
    X(SYM_BOOLS, "as_sym_bools", IS_SYM_BOOL, 1)            \
    X(TENSORS, "as_tensors", IS_TENSOR, 1)                  \
    X(NESTED_TENSORS, "as_nested_tensors", IS_TENSOR, 2)    \
    X(OPTIONAL_TENSORS, "as_optional_tensors", IS_MAYBE, 1) \
    X(INT_LISTS, "as_int_lists", IS_INT, 2)                 \
    X(FLOAT_LISTS, "as_float_lists", IS_FLOAT, 2)           \
    X(DICT, "as_string_to_argument", IS_DICT, 0)

/* What one item, or a value that is no list, may be. Those from IS_SYM_INT on are unions in a list. */
typedef enum {
    IS_NONE,
    IS_BOOL,
    IS_INT,
    IS_FLOAT,
    IS_STRING,
    IS_COMPLEX,
    IS_DTYPE,
    IS_LAYOUT,
    IS_FORMAT,
    IS_DEVICE,
    IS_OPERATOR,
    IS_GRAPH,
    IS_TENSOR,
    IS_CUSTOM,
    IS_DICT,
    IS_SYM_INT,
    IS_SYM_FLOAT,
    IS_SYM_BOOL,
    IS_MAYBE, /* a tensor or none */
} item_kind;

typedef enum {
#define X(id, text, item, lists) TAG_##id,
    TAGS(X)
#undef X
        TAG_COUNT
} tag;

static const struct {
    const char *text;
    uint8_t item, lists;
} tags[] = {
#define X(id, text, item, lists) {text, item, lists},
    TAGS(X)
#undef X
};

static tag find_tag(const char *text)
{
    tag t = 0;

    while (t < TAG_COUNT && strcmp(tags[t].text, text) != 0)
        t++;
    return t;
}

/* ---- what values are ---- */

static const pt2_object *object_of(const pt2_graph_writer *g, fe_value v, pt2_object_kind kind)
{
    const pt2_graph *graph = g->graph;

    return v.kind == FE_OBJECT && v.as.object < graph->object_count && graph->objects[v.as.object].kind == kind
               ? &graph->objects[v.as.object]
               : NULL;
}

/* The value that a node stands for in an argument; NULL: nothing that an argument can name. */
static const pt2_slot *slot_of(const pt2_graph_writer *g, fe_value v)
{
    const pt2_plan *plan = v.kind == FE_NODE && v.as.node < g->core->node_count ? &g->plans[v.as.node] : NULL;

    if (!plan || (plan->shape != PT2_SHAPE_SELF && plan->shape != PT2_SHAPE_TAKEN))
        return NULL;
    const pt2_slot *s = &g->slots[plan->first];
    return s->kind == PT2_SLOT_NONE || s->kind == PT2_SLOT_LIST ? NULL : s;
}

static bool is_slot(const pt2_graph_writer *g, fe_value v, pt2_value_kind kind)
{
    const pt2_slot *s = slot_of(g, v);

    return s && s->kind == kind;
}

static bool is_graph(const pt2_graph_writer *g, fe_value v)
{
    return v.kind == FE_NODE && v.as.node < g->core->node_count && g->core->nodes[v.as.node].op == FE_OP_GET_ATTR;
}

static bool is_list(fe_value v)
{
    return v.kind == FE_LIST || v.kind == FE_TUPLE;
}

/* loose: an int may stand for a float. */
static bool is_item(const pt2_graph_writer *g, fe_value v, unsigned kind, bool loose)
{
    switch ((item_kind)kind) {
    case IS_NONE:
        return v.kind == FE_NONE;
    case IS_BOOL:
        return v.kind == FE_BOOL;
    case IS_INT:
        return v.kind == FE_INT;
    case IS_FLOAT:
        return v.kind == FE_FLOAT || (loose && v.kind == FE_INT);
    case IS_STRING:
        return v.kind == FE_STR;
    case IS_COMPLEX:
        return v.kind == FE_COMPLEX;
    case IS_DTYPE:
        return object_of(g, v, PT2_OBJECT_DTYPE);
    case IS_LAYOUT:
        return object_of(g, v, PT2_OBJECT_LAYOUT);
    case IS_FORMAT:
        return object_of(g, v, PT2_OBJECT_MEMORY_FORMAT);
    case IS_DEVICE:
        return object_of(g, v, PT2_OBJECT_DEVICE);
    case IS_OPERATOR:
        return object_of(g, v, PT2_OBJECT_TARGET);
    case IS_GRAPH:
        return is_graph(g, v);
    case IS_TENSOR:
        return is_slot(g, v, PT2_VALUE_TENSOR);
    case IS_CUSTOM:
        return is_slot(g, v, PT2_VALUE_CUSTOM) || object_of(g, v, PT2_OBJECT_CUSTOM);
    case IS_DICT:
        return v.kind == FE_DICT;
    case IS_SYM_INT:
        return v.kind == FE_INT || is_slot(g, v, PT2_VALUE_SYM_INT);
    case IS_SYM_FLOAT:
        return v.kind == FE_FLOAT || is_slot(g, v, PT2_VALUE_SYM_FLOAT);
    case IS_SYM_BOOL:
        return v.kind == FE_BOOL || is_slot(g, v, PT2_VALUE_SYM_BOOL);
    case IS_MAYBE:
        return v.kind == FE_NONE || is_slot(g, v, PT2_VALUE_TENSOR);
    }
    return false;
}

/* In a list, whatever has a name may stand for a tensor, unless all are of another kind: torch finds them by name. So are the
 * operands of a cond that has symbolic sizes among them. */
static bool is_list_item(const pt2_graph_writer *g, fe_value v, unsigned kind, bool loose)
{
    return ((kind == IS_TENSOR || kind == IS_MAYBE) && slot_of(g, v)) || is_item(g, v, kind, loose);
}

static bool fits_lists(const pt2_graph_writer *g, fe_value v, unsigned kind, unsigned lists, bool loose)
{
    if (!is_list(v))
        return false;
    for (uint32_t i = 0; i < v.as.seq->len; i++) {
        fe_value item = v.as.seq->items[i];
        if (!(lists > 1 ? fits_lists(g, item, kind, lists - 1, loose) : is_list_item(g, item, kind, loose)))
            return false;
    }
    return true;
}

static bool fits(const pt2_graph_writer *g, fe_value v, tag t, bool loose)
{
    if (t == TAG_COUNT)
        return false;
    return tags[t].lists ? fits_lists(g, v, tags[t].item, tags[t].lists, loose) : is_item(g, v, tags[t].item, loose);
}

/* ---- the choice of a tag ---- */

static tag tag_of(unsigned item, unsigned lists)
{
    for (tag t = 0; t < TAG_COUNT; t++)
        if (tags[t].item == item && tags[t].lists == lists)
            return t;
    return TAG_COUNT;
}

/* The tag of a schema's type; TAG_COUNT: it says too little. */
static tag schema_tag(const pt2_graph_writer *g, const fe_schema_type *type, fe_value v)
{
    static const uint8_t items[FE_SCHEMA_TYPE_COUNT] = {
        [FE_SCHEMA_TENSOR] = IS_TENSOR + 1,
        [FE_SCHEMA_INT] = IS_INT + 1,
        [FE_SCHEMA_SYM_INT] = IS_INT + 1,
        [FE_SCHEMA_FLOAT] = IS_FLOAT + 1,
        [FE_SCHEMA_BOOL] = IS_BOOL + 1,
        [FE_SCHEMA_SYM_BOOL] = IS_BOOL + 1,
        [FE_SCHEMA_SCALAR_TYPE] = IS_DTYPE + 1,
        [FE_SCHEMA_LAYOUT] = IS_LAYOUT + 1,
        [FE_SCHEMA_DEVICE] = IS_DEVICE + 1,
        [FE_SCHEMA_STRING] = IS_STRING + 1,
        [FE_SCHEMA_MEMORY_FORMAT] = IS_FORMAT + 1,
        [FE_SCHEMA_COMPLEX] = IS_COMPLEX + 1,
    };
    tag t = items[type->base] ? tag_of(items[type->base] - 1u, type->lists) : TAG_COUNT;

    if (fits(g, v, t, true))
        return t;
    t = type->base == FE_SCHEMA_SYM_INT ? tag_of(IS_SYM_INT, type->lists) : TAG_COUNT;
    return fits(g, v, t, true) ? t : TAG_COUNT;
}

static tag infer_tag(const pt2_graph_writer *g, fe_value v)
{
    if (is_list(v) && !v.as.seq->len)
        return TAG_TENSORS; /* as torch does when nothing tells */
    for (tag t = 0; t < TAG_COUNT; t++)
        if (fits(g, v, t, false))
            return t;
    if (g->w->flags & PT2_WRITE_AS_TORCH)
        return TAG_COUNT;
    return fits(g, v, TAG_FLOATS, true) ? TAG_FLOATS : fits(g, v, TAG_FLOAT_LISTS, true) ? TAG_FLOAT_LISTS : TAG_COUNT;
}

static tag choose_tag(const pt2_graph_writer *g, yyjson_val *json, const fe_schema_type *type, fe_value v)
{
    yyjson_val *inner;
    tag t = json ? find_tag(pt2_tag(json, &inner)) : TAG_COUNT;

    if (fits(g, v, t, true))
        return t;
    if (g->w->flags & PT2_WRITE_AS_TORCH && type) /* torch asks the schema only what an empty list is of */
        return is_list(v) && !v.as.seq->len ? schema_tag(g, type, v) : infer_tag(g, v);
    t = type ? schema_tag(g, type, v) : TAG_COUNT;
    return t != TAG_COUNT ? t : infer_tag(g, v);
}

/* ---- is it what the document has? ---- */

static bool same_bits(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

static bool same_real(yyjson_val *json, double real)
{
    double known;

    return pt2_json_real(json, &known) && same_bits(known, real);
}

static bool same_int(yyjson_val *json, int64_t integer)
{
    int64_t known;

    return pt2_json_int(json, &known) && known == integer;
}

static bool same_code(const pt2_graph_writer *g, yyjson_val *json, fe_value v, pt2_object_kind kind)
{
    const pt2_object *o = object_of(g, v, kind);

    return o && same_int(json, o->code);
}

static bool same_text(yyjson_val *json, const pt2_object *o)
{
    return o && pt2_name_equal(pt2_name_of_json(json), pt2_name_of(o->text));
}

static bool same_node(const pt2_graph_writer *g, yyjson_val *name, fe_value v, pt2_value_kind kind)
{
    const pt2_slot *s = slot_of(g, v);

    return s && s->kind == kind && pt2_name_equal(pt2_name_of_json(name), s->name);
}

/* cuda:0 as {"type": "cuda", "index": 0} */
static bool split_device(const char *text, pt2_name *type, int64_t *index)
{
    const char *colon = strchr(text, ':');
    char *end = NULL;

    *type = colon ? (pt2_name){text, (size_t)(colon - text)} : pt2_name_of(text);
    *index = colon ? strtoll(colon + 1, &end, 10) : 0;
    return colon;
}

static bool same_device(yyjson_val *json, const pt2_object *o)
{
    pt2_name type;
    int64_t index;

    if (!o)
        return false;
    bool indexed = split_device(o->text, &type, &index);
    yyjson_val *known = pt2_field(json, "index");
    return pt2_name_equal(pt2_name_of_json(pt2_field(json, "type")), type) && !known == !indexed &&
           (!indexed || same_int(known, index));
}

/* Of a union in a list, {"as_name": ...} or {"as_int": ...}, or of such an argument. */
static bool same_union(const pt2_graph_writer *g, yyjson_val *json, fe_value v, pt2_value_kind kind)
{
    yyjson_val *inner;
    const char *text = pt2_tag(json, &inner);

    if (strcmp(text, "as_name") == 0)
        return same_node(g, inner, v, kind);
    if (strcmp(text, "as_tensor") == 0)
        return same_node(g, pt2_field(inner, "name"), v, PT2_VALUE_TENSOR);
    if (strcmp(text, "as_int") == 0)
        return v.kind == FE_INT && same_int(inner, v.as.integer);
    if (strcmp(text, "as_float") == 0)
        return v.kind == FE_FLOAT && same_real(inner, v.as.real);
    if (strcmp(text, "as_bool") == 0)
        return v.kind == FE_BOOL && yyjson_is_bool(inner) && yyjson_get_bool(inner) == v.as.boolean;
    return strcmp(text, "as_none") == 0 && v.kind == FE_NONE;
}

static bool same_item(const pt2_graph_writer *g, yyjson_val *json, fe_value v, item_kind kind)
{
    switch (kind) {
    case IS_NONE:
        return v.kind == FE_NONE;
    case IS_BOOL:
        return v.kind == FE_BOOL && yyjson_is_bool(json) && yyjson_get_bool(json) == v.as.boolean;
    case IS_INT:
        return v.kind == FE_INT && same_int(json, v.as.integer);
    case IS_FLOAT:
        return v.kind == FE_FLOAT && same_real(json, v.as.real);
    case IS_STRING:
        return v.kind == FE_STR && pt2_name_equal(pt2_name_of_json(json), pt2_name_of_string(v.as.string));
    case IS_COMPLEX:
        return v.kind == FE_COMPLEX && same_real(pt2_field(json, "real"), v.as.complex[0]) &&
               same_real(pt2_field(json, "imag"), v.as.complex[1]);
    case IS_DTYPE:
        return same_code(g, json, v, PT2_OBJECT_DTYPE);
    case IS_LAYOUT:
        return same_code(g, json, v, PT2_OBJECT_LAYOUT);
    case IS_FORMAT:
        return same_code(g, json, v, PT2_OBJECT_MEMORY_FORMAT);
    case IS_DEVICE:
        return same_device(json, object_of(g, v, PT2_OBJECT_DEVICE));
    case IS_OPERATOR:
        return same_text(json, object_of(g, v, PT2_OBJECT_TARGET));
    case IS_TENSOR:
        return same_node(g, pt2_field(json, "name"), v, PT2_VALUE_TENSOR);
    case IS_CUSTOM:
        return v.kind == FE_NODE ? same_node(g, pt2_field(json, "name"), v, PT2_VALUE_CUSTOM)
                                 : same_text(pt2_field(json, "name"), object_of(g, v, PT2_OBJECT_CUSTOM));
    case IS_SYM_INT:
        return same_union(g, json, v, PT2_VALUE_SYM_INT);
    case IS_SYM_FLOAT:
        return same_union(g, json, v, PT2_VALUE_SYM_FLOAT);
    case IS_SYM_BOOL:
        return same_union(g, json, v, PT2_VALUE_SYM_BOOL);
    case IS_MAYBE:
        return same_union(g, json, v, PT2_VALUE_TENSOR);
    case IS_GRAPH: /* these two are walked: what they hold may have changed */
    case IS_DICT:
        return false;
    }
    return false;
}

static bool same_lists(const pt2_graph_writer *g, yyjson_val *json, fe_value v, item_kind kind, unsigned lists)
{
    size_t i, count;
    yyjson_val *item;

    if (!lists)
        return same_item(g, json, v, kind);
    if (!is_list(v) || v.as.seq->len != yyjson_arr_size(json))
        return false;
    yyjson_arr_foreach(json, i, count, item)
    {
        if (!same_lists(g, item, v.as.seq->items[i], kind, lists - 1))
            return false;
    }
    return true;
}

bool pt2_is_same_argument(const pt2_graph_writer *g, yyjson_val *json, fe_value v)
{
    yyjson_val *inner;
    tag t = g->w->flags & PT2_WRITE_AGAIN ? TAG_COUNT : find_tag(pt2_tag(json, &inner));

    return t < TAG_COUNT && same_lists(g, inner, v, (item_kind)tags[t].item, tags[t].lists);
}

/* ---- texts ---- */

static void fault(pt2_graph_writer *g, const pt2_place *at, const char *what)
{
    if (at->name.len)
        pt2_write_fault(g, PT2_ARGUMENT, at->node, "its argument '%.*s' %s", (int)at->name.len, at->name.data, what);
    else
        pt2_write_fault(g, PT2_ARGUMENT, at->node, "its argument %u %s", at->index, what);
}

/* Why no tag fits. */
static const char *fault_of(const pt2_graph_writer *g, fe_value v)
{
    switch (v.kind) {
    case FE_NODE:
        return "is a node that has no value of its own; take one of its results by getitem, or leave it out";
    case FE_OBJECT:
        return object_of(g, v, PT2_OBJECT_NONE)
                   ? "is an object that a .pt2 file has no word for; give a number, string, "
                     "node, dtype, device, layout or memory format"
                   : "is of a kind that can't stand here";
    case FE_SLICE:
        return "is a slice, which a .pt2 file has no word for; call an operator such as aten.slice.Tensor";
    case FE_LIST:
    case FE_TUPLE:
        return "is a list that mixes kinds of values, or of a kind that a .pt2 file has no lists of; give each kind "
               "its "
               "own argument";
    default:
        return "can't be written to a .pt2 file; give a number, string, node, or a list of one kind of these";
    }
}

static void write_real(fe_buffer *out, double real)
{
    if (isnan(real))
        fe_buffer_text(out, "\"NaN\"");
    else if (isinf(real))
        fe_buffer_text(out, real > 0 ? "\"Infinity\"" : "\"-Infinity\"");
    else
        fe_text_double(real, out);
}

static void write_tensor(pt2_graph_writer *g, fe_value v)
{
    fe_buffer_text(g->w->out, "{\"name\": ");
    pt2_write_name(g->w, slot_of(g, v)->name);
    fe_buffer_char(g->w->out, '}');
}

static void write_device(pt2_graph_writer *g, const pt2_object *o)
{
    pt2_name type;
    int64_t index;
    bool indexed = split_device(o->text, &type, &index);

    fe_buffer_text(g->w->out, "{\"type\": ");
    pt2_write_name(g->w, type);
    fe_buffer_text(g->w->out, ", \"index\": ");
    if (indexed)
        fe_buffer_int(g->w->out, index);
    else
        fe_buffer_text(g->w->out, "null");
    fe_buffer_char(g->w->out, '}');
}

static void write_complex(pt2_graph_writer *g, const double *parts)
{
    fe_buffer_text(g->w->out, "{\"real\": ");
    write_real(g->w->out, parts[0]);
    fe_buffer_text(g->w->out, ", \"imag\": ");
    write_real(g->w->out, parts[1]);
    fe_buffer_char(g->w->out, '}');
}

/* The class of a custom object: what its input says, or what the document has here. */
static yyjson_val *class_of(const pt2_slot *s, yyjson_val *json)
{
    yyjson_val *inner = s ? s->value : NULL;

    if (!inner && s && s->json)
        (void)pt2_tag(s->json, &inner);
    if (!inner && json && find_tag(pt2_tag(json, &inner)) != TAG_CUSTOM_OBJ)
        inner = NULL;
    return pt2_field(inner, "class_fqn");
}

static void write_custom(pt2_graph_writer *g, const pt2_place *at, yyjson_val *json, fe_value v)
{
    const pt2_slot *s = slot_of(g, v);
    yyjson_val *class = class_of(s, json);

    if (!class)
        fault(g, at, "is a custom object of which no class is known; take it in as an input of the graph");
    fe_buffer_text(g->w->out, "{\"name\": ");
    pt2_write_name(g->w, s ? s->name : pt2_name_of(object_of(g, v, PT2_OBJECT_CUSTOM)->text));
    fe_buffer_text(g->w->out, ", \"class_fqn\": ");
    if (class)
        pt2_json_write(class, g->w->out);
    else
        fe_buffer_text(g->w->out, "null");
    fe_buffer_char(g->w->out, '}');
}

static void write_union(pt2_graph_writer *g, fe_value v, item_kind kind)
{
    fe_buffer *out = g->w->out;
    const pt2_slot *s = slot_of(g, v);

    fe_buffer_text(out, s && kind == IS_MAYBE ? "{\"as_tensor\": "
                        : s                   ? "{\"as_name\": "
                        : v.kind == FE_INT    ? "{\"as_int\": "
                        : v.kind == FE_FLOAT  ? "{\"as_float\": "
                        : v.kind == FE_BOOL   ? "{\"as_bool\": "
                                              : "{\"as_none\": ");
    if (s && kind == IS_MAYBE)
        write_tensor(g, v);
    else if (s)
        pt2_write_name(g->w, s->name);
    else if (v.kind == FE_INT)
        fe_buffer_int(out, v.as.integer);
    else if (v.kind == FE_FLOAT)
        write_real(out, v.as.real);
    else
        fe_buffer_text(out, v.kind == FE_NONE || v.as.boolean ? "true" : "false");
    fe_buffer_char(out, '}');
}

static const pt2_graph *find_subgraph(pt2_graph_writer *g, pt2_name name)
{
    uint32_t count = g->graph->subgraph_count;

    for (uint32_t i = 0; i < count; i++) { /* most often they are met in their order */
        uint32_t at = (g->subgraph_cursor + i) % count;
        if (!pt2_name_is(name, g->graph->subgraphs[at]->name))
            continue;
        g->subgraph_cursor = at + 1;
        return g->graph->subgraphs[at];
    }
    return NULL;
}

static void write_subgraph(pt2_graph_writer *g, const pt2_place *at, yyjson_val *json, fe_value v)
{
    pt2_name name = pt2_target_text(g->graph, v.as.node);
    const pt2_graph *graph = name.data ? find_subgraph(g, name) : NULL; /* a target that is an object has none */
    yyjson_val *inner = NULL, *key, *value;
    size_t i, count;

    if (!graph) {
        fault(g, at, "is an attribute that is no subgraph; take tensors in as inputs of the graph");
        return;
    }
    if (json && find_tag(pt2_tag(json, &inner)) != TAG_GRAPH)
        inner = NULL;
    fe_buffer_char(g->w->out, '{');
    if (!inner) {
        fe_buffer_text(g->w->out, "\"name\": ");
        pt2_write_name(g->w, name);
        fe_buffer_text(g->w->out, ", \"graph\": ");
        pt2_write_graph(g->w, graph);
    }
    pt2_each_member(inner, i, count, key, value)
    {
        pt2_write_member(g->w->out, i, key);
        if (yyjson_equals_str(key, "graph"))
            pt2_write_graph(g->w, graph);
        else if (yyjson_equals_str(key, "name"))
            pt2_write_name(g->w, name);
        else
            pt2_json_write(value, g->w->out);
    }
    fe_buffer_char(g->w->out, '}');
}

static void write_dict(pt2_graph_writer *g, const pt2_place *at, yyjson_val *json, fe_value v)
{
    yyjson_val *known = NULL, *item;
    yyjson_obj_iter it;

    if (json && find_tag(pt2_tag(json, &known)) != TAG_DICT)
        known = NULL;
    yyjson_obj_iter_init(known, &it);
    if (!known)
        it = (yyjson_obj_iter){0};
    fe_buffer_char(g->w->out, '{');
    for (uint32_t i = 0; i < v.as.seq->len; i += 2) {
        if (v.as.seq->items[i].kind != FE_STR) {
            fault(g, at, "is a dict with a key that is no string; use string keys");
            break;
        }
        pt2_name key = pt2_name_of_string(v.as.seq->items[i].as.string);
        item = known ? yyjson_obj_iter_getn(&it, key.data, key.len) : NULL;
        fe_buffer_text(g->w->out, i ? ", " : "");
        pt2_write_name(g->w, key);
        fe_buffer_text(g->w->out, ": ");
        pt2_write_argument(g, at, item, NULL, v.as.seq->items[i + 1]);
    }
    fe_buffer_char(g->w->out, '}');
}

static void write_item(pt2_graph_writer *g, const pt2_place *at, yyjson_val *json, fe_value v, item_kind kind)
{
    fe_buffer *out = g->w->out;

    switch (kind) {
    case IS_NONE:
        fe_buffer_text(out, "true");
        break;
    case IS_BOOL:
        fe_buffer_text(out, v.as.boolean ? "true" : "false");
        break;
    case IS_INT:
        fe_buffer_int(out, v.as.integer);
        break;
    case IS_FLOAT:
        write_real(out, v.kind == FE_INT ? (double)v.as.integer : v.as.real);
        break;
    case IS_STRING:
        pt2_write_name(g->w, pt2_name_of_string(v.as.string));
        break;
    case IS_COMPLEX:
        write_complex(g, v.as.complex);
        break;
    case IS_DTYPE:
    case IS_LAYOUT:
    case IS_FORMAT:
        fe_buffer_int(out, g->graph->objects[v.as.object].code);
        break;
    case IS_DEVICE:
        write_device(g, &g->graph->objects[v.as.object]);
        break;
    case IS_OPERATOR:
        pt2_write_name(g->w, pt2_name_of(g->graph->objects[v.as.object].text));
        break;
    case IS_GRAPH:
        write_subgraph(g, at, json, v);
        break;
    case IS_TENSOR:
        write_tensor(g, v);
        break;
    case IS_CUSTOM:
        write_custom(g, at, json, v);
        break;
    case IS_DICT:
        write_dict(g, at, json, v);
        break;
    case IS_SYM_INT:
    case IS_SYM_FLOAT:
    case IS_SYM_BOOL:
    case IS_MAYBE:
        write_union(g, v, kind);
        break;
    }
}

static void write_lists(pt2_graph_writer *g, const pt2_place *at, yyjson_val *json, fe_value v, item_kind kind,
                        unsigned lists)
{
    if (!lists) {
        write_item(g, at, json, v, kind);
        return;
    }
    fe_buffer_char(g->w->out, '[');
    for (uint32_t i = 0; i < v.as.seq->len; i++) {
        fe_buffer_text(g->w->out, i ? ", " : "");
        write_lists(g, at, json, v.as.seq->items[i], kind, lists - 1);
    }
    fe_buffer_char(g->w->out, ']');
}

void pt2_write_argument(pt2_graph_writer *g, const pt2_place *at, yyjson_val *json, const fe_schema_type *type,
                        fe_value v)
{
    bool anew = g->w->flags & PT2_WRITE_ANEW;

    if (json && pt2_is_same_argument(g, json, v)) {
        pt2_json_write(json, g->w->out);
        return;
    }
    tag t = choose_tag(g, anew ? NULL : json, type, v);
    if (t == TAG_COUNT) {
        fault(g, at, fault_of(g, v));
        return;
    }
    fe_buffer_text(g->w->out, "{\"");
    fe_buffer_text(g->w->out, tags[t].text);
    fe_buffer_text(g->w->out, "\": ");
    write_lists(g, at, json, v, (item_kind)tags[t].item, tags[t].lists);
    fe_buffer_char(g->w->out, '}');
}

void pt2_write_output(pt2_graph_writer *g, const pt2_place *at, yyjson_val *json, fe_value v)
{
    const pt2_slot *s = slot_of(g, v);

    if (s ? s->kind == PT2_VALUE_CUSTOM
          : v.kind != FE_NONE && v.kind != FE_BOOL && v.kind != FE_INT && v.kind != FE_FLOAT)
        fault(g, at, "can't be an output; give a tensor, a number with a name, a number, a bool or None");
    else
        pt2_write_argument(g, at, json, NULL, v);
}
