/* mutate.h - mutations of a JSON text that mostly leave it JSON: values are copied, swapped, taken out or replaced.
 *
 * Mutations of single bytes seldom get past the parser. Here a value goes where another one under the same key stands, so
 * that most documents also keep to the schema: an argument in the place of an argument, a name for a name.
 */
#ifndef MUTATE_H
#define MUTATE_H

#include "base.h"
#include "must.h"

#include <ctype.h>

#define MOST_SPANS 8192
#define MOST_DEPTH 64
#define TRIES 40 /* to find another value under the same key */

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

/* A value of the text. */
typedef struct {
    size_t start, end;
    size_t key, key_len; /* of a list's element: the list's key */
    bool element;
} span;

typedef struct {
    const char *text;
    size_t size;
    span spans[MOST_SPANS];
    size_t count;
    uint64_t random;
} mutation;

static inline size_t chance(mutation *m, size_t of)
{
    m->random = fe_mix(m->random + 1);
    return of ? m->random % of : 0;
}

static inline size_t end_of_string(const mutation *m, size_t at)
{
    for (at++; at < m->size && m->text[at] != '"'; at++)
        at += m->text[at] == '\\';
    return at < m->size ? at + 1 : m->size;
}

static inline size_t end_of_scalar(const mutation *m, size_t at)
{
    if (m->text[at] == '"')
        return end_of_string(m, at);
    while (at < m->size && !strchr(",]}: \n\t\r", m->text[at]))
        at++;
    return at;
}

/* Note where values are, as far as the text is JSON. */
static inline void find_spans(mutation *m)
{
    size_t open[MOST_DEPTH], depth = 0, key = 0, key_len = 0, at = 0;

    m->count = 0;
    while (at < m->size && m->count < MOST_SPANS && depth < MOST_DEPTH) {
        char c = m->text[at];
        if (isspace((unsigned char)c) || c == ',' || c == ':' || c == '\0') {
            at++;
        } else if (c == ']' || c == '}') {
            if (!depth)
                return;
            span *s = &m->spans[open[--depth]];
            s->end = ++at;
            key = s->key;
            key_len = s->key_len;
        } else {
            bool nested = c == '[' || c == '{', in_list = depth && m->text[m->spans[open[depth - 1]].start] == '[';
            size_t end = nested ? at + 1 : end_of_scalar(m, at);
            if (c == '"' && !in_list && end < m->size && m->text[end] == ':') {
                key = at;
                key_len = end - at;
            } else {
                if (nested)
                    open[depth++] = m->count;
                m->spans[m->count++] = (span){at, nested ? 0 : end, key, key_len, in_list};
            }
            at = end > at ? end : at + 1;
        }
    }
    while (depth)
        m->spans[open[--depth]].end = m->size;
}

static inline bool same_key(const mutation *m, const span *a, const span *b)
{
    return a->key_len == b->key_len && a->element == b->element &&
           memcmp(m->text + a->key, m->text + b->key, a->key_len) == 0;
}

/* Another value under the same key, or, at times or when there is none, any. */
static inline const span *another(mutation *m, const span *a)
{
    for (int i = 0; i < TRIES && chance(m, 16); i++) {
        const span *b = &m->spans[chance(m, m->count)];
        if (b != a && same_key(m, a, b))
            return b;
    }
    return &m->spans[chance(m, m->count)];
}

static inline void add(fe_buffer *out, const mutation *m, size_t start, size_t end)
{
    if (end > start)
        fe_buffer_add(out, m->text + start, end - start);
}

static inline void put_other(fe_buffer *out, mutation *m, const span *a)
{
    static const char *const values[] = {"null",
                                         "true",
                                         "false",
                                         "0",
                                         "1",
                                         "2",
                                         "-1",
                                         "7",
                                         "9223372036854775807",
                                         "-9223372036854775808",
                                         "1e400",
                                         "0.5",
                                         "\"\"",
                                         "\"Infinity\"",
                                         "\"x\"",
                                         "[]",
                                         "{}",
                                         "{\"as_none\": true}",
                                         "{\"as_int\": 3}",
                                         "{\"as_tensor\": {\"name\": \"x\"}}"};
    const span *b = another(m, a);

    if (chance(m, 4))
        add(out, m, b->start, b->end);
    else
        fe_buffer_text(out, values[chance(m, sizeof values / sizeof *values)]);
}

static inline void put_swapped(fe_buffer *out, mutation *m, const span *a, const span *b)
{
    if (b->start < a->start) {
        const span *c = a;
        a = b;
        b = c;
    }
    add(out, m, 0, a->start);
    add(out, m, b->start, b->end);
    add(out, m, a->end, b->start);
    add(out, m, a->start, a->end);
    add(out, m, b->end, m->size);
}

/* Without an element of a list, or with one more. */
static inline void put_list(fe_buffer *out, mutation *m, const span *a)
{
    const span *b = another(m, a);
    size_t end = a->end;

    add(out, m, 0, a->start);
    if (chance(m, 2)) {
        add(out, m, b->start, b->end);
        fe_buffer_text(out, ", ");
        end = a->start;
    } else {
        while (end < m->size && (m->text[end] == ',' || m->text[end] == ' '))
            end++;
    }
    add(out, m, end, m->size);
}

static inline size_t mutate_json(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    static mutation m;
    fe_buffer out;

    m.text = (const char *)data;
    m.size = size;
    m.random = seed;
    find_spans(&m);
    if (m.count < 2 || chance(&m, 8) == 0)
        return LLVMFuzzerMutate(data, size, most);
    const span *a = &m.spans[chance(&m, m.count)], *b = another(&m, a);
    fe_buffer_init(&out, &fe_libc_allocator);
    if (a->element && chance(&m, 2)) {
        put_list(&out, &m, a);
    } else if (chance(&m, 3) == 0 && (a->end <= b->start || b->end <= a->start)) {
        put_swapped(&out, &m, a, b);
    } else {
        add(&out, &m, 0, a->start);
        put_other(&out, &m, a);
        add(&out, &m, a->end, size);
    }
    MUST(!out.failed);
    if (out.len && out.len <= most) {
        memcpy(data, out.data, out.len);
        size = out.len;
    }
    fe_buffer_clear(&out);
    return size;
}

#endif
