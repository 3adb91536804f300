"""The asynchronous client: the same server, many operations at once."""

import asyncio
import uuid

import pytest
from azure.cosmos import PartitionKey, exceptions
from azure.cosmos.aio import CosmosClient

from conftest import ENDPOINT, KEY, client_options


def in_container(body):
    async def run():
        async with CosmosClient(ENDPOINT, KEY, **client_options()) as client:
            database = await client.create_database(f"aio-{uuid.uuid4().hex[:8]}")
            try:
                await body(await database.create_container("c", PartitionKey(path="/pk")))
            finally:
                await client.delete_database(database.id)

    asyncio.run(run())


def test_life_cycle():
    async def body(container):
        created = await container.create_item({"id": "1", "pk": "a", "v": 1})
        assert await container.read_item("1", "a") == created
        assert (await container.upsert_item({"id": "1", "pk": "a", "v": 2}))["v"] == 2
        await container.delete_item("1", "a")
        with pytest.raises(exceptions.CosmosResourceNotFoundError):
            await container.read_item("1", "a")

    in_container(body)


def test_concurrent_writes_are_all_there():
    async def body(container):
        await asyncio.gather(*(container.create_item({"id": str(n), "pk": f"p{n % 9}"}) for n in range(60)))
        found = [item["id"] async for item in container.read_all_items()]
        assert sorted(found, key=int) == [str(n) for n in range(60)]
        queried = container.query_items("SELECT VALUE c.id FROM c WHERE c.pk = @pk", parameters=[{"name": "@pk", "value": "p3"}])
        assert sorted([id async for id in queried], key=int) == [str(n) for n in range(60) if n % 9 == 3]

    in_container(body)


def test_one_of_many_creators_wins():
    async def body(container):
        tries = (container.create_item({"id": "1", "pk": "a", "by": n}) for n in range(20))
        results = await asyncio.gather(*tries, return_exceptions=True)
        winners = [result for result in results if isinstance(result, dict)]
        losers = [result for result in results if isinstance(result, exceptions.CosmosResourceExistsError)]
        assert len(winners) == 1 and len(losers) == 19
        assert (await container.read_item("1", "a"))["by"] == winners[0]["by"]

    in_container(body)


def test_read_items():
    async def body(container):
        for n in range(10):
            await container.create_item({"id": str(n), "pk": f"p{n % 3}"})
        found = await container.read_items([(str(n), f"p{n % 3}") for n in range(0, 10, 2)])
        assert sorted(item["id"] for item in found) == ["0", "2", "4", "6", "8"]

    in_container(body)
