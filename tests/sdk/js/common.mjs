// A client of the live server named by QUIRE_ENDPOINT. QUIRE_KEY points the same tests at a real account.

import { createRequire } from "node:module";
import { randomUUID } from "node:crypto";

const require = createRequire(process.env.QUIRE_NODE_MODULES + "/");
export const cosmos = require("@azure/cosmos");

const WELL_KNOWN_KEY =
  "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

export const endpoint = process.env.QUIRE_ENDPOINT;
export const key = process.env.QUIRE_KEY ?? WELL_KNOWN_KEY;
export const partitions = Number(process.env.QUIRE_PARTITIONS ?? "1");

export function newClient(options = {}) {
  return new cosmos.CosmosClient({ endpoint, key, ...options });
}

export function name(prefix) {
  return `${prefix}-${randomUUID().slice(0, 8)}`;
}

// A database that goes away when the test ends.
export async function newDatabase(test, client = newClient()) {
  const { database } = await client.databases.create({ id: name("js") });
  test.after(() => database.delete());
  return database;
}

export async function newContainer(test, definition = { partitionKey: { paths: ["/pk"], version: 2 } }) {
  const database = await newDatabase(test);
  const { container } = await database.containers.create({ id: name("c"), ...definition });
  return container;
}

export async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error("the operation should have failed");
}
