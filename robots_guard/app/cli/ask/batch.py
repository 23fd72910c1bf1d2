"""`robots-guard check --batch`: reads one question per line and writes one answer per line, in the same order.

    {"robots_txt": "User-agent: *\\nDisallow: /x", "user_agent": "mybot/1.0", "url": "https://a.test/x", "id": 7}
    {"id": 7, "action": "drop", "reason": "disallowed", "rule": {"line": 2, "text": "Disallow: /x", "group": "*"}, ...}

Invariant: only a window of the file is in memory, however long the file is, and the answer to an invalid line is an
error, in its place. The answers to lines that have arrived together are written together, and no answer waits for a
later line, so that another program can use this command interactively.

Without `robots_txt` the policy comes from the store or the network. Nothing is recorded in the audit log, because no
request is let through. A line with the key `input` is a page question (`page_question`).
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
from collections.abc import Awaitable, Iterator
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, BinaryIO, NamedTuple, NoReturn

import msgspec

from robots_guard.app.cli.ask.answers import Judge, policy_of_text
from robots_guard.app.cli.ask.guard_answers import guard_of
from robots_guard.app.cli.ask.page_question import (
    PageQuestion,
    answer_page_question,
    is_page_question,
    read_page_question,
)
from robots_guard.app.cli.options import chosen, settings_from
from robots_guard.app.cli.terminal import write_line
from robots_guard.configuration.settings import CLOCKS, Settings
from robots_guard.decisions.check import read_url
from robots_guard.decisions.policy import Policy
from robots_guard.decisions.verdict import Question, Terms, Verdict
from robots_guard.errors import RobotsGuardError
from robots_guard.guard.guard import Guard
from robots_guard.origin import Origin, objection
from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.paths import matching
from robots_guard.protocol.robots import NAME, can_compare
from robots_guard.text import did_you_mean

WINDOW = 64  # questions in progress at once
CHUNK = 64 * 1024  # bytes that are read at once
CHUNKS = 2  # chunks of lines that wait to be answered
#: Bytes: several times 500 KiB of robots.txt with every byte as a JSON escape.
LONGEST_LINE = 16 * 1024 * 1024
MOST_DIGITS = 1_000  # of an integer; Python refuses more than 4,300
ASKERS = 64  # judges cached, one per dialect, matching profile and crawler
POLICIES = 16  # cached, one per origin and robots.txt
CACHED_TEXT = 64 * 1024  # characters of a robots.txt whose policy is cached
UNREADABLE = 2  # the exit status if a line could not be answered

_TOKEN = re.compile(NAME)


class BatchQuestion(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
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


class Asker(NamedTuple):
    """A crawler, and what judges its questions."""

    judge: Judge
    terms: Terms
    agent: str


#: What is written, in the order of the questions: lines that are ready, a line that is awaited, or None at the end.
Window = asyncio.Queue[str | asyncio.Future[str] | None]
#: What has been read: lines, and at the end the error that stopped the reading, or None.
Chunks = asyncio.Queue[list[bytes] | OSError | None]


class _Batch:
    """One run of `check --batch`."""

    def __init__(self, settings: Settings, agent: str | None) -> None:
        self._settings = settings
        self._agent = agent
        self._guards = contextlib.ExitStack()
        self._guard: Guard | None = None
        self._askers: dict[tuple[str | None, str | None, str | None], Asker] = {}
        self._cached: dict[tuple[Origin, str], Policy] = {}
        self._has_errors = False
        self._read_error: OSError | None = None

    async def run(self, source: BinaryIO) -> int:
        """Read, answer and write until the file ends; return the exit status. Raises OSError if reading fails."""
        window: Window = asyncio.Queue(WINDOW)
        with self._guards:
            await asyncio.gather(self._read(source, window), self._write(window))
        if self._read_error is not None:
            raise self._read_error
        if self._has_errors:
            return UNREADABLE
        return 0

    async def _read(self, source: BinaryIO, window: Window) -> None:
        chunks: Chunks = asyncio.Queue()
        room = threading.Semaphore(CHUNKS)
        loop = asyncio.get_running_loop()
        # A daemon thread: one that waits for a slow pipe must not delay the end of the program.
        threading.Thread(
            target=_feed, args=(source, chunks, room, loop), name="batch", daemon=True
        ).start()
        while isinstance(chunk := await chunks.get(), list):
            await self._answer_chunk(chunk, window)
            room.release()
        self._read_error = chunk
        await window.put(None)

    async def _answer_chunk(self, lines: list[bytes], window: Window) -> None:
        """Queue the answers in the order of the lines; join those that are ready."""
        ready: list[str] = []
        for line in lines:
            answer = self._answer(line)
            if isinstance(answer, str):
                ready.append(answer)
                continue
            if ready:
                await window.put("\n".join(ready))
                ready = []
            await window.put(asyncio.ensure_future(answer))
        if ready:
            await window.put("\n".join(ready))

    async def _write(self, window: Window) -> None:
        while (part := await window.get()) is not None:
            text = part if isinstance(part, str) else await part
            write_line(text, flush=window.empty())

    def _answer(self, line: bytes) -> str | Awaitable[str]:
        """Return the answer to one line: an error if the line is not a valid question. Without a robots.txt, the answer
        must be awaited, because it needs the store or the network."""
        values: Any = None
        ask = _decode_fast(line)
        try:
            if ask is None:
                values = _parse_json(line)
                if is_page_question(values):
                    return json.dumps(self._answer_page(read_page_question(values)))
                ask = _question(values)
            asker = self._asker(ask)
            read = _origin_and_target(ask, escapes=asker.terms.dialect.escapes_urls)
            if isinstance(read, Verdict):
                return _encode_answer(ask.id, read, asker.terms)
            question = Question(origin=read[0], target=read[1], agent=asker.agent)
            if ask.robots_txt is None:
                return self._answer_by_guard(ask.id, question, asker)
            now = CLOCKS.now()
            policy = self._policy(question.origin, ask.robots_txt, now)
            verdict = asker.judge.judge_offline(policy, question, now, at_any_time=True)
            return _encode_answer(ask.id, verdict, asker.terms)
        except (ValueError, RecursionError, RobotsGuardError) as error:
            return self._error(_id_of(values) if ask is None else ask.id, error)

    async def _answer_by_guard(self, name: Any, question: Question, asker: Asker) -> str:
        try:
            policy = await self._opened_guard().policy(question.origin)
            verdict = asker.judge.judge_offline(policy, question, CLOCKS.now())
            return _encode_answer(name, verdict, asker.terms)
        except (ValueError, RecursionError, RobotsGuardError) as error:
            return self._error(name, error)

    def _error(self, name: Any, error: Exception) -> str:
        self._has_errors = True
        if isinstance(error, ValueError):
            sentence = f"the line cannot be read: {error}"
        elif isinstance(error, RecursionError):
            sentence = "the line cannot be read: it is nested too deeply"
        else:
            sentence = str(error)
        return json.dumps({"id": name, "error": sentence})

    def _answer_page(self, ask: PageQuestion) -> dict[str, Any]:
        terms = self._settings.terms()
        name = _named_agent(ask.agent, self._agent, field="agent")
        return answer_page_question(
            ask,
            terms,
            CLOCKS.now(),
            agent=name.partition("/")[0].strip(),
            token=product_token(name, terms),
        )

    def _asker(self, ask: BatchQuestion) -> Asker:
        """Return the crawler of a question, with what judges it. Raises InvalidQuestion."""
        key = (ask.dialect, ask.matching, ask.user_agent)
        found = self._askers.get(key)
        if found is None:
            terms = msgspec.structs.replace(
                self._settings.terms(),
                dialect=dialect(ask.dialect or self._settings.dialect),
                matching=matching(ask.matching or self._settings.matching),
            )
            name = _named_agent(ask.user_agent, self._agent, field="user_agent")
            if len(self._askers) >= ASKERS:
                self._askers.clear()
            found = self._askers[key] = Asker(Judge(terms), terms, product_token(name, terms))
        return found

    def _policy(self, origin: Origin, robots_txt: str, now: float) -> Policy:
        """Return the policy of an origin with this robots.txt. Raises InvalidQuestion.

        A verdict of a batch does not depend on when the document was fetched, so the policy of an earlier line with the
        same text can be used again.
        """
        if len(robots_txt) > CACHED_TEXT:
            return policy_of_text(origin, _body(robots_txt), now)
        key = (origin, robots_txt)
        policy = self._cached.get(key)
        if policy is None:
            policy = policy_of_text(origin, _body(robots_txt), now)
            if len(self._cached) >= POLICIES:
                self._cached.clear()
            self._cached[key] = policy
        return policy

    def _opened_guard(self) -> Guard:
        """Return the guard. It is opened for the first line that needs it: a batch whose lines all contain a robots.txt
        uses no store."""
        if self._guard is None:
            self._guard = self._guards.enter_context(guard_of(self._settings))
        return self._guard


def _feed(
    source: BinaryIO, chunks: Chunks, room: threading.Semaphore, loop: asyncio.AbstractEventLoop
) -> None:
    """Queue the lines of a file that may block, never more than there is room for; at the end, queue the error that
    stopped the reading, or None."""
    end: OSError | None = None
    with source, contextlib.suppress(RuntimeError):  # the loop was closed: the program is ending
        try:
            for lines in _chunks(source):
                room.acquire()
                loop.call_soon_threadsafe(chunks.put_nowait, lines)
        except OSError as error:
            end = error
        loop.call_soon_threadsafe(chunks.put_nowait, end)


def _chunks(source: BinaryIO) -> Iterator[list[bytes]]:
    """Yield the lines that have arrived together, without those that are blank; of an overlong line, only the
    beginning."""
    begun: list[bytes] = []  # the parts of a line whose end has not arrived
    size = 0
    while data := source.read1(CHUNK):  # type: ignore[attr-defined]  # every buffered file has it
        whole, newline, rest = data.rpartition(b"\n")
        if newline:
            yield _lines(b"".join((*begun, whole, newline)))
            begun, size = [], 0
        if size < LONGEST_LINE:
            begun.append(rest)
            size += len(rest)
    yield _lines(b"".join(begun))


def _lines(text: bytes) -> list[bytes]:
    """Return the lines that are not blank, each with its end."""
    *ended, last = text.split(b"\n")
    lines = [line + b"\n" for line in ended if line.strip()]
    if last.strip():
        lines.append(last)
    return lines


_FAST_DECODER = msgspec.json.Decoder(BatchQuestion)
_FAST_INTEGERS = 2**63  # msgspec decodes the integers below this exactly


def _decode_fast(line: bytes) -> BatchQuestion | None:
    """Return the question of a line, or None for a line that `_parse_json` and `_question` must read, which takes
    longer.

    Invariant: if this returns a question, these two return the same. msgspec refuses lone surrogates, numbers that are
    too large, other encodings and unknown fields; an `id` that is neither text nor an integer of 64 bits is left to
    these two.
    """
    if len(line) >= LONGEST_LINE:
        return None
    try:
        ask = _FAST_DECODER.decode(line)
    except (ValueError, RecursionError):
        return None
    kind = type(ask.id)
    if ask.id is None or kind is str or (kind is int and abs(ask.id) < _FAST_INTEGERS):
        return ask
    return None


def _parse_json(line: bytes) -> Any:
    """Parse a line. Raises ValueError, and RecursionError if it is nested too deeply."""
    if len(line.removesuffix(b"\n")) >= LONGEST_LINE:
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


def _origin_and_target(ask: BatchQuestion, *, escapes: bool) -> tuple[Origin, str] | Verdict:
    if ask.url is not None:
        if ask.origin is not None or ask.target is not None:
            raise InvalidQuestion(
                "url is given together with origin or target: give one or the other"
            )
        return _read(ask.url, escapes=escapes)
    if ask.origin is None or ask.target is None:
        raise InvalidQuestion("neither url nor origin and target are given: give one or the other")
    if any(char > "\xff" for char in ask.target):
        raise InvalidQuestion(
            "target contains a character above U+00FF: give its bytes, one Latin-1 character each"
        )
    read = _read(ask.origin, escapes=escapes)
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


def _read(url: str, *, escapes: bool) -> tuple[Origin, str] | Verdict:
    sentence = objection(url)
    if sentence is not None:
        raise InvalidQuestion(sentence)
    return read_url(url, escapes=escapes)


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
    that a token cannot contain; otherwise it may contain spaces. Raises InvalidQuestion for a name
    that the dialect cannot tell from others: to judge it as a crawler without a group of its own
    would let pass what the site forbids it.
    """
    name = user_agent.partition("/")[0].strip()
    parts = terms.dialect.parts or (terms.dialect,)
    found = _TOKEN.match(name)
    if name in ("", "*") or not any(part.product_tokens for part in parts):
        return name  # like the star, an empty name stands for a crawler without a group of its own
    if found is None or not can_compare(found[0], terms.dialect):
        raise InvalidQuestion(
            f"dialect {terms.dialect.name} cannot compare the name of {user_agent[:80]!r}: give the crawler's"
            f" product token, {'of letters, - and _ only' if found else 'such as mybot'}"
        )
    return found[0] if all(part.product_tokens for part in parts) else name


def _encode_answer(name: Any, verdict: Verdict, terms: Terms) -> str:
    """Return an answer in JSON, as json.dumps writes it. That would take several times as long."""
    rule, delay = verdict.rule, verdict.delay
    shown_rule = source = seconds = "null"
    if rule is not None:
        text, group = quoted(rule.text), quoted(rule.group)
        shown_rule = f'{{"line": {rule.line}, "text": {text}, "group": {group}}}'
    if delay is not None:
        source, seconds = quoted(delay.by), json.dumps(delay.seconds)
    shown_name = quoted(name) if type(name) is str else json.dumps(name)
    return (
        f'{{"id": {shown_name},'
        f' "action": "{verdict.action}", "reason": "{verdict.reason}", "rule": {shown_rule},'
        f' "dialect": {quoted(terms.dialect.name)}, "delay_source": {source}, "delay": {seconds}}}'
    )


def _id_of(values: Any) -> Any:
    return values.get("id") if isinstance(values, dict) else None


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
