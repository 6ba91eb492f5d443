/* identifier.c - what may stand as a name in code that torch writes; see texts.h. */
#include "texts.h"

static bool is_one_of(const char *name, size_t len, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strlen(words[i]) == len && memcmp(words[i], name, len) == 0)
            return true;
    }
    return false;
}

#define IS_ONE_OF(name, len, words) is_one_of(name, len, words, sizeof(words) / sizeof *(words))

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* Bytes of the well-formed UTF-8 character beyond ASCII that stands here and may count as a letter; 0: none. Controls,
 * blanks, punctuation and private characters are left out by range: U+00A0 to U+00BF but for the letters there, U+2000 to
 * U+206F, U+2E00 to U+303F but for U+3005 to U+3007, surrogates, U+E000 to U+F8FF, U+FE00 to U+FE6F, U+FF00 to U+FF0F,
 * and all above U+3FFFF. */
static size_t wide_letter(const unsigned char *s, size_t left)
{
    size_t n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : s[0] >= 0xc2 ? 2 : 0;
    uint32_t c;

    if (!n || n > left || s[0] > 0xf4)
        return 0;
    c = s[0] & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (s[i] & 0x3f);
    }
    if ((n == 3 && c < 0x800) || (n == 4 && c < 0x10000) || c > 0x3ffff)
        return 0;
    if (c < 0xc0)
        return c == 0xaa || c == 0xb5 || c == 0xb7 || c == 0xba ? n : 0;
    bool refused = c == 0xd7 || c == 0xf7 || (c >= 0x2000 && c <= 0x206f) || (c >= 0xd800 && c <= 0xf8ff) ||
                   (c >= 0x2e00 && c <= 0x303f && !(c >= 0x3005 && c <= 0x3007)) || (c >= 0xfe00 && c <= 0xfe6f) ||
                   (c >= 0xff00 && c <= 0xff0f);
    return refused ? 0 : n;
}

bool pt2_is_identifier(const char *name, size_t len)
{
    for (size_t i = 0; i < len;) {
        size_t n = is_letter(name[i]) || (i && is_digit(name[i])) ? 1 : 0;
        if (!n)
            n = wide_letter((const unsigned char *)name + i, len - i);
        if (!n)
            return false;
        i += n;
    }
    return len > 0;
}

bool pt2_is_keyword(const char *name, size_t len)
{
    static const char *const keywords[] = {"False",  "None",   "True",    "and",      "as",       "assert", "async",
                                           "await",  "break",  "class",   "continue", "def",      "del",    "elif",
                                           "else",   "except", "finally", "for",      "from",     "global", "if",
                                           "import", "in",     "is",      "lambda",   "nonlocal", "not",    "or",
                                           "pass",   "raise",  "return",  "try",      "while",    "with",   "yield"};

    return IS_ONE_OF(name, len, keywords);
}

const char *pt2_path_fault(const char *path, size_t len)
{
    if (!len)
        return "is empty";
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)path[i] < 0x20 || path[i] == 0x7f || strchr("\"'`\\", path[i]))
            return "has a quote, a backslash or a control character, with which it could break out of torch's code";
        if (path[i] == '.' && (!i || i + 1 == len || path[i + 1] == '.'))
            return "has an empty part";
    }
    return NULL;
}

const char *pt2_name_fault(const char *name, size_t len)
{
    if (!len)
        return "is empty";
    if (!pt2_is_identifier(name, len))
        return "is not an identifier";
    if (pt2_is_keyword(name, len))
        return "is a keyword of Python";
    if (len == 4 && memcmp(name, "self", 4) == 0)
        return "stands for the module itself";
    return NULL;
}

const char *pt2_subgraph_name_fault(const char *name, size_t len)
{
    /* Attributes of every torch.nn.Module and GraphModule (dir() of torch 2.13); names with __ at both ends beside. */
    static const char *const taken[] = {"T_destination",
                                        "add_module",
                                        "add_submodule",
                                        "apply",
                                        "bfloat16",
                                        "buffers",
                                        "call_super_init",
                                        "children",
                                        "code",
                                        "compile",
                                        "cpu",
                                        "cuda",
                                        "delete_all_unused_submodules",
                                        "delete_submodule",
                                        "double",
                                        "dump_patches",
                                        "eval",
                                        "extra_repr",
                                        "float",
                                        "forward",
                                        "get_buffer",
                                        "get_extra_state",
                                        "get_parameter",
                                        "get_submodule",
                                        "graph",
                                        "half",
                                        "ipu",
                                        "load_state_dict",
                                        "meta",
                                        "modules",
                                        "mtia",
                                        "named_buffers",
                                        "named_children",
                                        "named_modules",
                                        "named_parameters",
                                        "parameters",
                                        "print_readable",
                                        "recompile",
                                        "register_backward_hook",
                                        "register_buffer",
                                        "register_forward_hook",
                                        "register_forward_pre_hook",
                                        "register_full_backward_hook",
                                        "register_full_backward_pre_hook",
                                        "register_load_state_dict_post_hook",
                                        "register_load_state_dict_pre_hook",
                                        "register_module",
                                        "register_parameter",
                                        "register_state_dict_post_hook",
                                        "register_state_dict_pre_hook",
                                        "requires_grad_",
                                        "set_extra_state",
                                        "set_submodule",
                                        "share_memory",
                                        "shape_env",
                                        "state_dict",
                                        "to",
                                        "to_empty",
                                        "to_folder",
                                        "train",
                                        "training",
                                        "type",
                                        "xpu",
                                        "zero_grad",
                                        "_parameters",
                                        "_buffers",
                                        "_modules",
                                        "_non_persistent_buffers_set",
                                        "_backward_hooks",
                                        "_backward_pre_hooks",
                                        "_forward_hooks",
                                        "_forward_pre_hooks",
                                        "_state_dict_hooks",
                                        "_state_dict_pre_hooks",
                                        "_load_state_dict_pre_hooks",
                                        "_load_state_dict_post_hooks",
                                        "_is_full_backward_hook",
                                        "_forward_hooks_with_kwargs",
                                        "_forward_hooks_always_called",
                                        "_forward_pre_hooks_with_kwargs",
                                        "_apply",
                                        "_call_impl",
                                        "_code",
                                        "_codegen",
                                        "_compiled_call_impl",
                                        "_get_backward_hooks",
                                        "_get_backward_pre_hooks",
                                        "_get_name",
                                        "_graph",
                                        "_load_from_state_dict",
                                        "_maybe_warn_non_full_backward_hook",
                                        "_named_members",
                                        "_register_load_state_dict_pre_hook",
                                        "_register_state_dict_hook",
                                        "_replicate_for_data_parallel",
                                        "_save_to_state_dict",
                                        "_set_grad",
                                        "_slow_forward",
                                        "_version",
                                        "_wrapped_call_impl"};
    const char *fault = pt2_name_fault(name, len);

    if (fault)
        return fault;
    if (IS_ONE_OF(name, len, taken) || (len > 4 && memcmp(name, "__", 2) == 0 && memcmp(name + len - 2, "__", 2) == 0))
        return "is an attribute that every module has";
    return NULL;
}
