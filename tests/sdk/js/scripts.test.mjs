import assert from "node:assert/strict";
import test from "node:test";

import { failure, newContainer } from "./common.mjs";

const item = (id, rest = {}) => ({ id, pk: "a", ...rest });

async function execute(container, body, params = [], key = "a", options = {}) {
  const id = `p${Math.random()}`;
  await container.scripts.storedProcedures.create({ id, body });
  return container.scripts.storedProcedure(id).execute(key, params, options);
}

async function ids(container) {
  const { resources } = await container.items.readAll().fetchAll();
  return resources.map((found) => found.id).sort();
}

test("stored procedures, triggers and functions live and die", async (t) => {
  const container = await newContainer(t);
  const { scripts } = container;
  for (const [all, one, definition] of [
    [scripts.storedProcedures, (id) => scripts.storedProcedure(id), {}],
    [scripts.triggers, (id) => scripts.trigger(id), { triggerType: "Pre", triggerOperation: "All" }],
    [scripts.userDefinedFunctions, (id) => scripts.userDefinedFunction(id), {}],
  ]) {
    const text = "function () { const x = 10; /* ü */ }\n";
    const { resource: created, statusCode } = await all.create({ id: "x", body: text, ...definition });
    assert.equal(statusCode, 201);
    assert.equal(created.body, text);
    // A function is sent as its text.
    const { resource: other } = await all.create({ id: "y", body: () => 1, ...definition });
    assert.equal(other.body, "() => 1");
    assert.equal((await failure(all.create({ id: "x", body: text, ...definition }))).code, 409);
    assert.deepEqual((await one("x").read()).resource, created);
    const { resource: replaced } = await one("x").replace({ ...created, body: "function () {}" });
    assert.equal(replaced.body, "function () {}");
    assert.equal(replaced._rid, created._rid);
    assert.deepEqual((await all.readAll().fetchAll()).resources.map((found) => found.id), ["x", "y"]);
    const { resources } = await all.query({
      query: "SELECT * FROM root r WHERE r.id = @id",
      parameters: [{ name: "@id", value: "y" }],
    }).fetchAll();
    assert.deepEqual(resources, [other]);
    assert.equal((await one("x").delete()).statusCode, 204);
    assert.equal((await failure(one("x").delete())).code, 404);
  }
});

test("a procedure answers what it set", async (t) => {
  const container = await newContainer(t);
  const answers = [
    [() => { getContext().getResponse().setBody("a" + "b"); }, [], "ab"],
    [(a, b) => { getContext().getResponse().setBody({ a, b }); }, [[1, "x"], null], { a: [1, "x"], b: null }],
    [() => { for (let i = 0; i < 10; i++) getContext().getResponse().appendValue("Body", i); }, [], "0123456789"],
    [() => { const context = getContext(); context.getResponse().setBody(context.getCollection().getAltLink()); }, [],
      `dbs/${container.database.id}/colls/${container.id}`],
    [() => {}, [], ""],
  ];
  for (const [body, params, expected] of answers) {
    assert.deepEqual((await execute(container, body, params)).resource, expected);
  }
});

test("a procedure commits everything or nothing", async (t) => {
  const container = await newContainer(t);
  const body = function (fails) {
    const collection = getContext().getCollection();
    const done = (error) => { if (error) throw error; };
    collection.createDocument(collection.getSelfLink(), { id: "1", pk: "a" }, done);
    collection.upsertDocument(collection.getSelfLink(), { id: "2", pk: "a" }, (error) => {
      if (fails) throw new Error(1234, "on purpose");
    });
  };
  const refused = await failure(execute(container, body, [true]));
  assert.equal(refused.code, 400);
  assert.equal(refused.substatus, 1234);
  assert.match(refused.message, /on purpose/);
  assert.deepEqual(await ids(container), []);
  const { requestCharge, headers } = await execute(container, body, [false]);
  assert.ok(requestCharge > 1);
  assert.ok(headers["x-ms-session-token"]);
  assert.deepEqual(await ids(container), ["1", "2"]);
  assert.equal((await failure(execute(container, body, [false]))).substatus, 409);
});

test("promises and await", async (t) => {
  const container = await newContainer(t);
  const body = async function () {
    const call = (method, ...rest) =>
      new Promise((resolve, reject) => {
        const accepted = __[method](...rest, (error, result) => (error ? reject(error) : resolve(result)));
        if (!accepted) reject(new Error("not accepted"));
      });
    try {
      const created = await call("createDocument", __.getSelfLink(), { id: "1", pk: "a", n: 1 });
      created.n++;
      await call("replaceDocument", created._self, created);
      __.response.setBody((await call("readDocument", created._self)).n);
    } catch (error) {
      getContext().abort(error);
    }
  };
  assert.equal((await execute(container, body)).resource, 2);
  assert.equal((await failure(execute(container, body))).code, 400);
});

test("the log of a script", async (t) => {
  const container = await newContainer(t);
  const body = (fails) => {
    console.log("ü %s\n", "line");
    if (fails) throw new Error("late");
  };
  const { headers } = await execute(container, body, [false], "a", { enableScriptLogging: true });
  assert.equal(decodeURIComponent(headers["x-ms-documentdb-script-log-results"]), "ü line\n");
  const silent = await execute(container, body, [false]);
  assert.equal(silent.headers["x-ms-documentdb-script-log-results"], undefined);
  const failed = await failure(execute(container, body, [true], "a", { enableScriptLogging: true }));
  assert.equal(decodeURIComponent(failed.headers["x-ms-documentdb-script-log-results"]), "ü line\n");
});

test("partition keys of executions", async (t) => {
  const container = await newContainer(t);
  const write = (key) => {
    const body = key === undefined ? { id: "x" } : { id: "x", pk: key };
    __.createDocument(__.getSelfLink(), body, (error) => { if (error) throw error; });
  };
  for (const key of ["a", 1, true, null]) {
    await execute(container, write, [key], key === null ? [null] : key);
  }
  assert.equal((await ids(container)).length, 4);
  const refused = await failure(execute(container, write, ["b"], "a"));
  assert.equal(refused.code, 400);
  assert.match(refused.message, /cannot reference partition keys other than the one/);
});

test("triggers run with the write that names them", async (t) => {
  const container = await newContainer(t);
  const create = (id, triggerType, triggerOperation, body) =>
    container.scripts.triggers.create({ id, triggerType, triggerOperation, body });
  await create("upper", "Pre", "All", () => {
    const request = getContext().getRequest();
    const body = request.getBody();
    body.id = body.id.toUpperCase();
    request.setBody(body);
  });
  await create("link", "Post", "All", () => {
    const response = getContext().getResponse();
    const body = response.getBody();
    body.told = true;
    response.setBody(body);
    try {
      getContext().getRequest().setBody("lol");
    } catch (error) {
      body.caught = true;
    }
  });
  await create("refuse", "Post", "Create", () => { throw new Error(4444, "no"); });
  const { resource } = await container.items.create(item("x"), { preTriggerInclude: "upper", postTriggerInclude: ["link"] });
  assert.equal(resource.id, "X");
  assert.equal(resource.told, true);
  assert.equal(resource.caught, true);
  const { resource: stored } = await container.item("X", "a").read();
  assert.equal(stored.told, undefined);
  const refused = await failure(container.items.create(item("y"), { postTriggerInclude: "refuse" }));
  assert.equal(refused.code, 400);
  assert.equal(refused.substatus, 4444);
  for (const options of [
    { preTriggerInclude: "link" },
    { preTriggerInclude: "missing" },
    { postTriggerInclude: ["link", "refuse"] },
  ]) {
    assert.equal((await failure(container.items.create(item("z"), options))).code, 400);
  }
  assert.equal((await failure(container.items.upsert(item("z"), { postTriggerInclude: "refuse" }))).code, 400);
  assert.deepEqual(await ids(container), ["X"]);
});

test("functions in queries of one and of all partitions", async (t) => {
  const container = await newContainer(t);
  for (let n = 0; n < 8; n++) {
    await container.items.create({ id: String(n), pk: `p${n % 3}`, n, tags: [n, -n] });
  }
  const create = (id, body) => container.scripts.userDefinedFunctions.create({ id, body });
  await create("square", (x) => x * x);
  await create("throws", () => { throw new Error(32766, "no"); });
  const rows = async (query, options) => (await container.items.query(query, options).fetchAll()).resources;
  assert.deepEqual(
    (await rows("SELECT VALUE udf.square(c.n) FROM c WHERE udf.square(c.n) > 30")).sort(), [36, 49]);
  assert.deepEqual(await rows("SELECT VALUE udf.square(t) FROM c JOIN t IN c.tags WHERE c.n = 2", { partitionKey: "p2" }), [4, 4]);
  assert.deepEqual(await rows("SELECT VALUE c.n FROM c WHERE udf.square(c.n) < 10 ORDER BY c.n DESC"), [3, 2, 1, 0]);
  assert.equal((await failure(rows("SELECT VALUE udf.throws() FROM c", { partitionKey: "p0" }))).substatus, 32766);
  assert.match((await failure(rows("SELECT VALUE udf.missing(c) FROM c", { partitionKey: "p0" }))).message, /SC2006/);
});

test("geometry in scripts", async (t) => {
  const container = await newContainer(t);
  const body = function () {
    const point = (x, y) => ({ type: "Point", coordinates: [x, y] });
    const square = { type: "Polygon", coordinates: [[[0, 0], [2, 0], [2, 2], [0, 2], [0, 0]]] };
    const { spatial } = __;
    __.response.setBody([
      Math.round(spatial.distance(point(0, 0), point(0, 1)) / 1000),
      spatial.within(point(1, 1), square),
      spatial.intersects(point(3, 3), square),
      spatial.isValid(point(0, 100)),
      spatial.isValidDetailed(point(0, 0)).valid,
    ]);
  };
  assert.deepEqual((await execute(container, body)).resource, [111, true, false, false, true]);
  assert.equal((await failure(execute(container, () => __.spatial.distance(1, 2)))).substatus, 400);
});
