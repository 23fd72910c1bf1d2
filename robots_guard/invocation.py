"""The command lines that the program prints: in refusals, on pages, and in the output of other
commands.

Invariant: a printed command works when it is pasted into a shell of the same user on the same
machine, in any directory. It names what such a shell would not find by itself, and nothing else.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

PROGRAM = "robots-guard"
#: The end of a sentence about a name that is no setting.
ALL_SETTINGS = f"{PROGRAM} config show --all lists all"
CONFIG = "config"  # the name of the option that names a configuration file
RECORDS = ("audit_log",)  # what commands need that read the audit log
EVIDENCE = ("audit_log", "store")  # and those that read the robots.txt files, too


class Invocation(NamedTuple):
    """What printed commands must name.

    `given` has settings that no configuration file gives, with the text of their options. `config`
    is the path of the configuration file that gives the settings `in_config`; empty if a shell
    finds it by itself.
    """

    given: Mapping[str, str] = {}
    config: str = ""
    in_config: frozenset[str] = frozenset()

    def command(self, *words: str, needs: Iterable[str] = RECORDS) -> str:
        """Return a command line, quoted for a shell. `needs` are the settings that it depends on."""
        options: list[str] = []
        for name in needs:
            if name in self.given:
                options += [f"--{name.replace('_', '-')}", self.given[name]]
        if not self.in_config.isdisjoint(needs):
            options += [f"--{CONFIG}", self.config]
        return shlex.join((PROGRAM, *words, *options))


def invocation_for(audit_log: Path) -> Invocation:
    """Return the invocation for an audit log, where the configuration is not known."""
    return Invocation({"audit_log": str(audit_log.absolute())})


#: For the defaults: a shell finds everything by itself.
BARE = Invocation()
