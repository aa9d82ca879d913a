-- The database and the server in which this catalog was created, and the names of the objects that it records by oid.

ALTER TABLE millstream.installation
    ADD COLUMN system_identifier text,
    ADD COLUMN database_oid oid,
    ADD COLUMN catalog_oids oid[];
COMMENT ON COLUMN millstream.installation.system_identifier IS 'The server''s; NULL where our role may not ask for it';
COMMENT ON COLUMN millstream.installation.database_oid IS 'The database''s; NULL until the identity is known';
COMMENT ON COLUMN millstream.installation.catalog_oids IS 'Those of the first tables of this catalog: a restored one has others';

ALTER TABLE millstream.sources ADD COLUMN member_names text[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN millstream.sources.member_names IS 'The names of its members, in their order';
UPDATE millstream.sources AS s SET member_names = ARRAY(
    SELECT coalesce(quote_ident(n.nspname) || '.' || quote_ident(c.relname), '')
    FROM unnest(s.members) WITH ORDINALITY AS m (oid, place)
    LEFT JOIN pg_class AS c ON c.oid = m.oid
    LEFT JOIN pg_namespace AS n ON n.oid = c.relnamespace
    ORDER BY m.place
);
