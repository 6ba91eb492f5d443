/* match_notes.c - meta["from_node"] of the nodes of a replacement.
 *
 * As a recording of the graph would note it, see fastexport._provenance: a node that takes the place of a result of a match
 * gets that as its source, and any other new node a bare creation. Done here for a node that was made for the match and
 * has no sources yet, which most are; pairs of other nodes are left to Python.
 */
#include "match.h"

int match_notes_open(match_notes *n, GraphObject *g, PyObject *asked)
{
    *n = (match_notes){.g = g};
    if (asked == Py_None)
        return 0;
    if (!PyTuple_Check(asked)) {
        PyErr_SetString(PyExc_TypeError, "notes are a tuple or None");
        return -1;
    }
    if (!PyArg_ParseTuple(asked, "O!OUO!:notes", &PyTuple_Type, &n->kinds, &n->text_of, &n->pass_name, &PyList_Type,
                          &n->rest))
        return -1;
    if (!PyTuple_GET_SIZE(n->kinds)) {
        PyErr_SetString(PyExc_ValueError, "notes need a class of sources");
        return -1;
    }
    PyObject *class = PyTuple_GET_ITEM(n->kinds, 0);
    if (!(n->key_object = PyUnicode_InternFromString("from_node")) ||
        graph_meta_key(g, n->key_object, true, &n->key) < 0 || !(n->graph_id = PyLong_FromVoidPtr(g)) ||
        !(n->action = PyUnicode_InternFromString("replace+create")) ||
        !(n->created = PyObject_CallFunction(class, "ssiOs", "", "", -1, n->pass_name, "create")))
        return -1;
    n->wanted = true;
    return 0;
}

void match_notes_close(match_notes *n)
{
    Py_XDECREF(n->key_object);
    Py_XDECREF(n->graph_id);
    Py_XDECREF(n->action);
    Py_XDECREF(n->created);
    Py_XDECREF(n->target);
    Py_XDECREF(n->text);
}

/* Put a list of one source, which is used up, into the meta of a node. */
static int put(match_notes *n, uint32_t id, PyObject *source)
{
    GraphObject *g = n->g;
    PyObject *list = source ? PyList_New(1) : NULL;
    uint32_t object;
    fe_error err;
    int result = -1;

    if (!list) {
        Py_XDECREF(source);
        return -1;
    }
    PyList_SET_ITEM(list, 0, source);
    if (graph_editable(g) == 0 && graph_object(g, list, &object) == 0) {
        fe_object_ref(g->core, object);
        result = fe_meta_set(g->core, id, n->key, object, &err);
        if (result < 0)
            raise_core(g->state, &err);
        fe_object_unref(g->core, object);
        graph_sweep(g);
    }
    Py_DECREF(list);
    return result;
}

int match_note_created(match_notes *n, uint32_t id)
{
    return n->wanted ? put(n, id, Py_NewRef(n->created)) : 0;
}

/* What stands for a target in sources; most often it is that of the source before. Borrowed from n. */
static PyObject *target_text(match_notes *n, uint32_t id)
{
    PyObject *target = graph_target_object(n->g, n->g->core->nodes[id].target), *text;

    if (target && target == n->target) {
        Py_DECREF(target);
        return n->text;
    }
    text = target ? PyObject_CallOneArg(n->text_of, target) : NULL;
    if (!text) {
        Py_XDECREF(target);
        return NULL;
    }
    Py_XSETREF(n->target, target);
    Py_XSETREF(n->text, text);
    return text;
}

/* The sources that a node has, if that is what is there: a new reference to a list, or to an empty tuple. */
static PyObject *sources_of(const match_notes *n, uint32_t id)
{
    uint32_t object = fe_meta_get(n->g->core->details[id].meta, n->key);
    PyObject *list = object == FE_NONE_ID ? NULL : graph_object_at(n->g, object);

    if (!list || !PyList_CheckExact(list))
        return PyTuple_New(0);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        bool is_source = false;
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(n->kinds); k++)
            is_source |= (PyObject *)Py_TYPE(PyList_GET_ITEM(list, i)) == PyTuple_GET_ITEM(n->kinds, k);
        if (!is_source)
            return PyTuple_New(0);
    }
    return Py_NewRef(list);
}

static PyObject *source_of(match_notes *n, uint32_t id)
{
    PyObject *text = target_text(n, id), *name = NULL, *sources = NULL, *source = NULL;

    if (text && (name = string_to_python(n->g->core->details[id].name)) && (sources = sources_of(n, id))) {
        PyObject *args[] = {name, text, n->graph_id, n->pass_name, n->action, sources};
        source = PyObject_Vectorcall(PyTuple_GET_ITEM(n->kinds, 0), args, Py_ARRAY_LENGTH(args), NULL);
    }
    Py_XDECREF(sources);
    Py_XDECREF(name);
    return source;
}

static int leave(match_notes *n, uint32_t old, uint32_t new, bool is_made)
{
    PyObject *a = graph_node(n->g, old), *b = a ? graph_node(n->g, new) : NULL;
    PyObject *item = b ? PyTuple_Pack(3, a, b, is_made ? Py_True : Py_False) : NULL;
    int result = item ? PyList_Append(n->rest, item) : -1;

    Py_XDECREF(item);
    Py_XDECREF(b);
    Py_XDECREF(a);
    return result;
}

int match_note_replaced(match_notes *n, uint32_t old, uint32_t new, bool is_made)
{
    if (!n->wanted)
        return 0;
    if (!is_made || fe_meta_get(n->g->core->details[new].meta, n->key) != FE_NONE_ID)
        return leave(n, old, new, is_made);
    return graph_load_meta(n->g, old) < 0 ? -1 : put(n, new, source_of(n, old));
}
