"""Run Spark: `session` starts it, `engine` runs statements, `scan` reads tables, `parts` moves many rows."""
