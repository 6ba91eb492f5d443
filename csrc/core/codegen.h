/* codegen.h - the Python code of a graph, as torch.fx generates it (CodeGen._gen_python_code of 2.13).
 *
 * What only Python can write (an object, a type, the name of a function) is given as pieces of text and globals. A name for
 * a global is made when the first piece that needs it is written, as each name may be the reason that a later one is
 * numbered; nodes get theirs the same way.
 */
#ifndef FE_CODEGEN_H
#define FE_CODEGEN_H

#include "pass.h"

/* Text, and behind it the name of a global unless that is FE_NONE_ID. */
typedef struct {
    fe_text text;
    uint32_t global;
} fe_code_piece;

typedef struct {
    const fe_code_piece *pieces; /* NULL: not given */
    uint32_t count;
} fe_code_text;

typedef struct {
    fe_text hint;  /* the name it would like to have */
    bool reserved; /* the name is reserved for this very object: a builtin */
} fe_code_global;

typedef enum {
    FE_CODE_CALL,
    FE_CODE_OPERATOR, /* the pattern's {} stand for operands */
    FE_CODE_INPLACE,  /* likewise, and the value is the first operand */
    FE_CODE_GETATTR,  /* the builtin getattr */
} fe_code_shape;

typedef struct {
    fe_code_shape shape;
    fe_text pattern;
    fe_code_text name; /* what a call is written with */
} fe_code_target;

typedef struct {
    /* by object */
    const fe_code_text *values, *types; /* as an argument; as an annotation */
    const fe_code_text *classes; /* of tuples with fields: what makes one; not given for other classes of tuples */
    uint32_t object_count;
    const fe_code_target *targets; /* of call_function nodes, by target */
    uint32_t target_count;
    const fe_code_global *globals;
    uint32_t global_count;
    const fe_renderer *renderer;                              /* for its quotes */
    bool (*is_name)(void *ctx, const char *text, size_t len); /* of text that is not ASCII: an identifier */
    void *ctx;
    const char *root; /* what modules and attributes are looked up in */

    const fe_text *given; /* names of globals besides */
    uint32_t given_count;
    const fe_text *outer; /* the function's parameters, where it takes those of the graph out of them */
    uint32_t outer_count;
    bool plain_head; /* the function's parameters are those of the graph, as they are written here */

    /* What is returned: value i stands between texts i and i + 1; without values, the output node's own. */
    const fe_text *output_texts;
    const fe_value *output_values;
    uint32_t output_count;

    /* by node; NULL: none */
    const fe_text *annotations; /* in the place of its type, with the colon */
    const fe_text *notes;       /* whole lines before it */
    const fe_text *meta;        /* whole lines of its own */
    const fe_text *comments;    /* behind a parameter */

    bool as_torch;                    /* torch's text, also where that is no Python */
    bool record_functions;            /* around each call */
    const char *colour, *dim, *reset; /* of constants; of deletions; "" for none */
    bool chunks; /* in place of indented lines the pieces that torch hands to a transformer of code */
} fe_code_options;

/* A parameter is called like a global that the code uses: the code gets what it hides from another one. */
typedef struct {
    const fe_string *name, *other;
} fe_code_restored;

typedef struct {
    fe_buffer body;        /* indented lines, or chunks */
    fe_buffer parameters;  /* one after the other */
    fe_buffer result_type; /* the annotation of what is returned, or nothing */
    uint32_t *ends;        /* of parameters */
    uint32_t end_count, end_capacity;
    uint32_t *lines; /* of the body: place of the node that each belongs to, or FE_NONE_ID */
    uint32_t line_count, line_capacity;
    uint32_t *chunk_ends;
    uint32_t chunk_count, chunk_capacity;
    uint32_t *used_globals; /* in the order in which they got their names */
    uint32_t used_count;
    fe_string **global_names; /* by global; NULL: not used */
    fe_code_restored *restored;
    uint32_t restored_count;
    fe_graph *names; /* holds names; of no use besides */
} fe_source;

/* Write the code; clear it also after a failure. Facts are not looked at. */
int fe_code_write(const fe_graph *g, const fe_code_options *o, fe_source *out, fe_error *err) FE_MUST_CHECK;
void fe_code_clear(fe_source *c);

#endif
