"""Views: a container maintained from another one, in the service's definition form."""

import time
import uuid

import pytest
from azure.cosmos import GlobalSecondaryIndexDefinition, PartitionKey, exceptions


def create_view(database, source, path, projection):
    return database.create_container(
        f"v-{uuid.uuid4().hex[:8]}",
        PartitionKey(path=path),
        global_secondary_index=GlobalSecondaryIndexDefinition(source.id, projection),
    )


def caught_up(view, expected):
    """What the view has, once that is what is expected."""
    deadline = time.time() + 60
    while True:
        found = sorted((item["_id"], item.get("city"), item.get("n")) for item in view.read_all_items())
        if found == sorted(expected) or time.time() > deadline:
            return found
        time.sleep(0.05)


@pytest.fixture
def source(database):
    container = database.create_container(f"s-{uuid.uuid4().hex[:8]}", PartitionKey(path="/pk"))
    for n in range(60):
        container.create_item({"id": str(n), "pk": f"k{n % 7}", "city": f"c{n % 4}", "n": n, "more": [n]})
    return container


def test_a_view_follows_its_source(database, source):
    view = create_view(database, source, "/city", "SELECT c.city, c.n FROM c")
    expected = [(str(n), f"c{n % 4}", n) for n in range(60)]
    assert caught_up(view, expected) == sorted(expected)
    source.upsert_item({"id": "1", "pk": "k1", "city": "new", "n": 100})
    source.delete_item("2", "k2")
    source.patch_item("3", "k3", [{"op": "remove", "path": "/city"}])
    source.create_item({"id": "x", "pk": "k", "city": "new", "n": 7})
    expected = [row for row in expected if row[0] not in ("1", "2", "3")]
    expected += [("1", "new", 100), ("3", None, 3), ("x", "new", 7)]
    # An absent value does not compare with a text.
    key = lambda row: (row[0], row[1] or "", row[2])
    deadline = time.time() + 60
    while time.time() < deadline:
        found = [(item["_id"], item.get("city"), item.get("n")) for item in view.read_all_items()]
        if sorted(found, key=key) == sorted(expected, key=key):
            break
        time.sleep(0.05)
    assert sorted(found, key=key) == sorted(expected, key=key)
    rows = list(view.query_items("SELECT VALUE c._id FROM c ORDER BY c.n", partition_key="new"))
    assert rows == ["x", "1"]
    assert "x-quire-view-lag" in view.client_connection.last_response_headers
    assert all("more" not in item for item in view.read_all_items())


def test_everything_and_the_feed(database, source):
    view = create_view(database, source, "/n", "SELECT * FROM c")
    expected = [(str(n), f"c{n % 4}", n) for n in range(60)]
    assert caught_up(view, expected) == sorted(expected)
    item = next(iter(view.query_items("SELECT * FROM c WHERE c.n = 9", enable_cross_partition_query=True)))
    assert view.read_item(item["id"], 9)["more"] == [9]
    changes = list(view.query_items_change_feed(start_time="Beginning"))
    assert sorted(change["n"] for change in changes) == list(range(60))


def test_nobody_writes_to_it(database, source):
    view = create_view(database, source, "/city", "SELECT * FROM c")
    for write in (
        lambda: view.create_item({"id": "x", "city": "c"}),
        lambda: view.upsert_item({"id": "x", "city": "c"}),
        lambda: view.replace_item("x", {"id": "x", "city": "c"}),
        lambda: view.delete_item("x", "c"),
        lambda: view.patch_item("x", "c", [{"op": "set", "path": "/a", "value": 1}]),
    ):
        with pytest.raises(exceptions.CosmosHttpResponseError) as failure:
            write()
        assert failure.value.status_code == 403
        assert "is a view of" in str(failure.value)


def test_definitions(database, source):
    view = create_view(database, source, "/city", "SELECT c.city FROM c")
    definition = view.read()["globalSecondaryIndexDefinition"]
    assert definition["sourceCollectionId"] == source.id
    assert definition["sourceCollectionRid"] == source.read()["_rid"]
    assert definition["status"] in ("Initializing", "InitialBuildAfterCreate", "Active")
    # Another policy, the same definition: read back or left out.
    policy = {"indexingMode": "consistent", "includedPaths": [{"path": "/city/?"}], "excludedPaths": [{"path": "/*"}]}
    database.replace_container(view, PartitionKey(path="/city"), indexing_policy=policy)
    assert view.read()["globalSecondaryIndexDefinition"]["definition"] == "SELECT c.city FROM c"
    assert source.read()["materializedViews"][0]["id"] == view.id
    with pytest.raises(exceptions.CosmosHttpResponseError) as failure:
        database.delete_container(source.id)
    assert failure.value.status_code == 400
    for projection in ("SELECT c.a.b FROM c", "SELECT * FROM c WHERE c.a = 1", "SELECT VALUE c.a FROM c"):
        with pytest.raises(exceptions.CosmosHttpResponseError) as failure:
            create_view(database, source, "/a", projection)
        assert failure.value.status_code == 400
    database.delete_container(view.id)
    database.delete_container(source.id)
