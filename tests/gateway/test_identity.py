"""The agents of requests, by user and by User-Agent."""

from __future__ import annotations

import pytest

from robots_guard.errors import SettingsError
from robots_guard.gateway.identity import Identity, agents_in, product


def identity(**options):
    return Identity(agent="mybot", user_agent="mybot/2 (+https://example.org)", **options)


@pytest.mark.parametrize(
    ("options", "user", "user_agents", "agents"),
    [
        ({}, None, ("other/1",), ("mybot",)),
        ({"users": {"alice": "alicebot"}}, "alice", ("other/1",), ("alicebot",)),
        ({"users": {"alice": "alicebot"}}, "bob", (), ("mybot",)),
        ({"users": {"alice": "alicebot"}}, None, (), ("mybot",)),
        ({"by_header": True}, None, ("other/1",), ("other",)),
        ({"by_header": True}, None, (), ("mybot",)),
        (
            {"by_header": True},
            None,
            ("other/1", "", "other/2", "third"),
            ("other", "mybot", "third"),
        ),
        ({"by_header": True, "users": {"alice": "alicebot"}}, "alice", ("other/1",), ("alicebot",)),
    ],
)
def test_agents_of_a_request(options, user, user_agents, agents):
    assert identity(**options).agents(user, user_agents) == agents


def test_user_agent_that_is_sent():
    assert identity().user_agent_of("mybot") is None
    assert identity(sets_user_agent=True).user_agent_of("mybot") == "mybot/2 (+https://example.org)"
    assert identity(sets_user_agent=True).user_agent_of("other") == "other (robots_guard)"


@pytest.mark.parametrize(
    ("user_agent", "token"),
    [
        ("mybot/1.0", "mybot"),
        ("my-bot_x (comment)", "my-bot_x"),
        ("Mozilla/5.0 (compatible; Foobot/2.1; +http://x)", "Foobot"),
        ("Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36", None),
        ("", None),
        ("1bot", "1bot"),
        ("AI2Bot/1.0", "AI2Bot"),
        ("Mozilla/5.0 (compatible; MJ12bot/v1.4.8; http://x)", "MJ12bot"),
        ("(1bot)", None),
    ],
)
def test_the_product_token_of_a_header(user_agent, token):
    assert product(user_agent) == token


_DEEP = "users = " + "{a=" * 5000


@pytest.mark.parametrize(
    "text", ["", "users = 3", "[users]", "[users]\na = 1", '[users]\na = "b c"', "[users", _DEEP]
)
def test_an_invalid_agents_file(text, tmp_path):
    path = tmp_path / "agents.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=r"^agents: "):
        agents_in(path)


def test_a_missing_agents_file(tmp_path):
    with pytest.raises(SettingsError, match=r"^agents: .* cannot be read"):
        agents_in(tmp_path / "none.toml")
