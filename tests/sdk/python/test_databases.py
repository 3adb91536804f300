"""Databases and containers: life cycle, validation, throughput, ranges."""

import uuid

import pytest
from azure.cosmos import PartitionKey, ThroughputProperties, exceptions

from conftest import PARTITIONS


def name():
    return f"n-{uuid.uuid4().hex[:8]}"


def test_database_life_cycle(client):
    id = name()
    database = client.create_database(id)
    assert database.read()["id"] == id
    with pytest.raises(exceptions.CosmosResourceExistsError):
        client.create_database(id)
    assert client.create_database_if_not_exists(id).id == id
    assert id in [found["id"] for found in client.list_databases()]
    found = list(client.query_databases("SELECT * FROM root r WHERE r.id=@id", [{"name": "@id", "value": id}]))
    assert [one["id"] for one in found] == [id]
    client.delete_database(id)
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        client.get_database_client(id).read()


@pytest.mark.parametrize("bad", ["", "a/b", "a?b", "a#b", "x" * 256])
def test_bad_database_names(client, bad):
    with pytest.raises((exceptions.CosmosHttpResponseError, ValueError)):
        client.create_database(bad)


def test_container_defaults(database):
    properties = database.create_container(name(), PartitionKey(path="/pk")).read()
    assert properties["partitionKey"] == {"paths": ["/pk"], "kind": "Hash", "version": 2}
    assert properties["indexingPolicy"] == {
        "indexingMode": "consistent",
        "automatic": True,
        "includedPaths": [{"path": "/*"}],
        "excludedPaths": [{"path": '/"_etag"/?'}],
    }
    assert properties["conflictResolutionPolicy"]["mode"] == "LastWriterWins"
    assert properties["geospatialConfig"] == {"type": "Geography"}
    assert properties["_self"].startswith("dbs/") and properties["_self"].endswith("/")


def test_container_life_cycle(database):
    id = name()
    container = database.create_container(id, PartitionKey(path="/pk"), default_ttl=-1)
    assert container.read()["defaultTtl"] == -1
    with pytest.raises(exceptions.CosmosResourceExistsError):
        database.create_container(id, PartitionKey(path="/pk"))
    database.create_container_if_not_exists(id, PartitionKey(path="/pk"))
    replaced = database.replace_container(container, PartitionKey(path="/pk"), default_ttl=60)
    assert replaced.read()["defaultTtl"] == 60
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        database.replace_container(container, PartitionKey(path="/other"))
    assert refused.value.status_code == 400
    assert id in [found["id"] for found in database.list_containers()]
    found = list(database.query_containers("SELECT VALUE c.id FROM c WHERE c.id = @id", [{"name": "@id", "value": id}]))
    assert found == [id]
    database.delete_container(id)
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        container.read()


def test_recreated_container_is_empty_and_new(database):
    id = name()
    first = database.create_container(id, PartitionKey(path="/pk"))
    first.create_item({"id": "1", "pk": "a"})
    rid = first.read()["_rid"]
    database.delete_container(id)
    second = database.create_container(id, PartitionKey(path="/pk"))
    assert second.read()["_rid"] != rid
    assert list(second.read_all_items()) == []


@pytest.mark.parametrize(
    "path, text",
    [
        ("id", "could not be accepted"),
        ("/a/", "valid characters"),
        ("/a/*", "valid characters"),
    ],
)
def test_bad_partition_key_paths(database, path, text):
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        database.create_container(name(), PartitionKey(path=path))
    assert refused.value.status_code == 400
    assert text in refused.value.message


def test_bad_indexing_policy(database):
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        database.create_container(name(), PartitionKey(path="/pk"), indexing_policy={"includedPaths": [{"path": "/a/?"}]})
    assert refused.value.status_code == 400


def test_vector_policy_must_match(database):
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        database.create_container(
            name(),
            PartitionKey(path="/pk"),
            indexing_policy={"vectorIndexes": [{"path": "/vector1", "type": "flat"}]},
            vector_embedding_policy={
                "vectorEmbeddings": [
                    {"path": "/vector2", "dataType": "float32", "dimensions": 256, "distanceFunction": "euclidean"}
                ]
            },
        )
    assert "The Vector Indexing Policy's path::/vector1 not matching in Embedding's path." in refused.value.message


def test_manual_throughput(database):
    container = database.create_container(name(), PartitionKey(path="/pk"), offer_throughput=400)
    assert container.get_throughput().offer_throughput == 400
    assert container.replace_throughput(500).offer_throughput == 500
    assert container.get_throughput().offer_throughput == 500
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        container.replace_throughput(250)
    assert refused.value.status_code == 400


def test_autoscale_throughput(database):
    throughput = ThroughputProperties(auto_scale_max_throughput=5000, auto_scale_increment_percent=0)
    container = database.create_container(name(), PartitionKey(path="/pk"), offer_throughput=throughput)
    assert container.get_throughput().auto_scale_max_throughput == 5000


def test_a_container_that_asks_for_nothing_gets_the_least(database):
    container = database.create_container(name(), PartitionKey(path="/pk"))
    assert container.get_throughput().offer_throughput == 400


def test_shared_database_throughput(client):
    database = client.create_database(name(), offer_throughput=400)
    assert database.get_throughput().offer_throughput == 400
    database.create_container(name(), PartitionKey(path="/pk"))
    client.delete_database(database.id)


def test_feed_ranges_tile_the_space(database):
    container = database.create_container(name(), PartitionKey(path="/pk"))
    assert len(list(container.read_feed_ranges())) == PARTITIONS


def test_hierarchical_partition_key(database):
    container = database.create_container(name(), PartitionKey(path=["/t", "/u", "/s"], kind="MultiHash"))
    container.create_item({"id": "1", "t": "a", "u": 1, "s": None})
    assert container.read_item("1", partition_key=["a", 1, None])["t"] == "a"
    with pytest.raises(exceptions.CosmosHttpResponseError):
        container.read_item("1", partition_key=["a", 1])
    container.create_item({"id": "2", "t": "a", "u": 2, "s": "x"})
    container.create_item({"id": "3", "t": "b", "u": 2, "s": "x"})
    found = container.query_items("SELECT VALUE c.id FROM c", partition_key=["a"])
    assert sorted(found) == ["1", "2"]


def test_quota_information(database):
    container = database.create_container(name(), PartitionKey(path="/pk"))
    container.create_item({"id": "1", "pk": "a"})
    headers = {}
    container.read(populate_quota_info=True, response_hook=lambda found, _: headers.update(found))
    assert "documentsCount=1" in headers["x-ms-resource-usage"]
    assert headers["x-ms-documentdb-collection-index-transformation-progress"] == "100"
    assert container.read(populate_partition_key_range_statistics=True)["statistics"]
