"""The verbs of Millstream, one module each, and `app`, which wires the rooms together.

create, alter, drop, refresh, verify, validate, explain, status, health, doctor, adopt, to_dataframe     the verbs
app, verb, api_boundary         connections, plans and Spark; what every verb does first; errors that leave
block_tables, repair            the tables of a plan's blocks; repair what prevents a refresh
compare, repair_hint            used by verify; used by health and doctor
"""
