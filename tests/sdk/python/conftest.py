"""A client of the live server named by QUIRE_ENDPOINT, and a fresh database for each test module.

The same tests can point at a real account: set QUIRE_ENDPOINT and QUIRE_KEY.
"""

import os
import uuid

import pytest
from azure.cosmos import CosmosClient, PartitionKey

WELL_KNOWN_KEY = (
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
)
ENDPOINT = os.environ["QUIRE_ENDPOINT"]
KEY = os.environ.get("QUIRE_KEY", WELL_KNOWN_KEY)
PARTITIONS = int(os.environ.get("QUIRE_PARTITIONS", "1"))


def client_options():
    authority = os.environ.get("QUIRE_CA")
    return {"connection_verify": authority} if authority else {}


@pytest.fixture(scope="session")
def client():
    return CosmosClient(ENDPOINT, KEY, **client_options())


@pytest.fixture(scope="module")
def database(client):
    database = client.create_database(f"py-{uuid.uuid4().hex[:8]}")
    yield database
    client.delete_database(database.id)


@pytest.fixture
def container(database):
    container = database.create_container(f"c-{uuid.uuid4().hex[:8]}", PartitionKey(path="/pk"))
    yield container
    database.delete_container(container.id)
