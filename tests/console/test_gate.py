"""Who comes in: by the token, under our own name, and to change anything from a page of our own."""

from __future__ import annotations

import re

import httpx
import pytest
from console.conftest import HOST, TOKEN, client, let_in

from robots_guard.console import app
from robots_guard.console.gate import form_token
from robots_guard.errors import SettingsError

OURS = {"origin": f"http://{HOST}", "sec-fetch-site": "same-origin"}
ORIGIN = "https://shop.example"
FORM = {"form": form_token(TOKEN), "origin": ORIGIN}


@pytest.fixture
def asked():
    return []


@pytest.fixture
def made(place, asked):
    async def refresh(origin):
        asked.append(str(origin))
        return place.store.get(origin)

    return app(place.sources, hosts=[HOST, "localhost:8099"], token=TOKEN, refresh=refresh)


async def test_the_token_in_the_address_becomes_a_cookie_that_no_script_and_no_other_site_has(made):
    async with client(made) as browser:
        first = await browser.get("/decisions", params={"token": TOKEN, "action": "drop"})
        then = await browser.get("/decisions?action=drop")

    assert 'content="0; url=/decisions?action=drop"' in first.text
    assert TOKEN not in first.text
    cookie = first.headers["set-cookie"].lower()
    assert all(part in cookie for part in ("httponly", "samesite=strict", "path=/"))
    assert then.status_code == 200
    assert TOKEN not in then.text


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/overview.json",
        "/decisions",
        "/decisions/dropped",
        "/origins",
        "/try",
        "/none",
        "/static/none",
        "/static/",
    ],
)
async def test_nothing_is_shown_without_the_token(made, path):
    async with client(made) as browser:
        answer = await browser.get(path)

    assert answer.status_code == 403
    assert "shop" not in answer.text
    assert "token" in answer.text


@pytest.mark.parametrize(
    "path", ["//evil.example/", "/\\evil.example/", "///evil.example", "/%22%3E<script>", "/x;url=//evil"]
)
async def test_the_way_in_leads_nowhere_else(made, path):
    async with client(made) as browser:
        page = await browser.get(f"http://{HOST}{path}?token={TOKEN}&next=//evil.example")

    (leads,) = re.findall('content="0; url=([^"]*)"', page.text)
    assert re.match(r"/(?![/\\])[^<>\s]*$", leads)
    assert page.text.count("<script") == 0


@pytest.mark.parametrize(
    "wrong",
    ["", "x", TOKEN + "x", TOKEN[:-1], TOKEN.upper(), "\u00e9", f"{TOKEN}&token={TOKEN}", f"x&token={TOKEN}"],
)
async def test_a_wrong_token_is_refused(made, wrong):
    async with client(made) as browser:
        assert (await browser.get(f"/?token={wrong}")).status_code == 403
        assert (await browser.get("/", headers={"cookie": f"robots_guard_8099={wrong}".encode()})).status_code == 403


async def test_another_consoles_cookie_on_the_same_host_does_not_disturb(made):
    async with client(made) as browser:
        answer = await browser.get("/", headers={"cookie": f"robots_guard_8100=other; robots_guard_8099={TOKEN}"})

    assert answer.status_code == 200


@pytest.mark.parametrize(
    "host",
    ["attacker.example", "attacker.example:8099", "127.0.0.1", "127.0.0.1:80", "127.0.0.1:8099.evil", "", "[::1]:8099"],
)
@pytest.mark.parametrize("path", ["/", "/static/console.css"])
async def test_a_strangers_name_pointed_at_us_is_refused(made, host, path):
    """DNS rebinding: to the browser we are then the stranger's own site."""
    async with let_in(made) as browser:
        assert (await browser.get(path, headers={"host": host})).status_code == 421


async def test_two_hosts_are_refused(made):
    async with let_in(made) as browser:
        request = browser.build_request("GET", "/")
        request.headers = httpx.Headers([("host", HOST), ("host", HOST), ("cookie", f"robots_guard_8099={TOKEN}")])
        assert (await browser.send(request)).status_code == 421


async def test_an_origin_is_asked_by_a_form_of_ours(made, asked):
    async with let_in(made) as browser:
        page = await browser.get("/origin", params={"name": ORIGIN})
        fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page.text))
        answer = await browser.post("/origins/refresh", data=fields, headers=OURS)

    assert (answer.status_code, asked) == (303, [ORIGIN])
    assert answer.headers["location"] == "/origin?name=https%3A%2F%2Fshop.example&asked=now"


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:8100", "sec-fetch-site": "same-site"},
        {"origin": f"https://{HOST}"},
        {"sec-fetch-site": "cross-site"},
        {"origin": f"http://{HOST}", "sec-fetch-site": "cross-site"},
        {},
    ],
    ids=str,
)
async def test_a_form_on_another_page_does_nothing(made, asked, headers):
    async with let_in(made) as browser:
        answer = await browser.post("/origins/refresh", data=FORM, headers=headers)

    assert (answer.status_code, asked) == (403, [])


@pytest.mark.parametrize("form", ["", TOKEN, form_token("another"), "\u00e9"])
async def test_a_form_without_its_token_does_nothing(made, asked, form):
    async with let_in(made) as browser:
        answer = await browser.post("/origins/refresh", data=FORM | {"form": form}, headers=OURS)

    assert (answer.status_code, asked) == (403, [])


async def test_a_form_needs_the_cookie_too(made, asked):
    async with client(made) as browser:
        answer = await browser.post("/origins/refresh", data=FORM, headers=OURS)
        by_address = await browser.post(f"/origins/refresh?token={TOKEN}", data=FORM, headers=OURS)

    assert (answer.status_code, by_address.status_code, asked) == (403, 403, [])


@pytest.mark.parametrize(("origin", "status"), [("ftp://x.example", 400), ("https://a b", 400), ("x" * 9000, 413)])
async def test_what_is_no_origin_is_not_asked(made, asked, origin, status):
    async with let_in(made) as browser:
        answer = await browser.post("/origins/refresh", data=FORM | {"origin": origin}, headers=OURS)

    assert (answer.status_code, asked) == (status, [])


async def test_a_look_at_the_refreshing_address_does_nothing(made, asked):
    async with let_in(made) as browser:
        assert (await browser.get("/origins/refresh", params=FORM)).status_code == 405
    assert asked == []


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"])
async def test_no_other_method(made, method):
    async with let_in(made) as browser:
        assert (await browser.request(method, "/")).status_code == 405


async def test_without_an_agent_nothing_can_be_asked(place):
    async with let_in(app(place.sources, hosts=[HOST], token=TOKEN)) as browser:
        page = await browser.get("/origins")
        answer = await browser.post("/origins/refresh", data=FORM, headers=OURS)

    assert "Ask now" not in page.text
    assert (answer.status_code, "--agent" in answer.text) == (409, True)


def test_a_console_without_a_token_does_not_start(place):
    with pytest.raises(SettingsError, match="token"):
        app(place.sources, hosts=[HOST])


# -- read-only, as a door shows it ----------------------------------------------------------------------------


@pytest.fixture
def shown(place, asked):
    async def refresh(origin):
        asked.append(origin)

    return app(place.sources, hosts=["robots.guard"], read_only=True, refresh=refresh)


async def test_read_only_needs_no_token_and_changes_nothing(shown, asked):
    async with client(shown, base_url="http://robots.guard") as browser:
        pages = [await browser.get(path) for path in ("/", "/decisions", "/origins", f"/origin?name={ORIGIN}")]
        posted = [
            await browser.post(path, data=FORM, headers={"origin": "http://robots.guard"})
            for path in ("/origins/refresh", "/", "/decisions")
        ]

    assert [page.status_code for page in pages] == [200] * 4
    assert all("read-only" in page.text and '<form method="post"' not in page.text for page in pages)
    assert ([answer.status_code for answer in posted], asked) == ([405] * 3, [])


async def test_read_only_answers_to_its_own_name_only(shown):
    async with client(shown, base_url="http://robots.guard.evil.example") as browser:
        assert (await browser.get("/")).status_code == 421


async def test_a_browser_is_bound_on_every_answer(made):
    async with client(made) as stranger, let_in(made) as browser:
        answers = [
            await stranger.get("/"),
            await stranger.get(f"/?token={TOKEN}"),
            await browser.get("/", headers={"host": "evil"}),
            *[
                await browser.get(path)
                for path in ("/", "/none", "/overview.json", "/static/console.css", "/try?url=x")
            ],
        ]

    for answer in answers:
        assert answer.headers["content-security-policy"].startswith(
            "default-src 'none'; style-src 'self'; script-src 'self'"
        )
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-frame-options"] == "DENY"
