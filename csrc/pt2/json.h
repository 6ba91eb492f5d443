/* json.h - JSON documents: a thin face over yyjson, which is compiled into json.c, and texts as Python's json has them.
 *
 * Numbers are kept as they are written (yyjson calls them raw), so that a value can be written again byte for byte. A
 * parsed document has no duplicate keys, no lone surrogates, UTF-8 only, NaN and infinities only as Python spells them,
 * and is no deeper than the limits say.
 */
#ifndef PT2_JSON_H
#define PT2_JSON_H

#include <yyjson.h>

#include "report.h"

#define PT2_JSON_PADDING 4 /* zero bytes that yyjson needs after a text that it may change */

/* A string of a document, for %s. */
#define PT2_SHOWN_JSON(v) pt2_show(&(pt2_shown){{0}}, unsafe_yyjson_get_str(v), unsafe_yyjson_get_len(v))

/* Nesting that is never allowed, whatever the limits say: recursion over a document stays within a small stack. */
#define PT2_JSON_MAX_DEPTH 4000

typedef struct {
    yyjson_doc *doc;
    char *text; /* what the strings of doc point into */
    const fe_allocator *allocator;
} pt2_json;

/* Parse a text of the allocator's, with its padding; it becomes the document's, also on failure. prefix: where the text
 * stands when it is a string of another document, or NULL. Parsing happens in place and changes the text as it goes, so
 * that a syntax error has a position but no path of its own. */
int pt2_json_parse(pt2_json *j, char *text, size_t len, const fe_allocator *a, const pt2_path *prefix,
                   pt2_report *r) FE_MUST_CHECK;
/* The same for a text that stays the caller's; syntax errors have a path. */
int pt2_json_parse_copy(pt2_json *j, const char *text, size_t len, const fe_allocator *a, const pt2_path *prefix,
                        pt2_report *r) FE_MUST_CHECK;
/* As pt2_json_parse, but tells of a syntax error only by returning 1: who can get the text again has it explained. */
int pt2_json_parse_quietly(pt2_json *j, char *text, size_t len, const fe_allocator *a, const pt2_path *prefix,
                           pt2_report *r) FE_MUST_CHECK;
/* Add the fault of a text that is no JSON: what is wrong, and at which path. Always -1. */
int pt2_json_explain(const char *text, size_t len, const pt2_path *prefix, pt2_report *r);
void pt2_json_clear(pt2_json *j); /* of one that is all zero: does nothing */

/* Numbers, out of their texts. false: not an integer, or outside int64 / not finite. */
bool pt2_json_is_number(const yyjson_val *v);
bool pt2_json_is_integer(const yyjson_val *v); /* digits only, of whatever size */
bool pt2_json_int(const yyjson_val *v, int64_t *out);
bool pt2_json_real(const yyjson_val *v,
                   double *out); /* also "Infinity", "-Infinity", "NaN" as strings, and NaN tokens */

/* As json.dumps with its defaults: ", " and ": ", ASCII only, lower case \u escapes. */
void pt2_json_write(yyjson_val *v, fe_buffer *out);
void pt2_json_quote(const char *text, size_t len, fe_buffer *out);

/* Go through the members of an object; NULL has none (yyjson's own macro counts on from it). */
#define pt2_each_member(object, i, count, key, value)                                                          \
    for ((i) = 0, (count) = yyjson_obj_size(object), (key) = (count) ? unsafe_yyjson_get_first(object) : NULL, \
        (value) = (count) ? (key) + 1 : NULL;                                                                  \
         (i) < (count); (i)++, (key) = unsafe_yyjson_get_next(value), (value) = (key) + 1)

#endif
