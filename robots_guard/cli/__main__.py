"""`python -m robots_guard.cli`: the same as `robots-guard`, by the interpreter at hand."""

from robots_guard.cli import main

main()
