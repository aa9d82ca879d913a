"""`millstream demo`: a shop with live traffic, three stream tables over it, and a proof at the end."""

from millstream.cli.demo.command import EXAMPLE, run

__all__ = ["EXAMPLE", "run"]
