"""The PostgreSQL driver: everything that knows the server and nothing of stream tables.

connection                connections with pinned session settings
fence                     a condition that every transaction of a session must meet before it commits
composed                  the parts that statements are composed of: others import `Printed` and its helpers
sql_files, copy           fixed SQL as named blocks; rows between COPY and Arrow
relations, lineage        columns, keys and partitions of relations; what a view reads
table_locks, lock_table   take locks without blocking writers; how full the server's lock table is
failures                  what an error means: transient or not, and which of our errors it becomes
notifications             NOTIFY with JSON
"""
