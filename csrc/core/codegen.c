/* codegen.c - see codegen.h: the lines of code.
 *
 * A node is a line: what it computes, then the names that nobody needs any more set to None.
 */
#include "codegen_writer.h"

#define NO_LINE FE_NONE_ID

/* ---- lines ---- */

void fe_code_push(fe_code_writer *w, uint32_t **items, uint32_t *count, uint32_t *capacity, uint32_t value)
{
    if (w->failed || fe_grow(w->g->allocator, items, capacity, (size_t)*count + 1, sizeof **items, w->err) < 0)
        w->failed = true;
    else
        (*items)[(*count)++] = value;
}

uint32_t fe_code_mark(fe_code_writer *w, const fe_buffer *b)
{
    if (b->len >= UINT32_MAX) {
        w->failed = true;
        fe_fail(w->err, FE_TOO_LARGE, 0, "the code of the graph takes more than 4 GiB");
    }
    return (uint32_t)b->len;
}

static void write_line(fe_code_writer *w, const char *text, size_t len)
{
    fe_buffer_text(&w->out->body, "    ");
    fe_buffer_add(&w->out->body, text, len);
    fe_buffer_char(&w->out->body, '\n');
    fe_code_push(w, &w->out->lines, &w->out->line_count, &w->out->line_capacity, w->line);
}

/* Lines, each with its end; empty ones before all others fall away. */
static void write_lines(fe_code_writer *w, const char *text, size_t len)
{
    for (const char *at = text, *end = text + len, *next; at < end; at = next) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        next = stop ? stop + 1 : end;
        if (!stop)
            stop = end;
        if (stop > at || w->out->body.len)
            write_line(w, at, (size_t)(stop - at));
    }
}

static void end_chunk(fe_code_writer *w)
{
    if (w->o->chunks)
        fe_code_push(w, &w->out->chunk_ends, &w->out->chunk_count, &w->out->chunk_capacity,
                     fe_code_mark(w, &w->out->body));
}

/* A text of whole lines. */
static void write_block(fe_code_writer *w, fe_text text)
{
    if (!text.len)
        return;
    if (w->o->chunks)
        fe_buffer_add(&w->out->body, text.data, text.len);
    else
        write_lines(w, text.data, text.len);
    end_chunk(w);
}

size_t fe_code_begin_line(fe_code_writer *w)
{
    if (!w->o->chunks)
        fe_buffer_text(&w->out->body, "    ");
    return w->out->body.len;
}

/* An object's text may run over several lines: indent all but the first. */
static void indent_rest(fe_code_writer *w, size_t start)
{
    fe_buffer *b = &w->out->body;
    size_t len = b->len - start;
    char *copy = fe_resize(w->g->allocator, NULL, len);

    if (!copy) {
        fe_no_memory(w->err);
        w->failed = true;
        return;
    }
    memcpy(copy, b->data + start, len);
    b->len = start;
    for (size_t i = 0; i < len; i++) {
        fe_buffer_char(b, copy[i]);
        if (copy[i] == '\n') {
            fe_buffer_text(b, "    ");
            fe_code_push(w, &w->out->lines, &w->out->line_count, &w->out->line_capacity, w->line);
        }
    }
    fe_resize(w->g->allocator, copy, 0);
}

void fe_code_end_line(fe_code_writer *w, size_t start)
{
    fe_buffer *b = &w->out->body;

    if (!w->o->chunks) {
        if (!b->failed && b->len > start && memchr(b->data + start, '\n', b->len - start))
            indent_rest(w, start);
        fe_code_push(w, &w->out->lines, &w->out->line_count, &w->out->line_capacity, w->line);
    }
    fe_buffer_char(b, '\n');
    end_chunk(w);
    w->any = true;
}

/* The node's name, its type, and " = ". */
static void write_head(fe_code_writer *w, uint32_t id);

/* Whether a call is written with the operator: that takes as many operands, by position, and one that works in place has a
 * name to put the result under. */
static bool is_operation(const fe_code_writer *w, const fe_code_target *t, const fe_detail *d)
{
    uint32_t count = d->args ? d->args->len : 0, holes = fe_code_holes(t->pattern);

    if (t->shape != FE_CODE_OPERATOR && t->shape != FE_CODE_INPLACE)
        return false;
    if (w->o->as_torch)
        return count >= holes;
    return count == holes && !d->kwargs && (t->shape == FE_CODE_OPERATOR || d->args->items[0].kind == FE_NODE);
}

static bool is_attribute(const fe_code_writer *w, const fe_code_target *t, const fe_detail *d)
{
    if (t->shape != FE_CODE_GETATTR || !d->args || d->args->len != 2 || d->args->items[1].kind != FE_STR)
        return false;
    const fe_string *s = d->args->items[1].as.string;
    return fe_code_is_name(w, s->data, s->len) && (w->o->as_torch || !d->kwargs);
}

static void write_function(fe_code_writer *w, uint32_t id)
{
    const fe_detail *d = &w->g->details[id];
    const fe_code_target *t = &w->o->targets[w->g->nodes[id].target];

    if (is_operation(w, t, d)) {
        if (t->shape == FE_CODE_INPLACE) {
            fe_code_operands(w, t->pattern, d->args);
            fe_buffer_text(&w->out->body, ";  ");
        }
        write_head(w, id);
        if (t->shape == FE_CODE_INPLACE)
            fe_code_value(w, d->args->items[0]);
        else
            fe_code_operands(w, t->pattern, d->args);
        return;
    }
    for (uint32_t i = 0; i < t->name.count; i++) { /* a global is named before the node */
        if (t->name.pieces[i].global != FE_NONE_ID)
            fe_code_global_name(w, t->name.pieces[i].global);
    }
    write_head(w, id);
    if (is_attribute(w, t, d)) {
        const fe_string *s = d->args->items[1].as.string;
        fe_code_path(w, &d->args->items[0], s->data, s->len);
        return;
    }
    fe_code_pieces(w, t->name);
    fe_code_arguments(w, d, 0);
}

/* ---- nodes ---- */

void fe_code_type(fe_code_writer *w, uint32_t id)
{
    uint32_t type = w->g->details[id].type;
    size_t start = w->out->body.len;

    if (type != FE_NONE_ID && w->o->types && type < w->o->object_count) {
        fe_buffer_text(&w->out->body, " : ");
        fe_code_pieces(w, w->o->types[type]);
    }
    if (w->o->annotations && w->o->annotations[id].data && !w->out->body.failed) {
        w->out->body.len = start;
        fe_buffer_add(&w->out->body, w->o->annotations[id].data, w->o->annotations[id].len);
    }
}

/* The names of types come before that of the node. */
static void name_type(fe_code_writer *w, uint32_t id)
{
    size_t start = w->out->body.len;

    fe_code_type(w, id);
    if (!w->out->body.failed)
        w->out->body.len = start;
}

static void write_head(fe_code_writer *w, uint32_t id)
{
    fe_code_string(w, fe_code_name_of(w, id));
    fe_code_type(w, id);
    fe_buffer_text(&w->out->body, " = ");
}

static void write_output(fe_code_writer *w, uint32_t id)
{
    const fe_code_options *o = w->o;
    const fe_detail *d = &w->g->details[id];
    uint32_t type = d->type;
    fe_value own = d->args && d->args->len ? d->args->items[0] : (fe_value){.kind = FE_NONE};
    fe_buffer *b = &w->out->body;
    size_t start = b->len;

    if (type != FE_NONE_ID && o->types && type < o->object_count) {
        fe_code_pieces(w, o->types[type]);
        if (!b->failed) {
            fe_buffer_text(&w->out->result_type, " -> ");
            fe_buffer_add(&w->out->result_type, b->data + start, b->len - start);
            b->len = start;
        }
    }

    for (uint32_t i = 0; i < o->output_count; i++) {
        fe_buffer_add(&w->out->body, o->output_texts[i].data, o->output_texts[i].len);
        fe_code_value(w, o->output_values ? o->output_values[i] : own);
    }
    fe_buffer_add(&w->out->body, o->output_texts[o->output_count].data, o->output_texts[o->output_count].len);
}

static void write_statement(fe_code_writer *w, uint32_t id)
{
    const fe_node *n = &w->g->nodes[id];
    const fe_detail *d = &w->g->details[id];
    const fe_string *text = w->g->targets[n->target].text;

    if (d->type != FE_NONE_ID && n->op != FE_OP_OUTPUT)
        name_type(w, id);
    switch ((fe_op)n->op) {
    case FE_OP_OUTPUT:
        write_output(w, id);
        break;
    case FE_OP_CALL_FUNCTION:
        write_function(w, id);
        break;
    case FE_OP_CALL_METHOD:
        if (!d->args) {
            w->failed = true;
            fe_fail(w->err, FE_BAD_VALUE, id, "node '%s' calls the method '%s' of nothing; give it an argument",
                    w->g->details[id].name->data, text->data);
            return;
        }
        write_head(w, id);
        fe_code_path(w, &d->args->items[0], text->data, text->len);
        fe_code_arguments(w, d, 1);
        break;
    default:
        write_head(w, id);
        fe_code_path(w, NULL, text->data, text->len);
        if (n->op == FE_OP_CALL_MODULE)
            fe_code_arguments(w, d, 0);
    }
}

/* The names that are of no use behind a node, set to None. */
static void write_deletions(fe_code_writer *w, uint32_t id)
{
    const fe_node *n = &w->g->nodes[id];
    fe_buffer *b = &w->out->body;
    bool any = false;

    for (uint32_t i = 0; i < n->edge_count + (n->user_count == 0); i++) {
        uint32_t def = i < n->edge_count ? w->g->edges[n->edge + i].def : id;
        if (i < n->edge_count && w->last_use[def] != id)
            continue;
        if (!any) {
            fe_buffer_text(b, ";  ");
            fe_buffer_text(b, w->o->dim);
        } else {
            fe_buffer_text(b, " = ");
        }
        fe_code_string(w, fe_code_name_of(w, def));
        any = true;
    }
    if (any) {
        fe_buffer_text(b, " = None");
        fe_buffer_text(b, w->o->dim[0] ? w->o->reset : "");
    }
}

/* A line around a call that the profiler is told of. */
static void write_record(fe_code_writer *w, uint32_t id, bool enter)
{
    const fe_string *name = w->g->details[id].name;
    fe_buffer *b = &w->out->body;
    size_t start = fe_code_begin_line(w);

    fe_buffer_text(b, "_rf_");
    fe_code_string(w, name);
    if (enter) {
        fe_buffer_text(b, " = torch._C._profiler._RecordFunctionFast('## ");
        fe_buffer_int(b, w->place);
        fe_buffer_text(b, " ##'); _rf_");
        fe_code_string(w, name);
        fe_buffer_text(b, ".__enter__()");
    } else {
        fe_buffer_text(b, ".__exit__(None, None, None)");
    }
    fe_code_end_line(w, start);
}

static void write_counter(fe_code_writer *w)
{
    if (!w->o->chunks)
        return;
    fe_buffer_text(&w->out->body, "# COUNTER: ");
    fe_buffer_int(&w->out->body, w->place);
    fe_buffer_char(&w->out->body, '\n');
    end_chunk(w);
}

/* Whether the target of a node that calls no function is text, as it should be. */
static bool has_text(fe_code_writer *w, uint32_t id)
{
    if (w->g->targets[w->g->nodes[id].target].object == FE_NONE_ID)
        return true;
    w->failed = true;
    fe_fail(w->err, FE_BAD_VALUE, id, "node '%s' has a target that code can't hold; give it one of plain characters",
            w->g->details[id].name->data);
    return false;
}

static void write_node(fe_code_writer *w, uint32_t id)
{
    fe_op op = (fe_op)w->g->nodes[id].op;
    bool record =
        w->o->record_functions && (op == FE_OP_CALL_FUNCTION || op == FE_OP_CALL_METHOD || op == FE_OP_CALL_MODULE);

    if (op != FE_OP_CALL_FUNCTION && !has_text(w, id))
        return;
    if (w->o->notes)
        write_block(w, w->o->notes[id]);
    w->line = w->place;
    write_counter(w);
    if (record)
        write_record(w, id, true);
    if (w->o->meta)
        write_block(w, w->o->meta[id]);
    if (op == FE_OP_PLACEHOLDER) {
        fe_code_parameter(w, id);
        return;
    }
    size_t start = fe_code_begin_line(w);
    write_statement(w, id);
    end_chunk(w);
    if (op != FE_OP_OUTPUT)
        write_deletions(w, id);
    fe_code_end_line(w, start);
    if (record)
        write_record(w, id, false);
}

/* ---- the whole ---- */

static void *new_array(fe_code_writer *w, size_t count, size_t size)
{
    const fe_allocator *a = w->g->allocator;
    void *array = fe_resize(a, NULL, (count + 1) * size);

    if (array)
        memset(array, 0, (count + 1) * size);
    else {
        fe_no_memory(w->err);
        w->failed = true;
    }
    return array;
}

static void find_last_uses(fe_code_writer *w)
{
    const fe_graph *g = w->g;

    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT; id = g->nodes[id].next) {
        for (uint32_t i = 0; i < g->nodes[id].edge_count; i++)
            w->last_use[g->edges[g->nodes[id].edge + i].def] = id;
    }
}

static void write_fixed(fe_code_writer *w, const char *text)
{
    size_t start = fe_code_begin_line(w);

    fe_buffer_text(&w->out->body, text);
    fe_code_end_line(w, start);
}

static void write_body(fe_code_writer *w)
{
    const fe_graph *g = w->g;

    find_last_uses(w);
    w->line = NO_LINE;
    fe_code_restore(w);
    if (w->o->record_functions)
        write_fixed(
            w, "_rf = torch._C._profiler._RecordFunctionFast('## ENTER_GRAPH_PLACEHOLDER_KEY ##'); _rf.__enter__()");
    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT && !w->failed; id = g->nodes[id].next, w->place++)
        write_node(w, id);
    if (w->o->record_functions)
        write_fixed(w, "_rf.__exit__(None, None, None)");
    if (!w->any && !(w->o->as_torch && w->place))
        write_fixed(w, "pass");
    if (!w->o->chunks) {
        fe_buffer_text(&w->out->body, "    ");
        fe_code_push(w, &w->out->lines, &w->out->line_count, &w->out->line_capacity, w->line);
    }
}

/* Take a name for what is no node. */
static void take_name(fe_code_writer *w, const char *text, size_t len)
{
    fe_string *name = w->failed || !len ? NULL : fe_string_get(w->out->names, text, len, w->err);

    if (name)
        name->used = true;
    else if (len)
        w->failed = true;
}

/* Those of the lines around calls; see write_record. */
static void take_record_names(fe_code_writer *w)
{
    const fe_graph *g = w->g;
    fe_buffer text;

    take_name(w, "_rf", 3);
    fe_buffer_init(&text, g->allocator);
    for (uint32_t id = g->nodes[FE_ROOT].next; id != FE_ROOT && !w->failed && !text.failed; id = g->nodes[id].next) {
        text.len = 0;
        fe_buffer_text(&text, "_rf_");
        fe_buffer_add(&text, g->details[id].name->data, g->details[id].name->len);
        if (!text.failed)
            take_name(w, text.data, text.len);
    }
    if (text.failed) {
        w->failed = true;
        fe_no_memory(w->err);
    }
    fe_buffer_clear(&text);
}

static void take_fixed_names(fe_code_writer *w)
{
    take_name(w, "None", 4); /* nodes can bear it, as in torch.fx; in code it means something */
    if (w->o->as_torch)
        return;
    take_name(w, "self", 4); /* CodeGen.gen_fn_def's first parameter */
    take_name(w, w->o->root, strcspn(w->o->root, "."));
    for (uint32_t i = 0; i < w->o->given_count; i++)
        take_name(w, w->o->given[i].data, w->o->given[i].len);
    if (w->o->record_functions)
        take_record_names(w);
}

static void init_source(fe_code_writer *w)
{
    const fe_graph *g = w->g;
    fe_source *out = w->out;

    *out = (fe_source){0};
    fe_buffer_init(&out->body, g->allocator);
    fe_buffer_init(&out->parameters, g->allocator);
    fe_buffer_init(&out->result_type, g->allocator);
    if (!(out->names = fe_graph_new(g->allocator, g->reserved))) {
        w->failed = true;
        fe_no_memory(w->err);
        return;
    }
    out->global_names = new_array(w, w->o->global_count, sizeof *out->global_names);
    out->used_globals = new_array(w, w->o->global_count, sizeof *out->used_globals);
    out->restored = new_array(w, (size_t)g->node_count + w->o->outer_count, sizeof *out->restored);
}

/* Write all of it, with what w->hiding says. */
static void write_source(fe_code_writer *w)
{
    const fe_graph *g = w->g;

    init_source(w);
    w->place = 0;
    w->any = false;
    w->names = new_array(w, g->node_count, sizeof *w->names);
    w->last_use = new_array(w, g->node_count, sizeof *w->last_use);
    if (!w->failed)
        take_fixed_names(w);
    if (!w->failed)
        fe_code_begin_parameters(w);
    if (!w->failed)
        write_body(w);
    fe_resize(g->allocator, w->names, 0);
    fe_resize(g->allocator, w->last_use, 0);
    if (!w->failed && (w->out->body.failed || w->out->parameters.failed || w->out->result_type.failed)) {
        w->failed = true;
        fe_no_memory(w->err);
    }
}

int fe_code_write(const fe_graph *g, const fe_code_options *o, fe_source *out, fe_error *err)
{
    fe_code_writer w = {.g = g, .o = o, .out = out, .err = err};

    w.hiding = new_array(&w, (size_t)g->node_count + o->outer_count, sizeof *w.hiding);
    write_source(&w);
    if (!w.failed && fe_code_find_hidden(&w)) {
        fe_code_clear(out);
        write_source(&w);
    }
    fe_resize(g->allocator, w.hiding, 0);
    return w.failed ? -1 : 0;
}

void fe_code_clear(fe_source *c)
{
    if (!c->names)
        return;
    const fe_allocator *a = c->names->allocator;
    fe_resize(a, c->ends, 0);
    fe_resize(a, c->lines, 0);
    fe_resize(a, c->chunk_ends, 0);
    fe_resize(a, c->global_names, 0);
    fe_resize(a, c->used_globals, 0);
    fe_resize(a, c->restored, 0);
    fe_buffer_clear(&c->body);
    fe_buffer_clear(&c->parameters);
    fe_buffer_clear(&c->result_type);
    fe_graph_free(c->names);
}
