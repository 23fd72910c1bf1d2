"""How the lines of a batch are split, decoded and answered, compared with simpler and slower ways."""

from __future__ import annotations

# The tests use private functions: each has a fast path that must equal a slower one, which no option chooses.
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from robots_guard.app.cli.ask import batch
from robots_guard.decisions.pacing import DelaySource, RequiredDelay
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action, RuleRef, Terms, Verdict
from robots_guard.errors import RobotsGuardError
from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.paths import matching

FIELDS = [*batch.BatchQuestion.__struct_fields__, "input", "unknown"]
TEXTS = st.text(st.characters(), max_size=8)  # with lone surrogates
NUMBERS = st.integers() | st.floats() | st.sampled_from([2**63, -(2**63), 10**400, -0.0])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda some: st.lists(some, max_size=2) | st.dictionaries(TEXTS, some, max_size=2),
    max_leaves=3,
)
QUESTIONS = st.fixed_dictionaries(
    {}, optional={name: VALUES if name == "id" else TEXTS | st.none() for name in FIELDS[:-2]}
) | st.dictionaries(st.sampled_from(FIELDS), VALUES)


def decode_slowly(line):
    """Return the question as the slow path decodes it; None for one that it refuses."""
    try:
        return batch._question(batch._parse_json(line))
    except (ValueError, RecursionError, RobotsGuardError):
        return None


def encoded(question, *, ascii_only):
    text = json.dumps(question, ensure_ascii=ascii_only)
    return text.encode("utf-8", "surrogatepass")


@given(QUESTIONS, st.booleans(), st.sampled_from(["", "\n", " \r\n"]))
@example({"id": 1.0, "url": "http://a.test/"}, True, "")
def test_a_question_decode_fast_is_the_one_decode_slowly(question, ascii_only, end):
    line = encoded(question, ascii_only=ascii_only) + end.encode()
    fast = batch._decode_fast(line)

    if fast is not None:
        slow = decode_slowly(line)
        assert fast == slow
        assert type(fast.id) is type(slow.id)


@given(QUESTIONS, st.booleans(), st.data())
def test_both_decoders_read_a_damaged_line_alike(question, ascii_only, data):
    line = bytearray(encoded(question, ascii_only=ascii_only))
    place = data.draw(st.integers(0, len(line) - 1))
    line[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    fast = batch._decode_fast(bytes(line))

    if fast is not None:
        slow = decode_slowly(bytes(line))
        assert fast == slow
        assert type(fast.id) is type(slow.id)


@pytest.mark.parametrize("name", ["7", 7, None, 2**62])
def test_a_usual_question_is_decode_fast(name):
    line = json.dumps({"id": name, "robots_txt": "", "url": "https://a.test/", "user_agent": "b"})

    assert batch._decode_fast(line.encode()) == decode_slowly(line.encode())


RULES = st.none() | st.builds(RuleRef, st.integers(1), TEXTS, TEXTS)
DELAYS = st.none() | st.builds(
    RequiredDelay, by=st.sampled_from(DelaySource), seconds=st.floats(0, 1e9) | st.integers(0, 99)
)


@given(VALUES, st.sampled_from(Action), st.sampled_from(Reason), RULES, DELAYS)
def test_an_answer_is_what_json_writes(name, action, reason, rule, delay):
    verdict = Verdict(action=action, reason=reason, rule=rule, delay=delay)
    terms = Terms(dialect=dialect("rfc9309"), matching=matching("standard"))

    assert batch._encode_answer(name, verdict, terms) == json.dumps(
        {
            "id": name,
            "action": action,
            "reason": reason,
            "rule": {"line": rule.line, "text": rule.text, "group": rule.group} if rule else None,
            "dialect": "rfc9309",
            "delay_source": delay.by if delay else None,
            "delay": delay.seconds if delay else None,
        }
    )


class Arrivals:
    """A file whose content arrives in pieces."""

    def __init__(self, pieces):
        self._pieces = list(pieces)

    def read1(self, size):
        """Return the next piece, or nothing at the end."""
        return self._pieces.pop(0) if self._pieces else b""


LONGEST = 8
PIECES = st.lists(st.text("ab\n ", min_size=1, max_size=6).map(str.encode), max_size=8)


@given(PIECES)
def test_the_lines_are_those_of_the_file_however_it_arrives(pieces):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(batch, "LONGEST_LINE", LONGEST)
        found = [line for chunk in batch._chunks(Arrivals(pieces)) for line in chunk]
    lines = b"".join(pieces).splitlines(keepends=True)

    whole = [line for line in lines if line.strip()]
    assert [line[:LONGEST] for line in found] == [line[:LONGEST] for line in whole]
    assert [is_overlong(line) for line in found] == [is_overlong(line) for line in whole]


def is_overlong(line):
    return len(line.removesuffix(b"\n")) >= LONGEST


@given(PIECES)
def test_a_line_is_there_as_soon_as_it_ends(pieces):
    chunks = batch._chunks(Arrivals(pieces))
    for count in range(1, len(pieces) + 1):
        arrived = b"".join(pieces[:count])
        if pieces[count - 1].count(b"\n"):
            ended = [line for line in next(chunks) if line.endswith(b"\n")]
            before = b"".join(pieces[: count - 1]).rpartition(b"\n")
            fresh = arrived[len(before[0] + before[1]) :].rpartition(b"\n")[0] + b"\n"
            assert ended == [line for line in fresh.splitlines(keepends=True) if line.strip()]
