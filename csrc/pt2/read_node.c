/* read_node.c - nodes of a document become nodes of the core, with the names that torch gives them.
 *
 * torch asks its table of names for each node's name, and then overwrites it by the name of the node's result; so a name
 * can be given away that no node bears in the end, and later ones count on from it. The same is done here, in the same
 * order (torch/_export/serde/serialize.py, GraphModuleDeserializer, 2.13). A node with several results gets a getitem
 * for each.
 */
#include "read.h"

/* ---- appending ---- */

static int reserve_node(pt2_graph_reader *g)
{
    size_t need = (size_t)g->core->node_count + 1;

    if (pt2_read_grow(g->reader, &g->graph->origins, &g->origin_capacity, need, sizeof *g->graph->origins) < 0)
        return -1;
    return pt2_read_grow(g->reader, &g->defined, &g->defined_capacity, need, sizeof *g->defined);
}

/* What the table of names gives for a candidate. */
static int new_name(pt2_graph_reader *g, const char *text, size_t len, fe_string **wanted, fe_string **given,
                    const pt2_path *path)
{
    pt2_program_reader *r = g->reader;
    fe_new_name name;
    fe_error err;

    if (pt2_read_grow(r, &r->buffer, &r->buffer_capacity, len + 2, 1) < 0)
        return -1;
    *wanted = fe_string_get(g->core, text, len, &err);
    if (!*wanted)
        return pt2_read_core_failed(r, path, &err);
    fe_candidate c = fe_name_split((*wanted)->data, len, r->buffer);
    if (c.name == (*wanted)->data)
        c.known = *wanted;
    if (fe_name_create(g->core, c, &name, &err) < 0)
        return pt2_read_core_failed(r, path, &err);
    fe_name_take(g->core, name);
    *given = name.name;
    return 0;
}

void pt2_read_check_name(pt2_graph_reader *g, const char *text, size_t len, const pt2_path *path)
{
    const char *fault = pt2_name_fault(text, len);

    if (fault)
        pt2_fail_node(g->reader->report, PT2_NAME, path, NULL, "the name '%s' can't stand in code: %s",
                      pt2_show(&(pt2_shown){{0}}, text, len), fault);
}

static bool equals(const fe_string *s, yyjson_val *v)
{
    return s->len == unsafe_yyjson_get_len(v) && memcmp(s->data, unsafe_yyjson_get_str(v), s->len) == 0;
}

/* The name that a node must bear, if no other one does. */
static int exact_name(pt2_graph_reader *g, yyjson_val *defines, fe_string *wanted, fe_string **name, bool *defined,
                      const pt2_path *path)
{
    const char *text = unsafe_yyjson_get_str(defines);
    size_t len = unsafe_yyjson_get_len(defines);
    fe_error err;
    fe_string *s = equals(wanted, defines) ? wanted : fe_string_get(g->core, text, len, &err);

    if (!s)
        return pt2_read_core_failed(g->reader, path, &err);
    *defined = fe_name_owner(g->core, s) == FE_NONE_ID;
    if (*defined)
        *name = s;
    else
        pt2_fail_node(g->reader->report, PT2_GRAPH, path, text,
                      "'%s' is defined here for the second time in this graph", pt2_show(&(pt2_shown){{0}}, text, len));
    return 0;
}

int pt2_read_append(pt2_graph_reader *g, const pt2_node_plan *plan, yyjson_val *defines, const pt2_path *path,
                    uint32_t *id)
{
    fe_string *wanted, *name;
    bool defined = false;
    fe_error err;

    if (reserve_node(g) < 0 || new_name(g, plan->name, plan->name_len, &wanted, &name, path) < 0)
        return -1;
    if (defines && exact_name(g, defines, wanted, &name, &defined, path) < 0)
        return -1;
    if (fe_node_new(g->core, plan->op, plan->target, name, FE_NONE_ID, id, &err) < 0)
        return pt2_read_core_failed(g->reader, path, &err);
    if ((plan->args || plan->kwargs) && fe_node_set_arguments(g->core, *id, plan->args, plan->kwargs, &err) < 0)
        return pt2_read_core_failed(g->reader, path, &err);
    fe_node_place(g->core, *id, (fe_point){FE_ROOT, false});
    g->graph->origins[*id] = plan->origin;
    g->graph->origins[*id].name = name;
    if (!defined)
        g->graph->origins[*id].value_kind = PT2_VALUE_NONE;
    g->graph->origin_count = *id + 1;
    g->defined[*id] = defined;
    return 0;
}

/* ---- a node of the document ---- */

typedef struct {
    yyjson_val *json, *target, *inputs, *outputs, *name, *metadata, *single; /* NULL: missing or null */
    uint32_t index;
    const pt2_path *path;
    const char *shown; /* its name in faults, or NULL */
    uint32_t callee;   /* the target */
} json_node;

typedef struct {
    yyjson_val *name, *value;
    int64_t kind; /* 0: not told */
} json_input;

/* A macro, so that the compiler knows the length. */
#define IS_KEY(key, text)                              \
    (unsafe_yyjson_get_len(key) == sizeof(text) - 1 && \
     memcmp(unsafe_yyjson_get_str(key), "" text, sizeof(text) - 1) == 0)

/* As it is, where %s shows all of it. */
static const char *shown_name(pt2_shown *room, yyjson_val *name)
{
    const char *text = unsafe_yyjson_get_str(name);
    size_t len = unsafe_yyjson_get_len(name);

    return memchr(text, '\0', len) ? pt2_show(room, text, len) : text;
}

/* The fields of a node; room is for its name in faults. */
static json_node node_of(yyjson_val *v, pt2_shown *room)
{
    json_node n = {.json = v};
    size_t i, count;
    yyjson_val *key, *field;

    pt2_each_member(v, i, count, key, field)
    {
        if (yyjson_is_null(field))
            continue;
        if (IS_KEY(key, "target"))
            n.target = field;
        else if (IS_KEY(key, "inputs"))
            n.inputs = field;
        else if (IS_KEY(key, "outputs"))
            n.outputs = field;
        else if (IS_KEY(key, "name"))
            n.name = field;
        else if (IS_KEY(key, "metadata"))
            n.metadata = field;
        else if (IS_KEY(key, "is_hop_single_tensor_return"))
            n.single = field;
    }
    if (n.name && !unsafe_yyjson_get_len(n.name))
        n.name = NULL; /* to torch, the same as none */
    n.shown = n.name ? shown_name(room, n.name) : NULL;
    return n;
}

static json_input input_of(yyjson_val *v)
{
    json_input in = {0};
    size_t i, count;
    yyjson_val *key, *field;

    pt2_each_member(v, i, count, key, field)
    {
        if (IS_KEY(key, "name"))
            in.name = field;
        else if (IS_KEY(key, "arg"))
            in.value = field;
        else if (IS_KEY(key, "kind") && !yyjson_is_null(field) && !pt2_json_int(field, &in.kind))
            in.kind = 0;
    }
    return in;
}

static bool has_schema(const pt2_callee *c)
{
    return c->spelling == FE_SPELLING_OPERATOR || c->spelling == FE_SPELLING_EXTENSION;
}

#define POSITIONAL 1
#define KEYWORD 2

/* Whether an argument goes to args. Old files don't tell; then what the schema says decides. */
static bool is_positional(const pt2_callee *c, const json_input *in)
{
    const char *name = unsafe_yyjson_get_str(in->name);
    size_t len = unsafe_yyjson_get_len(in->name);

    if (c->symbolic || in->kind == POSITIONAL)
        return true;
    if (!has_schema(c))
        return len == 0;
    if (pt2_is_keyword(name, len))
        return true; /* no call can be written with it */
    return in->kind != KEYWORD && c->op && fe_operator_positional(c->op, name, len);
}

bool pt2_is_positional(const char *target, size_t target_len, yyjson_val *json)
{
    pt2_callee c = pt2_read_callee(target, target_len);
    json_input in = input_of(json);

    return is_positional(&c, &in);
}

/* ---- arguments ---- */

#define FEW 12

/* An argument given twice: torch takes the last one without a word. Many names are looked up in a table. */
static int check_repeats(pt2_graph_reader *g, const json_node *n)
{
    const char *names[FEW];
    size_t lens[FEW], i, count;
    yyjson_val *v;
    pt2_texts many = {0};
    int result = 0;
    bool few = unsafe_yyjson_get_len(n->inputs) <= FEW;

    if (!few)
        fe_reserved_init(&many.strings, g->reader->program->allocator);
    yyjson_arr_foreach(n->inputs, i, count, v)
    {
        yyjson_val *name = pt2_field(v, "name");
        const char *text = unsafe_yyjson_get_str(name);
        size_t len = unsafe_yyjson_get_len(name);
        bool again = false;
        if (few) {
            names[i] = text;
            lens[i] = len;
            for (size_t k = 0; k < i && len; k++)
                again = again || (lens[k] == len && memcmp(names[k], text, len) == 0);
        } else if (len) {
            fe_string *s = pt2_read_text(g->reader, &many, text, len);
            if (!s) {
                result = pt2_no_memory(g->reader->report);
                break;
            }
            again = s->used;
            s->used = true;
        }
        if (again)
            pt2_fail_node(g->reader->report, PT2_GRAPH, PT2_KEY(PT2_INDEX(PT2_KEY(n->path, "inputs"), i), "name"),
                          n->shown, "the argument '%s' is given twice", pt2_show(&(pt2_shown){{0}}, text, len));
    }
    if (!few)
        fe_reserved_clear(&many.strings);
    return result;
}

static int new_seq(pt2_graph_reader *g, size_t len, const pt2_path *path, fe_seq **out)
{
    fe_error err;

    *out = NULL;
    if (!len)
        return 0;
    *out = fe_seq_new(g->core, len, FE_NONE_ID, &err);
    if (!*out)
        return pt2_read_core_failed(g->reader, path, &err);
    for (size_t i = 0; i < len; i++)
        (*out)->items[i] = (fe_value){.kind = FE_NONE};
    return 0;
}

static size_t count_positional(pt2_graph_reader *g, const json_node *n)
{
    pt2_callee callee = g->callees[n->callee];
    size_t i, count, positional = 0;
    yyjson_val *v;
    bool keyword = false;

    yyjson_arr_foreach(n->inputs, i, count, v)
    {
        json_input in = input_of(v);
        if (is_positional(&callee, &in)) {
            positional++;
            if (keyword && in.kind == POSITIONAL && has_schema(&callee))
                pt2_warn_node(g->reader->report, PT2_GRAPH, PT2_KEY(PT2_INDEX(PT2_KEY(n->path, "inputs"), i), "kind"),
                              n->shown, "the positional argument '%s' stands after a keyword argument",
                              PT2_SHOWN_JSON(in.name));
        } else {
            keyword = true;
        }
    }
    return positional;
}

/* Names of arguments in turn: are they those of the schema, in its order? torch goes by the names, here the order counts. */
typedef struct {
    const fe_operator *op; /* NULL: there is no schema, or a fault was told */
    const char *at;
} schema_order;

/* Go on in the schema to an argument. What can't be left out must not be passed over; what is missing at the end is the
 * verifier's affair. */
static void check_order(pt2_graph_reader *g, const json_node *n, schema_order *o, yyjson_val *name,
                        const pt2_path *path)
{
    const char *text = unsafe_yyjson_get_str(name);
    size_t len = unsafe_yyjson_get_len(name);
    fe_argument a;

    while (o->op && fe_operator_next_argument(o->op, &o->at, &a)) {
        if (a.name_len == len && memcmp(a.name, text, len) == 0)
            return;
        if (!a.has_default && !a.keyword_only) {
            pt2_warn_node(
                g->reader->report, PT2_GRAPH, path, n->shown,
                "the argument '%.*s' is missing, or not where it stands in the schema; torch goes by the names",
                (int)a.name_len, a.name);
            o->op = NULL;
        }
    }
    if (o->op)
        pt2_warn_node(
            g->reader->report, PT2_GRAPH, path, n->shown,
            "the argument '%.200s' is not in the schema, or not where it stands there; torch goes by the names", text);
    o->op = NULL;
}

/* torch writes the names of keyword arguments into code. */
static void check_keyword(pt2_graph_reader *g, const json_node *n, yyjson_val *name, const pt2_path *path)
{
    if (!pt2_is_identifier(unsafe_yyjson_get_str(name), unsafe_yyjson_get_len(name)))
        pt2_fail_node(g->reader->report, PT2_NAME, path, n->shown, "the keyword argument '%s' is not an identifier",
                      PT2_SHOWN_JSON(name));
}

static int read_arguments(pt2_graph_reader *g, const json_node *n, fe_seq **args, fe_seq **kwargs)
{
    pt2_callee callee = g->callees[n->callee];
    size_t positional = count_positional(g, n), a = 0, k = 0, i, count;
    const pt2_path *inputs = PT2_KEY(n->path, "inputs");
    bool by_name = has_schema(&callee) && callee.op && fe_operator_has_schema(callee.op);
    schema_order order = {.op = by_name ? callee.op : NULL};
    yyjson_val *v;
    fe_error err;

    if (check_repeats(g, n) < 0 || new_seq(g, positional, n->path, args) < 0 ||
        new_seq(g, 2 * (unsafe_yyjson_get_len(n->inputs) - positional), n->path, kwargs) < 0)
        return -1;
    yyjson_arr_foreach(n->inputs, i, count, v)
    {
        json_input in = input_of(v);
        const pt2_path *place = PT2_INDEX(inputs, i);
        pt2_argument_place at = {place, PT2_KEY(place, "arg"), n->shown, n->index, (uint32_t)i};
        fe_value *out;
        check_order(g, n, &order, in.name, PT2_KEY(place, "name"));
        if (is_positional(&callee, &in)) {
            out = &(*args)->items[a++];
        } else {
            check_keyword(g, n, in.name, PT2_KEY(place, "name"));
            fe_string *key =
                fe_string_get(g->core, unsafe_yyjson_get_str(in.name), unsafe_yyjson_get_len(in.name), &err);
            if (!key)
                return pt2_read_core_failed(g->reader, n->path, &err);
            (*kwargs)->items[k++] = (fe_value){.kind = FE_STR, .as.string = key};
            out = &(*kwargs)->items[k++];
        }
        if (pt2_read_argument(g, in.value, &at, out) < 0)
            return -1;
    }
    return 0;
}

/* ---- results ---- */

/* One result: where it comes from and where it stands. */
typedef struct {
    const json_node *node;
    uint32_t producer; /* of the core */
    size_t index;
    const pt2_path *path;
} result_at;

/* Append getitem(producer, index) with a name made from a text, or, defines, with this very name. */
static int append_getitem(pt2_graph_reader *g, const result_at *at, const char *name, size_t name_len,
                          yyjson_val *defines, pt2_value_kind kind, uint32_t *id)
{
    pt2_node_plan plan = {.op = FE_OP_CALL_FUNCTION,
                          .name = name,
                          .name_len = name_len,
                          .origin = {.source = PT2_FROM_RESULT,
                                     .value_kind = (uint8_t)kind,
                                     .index = at->node->index,
                                     .output = (uint32_t)at->index,
                                     .json = at->node->json}};

    if (pt2_read_getitem(g, &plan.target) < 0 || new_seq(g, 2, at->path, &plan.args) < 0)
        return -1;
    plan.args->items[0] = (fe_value){.kind = FE_NODE, .as.node = at->producer};
    plan.args->items[1] = (fe_value){.kind = FE_INT, .as.integer = (int64_t)at->index};
    return pt2_read_append(g, &plan, defines, at->path, id);
}

static int made_getitem(pt2_graph_reader *g, const result_at *at, const char *name, uint32_t *id)
{
    return append_getitem(g, at, name, strlen(name), NULL, PT2_VALUE_NONE, id);
}

static int named_getitem(pt2_graph_reader *g, const result_at *at, yyjson_val *name, pt2_value_kind kind)
{
    const char *text = unsafe_yyjson_get_str(name);
    size_t len = unsafe_yyjson_get_len(name);
    uint32_t id;

    pt2_read_check_name(g, text, len, at->path);
    return append_getitem(g, at, text, len, name, kind, &id);
}

static int unknown_result(pt2_graph_reader *g, const json_node *n, const pt2_path *path)
{
    pt2_fail_node(
        g->reader->report, PT2_GRAPH, path, n->shown,
        "this kind of value can't be a result here: torch reads tensors, numbers with a name, lists of these and "
        "None");
    return 0;
}

/* The name in an element of as_tensors, as_sym_ints or as_sym_floats. */
static yyjson_val *element_name(pt2_as list, yyjson_val *element, pt2_value_kind *kind)
{
    yyjson_val *value;

    if (list == PT2_AS_TENSORS) {
        *kind = PT2_VALUE_TENSOR;
        return pt2_field(element, "name");
    }
    if (list != PT2_AS_SYM_INTS && list != PT2_AS_SYM_FLOATS)
        return NULL;
    *kind = list == PT2_AS_SYM_INTS ? PT2_VALUE_SYM_INT : PT2_VALUE_SYM_FLOAT;
    return pt2_read_union(element, &value) == PT2_AS_NAME ? value : NULL;
}

/* A getitem for each element of a list of results. */
static int read_list(pt2_graph_reader *g, const json_node *n, uint32_t producer, pt2_as as, yyjson_val *list,
                     const pt2_path *path)
{
    size_t i, count;
    yyjson_val *v;

    yyjson_arr_foreach(list, i, count, v)
    {
        pt2_value_kind kind = PT2_VALUE_NONE;
        yyjson_val *name = element_name(as, v, &kind);
        result_at at = {n, producer, i, PT2_INDEX(path, i)};
        if (name ? named_getitem(g, &at, name, kind) < 0 : unknown_result(g, n, at.path) < 0)
            return -1;
    }
    return 0;
}

static bool is_result_list(pt2_as as)
{
    switch (as) {
    case PT2_AS_TENSORS:
    case PT2_AS_SYM_INTS:
    case PT2_AS_SYM_FLOATS:
    case PT2_AS_SYM_BOOLS:
    case PT2_AS_INTS:
    case PT2_AS_FLOATS:
    case PT2_AS_STRINGS:
    case PT2_AS_BOOLS:
        return true;
    default:
        return false;
    }
}

/* One of several results. */
static int read_result(pt2_graph_reader *g, const result_at *at, yyjson_val *v)
{
    pt2_value_kind kind = PT2_VALUE_NONE;
    yyjson_val *value, *name = pt2_read_name_of(v, &kind);
    pt2_as as = pt2_read_union(v, &value);
    uint32_t id;

    if (name && (as == PT2_AS_TENSOR || as == PT2_AS_SYM_INT || as == PT2_AS_SYM_FLOAT))
        return named_getitem(g, at, name, kind);
    if (as == PT2_AS_NONE)
        return made_getitem(g, at, "as_none", &id);
    if (!is_result_list(as))
        return unknown_result(g, at->node, at->path);
    if (made_getitem(g, at, "getitem", &id) < 0)
        return -1;
    return read_list(g, at->node, id, as, value, PT2_KEY_OF(at->path, unsafe_yyjson_get_first(v)));
}

static int read_results(pt2_graph_reader *g, const json_node *n, uint32_t producer)
{
    const pt2_path *path = PT2_KEY(n->path, "outputs");
    size_t i, count;
    yyjson_val *v;

    yyjson_arr_foreach(n->outputs, i, count, v)
    {
        if (read_result(g, &(result_at){n, producer, i, PT2_INDEX(path, i)}, v) < 0)
            return -1;
    }
    return 0;
}

/* A call that gives None is named after its target. */
static int rename_unused(pt2_graph_reader *g, const json_node *n, uint32_t id)
{
    const fe_string *stem = g->core->targets[n->callee].text;
    fe_string *wanted, *given;
    fe_buffer text;
    int result = 0;

    fe_buffer_init(&text, g->reader->program->allocator);
    fe_buffer_add(&text, stem->data, stem->len);
    fe_buffer_text(&text, "_unused");
    if (text.failed)
        result = pt2_no_memory(g->reader->report);
    else if (text.len != g->core->details[id].name->len ||
             memcmp(text.data, g->core->details[id].name->data, text.len) != 0)
        result = new_name(g, text.data, text.len, &wanted, &given, n->path) < 0 ? -1 : 1;
    fe_buffer_clear(&text);
    if (result <= 0)
        return result;
    fe_node_set_name(g->core, id, given);
    g->graph->origins[id].name = given;
    return 0;
}

/* How the results of a node are to be read. */
typedef enum {
    RESULT_NOTHING, /* it has none */
    RESULT_SELF,    /* one, which bears the node's name */
    RESULT_NONE,    /* None */
    RESULT_ITEM,    /* a tuple or list of one */
    RESULT_LIST,    /* one list of tensors */
    RESULT_SEVERAL,
    RESULT_UNKNOWN,
} result_form;

static result_form form_of(pt2_graph_reader *g, const json_node *n)
{
    const pt2_callee *callee = &g->callees[n->callee];
    size_t count = unsafe_yyjson_get_len(n->outputs);
    pt2_value_kind kind;
    yyjson_val *value;

    if (callee->symbolic)
        return count && pt2_read_name_of(unsafe_yyjson_get_first(n->outputs), &kind) ? RESULT_SELF : RESULT_UNKNOWN;
    if (!count)
        return RESULT_NOTHING;
    if (count > 1)
        return RESULT_SEVERAL;
    yyjson_val *only = unsafe_yyjson_get_first(n->outputs);
    bool item = callee->higher_order && !(n->single && yyjson_get_bool(n->single));
    switch (pt2_read_union(only, &value)) {
    case PT2_AS_NONE:
        return RESULT_NONE;
    case PT2_AS_TENSORS:
        return item ? RESULT_UNKNOWN : RESULT_LIST;
    case PT2_AS_TENSOR:
    case PT2_AS_SYM_INT:
    case PT2_AS_SYM_FLOAT:
    case PT2_AS_SYM_BOOL:
        return !pt2_read_name_of(only, &kind) ? RESULT_UNKNOWN : item ? RESULT_ITEM : RESULT_SELF;
    default:
        return RESULT_UNKNOWN;
    }
}

/* ---- nodes ---- */

/* What torch asks its table of names for. */
static void choose_name(pt2_graph_reader *g, const json_node *n, result_form form, yyjson_val *result,
                        pt2_node_plan *plan)
{
    const pt2_callee *callee = &g->callees[n->callee];
    const fe_string *stem = g->core->targets[n->callee].text;
    yyjson_val *name = n->name, *value;

    if (!name && form == RESULT_SELF) {
        bool tensor = pt2_read_union(unsafe_yyjson_get_first(n->outputs), &value) == PT2_AS_TENSOR;
        if (callee->symbolic || (tensor && (has_schema(callee) || callee->higher_order)))
            name = result;
    }
    plan->name = name ? unsafe_yyjson_get_str(name) : stem->data;
    plan->name_len = name ? unsafe_yyjson_get_len(name) : stem->len;
}

/* A faulty name is told where it stands first; the name of the result is the one that counts. */
static void check_names(pt2_graph_reader *g, const json_node *n, yyjson_val *result, const pt2_path *result_path)
{
    const pt2_path *path = PT2_KEY(n->path, "name");
    const char *name = n->name ? unsafe_yyjson_get_str(n->name) : NULL;
    size_t len = n->name ? unsafe_yyjson_get_len(n->name) : 0;
    bool same = name && result && unsafe_yyjson_equals_strn(result, name, len);

    if (name)
        pt2_read_check_name(g, name, len, path);
    if (result && !same)
        pt2_read_check_name(g, unsafe_yyjson_get_str(result), unsafe_yyjson_get_len(result), result_path);
    if (name && result && !same)
        pt2_warn_node(g->reader->report, PT2_GRAPH, path, n->shown,
                      "the node is called '%s' but its result '%s'; the result's name counts", n->shown,
                      PT2_SHOWN_JSON(result));
}

/* What comes of the node's results beside the node itself. */
static int read_form(pt2_graph_reader *g, const json_node *n, result_form form, uint32_t id)
{
    const pt2_path *first = PT2_INDEX(PT2_KEY(n->path, "outputs"), 0);
    pt2_value_kind kind = PT2_VALUE_NONE;
    yyjson_val *only, *value;

    switch (form) {
    case RESULT_NONE:
        return rename_unused(g, n, id);
    case RESULT_ITEM:
        g->defined[id] = true;
        only = pt2_read_name_of(unsafe_yyjson_get_first(n->outputs), &kind);
        return named_getitem(g, &(result_at){n, id, 0, first}, only, kind);
    case RESULT_LIST:
        g->defined[id] = true;
        pt2_read_union(unsafe_yyjson_get_first(n->outputs), &value);
        return read_list(g, n, id, PT2_AS_TENSORS, value, PT2_KEY(first, "as_tensors"));
    case RESULT_SEVERAL:
        g->defined[id] = true;
        return read_results(g, n, id);
    case RESULT_UNKNOWN:
        return unknown_result(g, n, first);
    default:
        return 0;
    }
}

/* Neighbours come from the same module as a rule, so one stack of modules stands in many nodes. */
static bool is_last_stack(pt2_graph_reader *g, yyjson_val *key, yyjson_val *text)
{
    static const char stack[] = "nn_module_stack";
    size_t len = unsafe_yyjson_get_len(text);
    yyjson_val *last = g->last_stack;

    if (!unsafe_yyjson_equals_strn(key, stack, sizeof stack - 1))
        return false;
    g->last_stack = text;
    return last && unsafe_yyjson_get_len(last) == len &&
           memcmp(unsafe_yyjson_get_str(last), unsafe_yyjson_get_str(text), len) == 0;
}

static int check_metadata(pt2_graph_reader *g, const json_node *n)
{
    const pt2_path *path = PT2_KEY(n->path, "metadata");
    pt2_report *r = g->reader->report;
    size_t i, count;
    yyjson_val *key, *v;

    pt2_each_member(n->metadata, i, count, key, v)
    {
        uint32_t errors = r->errors;
        if (is_last_stack(g, key, v))
            continue;
        if (pt2_metadata_check(unsafe_yyjson_get_str(key), unsafe_yyjson_get_len(key), unsafe_yyjson_get_str(v),
                               unsafe_yyjson_get_len(v), PT2_KEY_OF(path, key), r) < 0 &&
            r->no_memory)
            return -1;
        if (r->errors != errors)
            g->last_stack = NULL; /* each faulty one is told */
    }
    return 0;
}

/* Arguments that are subgraphs know the call that takes them; not those within other arguments. */
static void note_call(pt2_graph_reader *g, uint32_t id, const fe_seq *arguments)
{
    for (uint32_t i = 0; arguments && i < arguments->len; i++) {
        fe_value v = arguments->items[i];
        pt2_origin *o = v.kind == FE_NODE ? &g->graph->origins[v.as.node] : NULL;
        if (o && o->source == PT2_FROM_GRAPH && o->index == g->graph->origins[id].index)
            o->call = id;
    }
}

static int read_node(pt2_graph_reader *g, json_node *n)
{
    const char *target = unsafe_yyjson_get_str(n->target);
    size_t target_len = unsafe_yyjson_get_len(n->target);
    pt2_value_kind kind = PT2_VALUE_NONE;
    yyjson_val *result = NULL;
    uint32_t id;
    pt2_node_plan plan = {.op = FE_OP_CALL_FUNCTION,
                          .origin = {.source = PT2_FROM_NODE, .index = n->index, .json = n->json}};

    if (pt2_read_target(g, target, target_len, PT2_KEY(n->path, "target"), n->shown, &n->callee) < 0)
        return -1;
    result_form form = form_of(g, n);
    if (form == RESULT_SELF)
        result = pt2_read_name_of(unsafe_yyjson_get_first(n->outputs), &kind);
    if (read_arguments(g, n, &plan.args, &plan.kwargs) < 0)
        return -1;
    const pt2_path *first = PT2_INDEX(PT2_KEY(n->path, "outputs"), 0);
    check_names(g, n, result, first);
    choose_name(g, n, form, result, &plan);
    plan.target = n->callee;
    plan.origin.value_kind = (uint8_t)kind;
    if (pt2_read_append(g, &plan, result, first, &id) < 0)
        return -1;
    if (g->callees[n->callee].higher_order) {
        note_call(g, id, g->core->details[id].args);
        note_call(g, id, g->core->details[id].kwargs);
    }
    if (read_form(g, n, form, id) < 0)
        return -1;
    return check_metadata(g, n);
}

int pt2_read_nodes(pt2_graph_reader *g, yyjson_val *nodes)
{
    const pt2_path *path = PT2_KEY(g->path, "nodes");
    size_t i, count;
    yyjson_val *v;
    pt2_shown name;

    yyjson_arr_foreach(nodes, i, count, v)
    {
        json_node n = node_of(v, &name);
        n.index = (uint32_t)i;
        n.path = PT2_INDEX(path, i);
        if (read_node(g, &n) < 0)
            return -1;
    }
    return 0;
}
