"""Create the catalog, upgrade it, check that it is ours and of this database, adopt it after a
restore, remove it.

install           the entry: install or upgrade, look whether it is there, uninstall
identity          the database and the server that it was made in
trust             may a session of this role use it?
roles             grants to readers, operators and the owners of stream tables
event_triggers    notifications of DDL, and the guard against it
adoption          rewrite oids after a restore

Others call `install` first; nothing here knows of plans or of Spark.
"""
