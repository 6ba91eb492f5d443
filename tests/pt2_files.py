"""The sample files of tests/data/pt2, and what torch 2.13 says of them after it has loaded them."""

import io
import json
import zipfile
from pathlib import Path

DATA = Path(__file__).parent / "data" / "pt2"
SAMPLES = DATA / "samples"
HOSTILE = DATA / "hostile"

CURRENT = sorted((SAMPLES / "current").glob("*.pt2"))
OLD = sorted((SAMPLES / "old_layout").glob("*.pt2"))
MIDDLE = sorted((SAMPLES / "middle_layout").glob("*.pt2"))
NEGATIVE = sorted((SAMPLES / "negative").glob("*.pt2"))
ALL = CURRENT + OLD + MIDDLE


def expected(path):
    """What torch says of a sample."""
    return json.loads(path.with_suffix(".json").read_text())


def label(path):
    return f"{path.parent.name}-{path.stem}"


def sample(name):
    """A sample of the current layout by name."""
    return SAMPLES / "current" / f"{name}.pt2"


def subgraph_texts(graph, prefix=""):
    """Path -> text of all subgraphs below a graph."""
    texts = {}
    for name, inner in (graph.subgraphs or {}).items():
        texts[prefix + name] = str(inner)
        texts.update(subgraph_texts(inner, f"{prefix}{name}."))
    return texts


def with_document(path, change):
    """The bytes of a sample whose model.json went through `change`, which edits it in place."""
    out = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("models/model.json"):
                document = json.loads(data)
                change(document)
                data = json.dumps(document).encode()
            new.writestr(name, data)
    return out.getvalue()
