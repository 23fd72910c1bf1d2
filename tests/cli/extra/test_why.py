"""`why`: the answer to why a URL was, or was not, requested, from the audit log alone."""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
import sys

import msgspec
import pytest
from audit.decisions import AT, DEFER, DROP, PASS, audit_log_in, decision, policy
from support.terminals import read_terminal

from robots_guard.audit.privacy import Privacy
from robots_guard.audit.read import index
from robots_guard.audit.segments import INDEX
from robots_guard.decisions.access import Failed, Failure
from robots_guard.decisions.pacing import DelaySource, RequiredDelay
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.renewal import begin
from robots_guard.decisions.verdict import Action, Exemption, RuleRef, Verdict
from robots_guard.guard.stores import open_store
from robots_guard.origin import split_url


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "audit_log"


def write(directory, *decisions, **options):
    """Record decisions with the ids w-1, w-2, ..."""
    log = audit_log_in(directory, audit="all", **options)
    for number, each in enumerate(decisions, 1):
        log.write(msgspec.structs.replace(each, id=f"w-{number}"))
    log.close()
    return log


def refused(url="https://a.test/private/x", **values):
    return decision(url, policy=policy(url, values.get("at", AT) - 60), **values)


def facts(text):
    """What is said after the sentence, by name."""
    lines = text.splitlines()[2:]
    return {line[:10].rstrip(): line[12:] for line in lines if line[:1].strip()}


SENTENCE = (
    "mybot was not allowed to fetch https://a.test/private/x at 08:00:00 UTC on 2027-01-15:"
    " line 2 of its robots.txt, fetched at 07:59:00 UTC on 2027-01-15, says Disallow: /private/."
)


def test_the_answer_is_one_sentence_with_its_circumstances(here, directory, tmp_path):
    write(
        directory,
        refused(at=AT - 3600, component="scrapy"),
        refused("https://a.test/private/%78", agent="otherbot", at=AT - 60),
        refused(at=AT),
        refused("https://a.test/private/y", at=AT + 5),
        decision("https://a.test/private/x", PASS, at=AT + 6),
        job="news",
    )
    store = open_store(f"sqlite:///{tmp_path}/policies.sqlite")
    store.put(policy(at=AT), AT)
    store.close()
    status, out, err = here("why", "https://A.test:443/private/./x#top")
    said = facts(out)

    assert (status, err) == (0, "")
    assert out.startswith(f"{SENTENCE}\n\nhow often   3 times since 07:00:00 UTC on 2027-01-15,")
    assert "by          mybot (cli, job news): once\nby          otherbot" in out
    assert "by          mybot (scrapy, job news): once\n" in out
    assert said["also"].startswith("pass for mybot (cli, job news), allowed, once")
    assert said["today"] == (
        "The stored robots.txt, fetched at 08:00:00 UTC on 2027-01-15, says the same"
        " (line 2: Disallow: /private/)."
    )
    assert said["id"] == "w-3"
    bundle = shlex.split(said["evidence"])
    assert bundle[:4] == ["robots-guard", "audit", "bundle", "w-3"]
    listed = here(*shlex.split(said["all"])[1:], "--json")
    assert [json.loads(line)["id"] for line in listed.out.splitlines()] == [
        "w-5",
        "w-3",
        "w-2",
        "w-1",
    ]

    assert here("why", "w-3").out == out
    answer = json.loads(here("why", "https://a.test/private/x", "--json").out)
    assert (answer["sentence"], answer["count"], answer["record"]["id"]) == (SENTENCE, 3, "w-3")


ELSEWHERE = msgspec.structs.replace(
    DROP, rule=RuleRef(line=7, text="Disallow: /private/x", group="*")
)
EXEMPTED = Verdict(action=Action.PASS, reason=Reason.BYPASSED, would=Action.DROP)


def test_an_id_is_answered_by_that_decision(here, directory):
    write(
        directory,
        refused(at=AT),
        refused(at=AT + 60, verdict=ELSEWHERE),
        decision("https://a.test/private/x", EXEMPTED, at=AT + 120),
    )
    chosen = {
        identity: facts(here("why", identity).out)["id"] for identity in ("w-1", "w-2", "w-3")
    }

    assert chosen == {"w-1": "w-1", "w-2": "w-2", "w-3": "w-3"}
    assert "no decision like it" in here("why", "w-1", "--agent", "other").out


def test_a_refusal_is_shown_before_a_later_exemption(here, directory):
    """However many rules decided, a crawler is named once."""
    write(
        directory,
        refused(at=AT),
        refused(at=AT + 60, verdict=ELSEWHERE),
        decision("https://a.test/private/x", EXEMPTED, at=AT + 120),
    )
    out = here("why", "https://a.test/private/x").out

    assert facts(out)["id"] == "w-2"
    assert "\nby          mybot (cli): twice\n" in out


def test_the_answer_is_the_same_from_the_index(here, directory, monkeypatch):
    write(directory, refused(), decision("https://a.test/private/x", PASS, at=AT + 6))
    before = here("why", "https://a.test/private/x")
    monkeypatch.setattr(index, "WORTHWHILE", 1)

    assert before.status == 0
    assert here("why", "https://a.test/private/x") == before
    assert (directory / INDEX).exists()


def test_commands_name_the_log_and_the_store_if_needed(here, directory, variables, tmp_path):
    place = tmp_path / "other log's"
    write(place, refused())
    variables.delenv("ROBOTS_GUARD_STORE")
    said = facts(here("why", "https://a.test/private/x", "--audit-log", place).out)

    assert shlex.split(said["evidence"])[-2:] == ["--audit-log", str(place)]


def store_of(tmp_path, rules, at=AT):
    """Put a robots.txt of a.test with these rules into the store."""
    fetched = policy(at=at)
    document = msgspec.structs.replace(fetched.document, body=rules.encode(), sha256=_digest(rules))
    store = open_store(f"sqlite:///{tmp_path}/policies.sqlite")
    store.put(msgspec.structs.replace(fetched, document=document), at)
    store.close()


DISALLOW = "User-agent: *\nDisallow: /private/"  # as `policy` has it
DELAY = DISALLOW.replace("Disallow: /private/", "Crawl-delay: 10")


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ("User-agent: *\nDisallow: /other/", "allows it now (allowed)"),
        ("User-agent: *\nAllow: /\n\nDisallow: /private/x", "has changed, but not the action"),
    ],
)
def test_what_the_stored_file_says_today(here, directory, tmp_path, rules, says):
    write(directory, refused())
    store_of(tmp_path, rules)

    assert says in facts(here("why", "https://a.test/private/x").out)["today"]


EXEMPTED = Verdict(action=Action.PASS, reason=Reason.BYPASSED, relaxed="override=o-1")
CONTRACT = Exemption(id="o-1", owner="jane", reason="a contract", expires=AT + 86400)
PAUSED = Verdict(
    action=Action.DEFER,
    reason=Reason.RETRY_AFTER,
    delay=RequiredDelay(by=DelaySource.RETRY_AFTER, seconds=30.0),
)


@pytest.mark.parametrize(
    ("verdict", "rules", "says"),
    [
        (EXEMPTED, DISALLOW, "says drop (line 2: Disallow: /private/). The decision did not"),
        (
            Verdict(action=Action.DROP, reason=Reason.DESTINATION_REFUSED),
            DISALLOW,
            "says drop (line 2: Disallow: /private/). The decision did not",
        ),
        (
            Verdict(action=Action.DROP, reason=Reason.BLOCKED),
            "User-agent: *\nAllow: /",
            "says pass (line 2: Allow: /). The decision did not depend on a robots.txt.",
        ),
        (PAUSED, DELAY, "allows it, with 10 s between two requests (crawl-delay)."),
        (PAUSED, "", "allows it (allowed)."),
        (DEFER, DISALLOW, "says drop now (line 2: Disallow: /private/)."),
    ],
)
def test_a_stored_file_is_not_said_to_have_changed_if_it_did_not_decide(
    here, directory, tmp_path, verdict, rules, says
):
    write(directory, decision(verdict=verdict))
    store_of(tmp_path, rules)
    said = facts(here("why", "https://a.test/private/x").out)["today"]

    assert says in said
    assert "changed" not in said


def test_an_exemption_is_not_called_a_setting(here, directory):
    write(directory, decision(verdict=EXEMPTED, override=CONTRACT))
    sentence = here("why", "https://a.test/private/x").out.partition("\n")[0]

    assert "the override o-1 of jane (a contract) was in force" in sentence
    assert "setting" not in sentence


def test_the_kind_of_a_failure_is_said_once(here, directory):
    failed = Failed(failure=Failure.DNS, detail="dns: no such host")
    origin = split_url("https://a.test/")[0]
    unknown = begin(origin, None, "direct").next(failed, AT).policy
    write(directory, decision(verdict=DEFER, policy=unknown))
    sentence = here("why", "https://a.test/private/x").out.partition("\n")[0]

    assert "its robots.txt could not be fetched since" in sentence
    assert sentence.count("dns") == 1


def test_an_answer_for_one_agent_says_so(here, directory):
    write(directory, refused(), refused(agent="otherbot"))
    status, out, _ = here("why", "https://a.test/private/x", "--agent", "otherbot")
    assert (status, facts(out)["agent"]) == (0, "otherbot: decisions for others are not shown")
    assert "agent" not in facts(here("why", "https://a.test/private/x").out)

    status, out, _ = here("why", "https://a.test/private/x", "--agent", "nobot")
    said = facts(out)
    assert status == 1
    assert out.startswith("Nothing is recorded of https://a.test/private/x for nobot.\n")
    assert said["nearest"] == "no decision on any URL of https://a.test for nobot"
    assert " --agent nobot" in said["search"]
    found = json.loads(here("why", "https://a.test/", "--agent", "nobot", "--json").out)
    assert found["agent"] == "nobot"
    assert found["sentence"] == "Nothing is recorded of https://a.test/ for nobot."


def _digest(rules):
    import hashlib

    return hashlib.sha256(rules.encode()).hexdigest()


SPELLINGS = [
    ("https://a.test/~j/%c3%b6", "https://a.test/%7Ej/ö"),
    ("https://a.test/a/b", "https://A.test/a/%62"),
    ("https://a.test/c/d", "https://user:pw@a.test:443/c/x/../d#here"),
    ("https://a.test/a/../b", "https://a.test/b?"),
    ("https://bücher.test/a$", "https://xn--bcher-kva.TEST/a%24"),
    ("https://a.test/?q=1&token=abc", "https://a.test/?q=1&token=other"),
    ("https://a.test/" + "ö" * 1000, "https://a.test/" + "%c3%b6" * 1000),
]


def test_a_url_is_found_in_any_spelling(here, directory):
    write(directory, *(refused(recorded) for recorded, _ in SPELLINGS))
    for number, (_, asked) in enumerate(SPELLINGS, 1):
        assert facts(here("why", asked).out)["id"] == f"w-{number}", asked
    for other in ("https://a.test/a/B", "https://a.test/a%2Fb", "http://a.test/a/b"):
        assert here("why", other).status == 1, other
    assert "Values in the query are hidden" in here("why", SPELLINGS[5][1]).out


@pytest.mark.parametrize("query", ["keep", "drop", "hash"])
def test_a_url_is_found_however_its_query_was_recorded(here, directory, query):
    write(
        directory,
        refused("https://a.test/private/x?a=1"),
        privacy=Privacy(query=query),
        settings={"audit_query": query},
    )

    assert here("why", "https://a.test/private/x?a=1").status == 0
    assert here("why", "https://a.test/private/x?a=2").status == (0 if query == "drop" else 1)


def test_nothing_found_says_what_was_searched(here, directory):
    write(directory, refused(), decision("https://a.test/private/y", DEFER, at=AT + 5))
    status, out, err = here("why", "https://a.test/private/z")
    said = facts(out)

    assert (status, err) == (1, "")
    assert out.startswith("Nothing is recorded of https://a.test/private/z.\n\n")
    assert said["searched"] == f"1 file of 2027-01-15 in {directory}, 4 records"
    assert said["period"] == "all that is recorded"
    assert "may have left no record" in said["passes"]
    assert said["nearest"] == "2 decisions on other URLs of https://a.test"
    assert SENTENCE in out

    assert here("why", "https://a.test/private/x", "--since", "2027-01-15T09:00").status == 1
    assert here("why", "https://a.test/private/x", "--agent", "nobot").status == 1
    nothing = facts(here("why", "https://b.test/").out)
    assert nothing["nearest"] == "no decision on any URL of https://b.test"
    assert here("why", "nosuch-1").status == 2
    assert here("audit", "query", "--id", "nosuch-1").status == 0


def test_a_long_url_of_another_decision_is_shortened(here, directory):
    write(directory, refused(f"https://a.test/private/{'x' * 1500}/end"))
    out = here("why", "https://a.test/private/z").out

    (nearest,) = (line for line in out.splitlines() if "was not allowed" in line)
    assert "https://a.test/private/x" in nearest
    assert "/end at " in nearest
    assert "(w-1)" in nearest
    assert len(nearest) < 400


def test_what_was_not_counted_is_no_number_in_json(here, directory):
    write(directory, refused())
    found = json.loads(here("why", "https://a.test/private/x", "--json").out)
    nothing = json.loads(here("why", "https://a.test/private/z", "--json").out)

    assert (found["searched"]["records"], found["of_origin"]) == (None, None)
    assert (nothing["searched"]["records"], nothing["of_origin"]) == (3, 1)


def test_passes_that_were_only_counted_are_named(here, directory):
    """As the setting `audit = summary` records them."""
    log = write(directory, refused("https://a.test/private/other"))
    (path,) = directory.glob("*.jsonl")
    with path.open("ab") as file:
        counted = {"kind": "passes", "schema": 1, "at": "2027-01-15T08:01:00.000Z", "seq": 9}
        counted |= {"writer": log.writer, "component": "cli", "agent": "mybot"}
        counted |= {"origin": "https://a.test", "action": "pass", "count": 420}
        file.write(json.dumps(counted, separators=(",", ":")).encode() + b"\n")

    out = here("why", "https://a.test/x").out
    assert "420 requests of mybot to https://a.test passed (cli)" in out


def test_each_reason_has_a_sentence(here, directory):
    """In words, without a gap, whatever is missing."""
    verdicts = [Verdict(action=action, reason=reason) for reason in Reason for action in Action]
    write(
        directory,
        *(decision(f"https://a.test/{number}", each) for number, each in enumerate(verdicts)),
    )
    for number, verdict in enumerate(verdicts):
        if verdict.action is not Action.DROP:
            continue
        sentence = here("why", f"https://a.test/{number}").out.partition("\n")[0]
        assert sentence.startswith(f"mybot was not allowed to fetch https://a.test/{number} at ")
        assert sentence.endswith(".")
        assert not any(text in sentence for text in ("None", "  ", "()", ":.", ": ;", "..")), (
            sentence
        )


def test_drop_of_a_response_is_said_with_its_statement():
    """See tests/audit/extra for how these records are written."""
    from robots_guard.audit.record import EvidenceItem, SignalsRecord
    from robots_guard.audit.show.sentence import sentence_of

    item = EvidenceItem(signal="x-robots-tag", where="header", raw="noai", denies=["ai-train"])
    record = SignalsRecord(
        schema=1,
        at="2027-01-15T08:00:00.000Z",
        id="w-1",
        agent="mybot",
        url="https://a.test/x",
        origin="https://a.test",
        status=200,
        action="drop",
        reason="usage-reserved",
        evidence=[item],
    )
    assert sentence_of(record) == (
        "mybot was not allowed to use the response of https://a.test/x at 08:00:00 UTC on"
        " 2027-01-15: its x-robots-tag in header says noai, which denies ai-train."
    )


@pytest.mark.parametrize("length", [3000, 7000, 200_000])
def test_a_url_of_any_length_is_looked_up(here, directory, length):
    url = "https://a.test/private/" + "x" * length
    write(directory, refused(url))

    assert here("why", url).status == 0
    assert here("why", url.replace("private", "other")).status == 1


def test_a_record_cannot_control_the_terminal(here, directory):
    write(directory, refused("https://a.test/private/x", agent="\x1b]0;evil\x07"))

    assert "\x1b" not in here("why", "https://a.test/private/x").out
    assert DROP.action is Action.DROP


def test_commands_are_not_broken_on_a_terminal(directory, tmp_path):
    write(directory, refused(at=AT))
    store = f"sqlite:///{tmp_path}/a-name-that-is-long-enough-to-reach-the-end-of-a-line.sqlite"
    ours, theirs = pty.openpty()
    args = ("why", "w-1", "--audit-log", str(directory), "--store", store)
    environment = os.environ | {"COLUMNS": "80", "TERM": "dumb"}
    child = subprocess.Popen(
        [sys.executable, "-m", "robots_guard.app.cli", *args],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    os.close(theirs)
    shown = read_terminal(ours).decode()

    assert child.wait(60) == 0
    bundle = next(line for line in shown.splitlines() if line.startswith("evidence"))
    assert shlex.split(bundle)[1:] == [
        *("robots-guard", "audit", "bundle", "w-1", "-o", "w-1.zip"),
        *("--audit-log", str(directory), "--store", store),
    ]
    others = [line for line in shown.splitlines() if not line.startswith(("evidence", "all "))]
    assert max(map(len, others)) <= 80


def test_a_period_without_a_record_is_not_taken_for_the_whole_log(here, directory):
    write(directory, refused(at=AT))
    status, out, _ = here("why", "https://a.test/private/x", "--since", "2030-01-01")
    said = facts(out)

    assert status == 1
    assert said["searched"].startswith("0 files")
    assert "passes" not in said
    assert said["nearest"] == "no decision on any URL of https://a.test in this period"


@pytest.mark.parametrize("command", [("why", "https://a.test/x"), ("audit", "query")], ids=str)
@pytest.mark.parametrize("since", ["2027-01-16", "2027-01-15"])
def test_a_period_that_ends_before_it_begins_is_an_error(here, directory, command, since):
    write(directory, refused(at=AT))
    for period in (
        ("--since", since, "--until", "2027-01-15"),
        ("--until", "2027-01-15", "--since", since),
    ):
        status, out, err = here(*command, *period)

        assert (status, out) == (2, "")
        assert f"is not after --since {since}T00:00:00.000Z: exchange them" in err


@pytest.mark.parametrize(
    ("asked", "count", "query"),
    [
        ("https://a.test/private/*", "3 times", "https://a.test/private/*"),
        ("a.test", "4 times", "a.test"),
        ("a.test:444", None, "a.test:444"),
        ("https://a.test/nothing/*", None, "https://a.test"),
    ],
)
def test_a_pattern_is_answered_as_a_query_by_it(here, directory, asked, count, query):
    write(
        directory,
        *(refused(f"https://a.test/private/{page}", at=AT + 60) for page in "xyz"),
        refused("https://a.test/private%2", at=AT),
        decision("https://b.test/private/x", at=AT + 99),
    )
    status, out, _ = here("why", asked)
    said = facts(out)

    assert query in shlex.split(said["all" if count else "search"])
    if count is None:
        assert (status, out.splitlines()[0]) == (1, f"Nothing is recorded of {asked}.")
        return
    assert status == 0
    assert said["how often"].startswith(f"{count} since" if "4" in count else count)
    assert out.startswith("mybot was not allowed to fetch https://a.test/private/")
