"""The man pages and the completion scripts of the command line, made from its commands."""
