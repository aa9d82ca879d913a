"""A query becomes blocks, and blocks become Spark SQL. Pure, except for `server/`.

server/        ask PostgreSQL: canonical text, types, volatility; `plan_query` is the entry
clauses/       canonical text -> Relation, one module per clause
decorrelate/   correlated subqueries -> joins
placement/     which expressions PostgreSQL evaluates, and which Spark
blocks/        Relation -> chain of blocks
lowering/      block -> Spark SQL, one module per operator
workaround     what a refusal's hint tells the user to write instead
"""
