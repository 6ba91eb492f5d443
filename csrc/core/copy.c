/* copy.c - copying and comparing whole graphs.
 *
 * Copying goes in three walks, since an operand may stand after its user in a graph under construction: records, then
 * arguments, then the order of users.
 */
#include "ir.h"

/* torch.fx's counters after a deepcopy are those of its naming rules run over all names. */
static int count_name(fe_graph *g, const fe_string *name, fe_error *err)
{
    char buffer[1];

    for (uint32_t i = 0; i < name->len; i++) {
        char c = name->data[i];
        bool word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!word || (i == 0 && c <= '9'))
            return 0; /* never the rules' own; it has no counter */
    }
    fe_candidate c = fe_name_split(name->data, name->len, buffer);
    if (c.number < 0)
        return 0;
    fe_string *base = fe_string_get(g, c.base, c.base_len, err);
    return base ? fe_name_set_counter(g, base, c.number, err) : -1;
}

static int copy_target(fe_graph *g, const fe_target *t, const uint32_t *objects, uint32_t *out, fe_error *err)
{
    bool is_new;
    fe_string *text = t->text ? fe_string_get(g, t->text->data, t->text->len, err) : NULL;

    if (t->text && !text)
        return -1;
    if (fe_target_get(g, (fe_op)t->op, t->object == FE_NONE_ID ? FE_NONE_ID : objects[t->object], text, out, &is_new,
                      err) < 0)
        return -1;
    if (is_new) {
        g->targets[*out].flags = t->flags;
        g->targets[*out].text = text;
    }
    return 0;
}

static int copy_meta(fe_graph *g, uint32_t id, const fe_meta *m, const uint32_t *objects, fe_error *err)
{
    if (!m || !m->len)
        return 0;
    if (fe_meta_reserve(g, id, m->len, err) < 0)
        return -1;
    for (uint32_t i = 0; i < m->len; i++) {
        if (fe_meta_set(g, id, m->entries[i].key, objects[m->entries[i].object], err) < 0)
            return -1;
    }
    return 0;
}

static int copy_record(fe_graph *g, const fe_graph *from, uint32_t old, const uint32_t *objects, uint32_t *out,
                       fe_error *err)
{
    const fe_detail *n = &from->details[old];
    uint32_t target;

    if (copy_target(g, &from->targets[from->nodes[old].target], objects, &target, err) < 0)
        return -1;
    fe_string *name = fe_string_get(g, n->name->data, n->name->len, err);
    if (!name || count_name(g, name, err) < 0)
        return -1;
    uint32_t type = n->type == FE_NONE_ID ? FE_NONE_ID : objects[n->type];
    if (fe_node_new(g, (fe_op)from->nodes[old].op, target, name, type, out, err) < 0)
        return -1;
    fe_node_place(g, *out, (fe_point){FE_ROOT, false});
    return copy_meta(g, *out, n->meta, objects, err);
}

static int copy_arguments(fe_graph *g, const fe_detail *n, uint32_t id, const fe_value_map *map, fe_error *err)
{
    fe_seq *args, *kwargs;

    if (fe_seq_copy(g, map, n->args, &args, err) < 0)
        return -1;
    if (fe_seq_copy(g, map, n->kwargs, &kwargs, err) < 0 || fe_node_set_arguments(g, id, args, kwargs, err) < 0) {
        fe_seq_free(g, args);
        return -1;
    }
    return 0;
}

/* The edge of the copy that stands for an edge of the source. Most often it has the same place among its user's operands. */
static uint32_t copied_edge(const fe_graph *g, const fe_graph *from, uint32_t e, const uint32_t *node_map)
{
    const fe_edge *edge = &from->edges[e];
    uint32_t def = node_map[edge->def], user = node_map[edge->user];
    uint32_t guess = g->nodes[user].edge + (e - from->nodes[edge->user].edge);

    return g->edges[guess].def == def ? guess : fe_edge_find(g, def, user);
}

/* Users in the order they have in the source. */
static void copy_user_order(fe_graph *g, const fe_graph *from, uint32_t old, const uint32_t *node_map)
{
    for (uint32_t e = from->details[old].first_user; e != FE_NONE_ID; e = from->edges[e].next)
        fe_edge_move_last(g, copied_edge(g, from, e, node_map));
}

/* A string of another graph in g; NULL stays NULL. */
static int copy_string(fe_graph *g, fe_string **s, fe_error *err)
{
    if (*s)
        *s = fe_string_get(g, (*s)->data, (*s)->len, err);
    else
        return 0;
    return *s ? 0 : -1;
}

static int copy_called(fe_graph *g, const fe_signature *s, const uint32_t *node_map, fe_error *err)
{
    for (uint32_t i = 0; i < s->called_count; i++) {
        fe_called called = s->called[i];
        if (called.node != FE_NONE_ID)
            called.node = node_map[called.node];
        if (copy_string(g, &called.name, err) < 0 ||
            fe_signature_add_called(g->signature, called.name, called.node, err) < 0)
            return -1;
    }
    return 0;
}

static int copy_specs(fe_graph *g, const fe_graph *from, const uint32_t *node_map, fe_error *err)
{
    const fe_signature *s = from->signature;

    if (!s)
        return 0;
    g->signature = fe_signature_new(g->allocator);
    if (!g->signature)
        return fe_no_memory(err);
    for (uint32_t i = 0; i < s->input_count + s->output_count; i++) {
        bool input = i < s->input_count;
        fe_spec spec = input ? s->inputs[i] : s->outputs[i - s->input_count];
        if (spec.node != FE_NONE_ID)
            spec.node = node_map[spec.node];
        if (copy_string(g, &spec.target, err) < 0 || copy_string(g, &spec.name, err) < 0 ||
            (spec.value.kind == FE_STR && copy_string(g, &spec.value.as.string, err) < 0))
            return -1;
        if ((input ? fe_signature_add_input : fe_signature_add_output)(g->signature, spec, err) < 0)
            return -1;
    }
    return copy_called(g, s, node_map, err);
}

int fe_graph_copy(fe_graph *g, const fe_graph *from, const uint32_t *objects, uint32_t *node_map, fe_error *err)
{
    fe_value_map map = {.nodes = node_map, .objects = objects};
    uint32_t id;

    memset(node_map, 0xff, from->node_count * sizeof *node_map);
    node_map[FE_ROOT] = FE_ROOT;
    if (fe_graph_reserve(g, from->live, err) < 0)
        return -1;
    for (id = from->nodes[FE_ROOT].next; id != FE_ROOT; id = from->nodes[id].next) {
        if (copy_record(g, from, id, objects, &node_map[id], err) < 0)
            return -1;
    }
    for (id = from->nodes[FE_ROOT].next; id != FE_ROOT; id = from->nodes[id].next) {
        if (copy_arguments(g, &from->details[id], node_map[id], &map, err) < 0)
            return -1;
    }
    for (id = from->nodes[FE_ROOT].next; id != FE_ROOT; id = from->nodes[id].next)
        copy_user_order(g, from, id, node_map);
    return copy_specs(g, from, node_map, err);
}

/* ---- comparing ---- */

typedef struct {
    const uint32_t *class_a, *class_b;
    const uint32_t *place_a, *place_b; /* of each node in its list */
} comparison;

static bool seqs_equal(const comparison *c, const fe_seq *a, const fe_seq *b);

static bool objects_equal(const comparison *c, uint32_t a, uint32_t b)
{
    if (a == FE_NONE_ID || b == FE_NONE_ID)
        return a == b;
    return c->class_a[a] == c->class_b[b];
}

static bool strings_equal(const fe_string *a, const fe_string *b)
{
    return a->hash == b->hash && a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

static bool values_equal(const comparison *c, fe_value a, fe_value b)
{
    if (a.kind != b.kind)
        return false;
    if (a.kind == FE_NODE)
        return c->place_a[a.as.node] == c->place_b[b.as.node];
    if (a.kind == FE_OBJECT)
        return objects_equal(c, a.as.object, b.as.object);
    if (a.kind == FE_STR)
        return strings_equal(a.as.string, b.as.string);
    if (fe_kind_is_seq(a.kind))
        return seqs_equal(c, a.as.seq, b.as.seq);
    return fe_value_equal(a, b, NULL);
}

static bool seqs_equal(const comparison *c, const fe_seq *a, const fe_seq *b)
{
    if (!a || !b)
        return (a ? a->len : 0) == (b ? b->len : 0);
    if (a->len != b->len || !objects_equal(c, a->type, b->type))
        return false;
    for (uint32_t i = 0; i < a->len; i++) {
        if (!values_equal(c, a->items[i], b->items[i]))
            return false;
    }
    return true;
}

static bool nodes_equal(const comparison *c, const fe_graph *a, uint32_t i, const fe_graph *b, uint32_t k)
{
    const fe_target *s = &a->targets[a->nodes[i].target], *t = &b->targets[b->nodes[k].target];
    const fe_detail *m = &a->details[i], *n = &b->details[k];

    if (a->nodes[i].op != b->nodes[k].op || !objects_equal(c, s->object, t->object))
        return false;
    if (s->object == FE_NONE_ID && !strings_equal(s->text, t->text))
        return false;
    return seqs_equal(c, m->args, n->args) && seqs_equal(c, m->kwargs, n->kwargs);
}

static uint32_t *places(const fe_graph *g)
{
    uint32_t *at = fe_resize(g->allocator, NULL, g->node_count * sizeof *at), place = 0;

    if (!at)
        return NULL;
    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT; id = g->nodes[id].next)
        at[id] = place++;
    return at;
}

int fe_graph_equal(const fe_graph *a, const fe_graph *b, const uint32_t *class_a, const uint32_t *class_b,
                   fe_error *err)
{
    uint32_t *place_a = places(a), *place_b = places(b);
    int equal = a->live == b->live;

    if (!place_a || !place_b)
        equal = fe_no_memory(err);
    comparison c = {class_a, class_b, place_a, place_b};
    uint32_t i = a->nodes[FE_ROOT].next, k = b->nodes[FE_ROOT].next;
    for (; equal == 1 && i != FE_ROOT; i = a->nodes[i].next, k = b->nodes[k].next)
        equal = nodes_equal(&c, a, i, b, k);
    fe_resize(a->allocator, place_a, 0);
    fe_resize(b->allocator, place_b, 0);
    return equal;
}
