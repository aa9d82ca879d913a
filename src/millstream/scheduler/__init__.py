"""When to refresh what.

cadence         how often a stream table is due
graph           which stream table reads which; cycles (pure)
dependencies    that graph as it is recorded in the catalog
"""
