/* verify_call.c - what nodes call, and which of its results others take. See verify.h.
 *
 * The facts of a target are found out when its first node comes; an operator's schema is unpacked once.
 */
#include "verify.h"

/* ---- facts ---- */

static int unpack_schema(pt2_verifier *v, pt2_callee_facts *f)
{
    const char *at = NULL;
    fe_argument a;

    f->first = v->argument_count;
    f->has_schema = f->op->kind == FE_SPELLING_OPERATOR || f->op->kind == FE_SPELLING_SYM;
    f->has_schema = f->has_schema && fe_operator_has_schema(f->op);
    if (!f->has_schema)
        return 0;
    f->returns_nothing = f->op->kind == FE_SPELLING_OPERATOR && fe_operator_return_count(f->op) == 0;
    while (fe_operator_next_argument(f->op, &at, &a)) {
        if (pt2_verify_grow(v, &v->arguments, &v->argument_capacity, (size_t)v->argument_count + 1, sizeof a) < 0)
            return -1;
        v->arguments[v->argument_count++] = a;
        f->count++;
        f->positional += !a.keyword_only;
    }
    return 0;
}

static int look_up(pt2_verifier *v, const pt2_scope *s, const fe_target *target, pt2_callee_facts *f)
{
    const pt2_object *object = pt2_verify_object(s, target->object);

    *f = (pt2_callee_facts){.looked_up = true};
    if (!object || object->kind != PT2_OBJECT_TARGET || !object->text)
        return 0;
    f->text = object->text;
    f->len = strlen(f->text);
    f->spelling = (uint8_t)fe_target_classify(f->text, f->len);
    f->op = fe_operator_find(f->text, f->len);
    f->getitem = strcmp(f->text, "_operator.getitem") == 0;
    if (!f->op) {
        f->writes = fe_target_guess(f->text, f->len) & FE_TARGET_MUTATES;
        return 0;
    }
    f->writes = !fe_operator_is_functional(f->op);
    return f->getitem ? 0 : unpack_schema(v, f);
}

/* ---- subgraphs ---- */

static uint32_t count_inputs(const fe_graph *g)
{
    uint32_t count = 0;

    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT && g->nodes[id].op == FE_OP_PLACEHOLDER;
         id = g->nodes[id].next)
        count++;
    return count;
}

/* The subgraph that a value stands for, or NULL. */
static const pt2_graph *subgraph_of(const pt2_scope *s, fe_value value)
{
    const fe_node *n = value.kind == FE_NODE ? &s->core->nodes[value.as.node] : NULL;
    const fe_string *name = n && n->op == FE_OP_GET_ATTR ? s->core->targets[n->target].text : NULL;
    const fe_string *t = name ? fe_string_find(&s->subgraphs.strings, name->data, name->len) : NULL;

    return t && s->graph->subgraphs[t->owner]->core ? s->graph->subgraphs[t->owner] : NULL;
}

static void check_operands(pt2_verifier *v, const pt2_scope *s, uint32_t id, fe_value graph, uint32_t operands)
{
    const pt2_graph *inner = subgraph_of(s, graph);
    uint32_t inputs = inner ? count_inputs(inner->core) : operands;

    if (inputs != operands)
        pt2_verify_node(v, s, PT2_GRAPH, PT2_ERROR, id, NULL,
                        "it calls the subgraph '%.200s' with %u operands, but that has %u inputs",
                        inner->name ? inner->name : "", operands, inputs);
}

static bool is_items(fe_value value)
{
    return value.kind == FE_LIST || value.kind == FE_TUPLE;
}

/* A higher-order operator: where its subgraphs are among its arguments, and the lists of what they are called with. */
typedef struct {
    const char *name;
    uint8_t arguments, first_graph, graphs;
    uint8_t first_list, lists;
    uint8_t times; /* how often each item of the first list is an operand */
} hop_form;

static const hop_form hop_forms[] = {
    {"cond", 4, 1, 2, 3, 1, 1},             /* (predicate, true, false, operands) */
    {"while_loop", 4, 0, 2, 2, 2, 1},       /* (cond, body, carried, more) */
    {"scan", 4, 0, 1, 1, 3, 1},             /* (combine, carried, of each step, more) */
    {"map_impl", 3, 0, 1, 1, 2, 1},         /* (graph, of each step, more) */
    {"associative_scan", 3, 0, 1, 1, 2, 2}, /* (combine, of each step, more) */
};

/* How many operands the lists of a call make up; false: they are no lists. */
static bool count_operands(const hop_form *form, const fe_seq *args, uint32_t *out)
{
    uint64_t count = 0;

    for (uint32_t i = form->first_list; i < (uint32_t)form->first_list + form->lists; i++) {
        if (!is_items(args->items[i]))
            return false;
        count += (uint64_t)args->items[i].as.seq->len * (i == form->first_list ? form->times : 1);
    }
    *out = count < UINT32_MAX ? (uint32_t)count : UINT32_MAX;
    return true;
}

static void check_higher_order(pt2_verifier *v, const pt2_scope *s, uint32_t id, const pt2_callee_facts *f)
{
    const fe_seq *args = s->core->details[id].args;
    const char *name = f->text + strlen("torch.ops.higher_order.");
    uint32_t count = args ? args->len : 0, operands;

    if (strcmp(name, "invoke_subgraph") == 0 && count >= 2)
        check_operands(v, s, id, args->items[0], count - 2); /* (graph, name, *operands) */
    for (size_t i = 0; i < sizeof hop_forms / sizeof *hop_forms; i++) {
        const hop_form *form = &hop_forms[i];
        if (strcmp(name, form->name) != 0 || count != form->arguments || !count_operands(form, args, &operands))
            continue;
        for (uint32_t k = 0; k < form->graphs; k++)
            check_operands(v, s, id, args->items[form->first_graph + k], operands);
    }
}

/* ---- calls ---- */

/* Importing torch registers the operators of the table, but for those that quantization by PT2E puts in. */
static bool is_registered(const pt2_callee_facts *f)
{
    static const char quantized[] = "torch.ops.quantized_decomposed.";

    return strncmp(f->text, quantized, sizeof quantized - 1) != 0;
}

static void check_target(pt2_verifier *v, const pt2_scope *s, uint32_t id, const pt2_callee_facts *f)
{
    if (!f->text)
        pt2_verify_node(
            v, s, PT2_TARGET, PT2_ERROR, id, NULL,
            "it calls something that no file can name; use an operator, such as torch.ops.aten.relu.default");
    else if (f->spelling == FE_SPELLING_BAD)
        pt2_verify_node(v, s, PT2_TARGET, PT2_ERROR, id, "target",
                        "'%.200s' is no operator or function that an exported program may call", f->text);
    else if (strcmp(f->text, "_operator.pos") == 0)
        pt2_verify_node(v, s, PT2_TARGET, PT2_ERROR, id, "target",
                        "torch can read %.200s, but its verifier does not allow it; use the operand itself", f->text);
    else if (!f->op)
        pt2_verify_node(
            v, s, PT2_UNKNOWN_OPERATOR, PT2_WARNING, id, "target",
            "unknown operator '%.200s': its arguments can't be checked, and torch loads this program only where "
            "the operator is registered",
            f->text);
    else if (!is_registered(f))
        pt2_verify_node(v, s, PT2_UNKNOWN_OPERATOR, PT2_WARNING, id, "target",
                        "'%.200s' is none that importing torch registers: torch loads this program only after import "
                        "torch.ao.quantization.fx._decomposed, or torchao.quantization.pt2e",
                        f->text);
}

static bool is_getitem(const pt2_scope *s, uint32_t id)
{
    const fe_detail *d = &s->core->details[id];

    return d->args && d->args->len == 2 && d->args->items[0].kind == FE_NODE && !(d->kwargs && d->kwargs->len);
}

static void check_call(pt2_verifier *v, const pt2_scope *s, uint32_t id, const pt2_callee_facts *f)
{
    if (f->writes && v->functional)
        pt2_verify_node(v, s, PT2_MUTATION, PT2_ERROR, id, "target",
                        "%.200s writes to its arguments, which no dialect but TRAINING allows; use its functional form",
                        f->text);
    if (f->returns_nothing && s->core->nodes[id].user_count)
        pt2_verify_node(v, s, PT2_GRAPH, PT2_ERROR, id, NULL, "%.200s returns nothing, but other nodes use the result",
                        f->text);
    if (f->getitem && !is_getitem(s, id))
        pt2_verify_node(v, s, PT2_ARGUMENT, PT2_ERROR, id, NULL, "getitem takes a node and an index, and nothing else");
    if (f->spelling == FE_SPELLING_HIGHER_ORDER)
        check_higher_order(v, s, id, f);
    pt2_verify_arguments(v, s, id, f);
}

/* ---- getitems ---- */

#define NOT_KNOWN UINT32_MAX
#define NOT_A_LIST (UINT32_MAX - 1)

static uint32_t count_outputs(const pt2_origin *o, const pt2_callee_facts *f)
{
    yyjson_val *outputs = yyjson_obj_get(o->json, "outputs"), *inner, *flag;
    size_t count = yyjson_arr_size(outputs);

    if (count != 1)
        return count < NOT_A_LIST ? (uint32_t)count : NOT_KNOWN;
    const char *tag = pt2_verify_tag(yyjson_arr_get_first(outputs), &inner);
    if (tag && strcmp(tag, "as_tensors") == 0)
        return yyjson_arr_size(inner) < NOT_A_LIST ? (uint32_t)yyjson_arr_size(inner) : NOT_KNOWN;
    flag = yyjson_obj_get(o->json, "is_hop_single_tensor_return");
    return f && f->spelling == FE_SPELLING_HIGHER_ORDER && !yyjson_is_true(flag) ? 1 : NOT_A_LIST;
}

static uint32_t count_inner(const pt2_origin *o)
{
    yyjson_val *outputs = yyjson_obj_get(o->json, "outputs"), *inner;
    const char *tag = pt2_verify_tag(yyjson_arr_get(outputs, o->output), &inner);

    return tag && strcmp(tag, "as_tensors") == 0 && yyjson_arr_size(inner) < NOT_A_LIST
               ? (uint32_t)yyjson_arr_size(inner)
               : NOT_KNOWN;
}

/* How many results a node has, as a list or tuple. */
static int count_results(pt2_verifier *v, const pt2_scope *s, uint32_t id, uint32_t *out)
{
    const fe_node *n = &s->core->nodes[id];
    const pt2_callee_facts *f = n->op == FE_OP_CALL_FUNCTION ? &s->callees[n->target] : NULL;
    pt2_node_value value;

    *out = NOT_KNOWN;
    if (id < s->graph->text_count && s->graph->texts && s->graph->texts[id].given) {
        if (pt2_verify_read_value(v, s, id, &value) < 0)
            return -1;
        *out = value.list ? (uint32_t)yyjson_arr_size(value.list) : value.json ? NOT_A_LIST : NOT_KNOWN;
        pt2_verify_clear_value(&value);
        return 0;
    }
    if (id >= s->graph->origin_count)
        return 0;
    const pt2_origin *o = &s->graph->origins[id];
    if (o->source == PT2_FROM_INPUT || o->value)
        *out = NOT_A_LIST;
    else if (o->source == PT2_FROM_NODE)
        *out = count_outputs(o, f);
    else if (o->source == PT2_FROM_RESULT)
        *out = count_inner(o);
    return 0;
}

static bool is_getitem_of(const pt2_scope *s, uint32_t id, uint32_t def)
{
    const fe_node *n = &s->core->nodes[id];

    return n->op == FE_OP_CALL_FUNCTION && s->callees[n->target].getitem && is_getitem(s, id) &&
           s->core->details[id].args->items[0].as.node == def;
}

static void check_index(pt2_verifier *v, const pt2_scope *s, uint32_t id, uint32_t def, uint32_t results, int64_t index)
{
    const char *name = s->core->details[def].name ? s->core->details[def].name->data : "";

    if (results == NOT_A_LIST)
        pt2_verify_node(
            v, s, PT2_GRAPH, PT2_ERROR, id, NULL,
            "getitem takes a result of '%.200s', which has only one; use '%.200s' itself, or aten.select.int", name,
            name);
    else if (index < 0)
        pt2_verify_node(v, s, PT2_GRAPH, PT2_ERROR, id, NULL,
                        "getitem takes a result of '%.200s' by the index %lld; count from the front", name,
                        (long long)index);
    else if (results != NOT_KNOWN && index >= results)
        pt2_verify_node(v, s, PT2_GRAPH, PT2_ERROR, id, NULL,
                        "getitem takes result %lld of '%.200s', which has only %u", (long long)index, name, results);
}

/* The getitems of one node. seen: by index, the node whose getitem came last, of seen_count. */
static int check_getitems(pt2_verifier *v, const pt2_scope *s, uint32_t def, uint32_t **seen, uint32_t *seen_count)
{
    uint32_t results = 0, capacity = *seen_count;
    bool counted = false;

    for (uint32_t e = s->core->details[def].first_user; e != FE_NONE_ID; e = s->core->edges[e].next) {
        uint32_t user = s->core->edges[e].user;
        if (!is_getitem_of(s, user, def))
            continue;
        fe_value index = s->core->details[user].args->items[1];
        if (index.kind != FE_INT) {
            pt2_verify_node(v, s, PT2_ARGUMENT, PT2_ERROR, user, NULL, "getitem takes an int as its index");
            continue;
        }
        if (!counted && count_results(v, s, def, &results) < 0)
            return -1;
        counted = true;
        check_index(v, s, user, def, results, index.as.integer);
        if (results == NOT_A_LIST || results == NOT_KNOWN || index.as.integer < 0 || index.as.integer >= results)
            continue;
        if (pt2_verify_grow(v, seen, &capacity, results, sizeof **seen) < 0)
            return -1;
        if (capacity > *seen_count)
            memset(*seen + *seen_count, 0, (capacity - *seen_count) * sizeof **seen);
        *seen_count = capacity;
        if ((*seen)[index.as.integer] == def)
            pt2_verify_node(
                v, s, PT2_GRAPH, PT2_WARNING, user, NULL,
                "it takes the same result as another getitem; the pass eliminate_getitems puts them together");
        (*seen)[index.as.integer] = def;
    }
    return 0;
}

static int check_all_getitems(pt2_verifier *v, const pt2_scope *s)
{
    uint32_t *seen = NULL, seen_count = 0;
    int result = 0;

    for (uint32_t id = s->core->nodes[FE_ROOT].next; result == 0 && id != FE_ROOT; id = s->core->nodes[id].next) {
        if (s->core->nodes[id].user_count)
            result = check_getitems(v, s, id, &seen, &seen_count);
    }
    fe_resize(v->allocator, seen, 0);
    return result;
}

int pt2_verify_calls(pt2_verifier *v, pt2_scope *s)
{
    const fe_graph *g = s->core;
    bool getitems = false;

    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT; id = g->nodes[id].next) {
        pt2_callee_facts *f = &s->callees[g->nodes[id].target];
        if (g->nodes[id].op != FE_OP_CALL_FUNCTION)
            continue;
        if (!f->looked_up) {
            if (look_up(v, s, &g->targets[g->nodes[id].target], f) < 0)
                return -1;
            if (!f->getitem)
                check_target(v, s, id, f);
        }
        getitems |= f->getitem;
        check_call(v, s, id, f);
    }
    return getitems && !v->is_new ? check_all_getitems(v, s) : 0;
}
