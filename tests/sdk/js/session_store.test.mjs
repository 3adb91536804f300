// Sessions of a web server, kept by express-session-cosmosdb, which brings a JavaScript SDK of the generation before (3.17).

import test from "node:test";
import assert from "node:assert/strict";
import http from "node:http";
import { createRequire } from "node:module";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";

import { endpoint, key, name, newDatabase } from "./common.mjs";

const require = createRequire(process.env.QUIRE_NODE_MODULES + "/");
const session = require("express-session");
const { default: CosmosSessionStore } = require("express-session-cosmosdb");

// A server that counts the visits of a session.
async function counter(test, store) {
  const sessions = session({ store, secret: "test", resave: false, saveUninitialized: true });
  const server = http.createServer((request, response) =>
    sessions(request, response, (error) => {
      if (error) {
        return response.writeHead(500).end(String(error));
      }
      if (request.url === "/leave") {
        return request.session.destroy(() => response.end("left"));
      }
      request.session.visits = (request.session.visits ?? 0) + 1;
      response.end(String(request.session.visits));
    }),
  );
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  test.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return `http://127.0.0.1:${server.address().port}`;
}

async function visit(url, cookie) {
  const answer = await fetch(url, { headers: cookie ? { cookie } : {} });
  const given = answer.headers.get("set-cookie")?.split(";")[0];
  return { text: await answer.text(), cookie: given ?? cookie };
}

const skip = endpoint.startsWith("https:") ? false : "its SDK takes https only";

test("a session store keeps sessions, and they expire", { skip, timeout: 60_000 }, async (t) => {
  const database = await newDatabase(t);
  const collection = name("sessions");
  await database.containers.create({ id: collection, partitionKey: { paths: ["/id"], version: 2 }, defaultTtl: -1 });
  const url = await counter(t, new CosmosSessionStore({ endpoint, key, database: database.id, collection, ttl: 2 }));

  const first = await visit(url);
  assert.equal(first.text, "1");
  assert.equal((await visit(url, first.cookie)).text, "2");
  assert.equal((await visit(url)).text, "1", "another visitor");
  const { resources } = await database.container(collection).items.query("SELECT VALUE c.visits FROM c ORDER BY c.visits").fetchAll();
  assert.deepEqual(resources, [1, 2]);

  await visit(url + "/leave", first.cookie);
  assert.equal((await visit(url, first.cookie)).text, "1");
  await sleep(3000);
  assert.equal((await visit(url, first.cookie)).text, "1", "the session has expired");
});
