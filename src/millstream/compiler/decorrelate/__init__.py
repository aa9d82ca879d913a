"""Turn correlated subqueries into joins (Neumann and Kemper, "Unnesting Arbitrary Queries").

find, subqueries, attach        find the subqueries of an expression, join each to the rows around it
scope, bindings, column_types   what columns mean; the outer values that a subquery depends on
clauses                         LIMIT, joins and aggregates, computed for all outer values at once
scalar, quantified, on_clause   scalar subqueries; IN, ANY, ALL; subqueries in ON
restrict_groups                 compute only the groups that an outer row can ask for
"""
