/* guard.c - the known form of guards_code; see texts.h.
 *
 *     guard   = Python's operators: or, and, not, comparisons, arithmetic, over:
 *     operand = number | True | False | ( guard ) | function ( guard, ... ) | source
 *     source  = L [ 'name' ] { [ 'key' or number ] | . field | . method ( [number] ) }
 *
 * As torch prints them (ShapeGuardPythonPrinter, torch/fx/experimental/symbolic_shapes.py): ((-1) + L['x'].size()[0]) ==
 * L['y'].size()[0]. The only calls are methods that read a shape, and functions of numbers from a list; no field begins
 * with an underscore.
 */
#include "texts.h"

typedef struct {
    const char *text;
    size_t len, at;
    uint32_t depth; /* still allowed */
} reader;

static bool guard(reader *g);

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static char look(const reader *g)
{
    return g->at < g->len ? g->text[g->at] : '\0';
}

static void skip_blanks(reader *g)
{
    while (look(g) == ' ')
        g->at++;
}

static bool accept(reader *g, const char *sign)
{
    size_t len = strlen(sign);

    skip_blanks(g);
    if (len > g->len - g->at || memcmp(g->text + g->at, sign, len) != 0)
        return false;
    g->at += len;
    return true;
}

/* A name at the place where we are; 0: none. */
static size_t name_length(const reader *g)
{
    size_t end = g->at;

    if (end < g->len && is_letter(g->text[end])) {
        while (end < g->len && (is_letter(g->text[end]) || is_digit(g->text[end])))
            end++;
    }
    return end - g->at;
}

static bool accept_word(reader *g, const char *word)
{
    skip_blanks(g);
    size_t len = name_length(g);

    if (len != strlen(word) || memcmp(g->text + g->at, word, len) != 0)
        return false;
    g->at += len;
    return true;
}

/* Digits, perhaps with a point and an exponent: 12, 0.5, 1e-05. */
static bool number(reader *g)
{
    size_t start = g->at;

    while (is_digit(look(g)))
        g->at++;
    if (g->at == start)
        return false;
    if (look(g) == '.') {
        for (g->at++; is_digit(look(g));)
            g->at++;
    }
    if (look(g) == 'e') {
        g->at++;
        if (look(g) == '-' || look(g) == '+')
            g->at++;
        if (!is_digit(look(g)))
            return false;
        while (is_digit(look(g)))
            g->at++;
    }
    return !is_letter(look(g)) && g->at - start < 400;
}

static bool integer(reader *g)
{
    size_t start;

    accept(g, "-");
    skip_blanks(g);
    for (start = g->at; is_digit(look(g));)
        g->at++;
    return g->at > start && g->at - start < 20;
}

/* 'text' or "text", without escapes: no key needs one. */
static bool string(reader *g)
{
    char quote = look(g);

    if (quote != '\'' && quote != '"')
        return false;
    for (g->at++; g->at < g->len && look(g) != quote; g->at++) {
        if (look(g) == '\\' || look(g) == '\n' || look(g) == '\r')
            return false;
    }
    return accept(g, quote == '\'' ? "'" : "\"");
}

static bool is_one_of(const char *text, size_t len, const char *const *words)
{
    for (; *words; words++) {
        if (strlen(*words) == len && memcmp(*words, text, len) == 0)
            return true;
    }
    return false;
}

/* .size() .stride() .storage_offset() .dim(): what reads the shape of a tensor; else a field. */
static bool member(reader *g)
{
    static const char *const methods[] = {"size", "stride", "storage_offset", "dim", "numel", "ndimension", NULL};
    size_t len = name_length(g);
    const char *name = g->text + g->at;

    if (!len || name[0] == '_')
        return false;
    g->at += len;
    if (!accept(g, "("))
        return true;
    if (!is_one_of(name, len, methods))
        return false;
    return accept(g, ")") || (integer(g) && accept(g, ")"));
}

static bool source(reader *g)
{
    if (!accept(g, "[") || !string(g) || !accept(g, "]"))
        return false;
    for (;;) {
        if (look(g) == '.') {
            g->at++;
            if (!member(g))
                return false;
        } else if (look(g) == '[') {
            g->at++;
            if (!(string(g) || integer(g)) || !accept(g, "]"))
                return false;
        } else {
            return true;
        }
    }
}

static bool arguments(reader *g)
{
    do {
        if (!guard(g))
            return false;
    } while (accept(g, ","));
    return accept(g, ")");
}

/* max(...), math.floor(...), torch.sym_float(...) */
static bool call(reader *g)
{
    static const char *const plain[] = {"max",      "min", "abs",       "int", "float", "bool", "round",
                                        "FloorDiv", "Mod", "PythonMod", "Max", "Min",   NULL};
    static const char *const math[] = {"floor", "ceil", "trunc", "sqrt", "pow",  "log",  "log2", "exp",  "sin", "cos",
                                       "tan",   "sinh", "cosh",  "tanh", "asin", "acos", "atan", "fabs", "inf", NULL};
    static const char *const torch[] = {"sym_float", "sym_int",  "sym_max",   "sym_min",   "sym_not",
                                        "sym_ite",   "sym_sum",  "_sym_sqrt", "_sym_log2", "_sym_cos",
                                        "_sym_sin",  "_sym_tan", NULL};
    const char *const *names = plain;

    if (accept_word(g, "math"))
        names = math;
    else if (accept_word(g, "torch"))
        names = torch;
    if (names != plain) {
        if (look(g) != '.')
            return false;
        g->at++;
    }
    size_t len = name_length(g);
    if (!is_one_of(g->text + g->at, len, names))
        return false;
    g->at += len;
    if (names == math && len == 3 && memcmp(g->text + g->at - 3, "inf", 3) == 0)
        return true;
    return accept(g, "(") && arguments(g);
}

static bool operand(reader *g)
{
    skip_blanks(g);
    if (is_digit(look(g)))
        return number(g);
    if (accept(g, "("))
        return guard(g) && accept(g, ")");
    if (accept_word(g, "True") || accept_word(g, "False"))
        return true;
    return accept_word(g, "L") ? source(g) : call(g);
}

static bool unary(reader *g)
{
    while (accept(g, "-") || accept(g, "+") || accept(g, "~") || accept_word(g, "not")) {
        /* signs, as many as there are */
    }
    return operand(g);
}

/* Any operator between operands; which one binds closer makes no difference to what is allowed. */
static bool operator(reader *g)
{
    static const char *const signs[] = {"**", "//", "<<", ">>", "==", "!=", "<=", ">=", "<",
                                        ">",  "+",  "-",  "*",  "/",  "%",  "&",  "|",  "^"};

    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        if (accept(g, signs[i]))
            return true;
    }
    return accept_word(g, "and") || accept_word(g, "or");
}

static bool guard(reader *g)
{
    if (!g->depth)
        return false;
    g->depth--;
    bool right = unary(g);
    while (right && operator(g))
        right = unary(g);
    g->depth++;
    return right;
}

bool pt2_guard_check(const char *text, size_t len, const pt2_path *path, pt2_report *r)
{
    uint32_t limit = r->limits->expr_depth;
    reader g = {.text = text, .len = len, .depth = limit && limit < 1000 ? limit : 1000};
    bool right = !(r->limits->expr_bytes && len > r->limits->expr_bytes) && guard(&g);

    skip_blanks(&g);
    if (right && g.at == len)
        return true;
    pt2_warn(r, PT2_GUARD, NULL, path, "a guard that is not of the known form: %.*s", len < 200 ? (int)len : 200, text);
    return false;
}
