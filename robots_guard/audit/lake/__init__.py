"""The export of the audit log to Parquet files by day, in a directory or an object store."""
