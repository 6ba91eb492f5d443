"""The table of replacements, gathered from the modules that hold them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

from fastexport.acceleration._replacement import Replacement

# Modules with a tuple REPLACEMENTS. They import torch, but torchao only inside of functions.
_FAMILIES: tuple[str, ...] = (
    "_recompile",
    "_graphs",
    "_copies",
    "_export",
    "_archives",
    "_serialization",
    "_graph_serialization",
    "_matching",
    "_qat",
    "_partitions",
    "_observers",
    "_members",
    "_folding",
    "_annotations",
)


class Table(Mapping[str, Replacement]):
    """Name -> `Replacement`; printed, one line each with state, hits and what it does."""

    def __init__(self, entries: tuple[Replacement, ...]) -> None:
        self._entries = {entry.name: entry for entry in entries}
        if len(self._entries) != len(entries):
            raise ValueError("two replacements have the same name")

    def __getitem__(self, name: str) -> Replacement:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        rows = [("name", "state", "hits", "asides", "what it does")]
        for entry in self._entries.values():
            state = "n/a" if entry.unavailable else "on" if entry.enabled else "off"
            rows.append((entry.name, state, str(entry.hits), str(entry.asides), entry.unavailable or entry.summary))
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        return "\n".join(
            f"{name:<{widths[0]}}  {state:<{widths[1]}}  {hits:>{widths[2]}}  {asides:>{widths[3]}}  {text}"
            for name, state, hits, asides, text in rows
        )


def gather() -> tuple[Replacement, ...]:
    """The replacements of every module, in the order of the table."""
    families = [importlib.import_module(f"fastexport.acceleration.{name}") for name in _FAMILIES]
    return tuple(entry for family in families for entry in family.REPLACEMENTS)
