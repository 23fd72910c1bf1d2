"""What the overview, the origins and the overrides say of change: periods, crawlers, files."""

from __future__ import annotations

import hashlib
import re
from html import unescape

import msgspec
import pytest
from audit.decisions import AT, DROP, PASS, audit_log_in, decision
from console.conftest import HOST, TOKEN, let_in
from console.material import EARLIER, RULES, policy

from robots_guard.app.console import app
from robots_guard.app.console.document import SHOWN, difference
from robots_guard.app.console.markup import change, parts_of, percent, points
from robots_guard.app.console.pages.origins import by_number
from robots_guard.audit.read.search import LoadedSearch
from robots_guard.audit.record import moment
from robots_guard.audit.show.overview import overview
from robots_guard.guard.stores.sqlite import SqliteStore

DAY = 86400.0


async def read(browser, path, status=200, **params):
    answer = await browser.get(path, params=params or None)
    assert answer.status_code == status, answer.text
    return unescape(answer.text)


def plain(page):
    return re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", page))


def figures(directory, since=AT - DAY):
    search = LoadedSearch(directory)
    try:
        return overview(search, moment(since) if since else None, moment(AT))
    finally:
        search.close()


def passes(count, **values):
    """A line that counts passes, as a writer with `audit = summary` writes it."""
    at = moment(values.pop("at", AT - 60))
    line = {
        "kind": "passes",
        "schema": 1,
        "at": at,
        "seq": 1,
        "writer": "p",
        "component": "scrapy",
        "agent": "mybot",
        "origin": "https://a.test",
        "action": "pass",
        "reason": "allowed",
        "count": count,
        "since": at,
        "until": at,
    }
    return msgspec.json.encode(line | values) + b"\n"


@pytest.fixture(scope="module")
def two_days(tmp_path_factory):
    """Today 10 of 40 requests of mybot were refused, and yesterday 5 of 50; newsbot came today."""
    directory = tmp_path_factory.mktemp("two_days")
    log = audit_log_in(directory, audit="all", job="spring")
    for number in range(55):
        began = AT - 2 * DAY + 60 + number
        log.write(decision("https://a.test/", DROP if number < 5 else PASS, at=began))
    for number in range(40):
        began = AT - DAY + 60 + number
        log.write(decision("https://a.test/", DROP if number < 10 else PASS, at=began))
    for number in range(3):
        made = decision("https://b.test/", DROP, at=AT - 600 + number, agent="newsbot")
        log.write(made)
    log.close()
    return directory


def test_a_period_is_compared_with_the_one_before(two_days):
    found = figures(two_days)

    assert found.now.totals == {"drop": 13, "defer": 0, "pass": 30}
    assert found.before.totals == {"drop": 5, "defer": 0, "pass": 50}
    assert (found.now.share, found.before.share) == (13 / 43, 5 / 55)
    assert sum(sum(bar.counts.values()) for bar in found.timeline.bars) == 43
    assert figures(two_days, since=None).before is None


def test_crawlers_and_jobs_have_their_own_figures(two_days):
    found = figures(two_days)
    mybot, newsbot = found.agents

    assert (mybot.name, mybot.now.share, mybot.before.share) == ("mybot", 0.25, 5 / 55)
    assert (newsbot.name, newsbot.now.totals["drop"], newsbot.before.number) == ("newsbot", 3, 0)
    assert newsbot.now.share is None  # its passes, if any, are not recorded
    assert (sum(mybot.dropped), sum(newsbot.dropped)) == (10, 3)
    assert len(mybot.dropped) == len(found.timeline.bars)
    assert [(job.name, job.now.number) for job in found.jobs] == [("spring", 43)]


def test_sites_that_began_to_refuse_are_new(two_days):
    news = figures(two_days).news

    assert [(each.origin, each.dropped) for each in news.refusals] == [("https://b.test", 3)]
    assert (news.refusals_total, news.changes_total) == (1, 0)


@pytest.mark.parametrize(
    ("lines", "number", "share"),
    [
        ([], "not recorded", "not known"),
        ([passes(90), passes(9, agent="newsbot")], "99", "1.0 %"),
    ],
)
async def test_passes_are_counted_or_called_not_recorded(place, tmp_path, lines, number, share):
    log = audit_log_in(tmp_path)
    log.write(decision("https://a.test/private/x", at=AT - 90))
    log.close()
    (tmp_path / "20270115-p-0001.jsonl").write_bytes(b"".join(lines))
    sources = place.sources._replace(audit_log=tmp_path)
    async with let_in(app(sources, hosts=[HOST], token=TOKEN)) as browser:
        page = await read(browser, "/")

    tiles = re.findall(r"<b[^>]*>([^<]+)</b>", page)
    assert tiles[:4] == ["1", "0", number, share]
    assert ("To count the requests that passed, set audit to" in plain(page)) is not bool(lines)
    assert "Not all of the audit log could be read" not in page


async def test_overview_shows_what_changed_in_a_robots_txt(console):
    page = await read(console, "/")
    shown = plain(page)

    assert "https://shop.example 2027-01-15 07:00. 5 lines added, 1 removed." in shown
    assert "https://gone.example 2027-01-15 03:00. It is gone: status 404." in shown
    assert "The store no longer has this document." in shown
    removed = re.findall(r'<tr class="removed">.*?<td>([^<]*)</td></tr>', page)
    added = re.findall(r'<tr class="added">.*?<td>([^<]*)</td></tr>', page)
    assert removed == ["Crawl-delay: 10"]
    assert added == [
        "Disallow: /*?sort=",
        "Crawl-delay: 5",
        "",
        "User-agent: badbot",
        "Disallow: /",
    ]
    assert "Refused a request since 2027-01-14 08:00" in shown


async def test_a_figure_leads_to_the_decisions_that_it_counts(console):
    page = await read(console, "/")
    agents = page.partition('<h2 id="agent">')[2].partition("</table>")[0]
    query, number = re.search(
        r'<a href="/decisions\?([^"]*action=drop[^"]*)">([\d,]+)<', agents
    ).groups()
    listed = await read(console, f"/decisions?{query}")

    assert "agent=mybot" in query
    assert re.search(r"<b>(\d+)</b>", listed)[1] == number


async def test_origin_has_the_history_of_its_robots_txt(console):
    page = await read(console, "/origin", name="https://shop.example")
    history = plain(page.partition('<h2 id="history">')[2].partition("</section>")[0])

    assert re.findall(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?=\d+ lines|First)", history) == [
        "2027-01-15 07:00:00",
        "2027-01-13 16:00:00",
    ]
    assert "3 fetches until 2027-01-15 07:54:49" in history
    assert "Crawl-delay: 10" in history
    assert page.count("<svg class=") == 2  # decisions over time, for wide and for narrow screens


async def test_origins_are_sorted_by_refusals(console):
    page = await read(console, "/origins", sort="refusals")
    found = re.findall(
        r'<td class="first site"><a[^>]*>([^<]+).*?data-label="Refused[^>]*>(?:<a[^>]*>)?(\d+)',
        page,
    )

    numbers = [int(number) for _, number in found]
    assert numbers == sorted(numbers, reverse=True)
    assert found[0][0] == "https://shop.example"
    assert len(found) == 50
    assert "is not known" in await read(console, "/origins", 400, sort="size")


def test_numbers_in_names_are_sorted_as_numbers():
    names = [
        "http://127.2.0.10:8000",
        "http://127.2.0.9:8000",
        "https://b9.test",
        "https://b10.test",
    ]

    assert sorted(names, key=by_number) == [names[1], names[0], names[2], names[3]]
    assert sorted(["https://x", "https://9", "https://"], key=by_number)  # comparable


async def test_overrides_say_what_they_let_through_and_until_when(console):
    page = await read(console, "/overrides")
    rows = [plain(row).strip() for row in re.findall(r"<tr>(.*?)</tr>", page)]
    used = next(row for row in rows if "shop-2026" in row)

    assert re.search(r"max_delay = 1.0 1 0 2027-01-15 07:59:20 2027-03-31 75 d", used)
    assert "2026-12-01 00:00" not in page
    assert any("bygone" in row and "0 0 never 2026-12-01 joe" in row for row in rows)


def test_a_difference_is_bounded_whatever_the_files_contain():
    long = difference(b"a\n" + b"x\n" * 100_000 + b"z\n", b"a\n" + b"y\n" * 90_000 + b"z\n")

    assert (long.removed, long.added) == (100_000, 90_000)
    assert len(long.lines) <= SHOWN
    assert {line.sign for line in long.lines} == {" ", "-", "+"}
    (line,) = difference(b"", b"w" * 100_000).lines
    assert line.text == "w" * 299 + "…"


def test_a_difference_numbers_lines_by_their_version():
    found = difference(EARLIER, RULES)

    assert (found.removed, found.added, found.hidden) == (1, 5, 0)
    assert [(line.number, line.text) for line in found.lines if line.sign == "-"] == [
        (5, "Crawl-delay: 10")
    ]
    assert [line.number for line in found.lines if line.sign == "+"] == [4, 6, 7, 8, 9]
    assert (difference(RULES, RULES).removed, difference(RULES, RULES).added) == (0, 0)


async def test_a_document_of_the_store_is_compared_once(place, tmp_path):
    """Documents never change, and the overview is rendered every five seconds."""
    store = SqliteStore(tmp_path / "policies.sqlite")
    for body in (EARLIER, RULES):
        store.put(policy("https://shop.example/", body), AT)
    asked = []
    document = store.document
    store.document = lambda digest: asked.append(digest) or document(digest)
    sources = place.sources._replace(store=store)
    async with let_in(app(sources, hosts=[HOST], token=TOKEN)) as browser:
        for _ in range(3):
            await read(browser, "/")
    store.close()

    assert asked.count(hashlib.sha256(EARLIER).hexdigest()) == 1


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (percent(None), ""),
        (percent(0.0123), "1.2 %"),
        (points(-0.0321), "-3.2 points"),
        (points(0.0001), "no change"),
        (change(3, 0), ""),
        (change(3, 3), "no change"),
        (change(3, 2), "+50 %"),
        (parts_of("http://h.test:8000"), ("http://h.test", ":8000")),
        (parts_of("https://[2001:db8::1]"), ("https://[2001:db8::1]", "")),
        (parts_of(None), ("", "")),
    ],
)
def test_changes_are_written_for_people(shown, text):
    assert shown == text
