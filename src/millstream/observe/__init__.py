"""What operators and tests see of a running process. Every room may use it.

log          events with fields, as lines or as JSON
failpoint    named steps at which tests kill the process; without a test they do nothing
"""
