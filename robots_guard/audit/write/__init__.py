"""Writing the audit log: one file per process, their maintenance, and the archive of fetches."""
