"""The command line: fastexport VERB FILE. Data goes to stdout, progress and errors to stderr.

`verbs` is the table of verbs, each a module with `add`, which tells its arguments, and `run`, which does it and returns
the exit code. Only the module of the verb that is run is imported, so that a quick one stays quick.
"""
