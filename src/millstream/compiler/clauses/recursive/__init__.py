"""WITH RECURSIVE.

recursion       the entry: a query that reads itself becomes a Recursion
search_cycle    SEARCH and CYCLE, rewritten by columns that hold paths
"""
