"""`python -m robots_guard.app.cli` runs `robots-guard` with the current interpreter."""

from robots_guard.app.cli.main import main

main()
