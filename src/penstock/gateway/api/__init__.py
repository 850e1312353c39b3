"""HTTP shapes and routes of the gateway module."""

from collections.abc import Sequence

from fastapi import APIRouter

from penstock.gateway.api import uploads

UPLOADS = (uploads.BASE,)  # paths whose routes limit their request bodies themselves
ROUTERS: Sequence[APIRouter] = (uploads.router,)
