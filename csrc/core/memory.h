/* memory.h - which nodes may share memory, and when it is written. */
#ifndef FE_MEMORY_H
#define FE_MEMORY_H

#include "ir.h"

/* What the owner of a graph knows of a target's use of memory. All bits clear: nothing is known. From bit FE_MEMORY_SHIFT on
 * stand the positions of the arguments that are written to, for FE_MEMORY_COPIES. */
typedef enum {
    FE_MEMORY_FRESH = 1 << 0, /* what it gives shares memory with no operand */
    FE_MEMORY_VIEW = 1 << 1, /* what it gives is always the first argument's memory, seen in a way the arguments tell */
    FE_MEMORY_COPIES = 1 << 2,     /* it writes values into some arguments, and keeps no reference to any */
    FE_MEMORY_CALM = 1 << 3,       /* its effect has to do with no memory */
    FE_MEMORY_SINGLE = 1 << 4,     /* two equal calls are not the same, or are not to be taken for it */
    FE_MEMORY_ARITHMETIC = 1 << 5, /* an operator of Python's: it gives something new, or a list of what it was given */
} fe_memory_fact;

#define FE_MEMORY_SHIFT 8
#define FE_MEMORY_POSITIONS 24

/* The nodes of a graph in regions: nodes of two regions never share memory. Inputs, attributes and whatever the caller may
 * hold are one region, that of the root. */
typedef struct {
    const fe_graph *g;
    const uint32_t *facts; /* by target */
    uint32_t *regions;     /* by node: another node of its region, or itself; see fe_memory_region */
    uint64_t *written;     /* by region: the position of the last node that writes there, 0: none does */
    uint32_t room;
} fe_memory;

/* Whether any node has an effect on memory; needs the facts about targets. If none has, no memory need be looked at. */
bool fe_memory_is_written(fe_graph *g);
int fe_memory_open(fe_memory *m, const fe_graph *g, const uint32_t *facts, fe_error *err) FE_MUST_CHECK;
void fe_memory_close(fe_memory *m);
uint32_t fe_memory_region(const fe_memory *m, uint32_t id);
void fe_memory_join(const fe_memory *m, uint32_t a,
                    uint32_t b); /* one of these two nodes is to take the other's place */
/* Note the position of a node at the regions it writes to, in an array of m->room items. The last item is for effects that
 * name no operand and may be on anything. */
void fe_memory_note_writes(const fe_memory *m, uint32_t id, uint64_t *written);

/* ---- what a graph returns ---- */

typedef enum {
    FE_RETURNED = 1 << 0, /* the output node names it */
    FE_UPDATING = 1 << 1, /* and by the signature it is what a buffer, a parameter or an input becomes */
    FE_RESULT = 1 << 2,   /* what is returned may share memory with it; by facts about targets, if they are given */
} fe_returned;

void fe_mark_returned(const fe_graph *g, const uint32_t *facts, uint8_t *marks); /* by node */
bool fe_has_updates(const fe_graph *g); /* whether any would be marked FE_UPDATING */

/* Whether two nodes must not become one, as one is what a buffer becomes and the other is returned: what is returned would
 * be the buffer itself, and change with it. */
static inline bool fe_stay_two(const uint8_t *marks, uint32_t a, uint32_t b)
{
    return marks[a] & FE_RETURNED && marks[b] & FE_RETURNED && (marks[a] | marks[b]) & FE_UPDATING;
}

#endif
