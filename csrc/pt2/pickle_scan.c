/* pickle_scan.c - tells what a pickle would call, without unpickling it.
 *
 * Reads opcodes only (Python's pickletools.py has the list): each has arguments of a known length, so that the next can
 * be found. The pickle goes by in pieces, whatever its size: of a text its beginning is kept, and of the stack what
 * STACK_GLOBAL takes where a pickler wrote it: two texts, pushed or got from the memo just before. Names that come
 * about otherwise are warned of as unknown ones.
 * This is for warnings: who unpickles has a list of what is allowed, and refuses all else.
 */
#include "open.h"

#define SHOWN_GLOBALS 4                /* names in the warnings of one pickle */
#define SHOWN_NAME 100                 /* bytes; a longer name is never harmless */
#define MEMO_TEXTS 1024                /* that are remembered */
#define MEMO_NAME 48                   /* bytes of one; longer ones are no names of what is harmless */
#define PIECE 16384                    /* bytes that are looked at at a time */
#define READ_WHOLE ((uint64_t)4 << 20) /* entries up to here are read in one go, which checks their CRC */
#define INFLATED ((uint64_t)64 << 20)  /* of a deflated file inside, which must be in memory to be looked into */

typedef struct {
    uint64_t len; /* of the whole; UINT64_MAX: it is not known */
    char data[SHOWN_NAME];
} name;

typedef struct {
    uint64_t index;
    unsigned char len;
    char data[MEMO_NAME];
} memo_text;

typedef struct {
    pt2_reader *reader;
    pt2_report *report;  /* for warnings */
    pt2_report *reading; /* for what goes wrong with the bytes */
    const char *what, *entry;
    size_t at, len; /* in the piece */
    bool failed;    /* reading did */
    unsigned shown;
    name texts[2];     /* the two on top of the stack, where they are texts; newest second */
    uint64_t memoized; /* MEMOIZE gives numbers in turn */
    bool has_put;      /* numbers of the pickle's own: the memo is not followed any more */
    uint32_t count;    /* of texts in the memo, ordered by index */
    memo_text memo[MEMO_TEXTS];
    unsigned char piece[PIECE];
} scanner;

static bool is_name(const name *s, const char *text)
{
    return s->len == strlen(text) && memcmp(s->data, text, strlen(text)) == 0;
}

static bool starts(const name *s, const char *text)
{
    return s->len >= strlen(text) && memcmp(s->data, text, strlen(text)) == 0;
}

static bool ends(const name *s, const char *text)
{
    size_t len = strlen(text);

    return s->len >= len && memcmp(s->data + s->len - len, text, len) == 0;
}

/* What torch.save writes for tensors and containers of them, and for what TorchScript compiled. */
static bool is_harmless(const name *module, const name *n)
{
    if (module->len > SHOWN_NAME || n->len > SHOWN_NAME)
        return false;
    if (starts(module, "__torch__"))
        return true;
    if (memchr(n->data, '.', (size_t)n->len)) /* an attribute of something harmless need not be so */
        return false;
    if (is_name(module, "collections"))
        return is_name(n, "OrderedDict");
    if (is_name(module, "torch._utils"))
        return starts(n, "_rebuild_");
    if (is_name(module, "torch._tensor"))
        return is_name(n, "_rebuild_from_type_v2");
    if (is_name(module, "torch"))
        return ends(n, "Storage") || is_name(n, "Tensor") || is_name(n, "Size") || is_name(n, "device") ||
               starts(n, "per_") || starts(n, "float") || starts(n, "int") || starts(n, "uint") ||
               starts(n, "complex") || starts(n, "bfloat16") || is_name(n, "bool");
    return is_name(module, "torch.nn.parameter") && is_name(n, "Parameter");
}

static int shown_len(const name *n)
{
    return (int)(n->len < SHOWN_NAME ? n->len : SHOWN_NAME);
}

static void found_global(scanner *s, const name *module, const name *n)
{
    if (s->shown == SHOWN_GLOBALS)
        return;
    if (module->len == UINT64_MAX || n->len == UINT64_MAX) {
        s->shown++;
        pt2_warn(s->report, PT2_PICKLE, s->entry, NULL, "%s: the pickle calls something whose name it computes",
                 s->what);
    } else if (!is_harmless(module, n)) {
        s->shown++;
        pt2_warn(s->report, PT2_PICKLE, s->entry, NULL, "%s: the pickle calls %.*s.%.*s", s->what, shown_len(module),
                 module->data, shown_len(n), n->data);
    }
}

/* ---- bytes ---- */

/* Is there a byte at `at`, after reading on where that is needed? */
static bool has_more(scanner *s)
{
    int64_t n;

    if (s->at < s->len)
        return true;
    s->at = s->len = 0;
    if (s->failed)
        return false;
    n = pt2_reader_read(s->reader, s->piece, PIECE, s->reading);
    s->failed = n < 0;
    s->len = n < 0 ? 0 : (size_t)n;
    return n > 0;
}

/* A little-endian number of n bytes; false: the pickle ends. */
static bool take_number(scanner *s, unsigned n, uint64_t *out)
{
    *out = 0;
    for (unsigned i = 0; i < n; i++) {
        if (!has_more(s))
            return false;
        *out |= (uint64_t)s->piece[s->at++] << (8 * i);
    }
    return true;
}

static void keep(name *out, const unsigned char *data, size_t len)
{
    size_t room = out->len < SHOWN_NAME ? SHOWN_NAME - (size_t)out->len : 0;

    if (room)
        memcpy(out->data + out->len, data, len < room ? len : room);
    out->len += len;
}

/* Go over n bytes. out: NULL, or it gets them. */
static bool take_bytes(scanner *s, uint64_t n, name *out)
{
    if (out)
        out->len = 0;
    while (n) {
        if (!has_more(s))
            return false;
        size_t len = n < s->len - s->at ? (size_t)n : s->len - s->at;
        if (out)
            keep(out, s->piece + s->at, len);
        s->at += len;
        n -= len;
    }
    return true;
}

/* A line without its end. */
static bool take_line(scanner *s, name *out)
{
    const unsigned char *end = NULL;

    out->len = 0;
    while (!end) {
        if (!has_more(s))
            return false;
        const unsigned char *start = s->piece + s->at;
        end = memchr(start, '\n', s->len - s->at);
        size_t len = end ? (size_t)(end - start) : s->len - s->at;
        keep(out, start, len);
        s->at += len + (end ? 1 : 0);
    }
    return true;
}

/* ---- the top of the stack, and the memo ---- */

static void forget_stack(scanner *s)
{
    s->texts[0].len = s->texts[1].len = UINT64_MAX;
}

static name *push(scanner *s)
{
    s->texts[0] = s->texts[1];
    return &s->texts[1];
}

static void memoize(scanner *s)
{
    const name *text = &s->texts[1];

    if (text->len <= MEMO_NAME && s->count < MEMO_TEXTS) {
        memo_text *m = &s->memo[s->count++];
        m->index = s->memoized;
        m->len = (unsigned char)text->len;
        memcpy(m->data, text->data, (size_t)text->len);
    }
    s->memoized++;
}

/* Push what the memo has under a number. */
static void push_memo(scanner *s, uint64_t index)
{
    name *out = push(s);
    uint32_t low = 0, high = s->count;

    out->len = UINT64_MAX;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (s->memo[middle].index < index)
            low = middle + 1;
        else
            high = middle;
    }
    if (s->has_put || low == s->count || s->memo[low].index != index)
        return;
    out->len = 0;
    keep(out, (const unsigned char *)s->memo[low].data, s->memo[low].len);
}

/* ---- opcodes ---- */

/* Bytes behind a length of n bytes. */
static bool take_counted(scanner *s, unsigned n, bool is_text)
{
    uint64_t len;

    if (!take_number(s, n, &len))
        return false;
    if (is_text)
        return take_bytes(s, len, push(s));
    forget_stack(s);
    return take_bytes(s, len, NULL);
}

static bool take_lines(scanner *s, unsigned char op)
{
    name first, second;

    forget_stack(s);
    s->has_put |= op == 'p';
    if (!take_line(s, &first))
        return false;
    if (op != 'c' && op != 'i') /* GLOBAL, INST */
        return true;
    if (!take_line(s, &second))
        return false;
    found_global(s, &first, &second);
    return true;
}

/* A number in the extension registry stands for a global that the file does not name. */
static bool take_extension(scanner *s, unsigned n)
{
    static const name registry = {7, "copyreg"}, extension = {9, "extension"};

    forget_stack(s);
    found_global(s, &registry, &extension);
    return take_bytes(s, n, NULL);
}

static bool take_memo(scanner *s, unsigned n, bool is_get)
{
    uint64_t index;

    if (!take_number(s, n, &index))
        return false;
    if (is_get)
        push_memo(s, index);
    else
        s->has_put = true;
    return true;
}

static bool skip(scanner *s, unsigned n)
{
    forget_stack(s);
    return take_bytes(s, n, NULL);
}

/* One opcode. false: the end, or no pickle; after STOP *stopped is true. */
static bool take_opcode(scanner *s, bool *stopped)
{
    unsigned char op;

    if (!has_more(s))
        return false;
    op = s->piece[s->at++];
    *stopped = op == '.';
    if (op && strchr("cigpPFILSV", op))
        return take_lines(s, op);
    if (op && strchr("()NaseR]}tlud210boQ", op))
        return skip(s, 0);
    switch (op) {
    case 0x80: /* PROTO */
        return take_bytes(s, 1, NULL);
    case 0x95: /* FRAME */
        return take_bytes(s, 8, NULL);
    case 'K': /* BININT1 */
        return skip(s, 1);
    case 'M': /* BININT2 */
        return skip(s, 2);
    case 'J': /* BININT */
        return skip(s, 4);
    case 'G': /* BINFLOAT */
        return skip(s, 8);
    case 'h': /* BINGET, BINPUT */
    case 'q':
        return take_memo(s, 1, op == 'h');
    case 'j': /* LONG_BINGET, LONG_BINPUT */
    case 'r':
        return take_memo(s, 4, op == 'j');
    case 'U':  /* SHORT_BINSTRING */
    case 0x8c: /* SHORT_BINUNICODE */
        return take_counted(s, 1, true);
    case 'C':  /* SHORT_BINBYTES */
    case 0x8a: /* LONG1 */
        return take_counted(s, 1, false);
    case 'T': /* BINSTRING */
    case 'X': /* BINUNICODE */
        return take_counted(s, 4, true);
    case 'B':  /* BINBYTES */
    case 0x8b: /* LONG4 */
        return take_counted(s, 4, false);
    case 0x8d: /* BINUNICODE8 */
        return take_counted(s, 8, true);
    case 0x8e: /* BINBYTES8 */
    case 0x96: /* BYTEARRAY8 */
        return take_counted(s, 8, false);
    case 0x82: /* EXT1, EXT2, EXT4 */
    case 0x83:
    case 0x84:
        return take_extension(s, 1u << (op - 0x82));
    case 0x93: /* STACK_GLOBAL */
        found_global(s, &s->texts[0], &s->texts[1]);
        return skip(s, 0);
    case 0x94:
        memoize(s);
        return true;
    case 0x81: /* NEWOBJ */
    case 0x85: /* TUPLE1, TUPLE2, TUPLE3, NEWTRUE, NEWFALSE */
    case 0x86:
    case 0x87:
    case 0x88:
    case 0x89:
    case 0x8f: /* EMPTY_SET, ADDITEMS, FROZENSET */
    case 0x90:
    case 0x91:
    case 0x92: /* NEWOBJ_EX */
    case 0x97: /* NEXT_BUFFER, READONLY_BUFFER */
    case 0x98:
        return skip(s, 0);
    default:
        return false;
    }
}

/* Scan an entry of an archive to its end, which checks its CRC; faults of the bytes go to `reading`. */
static int scan_entry(pt2_archive *archive, const pt2_entry *e, const char *what, const char *shown_entry,
                      const fe_allocator *a, pt2_report *reading, pt2_report *r)
{
    pt2_reader reader;
    scanner *s = fe_resize(a, NULL, sizeof *s);
    bool stopped = false, failed = true;

    if (!s)
        return pt2_no_memory(r);
    *s = (scanner){.reader = &reader, .report = r, .reading = reading, .what = what, .entry = shown_entry};
    forget_stack(s);
    if (pt2_reader_open(&reader, archive, e, reading) == 0) {
        while (take_opcode(s, &stopped)) {}
        if (!stopped && !s->failed)
            pt2_warn(r, PT2_PICKLE, shown_entry, NULL, "%s: this is no whole pickle", what);
        for (s->at = s->len; has_more(s); s->at = s->len) {}
        failed = s->failed;
    }
    pt2_reader_close(&reader);
    fe_resize(a, s, 0);
    return failed ? -1 : 0;
}

/* ---- what holds the pickle ---- */

/* An archive's pickle; a torch.save file is a zip archive with data.pkl. 0: scanned, 1: it is no such file, -1: no
 * memory. */
static int scan_saved(pt2_archive *archive, const char *what, const char *entry, const fe_allocator *a,
                      pt2_report *inner, pt2_report *r)
{
    const pt2_entry *pickle = archive ? pt2_archive_find(archive, "data.pkl") : NULL;

    if (!pickle)
        return 1;
    if (pickle->method != PT2_STORED && pickle->size > INFLATED) {
        pt2_pickle_unseen(pickle->size, what, entry, r);
        return 0;
    }
    return scan_entry(archive, pickle, what, entry, a, inner, r) < 0 ? 1 : 0;
}

/* Small entries, and deflated ones, are read into memory: *data, to be freed. A large stored one is read where it is. */
static pt2_archive *open_inside(pt2_archive *archive, const pt2_entry *e, char **data, const fe_allocator *a,
                                pt2_report *inner, pt2_report *r)
{
    size_t len;

    if (e->method == PT2_STORED && e->size > READ_WHOLE)
        return pt2_archive_open_entry(archive, e, a, inner);
    return pt2_archive_read(archive, e, 0, 0, data, &len, r) < 0 ? NULL : pt2_archive_open_bytes(*data, len, a, inner);
}

static int scan_file(pt2_archive *archive, const pt2_entry *e, const char *what, const fe_allocator *a, pt2_report *r)
{
    pt2_report inner; /* faults inside are nobody's business: the file is not read, only looked at */
    char *data = NULL;
    uint32_t errors = r->errors;

    pt2_report_init(&inner, a, r->limits);
    pt2_archive *file = open_inside(archive, e, &data, a, &inner, r);
    int result = r->errors > errors || r->no_memory ? -1 : scan_saved(file, what, e->name, a, &inner, r);
    pt2_archive_close(file);
    fe_resize(a, data, 0);
    if (inner.no_memory)
        result = pt2_no_memory(r);
    pt2_report_clear(&inner);
    if (result == 1)
        pt2_warn(r, PT2_PICKLE, e->name, NULL, "%s are not a torch.save file", what);
    return result < 0 || r->no_memory ? -1 : 0;
}

void pt2_pickle_unseen(uint64_t size, const char *what, const char *entry, pt2_report *r)
{
    pt2_warn(r, PT2_PICKLE, entry, NULL, "%s: not looked into: %llu bytes, deflated", what, (unsigned long long)size);
}

int pt2_pickle_scan_entry(pt2_archive *archive, const pt2_entry *e, bool raw, const char *what, const fe_allocator *a,
                          pt2_report *r)
{
    if (!e->size)
        return 0;
    if (e->method != PT2_STORED && e->size > INFLATED) {
        pt2_pickle_unseen(e->size, what, e->name, r);
        return 0;
    }
    return raw ? scan_entry(archive, e, what, e->name, a, r, r) : scan_file(archive, e, what, a, r);
}
