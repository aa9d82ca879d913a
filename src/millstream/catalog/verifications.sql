-- record --
UPDATE millstream.stream_tables SET last_verified_at = clock_timestamp(), last_verified_ok = %s WHERE id = %s;

-- add_evidence --
INSERT INTO millstream.verification_failures (stream_table_id, frontier, data_timestamp, missing, extra, sample)
VALUES (%s, %s, %s, %s, %s, %s);

-- prune --
DELETE FROM millstream.verification_failures
WHERE stream_table_id = %s AND id NOT IN (
    SELECT id FROM millstream.verification_failures WHERE stream_table_id = %s ORDER BY id DESC LIMIT %s
);
