"""The verbs of Millstream, and `app`, which wires the rooms together.

app, shared                          connections, plans, Spark; what the applications of one process share
verb, api_boundary                   what every verb does first; arguments checked, errors as they leave
block_tables, follow_types           tables of a plan's blocks; column types that follow the query's

define/                              create, alter, drop, validate a stream table
refresh, explain, to_dataframe       verbs about the rows of a stream table
verification/                        compare a stream table with its query
monitoring/                          status, history, health, doctor, `millstream top`
adopt, live_settings                 verbs about the installation
requests/                            ask a running service for work; execute what was asked for
run/                                 the service process, `millstream run`

Doors import `App` and the verbs. Whoever changes rows goes through `refresh`, which this room only calls.
"""
