"""`robots-guard check`: may these URLs be requested? Exit status 0: all may; 1: one is dropped; 3: one is deferred."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import click

from robots_guard.audit.record import shown_url
from robots_guard.cli.asking import DOOR, LARGEST, Answer, Judge, ask_guard, record_of_answer
from robots_guard.cli.options import settings_from, settings_options
from robots_guard.cli.terminal import Rows, write_line
from robots_guard.core.verdict import Action, Verdict
from robots_guard.guard import Guard
from robots_guard.origin import objection
from robots_guard.runtime import AsyncioRuntime
from robots_guard.settings import CLOCKS, Settings, direct_fetcher, open_guard

AT_ONCE = 32  # URLs asked about at the same time

STATUS = {Action.PASS: 0, Action.DROP: 1, Action.DEFER: 3}


@click.command()
@click.argument("urls", nargs=-1, metavar="URL...")
@click.option("--robots", type=click.File("rb"), metavar="FILE", help="Judge by this robots.txt; nothing is fetched.")
@click.option("--batch", type=click.File("rb"), metavar="FILE|-", help="Answer a file of questions (JSON Lines).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a URL.")
@settings_options
def check(urls: tuple[str, ...], robots: BinaryIO | None, batch: BinaryIO | None, as_json: bool, **values: Any) -> int:
    """Ask whether URLs may be requested.

    Exit status: 0 all may, 1 at least one may not, 3 none is refused but at least one only later, 2 the question
    could not be put.
    """
    if batch is not None:
        if urls or robots:
            raise click.UsageError("--batch brings its own URLs and robots.txt: give it alone")
        from robots_guard.cli.batch import answer_batch

        return answer_batch(batch, values)
    absolute(urls)
    settings = settings_from(values)
    if robots is not None:
        return _by_file(robots.read(LARGEST), urls, settings, as_json=as_json)
    return asyncio.run(_check(urls, settings, as_json=as_json))


def absolute(urls: Iterable[str]) -> None:
    """Raises UsageError for what is no absolute URL, and for none at all."""
    if not urls:
        raise click.UsageError("no URL is given: name at least one, such as https://example.com/page")
    for url in urls:
        sentence = objection(url)
        if sentence is not None:
            raise click.UsageError(sentence)


@contextmanager
def guard_of(settings: Settings) -> Iterator[Guard]:
    """The guard of the command line, closed in the end."""
    fetcher = direct_fetcher(settings, trusts_asked=True)
    guard = open_guard(settings, door=DOOR, runtime=AsyncioRuntime(), fetcher=fetcher)
    try:
        yield guard
    finally:
        guard.close()


async def _check(urls: tuple[str, ...], settings: Settings, *, as_json: bool) -> int:
    report = Report(as_json=as_json)
    with guard_of(settings) as guard:
        async for answer in _answers(guard, urls, settings.agent):
            report.add(answer)
    return report.end()


async def _answers(guard: Guard, urls: tuple[str, ...], agent: str) -> AsyncIterator[Answer]:
    """Answers in the order of the URLs, a bounded number under way."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def ask(url: str) -> Answer:
        async with turn:
            return await ask_guard(guard, url, agent)

    tasks = [asyncio.ensure_future(ask(url)) for url in urls]
    for task in tasks:
        yield await task


def _by_file(body: bytes, urls: tuple[str, ...], settings: Settings, *, as_json: bool) -> int:
    report = Report(as_json=as_json)
    judge = Judge(settings.terms())
    for url in urls:
        report.add(judge.by_text(body, url, settings.agent, CLOCKS.now()))
    return report.end()


class Report:
    """Prints answers and keeps the exit status they come to: drop before defer before pass."""

    def __init__(self, *, as_json: bool) -> None:
        self._json = as_json
        self._rows = Rows("verdict", "reason", "url", "rule", "line", "detail")
        self._actions: set[Action] = set()

    def add(self, answer: Answer) -> None:
        """Print one."""
        verdict = answer.verdict
        self._actions.add(verdict.action)
        if self._json:
            write_line(record_of_answer(answer).line_of_json().decode().rstrip("\n"))
            return
        rule = (verdict.rule.text, str(verdict.rule.line)) if verdict.rule else ("", "")
        self._rows.add((verdict.action, verdict.reason, shown_url(answer.url), *rule, _detail(verdict)))

    def end(self) -> int:
        """Print what was held back; the exit status."""
        self._rows.end()
        worst = next((each for each in (Action.DROP, Action.DEFER) if each in self._actions), Action.PASS)
        return STATUS[worst]


def _detail(verdict: Verdict) -> str:
    pace = f"{verdict.pace.by} {verdict.pace.seconds:g} s" if verdict.pace else None
    parts = (pace, verdict.relaxed, "by the last good copy" if verdict.stale else None, verdict.detail)
    return "; ".join(part for part in parts if part)
