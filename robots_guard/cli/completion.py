"""`robots-guard completion`: prints a script with which a shell completes the command line."""

from __future__ import annotations

from typing import Literal

import click

from robots_guard.cli.reference.bash import bash_script
from robots_guard.cli.reference.description import CommandDescription, describe
from robots_guard.cli.reference.fish import fish_script
from robots_guard.cli.reference.zsh import zsh_script

SHELLS = ("bash", "zsh", "fish")
Shell = Literal["bash", "zsh", "fish"]


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: Shell) -> None:
    """Print a script with which bash, zsh or fish completes commands, options and their values.

    The script contains everything that it completes, and starts no process when TAB is pressed.

    bash 4 or newer: source <(robots-guard completion bash)

    zsh, after compinit: source <(robots-guard completion zsh)

    fish: robots-guard completion fish | source
    """
    root = click.get_current_context().find_root()
    description = describe(root.command, root.info_name or "robots-guard")
    click.echo(_script(shell, description), nl=False)


def _script(shell: Shell, description: CommandDescription) -> str:
    if shell == "bash":
        return bash_script(description)
    if shell == "zsh":
        return zsh_script(description)
    return fish_script(description)
