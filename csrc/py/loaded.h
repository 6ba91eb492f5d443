/* loaded.h - a Graph's ties to the file it was read from: see loaded.c. */
#ifndef FE_LOADED_H
#define FE_LOADED_H

#include "file.h"

struct loaded {
    ProgramObject *program;
    const pt2_graph *from; /* of the program: where the document has this graph */
    pt2_origin *origins;   /* by node id, of the nodes that were read */
    uint32_t *file_ids;    /* of a copy, by node id: the id that the reader gave the node; NULL: the same */
    uint8_t *waiting;      /* bit by node id: its meta is still in the document */
    uint32_t count;
    uint64_t version; /* of the core when it was read */
};

/* Give an empty Graph the core that the reader built. cache: dict of objects made so far, shared by the program's graphs. */
int graph_adopt(GraphObject *g, ProgramObject *program, pt2_graph *from, PyObject *cache);
/* The value of a node as decode_meta takes it: (kind, JSON), or None. */
PyObject *origin_value(const pt2_origin *o);
/* The strings of metadata of a node that the reader made, by the id that it gave; NULL: there are none. */
yyjson_val *origin_metadata(const pt2_graph *from, uint32_t id);
/* The meta of a node as the file has it: a new dict; NULL without an exception when the file does not have the node. */
PyObject *graph_meta_in_file(GraphObject *g, uint32_t id);
/* Names of the file's nodes that have another name now, or none: {old: new or None}. */
PyObject *graph_renamed(GraphObject *g);
/* Whether a node was read from a file and nobody has looked at its meta since. */
bool graph_is_untouched(const GraphObject *g, uint32_t id);

/* ---- levels.c ---- */

/* A text of a node's metadata, and its value when it is a tensor, as "CODE[SIZES]", as the file has them; equal texts are
 * one object of a dict, where one is given. None: there is none, False: look at the node's meta. */
PyObject *metadata_in_file(const GraphObject *g, uint32_t id, const char *key, PyObject *texts);
PyObject *value_in_file(const GraphObject *g, uint32_t id, PyObject *texts);

#endif
