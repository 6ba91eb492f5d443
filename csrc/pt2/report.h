/* report.h - what is wrong with a file: kinds of faults, their places, and the limits that a file must keep.
 *
 * Every function of this layer that can fail takes a pt2_report. It adds at least one fault of severity PT2_ERROR, or
 * notes that memory ran out, before it returns -1 (or NULL). Checks that find several faults add them all. Text that
 * comes from the file is escaped here, so that a message is always one printable line.
 */
#ifndef PT2_REPORT_H
#define PT2_REPORT_H

#include "base.h"

/* Kind, stable code, name. Codes are never reused. */
#define PT2_KINDS(X)                                 \
    X(ZIP, "FX101", "zip")                           \
    X(CRC, "FX102", "crc")                           \
    X(UNSUPPORTED, "FX103", "unsupported")           \
    X(LIMIT, "FX104", "limit")                       \
    X(IO, "FX105", "io")                             \
    X(LAYOUT, "FX110", "layout")                     \
    X(MISSING_ENTRY, "FX111", "missing_entry")       \
    X(DUPLICATE_ENTRY, "FX112", "duplicate_entry")   \
    X(UNSAFE_NAME, "FX113", "unsafe_name")           \
    X(VERSION, "FX114", "version")                   \
    X(UNKNOWN_ENTRY, "FX115", "unknown_entry")       \
    X(JSON_SYNTAX, "FX201", "json_syntax")           \
    X(JSON_DEPTH, "FX202", "json_depth")             \
    X(JSON_TYPE, "FX203", "json_type")               \
    X(JSON_RANGE, "FX204", "json_range")             \
    X(JSON_MISSING, "FX205", "json_missing")         \
    X(JSON_UNION, "FX206", "json_union")             \
    X(JSON_ENUM, "FX207", "json_enum")               \
    X(JSON_UNKNOWN, "FX208", "json_unknown")         \
    X(GRAPH, "FX301", "graph")                       \
    X(NAME, "FX302", "name")                         \
    X(TARGET, "FX303", "target")                     \
    X(UNKNOWN_OPERATOR, "FX304", "unknown_operator") \
    X(VALUE, "FX305", "value")                       \
    X(EXPR, "FX306", "expr")                         \
    X(EXPR_DEPTH, "FX307", "expr_depth")             \
    X(UNBOUND_SYMBOL, "FX308", "unbound_symbol")     \
    X(MUTATION, "FX309", "mutation")                 \
    X(ARGUMENT, "FX310", "argument")                 \
    X(DIALECT, "FX311", "dialect")                   \
    X(TORCH, "FX400", "torch")                       \
    X(SIGNATURE, "FX401", "signature")               \
    X(TREESPEC, "FX402", "treespec")                 \
    X(METADATA, "FX403", "metadata")                 \
    X(GUARD, "FX404", "guard")                       \
    X(UNKNOWN_CLASS, "FX405", "unknown_class")       \
    X(PAYLOAD, "FX501", "payload")                   \
    X(PICKLE, "FX502", "pickle")

typedef enum {
#define X(id, code, name) PT2_##id,
    PT2_KINDS(X)
#undef X
        PT2_KIND_COUNT
} pt2_kind;

const char *pt2_kind_code(pt2_kind kind);
const char *pt2_kind_name(pt2_kind kind);

typedef enum { PT2_WARNING, PT2_ERROR } pt2_severity;

/* All texts end in NUL and belong to the report; entry, path and node may be NULL. */
typedef struct {
    pt2_kind kind;
    pt2_severity severity;
    const char *entry; /* of the archive, below its top folder */
    const char *path;  /* in the entry's JSON, such as $.graph_module.graph.nodes[3].target */
    const char *node;  /* name of the node at fault */
    const char *message;
} pt2_fault;

/* What a file may ask of us. Zero means: no limit. */
typedef struct {
    uint64_t entries;       /* entries of an archive */
    uint64_t json_bytes;    /* of one JSON entry, inflated */
    uint64_t inflate_ratio; /* inflated to packed size of an entry that is read whole */
    uint64_t inflate_bytes; /* of one deflated weight, constant or pickle, inflated */
    uint32_t json_depth;    /* nested arrays and objects */
    uint32_t graph_depth;   /* nested subgraphs */
    uint32_t expr_depth;    /* nested calls of a symbolic expression */
    uint32_t expr_bytes;    /* text of one symbolic expression, tree spec or guard */
    uint64_t checked_bytes; /* weights that `load` checks; when they are more, each is checked when it is touched */
    uint32_t faults;        /* faults in one report; further ones are counted only */
} pt2_limits;

extern const pt2_limits pt2_default_limits;

typedef struct {
    const fe_allocator *allocator;
    const pt2_limits *limits;
    const char *entry; /* the entry that is being read: the entry of faults that name none; may be NULL */
    pt2_fault *items;
    uint32_t count, capacity;
    uint32_t errors, warnings; /* the omitted ones too */
    int system_error;          /* errno of the first error of PT2_IO; 0: none is known */
    bool no_memory;
} pt2_report;

void pt2_report_init(pt2_report *r, const fe_allocator *a,
                     const pt2_limits *limits); /* limits NULL: the default ones */
void pt2_report_clear(pt2_report *r);

/* Where a value stands in a JSON document: a chain on the C stack, innermost first. */
typedef struct pt2_path {
    const struct pt2_path *parent; /* NULL: this is the root, $ */
    const char *key;               /* of an object; NULL: an index */
    size_t key_len;
    size_t index;
} pt2_path;

/* A text of the file that may hold NULs, by which a %s would end: its first bytes, with \x00 in the place of each. */
typedef struct {
    char text[304];
} pt2_shown;
const char *pt2_show(pt2_shown *out, const char *text, size_t len);
#define PT2_SHOWN(string) pt2_show(&(pt2_shown){{0}}, (string)->data, (string)->len)

/* Add a fault. entry NULL: the report's; path and node may be NULL. The message is a printf text; pass texts of the file
 * through %s (or %.*s) as they are, names that may hold a NUL through PT2_SHOWN. Both return -1, so that a failing function can end with `return pt2_fail(...)`. */
int pt2_fail(pt2_report *r, pt2_kind kind, const char *entry, const pt2_path *path, const char *format, ...)
    FE_PRINTF(5, 6);
int pt2_fail_node(pt2_report *r, pt2_kind kind, const pt2_path *path, const char *node, const char *format, ...)
    FE_PRINTF(5, 6);
void pt2_warn(pt2_report *r, pt2_kind kind, const char *entry, const pt2_path *path, const char *format, ...)
    FE_PRINTF(5, 6);
void pt2_warn_node(pt2_report *r, pt2_kind kind, const pt2_path *path, const char *node, const char *format, ...)
    FE_PRINTF(5, 6);
/* The same of PT2_IO, with the errno that says which kind of trouble it is. */
int pt2_fail_io(pt2_report *r, int code, const char *entry, const char *format, ...) FE_PRINTF(4, 5);
int pt2_no_memory(pt2_report *r); /* -1 */
/* The text of a path: $.a.b[3]['odd key']. */
void pt2_path_text(const pt2_path *path, fe_buffer *out);

#endif
