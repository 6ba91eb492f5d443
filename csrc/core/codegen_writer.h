/* codegen_writer.h - what the files that write code share; see codegen.h. */
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
    uint32_t *hiding;   /* by node, then by outer parameter; see codegen_parameter.c */
    bool any_hiding;
    uint32_t defaulted, starred, keywords; /* 1 + the node that was the last such parameter; 0: none was */
    uint32_t place;                        /* of the node being written */
    uint32_t line;                         /* what the line being written belongs to */
    int plain;                             /* how many containers that are coloured as a whole we are in */
    bool failed;
    bool any; /* some line was written that is no comment */
} fe_code_writer;

/* ---- codegen.c: lines, text of types, and lists of the source ---- */

/* Text is written to the body as it comes; the start of a line, and then its end, make a line of it. */
size_t fe_code_begin_line(fe_code_writer *w);
void fe_code_end_line(fe_code_writer *w, size_t start);
void fe_code_type(fe_code_writer *w, uint32_t id);
void fe_code_push(fe_code_writer *w, uint32_t **items, uint32_t *count, uint32_t *capacity, uint32_t value);
uint32_t fe_code_mark(fe_code_writer *w, const fe_buffer *b); /* its end as it is stored; code beyond 4 GiB fails */

/* ---- codegen_parameter.c: parameters, and the globals that they hide ---- */

void fe_code_begin_parameters(fe_code_writer *w);
void fe_code_restore(fe_code_writer *w); /* lines that give hidden globals back */
void fe_code_parameter(fe_code_writer *w, uint32_t id);
/* Whether the code uses a global that a parameter hides; such parameters are marked, for the code to be written again. */
bool fe_code_find_hidden(fe_code_writer *w);

/* ---- codegen_value.c: names, arguments, and what is written around operands ---- */

bool fe_code_is_name(const fe_code_writer *w, const char *text, size_t len);  /* it can stand as one in code */
fe_string *fe_code_new_name(fe_code_writer *w, const char *text, size_t len); /* from a candidate; NULL: failed */
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
