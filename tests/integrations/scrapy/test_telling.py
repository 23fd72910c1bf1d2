"""Logs and audit records of a request contain no password and no terminal control character."""

from __future__ import annotations

import json

from integrations.scrapy.crawl import crawl

from robots_guard.testing import Reply

RULES = "User-agent: *\nDisallow: /private/\n"


def test_no_password_is_logged_however_the_url_is_misspelt(net):
    site = net.origin(RULES)
    here = site.url.removeprefix("http://")
    urls = [
        f"http:/alice:s3cret@{here}/x",
        "http://alice:s3cret@bad%20host/x",
        f"http://alice:s3cret@{here}/private/q?token=s3cret",
    ]

    done = crawl(urls, {"LOG_LEVEL": "DEBUG"})

    lines = [line for line in done.log.splitlines() if "[robots_guard]" in line]
    assert [done[url]["action"] for url in urls] == ["drop"] * 3
    assert site.targets == []
    assert "s3cr" not in json.dumps(done.records)
    assert "s3cr" not in "".join(lines)
    assert sum("drop (" in line for line in lines) == 3
    assert done.record(f"{site.url}/private/q?token=REDACTED")["reason"] == "disallowed"


def test_redirect_targets_are_logged_in_printable_characters(net):
    class Resets(dict):
        """Pages that all reset the connection."""

        def get(self, *_):
            return Reply(reset=True)

    targets = ["/\x1b[2JFAKE\x9b1m", "/x\r[x] WARNING: all is well", "gopher\x1b[2J://x/"]
    moved = [
        net.origin(Reply(status=302, headers=(("Location", target),)), Resets(any=None))
        for target in targets
    ]
    garbled = net.origin(
        Reply(raw=b"HTTP/1.1 200 \x1b[2JOK\rX\r\nContent-Length: zz\x1b[2J\r\n\r\n")
    )

    done = crawl([f"{site.url}/a" for site in [*moved, garbled]], {"LOG_LEVEL": "INFO"})

    lines = [line for line in done.log.split("\n") if "[robots_guard]" in line]
    assert sum("defer (unreachable)" in line for line in lines) == 4
    assert sum("could not be fetched" in line for line in lines) == 4
    assert not any(control in line for line in lines for control in "\x1b\x9b\r")


def test_a_fault_in_the_audit_log_refuses_the_request_and_is_recorded(net):
    site = net.origin(RULES)
    pages = [f"{site.url}/{page}" for page in ("odd/1", "a", "odd/2", "b")]

    done = crawl(pages, {"EXTENSIONS": {"integrations.scrapy.components.BreaksTheLog": 1}})

    assert sorted(site.targets) == ["/a", "/b"]
    assert [done.verdict(page) for page in pages[::2]] == [("drop", "internal-error")] * 2
    assert [done.record(page)["reason"] for page in pages[::2]] == ["internal-error"] * 2
