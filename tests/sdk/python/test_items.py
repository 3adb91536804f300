"""Items: create, read, replace, upsert, delete, conditions, limits, keys."""

import time
import uuid

import pytest
from azure.core import MatchConditions
from azure.cosmos import PartitionKey, exceptions
from azure.cosmos.partition_key import NonePartitionKeyValue, NullPartitionKeyValue


def status(call):
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        call()
    return refused.value.status_code


def test_create_read_replace_delete(container):
    created = container.create_item({"id": "1", "pk": "a", "name": "Ada", "tags": ["x", {"y": None}], "n": 1.5})
    assert created["_etag"] and created["_rid"] and created["_ts"] > 0 and created["_attachments"] == "attachments/"
    assert container.read_item("1", "a") == created
    replaced = container.replace_item("1", {"id": "1", "pk": "a", "name": "Grace"})
    assert replaced["_rid"] == created["_rid"] and replaced["_etag"] != created["_etag"]
    assert container.read_item("1", "a") == replaced
    container.delete_item("1", "a")
    assert status(lambda: container.read_item("1", "a")) == 404
    assert status(lambda: container.delete_item("1", "a")) == 404
    assert status(lambda: container.replace_item("1", {"id": "1", "pk": "a"})) == 404


def test_create_twice_conflicts_and_upsert_does_not(container):
    container.create_item({"id": "1", "pk": "a"})
    assert status(lambda: container.create_item({"id": "1", "pk": "a"})) == 409
    container.create_item({"id": "1", "pk": "b"})
    assert container.upsert_item({"id": "1", "pk": "a", "v": 2})["v"] == 2
    assert container.upsert_item({"id": "2", "pk": "a"})["id"] == "2"


def test_etags(container):
    first = container.create_item({"id": "1", "pk": "a"})
    second = container.upsert_item({"id": "1", "pk": "a", "v": 2})
    stale = {"etag": first["_etag"], "match_condition": MatchConditions.IfNotModified}
    fresh = {"etag": second["_etag"], "match_condition": MatchConditions.IfNotModified}
    assert status(lambda: container.replace_item("1", {"id": "1", "pk": "a"}, **stale)) == 412
    assert status(lambda: container.delete_item("1", "a", **stale)) == 412
    assert status(lambda: container.upsert_item({"id": "1", "pk": "a"}, **stale)) == 412
    third = container.replace_item("1", {"id": "1", "pk": "a", "v": 3}, **fresh)
    assert container.read_item("1", "a")["v"] == 3
    container.delete_item("1", "a", etag=third["_etag"], match_condition=MatchConditions.IfNotModified)


@pytest.mark.parametrize("key", ["p", "", "ü日", 5, -1, 5.5, 2**53, True, False])
def test_kinds_of_partition_key(container, key):
    id = uuid.uuid4().hex
    container.create_item({"id": id, "pk": key})
    assert container.read_item(id, key)["pk"] == key
    container.delete_item(id, key)


def test_null_and_missing_partition_keys_differ(container):
    container.create_item({"id": "1", "pk": None, "kind": "null"})
    container.create_item({"id": "1", "kind": "missing"})
    assert container.read_item("1", NullPartitionKeyValue)["kind"] == "null"
    assert container.read_item("1", NonePartitionKeyValue)["kind"] == "missing"


@pytest.mark.parametrize("id", ["a b%", "naïve-日本", "+plus+", "q'uote\"", "a,=.:~-@()^${}[]!_", " lead", "%20", "x" * 1023])
def test_odd_ids_round_trip(container, id):
    container.create_item({"id": id, "pk": "a"})
    assert container.read_item(id, "a")["id"] == id
    container.replace_item(id, {"id": id, "pk": "a", "v": 1})
    container.delete_item(id, "a")


def test_numbers_keep_their_value(container):
    numbers = [0, -1, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1, 1.5, 1e300, 5e-324, 0.1, 20.825]
    container.create_item({"id": "n", "pk": "a", "numbers": numbers})
    assert container.read_item("n", "a")["numbers"] == numbers
    assert list(container.query_items("SELECT VALUE c.numbers FROM c", partition_key="a")) == [numbers]


def test_property_order_and_unicode_are_kept(container):
    body = {"z": 1, "id": "o", "a": {"ß": "\u0000\u001f\"\\/", "b": "😀"}, "pk": "a"}
    created = container.create_item(body)
    assert list(created)[:4] == ["z", "id", "a", "pk"]
    assert list(created)[4:] == ["_rid", "_self", "_etag", "_attachments", "_ts"]
    assert container.read_item("o", "a")["a"] == body["a"]


def test_limits(container):
    assert status(lambda: container.create_item({"id": "x" * 1024, "pk": "a"})) == 400
    assert status(lambda: container.create_item({"id": "big", "pk": "a", "text": "x" * (2 * 1024 * 1024)})) == 413
    deep = {"id": "deep", "pk": "a"}
    inner = deep
    for _ in range(140):
        inner["d"] = {}
        inner = inner["d"]
    assert status(lambda: container.create_item(deep)) == 400
    assert list(container.read_all_items()) == []
    container.create_item({"id": "fits", "pk": "a", "text": "x" * 2_000_000})
    assert len(container.read_item("fits", "a")["text"]) == 2_000_000


def test_replace_renames_within_its_key(container):
    container.create_item({"id": "1", "pk": "a"})
    container.create_item({"id": "taken", "pk": "a"})
    assert status(lambda: container.replace_item("1", {"id": "taken", "pk": "a"})) == 409
    assert container.replace_item("1", {"id": "2", "pk": "a", "n": 1})["id"] == "2"
    assert container.read_item("2", "a")["n"] == 1
    assert status(lambda: container.read_item("1", "a")) == 404


def test_no_response_body_when_not_wanted(container):
    assert not container.create_item({"id": "1", "pk": "a"}, no_response=True)
    assert container.read_item("1", "a")["id"] == "1"


def test_unique_keys(database):
    policy = {"uniqueKeys": [{"paths": ["/email"]}, {"paths": ["/a", "/b/c"]}]}
    container = database.create_container(f"u-{uuid.uuid4().hex[:8]}", PartitionKey(path="/pk"), unique_key_policy=policy)
    container.create_item({"id": "1", "pk": "x", "email": "e1", "a": 1})
    assert status(lambda: container.create_item({"id": "2", "pk": "x", "email": "e1", "a": 2})) == 409
    assert status(lambda: container.create_item({"id": "2", "pk": "x", "email": "e2", "a": 1})) == 409
    container.create_item({"id": "2", "pk": "y", "email": "e1", "a": 1})
    container.upsert_item({"id": "1", "pk": "x", "email": "e1", "a": 1, "v": 2})
    container.create_item({"id": "3", "pk": "x", "email": "e3", "a": 3})
    assert status(lambda: container.upsert_item({"id": "3", "pk": "x", "email": "e1", "a": 3})) == 409
    container.delete_item("1", "x")
    container.upsert_item({"id": "3", "pk": "x", "email": "e1", "a": 3})


def test_time_to_live(database):
    container = database.create_container(f"t-{uuid.uuid4().hex[:8]}", PartitionKey(path="/pk"), default_ttl=1)
    container.create_item({"id": "short", "pk": "a"})
    container.create_item({"id": "long", "pk": "a", "ttl": 1000})
    container.create_item({"id": "never", "pk": "a", "ttl": -1})
    assert status(lambda: container.create_item({"id": "bad", "pk": "a", "ttl": 0})) == 400
    assert status(lambda: container.create_item({"id": "bad", "pk": "a", "ttl": "x"})) == 400
    time.sleep(2.1)
    assert status(lambda: container.read_item("short", "a")) == 404
    assert sorted(item["id"] for item in container.read_all_items()) == ["long", "never"]
    assert sorted(container.query_items("SELECT VALUE c.id FROM c", partition_key="a")) == ["long", "never"]
    container.create_item({"id": "short", "pk": "a"})


def test_pages_of_read_all(container):
    for number in range(25):
        container.create_item({"id": str(number), "pk": str(number % 7)})
    pages = container.read_all_items(max_item_count=4).by_page()
    seen = [item["id"] for page in pages for item in page]
    assert sorted(seen, key=int) == [str(number) for number in range(25)]
    assert len(set(seen)) == 25


def test_charge_and_session_headers(container):
    headers = {}
    container.create_item({"id": "1", "pk": "a"}, response_hook=lambda found, _: headers.update(found))
    assert float(headers["x-ms-request-charge"]) > 5
    assert "#" in headers["x-ms-session-token"]
    token = headers["x-ms-session-token"]
    container.read_item("1", "a", session_token=token)


def test_missing_container_is_not_found(database):
    missing = database.get_container_client("missing")
    assert status(lambda: missing.read_item("1", "a")) == 404
    assert status(lambda: list(missing.query_items("SELECT * FROM c", enable_cross_partition_query=True))) == 404
