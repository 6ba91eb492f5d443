/* schema.c - the schema as tables, and one recursive check that reads them.
 *
 * A type is a list of fields; in a union exactly one of them is there. Writers put fields in the order of the schema,
 * so the next field is guessed before it is searched. Faults below a value that is wrong itself are not looked for.
 */
#include "schema.h"

/* ---- tables ---- */

typedef enum {
    KIND_ANY,
    KIND_STR,
    KIND_INT,
    KIND_REAL,
    KIND_BOOL,
    KIND_ENUM,
    KIND_DEVICE_TYPE,
    KIND_DEVICE_INDEX,
    KIND_TYPE
} field_kind;

typedef enum { SHAPE_ONE, SHAPE_LIST, SHAPE_LISTS, SHAPE_MAP } field_shape;

enum {
    MAY_BE_NULL = 1,
    MAY_MISS = 2, /* it has a default */
};

typedef struct {
    const char *name;
    uint8_t len, kind, shape, flags;
    uint8_t type; /* KIND_TYPE: type_id, KIND_ENUM: enum_id */
} field;

/* First the public ones, in the order of pt2_root_type. */
#define TYPES(X)                                            \
    X(EXPORTED_PROGRAM, "ExportedProgram", false)           \
    X(PAYLOAD_CONFIG, "PayloadConfig", false)               \
    X(TENSOR_META, "TensorMeta", false)                     \
    X(NODE, "Node", false)                                  \
    X(ARGUMENT, "Argument", true)                           \
    X(SYM_INT, "SymInt", true)                              \
    X(SYM_FLOAT, "SymFloat", true)                          \
    X(SYM_BOOL, "SymBool", true)                            \
    X(INT_EXPR, "SymExpr", false)                           \
    X(FLOAT_EXPR, "SymExpr", false)                         \
    X(BOOL_EXPR, "SymExpr", false)                          \
    X(INT_HINT, "SymExprHint", true)                        \
    X(FLOAT_HINT, "SymExprHint", true)                      \
    X(BOOL_HINT, "SymExprHint", true)                       \
    X(SYM_INT_ARG, "SymIntArgument", true)                  \
    X(SYM_FLOAT_ARG, "SymFloatArgument", true)              \
    X(SYM_BOOL_ARG, "SymBoolArgument", true)                \
    X(OPTIONAL_TENSOR, "OptionalTensorArgument", true)      \
    X(CONSTANT_VALUE, "ConstantValue", true)                \
    X(INPUT_SPEC, "InputSpec", true)                        \
    X(OUTPUT_SPEC, "OutputSpec", true)                      \
    X(DEVICE, "Device", false)                              \
    X(TENSOR_ARG, "TensorArgument", false)                  \
    X(TOKEN_ARG, "TokenArgument", false)                    \
    X(GRAPH_ARG, "GraphArgument", false)                    \
    X(CUSTOM_ARG, "CustomObjArgument", false)               \
    X(COMPLEX, "ComplexValue", false)                       \
    X(NAMED_ARG, "NamedArgument", false)                    \
    X(GRAPH, "Graph", false)                                \
    X(USER_INPUT, "UserInputSpec", false)                   \
    X(CONSTANT_INPUT, "InputToConstantInputSpec", false)    \
    X(PARAMETER, "InputToParameterSpec", false)             \
    X(BUFFER, "InputToBufferSpec", false)                   \
    X(TENSOR_CONSTANT, "InputToTensorConstantSpec", false)  \
    X(CUSTOM_INPUT, "InputToCustomObjSpec", false)          \
    X(INPUT_TOKEN, "InputTokenSpec", false)                 \
    X(USER_OUTPUT, "UserOutputSpec", false)                 \
    X(LOSS_OUTPUT, "LossOutputSpec", false)                 \
    X(BUFFER_MUTATION, "BufferMutationSpec", false)         \
    X(PARAMETER_MUTATION, "ParameterMutationSpec", false)   \
    X(PARAMETER_GRADIENT, "GradientToParameterSpec", false) \
    X(INPUT_GRADIENT, "GradientToUserInputSpec", false)     \
    X(INPUT_MUTATION, "UserInputMutationSpec", false)       \
    X(OUTPUT_TOKEN, "OutputTokenSpec", false)               \
    X(SIGNATURE, "GraphSignature", false)                   \
    X(RANGE, "RangeConstraint", false)                      \
    X(CALL_SIGNATURE, "ModuleCallSignature", false)         \
    X(CALL_ENTRY, "ModuleCallEntry", false)                 \
    X(NAMED_TUPLE, "NamedTupleDef", false)                  \
    X(GRAPH_MODULE, "GraphModule", false)                   \
    X(SCHEMA_VERSION, "SchemaVersion", false)               \
    X(PAYLOAD_META, "PayloadMeta", false)

typedef enum {
#define X(id, name, is_union) TYPE_##id,
    TYPES(X)
#undef X
        TYPE_COUNT
} type_id;

_Static_assert((int)TYPE_ARGUMENT == (int)PT2_TYPE_ARGUMENT && (int)TYPE_NODE == (int)PT2_TYPE_NODE &&
                   (int)TYPE_TENSOR_META == (int)PT2_TYPE_TENSOR_META,
               "the public types come first");

typedef enum { ENUM_SCALAR_TYPE, ENUM_LAYOUT, ENUM_MEMORY_FORMAT, ENUM_ARGUMENT_KIND } enum_id;

/* The words of the tables: ONE("arg", ARGUMENT) is a field of a type, STR("name") a text, with what may be null or
 * missing behind. */
#define FIELD(name, kind, shape, type, flags) {name, sizeof(name) - 1, KIND_##kind, SHAPE_##shape, flags, type}
#define ANY(name) FIELD(name, ANY, ONE, 0, 0)
#define STR(name, flags) FIELD(name, STR, ONE, 0, flags)
#define STRS(name, flags) FIELD(name, STR, LIST, 0, flags)
#define STR_MAP(name, flags) FIELD(name, STR, MAP, 0, flags)
#define INT(name, flags) FIELD(name, INT, ONE, 0, flags)
#define INTS(name) FIELD(name, INT, LIST, 0, 0)
#define REAL(name) FIELD(name, REAL, ONE, 0, 0)
#define BOOL(name, flags) FIELD(name, BOOL, ONE, 0, flags)
#define ENUM(name, id, flags) FIELD(name, ENUM, ONE, ENUM_##id, flags)
#define ONE(name, id, flags) FIELD(name, TYPE, ONE, TYPE_##id, flags)
#define LIST(name, id) FIELD(name, TYPE, LIST, TYPE_##id, 0)
#define MAP(name, id, flags) FIELD(name, TYPE, MAP, TYPE_##id, flags)

#define FIELDS(id) static const field fields_##id[]

FIELDS(EXPORTED_PROGRAM) = {ONE("graph_module", GRAPH_MODULE, 0), FIELD("opset_version", INT, MAP, 0, 0),
                            MAP("range_constraints", RANGE, 0),   ONE("schema_version", SCHEMA_VERSION, 0),
                            STRS("verifiers", MAY_MISS),          STR("torch_version", MAY_MISS),
                            STRS("guards_code", MAY_MISS)};
FIELDS(PAYLOAD_CONFIG) = {MAP("config", PAYLOAD_META, 0)};
FIELDS(TENSOR_META) = {ENUM("dtype", SCALAR_TYPE, 0), LIST("sizes", SYM_INT),   BOOL("requires_grad", 0),
                       ONE("device", DEVICE, 0),      LIST("strides", SYM_INT), ONE("storage_offset", SYM_INT, 0),
                       ENUM("layout", LAYOUT, 0)};
FIELDS(NODE) = {STR("target", 0),
                LIST("inputs", NAMED_ARG),
                LIST("outputs", ARGUMENT),
                STR_MAP("metadata", 0),
                BOOL("is_hop_single_tensor_return", MAY_BE_NULL | MAY_MISS),
                STR("name", MAY_BE_NULL | MAY_MISS)};
FIELDS(ARGUMENT) = {ANY("as_none"), /* true; [] in files of schema 8.1 and before */
                    ONE("as_tensor", TENSOR_ARG, 0),
                    LIST("as_tensors", TENSOR_ARG),
                    INT("as_int", 0),
                    INTS("as_ints"),
                    REAL("as_float"),
                    FIELD("as_floats", REAL, LIST, 0, 0),
                    STR("as_string", 0),
                    STRS("as_strings", 0),
                    ONE("as_sym_int", SYM_INT_ARG, 0),
                    LIST("as_sym_ints", SYM_INT_ARG),
                    ENUM("as_scalar_type", SCALAR_TYPE, 0),
                    ENUM("as_memory_format", MEMORY_FORMAT, 0),
                    ENUM("as_layout", LAYOUT, 0),
                    ONE("as_device", DEVICE, 0),
                    BOOL("as_bool", 0),
                    FIELD("as_bools", BOOL, LIST, 0, 0),
                    ONE("as_sym_bool", SYM_BOOL_ARG, 0),
                    LIST("as_sym_bools", SYM_BOOL_ARG),
                    ONE("as_graph", GRAPH_ARG, 0),
                    LIST("as_optional_tensors", OPTIONAL_TENSOR),
                    ONE("as_custom_obj", CUSTOM_ARG, 0),
                    STR("as_operator", 0),
                    ONE("as_sym_float", SYM_FLOAT_ARG, 0),
                    LIST("as_sym_floats", SYM_FLOAT_ARG),
                    ONE("as_optional_tensor", OPTIONAL_TENSOR, 0),
                    ONE("as_complex", COMPLEX, 0),
                    FIELD("as_nested_tensors", TYPE, LISTS, TYPE_TENSOR_ARG, 0),
                    FIELD("as_int_lists", INT, LISTS, 0, 0),
                    MAP("as_string_to_argument", ARGUMENT, 0),
                    FIELD("as_float_lists", REAL, LISTS, 0, 0)};
FIELDS(SYM_INT) = {ONE("as_expr", INT_EXPR, 0), INT("as_int", 0)};
FIELDS(SYM_FLOAT) = {ONE("as_expr", FLOAT_EXPR, 0), REAL("as_float")};
FIELDS(SYM_BOOL) = {ONE("as_expr", BOOL_EXPR, 0), BOOL("as_bool", 0)};
FIELDS(INT_EXPR) = {STR("expr_str", 0), ONE("hint", INT_HINT, MAY_BE_NULL | MAY_MISS)};
FIELDS(FLOAT_EXPR) = {STR("expr_str", 0), ONE("hint", FLOAT_HINT, MAY_BE_NULL | MAY_MISS)};
FIELDS(BOOL_EXPR) = {STR("expr_str", 0), ONE("hint", BOOL_HINT, MAY_BE_NULL | MAY_MISS)};
/* The schema has one SymExprHint for all; each expression has a hint of its own type. */
FIELDS(INT_HINT) = {INT("as_int", 0)};
FIELDS(FLOAT_HINT) = {REAL("as_float")};
FIELDS(BOOL_HINT) = {BOOL("as_bool", 0)};
FIELDS(SYM_INT_ARG) = {STR("as_name", 0), INT("as_int", 0)};
FIELDS(SYM_FLOAT_ARG) = {STR("as_name", 0), REAL("as_float")};
FIELDS(SYM_BOOL_ARG) = {STR("as_name", 0), BOOL("as_bool", 0)};
FIELDS(OPTIONAL_TENSOR) = {ONE("as_tensor", TENSOR_ARG, 0), ANY("as_none")};
FIELDS(CONSTANT_VALUE) = {ANY("as_none"), INT("as_int", 0), REAL("as_float"), STR("as_string", 0), BOOL("as_bool", 0)};
FIELDS(INPUT_SPEC) = {
    ONE("user_input", USER_INPUT, 0),           ONE("parameter", PARAMETER, 0),     ONE("buffer", BUFFER, 0),
    ONE("tensor_constant", TENSOR_CONSTANT, 0), ONE("custom_obj", CUSTOM_INPUT, 0), ONE("token", INPUT_TOKEN, 0),
    ONE("constant_input", CONSTANT_INPUT, 0)};
FIELDS(OUTPUT_SPEC) = {ONE("user_output", USER_OUTPUT, 0),
                       ONE("loss_output", LOSS_OUTPUT, 0),
                       ONE("buffer_mutation", BUFFER_MUTATION, 0),
                       ONE("gradient_to_parameter", PARAMETER_GRADIENT, 0),
                       ONE("gradient_to_user_input", INPUT_GRADIENT, 0),
                       ONE("user_input_mutation", INPUT_MUTATION, 0),
                       ONE("token", OUTPUT_TOKEN, 0),
                       ONE("parameter_mutation", PARAMETER_MUTATION, 0)};
FIELDS(DEVICE) = {FIELD("type", DEVICE_TYPE, ONE, 0, 0), FIELD("index", DEVICE_INDEX, ONE, 0, MAY_BE_NULL | MAY_MISS)};
FIELDS(TENSOR_ARG) = {STR("name", 0)};
FIELDS(TOKEN_ARG) = {STR("name", 0)};
FIELDS(GRAPH_ARG) = {STR("name", 0), ONE("graph", GRAPH, 0)};
FIELDS(CUSTOM_ARG) = {STR("name", 0), STR("class_fqn", 0)};
FIELDS(COMPLEX) = {REAL("real"), REAL("imag")};
FIELDS(NAMED_ARG) = {STR("name", 0), ONE("arg", ARGUMENT, 0), ENUM("kind", ARGUMENT_KIND, MAY_BE_NULL | MAY_MISS)};
FIELDS(GRAPH) = {LIST("inputs", ARGUMENT),
                 LIST("outputs", ARGUMENT),
                 LIST("nodes", NODE),
                 MAP("tensor_values", TENSOR_META, 0),
                 MAP("sym_int_values", SYM_INT, 0),
                 MAP("sym_bool_values", SYM_BOOL, 0),
                 BOOL("is_single_tensor_return", MAY_MISS),
                 MAP("custom_obj_values", CUSTOM_ARG, MAY_MISS),
                 MAP("sym_float_values", SYM_FLOAT, MAY_MISS)};
FIELDS(USER_INPUT) = {ONE("arg", ARGUMENT, 0)};
FIELDS(CONSTANT_INPUT) = {STR("name", 0), ONE("value", CONSTANT_VALUE, 0)};
FIELDS(PARAMETER) = {ONE("arg", TENSOR_ARG, 0), STR("parameter_name", 0)};
FIELDS(BUFFER) = {ONE("arg", TENSOR_ARG, 0), STR("buffer_name", 0), BOOL("persistent", 0)};
FIELDS(TENSOR_CONSTANT) = {ONE("arg", TENSOR_ARG, 0), STR("tensor_constant_name", 0)};
FIELDS(CUSTOM_INPUT) = {ONE("arg", CUSTOM_ARG, 0), STR("custom_obj_name", 0)};
FIELDS(INPUT_TOKEN) = {ONE("arg", TOKEN_ARG, 0)};
FIELDS(USER_OUTPUT) = {ONE("arg", ARGUMENT, 0)};
FIELDS(LOSS_OUTPUT) = {ONE("arg", TENSOR_ARG, 0)};
FIELDS(BUFFER_MUTATION) = {ONE("arg", TENSOR_ARG, 0), STR("buffer_name", 0)};
FIELDS(PARAMETER_MUTATION) = {ONE("arg", TENSOR_ARG, 0), STR("parameter_name", 0)};
FIELDS(PARAMETER_GRADIENT) = {ONE("arg", TENSOR_ARG, 0), STR("parameter_name", 0)};
FIELDS(INPUT_GRADIENT) = {ONE("arg", TENSOR_ARG, 0), STR("user_input_name", 0)};
FIELDS(INPUT_MUTATION) = {ONE("arg", TENSOR_ARG, 0), STR("user_input_name", 0)};
FIELDS(OUTPUT_TOKEN) = {ONE("arg", TOKEN_ARG, 0)};
FIELDS(SIGNATURE) = {LIST("input_specs", INPUT_SPEC), LIST("output_specs", OUTPUT_SPEC)};
FIELDS(RANGE) = {INT("min_val", MAY_BE_NULL), INT("max_val", MAY_BE_NULL)};
FIELDS(CALL_SIGNATURE) = {LIST("inputs", ARGUMENT), LIST("outputs", ARGUMENT), STR("in_spec", 0), STR("out_spec", 0),
                          STRS("forward_arg_names", MAY_BE_NULL | MAY_MISS)};
FIELDS(CALL_ENTRY) = {STR("fqn", 0), ONE("signature", CALL_SIGNATURE, MAY_BE_NULL | MAY_MISS)};
FIELDS(NAMED_TUPLE) = {STRS("field_names", 0)};
FIELDS(GRAPH_MODULE) = {ONE("graph", GRAPH, 0), ONE("signature", SIGNATURE, 0), LIST("module_call_graph", CALL_ENTRY),
                        STR_MAP("metadata", MAY_MISS), MAP("treespec_namedtuple_fields", NAMED_TUPLE, MAY_MISS)};
FIELDS(SCHEMA_VERSION) = {INT("major", 0), INT("minor", 0)};
FIELDS(PAYLOAD_META) = {STR("path_name", 0), BOOL("is_param", 0), BOOL("use_pickle", 0),
                        ONE("tensor_meta", TENSOR_META, MAY_BE_NULL)};

typedef struct {
    const char *name;
    const field *fields;
    uint8_t count;
    bool is_union;
} schema_type;

static const schema_type types[TYPE_COUNT] = {
#define X(id, name, is_union) [TYPE_##id] = {name, fields_##id, sizeof fields_##id / sizeof(field), is_union},
    TYPES(X)
#undef X
};

/* ---- names of numbers ---- */

typedef struct {
    const char *name;
    unsigned size;
} dtype_facts;

/* ScalarType; 0 is UNKNOWN, which no tensor has. */
static const dtype_facts dtypes[] = {
    [1] = {"uint8", 1},
    [2] = {"int8", 1},
    [3] = {"int16", 2},
    [4] = {"int32", 4},
    [5] = {"int64", 8},
    [6] = {"float16", 2},
    [7] = {"float32", 4},
    [8] = {"float64", 8},
    [9] = {"complex32", 4},
    [10] = {"complex64", 8},
    [11] = {"complex128", 16},
    [12] = {"bool", 1},
    [13] = {"bfloat16", 2},
    [28] = {"uint16", 2},
    [29] = {"float8_e4m3fn", 1},
    [30] = {"float8_e5m2", 1},
    [31] = {"float8_e4m3fnuz", 1},
    [32] = {"float8_e5m2fnuz", 1},
    [33] = {"float8_e8m0fnu", 1},
    [34] = {"uint32", 4},
    [35] = {"uint64", 8},
};

static const char *const layouts[] = {NULL,         "sparse_coo", "sparse_csr", "sparse_csc",
                                      "sparse_bsr", "sparse_bsc", "_mkldnn",    "strided"};
static const char *const memory_formats[] = {NULL, "contiguous_format", "channels_last", "channels_last_3d",
                                             "preserve_format"};

#define COUNT(array) ((int64_t)(sizeof(array) / sizeof *(array)))

const char *pt2_dtype_name(int64_t code)
{
    return code >= 0 && code < COUNT(dtypes) ? dtypes[code].name : NULL;
}

unsigned pt2_dtype_size(int64_t code)
{
    return code >= 0 && code < COUNT(dtypes) ? dtypes[code].size : 0;
}

const char *pt2_layout_name(int64_t code)
{
    return code >= 0 && code < COUNT(layouts) ? layouts[code] : NULL;
}

const char *pt2_memory_format_name(int64_t code)
{
    return code >= 0 && code < COUNT(memory_formats) ? memory_formats[code] : NULL;
}

bool pt2_is_device_type(const char *type, size_t len)
{
    /* c10/core/DeviceType.cpp */
    static const char *const names[] = {"cpu", "cuda", "meta",   "mps",    "xpu",    "hpu",          "mtia",
                                        "xla", "ipu",  "mkldnn", "opengl", "opencl", "ideep",        "hip",
                                        "ve",  "fpga", "maia",   "lazy",   "vulkan", "privateuseone"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == len && memcmp(names[i], type, len) == 0)
            return true;
    return false;
}

static bool is_enum_number(enum_id id, int64_t code)
{
    switch (id) {
    case ENUM_SCALAR_TYPE:
        return pt2_dtype_name(code);
    case ENUM_LAYOUT:
        return pt2_layout_name(code);
    case ENUM_MEMORY_FORMAT:
        return pt2_memory_format_name(code);
    case ENUM_ARGUMENT_KIND:
        return code >= 0 && code <= 2; /* 0: unknown, of older writers */
    }
    return false;
}

static const char *enum_name(enum_id id)
{
    static const char *const names[] = {"ScalarType", "Layout", "MemoryFormat", "ArgumentKind"};

    return names[id];
}

/* ---- the check ---- */

#define REMEMBERED_KEYS 64

typedef struct {
    pt2_report *report;
    uint32_t graph_depth;
    int result;
    uint32_t unknown_count; /* unknown keys that were warned of */
    struct {
        type_id type;
        const yyjson_val *key;
    } unknown[REMEMBERED_KEYS];
} checker;

static void check_type(checker *c, yyjson_val *v, type_id type, const pt2_path *path);

static const char *what_it_is(const yyjson_val *v)
{
    switch (v->tag & YYJSON_TYPE_MASK) {
    case YYJSON_TYPE_NULL:
        return "null";
    case YYJSON_TYPE_BOOL:
        return "a bool";
    case YYJSON_TYPE_STR:
        return "a string";
    case YYJSON_TYPE_ARR:
        return "a list";
    case YYJSON_TYPE_OBJ:
        return "an object";
    default:
        return pt2_json_is_integer(v) ? "an integer" : "a number";
    }
}

static void wrong_type(checker *c, const yyjson_val *v, const char *expected, const pt2_path *path)
{
    c->result = pt2_fail(c->report, PT2_JSON_TYPE, NULL, path, "%s is expected, not %s", expected, what_it_is(v));
}

#define SHOWN_NUMBER 40 /* bytes of a number; more is cut */

static bool check_int(checker *c, yyjson_val *v, const pt2_path *path, int64_t *value)
{
    if (pt2_json_int(v, value))
        return true;
    if (!pt2_json_is_integer(v))
        wrong_type(c, v, "an integer", path);
    else
        c->result = pt2_fail(c->report, PT2_JSON_RANGE, NULL, path, "%.*s does not fit 64 bits", SHOWN_NUMBER,
                             unsafe_yyjson_get_raw(v));
    return false;
}

static void check_real(checker *c, yyjson_val *v, const pt2_path *path)
{
    double value;

    if (pt2_json_real(v, &value))
        return;
    if (!pt2_json_is_number(v))
        wrong_type(c, v, "a number", path);
    else
        c->result = pt2_fail(c->report, PT2_JSON_RANGE, NULL, path, "%.*s is too large for a float", SHOWN_NUMBER,
                             unsafe_yyjson_get_raw(v));
}

static void check_enum(checker *c, yyjson_val *v, enum_id id, const pt2_path *path)
{
    int64_t code;

    if (check_int(c, v, path, &code) && !is_enum_number(id, code))
        c->result = pt2_fail(c->report, PT2_JSON_ENUM, NULL, path, "%.*s is no %s", SHOWN_NUMBER,
                             unsafe_yyjson_get_raw(v), enum_name(id));
}

static void check_device_type(checker *c, yyjson_val *v, const pt2_path *path)
{
    if (!yyjson_is_str(v))
        wrong_type(c, v, "a string", path);
    else if (!pt2_is_device_type(unsafe_yyjson_get_str(v), unsafe_yyjson_get_len(v)))
        c->result = pt2_fail(c->report, PT2_JSON_ENUM, NULL, path, "'%s' is no device type", PT2_SHOWN_JSON(v));
}

#define MAX_DEVICE_INDEX 127 /* c10::DeviceIndex has 8 bits */

static void check_device_index(checker *c, yyjson_val *v, const pt2_path *path)
{
    int64_t index;

    if (check_int(c, v, path, &index) && (index < 0 || index > MAX_DEVICE_INDEX))
        c->result = pt2_fail(c->report, PT2_JSON_RANGE, NULL, path, "%lld is no index of a device", (long long)index);
}

/* One value, whatever the shape around it. */
static void check_one(checker *c, yyjson_val *v, const field *f, const pt2_path *path)
{
    int64_t value;

    switch ((field_kind)f->kind) {
    case KIND_ANY:
        break;
    case KIND_STR:
        if (!yyjson_is_str(v))
            wrong_type(c, v, "a string", path);
        break;
    case KIND_INT:
        (void)check_int(c, v, path, &value);
        break;
    case KIND_REAL:
        check_real(c, v, path);
        break;
    case KIND_BOOL:
        if (!yyjson_is_bool(v))
            wrong_type(c, v, "a bool", path);
        break;
    case KIND_ENUM:
        check_enum(c, v, (enum_id)f->type, path);
        break;
    case KIND_DEVICE_TYPE:
        check_device_type(c, v, path);
        break;
    case KIND_DEVICE_INDEX:
        check_device_index(c, v, path);
        break;
    case KIND_TYPE:
        check_type(c, v, (type_id)f->type, path);
    }
}

static void check_list(checker *c, yyjson_val *v, const field *f, bool of_lists, const pt2_path *path)
{
    pt2_path child = {.parent = path};
    yyjson_val *item;
    size_t count;

    if (!yyjson_is_arr(v)) {
        wrong_type(c, v, "a list", path);
        return;
    }
    count = unsafe_yyjson_get_len(v);
    item = unsafe_yyjson_get_first(v);
    for (; child.index < count; child.index++, item = unsafe_yyjson_get_next(item)) {
        if (of_lists)
            check_list(c, item, f, false, &child);
        else
            check_one(c, item, f, &child);
    }
}

static void check_map(checker *c, yyjson_val *v, const field *f, const pt2_path *path)
{
    pt2_path child = {.parent = path};
    yyjson_val *key;
    size_t count;

    if (!yyjson_is_obj(v)) {
        wrong_type(c, v, "an object", path);
        return;
    }
    count = unsafe_yyjson_get_len(v);
    key = unsafe_yyjson_get_first(v);
    for (size_t i = 0; i < count; i++, key = unsafe_yyjson_get_next(key + 1)) {
        child.key = unsafe_yyjson_get_str(key);
        child.key_len = unsafe_yyjson_get_len(key);
        check_one(c, key + 1, f, &child);
    }
}

static void check_field(checker *c, yyjson_val *v, const field *f, const pt2_path *path)
{
    if ((f->flags & MAY_BE_NULL) && yyjson_is_null(v))
        return;
    switch ((field_shape)f->shape) {
    case SHAPE_ONE:
        check_one(c, v, f, path);
        break;
    case SHAPE_LIST:
    case SHAPE_LISTS:
        check_list(c, v, f, f->shape == SHAPE_LISTS, path);
        break;
    case SHAPE_MAP:
        check_map(c, v, f, path);
    }
}

static inline bool is_field(const field *f, yyjson_val *key)
{
    return unsafe_yyjson_get_len(key) == f->len && memcmp(unsafe_yyjson_get_str(key), f->name, f->len) == 0;
}

/* Index of the field with this key, or t->count. */
static unsigned find_field(const schema_type *t, yyjson_val *key, unsigned guess)
{
    unsigned i = guess;

    if (guess < t->count && is_field(&t->fields[guess], key))
        return guess;
    for (i = 0; i < t->count; i++)
        if (is_field(&t->fields[i], key))
            break;
    return i;
}

static void warn_unknown(checker *c, type_id type, yyjson_val *key, const pt2_path *path)
{
    size_t len = unsafe_yyjson_get_len(key);

    for (uint32_t i = 0; i < c->unknown_count; i++) {
        yyjson_val *known = (yyjson_val *)(uintptr_t)c->unknown[i].key;
        if (c->unknown[i].type == type && unsafe_yyjson_equals_strn(known, unsafe_yyjson_get_str(key), len))
            return;
    }
    if (c->unknown_count == REMEMBERED_KEYS)
        return; /* a file with so many is told that they are there, not all of them */
    c->unknown[c->unknown_count].type = type;
    c->unknown[c->unknown_count++].key = key;
    pt2_warn(c->report, PT2_JSON_UNKNOWN, NULL, path, "unknown key %.*s of %s", (int)(len < 100 ? len : 100),
             unsafe_yyjson_get_str(key), types[type].name);
}

static void report_missing(checker *c, type_id type, uint32_t seen, const pt2_path *path)
{
    const schema_type *t = &types[type];
    pt2_path child = {.parent = path};

    for (unsigned i = 0; i < t->count; i++) {
        if ((seen >> i & 1) || (t->fields[i].flags & MAY_MISS))
            continue;
        child.key = t->fields[i].name;
        child.key_len = t->fields[i].len;
        c->result = pt2_fail(c->report, PT2_JSON_MISSING, NULL, &child, "%s has no '%s'", t->name, t->fields[i].name);
    }
}

static void check_struct(checker *c, yyjson_val *v, type_id type, const pt2_path *path)
{
    const schema_type *t = &types[type];
    size_t count = unsafe_yyjson_get_len(v);
    yyjson_val *key = unsafe_yyjson_get_first(v);
    pt2_path child = {.parent = path};
    uint32_t seen = 0;
    unsigned guess = 0;

    for (size_t i = 0; i < count; i++, key = unsafe_yyjson_get_next(key + 1)) {
        unsigned at = find_field(t, key, guess);
        child.key = unsafe_yyjson_get_str(key);
        child.key_len = unsafe_yyjson_get_len(key);
        if (at == t->count) {
            warn_unknown(c, type, key, &child);
            continue;
        }
        seen |= UINT32_C(1) << at;
        check_field(c, key + 1, &t->fields[at], &child);
        guess = at + 1;
    }
    if (seen != (UINT32_C(1) << t->count) - 1)
        report_missing(c, type, seen, path);
}

static void check_union(checker *c, yyjson_val *v, type_id type, const pt2_path *path)
{
    const schema_type *t = &types[type];
    size_t count = unsafe_yyjson_get_len(v);
    yyjson_val *key = unsafe_yyjson_get_first(v);
    pt2_path child = {.parent = path};
    unsigned at;

    if (count != 1) {
        c->result = pt2_fail(c->report, PT2_JSON_UNION, NULL, path, "%s has one key, here are %zu", t->name, count);
        return;
    }
    at = find_field(t, key, 0);
    if (at == t->count) {
        c->result =
            pt2_fail(c->report, PT2_JSON_UNION, NULL, path, "%s has no kind '%.100s'", t->name, PT2_SHOWN_JSON(key));
        return;
    }
    child.key = t->fields[at].name;
    child.key_len = t->fields[at].len;
    check_field(c, key + 1, &t->fields[at], &child);
}

static void check_subgraph(checker *c, yyjson_val *v, const pt2_path *path)
{
    uint32_t limit = c->report->limits->graph_depth;

    if (limit && c->graph_depth >= limit) {
        c->result = pt2_fail(c->report, PT2_JSON_DEPTH, NULL, path, "graphs are nested deeper than %u", limit);
        return;
    }
    c->graph_depth++;
    check_struct(c, v, TYPE_GRAPH_ARG, path);
    c->graph_depth--;
}

/* Recursion is as deep as the document, which pt2_json_parse limits. */
static void check_type(checker *c, yyjson_val *v, type_id type, const pt2_path *path)
{
    if (!yyjson_is_obj(v))
        wrong_type(c, v, types[type].name, path);
    else if (types[type].is_union)
        check_union(c, v, type, path);
    else if (type == TYPE_GRAPH_ARG)
        check_subgraph(c, v, path);
    else
        check_struct(c, v, type, path);
}

int pt2_schema_check(yyjson_val *v, pt2_root_type type, const pt2_path *path, pt2_report *r)
{
    pt2_path root = {.parent = NULL};
    checker c;

    c.report = r;
    c.graph_depth = c.unknown_count = 0;
    c.result = 0;
    check_type(&c, v, (type_id)type, path ? path : &root);
    return r->no_memory ? -1 : c.result;
}
