/* test_json.c - parsing: what is JSON, what is not and where, duplicates, depth, numbers; texts as Python has them. */
#include "files.h"

#include "json.h"

#include <math.h>

/* ---- helpers ---- */

/* Parse a text that is right; the caller clears it. */
static pt2_json parsed(const char *text, size_t len)
{
    pt2_json j;
    pt2_report r;

    pt2_report_init(&r, &fe_libc_allocator, NULL);
    if (pt2_json_parse_copy(&j, text, len, &fe_libc_allocator, NULL, &r) < 0) {
        printf("%.*s\n", (int)(len < 200 ? len : 200), text);
        print_faults(&r);
    }
    CHECK(j.doc);
    CHECK_CLEAN(&r);
    return j;
}

/* A text that is wrong: "PATH: MESSAGE" of its first fault must start with a path and hold a message. */
static void check_wrong(const char *text, size_t len, pt2_kind kind, const char *path, const char *message)
{
    pt2_json j;
    pt2_report r;

    pt2_report_init(&r, &fe_libc_allocator, NULL);
    if (pt2_json_parse_copy(&j, text, len, &fe_libc_allocator, NULL, &r) == 0)
        printf("%s was taken\n", text);
    CHECK(!j.doc && r.count > 0 && r.items[0].severity == PT2_ERROR);
    CHECK_TEXT(pt2_kind_name(r.items[0].kind), pt2_kind_name(kind));
    CHECK_TEXT(r.items[0].path, path);
    if (!strstr(r.items[0].message, message))
        printf("%s: %s, not %s\n", text, r.items[0].message, message);
    CHECK(strstr(r.items[0].message, message));
    pt2_report_clear(&r);
    pt2_json_clear(&j);
}

#define CHECK_SYNTAX(text, path, message) check_wrong(text, strlen(text), PT2_JSON_SYNTAX, path, message)

/* A text over and over; the caller frees it. */
static char *repeated(const char *head, const char *body, size_t times, const char *tail)
{
    fe_buffer b;

    fe_buffer_init(&b, &fe_libc_allocator);
    fe_buffer_text(&b, head);
    for (size_t i = 0; i < times; i++)
        fe_buffer_text(&b, body);
    fe_buffer_text(&b, tail);
    fe_buffer_char(&b, '\0');
    CHECK(!b.failed);
    return b.data;
}

/* ---- syntax ---- */

static void test_good(void)
{
    static const char *const texts[] = {"{}",
                                        "[]",
                                        "null",
                                        "true",
                                        " [1, -0, 0.5, 1e5, 1E-5, -1.5e+10] ",
                                        "\"\"",
                                        "[NaN, Infinity, -Infinity]",
                                        "{\"a\": {\"a\": [{\"a\": 1}, {\"a\": 2}]}}",
                                        "\"\\u00e9\\ud83d\\ude00\\n\"",
                                        "\"\xc3\xa9\xf0\x9f\x98\x80\x7f\"",
                                        "\t\r\n7\n"};

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        pt2_json j = parsed(texts[i], strlen(texts[i]));
        pt2_json_clear(&j);
    }
}

static void test_syntax_paths(void)
{
    CHECK_SYNTAX("", "$", "empty");
    CHECK_SYNTAX("  ", "$", "too early");
    CHECK_SYNTAX("{", "$", "too early");
    CHECK_SYNTAX("{\"a\": [1, 2", "$.a", "too early");
    CHECK_SYNTAX("{\"a\": [1, 2,]}", "$.a[2]", "a value is expected");
    CHECK_SYNTAX("{\"a\": 1,}", "$", "a key is expected");
    CHECK_SYNTAX("{\"a\" 1}", "$.a", "':' is expected");
    CHECK_SYNTAX("{\"a\": 1 \"b\": 2}", "$", "',' or a closing bracket");
    CHECK_SYNTAX("{'a': 1}", "$", "a key is expected");
    CHECK_SYNTAX("[1] [2]", "$", "text after the document");
    CHECK_SYNTAX("[1] x", "$", "text after the document");
    CHECK_SYNTAX("/* c */ []", "$", "a value is expected");
    CHECK_SYNTAX("[1, // c\n 2]", "$[1]", "a value is expected");
    CHECK_SYNTAX("\xef\xbb\xbf{}", "$", "byte order mark");
    CHECK_SYNTAX("{\"a\": [{\"b\": 03}]}", "$.a[0].b", "starts with 0");
    CHECK_SYNTAX("[+3]", "$[0]", "a value is expected");
    CHECK_SYNTAX("[0x3]", "$[0]", "unexpected character");
    CHECK_SYNTAX("[3.]", "$[0]", "decimal point");
    CHECK_SYNTAX("[.5]", "$[0]", "a value is expected");
    CHECK_SYNTAX("[3e]", "$[0]", "exponent");
    CHECK_SYNTAX("[-]", "$[0]", "no digits");
    CHECK_SYNTAX("[tru]", "$[0]", "a value is expected");
    CHECK_SYNTAX("[True]", "$[0]", "a value is expected");
    CHECK_SYNTAX("[nullx]", "$[0]", "unexpected character");
    CHECK_SYNTAX("[\"a\nb\"]", "$[0]", "control character");
    CHECK_SYNTAX("[\"abc]", "$[0]", "no end");
    CHECK_SYNTAX("[\"\\x41\"]", "$[0]", "unknown escape");
    CHECK_SYNTAX("[\"\\u12g4\"]", "$[0]", "hexadecimal");
    CHECK_SYNTAX("[\"\\ud800\"]", "$[0]", "lone surrogate");
    CHECK_SYNTAX("[\"\\udc00\"]", "$[0]", "lone surrogate");
    CHECK_SYNTAX("[\"\\ud800\\u0041\"]", "$[0]", "lone surrogate");
    CHECK_SYNTAX("{\"k\": {\"odd key\": \"\xff\"}}", "$.k['odd key']", "not UTF-8");
    CHECK_SYNTAX("[\"\xc0\xaf\"]", "$[0]", "not UTF-8");
    CHECK_SYNTAX("[\"\xed\xa0\x80\"]", "$[0]", "not UTF-8");
    CHECK_SYNTAX("[\"\xf4\x90\x80\x80\"]", "$[0]", "not UTF-8");
    CHECK_SYNTAX("[\"\xe2\x82\"]", "$[0]", "not UTF-8");
    CHECK_SYNTAX("{\"\\q\": 1}", "$", "unknown escape");
    check_wrong("[1]\0\0", 5, PT2_JSON_SYNTAX, "$", "text after the document");
    check_wrong("[1\0]", 4, PT2_JSON_SYNTAX, "$[0]", "NUL");
    check_wrong("[\"\0\"]", 5, PT2_JSON_SYNTAX, "$[0]", "control character");
}

/* Python's json knows three words; yyjson knows more. */
static void test_words_for_numbers(void)
{
    static const char *const wrong[] = {"nan",  "NAN",      "-NaN",     "inf",      "Inf",
                                        "-inf", "infinity", "INFINITY", "-infinity"};
    char text[32];

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(text, sizeof text, "[1, %s]", wrong[i]);
        check_wrong(text, strlen(text), PT2_JSON_SYNTAX, "$[1]", "");
    }
}

/* Every string that is wrong is told. */
static void test_bad_strings(void)
{
    const char *text = "{\"a\": \"\\x\\y\", \"b\": [\"\xff\", \"good\", \"\\ud800\"]}";
    pt2_json j;
    pt2_report r;

    pt2_report_init(&r, &fe_libc_allocator, NULL);
    CHECK(pt2_json_parse_copy(&j, text, strlen(text), &fe_libc_allocator, NULL, &r) < 0);
    CHECK_INT(r.errors, 3);
    CHECK_TEXT(r.items[0].path, "$.a");
    CHECK_TEXT(r.items[1].path, "$.b[0]");
    CHECK_TEXT(r.items[2].path, "$.b[2]");
    pt2_report_clear(&r);
}

/* A text of the document's own is parsed in place: a fault has a position, and explaining has the path. */
static void test_in_place(void)
{
    const char *good = "{\"a\": [1, \"\\u0041\"]}", *wrong = "{\"a\": [1, \"\\u0041\", 03]}";
    pt2_path outer = {.parent = NULL}, prefix = {.parent = &outer, .key = "spec", .key_len = 4};
    pt2_json j;
    pt2_report r;

    pt2_report_init(&r, &fe_libc_allocator, NULL);
    for (int is_good = 1; is_good >= 0; is_good--) {
        const char *text = is_good ? good : wrong;
        size_t len = strlen(text);
        char *own = calloc(len + PT2_JSON_PADDING, 1);
        CHECK(own);
        memcpy(own, text, len);
        int result = pt2_json_parse(&j, own, len, &fe_libc_allocator, &prefix, &r);
        CHECK_INT(result, is_good ? 0 : -1);
        if (is_good)
            CHECK_TEXT(yyjson_get_str(yyjson_arr_get(yyjson_obj_get(yyjson_doc_get_root(j.doc), "a"), 1)), "A");
        pt2_json_clear(&j);
    }
    CHECK_INT(r.count, 1);
    CHECK_TEXT(r.items[0].path, "$.spec");
    CHECK(strstr(r.items[0].message, "at byte 20"));
    CHECK(pt2_json_explain(wrong, strlen(wrong), &prefix, &r) < 0);
    CHECK_TEXT(r.items[1].path, "$.spec.a[2]");
    pt2_report_clear(&r);
}

/* ---- duplicates and depth ---- */

/* An object of n keys, the last perhaps equal to another; the caller frees it. */
static char *object_of(size_t n, const char *last)
{
    fe_buffer b;

    fe_buffer_init(&b, &fe_libc_allocator);
    fe_buffer_text(&b, "{\"m\": {");
    for (size_t i = 0; i < n; i++) {
        fe_buffer_text(&b, "\"key_");
        fe_buffer_int(&b, (int64_t)i);
        fe_buffer_text(&b, "\": null, ");
    }
    fe_buffer_text(&b, last);
    fe_buffer_text(&b, ": 1}}");
    fe_buffer_char(&b, '\0');
    CHECK(!b.failed);
    return b.data;
}

static void test_duplicates(void)
{
    static const size_t sizes[] = {1, 5, 31, 32, 33, 1000, 200000};

    CHECK_SYNTAX("{\"a\": 1, \"a\": 1}", "$.a", "duplicate key");
    CHECK_SYNTAX("[{\"nodes\": 1, \"n\\u006fdes\": 1}]", "$[0].nodes", "duplicate key");
    CHECK_SYNTAX("{\"\": 1, \"\": 1}", "$['']", "duplicate key");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *text = object_of(sizes[i], "\"key_0\"");
        CHECK_SYNTAX(text, "$.m.key_0", "duplicate key");
        free(text);
        text = object_of(sizes[i], "\"other\"");
        pt2_json j = parsed(text, strlen(text));
        CHECK_INT(yyjson_obj_size(yyjson_obj_get(yyjson_doc_get_root(j.doc), "m")), sizes[i] + 1);
        pt2_json_clear(&j);
        free(text);
    }
    /* a NUL is part of a key, not its end */
    pt2_json j = parsed("{\"a\\u0000b\": 1, \"a\\u0000c\": 1, \"a\": 1}",
                        strlen("{\"a\\u0000b\": 1, \"a\\u0000c\": 1, \"a\": 1}"));
    pt2_json_clear(&j);
}

static void test_depth(void)
{
    pt2_limits limits = pt2_default_limits;
    pt2_report r;
    pt2_json j;

    limits.json_depth = 3;
    pt2_report_init(&r, &fe_libc_allocator, &limits);
    DO(pt2_json_parse_copy(&j, "[{\"a\": []}]", 11, &fe_libc_allocator, NULL, &r));
    pt2_json_clear(&j);
    CHECK(pt2_json_parse_copy(&j, "[{\"a\": [[1]]}]", 14, &fe_libc_allocator, NULL, &r) < 0);
    CHECK_INT(r.items[0].kind, PT2_JSON_DEPTH);
    CHECK_TEXT(r.items[0].path, "$[0].a[0]");
    CHECK(pt2_json_parse_copy(&j, "[[[[[[", 6, &fe_libc_allocator, NULL, &r) < 0);
    CHECK_INT(r.items[1].kind, PT2_JSON_DEPTH);
    pt2_report_clear(&r);

    /* no limit is still one, so that nothing recurses without end */
    limits.json_depth = 0;
    pt2_report_init(&r, &fe_libc_allocator, &limits);
    char *open = repeated("", "[", 100000, ""), *closed = repeated(open, "]", 100000, "");
    CHECK(pt2_json_parse_copy(&j, open, strlen(open), &fe_libc_allocator, NULL, &r) < 0);
    CHECK(pt2_json_parse_copy(&j, closed, strlen(closed), &fe_libc_allocator, NULL, &r) < 0);
    CHECK_INT(r.items[0].kind, PT2_JSON_DEPTH);
    CHECK_INT(r.items[1].kind, PT2_JSON_DEPTH);
    CHECK(strlen(r.items[1].path) < 200);
    free(open);
    free(closed);
    open = repeated("", "[", PT2_JSON_MAX_DEPTH - 1, "[1]");
    closed = repeated(open, "]", PT2_JSON_MAX_DEPTH - 1, "");
    DO(pt2_json_parse_copy(&j, closed, strlen(closed), &fe_libc_allocator, NULL, &r));
    fe_buffer b;
    fe_buffer_init(&b, &fe_libc_allocator);
    pt2_json_write(yyjson_doc_get_root(j.doc), &b);
    CHECK(b.len == strlen(closed) && memcmp(b.data, closed, b.len) == 0);
    fe_buffer_clear(&b);
    pt2_json_clear(&j);
    pt2_report_clear(&r);
    free(open);
    free(closed);
}

/* ---- numbers ---- */

static void test_numbers(void)
{
    static const struct {
        const char *text;
        bool is_integer, fits, is_real;
        int64_t integer;
        double real;
    } cases[] = {
        {"0", true, true, true, 0, 0.0},
        {"-0", true, true, true, 0, 0.0}, /* an integer, as Python has it */
        {"-0.0", false, false, true, 0, -0.0},
        {"42", true, true, true, 42, 42.0},
        {"9223372036854775807", true, true, true, INT64_MAX, 9223372036854775807.0},
        {"9223372036854775808", true, false, true, 0, 9223372036854775808.0},
        {"-9223372036854775808", true, true, true, INT64_MIN, -9223372036854775808.0},
        {"-9223372036854775809", true, false, true, 0, -9223372036854775809.0},
        {"99999999999999999999", true, false, true, 0, 1e20},
        {"3.0", false, false, true, 0, 3.0},
        {"3e0", false, false, true, 0, 3.0},
        {"0.1", false, false, true, 0, 0.1},
        {"5e-324", false, false, true, 0, 5e-324},
        {"1e-400", false, false, true, 0, 0.0},
        {"1e400", false, false, false, 0, 0.0},
        {"Infinity", false, false, true, 0, INFINITY},
        {"\"-Infinity\"", false, false, true, 0, -INFINITY},
        {"\"inf\"", false, false, false, 0, 0.0},
        {"\"1.0\"", false, false, false, 0, 0.0},
        {"true", false, false, false, 0, 0.0},
        {"[1]", false, false, false, 0, 0.0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pt2_json j = parsed(cases[i].text, strlen(cases[i].text));
        yyjson_val *v = yyjson_doc_get_root(j.doc);
        int64_t integer = -1;
        double real = -1;
        CHECK_INT(pt2_json_is_integer(v), cases[i].is_integer);
        CHECK_INT(pt2_json_int(v, &integer), cases[i].fits);
        CHECK_INT(pt2_json_real(v, &real), cases[i].is_real);
        if (cases[i].fits)
            CHECK_INT(integer, cases[i].integer);
        if (cases[i].is_real)
            CHECK(real == cases[i].real && signbit(real) == signbit(cases[i].real));
        pt2_json_clear(&j);
    }
    pt2_json j = parsed("[NaN, \"NaN\"]", 12);
    double real = 0;
    CHECK(pt2_json_real(yyjson_arr_get(yyjson_doc_get_root(j.doc), 0), &real) && isnan(real));
    CHECK(pt2_json_real(yyjson_arr_get(yyjson_doc_get_root(j.doc), 1), &real) && isnan(real));
    pt2_json_clear(&j);
}

/* ---- writing ---- */

/* Expected texts are json.dumps(json.loads(text)) of Python 3.11. */
static void test_writing(void)
{
    static const char *const cases[][2] = {
        {"{\"b\":[1,2.50,1e5,-0],\"a\":{}}", "{\"b\": [1, 2.50, 1e5, -0], \"a\": {}}"},
        {" [ ] ", "[]"},
        {"[null,true,false,NaN,-Infinity]", "[null, true, false, NaN, -Infinity]"},
        {"\"\\u00E9\xc3\xa9\\/\"", "\"\\u00e9\\u00e9/\""},
        {"\"\\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u001f\"", "\"\\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u001f\""},
        {"\"\x7f\"", "\"\\u007f\""},
        {"\"\xf0\x9f\x98\x80\xef\xbf\xbf\xe2\x82\xac\"", "\"\\ud83d\\ude00\\uffff\\u20ac\""},
        {"{\"k\\n\":\"\"}", "{\"k\\n\": \"\"}"},
    };
    fe_buffer b;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pt2_json j = parsed(cases[i][0], strlen(cases[i][0]));
        fe_buffer_init(&b, &fe_libc_allocator);
        pt2_json_write(yyjson_doc_get_root(j.doc), &b);
        fe_buffer_char(&b, '\0');
        CHECK_TEXT(b.data, cases[i][1]);
        fe_buffer_clear(&b);
        pt2_json_clear(&j);
    }
    /* not UTF-8: never read past the end */
    char *cut = malloc(2);
    CHECK(cut);
    memcpy(cut, "a\xf0", 2);
    fe_buffer_init(&b, &fe_libc_allocator);
    pt2_json_quote(cut, 2, &b);
    fe_buffer_char(&b, '\0');
    CHECK_TEXT(b.data, "\"a\\ufffd\"");
    fe_buffer_clear(&b);
    free(cut);
}

/* ---- memory ---- */

static void test_no_memory(void)
{
    char *text = object_of(50, "\"key\\u0041\"");
    static const char wrong[] = "{\"a\": [\"\\q\", 03]}";
    test_memory m;
    bool failed = true;

    for (int is_good = 0; is_good <= 1; is_good++) {
        failed = true;
        for (size_t n = 0; failed; n++) {
            pt2_report r;
            pt2_json j;
            memory_init(&m);
            memory_fail(&m, n, true);
            pt2_report_init(&r, &m.allocator, NULL);
            int result = is_good ? pt2_json_parse_copy(&j, text, strlen(text), &m.allocator, NULL, &r)
                                 : pt2_json_parse_copy(&j, wrong, strlen(wrong), &m.allocator, NULL, &r);
            failed = r.no_memory;
            CHECK_INT(result, is_good && !failed ? 0 : -1);
            pt2_json_clear(&j);
            pt2_report_clear(&r);
            CHECK_INT(m.blocks, 0);
            CHECK(n < 100);
        }
    }
    free(text);
}

int main(void)
{
    RUN(test_good);
    RUN(test_syntax_paths);
    RUN(test_words_for_numbers);
    RUN(test_bad_strings);
    RUN(test_in_place);
    RUN(test_duplicates);
    RUN(test_depth);
    RUN(test_numbers);
    RUN(test_writing);
    RUN(test_no_memory);
    return 0;
}
