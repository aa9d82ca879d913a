"""Create the catalog, upgrade it, check that it is ours and of this database, adopt it after a restore, remove it."""
