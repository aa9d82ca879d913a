"""Spark. `refresh` uses it by `Engine`, and imports no PySpark; no room below does.

session, java, class_archive      start a session; find Java; Java's classes, loaded faster the next time
engine                            run a statement over Arrow tables: others import `Engine` and `Rows`
inline, parts                     few rows as constants of the statement; many rows in several parts
scan                              read a table in parallel at an exported snapshot
private_files, watchdog, pulse     private files; an end for Java when this process has ended; is Java alive?
"""
