"""Where the console script is installed."""

from __future__ import annotations

import sys
from pathlib import Path

COMMAND = str(Path(sys.executable).parent / "robots-guard")
