"""Spatial, full-text, vector and hybrid queries where the policy declares indexes for them."""

import pytest
from azure.cosmos import PartitionKey

TEXTS = [
    "red fox in the snow",
    "a fox, a fox, my kingdom for a fox",
    "the quick brown dog",
    "dogs and foxes live apart",
    "nothing of interest here",
    "a den for one fox and one dog",
]
VECTORS = [[1, 0, 0], [0.9, 0.1, 0], [0, 1, 0], [0, 0.9, 0.1], [0, 0, 1], [0.5, 0.5, 0]]
# Along the equator, one degree apart.
POINTS = [{"type": "Point", "coordinates": [n, 0]} for n in range(6)]


@pytest.fixture(scope="module")
def filled(database):
    container = database.create_container(
        "search",
        PartitionKey(path="/pk"),
        indexing_policy={
            "includedPaths": [{"path": "/*"}],
            "excludedPaths": [{"path": '/"_etag"/?'}, {"path": "/vector/*"}],
            "fullTextIndexes": [{"path": "/text"}],
            "vectorIndexes": [{"path": "/vector", "type": "flat"}],
            "spatialIndexes": [{"path": "/place/*", "types": ["Point", "Polygon"]}],
        },
        full_text_policy={"defaultLanguage": "en-US", "fullTextPaths": [{"path": "/text", "language": "en-US"}]},
        vector_embedding_policy={
            "vectorEmbeddings": [{"path": "/vector", "dataType": "float32", "distanceFunction": "cosine", "dimensions": 3}]
        },
    )
    for n, (text, vector, place) in enumerate(zip(TEXTS, VECTORS, POINTS)):
        container.create_item({"id": str(n), "pk": f"p{n % 3}", "text": text, "vector": vector, "place": place})
    return container


def ask(container, text, **parameters):
    listed = [{"name": f"@{name}", "value": value} for name, value in parameters.items()]
    return list(container.query_items(text, parameters=listed, enable_cross_partition_query=True))


def test_full_text_filters(filled):
    assert sorted(ask(filled, "SELECT VALUE c.id FROM c WHERE FullTextContains(c.text, 'fox')")) == ["0", "1", "3", "5"]
    assert sorted(ask(filled, "SELECT VALUE c.id FROM c WHERE FullTextContainsAll(c.text, 'fox', 'dog')")) == ["3", "5"]
    assert len(ask(filled, "SELECT VALUE c.id FROM c WHERE FullTextContainsAny(c.text, 'fox', 'dog')")) == 5


def test_full_text_rank(filled):
    best = ask(filled, "SELECT TOP 3 c.id, c.text FROM c ORDER BY RANK FullTextScore(c.text, 'fox')")
    assert best[0]["id"] == "1" and len(best) == 3
    assert all("fox" in row["text"] for row in best)
    inside = list(filled.query_items("SELECT TOP 2 c.id FROM c ORDER BY RANK FullTextScore(c.text, 'dog')", partition_key="p2"))
    assert {row["id"] for row in inside} == {"2", "5"}


def test_vector_order(filled):
    nearest = ask(filled, "SELECT TOP 3 c.id FROM c ORDER BY VectorDistance(c.vector, [1, 0, 0])")
    assert [row["id"] for row in nearest] == ["0", "1", "5"]
    scored = ask(filled, "SELECT TOP 1 c.id, VectorDistance(c.vector, @v) AS score FROM c ORDER BY VectorDistance(c.vector, @v)", v=[0, 0, 1])
    assert scored[0]["id"] == "4" and abs(scored[0]["score"] - 1) < 1e-6


def test_hybrid_rank(filled):
    text = "SELECT TOP 2 c.id FROM c ORDER BY RANK RRF(FullTextScore(c.text, 'fox'), VectorDistance(c.vector, [1, 0, 0]))"
    assert {row["id"] for row in ask(filled, text)} == {"0", "1"}
    weighted = "SELECT TOP 1 c.id FROM c ORDER BY RANK RRF(FullTextScore(c.text, 'fox'), VectorDistance(c.vector, [0, 0, 1]), [0.01, 1])"
    assert [row["id"] for row in ask(filled, weighted)] == ["4"]


def test_spatial(filled):
    near = "SELECT VALUE c.id FROM c WHERE ST_DISTANCE(c.place, @here) < 150000"
    assert sorted(ask(filled, near, here={"type": "Point", "coordinates": [2, 0]})) == ["1", "2", "3"]
    square = {"type": "Polygon", "coordinates": [[[2.5, -1], [4.5, -1], [4.5, 1], [2.5, 1], [2.5, -1]]]}
    assert sorted(ask(filled, "SELECT VALUE c.id FROM c WHERE ST_WITHIN(c.place, @area)", area=square)) == ["3", "4"]
    assert sorted(ask(filled, "SELECT VALUE c.id FROM c WHERE ST_INTERSECTS(@area, c.place)", area=square)) == ["3", "4"]
