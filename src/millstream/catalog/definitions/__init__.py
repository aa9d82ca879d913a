"""What lies under the query of a stream table: tables, views, functions, types, and who may change
or read them.

definition_digests      digests of all definitions under a query; a plan is valid while they stay the same
digest_cache            skip that check while no row of the server's catalog has changed
query_names             what the recorded query text calls its relations and columns
rights                  may the owner of the stream table read it?
foreign_code            code of other roles that would run in our sessions
"""
