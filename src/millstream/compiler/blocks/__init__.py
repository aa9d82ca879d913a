"""Split a Relation into a chain of blocks.

split, chain                         the entry; which operators get a block of their own
flatten, region, branch              joins as regions, outputs over them, one branch of a block
group_block, aggregate_state         aggregates: keys, the state of a group, how results are read from it
window_and_limit, recursion_block    blocks whose rows are materialized
stateless_block, count_distinct      blocks without state; count(DISTINCT x)
row_keys, demand, push_filters       the key of the result; what must be read; filters that depend on single rows
"""
