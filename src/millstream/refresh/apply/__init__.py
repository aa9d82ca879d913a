"""Apply what Spark computed, in the transaction of the cut. The SQL is built by `store`.

merge     stage rows, merge them into state and stream table: others import `Apply`
record    move the frontier, write the history, send notifications: others import `record` and `record_idle`
"""
