"""What tests of Millstream, and of applications that use it, can import.

oracle, bags                     PostgreSQL's own answer, compared as bags
randomness, values, queries/     random tables, values and queries
writers, tpch/, kinds            load: concurrent writers, TPC-H, one query per kind of block
pgoutput, proxy, disk, restore   replication messages by hand; broken networks, full disks, restored databases
spark                            one Spark for several test processes
planning_server                  a double of the planning server, for compiler tests without a database
"""
