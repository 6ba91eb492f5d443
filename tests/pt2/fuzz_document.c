/* fuzz_document.c - libFuzzer target: bytes are a model.json, which is read, verified and written again.
 *
 * Beyond what the sanitizers see: a document that is read and was not edited is written as it was.
 */
#include "document.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_again(document *d)
{
    fe_buffer written, same;

    fe_buffer_init(&written, &fe_libc_allocator);
    fe_buffer_init(&same, &fe_libc_allocator);
    if (pt2_program_write(d->program, d->program->root, &written, &d->report) == 0) {
        pt2_json_write(yyjson_doc_get_root(d->program->json.doc), &same);
        MUST(written.len == same.len && memcmp(written.data, same.data, same.len) == 0);
    }
    fe_buffer_clear(&written);
    fe_buffer_clear(&same);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    document d;

    document_open(&d, data, size, NULL);
    if (d.program) {
        int result = pt2_program_verify(d.program, d.program->root, PT2_STRICT, &d.report);
        MUST(result == 0 || d.report.errors || d.report.no_memory);
        write_again(&d);
    }
    document_close(&d);
    return 0;
}
