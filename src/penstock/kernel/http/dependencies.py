"""FastAPI dependencies: parts of the runtime that the app carries in its state."""

from typing import Annotated

from fastapi import Depends, Request

from penstock.kernel.db import Db


async def _db(request: Request) -> Db:
    db: Db = request.app.state.db
    return db


DbHere = Annotated[Db, Depends(_db)]
