/* owning.c - looking up dotted paths in the module that owns a graph, as torch.fx's lint does: part by part, by getattr.
 *
 * Paths come in the order of the graph, so most share their first parts with the one before; those are not looked up again.
 * nn.Module finds its parameters, buffers and submodules in a __getattr__ written in Python. Where that one would be
 * called, and nothing shadows what it finds, the three dicts it looks into are read here directly.
 */
#include "module.h"

/* A class of a module of Python, kept by the module state once that module is loaded. */
static int find_class(PyObject **kept, const char *path, PyObject *name)
{
    PyObject *module, *class;

    if (*kept || !(module = PyDict_GetItemString(PyImport_GetModuleDict(), path)))
        return 0;
    if (lookup_attr(module, name, &class) < 0)
        return -1;
    if (class && PyType_Check(class))
        *kept = Py_NewRef(class);
    Py_XDECREF(class);
    return 0;
}

/* torch.nn.Module, and what is a module of ours. */
static int find_classes(module_state *st)
{
    if (find_class(&st->nn_module, "torch.nn.modules.module", st->str_nn_module) < 0)
        return -1;
    return find_class(&st->holder, "fastexport._graph_module", st->str_holder);
}

/* Whether a class is torch.nn.Module or one of it that finds attributes in the same way. */
static bool is_plain_class(const module_state *st, PyTypeObject *type)
{
    PyTypeObject *base = (PyTypeObject *)st->nn_module;

    return base && PyType_IsSubtype(type, base) &&
           _PyType_Lookup(type, st->str_getattr) == _PyType_Lookup(base, st->str_getattr) &&
           _PyType_Lookup(type, st->str_getattribute) == _PyType_Lookup(&PyBaseObject_Type, st->str_getattribute);
}

/* Whether getattr(module, name) would end in nn.Module.__getattr__ unless the instance's dict has the name. A class has the
 * version it had, and it is not 0, as long as neither it nor a class it inherits from was changed. */
static bool is_plain_module(owning_walk *w, PyObject *o, PyObject *name)
{
    PyTypeObject *type = Py_TYPE(o);

    if (type != w->type || type->tp_version_tag != w->type_version || !w->type_version) {
        w->is_plain = is_plain_class(w->st, type);
        Py_XSETREF(w->type, (PyTypeObject *)Py_NewRef(type));
        w->type_version = PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG) ? type->tp_version_tag : 0;
    }
    return w->is_plain && !_PyType_Lookup(type, name);
}

/* What a dict has under a name: a new reference, or NULL. */
static PyObject *entry(PyObject *dict, PyObject *name)
{
    return dict && PyDict_CheckExact(dict) && PyDict_GET_SIZE(dict) ? Py_XNewRef(PyDict_GetItemWithError(dict, name))
                                                                    : NULL;
}

/* What nn.Module.__getattr__ would find, or NULL: a new reference; exceptions are left to the slow way. */
static PyObject *plain_attribute(const module_state *st, PyObject *module, PyObject *name)
{
    PyObject *const tables[] = {st->str_parameters, st->str_buffers, st->str_modules};
    PyObject *dict = PyObject_GenericGetDict(module, NULL), *found = NULL;

    if (!dict) {
        PyErr_Clear();
        return NULL;
    }
    found = entry(dict, name);
    for (int i = 0; PyDict_CheckExact(dict) && !found && i < 3; i++)
        found = entry(PyDict_GetItemWithError(dict, tables[i]), name);
    Py_DECREF(dict);
    return found;
}

/* getattr(o, name, None): a new reference, NULL with an exception. */
static PyObject *attribute(owning_walk *w, PyObject *o, PyObject *name)
{
    PyObject *found = is_plain_module(w, o, name) ? plain_attribute(w->st, o, name) : NULL;

    if (!found && lookup_attr(o, name, &found) < 0)
        return NULL;
    return found ? found : Py_NewRef(Py_None);
}

void owning_walk_init(owning_walk *w, module_state *st, PyObject *owner)
{
    *w = (owning_walk){.st = st, .owner = Py_NewRef(owner)};
}

void owning_walk_clear(owning_walk *w)
{
    for (int i = 0; i < w->depth; i++)
        Py_DECREF(w->parts[i].object);
    for (int i = 0; i < OWNING_NAMES; i++)
        Py_XDECREF(w->names[i]);
    Py_XDECREF(w->type);
    Py_DECREF(w->owner);
}

/* Keep the parts that a path shares with the one before, drop the others; returns where the walk goes on. */
static const char *reuse_parts(owning_walk *w, const char *path, const char *end)
{
    size_t same = 0, len = (size_t)(end - path);
    int keep = 0;

    if (w->depth) {
        size_t known = w->parts[w->depth - 1].end;
        while (same < len && same < known && path[same] == w->path[same])
            same++;
    }
    while (keep < w->depth && w->parts[keep].end <= same && w->parts[keep].end < len && path[w->parts[keep].end] == '.')
        keep++;
    while (w->depth > keep)
        Py_DECREF(w->parts[--w->depth].object);
    w->path = path;
    return keep ? path + w->parts[keep - 1].end + 1 : path;
}

/* A part of a path as a str: a new reference. Many paths end alike, and lookup is faster with the str of the last time. */
static PyObject *part_name(owning_walk *w, const char *from, Py_ssize_t len)
{
    size_t hash = (size_t)len;

    for (Py_ssize_t i = 0; i < len; i++)
        hash = hash * 31 + (unsigned char)from[i];
    PyObject **known = &w->names[hash % OWNING_NAMES];
    if (*known && PyUnicode_GET_LENGTH(*known) == len && memcmp(PyUnicode_1BYTE_DATA(*known), from, (size_t)len) == 0)
        return Py_NewRef(*known);
    PyObject *name = PyUnicode_FromStringAndSize(from, len);
    if (name && PyUnicode_IS_ASCII(name))
        Py_XSETREF(*known, Py_NewRef(name));
    return name;
}

/* The attribute of a module that lies at [from, to) of a path. */
static PyObject *step(owning_walk *w, PyObject *module, const char *from, const char *to)
{
    PyObject *name = part_name(w, from, to - from);
    PyObject *next = name ? attribute(w, module, name) : NULL;

    Py_XDECREF(name);
    return next;
}

static bool is_module(const module_state *st, PyObject *o, bool is_last)
{
    if (!st->nn_module || PyObject_TypeCheck(o, (PyTypeObject *)st->nn_module))
        return true;
    return st->holder && PyObject_TypeCheck(o, (PyTypeObject *)st->holder) && (!is_last || PyCallable_Check(o));
}

static int fault_of(const module_state *st, PyObject *o, bool modules_only, bool is_last)
{
    if (o == Py_None)
        return FE_TARGET_MISSING;
    return modules_only && !is_module(st, o, is_last) ? FE_TARGET_NOT_MODULE : 0;
}

/* Follow a path: 0 and what it leads to (a new reference), what is wrong with it, or -1. */
static int follow(owning_walk *w, const char *path, size_t len, bool modules_only, PyObject **found)
{
    const char *end = path + len, *from, *dot;
    PyObject *at = NULL; /* a part deeper than is worth remembering */

    if (find_classes(w->st) < 0)
        return -1;
    from = reuse_parts(w, path, end);
    for (int i = 0; modules_only && i < w->depth; i++) { /* the path before may have been that of an attribute */
        int fault = fault_of(w->st, w->parts[i].object, true, false);
        if (fault)
            return fault;
    }
    for (;; from = dot + 1) {
        dot = memchr(from, '.', (size_t)(end - from));
        PyObject *next = step(w, at ? at : w->depth ? w->parts[w->depth - 1].object : w->owner, from, dot ? dot : end);
        Py_CLEAR(at);
        if (!next)
            return -1;
        int fault = fault_of(w->st, next, modules_only, !dot);
        if (fault || !dot) {
            *found = next;
            if (fault)
                Py_CLEAR(*found);
            return fault;
        }
        if (w->depth < OWNING_PARTS)
            w->parts[w->depth++] = (owning_part){next, (size_t)(dot - path)};
        else
            at = next;
    }
}

int owning_resolve(owning_walk *w, const char *path, size_t len, bool modules_only)
{
    PyObject *found = NULL;
    int fault = follow(w, path, len, modules_only, &found);

    Py_XDECREF(found);
    return fault;
}

static int add_module(PyObject *result, PyObject *path, PyObject *module)
{
    PyObject *pair = PyTuple_Pack(2, path, module);
    int status = pair ? PyList_Append(result, pair) : -1;

    Py_XDECREF(pair);
    return status;
}

const char find_modules_doc[] =
    "find_modules(owner, paths, kind, /)\n--\n\n"
    "The pairs (path, module) for those of a list of dotted paths that lead to a module of a class.";

PyObject *find_modules(PyObject *m, PyObject *args)
{
    PyObject *owner, *paths, *kind, *result;
    int status = 0;
    owning_walk w;

    if (!PyArg_ParseTuple(args, "OO!O!:find_modules", &owner, &PyList_Type, &paths, &PyType_Type, &kind) ||
        !(paths = PySequence_List(paths)))
        return NULL;
    if ((result = PyList_New(0))) {
        owning_walk_init(&w, state_of(m), owner);
        for (Py_ssize_t i = 0; status >= 0 && i < PyList_GET_SIZE(paths); i++) {
            PyObject *path = PyList_GET_ITEM(paths, i), *found = NULL;
            Py_ssize_t len;
            const char *text = PyUnicode_Check(path) ? PyUnicode_AsUTF8AndSize(path, &len) : NULL;
            if (!text) {
                PyErr_Clear(); /* no path */
                continue;
            }
            status = follow(&w, text, (size_t)len, false, &found);
            if (status == 0 && PyObject_TypeCheck(found, (PyTypeObject *)kind))
                status = add_module(result, path, found);
            Py_XDECREF(found);
        }
        owning_walk_clear(&w);
    }
    Py_DECREF(paths);
    if (status < 0)
        Py_CLEAR(result);
    return result;
}

const char resolves_doc[] =
    "resolves(owner, path, modules_only, /)\n--\n\n"
    "Whether a dotted path leads to something in a module; with modules_only, through modules only.";

PyObject *resolves(PyObject *m, PyObject *args)
{
    PyObject *owner, *text;
    const char *path;
    Py_ssize_t len;
    int modules_only, fault;
    owning_walk w;

    if (!PyArg_ParseTuple(args, "OUp:resolves", &owner, &text, &modules_only))
        return NULL;
    if (!(path = PyUnicode_AsUTF8AndSize(text, &len))) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
            return NULL;
        PyErr_Clear(); /* a lone surrogate is in no path */
        Py_RETURN_FALSE;
    }
    owning_walk_init(&w, state_of(m), owner);
    fault = owning_resolve(&w, path, (size_t)len, modules_only);
    owning_walk_clear(&w);
    return fault < 0 ? NULL : PyBool_FromLong(!fault);
}
