"""Define a stream table: create it, change its definition, drop it, or validate a query.

create, create_or_replace    from a query to a populated stream table
alter, redefine              another schedule, mode, status; another query
drop                         the stream table, its state, and capture that no other stream table needs
validate                     plan the query as `create` does, and roll back

Each verb is one function with the name of its module. `service.refresh` computes the rows.
"""
