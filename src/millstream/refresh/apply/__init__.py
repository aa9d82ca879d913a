"""Apply what Spark computed, in the cut's transaction: `merge` the rows, `record` frontier and history."""
