"""The client that ARQ works with, on the link's own connections."""

from arq.connections import ArqRedis
from redis.asyncio.client import Pipeline


class SteadyPipeline(Pipeline):
    """Gives its connection back whatever happens. Redis-py's own keeps it for ever when the server stops answering
    while keys are watched, and each time the pool has one connection less."""

    async def reset(self) -> None:
        """Forget the commands and give the connection back."""
        try:
            await super().reset()  # type: ignore[no-untyped-call]  # redis-py's gap
        finally:
            if (stuck := self.connection) is not None:
                self.connection = None
                await stuck.disconnect(nowait=True)
                await self.connection_pool.release(stuck)


class ArqClient(ArqRedis):
    """What `arq.Worker` calls its pool."""

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        """A pipeline that loses no connection."""
        return SteadyPipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)
