"""Real files, mutated at random: nothing raises, nothing takes long, and every denial has a reason.

More examples than a test run has room for:
FUZZ_EXAMPLES=100000 python -m pytest --timeout=0 tests/protocol/test_fuzz.py
"""

from __future__ import annotations

import os
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from robots_guard.origin import wire_text
from robots_guard.protocol.dialect import DIALECTS, dialect
from robots_guard.protocol.lines import lines
from robots_guard.protocol.paths import MATCHINGS
from robots_guard.protocol.robots import parse
from robots_guard.protocol.ruleset import compile_rules

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "200"))
SECONDS = 2.0  # of CPU time; an example takes milliseconds

FILES = (
    b"User-agent: *\r\nDisallow: /wp-admin/\r\nAllow: /wp-admin/admin-ajax.php\r\n\r\nSitemap: https://a.test/s.xml",
    b"# shop\nUser-agent: *\nDisallow: /*?sort=\nDisallow: /*.pdf$\nDisallow: /cart # mine\nCrawl-delay: 10\n"
    b"User-agent: GPTBot\nUser-agent: examplebot/2.0\nDisallow: /\n",
    b"User-Agent: Yandex\nHost: www.example.com:8080\nClean-param: ref /some\nDisallow:\n\n"
    b"User-agent: *\nDisallow: /\n",
    b"user-agent:*\ndisallow:/caf%c3%a9\nDISALLOW : /%7Euser\nDissalow: /a b\nuseragent *\nallow: index.html\n",
    b"\xef\xbb\xbfUser-agent: *\rDisallow: /\xe2\x80\x93\rContent-Signal: search=yes, ai-train=no\r"
    b"Disallow: /a//b/../c\r",
    b"User-agent: a\nUser-agent: *\nRequest-rate: 1/10s 0800-1200\n"
    + b"".join(b"Disallow: /%d*x\n" % number for number in range(90)),
    b"<!DOCTYPE html>\n<html><head><title>404: Not Found</title></head></html>\n",
)
SCRAPS = (
    *(bytes([octet]) for octet in b"\n\r\t\0\x0b :#*$%/;?\xff"),
    *(b"%2", b"%2F", b"%00", b"\xff\xfe", b"\xef\xbb", b"\xed\xa0\x80", b"\xe2\x80\xa8"),
    *(b"*a" * 400, b"a" * 20_000, b"/.." * 300, b"\n" * 3_000),
    *(b"\nUser-agent: *\n", b"\nUser-agent: examplebot\n", b"\nHost: "),
    *(b"\nDisallow: ", b"\nAllow: /", b"\nDisallow: /*b$\n"),
)
# Position as a fraction; number of bytes removed; bytes inserted.
BREAKS = st.tuples(
    st.floats(0, 1), st.integers(0, 12), st.one_of(st.sampled_from(SCRAPS), st.binary(max_size=6))
)
WORDS = st.sampled_from(
    ["wp-admin", "cart", "?sort=", ".pdf", "..", "//", "%2f", *"/ab.;%*$#é2\\"],
)
TARGETS = st.one_of(st.lists(WORDS, max_size=8).map("".join), st.text(max_size=8)).map(
    lambda text: wire_text("/" + text),
)


def broken(body: bytes, breaks: list[tuple[float, int, bytes]]) -> bytes:
    for place, size, scrap in breaks:
        at = int(place * len(body))
        body = body[:at] + scrap + body[at + size :]
    return body


BODIES = st.builds(broken, st.sampled_from(FILES), st.lists(BREAKS, max_size=8))


@settings(max_examples=EXAMPLES)
@given(
    BODIES,
    st.sampled_from(sorted(DIALECTS)),
    st.sampled_from(MATCHINGS),
    st.lists(TARGETS, min_size=1, max_size=4),
)
def test_broken_files_are_read_in_time_and_every_denial_has_a_reason(body, name, profile, targets):
    start = time.thread_time()
    rules = compile_rules(body, dialect(name), "examplebot", profile)
    listed = {line.number: line.text for line in lines(body, dialect(name))}
    for target in targets:
        ruling = rules.judge(target, "www.example.com", 80, "http")
        matches = rules.matches(target)

        assert ruling == rules.judge(target, "www.example.com", 80, "http")
        assert ruling.allowed or ruling.rule is not None or ruling.ambiguous == "policy_too_complex"
        if ruling.rule is not None:
            assert ruling.rule.text == listed[ruling.rule.line]
        if ruling.form == "spec" and ruling.rule is not None and ruling.mirror_of is None:
            assert matches[0] == ruling.rule
    parsed = parse(body, dialect(name))

    assert {record.number for record in rules.records} <= {number for number, _, _ in parsed.others}
    assert rules.size >= len(parsed.text)
    assert time.thread_time() - start < SECONDS
