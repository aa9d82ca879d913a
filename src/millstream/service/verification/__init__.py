"""Compare a stream table with its query.

verify          the verb: refresh, then compare at the same snapshot
compare         subtract the rows of both from each other, as bags
verification    its result

`service.run.continuous_verification` decides when the service verifies by itself.
"""
