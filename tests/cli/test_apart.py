"""Odd files, each put to every dialect through `check --batch`.

The verdicts in apart.jsonl are those of a slow evaluator that was written from the sources and docs/dialects.md, by
somebody who had not seen the engine. The files are random lines of the kinds that dialects read apart: misspelt
fields, versions and stars in names, blank and comment lines, escapes, wildcards, line ends, byte order marks.
"""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

from robots_guard.protocol.dialect import DIALECTS

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parent.parent / "data" / "apart.jsonl").read_text().splitlines()
]


def test_each_dialect_gives_its_own_verdicts(here, tmp_path):
    questions = tmp_path / "questions.jsonl"
    asked = [
        {name: row[name] for name in ("robots_txt", "user_agent", "url")}
        | {"id": [row["id"], dialect], "dialect": dialect, "matching": "spec"}
        for row in ROWS
        for dialect in DIALECTS
    ]
    questions.write_text("".join(json.dumps(question) + "\n" for question in asked))
    status, out, _ = here("check", "--batch", questions)
    answers = [json.loads(line) for line in out.splitlines()]
    dropped = {tuple(answer["id"]) for answer in answers if answer["action"] == "drop"}

    assert (status, len(answers)) == (0, len(asked))
    expected = {(row["id"], dialect) for row in ROWS for dialect in row["drops"]}
    assert expected - dropped == set(), "under-blocks"
    assert dropped - expected == set(), "over-blocks"


def test_files_distinguish_the_dialects():
    alike = {
        (one, other)
        for one, other in combinations(DIALECTS, 2)
        if all((one in row["drops"]) == (other in row["drops"]) for row in ROWS)
    }

    assert alike == {("rambler2003", "yandex2003")}  # without a Host line these are one
