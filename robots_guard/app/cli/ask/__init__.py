"""The commands that judge URLs: `check` and `explain`."""
