"""The command line: `robots-guard COMMAND`.

The law of this floor: a command is imported when it is called, so that `check` never pays for mitmproxy or
Scrapy, nor needs them. What the caller got wrong is one sentence on standard error and exit status 2; nobody
sees a traceback for it. What is our own fault is a traceback and exit status 70.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import importlib
import io
import os
import sys
import traceback
from typing import Any, NamedTuple, NoReturn

import click

from robots_guard.errors import MissingExtra, RobotsGuardError, StoreError

NAME = "robots-guard"
USAGE = 2  # the exit status for what the caller got wrong
BUG = 70  # EX_SOFTWARE; never 1, which is how `check` says that a URL is refused
INTERRUPTED = 130
BROKEN_PIPE = 141


class Entry(NamedTuple):
    """Where a command is, what it does, and the extra without which it cannot run."""

    place: str
    does: str
    extra: str = ""


COMMANDS = {
    "audit": Entry("robots_guard.cli.audit:audit", "Follow, search, show and check the journal."),
    "check": Entry("robots_guard.cli.check:check", "Ask whether URLs may be requested."),
    "console": Entry("robots_guard.cli.console:console", "See the journal and the policies in a browser.", "console"),
    "demo": Entry("robots_guard.cli.demo:demo", "See both doors work on a small local site.", "all"),
    "explain": Entry("robots_guard.cli.explain:explain", "Say why a URL may or may not be requested."),
    "lint": Entry("robots_guard.cli.lint:lint", "Find what in a robots.txt does not do what was meant."),
    "overrides": Entry("robots_guard.cli.overrides:overrides", "Check and list the exceptions made for single sites."),
    "policy": Entry("robots_guard.cli.policy:policy", "See, renew, drop and carry the policies held."),
    "proxy": Entry("robots_guard.cli.proxy:proxy", "Guard any crawler as an intercepting proxy.", "proxy"),
}


class Group(click.Group):
    """Commands, of which a misspelt one is answered with the nearest."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command named first. Raises UsageError."""
        names = self.list_commands(ctx)
        near = difflib.get_close_matches(args[0], names, n=1)
        if args[0] not in names and near:
            ctx.fail(f"No such command {args[0]!r}: did you mean {near[0]}?")
        return super().resolve_command(ctx, args)


class Commands(Group):
    """The commands of the table."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click calls it so
        """All names."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  click's name
        """The command, imported now. Raises MissingExtra."""
        entry = COMMANDS.get(cmd_name)
        return None if entry is None else _load(cmd_name, entry)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in --help, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name].does) for name in self.list_commands(ctx)])


def _load(name: str, entry: Entry) -> click.Command:
    module, _, attribute = entry.place.partition(":")
    try:
        command = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if entry.extra and not (error.name or "").startswith("robots_guard"):
            raise MissingExtra(entry.extra, f"{NAME} {name}") from error
        raise
    assert isinstance(command, click.Command)
    return command


def _dashed(name: str) -> str:
    return name.replace("_", "-")


@click.command(
    NAME,
    cls=Commands,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"], "token_normalize_func": _dashed, "max_content_width": 100},
)
@click.version_option(package_name="robots_guard", prog_name=NAME, message="%(prog)s %(version)s")
def commands() -> None:
    """Makes crawlers obey robots.txt, and proves it afterwards."""


def main(args: list[str] | None = None) -> NoReturn:
    """Run a command line and leave with its exit status."""
    _open_streams()
    _write_in_any_locale()
    sys.exit(run(args))


def _open_streams() -> None:
    """Stand in for a standard stream that was closed, before a store or a socket is given its number.

    What is read from it or written to it then fails as the closed one would have failed.
    """
    for name, flags, mode in (("stdin", os.O_WRONLY, "r"), ("stdout", os.O_RDONLY, "w"), ("stderr", os.O_WRONLY, "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode, encoding="utf-8"))


def _write_in_any_locale() -> None:
    """Have standard output and error escape the characters that the locale cannot encode, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def run(args: list[str] | None = None) -> int:
    """Run a command line; its exit status. A command returns its own, or None for 0."""
    try:
        status = _called(args)
        sys.stdout.flush()
    except BrokenPipeError:
        _leave_stdout()
        return BROKEN_PIPE
    except OSError as error:
        _leave_stdout()
        if error.errno == errno.EBADF:
            return _refused("standard input or output is closed: leave it open, or name /dev/null")
        about = f"{error.filename}: " if error.filename else ""
        return _refused(f"{about}{error.strerror or error}")
    except Exception as error:  # noqa: BLE001  shown whole, and never the exit status of a verdict
        traceback.print_exc()
        _refused(f"this is a bug of robots_guard ({type(error).__name__}): please report it with the lines above")
        return BUG
    return status


def _called(args: list[str] | None) -> int:
    try:
        with commands.make_context(NAME, list(sys.argv[1:] if args is None else args)) as context:
            status: Any = commands.invoke(context)
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else NAME
        return _refused(f"{_sentence(error)} (see {path} --help)")
    except click.ClickException as error:
        return _refused(error.format_message())
    except StoreError as error:  # which says what happened, not to whom
        return _refused(f"the policy store: {error}")
    except RobotsGuardError as error:
        return _refused(str(error))
    return status if isinstance(status, int) else 0


def _sentence(error: click.UsageError) -> str:
    """What click says, in one line: of a choice that is missing it gives a list of lines."""
    said = error.format_message()
    if isinstance(error, click.MissingParameter):
        said = " ".join(said.split()).replace(". Choose from:", ": choose from")
    return said.rstrip(".")


def _refused(sentence: str) -> int:
    click.echo(f"{NAME}: {sentence}", err=True)
    return USAGE


def _leave_stdout() -> None:
    """Nobody reads any more: let the interpreter's last flush go nowhere."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
