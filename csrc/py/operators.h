/* operators.h - operators by their names, for the parts of the binding that take targets. */
#ifndef FE_OPERATORS_H
#define FE_OPERATORS_H

#include "module.h"

/* What a call_function node whose target is given as a string calls: fastexport._operators.operator_for(text), as a new
 * reference, when the string is spelled as the target of a call is; a new reference to target itself when it is no string
 * or is spelled otherwise. NULL with an exception. Runs Python code. */
PyObject *operator_or_same(PyObject *target);
/* What a target is in a torch.fx graph: for an Operator the function of torch that it names, else the target itself. A new
 * reference; NULL with an exception, a ValueError when torch has nothing of the name. Runs Python code. */
PyObject *operator_to_torch(PyObject *target);

extern PyMethodDef operator_functions[];

#endif
