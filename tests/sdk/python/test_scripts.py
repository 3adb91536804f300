"""Stored procedures, triggers and user-defined functions."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import unquote

import pytest
from azure.core import MatchConditions
from azure.cosmos import PartitionKey, exceptions
from azure.cosmos.aio import CosmosClient as AsyncClient
from azure.cosmos.partition_key import NonePartitionKeyValue

from conftest import ENDPOINT, KEY, PARTITIONS, client_options

LOG = "x-ms-documentdb-script-log-results"


def procedure(container, id, body):
    return container.scripts.create_stored_procedure({"id": id, "body": body})


def run(container, id, partition_key="a", params=None, **more):
    return container.scripts.execute_stored_procedure(id, partition_key, params, **more)


def trigger(container, id, kind, operation, body):
    definition = {"id": id, "body": body, "triggerType": kind, "triggerOperation": operation}
    return container.scripts.create_trigger(definition)


def refusal(call):
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        call()
    return refused.value


def last_headers(container):
    return container.client_connection.last_response_headers


def ids(items):
    return [item["id"] for item in items]


# ---- as resources


def kinds(container):
    """Every kind: what it is created from, and the methods of the SDK."""
    scripts = container.scripts
    plain = {"id": "x", "body": "function () { /* ü */ }  \n"}
    return [
        (plain, scripts.create_stored_procedure, scripts.get_stored_procedure, scripts.replace_stored_procedure,
         scripts.delete_stored_procedure, scripts.list_stored_procedures, scripts.query_stored_procedures),
        ({**plain, "triggerType": "pre", "triggerOperation": "all"}, scripts.create_trigger, scripts.get_trigger,
         scripts.replace_trigger, scripts.delete_trigger, scripts.list_triggers, scripts.query_triggers),
        (plain, scripts.create_user_defined_function, scripts.get_user_defined_function,
         scripts.replace_user_defined_function, scripts.delete_user_defined_function,
         scripts.list_user_defined_functions, scripts.query_user_defined_functions),
    ]


def test_life_cycles(container):
    for definition, create, read, replace, delete, list_all, query in kinds(container):
        created = create(definition)
        assert {name: created[name] for name in definition} == definition
        assert read("x") == created
        assert read(created) == created
        assert refusal(lambda: create(definition)).status_code == 409
        replaced = replace("x", {**definition, "body": "function other() {}"})
        assert replaced["body"] == "function other() {}" and replaced["_rid"] == created["_rid"]
        assert replaced["_etag"] != created["_etag"]
        create({**definition, "id": "y"})
        assert ids(list_all()) == ["x", "y"]
        assert ids(list_all(max_item_count=1)) == ["x", "y"]
        found = query("SELECT * FROM root r WHERE r.id = @id", parameters=[{"name": "@id", "value": "y"}])
        assert ids(found) == ["y"]
        delete("x")
        assert refusal(lambda: read("x")).status_code == 404
        assert refusal(lambda: delete("x")).status_code == 404
        assert ids(list_all()) == ["y"]


def test_bodies_are_validated(container):
    scripts = container.scripts
    missing = "The input content is invalid because the required properties - '{}; ' - are missing"
    assert missing.format("body") in str(refusal(lambda: scripts.create_stored_procedure({"id": "x"})))
    assert missing.format("triggerType") in str(
        refusal(lambda: scripts.create_trigger({"id": "x", "body": "", "triggerOperation": "All"}))
    )
    assert missing.format("triggerOperation") in str(
        refusal(lambda: scripts.create_trigger({"id": "x", "body": "", "triggerType": "Pre"}))
    )
    assert refusal(lambda: trigger(container, "x", "Around", "All", "")).status_code == 400
    assert refusal(lambda: trigger(container, "x", "Pre", "Read", "")).status_code == 400
    assert refusal(lambda: procedure(container, "x" * 256, "")).status_code == 400


def test_broken_scripts_are_stored_and_fail_when_they_run(container):
    procedure(container, "prose", "function () { this is a sentence, not a program }")
    trigger(container, "broken", "Pre", "All", "serverScript() { var x = 10; }")
    refused = refusal(lambda: run(container, "prose"))
    assert refused.status_code == 400
    assert "Encountered exception while compiling Javascript." in str(refused)
    refused = refusal(lambda: container.create_item({"id": "1", "pk": "a"}, pre_trigger_include="broken"))
    assert refused.status_code == 400
    assert list(container.read_all_items()) == []


# ---- stored procedures


@pytest.mark.parametrize(
    "body, expected",
    [
        ("function () { getContext().getResponse().setBody('one' + 'two'); }", "onetwo"),
        ("function () { for (var i = 0; i < 10; i++) getContext().getResponse().appendValue('Body', i); }", "0123456789"),
        ("() => __.response.setBody({ a: [1, null, true] })", {"a": [1, None, True]}),
        ("function () { getContext().getResponse().setBody('{\"a\":1}'); }", '{"a":1}'),
        ("function named() { getContext().getResponse().setBody(4.5); } ; ", 4.5),
        ("async function () { await null; __.response.setBody('later'); }", "later"),
        ("function () {}", ""),
    ],
)
def test_bodies_of_answers(container, body, expected):
    procedure(container, "x", body)
    assert run(container, "x") == expected


def test_parameters(container):
    echo = "function (a, b, c) { getContext().getResponse().setBody([a, b, c, arguments.length]); }"
    procedure(container, "x", echo)
    assert run(container, "x", params=["one", 2, {"three": [3]}]) == ["one", 2, {"three": [3]}, 3]
    assert run(container, "x", params=[None]) == [None, None, None, 1]
    assert run(container, "x") == [None, None, None, 0]
    assert run(container, "__.sys.echo", params=[{"a": 1}]) == {"a": 1}


def test_a_procedure_is_one_transaction(container):
    procedure(container, "x", """
        function (id, fails) {
            var collection = getContext().getCollection();
            collection.createDocument(collection.getSelfLink(), { id: id, pk: 'a' }, function (error, created) {
                if (error) throw error;
                collection.readDocument(created._self, function (error, seen) {
                    if (error) throw error;
                    seen.changed = true;
                    collection.replaceDocument(seen._self, seen, { etag: seen._etag }, function (error, replaced) {
                        if (error) throw error;
                        if (fails) throw new Error(4444, 'on purpose');
                        getContext().getResponse().setBody(replaced);
                    });
                });
            });
        }""")
    done = run(container, "x", params=["1", False])
    stored = container.read_item("1", "a")
    assert stored["changed"] and stored == {**stored, **done}
    refused = refusal(lambda: run(container, "x", params=["2", True]))
    assert (refused.status_code, refused.sub_status) == (400, 4444)
    assert "on purpose" in str(refused)
    assert ids(container.read_all_items()) == ["1"]
    # The number of a failed operation, thrown on, is the sub-status.
    refused = refusal(lambda: run(container, "x", params=["1", False]))
    assert (refused.status_code, refused.sub_status) == (400, 409)


def test_an_error_that_a_callback_ignores_is_no_failure(container):
    container.create_item({"id": "1", "pk": "a"})
    procedure(container, "x", """
        function () {
            __.createDocument(__.getSelfLink(), { id: '2', pk: 'a' });
            __.createDocument(__.getSelfLink(), { id: '1', pk: 'a' }, function (error) { __.response.setBody(error.number); });
        }""")
    assert run(container, "x") == 409
    assert sorted(ids(container.read_all_items())) == ["1", "2"]


def test_own_writes_are_read_but_not_queried(container):
    container.create_item({"id": "0", "pk": "a"})
    procedure(container, "x", """
        function () {
            var seen = {}, link = __.getSelfLink();
            __.createDocument(link, { id: '1', pk: 'a' }, function () {
                __.readDocuments(link, function (error, found) { seen.read = found.map(item => item.id).sort(); });
                __.queryDocuments(link, 'SELECT VALUE c.id FROM c', function (error, found) { seen.queried = found; });
                __.queryDocuments(link, 'SELECT VALUE MAX(c.n) FROM c', function (error, found) {
                    seen.maximum = found;
                    __.response.setBody(seen);
                });
            });
        }""")
    assert run(container, "x") == {"read": ["0", "1"], "queried": ["0"], "maximum": []}


def test_partitions_do_not_see_each_other(container):
    count = """
        function () {
            __.queryDocuments(__.getSelfLink(), 'SELECT VALUE COUNT(1) FROM c', function (error, found) {
                __.response.setBody(found[0]);
            });
        }"""
    procedure(container, "count", count)
    procedure(container, "write", """
        function (key) { __.createDocument(__.getSelfLink(), { id: 'x', pk: key }, function (error) { if (error) throw error; }); }""")
    for key in ["a", "b", 1, True, None]:
        if key is not None:
            run(container, "write", key, [key])
            assert run(container, "count", key) == 1
    refused = refusal(lambda: run(container, "write", "a", ["c"]))
    assert refused.status_code == 400
    assert "cannot reference partition keys other than the one" in str(refused)
    assert len(list(container.read_all_items())) == 4
    assert refusal(lambda: run(container, "count", partition_key=None)).status_code == 400


def test_keys_that_are_missing_or_null(container):
    procedure(container, "x", """
        function (item) { __.createDocument(__.getSelfLink(), item, function (error, made) { if (error) throw error; }); }""")
    run(container, "x", NonePartitionKeyValue, [{"id": "none"}])
    run(container, "x", [None], [{"id": "null", "pk": None}])
    assert container.read_item("none", NonePartitionKeyValue)["id"] == "none"
    assert container.read_item("null", None)["id"] == "null"
    assert refusal(lambda: run(container, "x", [None], [{"id": "other"}])).status_code == 400


def test_procedures_at_once_lose_nothing(container):
    container.create_item({"id": "counter", "pk": "a", "n": 0})
    procedure(container, "add", """
        function () {
            __.readDocument(__.getAltLink() + '/docs/counter', function (error, counter) {
                if (error) throw error;
                counter.n++;
                __.replaceDocument(counter._self, counter, function (error) { if (error) throw error; });
                __.createDocument(__.getSelfLink(), { pk: 'a' }, function (error) { if (error) throw error; });
            });
        }""")
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: run(container, "add"), range(80)))
    assert container.read_item("counter", "a")["n"] == 80
    assert len(list(container.read_all_items())) == 81


def test_hierarchical_keys(database):
    paths = PartitionKey(path=["/a", "/b"], kind="MultiHash")
    container = database.create_container("hierarchical-scripts", paths)
    procedure(container, "x", "function () { __.createDocument(__.getSelfLink(), { id: '1', a: 'x', b: 'y' }); }")
    run(container, "x", ["x", "y"])
    assert ids(container.read_all_items()) == ["1"]
    assert refusal(lambda: run(container, "x", ["x"])).status_code == 400
    database.delete_container(container)


def test_logging(container):
    text = "a line, ü & 100%\n"
    procedure(container, "x", f"""
        function (fails) {{
            console.log({text!r});
            console.log('%s and %s', 1, 'two');
            if (fails) throw new Error('late');
        }}""")
    run(container, "x", params=[False], enable_script_logging=True)
    assert unquote(last_headers(container)[LOG]) == text + "1 and two"
    run(container, "x", params=[False])
    assert LOG not in last_headers(container)
    refused = refusal(lambda: run(container, "x", params=[True], enable_script_logging=True))
    assert unquote(refused.response.headers[LOG]) == text + "1 and two"


def test_headers_of_an_execution(container):
    procedure(container, "x", "function () { __.createDocument(__.getSelfLink(), { id: '1', pk: 'a' }); }")
    run(container, "x")
    headers = last_headers(container)
    assert float(headers["x-ms-request-charge"]) > 1
    session = headers["x-ms-session-token"]
    assert session.split(":")[0] == headers["x-ms-documentdb-partitionkeyrangeid"]
    assert container.read_item("1", "a", session_token=session)["id"] == "1"


def test_a_procedure_that_never_stops_asking_ends_in_time(container):
    container.create_item({"id": "1", "pk": "a"})
    procedure(container, "x", """
        function () {
            var count = 0;
            function next() { __.readDocuments(__.getSelfLink(), {}, function () { count++; next(); }); }
            next();
            __.createDocument(__.getSelfLink(), { id: '2', pk: 'a' });
        }""")
    assert run(container, "x") == ""
    assert sorted(ids(container.read_all_items())) == ["1", "2"]


def test_an_endless_loop_is_stopped_and_undone(container):
    procedure(container, "x", """
        function () { __.createDocument(__.getSelfLink(), { id: '1', pk: 'a' }, function () { while (true) {} }); }""")
    assert refusal(lambda: run(container, "x")).status_code == 408
    assert list(container.read_all_items()) == []
    assert run(container, "__.sys.echo", params=["still here"]) == "still here"


def test_continuations_between_executions(container):
    for number in range(25):
        container.create_item({"id": str(number), "pk": "a"})
    procedure(container, "page", """
        function (continuation) {
            var options = { pageSize: 10, continuation: continuation };
            __.queryDocuments(__.getSelfLink(), 'SELECT VALUE c.id FROM c', options, function (error, found, options) {
                if (error) throw error;
                __.response.setBody({ found: found, continuation: options.continuation });
            });
        }""")
    found, continuation = [], None
    while True:
        page = run(container, "page", params=[continuation])
        found += page["found"]
        continuation = page.get("continuation")
        if not continuation:
            break
        container.upsert_item({"id": "between", "pk": "b"})
    assert sorted(found, key=int) == [str(number) for number in range(25)]


def test_javascript_queries(container):
    for number in range(5):
        container.create_item({"id": str(number), "pk": "a", "n": number, "tags": ["x", str(number)]})
    procedure(container, "x", """
        function () {
            __.chain().filter(item => item.n > 1).sortByDescending(item => item.n).pluck('id').value();
        }""")
    assert run(container, "x") == '["4","3","2"]'


# ---- triggers


def test_a_pre_trigger_changes_what_is_written(container):
    trigger(container, "stamp", "Pre", "Create", """
        function () {
            var request = getContext().getRequest(), item = request.getBody();
            item.stamped = request.getOperationType();
            request.setBody(item);
        }""")
    created = container.create_item({"id": "1", "pk": "a"}, pre_trigger_include="stamp")
    assert created["stamped"] == "Create"
    assert container.read_item("1", "a")["stamped"] == "Create"
    assert "stamped" not in container.create_item({"id": "2", "pk": "a"})


def test_a_post_trigger_changes_what_is_told_and_other_items(container):
    container.create_item({"id": "meta", "pk": "a", "count": 0})
    trigger(container, "count", "Post", "All", """
        function () {
            var collection = getContext().getCollection(), response = getContext().getResponse();
            collection.readDocument(collection.getAltLink() + '/docs/meta', function (error, meta) {
                if (error) throw error;
                meta.count++;
                meta.last = response.getBody().id;
                collection.replaceDocument(meta._self, meta, function (error) { if (error) throw error; });
                var told = response.getBody();
                told.told = true;
                response.setBody(told);
            });
        }""")
    for number in range(3):
        created = container.create_item({"id": str(number), "pk": "a"}, post_trigger_include="count")
        assert created["told"]
    assert "told" not in container.read_item("2", "a")
    assert container.read_item("meta", "a")["count"] == 3
    assert container.read_item("meta", "a")["last"] == "2"


def test_a_post_trigger_may_delete_what_was_written(container):
    trigger(container, "undo", "Post", "All", """
        function () {
            __.readDocuments(__.getSelfLink(), function (error, found) {
                found.forEach(item => __.deleteDocument(item._self));
            });
        }""")
    container.create_item({"id": "1", "pk": "a"}, post_trigger_include="undo")
    assert list(container.read_all_items()) == []


@pytest.mark.parametrize("kind", ["Pre", "Post"])
def test_a_trigger_that_throws_undoes_the_write(container, kind):
    trigger(container, "refuse", kind, "All", "function () { throw new Error(4444, 'refused'); }")
    include = {f"{kind.lower()}_trigger_include": "refuse"}
    kept = container.create_item({"id": "kept", "pk": "a"})
    for call in [
        lambda: container.create_item({"id": "1", "pk": "a"}, **include),
        lambda: container.upsert_item({"id": "1", "pk": "a"}, **include),
        lambda: container.replace_item("kept", {**kept, "changed": 1}, **include),
        lambda: container.delete_item("kept", "a", **include),
    ]:
        refused = refusal(call)
        assert (refused.status_code, refused.sub_status) == (400, 4444)
    assert list(container.read_all_items()) == [kept]


def test_triggers_match_their_header_and_operation(container):
    empty = "function () {}"
    trigger(container, "create", "Pre", "Create", empty)
    trigger(container, "delete", "Pre", "Delete", empty)
    trigger(container, "upsert", "pre", "upsert", empty)
    trigger(container, "all", "pre", "all", empty)
    trigger(container, "post", "Post", "All", empty)

    def create(**include):
        return lambda: container.create_item({"id": "1", "pk": "a"}, **include)

    assert refusal(create(pre_trigger_include="delete")).status_code == 400
    assert refusal(create(pre_trigger_include="post")).status_code == 400
    assert refusal(create(post_trigger_include="create")).status_code == 400
    assert refusal(create(pre_trigger_include="missing")).status_code == 400
    assert refusal(create(pre_trigger_include="create,all")).status_code == 400
    refused = refusal(lambda: container.upsert_item({"id": "1", "pk": "a"}, pre_trigger_include="create"))
    assert "was defined with operation type 'Create', and therefore is invalid for 'Upsert'" in str(refused)
    assert list(container.read_all_items()) == []
    create(pre_trigger_include="create", post_trigger_include="post")()
    container.upsert_item({"id": "1", "pk": "a"}, pre_trigger_include="upsert")
    container.upsert_item({"id": "1", "pk": "a"}, pre_trigger_include="all")
    assert refusal(lambda: container.replace_item("1", {"id": "1", "pk": "a"}, pre_trigger_include="upsert")).status_code == 400
    container.delete_item("1", "a", pre_trigger_include="delete")
    assert list(container.read_all_items()) == []


def test_a_pre_trigger_may_finish_the_item_later(container):
    container.create_item({"id": "first", "pk": "a", "n": 41})
    trigger(container, "number", "Pre", "Create", """
        function () {
            var item = getContext().getRequest().getBody();
            getContext().getRequest().setBody(item);
            __.queryDocuments(__.getSelfLink(), 'SELECT VALUE MAX(c.n) FROM c', function (error, found) {
                item.n = found.length > 0 ? found[0] + 1 : 0;
            });
        }""")
    for expected in (42, 43):
        assert container.create_item({"id": str(expected), "pk": "a"}, pre_trigger_include="number")["n"] == expected
    assert container.create_item({"id": "other", "pk": "b"}, pre_trigger_include="number")["n"] == 0


def test_a_post_trigger_sees_quotas(container):
    trigger(container, "quota", "Post", "All", """
        function () {
            var response = getContext().getResponse(), body = response.getBody();
            body.usage = response.getResourceQuotaCurrentUsage();
            body.quota = response.getMaxResourceQuota();
            response.setBody(body);
        }""")
    told = container.create_item({"id": "1", "pk": "a"}, post_trigger_include="quota")
    assert "collectionSize" in told["usage"] and "collectionSize" in told["quota"]


def test_a_patch_counts_as_a_replace(container):
    container.create_item({"id": "1", "pk": "a"})
    trigger(container, "replace", "Post", "Replace", "function () { throw new Error(7, 'ran'); }")
    trigger(container, "create", "Post", "Create", "function () {}")
    operations = [{"op": "add", "path": "/n", "value": 1}]
    refused = refusal(lambda: container.patch_item("1", "a", operations, post_trigger_include="replace"))
    assert (refused.status_code, refused.sub_status) == (400, 7)
    assert refusal(lambda: container.patch_item("1", "a", operations, post_trigger_include="create")).status_code == 400
    assert "n" not in container.read_item("1", "a")


def test_conditions_come_before_the_pre_trigger(container):
    item = container.create_item({"id": "1", "pk": "a"})
    trigger(container, "refuse", "Pre", "All", "function () { throw new Error('ran'); }")
    refused = refusal(lambda: container.replace_item(
        "1", {**item, "n": 1}, pre_trigger_include="refuse", etag='"stale"', match_condition=MatchConditions.IfNotModified))
    assert refused.status_code == 412
    refused = refusal(lambda: container.replace_item("2", {"id": "2", "pk": "a"}, pre_trigger_include="refuse"))
    assert refused.status_code == 404


# ---- user-defined functions


def function(container, id, body):
    return container.scripts.create_user_defined_function({"id": id, "body": body})


def test_functions_in_queries(container):
    for number in range(10):
        container.create_item({"id": str(number), "pk": "ab"[number % 2], "n": number, "tags": [number, number + 1]})
    function(container, "double", "function (x) { return 2 * x; }")
    function(container, "both", "function (a, b) { return { a: a, b: b }; }")
    function(container, "nothing", "function () {}")

    def rows(query, **scope):
        scope = scope or {"enable_cross_partition_query": True}
        return list(container.query_items(query, **scope))

    assert sorted(rows("SELECT VALUE udf.double(c.n) FROM c")) == list(range(0, 20, 2))
    assert sorted(rows("SELECT VALUE c.n FROM c WHERE udf.double(c.n) >= 16")) == [8, 9]
    assert sorted(rows("SELECT VALUE udf.double(t) FROM c JOIN t IN c.tags WHERE udf.double(t) > 18")) == [20]
    assert rows("SELECT VALUE udf.both(c.n, null) FROM c WHERE c.id = '3'", partition_key="b") == [{"a": 3, "b": None}]
    # An argument that is missing is undefined.
    assert rows("SELECT VALUE udf.both(c.n, c.missing) FROM c WHERE c.id = '3'", partition_key="b") == [{"a": 3}]
    assert rows("SELECT udf.nothing() AS x, c.n FROM c WHERE c.n = 1", partition_key="b") == [{"n": 1}]
    assert rows("SELECT VALUE c.n FROM c WHERE udf.double(c.n) > 4 ORDER BY c.n DESC") == [9, 8, 7, 6, 5, 4, 3]
    assert rows("SELECT VALUE SUM(udf.double(c.n)) FROM c", partition_key="a") == [40]


def test_functions_that_fail(container):
    container.create_item({"id": "1", "pk": "a"})
    function(container, "throws", "function () { throw new Error(32766, 'from the function'); }")
    function(container, "loops", "function () { while (true) {} }")
    function(container, "broken", "function ( {")

    def fails(query):
        return refusal(lambda: list(container.query_items(query, partition_key="a")))

    refused = fails("SELECT VALUE udf.throws(c) FROM c")
    assert (refused.status_code, refused.sub_status) == (400, 32766)
    assert fails("SELECT VALUE udf.loops() FROM c").status_code == 408
    assert fails("SELECT VALUE udf.broken() FROM c").status_code == 400
    assert "SC2006" in str(fails("SELECT VALUE udf.missing(c) FROM c"))


def test_a_replaced_script_is_the_one_that_runs(container):
    procedure(container, "x", "function () { getContext().getResponse().setBody(1); }")
    function(container, "f", "function () { return 1; }")
    query = {"query": "SELECT VALUE udf.f()", "partition_key": "a"}
    assert run(container, "x") == 1 and list(container.query_items(**query)) == [1]
    container.scripts.replace_stored_procedure("x", {"id": "x", "body": "function () { getContext().getResponse().setBody(2); }"})
    container.scripts.replace_user_defined_function("f", {"id": "f", "body": "function () { return 2; }"})
    assert run(container, "x") == 2 and list(container.query_items(**query)) == [2]
    container.scripts.delete_stored_procedure("x")
    assert refusal(lambda: run(container, "x")).status_code == 404


def test_scripts_of_a_container_with_several_partitions(container):
    procedure(container, "fill", """
        function (count, key) {
            for (var i = 0; i < count; i++) __.createDocument(__.getSelfLink(), { id: 'i' + i, pk: key });
        }""")
    for key in "abcdefgh":
        run(container, "fill", key, [5, key])
    assert len(list(container.read_all_items())) == 40
    assert len(list(container.read_feed_ranges())) == PARTITIONS


def test_the_asynchronous_client(container):
    async def life():
        async with AsyncClient(ENDPOINT, KEY, **client_options()) as client:
            database = client.get_database_client(container.container_link.split("/")[1])
            scripts = database.get_container_client(container.id).scripts
            await scripts.create_stored_procedure({"id": "x", "body": "function (a) { __.response.setBody(a + 1); }"})
            assert await scripts.execute_stored_procedure("x", partition_key="a", parameters=[1]) == 2
            assert [found["id"] async for found in scripts.list_stored_procedures()] == ["x"]
            await scripts.delete_stored_procedure("x")

    asyncio.run(life())
