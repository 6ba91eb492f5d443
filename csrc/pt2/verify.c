/* verify.c - checks of a program as a whole: the walk over its graphs, their structure and names. See verify.h.
 *
 * Graphs are taken from the outside in, so that a symbol which an outer graph gives a value is known in the inner ones.
 */
#include "verify.h"

#include <stdarg.h>
#include <stdio.h>

#define MESSAGE 1200

/* ---- faults ---- */

static void add_fault(pt2_verifier *v, pt2_kind kind, pt2_severity severity, const char *entry, const pt2_path *path,
                      const char *node, const char *message)
{
    if (node && severity == PT2_ERROR)
        (void)pt2_fail_node(v->report, kind, path, node, "%s", message);
    else if (node)
        pt2_warn_node(v->report, kind, path, node, "%s", message);
    else if (severity == PT2_ERROR)
        (void)pt2_fail(v->report, kind, entry, path, "%s", message);
    else
        pt2_warn(v->report, kind, entry, path, "%s", message);
}

void pt2_verify_fault(pt2_verifier *v, pt2_kind kind, pt2_severity severity, const char *entry, const pt2_path *path,
                      const char *node, const char *format, ...)
{
    char message[MESSAGE];
    va_list args;

    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    add_fault(v, kind, severity, entry, path, node, message);
}

typedef struct {
    pt2_verifier *v;
    const char *node, *key, *message;
    pt2_kind kind;
    pt2_severity severity;
    bool added;
} node_fault;

static int add_at(void *ctx, const pt2_path *path)
{
    node_fault *f = ctx;

    add_fault(f->v, f->kind, f->severity, NULL, f->key && path ? PT2_KEY_TEXT(path, f->key) : path, f->node,
              f->message);
    f->added = true;
    return 0;
}

void pt2_verify_node(pt2_verifier *v, const pt2_scope *s, pt2_kind kind, pt2_severity severity, uint32_t id,
                     const char *key, const char *format, ...)
{
    char message[MESSAGE];
    const fe_string *name = s->core->details[id].name;
    node_fault f = {.v = v,
                    .node = name ? PT2_SHOWN(name) : "",
                    .key = key,
                    .message = message,
                    .kind = kind,
                    .severity = severity};
    va_list args;

    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (s->has_path && id < s->graph->origin_count && s->graph->origins[id].source != PT2_FROM_NOTHING)
        (void)pt2_node_path(s->graph, id, add_at, &f);
    if (!f.added)
        add_fault(v, kind, severity, NULL, NULL, f.node, message);
}

/* ---- helpers ---- */

fe_string *pt2_verify_intern(pt2_verifier *v, fe_reserved *table, const char *text, size_t len)
{
    fe_string *t = fe_string_find(&table->strings, text, len);

    if (!t && fe_reserved_add(table, text, len) == 0)
        t = fe_string_find(&table->strings, text, len);
    if (!t)
        (void)pt2_no_memory(v->report);
    return t;
}

int pt2_verify_grow(pt2_verifier *v, void *items, uint32_t *capacity, size_t need, size_t size)
{
    fe_error err;

    return fe_grow(v->allocator, items, capacity, need, size, &err) < 0 ? pt2_no_memory(v->report) : 0;
}

/* ---- structure ---- */

static const char *shown_name(const pt2_scope *s, uint32_t id, pt2_shown *room)
{
    const fe_string *name = id < s->core->node_count ? s->core->details[id].name : NULL;

    return name ? pt2_show(room, name->data, name->len) : "";
}

#define NAME_OF(s, id) shown_name(s, id, &(pt2_shown){{0}})

/* Fill in the text of a lint fault: %N the node, %O the operand, %T and %P what it refers to. */
static void report_lint(pt2_verifier *v, const pt2_scope *s, const fe_record *r)
{
    const fe_target *target = &s->core->targets[s->core->nodes[r->node].target];
    char text[MESSAGE];
    size_t n = 0;

    for (const char *c = fe_fault_text((fe_fault)r->code); *c && n + 1 < sizeof text; c++) {
        const char *word = NULL;
        pt2_shown room; /* NAME_OF's would be gone after the if */
        if (*c == '%' && c[1])
            word = *++c == 'N'    ? shown_name(s, r->node, &room)
                   : *c == 'O'    ? shown_name(s, r->other, &room)
                   : target->text ? target->text->data
                                  : "";
        if (!word) {
            text[n++] = *c;
            continue;
        }
        int added = snprintf(text + n, sizeof text - n, "%.200s", word);
        n += added < 0 ? 0 : (size_t)added;
        n = n < sizeof text ? n : sizeof text - 1;
    }
    text[n] = '\0';
    pt2_verify_node(v, s, PT2_GRAPH, PT2_ERROR, r->node, NULL, "%s", text);
}

static int check_lint(pt2_verifier *v, const pt2_scope *s)
{
    const fe_lint_options all = {.all = true};
    fe_report found;
    fe_error err;

    fe_report_init(&found, v->allocator);
    int result = fe_lint(s->core, &all, &found, &err);
    for (uint32_t i = 0; result == 0 && i < found.len; i++)
        report_lint(v, s, &found.items[i]);
    fe_report_clear(&found);
    return result < 0 ? pt2_no_memory(v->report) : 0;
}

static void check_name(pt2_verifier *v, const pt2_scope *s, uint32_t id)
{
    const fe_string *name = s->core->details[id].name;
    const char *fault = name ? pt2_name_fault(name->data, name->len) : "it is missing";

    if (fault)
        pt2_verify_node(v, s, PT2_NAME, PT2_ERROR, id, NULL,
                        "'%.200s' can't be the name of a node: %s; rename the node", name ? PT2_SHOWN(name) : "",
                        fault);
}

static void check_order(pt2_verifier *v, const pt2_scope *s)
{
    const fe_graph *g = s->core;
    bool others = false, output = false;

    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT; id = g->nodes[id].next) {
        switch (g->nodes[id].op) {
        case FE_OP_PLACEHOLDER:
            if (others)
                pt2_verify_node(v, s, PT2_GRAPH, PT2_ERROR, id, NULL,
                                "the input '%.200s' stands behind other nodes; move all inputs to the front",
                                NAME_OF(s, id));
            break;
        case FE_OP_CALL_METHOD:
        case FE_OP_CALL_MODULE:
            pt2_verify_node(v, s, PT2_GRAPH, PT2_ERROR, id, NULL,
                            "'%.200s' calls a method or a module; an exported program only calls functions",
                            NAME_OF(s, id));
            others = true;
            break;
        case FE_OP_OUTPUT:
            output = true;
            others = true;
            continue; /* torch never writes its name */
        default:
            others = true;
        }
        check_name(v, s, id);
    }
    if (!output)
        pt2_verify_fault(v, PT2_GRAPH, PT2_ERROR, NULL, NULL, s->graph->name,
                         "the graph has no output; give it one with graph.output(...), as its last node");
}

/* ---- subgraphs ---- */

static const char *subgraph_name(const pt2_scope *s, uint32_t i)
{
    return s->graph->subgraphs[i]->name ? s->graph->subgraphs[i]->name : "";
}

/* The table of subgraphs by name; each has one of its own. */
static int name_subgraphs(pt2_verifier *v, pt2_scope *s)
{
    for (uint32_t i = 0; i < s->graph->subgraph_count; i++) {
        const char *name = subgraph_name(s, i);
        const char *fault = pt2_subgraph_name_fault(name, strlen(name));
        fe_string *t = pt2_verify_intern(v, &s->subgraphs, name, strlen(name));
        if (!t)
            return -1;
        if (fault)
            pt2_verify_fault(v, PT2_NAME, PT2_ERROR, NULL, NULL, NULL,
                             "'%.200s' can't be the name of a subgraph: %s; rename it", name, fault);
        if (t->owner != FE_NONE_ID)
            pt2_verify_fault(v, PT2_GRAPH, PT2_ERROR, NULL, NULL, NULL,
                             "two subgraphs are named '%.200s'; rename one of them and the nodes that take it", name);
        t->owner = i;
    }
    return 0;
}

/* get_attr nodes name subgraphs, and each subgraph is named. */
static void check_subgraphs(pt2_verifier *v, const pt2_scope *s)
{
    const fe_graph *g = s->core;

    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT; id = g->nodes[id].next) {
        const fe_string *text = g->targets[g->nodes[id].target].text;
        if (g->nodes[id].op != FE_OP_GET_ATTR)
            continue;
        fe_string *t = text ? fe_string_find(&s->subgraphs.strings, text->data, text->len) : NULL;
        if (t)
            t->base = 1;
        else
            pt2_verify_node(
                v, s, PT2_GRAPH, PT2_ERROR, id, NULL,
                "'%.200s' takes '%.200s', which is no subgraph of this graph; an exported program gets weights "
                "through inputs and keeps only subgraphs as attributes",
                NAME_OF(s, id), text ? PT2_SHOWN(text) : "");
    }
    for (uint32_t i = 0; i < s->graph->subgraph_count; i++) {
        const char *name = subgraph_name(s, i);
        const fe_string *t = fe_string_find(&s->subgraphs.strings, name, strlen(name));
        if (t && t->owner == i && !t->base)
            pt2_verify_fault(v, PT2_GRAPH, PT2_WARNING, NULL, NULL, NULL,
                             "the subgraph '%.200s' is used by no node, and won't be saved", name);
    }
}

/* ---- the walk ---- */

static int check_graph(pt2_verifier *v, const pt2_scope *outer, const pt2_graph *graph)
{
    pt2_scope s = {.outer = outer, .graph = graph, .core = graph->core, .number = ++v->scope_count};
    size_t targets = graph->core->target_count;
    int result = -1;

    s.has_path = graph->json && (outer ? outer->has_path : graph->parent == NULL);
    (void)fe_reserved_init(&s.subgraphs, v->allocator);
    s.callees = fe_resize(v->allocator, NULL, (targets + 1) * sizeof *s.callees);
    s.objects_seen = fe_resize(v->allocator, NULL, ((size_t)graph->object_count + 1) * sizeof *s.objects_seen);
    if (!s.callees || !s.objects_seen) {
        (void)pt2_no_memory(v->report);
        goto done;
    }
    memset(s.callees, 0, (targets + 1) * sizeof *s.callees);
    memset(s.objects_seen, 0, ((size_t)graph->object_count + 1) * sizeof *s.objects_seen);
    if (check_lint(v, &s) < 0)
        goto done;
    check_order(v, &s);
    if (name_subgraphs(v, &s) < 0)
        goto done;
    check_subgraphs(v, &s);
    if (pt2_verify_calls(v, &s) < 0 || (!v->is_new && pt2_verify_values(v, &s) < 0))
        goto done;
    if (!outer && (pt2_verify_signature(v, &s) < 0 || pt2_verify_payloads(v, &s) < 0))
        goto done;
    for (uint32_t i = 0; i < graph->subgraph_count; i++) { /* as deep as the reader, or the view, allows */
        if (graph->subgraphs[i]->core && check_graph(v, &s, graph->subgraphs[i]) < 0)
            goto done;
    }
    result = 0;
done:
    fe_reserved_clear(&s.subgraphs);
    fe_resize(v->allocator, s.objects_seen, 0);
    fe_resize(v->allocator, s.callees, 0);
    return result;
}

/* ---- dialects ---- */

/* Every verifier that a program names looks at it, and none means ATEN; TRAINING alone allows operators that write: in
 * torch that is no rule which a dialect can change. */
static void check_dialects(pt2_verifier *v)
{
    static const char *const known[] = {"ATEN", "", "TRAINING", "EDGE"};
    yyjson_val *root = v->program->json.doc ? yyjson_doc_get_root(v->program->json.doc) : NULL;
    yyjson_val *names = yyjson_obj_get(root, "verifiers"), *name;
    size_t i, count;

    v->functional = yyjson_arr_size(names) == 0;
    yyjson_arr_foreach(names, i, count, name)
    {
        bool found = false;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            found |= yyjson_equals_str(name, known[k]);
        v->functional |= !yyjson_equals_str(name, "TRAINING");
        if (!found)
            pt2_verify_fault(
                v, PT2_UNSUPPORTED, PT2_WARNING, NULL, PT2_INDEX(PT2_KEY(&(pt2_path){.parent = NULL}, "verifiers"), i),
                NULL,
                "the dialect '%.200s' is not known here: rules of its own are not checked, and torch loads the program "
                "only where the dialect is registered; define it as a subclass of fastexport.Verifier",
                yyjson_is_str(name) ? yyjson_get_str(name) : "");
    }
}

/* ---- */

static void clear(pt2_verifier *v)
{
    fe_exprs_free(v->exprs);
    fe_reserved_clear(&v->texts);
    fe_reserved_clear(&v->names);
    fe_resize(v->allocator, v->arguments, 0);
    fe_resize(v->allocator, v->facts, 0);
    fe_resize(v->allocator, v->symbols, 0);
    fe_resize(v->allocator, v->lists, 0);
}

int pt2_program_verify(const pt2_program *p, const pt2_graph *root, pt2_level level, pt2_report *r)
{
    pt2_verifier v = {.program = p,
                      .report = r,
                      .allocator = r->allocator,
                      .strict = level == PT2_STRICT,
                      .is_new = level == PT2_NEW};
    const char *entry = r->entry;
    uint32_t errors = r->errors;
    int result = -1;

    r->entry = p->model_entry ? p->model_entry->name : entry;
    (void)fe_reserved_init(&v.texts, v.allocator);
    (void)fe_reserved_init(&v.names, v.allocator);
    v.exprs = fe_exprs_new(v.allocator);
    if (!v.exprs)
        (void)pt2_no_memory(r);
    else {
        check_dialects(&v);
        if (pt2_verify_symbols(&v) == 0 && check_graph(&v, NULL, root) == 0) {
            pt2_verify_ranges(&v);
            result = 0;
        }
    }
    clear(&v);
    r->entry = entry;
    return result < 0 || r->no_memory || r->errors != errors ? -1 : 0;
}
