"""Ask PostgreSQL about a query. The only part of the compiler that uses a connection.

plan_query                     the entry: from a query's text to its plan, or to a refusal
queries, viewdef, parentheses  the canonical text that the server prints, in a form that it reads again
node_tree, volatility, check   the analysed tree; which functions are stable enough; what is refused
position, find_call            the place of a refused construct in the user's text
total_order                    an ORDER BY without ties
questions                      what the pure rooms ask, as a protocol that tests can implement
upstreams                      the stream tables that a query reads
"""
