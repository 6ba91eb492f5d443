/* open.h - what the files that open a program share (open.c, payload.c, pickle_scan.c); nobody else includes it. */
#ifndef PT2_OPEN_H
#define PT2_OPEN_H

#include "program.h"

/* ---- payload.c ---- */

/* Make the table of weights or constants out of its config, whose document is checked. */
int pt2_payloads_read(pt2_program *p, pt2_payloads *payloads, pt2_report *r) FE_MUST_CHECK;

/* ---- pickle_scan.c ---- */

/* Warn of what an entry's pickle names beyond what rebuilds tensors: unpickling it would import and call that. Nothing is
 * run, and memory is bounded whatever the size. The entry should be a torch.save file (or, raw: a plain pickle); another
 * is warned of. what: the words that the warning starts with. */
int pt2_pickle_scan_entry(pt2_archive *archive, const pt2_entry *e, bool raw, const char *what, const fe_allocator *a,
                          pt2_report *r) FE_MUST_CHECK;
/* Warn that a pickle was not scanned, since inflating it would take too long. */
void pt2_pickle_unseen(uint64_t size, const char *what, const char *entry, pt2_report *r);

#endif
