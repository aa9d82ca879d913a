-- recorded --
-- One row if the recorded definitions equal these.
SELECT
WHERE NOT EXISTS (
    (SELECT * FROM millstream.setting_definitions
        EXCEPT SELECT * FROM jsonb_populate_recordset(NULL::millstream.setting_definitions, %(rows)s))
    UNION ALL
    (SELECT * FROM jsonb_populate_recordset(NULL::millstream.setting_definitions, %(rows)s)
        EXCEPT SELECT * FROM millstream.setting_definitions)
);

-- record --
INSERT INTO millstream.setting_definitions
SELECT * FROM jsonb_populate_recordset(NULL::millstream.setting_definitions, %(rows)s);

-- stored --
SELECT name, value FROM millstream.settings ORDER BY name;

-- store --
INSERT INTO millstream.settings (name, value) VALUES (%s, %s)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- reset --
DELETE FROM millstream.settings WHERE name = %s;
