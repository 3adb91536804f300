"""Posts with their newest comments, the others in pages, kept by the model in blog.json: python examples/blog.py [ENDPOINT [CERTIFICATE_AUTHORITY]]

It works in a database of its own, `blog-example`, which it makes anew.
"""

import json
import sys
from pathlib import Path

from azure.cosmos import CosmosClient, PartitionKey
from azure.cosmos.exceptions import CosmosResourceNotFoundError

from model import put_model

KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
HERE = Path(__file__).parent
DATABASE = "blog-example"


def main(endpoint="http://localhost:8081/", authority=None):
    options = {"connection_verify": authority} if authority else {}
    client = CosmosClient(endpoint, KEY, **options)
    try:
        client.delete_database(DATABASE)
    except CosmosResourceNotFoundError:
        pass
    database = client.create_database(DATABASE)
    people = database.create_container("people", PartitionKey(path="/id"))
    posts = database.create_container("posts", PartitionKey(path="/id"))
    pages = database.create_container("commentPages", PartitionKey(path="/postId"))

    people.create_item({"id": "ada", "name": "Ada"})
    # A post from before the model, with all its comments inside.
    comments = [comment(number) for number in range(1, 16)]
    posts.create_item({"id": "first", "title": "First", "author": {"id": "ada"}, "recentComments": comments})
    put_model(endpoint, KEY, authority, DATABASE, json.loads((HERE / "blog.json").read_text()))
    show("declared over a post with 15 comments", posts, pages)

    for number in range(16, 26):
        add = [{"op": "add", "path": "/recentComments/-", "value": comment(number)}]
        posts.patch_item("first", "first", add)
    show("10 more", posts, pages)

    post = posts.read_item("first", "first")
    del post["recentComments"][-1]
    posts.replace_item("first", post)
    show("the last one taken back", posts, pages)

    query = "SELECT VALUE c.text FROM p JOIN c IN p.comments WHERE p.page = 0 AND c.id = 'c4'"
    print("found in a page:", next(iter(pages.query_items(query, partition_key="first"))))
    print("posts of Ada:", people.read_item("ada", "ada")["countOfPosts"])
    posts.delete_item("first", "first")
    print("pages after the post was deleted:", len(list(pages.read_all_items())))
    print("posts of Ada:", people.read_item("ada", "ada")["countOfPosts"])


def comment(number):
    return {"id": f"c{number}", "author": {"id": "ada"}, "text": f"comment {number}"}


def show(what, posts, pages):
    post = posts.read_item("first", "first")
    newest = ", ".join(comment["id"] for comment in post["recentComments"])
    query = "SELECT VALUE ARRAY_LENGTH(p.comments) FROM p ORDER BY p.page"
    sizes = list(pages.query_items(query, partition_key="first"))
    print(f"{what}: {post['commentCount']} comments, in the post {newest}, in pages {sizes}")


if __name__ == "__main__":
    main(*sys.argv[1:])
