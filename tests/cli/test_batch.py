"""`check --batch`: a line in, a line out, in order, whatever the line."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from cli.command import COMMAND

from robots_guard.testing import Reply

RULES = "User-agent: *\nDisallow: /private/\n"


@pytest.fixture
def batch(here, tmp_path):
    """Answers to questions, which are dicts or raw lines."""

    def batch(*questions, options=()):
        path = tmp_path / "questions.jsonl"
        lines = (
            each if isinstance(each, bytes) else json.dumps(each).encode() for each in questions
        )
        path.write_bytes(b"\n".join(lines) + b"\n")
        status, out, err = here("check", "--batch", path, *options)
        assert err == ""
        return status, [json.loads(line) for line in out.splitlines()]

    return batch


def ask(**values):
    return {
        "robots_txt": RULES,
        "user_agent": "mybot/1.0 (+https://mybot.test)",
        "url": "https://a.test/",
    } | values


def test_answer_has_action_reason_rule_and_dialect(batch):
    status, answers = batch(ask(id=7, url="https://a.test/private/x"), ask(id="b"))

    assert status == 0
    assert answers == [
        {
            "id": 7,
            "action": "drop",
            "reason": "disallowed",
            "rule": {"line": 2, "text": "Disallow: /private/", "group": "*"},
            "dialect": "rfc9309",
            "delay_source": None,
            "delay": None,
        },
        {
            "id": "b",
            "action": "pass",
            "reason": "allowed",
            "rule": None,
            "dialect": "rfc9309",
            "delay_source": None,
            "delay": None,
        },
    ]


def test_delay_is_named_without_waiting(batch):
    paced = ask(robots_txt="User-agent: *\nCrawl-delay: 60\n")

    status, answers = batch(paced, paced)

    assert status == 0
    assert [(each["action"], each["delay_source"], each["delay"]) for each in answers] == [
        ("pass", "crawl-delay", 60.0)
    ] * 2


def actions(answered):
    return [answer.get("action", "error") for answer in answered[1]]


def test_urls_are_iris_and_targets_are_bytes(batch):
    rules = "User-agent: *\nDisallow: /\u00fc\n"
    answered = batch(
        ask(robots_txt=rules, url="https://a.test/\u00fc"),
        ask(robots_txt=rules, url=None, origin="https://a.test", target="/\u00c3\u00bc"),
        ask(robots_txt=rules, url=None, origin="https://a.test", target="/%c3%bc"),
        ask(robots_txt=rules, url=None, origin="https://a.test", target="/u"),
    )

    assert actions(answered) == ["drop", "drop", "drop", "pass"]


def test_dialect_and_matching_by_line(batch):
    rules = "User-agent: mybot\nDisallow: /a\nAllow: /a/b\n"
    status, answers = batch(
        ask(robots_txt=rules, url="https://a.test/a/b"),
        ask(robots_txt=rules, url="https://a.test/a/b", dialect="koster1994"),
        ask(url="https://a.test//private/"),
        ask(url="https://a.test//private/", matching="spec"),
        ask(url="https://a.test/PRIVATE/", matching="strict"),
    )

    assert status == 0
    assert [answer["action"] for answer in answers] == ["pass", "drop", "drop", "pass", "drop"]
    assert answers[1]["dialect"] == "koster1994"


@pytest.mark.parametrize(
    ("user_agent", "dialect", "action"),
    [
        ("mybot", "rfc9309", "drop"),
        ("MyBot/2.1; x", "rfc9309", "drop"),
        ("mybot (+https://a.test)", "rfc9309", "drop"),
        ("mybot2", "rfc9309", "pass"),  # a name with digits is compared whole
        ("AI2Bot/1.0", "rfc9309", "drop"),
        ("360Spider", "rfc9309", "drop"),
        ("*", "rfc9309", "pass"),
        ("mybotting", "rfc9309", "pass"),
        ("other mybot", "rfc9309", "pass"),
        ("Yahoo! Slurp/3.0", "slurp2006", "drop"),
        ("", "rfc9309", "pass"),
    ],
)
def test_user_agent_is_judged_by_its_product_token(batch, user_agent, dialect, action):
    rules = "User-agent: mybot\nDisallow: /\n\nUser-agent: Yahoo! Slurp\nDisallow: /\n"
    rules += "\nUser-agent: AI2Bot\nUser-agent: 360Spider\nDisallow: /\n"

    assert actions(batch(ask(robots_txt=rules, user_agent=user_agent, dialect=dialect))) == [action]


@pytest.mark.parametrize(
    ("user_agent", "dialect"),
    [
        ("AI2Bot", "google"),
        ("360Spider", "google"),
        ("AI2Bot", "strictest(rfc9309, google)"),
        ("(compatible)", "rfc9309"),
        ("\u540d", "yandex"),
        ("!", "strictest(rfc9309, koster1994)"),
    ],
)
def test_a_name_that_the_dialect_cannot_compare_is_an_error(batch, user_agent, dialect):
    status, (answer,) = batch(
        ask(robots_txt="User-agent: mybot\nDisallow:\n", user_agent=user_agent, dialect=dialect)
    )

    assert status == 2
    assert "cannot compare" in answer["error"]


def test_agent_option_is_the_default(batch, variables):
    question = ask(robots_txt="User-agent: mybot\nDisallow: /", user_agent=None)
    assert actions(batch(question)) == ["drop"]

    variables.delenv("ROBOTS_GUARD_AGENT")
    status, (answer,) = batch(question | {"id": 1})
    assert (status, answer) == (
        2,
        {
            "id": 1,
            "error": "no agent is given: add user_agent to the line, or --agent to the command",
        },
    )


def test_schemes_and_authorities(batch):
    status, answers = batch(
        ask(url="mailto:a@b.test"),
        ask(url="http://a b/"),
        ask(url="http:a.test"),
        ask(url="http://a.test/\x00"),
    )

    assert status == 0
    assert [(answer["action"], answer["reason"]) for answer in answers] == [
        ("pass", "not-governed"),
        ("drop", "malformed-target"),
        ("drop", "malformed-target"),
        ("drop", "malformed-target"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense",
        b"[]",
        b"7",
        b"\xff\xfe{}",
        b'{"id": NaN}',
        b'{"id": -1e999, "robots_txt": "", "user_agent": "a", "url": "https://a.test/"}',
        b'{"id": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"robots_txt": 7, "url": "https://a.test/"}',
        b'{"robots_txt": ""}',
        b'{"robots_txt": "", "origin": "https://a.test"}',
        b'{"robots_txt": "", "origin": "https://a.test", "target": "/\\u20ac"}',
        b'{"robots_txt": "", "user_agent": "a", "url": "a.test:8080/x"}',
        b'{"robots_txt": "", "user_agent": "a", "url": "a.test"}',
        b'{"robots_txt": "", "user_agent": "a", "origin": "htp://a.test", "target": "/"}',
        b'{"robots_txt": "", "url": "https://a.test/", "dialect": "rfc9310"}',
        b'{"robots_txt": "", "url": "https://a.test/", "matching": "loose"}',
        b'{"robots_txt": "' + b"x" * (17 << 20) + b'"}',
    ],
    ids=range(18),
)
def test_invalid_line_gets_an_error_in_its_place(batch, line):
    status, answers = batch(ask(id=1), line, ask(id=3))

    assert status == 2
    assert [answer["id"] for answer in answers] == [1, None, 3]
    assert set(answers[1]) == {"id", "error"}


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b'{"id": 1' + b" " * (17 << 20) + b"}", "it is longer than 16 MiB"),
        (b'{"id": ' + b"9" * 5000 + b"}", "a number of 5000 digits is too large"),
        (b'{"id": 1e999}', "1e999 is too large a number"),
        (b"[" * 100_000, "it is nested too deeply"),
    ],
    ids=["long", "digits", "infinite", "deep"],
)
def test_error_says_what_is_wrong(batch, line, sentence):
    assert batch(line)[1] == [{"id": None, "error": f"the line cannot be read: {sentence}"}]


def test_error_has_the_id_of_the_line(batch):
    assert batch(ask(id={"a": [1]}, dialect="none"))[1][0]["id"] == {"a": [1]}
    assert batch(ask(id=5, url=7))[1][0]["id"] == 5


def test_unknown_field_is_an_error(batch):
    status, answers = batch(
        {"id": 1, "robots_text": RULES, "user_agent": "a", "url": "https://a.test/private/"},
        ask(id=2, comment="x"),
    )

    assert status == 2
    assert answers[0] == {"id": 1, "error": "unknown field robots_text: did you mean robots_txt?"}
    assert answers[1]["error"].startswith("unknown field comment: known are: id, robots_txt")


@pytest.mark.parametrize(
    "more", [{"origin": "https://b.test", "target": "/"}, {"origin": "https://b.test"}], ids=str
)
def test_url_excludes_origin_and_target(batch, more):
    status, (answer,) = batch(ask(id=1, **more))

    assert (status, answer["id"]) == (2, 1)
    assert "url is given together with origin or target" in answer["error"]


def test_invalid_unicode_is_data(batch):
    line = b'{"id": "\\ud800", "robots_txt": "User-agent: *\\nDisallow: /\\udc80", "user_agent": "a", "url": "http://a/\\udc80"}'
    status, (answer,) = batch(line)

    assert (status, answer["id"], answer["action"]) == (0, "\ud800", "drop")


def test_blank_lines_are_skipped(batch):
    status, answers = batch(b"", ask(id=1), b"  ", b"\r", ask(id=2))

    assert (status, [answer["id"] for answer in answers]) == (0, [1, 2])


def test_texts_open_no_store_and_no_audit_log(batch, tmp_path):
    batch(ask())

    assert {path.name for path in tmp_path.iterdir()} == {"questions.jsonl"}


# -- fetched ------------------------------------------------------------------------------------------------


def test_policy_is_fetched_once_per_origin(batch, net):
    rules, none, busy = net.origin(Reply(body=RULES, delay=0.2)), net.origin(404), net.origin(503)
    questions = [
        {"id": n, "user_agent": "mybot", "url": f"{site.url}/private/{n}"}
        for n in range(40)
        for site in (rules, none, busy)
    ]
    status, answers = batch(*questions)

    assert status == 0
    assert [answer["id"] for answer in answers] == [question["id"] for question in questions]
    assert [answer["action"] for answer in answers] == ["drop", "pass", "defer"] * 40
    assert [len(site.robots_fetches) for site in (rules, none, busy)] == [1, 1, 1]
    assert not rules.targets


def test_each_line_has_its_own_dialect_for_fetched_policies(batch, net):
    closed = net.origin(403)
    question = {"user_agent": "mybot", "url": f"{closed.url}/"}

    assert actions(batch(question, question | {"dialect": "google"})) == ["drop", "pass"]
    assert len(closed.robots_fetches) == 1


def test_answers_keep_the_order_of_the_questions(batch, net):
    slow = net.origin(Reply(body=RULES, delay=0.5))
    questions = [
        ask(id=1),
        {"id": 2, "user_agent": "a", "url": f"{slow.url}/private/"},
        ask(id=3),
        b"?",
        ask(id=5),
    ]
    _, answers = batch(*questions)

    assert [answer["id"] for answer in answers] == [1, 2, 3, None, 5]


# -- as a program beside another ----------------------------------------------------------------------------


def test_answer_is_written_before_the_next_question(variables):
    child = subprocess.Popen(
        [COMMAND, "check", "--batch", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    for number in range(5):
        child.stdin.write(json.dumps(ask(id=number)).encode() + b"\n")
        child.stdin.flush()
        assert json.loads(child.stdout.readline())["id"] == number
    child.stdin.close()

    assert child.wait(60) == 0
    child.stdout.close()


@pytest.mark.timeout(60)
def test_read_error_ends_the_batch_with_one_sentence(here):
    # The file opens, and fails at the first read.
    status, out, err = here("check", "--batch", "/proc/self/mem")

    assert (status, out, err) == (2, "", "robots-guard: Input/output error\n")


def test_memory_is_bounded_for_long_files(variables):
    """200 MB of questions go through a process that may not grow to 200 MB, while nobody has read an answer yet."""
    question = json.dumps(ask(robots_txt=RULES + "#" * 100_000)).encode() + b"\n"
    limited = f"ulimit -v {900 * 1024}; exec {COMMAND} check --batch - > /dev/null; exit 9"
    child = subprocess.Popen(["bash", "-c", limited], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for _ in range(2000):
        child.stdin.write(question)
    with Path(f"/proc/{child.pid}/status").open() as status:
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    child.stdin.close()

    assert child.wait(60) == 0
    child.stdout.close()
    assert peak < 150 * 1024


def test_verdict_on_a_text_ignores_the_time_of_day(here, tmp_path):
    shut = (
        "User-agent: *\nVisit-time: 0000-0001\nVisit-time: 1200-1201\nCrawl-delay: 5\nDisallow: /x"
    )
    file = tmp_path / "ask.jsonl"
    rows = [
        {"robots_txt": shut, "user_agent": "mybot", "url": f"https://a.test/{page}"}
        for page in "xy"
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))

    said = [json.loads(line) for line in here("check", "--batch", file).out.splitlines()]

    assert [(each["action"], each["delay"]) for each in said] == [("drop", None), ("pass", 5.0)]
