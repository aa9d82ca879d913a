"""Frozen descriptions of what a query means and of how it is maintained. Pure: no database, no
Spark.

types, table, expr       PostgreSQL's types, tables and scalar expressions
relation                 the query as a tree of relational operators, with one printed form
block, temporal_filter   the plan: a chain of blocks, each with inputs, joins, and at most one stateful operator
wire, text_io            how a value travels to Spark and back, exactly
dialect, rename          reading and printing PostgreSQL's SQL; giving aliases canonical names
query_part               name the part of a query that an unexpected error came from
shortest_path            a search over any directed graph
"""
