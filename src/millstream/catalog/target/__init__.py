"""The table that holds the rows of a stream table, and belongs to its owner.

targets         is it still the table that Millstream created?
target_shape    can it store the rows of the query unchanged?
write_guard     the trigger that refuses every write except those of a refresh

`store.target` builds the SQL that writes rows into it.
"""
