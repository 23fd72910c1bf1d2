"""Click's commands and groups, as the command line uses them: a group suggests the nearest command
for a typo, and the help lists settings in sections."""

from __future__ import annotations

from typing import Any

import click

OWN = "Options"  # the section of the options that are no settings


class SettingOption(click.Option):
    """An option for a setting, listed in a section of the help."""

    def __init__(self, *args: Any, section: str = OWN, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.section = section


def write_sections(
    command: click.Command, ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    """Write the options of a command in sections: its own ones, then those of each section in the
    order of its first option."""
    sections: dict[str, list[tuple[str, str]]] = {OWN: []}
    for option in command.get_params(ctx):
        record = option.get_help_record(ctx)
        if record is not None:
            section = getattr(option, "section", OWN)
            sections.setdefault(section, []).append(record)
    for title, records in sections.items():
        if records:
            with formatter.section(title):
                formatter.write_dl(records)


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
