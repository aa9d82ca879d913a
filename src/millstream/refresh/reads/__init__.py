"""Read what a block needs: the changes, and every row that they can join.

demand            send keys along the join tree, and read the rows that have them
access_paths      lookups, scans, slices: the cheapest way to read an input
read_sql          the SQL of each
input_rows        the rows of one input, as they are collected
semijoin          semi-join reduction
single_rows       old and new versions of the single rows that temporal filters depend on
"""
