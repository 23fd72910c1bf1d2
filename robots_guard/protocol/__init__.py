"""The Robots Exclusion Protocol: bytes -> rules -> match. Signals: bytes -> statements."""


def is_compiled() -> bool:
    """Whether the installed core was compiled to machine code (`hatch_build.py`), or is
    interpreted."""
    from importlib.util import find_spec  # only `--version` asks

    matcher = find_spec("robots_guard.protocol.matcher")
    return matcher is not None and not str(matcher.origin).endswith(".py")
