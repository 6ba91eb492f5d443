/* name.c - unique names by torch.fx's rules (torch/fx/graph.py, _Namespace, 2.13).
 *
 * A candidate keeps its name when it is free; base_N counts on from the highest N seen for the base. A name once used
 * stays used, also when its node is gone. A newline at the end is illegal, which torch's pattern lets pass. A candidate
 * is split here when it is ASCII; digits of other scripts, which Python's \d takes, are the owner's business.
 */
#include "ir.h"

#define MAX_DIGITS 18 /* of a number that fits an int64 for sure */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_lower(char c)
{
    return c >= 'a' && c <= 'z';
}

static bool is_upper(char c)
{
    return c >= 'A' && c <= 'Z';
}

static bool is_word(char c)
{
    return is_lower(c) || is_upper(c) || is_digit(c) || c == '_';
}

static bool is_identifier(const char *text, size_t len)
{
    if (!len || is_digit(text[0]))
        return false;
    for (size_t i = 0; i < len; i++) {
        if (!is_word(text[i]))
            return false;
    }
    return true;
}

bool fe_name_is_keyword(const char *text, size_t len)
{
    static const char *const keywords[] = {
        "False",  "None",     "True",  "and",    "as",       "assert", "async",  "await", "break",
        "class",  "continue", "def",   "del",    "elif",     "else",   "except", "for",   "from",
        "global", "finally",  "if",    "import", "in",       "is",     "lambda", "not",   "or",
        "pass",   "with",     "raise", "return", "nonlocal", "try",    "while",  "yield", "__debug__",
    };

    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++) {
        if (keywords[i][0] == text[0] && strlen(keywords[i]) == len && memcmp(keywords[i], text, len) == 0)
            return true;
    }
    return false;
}

bool fe_name_is_odd(const fe_string *s)
{
    for (size_t i = 0; i < s->len; i++) {
        if (!is_word(s->data[i]) && !(s->data[i] & 0x80))
            return true;
    }
    return !s->len || is_digit(s->data[0]) || fe_name_is_keyword(s->data, s->len);
}

/* Each run of illegal characters becomes one "_"; a digit in front gets one too. */
static size_t make_identifier(const char *text, size_t len, char *buffer)
{
    size_t n = 0;
    bool run = false;

    if (len && is_digit(text[0]))
        buffer[n++] = '_';
    for (size_t i = 0; i < len; i++) {
        bool legal = is_word(text[i]);
        if (legal)
            buffer[n++] = text[i];
        else if (!run)
            buffer[n++] = '_';
        run = !legal;
    }
    return n;
}

fe_candidate fe_name_split(const char *text, size_t len, char *buffer)
{
    fe_candidate c = {.name = text, .name_len = len, .number = -1};

    if (!len) {
        c.name = "_unnamed";
        c.name_len = strlen(c.name);
    } else if (!is_identifier(text, len)) {
        c.name = buffer;
        c.name_len = make_identifier(text, len, buffer);
    }
    c.base = c.name;
    c.base_len = c.name_len;

    size_t digits = 0;
    while (digits < c.base_len && is_digit(c.base[c.base_len - 1 - digits]))
        digits++;
    size_t stem = c.base_len - digits;
    if (!digits || stem < 2 || c.base[stem - 1] != '_')
        return c;
    c.base_len = stem - 1;
    if (digits > MAX_DIGITS) {
        c.number = INT64_MAX;
        return c;
    }
    c.number = 0;
    for (size_t i = stem; i < stem + digits; i++)
        c.number = c.number * 10 + (c.base[i] - '0');
    return c;
}

size_t fe_name_snake(const char *text, size_t len, char *buffer)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        if (is_upper(text[i]) && i && is_lower(text[i - 1]))
            buffer[n++] = '_';
        buffer[n++] = (char)(is_upper(text[i]) ? text[i] - 'A' + 'a' : text[i]);
    }
    return n;
}

/* The counter of a base, made when it is new. */
static int64_t *counter(fe_graph *g, fe_string *base, fe_error *err)
{
    if (!base->base) {
        if (fe_grow(g->allocator, &g->bases, &g->base_capacity, (size_t)g->base_count + 1, sizeof *g->bases, err) < 0)
            return NULL;
        g->bases[g->base_count++] = 0;
        base->base = g->base_count;
    }
    return &g->bases[base->base - 1];
}

int fe_name_set_counter(fe_graph *g, fe_string *base, int64_t count, fe_error *err)
{
    int64_t *n = counter(g, base, err);

    if (!n)
        return -1;
    *n = count;
    return 0;
}

static fe_string *numbered(fe_graph *g, const fe_string *base, int64_t number, fe_error *err)
{
    char small[128], digits[24], *at = digits + sizeof digits, *text = small;
    fe_string *s;

    for (int64_t rest = number; rest || at == digits + sizeof digits; rest /= 10)
        *--at = (char)('0' + rest % 10);
    *--at = '_';
    size_t n = (size_t)(digits + sizeof digits - at), len = base->len + n;

    if (len > sizeof small) {
        text = fe_resize(g->allocator, NULL, len);
        if (!text) {
            fe_no_memory(err);
            return NULL;
        }
    }
    memcpy(text, base->data, base->len);
    memcpy(text + base->len, at, n);
    s = fe_string_get(g, text, len, err);
    if (text != small)
        fe_resize(g->allocator, text, 0);
    return s;
}

static bool is_reserved(const fe_graph *g, const fe_string *s)
{
    return g->reserved && fe_string_is_in(&g->reserved->strings, s);
}

int fe_name_create(fe_graph *g, fe_candidate c, fe_new_name *out, fe_error *err)
{
    fe_string *name = c.known ? c.known : fe_string_get(g, c.name, c.name_len, err);
    bool whole = c.base_len == c.name_len;
    fe_string *base = name && !whole ? fe_string_get(g, c.base, c.base_len, err) : name;
    int64_t *count = base ? counter(g, base, err) : NULL;
    int64_t number = c.number;

    if (!count)
        return -1;
    if (number < 0 || name->used) {
        number = *count;
        if (is_reserved(g, name)) {
            number++;
            if (!(name = numbered(g, base, number, err)))
                return -1;
        }
    }
    while (name->used) {
        number = number == INT64_MAX ? 1 : number + 1; /* a count beyond int64 starts again; names stay unique */
        if (!(name = numbered(g, base, number, err)))
            return -1;
    }
    *out = (fe_new_name){name, base, number};
    return 0;
}

void fe_name_take(fe_graph *g, fe_new_name n)
{
    n.name->used = true;
    g->bases[n.base->base - 1] = n.count;
}
