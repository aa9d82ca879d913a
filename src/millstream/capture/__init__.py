"""From a commit in a source table to durable changes in its buffer.

    buffer/       the tables that hold changes: create, slice, prune
    trigger/      capture by triggers: which ones, their functions, set up and repaired
    wal/          capture from the WAL: slot, pipeline, follower
    transition/   move a source from triggers to the WAL and back, exactly once

Reading changes for a refresh is not done here: `refresh` asks `buffer.slices` for the condition of
a slice.
"""
