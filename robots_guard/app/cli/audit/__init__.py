"""`robots-guard audit`: the commands that read the audit log."""
