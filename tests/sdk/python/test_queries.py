"""Queries as the SDK sends them: scopes, parameters, pages, readMany, errors."""

import pytest
from azure.cosmos import exceptions

ITEMS = [{"id": str(n), "pk": f"p{n % 4}", "n": n, "name": f"name {n}", "tags": ["a", "b"][: n % 3]} for n in range(20)]


@pytest.fixture
def filled(container):
    for item in ITEMS:
        container.create_item(item)
    return container


def everywhere(container, text, **parameters):
    listed = [{"name": f"@{name}", "value": value} for name, value in parameters.items()]
    return list(container.query_items(text, parameters=listed, enable_cross_partition_query=True))


def test_filter_across_partitions(filled):
    found = everywhere(filled, "SELECT VALUE c.id FROM c WHERE c.n >= @low AND c.n < @high", low=5, high=9)
    assert sorted(found) == ["5", "6", "7", "8"]


def test_one_partition(filled):
    found = filled.query_items("SELECT c.id, c.n FROM c WHERE c.n > 4", partition_key="p1")
    assert sorted((item["id"], item["n"]) for item in found) == [("13", 13), ("17", 17), ("5", 5), ("9", 9)]


def test_pages_walk_everything_once(filled):
    pages = filled.query_items("SELECT * FROM c", enable_cross_partition_query=True, max_item_count=3).by_page()
    seen = [item["id"] for page in pages for item in page]
    assert len(seen) == len(ITEMS) and set(seen) == {item["id"] for item in ITEMS}


def test_continuation_resumes(filled):
    pages = filled.query_items("SELECT VALUE c.n FROM c", partition_key="p0", max_item_count=2).by_page()
    first = list(next(pages))
    rest = filled.query_items("SELECT VALUE c.n FROM c", partition_key="p0", max_item_count=2).by_page(pages.continuation_token)
    assert sorted(first + [n for page in rest for n in page]) == [0, 4, 8, 12, 16]


def test_join_and_projection(filled):
    found = everywhere(filled, "SELECT c.id, t AS tag FROM c JOIN t IN c.tags WHERE c.n = 5")
    assert sorted(found, key=str) == [{"id": "5", "tag": "a"}, {"id": "5", "tag": "b"}]


def test_read_items(filled):
    wanted = [(str(n), f"p{n % 4}") for n in (1, 2, 3, 7, 11)]
    assert sorted(item["n"] for item in filled.read_items(wanted)) == [1, 2, 3, 7, 11]
    same = [(str(n), "p1") for n in (1, 5, 9)]
    assert sorted(item["n"] for item in filled.read_items(same)) == [1, 5, 9]
    assert [item["n"] for item in filled.read_items([("1", "p1")])] == [1]


def test_ordered_and_aggregated_in_one_partition(filled):
    ordered = filled.query_items("SELECT VALUE c.n FROM c ORDER BY c.n DESC", partition_key="p1")
    assert list(ordered) == [17, 13, 9, 5, 1]
    assert list(filled.query_items("SELECT VALUE COUNT(1) FROM c", partition_key="p2")) == [5]


def test_feed_range_queries(filled):
    seen = []
    for feed_range in filled.read_feed_ranges():
        seen += filled.query_items("SELECT VALUE c.n FROM c", feed_range=feed_range)
    assert sorted(seen) == list(range(20))


def test_syntax_error(filled):
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        everywhere(filled, "SELECT FROM c")
    assert refused.value.status_code == 400
    assert "Syntax error, incorrect syntax near 'FROM'" in refused.value.message


def test_unknown_function(filled):
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        everywhere(filled, "SELECT VALUE BADFUNC(c.n) FROM c")
    assert "'BADFUNC' is not a recognized built-in function name." in refused.value.message


def test_bad_continuation(filled):
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        list(filled.query_items("SELECT * FROM c", partition_key="p0").by_page("nonsense"))
    assert refused.value.status_code == 400


def test_query_metrics(filled):
    headers = {}
    found = filled.query_items("SELECT * FROM c WHERE c.n = 1", partition_key="p1", populate_query_metrics=True, response_hook=lambda seen, _: headers.update(seen))
    assert len(list(found)) == 1
    assert "retrievedDocumentCount=" in headers["x-ms-documentdb-query-metrics"]
