"""HTTP shapes and routes of the etl module. They translate and decide nothing.

Every GET needs the scope `read`, everything else `write`; a key bound to a project of the tasks module has no access
here.
"""

from collections.abc import Sequence

from fastapi import APIRouter

from penstock.etl.api import artifacts, bulk, health, reviews, rules, submit, tasks

UPLOADS = (submit.UPLOAD,)  # paths that limit their request bodies themselves
ROUTERS: Sequence[APIRouter] = (
    submit.router,
    tasks.router,
    bulk.router,
    artifacts.router,
    reviews.router,
    rules.router,
    health.router,
)
