"""The command `scrapy` in a given directory, for a fork of a process that has imported Scrapy."""

from __future__ import annotations

import os
import sys

from scrapy.cmdline import execute

if __name__ == "__main__":
    os.chdir(sys.argv.pop(1))
    sys.argv[0] = "scrapy"
    execute()
