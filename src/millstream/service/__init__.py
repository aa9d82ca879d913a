"""The verbs of Millstream, and `app`, which wires the rooms together.

app, shared                          connections, plans, Spark; what the applications of one process share
verb, api_boundary                   what every verb does first; arguments checked, errors as they leave
block_tables, follow_types           tables of a plan's blocks; column types that follow the query's

define/                              create, alter, drop, validate a stream table
refresh, explain, to_dataframe       verbs about the rows of a stream table
verification/                        compare a stream table with its query
monitoring/                          status, history, health, doctor, `millstream top`
adopt, live_settings                 verbs about the installation
requests/                            send requests to a running service; execute them
run/                                 the service process, `millstream run`

The API and the command line import `App` and the verbs. Rows are changed only by `refresh`, which
this room calls.
"""
