"""The limit of open files: a request that waits for a robots.txt has a socket, and most shells allow
1024."""

from __future__ import annotations

import contextlib
import resource


def raise_file_limit() -> None:
    """Raise the limit of open files as far as this process may."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
