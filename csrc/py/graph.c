/* graph.c - the type fastexport._core.Graph: its life, finding nodes, attributes and the table of methods. */
#include "graph.h"
#include "loaded.h"
#include "operators.h"

/* ---- life ---- */

static void *raw_resize(void *ctx, void *block, size_t size)
{
    (void)ctx;
    if (size == 0) {
        PyMem_RawFree(block);
        return NULL;
    }
    return PyMem_RawRealloc(block, size);
}

const fe_allocator fe_python_allocator = {raw_resize, NULL};

static PyObject *Graph_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *module = PyType_GetModuleByDef(type, &fe_module_def);
    GraphObject *g;

    (void)args;
    (void)kwargs;
    if (!module || !(g = (GraphObject *)type->tp_alloc(type, 0)))
        return NULL;
    g->state = state_of(module);
    g->meta_index = PyDict_New();
    g->meta_keys = PyList_New(0);
    g->core = fe_graph_new(&fe_python_allocator, &g->state->reserved);
    if (!g->core)
        PyErr_NoMemory();
    if (!g->meta_index || !g->meta_keys || !g->core)
        Py_CLEAR(g);
    return (PyObject *)g;
}

static int Graph_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"owning_module", "tracer_cls", "tracer_extras", NULL};
    PyObject *module = Py_None, *tracer = Py_None, *extras = Py_None;
    GraphObject *g = (GraphObject *)self;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OOO:Graph", names, &module, &tracer, &extras))
        return -1;
    Py_XSETREF(g->owning_module, module == Py_None ? NULL : Py_NewRef(module));
    if (tracer == Py_None && extras == Py_None)
        return 0;
    PyObject *dict = Py_BuildValue("{s:O,s:O}", "_tracer_cls", tracer, "_tracer_extras", extras);
    if (!dict)
        return -1;
    Py_XSETREF(g->extras, dict);
    return 0;
}

static int Graph_traverse(PyObject *self, visitproc visit, void *arg)
{
    GraphObject *g = (GraphObject *)self;

    Py_VISIT(Py_TYPE(self));
    for (uint32_t i = 0; i < g->object_capacity; i++)
        Py_VISIT(g->objects[i]);
    Py_VISIT(g->meta_index);
    Py_VISIT(g->meta_keys);
    Py_VISIT(g->owning_module);
    Py_VISIT(g->subgraphs);
    Py_VISIT(g->extras);
    Py_VISIT(g->observer);
    return loaded_traverse(g->loaded, visit, arg);
}

/* The core stays: Nodes that outlive this call may still look at it. Where they find no object they show None. */
static int Graph_clear(PyObject *self)
{
    GraphObject *g = (GraphObject *)self;
    PyObject **objects = g->objects;
    uint32_t count = g->object_capacity;

    g->objects = NULL;
    g->object_capacity = 0;
    PyMem_RawFree(g->object_slots);
    g->object_slots = NULL;
    g->object_mask = g->object_used = 0;
    for (uint32_t i = 0; i < count; i++)
        Py_XDECREF(objects[i]);
    PyMem_RawFree(objects);
    Py_CLEAR(g->owning_module);
    Py_CLEAR(g->subgraphs);
    Py_CLEAR(g->extras);
    Py_CLEAR(g->observer);
    return 0;
}

static void Graph_dealloc(PyObject *self)
{
    GraphObject *g = (GraphObject *)self;
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    if (g->weakrefs)
        PyObject_ClearWeakRefs(self);
    Graph_clear(self);
    loaded_free(g->loaded);
    Py_CLEAR(g->meta_index);
    Py_CLEAR(g->meta_keys);
    fe_graph_free(g->core);
    PyMem_RawFree(g->handles);
    type->tp_free(self);
    Py_DECREF(type);
}

/* ---- finding ---- */

/* Whether nodes of target t are looked for: by op, and by equality of targets as in torch.fx (identity is quick). */
static int target_matches(GraphObject *g, uint32_t t, fe_op op, PyObject *target)
{
    if (g->core->targets[t].op != op || !g->core->targets[t].count)
        return 0;
    if (!target)
        return 1;
    PyObject *object = graph_target_object(g, t);
    int equal = object ? PyObject_RichCompareBool(object, target, Py_EQ) : -1;
    Py_XDECREF(object);
    return equal;
}

static int append_target_nodes(GraphObject *g, uint32_t t, PyObject *list)
{
    for (uint32_t id = fe_target_nodes(g->core, t); id != FE_NONE_ID; id = g->core->details[id].target_next) {
        PyObject *node = graph_node(g, id);
        int result = node ? PyList_Append(list, node) : -1;
        Py_XDECREF(node);
        if (result < 0)
            return -1;
    }
    return 0;
}

PyDoc_STRVAR(
    find_nodes_doc,
    "find_nodes($self, *, op, target=None, sort=True)\n--\n\n"
    "The nodes of an opcode, with that target when one is given, as a list in graph order. The target of a\n"
    "call_function may be an operator's whole name, 'torch.ops.aten.relu.default', where nodes call an Operator.\n\n"
    "Takes time by the number of different targets and of nodes found, not by the size of the graph. With\n"
    "sort=False the order is that of arrival, target by target. Raises ValueError for an unknown opcode, and for\n"
    "call_function without a target.");

static PyObject *Graph_find_nodes(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"op", "target", "sort", NULL};
    static const parameters p = {"find_nodes", names, 1, 0};
    GraphObject *g = (GraphObject *)self;
    PyObject *v[3], *list;
    int sort, result = 0;
    fe_op op;

    if (graph_readable(g) < 0 || parse_call(&p, args, nargs, kwnames, v) < 0 || op_from_python(g, v[0], &op) < 0 ||
        (sort = v[2] ? PyObject_IsTrue(v[2]) : 1) < 0)
        return NULL;
    PyObject *target = none_as_null(v[1]);
    if (op == FE_OP_CALL_FUNCTION && !target)
        return PyErr_Format(PyExc_ValueError, "find_nodes(op='call_function') needs a target");
    if (!(list = PyList_New(0)))
        return NULL;
    if (target && !(target = op == FE_OP_CALL_FUNCTION ? operator_or_same(target) : Py_NewRef(target)))
        result = -1;
    if (result == 0 && graph_readable(g) < 0) /* the above may have let other threads run */
        result = -1;
    graph_pin(g);
    for (uint32_t t = 0; result >= 0 && t < g->core->target_count; t++) {
        result = target_matches(g, t, op, target);
        if (result > 0)
            result = append_target_nodes(g, t, list);
    }
    graph_unpin(g);
    Py_XDECREF(target);
    if (result >= 0 && sort)
        result = PyList_Sort(list);
    if (result < 0)
        Py_CLEAR(list);
    return list;
}

PyDoc_STRVAR(node_doc, "node($self, name)\n--\n\n"
                       "The node of that name. Raises KeyError when there is none.");

PyObject *Graph_node(PyObject *self, PyObject *name)
{
    GraphObject *g = (GraphObject *)self;
    const fe_string *s = NULL;
    Py_ssize_t len;

    if (graph_readable(g) < 0)
        return NULL;
    if (!PyUnicode_Check(name))
        return PyErr_Format(PyExc_TypeError, "name must be a str, not %.200s", Py_TYPE(name)->tp_name);
    const char *data = PyUnicode_AsUTF8AndSize(name, &len);
    if (data)
        s = fe_string_find(&g->core->strings, data, (size_t)len);
    else
        PyErr_Clear(); /* no name holds a lone surrogate */
    uint32_t owner = s ? fe_name_owner(g->core, s) : FE_NONE_ID;
    if (owner != FE_NONE_ID)
        return graph_node(g, owner);
    return PyErr_Format(PyExc_KeyError, "no node is named %R", name);
}

PyDoc_STRVAR(output_node_doc, "output_node($self)\n--\n\n"
                              "The output node. Raises LookupError when the last node is none.");

static PyObject *Graph_output_node(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    GraphObject *g = (GraphObject *)self;

    if (graph_readable(g) < 0)
        return NULL;
    uint32_t last = g->core->nodes[FE_ROOT].prev;
    if (g->core->nodes[last].op != FE_OP_OUTPUT)
        return PyErr_Format(PyExc_LookupError, "the graph has no output: its last node is %s",
                            last == FE_ROOT ? "missing" : g->core->details[last].name->data);
    return graph_node(g, last);
}

/* ---- the type ---- */

static PyObject *Graph_str(PyObject *self)
{
    return graph_readable((GraphObject *)self) < 0 ? NULL : text_of((GraphObject *)self, FE_ROOT);
}

static PyObject *Graph_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<fastexport.Graph with %u nodes at %p>", ((GraphObject *)self)->core->live, self);
}

static PyObject *get_nodes(PyObject *self, void *Py_UNUSED(closure))
{
    return nodes_new((GraphObject *)self);
}

static PyObject *get_bytes(PyObject *self, void *Py_UNUSED(closure))
{
    GraphObject *g = (GraphObject *)self;
    const fe_graph *c = g->core;
    size_t bytes = c->arena.bytes + c->node_capacity * sizeof(fe_node) + c->detail_capacity * sizeof(fe_detail) +
                   c->edge_capacity * sizeof(fe_edge) + c->target_capacity * sizeof(fe_target) +
                   (c->target_mask + 1) * sizeof(uint32_t) + c->object_capacity * 3 * sizeof(uint32_t) +
                   (c->strings.mask + 1) * sizeof(void *) + c->base_capacity * sizeof(int64_t) +
                   c->scratch_capacity * sizeof(uint32_t) + g->object_capacity * sizeof(void *) +
                   (g->object_mask + 1) * sizeof(uint32_t) + g->handle_capacity * sizeof(void *);

    return PyLong_FromSize_t(bytes);
}

static PyObject *get_version(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(((GraphObject *)self)->core->version);
}

static PyObject *get_file_version(PyObject *self, void *Py_UNUSED(closure))
{
    const loaded *l = ((GraphObject *)self)->loaded;

    return l ? PyLong_FromUnsignedLongLong(l->version) : Py_NewRef(Py_None);
}

/* An optional object of the graph, by the offset of its member. */
static PyObject *get_optional(PyObject *self, void *offset)
{
    PyObject *o = *(PyObject **)(void *)((char *)self + (size_t)offset);

    return Py_NewRef(o ? o : Py_None);
}

static int set_optional(PyObject *self, PyObject *value, void *offset)
{
    PyObject **at = (PyObject **)(void *)((char *)self + (size_t)offset);

    Py_XSETREF(*at, !value || value == Py_None ? NULL : Py_NewRef(value));
    return 0;
}

static int set_dict(PyObject *self, PyObject *value, void *offset)
{
    if (!value || value == Py_None || PyDict_Check(value))
        return set_optional(self, value, offset);
    PyErr_Format(PyExc_TypeError, "subgraphs and extras are a dict or None, not of %R", Py_TYPE(value));
    return -1;
}

static PyObject *Graph_renamed(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return graph_readable((GraphObject *)self) < 0 ? NULL : graph_renamed((GraphObject *)self);
}

static PyGetSetDef graph_getset[] = {
    {"nodes", get_nodes, NULL, "The nodes in order: a live view that may be changed while it is walked.", NULL},
    {"owning_module", get_optional, set_optional, "The module that get_attr and call_module refer to, or None.",
     (void *)offsetof(GraphObject, owning_module)},
    {"subgraphs", get_optional, set_dict,
     "dict: path in the owning module -> Graph of the GraphModule there; None: there are none. The first ones are "
     "given\n"
     "as a dict: ``g.subgraphs = {\"a\": sub}``.",
     (void *)offsetof(GraphObject, subgraphs)},
    {"extras", get_optional, set_dict, "dict: what else a torch.fx graph carries (codegen, tracer), or None.",
     (void *)offsetof(GraphObject, extras)},
    {"_observer", get_optional, set_optional, "What is told of new nodes and of replacements; see _provenance.",
     (void *)offsetof(GraphObject, observer)},
    {"_version", get_version, NULL, "Grows with every change of the graph's structure.", NULL},
    {"_file_version", get_file_version, NULL, "_version when it was read from a file; None: it was not.", NULL},
    {"nbytes", get_bytes, NULL, "Memory the graph holds for its structure, in bytes; objects it refers to don't count.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

#define FAST(function) (PyCFunction)(void (*)(void)) function, METH_FASTCALL | METH_KEYWORDS

static PyMethodDef graph_methods[] = {
    {"create_node", FAST(Graph_create_node), create_node_doc},
    {"placeholder", FAST(Graph_placeholder), placeholder_doc},
    {"get_attr", FAST(Graph_get_attr), get_attr_doc},
    {"call_function", FAST(Graph_call_function), call_function_doc},
    {"call_method", FAST(Graph_call_method), call_method_doc},
    {"call_module", FAST(Graph_call_module), call_module_doc},
    {"output", FAST(Graph_output), output_doc},
    {"node_copy", FAST(Graph_node_copy), node_copy_doc},
    {"graph_copy", FAST(Graph_graph_copy), graph_copy_doc},
    {"erase_node", Graph_erase_node, METH_O, erase_node_doc},
    {"inserting_before", FAST(Graph_inserting_before), inserting_before_doc},
    {"inserting_after", FAST(Graph_inserting_after), inserting_after_doc},
    {"find_nodes", FAST(Graph_find_nodes), find_nodes_doc},
    {"node", Graph_node, METH_O, node_doc},
    {"output_node", Graph_output_node, METH_NOARGS, output_node_doc},
    {"_copy", Graph_copy, METH_O, copy_doc},
    {"_eliminate_dead_code", FAST(Graph_eliminate_dead_code), eliminate_dead_code_doc},
    {"_eliminate_getitems", FAST(Graph_eliminate_getitems), eliminate_getitems_doc},
    {"_eliminate_common_subexpressions", (PyCFunction)(void (*)(void))Graph_eliminate_common_subexpressions,
     METH_FASTCALL, eliminate_common_subexpressions_doc},
    {"_find_constants", (PyCFunction)(void (*)(void))Graph_find_constants, METH_FASTCALL, find_constants_doc},
    {"_remove_noops", (PyCFunction)(void (*)(void))Graph_remove_noops, METH_FASTCALL, remove_noops_doc},
    {"_nodes_holding", (PyCFunction)(void (*)(void))Graph_nodes_holding, METH_FASTCALL, nodes_holding_doc},
    {"_meta_column", (PyCFunction)(void (*)(void))Graph_meta_column, METH_FASTCALL, meta_column_doc},
    {"_lint", FAST(Graph_lint), lint_doc},
    {"_renamed", Graph_renamed, METH_NOARGS,
     "_renamed($self, /)\n--\n\nNames of the file's nodes that have another name now, or none: {old: new or None}."},
    {"_signature", Graph_signature, METH_NOARGS, signature_doc},
    {"_set_signature", (PyCFunction)(void (*)(void))Graph_set_signature, METH_FASTCALL, set_signature_doc},
    {"_called", Graph_called, METH_NOARGS, called_doc},
    {"_erase_inputs", Graph_erase_inputs, METH_O, erase_inputs_doc},
    {"_file_meta", Graph_file_meta, METH_NOARGS, file_meta_doc},
    {"_names", Graph_names, METH_O, names_doc},
    {"_code", (PyCFunction)(void (*)(void))Graph_code, METH_FASTCALL, code_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(graph_doc, "Graph(owning_module=None, tracer_cls=None, tracer_extras=None)\n--\n\n"
                        "An ordered list of nodes, held in C; the API is torch.fx.Graph's.");

static PyMemberDef graph_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(GraphObject, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot graph_slots[] = {
    {Py_tp_doc, (void *)graph_doc},
    {Py_tp_new, Graph_new},
    {Py_tp_init, Graph_init},
    {Py_tp_traverse, Graph_traverse},
    {Py_tp_clear, Graph_clear},
    {Py_tp_dealloc, Graph_dealloc},
    {Py_tp_str, Graph_str},
    {Py_tp_repr, Graph_repr},
    {Py_tp_richcompare, Graph_richcompare},
    {Py_tp_hash, Graph_hash},
    {Py_tp_getset, graph_getset},
    {Py_tp_methods, graph_methods},
    {Py_tp_members, graph_members},
    {0, NULL},
};

PyType_Spec graph_spec = {
    .name = "fastexport._core.Graph",
    .basicsize = sizeof(GraphObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = graph_slots,
};
