"""The command line: one file per command, tables for people, `--json` for programs."""
