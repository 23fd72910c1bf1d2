"""`robots-guard policy`: shows and changes the policies in the store that all integrations share.

Only `refresh` uses the network and needs an agent. Long operations show a progress bar on standard error if it is a
terminal.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, BinaryIO, TypeVar

import click
import msgspec

from robots_guard.app.cli.group import CommandGroup, SectionedCommand
from robots_guard.app.cli.options import (
    chosen,
    invocation_from,
    settings_from,
    settings_options,
    store_of,
    store_option,
)
from robots_guard.app.cli.terminal import (
    Rows,
    TableColumn,
    print_lines,
    progress,
    safe,
    write_encoded,
    write_line,
)
from robots_guard.audit.record import moment, shown_url
from robots_guard.audit.show.policy import PolicyView, facts, reservations_as_data
from robots_guard.configuration.settings import CLOCKS
from robots_guard.decisions.access import Access
from robots_guard.decisions.policy import Policy, objection
from robots_guard.errors import DamagedValue, MalformedURL, NotGoverned, SettingsError
from robots_guard.guard.stores import look_at, open_existing, open_store
from robots_guard.invocation import EVIDENCE
from robots_guard.origin import Origin, split_url
from robots_guard.ports import PolicyStore, SharedStore
from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.lines import clean

SHOWN_FAULTS = 10  # unusable lines that are reported one by one
MAX_LINE = 16 * 1024  # bytes of a line in a list of origins
NOT_STORED, UNREADABLE, UNREACHABLE = 1, 2, 3  # exit statuses
COLUMNS = (
    "access",
    "state",
    "origin",
    "age",
    "fresh for",
    "status",
    "via",
    "bytes",
)
REFRESH_COLUMNS = (
    "access",
    "origin",
    "status",
    "bytes",
    TableColumn("detail", folds=True),
)
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


@click.group(cls=CommandGroup, no_args_is_help=False)
def policy() -> None:
    """Show, refresh, remove and transfer the stored policies."""


def dialect_option(command: F) -> F:
    """Add the option for the dialect that determines access and freshness."""
    return click.option(
        "--dialect",
        default="rfc9309",
        show_default=True,
        help="Dialect that determines access and freshness.",
    )(command)


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per policy."
)


@contextmanager
def opened(
    store: str | None, how: Callable[[str], SharedStore | None] = open_store
) -> Iterator[SharedStore]:
    """Open the store and close it afterwards; with `how=look_at` it is read-only. Raises SettingsError."""
    policies = how(store_of(store))
    if policies is None:
        raise SettingsError(
            "store = 'memory:' exists in one process only: name the store of the integrations with --store"
        )
    try:
        yield policies
    finally:
        policies.close()


# -- showing --------------------------------------------------------------------------------------------------


def _refresh(origin: Origin, store: str | None) -> str:
    """The command that fetches a policy."""
    agent = chosen("agent", None) or "NAME"
    words = ("policy", "refresh", "--agent", agent, str(origin))
    return invocation_from(store=store).command(*words, needs=EVIDENCE)


@policy.command()
@click.argument("url", required=False)
@store_option
@dialect_option
@click.option("--raw", is_flag=True, help="Print only the file, byte for byte as it was fetched.")
@json_option
def show(url: str | None, store: str | None, dialect: str, raw: bool, as_json: bool) -> int:
    """Show the stored policy for the origin of a URL, and its robots.txt; without a URL, list all policies.

    Exit status: 0 there is a policy, 1 there is none.
    """
    view_of = viewer(dialect)
    if url is None:
        if raw:
            raise click.UsageError("--raw prints one file: give a URL of its site")
        _list(store, view_of, as_json=as_json)
        return 0
    origin = _origin(url)
    with opened(store, look_at) as policies:
        found = policies.get(origin)
    if found is None:
        click.echo(
            f"robots-guard: no policy is stored for {origin}: fetch it with"
            f" {_refresh(origin, store)}, or name another --store",
            err=True,
        )
        return NOT_STORED
    if raw:
        sys.stdout.buffer.write(found.document.body if found.document else b"")
    elif as_json:
        write_encoded(_line(view_of(found), body=True))
    else:
        view = view_of(found)
        known = [
            ("origin", str(origin)),
            ("access", f"{view.access}, {view.freshness}"),
            *facts(view),
        ]
        print_lines((f"{name:10} {value}", "") for name, value in known)
        if found.document and found.document.body:
            print_lines(
                [("", ""), *((line.decode("utf-8", "replace"), "") for line in _lines(found))]
            )
    return 0


def _list(store: str | None, view_of: Callable[[Policy], PolicyView], *, as_json: bool) -> None:
    """List the stored policies."""
    rows = Rows(*COLUMNS)
    with opened(store, look_at) as policies:
        for each in _readable(policies):
            if as_json:
                write_encoded(_line(view_of(each)))
            else:
                rows.add(_row(view_of(each)))
    rows.end()


def _lines(found: Policy) -> list[bytes]:
    assert found.document is not None
    return clean(found.document.body).splitlines()


# -- refreshing and removing ----------------------------------------------------------------------------------


@policy.command(cls=SectionedCommand)
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option(
    "--from",
    "listed",
    type=click.File("rb"),
    metavar="FILE|-",
    help="Read origins from a file, one per line.",
)
@click.option("--missing", is_flag=True, help="Skip origins whose policy is still fresh.")
@json_option
@settings_options
def refresh(
    urls: tuple[str, ...], listed: BinaryIO | None, missing: bool, as_json: bool, **values: Any
) -> int:
    """Fetch the robots.txt of origins, 64 at once, and store the policies, for example before a crawl.

    The output has the order of the arguments and of the list.

    Exit status: 0 all were fetched, 3 at least one is unreachable, 2 at least one line is not an origin, or the
    store failed.
    """
    if not urls and listed is None:
        raise click.UsageError(
            "no origin is given: give at least one, or a list of them with --from FILE"
        )
    settings = settings_from(values)
    if settings.store == "memory:":
        raise SettingsError(
            "store = 'memory:' is lost when this command ends: name the store of the integrations with --store"
        )
    faults = Faults()
    origins = list(dict.fromkeys(_origins(chain(_arguments(urls), _listed(listed)), faults)))
    report = RefreshReport(viewer(settings.dialect), as_json=as_json)
    with progress("robots.txt", len(origins)) as on_progress:
        from robots_guard.app.cli.ask.guard_answers import fetch_policies

        def on_policy(found: Policy) -> None:
            report.add(found)
            on_progress(report.count)

        failures = fetch_policies(settings, origins, on_policy, renew=not missing)
    report.end()
    store_failed = _report_store_failures(failures)
    if faults.report_rest() or store_failed:
        return UNREADABLE
    if report.any_unreachable:
        return UNREACHABLE
    return 0


def _report_store_failures(failures: int) -> bool:
    """Report whether calls of the store have failed: the policies fetched may then not be stored."""
    if failures:
        click.echo(
            f"robots-guard: {failures} calls of the store failed: not all policies were stored;"
            " check the store and refresh again",
            err=True,
        )
    return failures > 0


@policy.command()
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option("--all", "everything", is_flag=True, help="Remove all policies.")
@store_option
def forget(urls: tuple[str, ...], everything: bool, store: str | None) -> int:
    """Remove the stored policies of origins. A running integration keeps its cached copy until that is stale.

    Exit status: 0 all were removed, 1 at least one was not stored.
    """
    if bool(urls) == everything:
        raise click.UsageError("give either the origins to forget or --all")
    with opened(store, open_existing) as policies:
        origins = sorted(set(policies.origins())) if everything else [_origin(url) for url in urls]
        removed = [policies.forget(origin) for origin in with_progress(origins, "forgetting")]
    for origin, was_stored in zip(origins, removed, strict=True):
        if not everything:
            write_line(f"{'forgotten' if was_stored else 'not stored'}\t{origin}")
    if everything:
        click.echo(f"robots-guard: {sum(removed)} policies forgotten", err=True)
    if all(removed):
        return 0
    return NOT_STORED


# -- transferring ---------------------------------------------------------------------------------------------


@policy.command()
@store_option
def export(store: str | None) -> None:
    """Write all stored policies to standard output, as JSON Lines for import."""
    with opened(store, look_at) as policies:
        for each in _readable(policies):
            sys.stdout.buffer.write(encode_policy(each))


@policy.command("import")
@click.argument("file", type=click.File("rb"), metavar="FILE|-")
@store_option
def import_(file: BinaryIO, store: str | None) -> int:
    """Import policies from an export. A stored policy that is newer is kept.

    Exit status: 0 all lines were imported, 2 at least one could not be used.
    """
    faults, imported = Faults(), 0
    with opened(store) as policies:
        for number, found in enumerate(read_policy(file, CLOCKS.now), 1):
            if isinstance(found, Policy):
                policies.put(found, CLOCKS.now())
                imported += 1
            else:
                faults.add(f"line {number}", found)
    click.echo(f"robots-guard: {imported} policies imported", err=True)
    if faults.report_rest():
        return UNREADABLE
    return 0


# -- helpers --------------------------------------------------------------------------------------------------


def viewer(name: str) -> Callable[[Policy], PolicyView]:
    """Return a function that shows policies as a dialect reads them now. Raises SettingsError for an unknown one."""
    return partial(PolicyView, dialect=dialect(name), now=CLOCKS.now())


def _row(view: PolicyView) -> tuple[str, ...]:
    origin = str(view.policy.origin)
    return (
        view.access,
        view.freshness,
        origin,
        view.age,
        view.fresh_for,
        view.status,
        view.via,
        view.size,
    )


def _line(view: PolicyView, *, body: bool = False) -> bytes:
    """Return a policy as a JSON object. A body is text; invalid UTF-8 in it is replaced."""
    document, trouble = view.policy.document, view.policy.trouble
    reservations = view.policy.reservations
    data: dict[str, Any] = {
        "origin": str(view.policy.origin),
        "access": view.access,
        "state": view.freshness,
        "expires_at": moment(view.policy.expires_at(view.dialect)),
        "document": None,
        "trouble": None,
        "reservations": reservations_as_data(reservations),
    }
    if reservations is not None:
        text = reservations.body.decode("utf-8", "replace")
        data["reservations"]["body"] = text if body else None
    if document is not None:
        data["document"] = msgspec.to_builtins(document) | {
            "body": document.body.decode("utf-8", "replace") if body else None,
            "size": len(document.body),
            "url": shown_url(document.url),
            "redirects": [shown_url(url) for url in document.redirects],
            "fetched_at": moment(document.fetched_at),
        }
    if trouble is not None:
        times = {"since": trouble.since, "at": trouble.at, "retry_at": trouble.retry_at}
        data["trouble"] = msgspec.to_builtins(trouble) | {
            name: moment(at) for name, at in times.items()
        }
    return msgspec.json.encode(data)


class RefreshReport:
    """Prints the result of a refresh, policy by policy."""

    def __init__(self, view_of: Callable[[Policy], PolicyView], *, as_json: bool) -> None:
        self.any_unreachable = False
        self._view_of = view_of
        self._json = as_json
        self._rows = Rows(*REFRESH_COLUMNS, headings=sys.stdout.isatty())
        self._counts: Counter[str] = Counter()

    def add(self, policy: Policy) -> None:
        """Print one policy, or keep it for the table that `end` prints."""
        view = self._view_of(policy)
        access = view.access
        self._counts[access] += 1
        self.any_unreachable = self.any_unreachable or access is Access.UNREACHABLE
        if self._json:
            write_encoded(_line(view))
            return
        document, trouble = policy.document, policy.trouble
        status, detail = None, ""
        if trouble:
            status, detail = trouble.status, trouble.says
        elif document:
            status = document.status
        self._rows.add((access, str(policy.origin), str(status or ""), view.size, detail))

    @property
    def count(self) -> int:
        """The number of policies so far."""
        return self._counts.total()

    def end(self) -> None:
        """Print the table, if there is one, and the totals."""
        self._rows.end()
        totals = ", ".join(f"{count} {access}" for access, count in sorted(self._counts.items()))
        click.echo(f"robots-guard: {totals or 'nothing to fetch'}", err=True)


class Faults:
    """Lines and arguments that cannot be used. The first few are reported one by one, the others counted."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, which: str, why: str) -> None:
        """Report one more line or argument, and what is wrong with it."""
        self._count += 1
        if self._count <= SHOWN_FAULTS:
            click.echo(f"robots-guard: {safe(which)}: {safe(why)}", err=True)

    def report_rest(self) -> bool:
        """Report how many more there were. Returns whether there were any at all."""
        if self._count > SHOWN_FAULTS:
            click.echo(
                f"robots-guard: {self._count - SHOWN_FAULTS} more could not be used", err=True
            )
        return self._count > 0


def _readable(store: PolicyStore) -> Iterator[Policy]:
    """Yield the stored policies by origin; report damaged ones and skip them."""
    # A store may list an origin twice, or in two spellings: hence the set.
    for origin in with_progress(sorted(set(store.origins())), "reading"):
        try:
            found = store.get(origin)
        except DamagedValue as error:
            click.echo(f"robots-guard: {error}", err=True)
            continue
        if found is not None:
            yield found


def _origin(url: str) -> Origin:
    try:
        return split_url(url)[0]
    except (NotGoverned, MalformedURL) as error:
        raise click.UsageError(f"{error}: give an origin such as https://example.com") from None


def _arguments(urls: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Return the arguments of a command line, each with a name for messages."""
    return ((f"argument {number} ({url[:80]!r})", url) for number, url in enumerate(urls, 1))


def _listed(file: BinaryIO | None) -> Iterator[tuple[str, str]]:
    """Yield the lines of a list, each with a name for messages; skip blank lines and comments (#)."""
    number = 0
    while file is not None and (line := file.readline(MAX_LINE)):
        number += 1
        text = line.decode("utf-8", "replace").lstrip("\ufeff").strip()
        if text and not text.startswith("#"):
            yield f"line {number}", text


def _origins(named: Iterable[tuple[str, str]], faults: Faults) -> Iterator[Origin]:
    for which, text in named:
        try:
            yield _origin(text)
        except click.UsageError as error:
            faults.add(which, error.message)


def with_progress(items: list[T], what: str) -> Iterator[T]:
    """Yield the items, showing a progress bar."""
    with progress(what, len(items)) as on_progress:
        for number, item in enumerate(items, 1):
            yield item
            on_progress(number)


# -- the export format -----------------------------------------------------------------------------


VERSION = 1
#: bytes; in base64 a body of 512,000 bytes is 683,000, and reservations of 256 KiB are 350,000
MAX_POLICY = 2 * 1024 * 1024


class _PolicyLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    policy: Policy


class _Version(msgspec.Struct, frozen=True):
    version: int


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_PolicyLine)
_versions = msgspec.json.Decoder(_Version)


def encode_policy(policy: Policy) -> bytes:
    """Return a policy as a line."""
    return _encoder.encode(_PolicyLine(VERSION, policy)) + b"\n"


def read_policy(file: BinaryIO, now: Callable[[], float]) -> Iterator[Policy | str]:
    """Yield each line's policy, or what is wrong with the line."""
    while line := file.readline(MAX_POLICY):
        if not line.endswith(b"\n") and len(line) == MAX_POLICY:
            _skip_line(file)
            yield f"it is longer than {MAX_POLICY} bytes"
        else:
            yield _read(line, now())


def _skip_line(file: BinaryIO) -> None:
    while (rest := file.readline(MAX_POLICY)) and not rest.endswith(b"\n"):
        pass


def _read(line: bytes, now: float) -> Policy | str:
    try:
        version = _versions.decode(line).version
        if version != VERSION:
            return f"it has version {version}, and this robots_guard reads version {VERSION}"
        policy = _decoder.decode(line).policy
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return f"it is not a policy: {error}"
    return objection(policy, now) or policy
