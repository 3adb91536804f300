"""Quire, a document database that speaks the Azure Cosmos DB for NoSQL API, and a server for tests.

>>> import quire
>>> with quire.Server() as q:                                    # doctest: +SKIP
...     client = CosmosClient.from_connection_string(q.connection_string)
"""

from ._server import WELL_KNOWN_KEY, Server, ServerError, binary

__all__ = ["WELL_KNOWN_KEY", "Server", "ServerError", "binary"]
