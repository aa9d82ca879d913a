-- Stream tables are written by refreshes only: a trigger on each of them refuses every other write.

-- The secret by which a refresh identifies itself. No other role can read it.
CREATE TABLE millstream.guard_secret (
    secret uuid NOT NULL DEFAULT gen_random_uuid()
);
COMMENT ON TABLE millstream.guard_secret IS 'What a refresh proves itself by to the guards of stream tables; one row, for ever';
CREATE UNIQUE INDEX guard_secret_has_one_row ON millstream.guard_secret ((true));
INSERT INTO millstream.guard_secret DEFAULT VALUES;

CREATE FUNCTION millstream_changes.write_permit(stream_table oid) RETURNS text
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT encode(sha256(convert_to(concat_ws(' ', secret, pg_current_xact_id(), stream_table), 'UTF8')), 'hex')
    FROM millstream.guard_secret
$$;
COMMENT ON FUNCTION millstream_changes.write_permit IS 'What the setting millstream.write_permit must be for a statement of this transaction to write to a stream table';

-- Any role can set the setting, but only the service role can compute its value. Writes of a user's trigger are refused
-- even in a refresh: their trigger depth is greater.
CREATE FUNCTION millstream_changes.guard() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF pg_trigger_depth() = 1
        AND current_setting('millstream.write_permit', true) = millstream_changes.write_permit(TG_RELID)
    THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION USING
        ERRCODE = 'wrong_object_type',
        MESSAGE = format('cannot %s %I.%I: it is a stream table', lower(TG_OP), TG_TABLE_SCHEMA, TG_TABLE_NAME),
        DETAIL = 'Its rows are those of its query, and are written by refreshes only.',
        HINT = 'Change the tables that the query reads. The setting allow_direct_writes permits direct writes.';
END
$$;
COMMENT ON FUNCTION millstream_changes.guard IS 'Refuses every write to a stream table that is not a refresh';
REVOKE ALL ON FUNCTION millstream_changes.write_permit, millstream_changes.guard FROM PUBLIC;

ALTER TABLE millstream.stream_tables ADD COLUMN is_guarded boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN millstream.stream_tables.is_guarded IS 'Its guard was installed; where the guard is missing then, somebody else may have written to it';
