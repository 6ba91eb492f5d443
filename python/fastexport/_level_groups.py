"""Levels once their items are known: wires and ports, repeats folded into blocks, large levels cut into runs."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from fastexport._levels import Item, Level, value_at

Port = tuple[Item, int]

_LEAST_REPEATED = 16  # items of a large level, for which it is worth while to fold them

# ---- wires


def connect(key: Any, source: Port, a: Level, target: Port, b: Level) -> None:
    """Lead a value from an item of level a to one of level b, through the outputs and inputs of the levels between.

    Args:
        key: what tells the value from others, in both levels and those between.
    """
    x, y = a, b
    while x is not y:  # up to the level that both are in
        if x.depth >= y.depth:
            assert x.parent is not None
            x = x.parent
        else:
            assert y.parent is not None
            y = y.parent
    while a is not x:
        source = _leave(a, key, source)
        assert a.parent is not None
        a = a.parent
    entered = []
    level = b
    while level is not x:
        entered.append(level)
        assert level.parent is not None
        level = level.parent
    for level in reversed(entered):
        source = _enter(level, key, source)
    b.wires.append((*source, *target))


def _leave(level: Level, key: Any, source: Port) -> Port:
    ports = level.ports[1]
    index = ports.get(key)
    if index is None:
        index = ports[key] = len(level.outputs)
        of = value_at(*source)
        output = Item("output", of.name, text=of.text, node=of.node)
        level.outputs.append(output)
        level.wires.append((*source, output, 0))
    assert level.item is not None
    return level.item, index


def _enter(level: Level, key: Any, source: Port) -> Port:
    ports = level.ports[0]
    index = ports.get(key)
    if index is None:
        index = ports[key] = len(level.inputs)
        of = value_at(*source)
        level.inputs.append(Item("input", of.name, text=of.text, node=of.node))
        assert level.parent is not None and level.item is not None
        level.parent.wires.append((*source, level.item, index))
    return level.inputs[index], 0


# ---- from the innermost level outwards


def finish(level: Level, keys: dict[Any, int], fold: bool, max_items: int) -> None:
    """Give the level, and those below it, keys and edges; fold what repeats and cut what is too large."""
    for item in level.body:
        if item.level is not None:
            finish(item.level, keys, fold, max_items)
    _close(level, keys, fold, max_items)


def _close(level: Level, keys: dict[Any, int], fold: bool, max_items: int) -> None:
    _measure(level, keys)
    if fold:
        _fold(level)
    if len(level.body) > max_items:
        if fold:
            _group(level, _repeated_ranges(level), keys, fold, max_items)
            _fold(level)
        while len(level.body) > max_items:
            _group(level, _narrow_ranges(level, max_items), keys, fold, max_items)
            if fold:
                _fold(level)
    _number(level)


def _number(level: Level) -> None:
    level.items = [*level.inputs, *level.body, *level.outputs]
    for index, item in enumerate(level.items):
        item.index = index


def _measure(level: Level, keys: dict[Any, int]) -> None:
    """The size and the key of a level: two with the same key look the same."""
    _number(level)
    level.size = 0
    for item in level.body:
        if item.level is not None:
            item.key = item.level.key
            item.size = item.level.size
        elif item.weights and item.key >= 0:
            key = (item.key, tuple(weight.text for weight in item.weights))
            item.key = keys.setdefault(key, len(keys))
        level.size += item.size
    whole = (
        level.type,
        tuple(item.text for item in level.inputs),
        tuple(item.key for item in level.body),
        len(level.outputs),
        tuple(sorted((source.index, i, target.index, j) for source, i, target, j in level.wires)),
    )
    level.key = keys.setdefault(whole, len(keys))


# ---- blocks


def _fold(level: Level) -> None:
    """Make one block of modules, or runs, that stand in a row and look the same.

    Either each uses a result of the one before, or none uses any of the others'. Of a chain whose middle is used by one
    more module of the kind only the part up to there is a block.
    """
    pairs = zip(level.body, level.body[1:], strict=False)
    if not any(a.key == b.key and a.level is not None for a, b in pairs):
        return
    sources: dict[int, set[int]] = {}
    for source, _, target, _ in level.wires:
        sources.setdefault(id(target), set()).add(id(source))
    body: list[Item] = []
    blocks: dict[int, Item] = {}
    at = 0
    while at < len(level.body):
        row, chain = _row(level.body, at, sources)
        at += len(row)
        if len(row) == 1:
            body += row
            continue
        block = _block(row, chain)
        body.append(block)
        blocks.update((id(item), block) for item in row)
    if blocks:
        level.body = body
        wires = ((blocks.get(id(s), s), i, blocks.get(id(t), t), j) for s, i, t, j in level.wires)
        seen = {(id(s), i, id(t), j): (s, i, t, j) for s, i, t, j in wires if s is not t or s.kind != "block"}
        level.wires = list(seen.values())


def _row(body: list[Item], start: int, sources: dict[int, set[int]]) -> tuple[list[Item], bool]:
    first = body[start]
    row = [first]
    chain = False
    if first.kind not in ("module", "run"):
        return row, chain
    members = {id(first)}
    used_by_row = set(sources.get(id(first), ()))
    for item in body[start + 1 :]:
        if item.kind != first.kind or item.key != first.key:
            break
        used = sources.get(id(item), set())
        follows = id(row[-1]) in used
        if len(row) == 1:
            chain = follows
        if chain and not follows:  # what branches off inside would seem to leave by the end
            branches = (place for place, member in enumerate(row, 1) if id(member) in used)
            row = row[: next(branches, len(row))]
            break
        if follows != chain or (not chain and not members.isdisjoint(used)) or id(item) in used_by_row:
            break
        row.append(item)
        members.add(id(item))
        used_by_row |= used
    return row, chain and len(row) > 1


def _block(row: list[Item], chain: bool) -> Item:
    levels = [item.level for item in row if item.level is not None]
    first, last = row[0].name, row[-1].name
    head, dot, end = last.rpartition(".")
    if row[0].kind == "run":
        first, last = levels[0].body[0].name, levels[-1].body[-1].name
    elif dot and first.startswith(head + dot):
        last = end
    size = sum(item.size for item in row)
    block = Item("block", f"{first}..{last}", row[0].type, level=levels[0], members=levels, chain=chain, size=size)
    for level in levels:
        level.item = block
    return block


# ---- runs


def _group(level: Level, ranges: list[tuple[int, int]], keys: dict[Any, int], fold: bool, max_items: int) -> None:
    """Put the items of each range of the body into a level of their own, a run."""
    owners: dict[int, Level] = {}
    runs: list[Level] = []
    body: list[Item] = []
    at = 0
    for start, end in ranges:
        body += level.body[at:start]
        at = end
        items = level.body[start:end]
        run = Level(level.scope, f"{items[0].name}..{items[-1].name}", "", level)
        run.module = level.module
        run.item = Item("run", f"{items[0].name}..{items[-1].name}", level=run)
        run.body = items
        for item in items:
            owners[id(item)] = run
            for inner in (*item.members, *(sub for _, sub in item.subgraphs)) or (item.level,):
                if inner is not None:
                    inner.parent = run
        body.append(run.item)
        runs.append(run)
    level.body = body + level.body[at:]
    wires, level.wires = level.wires, []
    for source, i, target, j in wires:
        a, b = owners.get(id(source), level), owners.get(id(target), level)
        connect((id(source), i), (source, i), a, (target, j), b)
    for run in runs:
        _close(run, keys, fold, max_items)
        assert run.item is not None
        run.item.key, run.item.size = run.key, run.size


def _lives(level: Level) -> list[int]:
    """For each place of the body how many values pass from before it to it or behind it."""
    places = {id(item): place for place, item in enumerate(level.body)}
    last: dict[tuple[int, int], int] = {}
    for source, i, target, _ in level.wires:
        a, b = places.get(id(source)), places.get(id(target))
        if a is not None and b is not None:
            last[a, i] = max(last.get((a, i), a), b)
    changes = [0] * (len(places) + 1)
    for (a, _), b in last.items():
        if b > a:
            changes[a + 1] += 1
            changes[b + 1 if b + 1 < len(changes) else b] -= 1
    lives = [0]
    for change in changes[1:]:
        lives.append(lives[-1] + change)
    return lives


def _narrow_ranges(level: Level, max_items: int) -> list[tuple[int, int]]:
    """Cut the body into ranges of about the same length, where the fewest values pass."""
    count = len(level.body)
    size = min(max(math.isqrt(count - 1) + 1, 2), max_items)
    lives = _lives(level)
    most = min(max(size * 5 // 4, 3), max_items)
    least = min(max(size * 3 // 4, 2), most)
    ranges = []
    start = 0
    while count - start > most:
        end = min(range(start + least, start + most + 1), key=lambda at: (lives[at], -at))
        ranges.append((start, end))
        start = end
    return [*ranges, (start, count)] if count - start > 1 else ranges


def _repeated_ranges(level: Level) -> list[tuple[int, int]]:
    """Ranges of the body that look the same and follow each other, cut where few values pass."""
    lives = _lives(level)
    ranges = []
    for start, period, end in repeats([item.key for item in level.body]):
        if end - start < _LEAST_REPEATED:
            continue
        count = (end - start) // period
        slack = end - start - count * period
        start += min(range(min(slack + 1, period)), key=lambda shift: (lives[start + shift], shift))
        ranges += [(start + i * period, start + (i + 1) * period) for i in range(count)]
    return sorted(ranges)


def repeats(keys: list[int]) -> list[tuple[int, int, int]]:
    """Parts of a list that consist of one piece several times over: (start, length of the piece, end).

    The last piece may be cut short. Pieces have at least two items, and parts don't overlap.

    >>> repeats([9, 1, 2, 3, 1, 2, 3, 1, 2, 8])
    [(1, 3, 9)]
    """
    last: dict[int, int] = {}
    distances: Counter[int] = Counter()
    for at, key in enumerate(keys):
        if key in last:
            distances[at - last[key]] += 1
        last[key] = at
    found = []
    for period, _ in distances.most_common(16):
        at = 0 if period > 1 else len(keys)
        while at < len(keys) - period:
            start = at
            while at < len(keys) - period and keys[at] == keys[at + period]:
                at += 1
            if at - start >= period:
                found.append((start, period, at + period))
            at += 1
    found.sort(key=lambda part: (part[0] - part[2], part[1]))  # the longest first, and of those the shortest piece
    taken = [False] * len(keys)
    kept = []
    for start, period, end in found:
        if not any(taken[start:end]):
            taken[start:end] = [True] * (end - start)
            kept.append((start, period, end))
    return sorted(kept)
