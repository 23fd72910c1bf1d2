"""The command line: `robots-guard COMMAND`.

Invariant: a command's module is imported only when the command is called, so that `check` neither needs
mitmproxy or Scrapy nor waits for their import. A mistake of the user is reported as one sentence on standard
error with exit status 2, never as a traceback. A bug of robots_guard is a traceback with exit status 70.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import re
import sys
import traceback
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

from robots_guard import __version__
from robots_guard.app.cli.group import CommandGroup, config_option
from robots_guard.errors import MissingExtra, RobotsGuardError, StoreError
from robots_guard.protocol import is_compiled
from robots_guard.text import printable

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

NAME = "robots-guard"
COMPLETION = "_ROBOTS_GUARD_COMPLETE"  # the variable by which a shell asks click for completions
USAGE = 2  # the exit status for a mistake of the user
BUG = 70  # EX_SOFTWARE; not 1, with which `check` reports a refused URL
INTERRUPTED = 130
BROKEN_PIPE = 141
LINE = "\n"


class CommandEntry(NamedTuple):
    """A command: where it is (`module:attribute`), its line in --help, and the extra that it needs."""

    location: str
    summary: str
    extra: str = ""


COMMANDS = {
    "audit": CommandEntry(
        "robots_guard.app.cli.audit.commands:audit",
        "Follow, search, verify and export the audit log.",
    ),
    "check": CommandEntry(
        "robots_guard.app.cli.ask.check:check",
        "Check whether URLs may be requested.",
    ),
    "config": CommandEntry(
        "robots_guard.app.cli.config.commands:config",
        "Show and check the configuration, or write a new file.",
    ),
    "console": CommandEntry(
        "robots_guard.app.cli.console:console",
        "Browse the audit log and the policies in a web console.",
        "console",
    ),
    "demo": CommandEntry(
        "robots_guard.app.demo.command:demo",
        "Show both integrations at work on a small local site.",
        "all",
    ),
    "explain": CommandEntry(
        "robots_guard.app.cli.ask.explain:explain",
        "Explain why a URL may or may not be requested.",
    ),
    "lint": CommandEntry(
        "robots_guard.app.cli.lint:lint",
        "Find mistakes in a robots.txt.",
    ),
    "overrides": CommandEntry(
        "robots_guard.app.cli.overrides:overrides",
        "Check, add and remove overrides for single sites.",
    ),
    "policy": CommandEntry(
        "robots_guard.app.cli.policy:policy",
        "Show, refresh, remove and transfer the stored policies.",
    ),
    "proxy": CommandEntry(
        "robots_guard.app.cli.proxy:proxy",
        "Guard any crawler, as an intercepting proxy.",
        "proxy",
    ),
    "serve": CommandEntry(
        "robots_guard.app.cli.serve:serve",
        "Answer Envoy or Squid, which ask about each request.",
        "serve",
    ),
    "why": CommandEntry(
        "robots_guard.app.cli.ask.why:why",
        "Say why a URL was, or was not, requested.",
        "audit",
    ),
}


class Commands(CommandGroup):
    """The commands in COMMANDS, each imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        """Return all names."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  click's names
        """Import the command and return it. Raises MissingExtra."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        return _load(cmd_name, entry)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the completions of a word, without importing any command."""
        from click.shell_completion import CompletionItem

        items = click.Command.shell_complete(self, ctx, incomplete)
        for name in self.list_commands(ctx):
            if name.startswith(incomplete):
                items.append(CompletionItem(name, help=COMMANDS[name].summary))
        return items

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list in --help without importing any command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name].summary) for name in self.list_commands(ctx)])


def _load(name: str, entry: CommandEntry) -> click.Command:
    module, _, attribute = entry.location.partition(":")
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


def _print_version(context: click.Context, _: click.Parameter, value: bool) -> None:
    """Print the version and which core is installed, and exit, if `--version` is given."""
    if not value or context.resilient_parsing:
        return
    core = "interpreted"
    if is_compiled():
        core = "compiled"
    click.echo(f"{NAME} {__version__} (core: {core})")
    context.exit()


@click.command(
    NAME,
    cls=Commands,
    no_args_is_help=False,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": _dashed,
        "max_content_width": 100,
    },
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
@config_option
def commands() -> None:
    """Make crawlers obey robots.txt, and prove it afterwards."""


def main(args: list[str] | None = None) -> NoReturn:
    """Run a command line and exit with its status, or print the completions that a shell asks for."""
    _replace_closed_streams()
    _escape_unencodable_output()
    instruction = os.environ.get(COMPLETION)
    if instruction:
        from click.shell_completion import shell_complete

        sys.exit(shell_complete(commands, {}, NAME, COMPLETION, instruction))
    sys.exit(run(args))


def _replace_closed_streams() -> None:
    """Replace a closed standard stream, so that no store or socket is given its file descriptor.

    Standard input and output are opened in the wrong direction: reading or writing still fails with EBADF.
    """
    streams = (
        ("stdin", os.O_WRONLY, "r"),
        ("stdout", os.O_RDONLY, "w"),
        ("stderr", os.O_WRONLY, "w"),
    )
    for name, flags, mode in streams:
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode, encoding="utf-8"))


def _escape_unencodable_output() -> None:
    """Make standard output and error escape the characters that the locale cannot encode, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def run(args: list[str] | None = None) -> int:
    """Run a command line and return its exit status. A command returns its own, or None for 0."""
    try:
        status = _invoke(args)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_stdout()
        return BROKEN_PIPE
    except OSError as error:
        _discard_stdout()
        if error.errno == errno.EBADF:
            return _fail(
                "standard input or output is closed: leave it open, or redirect it to /dev/null"
            )
        about = f"{error.filename}: " if error.filename else ""
        return _fail(f"{about}{error.strerror or error}")
    except Exception as error:  # noqa: BLE001  printed in full; its exit status is never that of a verdict
        traceback.print_exc()
        _fail(
            f"this is a bug in robots_guard ({type(error).__name__}): please report it with the lines above"
        )
        return BUG
    return status


def _invoke(args: list[str] | None) -> int:
    try:
        given = sys.argv[1:] if args is None else args
        with commands.make_context(NAME, list(given) or ["--help"]) as context:
            status: Any = commands.invoke(context)
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else NAME
        return _fail(f"{_sentence(error)} (see {path} --help)")
    except click.ClickException as error:
        return _fail(error.format_message())
    except StoreError as error:  # its message does not name the store
        return _fail(f"the policy store: {error}")
    except RobotsGuardError as error:
        return _fail(str(error))
    if isinstance(status, int):
        return status
    return 0


def _sentence(error: click.UsageError) -> str:
    """Return click's message on one line: for a missing choice it lists the values on separate lines."""
    message = error.format_message()
    if isinstance(error, click.MissingParameter):
        message = " ".join(message.split()).replace(". Choose from:", ": choose from")
    return _SWITCH_VALUES.sub(": use true or false", message).rstrip(".")


#: click's list of the values of a switch, whose first one is empty.
_SWITCH_VALUES = re.compile(r"\. Recognized values: .*")


def _fail(sentence: str) -> int:
    """Print an error message and return the exit status for it. It may quote names that others
    chose, such as that of a directory or a key in a file."""
    click.echo(f"{NAME}: {printable(sentence, keep=LINE)}", err=True)
    return USAGE


def _discard_stdout() -> None:
    """Send standard output to /dev/null: it has no reader, and the interpreter's last flush must not fail."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
