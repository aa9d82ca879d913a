"""Requests to the service, from both sides. The rows of requests are in `catalog.requests`.

ask       ask a running service by SQL, and wait for its answer; imports neither Spark nor the planner
answer    execute a request with the rights of the role that asked, and record the answer

`service.run.desk` decides which request begins, and on which worker.
"""
