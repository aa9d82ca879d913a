"""Decide who evaluates which expression: PostgreSQL while reading or applying, or Spark.

place, placement      the decision and its result
spark_exact           what Spark computes exactly as PostgreSQL does
row_error             the error that an expression raises for a row, so that it is raised above the joins only
arithmetic            numeric arithmetic across tables under a sum
row_comparison        comparisons of rows and lists, written as comparisons of values
decimals/             how many digits a numeric has: declared, displayed, unbounded
"""
