/* operator.c - look-ups in the generated table of operators, and the grammar of targets. */
#include "operator.h"

#include "ir.h"

/* C11 promises only 4095 bytes of a string; all compilers we know take more, and arrays of bytes cost five times the text.
 */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverlength-strings"
#include "operator_table.inc"
#pragma GCC diagnostic pop

#define PREFIX_LEN (sizeof FE_OPERATOR_PREFIX - 1)

static bool starts_with(const char *text, size_t len, const char *prefix, size_t prefix_len)
{
    return len >= prefix_len && memcmp(text, prefix, prefix_len) == 0;
}

static bool is_operator_text(const char *text, size_t len)
{
    return starts_with(text, len, FE_OPERATOR_PREFIX, PREFIX_LEN);
}

/* ---- rows ---- */

const char *fe_operator_name(const fe_operator *op)
{
    return operator_names + op->name;
}

static const fe_operator *find(const char *name, size_t len)
{
    uint32_t hash = 2166136261u; /* FNV-1a, as the generator has it */

    if (len > UINT8_MAX)
        return NULL;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)name[i]) * 16777619u;
    for (uint32_t at = hash % OPERATOR_SLOTS; operator_slots[at]; at = (at + 1) % OPERATOR_SLOTS) {
        const fe_operator *op = &operators[operator_slots[at] - 1];
        if (op->name_len == len && memcmp(fe_operator_name(op), name, len) == 0)
            return op;
    }
    return NULL;
}

static bool is_function(const fe_operator *op)
{
    return op->kind == FE_SPELLING_SYM || op->kind == FE_SPELLING_FUNCTION;
}

const fe_operator *fe_operator_find(const char *text, size_t len)
{
    bool full = is_operator_text(text, len);
    const fe_operator *op = full ? find(text + PREFIX_LEN, len - PREFIX_LEN) : find(text, len);

    return op && full && is_function(op) ? NULL : op;
}

uint32_t fe_operator_count(void)
{
    return OPERATOR_COUNT;
}

const fe_operator *fe_operator_at(uint32_t index)
{
    return index < OPERATOR_COUNT ? &operators[index] : NULL;
}

const char *fe_operator_torch(void)
{
    return OPERATOR_TORCH;
}

/* ---- schemas ---- */

static const char *schema_of(const fe_operator *op)
{
    return operator_schemas + op->schema;
}

static const char *read_type(const char *at, fe_schema_type *out)
{
    *out = (fe_schema_type){.base = FE_SCHEMA_OTHER};
    switch (*at++) {
#define X(id, letter, text)         \
    case letter:                    \
        out->base = FE_SCHEMA_##id; \
        break;
        FE_SCHEMA_TYPES(X)
#undef X
    default:
        break;
    }
    for (;; at++) {
        if (*at == '[') {
            out->optional_items = out->optional; /* what was the whole is an item now */
            out->optional = false;
            out->lists++;
        } else if (*at == '?') {
            out->optional = true;
        } else {
            return at;
        }
    }
}

bool fe_operator_has_schema(const fe_operator *op)
{
    return *schema_of(op) != '\0';
}

bool fe_operator_next_argument(const fe_operator *op, const char **at, fe_argument *out)
{
    const char *c = *at ? *at : schema_of(op);

    c += *c == ' ';
    if (*c == '>' || *c == '\0')
        return false;
    *out = (fe_argument){0};
    c = read_type(c, &out->type);
    for (; *c == '=' || *c == '*' || *c == '!'; c++) {
        out->has_default |= *c == '=';
        out->keyword_only |= *c == '*';
        out->written |= *c == '!';
    }
    out->name = c;
    out->name_len = strcspn(c, " >");
    *at = c + out->name_len;
    return true;
}

bool fe_operator_next_return(const fe_operator *op, const char **at, fe_schema_type *out)
{
    const char *c = *at;

    if (!c) {
        c = strchr(schema_of(op), '>');
        if (!c)
            return false;
        c++;
    }
    c += *c == ' ';
    if (*c == '\0')
        return false;
    *at = read_type(c, out);
    return true;
}

uint32_t fe_operator_argument_count(const fe_operator *op)
{
    const char *at = NULL;
    fe_argument a;
    uint32_t count = 0;

    while (fe_operator_next_argument(op, &at, &a))
        count++;
    return count;
}

uint32_t fe_operator_return_count(const fe_operator *op)
{
    const char *at = NULL;
    fe_schema_type t;
    uint32_t count = 0;

    while (fe_operator_next_return(op, &at, &t))
        count++;
    return count;
}

int fe_operator_argument(const fe_operator *op, const char *name, size_t len, fe_argument *out)
{
    const char *at = NULL;
    fe_argument a;

    for (int i = 0; fe_operator_next_argument(op, &at, &a); i++) {
        if (a.name_len == len && memcmp(a.name, name, len) == 0) {
            if (out)
                *out = a;
            return i;
        }
    }
    return -1;
}

bool fe_operator_positional(const fe_operator *op, const char *name, size_t len)
{
    fe_argument a;

    return fe_operator_argument(op, name, len, &a) >= 0 && !a.has_default && !a.keyword_only;
}

bool fe_operator_returns_one_tensor(const fe_operator *op)
{
    const char *at = NULL;
    fe_schema_type first, more;

    return fe_operator_next_return(op, &at, &first) && fe_schema_is(first, FE_SCHEMA_TENSOR, 0) && !first.optional &&
           !fe_operator_next_return(op, &at, &more);
}

bool fe_operator_is_functional(const fe_operator *op)
{
    const char *at = NULL;
    fe_argument a;

    while (fe_operator_next_argument(op, &at, &a)) {
        if (a.written)
            return false;
    }
    return true;
}

const char *fe_schema_base_text(fe_schema_type t)
{
    static const char *const texts[] = {
#define X(id, letter, text) text,
        FE_SCHEMA_TYPES(X)
#undef X
    };

    return t.base < FE_SCHEMA_TYPE_COUNT ? texts[t.base] : "Any";
}

/* ---- the grammar of targets ---- */

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The length of the identifier at the start, 0 when there is none. */
static size_t identifier(const char *text, size_t len)
{
    size_t i = 0;

    while (i < len && (is_letter(text[i]) || (i && is_digit(text[i]))))
        i++;
    return i;
}

static bool is_magic(const char *word, size_t len)
{
    return len >= 4 && memcmp(word, "__", 2) == 0 && memcmp(word + len - 2, "__", 2) == 0;
}

static bool is_word(const char *word, size_t len, const char *want)
{
    return strlen(want) == len && memcmp(word, want, len) == 0;
}

/* Two or three names with dots between them. Attributes of torch.ops that are no namespaces don't count as such. */
static fe_target_spelling classify_operator(const char *text, size_t len)
{
    static const char *const methods[] = {"import_module", "load_library", "loaded_libraries"};
    const char *namespace = text;
    size_t namespace_len = 0, parts = 0;

    if (find(text, len)) /* with such names as aten.__and__.Scalar */
        return starts_with(text, len, "higher_order.", 13) ? FE_SPELLING_HIGHER_ORDER : FE_SPELLING_OPERATOR;
    for (;; text++, len--) {
        size_t word = identifier(text, len);
        if (!word || is_magic(text, word))
            return FE_SPELLING_BAD;
        if (!parts++)
            namespace_len = word;
        text += word;
        len -= word;
        if (!len)
            break;
        if (*text != '.')
            return FE_SPELLING_BAD;
    }
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        if (is_word(namespace, namespace_len, methods[i]))
            return FE_SPELLING_BAD;
    }
    if (parts == 2 && is_word(namespace, namespace_len, "higher_order"))
        return FE_SPELLING_HIGHER_ORDER;
    return parts == 2 || parts == 3 ? FE_SPELLING_OPERATOR : FE_SPELLING_BAD;
}

/* Behind the "#": names may have dots and dashes, as aten.add.Tensor has. */
static fe_target_spelling classify_extension(const char *text, size_t len)
{
    const char *colon = memchr(text, ':', len);

    if (!colon || colon == text || colon + 1 == text + len)
        return FE_SPELLING_BAD;
    for (size_t i = 0; i < len; i++) {
        if (!is_letter(text[i]) && !is_digit(text[i]) && text[i] != '.' && text[i] != '-' && text + i != colon)
            return FE_SPELLING_BAD;
    }
    return FE_SPELLING_EXTENSION;
}

fe_target_spelling fe_target_classify(const char *text, size_t len)
{
    const fe_operator *op;

    if (is_operator_text(text, len))
        return classify_operator(text + PREFIX_LEN, len - PREFIX_LEN);
    if (len && *text == '#')
        return classify_extension(text + 1, len - 1);
    op = find(text, len);
    return op && is_function(op) ? (fe_target_spelling)op->kind : FE_SPELLING_BAD;
}

/* The name of an operator without its overload, which is what its ending tells of. */
uint32_t fe_target_guess(const char *text, size_t len)
{
    size_t stem_len;
    const char *stem = fe_operator_stem(text, len, &stem_len);
    const char *dot = memchr(stem, '.', stem_len);
    size_t end = dot ? (size_t)(dot - stem) : stem_len;

    if (is_operator_text(text, len) && end >= 2 && stem[end - 1] == '_' && stem[end - 2] != '_')
        return FE_TARGET_UNKNOWN | FE_TARGET_MUTATES;
    return FE_TARGET_UNKNOWN;
}

const char *fe_operator_stem(const char *text, size_t len, size_t *out_len)
{
    bool is_operator = is_operator_text(text, len);
    size_t at = is_operator ? PREFIX_LEN : len;

    if (is_operator) { /* behind the first dot */
        while (at < len && text[at] != '.')
            at++;
        at = at < len ? at + 1 : PREFIX_LEN;
    } else { /* behind the last one, or the colon of an extension */
        bool is_extension = len && *text == '#';
        while (at && text[at - 1] != (is_extension ? ':' : '.'))
            at--;
    }
    *out_len = len - at;
    return text + at;
}
