"""Millstream's own catalog: the tables of schema `millstream`, one module per table.

stream_tables, upstreams, blocks, row_key     stream tables, what they read, their blocks and keys
sources, slots                                sources of changes; the replication slot and its cursor
history, journal, verifications               completed and running refreshes; results of comparisons
requests, setting_definitions                 requests to the service; settings stored in the database
definitions/                                  the definitions that a query depends on: changes, rights
target/                                       the table that holds the rows of a stream table
processes/                                    mutual exclusion of processes; the leader and its epoch
installation/                                 create, upgrade, adopt and remove the catalog

A module has the statements of its table, in a `.sql` file of its name, and frozen classes for the
rows. Rooms above import the module and call its functions. The room `postgres` reads PostgreSQL's
own catalogs.
"""
