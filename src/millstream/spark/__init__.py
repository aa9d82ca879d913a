"""Spark: `session` starts it, `engine` runs statements, `scan` reads tables in parallel, `parts` moves many rows."""
