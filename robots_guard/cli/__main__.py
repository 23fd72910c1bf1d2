"""`python -m robots_guard.cli` runs `robots-guard` with the current interpreter."""

from robots_guard.cli.main import main

main()
