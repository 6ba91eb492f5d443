/* text.c - a graph as torch.fx prints it (Node.format_node and Graph.__str__ of 2.13).
 *
 * An argument shows nodes as %name and strings bare; inside a slice, and in what a graph returns, Python's own repr
 * holds, with names bare and strings quoted. Objects were rendered beforehand by the owner (see fe_renderer).
 */
#include "pass.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- numbers ---- */

/* The next decimal with as many digits; false when there is none. */
static bool next_decimal(char *text)
{
    for (char *at = strchr(text, 'e'); at-- > text;) {
        if (*at < '0' || *at > '9')
            continue;
        if (*at != '9') {
            ++*at;
            return true;
        }
        *at = '0';
    }
    return false;
}

/* The fewest digits that read back as the value, without a point; *exponent is that of the first digit. Up to 15 digits
 * survive a normal double, so when 15 do not suffice 16 or 17 are needed; a subnormal may need less. Above a power of two
 * doubles lie twice as far apart as below it, so the decimal above may do where the nearest, below, does not. The point
 * may be a locale's, hence skipped. */
static int shortest_digits(double value, char digits[20], int *exponent)
{
    char text[40];
    int n = 0;

    for (int precision = value < DBL_MIN ? 1 : 15; precision <= 17; precision++) {
        snprintf(text, sizeof text, "%.*e", precision - 1, value);
        if (strtod(text, NULL) == value || (precision == 16 && next_decimal(text) && strtod(text, NULL) == value))
            break;
    }
    const char *at = text;
    for (; *at != 'e'; at++) {
        if (*at >= '0' && *at <= '9')
            digits[n++] = *at;
    }
    *exponent = atoi(at + 1);
    while (n > 1 && digits[n - 1] == '0')
        n--;
    return n;
}

static void add_zeros(fe_buffer *out, int count)
{
    while (count-- > 0)
        fe_buffer_char(out, '0');
}

static void add_exponential(const char *digits, int n, int exponent, fe_buffer *out)
{
    char text[16];

    fe_buffer_char(out, digits[0]);
    if (n > 1) {
        fe_buffer_char(out, '.');
        fe_buffer_add(out, digits + 1, (size_t)n - 1);
    }
    snprintf(text, sizeof text, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    fe_buffer_text(out, text);
}

static void add_positional(const char *digits, int n, int exponent, bool point, fe_buffer *out)
{
    int whole = exponent + 1; /* digits before the point */

    if (whole <= 0) {
        fe_buffer_text(out, "0.");
        add_zeros(out, -whole);
        fe_buffer_add(out, digits, (size_t)n);
        return;
    }
    fe_buffer_add(out, digits, (size_t)(n < whole ? n : whole));
    add_zeros(out, whole - n);
    if (n > whole) {
        fe_buffer_char(out, '.');
        fe_buffer_add(out, digits + whole, (size_t)(n - whole));
    } else if (point) {
        fe_buffer_text(out, ".0");
    }
}

static void add_double(double value, bool point, fe_buffer *out)
{
    char digits[20];
    int exponent, n;

    if (isnan(value)) {
        fe_buffer_text(out, "nan");
        return;
    }
    if (signbit(value))
        fe_buffer_char(out, '-');
    value = fabs(value);
    if (isinf(value)) {
        fe_buffer_text(out, "inf");
        return;
    }
    n = shortest_digits(value, digits, &exponent);
    if (exponent < -4 || exponent >= 16)
        add_exponential(digits, n, exponent, out);
    else
        add_positional(digits, n, exponent, point, out);
}

void fe_text_double(double value, fe_buffer *out)
{
    add_double(value, true, out);
}

static void add_complex(const double *parts, fe_buffer *out)
{
    bool imaginary_only = parts[0] == 0 && !signbit(parts[0]);

    if (!imaginary_only) {
        fe_buffer_char(out, '(');
        add_double(parts[0], false, out);
        if (isnan(parts[1]) || !signbit(parts[1]))
            fe_buffer_char(out, '+');
    }
    add_double(parts[1], false, out);
    fe_buffer_text(out, imaginary_only ? "j" : "j)");
}

/* ---- strings and objects ---- */

static void add_string(const fe_string *s, fe_buffer *out)
{
    fe_buffer_add(out, s->data, s->len);
}

static void add_quoted_char(char c, char quote, fe_buffer *out)
{
    static const char hex[] = "0123456789abcdef";
    unsigned char byte = (unsigned char)c;

    if (c == quote || c == '\\') {
        fe_buffer_char(out, '\\');
        fe_buffer_char(out, c);
    } else if (c == '\n') {
        fe_buffer_text(out, "\\n");
    } else if (c == '\t') {
        fe_buffer_text(out, "\\t");
    } else if (c == '\r') {
        fe_buffer_text(out, "\\r");
    } else if (byte < 0x20 || byte == 0x7f) {
        fe_buffer_text(out, "\\x");
        fe_buffer_char(out, hex[byte >> 4]);
        fe_buffer_char(out, hex[byte & 15]);
    } else {
        fe_buffer_char(out, c);
    }
}

static void add_quoted(const fe_renderer *r, const fe_string *s, fe_buffer *out)
{
    bool single = memchr(s->data, '\'', s->len), twice = memchr(s->data, '"', s->len);
    char quote = single && !twice ? '"' : '\'';

    for (uint32_t i = 0; i < s->len; i++) {
        if ((unsigned char)s->data[i] >= 0x80) {
            r->quote(r->ctx, s, out);
            return;
        }
    }
    fe_buffer_char(out, quote);
    for (uint32_t i = 0; i < s->len; i++)
        add_quoted_char(s->data[i], quote, out);
    fe_buffer_char(out, quote);
}

static void add_object(const fe_renderer *r, uint32_t object, fe_show show, fe_buffer *out)
{
    const fe_text *t = r->shown[show] && object < r->count ? &r->shown[show][object] : NULL;

    if (t && t->data)
        fe_buffer_add(out, t->data, t->len);
    else
        fe_buffer_text(out, "<object>");
}

/* ---- values ---- */

static void add_items(const fe_graph *g, const fe_renderer *r, const fe_seq *s, fe_text_form form, fe_buffer *out)
{
    for (uint32_t i = 0; i < s->len; i++) {
        if (i)
            fe_buffer_text(out, ", ");
        fe_text_value(g, r, s->items[i], form, out);
    }
}

static void add_dict(const fe_graph *g, const fe_renderer *r, const fe_seq *s, fe_text_form form, fe_buffer *out)
{
    fe_buffer_char(out, '{');
    for (uint32_t i = 0; i + 1 < s->len; i += 2) {
        if (i)
            fe_buffer_text(out, ", ");
        fe_text_value(g, r, s->items[i], form == FE_TEXT_ARG ? FE_TEXT_STR : FE_TEXT_REPR, out);
        fe_buffer_text(out, ": ");
        fe_text_value(g, r, s->items[i + 1], form, out);
    }
    fe_buffer_char(out, '}');
}

static void add_plain_tuple(const fe_graph *g, const fe_renderer *r, const fe_seq *s, fe_text_form form, fe_buffer *out)
{
    fe_buffer_char(out, '(');
    add_items(g, r, s, form, out);
    fe_buffer_text(out, s->len == 1 ? ",)" : ")");
}

/* The repr of a tuple of some class: Name(field=value, ...) with fields, Name([values]) without. */
static void add_typed_tuple(const fe_graph *g, const fe_renderer *r, const fe_seq *s, fe_buffer *out)
{
    const fe_text *t = r->shown[FE_SHOW_FIELDS] && s->type < r->count ? &r->shown[FE_SHOW_FIELDS][s->type] : NULL;
    const char *at = t ? t->data : NULL, *end = at ? at + t->len : NULL;

    if (!at) {
        fe_buffer_text(out, "<tuple>");
        return;
    }
    if (at == end) {
        add_plain_tuple(g, r, s, FE_TEXT_REPR, out);
        return;
    }
    const char *line = memchr(at, '\n', t->len);
    fe_buffer_add(out, at, line ? (size_t)(line - at) : t->len);
    if (!line) {
        fe_buffer_text(out, "([");
        add_items(g, r, s, FE_TEXT_REPR, out);
        fe_buffer_text(out, "])");
        return;
    }
    at = line + 1;
    fe_buffer_char(out, '(');
    for (uint32_t i = 0; i < s->len; i++) {
        if (i)
            fe_buffer_text(out, ", ");
        if (at < end && (line = memchr(at, '\n', (size_t)(end - at)))) {
            fe_buffer_add(out, at, (size_t)(line - at));
            fe_buffer_char(out, '=');
            at = line + 1;
        }
        fe_text_value(g, r, s->items[i], FE_TEXT_REPR, out);
    }
    fe_buffer_char(out, ')');
}

static void add_tuple(const fe_graph *g, const fe_renderer *r, const fe_seq *s, fe_text_form form, fe_buffer *out)
{
    if (s->type != FE_NONE_ID && form == FE_TEXT_REPR)
        add_typed_tuple(g, r, s, out);
    else
        add_plain_tuple(g, r, s, form, out);
}

static void add_seq(const fe_graph *g, const fe_renderer *r, fe_value v, fe_text_form form, fe_buffer *out)
{
    if (form == FE_TEXT_STR || v.kind == FE_SLICE)
        form = FE_TEXT_REPR; /* as Python: the str of a container holds the repr of its items */
    if (v.kind == FE_TUPLE) {
        add_tuple(g, r, v.as.seq, form, out);
    } else if (v.kind == FE_DICT) {
        add_dict(g, r, v.as.seq, form, out);
    } else {
        fe_buffer_text(out, v.kind == FE_LIST ? "[" : "slice(");
        add_items(g, r, v.as.seq, form, out);
        fe_buffer_char(out, v.kind == FE_LIST ? ']' : ')');
    }
}

static void add_name(const fe_graph *g, const fe_renderer *r, uint32_t id, fe_buffer *out)
{
    if (r->alias)
        id = r->alias[id];
    if (g->details[id].name)
        add_string(g->details[id].name, out);
}

void fe_text_value(const fe_graph *g, const fe_renderer *r, fe_value v, fe_text_form form, fe_buffer *out)
{
    switch ((fe_kind)v.kind) {
    case FE_NULL:
    case FE_NONE:
        fe_buffer_text(out, "None");
        break;
    case FE_BOOL:
        fe_buffer_text(out, v.as.boolean ? "True" : "False");
        break;
    case FE_INT:
        fe_buffer_int(out, v.as.integer);
        break;
    case FE_FLOAT:
        fe_text_double(v.as.real, out);
        break;
    case FE_COMPLEX:
        add_complex(v.as.complex, out);
        break;
    case FE_STR:
        if (form == FE_TEXT_REPR)
            add_quoted(r, v.as.string, out);
        else
            add_string(v.as.string, out);
        break;
    case FE_NODE:
        if (form == FE_TEXT_ARG)
            fe_buffer_char(out, '%');
        add_name(g, r, v.as.node, out);
        break;
    case FE_OBJECT:
        add_object(r, v.as.object, fe_show_of(form), out);
        break;
    default:
        add_seq(g, r, v, form, out);
    }
}

/* ---- nodes and graphs ---- */

static void text_target(const fe_graph *g, const fe_renderer *r, uint32_t target, fe_buffer *out)
{
    const fe_target *t = &g->targets[target];

    if (t->object != FE_NONE_ID)
        add_object(r, t->object, FE_SHOW_CALLABLE, out);
    else
        add_string(t->text, out);
}

static void add_arguments(const fe_graph *g, const fe_renderer *r, const fe_detail *d, fe_buffer *out)
{
    static const fe_seq empty = {.len = 0, .type = FE_NONE_ID};

    fe_buffer_text(out, "(args = ");
    add_tuple(g, r, d->args ? d->args : &empty, FE_TEXT_ARG, out);
    fe_buffer_text(out, ", kwargs = ");
    add_dict(g, r, d->kwargs ? d->kwargs : &empty, FE_TEXT_ARG, out);
    fe_buffer_char(out, ')');
}

const char *fe_op_name(fe_op op)
{
    static const char *const ops[] = {
#define X(id, text) text,
        FE_OPS(X)
#undef X
    };

    return ops[op];
}

void fe_text_node(const fe_graph *g, const fe_renderer *r, uint32_t id, fe_buffer *out)
{
    const fe_node *n = &g->nodes[id];
    const fe_detail *d = &g->details[id];

    if (n->op == FE_OP_OUTPUT) {
        fe_buffer_text(out, "return ");
        if (d->args && d->args->len)
            fe_text_value(g, r, d->args->items[0], FE_TEXT_STR, out);
        return;
    }
    fe_buffer_char(out, '%');
    add_name(g, r, id, out);
    fe_buffer_text(out, " : ");
    if (d->type != FE_NONE_ID) {
        add_object(r, d->type, FE_SHOW_TYPE, out);
        fe_buffer_char(out, ' ');
    }
    fe_buffer_text(out, "[num_users=");
    fe_buffer_int(out, n->user_count);
    fe_buffer_text(out, "] = ");
    fe_buffer_text(out, fe_op_name((fe_op)n->op));
    fe_buffer_text(out, "[target=");
    if (n->op != FE_OP_ROOT)
        text_target(g, r, n->target, out);
    fe_buffer_char(out, ']');
    if (n->op == FE_OP_PLACEHOLDER) {
        if (d->args && d->args->len) {
            fe_buffer_text(out, "(default=");
            fe_text_value(g, r, d->args->items[0], FE_TEXT_STR, out);
            fe_buffer_char(out, ')');
        }
    } else if (n->op != FE_OP_GET_ATTR) {
        add_arguments(g, r, d, out);
    }
}

void fe_text_graph(const fe_graph *g, const fe_renderer *r, fe_buffer *out)
{
    fe_buffer_text(out, "graph():");
    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT; id = g->nodes[id].next) {
        fe_buffer_text(out, "\n    ");
        fe_text_node(g, r, id, out);
    }
}
