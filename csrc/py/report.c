/* report.c - what the core's passes found, as Python objects.
 *
 * Native graphs and live torch graphs differ only in where the names of nodes come from.
 */
#include "module.h"

static int add_reason(PyObject *dict, PyObject *name, fe_reason reason)
{
    PyObject *text = name ? PyUnicode_FromString(fe_reason_text(reason)) : NULL;
    int result = text ? PyDict_SetItem(dict, name, text) : -1;

    Py_XDECREF(text);
    Py_XDECREF(name);
    return result;
}

/* What is left was kept for its effect or its users, what is in the report was removed. */
PyObject *report_reasons(const fe_graph *c, const fe_dce_options *o, const fe_report *removed, node_namer namer,
                         void *ctx)
{
    PyObject *dict = PyDict_New();
    int result = dict ? 0 : -1;

    for (uint32_t id = c->nodes[FE_ROOT].next; result == 0 && id != FE_ROOT; id = c->nodes[id].next) {
        fe_reason effect = fe_node_effect(c, id, o);
        result = add_reason(dict, namer(ctx, id), effect == FE_REASON_UNUSED ? FE_REASON_USED : effect);
    }
    for (uint32_t i = 0; result == 0 && i < removed->len; i++)
        result = add_reason(dict, namer(ctx, removed->items[i].node), FE_REASON_UNUSED);
    if (result < 0)
        Py_CLEAR(dict);
    return dict;
}

/* Something that has no text must not hide the fault. */
static void add_text(fe_buffer *out, PyObject *o)
{
    PyObject *text = PyObject_Str(o),
             *bytes = text ? PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace") : NULL;

    if (bytes)
        fe_buffer_add(out, PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes));
    else
        fe_buffer_char(out, '?');
    PyErr_Clear();
    Py_XDECREF(bytes);
    Py_XDECREF(text);
}

static PyObject *fault_message(fe_fault code, const fault_parts *parts)
{
    PyObject *result;
    fe_buffer text;

    fe_buffer_init(&text, &fe_python_allocator);
    for (const char *at = fe_fault_text(code); *at; at++) {
        if (*at != '%') {
            fe_buffer_char(&text, *at);
            continue;
        }
        at++;
        add_text(&text, *at == 'N'   ? parts->name
                        : *at == 'O' ? parts->operand
                        : *at == 'P' ? parts->op
                                     : parts->target);
    }
    result = text.failed ? PyErr_NoMemory() : PyUnicode_DecodeUTF8(text.data, (Py_ssize_t)text.len, "replace");
    fe_buffer_clear(&text);
    return result;
}

PyObject *report_fault(fe_fault code, const fault_parts *parts)
{
    PyObject *message = fault_message(code, parts), *result = NULL;

    if (message)
        result = Py_BuildValue("sOOO", fe_fault_name(code), parts->name, parts->operand, message);
    Py_XDECREF(message);
    return result;
}
