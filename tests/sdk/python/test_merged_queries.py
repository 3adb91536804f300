"""Queries over all partitions that the client merges by a query plan, and what it cannot merge.

The gateway answers these with 400/1004 and the client asks for a plan, with one partition as with several, so the same
assertions hold for both.
"""

import asyncio
import time
import uuid

import pytest
from azure.cosmos import PartitionKey, exceptions
from azure.cosmos.aio import CosmosClient

from conftest import ENDPOINT, KEY, PARTITIONS, client_options

COUNT = 24
# Six items share each rank; only every other one has a score.
ITEMS = [
    {
        "id": f"{n:02}",
        "pk": f"p{n % 8}",
        "n": n,
        "rank": n // 6,
        "kind": "abc"[n % 3],
        "tags": [f"t{n % 2}", f"t{n % 5 + 2}"],
        **({"score": n * 10} if n % 2 else {}),
    }
    for n in range(COUNT)
]
POLICY = {
    "indexingMode": "consistent",
    "includedPaths": [{"path": "/*"}],
    "excludedPaths": [{"path": '/"_etag"/?'}],
    "compositeIndexes": [
        [{"path": "/rank", "order": "ascending"}, {"path": "/n", "order": "descending"}],
        [{"path": "/kind", "order": "ascending"}, {"path": "/n", "order": "ascending"}],
    ],
}
PAGES = pytest.mark.parametrize("page", [1, 5, None])


@pytest.fixture(scope="module")
def filled(database):
    container = database.create_container("merged", PartitionKey(path="/pk"), indexing_policy=POLICY)
    for item in ITEMS:
        container.create_item(item)
    return container


def ask(container, text, page=None, **parameters):
    listed = [{"name": f"@{name}", "value": value} for name, value in parameters.items()]
    found = container.query_items(text, parameters=listed, enable_cross_partition_query=True, max_item_count=page)
    return list(found)


@PAGES
def test_order_by_one_key(filled, page):
    assert ask(filled, "SELECT VALUE c.n FROM c ORDER BY c.n", page) == list(range(COUNT))
    assert ask(filled, "SELECT VALUE c.n FROM c WHERE c.n > @low ORDER BY c.n DESC", page, low=9) == list(range(23, 9, -1))
    assert [item["n"] for item in ask(filled, "SELECT * FROM c ORDER BY c.n", page)] == list(range(COUNT))


@PAGES
def test_order_by_two_keys(filled, page):
    expected = sorted(range(COUNT), key=lambda n: (n // 6, -n))
    assert ask(filled, "SELECT VALUE c.n FROM c ORDER BY c.rank ASC, c.n DESC", page) == expected
    assert ask(filled, "SELECT VALUE c.n FROM c ORDER BY c.rank DESC, c.n ASC", page) == expected[::-1]
    by_group = sorted(range(COUNT), key=lambda n: ("abc"[n % 3], n))
    assert ask(filled, "SELECT VALUE c.n FROM c ORDER BY c.kind, c.n", page) == by_group


def test_two_keys_need_their_composite_index(filled):
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        ask(filled, "SELECT * FROM c ORDER BY c.rank ASC, c.n ASC")
    assert refused.value.status_code == 400
    assert "composite index" in refused.value.message


@pytest.mark.parametrize("direction", ["ASC", "DESC"])
def test_tied_rows_come_once_each(filled, direction):
    found = ask(filled, f"SELECT c.id, c.rank FROM c ORDER BY c.rank {direction}", 1)
    assert sorted(item["id"] for item in found) == [item["id"] for item in ITEMS]
    ranks = [item["rank"] for item in found]
    assert ranks == sorted(ranks, reverse=direction == "DESC")


@pytest.mark.parametrize("direction", ["ASC", "DESC"])
def test_six_tied_rows_in_pages_of_one_inside_a_partition(database, direction):
    container = database.create_container(f"ties-{direction}", PartitionKey(path="/pk"))
    for n in range(6):
        container.create_item({"id": str(n), "pk": "p", "tie": 1})
    pages = container.query_items(f"SELECT VALUE c.id FROM c ORDER BY c.tie {direction}", partition_key="p", max_item_count=1).by_page()
    seen = [list(page) for page in pages]
    assert sorted(id for page in seen for id in page) == list("012345")
    assert all(len(page) <= 1 for page in seen)


def test_missing_values_come_first(filled):
    inside = lambda text: [item["n"] for item in filled.query_items(text, partition_key="p4")]
    filled.upsert_item({"id": "scored", "pk": "p4", "n": 400, "score": 7})
    try:
        assert inside("SELECT * FROM c ORDER BY c.score")[-1] == 400
        assert inside("SELECT * FROM c ORDER BY c.score DESC")[0] == 400
        assert len(inside("SELECT * FROM c ORDER BY c.score")) == 4
    finally:
        filled.delete_item("scored", "p4")


@pytest.mark.skipif(PARTITIONS == 1, reason="the client compares rows of different partitions only")
def test_the_client_does_not_merge_mixed_types(filled):
    with pytest.raises(ValueError, match="Expected"):
        ask(filled, "SELECT * FROM c ORDER BY c.score")


@PAGES
def test_top_and_offset_limit(filled, page):
    assert ask(filled, "SELECT TOP 3 VALUE c.n FROM c ORDER BY c.n DESC", page) == [23, 22, 21]
    assert ask(filled, "SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 5 LIMIT 4", page) == [5, 6, 7, 8]
    assert ask(filled, "SELECT VALUE c.n FROM c ORDER BY c.n OFFSET @o LIMIT @l", page, o=22, l=10) == [22, 23]
    assert len(ask(filled, "SELECT TOP 7 * FROM c", page)) == 7
    some = ask(filled, "SELECT VALUE c.n FROM c OFFSET 20 LIMIT 3", page)
    assert len(some) == 3 and len(set(some)) == 3


@PAGES
def test_distinct(filled, page):
    assert sorted(ask(filled, "SELECT DISTINCT VALUE c.kind FROM c", page)) == ["a", "b", "c"]
    assert ask(filled, "SELECT DISTINCT VALUE c.rank FROM c ORDER BY c.rank DESC", page) == [3, 2, 1, 0]
    assert sorted(item["kind"] for item in ask(filled, "SELECT DISTINCT c.kind FROM c", page)) == ["a", "b", "c"]
    tags = ask(filled, "SELECT DISTINCT VALUE t FROM c JOIN t IN c.tags", page)
    assert sorted(tags) == ["t0", "t1", "t2", "t3", "t4", "t5", "t6"]


@pytest.mark.parametrize(
    "aggregate, expected",
    [
        ("COUNT(1)", COUNT),
        ("COUNT(c.score)", 12),
        ("SUM(c.n)", 276),
        ("AVG(c.n)", 11.5),
        ("MIN(c.n)", 0),
        ("MAX(c.n)", 23),
        ("MIN(c.kind)", "a"),
        ("MAX(c.id)", "23"),
        ("COUNTIF(c.n > 20)", 3),
    ],
)
def test_value_aggregates(filled, aggregate, expected):
    assert ask(filled, f"SELECT VALUE {aggregate} FROM c") == [expected]


def test_aggregates_of_nothing(filled):
    assert ask(filled, "SELECT VALUE COUNT(1) FROM c WHERE c.n > 1000") == [0]
    assert ask(filled, "SELECT VALUE COUNT(1) FROM c WHERE false") == [0]
    assert ask(filled, "SELECT VALUE SUM(c.n) FROM c WHERE c.pk = 'p1' AND c.pk = 'p2'") == [0]


def test_join_and_exists(filled):
    tagged = ask(filled, "SELECT VALUE c.n FROM c JOIN t IN c.tags WHERE t = 't4' ORDER BY c.n")
    assert tagged == [2, 7, 12, 17, 22]
    nested = ask(filled, "SELECT VALUE c.n FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = @tag) ORDER BY c.n", tag="t4")
    assert nested == tagged
    assert ask(filled, "SELECT VALUE c.n FROM c WHERE ARRAY_CONTAINS(c.tags, 't4') ORDER BY c.n") == tagged


def test_filters_on_the_partition_key_narrow_the_plan(filled):
    assert ask(filled, "SELECT VALUE c.n FROM c WHERE c.pk = 'p3' ORDER BY c.n DESC") == [19, 11, 3]
    assert ask(filled, "SELECT VALUE c.n FROM c WHERE c.pk IN ('p1', 'p3', 'p6') ORDER BY c.n") == [1, 3, 6, 9, 11, 14, 17, 19, 22]
    assert ask(filled, "SELECT VALUE COUNT(1) FROM c WHERE c.pk = @pk OR c.pk = 'p2'", pk="p5") == [6]
    assert len(ask(filled, "SELECT VALUE c.n FROM c WHERE c.pk = 'p3' OFFSET 1 LIMIT 5")) == 2


def test_hierarchical_prefixes_narrow_the_plan(database):
    key = PartitionKey(path=["/tenant", "/user"], kind="MultiHash")
    container = database.create_container("levels", key)
    for n in range(12):
        container.create_item({"id": str(n), "tenant": f"t{n % 2}", "user": f"u{n % 3}", "n": n})
    assert ask(container, "SELECT VALUE c.n FROM c WHERE c.tenant = 't1' ORDER BY c.n") == [1, 3, 5, 7, 9, 11]
    assert ask(container, "SELECT VALUE c.n FROM c WHERE c.tenant = 't1' AND c.user = 'u0' ORDER BY c.n") == [3, 9]
    assert ask(container, "SELECT VALUE COUNT(1) FROM c WHERE c.tenant IN ('t0', 't1')") == [12]
    prefix = container.query_items("SELECT VALUE c.n FROM c ORDER BY c.n", partition_key=["t0"])
    assert list(prefix) == [0, 2, 4, 6, 8, 10]


@pytest.mark.parametrize(
    "query",
    ["SELECT c.kind, COUNT(1) AS n FROM c GROUP BY c.kind", "SELECT COUNT(1) FROM c", "SELECT MIN(c.n) AS low, MAX(c.n) AS high FROM c"],
)
def test_what_the_client_does_not_merge_is_refused(filled, query):
    """The client lists neither GroupBy nor NonValueAggregate, so the service refuses these, and so do we."""
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        ask(filled, query)
    assert refused.value.status_code == 400
    assert "Cross partition query only supports 'VALUE <AggregateFunc>' for aggregates." in refused.value.message


def test_the_same_inside_a_partition_is_answered(filled):
    inside = lambda text: list(filled.query_items(text, partition_key="p1"))
    groups = inside("SELECT c.kind, COUNT(1) AS n FROM c GROUP BY c.kind")
    assert sorted((row["kind"], row["n"]) for row in groups) == [("a", 1), ("b", 1), ("c", 1)]
    assert inside("SELECT MIN(c.n) AS low, MAX(c.n) AS high FROM c") == [{"low": 1, "high": 17}]


def test_without_a_key_or_the_flag_it_is_refused(filled):
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        list(filled.query_items("SELECT * FROM c"))
    assert refused.value.status_code == 400
    assert "Cross partition query is required but disabled." in refused.value.message
    assert sorted(filled.query_items("SELECT VALUE c.n FROM c WHERE c.pk = 'p3'")) == [3, 11, 19]


def test_continuation_inside_a_partition_goes_on_after_the_last_row(filled):
    text = "SELECT VALUE c.n FROM c ORDER BY c.n DESC"
    seen, token = [], None
    while True:
        pages = filled.query_items(text, partition_key="p1", max_item_count=1).by_page(token)
        page = next(pages, None)
        seen += list(page or [])
        token = pages.continuation_token
        if not token:
            break
    assert seen == [17, 9, 1]


def test_metrics(filled):
    headers = {}
    options = {"populate_query_metrics": True, "populate_index_metrics": True}
    found = filled.query_items("SELECT * FROM c WHERE c.n >= 9", partition_key="p1", response_hook=lambda seen, _: headers.update(seen), **options)
    assert len(list(found)) == 2
    metrics = dict(pair.split("=") for pair in headers["x-ms-documentdb-query-metrics"].split(";"))
    assert metrics["outputDocumentCount"] == "2"
    assert float(metrics["totalExecutionTimeInMs"]) >= 0
    for name in ("indexLookupTimeInMs", "documentLoadTimeInMs", "writeOutputTimeInMs", "VMExecutionTimeInMs", "retrievedDocumentSize", "indexUtilizationRatio"):
        float(metrics[name])
    # The client has decoded it already.
    assert "/n/?" in str(headers["x-ms-cosmos-index-utilization"])


def test_a_new_policy_is_built_and_says_how_far(database):
    container = database.create_container("rebuilt", PartitionKey(path="/pk"))
    for n in range(30):
        container.create_item({"id": str(n), "pk": "p", "a": n % 3, "b": n})
    composite = [[{"path": "/a", "order": "ascending"}, {"path": "/b", "order": "descending"}]]
    database.replace_container(container, PartitionKey(path="/pk"), indexing_policy={**POLICY, "compositeIndexes": composite})
    headers = {}
    for _ in range(200):
        container.read(populate_quota_info=True, response_hook=lambda seen, _: headers.update(seen))
        progress = int(headers["x-ms-documentdb-collection-index-transformation-progress"])
        assert 0 <= progress <= 100
        if progress == 100:
            break
        time.sleep(0.05)
    assert progress == 100
    found = ask(container, "SELECT VALUE c.b FROM c ORDER BY c.a, c.b DESC")
    assert found == sorted(range(30), key=lambda n: (n % 3, -n))


def test_asynchronous_client_merges_alike():
    async def run():
        async with CosmosClient(ENDPOINT, KEY, **client_options()) as client:
            database = await client.create_database(f"aio-{uuid.uuid4().hex[:8]}")
            try:
                container = await database.create_container("c", PartitionKey(path="/pk"), indexing_policy=POLICY)
                for item in ITEMS:
                    await container.create_item(item)

                async def all_of(text, page=None):
                    return [row async for row in container.query_items(text, max_item_count=page)]

                assert await all_of("SELECT VALUE c.n FROM c ORDER BY c.n DESC", 5) == list(range(23, -1, -1))
                assert await all_of("SELECT VALUE c.n FROM c ORDER BY c.rank, c.n DESC OFFSET 2 LIMIT 3", 1) == [3, 2, 1]
                assert sorted(await all_of("SELECT DISTINCT VALUE c.kind FROM c")) == ["a", "b", "c"]
                assert await all_of("SELECT VALUE AVG(c.n) FROM c") == [11.5]
                ties = await all_of("SELECT VALUE c.id FROM c ORDER BY c.rank DESC", 1)
                assert sorted(ties) == [item["id"] for item in ITEMS]
                with pytest.raises(exceptions.CosmosHttpResponseError):
                    await all_of("SELECT c.kind, COUNT(1) AS n FROM c GROUP BY c.kind")
            finally:
                await client.delete_database(database.id)

    asyncio.run(run())
