/* operator.c - the core's table of operators for Python, and operators by their names as targets.
 *
 * The Python side, fastexport._operators, is imported when a target is first given by its name.
 */
#include "operators.h"

#include "operator.h"

static const char *const spellings[] = {
    [FE_SPELLING_BAD] = "bad", [FE_SPELLING_OPERATOR] = "operator", [FE_SPELLING_HIGHER_ORDER] = "higher_order",
    [FE_SPELLING_SYM] = "sym", [FE_SPELLING_FUNCTION] = "function", [FE_SPELLING_EXTENSION] = "extension",
};

/* The UTF-8 of a string: 1, or 0 when it has none, which no operator's name is; -1 with an exception. */
static int text_of_str(PyObject *o, const char **text, size_t *len)
{
    Py_ssize_t size;

    if (!PyUnicode_Check(o)) {
        PyErr_Format(PyExc_TypeError, "the name of a target must be a str, not %.200s", Py_TYPE(o)->tp_name);
        return -1;
    }
    *text = PyUnicode_AsUTF8AndSize(o, &size);
    *len = *text ? (size_t)size : 0;
    if (*text)
        return 1;
    if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
        return -1;
    PyErr_Clear();
    return 0;
}

PyDoc_STRVAR(operator_facts_doc,
             "operator_facts(name, /)\n--\n\n"
             "The flags of a target of torch, as fastexport._facts finds them when torch is loaded; None when the\n"
             "table, which is made from torch's own operators, does not have it.");

static PyObject *operator_facts(PyObject *Py_UNUSED(m), PyObject *name)
{
    const char *text;
    size_t len;
    int found = text_of_str(name, &text, &len);
    const fe_operator *op = found > 0 ? fe_operator_find(text, len) : NULL;

    if (found < 0)
        return NULL;
    return op ? PyLong_FromLong(op->flags) : Py_NewRef(Py_None);
}

PyDoc_STRVAR(guess_facts_doc, "guess_facts(name, /)\n--\n\n"
                              "The flags of a target that is in no table: unknown, and by its name it may write.");

static PyObject *guess_facts(PyObject *Py_UNUSED(m), PyObject *name)
{
    const char *text;
    size_t len;
    int found = text_of_str(name, &text, &len);

    if (found < 0)
        return NULL;
    return PyLong_FromUnsignedLong(found ? fe_target_guess(text, len) : FE_TARGET_UNKNOWN);
}

PyDoc_STRVAR(classify_target_doc,
             "classify_target(text, /)\n--\n\n"
             "How the target of a call is spelled: 'operator', 'higher_order', 'sym', 'function',\n"
             "'extension', or 'bad'.");

static PyObject *classify_target(PyObject *Py_UNUSED(m), PyObject *name)
{
    const char *text;
    size_t len;
    int found = text_of_str(name, &text, &len);

    if (found < 0)
        return NULL;
    return PyUnicode_InternFromString(spellings[found ? fe_target_classify(text, len) : FE_SPELLING_BAD]);
}

PyDoc_STRVAR(operator_stem_doc, "operator_stem(text, /)\n--\n\n"
                                "The __name__ of what a target names, as torch.fx has it.");

static PyObject *operator_stem(PyObject *Py_UNUSED(m), PyObject *name)
{
    const char *text;
    size_t len, stem_len;
    int found = text_of_str(name, &text, &len);

    if (found <= 0)
        return found < 0 ? NULL : Py_NewRef(name);
    text = fe_operator_stem(text, len, &stem_len);
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)stem_len, NULL);
}

/* "Tensor?[]", "int[]?" */
static PyObject *type_text(fe_schema_type t)
{
    char suffix[2 + 2 * UINT8_MAX + 2];
    size_t len = 0;

    if (t.lists && t.optional_items)
        suffix[len++] = '?';
    for (unsigned i = 0; i < t.lists; i++) {
        suffix[len++] = '[';
        suffix[len++] = ']';
    }
    if (t.optional)
        suffix[len++] = '?';
    suffix[len] = '\0';
    return PyUnicode_FromFormat("%s%s", fe_schema_base_text(t), suffix);
}

/* Add to a list and let go of the item; NULL fails. */
static int append(PyObject *list, PyObject *item)
{
    int result = item ? PyList_Append(list, item) : -1;

    Py_XDECREF(item);
    return result;
}

static PyObject *bool_of(bool value)
{
    return value ? Py_True : Py_False;
}

static PyObject *argument_tuple(const fe_argument *a)
{
    return Py_BuildValue("(s#NOOO)", a->name, (Py_ssize_t)a->name_len, type_text(a->type), bool_of(a->has_default),
                         bool_of(a->keyword_only), bool_of(a->written));
}

PyDoc_STRVAR(operator_schema_doc,
             "operator_schema(name, /)\n--\n\n"
             "(arguments, returns) of an operator: lists of (name, type, has_default, keyword_only, written) and of\n"
             "types. None when it has no schema, or is unknown.");

static PyObject *operator_schema(PyObject *Py_UNUSED(m), PyObject *name)
{
    const char *text, *at = NULL;
    size_t len;
    int found = text_of_str(name, &text, &len);
    const fe_operator *op = found > 0 ? fe_operator_find(text, len) : NULL;
    fe_argument argument;
    fe_schema_type type;

    if (found < 0)
        return NULL;
    if (!op || !fe_operator_has_schema(op))
        Py_RETURN_NONE;
    PyObject *arguments = PyList_New(0), *returns = PyList_New(0), *result = NULL;
    if (!arguments || !returns)
        goto done;
    while (fe_operator_next_argument(op, &at, &argument)) {
        if (append(arguments, argument_tuple(&argument)) < 0)
            goto done;
    }
    at = NULL;
    while (fe_operator_next_return(op, &at, &type)) {
        if (append(returns, type_text(type)) < 0)
            goto done;
    }
    result = PyTuple_Pack(2, arguments, returns);
done:
    Py_XDECREF(arguments);
    Py_XDECREF(returns);
    return result;
}

PyDoc_STRVAR(operator_names_doc, "operator_names()\n--\n\n"
                                 "(the version of torch that the table is of, the names in it).");

static PyObject *operator_names(PyObject *Py_UNUSED(m), PyObject *Py_UNUSED(ignored))
{
    PyObject *names = PyList_New(0), *result = NULL;
    int failed = names ? 0 : -1;

    for (uint32_t i = 0; failed == 0 && i < fe_operator_count(); i++) {
        const fe_operator *op = fe_operator_at(i);
        bool is_function = op->kind == FE_SPELLING_SYM || op->kind == FE_SPELLING_FUNCTION;
        failed =
            append(names, PyUnicode_FromFormat("%s%s", is_function ? "" : FE_OPERATOR_PREFIX, fe_operator_name(op)));
    }
    if (failed == 0)
        result = Py_BuildValue("(sO)", fe_operator_torch(), names);
    Py_XDECREF(names);
    return result;
}

PyMethodDef operator_functions[] = {
    {"operator_facts", operator_facts, METH_O, operator_facts_doc},
    {"guess_facts", guess_facts, METH_O, guess_facts_doc},
    {"classify_target", classify_target, METH_O, classify_target_doc},
    {"operator_stem", operator_stem, METH_O, operator_stem_doc},
    {"operator_schema", operator_schema, METH_O, operator_schema_doc},
    {"operator_names", operator_names, METH_NOARGS, operator_names_doc},
    {NULL, NULL, 0, NULL},
};

/* ---- targets by name ---- */

PyObject *operator_or_same(PyObject *target)
{
    const char *text;
    size_t len;
    int found = PyUnicode_Check(target) ? text_of_str(target, &text, &len) : 0;

    if (found < 0)
        return NULL;
    if (!found || fe_target_classify(text, len) == FE_SPELLING_BAD)
        return Py_NewRef(target);
    PyObject *module = PyImport_ImportModule("fastexport._operators");
    PyObject *result = module ? PyObject_CallMethod(module, "operator_for", "O", target) : NULL;
    Py_XDECREF(module);
    return result;
}

PyObject *operator_to_torch(PyObject *target)
{
    PyObject *name = PyUnicode_FromString("fastexport._operators");
    PyObject *module = name ? PyImport_GetModule(name) : NULL; /* not imported: there are no Operators yet */
    PyObject *type = module ? PyObject_GetAttrString(module, "Operator") : NULL, *result = NULL;

    if (!PyErr_Occurred())
        result = type && (PyObject *)Py_TYPE(target) == type ? PyObject_CallMethod(target, "to_torch", NULL)
                                                             : Py_NewRef(target);
    Py_XDECREF(name);
    Py_XDECREF(module);
    Py_XDECREF(type);
    return result;
}
