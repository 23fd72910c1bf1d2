"""A record: a decision in its flat form, one line of the journal.

The law of this file: whatever a stranger wrote stays data. Secrets are taken out of URLs, long values are cut,
and a line is printable ASCII from end to end, so that no octet of an address can end a line or steer a terminal.
The names are a promise: fields are added, never renamed; `schema` counts changes of meaning. docs/audit.md
explains each.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import msgspec

from robots_guard.core.policy import Policy
from robots_guard.core.verdict import Decision

SCHEMA = 1
LONGEST = 2048  # characters of any one value
LONGEST_USER_AGENT = 256
REDACTED = "REDACTED"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One decision. Times are ISO 8601 in UTC with milliseconds; None where there is nothing to say."""

    schema: int = SCHEMA
    id: str
    at: str | None
    seq: int = 0  # of this writer, from 1, without gaps: a gap is a lost record
    writer: str = ""
    door: str
    agent: str
    user_agent: str = ""
    client: str = ""
    method: str = ""
    url: str
    origin: str
    action: str
    reason: str
    group: str | None = None
    rule: str | None = None
    line: int | None = None
    form: str | None = None
    dialect: str = ""
    matching: str = ""
    sha256: str | None = None
    status: int | None = None
    fetched_at: str | None = None
    age: float | None = None
    redirects: list[str] = msgspec.field(default_factory=list)
    stale: bool = False
    via: str | None = None
    tls_verified: bool | None = None
    until: str | None = None
    relaxed: str | None = None
    detail: str | None = None
    source: str = ""
    elapsed_us: int = 0
    failure: str | None = None

    def line_of_json(self) -> bytes:
        """This record as one line of JSON, printable ASCII and a newline."""
        text = _encoder.encode(self).decode()
        return _UNPRINTABLE.sub(_escaped, text).encode("ascii") + b"\n"


_encoder = msgspec.json.Encoder()
_UNPRINTABLE = re.compile(r"[^ -~]")  # JSON escapes control characters below space; the rest is ours


def _escaped(found: re.Match[str]) -> str:
    octets = found[0].encode("utf-16-be")
    return "".join(f"\\u{octets[at : at + 2].hex()}" for at in range(0, len(octets), 2))


def record_of(decision: Decision, *, seq: int = 0, writer: str = "") -> Record:
    """The record of a decision, under a writer's name and number."""
    question, verdict = decision.question, decision.verdict
    return Record(
        id=decision.id,
        at=moment(decision.at),
        seq=seq,
        writer=writer,
        door=decision.door,
        agent=_cut(question.agent, LONGEST_USER_AGENT),
        user_agent=_cut(question.user_agent, LONGEST_USER_AGENT),
        client=_cut(question.client, LONGEST_USER_AGENT),
        method=_cut(question.method, 32),
        url=shown_url(f"{question.origin}{question.target}"),
        origin=str(question.origin),
        action=verdict.action.value,
        reason=verdict.reason.value,
        group=_optional(verdict.group),
        rule=_optional(verdict.rule.text) if verdict.rule else None,
        line=verdict.rule.line if verdict.rule else None,
        form=verdict.form,
        dialect=decision.dialect,
        matching=decision.matching,
        until=moment(verdict.until),
        relaxed=verdict.relaxed,
        detail=_optional(redacted(verdict.detail)) if verdict.detail else None,
        stale=verdict.stale,
        source=decision.source,
        elapsed_us=round(decision.elapsed * 1e6),
        **(_basis(decision.policy, decision.at) if decision.policy else {}),
    )


def _basis(policy: Policy, now: float) -> dict[str, Any]:
    """What the verdict rests on: the document held, and the trouble there is."""
    basis: dict[str, Any] = {}
    if policy.document is not None:
        document = policy.document
        basis.update(
            sha256=document.sha256,
            status=document.status,
            fetched_at=moment(document.fetched_at),
            age=round(now - document.fetched_at, 3),
            redirects=[shown_url(url) for url in document.redirects[:10]],
            via=document.via,
            tls_verified=document.tls_verified if policy.origin.scheme == "https" else None,
        )
    if policy.trouble is not None:
        basis["failure"] = policy.trouble.failure.value
        basis.setdefault("status", policy.trouble.status)
    return basis


def moment(seconds: float | None) -> str | None:
    """Seconds since 1970 as ISO 8601 in UTC with milliseconds; None for what is no moment of the calendar."""
    if seconds is None:
        return None
    try:
        whole, fraction = divmod(round(seconds * 1e6), 1_000_000)
        return f"{_second(whole)}.{fraction // 1000:03}Z"
    except (ValueError, OverflowError, OSError):
        return None


@lru_cache(maxsize=64)  # most records share their second with the one before
def _second(whole: int) -> str:
    return datetime.fromtimestamp(whole, UTC).isoformat(timespec="seconds").removesuffix("+00:00")


# -- URLs ---------------------------------------------------------------------------------------------------

_UNSAFE_OCTET = re.compile(r"[^!-~]")
_USERINFO = re.compile(r"(?<=://)/*[^/?#]*@")  # a slash too many hides no password
_PAIR = re.compile(r"(?<=[?&;])([^?&;=/]*)=([^?&;]*)")
_PATH_PAIR = re.compile(r"(?<=;)([^;=/]*)=([^;/]*)")
_SECRET_NAME = re.compile(
    r"token|secret|signature|passw|pwd|session|jwt|auth(?!ors?\b)|^x-(amz|goog)-"
    r"|(^|[^a-z0-9])(sig|pass|sas|code)($|[^a-z0-9])|(key|sess?id|^sid|[^a-z0-9]sid)($|[^a-z0-9])",
    re.IGNORECASE,
)


def shown_url(url: str) -> str:
    """A URL fit for the journal: no userinfo, fragment or secret; octets outside printable ASCII escaped."""
    whole = _USERINFO.sub("", url.partition("#")[0], count=1)
    return _cut(_UNSAFE_OCTET.sub(_percent, redacted(whole)))


def redacted(text: str) -> str:
    """Text with the values of parameters whose names look secret replaced."""
    path, mark, query = text.partition("?")
    if ";" in path:
        path = _PATH_PAIR.sub(_without_secret, path)
    return path + _PAIR.sub(_without_secret, mark + query)


def _without_secret(pair: re.Match[str]) -> str:
    name, value = pair.groups()
    return f"{name}={REDACTED}" if _SECRET_NAME.search(unquote(name)) or _hides_secret(value) else pair[0]


def _hides_secret(value: str) -> bool:
    """Whether a value is itself a URL that carries a password or a secret parameter."""
    inner = unquote(value)
    if _USERINFO.search(inner):
        return True
    return any(_SECRET_NAME.search(name) for name, _ in _PAIR.findall(inner)) if inner != value else False


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{octet:02X}" for octet in _octets(found[0]))


def _octets(character: str) -> bytes:
    """A target has one Latin-1 character an octet; anything beyond is text from elsewhere."""
    return character.encode("latin-1") if character <= "\xff" else character.encode("utf-8", "surrogatepass")


# -- other values -------------------------------------------------------------------------------------------


def _optional(text: str | None) -> str | None:
    return None if text is None else _cut(text)


def _cut(text: str, longest: int = LONGEST) -> str:
    """At most so many characters, and none that cannot be encoded."""
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= longest else text[: longest - 3] + "..."
