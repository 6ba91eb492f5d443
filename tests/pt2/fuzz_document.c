/* fuzz_document.c - libFuzzer target: bytes are a model.json, which is read, verified and written again.
 *
 * Beyond what the sanitizers see: a document that is read and was not edited is written as it was.
 */
#include "document.h"
#include "mutate.h"
#include "write.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);

/* Every part written anew, in the writer's own form: a document that is read, too. */
static void write_anew(document *d)
{
    document again;
    fe_buffer written;

    fe_buffer_init(&written, &fe_libc_allocator);
    if (pt2_program_write_as(d->program, d->program->root, PT2_WRITE_AGAIN, &written, &d->report) == 0) {
        document_open(&again, written.data, written.len, NULL);
        if (!again.program)
            document_print_faults(&again);
        MUST(again.program);
        document_close(&again);
    }
    fe_buffer_clear(&written);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    document d;

    document_open(&d, data, size, NULL);
    if (d.program) {
        int result = pt2_program_verify(d.program, d.program->root, PT2_STRICT, &d.report);
        MUST(result == 0 || d.report.errors || d.report.no_memory);
        document_write_again(&d);
        write_anew(&d);
    }
    document_close(&d);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    return mutate_json(data, size, most, seed);
}
