"""Full text, vectors and rank fusion, over as many partitions as the server has."""

import uuid

import pytest
from azure.cosmos import PartitionKey, exceptions

TEXTS = [
    ("1", "the quick brown fox jumps over the lazy dog", [1.0, 0.0]),
    ("2", "a fox, a fox, my kingdom for a fox", [0.0, 1.0]),
    ("3", "nothing of interest", [0.9, 0.1]),
    ("4", "dogs and cats", [0.5, 0.5]),
    ("5", "a red fox", [-1.0, 0.0]),
    ("6", None, None),
]


@pytest.fixture(scope="module")
def searched(database):
    container = database.create_container(
        f"search-{uuid.uuid4().hex[:8]}",
        PartitionKey(path="/pk"),
        vector_embedding_policy={
            "vectorEmbeddings": [
                {"path": "/v", "dataType": "float32", "dimensions": 2, "distanceFunction": "cosine"},
                {"path": "/far", "dataType": "float32", "dimensions": 2, "distanceFunction": "euclidean"},
            ]
        },
        full_text_policy={"defaultLanguage": "en-US", "fullTextPaths": [{"path": "/text"}]},
    )
    for id, text, vector in TEXTS:
        item = {"id": id, "pk": id}
        if text is not None:
            item |= {"text": text, "v": vector, "far": vector}
        container.create_item(item)
    yield container
    database.delete_container(container.id)


def ids(container, query, **options):
    rows = container.query_items(query, enable_cross_partition_query=True, **options)
    return [row["id"] for row in rows]


def test_full_text_contains(searched):
    assert sorted(ids(searched, "SELECT c.id FROM c WHERE FullTextContains(c.text, 'FOXES')")) == ["1", "2", "5"]
    assert ids(searched, "SELECT c.id FROM c WHERE FullTextContains(c.text, 'brown fox')") == ["1"]


def test_full_text_score(searched):
    query = "SELECT TOP 3 c.id FROM c ORDER BY RANK FullTextScore(c.text, 'fox')"
    assert ids(searched, query) == ["2", "5", "1"]


def test_full_text_score_with_parameters(searched):
    query = "SELECT TOP 2 c.id FROM c WHERE c.id != @not ORDER BY RANK FullTextScore(c.text, @term)"
    parameters = [{"name": "@not", "value": "2"}, {"name": "@term", "value": "fox"}]
    assert ids(searched, query, parameters=parameters) == ["5", "1"]


def test_vectors_are_sorted_by_their_policy(searched):
    query = "SELECT TOP 3 c.id FROM c ORDER BY VectorDistance(c.v, [1, 0])"
    assert ids(searched, query) == ["1", "3", "4"]
    # Distances ascend here, and an item without one comes first, like any undefined value.
    query = "SELECT TOP 3 c.id FROM c ORDER BY VectorDistance(c.far, @v)"
    assert ids(searched, query, parameters=[{"name": "@v", "value": [-1, 0]}]) == ["6", "5", "2"]


def test_rank_fusion(searched):
    query = "SELECT TOP 3 c.id FROM c ORDER BY RANK RRF(FullTextScore(c.text, 'fox'), VectorDistance(c.v, [0, 1]))"
    assert ids(searched, query)[0] == "2"
    weighted = (
        "SELECT TOP 6 c.id FROM c ORDER BY RANK "
        "RRF(FullTextScore(c.text, 'fox'), VectorDistance(c.v, [1, 0]), [0.1, 10])"
    )
    assert ids(searched, weighted)[:3] == ["1", "3", "4"]
    assert ids(searched, weighted)[-1] == "6"


def test_rank_fusion_with_an_offset(searched):
    query = (
        "SELECT c.id FROM c ORDER BY RANK "
        "RRF(FullTextScore(c.text, 'fox'), FullTextScore(c.text, 'dog')) OFFSET 1 LIMIT 2"
    )
    whole = query.replace("OFFSET 1 LIMIT 2", "OFFSET 0 LIMIT 6")
    assert ids(searched, query) == ids(searched, whole)[1:3]


def test_what_ranks_cannot_do(searched):
    with pytest.raises(exceptions.CosmosHttpResponseError, match="SC2240"):
        ids(searched, "SELECT TOP 1 c.id, FullTextScore(c.text, 'a') AS s FROM c")
    with pytest.raises(exceptions.CosmosHttpResponseError, match="Specifying a sort order"):
        ids(searched, "SELECT TOP 1 c.id FROM c ORDER BY RANK FullTextScore(c.text, 'a') DESC")
