"""The statements of a robots.txt: the lines that apply to a crawler, and those of them that count for
a target."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cost import LINEAR, growth

from robots_guard.protocol.dialect import DIALECTS, dialect
from robots_guard.protocol.lines import LINE_CAP
from robots_guard.protocol.ruleset import COMPILED_AT_ONCE, compile_rules
from robots_guard.protocol.signals.statement import STATEMENTS, Flag, Place, is_restrictive

USAGE_NO, USAGE_YES = ("train-ai", "n"), ("train-ai", "y")


def rules(text, name="rfc9309", agent="mybot", matching="standard", tokens=()):
    body = text.encode() if isinstance(text, str) else text
    return compile_rules(body, dialect(name), agent, matching, tokens)


def found(text, target="/page", **given):
    return [(each.rule, each.value) for each in rules(text, **given).statements(target)]


def flags(text, target="/page", **given):
    return {flag for each in rules(text, **given).statements(target) for flag in each.flags}


def test_most_documents_state_nothing():
    text = "User-agent: *\nCrawl-delay: 10\nClean-param: sid /\nHost: a.example\nDisallow: /x"

    assert rules(text).statements("/page") == ()


@pytest.mark.parametrize(
    ("lines", "target", "expected"),
    [
        ("Content-Usage: train-ai=n", "/a", [USAGE_NO]),
        ("content-usage:train-ai=n # note", "/a", [USAGE_NO]),
        ("Content-Usage: /a\ttrain-ai=n", "/a", [USAGE_NO]),
        ("Content-Usage: /a$ train-ai=n", "/ab", []),
        ("Content-Usage: /*.jpg train-ai=n", "/x/y.jpg", [USAGE_NO]),
        ("Content-Usage: *.jpg train-ai=n", "/x/y.jpg", [USAGE_NO]),
        ("Content-Usage: *.jpg train-ai=n", "/x/y.png", []),
        ("Content-Usage: /a", "/a", []),
        ("Content-Usage:", "/a", []),
        ("Content-Usage: /%7Ea train-ai=n", "/~a", [USAGE_NO]),
        # One rule is chosen, and its labels alone count.
        (
            "Content-Usage: train-ai=n\nContent-Usage: /a train-ai=y\nContent-Usage: /a/b search=n",
            "/a/b",
            [("search", "n")],
        ),
        ("Content-Usage: train-ai=n\nContent-Usage: /a train-ai=y", "/a", [USAGE_YES]),
        ("Content-Usage: train-ai=n\nContent-Usage: /a train-ai=y", "/b", [USAGE_NO]),
        # Equal patterns are combined, in whatever spelling.
        (
            "Content-Usage: /a train-ai=y\nContent-Usage: /%61 train-ai=n",
            "/a",
            [USAGE_YES, USAGE_NO],
        ),
        # What cannot be read replaces nothing.
        ("Content-Usage: train-ai=n\nContent-Usage: /a", "/a", [USAGE_NO]),
        (
            "Content-Usage: train-ai=n\nContent-Usage: /a train-ai=y,",
            "/a",
            [USAGE_NO, ("", "")],
        ),
        (
            "Content-Usage: search=y\nContent-Usage: /a train-ai=n,",
            "/a",
            [("search", "y"), USAGE_NO, ("", "")],
        ),
        # Every Content-Signal line counts.
        (
            "Content-Signal: ai-train=no\nContent-Signal: /a ai-train=yes, use=full",
            "/a",
            [("ai-train", "no"), ("ai-train", "yes"), ("use", "full")],
        ),
        ("Content-Signal: /blog/ ai-train=no", "/b", []),
        ("Content-Signals: ai-train=no", "/b", []),
        ("# ai-train=no", "/b", []),
        # AI training: the longest path, and of two equal ones the prohibition.
        ("DisallowAITraining: /", "/a", [("disallowaitraining", True)]),
        (
            "DisallowAITraining: /\nAllowAITraining: /images/",
            "/images/a",
            [("allowaitraining", True)],
        ),
        ("AllowAITraining: /a\nDisallowAITraining: /a", "/a", [("disallowaitraining", True)]),
        ("DisallowAITraining: /a\nAllowAITraining: /%61", "/a", [("disallowaitraining", True)]),
        ("DisallowAITraining:", "/a", []),
        ("DisallowAITraining: a", "/a", [("disallowaitraining", True)]),
        ("DisallowAITraining: /\nAllowAITraining: a", "/a", [("disallowaitraining", True)]),
        # Noindex: any match.
        ("Noindex: /private/", "/private/a", [("noindex", True)]),
        ("Noindex: /private/", "/a", []),
        ("Noindex: /\nNoindex: /a", "/a", [("noindex", True)]),
        ("Noindex:", "/a", []),
        ("Noindex: /a$", "/ab", []),
        ("Noindex: private", "/private", [("noindex", True)]),
        # License: absolute, and not for some targets only.
        ("License: https://x.example/l", "/a", [("license", "https://x.example/l")]),
        ("License: /l.xml", "/a", [("license", "")]),
    ],
)
def test_lines_of_a_group(lines, target, expected):
    assert found(f"User-agent: *\nAllow: /\n{lines}", target) == expected


def test_a_statement_names_its_line():
    (statement,) = rules("User-agent: *\n\nContent-Usage: train-ai=n # x").statements("/")

    assert (statement.line, statement.raw) == (3, "Content-Usage: train-ai=n")
    assert (statement.place, statement.agent) == (Place.ROBOTS_TXT, "*")


@pytest.mark.parametrize("field", ["Content-Usage: train-ai=%s", "Content-Signal: ai-train=%so"])
@pytest.mark.parametrize(
    ("text", "denied"),
    [
        ("User-agent: a\nAllow: /\n{}\n\nUser-agent: *\nAllow: /", False),
        ("User-agent: *\nAllow: /\n{}\n\nUser-agent: mybot\nAllow: /", False),
        ("User-agent: mybot\nAllow: /\n\nUser-agent: *\n{}", False),
        ("User-agent: mybot\n{}\nUser-agent: b\nAllow: /", True),
        # A parser that skips the line joins the User-agent lines around it.
        ("User-agent: a\n{}\nUser-agent: mybot\nAllow: /", True),
        ("User-agent: a\n{}\n\nUser-agent: *\nAllow: /", True),
        ("User-agent: *\n{}\n\nUser-agent: mybot\nAllow: /", True),
        # Before any group.
        ("{}\nUser-agent: mybot\nAllow: /", True),
    ],
)
def test_groups(field, text, denied):
    statements = rules(text.format(field % "n")).statements("/page")

    assert any(is_restrictive(each) for each in statements) is denied


@pytest.mark.parametrize(
    "text",
    [
        "User-agent: a\n{}\nUser-agent: mybot\nAllow: /",
        "{}\nUser-agent: *\nAllow: /",
        "User-agent: *\nDisallow: /\n{}",
    ],
)
def test_a_doubtful_permission_does_not_count(text):
    permission = "Content-Usage: train-ai=y"

    assert USAGE_YES not in found(text.format(permission))
    assert USAGE_YES in found(f"User-agent: *\nAllow: /\n{permission}")


@pytest.mark.parametrize(("line", "value"), [("Noindex: /", True), ("DisallowAITraining: /", True)])
def test_paths_before_any_group(line, value):
    assert [each[1] for each in found(f"{line}\nUser-agent: *\nAllow: /")] == [value]
    assert Flag.UNGROUPED in flags(f"{line}\nUser-agent: *\nAllow: /")


def test_a_permission_of_training_before_any_group_does_not_count():
    text = "AllowAITraining: /a\nUser-agent: *\nDisallowAITraining: /"

    assert found(text, "/a") == [("disallowaitraining", True)]


def test_the_licences_of_a_group_replace_those_before_it():
    text = (
        "License: https://x.example/g\nUser-agent: mybot\nLicense: https://x.example/m\n"
        "License: https://x.example/n"
    )

    assert found(text) == [("license", "https://x.example/m"), ("license", "https://x.example/n")]
    assert found(text, agent="other") == [("license", "https://x.example/g")]


def test_noindex_is_flagged():
    assert flags("User-agent: *\nNoindex: /") == {Flag.ROBOTS_NOINDEX}


@pytest.mark.parametrize("name", DIALECTS)
def test_each_dialect_reads_them_with_the_patterns_of_rfc_9309(name):
    text = "User-agent: *\nContent-Usage: /*.jpg$ train-ai=n\nNoindex: /*.jpg$\nDisallow: /x"

    assert found(text, "/a.jpg", name=name) == [USAGE_NO, ("noindex", True)]
    assert found(text, "/a.jpgs", name=name) == []


@pytest.mark.parametrize("name", ["koster1994", "kollar1996"])
def test_a_record_with_these_lines_alone_is_valid(name):
    assert found("User-agent: *\nContent-Usage: train-ai=n\n", name=name) == [USAGE_NO]


def test_strictest_unites_the_statements_of_its_parts():
    text = "User-agent: *\nDisallow: /x\nNoindex: /\n\nContent-Usage: train-ai=n"

    assert found(text, name="koster1994")[-1] == USAGE_NO
    assert flags(text, name="koster1994") == {Flag.ROBOTS_NOINDEX, Flag.UNGROUPED}
    both = found(text, name="strictest(rfc9309, koster1994)")
    assert set(both) == {("noindex", True), USAGE_NO}


@pytest.mark.parametrize("field", ["AllowAITraining", "DisallowAITraining"])
@pytest.mark.parametrize("name", DIALECTS)
def test_a_line_about_training_is_not_a_rule(field, name):
    """Google's library takes a field that begins with "allow" for Allow."""
    ruleset = rules(f"User-agent: *\nDisallow: /a\n{field}: /a\n{field}: /b", name)

    assert not ruleset.judge("/a").allowed
    assert ruleset.judge("/b").allowed


@pytest.mark.parametrize("filler", [0, COMPILED_AT_ONCE])
def test_a_document_of_any_length_states_the_same(filler):
    text = "User-agent: *\nContent-Usage: train-ai=n\n" + "# x\n" * (filler // 4)

    assert found(text) == [USAGE_NO]


def test_a_statement_on_many_lines_is_made_once():
    assert found("User-agent: *\n" + "Content-Usage: train-ai=n\n" * 5_000) == [USAGE_NO]


# --- Other forms of a target ---


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Content-Usage: /a train-ai=n", USAGE_NO),
        ("Content-Signal: /a ai-train=no", ("ai-train", "no")),
        ("DisallowAITraining: /a", ("disallowaitraining", True)),
        ("Noindex: /a", ("noindex", True)),
    ],
)
def test_another_form_adds_denials(line, expected):
    text = f"User-agent: *\nAllow: /\n{line}"

    assert found(text, "/x/../a") == [expected]
    assert found(text, "/x/../a", matching="spec") == []
    assert found(text, "/A", matching="strict") == [expected]
    assert found(text, "/A") == []


def test_another_form_adds_no_permission():
    assert found("User-agent: *\nContent-Usage: /a train-ai=y", "/x/../a") == []


# --- Lines that a rule's reader truncates ---


def test_a_long_line_is_read_for_denials():
    filler = ", ".join(f"label{number}=y" for number in range(2_000))

    assert len(filler) > LINE_CAP
    assert USAGE_NO in found(f"User-agent: *\nContent-Usage: {filler}, train-ai=n")
    assert USAGE_YES not in found(f"User-agent: *\nContent-Usage: train-ai=y, {filler}")


def test_a_control_character_hides_no_denial():
    assert USAGE_NO in found(b"User-agent: *\nContent-Usage: search=y, \0train-ai=n")
    assert USAGE_YES not in found(b"User-agent: *\nContent-Usage: train-ai=y\0")


# --- Purpose tokens ---

TOKENS = (("ai-train", "Google-Extended"), ("ai-train", "CCBot"), ("ai-input", "Google-Extended"))


def tokens(text, target="/private/x", **given):
    statements = rules(text, tokens=TOKENS, **given).statements(target)
    return [(each.agent, each.rule, each.value, each.line, each.raw) for each in statements]


def test_a_disallowed_token_is_a_statement():
    text = "User-agent: Google-Extended\nDisallow: /private/ # x\n\nUser-agent: *\nAllow: /"
    line = ("disallow", 2, "Disallow: /private/")

    assert tokens(text) == [
        ("google-extended", "ai-train", *line),
        ("google-extended", "ai-input", *line),
    ]
    assert tokens(text, "/public") == []
    assert rules(text, tokens=TOKENS).judge("/private/x").allowed
    assert rules(text).statements("/private/x") == ()


def test_a_token_is_bound_by_rules_that_name_it_only():
    assert tokens("User-agent: *\nDisallow: /") == []
    assert tokens("User-agent: Google\nDisallow: /") == []
    assert len(tokens("User-agent: *\nUser-agent: CCBot\nDisallow: /")) == 1


def test_tokens_of_several_dialects_are_united():
    text = "User-agent: CCBot\nDisallow: /private/"

    assert tokens(text, name="strictest(rfc9309, koster1994)") == [
        ("ccbot", "ai-train", "disallow", 2, "Disallow: /private/")
    ]


# --- Invariants and limits ---

LINES = st.lists(
    st.sampled_from(
        (
            *(
                "User-agent: *",
                "User-agent: mybot",
                "User-agent: b",
                "",
                "Allow: /",
                "Disallow: /p",
            ),
            *("Content-Usage: train-ai=n", "Content-Usage: /p train-ai=y", "Content-Usage: /p"),
            *("Content-Usage: /page search=n", "Content-Usage: x", "Content-Usage: Train-AI=n"),
            *("Content-Signal: ai-train=no", "Content-Signal: /p search=yes", "Noindex: /p"),
            *("Content-Signal: use=full", "DisallowAITraining: /p", "AllowAITraining: /page"),
            *(
                "License: https://x.example/",
                "# x",
                "content-usage",
                "Content-Usage: /p\0 search=n",
            ),
        )
    ),
    max_size=10,
).map("\n".join)


@given(st.one_of(LINES.map(str.encode), st.binary()), st.text(), st.sampled_from(sorted(DIALECTS)))
def test_no_document_raises(body, target, name):
    for each in rules(body, name).statements(target):
        assert each.value not in ("y", "yes") or not each.flags


@given(LINES, LINES, st.sampled_from(["/page", "/p", "/x/../p", "/"]))
def test_more_lines_in_a_group_keep_its_denials(first, second, target):
    """Only a longer path of Content-Usage and AllowAITraining replaces a denial."""
    removed = ("user-agent", "content-usage: /p", "allowai", "disallow: ", "allow: ")
    more = [line for line in second.split("\n") if line and not line.lower().startswith(removed)]
    before = {_meaning(each) for each in rules(first).statements(target) if is_restrictive(each)}

    after = {_meaning(each) for each in rules("\n".join([first, *more])).statements(target)}
    assert before <= after


def _meaning(each):
    return each.signal, each.rule, each.value


def test_the_number_of_statements_is_limited():
    lines = "\n".join(f"Content-Signal: word{number}=no" for number in range(10_000))

    statements = rules(f"User-agent: *\n{lines}\nContent-Signal: ai-train=no").statements("/")

    assert len(statements) < STATEMENTS + 10
    assert ("ai-train", "no") in {(each.rule, each.value) for each in statements}


@pytest.mark.parametrize(
    "line",
    [
        "Content-Usage: /{0} train-ai=n",
        "Content-Usage: /*{0}*x train-ai=n, search=y",
        "Content-Usage: train-ai=n",
        "Content-Signal: /*{0}$ ai-train=no",
        "Content-Signal: w{0}=no",
        "DisallowAITraining: /*{0}",
        "Noindex: /{0}",
        "User-agent: a{0}\nContent-Usage: /{0} train-ai=n",
    ],
)
def test_the_time_is_linear(line):
    def make(count):
        return "User-agent: *\n" + "\n".join(line.format(number) for number in range(count))

    assert growth(lambda text: rules(text).statements("/" + "1" * 100), make, 400) < LINEAR


def test_a_document_designed_to_burn_time_is_answered():
    """A target that meets thousands of wildcards, in its first question and in the next."""
    lines = "\n".join(f"Noindex: /*a*a*a*b{number}$" for number in range(20_000))
    ruleset = rules(f"User-agent: *\n{lines}")
    began = time.thread_time()

    ruleset.statements("/" + "a" * 4_000)
    assert time.thread_time() - began < 20
