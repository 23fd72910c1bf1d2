"""Every command of the documentation runs, and prints what its page says.

A page is executed from top to bottom (`page.py`), in a world of its own (`world.py`).
"""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

import pytest
from support.programs import lacking, program

from docs.exceptions import NOT_RUN, PREPARED, REPLACED, executable
from docs.page import Command, File, Step, commands, difference, steps
from docs.world import why_not, world
from robots_guard.configuration.files import read_files
from robots_guard.configuration.mistakes import valid_parts

ROOT = Path(__file__).parents[2]
PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    ]
    if commands(path)
]
#: The configuration files that pages tell the reader to write.
CONFIGURATIONS = [
    (page, step)
    for page in PAGES
    for step in steps(ROOT / page)
    if isinstance(step, File) and Path(step.name).name == "robots_guard.toml"
]
#: Pages of these folders have one proxy and one audit log.
SHARED = ("docs/start",)
#: Programs that are not Python's, as `tests/support/programs.py` knows them.
OF_DEBIAN = {"chromium", "curl", "go", "java", "node", "redis-server", "squid", "wget"}
#: Statuses of `robots-guard` that are answers: pass, drop, defer.
ANSWERS = (0, 1, 3)


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    if reason := why_not():
        lacking(f"no namespaces: {reason}")
    with world(tmp_path_factory.mktemp("docs")) as opened:
        yield opened


@pytest.mark.parametrize("page", PAGES)
def test_commands_print_what_the_page_says(page, reader):
    wanted = executable(page, steps(ROOT / page))
    if not any(isinstance(step, Command) for step in wanted):
        return  # `exceptions.py` names them all
    _find_programs(wanted)
    sent = [asdict(step) for step in wanted]
    folder = page.rpartition("/")[0]

    results = reader.follow(page, sent, folder if folder in SHARED else page)

    done = zip(wanted, results, strict=True)
    faults = [fault for step, result in done if (fault := fault_of(page, step, result))]
    assert not faults, "\n\n".join(faults)


@pytest.mark.parametrize("exception", [*NOT_RUN, *REPLACED], ids=lambda each: each.command)
def test_an_exception_names_a_command_of_a_page(exception):
    pages = [page for page in PAGES if re.fullmatch(exception.page, page)]
    texts = [command.text for page in pages for command in commands(ROOT / page)]

    assert any(re.search(exception.command, text) for text in texts)


@pytest.mark.parametrize("page", PREPARED)
def test_a_prepared_page_has_commands(page):
    assert page in PAGES


@pytest.mark.parametrize(("page", "file"), CONFIGURATIONS, ids=lambda each: str(each)[:40])
def test_a_configuration_of_a_page_has_no_mistakes(page, file, tmp_path):
    path = tmp_path / "robots_guard.toml"
    path.write_text(file.text)

    (found,) = read_files(str(path), {}, None)
    mistakes, _ = valid_parts([found], {"REDIS_URL": "redis://localhost/0"}, has_variables=False)

    assert not mistakes


def test_what_a_page_writes_to_the_system_stays_in_the_world(reader):
    text = "touch /etc/robots_guard_of_a_page && ls /etc/robots_guard_of_a_page"

    (done,) = reader.follow("system", [asdict(Command(1, text, []))], "system")

    assert done["status"] == 0, done["printed"]
    assert not Path("/etc/robots_guard_of_a_page").exists()


def test_an_output_is_compared_without_what_changes():
    said = ["id 4e2bd4cefa-2  at 2026-11-20T16:00:30Z", "...", "end ... of 30 s"]

    assert difference(said, "id aaaaaaaaaa-7 at 2027-01-01T00:00:00Z\nx\ny\nend z of 4 s\n") == ""
    assert difference(said, "id aaaaaaaaaa-7 at 2027-01-01T00:00:00Z\nend z of 4 s\n") == ""
    assert difference(said, "id b at 2027-01-01T00:00:00Z\nend z of 4 s\n")
    assert difference(["a"], "a\nb\n")
    assert difference(["a", "b"], "a\n")


def _find_programs(wanted: list[Step]) -> None:
    """Skip a page whose programs are missing here; in CI this is a failure."""
    texts = [step.text for step in wanted if isinstance(step, Command)]
    for name in sorted(OF_DEBIAN & {text.split()[0] for text in texts}):
        program(name)


def fault_of(page: str, step: Step, result: dict[str, object]) -> str:
    """Return what is wrong with a command, or ''."""
    if isinstance(step, File):
        return ""
    status, printed = int(str(result["status"])), str(result["printed"])
    where = f"{page}:{step.line}: $ {step.text}\n(status {status})\n"
    if status < 0 or "Traceback (most recent call last)" in printed:
        return f"{where}{printed}"
    if result["is_staying"]:
        return ""  # the world has compared what it printed at its start
    if step.output:
        shown = difference(step.output, printed)
        return f"{where}{shown}" if shown else ""
    is_answer = status in ANSWERS if "robots-guard" in step.text else status == 0
    return "" if is_answer else f"{where}{printed}"
