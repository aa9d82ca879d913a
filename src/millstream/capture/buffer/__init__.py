"""Change buffers: one table per source, whoever fills it.

slices          names and conditions of what lies between two frontiers; `pending` counts it
buffer_table    create a buffer, add columns, mark that rows are missing
probe           which of many sources have a change, in one query
prune           delete rows that every reader has consumed

Others import these modules whole. Rows are written by `capture.trigger` and `capture.wal`, and read
by `refresh`.
"""
