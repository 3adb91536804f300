"""The change feed: latest versions, by range, by key, from the beginning, now, a time and a continuation."""

import time
from datetime import datetime, timedelta, timezone

from azure.cosmos import PartitionKey


def ids(changes):
    return sorted(change["id"] for change in changes)


def fill(container, first, last):
    for n in range(first, last):
        container.upsert_item({"id": str(n), "pk": f"k{n % 7}", "n": n})


def names(first, last):
    return sorted(str(n) for n in range(first, last))


def test_from_the_beginning(container):
    fill(container, 0, 40)
    assert ids(container.query_items_change_feed(start_time="Beginning")) == names(0, 40)
    assert ids(container.query_items_change_feed(is_start_from_beginning=True, max_item_count=3)) == names(0, 40)


def test_the_last_version_of_each_item_and_no_deleted_one(container):
    fill(container, 0, 10)
    container.upsert_item({"id": "3", "pk": "k3", "n": 33})
    container.delete_item("4", "k4")
    changes = list(container.query_items_change_feed(start_time="Beginning"))
    assert ids(changes) == sorted(str(n) for n in range(10) if n != 4)
    assert [change["n"] for change in changes if change["id"] == "3"] == [33]
    assert all(change["_lsn"] > 0 for change in changes)


def test_from_now_and_on_by_continuation(container):
    fill(container, 0, 5)
    assert list(container.query_items_change_feed(start_time="Now")) == []
    token = container.client_connection.last_response_headers["etag"]
    fill(container, 5, 12)
    assert ids(container.query_items_change_feed(continuation=token)) == names(5, 12)
    token = container.client_connection.last_response_headers["etag"]
    assert list(container.query_items_change_feed(continuation=token)) == []
    fill(container, 12, 14)
    assert ids(container.query_items_change_feed(continuation=token)) == names(12, 14)


def test_from_a_time(container):
    fill(container, 0, 5)
    time.sleep(2)
    # A date has seconds, and the changes of that second are not after it.
    start = datetime.now(timezone.utc) - timedelta(seconds=1)
    fill(container, 5, 9)
    assert ids(container.query_items_change_feed(start_time=start)) == names(5, 9)


def test_of_a_partition_key_in_order(container):
    fill(container, 0, 30)
    changes = list(container.query_items_change_feed(partition_key="k2", start_time="Beginning", max_item_count=2))
    assert [change["n"] for change in changes] == [2, 9, 16, 23]


def test_of_each_feed_range(container):
    fill(container, 0, 50)
    found = []
    for feed_range in container.read_feed_ranges():
        found += container.query_items_change_feed(feed_range=feed_range, start_time="Beginning")
    assert ids(found) == names(0, 50)


def test_of_a_hierarchical_prefix(database):
    key = PartitionKey(path=["/tenant", "/user"], kind="MultiHash")
    container = database.create_container("prefixes", key)
    for n in range(20):
        container.create_item({"id": str(n), "tenant": f"t{n % 3}", "user": f"u{n % 2}"})
    changes = container.query_items_change_feed(partition_key=["t1"], start_time="Beginning")
    assert ids(changes) == sorted(str(n) for n in range(20) if n % 3 == 1)
