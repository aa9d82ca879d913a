"""The verbs of Millstream, and `app`, which wires the rooms together.

app, shared                          connections, plans, Spark; shared plans of the applications of a process
verb, api_boundary                   checks before every verb; arguments and errors of the Python API
block_tables, follow_types           tables of a plan's blocks; column types that follow the query's

define/                              create, alter, drop, validate a stream table
refresh, explain, to_dataframe       verbs about the rows of a stream table
verification/                        compare a stream table with its query
monitoring/                          status, history, health, doctor, `millstream top`
adopt, live_settings                 verbs about the installation
requests/                            send requests to a running service; execute them
run/                                 the service process, `millstream run`

The API and the command line import `App` and the verbs. Only the room `refresh` changes rows.
"""
