"""Partitions that are split while a client pages, follows a feed, keeps a session. An extension starts the splits."""

import base64
import hashlib
import hmac
import json
import ssl
import urllib.parse
import urllib.request
from email.utils import formatdate

import pytest
from azure.cosmos import CosmosClient

from conftest import ENDPOINT, KEY, PARTITIONS, WELL_KNOWN_KEY, client_options

pytestmark = pytest.mark.skipif(KEY != WELL_KNOWN_KEY, reason="only Quire splits when it is asked to")


def quire(method, path):
    """A request below /_quire/, signed with its path as link."""
    date = formatdate(usegmt=True)
    text = f"{method.lower()}\n_quire\n{path}\n{date.lower()}\n\n"
    digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    token = f"type=master&ver=1.0&sig={base64.b64encode(digest).decode()}"
    headers = {"authorization": urllib.parse.quote(token, safe=""), "x-ms-date": date}
    request = urllib.request.Request(f"{ENDPOINT.rstrip('/')}/{path}", method=method, headers=headers)
    authority = client_options().get("connection_verify")
    context = ssl.create_default_context(cafile=authority) if authority else None
    with urllib.request.urlopen(request, context=context) as response:
        return json.load(response)


def partitions(database, container):
    return quire("GET", f"_quire/dbs/{database.id}/colls/{container.id}/partitions")["partitions"]


def split_all(database, container):
    for partition in partitions(database, container):
        if partition["items"] > 1:
            path = f"_quire/dbs/{database.id}/colls/{container.id}/partitions/{partition['id']}/split"
            quire("POST", path)


@pytest.fixture
def filled(container):
    for n in range(200):
        container.create_item({"id": str(n), "pk": f"k{n}", "n": n})
    return container


@pytest.mark.parametrize(
    "query", ["SELECT VALUE c.n FROM c", "SELECT VALUE c.n FROM c ORDER BY c.n", "SELECT DISTINCT VALUE c.n FROM c"]
)
def test_a_query_goes_on(database, filled, query):
    pages = filled.query_items(query, enable_cross_partition_query=True, max_item_count=7).by_page()
    found = list(next(pages)) + list(next(pages))
    split_all(database, filled)
    found += [n for page in pages for n in page]
    split_all(database, filled)
    assert sorted(found) == list(range(200))
    again = filled.query_items(query, enable_cross_partition_query=True)
    assert sorted(again) == list(range(200))


def test_a_list_goes_on(database, filled):
    pages = filled.read_all_items(max_item_count=30).by_page()
    found = [item["n"] for item in next(pages)]
    split_all(database, filled)
    found += [item["n"] for page in pages for item in page]
    assert sorted(found) == list(range(200))


@pytest.mark.skipif(PARTITIONS > 1, reason="this SDK cannot resume before every range has been asked once")
def test_a_feed_goes_on(database, filled):
    pages = filled.query_items_change_feed(start_time="Beginning", max_item_count=20).by_page()
    told = [item["n"] for item in next(pages)]
    continuation = filled.client_connection.last_response_headers["etag"]
    split_all(database, filled)
    filled.upsert_item({"id": "new", "pk": "new", "n": 200})
    rest = filled.query_items_change_feed(continuation=continuation, max_item_count=20)
    told += [item["n"] for item in rest]
    assert sorted(told) == list(range(201))


def test_feed_ranges_of_the_parent_go_on(database, filled):
    ranges = list(filled.read_feed_ranges())
    told, marks = [], []
    for feed_range in ranges:
        pages = filled.query_items_change_feed(feed_range=feed_range, start_time="Beginning", max_item_count=20).by_page()
        told += [item["n"] for item in next(pages)]
        marks.append(filled.client_connection.last_response_headers["etag"])
    split_all(database, filled)
    assert len(list(filled.read_feed_ranges(force_refresh=True))) > len(ranges)
    for mark in marks:
        told += [item["n"] for item in filled.query_items_change_feed(continuation=mark, max_item_count=20)]
    assert sorted(told) == list(range(200))


def test_sessions_and_writes_go_on(database, filled):
    written = filled.upsert_item({"id": "7", "pk": "k7", "n": -7})
    token = written.get_response_headers()["x-ms-session-token"]
    before = {partition["id"] for partition in partitions(database, filled)}
    split_all(database, filled)
    assert filled.read_item("7", "k7", session_token=token)["n"] == -7
    assert filled.read_item("7", "k7")["n"] == -7
    for n in range(0, 200, 10):
        filled.upsert_item({"id": str(n), "pk": f"k{n}", "n": 1000 + n})
        assert filled.read_item(str(n), f"k{n}")["n"] == 1000 + n
    answer = filled.upsert_item({"id": "7", "pk": "k7", "n": 7}).get_response_headers()
    assert answer["x-ms-session-token"].split(":")[0] not in before
    filled.execute_item_batch([("create", ({"id": "b", "pk": "k7"},)), ("read", ("7",))], partition_key="k7")


def test_a_new_client_sees_children_only(database, filled):
    split_all(database, filled)
    client = CosmosClient(ENDPOINT, KEY, **client_options())
    container = client.get_database_client(database.id).get_container_client(filled.id)
    counted = container.query_items("SELECT VALUE COUNT(1) FROM c", enable_cross_partition_query=True)
    assert sum(counted) == 200
