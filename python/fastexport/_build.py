"""Whether the extension was built from the C sources that stand beside this package.

Python files that meet an extension of another version would compute wrong, or crash. An installed package comes as a
whole, but in a checkout of the repository the sources move on without the extension. So that an import stays cheap,
sources are read only when one of them is newer than the extension. setup.py has the same hash compiled in.
"""

from __future__ import annotations

import os
from typing import Any

_FOLDERS = ("core", "pt2", "py")
_HINT = "build it with `python setup.py build_ext --inplace` or `pip install .` in the folder that has setup.py"


def sources(root: str) -> list[str]:
    """The paths of all C sources below a folder, in order.

    Raises:
        OSError: it is no checkout of the repository.
    """
    folders = [os.path.join(root, "csrc", name) for name in _FOLDERS]
    names = [(folder, name) for folder in folders for name in sorted(os.listdir(folder))]
    return [os.path.join(folder, name) for folder, name in names if name.endswith((".c", ".h", ".inc"))]


def sources_hash(root: str) -> str:
    """A text that tells the C sources below a folder from any others.

    Raises:
        OSError: it is no checkout of the repository.
    """
    from hashlib import sha256

    state = sha256()
    for path in sources(root):
        with open(path, "rb") as file:
            text = file.read()
        state.update(f"{os.path.relpath(path, root)} {len(text)}\n".encode() + text)
    return state.hexdigest()[:16]


def check(core: Any, root: str) -> None:
    """Refuse an extension that was built from other sources.

    Args:
        core: the extension; one that was built without setup.py can't be checked.
        root: the folder that has setup.py, if there is one.

    Raises:
        ImportError: it is of another version.
    """
    try:
        built = os.stat(core.__file__).st_mtime_ns
        is_newer = any(os.stat(path).st_mtime_ns > built for path in sources(root))
        is_other = is_newer and core.build != sources_hash(root)
    except OSError:  # no checkout
        return
    if is_other:
        raise ImportError(
            f"the extension {core.__file__} was built from other sources than those in {os.path.join(root, 'csrc')}; "
            + _HINT
        )


def explain(error: ImportError | AttributeError) -> ImportError:
    """What to raise when the extension can't be loaded."""
    return ImportError(f"the extension fastexport._core can't be loaded ({error}); {_HINT}")
