"""Lint: what in a robots.txt may not do what its author meant, and what each dialect makes of it. No I/O."""
