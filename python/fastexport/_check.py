"""The verbs check and explain: findings with stable codes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fastexport import _core
from fastexport._codes import EXPLANATIONS
from fastexport._errors import Fault, FileError, FormatError
from fastexport._terminal import Progress, colour, complain_of_name, escape, write, write_json

if TYPE_CHECKING:
    from fastexport._program import ExportedProgram, Level

_CLEAN, _FOUND, _UNREADABLE = 0, 1, 2
_RED, _YELLOW = 31, 33


def check(options: Any, load: Callable[[str, str | None], ExportedProgram]) -> int:
    """Check files one after the other; what can't be read is a finding, too, and the rest goes on."""
    for prefix in [*_prefixes(options.select), *_prefixes(options.ignore)]:
        if not any(code.startswith(prefix) for code in _core.fault_kinds()):
            return complain_of_name(f"no code begins with {prefix!r}; `fastexport explain` lists them", [], prefix)
    found: dict[str, list[Fault]] = {}
    code = _CLEAN
    for path in options.files:
        try:
            faults = _faults_of(path, options, load)
        except OSError as error:
            message = error.strerror or str(error)
            print(f"fastexport: {escape(f'{path}: {message}')}", file=sys.stderr)
            found[path] = [Fault("FX105", "io", True, None, None, None, message)]
            code = _UNREADABLE
            continue
        found[path] = [fault for fault in faults if _is_wanted(fault, options)]
        if any(fault.is_error for fault in found[path]) and code == _CLEAN:
            code = _FOUND
        if not options.json:
            _write_findings(path, found[path])
    if options.json:
        write_json({path: [fault._asdict() for fault in faults] for path, faults in found.items()})
    return code


def _prefixes(codes: str | None) -> list[str]:
    return [code.strip().upper() for code in (codes or "").split(",") if code.strip()]


def _faults_of(path: str, options: Any, load: Callable[[str, str | None], ExportedProgram]) -> list[Fault]:
    try:
        models = [options.model] if options.model else _models(path)
        faults = [fault for model in models for fault in _faults_of_model(path, model, options, load)]
    except FileError:
        raise
    except FormatError as error:
        return error.faults or [Fault("FX101", error.kind, True, error.entry, error.json_path, None, str(error))]
    return faults


def _models(path: str) -> list[str | None]:
    """The models of a file; of standard input, and of a file with one, whichever there is."""
    from fastexport._program import open_archive

    if path == "-":
        return [None]
    names = [name for name, *_ in open_archive(path).entries()]
    models = [name[len("models/") : -len(".json")] for name in names if name.startswith("models/")]
    return list(models) if len(models) > 1 else [None]


def _faults_of_model(
    path: str, model: str | None, options: Any, load: Callable[[str, str | None], ExportedProgram]
) -> list[Fault]:
    program = load(path, model)
    level: Level = "strict" if options.strict else "lenient"
    faults = program.faults + program.verify(all=True, level=level, weights=False)
    if not options.no_weights:
        faults += _check_weights(path, program)
    return faults


def _check_weights(path: str, program: ExportedProgram) -> list[Fault]:
    """The checksums of all entries, with a bar for those that take their time."""
    archive = program._program.archive
    entries = archive.entries()
    progress = Progress(path, sum(packed for _, _, packed, _ in entries))
    faults: list[Fault] = []
    for name, _, packed, _ in entries:
        try:
            archive.check(name)
        except FormatError as error:
            faults += error.faults
        progress.add(packed)
    progress.close()
    return faults


def _is_wanted(fault: Fault, options: Any) -> bool:
    selected = not options.select or fault.code.startswith(tuple(_prefixes(options.select)))
    return selected and not (options.ignore and fault.code.startswith(tuple(_prefixes(options.ignore))))


def _write_findings(path: str, faults: list[Fault]) -> None:
    for fault in faults:
        severity = "error" if fault.is_error else "warning"
        shown = colour(severity, _RED if fault.is_error else _YELLOW, sys.stdout)
        where = " ".join(part for part in (fault.entry, fault.json_path, fault.node and f"node {fault.node}") if part)
        print(f"{escape(path)}: {shown} {fault.code} {escape(f'{where}: ' if where else '')}{escape(fault.message)}")
    errors = sum(fault.is_error for fault in faults)
    if errors or faults:
        write(f"{path}: {_count(errors, 'error')}, {_count(len(faults) - errors, 'warning')}")
    else:
        write(f"{path}: ok")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def explain(options: Any) -> int:
    """Print what a code means; without one, all codes."""
    kinds = _core.fault_kinds()
    if options.code is None:
        for code, name in kinds.items():
            write(f"{code}  {name:<18}{EXPLANATIONS[code].splitlines()[0]}")
        return _CLEAN
    code = options.code.upper()
    if code not in kinds:
        return complain_of_name(
            f"there is no code {options.code!r}; `fastexport explain` lists them", list(kinds), code
        )
    write(f"{code} {kinds[code]}\n\n{EXPLANATIONS[code]}")
    return _CLEAN
