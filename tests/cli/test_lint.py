"""`lint` as people and machines meet it, and its page, compared with the command."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from robots_guard.protocol.lint.response import KINDS
from robots_guard.testing import Reply

DOCS = Path(__file__).parents[2] / "docs"
GOOD = "User-agent: *\nDisallow: /private/\n"
BAD = "User-agent: *\nDisalow: /private/\nAllow: /a /b\n"
HOSTILE = (
    b"User-agent: *\nDisalow: /\x1b[2J\x07\xe2\x80\xae\n::error file=x::y\n%0A\x85%: ::set-output\n"
)


@pytest.fixture
def bad(tmp_path):
    path = tmp_path / "robots.txt"
    path.write_text(BAD)
    return path


# -- the page ------------------------------------------------------------------------------------------------


def _blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"```{kind}\b.*?\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


@pytest.mark.parametrize(("page", "place"), [("lint.md", 0), ("cli.md", 0)])
def test_example_in_the_docs_is_the_output(here, tmp_path, monkeypatch, page, place):
    monkeypatch.chdir(tmp_path)
    Path("robots.txt").write_text(_blocks(page, "robots")[place])
    [shown] = [
        block for block in _blocks(page, "console") if "robots.txt" in block.partition("\n")[0]
    ]
    typed, _, expected = shown.removeprefix("$ robots-guard ").partition("\n")
    _, out, _ = here(*typed.split())

    assert out == expected


# -- exit statuses -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "fail_on", "status"),
    [
        (GOOD, "note", 0),
        (BAD, "error", 1),
        (BAD, "never", 0),
        (GOOD + "Allow: /x /y\n", "error", 0),
        (GOOD + "Allow: /x /y\n", "warning", 1),
        (GOOD + "Allow: /x\n", "warning", 0),
        (GOOD + "Allow: /x\n", "note", 1),
    ],
)
def test_status_depends_on_the_worst_finding(here, tmp_path, text, fail_on, status):
    path = tmp_path / "r.txt"
    path.write_text(text)

    assert here("lint", path, "--fail-on", fail_on).status == status


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["/nowhere/robots.txt"], "No such file"),
        (["."], "Is a directory"),
        (["-", "--dialect", "klingon"], "'klingon' is not known"),
        (["ftp://a.test/robots.txt"], "give a file, or a URL"),
        (["a\0b"], "cannot be read"),
        ([], "no file is given"),
    ],
)
def test_missing_file_is_reported_in_one_sentence(here, args, says):
    status, out, err = here("lint", *args)

    assert (status, out, err.count("\n")) == (2, "", 1)
    assert says in err


# -- responses -----------------------------------------------------------------------------------------------

HEADERS = "HTTP/2 200\nContent-Type: text/html\nX-Robots-Tag: noindex\n"
PAGE = '<title>t</title>\n<meta name="robots" content="index, no-follow">\n'


@pytest.fixture
def response(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("headers.txt").write_text(HEADERS)
    Path("page.html").write_text(PAGE)
    Path("robots.txt").write_text("User-agent: *\nDisallow: /private/\n")
    Path("tdmrep.json").write_text('{"location": "/", "tdm-reservation": 1}')


def test_response_is_linted_file_by_file(here, response):
    status, out, _ = here("lint", "--headers", "headers.txt", "--html", "page.html")

    assert status == 1
    assert out == (
        "headers.txt: no findings\n"
        "page.html:2: error RG701 contradictory-rules: noindex and index contradict each other:"
        " most crawlers take the prohibition, Yandex the permission (one is in the header fields)\n"
        '        2 | <meta name="robots" content="index, no-follow">\n'
        "page.html:2: warning RG704 unknown-robots-rule: no-follow is no robots rule:"
        " did you mean nofollow?\n"
        '        2 | <meta name="robots" content="index, no-follow">\n'
        "page.html: 1 error, 1 warning\n"
    )


def test_rule_that_no_crawler_sees_needs_robots_txt_and_url(here, response):
    args = ("robots.txt", "--headers", "headers.txt", "--dialect", "rfc9309")

    hidden = here("lint", *args, "--url", "https://a.test/private/x")
    assert "headers.txt:3: error RG710 unseen-robots-rule" in hidden.out
    assert "rfc9309: disallowed by line 2: Disallow: /private/" in hidden.out
    assert "RG710" not in here("lint", *args, "--url", "https://a.test/x").out
    assert "RG710" not in here("lint", *args).out


def test_tdmrep_file_is_linted(here, response):
    status, out, _ = here("lint", "--tdmrep", "tdmrep.json")

    assert status == 1
    assert "tdmrep.json: error RG712 tdmrep-form: the file is an object" in out


def test_page_alone_is_html(here, response):
    assert "RG704" in here("lint", "--html", "page.html").out


def test_several_files_are_several_objects_and_artifacts(here, response):
    args = ("lint", "robots.txt", "--html", "page.html", "--tdmrep", "tdmrep.json", "--format")

    files = json.loads(here(*args, "json").out)["files"]
    assert [each["file"] for each in files] == ["robots.txt", "page.html", "tdmrep.json"]
    [run] = json.loads(here(*args, "sarif").out)["runs"]
    assert [each["location"]["uri"] for each in run["artifacts"]] == [
        "robots.txt",
        "page.html",
        "tdmrep.json",
    ]
    for result in run["results"]:
        location = result["locations"][0]["physicalLocation"]["artifactLocation"]
        assert location["uri"] == run["artifacts"][location["index"]]["location"]["uri"]
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    assert "::error file=tdmrep.json" in here(*args, "github").out


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--html", "nowhere.html"], "No such file"),
        (["--headers", "page.html"], "is not a header field"),
        (["--html", "page.html", "--url", "https://a.test/"], "needs the robots.txt"),
        (["robots.txt", "--html", "page.html", "--url", "ftp://a.test/"], "--url"),
    ],
)
def test_unusable_response_is_reported_in_one_sentence(here, response, args, says):
    status, out, err = here("lint", *args)

    assert (status, out, err.count("\n")) == (2, "", 1)
    assert says in err


# -- where files come from -----------------------------------------------------------------------------------


def test_a_file_from_standard_input(apart):
    status, out, err = apart("lint", "-", "--dialect", "rfc9309", stdin=BAD)

    assert (status, err) == (1, "")
    assert out.startswith("stdin:2: error RG101 misspelt-field: ")
    assert out.endswith("stdin: 1 error, 1 warning\n")


def test_url_is_refetched_under_the_agents_name(here, net):
    site = net.origin(BAD)
    here("check", f"{site.url}/")
    status, out, _ = here(
        "lint", f"{site.url}/some/page", "--agent", "abot", "--dialect", "rfc9309"
    )

    assert status == 1
    assert out.startswith(f"{site.url}/robots.txt:2: error RG101 ")
    assert len(site.robots_fetches) == 2
    assert site.robots_fetches[1].headers["user-agent"].startswith("abot ")


@pytest.mark.parametrize(
    ("reply", "says"),
    [(404, "answers 404"), (503, "cannot be fetched"), (Reply(reset=True), "reset")],
)
def test_url_without_a_robots_txt(here, net, reply, says):
    status, out, err = here("lint", net.origin(reply).url)

    assert (status, out) == (2, "")
    assert says in err


def test_file_above_the_size_cap_is_reported(here, net):
    site = net.origin(GOOD + "Disallow: /x\n" * 40_000)
    found = json.loads(here("lint", site.url, "--format", "json", "--dialect", "rfc9309").out)[
        "findings"
    ]

    assert "RG006" in {each["code"] for each in found}


# -- formats -------------------------------------------------------------------------------------------------


def test_json_has_all_findings(here, bad):
    data = json.loads(
        here("lint", bad, "--format", "json", "--dialect", "rfc9309", "--dialect", "koster1994").out
    )

    assert data["file"] == str(bad)
    assert data["dialects"] == ["rfc9309", "koster1994"]
    assert data["counts"]["error"] == 1
    [misspelt] = [each for each in data["findings"] if each["code"] == "RG101"]
    assert (misspelt["line"], misspelt["text"]) == (2, "Disalow: /private/")
    assert misspelt["effects"] == {
        "rfc9309": "Disallow: /private/, for *",
        "koster1994": "not read",
    }


def test_sarif_has_what_the_standard_requires(here, bad):
    log = json.loads(here("lint", bad, "--format", "sarif").out)
    [run] = log["runs"]
    rules = run["tool"]["driver"]["rules"]

    assert (log["version"], run["tool"]["driver"]["name"]) == ("2.1.0", "robots-guard")
    assert [rule["id"] for rule in rules] == [check.code for check in KINDS]
    assert run["artifacts"] == [{"location": {"uri": bad.as_uri()}}]
    assert run["results"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        assert result["message"]["text"]
        for location in [*result["locations"], *result.get("relatedLocations", ())]:
            place = location["physicalLocation"]
            assert place["artifactLocation"] == {"uri": bad.as_uri(), "index": 0}
            assert place.get("region", {"startLine": 1})["startLine"] >= 1


def test_relative_path_stays_relative_in_sarif(here, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a b%.txt").write_text(BAD)
    [run] = json.loads(here("lint", "a b%.txt", "--format", "sarif").out)["runs"]

    assert run["artifacts"][0]["location"]["uri"] == "a%20b%25.txt"


def test_github_commands_are_one_line_each(here, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("r,1.txt").write_text(BAD)
    out = here(
        "lint", "r,1.txt", "--format", "github", "--dialect", "rfc9309", "--dialect", "koster1994"
    ).out

    assert out.splitlines()[1] == (
        "::error file=r%2C1.txt,line=2,title=RG101 misspelt-field::disalow is a misspelling of Disallow that not"
        " every crawler accepts%0Arfc9309: Disallow: /private/, for *%0Akoster1994: not read"
    )
    assert all(
        line.startswith(("::error ", "::warning ", "::notice ")) for line in out.splitlines()
    )


@pytest.mark.parametrize("form", ["text", "json", "sarif", "github"])
def test_hostile_file_cannot_control_the_output(here, tmp_path, form):
    path = tmp_path / "r.txt"
    path.write_bytes(HOSTILE)
    out = here("lint", path, "--format", form).out

    assert out.replace("\n", "").isprintable()
    assert "::error file=x" not in [line[:14] for line in out.splitlines()]
    if form in ("json", "sarif"):
        assert json.loads(out)


ORDERS = (
    "User-agent: *\nFoo: ##[error]x\n"
    "Disalow: /a ##vso[task.setvariable variable=PATH]x\n##[group]y ##teamcity[z]\n"
)


@pytest.mark.parametrize("form", ["text", "json", "sarif", "github"])
def test_output_has_no_build_server_commands(here, tmp_path, form):
    path = tmp_path / "robots.txt"
    path.write_text(ORDERS)
    said = here("lint", path, "--format", form).out
    explained = [
        here("explain", "--robots", path, "https://a.test/a", *more).out
        for more in ((), ("--json",))
    ]

    assert not re.search(r"##[A-Za-z]*\[", "".join([said, *explained]))
    if form == "json":
        assert "Foo: ##[error]x" in [finding["text"] for finding in json.loads(said)["findings"]]
