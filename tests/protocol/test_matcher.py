"""The compiled matcher compared with a slow reference, and its bounds."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol.rows import ask
from support.cost import LINEAR, growth

from robots_guard.protocol import matcher
from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.matcher import Constant, Few, Index, Patterns, Prefixes, pattern_matches
from robots_guard.protocol.ruleset import Ruling, compile_rules

PATTERNS = st.text(alphabet="ab*$/", max_size=7).map(lambda text: "/" + text)
PATHS = st.text(alphabet="ab/$", max_size=9).map(lambda text: "/" + text)


def slowly_matches(pattern: str, path: str) -> bool:
    """The set of positions reached after each character of the pattern."""
    if pattern.endswith("$"):
        pattern, anchored = pattern[:-1], True
    else:
        anchored = False
    places = {0}
    for char in pattern:
        if char == "*":
            places = set(range(min(places), len(path) + 1))
        else:
            places = {place + 1 for place in places if path[place : place + 1] == char}
        if not places:
            return False
    return not anchored or len(path) in places


def slowly_decides(patterns: list[str], path: str, *, wildcards: bool) -> int:
    def hit(pattern: str) -> bool:
        return slowly_matches(pattern, path) if wildcards else path.startswith(pattern)

    return max((rank for rank, pattern in enumerate(patterns) if hit(pattern)), default=-1)


def compiled(patterns: list[str], *, wildcards: bool = True):
    builder = Patterns()
    add = builder.add_patterns if wildcards else builder.add_prefixes
    add(patterns, range(len(patterns)))
    return builder.compiled()


@settings(max_examples=400)
@given(PATTERNS, PATHS)
def test_one_pattern_matches_as_the_slow_reference(pattern, path):
    assert pattern_matches(pattern, path, wildcards=True) is slowly_matches(pattern, path)


@settings(max_examples=300)
@given(st.lists(PATTERNS, max_size=50), PATHS, st.booleans())
def test_any_tier_decides_as_the_slow_reference(patterns, path, wildcards):
    decided = compiled(patterns, wildcards=wildcards).decide(path)

    assert decided == slowly_decides(patterns, path, wildcards=wildcards)


@settings(max_examples=150)
@given(st.lists(PATTERNS, min_size=1, max_size=60), st.lists(PATHS, min_size=1, max_size=5))
def test_the_index_and_its_grams_decide_as_the_slow_reference(patterns, paths):
    builder = Patterns()
    builder.add_patterns(patterns, range(len(patterns)))
    index = Index(builder)
    crowded = Index(builder)
    crowded.attached = [None] * len(crowded.keys)
    crowded.grams = matcher.Grams(crowded.wildcards)
    for path in paths:
        expected = slowly_decides(patterns, path, wildcards=True)
        assert index.decide(path) == expected
        assert crowded.decide(path) == expected


def some_texts(chance: random.Random, letters: str, longest: int, count: int) -> list[str]:
    return [
        "/" + "".join(chance.choices(letters, k=chance.randint(0, longest))) for _ in range(count)
    ]


@pytest.mark.parametrize("count", [3, 12, 30, 60, 300], ids=lambda count: f"{count} rules")
@pytest.mark.parametrize("wildcards", [True, False], ids=["wildcards", "plain"])
def test_files_of_any_size_are_decided_as_the_slow_reference(count, wildcards):
    """The same files each time, with patterns that occur twice; a rank does not follow from the order in the file."""
    chance = random.Random(count)
    for _ in range(8):
        patterns = [*some_texts(chance, "ab*$/", 6, count), "/b**", "/b*", "/b"]
        ranks = chance.sample(range(len(patterns)), len(patterns))
        builder = Patterns()
        add = builder.add_patterns if wildcards else builder.add_prefixes
        add(patterns, ranks)
        rules = builder.compiled()
        by_rank = [pattern for _, pattern in sorted(zip(ranks, patterns, strict=True))]
        for path in some_texts(chance, "ab/$", 9, 40):
            assert rules.decide(path) == slowly_decides(by_rank, path, wildcards=wildcards)


@pytest.mark.parametrize(
    ("patterns", "tier"),
    [
        ([], Constant),
        (["/"], Constant),
        (["/*"], Constant),
        (["/a"] * 30, Prefixes),
        (["/a", "/*b"], Few),
        (["/a$"], Few),
        ([f"/{number}" for number in range(30)], Index),
    ],
)
def test_the_tier_follows_from_the_patterns(patterns, tier):
    assert type(compiled(patterns)) is tier


def test_many_wildcards_are_indexed_by_grams():
    index = compiled([f"/*x{number}y" for number in range(100)])

    assert index.decide("/some/x57y/z") == 57
    assert index.grams is not None


def test_few_wildcards_among_many_prefixes_are_not_indexed():
    """The index takes memory, and pays off only if there are too many to try."""
    index = compiled(["/*x", *(f"/{number}" for number in range(30))])

    assert index.grams is None


def test_a_wildcard_is_indexed_by_the_rarest_gram_of_its_gate():
    letters = "klmnopqrst"
    grams = compiled([f"/*aaa{one}{other}" for one in letters for other in letters]).grams

    assert len(list(grams.candidates("/aaa"))) == 0
    assert len(list(grams.candidates("/aak"))) == 0
    assert [gate for _, gate, *_ in grams.candidates("/akl")] == ["aaakl"]
    assert grams.sizes == [3]


def test_a_gate_shorter_than_a_gram_is_indexed_itself():
    grams = compiled(["/*~", "/*ab", "/*abc", *(f"/*x{number}y" for number in range(100))]).grams

    assert [gate for _, gate, *_ in grams.candidates("/z~ab")] == ["ab", "~"]
    assert [gate for _, gate, *_ in grams.candidates("/abc")] == ["abc", "ab"]


def test_each_wildcard_that_is_tried_costs_the_length_of_the_path(monkeypatch):
    rules = compiled([f"/*abc*{number}~" for number in range(100)])
    path = "/abc0123456789"
    tried = len(list(rules.grams.candidates(path)))
    assert tried == 100
    monkeypatch.setattr(matcher, "WORK", tried * len(path))
    assert rules.decide(path) == matcher.NO_RULE
    monkeypatch.setattr(matcher, "WORK", tried * len(path) - 1)
    assert rules.decide(path) == matcher.TOO_COMPLEX


@pytest.mark.parametrize(
    "pattern",
    [
        lambda size: "/*a*a*a*a*a*a*a*b",
        lambda size: "/" + "*a" * size + "*b",
        lambda size: "/" + "a*" * size + "b$",
        lambda size: "*" * 2 * size + "b",
    ],
    ids=["few wildcards", "wildcards before", "wildcards behind", "wildcards only"],
)
def test_one_hostile_pattern_costs_at_most_linear_time(pattern):
    """Both sides are untrusted. Backtracking would cost at least quadratic time."""

    def decide(rules_and_size):
        rules, size = rules_and_size
        for _ in range(10):
            rules.decide("/" + "a" * 2 * size)

    assert growth(decide, lambda size: (compiled([pattern(size), "/x"]), size), 500) < LINEAR


def test_nested_heads_with_wildcards_of_their_own_are_not_copied_down():
    """A key inherits a limited number of candidates; beyond that, grams are used."""
    patterns = [f"/{'a' * depth}*x{depth}" for depth in range(500)] + [
        f"/*y{number}" for number in range(500)
    ]
    index = compiled(patterns)

    assert sum(len(candidates or ()) for candidates in index.attached) <= matcher.MANY * len(
        index.keys
    )
    assert index.decide("/aaab/x3") == 3


def test_a_file_and_path_designed_to_burn_time_are_denied():
    letters = "abcdefghijklmnopqrstuvwxyz"
    pairs = [a + b for a in letters for b in letters]
    body = "User-agent: *\n" + "".join(
        f"Disallow: /*{a}*{b}*~\n" for a in pairs for b in pairs[:30]
    )
    path = "/" + "".join(pairs) * 6

    ruling = ask(body, path)

    assert (ruling.allowed, ruling.ambiguous, ruling.rule) == (False, "policy_too_complex", None)
    assert ask(body, "/short").allowed


def test_a_decision_that_takes_too_long_is_a_denial_with_its_group(monkeypatch):
    monkeypatch.setattr(matcher, "WORK", 1)
    ruling = ask(
        "User-agent: *\n" + "".join(f"Allow: /*abc*{number}~\n" for number in range(100)), "/abc"
    )

    assert ruling == Ruling(allowed=False, group="*", ambiguous="policy_too_complex")


def test_a_path_of_usual_length_is_never_too_complex():
    body = "User-agent: *\n" + "".join(f"Disallow: /*a*{number}~\n" for number in range(3_000))

    assert ask(body, "/some/article/of/the/usual/length-" + "0123456789" * 10).allowed


def test_listing_what_matches_is_linear_too():
    def make(size):
        return b"User-agent: *\n" + b"".join(b"Disallow: /*%d\n" % number for number in range(size))

    def matches(body):
        return compile_rules(body, dialect("rfc9309"), "examplebot").matches("/1234")

    assert [rule.pattern for rule in matches(make(3_000))[:2]] == ["/*1234", "/*123"]
    assert growth(matches, make, 3_000) < LINEAR
