/* judge.h - what Python tells the passes of simplify.h of the targets of a graph. */
#ifndef FE_PY_JUDGE_H
#define FE_PY_JUDGE_H

#include "module.h"
#include "simplify.h"

typedef struct {
    uint32_t *facts; /* by target: fe_memory_fact bits */
    uint8_t *noops;  /* by target: fe_noop */
} judged;

/* Ask a function, (op, target) -> bits, about every target that is called and, with attributes, those of get_attr. A fe_noop stands
 * above the fe_memory_fact bits. Of all others nothing is known. Clear it also after a failure. Runs Python code. */
int judge_targets(GraphObject *g, PyObject *function, bool attributes, judged *out);
void judged_clear(judged *j);
/* Functions that were asked must have left the structure of the graph as it was, and it must be free to be changed; else -1 with an
 * exception. */
int judge_check(GraphObject *g, uint64_t version);

#endif
