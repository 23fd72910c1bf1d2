"""The agent that is judged: the operator's, an authenticated user's, or the one a request names."""

from __future__ import annotations

import pytest
from integrations.mitmproxy.conftest import KINDS
from integrations.mitmproxy.wire import credentials, htpasswd, plain

RULES = """
User-agent: mybot
Disallow: /closed-to-mybot
User-agent: other
Disallow: /closed-to-other
User-agent: *
Disallow: /closed-to-the-rest
"""


@pytest.fixture
def site(sites):
    return sites.start(robots=RULES)


def named(integration, site, target, user_agent="other/2.0 (+https://example.org)", fields=""):
    return plain(
        integration, site.url + target, fields=f"User-Agent: {user_agent}\r\n{fields}"
    ).status


@pytest.mark.parametrize("kind", KINDS)
def test_the_operators_agent_whatever_the_client_sends(kind, start, site):
    with start(kind) as integration:
        assert named(integration, site, "/closed-to-mybot") == 403
        assert named(integration, site, "/closed-to-other") == 200


@pytest.mark.parametrize("kind", KINDS)
def test_the_agent_that_a_request_names(kind, start, site):
    with start(kind, agent_from="header") as integration:
        assert named(integration, site, "/closed-to-mybot") == 200
        assert named(integration, site, "/closed-to-other") == 403
        assert named(integration, site, "/closed-to-the-rest", "third") == 403
        assert named(integration, site, "/closed-to-mybot", "Mozilla/5.0 (X11; Linux)") == 403
        assert (
            named(integration, site, "/closed-to-other", "Mozilla/5.0 (compatible; Other/1; +x)")
            == 403
        )
        assert integration.records()[0]["agent"] == "other"


def test_every_agent_that_a_request_names(start, site):
    """It is unknown which of two User-Agent fields a site reads."""
    with start("proxy", agent_from="header") as integration:
        assert named(integration, site, "/closed-to-other", "third", "User-Agent: other\r\n") == 403
        assert named(integration, site, "/closed-to-other", "", "User-Agent: other\r\n") == 403
        assert named(integration, site, "/closed-to-mybot", "", "User-Agent: other\r\n") == 403
        assert named(integration, site, "/open", "third", "User-Agent: other\r\n") == 200
    assert site.origin.targets == ["/open"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_authenticated_users_agent(kind, start, site, tmp_path):
    agents, users = tmp_path / "agents.toml", tmp_path / "users"
    agents.write_text('[users]\nalice = "other"\n')
    users.write_text(htpasswd("alice", "bob"))
    with start(kind, "--proxyauth", f"@{users}", agents=str(agents)) as integration:
        assert named(integration, site, "/closed-to-other", fields=credentials("alice")) == 403
        assert named(integration, site, "/closed-to-mybot", fields=credentials("alice")) == 200
        assert named(integration, site, "/closed-to-mybot", fields=credentials("bob")) == 403
        assert named(integration, site, "/open") == 407
        assert named(integration, site, "/open", fields=credentials("alice", "guessed")) == 407
    assert [request.target for request in site.origin.received] == [
        "/robots.txt",
        "/closed-to-mybot",
    ]
    assert not any(
        name.startswith("proxy-") for request in site.origin.received for name in request.headers
    )


@pytest.mark.parametrize("kind", KINDS)
def test_the_agents_user_agent_is_set(kind, start, site):
    with start(kind, set_user_agent="true") as integration:
        assert named(integration, site, "/open", "curl/8") == 200
    assert site.origin.received[-1].headers["user-agent"] == "mybot (robots_guard)"


def test_a_configured_user_agent_is_set(start, site):
    with start(
        "proxy", set_user_agent="true", user_agent="mybot/2 (+https://example.org/bot)"
    ) as integration:
        assert plain(integration, site.url + "/open").status == 200
    assert site.origin.received[-1].headers["user-agent"] == "mybot/2 (+https://example.org/bot)"
