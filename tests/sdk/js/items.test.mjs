import assert from "node:assert/strict";
import test from "node:test";

import { failure, newContainer, newClient } from "./common.mjs";

test("an item is created, read, replaced, upserted and deleted", async (t) => {
  const container = await newContainer(t);
  const { resource: created, statusCode, requestCharge } = await container.items.create({ id: "1", pk: "a", list: [1, { x: null }] });
  assert.equal(statusCode, 201);
  assert.ok(requestCharge > 5);
  assert.deepEqual((await container.item("1", "a").read()).resource, created);
  const { resource: replaced } = await container.item("1", "a").replace({ id: "1", pk: "a", v: 2 });
  assert.equal(replaced._rid, created._rid);
  assert.notEqual(replaced._etag, created._etag);
  assert.equal((await container.items.upsert({ id: "1", pk: "a", v: 3 })).statusCode, 200);
  assert.equal((await container.items.upsert({ id: "2", pk: "a" })).statusCode, 201);
  assert.equal((await container.item("1", "a").delete()).statusCode, 204);
  assert.equal((await container.item("1", "a").read()).statusCode, 404);
  assert.equal((await failure(container.item("1", "a").delete())).code, 404);
  assert.equal((await failure(container.items.create({ id: "2", pk: "a" }))).code, 409);
});

test("conditions", async (t) => {
  const container = await newContainer(t);
  const { resource: first } = await container.items.create({ id: "1", pk: "a" });
  await container.items.upsert({ id: "1", pk: "a", v: 2 });
  const stale = { accessCondition: { type: "IfMatch", condition: first._etag } };
  assert.equal((await failure(container.item("1", "a").replace({ id: "1", pk: "a" }, stale))).code, 412);
  assert.equal((await failure(container.item("1", "a").delete(stale))).code, 412);
  const { resource: second } = await container.item("1", "a").read();
  const unchanged = await container.item("1", "a").read({ accessCondition: { type: "IfNoneMatch", condition: second._etag } });
  assert.equal(unchanged.statusCode, 304);
});

test("partition keys of every kind", async (t) => {
  const container = await newContainer(t);
  for (const key of ["p", "", "ü日", 0, -1, 5.5, true, false, null]) {
    await container.items.create({ id: "1", pk: key });
    assert.equal((await container.item("1", key).read()).resource.pk, key);
  }
  await container.items.create({ id: "1" });
  assert.equal((await container.item("1", undefined).read()).resource.id, "1");
  const { resources } = await container.items.readAll().fetchAll();
  assert.equal(resources.length, 10);
});

test("hierarchical partition keys", async (t) => {
  const container = await newContainer(t, { partitionKey: { paths: ["/t", "/u"], kind: "MultiHash", version: 2 } });
  await container.items.create({ id: "1", t: "a", u: 1 });
  await container.items.create({ id: "2", t: "a", u: 2 });
  await container.items.create({ id: "3", t: "b", u: 1 });
  assert.equal((await container.item("1", ["a", 1]).read()).resource.u, 1);
  const { resources } = await container.items.query("SELECT VALUE c.id FROM c", { partitionKey: ["a"] }).fetchAll();
  assert.deepEqual(resources.sort(), ["1", "2"]);
});

test("odd ids and large items round trip", async (t) => {
  const container = await newContainer(t);
  for (const id of ["a b%", "naïve-日本", "+plus+", "q'u\"", "{}[]!@", "%41"]) {
    await container.items.create({ id, pk: "a" });
    assert.equal((await container.item(id, "a").read()).resource.id, id);
    await container.item(id, "a").delete();
  }
  const text = "x".repeat(1_900_000);
  await container.items.create({ id: "big", pk: "a", text });
  assert.equal((await container.item("big", "a").read()).resource.text.length, text.length);
  assert.equal((await failure(container.items.create({ id: "huge", pk: "a", text: "x".repeat(2_200_000) }))).code, 413);
});

test("session tokens of a session client", async (t) => {
  const container = await newContainer(t);
  const client = newClient({ consistencyLevel: "Session" });
  const seen = client.database(container.database.id).container(container.id);
  const { headers } = await seen.items.create({ id: "1", pk: "a" });
  assert.match(headers["x-ms-session-token"], /^\d+:-?\d+#\d+/);
  assert.equal((await seen.item("1", "a").read()).resource.id, "1");
});

test("time to live", async (t) => {
  const container = await newContainer(t, { partitionKey: { paths: ["/pk"] }, defaultTtl: -1 });
  await container.items.create({ id: "short", pk: "a", ttl: 1 });
  await container.items.create({ id: "stays", pk: "a" });
  await new Promise((resolve) => setTimeout(resolve, 2100));
  assert.equal((await container.item("short", "a").read()).statusCode, 404);
  assert.deepEqual((await container.items.query("SELECT VALUE c.id FROM c").fetchAll()).resources, ["stays"]);
});

test("many writers at once", async (t) => {
  const container = await newContainer(t);
  await Promise.all(Array.from({ length: 80 }, (_, n) => container.items.create({ id: `${n}`, pk: `p${n % 11}` })));
  const { resources } = await container.items.query("SELECT VALUE c.id FROM c").fetchAll();
  assert.equal(new Set(resources).size, 80);
});
