"""The contents of each page of the console."""
