"""`robots-guard policy`: the commands that show and change the stored policies."""
