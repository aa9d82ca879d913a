-- The service sleeps until a stream table is due. A change of the catalog rows that it has read wakes it.

CREATE FUNCTION millstream.wake_service() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_notify('millstream_wake', 'stream_tables');
    RETURN NULL;
END
$$;
REVOKE ALL ON FUNCTION millstream.wake_service FROM PUBLIC;
COMMENT ON FUNCTION millstream.wake_service IS 'Tells the service that a stream table has come, gone or changed its schedule';

CREATE TRIGGER wake_service_of_new AFTER INSERT OR DELETE ON millstream.stream_tables
    FOR EACH STATEMENT EXECUTE FUNCTION millstream.wake_service();
-- Not for each refresh, which only moves the frontier.
CREATE TRIGGER wake_service_of_changed AFTER UPDATE ON millstream.stream_tables
    FOR EACH ROW
    WHEN (
        (OLD.schedule, OLD.status, OLD.refresh_mode, OLD.next_try_at, OLD.frontier IS NULL)
        IS DISTINCT FROM (NEW.schedule, NEW.status, NEW.refresh_mode, NEW.next_try_at, NEW.frontier IS NULL)
    )
    EXECUTE FUNCTION millstream.wake_service();
