"""Execute pages and show what their commands print, for those who write them:

PYTHONPATH=tests python -m docs docs/start/curl.md
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from docs.exceptions import executable
from docs.page import Command, steps
from docs.world import world


def main(pages: list[str]) -> None:
    """Follow each page, one after another."""
    with tempfile.TemporaryDirectory() as folder, world(Path(folder)) as opened:
        for page in pages:
            wanted = executable(page, steps(Path(page)))
            results = opened.follow(page, [asdict(step) for step in wanted], page)
            for step, result in zip(wanted, results, strict=True):
                if isinstance(step, Command):
                    print(f"{page}:{step.line}: $ {step.text}\n{result['printed']}", end="")
                    print(f"[status {result['status']}, {result['seconds']:.2f} s]\n")


if __name__ == "__main__":
    main(sys.argv[1:])
