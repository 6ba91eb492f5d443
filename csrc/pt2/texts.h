/* texts.h - texts in a program that torch takes for more than text: names it writes into code, tree specs it imports
 * modules for, guards it compiles, metadata it takes apart.
 *
 * Each is checked against a grammar here, so that nothing but names, numbers and known forms is ever handed to torch.
 * Faults are added to the report; no function changes anything else.
 */
#ifndef PT2_TEXTS_H
#define PT2_TEXTS_H

#include "json.h"

/* ---- identifier.c: names ---- */

/* A Python identifier: letters, digits and _, no digit first. Bytes of well-formed UTF-8 beyond ASCII count as letters. */
bool pt2_is_identifier(const char *name, size_t len);
bool pt2_is_keyword(const char *name, size_t len); /* if, None, True ... */
/* Why torch must not write the path of a weight or module into code, as self.a.b or getattr(self, "a-b"), where no sign is
 * escaped. NULL: nothing is wrong with it. */
const char *pt2_path_fault(const char *path, size_t len);
/* Why torch must not write this name into code: what is wrong with the name of an input or node, or of a subgraph (which
 * becomes an attribute of a torch.nn.Module). NULL: nothing. */
const char *pt2_name_fault(const char *name, size_t len);
const char *pt2_subgraph_name_fault(const char *name, size_t len);

/* ---- treespec.c ---- */

typedef struct {
    uint64_t leaves;
    bool imports; /* it has enum keys: torch would import the modules of their classes to read it */
    bool calls;   /* it can be an in_spec: torch writes the names of keyword arguments into code, between quotes */
} pt2_treespec_facts;

/* Check the text of a tree spec. namedtuple_fields: the program's treespec_namedtuple_fields, or NULL. *facts is filled
 * when the text is right. Errors are of kind TREESPEC, or JSON_DEPTH when nested too deep; enum keys are a warning. */
int pt2_treespec_check(const char *text, size_t len, yyjson_val *namedtuple_fields, pt2_treespec_facts *facts,
                       const pt2_path *path, pt2_report *r) FE_MUST_CHECK;
/* Visit the classes in a tree spec that torch knows only where somebody has registered them, those of named tuples too;
 * the text has been checked. -1: no memory, or the visitor said so. */
typedef int (*pt2_class_visitor)(void *ctx, const char *name, size_t len);
int pt2_treespec_classes(const char *text, size_t len, pt2_class_visitor visit, void *ctx, pt2_report *r) FE_MUST_CHECK;
/* Check treespec_namedtuple_fields itself: odd names and fields are warnings. */
void pt2_namedtuple_fields_check(yyjson_val *fields, const pt2_path *path, pt2_report *r);

/* ---- guard.c ---- */

/* A guard of the known form: comparisons, arithmetic and and/or/not over L['x'].size()[0], L['n'], numbers and a few
 * plain functions. false, with a warning of kind GUARD: some other text, which must never be given to torch. */
bool pt2_guard_check(const char *text, size_t len, const pt2_path *path, pt2_report *r);

/* ---- metadata.c ---- */

/* Check one text of a node's metadata under its key. What torch could not load is an error of kind METADATA; what is only
 * odd, a warning. Unknown keys are right. */
int pt2_metadata_check(const char *key, size_t key_len, const char *text, size_t len, const pt2_path *path,
                       pt2_report *r) FE_MUST_CHECK;

/* The parts of nn_module_stack, source_fn_stack and torch_fn, as torch takes them apart. */
typedef struct {
    const char *text, *end; /* what is left; set text and end to the whole */
    bool done;              /* set to false */
} pt2_items;

bool pt2_next_item(pt2_items *it, char separator, const char **item, size_t *len); /* false: no more */

#endif
