"""ORDER BY over as many partitions as the server has, stopped after every page and begun again by a new client."""

import uuid

import pytest
from azure.cosmos import CosmosClient, PartitionKey

from conftest import ENDPOINT, KEY, client_options

# The client merges values of one type only.
ORDERS = ["c.n", "c.n DESC", "c.tied", "c.tied DESC", "c.s", "c.s DESC"]


@pytest.fixture(scope="module")
def ordered(database):
    container = database.create_container(f"ordered-{uuid.uuid4().hex[:8]}", PartitionKey(path="/pk"))
    for number in range(17):
        text = "z" * (190 + number % 5)
        container.create_item({"id": str(number), "pk": str(number), "n": number, "tied": number % 3, "s": text})
    yield container
    database.delete_container(container.id)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("size", [1, 4])
def test_by_token_after_every_page_of_a_key(ordered, order, size):
    for number in range(3):
        ordered.upsert_item({"id": f"t{number}", "pk": "tied", "n": 5, "tied": 7, "s": "s"})
    query = f"SELECT c.id FROM c ORDER BY {order}"
    whole = [row["id"] for row in ordered.query_items(query, partition_key="tied")]
    rows, token = [], None
    while True:
        client = CosmosClient(ENDPOINT, KEY, **client_options())
        database = client.get_database_client(ordered.container_link.split("/")[1])
        container = database.get_container_client(ordered.id)
        pages = container.query_items(query, partition_key="tied", max_item_count=size).by_page(token)
        rows += [row["id"] for row in next(pages)]
        token = pages.continuation_token
        if not token:
            break
    assert rows == whole and len(rows) == 3


@pytest.mark.parametrize("size", [1, 3, 100])
def test_every_order_is_whole_in_pages(ordered, size):
    for order in ORDERS:
        query = f"SELECT c.id FROM c WHERE c.n < 1000 ORDER BY {order}"
        rows = ordered.query_items(query, enable_cross_partition_query=True, max_item_count=size)
        rows = [row["id"] for row in rows]
        assert sorted(rows) == sorted({item["id"] for item in ordered.read_all_items()}), (order, size)


def test_a_streamed_query_goes_on_by_the_gateways_token(ordered):
    query = "SELECT c.id FROM c WHERE c.n >= 0"
    rows, token = [], None
    while True:
        pages = ordered.query_items(query, enable_cross_partition_query=True, max_item_count=2).by_page(token)
        rows += [row["id"] for row in next(pages)]
        token = pages.continuation_token
        if not token:
            break
    assert sorted(rows) == sorted({item["id"] for item in ordered.read_all_items()})
