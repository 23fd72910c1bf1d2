"""The proxy as a program: start, worker processes, certificate authority, users and shutdown."""
