"""`robots-guard config`: shows, checks and begins the configuration."""
