"""A build hook that puts the man pages and the completion scripts into the wheel."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommandLineReference(BuildHookInterface):
    """Writes the files into a temporary directory, from which the builder copies them."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the files. An editable installation has none: its commands change with the tree."""
        self._directory = Path(tempfile.mkdtemp(prefix="robots-guard-build-"))
        if version == "editable":
            return
        for place, text in self._files().items():
            source = self._directory / place
            source.parent.mkdir(parents=True, exist_ok=True)
            source.write_text(text, encoding="utf-8")
            source.chmod(0o644)
            build_data["shared_data"][str(source)] = place

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002  hatchling's signature
        """Remove the temporary directory."""
        shutil.rmtree(self._directory)

    def _files(self) -> dict[str, str]:
        sys.path.insert(0, self.root)
        try:
            from robots_guard.cli.main import NAME, commands
            from robots_guard.cli.reference.description import describe
            from robots_guard.cli.reference.files import installed_files

            return dict(installed_files(describe(commands, NAME), self.metadata.version))
        finally:
            sys.path.remove(self.root)
