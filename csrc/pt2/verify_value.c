/* verify_value.c - what nodes give: tensors and numbers, their sizes and symbols. See verify.h.
 *
 * Sizes and strides that are numbers are computed with; of those that are expressions, the symbols are followed: see
 * verify_symbol.c.
 */
#include "verify.h"

#include <stdio.h>

/* ---- reading ---- */

const char *pt2_verify_tag(yyjson_val *u, yyjson_val **inner)
{
    *inner = NULL;
    return yyjson_is_obj(u) && yyjson_obj_size(u) == 1 ? pt2_tag(u, inner) : NULL;
}

static const struct {
    const char *tag, *table;
} kinds[] = {
    [PT2_VALUE_NONE] = {"as_none", ""},
    [PT2_VALUE_TENSOR] = {"as_tensor", "tensor_values"},
    [PT2_VALUE_SYM_INT] = {"as_sym_int", "sym_int_values"},
    [PT2_VALUE_SYM_FLOAT] = {"as_sym_float", "sym_float_values"},
    [PT2_VALUE_SYM_BOOL] = {"as_sym_bool", "sym_bool_values"},
    [PT2_VALUE_CUSTOM] = {"as_custom_obj", "custom_obj_values"},
};

static pt2_value_kind kind_of(const char *tag, size_t len)
{
    for (size_t i = 1; i < sizeof kinds / sizeof *kinds; i++) {
        if (strlen(kinds[i].tag) == len && memcmp(kinds[i].tag, tag, len) == 0)
            return (pt2_value_kind)i;
    }
    return PT2_VALUE_NONE;
}

static const pt2_node_text *text_of(const pt2_scope *s, uint32_t id)
{
    return s->graph->texts && id < s->graph->text_count && s->graph->texts[id].given ? &s->graph->texts[id] : NULL;
}

static const pt2_origin *origin_of(const pt2_scope *s, uint32_t id)
{
    const pt2_origin *o = id < s->graph->origin_count ? &s->graph->origins[id] : NULL;

    return o && o->source != PT2_FROM_NOTHING ? o : NULL;
}

pt2_value_kind pt2_verify_value_kind(const pt2_scope *s, uint32_t id)
{
    const pt2_node_text *text = text_of(s, id);
    const pt2_origin *o = origin_of(s, id);
    const char *tag = text && text->value ? strchr(text->value, '"') : NULL;

    if (!text)
        return o && o->value_kind <= PT2_VALUE_CUSTOM ? (pt2_value_kind)o->value_kind : PT2_VALUE_NONE;
    return tag ? kind_of(tag + 1, strcspn(tag + 1, "\"")) : PT2_VALUE_NONE;
}

/* A union as_tensor, as_sym_int ... or as_list. false: it is no value. */
static bool take_union(yyjson_val *u, pt2_node_value *out)
{
    yyjson_val *inner;
    const char *tag = pt2_verify_tag(u, &inner);

    out->json = out->list = NULL;
    if (!tag)
        return false;
    out->kind = (uint8_t)kind_of(tag, strlen(tag));
    if (out->kind)
        out->json = inner;
    else if (strcmp(tag, "as_list") == 0 && yyjson_is_arr(inner))
        out->list = inner;
    else
        return strcmp(tag, "as_none") == 0;
    return true;
}

int pt2_verify_read_value(pt2_verifier *v, const pt2_scope *s, uint32_t id, pt2_node_value *out)
{
    const pt2_node_text *text = text_of(s, id);
    const pt2_origin *o = origin_of(s, id);

    *out = (pt2_node_value){0};
    out->of_document = o && (o->source == PT2_FROM_NODE || o->source == PT2_FROM_RESULT) && !(text && text->removed);
    if (!text) {
        out->json = o ? o->value : NULL;
        out->kind = o && o->value ? o->value_kind : PT2_VALUE_NONE;
        return 0;
    }
    out->given = true;
    if (!text->value)
        return 0;
    if (pt2_json_parse_copy(&out->document, text->value, strlen(text->value), v->allocator, NULL, v->report) < 0) {
        pt2_json_clear(&out->document);
        memset(&out->document, 0, sizeof out->document);
        return v->report->no_memory ? -1 : 0;
    }
    if (!take_union(yyjson_doc_get_root(out->document.doc), out))
        pt2_verify_node(v, s, PT2_VALUE, PT2_ERROR, id, NULL,
                        "its meta['val'] is no TensorMeta, symbolic number or tuple of them");
    return 0;
}

void pt2_verify_clear_value(pt2_node_value *value)
{
    if (value->document.doc || value->document.text)
        pt2_json_clear(&value->document);
}

static bool key_is(yyjson_val *key, const char *text, size_t len)
{
    return unsafe_yyjson_get_len(key) == len && memcmp(unsafe_yyjson_get_str(key), text, len) == 0;
}

#define KEY_IS(key, text) key_is(key, "" text, sizeof(text) - 1)

void pt2_verify_fields(yyjson_val *tensor, pt2_tensor_fields *out)
{
    size_t i, count;
    yyjson_val *key, *value;

    *out = (pt2_tensor_fields){0};
    if (!yyjson_is_obj(tensor))
        return;
    pt2_each_member(tensor, i, count, key, value)
    {
        if (KEY_IS(key, "dtype"))
            out->dtype = value;
        else if (KEY_IS(key, "sizes"))
            out->sizes = value;
        else if (KEY_IS(key, "strides"))
            out->strides = value;
        else if (KEY_IS(key, "storage_offset"))
            out->offset = value;
        else if (KEY_IS(key, "requires_grad"))
            out->requires_grad = value;
        else if (KEY_IS(key, "device"))
            out->device = value;
    }
}

/* ---- faults ---- */

typedef struct {
    pt2_verifier *v;
    const pt2_scope *scope;
    uint32_t id;
    bool of_document;
    uint8_t kind;
    bool is_input;
    bool unbound; /* a symbol of it has no value yet */
} checked_value;

typedef struct {
    const checked_value *c;
    const char *field, *message;
    pt2_kind kind;
    pt2_severity severity;
} value_fault;

static int add_at(void *ctx, const pt2_path *graph)
{
    const value_fault *f = ctx;
    const checked_value *c = f->c;
    const fe_string *key = c->scope->graph->origins[c->id].name, *name = c->scope->core->details[c->id].name;

    const pt2_path *table = PT2_KEY_TEXT(graph, kinds[c->kind].table), *path = PT2_KEY_TEXT(table, key->data);
    pt2_verify_fault(c->v, f->kind, f->severity, NULL, f->field ? PT2_KEY_TEXT(path, f->field) : path, name->data, "%s",
                     f->message);
    return 0;
}

static void fault(const checked_value *c, pt2_kind kind, pt2_severity severity, const char *field, const char *message)
{
    value_fault f = {c, field, message, kind, severity};
    const pt2_origin *o = origin_of(c->scope, c->id);

    if (c->of_document && o && o->name && c->scope->has_path && c->scope->core->details[c->id].name)
        (void)pt2_graph_path(c->scope->graph, add_at, &f);
    else
        pt2_verify_node(c->v, c->scope, kind, severity, c->id, NULL, "%s", message);
}

/* ---- symbols of values ---- */

static void check_hint(const checked_value *c, const pt2_expr_facts *f, yyjson_val *hint, const char *field)
{
    const pt2_symbol *symbol = f->alone ? &c->v->symbols[f->alone - 1] : NULL;
    char message[400];
    yyjson_val *inner;
    int64_t value;

    if (!c->v->strict || !symbol || !symbol->range || !pt2_verify_tag(hint, &inner) || !pt2_json_int(inner, &value))
        return;
    const pt2_range *range = &c->v->program->ranges[symbol->range - 1];
    if ((!range->has_min || value >= range->min) && (!range->has_max || value <= range->max))
        return;
    snprintf(message, sizeof message, "the example value %lld of %.100s is outside its range constraint",
             (long long)value, symbol->name);
    fault(c, PT2_VALUE, PT2_WARNING, field, message);
}

/* The facts of an expression; PT2_NO_EXPR, and a fault, when it is none. */
static int parse_expr(checked_value *c, yyjson_val *expr, const char *field, uint32_t *index)
{
    yyjson_val *text = yyjson_is_obj(expr) ? yyjson_obj_get(expr, "expr_str") : NULL;
    fe_expr_error why = {.fault = FE_EXPR_OK};
    char message[600];

    *index = PT2_NO_EXPR;
    if (yyjson_is_str(text) && pt2_verify_expr(c->v, yyjson_get_str(text), yyjson_get_len(text), index, &why) < 0)
        return -1;
    if (*index == PT2_NO_EXPR) {
        snprintf(message, sizeof message, "a symbolic number is no expression: %s",
                 why.fault ? why.message : "it has no text");
        fault(c, PT2_EXPR, PT2_ERROR, field, message);
    }
    return 0;
}

/* A storage offset, of which torch takes no notice when it reads a file: it neither gives a symbol a value nor needs it
 * to have one. */
static int look_at_expr(checked_value *c, yyjson_val *expr, const char *field)
{
    uint32_t index;

    return parse_expr(c, expr, field, &index);
}

/* The first look at an expression: give its symbol a value if this is the place for it; does it need another look? */
static int bind_expr(checked_value *c, yyjson_val *expr, const char *field)
{
    pt2_verifier *v = c->v;
    uint32_t index;

    if (parse_expr(c, expr, field, &index) < 0)
        return -1;
    if (index == PT2_NO_EXPR)
        return 0;
    const pt2_expr_facts *f = &v->facts[index];
    if (f->binds && !pt2_verify_in_scope(c->scope, &v->symbols[f->binds - 1]))
        v->symbols[f->binds - 1].scope = c->scope->number;
    for (uint32_t i = 0; i < f->count; i++) {
        pt2_symbol *symbol = &v->symbols[v->lists[f->first + i]];
        if (c->is_input && !symbol->unbacked && !pt2_verify_in_scope(c->scope, symbol))
            symbol->scope = c->scope->number;
        c->unbound |= !pt2_verify_in_scope(c->scope, symbol);
    }
    check_hint(c, f, yyjson_obj_get(expr, "hint"), field);
    return 0;
}

/* The second look, once all sizes of the value have given what they give. */
static int check_expr(checked_value *c, yyjson_val *expr, const char *field)
{
    pt2_verifier *v = c->v;
    yyjson_val *text = yyjson_is_obj(expr) ? yyjson_obj_get(expr, "expr_str") : NULL;
    fe_expr_error why;
    char message[400];
    uint32_t index = PT2_NO_EXPR;

    if (yyjson_is_str(text) && pt2_verify_expr(v, yyjson_get_str(text), yyjson_get_len(text), &index, &why) < 0)
        return -1;
    for (uint32_t i = 0; index != PT2_NO_EXPR && i < v->facts[index].count; i++) {
        pt2_symbol *symbol = &v->symbols[v->lists[v->facts[index].first + i]];
        if (pt2_verify_in_scope(c->scope, symbol) || symbol->reported || (!symbol->unbacked && !v->strict))
            continue;
        symbol->reported = true;
        snprintf(message, sizeof message, "nothing before gives the symbol %.100s a value; %s", symbol->name,
                 symbol->unbacked ? "the node that did is gone, or stands behind this one"
                                  : "no input has it as a size, a stride or a number");
        fault(c, PT2_UNBOUND_SYMBOL, symbol->unbacked ? PT2_ERROR : PT2_WARNING, field, message);
    }
    return 0;
}

typedef int (*expr_visitor)(checked_value *c, yyjson_val *expr, const char *field);

/* The expression in a SymInt, SymFloat or SymBool. */
static int visit_number(checked_value *c, yyjson_val *number, const char *field, expr_visitor visit)
{
    yyjson_val *inner;
    const char *tag = pt2_verify_tag(number, &inner);

    return tag && strcmp(tag, "as_expr") == 0 ? visit(c, inner, field) : 0;
}

static int visit_numbers(checked_value *c, yyjson_val *numbers, const char *field, expr_visitor visit)
{
    size_t i, count;
    yyjson_val *number;

    yyjson_arr_foreach(numbers, i, count, number)
    {
        if (visit_number(c, number, field, visit) < 0)
            return -1;
    }
    return 0;
}

static int visit_tensor(checked_value *c, const pt2_tensor_fields *f, expr_visitor visit)
{
    if (visit_numbers(c, f->sizes, "sizes", visit) < 0)
        return -1;
    return visit_numbers(c, f->strides, "strides", visit);
}

/* ---- tensors ---- */

/* The constant in a SymInt; false: it is an expression, or nothing. */
static bool constant_of(yyjson_val *number, int64_t *out)
{
    yyjson_val *inner;
    const char *tag = pt2_verify_tag(number, &inner);

    return tag && strcmp(tag, "as_int") == 0 && pt2_json_int(inner, out);
}

static bool is_number(yyjson_val *number)
{
    yyjson_val *inner;
    const char *tag = pt2_verify_tag(number, &inner);
    int64_t value;

    return tag && (strcmp(tag, "as_int") == 0 ? pt2_json_int(inner, &value) : strcmp(tag, "as_expr") == 0);
}

/* Constants only: whether their number of elements and the last one's place fit 64 bits. */
static void check_extent(checked_value *c, const pt2_tensor_fields *f)
{
    yyjson_arr_iter strides = yyjson_arr_iter_with(f->strides);
    int64_t elements = 1, last = 0, size, stride, step;
    bool empty = false, too_many = false, too_far = false;
    size_t i, count;
    yyjson_val *number;

    if (constant_of(f->offset, &last) && last < 0)
        fault(c, PT2_VALUE, PT2_ERROR, "storage_offset", "a storage offset can't be negative");
    last = last < 0 ? 0 : last;
    yyjson_arr_foreach(f->sizes, i, count, number)
    {
        bool has_stride = constant_of(yyjson_arr_iter_next(&strides), &stride);
        if (has_stride && stride < 0)
            fault(c, PT2_VALUE, PT2_ERROR, "strides", "a stride can't be negative");
        if (!constant_of(number, &size))
            continue;
        if (size < 0) {
            fault(c, PT2_VALUE, PT2_ERROR, "sizes", "a size can't be negative");
            return;
        }
        empty |= size == 0;
        too_many |= size && __builtin_mul_overflow(elements, size, &elements);
        if (size && has_stride && stride > 0)
            too_far |= __builtin_mul_overflow(size - 1, stride, &step) || __builtin_add_overflow(last, step, &last);
    }
    if (too_many && !empty)
        fault(c, PT2_VALUE, PT2_ERROR, "sizes", "it has more elements than 64 bits can count");
    if (too_far && !empty)
        fault(c, PT2_VALUE, PT2_ERROR, "strides", "its last element lies beyond what 64 bits can address");
}

static int check_tensor(checked_value *c, yyjson_val *json)
{
    pt2_tensor_fields f;
    size_t i, count;
    yyjson_val *number;
    bool right = true;

    pt2_verify_fields(json, &f);
    if (!yyjson_is_arr(f.sizes) || !yyjson_is_arr(f.strides) || !f.dtype) {
        fault(c, PT2_VALUE, PT2_ERROR, NULL, "it is no TensorMeta: dtype, sizes or strides are missing");
        return 0;
    }
    if (yyjson_arr_size(f.sizes) != yyjson_arr_size(f.strides))
        fault(c, PT2_VALUE, PT2_ERROR, "strides", "there must be as many strides as sizes");
    yyjson_arr_foreach(f.sizes, i, count, number) right &= is_number(number);
    yyjson_arr_foreach(f.strides, i, count, number) right &= is_number(number);
    if (!right)
        fault(c, PT2_VALUE, PT2_ERROR, "sizes", "a size or stride is neither an int nor an expression");
    check_extent(c, &f);
    if (visit_tensor(c, &f, bind_expr) < 0 || visit_number(c, f.offset, "storage_offset", look_at_expr) < 0)
        return -1;
    return c->unbound ? visit_tensor(c, &f, check_expr) : 0;
}

static int check_one(checked_value *c, uint8_t kind, yyjson_val *json)
{
    c->kind = kind;
    c->unbound = false;
    switch (kind) {
    case PT2_VALUE_TENSOR:
        return check_tensor(c, json);
    case PT2_VALUE_SYM_INT:
    case PT2_VALUE_SYM_FLOAT:
    case PT2_VALUE_SYM_BOOL:
        if (visit_number(c, json, NULL, bind_expr) < 0)
            return -1;
        return c->unbound ? visit_number(c, json, NULL, check_expr) : 0;
    default:
        return 0;
    }
}

/* Several results; a list among them is one step deeper. */
static int check_list(checked_value *c, yyjson_val *list, unsigned depth)
{
    size_t i, count;
    yyjson_val *item;
    pt2_node_value value;

    yyjson_arr_foreach(list, i, count, item)
    {
        if (!take_union(item, &value) || (value.list && !depth)) {
            fault(c, PT2_VALUE, PT2_ERROR, NULL,
                  "its meta['val'] holds something that is no TensorMeta or symbolic number");
            continue;
        }
        if (value.list ? check_list(c, value.list, depth - 1) < 0 : check_one(c, value.kind, value.json) < 0)
            return -1;
    }
    return 0;
}

/* ---- nodes ---- */

/* A node that nothing tells of, though it gives something. */
static void check_missing(pt2_verifier *v, const pt2_scope *s, uint32_t id)
{
    const fe_node *n = &s->core->nodes[id];
    const pt2_origin *o = origin_of(s, id);
    const pt2_node_text *text = text_of(s, id);
    const char *name = s->core->details[id].name ? s->core->details[id].name->data : "";

    if (text && text->removed && (n->op == FE_OP_PLACEHOLDER || !s->callees[n->target].returns_nothing)) {
        pt2_verify_node(v, s, PT2_VALUE, PT2_ERROR, id, NULL,
                        "'%.200s' has no meta['val']; set it to what the node gives: a FakeTensor, a TensorMeta or the "
                        "like, or run the pass refresh_fake_tensors",
                        name);
        return;
    }
    if (n->op == FE_OP_PLACEHOLDER) {
        if (!o || o->value)
            pt2_verify_node(v, s, PT2_VALUE, PT2_ERROR, id, NULL,
                            "nothing tells what the input '%.200s' is; set its meta['val'] to a TensorMeta", name);
        return;
    }
    const pt2_callee_facts *f = &s->callees[n->target];
    if (f->getitem || f->returns_nothing || f->spelling == FE_SPELLING_HIGHER_ORDER ||
        f->spelling == FE_SPELLING_FUNCTION)
        return;
    pt2_verify_node(v, s, PT2_VALUE, PT2_ERROR, id, NULL,
                    "nothing tells what '%.200s' returns; set its meta['val'] to a TensorMeta, or to a tuple of them, "
                    "or run the pass refresh_fake_tensors",
                    name);
}

/* A value that its owner has set: is it of the kind that the operator gives? */
static void check_given(pt2_verifier *v, const pt2_scope *s, uint32_t id, const pt2_node_value *value)
{
    const fe_node *n = &s->core->nodes[id];
    const pt2_callee_facts *f = n->op == FE_OP_CALL_FUNCTION ? &s->callees[n->target] : NULL;
    const char *name = s->core->details[id].name ? s->core->details[id].name->data : "";

    if (f && f->has_schema && fe_operator_returns_one_tensor(f->op) && (value->list || value->kind != PT2_VALUE_TENSOR))
        pt2_verify_node(
            v, s, PT2_VALUE, PT2_ERROR, id, NULL,
            "the meta['val'] of '%.200s' is no tensor, which '%.200s' returns; set it to a TensorMeta, or run "
            "the pass refresh_fake_tensors",
            name, f->text);
}

static int check_node(pt2_verifier *v, const pt2_scope *s, uint32_t id)
{
    checked_value c = {.v = v, .scope = s, .id = id};
    pt2_node_value value;
    int result = 0;

    if (pt2_verify_read_value(v, s, id, &value) < 0)
        return -1;
    c.of_document = !value.given;
    c.is_input = s->core->nodes[id].op == FE_OP_PLACEHOLDER;
    if (value.given && (value.list || value.json))
        check_given(v, s, id, &value);
    if (value.list)
        result = check_list(&c, value.list, 1);
    else if (value.json)
        result = check_one(&c, value.kind, value.json);
    else if (!value.of_document)
        check_missing(v, s, id);
    pt2_verify_clear_value(&value);
    return result;
}

int pt2_verify_values(pt2_verifier *v, const pt2_scope *s)
{
    const fe_graph *g = s->core;

    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT; id = g->nodes[id].next) {
        unsigned op = g->nodes[id].op;
        if ((op == FE_OP_PLACEHOLDER || op == FE_OP_CALL_FUNCTION) && check_node(v, s, id) < 0)
            return -1;
    }
    return 0;
}
