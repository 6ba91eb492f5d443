/* write_signature.c - what inputs and outputs stand for, and the signatures of module calls that were preserved.
 *
 * The core's signature is the truth; a spec that says what the document's spec says at its origin is written as that.
 */
#include "write.h"

/* X(kind, tag, key of the target or NULL) */
static const struct {
    const char *tag, *target;
} inputs[] = {[FE_INPUT_USER] = {"user_input", NULL},
              [FE_INPUT_PARAMETER] = {"parameter", "parameter_name"},
              [FE_INPUT_BUFFER] = {"buffer", "buffer_name"},
              [FE_INPUT_CONSTANT_TENSOR] = {"tensor_constant", "tensor_constant_name"},
              [FE_INPUT_CUSTOM_OBJ] = {"custom_obj", "custom_obj_name"},
              [FE_INPUT_TOKEN] = {"token", NULL}},
  outputs[] = {[FE_OUTPUT_USER] = {"user_output", NULL},
               [FE_OUTPUT_LOSS] = {"loss_output", NULL},
               [FE_OUTPUT_BUFFER_MUTATION] = {"buffer_mutation", "buffer_name"},
               [FE_OUTPUT_GRADIENT_TO_PARAMETER] = {"gradient_to_parameter", "parameter_name"},
               [FE_OUTPUT_GRADIENT_TO_USER_INPUT] = {"gradient_to_user_input", "user_input_name"},
               [FE_OUTPUT_USER_INPUT_MUTATION] = {"user_input_mutation", "user_input_name"},
               [FE_OUTPUT_PARAMETER_MUTATION] = {"parameter_mutation", "parameter_name"},
               [FE_OUTPUT_TOKEN] = {"token", NULL}};

typedef struct {
    pt2_graph_writer *g;
    const fe_spec *spec;
    const char *tag, *target; /* target: the key under which the spec's target stands, or NULL */
    yyjson_val *json;         /* what the document has under the tag, or NULL */
    bool input;
    uint32_t index;
} spec;

static bool is_constant_input(const spec *s)
{
    return strcmp(s->tag, "constant_input") == 0;
}

/* Whether "arg" is a whole Argument, not just a name. */
static bool has_argument(const spec *s)
{
    return s->spec->kind == (s->input ? (int)FE_INPUT_USER : (int)FE_OUTPUT_USER);
}

static fe_value value_of(const spec *s)
{
    return s->spec->node == FE_NONE_ID ? s->spec->value : (fe_value){.kind = FE_NODE, .as.node = s->spec->node};
}

static bool is_listed(const spec *s)
{
    const fe_graph *core = s->g->core;

    if (s->spec->node == FE_NONE_ID || fe_node_is_listed(core, s->spec->node))
        return true;
    pt2_write_fault(s->g, PT2_SIGNATURE, FE_NONE_ID,
                    "%s %u of the signature ('%s') is a node that was removed; remove or change its spec too",
                    s->input ? "input" : "output", s->index, s->tag);
    return false;
}

/* ---- fields ---- */

static pt2_name name_now(const spec *s)
{
    const pt2_plan *plan = &s->g->plans[s->spec->node];

    return plan->shape == PT2_SHAPE_SELF || plan->shape == PT2_SHAPE_TAKEN ? s->g->slots[plan->first].name
                                                                           : (pt2_name){NULL, 0};
}

/* {"name": NAME}, and the class of a custom object */
static void write_bearer(const spec *s, yyjson_val *json)
{
    pt2_writer *w = s->g->w;
    pt2_name name = s->spec->node == FE_NONE_ID ? (pt2_name){NULL, 0} : name_now(s);
    yyjson_val *inner, *class = pt2_field(json, "class_fqn");

    if (!name.data) {
        pt2_write_fault(s->g, PT2_SIGNATURE, s->spec->node, "%s %u of the signature ('%s') must be a node with a value",
                        s->input ? "input" : "output", s->index, s->tag);
        return;
    }
    if (json && pt2_name_equal(pt2_name_of_json(pt2_field(json, "name")), name)) {
        pt2_json_write(json, w->out);
        return;
    }
    const pt2_slot *slot = &s->g->slots[s->g->plans[s->spec->node].first];
    fe_buffer_text(w->out, "{\"name\": ");
    pt2_write_name(w, name);
    if (!class && slot->kind == PT2_VALUE_CUSTOM) {
        inner = slot->value;
        if (!inner && slot->json)
            (void)pt2_tag(slot->json, &inner);
        class = pt2_field(inner, "class_fqn");
    }
    if (class) {
        fe_buffer_text(w->out, ", \"class_fqn\": ");
        pt2_json_write(class, w->out);
    }
    fe_buffer_char(w->out, '}');
}

/* torch's reader of files looks an output's symbolic bool up before it has made any node. */
static void check_readable(const spec *s)
{
    const pt2_plan *plan = s->spec->node == FE_NONE_ID ? NULL : &s->g->plans[s->spec->node];
    bool named = plan && (plan->shape == PT2_SHAPE_SELF || plan->shape == PT2_SHAPE_TAKEN);

    if (!s->input && named && s->g->slots[plan->first].kind == PT2_VALUE_SYM_BOOL && !s->json)
        pt2_write_fault(
            s->g, PT2_SIGNATURE, s->spec->node,
            "output %u is a symbolic bool, which torch.export.load can't read as an output; return a tensor, "
            "or an int made of it",
            s->index);
}

static void write_arg(const spec *s, yyjson_val *json)
{
    pt2_place at = {.node = s->spec->node, .index = s->index};

    check_readable(s);
    if (has_argument(s) && json && s->spec->node == FE_NONE_ID && s->spec->value.kind == FE_NULL)
        pt2_json_write(json, s->g->w->out);
    else if (has_argument(s) && s->input)
        pt2_write_argument(s->g, &at, json, NULL, value_of(s));
    else if (has_argument(s))
        pt2_write_output(s->g, &at, json, value_of(s));
    else
        write_bearer(s, json);
}

/* A constant input has a name of its own; its placeholder may bear another, when that one is no legal name. */
static pt2_name constant_name(const spec *s, yyjson_val *json)
{
    const fe_graph *core = s->g->core;
    const pt2_origin *origin =
        s->spec->node == FE_NONE_ID ? NULL : pt2_origin_of(s->g->graph, s->spec->node, PT2_FROM_INPUT);

    if (json && s->spec->node != FE_NONE_ID && origin && origin->name == core->details[s->spec->node].name)
        return pt2_name_of_json(json);
    if (s->spec->node != FE_NONE_ID)
        return pt2_node_name(core, s->spec->node);
    return s->spec->name ? pt2_name_of_string(s->spec->name) : (pt2_name){"", 0};
}

static void write_target(const spec *s)
{
    if (s->spec->target)
        pt2_write_name(s->g->w, pt2_name_of_string(s->spec->target));
    else
        pt2_write_fault(s->g, PT2_SIGNATURE, s->spec->node, "%s %u of the signature ('%s') needs a target",
                        s->input ? "input" : "output", s->index, s->tag);
}

static void write_field(const spec *s, const char *key, yyjson_val *json)
{
    pt2_writer *w = s->g->w;
    pt2_place at = {.node = s->spec->node, .index = s->index};

    if (strcmp(key, "arg") == 0)
        write_arg(s, json);
    else if (s->target && strcmp(key, s->target) == 0)
        write_target(s);
    else if (strcmp(key, "persistent") == 0)
        fe_buffer_text(w->out, s->spec->persistent ? "true" : "false");
    else if (is_constant_input(s) && strcmp(key, "name") == 0)
        pt2_write_name(w, constant_name(s, json));
    else if (is_constant_input(s) && strcmp(key, "value") == 0 && (!json || s->spec->value.kind != FE_NULL))
        pt2_write_argument(s->g, &at, json, NULL, s->spec->value);
    else
        pt2_json_write(json, w->out);
}

static void write_new_fields(const spec *s)
{
    bool first = true;
    const char *const keys[] = {is_constant_input(s) ? "name" : "arg", is_constant_input(s) ? "value" : s->target,
                                strcmp(s->tag, "buffer") == 0 ? "persistent" : NULL};

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (!keys[i])
            continue;
        pt2_write_key(s->g->w, &first, keys[i]);
        write_field(s, keys[i], NULL);
    }
}

static void write_spec(const spec *s)
{
    pt2_writer *w = s->g->w;
    size_t i, count;
    yyjson_val *key, *value;

    if (!is_listed(s))
        return;
    fe_buffer_text(w->out, "{\"");
    fe_buffer_text(w->out, s->tag);
    fe_buffer_text(w->out, "\": {");
    pt2_each_member(s->json, i, count, key, value)
    {
        pt2_write_member(w->out, i, key);
        write_field(s, unsafe_yyjson_get_str(key), value);
    }
    if (!s->json)
        write_new_fields(s);
    fe_buffer_text(w->out, "}}");
}

/* ---- specs ---- */

/* A user's input that is a constant is another struct in the file. */
static bool is_constant(const pt2_graph_writer *g, const fe_spec *s)
{
    if (s->kind != FE_INPUT_USER)
        return false;
    return s->node == FE_NONE_ID ||
           (s->value.kind != FE_NULL && fe_node_is_listed(g->core, s->node) &&
            g->plans[s->node].shape == PT2_SHAPE_SELF && g->slots[g->plans[s->node].first].kind == PT2_SLOT_NONE);
}

/* What the document has under its tag at a place of a list of specs; each list is walked once from its front. */
static yyjson_val *spec_at(yyjson_val *list, yyjson_arr_iter *it, uint32_t origin)
{
    if (!origin || origin > yyjson_arr_size(list))
        return NULL;
    if (it->idx >= origin)
        *it = yyjson_arr_iter_with(list);
    while (it->idx + 1 < origin)
        (void)yyjson_arr_iter_next(it);
    return yyjson_arr_iter_next(it);
}

static void write_specs(pt2_graph_writer *g, yyjson_val *json, bool input)
{
    const fe_signature *signature = g->core->signature;
    const fe_spec *items = input ? signature->inputs : signature->outputs;
    uint32_t count = input ? signature->input_count : signature->output_count;
    yyjson_arr_iter it = yyjson_arr_iter_with(json);
    yyjson_val *inner;

    fe_buffer_char(g->w->out, '[');
    for (uint32_t i = 0; i < count; i++) {
        spec s = {.g = g, .spec = &items[i], .input = input, .index = i};
        s.tag = input ? inputs[items[i].kind].tag : outputs[items[i].kind].tag;
        s.target = input ? inputs[items[i].kind].target : outputs[items[i].kind].target;
        if (input && is_constant(g, &items[i]))
            s.tag = "constant_input";
        yyjson_val *known = spec_at(json, &it, items[i].origin);
        if (known && strcmp(pt2_tag(known, &inner), s.tag) == 0 && !(g->w->flags & PT2_WRITE_ANEW))
            s.json = inner;
        fe_buffer_text(g->w->out, i ? ", " : "");
        write_spec(&s);
    }
    fe_buffer_char(g->w->out, ']');
}

void pt2_write_signature(pt2_graph_writer *g, yyjson_val *json)
{
    size_t i, count;
    yyjson_val *key, *value;

    fe_buffer_char(g->w->out, '{');
    pt2_each_member(json, i, count, key, value)
    {
        pt2_write_member(g->w->out, i, key);
        if (yyjson_equals_str(key, "input_specs"))
            write_specs(g, value, true);
        else if (yyjson_equals_str(key, "output_specs"))
            write_specs(g, value, false);
        else
            pt2_json_write(value, g->w->out);
    }
    fe_buffer_char(g->w->out, '}');
}

/* ---- module calls ---- */

static void write_renamed(pt2_graph_writer *g, yyjson_val *name, pt2_name fqn)
{
    bool removed;
    const pt2_slot *s = pt2_writer_find(g, pt2_name_of_json(name), &removed);

    if (removed)
        pt2_write_fault(g, PT2_SIGNATURE, FE_NONE_ID,
                        "the signature of the call of module '%.*s' names '%s', which was removed from the graph; keep "
                        "that node, or export without preserving this module's signature",
                        (int)fqn.len, fqn.data, yyjson_get_str(name));
    if (s && s->name.data)
        pt2_write_name(g->w, s->name);
    else
        pt2_json_write(name, g->w->out);
}

/* An Argument, or a part of it, with the names of today. */
static void write_call_value(pt2_graph_writer *g, yyjson_val *json, pt2_name fqn)
{
    pt2_writer *w = g->w;
    bool object = yyjson_is_obj(json);
    size_t i, count;
    yyjson_val *key, *value;

    if (yyjson_is_arr(json)) {
        fe_buffer_char(w->out, '[');
        yyjson_arr_foreach(json, i, count, value)
        {
            fe_buffer_text(w->out, i ? ", " : "");
            write_call_value(g, value, fqn);
        }
        fe_buffer_char(w->out, ']');
    }
    if (!object) {
        if (!yyjson_is_arr(json))
            pt2_json_write(json, w->out);
        return;
    }
    fe_buffer_char(w->out, '{');
    pt2_each_member(json, i, count, key, value)
    {
        bool name = yyjson_is_str(value) && (yyjson_equals_str(key, "name") || yyjson_equals_str(key, "as_name"));
        pt2_write_member(w->out, i, key);
        if (name)
            write_renamed(g, value, fqn);
        else if (yyjson_equals_str(key, "as_graph"))
            pt2_json_write(value, w->out);
        else
            write_call_value(g, value, fqn);
    }
    fe_buffer_char(w->out, '}');
}

static void write_call_signature(pt2_graph_writer *g, yyjson_val *json, pt2_name fqn)
{
    size_t i, count;
    yyjson_val *key, *value;

    fe_buffer_char(g->w->out, '{');
    pt2_each_member(json, i, count, key, value)
    {
        pt2_write_member(g->w->out, i, key);
        if (yyjson_equals_str(key, "inputs") || yyjson_equals_str(key, "outputs"))
            write_call_value(g, value, fqn);
        else
            pt2_json_write(value, g->w->out);
    }
    fe_buffer_char(g->w->out, '}');
}

static void write_call(pt2_graph_writer *g, yyjson_val *json)
{
    size_t i, count;
    yyjson_val *key, *value;
    pt2_name fqn = pt2_name_of_json(pt2_field(json, "fqn"));

    fe_buffer_char(g->w->out, '{');
    pt2_each_member(json, i, count, key, value)
    {
        pt2_write_member(g->w->out, i, key);
        if (yyjson_equals_str(key, "signature") && yyjson_is_obj(value))
            write_call_signature(g, value, fqn);
        else
            pt2_json_write(value, g->w->out);
    }
    fe_buffer_char(g->w->out, '}');
}

void pt2_write_calls(pt2_graph_writer *g, yyjson_val *json)
{
    size_t i, count;
    yyjson_val *item;

    fe_buffer_char(g->w->out, '[');
    yyjson_arr_foreach(json, i, count, item)
    {
        fe_buffer_text(g->w->out, i ? ", " : "");
        write_call(g, item);
    }
    fe_buffer_char(g->w->out, ']');
}
