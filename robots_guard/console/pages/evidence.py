"""The evidence of a decision, as `robots-guard audit bundle` writes it."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import BinaryIO

from robots_guard.audit.bundle.writer import files_for, write_bundle
from robots_guard.audit.read.reader import Filter
from robots_guard.audit.read.search import Search
from robots_guard.console.sources import Sources
from robots_guard.errors import StoreError
from robots_guard.ports import SharedStore

_SAFE = frozenset(string.ascii_letters + string.digits + "-")


def evidence_name(identity: str) -> str:
    """The name of a bundle's file. It is part of a header field, so that it has letters, digits and
    hyphens of the id only."""
    letters = "".join(each for each in identity if each in _SAFE)[:64]
    return f"robots-guard-bundle-{letters or 'decision'}.zip"


def write_evidence(target: BinaryIO, identity: str, sources: Sources) -> None:
    """Write a bundle of the decision with this id. Raises SettingsError if there is none."""
    ids, wanted = [identity], Filter()
    with Search(sources.audit_log, files_for(wanted, ids)) as search:
        write_bundle(
            target,
            search,
            wanted,
            documents=_documents_of(sources.store),
            now=sources.clocks.now(),
            ids=ids,
        )


def _documents_of(store: SharedStore | None) -> Callable[[str], bytes | None]:
    """A function that looks up documents. One that the store cannot give may also be in the WARC
    files."""

    def document(sha256: str) -> bytes | None:
        if store is None:
            return None
        try:
            return store.document(sha256)
        except (StoreError, ValueError):
            return None

    return document
