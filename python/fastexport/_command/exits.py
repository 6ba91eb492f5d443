"""Exit codes of the command, and what ends it with one of them."""

from __future__ import annotations

from collections.abc import Sequence

CLEAN = 0  # nothing found, or no difference
FOUND = 1  # findings, or a difference
UNREADABLE = 2  # wrong usage, or a file that can't be read
INTERNAL = 3  # an error of our own
INTERRUPTED = 130  # as a shell tells of what Ctrl-C has ended
NO_READER = 141  # as it tells of what SIGPIPE has ended: the output was not read to its end

_FEW = 12  # names that a message lists

EPILOG = (
    "Exit codes: 0 clean or same, 1 findings or different, 2 usage or unreadable file, 3 internal error, "
    "130 interrupted, 141 the reader of the output has gone."
)


class Refused(Exception):
    """What is asked for can't be done; the message says why. No output is written then.

    Args:
        message: what is said of it.
        code: the exit code.
    """

    def __init__(self, message: object, code: int = UNREADABLE) -> None:
        super().__init__(message)
        self.code = code


def unknown(message: str, names: Sequence[str], name: str, lister: str = "") -> Refused:
    """What is said of a name that is unknown: also which ones are like it, or which there are.

    Args:
        message: that it is unknown.
        names: those that there are.
        name: the unknown one.
        lister: the command that lists them, for when they are many.
    """
    import difflib

    close = difflib.get_close_matches(name, names, 3)
    if close:
        return Refused(f"{message}; did you mean {', '.join(close)}?")
    if len(names) <= _FEW:
        return Refused(f"{message}; there {'is' if len(names) == 1 else 'are'} {', '.join(names) or 'none'}")
    return Refused(f"{message}; `{lister}` lists them" if lister else message)
