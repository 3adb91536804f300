import assert from "node:assert/strict";
import test from "node:test";

import { failure, newContainer, partitions } from "./common.mjs";

const codes = (results) => results.map((result) => result.statusCode);

test("an item is patched", async (t) => {
  const container = await newContainer(t);
  await container.items.create({ id: "1", pk: "a", n: 1, tags: ["x"] });
  const item = container.item("1", "a");
  const bare = await item.patch([{ op: "incr", path: "/n", value: 2 }, { op: "add", path: "/tags/-", value: "y" }]);
  assert.equal(bare.statusCode, 200);
  assert.deepEqual([bare.resource.n, bare.resource.tags], [3, ["x", "y"]]);
  const condition = "from c where c.n = 3";
  const moved = await item.patch({ condition, operations: [{ op: "move", from: "/n", path: "/m" }] });
  assert.deepEqual([moved.resource.n, moved.resource.m], [undefined, 3]);
  const unmet = await failure(item.patch({ condition, operations: [{ op: "set", path: "/m", value: 0 }] }));
  assert.equal(unmet.code, 412);
  const bad = await failure(item.patch([{ op: "add", path: "/x/y", value: 1 }]));
  assert.equal(bad.code, 400);
  assert.match(bad.message, /For Operation\(1\): Add Operation can only create a child object/);
  assert.equal((await failure(container.item("2", "a").patch([{ op: "set", path: "/m", value: 0 }]))).code, 404);
  const stale = { accessCondition: { type: "IfMatch", condition: bare.resource._etag } };
  assert.equal((await failure(item.patch([{ op: "set", path: "/m", value: 0 }], stale))).code, 412);
});

test("a batch is all or nothing", async (t) => {
  const container = await newContainer(t);
  const done = await container.items.batch(
    [
      { operationType: "Create", resourceBody: { id: "1", pk: "a", n: 1 } },
      { operationType: "Upsert", resourceBody: { id: "2", pk: "a" } },
      { operationType: "Patch", id: "1", resourceBody: { operations: [{ op: "incr", path: "/n", value: 1 }] } },
      { operationType: "Read", id: "1" },
      { operationType: "Replace", id: "2", resourceBody: { id: "2", pk: "a", x: 1 } },
      { operationType: "Delete", id: "2" },
    ],
    "a",
  );
  assert.equal(done.code, 200);
  assert.deepEqual(codes(done.result), [201, 201, 200, 200, 200, 204]);
  assert.equal(done.result[3].resourceBody.n, 2);
  const failed = await container.items.batch(
    [
      { operationType: "Create", resourceBody: { id: "3", pk: "a" } },
      { operationType: "Create", resourceBody: { id: "1", pk: "a" } },
      { operationType: "Delete", id: "1", ifMatch: "*" },
    ],
    "a",
  );
  assert.equal(failed.code, 207);
  assert.deepEqual(codes(failed.result), [424, 409, 424]);
  const { resources } = await container.items.readAll().fetchAll();
  assert.deepEqual(resources.map((item) => item.id), ["1"]);
  const other = [{ operationType: "Create", partitionKey: "b", resourceBody: { id: "4", pk: "b" } }];
  const mixed = await failure(container.items.batch(other, "a"));
  assert.match(mixed.message, /have a different partition key value than the request/);
  assert.match((await failure(container.items.batch([], "a"))).message, /no operations/);
});

test("bulk operations stand alone", async (t) => {
  const container = await newContainer(t);
  const created = await container.items.executeBulkOperations(
    Array.from({ length: 150 }, (_, n) => ({
      operationType: "Create",
      partitionKey: `key${n % 40}`,
      resourceBody: { id: String(n), pk: `key${n % 40}`, n },
    })),
  );
  assert.equal(created.length, 150);
  assert.ok(created.every((result) => result.response?.statusCode === 201));
  assert.ok(created.every((result) => result.response.requestCharge > 0));
  const mixed = await container.items.executeBulkOperations([
    { operationType: "Read", id: "0", partitionKey: "key0" },
    { operationType: "Create", partitionKey: "key1", resourceBody: { id: "1", pk: "key1" } },
    { operationType: "Upsert", partitionKey: "key2", resourceBody: { id: "2", pk: "key2", n: "new" } },
    { operationType: "Patch", id: "3", partitionKey: "key3", resourceBody: { operations: [{ op: "incr", path: "/n", value: 1 }] } },
    { operationType: "Replace", id: "4", partitionKey: "key4", resourceBody: { id: "4", pk: "key4" } },
    { operationType: "Delete", id: "5", partitionKey: "key5" },
    { operationType: "Delete", id: "none", partitionKey: "key6" },
  ]);
  assert.deepEqual(mixed.map((result) => result.response?.statusCode ?? result.error.code), [200, 409, 200, 200, 200, 204, 404]);
  assert.equal((await container.item("3", "key3").read()).resource.n, 4);
});

test("the older bulk call", async (t) => {
  const container = await newContainer(t);
  const operations = Array.from({ length: 30 }, (_, n) => ({ operationType: "Create", resourceBody: { id: String(n), pk: `key${n}` } }));
  assert.deepEqual(codes(await container.items.bulk(operations)), Array(30).fill(201));
  const again = await container.items.bulk(operations.slice(0, 5), { continueOnError: true });
  assert.deepEqual(codes(again), Array(5).fill(409));
  const ranges = (await container.readPartitionKeyRanges().fetchAll()).resources;
  assert.equal(ranges.length, partitions);
});
