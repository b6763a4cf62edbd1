"""Damage to files, drawn from a seed: bytes of any file, values of a JSON file, rows of a table."""

import json
import random as chance
from pathlib import Path

WRONG_VALUES = (None, True, -1, 0, 2**70, 1e308, float("nan"), "", "x", "../x", "\ud800", [], {}, [[]], {"": None})
DEEP = "[" * 50_000


def damage_bytes(file: Path, draw: chance.Random) -> str:
    """Damages the bytes of a file; in words, how."""
    raw = bytearray(file.read_bytes())
    place = draw.randrange(max(1, len(raw)))
    kind = draw.choice(("flip", "cut", "empty", "append", "garbage", "delete", "double", "nul"))
    if kind == "flip" and raw:
        raw[place] ^= 1 << draw.randrange(8)
    elif kind == "cut":
        del raw[place:]
    elif kind == "empty":
        raw.clear()
    elif kind == "append":
        raw += draw.randbytes(draw.randint(1, 40))
    elif kind == "garbage":
        raw[place : place + 40] = draw.randbytes(40)
    elif kind == "delete":
        del raw[place : place + draw.randint(1, 40)]
    elif kind == "double":
        raw[place:place] = raw[place : place + draw.randint(1, 40)]
    elif kind == "nul":
        raw[place : place + 4] = bytes(4)
    file.write_bytes(raw)
    return f"{kind} at {place} of {file.name}"


def damage_header(file: Path, draw: chance.Random) -> str:
    """Damages what a safetensors file can be known to be damaged by: its length and its header."""
    raw = bytearray(file.read_bytes())
    if draw.random() < 0.4:
        place = draw.randrange(len(raw))
        del raw[place:]
        file.write_bytes(raw)
        return f"cut at {place} of {file.name}"
    place = draw.randrange(8 + int.from_bytes(raw[:8], "little"))
    raw[place] ^= 1 << draw.randrange(8)
    file.write_bytes(raw)
    return f"flip at {place} of the header of {file.name}"


def damage_json(file: Path, draw: chance.Random) -> str:
    """Puts a wrong value somewhere into a JSON file, or takes one out."""
    if draw.random() < 0.05:
        file.write_text(DEEP)
        return f"{file.name} nested deeply"
    whole = value = json.loads(file.read_text(encoding="utf-8"))
    path = []
    while True:
        if not isinstance(value, dict | list) or not value:
            break
        key = draw.choice(list(value) if isinstance(value, dict) else range(len(value)))
        path.append(key)
        holder, value = value, value[key]
        if draw.random() < 0.4:
            break
    if not path:
        return f"{file.name} unchanged"
    wrong = draw.choice((*WRONG_VALUES, "DELETED"))
    if wrong == "DELETED":
        del holder[path[-1]]
    else:
        holder[path[-1]] = wrong
    file.write_text(json.dumps(whole), encoding="utf-8")
    return f"{file.name}: {'/'.join(map(str, path))} = {wrong!r}"


def damage_table(file: Path, draw: chance.Random) -> str:
    """Damages a table as other programs do."""
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines()
    row = draw.randrange(len(lines))
    kinds = {
        "bytes": lambda: None,
        "bom": lambda: "\ufeff" + text,
        "quote": lambda: _with(lines, row, lines[row].replace("a", '"', 1) + '"'),
        "open quote": lambda: _with(lines, row, '"' + lines[row]),
        "nul": lambda: _with(lines, row, lines[row][:3] + "\0" + lines[row][3:]),
        "huge": lambda: _with(lines, row, "x" * 300_000 + lines[row]),
        "ragged": lambda: _with(lines, row, lines[row] + ",a,b,c,d\tx\ty"),
        "short": lambda: _with(lines, row, lines[row][: draw.randrange(1 + len(lines[row]))]),
        "line end": lambda: _with(lines, row, lines[row][:4] + draw.choice("\r\u2028\u0085\x0b\x1c") + lines[row][4:]),
        "crlf": lambda: "\r\n".join(lines),
        "no header": lambda: "\n".join(lines[1:]),
        "only header": lambda: lines[0],
        "twice": lambda: _with(lines, 0, f"{lines[0]},{lines[0]}"),
        "blank lines": lambda: "\n\n\n".join(lines),
        "surrogate": lambda: _with(lines, row, lines[row].replace("e", "\\ud800", 1)),
        "nested": lambda: _with(lines, row, '{"text": ' + "[" * 20_000),
        "number": lambda: _with(lines, row, '{"text": 3, "label": {"a": 1e999}}'),
        "empty": lambda: "",
    }
    kind = draw.choice(list(kinds))
    encoding = draw.choice(("utf-8", "utf-8", "utf-8", "utf-16", "utf-16-le", "latin-1", "cp949", "utf-32", "utf-7"))
    if kind == "bytes":
        return damage_bytes(file, draw)
    file.write_bytes(kinds[kind]().encode(encoding, errors="replace"))
    return f"{kind} in row {row}, written as {encoding}"


def _with(lines: list[str], row: int, line: str) -> str:
    return "\n".join([*lines[:row], line, *lines[row + 1 :]]) + "\n"
