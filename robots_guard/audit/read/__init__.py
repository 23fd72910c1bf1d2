"""Reading the audit log: as a stream of records, by SQL, and for verification and replay."""
