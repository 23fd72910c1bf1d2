"""The command line, `robots-guard COMMAND`: one module per command, or a package for a group of them."""
