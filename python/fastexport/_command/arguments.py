"""Arguments that several verbs have."""

from __future__ import annotations

import argparse


def add_model(parser: argparse.ArgumentParser) -> None:
    """--model"""
    parser.add_argument("--model", metavar="NAME", type=_text, help="which model, of a file with several")


def add_output_format(parser: argparse.ArgumentParser, *formats: str) -> None:
    """--output-format, one of those given, the first by default, and --output-file."""
    parser.add_argument(
        "--output-format", choices=formats, default=formats[0], help=f"form of the output (default: {formats[0]})"
    )
    add_output_file(parser)


def add_output_file(parser: argparse.ArgumentParser) -> None:
    """--output-file"""
    parser.add_argument(
        "--output-file", metavar="OUT", help="write there instead of stdout (-); the file is whole, or as it was"
    )


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """--jobs"""
    parser.add_argument(
        "-j", "--jobs", metavar="N", type=_jobs, default=1, help="how many files at a time; 0: one a processor"
    )


def _text(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"no model has such a name: {name!r}") from None
    return name


def _jobs(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"a number from 0 to 999999999 is wanted, not {text!r}")
    return int(text)


def names(text: str | None) -> list[str]:
    """The names of a list with commas.

    >>> names("a, b,"), names(None)
    (['a', 'b'], [])
    """
    return [name.strip() for name in (text or "").split(",") if name.strip()]
