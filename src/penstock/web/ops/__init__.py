"""The routes of operators: jobs, dead letters, processes and periodic tasks. They require the admin scope.

`params.py` has what they share. Changes are in the audit log. A bulk call changes at most `limit` rows in its one
transaction and says whether more are left, so that a hundred thousand failed jobs are retried in many short ones.
"""

from collections.abc import Sequence

from fastapi import APIRouter

from penstock.web.ops import cluster, jobs, messages

ROUTERS: Sequence[APIRouter] = (jobs.router, messages.router, cluster.router)
