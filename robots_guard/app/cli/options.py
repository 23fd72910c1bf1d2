"""Command-line options for the settings, and settings from a command's options.

An option has the name of its setting (`--on-restricted` or `--on_restricted`). What is not given as
an option comes from the configuration: the files and the environment
(`robots_guard.configuration`), which a command reads once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin

import click
import msgspec

from robots_guard.app.cli.group import SettingOption, config_named, config_option, help_all_option
from robots_guard.configuration import (
    Configuration,
    own_options,
    read_configuration,
    value_from,
)
from robots_guard.configuration import section_from as configured_section
from robots_guard.configuration import settings_from as configured_settings
from robots_guard.configuration.elsewhere import invocation_of
from robots_guard.configuration.sections import GENERAL, section_of
from robots_guard.configuration.settings import (
    SETTINGS,
    Setting,
    Settings,
    default_store,
    names_of,
)
from robots_guard.decisions.signal_settings import SignalSettings
from robots_guard.decisions.site_settings import SiteSettings, types_of
from robots_guard.errors import SettingsError
from robots_guard.invocation import Invocation
from robots_guard.protocol.dialect import DIALECTS
from robots_guard.text import restored

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", bound=Settings)
T = TypeVar("T", bound=msgspec.Struct)

_CONFIGURATIONS = "robots_guard.configurations"  # in click's `meta`


def settings_options(command: F) -> F:
    """Add an option for each setting to a command; each value is text, or None if it was not given."""
    return component_options(GENERAL)(command)


def component_options(component: str) -> Callable[[F], F]:
    """Do the same as `settings_options` with each setting that a component has, and with what only
    its section has."""

    def add(command: F) -> F:
        for name in reversed([*own_options(section_of(component))]):
            command = section_option(component, name)(command)
        return _with_options(help_all_option(command), names_of(component))

    return add


def _with_options(command: F, names: Sequence[str]) -> F:
    command = config_option(command)
    for name in reversed(names):
        command = _option(name)(command)
    return command


_FETCHING = ("store", "audit_log", "fetch_timeout", "user_agent")


def fetch_options(command: F) -> F:
    """Add an option for each setting that fetching a policy depends on."""
    return _with_options(help_all_option(command), _FETCHING)


def audit_log_option(command: F) -> F:
    """Add the option for the audit log's directory."""
    return _option("audit_log")(config_option(command))


def chain_options(command: F) -> F:
    """Add an option for each setting on which a command's own records in the audit log depend."""
    return _with_options(command, ("audit_log", "audit_signing_key"))


def signing_key_option(command: F) -> F:
    """Add the option for the key that signs."""
    return _option("audit_signing_key")(command)


def store_option(command: F) -> F:
    """Add the option for the store."""
    return _option("store")(config_option(command))


def overrides_option(command: F) -> F:
    """Add the option for the overrides file."""
    return _option("overrides")(config_option(command))


_DELAYS = ("min_delay", "max_delay", "visit_time", "respect_retry_after", "hold_max")
_VERDICTS = [
    name for name in types_of(SiteSettings) if name not in (*_DELAYS, *types_of(SignalSettings))
]
#: The headings of the help, and the settings below each; `*` stands for any text.
HEADINGS = {
    "Crawler": ("agent", "agent_from", "agents", "*user_agent"),
    "Store": ("store*",),
    "Audit log": ("audit*",),
    "Verdicts": ("overrides", "report_only", *_VERDICTS),
    "Delays": _DELAYS,
    "Fetching robots.txt": ("fetch*", "allow_private"),
    "Use of content": tuple(types_of(SignalSettings)),
}
OTHER = "Other settings"
#: The settings that `--help` lists; `--help-all` lists all.
COMMON = (
    *("agent", "agent_from", "store", "audit_log", "audit", "dialect", "overrides", "report_only"),
    *("min_delay", "fetch", "allow_private", "purposes", "contact"),
)


def heading_of(name: str) -> str:
    """Return the heading of the help below which a setting is listed."""
    for title, patterns in HEADINGS.items():
        if any(_is_match(name, pattern) for pattern in patterns):
            return title
    return OTHER


def _is_match(name: str, pattern: str) -> bool:
    """Whether a name matches a pattern with at most one `*`. (fnmatch would compile each pattern.)"""
    begin, star, end = pattern.partition("*")
    if not star:
        return name == pattern
    return name.startswith(begin) and name.endswith(end)


def _option(name: str) -> Callable[[F], F]:
    setting = SETTINGS[name]
    place = {"section": heading_of(name), "is_common": name in COMMON}
    return _option_for(setting, setting.summary, **place)


def section_option(section: str, name: str) -> Callable[[F], F]:
    """Return the option for a value that only one section has; its help is the description there."""
    setting = own_options(section)[name]
    return _option_for(setting, setting.description.replace("`", ""))


def _option_for(setting: Setting, meaning: str, **attributes: Any) -> Callable[[F], F]:
    """The option for a setting. Its value is text, true or false, and None if it was not given."""
    flag = as_option(setting.name)
    repeats = setting.is_list or setting.extra.get("repeats", False)
    if setting.is_switch:
        flag = f"{flag}/--no-{flag[2:]}"
        attributes["default"] = None
    else:
        attributes["metavar"] = setting.extra.get("metavar", setting.name.upper())
        attributes["multiple"] = repeats
        attributes["shell_complete"] = partial(_complete, setting)
    note = " May be repeated." if repeats else ""
    return click.option(
        flag,
        setting.name,
        cls=SettingOption,
        help=meaning + note + _default_note(setting),
        **attributes,
    )


def _complete(
    setting: Setting,
    ctx: click.Context,  # noqa: ARG001  click's signature
    param: click.Parameter,  # noqa: ARG001  (click's signature)
    incomplete: str,
) -> list[CompletionItem]:
    """Return the completions for the value of a setting: the words of its type, or files."""
    from click.shell_completion import CompletionItem

    if setting.extra.get("path") == "file":
        return [CompletionItem(incomplete, type="file")]
    words: Iterable[object] = ()
    if setting.name == "dialect":
        words = DIALECTS
    elif get_origin(setting.type) is Literal:
        words = get_args(setting.type)
    return [CompletionItem(word) for word in map(str, words) if word.startswith(incomplete)]


def _default_note(setting: Setting) -> str:
    """Return the default in click's format. Click itself must not fill it in: the settings apply it, and need to
    know which values were given."""
    if setting.default_text:
        return f"  [default: {setting.default_text}]"
    return ""


# -- the configuration ------------------------------------------------------------------------------


def configuration(component: str = "cli") -> Configuration:
    """Return the configuration of a component, which is read once for each command. Raises
    SettingsError."""
    context = click.get_current_context(silent=True)
    meta = context.meta if context else {}
    read = meta.setdefault(_CONFIGURATIONS, {})
    if component not in read:
        read[component] = read_configuration(component, config=config_named())
    found: Configuration = read[component]
    return found


def settings_from(values: Mapping[str, Any], component: str = GENERAL, **defaults: Any) -> Settings:
    """Return the settings from a command's parameters and the configuration. Raises SettingsError."""
    return settings_of_kind(Settings, values, component, **defaults)


def settings_of_kind(
    kind: type[S], values: Mapping[str, Any], component: str, **defaults: Any
) -> S:
    """Do the same with the settings that a component such as the proxy has."""
    given = _given(values, names_of(component))
    return configured_settings(configuration(component), given, as_option, kind, defaults)


def section_from(component: str, values: Mapping[str, Any], kind: type[T]) -> T:
    """Return what only one component has, from a command's parameters and the configuration.
    Raises SettingsError."""
    given = _given(values, own_options(component))
    return configured_section(configuration(component), given, as_option, kind)


def chosen(name: str, value: Any, component: str = "cli") -> Any:
    """Return the value of a setting: an option's, otherwise that of the configuration, or None.
    Raises SettingsError."""
    return value_from(configuration(component), name, value, as_option)


def store_of(store: str | None) -> str:
    """Return the URL of the store: an option's, the configured or the default one."""
    return chosen("store", store) or default_store()


@contextmanager
def documents_in(store: str | None) -> Iterator[Callable[[str], bytes | None] | None]:
    """A function that returns a document by its SHA-256, if the store has it. It is None if there is
    no store that can be read."""
    from robots_guard.guard.stores import find_document, look_at

    policies = None
    with suppress(SettingsError):
        policies = look_at(store_of(store))
    try:
        yield partial(find_document, policies) if policies is not None else None
    finally:
        if policies is not None:
            policies.close()


def invocation_from(component: str = "cli", **places: str | None) -> Invocation:
    """Return what the command lines that this command prints must name. `places` are its options
    for the audit log and the store."""
    given = {name: value for name, value in places.items() if value}
    return invocation_of(configuration(component), given)


def _given(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The settings among a command's parameters that were given."""
    return {name: _text(name, values[name]) for name in names if values.get(name) not in (None, ())}


def as_option(name: str) -> str:
    """Return the option for a setting."""
    return f"--{name.replace('_', '-')}"


@contextmanager
def naming_places(component: str, values: Mapping[str, Any]) -> Iterator[None]:
    """Let errors that name an option name the place of its value instead, if it was not given as
    an option."""
    try:
        yield
    except SettingsError as error:
        sentence = str(error)
        option = sentence.partition(" ")[0]
        name = option.removeprefix("--").replace("-", "_")
        source = configuration(component).values.get(name)
        if source is None or not option.startswith("--") or values.get(name) not in (None, ()):
            raise
        raise SettingsError(source.source.spell(name) + sentence[len(option) :]) from error


def _text(name: str, value: Any) -> Any:
    """Return a value as the user wrote it. File names stay as the locale decoded them: the system encodes them back."""
    if name in SETTINGS and SETTINGS[name].extra.get("is_sent") and isinstance(value, str):
        return restored(value)
    return value


LARGEST_PORT = 65_535
_LISTEN = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^\[\]:]+)):(?P<port>[0-9]{1,20})")


def address(listen: str, example: str, option: str = "--listen") -> tuple[str, int]:
    """Return the host and the port to listen on. Raises SettingsError, which names an example."""
    found = _LISTEN.fullmatch(listen)
    if found is None:
        raise SettingsError(
            f"{option} {listen!r} is not an address: use HOST:PORT, such as {example}"
        )
    if int(found["port"]) > LARGEST_PORT:
        raise SettingsError(
            f"{option} {listen!r} has a port that is too large: use 0 to {LARGEST_PORT}"
        )
    return found["v6"] or found["host"], int(found["port"])
