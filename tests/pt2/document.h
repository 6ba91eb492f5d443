/* document.h - a .pt2 archive in memory around a model.json: what fuzzing needs to get past the checksums. */
#ifndef DOCUMENT_H
#define DOCUMENT_H

#include "must.h"
#include "program.h"

#include <zlib.h>

static inline void put_number(fe_buffer *out, uint64_t value, int width)
{
    for (int i = 0; i < width; i++)
        fe_buffer_char(out, (char)(value >> 8 * i));
}

/* The fields that a local header and a central record share. */
static inline void put_facts(fe_buffer *out, const char *name, uint32_t crc, size_t len)
{
    put_number(out, 0x0800, 2); /* flags: UTF-8 */
    put_number(out, 0, 2);      /* stored */
    put_number(out, 0x21u << 16, 4);
    put_number(out, crc, 4);
    put_number(out, len, 4);
    put_number(out, len, 4);
    put_number(out, strlen(name), 2);
    put_number(out, 0, 2); /* extra field */
}

typedef struct {
    fe_buffer data, directory;
    unsigned count;
} zip_writer;

static inline void zip_add(zip_writer *z, const char *name, const void *data, size_t len)
{
    uint32_t crc = (uint32_t)crc32(0, data, (unsigned)len);
    uint64_t offset = z->data.len;

    fe_buffer_add(&z->data, "PK\3\4", 4);
    put_number(&z->data, 20, 2);
    put_facts(&z->data, name, crc, len);
    fe_buffer_text(&z->data, name);
    fe_buffer_add(&z->data, data, len);
    fe_buffer_add(&z->directory, "PK\1\2", 4);
    put_number(&z->directory, 20, 2);
    put_number(&z->directory, 20, 2);
    put_facts(&z->directory, name, crc, len);
    put_number(&z->directory, 0, 6); /* comment, disk, internal attributes */
    put_number(&z->directory, 0, 4); /* external attributes */
    put_number(&z->directory, offset, 4);
    fe_buffer_text(&z->directory, name);
    z->count++;
}

/* The archive of a document without weights. */
static inline fe_buffer archive_of(const void *model, size_t len)
{
    static const char config[] = "{\"config\": {}}";
    zip_writer z = {.count = 0};

    fe_buffer_init(&z.data, &fe_libc_allocator);
    fe_buffer_init(&z.directory, &fe_libc_allocator);
    zip_add(&z, "m/data/weights/model_weights_config.json", config, sizeof config - 1);
    zip_add(&z, "m/data/constants/model_constants_config.json", config, sizeof config - 1);
    zip_add(&z, "m/models/model.json", model, len);
    zip_add(&z, "m/data/sample_inputs/model.pt", "", 0);
    zip_add(&z, "m/archive_format", "pt2", 3);
    zip_add(&z, "m/archive_version", "0", 1);
    zip_add(&z, "m/.data/version", "6\n", 2);
    size_t start = z.data.len, size = z.directory.len;
    fe_buffer_add(&z.data, z.directory.data, z.directory.len);
    fe_buffer_add(&z.data, "PK\5\6\0\0\0\0", 8);
    put_number(&z.data, z.count, 2);
    put_number(&z.data, z.count, 2);
    put_number(&z.data, size, 4);
    put_number(&z.data, start, 4);
    put_number(&z.data, 0, 2);
    fe_buffer_clear(&z.directory);
    MUST(!z.data.failed);
    return z.data;
}

/* A program that was read, with all that it stands on. */
typedef struct {
    fe_buffer bytes;
    pt2_archive *archive;
    fe_exprs *exprs;
    fe_reserved reserved;
    pt2_program *program; /* NULL: refused */
    pt2_report report;
} document;

static inline void document_open(document *d, const void *model, size_t len, const pt2_limits *limits)
{
    *d = (document){.bytes = archive_of(model, len), .exprs = fe_exprs_new(&fe_libc_allocator)};
    pt2_report_init(&d->report, &fe_libc_allocator, limits);
    MUST(fe_reserved_init(&d->reserved, &fe_libc_allocator) == 0);
    d->archive = pt2_archive_open_bytes(d->bytes.data, d->bytes.len, &fe_libc_allocator, &d->report);
    MUST(d->archive);
    pt2_program *p = pt2_program_open(d->archive, NULL, d->exprs, &fe_libc_allocator, &d->report);
    if (p && (pt2_program_read(p, &d->reserved, &d->report) < 0 || d->report.errors)) {
        MUST(d->report.errors || d->report.no_memory);
        pt2_program_free(p);
        p = NULL;
    }
    d->program = p;
}

/* For who debugs a finding. */
static inline void document_print_faults(const document *d)
{
    for (uint32_t i = 0; i < d->report.count; i++) {
        const pt2_fault *f = &d->report.items[i];
        fprintf(stderr, "%s %s: %s\n", pt2_kind_name(f->kind), f->path ? f->path : "$", f->message);
    }
}

/* A program that was read and not edited is written as it was. */
static inline void document_write_again(document *d)
{
    fe_buffer written, same;

    fe_buffer_init(&written, &fe_libc_allocator);
    fe_buffer_init(&same, &fe_libc_allocator);
    MUST(pt2_program_write(d->program, d->program->root, &written, &d->report) == 0);
    pt2_json_write(yyjson_doc_get_root(d->program->json.doc), &same);
    MUST(written.len == same.len && memcmp(written.data, same.data, same.len) == 0);
    fe_buffer_clear(&written);
    fe_buffer_clear(&same);
}

static inline void document_close(document *d)
{
    pt2_program_free(d->program);
    pt2_archive_close(d->archive);
    fe_exprs_free(d->exprs);
    fe_reserved_clear(&d->reserved);
    pt2_report_clear(&d->report);
    fe_buffer_clear(&d->bytes);
}

#endif
