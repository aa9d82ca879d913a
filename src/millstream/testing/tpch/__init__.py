"""TPC-H for tests and benchmarks.

load       tables and data of a scale
queries    the 22 queries as PostgreSQL writes them
changes    changes that reach every table, with a seed
"""
