"""The table that holds the rows of a stream table, and belongs to its owner.

targets         is it still the table that we made?
target_shape    can the rows of the query be stored in it as they are?
write_guard     the trigger that refuses every write but that of a refresh

The SQL that writes rows into it is built by `store.target`.
"""
