"""GROUP BY, aggregates and grouping sets.

group_by         the entry: others import `build_groups`
grouping         keys and aggregate calls as columns of the groups
grouping_sets    one SELECT for each set of GROUPING SETS, ROLLUP and CUBE
"""
