"""Report the state of the service and its stream tables. No verb here changes anything or starts
Spark.

status         the verbs status and history
health         is every stream table fresh, is every source captured?
doctor         the requirements of Millstream on this machine and in the database
repair_hint    can the next refresh set up missing capture again? (for doctor and health)
overview       what `millstream top` shows, for members of `millstream_reader`
"""
