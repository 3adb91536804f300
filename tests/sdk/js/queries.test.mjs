import assert from "node:assert/strict";
import test from "node:test";

import { failure, newContainer } from "./common.mjs";

async function filled(t) {
  const container = await newContainer(t);
  for (let n = 0; n < 20; n += 1) {
    await container.items.create({ id: `${n}`, pk: `p${n % 4}`, n, tags: ["a", "b"].slice(0, n % 3) });
  }
  return container;
}

test("filters, parameters, joins", async (t) => {
  const container = await filled(t);
  const query = (text, parameters = [], options = {}) => container.items.query({ query: text, parameters }, options).fetchAll();
  const { resources } = await query("SELECT VALUE c.n FROM c WHERE c.n BETWEEN @a AND @b", [
    { name: "@a", value: 3 },
    { name: "@b", value: 6 },
  ]);
  assert.deepEqual(resources.sort((a, b) => a - b), [3, 4, 5, 6]);
  const { resources: joined } = await query("SELECT c.id, t FROM c JOIN t IN c.tags WHERE c.n = 5");
  assert.equal(joined.length, 2);
  const { resources: one } = await query("SELECT VALUE c.n FROM c", [], { partitionKey: "p2" });
  assert.deepEqual(one.sort((a, b) => a - b), [2, 6, 10, 14, 18]);
});

test("pages of one walk everything once", async (t) => {
  const container = await filled(t);
  const iterator = container.items.query("SELECT VALUE c.id FROM c", { maxItemCount: 1 });
  const seen = [];
  while (iterator.hasMoreResults()) {
    seen.push(...((await iterator.fetchNext()).resources ?? []));
  }
  assert.equal(seen.length, 20);
  assert.equal(new Set(seen).size, 20);
});

test("everything is read", async (t) => {
  const container = await filled(t);
  assert.equal((await container.items.readAll().fetchAll()).resources.length, 20);
});

test("order and aggregates inside one partition", async (t) => {
  const container = await filled(t);
  const inside = (text) => container.items.query(text, { partitionKey: "p1" }).fetchAll();
  assert.deepEqual((await inside("SELECT VALUE c.n FROM c ORDER BY c.n DESC")).resources, [17, 13, 9, 5, 1]);
  assert.deepEqual((await inside("SELECT VALUE COUNT(1) FROM c")).resources, [5]);
  assert.deepEqual((await inside("SELECT TOP 2 VALUE c.n FROM c ORDER BY c.n")).resources, [1, 5]);
});

test("bad queries say where", async (t) => {
  const container = await filled(t);
  const error = await failure(container.items.query("SELECT FROM c").fetchAll());
  assert.equal(error.code, 400);
  assert.match(error.message ?? JSON.stringify(error.body), /Syntax error, incorrect syntax near 'FROM'/);
});
