"""Build the SQL that reads and changes the state of stream tables. Nothing is executed here.

names                              names of state tables, views and staging tables
state, group_rows, decode          state of groups; rows of touched groups; rows from Spark, decoded
target                             the stream table's own table
materialized_rows, recursion       rows of windows, limits, joins and recursions
staging, staging_columns           temporary tables; values and rows in the types of their columns
"""
