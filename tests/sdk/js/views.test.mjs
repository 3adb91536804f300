import assert from "node:assert/strict";
import test from "node:test";

import { failure, name, newDatabase } from "./common.mjs";

async function newView(t, paths, projection) {
  const database = await newDatabase(t);
  const partitionKey = { paths: ["/pk"], version: 2 };
  const { container: source } = await database.containers.create({ id: name("s"), partitionKey });
  for (let n = 0; n < 40; n++) await source.items.create({ id: `${n}`, pk: `k${n % 5}`, city: `c${n % 3}`, n });
  const { container: view } = await database.containers.create({
    id: name("v"),
    partitionKey: { paths, version: 2 },
    materializedViewDefinition: { sourceCollectionId: source.id, definition: projection },
  });
  return { database, source, view };
}

// The ids of the source's items that a view has, once that is what is expected.
async function caughtUp(view, expected) {
  const wanted = JSON.stringify(expected.toSorted());
  for (let tries = 0; ; tries++) {
    const { resources } = await view.items.readAll().fetchAll();
    const found = JSON.stringify(resources.map((item) => item._id).toSorted());
    if (found === wanted) return resources;
    assert.ok(tries < 600, `${found} is not ${wanted}`);
    await new Promise((done) => setTimeout(done, 100));
  }
}

test("a view is filled and follows its source", async (t) => {
  const { source, view } = await newView(t, ["/city"], "SELECT c.city, c.n FROM c");
  const ids = Array.from({ length: 40 }, (_, n) => `${n}`);
  await caughtUp(view, ids);
  await source.item("0", "k0").delete();
  await source.items.upsert({ id: "1", pk: "k1", city: "elsewhere", n: 1 });
  await source.items.create({ id: "new", pk: "k", city: "elsewhere", n: 2 });
  await caughtUp(view, [...ids.slice(1), "new"]);
  for (let tries = 0; tries < 100; tries++) {
    const query = view.items.query("SELECT VALUE c._id FROM c ORDER BY c.n", { partitionKey: "elsewhere" });
    const { resources } = await query.fetchAll();
    if (resources.length === 2) return assert.deepEqual(resources, ["1", "new"]);
    await new Promise((done) => setTimeout(done, 100));
  }
  assert.fail("the item did not move");
});

test("nobody writes to a view, and its source stays while it is there", async (t) => {
  const { source, view } = await newView(t, ["/city"], "SELECT * FROM c");
  assert.equal((await failure(view.items.create({ id: "x", city: "c" }))).code, 403);
  assert.equal((await failure(view.items.upsert({ id: "x", city: "c" }))).code, 403);
  assert.equal((await failure(view.item("x", "c").delete())).code, 403);
  assert.equal((await failure(source.delete())).code, 400);
  const { resource } = await source.read();
  assert.deepEqual(resource.materializedViews.map((entry) => entry.id), [view.id]);
  await view.delete();
  await source.delete();
});
