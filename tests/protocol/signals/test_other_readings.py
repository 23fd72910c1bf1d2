"""How other tools read the same pages, by published descriptions of them, and how often they differ.

The readings are written anew from these descriptions; none is the tool's code:

- img2dataset (at 95523bc) reads X-Robots-Tag for noai, noimageai, noindex and noimageindex. It cuts
  each value at its first colon, takes what is before it for the name of a crawler, and compares
  names with their case.
- datadiligence (at ea09739) reads X-Robots-Tag for noai and noimageai, and the header
  tdm-reservation. It splits a value at its commas first, so that the name of a crawler counts for
  the next rule only, and compares names with their case.
- Nutch (at 790694141) reads META ROBOTS in the head, by substrings: none, noindex, nofollow,
  noarchive. It does not read X-Robots-Tag.

Two things are counted. A row is misread if the tool does not find the statements that it looks for,
or finds some that do not bind the crawler; a tool's choice to refuse images for noindex is no fault
of its reading. A row is wrong if the tool denies a use that it has a say in where the site does not,
or the reverse, whatever signal states it. docs/signals.md shows the figures.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.signal_rows import answers, rows

from robots_guard.protocol.html.charset import documents
from robots_guard.protocol.html.tokenizer import Tokenizer

DOCS = Path(__file__).parents[3] / "docs" / "signals.md"

#: Rows about what robots_guard does not enforce, or about another page dialect, are left out.
NOT_ENFORCED = {"embedded", "trust-txt", "llms-txt", "ai-txt"}


def field_values(row, name):
    headers = row["input"].get("headers", ())
    return [value for field, value in headers if field.lower() == name]


def img2dataset(row) -> set[str]:
    refused = {"noai", "noimageai", "noindex", "noimageindex"}
    for value in field_values(row, "x-robots-tag"):
        name, colon, rest = value.partition(":")
        if colon and name.strip() not in (row["agent"], "*"):
            continue
        listed = rest if colon else value
        if refused & {rule.strip().lower() for rule in listed.split(",")}:
            return {"ai-train"}
    return set()


def datadiligence(row) -> set[str]:
    for value in field_values(row, "x-robots-tag"):
        for part in value.split(","):
            name, colon, rule = part.strip().partition(":")
            is_for_us = not colon or name.strip() in (row["agent"], "*")
            if is_for_us and (rule if colon else name).strip() in ("noai", "noimageai"):
                return {"ai-train"}
    if "1" in field_values(row, "tdm-reservation"):
        return {"ai-train"}
    return set()


def body_of(row) -> bytes:
    given = row["input"]
    return base64.b64decode(given.get("html_b64", "")) or given.get("html", "").encode()


def nutch(row) -> set[str]:
    denied: set[str] = set()
    content_type = "".join(field_values(row, "content-type")) or "text/html"
    if "html" not in content_type.lower():
        return denied
    page = documents(body_of(row), content_type)[0]
    for tag in Tokenizer(page, frozenset((b"meta", b"body"))).tags():
        if tag.name == b"body":
            break
        attributes = tag.attributes()
        if attributes.get("name", "").lower() != "robots":
            continue
        content = attributes.get("content", "").lower()
        if "none" in content or "noindex" in content:
            denied.add("search")
        if "none" in content or "nofollow" in content:
            denied.add("follow")
        if "noarchive" in content:
            denied.add("archive")
    return denied


Answer = dict[str, Any]


def img2dataset_sought(answer: Answer) -> set[str]:
    """What it would find if it read well: none is noindex and nofollow."""
    found = {rule for _, rule, _ in answer["rules"]}
    sought = {"noai", "noimageai", "noindex", "noimageindex", "none"}
    return {"ai-train"} if found & sought else set()


def datadiligence_sought(answer: Answer) -> set[str]:
    found = {rule for _, rule, _ in answer["rules"]}
    is_reserved = "tdm" in answer["denied"]
    return {"ai-train"} if found & {"noai", "noimageai"} or is_reserved else set()


def nutch_sought(answer: Answer) -> set[str]:
    return set(answer["denied"]) & {"search", "follow", "archive"}


class Reading(NamedTuple):
    """A tool: the uses that it can deny, whether it reads anything of a row, and how. `sought` is
    what it would find if it read well."""

    uses: frozenset[str]
    reads: Callable[[dict[str, Any]], bool]
    read: Callable[[Answer], set[str]]
    sought: Callable[[Answer], set[str]]


class Figures(NamedTuple):
    """Rows: those that the tool reads something of, the misread among them, and all wrong ones."""

    read: int
    misread: int
    wrong: int


READINGS = {
    "img2dataset": Reading(
        uses=frozenset(("ai-train",)),
        reads=lambda row: bool(field_values(row, "x-robots-tag")),
        read=img2dataset,
        sought=img2dataset_sought,
    ),
    "datadiligence": Reading(
        uses=frozenset(("ai-train",)),
        reads=lambda row: bool(
            field_values(row, "x-robots-tag") or field_values(row, "tdm-reservation")
        ),
        read=datadiligence,
        sought=datadiligence_sought,
    ),
    "Nutch": Reading(
        uses=frozenset(("search", "follow", "archive")),
        reads=lambda row: row["signal"] == "meta-robots",
        read=nutch,
        sought=nutch_sought,
    ),
}
FIGURES = {
    "img2dataset": Figures(read=122, misread=14, wrong=102),
    "datadiligence": Figures(read=132, misread=3, wrong=76),
    "Nutch": Figures(read=83, misread=15, wrong=93),
}
COMPARED = 392  # a new row adds one, here and in the page


@pytest.fixture(scope="module")
def compared():
    """The compared rows, each with the answer, which agrees with it (test_signal_vectors.py)."""
    asked = [
        row
        for row in rows()
        if row["signal"] not in NOT_ENFORCED
        and "licenses" not in row["input"]
        and "dialect" not in row
    ]
    return list(zip(asked, answers(asked), strict=True))


def figures(reading, compared):
    in_reach = [(row, answer) for row, answer in compared if reading.reads(row)]
    wrong = [
        row["id"]
        for row, answer in compared
        if reading.read(row) != set(answer["denied"]) & reading.uses
    ]
    return Figures(
        read=len(in_reach),
        misread=sum(reading.read(row) != reading.sought(answer) for row, answer in in_reach),
        wrong=len(wrong),
    )


def test_rows_are_compared(compared):
    assert len(compared) == COMPARED


@pytest.mark.parametrize("name", READINGS)
def test_reading_differs_in_as_many_rows_as_the_docs_say(name, compared):
    assert figures(READINGS[name], compared) == FIGURES[name]


def test_docs_have_the_figures():
    found = re.findall(
        r"^\| (img2dataset|datadiligence|Nutch) \|.*\| (\d+) of (\d+) \| (\d+) of (\d+) \|$",
        DOCS.read_text("utf-8"),
        re.MULTILINE,
    )

    assert {name: tuple(map(int, numbers)) for name, *numbers in found} == {
        name: (each.misread, each.read, each.wrong, COMPARED) for name, each in FIGURES.items()
    }


@pytest.mark.parametrize(
    ("name", "value", "denied"),
    [
        ("img2dataset", "MyBot: noai", set()),  # the case of the name
        ("img2dataset", "otherbot: noindex, mybot: noai", set()),  # a second name
        ("img2dataset", "unavailable_after: 1 Jan 2030, noai", set()),  # a date is no name
        ("img2dataset", "noindex", {"ai-train"}),
        ("datadiligence", "otherbot: noindex, noai", {"ai-train"}),  # the name is lost
        ("datadiligence", "NOAI", set()),
        ("Nutch", "noai", set()),
    ],
)
def test_reading_has_the_faults_that_are_described(name, value, denied):
    row = {"agent": "mybot", "input": {"headers": [["X-Robots-Tag", value]]}}

    assert READINGS[name].read(row) == denied


def test_substrings_are_found_in_other_words():
    page = '<meta name="robots" content="nonexistent">'
    row = {"agent": "mybot", "input": {"html": page}}

    assert nutch(row) == {"search", "follow"}
    assert nutch({"agent": "mybot", "input": {"html": "<body>" + page}}) == set()
