"""Runs every example against a server: python examples/run.py [ENDPOINT [CERTIFICATE_AUTHORITY]]

It works in a database of its own, `examples`, which it makes anew.
"""

import sys
from pathlib import Path

from azure.cosmos import CosmosClient, PartitionKey
from azure.cosmos.exceptions import CosmosHttpResponseError, CosmosResourceNotFoundError

KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
HERE = Path(__file__).parent


def main(endpoint="http://localhost:8081/", authority=None):
    options = {"connection_verify": authority} if authority else {}
    client = CosmosClient(endpoint, KEY, **options)
    try:
        client.delete_database("examples")
    except CosmosResourceNotFoundError:
        pass
    database = client.create_database("examples")
    books = database.create_container("books", PartitionKey(path="/publisher"))
    shop = database.create_container("shop", PartitionKey(path="/store"))
    add_a_book(books)
    check_authors(books)
    keep_metadata(books)
    import_and_delete(books)
    place_orders(shop)


def script(name):
    return (HERE / f"{name}.js").read_text()


def create_procedure(container, name):
    container.scripts.create_stored_procedure({"id": name, "body": script(name)})


def create_trigger(container, name, trigger_type, operation):
    container.scripts.create_trigger(
        {"id": name, "body": script(name), "triggerType": trigger_type, "triggerOperation": operation}
    )


def refusal(call):
    """What a call that must fail was told."""
    try:
        call()
    except CosmosHttpResponseError as error:
        return f"{error.status_code}/{error.sub_status}"
    raise AssertionError("the call should have been refused")


def add_a_book(books):
    create_procedure(books, "addBook")
    for name in ("ada", "grace"):
        books.create_item({"id": name, "publisher": "acme", "type": "author", "countOfBooks": 0})

    def add(book):
        return books.scripts.execute_stored_procedure("addBook", partition_key="acme", params=[book])

    added = add({"id": "loops", "publisher": "acme", "title": "On Loops", "authors": ["ada", "grace"]})
    print("added", added["book"]["title"], "by", " and ".join(author["id"] for author in added["authors"]))
    unknown = {"id": "knots", "publisher": "acme", "title": "On Knots", "authors": ["ada", "nobody"]}
    print("a book of an unknown author:", refusal(lambda: add(unknown)))
    print("books of ada:", books.read_item("ada", partition_key="acme")["countOfBooks"])


def check_authors(books):
    create_trigger(books, "requireAuthors", "Pre", "All")

    def create(book):
        return books.create_item(book, pre_trigger_include="requireAuthors")

    create({"id": "cats", "publisher": "acme", "type": "book", "title": "On Cats", "authors": ["grace"]})
    unknown = {"id": "dogs", "publisher": "acme", "type": "book", "title": "On Dogs", "authors": ["nobody"]}
    print("checked before it is created:", refusal(lambda: create(unknown)))


def keep_metadata(books):
    create_trigger(books, "countBooks", "Post", "Create")
    for number, pages in enumerate((120, 320)):
        book = {"id": f"volume-{number}", "publisher": "acme", "type": "book", "title": f"Volume {number}", "pages": pages}
        books.create_item(book, post_trigger_include="countBooks")
    metadata = books.read_item("metadata", partition_key="acme")
    print("metadata:", metadata["books"], "books,", metadata["pages"], "pages, newest", metadata["newest"])


def import_and_delete(books):
    create_procedure(books, "bulkImport")
    create_procedure(books, "bulkDelete")
    items = [{"id": f"old-{year}", "publisher": "reprints", "type": "book", "year": year} for year in range(1800, 2000)]
    left = list(items)
    while left:
        created = books.scripts.execute_stored_procedure("bulkImport", partition_key="reprints", params=[left])
        left = left[created:]
    query = "SELECT * FROM c WHERE c.year < 1950"
    deleted, more = 0, True
    while more:
        done = books.scripts.execute_stored_procedure("bulkDelete", partition_key="reprints", params=[query])
        deleted, more = deleted + done["deleted"], done["continuation"]
    remaining = books.query_items("SELECT VALUE COUNT(1) FROM c", partition_key="reprints")
    print("imported", len(items), "and deleted", deleted, "of them:", list(remaining)[0], "remain")


def place_orders(shop):
    create_procedure(shop, "placeOrder")
    shop.create_item({"id": "tea", "store": "oslo", "type": "product", "price": 4.5, "stock": 10})
    shop.create_item({"id": "cup", "store": "oslo", "type": "product", "price": 12, "stock": 1})

    def place(order_id, *lines):
        order = {"id": order_id, "store": "oslo", "lines": [dict(zip(("product", "quantity"), line)) for line in lines]}
        return shop.scripts.execute_stored_procedure("placeOrder", partition_key="oslo", params=[order])

    print("ordered for", place("order-1", ("tea", 2), ("cup", 1))["total"])
    print("more cups than there are:", refusal(lambda: place("order-2", ("tea", 1), ("cup", 1))))
    print("tea in stock:", shop.read_item("tea", partition_key="oslo")["stock"])


if __name__ == "__main__":
    main(*sys.argv[1:])
