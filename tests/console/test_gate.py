"""Access control: the token, the console's own host names, and changes only from its own pages."""

from __future__ import annotations

import re

import httpx
import pytest
from console.conftest import HOST, TOKEN, client, let_in

from robots_guard.app.console import app
from robots_guard.errors import SettingsError

OWN_HEADERS = {"origin": f"http://{HOST}", "sec-fetch-site": "same-origin"}
ORIGIN = "https://shop.example"
FORM = {"origin": ORIGIN}


@pytest.fixture
def fetched():
    return []


@pytest.fixture
def application(place, fetched):
    async def refresh(origin):
        fetched.append(str(origin))
        return place.store.get(origin)

    return app(place.sources, hosts=[HOST, "localhost:8099"], token=TOKEN, refresh=refresh)


async def test_token_in_address_becomes_strict_http_only_cookie(application):
    async with client(application) as browser:
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
async def test_pages_need_the_token(application, path):
    async with client(application) as browser:
        answer = await browser.get(path)

    assert answer.status_code == 403
    assert "shop" not in answer.text
    assert "token" in answer.text


@pytest.mark.parametrize(
    "path",
    ["//evil.example/", "/\\evil.example/", "///evil.example", "/%22%3E<script>", "/x;url=//evil"],
)
async def test_login_cannot_redirect_to_another_site(application, path):
    async with client(application) as browser:
        page = await browser.get(f"http://{HOST}{path}?token={TOKEN}&next=//evil.example")

    (leads,) = re.findall('content="0; url=([^"]*)"', page.text)
    assert re.match(r"/(?![/\\])[^<>\s]*$", leads)
    assert page.text.count("<script") == 0


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "x",
        TOKEN + "x",
        TOKEN[:-1],
        TOKEN.upper(),
        "\u00e9",
        f"{TOKEN}&token={TOKEN}",
        f"x&token={TOKEN}",
    ],
)
async def test_wrong_token_is_refused(application, wrong):
    async with client(application) as browser:
        assert (await browser.get(f"/?token={wrong}")).status_code == 403
        assert (
            await browser.get("/", headers={"cookie": f"robots_guard_8099={wrong}".encode()})
        ).status_code == 403


async def test_cookie_of_another_console_is_ignored(application):
    async with client(application) as browser:
        answer = await browser.get(
            "/", headers={"cookie": f"robots_guard_8100=other; robots_guard_8099={TOKEN}"}
        )

    assert answer.status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "attacker.example",
        "attacker.example:8099",
        "127.0.0.1",
        "127.0.0.1:80",
        "127.0.0.1:8099.evil",
        "",
        "[::1]:8099",
    ],
)
@pytest.mark.parametrize("path", ["/", "/static/console.css"])
async def test_foreign_host_name_is_refused(application, host, path):
    """DNS rebinding: the browser then takes the console for the attacker's own site."""
    async with let_in(application) as browser:
        assert (await browser.get(path, headers={"host": host})).status_code == 421


async def test_two_host_headers_are_refused(application):
    async with let_in(application) as browser:
        request = browser.build_request("GET", "/")
        request.headers = httpx.Headers(
            [("host", HOST), ("host", HOST), ("cookie", f"robots_guard_8099={TOKEN}")]
        )
        assert (await browser.send(request)).status_code == 421


async def test_own_form_fetches_robots_txt(application, fetched):
    async with let_in(application) as browser:
        page = await browser.get("/origin", params={"name": ORIGIN})
        fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page.text))
        answer = await browser.post("/origins/refresh", data=fields, headers=OWN_HEADERS)

    assert (answer.status_code, fetched) == (303, [ORIGIN])
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
        {"origin": f"http://{HOST}", "sec-fetch-site": "same-site"},
        {"origin": "", "sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
        {},
        [("origin", f"http://{HOST}"), ("origin", "https://evil.example")],
        [("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")],
    ],
    ids=str,
)
async def test_post_from_another_page_is_refused(application, fetched, headers):
    async with let_in(application) as browser:
        answer = await browser.post("/origins/refresh", data=FORM, headers=headers)

    assert (answer.status_code, fetched) == (403, [])


async def test_post_without_cookie_is_refused(application, fetched):
    async with client(application) as browser:
        answer = await browser.post("/origins/refresh", data=FORM, headers=OWN_HEADERS)
        by_address = await browser.post(
            f"/origins/refresh?token={TOKEN}", data=FORM, headers=OWN_HEADERS
        )

    assert (answer.status_code, by_address.status_code, fetched) == (403, 403, [])


@pytest.mark.parametrize(
    ("origin", "status"), [("ftp://x.example", 400), ("https://a b", 400), ("x" * 9000, 413)]
)
async def test_invalid_origin_is_not_fetched(application, fetched, origin, status):
    async with let_in(application) as browser:
        answer = await browser.post(
            "/origins/refresh", data=FORM | {"origin": origin}, headers=OWN_HEADERS
        )

    assert (answer.status_code, fetched) == (status, [])


async def test_get_of_refresh_address_is_refused(application, fetched):
    async with let_in(application) as browser:
        assert (await browser.get("/origins/refresh", params=FORM)).status_code == 405
    assert fetched == []


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"])
async def test_other_methods_are_refused(application, method):
    async with let_in(application) as browser:
        assert (await browser.request(method, "/")).status_code == 405


async def test_a_websocket_is_refused(application):
    """Any page may try to open one; a server logs an error if the application does not answer."""
    sent = []

    async def send(message):
        sent.append(message)

    await application({"type": "websocket", "path": "/", "headers": []}, None, send)
    assert sent == [{"type": "websocket.close"}]


async def test_refresh_needs_an_agent(place):
    async with let_in(app(place.sources, hosts=[HOST], token=TOKEN)) as browser:
        page = await browser.get("/origins")
        answer = await browser.post("/origins/refresh", data=FORM, headers=OWN_HEADERS)

    assert "Fetch now" not in page.text
    assert (answer.status_code, "--agent" in answer.text) == (409, True)


def test_console_requires_a_token(place):
    with pytest.raises(SettingsError, match="token"):
        app(place.sources, hosts=[HOST])


# -- read-only, as an integration serves it -----------------------------------------------------------------------


@pytest.fixture
def read_only_application(place, fetched):
    async def refresh(origin):
        fetched.append(origin)

    return app(place.sources, hosts=["robots.guard"], read_only=True, refresh=refresh)


async def test_read_only_needs_no_token_and_changes_nothing(read_only_application, fetched):
    async with client(read_only_application, base_url="http://robots.guard") as browser:
        pages = [
            await browser.get(path)
            for path in ("/", "/decisions", "/origins", f"/origin?name={ORIGIN}")
        ]
        posted = [
            await browser.post(path, data=FORM, headers={"origin": "http://robots.guard"})
            for path in ("/origins/refresh", "/", "/decisions")
        ]

    assert [page.status_code for page in pages] == [200] * 4
    assert all(
        "read-only" in page.text and '<form method="post"' not in page.text for page in pages
    )
    assert ([answer.status_code for answer in posted], fetched) == ([405] * 3, [])


async def test_read_only_refuses_foreign_host_names(read_only_application):
    async with client(
        read_only_application, base_url="http://robots.guard.evil.example"
    ) as browser:
        assert (await browser.get("/")).status_code == 421


async def test_every_response_has_security_headers(application):
    async with client(application) as stranger, let_in(application) as browser:
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
