"""The command line: `commands/` has one file per command, `app` lists them; tables for people,
`--json` for programs.

app, command, options                 the program and how its commands are declared
output, progress, events, stdio       what is printed where
dry_run                               what `create --dry-run` prints
exit_codes, entry_points              how a command ends; the Python API that it calls
demo/                                 `millstream demo`
"""
