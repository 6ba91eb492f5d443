"""The command fastexport in tests: in this process, which is quick, or as a process of its own."""

import contextlib
import io
import os
import subprocess
import sys
from types import SimpleNamespace

from fastexport._command.main import main


def result(*args, stdin=None):
    """What a command line gives in this process: (exit code, stdout, stderr)."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    kept, sys.stdin = sys.stdin, SimpleNamespace(buffer=io.BytesIO(stdin or b""))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([str(arg) for arg in args])
    finally:
        sys.stdin = kept
    out.flush()
    return code, out.buffer.getvalue().decode(), err.getvalue()


def run(*args, code=0, stdin=None):
    """The texts of a command line whose exit code is known: (stdout, stderr)."""
    got, out, err = result(*args, stdin=stdin)
    assert got == code, (out, err)
    return out, err


def process(*args, code=0, stdin=None, env=None, cwd=None):
    """The same as a process."""
    done = subprocess.run(
        [sys.executable, "-m", "fastexport", *map(str, args)],
        input=stdin,
        capture_output=True,
        env=os.environ | (env or {}),
        cwd=cwd,
    )
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout.decode(), done.stderr.decode()
