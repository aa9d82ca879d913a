-- The service: its leader, its requests, and the results of refreshes by schedule.

-- The leader writes its epoch here before it does anything else; every transaction in which it refreshes locks the row of its
-- epoch. So a process that has lost the leadership cannot commit.
CREATE TABLE millstream.leadership (
    epoch bigint PRIMARY KEY,
    instance uuid,
    since timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE millstream.leadership IS 'The process that refreshes by schedule; exactly one row';
COMMENT ON COLUMN millstream.leadership.epoch IS 'Number of times that a process became leader';
COMMENT ON COLUMN millstream.leadership.instance IS 'The leader, a row of millstream.services; NULL before the first one';
CREATE UNIQUE INDEX leadership_has_one_row ON millstream.leadership ((true));
INSERT INTO millstream.leadership (epoch) VALUES (0);

CREATE TABLE millstream.services (
    instance uuid PRIMARY KEY,
    pid integer NOT NULL,
    host text NOT NULL,
    version text NOT NULL,
    role text NOT NULL CONSTRAINT services_role_check CHECK (role IN ('LEADER', 'STANDBY')),
    backend_pid integer NOT NULL,
    backend_start timestamptz NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    last_tick_at timestamptz
);
COMMENT ON TABLE millstream.services IS 'Each running process of the command run';
COMMENT ON COLUMN millstream.services.backend_pid IS 'The server process of the session that holds its locks and shows that it is alive';
COMMENT ON COLUMN millstream.services.backend_start IS 'When that server process started: process ids are used again';
COMMENT ON COLUMN millstream.services.last_tick_at IS 'Written when something was done; an idle leader shows that it is alive by its session only';

CREATE TABLE millstream.requests (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL CONSTRAINT requests_kind_check
        CHECK (kind IN ('create', 'create_or_replace', 'alter', 'drop', 'refresh', 'verify', 'validate', 'explain_query')),
    stream_table text,
    arguments jsonb NOT NULL DEFAULT '{}',
    search_path text NOT NULL,
    requested_by name NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    status text NOT NULL DEFAULT 'WAITING' CONSTRAINT requests_status_check
        CHECK (status IN ('WAITING', 'RUNNING', 'DONE', 'FAILED')),
    started_at timestamptz,
    finished_at timestamptz,
    result jsonb,
    error jsonb
);
COMMENT ON TABLE millstream.requests IS 'What roles have asked the service for, and how it ended';
COMMENT ON COLUMN millstream.requests.stream_table IS 'The name as it was given';
COMMENT ON COLUMN millstream.requests.search_path IS 'The search_path of the session that asked: names in the request are looked up along it';
COMMENT ON COLUMN millstream.requests.requested_by IS 'The role whose rights decide what the request may do';
CREATE INDEX requests_open_idx ON millstream.requests (id) WHERE status IN ('WAITING', 'RUNNING');

ALTER TABLE millstream.stream_tables
    ADD COLUMN next_try_at timestamptz,
    ADD COLUMN no_data_refreshes bigint NOT NULL DEFAULT 0,
    ADD COLUMN last_verified_at timestamptz,
    ADD COLUMN last_verified_ok boolean;
COMMENT ON COLUMN millstream.stream_tables.next_try_at IS 'After a failed refresh: not tried again by schedule before this time';
COMMENT ON COLUMN millstream.stream_tables.no_data_refreshes IS 'Scheduled refreshes that found no change; they leave no history';
COMMENT ON COLUMN millstream.stream_tables.last_verified_at IS 'When it was last compared with its query';
COMMENT ON COLUMN millstream.stream_tables.last_verified_ok IS 'True if that comparison found no difference';
