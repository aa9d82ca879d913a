"""Definitions that the query of a stream table depends on: tables, views, functions, types; who may
change or read them.

definition_digests      digests of all definitions under a query; a plan is valid while they stay the same
digest_cache            skip that check while no row of the server's catalog has changed
query_names             the names of relations and columns in the recorded text of a query
rights                  may the owner of the stream table read it?
foreign_code            code of other roles that would run in our sessions
"""
