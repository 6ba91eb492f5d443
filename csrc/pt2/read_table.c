/* read_table.c - the value tables: what each tensor, number, truth value and custom object of a graph is.
 *
 * Every entry is checked, also one of a name that nothing defines. Expressions are parsed once for each text.
 */
#include "read.h"

/* ---- expressions ---- */

#define SHOWN 300 /* bytes of an expression in a message */

static void report_expr(pt2_program_reader *r, const fe_expr_error *err, yyjson_val *text, const pt2_path *path)
{
    size_t len = unsafe_yyjson_get_len(text);

    if (err->fault == FE_EXPR_NO_MEMORY)
        pt2_no_memory(r->report);
    else
        pt2_fail(r->report, err->fault == FE_EXPR_DEPTH ? PT2_EXPR_DEPTH : PT2_EXPR, NULL, path,
                 "%s (byte %zu of '%.*s%s')", err->message, err->at, (int)(len < SHOWN ? len : SHOWN),
                 unsafe_yyjson_get_str(text), len > SHOWN ? "..." : "");
}

/* The expression of a text, or NULL after a report. */
static pt2_known_expr *expr_of(pt2_program_reader *r, yyjson_val *text, const pt2_path *path)
{
    const pt2_limits *limits = r->report->limits;
    uint32_t depth = limits->expr_depth;
    size_t len = unsafe_yyjson_get_len(text);
    fe_expr_error err;

    if (limits->expr_bytes && len > limits->expr_bytes) {
        pt2_fail(r->report, PT2_LIMIT, NULL, path, "an expression of %zu bytes (limit expr_bytes)", len);
        return NULL;
    }
    fe_string *s = pt2_read_text(r, &r->expr_texts, unsafe_yyjson_get_str(text), len);
    if (!s)
        return NULL;
    if (s->owner != FE_NONE_ID)
        return &r->exprs[s->owner];
    if (pt2_read_grow(r, &r->exprs, &r->expr_capacity, (size_t)r->expr_count + 1, sizeof *r->exprs) < 0)
        return NULL;
    if (!depth || depth > FE_EXPR_MAX_DEPTH)
        depth = FE_EXPR_MAX_DEPTH;
    fe_expr e = fe_expr_parse_srepr(r->program->exprs, unsafe_yyjson_get_str(text), len, depth, &err);
    if (!e) {
        report_expr(r, &err, text, path);
        return NULL;
    }
    s->owner = r->expr_count;
    r->exprs[r->expr_count] = (pt2_known_expr){.expr = e};
    return &r->exprs[r->expr_count++];
}

typedef enum { USE_SIZE, USE_STRIDE, USE_OFFSET, USE_INT, USE_FLOAT, USE_BOOL } expr_use;

/* Check a SymExpr; seen: torch parses it when it loads the program. */
static void check_expr(pt2_program_reader *r, yyjson_val *v, expr_use use, bool seen, const pt2_path *outer)
{
    const pt2_path *path = PT2_KEY(PT2_KEY(outer, "as_expr"), "expr_str");
    const char *fault;
    pt2_known_expr *known = expr_of(r, pt2_field(v, "expr_str"), path);

    if (!known)
        return;
    known->seen = known->seen || seen;
    fe_expr e = known->expr;
    bool truth = fe_expr_kind_of(e) == FE_EXPR_TRUTH;
    if (use <= USE_OFFSET && (fault = fe_expr_size_fault(e)))
        pt2_fail(r->report, e->op == FE_EXPR_INTEGER ? PT2_VALUE : PT2_EXPR, NULL, path,
                 "this can't be a size, stride or offset: %s", fault);
    else if (use == USE_BOOL ? !truth && e->op != FE_EXPR_SYMBOL : truth)
        pt2_fail(r->report, PT2_EXPR, NULL, path,
                 use == USE_BOOL ? "a truth value is wanted here, not a number"
                                 : "a number is wanted here, not a truth value");
}

/* ---- tensors ---- */

/* A size, stride or offset; its value, or -1 when it is symbolic or faulty. */
static int64_t check_number(pt2_program_reader *r, yyjson_val *v, expr_use use, bool seen, const pt2_path *path)
{
    yyjson_val *value;
    int64_t number;

    if (pt2_read_union(v, &value) == PT2_AS_EXPR) {
        check_expr(r, value, use, seen, path);
        return -1;
    }
    if (!pt2_json_int(value, &number))
        return -1;
    if (number < 0) {
        pt2_fail(r->report, PT2_VALUE, NULL, path, "%s is negative: %lld",
                 use == USE_SIZE     ? "a size"
                 : use == USE_STRIDE ? "a stride"
                                     : "the storage offset",
                 (long long)number);
        return -1;
    }
    return number;
}

#define LARGE (INT64_C(1) << 40) /* elements: more than any machine holds, though an int64 holds their number */

static bool multiply(int64_t *total, int64_t factor)
{
    return !__builtin_mul_overflow(*total, factor, total);
}

/* How many elements a tensor has and how far they reach must fit an int64. Symbolic sizes count as one. */
static void check_extent(pt2_program_reader *r, yyjson_val *meta, const pt2_path *path)
{
    yyjson_val *sizes = pt2_field(meta, "sizes"), *strides = pt2_field(meta, "strides"), *size, *stride, *value;
    yyjson_val *next_stride = unsafe_yyjson_get_first(strides);
    int64_t total = 1, reach = 0, n, step;
    bool total_fits = true, reach_fits = true, empty = false;
    size_t i, count;

    yyjson_arr_foreach(sizes, i, count, size)
    {
        stride = next_stride;
        next_stride = unsafe_yyjson_get_next(stride);
        if (pt2_read_union(size, &value) == PT2_AS_EXPR || !pt2_json_int(value, &n) || n < 0)
            continue;
        empty = empty || n == 0;
        total_fits = total_fits && multiply(&total, n ? n : 1);
        if (pt2_read_union(stride, &value) == PT2_AS_EXPR || !pt2_json_int(value, &step) || step < 0 || n == 0)
            continue;
        reach_fits = reach_fits && multiply(&step, n - 1) && !__builtin_add_overflow(reach, step, &reach);
    }
    if (!total_fits)
        pt2_fail(r->report, PT2_VALUE, NULL, PT2_KEY(path, "sizes"), "the number of elements does not fit 64 bits");
    else if (!empty && total >= LARGE)
        pt2_warn(r->report, PT2_VALUE, NULL, PT2_KEY(path, "sizes"), "a tensor of %lld elements", (long long)total);
    if (!reach_fits && !empty)
        pt2_fail(r->report, PT2_VALUE, NULL, PT2_KEY(path, "strides"), "the strides reach further than 64 bits");
}

static void check_numbers(pt2_program_reader *r, yyjson_val *list, expr_use use, bool seen, const pt2_path *path)
{
    size_t i, count;
    yyjson_val *v;

    yyjson_arr_foreach(list, i, count, v) check_number(r, v, use, seen, PT2_INDEX(path, i));
}

static void check_tensor(pt2_program_reader *r, yyjson_val *meta, bool defined, const pt2_path *path)
{
    yyjson_val *sizes = pt2_field(meta, "sizes"), *strides = pt2_field(meta, "strides");
    size_t rank = unsafe_yyjson_get_len(sizes), steps = unsafe_yyjson_get_len(strides);
    int64_t code;

    check_numbers(r, sizes, USE_SIZE, defined, PT2_KEY(path, "sizes"));
    check_numbers(r, strides, USE_STRIDE, defined, PT2_KEY(path, "strides"));
    check_number(r, pt2_field(meta, "storage_offset"), USE_OFFSET, false, PT2_KEY(path, "storage_offset"));
    if (rank != steps)
        pt2_fail(r->report, PT2_VALUE, NULL, PT2_KEY(path, "strides"), "%zu strides for %zu sizes", steps, rank);
    else
        check_extent(r, meta, path);
    if (pt2_json_int(pt2_field(meta, "dtype"), &code) && !pt2_dtype_name(code))
        pt2_fail(r->report, PT2_JSON_ENUM, NULL, PT2_KEY(path, "dtype"), "%lld is no dtype of torch", (long long)code);
}

/* ---- the tables ---- */

typedef struct {
    const char *key;
    size_t len;
    pt2_value_kind kind;
} value_table;

#define TABLE(key, kind) {key, sizeof(key) - 1, kind}

static const value_table tables[] = {
    TABLE("tensor_values", PT2_VALUE_TENSOR),       TABLE("sym_int_values", PT2_VALUE_SYM_INT),
    TABLE("sym_float_values", PT2_VALUE_SYM_FLOAT), TABLE("sym_bool_values", PT2_VALUE_SYM_BOOL),
    TABLE("custom_obj_values", PT2_VALUE_CUSTOM),
};

static void check_entry(pt2_program_reader *r, yyjson_val *v, pt2_value_kind kind, bool defined, const pt2_path *path)
{
    yyjson_val *value;

    if (kind == PT2_VALUE_TENSOR) {
        check_tensor(r, v, defined, path);
    } else if (kind != PT2_VALUE_CUSTOM && pt2_read_union(v, &value) == PT2_AS_EXPR) {
        expr_use use = kind == PT2_VALUE_SYM_INT ? USE_INT : kind == PT2_VALUE_SYM_FLOAT ? USE_FLOAT : USE_BOOL;
        check_expr(r, value, use, true, path);
    }
}

static int read_table(pt2_graph_reader *g, const value_table *t)
{
    pt2_path path = {.parent = g->path, .key = t->key, .key_len = t->len};
    size_t i, count;
    yyjson_val *key, *v;

    pt2_each_member(pt2_field(g->json, t->key), i, count, key, v)
    {
        uint32_t id = pt2_read_lookup(g, key);
        pt2_origin *origin = id == FE_NONE_ID ? NULL : &g->graph->origins[id];
        bool defined = origin && origin->value_kind == (uint8_t)t->kind;
        if (defined)
            origin->value = v;
        else
            pt2_warn_node(g->reader->report, PT2_GRAPH, PT2_KEY_OF(&path, key), unsafe_yyjson_get_str(key),
                          "'%s' has an entry here, but nothing of this kind defines it", PT2_SHOWN_JSON(key));
        check_entry(g->reader, v, t->kind, defined, PT2_KEY_OF(&path, key));
        if (g->reader->report->no_memory)
            return -1;
    }
    return 0;
}

static const value_table *table_of(unsigned kind)
{
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        if (tables[i].kind == (pt2_value_kind)kind)
            return &tables[i];
    }
    return NULL;
}

int pt2_read_tables(pt2_graph_reader *g)
{
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        if (read_table(g, &tables[i]) < 0)
            return -1;
    }
    for (uint32_t id = 1; id < g->graph->origin_count; id++) {
        const pt2_origin *origin = &g->graph->origins[id];
        const value_table *t = origin->value ? NULL : table_of(origin->value_kind);
        if (t)
            pt2_fail_node(g->reader->report, PT2_GRAPH,
                          &(pt2_path){.parent = g->path, .key = t->key, .key_len = t->len}, origin->name->data,
                          "the table has no entry for '%s'", origin->name->data);
    }
    return 0;
}
