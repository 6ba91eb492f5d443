"""Exit codes of the command."""

from __future__ import annotations

CLEAN = 0  # nothing found, or no difference
FOUND = 1  # findings, or a difference
UNREADABLE = 2  # wrong usage, or a file that can't be read
INTERNAL = 3  # an error of our own
INTERRUPTED = 130  # as a shell tells of what Ctrl-C has ended

EPILOG = "Exit codes: 0 clean or same, 1 findings or different, 2 usage or unreadable file, 3 internal error."
