"""Refresh stream tables at one cut.

refresher                     the entry: one cut for all given stream tables, one transaction for all changes
job, batches                  a stream table to refresh; which stream tables share a cut
cut, source_locks, buffers    the snapshot; sources locked against TRUNCATE; the change buffers at the cut
preflight, facts, decide      is the plan valid and capture complete; the facts; what to do (pure)
reads/                        changed rows and every row that they can join
evaluate                      a block on Spark
apply/                        merge into state and target, record frontier and history
carry_out, recursion, report  execute a decision; recursions step by step; what was done and its cost
"""
