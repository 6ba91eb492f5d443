/* write_results.c - the results of nodes before they are written: shapes, names, values.
 *
 * torch folds the getitems of a node that has several results into the node, and writes the value of each result into
 * tables of the graph. Here each result gets a slot: whose name it bears, what the document called it, and the value it
 * was given since. A table of the document's names then leads from an old name to its slot.
 */
#include "texts.h"
#include "write.h"

typedef struct {
    pt2_graph_writer *g;
    uint32_t id;
    pt2_callee callee;
    yyjson_val *node;  /* the document's Node, or NULL */
    yyjson_val *value; /* the given value: {"as_tensor": ...}, or NULL */
} producer;

/* ---- slots ---- */

static int new_slots(pt2_graph_writer *g, size_t count, uint32_t *first)
{
    fe_error err;

    *first = g->slot_count;
    if (count > UINT32_MAX / 2 - g->slot_count ||
        fe_grow(g->w->allocator, &g->slots, &g->slot_capacity, g->slot_count + count, sizeof *g->slots, &err) < 0) {
        pt2_write_no_memory(g->w);
        return -1;
    }
    for (size_t i = 0; i < count; i++)
        g->slots[g->slot_count + i] = (pt2_slot){.node = FE_NONE_ID};
    g->slot_count += (uint32_t)count;
    return 0;
}

/* What a result of the document is. */
static void read_slot(pt2_slot *s, yyjson_val *json)
{
    yyjson_val *inner;
    int kind = pt2_value_kind_of(pt2_tag(json, &inner));

    s->json = json;
    s->key = pt2_argument_name(json);
    s->kind = kind > 0 && s->key.data ? (uint8_t)kind : PT2_SLOT_NONE;
}

/* A given value that is no list. None takes nothing from a result that has a value in the document. */
static void give_value(pt2_slot *s, yyjson_val *value)
{
    yyjson_val *inner;
    int kind = pt2_value_kind_of(pt2_tag(value, &inner));

    if (kind == PT2_SLOT_NONE && s->key.data)
        return;
    s->kind = (uint8_t)kind;
    s->value = kind ? inner : NULL;
}

/* Slots of a list: names is the document's as_tensors, values the items of a given as_list; either may be NULL. */
static int add_items(pt2_graph_writer *g, uint32_t list, yyjson_val *names, yyjson_val *values)
{
    yyjson_arr_iter name_it = yyjson_arr_iter_with(names), value_it = yyjson_arr_iter_with(values);
    size_t count = yyjson_arr_size(names ? names : values);
    uint32_t first;

    if (new_slots(g, count, &first) < 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        pt2_slot *s = &g->slots[first + i];
        yyjson_val *value = yyjson_arr_iter_next(&value_it);
        s->kind = PT2_VALUE_TENSOR;
        s->json = yyjson_arr_iter_next(&name_it);
        s->key = pt2_argument_name(s->json);
        if (value)
            give_value(s, value);
    }
    if (list != FE_NONE_ID) {
        g->slots[list].kind = PT2_SLOT_LIST;
        g->slots[list].first = first;
        g->slots[list].count = (uint32_t)count;
    }
    return 0;
}

/* ---- values that were given ---- */

/* An input that is a constant is written as an argument; no table has it. */
static bool is_constant(yyjson_val *v)
{
    static const char *const tags[] = {"as_none", "as_bool", "as_int", "as_float", "as_string"};
    yyjson_val *inner;
    const char *tag = pt2_tag(v, &inner);

    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
        if (strcmp(tag, tags[i]) == 0)
            return true;
    return false;
}

static bool is_value(yyjson_val *v, unsigned depth, bool input)
{
    yyjson_val *inner, *item;
    yyjson_arr_iter it;

    if (!yyjson_is_obj(v) || yyjson_obj_size(v) != 1)
        return false;
    const char *tag = pt2_tag(v, &inner);
    if (strcmp(tag, "as_list") != 0)
        return pt2_value_kind_of(tag) >= 0 || (input && is_constant(v));
    if (!depth || !yyjson_is_arr(inner))
        return false;
    yyjson_arr_iter_init(inner, &it);
    while ((item = yyjson_arr_iter_next(&it)))
        if (!is_value(item, depth - 1, false))
            return false;
    return true;
}

/* Parse the value that a node was given; NULL: it has none. */
static int given_value(pt2_graph_writer *g, uint32_t id, yyjson_val **out)
{
    const pt2_node_text *text = pt2_text_of(g->graph, id);
    fe_error err;

    *out = NULL;
    if (!text || !text->value)
        return 0;
    if (fe_grow(g->w->allocator, &g->texts, &g->text_capacity, (size_t)g->text_count + 1, sizeof *g->texts, &err) < 0) {
        pt2_write_no_memory(g->w);
        return -1;
    }
    pt2_json *j = &g->texts[g->text_count];
    memset(j, 0, sizeof *j);
    if (pt2_json_parse_copy(j, text->value, strlen(text->value), g->w->allocator, NULL, g->w->report) < 0) {
        pt2_json_clear(j);
        g->w->failed = true;
        return g->w->report->no_memory ? -1 : 0;
    }
    g->text_count++;
    *out = yyjson_doc_get_root(j->doc);
    if (!is_value(*out, 2, g->core->nodes[id].op == FE_OP_PLACEHOLDER)) {
        pt2_write_fault(g, PT2_VALUE, id, "its meta['val'] is no TensorMeta, symbolic number or tuple of them");
        *out = NULL;
    }
    return 0;
}

static yyjson_val *list_of(yyjson_val *value)
{
    return value ? yyjson_obj_get(value, "as_list") : NULL;
}

/* ---- shapes ---- */

static bool is_flat(yyjson_val *list)
{
    size_t i, count;
    yyjson_val *item;

    yyjson_arr_foreach(list, i, count, item)
    {
        if (list_of(item))
            return false;
    }
    return true;
}

static bool returns_tuple(const producer *p)
{
    yyjson_val *flag = yyjson_obj_get(p->node, "is_hop_single_tensor_return");

    return p->callee.higher_order && !(flag && yyjson_is_true(flag));
}

static pt2_shape document_shape(const producer *p, yyjson_val *outputs)
{
    yyjson_val *inner, *only = yyjson_arr_get_first(outputs);

    if (!only)
        return PT2_SHAPE_NONE;
    if (yyjson_arr_size(outputs) > 1)
        return PT2_SHAPE_MANY;
    const char *tag = pt2_tag(only, &inner);
    if (strcmp(tag, "as_tensors") == 0)
        return PT2_SHAPE_LIST;
    return returns_tuple(p) && strcmp(tag, "as_none") != 0 ? PT2_SHAPE_MANY : PT2_SHAPE_SELF;
}

/* Whether the value that was given is of the document's shape. */
static bool value_agrees(yyjson_val *value, pt2_shape shape, yyjson_val *outputs)
{
    yyjson_val *list = list_of(value), *inner;
    yyjson_arr_iter outputs_it = yyjson_arr_iter_with(outputs);
    size_t i, count;
    yyjson_val *item;

    if (!value)
        return true;
    if (shape == PT2_SHAPE_NONE || !list != (shape == PT2_SHAPE_SELF))
        return false;
    if (shape == PT2_SHAPE_SELF)
        return true;
    if (shape == PT2_SHAPE_LIST) {
        (void)pt2_tag(yyjson_arr_get_first(outputs), &inner);
        return yyjson_arr_size(list) == yyjson_arr_size(inner) && is_flat(list);
    }
    if (yyjson_arr_size(list) != yyjson_arr_size(outputs))
        return false;
    yyjson_arr_foreach(list, i, count, item)
    {
        bool nested = strcmp(pt2_tag(yyjson_arr_iter_next(&outputs_it), &inner), "as_tensors") == 0;
        yyjson_val *items = list_of(item);
        if (!items != !nested || (nested && yyjson_arr_size(items) != yyjson_arr_size(inner)))
            return false;
    }
    return true;
}

/* Whether an operator's schema can have the document's outputs: of a node whose target was changed. */
static bool schema_agrees(const producer *p, pt2_shape shape, yyjson_val *outputs)
{
    const char *at = NULL;
    fe_schema_type type;

    if (!pt2_callee_has_schema(&p->callee))
        return shape == PT2_SHAPE_SELF;
    uint32_t count = pt2_callee_return_count(&p->callee);
    if (count != 1)
        return shape != PT2_SHAPE_LIST && shape != PT2_SHAPE_SELF && count == yyjson_arr_size(outputs);
    return pt2_callee_next_return(&p->callee, &at, &type) &&
           (type.lists ? shape == PT2_SHAPE_LIST : shape == PT2_SHAPE_SELF);
}

static int use_document(const producer *p, pt2_plan *plan, yyjson_val *outputs)
{
    pt2_graph_writer *g = p->g;
    yyjson_val *list = list_of(p->value), *inner, *json;
    yyjson_arr_iter values = yyjson_arr_iter_with(list);
    size_t i, count;

    plan->of_document = true;
    if (plan->shape == PT2_SHAPE_LIST) {
        (void)pt2_tag(yyjson_arr_get_first(outputs), &inner);
        plan->first = g->slot_count;
        plan->count = (uint32_t)yyjson_arr_size(inner);
        return add_items(g, FE_NONE_ID, inner, list);
    }
    plan->count = (uint32_t)yyjson_arr_size(outputs);
    if (new_slots(g, plan->count, &plan->first) < 0)
        return -1;
    yyjson_arr_foreach(outputs, i, count, json)
    {
        uint32_t slot = plan->first + (uint32_t)i;
        yyjson_val *value = list ? yyjson_arr_iter_next(&values) : plan->shape == PT2_SHAPE_SELF ? p->value : NULL;
        if (plan->shape == PT2_SHAPE_MANY && strcmp(pt2_tag(json, &inner), "as_tensors") == 0) {
            if (add_items(g, slot, inner, list_of(value)) < 0)
                return -1;
            g->slots[slot].json = json;
            continue;
        }
        read_slot(&g->slots[slot], json);
        if (value)
            give_value(&g->slots[slot], value);
    }
    return 0;
}

static int use_value(const producer *p, pt2_plan *plan)
{
    pt2_graph_writer *g = p->g;
    yyjson_val *list = list_of(p->value), *value;
    const char *at = NULL;
    fe_schema_type type;
    size_t i, count;

    if (!list) {
        plan->shape = PT2_SHAPE_SELF;
        plan->count = 1;
        if (new_slots(g, 1, &plan->first) < 0)
            return -1;
        give_value(&g->slots[plan->first], p->value);
        return 0;
    }
    plan->count = (uint32_t)yyjson_arr_size(list);
    if (pt2_callee_return_count(&p->callee) == 1 && pt2_callee_next_return(&p->callee, &at, &type) && type.lists &&
        is_flat(list)) {
        plan->shape = PT2_SHAPE_LIST;
        plan->first = g->slot_count;
        return add_items(g, FE_NONE_ID, NULL, list);
    }
    plan->shape = PT2_SHAPE_MANY;
    if (new_slots(g, plan->count, &plan->first) < 0)
        return -1;
    yyjson_arr_foreach(list, i, count, value)
    {
        uint32_t slot = plan->first + (uint32_t)i;
        if (!list_of(value))
            give_value(&g->slots[slot], value);
        else if (add_items(g, slot, NULL, list_of(value)) < 0)
            return -1;
    }
    return 0;
}

static bool returns_nothing(const producer *p)
{
    return pt2_callee_has_schema(&p->callee) && pt2_callee_return_count(&p->callee) == 0;
}

static bool is_removed(const pt2_graph_writer *g, uint32_t id)
{
    const pt2_node_text *text = pt2_text_of(g->graph, id);

    return text && text->removed;
}

static int use_nothing(const producer *p, pt2_plan *plan)
{
    fe_target_spelling spelling = fe_target_classify(p->callee.target.data, p->callee.target.len);

    plan->shape = PT2_SHAPE_NONE;
    if (returns_nothing(p))
        return 0;
    if (!is_removed(p->g, p->id) && (spelling == FE_SPELLING_HIGHER_ORDER || spelling == FE_SPELLING_FUNCTION)) {
        plan->shape = PT2_SHAPE_SELF; /* it returns None, which the file says */
        plan->count = 1;
        return new_slots(p->g, 1, &plan->first);
    }
    if (!pt2_name_is(p->callee.target, "_operator.getitem")) /* of which write_node.c says more */
        pt2_write_fault(p->g, PT2_VALUE, p->id,
                        "nothing tells what it returns; set its meta['val'] to a TensorMeta, or to a tuple of them");
    return 0;
}

/* ---- names ---- */

static bool is_taken(const pt2_graph_writer *g, pt2_name name)
{
    const fe_string *s = fe_string_find(&g->core->strings, name.data, name.len);
    uint32_t owner = s ? fe_name_owner(g->core, s) : FE_NONE_ID;

    return owner != FE_NONE_ID && fe_node_is_listed(g->core, owner);
}

/* NODE_unused_1, which torch gives to results that nobody takes; NODE_unused_1_0 to those of a list that nobody takes. */
static int name_unused(pt2_graph_writer *g, uint32_t node, pt2_slot *s, uint32_t i, const uint32_t *j)
{
    pt2_name base = pt2_node_name(g->core, node);
    fe_buffer b;
    int status = 0;

    fe_buffer_init(&b, g->w->allocator);
    fe_buffer_add(&b, base.data, base.len);
    fe_buffer_text(&b, "_unused_");
    fe_buffer_int(&b, i);
    if (j) {
        fe_buffer_char(&b, '_');
        fe_buffer_int(&b, *j);
    }
    while (!b.failed && is_taken(g, (pt2_name){b.data, b.len}))
        fe_buffer_text(&b, "_");
    char *text = b.failed ? NULL : fe_arena_take(&g->arena, b.len + 1);
    if (text) {
        memcpy(text, b.data, b.len);
        s->name = (pt2_name){text, b.len};
    } else {
        pt2_write_no_memory(g->w);
        status = -1;
    }
    fe_buffer_clear(&b);
    return status;
}

/* node: what gives the results, or takes the list that it is in. */
static int name_slot(pt2_graph_writer *g, uint32_t node, pt2_slot *s, uint32_t i, const uint32_t *j)
{
    if (s->kind == PT2_SLOT_NONE || s->kind == PT2_SLOT_LIST)
        return 0;
    if (s->node != FE_NONE_ID)
        s->name = pt2_node_name(g->core, s->node);
    else if (s->key.data && !is_taken(g, s->key))
        s->name = s->key;
    else
        return name_unused(g, node, s, i, j);
    return 0;
}

/* ---- getitems ---- */

static bool is_getitem_of(const pt2_graph_writer *g, uint32_t id, uint32_t def, int64_t *index)
{
    const fe_detail *d = &g->core->details[id];

    if (g->core->nodes[id].op != FE_OP_CALL_FUNCTION || !d->args || d->args->len != 2 || (d->kwargs && d->kwargs->len))
        return false;
    if (d->args->items[0].kind != FE_NODE || d->args->items[0].as.node != def || d->args->items[1].kind != FE_INT)
        return false;
    *index = d->args->items[1].as.integer;
    return pt2_name_is(pt2_target_text(g->graph, id), "_operator.getitem");
}

/* A getitem takes over a result, and its own value is that result's. */
static int take_result(pt2_graph_writer *g, uint32_t getitem, uint32_t slot)
{
    yyjson_val *value;

    g->plans[getitem] = (pt2_plan){.shape = PT2_SHAPE_TAKEN, .first = slot, .count = 1};
    g->slots[slot].node = getitem;
    if (g->slots[slot].kind == PT2_SLOT_LIST)
        return 0;
    if (given_value(g, getitem, &value) < 0)
        return -1;
    if (value && !list_of(value))
        give_value(&g->slots[slot], value);
    return 0;
}

static int take_results(pt2_graph_writer *g, uint32_t def, uint32_t first, uint32_t count)
{
    for (uint32_t e = g->core->details[def].first_user; e != FE_NONE_ID; e = g->core->edges[e].next) {
        uint32_t user = g->core->edges[e].user;
        int64_t index;
        if (!fe_node_is_listed(g->core, user) || !is_getitem_of(g, user, def, &index))
            continue;
        if (index < 0 || index >= count)
            continue; /* written as a node, which is a fault */
        uint32_t slot = first + (uint32_t)index;
        if (g->slots[slot].node != FE_NONE_ID) {
            g->plans[user] = (pt2_plan){.shape = PT2_SHAPE_TAKEN, .first = slot, .count = 1};
            if (g->w->flags & PT2_WRITE_AS_TORCH && g->slots[slot].kind != PT2_SLOT_LIST)
                continue; /* the first stands for it */
            pt2_write_fault(g, PT2_GRAPH, user,
                            "it takes the same result of '%s' as '%s' does; run the pass eliminate_getitems first",
                            g->core->details[def].name->data, g->core->details[g->slots[slot].node].name->data);
            continue;
        }
        if (take_result(g, user, slot) < 0)
            return -1;
        if (g->slots[slot].kind == PT2_SLOT_LIST &&
            take_results(g, user, g->slots[slot].first, g->slots[slot].count) < 0)
            return -1;
    }
    return 0;
}

static int name_items(pt2_graph_writer *g, uint32_t id, const pt2_slot *list, uint32_t i)
{
    for (uint32_t j = 0; j < list->count; j++) {
        pt2_slot *s = &g->slots[list->first + j];
        int status = list->node == FE_NONE_ID ? name_slot(g, id, s, i, &j) : name_slot(g, list->node, s, j, NULL);
        if (status < 0)
            return -1;
    }
    return 0;
}

static int name_results(pt2_graph_writer *g, uint32_t id, const pt2_plan *plan)
{
    for (uint32_t i = 0; i < plan->count; i++) {
        pt2_slot *s = &g->slots[plan->first + i];
        if (name_slot(g, id, s, i, NULL) < 0 || (s->kind == PT2_SLOT_LIST && name_items(g, id, s, i) < 0))
            return -1;
    }
    return 0;
}

/* ---- nodes ---- */

static int plan_call(pt2_graph_writer *g, uint32_t id)
{
    const pt2_origin *origin = pt2_origin_of(g->graph, id, PT2_FROM_NODE);
    pt2_plan plan = {.shape = PT2_SHAPE_NONE};
    producer p = {.g = g, .id = id, .callee = pt2_callee_of(g->w, g->graph, id), .node = origin ? origin->json : NULL};
    yyjson_val *outputs = p.node ? pt2_field(p.node, "outputs") : NULL;
    int status;

    if (g->plans[id].shape == PT2_SHAPE_TAKEN || !p.callee.target.data)
        return 0;
    if (given_value(g, id, &p.value) < 0)
        return -1;
    if (p.value && returns_nothing(&p))
        p.value = NULL; /* it can only say None */
    if (is_removed(g, id))
        outputs = NULL; /* what the document says of them is no longer so */
    if (outputs) {
        plan.shape = (uint8_t)document_shape(&p, outputs);
        if (!value_agrees(p.value, (pt2_shape)plan.shape, outputs) ||
            (!pt2_name_equal(p.callee.target, pt2_name_of_json(pt2_field(p.node, "target"))) &&
             !schema_agrees(&p, (pt2_shape)plan.shape, outputs)))
            outputs = NULL;
    }
    status = outputs ? use_document(&p, &plan, outputs) : p.value ? use_value(&p, &plan) : use_nothing(&p, &plan);
    if (status < 0)
        return -1;
    g->plans[id] = plan;
    if (plan.shape == PT2_SHAPE_SELF)
        g->slots[plan.first].node = id;
    else if (take_results(g, id, plan.first, plan.count) < 0)
        return -1;
    return name_results(g, id, &plan);
}

static int plan_input(pt2_graph_writer *g, uint32_t id)
{
    const pt2_origin *origin = pt2_origin_of(g->graph, id, PT2_FROM_INPUT);
    yyjson_val *value;
    uint32_t slot;

    if (given_value(g, id, &value) < 0 || new_slots(g, 1, &slot) < 0)
        return -1;
    g->plans[id] = (pt2_plan){.shape = PT2_SHAPE_SELF, .of_document = origin, .first = slot, .count = 1};
    if (origin)
        read_slot(&g->slots[slot], origin->json);
    bool constant = value && is_constant(value);
    if (constant && !origin)
        g->slots[slot].json = value;
    else if (value && !constant && !list_of(value) && !(origin && !g->slots[slot].kind)) /* a constant input has none */
        give_value(&g->slots[slot], value);
    if ((!origin && !g->slots[slot].kind && !constant) || is_removed(g, id))
        pt2_write_fault(g, PT2_VALUE, id, "nothing tells what this input is; set its meta['val'] to a TensorMeta");
    g->slots[slot].node = id;
    return name_slot(g, id, &g->slots[slot], 0, NULL);
}

/* ---- names of the document ---- */

static uint64_t hash_name(pt2_name name)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < name.len; i++)
        h = (h ^ (unsigned char)name.data[i]) * UINT64_C(0x100000001b3);
    return fe_mix(h);
}

static pt2_known *known_at(const pt2_graph_writer *g, pt2_name key)
{
    uint32_t at = (uint32_t)hash_name(key) & g->known_mask;

    while (g->known[at].key.data && !pt2_name_equal(g->known[at].key, key))
        at = (at + 1) & g->known_mask;
    return &g->known[at];
}

static void know(pt2_graph_writer *g, pt2_name key, uint32_t slot)
{
    if (!key.data)
        return;
    pt2_known *k = known_at(g, key);
    if (!k->key.data) {
        *k = (pt2_known){key, slot};
        g->known_count++;
    }
}

/* All names in outputs or inputs of the document; know NULL: only count them. */
static size_t each_name(pt2_graph_writer *g, yyjson_val *arguments, bool add)
{
    size_t i, count, j, inner_count, names = 0;
    yyjson_val *json, *item, *inner;

    yyjson_arr_foreach(arguments, i, count, json)
    {
        bool list = strcmp(pt2_tag(json, &inner), "as_tensors") == 0;
        names += list ? yyjson_arr_size(inner) : 1;
        if (add && !list)
            know(g, pt2_argument_name(json), FE_NONE_ID);
        if (add && list)
            yyjson_arr_foreach(inner, j, inner_count, item)
            {
                know(g, pt2_argument_name(item), FE_NONE_ID);
            }
    }
    return names;
}

static size_t each_document_name(pt2_graph_writer *g, bool add)
{
    yyjson_val *nodes = pt2_field(g->graph->json, "nodes"), *node;
    size_t i, count, names = each_name(g, pt2_field(g->graph->json, "inputs"), add);

    yyjson_arr_foreach(nodes, i, count, node)
    {
        names += each_name(g, pt2_field(node, "outputs"), add);
    }
    return names;
}

static int know_names(pt2_graph_writer *g)
{
    size_t need = 2 * (each_document_name(g, false) + g->slot_count), size = 8;

    while (size < need && size < (size_t)1 << 31)
        size *= 2;
    g->known = size < SIZE_MAX / sizeof *g->known ? fe_resize(g->w->allocator, NULL, size * sizeof *g->known) : NULL;
    if (!g->known) {
        pt2_write_no_memory(g->w);
        return -1;
    }
    memset(g->known, 0, size * sizeof *g->known);
    g->known_mask = (uint32_t)(size - 1);
    for (uint32_t i = 0; i < g->slot_count; i++)
        know(g, g->slots[i].key, i);
    (void)each_document_name(g, true);
    return 0;
}

const pt2_slot *pt2_writer_find(pt2_graph_writer *g, pt2_name key, bool *removed)
{
    *removed = false;
    if (!g->known && know_names(g) < 0)
        return NULL;
    const pt2_known *k = key.data ? known_at(g, key) : NULL;
    *removed = k && k->key.data && k->slot == FE_NONE_ID;
    return k && k->key.data && k->slot != FE_NONE_ID ? &g->slots[k->slot] : NULL;
}

/* ---- the whole graph ---- */

/* torch writes names into code that it runs: one that is new is checked before a file can hold it. */
static void check_name(pt2_graph_writer *g, uint32_t id)
{
    const fe_string *name = g->core->details[id].name;
    const char *fault;

    if (id < g->graph->origin_count && g->graph->origins[id].name == name)
        return;
    fault = pt2_name_fault(name->data, name->len);
    if (fault)
        pt2_write_fault(g, PT2_NAME, id, "its name '%.100s' can't stand in code: it %s; give it another", name->data,
                        fault);
}

int pt2_writer_plan(pt2_graph_writer *g)
{
    size_t size = g->core->node_count * sizeof *g->plans;

    g->plans = fe_resize(g->w->allocator, NULL, size ? size : 1);
    if (!g->plans) {
        pt2_write_no_memory(g->w);
        return -1;
    }
    memset(g->plans, 0, size);
    for (uint32_t id = fe_node_next(g->core, FE_ROOT); id != FE_ROOT; id = fe_node_next(g->core, id)) {
        fe_op op = (fe_op)g->core->nodes[id].op;
        check_name(g, id);
        if ((op == FE_OP_PLACEHOLDER && plan_input(g, id) < 0) || (op == FE_OP_CALL_FUNCTION && plan_call(g, id) < 0))
            return -1;
    }
    return 0;
}

void pt2_writer_clear(pt2_graph_writer *g)
{
    const fe_allocator *a = g->w->allocator;

    for (uint32_t i = 0; i < g->text_count; i++)
        pt2_json_clear(&g->texts[i]);
    fe_resize(a, g->texts, 0);
    fe_resize(a, g->plans, 0);
    fe_resize(a, g->slots, 0);
    fe_resize(a, g->known, 0);
    fe_resize(a, g->items, 0);
    fe_arena_clear(&g->arena);
}
