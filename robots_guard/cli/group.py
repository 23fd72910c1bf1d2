"""A click group that suggests the nearest command for a typo."""

from __future__ import annotations

import difflib

import click


class CommandGroup(click.Group):
    """A click group that suggests the nearest command for a typo."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments begin with. Raises UsageError if there is none."""
        names = self.list_commands(ctx)
        nearest = difflib.get_close_matches(args[0], names, n=1)
        if args[0] not in names and nearest:
            ctx.fail(f"No such command {args[0]!r}: did you mean {nearest[0]}?")
        return super().resolve_command(ctx, args)
