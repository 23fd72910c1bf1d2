"""A project's folder, and the system's and the user's configuration folders, all empty."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from robots_guard.configuration import files, read_configuration


class Places(NamedTuple):
    """The folders in which files are looked for. `variables` is the environment."""

    system: Path
    user: Path
    project: Path
    variables: dict[str, str]

    def write(self, text: str, name: str = "robots_guard.toml", mode: int = 0o644) -> Path:
        """Write a file of the project."""
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def read(self, component: str = "cli", **options):
        """Read the configuration with the working directory in the project."""
        options = {"environ": self.variables, "directory": self.project} | options
        return read_configuration(component, **options)

    def values(self, component: str = "cli", **options):
        """The values of the configuration, without their sources."""
        found = self.read(component, **options)
        return {name: each.value for name, each in found.values.items()}


@pytest.fixture
def places(tmp_path, monkeypatch) -> Places:
    names = ("system", "user", "home/project")
    system, user, project = (tmp_path / name for name in names)
    for folder in (system, user, project):
        folder.mkdir(parents=True)
    monkeypatch.setattr(files, "_system_directory", lambda: system)
    monkeypatch.setattr(files.platformdirs, "user_config_path", lambda _: user)
    return Places(system, user, project, {})
