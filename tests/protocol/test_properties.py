"""Properties of every document and every target."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from protocol.rows import ask
from protocol.slow_forms import slow_folded, slow_variants
from protocol.test_matcher import slowly_matches

from robots_guard.origin import wire_text
from robots_guard.protocol.dialect import DIALECTS, dialect
from robots_guard.protocol.lines import lines
from robots_guard.protocol.lint.groups import violations
from robots_guard.protocol.paths import MATCHINGS, variants
from robots_guard.protocol.percent import canonical, canonical_rules
from robots_guard.protocol.robots import parse
from robots_guard.protocol.ruleset import compile_rules

NAMES = st.sampled_from(sorted(DIALECTS))
PROFILES = st.sampled_from(MATCHINGS)
PATTERNS = st.text(alphabet="/ab*$%2eE;é.", max_size=8).map(lambda text: "/" + text)
TARGETS = st.text(alphabet='/ab$*"%2eEfF;.?#é', max_size=12).map(lambda text: wire_text("/" + text))
RULES = st.lists(st.tuples(st.sampled_from(("Allow", "Disallow")), PATTERNS), max_size=12)
FIELDS = st.sampled_from(
    ("User-agent", "Disallow", "Allow", "Crawl-delay", "Host", "user agent", "Sitemap", "", "#")
)
VALUES = st.sampled_from(
    ("*", "x", "examplebot", "/", "/a", "/*b$", "", "* x", "/a /b", "main.ru", "\xff\x00", "%")
)
LINES = st.builds("{0}{2}{1}".format, FIELDS, VALUES, st.sampled_from((":", ": ", " ", "")))
DOCUMENTS = st.one_of(
    st.binary(max_size=300),
    st.tuples(st.lists(LINES, max_size=20), st.sampled_from(("\n", "\r", "\r\n"))).map(
        lambda pair: pair[1].join(pair[0]).encode("latin-1", "replace")
    ),
)
RULED_DOCUMENTS = st.builds(
    lambda before, rules, end: end.join([*before, "User-agent: *", *rules]).encode("latin-1"),
    st.lists(LINES, max_size=10),
    st.lists(
        st.sampled_from(("Disallow: /", "Allow: /", "Disallow: /a", "Allow: /*b")),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(("\n", "\r", "\r\n")),
)


def body_of(rules) -> str:
    return "User-agent: *\n" + "".join(f"{field}: {pattern}\n" for field, pattern in rules)


@settings(max_examples=400)
@given(DOCUMENTS, NAMES, PROFILES, st.one_of(TARGETS, st.text(max_size=10)))
def test_no_bytes_raise(body, name, profile, target):
    rules = compile_rules(body, dialect(name), "examplebot", profile)
    ruling = rules.judge(target, "www.example.com")

    assert ruling.allowed or ruling.rule is not None
    assert rules.size > 0
    rules.matches(target)
    list(rules.records)
    list(lines(body, dialect(name)))
    violations(parse(body, dialect(name)))


@settings(max_examples=200, suppress_health_check=[HealthCheck.filter_too_much])
@given(DOCUMENTS | RULED_DOCUMENTS, NAMES, TARGETS)
@example(b"Useragent:*\nDisallo:/\nAllow:/", "bing", "/")  # a mended reading has rules of its own
def test_the_deciding_rule_stands_on_the_line_it_names(body, name, target):
    rules = compile_rules(body, dialect(name), "examplebot", "spec")
    rule = rules.judge(target).rule
    assume(rule is not None)
    listed = {line.number: line.text for line in lines(body, dialect(name))}

    assert rules.matches(target)[0] == rule
    assert listed[rule.line] == rule.text


@settings(max_examples=300)
@given(RULES, TARGETS)
def test_rfc9309_decides_as_the_slow_reference(rules, target):
    form = canonical(target.partition("#")[0])
    hits = []
    for place, (field, pattern) in enumerate(rules):
        pattern = pattern.partition("#")[0]
        written = canonical_rules(wire_text(pattern))
        if slowly_matches(written, form):
            hits.append((len(written), field == "Allow", -place))
    expected = max(hits)[1] if hits else True

    assert ask(body_of(rules), target_text(target), "x").allowed is (
        expected or target == "/robots.txt"
    )


def target_text(target: str) -> str:
    return target.encode("latin-1").decode("utf-8")


@settings(max_examples=300)
@given(RULES, TARGETS.map(lambda target: target.replace("#", "")))
def test_standard_denies_what_any_form_denies(rules, target):
    """The hot path skips forms; this test judges all of them."""
    body = body_of(rules).encode()
    spec = compile_rules(body, dialect("rfc9309"), "x", "spec")
    standard = compile_rules(body, dialect("rfc9309"), "x", "standard")
    forms = variants(target)
    expected = spec.judge(target).allowed and all(
        spec.judge(form).allowed for form in forms if form != "/robots.txt"
    )

    assert standard.judge(target).allowed is expected


@settings(max_examples=400)
@given(RULES, TARGETS, st.sampled_from(("standard", "strict")))
def test_the_first_form_that_is_denied_decides(rules, target, profile):
    """In strict, each form is judged as it is, in lower case, and then with slashes decoded."""
    rules = [(field, pattern.partition("#")[0]) for field, pattern in rules]
    ruling = compile_rules(body_of(rules).encode(), dialect("rfc9309"), "x", profile).judge(target)
    assume(not ruling.exempt)
    denials = (
        (name, place)
        for name, form, ignores_case in _forms_in_order(target, profile)
        if (place := _place_of_denial(rules, form, ignores_case=ignores_case)) is not None
    )
    name, place = next(denials, ("spec", None))

    assert ruling.allowed is (place is None)
    assert ruling.form == name
    assert place is None or ruling.rule.line == place + 2


SLASHED_TARGETS = st.lists(
    st.sampled_from(("%2F", "%2f", "%5C", "/", "//", "..", "a", "b", "?", ";")), max_size=6
).map(lambda parts: "/" + "".join(parts))


@settings(max_examples=400)
@given(RULES, SLASHED_TARGETS)
def test_a_ruling_that_depends_on_an_encoded_slash_is_ambiguous(rules, target):
    rules = [(field, pattern.partition("#")[0]) for field, pattern in rules]
    ruling = ask(body_of(rules), target, "x", matching="standard")
    assume(ruling.allowed and not ruling.exempt)
    doubtful = any(
        _place_of_denial(rules, text, ignores_case=False) is not None
        for form in slow_variants(target)
        for text, _ in slow_folded(form)
    )

    assert ruling.ambiguous == ("pct_slash" if doubtful else None)


def _forms_in_order(target, profile):
    for number, (form, made_by) in enumerate(slow_variants(target).items()):
        yield f"standard:{made_by}" if number else "spec", form, False
        if profile == "strict":
            yield f"strict:{made_by}+letter-case", form, True
            for text, steps in slow_folded(form):
                yield f"strict:{steps}", text, False
                yield f"strict:{steps}+letter-case", text, True


def _place_of_denial(rules, form, *, ignores_case):
    """The place of the rule that disallows a canonical form, or None."""
    hits = []
    for place, (field, pattern) in enumerate(rules):
        written = canonical_rules(wire_text(pattern))
        if ignores_case:
            written, form = written.lower(), form.lower()
        if slowly_matches(written, form):
            hits.append((len(written), field == "Allow", -place))
    if not hits or max(hits)[1]:
        return None
    return -max(hits)[2]


@settings(max_examples=300)
@given(RULES, TARGETS, NAMES)
def test_deny_wins_is_monotone(rules, target, name):
    """A wider profile never allows what a narrower one denies."""
    assume(target.partition("#")[0] != "/robots.txt")
    body = body_of(rules).encode()
    spec, standard, strict = (
        compile_rules(body, dialect(name), "x", profile).judge(target).allowed
        for profile in MATCHINGS
    )

    assert spec >= standard >= strict


@settings(max_examples=200)
@given(RULES, TARGETS, PATTERNS)
def test_one_more_allow_forbids_nothing_and_one_more_disallow_allows_nothing(
    rules, target, pattern
):
    before = ask(body_of(rules), target_text(target), "x").allowed

    assert ask(body_of([*rules, ("Allow", pattern)]), target_text(target), "x").allowed >= before
    assert ask(body_of([*rules, ("Disallow", pattern)]), target_text(target), "x").allowed <= before


@settings(max_examples=200)
@given(st.lists(LINES, max_size=15), NAMES, st.sampled_from(("\r", "\r\n")))
def test_reading_is_the_same_under_every_line_end_and_mark(texts, name, end):
    plain = parse("\n".join(texts).encode("latin-1"), dialect(name))
    other = parse(b"\xef\xbb\xbf" + end.join(texts).encode("latin-1"), dialect(name))

    assert other.groups == plain.groups
    assert other.others == plain.others


@settings(max_examples=200)
@given(RULES, TARGETS, st.lists(NAMES, min_size=1, max_size=4, unique=True))
def test_strictest_is_the_intersection_of_its_parts(rules, target, names):
    body = body_of(rules)
    each = {name: ask(body, target_text(target), "x", name).allowed for name in names}
    ruling = ask(body, target_text(target), "x", f"strictest({', '.join(names)})")

    assert ruling.allowed is all(each.values())
    assert ruling.disagree == tuple(name for name in names if each[name] != ruling.allowed)


@settings(max_examples=200)
@given(RULES, TARGETS)
def test_the_order_of_rules_means_nothing_to_rfc9309(rules, target):
    assert (
        ask(body_of(rules), target_text(target), "x").allowed
        is ask(body_of(reversed(rules)), target_text(target), "x").allowed
    )


@pytest.mark.parametrize("name", DIALECTS)
def test_an_empty_file_allows_all(name):
    assert ask("", "/x", name=name).allowed
