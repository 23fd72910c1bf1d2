"""The option for the configuration file, which the command line itself and its commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

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
