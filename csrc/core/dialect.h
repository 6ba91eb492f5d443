/* dialect.h - what torch.export asks of a program beyond a sound graph: operators, attributes, values, signature.
 *
 * What the core can't see (whether a dialect allows a target, what a node's value is, which weights there are) the owner
 * tells beforehand, as one byte for each target, node, input and output. So the check itself is a walk over arrays that
 * runs nobody's code, and the facts about a target are found out once, however many nodes call it.
 *
 * Faults are reported in the order in which torch's verifier would meet them.
 */
#ifndef FE_DIALECT_H
#define FE_DIALECT_H

#include "pass.h"

/* ---- dialect.c: the nodes of one graph ---- */

/* About a target: of call_function what the operator is to the dialect, of get_attr what it leads to. */
typedef enum {
    FE_FACT_ALLOWED = 1 << 0,   /* of a type, or on a list, that the dialect allows */
    FE_FACT_WRITES = 1 << 1,    /* an operator whose schema says that it writes to an argument */
    FE_FACT_NO_RESULT = 1 << 2, /* an operator that returns nothing: it may do without a value */
    FE_FACT_REFUSED = 1 << 3,   /* the dialect's own check says no */
    FE_FACT_MISSING = 1 << 4,   /* get_attr: the module has nothing there */
} fe_target_fact;

/* About the value of a node that has one: call_function and placeholder. */
typedef enum { FE_VALUE_NONE, FE_VALUE_FINE, FE_VALUE_BAD } fe_value_fact;

#define FE_DIALECT_FAULTS(X)                                                          \
    X(METHOD)        /* a call of a method or module */                               \
    X(TARGET_TYPE)   /* a target that is no callable, or no string */                 \
    X(NO_VALUE)      /* no value is noted at the node */                              \
    X(BAD_VALUE)     /* what is noted can't be a value */                             \
    X(NOT_ALLOWED)   /* neither a kind of operator nor a function of the dialect */   \
    X(WRITES)        /* an operator that writes, where only functional ones may be */ \
    X(REFUSED)       /* see FE_FACT_REFUSED */                                        \
    X(NO_ATTRIBUTE)  /* see FE_FACT_MISSING */                                        \
    X(BAD_ATTRIBUTE) /* of a type that the dialect does not allow there */            \
    X(AFTER_OUTPUT)  /* a node behind the output; other: the output */

typedef enum {
#define X(id) FE_DIALECT_##id,
    FE_DIALECT_FAULTS(X)
#undef X
        FE_DIALECT_FAULT_COUNT
} fe_dialect_fault;

typedef struct {
    const uint8_t *targets; /* fe_target_fact bits, by target */
    const uint8_t *values;  /* fe_value_fact, by node; NULL: values are not looked at */
    bool functional;        /* no operator may write to its arguments */
} fe_dialect_facts;

/* Report what the dialect forbids; at most one fault unless `all`. -1 only when memory runs out. */
int fe_check_dialect(const fe_graph *g, const fe_dialect_facts *facts, bool all, fe_report *faults,
                     fe_error *err) FE_MUST_CHECK;
const char *fe_dialect_fault_name(fe_dialect_fault fault);

/* ---- dialect_signature.c: the signature of a program's own graph ---- */

/* The class of the argument that stands for an input or output. */
typedef enum {
    FE_ARGUMENT_TENSOR,
    FE_ARGUMENT_SYM_INT,
    FE_ARGUMENT_SYM_FLOAT,
    FE_ARGUMENT_SYM_BOOL,
    FE_ARGUMENT_CONSTANT,
    FE_ARGUMENT_CUSTOM_OBJ,
    FE_ARGUMENT_TOKEN,
    FE_ARGUMENT_CLASS = 7, /* mask */
} fe_argument_class;

/* About an input or output, beside the class of its argument. */
typedef enum {
    FE_SPEC_IN_STATE = 1 << 3,       /* the state dict has its target */
    FE_SPEC_IS_PARAMETER = 1 << 4,   /* and what it has is a parameter */
    FE_SPEC_IN_CONSTANTS = 1 << 5,   /* the constants have its target */
    FE_SPEC_NO_PERSISTENCE = 1 << 6, /* a buffer that is neither persistent nor not */
    FE_SPEC_OBJECT = 1 << 7,         /* an output whose constant is an object, which the core does not have */
} fe_spec_fact;

#define FE_SIGNATURE_FAULTS(X)                                                                 \
    X(INPUT_COUNT)        /* as many inputs as placeholders */                                 \
    X(INPUT_NAME)         /* an input that is another placeholder than the one in its place */ \
    X(INPUT_CLASS)        /* of another class than its kind demands */                         \
    X(INPUT_TARGET)       /* a weight, constant or object without a name */                    \
    X(PARAMETER_MISSING)  /* in the state dict */                                              \
    X(PARAMETER_TYPE)     /* the state dict has something else */                              \
    X(BUFFER_PERSISTENCE) /* it is not told */                                                 \
    X(BUFFER_MISSING)     /* neither in the state dict nor among the constants */              \
    X(BUFFER_IN_STATE)    /* though it is not persistent */                                    \
    X(CONSTANT_MISSING)   /* among the constants: a tensor or an object */                     \
    X(NO_OUTPUT)          /* the last node is no output */                                     \
    X(OUTPUT_FORM)        /* the output does not return a sequence */                          \
    X(OUTPUT_COUNT)       /* as many outputs as results */                                     \
    X(OUTPUT_CLASS)       /* of another class than its kind demands */                         \
    X(MUTATION_TARGET)    /* what is updated is no input of that kind */                       \
    X(MUTATION_RESULT)    /* a result in the place of an update that no output speaks of */    \
    X(USER_OUTPUT)        /* another result than the one in its place */                       \
    X(USER_CONSTANT)      /* likewise, of objects that the core can't compare: the owner has to */

typedef enum {
#define X(id) FE_SIGNATURE_##id,
    FE_SIGNATURE_FAULTS(X)
#undef X
        FE_SIGNATURE_FAULT_COUNT
} fe_signature_fault;

typedef struct {
    const uint8_t *inputs, *outputs; /* fe_argument_class with fe_spec_fact bits, by input and output */
} fe_signature_facts;

/* Report how the signature differs from the graph and the weights; at most one fault unless `all`. A record's node is
 * the index of the input or output, its other the index of the result, where there is one; the graph must have a
 * signature. Names are compared as texts, so the graph's must be unique. -1 only when memory runs out. */
int fe_check_signature(const fe_graph *g, const fe_signature_facts *facts, bool all, fe_report *faults,
                       fe_error *err) FE_MUST_CHECK;
const char *fe_signature_fault_name(fe_signature_fault fault);

#endif
