/* dialect.c - asking what the core's check of dialects has to know, and giving Python the faults that it finds.
 *
 * Each target is judged once, by Python; a value by its type when that is one of those that are always fine, by Python
 * otherwise. That may run any code, so the graph is pinned from the first question to the last answer.
 */
#include "dialect.h"

#include "module.h"

typedef struct {
    GraphObject *g;
    PyObject *function, *attribute; /* target or path -> fe_target_fact bits */
    PyObject *value;                /* value -> bool; None: values are not looked at */
    PyObject *plain;                /* tuple: classes whose objects are fine as values */
    uint8_t *targets, *values;
} judges;

/* ---- values ---- */

/* By identity, as a metaclass may have an __eq__ of its own. */
static bool is_plain(const judges *j, PyObject *o)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(j->plain); i++) {
        if ((PyObject *)Py_TYPE(o) == PyTuple_GET_ITEM(j->plain, i))
            return true;
    }
    return false;
}

static bool are_plain(const judges *j, PyObject *const *items, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!is_plain(j, items[i]))
            return false;
    }
    return true;
}

static int ask_value(const judges *j, PyObject *value)
{
    if (is_plain(j, value) ||
        (PyList_CheckExact(value) && are_plain(j, PySequence_Fast_ITEMS(value), PyList_GET_SIZE(value))) ||
        (PyTuple_CheckExact(value) && are_plain(j, PySequence_Fast_ITEMS(value), PyTuple_GET_SIZE(value))))
        return FE_VALUE_FINE;
    Py_INCREF(value);
    PyObject *answer = PyObject_CallOneArg(j->value, value);
    Py_DECREF(value);
    int fine = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    return fine < 0 ? -1 : fine ? FE_VALUE_FINE : FE_VALUE_BAD;
}

static int ask_values(judges *j, uint32_t key)
{
    const fe_graph *c = j->g->core;

    for (uint32_t id = c->nodes[FE_ROOT].next; id != FE_ROOT; id = c->nodes[id].next) {
        if (c->nodes[id].op != FE_OP_CALL_FUNCTION && c->nodes[id].op != FE_OP_PLACEHOLDER)
            continue;
        uint32_t object = key == FE_NONE_ID ? key : fe_meta_get(c->details[id].meta, key);
        int fact = object == FE_NONE_ID ? FE_VALUE_NONE : ask_value(j, graph_object_at(j->g, object));
        if (fact < 0)
            return -1;
        j->values[id] = (uint8_t)fact;
    }
    return 0;
}

/* ---- targets ---- */

static int ask_target(judges *j, uint32_t index)
{
    fe_target t = j->g->core->targets[index];
    uint32_t facts = 0;

    if (!t.count || t.flags & FE_TARGET_NOT_CALLABLE || (t.op != FE_OP_CALL_FUNCTION && t.op != FE_OP_GET_ATTR))
        return 0;
    PyObject *object = graph_target_object(j->g, index);
    int result = object ? facts_ask(t.op == FE_OP_GET_ATTR ? j->attribute : j->function, &object, 1, &facts) : -1;
    Py_XDECREF(object);
    j->targets[index] = (uint8_t)facts;
    return result;
}

static int ask_all(judges *j, uint32_t value_key)
{
    if (j->value != Py_None && ask_values(j, value_key) < 0)
        return -1;
    for (uint32_t i = 0; i < j->g->core->target_count; i++) {
        if (ask_target(j, i) < 0)
            return -1;
    }
    return 0;
}

/* ---- faults ---- */

static PyObject *optional_name(const fe_graph *c, uint32_t id)
{
    return id == FE_NONE_ID ? Py_NewRef(Py_None) : string_to_python(c->details[id].name);
}

/* (code, node, other node or None, target) */
static PyObject *dialect_tuple(GraphObject *g, const fe_record *r)
{
    PyObject *name = optional_name(g->core, r->node), *other = optional_name(g->core, r->other),
             *target = graph_target_object(g, g->core->nodes[r->node].target);

    if (name && other && target)
        return Py_BuildValue("(sNNN)", fe_dialect_fault_name((fe_dialect_fault)r->code), name, other, target);
    Py_XDECREF(name);
    Py_XDECREF(other);
    Py_XDECREF(target);
    return NULL;
}

/* ("LINT", node, operand or None, message) */
static PyObject *lint_tuple(GraphObject *g, const fe_record *r)
{
    const fe_node *n = &g->core->nodes[r->node];
    PyObject *name = optional_name(g->core, r->node), *other = optional_name(g->core, r->other),
             *target = graph_target_object(g, n->target), *fault = NULL, *result = NULL;

    if (name && other && target)
        fault = report_fault((fe_fault)r->code, &(fault_parts){name, other, g->state->op_names[n->op], target});
    if (fault)
        result = Py_BuildValue("(sOOO)", "LINT", name, other, PyTuple_GET_ITEM(fault, 3));
    Py_XDECREF(fault);
    Py_XDECREF(name);
    Py_XDECREF(other);
    Py_XDECREF(target);
    return result;
}

typedef PyObject *(*record_writer)(GraphObject *g, const fe_record *r);

static int add_faults(GraphObject *g, PyObject *list, const fe_report *faults, record_writer write)
{
    for (uint32_t i = 0; i < faults->len; i++) {
        PyObject *fault = write(g, &faults->items[i]);
        int result = fault ? PyList_Append(list, fault) : -1;
        Py_XDECREF(fault);
        if (result < 0)
            return -1;
    }
    return 0;
}

/* ---- the check of a graph ---- */

/* Lint, in the first place: the rest relies on a sound graph, but for a look at every node. */
static PyObject *find_faults(judges *j, bool functional, bool all)
{
    GraphObject *g = j->g;
    const fe_lint_options options = {.all = all, .fx_only = true};
    const fe_dialect_facts facts = {
        .targets = j->targets, .values = j->value == Py_None ? NULL : j->values, .functional = functional};
    PyObject *list = PyList_New(0);
    fe_report lint, dialect;
    fe_error err;
    int result = -1;

    fe_report_init(&lint, g->core->allocator);
    fe_report_init(&dialect, g->core->allocator);
    if (list) {
        result = fe_lint(g->core, &options, &lint, &err);
        if (result == 0 && (all || !lint.len))
            result = fe_check_dialect(g->core, &facts, all, &dialect, &err);
        if (result < 0)
            raise_core(g->state, &err);
    }
    if (result == 0)
        result =
            add_faults(g, list, &lint, lint_tuple) < 0 || add_faults(g, list, &dialect, dialect_tuple) < 0 ? -1 : 0;
    fe_report_clear(&lint);
    fe_report_clear(&dialect);
    if (result < 0)
        Py_CLEAR(list);
    return list;
}

static int get_graph(PyObject *m, PyObject *o, GraphObject **out)
{
    *out = (GraphObject *)o;
    if (PyObject_TypeCheck(o, state_of(m)->graph_type))
        return graph_readable(*out);
    PyErr_Format(PyExc_TypeError, "a Graph is checked, not %.200s", Py_TYPE(o)->tp_name);
    return -1;
}

PyDoc_STRVAR(check_dialect_doc,
             "check_dialect(graph, function, attribute, value, plain, functional, all, /)\n--\n\n"
             "What is wrong with the nodes of one graph, as tuples (code, node, other, target or message).\n\n"
             "function and attribute are asked once for each target of call_function and get_attr, and answer with\n"
             "fe_target_fact bits; value is asked whether an object can be a value, unless its class, or that of each "
             "item of a\n"
             "list or tuple, is in the tuple plain. value None: values are not looked at.");

static PyObject *check_dialect(PyObject *m, PyObject *args)
{
    PyObject *graph, *val, *result = NULL;
    int functional, all;
    uint32_t key;
    judges j = {0};

    if (!PyArg_ParseTuple(args, "OOOOO!pp:check_dialect", &graph, &j.function, &j.attribute, &j.value, &PyTuple_Type,
                          &j.plain, &functional, &all) ||
        !(val = PyUnicode_FromString("val")))
        return NULL;
    int status = get_graph(m, graph, &j.g) < 0 ? -1 : graph_meta_key(j.g, val, false, &key);
    Py_DECREF(val);
    if (status < 0 || graph_readable(j.g) < 0)
        return NULL;
    graph_pin(j.g);
    j.targets = PyMem_Calloc(j.g->core->target_count + (size_t)1, 1);
    j.values = PyMem_Calloc(j.g->core->node_count, 1);
    if (!j.targets || !j.values)
        PyErr_NoMemory();
    else if (ask_all(&j, key) == 0)
        result = find_faults(&j, functional, all);
    PyMem_Free(j.targets);
    PyMem_Free(j.values);
    graph_unpin(j.g);
    return result;
}

/* ---- the check of a signature ---- */

typedef struct {
    GraphObject *g;
    Py_buffer inputs, outputs; /* by place of origin: fe_argument_class and what else stays as it is */
    PyObject *state, *constants, *parameter;
    uint8_t *facts; /* of the inputs, then of the outputs */
} signature_check;

static uint8_t fact_of_place(const fe_spec *spec, const Py_buffer *places)
{
    uint8_t known = FE_ARGUMENT_TENSOR;

    if (spec->origin && spec->origin <= places->len)
        known = ((const uint8_t *)places->buf)[spec->origin - 1];
    if (spec->node == FE_NONE_ID)
        return (uint8_t)((known & ~(unsigned)FE_ARGUMENT_CLASS) | FE_ARGUMENT_CONSTANT);
    /* A constant that became a node by an edit is a tensor. */
    return (known & FE_ARGUMENT_CLASS) == FE_ARGUMENT_CONSTANT ? FE_ARGUMENT_TENSOR : known;
}

/* What a mapping has under a key: 1 and a new reference, 0, or -1. */
static int look_up(PyObject *mapping, PyObject *key, PyObject **out)
{
    if (PyDict_CheckExact(mapping) || PyODict_CheckExact(mapping)) {
        *out = Py_XNewRef(PyDict_GetItemWithError(mapping, key));
        return *out ? 1 : PyErr_Occurred() ? -1 : 0;
    }
    int found = PySequence_Contains(mapping, key);
    if (found <= 0)
        return found;
    *out = PyObject_GetItem(mapping, key);
    return *out ? 1 : -1;
}

static int find_in_state(const signature_check *c, const fe_spec *spec, PyObject *target, uint8_t *facts)
{
    PyObject *value = NULL;
    int found = look_up(c->state, target, &value), is_parameter = 0;

    if (found > 0 && spec->kind == FE_INPUT_PARAMETER)
        is_parameter = (PyObject *)Py_TYPE(value) == c->parameter ? 1 : PyObject_IsInstance(value, c->parameter);
    Py_XDECREF(value);
    if (found > 0)
        *facts |= FE_SPEC_IN_STATE;
    if (is_parameter > 0)
        *facts |= FE_SPEC_IS_PARAMETER;
    return found < 0 || is_parameter < 0 ? -1 : 0;
}

static int find_in_constants(const signature_check *c, PyObject *target, uint8_t *facts)
{
    PyObject *value = NULL;
    int found = look_up(c->constants, target, &value);

    Py_XDECREF(value);
    if (found > 0)
        *facts |= FE_SPEC_IN_CONSTANTS;
    return found < 0 ? -1 : 0;
}

static int find_weight(const signature_check *c, const fe_spec *spec, uint8_t *facts)
{
    bool in_state = spec->kind == FE_INPUT_PARAMETER || spec->kind == FE_INPUT_BUFFER;
    bool in_constants =
        spec->kind == FE_INPUT_BUFFER || spec->kind == FE_INPUT_CONSTANT_TENSOR || spec->kind == FE_INPUT_CUSTOM_OBJ;

    if (!spec->target || !(in_state || in_constants))
        return 0;
    PyObject *target = string_to_python(spec->target);
    int result = target && (!in_state || find_in_state(c, spec, target, facts) == 0) &&
                         (!in_constants || *facts & FE_SPEC_IN_STATE || find_in_constants(c, target, facts) == 0)
                     ? 0
                     : -1;
    Py_XDECREF(target);
    return result;
}

static PyObject *signature_tuple(GraphObject *g, const fe_record *r)
{
    (void)g;
    return Py_BuildValue("(sLL)", fe_signature_fault_name((fe_signature_fault)r->code),
                         r->node == FE_NONE_ID ? -1LL : (long long)r->node,
                         r->other == FE_NONE_ID ? -1LL : (long long)r->other);
}

static PyObject *check_specs(signature_check *c, bool all)
{
    const fe_signature *s = c->g->core->signature;
    PyObject *list = NULL;
    fe_report faults;
    fe_error err;

    for (uint32_t i = 0; i < s->input_count; i++) {
        c->facts[i] = fact_of_place(&s->inputs[i], &c->inputs);
        if (find_weight(c, &s->inputs[i], &c->facts[i]) < 0)
            return NULL;
    }
    for (uint32_t i = 0; i < s->output_count; i++)
        c->facts[s->input_count + i] = fact_of_place(&s->outputs[i], &c->outputs);
    const fe_signature_facts facts = {.inputs = c->facts, .outputs = c->facts + s->input_count};
    fe_report_init(&faults, c->g->core->allocator);
    if (fe_check_signature(c->g->core, &facts, all, &faults, &err) < 0)
        raise_core(c->g->state, &err);
    else if ((list = PyList_New(0)) && add_faults(c->g, list, &faults, signature_tuple) < 0)
        Py_CLEAR(list);
    fe_report_clear(&faults);
    return list;
}

PyDoc_STRVAR(check_signature_doc,
             "check_signature(graph, inputs, outputs, state_dict, constants, parameter, all, /)\n--\n\n"
             "How a graph's signature differs from it and from the weights, as tuples (code, input or output, result); "
             "-1 for none.\n"
             "None when the graph is no exported program's.\n\n"
             "inputs and outputs are bytes of fe_argument_class and fe_spec_fact, by the place that the core remembers "
             "for each;\n"
             "state_dict and constants are mappings, parameter is the class of parameters.");

static PyObject *check_signature(PyObject *m, PyObject *args)
{
    PyObject *graph, *result = NULL;
    int all;
    signature_check c = {0};

    if (!PyArg_ParseTuple(args, "Oy*y*OOO!p:check_signature", &graph, &c.inputs, &c.outputs, &c.state, &c.constants,
                          &PyType_Type, &c.parameter, &all))
        return NULL;
    if (get_graph(m, graph, &c.g) < 0)
        goto done;
    if (!c.g->core->signature) {
        result = Py_NewRef(Py_None);
        goto done;
    }
    graph_pin(c.g);
    c.facts = PyMem_Malloc((size_t)c.g->core->signature->input_count + c.g->core->signature->output_count + 1);
    if (c.facts)
        result = check_specs(&c, all);
    else
        PyErr_NoMemory();
    PyMem_Free(c.facts);
    graph_unpin(c.g);
done:
    PyBuffer_Release(&c.inputs);
    PyBuffer_Release(&c.outputs);
    return result;
}

PyMethodDef dialect_functions[] = {
    {"check_dialect", check_dialect, METH_VARARGS, check_dialect_doc},
    {"check_signature", check_signature, METH_VARARGS, check_signature_doc},
    {NULL, NULL, 0, NULL},
};
