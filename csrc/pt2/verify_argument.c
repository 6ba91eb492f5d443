/* verify_argument.c - the arguments of calls against the schemas of operators. See verify.h.
 *
 * Kinds of values are compared leniently, as torch converts many: only what it certainly refuses is a fault.
 */
#include "verify.h"

#include <stdarg.h>
#include <stdio.h>

#define SHOWN_TYPE 64

/* ---- kinds of values ---- */

static const char *show_type(fe_schema_type type, char *out)
{
    int n = snprintf(out, SHOWN_TYPE, "%s%s", fe_schema_base_text(type), type.lists && type.optional_items ? "?" : "");

    for (unsigned i = 0; i < type.lists && n > 0 && n < SHOWN_TYPE - 4; i++)
        n += snprintf(out + n, (size_t)(SHOWN_TYPE - n), "[]");
    if (type.optional && n > 0 && n < SHOWN_TYPE - 1)
        snprintf(out + n, (size_t)(SHOWN_TYPE - n), "?");
    return out;
}

static const char *show_kind(const pt2_scope *s, fe_value value)
{
    static const char *const objects[PT2_OBJECT_KIND_COUNT] = {
        "an object that no file can hold",
        "a dtype",
        "a layout",
        "a memory format",
        "a device",
        "an operator",
        "a custom object",
    };
    static const char *const nodes[] = {"a node",           "a tensor",        "a symbolic int",
                                        "a symbolic float", "a symbolic bool", "a custom object"};
    const pt2_object *object;

    switch (value.kind) {
    case FE_NONE:
        return "None";
    case FE_BOOL:
        return "a bool";
    case FE_INT:
        return "an int";
    case FE_FLOAT:
        return "a float";
    case FE_COMPLEX:
        return "a complex number";
    case FE_STR:
        return "a string";
    case FE_NODE:
        return s->core->nodes[value.as.node].op == FE_OP_GET_ATTR ? "a subgraph"
                                                                  : nodes[pt2_verify_value_kind(s, value.as.node)];
    case FE_OBJECT:
        object = pt2_verify_object(s, value.as.object);
        return objects[object && object->kind < PT2_OBJECT_KIND_COUNT ? object->kind : PT2_OBJECT_NONE];
    case FE_TUPLE:
        return "a tuple";
    case FE_LIST:
        return "a list";
    case FE_DICT:
        return "a dict";
    case FE_SLICE:
        return "a slice";
    default:
        return "nothing";
    }
}

static bool is_number(fe_value value)
{
    return value.kind == FE_BOOL || value.kind == FE_INT || value.kind == FE_FLOAT || value.kind == FE_COMPLEX;
}

/* Whether a node may stand where one value of this type is asked for. */
static bool node_fits(const pt2_scope *s, fe_schema_base base, uint32_t id)
{
    pt2_value_kind kind = pt2_verify_value_kind(s, id);

    if (s->core->nodes[id].op == FE_OP_GET_ATTR)
        return false;
    switch (base) {
    case FE_SCHEMA_TENSOR:
        return kind != PT2_VALUE_CUSTOM;
    case FE_SCHEMA_SCALAR_TYPE:
    case FE_SCHEMA_LAYOUT:
    case FE_SCHEMA_DEVICE:
    case FE_SCHEMA_MEMORY_FORMAT:
    case FE_SCHEMA_STRING:
        return kind == PT2_VALUE_NONE;
    default:
        return true;
    }
}

static bool object_fits(const pt2_scope *s, fe_schema_base base, uint32_t index)
{
    const pt2_object *object = pt2_verify_object(s, index);

    switch (object ? object->kind : PT2_OBJECT_NONE) {
    case PT2_OBJECT_DTYPE:
        return base == FE_SCHEMA_SCALAR_TYPE;
    case PT2_OBJECT_LAYOUT:
        return base == FE_SCHEMA_LAYOUT;
    case PT2_OBJECT_MEMORY_FORMAT:
        return base == FE_SCHEMA_MEMORY_FORMAT;
    case PT2_OBJECT_DEVICE:
        return base == FE_SCHEMA_DEVICE || base == FE_SCHEMA_STRING;
    case PT2_OBJECT_TARGET:
        return false;
    default:
        return true; /* told of elsewhere */
    }
}

/* One value, where no list is asked for. A Tensor may be given as a number; a dtype as its code. */
static bool item_fits(const pt2_scope *s, fe_schema_base base, fe_value value)
{
    if (base == FE_SCHEMA_OTHER || base == FE_SCHEMA_VARIABLE || base == FE_SCHEMA_CLASS || base == FE_SCHEMA_GENERATOR)
        return true;
    if (value.kind == FE_NODE)
        return node_fits(s, base, value.as.node);
    if (value.kind == FE_OBJECT)
        return object_fits(s, base, value.as.object);
    switch (base) {
    case FE_SCHEMA_TENSOR:
    case FE_SCHEMA_SCALAR:
    case FE_SCHEMA_COMPLEX:
        return is_number(value);
    case FE_SCHEMA_FLOAT:
        return is_number(value) && value.kind != FE_COMPLEX;
    case FE_SCHEMA_INT:
    case FE_SCHEMA_SYM_INT:
    case FE_SCHEMA_BOOL:
    case FE_SCHEMA_SYM_BOOL:
    case FE_SCHEMA_SCALAR_TYPE:
    case FE_SCHEMA_LAYOUT:
    case FE_SCHEMA_MEMORY_FORMAT:
        return value.kind == FE_INT || value.kind == FE_BOOL;
    case FE_SCHEMA_DEVICE:
    case FE_SCHEMA_STRING:
        return value.kind == FE_STR;
    case FE_SCHEMA_NONE:
        return value.kind == FE_NONE;
    default:
        return true;
    }
}

static bool fits(const pt2_scope *s, fe_schema_type type, unsigned lists, bool optional, fe_value value)
{
    if (value.kind == FE_NONE)
        return optional || type.base == FE_SCHEMA_OTHER || type.base == FE_SCHEMA_NONE ||
               type.base == FE_SCHEMA_VARIABLE || type.base == FE_SCHEMA_GENERATOR;
    if (!lists)
        return item_fits(s, (fe_schema_base)type.base, value);
    if (value.kind != FE_LIST && value.kind != FE_TUPLE) /* one number for all, or a node that is a list */
        return lists == 1 && (value.kind == FE_NODE || value.kind == FE_STR || type.base != FE_SCHEMA_TENSOR) &&
               item_fits(s, (fe_schema_base)type.base, value);
    const fe_seq *items = value.as.seq;
    for (uint32_t i = 0; items && i < items->len; i++) {
        if (!fits(s, type, lists - 1, lists == 1 && type.optional_items, items->items[i]))
            return false;
    }
    return true;
}

/* A fault of an argument; of one that the document has, with the place there. */
typedef struct {
    pt2_verifier *v;
    const char *node, *message;
    pt2_severity severity;
    size_t index;
} argument_fault;

static int add_argument_fault(void *ctx, const pt2_path *node)
{
    const argument_fault *f = ctx;

    pt2_verify_fault(f->v, PT2_ARGUMENT, f->severity, NULL, PT2_INDEX(PT2_KEY(node, "inputs"), f->index), f->node, "%s",
                     f->message);
    return 0;
}

static bool find_input(const pt2_scope *s, uint32_t id, const char *name, size_t len, size_t *out)
{
    const pt2_origin *o = s->has_path && id < s->graph->origin_count ? &s->graph->origins[id] : NULL;
    yyjson_val *input, *text;
    size_t count;

    if (!o || o->source != PT2_FROM_NODE)
        return false;
    yyjson_arr_foreach(yyjson_obj_get(o->json, "inputs"), *out, count, input)
    {
        if (*out >= 64) /* no schema is as long */
            return false;
        text = yyjson_obj_get(input, "name");
        if (yyjson_is_str(text) && yyjson_get_len(text) == len && memcmp(yyjson_get_str(text), name, len) == 0)
            return true;
    }
    return false;
}

static void fault(pt2_verifier *v, const pt2_scope *s, uint32_t id, pt2_severity severity, const char *name, size_t len,
                  const char *format, ...) FE_PRINTF(7, 8);

static void fault(pt2_verifier *v, const pt2_scope *s, uint32_t id, pt2_severity severity, const char *name, size_t len,
                  const char *format, ...)
{
    char message[600];
    argument_fault f = {v, s->core->details[id].name ? s->core->details[id].name->data : "", message, severity, 0};
    va_list args;

    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (find_input(s, id, name, len, &f.index))
        (void)pt2_node_path(s->graph, id, add_argument_fault, &f);
    else
        pt2_verify_node(v, s, PT2_ARGUMENT, severity, id, NULL, "%s", message);
}

static void check_argument(pt2_verifier *v, const pt2_scope *s, uint32_t id, const fe_argument *a, fe_value value)
{
    char type[SHOWN_TYPE];

    if (!fits(s, a->type, a->type.lists, a->type.optional, value))
        fault(v, s, id, PT2_ERROR, a->name, a->name_len, "the argument '%.*s' takes %s, but gets %s%s",
              (int)a->name_len, a->name, show_type(a->type, type), show_kind(s, value),
              value.kind == FE_LIST || value.kind == FE_TUPLE ? " with something else in it" : "");
}

static uint32_t find_argument(const pt2_verifier *v, const pt2_callee_facts *f, const fe_string *name)
{
    for (uint32_t i = 0; i < f->count; i++) {
        const fe_argument *a = &v->arguments[f->first + i];
        if (a->name_len == name->len && memcmp(a->name, name->data, name->len) == 0)
            return i;
    }
    return FE_NONE_ID;
}

/* Schemas are of the table: few have more than 64 arguments, and of these only the first are followed. */
static uint64_t bit(uint32_t i)
{
    return i < 64 ? UINT64_C(1) << i : 0;
}

static void check_keywords(pt2_verifier *v, const pt2_scope *s, uint32_t id, const pt2_callee_facts *f, uint64_t *given)
{
    const fe_seq *kwargs = s->core->details[id].kwargs;

    for (uint32_t i = 0; kwargs && i + 1 < kwargs->len; i += 2) {
        if (kwargs->items[i].kind != FE_STR)
            continue;
        const fe_string *name = kwargs->items[i].as.string;
        uint32_t at = find_argument(v, f, name);
        if (at == FE_NONE_ID) { /* torch skips such an argument of a file without a word */
            size_t index;
            fault(v, s, id, find_input(s, id, name->data, name->len, &index) ? PT2_WARNING : PT2_ERROR, name->data,
                  name->len, "%.200s has no argument named '%.200s'; remove it", f->text, name->data);
            continue;
        }
        if (*given & bit(at))
            fault(v, s, id, PT2_ERROR, name->data, name->len,
                  "the argument '%.200s' is given twice, by position and by name; give it once", name->data);
        *given |= bit(at);
        check_argument(v, s, id, &v->arguments[f->first + at], kwargs->items[i + 1]);
    }
}

static void check_schema(pt2_verifier *v, const pt2_scope *s, uint32_t id, const pt2_callee_facts *f)
{
    const fe_seq *args = s->core->details[id].args;
    uint32_t count = args ? args->len : 0;
    uint64_t given = 0;

    if (count > f->positional)
        pt2_verify_node(v, s, PT2_ARGUMENT, PT2_ERROR, id, NULL, "%.200s takes %u arguments by position, but gets %u",
                        f->text, f->positional, count);
    for (uint32_t i = 0; i < count && i < f->positional; i++) {
        given |= bit(i); /* what stands behind "*" in a schema comes last */
        check_argument(v, s, id, &v->arguments[f->first + i], args->items[i]);
    }
    check_keywords(v, s, id, f, &given);
    for (uint32_t i = 0; i < f->count && i < 64; i++) {
        const fe_argument *a = &v->arguments[f->first + i];
        if (!(given & bit(i)) && !a->has_default)
            pt2_verify_node(v, s, PT2_ARGUMENT, PT2_ERROR, id, NULL, "the argument '%.*s' of %.200s is missing",
                            (int)a->name_len, a->name, f->text);
    }
}

/* An operator as an argument, of higher-order operators. Each unknown one is told of once. */
static void check_operator(pt2_verifier *v, const pt2_scope *s, uint32_t id, uint32_t index, const char *text)
{
    size_t len = text ? strlen(text) : 0;

    if (s->objects_seen[index])
        return;
    s->objects_seen[index] = true;
    if (!text || fe_target_classify(text, len) == FE_SPELLING_BAD)
        pt2_verify_node(v, s, PT2_TARGET, PT2_ERROR, id, NULL,
                        "'%.200s' is given as an operator, but is none that an exported program may call",
                        text ? text : "");
    else if (!fe_operator_find(text, len))
        pt2_verify_node(
            v, s, PT2_UNKNOWN_OPERATOR, PT2_WARNING, id, NULL,
            "unknown operator '%.200s' as an argument: torch loads this program only where it is registered", text);
}

/* What no file can hold, wherever it stands, and operators that are none. */
static void check_tree(pt2_verifier *v, const pt2_scope *s, uint32_t id, const fe_seq *seq)
{
    for (uint32_t i = 0; seq && i < seq->len; i++) {
        fe_value value = seq->items[i];
        const pt2_object *object = value.kind == FE_OBJECT ? pt2_verify_object(s, value.as.object) : NULL;
        if (value.kind == FE_SLICE || value.kind == FE_NULL || (value.kind == FE_OBJECT && (!object || !object->kind)))
            pt2_verify_node(v, s, PT2_ARGUMENT, PT2_ERROR, id, NULL,
                            "a .pt2 file has no word for an argument of class '%.100s'; give a number, string, node, "
                            "dtype, device, layout or memory format",
                            value.kind == FE_SLICE   ? "slice"
                            : object && object->text ? object->text
                                                     : "object");
        else if (object && object->kind == PT2_OBJECT_TARGET)
            check_operator(v, s, id, value.as.object, object->text);
        else if (fe_kind_is_seq(value.kind))
            check_tree(v, s, id, value.as.seq);
    }
}

void pt2_verify_arguments(pt2_verifier *v, const pt2_scope *s, uint32_t id, const pt2_callee_facts *f)
{
    if (f->has_schema)
        check_schema(v, s, id, f);
    check_tree(v, s, id, s->core->details[id].args);
    check_tree(v, s, id, s->core->details[id].kwargs);
}
