"""Authors, books and publishers, kept true by the model in library.json: python examples/library.py [ENDPOINT [CERTIFICATE_AUTHORITY]]

It works in a database of its own, `library-example`, which it makes anew.
"""

import json
import sys
from pathlib import Path

from azure.cosmos import CosmosClient, PartitionKey
from azure.cosmos.exceptions import CosmosHttpResponseError, CosmosResourceNotFoundError

from model import put_model

KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
HERE = Path(__file__).parent
DATABASE = "library-example"


def main(endpoint="http://localhost:8081/", authority=None):
    options = {"connection_verify": authority} if authority else {}
    client = CosmosClient(endpoint, KEY, **options)
    try:
        client.delete_database(DATABASE)
    except CosmosResourceNotFoundError:
        pass
    database = client.create_database(DATABASE)
    authors = database.create_container("authors", PartitionKey(path="/id"))
    publishers = database.create_container("publishers", PartitionKey(path="/region"))
    books = database.create_container("books", PartitionKey(path="/id"))
    put_model(endpoint, KEY, authority, DATABASE, json.loads((HERE / "library.json").read_text()))

    authors.create_item({"id": "ada", "name": "Ada"})
    authors.create_item({"id": "grace", "name": "Grace"})
    publishers.create_item({"id": "acme", "region": "uk", "name": "Acme"})
    acme = {"id": "acme", "region": "uk"}
    loops = books.create_item(
        {"id": "loops", "title": "On Loops", "pages": 300, "authors": [{"id": "ada"}, {"id": "grace"}], "publisher": acme}
    )
    print(f"{loops['title']} by {names(loops)}, published by {loops['publisher']['name']}")
    books.create_item({"id": "knots", "title": "On Knots", "pages": 120, "authors": [{"id": "ada"}], "publisher": acme})
    ada = authors.read_item("ada", "ada")
    print(f"Ada has {ada['countOfBooks']} books:", ", ".join(book["title"] for book in ada["books"]))
    print(f"Acme has printed {publishers.read_item('acme', 'uk')['pages']} pages")

    unknown = {"id": "x", "title": "X", "authors": [{"id": "nobody"}]}
    print("a book of an unknown author:", refusal(lambda: books.create_item(unknown)))
    print("an author with books cannot go:", refusal(lambda: authors.delete_item("ada", "ada")))

    authors.patch_item("ada", "ada", [{"op": "set", "path": "/name", "value": "Ada King"}])
    print("after a change of name:", names(books.read_item("knots", "knots")))
    books.delete_item("knots", "knots")
    print("after a book was deleted:", authors.read_item("ada", "ada")["countOfBooks"])
    publishers.delete_item("acme", "uk")
    is_named = "id" in books.read_item("loops", "loops").get("publisher", {})
    print("after its publisher was deleted:", "still named" if is_named else "named no more")

    query = "SELECT b.title, FOLLOW(b, 'book-authors') AS authors FROM b"
    [row] = books.query_items(query, enable_cross_partition_query=True)
    counts = ", ".join(f"{author['name']} {author['countOfBooks']}" for author in row["authors"])
    print(f"{row['title']} with its authors in one query: {counts}")


def names(book):
    return " and ".join(author["name"] for author in book["authors"])


def refusal(call):
    """What a call that must fail was told."""
    try:
        call()
    except CosmosHttpResponseError as error:
        return f"{error.status_code}/{error.sub_status}"
    raise AssertionError("the call should have been refused")


if __name__ == "__main__":
    main(*sys.argv[1:])
