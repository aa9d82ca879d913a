-- tables --
-- The specification's eight tables, with its types.
CREATE TABLE region (
    r_regionkey  integer NOT NULL,
    r_name       char(25) NOT NULL,
    r_comment    varchar(152)
);
CREATE TABLE nation (
    n_nationkey  integer NOT NULL,
    n_name       char(25) NOT NULL,
    n_regionkey  integer NOT NULL,
    n_comment    varchar(152)
);
CREATE TABLE supplier (
    s_suppkey    integer NOT NULL,
    s_name       char(25) NOT NULL,
    s_address    varchar(40) NOT NULL,
    s_nationkey  integer NOT NULL,
    s_phone      char(15) NOT NULL,
    s_acctbal    numeric(15,2) NOT NULL,
    s_comment    varchar(101) NOT NULL
);
CREATE TABLE customer (
    c_custkey     integer NOT NULL,
    c_name        varchar(25) NOT NULL,
    c_address     varchar(40) NOT NULL,
    c_nationkey   integer NOT NULL,
    c_phone       char(15) NOT NULL,
    c_acctbal     numeric(15,2) NOT NULL,
    c_mktsegment  char(10) NOT NULL,
    c_comment     varchar(117) NOT NULL
);
CREATE TABLE part (
    p_partkey      integer NOT NULL,
    p_name         varchar(55) NOT NULL,
    p_mfgr         char(25) NOT NULL,
    p_brand        char(10) NOT NULL,
    p_type         varchar(25) NOT NULL,
    p_size         integer NOT NULL,
    p_container    char(10) NOT NULL,
    p_retailprice  numeric(15,2) NOT NULL,
    p_comment      varchar(23) NOT NULL
);
CREATE TABLE partsupp (
    ps_partkey     integer NOT NULL,
    ps_suppkey     integer NOT NULL,
    ps_availqty    integer NOT NULL,
    ps_supplycost  numeric(15,2) NOT NULL,
    ps_comment     varchar(199) NOT NULL
);
CREATE TABLE orders (
    o_orderkey       bigint NOT NULL,
    o_custkey        integer NOT NULL,
    o_orderstatus    char(1) NOT NULL,
    o_totalprice     numeric(15,2) NOT NULL,
    o_orderdate      date NOT NULL,
    o_orderpriority  char(15) NOT NULL,
    o_clerk          char(15) NOT NULL,
    o_shippriority   integer NOT NULL,
    o_comment        varchar(79) NOT NULL
);
CREATE TABLE lineitem (
    l_orderkey       bigint NOT NULL,
    l_partkey        integer NOT NULL,
    l_suppkey        integer NOT NULL,
    l_linenumber     integer NOT NULL,
    l_quantity       numeric(15,2) NOT NULL,
    l_extendedprice  numeric(15,2) NOT NULL,
    l_discount       numeric(15,2) NOT NULL,
    l_tax            numeric(15,2) NOT NULL,
    l_returnflag     char(1) NOT NULL,
    l_linestatus     char(1) NOT NULL,
    l_shipdate       date NOT NULL,
    l_commitdate     date NOT NULL,
    l_receiptdate    date NOT NULL,
    l_shipinstruct   char(25) NOT NULL,
    l_shipmode       char(10) NOT NULL,
    l_comment        varchar(44) NOT NULL
);

-- keys --
-- Created after the tables are populated. Foreign keys prove that the changes leave no orphans.
ALTER TABLE region ADD PRIMARY KEY (r_regionkey);
ALTER TABLE nation ADD PRIMARY KEY (n_nationkey), ADD FOREIGN KEY (n_regionkey) REFERENCES region;
ALTER TABLE supplier ADD PRIMARY KEY (s_suppkey), ADD FOREIGN KEY (s_nationkey) REFERENCES nation;
ALTER TABLE customer ADD PRIMARY KEY (c_custkey), ADD FOREIGN KEY (c_nationkey) REFERENCES nation;
ALTER TABLE part ADD PRIMARY KEY (p_partkey);
ALTER TABLE partsupp ADD PRIMARY KEY (ps_partkey, ps_suppkey),
    ADD FOREIGN KEY (ps_partkey) REFERENCES part, ADD FOREIGN KEY (ps_suppkey) REFERENCES supplier;
ALTER TABLE orders ADD PRIMARY KEY (o_orderkey), ADD FOREIGN KEY (o_custkey) REFERENCES customer;
ALTER TABLE lineitem ADD PRIMARY KEY (l_orderkey, l_linenumber),
    ADD FOREIGN KEY (l_orderkey) REFERENCES orders, ADD FOREIGN KEY (l_partkey, l_suppkey) REFERENCES partsupp;

-- indexes --
-- On the foreign keys, and on the dates that queries filter by.
CREATE INDEX ON nation (n_regionkey);
CREATE INDEX ON supplier (s_nationkey);
CREATE INDEX ON customer (c_nationkey);
CREATE INDEX ON partsupp (ps_suppkey);
CREATE INDEX ON orders (o_custkey);
CREATE INDEX ON orders (o_orderdate);
CREATE INDEX ON lineitem (l_partkey, l_suppkey);
CREATE INDEX ON lineitem (l_suppkey);
CREATE INDEX ON lineitem (l_shipdate);
CREATE INDEX ON lineitem (l_receiptdate);

-- revenue --
-- The view of query 15.
CREATE VIEW revenue0 (supplier_no, total_revenue) AS
SELECT l_suppkey, sum(l_extendedprice * (1 - l_discount))
FROM lineitem
WHERE l_shipdate >= DATE '1996-01-01'
    AND l_shipdate < DATE '1996-01-01' + INTERVAL '3' MONTH
GROUP BY l_suppkey;

-- statistics --
VACUUM (ANALYZE) region, nation, supplier, customer, part, partsupp, orders, lineitem;

-- sizes --
SELECT 'region', count(*) FROM region
UNION ALL SELECT 'nation', count(*) FROM nation
UNION ALL SELECT 'supplier', count(*) FROM supplier
UNION ALL SELECT 'customer', count(*) FROM customer
UNION ALL SELECT 'part', count(*) FROM part
UNION ALL SELECT 'partsupp', count(*) FROM partsupp
UNION ALL SELECT 'orders', count(*) FROM orders
UNION ALL SELECT 'lineitem', count(*) FROM lineitem;
