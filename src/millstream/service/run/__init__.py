"""The service, `millstream run`: keep every stream table of a database fresh.

process                   one run of the program: signals, waiting for the server, standby and leader in turn
candidacy                 the lock of the leader, and the thread that checks that it is still held
leader                    the loop: give due stream tables to the workers
source_index              which stream tables may have changes, by their sources
workers                   threads that refresh, each with connections and a Spark session of its own
desk                      requests: which may begin, and workers for them
continuous_verification   compare stream tables with their queries in idle time
upkeep, held_back         alerts about stale stream tables and growing buffers; pruning the history
capture_thread            the thread that reads WAL and moves sources to it
wake_ups                  sleep until a time, a notification, a signal or another thread ends it
systemd                   readiness and watchdog
"""
