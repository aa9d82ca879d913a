"""Create the catalog, upgrade it, check its owner and its database, adopt it after a restore,
remove it.

install           install or upgrade, check the version, uninstall
identity          the database and the server in which it was created
trust             may a session of this role use it?
roles             grants to readers, operators and the owners of stream tables
event_triggers    notifications of DDL, and the guard against it
adoption          rewrite oids after a restore

Other rooms call `install` first. Nothing here depends on plans or on Spark.
"""
