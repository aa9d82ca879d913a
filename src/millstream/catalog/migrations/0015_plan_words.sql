-- Recorded plans in the words that plans print now: a plan whose text is unchanged keeps its rows, and is not filled again.

UPDATE millstream.blocks
SET plan = replace(replace(regexp_replace(plan, '^  kept as ', '  materialized as ', 'n'), ' [gathered]', ' [holistic]'), ' MOVING (', ' TEMPORAL FILTER (')
WHERE plan ~ '(?n)^  kept as | \[gathered\]| MOVING \(';
