"""Pinned robots.txt files in the console: shown, judged by, and the command that makes one."""

from __future__ import annotations

import re
import shlex
from html import unescape

import pytest
from console.conftest import HOST, TOKEN, let_in

from robots_guard.app.console import app
from robots_guard.invocation import Invocation

PIN = """
[[override]]
id = "pin-1"
origin = "https://shop.example"
owner = "jane"
reason = "their file is broken"
expires = 2030-01-01
robots_file = "pinned.txt"
"""
WANTED = {
    "origin": "https://Shop.Example/",
    "file": "/etc/it's <here>.txt",
    "owner": "jane",
    "reason": 'a "contract"; rm -rf $HOME',
    "until": "2030-01-31",
}


@pytest.fixture
async def browser(place, tmp_path):
    path = tmp_path / "pins.toml"
    path.write_text(PIN)
    (tmp_path / "pinned.txt").write_text("User-agent: *\nDisallow: /only-pinned\nCrawl-delay: 9\n")
    sources = place.sources._replace(
        overrides=path, invocation=Invocation({"overrides": str(path)})
    )
    async with let_in(app(sources, hosts=[HOST], token=TOKEN)) as browser:
        yield browser


async def text_of(browser, path, **query):
    answer = await browser.get(path, params=query)
    assert answer.status_code == 200
    return answer.text


async def test_a_url_is_tried_under_the_pinned_file(browser):
    page = await text_of(browser, "/try", url="https://shop.example/only-pinned/a")
    assert "Disallow: /only-pinned" in page
    assert "An override has pinned this file" in page
    assert "9.0 s" not in page  # it is refused

    page = await text_of(browser, "/try", url="https://shop.example/item/8")
    assert "9.0 s between two requests" in page


async def test_a_pinned_site_that_was_never_fetched_is_tried(place, tmp_path, browser):
    (tmp_path / "pins.toml").write_text(PIN.replace("shop.example", "new.example"))
    page = await text_of(browser, "/try", url="https://new.example/only-pinned/a")
    assert "Disallow: /only-pinned" in page
    assert "Last fetch" not in page


async def test_the_page_of_the_origin_names_the_pinned_file(browser, tmp_path):
    page = await text_of(browser, "/origin", name="https://shop.example")
    assert "An override has pinned another file for this origin" in page
    assert str(tmp_path / "pinned.txt") in page
    assert "9.0 s between two requests" in page


async def test_a_pin_whose_file_is_missing_is_shown_as_invalid(browser, tmp_path):
    (tmp_path / "pinned.txt").unlink()
    page = await text_of(browser, "/overrides")
    assert re.search(r'<span class="tag drop">invalid</span>', page)
    assert "cannot be read (No such file or directory)" in page


async def test_the_form_makes_a_command_that_a_shell_reads_as_meant(browser, tmp_path):
    page = await text_of(browser, "/overrides/pin", **WANTED)
    command = unescape(re.search(r"<pre[^>]*>(.*?)</pre>", page, re.DOTALL)[1])
    assert shlex.split(command) == [
        "robots-guard",
        "overrides",
        "add",
        "https://shop.example",
        "robots_file=/etc/it's <here>.txt",
        "--owner=jane",
        '--reason=a "contract"; rm -rf $HOME',
        "--until=2030-01-31",
        "--overrides",
        str(tmp_path / "pins.toml"),
    ]


async def test_the_command_pins_the_file(browser, tmp_path, capsys):
    from robots_guard.app.cli import main as cli

    given = WANTED | {"origin": "https://a.example", "file": str(tmp_path / "pinned.txt")}
    page = await text_of(browser, "/overrides/pin", **given)
    command = unescape(re.search(r"<pre[^>]*>(.*?)</pre>", page, re.DOTALL)[1])
    assert cli.run(shlex.split(command)[1:]) == 0
    assert "a.example" in await text_of(browser, "/overrides")


async def test_an_incomplete_form_has_no_command(browser):
    page = await text_of(browser, "/overrides/pin", origin="https://shop.example")
    assert "<pre" not in page
    assert 'value="https://shop.example"' in page


async def test_a_host_without_a_scheme_is_explained(browser):
    answer = await browser.get("/overrides/pin", params=WANTED | {"origin": "shop.example"})
    assert answer.status_code == 400
    assert "write an origin as https://host" in answer.text


async def test_the_page_changes_nothing(browser, tmp_path):
    answer = await browser.post("/overrides/pin", data=WANTED)
    assert answer.status_code in (403, 405)
    assert (tmp_path / "pins.toml").read_text() == PIN
