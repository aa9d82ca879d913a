-- The time of a stream table's last refresh, in addition to its data timestamp, which is earlier if it reads a stream
-- table that was refreshed earlier.

ALTER TABLE millstream.stream_tables ADD COLUMN cut_at timestamptz;
UPDATE millstream.stream_tables SET cut_at = data_timestamp;
COMMENT ON COLUMN millstream.stream_tables.cut_at IS 'The time of the last cut that it was refreshed in';
COMMENT ON COLUMN millstream.stream_tables.data_timestamp IS 'All that was committed before is in its rows: the least of its own cut and of the data timestamps of the stream tables it read there';
