"""Say how things stand, and change nothing. No verb here starts Spark.

status         the verbs status and history
health         does every stream table keep up, is every source captured?
doctor         is everything there that Millstream needs, on this machine and in the database?
repair_hint    would the next refresh set up again what is missing? (for doctor and health)
overview       what `millstream top` shows, for members of `millstream_reader`
"""
