-- Settings in the database, checked when they are written; and what a monitor asks.

CREATE TABLE millstream.setting_definitions (
    name text PRIMARY KEY,
    kind text NOT NULL CONSTRAINT setting_definitions_kind_check
        CHECK (kind IN ('bool', 'integer', 'number', 'duration', 'size', 'choice', 'other')),
    minimum numeric,
    minimum_is_allowed boolean,
    maximum numeric,
    choices text[],
    less_than text,
    default_value text NOT NULL,
    meaning text NOT NULL,
    refusal text
);
COMMENT ON TABLE millstream.setting_definitions IS 'The settings that this version knows; written by every install, read by the check of millstream.settings';
COMMENT ON COLUMN millstream.setting_definitions.minimum IS 'Of a duration in milliseconds, of a size in bytes';
COMMENT ON COLUMN millstream.setting_definitions.less_than IS 'Another setting, whose value must be greater';
COMMENT ON COLUMN millstream.setting_definitions.refusal IS 'Why the database cannot set it; NULL if it can';
COMMENT ON TABLE millstream.settings IS 'Settings of this database; they give way to code, environment and settings file';

-- A value as a number: milliseconds, bytes; NULL if it is not written as its kind demands.
CREATE FUNCTION millstream.setting_amount(kind text, value text) RETURNS numeric
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE kind
        WHEN 'integer' THEN (regexp_match(value, '^-?[0-9]{1,18}$'))[1]::numeric
        WHEN 'number' THEN (regexp_match(value, '^-?[0-9]{1,15}(?:\.[0-9]{1,15})?$'))[1]::numeric
        WHEN 'duration' THEN (
            SELECT m[1]::numeric * CASE m[2] WHEN 'ms' THEN 1 WHEN 's' THEN 1000 WHEN 'm' THEN 60000 WHEN 'h' THEN 3600000 ELSE 86400000 END
            FROM regexp_match(lower(value), '^([0-9]{1,9}) *(ms|s|m|h|d)$') AS m
        )
        WHEN 'size' THEN (
            SELECT m[1]::numeric * CASE m[2] WHEN 'kB' THEN 1024 WHEN 'MB' THEN 1048576 WHEN 'GB' THEN 1073741824 WHEN 'TB' THEN 1099511627776 ELSE 1 END
            FROM regexp_match(value, '^([0-9]{1,15}) *(B|kB|MB|GB|TB|)$') AS m
        )
    END
$$;
COMMENT ON FUNCTION millstream.setting_amount IS 'The value of a setting as a number: milliseconds of a duration, bytes of a size; NULL if it is written wrongly';

CREATE FUNCTION millstream.check_setting() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    definition millstream.setting_definitions;
    amount numeric := NULL;
    expected text := NULL;
BEGIN
    SELECT d.* INTO definition FROM millstream.setting_definitions AS d WHERE d.name = NEW.name;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'unknown setting %', NEW.name USING ERRCODE = 'invalid_parameter_value', HINT = (
            SELECT 'The settings are: ' || string_agg(d.name, ', ' ORDER BY d.name) || '.'
            FROM millstream.setting_definitions AS d WHERE d.refusal IS NULL
        );
    END IF;
    IF definition.refusal IS NOT NULL THEN
        RAISE EXCEPTION 'setting % cannot come from the database', NEW.name USING
            ERRCODE = 'invalid_parameter_value', DETAIL = definition.refusal,
            HINT = format('Set MILLSTREAM_%s in the environment of the service, or %s in its settings file.', upper(NEW.name), NEW.name);
    END IF;
    amount := millstream.setting_amount(definition.kind, NEW.value);
    expected := CASE
        WHEN definition.kind = 'bool' AND lower(NEW.value) NOT IN ('true', 'false', 'on', 'off', 'yes', 'no', '1', '0')
            THEN 'true or false'
        WHEN definition.kind = 'choice' AND NEW.value <> ALL (definition.choices)
            THEN 'one of ' || array_to_string(definition.choices, ', ')
        WHEN definition.kind = 'integer' AND amount IS NULL THEN 'a whole number'
        WHEN definition.kind = 'number' AND amount IS NULL THEN 'a number'
        WHEN definition.kind = 'duration' AND amount IS NULL THEN 'a number and a unit, such as 500ms, 1s, 5m, 1h or 2d'
        WHEN definition.kind = 'size' AND amount IS NULL
            THEN 'a number and a unit (B, kB, MB, GB or TB), such as 100MB'
        WHEN amount < definition.minimum OR (amount = definition.minimum AND NOT definition.minimum_is_allowed)
            OR amount > definition.maximum
            THEN concat_ws(
                ' and ',
                CASE WHEN definition.minimum_is_allowed THEN 'at least ' ELSE 'more than ' END || definition.minimum,
                'at most ' || definition.maximum
            ) || CASE definition.kind WHEN 'duration' THEN ' milliseconds' WHEN 'size' THEN ' bytes' ELSE '' END
    END;
    IF expected IS NOT NULL THEN
        RAISE EXCEPTION 'bad value for %: %', NEW.name, quote_literal(NEW.value) USING
            ERRCODE = 'invalid_parameter_value', HINT = 'Expected ' || expected || '.';
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION millstream.check_setting IS 'Refuses unknown settings, bad values, and settings that the database cannot set';

-- After a statement, so that one statement can change both settings of a pair.
CREATE FUNCTION millstream.announce_settings() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    pair record;
BEGIN
    SELECT l.name AS lower, h.name AS higher INTO pair
    FROM millstream.setting_definitions AS l
    JOIN millstream.setting_definitions AS h ON h.name = l.less_than
    LEFT JOIN millstream.settings AS ls ON ls.name = l.name
    LEFT JOIN millstream.settings AS hs ON hs.name = h.name
    WHERE millstream.setting_amount(l.kind, coalesce(ls.value, l.default_value))
        >= millstream.setting_amount(h.kind, coalesce(hs.value, h.default_value))
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '% must be less than %', pair.lower, pair.higher USING
            ERRCODE = 'invalid_parameter_value', HINT = 'Set both in one statement, or the other one first.';
    END IF;
    PERFORM pg_notify('millstream_wake', 'settings');
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION millstream.announce_settings IS 'Refuses settings that contradict each other, and wakes the service';

CREATE TRIGGER check_setting BEFORE INSERT OR UPDATE ON millstream.settings
    FOR EACH ROW EXECUTE FUNCTION millstream.check_setting();
CREATE TRIGGER announce_settings AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON millstream.settings
    FOR EACH STATEMENT EXECUTE FUNCTION millstream.announce_settings();
REVOKE ALL ON FUNCTION millstream.setting_amount, millstream.check_setting, millstream.announce_settings FROM PUBLIC;
