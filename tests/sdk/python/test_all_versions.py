"""The change feed with all versions and deletes."""

import time

import pytest
from azure.cosmos import PartitionKey, exceptions


@pytest.fixture
def container(database):
    policy = {"retentionDuration": 10}
    container = database.create_container(
        "versions", PartitionKey(path="/pk"), change_feed_policy=policy, default_ttl=-1
    )
    yield container
    database.delete_container(container.id)


def versions(container, **options):
    changes = list(container.query_items_change_feed(mode="AllVersionsAndDeletes", **options))
    return changes, container.client_connection.last_response_headers["etag"]


def test_every_version_and_delete(container):
    container.create_item({"id": "a", "pk": "p", "n": 1})
    changes, token = versions(container)
    assert changes == []
    container.upsert_item({"id": "a", "pk": "p", "n": 2})
    container.create_item({"id": "b", "pk": "p", "n": 3})
    container.delete_item("a", "p")
    changes, token = versions(container, continuation=token)
    kinds = [(change["metadata"]["operationType"], change["current"].get("n")) for change in changes]
    assert kinds == [("replace", 2), ("create", 3), ("delete", None)]
    replaced, _, deleted = changes
    assert "previous" not in replaced and replaced["metadata"]["previousImageLSN"] < replaced["metadata"]["lsn"]
    assert deleted["metadata"]["id"] == "a" and deleted["metadata"]["partitionKey"] == {"pk": "p"}
    assert deleted["previous"]["n"] == 2 and "timeToLiveExpired" not in deleted["metadata"]
    assert all(change["metadata"]["crts"] > 0 for change in changes)
    assert versions(container, continuation=token)[0] == []


def test_an_expired_item_is_told_as_deleted(container):
    _, token = versions(container)
    container.create_item({"id": "a", "pk": "p", "ttl": 1})
    found = []
    for _ in range(100):
        changes, token = versions(container, continuation=token)
        found += changes
        if len(found) == 2:
            break
        time.sleep(0.1)
    assert [change["metadata"]["operationType"] for change in found] == ["create", "delete"]
    assert found[1]["metadata"]["timeToLiveExpired"] is True


def test_versions_are_not_there_without_the_policy(database):
    plain = database.create_container("plain", PartitionKey(path="/pk"))
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        versions(plain)
    assert refused.value.status_code == 400
    database.delete_container("plain")
