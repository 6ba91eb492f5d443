"""Modules that are there already: what a value may be an instance of, without importing what defines its class."""

from __future__ import annotations

import sys
from typing import Any


def loaded(name: str) -> Any:
    """A module that has been imported; None while it is not, or another thread is about to: nothing is of it then."""
    module = sys.modules.get(name)
    return None if getattr(getattr(module, "__spec__", None), "_initializing", False) else module
