"""`Headers.__getitem__` looks up a header field; `get` and `in` call it, too.

It collects all values of the field, and raises KeyError if there are none. mitmproxy looks up some
twenty fields in each exchange, such as Content-Length and Transfer-Encoding, and most of them are
absent. The replacement compares the names first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mitmproxy.http import Headers

from robots_guard.gateway.patch import Patch, method

Gets = Callable[[Headers, str | bytes], Any]


def _replace_getitem(plain: Gets) -> Gets:
    def __getitem__(self: Headers, key: str | bytes) -> Any:  # noqa: N807  (replaces that)
        name = key.encode("utf-8", "surrogateescape") if isinstance(key, str) else key
        name, length = name.lower(), len(name)
        for each, _ in self.fields:
            if len(each) == length and each.lower() == name:
                return plain(self, key)
        raise KeyError(key)

    return __getitem__


PATCH = Patch(
    owner=Headers,
    methods=(method("__getitem__", "482e7414c932", make=_replace_getitem),),
    versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
    reason="mitmproxy looks up some twenty fields in each exchange, most of which are absent.",
    report="""\
Look up a header field without collecting its values.

`Headers.get` and `in` are those of `Mapping`: they call `__getitem__`, which collects all values
of the field and raises KeyError if there are none. mitmproxy looks up some twenty fields in each
exchange, and most of them are absent.

To see it: profile a mitmdump that serves small requests; `get_all` is called twenty times for each.

`MultiDict` could have a `get` and a `__contains__` that compare the names.
""",
)
