// Posts with their newest comments, the others in pages, kept by the model in blog.json: node examples/blog.mjs [ENDPOINT]
//
// It works in a database of its own, `blog-example-js`, which it makes anew.

import { CosmosClient } from "@azure/cosmos";
import { readFile } from "node:fs/promises";

import { putModel } from "./model.mjs";

const KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";
const DATABASE = "blog-example-js";
const endpoint = process.argv[2] ?? "http://localhost:8081/";

const client = new CosmosClient({ endpoint, key: KEY });
await client.database(DATABASE).delete().catch((error) => {
  if (error.code !== 404) throw error;
});
const { database } = await client.databases.create({ id: DATABASE });
const people = await create("people", "/id");
const posts = await create("posts", "/id");
const pages = await create("commentPages", "/postId");

await people.items.create({ id: "ada", name: "Ada" });
// A post from before the model, with all its comments inside.
const recentComments = Array.from({ length: 15 }, (_, number) => comment(number + 1));
await posts.items.create({ id: "first", title: "First", author: { id: "ada" }, recentComments });
await putModel(endpoint, KEY, DATABASE, JSON.parse(await readFile(new URL("blog.json", import.meta.url), "utf8")));
await show("declared over a post with 15 comments");

for (let number = 16; number < 26; number++) {
  await posts.item("first", "first").patch([{ op: "add", path: "/recentComments/-", value: comment(number) }]);
}
await show("10 more");

const post = await read(posts, "first");
post.recentComments.pop();
await posts.item("first", "first").replace(post);
await show("the last one taken back");

const query = "SELECT VALUE c.text FROM p JOIN c IN p.comments WHERE p.page = 0 AND c.id = 'c4'";
console.log("found in a page:", (await pages.items.query(query, { partitionKey: "first" }).fetchAll()).resources[0]);
console.log("posts of Ada:", (await read(people, "ada")).countOfPosts);
await posts.item("first", "first").delete();
console.log("pages after the post was deleted:", (await pages.items.readAll().fetchAll()).resources.length);
console.log("posts of Ada:", (await read(people, "ada")).countOfPosts);

async function create(id, path) {
  return (await database.containers.create({ id, partitionKey: { paths: [path], version: 2 } })).container;
}

async function read(container, id, key = id) {
  return (await container.item(id, key).read()).resource;
}

function comment(number) {
  return { id: `c${number}`, author: { id: "ada" }, text: `comment ${number}` };
}

async function show(what) {
  const post = await read(posts, "first");
  const newest = post.recentComments.map(({ id }) => id).join(", ");
  const query = "SELECT VALUE ARRAY_LENGTH(p.comments) FROM p ORDER BY p.page";
  const sizes = (await pages.items.query(query, { partitionKey: "first" }).fetchAll()).resources;
  console.log(`${what}: ${post.commentCount} comments, in the post ${newest}, in pages [${sizes.join(", ")}]`);
}
