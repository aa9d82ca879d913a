"""`millstream demo`: a shop with live traffic, three stream tables over it, and a verification at
the end.

command             the whole demo, from the first step to the exit code; others import `run` and `EXAMPLE`
service, steps      the process of the service; a line for each step
story, sql_door     the three stream tables; asked for and verified by SQL
watch, board, view  read the database; the figures read so far; the screen
"""

from millstream.cli.demo.command import EXAMPLE, run

__all__ = ["EXAMPLE", "run"]
