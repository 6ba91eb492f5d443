/* schema.h - the types of torch.export's schema (8.20) as tables, and a check of JSON against them.
 *
 * Source: torch/_export/serde/schema.py of torch 2.13. After a check without errors, whoever reads the JSON may rely on
 * it: required fields are there, unions have one known tag, enums known numbers, ints fit int64.
 */
#ifndef PT2_SCHEMA_H
#define PT2_SCHEMA_H

#include "json.h"

typedef enum {
    PT2_TYPE_EXPORTED_PROGRAM,
    PT2_TYPE_PAYLOAD_CONFIG,
    PT2_TYPE_TENSOR_META,
    PT2_TYPE_NODE,
    PT2_TYPE_ARGUMENT,
    /* the others follow in schema.c's tables */
} pt2_root_type;

/* Check a value and all below it; adds every fault found (unknown fields are warnings, one for each of a type). */
int pt2_schema_check(yyjson_val *v, pt2_root_type type, const pt2_path *path, pt2_report *r) FE_MUST_CHECK;

/* A field of a checked struct: NULL when it is missing or null. */
static inline yyjson_val *pt2_field(yyjson_val *object, const char *key)
{
    yyjson_val *v = yyjson_obj_get(object, key);

    return v && !yyjson_is_null(v) ? v : NULL;
}

/* The one tag and value of a checked union. */
static inline const char *pt2_tag(yyjson_val *u, yyjson_val **value)
{
    yyjson_val *key = unsafe_yyjson_get_first(u);

    *value = key + 1;
    return unsafe_yyjson_get_str(key);
}

/* ---- names of the enums' numbers; NULL: unknown ---- */

const char *pt2_dtype_name(int64_t code); /* float32 */
unsigned pt2_dtype_size(int64_t code);    /* bytes of an element, 0: unknown */
const char *pt2_layout_name(int64_t code);
const char *pt2_memory_format_name(int64_t code);
bool pt2_is_device_type(const char *type, size_t len); /* one that torch knows */

#endif
