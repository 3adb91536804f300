import assert from "node:assert/strict";
import test from "node:test";

import { newContainer } from "./common.mjs";

const ITEMS = [
  { id: "1", text: "the quick brown fox jumps over the lazy dog", v: [1, 0] },
  { id: "2", text: "a fox, a fox, my kingdom for a fox", v: [0, 1] },
  { id: "3", text: "nothing of interest", v: [0.9, 0.1] },
  { id: "4", text: "dogs and cats", v: [0.5, 0.5] },
  { id: "5", text: "a red fox", v: [-1, 0] },
  { id: "6" },
];

async function searched(t) {
  const container = await newContainer(t, {
    partitionKey: { paths: ["/pk"], version: 2 },
    vectorEmbeddingPolicy: {
      vectorEmbeddings: [{ path: "/v", dataType: "float32", dimensions: 2, distanceFunction: "euclidean" }],
    },
    fullTextPolicy: { defaultLanguage: "en-US", fullTextPaths: [{ path: "/text", language: "en-US" }] },
  });
  for (const item of ITEMS) {
    await container.items.create({ ...item, pk: item.id });
  }
  return async (query, parameters = []) => {
    const { resources } = await container.items.query({ query, parameters }).fetchAll();
    return resources.map((row) => row.id);
  };
}

test("full text", async (t) => {
  const ids = await searched(t);
  assert.deepEqual((await ids("SELECT c.id FROM c WHERE FullTextContainsAll(c.text, 'dog', 'fox')")), ["1"]);
  assert.deepEqual(await ids("SELECT TOP 3 c.id FROM c ORDER BY RANK FullTextScore(c.text, 'fox')"), ["2", "5", "1"]);
});

test("vectors in the order that their policy says", async (t) => {
  const ids = await searched(t);
  // Distances ascend here, and an item without one comes first, like any undefined value.
  const query = "SELECT TOP 3 c.id FROM c ORDER BY VectorDistance(c.v, @v)";
  assert.deepEqual(await ids(query, [{ name: "@v", value: [-1, 0] }]), ["6", "5", "2"]);
});

test("rank fusion", async (t) => {
  const ids = await searched(t);
  const fused = "RRF(FullTextScore(c.text, @term), VectorDistance(c.v, [0, 1]))";
  assert.equal((await ids(`SELECT TOP 3 c.id FROM c ORDER BY RANK ${fused}`, [{ name: "@term", value: "fox" }]))[0], "2");
  const weighted = "RRF(FullTextScore(c.text, 'fox'), VectorDistance(c.v, [1, 0]), [0.1, 10])";
  const order = await ids(`SELECT TOP 6 c.id FROM c ORDER BY RANK ${weighted}`);
  assert.deepEqual(order.slice(0, 3), ["1", "3", "4"]);
  assert.equal(order.at(-1), "6");
});
