"""What follows from each reason."""

from __future__ import annotations

import pytest

from robots_guard.decisions.pacing import DelaySource
from robots_guard.decisions.reasons import DEFERRED, MEANINGS, Meaning, Party, Reason, meaning_of

NEVER_REFUSED = {
    Reason.ALLOWED,
    Reason.UNRESTRICTED,
    Reason.ROBOTS_TXT,
    Reason.NOT_GOVERNED,
    Reason.BYPASSED,
}


def test_every_reason_has_a_row():
    assert list(MEANINGS) == list(Reason)


@pytest.mark.parametrize("reason", Reason)
def test_a_sentence_is_one_sentence_and_is_used_once(reason):
    sentence = MEANINGS[reason].sentence

    assert sentence.endswith(".")
    assert ". " not in sentence
    assert [each.sentence for each in MEANINGS.values()].count(sentence) == 1


@pytest.mark.parametrize("reason", Reason)
def test_a_refusal_has_a_cause(reason):
    assert (MEANINGS[reason].fault is Party.NONE) == (reason in NEVER_REFUSED)


@pytest.mark.parametrize("reason", Reason)
def test_a_refusal_is_not_exported_to_heritrix_as_a_deferral(reason):
    always_passes_or_waits = reason in NEVER_REFUSED or reason in set(DelaySource)

    assert (MEANINGS[reason].heritrix == DEFERRED) == always_passes_or_waits


@pytest.mark.parametrize("reason", [Reason.DISALLOWED, Reason.UNREACHABLE, *DelaySource])
def test_a_deferral_has_a_status_that_is_temporary(reason):
    assert MEANINGS[reason].response("defer").status in (429, 503)


def test_a_reason_of_a_later_version_has_no_sentence():
    assert meaning_of("invented-later") == Meaning("")
