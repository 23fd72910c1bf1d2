"""`robots-guard check`: says whether URLs may be requested."""

from __future__ import annotations

import sys
from typing import Any, BinaryIO

import click

from robots_guard.app.cli.ask.answers import (
    LARGEST,
    STATUS,
    Answer,
    Judge,
    absolute,
    record_of_answer,
)
from robots_guard.app.cli.group import SectionedCommand
from robots_guard.app.cli.options import settings_from, settings_options
from robots_guard.app.cli.terminal import Rows, TableColumn, write_line
from robots_guard.audit.record import shown_url
from robots_guard.configuration.settings import CLOCKS, Settings
from robots_guard.decisions.verdict import Action, Verdict

COLUMNS = (
    TableColumn("action", kind="action"),
    "reason",
    TableColumn("url", folds=True),
    TableColumn("rule", folds=True),
    "line",
    TableColumn("detail", folds=True),
)


@click.command(cls=SectionedCommand)
@click.argument("urls", nargs=-1, metavar="URL...")
@click.option(
    "--robots",
    type=click.File("rb"),
    metavar="FILE",
    help="Judge by this robots.txt and fetch nothing.",
)
@click.option(
    "--batch",
    type=click.File("rb"),
    metavar="FILE|-",
    help="Answer a file of questions (JSON Lines).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per URL.")
@settings_options
def check(
    urls: tuple[str, ...],
    robots: BinaryIO | None,
    batch: BinaryIO | None,
    as_json: bool,
    **values: Any,
) -> int:
    """Check whether URLs may be requested.

    Exit status: 0 all may be requested, 1 at least one may not, 3 none is refused but at least one is deferred,
    2 the arguments are wrong.
    """
    if batch is not None:
        if urls or robots:
            raise click.UsageError(
                "--batch takes URLs and robots.txt from its file: leave out URL and --robots"
            )
        from robots_guard.app.cli.ask.batch import answer_batch

        return answer_batch(batch, values)
    absolute(urls)
    settings = settings_from(values)
    if robots is not None:
        return _check_by_file(robots.read(LARGEST), urls, settings, as_json=as_json)
    from robots_guard.app.cli.ask.guard_answers import answer_each

    report = Report(as_json=as_json)
    answer_each(urls, settings, report.add)
    return report.end()


def _check_by_file(body: bytes, urls: tuple[str, ...], settings: Settings, *, as_json: bool) -> int:
    report = Report(as_json=as_json)
    judge = Judge(settings.terms())
    for url in urls:
        report.add(judge.by_text(body, url, settings.agent, CLOCKS.now()))
    return report.end()


class Report:
    """Prints answers and works out their exit status: that of a drop, else of a deferral, else of a pass."""

    def __init__(self, *, as_json: bool) -> None:
        self._json = as_json
        self._rows = Rows(*COLUMNS, headings=sys.stdout.isatty())
        self._actions: set[Action] = set()

    def add(self, answer: Answer) -> None:
        """Print one answer, or keep it for the table that `end` prints."""
        verdict = answer.verdict
        self._actions.add(verdict.action)
        if self._json:
            write_line(record_of_answer(answer).line_of_json().decode().rstrip("\n"))
            return
        rule = (verdict.rule.text, str(verdict.rule.line)) if verdict.rule else ("", "")
        self._rows.add(
            (verdict.action, verdict.reason, shown_url(answer.url), *rule, _detail(verdict))
        )

    def end(self) -> int:
        """Print the table, if there is one, and return the exit status."""
        self._rows.end()
        worst = next(
            (each for each in (Action.DROP, Action.DEFER) if each in self._actions), Action.PASS
        )
        return STATUS[worst]


def _detail(verdict: Verdict) -> str:
    required = f"{verdict.delay.by} {verdict.delay.seconds:g} s" if verdict.delay else None
    stale = "by the last good copy" if verdict.stale else None
    parts = (required, verdict.relaxed, stale, verdict.detail)
    return "; ".join(part for part in parts if part)
