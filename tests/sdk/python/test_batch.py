"""Transactional batches."""

import pytest
from azure.cosmos import PartitionKey, exceptions
from azure.cosmos.exceptions import CosmosBatchOperationError


def failed(container, operations, key="a"):
    with pytest.raises(CosmosBatchOperationError) as error:
        container.execute_item_batch(operations, partition_key=key)
    return error.value


def codes(results):
    return [result["statusCode"] for result in results]


def test_every_operation(container):
    container.create_item({"id": "old", "pk": "a", "n": 1})
    results = container.execute_item_batch([
        ("create", ({"id": "1", "pk": "a", "n": 1},)),
        ("upsert", ({"id": "2", "pk": "a"},)),
        ("upsert", ({"id": "old", "pk": "a", "n": 2},)),
        ("read", ("old",)),
        ("replace", ("1", {"id": "1", "pk": "a", "n": 2})),
        ("patch", ("1", [{"op": "incr", "path": "/n", "value": 1}]), {"filter_predicate": "from c where c.n = 2"}),
        ("read", ("1",)),
        ("delete", ("2",)),
    ], partition_key="a")
    headers = container.client_connection.last_response_headers
    assert codes(results) == [201, 201, 200, 200, 200, 200, 200, 204]
    assert results[3]["resourceBody"]["n"] == 2 and results[6]["resourceBody"]["n"] == 3
    assert results[6]["resourceBody"] == container.read_item("1", "a")
    assert results[5]["eTag"] == results[6]["resourceBody"]["_etag"]
    assert all(result["requestCharge"] > 0 for result in results)
    assert "resourceBody" not in results[7]
    assert float(headers["x-ms-request-charge"]) == pytest.approx(sum(result["requestCharge"] for result in results))
    assert "#" in headers["x-ms-session-token"]


@pytest.mark.parametrize("operation, code", [
    (("create", ({"id": "old", "pk": "a"},)), 409),
    (("replace", ("none", {"id": "none", "pk": "a"})), 404),
    (("delete", ("none",)), 404),
    (("read", ("none",)), 404),
    (("replace", ("old", {"id": "old", "pk": "a"}), {"if_match_etag": '"stale"'}), 412),
    (("patch", ("old", [{"op": "incr", "path": "/n", "value": 1}]), {"filter_predicate": "from c where c.n = 7"}), 412),
    (("patch", ("old", [{"op": "remove", "path": "/none"}])), 400),
    (("create", ({"id": "other", "pk": "b"},)), 400),
])
def test_one_failure_undoes_everything(container, operation, code):
    container.create_item({"id": "old", "pk": "a", "n": 1})
    error = failed(container, [("create", ({"id": "1", "pk": "a"},)), operation, ("delete", ("old",))])
    assert codes(error.operation_responses) == [424, code, 424]
    assert error.error_index == 1 and error.status_code == code
    assert [item["id"] for item in container.read_all_items()] == ["old"]


def test_conditions(container):
    etag = container.create_item({"id": "1", "pk": "a"})["_etag"]
    results = container.execute_item_batch([
        ("upsert", ({"id": "1", "pk": "a", "n": 1},), {"if_match_etag": etag}),
        ("create", ({"id": "2", "pk": "a"},)),
    ], partition_key="a")
    assert codes(results) == [200, 201]
    error = failed(container, [("upsert", ({"id": "1", "pk": "a"},), {"if_match_etag": etag}), ("delete", ("2",))])
    assert codes(error.operation_responses) == [412, 424]
    etag = results[0]["eTag"]
    known = container.execute_item_batch([
        ("read", ("1",), {"if_none_match_etag": etag}),
        ("create", ({"id": "3", "pk": "a"},)),
    ], partition_key="a")
    assert codes(known) == [304, 201]
    assert container.read_item("3", "a")["id"] == "3"


def test_limits(container):
    assert "no operations" in refused(lambda: container.execute_item_batch([], partition_key="a")).message
    many = [("create", ({"id": str(n), "pk": "a"},)) for n in range(101)]
    assert refused(lambda: container.execute_item_batch(many, partition_key="a")).status_code == 400
    assert codes(container.execute_item_batch(many[:100], partition_key="a")) == [201] * 100
    large = [("upsert", ({"id": str(n), "pk": "a", "t": "x" * (1 << 20)},)) for n in range(2)]
    assert refused(lambda: container.execute_item_batch(large, partition_key="a")).status_code == 413
    for operation in large:
        container.execute_item_batch([operation], partition_key="a")
    reads = [("read", (str(n % 2),)) for n in range(5)]
    error = failed(container, reads)
    assert codes(error.operation_responses) == [424, 424, 424, 413, 424]


def test_hierarchical_keys_must_be_complete(database):
    container = database.create_container("batch-hierarchy", PartitionKey(path=["/t", "/u"], kind="MultiHash"))
    create = [("create", ({"id": "1", "t": "a", "u": 1},))]
    assert codes(container.execute_item_batch(create, partition_key=["a", 1])) == [201]
    assert refused(lambda: container.execute_item_batch(create, partition_key=["a"])).status_code == 400


def test_unique_keys(database):
    container = database.create_container(
        "batch-unique", PartitionKey(path="/pk"), unique_key_policy={"uniqueKeys": [{"paths": ["/mail"]}]}
    )
    container.create_item({"id": "1", "pk": "a", "mail": "x"})
    error = failed(container, [("create", ({"id": "2", "pk": "a", "mail": "x"},))])
    assert codes(error.operation_responses) == [409]
    moved = [("delete", ("1",)), ("create", ({"id": "2", "pk": "a", "mail": "x"},))]
    assert codes(container.execute_item_batch(moved, partition_key="a")) == [204, 201]


def refused(call):
    with pytest.raises(exceptions.CosmosHttpResponseError) as error:
        call()
    return error.value
