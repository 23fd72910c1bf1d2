"""`robots-guard config`: shows and checks the configuration, and writes a file to start from."""
