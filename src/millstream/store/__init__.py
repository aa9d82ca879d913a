"""The tables that a stream table keeps besides its own, and the SQL that changes them. Builds SQL, executes none.

names                              what everything is called
state, group_rows, decode          state of groups; rows of touched groups; what Spark returned, decoded
target                             the stream table itself
materialized_rows, recursion       rows of windows, limits, joins and recursions
staging, staging_columns           temporary tables, and the types of their columns
"""
