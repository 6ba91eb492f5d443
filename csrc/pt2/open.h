/* open.h - what the files that open a program share (open.c, payload.c, pickle_scan.c); nobody else includes it. */
#ifndef PT2_OPEN_H
#define PT2_OPEN_H

#include "program.h"

#define PT2_PICKLE_SCANNED ((uint64_t)4 << 20) /* larger pickles are not looked into before they are asked for */

/* ---- payload.c ---- */

/* Make the table of weights or constants out of its config, whose document is checked. */
int pt2_payloads_read(pt2_program *p, pt2_payloads *payloads, pt2_report *r) FE_MUST_CHECK;

/* ---- pickle_scan.c ---- */

/* Warn of what a pickle names beyond what rebuilds tensors: unpickling it would import and call that. what: the words
 * that the warning starts with. Nothing is run. */
void pt2_pickle_scan(const unsigned char *data, size_t len, const char *what, const char *entry, pt2_report *r);
/* The same for an entry that should be a torch.save file (or, raw: a plain pickle); another is warned of. */
int pt2_pickle_scan_entry(pt2_archive *archive, const pt2_entry *e, bool raw, const char *what, const fe_allocator *a,
                          pt2_report *r) FE_MUST_CHECK;

#endif
