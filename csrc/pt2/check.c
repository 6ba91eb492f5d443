/* check.c - contents of entries against their checksums, and whole files against every rule.
 *
 * pt2_check is what somebody wants who has many files and needs no graph of any: nothing outlives it but the report.
 */
#include "program.h"

/* ---- the contents of entries ---- */

/* Was the entry read to its end, and so checked, when the program was opened? */
static bool was_read(const pt2_program *p, const pt2_entry *e)
{
    return e == p->model_entry || e == p->weights.entry || e == p->constants.entry;
}

static bool is_payload(const pt2_entry *e)
{
    return strncmp(e->name, "data/weights/", 13) == 0 || strncmp(e->name, "data/constants/", 15) == 0 ||
           strncmp(e->name, "serialized_", 11) == 0;
}

/* Whether weights and constants together are more than so many bytes. */
static bool are_large(const pt2_entry *entries, uint32_t count, uint64_t bytes)
{
    uint64_t left = bytes;

    for (uint32_t i = 0; bytes && i < count; i++) {
        if (!is_payload(&entries[i]))
            continue;
        if (entries[i].size > left)
            return true;
        left -= entries[i].size;
    }
    return false;
}

static int check_entry(const pt2_program *p, const pt2_entry *e, pt2_report *r)
{
    return pt2_archive_check_limits(e, r) < 0 ? -1 : pt2_archive_check(p->archive, e, r);
}

/* Entries that nothing has read yet, and later reading would refuse. */
static int check_limits(const pt2_program *p, pt2_report *r)
{
    uint32_t count;
    const pt2_entry *entries = pt2_archive_entries(p->archive, &count);
    int result = 0;

    for (uint32_t i = 0; i < count && !r->no_memory; i++) {
        if (!was_read(p, &entries[i]) && pt2_archive_check_limits(&entries[i], r) < 0)
            result = -1;
    }
    return result;
}

int pt2_program_check_payloads(pt2_program *p, uint64_t bytes, pt2_report *r)
{
    uint32_t count;
    const pt2_entry *entries = pt2_archive_entries(p->archive, &count);
    uint64_t left = bytes;
    bool leave_payloads = are_large(entries, count, bytes);
    int result = 0;

    for (uint32_t i = 0; i < count; i++) {
        const pt2_entry *e = &entries[i];
        if (e->is_folder || was_read(p, e) || (bytes && e->size > left) || (leave_payloads && is_payload(e)))
            continue;
        left -= bytes ? e->size : 0;
        if ((bytes ? pt2_archive_check(p->archive, e, r) : check_entry(p, e, r)) < 0)
            result = -1;
        if (r->no_memory)
            return -1;
    }
    return result;
}

/* ---- files ---- */

typedef struct {
    pt2_archive *archive;
    pt2_level level;
    bool contents;
    const fe_reserved *reserved;
    const fe_allocator *allocator;
    pt2_report *report;
    uint32_t models; /* that were checked */
} checking;

/* Read, verify, and (for the first model) check what opening has not read: those entries are the same for all models. */
static int check_program(checking *c, pt2_program *p)
{
    uint32_t errors = c->report->errors;
    int result = pt2_program_read(p, c->reserved, c->report);

    if (result == 0 && c->report->errors == errors)
        result = pt2_program_verify(p, p->root, c->level, c->report);
    if (c->contents && c->models == 1 && !c->report->no_memory)
        result = pt2_program_check_payloads(p, 0, c->report);
    else if (c->models == 1 && !c->report->no_memory)
        result = check_limits(p, c->report);
    (void)result; /* what it means is in the report */
    return c->report->no_memory ? -1 : 0;
}

static int check_model(checking *c, const char *model)
{
    fe_exprs *exprs = fe_exprs_new(c->allocator);

    if (!exprs)
        return pt2_no_memory(c->report);
    c->models++;
    pt2_program *p = pt2_program_open(c->archive, model, exprs, c->allocator, c->report);
    int result = p ? check_program(c, p) : c->report->no_memory ? -1 : 0;
    pt2_program_free(p);
    fe_exprs_free(exprs);
    return result;
}

static int see_model(void *ctx, const char *name, size_t len)
{
    checking *c = ctx;
    char *text = fe_resize(c->allocator, NULL, len + 1);

    if (!text)
        return pt2_no_memory(c->report);
    memcpy(text, name, len);
    text[len] = '\0';
    int result = check_model(c, text);
    fe_resize(c->allocator, text, 0);
    return result;
}

int pt2_check(pt2_archive *archive, const char *model, pt2_level level, bool contents, const fe_reserved *reserved,
              const fe_allocator *a, pt2_report *r)
{
    checking c = {
        .archive = archive, .level = level, .contents = contents, .reserved = reserved, .allocator = a, .report = r};
    int result = model ? 0 : pt2_each_model(archive, see_model, &c);

    if (result == 0 && !c.models)
        result = check_model(&c, model); /* without models: opening says what is missing */
    return result < 0 || r->errors ? -1 : 0;
}
