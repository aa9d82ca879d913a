"""Compare a stream table with its query.

verify          the verb: refresh, then compare at the same snapshot
compare         the comparison: two bags, subtracted from each other
verification    its result

When the service verifies by itself is decided in `service.run.continuous_verification`.
"""
