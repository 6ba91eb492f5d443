/* codegen_writer.h - what the two files that write code share; see codegen.h. */
#ifndef FE_CODEGEN_WRITER_H
#define FE_CODEGEN_WRITER_H

#include "codegen.h"

/* Memory that runs out is remembered and told at the end, as by fe_buffer. */
typedef struct {
    const fe_graph *g;
    const fe_code_options *o;
    fe_source *out;
    fe_error *err;
    fe_string **names;  /* by node; NULL: it has none yet */
    uint32_t *last_use; /* by node: the last that uses it */
    uint32_t place;     /* of the node being written */
    uint32_t line;      /* what the line being written belongs to */
    int plain;          /* how many containers that are coloured as a whole we are in */
    bool failed;
    bool any; /* some line was written that is no comment */
} fe_code_writer;

/* ---- codegen_value.c: names, arguments, and what is written around operands ---- */

bool fe_code_is_name(const fe_code_writer *w, const char *text, size_t len); /* it can stand as one in code */
const fe_string *fe_code_name_of(fe_code_writer *w, uint32_t id); /* of a node, made when it has none; NULL: failed */
const fe_string *fe_code_global_name(fe_code_writer *w, uint32_t global);
void fe_code_string(fe_code_writer *w, const fe_string *s); /* NULL writes nothing */
void fe_code_pieces(fe_code_writer *w, fe_code_text text);
void fe_code_value(fe_code_writer *w, fe_value v);
/* A call's parentheses, and in them its arguments from some position on. Names that can't be names of arguments are given in
 * dicts. */
void fe_code_arguments(fe_code_writer *w, const fe_detail *d, uint32_t first);
/* A path below a value, or below the root when that is NULL. */
void fe_code_path(fe_code_writer *w, const fe_value *base, const char *path, size_t len);
uint32_t fe_code_holes(fe_text pattern); /* how many operands it takes */
void fe_code_operands(fe_code_writer *w, fe_text pattern, const fe_seq *args);

#endif
