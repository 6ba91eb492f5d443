/* program.c - the type Program: what a .pt2 file holds, read in C, and the way back: verifying and writing its graphs.
 *
 * Graphs are handed to Graph objects once (build); from then on the program keeps the documents and the Graphs the
 * structure. To verify or write, the Graphs are put together again as the pt2_graphs that this layer works on (view.c).
 */
#include "tensor.h"
#include "view.h"
#include "write.h"

/* ---- life ---- */

static int note(ProgramObject *self, const pt2_report *r)
{
    PyObject *faults = report_to_list(r);
    int result = faults ? PyList_SetSlice(self->faults, PyList_GET_SIZE(self->faults), PY_SSIZE_T_MAX, faults) : -1;

    Py_XDECREF(faults);
    return result;
}

static int read_program(ProgramObject *self, const char *model)
{
    ArchiveObject *a = self->archive;
    pt2_report r;
    int result;

    if (archive_lock(a) < 0)
        return -1;
    pt2_report_init(&r, &fe_python_allocator, &a->limits);
    Py_BEGIN_ALLOW_THREADS
    self->program = pt2_program_open(a->archive, model, self->exprs, &fe_python_allocator, &r);
    result = self->program ? pt2_program_read(self->program, &a->state->reserved, &r) : -1;
    Py_END_ALLOW_THREADS
    archive_unlock(a);
    if (result < 0 || r.errors) {
        raise_report(a->state, &r);
        result = -1;
    } else {
        result = note(self, &r);
    }
    pt2_report_clear(&r);
    return result;
}

static PyObject *Program_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"archive", "model", NULL};
    PyObject *module = PyType_GetModuleByDef(type, &fe_module_def), *archive;
    const char *model = NULL;

    if (!module || !PyArg_ParseTupleAndKeywords(args, kwargs, "O!|z:Program", names, state_of(module)->archive_type,
                                                &archive, &model))
        return NULL;
    ProgramObject *self = (ProgramObject *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->archive = (ArchiveObject *)Py_NewRef(archive);
    self->faults = PyList_New(0);
    self->exprs = fe_exprs_new(&fe_python_allocator);
    if (!self->exprs)
        PyErr_NoMemory();
    if (!self->faults || !self->exprs || read_program(self, model) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

/* There is no tp_clear: graphs go on using what it holds. A cycle through an archive is broken where its bytes come from. */
static int Program_traverse(PyObject *o, visitproc visit, void *arg)
{
    ProgramObject *self = (ProgramObject *)o;

    Py_VISIT(Py_TYPE(o));
    Py_VISIT(self->archive);
    Py_VISIT(self->faults);
    return 0;
}

static void Program_dealloc(PyObject *o)
{
    ProgramObject *self = (ProgramObject *)o;
    PyTypeObject *type = Py_TYPE(o);

    PyObject_GC_UnTrack(o);
    pt2_program_free(self->program);
    fe_exprs_free(self->exprs);
    Py_XDECREF(self->archive);
    Py_XDECREF(self->faults);
    type->tp_free(o);
    Py_DECREF(type);
}

/* ---- graphs ---- */

static PyObject *build_graph(ProgramObject *self, pt2_graph *from, PyObject *make, PyObject *cache)
{
    module_state *st = self->archive->state;
    PyObject *graph = PyObject_CallNoArgs(make), *subgraphs = PyDict_New();

    if (!graph || !subgraphs)
        goto failed;
    if (!PyObject_TypeCheck(graph, st->graph_type)) {
        PyErr_SetString(PyExc_TypeError, "build() takes a function that makes an empty Graph");
        goto failed;
    }
    if (graph_adopt((GraphObject *)graph, self, from, cache) < 0)
        goto failed;
    for (uint32_t i = 0; i < from->subgraph_count; i++) {
        PyObject *inner = build_graph(self, from->subgraphs[i], make, cache); /* no deeper than limits.graph_depth */
        int result = inner ? PyDict_SetItemString(subgraphs, from->subgraphs[i]->name, inner) : -1;
        Py_XDECREF(inner);
        if (result < 0)
            goto failed;
    }
    if (from->subgraph_count)
        Py_XSETREF(((GraphObject *)graph)->subgraphs, Py_NewRef(subgraphs));
    Py_DECREF(subgraphs);
    return graph;
failed:
    Py_XDECREF(graph);
    Py_XDECREF(subgraphs);
    return NULL;
}

PyDoc_STRVAR(program_build_doc, "build($self, make, /)\n--\n\n"
                                "The program's graph, with its subgraphs; make() gives an empty Graph. Once only.");

static PyObject *Program_build(PyObject *o, PyObject *make)
{
    ProgramObject *self = (ProgramObject *)o;
    PyObject *cache, *graph;

    if (self->built)
        return PyErr_Format(PyExc_RuntimeError, "the graphs of this program are built already");
    self->built = true; /* also when it fails: some cores may be gone by then */
    cache = PyDict_New();
    graph = cache ? build_graph(self, self->program->root, make, cache) : NULL;
    Py_XDECREF(cache);
    return graph;
}

/* ---- the document ---- */

/* Which document the first part of a path names. */
static yyjson_val *document(ProgramObject *self, const char *name)
{
    pt2_program *p = self->program;
    const pt2_json *json = !strcmp(name, "model")       ? &p->json
                           : !strcmp(name, "weights")   ? &p->weights.config
                           : !strcmp(name, "constants") ? &p->constants.config
                                                        : NULL;

    return json && json->doc ? yyjson_doc_get_root(json->doc) : NULL;
}

static yyjson_val *step(yyjson_val *v, PyObject *key)
{
    Py_ssize_t len;

    if (PyLong_Check(key)) {
        Py_ssize_t index = PyLong_AsSsize_t(key);
        return index < 0 ? NULL : yyjson_arr_get(v, (size_t)index);
    }
    const char *text = PyUnicode_Check(key) ? PyUnicode_AsUTF8AndSize(key, &len) : NULL;
    return text ? yyjson_obj_getn(v, text, (size_t)len) : NULL;
}

PyDoc_STRVAR(program_json_doc, "json($self, document, /, *path)\n--\n\n"
                               "A part of a document (model, weights, constants) as json.loads gives it, or None.");

static PyObject *Program_json(PyObject *o, PyObject *const *args, Py_ssize_t nargs)
{
    const char *name = nargs > 0 && PyUnicode_Check(args[0]) ? PyUnicode_AsUTF8(args[0]) : NULL;
    yyjson_val *v;

    if (!name)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "json() takes the name of a document");
    v = document((ProgramObject *)o, name);
    for (Py_ssize_t i = 1; v && i < nargs; i++)
        v = step(v, args[i]);
    if (PyErr_Occurred())
        return NULL;
    return json_to_python(v);
}

/* ---- payloads ---- */

PyDoc_STRVAR(
    program_payloads_doc,
    "payloads($self, constants, /)\n--\n\n"
    "The weights, or the constants, of the configuration: tuples (name, kind, is_param, requires_grad, entry,\n"
    "dtype, layout, sizes, strides, offset, device), and the entry that holds them pickled, or None.");

static PyObject *Program_payloads(PyObject *o, PyObject *constants)
{
    const pt2_program *p = ((ProgramObject *)o)->program;
    int which = PyObject_IsTrue(constants);

    return which < 0 ? NULL : payloads_to_python(which ? &p->constants : &p->weights);
}

PyDoc_STRVAR(program_check_payloads_doc, "check_payloads($self, bytes, /)\n--\n\n"
                                         "Check the CRCs of weights and constants, up to so many bytes (0: of all); "
                                         "the faults, as a list.");

static PyObject *Program_check_payloads(PyObject *o, PyObject *bytes)
{
    ProgramObject *self = (ProgramObject *)o;
    unsigned long long limit = PyLong_AsUnsignedLongLong(bytes);
    PyObject *faults;
    pt2_report r;
    int result;

    if (limit == (unsigned long long)-1 && PyErr_Occurred())
        return NULL;
    if (archive_lock(self->archive) < 0)
        return NULL;
    pt2_report_init(&r, &fe_python_allocator, &self->archive->limits);
    Py_BEGIN_ALLOW_THREADS
    result = pt2_program_check_payloads(self->program, limit, &r);
    Py_END_ALLOW_THREADS
    archive_unlock(self->archive);
    (void)result; /* what it means is in the report */
    faults = report_to_list(&r);
    pt2_report_clear(&r);
    return faults;
}

/* ---- ranges ---- */

static PyObject *bound(bool given, int64_t value)
{
    return given ? PyLong_FromLongLong(value) : Py_NewRef(Py_None);
}

static PyObject *Program_ranges(PyObject *o, PyObject *Py_UNUSED(ignored))
{
    const pt2_program *p = ((ProgramObject *)o)->program;
    PyObject *list = PyList_New((Py_ssize_t)p->range_count);

    for (uint32_t i = 0; list && i < p->range_count; i++) {
        const pt2_range *r = &p->ranges[i];
        PyObject *item = Py_BuildValue("(sNNO)", r->key, bound(r->has_min, r->min), bound(r->has_max, r->max),
                                       r->seen ? Py_True : Py_False);
        if (!item)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, item);
    }
    return list;
}

/* ---- verifying and writing ---- */

/* calls: the module call graph as JSON text, or None for the file's. */
static int view_calls(ProgramObject *self, view *v, PyObject *calls)
{
    Py_ssize_t len;
    pt2_report r;

    if (!calls || calls == Py_None)
        return 0;
    const char *text = PyUnicode_AsUTF8AndSize(calls, &len);
    if (!text)
        return -1;
    pt2_report_init(&r, &fe_python_allocator, &self->archive->limits);
    int result = pt2_json_parse_copy(&v->calls, text, (size_t)len, &fe_python_allocator, NULL, &r);
    if (result < 0)
        raise_report(self->archive->state, &r);
    else
        v->graph.calls = yyjson_doc_get_root(v->calls.doc);
    pt2_report_clear(&r);
    return result;
}

static view *view_from(const module_state *st, view_maker *m, PyObject *graph)
{
    if (PyObject_TypeCheck(graph, st->graph_type))
        return view_new(m, (GraphObject *)graph, NULL);
    PyErr_Format(PyExc_TypeError, "a fastexport Graph is needed, not %.200s", Py_TYPE(graph)->tp_name);
    return NULL;
}

/* The view of a graph given by a caller, ready for C that runs without the GIL. */
static view *view_of(ProgramObject *self, PyObject *graph, PyObject *calls)
{
    view *v = view_from(self->archive->state, &(view_maker){.program = self}, graph);

    if (v && (view_calls(self, v, calls) < 0 || view_is_current(v) < 0)) {
        view_free(v);
        return NULL;
    }
    return v;
}

PyDoc_STRVAR(program_verify_doc, "verify($self, graph, strict, calls=None, /)\n--\n\n"
                                 "Check the program as it is now; the faults, as a list of tuples.");

static PyObject *Program_verify(PyObject *o, PyObject *args)
{
    ProgramObject *self = (ProgramObject *)o;
    PyObject *graph, *calls = NULL, *faults;
    pt2_report r;
    int strict, result;
    view *v;

    if (!PyArg_ParseTuple(args, "Op|O:verify", &graph, &strict, &calls) || !(v = view_of(self, graph, calls)))
        return NULL;
    pt2_report_init(&r, &fe_python_allocator, &self->archive->limits);
    view_set_busy(v, true);
    Py_BEGIN_ALLOW_THREADS
    result = pt2_program_verify(self->program, &v->graph, strict ? PT2_STRICT : PT2_LENIENT, &r);
    Py_END_ALLOW_THREADS
    view_set_busy(v, false);
    (void)result; /* what it means is in the report */
    faults = report_to_list(&r);
    pt2_report_clear(&r);
    view_free(v);
    return faults;
}

PyDoc_STRVAR(program_write_doc,
             "write($self, graph, calls=None, /)\n--\n\n"
             "The model.json of the program as it is now, as bytes. Raises FormatError for what the\n"
             "format can't say. calls: a module call graph as JSON text, in the place of the file's.");

static PyObject *Program_write(PyObject *o, PyObject *args)
{
    ProgramObject *self = (ProgramObject *)o;
    PyObject *graph, *calls = NULL, *bytes = NULL;
    pt2_report r;
    fe_buffer out;
    int result;
    view *v;

    if (!PyArg_ParseTuple(args, "O|O:write", &graph, &calls) || !(v = view_of(self, graph, calls)))
        return NULL;
    pt2_report_init(&r, &fe_python_allocator, &self->archive->limits);
    fe_buffer_init(&out, &fe_python_allocator);
    view_set_busy(v, true);
    Py_BEGIN_ALLOW_THREADS
    result = pt2_program_write(self->program, &v->graph, &out, &r);
    Py_END_ALLOW_THREADS
    view_set_busy(v, false);
    if (result < 0)
        raise_report(self->archive->state, &r);
    else
        bytes = PyBytes_FromStringAndSize(out.data, (Py_ssize_t)out.len);
    fe_buffer_clear(&out);
    pt2_report_clear(&r);
    view_free(v);
    return bytes;
}

/* ---- writing what comes from no file ---- */

PyDoc_STRVAR(
    program_write_new_doc,
    "write_new($type, graph, document, encode, describe, verify=False, /)\n--\n\n"
    "The model.json of a program that comes from no file, as bytes, by torch's rules.\n\n"
    "document: all of it but the graph and the signature, which are the graph's own, as a JSON text.\n"
    "encode(name, meta, is_input) gives a node's (value or None, metadata) as JSON texts; describe(object)\n"
    "what stands in arguments or is called as (kind, code, text, schema), or None. verify: also refuse what a\n"
    "file may not say, as reading it would. Raises FormatError.");

/* The module call graph is looked at as an edited one is: nobody has read the document, and counted leaves. */
static int verify_new(const pt2_program *program, view *v, pt2_report *r)
{
    yyjson_val *module = yyjson_obj_get(yyjson_doc_get_root(program->json.doc), "graph_module");

    v->graph.calls = yyjson_obj_get(module, "module_call_graph");
    int result = pt2_program_verify(program, &v->graph, PT2_NEW, r);
    v->graph.calls = NULL; /* it is the document's */
    return result;
}

static int write_new(const module_state *st, view *v, const char *document, size_t len, bool verify, fe_buffer *out)
{
    pt2_program program = {.allocator = &fe_python_allocator};
    pt2_report r;
    int result;

    pt2_report_init(&r, &fe_python_allocator, NULL);
    view_set_busy(v, true);
    Py_BEGIN_ALLOW_THREADS
    result = pt2_json_parse_copy(&program.json, document, len, &fe_python_allocator, NULL, &r);
    if (result == 0)
        result = pt2_program_write_as(&program, &v->graph, PT2_WRITE_AS_TORCH, out, &r);
    if (result == 0 && verify)
        result = verify_new(&program, v, &r);
    Py_END_ALLOW_THREADS
    view_set_busy(v, false);
    if (result < 0)
        raise_report(st, &r);
    pt2_json_clear(&program.json);
    pt2_report_clear(&r);
    return result;
}

static PyObject *Program_write_new(PyObject *type, PyObject *args)
{
    PyObject *module = PyType_GetModuleByDef((PyTypeObject *)type, &fe_module_def), *graph, *bytes = NULL;
    view_maker maker = {0};
    const char *document;
    Py_ssize_t len;
    int verify = false;
    fe_buffer out;

    if (!module ||
        !PyArg_ParseTuple(args, "Os#OO|p:write_new", &graph, &document, &len, &maker.encode, &maker.describe, &verify))
        return NULL;
    const module_state *st = state_of(module);
    view *v = view_from(st, &maker, graph);
    fe_buffer_init(&out, &fe_python_allocator);
    if (v && view_is_current(v) == 0 && write_new(st, v, document, (size_t)len, verify, &out) == 0)
        bytes = PyBytes_FromStringAndSize(out.data, (Py_ssize_t)out.len);
    fe_buffer_clear(&out);
    view_free(v);
    return bytes;
}

PyDoc_STRVAR(program_canonical_doc, "canonical($self, /)\n--\n\n"
                                    "The model.json as it was read, in the form that write() gives.");

static PyObject *Program_canonical(PyObject *o, PyObject *Py_UNUSED(ignored))
{
    PyObject *bytes;
    fe_buffer out;

    fe_buffer_init(&out, &fe_python_allocator);
    pt2_json_write(document((ProgramObject *)o, "model"), &out);
    bytes = out.failed ? PyErr_NoMemory() : PyBytes_FromStringAndSize(out.data, (Py_ssize_t)out.len);
    fe_buffer_clear(&out);
    return bytes;
}

static int is_unchanged(PyObject *graph, PyTypeObject *graph_type, const pt2_graph *from);

/* Whether a dict has the subgraphs of the document, each under its name and unchanged: 1, 0, or -1 with an exception. */
static int are_unchanged(PyObject *subgraphs, PyTypeObject *graph_type, const pt2_graph *from)
{
    int result = !subgraphs ? !from->subgraph_count : PyDict_GET_SIZE(subgraphs) == (Py_ssize_t)from->subgraph_count;

    for (uint32_t i = 0; result > 0 && i < from->subgraph_count; i++) {
        PyObject *name = PyUnicode_FromString(from->subgraphs[i]->name);
        PyObject *inner = name ? Py_XNewRef(PyDict_GetItemWithError(subgraphs, name)) : NULL;
        result = inner ? is_unchanged(inner, graph_type, from->subgraphs[i]) : PyErr_Occurred() ? -1 : 0;
        Py_XDECREF(inner);
        Py_XDECREF(name);
    }
    return result;
}

/* Goes by the document's subgraphs, so it ends, whatever the graph holds now. */
static int is_unchanged(PyObject *graph, PyTypeObject *graph_type, const pt2_graph *from)
{
    const GraphObject *g = (GraphObject *)graph;

    if (!PyObject_TypeCheck(graph, graph_type) || !g->loaded || g->loaded->from != from ||
        g->loaded->version != g->core->version)
        return 0;
    for (uint32_t id = 1; id < g->core->node_count; id++) {
        if (!graph_is_untouched(g, id))
            return 0;
    }
    PyObject *subgraphs = Py_XNewRef(g->subgraphs); /* looking up a name may run code that sets another dict */
    int result = are_unchanged(subgraphs, graph_type, from);
    Py_XDECREF(subgraphs);
    return result;
}

PyDoc_STRVAR(program_is_unchanged_doc, "is_unchanged($self, graph, /)\n--\n\n"
                                       "Whether nothing of the graph, its meta and its subgraphs was touched since it "
                                       "was read.");

static PyObject *Program_is_unchanged(PyObject *o, PyObject *graph)
{
    ProgramObject *self = (ProgramObject *)o;

    if (!PyObject_TypeCheck(graph, self->archive->state->graph_type))
        return PyErr_Format(PyExc_TypeError, "a fastexport Graph is needed, not %.200s", Py_TYPE(graph)->tp_name);
    int result = is_unchanged(graph, self->archive->state->graph_type, self->program->root);
    return result < 0 ? NULL : PyBool_FromLong(result);
}

/* ---- the type ---- */

static PyObject *Program_layout(PyObject *o, void *Py_UNUSED(closure))
{
    static const char *const names[] = {"A", "B", "C"};

    return PyUnicode_FromString(names[((ProgramObject *)o)->program->layout]);
}

static PyObject *Program_model(PyObject *o, void *Py_UNUSED(closure))
{
    return PyUnicode_FromString(((ProgramObject *)o)->program->model);
}

static PyObject *entry_name(const pt2_entry *e)
{
    return e ? PyUnicode_FromString(e->name) : Py_NewRef(Py_None);
}

static PyObject *Program_model_entry(PyObject *o, void *Py_UNUSED(closure))
{
    return entry_name(((ProgramObject *)o)->program->model_entry);
}

static PyObject *Program_sample_inputs(PyObject *o, void *Py_UNUSED(closure))
{
    return entry_name(((ProgramObject *)o)->program->sample_inputs);
}

static PyGetSetDef program_getset[] = {
    {"layout", Program_layout, NULL, "A, B or C.", NULL},
    {"model", Program_model, NULL, "The name of the model in the archive.", NULL},
    {"model_entry", Program_model_entry, NULL, "The entry that holds the document.", NULL},
    {"sample_inputs", Program_sample_inputs, NULL, "The entry that holds the example inputs, or None.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef program_members[] = {
    {"archive", T_OBJECT_EX, offsetof(ProgramObject, archive), READONLY, "The Archive it was read from."},
    {"faults", T_OBJECT_EX, offsetof(ProgramObject, faults), READONLY, "What was noted while it was read."},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef program_methods[] = {
    {"build", Program_build, METH_O, program_build_doc},
    {"json", (PyCFunction)(void (*)(void))Program_json, METH_FASTCALL, program_json_doc},
    {"payloads", Program_payloads, METH_O, program_payloads_doc},
    {"check_payloads", Program_check_payloads, METH_O, program_check_payloads_doc},
    {"ranges", Program_ranges, METH_NOARGS,
     "ranges($self, /)\n--\n\nTuples (expression, least or None, greatest or None, whether the program uses it)."},
    {"verify", Program_verify, METH_VARARGS, program_verify_doc},
    {"write", Program_write, METH_VARARGS, program_write_doc},
    {"write_new", Program_write_new, METH_VARARGS | METH_CLASS, program_write_new_doc},
    {"canonical", Program_canonical, METH_NOARGS, program_canonical_doc},
    {"is_unchanged", Program_is_unchanged, METH_O, program_is_unchanged_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(program_doc, "Program(archive, model=None)\n--\n\n"
                          "An exported program of an archive, read and checked. Raises FormatError.");

static PyType_Slot program_slots[] = {
    {Py_tp_doc, (void *)program_doc}, {Py_tp_new, Program_new},
    {Py_tp_dealloc, Program_dealloc}, {Py_tp_traverse, Program_traverse},
    {Py_tp_getset, program_getset},   {Py_tp_members, program_members},
    {Py_tp_methods, program_methods}, {0, NULL},
};

PyType_Spec program_spec = {
    .name = "fastexport._core.Program",
    .basicsize = sizeof(ProgramObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = program_slots,
};
