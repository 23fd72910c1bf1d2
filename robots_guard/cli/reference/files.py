"""The files that an installation puts beside the command: man pages and completion scripts."""

from __future__ import annotations

from collections.abc import Mapping

from robots_guard.cli.reference.bash import bash_script
from robots_guard.cli.reference.description import CommandDescription
from robots_guard.cli.reference.fish import fish_script
from robots_guard.cli.reference.man_page import man_pages
from robots_guard.cli.reference.zsh import zsh_script


def installed_files(root: CommandDescription, version: str) -> Mapping[str, str]:
    """The texts, by their paths beneath the installation's prefix.

    The paths are those in which man, bash-completion, zsh and fish look for them.
    """
    pages = man_pages(root, version)
    return {
        **{f"share/man/man1/{name}": page for name, page in pages.items()},
        "share/bash-completion/completions/robots-guard": bash_script(root),
        "share/zsh/site-functions/_robots-guard": zsh_script(root),
        "share/fish/vendor_completions.d/robots-guard.fish": fish_script(root),
    }
