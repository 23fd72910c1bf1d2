"""`Guard.decide` gets whatever an integration hands it: it records it, and never raises."""

from __future__ import annotations

import asyncio

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from support.guards import make_guard

from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action, Question, Verdict
from robots_guard.guard.fetch.script import ScriptedFetcher
from robots_guard.origin import Origin, origin_of
from robots_guard.testing import CapturingAuditLog

SOUND = Question(origin=origin_of("https://a.test"), target="/x", agent="mybot")
DROP = Verdict(action=Action.DROP, reason=Reason.NOT_HTTP)


class Hostile:
    """An object that fails whatever is asked of it."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    def __repr__(self):
        raise RuntimeError("repr")

    def __eq__(self, other):
        raise RuntimeError("eq")

    def __hash__(self):
        raise RuntimeError("hash")

    def __bool__(self):
        raise RuntimeError("bool")


ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=20)  # with lone surrogates
ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    ANY_TEXT,
    st.binary(max_size=20),
    st.lists(ANY_TEXT, max_size=3),
    st.builds(Hostile),
    st.builds(Origin, ANY_TEXT, ANY_TEXT, st.integers()),
    st.sampled_from([SOUND, DROP, Action.PASS, Reason.ALLOWED]),
)


def changed(sound, fields):
    return msgspec.structs.replace(sound, **fields)


def some(struct):
    """Any values for some of a struct's fields."""
    names = st.sampled_from(struct.__struct_fields__)
    return st.dictionaries(names, ANYTHING, max_size=3)


QUESTIONS = ANYTHING | st.builds(changed, st.just(SOUND), some(Question))
VERDICTS = ANYTHING | st.builds(changed, st.just(DROP), some(Verdict))


@given(question=QUESTIONS, verdict=VERDICTS)
def test_decide_records_every_input_and_never_raises(question, verdict):
    async def decide():
        audit_log = CapturingAuditLog()
        guard = make_guard(ScriptedFetcher({}), audit_log=audit_log)
        try:
            return guard.decide(question, verdict), audit_log.records
        finally:
            guard.close()

    decision, (record,) = asyncio.run(decide())

    assert record.id == decision.id
    assert msgspec.json.encode(record)
    is_given = type(verdict) is Verdict and verdict.action is Action.PASS
    assert decision.verdict.action is not Action.PASS or is_given
