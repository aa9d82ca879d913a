"""When to refresh what, and what to do when a refresh fails.

cadence, due            how often a stream table is due; which ones are due now
graph, dependencies     which stream table reads which (pure); the recorded graph, and the refusal of cycles
round                   the entry: refresh several stream tables, cut by cut, and record the outcomes
cuts                    which stream tables share a cut
repair                  plan again, set capture up again, restore the guard
outcomes                failures, cancellations, suspension
freshness               which stream tables are older than they should be (pure)
context                 what the scheduler needs of the application
"""
