"""TOML, with a bound: a file from elsewhere cannot take the machine's time or memory.

tomllib takes time and memory that grow with the square of a key's parts: one key of 100,000 dots, 14 GB.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

LONGEST = 16 * 1024 * 1024  # characters; 10,000 overrides have 3 million
PARTS = 64  # of a dotted key

_PART = r"""(?:"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+'|[\w-]++)"""
_LONG_KEY = re.compile(rf"(?:^|[\[{{,])[ \t]*+(?:{_PART}[ \t]*+\.[ \t]*+){{{PARTS}}}", re.MULTILINE)
_BRACKETS = re.compile(r"[\[{]")


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML. Raises ValueError, whose text ends with the place as tomllib's errors do, for what is
    not valid, and for a file that is too long or too deep."""
    if len(text) > LONGEST:
        raise ValueError(f"the file is longer than {LONGEST} characters (at line 1, column 1)")
    key = _LONG_KEY.search(text)
    if key is not None:
        line = text.count("\n", 0, key.start()) + 1
        raise ValueError(f"a key has more than {PARTS} parts (at line {line}, column 1)")
    try:
        return tomllib.loads(text)
    except RecursionError:
        lines = text.split("\n")
        deepest = max(range(len(lines)), key=lambda at: len(_BRACKETS.findall(lines[at])))
        raise ValueError(
            f"brackets are nested too deeply (at line {deepest + 1}, column 1)"
        ) from None
