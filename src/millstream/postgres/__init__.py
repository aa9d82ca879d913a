"""The PostgreSQL driver: everything that knows the server and nothing of stream tables.

connection                connections with pinned session settings
sql_files, copy           fixed SQL as named blocks; rows between COPY and Arrow
relations, lineage        what the server's catalog says of relations, and of what a view reads
table_locks, lock_table   take locks without blocking writers; how full the server's lock table is
failures                  what an error means: transient or not, and as which of our errors
notifications             NOTIFY with JSON
"""
