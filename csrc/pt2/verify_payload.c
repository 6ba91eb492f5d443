/* verify_payload.c - weights and constants against the inputs that stand for them. See verify.h.
 *
 * Only layout A has tables of them; in the others they are pickled, and their names not known here. torch checks that
 * they are there, but not that they have the dtype and sizes that the graph was made for.
 */
#include "verify.h"

#include <stdio.h>

typedef struct {
    pt2_verifier *v;
    const pt2_scope *scope;
    fe_reserved weights, constants; /* owner: index into items; base: 1 when an input stands for it */
} checker;

/* ---- names ---- */

static int add_names(checker *c, fe_reserved *table, const pt2_payloads *payloads)
{
    for (uint32_t i = 0; i < payloads->count; i++) {
        fe_string *t = pt2_verify_intern(c->v, table, payloads->items[i].name, payloads->items[i].name_len);
        if (!t)
            return -1;
        t->owner = i;
    }
    return 0;
}

static const pt2_payload *find(const pt2_payloads *payloads, const fe_reserved *table, const fe_string *name)
{
    fe_string *t = fe_string_find(&table->strings, name->data, name->len);

    if (!t)
        return NULL;
    t->base = 1;
    return &payloads->items[t->owner];
}

/* ---- faults ---- */

/* Of a table's entry: $.config['fc.bias'].tensor_meta.dtype; outer and key may be NULL. */
static void payload_fault(checker *c, const pt2_payloads *payloads, const pt2_payload *p, pt2_kind kind,
                          pt2_severity severity, const char *outer, const char *key, const char *message)
{
    pt2_path root = {.parent = NULL};
    pt2_path name = {.parent = PT2_KEY(&root, "config"), .key = p->name, .key_len = p->name_len};
    const pt2_path *at = outer ? PT2_KEY_TEXT(&name, outer) : &name;

    pt2_verify_fault(c->v, kind, severity, payloads->entry->name, key ? PT2_KEY_TEXT(at, key) : at, NULL, "%s",
                     message);
}

static void missing(checker *c, const fe_spec *spec, const char *tag, const char *key, const char *what,
                    const char *where)
{
    const fe_graph *g = c->scope->core;
    const fe_string *name = spec->node < g->node_count ? g->details[spec->node].name : NULL;
    pt2_spec_path path;

    pt2_verify_spec_path(&path, spec, true, tag, key);
    pt2_verify_fault(c->v, PT2_SIGNATURE, PT2_ERROR, NULL, path.path, name ? name->data : NULL,
                     "the %s '%.300s' is not among the %s; add it, or remove the input that stands for it", what,
                     PT2_SHOWN(spec->target), where);
}

/* ---- against the graph ---- */

typedef struct {
    char text[160];
    size_t len;
} sizes_text;

static void show_size(sizes_text *t, int64_t size)
{
    int n = snprintf(t->text + t->len, sizeof t->text - t->len, "%s%lld", t->len ? "x" : "", (long long)size);

    t->len += n > 0 ? (size_t)n : 0;
    t->len = t->len < sizeof t->text ? t->len : sizeof t->text - 1;
}

/* Symbolic sizes fit any. */
static void check_sizes(checker *c, const pt2_payloads *payloads, const pt2_payload *p, yyjson_val *sizes,
                        const char *input)
{
    sizes_text graph = {.len = 0}, file = {.len = 0};
    bool differ = yyjson_arr_size(sizes) != p->ndim, symbolic = false;
    char message[600];
    size_t i, count;
    yyjson_val *item, *inner;
    int64_t size;

    yyjson_arr_foreach(sizes, i, count, item)
    {
        const char *tag = pt2_verify_tag(item, &inner);
        if (!tag || strcmp(tag, "as_int") != 0 || !pt2_json_int(inner, &size)) {
            symbolic = true;
            continue;
        }
        differ |= i < p->ndim && p->sizes[i] != size;
        show_size(&graph, size);
    }
    if (!differ)
        return;
    for (uint32_t k = 0; k < p->ndim && k < 32; k++)
        show_size(&file, p->sizes[k]);
    snprintf(message, sizeof message, "the sizes are %s, but the graph's input '%.200s' is made for %s%s",
             p->ndim ? file.text : "those of a number", input,
             !count     ? "a number"
             : symbolic ? "other sizes"
                        : graph.text,
             p->ndim > 32 ? " (and so on)" : "");
    payload_fault(c, payloads, p, PT2_PAYLOAD, PT2_ERROR, "tensor_meta", "sizes", message);
}

static void check_device(checker *c, const pt2_payloads *payloads, const pt2_payload *p, yyjson_val *device,
                         const char *input)
{
    yyjson_val *type = yyjson_obj_get(device, "type"), *index = yyjson_obj_get(device, "index");
    char text[100], message[500];
    int64_t number;

    if (!yyjson_is_str(type) || !p->device)
        return;
    if (index && pt2_json_int(index, &number))
        snprintf(text, sizeof text, "%.60s:%lld", yyjson_get_str(type), (long long)number);
    else
        snprintf(text, sizeof text, "%.60s", yyjson_get_str(type));
    if (strcmp(text, p->device) == 0)
        return;
    snprintf(message, sizeof message, "the device differs from the graph's: %.60s here, %.80s for the input '%.200s'",
             p->device, text, input);
    payload_fault(c, payloads, p, PT2_PAYLOAD, PT2_WARNING, "tensor_meta", "device", message);
}

static void check_dtype(checker *c, const pt2_payloads *payloads, const pt2_payload *p, yyjson_val *dtype,
                        const char *input)
{
    char message[500];
    int64_t code;

    if (!dtype || !pt2_json_int(dtype, &code) || code == p->dtype)
        return;
    const char *here = pt2_dtype_name(p->dtype), *there = pt2_dtype_name(code);
    snprintf(message, sizeof message, "the dtype is %s, but the graph's input '%.200s' is %s", here ? here : "unknown",
             input, there ? there : "of an unknown one");
    payload_fault(c, payloads, p, PT2_PAYLOAD, PT2_ERROR, "tensor_meta", "dtype", message);
}

static void check_gradient(checker *c, const pt2_payloads *payloads, const pt2_payload *p, yyjson_val *requires_grad)
{
    if (c->v->strict && yyjson_is_bool(requires_grad) && yyjson_get_bool(requires_grad) != p->requires_grad)
        payload_fault(c, payloads, p, PT2_PAYLOAD, PT2_WARNING, "tensor_meta", "requires_grad",
                      "requires_grad differs from the graph's");
}

static int check_tensor(checker *c, const pt2_payloads *payloads, const pt2_payload *p, const fe_spec *spec)
{
    pt2_node_value value;
    pt2_tensor_fields f;

    if (p->kind != PT2_PAYLOAD_TENSOR || !fe_node_is_listed(c->scope->core, spec->node))
        return 0;
    if (pt2_verify_read_value(c->v, c->scope, spec->node, &value) < 0)
        return -1;
    if (value.kind == PT2_VALUE_TENSOR && value.json) {
        const char *input = c->scope->core->details[spec->node].name->data;
        pt2_verify_fields(value.json, &f);
        check_dtype(c, payloads, p, f.dtype, input);
        if (yyjson_is_arr(f.sizes))
            check_sizes(c, payloads, p, f.sizes, input);
        check_device(c, payloads, p, f.device, input);
        check_gradient(c, payloads, p, f.requires_grad);
    }
    pt2_verify_clear_value(&value);
    return 0;
}

/* ---- inputs ---- */

static bool is_object(const pt2_payload *p)
{
    return p->kind == PT2_PAYLOAD_CUSTOM || p->kind == PT2_PAYLOAD_OPAQUE;
}

static int check_parameter(checker *c, const fe_spec *spec)
{
    const pt2_payloads *weights = &c->v->program->weights;

    if (!weights->entry)
        return 0;
    const pt2_payload *p = find(weights, &c->weights, spec->target);
    if (!p) {
        missing(c, spec, "parameter", "parameter_name", "parameter", "weights");
        return 0;
    }
    if (!p->is_param)
        payload_fault(c, weights, p, PT2_SIGNATURE, PT2_ERROR, "is_param", NULL,
                      "the signature calls this a parameter, so is_param must be true");
    return check_tensor(c, weights, p, spec);
}

static int check_buffer(checker *c, const fe_spec *spec)
{
    const pt2_program *program = c->v->program;
    const pt2_payload *weight = program->weights.entry ? find(&program->weights, &c->weights, spec->target) : NULL;
    const pt2_payload *constant =
        program->constants.entry ? find(&program->constants, &c->constants, spec->target) : NULL;

    if (weight && !spec->persistent) {
        const fe_graph *g = c->scope->core;
        pt2_spec_path path;
        pt2_verify_spec_path(&path, spec, true, "buffer", NULL);
        pt2_verify_fault(
            c->v, PT2_SIGNATURE, PT2_ERROR, NULL, path.path,
            spec->node < g->node_count ? g->details[spec->node].name->data : NULL,
            "the buffer '%.300s' is called non-persistent, but is stored among the weights; one of the two is "
            "wrong",
            PT2_SHOWN(spec->target));
    }
    if (weight)
        return check_tensor(c, &program->weights, weight, spec);
    if (constant && !is_object(constant))
        return check_tensor(c, &program->constants, constant, spec);
    if (program->constants.entry && (program->weights.entry || !spec->persistent))
        missing(c, spec, "buffer", "buffer_name", "buffer", spec->persistent ? "weights" : "constants");
    return 0;
}

static int check_constant(checker *c, const fe_spec *spec)
{
    const pt2_payloads *constants = &c->v->program->constants;
    bool object = spec->kind == FE_INPUT_CUSTOM_OBJ;
    const char *tag = object ? "custom_obj" : "tensor_constant";
    const char *key = object ? "custom_obj_name" : "tensor_constant_name",
               *what = object ? "custom object" : "constant";

    if (!constants->entry)
        return 0;
    const pt2_payload *p = find(constants, &c->constants, spec->target);
    if (!p)
        missing(c, spec, tag, key, what, "constants");
    else if (is_object(p) != object)
        payload_fault(c, constants, p, PT2_SIGNATURE, PT2_ERROR, NULL, NULL,
                      object ? "the signature calls this an object, but it is a tensor"
                             : "the signature calls this a tensor, but it is an object");
    else if (!object)
        return check_tensor(c, constants, p, spec);
    return 0;
}

static int check_input(checker *c, const fe_spec *spec)
{
    if (!spec->target)
        return 0;
    switch (spec->kind) {
    case FE_INPUT_PARAMETER:
        return check_parameter(c, spec);
    case FE_INPUT_BUFFER:
        return check_buffer(c, spec);
    case FE_INPUT_CONSTANT_TENSOR:
    case FE_INPUT_CUSTOM_OBJ:
        return check_constant(c, spec);
    default:
        return 0;
    }
}

static void check_unused(checker *c, const pt2_payloads *payloads, const fe_reserved *table)
{
    for (uint32_t i = 0; i < payloads->count; i++) {
        const fe_string *t = fe_string_find(&table->strings, payloads->items[i].name, payloads->items[i].name_len);
        if (t && !t->base)
            payload_fault(c, payloads, &payloads->items[i], PT2_PAYLOAD, PT2_WARNING, NULL, NULL,
                          "no input stands for this; it is stored for nothing");
    }
}

int pt2_verify_payloads(pt2_verifier *v, const pt2_scope *s)
{
    const fe_signature *signature = s->core->signature;
    const pt2_program *p = v->program;
    checker c = {.v = v, .scope = s};
    int result;

    if (!signature)
        return 0;
    (void)fe_reserved_init(&c.weights, v->allocator);
    (void)fe_reserved_init(&c.constants, v->allocator);
    result = p->weights.entry ? add_names(&c, &c.weights, &p->weights) : 0;
    if (result == 0 && p->constants.entry)
        result = add_names(&c, &c.constants, &p->constants);
    for (uint32_t i = 0; result == 0 && i < signature->input_count; i++)
        result = check_input(&c, &signature->inputs[i]);
    if (result == 0 && v->strict && p->weights.entry)
        check_unused(&c, &p->weights, &c.weights);
    fe_reserved_clear(&c.weights);
    fe_reserved_clear(&c.constants);
    return result;
}
