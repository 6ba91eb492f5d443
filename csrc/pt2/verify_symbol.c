/* verify_symbol.c - symbols of expressions: where they get their values, and which ranges they have. See verify.h.
 *
 * Each distinct text of an expression is parsed once. A symbol gets its value from the first input or node one of whose
 * sizes, strides or numbers it is alone; torch takes 2*u0 and u0 == 1 for such, too (see
 * _free_unbacked_symbols_with_path in torch/fx/experimental/symbolic_shapes.py). Whoever uses it before is at fault. A
 * backed symbol gets it from any size of an input, such as 2*s0 + 1, from which torch solves it.
 */
#include "verify.h"

/* ---- expressions ---- */

static int find_symbol(pt2_verifier *v, const char *name, size_t len, uint32_t *out)
{
    fe_string *t = pt2_verify_intern(v, &v->names, name, len);

    if (!t)
        return -1;
    if (t->owner == FE_NONE_ID) {
        if (pt2_verify_grow(v, &v->symbols, &v->symbol_capacity, (size_t)v->symbol_count + 1, sizeof *v->symbols) < 0)
            return -1;
        size_t prefix = strncmp(name, "zuf", 3) == 0 ? 3 : name[0] == 'u';
        v->symbols[v->symbol_count] =
            (pt2_symbol){.name = t->data,
                         .unbacked = prefix && len > prefix && strspn(t->data + prefix, "0123456789") == len - prefix};
        t->owner = v->symbol_count++;
    }
    *out = t->owner;
    return 0;
}

static int list_symbol(void *ctx, fe_expr part)
{
    pt2_verifier *v = ctx;
    uint32_t symbol;

    if (part->op != FE_EXPR_SYMBOL)
        return 0;
    if (find_symbol(v, part->as.symbol.name, part->as.symbol.len, &symbol) < 0)
        return -1;
    if (part->as.symbol.count)
        v->symbols[symbol].assumed = true;
    else
        v->symbols[symbol].bare = true;
    if (v->symbols[symbol].seen == v->fact_count + 1)
        return 0;
    v->symbols[symbol].seen = v->fact_count + 1;
    if (pt2_verify_grow(v, &v->lists, &v->list_capacity, (size_t)v->list_count + 1, sizeof *v->lists) < 0)
        return -1;
    v->lists[v->list_count++] = symbol;
    return 0;
}

/* The symbol that a size of this form gives a value, or NULL. */
static fe_expr bound_by(fe_expr e)
{
    if (e->op == FE_EXPR_SYMBOL)
        return e;
    if ((e->op != FE_EXPR_MUL && e->op != FE_EXPR_EQ) || e->count != 2)
        return NULL;
    for (uint32_t i = 0; i < 2; i++) {
        if (e->args[i]->op == FE_EXPR_SYMBOL && e->args[1 - i]->op == FE_EXPR_INTEGER &&
            (e->op == FE_EXPR_MUL || e->args[1 - i]->as.integer == 1))
            return e->args[i];
    }
    return NULL;
}

int pt2_verify_expr(pt2_verifier *v, const char *text, size_t len, uint32_t *out, fe_expr_error *why)
{
    uint32_t depth = v->report->limits->expr_depth, symbol;
    fe_string *t = pt2_verify_intern(v, &v->texts, text, len);

    *out = PT2_NO_EXPR;
    if (!t)
        return -1;
    *out = t->owner;
    if (t->owner != FE_NONE_ID)
        return 0;
    fe_expr e =
        fe_expr_parse_srepr(v->exprs, text, len, depth && depth < FE_EXPR_MAX_DEPTH ? depth : FE_EXPR_MAX_DEPTH, why);
    if (!e)
        return why->fault == FE_EXPR_NO_MEMORY ? pt2_no_memory(v->report) : 0;
    if (pt2_verify_grow(v, &v->facts, &v->fact_capacity, (size_t)v->fact_count + 1, sizeof *v->facts) < 0)
        return -1;
    pt2_expr_facts f = {.first = v->list_count};
    if (fe_expr_walk(e, list_symbol, v) != 0)
        return -1;
    f.count = v->list_count - f.first;
    fe_expr bound = bound_by(e);
    if (bound) {
        if (find_symbol(v, bound->as.symbol.name, bound->as.symbol.len, &symbol) < 0)
            return -1;
        f.binds = symbol + 1;
        f.alone = bound == e ? f.binds : 0;
    }
    v->facts[v->fact_count] = f;
    *out = t->owner = v->fact_count++;
    return 0;
}

bool pt2_verify_in_scope(const pt2_scope *s, const pt2_symbol *symbol)
{
    while (s && s->number != symbol->scope)
        s = s->outer;
    return s != NULL;
}

/* ---- ranges ---- */

int pt2_verify_symbols(pt2_verifier *v)
{
    for (uint32_t i = 0; i < v->program->range_count; i++) {
        fe_expr e = v->program->ranges[i].expr;
        uint32_t symbol;
        if (!e || e->op != FE_EXPR_SYMBOL)
            continue;
        if (find_symbol(v, e->as.symbol.name, e->as.symbol.len, &symbol) < 0)
            return -1;
        v->symbols[symbol].range = i + 1;
    }
    return 0;
}

/* Two symbols of one name that differ in assumptions are two symbols to torch, and it knows no range of the second. */
static void check_assumptions(pt2_verifier *v)
{
    for (uint32_t i = 0; i < v->symbol_count; i++) {
        if (v->symbols[i].bare && v->symbols[i].assumed)
            pt2_verify_fault(v, PT2_VALUE, PT2_ERROR, NULL, NULL, NULL,
                             "the symbol %.100s occurs with and without its assumptions, which makes it two; take it "
                             "from a value of the program, such as meta['val'].shape[0].expr",
                             v->symbols[i].name);
    }
}

void pt2_verify_ranges(pt2_verifier *v)
{
    pt2_path root = {.parent = NULL};

    check_assumptions(v);

    for (uint32_t i = 0; i < v->program->range_count; i++) {
        const pt2_range *range = &v->program->ranges[i];
        const char *key = range->key ? range->key : "";
        if (range->has_min && range->has_max && range->min > range->max)
            pt2_verify_fault(v, PT2_VALUE, PT2_ERROR, NULL, PT2_KEY_TEXT(PT2_KEY(&root, "range_constraints"), key),
                             NULL, "the range of %.200s is empty: its least value %lld is above its greatest, %lld",
                             key, (long long)range->min, (long long)range->max);
        else if (range->expr && range->expr->op == FE_EXPR_SYMBOL && !range->seen)
            pt2_verify_fault(v, PT2_VALUE, PT2_WARNING, NULL, PT2_KEY_TEXT(PT2_KEY(&root, "range_constraints"), key),
                             NULL, PT2_UNSEEN_RANGE, key);
    }
}
