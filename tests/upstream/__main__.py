"""Runs a framework's own test suite with robots_guard switched on; further arguments are pytest's."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path


def main() -> int:
    """Run the suite that the first argument names. Returns 1 if a test has an unexpected result."""
    name, *arguments = sys.argv[1:] or [""]
    if not Path(__file__).with_name(f"{name}_suite.py").exists():
        print("usage: python -m upstream PROJECT [PYTEST ARGUMENTS]", file=sys.stderr)
        return 2
    suite = import_module(f"upstream.{name}_suite").SUITE
    wrong = suite.check(Path(sys.prefix) / "upstream", arguments)
    print(*wrong, sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
