"""No secret planted anywhere in a request appears in any record or output."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import jsonschema
import pytest
from audit.decisions import AT, DEFER, DROP, PASS, audit_log_in, decision
from hypothesis import given, settings
from hypothesis import strategies as st

from robots_guard.app.cli.audit.records import row_of
from robots_guard.audit.privacy import Privacy, shown_url
from robots_guard.audit.read.reader import Filter, entries
from robots_guard.audit.show.export import FORMATS, exported
from robots_guard.decisions.access import Failed, Failure, Fetched, Get
from robots_guard.decisions.events import FetchMade
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.renewal import Redirected, begin
from robots_guard.decisions.verdict import Action, Verdict
from robots_guard.origin import split_url

SECRET = "hunter2S3cret"  # what is looked for afterwards, in any writing
NAMES = (
    *(
        "token",
        "key",
        "api_key",
        "sig",
        "signature",
        "secret",
        "pass",
        "pwd",
        "password",
        "auth",
        "session",
        "sid",
    ),
    *("code", "jwt", "sas", "X-Amz-Signature"),
)
RANDOM = "k9X2mP7qL4vR8sT1wZ5yB3nC6dF0gH-jK_aQeUiO"  # looks like a key

plain = st.sampled_from(["a", "b/c", "q=1", "page=2", "x%20y", "%C3%A9"])
name = (
    st.sampled_from(NAMES)
    | st.sampled_from(NAMES).map(str.upper)
    | st.sampled_from(NAMES).map(lambda n: f"my_{n}")
)
mark = st.sampled_from("?&;")


@st.composite
def urls(draw):
    """URLs with the secret in userinfo, fragment, queries, path parameters and URLs within URLs."""
    pair = f"{draw(name)}={SECRET}"
    inner = draw(
        st.sampled_from(
            ["https%3A%2F%2Fme%3A{0}%40b.test%2F", "https://b.test/?token={0}", "%3Ftoken%3D{0}"]
        )
    )
    parts = draw(
        st.lists(
            st.sampled_from([pair, f"u={inner.format(SECRET)}", "q=1", f"z={RANDOM}"]), max_size=4
        )
    )
    user = draw(st.sampled_from(["", f"me:{SECRET}@", f"{SECRET}@"]))
    path = draw(st.sampled_from(["", "x", f"x;{pair}/y", "x;v=1"]))
    fragment = draw(st.sampled_from(["", f"#{SECRET}", f"#token={SECRET}"]))
    return f"https://{user}a.test/{path}?{draw(st.sampled_from('&;')).join(parts)}{fragment}"


@given(urls())
def test_no_url_shows_a_secret(url):
    assert SECRET not in shown_url(url)
    assert RANDOM not in shown_url(url)


@settings(max_examples=60)
@given(
    url=urls(),
    other=urls(),
    query=st.sampled_from(["redact", "drop", "hash"]),
    client=st.sampled_from(["keep", "truncate", "drop"]),
)
def test_no_secret_reaches_a_file_a_row_or_an_export(url, other, query, client):
    directory = Path(tempfile.mkdtemp())
    try:
        _plant(directory, url, other, Privacy(query=query, client=client))
        written = b"".join(path.read_bytes() for path in directory.glob("*.jsonl")).decode("ascii")
        found = list(entries(directory, Filter(kind=None)))
        shown = [row_of(entry) for entry in found]
        lines = [line for form in FORMATS for line in exported(found, form)]
    finally:
        shutil.rmtree(directory)

    assert len(found) == 7
    assert SECRET not in written
    assert SECRET not in repr(shown)
    assert SECRET not in "\n".join(lines)
    assert RANDOM not in written


def _plant(directory, url, other, privacy):
    """An audit log with all values that may contain a URL: requests, redirects, details, fetches."""
    audit_log = audit_log_in(directory, audit="all", privacy=privacy)
    origin, _ = split_url(url)
    hop = begin(origin, None, "direct").next(Fetched(status=302, headers={"location": other}), AT)
    hop = hop.next(PASS, AT) if isinstance(hop, Redirected) else hop
    looped = (
        hop.next(Fetched(status=302, headers={"location": "/robots.txt"}), AT)
        if hasattr(hop, "next")
        else hop
    )
    settled = hop.next(Fetched(status=404), AT) if hasattr(hop, "next") else hop
    audit_log.write(decision(url, verdict=DROP, policy=settled.policy))
    audit_log.write(
        decision(
            url,
            verdict=Verdict(
                action=Action.DEFER, reason=Reason.UNREACHABLE, detail=f"back to {other}"
            ),
        )
    )
    audit_log.write(decision(url, verdict=PASS, policy=getattr(looped, "policy", None)))
    made = {"at": AT, "origin": origin, "get": Get(url=other), "via": "direct", "elapsed": 0.1}
    audit_log.note(
        FetchMade(
            outcome=Fetched(status=302, headers={"location": url, "set-cookie": SECRET}), **made
        )
    )
    audit_log.note(
        FetchMade(outcome=Failed(failure=Failure.REDIRECT_REFUSED, detail=f"to {url}"), **made)
    )
    audit_log.close()


@pytest.mark.parametrize(
    ("mode", "shown"),
    [
        ("redact", "https://a.test/x?q=words&token=REDACTED&z=REDACTED"),
        ("keep", f"https://a.test/x?q=words&token={SECRET}&z={RANDOM}"),
        ("drop", "https://a.test/x"),
    ],
)
def test_each_mode_of_recording_queries(mode, shown):
    url = f"https://me:{SECRET}@a.test/x?q=words&token={SECRET}&z={RANDOM}#{SECRET}"

    assert Privacy(query=mode).url(url) == shown


def test_hashed_values_differ_by_value_and_by_key():
    first, second = Privacy(query="hash", key=b"1" * 32), Privacy(query="hash", key=b"2" * 32)
    url = "https://a.test/x?a=1&b=1&c=2"
    values = [pair.partition("=")[2] for pair in first.url(url).partition("?")[2].split("&")]

    assert values[0] == values[1] != values[2]
    assert first.url(url) != second.url(url)
    assert first.url(url) == first.url(url)


@pytest.mark.parametrize(
    ("client", "truncated"),
    [
        ("203.0.113.77:4000", "203.0.113.0/24"),
        ("203.0.113.77", "203.0.113.0/24"),
        ("[2001:db8:1:2::3]:4000", "2001:db8:1::/48"),
        ("2001:db8:1:2::3", "2001:db8:1::/48"),
        ("::1", "::/48"),
        ("spider", "spider"),
        ("", ""),
        ("999.1.1.1:80", "999.1.1.1:80"),
    ],
)
def test_clients(client, truncated):
    assert Privacy().client_text(client) == client
    assert Privacy(client="truncate").client_text(client) == truncated
    assert Privacy(client="drop").client_text(client) == ""


@pytest.mark.parametrize(
    "value",
    [
        "how-to-make-a-cake",
        "x" * 64,
        "1234567890" * 2,
        "the/path/of/a/long/address/without/any/number/in/it",
    ],
)
def test_ordinary_values_are_kept(value):
    assert shown_url(f"https://a.test/?q={value}") == f"https://a.test/?q={value}"


def test_all_records_are_valid_by_the_schema(tmp_path):
    """Checked by an independent JSON Schema validator."""
    _plant(tmp_path, "https://a.test/x", "https://b.test/y", Privacy())
    audit_log = audit_log_in(tmp_path, chain=True, audit="summary")
    for verdict in (DROP, PASS, DEFER):
        audit_log.write(decision(verdict=verdict))
    audit_log.close()
    docs = Path(__file__).parents[2] / "docs"
    validator = jsonschema.Draft202012Validator(
        json.loads((docs / "audit-record.schema.json").read_text())
    )
    lines = [
        json.loads(line)
        for path in tmp_path.glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]

    assert {line["kind"] for line in lines} == {
        "start",
        "decision",
        "passes",
        "fetch",
        "checkpoint",
        "stop",
    }
    for line in lines:
        validator.validate(line)
    assert not validator.is_valid(lines[0] | {"schema": 2})
    assert not validator.is_valid({"kind": "decision", "schema": 1})
