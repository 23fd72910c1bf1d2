"""Identity: which agent a request is judged as, and which User-Agent it is sent with.

This is the operator's agent, unless an authenticated user has another one (`agents`), or the
request's own User-Agent is trusted (`agent_from = header`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from robots_guard.errors import SettingsError
from robots_guard.protocol.robots import NAME
from robots_guard.toml import parse_toml

_TOKEN = re.compile(NAME)
#: In crawlers' browser-like User-Agents.
_COMPATIBLE = re.compile(rf"compatible;\s*({NAME})", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Maps requests to agents.

    `agent` and `user_agent` are the operator's. `users` are the agents of authenticated users. With
    `by_header`, the agent is the one that a request names.
    """

    agent: str
    user_agent: str
    users: Mapping[str, str] = field(default_factory=dict)
    by_header: bool = False
    sets_user_agent: bool = False

    def agents(self, user: str | None, user_agents: tuple[str, ...]) -> tuple[str, ...]:
        """The agents to judge a request as: it passes if it passes for each. The first is the request's own.

        `user` is authenticated. A request should have one User-Agent field. If it has several, it
        is unknown which one a site reads.
        """
        if user is not None and user in self.users:
            return (self.users[user],)
        if not self.by_header:
            return (self.agent,)
        named = [product(each) or self.agent for each in user_agents] or [self.agent]
        return tuple(dict.fromkeys(named))

    def user_agent_of(self, agent: str) -> str | None:
        """The User-Agent that an agent's requests are sent with; None for the client's own."""
        if not self.sets_user_agent:
            return None
        if agent == self.agent:
            return self.user_agent
        return f"{agent} (robots_guard)"


@lru_cache(maxsize=1024)
def product(user_agent: str) -> str | None:
    """The product token in a User-Agent, or None: `mybot/1.0 (+https://...)`, `Mozilla/5.0 (compatible; mybot)`."""
    found = _TOKEN.match(user_agent)
    if found is None:
        return None
    if found[0].lower() != "mozilla":
        return found[0]
    named = _COMPATIBLE.search(user_agent)
    if named:
        return named[1]
    return None


def agents_in(path: Path) -> Mapping[str, str]:
    """Agents by user, from `[users]` of a TOML file: `alice = "alicebot"`. Raises SettingsError."""
    try:
        users = parse_toml(path.read_text(encoding="utf-8")).get("users")
    except OSError as error:
        raise SettingsError(
            f"agents: {str(path)!r} cannot be read ({error.strerror}): name a TOML file with [users]"
        ) from None
    except ValueError as error:  # UnicodeDecodeError is one
        raise SettingsError(f"agents: {str(path)!r} is not valid TOML ({error})") from None
    if not isinstance(users, dict) or not users:
        raise SettingsError(
            f'agents: {str(path)!r} names no users: write [users], and user = "agent" below it'
        )
    for user, agent in users.items():
        if not (isinstance(agent, str) and _TOKEN.fullmatch(agent)):
            raise SettingsError(
                f"agents: {user!r} has no product token: use letters, digits, '-', '_' and '.', such as 'mybot'"
            )
    return users
