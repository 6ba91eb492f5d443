/* read_value.c - argument values: names become nodes, enums and devices objects, operators targets.
 *
 * One object for each distinct thing of a graph, one target for each text that nodes call: both are found again by their
 * text or number, so that the cost of reading does not depend on how many there are.
 */
#include "read.h"

/* ---- tags ---- */

typedef struct {
    const char *text;
    uint8_t len, as;
} tag_name;

#define TAG(text, as) {text, sizeof(text) - 1, as}

/* Those that large files hold most of stand first. */
static const tag_name tags[] = {
    TAG("as_tensor", PT2_AS_TENSOR),
    TAG("as_int", PT2_AS_INT),
    TAG("as_expr", PT2_AS_EXPR),
    TAG("as_ints", PT2_AS_INTS),
    TAG("as_name", PT2_AS_NAME),
    TAG("as_none", PT2_AS_NONE),
    TAG("as_float", PT2_AS_FLOAT),
    TAG("as_sym_int", PT2_AS_SYM_INT),
    TAG("as_bool", PT2_AS_BOOL),
    TAG("as_tensors", PT2_AS_TENSORS),
    TAG("as_scalar_type", PT2_AS_SCALAR_TYPE),
    TAG("as_sym_ints", PT2_AS_SYM_INTS),
    TAG("as_string", PT2_AS_STRING),
    TAG("as_layout", PT2_AS_LAYOUT),
    TAG("as_device", PT2_AS_DEVICE),
    TAG("as_memory_format", PT2_AS_MEMORY_FORMAT),
    TAG("as_optional_tensors", PT2_AS_OPTIONAL_TENSORS),
    TAG("as_optional_tensor", PT2_AS_OPTIONAL_TENSOR),
    TAG("as_floats", PT2_AS_FLOATS),
    TAG("as_bools", PT2_AS_BOOLS),
    TAG("as_strings", PT2_AS_STRINGS),
    TAG("as_sym_bool", PT2_AS_SYM_BOOL),
    TAG("as_sym_bools", PT2_AS_SYM_BOOLS),
    TAG("as_sym_float", PT2_AS_SYM_FLOAT),
    TAG("as_sym_floats", PT2_AS_SYM_FLOATS),
    TAG("as_graph", PT2_AS_GRAPH),
    TAG("as_custom_obj", PT2_AS_CUSTOM_OBJ),
    TAG("as_operator", PT2_AS_OPERATOR),
    TAG("as_complex", PT2_AS_COMPLEX),
    TAG("as_nested_tensors", PT2_AS_NESTED_TENSORS),
    TAG("as_int_lists", PT2_AS_INT_LISTS),
    TAG("as_float_lists", PT2_AS_FLOAT_LISTS),
    TAG("as_string_to_argument", PT2_AS_STRING_TO_ARGUMENT),
};

pt2_as pt2_read_as(const char *tag, size_t len)
{
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        if (tags[i].len == len && memcmp(tags[i].text, tag, len) == 0)
            return (pt2_as)tags[i].as;
    }
    return PT2_AS_UNKNOWN;
}

/* ---- names ---- */

yyjson_val *pt2_read_name_of(yyjson_val *argument, pt2_value_kind *kind)
{
    yyjson_val *value, *inner;

    switch (pt2_read_union(argument, &value)) {
    case PT2_AS_TENSOR:
        *kind = PT2_VALUE_TENSOR;
        return pt2_field(value, "name");
    case PT2_AS_CUSTOM_OBJ:
        *kind = PT2_VALUE_CUSTOM;
        return pt2_field(value, "name");
    case PT2_AS_SYM_INT:
        *kind = PT2_VALUE_SYM_INT;
        break;
    case PT2_AS_SYM_FLOAT:
        *kind = PT2_VALUE_SYM_FLOAT;
        break;
    case PT2_AS_SYM_BOOL:
        *kind = PT2_VALUE_SYM_BOOL;
        break;
    default:
        return NULL;
    }
    return pt2_read_union(value, &inner) == PT2_AS_NAME ? inner : NULL;
}

uint32_t pt2_read_lookup(const pt2_graph_reader *g, yyjson_val *name)
{
    const fe_string *s = fe_string_find(&g->core->strings, unsafe_yyjson_get_str(name), unsafe_yyjson_get_len(name));

    return s && s->owner != FE_NONE_ID && g->defined[s->owner] ? s->owner : FE_NONE_ID;
}

static fe_value named(pt2_graph_reader *g, yyjson_val *name, const pt2_argument_place *at)
{
    uint32_t id = pt2_read_lookup(g, name);

    if (id != FE_NONE_ID)
        return (fe_value){.kind = FE_NODE, .as.node = id};
    pt2_fail_node(g->reader->report, PT2_GRAPH, at->place, at->node,
                  "'%s' is used here, but nothing before this place in the graph defines it", PT2_SHOWN_JSON(name));
    return (fe_value){.kind = FE_NONE};
}

/* ---- objects ---- */

static int new_object(pt2_graph_reader *g, pt2_object object, uint32_t *out)
{
    pt2_graph *graph = g->graph;
    fe_error err;

    if (fe_object_new(g->core, out, &err) < 0)
        return pt2_read_core_failed(g->reader, g->path, &err);
    if (pt2_read_grow(g->reader, &graph->objects, &g->object_capacity, (size_t)*out + 1, sizeof object) < 0)
        return -1;
    graph->objects[*out] = object;
    graph->object_count = *out + 1;
    return 0;
}

static int object_value(pt2_graph_reader *g, uint32_t object, fe_value *out)
{
    fe_object_ref(g->core, object);
    *out = (fe_value){.kind = FE_OBJECT, .as.object = object};
    return 0;
}

static int code_value(pt2_graph_reader *g, pt2_object_kind kind, yyjson_val *v, const pt2_argument_place *at,
                      fe_value *out)
{
    uint32_t *table = kind == PT2_OBJECT_DTYPE ? g->dtypes : kind == PT2_OBJECT_LAYOUT ? g->layouts : g->memory_formats;
    int64_t code;
    const char *name = NULL;

    if (pt2_json_int(v, &code) && code >= 0 && code < PT2_CODES)
        name = kind == PT2_OBJECT_DTYPE    ? pt2_dtype_name(code)
               : kind == PT2_OBJECT_LAYOUT ? pt2_layout_name(code)
                                           : pt2_memory_format_name(code);
    if (!name) {
        pt2_fail_node(g->reader->report, PT2_JSON_ENUM, at->value, at->node, "this number stands for nothing in torch");
        return 0;
    }
    if (table[code] == FE_NONE_ID &&
        new_object(g, (pt2_object){.kind = (uint8_t)kind, .code = (int32_t)code}, &table[code]) < 0)
        return -1;
    return object_value(g, table[code], out);
}

/* An object that is known by its text. The mark keeps the kinds apart in the table. */
static int text_value(pt2_graph_reader *g, pt2_object_kind kind, const char *text, size_t len, fe_value *out)
{
    fe_buffer key;
    fe_string *s;

    fe_buffer_init(&key, g->reader->program->allocator);
    fe_buffer_char(&key, (char)kind);
    fe_buffer_add(&key, text, len);
    s = key.failed ? NULL : pt2_read_text(g->reader, &g->texts, key.data, key.len);
    fe_buffer_clear(&key);
    if (!s)
        return pt2_no_memory(g->reader->report);
    if (s->owner == FE_NONE_ID) {
        char *copy = pt2_read_copy(g->reader, text, len);
        if (!copy || new_object(g, (pt2_object){.kind = (uint8_t)kind, .text = copy}, &s->owner) < 0)
            return -1;
    }
    return object_value(g, s->owner, out);
}

static int device_value(pt2_graph_reader *g, yyjson_val *v, fe_value *out)
{
    yyjson_val *type = pt2_field(v, "type"), *index = pt2_field(v, "index");
    fe_buffer text;
    int64_t number;

    fe_buffer_init(&text, g->reader->program->allocator);
    fe_buffer_add(&text, unsafe_yyjson_get_str(type), unsafe_yyjson_get_len(type));
    if (index && pt2_json_int(index, &number)) {
        fe_buffer_char(&text, ':');
        fe_buffer_int(&text, number);
    }
    int result =
        text.failed ? pt2_no_memory(g->reader->report) : text_value(g, PT2_OBJECT_DEVICE, text.data, text.len, out);
    fe_buffer_clear(&text);
    return result;
}

/* ---- targets ---- */

/* The object of a target's text, which lives as long as the document. Operators that the table does not know are the
 * verifier's business. */
static int target_object(pt2_graph_reader *g, const char *text, size_t len, const pt2_path *path, const char *node,
                         fe_string **out)
{
    fe_string *s = pt2_read_text(g->reader, &g->texts, text, len);

    *out = s;
    if (!s)
        return pt2_no_memory(g->reader->report);
    if (s->owner != FE_NONE_ID)
        return 0;
    if (fe_target_classify(text, len) == FE_SPELLING_BAD)
        pt2_fail_node(
            g->reader->report, PT2_TARGET, path, node,
            "'%s' is no operator or function that an exported program may call; nothing is looked up or called "
            "by this name",
            pt2_show(&(pt2_shown){{0}}, text, len));
    return new_object(g, (pt2_object){.kind = PT2_OBJECT_TARGET, .text = text}, &s->owner);
}

static int add_stem(pt2_graph_reader *g, const char *text, size_t len, fe_string **out)
{
    fe_error err;
    size_t stem_len;
    const char *stem = fe_operator_stem(text, len, &stem_len);

    if (pt2_read_grow(g->reader, &g->reader->buffer, &g->reader->buffer_capacity, 2 * stem_len + 1, 1) < 0)
        return -1;
    *out = fe_string_get(g->core, g->reader->buffer, fe_name_snake(stem, stem_len, g->reader->buffer), &err);
    return *out ? 0 : pt2_read_core_failed(g->reader, g->path, &err);
}

pt2_callee pt2_read_callee(const char *text, size_t len)
{
    static const char item[] = "torch.ops.aten.item.default", higher[] = "torch.ops.higher_order";
    pt2_callee c = {.op = fe_operator_find(text, len), .spelling = (uint8_t)fe_target_classify(text, len)};

    c.symbolic = c.spelling == FE_SPELLING_SYM || (len == sizeof item - 1 && memcmp(text, item, len) == 0);
    c.higher_order = len >= sizeof higher && memcmp(text, higher, sizeof higher - 1) == 0;
    return c;
}

static int add_callee(pt2_graph_reader *g, uint32_t target, const char *text, size_t len)
{
    pt2_callee c = pt2_read_callee(text, len);
    fe_target *t = &g->core->targets[target];

    if (pt2_read_grow(g->reader, &g->callees, &g->callee_capacity, (size_t)target + 1, sizeof *g->callees) < 0)
        return -1;
    g->callees[target] = c;
    t->flags = FE_TARGET_KNOWN | (c.op ? c.op->flags : fe_target_guess(text, len));
    return add_stem(g, text, len, &t->text);
}

int pt2_read_target(pt2_graph_reader *g, const char *text, size_t len, const pt2_path *path, const char *node,
                    uint32_t *out)
{
    fe_string *s;
    fe_error err;
    bool is_new;

    if (target_object(g, text, len, path, node, &s) < 0)
        return -1;
    if (!s->base) {
        if (fe_target_get(g->core, FE_OP_CALL_FUNCTION, s->owner, NULL, out, &is_new, &err) < 0)
            return pt2_read_core_failed(g->reader, g->path, &err);
        if (add_callee(g, *out, text, len) < 0)
            return -1;
        s->base = *out + 1;
    }
    *out = s->base - 1;
    return 0;
}

int pt2_read_getitem(pt2_graph_reader *g, uint32_t *out)
{
    static const char text[] = "_operator.getitem";
    fe_string *s;
    fe_error err;
    bool is_new;

    if (g->getitem == FE_NONE_ID) {
        if (!(s = pt2_read_text(g->reader, &g->texts, text, sizeof text - 1)))
            return pt2_no_memory(g->reader->report);
        if (s->owner == FE_NONE_ID &&
            new_object(g, (pt2_object){.kind = PT2_OBJECT_TARGET, .text = text}, &s->owner) < 0)
            return -1;
        if (fe_target_get(g->core, FE_OP_CALL_FUNCTION, s->owner, NULL, out, &is_new, &err) < 0)
            return pt2_read_core_failed(g->reader, g->path, &err);
        if (add_callee(g, *out, text, sizeof text - 1) < 0)
            return -1;
        g->core->targets[*out].flags = FE_TARGET_KNOWN | FE_TARGET_GETITEM;
        s->base = *out + 1;
        g->getitem = *out;
    }
    *out = g->getitem;
    return 0;
}

/* ---- values ---- */

static int string_value(pt2_graph_reader *g, yyjson_val *v, fe_value *out)
{
    fe_error err;
    fe_string *s = fe_string_get(g->core, unsafe_yyjson_get_str(v), unsafe_yyjson_get_len(v), &err);

    if (!s)
        return pt2_read_core_failed(g->reader, g->path, &err);
    *out = (fe_value){.kind = FE_STR, .as.string = s};
    return 0;
}

static fe_value int_value(yyjson_val *v)
{
    int64_t number;

    return pt2_json_int(v, &number) ? (fe_value){.kind = FE_INT, .as.integer = number} : (fe_value){.kind = FE_NONE};
}

static fe_value real_value(yyjson_val *v)
{
    double number;

    return pt2_json_real(v, &number) ? (fe_value){.kind = FE_FLOAT, .as.real = number} : (fe_value){.kind = FE_NONE};
}

static fe_value bool_value(yyjson_val *v)
{
    return (fe_value){.kind = FE_BOOL, .as.boolean = yyjson_get_bool(v)};
}

int pt2_read_constant(pt2_graph_reader *g, yyjson_val *argument, fe_value *out)
{
    yyjson_val *value;

    *out = (fe_value){.kind = FE_NONE};
    switch (pt2_read_union(argument, &value)) {
    case PT2_AS_INT:
        *out = int_value(value);
        return 0;
    case PT2_AS_FLOAT:
        *out = real_value(value);
        return 0;
    case PT2_AS_BOOL:
        *out = bool_value(value);
        return 0;
    case PT2_AS_STRING:
        return string_value(g, value, out);
    default:
        return 0;
    }
}

typedef int (*read_item)(pt2_graph_reader *g, yyjson_val *v, const pt2_argument_place *at, fe_value *out);

static int list_value(pt2_graph_reader *g, yyjson_val *list, fe_kind kind, read_item item, const pt2_argument_place *at,
                      fe_value *out)
{
    size_t i, count;
    yyjson_val *v;
    fe_error err;
    fe_seq *s = fe_seq_new(g->core, unsafe_yyjson_get_len(list), FE_NONE_ID, &err);

    if (!s)
        return pt2_read_core_failed(g->reader, at->place, &err);
    *out = (fe_value){.kind = (uint8_t)kind, .as.seq = s};
    yyjson_arr_foreach(list, i, count, v)
    {
        s->items[i] = (fe_value){.kind = FE_NONE};
        if (item(g, v, at, &s->items[i]) < 0)
            return -1;
    }
    return 0;
}

static int tensor_item(pt2_graph_reader *g, yyjson_val *v, const pt2_argument_place *at, fe_value *out)
{
    *out = named(g, pt2_field(v, "name"), at);
    return 0;
}

static int optional_tensor_item(pt2_graph_reader *g, yyjson_val *v, const pt2_argument_place *at, fe_value *out)
{
    yyjson_val *value;

    return pt2_read_union(v, &value) == PT2_AS_TENSOR ? tensor_item(g, value, at, out) : 0;
}

static int sym_item(pt2_graph_reader *g, yyjson_val *v, const pt2_argument_place *at, fe_value *out)
{
    yyjson_val *value;

    if (pt2_read_union(v, &value) != PT2_AS_NAME)
        return pt2_read_constant(g, v, out);
    *out = named(g, value, at);
    return 0;
}

static int int_item(pt2_graph_reader *g, yyjson_val *v, const pt2_argument_place *at, fe_value *out)
{
    (void)g, (void)at;
    *out = int_value(v);
    return 0;
}

static int real_item(pt2_graph_reader *g, yyjson_val *v, const pt2_argument_place *at, fe_value *out)
{
    (void)g, (void)at;
    *out = real_value(v);
    return 0;
}

static int bool_item(pt2_graph_reader *g, yyjson_val *v, const pt2_argument_place *at, fe_value *out)
{
    (void)g, (void)at;
    *out = bool_value(v);
    return 0;
}

static int string_item(pt2_graph_reader *g, yyjson_val *v, const pt2_argument_place *at, fe_value *out)
{
    (void)at;
    return string_value(g, v, out);
}

static int tensors_item(pt2_graph_reader *g, yyjson_val *v, const pt2_argument_place *at, fe_value *out)
{
    return list_value(g, v, FE_LIST, tensor_item, at, out);
}

/* torch makes tuples of these, for the grids of kernels. */
static int ints_item(pt2_graph_reader *g, yyjson_val *v, const pt2_argument_place *at, fe_value *out)
{
    return list_value(g, v, FE_TUPLE, int_item, at, out);
}

static int reals_item(pt2_graph_reader *g, yyjson_val *v, const pt2_argument_place *at, fe_value *out)
{
    return list_value(g, v, FE_LIST, real_item, at, out);
}

static int dict_value(pt2_graph_reader *g, yyjson_val *map, const pt2_argument_place *at, fe_value *out)
{
    size_t i, count;
    yyjson_val *key, *v;
    fe_error err;
    fe_seq *s = fe_seq_new(g->core, 2 * unsafe_yyjson_get_len(map), FE_NONE_ID, &err);

    if (!s)
        return pt2_read_core_failed(g->reader, at->place, &err);
    *out = (fe_value){.kind = FE_DICT, .as.seq = s};
    for (i = 0; i < s->len; i++)
        s->items[i] = (fe_value){.kind = FE_NONE};
    pt2_each_member(map, i, count, key, v)
    {
        pt2_argument_place inner = *at;
        inner.value = PT2_KEY_OF(PT2_KEY(at->value, "as_string_to_argument"), key);
        if (string_value(g, key, &s->items[2 * i]) < 0 || pt2_read_argument(g, v, &inner, &s->items[2 * i + 1]) < 0)
            return -1;
    }
    return 0;
}

static int operator_value(pt2_graph_reader *g, yyjson_val *v, const pt2_argument_place *at, fe_value *out)
{
    fe_string *s;

    if (target_object(g, unsafe_yyjson_get_str(v), unsafe_yyjson_get_len(v), PT2_KEY(at->value, "as_operator"),
                      at->node, &s) < 0)
        return -1;
    return object_value(g, s->owner, out);
}

static int custom_value(pt2_graph_reader *g, yyjson_val *v, fe_value *out)
{
    yyjson_val *name = pt2_field(v, "name");
    uint32_t id = pt2_read_lookup(g, name);

    if (id == FE_NONE_ID)
        return text_value(g, PT2_OBJECT_CUSTOM, unsafe_yyjson_get_str(name), unsafe_yyjson_get_len(name), out);
    *out = (fe_value){.kind = FE_NODE, .as.node = id};
    return 0;
}

static int complex_value(pt2_graph_reader *g, yyjson_val *v, fe_value *out)
{
    double real = 0, imag = 0;
    fe_error err;

    if (!pt2_json_real(pt2_field(v, "real"), &real) || !pt2_json_real(pt2_field(v, "imag"), &imag))
        return 0;
    return fe_value_complex(g->core, real, imag, out, &err) < 0 ? pt2_read_core_failed(g->reader, g->path, &err) : 0;
}

/* The get_attr node of a subgraph comes where the argument stands, before the node that takes it. */
static int graph_value(pt2_graph_reader *g, yyjson_val *v, const pt2_argument_place *at, fe_value *out)
{
    yyjson_val *name = pt2_field(v, "name");
    fe_error err;
    bool is_new;
    uint32_t id;
    pt2_node_plan plan = {.op = FE_OP_GET_ATTR,
                          .name = unsafe_yyjson_get_str(name),
                          .name_len = unsafe_yyjson_get_len(name),
                          .origin = {.source = PT2_FROM_GRAPH, .index = at->index, .json = v}};

    if (pt2_read_subgraph(g, v, at) < 0)
        return -1;
    fe_string *text = fe_string_get(g->core, plan.name, plan.name_len, &err);
    if (!text || fe_target_get(g->core, FE_OP_GET_ATTR, FE_NONE_ID, text, &plan.target, &is_new, &err) < 0)
        return pt2_read_core_failed(g->reader, at->place, &err);
    if (pt2_read_append(g, &plan, NULL, at->value, &id) < 0)
        return -1;
    *out = (fe_value){.kind = FE_NODE, .as.node = id};
    return 0;
}

int pt2_read_argument(pt2_graph_reader *g, yyjson_val *argument, const pt2_argument_place *at, fe_value *out)
{
    yyjson_val *v;

    *out = (fe_value){.kind = FE_NONE};
    switch (pt2_read_union(argument, &v)) {
    case PT2_AS_TENSOR:
        return tensor_item(g, v, at, out);
    case PT2_AS_TENSORS:
        return list_value(g, v, FE_LIST, tensor_item, at, out);
    case PT2_AS_INTS:
        return list_value(g, v, FE_LIST, int_item, at, out);
    case PT2_AS_FLOATS:
        return list_value(g, v, FE_LIST, real_item, at, out);
    case PT2_AS_BOOLS:
        return list_value(g, v, FE_LIST, bool_item, at, out);
    case PT2_AS_STRINGS:
        return list_value(g, v, FE_LIST, string_item, at, out);
    case PT2_AS_SYM_INT:
    case PT2_AS_SYM_FLOAT:
    case PT2_AS_SYM_BOOL:
        return sym_item(g, v, at, out);
    case PT2_AS_SYM_INTS:
    case PT2_AS_SYM_FLOATS:
    case PT2_AS_SYM_BOOLS:
        return list_value(g, v, FE_LIST, sym_item, at, out);
    case PT2_AS_SCALAR_TYPE:
        return code_value(g, PT2_OBJECT_DTYPE, v, at, out);
    case PT2_AS_LAYOUT:
        return code_value(g, PT2_OBJECT_LAYOUT, v, at, out);
    case PT2_AS_MEMORY_FORMAT:
        return code_value(g, PT2_OBJECT_MEMORY_FORMAT, v, at, out);
    case PT2_AS_DEVICE:
        return device_value(g, v, out);
    case PT2_AS_OPTIONAL_TENSOR:
        return optional_tensor_item(g, v, at, out);
    case PT2_AS_OPTIONAL_TENSORS:
        return list_value(g, v, FE_LIST, optional_tensor_item, at, out);
    case PT2_AS_NESTED_TENSORS:
        return list_value(g, v, FE_LIST, tensors_item, at, out);
    case PT2_AS_INT_LISTS:
        return list_value(g, v, FE_LIST, ints_item, at, out);
    case PT2_AS_FLOAT_LISTS:
        return list_value(g, v, FE_LIST, reals_item, at, out);
    case PT2_AS_STRING_TO_ARGUMENT:
        return dict_value(g, v, at, out);
    case PT2_AS_GRAPH:
        return graph_value(g, v, at, out);
    case PT2_AS_CUSTOM_OBJ:
        return custom_value(g, v, out);
    case PT2_AS_OPERATOR:
        return operator_value(g, v, at, out);
    case PT2_AS_COMPLEX:
        return complex_value(g, v, out);
    default:
        return pt2_read_constant(g, argument, out);
    }
}
