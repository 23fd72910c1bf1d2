"""The recipes of docs/operations/lake.md, run on a log of several days.

Vector, Fluent Bit and ClickHouse are in no package registry that the tests can reach: of their files it
is tested that the names in them fit each other, and the records.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import duckdb
import pytest
from audit.decisions import AT, PASS, audit_log_in, decision
from ruamel.yaml import YAML  # mitmproxy needs it
from support.programs import program

from robots_guard.audit.read.reader import LONGEST_LINE, Filter, Unreadable, entries
from robots_guard.audit.read.verify import verify_log
from robots_guard.audit.schema import COLUMNS
from robots_guard.audit.write.maintenance import compress

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PAGE = (ROOT / "docs/operations/lake.md").read_text()
FLUENT_BIT = (EXAMPLES / "fluent-bit/fluent-bit.conf").read_text()
DAY = 86400
TABLE = "robots_guard.records"


@pytest.fixture
def log(tmp_path):
    """A log of three days, whose files are compressed but the last, and one that is being compressed."""
    directory = tmp_path / "log"
    for day in range(3):
        compress(directory) if day else None
        made = audit_log_in(directory, chain=True, audit="all")
        for number in range(20):
            values = {"at": AT + day * DAY + number, "client": 'a"\u2028'}
            made.write(
                decision(f"https://a.test/{number}", *([PASS] if number % 2 else []), **values)
            )
        made.close()
    (directory / "20270117-h-1-ab-0001.jsonl.zst.part").write_bytes(b"\x28\xb5\x2f\xfd half")
    assert (len([*directory.glob("*.zst")]), len([*directory.glob("*.jsonl")])) == (2, 1)
    return directory


def block(title):
    """A file of the page."""
    return re.search(rf'```sql title="{title}"\n(.*?)```', PAGE, re.DOTALL)[1]


def commands(name):
    """The commands of the page that call a program."""
    return re.findall(rf"^\$ ({name} .*)", PAGE, re.MULTILINE)


@pytest.mark.parametrize("torn", [False, True])
def test_duckdb_copies_all_records_by_day(log, tmp_path, monkeypatch, torn):
    """Once and again: each record is there once."""
    monkeypatch.chdir(tmp_path)
    if torn:
        with max(log.glob("*.jsonl")).open("ab") as file:
            file.write(b'{"kind":"decision","schema":1,"at":"2027-01-1')
    expected = sorted((entry.writer, entry.seq) for entry in entries(log, Filter(kind=None)))
    copy = block("lake.sql").replace("/var/log/robots_guard", str(log))
    for _ in range(2):
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'Asia/Tokyo'")
            connection.execute(copy)
            rows = "FROM read_parquet('lake/*/*.parquet', union_by_name = true) ORDER BY ALL"
            assert connection.execute(f"SELECT writer, seq {rows}").fetchall() == expected
    assert sorted(path.name for path in Path("lake").iterdir()) == [
        "day=2027-01-15",
        "day=2027-01-16",
        "day=2027-01-17",
    ]
    (query,) = (shlex.split(each)[2] for each in commands("duckdb") if " -c " in each)
    assert [(f"{day}", reason, count) for day, reason, count in duckdb.sql(query).fetchall()] == [
        (f"2027-01-{day}", "disallowed", 10) for day in (15, 16, 17)
    ]


def test_rclone_copies_what_verifies(log, tmp_path):
    """The closed files, once and again; and brought back they are whole."""
    (tmp_path / "bucket").mkdir()
    variables = {"RCLONE_CONFIG_BUCKET_TYPE": "alias", "RCLONE_CONFIG_BUCKET_REMOTE": "bucket"}
    there, back = commands("rclone")
    for command in (there, there, back):
        arguments = shlex.split(command.replace("/var/log/robots_guard", str(log)))
        subprocess.run(
            [program("rclone"), *arguments[1:]],
            check=True,
            cwd=tmp_path,
            env={**os.environ, **variables},
        )
    copied = tmp_path / "copied"
    found = verify_log(copied, trouble := Unreadable())

    assert sorted(path.name for path in copied.iterdir()) == sorted(
        path.name for path in log.glob("*.zst")
    )
    assert (found.is_whole, bool(trouble)) == (True, False)
    assert [writer.chain for writer in found.writers] == ["whole", "whole"]


# -- what is not run --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def vector():
    return YAML(typ="safe").load(EXAMPLES / "vector/vector.yaml")


def test_a_sample_that_is_not_run_says_so():
    for path in ("vector/vector.yaml", "fluent-bit/fluent-bit.conf"):
        assert (EXAMPLES / path).read_text().startswith("# UNTESTED")


def test_the_table_has_fields_of_records():
    table = block("records.sql")
    columns = dict(re.findall(r"^    (\w+) (.+?),?$", table, re.MULTILINE))

    assert f" {TABLE} (" in table
    assert columns.pop("line") == "String"
    for name, kind in columns.items():
        assert name in COLUMNS
        assert re.search(rf" MATERIALIZED JSONExtract\w*\(line, '{name}'", kind), name


def test_steps_of_vector_refer_to_each_other_and_to_the_table(vector):
    outputs = {*vector["sources"], *vector["transforms"]}
    steps = [*vector["transforms"].values(), *vector["sinks"].values()]
    sink = vector["sinks"]["clickhouse"]

    assert {name for step in steps for name in step["inputs"]} <= outputs
    assert f"{sink['database']}.{sink['table']}" == TABLE
    assert vector["transforms"]["rows"]["source"].strip() == '. = {"line": string!(.message)}'
    assert vector["sources"]["lines"]["max_line_bytes"] == LONGEST_LINE


def test_outputs_of_fluent_bit_refer_to_the_table():
    (tag,) = re.findall(r"Tag +(\w+)", FLUENT_BIT)
    (uri,) = re.findall(r"URI +(\S+)", FLUENT_BIT)

    assert re.findall(r"Match +(\w+)", FLUENT_BIT) == [tag, tag]
    assert re.findall(r"\b(?:Key|log_key) +(\w+)", FLUENT_BIT) == ["line", "line"]
    assert parse_qs(urlsplit(uri).query)["query"] == [f"INSERT INTO {TABLE} FORMAT JSONEachRow"]
