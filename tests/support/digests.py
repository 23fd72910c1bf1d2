"""The digests of the methods that patches replace, in the installed versions."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterable

from robots_guard.gateway.patch import Method, Patch


def changed_methods(patches: Iterable[Patch]) -> dict[str, str]:
    """The methods whose sources have unknown digests, by name."""
    methods = ((patch, each, digest_of(patch, each)) for patch in patches for each in patch.methods)
    return {
        f"{patch.owner.__name__}.{each.name}": digest
        for patch, each, digest in methods
        if digest not in each.digests
    }


def digest_of(patch: Patch, method: Method) -> str:
    """The digest of the source, also if the method is replaced already."""
    source = inspect.getsource(inspect.unwrap(getattr(patch.owner, method.name)))
    return hashlib.sha256(source.encode()).hexdigest()[:12]
