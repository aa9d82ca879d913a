-- signups_per_day --
SELECT created_at::date AS day, count(*) AS signups FROM users GROUP BY created_at::date

-- signups_per_week --
SELECT date_trunc('week', created_at) AS week, count(*) FROM users GROUP BY 1

-- signups_per_month_as_text --
SELECT to_char(created_at, 'YYYY-MM') AS month, count(*) AS n
FROM accounts
GROUP BY 1 ORDER BY 1

-- signups_per_hour_of_day --
SELECT extract(hour FROM created_at) AS hour, count(*) FROM users GROUP BY 1

-- signups_per_weekday --
SELECT to_char(created_at, 'Dy') AS weekday, extract(isodow FROM created_at)::int AS n, count(*)
FROM users
GROUP BY 1, 2

-- signups_in_berlin --
SELECT date_trunc('day', created_at AT TIME ZONE 'Europe/Berlin') AS day, count(*)
FROM users
GROUP BY 1

-- signups_trunc_with_zone --
SELECT date_trunc('month', created_at, 'America/New_York') AS month, count(*)
FROM accounts
GROUP BY month

-- five_minute_buckets --
SELECT date_bin('5 minutes', at, timestamptz '2025-01-01 00:00+00') AS bucket, count(*)
FROM events
GROUP BY 1

-- epoch_of_events --
SELECT id, extract(epoch FROM at)::bigint AS epoch FROM events WHERE kind = 'purchase'

-- events_of_a_day --
SELECT kind, count(*) FROM events WHERE at::date = date '2025-01-15' GROUP BY kind

-- events_between_dates --
SELECT account_id, count(*) FROM events
WHERE at >= '2025-01-01' AND at < '2025-02-01'
GROUP BY account_id

-- daily_active_users --
SELECT date_trunc('day', at) AS day, count(DISTINCT user_id) AS users
FROM events
GROUP BY 1

-- monthly_active_accounts --
SELECT date_trunc('month', at) AS month, count(DISTINCT account_id) FILTER (WHERE kind <> 'error') AS accounts
FROM events
GROUP BY 1

-- first_and_last_event --
SELECT user_id, min(at) AS first_at, max(at) AS last_at, max(at) - min(at) AS span
FROM events
WHERE user_id IS NOT NULL
GROUP BY user_id

-- last_event_of_each_user --
SELECT DISTINCT ON (user_id) user_id, kind, at FROM events
WHERE user_id IS NOT NULL ORDER BY user_id, at DESC, id

-- latest_order_lateral --
SELECT a.id, a.name, o.id AS order_id, o.placed_at
FROM accounts a
LEFT JOIN LATERAL (
    SELECT id, placed_at FROM orders
    WHERE account_id = a.id
    ORDER BY placed_at DESC NULLS LAST, id LIMIT 1
) o ON true

-- running_count_of_accounts --
SELECT id, created_at, count(*) OVER (ORDER BY created_at, id) AS so_far FROM accounts

-- running_revenue --
SELECT id, paid_at, sum(amount) OVER (ORDER BY paid_at, id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS total
FROM payments
WHERE status = 'ok'

-- running_revenue_short_frame --
SELECT id, sum(amount) OVER (PARTITION BY method ORDER BY paid_at, id ROWS UNBOUNDED PRECEDING) AS so_far
FROM payments

-- moving_average --
SELECT id, product_id, moved_at,
    avg(delta) OVER (PARTITION BY product_id ORDER BY moved_at, id ROWS 3 PRECEDING) AS smooth
FROM stock_moves

-- sum_over_a_week --
SELECT id, sum(delta) OVER (
    PARTITION BY warehouse ORDER BY moved_at RANGE BETWEEN '7 days' PRECEDING AND CURRENT ROW) AS week
FROM stock_moves

-- stock_level --
SELECT product_id, warehouse, sum(delta) AS level, max(moved_at) AS last_move
FROM stock_moves
GROUP BY 1, 2 HAVING sum(delta) <> 0

-- stock_level_over_time --
SELECT id, product_id, sum(delta) OVER (PARTITION BY product_id, warehouse ORDER BY moved_at, id) AS level
FROM stock_moves

-- products_out_of_stock --
SELECT p.id, p.name FROM products p
LEFT JOIN stock_moves m ON m.product_id = p.id
GROUP BY p.id, p.name HAVING coalesce(sum(m.delta), 0) <= 0

-- order_totals --
SELECT o.id, o.currency, sum(i.quantity * i.unit_price) AS total, count(*) AS lines
FROM orders o
JOIN order_items i ON i.order_id = o.id
GROUP BY o.id, o.currency

-- order_totals_with_discount --
SELECT o.id, round(sum(i.quantity * i.unit_price) * (1 - coalesce(o.discount, 0) / 100), 2) AS total
FROM orders o
JOIN order_items i ON i.order_id = o.id
GROUP BY o.id

-- orders_without_items --
SELECT o.id FROM orders o
WHERE NOT EXISTS (SELECT 1 FROM order_items i WHERE i.order_id = o.id)

-- orders_without_items_left_join --
SELECT o.id FROM orders o
LEFT JOIN order_items i ON i.order_id = o.id
WHERE i.order_id IS NULL

-- revenue_by_month_and_currency --
SELECT date_trunc('month', o.placed_at) AS month, o.currency, sum(i.quantity * i.unit_price) AS revenue
FROM orders o
JOIN order_items i ON i.order_id = o.id
WHERE o.status IN ('paid', 'shipped', 'delivered')
GROUP BY 1, 2

-- revenue_in_euros --
SELECT o.placed_at::date AS day, sum(i.quantity * i.unit_price / coalesce(f.rate, 1)) AS eur
FROM orders o
JOIN order_items i ON i.order_id = o.id
LEFT JOIN fx_rates f ON f.currency = o.currency AND f.day = o.placed_at::date
GROUP BY 1

-- revenue_by_category --
SELECT c.name, sum(i.quantity) AS pieces, sum(i.quantity * i.unit_price) AS revenue
FROM order_items i
JOIN products p ON p.id = i.product_id
LEFT JOIN categories c ON c.id = p.category_id
GROUP BY c.name

-- revenue_rollup --
SELECT o.currency, o.status, sum(i.quantity * i.unit_price) AS revenue, grouping(o.currency, o.status) AS level
FROM orders o
JOIN order_items i ON i.order_id = o.id
GROUP BY ROLLUP (o.currency, o.status)

-- revenue_cube --
SELECT country, plan, count(*) FROM accounts GROUP BY CUBE (country, plan)

-- revenue_grouping_sets --
SELECT country, plan, count(*), grouping(country) AS g FROM accounts
GROUP BY GROUPING SETS ((country), (plan), ())

-- share_of_total --
SELECT method, sum(amount) AS amount, round(100 * sum(amount) / sum(sum(amount)) OVER (), 2) AS percent
FROM payments
WHERE status = 'ok'
GROUP BY method

-- rank_products_by_revenue --
SELECT product_id, sum(quantity * unit_price) AS revenue, rank() OVER (ORDER BY sum(quantity * unit_price) DESC) AS place
FROM order_items
GROUP BY product_id

-- top_products_per_category --
SELECT *
FROM (
    SELECT p.category_id, p.id, sum(i.quantity) AS sold,
        row_number() OVER (PARTITION BY p.category_id ORDER BY sum(i.quantity) DESC, p.id) AS n
    FROM products p
    JOIN order_items i ON i.product_id = p.id
    GROUP BY p.category_id, p.id
) ranked
WHERE n <= 2

-- top_ten_orders --
SELECT order_id, sum(quantity * unit_price) AS total FROM order_items
GROUP BY order_id ORDER BY total DESC, order_id LIMIT 10

-- second_page_of_products --
SELECT id, sku, price FROM products
ORDER BY price DESC, id OFFSET 5 FETCH NEXT 5 ROWS ONLY

-- top_with_ties --
SELECT product_id, count(*) AS n FROM order_items
GROUP BY product_id ORDER BY n DESC FETCH FIRST 3 ROWS WITH TIES

-- median_payment --
SELECT method, percentile_cont(0.5) WITHIN GROUP (ORDER BY amount) AS median
FROM payments
GROUP BY method

-- several_percentiles --
SELECT percentile_cont(ARRAY[0.25, 0.5, 0.75]) WITHIN GROUP (ORDER BY amount) AS quartiles, percentile_disc(0.9) WITHIN GROUP (ORDER BY amount) AS p90
FROM payments

-- most_frequent_method --
SELECT account_id, mode() WITHIN GROUP (ORDER BY status) AS usual
FROM orders
GROUP BY account_id

-- histogram --
SELECT width_bucket(amount, 0, 120, 6) AS bucket, count(*) FROM payments GROUP BY 1

-- quartile_of_customers --
SELECT account_id, n, ntile(4) OVER (ORDER BY n DESC, account_id) AS quartile
FROM (SELECT account_id, count(*) AS n FROM orders GROUP BY account_id) o

-- previous_order_of_account --
SELECT id, account_id, placed_at, lag(placed_at) OVER w AS before, placed_at - lag(placed_at) OVER w AS gap
FROM orders
WHERE placed_at IS NOT NULL
WINDOW w AS (PARTITION BY account_id ORDER BY placed_at, id)

-- window_extends_named_one --
SELECT id, sum(delta) OVER (w ORDER BY moved_at, id) AS running, count(*) OVER w AS n
FROM stock_moves
WINDOW w AS (PARTITION BY warehouse)

-- first_order_flag --
SELECT id, row_number() OVER (PARTITION BY account_id ORDER BY placed_at, id) = 1 AS is_first
FROM orders

-- month_over_month --
SELECT month, revenue, revenue - lag(revenue) OVER (ORDER BY month) AS change FROM (
    SELECT date_trunc('month', paid_at) AS month, sum(amount) AS revenue
    FROM payments
    WHERE status = 'ok'
    GROUP BY 1) m

-- first_value_of_group --
SELECT DISTINCT account_id, first_value(kind) OVER (PARTITION BY account_id ORDER BY at, id) AS first_kind
FROM events
WHERE account_id IS NOT NULL

-- sessions --
SELECT user_id, session, min(at) AS began, max(at) AS ended, count(*) AS events
FROM (
    SELECT user_id, at, sum(new) OVER (PARTITION BY user_id ORDER BY at, id) AS session
    FROM (
        SELECT id, user_id, at,
            CASE WHEN at - lag(at) OVER (PARTITION BY user_id ORDER BY at, id) < interval '1 day'
                THEN 0 ELSE 1 END AS new
        FROM events
        WHERE user_id IS NOT NULL
    ) marked
) numbered
GROUP BY user_id, session

-- gaps_in_days --
SELECT day, next_day, next_day - day AS days
FROM (
    SELECT day, lead(day) OVER (ORDER BY day) AS next_day
    FROM (SELECT DISTINCT at::date AS day FROM events) days
) pairs
WHERE next_day - day > 1

-- islands_of_days --
SELECT min(day) AS first_day, max(day) AS last_day, count(*) AS days
FROM (
    SELECT day, day - (row_number() OVER (ORDER BY day))::int AS island
    FROM (SELECT DISTINCT moved_at::date AS day FROM stock_moves) days
) numbered
GROUP BY island

-- cohorts --
SELECT date_trunc('month', u.created_at) AS cohort, (extract(epoch FROM e.at - u.created_at) / 604800)::int AS week, count(DISTINCT u.id) AS active
FROM users u JOIN events e ON e.user_id = u.id GROUP BY 1, 2

-- retention_by_month --
WITH first AS (
    SELECT user_id, min(date_trunc('month', at)) AS cohort
    FROM events
    WHERE user_id IS NOT NULL
    GROUP BY user_id
)
SELECT f.cohort, date_trunc('month', e.at) AS month, count(DISTINCT e.user_id) AS active
FROM first f
JOIN events e USING (user_id)
GROUP BY 1, 2

-- funnel --
SELECT
    count(*) FILTER (WHERE viewed) AS viewed,
    count(*) FILTER (WHERE viewed AND clicked) AS clicked,
    count(*) FILTER (WHERE viewed AND clicked AND bought) AS bought
FROM (
    SELECT user_id, bool_or(kind = 'view') AS viewed, bool_or(kind = 'click') AS clicked,
        bool_or(kind = 'purchase') AS bought
    FROM events
    GROUP BY user_id
) steps

-- time_to_first_purchase --
SELECT u.id, min(e.at) - u.created_at AS took FROM users u
JOIN events e ON e.user_id = u.id AND e.kind = 'purchase'
GROUP BY u.id, u.created_at

-- conversion_by_source --
SELECT properties -> 'utm' ->> 'source' AS source, count(*) AS events, avg((kind = 'purchase')::int) AS rate
FROM events
GROUP BY 1

-- pages_by_views --
SELECT properties ->> 'page' AS page, count(*), avg((properties ->> 'ms')::int) AS ms
FROM events
WHERE properties ? 'page'
GROUP BY 1

-- events_with_containment --
SELECT id, kind FROM events WHERE properties @> '{"page": "/p/1"}'

-- group_by_jsonb --
SELECT properties -> 'utm' AS utm, count(*) FROM events GROUP BY 1

-- distinct_jsonb --
SELECT DISTINCT attributes FROM products

-- jsonb_each_of_settings --
SELECT a.id, s.key, s.value FROM accounts a, jsonb_each(a.settings) s

-- jsonb_array_elements --
SELECT p.id, t.tag
FROM products p CROSS JOIN LATERAL jsonb_array_elements_text(p.attributes -> 'tags') AS t(tag)

-- tags_counted --
SELECT tag, count(*) FROM accounts, unnest(tags) AS tag GROUP BY tag

-- jsonb_path --
SELECT id, jsonb_path_query_first(attributes, '$.tags[0]') AS first_tag FROM products

-- jsonb_path_exists --
SELECT id FROM events WHERE properties @? '$.ms ? (@ > 200)'

-- jsonb_to_recordset --
SELECT a.id, r.x
FROM accounts a, jsonb_to_record(a.settings) AS r(locale text, x int, "limit" int)

-- jsonb_object_of_counts --
SELECT account_id, jsonb_object_agg(kind, n) AS counts
FROM (SELECT account_id, kind, count(*) AS n FROM events GROUP BY 1, 2) c
WHERE account_id IS NOT NULL
GROUP BY 1

-- json_document_per_order --
SELECT o.id, jsonb_build_object(
    'status', o.status,
    'placed', o.placed_at,
    'items', coalesce(
        jsonb_agg(jsonb_build_object('product', i.product_id, 'quantity', i.quantity) ORDER BY i.line)
            FILTER (WHERE i.line IS NOT NULL),
        '[]')) AS document
FROM orders o
LEFT JOIN order_items i ON i.order_id = o.id
GROUP BY o.id

-- json_agg_of_rows --
SELECT account_id, json_agg(row_to_json(o) ORDER BY o.id) AS orders
FROM orders o
GROUP BY account_id

-- row_to_json --
SELECT id, row_to_json(u) AS document FROM users u

-- to_jsonb_of_row --
SELECT id, to_jsonb(p) - 'attributes' AS document FROM products p

-- to_jsonb_of_time --
SELECT id, to_jsonb(placed_at) AS placed FROM orders

-- whole_row --
SELECT o.id, o AS whole FROM orders o WHERE o.status = 'cart'

-- count_whole_rows --
SELECT a.id, count(t.*) AS tickets FROM accounts a
LEFT JOIN tickets t ON t.account_id = a.id
GROUP BY a.id

-- whole_row_is_null --
SELECT a.id FROM accounts a
LEFT JOIN subscriptions s ON s.account_id = a.id
WHERE s IS NULL

-- users_by_email_domain --
SELECT split_part(email, '@', 2) AS domain, count(*) FROM users GROUP BY 1

-- users_by_email_ignoring_case --
SELECT email, count(*) FROM users GROUP BY email

-- duplicate_names --
SELECT lower(full_name) AS name, array_agg(id ORDER BY id) AS ids
FROM users
GROUP BY 1 HAVING count(*) > 1

-- citext_join --
SELECT u.id, v.id AS other FROM users u
JOIN users v ON u.email = v.email AND u.id <= v.id

-- citext_search --
SELECT id FROM users WHERE email LIKE 'user%'

-- full_text_search --
SELECT id, subject FROM tickets
WHERE search @@ to_tsquery('english', 'payment | refund')

-- full_text_search_default_configuration --
SELECT id, ts_rank(to_tsvector(subject), plainto_tsquery('laptop')) AS rank
FROM tickets
WHERE to_tsvector(subject) @@ plainto_tsquery('laptop')

-- headline --
SELECT id, ts_headline('english', subject, to_tsquery('english', 'laptop')) AS line
FROM tickets
WHERE search @@ to_tsquery('english', 'laptop')

-- tickets_by_keyword --
SELECT t.id, k.topic FROM tickets t JOIN keywords k ON t.subject ILIKE k.pattern

-- tickets_without_topic --
SELECT t.id FROM tickets t
WHERE NOT EXISTS (SELECT FROM keywords k WHERE t.subject ~* k.word)

-- tickets_with_their_topics --
SELECT t.id, string_agg(DISTINCT k.topic, ', ' ORDER BY k.topic) AS topics
FROM tickets t
LEFT JOIN keywords k ON t.subject ~* k.word
GROUP BY t.id

-- similar_names --
SELECT a.id, b.id AS other FROM users a
JOIN users b ON a.id < b.id AND a.full_name % b.full_name AND a.account_id = b.account_id

-- similarity_to_a_word --
SELECT id, similarity(full_name, 'Ann Smith') AS s FROM users
WHERE similarity(full_name, 'Ann Smith') > 0.4

-- price_at_order_time --
SELECT o.id, i.line, p.price FROM orders o
JOIN order_items i ON i.order_id = o.id
JOIN prices p ON p.product_id = i.product_id AND p.valid @> o.placed_at

-- price_at_order_time_or_nothing --
SELECT o.id, i.line, i.unit_price - p.price AS difference
FROM orders o
JOIN order_items i ON i.order_id = o.id
LEFT JOIN prices p ON p.product_id = i.product_id AND o.placed_at <@ p.valid

-- current_prices --
SELECT product_id, price, lower(valid) AS since FROM prices WHERE upper_inf(valid)

-- overlapping_prices --
SELECT a.product_id, a.valid * b.valid AS both_valid FROM prices a
JOIN prices b ON a.product_id = b.product_id AND a.valid && b.valid AND a.price < b.price

-- subscriptions_active_per_day --
SELECT d::date AS day, count(s.id) AS active
FROM generate_series(date '2025-01-01', date '2025-01-31', interval '1 day') AS d
LEFT JOIN subscriptions s ON s.period @> d::date
GROUP BY 1

-- monthly_recurring_revenue --
SELECT plan, sum(monthly) AS mrr, sum(seats) AS seats
FROM subscriptions
WHERE period @> date '2025-02-01'
GROUP BY plan

-- mrr_by_month --
SELECT m::date AS month, plan, sum(monthly) AS mrr
FROM generate_series(timestamp '2024-12-01', timestamp '2025-03-01', interval '1 month') AS m
JOIN subscriptions ON period @> m::date
GROUP BY 1, 2

-- churned_accounts --
SELECT a.id, max(upper(s.period)) AS ended FROM accounts a
JOIN subscriptions s ON s.account_id = a.id
GROUP BY a.id HAVING bool_and(NOT upper_inf(s.period))

-- merged_periods --
SELECT account_id, range_agg(period) AS covered FROM subscriptions GROUP BY account_id

-- group_by_range --
SELECT period, count(*) FROM subscriptions GROUP BY period

-- overlaps_operator --
SELECT id FROM subscriptions
WHERE (lower(period), upper(period)) OVERLAPS (date '2025-01-01', date '2025-01-10')

-- desks_in_rooms --
SELECT r.name, e.name AS employee FROM rooms r JOIN employees e ON r.area @> e.desk

-- people_per_room --
SELECT r.name, count(e.id) AS people FROM rooms r
LEFT JOIN employees e ON e.desk <@ r.area
GROUP BY r.name

-- distance_between_desks --
SELECT a.id, b.id AS other, a.desk <-> b.desk AS distance
FROM employees a
JOIN employees b ON a.id < b.id AND (a.desk <-> b.desk) < 1.5

-- ip_network --
SELECT set_masklen(login_ip::cidr, 24) AS network, count(*) FROM users GROUP BY 1

-- group_by_ip --
SELECT login_ip, count(*) FROM users GROUP BY login_ip

-- logins_from_network --
SELECT id FROM users WHERE login_ip << inet '10.0.1.0/24'

-- group_by_interval --
SELECT duration, count(*) FROM events GROUP BY duration

-- total_duration --
SELECT user_id, sum(duration) AS total, avg(duration) AS mean
FROM events
GROUP BY user_id

-- array_of_status --
SELECT account_id, array_agg(DISTINCT status ORDER BY status) AS seen
FROM orders
GROUP BY account_id

-- group_by_array --
SELECT tags, count(*) FROM accounts GROUP BY tags

-- accounts_with_tag --
SELECT id, name FROM accounts WHERE 'vip' = ANY (tags)

-- accounts_with_overlapping_tags --
SELECT a.id, b.id AS other FROM accounts a
JOIN accounts b ON a.id < b.id AND a.tags && b.tags AND a.country = b.country

-- array_constructor_from_query --
SELECT a.id, ARRAY(SELECT o.id FROM orders o WHERE o.account_id = a.id ORDER BY o.id) AS orders
FROM accounts a

-- array_to_string --
SELECT id, array_to_string(tags, ', ') AS tags, cardinality(tags) AS n FROM accounts

-- composite_field --
SELECT (billing).city AS city, count(*) FROM accounts GROUP BY 1

-- group_by_composite --
SELECT billing, count(*) FROM accounts GROUP BY billing

-- composite_comparison --
SELECT a.id, b.id AS other FROM accounts a
JOIN accounts b ON a.billing = b.billing AND a.id < b.id

-- enum_order --
SELECT assigned_to, max(priority) AS worst, count(*) FILTER (WHERE priority >= 'high') AS pressing
FROM tickets
WHERE status <> 'closed'
GROUP BY assigned_to

-- enum_as_text --
SELECT status::text AS status, count(*) FROM orders GROUP BY 1

-- varchar_in_list --
SELECT id, role FROM users WHERE role IN ('owner', 'admin')

-- varchar_not_in_list --
SELECT id, role FROM users WHERE role NOT IN ('owner', 'admin')

-- char_column --
SELECT country, count(*) FROM accounts WHERE country IN ('DE', 'FR') GROUP BY country

-- uuid_key --
SELECT id, amount FROM payments WHERE status = 'ok' AND amount > 50

-- case_labels --
SELECT CASE WHEN amount < 40 THEN 'small' WHEN amount < 80 THEN 'medium' ELSE 'large' END AS size, count(*), sum(amount)
FROM payments
GROUP BY 1

-- pivot_by_filter --
SELECT account_id,
    count(*) FILTER (WHERE status = 'paid') AS paid,
    count(*) FILTER (WHERE status = 'shipped') AS shipped,
    count(*) FILTER (WHERE status = 'cancelled') AS cancelled
FROM orders
GROUP BY account_id

-- pivot_by_sum_of_case --
SELECT product_id, sum(CASE WHEN warehouse = 'east' THEN delta ELSE 0 END) AS east, sum(CASE WHEN warehouse = 'west' THEN delta ELSE 0 END) AS west
FROM stock_moves
GROUP BY product_id

-- unpivot --
SELECT o.id, v.name, v.value
FROM orders o CROSS JOIN LATERAL (VALUES ('discount', o.discount), ('id', o.id::numeric)) AS v(name, value)

-- customer_overview --
SELECT a.id, a.name, count(DISTINCT o.id) AS orders, count(DISTINCT t.id) AS tickets, max(o.placed_at) AS last_order
FROM accounts a
LEFT JOIN orders o ON o.account_id = a.id
LEFT JOIN tickets t ON t.account_id = a.id
GROUP BY a.id, a.name

-- customer_overview_by_subqueries --
SELECT a.id,
    (SELECT count(*) FROM orders o WHERE o.account_id = a.id) AS orders,
    (SELECT max(t.opened_at) FROM tickets t WHERE t.account_id = a.id) AS last_ticket
FROM accounts a

-- customers_of_all_kinds --
SELECT id FROM accounts
WHERE id IN (SELECT account_id FROM orders WHERE status = 'paid') AND id NOT IN (SELECT account_id FROM tickets WHERE account_id IS NOT NULL AND status = 'open')

-- above_average --
SELECT id, price FROM products WHERE price > (SELECT avg(price) FROM products)

-- above_average_of_category --
SELECT p.id, p.price FROM products p
WHERE p.price > (SELECT avg(q.price) FROM products q WHERE q.category_id = p.category_id)

-- equal_to_scalar_subquery --
SELECT id, name FROM products WHERE price = (SELECT max(price) FROM products)

-- all_items_expensive --
SELECT o.id FROM orders o
WHERE 10 < ALL (SELECT i.unit_price FROM order_items i WHERE i.order_id = o.id)

-- bought_both --
SELECT account_id FROM orders
JOIN order_items ON order_id = orders.id
WHERE product_id = 2
INTERSECT SELECT account_id FROM orders
JOIN order_items ON order_id = orders.id
WHERE product_id = 5

-- bought_one_but_not_other --
SELECT o.account_id FROM orders o JOIN order_items i ON i.order_id = o.id WHERE i.product_id = 2
EXCEPT
SELECT o.account_id FROM orders o JOIN order_items i ON i.order_id = o.id WHERE i.product_id = 7

-- activity_feed --
SELECT 'order' AS kind, id::text AS ref, placed_at AS at FROM orders
UNION ALL SELECT 'ticket', id::text, opened_at FROM tickets
UNION ALL SELECT 'payment', id::text, paid_at FROM payments

-- activity_feed_latest --
SELECT *
FROM (
    SELECT 'order' AS kind, id, placed_at AS at FROM orders
    UNION ALL
    SELECT 'ticket', id, opened_at FROM tickets
) feed
WHERE at IS NOT NULL
ORDER BY at DESC, kind, id LIMIT 15

-- union_of_countries --
SELECT country FROM accounts UNION SELECT upper(left(name, 2))::char(2) FROM categories

-- products_bought_together --
SELECT a.product_id, b.product_id AS other, count(*) AS times
FROM order_items a
JOIN order_items b ON a.order_id = b.order_id AND a.product_id < b.product_id
GROUP BY 1, 2

-- category_tree --
WITH RECURSIVE tree AS (
    SELECT id, name, 1 AS depth, name AS path FROM categories WHERE parent_id IS NULL
    UNION ALL
    SELECT c.id, c.name, t.depth + 1, t.path || ' > ' || c.name
    FROM categories c
    JOIN tree t ON c.parent_id = t.id
)
SELECT * FROM tree

-- products_under_each_category --
WITH RECURSIVE under(root, id) AS (
    SELECT id, id FROM categories
    UNION
    SELECT u.root, c.id FROM under u JOIN categories c ON c.parent_id = u.id
)
SELECT u.root, count(p.id) AS products, sum(p.price) AS value
FROM under u
LEFT JOIN products p ON p.category_id = u.id
GROUP BY u.root

-- reports_of_manager --
WITH RECURSIVE reports AS (SELECT id, manager_id, 0 AS level FROM employees WHERE manager_id IS NULL UNION ALL SELECT e.id, e.manager_id, r.level + 1 FROM employees e JOIN reports r ON e.manager_id = r.id)
SELECT level, count(*), array_agg(id ORDER BY id) AS ids FROM reports GROUP BY level

-- salary_above_manager --
SELECT e.id, e.salary - m.salary AS more FROM employees e
JOIN employees m ON m.id = e.manager_id
WHERE e.salary > m.salary

-- salary_rank_in_team --
SELECT id, team, dense_rank() OVER (PARTITION BY team ORDER BY salary DESC) AS place, percent_rank() OVER (PARTITION BY team ORDER BY salary) AS pct
FROM employees

-- years_of_service --
SELECT id, date_part('year', age(date '2025-06-01', hired)) AS years FROM employees

-- anniversaries --
SELECT id, (hired + interval '5 years')::date AS fifth FROM employees
WHERE extract(month FROM hired) = 3

-- reply_times --
SELECT priority, avg(first_reply_at - opened_at) AS mean, percentile_cont(0.5) WITHIN GROUP (ORDER BY first_reply_at - opened_at) AS median
FROM tickets
GROUP BY priority

-- reply_times_in_hours --
SELECT assigned_to, round(avg(extract(epoch FROM first_reply_at - opened_at)) / 3600, 2) AS hours
FROM tickets
GROUP BY assigned_to

-- late_tickets --
SELECT id, opened_at + interval '2 hours' AS due FROM tickets
WHERE first_reply_at IS NULL OR first_reply_at > opened_at + interval '2 hours'

-- open_tickets_per_day --
SELECT d::date AS day, count(t.id) AS open
FROM generate_series(timestamptz '2025-01-01 00:00+00', timestamptz '2025-01-20 00:00+00', '1 day') AS d
LEFT JOIN tickets t ON t.opened_at <= d AND (t.closed_at IS NULL OR t.closed_at > d)
GROUP BY d

-- due_at_end_of_month --
SELECT id, (date_trunc('month', opened_at) + interval '1 month - 1 day')::date AS due
FROM tickets

-- ticket_line_as_text --
SELECT id, subject || ' (' || priority || ', ' || id || ')' AS line FROM tickets

-- text_with_time --
SELECT id, 'opened ' || opened_at AS line, format('%s: %s', id, opened_at) AS other
FROM tickets

-- concat_ws_of_values --
SELECT id, concat_ws(' / ', name, plan, created_at::date, closed_at) AS line
FROM accounts

-- initials --
SELECT id, upper(left(split_part(full_name, ' ', 1), 1) || left(split_part(full_name, ' ', 2), 1)) AS initials
FROM users

-- greeting --
SELECT u.id, initcap(coalesce(u.full_name, 'customer')) || ' of ' || a.name AS greeting
FROM users u
JOIN accounts a ON a.id = u.account_id

-- regexp_parts --
SELECT id, (regexp_match(sku, '(\d+)$'))[1]::int AS number, regexp_replace(name, '\s+', '_') AS slug
FROM products

-- split_words --
SELECT t.id, w.word, w.n
FROM tickets t, regexp_split_to_table(lower(t.subject), '\s+') WITH ORDINALITY AS w(word, n)

-- words_counted --
SELECT word, count(*)
FROM tickets, string_to_table(lower(subject), ' ') AS word
GROUP BY word

-- ids_in_text --
SELECT string_agg(id::text, ',' ORDER BY id) AS ids FROM products WHERE NOT discontinued

-- days_of_subscription --
SELECT s.id, d::date AS day
FROM subscriptions s, generate_series(lower(s.period)::timestamp, least(upper(s.period), lower(s.period) + 5)::timestamp, interval '1 day') AS d

-- calendar_with_gaps_filled --
SELECT c.day, coalesce(sum(p.amount), 0) AS amount
FROM (SELECT generate_series(date '2025-01-01', date '2025-01-31', '1 day')::date AS day) c
LEFT JOIN payments p ON p.paid_at::date = c.day
GROUP BY c.day

-- payments_matched_to_totals --
SELECT o.id, t.total, coalesce(p.paid, 0) AS paid, t.total - coalesce(p.paid, 0) AS due
FROM orders o
JOIN (
    SELECT order_id, sum(quantity * unit_price) AS total FROM order_items GROUP BY order_id
) t ON t.order_id = o.id
LEFT JOIN (
    SELECT order_id, sum(amount) AS paid FROM payments WHERE status = 'ok' GROUP BY order_id
) p ON p.order_id = o.id

-- reconciliation --
SELECT coalesce(o.id, p.order_id) AS order_id, o.status, p.amount
FROM orders o
FULL JOIN payments p ON p.order_id = o.id
WHERE o.id IS NULL OR p.id IS NULL

-- payments_per_status_and_day --
SELECT paid_at::date AS day, status, count(*), sum(amount)
FROM payments
GROUP BY paid_at::date, status

-- json_column --
SELECT id, raw ->> 'ref' AS ref, (raw ->> 'net')::numeric AS net FROM payments

-- lifetime_value --
SELECT a.id, coalesce(sum(p.amount) FILTER (WHERE p.status = 'ok'), 0) AS value, count(p.id) AS payments
FROM accounts a
LEFT JOIN orders o ON o.account_id = a.id
LEFT JOIN payments p ON p.order_id = o.id
GROUP BY a.id

-- rfm --
SELECT account_id, max(placed_at) AS recency, count(*) AS frequency, sum(total) AS monetary
FROM (
    SELECT o.id, o.account_id, o.placed_at, sum(i.quantity * i.unit_price) AS total
    FROM orders o
    JOIN order_items i ON i.order_id = o.id
    GROUP BY o.id) t GROUP BY account_id

-- abc_analysis --
SELECT product_id, CASE WHEN running <= 0.8 * total THEN 'A' WHEN running <= 0.95 * total THEN 'B' ELSE 'C' END AS class
FROM (
    SELECT product_id, sum(revenue) OVER (ORDER BY revenue DESC, product_id) AS running, sum(revenue) OVER () AS total
    FROM (
        SELECT product_id, sum(quantity * unit_price) AS revenue
        FROM order_items
        GROUP BY product_id) r) c

-- average_basket --
SELECT date_trunc('week', o.placed_at)::date AS week, avg(t.total) AS basket
FROM orders o
JOIN (SELECT order_id, sum(quantity * unit_price) AS total FROM order_items GROUP BY 1) t ON t.order_id = o.id
GROUP BY 1

-- repeat_customers --
SELECT count(*) FILTER (WHERE n > 1)::numeric / nullif(count(*), 0) AS share
FROM (SELECT account_id, count(*) AS n FROM orders GROUP BY account_id) o

-- new_and_returning --
SELECT date_trunc('month', placed_at) AS month, count(*) FILTER (WHERE n = 1) AS new, count(*) FILTER (WHERE n > 1) AS returning
FROM (
    SELECT placed_at, row_number() OVER (PARTITION BY account_id ORDER BY placed_at, id) AS n
    FROM orders
    WHERE placed_at IS NOT NULL) o GROUP BY 1

-- deduplicated_events --
SELECT DISTINCT ON (account_id, kind) account_id, kind, id, at
FROM events ORDER BY account_id, kind, at DESC, id DESC

-- deduplicated_by_row_number --
SELECT id, full_name
FROM (
    SELECT id, full_name, row_number() OVER (PARTITION BY lower(full_name) ORDER BY id) AS n FROM users
) numbered
WHERE n = 1

-- distinct_on_with_limit --
SELECT DISTINCT ON (account_id) account_id, id, placed_at FROM orders
ORDER BY account_id, placed_at DESC NULLS LAST, id LIMIT 5

-- limit_by_subquery --
SELECT id, price FROM products ORDER BY price, id
LIMIT (SELECT count(*) / 2 FROM products)

-- rollup_with_limit --
SELECT country, plan, count(*) AS n FROM accounts
GROUP BY ROLLUP (country, plan) ORDER BY n DESC, country, plan LIMIT 4

-- rollup_distinct --
SELECT DISTINCT country, count(*) AS n FROM accounts GROUP BY ROLLUP (country, plan)

-- rollup_with_window --
SELECT country, plan, count(*) AS n, rank() OVER (ORDER BY count(*) DESC) AS place
FROM accounts
GROUP BY ROLLUP (country, plan)

-- group_by_subquery --
SELECT (SELECT c.name FROM categories c WHERE c.id = p.category_id) AS category, count(*)
FROM products p
GROUP BY (SELECT c.name FROM categories c WHERE c.id = p.category_id)

-- set_returning_inside_another --
SELECT id, abs(generate_series(1, id % 3)) AS n FROM products

-- only_one_table --
SELECT id, name FROM ONLY employees WHERE team = 'dev'

-- constant_table --
SELECT 1 AS one, 'x' AS letter

-- single_partition --
SELECT kind, count(*) FROM events_2025_01 GROUP BY kind

-- using_with_alias --
SELECT j.account_id, count(*) FROM orders
JOIN tickets USING (account_id) AS j
GROUP BY j.account_id

-- natural_join --
SELECT count(*) FROM (SELECT account_id, plan FROM subscriptions) s
NATURAL JOIN (SELECT id AS account_id, plan FROM accounts) a

-- exists_with_range --
SELECT a.id FROM accounts a
WHERE EXISTS (SELECT FROM subscriptions s WHERE s.account_id = a.id AND s.period @> a.created_at::date)

-- date_against_timestamptz --
SELECT e.id, s.id AS subscription FROM events e
JOIN subscriptions s ON s.account_id = e.account_id AND e.at >= lower(s.period) AND e.at < coalesce(upper(s.period), date '2026-01-01')

-- text_to_date --
SELECT id, ('2025-' || lpad((1 + id % 12)::text, 2, '0') || '-01')::date AS day
FROM employees

-- text_to_timestamptz --
SELECT id, ('2025-01-' || (1 + id % 28) || ' 10:00')::timestamptz AS at FROM products

-- to_timestamp --
SELECT id, to_timestamp(1735689600 + id * 3600) AS at, to_date('2025' || lpad(id::text, 3, '0'), 'YYYYDDD') AS day
FROM products

-- make_date --
SELECT id, make_date(2025, 1 + id % 12, 1) AS first FROM employees

-- money_column --
SELECT method, sum(amount)::money AS total FROM payments GROUP BY method

-- float_as_text --
SELECT id, weight::text || ' kg' AS weight FROM products

-- settings_of_locale --
SELECT settings ->> 'locale' AS locale, avg((settings ->> 'limit')::numeric) AS mean
FROM accounts
GROUP BY 1

-- active_in_last_days --
SELECT id FROM users WHERE last_seen > now() - interval '20 years'

-- recent_orders --
SELECT id, status FROM orders WHERE placed_at >= CURRENT_DATE - 365

-- greatest_of_times --
SELECT id, greatest(opened_at, first_reply_at, closed_at) AS last_touched, least(first_reply_at, closed_at) AS first_action
FROM tickets

-- boolean_logic --
SELECT id, (status = 'open' OR priority = 'urgent') IS TRUE AS pressing, closed_at IS DISTINCT FROM first_reply_at AS differs
FROM tickets

-- bits_of_flags --
SELECT bit_or(1 << (line - 1)::int) AS lines, every(quantity > 1) AS all_several, order_id
FROM order_items
GROUP BY order_id

-- statistics --
SELECT warehouse, stddev_samp(delta) AS deviation, variance(delta) AS variance, corr(delta::float8, product_id::float8) AS correlation
FROM stock_moves
GROUP BY warehouse

-- weighted_average --
SELECT product_id, sum(quantity * unit_price) / nullif(sum(quantity), 0) AS mean_price
FROM order_items
GROUP BY product_id
