"""Links that queries and reads follow, against the client's own second round trip."""

import base64
import contextlib
import hashlib
import hmac
import json
import os
import ssl
import time
import urllib.parse
import urllib.request
from email.utils import formatdate

import pytest
from azure.core.exceptions import HttpResponseError
from azure.cosmos import PartitionKey, exceptions

from conftest import ENDPOINT, KEY

MODEL = {
    "version": 1,
    "links": [
        {"name": "book-authors", "from": {"container": "books", "path": "/authors/*/id"}, "to": {"container": "authors"}},
        {
            "name": "book-publisher",
            "from": {"container": "books", "path": "/pub/id"},
            "to": {"container": "publishers", "partitionKey": [{"path": "/pub/region"}]},
        },
        {
            "name": "sequel",
            "from": {"container": "books", "path": "/sequelOf"},
            "to": {"container": "books", "key": "/isbn", "partitionKey": "lookup"},
        },
    ],
}


def own_request(method, path, body=None):
    """A request below /_quire/, which the SDK does not know."""
    date = formatdate(usegmt=True)
    text = f"{method.lower()}\n_quire\n{path}\n{date.lower()}\n\n"
    signature = base64.b64encode(hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()).decode()
    headers = {
        "authorization": urllib.parse.quote(f"type=master&ver=1.0&sig={signature}", safe=""),
        "x-ms-date": date,
        "x-ms-version": "2020-07-15",
    }
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(f"{ENDPOINT.rstrip('/')}/{path}", data, headers, method=method)
    trusted = ssl.create_default_context(cafile=os.environ.get("QUIRE_CA"))
    with urllib.request.urlopen(request, context=trusted) as answer:
        return json.load(answer)


def wait_until_active(database):
    deadline = time.time() + 60
    while True:
        status = own_request("GET", f"_quire/dbs/{database.id}/model/status")
        states = {declaration["name"]: declaration["state"] for declaration in status["declarations"]}
        if set(states.values()) == {"active"}:
            return
        assert time.time() < deadline, states
        time.sleep(0.05)


@pytest.fixture(scope="module")
def library(database):
    books = database.create_container("books", PartitionKey(path="/id"))
    authors = database.create_container("authors", PartitionKey(path="/id"))
    publishers = database.create_container("publishers", PartitionKey(path="/region"))
    own_request("PUT", f"_quire/dbs/{database.id}/model", MODEL)
    for n in range(9):
        authors.create_item({"id": f"a{n}", "name": f"Author {n}", "country": "NZ" if n % 2 else "UK"})
    for n in range(4):
        publishers.create_item({"id": f"p{n}", "region": f"r{n % 2}", "name": f"Publisher {n}"})
    for n in range(60):
        book = {
            "id": f"b{n:02}",
            "year": 1900 + n % 17,
            "isbn": f"i{n}",
            "sequelOf": f"i{n // 2 + 1}",
            # Some of them are not there.
            "authors": [{"id": f"a{n % 9}"}, {"id": f"a{n % 11}"}],
            "pub": {"id": f"p{n % 5}", "region": f"r{n % 2}"},
        }
        books.create_item(book)
    wait_until_active(database)
    return books, authors, publishers


def read(container, item_id, key):
    try:
        return container.read_item(item_id, key)
    except exceptions.CosmosResourceNotFoundError:
        return None


def authors_of(authors, book):
    found = [read(authors, author["id"], author["id"]) for author in book["authors"]]
    return [author for author in found if author is not None]


def rows(container, query, **options):
    return list(container.query_items(query, enable_cross_partition_query=True, **options))


def by_id(items):
    return sorted(items, key=lambda item: item["id"])


@pytest.mark.parametrize("page_size", [1, 7, None])
def test_follow_is_the_second_round_trip(library, page_size):
    books, authors, publishers = library
    own = by_id(books.read_all_items())
    found = by_id(rows(books, "SELECT b.id, FOLLOW(b, 'book-authors') AS a FROM b", max_item_count=page_size))
    assert [row["a"] for row in found] == [authors_of(authors, book) for book in own]
    found = by_id(rows(books, "SELECT b.id, FOLLOW(b, 'book-publisher') AS p FROM b", max_item_count=page_size))
    expected = [read(publishers, book["pub"]["id"], book["pub"]["region"]) for book in own]
    assert [row.get("p") for row in found] == expected
    assert any(expected) and None in expected


@pytest.mark.parametrize(
    "source", ["FOLLOW(b, 'book-authors')", "(SELECT VALUE FOLLOW(b, 'book-authors'))"]
)
def test_joins(library, source):
    books, authors, _ = library
    found = rows(books, f"SELECT b.id, a.name FROM b JOIN a IN {source} WHERE a.country = 'NZ' AND b.year > 1905")
    expected = [
        {"id": book["id"], "name": author["name"]}
        for book in books.read_all_items()
        if book["year"] > 1905
        for author in authors_of(authors, book)
        if author["country"] == "NZ"
    ]
    key = lambda row: (row["id"], row["name"])
    assert sorted(found, key=key) == sorted(expected, key=key)


def test_order_by_and_aggregates_are_merged(library):
    books, authors, _ = library
    query = "SELECT b.id, b.year, FOLLOW(b, 'book-authors') AS a FROM b ORDER BY b.year DESC"
    found = rows(books, query, max_item_count=4)
    assert [row["year"] for row in found] == sorted((row["year"] for row in found), reverse=True)
    own = {book["id"]: book for book in books.read_all_items()}
    assert len(found) == len(own)
    for row in found:
        assert row["a"] == authors_of(authors, own[row["id"]])
    [count] = rows(books, "SELECT VALUE COUNT(1) FROM b JOIN a IN FOLLOW(b, 'book-authors')")
    assert count == sum(len(authors_of(authors, book)) for book in own.values())


def test_elements_lead_to_one_item(library):
    books, authors, _ = library
    found = rows(books, "SELECT b.id, e.id AS e, FOLLOW(e, 'book-authors') AS a FROM b JOIN e IN b.authors")
    for row in found:
        assert row.get("a") == read(authors, row["e"], row["e"])


def test_referrers(library):
    books, authors, _ = library
    own = by_id(books.read_all_items())
    for row in rows(authors, "SELECT a.id, REFERRERS(a, 'book-authors') AS books FROM a ORDER BY a.id"):
        refers = lambda book: any(author["id"] == row["id"] for author in book["authors"])
        assert row["books"] == [book for book in own if refers(book)]
    by_isbn = {book["isbn"]: book for book in own}
    for row in rows(books, "SELECT b.sequelOf, FOLLOW(b, 'sequel') AS first FROM b"):
        assert row.get("first") == by_isbn.get(row["sequelOf"])


@contextlib.contextmanager
def following(container, chains):
    """Requests of this client ask for what follows: the SDK hands no headers of single requests on."""
    headers = container.client_connection.default_headers
    headers["x-quire-follow"] = chains
    try:
        yield
    finally:
        del headers["x-quire-follow"]


def test_rows_with_the_header(library):
    books, authors, _ = library
    with following(books, "book-authors"):
        found = rows(books, "SELECT * FROM b", max_item_count=7)
        found += rows(books, "SELECT * FROM b ORDER BY b.year")
    assert len(found) == 120
    for row in found:
        followed = row.pop("_follow")
        assert row == books.read_item(row["id"], row["id"])
        expected = [read(authors, author["id"], author["id"]) for author in row["authors"]]
        assert followed == {"book-authors": expected}


def test_a_read_with_the_header(library):
    books, _, _ = library
    with following(books, "book-authors, ~sequel"):
        item = books.read_item("b10", "b10")
    assert books.client_connection.last_response_headers["x-quire-followed"] == "3"
    # 10 % 9 is there, 10 % 11 is not
    assert [author and author["id"] for author in item["_follow"]["book-authors"]] == ["a1", None]
    assert [book["id"] for book in item["_follow"]["~sequel"]] == ["b18", "b19"]


def test_refusals(library):
    books, _, _ = library
    with pytest.raises(HttpResponseError, match="SC3101"):
        rows(books, "SELECT FOLLOW(b, 'nothing') AS a FROM b")
    with pytest.raises(HttpResponseError, match="SC3102"):
        rows(books, "SELECT FOLLOW(b.authors, 'book-authors') AS a FROM b")
    with following(books, "book-authors"), pytest.raises(HttpResponseError, match="whole items"):
        rows(books, "SELECT b.id FROM b")
    with following(books, "nothing"), pytest.raises(HttpResponseError, match="no link"):
        books.read_item("b10", "b10")
