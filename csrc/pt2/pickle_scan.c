/* pickle_scan.c - tells what a pickle would call, without unpickling it.
 *
 * Reads opcodes only (Python's pickletools.py has the list): each has arguments of a known length, so that the next can
 * be found. No stack is kept but the last two texts, which is what STACK_GLOBAL takes in pickles as they are written.
 * This is for warnings: who unpickles has a list of what is allowed, and refuses all else.
 */
#include "open.h"

#define SHOWN_GLOBALS 4 /* names in the warnings of one pickle */
#define SHOWN_NAME 100  /* bytes */

typedef struct {
    const char *data;
    size_t len;
} span;

typedef struct {
    const unsigned char *data;
    size_t len, at;
    span texts[2]; /* the last two, newest second */
    const char *what, *entry;
    pt2_report *report;
    unsigned shown;
} scanner;

static bool is_span(span s, const char *text)
{
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}

static bool starts(span s, const char *text)
{
    return s.len >= strlen(text) && memcmp(s.data, text, strlen(text)) == 0;
}

static bool ends(span s, const char *text)
{
    size_t len = strlen(text);

    return s.len >= len && memcmp(s.data + s.len - len, text, len) == 0;
}

/* What torch.save writes for tensors and containers of them, and for what TorchScript compiled. */
static bool is_harmless(span module, span name)
{
    if (is_span(module, "collections"))
        return is_span(name, "OrderedDict");
    if (is_span(module, "torch._utils"))
        return starts(name, "_rebuild_");
    if (is_span(module, "torch._tensor"))
        return is_span(name, "_rebuild_from_type_v2");
    if (is_span(module, "torch"))
        return ends(name, "Storage") || is_span(name, "Tensor") || is_span(name, "Size") || is_span(name, "device") ||
               starts(name, "per_") || starts(name, "float") || starts(name, "int") || starts(name, "bfloat16") ||
               is_span(name, "bool");
    return starts(module, "__torch__") || (is_span(module, "torch.nn.parameter") && is_span(name, "Parameter"));
}

static void found_global(scanner *s, span module, span name)
{
    if (is_harmless(module, name) || s->shown == SHOWN_GLOBALS)
        return;
    s->shown++;
    pt2_warn(s->report, PT2_PICKLE, s->entry, NULL, "%s: the pickle calls %.*s.%.*s", s->what,
             (int)(module.len < SHOWN_NAME ? module.len : SHOWN_NAME), module.data,
             (int)(name.len < SHOWN_NAME ? name.len : SHOWN_NAME), name.data);
}

/* A little-endian number of n bytes; false: the pickle ends. */
static bool take_number(scanner *s, unsigned n, uint64_t *out)
{
    *out = 0;
    if (s->len - s->at < n)
        return false;
    for (unsigned i = 0; i < n; i++)
        *out |= (uint64_t)s->data[s->at + i] << (8 * i);
    s->at += n;
    return true;
}

static bool skip(scanner *s, uint64_t n)
{
    if (s->len - s->at < n)
        return false;
    s->at += (size_t)n;
    return true;
}

/* A line without its end. */
static bool take_line(scanner *s, span *out)
{
    const unsigned char *start = s->data + s->at, *end = memchr(start, '\n', s->len - s->at);

    if (!end)
        return false;
    *out = (span){(const char *)start, (size_t)(end - start)};
    s->at += out->len + 1;
    return true;
}

static void push_text(scanner *s, span text)
{
    s->texts[0] = s->texts[1];
    s->texts[1] = text;
}

/* Bytes behind a length of n bytes. */
static bool take_counted(scanner *s, unsigned n, bool is_text)
{
    uint64_t len;
    size_t start;

    if (!take_number(s, n, &len))
        return false;
    start = s->at;
    if (!skip(s, len))
        return false;
    if (is_text)
        push_text(s, (span){(const char *)s->data + start, (size_t)len});
    return true;
}

static bool take_lines(scanner *s, unsigned char op)
{
    span first, second;

    if (!take_line(s, &first))
        return false;
    if (op == 'V' || op == 'S')
        push_text(s, first);
    if (op != 'c' && op != 'i') /* GLOBAL, INST */
        return true;
    if (!take_line(s, &second))
        return false;
    found_global(s, first, second);
    return true;
}

/* A number in the extension registry stands for a global that the file does not name. */
static bool take_extension(scanner *s, unsigned n)
{
    static const span registry = {"copyreg", 7}, name = {"extension", 9};

    found_global(s, registry, name);
    return skip(s, n);
}

/* One opcode. false: the end, or no pickle. */
static bool take_opcode(scanner *s)
{
    unsigned char op;

    if (s->at >= s->len)
        return false;
    op = s->data[s->at++];
    if (op && strchr("cigpPFILSV", op))
        return take_lines(s, op);
    if (op && strchr("()NaseR]}tlud210bo.", op))
        return op != '.';
    switch (op) {
    case 'K':  /* BININT1 */
    case 'h':  /* BINGET */
    case 'q':  /* BINPUT */
    case 0x80: /* PROTO */
        return skip(s, 1);
    case 'M': /* BININT2 */
        return skip(s, 2);
    case 'J': /* BININT */
    case 'j': /* LONG_BINGET */
    case 'r': /* LONG_BINPUT */
        return skip(s, 4);
    case 'G':  /* BINFLOAT */
    case 0x95: /* FRAME */
        return skip(s, 8);
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
        found_global(s, s->texts[0], s->texts[1]);
        return true;
    case 'Q':  /* BINPERSID */
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
    case 0x94: /* MEMOIZE */
    case 0x97: /* NEXT_BUFFER, READONLY_BUFFER */
    case 0x98:
        return true;
    default:
        return false;
    }
}

void pt2_pickle_scan(const unsigned char *data, size_t len, const char *what, const char *entry, pt2_report *r)
{
    scanner s = {.data = data, .len = len, .what = what, .entry = entry, .report = r, .texts = {{"?", 1}, {"?", 1}}};

    while (take_opcode(&s)) {}
}

/* The bytes of a torch.save file: a zip archive with data.pkl. 0: scanned, 1: it is no such file, -1: no memory. */
static int scan_saved(const char *data, size_t len, const char *what, const char *entry, const fe_allocator *a,
                      pt2_report *r)
{
    pt2_report inner; /* faults inside are nobody's business: the file is not read, only looked at */
    pt2_archive *archive;
    const pt2_entry *pickle;
    char *text = NULL;
    size_t text_len;
    int result = 1;

    pt2_report_init(&inner, a, r->limits);
    archive = pt2_archive_open_bytes(data, len, a, &inner);
    pickle = archive ? pt2_archive_find(archive, "data.pkl") : NULL;
    if (pickle && pt2_archive_read(archive, pickle, PT2_PICKLE_SCANNED, 0, &text, &text_len, &inner) == 0) {
        pt2_pickle_scan((const unsigned char *)text, text_len, what, entry, r);
        fe_resize(a, text, 0);
        result = 0;
    }
    pt2_archive_close(archive);
    if (inner.no_memory)
        result = pt2_no_memory(r);
    pt2_report_clear(&inner);
    return result;
}

int pt2_pickle_scan_entry(pt2_archive *archive, const pt2_entry *e, bool raw, const char *what, const fe_allocator *a,
                          pt2_report *r)
{
    char *data;
    size_t len;
    int result = 0;

    if (!e->size || e->size > PT2_PICKLE_SCANNED)
        return 0;
    if (pt2_archive_read(archive, e, PT2_PICKLE_SCANNED, 0, &data, &len, r) < 0)
        return -1;
    if (raw)
        pt2_pickle_scan((const unsigned char *)data, len, what, e->name, r);
    else
        result = scan_saved(data, len, what, e->name, a, r);
    fe_resize(a, data, 0);
    if (result == 1)
        pt2_warn(r, PT2_PICKLE, e->name, NULL, "%s are not a torch.save file", what);
    return result < 0 ? -1 : 0;
}
