"""`robots-guard demo`: both integrations on a small local site."""
