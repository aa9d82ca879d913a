"""Define a stream table: create it, change its definition, drop it, or validate a query.

create, create_or_replace    from a query to a filled stream table
alter, redefine              another schedule, mode, status; another query
drop                         the stream table, its state, and capture that no other stream table needs
validate                     plan the query as `create` does, and roll back

Each verb is one function of the name of its module. Rows are computed by `service.refresh`.
"""
