"""What differs when a page is executed here, instead of on a reader's machine.

`NOT_RUN` are commands that cannot run here, with the reason. `REPLACED` are commands that run in
another form. `PREPARED` is what the reader of a page already has. Nothing else differs.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from docs.page import Command, File, Step


class NotRun(NamedTuple):
    """A pattern of pages, a pattern of their commands, and why these cannot run here."""

    page: str
    command: str
    reason: str


class Replaced(NamedTuple):
    """A pattern of pages, a pattern of what stands in their commands, and what runs instead."""

    page: str
    command: str
    instead: str


INDEX = "asks a package index; tests/test_readme.py checks that the extras exist"
NOT_RUN = [
    NotRun(".*", r"^pip install ", INDEX),
    NotRun("(README|CONTRIBUTING).md", r"^(python3 -m venv )?\.venv\S*", INDEX),
    NotRun("CONTRIBUTING.md", r"^PYTHONPATH=tests python -m integrations", "takes hours"),
    NotRun("CONTRIBUTING.md", r"^tox -e (mutants|upstream)", "takes too long"),
    NotRun("CONTRIBUTING.md", r"^python -m tests.simulation", "takes hours"),
    NotRun(
        "docs/proxy.md",
        r"^iptables |--mode transparent",
        "needs the rights to change the firewall; tests/integrations/mitmproxy/test_machines.py",
    ),
    NotRun(
        "docs/proxy.md",
        r"^chromium ",
        "opens a window; tests/integrations/mitmproxy/test_browser.py uses these flags",
    ),
    NotRun("docs/start/kubernetes.md", r"^kubectl ", "needs a cluster"),
    NotRun(
        "docs/operations/containers.md",
        r"^(podman|docker|kubectl|htpasswd|chmod|cd examples|curl -x http://alice)",
        "needs an engine of containers, a registry or a cluster; tests/release checks the files",
    ),
    NotRun("docs/operations/install.md", r"^(python3 -m venv|\.venv|pipx|uv) ?", INDEX),
    NotRun("docs/operations/install.md", r"^sha256sum ", "needs a release"),
    NotRun("docs/audit.md", r"--tsa", "asks a time-stamping authority; tests/audit/extra"),
    NotRun("docs/audit.md", r"--store sqlite:////var/lib", "is a store of the reader's"),
    NotRun("docs/audit.md", r"\| your-own", "is a program of the reader's"),
    NotRun("docs/index.md", r"^python3 -m venv ", INDEX),
    NotRun(
        "docs/operations/systemd.md",
        r"^(python3 -m venv|/opt/|cp examples/|systemctl|journalctl) ?",
        "changes the system; tests/integrations/mitmproxy/test_examples.py checks the unit",
    ),
    NotRun(
        "docs/operations/systemd.md",
        r"^curl -f?x http://127.0.0.1:8080 http://robots.guard/",
        "asks the service; tests/integrations/mitmproxy/test_itself.py asks a proxy",
    ),
    NotRun("docs/squid.md", r"^apt-get |^python3 -m venv ", INDEX),
    NotRun(
        "docs/squid.md",
        r"^systemctl |^curl ",
        "needs systemd, and Squid's user; tests/integrations/squid fetch through Squid",
    ),
    NotRun("docs/operations/backup.md", r"/srv/robots_guard", "is a machine of the reader's"),
    NotRun(
        "docs/operations/lake.md",
        r"^duckdb |^rclone |--audit-log copied",
        "needs a log of earlier days; tests/release/test_lake.py runs these commands on one",
    ),
    NotRun("docs/console.md", r"--listen 192\.0\.2\.7", "is an address of the reader's"),
]
#: Debian's node-undici, where npm would put it.
UNDICI = "export NODE_PATH=/usr/share/nodejs; mkdir node_modules && ln -s $NODE_PATH/undici node_modules/"
#: Debian's Chromium, where Playwright would put its own. Its sandbox does not start for root.
BROWSER = (
    "dir=$(playwright install --dry-run chromium | sed -n '/headless_shell/s/.*: *//p' | head -1)/"
    "chrome-headless-shell-linux64; mkdir -p $dir; ln -s $(which chromium) $dir/chrome-headless-shell"
)
REPLACED = [
    Replaced("docs/squid.md", r"/opt/robots_guard/bin/", ""),
    # The page also shows a file, which its reader need not have.
    Replaced(
        "docs/configuration.md", r"^robots-guard config init$", "rm robots_guard.toml && \\g<0>"
    ),
    Replaced("README.md|docs/(audit|cli).md", r"\b4e2bd4cefa-2\b", "$id"),
    Replaced(
        "docs/audit.md",
        r"\b5f2a9c1e\b",
        "$(robots-guard audit hold | grep -om1 '[0-9a-f]\\{8\\}')",
    ),
    Replaced("docs/start/browser.md", r"^playwright install .*", BROWSER),
    Replaced("docs/start/browser.md", r"^chromium ", "chromium --no-sandbox "),
    Replaced("docs/start/node.md", r"npm install undici", UNDICI),
    Replaced("docs/(audit|operations/backup).md", r"/etc/robots_guard/", "./"),
]

ROBOTS = "User-agent: *\nDisallow: /private/\n"
#: A refusal in the audit log, whose id the page names in its commands.
REFUSAL = [
    "robots-guard check --agent mybot https://example.com/private/x",
    "id=$(robots-guard why --json https://example.com/private/x |"
    " grep -om1 '[0-9a-f]\\{10\\}-[0-9]*' | head -1); test $id",
]
#: A policy of a site that answers 503.
#: It may be fetched again after a second.
UNREACHABLE = ["robots-guard policy refresh --agent mybot https://example.net", "sleep 2"]
PREPARED: dict[str, list[File | str]] = {
    "README.md": [
        *REFUSAL,
        File(0, "robots.txt", ROBOTS),
        File(0, "origins.txt", "https://example.com\nhttps://example.org\n"),
        File(0, "questions.jsonl", '{"robots_txt": "", "url": "https://example.com/a"}\n'),
    ],
    "docs/audit.md": ["export ROBOTS_GUARD_AUDIT=evidence", *REFUSAL],
    "docs/cli.md": [*REFUSAL, *UNREACHABLE, File(0, "crawl.txt", "https://example.com\n")],
    "docs/console.md": [*REFUSAL],
    "docs/cookbook/intranet.md": ["cp $CORP_CA corp-ca.pem"],
    "docs/faq.md": [*REFUSAL],
    "docs/operations/backup.md": [
        "export ROBOTS_GUARD_AUDIT=evidence",
        "robots-guard audit keys --create audit.pem",
        *REFUSAL,
    ],
    "docs/operations/monitoring.md": [*REFUSAL],
    "docs/operations/upgrade.md": [
        *REFUSAL,
        File(0, "questions.jsonl", '{"robots_txt": "", "url": "https://example.com/a"}\n'),
    ],
    "docs/lint.md": [File(0, "tdmrep.json", '[{"location": "/", "tdm-reservation": 1}]\n')],
    "docs/redirects.md": [*REFUSAL],
    "docs/signals.md": [File(0, "robots.txt", ROBOTS)],
}


def reason_not_to_run(page: str, text: str) -> str:
    """Return why a command of a page cannot run here, or ''."""
    for each in NOT_RUN:
        if re.fullmatch(each.page, page) and re.search(each.command, text):
            return each.reason
    return ""


def executable(page: str, steps: list[Step]) -> list[Step]:
    """Return what is executed of a page: its preparation, and its steps as they can run here."""
    prepared = [
        step if isinstance(step, File) else Command(0, step, []) for step in PREPARED.get(page, [])
    ]
    runs = [
        step for step in steps if isinstance(step, File) or not reason_not_to_run(page, step.text)
    ]
    return [*prepared, *(_replaced(page, step) for step in runs)]


def _replaced(page: str, step: Step) -> Step:
    """Return a step, with another command if the page's cannot run here."""
    if isinstance(step, File):
        return step
    text = step.text
    for each in REPLACED:
        if re.fullmatch(each.page, page):
            text = re.sub(each.command, each.instead, text)
    return replace(step, text=text)
