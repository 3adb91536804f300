"""Searches, feeds, orders and bulk writes, over as many partitions as the server has, against results computed here."""

import asyncio
import math
import random
import uuid

import pytest
from azure.cosmos import CosmosClient, PartitionKey
from azure.cosmos.aio import CosmosClient as AsyncClient

from conftest import ENDPOINT, KEY, client_options

WORDS = ["river", "stone", "cloud", "tiger", "ember", "lunar", "pixel", "north"]
COUNT = 80


def corpus():
    """Texts of which some terms are rare, some repeated; some items have no text and no vector."""
    source = random.Random(7)
    items = []
    for n in range(COUNT):
        item = {"id": str(n), "pk": f"k{n % 13}", "n": n, "tied": n % 4}
        if n % 11 != 5:
            item["text"] = " ".join(source.choices(WORDS, weights=[1, 2, 3, 4, 8, 8, 8, 8], k=source.randint(1, 12)))
            item["title"] = " ".join(source.choices(WORDS, k=source.randint(1, 3)))
            item["v"] = [source.uniform(-1, 1) for _ in range(4)]
        items.append(item)
    return items


ITEMS = corpus()


@pytest.fixture(scope="module")
def searched(database):
    container = database.create_container(
        f"computed-{uuid.uuid4().hex[:8]}",
        PartitionKey(path="/pk"),
        indexing_policy={
            "includedPaths": [{"path": "/*"}],
            "excludedPaths": [{"path": "/v/*"}],
            "fullTextIndexes": [{"path": "/text"}, {"path": "/title"}],
            "vectorIndexes": [{"path": "/v", "type": "flat"}],
        },
        full_text_policy={"defaultLanguage": "en-US", "fullTextPaths": [{"path": "/text"}, {"path": "/title"}]},
        vector_embedding_policy={
            "vectorEmbeddings": [{"path": "/v", "dataType": "float32", "distanceFunction": "cosine", "dimensions": 4}]
        },
    )
    for item in ITEMS:
        container.create_item(item)
    # Statistics are of what is there: these are not any more.
    for n in range(10):
        container.create_item({"id": f"gone{n}", "pk": f"k{n}", "text": "river river stone"})
        container.delete_item(f"gone{n}", f"k{n}")
    return container


def bm25(items, path, terms):
    """Scores by id; nothing for an item without a text."""
    texts = {item["id"]: item[path].split() for item in items if path in item}
    average = sum(map(len, texts.values())) / len(items)
    scores = {}
    for id, words in texts.items():
        score = 0.0
        for term in terms:
            hits = sum(term in other for other in texts.values())
            rarity = math.log(1 + (len(items) - hits + 0.5) / (hits + 0.5))
            count = words.count(term)
            score += rarity * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * len(words) / average))
        scores[id] = score
    return scores


def cosine(vector):
    def similarity(other):
        dot = sum(a * b for a, b in zip(vector, other))
        return dot / math.hypot(*vector) / math.hypot(*other)

    return {item["id"]: similarity(item["v"]) for item in ITEMS if "v" in item}


def fused(components, weights):
    """The sum of weight / (60 + rank); equal scores share a rank, no score is the last."""
    total = dict.fromkeys((item["id"] for item in ITEMS), 0.0)
    for scores, weight in zip(components, weights):
        distinct = sorted({round(score, 9) for score in scores.values()}, reverse=True)
        rank = {score: place + 1 for place, score in enumerate(distinct)}
        for id in total:
            place = rank[round(scores[id], 9)] if id in scores else len(distinct) + 1
            total[id] += weight / (60 + place)
    return total


def check(container, query, scores, count, offset=0, **options):
    """Rows of equal scores may change places, so the scores are compared."""
    options = options or {"enable_cross_partition_query": True}
    found = [row["id"] for row in container.query_items(query, **options)]
    assert len(set(found)) == len(found) == min(count, len(scores) - offset), query
    best = sorted(scores.values(), reverse=True)[offset : offset + count]
    assert [scores[id] for id in found] == pytest.approx(best, abs=1e-9), query


@pytest.mark.parametrize("terms", [["river"], ["river", "stone"], ["ember"], ["cloud", "tiger", "north"]])
def test_full_text_scores(searched, terms):
    scores = dict.fromkeys((item["id"] for item in ITEMS), -1.0) | bm25(ITEMS, "text", terms)
    listed = ", ".join(f"'{term}'" for term in terms)
    rank = f"ORDER BY RANK FullTextScore(c.text, {listed})"
    check(searched, f"SELECT TOP 7 c.id FROM c {rank}", scores, 7)
    check(searched, f"SELECT c.id FROM c {rank} OFFSET 5 LIMIT 20", scores, 20, offset=5)


def test_a_filter_leaves_the_statistics_as_they_are(searched):
    scores = bm25(ITEMS, "text", ["stone"])
    scores = {item["id"]: scores.get(item["id"], -1.0) for item in ITEMS if item["tied"] == 2}
    check(searched, "SELECT TOP 6 c.id FROM c WHERE c.tied = 2 ORDER BY RANK FullTextScore(c.text, 'stone')", scores, 6)


def test_statistics_of_one_partition_key(searched):
    inside = [item for item in ITEMS if item["pk"] == "k3"]
    scores = dict.fromkeys((item["id"] for item in inside), -1.0) | bm25(inside, "text", ["ember", "river"])
    query = "SELECT TOP 4 c.id FROM c ORDER BY RANK FullTextScore(c.text, 'ember', 'river')"
    check(searched, query, scores, 4, partition_key="k3")


def test_hybrid_search(searched):
    target = [0.3, -0.2, 0.9, 0.1]
    parts = [bm25(ITEMS, "text", ["river", "stone"]), cosine(target)]
    rank = f"FullTextScore(c.text, 'river', 'stone'), VectorDistance(c.v, {target})"
    check(searched, f"SELECT TOP 9 c.id FROM c ORDER BY RANK RRF({rank})", fused(parts, [1, 1]), 9)
    weighted = f"SELECT TOP 9 c.id FROM c ORDER BY RANK RRF({rank}, [1, 4])"
    check(searched, weighted, fused(parts, [1, 4]), 9)


def test_fusion_of_two_texts(searched):
    parts = [bm25(ITEMS, "text", ["tiger"]), bm25(ITEMS, "title", ["lunar"])]
    rank = "RRF(FullTextScore(c.text, 'tiger'), FullTextScore(c.title, 'lunar'))"
    check(searched, f"SELECT TOP 5 c.id FROM c ORDER BY RANK {rank}", fused(parts, [1, 1]), 5)


@pytest.mark.parametrize("target", [[1, 0, 0, 0], [-0.4, 0.4, 0.2, -0.7]])
def test_vector_search(searched, target):
    scores = cosine(target)
    query = f"SELECT TOP 12 c.id FROM c ORDER BY VectorDistance(c.v, {target})"
    found = [row["id"] for row in searched.query_items(query, enable_cross_partition_query=True)]
    best = sorted(scores.values(), reverse=True)[:12]
    # Vectors are kept as 32-bit numbers.
    assert [scores[id] for id in found] == pytest.approx(best, abs=1e-5)


def test_an_order_in_pages(searched):
    for order, value in [("c.n", lambda item: item["n"]), ("c.tied", lambda item: item["tied"])]:
        for direction in ["ASC", "DESC"]:
            query = f"SELECT c.id, c.n, c.tied FROM c WHERE c.n < {COUNT} ORDER BY {order} {direction}"
            pages = searched.query_items(query, enable_cross_partition_query=True, max_item_count=7).by_page()
            rows = [row for page in pages for row in page]
            expected = sorted(map(value, ITEMS), reverse=direction == "DESC")
            assert list(map(value, rows)) == expected
            assert sorted(row["n"] for row in rows) == list(range(COUNT))


def test_an_order_resumed_after_every_page(searched):
    inside = sorted((item["n"] for item in ITEMS if item["pk"] == "k5"), reverse=True)
    rows, token = [], None
    while True:
        client = CosmosClient(ENDPOINT, KEY, **client_options())
        database = client.get_database_client(searched.container_link.split("/")[1])
        container = database.get_container_client(searched.id)
        query = "SELECT VALUE c.n FROM c ORDER BY c.n DESC"
        pages = container.query_items(query, partition_key="k5", max_item_count=2).by_page(token)
        rows += list(next(pages))
        token = pages.continuation_token
        if not token:
            break
        assert len(rows) <= len(inside)
    assert rows == inside


def test_the_change_feed_is_pulled_until_it_agrees(container):
    source, model, told = random.Random(11), {}, {}
    token = None
    for turn in range(6):
        for _ in range(25):
            n = source.randrange(30)
            key = (str(n), f"k{n % 6}")
            if source.random() < 0.2 and key in model:
                container.delete_item(*key)
                del model[key]
            else:
                model[key] = source.randrange(1_000_000)
                container.upsert_item({"id": key[0], "pk": key[1], "value": model[key]})
        start = {"continuation": token} if token else {"start_time": "Beginning"}
        for change in container.query_items_change_feed(max_item_count=4, **start):
            told[change["id"], change["pk"]] = change["value"]
        token = container.client_connection.last_response_headers["etag"]
        # What was deleted is not told; everything else is as it was last written.
        assert {key: value for key, value in told.items() if key in model} == model, turn


def test_bulk_writes_by_many_tasks():
    """The client has no bulk call: it is many calls and batches at once."""

    async def run():
        async with AsyncClient(ENDPOINT, KEY, **client_options()) as client:
            database = await client.create_database(f"bulk-{uuid.uuid4().hex[:8]}")
            try:
                container = await database.create_container("c", PartitionKey(path="/pk"))
                await write(container)
            finally:
                await client.delete_database(database.id)

    async def write(container):
        bodies = [{"id": str(n), "pk": f"k{n % 9}", "n": n} for n in range(120)]
        batches = [
            [("create", (body,)) for body in bodies if body["pk"] == f"k{key}" and body["n"] >= 60] for key in range(9)
        ]
        await asyncio.gather(
            *(container.create_item(body) for body in bodies[:60]),
            *(container.execute_item_batch(batch, f"k{key}") for key, batch in enumerate(batches)),
        )
        await asyncio.gather(
            *(container.delete_item(str(n), f"k{n % 9}") for n in range(0, 120, 3)),
            *(container.upsert_item(bodies[n] | {"n": -n}) for n in range(1, 120, 3)),
        )
        expected = {str(n): (-n if n % 3 == 1 else n) for n in range(120) if n % 3 != 0}
        assert {item["id"]: item["n"] async for item in container.read_all_items()} == expected
        counted = container.query_items("SELECT VALUE COUNT(1) FROM c WHERE c.n < 0")
        assert [count async for count in counted] == [40]

    asyncio.run(run())
