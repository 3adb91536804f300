"""Users, permissions and what their tokens allow."""

import uuid

import pytest
from azure.cosmos import CosmosClient, PartitionKey, exceptions

from conftest import ENDPOINT, client_options


@pytest.fixture
def user(database):
    return database.create_user({"id": f"u-{uuid.uuid4().hex[:8]}"})


def token_client(permission_or_token, link):
    return CosmosClient(ENDPOINT, {link: permission_or_token}, **client_options())


def test_user_life_cycle(database, user):
    assert user.read()["id"] == user.id
    assert user.id in [found["id"] for found in database.list_users()]
    database.upsert_user({"id": user.id})
    renamed = database.replace_user(user, {"id": user.id + "x"})
    assert renamed.read()["id"] == user.id + "x"
    database.delete_user(renamed)
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        renamed.read()


def permission_on(user, container, mode, **more):
    link = f"dbs/{container.container_link.split('/')[1]}/colls/{container.id}"
    body = {"id": f"p-{uuid.uuid4().hex[:8]}", "permissionMode": mode, "resource": link, **more}
    return user.create_permission(body), link


def test_read_permission(database, user, container):
    container.create_item({"id": "1", "pk": "a"})
    permission, link = permission_on(user, container, "Read")
    limited = token_client(permission.properties["_token"], link)
    seen = limited.get_database_client(database.id).get_container_client(container.id)
    assert seen.read_item("1", "a")["id"] == "1"
    assert len(list(seen.query_items("SELECT * FROM c", partition_key="a"))) == 1
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        seen.create_item({"id": "2", "pk": "a"})
    assert refused.value.status_code == 403


def test_all_permission_and_revocation(database, user, container):
    permission, link = permission_on(user, container, "All")
    limited = token_client(permission.properties["_token"], link)
    seen = limited.get_database_client(database.id).get_container_client(container.id)
    seen.create_item({"id": "1", "pk": "a"})
    user.delete_permission(permission.id)
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        seen.read_item("1", "a")
    assert refused.value.status_code in (401, 403)


def test_partition_restricted_permission(database, user, container):
    container.create_item({"id": "1", "pk": "a"})
    container.create_item({"id": "1", "pk": "b"})
    permission, link = permission_on(user, container, "All", resourcePartitionKey=["a"])
    limited = token_client(permission.properties["_token"], link)
    seen = limited.get_database_client(database.id).get_container_client(container.id)
    assert seen.read_item("1", "a")["pk"] == "a"
    for call in [
        lambda: seen.read_item("1", "b"),
        lambda: seen.upsert_item({"id": "2", "pk": "b"}),
        lambda: list(seen.query_items("SELECT * FROM c", enable_cross_partition_query=True)),
    ]:
        with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
            call()
        assert refused.value.status_code == 403


def test_a_token_opens_nothing_else(database, user, container):
    other = database.create_container(f"o-{uuid.uuid4().hex[:8]}", PartitionKey(path="/pk"))
    other.create_item({"id": "1", "pk": "a"})
    permission, link = permission_on(user, container, "All")
    token = permission.properties["_token"]
    limited = token_client(token, f"dbs/{database.id}/colls/{other.id}")
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        limited.get_database_client(database.id).get_container_client(other.id).read_item("1", "a")
    assert refused.value.status_code == 403


def test_duplicate_permission_on_a_resource(user, container):
    permission_on(user, container, "Read")
    with pytest.raises(exceptions.CosmosResourceExistsError):
        permission_on(user, container, "All")


def test_wrong_key_is_unauthorized():
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        CosmosClient(ENDPOINT, "d3Jvbmc=" * 11, **client_options())
    assert refused.value.status_code == 401
