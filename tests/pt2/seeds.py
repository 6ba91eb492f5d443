"""Seeds and a dictionary for the fuzz targets, made from tests/data/pt2: seeds.py FOLDER.

FOLDER/archive: the files; FOLDER/document: the model.json of each; FOLDER/write: those behind the bytes of some edits.
FOLDER/words is libFuzzer's dictionary: the keys, tags, targets and other short strings of the samples' documents.
"""

import hashlib
import json
import random
import sys
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data" / "pt2"
DOCUMENTS = ("models/", "serialized_exported_program.json")
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
EDIT_BYTES = 24  # what fuzz_write takes as edits: 3 * EDITS
MOST_BYTES = 40_000  # of a seed: small ones are faster, and say as much
MOST_LETTERS = 60  # of a word; libFuzzer takes 64
WORDS = ["null", "true", "false", "-1", "0", "1e308", "9223372036854775807", "-9223372036854775808"]


def documents(path: Path) -> Iterator[bytes]:
    """The documents in an archive, as far as Python can read it."""
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                name = info.filename.partition("/")[2] or info.filename
                if name.startswith(DOCUMENTS) and info.file_size <= MOST_BYTES and info.compress_type in METHODS:
                    yield archive.read(info)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, OSError, ValueError, EOFError):
        return


def words_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from words_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from words_of(inner)
    elif isinstance(value, str):
        yield value


def dictionary(texts: list[bytes]) -> str:
    words = {json.dumps(word) for text in texts for word in words_of(json.loads(text))}
    return "".join(
        '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"\n'
        for word in WORDS + sorted(word for word in words if 2 < len(word) <= MOST_LETTERS)
    )


def put(folder: Path, content: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / hashlib.sha256(content).hexdigest()[:20]).write_bytes(content)


def main(folder: Path) -> None:
    samples = sorted((DATA / "samples").rglob("*.pt2"))
    hostile = sorted((DATA / "hostile").glob("*.pt2"))
    chance = random.Random(0)

    for path in samples + hostile:
        if path.stat().st_size <= MOST_BYTES:
            put(folder / "archive", path.read_bytes())
        for text in documents(path):
            put(folder / "document", text)
            put(folder / "write", chance.randbytes(EDIT_BYTES) + text)
    for path in sorted((DATA / "findings").iterdir()):
        target = path.name.partition("-")[0]
        put(folder / target, path.read_bytes())
    (folder / "words").write_text(dictionary([text for path in samples for text in documents(path)]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
