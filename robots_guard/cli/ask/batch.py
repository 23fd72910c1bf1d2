"""`robots-guard check --batch`: reads one question per line and writes one answer per line, in the same order.

    {"robots_txt": "User-agent: *\\nDisallow: /x", "user_agent": "mybot/1.0", "url": "https://a.test/x", "id": 7}
    {"id": 7, "action": "drop", "reason": "disallowed", "rule": {"line": 2, "text": "Disallow: /x", "group": "*"}, ...}

Invariant: only a window of the file is in memory, however long the file is, and an invalid line gets an error as its
answer, in its place. An answer is written as soon as the ones before it are, so that another program can use this
command interactively. Without `robots_txt` the policy comes from the store or the network. Nothing is recorded in
the audit log, because no request is let through. A line with the key `input` is a page question
(`page_question`).
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

from robots_guard.cli.ask.answers import Judge, policy_of_text
from robots_guard.cli.ask.guard_answers import guard_of
from robots_guard.cli.ask.page_question import (
    PageQuestion,
    answer_page_question,
    is_page_question,
    read_page_question,
)
from robots_guard.cli.options import chosen, settings_from
from robots_guard.cli.terminal import write_line
from robots_guard.core.check import read_url
from robots_guard.core.verdict import Question, Terms, Verdict
from robots_guard.errors import RobotsGuardError
from robots_guard.guard.guard import Guard
from robots_guard.origin import Origin, objection
from robots_guard.rep.dialect import dialect
from robots_guard.rep.paths import matching
from robots_guard.settings import CLOCKS, Settings
from robots_guard.text import did_you_mean

WINDOW = 64  # questions in progress at once
#: Bytes: several times 500 KiB of robots.txt with every byte as a JSON escape.
LONGEST_LINE = 16 * 1024 * 1024
MOST_DIGITS = 1_000  # of an integer; Python refuses more than 4,300
JUDGES = 64  # cached, one per dialect and matching profile
UNREADABLE = 2  # the exit status if a line could not be answered

BatchAnswer = dict[str, Any]  # an output line

_NON_TOKEN = re.compile(r"[^A-Za-z_-]")


class BatchQuestion(msgspec.Struct, kw_only=True):
    """An input line. `url` is text (an IRI); `target` is the bytes on the wire, one Latin-1 character each."""

    id: Any = None
    robots_txt: str | None = None
    user_agent: str | None = None
    url: str | None = None
    origin: str | None = None
    target: str | None = None
    dialect: str | None = None
    matching: str | None = None


class InvalidQuestion(RobotsGuardError):
    """A line is JSON, but not a question that can be answered."""


def answer_batch(source: BinaryIO, values: dict[str, Any]) -> int:
    """Answer all lines, and return the exit status."""
    # Without --agent each line must name one; robots.txt is then fetched under robots_guard's name.
    settings = settings_from(values, agent="robots_guard")
    return asyncio.run(_Batch(settings, chosen("agent", values.get("agent"))).run(_reopen(source)))


def _reopen(source: BinaryIO) -> BinaryIO:
    """Return the same file with a separate buffer: the reading thread may still hold its lock when the program ends."""
    try:
        return os.fdopen(os.dup(source.fileno()), "rb")
    except (OSError, io.UnsupportedOperation):
        return source


class _Batch:
    """One run of `check --batch`."""

    def __init__(self, settings: Settings, agent: str | None) -> None:
        self._settings = settings
        self._agent = agent
        self._guards = contextlib.ExitStack()
        self._guard: Guard | None = None
        self._judges: dict[tuple[str, str], Judge] = {}
        self._has_errors = False
        self._read_error: OSError | None = None

    async def run(self, source: BinaryIO) -> int:
        """Read, answer and write until the file ends; return the exit status. Raises OSError if reading fails."""
        window: asyncio.Queue[asyncio.Future[BatchAnswer] | None] = asyncio.Queue(WINDOW)
        with self._guards:
            await asyncio.gather(self._read(source, window), self._write(window))
        if self._read_error is not None:
            raise self._read_error
        if self._has_errors:
            return UNREADABLE
        return 0

    async def _read(
        self, source: BinaryIO, window: asyncio.Queue[asyncio.Future[BatchAnswer] | None]
    ) -> None:
        lines: asyncio.Queue[bytes | OSError | None] = asyncio.Queue()
        room = threading.Semaphore(WINDOW)
        loop = asyncio.get_running_loop()
        # A daemon thread: one that waits for a slow pipe must not delay the end of the program.
        threading.Thread(
            target=_feed, args=(source, lines, room, loop), name="batch", daemon=True
        ).start()
        while isinstance(line := await lines.get(), bytes):
            await window.put(asyncio.ensure_future(self._answer(line)))
            room.release()
        self._read_error = line
        await window.put(None)

    async def _write(self, window: asyncio.Queue[asyncio.Future[BatchAnswer] | None]) -> None:
        while (pending := await window.get()) is not None:
            answer = await pending
            self._has_errors |= "error" in answer
            write_line(json.dumps(answer), flush=window.empty())

    async def _answer(self, line: bytes) -> BatchAnswer:
        """Return the answer to one line, or an error for a line that is not a valid question."""
        values: Any = None
        try:
            values = _parse_json(line)
            if is_page_question(values):
                return self._answer_page(read_page_question(values))
            ask = _question(values)
            return _answer(ask, *await self._verdict(ask))
        except ValueError as error:
            return _error_answer(values, f"the line cannot be read: {error}")
        except RecursionError:
            return _error_answer(values, "the line cannot be read: it is nested too deeply")
        except RobotsGuardError as error:
            return _error_answer(values, str(error))

    def _answer_page(self, ask: PageQuestion) -> BatchAnswer:
        terms = self._settings.terms()
        name = _named_agent(ask.agent, self._agent, field="agent")
        return answer_page_question(
            ask,
            terms,
            CLOCKS.now(),
            agent=name.partition("/")[0].strip(),
            token=product_token(name, terms),
        )

    async def _verdict(self, ask: BatchQuestion) -> tuple[Verdict, Terms]:
        judge = self._judge(ask)
        name = _named_agent(ask.user_agent, self._agent, field="user_agent")
        agent = product_token(name, judge.terms)
        read = _origin_and_target(ask)
        if isinstance(read, Verdict):
            return read, judge.terms
        origin, target = read
        question = Question(origin=origin, target=target, agent=agent)
        if ask.robots_txt is not None:
            now = CLOCKS.now()
            policy = policy_of_text(question.origin, _body(ask.robots_txt), now)
            return judge.judge_offline(policy, question, now, at_any_time=True), judge.terms
        policy = await self._policies().policy(question.origin)
        return judge.judge_offline(policy, question, CLOCKS.now()), judge.terms

    def _judge(self, ask: BatchQuestion) -> Judge:
        key = (ask.dialect or self._settings.dialect, ask.matching or self._settings.matching)
        judge = self._judges.get(key)
        if judge is None:
            terms = msgspec.structs.replace(
                self._settings.terms(), dialect=dialect(key[0]), matching=matching(key[1])
            )
            if len(self._judges) >= JUDGES:
                self._judges.clear()
            judge = self._judges[key] = Judge(terms)
        return judge

    def _policies(self) -> Guard:
        """Return the guard. The first line that needs it opens it: a batch of texts uses no store."""
        if self._guard is None:
            self._guard = self._guards.enter_context(guard_of(self._settings))
        return self._guard


def _feed(
    source: BinaryIO,
    lines: asyncio.Queue[bytes | OSError | None],
    room: threading.Semaphore,
    loop: asyncio.AbstractEventLoop,
) -> None:
    """Queue the lines of a file that may block, never more than there is room for; at the end, queue the error that
    stopped the reading, or None."""
    end: OSError | None = None
    with source, contextlib.suppress(RuntimeError):  # the loop was closed: the program is ending
        try:
            for line in _lines(source):
                room.acquire()
                loop.call_soon_threadsafe(lines.put_nowait, line)
        except OSError as error:
            end = error
        loop.call_soon_threadsafe(lines.put_nowait, end)


def _lines(source: BinaryIO) -> Iterator[bytes]:
    """Yield the lines that are not blank; of an overlong line, only the beginning."""
    while line := source.readline(LONGEST_LINE):
        whole = line
        while len(whole) == LONGEST_LINE and not whole.endswith(b"\n"):
            whole = source.readline(LONGEST_LINE)
        if line.strip():
            yield line


def _parse_json(line: bytes) -> Any:
    """Parse a line. Raises RecursionError, and ValueError with our own text where the decoder's is no help."""
    if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
        raise ValueError(f"it is longer than {LONGEST_LINE >> 20} MiB")
    return json.loads(
        line, parse_constant=_refuse_constant, parse_float=_parse_float, parse_int=_parse_int
    )


def _question(values: Any) -> BatchQuestion:
    """Return the question of a line. An unknown field is an error: ignoring a typo would answer another question."""
    unknown = set(values) - set(BatchQuestion.__struct_fields__) if isinstance(values, dict) else ()
    for name in sorted(unknown):
        raise InvalidQuestion(
            f"unknown field {name}: {did_you_mean(name, BatchQuestion.__struct_fields__)}"
        )
    return msgspec.convert(values, BatchQuestion)


def _origin_and_target(ask: BatchQuestion) -> tuple[Origin, str] | Verdict:
    if ask.url is not None:
        if ask.origin is not None or ask.target is not None:
            raise InvalidQuestion(
                "url is given together with origin or target: give one or the other"
            )
        return _read(ask.url)
    if ask.origin is None or ask.target is None:
        raise InvalidQuestion("neither url nor origin and target are given: give one or the other")
    if any(char > "\xff" for char in ask.target):
        raise InvalidQuestion(
            "target contains a character above U+00FF: give its bytes, one Latin-1 character each"
        )
    read = _read(ask.origin)
    if isinstance(read, Verdict):
        return read
    return (read[0], ask.target)


def _body(robots_txt: str) -> bytes:
    """Return the bytes of a robots.txt; a lone surrogate of PEP 383 becomes its byte. Raises InvalidQuestion."""
    try:
        return robots_txt.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise InvalidQuestion(
            "robots_txt contains a lone surrogate, which is neither a character nor an escaped byte: remove it"
        ) from None


def _read(url: str) -> tuple[Origin, str] | Verdict:
    sentence = objection(url)
    if sentence is not None:
        raise InvalidQuestion(sentence)
    return read_url(url)


def _named_agent(given: str | None, default: str | None, *, field: str) -> str:
    """Return the crawler of a line, or of the command. Raises InvalidQuestion."""
    if given is not None:
        return given
    if default is None:
        raise InvalidQuestion(
            f"no agent is given: add {field} to the line, or --agent to the command"
        )
    return default


def product_token(user_agent: str, terms: Terms) -> str:
    """Return the name by which a crawler is judged, given its User-Agent header or its bare name.

    The name is the part before the first "/". If the dialect, and every dialect that it consists
    of, compares product tokens (RFC 9309 section 2.2.1), the name ends before the first character
    that a token cannot contain; otherwise it may contain spaces and digits.
    """
    name = user_agent.partition("/")[0].strip()
    if all(part.product_tokens for part in (terms.dialect, *terms.dialect.parts)):
        return _NON_TOKEN.split(name, maxsplit=1)[0]
    return name


def _answer(ask: BatchQuestion, verdict: Verdict, terms: Terms) -> BatchAnswer:
    rule = verdict.rule
    return {
        "id": ask.id,
        "action": verdict.action,
        "reason": verdict.reason,
        "rule": {"line": rule.line, "text": rule.text, "group": rule.group} if rule else None,
        "dialect": terms.dialect.name,
        "delay_source": verdict.delay.by if verdict.delay else None,
        "delay": verdict.delay.seconds if verdict.delay else None,
    }


def _error_answer(values: Any, error: str) -> BatchAnswer:
    return {"id": values.get("id") if isinstance(values, dict) else None, "error": error}


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _parse_float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):  # JSON cannot express infinity in the answer
        raise ValueError(f"{digits[:20]} is too large a number")
    return number


def _parse_int(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits is too large")
    return int(digits)
