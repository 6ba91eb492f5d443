/* json.c - JSON values of a .pt2 file as Python objects, as json.loads would give them. */
#include "file.h"

/* Python may refuse to read longer integers (sys.set_int_max_str_digits). No field of the schema holds such. */
#define MOST_DIGITS 640

static PyObject *number(yyjson_val *v)
{
    const char *text = yyjson_get_raw(v); /* yyjson has put a NUL behind it */
    double real;

    if (yyjson_get_len(v) <= MOST_DIGITS && !strpbrk(text, ".eENI"))
        return PyLong_FromString(text, NULL, 10);
    if (!pt2_json_real(v, &real))
        real = *text == '-' ? -Py_HUGE_VAL : Py_HUGE_VAL; /* beyond a double, as Python has it */
    return PyFloat_FromDouble(real);
}

static PyObject *string_of_json(yyjson_val *v)
{
    return PyUnicode_DecodeUTF8(yyjson_get_str(v), (Py_ssize_t)yyjson_get_len(v), NULL);
}

static PyObject *list_of_json(yyjson_val *array)
{
    PyObject *list = PyList_New((Py_ssize_t)yyjson_arr_size(array));
    yyjson_val *item;
    size_t i, count;

    yyjson_arr_foreach(array, i, count, item)
    {
        PyObject *o = list ? json_to_python(item) : NULL;
        if (!o) {
            Py_XDECREF(list);
            return NULL;
        }
        PyList_SET_ITEM(list, (Py_ssize_t)i, o);
    }
    return list;
}

static int add_item(PyObject *dict, yyjson_val *key, yyjson_val *value)
{
    PyObject *k = string_of_json(key), *v = k ? json_to_python(value) : NULL;
    int result = v ? PyDict_SetItem(dict, k, v) : -1;

    Py_XDECREF(k);
    Py_XDECREF(v);
    return result;
}

static PyObject *dict_of_json(yyjson_val *object)
{
    PyObject *dict = PyDict_New();
    yyjson_val *key, *value;
    size_t i, count;

    pt2_each_member(object, i, count, key, value)
    {
        if (!dict || add_item(dict, key, value) < 0) {
            Py_XDECREF(dict);
            return NULL;
        }
    }
    return dict;
}

PyObject *json_to_python(yyjson_val *v)
{
    switch (yyjson_get_type(v)) {
    case YYJSON_TYPE_BOOL:
        return PyBool_FromLong(yyjson_get_bool(v));
    case YYJSON_TYPE_RAW:
        return number(v);
    case YYJSON_TYPE_STR:
        return string_of_json(v);
    case YYJSON_TYPE_ARR:
        return list_of_json(v);
    case YYJSON_TYPE_OBJ:
        return dict_of_json(v);
    default:
        Py_RETURN_NONE;
    }
}
