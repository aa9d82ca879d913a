"""One module per command, named for it: its function `run` and its `EXAMPLE`, which the tests
execute.

`cli.app` lists them. A command calls the Python API through `cli.entry_points` and prints with
`cli.output`. A function that several commands share is in the module that it belongs to most
(`refresh.summary`, `verify.verdict`, `doctor.show`, `create.read_query`).
"""
