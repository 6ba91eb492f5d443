/* must.h - what a fuzz target checks beyond the sanitizers: a condition that fails ends the run with its place. */
#ifndef MUST_H
#define MUST_H

#include <stdio.h>
#include <stdlib.h>

#define MUST(condition) ((condition) ? (void)0 : must_failed(#condition, __FILE__, __LINE__))

static inline void must_failed(const char *what, const char *file, int line)
{
    fprintf(stderr, "%s:%d: %s\n", file, line, what);
    abort();
}

#endif
