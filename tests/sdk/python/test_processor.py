"""The change feed processor's pattern: leases are ordinary items, owners take them over, positions are kept in them."""

import pytest
from azure.core import MatchConditions
from azure.cosmos import PartitionKey, exceptions


class Processor:
    """One worker: it takes leases that are free, reads its ranges and keeps where it is."""

    def __init__(self, name, feed, leases):
        self.name, self.feed, self.leases, self.told = name, feed, leases, []

    def prepare(self):
        for number, feed_range in enumerate(self.feed.read_feed_ranges()):
            lease = {"id": f"lease.{number}", "FeedRange": feed_range, "Owner": None, "ContinuationToken": None}
            try:
                self.leases.create_item(lease)
            except exceptions.CosmosResourceExistsError:
                pass  # another worker was first

    def acquire(self, lease):
        lease = dict(lease, Owner=self.name)
        condition = {"etag": lease["_etag"], "match_condition": MatchConditions.IfNotModified}
        return self.leases.replace_item(lease["id"], lease, **condition)

    def work(self, lease):
        token = lease["ContinuationToken"]
        start = {"continuation": token} if token else {"start_time": "Beginning", "feed_range": lease["FeedRange"]}
        changes = list(self.feed.query_items_change_feed(max_item_count=3, **start))
        self.told += [change["id"] for change in changes]
        token = self.feed.client_connection.last_response_headers["etag"]
        return self.acquire(dict(lease, ContinuationToken=token))


@pytest.fixture
def leases(database):
    container = database.create_container("leases", PartitionKey(path="/id"))
    yield container
    database.delete_container(container.id)


def all_leases(leases):
    query = "SELECT * FROM c WHERE STARTSWITH(c.id, 'lease.')"
    return list(leases.query_items(query, enable_cross_partition_query=True))


def test_workers_share_the_ranges_and_tell_every_change_once(container, leases):
    for n in range(40):
        container.create_item({"id": str(n), "pk": f"k{n % 11}"})
    first, second = Processor("first", container, leases), Processor("second", container, leases)
    first.prepare()
    second.prepare()
    assert len(all_leases(leases)) == len(list(container.read_feed_ranges()))
    for lease in all_leases(leases):
        first.work(first.acquire(lease))
    assert sorted(first.told, key=int) == [str(n) for n in range(40)]
    for n in range(40, 60):
        container.create_item({"id": str(n), "pk": f"k{n % 11}"})
    # The second takes all leases over and goes on where the first was.
    for lease in all_leases(leases):
        second.work(second.acquire(lease))
        with pytest.raises(exceptions.CosmosAccessConditionFailedError):
            first.acquire(lease)
    assert sorted(second.told, key=int) == [str(n) for n in range(40, 60)]
