"""The evidence of a decision, as `robots-guard audit bundle` writes it."""

from __future__ import annotations

from functools import partial
from typing import BinaryIO

from robots_guard.app.console.sources import Sources
from robots_guard.audit.bundle.writer import search_for, write_bundle
from robots_guard.audit.read.reader import Filter
from robots_guard.guard.stores import find_document


def write_evidence(target: BinaryIO, identity: str, sources: Sources) -> None:
    """Write a bundle of the decision with this id. Raises SettingsError if there is none."""
    ids, wanted = [identity], Filter()
    with search_for(sources.audit_log, wanted, ids) as search:
        write_bundle(
            target,
            search,
            wanted,
            documents=partial(find_document, sources.store),
            now=sources.clocks.now(),
            ids=ids,
        )
