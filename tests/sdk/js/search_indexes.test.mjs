// Spatial, full-text, vector and hybrid queries where the policy declares indexes for them.

import assert from "node:assert/strict";
import test from "node:test";

import { newContainer } from "./common.mjs";

const texts = [
  "red fox in the snow",
  "a fox, a fox, my kingdom for a fox",
  "the quick brown dog",
  "dogs and foxes live apart",
  "nothing of interest here",
  "a den for one fox and one dog",
];
const vectors = [[1, 0, 0], [0.9, 0.1, 0], [0, 1, 0], [0, 0.9, 0.1], [0, 0, 1], [0.5, 0.5, 0]];

async function filled(t) {
  const container = await newContainer(t, {
    partitionKey: { paths: ["/pk"], version: 2 },
    indexingPolicy: {
      indexingMode: "consistent",
      includedPaths: [{ path: "/*" }],
      excludedPaths: [{ path: '/"_etag"/?' }, { path: "/vector/*" }],
      fullTextIndexes: [{ path: "/text" }],
      vectorIndexes: [{ path: "/vector", type: "flat" }],
      spatialIndexes: [{ path: "/place/*", types: ["Point"] }],
    },
    fullTextPolicy: { defaultLanguage: "en-US", fullTextPaths: [{ path: "/text", language: "en-US" }] },
    vectorEmbeddingPolicy: {
      vectorEmbeddings: [{ path: "/vector", dataType: "float32", distanceFunction: "cosine", dimensions: 3 }],
    },
  });
  for (const [n, text] of texts.entries()) {
    const place = { type: "Point", coordinates: [n, 0] };
    await container.items.create({ id: `${n}`, pk: `p${n % 3}`, text, vector: vectors[n], place });
  }
  const ask = async (query, options = {}) => (await container.items.query(query, options).fetchAll()).resources;
  return { container, ask };
}

const ids = (rows) => rows.map((row) => row.id);

test("full text filters and ranks", async (t) => {
  const { ask } = await filled(t);
  const found = await ask("SELECT VALUE c.id FROM c WHERE FullTextContains(c.text, 'fox')");
  assert.deepEqual(found.toSorted(), ["0", "1", "3", "5"]);
  const best = await ask("SELECT TOP 3 c.id FROM c ORDER BY RANK FullTextScore(c.text, 'fox')");
  assert.equal(best.length, 3);
  assert.equal(best[0].id, "1");
});

test("vector order", async (t) => {
  const { ask } = await filled(t);
  const nearest = await ask("SELECT TOP 3 c.id FROM c ORDER BY VectorDistance(c.vector, [1, 0, 0])");
  assert.deepEqual(ids(nearest), ["0", "1", "5"]);
});

test("hybrid ranks", async (t) => {
  const { ask } = await filled(t);
  const both = "SELECT TOP 2 c.id FROM c ORDER BY RANK RRF(FullTextScore(c.text, 'fox'), VectorDistance(c.vector, [1, 0, 0]))";
  assert.deepEqual(ids(await ask(both)).toSorted(), ["0", "1"]);
  const weighted =
    "SELECT TOP 1 c.id FROM c ORDER BY RANK RRF(FullTextScore(c.text, 'fox'), VectorDistance(c.vector, [0, 0, 1]), [0.01, 1])";
  assert.deepEqual(ids(await ask(weighted)), ["4"]);
});

test("spatial", async (t) => {
  const { ask } = await filled(t);
  const near = "SELECT VALUE c.id FROM c WHERE ST_DISTANCE(c.place, {'type': 'Point', 'coordinates': [2, 0]}) < 150000";
  assert.deepEqual((await ask(near)).toSorted(), ["1", "2", "3"]);
});
