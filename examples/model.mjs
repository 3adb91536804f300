// Declares a model, as `quire model put` does it: the SDK has no call for it.

import { createHmac } from "node:crypto";
import { setTimeout } from "node:timers/promises";

// Returns when it is built over the items that are there.
export async function putModel(endpoint, key, database, model) {
  async function request(method, path, body) {
    const date = new Date().toUTCString();
    const text = `${method.toLowerCase()}\n_quire\n${path}\n${date.toLowerCase()}\n\n`;
    const signature = createHmac("sha256", Buffer.from(key, "base64")).update(text).digest("base64");
    const answer = await fetch(`${endpoint.replace(/\/$/, "")}/${path}`, {
      method,
      headers: {
        authorization: encodeURIComponent(`type=master&ver=1.0&sig=${signature}`),
        "x-ms-date": date,
        "x-ms-version": "2020-07-15",
      },
      body: body && JSON.stringify(body),
    });
    if (!answer.ok) throw new Error(await answer.text());
    return answer.json();
  }

  const path = `_quire/dbs/${database}/model`;
  await request("PUT", path, model);
  for (;;) {
    const { declarations } = await request("GET", `${path}/status`);
    if (declarations.every(({ state }) => state === "active")) return;
    if (declarations.some(({ state }) => state === "failed")) throw new Error("the model cannot be built");
    await setTimeout(50);
  }
}
