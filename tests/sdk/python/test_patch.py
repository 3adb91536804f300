"""Patch: operations, conditions, limits and what is refused."""

import pytest
from azure.core import MatchConditions
from azure.cosmos import PartitionKey, exceptions


def refused(call):
    with pytest.raises(exceptions.CosmosHttpResponseError) as error:
        call()
    return error.value


def test_every_operation(container):
    container.create_item({"id": "1", "pk": "a", "name": "Ada", "n": 1, "gone": True, "tags": ["x", "y"], "o": {"k": 1}})
    operations = [
        {"op": "add", "path": "/color", "value": "yellow"},
        {"op": "add", "path": "/tags/1", "value": "middle"},
        {"op": "set", "path": "/tags/0", "value": "first"},
        {"op": "replace", "path": "/name", "value": None},
        {"op": "remove", "path": "/gone"},
        {"op": "incr", "path": "/n", "value": 7},
        {"op": "incr", "path": "/new", "value": -1.5},
        {"op": "move", "from": "/o/k", "path": "/moved"},
        {"op": "set", "path": "/a~1b", "value": {"deep": [1]}},
        {"op": "add", "path": "/tags/-", "value": "last"},
    ]
    patched = container.patch_item("1", "a", operations)
    user = {name: value for name, value in patched.items() if not name.startswith("_")}
    assert user == {
        "id": "1", "pk": "a", "name": None, "n": 8, "tags": ["first", "middle", "y", "last"], "o": {},
        "color": "yellow", "new": -1.5, "moved": 1, "a/b": {"deep": [1]},
    }
    assert list(user)[:5] == ["id", "pk", "name", "n", "tags"]
    assert container.read_item("1", "a") == patched


def test_conditions(container):
    created = container.create_item({"id": "1", "pk": "a", "number": 3})
    incr = [{"op": "incr", "path": "/number", "value": 7}]
    patched = container.patch_item("1", "a", incr, filter_predicate="from root where root.number = 3")
    assert patched["number"] == 10
    error = refused(lambda: container.patch_item("1", "a", incr, filter_predicate="from c where c.number = 3"))
    assert (error.status_code, error.sub_status) == (412, 1110)
    assert refused(lambda: container.patch_item("1", "a", incr, filter_predicate="from c where")).status_code == 400
    stale = {"etag": created["_etag"], "match_condition": MatchConditions.IfNotModified}
    assert refused(lambda: container.patch_item("1", "a", incr, **stale)).status_code == 412
    current = {"etag": patched["_etag"], "match_condition": MatchConditions.IfNotModified}
    assert container.patch_item("1", "a", incr, **current)["number"] == 17


@pytest.mark.parametrize("operation", [
    {"op": "replace", "path": "/missing", "value": 1},
    {"op": "remove", "path": "/missing"},
    {"op": "add", "path": "/missing/child", "value": 1},
    {"op": "incr", "path": "/name", "value": 1},
    {"op": "set", "path": "/id", "value": "2"},
    {"op": "set", "path": "/pk", "value": "b"},
    {"op": "set", "path": "/_ts", "value": 1},
    {"op": "test", "path": "/name", "value": "Ada"},
    {"op": "move", "from": "/o", "path": "/o/inside"},
])
def test_bad_operations_change_nothing(container, operation):
    created = container.create_item({"id": "1", "pk": "a", "name": "Ada", "o": {}})
    good = {"op": "set", "path": "/good", "value": 1}
    error = refused(lambda: container.patch_item("1", "a", [good, operation]))
    assert error.status_code == 400 and "For Operation(2)" in error.message
    assert container.read_item("1", "a") == created


def test_limits(container):
    container.create_item({"id": "1", "pk": "a"})
    set_ = {"op": "set", "path": "/n", "value": 1}
    container.patch_item("1", "a", [set_] * 10)
    assert refused(lambda: container.patch_item("1", "a", [set_] * 11)).status_code == 400
    assert refused(lambda: container.patch_item("1", "a", [])).status_code == 400
    assert refused(lambda: container.patch_item("2", "a", [set_])).status_code == 404
    assert refused(lambda: container.patch_item("2", "a", [{"op": "nonsense"}])).status_code == 404
    big = {"op": "set", "path": "/t", "value": "x" * (1 << 20)}
    container.patch_item("1", "a", [big])
    assert refused(lambda: container.patch_item("1", "a", [{**big, "path": "/u"}])).status_code == 413


def test_without_a_body_in_the_answer(container):
    container.create_item({"id": "1", "pk": "a"})
    answer = container.patch_item("1", "a", [{"op": "set", "path": "/n", "value": 1}], no_response=True)
    assert not answer
    assert container.read_item("1", "a")["n"] == 1


def test_hierarchical_keys_cannot_be_patched(database):
    container = database.create_container("patch-hierarchy", PartitionKey(path=["/t", "/u/v"], kind="MultiHash"))
    container.create_item({"id": "1", "t": "a", "u": {"v": 1, "w": 1}})
    assert container.patch_item("1", ["a", 1], [{"op": "set", "path": "/u/w", "value": 2}])["u"]["w"] == 2
    for path in ["/t", "/u", "/u/v"]:
        operation = {"op": "set", "path": path, "value": 1}
        assert refused(lambda: container.patch_item("1", ["a", 1], [operation])).status_code == 400
