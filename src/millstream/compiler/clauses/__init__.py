"""Turn the canonical text of a query, in which the server has resolved all names, into a Relation.

build                            the entry; the order in which the clauses of a SELECT are built
from_clause, values              FROM: tables, views, subqueries, joins; VALUES
from_functions, select_functions set-returning functions in FROM, and in the select list
conditions                       WHERE, HAVING and ON
groups/                          GROUP BY, grouping sets, aggregates
windows, select_list, limit      window functions; the select list, DISTINCT, ORDER BY, LIMIT
set_operations                   UNION, INTERSECT, EXCEPT
with_queries, recursive/         WITH; WITH RECURSIVE, SEARCH, CYCLE
clock, clock_join                now() and the like: a table of one row that is joined
array_subquery, subquery_order   rewritten in the text first: ARRAY(subquery), ORDER BY of a subquery in FROM
"""
