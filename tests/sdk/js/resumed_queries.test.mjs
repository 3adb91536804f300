// ORDER BY over as many partitions as the server has, stopped after every page and begun again by a new client.

import assert from "node:assert/strict";
import test from "node:test";

import { newClient, newContainer } from "./common.mjs";

const COUNT = 17;
// The client merges values of one type only, and of several columns it loses rows: its filter asks that each of them goes
// on, not all together.
const ORDERS = ["c.n", "c.n DESC", "c.tied", "c.tied DESC", "c.s", "c.s DESC"];

async function ordered(t) {
  const container = await newContainer(t);
  for (let n = 0; n < COUNT; n += 1) {
    await container.items.create({ id: `${n}`, pk: `${n}`, n, tied: n % 3, s: "z".repeat(190 + (n % 5)) });
  }
  return container;
}

async function resumed(container, query, size) {
  const rows = [];
  let continuationToken;
  for (let pages = 0; pages < 100; pages += 1) {
    const again = newClient().database(container.database.id).container(container.id);
    const options = { maxItemCount: size, continuationToken, enableQueryControl: true };
    const page = await again.items.query(query, options).fetchNext();
    rows.push(...(page.resources ?? []).map((row) => row.id));
    continuationToken = page.continuationToken;
    if (!continuationToken) {
      return rows;
    }
  }
  throw new Error(`${query} never ends: ${rows}`);
}

test("an order is resumed by its token after every page", async (t) => {
  const container = await ordered(t);
  for (const order of ORDERS) {
    const query = `SELECT c.id FROM c ORDER BY ${order}`;
    const whole = (await container.items.query(query).fetchAll()).resources.map((row) => row.id);
    assert.equal(whole.length, COUNT);
    for (const size of [1, 5]) {
      assert.deepEqual(await resumed(container, query, size), whole, `${order} in pages of ${size}`);
    }
  }
});
