"""One module per command; each has a function `run` and an example that the tests execute."""
