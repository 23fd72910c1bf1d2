"""Click's commands and groups, as the command line uses them: a group suggests the nearest command
for a typo, and the help lists settings in sections, the common ones unless all are asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from robots_guard.text import page_url

OWN = "Options"  # the section of the options that are no settings
_ALL = "robots_guard.help_all"  # in click's `meta`, if the help is to list all settings


class SettingOption(click.Option):
    """An option for a setting, listed in a section of the help."""

    def __init__(
        self, *args: Any, section: str = OWN, is_common: bool = True, **attributes: Any
    ) -> None:
        super().__init__(*args, **attributes)
        self.section = section
        self.is_common = is_common


def _show_all(ctx: click.Context, param: click.Parameter, value: bool) -> None:  # noqa: ARG001  click's signature
    if value and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


help_all_option = click.option(
    "--help-all",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_all,
    help="Show this message with all settings and exit.",
)


def write_sections(
    command: click.Command, ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    """Write the options of a command in sections: its own ones, then those of each section in the
    order of its first option."""
    sections: dict[str, list[tuple[str, str]]] = {OWN: []}
    hidden = 0
    for option in command.get_params(ctx):
        record = option.get_help_record(ctx)
        if not (ctx.meta.get(_ALL) or getattr(option, "is_common", True)):
            hidden += 1
        elif record is not None:
            section = getattr(option, "section", OWN)
            sections.setdefault(section, []).append(record)
    for title, records in sections.items():
        if records:
            with formatter.section(title):
                formatter.write_dl(records)
    if hidden:
        formatter.write_paragraph()
        formatter.write(
            f"{ctx.command_path} --help-all lists {hidden} further settings. What they mean:\n"
            f"{page_url('settings.md#settings')}\n"
        )


class SectionedCommand(click.Command):
    """A click command with settings among its options."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in sections."""
        write_sections(self, ctx, formatter)


class CommandGroup(click.Group):
    """A click group that suggests the nearest command for a typo."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in sections, and the commands."""
        write_sections(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments begin with. Raises UsageError if there is none."""
        names = self.list_commands(ctx)
        if args[0] in names:
            return super().resolve_command(ctx, args)
        from difflib import get_close_matches

        nearest = get_close_matches(args[0], names, n=1)
        if nearest:
            ctx.fail(f"No such command {args[0]!r}: did you mean {nearest[0]}?")
        has_agent = any(option.name == "agent" for option in self.params)
        if self.invoke_without_command and has_agent:
            ctx.fail(
                f"No such command {args[0]!r}: known are {', '.join(names)};"
                " the crawler's name is given with --agent"
            )
        return super().resolve_command(ctx, args)


# -- the option for the configuration file ---------------------------------------------------------

F = TypeVar("F", bound=Callable[..., Any])
_CONFIG = "robots_guard.config"  # in click's `meta`, which a command shares with its group


def _note_config(ctx: click.Context, param: click.Parameter, value: str | None) -> None:  # noqa: ARG001  click's signature
    if value is not None:
        ctx.meta[_CONFIG] = value


def config_option(command: F) -> F:
    """Add the option for the configuration file; once, however many settings a command has."""
    added = getattr(command, "__click_params__", [])
    if any(each.name == "config" for each in added):
        return command
    return click.option(
        "--config",
        metavar="FILE",
        expose_value=False,
        callback=_note_config,
        help="Read this configuration file, and no other; an empty name: none.",
    )(command)


def config_named() -> str | None:
    """Return the configuration file that `--config` names; None without that option."""
    context = click.get_current_context(silent=True)
    named: str | None = context.meta.get(_CONFIG) if context else None
    return named
