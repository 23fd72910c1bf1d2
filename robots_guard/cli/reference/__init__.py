"""What people read and complete of the command line, made from the commands: man pages, and completion scripts."""
