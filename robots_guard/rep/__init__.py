"""The Robots Exclusion Protocol: bytes -> rules -> match. Signals: bytes -> statements."""

from importlib.util import find_spec


def is_compiled() -> bool:
    """Whether the installed core was compiled to machine code (`hatch_build.py`), or is
    interpreted."""
    matcher = find_spec("robots_guard.rep.matcher")
    return matcher is not None and not str(matcher.origin).endswith(".py")
