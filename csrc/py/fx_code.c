/* fx_code.c - a record of fx_record, read into an empty Graph, whose code is then that of the record.
 *
 * Nothing is looked at but the record: its arguments never change, and it says which nodes have users. All nodes come first, so
 * that arguments can name any of them.
 */
#include "fx.h"

typedef struct {
    GraphObject *g;
    PyObject *const *rows;
    uint32_t count;
    uint32_t *slots, mask; /* hash table of the nodes' places by address */
} reader;

static PyObject *field(const reader *r, uint32_t place, fx_row which)
{
    return r->rows[(size_t)place * FX_ROW + which];
}

/* Node i of the record has this id. */
static inline uint32_t id_of(uint32_t place)
{
    return place + 1;
}

static int wrong(const char *what)
{
    PyErr_Format(PyExc_ValueError, "a record of fx_record with a wrong %s", what);
    return -1;
}

static int enter_nodes(reader *r)
{
    if (!(r->slots = fx_new_slots(&fe_python_allocator, r->count, &r->mask)))
        return -1;
    for (uint32_t i = 0; i < r->count; i++) {
        uint32_t slot = fx_hash(field(r, i, FX_ROW_NODE)) & r->mask;
        while (r->slots[slot] != EMPTY_SLOT)
            slot = (slot + 1) & r->mask;
        r->slots[slot] = i;
    }
    return 0;
}

static int resolve(void *ctx, PyObject *o, fe_value *out)
{
    const reader *r = ctx;

    if (!fx_is_node(&r->g->state->fx, o))
        return 0;
    for (uint32_t i = fx_hash(o) & r->mask;; i = (i + 1) & r->mask) {
        uint32_t at = r->slots[i];
        if (at == EMPTY_SLOT)
            return wrong("operand");
        if (field(r, at, FX_ROW_NODE) == o) {
            *out = (fe_value){.kind = FE_NODE, .as.node = id_of(at)};
            return 1;
        }
    }
}

/* A name that torch.fx's rules take otherwise than ours: one that ends in a newline, or with a number beyond 64 bits, which
 * torch counts on from. */
static bool is_named_otherwise(const fe_string *name)
{
    char buffer[256];

    if (name->len && name->data[name->len - 1] == '\n')
        return true;
    return name->len >= sizeof buffer - 2 || fe_name_split(name->data, name->len, buffer).number == INT64_MAX;
}

static int read_node(reader *r, uint32_t place)
{
    PyObject *target = field(r, place, FX_ROW_TARGET), *name = field(r, place, FX_ROW_NAME);
    fe_op op = fx_op(r->g->state, field(r, place, FX_ROW_OP));
    uint32_t id, known;
    fe_error err;

    if (op >= FE_OP_ROOT)
        return wrong("opcode");
    if (!PyUnicode_CheckExact(name) || PyUnicode_CheckExact(target) != (op != FE_OP_CALL_FUNCTION))
        return wrong("name or target");
    fe_string *text = string_from_python(r->g, name);
    if (text && is_named_otherwise(text))
        return wrong("name");
    if (!text || graph_target(r->g, op, target, &known) < 0)
        return -1;
    if (fe_node_new(r->g->core, op, known, text, FE_NONE_ID, &id, &err) < 0)
        return fail_core(r->g->state, &err);
    fe_node_place(r->g->core, id, (fe_point){FE_ROOT, false});
    return 0;
}

/* The sequence of a tuple of args or a dict of kwargs; NULL when empty. */
static int read_tree(reader *r, PyObject *container, fe_seq **out)
{
    fe_value value;

    *out = NULL;
    if (!(PyDict_Check(container) ? PyDict_GET_SIZE(container) : PyTuple_GET_SIZE(container)))
        return 0;
    if (value_from_python_with(r->g, container, resolve, r, false, &value) < 0)
        return -1;
    *out = value.as.seq;
    return 0;
}

static bool has_names(const fe_seq *kwargs)
{
    for (uint32_t i = 0; kwargs && i < kwargs->len; i += 2) {
        if (kwargs->items[i].kind != FE_STR)
            return false;
    }
    return true;
}

static int read_arguments(reader *r, uint32_t place)
{
    PyObject *args = field(r, place, FX_ROW_ARGS), *kwargs = field(r, place, FX_ROW_KWARGS);
    fe_seq *positional = NULL, *named = NULL;
    fe_error err;

    if (!PyTuple_CheckExact(args) || !PyDict_Check(kwargs))
        return wrong("container of arguments");
    int result = read_tree(r, args, &positional) < 0 ? -1 : read_tree(r, kwargs, &named);
    if (result == 0 && !has_names(named))
        result = wrong("keyword");
    if (result == 0 && fe_node_set_arguments(r->g->core, id_of(place), positional, named, &err) < 0)
        result = fail_core(r->g->state, &err);
    if (result < 0) {
        fe_seq_free(r->g->core, positional);
        fe_seq_free(r->g->core, named);
    }
    return result;
}

static int read_record(reader *r)
{
    fe_error err;

    if (enter_nodes(r) < 0)
        return -1;
    if (fe_graph_reserve(r->g->core, r->count, &err) < 0)
        return fail_core(r->g->state, &err);
    for (uint32_t i = 0; i < r->count; i++) {
        if (read_node(r, i) < 0)
            return -1;
    }
    for (uint32_t i = 0; i < r->count; i++) {
        if (read_arguments(r, i) < 0)
            return -1;
    }
    for (uint32_t i = 0; i < r->count; i++) {
        if ((r->g->core->nodes[id_of(i)].user_count > 0) != (field(r, i, FX_ROW_USED) == Py_True))
            return wrong("word on users");
    }
    return 0;
}

const char fx_revive_graph_doc[] =
    "fx_revive_graph(record, graph, /)\n--\n\n"
    "Fill graph, which must be new and empty, with the nodes of a record of fx_record. Raises ValueError when it is\n"
    "none, or when its nodes' users are not those that name them; graph is to be thrown away then.";

PyObject *fx_revive_graph(PyObject *m, PyObject *const *args, Py_ssize_t nargs)
{
    module_state *st = state_of(m);

    if (fx_arguments("fx_revive_graph", nargs, 2) < 0)
        return NULL;
    if (!st->fx.node_type || !PyTuple_CheckExact(args[0]) || PyTuple_GET_SIZE(args[0]) % FX_ROW != 0 ||
        PyTuple_GET_SIZE(args[0]) / FX_ROW >= (Py_ssize_t)UINT32_MAX || !PyObject_TypeCheck(args[1], st->graph_type))
        return PyErr_Format(PyExc_TypeError, "fx_revive_graph() takes a record of fx_record and a Graph");
    reader r = {.g = (GraphObject *)args[1],
                .rows = &PyTuple_GET_ITEM(args[0], 0),
                .count = (uint32_t)(PyTuple_GET_SIZE(args[0]) / FX_ROW)};
    if (graph_editable(r.g) < 0)
        return NULL;
    if (r.g->core->node_count != 1)
        return PyErr_Format(PyExc_ValueError, "fx_revive_graph() fills a new, empty graph");
    graph_pin(r.g);
    int result = read_record(&r);
    graph_unpin(r.g);
    fe_resize(&fe_python_allocator, r.slots, 0);
    return result < 0 ? NULL : Py_NewRef(Py_None);
}
