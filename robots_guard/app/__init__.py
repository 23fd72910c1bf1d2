"""The programs: the command line, the web console and the demonstration."""
