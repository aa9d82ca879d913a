"""One module per command, named for it: its function `run` and its `EXAMPLE`, which the tests
execute.

`cli.app` lists them. A command calls the Python API by `cli.entry_points` and prints by
`cli.output`; what two commands share stands in the one that had it first (`refresh.summary`,
`verify.verdict`, `doctor.show`, `create.read_query`).
"""
