-- Which stream tables read which; the graph must have no cycle.

CREATE TABLE millstream.upstreams (
    stream_table_id bigint NOT NULL REFERENCES millstream.stream_tables ON DELETE CASCADE,
    upstream_id bigint NOT NULL REFERENCES millstream.stream_tables ON DELETE CASCADE,
    via text[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (stream_table_id, upstream_id)
);
COMMENT ON TABLE millstream.upstreams IS 'Which stream table reads which other one, and the views and functions in between';
CREATE INDEX upstreams_upstream_id_idx ON millstream.upstreams (upstream_id);

INSERT INTO millstream.upstreams (stream_table_id, upstream_id)
SELECT d.stream_table_id, t.id
FROM millstream.dependencies AS d
JOIN millstream.stream_tables AS t ON t.relid = d.source_relid;
