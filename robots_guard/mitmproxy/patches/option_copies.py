"""`OptManager.__getattr__` returns the value of an option, as a deep copy.

It does so a dozen times for each request, and nearly all of these values are immutable. The
replacement returns an immutable value as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mitmproxy import optmanager

from robots_guard.gateway.patch import Patch, method

Gets = Callable[[optmanager.OptManager, str], Any]

_IMMUTABLE = frozenset((bool, int, str, type(None)))


def _replace_getattr(plain: Gets) -> Gets:
    def __getattr__(self: optmanager.OptManager, name: str) -> Any:  # noqa: N807  (replaces that)
        option = self.__dict__.get("_options", {}).get(name)
        if option is not None:
            value = option.value
            if value is optmanager.unset:
                value = option._default  # noqa: SLF001  its public `default` makes a copy
            if type(value) in _IMMUTABLE:
                return value
        return plain(self, name)

    return __getattr__


PATCH = Patch(
    owner=optmanager.OptManager,
    methods=(method("__getattr__", "a9d5792099cd", make=_replace_getattr),),
    versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
    reason="Each look at an option makes a deep copy, a dozen times for a request.",
    report="""\
Do not copy the immutable values of options.

`OptManager.__getattr__` makes a deep copy of a value, so that its caller cannot change the option
by mistake. Nearly all options are a bool, int, str or None, for which the copy is the value
itself, but `copy.deepcopy` still takes time, a dozen times for each request.

To see it: profile a mitmdump that serves small requests.

`_Option.current` could return values of these types as they are.
""",
)
