"""The explorer: a page on this machine alone that answers which mechanism to use."""
