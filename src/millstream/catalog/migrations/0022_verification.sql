-- Results of continuous verification.

CREATE TABLE millstream.verification_failures (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    stream_table_id bigint NOT NULL REFERENCES millstream.stream_tables ON DELETE CASCADE,
    found_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    frontier pg_snapshot NOT NULL,
    data_timestamp timestamptz NOT NULL,
    missing bigint NOT NULL,
    extra bigint NOT NULL,
    sample jsonb NOT NULL
);
COMMENT ON TABLE millstream.verification_failures IS 'Comparisons of a stream table with its query that found a difference';
COMMENT ON COLUMN millstream.verification_failures.missing IS 'Rows that the query has and the stream table has not';
COMMENT ON COLUMN millstream.verification_failures.extra IS 'Rows that the stream table has and the query has not';
COMMENT ON COLUMN millstream.verification_failures.sample IS 'Some of these rows';
CREATE INDEX verification_failures_stream_table_idx ON millstream.verification_failures (stream_table_id, found_at);
