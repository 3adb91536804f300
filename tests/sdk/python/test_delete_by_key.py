"""Deleting all items of a partition key."""

import pytest
from azure.cosmos import exceptions


def test_all_items_of_a_key_are_gone_at_once(container):
    for n in range(60):
        container.create_item({"id": str(n), "pk": f"k{n % 3}"})
    container.delete_all_items_by_partition_key("k1")
    assert list(container.query_items("SELECT * FROM c", partition_key="k1")) == []
    counted = container.query_items("SELECT VALUE COUNT(1) FROM c", enable_cross_partition_query=True)
    assert sum(counted) == 40
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        container.read_item("1", "k1")
    container.create_item({"id": "1", "pk": "k1", "again": True})
    assert container.read_item("1", "k1")["again"]
    assert len(list(container.read_all_items())) == 41
