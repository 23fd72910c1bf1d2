"""The environment of the proxy: variables that clients obey, and the proxy itself does not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def note_on_variables(
    environment: Mapping[str, str], modes: Iterable[str], own_url: str
) -> str | None:
    """Return what to say of the variables that name another proxy, through which nothing goes; None
    if there are none.

    A variable that names this proxy, at `own_url`, is meant for its clients. The values are not
    quoted, because they may contain passwords.
    """
    own = _address(own_url)
    names = [
        name for name in VARIABLES if environment.get(name) and _address(environment[name]) != own
    ]
    if not names or any(mode.startswith("upstream:") for mode in modes):
        return None
    verb = "is"
    if len(names) > 1:
        verb = "are"
    return (
        f"{', '.join(names)} {verb} set, and {verb} not used by this proxy itself:"
        " to go out through another proxy, use --mode upstream:http://HOST:PORT"
    )


def _address(url: str) -> str:
    """The host and port of a URL, without credentials. A scheme may be missing, as in the variables."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    return parts.netloc.rpartition("@")[2].replace("localhost", "127.0.0.1")
