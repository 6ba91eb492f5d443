"""Files that take their names only when they are whole: what was there before stays until then.

A file is written in a folder of its own, which nobody else can read, beside the file whose place it takes. So new files
have the rights that the system gives to new ones, and a process that is ended can take away all that it has begun.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

# What is open already, by name: nothing can be put in its place.
_STREAM = re.compile(r"/dev/(fd/|std(in|out|err)$)|/proc/")
_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/(\d{1,9})|/dev/(stdin|stdout|stderr)")

_unfinished: set[str] = set()  # folders with files that are not whole


@contextmanager
def replacing(path: str | bytes | os.PathLike[str]) -> Iterator[str]:
    """A name to write to, which takes the name of a file at the end, or goes when anything fails.

    A link stays one, and a pipe or device is written to. The disk holds the file before it takes its name.

    Raises:
        OSError: the file can't be written; it names the path that was asked for, whatever was tried instead.
    """
    asked = os.fsdecode(path)
    target: str | None = ""
    folder = name = ""
    try:
        target = _target_of(asked)
        folder = _name_of_folder(target)
        _unfinished.add(folder)
        os.mkdir(folder, 0o700)
        name = os.path.join(folder, os.path.basename(target or asked))
        yield name
        if target is None:
            _pour(name, asked)
        else:
            _take_rights(name, target)
            _flush(name)
            os.replace(name, target)
    except OSError as error:
        if error.filename in (name, folder, target, None):
            raise _of(error, asked) from None
        raise
    finally:
        _discard(folder)


def discard_all() -> None:
    """Take away what is not whole, from another thread than the one that writes it, before the process is ended."""
    for folder in list(_unfinished):
        _discard(folder)


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


def refuse_url(path: str | bytes) -> None:
    """See that a file could be at a path: only files are written.

    Raises:
        OSError: it is a URL. A file here whose name looks like one is none.
    """
    from fastexport._remote import is_url

    name = os.fsdecode(path)
    if is_url(name) and not os.path.isdir(os.path.dirname(name) or os.curdir):
        raise OSError(errno.EROFS, "a URL can be read, but not written: write a file, and copy it there", name)


def _target_of(path: str) -> str | None:
    """The file whose place is taken; None of a pipe, a device or a stream, which is written to."""
    import stat

    if not path:
        raise _system_error(errno.ENOENT)
    if _STREAM.match(os.path.abspath(path)):
        return None
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        refuse_url(path)
        mode = stat.S_IFDIR if path.endswith(os.sep) else stat.S_IFREG
    else:
        if stat.S_ISREG(mode) and not os.access(path, os.W_OK):
            raise _system_error(errno.EACCES)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError("this is a folder, not a file")
    return os.path.realpath(path) if stat.S_ISREG(mode) else None


def _name_of_folder(target: str | None) -> str:
    """A name that no folder has: beside a file, or where the system has its temporary ones."""
    if target is None:
        import tempfile

        parent = tempfile.gettempdir()
    else:
        parent = os.path.dirname(target)
    return os.path.join(parent, f".fastexport-{os.urandom(8).hex()}")


def _discard(folder: str) -> None:
    with suppress(OSError):
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)
    _unfinished.discard(folder)


def _take_rights(name: str, target: str) -> None:
    """Give a file the rights of the one whose place it takes, if there is one."""
    with suppress(FileNotFoundError):
        os.chmod(name, os.stat(target).st_mode & 0o777)


def _pour(name: str, path: str) -> None:
    import shutil

    with open(name, "rb") as file, _opened(path) as stream:
        shutil.copyfileobj(file, stream)


def _opened(path: str) -> BinaryIO:
    """A pipe, device or stream. One that is open goes on from where it is: opened by name, a file would begin anew."""
    number = descriptor_of(path)
    if number is None:
        return open(path, "wb")
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    return os.fdopen(os.dup(number), "wb")


def descriptor_of(path: str) -> int | None:
    """The number of the descriptor that a path is another name of, such as /dev/stdout, or None."""
    match = _DESCRIPTOR.fullmatch(os.path.abspath(path))
    return match and int(match[1] or ("stdin", "stdout", "stderr").index(match[2]))


def _flush(name: str) -> None:
    """Have the disk hold a file."""
    descriptor = os.open(name, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _system_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def _of(error: OSError, path: str) -> OSError:
    """The error as one of the path that was asked for."""
    if error.errno is None:
        return type(error)(f"{path}: {error}")
    return OSError(error.errno, error.strerror, path)
