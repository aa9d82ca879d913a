-- Recorded plans in the words that plans print now: if the text of a plan is unchanged, its rows are not computed
-- again.

UPDATE millstream.blocks
SET plan = replace(replace(regexp_replace(plan, '^  kept as ', '  materialized as ', 'n'), ' [gathered]', ' [holistic]'), ' MOVING (', ' TEMPORAL FILTER (')
WHERE plan ~ '(?n)^  kept as | \[gathered\]| MOVING \(';
