"""`millstream demo`: a shop with live traffic, three stream tables over it, and a proof at the end.

command             the entry: from the first step to the exit code; others import `run` and `EXAMPLE`
service, steps      the process of the service; a line for each step
story, sql_door     the three stream tables; asked for and verified by SQL
watch, board, view  look at the database; what was seen; how it is shown
"""

from millstream.cli.demo.command import EXAMPLE, run

__all__ = ["EXAMPLE", "run"]
