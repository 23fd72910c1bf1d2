"""`python -m robots_guard.mitmproxy` prints the path of the script for `mitmdump -s`."""

from __future__ import annotations

from pathlib import Path

import click

click.echo(Path(__file__).with_name("script.py"))
