/* match_value.c - whether a value of a pattern and one of a graph are the same literal.
 *
 * 1, True and 1.0 are three literals, and so are 0.0 and -0.0; a nan is itself. torch.fx compares the types of the two
 * values only and leaves the rest to ==, which in a slice or a dict takes 1 for True: that is `loose`.
 */
#include "match.h"

uint32_t fe_value_node_count(fe_value v)
{
    return v.kind == FE_NODE ? 1 : fe_kind_is_seq(v.kind) ? fe_seq_node_count(v.as.seq) : 0;
}

static bool strings_equal(const fe_string *a, const fe_string *b)
{
    return a->hash == b->hash && a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

static bool is_number(unsigned kind)
{
    return kind >= FE_BOOL && kind <= FE_COMPLEX;
}

static void number_parts(fe_value v, double *real, double *imag)
{
    *imag = v.kind == FE_COMPLEX ? v.as.complex[1] : 0;
    *real = v.kind == FE_COMPLEX ? v.as.complex[0]
            : v.kind == FE_FLOAT ? v.as.real
            : v.kind == FE_INT   ? (double)v.as.integer
                                 : v.as.boolean;
}

/* As Python's ==, but for an int that is no double against a double. */
static bool numbers_equal(fe_value x, fe_value y)
{
    double a[2], b[2];

    if (x.kind == FE_INT && y.kind == FE_INT)
        return x.as.integer == y.as.integer;
    number_parts(x, &a[0], &a[1]);
    number_parts(y, &b[0], &b[1]);
    return a[0] == b[0] && a[1] == b[1];
}

static uint32_t class_of(const fe_match_side *side, uint32_t object)
{
    return object == FE_NONE_ID ? FE_NONE_ID : side->objects[object];
}

/* Dicts are equal whatever the order of their keys. */
static bool dicts_equal(const fe_match_side *a, const fe_seq *x, const fe_match_side *b, const fe_seq *y, bool loose)
{
    for (uint32_t i = 0; i < x->len; i += 2) {
        uint32_t k = 0;
        while (k < y->len && !fe_literal_equal(a, x->items[i], b, y->items[k], loose))
            k += 2;
        if (k == y->len || !fe_literal_equal(a, x->items[i + 1], b, y->items[k + 1], loose))
            return false;
    }
    return true;
}

static bool seqs_equal(const fe_match_side *a, fe_value v, const fe_match_side *b, fe_value w, bool loose)
{
    const fe_seq *x = v.as.seq, *y = w.as.seq;

    if (x->len != y->len)
        return false;
    if (v.kind == FE_DICT)
        return dicts_equal(a, x, b, y, loose);
    if (!loose && class_of(a, x->type) != class_of(b, y->type))
        return false;
    for (uint32_t i = 0; i < x->len; i++) {
        if (!fe_literal_equal(a, x->items[i], b, y->items[i], loose))
            return false;
    }
    return true;
}

bool fe_literal_equal(const fe_match_side *a, fe_value x, const fe_match_side *b, fe_value y, bool loose)
{
    if (loose && is_number(x.kind) && is_number(y.kind))
        return numbers_equal(x, y);
    if (x.kind != y.kind)
        return false;
    switch ((fe_kind)x.kind) {
    case FE_STR:
        return strings_equal(x.as.string, y.as.string);
    case FE_NODE:
        return a == b && x.as.node == y.as.node;
    case FE_OBJECT:
        return class_of(a, x.as.object) == class_of(b, y.as.object);
    case FE_TUPLE:
    case FE_LIST:
    case FE_DICT:
    case FE_SLICE:
        return seqs_equal(a, x, b, y, loose);
    default:
        return fe_value_equal(x, y, NULL);
    }
}
