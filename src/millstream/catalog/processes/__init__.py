"""Processes of Millstream that work on one database at the same time.

mutex         mutual exclusion, by locks that only the service role can take
leadership    which process refreshes by schedule, and the epoch that prevents a former leader from committing
"""
