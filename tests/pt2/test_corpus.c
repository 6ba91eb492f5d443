/* test_corpus.c - the fuzz targets over what the repository keeps: samples, hostile files, and what fuzzing has found.
 *
 * Each archive goes to fuzz_archive; each model.json in one to fuzz_document, and with some edits to fuzz_write. Findings
 * are kept as tests/data/pt2/findings/TARGET-NAME.
 */
#define LLVMFuzzerTestOneInput fuzz_archive
#define LLVMFuzzerCustomMutator mutate_archive
#include "fuzz_archive.c"
#undef LLVMFuzzerTestOneInput
#undef LLVMFuzzerCustomMutator
#define LLVMFuzzerTestOneInput fuzz_document
#define LLVMFuzzerCustomMutator mutate_document
#include "fuzz_document.c"
#undef LLVMFuzzerTestOneInput
#undef LLVMFuzzerCustomMutator
#define LLVMFuzzerTestOneInput fuzz_write
#define LLVMFuzzerCustomMutator mutate_write
#include "fuzz_write.c"

#include "files.h"

#include <dirent.h>

#define MOST_BYTES 200000 /* of a file: larger ones are slow under the sanitizers, and tested elsewhere */

/* libFuzzer's own, which the targets' mutators ask for. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most)
{
    (void)data;
    (void)most;
    return size;
}

static bytes with_edits(const char *data, size_t len, unsigned seed)
{
    bytes b = {malloc(len + EDIT_BYTES), len + EDIT_BYTES};
    uint64_t random = seed;

    CHECK(b.data);
    for (int i = 0; i < EDIT_BYTES; i++) {
        random = fe_mix(random + 1);
        b.data[i] = (char)random;
    }
    memcpy(b.data + EDIT_BYTES, data, len);
    return b;
}

/* The document after some mutations, always the same ones. */
static void feed_mutated(const char *data, size_t len, unsigned seed)
{
    size_t most = 2 * len + 100;
    uint8_t *text = malloc(most);

    CHECK(text);
    memcpy(text, data, len);
    for (unsigned i = 0; i < 3; i++)
        len = mutate_document(text, len, most, seed + i);
    fuzz_document(text, len);
    free(text);
}

static void feed_document(const char *data, size_t len)
{
    fuzz_document((const uint8_t *)data, len);
    for (unsigned seed = 0; seed < 4; seed++)
        feed_mutated(data, len, (unsigned)len + 10 * seed);
    for (unsigned seed = 0; seed < 4; seed++) {
        bytes b = with_edits(data, len, seed);
        fuzz_write((const uint8_t *)b.data, b.len);
        free(b.data);
    }
}

static bool is_document(const char *name)
{
    return strncmp(name, "models/", 7) == 0 || strcmp(name, "serialized_exported_program.json") == 0;
}

static void feed_documents(const bytes *b)
{
    pt2_report r;
    uint32_t count = 0;

    pt2_report_init(&r, &fe_libc_allocator, NULL);
    pt2_archive *archive = pt2_archive_open_bytes(b->data, b->len, &fe_libc_allocator, &r);
    const pt2_entry *entries = archive ? pt2_archive_entries(archive, &count) : NULL;
    for (uint32_t i = 0; i < count; i++) {
        char *text;
        size_t len;
        if (!is_document(entries[i].name) || entries[i].size > MOST_BYTES)
            continue;
        if (pt2_archive_read(archive, &entries[i], MOST_BYTES, 0, &text, &len, &r) == 0) {
            feed_document(text, len);
            fe_resize(&fe_libc_allocator, text, 0);
        }
    }
    pt2_archive_close(archive);
    pt2_report_clear(&r);
}

static unsigned feed_folder(const char *folder)
{
    DIR *dir = opendir(folder);
    unsigned count = 0;

    CHECK(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        char path[512];
        if (!strstr(e->d_name, ".pt2"))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        puts(path); /* the last one, when a target ends the run */
        bytes b = read_file(path);
        if (b.len <= MOST_BYTES) {
            fuzz_archive((const uint8_t *)b.data, b.len);
            feed_documents(&b);
            count++;
        }
        free(b.data);
    }
    closedir(dir);
    return count;
}

static void test_samples(void)
{
    CHECK(feed_folder(DATA "samples/current") > 30);
    CHECK(feed_folder(DATA "samples/old_layout") > 5);
    CHECK(feed_folder(DATA "samples/middle_layout") > 1);
    CHECK(feed_folder(DATA "samples/negative") > 1);
}

static void test_hostile(void)
{
    CHECK(feed_folder(DATA "hostile") > 400);
}

static void test_findings(void)
{
    DIR *dir = opendir(DATA "findings");

    CHECK(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        char path[512];
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", DATA "findings", e->d_name);
        puts(path); /* the last one, when a target ends the run */
        bytes b = read_file(path);
        int (*target)(const uint8_t *, size_t) = strncmp(e->d_name, "archive", 7) == 0    ? fuzz_archive
                                                 : strncmp(e->d_name, "document", 8) == 0 ? fuzz_document
                                                                                          : fuzz_write;
        target((const uint8_t *)b.data, b.len);
        free(b.data);
    }
    closedir(dir);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    RUN(test_samples);
    RUN(test_hostile);
    RUN(test_findings);
    return 0;
}
