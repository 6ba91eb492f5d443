"""Files that take their names only when they are whole: what was there before stays until then."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# What is open already, by name: nothing can be put in its place.
_STREAM = re.compile(r"/dev/(fd/|std(in|out|err)$)|/proc/")


@contextmanager
def replacing(path: str | bytes | os.PathLike[str]) -> Iterator[str]:
    """A name to write to, which takes the name of a file at the end, or goes when anything fails.

    A link stays one, and a pipe or device is written to. The disk holds the file before it takes its name.

    Raises:
        OSError: the file can't be written; it names the path that was asked for, whatever was tried instead.
    """
    import tempfile

    asked = os.fsdecode(path)
    try:
        target = _target_of(asked)
        folder = None if target is None else os.path.dirname(target)
        descriptor, name = tempfile.mkstemp(dir=folder, prefix=".fastexport-")
    except OSError as error:
        raise _of(error, asked) from None
    os.close(descriptor)
    try:
        yield name
        if target is None:
            _pour(name, asked)
        else:
            os.chmod(name, _mode_of(target))
            _flush(name)
            os.replace(name, target)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(name)
        if isinstance(error, OSError) and error.filename in (name, target, None):
            raise _of(error, asked) from None
        raise


def write_file(path: str | bytes | os.PathLike[str], data: bytes) -> None:
    """Write a file of text or the like, which takes its name only when it is whole.

    Raises:
        FileExistsError: the file is a program, whose place a text is not to take.
        OSError: it can't be written; what was there is unchanged.
    """
    keep_program(path)
    with replacing(path) as name:
        with open(name, "wb") as file:
            file.write(data)


def keep_program(path: str | bytes | os.PathLike[str]) -> None:
    """See that no program is lost for a text.

    Raises:
        FileExistsError: there is a program at that path, or a file that is called like one.
    """
    from fastexport._program import is_pt2

    name = os.fsdecode(path)
    if os.path.isfile(name) and (os.path.realpath(name).endswith(".pt2") or is_pt2(name)):
        raise FileExistsError(f"{name} is a .pt2 file, which is not overwritten: write to another, or remove it first")


def _target_of(path: str) -> str | None:
    """The file whose place is taken; None of a pipe, a device or a stream, which is written to."""
    import stat

    if _STREAM.match(os.path.abspath(path)):
        return None
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    if stat.S_ISDIR(mode):
        raise IsADirectoryError("this is a folder, not a file")
    return os.path.realpath(path) if stat.S_ISREG(mode) else None


def _mode_of(path: str) -> int:
    """The rights of the file that is there, or those that a new one gets."""
    import stat

    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except FileNotFoundError:
        umask = os.umask(0)
        os.umask(umask)
        return 0o666 & ~umask


def _pour(name: str, path: str) -> None:
    import shutil

    with open(name, "rb") as file, open(path, "wb") as stream:
        shutil.copyfileobj(file, stream)
    os.unlink(name)


def _flush(name: str) -> None:
    """Have the disk hold a file."""
    descriptor = os.open(name, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _of(error: OSError, path: str) -> OSError:
    """The error as one of the path that was asked for."""
    if error.errno is None:
        return type(error)(f"{path}: {error}")
    return OSError(error.errno, error.strerror, path)
