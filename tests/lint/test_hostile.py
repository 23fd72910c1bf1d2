"""For any bytes: no exception, printable findings, and bounded work."""

from __future__ import annotations

import itertools
import json
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.cost import LINEAR, growth

from robots_guard.protocol.lint.formats import LintedFileFindings, command, sarif
from robots_guard.protocol.lint.linter import CHECKS, MOST, lint

HOSTILE = b"\x1b[31m::error::x%0A\r\x85\xe2\x80\xae,:%\x00\xff"

VALUES = [b"*", b"/", b"/a", b"/*$", b"a b", b"[::1", b"%", b"/%7e"]

lines = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.builds(
            lambda field, value: field + b":" + value,
            st.sampled_from(
                [
                    b"User-agent",
                    b"Disallow",
                    b"Allow",
                    b"Host",
                    b"Crawl-delay",
                    b"Visit-time",
                    b"Sitemap",
                    b"Disalow",
                ],
            ),
            st.one_of(st.binary(max_size=20), st.sampled_from(VALUES)),
        ),
    ),
    max_size=12,
)


@settings(max_examples=150)
@given(lines, st.sampled_from([b"\n", b"\r", b"\r\n"]))
@example([b"User-agent: *", b"Disallow: http://[", b"Host: [::1]:x:y", b"User-agent: \xff"], b"\n")
def test_any_bytes_give_printable_findings(parts, end):
    for finding in lint(end.join(parts)):
        said = [finding.message, finding.text, *(effect.does for effect in finding.effects)]

        assert all(text.isprintable() for text in said), said
        assert all(1 <= line <= len(parts) * 3 + 1 for line in finding.lines)


@pytest.mark.parametrize(
    "line", [b"User-agent: %b", b"Disallow: %b", b"%b: x", b"Host: %b", b"%b", b"Sitemap: %b"]
)
def test_a_hostile_line_breaks_no_format(line):
    found = lint(b"User-agent: *\n" + line % HOSTILE + b"\n")
    commands = [command(finding, "a,b:c%\n.txt") for finding in found]

    assert found
    assert all(each.isprintable() for each in commands)
    assert all(
        re.match(r"::(error|warning|notice) file=a%2Cb%3Ac%25%0A\.txt,line=[0-9]+,title=RG", each)
        for each in commands
    )
    assert json.loads(json.dumps(sarif([LintedFileFindings("x", found)], "1")))["runs"][0][
        "results"
    ]


FILES = {
    "names": lambda size: b"".join(b"User-agent: a%d\nDisallow: /\n" % n for n in range(size)),
    "one name": lambda size: b"User-agent: a\nDisallow: /\n" * size,
    "unknown": lambda size: b"User-agent: *\n" + b"".join(b"f%d: x\n" % n for n in range(3 * size)),
    "duplicates": lambda size: b"User-agent: *\n" + b"Disallow: /a\n" * 2 * size,
    "wildcards": lambda size: (
        b"User-agent: *\n" + b"".join(b"Disallow: /*a*a*a*a%d$\n" % n for n in range(size))
    ),
    "stars": lambda size: (  # each rule's target meets all of them
        b"User-agent: *\n"
        + b"".join(b"Disallow: /" + b"%%C3%%A9*" * 30 + b"%d\n" % n for n in range(size // 5))
    ),
    "nul": lambda size: b"\0\n" * 12 * size,
    "blank": lambda size: b"User-agent: a\n\nDisallow: x\n" * size,
    "paths": lambda size: b"User-agent: *\nDisallow:" + b" /a" * 8 * size,
    "names without one": lambda size: b"User-agent:\n" * 2 * size,
    "long": lambda size: b"User-agent: *\nDisallow: /" + b"*%7e a" * 4 * size,
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_designed_to_cost_time_is_linted_within_bounds(name):
    results = []
    grown = growth(lambda body: results.append(lint(body)), FILES[name], 700, times=2)
    found = max(results, key=len)
    most = {
        code: len(list(each))
        for code, each in itertools.groupby(sorted(finding.code for finding in found))
    }

    assert grown < LINEAR
    assert len(most) <= len(CHECKS)
    assert all(count <= MOST for count in most.values())
    assert all(len(effect.does) < 1_000 for finding in found for effect in finding.effects)
    assert len(json.dumps(sarif([LintedFileFindings("x", found)], "1"))) < 3_000_000
