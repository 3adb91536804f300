"""The examples, run as the README shows, and what they do when things go wrong."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from azure.cosmos.exceptions import CosmosHttpResponseError, CosmosResourceNotFoundError
from azure.cosmos import PartitionKey

from conftest import ENDPOINT

EXAMPLES = Path(__file__).parents[3] / "examples"
README = Path(__file__).parents[3] / "README.md"

EXPECTED = """\
added On Loops by ada and grace
a book of an unknown author: 400/404
books of ada: 1
checked before it is created: 400/404
metadata: 2 books, 440 pages, newest Volume 1
imported 200 and deleted 150 of them: 50 remain
ordered for 21
more cups than there are: 400/4001
tea in stock: 8
"""

LIBRARY = """\
On Loops by Ada and Grace, published by Acme
Ada has 2 books: On Knots, On Loops
Acme has printed 420 pages
a book of an unknown author: 400/6101
an author with books cannot go: 409/6102
after a change of name: Ada King
after a book was deleted: 1
after its publisher was deleted: named no more
On Loops with its authors in one query: Ada King 1, Grace 1
"""

BLOG = """\
declared over a post with 15 comments: 15 comments, in the post c13, c14, c15, in pages [10, 2]
10 more: 25 comments, in the post c23, c24, c25, in pages [10, 10, 2]
the last one taken back: 24 comments, in the post c22, c23, c24, in pages [10, 10, 1]
found in a page: comment 4
posts of Ada: 1
pages after the post was deleted: 0
posts of Ada: 0
"""


@pytest.mark.parametrize(("program", "expected"), [("run.py", EXPECTED), ("library.py", LIBRARY), ("blog.py", BLOG)])
def test_the_readme_examples_run(program, expected):
    assert f"python examples/{program}" in README.read_text()
    authority = os.environ.get("QUIRE_CA")
    command = [sys.executable, EXAMPLES / program, ENDPOINT] + ([authority] if authority else [])
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected
    assert expected in README.read_text(), "the README shows something else"


@pytest.fixture
def scripted(database):
    """A container with the named examples as procedures."""
    made = []

    def make(path, *names):
        container = database.create_container(f"examples-{len(made)}-{names[0]}", PartitionKey(path=path))
        made.append(container)
        for name in names:
            container.scripts.create_stored_procedure({"id": name, "body": (EXAMPLES / f"{name}.js").read_text()})
        return container

    yield make
    for container in made:
        database.delete_container(container.id)


def run(container, name, key, *parameters):
    return container.scripts.execute_stored_procedure(name, partition_key=key, params=list(parameters))


def test_a_refused_book_changes_no_author(scripted):
    books = scripted("/publisher", "addBook")
    books.create_item({"id": "ada", "publisher": "p", "type": "author", "countOfBooks": 0})
    with pytest.raises(CosmosHttpResponseError) as refused:
        run(books, "addBook", "p", {"id": "b", "publisher": "p", "title": "t", "authors": ["ada", "nobody"]})
    assert (refused.value.status_code, refused.value.sub_status) == (400, 404)
    assert books.read_item("ada", partition_key="p")["countOfBooks"] == 0
    run(books, "addBook", "p", {"id": "b", "publisher": "p", "title": "t", "authors": ["ada", "ada"]})
    with pytest.raises(CosmosHttpResponseError) as twice:
        run(books, "addBook", "p", {"id": "b", "publisher": "p", "title": "t", "authors": ["ada"]})
    assert (twice.value.status_code, twice.value.sub_status) == (400, 409)
    assert books.read_item("ada", partition_key="p")["countOfBooks"] == 1


def test_books_of_many_clients_are_all_counted(scripted):
    books = scripted("/publisher", "addBook")
    books.create_item({"id": "ada", "publisher": "p", "type": "author", "countOfBooks": 0})

    def add(number):
        return run(books, "addBook", "p", {"id": f"b{number}", "publisher": "p", "title": "t", "authors": ["ada"]})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(40)))
    assert books.read_item("ada", partition_key="p")["countOfBooks"] == 40
    assert list(books.query_items("SELECT VALUE COUNT(1) FROM c WHERE c.type = 'book'", partition_key="p")) == [40]


def test_no_more_is_sold_than_there_is(scripted):
    shop = scripted("/store", "placeOrder")
    shop.create_item({"id": "cup", "store": "s", "price": 2, "stock": 25})

    def order(number):
        try:
            return run(shop, "placeOrder", "s", {"id": f"o{number}", "store": "s", "lines": [{"product": "cup", "quantity": 2}]})
        except CosmosHttpResponseError as error:
            assert (error.status_code, error.sub_status) == (400, 4001)
            return None

    with ThreadPoolExecutor(8) as pool:
        placed = [answer for answer in pool.map(order, range(20)) if answer]
    assert len(placed) == 12
    assert shop.read_item("cup", partition_key="s")["stock"] == 1


def test_a_failed_import_leaves_nothing_of_its_call(scripted):
    books = scripted("/publisher", "bulkImport", "bulkDelete")
    items = [{"id": f"{number}", "publisher": "p"} for number in range(20)]
    with pytest.raises(CosmosHttpResponseError) as refused:
        run(books, "bulkImport", "p", items + [{"id": "3", "publisher": "p"}])
    assert (refused.value.status_code, refused.value.sub_status) == (400, 409)
    with pytest.raises(CosmosResourceNotFoundError):
        books.read_item("0", partition_key="p")
    assert run(books, "bulkImport", "p", items) == 20
    assert run(books, "bulkDelete", "p", "SELECT * FROM c WHERE c.id < '2'") == {"deleted": 12, "continuation": False}


def test_more_than_fits_into_one_call_takes_several(scripted):
    books = scripted("/publisher", "bulkImport", "bulkDelete")
    left = [{"id": f"{number}", "publisher": "p"} for number in range(9000)]
    counts = []
    while left:
        counts.append(run(books, "bulkImport", "p", left))
        left = left[counts[-1] :]
    assert sum(counts) == 9000 and len(counts) > 1
    deleted = []
    while not deleted or deleted[-1]["continuation"]:
        deleted.append(run(books, "bulkDelete", "p", "SELECT * FROM c"))
    assert sum(done["deleted"] for done in deleted) == 9000 and len(deleted) > 1


def create_trigger(container, name, trigger_type, operation):
    body = (EXAMPLES / f"{name}.js").read_text()
    trigger = {"id": name, "body": body, "triggerType": trigger_type, "triggerOperation": operation}
    container.scripts.create_trigger(trigger)


def test_a_book_that_is_refused_is_not_counted(scripted):
    books = scripted("/publisher", "bulkImport")
    create_trigger(books, "requireAuthors", "Pre", "All")
    create_trigger(books, "countBooks", "Post", "Create")
    triggers = {"pre_trigger_include": "requireAuthors", "post_trigger_include": "countBooks"}
    books.create_item({"id": "ada", "publisher": "p", "type": "author"})
    book = {"id": "a", "publisher": "p", "type": "book", "title": "A", "pages": 1, "authors": ["ada"]}
    books.create_item(book, **triggers)
    for refused, status in [(book, 409), ({**book, "id": "b", "authors": ["nobody"]}, 400)]:
        with pytest.raises(CosmosHttpResponseError) as error:
            books.create_item(refused, **triggers)
        assert error.value.status_code == status
    assert books.read_item("metadata", partition_key="p")["books"] == 1


def test_a_count_that_cannot_be_kept_takes_the_book_back(scripted):
    books = scripted("/publisher", "bulkImport")
    create_trigger(books, "countBooks", "Post", "Create")
    # The metadata is as large as an item may be: it cannot take the book's title.
    books.create_item({"id": "metadata", "publisher": "p", "books": 0, "pages": 0, "filling": "x" * (2 * 1024 * 1024 - 2000)})
    with pytest.raises(CosmosHttpResponseError) as refused:
        books.create_item({"id": "a", "publisher": "p", "title": "t" * 4000}, post_trigger_include="countBooks")
    assert (refused.value.status_code, refused.value.sub_status) == (400, 413)
    with pytest.raises(CosmosResourceNotFoundError):
        books.read_item("a", partition_key="p")
