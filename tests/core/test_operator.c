/* test_operator.c - the generated table of operators, and the spellings of targets. What torch says of each operator is
 * compared with the table in tests/test_operators.py. */
#include "check.h"
#include "operator.h"

static const fe_operator *find(const char *text)
{
    return fe_operator_find(text, strlen(text));
}

static fe_target_spelling classify(const char *text)
{
    return fe_target_classify(text, strlen(text));
}

static void test_rows(void)
{
    const char *before = "";

    CHECK(fe_operator_count() > 4300);
    CHECK(fe_operator_at(fe_operator_count()) == NULL);
    for (uint32_t i = 0; i < fe_operator_count(); i++) {
        const fe_operator *op = fe_operator_at(i);
        const char *name = fe_operator_name(op), *at = NULL;
        char full[300];
        fe_argument a;
        fe_schema_type t;

        CHECK(strcmp(before, name) < 0);
        CHECK_INT(strlen(name), op->name_len);
        CHECK(find(name) == op);
        bool is_operator = op->kind == FE_SPELLING_OPERATOR || op->kind == FE_SPELLING_HIGHER_ORDER;
        snprintf(full, sizeof full, FE_OPERATOR_PREFIX "%s", name);
        CHECK(find(full) == (is_operator ? op : NULL));
        CHECK_INT(classify(is_operator ? full : name), op->kind);
        if (is_operator)
            CHECK_INT(classify(name), FE_SPELLING_BAD);
        CHECK(fe_operator_has_schema(op) == (op->kind == FE_SPELLING_OPERATOR || op->kind == FE_SPELLING_SYM));
        for (int k = 0; fe_operator_next_argument(op, &at, &a); k++) {
            CHECK(a.name_len > 0 && a.type.base < FE_SCHEMA_TYPE_COUNT && a.type.base != FE_SCHEMA_NONE);
            int index = fe_operator_argument(op, a.name, a.name_len, NULL);
            if (strcmp(name, "static_runtime.clamp_nan_to_num.default") != 0) /* has posinf twice */
                CHECK_INT(index, k);
            CHECK(fe_operator_positional(op, a.name, a.name_len) == (!a.has_default && !a.keyword_only));
        }
        at = NULL;
        while (fe_operator_next_return(op, &at, &t))
            CHECK(t.base < FE_SCHEMA_TYPE_COUNT);
        before = name;
    }
}

static void test_find(void)
{
    static const char *const absent[] = {
        "",
        "torch.ops.",
        "torch.ops.aten",
        "torch.ops.aten.add",
        "torch.ops._operator.add",
        "aten.add.tensor",
        "add",
        "aten..add",
        "add.Tensor",
        "torch.ops.aten.add.Tenso",
        "torch.ops.aten.add.TensorX",
        "operator.add",
        "torch",
        "cond",
        "math.sqrt",
        "torch.ops.math.trunc",
    };
    char huge[1000];

    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        CHECK(find(absent[i]) == NULL);
    memset(huge, 'a', sizeof huge);
    CHECK(fe_operator_find(huge, sizeof huge) == NULL);
    CHECK(fe_operator_find("aten.add.Tensor\0x", 17) == NULL);
    CHECK(fe_operator_find("aten.add.Tensor and more", 15) == find("aten.add.Tensor"));
    CHECK(find("torch.ops.aten.add.Tensor") == find("aten.add.Tensor") && find("aten.add.Tensor"));
    CHECK(find("_operator.add") && find("math.trunc") && find("torch._sym_sqrt"));
    CHECK_TEXT(fe_operator_torch(), "2.13.0");
}

static void test_flags(void)
{
    CHECK_INT(find("aten.add.Tensor")->flags, 0);
    CHECK_INT(find("aten.add_.Tensor")->flags & FE_TARGET_MUTATES, FE_TARGET_MUTATES);
    CHECK_INT(find("aten.rand.default")->flags, FE_TARGET_RANDOM | FE_TARGET_FX_RANDOM);
    CHECK_INT(find("aten._assert_scalar.default")->flags & FE_TARGET_NO_RESULT, FE_TARGET_NO_RESULT);
    CHECK_INT(find("higher_order.cond")->flags, FE_TARGET_PER_NODE);
    CHECK_INT(find("_operator.getitem")->flags, FE_TARGET_GETITEM);
    CHECK(!fe_operator_is_functional(find("aten.add_.Tensor")));
    CHECK(!fe_operator_is_functional(find("aten.add.out")));
    CHECK(fe_operator_is_functional(find("aten.add.Tensor")));
}

static void test_schema(void)
{
    const fe_operator *add = find("aten.add.Tensor"), *norm = find("aten.native_layer_norm.default");
    const char *at = NULL;
    fe_argument a;
    fe_schema_type t;

    CHECK_INT(fe_operator_argument_count(add), 3);
    CHECK_INT(fe_operator_return_count(add), 1);
    CHECK(fe_operator_returns_one_tensor(add) && !fe_operator_returns_one_tensor(norm));
    CHECK_INT(fe_operator_return_count(norm), 3);
    CHECK(fe_operator_positional(add, "other", 5));
    CHECK(!fe_operator_positional(add, "alpha", 5));
    CHECK(!fe_operator_positional(add, "nothing", 7));
    CHECK_INT(fe_operator_argument(add, "alpha", 5, &a), 2);
    CHECK(a.type.base == FE_SCHEMA_SCALAR && a.has_default && a.keyword_only && !a.written);
    CHECK_INT(fe_operator_argument(add, "alp", 3, &a), -1);

    CHECK_INT(fe_operator_argument(find("aten.add.out"), "out", 3, &a), 3);
    CHECK(a.written && a.keyword_only && !a.has_default);
    CHECK_INT(fe_operator_argument(find("aten.index.Tensor"), "indices", 7, &a), 1);
    CHECK(fe_schema_is(a.type, FE_SCHEMA_TENSOR, 1) && a.type.optional_items && !a.type.optional);
    CHECK_INT(fe_operator_argument(find("aten.sum.dim_IntList"), "dim", 3, &a), 1);
    CHECK(fe_schema_is(a.type, FE_SCHEMA_INT, 1) && a.type.optional && !a.type.optional_items);
    CHECK(fe_operator_next_return(find("aten.split.Tensor"), &at, &t));
    CHECK(fe_schema_is(t, FE_SCHEMA_TENSOR, 1) && !t.optional);
    CHECK_TEXT(fe_schema_base_text(t), "Tensor");
    CHECK(!fe_operator_next_return(find("aten.split.Tensor"), &at, &t));
    CHECK_INT(fe_operator_return_count(find("aten._assert_scalar.default")), 0);
    CHECK(!fe_operator_returns_one_tensor(find("aten._assert_scalar.default")));
    CHECK(!fe_operator_returns_one_tensor(find("aten.sym_size.int")));
    CHECK_INT(fe_operator_argument(find("torch.sym_ite"), "t", 1, NULL), 1);
}

static void test_spellings(void)
{
    static const struct {
        const char *text;
        fe_target_spelling spelling;
    } cases[] = {
        {"torch.ops.aten.add.Tensor", FE_SPELLING_OPERATOR},
        {"torch.ops.aten.__and__.Scalar", FE_SPELLING_OPERATOR},
        {"torch.ops.aten.nosuch.default", FE_SPELLING_OPERATOR},
        {"torch.ops.aten.add", FE_SPELLING_OPERATOR},
        {"torch.ops.my_ns.op_2.out1", FE_SPELLING_OPERATOR},
        {"torch.ops.higher_order.cond", FE_SPELLING_HIGHER_ORDER},
        {"torch.ops.higher_order.unheard_of", FE_SPELLING_HIGHER_ORDER},
        {"_operator.add", FE_SPELLING_SYM},
        {"_operator.and_", FE_SPELLING_SYM},
        {"math.trunc", FE_SPELLING_SYM},
        {"torch.sym_max", FE_SPELLING_SYM},
        {"torch._sym_sqrt", FE_SPELLING_SYM},
        {"_operator.getitem", FE_SPELLING_FUNCTION},
        {"torch._C._set_grad_enabled", FE_SPELLING_FUNCTION},
        {"torch._functorch.predispatch._add_batch_dim", FE_SPELLING_FUNCTION},
        {"torch.amp.autocast_mode._enter_autocast", FE_SPELLING_FUNCTION},
        {"#evil:op", FE_SPELLING_EXTENSION},
        {"#edge:aten.add.Tensor", FE_SPELLING_EXTENSION},
        {"", FE_SPELLING_BAD},
        {"torch..ops", FE_SPELLING_BAD},
        {"torch.ops", FE_SPELLING_BAD},
        {"torch.ops.", FE_SPELLING_BAD},
        {"torch.ops.aten", FE_SPELLING_BAD},
        {"torch.ops.aten.", FE_SPELLING_BAD},
        {"torch.ops..add.Tensor", FE_SPELLING_BAD},
        {"torch.ops.aten.add.Tensor.", FE_SPELLING_BAD},
        {"torch.ops.aten.add.Tensor.x", FE_SPELLING_BAD},
        {"torch.ops.aten.add.Tensor ", FE_SPELLING_BAD},
        {"torch.ops.aten.add.2", FE_SPELLING_BAD},
        {"torch.ops.aten.add()", FE_SPELLING_BAD},
        {"torch.ops.aten.add.\xc3\xa9", FE_SPELLING_BAD},
        {"torch.ops.__class__.mro.x", FE_SPELLING_BAD},
        {"torch.ops.aten.__class__", FE_SPELLING_BAD},
        {"torch.ops.load_library.x", FE_SPELLING_BAD},
        {"torch.ops.aten.__and__.Scalars", FE_SPELLING_BAD},
        {"aten.add.Tensor", FE_SPELLING_BAD},
        {"higher_order.cond", FE_SPELLING_BAD},
        {"os.system", FE_SPELLING_BAD},
        {"torch.os.mkdir", FE_SPELLING_BAD},
        {"torch.hub.load", FE_SPELLING_BAD},
        {"math.__loader__.load_module", FE_SPELLING_BAD},
        {"_operator.__import__", FE_SPELLING_BAD},
        {"_operator.call", FE_SPELLING_BAD},
        {"builtins.round", FE_SPELLING_BAD},
        {"__import__('os')", FE_SPELLING_BAD},
        {"#", FE_SPELLING_BAD},
        {"#:", FE_SPELLING_BAD},
        {"#a:", FE_SPELLING_BAD},
        {"#:b", FE_SPELLING_BAD},
        {"#ab", FE_SPELLING_BAD},
        {"#a:b:c", FE_SPELLING_BAD},
        {"#a:b c", FE_SPELLING_BAD},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (classify(cases[i].text) != cases[i].spelling)
            printf("'%s'\n", cases[i].text);
        CHECK_INT(classify(cases[i].text), cases[i].spelling);
    }
    CHECK_INT(fe_target_classify("torch.ops.aten.add\0.Tensor", 26), FE_SPELLING_BAD);
    CHECK_INT(fe_target_classify("_operator.add and more", 13), FE_SPELLING_SYM);
}

/* No text makes a look-up read past its end: each prefix stands in a block of just its size. */
static void test_prefixes(void)
{
    static const char *const texts[] = {"torch.ops.aten.__and__.Scalar", "#ns:name",
                                        "torch._functorch.predispatch._add_batch_dim"};

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        for (size_t len = 0; len <= strlen(texts[i]); len++) {
            char *copy = malloc(len ? len : 1);
            size_t stem_len;
            CHECK(copy);
            memcpy(copy, texts[i], len);
            fe_target_spelling spelling = fe_target_classify(copy, len);
            CHECK(fe_operator_find(copy, len) == NULL || spelling != FE_SPELLING_BAD || len < 10);
            const char *stem = fe_operator_stem(copy, len, &stem_len);
            CHECK(stem >= copy && stem + stem_len == copy + len);
            CHECK(fe_target_guess(copy, len) & FE_TARGET_UNKNOWN);
            free(copy);
        }
    }
}

static void test_guesses(void)
{
    static const struct {
        const char *text;
        bool writes;
    } cases[] = {
        {"torch.ops.ns.add_.Tensor", true},  {"torch.ops.ns.add_", true},    {"torch.ops.ns.add.Tensor_", false},
        {"torch.ops.ns.__x__.y", false},     {"torch.ops.ns._.y", false},    {"torch.ops.ns.add.Tensor", false},
        {"torch.ops.higher_order.f_", true}, {"torch.ops.ns_.add.x", false}, {"#ns:add_", false},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t guess = fe_target_guess(cases[i].text, strlen(cases[i].text));
        CHECK_INT(guess, FE_TARGET_UNKNOWN | (cases[i].writes ? FE_TARGET_MUTATES : 0));
    }
}

static void test_stems(void)
{
    static const char *const cases[][2] = {
        {"torch.ops.aten.topk.default", "topk.default"},
        {"torch.ops.higher_order.cond", "cond"},
        {"torch.ops.aten.add", "add"},
        {"_operator.add", "add"},
        {"torch._sym_sqrt", "_sym_sqrt"},
        {"torch._functorch.predispatch._add_batch_dim", "_add_batch_dim"},
        {"#edge:aten.add.Tensor", "aten.add.Tensor"},
        {"relu", "relu"},
        {"", ""},
    };
    char stem[64];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t len;
        const char *at = fe_operator_stem(cases[i][0], strlen(cases[i][0]), &len);
        memcpy(stem, at, len);
        stem[len] = '\0';
        CHECK_TEXT(stem, cases[i][1]);
    }
}

int main(void)
{
    RUN(test_rows);
    RUN(test_find);
    RUN(test_flags);
    RUN(test_schema);
    RUN(test_spellings);
    RUN(test_prefixes);
    RUN(test_guesses);
    RUN(test_stems);
    return 0;
}
