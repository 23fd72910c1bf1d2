"""Print pip's settings as environment variables for uv, which reads none of them.

Fails if pip has a setting that changes what is installed and that uv has under no name here.
"""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys

#: What pip calls a setting, and the variable of uv.
NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "constraint": "UV_CONSTRAINT",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
}
IRRELEVANT = {
    "disable-pip-version-check",
    "root-user-action",
    "no-cache-dir",
    "cache-dir",
    "progress-bar",
}
SECTIONS = ("global", "install", ":env:")  # in the order in which pip lets one override another
SETTING = re.compile(r"^(\S+?)\.([\w-]+)=(.*)$")


def settings(listed: str) -> dict[str, str]:
    """Return the settings in force from the lines of `pip config list`."""
    found = [match.groups() for line in listed.splitlines() if (match := SETTING.match(line))]
    in_order = sorted(
        (SECTIONS.index(section), name, value)
        for section, name, value in found
        if section in SECTIONS
    )
    return {name: " ".join(ast.literal_eval(value).split()) for _, name, value in in_order}


def variables(pip: dict[str, str]) -> dict[str, str]:
    """Return the variables for uv. Raises KeyError for a setting that has none."""
    named = {NAMES[name]: value for name, value in pip.items() if name not in IRRELEVANT}
    if "UV_FIND_LINKS" in named:
        named["UV_FIND_LINKS"] = named["UV_FIND_LINKS"].replace(" ", ",")
    # pip takes the best version of all indexes, and only a Python that is there.
    return {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_PYTHON_DOWNLOADS": "never", **named}


if __name__ == "__main__":
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True
    ).stdout
    try:
        named = variables(settings(listed))
    except KeyError as error:
        sys.exit(f"pip installs: which setting of uv is pip's {error}?")
    for name, value in named.items():
        print(f"export {name}={shlex.quote(value)}")
