"""HTTP of the room: shapes and routes. It translates and decides nothing."""

from collections.abc import Sequence

from fastapi import APIRouter

from penstock.etl.api import health, papers, reviews, rules, submit, tasks

UPLOADS = (submit.UPLOAD,)  # paths whose bodies the room bounds itself
ROUTERS: Sequence[APIRouter] = (
    submit.router,
    tasks.router,
    papers.router,
    reviews.router,
    rules.router,
    health.router,
)
