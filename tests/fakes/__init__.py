"""Fakes of external programs that we cannot have: small real classes, named by how they behave.

- ``authenticators.py``: authenticates callers by a name, without keys or a database.
- ``blocking_handler.py``: ``BlockingHandler``, a job handler that blocks every job until it is opened.
- ``collector.py``: an OpenTelemetry collector that keeps the spans it receives.
- ``grounding.py``: simple grounding functions for the sandbox.
- ``llm_server.py``, ``llm_behaviours.py``: a chat completions server whose behaviour the model name selects.
- ``mineru_server.py``: MinerU's cloud and a self-hosted server.
- ``models.py``: models without a server.
- ``ocr.py``: OCR providers and post-processors without an engine.
- ``pooler.py``: ``TransactionPooler``, a PostgreSQL pooler in transaction mode that changes the server connection as
  often as it may.
- ``receivers.py``: webhook receivers, named by what they do to the sender.
- ``resolvers.py``: DNS resolvers, named by what they answer.
- ``sse.py``: reads a stream of server-sent events.
"""
