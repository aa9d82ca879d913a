"""Turn the canonical text of a query into a Relation: `build` is the entry, each clause has a module."""
