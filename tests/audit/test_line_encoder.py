"""Lines of decisions: what they have in common is encoded once, and no byte of a line changes by it."""

from __future__ import annotations

import msgspec
from audit.decisions import AT, DEFER, DROP, PASS, decision, policy
from hypothesis import given
from hypothesis import strategies as st

from robots_guard.audit.privacy import Privacy
from robots_guard.audit.read.reader import read_line
from robots_guard.audit.record import RecordHead, Writer, record_of
from robots_guard.audit.write.line_encoder import LONGEST_KEY, MOST, LineEncoder
from robots_guard.decisions.access import Failed, Failure, Fetched
from robots_guard.decisions.pacing import DelaySource, RequiredDelay
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.renewal import begin
from robots_guard.decisions.uses import Uses, UseState
from robots_guard.decisions.verdict import (
    Action,
    Deferral,
    Exemption,
    RuleRef,
    Subresource,
    Verdict,
)
from robots_guard.origin import split_url

# Few values, so that lines often have parts in common; among them what a client or a site may send.
TEXTS = st.sampled_from(
    ["", "mybot", 'a"b\\c', "\x7f\x00\n", "ä\u2028😀", "\udcff", "%b%d\0", "x" * 3000]
)
SECONDS = st.sampled_from([0.0, 1e-9, 0.000_123_4, 59.9996, 3600.0, 1e17, float("inf")])
TARGETS = st.sampled_from(
    ["/", "/a?token=geheim", '/"\\', "/\x7f\xe4\0", "/#f", "/?elapsed_us=1,"]
) | st.text(max_size=20).map("/{}".format)
RULES = st.none() | st.builds(RuleRef, st.integers(1, 3), TEXTS, TEXTS)
DELAYS = st.none() | st.builds(
    RequiredDelay,
    by=st.sampled_from(DelaySource),
    seconds=st.sampled_from([1.0, 2.5]),
    text=TEXTS,
)
EXEMPTIONS = st.none() | st.builds(Exemption, id=TEXTS, owner=TEXTS, reason=TEXTS, expires=SECONDS)
VERDICTS = st.builds(
    Verdict,
    action=st.sampled_from(Action),
    reason=st.sampled_from(Reason),
    rule=RULES,
    group=st.none() | TEXTS,
    form=st.none() | TEXTS,
    until=st.none() | SECONDS,
    relaxed=st.none() | TEXTS,
    detail=st.none() | TEXTS,
    stale=st.booleans(),
    delay=DELAYS,
    would=st.none() | st.sampled_from(Action),
    uses=st.sampled_from([None, None, Uses(states={"search": UseState.DENY})]),
) | st.sampled_from([PASS, DROP, DEFER])


def _policies():
    origin = split_url("https://a.test/")[0]
    found = Fetched(status=200, body=b"User-agent: *\nDisallow: /x", tls_verified=True)
    gone = Fetched(status=404, body=b"", tls_verified=False)
    held = begin(origin, None, "direct").next(found, AT - 60).policy
    failed = Failed(failure=Failure.DNS, detail="no such host")
    return [
        None,
        held,
        begin(origin, None, "scrapy").next(gone, AT - 7.25).policy,
        begin(origin, None, "direct").next(failed, AT - 1).policy,
        begin(origin, held, "direct").next(failed, AT - 1).policy,
        policy("http://b.test:8080/"),
    ]


DECISIONS = st.builds(
    lambda url, verdict, target, asked, **values: _with_question(
        decision(url, verdict, target=target, **values), asked
    ),
    st.sampled_from(["https://a.test/", "http://a.test/", "http://b.test:8080/", "https://[::1]/"]),
    VERDICTS,
    TARGETS,
    st.fixed_dictionaries(
        {},
        optional={
            "deferral": st.just(Deferral("w-0", AT - 5)),
            "led_by": st.just("https://a.test/from"),
            "sent": st.booleans(),
            "robots_txt_of": st.just(split_url("https://c.test/")[0]),
            "subresource": st.sampled_from([Subresource("script"), Subresource("image", "null")]),
        },
    ),
    at=st.sampled_from([AT, AT + 0.0004, AT + 86400, float("nan"), -1e12]),
    agent=TEXTS,
    user_agent=TEXTS,
    client=TEXTS | st.just("10.1.2.3:4000"),
    method=TEXTS,
    policy=st.sampled_from(_policies()),
    dialect=st.sampled_from(["", "rfc9309"]),
    matching=st.sampled_from(["", "standard"]),
    source=st.sampled_from(["", "memory", "store"]),
    elapsed=SECONDS.filter(lambda seconds: seconds < 1e17),
    override=EXEMPTIONS,
)
WRITERS = st.builds(Writer, writer=TEXTS, component=TEXTS, job=TEXTS)
PRIVACIES = st.sampled_from(
    [Privacy(), Privacy(query="drop", client="drop"), Privacy(client="network")]
)


def _with_question(made, values):
    return msgspec.structs.replace(made, question=msgspec.structs.replace(made.question, **values))


@given(st.lists(DECISIONS, min_size=1, max_size=12), WRITERS, PRIVACIES)
def test_a_line_is_that_of_its_record(made, writer, privacy):
    encoder = LineEncoder(privacy)

    for number, each in enumerate([*made, *made], 1):
        values = {"seq": number, "mono": 0.5 * number}
        expected = record_of(each, writer, privacy=privacy, **values).line_of_json()
        assert encoder.line_of(each, writer, **values) == expected


@given(DECISIONS)
def test_decisions_that_differ_in_one_value_have_different_lines(made):
    """The key names every value that the second part of a record has."""
    encoder, writer = LineEncoder(Privacy()), Writer(writer="w")
    encoder.line_of(made, writer, seq=1, mono=1.0)
    others = [
        msgspec.structs.replace(made, verdict=DROP),
        msgspec.structs.replace(made, verdict=PASS, policy=None),
        msgspec.structs.replace(made, policy=policy(at=AT - 61)),
        msgspec.structs.replace(made, source="fetch", dialect="google", matching="strict"),
        msgspec.structs.replace(made, elapsed=0.0),
    ]

    for each in others:
        line = encoder.line_of(each, writer, seq=2, mono=1.0)
        assert line == record_of(each, writer, seq=2, mono=1.0).line_of_json()


def test_a_record_begins_with_what_differs_from_one_request_to_the_next():
    record = read_line(record_of(decision(policy=policy())).line_of_json())
    fields = type(record).__struct_fields__

    assert fields[: len(RecordHead.__struct_fields__)] == RecordHead.__struct_fields__


def test_what_is_kept_is_limited():
    """A site chooses how long its rules are, and a client how many origins it names."""
    encoder, writer = LineEncoder(Privacy()), Writer(writer="w")
    for number in range(3):
        rule = RuleRef(number, "Disallow: /" + "x" * LONGEST_KEY, "*")
        long = Verdict(action=Action.DROP, reason=Reason.DISALLOWED, rule=rule)
        encoder.line_of(decision(verdict=long), writer, seq=1, mono=1.0)
    assert encoder.kept == 0

    for number in range(MOST + 1):
        encoder.line_of(decision(f"https://a{number}.test/x"), writer, seq=1, mono=1.0)
    assert encoder.kept == 1
