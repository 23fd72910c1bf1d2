"""Each page shows the recorded and stored data, complete and without a script."""

from __future__ import annotations

import csv
import errno
import io
import os
import re
import shutil
from datetime import UTC, datetime, timedelta
from html import unescape

import msgspec
import pytest
from audit.decisions import AT, audit_log_in, decision
from console.conftest import HOST, TOKEN, let_in
from console.material import TERMS, policy
from warcio.archiveiterator import ArchiveIterator

from robots_guard.app.console import app
from robots_guard.app.console.query import parse_query
from robots_guard.audit.bundle.verification import verify_bundle
from robots_guard.audit.privacy import Privacy
from robots_guard.audit.read.reader import COMPONENTS, Filter, entries, period_meant
from robots_guard.audit.read.resource import place_of
from robots_guard.audit.show.chart import ChartBar, ceiling, chart
from robots_guard.audit.write.maintenance import compress
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.response import ResponseHead, judge_response
from robots_guard.decisions.verdict import Action, ResponseRef, Verdict, as_report_only
from robots_guard.guard.stores import look_at
from robots_guard.guard.stores.sqlite import SqliteStore
from robots_guard.invocation import Invocation
from robots_guard.protocol.signals.statement import Place, Signal, Statement

PAGES = (
    "/",
    "/decisions",
    "/decisions/dropped",
    "/origins",
    "/origin?name=https://shop.example",
    "/overrides",
    "/overrides/pin",
    "/try",
)


async def read(browser, path, status=200, **params):
    answer = await browser.get(path, params=params or None)
    assert answer.status_code == status, answer.text
    return answer.text


def ids(page):
    return re.findall(r'href="/decisions/([^"]+)"', page)


@pytest.mark.parametrize("path", PAGES)
async def test_pages_are_accessible(console, path):
    page = await read(console, path)

    assert page.count("<h1") == 1
    assert '<html lang="en">' in page
    assert '<a class="skip" href="#main">' in page
    assert page.count('aria-current="page"') == 1
    assert not re.search(r"<th(?![^>]*scope=)[ >]", page)
    assert not re.search(
        r'<(input|select)(?![^>]*type="hidden")',
        re.sub(r"<label[^>]*>.*?</label>", "", page, flags=re.DOTALL),
    )
    assert not re.search(
        r"\sstyle=|\son\w+=|<style|<script(?! src)|javascript:|https?://(?!\w+[.-])", page
    )


@pytest.mark.parametrize("path", PAGES)
async def test_pages_load_nothing_from_other_sites(console, path):
    page = await read(console, path)
    loaded = re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="([^"]+)"', page)

    assert {each.split("/")[1] for each in loaded} == {"static"}
    for each in loaded:
        assert (await console.get(each)).status_code == 200


# -- decisions ------------------------------------------------------------------------------------------------


async def test_overview_counts_match_the_audit_log(console, place):
    page = await read(console, "/", period="all")
    found = [record.action for record in entries(place.audit_log, Filter())]

    shown = re.findall(r"<b>([\d,]+)</b><span>(\w+)", page)
    assert shown == [
        (str(found.count(action)), word)
        for action, word in (("drop", "refused"), ("defer", "deferred"), ("pass", "passed"))
    ]
    assert "Disallow: /private/" in page
    assert "on_restricted=allow" in page
    assert "shop-2026" in page
    assert page.count("<rect class=") > 10


async def test_live_figures_equal_those_of_the_page(console):
    page = await read(console, "/", period="7d")
    news = (await console.get("/overview.json", params={"period": "7d"})).json()

    assert news["figures"].strip() in page
    assert news["made"] == "2027-01-15 08:00:00"


async def test_bar_links_to_its_decisions(console):
    page = await read(console, "/", period="24h")
    totals = []
    for query, says in re.findall(
        r'<a href="/decisions\?([^"]+)" tabindex="-1"><title>([^<]+)', page
    ):
        listed = await read(console, f"/decisions?{query.replace('&amp;', '&')}")
        totals.append(
            (
                sum(map(int, re.findall(r"(\d+) (?:drop|defer|pass)", says))),
                int(re.search(r"<b>(\d+)</b>", listed)[1]),
            )
        )

    assert sum(drawn for drawn, _ in totals) > 300
    assert all(drawn == listed for drawn, listed in totals)


async def test_empty_period_names_the_last_decision(place, tmp_path):
    made = audit_log_in(tmp_path, audit="all")
    made.write(decision(at=AT - 90 * 86400))
    made.close()
    async with let_in(
        app(place.sources._replace(audit_log=tmp_path), hosts=[HOST], token=TOKEN)
    ) as browser:
        page = await read(browser, "/", period="24h")

    assert "The last decision was at 2026-10-17 08:00:00" in page


@pytest.mark.parametrize("path", [each for each in PAGES if each != "/decisions/dropped"])
async def test_missing_audit_log_is_no_error(place, tmp_path, path):
    sources = place.sources._replace(audit_log=tmp_path / "none")
    async with let_in(app(sources, hosts=[HOST], token=TOKEN)) as browser:
        await read(browser, path)
        assert (await browser.get("/decisions/x")).status_code == 404


ON_THE_AUDIT_LOG = (
    "/",
    "/decisions",
    "/decisions/dropped",
    "/origin?name=https://shop.example",
    "/overview.json",
)


def status_without_an_audit_log(path):
    """The live figures go into an open page, and an origin's page also shows the store: both stay 200."""
    return 200 if path.startswith(("/origin?", "/overview.json")) else 503


@pytest.mark.parametrize("path", ON_THE_AUDIT_LOG)
async def test_unreadable_audit_log_is_not_shown_as_empty(place, tmp_path, path):
    wrong = tmp_path / "ju"
    wrong.write_text("")
    async with let_in(
        app(place.sources._replace(audit_log=wrong), hosts=[HOST], token=TOKEN)
    ) as browser:
        page = unescape(await read(browser, path, status_without_an_audit_log(path)))

    assert f"audit log: '{wrong}' cannot be read (Not a directory): name the directory" in page
    assert "Nothing has been recorded" not in page
    assert "<b>0</b>" not in page


@pytest.mark.parametrize("path", ON_THE_AUDIT_LOG)
@pytest.mark.parametrize("fault", ["removed", "forbidden"])
async def test_lost_audit_log_is_not_shown_as_empty(place, tmp_path, monkeypatch, path, fault):
    audit_log = tmp_path / "audit_log"
    shutil.copytree(place.audit_log, audit_log)
    async with let_in(
        app(place.sources._replace(audit_log=audit_log), hosts=[HOST], token=TOKEN)
    ) as browser:
        assert len(ids(await read(browser, "/decisions"))) == 50
        if fault == "removed":
            shutil.rmtree(audit_log)
        else:
            monkeypatch.setattr(os, "scandir", forbidding(audit_log))
        page = unescape(await read(browser, path, status_without_an_audit_log(path)))

    says = "no longer exists" if fault == "removed" else "cannot be read (Permission denied)"
    assert f"audit log: '{audit_log}' {says}" in page
    assert "Nothing has been recorded" not in page


def forbidding(directory, scandir=os.scandir):
    """Return a scandir that may not read this directory: tests may run as root, which can read everything."""

    def forbids(path):
        if path == directory:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    return forbids


async def test_console_can_start_before_the_first_crawl(place, tmp_path):
    audit_log = tmp_path / "audit_log"
    async with let_in(
        app(place.sources._replace(audit_log=audit_log), hosts=[HOST], token=TOKEN)
    ) as browser:
        for path in ("/", "/decisions", "/origin?name=https://shop.example"):
            page = unescape(await read(browser, path))
            assert (
                f"Nothing has been recorded yet in '{audit_log}': there is no such directory yet."
                in page
            )
        shutil.copytree(place.audit_log, audit_log)
        assert len(ids(await read(browser, "/decisions"))) == 50


@pytest.mark.parametrize("path", ["/", "/decisions"])
async def test_unreadable_file_is_reported_even_without_records(place, tmp_path, path):
    (tmp_path / "20270115-w-0001.jsonl").mkdir()
    async with let_in(
        app(place.sources._replace(audit_log=tmp_path), hosts=[HOST], token=TOKEN)
    ) as browser:
        assert "Not all of the audit log could be read: 20270115-w-0001.jsonl" in await read(
            browser, path
        )


async def test_new_records_appear(place, tmp_path):
    made = audit_log_in(tmp_path)
    async with let_in(
        app(place.sources._replace(audit_log=tmp_path), hosts=[HOST], token=TOKEN)
    ) as browser:
        before = await read(browser, "/decisions")
        made.write(decision(at=AT))
        after = await read(browser, "/decisions")
    made.close()

    assert (len(ids(before)), len(ids(after))) == (0, 1)


@pytest.mark.parametrize(
    "wanted",
    [
        {"action": "drop"},
        {"reason": "crawl-delay"},
        {"origin": "https://news.example"},
        {"origin": "https://NEWS.example:443/any/page", "action": "drop"},
        {"origin": "news.example"},
        {"rule": "Disallow: /private/", "component": "proxy"},
        {"agent": "MYBOT"},
        {"override": "any"},
        {"override": "shop-2026"},
        {"since": "1h"},
        {"since": "2027-01-15T07:00", "until": "2027-01-15T07:30:00+00:00"},
        {"agent": "nobody"},
        {"job": "shop-2027-01"},
        {"url": "https://shop.example/private/diary?day=1"},
        {"url": "HTTPS://SHOP.example:443/x/../%70rivate/diary?day=1#top"},
        {"url": "https://shop.example/private/*", "action": "drop"},
        {"url": "shop.example"},
        {"url": "shop.example:8443"},
    ],
    ids=str,
)
async def test_filter_agrees_with_the_python_reader(console, place, wanted):
    """The same filter in Python, a separate implementation, is the oracle for DuckDB."""
    page = await read(console, "/decisions", **wanted)
    plain = wanted | {name: "https://news.example" for name in ("origin",) if name in wanted}
    plain |= {"component": "proxy"} if "component" in wanted else {}
    if "url" in wanted:
        place_asked = place_of(plain.pop("url"))
        plain |= {name: getattr(place_asked, name) for name in ("url", "url_prefix", "host")}
    plain |= {"since": "2027-01-15T07:00:00.000Z"} if "since" in wanted else {}
    plain |= {"until": "2027-01-15T07:30:00.000Z"} if "until" in wanted else {}
    found = [record.id for record in entries(place.audit_log, Filter(**plain))][::-1]

    assert int(re.search(r"<b>(\d+)</b>", page)[1]) == len(found)
    assert ids(page) == found[:50]


def test_a_span_begins_at_a_whole_minute():
    """The results of a query for the last day are cached until the minute has passed."""
    queries = [parse_query({"since": "24h", "until": "1h"}, AT + second) for second in (0, 1, 59)]

    assert len({query.wanted for query in queries}) == 1
    assert queries[0].wanted != parse_query({"since": "24h", "until": "1h"}, AT + 60).wanted


def test_a_named_period_has_an_end():
    wanted = parse_query({"since": "last night"}, AT).wanted
    other = parse_query({"since": "last night", "until": "1h"}, AT).wanted

    assert (wanted.since, wanted.until) == tuple(period_meant("last night", AT))
    assert (other.since, other.until) == (wanted.since, "2027-01-15T07:00:00.000Z")


async def test_every_component_can_be_filtered_by(console):
    page = await read(console, "/decisions")

    assert all(f"<option>{component}</option>" in page for component in COMPONENTS)


@pytest.mark.parametrize("sort", ["newest", "oldest", "origin", "reason", "agent", "slowest"])
@pytest.mark.parametrize("wanted", [{}, {"origin": "https://shop.example"}], ids=str)
async def test_paging_shows_each_decision_once(console, place, sort, wanted):
    pages, path = (
        [],
        "/decisions?"
        + "&".join(f"{name}={value}" for name, value in (wanted | {"sort": sort}).items()),
    )
    while path:
        page = await read(console, path)
        pages.append(ids(page))
        path = _leads(page, "next")
    back, path = [], _leads(page, "prev")
    while path:
        page = await read(console, path)
        back.append(ids(page))
        path = _leads(page, "prev")

    key = {
        "newest": lambda each: (each.at, each.seq),
        "oldest": lambda each: (each.at, each.seq),
        "slowest": lambda each: (getattr(each, "elapsed_us", 0), each.at, each.seq),
    }.get(sort, lambda each: (getattr(each, sort), each.at, each.seq))
    ordered = sorted(
        entries(place.audit_log, Filter(**wanted)), key=key, reverse=sort in ("newest", "slowest")
    )
    assert [one for page in pages for one in page] == [record.id for record in ordered]
    assert len(pages) > 3
    assert back[::-1] == pages[:-1]


def _leads(page, rel):
    found = re.search(rf'<a rel="{rel}" href="([^"]+)"', page)
    return found[1].replace("&amp;", "&") if found else None


@pytest.mark.parametrize("wanted", [{}, {"action": "drop", "sort": "origin"}], ids=str)
async def test_csv_has_all_rows_of_the_filter(console, place, monkeypatch, wanted):
    """Of a file that is read in pieces, no row is missing and none occurs twice."""
    monkeypatch.setattr("robots_guard.app.console.pages.decisions.CSV_PIECE", 70)
    answer = await console.get("/decisions.csv", params=wanted)
    rows = [*csv.DictReader(io.StringIO(answer.text))]
    filters = {name: value for name, value in wanted.items() if name != "sort"}
    found = [entry.id for entry in entries(place.audit_log, Filter(**filters))]

    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert (
        answer.headers["content-disposition"] == 'attachment; filename="robots_guard-decisions.csv"'
    )
    assert sorted(row["id"] for row in rows) == sorted(found)
    assert len(found) > 100
    assert rows[0]["agent"] == "mybot"
    assert rows[0]["job"] == "shop-2027-01"


async def test_csv_is_bounded(console, monkeypatch):
    monkeypatch.setattr("robots_guard.app.console.pages.decisions.CSV_ROWS", 120)
    monkeypatch.setattr("robots_guard.app.console.pages.decisions.CSV_PIECE", 50)
    answer = await console.get("/decisions.csv")

    assert len(answer.text.splitlines()) == 121


async def test_url_in_another_spelling_finds_its_decisions(console):
    asked = "http://SHOP.example:80/"
    page = await read(console, "/decisions", url="HTTPS://SHOP.example:443/%70rivate/diary?day=1#x")
    other = unescape(await read(console, "/decisions", url=asked))

    assert ids(page) == ["dropped"]
    assert f"No decision matches url <code>{asked}</code>." in other
    assert f'value="{asked}"' in other


async def test_url_with_hashed_values_is_found(place, tmp_path):
    made = audit_log_in(tmp_path, privacy=Privacy(query="hash"))
    made.write(decision("https://a.test/private/x?token=1", at=AT))
    made.close()
    sources = place.sources._replace(audit_log=tmp_path)
    async with let_in(app(sources, hosts=[HOST], token=TOKEN)) as console:
        found = await read(console, "/decisions", url="https://a.test/private/x?token=1")
        other = await read(console, "/decisions", url="https://a.test/private/x?token=2")

    assert (len(ids(found)), len(ids(other))) == (1, 0)


async def test_empty_result_says_what_was_searched(console):
    page = unescape(await read(console, "/decisions", agent="nobody", since="1h"))

    assert "No decision matches since <code>1h</code>, agent <code>nobody</code>." in page
    assert re.search(
        r"Searched: \d+ decisions from 2027-01-13 22:03:00 to 2027-01-15 07:59:50 UTC, \d+ of them passes",
        page,
    )


async def test_all_file_formats_form_one_list(place, tmp_path):
    for number, step in enumerate((lambda: compress(tmp_path), lambda: None)):
        made = audit_log_in(tmp_path)
        made.write(decision(f"https://a.test/private/{number}", at=AT - 86400 * (3 - number)))
        made.close()
        step()
    async with let_in(
        app(place.sources._replace(audit_log=tmp_path), hosts=[HOST], token=TOKEN)
    ) as browser:
        page = await read(browser, "/decisions")

    assert re.findall(r"private/(\d)", page) == ["1", "0"]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/decisions?since=someday", "is not a time"),
        ("/decisions?until=9999999999d", "is not a time"),
        ("/decisions?action=explode", "is not known"),
        ("/decisions?reason=%00", "is not known"),
        ("/decisions?component=robot", "is not known"),
        ("/decisions?sort=url", "is not known"),
        ("/decisions?origin=ftp://x", "give an origin"),
        ("/decisions?after=%5B1%5D", "go back to the first page"),
        ("/decisions?after=' OR 1=1", "go back to the first page"),
        (
            "/decisions?sort=slowest&after=%5B%22x%22%2C%22y%22%2C%22z%22%2C1%5D",
            "go back to the first page",
        ),
        ("/?period=forever", "is not known"),
        ("/origin?name=", "is not an absolute URL: begin with"),
        ("/try?url=https://a.test/&dialect=klingon", "klingon"),
        ("/try?url=https://a.test/&purposes=world-domination", "is not a use"),
        ("/decisions?url=https://", "give a URL such as https://example.com/page"),
        ("/decisions?url=ftp://a.test/", "give a URL such as https://example.com/page"),
        ("/decisions?url=a.test/x", "begin with http:// or https://"),
        (f"/try?url=https://a.test/{'x' * 20_000}", "longer than"),
        ("/try?url=zz", "is not an absolute URL: begin with http:// or https://"),
        ("/try?url=htp://a.test/", "is not an absolute URL: begin with http:// or https://"),
        ("/origin?name=zz", "is not an absolute URL: begin with http:// or https://"),
    ],
)
async def test_invalid_query_is_reported_in_one_sentence(console, path, says):
    assert says in await read(console, path, 400)


async def test_a_mistake_in_a_filter_is_mended_where_it_was_made(console):
    """An address bar shows a URL without its scheme."""
    page = await read(console, "/decisions?url=shop.example/private/x&agent=mybot", 400)
    assert 'name="url" value="shop.example/private/x"' in page
    assert 'name="agent" value="mybot"' in page
    assert "begin with http:// or https://" in page


@pytest.mark.parametrize(
    "path", ["/nothing", "/decisions/nobody", "/static/../pages.py", "/origins/x"]
)
async def test_missing_page_is_reported(console, path):
    answer = await console.get(path)

    assert answer.status_code == 404
    assert "<h1>Not found</h1>" in answer.text or path.startswith("/static")


# -- a store that is not there ---------------------------------------------------------------------------------


ON_THE_STORE = (
    ("/origins", 503),
    ("/origin?name=https://shop.example", 200),
    ("/try?url=https://shop.example/", 200),
)


@pytest.mark.parametrize(("path", "status"), ON_THE_STORE)
async def test_missing_store_is_reported_and_not_created(place, tmp_path, path, status):
    where = tmp_path / "deep" / "policies.sqlite"
    sources = place.sources._replace(store=look_at(f"sqlite:///{where}", insist=False))
    async with let_in(app(sources, hosts=[HOST], token=TOKEN)) as browser:
        before = unescape(await read(browser, path, status))
        assert not where.parent.exists()
        where.parent.mkdir()
        made = SqliteStore(where)
        made.put(policy("https://shop.example/"), AT)
        after = await read(browser, path)
        made.close()

    assert re.search(f"[Tt]he store '{where}' does not exist", before)
    assert "The store is empty" not in before
    assert "No policy is stored" not in before
    assert "does not exist" not in after


@pytest.mark.parametrize(("path", "status"), ON_THE_STORE)
@pytest.mark.parametrize(
    "fault", ["does not exist", "is damaged (file is not a database) and was not changed"]
)
async def test_lost_store_is_reported(place, tmp_path, path, status, fault):
    where = tmp_path / "policies.sqlite"
    SqliteStore(where).close()
    sources = place.sources._replace(store=look_at(f"sqlite:///{where}", insist=False))
    async with let_in(app(sources, hosts=[HOST], token=TOKEN)) as browser:
        if fault == "does not exist":
            where.unlink()
        else:
            where.write_bytes(b"rubbish" * 1000)
        page = unescape(await read(browser, path, status))

    assert f"he store '{where}' {fault}" in page
    assert "The store is empty" not in page
    assert [*tmp_path.glob("*.corrupt-*")] == []


# -- one decision ---------------------------------------------------------------------------------------------


async def test_decision_shows_marked_file_and_replay(console):
    page = await read(console, "/decisions/dropped")

    marked = re.findall(
        r'<tr class="marked drop" id="line"><th scope="row">(\d+)</th><td><mark>([^<]+)</mark>',
        page,
    )
    assert marked == [("3", "Disallow: /private/")]
    assert re.findall(r'<th scope="row">(\d+)</th>', page) == [
        str(number) for number in range(1, 12)
    ]
    assert "The same verdict under the same document and the settings of its writer." in page
    assert (
        '<h1 class="sentence">mybot was not allowed to fetch https://shop.example/private/diary?day=1'
        " at 07:59:50 UTC on 2027-01-15: line 3 of its robots.txt, fetched at 07:54:50 UTC on 2027-01-15,"
        " says Disallow: /private/.</h1>"
    ) in page


async def test_decision_without_document_says_so(place, console, tmp_path):
    made = audit_log_in(tmp_path)
    put_off = Verdict(
        action=Action.DEFER, reason=Reason.UNREACHABLE, until=AT + 30, detail="status 503"
    )
    busy = policy("https://a.test/", at=AT - 5, status=503)
    made.write(msgspec.structs.replace(decision(verdict=put_off, at=AT), id="busy", policy=busy))
    made.close()
    async with let_in(
        app(place.sources._replace(audit_log=tmp_path), hosts=[HOST], token=TOKEN)
    ) as browser:
        page = await read(browser, "/decisions/busy")

    assert "There was no robots.txt to judge by: it could not be fetched." in page
    assert "The same verdict under the recorded failure" in page
    assert "the same document" not in page
    assert "under the same document" in await read(console, "/decisions/dropped")


async def test_report_only_decision_is_not_shown_as_refused(place, tmp_path):
    made = audit_log_in(tmp_path, audit="all")
    deferred = Verdict(
        action=Action.DEFER, reason=Reason.UNREACHABLE, until=AT + 30, detail="dns: none"
    )
    only_said = as_report_only(deferred)
    made.write(msgspec.structs.replace(decision(verdict=only_said, at=AT), id="only-said"))
    made.close()
    async with let_in(
        app(place.sources._replace(audit_log=tmp_path), hosts=[HOST], token=TOKEN)
    ) as browser:
        page = await read(browser, "/decisions/only-said")

    assert "is not requested" not in page
    assert "Nothing was refused: it <b>would</b> have been a defer" in page


async def test_fetch_failure_is_shown_once(place, tmp_path):
    store = SqliteStore(tmp_path / "policies.sqlite")
    store.put(policy("https://busy.example/", status=503), AT)
    async with let_in(
        app(place.sources._replace(store=store), hosts=[HOST], token=TOKEN)
    ) as browser:
        page = await read(browser, "/origin", name="https://busy.example")
    store.close()

    assert "<dt>Trouble</dt><dd>status 503, 1 try since" in page


async def test_decisions_on_a_deferred_request_are_listed_in_order(console):
    first, last = (
        await read(console, "/decisions/put-off"),
        await read(console, "/decisions/let-go"),
    )

    assert "<b>2027-01-15 07:59:00</b>" in first
    assert '<a href="/decisions/let-go">2027-01-15 07:59:10</a>' in first
    assert "ended the deferral" in first
    assert '<a href="/decisions/put-off">2027-01-15 07:59:00</a>' in last
    assert "began the deferral" in last


async def test_replay_of_a_deferral_says_what_is_confirmed(console):
    page = unescape(await read(console, "/decisions/put-off"))

    assert "it is confirmed that the request is allowed, and that it must keep 5 s" in page
    assert "Whether it was this request's turn cannot be judged again" in page
    assert "Not covered" not in page
    assert "The same verdict" not in page


async def test_decision_leads_to_its_fetch_and_the_archived_response(console, place):
    page = await read(console, "/decisions/dropped")
    address = re.search(r'href="(/fetches/[^"]+)"', page)[1]
    fetched = await read(console, address)
    archived = await console.get(f"{address}/response.warc.gz")
    (response,) = ArchiveIterator(io.BytesIO(archived.content))

    assert "https://shop.example/robots.txt was fetched at 07:54:49 UTC on 2027-01-15" in fetched
    assert "<dt>Took</dt><dd>3.0 s</dd>" in fetched
    assert "<td>Disallow: /private/</td>" in fetched
    assert response.rec_headers.get_header("WARC-Record-ID") in unescape(fetched)
    assert archived.headers["content-disposition"].startswith('attachment; filename="response-')


async def test_failed_fetch_is_linked(console):
    page = await read(console, "/decisions/down")
    failed = await read(console, re.search(r'href="(/fetches/[^"]+)"', page)[1])

    assert "it failed (dns)" in failed
    assert "The response was not archived" in failed


async def test_evidence_is_a_bundle_that_verifies(console):
    page = await read(console, "/decisions/dropped")
    answer = await console.get("/decisions/dropped/evidence.zip")
    await read(console, "/decisions/never/evidence.zip", 400)

    assert 'href="/decisions/dropped/evidence.zip" download>Download evidence</a>' in page
    result = verify_bundle(answer.content)
    assert not result.is_contradicted
    assert [judgement.record.id for judgement, _ in result.replayed] == ["dropped"]
    assert answer.headers["content-type"] == "application/zip"


async def test_the_command_for_a_bundle_names_the_audit_log_and_the_store(place):
    invocation = Invocation({"audit_log": "/logs/a b", "store": "env:REDIS_URL"})
    sources = place.sources._replace(invocation=invocation)
    async with let_in(app(sources, hosts=[HOST], token=TOKEN)) as console:
        page = await read(console, "/decisions/dropped")

    command = "robots-guard audit bundle dropped --audit-log '/logs/a b' --store env:REDIS_URL"
    assert f"<code>{command}</code>" in unescape(page)


async def test_link_to_a_page_is_absolute(console):
    page = await read(console, "/decisions/dropped", line="3")

    assert f'<input readonly value="http://{HOST}/decisions/dropped">' in page


async def test_decision_under_override_names_the_owner(console):
    page = await read(console, "/decisions/by-override")

    for text in (
        "shop-2026",
        "jane@crawler.example",
        "contract of 12 May",
        "It expires at 08:00:00 UTC on 2027-01-16",
        "is not replayed",
    ):
        assert text in page


async def test_missing_document_is_reported(place):
    async with let_in(
        app(place.sources._replace(store=None), hosts=[HOST], token=TOKEN)
    ) as browser:
        page = await read(browser, "/decisions/dropped")

    assert "No store keeps documents" in page
    assert "This decision cannot be judged again: the document" in page


async def test_long_file_is_shown_around_its_line(place, tmp_path):
    body = b"User-agent: *\n" + b"".join(b"Disallow: /%d/\n" % number for number in range(5000))
    place.store.put(policy("https://long.example/", body), AT)
    async with let_in(app(place.sources, hosts=[HOST], token=TOKEN)) as browser:
        page = await read(browser, "/try", url="https://long.example/2500/x", agent="mybot")

    assert "<mark>Disallow: /2500/</mark>" in page
    assert "2,441 earlier lines are not shown." in page
    assert page.count('<th scope="row">') == 121


# -- what is stored -------------------------------------------------------------------------------------------


async def test_origins_are_paged(console, place):
    names, path = [], "/origins"
    while path:
        page = await read(console, path)
        names += [
            re.sub("<[^>]*>", "", each)
            for each in re.findall(r'<tr><td class="first site"><a href="[^"]+">(.+?)</a>', page)
        ]
        path = _leads(page, "next")

    assert sorted(names) == sorted(map(str, place.store.origins()))
    assert len(names) > 60


async def test_page_after_the_last_origin_does_not_call_the_store_empty(console):
    answer = await console.get("/origins", params={"after": "zzz"})

    assert "to the first" in answer.text
    assert "store is empty" not in answer.text


async def test_origins_are_found_by_part_of_their_name(console):
    page = await read(console, "/origins", part="DOWN")

    assert re.findall(r'<tr><td class="first site"><a href="[^"]+">(.+?)</a>', page) == [
        "https://down.example"
    ]
    assert all(text in page for text in ("unreachable", "expired", "dns"))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "https://shop.example",
            [
                "rules, ",
                "Crawl-delay: 5",
                "1.0 s between two requests (crawl-delay, line 6; the file asks for more)",
                "shop-2026",
            ],
        ),
        ("https://closed.example", ["restricted", "403", "closes it to crawlers"]),
        ("https://open.example", ["unrestricted", "404", "everything may be requested"]),
        ("https://down.example", ["unreachable", "dns: no such host", "Next try"]),
        ("https://news.example", ["expired"]),
        ("http://plain.example:8080", ["Disallow: /x", "none required"]),
        ("https://never.example", ["No policy is stored"]),
    ],
)
async def test_origin_page_shows_the_stored_policy(console, name, says):
    page = await read(console, "/origin", name=name)

    assert [text for text in says if text.removesuffix(", ") not in page] == []


async def test_next_turn_is_shown_and_not_taken(place):
    sources = place.sources._replace(overrides=None)
    async with let_in(app(sources, hosts=[HOST], token=TOKEN)) as browser:
        pages = [await read(browser, "/origin", name="https://shop.example") for _ in range(2)]

    assert all("<dd>in 3 s</dd>" in page for page in pages)
    assert all("5.0 s between two requests (crawl-delay, line 6)" in page for page in pages)


async def test_missing_shared_store_is_reported(place):
    async with let_in(
        app(place.sources._replace(store=None), hosts=[HOST], token=TOKEN)
    ) as browser:
        assert "configure a store that they share" in await read(browser, "/origins")
        assert "No policy is stored" in await read(browser, "/origin", name="https://shop.example")


# -- overrides and trying a URL -------------------------------------------------------------------------------


async def test_overrides_show_what_needs_attention_first(console):
    page = await read(console, "/overrides")

    states = re.findall(
        r'<td data-label="State"><span class="tag \w+">([^<]+)</span></td>'
        r'<td class="first" data-label="Id">(?:<a[^>]*>)?([^<]+)',
        page,
    )
    assert states == [
        ("invalid", "half"),
        ("expired", "bygone"),
        ("expires soon", "soon"),
        ("in force", "shop-2026"),
        ("in force", "complaint-17"),
    ]


async def test_unreadable_overrides_file_is_reported(place, tmp_path):
    sources = place.sources._replace(overrides=tmp_path / "none.toml")
    async with let_in(app(sources, hosts=[HOST], token=TOKEN)) as browser:
        assert "cannot be used" in await read(browser, "/overrides", 400)
        assert "cannot be used" in await read(browser, "/origin", name="https://shop.example")
        await read(browser, "/origins")


@pytest.mark.parametrize(
    ("url", "agent", "action", "says"),
    [
        ("https://shop.example/private/x", "mybot", "drop", "<mark>Disallow: /private/</mark>"),
        (
            "https://shop.example/private/open/x",
            "mybot",
            "pass",
            "<mark>Allow: /private/open/</mark>",
        ),
        ("https://shop.example/", "badbot", "drop", "<mark>Disallow: /</mark>"),
        ("https://shop.example/robots.txt", "badbot", "pass", "always allowed"),
        ("https://closed.example/", "mybot", "drop", "403"),
        ("https://www.angry.example/", "mybot", "drop", "has blocked the site"),
        ("ftp://shop.example/", "mybot", "pass", "http and https only"),
        ("https://shop.example/a\\b", "mybot", "drop", "two servers could interpret"),
        ("https://a@b@c/", "mybot", "drop", "two servers could interpret"),
    ],
)
async def test_try_a_url(console, url, agent, action, says):
    page = await read(console, "/try", url=url, agent=agent)

    assert re.search(rf'<h2 class="verdict {action}">', page)
    assert says in page


@pytest.mark.parametrize(
    ("asked", "action"),
    [({}, "drop"), ({"purposes": ""}, "pass"), ({"purposes": "ai-train"}, "pass")],
    ids=["recorded", "none", "other"],
)
async def test_try_judges_for_the_purposes_of_the_integrations(console, asked, action):
    """Without an entry in the form, they are those that the last crawl recorded."""
    page = await read(console, "/try", url="https://reserved.example/x", **asked)

    assert re.search(rf'<h2 class="verdict {action}">', page)


async def test_try_without_stored_policy_fetches_nothing(console, place):
    before = sorted(path.stat().st_size for path in place.audit_log.iterdir())
    page = await read(console, "/try", url="https://unheard-of.example/x")

    assert "would fetch its robots.txt first" in page
    assert sorted(path.stat().st_size for path in place.audit_log.iterdir()) == before


async def test_try_marks_dialects_that_differ(console):
    page = await read(console, "/try", url="https://shop.example/private/open/x")

    assert re.search(r'<tr class="differs"><td>koster1994</td><td><span class="tag drop">', page)


async def test_mount_path_is_in_every_address(place):
    from starlette.applications import Starlette
    from starlette.routing import Mount

    inside = app(place.sources, hosts=["robots.guard"], read_only=True)
    outer = Starlette(routes=[Mount("/guard", inside)])
    async with let_in(outer, base_url="http://robots.guard") as browser:
        for path in (
            "/guard/",
            "/guard/decisions",
            "/guard/decisions/dropped",
            "/guard/origins",
            "/guard/overrides",
        ):
            page = await read(browser, path)
            inner = re.findall(r'(?:href|src|action|data-live)="(/[^"]*)"', page)
            assert inner
            assert [each for each in inner if not each.startswith("/guard/")] == []
    inside.close()


# -- the chart ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("most", "top"),
    [
        *((0, 2), (1, 2), (3, 4), (9, 10), (10, 10), (11, 12), (121, 140), (181, 200)),
        *((1040, 1200), (65_000, 70_000)),
    ],
)
def test_top_of_chart_is_a_round_number(most, top):
    assert ceiling(most) == top


def test_bar_heights_are_proportional():
    begins = datetime(2027, 1, 15, tzinfo=UTC)
    made = chart([ChartBar(begins, timedelta(hours=1), {"drop": 50, "defer": 0, "pass": 25})])

    (column,) = made.columns
    assert [(piece.kind, piece.height) for piece in column.pieces] == [
        ("drop", 118.75),
        ("pass", 59.38),
    ]
    assert column.says == "Fri 15 Jan 2027, 00:00 UTC: 50 drop, 25 pass"
    assert (column.since, column.until) == ("2027-01-15T00:00:00Z", "2027-01-15T01:00:00Z")


async def test_a_response_shows_what_its_site_states(place, tmp_path):
    made = audit_log_in(tmp_path)
    terms = msgspec.structs.replace(TERMS, purposes="search")
    statement = Statement(
        signal=Signal.X_ROBOTS_TAG, place=Place.HEADER, rule="noindex", raw="noindex, <b>x</b>"
    )
    verdict = judge_response([statement], ResponseHead(status=200), "mybot", terms, AT)
    made.write(
        decision(
            "https://shop.example/page", verdict, dialect="union", response=ResponseRef(status=200)
        )
    )
    made.close()
    sources = place.sources._replace(audit_log=tmp_path)
    async with let_in(app(sources, hosts=[HOST], token=TOKEN)) as console:
        page = await read(console, "/decisions/w-1")
        overview = await read(console, "/?period=all")
        listed = await read(console, "/decisions")

    assert "<code>noindex, &lt;b&gt;x&lt;/b&gt;</code>" in page
    assert "search, snippet, ai-index" in page
    assert "usage-reserved" in page
    assert "x-robots-tag" in overview
    assert "https://shop.example/page" in listed
