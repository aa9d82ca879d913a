"""One refresh of several stream tables at one cut, chapter by chapter.

refresher                     the entry: one cut for all that are given, one transaction for all they change
job, batches                  what is asked for; which stream tables share a cut
cut, source_locks, buffers    the snapshot; sources locked against TRUNCATE; the change buffers at the cut
preflight, facts, decide      is the plan valid and capture complete; what is known; what to do (pure)
reads/                        changed rows and every row that they can join
evaluate                      a block on Spark
apply/                        merge into state and target, record frontier and history
carry_out, recursion, report  the chapters in order; recursions step by step; what it cost
"""
