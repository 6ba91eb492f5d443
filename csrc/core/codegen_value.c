/* codegen_value.c - see codegen.h: names and arguments in code.
 *
 * Where torch's text would be no Python, or would mean something else (a keyword as the name of an argument, a number that a
 * method is called on), ours differs; as_torch has torch's.
 */
#include "codegen_writer.h"

#include <math.h>

#define SMALL_NAME 254

/* ---- names ---- */

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* For torch a keyword can be a name. */
bool fe_code_is_name(const fe_code_writer *w, const char *text, size_t len)
{
    if (!len)
        return false;
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)text[i] >= 0x80)
            return w->o->is_name(w->o->ctx, text, len);
        if (!is_letter(text[i]) && (i == 0 || text[i] < '0' || text[i] > '9'))
            return false;
    }
    return w->o->as_torch || !fe_name_is_keyword(text, len);
}

static fe_string *fail(fe_code_writer *w)
{
    w->failed = true;
    return NULL;
}

fe_string *fe_code_new_name(fe_code_writer *w, const char *text, size_t len)
{
    char small[SMALL_NAME + 2], *buffer = small;
    const fe_allocator *a = w->g->allocator;
    fe_new_name made = {0};

    if (len > SMALL_NAME && !(buffer = fe_resize(a, NULL, len + 2))) {
        fe_no_memory(w->err);
        return fail(w);
    }
    int result = fe_name_create(w->out->names, fe_name_split(text, len, buffer), &made, w->err);
    if (buffer != small)
        fe_resize(a, buffer, 0);
    if (result < 0)
        return fail(w);
    fe_name_take(w->out->names, made);
    return made.name;
}

void fe_code_string(fe_code_writer *w, const fe_string *s)
{
    if (s)
        fe_buffer_add(&w->out->body, s->data, s->len);
}

const fe_string *fe_code_name_of(fe_code_writer *w, uint32_t id)
{
    const fe_string *own = w->g->details[id].name;

    if (!w->names[id])
        w->names[id] = fe_code_new_name(w, own->data, own->len);
    return w->names[id];
}

static fe_string *take_reserved(fe_code_writer *w, fe_text hint)
{
    fe_string *name = fe_string_get(w->out->names, hint.data, hint.len, w->err);

    if (!name || name->used)
        return name ? fe_code_new_name(w, hint.data, hint.len) : fail(w);
    name->used = true;
    return name;
}

static bool is_outer_parameter(const fe_code_writer *w, const fe_string *s)
{
    for (uint32_t i = 0; i < w->o->outer_count && !w->o->as_torch; i++) {
        if (w->o->outer[i].len == s->len && memcmp(w->o->outer[i].data, s->data, s->len) == 0)
            return true;
    }
    return false;
}

const fe_string *fe_code_global_name(fe_code_writer *w, uint32_t global)
{
    const fe_code_global *g = &w->o->globals[global];
    fe_string **at = &w->out->global_names[global];

    if (*at)
        return *at;
    *at = g->reserved ? take_reserved(w, g->hint) : fe_code_new_name(w, g->hint.data, g->hint.len);
    while (*at && is_outer_parameter(w, *at)) /* the function would not see it */
        *at = fe_code_new_name(w, g->hint.data, g->hint.len);
    if (*at)
        w->out->used_globals[w->out->used_count++] = global;
    return *at;
}

void fe_code_pieces(fe_code_writer *w, fe_code_text text)
{
    for (uint32_t i = 0; i < text.count; i++) {
        fe_buffer_add(&w->out->body, text.pieces[i].text.data, text.pieces[i].text.len);
        if (text.pieces[i].global != FE_NONE_ID)
            fe_code_string(w, fe_code_global_name(w, text.pieces[i].global));
    }
}

/* ---- arguments ---- */

static void colour(fe_code_writer *w, const char *code)
{
    if (!w->plain)
        fe_buffer_text(&w->out->body, code);
}

static void write_quoted(fe_code_writer *w, const char *text, size_t len)
{
    fe_value v = {.kind = FE_STR};

    if (!(v.as.string = fe_string_get(w->out->names, text, len, w->err)))
        fail(w);
    else
        fe_text_value(w->g, w->o->renderer, v, FE_TEXT_REPR, &w->out->body);
}

/* Whether Python reads the repr of a complex number as that number: its parts must be finite, and no zero may be negative. */
static bool is_readable(const double *parts)
{
    bool minus_zero = (parts[0] == 0 && signbit(parts[0])) || (parts[1] == 0 && signbit(parts[1]));

    return isfinite(parts[0]) && isfinite(parts[1]) && !minus_zero && !(parts[0] == 0 && signbit(parts[1]));
}

static void write_scalar(fe_code_writer *w, fe_value v)
{
    fe_buffer *b = &w->out->body;

    colour(w, w->o->colour);
    if (v.kind == FE_COMPLEX && !w->o->as_torch && !is_readable(v.as.complex)) {
        fe_buffer_text(b, "complex(");
        fe_text_double(v.as.complex[0], b);
        fe_buffer_text(b, ", ");
        fe_text_double(v.as.complex[1], b);
        fe_buffer_char(b, ')');
    } else {
        fe_text_value(w->g, w->o->renderer, v, FE_TEXT_REPR, b);
    }
    colour(w, w->o->colour[0] ? w->o->reset : "");
}

static void write_object(fe_code_writer *w, uint32_t object)
{
    if (w->o->values && object < w->o->object_count)
        fe_code_pieces(w, w->o->values[object]);
}

static void write_items(fe_code_writer *w, const fe_seq *s)
{
    for (uint32_t i = 0; i < s->len; i++) {
        if (i)
            fe_buffer_text(&w->out->body, ", ");
        fe_code_value(w, s->items[i]);
    }
}

static void write_tuple(fe_code_writer *w, const fe_seq *s)
{
    if (s->type != FE_NONE_ID && w->o->classes && s->type < w->o->object_count)
        fe_code_pieces(w, w->o->classes[s->type]);
    fe_buffer_char(&w->out->body, '(');
    write_items(w, s);
    fe_buffer_text(&w->out->body, s->len == 1 ? ",)" : ")");
}

static void write_dict(fe_code_writer *w, const fe_seq *s)
{
    colour(w, w->o->colour);
    w->plain++;
    fe_buffer_char(&w->out->body, '{');
    for (uint32_t i = 0; i + 1 < s->len; i += 2) {
        if (i)
            fe_buffer_text(&w->out->body, ", ");
        fe_code_value(w, s->items[i]);
        fe_buffer_text(&w->out->body, ": ");
        fe_code_value(w, s->items[i + 1]);
    }
    fe_buffer_char(&w->out->body, '}');
    w->plain--;
    colour(w, w->o->colour[0] ? w->o->reset : "");
}

void fe_code_value(fe_code_writer *w, fe_value v)
{
    switch ((fe_kind)v.kind) {
    case FE_NODE:
        fe_code_string(w, fe_code_name_of(w, v.as.node));
        break;
    case FE_OBJECT:
        write_object(w, v.as.object);
        break;
    case FE_TUPLE:
        write_tuple(w, v.as.seq);
        break;
    case FE_DICT:
        write_dict(w, v.as.seq);
        break;
    case FE_LIST:
    case FE_SLICE:
        fe_buffer_text(&w->out->body, v.kind == FE_LIST ? "[" : "slice(");
        write_items(w, v.as.seq);
        fe_buffer_char(&w->out->body, v.kind == FE_LIST ? ']' : ')');
        break;
    default:
        write_scalar(w, v);
    }
}

void fe_code_arguments(fe_code_writer *w, const fe_detail *d, uint32_t first)
{
    fe_buffer *b = &w->out->body;
    const char *between = "(";

    for (uint32_t i = first; d->args && i < d->args->len; i++, between = ", ") {
        fe_buffer_text(b, between);
        fe_code_value(w, d->args->items[i]);
    }
    for (uint32_t i = 0; d->kwargs && i + 1 < d->kwargs->len; i += 2, between = ", ") {
        fe_value key = d->kwargs->items[i]; /* an object is a str that UTF-8 can't hold */
        bool named =
            key.kind == FE_STR && (w->o->as_torch || fe_code_is_name(w, key.as.string->data, key.as.string->len));
        fe_buffer_text(b, between);
        if (named) {
            fe_code_string(w, key.as.string);
            fe_buffer_text(b, " = ");
        } else {
            fe_buffer_text(b, "**{");
            fe_code_value(w, key);
            fe_buffer_text(b, ": ");
        }
        fe_code_value(w, d->kwargs->items[i + 1]);
        fe_buffer_text(b, named ? "" : "}");
    }
    fe_buffer_text(b, *between == '(' ? "()" : ")");
}

/* ---- calls ---- */

/* Whether a value's text needs parentheses to have something called on it, or to be raised to a power. */
static bool is_bare_number(fe_value v, bool negative_only)
{
    if (v.kind == FE_INT)
        return !negative_only || v.as.integer < 0;
    return v.kind == FE_FLOAT && signbit(v.as.real) && !isnan(v.as.real);
}

static void write_operand(fe_code_writer *w, fe_value v, bool parentheses)
{
    parentheses = parentheses && !w->o->as_torch;
    fe_buffer_text(&w->out->body, parentheses ? "(" : "");
    fe_code_value(w, v);
    fe_buffer_text(&w->out->body, parentheses ? ")" : "");
}

static size_t part_length(const char *path, const char *end)
{
    const char *dot = memchr(path, '.', (size_t)(end - path));

    return (size_t)((dot ? dot : end) - path);
}

static void write_part(fe_code_writer *w, const char *part, size_t len)
{
    fe_buffer *b = &w->out->body;
    bool odd = false;

    if (fe_code_is_name(w, part, len)) {
        fe_buffer_char(b, '.');
        fe_buffer_add(b, part, len);
        return;
    }
    for (size_t i = 0; i < len && !w->o->as_torch; i++)
        odd |= part[i] == '"' || part[i] == '\\' || (unsigned char)part[i] < ' ' || (unsigned char)part[i] > '~';
    fe_buffer_text(b, odd ? ", " : ", \"");
    if (odd)
        write_quoted(w, part, len);
    else
        fe_buffer_add(b, part, len);
    fe_buffer_text(b, odd ? ")" : "\")");
}

void fe_code_path(fe_code_writer *w, const fe_value *base, const char *path, size_t len)
{
    const char *end = path + len;
    size_t n;

    for (const char *at = path; at <= end; at += n + 1) {
        n = part_length(at, end);
        fe_buffer_text(&w->out->body, fe_code_is_name(w, at, n) ? "" : "getattr(");
    }
    if (base)
        write_operand(w, *base, is_bare_number(*base, false));
    else
        fe_buffer_text(&w->out->body, w->o->root);
    for (const char *at = path; at <= end; at += n + 1) {
        n = part_length(at, end);
        write_part(w, at, n);
    }
}

uint32_t fe_code_holes(fe_text pattern)
{
    uint32_t count = 0;

    for (size_t i = 0; i + 1 < pattern.len; i++)
        count += pattern.data[i] == '{' && pattern.data[i + 1] == '}';
    return count;
}

void fe_code_operands(fe_code_writer *w, fe_text pattern, const fe_seq *args)
{
    const char *text = pattern.data, *end = text + pattern.len;
    bool power = memchr(text, '*', pattern.len) && strstr(text, "**"), item = memchr(text, '[', pattern.len);
    uint32_t i = 0;

    while (text < end) {
        const char *hole = text;
        while (hole < end && !(hole[0] == '{' && hole + 1 < end && hole[1] == '}'))
            hole++;
        fe_buffer_add(&w->out->body, text, (size_t)(hole - text));
        if (hole < end) {
            fe_value v = args->items[i];
            write_operand(w, v, i == 0 && (power || item) && is_bare_number(v, power));
            i++;
        }
        text = hole < end ? hole + 2 : end;
    }
    for (; i < args->len; i++) { /* as_torch: they are not written, but take names */
        size_t len = w->out->body.len;
        fe_code_value(w, args->items[i]);
        if (!w->out->body.failed)
            w->out->body.len = len;
    }
}
