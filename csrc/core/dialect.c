/* dialect.c - what a dialect of torch.export asks of the nodes of one graph. See dialect.h. */
#include "dialect.h"

typedef struct {
    const fe_graph *g;
    const fe_dialect_facts *facts;
    fe_report *faults;
    fe_error *err;
    bool all, full; /* full: enough found, or memory ran out */
    bool failed;
} checker;

static void fault(checker *c, fe_dialect_fault code, uint32_t node, uint32_t other)
{
    if (c->full)
        return;
    c->failed = fe_report_add(c->faults, (uint8_t)code, node, other, c->err) < 0;
    c->full = c->failed || !c->all;
}

/* An operator that returns nothing need not have a value, but one that it has must be one. */
static void check_value(checker *c, uint32_t id, uint8_t target)
{
    uint8_t value = c->facts->values ? c->facts->values[id] : FE_VALUE_FINE;

    if (value == FE_VALUE_FINE)
        return;
    if (value == FE_VALUE_BAD)
        fault(c, FE_DIALECT_BAD_VALUE, id, FE_NONE_ID);
    else if (c->g->nodes[id].op == FE_OP_PLACEHOLDER || !(target & FE_FACT_NO_RESULT))
        fault(c, FE_DIALECT_NO_VALUE, id, FE_NONE_ID);
}

static void check_function(checker *c, uint32_t id, uint8_t target)
{
    if (!(target & FE_FACT_ALLOWED))
        fault(c, FE_DIALECT_NOT_ALLOWED, id, FE_NONE_ID);
    else if (target & FE_FACT_WRITES && c->facts->functional)
        fault(c, FE_DIALECT_WRITES, id, FE_NONE_ID);
    else if (target & FE_FACT_REFUSED)
        fault(c, FE_DIALECT_REFUSED, id, FE_NONE_ID);
}

static void check_attribute(checker *c, uint32_t id, uint8_t target)
{
    if (target & FE_FACT_MISSING)
        fault(c, FE_DIALECT_NO_ATTRIBUTE, id, FE_NONE_ID);
    else if (!(target & FE_FACT_ALLOWED))
        fault(c, FE_DIALECT_BAD_ATTRIBUTE, id, FE_NONE_ID);
}

static void check_node(checker *c, uint32_t id, const fe_node *n)
{
    uint8_t target = c->facts->targets[n->target];

    if (c->g->targets[n->target].flags & FE_TARGET_NOT_CALLABLE) {
        fault(c, FE_DIALECT_TARGET_TYPE, id, FE_NONE_ID);
        return;
    }
    switch (n->op) {
    case FE_OP_CALL_FUNCTION:
        check_value(c, id, target);
        check_function(c, id, target);
        break;
    case FE_OP_PLACEHOLDER:
        check_value(c, id, target);
        break;
    case FE_OP_GET_ATTR:
        check_attribute(c, id, target);
        break;
    case FE_OP_OUTPUT:
        if (n->next != FE_ROOT)
            fault(c, FE_DIALECT_AFTER_OUTPUT, n->next, id);
        break;
    default:
        fault(c, FE_DIALECT_METHOD, id, FE_NONE_ID);
    }
}

int fe_check_dialect(const fe_graph *g, const fe_dialect_facts *facts, bool all, fe_report *faults, fe_error *err)
{
    checker c = {.g = g, .facts = facts, .faults = faults, .err = err, .all = all};

    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT && !c.full; id = g->nodes[id].next)
        check_node(&c, id, &g->nodes[id]);
    return c.failed ? -1 : 0;
}

const char *fe_dialect_fault_name(fe_dialect_fault fault)
{
    static const char *const names[] = {
#define X(id) #id,
        FE_DIALECT_FAULTS(X)
#undef X
    };

    return names[fault];
}
