"""The routes of the toy module."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel

from penstock.access.domain import Scope
from penstock.access.guard import requires
from penstock.kernel.errors import NotFound
from tests.journeys.toy import store
from tests.journeys.toy.deps import Deps, NoteTaken

router = APIRouter(prefix="/api/v1/toy", tags=["toy"])


class NewNote(BaseModel):
    """A note to take."""

    text: str


class NoteView(BaseModel):
    """A note."""

    id: str
    text: str
    archived: bool


async def _deps(request: Request) -> Deps:
    deps: Deps = request.app.state.toy
    return deps


ToyDeps = Annotated[Deps, Depends(_deps)]


@router.post("/notes", status_code=201, summary="Take a note", **requires(Scope.WRITE))
async def take_note(new: NewNote, deps: ToyDeps) -> NoteView:
    """The note is written in upper case by a job, later."""
    async with deps.db.tx() as tx:
        note_id = await store.insert_note(tx, new.text)
        tx.send(NoteTaken(note_id=note_id))
    deps.metrics.taken += 1
    return NoteView(id=note_id, text=new.text, archived=False)


@router.get("/notes/{note_id}", summary="Get a note", **requires(Scope.READ))
async def get_note(note_id: str, deps: ToyDeps) -> NoteView:
    """The note as it is now."""
    async with deps.db.read() as tx:
        note = await store.find_note(tx, note_id)
    if note is None:
        raise NotFound
    return NoteView(id=note.id, text=note.text, archived=note.archived)
