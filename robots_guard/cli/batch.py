"""`robots-guard check --batch`: a question a line, an answer a line, in the same order.

    {"robots_txt": "User-agent: *\\nDisallow: /x", "user_agent": "mybot/1.0", "url": "https://a.test/x", "id": 7}
    {"id": 7, "action": "drop", "reason": "disallowed", "rule": {"line": 2, "text": "Disallow: /x", "group": "*"}, ...}

The law of this file: however long the file, only a window of it is in memory; and however wrong a line, its
answer stands in its place. An answer is written as soon as those before it are, so that another program can ask
and wait. Without `robots_txt` the policy comes from the store or the network. Nothing is journaled: a batch
asks, it lets nothing through.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import math
import os
import re
import threading
from collections.abc import Iterator
from typing import Any, BinaryIO, NoReturn

import msgspec

from robots_guard.cli.asking import Judge, policy_of_text, read_url
from robots_guard.cli.check import guard_of
from robots_guard.cli.options import settings_from
from robots_guard.cli.terminal import write_line
from robots_guard.core.verdict import Question, Terms, Verdict
from robots_guard.errors import RobotsGuardError
from robots_guard.guard import Guard
from robots_guard.origin import Origin, objection
from robots_guard.plain import meant
from robots_guard.rep.dialect import dialect
from robots_guard.rep.paths import matching
from robots_guard.settings import CLOCKS, Settings

WINDOW = 64  # questions under way at once
LONGEST_LINE = 16 * 1024 * 1024  # 500 KiB of robots.txt, every octet written as a JSON escape, several times over
MOST_DIGITS = 1_000  # of a whole number; Python refuses more than 4,300
JUDGES = 64
UNREADABLE = 2  # the exit status if any line was

Answered = dict[str, Any]  # a line out

_FOREIGN = re.compile(r"[^A-Za-z_-]")


class Ask(msgspec.Struct, kw_only=True):
    """A line in. `url` is text (an IRI); `target` is the octets on the wire, one Latin-1 character each."""

    id: Any = None
    robots_txt: str | None = None
    user_agent: str | None = None
    url: str | None = None
    origin: str | None = None
    target: str | None = None
    dialect: str | None = None
    matching: str | None = None


class Unaskable(RobotsGuardError):
    """A line that is JSON and no question."""


def answer_batch(source: BinaryIO, values: dict[str, Any]) -> int:
    """Answer all lines; the exit status."""
    # Without an agent, lines must name one each; the fetches then go under our own name.
    settings = settings_from(values, agent="robots_guard")
    return asyncio.run(_Batch(settings, values.get("agent")).run(_own(source)))


def _own(source: BinaryIO) -> BinaryIO:
    """The same file behind a buffer of our own: a thread may be waiting in it when the program ends."""
    try:
        return os.fdopen(os.dup(source.fileno()), "rb")
    except (OSError, io.UnsupportedOperation):
        return source


class _Batch:
    """One run."""

    def __init__(self, settings: Settings, agent: str | None) -> None:
        self._settings = settings
        self._agent = agent
        self._guards = contextlib.ExitStack()
        self._guard: Guard | None = None
        self._judges: dict[tuple[str, str], Judge] = {}
        self._unread = False
        self._broken: OSError | None = None

    async def run(self, source: BinaryIO) -> int:
        """Read, answer and write until the file ends. Raises OSError if it ends because it cannot be read."""
        window: asyncio.Queue[asyncio.Future[Answered] | None] = asyncio.Queue(WINDOW)
        with self._guards:
            await asyncio.gather(self._read(source, window), self._write(window))
        if self._broken is not None:
            raise self._broken
        return UNREADABLE if self._unread else 0

    async def _read(self, source: BinaryIO, window: asyncio.Queue[asyncio.Future[Answered] | None]) -> None:
        ahead: asyncio.Queue[bytes | OSError | None] = asyncio.Queue()
        room = threading.Semaphore(WINDOW)
        loop = asyncio.get_running_loop()
        # A daemon: what waits for a slow pipe must not hold up the end of the program.
        threading.Thread(target=_feed, args=(source, ahead, room, loop), name="batch", daemon=True).start()
        while isinstance(line := await ahead.get(), bytes):
            await window.put(asyncio.ensure_future(self._answer(line)))
            room.release()
        self._broken = line
        await window.put(None)

    async def _write(self, window: asyncio.Queue[asyncio.Future[Answered] | None]) -> None:
        while (answer := await window.get()) is not None:
            said = await answer
            self._unread |= "error" in said
            write_line(json.dumps(said), flush=window.empty())

    async def _answer(self, line: bytes) -> Answered:
        """The answer to one line; for what cannot be asked, the error."""
        values: Any = None
        try:
            values = _loaded(line)
            ask = _ask(values)
            return _said(ask, *await self._verdict(ask))
        except ValueError as error:
            return _unread(values, f"the line cannot be read: {error}")
        except RecursionError:
            return _unread(values, "the line cannot be read: it is nested too deeply")
        except RobotsGuardError as error:
            return _unread(values, str(error))

    async def _verdict(self, ask: Ask) -> tuple[Verdict, Terms]:
        judge = self._judge(ask)
        agent = product_token(_named(ask, self._agent), judge.terms)
        read = _asked(ask)
        if isinstance(read, Verdict):
            return read, judge.terms
        question = Question(origin=read[0], target=read[1], agent=agent)
        if ask.robots_txt is not None:
            now = CLOCKS.now()
            policy = policy_of_text(question.origin, _body(ask.robots_txt), now)
            return judge.by_policy(policy, question, now, at_any_time=True), judge.terms
        policy = await self._policies().policy(question.origin)
        return judge.by_policy(policy, question, CLOCKS.now()), judge.terms

    def _judge(self, ask: Ask) -> Judge:
        key = (ask.dialect or self._settings.dialect, ask.matching or self._settings.matching)
        judge = self._judges.get(key)
        if judge is None:
            terms = msgspec.structs.replace(self._settings.terms(), dialect=dialect(key[0]), matching=matching(key[1]))
            if len(self._judges) >= JUDGES:
                self._judges.clear()
            judge = self._judges[key] = Judge(terms)
        return judge

    def _policies(self) -> Guard:
        """The guard, opened by the first line that needs one: a batch of texts touches no store."""
        if self._guard is None:
            self._guard = self._guards.enter_context(guard_of(self._settings))
        return self._guard


def _feed(
    source: BinaryIO,
    ahead: asyncio.Queue[bytes | OSError | None],
    room: threading.Semaphore,
    loop: asyncio.AbstractEventLoop,
) -> None:
    """Lines from a file that may block, as many as there is room for; last why it could not be read on, or None."""
    end: OSError | None = None
    with source, contextlib.suppress(RuntimeError):  # when the loop has closed, nobody waits for more
        try:
            for line in _lines(source):
                room.acquire()
                loop.call_soon_threadsafe(ahead.put_nowait, line)
        except OSError as error:
            end = error
        loop.call_soon_threadsafe(ahead.put_nowait, end)


def _lines(source: BinaryIO) -> Iterator[bytes]:
    """Lines that are not blank; of one that is too long, only its beginning."""
    while line := source.readline(LONGEST_LINE):
        whole = line
        while len(whole) == LONGEST_LINE and not whole.endswith(b"\n"):
            whole = source.readline(LONGEST_LINE)
        if line.strip():
            yield line


def _loaded(line: bytes) -> Any:
    """The JSON of a line. Raises ValueError in our words where the decoder's would help nobody, RecursionError."""
    if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
        raise ValueError(f"it is longer than {LONGEST_LINE >> 20} MiB")
    return json.loads(line, parse_constant=_no_number, parse_float=_number, parse_int=_whole)


def _ask(values: Any) -> Ask:
    """The question of a line. A field that nobody reads would answer another question than was meant."""
    unknown = set(values) - set(Ask.__struct_fields__) if isinstance(values, dict) else ()
    for name in sorted(unknown):
        raise Unaskable(f"unknown field {name}: {meant(name, Ask.__struct_fields__)}")
    return msgspec.convert(values, Ask)


def _asked(ask: Ask) -> tuple[Origin, str] | Verdict:
    if ask.url is not None:
        if ask.origin is not None or ask.target is not None:
            raise Unaskable("url is given together with origin or target: give one or the other")
        return _read(ask.url)
    if ask.origin is None or ask.target is None:
        raise Unaskable("neither url nor origin and target are given")
    if any(char > "\xff" for char in ask.target):
        raise Unaskable("target holds a character above U+00FF: it is octets, one Latin-1 character each")
    read = _read(ask.origin)
    return read if isinstance(read, Verdict) else (read[0], ask.target)


def _body(robots_txt: str) -> bytes:
    """The bytes of a robots.txt; a lone surrogate of PEP 383 becomes the byte it stands for. Raises Unaskable."""
    try:
        return robots_txt.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise Unaskable("robots_txt holds a lone surrogate, which stands for no byte and no character") from None


def _read(url: str) -> tuple[Origin, str] | Verdict:
    sentence = objection(url)
    if sentence is not None:
        raise Unaskable(sentence)
    return read_url(url)


def _named(ask: Ask, default: str | None) -> str:
    named = ask.user_agent if ask.user_agent is not None else default
    if named is None:
        raise Unaskable("user_agent is not given, and no --agent")
    return named


def product_token(user_agent: str, terms: Terms) -> str:
    """The name a crawler goes by, of its User-Agent header or its bare name.

    What stands before the first "/"; where names are product tokens (RFC 9309 section 2.2.1), cut at the first
    character that can be in none.
    """
    name = user_agent.partition("/")[0].strip()
    spaced = not all(part.product_tokens for part in (terms.dialect, *terms.dialect.parts))
    return name if spaced else _FOREIGN.split(name, maxsplit=1)[0]


def _said(ask: Ask, verdict: Verdict, terms: Terms) -> Answered:
    rule = verdict.rule
    return {
        "id": ask.id,
        "action": verdict.action,
        "reason": verdict.reason,
        "rule": {"line": rule.line, "text": rule.text, "group": rule.group} if rule else None,
        "dialect": terms.dialect.name,
        "pace": verdict.pace.by if verdict.pace else None,
        "delay": verdict.pace.seconds if verdict.pace else None,
    }


def _unread(values: Any, error: str) -> Answered:
    return {"id": values.get("id") if isinstance(values, dict) else None, "error": error}


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _number(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):  # which could not be written back
        raise ValueError(f"{digits[:20]} is too large a number")
    return number


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits is too large")
    return int(digits)
