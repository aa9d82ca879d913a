-- Queries whose null-extended sides have constants and expressions that hide NULLs; test_null_extended.py keeps them through changes.

-- name: left
select k.id, a.hit from k left join (select n, true as hit from t) a on a.n = k.id

-- name: right
select k.id, a.hit from (select n, true as hit from t) a right join k on a.n = k.id

-- name: full
select k.id, a.n, a.hit from k full join (select n, true as hit from t) a on a.n = k.id

-- name: full both
select k.id, k.one, a.n, a.hit from (select id, 1 as one from k) k full join (select n, true as hit from t) a
    on a.n = k.id

-- name: cte
with a as (select n, true as hit from t) select k.id, a.hit from k left join a on a.n = k.id

-- name: cte mat
with a as materialized (select n, true as hit from t) select k.id, a.hit, b.hit h2 from k left join a on a.n =
    k.id left join a b on b.n = a.n

-- name: view
select k.id, a.hit, a.c from k left join vt a on a.n = k.id

-- name: lateral
select k.id, a.hit from k left join lateral (select true as hit from t where t.n = k.id) a on true

-- name: lateral theta
select k.id, a.hit, a.x from k left join lateral (select 7 as hit, k.id as x from t where t.n > k.id) a on
    true

-- name: lateral limit
select k.id, a.hit from k left join lateral (select true as hit from t where t.n = k.id order by t.id limit 1)
    a on true

-- name: lateral k col
select k.id, a.x, a.y from k left join lateral (select k.id as x, coalesce(k.f, true) as y from t where t.n =
    k.id) a on true

-- name: scalar
select id, (select 1 from t where t.id = k.id) as z from k

-- name: scalar outer
select id, (select k.id from t where t.id = k.id) as z, (select coalesce(k.f, true) from t where t.id = k.id)
    as z2 from k

-- name: scalar null
select id, (select coalesce(s, 'none') from t where t.id = k.id) as z, (select s is null from t where t.id =
    k.id) as z2 from k

-- name: scalar where
select id from k where (select 1 from t where t.id = k.id) is null

-- name: two
select k.id, a.hit, b.z from k left join (select t.id, t.n, true as hit from t) a on a.n = k.id left join
    (select u.t, 'u' as z from u) b on b.t = a.id

-- name: two nested
select k.id, a.hit, a.z, a.w from k left join (select t.n, true as hit, b.z, coalesce(b.z, 'w') as w from t
    left join (select u.t, 'u' as z from u) b on b.t = t.id) a on a.n = k.id

-- name: two nested 2
select k.id, a.* from k left join (select t.n, 1 as one, b.z is null as zn, b.z = 'u' as zz, case when b.z is
    null then 'none' else 'some' end as zc from t left join (select u.t, 'u' as z from u) b on b.t = t.id) a
    on a.n = k.id

-- name: const row
select k.id, v.z from k left join (select 1 as id, 'z' as z) v on v.id = k.id

-- name: const row cross
select k.id, v.z, v.id as vid from k left join (select 1 as id, 'z' as z) v on k.f

-- name: values
select k.id, v.z, v.one from k left join (select *, 1 as one from (values (1,'z')) v(id, z)) v on v.id = k.id

-- name: series
select k.id, a.z from k left join (select g, 7 as z from generate_series(1, 1) g) a on a.g = k.id

-- name: unnest lateral
select k.id, a.g, a.z from k left join lateral (select g, 7 as z from unnest(k.arr) g) a on true

-- name: unnest lateral cond
select k.id, a.g, a.z from k left join lateral (select g, 7 as z from unnest(k.arr) g) a on a.g > 1

-- name: join inside
select k.id, a.z, a.y from k left join (select t.n, 'j' as z, coalesce(t.s, u.v::text, '-') as y from t join u
    on u.t = t.id) a on a.n = k.id

-- name: agg inside
select k.id, a.c, a.z from k left join (select n, count(*) as c, 5 as z from t group by n) a on a.n = k.id

-- name: agg inside 0
select k.id, a.c, a.z from k left join (select count(*) as c, 5 as z from t) a on a.c = k.id

-- name: agg coalesce
select k.id, a.c, a.z from k left join (select n, coalesce(sum(id), 0) as c, max(s) is null as z from t group
    by n) a on a.n = k.id

-- name: where null
select k.id from k left join (select n, true as hit from t) a on a.n = k.id where a.hit is null

-- name: where not null
select k.id from k left join (select n, true as hit from t) a on a.n = k.id where a.hit

-- name: where not
select k.id from k left join (select n, true as hit from t) a on a.n = k.id where a.hit is not true

-- name: case
select k.id, case when a.hit then 'y' else 'n' end as c, coalesce(a.one, 0) as o, a.one is distinct from 1 as
    d, concat(a.one, 'x') as cc, a.hit or k.f as orr, a.hit and k.f as andd from k left join (select n, true
    as hit, 1 as one from t) a on a.n = k.id

-- name: count
select count(*) as c, count(a.one) as o, sum(a.one) as s, min(a.one) as m, bool_and(a.hit) as h from k left
    join (select n, true as hit, 1 as one from t) a on a.n = k.id

-- name: count group
select k.f, count(a.one) as o, sum(a.one) as s, sum(coalesce(a.one, -1)) as x from k left join (select n, true
    as hit, 1 as one from t) a on a.n = k.id group by k.f

-- name: group by
select a.one, count(*) as c from k left join (select n, 1 as one from t) a on a.n = k.id group by a.one

-- name: group by coalesce
select coalesce(a.one, 0) as o, count(*) as c from k left join (select n, 1 as one from t) a on a.n = k.id
    group by 1

-- name: distinct
select distinct a.one from k left join (select n, 1 as one from t) a on a.n = k.id

-- name: window
select k.id, row_number() over (partition by a.one order by k.id, a.tid) as r, a.one from k left join (select
    n, id as tid, 1 as one from t) a on a.n = k.id

-- name: order limit
select k.id, a.one from k left join (select n, 1 as one from t) a on a.n = k.id order by a.one nulls first,
    k.id limit 3

-- name: union
select k.id, a.one from k left join (select n, 1 as one from t) a on a.n = k.id union select id, 5 from u

-- name: union all
select k.id, a.one from k left join (select n, 1 as one from t) a on a.n = k.id union all select id, 5 from u

-- name: union all in
select k.id, a.one from k left join (select n, 1 as one from t union all select t, 2 from u) a on a.n = k.id

-- name: exists
select k.id from k left join (select n, 1 as one from t) a on a.n = k.id where exists (select 1 from u where
    u.id = a.one)

-- name: in
select k.id from k left join (select n, 1 as one from t) a on a.n = k.id where a.one not in (select t from u)

-- name: join on const
select k.id, a.one, u.v from k left join (select n, 1 as one from t) a on a.n = k.id left join u on u.id =
    a.one

-- name: join on const full
select k.id, a.one, u.v from k left join (select n, 1 as one from t) a on a.n = k.id full join u on u.id =
    a.one

-- name: inner join on const
select k.id, a.one, u.v from k left join (select n, 1 as one from t) a on a.n = k.id join u on u.id = a.one

-- name: join not distinct
select k.id, a.one, u.v from k left join (select n, 1 as one from t) a on a.n = k.id join u on u.v is not
    distinct from a.one

-- name: array
select k.id, a.r, a.r2 from k left join (select n, array[id, 1] as r, array[1,2] as r2 from t) a on a.n = k.id

-- name: jsonb
select k.id, a.r, a.r2 from k left join (select n, jsonb_build_object('a', id) as r, jsonb_build_object('a',
    1) as r2 from t) a on a.n = k.id

-- name: exists in
select k.id, a.e, a.ne, a.x from k left join (select n, exists (select 1 from u where u.t = t.id) as e, not
    exists (select 1 from u where u.t = t.id) as ne, case when exists (select 1 from u where u.t = t.id) then
    'a' else 'b' end as x from t) a on a.n = k.id

-- name: not in in
select k.id, a.e from k left join (select n, id not in (select t from u) as e from t) a on a.n = k.id

-- name: scalar in
select k.id, a.e, a.c from k left join (select n, (select 1 from u where u.id = t.id) as e, (select count(*)
    from u where u.t = t.id) as c from t) a on a.n = k.id

-- name: scalar uncorrelated in
select k.id, a.e from k left join (select n, (select count(*) from u) as e from t) a on a.n = k.id

-- name: full inside
select k.id, a.* from k left join (select t.n, u.v, 1 as one, coalesce(t.n, u.v) as c from t full join u on
    u.id = t.id) a on a.c = k.id

-- name: full inside cond
select k.id, a.one, a.two from k left join (select t.n, coalesce(t.n, u.v) as c, x.one, 2 as two from t full
    join (select *, 1 as one from u) x on x.id = t.id full join u on u.id = t.id) a on a.c = k.id

-- name: full full
select x.one, y.two, z.three, x.id, y.n, z.t from (select id, 1 as one from k) x full join (select n, 2 as two
    from t) y on y.n = x.id full join (select t, 3 as three from u) z on z.t = y.n

-- name: full expr
select x.one, y.two, x.id, y.n from (select id, coalesce(f, false) as one from k) x full join (select n, s is
    null as two from t) y on y.n = x.id

-- name: full mixed
select x.one + y.two as z, x.one = y.two as w, coalesce(x.one, y.two) as v from (select id, 1 as one from k) x
    full join (select n, 2 as two from t) y on y.n = x.id

-- name: full group
select x.one, y.two, count(*), count(x.one) as cx, sum(y.two) as sy from (select id, 1 as one from k) x full
    join (select n, 2 as two from t) y on y.n = x.id group by 1, 2

-- name: full where
select x.id, y.n from (select id, 1 as one from k) x full join (select n, 2 as two from t) y on y.n = x.id
    where x.one is null or y.two is null

-- name: full using
select id, x.one, y.two from (select id, 1 as one from k) x full join (select id, 2 as two from t) y using
    (id)

-- name: full const
select x.id, y.n, y.two from k x full join (select 1 as n, 2 as two) y on y.n = x.id

-- name: left const only
select k.id, a.one from k left join (select 1 as one from t) a on true

-- name: left const on const
select k.id, a.one from k left join (select 1 as one from t) a on a.one = k.id

-- name: left const on false
select k.id, a.one from k left join (select 1 as one from t) a on a.one = 2

-- name: full on const
select k.id, a.one from k full join (select n, 1 as one from t) a on a.one = k.id

-- name: cross
select k.id, a.one, e.two from k left join ((select n, 1 as one from t) a cross join (select 2 as two from e)
    e) on a.n = k.id

-- name: empty
select k.id, a.one, a.two from k left join (select id, 1 as one, coalesce(n, 0) as two from e) a on a.id =
    k.id

-- name: paren
select k.id, a.one, b.two from k left join ((select n, id, 1 as one from t) a left join (select t, 2 as two
    from u) b on b.t = a.id) on a.n = k.id

-- name: right nested
select k.id, a.one, b.two from (select n, id, 1 as one from t) a right join k on a.n = k.id left join (select
    t, 2 as two from u) b on b.t = a.id

-- name: limit in
select k.id, a.one from k left join (select n, 1 as one from t order by id limit 2) a on a.n = k.id

-- name: distinct in
select k.id, a.one from k left join (select distinct n, 1 as one from t) a on a.n = k.id

-- name: set in
select k.id, a.one from k left join (select n, 1 as one from t except select t, 1 from u) a on a.n = k.id

-- name: window in
select k.id, a.one, a.r from k left join (select n, 1 as one, row_number() over (partition by n order by id)
    as r, coalesce(lag(n) over (order by id), -1) as l from t) a on a.n = k.id

-- name: srf in
select k.id, a.one, a.g from k left join (select n, 1 as one, generate_series(1, 2) as g from t) a on a.n =
    k.id

-- name: left lateral one
select k.id, a.one from k left join lateral (select 1 as one) a on true

-- name: left lateral one on
select k.id, a.one from k left join lateral (select k.id as one) a on a.one = 1

-- name: lateral agg
select k.id, a.c, a.z from k left join lateral (select count(*) as c, 5 as z from t where t.n = k.id) a on a.c
    > 0

-- name: lateral agg true
select k.id, a.c, a.z from k left join lateral (select count(*) as c, 5 as z from t where t.n = k.id) a on
    true

-- name: lateral agg having
select k.id, a.c, a.z from k left join lateral (select count(*) as c, 5 as z from t where t.n = k.id having
    count(*) > 1) a on true

-- name: lateral group
select k.id, a.c, a.z from k left join lateral (select t.s, count(*) as c, 5 as z from t where t.n = k.id
    group by t.s) a on true

-- name: scalar agg
select k.id, (select 5 + count(*) from t where t.n = k.id) as z, (select coalesce(max(s), 'none') from t where
    t.n = k.id) as w, (select 7 from t where t.n = k.id having count(*) > 1) as h from k

-- name: scalar group
select k.id, (select 7 from t where t.id = k.id group by t.id) as z from k

-- name: scalar limit
select k.id, (select 7 from t where t.n = k.id limit 1) as z from k

-- name: scalar several
select k.id, (select 7 from t where t.n = k.id and t.id <> 2) as z from k

-- name: scalar uncor
select k.id, (select 7 from t where t.id = 4) as z from k

-- name: scalar empty
select k.id, (select 7 from e) as z, coalesce((select 7 from e), 8) as y from k

-- name: clock
select k.id, a.one, a.old from k left join (select n, 1 as one, now() > '2020-01-01' as old from t) a on a.n =
    k.id
