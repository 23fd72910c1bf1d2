"""`MessageData.__post_init__` asserts the type of each field of a message.

It takes a fifth of the work for a request. It exists only without `python -O`; the replacement does
nothing, as if there were that option.
"""

from __future__ import annotations

from collections.abc import Callable

from mitmproxy.http import MessageData

from robots_guard.gateway.patch import Method, Patch, method

Checks = Callable[[MessageData], None]


def _replace_post_init(_plain: Checks) -> Checks:
    def __post_init__(self: MessageData) -> None:  # noqa: N807  (the method that it replaces)
        pass

    return __post_init__


def _methods() -> tuple[Method, ...]:
    if not __debug__:
        return ()
    return (method("__post_init__", "f65088e210cd", make=_replace_post_init),)


PATCH = Patch(
    owner=MessageData,
    methods=_methods(),
    versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
    reason="Assertions of the types of fields take a fifth of a request's CPU time.",
    report="""\
The type assertions of `MessageData` take a fifth of the CPU time of a request.

`MessageData.__post_init__` calls `check_option_type` for each field of each message, which
inspects the annotations every time.

To see it: profile a mitmdump that serves small requests, with and without `python -O`.

`isinstance` with types that are computed once per class would cost little. Or the check could be
left to the tests.
""",
)
