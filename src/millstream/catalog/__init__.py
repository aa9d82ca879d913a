"""Millstream's own catalog: the tables of schema `millstream`, one module per table.

    stream_tables, sources, upstreams, blocks, slots, history     rows of the catalog
    targets, target_shape, write_guard                            the tables that hold the rows of stream tables
    definition_digests, digest_cache                              has anything changed that a plan depends on?
    rights, foreign_code                                          may the owner read it; whose code would run?
    mutex                                                         mutual exclusion between processes
    installation/                                                 create, upgrade, adopt and remove the catalog

What PostgreSQL's own catalog says is read by `postgres`.
"""
