/* module.c - the module fastexport._core: its state, types and functions. */
#include "file.h"
#include "operators.h"
#include "tensor.h"

static int add_type_of(PyObject *m, PyType_Spec *spec, PyTypeObject *base, PyTypeObject **out)
{
    *out = (PyTypeObject *)PyType_FromModuleAndSpec(m, spec, (PyObject *)base);
    return *out ? PyModule_AddType(m, *out) : -1;
}

static int add_type(PyObject *m, PyType_Spec *spec, PyTypeObject **out)
{
    return add_type_of(m, spec, NULL, out);
}

static int add_types(PyObject *m, module_state *st)
{
    if (add_type(m, &graph_spec, &st->graph_type) < 0 || add_type(m, &node_spec, &st->node_type) < 0 ||
        add_type(m, &nodes_spec, &st->nodes_type) < 0 || add_type(m, &nodes_iter_spec, &st->nodes_iter_type) < 0 ||
        add_type(m, &users_spec, &st->users_type) < 0 || add_type(m, &users_iter_spec, &st->users_iter_type) < 0 ||
        add_type(m, &meta_spec, &st->meta_type) < 0 || add_type(m, &meta_iter_spec, &st->meta_iter_type) < 0 ||
        add_type(m, &insert_point_spec, &st->insert_point_type) < 0 ||
        add_type(m, &archive_spec, &st->archive_type) < 0 || add_type(m, &program_spec, &st->program_type) < 0 ||
        add_type(m, &storage_spec, &st->storage_type) < 0 || add_type(m, &tensor_spec, &st->tensor_type) < 0 ||
        add_type(m, &expr_spec, &st->expr_type) < 0 || add_type(m, &matches_spec, &st->matches_type) < 0 ||
        add_type(m, &proxy_spec, &st->proxy_type) < 0 ||
        add_type_of(m, &attribute_spec, st->proxy_type, &st->attribute_type) < 0 ||
        add_type(m, &recorder_spec, &st->recorder_type) < 0)
        return -1;
    return 0;
}

/* An attribute of a module, imported now and kept. */
static int import_name(const char *module_name, const char *name, PyObject **out)
{
    PyObject *module = PyImport_ImportModule(module_name);

    *out = module ? PyObject_GetAttrString(module, name) : NULL;
    Py_XDECREF(module);
    return *out ? 0 : -1;
}

static int import_names(module_state *st)
{
    if (import_name("fastexport._errors", "FastExportError", &st->error) < 0 ||
        import_name("fastexport._facts", "target_facts", &st->facts) < 0 ||
        import_name("fastexport._facts", "call_facts", &st->call_facts) < 0 ||
        import_name("fastexport._facts", "registered_effects", &st->registered_effects) < 0 ||
        import_name("fastexport._naming", "stem", &st->stem) < 0 ||
        import_name("fastexport._naming", "split_name", &st->split_name) < 0 ||
        import_name("fastexport._naming", "pretty", &st->pretty) < 0 ||
        import_name("fastexport._naming", "type_repr", &st->type_repr) < 0 ||
        import_name("fastexport._node", "identity", &st->identity) < 0 ||
        import_name("fastexport._errors", "format_error", &st->format_error) < 0 ||
        import_name("fastexport._objects", "make_object", &st->make_object) < 0 ||
        import_name("fastexport._objects", "describe_object", &st->describe_object) < 0 ||
        import_name("fastexport._objects", "DESCRIBED_TYPES", &st->described_types) < 0 ||
        import_name("fastexport._objects", "decode_meta", &st->decode_meta) < 0 ||
        import_name("fastexport._objects", "encode_meta", &st->encode_meta) < 0 ||
        import_name("fastexport._containers", "immutable_list", &st->list_type) < 0 ||
        import_name("fastexport._containers", "immutable_dict", &st->dict_type) < 0 ||
        import_name("operator", "getitem", &st->getitem) < 0)
        return -1;
    st->empty_dict = PyObject_CallNoArgs(st->dict_type);
    return st->empty_dict ? 0 : -1;
}

static int make_strings(module_state *st)
{
    for (int i = 0; i < FE_OP_COUNT; i++) {
        if (!(st->op_names[i] = PyUnicode_InternFromString(fe_op_name((fe_op)i))))
            return -1;
    }
    const struct {
        PyObject **at;
        const char *text;
    } strings[] = {
        {&st->str_fields, "_fields"},
        {&st->str_custom_repr, "_custom_fx_repr_fn"},
        {&st->str_stack_trace, "stack_trace"},
        {&st->str_nn_module, "Module"},
        {&st->str_holder, "Holder"},
        {&st->str_getattr, "__getattr__"},
        {&st->str_getattribute, "__getattribute__"},
        {&st->str_parameters, "_parameters"},
        {&st->str_buffers, "_buffers"},
        {&st->str_modules, "_modules"},
        {&st->str_is_wrapped, "is_wrapped"},
        {&st->str_create_proxy, "create_proxy"},
        {&st->str_create_arg, "create_arg"},
        {&st->str_records_directly, "_records_directly"},
        {&st->str_module_path, "module_path"},
        {&st->str_module_type, "module_type"},
        {&st->str_nn_module_stack, "nn_module_stack"},
        {&st->str_node, "node"},
        {&st->str_copy, "copy"},
        {&st->str_call, "__call__"},
    };
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
        if (!(*strings[i].at = PyUnicode_InternFromString(strings[i].text)))
            return -1;
    }
    return 0;
}

/* Names that no node may bear: they would hide a keyword or a builtin in generated code. */
static int reserve_names(module_state *st)
{
    PyObject *function, *names = NULL;
    int result = -1;

    fe_reserved_init(&st->reserved, &fe_python_allocator);
    if (import_name("fastexport._naming", "reserved_names", &function) < 0)
        return -1;
    names = PyObject_CallNoArgs(function);
    if (names && PyList_Check(names)) {
        result = 0;
        for (Py_ssize_t i = 0; result == 0 && i < PyList_GET_SIZE(names); i++) {
            Py_ssize_t len;
            const char *data = PyUnicode_AsUTF8AndSize(PyList_GET_ITEM(names, i), &len);
            result = data ? fe_reserved_add(&st->reserved, data, (size_t)len) : -1;
            if (data && result < 0)
                PyErr_NoMemory();
        }
    }
    Py_XDECREF(names);
    Py_DECREF(function);
    return result;
}

/* setup.py says what sources this is built from; python/fastexport/_build.py compares. */
#ifndef FE_BUILD
#define FE_BUILD ""
#endif

static int module_exec(PyObject *m)
{
    module_state *st = state_of(m);

    fx_pool_init(&st->pool);
    if (PyModule_AddStringConstant(m, "build", FE_BUILD) < 0)
        return -1;
    return make_strings(st) < 0 || import_names(st) < 0 || reserve_names(st) < 0 || add_types(m, st) < 0 ? -1 : 0;
}

PyDoc_STRVAR(
    use_containers_doc,
    "use_containers(list_type, dict_type, /)\n--\n\n"
    "From now on, lists and dicts in arguments come out as instances of these subclasses of list and dict: torch.fx's\n"
    "own once torch is there, so that code which tests for them, or goes through pytree, works on both.");

static PyObject *use_containers(PyObject *m, PyObject *args)
{
    module_state *st = state_of(m);
    PyObject *list, *dict, *empty;

    if (!PyArg_ParseTuple(args, "OO:use_containers", &list, &dict))
        return NULL;
    if (!PyType_Check(list) || !PyType_IsSubtype((PyTypeObject *)list, &PyList_Type) || !PyType_Check(dict) ||
        !PyType_IsSubtype((PyTypeObject *)dict, &PyDict_Type))
        return PyErr_Format(PyExc_TypeError, "use_containers() takes a subclass of list and one of dict");
    if (!(empty = PyObject_CallNoArgs(dict)))
        return NULL;
    Py_XSETREF(st->list_type, Py_NewRef(list));
    Py_XSETREF(st->dict_type, Py_NewRef(dict));
    Py_XSETREF(st->empty_dict, empty);
    Py_RETURN_NONE;
}

static PyMethodDef module_methods[] = {
    {"use_containers", use_containers, METH_VARARGS, use_containers_doc},
    {"find_modules", find_modules, METH_VARARGS, find_modules_doc},
    {"resolves", resolves, METH_VARARGS, resolves_doc},
    {"copy_containers", containers_copied, METH_O, copy_containers_doc},
    {NULL, NULL, 0, NULL},
};

static int add_functions(PyObject *m)
{
    if (PyModule_AddFunctions(m, fx_functions) < 0 || PyModule_AddFunctions(m, file_functions) < 0 ||
        PyModule_AddFunctions(m, survey_functions) < 0 || PyModule_AddFunctions(m, statistics_functions) < 0 ||
        PyModule_AddFunctions(m, operator_functions) < 0 || PyModule_AddFunctions(m, dialect_functions) < 0 ||
        PyModule_AddFunctions(m, match_functions) < 0 || PyModule_AddFunctions(m, proxy_functions) < 0 ||
        PyModule_AddFunctions(m, interpret_functions) < 0 || PyModule_AddFunctions(m, diff_functions) < 0 ||
        PyModule_AddFunctions(m, order_functions) < 0 || PyModule_AddFunctions(m, level_functions) < 0 ||
        PyModule_AddFunctions(m, layout_functions) < 0 || PyModule_AddFunctions(m, explorer_functions) < 0)
        return -1;
    return 0;
}

/* Every Python object of the state, for the collector. */
/* clang-format off */
#define STATE_OBJECTS(X) \
    X(graph_type) X(node_type) X(nodes_type) X(nodes_iter_type) X(users_type) X(users_iter_type) X(meta_type) \
    X(meta_iter_type) X(insert_point_type) X(error) X(list_type) X(dict_type) X(empty_dict) X(getitem) X(facts) \
    X(call_facts) X(pretty) X(type_repr) X(split_name) X(stem) X(identity) X(registered_effects) \
    X(archive_type) X(program_type) X(storage_type) X(tensor_type) X(expr_type) X(matches_type) X(format_error) X(make_object) \
    X(describe_object) X(described_types) X(decode_meta) X(encode_meta) X(effects) X(nn_module) X(holder) \
    X(proxy_type) X(attribute_type) X(recorder_type) X(proxy_class) X(attribute_class) X(appending_tracer) \
    X(plain_types) X(meta_preserved) X(classify) X(torch_function) X(proxy_operators) X(builtin_getattr) \
    X(str_create_proxy) X(str_create_arg) X(str_records_directly) X(str_module_path) X(str_module_type) \
    X(str_nn_module_stack) X(str_node) X(str_copy) X(str_call) \
    X(str_nn_module) X(str_holder) X(str_getattr) X(str_getattribute) X(str_parameters) \
    X(str_buffers) X(str_modules) X(str_is_wrapped) X(str_fields) X(str_custom_repr) X(str_stack_trace) \
    X(fx.node_type) X(fx.held)
/* clang-format on */

static int module_traverse(PyObject *m, visitproc visit, void *arg)
{
    module_state *st = state_of(m);

#define X(name) Py_VISIT(st->name);
    STATE_OBJECTS(X)
#undef X
    return 0;
}

static int module_clear(PyObject *m)
{
    module_state *st = state_of(m);

#define X(name) Py_CLEAR(st->name);
    STATE_OBJECTS(X)
#undef X
    for (int i = 0; i < FE_OP_COUNT; i++)
        Py_CLEAR(st->op_names[i]);
    return 0;
}

static void module_free(void *m)
{
    module_clear((PyObject *)m);
    if (state_of((PyObject *)m)->reserved.arena.allocator)
        fe_reserved_clear(&state_of((PyObject *)m)->reserved);
    fx_pool_clear(&state_of((PyObject *)m)->pool);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    {Py_mod_exec, add_functions},
    {0, NULL},
};

struct PyModuleDef fe_module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "fastexport._core",
    .m_doc = "The C part of fastexport; use it through the package fastexport.",
    .m_size = sizeof(module_state),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&fe_module_def);
}
