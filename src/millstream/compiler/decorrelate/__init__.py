"""Turn correlated subqueries into joins (Neumann and Kemper, "Unnesting Arbitrary Queries").

scope                           name resolution: which column a name refers to
syntax, find                    parts of a SELECT; the subqueries of an expression
correlation, column_types       the outer columns that a subquery refers to, and their types
bindings, inline_with           the distinct values of outer columns; WITH queries that refer to them
attach, subqueries              join each subquery of an expression to the rows of the enclosing query
scalar, quantified, on_clause   scalar subqueries; IN, ANY, ALL; subqueries in ON
clauses                         LIMIT, joins and aggregates, computed for all bindings at once
restrict_groups                 compute only the groups that an outer row can read
"""
