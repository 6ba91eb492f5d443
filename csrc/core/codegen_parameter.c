/* codegen_parameter.c - see codegen.h: the parameters of the function, and the globals that they hide.
 *
 * A parameter bears the name that callers give it by, so it keeps that also when it is the name of a global, such as
 * `input` or `torch`. Then the function does not see the global. Whether its code needs to is known when it is written:
 * the words of the code are looked through, and where one is hidden the code is written again, and begins with
 *
 *     torch_1 = torch;  torch = torch_2
 *
 * where torch_2 is a global that the caller provides. What else is written stays as it is, whoever wrote it.
 */
#include "codegen_writer.h"

#define RESTORED UINT32_MAX /* in w->hiding; else 0, or 1 + how often the name was read */

/* ---- names that hide globals ---- */

static bool is_given(const fe_code_writer *w, const fe_string *s)
{
    for (uint32_t i = 0; i < w->o->given_count; i++) {
        if (w->o->given[i].len == s->len && memcmp(w->o->given[i].data, s->data, s->len) == 0)
            return true;
    }
    return false;
}

/* Whether a parameter of this name hides a global whose name can't be another. It is noted at `at` then. */
static bool hides(fe_code_writer *w, fe_string *name, uint32_t at)
{
    bool reserved = w->g->reserved && fe_string_is_in(&w->g->reserved->strings, name);

    if (!reserved && !is_given(w, name))
        return false;
    if (w->hiding[at] != RESTORED)
        w->hiding[at] = 1;
    name->owner = at;
    w->any_hiding = true;
    return true;
}

void fe_code_begin_parameters(fe_code_writer *w)
{
    w->defaulted = w->starred = w->keywords = 0;
    for (uint32_t i = 0; i < w->o->outer_count && !w->o->as_torch; i++) {
        fe_string *name = fe_string_get(w->out->names, w->o->outer[i].data, w->o->outer[i].len, w->err);
        if (!name) {
            w->failed = true;
            return;
        }
        hides(w, name, w->g->node_count + i);
    }
}

static void restore(fe_code_writer *w, const char *data, size_t len, const fe_string *local)
{
    fe_buffer *b = &w->out->body;
    fe_string *name = fe_string_get(w->out->names, data, len, w->err);

    if (!name) {
        w->failed = true;
        return;
    }
    name->used = true;
    const fe_string *other = fe_code_new_name(w, data, len);
    size_t start = fe_code_begin_line(w);
    if (local) {
        fe_code_string(w, local);
        fe_buffer_text(b, " = ");
        fe_code_string(w, name);
        fe_buffer_text(b, ";  ");
    }
    fe_code_string(w, name);
    fe_buffer_text(b, " = ");
    fe_code_string(w, other);
    fe_code_end_line(w, start);
    if (other)
        w->out->restored[w->out->restored_count++] = (fe_code_restored){name, other};
}

/* What a parameter is called, behind its stars. */
static const char *bare_name(const fe_code_writer *w, uint32_t id, size_t *len, size_t *stars)
{
    const fe_string *target = w->g->targets[w->g->nodes[id].target].text;

    *stars = 0;
    while (*stars < 2 && *stars < target->len && target->data[*stars] == '*')
        (*stars)++;
    *len = target->len - *stars;
    return target->data + *stars;
}

void fe_code_restore(fe_code_writer *w)
{
    const fe_graph *g = w->g;
    size_t len, stars;

    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT && !w->failed; id = g->nodes[id].next) {
        if (w->hiding[id] != RESTORED)
            continue;
        const char *name = bare_name(w, id, &len, &stars);
        restore(w, name, len, fe_code_name_of(w, id));
    }
    for (uint32_t i = 0; i < w->o->outer_count && !w->failed; i++) {
        if (w->hiding[g->node_count + i] == RESTORED)
            restore(w, w->o->outer[i].data, w->o->outer[i].len, NULL);
    }
}

/* ---- the words of code ---- */

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || (c & 0x80);
}

/* Behind a string that begins at a quote. */
static const char *skip_string(const char *at, const char *end)
{
    char quote = *at;
    size_t quotes = end - at >= 3 && at[1] == quote && at[2] == quote ? 3 : 1;

    for (at += quotes; at < end; at++) {
        if (*at == '\\') {
            at++;
        } else if (*at == quote && (quotes == 1 || (end - at >= 3 && at[1] == quote && at[2] == quote))) {
            return at + quotes;
        }
    }
    return end;
}

/* Behind a comment, or a colour for terminals; NULL: there is neither. */
static const char *skip_unread(const char *at, const char *end)
{
    char last = *at == '#' ? '\n' : *at == '\033' ? 'm' : '\0';
    const char *found = last ? memchr(at, last, (size_t)(end - at)) : NULL;

    return last ? (found ? found + 1 : end) : NULL;
}

/* Whether a word is followed by the "=" that makes it the name of an argument, or something that is set. */
static bool is_set(const char *at, const char *end)
{
    while (at < end && *at == ' ')
        at++;
    return at < end && *at == '=' && (at + 1 == end || at[1] != '=');
}

static void count_word(fe_code_writer *w, const char *word, size_t len)
{
    const fe_string *name = fe_string_find(&w->out->names->strings, word, len);

    if (name && name->owner != FE_NONE_ID && w->hiding[name->owner] < RESTORED - 1)
        w->hiding[name->owner]++;
}

static void count_words(fe_code_writer *w, const char *at, const char *end)
{
    const char *unread;
    char before = '\n'; /* the last character that is no space */

    while (at < end) {
        const char *word = at;
        while (at < end && is_word(*at))
            at++;
        if (at > word) {
            if (before != '.' && !is_set(at, end))
                count_word(w, word, (size_t)(at - word));
            before = 'w';
        } else if ((unread = skip_unread(at, end))) {
            at = unread;
        } else {
            before = *at == ' ' ? before : *at;
            at = *at == '\'' || *at == '"' ? skip_string(at, end) : at + 1;
        }
    }
}

bool fe_code_find_hidden(fe_code_writer *w)
{
    uint32_t count = w->g->node_count + w->o->outer_count;
    bool any = false;

    if (!w->any_hiding)
        return false;
    count_words(w, w->out->body.data, w->out->body.data + w->out->body.len);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bound = i < w->g->node_count ? 2 : 1; /* a node's name is set to it once */
        w->hiding[i] = w->hiding[i] > bound ? RESTORED : 0;
        any |= w->hiding[i] == RESTORED;
    }
    return any;
}

/* ---- parameters ---- */

static void write_type_and_default(fe_code_writer *w, uint32_t id)
{
    const fe_detail *d = &w->g->details[id];

    fe_code_type(w, id);
    if (d->args && d->args->len) {
        fe_buffer_text(&w->out->body, " = ");
        fe_code_value(w, d->args->items[0]);
    }
}

/* Whether a parameter can be called what the target says: a name, and of no other parameter, earlier node or global that
 * can't be restored. It is taken then. */
static bool take_parameter(fe_code_writer *w, uint32_t id, const char *raw, size_t len)
{
    size_t start = w->out->body.len;

    if (w->o->as_torch)
        return true;
    write_type_and_default(w, id); /* what is named there is named before the node */
    if (!w->out->body.failed)
        w->out->body.len = start;
    if (!fe_code_is_name(w, raw, len))
        return false;
    fe_string *wanted = fe_string_get(w->out->names, raw, len, w->err);
    if (!wanted || !fe_code_name_of(w, id))
        w->failed = true;
    if (w->failed || w->hiding[id] == RESTORED)
        return !w->failed;
    bool is_first = wanted->owner == FE_NONE_ID || wanted->owner >= w->g->node_count;
    if (wanted->used && wanted != w->names[id] && !(is_first && is_given(w, wanted)))
        return false;
    wanted->used = true;
    hides(w, wanted, id);
    return true;
}

static void refuse(fe_code_writer *w, uint32_t id, uint32_t before, const char *fault)
{
    const fe_graph *g = w->g;
    const fe_string *target = g->targets[g->nodes[id].target].text;

    w->failed = true;
    if (before)
        fe_fail(w->err, FE_BAD_VALUE, id, "node '%s' makes the parameter '%s', which can't stand behind '%s': %s",
                g->details[id].name->data, target->data, g->targets[g->nodes[before].target].text->data, fault);
    else
        fe_fail(w->err, FE_BAD_VALUE, id, "node '%s' makes the parameter '%s' with a default: %s",
                g->details[id].name->data, target->data, fault);
}

/* Whether Python takes a parameter behind those that were written. */
static void check_order(fe_code_writer *w, uint32_t id, size_t stars)
{
    const fe_detail *d = &w->g->details[id];
    bool has_default = d->args && d->args->len;

    if (w->keywords)
        refuse(w, id, w->keywords,
               "one that takes all further keywords must be the last; move its node behind this one");
    else if (stars == 1 && w->starred)
        refuse(w, id, w->starred, "only one can take all further arguments; make one tuple of both");
    else if (stars && has_default)
        refuse(w, id, 0, "one that takes all further arguments has none; take the argument away from the node");
    else if (!stars && !has_default && w->defaulted && !w->starred)
        refuse(w, id, w->defaulted,
               "behind one with a default all have defaults; give this node an argument, or move it before that one");
    if (stars == 2)
        w->keywords = id;
    else if (stars == 1)
        w->starred = id;
    else if (has_default)
        w->defaulted = id;
}

/* Move what was written to the body since `start` to the parameters. */
static void end_parameter(fe_code_writer *w, size_t start)
{
    fe_buffer *b = &w->out->body;

    if (b->failed)
        return;
    fe_buffer_add(&w->out->parameters, b->data + start, b->len - start);
    b->len = start;
    fe_code_push(w, &w->out->ends, &w->out->end_count, &w->out->end_capacity, fe_code_mark(w, &w->out->parameters));
}

/* The node's name set to the parameter. */
static void bind(fe_code_writer *w, const fe_string *name, const char *raw, size_t len)
{
    size_t start = fe_code_begin_line(w);

    fe_code_string(w, name);
    fe_buffer_text(&w->out->body, " = ");
    fe_buffer_add(&w->out->body, raw, len);
    fe_code_end_line(w, start);
}

void fe_code_parameter(fe_code_writer *w, uint32_t id)
{
    size_t start = w->out->body.len, stars, len;
    const char *raw = bare_name(w, id, &len, &stars);
    fe_buffer *b = &w->out->body;

    if (w->o->plain_head && !w->o->as_torch)
        check_order(w, id, stars);
    if (w->failed)
        return;
    bool named = take_parameter(w, id, raw, len);
    fe_buffer_add(b, raw - stars, named ? stars + len : stars);
    if (!named)
        fe_code_string(w, fe_code_name_of(w, id));
    write_type_and_default(w, id);
    if (w->o->comments)
        fe_buffer_add(b, w->o->comments[id].data, w->o->comments[id].len);
    end_parameter(w, start);
    const fe_string *name = fe_code_name_of(w, id);
    bool same = name && name->len == len && memcmp(name->data, raw, len) == 0;
    if (named && name && !same && w->hiding[id] != RESTORED)
        bind(w, name, raw, len);
}
