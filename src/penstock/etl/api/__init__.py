"""HTTP shapes and routes of the etl module. They translate and decide nothing."""

from collections.abc import Sequence

from fastapi import APIRouter

from penstock.etl.api import artifacts, health, reviews, rules, submit, tasks

UPLOADS = (submit.UPLOAD,)  # paths that limit their request bodies themselves
ROUTERS: Sequence[APIRouter] = (
    submit.router,
    tasks.router,
    artifacts.router,
    reviews.router,
    rules.router,
    health.router,
)
