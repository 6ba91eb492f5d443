/* verify_module.c - names of nodes, and classes in tree specs, in the signatures of module calls. See verify.h.
 *
 * The document knows nodes by the names that they had when it was read, and the writer puts the names of today in their
 * place. So what matters is whether the node that bore a name is still there. Most names are found at once; for the
 * others, nodes that were renamed and results that nobody takes, all nodes are gone through once.
 */
#include "verify.h"

typedef struct {
    pt2_verifier *v;
    const pt2_scope *scope;
    const fe_graph *core;
} checker;

static yyjson_val *name_in(yyjson_val *argument)
{
    yyjson_val *inner, *name;
    const char *tag = pt2_verify_tag(argument, &inner);

    if (!tag || strcmp(tag, "as_custom_obj") == 0)
        return NULL;
    if (strcmp(tag, "as_tensor") == 0)
        name = yyjson_obj_get(inner, "name");
    else
        name = strncmp(tag, "as_sym_", 7) == 0 ? yyjson_obj_get(inner, "as_name") : NULL;
    return yyjson_is_str(name) ? name : NULL;
}

/* Whether the node that the document calls so is there; a node that was renamed needs a longer search. */
static bool is_plainly_there(const checker *c, yyjson_val *name)
{
    const pt2_graph *g = c->scope->graph;
    const fe_string *s = fe_string_find(&c->core->strings, yyjson_get_str(name), yyjson_get_len(name));

    return s && s->owner < g->origin_count && fe_node_is_listed(c->core, s->owner) && g->origins[s->owner].name == s;
}

/* owner: 0 when it is found. */
typedef struct {
    fe_reserved names;
    bool any;
} wanted_names;

typedef int (*call_visitor)(checker *c, wanted_names *w, yyjson_val *name, const pt2_path *path);

static int visit_arguments(checker *c, wanted_names *w, yyjson_val *arguments, const pt2_path *path, call_visitor visit)
{
    size_t i, count;
    yyjson_val *argument;

    yyjson_arr_foreach(arguments, i, count, argument)
    {
        yyjson_val *name = name_in(argument);
        if (name && !is_plainly_there(c, name) && visit(c, w, name, PT2_INDEX(path, i)) < 0)
            return -1;
    }
    return 0;
}

static int visit_calls(checker *c, wanted_names *w, yyjson_val *calls, call_visitor visit)
{
    pt2_path root = {.parent = NULL};
    const pt2_path *path = PT2_KEY(PT2_KEY(&root, "graph_module"), "module_call_graph");
    size_t i, count;
    yyjson_val *call;

    yyjson_arr_foreach(calls, i, count, call)
    {
        yyjson_val *signature = yyjson_obj_get(call, "signature");
        const pt2_path *at = PT2_KEY(PT2_INDEX(path, i), "signature");
        if (visit_arguments(c, w, yyjson_obj_get(signature, "inputs"), PT2_KEY(at, "inputs"), visit) < 0 ||
            visit_arguments(c, w, yyjson_obj_get(signature, "outputs"), PT2_KEY(at, "outputs"), visit) < 0)
            return -1;
    }
    return 0;
}

static int want(checker *c, wanted_names *w, yyjson_val *name, const pt2_path *path)
{
    (void)path;
    w->any = true;
    return pt2_verify_intern(c->v, &w->names, yyjson_get_str(name), yyjson_get_len(name)) ? 0 : -1;
}

static void found(wanted_names *w, const char *text, size_t len)
{
    fe_string *t = fe_string_find(&w->names.strings, text, len);

    if (t)
        t->owner = 0;
}

/* Results that nobody takes keep their names when the program is written. */
static void find_results(wanted_names *w, yyjson_val *outs)
{
    size_t i, count, j, inner_count;
    yyjson_val *out, *inner, *item, *name;

    yyjson_arr_foreach(outs, i, count, out)
    {
        const char *tag = pt2_verify_tag(out, &inner);
        if ((name = name_in(out)))
            found(w, yyjson_get_str(name), yyjson_get_len(name));
        if (!tag || strcmp(tag, "as_tensors") != 0)
            continue;
        yyjson_arr_foreach(inner, j, inner_count, item)
        {
            if ((name = yyjson_obj_get(item, "name")) && yyjson_is_str(name))
                found(w, yyjson_get_str(name), yyjson_get_len(name));
        }
    }
}

static void find_wanted(checker *c, wanted_names *w)
{
    const pt2_graph *g = c->scope->graph;

    for (uint32_t id = 1; id < c->core->node_count; id++) {
        const pt2_origin *o = id < g->origin_count ? &g->origins[id] : NULL;
        if (!fe_node_is_listed(c->core, id))
            continue;
        if (!o || o->source == PT2_FROM_NOTHING) { /* an edit has made it, and it may stand for one that is gone */
            found(w, c->core->details[id].name->data, c->core->details[id].name->len);
            continue;
        }
        if (o->name)
            found(w, o->name->data, o->name->len);
        if (o->source == PT2_FROM_NODE)
            find_results(w, yyjson_obj_get(o->json, "outputs"));
    }
}

static int report_missing(checker *c, wanted_names *w, yyjson_val *name, const pt2_path *path)
{
    const fe_string *t = fe_string_find(&w->names.strings, yyjson_get_str(name), yyjson_get_len(name));

    if (t && t->owner != 0)
        pt2_verify_fault(
            c->v, PT2_SIGNATURE, PT2_ERROR, NULL, path, NULL,
            "the module call graph names '%.300s', but the graph has no such node any more; keep the node, or "
            "export without preserving this module's signature",
            PT2_SHOWN(t));
    return 0;
}

/* ---- classes ---- */

typedef struct {
    pt2_verifier *v;
    fe_reserved seen; /* each class is told of once */
    const pt2_path *path;
} class_checker;

static int report_class(void *ctx, const char *name, size_t len)
{
    class_checker *c = ctx;

    if (fe_string_find(&c->seen.strings, name, len))
        return 0;
    fe_string *text = pt2_verify_intern(c->v, &c->seen, name, len);
    if (!text)
        return -1;
    pt2_verify_fault(c->v, PT2_UNKNOWN_CLASS, PT2_WARNING, NULL, c->path, NULL,
                     "the class '%.200s' is none that torch registers: torch loads this program only where the class "
                     "is registered as a pytree node",
                     PT2_SHOWN(text));
    return 0;
}

static int check_classes(pt2_verifier *v, yyjson_val *calls)
{
    static const char *const keys[] = {"in_spec", "out_spec"};
    pt2_path root = {.parent = NULL};
    const pt2_path *path = PT2_KEY(PT2_KEY(&root, "graph_module"), "module_call_graph");
    class_checker c = {.v = v};
    size_t i, count;
    yyjson_val *call;
    int result = fe_reserved_init(&c.seen, v->allocator);

    yyjson_arr_foreach(calls, i, count, call)
    {
        yyjson_val *signature = yyjson_obj_get(call, "signature");
        for (size_t k = 0; k < sizeof keys / sizeof *keys && result == 0; k++) {
            yyjson_val *spec = yyjson_obj_get(signature, keys[k]);
            c.path = PT2_KEY_TEXT(PT2_KEY(PT2_INDEX(path, i), "signature"), keys[k]);
            if (yyjson_is_str(spec))
                result = pt2_treespec_classes(yyjson_get_str(spec), yyjson_get_len(spec), report_class, &c, v->report);
        }
    }
    fe_reserved_clear(&c.seen);
    return result;
}

/* ---- */

int pt2_verify_module_calls(pt2_verifier *v, const pt2_scope *s, yyjson_val *calls)
{
    checker c = {v, s, s->core};
    wanted_names w = {.any = false};

    (void)fe_reserved_init(&w.names, v->allocator);
    int result = visit_calls(&c, &w, calls, want);
    if (result == 0 && w.any) {
        find_wanted(&c, &w);
        result = visit_calls(&c, &w, calls, report_missing);
    }
    fe_reserved_clear(&w.names);
    return result < 0 ? result : check_classes(v, calls);
}
