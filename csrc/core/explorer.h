/* explorer.h - the nodes of a graph as the JSON that the viewer Model Explorer opens.
 *
 * Structure, names and arguments are the core's to write; what is told beside them (the module of a node, its source line,
 * the names of an operator's arguments) the owner gives as JSON made beforehand, one text for all nodes that share it.
 */
#ifndef FE_EXPLORER_H
#define FE_EXPLORER_H

#include "pass.h"

typedef struct {
    fe_text label;        /* a JSON string */
    const fe_text *names; /* of the arguments in order, JSON strings; those beyond are called by their number */
    uint32_t name_count;
} fe_explorer_target;

typedef struct {
    fe_text space;  /* the namespace, "layers/0", as in a JSON string but without its quotes */
    fe_text source; /* JSON objects of attributes, each after a comma */
    fe_text value;  /* a JSON string, or empty: what is known of its value */
    fe_text leaf;   /* of what is no call: its label and attributes, "label":"x","attrs":[...]; data NULL: a call */
    fe_text graph;  /* of the get_attr of a graph: the graph's id, a JSON string */
    bool follows;   /* is shown in the innermost namespace that holds all who use it, not in its own */
} fe_explorer_node;

typedef struct {
    const fe_explorer_target *targets; /* by target */
    const fe_explorer_node *nodes;     /* by node id */
    uint32_t getitem;                  /* the target that takes one of several results; FE_NONE_ID: there is none */
    const fe_renderer *renderer;       /* of what arguments hold, in the form FE_TEXT_REPR */
} fe_explorer;

/* The nodes as JSON objects with commas between, in ASCII. A buffer that has failed is out of memory. */
void fe_explorer_write(const fe_graph *g, const fe_explorer *e, fe_buffer *out);
/* The repr of a string that is not ASCII, for the renderer: like Python's, but that each character beyond ASCII is taken for
 * one that can be printed. */
void fe_explorer_quote(void *ctx, const fe_string *s, fe_buffer *out);

#endif
