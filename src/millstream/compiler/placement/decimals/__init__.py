"""How many digits a numeric expression has. Spark's decimals have 38, PostgreSQL's numeric has no
bound.

declared     digits by type: `numeric(12,2)`, integers, constants
displayed    the scale that PostgreSQL shows: 2.50 is equal to 2.5, and prints differently
unbounded    columns that may hold more digits, NaN or an infinity
"""
